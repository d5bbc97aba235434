"""Gaussian mixtures with one covariance shared by all components: log-density, sampling, marginals, conditionals.

ParzenWindows, LCA and LCAGauss are such mixtures: a component at every training row, possibly moved or weighted.
"""

import numbers
from typing import Any

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from sklearn.utils import check_random_state
from sklearn.utils.validation import _get_feature_names, check_array, check_is_fitted, validate_data

from vicinal._checks import check_magnitude, check_rows
from vicinal._engine import Work, prepare, resident, robust_centre
from vicinal._mixtures.incomplete_rows import incomplete_log_density

LOG_2PI = float(np.log(2.0 * np.pi))


class SharedMixture:
    r"""The density :math:`p(x) = \sum_j w_j N(x; c_j, \Sigma)`.

    Parameters
    ----------
    centres : array of shape (n, d)
    covariance : array of shape (d, d)
        Symmetric and positive definite.
    log_weights : array of shape (n,), optional
        Need not be normalised; None is equal weights. A component of weight 0 has log-weight -inf.
    engine : None, str or Engine
    feature_names : array of shape (d,), optional

    Notes
    -----
    Scoring m rows costs O(m n d) time, after O(n d^2) to turn the centres unless the covariance is diagonal: once, at
    the first use, because the engine keeps them (`placement`). Memory beyond the data, a centred and a turned copy of
    them is the engine's budget.
    """

    def __init__(self, centres, covariance, log_weights=None, engine=None, feature_names=None):
        self.centres = centres
        self.covariance = covariance
        self.engine = engine
        self.feature_names = feature_names
        self.log_weights = normalised_log_weights(log_weights, len(centres))
        self._lower = (
            np.diag(np.sqrt(np.diag(covariance))) if _is_diagonal(covariance) else cholesky(covariance, lower=True)
        )

    @property
    def n_features(self):
        """The number of dimensions."""
        return self.centres.shape[1]

    @property
    def _log_norm(self):
        return -0.5 * self.n_features * LOG_2PI - np.log(np.diag(self._lower)).sum()

    @property
    def metric(self):
        """What maps rows to where the covariance is the identity: a matrix (d, d), or a vector that is a diagonal."""
        if _is_diagonal(self._lower):
            return 1.0 / np.diag(self._lower)
        return solve_triangular(self._lower, np.eye(self.n_features), lower=True, check_finite=False)

    def scaled(self, X):
        """Rows in the coordinates where the covariance is the identity, centred on the components, in float64."""
        shifted = X - robust_centre(self.centres)
        metric = self.metric
        return shifted * metric if metric.ndim == 1 else shifted @ metric.T

    def unscaled(self, moves):
        """Differences of rows back in the units of the data."""
        return moves @ self._lower.T

    def placement(self, n_queries, passes=1):
        """The components as the engine keeps them to score so many rows, so many times; a centre may be left out."""
        work = Work(n_queries, len(self.centres), self.n_features, passes)
        return resident(self, self.engine, work, lambda: self._prepared(n_queries, passes).at(self.metric))

    def _prepared(self, n_queries, passes):
        return prepare(
            self.engine,
            self.centres,
            log_weights=self._log_weights_or_none(),
            leave_one_out=True,
            n_queries=n_queries,
            passes=passes,
        )

    def score_samples(self, X):
        """Return the log-density of each row of X, shape (m,)."""
        X = check_queries(X, self.n_features, self.feature_names)
        sums = self.placement(len(X)).log_sums(X)
        return _finite(sums + (self._log_norm + self._weight_offset()))

    def left_out_score_samples(self):
        """Return the log-density of each centre under the mixture of the *other* components, shape (n,)."""
        if np.count_nonzero(self.log_weights > -np.inf) < 2:
            raise ValueError(
                "leave-one-out needs at least two rows of positive weight: no component is left without the row."
            )
        others = log_weight_of_others(self.log_weights)
        sums = self.placement(len(self.centres)).log_sums()
        return _finite(sums + (self._log_norm + self._weight_offset()) - others)

    def score(self, X):
        """Return the mean log-density of the rows of X."""
        return float(self.score_samples(X).mean())

    def score_incomplete(self, X):
        """Return the log-density of what is known of each row of X, NaN where a value is missing, shape (m,)."""
        return incomplete_log_density(self, check_queries(X, self.n_features, self.feature_names, gaps=True))

    def sample(self, n_samples=1, random_state=None):
        """Draw rows from the density, shape (n_samples, d)."""
        rng, chosen = draw_components(self.log_weights, n_samples, random_state)
        noise = rng.standard_normal((n_samples, self.n_features)) @ self._lower.T
        return (self.centres[chosen] + noise).astype(self.centres.dtype)

    def marginal(self, features):
        """Return the density of some features alone, exactly, as another `SharedMixture`.

        Parameters
        ----------
        features : list of column positions, or of names where the density was fitted on named columns
        """
        kept = feature_positions(features, self.n_features, self.feature_names)
        names = None if self.feature_names is None else np.asarray(self.feature_names)[kept]
        covariance = self.covariance[np.ix_(kept, kept)]
        return SharedMixture(
            np.ascontiguousarray(self.centres[:, kept]), covariance, self.log_weights, self.engine, names
        )

    def conditional(self, given):
        """Return the density of the remaining features given the values of some, exactly, as another `SharedMixture`.

        Each component keeps the shared conditional covariance, moves its centre by the regression on the given
        values, and is weighted by how well it explains them.

        Parameters
        ----------
        given : dict
            Values by column position, or by name where the density was fitted on named columns.
        """
        fixed, values, rest = split_features(given, self.n_features, self.feature_names, self.centres.dtype)
        names = None if self.feature_names is None else np.asarray(self.feature_names)[rest]
        cross = self.covariance[np.ix_(rest, fixed)]
        factor = (cholesky(self.covariance[np.ix_(fixed, fixed)], lower=True), True)
        gain = cho_solve(factor, cross.T).T
        deviations = values - self.centres[:, fixed].astype(np.float64)
        scaled = solve_triangular(factor[0], deviations.T, lower=True)
        with np.errstate(over="ignore"):  # a component infinitely far from the values has weight 0
            log_weights = self.log_weights - 0.5 * (scaled**2).sum(axis=0)
        centres = (self.centres[:, rest] + deviations @ gain.T).astype(self.centres.dtype)
        covariance = self.covariance[np.ix_(rest, rest)] - gain @ cross.T
        return SharedMixture(centres, 0.5 * (covariance + covariance.T), log_weights, self.engine, names)

    def _log_weights_or_none(self):
        return None if np.ptp(self.log_weights) == 0 else self.log_weights

    def _weight_offset(self):
        return self.log_weights[0] if self._log_weights_or_none() is None else 0.0


