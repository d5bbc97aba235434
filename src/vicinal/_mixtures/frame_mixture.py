"""Gaussian mixtures with a low-rank frame for each component: log-density, sampling, marginals, conditionals.

Manifold Parzen Windows is such a mixture: at every training row a Gaussian "pancake", wide along a few
directions.
"""

import math

import numpy as np

from vicinal._engine import Frames, Work, as_engine, prepare, resident
from vicinal._mixtures.incomplete_rows import incomplete_log_density
from vicinal._mixtures.shared_mixture import (
    LOG_2PI,
    _finite,
    check_queries,
    draw_components,
    feature_positions,
    normalised_log_weights,
    split_features,
)
from vicinal._scatter import leading_directions


class FrameMixture:
    r"""The density :math:`p(x) = \sum_j w_j N(x; c_j, \sigma^2 I + \sum_l v_{jl} V_{jl} V_{jl}^T)`.

    Parameters
    ----------
    centres : array of shape (n, D)
    frames : array of shape (d, n, D)
        Orthonormal directions :math:`V_{jl}` of each component.
    variances : array of shape (d, n)
        Variance :math:`v_{jl} \ge 0` along each direction, beyond the noise.
    noise : float
        :math:`\sigma^2 > 0`, the variance in every direction.
    log_weights : array of shape (n,), optional
        Need not be normalised; None is equal weights. A component of weight 0 has log-weight -inf.
    engine : None, str or Engine
    feature_names : array of shape (D,), optional

    Notes
    -----
    Holds O(n d D) numbers. Scoring m rows costs O(m n d D) time; beyond the engine's memory budget, the engine keeps a
    copy of the numbers as its kernels want them (`placement`).
    """

    def __init__(self, centres, frames, variances, noise, log_weights=None, engine=None, feature_names=None):
        self.centres = centres
        self.frames = frames
        self.variances = variances
        self.noise = noise
        self.engine = engine
        self.feature_names = feature_names
        self.log_weights = normalised_log_weights(log_weights, len(centres))

    @property
    def n_features(self):
        """The number of dimensions."""
        return self.centres.shape[1]

    def score_samples(self, X):
        """Return the log-density of each row of X, shape (m,)."""
        X = check_queries(X, self.n_features, self.feature_names)
        return _finite(self.placement(len(X)).log_sums(X) - 0.5 * self.n_features * LOG_2PI)

    def left_out_score_samples(self):
        """Return the log-density of each centre under the mixture of the *other* components, shape (n,)."""
        n = len(self.centres)
        weights = np.exp(self.log_weights)
        # Sums before and after, rather than 1 - w, which loses the others beside a large weight.
        before = np.concatenate([[0.0], np.cumsum(weights)[:-1]])
        after = np.concatenate([np.cumsum(weights[:0:-1])[::-1], [0.0]])
        with np.errstate(divide="ignore"):
            others = np.log(before + after)
        if n < 2 or not np.all(np.isfinite(others)):
            raise ValueError(
                "leave-one-out needs at least two rows of positive weight: no component is left without the row."
            )
        sums = self.placement(n).log_sums()
        return _finite(sums - others - 0.5 * self.n_features * LOG_2PI)

    def placement(self, n_queries, passes=1):
        """The components as the engine keeps them to score so many rows, so many times; a centre may be left out."""
        work = frame_work(n_queries, self.frames.shape, passes=passes)
        return resident(self, self.engine, work, lambda: self._placed(work))

    def _placed(self, work):
        problem = prepare(
            self.engine,
            self.centres,
            log_weights=self.log_weights,
            leave_one_out=True,
            n_queries=work.n_queries,
            n_dims=work.n_dims,
            passes=work.passes,
        )
        return problem.at(Frames(self.frames, self.variances, self.noise))

    def score(self, X):
        """Return the mean log-density of the rows of X."""
        return float(self.score_samples(X).mean())

    def score_incomplete(self, X):
        """Return the log-density of what is known of each row of X, NaN where a value is missing, shape (m,)."""
        return incomplete_log_density(self, check_queries(X, self.n_features, self.feature_names, gaps=True))

    def sample(self, n_samples=1, random_state=None):
        """Draw rows from the density, shape (n_samples, D)."""
        rng, chosen = draw_components(self.log_weights, n_samples, random_state)
        rows = self.centres[chosen] + np.sqrt(self.noise) * rng.standard_normal((n_samples, self.n_features))
        for frame, variance in zip(self.frames, self.variances, strict=True):
            rows += (np.sqrt(variance[chosen]) * rng.standard_normal(n_samples))[:, None] * frame[chosen]
        return rows.astype(self.centres.dtype)

    def marginal(self, features):
        """Return the density of some features alone, exactly, as another `FrameMixture`.

        A component keeps the rows of its frame that belong to those features; these are no longer
        orthonormal, and are brought back to that form.

        Parameters
        ----------
        features : list of column positions, or of names where the density was fitted on named columns
        """
        kept = feature_positions(features, self.n_features, self.feature_names)
        return self._rebuilt(kept, lambda part, factors: (self.centres[part][:, kept], factors[:, :, kept]), 0.0)

    def conditional(self, given):
        """Return the density of the other features given the values of some, exactly, as a `FrameMixture`.

        With ``F_j`` the rows ``sqrt(v_jl) V_jl`` a component is ``x = c_j + z F_j + noise``, z standard
        normal.  The given values are explained best by ``z_j = M_j^-1 F_jB (b - c_jB) / sigma^2``, ``M_j = I
        + F_jB F_jB' / sigma^2``; the rest has mean ``c_jA + z_j F_jA`` and covariance ``sigma^2 I + F_jA'
        M_j^-1 F_jA``: of the same form.  The component is weighted by how well it explains the values.

        Parameters
        ----------
        given : dict
            Values by column position, or by name where the density was fitted on named columns.
        """
        fixed, values, rest = split_features(given, self.n_features, self.feature_names, self.centres.dtype)
        log_likelihoods = np.empty(len(self.centres))

        def condition(part, factors):
            known, free = factors[:, :, fixed], factors[:, :, rest]
            deviations = values - self.centres[part][:, fixed].astype(np.float64)
            lower = np.linalg.cholesky(np.eye(known.shape[1]) + known @ known.transpose(0, 2, 1) / self.noise)
            half = np.linalg.solve(lower, (known @ deviations[:, :, None]) / self.noise)
            latent = np.linalg.solve(lower.transpose(0, 2, 1), half)[:, :, 0]
            # The quadratic form of N(b; c_B, sigma^2 I + F_B'F_B) as a sum of squares: no digits cancel.
            left = deviations - np.einsum("nl,nlk->nk", latent, known)
            with np.errstate(over="ignore"):  # a component infinitely far from the values has weight 0
                square = (left**2).sum(axis=1) / self.noise + (latent**2).sum(axis=1)
            log_det = 2.0 * np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1)
            log_likelihoods[part] = -0.5 * (square + log_det)
            centres = self.centres[part][:, rest] + np.einsum("nl,nlk->nk", latent, free)
            return centres, np.linalg.solve(lower, free)

        return self._rebuilt(rest, condition, log_likelihoods)

    def _rebuilt(self, kept, change, log_likelihoods):
        """The mixture on some features; ``change(part, factors)`` gives new centres and factors."""
        d, n, _ = self.frames.shape
        depth = min(d, len(kept))
        centres = np.empty((n, len(kept)), dtype=self.centres.dtype)
        frames = np.empty((depth, n, len(kept)), dtype=self.frames.dtype)
        variances = np.empty((depth, n))
        batch = max(as_engine(self.engine).memory_bytes // (8 * 6 * d * self.n_features), 1)
        for start in range(0, n, batch):
            part = slice(start, start + batch)
            factors = np.sqrt(self.variances[:, part])[:, :, None] * self.frames[:, part].astype(np.float64)
            centres[part], changed = change(part, factors.transpose(1, 0, 2))
            frames[:, part], variances[:, part] = leading_directions(changed, depth)
        names = None if self.feature_names is None else np.asarray(self.feature_names)[kept]
        log_weights = self.log_weights + log_likelihoods
        return FrameMixture(centres, frames, variances, self.noise, log_weights, self.engine, names)


def frame_work(n_queries, shape, n_tables=1, passes=1):
    """The pair work of queries against frames of shape (d, n, D), with so many combinations of depth and noise.

    Stated in passes of plain distances that cost NumPy as much: a product per direction and the arithmetic around it,
    and the exponentials of every combination.
    """
    d, n, n_features = shape
    numbers_per_pair = (d + 1) * n_features + 24 * d + 60 * n_tables  # in units of a coordinate
    return Work(n_queries, n, n_features, passes * math.ceil(numbers_per_pair / (n_features + 40)))
