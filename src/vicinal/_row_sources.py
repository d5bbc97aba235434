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
from pathlib import Path
from typing import Any, Protocol

import numpy as np

BLOCK_BYTES = 2**25  # the size of a block of rows that is read at a time, unless the source has its own blocks

# The functions that make sources of other libraries' tables, by the package of the table; each takes the table.
_OTHER_SOURCES = {"dask": ("vicinal._dask.rows", "DaskRows")}


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


class ArrayRows:
    """An array, or a memory map, as a source of rows; only the rows that are yielded from a memory map are copied.

    Parameters
    ----------
    rows : array of shape (n, d)
    columns : list of str, optional
    """

    def __init__(self, rows: np.ndarray, columns: list[str] | None = None) -> None:
        self._rows = rows
        self.shape: tuple[int, int] = rows.shape[0], rows.shape[1]
        self.dtype = _real(rows.dtype)
        self.columns = columns

    def __len__(self) -> int:
        return self.shape[0]

    def blocks(self, start: int = 0) -> Iterator[np.ndarray]:
        """Yield the rows in blocks of about `BLOCK_BYTES`."""
        step = rows_in_block(self)
        for first in range(start, self.shape[0], step):
            yield np.asarray(self._rows[first : first + step], dtype=self.dtype)

    def take(self, positions: np.ndarray) -> np.ndarray:
        """Return the rows at some positions."""
        return np.array(self._rows[positions], dtype=self.dtype)

    def kept(self) -> np.ndarray:
        """Return all rows as one array: the array itself if it has the right dtype; not in memory if the source is not."""
        return self._rows if self._rows.dtype == self.dtype else _spill(self)


class FileRows(ABC):
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
    def blocks(self, start: int = 0) -> Iterator[np.ndarray]:
        """Yield the rows in their order."""

    def take(self, positions: np.ndarray) -> np.ndarray:
        """Return the rows at some positions."""
        return self.kept()[positions]

    def kept(self) -> np.ndarray:
        """Return all rows as a memory map of a temporary file."""
        if self._copy is None:
            self._copy = _spill(self)
        return self._copy


