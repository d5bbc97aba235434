"""Explanations of unusual rows: each column given the others, compared with the training rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from vicinal._checks import check_integer, check_magnitude
from vicinal._density.density_input import breaks_constants
from vicinal._density.gaps import incomplete_rows_in
from vicinal._mixtures import LocalFrameMixture, SharedMixture, column_conditionals

# With more training rows, an evenly spaced sample is the reference; shares are then accurate to about one percentage point.
MOST_REFERENCE_ROWS = 4000
_FEWER_REFERENCE_ROWS = 500  # for each pattern of missing values
_INTERVAL = (0.05, 0.5, 0.95)
_LARGEST_SHARE = 0.1  # a column with a larger share is not a reason
# Scalers that treat every column separately, so that expected values can be given in the units of the data. Estimators of
# this library that only fill in missing values have `keeps_columns`.
_COLUMNWISE = (StandardScaler, MinMaxScaler, RobustScaler, MaxAbsScaler)

# The surprises of a detector's training rows, which are neither pickled nor saved.
_references: WeakKeyDictionary[Any, np.ndarray] = WeakKeyDictionary()


@dataclass(frozen=True)
class Explanation:
    """The result of `DensityOutlierDetector.explain`: arrays of shape (n_rows, n_features), and sentences.

    Attributes
    ----------
    names : list of str
        The columns.
    values : ndarray
        The rows themselves; NaN where a value is missing (or was filled in), which is never a reason.
    shares : ndarray
        The share of training rows (excluding outliers, each left out of its own density) whose value in this column is at
        least as surprising given their other columns. It has no unit.
    surprises : ndarray
        ``-log p(x_k | the other columns)`` in nats, minus the median over the training rows in this column.
        It does not depend on units either. Infinite if the column is constant in the training rows and the row differs.
    medians, lows, highs : ndarray
        The median of the column given the others, and the ends of its 90 % interval.
    constants : ndarray of bool, shape (n_features,)
        The columns that are constant in the training rows.
    """

    names: list[str]
    values: np.ndarray
    shares: np.ndarray
    surprises: np.ndarray
    medians: np.ndarray
    lows: np.ndarray
    highs: np.ndarray
    constants: np.ndarray

    def ranking(self) -> np.ndarray:
        """Return the positions of the columns for each row, the most surprising first, shape (n_rows, n_features)."""
        return np.lexsort((-self.surprises, self.shares), axis=1)

    def columns_of(self, row: int, most: int = 3) -> list[int]:
        """Return the columns that explain one row: the first, and others with a share of at most 10 %."""
        most = check_integer(most, "most")
        first, *others = self.ranking()[row][:most].tolist()
        return [first, *(k for k in others if self.shares[row, k] <= _LARGEST_SHARE)]

    def reasons(self, row: int, most: int = 3) -> list[str]:
        """Return sentences about the most surprising columns of one row."""
        return [self._sentence(row, k) for k in self.columns_of(row, most)]

    def _sentence(self, row: int, k: int) -> str:
        got = f"got {self.values[row, k]:.4g}"
        if self.constants[k]:
            return f"{self.names[k]}: expected {self.medians[row, k]:.4g} as in all training rows, {got}"
        return f"{self.names[k]}: expected {self.lows[row, k]:.4g} to {self.highs[row, k]:.4g}, {got}"


def explain(
    detector: Any, X: Any, names: list[str], constants: np.ndarray, own: np.ndarray | None = None
) -> Explanation:
    """Return the explanation of rows, or of the training rows, each left out.

    Parameters
    ----------
    detector : DensityOutlierDetector
        Fitted.
    X : table of shape (m, d) or None
    names : list of str
    constants : array of shape (d,)
        The values of columns that are constant in the training rows, NaN for the others.
    own : integer array, optional
        The positions of the training rows to explain, if X is None.
    """
    steps, density = _parts(detector.density_)
    mixture = _explaining_mixture(detector, density)
    active = getattr(density, "active_features_", np.arange(density.n_features_in_))
    if own is not None:
        rows = np.zeros((len(own), density.n_features_in_))
        rows[:, active] = _training_rows(density, mixture)[own]
        gaps = _training_gaps(steps, density, own, rows.shape)
        if incomplete_rows_in(density) is not None:
            rows[gaps] = np.nan
    else:
        rows = np.asarray(X if steps is None else steps.transform(X), dtype=np.float64)
        gaps = np.isnan(np.asarray(X, dtype=np.float64))
    judged = _Judged(np.ones(rows.shape), np.zeros(rows.shape), [rows.copy() for _ in _INTERVAL])
    for some, known in _patterns(np.isnan(rows[:, active])):
        _judge(judged, (detector, density, mixture), rows, own, some, active[known])
    # A value that is missing or was filled in is not a reason.
    shares, surprises, quantiles = judged
    if gaps.any():
        rows = np.where(gaps, np.nan, rows)
        shares[gaps], surprises[gaps] = 1.0, 0.0
    if steps is not None:
        rows, *quantiles = [in_units_of_data(steps, table) for table in (rows, *quantiles)]
    low, median, high = quantiles
    fixed = ~np.isnan(constants)
    if fixed.any():
        if own is not None:
            rows[:, fixed] = constants[fixed]
        for table in (low, median, high):
            table[:, fixed] = constants[fixed]
        broken = breaks_constants(rows, constants)[:, fixed]
        shares[:, fixed] = np.where(broken, 1.0 / (len(detector.training_scores_) + 1.0), 1.0)
        surprises[:, fixed] = np.where(broken, np.inf, 0.0)
    return Explanation(names, rows, shares, surprises, median, low, high, fixed)


class _Judged(NamedTuple):
    """The explanation of the columns of rows: shares, surprises and quantiles, which are filled in pattern by pattern."""

    shares: np.ndarray
    surprises: np.ndarray
    quantiles: list[np.ndarray]


def _patterns(gaps: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rows that lack the same columns, and the columns that they have; rows without any values are skipped."""
    patterns, pattern_of = np.unique(gaps, axis=0, return_inverse=True)
    for p, missing in enumerate(patterns):
        if not missing.all():
            yield np.flatnonzero(pattern_of.reshape(-1) == p), np.flatnonzero(~missing)


