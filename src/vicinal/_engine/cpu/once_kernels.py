"""Compiled: points against themselves, each pair once for both of its rows, for few coordinates.

The kernel K_ij = exp(-|z_i - z_j|^2 / 2) is symmetric.  A block of rows, which begins at the row `start` of a tile,
is combined with the tiles from_tile..to_tile that are not before its own; a pair adds to its row in `row_sums` (padded to
whole ROWS) and, in later tiles, to its column in `column_sums` (n_tiles, width, TILE) as well.  Nothing is kept between tiles,
so memory traffic does not grow with n.  Rows are shifted by `bounds`; the caller finds those whose sum underflowed.
`queries`, `bounds`, `left_out` and `values` are those of the block; everything else is for all points.  `weights` b, in
tiles padded with zeros, are the last column of the values; if there are none, all weights are 1.

There is one skeleton, `_once`.  Every sum is a specialisation of it by integers, whose branches Numba removes before it compiles.
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
    _scores,
    _sum_between,
)
from vicinal._engine.cpu.vectors import one_dot
from vicinal._engine.work.compiling import _OPTIONS, _SUMS, _Kernel

# Smaller logarithms belong to exponentials that are 0; minus infinity times 0 would not be.
_LOWEST_LOG = -1e4

# M, by which values are multiplied: K; K (f_i + f_j); K (g_i + g_j), with g the factor of the row inside its class or outside.
_PLAIN, _BOTH, _BY_CLASS = 0, 1, 2
# What a pair adds to its column: M b, or M V and M b.
_MASS, _ALL = 0, 1


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


def _signature(real: Any) -> Any:
    a1, a2, a3, ints = real[::1], real[:, ::1], real[:, :, ::1], int64[::1]
    pairs = (a2, a3, a2, float64[::1], float64, types.boolean, ints)
    return void(*pairs, a2, a3, a2, ints, ints, a1, a1, int64, int64, int64, float64[:, ::1], a3)


def _once(
    name: str, doc: str, COLUMNS: int, VALUES: int = 0, LOGS: int = 0, MATES: int = 0, FACTORS: int = _PLAIN
) -> _Kernel:
    """Return the kernel of a sum; its arguments are those of `CompiledPairs.scored` and others, empty if the sum does not need them."""

    def once(
        queries: np.ndarray, points: np.ndarray, offsets: np.ndarray, bounds: np.ndarray, smallest: float, by_products: bool,
        left_out: np.ndarray, values: np.ndarray, packed_values: np.ndarray, weights: np.ndarray, mates_from: np.ndarray,
        mates_to: np.ndarray, inside: np.ndarray, outside: np.ndarray, start: int, from_tile: int, to_tile: int,
        row_sums: np.ndarray, column_sums: np.ndarray,
    ) -> None:  # fmt: skip
        scores, logs = np.empty((ROWS, TILE), points.dtype), np.empty((LOGS * ROWS, TILE), points.dtype)
        peaks, totals, b = np.empty(ROWS), np.empty(ROWS), np.empty(ROWS)
        n_rows, last, weighted = queries.shape[0], row_sums.shape[1] - 1, weights.shape[0] > 0
        for t in range(from_tile, to_tile):
            tile, tile_offsets, tile_values = points[t], offsets[t], packed_values[t]
            columns = column_sums[t - from_tile]
            inside_columns, outside_columns = inside[t * TILE : (t + 1) * TILE], outside[t * TILE : (t + 1) * TILE]
            for place in range(0, n_rows, ROWS):
                first, count = start + place, min(ROWS, n_rows - place)
                own = first // TILE
                if t < own:
                    continue
                sums = row_sums[place : place + ROWS]
                _scores(
                    queries, place, count, tile, tile_offsets, by_products, left_out, t * TILE, False, scores, peaks
                )
                for r in range(ROWS):
                    if r >= count:
                        scores[r, :], totals[r], b[r] = 0, 0.0, 0.0
                        if LOGS == 1:
                            logs[r, :] = 0
                        continue
                    i, bound = first + r, scores.dtype.type(bounds[place + r])
                    b[r] = weights[i // TILE, i % TILE] if weighted else 1.0
                    if LOGS == 1:
                        _times_logs(scores[r], bound, logs[r])
                    else:
                        totals[r] = _exp_in_place(scores[r], bound)
                    if (
                        FACTORS == _BOTH
                    ):  # pairs within a tile add half to its rows and half to its columns, as all others do
                        half = scores.dtype.type(0.5 if t == own else 1.0)
                        totals[r] = _scale_by_sum(scores[r], inside[i], inside_columns, half)
                    if MATES == 1:
                        lo = min(max(mates_from[i] - t * TILE, 0), TILE)
                        hi = min(max(mates_to[i] - t * TILE, 0), TILE)
                        if FACTORS == _BY_CLASS:
                            _scale_both_ways(scores[r], inside[i], outside[i], inside_columns, outside_columns, lo, hi)
                        elif lo < hi:
                            sums[r, 0] += _sum_between(scores[r], lo, hi)
                            if t > own:
                                for j in range(lo, hi):
                                    columns[0, j] += scores[r, j]
                if VALUES == 1:
                    _dot_all(scores, tile_values, sums)
                if LOGS == 1:
                    one_dot(logs, weights, t, sums, 0)
                if LOGS == 1 or FACTORS == _BY_CLASS or weighted:
                    one_dot(scores, weights, t, sums, last)
                else:
                    for r in range(ROWS):
                        sums[r, last] += totals[r]
                if COLUMNS == _ALL and t > own:
                    _add_to_points(scores, values, place, columns)
                if COLUMNS == _MASS and (t > own or FACTORS == _BOTH):
                    if LOGS == 1:
                        _add_columns(columns[0], logs, b)
                    _add_columns(columns[columns.shape[0] - 1], scores, b)

    once.__name__ = once.__qualname__ = name  # Numba's cache and Dask's workers know a kernel by its name
    once.__doc__ = doc
    return _Kernel(once, _signature)


once_sums = _once("once_sums", "``K b``.", _MASS)
once_means = _once("once_means", "``K V`` and ``K b``.", _ALL, VALUES=1)
once_logs = _once("once_logs", "``(K log K) b`` and ``K b``; weights are given in any case.", _MASS, LOGS=1)
once_matches = _once("once_matches", "``K 1`` over class mates, and over all points.", _MASS, MATES=1)
once_scatter = _once("once_scatter", "``M V`` to rows, ``M b`` to both; f is `inside`.", _MASS, VALUES=1, FACTORS=_BOTH)
once_pull = _once("once_pull", "``M V`` and ``M b``; weights are given.", _ALL, VALUES=1, MATES=1, FACTORS=_BY_CLASS)