class ZarrRows(FileRows):
    """A Zarr array of two dimensions.

    Parameters
    ----------
    array : zarr.Array
    """

    def __init__(self, array: Any) -> None:
        if array.ndim != 2 or np.dtype(array.dtype).kind not in "fiub":
            raise ValueError(f"expected a table of numbers, got a Zarr array of {array.dtype}, shape {array.shape}.")
        self._array = array
        self.shape, self.dtype = (int(array.shape[0]), int(array.shape[1])), _real(array.dtype)

    def blocks(self, start: int = 0) -> Iterator[np.ndarray]:
        """Yield the rows in blocks of whole chunks."""
        chunk = int(self._array.chunks[0])
        step = max(rows_in_block(self) // chunk, 1) * chunk
        while start < self.shape[0]:
            stop = min((start // step + 1) * step, self.shape[0])
            yield np.ascontiguousarray(self._array[start:stop], dtype=self.dtype)
            start = stop


class ParquetRows(FileRows):
    """A Parquet file, or a folder of them, as a table of numbers; missing values are NaN.

    Parameters
    ----------
    dataset : pyarrow.dataset.Dataset
    columns : list of str, optional
        The columns to read, in this order; the default is all, which must hold numbers.
    """

    def __init__(self, dataset: Any, columns: list[str] | None = None) -> None:
        import pyarrow as pa

        names = list(dataset.schema.names) if columns is None else list(columns)
        missing = [name for name in names if name not in dataset.schema.names]
        if missing:
            raise ValueError(f"there is no column {missing[0]!r}. The table has {', '.join(dataset.schema.names)}.")
        kinds = {name: dataset.schema.field(name).type for name in names}
        is_number = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
        texts = [name for name, kind in kinds.items() if not any(test(kind) for test in is_number)]
        if texts or not names:
            raise ValueError(
                f"expected columns of numbers, got {', '.join(texts) or 'none'}. Name the columns to read, as in "
                "vicinal.io.open_rows(path, columns=['a', 'b'])."
            )
        self._dataset, self.columns = dataset, names
        single = all(pa.types.is_float32(kind) or pa.types.is_float16(kind) for kind in kinds.values())
        self.dtype = np.dtype(np.float32 if single else np.float64)
        self.shape = int(dataset.count_rows()), len(names)

    def blocks(self, start: int = 0) -> Iterator[np.ndarray]:
        """Yield the rows, file by file."""
        from pyarrow import parquet

        assert self.columns is not None
        for fragment in self._dataset.get_fragments():
            n = fragment.count_rows()
            if start >= n:
                start -= n
                continue
            # Not `to_batches` of the dataset, which reads several files and row groups ahead.
            with fragment.open() as file, parquet.ParquetFile(file) as content:
                for batch in content.iter_batches(rows_in_block(self), columns=self.columns):
                    if start >= len(batch):
                        start -= len(batch)
                        continue
                    rows = np.empty((len(batch), len(self.columns)), dtype=self.dtype)
                    for place, name in enumerate(self.columns):
                        rows[:, place] = _numbers(batch.column(name))
                    yield rows[start:]
                    start = 0


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

    def blocks(self, start: int = 0) -> Iterator[np.ndarray]:
        """Yield the rows in the blocks of the source."""
        for block in self._source.blocks(start):
            yield np.ascontiguousarray(block[:, self._positions])

    def take(self, positions: np.ndarray) -> np.ndarray:
        """Return the rows at some positions."""
        return np.ascontiguousarray(self._source.take(positions)[:, self._positions])


# -- public functions --------------------------------------------------------------------------------------------------


def open_rows(path: str | os.PathLike[str], columns: list[str] | None = None) -> RowSource:
    """Open a table of numbers that stays in its files, for fits and scores of data larger than memory.

    Parameters
    ----------
    path : path
        A ``.npy`` file (which is memory-mapped), a Zarr array (a folder that ends in ``.zarr``), a Parquet file, or a
        folder of Parquet files.
    columns : list of str, optional
        The columns of a Parquet table to read, in this order. By default all are read; they must hold numbers.

    Returns
    -------
    RowSource
        With ``shape``, ``dtype``, ``columns``, ``blocks()`` and ``take(positions)``.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from vicinal.io import open_rows
    >>> folder = tempfile.mkdtemp()
    >>> np.save(folder + "/rows.npy", np.eye(3))
    >>> rows = open_rows(folder + "/rows.npy")
    >>> rows.shape, sum(len(block) for block in rows.blocks())
    ((3, 3), 3)
    """
    found = Path(path)
    if not found.exists():
        raise FileNotFoundError(f"there is no file or folder {str(path)!r}.")
    if found.suffix == ".npy":
        _refuse_columns(columns, found)
        rows = np.load(found, mmap_mode="r", allow_pickle=False)
        if rows.ndim != 2 or rows.dtype.kind not in "fiub":
            raise ValueError(
                f"{found} holds an array of {rows.dtype}, shape {rows.shape}; expected a table of numbers."
            )
        return ArrayRows(rows)
    if found.suffix == ".zarr":
        _refuse_columns(columns, found)
        import zarr

        return ZarrRows(zarr.open_array(str(found), mode="r"))
    if found.is_dir() or found.suffix in (".parquet", ".pq"):
        from pyarrow import dataset

        content = dataset.dataset(found, format="parquet")
        if not content.files:
            raise ValueError(f"the folder {found} holds no Parquet file.")
        return ParquetRows(content, columns)
    raise ValueError(
        f"{found} is not a table that can be read in blocks; expected a .npy file, a folder that ends in .zarr, a Parquet "
        "file (.parquet or .pq) or a folder of Parquet files."
    )


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
    if package == "zarr":
        return ZarrRows(X)
    if package == "pyarrow" and hasattr(X, "get_fragments"):
        return ParquetRows(X)
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


def _real(dtype: Any) -> np.dtype:
    return np.dtype(np.float32 if np.dtype(dtype) == np.float32 else np.float64)


def _numbers(column: Any) -> np.ndarray:
    """Return a column of a record batch; missing values are NaN."""
    found = column.to_numpy(zero_copy_only=False)
    return found.astype(np.float64) if found.dtype == object else found  # booleans with gaps


def _refuse_columns(columns: list[str] | None, path: Path) -> None:
    if columns is not None:
        raise ValueError(f"columns={columns!r} needs named columns, which {path} does not have. Leave columns out.")


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
        self._write_header()

    def _write_header(self) -> None:
        # NumPy leaves room in the header for as many rows as there will be.
        header = {"descr": self.dtype.str, "fortran_order": False, "shape": self.shape}
        np.lib.format.write_array_header_1_0(self._file, header)

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
        self._write_header()
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
