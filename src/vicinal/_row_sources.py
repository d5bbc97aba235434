"""Rows that need not be in memory: the common interface of memory maps, files and Dask collections.

A fit that makes one pass over the rows, or draws some of them, accepts a source of rows instead of an array, and holds one
block at a time.  An array is a source as well (`ArrayRows`), so that such a fit has a single implementation.
"""

import contextlib
import mmap
import os
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Protocol, cast

import numpy as np

BLOCK_BYTES = 2**25  # the size of a block of rows that is read at a time, unless the source has its own blocks

# The functions that make sources of other libraries' tables, by the package of the table; each takes the table.
_OTHER_SOURCES = {
    "dask": ("vicinal._rows.dask", "DaskRows"),
    "pyarrow": ("vicinal._files", "parquet_rows"),
    "zarr": ("vicinal._files", "zarr_rows"),
}


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

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield the rows in their order, in blocks of shape (m, d), m > 0.

        The source determines the boundaries of blocks; a method whose result must not depend on them divides the rows itself.
        A block may be overwritten by the next one, so copy any rows that are kept.
        """
        ...

    def take(self, positions: np.ndarray) -> np.ndarray:
        """Return the rows at some positions, in the given order, as a copy in memory of shape (m, d)."""
        ...

    def kept(self) -> Any:
        """Return all rows in the form that a fitted density keeps: an array that is not in memory."""
        ...

    def density_positions(self) -> np.ndarray | None:
        """Return the positions of the rows that a density takes into memory; None if it uses all rows where they are."""
        ...


class _AsArray:
    """A source that functions of NumPy and scikit-learn read into memory."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return all rows in memory, or the memory map itself if the source is one."""
        rows = np.asarray(all_rows(cast(RowSource, self)), dtype=dtype)
        return rows.copy() if copy else rows

    def density_positions(self) -> np.ndarray | None:
        """Return None: a density uses all rows where they are."""
        return None


class ArrayRows(_AsArray):
    """An array, or a memory map, as a source of rows; only the rows that are yielded from a memory map are copied.

    Parameters
    ----------
    rows : array of shape (n, d)
    columns : list of str, optional
    """

    def __init__(self, rows: np.ndarray, columns: list[str] | None = None) -> None:
        self._rows = rows
        self.shape: tuple[int, int] = rows.shape[0], rows.shape[1]
        self.dtype = real_dtype(rows.dtype)
        self.columns = columns

    def __len__(self) -> int:
        return self.shape[0]

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield the rows in blocks of about `BLOCK_BYTES`."""
        step = rows_in_block(self)
        for first in range(0, self.shape[0], step):
            yield np.asarray(self._rows[first : first + step], dtype=self.dtype)

    def take(self, positions: np.ndarray) -> np.ndarray:
        """Return the rows at some positions."""
        return np.array(self._rows[positions], dtype=self.dtype)

    def kept(self) -> np.ndarray:
        """Return all rows as one array: the array itself if it has the right dtype; not in memory if the source is not."""
        return self._rows if self._rows.dtype == self.dtype else _spill(self)


class FileRows(_AsArray, ABC):
    """Rows in files that can only be read in blocks; `take` uses a copy of them in a temporary file.

    The copy is a memory map that is created at the first use, in the folder of temporary files (``TMPDIR``), and is deleted
    with the last array that refers to it.
    """

    shape: tuple[int, int]
    dtype: np.dtype
    columns: list[str] | None = None
    _copy: np.ndarray | None = None

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def blocks(self) -> Iterator[np.ndarray]:
        """Yield the rows in their order."""

    def take(self, positions: np.ndarray) -> np.ndarray:
        """Return the rows at some positions."""
        return self.kept()[positions]

    def kept(self) -> np.ndarray:
        """Return all rows as a memory map of a temporary file."""
        if self._copy is None:
            self._copy = _spill(self)
        return self._copy


class ColumnsOf(FileRows):
    """Some columns of a source.

    Parameters
    ----------
    source : RowSource
    positions : integer array
    """

    def __init__(self, source: RowSource, positions: np.ndarray) -> None:
        self._source, self._positions = source, positions
        self.shape, self.dtype = (source.shape[0], len(positions)), source.dtype
        self.columns = None if source.columns is None else [source.columns[k] for k in positions]

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield the rows in the blocks of the source."""
        for block in self._source.blocks():
            yield np.ascontiguousarray(block[:, self._positions])

    def take(self, positions: np.ndarray) -> np.ndarray:
        """Return the rows at some positions."""
        return np.ascontiguousarray(self._source.take(positions)[:, self._positions])

    def density_positions(self) -> np.ndarray | None:
        """Return the positions of the rows that a density of the source takes into memory."""
        return self._source.density_positions()


# -- public functions --------------------------------------------------------------------------------------------------


