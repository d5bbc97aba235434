"""X"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from vicinal._engine import Engine, as_engine, available_threads, prepare, robust_centre
from vicinal._scatter import local_frames


def nearest_neighbors(
    Z: np.ndarray,
    k: int,
    candidates: np.ndarray | None = None,
    *,
    engine: Engine | str | None = None,
) -> np.ndarray:
    """Return the k nearest rows of each row of Z except itself (by index), shape (n, k), nearest first.

    Rows at equal distance come in the order of their index, so the neighbours for a smaller k are the first of
    those for a larger one, and do not depend on how they were found.

    Parameters
    ----------
    Z : array of shape (n, p)
        Rows in coordinates in which the distance is Euclidean.
    k : int
    candidates : increasing integer array, optional
        Rows that may be neighbours; the default is all.
    engine : None, str or Engine
        Its precision is ignored: neighbours are decided in float64.
    """
    n = len(Z)
    Z = Z.astype(np.float64, copy=False)
    everyone = candidates is None or len(candidates) == n
    candidates = np.arange(n) if candidates is None or everyone else candidates
    own = np.full(n, -1)
    own[candidates] = np.arange(len(candidates))
    engine = replace(as_engine(engine), precision=None)
    problem = prepare(engine, Z if everyone else Z[candidates], n_queries=n, leave_one_out=everyone)
    # Departure 1 (ManifoldParzen): Exactly k neighbours count. Ties are in the order of the index.
    rows, left_out = (None, None) if everyone else (Z, own)
    return candidates[problem.at().nearest(k, rows, left_out).indices]


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
