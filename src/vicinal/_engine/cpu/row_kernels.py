"""Compiled: whole reductions on a block of queries, fused, for few coordinates."""

from typing import Any

import numpy as np
from numba import float64, int64, njit, types, void

from vicinal._engine.cpu.parts import (
    KEPT_ROW_GROUP,
    ROW_GROUP,
    ROWS,
    TILE,
    _add_columns,
    _add_to_log_sums,
    _add_to_points,
    _back,
    _begin_log_sums,
    _dot_all,
    _inverse,
    _scale_sides,
    _scores,
    _sum_between,
    _underflowed,
)
from vicinal._engine.work.compiling import _OPTIONS, _kernel


def _softmax_signature(real: Any) -> Any:
    a2, a3 = real[:, ::1], real[:, :, ::1]
    doubles, ints = float64[::1], int64[::1]
    pairs = (a2, a3, a2, doubles, float64, types.boolean, ints)
    return void(*pairs, a3, doubles, doubles, float64[:, ::1], a2, a3)


@_kernel(_softmax_signature)
def softmax_rows(
    queries: np.ndarray,
    points: np.ndarray,
    offsets: np.ndarray,
    bounds: np.ndarray,
    smallest: float,
    by_products: bool,
    left_out: np.ndarray,
    values: np.ndarray,
    row_weights: np.ndarray,
    log_sums: np.ndarray,
    means: np.ndarray,
    columns: np.ndarray,
    kept: np.ndarray,
) -> None:
    """A block of rows: log-sum-exp, softmax means of the values, and what each column receives.

    columns += sum_i row_weights_i p_ij; pass an empty array to skip this.  A row's normaliser is known only after its
    last tile, so `kept` holds the exponentials of the rows of a group: (n_tiles, KEPT_ROW_GROUP, TILE), or (1, ROWS, TILE) without
    columns.  If `smallest` is infinite, every row is computed with its own maximum from the start.
    """
    n_tiles, n_values = points.shape[0], values.shape[1]
    want_columns = columns.shape[0] > 0
    size = KEPT_ROW_GROUP if want_columns else ROW_GROUP
    shifts = np.empty((n_tiles if want_columns else 1, size))
    peaks, top, total, rescale = np.empty(ROWS), np.empty(size), np.empty(size), np.empty(ROWS)
    factors, shares = np.zeros(ROWS), np.empty(size)
    sums = np.empty((size, n_values))
    n_rows = queries.shape[0]
    for first in range(0, n_rows, size):
        in_group = min(size, n_rows - first)
        for careful in (False, True):
            if not careful and smallest == np.inf:
                total[:] = 0.0
                continue
            if careful and not _underflowed(total, in_group, smallest):
                break
            _begin_log_sums(bounds, first, in_group, careful, top, total)
            sums[:, :] = 0.0
            for t in range(n_tiles):
                tile, tile_offsets, tile_values = points[t], offsets[t], values[t]
                for g in range(0, in_group, ROWS):
                    count = min(ROWS, in_group - g)
                    scores = kept[t, g : g + ROWS] if want_columns else kept[0]
                    _scores(
                        queries, first + g, count, tile, tile_offsets, by_products, left_out, t * TILE, careful,
                        scores, peaks,
                    )  # fmt: skip
                    _add_to_log_sums(scores, peaks, g, top, total, rescale)
                    for r in range(ROWS):
                        if want_columns:
                            shifts[t, g + r] = top[g + r]
                        if rescale[r] != 1.0:
                            for k in range(n_values):
                                sums[g + r, k] *= rescale[r]
                    if n_values > 0:
                        _dot_all(scores, tile_values, sums[g : g + ROWS])
        for r in range(size):
            shares[r] = _inverse(total[r]) if r < in_group else 0.0
            if r < in_group:
                log_sums[first + r] = top[r] + np.log(total[r])
                for k in range(n_values):
                    means[first + r, k] = sums[r, k] * shares[r]
                if want_columns:
                    shares[r] *= row_weights[first + r]
        if want_columns:
            for t in range(n_tiles):
                column = columns[t]
                for g in range(0, in_group, ROWS):
                    for r in range(ROWS):
                        factors[r] = 0.0
                        if shares[g + r] != 0.0:
                            factors[r] = shares[g + r] * _back(shifts[t, g + r], top[g + r])
                    _add_columns(column, kept[t, g : g + ROWS], factors)


