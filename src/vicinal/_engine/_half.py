"""Points against themselves: ``K_ij = exp(-|z_i - z_j|^2 / 2)`` is symmetric, so half of the pairs serve all.

With point weights b, the sums of a row are ``Z = K b``, one half sweep.  For the weights ``W_ij = r_i b_j K_ij / Z_i``
of a softmax with row weights r,

    W + W' = b_i b_j K_ij (f_i + f_j)    with    f = r / (b Z),

so a second half sweep gives ``(W + W') V``.  A scatter is ``V' diag(m) V - V' (W + W') V`` with ``m = (W + W') 1``, and
needs that product for the rows of each pair only, not for its columns: ``n^2`` exponentials and ``1.5 n^2 k``
multiply-adds in all.  Between two sweeps the exponentials are kept where matrix products made them and the memory has
room for them.

Rows are shifted by the largest score that they could have, less what typical rows leave unused (`Pairs.raise_scores`).
A row without any near neighbour underflows under that shift, and is returned as underflowed for the caller to do again
with a maximum of its own.
"""

from typing import NamedTuple

import numpy as np

from vicinal._engine import _kernels as kernels
from vicinal._engine._blocks import Blocks
from vicinal._engine._pairs import TILE, Pairs, pack, unpack
from vicinal._engine._pool import in_order
from vicinal._engine._tuning import (
    CACHED_BYTES,
    COLUMN_TILES,
    COSTLY_COORDINATES,
    HALF_PRODUCT_POINTS,
    HALF_PRODUCT_ROWS,
    HALF_PRODUCTS_FROM,
)


class HalfSums(NamedTuple):
    """``log_sums`` (n,), ``sums`` (n, v) = K V / Z, and the rows that underflowed."""

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


class HalfSweeps:
    """Half sweeps over points without weights in their kernel; weights b multiply the values instead.

    Parameters
    ----------
    pairs : Pairs
        Of points against themselves, without log-weights.
    weights : float64 array of shape (n,), optional
        The weights b; all positive.
    threads, memory : int
    n_values : int
        Columns of the widest values, for the choice between fused kernels and matrix products.
    """

    def __init__(self, pairs: Pairs, weights, threads, memory, n_values=0):
        self._pairs, self._weights = pairs, weights
        by_products = pairs.accurate and pairs.k + n_values >= HALF_PRODUCTS_FROM[pairs.dtype]
        self._sweep = _ProductSweep(pairs, threads, memory) if by_products else _FusedSweep(pairs, threads)

    def sums(self, values) -> HalfSums:
        """The softmax means of values (n, v)."""
        pairs = self._pairs
        b = self._column_weights()
        weighted = np.hstack([values if self._weights is None else values * b, b])
        totals, underflowed, sums = self._totals(weighted.astype(pairs.dtype, copy=False))
        return HalfSums(self._log_sums(totals), sums[:, :-1] / totals[:, None], underflowed)

    def scatter(self, values, row_weights) -> HalfScatter:
        """The scatter of values (n, v) under the softmax weights."""
        pairs = self._pairs
        b = self._column_weights()
        totals, underflowed, _ = self._totals(b.astype(pairs.dtype), keep=True)
        factors = row_weights / (b[:, 0] * totals)
        factors[underflowed] = 0.0
        weighted = np.hstack([values if self._weights is None else values * b, b]).astype(pairs.dtype, copy=False)
        gathered, of_columns = self._sweep.scatter(weighted, factors.astype(pairs.dtype))
        mass = b[:, 0] * (gathered[:, -1] + of_columns)
        values = values.astype(np.float64, copy=False)
        weighted = weighted[:, :-1].astype(np.float64, copy=False)
        cross = weighted.T @ gathered[:, :-1]
        scatter = (values * mass[:, None]).T @ values - cross - cross.T
        size = float(mass @ np.square(values).sum(axis=1))
        return HalfScatter(self._log_sums(totals), 0.5 * (scatter + scatter.T), size, underflowed)

    def softmax_pull(self, factors):
        """``sum_i (w_ij + w_ji)(z_j - z_i)`` for ``w_ij = factors_i p_ij``, (n, k), and the rows that underflowed."""
        pairs = self._pairs
        b = self._column_weights()
        totals, underflowed, _ = self._totals(b.astype(pairs.dtype), keep=True)
        f = factors / (b[:, 0] * totals)
        f[underflowed] = 0.0
        nobody = np.zeros(pairs.n, dtype=np.int64)
        return self._pull((nobody, nobody), f, f), underflowed

    def class_pull(self, mates, row_weights, likelihood, least_agreement) -> HalfPull:
        """`_contract.Pull` for points sorted by class, the mates of row i at ``mates[0][i]..mates[1][i]``; no weights."""
        pairs = self._pairs
        totals, matched = (np.ascontiguousarray(column) for column in self._sweep.matches(mates).T)
        inside, outside, log_agreement = np.empty(pairs.n), np.empty(pairs.n), np.empty(pairs.n)
        kernels.class_factors(
            pairs.queries, likelihood, matched, totals, row_weights, least_agreement, pairs.smallest,
            inside, outside, log_agreement,
        )  # fmt: skip
        underflowed = np.flatnonzero((totals < pairs.smallest) | np.isnan(log_agreement))
        inside[underflowed], outside[underflowed], totals[underflowed] = 0.0, 0.0, 1.0
        return HalfPull(self._log_sums(totals), log_agreement, self._pull(mates, inside, outside), underflowed)

    def _column_weights(self):
        return np.ones((self._pairs.n, 1)) if self._weights is None else self._weights[:, None]

    def _totals(self, values, keep=False):
        """Z (1 where it underflowed), the rows where it did, and all sums; the weights b are the last column of values."""
        sums = self._sweep.sums(values, keep=keep)
        totals = sums[:, -1].copy()
        heaviest = 1.0 if self._weights is None else float(self._weights.max())
        underflowed = np.flatnonzero(totals < self._pairs.smallest * heaviest)
        totals[underflowed] = 1.0
        return totals, underflowed, sums

    def _log_sums(self, totals):
        return self._pairs.log_sums(self._pairs.bounds + np.log(totals))

    def _pull(self, mates, inside, outside):
        """``M 1 z - M Z`` for ``M_ij = K_ij (g_i + g_j)``, weighted by b on both sides."""
        pairs, b = self._pairs, self._column_weights()
        images = pairs.points.images
        weighted = np.hstack([images if self._weights is None else images * b, b]).astype(pairs.dtype, copy=False)
        sums = self._sweep.pull(weighted, mates, inside.astype(pairs.dtype), outside.astype(pairs.dtype))
        return b * (sums[:, -1:] * images - sums[:, :-1])


