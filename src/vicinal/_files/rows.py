"""Tables of numbers in files that are larger than memory, as sources of rows: NumPy, Zarr, Parquet, Feather and text."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from vicinal._files.arrays import batches_of, map_array, open_dataset, open_zarr
from vicinal._files.errors import FileError, reading
from vicinal._files.table_file import TableFile, is_table
from vicinal._row_sources import ArrayRows, FileRows, RowSource, real_dtype, rows_in_block


class TableRows(FileRows):
    """A table of numbers in files, as a function reads it block by block.

    Parameters
    ----------
    read : callable
        Given a number of rows, it yields arrays of about so many rows, in their order.
    shape : (int, int)
    dtype : dtype
    columns : list of str, optional
    """

    def __init__(
        self,
        read: Callable[[int], Iterator[np.ndarray]],
        shape: tuple[int, int],
        dtype: Any,
        columns: list[str] | None = None,
    ) -> None:
        self._read, self.shape, self.dtype, self.columns = read, shape, np.dtype(dtype), columns

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield the rows in their order."""
        yield from self._read(rows_in_block(self))


def zarr_rows(array: Any) -> TableRows:
    """Return a Zarr array of two dimensions as a source of rows, whose blocks are whole chunks."""
    if array.ndim != 2 or np.dtype(array.dtype).kind not in "fiub":
        raise FileError(f"expected a table of numbers, got a Zarr array of {array.dtype}, shape {array.shape}.")
    n_rows, chunk, dtype = int(array.shape[0]), int(array.chunks[0]), real_dtype(array.dtype)
    if chunk < 1:
        raise FileError(f"expected chunks of at least one row, got chunks of shape {array.chunks}.")

    def read(size: int) -> Iterator[np.ndarray]:
        step = max(size // chunk, 1) * chunk
        for start in range(0, n_rows, step):
            stop = min(start + step, n_rows)
            with reading(f"rows {start} to {stop - 1} of {getattr(array, 'store', 'the Zarr array')}"):
                block = np.ascontiguousarray(array[start:stop], dtype=dtype)
            yield block

    return TableRows(read, (n_rows, int(array.shape[1])), dtype)


def parquet_rows(dataset: Any, columns: list[str] | None = None) -> TableRows:
    """Return a pyarrow dataset of Parquet or Feather files as a source of rows; missing values are NaN.

    Parameters
    ----------
    dataset : pyarrow.dataset.Dataset
    columns : list of str, optional
        The columns to read, in this order; the default is all that hold data (see `_data_columns`), which must be numbers.
    """
    import pyarrow as pa

    names = _data_columns(dataset) if columns is None else list(columns)
    kinds, n_rows = set(_kinds_of_numbers(dataset.schema, names, "the table")), 0
    for fragment in dataset.get_fragments():  # any file may need float64, and not only the first one
        with reading(fragment.path):
            schema, n_rows = fragment.physical_schema, n_rows + fragment.count_rows()
        kinds.update(_kinds_of_numbers(schema, names, fragment.path))
    single = all(pa.types.is_float32(kind) or pa.types.is_float16(kind) for kind in kinds)
    dtype = np.dtype(np.float32 if single else np.float64)

    def read(size: int) -> Iterator[np.ndarray]:
        for fragment in dataset.get_fragments():
            for batch in batches_of(fragment, names, size):
                with reading(fragment.path):
                    rows = np.empty((len(batch), len(names)), dtype=dtype)
                    for place, name in enumerate(names):
                        column = batch.column(name).to_numpy(zero_copy_only=False)
                        # Booleans with gaps are objects.
                        rows[:, place] = column.astype(np.float64) if column.dtype == object else column
                yield rows

    return TableRows(read, (int(n_rows), len(names)), dtype, names)


def text_rows(table: TableFile, columns: list[str] | None = None) -> TableRows:
    """Return a text file as a source of rows; missing values are NaN. The columns must be numbers."""
    names = table.names if columns is None else list(columns)
    missing = [name for name in names if name not in table.names]
    if missing:
        raise FileError(f"there is no column {missing[0]!r} in {table.name}, which has {', '.join(table.names)}.")

    def frames(size: int | None) -> Iterator[Any]:
        for frame in table.frames(lambda all_names: names, size):
            yield frame[names]

    n_rows = 0
    for frame in frames(None):
        texts = [name for name in frame if frame[name].dtype.kind not in "iufb" and frame[name].notna().any()]
        if texts:
            raise FileError(f"expected columns of numbers in {table.name}, got {', '.join(texts)}. {_NAME_COLUMNS}")
        n_rows += len(frame)

    def read(size: int) -> Iterator[np.ndarray]:
        for frame in frames(size):
            yield np.ascontiguousarray(frame.to_numpy(dtype=np.float64, na_value=np.nan))

    return TableRows(read, (n_rows, len(names)), np.float64, names)


_NAME_COLUMNS = "Name the columns to read, as in vicinal.io.open_rows(path, columns=['a', 'b'])."


def open_rows(path: str | os.PathLike[str], columns: list[str] | None = None) -> RowSource:
    """Open a table of numbers that stays in its files, for fits and scores of data larger than memory.

    Parameters
    ----------
    path : path
        A ``.npy`` file (which is memory-mapped), a Zarr array (a folder that ends in ``.zarr``, or an array in such a group), a Parquet or
        Feather file, a folder of Parquet files, all of which must have the columns, or a text file (``.csv``, ``.tsv``, also with ``.gz``),
        which is read once to find its types. The rows are float32 if all columns are, in all
        files, and float64 otherwise. If parts of a Zarr array are not stored, Zarr reads them as its
        fill value, and a warning says so. Do not change or shorten a file while its rows are in use.
    columns : list of str, optional
        The columns of a table to read, in this order. By default all are read, and they must hold numbers. The index
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
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {str(path)!r}.")
    if isinstance(columns, str) or (columns is not None and len(set(columns)) < len(columns)):
        raise FileError(f"columns={columns!r} is not a list of different names, such as columns=['a', 'b'].")
    kind = TableFile(str(path)).kind if path.is_dir() or is_table(path.name) else None
    if columns is not None and kind in ("npy", "zarr"):
        raise FileError(f"columns={columns!r} needs named columns, which {path} does not have. Leave columns out.")
    if kind == "npy":
        rows = map_array(path)
        if rows.ndim != 2 or rows.dtype.kind not in "fiub":
            raise FileError(f"{path} holds an array of {rows.dtype}, shape {rows.shape}; expected a table of numbers.")
        return ArrayRows(rows)
    if kind == "zarr":
        return zarr_rows(open_zarr(path))
    if kind in ("parquet", "feather"):
        return parquet_rows(open_dataset(path, kind), columns)
    if kind in ("csv", "tsv"):
        return text_rows(TableFile(str(path)), columns)
    raise FileError(
        f"{path} is not a table that can be read in blocks; expected a .npy file, a folder that ends in .zarr, a Parquet "
        "file (.parquet or .pq), a folder of Parquet files, a Feather file or a text file (.csv or .tsv)."
    )


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
        raise FileError(f"there is no column {missing[0]!r} in {where}, which has {', '.join(schema.names)}.")
    kinds = {name: schema.field(name).type for name in names}
    is_number = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null)
    texts = [name for name, kind in kinds.items() if not any(test(kind) for test in is_number)]
    if texts or not names:
        raise FileError(f"expected columns of numbers in {where}, got {', '.join(texts) or 'none'}. {_NAME_COLUMNS}")
    return list(kinds.values())
