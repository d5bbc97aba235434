"""Compiled: points against themselves, each pair once for both of its rows, for few coordinates.

The kernel K_ij = exp(-|z_i - z_j|^2 / 2) is symmetric.  A block of rows, which begins at the row `start` of a tile,
is combined with the tiles from_tile..to_tile that are not before its own; a pair adds to its row in `row_sums` (padded to
whole ROWS) and, in later tiles, to its column in `column_sums` (n_tiles, width, TILE) as well.  Nothing is kept between tiles,
so memory traffic does not grow with n.  Rows are shifted by `bounds`; the caller finds those whose sum underflowed.
`queries`, `bounds`, `left_out` and `values` are those of the block; everything else is for all points.  `weights` b, in
tiles padded with zeros, are the last column of the values; if there are none, all weights are 1.
"""

from collections.abc import Callable
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
from vicinal._engine.work.compiling import _OPTIONS, _SUMS, _kernel

# Smaller logarithms belong to exponentials that are 0; minus infinity times 0 would not be.
_LOWEST_LOG = -1e4


@njit(fastmath={"contract"}, **_OPTIONS)
def _half_exponentials(
    queries: np.ndarray,
    first: int,
    count: int,
    points: np.ndarray,
    offsets: np.ndarray,
    bounds: np.ndarray,
    by_products: bool,
    left_out: np.ndarray,
    j0: int,
    scores: np.ndarray,
    peaks: np.ndarray,
    totals: np.ndarray,
) -> None:
    """K for ROWS rows against a tile, zero for rows beyond the last, and each row's sum."""
    _scores(queries, first, count, points, offsets, by_products, left_out, j0, False, scores, peaks)
    for r in range(ROWS):
        if r < count:
            totals[r] = _exp_in_place(scores[r], scores.dtype.type(bounds[first + r]))
        else:
            scores[r, :] = 0
            totals[r] = 0.0


def _half_signature(own: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], Any]:
    """Return the signature of a symmetric kernel from the types of its additional arguments."""

    def signature(real: Any) -> Any:
        a2, a3 = real[:, ::1], real[:, :, ::1]
        pairs = (a2, a3, a2, float64[::1], float64, types.boolean, int64[::1])
        return void(*pairs, *own(real), int64, int64, int64, float64[:, ::1], a3)

    return signature


@_kernel(_half_signature(lambda real: (real[:, ::1], real[:, :, ::1], real[:, ::1])))
def half_sums(
    queries: np.ndarray,
    points: np.ndarray,
    offsets: np.ndarray,
    bounds: np.ndarray,
    smallest: float,
    by_products: bool,
    left_out: np.ndarray,
    values: np.ndarray,
    packed_values: np.ndarray,
    weights: np.ndarray,
    start: int,
    from_tile: int,
    to_tile: int,
    row_sums: np.ndarray,
    column_sums: np.ndarray,
) -> None:
    """``K V``."""
    scores, peaks, totals = np.empty((ROWS, TILE), dtype=points.dtype), np.empty(ROWS), np.empty(ROWS)
    n_rows, last = queries.shape[0], packed_values.shape[1]
    for t in range(from_tile, to_tile):
        tile, tile_offsets, tile_values, columns = points[t], offsets[t], packed_values[t], column_sums[t - from_tile]
        for place in range(0, n_rows, ROWS):
            own = (start + place) // TILE
            if t < own:
                continue
            _half_exponentials(
                queries, place, min(ROWS, n_rows - place), tile, tile_offsets, bounds, by_products, left_out,
                t * TILE, scores, peaks, totals,
            )  # fmt: skip
            if last > 0:
                _dot_all(scores, tile_values, row_sums[place : place + ROWS])
            if weights.shape[0] > 0:
                one_dot(scores, weights, t, row_sums[place : place + ROWS], last)
            else:
                for r in range(ROWS):
                    row_sums[place + r, last] += totals[r]
            if t > own:
                _add_to_points(scores, values, place, columns)


@njit(fastmath={"contract"}, **_OPTIONS)
def _times_logs(scores: np.ndarray, bound: float, products: np.ndarray) -> None:
    """Scores of a row -> K and K log K; both are 0 for a pair that is left out."""
    for j in range(TILE):
        products[j] = max(scores[j] - bound, scores.dtype.type(_LOWEST_LOG))
    _exp_in_place(scores, bound)
    for j in range(TILE):
        products[j] *= scores[j]


