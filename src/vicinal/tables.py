"""Tables with columns of different kinds: detection of kinds, preparation of rows, and scores of rounded values.

- :func:`column_types` detects the kind of each column, which you can override;
- :func:`read_table` reads a table from a file, as the command does;
- :func:`prepare` prepares a table for metrics and densities, as ``vicinal learn`` and ``vicinal compare`` do;
- :func:`score_rows` scores rows under a density, with noise on rounded columns.

:class:`vicinal.TableEncoder` and :class:`vicinal.Dequantizer` are the corresponding steps of a pipeline.
"""

from vicinal._detect.steps import score_rows
from vicinal._files import read_table
from vicinal._tables import ColumnType, PreparedTable, TableError, column_types, prepare

__all__ = ["ColumnType", "PreparedTable", "TableError", "column_types", "prepare", "read_table", "score_rows"]


def __dir__() -> list[str]:
    return sorted(__all__)
