"""Sums of points against themselves: ``K_ij = exp(-|z_i - z_j|^2 / 2)`` is symmetric, so half of the pairs are enough.

With point weights b, the sums of a row are ``Z = K b``, one half sweep.  For the weights ``W_ij = r_i b_j K_ij / Z_i``
of a softmax with row weights r,

    W + W' = b_i b_j K_ij (f_i + f_j)    with    f = r / (b Z),

so a second half sweep gives ``(W + W') V``.  A scatter is ``V' diag(m) V - V' (W + W') V`` with ``m = (W + W') 1``, and
needs that product only for the rows of each pair, not for its columns: ``n^2`` exponentials and ``1.5 n^2 k``
multiply-adds in total.  Between two sweeps, exponentials that were computed by matrix products are kept if they fit into
the memory.

Rows are shifted by the largest score that they could have, less what typical rows leave unused (`CompiledPairs.raise_scores`).
A row without any near neighbour underflows under that shift. It is returned as underflowed, and the caller computes it again
with its own maximum.
"""

from typing import NamedTuple

import numpy as np

from vicinal._engine import tuning
from vicinal._engine.cpu import sweep_kernels as kernels
from vicinal._engine.cpu.pairs import CompiledPairs, unpack
from vicinal._engine.cpu.parts import TILE
from vicinal._engine.cpu.sweeps import Factors, Mates, Strip, Sweep, Terms, class_factors
from vicinal._engine.work.blocks import Blocks
from vicinal._engine.work.pool import in_order, summed
from vicinal._engine.work.sharing import NOTHING


class OnceMeans(NamedTuple):
    """``log_sums`` (n,), ``means`` (n, v), and the rows that underflowed."""

    log_sums: np.ndarray
    means: np.ndarray
    underflowed: np.ndarray


class OnceScatter(NamedTuple):
    """``log_sums`` (n,), ``scatter`` (v, v), its trace before it cancels, the ``means`` (n, u), and the rows that underflowed."""

    log_sums: np.ndarray
    scatter: np.ndarray
    size: float
    means: np.ndarray
    underflowed: np.ndarray


class OncePull(NamedTuple):
    """``log_sums`` (n,), ``log_agreement`` (n,), ``pull`` (n, k), and the rows that underflowed."""

    log_sums: np.ndarray
    log_agreement: np.ndarray
    pull: np.ndarray
    underflowed: np.ndarray


class _Piece(NamedTuple):
    """A strip of rows and some tiles of points."""

    strip: slice
    tiles: slice


class _Sums(NamedTuple):
    """What a piece gives to its rows (m, width), and to the points of its tiles (n_tiles, width, TILE): their last columns."""

    of_rows: np.ndarray
    of_columns: np.ndarray


