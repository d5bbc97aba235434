r"""Pruned work: sums over those pairs alone that can matter, with a certificate for what is skipped.

A row's sum ``Z_i = sum_j exp(s_ij)`` is summed over the pairs that are visited, and the certificate ``c_i`` bounds the
rest: ``Z_i - Z^_i <= c_i Z^_i``.  What else is asked for decides how pairs are weighed before they are skipped:

- ``power`` p: pairs at the distance u count ``max(1, u)^p`` times as much, for sums of differences (p = 1) and of their
  products (p = 2);
- values that lie far from the typical ones count as many times as much (`_plan.far_values`).
"""

from typing import Any, NamedTuple

import numpy as np

from vicinal._engine import _pruned_kernels as kernels
from vicinal._engine._accuracy import scatter_is_accurate
from vicinal._engine._plan import Hands, Masses, Tiles
from vicinal._engine._pool import in_order
from vicinal._engine._tuning import (
    HAND,
    PIECES,
    PRUNED_EXPONENTIAL,
    PRUNED_PAIR,
    PRUNED_SAVING,
    PRUNED_TILE,
    SAMPLED_HANDS,
)


class Shares(NamedTuple):
    """The share of all pairs whose distances were computed, and of those whose exponentials were."""

    visited: float
    taken: float


class PrunedSums(NamedTuple):
    """``log_sums`` (m,), ``means`` (m, v), ``entropies`` (m,) or empty, what the points of tiles received (n_tiles, u,
    TILE), and the certificate of each row (m,)."""

    log_sums: np.ndarray
    means: np.ndarray
    entropies: np.ndarray
    received: np.ndarray
    certificates: np.ndarray


class PrunedScatter(NamedTuple):
    """``log_sums`` (m,), ``scatter`` (v, v), and the certificate of each row (m,)."""

    log_sums: np.ndarray
    scatter: np.ndarray
    certificates: np.ndarray


