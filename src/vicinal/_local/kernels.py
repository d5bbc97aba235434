r"""The kernels of Manifold Parzen Windows and of Local LCA: the vicinity of each row, its scatter, and the shared covariance.

With the shared covariance ``B = a Sigma_0 + s I`` and its lower triangular root L, everything happens in the coordinates
``z = L^-1 x``, in which B is the identity: neighbours are near there, and the scatter of a vicinity keeps its d leading
directions there. The kernel of row j is

    c_j = x_j, or the mean of its vicinity,        C_j = B + L F_j' F_j L',

where the rows of ``F_j`` are the directions, each as long as the standard deviation along it. Manifold Parzen Windows are the members
with ``a = 0`` and ``c_j = x_j``: B is the noise ``s I``, and z are the coordinates of the data, in their precision.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from vicinal._engine import Engine, Frames, as_engine, available_threads, prepare, robust_centre
from vicinal._mixtures import LOG_2PI, FrameMixture, SharedMixture, normalised_log_weights
from vicinal._rows import log_weights
from vicinal._scatter import local_frames


def nearest_neighbors(
    Z: np.ndarray,
    k: int,
    candidates: np.ndarray | None = None,
    *,
    queries: np.ndarray | None = None,
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
    queries : integer array, optional
        Rows whose neighbours are searched for; the default is all.
    engine : None, str or Engine
        Its precision is ignored: neighbours are decided in float64.
    """
    n = len(Z)
    Z = Z.astype(np.float64, copy=False)
    all_are_candidates = candidates is None or len(candidates) == n
    candidates = np.arange(n) if candidates is None or all_are_candidates else candidates
    place_of = np.full(n, -1)
    place_of[candidates] = np.arange(len(candidates))
    engine = replace(as_engine(engine), precision=None)
    rows, left_out = (Z, place_of) if queries is None else (Z[queries], place_of[queries])
    among_themselves = all_are_candidates and queries is None
    points = Z if all_are_candidates else Z[candidates]
    problem = prepare(engine, points, n_queries=len(rows), leave_one_out=among_themselves)
    # Departure 1 (ManifoldParzen): Exactly k neighbours count. Ties are in the order of the index.
    return candidates[problem.at().nearest(k, *((None, None) if among_themselves else (rows, left_out))).indices]


CENTERS = ("row", "mean")
# Comparing noises needs fewer digits than reporting a density; see `Frames`.
SLACK = {np.dtype(np.float64): 1e6, np.dtype(np.float32): 10.0}


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


NOISE = Shared(0.0, 1.0)  # the shape of Manifold Parzen's shared covariance


class Member(NamedTuple):
    """One member of the family: the shared covariance, the size of a vicinity, the number of directions, and the centre."""

    shared: float
    noise: float
    n_neighbors: int
    n_components: int
    center: str

    @property
    def shape(self) -> Shared:
        """The shared covariance."""
        return Shared(self.shared, self.noise)

    def among(self, n_rows: int) -> "Member":
        """Return the member for a number of rows, which may have too few neighbours for this one."""
        k = min(self.n_neighbors, n_rows - 1)
        return self._replace(n_neighbors=k, n_components=min(self.n_components, k))


class Table(NamedTuple):
    """Members with the same vicinities and, up to a factor, the same shared covariance; one sweep scores all of them."""

    shape: Shared
    factors: Sequence[float]
    n_neighbors: int
    depths: Sequence[int]
    center: str

    def members(self) -> list[list[Member]]:
        """Return the members by depth and factor."""
        shapes = [self.shape.times(factor) for factor in self.factors]
        return [[Member(*shape, self.n_neighbors, depth, self.center) for shape in shapes] for depth in self.depths]


class Kernels(NamedTuple):
    """The kernels in the coordinates z: centres (n, D), directions (d, n, D) and their variances (d, n) in addition to B."""

    centres: np.ndarray
    frames: np.ndarray
    variances: np.ndarray


class Coordinates:
    """The coordinates z of a shared covariance, relative to a point among some rows.

    Parameters
    ----------
    rows : array of shape (n, D)
    covariance : array of shape (D, D), or None for the identity: z are the rows themselves, in their precision
    """

    def __init__(self, rows: np.ndarray, covariance: np.ndarray | None) -> None:
        self.covariance, self.log_det = covariance, 0.0
        self.lower = None if covariance is None else np.linalg.cholesky(covariance)
        if self.lower is not None:
            self._origin = robust_centre(rows)
            self.log_det = float(np.log(np.diag(self.lower)).sum())
        self.of_rows = self.of(rows)

    def of(self, rows: np.ndarray) -> np.ndarray:
        """Return z of rows."""
        if self.lower is None:
            return rows
        return np.ascontiguousarray(solve_triangular(self.lower, (rows - self._origin).T, lower=True).T)

    def back(self, z: np.ndarray) -> np.ndarray:
        """Return the rows of z."""
        return z if self.lower is None else z @ self.lower.T + self._origin


