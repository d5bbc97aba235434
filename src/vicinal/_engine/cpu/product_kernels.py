"""Compiled: the passes between matrix products, for many coordinates."""

from typing import Any

import numpy as np
from numba import float64, int64, njit, types, void

from vicinal._engine.cpu.once_kernels import _scale_both_ways, _scale_by_sum
from vicinal._engine.cpu.parts import _add_to_log_sums, _exp, _products_to_scores, _scale_sides, _sum_between
from vicinal._engine.cpu.row_kernels import _factors_of_row
from vicinal._engine.work.compiling import _OPTIONS, _SUMS, _kernel


def _tile_signature(real: Any) -> Any:
    doubles = float64[::1]
    return void(real[:, ::1], real[::1], int64[::1], int64, doubles, doubles, doubles, doubles)


@_kernel(_tile_signature)
def exponentials_of_products(
    products: np.ndarray,
    column_offsets: np.ndarray,
    left_out: np.ndarray,
    j0: int,
    top: np.ndarray,
    total: np.ndarray,
    rescale: np.ndarray,
    shifts: np.ndarray,
) -> None:
    """products q_i'z_j -> exponentials of the scores, added to the log-sum-exp state of each row.

    The score is ``products + column_offsets[j]``, up to a constant of the row; `shifts` returns each row's top.
    """
    peaks = np.empty(products.shape[0])
    for r in range(products.shape[0]):
        skip = left_out[r] - j0
        if 0 <= skip < products.shape[1]:
            products[r, skip] = -np.inf
        peaks[r] = _products_to_scores(products[r], column_offsets)
    _add_to_log_sums(products, peaks, 0, top, total, rescale)
    for r in range(products.shape[0]):
        shifts[r] = top[r]


@_kernel(lambda real: void(real[:, ::1], int64[::1], int64[::1], float64[::1], float64[::1], int64))
def scale_sides(
    weights: np.ndarray, mates_from: np.ndarray, mates_to: np.ndarray, inside: np.ndarray, outside: np.ndarray, j0: int
) -> None:
    """Multiply a tile of exponentials by each row's factor inside and outside its class."""
    width = weights.shape[1]
    for r in range(weights.shape[0]):
        lo, hi = min(max(mates_from[r] - j0, 0), width), min(max(mates_to[r] - j0, 0), width)
        _scale_sides(weights[r], inside[r], outside[r], lo, hi)


@_kernel(lambda real: void(real[:, ::1], int64[::1], int64[::1], int64, float64[::1]))
def add_matched(
    weights: np.ndarray, mates_from: np.ndarray, mates_to: np.ndarray, j0: int, matched: np.ndarray
) -> None:
    """matched[r] += the row's exponentials inside its class."""
    width = weights.shape[1]
    for r in range(weights.shape[0]):
        lo, hi = min(max(mates_from[r] - j0, 0), width), min(max(mates_to[r] - j0, 0), width)
        if lo < hi:
            matched[r] += _sum_between(weights[r], lo, hi)


def _class_factors_signature(real: Any) -> Any:
    doubles = float64[::1]
    return void(real[:, ::1], types.boolean, doubles, doubles, doubles, float64, float64, doubles, doubles, doubles)


@_kernel(_class_factors_signature)
def class_factors(
    queries: np.ndarray,
    likelihood: bool,
    matched: np.ndarray,
    total: np.ndarray,
    row_weights: np.ndarray,
    least_agreement: float,
    smallest: float,
    inside: np.ndarray,
    outside: np.ndarray,
    log_agreement: np.ndarray,
) -> None:
    """`_factors_of_row` for each row of a block; `queries` only carries the precision."""
    for r in range(matched.shape[0]):
        inside[r], outside[r], log_agreement[r] = _factors_of_row(
            likelihood, matched[r], total[r], row_weights[r], least_agreement, smallest
        )


@njit(fastmath=_SUMS, **_OPTIONS)
def _exp_of_products(products: np.ndarray, column_offsets: np.ndarray, shift: float) -> None:
    """products <- e = exp(products + column_offsets - shift)."""
    for j in range(products.shape[0]):
        products[j] = _exp(products[j] + column_offsets[j] - shift)


@njit(fastmath=_SUMS, **_OPTIONS)
def _dot(a: np.ndarray, b: np.ndarray) -> float:
    total = a.dtype.type(0)
    for j in range(a.shape[0]):
        total += a[j] * b[j]
    return float64(total)


