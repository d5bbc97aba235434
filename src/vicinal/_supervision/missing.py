"""The definition of missing values of labels, groups and targets."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from vicinal._tensors import as_host


def is_missing(value: Any) -> bool:
    """Return whether a label or a number is missing: None, NaN, NaT or ``pandas.NA``."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):  # pandas.NA has no truth value; a list of labels in place of one has several
        return type(value).__name__ == "NAType"


def read_values(y: ArrayLike | None, name: str = "y") -> tuple[np.ndarray, np.ndarray]:
    """Convert an argument to an array without losing its missing values.

    NumPy would write None and NaN among strings as "None" and "nan", round nullable integers to floats, and drop the
    mask of a masked array.

    Returns
    -------
    values : array
        An array of numbers if every entry that is not missing is a number.  A missing entry may hold anything.
    missing : bool array of the same shape
    """
    y = as_host(y)
    if y is None:
        raise ValueError(
            f"this method requires {name} to be passed, but the target {name} is None. Pass one entry per row."
        )
    try:
        values = np.asarray(y)
    except ValueError as error:
        raise ValueError(
            f"{name} should be an array with one entry per row, got rows of different lengths. Pass one label per row."
        ) from error
    if _loses_something(y, values):
        values = np.asarray(y, dtype=object)
    missing = np.ma.getmaskarray(y) if isinstance(y, np.ma.MaskedArray) else np.zeros(values.shape, dtype=bool)
    if values.dtype == object:
        missing = missing | np.fromiter(map(is_missing, values.flat), dtype=bool, count=values.size).reshape(
            values.shape
        )
        values = _as_numbers(values, missing)
    elif values.dtype.kind in "fcmM":
        missing = missing | (values != values)
    return values, missing


def refuse_missing(
    missing: np.ndarray,
    name: str = "y",
    what: str = "labels",
    remedy: str = "Drop these rows, or give them a separate label.",
) -> None:
    """Raise an error that counts missing entries, given as a mask."""
    count = int(missing.sum())
    if count:
        raise ValueError(
            f"{name} must not hold missing {what} (None, NaN, NaT, NA or masked), got {count} of {missing.size}. {remedy}"
        )


def _loses_something(y: Any, values: np.ndarray) -> bool:
    """Return whether NumPy changed entries: other values among the strings of a list, or nullable integers of pandas."""
    if isinstance(y, np.ndarray):
        return False
    if hasattr(y, "dtype"):
        return values.dtype.kind == "f" and not isinstance(y.dtype, np.dtype)
    if values.dtype.kind not in "US":
        return False
    text = str if values.dtype.kind == "U" else bytes
    return not all(isinstance(entry, text) for entry in np.asarray(y, dtype=object).flat)


def _as_numbers(values: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """Return an array of numbers instead of Python objects, if all entries that are not missing are numbers."""
    present = values[~missing]
    if not len(present) or not all(isinstance(value, (numbers.Real, np.bool_)) for value in present):
        return values
    plain = np.array(present.tolist())
    if plain.dtype.kind not in "biuf" or (
        plain.dtype.kind == "f" and not any(isinstance(value, (float, np.floating)) for value in present)
    ):
        return values  # integers too large for int64
    out = np.zeros(values.shape, dtype=plain.dtype)
    out[~missing] = plain
    return out