def _judge(
    judged: _Judged,
    parts: tuple[Any, Any, Any],
    rows: np.ndarray,
    own: np.ndarray | None,
    some: np.ndarray,
    known: np.ndarray,
) -> None:
    """Fill in the explanation of some rows that have the columns `known` in common, under the density of those columns."""
    detector, density, mixture = parts
    active = getattr(density, "active_features_", np.arange(density.n_features_in_))
    places = np.searchsorted(active, known)
    if len(known) == len(active):
        reference = _reference(detector, density, mixture)
    elif isinstance(mixture, SharedMixture):
        mixture = mixture.marginal(places)
        reference = _surprises_of_training_rows(
            mixture, _training_rows(density, parts[2])[:, places], _FEWER_REFERENCE_ROWS
        )
    else:
        raise ValueError(
            f"explain takes rows with missing values under ParzenWindows and LCA, not under {type(density).__name__}. Fill them "
            "with vicinal.DensityImputer, or leave such rows out."
        )
    mine, here = None if own is None else own[some], rows[np.ix_(some, known)]
    if own is None:
        check_magnitude(here)
        units = mixture.kernel_units
        check_magnitude(here * units if units.ndim == 1 else here @ units.T, "X, in units of the kernel,")
    found = column_conditionals(mixture, here, mine, _INTERVAL)
    for table, quantile in zip(judged.quantiles, found.quantiles, strict=True):
        table[np.ix_(some, known)] = quantile
    for position, k in enumerate(known):
        in_order = np.sort(reference[:, position])
        above = len(in_order) - np.searchsorted(in_order, found.surprises[:, position], side="left")
        shares = (above + 1.0) / (len(in_order) + 1.0) if own is None else np.maximum(above, 1) / len(in_order)
        judged.shares[some, k] = shares
        judged.surprises[some, k] = found.surprises[:, position] - np.median(in_order)


