"""Tables of numbers in files that are larger than memory, as sources of rows: NumPy, Zarr, Parquet, Feather and text."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from vicinal._files.arrays import map_array
from vicinal._files.errors import FileError, reading
from vicinal._files.table_file import TableFile, is_table
from vicinal._row_sources import ArrayRows, FileRows, RowSource, real_dtype, rows_in_block

_NAME_COLUMNS = "Name the columns to read, as in vicinal.io.open_rows(path, columns=['a', 'b'])."


class TableRows(FileRows):
    """A table of numbers in files, block by block; missing values are NaN.

    Parameters
    ----------
    table : TableFile
    columns : list of str, optional
        The columns to read, in this order; the default is all that hold data, which must be numbers.
    """

    def __init__(self, table: TableFile, columns: list[str] | None = None) -> None:
        self._table, self.dtype = table, np.dtype(np.float64)
        if table.kind == "zarr":
            n_rows, n_columns = map(int, table.array.shape)
            self.shape, self.dtype = (n_rows, n_columns), real_dtype(table.array.dtype)
            return
        self.columns = columns
        if table.kind in ("csv", "tsv"):
            self.columns = table.names if columns is None else columns
            n_rows = _n_rows_of_numbers(table, self.columns)
        else:
            self.columns = _data_columns(table.dataset) if columns is None else columns
            n_rows, self.dtype = _size_of_dataset(table.dataset, self.columns)
        self.shape = n_rows, len(self.columns)

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield the rows in their order."""
        for frame in self._table.frames(lambda names: self.columns, rows_in_block(self)):
            yield np.ascontiguousarray(frame.to_numpy(dtype=self.dtype, na_value=np.nan))


def zarr_rows(array: Any) -> TableRows:
    """Return a Zarr array of two dimensions as a source of rows, whose blocks are whole chunks."""
    return TableRows(TableFile(str(getattr(array, "store", "the Zarr array")), opened=array))


def parquet_rows(dataset: Any) -> TableRows:
    """Return a pyarrow dataset of Parquet or Feather files as a source of rows."""
    return TableRows(TableFile("the table", opened=dataset))


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
    if kind in ("zarr", "parquet", "feather", "csv", "tsv"):
        return TableRows(TableFile(str(path)), columns)
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


def _size_of_dataset(dataset: Any, columns: list[str]) -> tuple[int, np.dtype]:
    """Return the number of rows and the dtype of some columns: float32 if all are, in all files."""
    import pyarrow as pa

    kinds, n_rows = set(_kinds_of_numbers(dataset.schema, columns, "the table")), 0
    for fragment in dataset.get_fragments():  # any file may need float64, and not only the first one
        with reading(fragment.path):
            schema, n_rows = fragment.physical_schema, n_rows + fragment.count_rows()
        kinds.update(_kinds_of_numbers(schema, columns, fragment.path))
    single = all(pa.types.is_float32(kind) or pa.types.is_float16(kind) for kind in kinds)
    return int(n_rows), np.dtype(np.float32 if single else np.float64)


def _n_rows_of_numbers(table: TableFile, columns: list[str]) -> int:
    """Return the number of rows of a text file; raise an error if some columns are missing or do not hold numbers."""
    missing = [name for name in columns if name not in table.names]
    if missing:
        raise FileError(f"there is no column {missing[0]!r} in {table.name}, which has {', '.join(table.names)}.")
    n_rows = 0
    for frame in table.frames(lambda names: columns):
        texts = [name for name in frame if frame[name].dtype.kind not in "iufb" and frame[name].notna().any()]
        if texts:
            raise FileError(f"expected columns of numbers in {table.name}, got {', '.join(texts)}. {_NAME_COLUMNS}")
        n_rows += len(frame)
    return n_rows


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
