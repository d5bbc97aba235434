"""Gaussian mixtures with a low-rank frame for each component.

Manifold Parzen Windows is such a mixture: it has at every training row a Gaussian that is wide along a few
directions.
"""

import math
from collections.abc import Callable

import numpy as np

from vicinal._engine import Engine, Frames, Placement, Work, as_engine
from vicinal._mixtures.base import MixtureBase
from vicinal._mixtures.neighbor_steps import neighbor_steps
from vicinal._scatter import leading_directions


class FrameMixture(MixtureBase):
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
    copy of the numbers in the layout that its kernels need (`placement`).
    """

    def __init__(
        self,
        centres: np.ndarray,
        frames: np.ndarray,
        variances: np.ndarray,
        noise: float,
        log_weights: np.ndarray | None = None,
        engine: Engine | str | None = None,
        feature_names: np.ndarray | None = None,
    ) -> None:
        super().__init__(centres, log_weights, engine, feature_names)
        self.frames = frames
        self.variances = variances
        self.noise = noise

    @property
    def kernel_units(self) -> np.ndarray:
        """The division by the standard deviation of the noise, the smallest of the kernels, as a vector (D,)."""
        return np.full(self.n_features, 1.0 / np.sqrt(self.noise))

    def _kernel(self) -> Frames:
        return Frames(self.frames, self.variances, self.noise)

    def _work(self, n_queries: int, passes: int) -> Work:
        return frame_work(n_queries, self.frames.shape, passes=passes)

    def mean_shift(self, X: np.ndarray, placed: Placement | None = None) -> np.ndarray:
        """Return the step of each row of X, shape (m, D)."""
        placed = self.placement(len(X)) if placed is None else placed
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

        return neighbor_steps(self, placed, X, step_of_row)

    def _draw(self, chosen: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
        rows = self.centres[chosen] + np.sqrt(self.noise) * rng.standard_normal((len(chosen), self.n_features))
        for frame, variance in zip(self.frames, self.variances, strict=True):
            rows += (np.sqrt(variance[chosen]) * rng.standard_normal(len(chosen)))[:, None] * frame[chosen]
        return rows

    def _marginal(self, kept: np.ndarray, names: np.ndarray | None) -> "FrameMixture":
        """Return the mixture of some features: a component keeps the rows of its frame that belong to the features.

        `_rebuilt` makes them orthonormal again.
        """
        return self._rebuilt(kept, names, lambda part, factors: (self.centres[part][:, kept], factors[:, :, kept]), 0.0)

    def _conditional(
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
