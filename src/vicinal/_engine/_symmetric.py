"""Points against themselves: ``E_ij = exp(-|z_i - z_j|^2 / 2)`` is computed once for both of its rows.

A sweep over half the pairs gives ``E V``.  With ``z = E 1``, softmax means are ``E V / z``, and what a column receives,
``sum_i E_ij r_i / z_i``, is another such sweep with ``r / z`` for values.  NCA needs one sweep for z and the mates' share
of it, and one for ``M Z`` with ``M_ij = E_ij (g_i + g_j)``; between the two, E is kept only where products made it and
the memory has room for it.  Rows are shifted by the largest score they could have, less the headroom that typical rows
leave; a row without any near neighbour underflows under that, and is returned as lost for the caller to do carefully.
"""

import numpy as np

from vicinal._engine import _kernels as kernels
from vicinal._engine._blocks import Blocks
from vicinal._engine._pairs import TILE, pack, unpack
from vicinal._engine._pool import in_order

# From so many rows on it pays; measured.  One sweep instead of a whole one is twice as fast.  Two sweeps do the work of
# a whole one, and win only where the exponentials that the other road keeps leave the cache.
_ROWS_FOR_ONE_SWEEP = 4 * TILE
_ROWS_FOR_TWO_SWEEPS = 40_000

_COLUMN_TILES = 32  # tiles of points in a thread's piece of work
_PRODUCT_COLUMNS, _PRODUCT_ROWS = 1024, 128  # a tile of matrix products stays in the cache
# To fetch exponentials that have left the cache takes as long as to make them anew of so many coordinates; measured.
_CACHED_BYTES, _COSTLY_COORDINATES = 2**24, 96


def pays_to_be_symmetric(pairs, sweeps, many):
    """Whether half sweeps beat a whole one; matrix products keep their exponentials in either case."""
    if sweeps == 1:
        return pairs.n >= _ROWS_FOR_ONE_SWEEP
    return pairs.n >= _ROWS_FOR_TWO_SWEEPS and not many


def softmax_once(pairs, values, row_weights, many, threads):
    """Log-sums, means of the values, what the columns receive (None without row weights), and the lost rows."""
    pairs.take_headroom(float(np.abs(values).max(initial=0.0)))
    sweep = _ProductSweep(pairs, threads) if many else _FusedSweep(pairs, threads)
    sums = sweep.sums(values)
    totals = sums[:, -1]
    lost = np.flatnonzero(totals < pairs.smallest)
    totals[lost] = 1.0
    means = sums[:, :-1]
    means /= totals[:, None]
    received = None
    if row_weights is not None:
        factors = row_weights / totals
        factors[lost] = 0.0
        received = np.ascontiguousarray(sweep.sums(factors.astype(pairs.dtype)[:, None])[:, 0])
    return pairs.log_sums(pairs.bounds + np.log(totals)), means, received, lost


def mutual_pull_once(pairs, mates, row_weights, likelihood, least_agreement, many, threads, memory):
    """`_contract.MutualPull` for points sorted by class, row i's mates at ``mates[0][i]..mates[1][i]``; and the lost rows."""
    pairs.take_headroom()
    sweep = _ProductSweep(pairs, threads, memory) if many else _FusedSweep(pairs, threads)
    totals, matched = (np.ascontiguousarray(column) for column in sweep.matches(mates).T)
    inside, outside, log_agreement = np.empty(pairs.n), np.empty(pairs.n), np.empty(pairs.n)
    kernels.sides_of_rows(
        pairs.points, likelihood, matched, totals, row_weights, least_agreement, pairs.smallest,
        inside, outside, log_agreement,
    )  # fmt: skip
    lost = np.flatnonzero((totals < pairs.smallest) | np.isnan(log_agreement))
    inside[lost], outside[lost], totals[lost] = 0.0, 0.0, 1.0
    sums = sweep.pull(mates, inside.astype(pairs.dtype), outside.astype(pairs.dtype))
    pull = sums[:, -1:] * pairs.points - sums[:, :-1]
    return pairs.log_sums(pairs.bounds + np.log(totals)), log_agreement, pull, lost


