"""Compiled: how far rows reach, and the tiles of points within their reach."""

from typing import Any

import numpy as np
from numba import boolean, float64, int32, int64, njit, types, uint16, void

from vicinal._engine.plan.boxes import (
    _BINS,
    BOXES_TYPE,
    SLACK,
    Boxes,
    PackedTiles,
    _apart_from_span,
    _are_within,
    _bin_of,
    _box,
    _offset_of_bin,
    _reach,
    _tails,
    tiles_type,
)
from vicinal._engine.tuning import PRUNED_TILE as TILE
from vicinal._engine.tuning import QUERY_GROUP, TILE_SPAN
from vicinal._engine.work.compiling import _OPTIONS, _kernel

GROUPS = TILE // QUERY_GROUP  # query groups of a tile
FOUR = 4  # rows that a sweep takes together; each four of a tile has a bit
_FOURS = (1 << (QUERY_GROUP // FOUR)) - 1  # the bits of a query group


@njit(**_OPTIONS)
def _box_of_tile(boxes: Boxes, t: int, box: np.ndarray) -> None:
    s, x = t // TILE_SPAN, t % TILE_SPAN
    for k in range(box.shape[1]):
        box[0, k], box[1, k] = boxes.low[s, k, x], boxes.high[s, k, x]


@njit(**_OPTIONS)
def _boxes_of_groups(queries: PackedTiles, t: int, rows: np.ndarray, low: np.ndarray, high: np.ndarray) -> int:
    """Compute the boxes of the query groups of a tile; return how many there are."""
    count = queries.starts[t + 1] - queries.starts[t]
    for j in range(count):
        for k in range(rows.shape[1]):
            rows[j, k] = float64(queries.packed[t, k, j]) + float64(queries.centres[t, k])
    for g in range(0, count, QUERY_GROUP):
        _box(rows, g, min(g + QUERY_GROUP, count), low[g // QUERY_GROUP], high[g // QUERY_GROUP])
    return -(-count // QUERY_GROUP)


def _radii_signature(real: Any) -> Any:
    ints, doubles, table = int64[::1], float64[::1], float64[:, ::1]
    rule = types.UniTuple(float64, 5)
    return void(
        tiles_type(real), BOXES_TYPE, BOXES_TYPE, doubles, rule, boolean, table, ints, ints, int64, int64, table
    )


@_kernel(_radii_signature)
def radii(
    queries: PackedTiles,
    boxes: Boxes,
    point_boxes: Boxes,
    mass: np.ndarray,
    rule: tuple[float, ...],
    once: bool,
    least: np.ndarray,
    first_tiles: np.ndarray,
    last_tiles: np.ndarray,
    from_tile: int,
    to_tile: int,
    radius: np.ndarray,
) -> None:
    """radius[t, g]: tiles of points at this squared distance, or farther, are within the error of all rows of group g of tile t.

    rule = (error, power, log_unit, log_all, shrink), and ``least[t, g]`` is a lower bound of the log-sums of the group's rows.  If each
    pair is visited *once*, parts of a tile may be skipped whose whole box is nearer, so a nearer tile counts as if it were at the radius.
    """
    error, power, log_unit, log_all, shrink = rule
    near, far, span_low, span_high = point_boxes.low, point_boxes.high, point_boxes.span_low, point_boxes.span_high
    n_tiles, n_spans, d = mass.shape[0], span_low.shape[0], queries.packed.shape[1]
    weights, tails, squares = np.empty(_BINS), np.empty(_BINS), np.empty(TILE_SPAN)
    box, rows, low, high = np.empty((2, d)), np.empty((TILE, d)), np.empty((GROUPS, d)), np.empty((GROUPS, d))
    distances, of_tiles, spans = np.empty(n_tiles), np.empty(n_tiles), np.empty(n_spans, np.int64)
    for t in range(from_tile, to_tile):
        lowest, near_spans = np.inf, 0
        for g in range(GROUPS):
            radius[t, g] = 0.0
            lowest = min(lowest, least[t, g])
        if lowest == np.inf:  # no row of it needs any tile
            continue
        reach = _reach(log_all - lowest - np.log(0.25 * error) + SLACK, power)
        _box_of_tile(boxes, t, box)
        for s in range(first_tiles[t] // TILE_SPAN, -(-last_tiles[t] // TILE_SPAN)):
            if _are_within(reach, shrink, box[0], box[1], span_low[s], span_high[s]):
                spans[near_spans] = s
                near_spans += 1
        for g in range(_boxes_of_groups(queries, t, rows, low, high)):
            if least[t, g] == np.inf:
                continue
            reach = _reach(log_all - least[t, g] - np.log(0.25 * error) + SLACK, power)
            radius[t, g], count, nearest = reach, 0, np.inf
            for s in spans[:near_spans]:
                if not _are_within(reach, shrink, low[g], high[g], span_low[s], span_high[s]):
                    continue
                _apart_from_span(low[g], high[g], near[s], far[s], squares)
                for x in range(max(first_tiles[t] - s * TILE_SPAN, 0), min(last_tiles[t] - s * TILE_SPAN, TILE_SPAN)):
                    square = squares[x] * shrink
                    if square < reach and mass[s * TILE_SPAN + x] > 0.0:
                        distances[count], of_tiles[count] = square, mass[s * TILE_SPAN + x]
                        nearest = min(nearest, square)
                        count += 1
            weights[:] = 0.0
            for c in range(count):
                weights[_bin_of(distances[c] - nearest)] += of_tiles[c]
            _tails(nearest, power, least[t, g], log_unit, weights, tails)
            nearer = 0.0
            for b in range(_BINS):
                square = nearest + _offset_of_bin(b)
                if square >= reach:
                    break
                if tails[b] <= 0.25 * error:
                    here = 0.0
                    if once and nearer > 0.0:
                        nats = np.inf
                        if square >= max(power, 1.0):
                            nats = log_unit - least[t, g] + 0.5 * power * np.log(square) - 0.5 * square + SLACK
                        here = nearer * np.exp(nats) if nats < 700.0 else np.inf
                    if here + tails[b] <= 0.25 * error:
                        radius[t, g] = square
                        break
                nearer += weights[b]


def _list_signature(real: Any) -> Any:
    ints, doubles, bits = int64[::1], float64[::1], uint16[::1]
    near = (ints, int32[::1], bits)
    return void(
        tiles_type(real), BOXES_TYPE, BOXES_TYPE, doubles, float64[:, ::1], doubles, doubles, float64, boolean, *near, ints,
        ints, int64, int64, ints, int32[::1], bits,
    )  # fmt: skip


@_kernel(_list_signature)
def list_tiles(
    queries: PackedTiles,
    boxes: Boxes,
    point_boxes: Boxes,
    mass: np.ndarray,
    radius: np.ndarray,
    point_radius: np.ndarray,
    widest: np.ndarray,
    shrink: float,
    once: bool,
    near_starts: np.ndarray,
    near_tiles: np.ndarray,
    near_groups: np.ndarray,
    first_tiles: np.ndarray,
    last_tiles: np.ndarray,
    from_tile: int,
    to_tile: int,
    counts: np.ndarray,
    tiles: np.ndarray,
    groups: np.ndarray,
) -> None:
    """List, for the tiles from..to of queries, the tiles of points within the radii of their groups, or (`point_radius`) of the points.

    `counts` tells how many there are for each tile, `groups` which of its fours of rows are concerned.  Those that have been visited before,
    `near`, are not listed; their tiles are in ascending order.  If each pair is visited once, only tiles from t on are listed.
    """
    near, far, span_low, span_high = point_boxes.low, point_boxes.high, point_boxes.span_low, point_boxes.span_high
    d, place = queries.packed.shape[1], 0
    box, squares, rows = np.empty((2, d)), np.empty(TILE_SPAN), np.empty((TILE, d))
    low, high, other = np.empty((GROUPS, d)), np.empty((GROUPS, d)), np.empty((2, d))
    for t in range(from_tile, to_tile):
        counts[t], farthest = 0, 0.0
        for g in range(GROUPS):
            farthest = max(farthest, radius[t, g])
        n_groups = _boxes_of_groups(queries, t, rows, low, high)
        _box_of_tile(boxes, t, box)
        first, last, before = max(first_tiles[t], t if once else 0), last_tiles[t], near_starts[t]
        for s in range(first // TILE_SPAN, -(-last // TILE_SPAN)):
            if not _are_within(max(farthest, widest[s]), shrink, box[0], box[1], span_low[s], span_high[s]):
                continue
            _apart_from_span(box[0], box[1], near[s], far[s], squares)
            for u in range(max(first, s * TILE_SPAN), min(last, (s + 1) * TILE_SPAN)):
                if not squares[u - s * TILE_SPAN] * shrink < max(farthest, point_radius[u]) or not mass[u] > 0.0:
                    continue
                _box_of_tile(point_boxes, u, other)
                bits = 0
                for g in range(n_groups):
                    if _are_within(max(radius[t, g], point_radius[u]), shrink, low[g], high[g], other[0], other[1]):
                        bits |= _FOURS << (g * (QUERY_GROUP // FOUR))
                while before < near_starts[t + 1] and near_tiles[before] < u:
                    before += 1
                if before < near_starts[t + 1] and near_tiles[before] == u:
                    bits &= ~int64(near_groups[before])
                if bits:
                    tiles[place], groups[place] = u, bits
                    place += 1
                    counts[t] += 1
