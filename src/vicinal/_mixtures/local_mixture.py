"""Gaussian mixtures in which every component has a full covariance of its own."""

import numpy as np

from vicinal._engine import Covariances, Work, prepare, resident
from vicinal._mixtures.incomplete_rows import incomplete_log_density
from vicinal._mixtures.shared_mixture import (
    LOG_2PI,
    _finite,
    check_queries,
    draw_components,
    feature_positions,
    log_weight_of_others,
    normalised_log_weights,
    split_features,
)


class LocalMixture:
    r"""The density :math:`p(x) = \sum_j w_j N(x; c_j, \Sigma_j)`.

    Parameters
    ----------
    centres : array of shape (n, d)
    covariances : array of shape (n, d, d)
    log_weights : array of shape (n,), optional
        Need not be normalised; None is equal weights.
    engine : None, str or Engine
    feature_names : array of shape (d,), optional

    Notes
    -----
    Holds O(n d^2) numbers, and as many again once it has scored rows. Scoring m rows costs O(m n d^2) time and the
    engine's memory budget.
    """

    def __init__(self, centres, covariances, log_weights=None, engine=None, feature_names=None):
        self.centres, self.covariances = centres, covariances
        self.engine, self.feature_names = engine, feature_names
        self.log_weights = normalised_log_weights(log_weights, len(centres))

    @property
    def n_features(self):
        """The number of dimensions."""
        return self.centres.shape[1]

    def score_samples(self, X):
        """Return the log-density of each row of X, shape (m,)."""
        X = check_queries(X, self.n_features, self.feature_names)
        return _finite(self.placement(len(X)).log_sums(X) + self._log_norm)

    def left_out_score_samples(self):
        """Return the log-density of each centre under the mixture of the *other* components, shape (n,)."""
        sums = self.placement(len(self.centres)).log_sums()
        return _finite(sums + self._log_norm - log_weight_of_others(self.log_weights))

    def placement(self, n_queries, passes=1):
        """The components as the engine keeps them to score so many rows, so many times; a centre may be left out."""
        work = covariance_work(n_queries, len(self.centres), self.n_features, passes)

        def make():
            problem = prepare(
                self.engine,
                self.centres,
                log_weights=self.log_weights,
                leave_one_out=True,
                n_queries=work.n_queries,
                n_dims=work.n_dims,
                passes=work.passes,
            )
            return problem.at(Covariances(inverse_roots(self.covariances)))

        return resident(self, self.engine, work, make)

    @property
    def _log_norm(self):
        return -0.5 * self.n_features * LOG_2PI

    def score(self, X):
        """Return the mean log-density of the rows of X."""
        return float(self.score_samples(X).mean())

    def score_incomplete(self, X):
        """Return the log-density of what is known of each row of X, NaN where a value is missing, shape (m,)."""
        return incomplete_log_density(self, check_queries(X, self.n_features, self.feature_names, gaps=True))

    def sample(self, n_samples=1, random_state=None):
        """Draw rows from the density, shape (n_samples, d)."""
        rng, chosen = draw_components(self.log_weights, n_samples, random_state)
        noise = rng.standard_normal((n_samples, self.n_features, 1))
        return self.centres[chosen] + (np.linalg.cholesky(self.covariances[chosen]) @ noise)[:, :, 0]

    def marginal(self, features):
        """Return the density of some features alone, exactly, as another `LocalMixture`."""
        kept = feature_positions(features, self.n_features, self.feature_names)
        names = None if self.feature_names is None else np.asarray(self.feature_names)[kept]
        covariances = self.covariances[:, kept[:, None], kept]
        return LocalMixture(self.centres[:, kept], covariances, self.log_weights, self.engine, names)

    def conditional(self, given):
        """Return the density of the other features given the values of some, exactly, as a `LocalMixture`."""
        fixed, values, rest = split_features(given, self.n_features, self.feature_names)
        names = None if self.feature_names is None else np.asarray(self.feature_names)[rest]
        known = self.covariances[:, fixed[:, None], fixed]
        cross = self.covariances[:, rest[:, None], fixed]
        gain = np.linalg.solve(known, cross.transpose(0, 2, 1)).transpose(0, 2, 1)
        deviations = values - self.centres[:, fixed]
        roots = inverse_roots(known)
        images = (roots @ deviations[:, :, None])[:, :, 0]
        log_weights = self.log_weights + log_dets(roots) - 0.5 * np.square(images).sum(axis=1)
        centres = self.centres[:, rest] + (gain @ deviations[:, :, None])[:, :, 0]
        covariances = self.covariances[:, rest[:, None], rest] - gain @ cross.transpose(0, 2, 1)
        covariances = 0.5 * (covariances + covariances.transpose(0, 2, 1))
        return LocalMixture(centres, covariances, log_weights, self.engine, names)


def inverse_roots(covariances):
    """R_j with ``R_j' R_j`` the inverse of each covariance, lower triangular."""
    return np.linalg.inv(np.linalg.cholesky(covariances))


def log_dets(roots):
    """log|det R_j| of triangular matrices."""
    return np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1)


def covariance_work(n_queries, n_points, n_features, passes):
    """The pair work where every point has a full covariance: a pair takes d^2 steps."""
    return Work(n_queries, n_points, n_features**2, passes)