@_kernel(_half_signature(lambda real: (real[:, ::1], real[:, ::1])))
def half_logs(
    queries: np.ndarray,
    points: np.ndarray,
    offsets: np.ndarray,
    bounds: np.ndarray,
    smallest: float,
    by_products: bool,
    left_out: np.ndarray,
    row_weights: np.ndarray,
    weights: np.ndarray,
    start: int,
    from_tile: int,
    to_tile: int,
    row_sums: np.ndarray,
    column_sums: np.ndarray,
) -> None:
    """``(K log K) b`` and ``K b``; `row_weights` (m, 1) are b of the block, `weights` are in tiles, also if all are 1."""
    scores, products = np.empty((ROWS, TILE), dtype=points.dtype), np.empty((ROWS, TILE), dtype=points.dtype)
    peaks, b = np.empty(ROWS), np.zeros(ROWS, dtype=points.dtype)
    n_rows = queries.shape[0]
    for t in range(from_tile, to_tile):
        tile, tile_offsets = points[t], offsets[t]
        logs, sums = column_sums[t - from_tile, 0], column_sums[t - from_tile, 1]
        for place in range(0, n_rows, ROWS):
            own, count = (start + place) // TILE, min(ROWS, n_rows - place)
            if t < own:
                continue
            _scores(queries, place, count, tile, tile_offsets, by_products, left_out, t * TILE, False, scores, peaks)
            for r in range(ROWS):
                if r < count:
                    _times_logs(scores[r], scores.dtype.type(bounds[place + r]), products[r])
                    b[r] = row_weights[place + r, 0]
                else:
                    scores[r, :], products[r, :], b[r] = 0, 0, 0
            one_dot(products, weights, t, row_sums[place : place + ROWS], 0)
            one_dot(scores, weights, t, row_sums[place : place + ROWS], 1)
            if t > own:
                for j in range(TILE):
                    logs[j] += (
                        b[0] * products[0, j] + b[1] * products[1, j] + b[2] * products[2, j] + b[3] * products[3, j]
                    )
                    sums[j] += b[0] * scores[0, j] + b[1] * scores[1, j] + b[2] * scores[2, j] + b[3] * scores[3, j]


