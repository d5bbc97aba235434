"""A journal of a fit: the results of each pass over the pairs in a file, so that a fit that was killed can be continued.

A fit is a deterministic function of its passes. To continue, it is started again, and the results of every pass in the journal
are read instead of computed, which brings any solver to its previous state, to the last bit. No solver needs code to save its
state.

Functions that make a pass are decorated with `journaled`. They return numbers and arrays that are small compared with the work.
Outside a `keep_journal` block the decorator has no effect.

The file begins with a line of JSON that identifies the fit. A record is a line of JSON (the function, a digest of its
arrays, dtypes and shapes, a checksum) and the bytes of its results. The pass of an incomplete or damaged record is computed again.
"""

import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import wraps
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np

from vicinal._version import __version__

_F = TypeVar("_F", bound=Callable[..., Any])
_WHAT = "vicinal fit"


class OtherFitError(ValueError):
    """The journal belongs to another fit."""


class Journal:
    """The passes of one fit.

    Parameters
    ----------
    path : path
    digest : str
        A digest of the rows and the parameters, which identifies the fit.

    Attributes
    ----------
    path : Path
    n_replayed, n_computed : int
        The numbers of passes that were read from the file and that were computed.
    """

    def __init__(self, path: str | os.PathLike[str], digest: str) -> None:
        self.n_replayed = self.n_computed = 0
        header = json.dumps({"what": _WHAT, "version": __version__, "digest": digest}).encode() + b"\n"
        self.path = Path(path)
        self._file: BinaryIO = open(path, "a+b")  # noqa: SIM115 (closed by keep_journal)
        self._file.seek(0)
        first = self._file.readline()
        if first != header and header.startswith(first) and self._file.read(1) == b"":  # a kill can truncate the header
            self._file.truncate(0)
            first = b""
        if first and first != header:
            self._file.close()
            raise OtherFitError(
                f"{path} belongs to a fit of other rows, or with other parameters or another version of vicinal."
            )
        if not first:
            self._file.write(header)
            self._file.flush()
        self._replaying = bool(first)

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):
            self._file.close()

    def passed(self, name: str, digest: str, compute: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        """Return the results of a pass, from the file if it has a record, otherwise computed and appended."""
        if self._replaying:
            place = self._file.tell()
            found = self._read(name, digest)
            if found is not None:
                self.n_replayed += 1
                return found
            self._file.seek(place)
            found = compute()  # a pass that raised an error has no record, but the records after it can still be used
            self._replaying = False
            self._file.truncate(place)
        else:
            found = compute()
        self.n_computed += 1
        arrays = [np.asarray(value) for value in found]
        head = {"pass": name, "digest": digest, "arrays": [(array.dtype.str, array.shape) for array in arrays]}
        data = b"".join(array.tobytes() for array in arrays)
        # If the disk is full, the journal is incomplete, but the fit continues.
        with suppress(OSError):
            self._file.write(json.dumps({**head, "check": checksum(head, data)}).encode() + b"\n" + data)
            self._file.flush()
        return found

    def _read(self, name: str, digest: str) -> tuple[Any, ...] | None:
        """Return the next record, or None if there is no complete and undamaged one."""
        line = self._file.readline()
        rest = os.fstat(self._file.fileno()).st_size - self._file.tell()
        try:
            head = json.loads(line)
            check = head.pop("check")
            kinds = [(np.dtype(kind), tuple(shape)) for kind, shape in head["arrays"]]
            sizes = [dtype.itemsize * math.prod(shape) for dtype, shape in kinds]
            if not all(0 <= size <= rest for size in sizes):
                return None
        except (ValueError, TypeError, KeyError, AttributeError, SyntaxError, RecursionError):
            return None
        data = self._file.read(sum(sizes))
        if (head.get("pass"), head.get("digest")) != (name, digest) or checksum(head, data) != check:
            return None
        found: list[Any] = []
        for (dtype, shape), size, end in zip(kinds, sizes, np.cumsum(sizes), strict=True):
            array = np.frombuffer(data[end - size : end], dtype).reshape(shape).copy()
            found.append(array.item() if shape == () else array)
        return tuple(found)


_JOURNAL: ContextVar[Journal | None] = ContextVar("journal of passes", default=None)


@contextmanager
def keep_journal(path: str | os.PathLike[str], digest: str) -> Iterator[Journal]:
    """Save the passes of the fit in this block to a file, and reuse those that are already there."""
    journal = Journal(path, digest)
    token = _JOURNAL.set(journal)
    try:
        yield journal
    finally:
        _JOURNAL.reset(token)
        journal.close()


def journaled(result: Callable[[Any], Any] = tuple) -> Callable[[_F], _F]:
    """Decorate a function that makes a pass and returns a tuple of floats and arrays.

    Parameters
    ----------
    result : callable
        Creates the return value of the function from the values: ``_make`` of a named tuple.
    """

    def decorate(function: _F) -> _F:
        @wraps(function)
        def make_pass(*args: Any, **kwargs: Any) -> Any:
            journal = _JOURNAL.get()
            if journal is None:
                return function(*args, **kwargs)
            found = journal.passed(
                function.__qualname__, _digest([*args, *kwargs.values()]), lambda: function(*args, **kwargs)
            )
            return result(found)

        return make_pass  # type: ignore[return-value]

    return decorate


def checksum(entry: dict[str, Any], data: bytes = b"") -> str:
    """Return a checksum of an entry of a file of saved work, by which damage is recognised."""
    return blake2b(json.dumps(entry).encode() + data, digest_size=8).hexdigest()


def _digest(values: list[Any]) -> str:
    """Return a digest of the arrays and floats among some values; rows and problems are those of the fit."""
    found = blake2b(digest_size=16)
    for value in values:
        parts = value if isinstance(value, tuple) else (value,)
        for part in parts:
            if isinstance(part, (np.ndarray, float)):
                part = np.asarray(part)
                found.update(repr(part.shape).encode() + np.ascontiguousarray(part).tobytes())
    return found.hexdigest()
