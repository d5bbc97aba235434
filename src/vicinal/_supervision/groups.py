"""Groups: labels of some of the rows, which only define which rows belong together."""

from __future__ import annotations

import numbers

import numpy as np
from numpy.typing import ArrayLike

from vicinal._supervision.labels import code_labels


def code_groups(y: ArrayLike, name: str = "y") -> np.ndarray:
    """Read one group per row; a missing label, -1 and "-1" mean that the row is in no group.

    Returns
    -------
    codes : int array of shape (n,)
        0, 1, ... in the sorted order of the labels; -1 for a row in no group.
    """
    classes, codes = code_labels(y, name, partial=True)
    none, below = _none_and_below(classes)
    refused = int(np.isin(codes, np.flatnonzero(below)).sum()) if below.any() else 0
    if refused:
        raise ValueError(
            f"{name} holds {refused} integers below -1 (smallest {min(classes[below])}); -1 means no group and ids "
            "start at 0. Set them to -1 if they mean none, or renumber the groups from 0."
        )
    if not none.any():
        return codes
    number = np.where(none, -1, np.cumsum(~none) - 1)
    return np.append(number, -1)[codes]  # the last entry is for code -1


def _none_and_below(classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which labels mean "no group", and which are numbers below -1, which may mean either."""
    kind = classes.dtype.kind
    if kind in "if":
        return classes == -1, classes < -1
    nowhere = np.zeros(len(classes), dtype=bool)
    if kind in "US":
        return classes == np.array("-1", dtype=kind), nowhere
    if kind != "O":
        return nowhere, nowhere
    numeric = np.array([isinstance(label, numbers.Real) for label in classes], dtype=bool)
    below = numeric.copy()
    below[numeric] = [label < -1 for label in classes[numeric]]
    return np.array([label in (-1, "-1", b"-1") for label in classes], dtype=bool), below