class Once:
    """Half sweeps over points without weights in their kernel; weights b multiply the values instead.

    Parameters
    ----------
    pairs : CompiledPairs
        The pairs of points against themselves, without log-weights.
    weights : float64 array of shape (n,), optional
        The weights b; all positive, the largest is 1.
    threads, memory : int
    n_values : int
        The number of columns of the widest values, for the choice between fused kernels and matrix products.
    level : float
        The logarithm of the weight that was divided out of all weights.
    """

    def __init__(
        self, pairs: CompiledPairs, weights: np.ndarray | None, threads: int, memory: int, n_values: int = 0,
        level: float = 0.0,
    ) -> None:  # fmt: skip
        by_products = pairs.accurate and pairs.k + n_values >= tuning.HALF_PRODUCTS_FROM[pairs.dtype]
        self._pairs, self._level, self._threads, self._memory = pairs, level, threads, memory
        self._sweep = Sweep(pairs, by_products, once=True)
        self._b = np.ones(pairs.n) if weights is None else weights
        padded = np.zeros(len(pairs.points.packed) * TILE, dtype=pairs.dtype)
        padded[: pairs.n] = self._b
        self._tiles_of_b = padded.reshape(-1, TILE)
        # Without weights, the kernels sum exponentials as they make them.
        self._weights = None if weights is None else self._tiles_of_b
        # The tiles of the first of two sweeps, for the second to take, where they fit into half of the memory.
        size = pairs.n * pairs.n * pairs.dtype.itemsize // 2
        costly = size <= tuning.CACHED_BYTES or pairs.k >= tuning.COSTLY_COORDINATES
        self._keeps = by_products and costly and size <= memory // 2
        self._kept: dict[tuple[int, int, int], np.ndarray] = {}

    # -- the sums ----------------------------------------------------------------------------------------------------

    def means(self, packed_values: np.ndarray) -> OnceMeans:
        """Return the softmax means of values in tiles, (n_tiles, v, TILE)."""
        totals, means, underflowed = self._totals_and_means(packed_values)
        return OnceMeans(self._log_sums(totals), means, underflowed)

    def scatter(self, packed_values: np.ndarray, row_weights: np.ndarray, means_of: np.ndarray) -> OnceScatter:
        """Return the scatter of values in tiles, (n_tiles, v, TILE), under the softmax weights, and the means of others, (n_tiles, u, TILE)."""
        n, b, v = self._pairs.n, self._b, packed_values.shape[1]
        totals, means, underflowed = self._totals_and_means(means_of, keep=True)
        factors = row_weights / (b * totals)
        factors[underflowed] = 0.0
        values, padded = self._weighted(packed_values), self._padded(factors)
        terms = Terms(kernels.scatter, v + 1, values, self._weights, (padded, padded))
        cross, mass = self._visit_and_multiply(terms, values, (padded, padded))
        mass = b * mass
        own, size = np.zeros_like(cross), 0.0
        for rows in Blocks(n, tuning.PRODUCT_BLOCK):
            block = unpack(packed_values, rows).astype(np.float64, copy=False)
            heavy = block * mass[rows, None]
            own += heavy.T @ block
            size += float(np.vdot(heavy, block))
        scatter = own - cross - cross.T
        return OnceScatter(self._log_sums(totals), 0.5 * (scatter + scatter.T), size, means, underflowed)

    def squares(self) -> OnceMeans:
        """Return the softmax means of squared distances, (n, 1), by one sweep."""
        pairs = self._pairs
        logs, totals = self._visit_all(Terms(kernels.logs, 2, None, self._tiles_of_b), 2).T
        totals, underflowed = self._checked(totals)
        # K is the exponential of minus half a square, less what the row was shifted by.
        squares = -2.0 * pairs.log_sums(pairs.bounds() + logs / totals)
        return OnceMeans(self._log_sums(totals), np.maximum(squares, 0.0)[:, None], underflowed)

    def softmax_pull(self, factors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``sum_i (w_ij + w_ji)(z_j - z_i)`` for ``w_ij = factors_i p_ij``, (n, k), and the rows that underflowed."""
        totals, underflowed = self._totals(keep=True)
        f = factors / (self._b * totals)
        f[underflowed] = 0.0
        nobody = np.zeros(self._pairs.n, dtype=np.int64)
        return self._pull((nobody, nobody), f, f), underflowed

    def class_pull(self, mates: Mates, row_weights: np.ndarray, likelihood: bool, least_agreement: float) -> OncePull:
        """`Pull` for points sorted by class, the mates of row i at ``mates[0][i]..mates[1][i]``; no weights."""
        pairs = self._pairs
        matched, totals = self._visit_all(Terms(kernels.matches, 2), 2, mates=mates, keep=True).T
        inside, outside, log_agreement = class_factors(
            matched, totals, row_weights, likelihood, least_agreement, pairs.smallest
        )
        totals, underflowed = self._checked(totals)
        underflowed = np.union1d(underflowed, np.flatnonzero(np.isnan(log_agreement)))
        inside[underflowed], outside[underflowed] = 0.0, 0.0
        return OncePull(self._log_sums(totals), log_agreement, self._pull(mates, inside, outside), underflowed)

    def _totals_and_means(
        self, packed_values: np.ndarray, keep: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Z (1 where it underflowed), the softmax means of values in tiles, and the rows where Z underflowed."""
        v = packed_values.shape[1]
        if v == 0:
            totals, underflowed = self._totals(keep)
            return totals, np.empty((self._pairs.n, 0)), underflowed
        weighted = self._weighted(packed_values)
        sums = self._visit_all(Terms(kernels.means, v + 1, weighted, self._weights), v + 1, weighted, keep=keep)
        totals, underflowed = self._checked(sums[:, -1])
        return totals, sums[:, :-1] / totals[:, None], underflowed

    def _totals(self, keep: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Z (1 where it underflowed), and the rows where it did."""
        return self._checked(self._visit_and_multiply(Terms(kernels.means, 1, None, self._weights), keep=keep)[1])

    def _checked(self, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        totals = sums.copy()
        underflowed = np.flatnonzero(totals < self._pairs.smallest)
        totals[underflowed] = 1.0
        return totals, underflowed

    def _log_sums(self, totals: np.ndarray) -> np.ndarray:
        return self._pairs.log_sums(self._pairs.bounds() + np.log(totals)) + self._level

    def _pull(self, mates: Mates, inside: np.ndarray, outside: np.ndarray) -> np.ndarray:
        """``M 1 z - M Z`` for ``M_ij = K_ij (g_i + g_j)``, weighted by b on both sides."""
        pairs, factors = self._pairs, (self._padded(inside), self._padded(outside))
        values = self._weighted(pairs.points.packed)
        terms = Terms(kernels.pull, pairs.k + 1, values, self._tiles_of_b, factors)
        sums = self._visit_all(terms, pairs.k + 1, values, mates, factors)
        for rows in Blocks(pairs.n, tuning.PRODUCT_BLOCK):
            pulled = sums[rows, -1:] * pairs.points.rows(rows) - sums[rows, :-1]
            sums[rows, :-1] = self._b[rows, None] * pulled
        return sums[:, :-1]

    def _weighted(self, packed_values: np.ndarray) -> np.ndarray:
        return packed_values if self._weights is None else packed_values * self._tiles_of_b[:, None]

    def _padded(self, factors: np.ndarray) -> np.ndarray:
        return np.pad(factors.astype(self._pairs.dtype), (0, -len(factors) % TILE))

    # -- sweeps ------------------------------------------------------------------------------------------------------

    def _visit_all(
        self, terms: Terms, column_width: int, values: np.ndarray | None = None, mates: Mates | None = None,
        factors: Factors | None = None, keep: bool = False,
    ) -> np.ndarray:  # fmt: skip
        """Return the sums of all points, (n, width): what the rows gather, and what the points receive, of `values` in tiles."""
        sums = np.zeros((self._pairs.n, terms.width))

        def work(piece: _Piece) -> _Sums:
            return self._visit(piece, terms, column_width, values, mates, factors, keep)

        pieces = [piece for strip in self._strips(column_width) for piece in strip]
        threads = self._threads_for(terms.width, column_width)
        for piece, found in zip(pieces, in_order(work, pieces, threads, NOTHING), strict=True):
            self._add(piece, found, sums)
        return sums

    def _visit_and_multiply(
        self, terms: Terms, values: np.ndarray | None = None, factors: Factors | None = None, keep: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """``V' G`` for the sums G of the rows over `values` V in tiles, and the last column of the sums of all points.

        No array of the values' size is held.  Those of strips of rows are added in a tree, so that a worker returns them once.
        """
        n, strips = self._pairs.n, self._strips(1)
        none = np.empty((len(self._pairs.points.packed), 0, TILE), dtype=self._pairs.dtype)

        def work(strip: list[_Piece]) -> tuple[np.ndarray, ...]:
            last, rows = np.zeros((n, 1)), strip[0].strip
            gathered = np.zeros((rows.stop - rows.start, terms.width - 1))
            for piece in strip:
                found = self._visit(piece, terms, 1, None, None, factors, keep)
                self._add(piece, found, last)
                gathered += found.of_rows[:, :-1]
            theirs = unpack(none if values is None else values, rows).astype(np.float64, copy=False)
            return last, theirs.T @ gathered

        costs = np.linspace(n, 0.0, len(strips), endpoint=False) * (n / len(strips))  # each strip begins later
        found = summed(work, strips, self._threads_for(terms.width, 1), NOTHING, costs)
        assert found is not None
        return found[1], found[0][:, 0]

    def _strips(self, column_width: int) -> list[list[_Piece]]:
        """Return the pieces of each strip of rows: large ones, but enough of them for the threads."""
        n, n_tiles = self._pairs.n, len(self._pairs.points.packed)
        height, width = min(max(n_tiles // 8, 1), tuning.STRIP_TILES), self._column_tiles(column_width)
        return [
            [
                _Piece(slice(first * TILE, min((first + height) * TILE, n)), slice(tile, min(tile + width, n_tiles)))
                for tile in range(first, n_tiles, width)
            ]
            for first in range(0, n_tiles, height)
        ]

    def _visit(
        self, piece: _Piece, terms: Terms, column_width: int, values: np.ndarray | None, mates: Mates | None,
        factors: Factors | None, keep: bool,
    ) -> _Sums:  # fmt: skip
        rows, n_tiles = piece.strip, piece.tiles.stop - piece.tiles.start
        of_columns = np.zeros((n_tiles, column_width, TILE), dtype=self._pairs.dtype)
        strip = Strip(rows, weights=self._b[rows])
        if values is not None:
            strip = strip._replace(values=np.hstack([unpack(values, rows), unpack(self._tiles_of_b[:, None], rows)]))
        if mates is not None:
            strip = strip._replace(mates=(mates[0][rows], mates[1][rows]))
        if factors is not None:
            strip = strip._replace(factors=(factors[0][rows], factors[1][rows]))
        key = rows.start, piece.tiles.start, piece.tiles.stop
        kept = self._kept.pop(key, None)
        if kept is not None:
            strip = strip._replace(kept=kept, given=kernels.EXPONENTIALS)
        elif keep and self._keeps:
            self._kept[key] = self._sweep.buffer(strip.height, n_tiles)
            strip = strip._replace(kept=self._kept[key])
        return _Sums(self._sweep.visit(terms, strip, piece.tiles, of_columns), of_columns)

    def _add(self, piece: _Piece, found: _Sums, sums: np.ndarray) -> None:
        """Add what a piece gives to its rows, and to the points of its tiles, to the last columns of the sums (n, width)."""
        (n, width), (of_rows, of_columns) = sums.shape, found
        sums[piece.strip] += of_rows[:, of_rows.shape[1] - width :]
        places = slice(piece.tiles.start * TILE, min(piece.tiles.stop * TILE, n))
        received = of_columns.transpose(0, 2, 1).reshape(len(of_columns) * TILE, of_columns.shape[1])
        sums[places, width - received.shape[1] :] += received[: places.stop - places.start]

    def _column_tiles(self, column_width: int) -> int:
        """Tiles of points in a piece: what they receive must fit the memory several times."""
        size = TILE * column_width * 8
        return int(max(min(tuning.COLUMN_TILES, self._memory // (8 * size)), 1))

    def _threads_for(self, row_width: int, column_width: int) -> int:
        """Threads such that the sums of their pieces fit the memory."""
        size = 8 * TILE * (row_width + self._column_tiles(column_width) * column_width)
        return int(min(self._threads, max(self._memory // size - 1, 1)))
