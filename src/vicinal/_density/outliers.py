"""Outliers as rows of low density, with training rows judged as if they had not been there."""

import numbers
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OutlierMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import KFold, check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted, validate_data

from vicinal._checks import check_positive, check_weights
from vicinal._density.density_input import as_density, check_takes_weights, rows_as_passed
from vicinal._density.mixture_density import MixtureDensityMixin


class DensityOutlierDetector(OutlierMixin, BaseEstimator):
    r"""Call a row an outlier when its density is low.

    A density of training rows that includes each row's own kernel hides outliers: the smaller the bandwidth,
    the better an isolated row explains itself. So everything said about the training rows here
    (``training_scores_``, ``training_p_values_``, ``fit_predict``, the threshold) is leave-one-out, while
    ``predict``, ``decision_function``, ``score_samples`` and ``p_values`` treat their rows as new, even when
    they are training rows.

    Parameters
    ----------
    density : estimator, optional
        An unfitted density: any of vicinal's or scikit-learn's, or a pipeline that ends in one. The default
        is ``ParzenWindows()``. `from_density` starts from a density that is fitted already.
    contamination : "auto" or float in (0, 0.5], default="auto"
        The share of training rows to call outliers. "auto" draws the line of a box plot,
        :math:`Q_1 - 1.5 (Q_3 - Q_1)` of the leave-one-out log-densities: of 1,000 clean Gaussian rows
        it calls 8 % outliers in one dimension, 5 % in two, 3 % in ten and 1 % in fifty.
    cv : int, splitter or iterable of (train, test), default=5
        Folds for a density that cannot leave single rows out; see Notes. An int shuffles with a fixed seed.

    Attributes
    ----------
    density_ : the density fitted to all training rows
    training_scores_ : ndarray of shape (n_samples,)
        Log-density of each training row under the density of the others.
    training_p_values_ : ndarray of shape (n_samples,)
        Share of the training rows that score no better than the row (itself included).
    offset_ : float
        The threshold: rows whose log-density is below it are outliers.
    n_features_in_ : int
    feature_names_in_ : ndarray of str, only when fitted on named columns

    Notes
    -----
    How a training row is left out depends on the density. Vicinal's mixtures drop the row's own component
    exactly (``score_samples(None)``); ManifoldParzen also rebuilds the frames of its neighbours
    (``held_out_score_samples``); anything else, pipelines included, is fitted again for each of ``cv`` folds.

    The p-value of a new row x is

    .. math:: \frac{1 + \#\{i : s_i \le s(x)\}}{n + 1}

    with :math:`s_i` the leave-one-out training scores: the chance of so low a score if x came from where the
    training rows came from, up to the one row by which the two densities differ. With ``sample_weight`` the
    rows count with weights of mean 1, in the density, in ranks and in quantiles.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import DensityOutlierDetector
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(size=(200, 2)), [[6.0, 6.0]]])
    >>> detector = DensityOutlierDetector().fit(X)
    >>> int(np.argmin(detector.training_scores_)), round(float(detector.training_p_values_[200]), 3)
    (200, 0.005)
    >>> detector.predict([[0.0, 0.0], [-7.0, 7.0]]).tolist()
    [1, -1]
    """

    def __init__(self, density: Any = None, *, contamination: str | float = "auto", cv: Any = 5) -> None:
        self.density = density
        self.contamination = contamination
        self.cv = cv

    @classmethod
    def from_density(cls, density: Any, *, contamination: str | float = "auto") -> Self:
        """Return a fitted detector from a fitted density, without the training rows and without fitting again.

        The training rows are those of the density, each scored under the density of the others; weights that the
        density was fitted with count as in `fit`. The answers are those of
        ``DensityOutlierDetector(density).fit(X, sample_weight=sample_weight)`` on the rows and weights that the
        density was fitted to. The one exception is a pipeline, for which `fit` uses folds: here the steps before
        the density stay as they were learned from all rows, as the bandwidth does.

        Parameters
        ----------
        density : fitted estimator
            One of vicinal's densities, or a pipeline that ends in one. The detector keeps it as ``density_`` and
            does not copy it; the parameter ``density`` becomes an unfitted clone.
        contamination : "auto" or float in (0, 0.5], default="auto"
            As in the constructor.

        Returns
        -------
        DensityOutlierDetector

        Raises
        ------
        TypeError
            If the density keeps no training rows that it could leave out, such as those of scikit-learn.

        Examples
        --------
        >>> import numpy as np
        >>> from vicinal import LCA, DensityOutlierDetector
        >>> X = np.random.default_rng(0).normal(size=(200, 2))
        >>> lca = LCA().fit(X)
        >>> DensityOutlierDetector.from_density(lca).predict([[0.0, 0.0], [7.0, -7.0]]).tolist()
        [1, -1]
        """
        check_is_fitted(as_density(density))
        detector = cls(clone(density), contamination=contamination)
        detector._check_contamination()
        last = density.steps[-1][1] if isinstance(density, Pipeline) else density
        scores = _left_out_scores(last)
        if scores is None:
            raise TypeError(
                "from_density needs a density that can score its training rows without themselves (ParzenWindows, LCA, "
                f"LCAGauss, LocalLCA, ManifoldParzen or ManifoldParzenCV), got {type(last).__name__}. Fit the "
                "detector to the rows instead: DensityOutlierDetector(density).fit(X)."
            )
        detector.density_ = density
        detector.n_features_in_ = density.n_features_in_
        if getattr(density, "feature_names_in_", None) is not None:
            detector.feature_names_in_ = density.feature_names_in_
        return detector._judge_training_rows(scores, _weights_in(last))

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the density and score the training rows without themselves.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional
            Importance of the rows for the density, which must accept it.

        Returns
        -------
        self
        """
        passed = X
        X = validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=2)
        self._check_contamination()
        density = as_density(self.density)
        if isinstance(density, FrozenEstimator):
            raise TypeError(
                "density is frozen: it learns nothing from X, and so it cannot be fitted without a row of X either. Pass "
                "the fitted density to DensityOutlierDetector.from_density(density), or an unfitted one here."
            )
        weight = check_weights(sample_weight, X)
        check_takes_weights(density, weight)
        rows = rows_as_passed(passed, X)
        self.density_ = clone(density).fit(rows, **_weights(weight))
        scores = _left_out_scores(self.density_)
        if scores is None:
            scores = self._scores_by_folds(density, rows, X, weight)
        return self._judge_training_rows(scores, weight)

    def fit_predict(
        self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> NDArray[Any]:
        """Fit, and return -1 for training rows whose leave-one-out score is below ``offset_``, else 1."""
        self.fit(X, sample_weight=sample_weight)
        return np.where(self.training_scores_ < self.offset_, -1, 1)

    def score_samples(self, X: ArrayLike) -> NDArray[Any]:
        """Return the log-density of each row of X, as a new row."""
        check_is_fitted(self)
        passed = X
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return self.density_.score_samples(rows_as_passed(passed, X))

    def decision_function(self, X: ArrayLike) -> NDArray[Any]:
        """Return ``score_samples(X) - offset_``: negative for outliers."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return for each row of X, as a new row, 1, or -1 for an outlier."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    def p_values(self, X: ArrayLike) -> NDArray[Any]:
        """Return the p-value of each row of X, as a new row: between 1 / (n + 1) and 1."""
        return self.p_values_from_scores(self.score_samples(X))

    def p_values_from_scores(self, scores: ArrayLike) -> NDArray[Any]:
        """Return the p-values of new rows whose `score_samples` are known already.

        Parameters
        ----------
        scores : array-like of shape (n_samples,)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        return (1.0 + self._weight_below(np.asarray(scores))) / (len(self.training_scores_) + 1.0)

    def _judge_training_rows(self, scores, weight):
        """Set what is said about the training rows, from their leave-one-out scores."""
        order = np.argsort(scores)
        self.training_scores_ = scores
        self._sorted_scores = scores[order]
        self._cumulated = np.cumsum(np.ones(len(scores)) if weight is None else weight[order])
        self.offset_ = self._threshold()
        self.training_p_values_ = self._weight_below(scores) / len(scores)
        return self

    def _weight_below(self, scores):
        """The weight (without weights, the number) of training rows that score no better."""
        return np.append(0.0, self._cumulated)[np.searchsorted(self._sorted_scores, scores, side="right")]

    def _check_contamination(self):
        if isinstance(self.contamination, str):
            if self.contamination != "auto":
                raise ValueError(f"contamination must be 'auto' or a number in (0, 0.5], got {self.contamination!r}.")
        elif check_positive(self.contamination, "contamination") > 0.5:
            raise ValueError(f"contamination must be at most 0.5, got {self.contamination}: outliers are the minority.")

    def _scores_by_folds(self, density, rows, X, weight):
        cv = self.cv
        if isinstance(cv, numbers.Integral):
            cv = KFold(min(int(cv), len(X)), shuffle=True, random_state=0)
        scores = np.full(len(X), np.nan)
        for train, test in check_cv(cv).split(X):
            some = None if weight is None else weight[train]
            fitted = clone(density).fit(rows_as_passed(rows, X, train), **_weights(some))
            scores[test] = fitted.score_samples(rows_as_passed(rows, X, test))
        if np.isnan(scores).any():
            raise ValueError(
                f"cv left {int(np.isnan(scores).sum())} of {len(X)} training rows without a score. Use folds "
                "that hold out every row once, such as KFold, and a density that returns numbers."
            )
        return scores

    def _threshold(self):
        scores = self._sorted_scores
        finite = np.isfinite(scores)
        if not finite.any():
            raise ValueError(
                "every training row has density 0 under the others, so nothing tells them apart. Enlarge the "
                "density's bandwidth."
            )
        # Density 0 (a kernel of bounded support) is below everything, and stays below the threshold.
        scores = np.where(finite, scores, scores[finite][0] - 1.0)

        def quantile(share):  # that share of the weight scores less
            place = np.searchsorted(self._cumulated, share * self._cumulated[-1], side="right")
            return scores[min(place, len(scores) - 1)]

        if self.contamination == "auto":
            low, high = quantile(0.25), quantile(0.75)
            return float(low - 1.5 * (high - low))
        return float(quantile(self.contamination))


def _left_out_scores(density):
    """Log-densities of a density's training rows without themselves; None where it cannot leave rows out."""
    if hasattr(density, "held_out_score_samples"):
        return density.held_out_score_samples()
    return density.score_samples(None) if isinstance(density, MixtureDensityMixin) else None


def _weights_in(density):
    """The weights, of mean one, that a density was fitted with; None where all rows count the same."""
    mixture = getattr(getattr(density, "best_estimator_", density), "mixture_", None)
    log_weights = getattr(mixture, "log_weights", None)
    if log_weights is None or np.ptp(log_weights) == 0:
        return None
    return len(log_weights) * np.exp(log_weights)


def _weights(weight):
    return {} if weight is None else {"sample_weight": weight}