def _training_gaps(steps: Any, density: Any, own: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Return which values of training rows were missing: for the density itself, or for a step that fills them in."""
    before = [] if steps is None else [getattr(step, "density_", None) for _, step in steps.steps]
    known = next((rows for rows in map(incomplete_rows_in, [density, *before]) if rows is not None), None)
    return np.zeros(shape, dtype=bool) if known is None else np.isnan(known[own])


def _parts(density: Any) -> tuple[Any, Any]:
    """Return the steps before a density (None without any) and the density itself."""
    if not isinstance(density, Pipeline):
        return None, density
    steps, last = density[:-1], density[-1]
    if not acts_by_column(steps):
        kinds = ", ".join(type(step).__name__ for _, step in steps.steps)
        raise TypeError(
            f"explain refers to the columns of X, but the density is fitted to the output of {kinds}. Only scikit-learn's scalers "
            "may precede the density. Fit the detector to the output of the other steps instead."
        )
    return (steps if len(steps) else None), last


def acts_by_column(steps: Pipeline) -> bool:
    """Return whether all steps treat every column by itself and can be undone."""
    return all(_is_left_alone(step) or isinstance(step, _COLUMNWISE) for _, step in steps.steps)


def _is_left_alone(step: Any) -> bool:
    """Return whether a step does not change the known values of any column."""
    return step == "passthrough" or getattr(step, "keeps_columns", False)


def in_units_of_data(steps: Pipeline, table: np.ndarray) -> np.ndarray:
    """Return rows transformed by the steps in their original form."""
    for _, step in reversed(steps.steps):
        table = table if _is_left_alone(step) else step.inverse_transform(table)
    return table


def _training_rows(density: Any, mixture: Any) -> np.ndarray:
    """Return the rows that a density was fitted to, from which its kernels may have moved away."""
    return getattr(density, "rows_", mixture.centres)


def _explaining_mixture(detector: Any, density: Any) -> SharedMixture | LocalFrameMixture:
    mixture = getattr(density, "mixture_", None)
    if not isinstance(mixture, (SharedMixture, LocalFrameMixture)) or hasattr(density, "gaussian_components_"):
        raise TypeError(
            f"explain needs a density in which all training rows share one kernel (ParzenWindows or LCA), or LocalLCA, got "
            f"{type(density).__name__}. Explain with DensityOutlierDetector(LCA()).fit(X), for example."
        )
    if isinstance(mixture, LocalFrameMixture) or getattr(detector, "_reference", None) is None:
        return mixture
    # An outlier is not explained by other outliers of its group.
    log_weights = np.where(detector.labels_ == -1, -np.inf, mixture.log_weights)
    return SharedMixture(mixture.centres, mixture.covariance, log_weights, mixture.engine, mixture.feature_names)


def _reference(detector: Any, density: Any, mixture: SharedMixture | LocalFrameMixture) -> np.ndarray:
    """Return the surprises of the training rows that are not outliers, each left out of its own density, (n, d).

    If there are many, return those of an evenly spaced sample.
    """
    if detector not in _references:
        _references[detector] = _surprises_of_training_rows(
            mixture, _training_rows(density, mixture), MOST_REFERENCE_ROWS
        )
    return _references[detector]


def _surprises_of_training_rows(mixture: Any, rows: np.ndarray, most: int) -> np.ndarray:
    counted = np.flatnonzero(mixture.log_weights > -np.inf)
    some = counted[np.unique(np.linspace(0, len(counted) - 1, min(len(counted), most)).astype(int))]
    return column_conditionals(mixture, rows[some], some).surprises


def forget_reference(detector: Any) -> None:
    """Drop the cached surprises of a detector that is fitted again."""
    _references.pop(detector, None)
