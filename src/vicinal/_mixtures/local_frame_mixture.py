"""Gaussian mixtures whose components share a covariance and have one additional low-rank frame each."""

from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from vicinal._engine import Engine, Frames, Placement, Work, robust_centre
from vicinal._mixtures.base import MixtureBase
from vicinal._mixtures.frame_mixture import FrameMixture, frame_work


class LocalFrameMixture(MixtureBase):
    r"""The density :math:`p(x) = \sum_j w_j N(x; c_j, \Sigma + L \sum_l v_{jl} V_{jl} V_{jl}^T L^T)`, :math:`L L^T = \Sigma`.

    In the coordinates :math:`z = L^{-1} x` the shared covariance is the identity, and this is a `FrameMixture` of noise
    1. Operations that do not depend on the coordinates (sampling, steps uphill) are done there; marginals and conditionals
    are computed in coordinates whose first ones depend only on the features that are kept, or given.

    Parameters
    ----------
    centres : array of shape (n, D)
    covariance : array of shape (D, D)
        :math:`\Sigma`, symmetric and positive definite. L is its lower triangular root.
    frames : array of shape (d, n, D)
        Orthonormal directions :math:`V_{jl}` of each component, in the coordinates z.
    variances : array of shape (d, n)
        :math:`v_{jl} \ge 0`, the variance along each direction beyond 1, in the coordinates z.
    log_weights : array of shape (n,), optional
        Need not be normalised; None is equal weights. A component of weight 0 has log-weight -inf.
    engine : None, str or Engine
    feature_names : array of shape (D,), optional

    Notes
    -----
    Holds O(n d D + D^2) numbers. Scoring m rows costs O(m n d D) time; beyond the engine's memory budget, the engine keeps
    a copy of the numbers in the layout that its kernels need (`placement`).
    """

    def __init__(
        self,
        centres: np.ndarray,
        covariance: np.ndarray,
        frames: np.ndarray,
        variances: np.ndarray,
        log_weights: np.ndarray | None = None,
        engine: Engine | str | None = None,
        feature_names: np.ndarray | None = None,
    ) -> None:
        super().__init__(centres, log_weights, engine, feature_names)
        self.covariance = covariance
        self.frames = frames
        self.variances = variances

    @property
    def kernel_units(self) -> np.ndarray:
        """The map to coordinates in which the shared covariance, the narrowest kernel, is the identity, shape (D, D)."""
        return _inverse_of_lower(self._lower)

    @property
    def covariances(self) -> np.ndarray:
        """The covariance of each component, shape (n, D, D)."""
        return self.covariances_of(np.arange(len(self.centres)))

    def covariances_of(self, components: np.ndarray) -> np.ndarray:
        """Return the covariance of some components, shape (len(components), D, D)."""
        frames = self.frames[:, components] @ self._lower.T
        factors = np.sqrt(self.variances[:, components])[:, :, None] * frames
        return self.covariance + np.einsum("lnj,lnk->njk", factors, factors)

    @property
    def _lower(self) -> np.ndarray:
        return np.linalg.cholesky(self.covariance)

    def _kernel(self) -> Frames:
        return Frames(self.frames, self.variances, 1.0)

    def _work(self, n_queries: int, passes: int) -> Work:
        return frame_work(n_queries, self.frames.shape, passes=passes)

    @property
    def _log_norm(self) -> float:
        return super()._log_norm - float(np.log(np.diag(self._lower)).sum())

    def _as_placed(self, rows: Any) -> Any:
        """Return rows in the coordinates z, relative to a centre, so that the map loses no digits far from the origin."""
        origin, units = robust_centre(self.centres), self.kernel_units
        if isinstance(rows, np.ndarray):
            return (rows.astype(np.float64, copy=False) - origin) @ units.T
        rows = rows.double()  # a tensor on a GPU
        origin, units = (rows.new_tensor(part) for part in (origin, units))
        return (rows - origin) @ units.T

    def _in_z(self, turn: np.ndarray | None = None) -> FrameMixture:
        """Return the mixture in the coordinates z, or in these coordinates rotated by an orthogonal matrix."""
        centres, frames = self._as_placed(self.centres), self.frames
        if turn is not None:
            centres, frames = centres @ turn.T, frames @ turn.T
        return FrameMixture(centres, frames, self.variances, 1.0, self.log_weights, self.engine)

    def mean_shift(self, X: np.ndarray, placed: Placement | None = None) -> np.ndarray:
        """Return the step of each row of X, shape (m, D)."""
        placed = self.placement(len(X)) if placed is None else placed
        return self._in_z().mean_shift(self._as_placed(X), placed) @ self._lower.T

    def _draw(self, chosen: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
        return robust_centre(self.centres) + self._in_z()._draw(chosen, rng) @ self._lower.T

    def _turned(self, first: np.ndarray) -> tuple[FrameMixture, np.ndarray]:
        """Return the mixture in coordinates of which the first ones depend only on the features `first`.

        With the features in the order (first, others) and the root of their shared covariance, this covariance is again
        the identity in those coordinates, so they are a rotation of z. The root is returned as well.
        """
        order = np.concatenate([first, np.setdiff1d(np.arange(self.n_features), first)])
        lower = np.linalg.cholesky(self.covariance[np.ix_(order, order)])
        return self._in_z(solve_triangular(lower, self._lower[order], lower=True)), lower

    def _marginal(self, kept: np.ndarray, names: np.ndarray | None) -> "LocalFrameMixture":
        turned, _ = self._turned(kept)
        found = turned._marginal(np.arange(len(kept)), None)
        covariance = self.covariance[np.ix_(kept, kept)]
        parts = self.centres[:, kept], covariance, found.frames, found.variances
        return LocalFrameMixture(*parts, self.log_weights, self.engine, names)

    def _conditional(
        self, fixed: np.ndarray, values: np.ndarray, rest: np.ndarray, names: np.ndarray | None
    ) -> "LocalFrameMixture":
        turned, lower = self._turned(fixed)
        k, origin = len(fixed), robust_centre(self.centres)
        given = solve_triangular(lower[:k, :k], values - origin[fixed], lower=True)
        found = turned._conditional(np.arange(k), given, np.arange(k, self.n_features), None)
        # `rest` is in increasing order, as the features after the first ones in `_turned` are.
        own = lower[k:, k:]
        centres = origin[rest] + lower[k:, :k] @ given + found.centres @ own.T
        covariance = own @ own.T
        parts = centres, 0.5 * (covariance + covariance.T), found.frames, found.variances
        return LocalFrameMixture(*parts, found.log_weights, self.engine, names)


def _inverse_of_lower(lower: np.ndarray) -> np.ndarray:
    return solve_triangular(lower, np.eye(len(lower)), lower=True)
