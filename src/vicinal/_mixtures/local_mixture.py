"""Gaussian mixtures in which every component has its own full covariance."""

import numpy as np

from vicinal._engine import Covariances, Engine, Placement, Work
from vicinal._mixtures.base import MixtureBase
from vicinal._mixtures.neighbor_steps import neighbor_steps


class LocalMixture(MixtureBase):
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

    def __init__(
        self,
        centres: np.ndarray,
        covariances: np.ndarray,
        log_weights: np.ndarray | None = None,
        engine: Engine | str | None = None,
        feature_names: np.ndarray | None = None,
    ) -> None:
        super().__init__(centres, log_weights, engine, feature_names)
        self.covariances = covariances

    @property
    def kernel_units(self) -> np.ndarray:
        r"""A with :math:`A'A = \sum_j w_j \Sigma_j^{-1}`, shape (d, d).

        The square of a distance is then the mean over the components of its squares in their own standard deviations,
        in which the narrow components count most.
        """
        roots = np.exp(0.5 * self.log_weights)[:, None, None] * inverse_roots(self.covariances)
        roots = roots.reshape(-1, self.n_features)
        return np.linalg.cholesky(roots.T @ roots).T

    def _kernel(self) -> Covariances:
        return Covariances(inverse_roots(self.covariances))

    def _work(self, n_queries: int, passes: int) -> Work:
        return covariance_work(n_queries, len(self.centres), self.n_features, passes)

    def mean_shift(self, X: np.ndarray, placed: Placement | None = None) -> np.ndarray:
        """Return the step of each row of X, shape (m, d)."""
        placed = self.placement(len(X)) if placed is None else placed
        assert isinstance(placed.kernel, Covariances)
        roots = placed.kernel.inverse_roots

        def step_of_row(near: np.ndarray, p: np.ndarray, x: np.ndarray) -> np.ndarray:
            # The step s minimises sum_j p_j |R_j (x + s - c_j)|^2, with R_j' R_j the inverse of each covariance.
            some = np.sqrt(p)[:, None, None] * roots[near]
            images = np.einsum("nkl,nl->nk", some, self.centres[near] - x).ravel()
            some = some.reshape(-1, len(x))
            return np.linalg.solve(some.T @ some, some.T @ images)

        return neighbor_steps(self, placed, X, step_of_row)

    def _draw(self, chosen: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
        noise = rng.standard_normal((len(chosen), self.n_features, 1))
        return self.centres[chosen] + (np.linalg.cholesky(self.covariances[chosen]) @ noise)[:, :, 0]

    def _marginal(self, kept: np.ndarray, names: np.ndarray | None) -> "LocalMixture":
        covariances = self.covariances[:, kept[:, None], kept]
        return LocalMixture(self.centres[:, kept], covariances, self.log_weights, self.engine, names)

    def _conditional(
        self, fixed: np.ndarray, values: np.ndarray, rest: np.ndarray, names: np.ndarray | None
    ) -> "LocalMixture":
        known = self.covariances[:, fixed[:, None], fixed]
        cross = self.covariances[:, rest[:, None], fixed]
        gain = np.linalg.solve(known, cross.transpose(0, 2, 1)).transpose(0, 2, 1)
        deviations = values - self.centres[:, fixed]
        roots = inverse_roots(known)
        images = (roots @ deviations[:, :, None])[:, :, 0]
        with np.errstate(over="ignore"):  # a component infinitely far from the values has weight 0
            log_weights = self.log_weights + log_dets(roots) - 0.5 * np.square(images).sum(axis=1)
        centres = self.centres[:, rest] + (gain @ deviations[:, :, None])[:, :, 0]
        covariances = self.covariances[:, rest[:, None], rest] - gain @ cross.transpose(0, 2, 1)
        covariances = 0.5 * (covariances + covariances.transpose(0, 2, 1))
        return LocalMixture(centres, covariances, log_weights, self.engine, names)


def inverse_roots(covariances: np.ndarray) -> np.ndarray:
    """Return lower triangular R_j with ``R_j' R_j`` the inverse of each covariance."""
    return np.linalg.inv(np.linalg.cholesky(covariances))


def log_dets(roots: np.ndarray) -> np.ndarray:
    """Return log|det R_j| of triangular matrices."""
    return np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1)


def covariance_work(n_queries: int, n_points: int, n_features: int, passes: int) -> Work:
    """Return the pair work if every point has a full covariance: a pair takes d^2 steps."""
    return Work(n_queries, n_points, n_features**2, passes)
