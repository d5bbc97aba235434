"""Sums of queries over all points, block by block.

A first visit of a strip of rows gives their sums.  A second one, which takes the exponentials that the first one kept, gives the points what
they receive from the rows.  Rows whose sums underflow under a common shift are repeated under their own maxima.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from vicinal._engine import tuning
from vicinal._engine.cpu import sweep_kernels as kernels
from vicinal._engine.cpu.pairs import CompiledPairs, unpack
from vicinal._engine.cpu.parts import ROWS, TILE
from vicinal._engine.cpu.sweeps import Mates, Strip, Sweep, Terms, class_factors, in_whole
from vicinal._engine.work.blocks import Blocks
from vicinal._engine.work.pool import one_blas_thread, summed
from vicinal._engine.work.sharing import Filled


class RowSums(NamedTuple):
    """``log_sums`` (m,), ``means`` (m, width), the sums of the rows but for the last one, relative to it, and what the points receive (n, u)."""

    log_sums: np.ndarray
    means: np.ndarray
    received: np.ndarray


class RowPull(NamedTuple):
    """``log_sums`` (m,), ``log_agreement`` (m,), the pull on the queries (m, k), and ``sum_i w_ij (q_i, 1)`` of the points (n, k + 1)."""

    log_sums: np.ndarray
    log_agreement: np.ndarray
    of_queries: np.ndarray
    received: np.ndarray


class Rows:
    """Sums of queries over all points.

    Parameters
    ----------
    pairs : CompiledPairs
    threads, memory : int
    n_values : int
        The number of columns that a pair multiplies, for the choice between fused kernels and matrix products.
    own_maxima : bool, optional
        Whether rows are shifted by their own maxima from the start; by default, if a sample of them underflows otherwise.
    """

    def __init__(
        self, pairs: CompiledPairs, threads: int, memory: int, n_values: int = 0, own_maxima: bool | None = None
    ) -> None:
        least = tuning.PRODUCTS_FROM if n_values else tuning.PRODUCTS_FROM_WITHOUT_VALUES
        by_products = pairs.accurate and pairs.k + n_values >= least[pairs.dtype]
        self._pairs, self._threads, self._memory, self._n_values = pairs, threads, memory, n_values
        self._sweep = Sweep(pairs, by_products, once=False)
        self._n_tiles = len(pairs.points.packed)
        self._every = slice(0, self._n_tiles)
        self._own_maxima = self._mostly_underflow() if own_maxima is None else own_maxima

    def _mostly_underflow(self) -> bool:
        """Return whether most of some rows underflow under their bounds; not counted if there are few rows."""
        pairs = self._pairs
        if pairs.m < tuning.SAMPLED_FROM_ROWS:
            return False
        sample = pairs.take(np.arange(0, pairs.m, pairs.m // ROWS))
        sweep = Sweep(sample, self._sweep.by_products and sample.accurate, once=False)
        nothing = np.empty((self._n_tiles, 0, TILE), dtype=pairs.dtype)
        totals = sweep.visit(Terms(kernels.means, 1), Strip(slice(0, sample.m)), self._every, nothing)
        return bool(np.median(totals) < pairs.smallest)

    def sums(self, terms: Terms, mates: Mates | None = None, received: np.ndarray | None = None) -> RowSums:
        """Return the sums of the rows and, given values of the rows (m, u), ``sum_i p_ij received_i`` for the points.

        `mates` are passed to the kernel as they are.
        """
        pairs, width = self._pairs, 0 if received is None else received.shape[1]
        log_sums, means = np.empty(pairs.m), np.empty((pairs.m, terms.width - 1))

        def work(block: slice) -> tuple[np.ndarray, ...]:
            columns = np.zeros((self._n_tiles, width, TILE), dtype=pairs.dtype)
            totals, bounds = np.empty(block.stop - block.start), pairs.bounds(block).copy()
            for strip in self._strips(block, width > 0):
                sums = self._sweep.visit(terms, strip._replace(mates=mates), self._every, columns[:, :0])
                shares, here = (
                    self._shares(sums[:, -1]),
                    slice(strip.rows.start - block.start, strip.rows.stop - block.start),
                )
                means[strip.rows], totals[here] = sums[:, :-1] * shares[:, None], sums[:, -1]
                if strip.bounds is not None:
                    bounds[here] = strip.bounds
                if received is not None:
                    self._give(strip, received[strip.rows] * shares[:, None], columns)
            log_sums[block] = self._log_sums(block, bounds, totals)
            if terms.kernel is kernels.logs:  # log p_ij instead of log K_ij
                means[block, -1] -= np.log(totals, out=np.zeros(len(totals)), where=totals > 0)
            return (columns.astype(np.float64, copy=False),)

        given = self._run(work, (log_sums, means), width)
        again = np.flatnonzero(np.isnan(log_sums))
        if len(again):
            more = self._again(again).sums(terms, mates, None if received is None else received[again])
            log_sums[again], means[again] = more.log_sums, more.means
            given += more.received
        return RowSums(log_sums, means, given)

    def pull(self, mates: Mates, row_weights: np.ndarray, likelihood: bool, least_agreement: float) -> RowPull:
        """Return the sums behind `Pull` for points sorted by class, the class mates of query i at ``mates[0][i]..mates[1][i]``."""
        pairs, k = self._pairs, self._pairs.k
        log_sums, log_agreement, of_queries = np.empty(pairs.m), np.empty(pairs.m), np.empty((pairs.m, k))
        ones = np.ones((self._n_tiles, TILE), dtype=pairs.dtype)
        zeros = np.zeros(self._n_tiles * TILE, dtype=pairs.dtype)

        def work(block: slice) -> tuple[np.ndarray, ...]:
            columns = np.zeros((self._n_tiles, k + 1, TILE), dtype=pairs.dtype)
            terms = Terms(kernels.pull, k + 1, pairs.points.packed, ones, (zeros, zeros))
            for strip in self._strips(block, keeps=True):
                rows = strip.rows
                strip = strip._replace(mates=(mates[0][rows], mates[1][rows]))
                matched, totals = self._sweep.visit(Terms(kernels.matches, 2), strip, self._every, columns[:, :0]).T
                inside, outside, log_agreement[rows] = class_factors(
                    matched, totals, row_weights[rows], likelihood, least_agreement, pairs.smallest
                )
                is_valid = self._shares(totals) > 0
                log_sums[rows] = self._log_sums(
                    rows, pairs.bounds(rows) if strip.bounds is None else strip.bounds, totals
                )
                queries = pairs.queries(rows)
                pulls = strip._replace(
                    given=kernels.EXPONENTIALS, values=_and_ones(queries),
                    factors=((inside * is_valid).astype(pairs.dtype), (outside * is_valid).astype(pairs.dtype)),
                )  # fmt: skip
                sums = self._sweep.visit(terms, pulls, self._every, columns)
                of_queries[rows] = sums[:, -1:] * queries - sums[:, :-1]
            return (columns.astype(np.float64, copy=False),)

        given = self._run(work, (log_sums, log_agreement, of_queries), k + 1)
        again = np.flatnonzero(np.isnan(log_sums))
        if len(again):
            theirs = mates[0][again], mates[1][again]
            more = self._again(again).pull(theirs, row_weights[again], likelihood, least_agreement)
            log_sums[again], log_agreement[again], of_queries[again] = more[:3]
            given += more.received
        return RowPull(log_sums, log_agreement, of_queries, given)

    # -- strips ------------------------------------------------------------------------------------------------------

    def _strips(self, block: slice, keeps: bool) -> Iterator[Strip]:
        """Yield the strips of a block, whose exponentials are kept if the points are to receive something."""
        keeps, size = keeps or self._own_maxima, self._pairs.dtype.itemsize * self._n_tiles * TILE
        height = whole = block.stop - block.start
        if self._sweep.by_products:
            height = min(tuning.PRODUCT_ROWS, self._memory // (4 * size) if keeps else whole)
        elif keeps:
            height = tuning.KEPT_BYTES // size
        height = in_whole(-(-whole // -(-whole // max(min(height, whole), 2 * ROWS))), ROWS)  # strips of even heights
        kept = self._sweep.buffer(height, self._n_tiles) if keeps else None
        for start in range(block.start, block.stop, height):
            rows = slice(start, min(start + height, block.stop))
            strip = Strip(rows, kept=kept)
            yield self._under_own_maxima(strip) if self._own_maxima else strip

    def _under_own_maxima(self, strip: Strip) -> Strip:
        nothing = np.empty((self._n_tiles, 0, TILE), dtype=self._pairs.dtype)
        peaks = self._sweep.visit(Terms(kernels.peaks, 1), strip, self._every, nothing, least=-np.inf)[:, 0]
        # A row without neighbours has no maximum.
        return strip._replace(bounds=np.where(peaks > -np.inf, peaks, 0.0), given=kernels.SCORES)

    def _give(self, strip: Strip, values: np.ndarray, columns: np.ndarray) -> None:
        """Add to the columns ``sum_i K_ij values_i``, for the exponentials that a strip keeps."""
        if values.shape[1] == 1:
            strip = strip._replace(given=kernels.EXPONENTIALS, weights=values[:, 0])
        else:
            strip = strip._replace(given=kernels.EXPONENTIALS, values=values.astype(self._pairs.dtype))
        self._sweep.visit(Terms(kernels.means, 1), strip, self._every, columns)

    def _shares(self, totals: np.ndarray) -> np.ndarray:
        """Return one over the totals of rows, 0 for those that are repeated and for rows without neighbours."""
        is_valid = totals > 0 if self._own_maxima else totals >= self._pairs.smallest
        return np.divide(1.0, totals, out=np.zeros(len(totals)), where=is_valid)

    def _log_sums(self, rows: slice, bounds: np.ndarray, totals: np.ndarray) -> np.ndarray:
        """Return the log-sums of rows, NaN for those that are repeated."""
        with np.errstate(divide="ignore"):
            log_sums = self._pairs.log_sums(bounds + np.log(totals), rows)
        return log_sums if self._own_maxima else np.where(totals < self._pairs.smallest, np.nan, log_sums)

    def _again(self, rows: np.ndarray) -> "Rows":
        return Rows(self._pairs.take(rows), self._threads, self._memory, self._n_values, own_maxima=True)

    def _run(
        self, work: Callable[[slice], tuple[np.ndarray, ...]], filled: tuple[np.ndarray, ...], width: int
    ) -> np.ndarray:
        """Run the work on all blocks, and return what the points receive, (n, width)."""
        pairs = self._pairs
        held = self._n_tiles * TILE * (width * 8 + 2 * ROWS * pairs.dtype.itemsize)
        threads = int(min(self._threads, max(self._memory // held - 1, 1)))
        with one_blas_thread():
            found = summed(work, list(blocks_of(pairs)), threads, Filled(filled, lambda rows: rows))
        return np.zeros((pairs.n, width)) if found is None else unpack(found[0], slice(0, pairs.n))


def blocks_of(pairs: CompiledPairs) -> Blocks:
    """Return blocks of queries: short enough to interrupt, but enough of them to keep the threads busy, and worth a call of the kernel."""
    shared = max(-(-pairs.m // tuning.LEAST_BLOCKS), tuning.LEAST_BLOCK_PAIRS // pairs.n)
    rows = min(tuning.COMPILED_BLOCK_PAIRS // pairs.n, shared)
    return Blocks(pairs.m, max(rows // (2 * ROWS), 1) * 2 * ROWS)


def _and_ones(rows: np.ndarray) -> np.ndarray:
    return np.hstack([rows, np.ones((len(rows), 1), dtype=rows.dtype)])
