"""Gaussian mixtures with a covariance that all components share, and a low-rank frame for each component.

Manifold Parzen Windows and Local LCA are such mixtures: at every training row is a Gaussian that is wide along a few directions.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from vicinal._engine import (
    Engine,
    Frames,
    Placement,
    Work,
    as_engine,
    available_threads,
    in_order,
    one_blas_thread,
    robust_centre,
)
from vicinal._mixtures.base import Mixture
from vicinal._scatter import leading_directions


class FrameMixture(Mixture):
    r"""The density :math:`p(x) = \sum_j w_j N(x; c_j, C_j)` with :math:`C_j = \Sigma + L \sum_l v_{jl} V_{jl} V_{jl}^T L^T`.

    With a matrix :math:`\Sigma`, L is its lower triangular root. In the coordinates :math:`z = L^{-1} x` it is the identity. With a
    number, :math:`\Sigma = \sigma^2 I`, L is the identity, and z are the coordinates of the data. In either case the covariances in z are
    :math:`\sigma^2 I + \sum_l v_{jl} V_{jl} V_{jl}^T`, with :math:`\sigma^2 = 1` for a matrix.

    Operations that do not depend on the coordinates (sampling, steps uphill) are done in z. Marginals and conditionals are computed in
    coordinates whose first ones depend only on the features that are kept, or given.

    Parameters
    ----------
    centres : array of shape (n, D)
    frames : array of shape (d, n, D)
        Orthonormal directions :math:`V_{jl}` of each component, in the coordinates z.
    variances : array of shape (d, n)
        The variance :math:`v_{jl} \ge 0` along each direction, beyond the shared one, in the coordinates z.
    covariance : float or array of shape (D, D)
        :math:`\sigma^2 > 0`, or :math:`\Sigma`, symmetric and positive definite.
    log_weights : array of shape (n,), optional
        Need not be normalised; None is equal weights. A component of weight 0 has log-weight -inf.
    engine : None, str or Engine
    feature_names : array of shape (D,), optional

    Notes
    -----
    Holds O(n d D + D^2) numbers. Scoring m rows costs O(m n d D) time; beyond the engine's memory budget, the engine keeps a
    copy of the numbers in the layout that its kernels need (`placement`).
    """

    def __init__(
        self,
        centres: np.ndarray,
        frames: np.ndarray,
        variances: np.ndarray,
        covariance: float | np.ndarray,
        log_weights: np.ndarray | None = None,
        engine: Engine | str | None = None,
        feature_names: np.ndarray | None = None,
    ) -> None:
        super().__init__(centres, log_weights, engine, feature_names)
        self.frames = frames
        self.variances = variances
        self.covariance = covariance
        self._derive()

    def _derive(self) -> None:
        """Compute the root of the covariance; also called when a model file, which does not hold it, has been read."""
        self._lower = None if np.ndim(self.covariance) == 0 else np.linalg.cholesky(self.covariance)

    @property
    def noise(self) -> float:
        """The variance of all components in the coordinates z."""
        return float(self.covariance) if self._lower is None else 1.0

    @property
    def kernel_units(self) -> np.ndarray:
        """The map to coordinates in which the shared covariance, the narrowest kernel, is the identity: (D,) for a number, or (D, D)."""
        if self._lower is None:
            return np.full(self.n_features, 1.0 / np.sqrt(self.noise))
        return solve_triangular(self._lower, np.eye(self.n_features), lower=True)

    @property
    def covariances(self) -> np.ndarray:
        """The covariance of each component, shape (n, D, D)."""
        return self.covariances_of(np.arange(len(self.centres)))

    def covariances_of(self, components: np.ndarray) -> np.ndarray:
        """Return the covariance of some components, shape (len(components), D, D)."""
        frames = self.frames[:, components].astype(np.float64)
        frames = frames if self._lower is None else frames @ self._lower.T
        factors = np.sqrt(self.variances[:, components])[:, :, None] * frames
        shared = self.noise * np.eye(self.n_features) if self._lower is None else self.covariance
        return shared + np.einsum("lnj,lnk->njk", factors, factors)

    # -- the coordinates z -----------------------------------------------------------------------------------------

    def _kernel(self) -> Frames:
        return Frames(self.frames, self.variances, self.noise)

    def _work(self, n_queries: int, passes: int) -> Work:
        return frame_work(n_queries, self.frames.shape, passes=passes)

    @property
    def _log_norm(self) -> float:
        return super()._log_norm - (0.0 if self._lower is None else float(np.log(np.diag(self._lower)).sum()))

    def _as_placed(self, rows: Any) -> Any:
        """Return rows in the coordinates z, relative to a centre, so that the map loses no digits far from the origin."""
        if self._lower is None:
            return rows
        origin, units = robust_centre(self.centres), self.kernel_units
        if isinstance(rows, np.ndarray):
            return (rows.astype(np.float64, copy=False) - origin) @ units.T
        rows = rows.double()  # a tensor on a GPU
        origin, units = (rows.new_tensor(part) for part in (origin, units))
        return (rows - origin) @ units.T

    def _in_z(self, turn: np.ndarray | None = None) -> "FrameMixture":
        """Return the mixture in the coordinates z, or in these coordinates rotated by an orthogonal matrix."""
        centres, frames = self._as_placed(self.centres), self.frames
        if turn is not None:
            centres, frames = centres @ turn.T, frames @ turn.T
        return FrameMixture(centres, frames, self.variances, 1.0, self.log_weights, self.engine)

    def _turned(self, first: np.ndarray) -> tuple["FrameMixture", np.ndarray]:
        """Return the mixture in coordinates of which the first ones depend only on the features `first`.

        With the features in the order (first, others) and the root of their shared covariance, this covariance is again
        the identity in those coordinates, so they are a rotation of z. The root is returned as well.
        """
        order = np.concatenate([first, np.setdiff1d(np.arange(self.n_features), first)])
        lower = np.linalg.cholesky(np.asarray(self.covariance)[np.ix_(order, order)])
        assert self._lower is not None
        return self._in_z(solve_triangular(lower, self._lower[order], lower=True)), lower

    # -- steps uphill and samples ----------------------------------------------------------------------------------

    def mean_shift(self, X: np.ndarray, placed: Placement | None = None) -> np.ndarray:
        """Return the step of each row of X, shape (m, D)."""
        placed = self.placement(len(X)) if placed is None else placed
        if self._lower is not None:
            return self._in_z().mean_shift(self._as_placed(X), placed) @ self._lower.T
        gains = 1.0 / self.noise - 1.0 / (self.noise + self.variances)  # (d, n)

        def step_of_row(near: np.ndarray, p: np.ndarray, x: np.ndarray) -> np.ndarray:
            differences = self.centres[near] - x
            frames = self.frames[:, near].astype(np.float64)  # (d, k, D)
            gain = gains[:, near]
            along = np.einsum("lnk,nk->ln", frames, differences)
            gradient = p @ differences / self.noise - np.einsum("ln,lnk->k", p * gain * along, frames)
            # sum_j p_j C_j^-1 = I / noise - U'U with the rows of U sqrt(p_j gain_jl) V_jl.
            U = (np.sqrt(p * gain)[:, :, None] * frames).reshape(-1, len(x))
            if len(U) < len(x):
                inner = np.eye(len(U)) - self.noise * (U @ U.T)
                return self.noise * (gradient + self.noise * U.T @ np.linalg.solve(inner, U @ gradient))
            return np.linalg.solve(np.eye(len(x)) / self.noise - U.T @ U, gradient)

        return _neighbor_steps(self, placed, X, step_of_row)

    def _draw(self, chosen: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
        if self._lower is not None:
            return robust_centre(self.centres) + self._in_z()._draw(chosen, rng) @ self._lower.T
        rows = self.centres[chosen] + np.sqrt(self.noise) * rng.standard_normal((len(chosen), self.n_features))
        for frame, variance in zip(self.frames, self.variances, strict=True):
            rows += (np.sqrt(variance[chosen]) * rng.standard_normal(len(chosen)))[:, None] * frame[chosen]
        return rows

    # -- marginals and conditionals --------------------------------------------------------------------------------

    def _marginal(self, kept: np.ndarray, names: np.ndarray | None) -> "FrameMixture":
        """Return the mixture of some features: a component keeps the rows of its frame that belong to the features.

        `_rebuilt` makes them orthonormal again.
        """
        if self._lower is None:
            return self._rebuilt(
                kept, names, lambda part, factors: (self.centres[part][:, kept], factors[:, :, kept]), 0.0
            )
        turned, _ = self._turned(kept)
        marginal = turned._marginal(np.arange(len(kept)), None)
        covariance = np.asarray(self.covariance)[np.ix_(kept, kept)]
        centres = self.centres[:, kept]
        return FrameMixture(
            centres, marginal.frames, marginal.variances, covariance, self.log_weights, self.engine, names
        )

    def _conditional(
        self, fixed: np.ndarray, values: np.ndarray, rest: np.ndarray, names: np.ndarray | None
    ) -> "FrameMixture":
        if self._lower is None:
            return self._conditional_in_z(fixed, values, rest, names)
        turned, lower = self._turned(fixed)
        k, origin = len(fixed), robust_centre(self.centres)
        given = solve_triangular(lower[:k, :k], values - origin[fixed], lower=True)
        part = turned._conditional_in_z(np.arange(k), given, np.arange(k, self.n_features), None)
        # `rest` is in increasing order, as the features after the first ones in `_turned` are.
        lower_of_rest = lower[k:, k:]
        centres = origin[rest] + lower[k:, :k] @ given + part.centres @ lower_of_rest.T
        covariance = lower_of_rest @ lower_of_rest.T
        covariance = 0.5 * (covariance + covariance.T)
        return FrameMixture(centres, part.frames, part.variances, covariance, part.log_weights, self.engine, names)

    def _conditional_in_z(
        self, fixed: np.ndarray, values: np.ndarray, rest: np.ndarray, names: np.ndarray | None
    ) -> "FrameMixture":
        """Return the conditional mixture: every component given the values has the same form.

        With ``F_j`` the rows ``sqrt(v_jl) V_jl`` a component is ``x = c_j + z F_j + noise``, z standard
        normal.  The most likely z given the values is ``z_j = M_j^-1 F_jB (b - c_jB) / sigma^2``, ``M_j = I
        + F_jB F_jB' / sigma^2``; the rest has mean ``c_jA + z_j F_jA`` and covariance ``sigma^2 I + F_jA'
        M_j^-1 F_jA``.
        """
        log_likelihoods = np.empty(len(self.centres))

        def condition(part: slice, factors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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

        return self._rebuilt(rest, names, condition, log_likelihoods)

    def _rebuilt(
        self,
        kept: np.ndarray,
        names: np.ndarray | None,
        change: Callable[[slice, np.ndarray], tuple[np.ndarray, np.ndarray]],
        log_likelihoods: np.ndarray | float,
    ) -> "FrameMixture":
        """Return the mixture on some features; ``change(part, factors)`` gives new centres and factors."""
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
        log_weights = self.log_weights + log_likelihoods
        return FrameMixture(centres, frames, variances, self.noise, log_weights, self.engine, names)


def frame_work(n_queries: int, shape: tuple[int, ...], n_tables: int = 1, passes: int = 1) -> Work:
    """Return the pair work of queries against frames of shape (d, n, D), with so many combinations of depth and noise.

    It is given in passes of plain distances with the same cost in NumPy: a product per direction with its arithmetic, and
    the exponentials of every combination.
    """
    d, n, n_features = shape
    numbers_per_pair = (d + 1) * n_features + 24 * d + 60 * n_tables  # in units of a coordinate
    return Work(n_queries, n, n_features, passes * math.ceil(numbers_per_pair / (n_features + 40)))


_NEGLIGIBLE = 1e-12  # smaller shares do not change a step noticeably


def _neighbor_steps(
    mixture: Mixture,
    placed: Placement,
    X: np.ndarray,
    step_of_row: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray],
) -> np.ndarray:
    """Return the step of each row of X from the components that have a share in it.

    Parameters
    ----------
    mixture : Mixture
    placed : Placement
        The placement of its components.
    X : float64 array of shape (m, D)
    step_of_row : callable
        ``step_of_row(near, p, x)`` returns the step of the row x from the components `near` with the shares p.
    """
    steps = np.zeros_like(X)
    threads = available_threads(as_engine(mixture.engine).threads)
    for query, point, shares in placed.neighbors_above(_NEGLIGIBLE, X):
        starts = np.flatnonzero(np.append(True, query[1:] != query[:-1]))
        ends = np.append(starts[1:], len(query))

        def work(
            part: slice, query: np.ndarray = query, point: np.ndarray = point, shares: np.ndarray = shares
        ) -> np.ndarray:
            return step_of_row(point[part], shares[part], X[query[part.start]])

        with one_blas_thread():
            steps[query[starts]] = list(in_order(work, map(slice, starts, ends), threads))
    return steps
