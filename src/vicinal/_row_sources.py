"""Rows that need not be in memory: what a memory map, a folder of files and a Dask collection have in common.

A fit that makes one pass over the rows, or draws some of them, takes a source of rows instead of an array, and holds one
block at a time.  An array is a source as well (`ArrayRows`), so that such a fit is written once.
"""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

BLOCK_BYTES = 2**25  # of the rows that are read at a time, unless the source has blocks of its own


class RowSource(Protocol):
    """A table of numbers that is read in blocks.

    Attributes
    ----------
    shape : tuple of int
        The number of rows and of columns.
    dtype : numpy.dtype
        float64 or float32: what `blocks` and `take` return.
    columns : list of str or None
        The names of the columns, where they have names.
    """

    shape: tuple[int, int]
    dtype: np.dtype
    columns: list[str] | None

    def blocks(self, start: int = 0) -> Iterator[np.ndarray]:
        """Yield the rows from position `start` on, in their order, in blocks of shape (m, d), m > 0.

        The cuts between blocks belong to the source and not to the caller: a method whose answer must not depend on them
        cuts for itself.  A block may be overwritten by the next one: copy what is kept.
        """
        ...

    def take(self, positions: np.ndarray) -> np.ndarray:
        """Return the rows at some positions, in the order asked for, shape (m, d): a copy in memory."""
        ...


class ArrayRows:
    """An array, or a memory map, as a source of rows; nothing is copied but what is yielded from a memory map.

    Parameters
    ----------
    rows : array of shape (n, d)
    columns : list of str, optional
    """

    def __init__(self, rows: np.ndarray, columns: list[str] | None = None):
        self._rows = rows
        self.shape: tuple[int, int] = rows.shape[0], rows.shape[1]
        self.dtype = rows.dtype if rows.dtype in (np.dtype(np.float64), np.dtype(np.float32)) else np.dtype(np.float64)
        self.columns = columns

    def blocks(self, start: int = 0) -> Iterator[np.ndarray]:
        """Yield the rows in blocks of about `BLOCK_BYTES`."""
        n, d = self.shape
        step = max(BLOCK_BYTES // (d * self.dtype.itemsize), 1)
        for first in range(start, n, step):
            yield np.asarray(self._rows[first : first + step], dtype=self.dtype)

    def take(self, positions: np.ndarray) -> np.ndarray:
        """Return the rows at some positions."""
        return np.array(self._rows[positions], dtype=self.dtype)


def is_source(X: Any) -> bool:
    """Whether X is a source of rows."""
    return hasattr(X, "blocks") and hasattr(X, "take") and hasattr(X, "shape") and not isinstance(X, np.ndarray)