class PrunedSweeps:
    """Sums over the pairs that matter.

    Parameters
    ----------
    tiles : Tiles
    error : float
        The largest certificate of a row, above 0.
    threads : int

    Attributes
    ----------
    certificate : float
        The largest of any row, in the last sweep.
    shares : Shares
        Of the last sweep.
    """

    def __init__(self, tiles: Tiles, error: float, threads: int):
        self.tiles, self._error, self._threads = tiles, error, threads
        self.certificate, self.shares = 0.0, Shares(1.0, 1.0)

    # -- sweeps ----------------------------------------------------------------------------------------------------

    def sums(
        self, hands: Hands, *, power: float = 0.0, values: np.ndarray | None = None, relative: bool = False,
        factors: np.ndarray | None = None, spread: np.ndarray | None = None, spread_images: bool = False,
        entropies: bool = False,
    ) -> PrunedSums:  # fmt: skip
        """Log-sums, and what else is asked for, in the order in which the queries were given.

        Parameters
        ----------
        values : array of shape (n, v), optional
            Of the points; their means are wanted.
        relative : bool
            Whether the means of ``z_j - q_i`` are wanted instead.
        factors : array of shape (m,), optional
            What the weights that are spread to the points are multiplied by.
        spread : array of shape (m, u), optional
        spread_images : bool
            Whether points shall receive ``q_i - c``, with c the centre of their tile, and 1.
        entropies : bool
            Whether the entropies of the softmax weights are wanted.
        """
        tiles, m = self.tiles, len(hands.images)
        masses = tiles.masses(values)
        nothing = np.empty((tiles.n, 0))
        packed = tiles.packed if relative else tiles.pack(nothing if values is None else values)
        given = np.empty((m, 0)) if spread is None else spread[hands.order]
        given = np.ascontiguousarray(given, dtype=tiles.dtype)
        width = tiles.k + 1 if spread_images else given.shape[1]
        f = np.ones(m) if factors is None else np.ascontiguousarray(factors[hands.order], dtype=np.float64)
        log_sums, lost, means = np.empty(m), np.zeros(m), np.empty((m, packed.shape[1]))
        found = np.empty(m if entropies else 0)

        def work(piece, columns, counts):
            kernels.hand_sums(
                *self._asked(hands, masses, power), packed, relative, given, spread_images, f, *piece,
                log_sums, lost, means, found, columns, counts,
            )  # fmt: skip

        received = self._run(hands, work, (width, PRUNED_TILE))
        self.certificate = float(lost.max(initial=0.0))
        found = hands.given(found) if entropies else found
        return PrunedSums(hands.given(log_sums), hands.given(means), found, received, hands.given(lost))

    def scatter(
        self, hands: Hands, row_weights: np.ndarray, values: tuple[np.ndarray, np.ndarray] | None = None
    ) -> PrunedScatter:
        """The scatter of the images, or of values of the points (n, v) and of the queries (m, v)."""
        found, size = self._scatter(hands, row_weights, values, direct=False)
        if scatter_is_accurate(found.scatter, size, self.tiles.dtype):
            return found
        return self._scatter(hands, row_weights, values, direct=True)[0]

    def _scatter(self, hands, row_weights, values, direct) -> tuple[PrunedScatter, float]:
        tiles, m = self.tiles, len(hands.images)
        if values is None:
            of_points, centres, of_queries = tiles.packed, tiles.centres, hands.images
        else:
            of_points, centres, of_queries = self._centred_values(values[0], values[1], hands)
        r = np.ascontiguousarray(row_weights[hands.order], dtype=np.float64)
        log_sums, lost = np.empty(m), np.zeros(m)
        v = of_points.shape[1]

        def work(piece, result, counts):
            scatter, size = np.zeros((v, v)), np.zeros(1)
            kernels.hand_scatter(
                *self._asked(hands, tiles.masses(), 2.0), of_points, centres, of_queries, r, direct, *piece,
                log_sums, lost, result, scatter, size, counts,
            )  # fmt: skip
            return scatter, size[0]

        pieces: list = []
        columns = self._run(hands, work, (PRUNED_TILE,), pieces)
        scatter = sum((part for part, _ in pieces), np.zeros((v, v)))
        scatter = scatter + np.tril(scatter, -1).T
        size = sum(part for _, part in pieces)
        for t in range(0, tiles.n_tiles, 64):
            some = slice(t, t + 64)
            y = of_points[some].transpose(0, 2, 1).reshape(-1, v).astype(np.float64)
            weights = columns[some].reshape(-1)
            scatter += (y * weights[:, None]).T @ y
            size += float(weights @ np.square(y).sum(axis=1))
        self.certificate = float(lost.max(initial=0.0))
        return PrunedScatter(hands.given(log_sums), 0.5 * (scatter + scatter.T), hands.given(lost)), size

    def _centred_values(self, of_points: np.ndarray, of_queries: np.ndarray, hands: Hands):
        """Values packed about the middle of each tile, those middles, and the values of the queries."""
        tiles = self.tiles
        packed = tiles.pack(of_points)
        counts = np.diff(tiles.starts)
        middles = (packed.sum(axis=2, dtype=np.float64) / counts[:, None]).astype(tiles.dtype)
        middles[tiles.wide] = 0
        packed -= middles[:, :, None]
        packed *= (np.arange(PRUNED_TILE) < counts[:, None])[:, None, :]  # what pads a tile stays zero
        return packed, middles, np.ascontiguousarray(of_queries[hands.order], dtype=tiles.dtype)

    def class_shares(self, hands: Hands, codes: np.ndarray, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
        """Log-sums (m,) and each class's share of the softmax weights (m, n_classes)."""
        tiles, m = self.tiles, len(hands.images)
        packed = np.zeros((tiles.n_tiles, PRUNED_TILE), dtype=np.int64)
        packed[tiles.tile_at, np.arange(tiles.n) - tiles.starts[tiles.tile_at]] = codes[tiles.order]
        log_sums, lost, shares = np.empty(m), np.zeros(m), np.empty((m, n_classes))

        def work(piece, _, counts):
            kernels.hand_shares(
                *self._asked(hands, tiles.masses(), 0.0), packed, *piece, log_sums, lost, shares, counts
            )

        self._run(hands, work, (0,))
        self.certificate = float(lost.max(initial=0.0))
        return hands.given(log_sums), hands.given(shares)

    def _asked(self, hands: Hands, masses: Masses, power: float) -> tuple[Any, ...]:
        """What every kernel takes: queries, points, boxes and the rule by which tiles are skipped."""
        tiles = self.tiles
        # Distances of boxes are rounded down by more than the distances of pairs are rounded up.
        shrink = 1.0 - (2 * tiles.k + 16) * float(np.finfo(tiles.dtype).eps)
        plan = (*tiles.boxes, tiles.heaviest, masses.of_tiles, shrink)
        rule = (float(self._error), power, masses.log_unit, masses.log_all, float(tiles.n))
        return *hands[:6], tiles.points, plan, masses.heavy, rule

    def _run(self, hands: Hands, work, shape, results: list | None = None) -> np.ndarray:
        """Run a kernel on pieces of the blocks; return the sum of what the points of each tile received.

        The pieces do not depend on the number of threads, and are added in order.
        """
        tiles, n_blocks = self.tiles, len(hands.blocks) - 1
        step = max(-(-n_blocks // PIECES), 1)
        pieces = [(first, min(first + step, n_blocks)) for first in range(0, n_blocks, step)]

        def one(piece):
            columns, counts = np.zeros((tiles.n_tiles, *shape)), np.zeros(2, dtype=np.int64)
            result = work(piece, columns, counts)
            return columns, counts, result

        total, counts = np.zeros((tiles.n_tiles, *shape)), np.zeros(2, dtype=np.int64)
        for columns, some, result in in_order(one, pieces, self._threads):
            total += columns
            counts += some
            if results is not None:
                results.append(result)
        pairs = max(float(len(hands.images)) * tiles.n, 1.0)
        self.shares = Shares(*(counts / pairs))
        return total

    # -- the gate --------------------------------------------------------------------------------------------------

    def expected_shares(self) -> Shares:
        """The shares of a sweep of all rows, counted on a sample of hands."""
        tiles = self.tiles
        step = max(tiles.n // (SAMPLED_HANDS * HAND), 1)
        places = (np.arange(0, max(tiles.n // HAND, 1), step) * HAND)[:, None] + np.arange(HAND)
        positions = tiles.order[places[places < tiles.n]]
        self.sums(tiles.some_rows(positions, positions, block=HAND), power=2.0)
        return self.shares

    def pays(self, shares: Shares) -> bool:
        """Whether pruned work with these shares is clearly less than a dense pass."""
        k = self.tiles.k
        cost = shares.visited * (k + PRUNED_PAIR) + shares.taken * (k + PRUNED_EXPONENTIAL)
        return cost <= PRUNED_SAVING * (1.5 * k + PRUNED_PAIR + PRUNED_EXPONENTIAL)
