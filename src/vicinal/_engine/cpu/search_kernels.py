"""Compiled: the best rows of a block for each query, by fast products with a margin and by scores in float64."""

from typing import Any

import numpy as np
from numba import float64, int64, njit, types, void

from vicinal._engine.accuracy import SAME_DIRECTION, TIED
from vicinal._engine.work.compiling import _OPTIONS, _SUMS, _kernel

PRODUCT, DISTANCE, COSINE = 0, 1, 2  # the criteria by which rows are ranked

_CHUNK = 64  # products that are compared with a floor at once


@njit(fastmath=_SUMS, **_OPTIONS)
def _score(query: np.ndarray, row: np.ndarray, query_factor: float, row_factor: float, ranked_by: int) -> float:
    """Return the number by which a row is ranked, in float64, larger is better: the product, or minus the squared distance."""
    total = 0.0
    if ranked_by == PRODUCT:
        for t in range(query.shape[0]):
            total += float64(query[t]) * float64(row[t])
        return total
    for t in range(query.shape[0]):
        difference = query_factor * float64(query[t]) - row_factor * float64(row[t])
        total += difference * difference
    return -total


@njit(fastmath=_SUMS | {"nnan"}, **_OPTIONS)
def _highest(products: np.ndarray, scale: np.ndarray, offset: np.ndarray, slack: np.ndarray, size: float) -> float:
    """Return the largest score that one of these rows may have."""
    top = products[0] * scale[0] + offset[0] + size * slack[0]
    for j in range(1, products.shape[0]):
        top = max(top, products[j] * scale[j] + offset[j] + size * slack[j])
    return top


@njit(**_OPTIONS)
def _floor(worst: float, size: float, ranked_by: int, margin: float) -> float:
    """Return the value that the scores of `_highest` must reach to be better than the worst row that is kept."""
    if ranked_by == PRODUCT:
        floor = worst
    elif ranked_by == DISTANCE:  # q'x - |x|^2 / 2 = (|q|^2 - |q - x|^2) / 2
        floor = 0.5 * (worst + size * size) - margin * size * size
    else:  # |q| cos = |q| (1 - |u - v|^2 / 2) for unit vectors u and v
        floor = size * (1.0 + 0.5 * worst)
    return floor - margin * abs(floor)


@njit(**_OPTIONS)
def _tie(score: float, ranked_by: int) -> float:
    """Return the difference below which scores are tied."""
    return TIED * abs(score) + (SAME_DIRECTION if ranked_by == COSINE else 0.0)


@njit(**_OPTIONS)
def _insert(scores: np.ndarray, rows: np.ndarray, score: float, row: int, tie: float) -> None:
    """Put a row behind those that are better or tied; the last one drops out."""
    place = scores.shape[0] - 1
    while place > 0 and scores[place - 1] < score - tie:
        scores[place], rows[place] = scores[place - 1], rows[place - 1]
        place -= 1
    scores[place], rows[place] = score, row


@_kernel(lambda real: void(types.Array(real, 2, "C", readonly=True), float64[::1]))
def square_lengths(rows: np.ndarray, squares: np.ndarray) -> None:
    """squares[i] = |rows[i]|^2, in float64."""
    for i in range(rows.shape[0]):
        squares[i] = _score(rows[i], rows[i], 1.0, 1.0, PRODUCT)


def _signature(real: Any) -> Any:
    table, ints = types.Array(real, 2, "C", readonly=True), int64[::1]
    doubles, reals = float64[::1], real[::1]
    of_rows = (table, doubles, reals, reals, reals)
    return void(
        real[:, ::1], table, doubles, doubles, *of_rows, ints, int64, int64, float64, doubles, float64[:, ::1], int64[:, ::1]
    )  # fmt: skip


@_kernel(_signature)
def take_best(
    products: np.ndarray,
    queries: np.ndarray,
    sizes: np.ndarray,
    query_factors: np.ndarray,
    rows: np.ndarray,
    row_factors: np.ndarray,
    scale: np.ndarray,
    offset: np.ndarray,
    slack: np.ndarray,
    left_out: np.ndarray,
    start: int,
    ranked_by: int,
    margin: float,
    floors: np.ndarray,
    best_scores: np.ndarray,
    best_rows: np.ndarray,
) -> None:
    """Merge the rows of a block into the best of each query.

    The score of a row may reach ``products * scale + offset + sizes * slack``. If that is as good as the worst row that a
    query keeps, its score in float64 decides. Rows are visited in their order, so the first of tied rows is kept.

    Parameters
    ----------
    products : array of shape (m, n)
        ``queries @ rows.T``; overwritten at the places that are left out.
    sizes, query_factors : float64 arrays of shape (m,)
        The lengths of the queries, and the factors by which they are multiplied before differences are computed.
    row_factors : float64 array of shape (n,)
    left_out : int array of shape (m,)
        A row of the whole table, which starts at `start`, that is left out for each query, or -1.
    margin : float
        Relative rounding of a floor in the working precision.
    floors : float64 array of shape (m,)
        Scores that at least k rows of this block reach; -inf if that is not known.
    best_scores, best_rows : arrays of shape (m, k)
        The best so far, best first; -inf and -1 at places that are still free.
    """
    n, k = rows.shape[0], best_scores.shape[1]
    real = products.dtype.type
    for i in range(products.shape[0]):
        skip = left_out[i] - start
        if 0 <= skip < n:
            products[i, skip] = -np.inf
        worst, size = best_scores[i, k - 1], real(sizes[i])
        floor = real(max(floors[i], _floor(worst, sizes[i], ranked_by, margin)))
        for first in range(0, n, _CHUNK):
            last = min(first + _CHUNK, n)
            if (
                _highest(products[i, first:last], scale[first:last], offset[first:last], slack[first:last], size)
                < floor
            ):
                continue
            for j in range(first, last):
                if products[i, j] * scale[j] + offset[j] + size * slack[j] < floor or j == skip:
                    continue
                score = _score(queries[i], rows[j], query_factors[i], row_factors[j], ranked_by)
                tie = _tie(score, ranked_by)
                if score > worst + tie:
                    _insert(best_scores[i], best_rows[i], score, start + j, tie)
                    worst = best_scores[i, k - 1]
                    floor = real(max(floors[i], _floor(worst, sizes[i], ranked_by, margin)))
