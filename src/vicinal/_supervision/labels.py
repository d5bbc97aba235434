"""Conversion of one label per row, of any kind, to integer codes, for the whole library."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import DataConversionWarning

from vicinal._callers import callers_line
from vicinal._supervision.missing import read_values, refuse_missing
from vicinal._tensors import as_host

# Beyond this, neighbouring whole numbers are the same float.
_LARGEST_WHOLE_FLOAT = 2.0**53


class Labels(NamedTuple):
    """Labels as codes.

    Attributes
    ----------
    classes : array of shape (m,)
        The different labels in sorted order; labels without a common order (strings among numbers) are sorted by kind and then as strings.
    codes : int array of shape (n,)
        The position of each row's label in `classes`; -1 for a row without a label.
    """

    classes: np.ndarray
    codes: np.ndarray


def code_labels(
    y: ArrayLike | None, name: str = "y", *, n_rows: int | None = None, partial: bool = False, instead: str = ""
) -> Labels:
    """Read one label per row: integers, strings, booleans, dates, pandas columns, or a mixture.

    Two labels are the same if they compare equal in Python: 1, 1.0 and True are one label, 1 and "1" are two.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, 1)
    name : str
        The name of the argument, for messages.
    n_rows : int, default=None
        The required number of labels; None accepts any number except 0.
    partial : bool, default=False
        Whether labels may be missing (see `is_missing`) or masked.
    instead : str
        A sentence with an alternative for a target with fractions.

    Returns
    -------
    Labels
    """
    values, missing = read_values(y, name)
    if values.ndim == 2 and values.shape[1] == 1:
        values, missing = values[:, 0], missing[:, 0]
    if values.ndim != 1:
        got = f"an array of shape {values.shape}" if values.ndim else type(y).__name__
        raise ValueError(
            f"{name} should be a 1d array of labels, got {got} instead. Pass one label per row; of one-hot rows, take "
            "argmax(axis=1)."
        )
    if n_rows is None and not len(values) and not partial:
        raise ValueError(f"{name} is empty: at least one label is needed. Pass one label per row.")
    if n_rows is not None:
        check_length(values, n_rows, name)
    if not partial:
        refuse_missing(missing, name)
    complete = not missing.any()
    present = values if complete else values[~missing]
    _check_numbers(present, name, instead)
    classes, known = _code(present, name)
    if complete:
        return Labels(classes, known.astype(np.int64, copy=False))
    codes = np.full(len(values), -1, dtype=np.int64)
    codes[~missing] = known
    return Labels(classes, codes)


def code_classes(y: ArrayLike | None, n_rows: int, *, instead: str = "") -> Labels:
    """Read the classes of an estimator that names them in a sorted ``classes_``, as scikit-learn's classifiers do.

    Every row has a label, and all labels are of one kind.
    """
    labels = code_labels(y, n_rows=n_rows, instead=instead)
    if np.asarray(as_host(y)).ndim == 2:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected. Pass y.ravel().",
            DataConversionWarning,
            stacklevel=callers_line(),
        )
    if labels.classes.dtype == object:
        try:
            sorted(labels.classes.tolist())
        except TypeError as error:
            kinds = ", ".join(sorted({type(label).__name__ for label in labels.classes}))
            raise TypeError(
                f"y must hold labels of one kind that can be sorted, got {kinds}. Convert them to strings: "
                "[str(label) for label in y]."
            ) from error
    return labels


def check_length(values: np.ndarray, n_rows: int, name: str, remedy: str = "Pass one label per row.") -> None:
    """Raise an error if the number of entries differs from the number of rows."""
    if len(values) != n_rows:
        raise ValueError(
            f"{name} has {len(values)} entries for {n_rows} rows: found input variables with inconsistent numbers of "
            f"samples. {remedy}"
        )


def _check_numbers(values: np.ndarray, name: str, instead: str) -> None:
    """Raise an error for numbers that cannot be class labels."""
    if values.dtype.kind == "c":
        raise ValueError(f"{name} holds complex numbers, which cannot be labels. Pass integers or strings.")
    if values.dtype.kind != "f":
        return
    largest = float(np.abs(values).max(initial=0.0))
    if largest > _LARGEST_WHOLE_FLOAT:
        what = "infinite numbers" if np.isinf(largest) else f"numbers up to {largest:g}"
        raise ValueError(f"{name} holds {what}, which cannot be labels. Pass integers or strings.")
    fractions = int((values != np.floor(values)).sum())
    if fractions:
        raise ValueError(
            f"Unknown label type: {name} is continuous: {fractions} of its {len(values)} entries are fractional numbers, and "
            f"fractions cannot be labels. Divide them into classes first, for example with numpy.digitize. {instead}".rstrip()
        )


def _code(values: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the different values in sorted order, and the position of each value among them."""
    if values.dtype == object:
        return _code_objects(values, name)
    if values.dtype.kind in "iu" and len(values):
        low, high = int(values.min()), int(values.max())
        if high - low <= 4 * len(values):
            return _code_near_integers(values)
    return np.unique(values, return_inverse=True)


def _code_near_integers(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Code integers that lie close to each other by counting, in O(n), without a sort."""
    wide = values.astype(np.int64, copy=False) if values.dtype.kind == "i" else values
    offsets = (wide - wide.min()).astype(np.intp, copy=False)
    found = np.bincount(offsets) > 0
    classes = wide.min() + np.flatnonzero(found).astype(wide.dtype)
    return classes.astype(values.dtype), (np.cumsum(found) - 1)[offsets]


def _code_objects(values: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Code Python objects: strings of a pandas column, dates, or a mixture."""
    known: dict = {}
    codes = np.empty(len(values), dtype=np.intp)
    for i, value in enumerate(values):
        try:
            codes[i] = known.setdefault(value, len(known))
        except TypeError as error:
            raise TypeError(
                f"{name} must hold one label per row, or only lists of row positions, got a {type(value).__name__} as "
                f"entry {i} among entries of other types."
            ) from error
    labels = list(known)
    try:
        ordered = sorted(labels)
    except TypeError:  # a mixture: an order that does not depend on the order of the rows
        ordered = sorted(labels, key=lambda label: (type(label).__name__, str(label)))
    place = {label: position for position, label in enumerate(ordered)}
    number = np.array([place[label] for label in labels], dtype=np.intp)
    return np.fromiter(ordered, dtype=object, count=len(ordered)), number[codes]
