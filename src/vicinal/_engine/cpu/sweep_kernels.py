"""Compiled: the one sweep over rows and tiles of points, of which every sum is a specialisation.

A strip of rows is combined with the tiles from_tile..to_tile of the points.  With the exponentials ``K_ij = exp(s_ij - bound_i)``, a pair adds
to its row in `row_sums` (padded to whole ROWS), and to its point in `column_sums` (n_tiles, width, TILE) unless that has no columns.

*Each pair once*: rows that are points themselves, from the point `start` on, skip the tiles before their own, and give to the points of later
tiles what those give to them.  Otherwise (`start` is -1) the rows meet all tiles.

Rows and points are shifted by `bounds`, which no sweep changes.  The caller finds the rows whose sums underflow, and repeats them
under their own maxima.  Scores are made here, or `given` in `kept` (n_tiles, rows, TILE): products from BLAS, scores, or exponentials of an
earlier sweep.  Scores that are not wanted afterwards need one place, (1, ROWS, TILE).

`weights` b of the points, in tiles padded with zeros, are the last column of their values; if there are none, all weights are 1.
`values` of the rows, with their weights as last column, go to the points; if a point receives one number, these are the `row_weights`.

Every kernel is made by `_sweep` from an integer, whose branches Numba removes before it compiles.
"""

from typing import Any

import numpy as np
from numba import float64, int64, njit, types, void

from vicinal._engine.cpu.parts import (
    ROWS,
    TILE,
    _add_columns,
    _add_to_points,
    _dot_all,
    _exp_in_place,
    _four_scores,
    _peaks,
    _sum_between,
)
from vicinal._engine.cpu.vectors import one_dot
from vicinal._engine.work.compiling import _OPTIONS, _SUMS, _Kernel

# What `kept` holds when a sweep begins.
NOTHING, PRODUCTS, SCORES, EXPONENTIALS = 0, 1, 2, 3
# The sums.
_PEAKS, _MEANS, _LOGS, _MATCHES, _CLASSES, _SCATTER, _PULL = 0, 1, 2, 3, 4, 5, 6
# Smaller logarithms belong to exponentials that are 0; minus infinity times 0 would not be.
_LOWEST_LOG = -1e4


@njit(fastmath={"contract"}, **_OPTIONS)
def _times_logs(scores: np.ndarray, bound: float, products: np.ndarray) -> None:
    """Scores of a row -> K and K log K; both are 0 for a pair that is left out."""
    for j in range(TILE):
        products[j] = max(scores[j] - bound, scores.dtype.type(_LOWEST_LOG))
    _exp_in_place(scores, bound)
    for j in range(TILE):
        products[j] *= scores[j]


@njit(fastmath=_SUMS, **_OPTIONS)
def _scale_by_sum(weights: np.ndarray, factor: float, of_columns: np.ndarray, half: float) -> float:
    """weights[j] *= half (factor + of_columns[j]); return their sum."""
    total = weights.dtype.type(0)
    for j in range(weights.shape[0]):
        weight = weights[j] * (half * (factor + of_columns[j]))
        weights[j] = weight
        total += weight
    return total


@njit(fastmath={"contract"}, **_OPTIONS)
def _scale_both_ways(
    weights: np.ndarray,
    inside: float,
    outside: float,
    inside_columns: np.ndarray,
    outside_columns: np.ndarray,
    start: int,
    stop: int,
) -> None:
    """weights[j] *= inside + inside_columns[j] between start and stop, outside + outside_columns[j] elsewhere."""
    for j in range(start):
        weights[j] *= outside + outside_columns[j]
    for j in range(start, stop):
        weights[j] *= inside + inside_columns[j]
    for j in range(stop, weights.shape[0]):
        weights[j] *= outside + outside_columns[j]


@njit(fastmath={"contract"}, **_OPTIONS)
def _add_offsets(scores: np.ndarray, offsets: np.ndarray) -> None:
    for j in range(scores.shape[0]):
        scores[j] += offsets[j]


def _signature(real: Any) -> Any:
    a1, a2, a3, ints, doubles = real[::1], real[:, ::1], real[:, :, ::1], int64[::1], float64[::1]
    pairs = (a2, a3, a2, doubles, types.boolean, ints)
    return void(
        *pairs, a3, int64, a2, a3, a2, doubles, ints, ints, a1, a1, a1, a1, int64, int64, int64, float64[:, ::1], a3
    )  # fmt: skip


