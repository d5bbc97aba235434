"""Log-sums of queries against points with one kernel each, block by block: over all points, or over the tiles that matter."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from vicinal._engine import tuning
from vicinal._engine.contract import Array
from vicinal._engine.frames.scores import Skips, empty_like
from vicinal._engine.settings import Engine
from vicinal._engine.work.blocks import Blocks
from vicinal._engine.work.pool import in_order
from vicinal._engine.work.sharing import NOTHING

if TYPE_CHECKING:
    from vicinal._engine.frames.boxes import KernelTiles

# A function that adds the points of some tiles, or all points (None), to the sums of a block of queries.
Add = Callable[[np.ndarray | None], None]
# ``adder(q, pairs, tops, totals)`` creates it for the rows q of a block and the pairs to leave out: `tops` and `totals`
# (e1, e2, R) are the largest scores so far and the sums relative to them, under each of e1 x e2 kernels of a point.
Adder = Callable[[Array, tuple[np.ndarray, np.ndarray] | None, Array, Array], Add]

_SAMPLED = 8  # queries of a sampled block


def may_skip(engine: Engine, rows: np.ndarray, n_queries: int) -> bool:
    """Return whether tiles of these points may be skipped for this many queries, on the compiled backend."""
    many = len(rows) >= tuning.PRUNED_FROM_POINTS and n_queries >= tuning.PRUNED_FROM_QUERIES
    return many and engine.error_in(rows.dtype) > 0.0


class KernelSums:
    """Log-sums of queries that all use the same method.

    Parameters
    ----------
    shape : (e1, e2)
        The numbers of kernels of a point.
    queries : array of shape (m, D)
    skips : Skips, optional
    adder : Adder
    """

    def __init__(self, shape: tuple[int, int], queries: Array, skips: Skips | None, adder: Adder) -> None:
        self._shape, self._queries, self._skips, self._adder = shape, queries, skips, adder

    def take(self, order: np.ndarray) -> "KernelSums":
        """Return the same for the queries in another order."""
        skips = None if self._skips is None else self._skips.take(order)
        return KernelSums(self._shape, self._queries[order], skips, self._adder)

    def over_points(self, tiles: "KernelTiles | None", n_rows: int, threads: int) -> tuple[np.ndarray, float]:
        """Log-sums, (e1, e2, m), and their certificate: over the tiles that matter, if these are given and few enough."""
        if tiles is not None:
            order = tiles.order_of(self._queries)
            ordered = self.take(order)
            if ordered.expected_share(tiles) <= tuning.KERNELS_VISITED:
                found, certificate = ordered.over_tiles(tiles, threads)
                answer = np.empty_like(found)
                answer[:, :, order] = found
                return answer, certificate
        return self.over_all(n_rows, threads), 0.0

    def over_all(self, n_rows: int, threads: int) -> np.ndarray:
        """Log-sums over all points, (e1, e2, m), in blocks of a given number of queries."""

        def work(block: slice) -> np.ndarray:
            add, tops, totals = self._begin(block)
            add(None)
            return _log_sums_of(tops, totals)

        parts = in_order(work, Blocks(len(self._queries), n_rows), threads, NOTHING)
        return np.concatenate(list(parts), axis=2)

    def over_tiles(self, tiles: "KernelTiles", threads: int) -> tuple[np.ndarray, float]:
        """Log-sums over the tiles that matter, and their certificate; queries of a block should be near each other."""
        blocks = Blocks(len(self._queries), tuning.KERNEL_BLOCK)
        found = list(in_order(lambda block: self._swept(tiles, block)[:2], blocks, threads, NOTHING))
        return np.concatenate([sums for sums, _ in found], axis=2), max(certificate for _, certificate in found)

    def expected_share(self, tiles: "KernelTiles") -> float:
        """Return the share of the tiles that `over_tiles` visits, counted on some queries of a sample of the blocks."""
        blocks = list(Blocks(len(self._queries), tuning.KERNEL_BLOCK))
        sampled = blocks[:: max(len(blocks) // tuning.SAMPLED_KERNEL_BLOCKS, 1)]
        visited = [self._swept(tiles, block, _SAMPLED)[2] for block in sampled]
        return sum(visited) / (tiles.n_tiles * len(sampled))

    def _swept(self, tiles: "KernelTiles", block: slice, most: int | None = None) -> tuple[np.ndarray, float, int]:
        """Log-sums of the first queries of a block, their certificate, and the number of tiles that the block visits."""
        last = block.stop if most is None else min(block.start + most, block.stop)
        add, tops, totals = self._begin(slice(block.start, last))

        def take(some: np.ndarray) -> np.ndarray:
            add(some)
            return _log_sums_of(tops, totals).min(axis=2).ravel()

        log_skipped, visited = tiles.sweep(self._queries[block], take)
        log_sums = _log_sums_of(tops, totals)
        return log_sums, tiles.certificate(log_skipped, log_sums.min(axis=2).ravel()), visited

    def _begin(self, block: slice) -> tuple[Add, Array, Array]:
        """Return a function that adds points to the sums of a block of queries, with the initial state of the sums."""
        q = self._queries[block]
        tops, totals = (empty_like((*self._shape, len(q)), q, float64=True) for _ in range(2))
        tops[...], totals[...] = -math.inf, 0.0
        return self._adder(q, None if self._skips is None else self._skips.block(block), tops, totals), tops, totals


def _log_sums_of(tops: Array, totals: Array) -> np.ndarray:
    """Log-sums as NumPy, from their maxima and the sums relative to them; -inf for a query without neighbours."""
    tops, totals = (np.asarray(a.cpu() if hasattr(a, "cpu") else a) for a in (tops, totals))
    with np.errstate(divide="ignore"):
        return np.where(tops == -np.inf, 0.0, tops) + np.log(totals)
