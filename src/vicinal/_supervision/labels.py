"""Labels of any kind (integers, strings, dates, pandas columns with gaps) to integer codes."""

import numbers

import numpy as np


def label_codes(y, name):
    """Return integer codes, -1 where there is no label."""
    if np.ma.is_masked(y):
        y = y.astype(object).filled(None)
    values = np.asarray(y)
    if values.dtype.kind in "US" and not isinstance(y, np.ndarray):
        values = np.asarray(y, dtype=object)  # NumPy writes NaN and -1 among strings as "nan" and "-1"
    if values.ndim == 2 and values.shape[1] == 1:
        values = values.ravel()
    if values.ndim != 1:
        raise ValueError(
            f"{name} should be a 1d array of labels, got an array of shape {values.shape} instead. Pass one "
            "label a row."
        )
    kind = values.dtype.kind
    if kind == "f":
        missing = np.isnan(values)
        largest = float(np.abs(values[~missing]).max(initial=0.0))
        if largest > 2**53:  # neighbours among such numbers are not told apart
            what = "infinite numbers" if np.isinf(largest) else f"numbers up to {largest:g}"
            raise ValueError(f"{name} holds {what}, which are no group labels. Pass integers or strings.")
        if not np.array_equal(values[~missing], np.floor(values[~missing])):
            raise ValueError(
                f"{name} holds fractions, which are no group labels. Pass integers or strings; cut a "
                "continuous target into classes first."
            )
        values, kind = np.where(missing, -1, values).astype(np.int64), "i"
    if kind == "i":
        below = int((values < -1).sum())
        if below:
            raise ValueError(
                f"{name} holds {below} integers below -1 (smallest {values.min()}); -1 means no chunklet and "
                "ids start at 0. Set them to -1 if they mean none, or renumber the groups from 0."
            )
        return values.astype(np.int64, copy=False)
    if kind == "b" or (kind == "u" and values.dtype.itemsize < 8):
        return values.astype(np.int64)
    if kind == "O":
        return _codes_of_objects(values, name)
    missing = np.zeros(len(values), dtype=bool)
    if kind in "mM":
        missing = np.isnat(values)
    elif kind in "US":
        missing = values == np.array("-1", dtype=kind)
    labelled = ~missing
    codes = np.full(len(values), -1)
    codes[labelled] = np.unique(values[labelled], return_inverse=True)[1]
    return codes


def _codes_of_objects(values, name):
    """Codes of a column of Python objects: strings, nullable integers, a mixture."""
    known: dict = {}
    codes = np.full(len(values), -1)
    for i, value in enumerate(values):
        if _is_missing(value):
            continue
        if isinstance(value, numbers.Real) and value < -1:
            raise ValueError(f"{name} holds {value}, below -1; -1 means no chunklet. Renumber the groups from 0.")
        try:
            codes[i] = known.setdefault(value, len(known))
        except TypeError as error:
            raise TypeError(
                f"{name} must hold one label a row, or only lists of row positions, got a "
                f"{type(value).__name__} as entry {i} among other things."
            ) from error
    return codes


def _is_missing(value):
    if isinstance(value, numbers.Real):
        return value != value or (value == -1 and not isinstance(value, bool))
    return value is None or (isinstance(value, str) and value == "-1") or type(value).__name__ in ("NAType", "NaTType")
