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

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from vicinal._engine import _half_kernels as kernels
from vicinal._engine import _product_kernels as product_kernels
from vicinal._engine._blocks import Blocks
from vicinal._engine._kernels import TILE
from vicinal._engine._pairs import CompiledPairs, unpack
from vicinal._engine._pool import in_order, summed
from vicinal._engine._sharing import NOTHING
from vicinal._engine._tuning import (
    CACHED_BYTES,
    COLUMN_TILES,
    COSTLY_COORDINATES,
    HALF_PRODUCT_ROWS,
    HALF_PRODUCTS_FROM,
    PRODUCT_BLOCK,
)

Mates = tuple[np.ndarray, np.ndarray]  # where the class mates of each row begin and end
# Rows and what a piece of work adds to them (m, row_width), and, from some tile on, what it adds to the points of tiles
# (n_tiles, column_width, TILE), which is added to the last columns of their sums.
_Piece = tuple[slice, np.ndarray, int, np.ndarray]


class _Run(NamedTuple):
    """Pieces of work, by strips of rows, and the number of threads that may compute them at a time."""

    work: Callable[[Any], _Piece]
    strips: list[list[Any]]
    threads: int

    def pieces(self) -> Iterator[_Piece]:
        """Yield the results of the pieces, in their order."""
        return in_order(self.work, [piece for strip in self.strips for piece in strip], self.threads, NOTHING)


class HalfSums(NamedTuple):
    """``log_sums`` (n,), ``sums`` (n, v + 1) = K V / Z with a last column of ones, and the rows that underflowed."""

    log_sums: np.ndarray
    sums: np.ndarray
    underflowed: np.ndarray


class HalfScatter(NamedTuple):
    """``log_sums`` (n,), ``scatter`` (v, v), its trace before it cancels, and the rows that underflowed."""

    log_sums: np.ndarray
    scatter: np.ndarray
    size: float
    underflowed: np.ndarray


class HalfPull(NamedTuple):
    """``log_sums`` (n,), ``log_agreement`` (n,), ``pull`` (n, k), and the rows that underflowed."""

    log_sums: np.ndarray
    log_agreement: np.ndarray
    pull: np.ndarray
    underflowed: np.ndarray


class _Values:
    """Values of the points in the form that half sweeps need: multiplied by the weights b, which are their last column.

    Parameters
    ----------
    packed : array of shape (n_tiles, v, TILE)
    weights : float64 array of shape (n,), optional
    n : int
    """

    def __init__(self, packed: np.ndarray, weights: np.ndarray | None, n: int) -> None:
        self.weights = np.zeros(len(packed) * TILE, dtype=packed.dtype)
        self.weights[:n] = 1.0 if weights is None else weights
        self.in_tiles = self.weights.reshape(-1, TILE)
        self.packed = packed if weights is None else packed * self.in_tiles[:, None]
        self.width = packed.shape[1] + 1
        # Kernels that need no weights take an empty array, and sum exponentials as they compute them.
        self.in_tiles_or_none = self.in_tiles[:0] if weights is None else self.in_tiles

    def rows(self, part: slice) -> np.ndarray:
        """Return the values of consecutive points and their weight, shape (m, v + 1), contiguous."""
        return np.hstack([unpack(self.packed, part), self.weights[part, None]])

    def products(self, rows: slice, sums: np.ndarray) -> np.ndarray:
        """``V' sums`` for the sums (m, v) of some rows, in float64."""
        return unpack(self.packed, rows).T.astype(np.float64, copy=False) @ sums


