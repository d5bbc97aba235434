"""The kernels of Local LCA: the vicinity of each row, its scatter, and the shared covariance.

With the shared covariance ``B = a Sigma_0 + s I`` and its lower triangular root L, everything happens in the coordinates
``z = L^-1 x``, in which B is the identity: neighbours are near there, and the scatter of a vicinity keeps its d leading
directions there. The kernel of row j is

    c_j = x_j, or the mean of its vicinity,        C_j = B + L F_j' F_j L',

where the rows of ``F_j`` are the directions, each as long as the standard deviation along it.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from vicinal._density.neighbors import nearest_neighbors
from vicinal._engine import Engine, available_threads, robust_centre
from vicinal._scatter import local_frames

CENTERS = ("row", "mean")


class Shared(NamedTuple):
    """The covariance that all kernels share: ``a Sigma_0 + s I``."""

    shared: float  # a
    noise: float  # s

    def covariance(self, sigma: np.ndarray) -> np.ndarray:
        """Return B."""
        return self.shared * sigma + self.noise * np.eye(len(sigma))

    def times(self, factor: float) -> "Shared":
        """Return the covariance multiplied by a factor."""
        return Shared(factor * self.shared, factor * self.noise)


class Kernels(NamedTuple):
    """The kernels in the coordinates z: centres (n, D), directions (d, n, D) and their variances (d, n) in addition to B."""

    centres: np.ndarray
    frames: np.ndarray
    variances: np.ndarray

    @classmethod
    def at_rows(cls, Z: np.ndarray) -> "Kernels":
        """Return kernels without directions."""
        return cls(Z, np.empty((0, *Z.shape)), np.empty((0, len(Z))))


class Coordinates:
    """The coordinates z of a shared covariance, relative to a point among some rows.

    Parameters
    ----------
    rows : array of shape (n, D)
    covariance : array of shape (D, D)
    """

    def __init__(self, rows: np.ndarray, covariance: np.ndarray) -> None:
        self.lower = np.linalg.cholesky(covariance)
        self._origin = robust_centre(rows)
        self.log_det = float(np.log(np.diag(self.lower)).sum())

    def of(self, rows: np.ndarray) -> np.ndarray:
        """Return z of rows."""
        return np.ascontiguousarray(solve_triangular(self.lower, (rows - self._origin).T, lower=True).T)

    def back(self, z: np.ndarray) -> np.ndarray:
        """Return the rows of z."""
        return z @ self.lower.T + self._origin


def find_neighbors(Z: np.ndarray, k: int, weight: np.ndarray | None, engine: Engine) -> np.ndarray:
    """Return the k nearest rows of positive weight of each row of Z, itself excluded, shape (n, k)."""
    return nearest_neighbors(Z, k, None if weight is None else np.flatnonzero(weight), engine=engine)


def make_kernels(
    Z: np.ndarray, members: np.ndarray, depth: int, weight: np.ndarray | None, center: str, engine: Engine
) -> Kernels:
    """Return the kernels with at most `depth` directions, in O(n k D min(k, D)) time.

    Parameters
    ----------
    Z : array of shape (n, D)
    members : integer array of shape (n, k)
        The vicinity of each row.
    depth : int
        At least 1, and at most min(k, D).
    weight : array of shape (n,), optional
    center : {"row", "mean"}
        "mean" is the mean of the row and its neighbours, about which the scatter is taken as well.
    engine : Engine
        The engine, whose memory and threads are used.
    """
    options = {"memory": engine.memory_bytes, "threads": available_threads(engine.threads)}
    centres = Z
    if center == "mean":
        members = np.hstack([np.arange(len(Z))[:, None], members])
        centres = vicinity_means(Z, members, weight)
    return Kernels(centres, *local_frames(Z, members, depth, weight, about=centres, **options))


def vicinity_means(Z: np.ndarray, members: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """Return the (weighted) mean of the members of each vicinity, one member at a time: no array of shape (n, k, D) is
    held."""
    total, mass = np.zeros_like(Z), np.zeros((len(Z), 1))
    for column in members.T:
        shares = 1.0 if weight is None else weight[column, None]
        total += shares * Z[column]
        mass += shares
    return total / mass