def _sweep(name: str, doc: str, KIND: int) -> _Kernel:
    """Return the kernel of a sum; its arguments are empty if the sum does not need them."""
    BY_CLASS, GIVES_VALUES = int(KIND in (_MATCHES, _PULL)), int(KIND in (_MEANS, _PULL))
    HAS_VALUES, HAS_WEIGHTS = int(KIND not in (_MATCHES, _CLASSES)), int(KIND in (_LOGS, _PULL))

    def sweep(
        queries: np.ndarray, points: np.ndarray, offsets: np.ndarray, bounds: np.ndarray, by_products: bool, left_out: np.ndarray,
        kept: np.ndarray, given: int, values: np.ndarray, packed_values: np.ndarray, weights: np.ndarray, row_weights: np.ndarray,
        mates_from: np.ndarray, mates_to: np.ndarray, row_inside: np.ndarray, row_outside: np.ndarray, inside: np.ndarray,
        outside: np.ndarray, start: int, from_tile: int, to_tile: int, row_sums: np.ndarray, column_sums: np.ndarray,
    ) -> None:  # fmt: skip
        logs = np.empty((ROWS if KIND == _LOGS else 0, TILE), points.dtype)
        totals, b = np.empty(ROWS), np.empty(ROWS)
        n_rows, n_columns, last = queries.shape[0], column_sums.shape[1], row_sums.shape[1] - 1
        weighted, lowest = weights.shape[0] > 0, 0
        for t in range(from_tile, to_tile):
            tile, tile_offsets, tile_values = points[t], offsets[t], packed_values[t]
            columns = column_sums[t - from_tile]
            inside_columns, outside_columns = inside[t * TILE : (t + 1) * TILE], outside[t * TILE : (t + 1) * TILE]
            if KIND == _CLASSES:  # where classes begin is in `mates_from`
                while lowest < last - 1 and mates_from[lowest + 1] <= t * TILE:
                    lowest += 1
            for place in range(0, n_rows, ROWS):
                count, own = min(ROWS, n_rows - place), (start + place) // TILE if start >= 0 else -1
                if t < own:
                    continue
                sums, row = row_sums[place : place + ROWS], place if kept.shape[1] > ROWS else 0
                scores = kept[t - from_tile if kept.shape[0] > 1 else 0, row : row + ROWS]
                if given == NOTHING:
                    _four_scores(queries, place, tile, tile_offsets, by_products, scores)
                for r in range(count):
                    skip = left_out[place + r] - t * TILE
                    if given == PRODUCTS:
                        _add_offsets(scores[r], tile_offsets)
                    if given <= PRODUCTS and 0 <= skip < TILE:
                        scores[r, skip] = -np.inf
                if KIND == _PEAKS:
                    _peaks(scores, totals)
                    for r in range(count):
                        sums[r, 0] = max(sums[r, 0], totals[r])
                    continue
                for r in range(ROWS):
                    if r >= count:
                        scores[r, :], totals[r], b[r] = 0, 0.0, 0.0
                        if KIND == _LOGS:
                            logs[r, :] = 0
                        continue
                    i, bound = place + r, scores.dtype.type(bounds[place + r])
                    b[r] = row_weights[i]
                    if KIND == _LOGS:
                        _times_logs(scores[r], bound, logs[r])
                    elif given != EXPONENTIALS:
                        totals[r] = _exp_in_place(scores[r], bound)
                    else:
                        totals[r] = 0.0
                    if (
                        KIND == _SCATTER
                    ):  # pairs within a tile add half to its rows and half to its columns, as all others do
                        half = scores.dtype.type(0.5 if t == own else 1.0)
                        totals[r] = _scale_by_sum(scores[r], row_inside[i], inside_columns, half)
                    if BY_CLASS == 1:
                        lo = min(max(mates_from[i] - t * TILE, 0), TILE)
                        hi = min(max(mates_to[i] - t * TILE, 0), TILE)
                        if KIND == _PULL:
                            _scale_both_ways(
                                scores[r], row_inside[i], row_outside[i], inside_columns, outside_columns, lo, hi
                            )
                        elif lo < hi:
                            sums[r, 0] += _sum_between(scores[r], lo, hi)
                            if n_columns > 0 and t > own:
                                for j in range(lo, hi):
                                    columns[0, j] += scores[r, j]
                    if KIND == _CLASSES:
                        c = lowest
                        while c < last and mates_from[c] < (t + 1) * TILE:
                            lo = max(mates_from[c] - t * TILE, 0)
                            sums[r, c] += _sum_between(scores[r], lo, min(mates_from[c + 1] - t * TILE, TILE))
                            c += 1
                if HAS_VALUES == 1:
                    _dot_all(scores, tile_values, sums)
                if KIND == _LOGS:
                    one_dot(logs, weights, t, sums, last - 1)
                if HAS_WEIGHTS == 1 or weighted:
                    one_dot(scores, weights, t, sums, last)
                else:
                    for r in range(ROWS):
                        sums[r, last] += totals[r]
                if n_columns > 0 and (t > own or KIND == _SCATTER):
                    if GIVES_VALUES == 1 and n_columns > 1:
                        _add_to_points(scores, values, place, columns)
                    else:
                        if KIND == _LOGS:
                            _add_columns(columns[0], logs, b)
                        _add_columns(columns[n_columns - 1], scores, b)

    sweep.__name__ = sweep.__qualname__ = name  # Numba's cache and Dask's workers know a kernel by its name
    sweep.__doc__ = doc
    return _Kernel(sweep, _signature)


peaks = _sweep("peaks", "The largest score of each row.", _PEAKS)
means = _sweep("means", "``K V`` and ``K b``.", _MEANS)
logs = _sweep("logs", "``K V``, ``(K log K) b`` and ``K b``; weights are given in any case.", _LOGS)
matches = _sweep("matches", "``K 1`` over class mates, and over all points.", _MATCHES)
classes = _sweep("classes", "``K 1`` over each class, which begins at `mates_from`, and over all points.", _CLASSES)
scatter = _sweep(
    "scatter", "``M V`` to rows, ``M b`` to both, with ``M_ij = K_ij (f_i + f_j)``; f is `inside`.", _SCATTER
)
pull = _sweep(
    "pull",
    "``M V`` and ``M b``, where f is `inside` for class mates and `outside` otherwise; weights are given.",
    _PULL,
)
