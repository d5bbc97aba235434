r"""Compiled: which tiles of points a group of queries visits, and its exponentials against them.

The rules are those of `cpu/parts.py`, whose functions are used here.

The points of a tile are stored about the tile's centre c, and a score is taken by products there,
``(q - c)'(z - c) - |z - c|^2 / 2``, which is the score plus ``|q - c|^2 / 2``: rounding errors are those of the
distance, however far the data are from their origin.  A tile that is *wide* (it spans clusters) has c = 0 and takes
differences instead.

For a group of queries (`sweep_group`):

1. Tiles whose boxes are so far away that all of them together contribute less than a quarter of the error to a lower
   bound on the row's sum, computed from its own tile, are not listed.
2. Those that are listed are visited from near to far, until all others together can contribute less than another
   quarter of the error to the sums so far.
3. Of a tile that is visited, distances come first.  If no row of four can gain more than ``error / (2 n)`` of its sum
   from any point of it, neither exponentials nor sums are taken.

The certificate is the sum of the bounds of what is skipped, relative to the sums.  docs/engine.md has the proof.
"""

from typing import Any

import numpy as np
from numba import float64, int64, njit

from vicinal._engine.cpu.parts import ROWS, _dot_all, _exp, _exp_in_place, _four_scores, _peaks
from vicinal._engine.plan.boxes import _BINS, SLACK, _apart, _box, _list_tiles, _reach, _tails
from vicinal._engine.tuning import KEPT_TILES, QUERY_GROUP, TILE_SPAN
from vicinal._engine.tuning import PRUNED_TILE as TILE
from vicinal._engine.work.compiling import _OPTIONS, _SUMS

# log(u^2) <= u^2 / 64 + _TANGENT, the tangent at 64.
_TANGENT = np.log(64.0) - 1.0


@njit(fastmath={"contract"}, **_OPTIONS)
def _tile_scores(
    queries: np.ndarray,
    first: int,
    in_group: int,
    points: tuple[np.ndarray, ...],
    t: int,
    left_out: np.ndarray,
    scores: np.ndarray,
    scratch: tuple[np.ndarray, ...],
) -> None:
    """Scores of a query group against a tile, each plus a constant of its row; rows beyond the last repeat it.

    tops[r] is the largest of them and peaks[r] the largest score.  Scores are compared with the known bound of the row
    relative to these two, because with a constant of 1e20 no other difference has any digits.
    """
    _, shifted, tops, peaks = scratch
    packed, centres, offsets, wide, starts = points
    d, last = queries.shape[1], first + in_group - 1
    for r in range(QUERY_GROUP):
        i, square = min(first + r, last), 0.0
        for k in range(d):
            x = queries[i, k] - centres[t, k]
            shifted[r, k] = x
            square += float64(x) * float64(x)
        peaks[r] = 0.0 if wide[t] else -0.5 * square
    for g in range(0, in_group, ROWS):
        some = scores[g : g + ROWS]
        _four_scores(shifted, g, packed[t], offsets[t], not wide[t], some)
        for r in range(g, min(g + ROWS, in_group)):
            skip = left_out[first + r] - starts[t]
            if 0 <= skip < TILE:
                scores[r, skip] = -np.inf
        _peaks(some, tops[g : g + ROWS])
    for r in range(in_group):
        peaks[r] += tops[r]


@njit(fastmath=_SUMS, **_OPTIONS)
def _exp_and_logs(scores: np.ndarray, shift: float) -> tuple[float, float]:
    """scores <- e = exp(scores - shift); return sum_j e_j and sum_j e_j log e_j."""
    total, logs = scores.dtype.type(0), scores.dtype.type(0)
    for j in range(scores.shape[0]):
        x = scores[j] - shift
        e = _exp(x)
        scores[j] = e
        total += e
        logs += e * max(x, scores.dtype.type(-800))  # for -inf, the product would be NaN
    return total, logs


# -- a lower bound on every row's sum -----------------------------------------------------------------------------


@njit(**_OPTIONS)
def _lower_bounds(
    queries: np.ndarray,
    first: int,
    stop: int,
    points: tuple[np.ndarray, ...],
    mass: np.ndarray,
    home: np.ndarray,
    first_tile: int,
    last_tile: int,
    left_out: np.ndarray,
    low: np.ndarray,
    scratch: tuple[np.ndarray, ...],
) -> None:
    """low[i - first] <= log sum_j exp(s_ij), from the row's home tile; -inf only for a row without any neighbour."""
    scores, _, tops, peaks = scratch
    i = first
    while i < stop:
        count = 1
        while count < QUERY_GROUP and i + count < stop and home[i + count] == home[i]:
            count += 1
        _tile_scores(queries, i, count, points, home[i], left_out, scores, scratch)
        for r in range(count):
            low[i + r - first] = _log_sum(scores[r], peaks[r], tops[r])
        for r in range(count):
            distance = 0
            while low[i + r - first] == -np.inf and distance < last_tile - first_tile:
                distance += 1
                for t in (home[i] - distance, home[i] + distance):
                    if first_tile <= t < last_tile and mass[t] > 0.0:
                        _tile_scores(queries, i + r, int64(1), points, t, left_out, scores, scratch)
                        low[i + r - first] = max(low[i + r - first], _log_sum(scores[0], peaks[0], tops[0]))
        i += count