def _class_signature(real: Any) -> Any:
    a2, a3 = real[:, ::1], real[:, :, ::1]
    doubles, ints = float64[::1], int64[::1]
    pairs = (a2, a3, a2, doubles, float64, types.boolean, ints)
    return void(*pairs, ints, doubles, float64[:, ::1], a2)


@_kernel(_class_signature)
def class_rows(
    queries: np.ndarray,
    points: np.ndarray,
    offsets: np.ndarray,
    bounds: np.ndarray,
    smallest: float,
    by_products: bool,
    left_out: np.ndarray,
    class_bounds: np.ndarray,
    log_sums: np.ndarray,
    shares: np.ndarray,
    scores: np.ndarray,
) -> None:
    """A block of rows: log-sum-exp and each class's share of the softmax.

    Points are sorted by class; class c is at class_bounds[c]..class_bounds[c + 1].
    """
    n_tiles, n_classes = points.shape[0], shares.shape[1]
    peaks, top, total, rescale = np.empty(ROWS), np.empty(ROWS), np.empty(ROWS), np.empty(ROWS)
    sums = np.empty((ROWS, n_classes))
    n_rows = queries.shape[0]
    for first in range(0, n_rows, ROWS):
        in_group = min(ROWS, n_rows - first)
        for careful in (False, True):
            if careful and not _underflowed(total, in_group, smallest):
                break
            _begin_log_sums(bounds, first, in_group, careful, top, total)
            sums[:, :] = 0.0
            lowest = 0
            for t in range(n_tiles):
                _scores(
                    queries,
                    first,
                    in_group,
                    points[t],
                    offsets[t],
                    by_products,
                    left_out,
                    t * TILE,
                    careful,
                    scores,
                    peaks,
                )
                _add_to_log_sums(scores, peaks, 0, top, total, rescale)
                while lowest < n_classes - 1 and class_bounds[lowest + 1] <= t * TILE:
                    lowest += 1
                for r in range(in_group):
                    if rescale[r] != 1.0:
                        for c in range(n_classes):
                            sums[r, c] *= rescale[r]
                    c = lowest
                    while c < n_classes and class_bounds[c] < (t + 1) * TILE:
                        lo, hi = max(class_bounds[c] - t * TILE, 0), min(class_bounds[c + 1] - t * TILE, TILE)
                        sums[r, c] += _sum_between(scores[r], lo, hi)
                        c += 1
        for r in range(in_group):
            log_sums[first + r] = top[r] + np.log(total[r])
            inverse = _inverse(total[r])
            for c in range(n_classes):
                shares[first + r, c] = sums[r, c] * inverse


@njit(fastmath={"contract"}, **_OPTIONS)
def _factors_of_row(
    likelihood: bool, matched: float, total: float, row_weight: float, least_agreement: float, smallest: float
) -> tuple[float, float, float]:
    """Factors of a row's exponentials inside and outside its class (`Pull`), and log a_i.

    Under "likelihood" a row whose class mates are too far for this precision gets factors of zero and log-agreement
    NaN: the caller computes such rows with the reference backend.
    """
    if total == 0.0:  # a row without neighbours has no agreement and no pull
        return 0.0, 0.0, -np.inf
    agreement = matched / total
    if likelihood:
        if agreement < least_agreement or matched < smallest:
            return 0.0, 0.0, np.nan
        return row_weight * (1.0 - 1.0 / agreement) / total, row_weight / total, np.log(agreement)
    return row_weight * (agreement - 1.0) / total, row_weight * agreement / total, np.log(agreement)


def _signed_signature(real: Any) -> Any:
    a2, a3 = real[:, ::1], real[:, :, ::1]
    doubles, ints = float64[::1], int64[::1]
    pairs = (a2, a3, a2, doubles, float64, types.boolean, ints)
    return void(
        *pairs,
        doubles,
        ints,
        ints,
        types.boolean,
        float64,
        doubles,
        doubles,
        float64[:, ::1],
        a3,
        a3,
    )


