"""Validation of parameters: every message states the parameter, what was expected, what was passed, and the remedy."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
import sklearn.utils
from numpy.typing import ArrayLike, NDArray

_LARGEST = 2**63 - 1  # the largest integer of NumPy


def check_positive(value: Any, name: str, *, strict: bool = True) -> float:
    """Return a finite number that is positive (or, with ``strict=False``, not negative)."""
    relation = "greater than 0" if strict else "at least 0"
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number {relation}, got {type(value).__name__}.")
    try:
        number = float(value)
    except OverflowError:  # of Python's integers
        number = np.inf
    if not np.isfinite(number) or number < 0 or (strict and number == 0):
        raise ValueError(f"{name} must be a finite number {relation}, got {_short(value)}.")
    return number


def check_integer(value: Any, name: str, *, least: int = 1) -> int:
    """Return an integer of at least ``least``."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer of at least {least}, got {type(value).__name__}.")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {_short(value)}.")
    if int(value) > _LARGEST:
        raise ValueError(f"{name} must be at most {_LARGEST}, got {_short(value)}.")
    return int(value)


def _short(value: Any) -> str:
    """Return a number for a message; an integer may have too many digits for one."""
    huge = isinstance(value, numbers.Integral) and abs(int(value)) > _LARGEST
    return f"an integer of {int(value).bit_length()} bits" if huge else repr(value)


def check_verbose(verbose: Any) -> None:
    """Raise an error unless `verbose` is True, False or an integer of at least 0."""
    if not isinstance(verbose, (bool, np.bool_)):
        check_integer(verbose, "verbose", least=0)


def check_random_state(random_state: Any) -> np.random.RandomState:
    """Return scikit-learn's random number generator for a seed, a generator or None; an error names the parameter."""
    try:
        return sklearn.utils.check_random_state(random_state)
    except (ValueError, TypeError):
        raise ValueError(
            "random_state must be None, an integer from 0 to 2**32 - 1 or a numpy.random.RandomState, got "
            f"{_short(random_state)}."
        ) from None


def as_numbers(values: Any, name: str) -> NDArray[np.float64]:
    """Return an array of numbers of any shape; an error names the parameter."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, OverflowError) as error:
        raise TypeError(f"{name} must hold numbers, got {type(values).__name__} ({error}).") from None
    except ValueError as error:
        raise ValueError(f"{name} must hold numbers: {error}.") from None


def check_flag(value: Any, name: str) -> bool:
    """Return True or False; raise an error for other values, such as "no"."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {value!r}.")
    return bool(value)


def check_callback(callback: Any) -> None:
    """Raise an error for a callback that is neither callable nor None."""
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable or None, got {type(callback).__name__}.")


def check_choice(value: Any, name: str, choices: Sequence[str]) -> str:
    """Return the value if it is one of the names."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")
    return value


def vector_or_matrix(value: Any, n_features: int, name: str, forms: str, *, strict: bool = False) -> np.ndarray:
    """Return a number (repeated) or a vector as a vector, and a symmetric matrix as a matrix, in float64.

    Parameters
    ----------
    value : object
        What the user passed.
    n_features : int
    name, forms : str
        The parameter and the forms that it may have, for the messages.
    strict : bool
        Whether a number must be greater than 0.
    """
    if isinstance(value, str):
        raise ValueError(f"{name} must be {forms}, got {value!r}.")
    try:
        values = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} must be {forms}: {error}.") from error
    if values.ndim == 0:
        values = np.full(n_features, check_positive(values.item(), name, strict=strict))
    if values.dtype.kind not in "iuf":
        raise TypeError(f"{name} must be {forms}, and must hold numbers, got entries of dtype {values.dtype}.")
    values = values.astype(np.float64)
    if values.shape not in ((n_features,), (n_features, n_features)):
        raise ValueError(
            f"{name} as an array must have shape ({n_features},) or ({n_features}, {n_features}) for {n_features} "
            f"features, got {values.shape}."
        )
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite.")
    if values.ndim == 1:
        return values
    scale = np.sqrt(np.abs(np.diag(values)))
    if np.any(np.abs(values - values.T) > 1e-8 * np.maximum(np.outer(scale, scale), np.finfo(float).tiny)):
        raise ValueError(f"{name} as a matrix must be symmetric. Pass (M + M.T) / 2 if the asymmetry is rounding.")
    return 0.5 * (values + values.T)


def bandwidth_covariance(bandwidth: ArrayLike, n_features: int, name: str = "bandwidth") -> np.ndarray:
    """Return the kernel covariance meant by a number or vector (standard deviations) or a matrix (a covariance)."""
    forms = "a number, a vector (standard deviations) or a matrix (a covariance)"
    values = vector_or_matrix(bandwidth, n_features, name, forms, strict=True)
    if values.ndim == 2:
        if not is_positive_definite(values):
            raise ValueError(
                f"{name} as a matrix must be positive definite; this one is singular or indefinite. "
                "Add a small multiple of the identity."
            )
        return values
    if values.min() <= 0:
        raise ValueError(f"{name} as a vector must hold standard deviations greater than 0, got {values.min():g}.")
    if values.min() < 1e-150 or values.max() > 1e150:
        raise ValueError(
            f"{name} must lie between 1e-150 and 1e150, so that its square can be represented, got {values.min():g} to "
            f"{values.max():g}. Rescale the data."
        )
    return np.diag(values**2)


def is_positive_definite(matrix: np.ndarray) -> bool:
    """Return whether the matrix is positive definite by more than rounding, in units of its columns."""
    if not np.all(np.diag(matrix) > 0):
        return False
    eigenvalues = correlation_eigenvalues(matrix)
    return eigenvalues[0] > len(matrix) * np.finfo(float).eps * eigenvalues[-1]


def correlation_eigenvalues(matrix: np.ndarray) -> np.ndarray:
    """Return the eigenvalues of a symmetric matrix in units of its columns, in ascending order, so that these units do not matter."""
    scale = np.sqrt(np.maximum(np.diag(matrix), 0.0))
    scale = np.where(scale > 0, scale, 1.0)
    return np.linalg.eigvalsh(matrix / np.outer(scale, scale))


def shown_columns(chosen: np.ndarray, names: Sequence[Any] | np.ndarray | None = None) -> str:
    """Return a few of the chosen columns for a message, by name where there are names."""
    positions = np.flatnonzero(chosen)
    shown = ", ".join(str(k if names is None else names[k]) for k in positions[:5])
    return shown + (", ..." if len(positions) > 5 else "")
