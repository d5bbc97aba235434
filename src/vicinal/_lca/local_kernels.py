"""The kernels of Local LCA: the vicinity of each row, the scatter of that vicinity, and what all rows share.

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
# Of so many times k rows that are near in the shared metric, the k nearest in a row's own metric are its vicinity.
_CANDIDATES = 2


class Shared(NamedTuple):
    """What all kernels share: ``a Sigma_0 + s I``."""

    shared: float  # a
    noise: float  # s

    def covariance(self, sigma: np.ndarray) -> np.ndarray:
        """Return B."""
        return self.shared * sigma + self.noise * np.eye(len(sigma))

    def times(self, factor: float) -> "Shared":
        """Return the same shape, so many times as large."""
        return Shared(factor * self.shared, factor * self.noise)


class Kernels(NamedTuple):
    """The kernels in the coordinates z: centres (n, D), directions (d, n, D) and variances (d, n) beyond B."""

    centres: np.ndarray
    frames: np.ndarray
    variances: np.ndarray


class Coordinates:
    """The coordinates z of a shared covariance, about a point amid some rows.

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
    """The k nearest rows of positive weight of each row of Z, itself excluded, shape (n, k)."""
    return nearest_neighbors(Z, k, None if weight is None else np.flatnonzero(weight), engine=engine)


def make_kernels(
    Z: np.ndarray, neighbors: np.ndarray, depth: int, weight: np.ndarray | None, center: str, engine: Engine
) -> Kernels:
    """The kernels with at most `depth` directions, in O(n k D min(k, D)) time.

    Parameters
    ----------
    Z : array of shape (n, D)
    neighbors : integer array of shape (n, k)
    depth : int
        At most min(k, D). Without directions the centres are the rows.
    weight : array of shape (n,), optional
    center : {"row", "mean"}
        "mean" is the mean of the row and its neighbours, about which the scatter is taken, too.
    engine : Engine
        For its memory and threads.
    """
    if depth == 0:
        return Kernels(Z, np.empty((0, *Z.shape)), np.empty((0, len(Z))))
    options = {"memory": engine.memory_bytes, "threads": available_threads(engine.threads)}
    centres = Z
    if center == "mean":
        neighbors = np.hstack([np.arange(len(Z))[:, None], neighbors])
        centres = vicinity_means(Z, neighbors, weight)
    return Kernels(centres, *local_frames(Z, neighbors, depth, weight, about=centres, **options))


def vicinity_means(Z: np.ndarray, members: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """The (weighted) mean of the members of each vicinity, one member at a time: no array of shape (n, k, D) is held."""
    total = np.zeros_like(Z)
    weights = np.ones(len(Z)) if weight is None else weight
    for column in members.T:
        total += weights[column, None] * Z[column]
    return total / weights[members].sum(axis=1, keepdims=True)


def adapted_neighbors(Z: np.ndarray, kernels: Kernels, candidates: np.ndarray, k: int, noise: float) -> np.ndarray:
    """The k nearest of the candidates of each row in the row's own metric, nearest first; k is at most their number.

    Parameters
    ----------
    Z : array of shape (n, D)
    kernels : Kernels
    candidates : integer array of shape (n, m)
    k : int
    noise : float
        What the shared covariance is in the coordinates of Z, times the identity.
    """
    found = np.empty((len(Z), k), dtype=np.int64)
    batch = max(2**21 // (candidates.shape[1] * Z.shape[1]), 1)
    gains = 1.0 / noise - 1.0 / (noise + kernels.variances)
    for start in range(0, len(Z), batch):
        part = slice(start, start + batch)
        near = candidates[part]
        differences = Z[near] - Z[part, None, :]
        squares = np.square(differences).sum(axis=2) / noise
        along = differences @ kernels.frames[:, part].transpose(1, 2, 0)
        squares -= np.einsum("nml,ln->nm", np.square(along), gains[:, part])
        some = np.argpartition(squares, k - 1, axis=1)[:, :k]
        order = np.argsort(np.take_along_axis(squares, some, axis=1), axis=1, kind="stable")
        found[part] = np.take_along_axis(near, np.take_along_axis(some, order, axis=1), axis=1)
    return found


def count_candidates(k: int, n_rows: int) -> int:
    """How many near rows are looked at for a vicinity of k rows in a row's own metric."""
    return min(_CANDIDATES * k, n_rows - 1)
