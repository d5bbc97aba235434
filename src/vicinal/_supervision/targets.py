"""The agreement of rows: labels and soft targets as the engine's `Match` (NCA paper, sec. 5)."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from vicinal._checks import check_choice, check_positive
from vicinal._engine import Match, prepare
from vicinal._supervision.labels import check_length, code_classes, code_labels, read_values, refuse_missing

# Departure 7 (NCA): Soft matches are Gaussian, or inner products.
MATCHES = ("class", "gaussian", "dot")

# Gaussian agreement reaches down to exp(-_FARTHEST); beyond it is 0 in float64.
_FARTHEST = 700.0
_SHARE_OF_SPREAD = 0.25
# Beyond these, squares and products of targets overflow or underflow.
_MOST_SCALES, _SMALLEST_TOP = 1e150, 1e-100


class Targets(NamedTuple):
    """Targets of all rows.

    Attributes
    ----------
    kind : "class", "gaussian" or "dot"
    values : integer codes (n,), targets in units of their scale (n, t), or non-negative rows (n, t)
    n_classes : int, or None for soft targets
    scale : standard deviation of the Gaussian agreement for each output, or None
    """

    kind: Literal["class", "gaussian", "dot"]
    values: np.ndarray
    n_classes: int | None = None
    scale: np.ndarray | None = None

    def take(self, rows: np.ndarray) -> Targets:
        """Return the targets of some rows, in that order."""
        return self._replace(values=self.values[rows])

    def match(self) -> Match:
        """Return the agreement of all rows with all rows."""
        return Match(self.kind, self.values)

    def agreement(self) -> np.ndarray:
        """Return ``m_ij`` of all pairs as a matrix, for a few hundred rows."""
        if self.kind == "class":
            return (self.values[:, None] == self.values).astype(np.float64)
        if self.kind == "dot":
            return self.values @ self.values.T
        squares = np.zeros((len(self.values), len(self.values)))
        for output in self.values.T:
            squares += (output[:, None] - output) ** 2
        return np.exp(-0.5 * squares)

    def alone(self) -> np.ndarray:
        """Return whether each row agrees with no other row at all: its ``a_i`` is 0 whatever the metric."""
        if self.kind == "class":
            return np.bincount(self.values)[self.values] == 1
        if self.kind == "dot":
            others = (self.values > 0).sum(axis=0) >= 2
            return np.logical_not((self.values[:, others] > 0).any(axis=1))
        n, n_varying = self.values.shape
        if n_varying == 0 or n == 1:
            return np.full(n, n == 1)
        nearest = prepare("reference", self.values, leave_one_out=True).at().nearest(1)
        return 0.5 * nearest.scores[:, 0] > _FARTHEST

    def all_equal(self) -> bool:
        """Return whether all rows agree equally, so that no metric is better than another."""
        return bool((self.values == self.values[0]).all())


def check_targets(
    y: np.ndarray, match: str, match_scale: ArrayLike | None, weight: np.ndarray | None = None
) -> Targets:
    """Turn what `read_targets` returned into `Targets`.

    Parameters
    ----------
    y : array
        The result of `read_targets`, or some rows of it.
    match, match_scale : the estimator's parameters.
    weight : row weights for the default scale, or None.
    """
    check_choice(match, "match", MATCHES)
    if match != "gaussian" and match_scale is not None:
        raise ValueError(
            f"match_scale={match_scale!r} is only for match='gaussian', got match={match!r}. Set it to None."
        )
    if match == "class":
        return _classes(y)
    values = np.asarray(y, dtype=np.float64)
    if match == "dot":
        return _rows_of_probabilities(values)
    return _continuous(values.reshape(len(values), -1), match_scale, weight)


def read_targets(y: ArrayLike, n_rows: int, match: str) -> np.ndarray:
    """Read y according to `match`: codes of classes, or numbers; `check_targets` converts them to `Targets`."""
    if check_choice(match, "match", MATCHES) == "class":
        return code_classes(y, n_rows, instead="Use Objective(match='gaussian') for a regression target.").codes
    return read_numbers(y, n_rows, "Use Objective(match='class') for labels.")


def read_numbers(y: ArrayLike, n_rows: int, instead: str = "", *, name: str = "y") -> np.ndarray:
    """Read one number per row, or one row of numbers, as float64; all are finite.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, n_outputs)
    n_rows : int
    instead : str
        A sentence with an alternative for labels.
    name : str
        The name of the argument, for messages.
    """
    values, missing = read_values(y, name)
    if values.ndim not in (1, 2):
        got = f"an array of shape {values.shape}" if values.ndim else type(y).__name__
        raise ValueError(f"{name} should hold one number per row, or one row of numbers, got {got} instead.")
    check_length(values, n_rows, name, "Pass one number per row.")
    refuse_missing(missing, name, "numbers", "Drop these rows.")
    if values.dtype.kind == "c":
        raise ValueError(
            f"{name} must hold real numbers, got complex ones. Pass their real part or their absolute value."
        )
    try:
        values = values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold numbers, but {error}. {instead}".rstrip()) from error
    infinite = int((~np.isfinite(values)).sum())
    if infinite:
        raise ValueError(f"{name} must hold finite numbers, got {infinite} of {values.size} infinite. Drop these rows.")
    return values


def _classes(codes: np.ndarray) -> Targets:
    """Return the targets of rows in which some classes may be absent."""
    names, codes = code_labels(codes)
    return Targets("class", codes, n_classes=len(names))


def _rows_of_probabilities(values: np.ndarray) -> Targets:
    if values.ndim != 2:
        raise ValueError(
            "match='dot' needs one row of non-negative numbers (class probabilities) for each sample, got y "
            f"of shape {values.shape}. For a binary probability p pass np.column_stack([1 - p, p])."
        )
    if values.min() < 0:
        raise ValueError(
            f"match='dot' needs non-negative rows (class probabilities), got {int((values < 0).sum())} "
            "negative entries. For other targets use Objective(match='gaussian')."
        )
    if np.all((values == 1).sum(axis=1) == 1) and np.all((values != 0).sum(axis=1) == 1):
        # One-hot rows are hard classes: the same start, the same sums, the same kernels.
        return _classes(values.argmax(axis=1))
    tops = values.max(axis=1)
    odd = (tops > 0) & ((tops < _SMALLEST_TOP) | (tops > 1.0 / _SMALLEST_TOP))
    if odd.any():
        raise ValueError(
            f"match='dot' multiplies rows of y, got {int(odd.sum())} rows with a largest entry such as {tops[odd][0]:.3g}; "
            f"expected {_SMALLEST_TOP:g} to {1.0 / _SMALLEST_TOP:g}. Divide the rows by their sums."
        )
    return Targets("dot", values)


def power_of_two(values: np.ndarray) -> np.ndarray:
    """Return a power of two near the largest entry of each column; in this unit, squares neither overflow nor underflow."""
    return np.ldexp(1.0, np.frexp(np.abs(values).max(axis=0))[1] - 1)


def _continuous(values: np.ndarray, match_scale: Any, weight: np.ndarray | None) -> Targets:
    """Return targets in units of their agreement scale."""
    unit = power_of_two(values)
    values = values / unit
    scale = _scale_of_targets(values, match_scale, unit, weight)
    varying = scale > 0
    centred = values[:, varying] - values[:, varying].mean(axis=0)
    if np.any(np.abs(centred) > _MOST_SCALES * scale[varying]):
        raise ValueError(
            f"match_scale={match_scale!r} is too small: the range of the targets is more than {_MOST_SCALES:g} times as large, "
            "and no two different ones would agree. Raise it, or leave it None."
        )
    return Targets("gaussian", centred / scale[varying], scale=scale * unit)


def _scale_of_targets(values: np.ndarray, match_scale: Any, unit: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """Return one standard deviation per output, in its unit; 0 marks an output that does not vary."""
    n_outputs = values.shape[1]
    mean = np.average(values, axis=0, weights=weight)
    spread = np.sqrt(np.average((values - mean) ** 2, axis=0, weights=weight))
    varies = np.ptp(values, axis=0) > 0
    if match_scale is None:
        # A heuristic: a quarter of the spread lets about one pair in six agree, as six classes would.
        # The root keeps that share when the agreement of several outputs is multiplied.
        return np.where(varies, _SHARE_OF_SPREAD * np.sqrt(n_outputs) * spread, 0.0)
    if np.ndim(match_scale) == 0:
        return np.where(varies, _least_scale(check_positive(match_scale, "match_scale") / unit), 0.0)
    if np.shape(match_scale) != (n_outputs,):
        raise ValueError(
            f"match_scale must be a number or hold one for each of the {n_outputs} outputs, got shape "
            f"{np.shape(match_scale)}."
        )
    given = np.array([check_positive(scale, "match_scale") for scale in match_scale])
    return np.where(varies, _least_scale(given / unit), 0.0)


def _least_scale(scale: np.ndarray) -> np.ndarray:
    """Return the scale, or raise an error if it is so small compared with the targets that it would count as 0."""
    return np.maximum(scale, np.finfo(np.float64).tiny)
