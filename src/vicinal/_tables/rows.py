"""The numbers of a table, row by row: in memory, or in a temporary file if columns of the table are memory maps.

A table larger than memory has mapped columns. Its features are then written to a file, and all work on them is done part by part.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from vicinal._row_sources import RowsFile, in_file

_ROWS_AT_ONCE = 2**16


def is_mapped(frame: Any) -> bool:
    """Return whether a column of numbers of a DataFrame is a memory map."""
    numbers = frame.columns[[isinstance(dtype, np.dtype) and dtype.kind in "iufb" for dtype in frame.dtypes]]
    return any(in_file(frame[name].to_numpy()) for name in numbers[:1])


def parts_of(n_rows: int) -> Iterator[slice]:
    """Yield the parts of some rows that are in memory at once."""
    for start in range(0, n_rows, _ROWS_AT_ONCE):
        yield slice(start, min(start + _ROWS_AT_ONCE, n_rows))


def collected(blocks: Iterable[np.ndarray], n_columns: int, *, mapped: bool) -> np.ndarray:
    """Return blocks of rows as one array, in memory or as a memory map of a temporary file."""
    if not mapped:
        parts = list(blocks)
        return parts[0] if len(parts) == 1 else np.concatenate(parts or [np.empty((0, n_columns))])
    with RowsFile(n_columns) as file:
        for block in blocks:
            file.write(block)
        return file.mapped()


def chosen(values: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return some rows and columns, given by truth values, of an array in memory or in a file; it is then written anew."""
    if rows.all() and columns.all():
        return values
    blocks = (values[part][rows[part]][:, columns] for part in parts_of(len(values)))
    return collected(blocks, int(columns.sum()), mapped=in_file(values))


def extremes(values: np.ndarray, rows: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest and the largest value of each column, in some rows if they are given by truth values.

    Missing values are ignored. If there are no others, the smallest is inf and the largest -inf.
    """
    least, most = np.full(values.shape[1], np.inf), np.full(values.shape[1], -np.inf)
    for part in parts_of(len(values)):
        block = values[part] if rows is None else values[part][rows[part]]
        least = np.fmin(least, np.fmin.reduce(block, axis=0, initial=np.inf))
        most = np.fmax(most, np.fmax.reduce(block, axis=0, initial=-np.inf))
    return least, most
