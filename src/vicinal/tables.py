"""Tables of all kinds of columns: what kind each is of, rows made ready, scores of rounded values.

- :func:`column_types` finds what kind each column is of, and takes your word where you know better;
- :func:`prepare` makes a table ready for metrics and densities, as ``vicinal learn`` and ``vicinal compare`` do;
- :func:`score_rows` scores rows under a density, with noise on rounded columns.

:class:`vicinal.TableEncoder` and :class:`vicinal.Dequantizer` are the steps of a pipeline that do the work.
"""

from vicinal._tables import ColumnType, PreparedTable, TableError, column_types, prepare, score_rows

__all__ = ["ColumnType", "PreparedTable", "TableError", "column_types", "prepare", "score_rows"]


def __dir__() -> list[str]:
    return sorted(__all__)