class _FusedSweep:
    """Half sweeps by the fused kernels, for few coordinates."""

    def __init__(self, pairs, threads):
        self._pairs, self._threads = pairs, threads
        self._packed, self._scored = pairs.packed()

    def sums(self, values):
        """``E V`` and ``E 1``: (n, n_values + 1)."""
        packed = self._packed if values is self._pairs.points else pack(values)
        return self._sweep(kernels.symmetric_sums, (values, packed), values.shape[1] + 1)

    def matches(self, mates):
        """``E 1``, and the same over class mates: (n, 2)."""
        return self._sweep(kernels.symmetric_matches, mates, 2)

    def pull(self, mates, inside, outside):
        """``M Z`` and ``M 1``: (n, d + 1)."""
        padding = len(self._packed) * TILE - self._pairs.n
        factors = (np.pad(side, (0, padding)) for side in (inside, outside))
        return self._sweep(kernels.symmetric_pull, (*mates, *factors), self._pairs.d + 1)

    def _sweep(self, kernel, arguments, width):
        n, n_tiles = self._pairs.n, len(self._packed)
        row_tiles = 1 if n_tiles < 64 else 2  # large pieces, but enough of them for the threads
        pieces = [
            (first, tile, min(tile + _COLUMN_TILES, n_tiles))
            for first in range(0, n_tiles, row_tiles)
            for tile in range(first, n_tiles, _COLUMN_TILES)
        ]

        def work(piece):
            first, from_tile, to_tile = piece
            start, stop = first * TILE, min((first + row_tiles) * TILE, n)
            of_rows = np.zeros((-(-(stop - start) // TILE) * TILE, width))
            of_columns = np.zeros((to_tile - from_tile, width, TILE), dtype=self._pairs.dtype)
            kernel(*self._scored, *arguments, start, stop, from_tile, to_tile, of_rows, of_columns)
            return first, of_rows, slice(from_tile, to_tile), of_columns

        total = np.zeros((n_tiles, width, TILE))
        for first, of_rows, tiles, of_columns in in_order(work, pieces, self._threads):
            total[tiles] += of_columns
            of_rows = of_rows.reshape(-1, TILE, width)
            total[first : first + len(of_rows)] += of_rows.transpose(0, 2, 1)
        return unpack(total, n)


class _ProductSweep:
    """Half sweeps by matrix products, for many coordinates."""

    def __init__(self, pairs, threads, memory=0):
        self._pairs, self._threads = pairs, threads
        self._offsets, self._bounds = pairs.column_offsets, pairs.bounds
        # The tiles of the first of two sweeps, for the second to take, where they fit into half of the memory.
        size = pairs.n * pairs.n * pairs.dtype.itemsize // 2
        self._keeps = size <= memory // 2 and (size <= _CACHED_BYTES or pairs.d >= _COSTLY_COORDINATES)
        self._kept: dict = {}

    def sums(self, values):
        """``E V`` and ``E 1``: (n, n_values + 1)."""
        return self._sums_of(values, lambda weights, rows, tile: None)

    def matches(self, mates):
        """``E 1``, and the same over class mates: (n, 2)."""

        def visit(weights, totals, rows, tile, both):
            matched, of_columns = np.zeros(len(weights)), np.zeros((2, weights.shape[1]), dtype=weights.dtype)
            kernels.add_mutual_matches(
                weights, mates[0][rows], mates[1][rows], tile.start, both, matched, *of_columns
            )  # fmt: skip
            return np.stack([totals, matched], axis=1), of_columns.T

        return self._sweep(visit, 2, keep=self._keeps)

    def pull(self, mates, inside, outside):
        """``M Z`` and ``M 1``: (n, d + 1)."""

        def scale(weights, rows, tile):
            sides = (inside[rows], outside[rows], inside[tile], outside[tile])
            kernels.scale_mutually(weights, mates[0][rows], mates[1][rows], tile.start, *sides)

        return self._sums_of(self._pairs.points, scale)

    def _sums_of(self, values, scale):
        values_and_one = np.hstack([values, np.ones((len(values), 1), dtype=values.dtype)])

        def visit(weights, totals, rows, tile, both):
            scale(weights, rows, tile)
            return weights @ values_and_one[tile], weights.T @ values_and_one[rows] if both else None

        return self._sweep(visit, values_and_one.shape[1])

    def _sweep(self, visit, width, keep=False):
        """Sum what `visit` makes of each tile of exponentials for its rows and, off the diagonal, its columns."""
        pairs = self._pairs
        pieces = [
            (rows, slice(column, min(column + _COLUMN_TILES * TILE, pairs.n)))
            for rows in Blocks(pairs.n, TILE)
            for column in range(rows.start, pairs.n, _COLUMN_TILES * TILE)
        ]

        def work(piece):
            rows, columns = piece
            of_rows = np.zeros((rows.stop - rows.start, width))
            of_columns = np.zeros((columns.stop - columns.start, width))
            after = max(columns.start, rows.stop)
            tiles = [rows] if columns.start == rows.start else []
            tiles += [
                slice(j, min(j + _PRODUCT_COLUMNS, columns.stop)) for j in range(after, columns.stop, _PRODUCT_COLUMNS)
            ]
            for start in range(rows.start, rows.stop, _PRODUCT_ROWS):
                some = slice(start, min(start + _PRODUCT_ROWS, rows.stop))
                for tile in tiles:
                    weights, totals = self._exponentials(some, tile, keep)
                    both = tile is not rows
                    to_rows, to_columns = visit(weights, totals, some, tile, both)
                    of_rows[some.start - rows.start : some.stop - rows.start] += to_rows
                    if both:
                        of_columns[tile.start - columns.start : tile.stop - columns.start] += to_columns
            return rows, of_rows, columns, of_columns

        total = np.zeros((pairs.n, width))
        for rows, of_rows, columns, of_columns in in_order(work, pieces, self._threads):
            total[rows] += of_rows
            total[columns] += of_columns
        return total

    def _exponentials(self, rows, tile, keep):
        """A tile of E, and the sums of its rows (None for a tile that was kept: they are known by then)."""
        place = rows.start, tile.start
        if place in self._kept:
            return self._kept.pop(place), None
        weights = self._pairs.points[rows] @ self._pairs.points[tile].T
        totals = np.zeros(len(weights))
        kernels.exponentials_under_bounds(
            weights, self._offsets[tile], self._bounds[rows], self._pairs.left_out[rows], tile.start, totals
        )
        if keep:
            self._kept[place] = weights
        return weights, totals
