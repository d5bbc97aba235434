"""Gaussian mixtures with one covariance that all components share.

ParzenWindows, LCA and LCAGauss are such mixtures: a component at every training row, possibly moved or weighted.
"""

from typing import Any

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.special import logsumexp

from vicinal._engine import Engine, Placement, StreamedPlacement, Work, is_streamed
from vicinal._mixtures.background import Background
from vicinal._mixtures.base import LOG_2PI, Mixture


class SharedMixture(Mixture):
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
    background : Background, optional
        Broad Gaussians that have a share of the density beside the components.

    Notes
    -----
    Scoring m rows costs O(m n d) time. Unless the covariance is diagonal, the first use takes O(n d^2) to transform the
    centres, which the engine then keeps (`placement`). The memory beyond the data, a centred and a transformed copy of
    them is the engine's budget. Centres in a memory map that is larger than that budget are not copied: they are read block
    by block for each call, and only log-densities are available.
    """

    def __init__(
        self,
        centres: np.ndarray,
        covariance: np.ndarray,
        log_weights: np.ndarray | None = None,
        engine: Engine | str | None = None,
        feature_names: np.ndarray | None = None,
        background: Background | None = None,
    ) -> None:
        super().__init__(centres, log_weights, engine, feature_names)
        self.covariance, self.background = covariance, background
        self._derive()

    def _derive(self) -> None:
        """Compute the Cholesky factor of the covariance; also called when a model file, which does not hold it, has been read."""
        variances = np.diag(self.covariance)
        if not _is_diagonal(self.covariance):
            self._lower = cholesky(self.covariance, lower=True)
        elif (variances > 0).all():
            self._lower = np.diag(np.sqrt(variances))
        else:
            raise np.linalg.LinAlgError("the covariance is not positive definite")

    def some(self, positions: np.ndarray) -> "SharedMixture":
        """Return the mixture of the components at some positions."""
        weights = self.log_weights[positions]
        options = self.engine, self.feature_names, self.background
        return SharedMixture(self.centres[positions], self.covariance, weights, *options)

    def broad_log_densities(self, rows: np.ndarray, left_out: np.ndarray | None = None) -> np.ndarray:
        """Return the log-density of each row under the broad Gaussians, shape (m, K)."""
        assert self.background is not None
        weights = None if left_out is None else np.exp(self.log_weights[left_out])
        return self.background.log_densities(rows, self.covariance, weights)

    def only(self, is_remaining: np.ndarray) -> "SharedMixture":
        """Return the mixture of some components, which keep their positions; the background is that of their rows as well."""
        rest: Any = super().only(is_remaining)
        if self.background is not None:
            rest.background = self.background.of_rows(self.centres, rest.log_weights)
        return rest

    @property
    def kernel_units(self) -> np.ndarray:
        """The map to coordinates in which the covariance is the identity: a matrix (d, d), or a diagonal as a vector."""
        if _is_diagonal(self._lower):
            return 1.0 / np.diag(self._lower)
        return solve_triangular(self._lower, np.eye(self.n_features), lower=True, check_finite=False)

    def _kernel(self) -> np.ndarray:
        return self.kernel_units

    def _placed(self, work: Work, engine: Engine | str | None) -> Any:
        if is_streamed(self.centres, engine):
            return StreamedPlacement(engine, self.centres, self._kernel(), self._log_weights_of_points(), work)
        return super()._placed(work, engine)

    def _work(self, n_queries: int, passes: int) -> Work:
        return Work(n_queries, len(self.centres), self.n_features, passes)

    def _log_weights_of_points(self) -> np.ndarray | None:
        # The engine is faster without weights; `_log_norm` contains what equal weights would add.
        return None if np.ptp(self.log_weights) == 0 else self.log_weights

    @property
    def _log_norm(self) -> float:
        offset = self.log_weights[0] if self._log_weights_of_points() is None else 0.0
        return super()._log_norm - np.log(np.diag(self._lower)).sum() + offset

    def mean_shift(self, X: np.ndarray, placed: Placement | None = None) -> np.ndarray:
        """Return the step of each row of X, shape (m, d): to the mean of the centres, weighted by their shares."""
        placed = self.placement(len(X)) if placed is None else placed
        shifts = placed.mean_shifts(X)
        steps = shifts.means @ self._lower.T
        if self.background is None:
            return steps
        return self.background.mean_shift(X, self.covariance, shifts.log_sums + self._log_norm, steps)

    def _draw(self, chosen: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
        return self.centres[chosen] + rng.standard_normal((len(chosen), self.n_features)) @ self._lower.T

    def _draw_broad(self, chosen: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
        assert self.background is not None
        return self.background.drawn(chosen, self.covariance, rng)

    def _marginal(self, kept: np.ndarray, names: np.ndarray | None) -> "SharedMixture":
        covariance = self.covariance[np.ix_(kept, kept)]
        centres = np.ascontiguousarray(self.centres[:, kept])
        background = None if self.background is None else self.background.of_columns(kept)
        return SharedMixture(centres, covariance, self.log_weights, self.engine, names, background)

    def _conditional(
        self, fixed: np.ndarray, values: np.ndarray, rest: np.ndarray, names: np.ndarray | None
    ) -> "SharedMixture":
        """Return the conditional mixture: one conditional covariance, and centres moved by the regression on the values."""
        cross = self.covariance[np.ix_(rest, fixed)]
        factor = (cholesky(self.covariance[np.ix_(fixed, fixed)], lower=True), True)
        gain = cho_solve(factor, cross.T).T
        deviations = values - self.centres[:, fixed].astype(np.float64)
        scaled = solve_triangular(factor[0], deviations.T, lower=True)
        with np.errstate(over="ignore"):  # a component infinitely far from the values has weight 0
            log_weights = self.log_weights - 0.5 * (scaled**2).sum(axis=0)
        centres = (self.centres[:, rest] + deviations @ gain.T).astype(self.centres.dtype)
        covariance = self.covariance[np.ix_(rest, rest)] - gain @ cross.T
        background = None
        if self.background is not None:
            log_det = 2.0 * np.log(np.diag(factor[0])).sum()
            kernels = logsumexp(log_weights) - 0.5 * (len(fixed) * LOG_2PI + log_det)
            background = self.background.given(fixed, values, rest, self.covariance, kernels)
        return SharedMixture(centres, 0.5 * (covariance + covariance.T), log_weights, self.engine, names, background)


def _is_diagonal(matrix: np.ndarray) -> bool:
    return np.count_nonzero(matrix) == np.count_nonzero(np.diag(matrix))