@njit(**_OPTIONS)
def _log_sum(scores: np.ndarray, peak: float, top: float) -> float:
    if not peak > -np.inf:
        return -np.inf
    return peak + np.log(float64(_exp_in_place(scores, scores.dtype.type(top)))) - 1e-3


# -- a group of queries --------------------------------------------------------------------------------------------


@njit(**_OPTIONS)
def make_workspace(n_tiles: int, d: int, n_values: int, queries: np.ndarray) -> tuple[Any, ...]:
    """Return the working arrays of `sweep_group`: lists of tiles, scores, and what a query group keeps of each tile that it
    visits."""
    lists = (
        np.empty(n_tiles, np.int64), np.empty(n_tiles), np.empty(_BINS, np.int64), np.empty(_BINS),
        np.empty(n_tiles, np.int64),
    )  # fmt: skip
    dtype = queries.dtype
    scratch = (
        np.empty((QUERY_GROUP, TILE), dtype),
        np.empty((QUERY_GROUP, d), dtype),
        np.empty(QUERY_GROUP),
        np.empty(QUERY_GROUP),
    )
    kept = (
        np.empty((min(n_tiles, KEPT_TILES), QUERY_GROUP, TILE), dtype),
        np.empty(n_tiles, np.int64), np.empty((n_tiles, QUERY_GROUP // ROWS), np.bool_), np.empty((n_tiles, QUERY_GROUP)),
        np.empty((n_tiles, QUERY_GROUP, n_values + 2)),
    )  # fmt: skip
    state = (np.empty(QUERY_GROUP), np.empty(QUERY_GROUP), np.empty(QUERY_GROUP))
    return lists, scratch, kept, state, np.empty(_BINS)


@njit(fastmath={"contract"}, **_OPTIONS)
def sweep_group(
    queries: np.ndarray,
    first: int,
    in_group: int,
    left_out: np.ndarray,
    low: np.ndarray,
    points: tuple[np.ndarray, ...],
    plan: tuple[Any, ...],
    heavy: np.ndarray,
    rule: tuple[float, ...],
    spans: np.ndarray,
    n_spans: int,
    first_tile: int,
    last_tile: int,
    values: np.ndarray,
    keep: bool,
    with_logs: bool,
    workspace: tuple[Any, ...],
    counts: np.ndarray,
) -> int:
    """Compute the exponentials of a query group against the tiles that matter to it; return how many tiles were taken.

    rule = (error, power, log_unit, log_all, n_points).  Of the tiles taken, `workspace` has the numbers, which rows were,
    the shifts of the rows at the time, and the sums of the values, of the exponentials and of them times their
    logarithms; of the rows, the last shift and the total below it, and what was skipped relative to the total.
    """
    error, power, log_unit, log_all, n_points = rule
    lists, scratch, kept, state, tails = workspace
    spare, _, tops, peaks = scratch
    exponentials, tile_of, alive, shifts, sums = kept
    shift, total, certificate = state
    d, n_values = queries.shape[1], values.shape[1]
    group_box = np.empty((2, d))
    _box(queries, first, first + in_group, group_box[0], group_box[1])
    least = np.inf
    for r in range(in_group):
        if low[r] > -np.inf:
            least = min(least, low[r])
    taken = 0
    known, skipped = np.empty(QUERY_GROUP), np.zeros(QUERY_GROUP)
    log_share = np.log(0.5 * error / n_points) - SLACK
    for r in range(QUERY_GROUP):
        seen = r < in_group and low[r] > -np.inf
        shift[r], total[r], certificate[r] = low[r] if seen else 0.0, 0.0, 0.0
        known[r] = log_share + low[r] if seen else np.inf
    if least == np.inf:  # no query has a neighbour
        return 0
    reach = _reach(log_all - least - np.log(0.25 * error) + SLACK, power)
    listed, nearest = _list_tiles(group_box, reach, plan, spans, n_spans, first_tile, last_tile, lists)
    _tails(nearest, power, least, log_unit, lists[3], tails)
    ends, ordered = lists[2], lists[4]
    c, rest = 0, 0.0
    for b in range(_BINS):
        if c == listed:
            break
        if c == ends[b]:  # an empty bin
            continue
        smallest = np.inf
        for r in range(in_group):
            if low[r] > -np.inf:
                smallest = min(smallest, known[r] - log_share)
        if tails[b] <= 0.25 * error * np.exp(min(smallest - least, 600.0)):
            rest = tails[b]
            break
        while c < ends[b]:
            t = ordered[c]
            c += 1
            scores = exponentials[taken] if keep and taken < exponentials.shape[0] else spare
            _tile_scores(queries, first, in_group, points, t, left_out, scores, scratch)
            counts[0] += in_group * TILE
            any_alive = False
            for g in range(0, in_group, ROWS):
                near = False
                for r in range(g, min(g + ROWS, in_group)):
                    bound = peaks[r] + heavy[t]
                    if power > 0.0:
                        bound += power * ((plan[4][t] - peaks[r]) / 64.0 + 0.5 * _TANGENT)
                    # They are equal if scores of 1e20 have no digits left for the difference.
                    near = near or bound >= known[r]
                alive[taken, g // ROWS] = near
                if not near:
                    for r in range(g, min(g + ROWS, in_group)):
                        skipped[r] += TILE
                    continue
                any_alive = True
                counts[1] += TILE * min(ROWS, in_group - g)
                for r in range(g, g + ROWS):
                    sums[taken, r, :] = 0.0
                    shifts[taken, r] = shift[r]
                    if r >= in_group or low[r] == -np.inf or peaks[r] == -np.inf:
                        scores[r, :] = 0
                        continue
                    if peaks[r] > shift[r] + 30.0:
                        total[r] *= np.exp(shift[r] - peaks[r])
                        shift[r] = peaks[r]
                        shifts[taken, r] = shift[r]
                    below = scores.dtype.type(tops[r] + (shift[r] - peaks[r]))
                    if with_logs:
                        e, logs = _exp_and_logs(scores[r], below)
                        sums[taken, r, n_values + 1] = logs
                    else:
                        e = _exp_in_place(scores[r], below)
                    sums[taken, r, n_values] = e
                    total[r] += e
                    if (
                        e > 0.02 * total[r]
                    ):  # the known bound may lag behind a little, because computing a logarithm takes time
                        known[r] = max(known[r], log_share + shift[r] + np.log(total[r]))
                if n_values > 0:
                    _dot_all(scores[g : g + ROWS], values[t], sums[taken, g : g + ROWS])
            if any_alive:
                tile_of[taken] = t
                taken += 1
    far = 0.25 * error if listed < last_tile - first_tile else 0.0
    for r in range(in_group):
        if total[r] > 0.0:
            by_boxes = (far + rest) * np.exp(least - shift[r] - np.log(total[r]))
            certificate[r] = 1.03 * (by_boxes + 0.5 * error * skipped[r] / n_points)
    return taken


@njit(**_OPTIONS)
def start_block(
    queries: np.ndarray,
    left_out: np.ndarray,
    home: np.ndarray,
    start: int,
    stop: int,
    first_tile: int,
    last_tile: int,
    points: tuple[np.ndarray, ...],
    plan: tuple[Any, ...],
    rule: tuple[float, ...],
    low: np.ndarray,
    spans: np.ndarray,
    scratch: tuple[np.ndarray, ...],
) -> int:
    """Lower bounds of the rows of a block, and the spans of tiles that one of its query groups may have to list."""
    error, power, _, log_all, _ = rule
    _lower_bounds(queries, start, stop, points, plan[5], home, first_tile, last_tile, left_out, low, scratch)
    least = np.inf
    for r in range(stop - start):
        if low[r] > -np.inf:
            least = min(least, low[r])
    if least == np.inf:
        return 0
    reach = _reach(log_all - least - np.log(0.25 * error) + SLACK, power)
    box = np.empty((2, queries.shape[1]))
    _box(queries, start, stop, box[0], box[1])
    count = 0
    for s in range(first_tile // TILE_SPAN, -(-last_tile // TILE_SPAN)):
        if _apart(box[0], box[1], plan[2][s], plan[3][s]) * plan[6] < reach:
            spans[count] = s
            count += 1
    return count


@njit(**_OPTIONS)
def exponentials_of_tile(
    queries: np.ndarray,
    first: int,
    in_group: int,
    points: tuple[np.ndarray, ...],
    left_out: np.ndarray,
    c: int,
    workspace: tuple[Any, ...],
) -> np.ndarray:
    """Return the exponentials of the c-th tile that a query group took, below its shifts at the time: kept, or made
    again."""
    _, scratch, kept, _, _ = workspace
    exponentials, tile_of, _, shifts, _ = kept
    if c < exponentials.shape[0]:
        return exponentials[c]
    scores, _, tops, peaks = scratch
    _tile_scores(queries, first, in_group, points, tile_of[c], left_out, scores, scratch)
    for r in range(in_group):
        if peaks[r] > -np.inf:
            _exp_in_place(scores[r], scores.dtype.type(tops[r] + (shifts[c, r] - peaks[r])))
        else:
            scores[r, :] = 0
    scores[in_group:] = 0
    return scores
