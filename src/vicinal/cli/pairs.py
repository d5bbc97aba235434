"""Reading pairs of rows, for `learn --pairs` and `adapt --pairs`."""

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from vicinal._files import is_number
from vicinal._words import count
from vicinal.cli.console import Console
from vicinal.cli.errors import DATA, Failure
from vicinal.cli.tables import TableOptions, read_table

if TYPE_CHECKING:
    import pandas as pd


def read_pair_table(path: str, console: Console, ids: Collection[str] | None = None) -> "pd.DataFrame":
    """Return a table of two columns without missing entries. The first line of a text file may be names of columns or a pair.

    Parameters
    ----------
    path : str
    console : Console
    ids : collection of str, optional
        The names of rows by which pairs identify them; by default, pairs hold row numbers.
    """

    def begins_with_pair(fields: list[str]) -> bool:
        first = fields[:2]
        is_pair = all(map(is_number, first))
        if ids is not None:  # pandas writes 0 and 1 for columns without names
            is_pair = any(field in ids for field in first) or (is_pair and first != ["0", "1"])
        if is_pair:
            console.say(f"the first line of {path} is a pair and is read as data.")
        return is_pair

    frame = read_table(path, TableOptions(no_header=begins_with_pair))
    if frame.shape[1] < 2:
        raise Failure(DATA, f"--pairs {path}: expected two columns, got one.")
    if frame.shape[1] > 2:
        console.warn(f"--pairs {path}: only the first two of {frame.shape[1]} columns are read.")
    frame = frame.iloc[:, :2]
    missing = int(frame.isna().to_numpy().sum())
    if missing:
        raise Failure(DATA, f"--pairs {path}: {count(missing, 'entry')} missing.")
    return frame


def as_row_numbers(frame: "pd.DataFrame", path: str, remedy: str = "") -> np.ndarray:
    """Return a table of pairs as whole numbers."""
    pairs = frame.to_numpy()
    if pairs.dtype.kind not in "iu":
        raise Failure(
            DATA, f"--pairs {path}: expected row numbers (whole numbers from 0), got {pairs.flat[0]!r}.{remedy}"
        )
    return pairs