@_kernel(_half_signature(lambda real: (real[:, :, ::1], real[:, ::1], real[::1])))
def half_scatter(
    queries: np.ndarray,
    points: np.ndarray,
    offsets: np.ndarray,
    bounds: np.ndarray,
    smallest: float,
    by_products: bool,
    left_out: np.ndarray,
    packed_values: np.ndarray,
    weights: np.ndarray,
    factors: np.ndarray,
    start: int,
    from_tile: int,
    to_tile: int,
    row_sums: np.ndarray,
    column_sums: np.ndarray,
) -> None:
    """``M V`` for ``M_ij = K_ij (f_i + f_j)``, to the rows of each pair; to its columns only ``M b``.

    The pairs within a tile add half to its rows and half to its columns, as all others do.  `factors` f are
    padded with zeros to whole tiles.
    """
    scores, peaks, totals = np.empty((ROWS, TILE), dtype=points.dtype), np.empty(ROWS), np.empty(ROWS)
    b = np.empty(ROWS)
    n_rows, last = queries.shape[0], packed_values.shape[1]
    for t in range(from_tile, to_tile):
        of_columns = factors[t * TILE : (t + 1) * TILE]
        tile, tile_offsets, tile_values, column = points[t], offsets[t], packed_values[t], column_sums[t - from_tile, 0]
        for place in range(0, n_rows, ROWS):
            first, count = start + place, min(ROWS, n_rows - place)
            own = first // TILE
            if t < own:
                continue
            _half_exponentials(
                queries, place, count, tile, tile_offsets, bounds, by_products, left_out, t * TILE,
                scores, peaks, totals,
            )  # fmt: skip
            half = scores.dtype.type(0.5 if t == own else 1.0)
            for r in range(count):
                total = _scale_by_sum(scores[r], factors[first + r], of_columns, half)
                b[r] = 1.0
                if weights.shape[0] > 0:
                    b[r] = weights[(first + r) // TILE, (first + r) % TILE]
                else:
                    row_sums[place + r, last] += total
            for r in range(count, ROWS):
                b[r] = 0.0
            _dot_all(scores, tile_values, row_sums[place : place + ROWS])
            if weights.shape[0] > 0:
                one_dot(scores, weights, t, row_sums[place : place + ROWS], last)
            _add_columns(column, scores, b)


@njit(fastmath=_SUMS, **_OPTIONS)
def _scale_by_sum(weights: np.ndarray, factor: float, of_columns: np.ndarray, half: float) -> float:
    """weights[j] *= half (factor + of_columns[j]); return their sum."""
    total = weights.dtype.type(0)
    for j in range(weights.shape[0]):
        weight = weights[j] * (half * (factor + of_columns[j]))
        weights[j] = weight
        total += weight
    return total


@_kernel(_half_signature(lambda real: (int64[::1], int64[::1])))
def half_matches(
    queries: np.ndarray,
    points: np.ndarray,
    offsets: np.ndarray,
    bounds: np.ndarray,
    smallest: float,
    by_products: bool,
    left_out: np.ndarray,
    mates_from: np.ndarray,
    mates_to: np.ndarray,
    start: int,
    from_tile: int,
    to_tile: int,
    row_sums: np.ndarray,
    column_sums: np.ndarray,
) -> None:
    """``K 1``, and the same over class mates only; points are sorted by class, mates of row i at mates_from..to."""
    scores, peaks, totals = np.empty((ROWS, TILE), dtype=points.dtype), np.empty(ROWS), np.empty(ROWS)
    n_rows = queries.shape[0]
    for t in range(from_tile, to_tile):
        tile, tile_offsets = points[t], offsets[t]
        column, matched = column_sums[t - from_tile, 0], column_sums[t - from_tile, 1]
        for place in range(0, n_rows, ROWS):
            first, count = start + place, min(ROWS, n_rows - place)
            own = first // TILE
            if t < own:
                continue
            _half_exponentials(
                queries, place, count, tile, tile_offsets, bounds, by_products, left_out, t * TILE,
                scores, peaks, totals,
            )  # fmt: skip
            for r in range(ROWS):
                row_sums[place + r, 0] += totals[r]
            if t > own:
                for j in range(TILE):
                    column[j] += scores[0, j] + scores[1, j] + scores[2, j] + scores[3, j]
            for r in range(count):
                lo, hi = max(mates_from[first + r] - t * TILE, 0), min(mates_to[first + r] - t * TILE, TILE)
                if lo < hi:
                    row_sums[place + r, 1] += _sum_between(scores[r], lo, hi)
                    if t > own:
                        for j in range(lo, hi):
                            matched[j] += scores[r, j]


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


def _half_pull_arguments(real: Any) -> tuple[Any, ...]:
    return real[:, ::1], real[:, :, ::1], real[:, ::1], int64[::1], int64[::1], real[::1], real[::1]


@_kernel(_half_signature(_half_pull_arguments))
def half_pull(
    queries: np.ndarray,
    points: np.ndarray,
    offsets: np.ndarray,
    bounds: np.ndarray,
    smallest: float,
    by_products: bool,
    left_out: np.ndarray,
    values: np.ndarray,
    packed_values: np.ndarray,
    weights: np.ndarray,
    mates_from: np.ndarray,
    mates_to: np.ndarray,
    inside: np.ndarray,
    outside: np.ndarray,
    start: int,
    from_tile: int,
    to_tile: int,
    row_sums: np.ndarray,
    column_sums: np.ndarray,
) -> None:
    """``M V`` for ``M_ij = K_ij (g_i + g_j)``, g the row's factor `inside` its class or `outside` it.

    `inside` and `outside` are padded with zeros to whole tiles.
    """
    scores, peaks, totals = np.empty((ROWS, TILE), dtype=points.dtype), np.empty(ROWS), np.empty(ROWS)
    n_rows, last = queries.shape[0], packed_values.shape[1]
    for t in range(from_tile, to_tile):
        inside_columns, outside_columns = inside[t * TILE : (t + 1) * TILE], outside[t * TILE : (t + 1) * TILE]
        tile, tile_offsets, tile_values, columns = points[t], offsets[t], packed_values[t], column_sums[t - from_tile]
        for place in range(0, n_rows, ROWS):
            first, count = start + place, min(ROWS, n_rows - place)
            own = first // TILE
            if t < own:
                continue
            _half_exponentials(
                queries, place, count, tile, tile_offsets, bounds, by_products, left_out, t * TILE,
                scores, peaks, totals,
            )  # fmt: skip
            for r in range(count):
                i = first + r
                lo = min(max(mates_from[i] - t * TILE, 0), TILE)
                hi = min(max(mates_to[i] - t * TILE, 0), TILE)
                _scale_both_ways(scores[r], inside[i], outside[i], inside_columns, outside_columns, lo, hi)
            _dot_all(scores, tile_values, row_sums[place : place + ROWS])
            one_dot(scores, weights, t, row_sums[place : place + ROWS], last)
            if t > own:
                _add_to_points(scores, values, place, columns)
