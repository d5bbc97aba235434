"""Tables in files, for the library and for the command: one reader per format, whole or in batches.

::

    table_file.py   TableFile: the columns and the rows of a table, as DataFrames: CSV, TSV, Parquet, Feather, XLSX, JSON lines, NPY, NPZ, Zarr
    text_file.py    CSV and TSV: separator, header, and the types of the whole file
    arrays.py       the files of NumPy and Zarr; batches of Parquet and Feather
    rows.py         open_rows: a table of numbers as a source of rows
    errors.py       FileError, and how errors of other libraries become one sentence
"""

from vicinal._files.arrays import frame_of_array, map_array
from vicinal._files.errors import FileError
from vicinal._files.rows import open_rows, parquet_rows, zarr_rows
from vicinal._files.table_file import ReadOptions, TableFile, format_of, is_table, read_table
from vicinal._files.text_file import is_number

__all__ = [
    "FileError",
    "ReadOptions",
    "TableFile",
    "format_of",
    "frame_of_array",
    "is_number",
    "is_table",
    "map_array",
    "open_rows",
    "parquet_rows",
    "read_table",
    "zarr_rows",
]
