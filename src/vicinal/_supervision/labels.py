"""Labels, groups and pairs as users pass them: the definition of missing values, and the conversion of labels of any kind to integer codes."""

from __future__ import annotations

import numbers
import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import DataConversionWarning

from vicinal._callers import callers_line
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


# -- labels --------------------------------------------------------------------------------------------

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
    occurs = np.bincount(offsets) > 0
    classes = wide.min() + np.flatnonzero(occurs).astype(wide.dtype)
    return classes.astype(values.dtype), (np.cumsum(occurs) - 1)[offsets]


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


# -- groups: labels of some of the rows, which only define which rows belong together ------------------


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


# -- pairs of rows, as row positions -------------------------------------------------------------------


def check_pairs(pairs: ArrayLike, n_samples: int, name: str) -> np.ndarray:
    """Return an int array (p, 2) of row positions."""
    return check_position_table(pairs, (n_samples, n_samples), name)


def check_position_table(table: ArrayLike, sizes: tuple[int, ...], name: str) -> np.ndarray:
    """Return an int array of row positions, with a column for each of some tables of these sizes."""
    shape = f"(p, {len(sizes)})"
    try:
        table = np.asarray(table)
    except ValueError as error:
        raise ValueError(
            f"{name} must have shape {shape}, got rows of different lengths. Pass one pair of row positions per row, "
            "or groups to chunklets_from_groups."
        ) from error
    if table.size == 0:
        table = np.empty((0, len(sizes)), dtype=np.int64)
    if table.ndim != 2 or table.shape[1] != len(sizes):
        raise ValueError(f"{name} must have shape {shape}, got {table.shape}. Pass one pair of row positions per row.")
    if len(set(sizes)) == 1:
        return check_positions(table, sizes[0], name)
    return np.column_stack([check_positions(column, size, name) for column, size in zip(table.T, sizes, strict=True)])


def check_positions(positions: np.ndarray, n_samples: int, name: str) -> np.ndarray:
    """Return row positions as integers, or raise an error if some are out of range."""
    if positions.size == 0:
        return positions.astype(np.int64)
    if positions.dtype == object and all(
        type(value) is int or isinstance(value, np.integer) for value in positions.flat
    ):
        positions = positions.astype(np.int64)  # nullable integers of pandas
    if positions.dtype.kind not in "iu":
        raise ValueError(
            f"{name} must hold row positions (integers), got {positions.dtype}. Positions count from 0; look "
            "up index labels first, for example with DataFrame.index.get_indexer."
        )
    outside = int(((positions < 0) | (positions >= n_samples)).sum())
    if outside:
        raise ValueError(
            f"{name} must hold row positions 0 to {n_samples - 1}, got {outside} out of range "
            f"({positions.min()} to {positions.max()}). Positions count from 0 and are not DataFrame index "
            "labels."
        )
    return positions.astype(np.int64, copy=False)