def normalised_log_weights(log_weights, n):
    """The log-weights of n components, of sum one; None is equal weights."""
    if log_weights is None:
        log_weights = np.zeros(n)
    top = log_weights.max()
    if not np.isfinite(top):
        raise ValueError(
            "no component explains the given values: they lie so far from all, in units of the kernel, that the "
            "square of the distance overflows. Rescale the data or enlarge the bandwidth or noise."
        )
    shifted = log_weights - top
    return shifted - np.log(np.exp(shifted).sum())


def log_weight_of_others(log_weights):
    """log(1 - w_i) for log-weights of sum one, exact also where one component has nearly all the weight."""
    others = np.log1p(-np.exp(np.minimum(log_weights, -1e-16)))
    heaviest = int(np.argmax(log_weights))
    rest = np.delete(log_weights, heaviest)
    others[heaviest] = rest.max() + np.log(np.exp(rest - rest.max()).sum())
    return others


def _is_diagonal(matrix):
    return np.count_nonzero(matrix) == np.count_nonzero(np.diag(matrix))


class MixtureDensityMixin:
    """The density methods of an estimator whose fit sets ``mixture_``."""

    mixture_: Any
    engine: Any

    def _scoring_work(self, n_queries, n_points, n_features, passes):
        """The pair work of asking the fitted mixture about so many rows, so many times: what its placement states."""
        return Work(n_queries, n_points, n_features, passes)

    def _mixture(self):
        """The fitted mixture, on the engine that the parameter names now: a model may be scored where it was not fitted."""
        check_is_fitted(self)
        self.mixture_.engine = self.engine
        return self.mixture_

    def score_samples(self, X=None):
        """Return the log-density of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or None
            None scores each training row under the density of the *other* training rows (leave-one-out).

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        mixture = self._mixture()
        if X is None:
            return mixture.left_out_score_samples()
        return mixture.score_samples(check_rows(self, X, reset=False))

    def score(self, X=None, y=None):
        """Return the mean log-density of the rows of X; of the training rows, leave-one-out, when X is None."""
        return float(self.score_samples(X).mean())

    def score_incomplete(self, X):
        """Return the log-density of rows with missing values: of what is known of each row, exactly.

        A row is scored under the marginal of its known features, so rows with different gaps have densities of
        different dimensions: compare rows with the same gaps, or use the differences between two densities.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN where a value is missing. A row of nothing but NaN scores 0.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        mixture = self._mixture()
        kinds = [np.float64, np.float32]
        X = validate_data(self, X, reset=False, dtype=kinds, ensure_all_finite="allow-nan")
        return incomplete_log_density(mixture, X)

    def sample(self, n_samples=1, random_state=None):
        """Draw rows from the density.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : int, RandomState instance or None, default=None

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        return self._mixture().sample(n_samples, random_state)

    def marginal(self, features):
        """Return the exact density of some features alone.

        Parameters
        ----------
        features : list of column positions, or of names if fitted on named columns

        Returns
        -------
        density with ``score_samples``, ``score``, ``score_incomplete``, ``sample``, ``marginal`` and ``conditional``
        """
        return self._mixture().marginal(features)

    def conditional(self, given):
        """Return the exact density of the remaining features given the values of some.

        Parameters
        ----------
        given : dict
            Values by column position, or by name if fitted on named columns.

        Returns
        -------
        density with ``score_samples``, ``score``, ``score_incomplete``, ``sample``, ``marginal`` and ``conditional``
        """
        return self._mixture().conditional(given)


def check_queries(X, n_features, names=None, *, gaps=False):
    """Rows to score: finite (with ``gaps``, or NaN), and with the right columns, by name where both sides have names."""
    if X is None:
        raise ValueError(
            "X must be a table of rows, got None: only the fitted estimator leaves its training rows out, a marginal "
            "or conditional has none."
        )
    passed = _get_feature_names(X)
    X = check_array(X, dtype=[np.float64, np.float32], input_name="X", ensure_all_finite="allow-nan" if gaps else True)
    if X.shape[1] != n_features:
        raise ValueError(f"X must have {n_features} columns, got {X.shape[1]}.")
    if names is not None and passed is not None and list(passed) != list(names):
        raise ValueError(
            f"X must have the columns {', '.join(map(str, names))} in this order, got {', '.join(passed)}. Select them "
            "by name."
        )
    check_magnitude(np.nan_to_num(X) if gaps else X)
    return X


def draw_components(log_weights, n_samples, random_state):
    """A random generator, and the components that `n_samples` rows come from."""
    if not isinstance(n_samples, numbers.Integral) or isinstance(n_samples, bool) or n_samples < 1:
        raise ValueError(f"n_samples must be a positive integer, got {n_samples!r}.")
    rng = check_random_state(random_state)
    weights = np.exp(log_weights)
    return rng, rng.choice(len(weights), size=n_samples, p=weights / weights.sum())


def feature_positions(features, n_features, names=None):
    """Column positions of features given by position or by name, without repetition, in the order given."""
    if isinstance(features, (str, numbers.Integral)):
        features = [features]
    try:
        features = list(features)
    except TypeError:
        raise TypeError(f"features must be a list of columns, got {type(features).__name__}.") from None
    positions = [_position(feature, n_features, names) for feature in features]
    if not positions:
        raise ValueError("features must name at least one column, got none.")
    if len(set(positions)) < len(positions):
        raise ValueError(f"features must not repeat a column, got {list(features)!r}.")
    return np.array(positions)


def split_features(given, n_features, names=None, dtype=np.float64):
    """Positions and values of the given features, and positions of the rest; `dtype` is the density's precision."""
    if not isinstance(given, dict):
        raise TypeError(f"given must be a dict of feature: value, got {type(given).__name__}.")
    fixed = feature_positions(list(given), n_features, names)
    try:
        values = np.array([float(value) for value in given.values()])
    except (TypeError, ValueError) as error:
        raise TypeError(f"given must hold one number for each feature, got {list(given.values())!r}.") from error
    if not np.all(np.isfinite(values)):
        raise ValueError(f"given must hold finite values, got {list(given.values())!r}.")
    with np.errstate(over="ignore"):
        check_magnitude(values.astype(dtype), "given")
    rest = np.setdiff1d(np.arange(n_features), fixed)
    if len(rest) == 0:
        raise ValueError(f"given fixes all {n_features} features; leave at least one free, or use score_samples.")
    return fixed, values, rest


def _position(feature, n_features, names):
    if isinstance(feature, numbers.Integral) and not isinstance(feature, bool):
        if not -n_features <= feature < n_features:
            raise ValueError(f"feature {feature} is out of range: the density has {n_features} columns.")
        return int(feature) % n_features
    if names is None:
        raise ValueError(
            f"feature {feature!r} is a name, but the density was fitted on columns without names. Use positions."
        )
    found = np.flatnonzero(np.asarray(names, dtype=object) == feature)
    if len(found) == 0:
        raise ValueError(
            f"feature {feature!r} is not a column of the fitted data, which are {', '.join(map(str, names))}."
        )
    return int(found[0])


def _finite(log_density):
    if not np.all(np.isfinite(log_density)):
        raise ValueError(
            f"{int((~np.isfinite(log_density)).sum())} rows lie so far from every component, in units of the bandwidth, "
            "that the square of their distance overflows. Rescale the data or enlarge the bandwidth."
        )
    return log_density
