"""Checks of what the user passes in: every message says what, expected, got, remedy."""

import numbers

import numpy as np
from sklearn.utils.validation import _check_sample_weight, validate_data


def check_rows(estimator, X, *, reset, min_rows=1, dtype=(np.float64, np.float32)):
    """Validate a table of rows as scikit-learn does, keeping float32 and refusing what cannot be squared.

    Squares and products of the entries must stay finite, so magnitudes beyond
    1e150 (1e18 in float32) are refused here rather than answered with ``inf`` later.
    """
    X = validate_data(estimator, X, reset=reset, dtype=list(dtype), order="C", ensure_min_samples=min_rows)
    check_magnitude(X)
    return X


def check_magnitude(X, name="X"):
    """Refuse entries whose squares would overflow."""
    limit = 1e150 if X.dtype == np.float64 else 1e18
    largest = max(-float(X.min(initial=0.0)), float(X.max(initial=0.0)))
    if largest > limit:
        raise ValueError(
            f"{name} holds values of magnitude {largest:.3g}, whose squares overflow {X.dtype}; expected at most "
            f"{limit:g}. Rescale the columns, for example with sklearn.preprocessing.StandardScaler."
        )


def check_spread(X, name="X"):
    """Refuse rows that differ by so little that their variance would underflow to zero."""
    spread = float(np.ptp(X, axis=0).max(initial=0.0))
    least = 1e-150 if X.dtype == np.float64 else 1e-18
    if 0 < spread < least:
        raise ValueError(
            f"the spread of {name} is {spread:.3g}, whose square underflows {X.dtype}; expected at least {least:g}. "
            "Rescale the columns, for example with sklearn.preprocessing.StandardScaler."
        )


def check_weights(sample_weight, X):
    """Return weights that are finite, non-negative and not all zero, as a vector with mean one; None stays None."""
    if sample_weight is None:
        return None
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
    if weight.min() < 0:
        raise ValueError(
            f"sample_weight must not be negative, got {int((weight < 0).sum())} negative entries (smallest "
            f"{weight.min():.3g}). Drop those rows or give them weight 0."
        )
    if weight.max() <= 0:
        raise ValueError("sample_weight must not be all zero: no row would count. Pass None for equal weights.")
    weight = weight / weight.max()  # sums of weights of 1e308 or 1e-320 stay representable
    return weight * (len(weight) / weight.sum())


def check_positive(value, name, *, strict=True):
    """Return a finite number that is positive (or, with ``strict=False``, not negative)."""
    relation = "greater than 0" if strict else "at least 0"
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number {relation}, got {type(value).__name__}.")
    number = float(value)
    if not np.isfinite(number) or number < 0 or (strict and number == 0):
        raise ValueError(f"{name} must be a finite number {relation}, got {value!r}.")
    return number


def check_integer(value, name, *, least=1):
    """Return an integer of at least ``least``."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer of at least {least}, got {type(value).__name__}.")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}.")
    return int(value)


def check_choice(value, name, choices):
    """Return the value if it is one of the names."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")
    return value