class _FusedSweep:
    """Half sweeps by the fused kernels, for few coordinates."""

    def __init__(self, pairs, threads):
        self._pairs, self._threads = pairs, threads

    def sums(self, values, keep=False):
        """``K V``, (n, v); nothing is kept."""
        return sum(self._run(kernels.half_sums, (values, pack(values)), values.shape[1], values.shape[1]))

    def scatter(self, values, factors):
        """``(W + W') V`` for the rows of each pair (n, v), and its last column for the columns (n,)."""
        rows, columns = self._run(
            kernels.half_scatter,
            (pack(values), self._padded(factors), self._padded(values[:, -1])),
            values.shape[1], 1,
        )  # fmt: skip
        return rows, columns[:, 0]

    def matches(self, mates):
        """``K 1``, and the same over class mates: (n, 2)."""
        return sum(self._run(kernels.half_matches, mates, 2, 2))

    def pull(self, values, mates, inside, outside):
        """``M V``, (n, v)."""
        sides = self._padded(inside), self._padded(outside)
        return sum(
            self._run(kernels.half_pull, (values, pack(values), *mates, *sides), values.shape[1], values.shape[1])
        )

    def _padded(self, vector):
        return np.ascontiguousarray(np.pad(vector, (0, -len(vector) % TILE)))

    def _run(self, kernel, arguments, row_width, column_width):
        """Sum what a kernel gives to the rows (n, row_width) and to the columns (n, column_width) of its pairs."""
        n, scored = self._pairs.n, self._pairs.scored
        n_tiles = len(scored[1])
        row_tiles = 1 if n_tiles < 64 else 2  # large pieces, but enough of them for the threads
        pieces = [
            (first, tile, min(tile + COLUMN_TILES, n_tiles))
            for first in range(0, n_tiles, row_tiles)
            for tile in range(first, n_tiles, COLUMN_TILES)
        ]

        def work(piece):
            first, from_tile, to_tile = piece
            start, stop = first * TILE, min((first + row_tiles) * TILE, n)
            of_rows = np.zeros((-(-(stop - start) // TILE) * TILE, row_width))
            of_columns = np.zeros((to_tile - from_tile, column_width, TILE), dtype=self._pairs.dtype)
            kernel(*scored, *arguments, start, stop, from_tile, to_tile, of_rows, of_columns)
            return start, of_rows, slice(from_tile, to_tile), of_columns

        of_rows = np.zeros((n_tiles * TILE, row_width))
        of_columns = np.zeros((n_tiles, column_width, TILE))
        for start, rows, tiles, columns in in_order(work, pieces, self._threads):
            of_rows[start : start + len(rows)] += rows
            of_columns[tiles] += columns
        return of_rows[:n], unpack(of_columns, n)


class _ProductSweep:
    """Half sweeps by matrix products, for many coordinates."""

    def __init__(self, pairs, threads, memory=0):
        self._pairs, self._threads = pairs, threads
        # The tiles of the first of two sweeps, for the second to take, where they fit into half of the memory.
        size = pairs.n * pairs.n * pairs.dtype.itemsize // 2
        self._keeps = size <= memory // 2 and (size <= CACHED_BYTES or pairs.k >= COSTLY_COORDINATES)
        self._kept: dict = {}

    def sums(self, values, keep=False):
        """``K V``, (n, v)."""
        others, weights = values[:, :-1], np.ascontiguousarray(values[:, -1])

        def visit(tile_of_k, rows, tile, both, of_rows, of_columns):
            if others.shape[1]:
                of_rows[:, :-1] += tile_of_k @ others[tile]
                if both:
                    of_columns[:, :-1] += tile_of_k.T @ others[rows]

        return sum(self._run(visit, values.shape[1], values.shape[1], weights=weights, keep=keep and self._keeps))

    def scatter(self, values, factors):
        """``(W + W') V`` for the rows of each pair (n, v), and its last column for the columns (n,)."""
        others, weights = values[:, :-1], np.ascontiguousarray(values[:, -1])

        def visit(tile_of_k, rows, tile, both, of_rows, of_columns):
            kernels.scale_for_scatter(
                tile_of_k, factors[rows], factors[tile], weights[rows], weights[tile], 1.0 if both else 0.5,
                of_rows[:, -1], of_columns[:, -1],
            )  # fmt: skip
            of_rows[:, :-1] += tile_of_k @ others[tile]

        rows, columns = self._run(visit, values.shape[1], 1)
        return rows, columns[:, 0]

    def matches(self, mates):
        """``K 1``, and the same over class mates: (n, 2)."""

        def visit(tile_of_k, rows, tile, both, of_rows, of_columns):
            kernels.add_matches_both_ways(
                tile_of_k, mates[0][rows], mates[1][rows], tile.start, both, of_rows[:, 0], of_columns[:, 0]
            )  # fmt: skip

        ones = np.ones(self._pairs.n, dtype=self._pairs.dtype)
        matched_and_all = sum(self._run(visit, 2, 2, weights=ones, keep=self._keeps))
        return matched_and_all[:, ::-1]

    def pull(self, values, mates, inside, outside):
        """``M V``, (n, v)."""

        def visit(tile_of_k, rows, tile, both, of_rows, of_columns):
            sides = (inside[rows], outside[rows], inside[tile], outside[tile])
            kernels.scale_both_ways(tile_of_k, mates[0][rows], mates[1][rows], tile.start, *sides)
            of_rows += tile_of_k @ values[tile]
            if both:
                of_columns += tile_of_k.T @ values[rows]

        return sum(self._run(visit, values.shape[1], values.shape[1]))

    def _run(self, visit, row_width, column_width, weights=None, keep=False):
        """Sum what `visit` makes of each tile of K for its rows (n, row_width) and its columns (n, column_width).

        A tile on the diagonal holds both triangles, so that its columns need nothing (``both=False``).  Given
        `weights` b, ``K b`` is added to the last column of either.
        """
        pairs = self._pairs
        n, bounds, offsets, images = pairs.n, pairs.bounds, pairs.offsets, pairs.points.images
        pieces = [
            (rows, slice(column, min(column + COLUMN_TILES * TILE, n)))
            for rows in Blocks(n, TILE)
            for column in range(rows.start, n, COLUMN_TILES * TILE)
        ]
        nothing = np.empty(0, dtype=pairs.dtype)

        def work(piece):
            rows, columns = piece
            of_rows = np.zeros((rows.stop - rows.start, row_width))
            of_columns = np.zeros((columns.stop - columns.start, column_width))
            tiles = [rows] if columns.start == rows.start else []
            after = max(columns.start, rows.stop)
            tiles += [
                slice(j, min(j + HALF_PRODUCT_POINTS, columns.stop))
                for j in range(after, columns.stop, HALF_PRODUCT_POINTS)
            ]
            buffer = np.empty(HALF_PRODUCT_ROWS * max(HALF_PRODUCT_POINTS, TILE), dtype=pairs.dtype)
            for start in range(rows.start, rows.stop, HALF_PRODUCT_ROWS):
                some = slice(start, min(start + HALF_PRODUCT_ROWS, rows.stop))
                to_rows = of_rows[some.start - rows.start : some.stop - rows.start]
                for tile in tiles:
                    both = tile is not rows
                    to_columns = of_columns[tile.start - columns.start : tile.stop - columns.start]
                    place = some.start, tile.start
                    tile_of_k = self._kept.pop(place, None)
                    if tile_of_k is None:
                        shape = some.stop - some.start, tile.stop - tile.start
                        tile_of_k = (
                            np.empty(shape, pairs.dtype) if keep else buffer[: shape[0] * shape[1]].reshape(shape)
                        )
                        np.matmul(images[some], images[tile].T, out=tile_of_k)
                        kernels.exponentials_under_bounds(
                            tile_of_k, offsets[tile], bounds[some], pairs.left_out[some], tile.start,
                            nothing if weights is None else weights[some],
                            nothing if weights is None else weights[tile], both, to_rows[:, -1], to_columns[:, -1],
                        )  # fmt: skip
                    if keep:
                        self._kept[place] = tile_of_k
                    visit(tile_of_k, some, tile, both, to_rows, to_columns)
            return rows, of_rows, columns, of_columns

        row_sums, column_sums = np.zeros((n, row_width)), np.zeros((n, column_width))
        for rows, of_rows, columns, of_columns in in_order(work, pieces, self._threads):
            row_sums[rows] += of_rows
            column_sums[columns] += of_columns
        return row_sums, column_sums
