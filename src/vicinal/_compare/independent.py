"""The density of independent columns, a plain rival of learned densities."""

import warnings
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.stats import kurtosis, norm, skew
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning

from vicinal._engine import Engine

# Columns with a larger skewness or excess kurtosis than this also have windows that widen towards the tail.
_SKEWED, _HEAVY = 1.0, 3.0


class _Normal(NamedTuple):
    """A normal distribution."""

    mean: float
    spread: float

    def scores(self, values: np.ndarray) -> np.ndarray:
        return norm.logpdf(values, self.mean, self.spread)


class _Windows(NamedTuple):
    """Parzen windows of the values, or of arcsinh((value - centre) / width), which widens windows away from the centre."""

    density: Any
    centre: float = 0.0
    width: float = np.inf

    def images(self, values: np.ndarray) -> np.ndarray:
        return values if np.isinf(self.width) else np.arcsinh((values - self.centre) / self.width)

    def log_slopes(self, values: np.ndarray) -> np.ndarray | float:
        return 0.0 if np.isinf(self.width) else -np.log(np.hypot(values - self.centre, self.width))

    def scores(self, values: np.ndarray) -> np.ndarray:
        return self.density.score_samples(self.images(values)[:, None]) + self.log_slopes(values)


class BesideLevels(BaseEstimator):
    """A density of numbers, times the shares of the levels of other columns: that of categories that are independent of everything.

    Parameters
    ----------
    density : estimator
        The density of the other columns.
    levels : list of int
        The positions of the columns of levels.

    Attributes
    ----------
    density_ : estimator
        The fitted density; None without other columns.
    shares_ : list of dict
        The probability of each level of a column. One cell, the rest, is for all levels that the training rows lack.
    """

    def __init__(self, density: Any, levels: list[int]) -> None:
        self.density = density
        self.levels = levels

    def fit(self, X: np.ndarray, y: Any = None) -> Self:
        """Fit the density to the numbers, and count the levels."""
        X = np.asarray(X, dtype=np.float64)
        self.n_features_in_ = X.shape[1]
        numbers = np.delete(X, self.levels, axis=1)
        self.density_ = clone(self.density).fit(numbers) if numbers.shape[1] else None
        self.shares_ = []
        for column in X[:, self.levels].T:
            levels, counts = np.unique(column[~np.isnan(column)], return_counts=True)
            self.shares_.append(dict(zip(levels.tolist(), counts / (counts.sum() + 1.0), strict=True)))
        return self

    def score_samples(self, X: np.ndarray) -> np.ndarray:
        """Return the log-density of each row, by its known values."""
        X = np.asarray(X, dtype=np.float64)
        scores = np.zeros(len(X))
        if self.density_ is not None:
            scores = scores + self.density_.score_samples(np.delete(X, self.levels, axis=1))
        for column, shares in zip(X[:, self.levels].T, self.shares_, strict=True):
            rest = 1.0 - sum(shares.values())
            known = ~np.isnan(column)
            scores[known] += np.log([shares.get(level, rest) for level in column[known].tolist()])
        return scores

    @property
    def marginal(self) -> Any:
        """The marginals of the density of the numbers, by which rows with missing values are scored."""
        return self.density.marginal


class IndependentColumns(BaseEstimator):
    """The product of one density per column, for each column the one that leave-one-out prefers.

    The densities are a normal distribution, Parzen windows and, for skewed columns and heavy tails, Parzen windows that widen
    towards the tail. A learned density that does not score better has learned the shapes of the columns, but nothing about how
    they belong together.

    Parameters
    ----------
    engine : None, str or Engine, default=None
        The backend of the pairwise computations; see :class:`vicinal.Engine`.

    Attributes
    ----------
    columns_ : list
        The density of each column.
    """

    def __init__(self, engine: Engine | str | None = None) -> None:
        self.engine = engine

    def fit(self, X: np.ndarray, y: Any = None) -> Self:
        """Fit the density of each column to its known values."""
        X = np.asarray(X, dtype=np.float64)
        self.columns_ = [self._column(column[~np.isnan(column)]) for column in X.T]
        return self

    def score_samples(self, X: np.ndarray) -> np.ndarray:
        """Return the log-density of each row, by its known values."""
        X = np.asarray(X, dtype=np.float64)
        scores = np.zeros(len(X))
        for column, density in zip(X.T, self.columns_, strict=True):
            known = ~np.isnan(column)
            if known.any():
                scores[known] += density.scores(column[known])
        return scores

    def marginal(self, features: Any) -> "IndependentColumns":
        """Return the density of some columns."""
        narrow = IndependentColumns(self.engine)
        narrow.columns_ = [self.columns_[j] for j in np.atleast_1d(features)]
        return narrow

    def _column(self, values: np.ndarray) -> _Normal | _Windows:
        from vicinal import ParzenWindows

        low, quarter, middle, upper, high = np.quantile(values, [0.0, 0.25, 0.5, 0.75, 1.0])
        frames = [(0.0, np.inf)]
        if abs(skew(values)) > _SKEWED:
            frames.append((low, quarter - low) if skew(values) > 0 else (high, high - upper))
        elif kurtosis(values) > _HEAVY:
            frames.append((middle, upper - quarter))
        fitted: list[tuple[float, _Normal | _Windows]] = [_left_out_normal(values)]
        for centre, width in frames:
            if width > 0:
                images = _Windows(None, centre, width).images(values)
                with warnings.catch_warnings():
                    # Held-out rows judge the windows of a column, whether or not their width is the best.
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    density = ParzenWindows("loo", engine=self.engine).fit(images[:, None])
                windows = _Windows(density, centre, width)
                left_out = windows.density.score_samples(None) + windows.log_slopes(values)
                fitted.append((float(left_out.mean()), windows))
        return max(fitted, key=lambda item: item[0])[1]


def _left_out_normal(values: np.ndarray) -> tuple[float, _Normal]:
    """Return the mean log-density of values under the normal distribution of the others, and that of all."""
    n, mean, spread = len(values), float(values.mean()), float(values.std())
    away = (values - mean) * n / (n - 1)  # from the mean of the others
    variances = np.maximum(n * spread**2 - (values - mean) * away, 0.0) / (n - 1)  # of the others
    if not variances.all():
        return -np.inf, _Normal(mean, spread)
    return float(norm.logpdf(away, 0.0, np.sqrt(variances)).mean()), _Normal(mean, spread)
