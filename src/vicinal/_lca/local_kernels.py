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
VICINITIES = ("nearest", "kernel")
# A soft vicinity of k effective rows lies within this many times k nearest rows.
_REACH = 3
_MOST_STEPS = 100  # the maximum number of steps of the search for a width; a dozen is usual
# The vicinity of a row consists of the k nearest rows in its own metric, among this many times k in the shared metric.
_CANDIDATES = 2


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


class Vicinities(NamedTuple):
    """The vicinities: the near rows of each row (n, m), nearest first, and their weights (n, m); None means equal weights."""

    rows: np.ndarray
    shares: np.ndarray | None = None


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


def count_members(k: int, vicinity: str, n_rows: int) -> int:
    """Return how many rows a vicinity of size k has, given the number of all rows."""
    return k if vicinity == "nearest" else min(_REACH * k, n_rows - 1)


def make_vicinities(rows: np.ndarray, squares: np.ndarray | None, k: int) -> Vicinities:
    """Return the vicinities of the size k among near rows, shape (n, m), nearest first.

    Parameters
    ----------
    rows : integer array of shape (n, m)
    squares : array of shape (n, m), optional
        Their squared distances, from which soft vicinities are made. None gives the first k rows equal weights.
    k : int
    """
    return Vicinities(rows[:, :k]) if squares is None else Vicinities(rows, soft_shares(squares, k))


def soft_shares(squares: np.ndarray, k: int) -> np.ndarray:
    r"""Return Gaussian weights of neighbours with perplexity k, relative to the weight of the nearest one.

    Row i has the weights :math:`u_j = \exp(-(q_j - q_1) / 2 h_i^2)` of squared distances q, with the width :math:`h_i` at
    which the entropy of :math:`u / \sum u` is log k: k equal weights have that entropy. If more than k rows are as near as
    the nearest one, these have all the weight.

    Parameters
    ----------
    squares : array of shape (n, m)
        The squared distances, nearest first; m is at least k.
    k : int
    """
    gaps = squares - squares[:, :1]
    if k >= gaps.shape[1]:
        return np.ones_like(gaps)
    if k == 1:
        return (gaps == 0).astype(np.float64)
    gaps /= np.maximum(gaps.mean(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    target, log_beta = np.log(k), np.zeros(len(gaps))
    low, high = np.full(len(gaps), -50.0), np.full(len(gaps), 50.0)
    for _ in range(_MOST_STEPS):  # Newton's method on the logarithm of the precision, between bounds
        beta = np.exp(log_beta)
        shares = np.exp(-beta[:, None] * gaps)
        totals = shares.sum(axis=1)
        means = (shares * gaps).sum(axis=1) / totals
        variances = (shares * np.square(gaps)).sum(axis=1) / totals - np.square(means)
        excess = np.log(totals) + beta * means - target
        low, high = np.where(excess > 0, log_beta, low), np.where(excess > 0, high, log_beta)
        if np.all((np.abs(excess) < 1e-12) | (high - low < 1e-14)):
            break
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            trial = log_beta + excess / (np.square(beta) * variances)
        log_beta = np.where((trial > low) & (trial < high), trial, 0.5 * (low + high))
    return shares


def squared_distances(Z: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the squared distances of each row from its near ones, shape (n, m); no array of shape (n, m, D) is held."""
    return np.stack([np.square(Z[column] - Z).sum(axis=1) for column in rows.T], axis=1)


def make_kernels(
    Z: np.ndarray, vicinities: Vicinities, depth: int, weight: np.ndarray | None, center: str, engine: Engine
) -> Kernels:
    """Return the kernels with at most `depth` directions, in O(n m D min(m, D)) time.

    Parameters
    ----------
    Z : array of shape (n, D)
    vicinities : Vicinities
        Vicinities of m rows each.
    depth : int
        At least 1, and at most min(m, D).
    weight : array of shape (n,), optional
    center : {"row", "mean"}
        "mean" is the mean of the row and its neighbours, about which the scatter is taken as well. In a soft vicinity the row
        counts as much as its nearest neighbour.
    engine : Engine
        The engine, whose memory and threads are used.
    """
    options = {"memory": engine.memory_bytes, "threads": available_threads(engine.threads)}
    (members, shares), centres = vicinities, Z
    if center == "mean":
        members = np.hstack([np.arange(len(Z))[:, None], members])
        shares = None if shares is None else np.hstack([np.ones((len(Z), 1)), shares])
    if shares is not None:
        weight = shares if weight is None else shares * weight[members]
    if center == "mean":
        centres = vicinity_means(Z, members, weight)
    return Kernels(centres, *local_frames(Z, members, depth, weight, about=centres, **options))


def vicinity_means(Z: np.ndarray, members: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """Return the (weighted) mean of the members of each vicinity, one member at a time: no array of shape (n, m, D) is
    held."""
    total, mass = np.zeros_like(Z), np.zeros((len(Z), 1))
    for m, column in enumerate(members.T):
        own = 1.0 if weight is None else (weight[column] if weight.ndim == 1 else weight[:, m])[:, None]
        total += own * Z[column]
        mass += own
    return total / mass


def adapted_neighbors(
    Z: np.ndarray, kernels: Kernels, candidates: np.ndarray, k: int, noise: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the k nearest of the candidates of each row in the row's own metric, nearest first, and their squared distances.

    Parameters
    ----------
    Z : array of shape (n, D)
    kernels : Kernels
    candidates : integer array of shape (n, m)
    k : int
        At most m.
    noise : float
        The shared covariance in the coordinates of Z, as a multiple of the identity.
    """
    found, distances = np.empty((len(Z), k), dtype=np.int64), np.empty((len(Z), k))
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
        some = np.take_along_axis(some, order, axis=1)
        found[part], distances[part] = (np.take_along_axis(values, some, axis=1) for values in (near, squares))
    return found, distances


def count_candidates(k: int, n_rows: int) -> int:
    """Return how many near rows are considered for a vicinity of k rows in a row's own metric."""
    return min(_CANDIDATES * k, n_rows - 1)