def as_source(X: Any) -> RowSource | None:
    """Return the source of the rows of X, or None if X is in memory.

    A memory map (``np.load(path, mmap_mode="r")``), a Zarr array, a ``pyarrow.dataset.Dataset`` and a Dask collection are
    converted to sources.
    """
    if isinstance(X, ArrayRows):
        return X if in_file(X._rows) else None
    if is_source(X):
        return X
    package = type(X).__module__.partition(".")[0]
    if isinstance(X, np.memmap):
        return ArrayRows(X) if X.ndim == 2 and X.dtype.kind in "fiub" and in_file(X) else None
    if package == "pyarrow" and not hasattr(X, "get_fragments"):  # a table in memory
        return None
    if package in _OTHER_SOURCES:
        module, name = _OTHER_SOURCES[package]
        return getattr(import_module(module), name)(X)
    return None


def is_source(X: Any) -> bool:
    """Return whether X is a source of rows."""
    return hasattr(X, "blocks") and hasattr(X, "take") and hasattr(X, "columns") and not isinstance(X, np.ndarray)


def in_file(rows: Any) -> bool:
    """Return whether the memory of an array is a map of a file."""
    while isinstance(rows, np.ndarray):
        if isinstance(rows, np.memmap) and getattr(rows, "_mmap", None) is not None:
            return True
        rows = rows.base
    return isinstance(rows, mmap.mmap)


def all_rows(source: RowSource) -> np.ndarray:
    """Return all rows of a source in memory, or the memory map itself if the source is one."""
    if isinstance(source, ArrayRows):
        return source.kept()
    return by_blocks(lambda block: block.kept(), source)


def mapped(X: Any) -> Any:
    """Return X, or a memory map of a temporary copy if X can only be read in blocks, for fits that need another order."""
    source = None if isinstance(X, (np.ndarray, ArrayRows)) else as_source(X)
    return X if source is None else ArrayRows(source.kept(), source.columns)


def by_blocks(function: Callable[[Any], np.ndarray], source: RowSource) -> np.ndarray:
    """Return the concatenated results of a function for the blocks of a source.

    The function is called with each block as a source with the names of the columns.
    """
    found: np.ndarray | None = None
    place = 0
    for block in source.blocks():
        answers = function(ArrayRows(block, source.columns))
        if found is None:
            found = np.empty((source.shape[0], *answers.shape[1:]), dtype=answers.dtype)
        found[place : place + len(answers)] = answers
        place += len(answers)
    if found is None:
        raise ValueError(f"Found array with 0 sample(s) (shape={source.shape}) while a minimum of 1 is required.")
    return found


# -- parts ----------------------------------------------------------------------------------------------------------------


def rows_in_block(source: Any) -> int:
    """Return the number of rows of a source in a block of `BLOCK_BYTES`."""
    return max(BLOCK_BYTES // (max(source.shape[1], 1) * source.dtype.itemsize), 1)


def real_dtype(dtype: Any) -> np.dtype:
    return np.dtype(np.float32 if np.dtype(dtype) == np.float32 else np.float64)


def write_npy_header(file: Any, shape: tuple[int, int], dtype: np.dtype) -> None:
    """Write the header of an NPY file; NumPy leaves room in it for as many rows as there will be."""
    header = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


class RowsFile:
    """A temporary file of rows that is written block by block, and then read as a memory map.

    Parameters
    ----------
    n_columns : int
    dtype : numpy.dtype
    """

    def __init__(self, n_columns: int, dtype: Any = np.float64) -> None:
        self.shape, self.dtype = (0, n_columns), np.dtype(dtype)
        handle, self._path = tempfile.mkstemp(prefix="vicinal-rows-", suffix=".npy")
        self._file = os.fdopen(handle, "wb")
        write_npy_header(self._file, self.shape, self.dtype)

    def write(self, block: np.ndarray) -> None:
        """Append rows."""
        try:
            self._file.write(np.ascontiguousarray(block, dtype=self.dtype).data)
        except OSError as error:
            raise OSError(
                f"cannot write a temporary copy of the rows to {self._path}: {error.strerror or error}. Set TMPDIR to a folder "
                "with more room."
            ) from error
        self.shape = self.shape[0] + len(block), self.shape[1]

    def __enter__(self) -> "RowsFile":
        return self

    def __exit__(self, *error: Any) -> None:
        """Remove the file, unless it was mapped; it is then deleted with its map."""
        self._file.close()
        if self._path:
            _unlink(self._path)

    def mapped(self) -> np.ndarray:
        """Return the rows so far as a writable memory map; the file is deleted with it."""
        self._file.flush()
        self._file.seek(0)
        write_npy_header(self._file, self.shape, self.dtype)
        self._file.close()
        rows = np.load(self._path, mmap_mode="r+")
        try:
            os.unlink(self._path)  # the memory map keeps the file until it is deleted
        except PermissionError:  # on Windows, where a file that is in use stays
            weakref.finalize(rows, _unlink, self._path)
        self._path = ""
        return rows


def _spill(source: RowSource) -> np.ndarray:
    """Return a memory map of a temporary copy of the rows."""
    with RowsFile(source.shape[1], source.dtype) as file:
        for block in source.blocks():
            file.write(block)
        rows = file.mapped()
    rows.flags.writeable = False
    return rows


def _unlink(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
