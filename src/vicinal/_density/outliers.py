"""Outliers as rows of low density, with training rows judged as if they had not been there."""

import numbers

import numpy as np
from sklearn.base import BaseEstimator, OutlierMixin, clone
from sklearn.model_selection import KFold, check_cv
from sklearn.utils.validation import check_is_fitted, validate_data

from vicinal._checks import check_positive, check_weights
from vicinal._density.density_input import as_density, check_takes_weights, rows_as_passed
from vicinal._density.mixture import MixtureDensityMixin


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
        is ``ParzenWindows()``.
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
    (``held_out_score_samples``); anything else is fitted again for each of ``cv`` folds.

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

    def __init__(self, density=None, *, contamination="auto", cv=5):
        self.density = density
        self.contamination = contamination
        self.cv = cv

    def fit(self, X, y=None, sample_weight=None):
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
        weight = check_weights(sample_weight, X)
        check_takes_weights(density, weight)
        rows = rows_as_passed(passed, X)
        self.density_ = clone(density).fit(rows, **_weights(weight))
        self.training_scores_ = self._held_out_scores(density, rows, X, weight)
        order = np.argsort(self.training_scores_)
        self._sorted_scores = self.training_scores_[order]
        self._cumulated = np.cumsum(np.ones(len(X)) if weight is None else weight[order])
        self.offset_ = self._threshold()
        self.training_p_values_ = self._weight_below(self.training_scores_) / len(X)
        return self

    def fit_predict(self, X, y=None, sample_weight=None):
        """Fit, and return -1 for training rows whose leave-one-out score is below ``offset_``, else 1."""
        self.fit(X, sample_weight=sample_weight)
        return np.where(self.training_scores_ < self.offset_, -1, 1)

    def score_samples(self, X):
        """Return the log-density of each row of X, as a new row."""
        check_is_fitted(self)
        passed = X
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return self.density_.score_samples(rows_as_passed(passed, X))

    def decision_function(self, X):
        """Return ``score_samples(X) - offset_``: negative for outliers."""
        return self.score_samples(X) - self.offset_

    def predict(self, X):
        """Return for each row of X, as a new row, 1, or -1 for an outlier."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    def p_values(self, X):
        """Return the p-value of each row of X, as a new row: between 1 / (n + 1) and 1."""
        return (1.0 + self._weight_below(self.score_samples(X))) / (len(self.training_scores_) + 1.0)

    def _weight_below(self, scores):
        """The weight (without weights, the number) of training rows that score no better."""
        return np.append(0.0, self._cumulated)[np.searchsorted(self._sorted_scores, scores, side="right")]

    def _check_contamination(self):
        if isinstance(self.contamination, str):
            if self.contamination != "auto":
                raise ValueError(f"contamination must be 'auto' or a number in (0, 0.5], got {self.contamination!r}.")
        elif check_positive(self.contamination, "contamination") > 0.5:
            raise ValueError(f"contamination must be at most 0.5, got {self.contamination}: outliers are the minority.")

    def _held_out_scores(self, density, rows, X, weight):
        if hasattr(self.density_, "held_out_score_samples"):
            return self.density_.held_out_score_samples()
        if isinstance(self.density_, MixtureDensityMixin):
            return self.density_.score_samples(None)
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


def _weights(weight):
    return {} if weight is None else {"sample_weight": weight}
