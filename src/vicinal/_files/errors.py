"""Errors about files of tables. For damaged files, the readers of other libraries raise nearly every built-in exception."""

import contextlib
import zlib
from collections.abc import Iterator

from vicinal._words import one_line


class FileError(ValueError):
    """A table in a file that cannot be read.

    Parameters
    ----------
    message : str
        The problem and the remedy. Parameters are named as in Python, with an equals sign: ``sep=';'``.
    is_option : bool
        Whether the problem is the value of a parameter, and not the file.
    """

    def __init__(self, message: str, *, is_option: bool = False) -> None:
        super().__init__(message)
        self.is_option = is_option


@contextlib.contextmanager
def reading(name: object, kind: str = "", more: str = "") -> Iterator[None]:
    """Turn any error of the reader of a format into a FileError of one sentence that names the file."""
    try:
        yield
    except (FileError, ImportError):
        raise
    except MemoryError as error:
        raise FileError(f"cannot read {name}: it does not fit into memory.") from error
    except EOFError as error:
        raise FileError(f"cannot read {name}: the file ends too early. It may be incomplete.") from error
    except zlib.error as error:
        raise FileError(f"cannot read {name}: its compressed data are damaged ({one_line(error)}).") from error
    except OSError as error:
        if error.strerror:
            raise FileError(f"cannot read {name}: {error.strerror}.") from error
        raise _undecodable(name, kind, error, more) from error
    except Exception as error:
        raise _undecodable(name, kind, error, more) from error


def _undecodable(name: object, kind: str, error: Exception, more: str) -> FileError:
    reason = one_line(error)[:300].rstrip(".") or type(error).__name__
    if not isinstance(error, (ValueError, OSError)):  # such as KeyError, whose text is only a name
        reason = f"{type(error).__name__}: {reason}"
    as_kind = f" as {kind}" if kind else "; it may be damaged"
    return FileError(f"cannot read {name}{as_kind}: {reason}.{more}")