@njit(fastmath={"contract"}, **_OPTIONS)
def _add_scaled(out: np.ndarray, values: np.ndarray, factor: float) -> None:
    for j in range(values.shape[0]):
        out[j] += factor * values[j]


def _under_bounds_signature(real: Any) -> Any:
    reals, doubles = real[::1], float64[::1]
    return void(real[:, ::1], reals, doubles, int64[::1], int64, reals, reals, types.boolean, float64[:], float64[:])


@_kernel(_under_bounds_signature)
def exponentials_under_bounds(
    products: np.ndarray,
    column_offsets: np.ndarray,
    bounds: np.ndarray,
    left_out: np.ndarray,
    j0: int,
    row_weights: np.ndarray,
    column_weights: np.ndarray,
    both: bool,
    row_sums: np.ndarray,
    column_sums: np.ndarray,
) -> None:
    """products q_i'z_j -> exponentials K of the scores less each row's bound.

    Given weights b (not empty), row_sums += K b and, for `both`, column_sums += K' b.
    """
    width = products.shape[1]
    columns = np.zeros(width, dtype=products.dtype)
    for r in range(products.shape[0]):
        skip = left_out[r] - j0
        if 0 <= skip < width:
            products[r, skip] = -np.inf
        _exp_of_products(products[r], column_offsets, products.dtype.type(bounds[r]))
        if row_weights.shape[0] > 0:
            row_sums[r] += _dot(products[r], column_weights)
            if both:
                _add_scaled(columns, products[r], row_weights[r])
    if both and row_weights.shape[0] > 0:
        for j in range(width):
            column_sums[j] += columns[j]


def _matches_both_ways_signature(real: Any) -> Any:
    ints = int64[::1]
    return void(real[:, ::1], ints, ints, int64, types.boolean, float64[:], float64[:])


@_kernel(_matches_both_ways_signature)
def add_matches_both_ways(
    weights: np.ndarray,
    mates_from: np.ndarray,
    mates_to: np.ndarray,
    j0: int,
    both: bool,
    row_matched: np.ndarray,
    column_matched: np.ndarray,
) -> None:
    """Add a tile's exponentials among class mates to the rows and, for `both`, to the columns."""
    width = weights.shape[1]
    for r in range(weights.shape[0]):
        lo, hi = min(max(mates_from[r] - j0, 0), width), min(max(mates_to[r] - j0, 0), width)
        if lo < hi:
            row_matched[r] += _sum_between(weights[r], lo, hi)
            if both:
                for j in range(lo, hi):
                    column_matched[j] += weights[r, j]


def _scale_both_ways_signature(real: Any) -> Any:
    ints, reals = int64[::1], real[::1]
    return void(real[:, ::1], ints, ints, int64, reals, reals, reals, reals)


@_kernel(_scale_both_ways_signature)
def scale_both_ways(
    weights: np.ndarray,
    mates_from: np.ndarray,
    mates_to: np.ndarray,
    j0: int,
    inside: np.ndarray,
    outside: np.ndarray,
    inside_columns: np.ndarray,
    outside_columns: np.ndarray,
) -> None:
    """Multiply a tile of exponentials by the sum of its row's and its column's factor, inside and outside the class."""
    width = weights.shape[1]
    for r in range(weights.shape[0]):
        lo, hi = min(max(mates_from[r] - j0, 0), width), min(max(mates_to[r] - j0, 0), width)
        _scale_both_ways(weights[r], inside[r], outside[r], inside_columns, outside_columns, lo, hi)


def _scale_for_scatter_signature(real: Any) -> Any:
    reals = real[::1]
    return void(real[:, ::1], reals, reals, reals, reals, float64, float64[:], float64[:])


@_kernel(_scale_for_scatter_signature)
def scale_for_scatter(
    weights: np.ndarray,
    factors: np.ndarray,
    of_columns: np.ndarray,
    row_weights: np.ndarray,
    column_weights: np.ndarray,
    half: float,
    row_sums: np.ndarray,
    column_sums: np.ndarray,
) -> None:
    """Multiply a tile of exponentials by ``half (f_i + f_j)`` to M; row_sums += M b, column_sums += M' b."""
    columns = np.zeros(weights.shape[1], dtype=weights.dtype)
    for r in range(weights.shape[0]):
        _scale_by_sum(weights[r], factors[r], of_columns, weights.dtype.type(half))
        row_sums[r] += _dot(weights[r], column_weights)
        _add_scaled(columns, weights[r], row_weights[r])
    for j in range(weights.shape[1]):
        column_sums[j] += columns[j]
