"""Files that are replaced completely or not at all."""

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from os import PathLike
from typing import IO


@contextlib.contextmanager
def replacing(path: str | PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a binary file for writing that replaces `path` only if the block ends without an error.

    The bytes are written to a temporary file in the same folder, flushed to the disk, and renamed in one step. If anything fails
    before (an exception, a full disk, Ctrl-C), the old file is not changed and the temporary one is removed. Only a process that is
    killed leaves it behind. A link is followed; an existing file keeps its permissions, and a new one gets the usual ones.
    """
    target = os.path.realpath(os.fspath(path))
    permissions = _permissions(target, path)
    # Not tempfile.mkstemp: its files are readable by the owner only, whatever the umask says.
    temporary = os.path.join(os.path.dirname(target), f".vicinal-{secrets.token_hex(8)}.tmp")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(temporary, flags, 0o666 if permissions is None else permissions | 0o600)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if permissions is not None:
            os.chmod(temporary, permissions)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    with contextlib.suppress(OSError):  # make the rename durable, if the system allows opening a folder
        folder = os.open(os.path.dirname(target), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _permissions(target: str, path: str | PathLike[str]) -> int | None:
    """Return the permission bits of the file to replace, or None if there is none; raise an error if it is not a file."""
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        folder = os.path.dirname(target)
        if not os.path.isdir(folder):
            raise FileNotFoundError(
                f"cannot write {os.fspath(path)!r}: the folder {folder!r} does not exist. Create it first."
            ) from None
        return None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"cannot write {os.fspath(path)!r}: it is a folder. Name a file in it.")
    if not stat.S_ISREG(mode):
        raise OSError(f"cannot write {os.fspath(path)!r}: it is not a regular file, and would be replaced by one.")
    return stat.S_IMODE(mode)
