"""Tables of numbers in files that are larger than memory: ``.npy``, Zarr and Parquet as sources of rows.

Files come from anyone. Whatever a reader raises for a damaged one becomes a ValueError that names the file.
"""

import contextlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from vicinal._callers import callers_line
from vicinal._row_sources import ArrayRows, FileRows, RowSource, real_dtype, rows_in_block

MOST_CHUNKS = 100_000  # of a Zarr array that are looked for one by one when it is opened


class ZarrRows(FileRows):
    """A Zarr array of two dimensions.

    Parameters
    ----------
    array : zarr.Array
    """

    def __init__(self, array: Any) -> None:
        if array.ndim != 2 or np.dtype(array.dtype).kind not in "fiub":
            raise ValueError(f"expected a table of numbers, got a Zarr array of {array.dtype}, shape {array.shape}.")
        self._array, self._chunk = array, int(array.chunks[0])
        if self._chunk < 1:
            raise ValueError(f"expected chunks of at least one row, got chunks of shape {array.chunks}.")
        self.shape, self.dtype = (int(array.shape[0]), int(array.shape[1])), real_dtype(array.dtype)

    def blocks(self, start: int = 0) -> Iterator[np.ndarray]:
        """Yield the rows in blocks of whole chunks."""
        step = max(rows_in_block(self) // self._chunk, 1) * self._chunk
        while start < self.shape[0]:
            stop = min((start // step + 1) * step, self.shape[0])
            with _reading(f"rows {start} to {stop - 1} of {getattr(self._array, 'store', 'the Zarr array')}"):
                block = np.ascontiguousarray(self._array[start:stop], dtype=self.dtype)
            yield block
            start = stop


class ParquetRows(FileRows):
    """A Parquet file, or a folder of them, as a table of numbers; missing values are NaN.

    Parameters
    ----------
    dataset : pyarrow.dataset.Dataset
    columns : list of str, optional
        The columns to read, in this order; the default is all that hold data (see `_data_columns`), which must be numbers.
    """

    def __init__(self, dataset: Any, columns: list[str] | None = None) -> None:
        import pyarrow as pa

        names = _data_columns(dataset) if columns is None else list(columns)
        kinds, n = set(_kinds_of_numbers(dataset.schema, names, "the table")), 0
        for fragment in dataset.get_fragments():  # any file may need float64, and not only the first one
            with _reading(fragment.path):
                schema, n = fragment.physical_schema, n + fragment.count_rows()
            kinds.update(_kinds_of_numbers(schema, names, fragment.path))
        self._dataset, self.columns = dataset, names
        single = all(pa.types.is_float32(kind) or pa.types.is_float16(kind) for kind in kinds)
        self.dtype = np.dtype(np.float32 if single else np.float64)
        self.shape = int(n), len(names)

    def blocks(self, start: int = 0) -> Iterator[np.ndarray]:
        """Yield the rows, file by file."""
        for fragment in self._dataset.get_fragments():
            with _reading(fragment.path):
                n = fragment.count_rows()
            if start >= n:
                start -= n
                continue
            for rows in self._of_file(fragment):
                if start >= len(rows):
                    start -= len(rows)
                    continue
                yield rows[start:]
                start = 0

    def _of_file(self, fragment: Any) -> Iterator[np.ndarray]:
        from pyarrow import parquet

        assert self.columns is not None
        # Not `to_batches` of the dataset, which reads several files and row groups ahead.
        with contextlib.ExitStack() as stack:
            with _reading(fragment.path):
                content = stack.enter_context(parquet.ParquetFile(stack.enter_context(fragment.open())))
                batches = content.iter_batches(rows_in_block(self), columns=self.columns)
            while True:
                with _reading(fragment.path):
                    batch = next(batches, None)
                    if batch is None:
                        return
                    rows = np.empty((len(batch), len(self.columns)), dtype=self.dtype)
                    for place, name in enumerate(self.columns):
                        rows[:, place] = _numbers(batch.column(name))
                yield rows


def open_rows(path: str | os.PathLike[str], columns: list[str] | None = None) -> RowSource:
    """Open a table of numbers that stays in its files, for fits and scores of data larger than memory.

    Parameters
    ----------
    path : path
        A ``.npy`` file (which is memory-mapped), a Zarr array (a folder that ends in ``.zarr``, or an array in such a group), a Parquet file, or a
        folder of Parquet files, all of which must have the columns; the rows are float32 if all of these columns are, in all
        files, and float64 otherwise. If parts of a Zarr array are not stored, Zarr reads them as its
        fill value, and a warning says so. Do not change or shorten a file while its rows are in use.
    columns : list of str, optional
        The columns of a Parquet table to read, in this order. By default all are read, and they must hold numbers. The index
        of a dataframe that pandas or Dask has written is not one of them, unless it is named here. Values that are stored only in
        the names of folders, such as ``year=2020`` (Hive partitions), are not read.

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
        with _reading(found):
            rows = np.lib.format.open_memmap(found, mode="r")
        if rows.ndim != 2 or rows.dtype.kind not in "fiub":
            raise ValueError(
                f"{found} holds an array of {rows.dtype}, shape {rows.shape}; expected a table of numbers."
            )
        return ArrayRows(rows)
    if found.suffix == ".zarr" or any((found / name).exists() for name in ("zarr.json", ".zarray", ".zgroup")):
        _refuse_columns(columns, found)
        return _open_zarr(found)
    if found.is_dir() or found.suffix in (".parquet", ".pq"):
        from pyarrow import dataset

        if isinstance(columns, str) or (columns is not None and len(set(columns)) < len(columns)):
            raise ValueError(f"columns={columns!r} is not a list of different names, such as columns=['a', 'b'].")
        with _reading(found):
            content = dataset.dataset(found, format="parquet")
        if not content.files:
            raise ValueError(f"the folder {found} holds no Parquet file.")
        return ParquetRows(content, columns)
    raise ValueError(
        f"{found} is not a table that can be read in blocks; expected a .npy file, a folder that ends in .zarr, a Parquet "
        "file (.parquet or .pq) or a folder of Parquet files."
    )


def _open_zarr(path: Path) -> ZarrRows:
    import zarr

    with _reading(path):
        array: Any = zarr.open(str(path), mode="r")
        inner = None if hasattr(array, "nchunks") else sorted(name for name, _ in array.arrays())
    if inner is not None:
        raise ValueError(
            f"{path} is a Zarr group, and a table is one array. "
            + (
                f"Open one of its arrays ({', '.join(inner)}), as in open_rows({str(path / inner[0])!r})."
                if inner
                else "It has no array."
            )
        )
    with _reading(path):
        missing = array.nchunks - array.nchunks_initialized if array.nchunks <= MOST_CHUNKS else 0
    if missing > 0:
        warnings.warn(
            f"{path} stores only {array.nchunks - missing} of its {array.nchunks} chunks; Zarr reads the others as "
            f"{array.fill_value}. If the array was not written completely, write it again.",
            stacklevel=callers_line(),
        )
    return ZarrRows(array)


@contextlib.contextmanager
def _reading(name: Any) -> Iterator[None]:
    """Turn any error of the reader of a format into a ValueError that names the file.

    For damaged files, NumPy, Zarr and pyarrow raise nearly every built-in exception.
    """
    try:
        yield
    except (MemoryError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
        raise ValueError(f"cannot read {name}; it may be damaged ({type(error).__name__}: {reason}).") from error


def _data_columns(dataset: Any) -> list[str]:
    """Return the columns of a Parquet table without the index of the dataframe that was written, and without partition columns,
    whose values are in the names of folders."""
    index = (dataset.schema.pandas_metadata or {}).get(
        "index_columns", []
    )  # texts, or records of ranges that are not stored
    partitioning = getattr(dataset, "partitioning", None)
    left_out = {name for name in index if isinstance(name, str)}
    left_out.update(() if partitioning is None else partitioning.schema.names)
    return [name for name in dataset.schema.names if name not in left_out]


def _kinds_of_numbers(schema: Any, names: list[str], where: str) -> list[Any]:
    """Return the types of some columns; raise an error if one is missing or does not hold numbers."""
    import pyarrow as pa

    missing = [name for name in names if name not in schema.names]
    if missing:
        raise ValueError(f"there is no column {missing[0]!r} in {where}, which has {', '.join(schema.names)}.")
    kinds = {name: schema.field(name).type for name in names}
    is_number = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null)
    texts = [name for name, kind in kinds.items() if not any(test(kind) for test in is_number)]
    if texts or not names:
        raise ValueError(
            f"expected columns of numbers in {where}, got {', '.join(texts) or 'none'}. Name the columns to read, as in "
            "vicinal.io.open_rows(path, columns=['a', 'b'])."
        )
    return list(kinds.values())


def _numbers(column: Any) -> np.ndarray:
    """Return a column of a record batch; missing values are NaN."""
    found = column.to_numpy(zero_copy_only=False)
    return found.astype(np.float64) if found.dtype == object else found  # booleans with gaps


def _refuse_columns(columns: list[str] | None, path: Path) -> None:
    if columns is not None:
        raise ValueError(f"columns={columns!r} needs named columns, which {path} does not have. Leave columns out.")