class LocalKernels:
    """The kernels that rows make, for any member of the family, and the densities of these kernels.

    Parameters
    ----------
    rows : array of shape (n, D)
    weight : array of shape (n,), optional
        A row of weight 0 is a component of weight 0, and in no vicinity.
    sigma : callable or None
        Returns ``Sigma_0``; None if its weight is 0 in all members.
    engine : Engine
    places : array of shape (n, p), optional
        Rows in coordinates in which neighbours are near; by default those of the shared covariance.
    """

    def __init__(
        self,
        rows: np.ndarray,
        weight: np.ndarray | None,
        sigma: Callable[[], np.ndarray] | None,
        engine: Engine,
        places: np.ndarray | None = None,
    ) -> None:
        self.rows, self._weight, self._engine, self._places = rows, weight, engine, places
        self._sigma = None if sigma is None else cache(sigma)
        self._coordinates = cache(self._make_coordinates)
        self._near: dict[Shared, np.ndarray] = {}

    def _make_coordinates(self, shape: Shared) -> Coordinates:
        if shape == NOISE:
            return Coordinates(self.rows, None)
        sigma = np.eye(self.rows.shape[1]) if self._sigma is None or not shape.shared else self._sigma()
        return Coordinates(self.rows, shape.covariance(sigma))

    def neighbors(self, shape: Shared, k: int) -> np.ndarray:
        """Return the k nearest rows of each row; those of the largest k so far are cached, because they contain all smaller sets."""
        known = self._near.get(shape)
        if known is None or known.shape[1] < k:
            # Distances that are equal in the data stay equal where the identity alone is shared.
            places = self._coordinates(shape).of_rows if shape.shared else self.rows
            places = places if self._places is None else self._places
            counted = None if self._weight is None else np.flatnonzero(self._weight)
            known = self._near[shape] = nearest_neighbors(places, k, counted, engine=self._engine)
        return known[:, :k]

    def kernels(self, shape: Shared, k: int, depth: int, center: str) -> Kernels:
        """Return the kernels with at most `depth` directions, in O(n k D min(k, D)) time."""
        Z = self._coordinates(shape).of_rows
        if depth == 0:
            return Kernels(Z, np.empty((0, *Z.shape), dtype=Z.dtype), np.empty((0, len(Z))))
        members, centres = self.neighbors(shape, k), Z
        if center == "mean":
            members = np.hstack([np.arange(len(Z))[:, None], members])
            centres = vicinity_means(Z, members, self._weight)
        options = {"memory": self._engine.memory_bytes, "threads": available_threads(self._engine.threads)}
        return Kernels(centres, *local_frames(Z, members, depth, self._weight, about=centres, **options))

    def log_densities(self, test: np.ndarray, table: Table) -> np.ndarray:
        """Return log-densities of rows for all depths and all factors of a table, shape (depths, factors, rows)."""
        kernels = self.kernels(table.shape, table.n_neighbors, table.depths[-1], table.center)
        coordinates, slack = self._coordinates(table.shape), SLACK[kernels.centres.dtype]
        shares = normalised_log_weights(log_weights(self._weight), len(self.rows))
        problem = prepare(self._engine, kernels.centres, log_weights=shares)
        placed = problem.at(Frames(kernels.frames, kernels.variances, table.factors, table.depths, slack))
        sums = placed.log_sums_table(coordinates.of(test))
        return sums - coordinates.log_det - 0.5 * test.shape[1] * LOG_2PI

    def density(
        self, member: Member, engine: Engine | str | None, names: np.ndarray | None = None
    ) -> FrameMixture | SharedMixture:
        """Return the density of a member: a mixture in the coordinates of its shared covariance."""
        shape, options = member.shape, (log_weights(self._weight), engine, names)
        coordinates = self._coordinates(shape)
        covariance = coordinates.covariance
        assert covariance is not None
        if member.n_components == 0:
            return SharedMixture(self.rows, covariance, *options)
        kernels = self.kernels(shape, *member[2:])
        centres = coordinates.back(kernels.centres) if member.center == "mean" else self.rows
        return FrameMixture(centres, kernels.frames, kernels.variances, covariance, *options)


def vicinity_means(Z: np.ndarray, members: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """Return the (weighted) mean of the members of each vicinity, one member at a time: no array of shape (n, k, D) is
    held."""
    total, mass = np.zeros_like(Z), np.zeros((len(Z), 1))
    for column in members.T:
        shares = 1.0 if weight is None else weight[column, None]
        total += shares * Z[column]
        mass += shares
    return total / mass
