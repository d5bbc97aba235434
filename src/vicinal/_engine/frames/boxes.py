"""Points with one kernel each, in tiles of a spatial order, and which tiles some queries must visit.

The score of a pair falls at least as fast as along the widest direction of the point's kernel: with v_j the largest variance of
C_j in any direction and ``h_j = log w_j - log det C_j / 2``, ``s_ij <= h_j - |q_i - x_j|^2 / (2 v_j)``.  For a tile t of
points whose box is at the distance D of a box around some queries,

    sum_{j in t} exp(s_ij) <= exp(H_t - D^2 / (2 V_t))    with    H_t = log sum_j exp(h_j)    and    V_t = max_j v_j

for each of these queries.  Tiles are visited in the order of that bound, until the remaining ones add up to no more than the error times
the smallest sum so far of any of the queries.  Sums only grow, so this certifies them.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import logsumexp

from vicinal._engine import tuning
from vicinal._engine.plan.order import spatial_order

# Bounds are raised by this share, because orthonormal frames, variances and distances of boxes are subject to rounding.
_SLACK = 1e-4
# The factor by which the certificate is raised, for the rounding of sums.
_RAISED = 1.03

# A function that adds the points of some tiles to the sums of queries and returns the log of the smallest sum so far, (e,).
Take = Callable[[np.ndarray], np.ndarray]
Kernels = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


class KernelTiles:
    """Tiles of points with one kernel each, or with e kernels each.

    Parameters
    ----------
    rows : array of shape (n, D), contiguous
    kernels : callable
        ``log_heights, variances = kernels(positions)``, each (e, len(positions)): ``log w_j - log det C_j / 2`` of some
        points, up to a constant that all points share, and the largest variance of each kernel in any direction.
    error : float
        The largest certificate, above 0.
    threads : int

    Attributes
    ----------
    order : integer array of shape (n,)
        The original position of the point at each place of the order; tile t holds the places from ``t KERNEL_TILE`` on.
    """

    def __init__(self, rows: np.ndarray, kernels: Kernels, error: float, threads: int) -> None:
        self._error, self._threads = error / _RAISED, threads
        self.order = spatial_order(rows, np.array([0, len(rows)]), threads)
        self.n_tiles = -(-len(rows) // tuning.KERNEL_TILE)
        parts = [
            self._extremes(rows, kernels, self.order[start : start + tuning.ALGEBRA_ROWS])
            for start in range(0, len(rows), tuning.ALGEBRA_ROWS)
        ]
        self._low, self._high = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
        self._highest, self._log_masses, self._falls = (
            np.concatenate([part[k] for part in parts], axis=1) for k in (2, 3, 4)
        )

    @staticmethod
    def _extremes(rows: np.ndarray, kernels: Kernels, positions: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the boxes, the largest and the summed heights, and the least decrease of scores, of the tiles of some positions."""
        starts, some = np.arange(0, len(positions), tuning.KERNEL_TILE), rows[positions].astype(np.float64)
        log_heights, variances = kernels(positions)
        return (
            np.minimum.reduceat(some, starts, axis=0),
            np.maximum.reduceat(some, starts, axis=0),
            np.maximum.reduceat(log_heights, starts, axis=1),
            np.logaddexp.reduceat(log_heights, starts, axis=1),
            (0.5 - _SLACK) / np.maximum.reduceat(variances, starts, axis=1),
        )

    def positions(self, tiles: np.ndarray) -> np.ndarray:
        """Return the positions of the points of some tiles."""
        places = (tiles[:, None] * tuning.KERNEL_TILE + np.arange(tuning.KERNEL_TILE)).ravel()
        return self.order[places[places < len(self.order)]]

    def order_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the positions of query rows in an order in which those of a block are near each other."""
        return spatial_order(np.ascontiguousarray(rows), np.array([0, len(rows)]), self._threads)

    def sweep(self, rows: np.ndarray, take: Take) -> tuple[np.ndarray, int]:
        """Pass tiles to `take` until the others cannot matter to any of the query rows.

        Return the log of what these others could add to the sum of any of them, shape (e,), and the number of tiles passed.
        """
        bounds = self._bounds(rows, self._log_masses)
        rest, count, visited = np.flatnonzero((bounds > -np.inf).any(axis=0)), tuning.FIRST_KERNEL_TILES, 0
        needed = np.argsort(_shares(bounds[:, rest], bounds.max(axis=1)), kind="stable")
        while len(needed):
            chosen = needed[-count:]
            least = take(rest[np.sort(chosen)])
            visited += len(chosen)
            rest, count = np.delete(rest, chosen), count * tuning.MORE_KERNEL_TILES
            needed = self._needed(bounds[:, rest], least)
        log_skipped = np.asarray(logsumexp(bounds[:, rest], axis=1)) if len(rest) else np.full(len(bounds), -np.inf)
        return log_skipped, visited

    def _needed(self, bounds: np.ndarray, least: np.ndarray) -> np.ndarray:
        """Return the tiles that cannot be skipped given the log-sums `least`, those with the smallest bounds first."""
        shares = _shares(bounds, least)
        # Most tiles are so far away that half of the error is enough for all of them.
        near = np.flatnonzero(shares > np.log(0.5 * self._error / self.n_tiles))
        near = near[np.argsort(shares[near], kind="stable")]
        with np.errstate(under="ignore"):
            added = np.cumsum(np.exp(np.minimum(shares[near], 1.0)))
        return near[np.searchsorted(added, 0.5 * self._error, side="right") :]

    def reached(self, rows: np.ndarray, floor: float) -> np.ndarray:
        """Return the tiles in which a score of any of the query rows may reach the floor; of one kernel."""
        return np.flatnonzero(self._bounds(rows, self._highest)[0] >= floor)

    def _bounds(self, rows: np.ndarray, log_heights: np.ndarray) -> np.ndarray:
        """``log_heights - D^2 / (2 V)`` for each tile, (e, n_tiles), with D the distance of its box to that of the rows."""
        low, high = rows.min(axis=0).astype(np.float64), rows.max(axis=0).astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            gaps = np.maximum(np.maximum(self._low - high, low - self._high), 0.0)
            return log_heights - self._falls * np.einsum("tk,tk->t", gaps, gaps)

    @staticmethod
    def certificate(log_skipped: np.ndarray, least: np.ndarray) -> float:
        """Return the skipped sum relative to the smallest sum of any query; both are given by their logs (e,)."""
        some = log_skipped > -np.inf
        with np.errstate(under="ignore"):
            return float(_RAISED * np.exp(log_skipped[some] - least[some]).max(initial=0.0))


def _shares(bounds: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Return the log of the largest share that each tile may have in any of the sums, (n_tiles,), given their logs (e,)."""
    with np.errstate(invalid="ignore"):  # for a row without neighbours so far, every tile matters
        return np.where(bounds > -np.inf, bounds - least[:, None], -np.inf).max(axis=0)