class HalfSweeps:
    """Half sweeps over points without weights in their kernel; weights b multiply the values instead.

    Parameters
    ----------
    pairs : CompiledPairs
        The pairs of points against themselves, without log-weights.
    weights : float64 array of shape (n,), optional
        The weights b; all positive.
    threads, memory : int
    n_values : int
        The number of columns of the widest values, for the choice between fused kernels and matrix products.
    """

    def __init__(
        self, pairs: CompiledPairs, weights: np.ndarray | None, threads: int, memory: int, n_values: int = 0
    ) -> None:
        self._pairs, self._weights = pairs, weights
        by_products = pairs.accurate and pairs.k + n_values >= HALF_PRODUCTS_FROM[pairs.dtype]
        self._sweep = (_ProductSweep if by_products else _FusedSweep)(pairs, threads, memory)

    def sums(self, packed_values: np.ndarray) -> HalfSums:
        """Return the softmax means of values in tiles, (n_tiles, v, TILE)."""
        totals, underflowed, sums = self._totals(packed_values)
        sums[:, :-1] /= totals[:, None]
        sums[:, -1] = 1.0
        return HalfSums(self._log_sums(totals), sums, underflowed)

    def scatter(self, packed_values: np.ndarray, row_weights: np.ndarray) -> HalfScatter:
        """Return the scatter of values in tiles, (n_tiles, v, TILE), under the softmax weights."""
        n, b = self._pairs.n, self._column_weights()
        totals, underflowed, _ = self._totals(packed_values[:, :0], keep=True)
        factors = row_weights / (b * totals)
        factors[underflowed] = 0.0
        values = _Values(packed_values, self._weights, n)
        cross, mass = self._sweep.scatter(values, factors.astype(self._pairs.dtype))
        mass = b * mass
        own, size = np.zeros_like(cross), 0.0
        for rows in Blocks(n, PRODUCT_BLOCK):
            some = unpack(packed_values, rows).astype(np.float64, copy=False)
            heavy = some * mass[rows, None]
            own += heavy.T @ some
            size += float(np.vdot(heavy, some))
        scatter = own - cross - cross.T
        return HalfScatter(self._log_sums(totals), 0.5 * (scatter + scatter.T), size, underflowed)

    def softmax_pull(self, factors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``sum_i (w_ij + w_ji)(z_j - z_i)`` for ``w_ij = factors_i p_ij``, (n, k), and the rows that underflowed."""
        pairs = self._pairs
        totals, underflowed, _ = self._totals(pairs.points.packed[:, :0], keep=True)
        f = factors / (self._column_weights() * totals)
        f[underflowed] = 0.0
        nobody = np.zeros(pairs.n, dtype=np.int64)
        return self._pull((nobody, nobody), f, f), underflowed

    def class_pull(self, mates: Mates, row_weights: np.ndarray, likelihood: bool, least_agreement: float) -> HalfPull:
        """`_contract.Pull` for points sorted by class, the mates of row i at ``mates[0][i]..mates[1][i]``; no weights."""
        pairs = self._pairs
        totals, matched = (np.ascontiguousarray(column) for column in self._sweep.matches(mates).T)
        inside, outside, log_agreement = np.empty(pairs.n), np.empty(pairs.n), np.empty(pairs.n)
        product_kernels.class_factors(
            pairs.queries(slice(0, 1)), likelihood, matched, totals, row_weights, least_agreement, pairs.smallest,
            inside, outside, log_agreement,
        )  # fmt: skip
        underflowed = np.flatnonzero((totals < pairs.smallest) | np.isnan(log_agreement))
        inside[underflowed], outside[underflowed], totals[underflowed] = 0.0, 0.0, 1.0
        return HalfPull(self._log_sums(totals), log_agreement, self._pull(mates, inside, outside), underflowed)

    def _column_weights(self) -> np.ndarray:
        return np.ones(self._pairs.n) if self._weights is None else self._weights

    def _totals(self, packed_values: np.ndarray, keep: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Z (1 where it underflowed), the rows where it did, and all sums, whose last column is Z."""
        sums = self._sweep.sums(_Values(packed_values, self._weights, self._pairs.n), keep=keep)
        totals = sums[:, -1].copy()
        heaviest = 1.0 if self._weights is None else float(self._weights.max())
        underflowed = np.flatnonzero(totals < self._pairs.smallest * heaviest)
        totals[underflowed] = 1.0
        return totals, underflowed, sums

    def _log_sums(self, totals: np.ndarray) -> np.ndarray:
        return self._pairs.log_sums(self._pairs.bounds() + np.log(totals))

    def _pull(self, mates: Mates, inside: np.ndarray, outside: np.ndarray) -> np.ndarray:
        """``M 1 z - M Z`` for ``M_ij = K_ij (g_i + g_j)``, weighted by b on both sides."""
        pairs, b = self._pairs, self._column_weights()
        values = _Values(pairs.points.packed, self._weights, pairs.n)
        sums = self._sweep.pull(values, mates, inside.astype(pairs.dtype), outside.astype(pairs.dtype))
        for rows in Blocks(pairs.n, PRODUCT_BLOCK):
            pulled = sums[rows, -1:] * pairs.points.rows(rows) - sums[rows, :-1]
            sums[rows, :-1] = pulled if self._weights is None else b[rows, None] * pulled
        return sums[:, :-1]


def _add_up(piece: _Piece, sums: np.ndarray) -> None:
    """Add the results of a piece for rows, and for the rows of tiles, to the last columns of the sums (n, width)."""
    (n, width), (rows, of_rows, first, of_columns) = sums.shape, piece
    sums[rows] += of_rows[:, of_rows.shape[1] - width :]
    places = slice(first * TILE, min((first + len(of_columns)) * TILE, n))
    given = of_columns.transpose(0, 2, 1).reshape(len(of_columns) * TILE, of_columns.shape[1])
    sums[places, width - given.shape[1] :] += given[: places.stop - places.start]


class _Sweep:
    """The common part of both methods: pieces of work, and one array to which their sums are added."""

    def __init__(self, pairs: CompiledPairs, threads: int, memory: int) -> None:
        self._pairs, self._threads, self._memory = pairs, threads, memory

    def _column_tiles(self, column_width: int) -> int:
        """The number of tiles of points in a piece: what they receive must fit into the memory several times."""
        size = TILE * column_width * 8
        return int(max(min(COLUMN_TILES, self._memory // (8 * size)), 1))

    def _sums(self, run: _Run, width: int) -> np.ndarray:
        """Return the sums of all pieces, (n, width)."""
        sums = np.zeros((self._pairs.n, width))
        for piece in run.pieces():
            _add_up(piece, sums)
        return sums

    def _products(self, run: _Run, values: "_Values") -> tuple[np.ndarray, np.ndarray]:
        """``V' G`` for the sums G of the rows, and the last column of the sums: no array of the values' size is held.

        The results of strips of rows are added in a tree, so that a worker returns them once.
        """
        n = self._pairs.n

        def strip_sums(strip: list[Any]) -> tuple[np.ndarray, ...]:
            last, found = np.zeros((n, 1)), run.work(strip[0])
            _add_up(found, last)
            rows, gathered = found[:2]
            for piece in strip[1:]:
                found = run.work(piece)
                _add_up(found, last)
                gathered += found[1]
            return last, values.products(rows, gathered[:, :-1])

        costs = np.linspace(n, 0.0, len(run.strips), endpoint=False) * (n / len(run.strips))  # each strip begins later
        found = summed(strip_sums, run.strips, run.threads, NOTHING, costs)
        assert found is not None
        return found[1], found[0][:, 0]

    def _threads_for(self, row_width: int, column_width: int) -> int:
        """The number of threads for which the sums of their pieces fit into the memory."""
        size = 8 * TILE * (row_width + self._column_tiles(column_width) * column_width)
        return int(min(self._threads, max(self._memory // size - 1, 1)))


class _FusedSweep(_Sweep):
    """Half sweeps by the fused kernels, for few coordinates."""

    def sums(self, values: _Values, keep: bool = False) -> np.ndarray:
        """``K V``, (n, v + 1); nothing is kept."""
        width = values.width
        run = self._run(
            kernels.half_sums, lambda rows: (values.rows(rows), values.packed, values.in_tiles_or_none), width, width
        )
        return self._sums(run, width) if width > 1 else self._products(run, values)[1][:, None]

    def scatter(self, values: _Values, factors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``V' G`` (v, v), where G is ``(W + W') V`` for only the rows of each pair, and ``(W + W') b`` (n,)."""
        arguments = values.packed, values.in_tiles_or_none, self._padded(factors)
        return self._products(self._run(kernels.half_scatter, lambda rows: arguments, values.width, 1), values)

    def matches(self, mates: Mates) -> np.ndarray:
        """``K 1``, and the same over class mates: (n, 2)."""
        return self._sums(self._run(kernels.half_matches, lambda rows: mates, 2, 2), 2)

    def pull(self, values: _Values, mates: Mates, inside: np.ndarray, outside: np.ndarray) -> np.ndarray:
        """``M V``, (n, v + 1)."""
        sides = self._padded(inside), self._padded(outside)
        run = self._run(
            kernels.half_pull,
            lambda rows: (values.rows(rows), values.packed, values.in_tiles, *mates, *sides),
            values.width, values.width,
        )  # fmt: skip
        return self._sums(run, values.width)

    def _padded(self, vector: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.pad(vector, (0, -len(vector) % TILE)))

    def _run(
        self,
        kernel: Callable[..., None],
        arguments: Callable[[slice], tuple[np.ndarray, ...]],
        row_width: int,
        column_width: int,
    ) -> _Run:
        """Return what a kernel adds to the rows and to the columns of its pairs; `arguments` are those for some rows."""
        pairs = self._pairs
        n, n_tiles = pairs.n, len(pairs.points.packed)
        row_tiles = min(max(n_tiles // 8, 1), 4)  # large pieces, but enough of them for the threads
        column_tiles = self._column_tiles(column_width)
        strips = [
            [(first, tile, min(tile + column_tiles, n_tiles)) for tile in range(first, n_tiles, column_tiles)]
            for first in range(0, n_tiles, row_tiles)
        ]

        def work(piece: tuple[int, int, int]) -> _Piece:
            first, from_tile, to_tile = piece
            rows = slice(first * TILE, min((first + row_tiles) * TILE, n))
            n_rows = rows.stop - rows.start
            of_rows = np.zeros((-(-n_rows // TILE) * TILE, row_width))
            of_columns = np.zeros((to_tile - from_tile, column_width, TILE), dtype=pairs.dtype)
            kernel(*pairs.scored(rows), *arguments(rows), rows.start, from_tile, to_tile, of_rows, of_columns)
            return rows, of_rows[:n_rows], from_tile, of_columns

        return _Run(work, strips, self._threads_for(row_width, column_width))


class _ProductSweep(_Sweep):
    """Half sweeps by matrix products, for many coordinates."""

    def __init__(self, pairs: CompiledPairs, threads: int, memory: int) -> None:
        super().__init__(pairs, threads, memory)
        # The tiles of the first of two sweeps, which the second one uses if they fit into half of the memory.
        size = pairs.n * pairs.n * pairs.dtype.itemsize // 2
        self._keeps = size <= memory // 2 and (size <= CACHED_BYTES or pairs.k >= COSTLY_COORDINATES)
        self._kept: dict[tuple[int, int], np.ndarray] = {}

    def sums(self, values: _Values, keep: bool = False) -> np.ndarray:
        """``K V``, (n, v + 1)."""

        def visit(
            tile_of_k: np.ndarray, rows: slice, t: int, both: bool, of_rows: np.ndarray, of_columns: np.ndarray
        ) -> None:
            if values.width > 1:
                of_rows[:, :-1] += tile_of_k @ values.packed[t, :, : tile_of_k.shape[1]].T
                if both:
                    of_columns[:-1] += unpack(values.packed, rows).T @ tile_of_k

        run = self._run(visit, values.width, values.width, values.weights, keep and self._keeps)
        return self._sums(run, values.width) if values.width > 1 else self._products(run, values)[1][:, None]

    def scatter(self, values: _Values, factors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``V' G`` (v, v), where G is ``(W + W') V`` for only the rows of each pair, and ``(W + W') b`` (n,)."""
        weights = values.weights

        def visit(
            tile_of_k: np.ndarray, rows: slice, t: int, both: bool, of_rows: np.ndarray, of_columns: np.ndarray
        ) -> None:
            tile = _tile(t, tile_of_k)
            product_kernels.scale_for_scatter(
                tile_of_k, factors[rows], factors[tile], weights[rows], weights[tile], 1.0 if both else 0.5,
                of_rows[:, -1], of_columns[-1],
            )  # fmt: skip
            of_rows[:, :-1] += tile_of_k @ values.packed[t, :, : tile_of_k.shape[1]].T

        return self._products(self._run(visit, values.width, 1), values)

    def matches(self, mates: Mates) -> np.ndarray:
        """``K 1``, and the same over class mates: (n, 2)."""

        def visit(
            tile_of_k: np.ndarray, rows: slice, t: int, both: bool, of_rows: np.ndarray, of_columns: np.ndarray
        ) -> None:
            product_kernels.add_matches_both_ways(
                tile_of_k, mates[0][rows], mates[1][rows], t * TILE, both, of_rows[:, 0], of_columns[0]
            )  # fmt: skip

        ones = np.ones(self._pairs.n, dtype=self._pairs.dtype)
        matched_and_all = self._sums(self._run(visit, 2, 2, ones, self._keeps), 2)
        return matched_and_all[:, ::-1]

    def pull(self, values: _Values, mates: Mates, inside: np.ndarray, outside: np.ndarray) -> np.ndarray:
        """``M V``, (n, v + 1)."""

        def visit(
            tile_of_k: np.ndarray, rows: slice, t: int, both: bool, of_rows: np.ndarray, of_columns: np.ndarray
        ) -> None:
            tile = _tile(t, tile_of_k)
            sides = (inside[rows], outside[rows], inside[tile], outside[tile])
            product_kernels.scale_both_ways(tile_of_k, mates[0][rows], mates[1][rows], t * TILE, *sides)
            of_rows[:, :-1] += tile_of_k @ values.packed[t, :, : tile_of_k.shape[1]].T
            of_rows[:, -1] += tile_of_k @ values.weights[tile]
            if both:
                of_columns += values.rows(rows).T @ tile_of_k

        return self._sums(self._run(visit, values.width, values.width), values.width)

    def _run(
        self,
        visit: Callable[[np.ndarray, slice, int, bool, np.ndarray, np.ndarray], None],
        row_width: int,
        column_width: int,
        weights: np.ndarray | None = None,
        keep: bool = False,
    ) -> _Run:
        """Return the results of `visit` on tiles of K for their rows (m, row_width) and columns (tiles, column_width, TILE).

        A tile on the diagonal holds both triangles, so that its columns need nothing (``both=False``).  Given
        `weights` b, ``K b`` is added to the last column of either.
        """
        pairs = self._pairs
        n, bounds, packed = pairs.n, pairs.bounds(), pairs.points.packed
        n_tiles, column_tiles = len(packed), self._column_tiles(column_width)
        row_tiles = max(HALF_PRODUCT_ROWS // TILE, 1)
        strips = [
            [(own, slice(first, min(first + column_tiles, n_tiles))) for first in range(own, n_tiles, column_tiles)]
            for own in range(0, n_tiles, row_tiles)
        ]
        nothing = np.empty(0, dtype=pairs.dtype)

        def work(piece: tuple[int, slice]) -> _Piece:
            own, tiles = piece
            rows = slice(own * TILE, min((own + row_tiles) * TILE, n))
            of_rows = np.zeros((rows.stop - rows.start, row_width))
            of_columns = np.zeros((tiles.stop - tiles.start, column_width, TILE))
            buffer = np.empty((len(of_rows), TILE), dtype=pairs.dtype)
            images = pairs.points.rows(rows)
            for t in range(tiles.start, tiles.stop):
                both, tile = t >= own + row_tiles, slice(t * TILE, min((t + 1) * TILE, n))
                width = tile.stop - tile.start
                to_columns = of_columns[t - tiles.start, :, :width]
                tile_of_k = self._kept.pop((own, t), None)
                if tile_of_k is None:
                    new = keep or width < TILE
                    tile_of_k = np.empty((len(of_rows), width), pairs.dtype) if new else buffer
                    np.matmul(images, packed[t, :, :width], out=tile_of_k)
                    product_kernels.exponentials_under_bounds(
                        tile_of_k, pairs.offsets[t, :width], bounds[rows], pairs.left_out[rows], tile.start,
                        nothing if weights is None else weights[rows], nothing if weights is None else weights[tile],
                        both, of_rows[:, -1], to_columns[-1],
                    )  # fmt: skip
                if keep:
                    self._kept[own, t] = tile_of_k
                visit(tile_of_k, rows, t, both, of_rows, to_columns)
            return rows, of_rows, tiles.start, of_columns

        return _Run(work, strips, self._threads_for(row_width, column_width))


def _tile(t: int, tile_of_k: np.ndarray) -> slice:
    """Return the points of a tile."""
    return slice(t * TILE, t * TILE + tile_of_k.shape[1])
