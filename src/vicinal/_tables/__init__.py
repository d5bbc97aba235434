"""Tables: detection of the kinds of columns, preparation for metrics and densities, and noise for rounded values.

::

    column_types     frames.py       continuous, lattice, boolean, category, date, ...: detected in the same way everywhere
                     column_type.py  the kind of a column of numbers
    TableEncoder     encoder.py      raw columns -> numbers, with the detected kinds; a step of a pipeline and of a model file
                     encoding.py     the numbers of one column
    prepare          preparing.py    one table -> features, labels and notes, for `learn`, `compare` and Python users
                     rows.py         the features part by part: in memory, or in a file for a table larger than memory
                     dependence.py   columns that are linear combinations of others
    Dequantizer      dequantizer.py  uniform noise of one step on rounded columns, so that their density is meaningful
"""

from vicinal._tables.column_type import KINDS, ColumnType, TableError, array_types, describe_types
from vicinal._tables.dependence import dependent_columns
from vicinal._tables.dequantizer import Dequantizer, EqualRows
from vicinal._tables.encoder import TableEncoder
from vicinal._tables.frames import as_frame, check_names, column_types, parse_types, read_dates
from vicinal._tables.preparing import Note, PreparedTable, describe_gaps, prepare, prepare_table, refuse_infinite
from vicinal._tables.rows import collected, is_mapped, parts_of

__all__ = [
    "KINDS",
    "ColumnType",
    "Dequantizer",
    "EqualRows",
    "Note",
    "PreparedTable",
    "TableEncoder",
    "TableError",
    "array_types",
    "as_frame",
    "check_names",
    "collected",
    "column_types",
    "dependent_columns",
    "describe_gaps",
    "describe_types",
    "is_mapped",
    "parse_types",
    "parts_of",
    "prepare",
    "prepare_table",
    "read_dates",
    "refuse_infinite",
]