@_kernel(_signed_signature)
def signed_rows(
    queries: np.ndarray,
    points: np.ndarray,
    offsets: np.ndarray,
    bounds: np.ndarray,
    smallest: float,
    by_products: bool,
    left_out: np.ndarray,
    row_weights: np.ndarray,
    mates_from: np.ndarray,
    mates_to: np.ndarray,
    likelihood: bool,
    least_agreement: float,
    log_sums: np.ndarray,
    log_agreement: np.ndarray,
    on_queries: np.ndarray,
    on_points: np.ndarray,
    kept: np.ndarray,
) -> None:
    """A block of rows of `Pull` for hard classes; points are sorted by class, and the class mates of query i are at mates_from..to.

    on_points (n_tiles, d + 1, TILE) gathers ``sum_i w_ij q_i`` and, in its last line, ``sum_i w_ij``.
    """
    n_tiles, d = points.shape[0], points.shape[1]
    shifts = np.empty((n_tiles, KEPT_ROW_GROUP))
    peaks, top, total, rescale = np.empty(ROWS), np.empty(KEPT_ROW_GROUP), np.empty(KEPT_ROW_GROUP), np.empty(ROWS)
    matched, inside, outside = np.empty(KEPT_ROW_GROUP), np.zeros(KEPT_ROW_GROUP), np.zeros(KEPT_ROW_GROUP)
    sums, weight, ones = np.empty((KEPT_ROW_GROUP, d)), np.empty(KEPT_ROW_GROUP), np.ones(ROWS)
    n_rows = queries.shape[0]
    for first in range(0, n_rows, KEPT_ROW_GROUP):
        in_group = min(KEPT_ROW_GROUP, n_rows - first)
        for careful in (False, True):
            if careful and not _underflowed(total, in_group, smallest):
                break
            _begin_log_sums(bounds, first, in_group, careful, top, total)
            matched[:] = 0.0
            for t in range(n_tiles):
                tile, tile_offsets = points[t], offsets[t]
                for g in range(0, in_group, ROWS):
                    count = min(ROWS, in_group - g)
                    scores = kept[t, g : g + ROWS]
                    _scores(
                        queries, first + g, count, tile, tile_offsets, by_products, left_out, t * TILE, careful,
                        scores, peaks,
                    )  # fmt: skip
                    _add_to_log_sums(scores, peaks, g, top, total, rescale)
                    for r in range(ROWS):
                        shifts[t, g + r] = top[g + r]
                        matched[g + r] *= rescale[r]
                        if r < count:
                            lo = min(max(mates_from[first + g + r] - t * TILE, 0), TILE)
                            hi = min(max(mates_to[first + g + r] - t * TILE, 0), TILE)
                            if lo < hi:
                                matched[g + r] += _sum_between(scores[r], lo, hi)
        for r in range(in_group):
            i = first + r
            inside[r], outside[r], log_agreement[i] = _factors_of_row(
                likelihood, matched[r], total[r], row_weights[i], least_agreement, smallest
            )
            log_sums[i] = top[r] + np.log(total[r])
        sums[:, :] = 0.0
        weight[:] = 0.0
        for t in range(n_tiles):
            tile, given = points[t], on_points[t]
            for g in range(0, in_group, ROWS):
                weights = kept[t, g : g + ROWS]
                for r in range(ROWS):
                    if g + r < in_group:
                        i = first + g + r
                        lo = min(max(mates_from[i] - t * TILE, 0), TILE)
                        hi = min(max(mates_to[i] - t * TILE, 0), TILE)
                        back = _back(shifts[t, g + r], top[g + r]) if total[g + r] > 0.0 else 0.0
                        _scale_sides(weights[r], inside[g + r] * back, outside[g + r] * back, lo, hi)
                        weight[g + r] += _sum_between(weights[r], 0, TILE)
                    else:
                        weights[r, :] = 0
                _dot_all(weights, tile, sums[g : g + ROWS])
                _add_to_points(weights, queries, first + g, given)
                _add_columns(given[d], weights, ones)
        for r in range(in_group):
            for k in range(d):
                on_queries[first + r, k] = weight[r] * queries[first + r, k] - sums[r, k]
