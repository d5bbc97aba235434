"""Explanations of unusual rows: each column given the others, compared with the training rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from vicinal._checks import check_integer, check_magnitude
from vicinal._density.density_input import breaks_constants
from vicinal._density.gaps import incomplete_rows_in
from vicinal._density.held_out_rows import HeldOutRows
from vicinal._density.mixture_density import MixtureDensityMixin
from vicinal._mixtures import SharedMixture

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
    training_rows = _check_explains(density)
    active = getattr(density, "active_features_", np.arange(density.n_features_in_))
    if own is not None:
        rows = np.zeros((len(own), density.n_features_in_))
        rows[:, active] = training_rows[own]
        gaps = _training_gaps(steps, density, own, rows.shape)
        if incomplete_rows_in(density) is not None:
            rows[gaps] = np.nan
    else:
        rows = np.asarray(X if steps is None else steps.transform(X), dtype=np.float64)
        gaps = np.isnan(np.asarray(X, dtype=np.float64))
    shares, surprises, quantiles = _explain_rows(detector, density, rows, active, own)
    # A value that is missing or was filled in is not a reason.
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


def _explain_rows(
    detector: Any, density: Any, rows: np.ndarray, active: np.ndarray, own: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Return shares, surprises and quantiles of rows, each of the shape of `rows`, where NaN marks a missing value.

    Rows that lack the same columns are compared with the training rows under the density of the other columns.
    """
    shares, surprises, quantiles = np.ones(rows.shape), np.zeros(rows.shape), [rows.copy() for _ in _INTERVAL]
    patterns = list(_patterns(np.isnan(rows[:, active])))
    references = _references_for(detector, density, [columns for _, columns in patterns])
    parts = [_whole(detector, density, rows[:, active])] if own is None else _held_out(detector, density, own)
    for part in parts:
        for (some, columns), reference in zip(patterns, references, strict=True):
            mine = np.flatnonzero(np.isin(part.positions, some))
            if not len(mine):
                continue
            target = np.ix_(part.positions[mine], active[columns])
            found = part.conditionals(rows[np.ix_(part.positions[mine], active)], mine, columns, _INTERVAL)
            for table, quantile in zip(quantiles, found.quantiles, strict=True):
                table[target] = quantile
            above = np.stack(
                [
                    len(reference) - np.searchsorted(np.sort(theirs), mine, side="left")
                    for theirs, mine in zip(reference.T, found.surprises.T, strict=True)
                ],
                axis=1,
            )
            n = len(reference)
            shares[target] = (above + 1.0) / (n + 1.0) if own is None else np.maximum(above, 1) / n
            surprises[target] = found.surprises - np.median(reference, axis=0)
    return shares, surprises, quantiles


def _patterns(gaps: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rows that lack the same columns, and the columns that they have; rows without any values are skipped."""
    patterns, pattern_of = np.unique(gaps, axis=0, return_inverse=True)
    for p, missing in enumerate(patterns):
        if not missing.all():
            yield np.flatnonzero(pattern_of.reshape(-1) == p), np.flatnonzero(~missing)


def _whole(detector: Any, density: Any, rows: np.ndarray) -> HeldOutRows:
    """Return new rows with the density of all training rows."""
    mixture = _without_outliers(detector, density._mixture())
    known = np.where(np.isnan(rows), mixture.centres[0], rows)
    check_magnitude(known)
    units = mixture.kernel_units
    check_magnitude(known * units if units.ndim == 1 else known @ units.T, "X, in units of the kernel,")
    return HeldOutRows(np.arange(len(rows)), mixture)


def _held_out(detector: Any, density: Any, positions: np.ndarray) -> Iterator[HeldOutRows]:
    """Yield training rows, each with the density without it."""
    for part in density._held_out_rows(positions):
        yield part._replace(mixture=_without_outliers(detector, part.mixture, part.made_from))


def _without_outliers(detector: Any, mixture: Any, made_from: np.ndarray | None = None) -> Any:
    """Return the mixture without the training rows that are outliers, if groups of outliers are considered.

    An outlier is then not explained by other outliers of its group. `made_from` are the positions of the training rows of the
    components; None for all.
    """
    if getattr(detector, "_reference", None) is None:
        return mixture
    labels = detector.labels_ if made_from is None else detector.labels_[made_from]
    log_weights = np.where(labels == -1, -np.inf, mixture.log_weights)
    return SharedMixture(mixture.centres, mixture.covariance, log_weights, mixture.engine, mixture.feature_names)


def _references_for(detector: Any, density: Any, patterns: list[np.ndarray]) -> list[np.ndarray]:
    """Return for each set of columns the surprises of the training rows that count, each left out, in these columns."""
    n_columns = density.mixture_.centres.shape[1]
    partial = [columns for columns in patterns if len(columns) < n_columns]
    found = iter(_surprises_of_training_rows(detector, density, partial, _FEWER_REFERENCE_ROWS))
    if len(partial) < len(patterns) and detector not in _references:
        whole = [np.arange(n_columns)]
        (_references[detector],) = _surprises_of_training_rows(detector, density, whole, MOST_REFERENCE_ROWS)
    return [next(found) if len(columns) < n_columns else _references[detector] for columns in patterns]


def _surprises_of_training_rows(detector: Any, density: Any, patterns: list[np.ndarray], most: int) -> list[np.ndarray]:
    """Return a table of surprises for each set of columns; if there are many rows, those of an evenly spaced sample."""
    if not patterns:
        return []
    counted = np.flatnonzero(_without_outliers(detector, density._mixture()).log_weights > -np.inf)
    some = counted[np.unique(np.linspace(0, len(counted) - 1, min(len(counted), most)).astype(int))]
    rows, tables = density._training_rows()[some], [np.empty((len(some), len(columns))) for columns in patterns]
    for part in _held_out(detector, density, some):
        everyone = np.arange(len(part.positions))
        for table, columns in zip(tables, patterns, strict=True):
            table[part.positions] = part.conditionals(rows[part.positions], everyone, columns).surprises
    return tables


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


def _check_explains(density: Any) -> np.ndarray:
    """Return the training rows of a density that is a mixture; raise an error for other densities."""
    if not isinstance(density, MixtureDensityMixin):
        raise TypeError(
            "explain needs a density of vicinal (ParzenWindows, LCA, LCAGauss, LocalLCA or ManifoldParzen), got "
            f"{type(density).__name__}. Explain with DensityOutlierDetector(LCA()).fit(X), for example."
        )
    rows = density._training_rows()
    if rows is None:
        raise TypeError(
            f"explain compares rows with the training rows, which this {type(density).__name__} does not hold: an earlier version "
            "of vicinal saved it. Fit it again."
        )
    return rows


def forget_reference(detector: Any) -> None:
    """Drop the cached surprises of a detector that is fitted again."""
    _references.pop(detector, None)
