"""Files that are replaced completely or not at all."""

import contextlib
import glob
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from os import PathLike
from typing import IO

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def replacing(path: str | PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a binary file for writing that replaces `path` only if the block ends without an error.

    The bytes are written to a temporary file in the same folder, flushed to the disk (fsync), and renamed in one step
    (`os.replace`). If anything fails before (an exception, a full disk, Ctrl-C), the old file is not changed
    and the temporary one is removed; a temporary file of a killed process is removed by the next process that
    replaces the same file. A link is followed; an existing file keeps its permissions, and a new one gets the
    usual ones.
    """
    target = os.path.realpath(os.fspath(path))
    folder = os.path.dirname(target)
    permissions = _permissions(target, path)
    prefix = f".vicinal-{hashlib.sha256(os.path.basename(target).encode('utf-8', 'surrogatepass')).hexdigest()[:12]}-"
    _remove_abandoned(folder, prefix)
    temporary, descriptor = _open_locked(folder, prefix, 0o666 if permissions is None else permissions | 0o600)
    lock = (
        None if fcntl is None else os.dup(descriptor)
    )  # it is held after the file is closed, until the new name is in place
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
    finally:
        if lock is not None:
            os.close(lock)
    _sync_folder(folder)


def _open_locked(folder: str, prefix: str, permissions: int) -> tuple[str, int]:
    """Return a new temporary file that is locked while it is open; a file without a lock was left by a killed process."""
    while True:
        temporary = os.path.join(folder, f"{prefix}{secrets.token_hex(8)}.tmp")
        # Not tempfile.mkstemp: its files are readable by the owner only, whatever the umask says.
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), permissions)
        # Between its creation and the lock another process may have taken it for abandoned.
        if fcntl is None or (_locked(descriptor) and os.path.exists(temporary)):
            return temporary, descriptor
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    """Return whether a lock could be taken; True also if the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _remove_abandoned(folder: str, prefix: str) -> None:
    """Remove the temporary files of killed processes that tried to replace the same file."""
    for name in glob.glob(f"{prefix}*.tmp", root_dir=folder):
        left = os.path.join(folder, name)
        with contextlib.suppress(OSError):
            if fcntl is None:  # Windows does not remove a file that is open
                os.unlink(left)
                continue
            descriptor = os.open(left, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(left)
            finally:
                os.close(descriptor)


def _permissions(target: str, path: str | PathLike[str]) -> int | None:
    """Return the permission bits of the file to replace, or None if there is none; raise an error if it is not a file."""
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        if not os.path.isdir(os.path.dirname(target)):
            raise FileNotFoundError(
                f"cannot write {os.fspath(path)!r}: the folder {os.path.dirname(target)!r} does not exist. "
                "Create it first."
            ) from None
        return None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"cannot write {os.fspath(path)!r}: it is a folder. Name a file in it.")
    if not stat.S_ISREG(mode):
        raise OSError(f"cannot write {os.fspath(path)!r}: it is not a regular file, and would be replaced by one.")
    return stat.S_IMODE(mode)


def _sync_folder(folder: str) -> None:
    """Make the rename durable, if the system allows opening a folder."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
