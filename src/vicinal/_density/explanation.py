"""Explanations of unusual rows: each column given the others, compared with the training rows."""

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from vicinal._checks import check_integer, check_magnitude
from vicinal._density.density_input import breaks_constants
from vicinal._mixtures import LocalFrameMixture, SharedMixture, column_conditionals

# With more training rows, an evenly spaced sample is the reference; shares are then accurate to about one percentage point.
MOST_REFERENCE_ROWS = 4000
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
        The rows themselves.
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
    else:
        rows = np.asarray(X if steps is None else steps.transform(X), dtype=np.float64)
        check_magnitude(rows[:, active])
        units = mixture.kernel_units
        images = rows[:, active] * units if units.ndim == 1 else rows[:, active] @ units.T
        check_magnitude(images, "X, in units of the kernel,")
    found = column_conditionals(mixture, rows[:, active], own, _INTERVAL)
    reference = _reference(detector, density, mixture)
    shares, surprises = np.ones(rows.shape), np.zeros(rows.shape)
    quantiles = [rows.copy() for _ in _INTERVAL]
    for table, quantile in zip(quantiles, found.quantiles, strict=True):
        table[:, active] = quantile
    for position, k in enumerate(active):
        in_order = np.sort(reference[:, position])
        above = len(in_order) - np.searchsorted(in_order, found.surprises[:, position], side="left")
        shares[:, k] = (above + 1.0) / (len(in_order) + 1.0) if own is None else np.maximum(above, 1) / len(in_order)
        surprises[:, k] = found.surprises[:, position] - np.median(in_order)
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
    """Return whether a step leaves the known values of all columns as they are."""
    return step == "passthrough" or getattr(step, "keeps_columns", False)


def in_units_of_data(steps: Pipeline, table: np.ndarray) -> np.ndarray:
    """Return what the steps made of rows, as the rows were."""
    for _, step in reversed(steps.steps):
        table = table if _is_left_alone(step) else step.inverse_transform(table)
    return table


def _training_rows(density: Any, mixture: Any) -> np.ndarray:
    """Return the rows that a density was fitted to, where its kernels may have moved away from them."""
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
    """Return the surprises of the training rows that count, each left out, (n, d).

    If there are many, return those of an evenly spaced sample.
    """
    if detector not in _references:
        counted = np.flatnonzero(mixture.log_weights > -np.inf)
        some = counted[np.unique(np.linspace(0, len(counted) - 1, min(len(counted), MOST_REFERENCE_ROWS)).astype(int))]
        rows = _training_rows(density, mixture)[some]
        _references[detector] = column_conditionals(mixture, rows, some).surprises
    return _references[detector]


def forget_reference(detector: Any) -> None:
    """Drop what is kept for a detector that is fitted again."""
    _references.pop(detector, None)
