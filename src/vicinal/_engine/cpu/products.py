"""Blocks of queries against tiles of points by matrix products, with compiled passes between them."""

import numpy as np

from vicinal._engine.cpu import product_kernels as kernels
from vicinal._engine.cpu.pairs import CompiledPairs
from vicinal._engine.cpu.parts import TILE
from vicinal._engine.work.blocks import Blocks
from vicinal._engine.work.pool import in_order, one_blas_thread, summed
from vicinal._engine.work.sharing import Filled


def softmax_by_products(
    pairs: CompiledPairs,
    packed_values: np.ndarray,
    row_weights: np.ndarray | None,
    blocks: Blocks,
    threads: int,
    means: np.ndarray,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return log-sums and, given row weights, what each point receives; the means of the values are written to `means`."""
    log_sums, n_values = np.empty(pairs.m), packed_values.shape[1]

    def work(rows: slice) -> tuple[np.ndarray, ...]:
        block = _ProductBlock(pairs, rows, keep=row_weights is not None)
        sums = np.zeros((block.n_rows, n_values))
        for t in range(len(block.tiles)):
            weights = block.exponentials(t)
            if n_values:
                sums *= block.rescale[:, None]
                sums += weights @ packed_values[t, :, : weights.shape[1]].T
        log_sums[rows] = block.log_sums()
        means[rows, :n_values] = sums * block.inverse_totals[:, None]
        if row_weights is None:
            return ()
        columns = np.empty(pairs.n)
        for t, tile in enumerate(block.tiles):
            factors = row_weights[rows] * block.back(t) * block.inverse_totals
            columns[tile] = factors.astype(pairs.dtype) @ block.kept(t)
        return (columns,)

    with one_blas_thread():
        found = summed(work, list(blocks), threads, Filled((log_sums, means), lambda rows: rows))
    received = found[0] if found else None if row_weights is None else np.zeros(pairs.n)
    return pairs.log_sums(log_sums), received


def signed_by_products(
    pairs: CompiledPairs,
    mates: tuple[np.ndarray, np.ndarray],
    row_weights: np.ndarray,
    likelihood: bool,
    least_agreement: float,
    blocks: Blocks,
    threads: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the sums behind `Pull`: log-sums, log-agreement, the pull on the queries, and what points gather.

    The points gather ``sum_i w_ij q_i`` and, in a last column, ``sum_i w_ij``.
    """
    log_sums, log_agreement = np.empty(pairs.m), np.empty(pairs.m)
    of_queries = np.empty((pairs.m, pairs.k))

    def work(rows: slice) -> np.ndarray:
        block = _ProductBlock(pairs, rows, keep=True)
        mates_from, mates_to = mates[0][rows], mates[1][rows]
        matched = np.zeros(block.n_rows)
        for t, tile in enumerate(block.tiles):
            weights = block.exponentials(t)
            matched *= block.rescale
            kernels.add_matched(weights, mates_from, mates_to, tile.start, matched)
        log_sums[rows] = block.log_sums()
        inside, outside = np.empty(block.n_rows), np.empty(block.n_rows)
        queries = block.queries
        kernels.class_factors(
            queries, likelihood, matched, block.total, row_weights[rows], least_agreement, pairs.smallest,
            inside, outside, log_agreement[rows],
        )  # fmt: skip
        queries_and_one = np.hstack([queries, np.ones((block.n_rows, 1), dtype=pairs.dtype)])
        sums = np.zeros((block.n_rows, pairs.k + 1))
        gathered = np.empty((pairs.n, pairs.k + 1), dtype=pairs.dtype)
        for t, tile in enumerate(block.tiles):
            back, weights = block.back(t), block.kept(t)
            kernels.scale_sides(weights, mates_from, mates_to, inside * back, outside * back, tile.start)
            sums[:, :-1] += weights @ pairs.points.packed[t, :, : weights.shape[1]].T
            sums[:, -1] += weights.sum(axis=1)
            np.matmul(weights.T, queries_and_one, out=gathered[tile])
        of_queries[rows] = sums[:, -1:] * queries - sums[:, :-1]
        return gathered

    total = np.zeros((pairs.n, pairs.k + 1))
    with one_blas_thread():
        for gathered in in_order(work, blocks, threads):
            total += gathered
    return pairs.log_sums(log_sums), log_agreement, of_queries, total


class _ProductBlock:
    """A block of queries against tiles of points; `keep` holds the exponentials of all tiles."""

    def __init__(self, pairs: CompiledPairs, rows: slice, keep: bool) -> None:
        self.pairs, self.rows = pairs, rows
        self.n_rows = rows.stop - rows.start
        self.queries = pairs.queries(rows)
        self.tiles = list(Blocks(pairs.n, TILE))
        held = pairs.n if keep else min(TILE, pairs.n)
        self._buffer = np.empty(self.n_rows * held, dtype=pairs.dtype)
        self._keep = keep
        self.top = np.full(self.n_rows, -np.inf)
        self.total = np.zeros(self.n_rows)
        self.rescale = np.ones(self.n_rows)
        self.shifts = np.empty((len(self.tiles), self.n_rows))

    def kept(self, t: int) -> np.ndarray:
        """Return the (rows, tile) exponentials of tile t, each scaled by its row's top at the time (`shifts`)."""
        tile = self.tiles[t]
        start = self.n_rows * tile.start if self._keep else 0
        return self._buffer[start : start + self.n_rows * (tile.stop - tile.start)].reshape(self.n_rows, -1)

    def back(self, t: int) -> np.ndarray:
        """Return the factor that converts kept exponentials of tile t to the last top of each row."""
        return np.exp(self.shifts[t] - np.where(self.top > -np.inf, self.top, 0.0))

    def log_sums(self) -> np.ndarray:
        """Return the log-sums so far; -inf for a row without neighbours."""
        with np.errstate(divide="ignore"):
            return self.top + np.log(self.total)

    @property
    def inverse_totals(self) -> np.ndarray:
        """One over the sums; 0 for a row without neighbours, all of whose exponentials are 0."""
        return np.divide(1.0, self.total, out=np.zeros(self.n_rows), where=self.total > 0)

    def exponentials(self, t: int) -> np.ndarray:
        """Compute the exponentials of tile t, and add them to the log-sum-exp state of each row."""
        pairs, tile = self.pairs, self.tiles[t]
        weights = self.kept(t)
        np.matmul(self.queries, pairs.points.packed[t, :, : weights.shape[1]], out=weights)
        kernels.exponentials_of_products(
            weights, pairs.offsets[t, : weights.shape[1]], pairs.left_out[self.rows], tile.start,
            self.top, self.total, self.rescale, self.shifts[t],
        )  # fmt: skip
        return weights
