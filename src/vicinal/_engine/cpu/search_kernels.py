"""Compiled: the best rows of a block for each query, from what products propose and by scores in float64."""

from typing import Any

import numpy as np
from numba import float64, int64, njit, types, void

from vicinal._engine.accuracy import SAME_DIRECTION, TIED
from vicinal._engine.work.compiling import _OPTIONS, _SUMS, _kernel

PRODUCT, DISTANCE, COSINE = 0, 1, 2  # the criteria by which rows are ranked

_GROUP, _LANES = 128, 16  # rows that are passed over at once, and numbers in a vector


@njit(fastmath=_SUMS, **_OPTIONS)
def _score(
    query: np.ndarray, rows: np.ndarray, j: int, query_factor: float, row_factor: float, ranked_by: int
) -> float:
    """Return the number by which row j is ranked, in float64, larger is better: the product, or minus the squared distance."""
    total = 0.0
    if ranked_by == PRODUCT:
        for t in range(query.shape[0]):
            total += query[t] * rows[j, t]
        return total
    for t in range(query.shape[0]):
        difference = query_factor * query[t] - row_factor * rows[j, t]
        total += difference * difference
    return -total


@njit(fastmath=_SUMS | {"nnan"}, **_OPTIONS)
def _highest(bounds: np.ndarray, tops: np.ndarray) -> float:
    """Fill `tops` with the largest of every _LANES-th row of each group of rows, and return the largest of all.

    Lanes are compared as whole vectors, which takes a third of the time of one maximum per group.
    """
    for group in range(bounds.shape[0] // _GROUP):
        for lane in range(_LANES):
            top = bounds[group * _GROUP + lane]
            for step in range(1, _GROUP // _LANES):
                top = max(top, bounds[group * _GROUP + step * _LANES + lane])
            tops[group * _LANES + lane] = top
    top = tops[0]
    for c in range(tops.shape[0]):
        top = max(top, tops[c])
    return top


@njit(**_OPTIONS)
def _number_above(tops: np.ndarray, group: int, groups: int, floor: float) -> int:
    """Return how many maxima of some groups of rows reach a floor."""
    number = 0
    for c in range(groups * _LANES):
        number += tops[group * _LANES + c] >= floor
    return number


@njit(**_OPTIONS)
def _kth_highest(tops: np.ndarray, highest: np.ndarray) -> float:
    """Return the k-th largest number, where k is the length of `highest`, which is overwritten; -inf if there are fewer."""
    highest[:] = -np.inf
    for c in range(tops.shape[0]):
        if tops[c] > highest[-1]:
            place = highest.shape[0] - 1
            while place > 0 and highest[place - 1] < tops[c]:
                highest[place] = highest[place - 1]
                place -= 1
            highest[place] = tops[c]
    return highest[-1]


@njit(**_OPTIONS)
def _floor(worst: float, length: float, ranked_by: int, margin: float) -> float:
    """Return the value that products must reach for a row that is as good as the worst row that is kept."""
    if ranked_by == PRODUCT:
        floor = worst
    elif ranked_by == DISTANCE:  # q'x - |x|^2 / 2 = (|q|^2 - |q - x|^2) / 2
        floor = 0.5 * (worst + length * length) - margin * length * length
    else:  # cos = 1 - |u - v|^2 / 2 for unit vectors u and v
        floor = 1.0 + 0.5 * worst
    return floor - margin * abs(floor)


@njit(**_OPTIONS)
def _insert(scores: np.ndarray, rows: np.ndarray, score: float, row: int, tie: float) -> None:
    """Put a row behind those that are better or tied; the last one drops out."""
    place = scores.shape[0] - 1
    while place > 0 and scores[place - 1] < score - tie:
        scores[place], rows[place] = scores[place - 1], rows[place - 1]
        place -= 1
    scores[place], rows[place] = score, row


def _signature(real: Any) -> Any:
    table, doubles = types.Array(float64, 2, "C", readonly=True), float64[::1]
    given = (table, doubles, doubles, table, doubles)
    return void(real[:, ::1], doubles, *given, int64, int64, float64, float64[:, ::1], int64[:, ::1])


@_kernel(_signature)
def take_best(
    bounds: np.ndarray,
    gaps: np.ndarray,
    queries: np.ndarray,
    lengths: np.ndarray,
    query_factors: np.ndarray,
    rows: np.ndarray,
    row_factors: np.ndarray,
    start: int,
    ranked_by: int,
    margin: float,
    best_scores: np.ndarray,
    best_rows: np.ndarray,
) -> None:
    """Merge the rows of a block into the best of each query.

    A row whose bound is as good as the worst row that a query keeps gets its score in float64, which decides. Rows are visited in their
    order, so the first of tied rows is kept.

    Parameters
    ----------
    bounds : array of shape (m, n)
        The largest score that a row may have, see `row_search.Table`; -inf for rows that are left out.
    gaps : float64 array of shape (m,)
        How far a score may be below its bound.
    queries, rows : float64 arrays of shape (m, d) and (n, d)
    lengths, query_factors, row_factors : float64 arrays
        The lengths of the queries, and the factors of queries and rows before differences are computed.
    start : int
        The number of the first row.
    margin : float
        Relative rounding of a floor in the precision of the bounds.
    best_scores, best_rows : arrays of shape (m, k)
        The best so far, best first; -inf and -1 at places that are still free.
    """
    n, k = rows.shape[0], best_scores.shape[1]
    real, groups = bounds.dtype.type, n // _GROUP
    tops, highest = np.empty(max(groups * _LANES, 1), dtype=bounds.dtype), np.empty(k, dtype=bounds.dtype)
    tops[0] = np.inf  # if there is no whole group
    for i in range(bounds.shape[0]):
        worst, of_query = best_scores[i, k - 1], bounds[i]
        floor = real(_floor(worst, lengths[i], ranked_by, margin))
        if _highest(of_query, tops) < floor and n == groups * _GROUP:
            continue
        if groups and _number_above(tops, 0, groups, floor) > k:
            floor = max(floor, real(_kth_highest(tops, highest) - gaps[i]))
        query, scores, numbers = queries[i], best_scores[i], best_rows[i]
        for group in range(groups + 1):
            if group < groups and _number_above(tops, group, 1, floor) == 0:
                continue
            for j in range(group * _GROUP, min((group + 1) * _GROUP, n)):
                if of_query[j] < floor or of_query[j] == -np.inf:
                    continue
                score = _score(query, rows, j, query_factors[i], row_factors[j], ranked_by)
                tie = TIED * abs(score) + (SAME_DIRECTION if ranked_by == COSINE else 0.0)
                if score > worst + tie:
                    _insert(scores, numbers, score, start + j, tie)
                    worst = scores[k - 1]
                    floor = max(floor, real(_floor(worst, lengths[i], ranked_by, margin)))
