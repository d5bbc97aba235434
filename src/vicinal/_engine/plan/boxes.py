"""Compiled: tiles of points with their boxes, and how much the points of far boxes can contribute."""

from typing import Any, NamedTuple

import numpy as np
from numba import boolean, float64, int64, njit, types, void

from vicinal._engine.tuning import PRUNED_TILE as TILE
from vicinal._engine.tuning import QUERY_GROUP, TILE_SPAN
from vicinal._engine.work.compiling import _OPTIONS, _kernel, _to_bits

# Bins of squared distances: of width 1 up to _FINE beyond the nearest tile, then 8 of equal width per octave.
_FINE, _BINS = 96, 256
# Rounding errors of exponentials, sums and scores are below this many nats, by which bounds are raised.
SLACK = 0.02


class PackedTiles(NamedTuple):
    """Points in tiles: about their centres (n_tiles, k, TILE), the centres (n_tiles, k), what each point adds to scores (n_tiles, TILE),
    which tiles are wide (their points are about the origin, and distances are computed from differences), and where tiles begin."""

    packed: np.ndarray
    centres: np.ndarray
    offsets: np.ndarray
    wide: np.ndarray
    starts: np.ndarray


class Boxes(NamedTuple):
    """The boxes of tiles (n_spans, k, TILE_SPAN), and those of spans of tiles (n_spans, k)."""

    low: np.ndarray
    high: np.ndarray
    span_low: np.ndarray
    span_high: np.ndarray


def tiles_type(real: Any) -> Any:
    """Return Numba's type of `PackedTiles`."""
    return types.NamedTuple((real[:, :, ::1], real[:, ::1], real[:, ::1], boolean[::1], int64[::1]), PackedTiles)


BOXES_TYPE = types.NamedTuple((float64[:, :, ::1], float64[:, :, ::1], float64[:, ::1], float64[:, ::1]), Boxes)

# -- tiles --------------------------------------------------------------------------------------------------------


def _tiles_signature(real: Any) -> Any:
    a2, a3, doubles = real[:, ::1], real[:, :, ::1], float64[::1]
    boxes = float64[:, :, ::1]
    return void(
        a2, real[::1], int64[::1], float64, int64, int64, a3, a2, a2, boolean[::1], boxes, boxes, doubles, doubles
    )


@_kernel(_tiles_signature)
def fill_tiles(
    images: np.ndarray,
    log_weights: np.ndarray,
    starts: np.ndarray,
    widest: float,
    from_tile: int,
    to_tile: int,
    packed: np.ndarray,
    centres: np.ndarray,
    offsets: np.ndarray,
    wide: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    mass: np.ndarray,
    heaviest: np.ndarray,
) -> None:
    """Pack tiles from..to: their points about their centres, what each point adds to scores, boxes and weights.

    mass[t] = log sum_j w_j over the tile and heaviest[t] = max_j log w_j; both are -inf for a tile without weight.
    """
    d = images.shape[1]
    weighted = log_weights.shape[0] > 0
    for t in range(from_tile, to_tile):
        first, count = starts[t], starts[t + 1] - starts[t]
        s, x = t // TILE_SPAN, t % TILE_SPAN
        for k in range(d):
            lo, hi = float64(images[first, k]), float64(images[first, k])
            for i in range(first, first + count):
                lo, hi = min(lo, float64(images[i, k])), max(hi, float64(images[i, k]))
            low[s, k, x], high[s, k, x] = lo, hi
            centres[t, k] = 0.5 * lo + 0.5 * hi
        top = -np.inf if weighted else 0.0
        radius = 0.0
        for j in range(count):
            square = 0.0
            for k in range(d):
                y = images[first + j, k] - centres[t, k]
                packed[t, k, j] = y
                square += float64(y) * float64(y)
            radius = max(radius, square)
            offsets[t, j] = -0.5 * square
            if weighted:
                offsets[t, j] = log_weights[first + j] - 0.5 * square
                top = max(top, float64(log_weights[first + j]))
        wide[t] = not radius <= widest
        if wide[t]:
            for k in range(d):
                centres[t, k] = 0
                for j in range(count):
                    packed[t, k, j] = images[first + j, k]
            for j in range(count):
                offsets[t, j] = log_weights[first + j] if weighted else 0
        for j in range(count, TILE):
            offsets[t, j] = -np.inf
            for k in range(d):
                packed[t, k, j] = 0
        heaviest[t] = mass[t] = top
        if not weighted:
            mass[t] = np.log(float64(count))
        elif top > -np.inf:
            total = 0.0
            for j in range(count):
                total += np.exp(float64(log_weights[first + j]) - top)
            mass[t] = top + np.log(total)


def _home_signature(real: Any) -> Any:
    return void(real[:, ::1], BOXES_TYPE, float64[::1], int64[::1])


@_kernel(_home_signature)
def home_tiles(images: np.ndarray, boxes: Boxes, mass: np.ndarray, homes: np.ndarray) -> None:
    """homes[i] = the tile of positive weight whose box is nearest to row i or, if several boxes contain it, whose middle is.

    Successive rows should be near each other.  The search for the rows of a query group begins in the span of the last home, and
    continues in the other spans that are at least as near to one of them as the nearest tile found so far.
    """
    low, high, span_low, span_high = boxes.low, boxes.high, boxes.span_low, boxes.span_high
    m, d, last = images.shape[0], images.shape[1], int64(0)
    box, found, outside = np.empty((2, d)), np.empty((QUERY_GROUP, 2)), np.empty(TILE_SPAN)
    rows, home = np.empty((QUERY_GROUP, d)), np.zeros(QUERY_GROUP, np.int64)
    for first in range(0, m, QUERY_GROUP):
        count, farthest = min(QUERY_GROUP, m - first), np.inf
        _box(images, first, first + count, box[0], box[1])
        for r in range(count):
            for k in range(d):
                rows[r, k] = images[first + r, k]
        found[:, :] = np.inf
        home[:] = 0
        for step in range(span_low.shape[0] + 1):
            s = last if step == 0 else step - 1
            if step > 0 and (s == last or _apart(box[0], box[1], span_low[s], span_high[s]) > farthest):
                continue
            _apart_from_span(box[0], box[1], low[s], high[s], outside)
            for x in range(min(TILE_SPAN, mass.shape[0] - s * TILE_SPAN)):
                if outside[x] <= farthest and mass[s * TILE_SPAN + x] > -np.inf:
                    _go_home(rows, count, low[s], high[s], x, s * TILE_SPAN + x, home, found)
            farthest = 0.0
            for r in range(count):
                farthest = max(farthest, found[r, 0])
        for r in range(count):
            homes[first + r] = home[r]
        last = home[count - 1] // TILE_SPAN


@njit(**_OPTIONS)
def _go_home(
    rows: np.ndarray, count: int, low: np.ndarray, high: np.ndarray, x: int, t: int, home: np.ndarray, found: np.ndarray
) -> None:
    """home[r] = tile t, number x of a span with these boxes, for the rows to which it is nearer than their homes.

    found[r] = the squared distances of a row from the box of its home, and from the middle of that.
    """
    for r in range(count):
        outside, middle = 0.0, 0.0
        for k in range(rows.shape[1]):
            gap = max(max(low[k, x] - rows[r, k], rows[r, k] - high[k, x]), 0.0)
            outside += gap * gap
        if not outside <= found[r, 0]:
            continue
        for k in range(rows.shape[1]):
            gap = rows[r, k] - 0.5 * (low[k, x] + high[k, x])
            middle += gap * gap
        is_nearer = middle < found[r, 1] or (middle == found[r, 1] and t < home[r])
        if outside < found[r, 0] or (outside == found[r, 0] and is_nearer):
            home[r], found[r, 0], found[r, 1] = t, outside, middle


# -- which tiles --------------------------------------------------------------------------------------------------


@njit(fastmath={"contract"}, **_OPTIONS)
def _box(queries: np.ndarray, first: int, stop: int, low: np.ndarray, high: np.ndarray) -> None:
    for k in range(queries.shape[1]):
        lo, hi = float64(queries[first, k]), float64(queries[first, k])
        for i in range(first + 1, stop):
            lo, hi = min(lo, float64(queries[i, k])), max(hi, float64(queries[i, k]))
        low[k], high[k] = lo, hi


@njit(fastmath={"contract"}, **_OPTIONS)
def _apart(low: np.ndarray, high: np.ndarray, other_low: np.ndarray, other_high: np.ndarray) -> float:
    """Return the squared distance of two boxes."""
    total = 0.0
    for k in range(low.shape[0]):
        gap = max(max(other_low[k] - high[k], low[k] - other_high[k]), 0.0)
        total += gap * gap
    return total


@njit(fastmath={"contract"}, **_OPTIONS)
def _are_within(
    square: float, shrink: float, low: np.ndarray, high: np.ndarray, other_low: np.ndarray, other_high: np.ndarray
) -> bool:
    """Return whether the squared distance of two boxes, times a factor, is below a number."""
    total = 0.0
    for k in range(low.shape[0]):
        gap = max(max(other_low[k] - high[k], low[k] - other_high[k]), 0.0)
        total += gap * gap
        if not total * shrink < square:
            return False
    return True


@njit(fastmath={"contract", "nnan", "nsz"}, **_OPTIONS)
def _apart_from_span(
    low: np.ndarray, high: np.ndarray, other_low: np.ndarray, other_high: np.ndarray, out: np.ndarray
) -> None:
    """The squared distances of a box from TILE_SPAN others, (k, TILE_SPAN)."""
    for x in range(TILE_SPAN):
        out[x] = 0.0
    for k in range(low.shape[0]):
        lo, hi = low[k], high[k]
        for x in range(TILE_SPAN):
            gap = max(max(other_low[k, x] - hi, lo - other_high[k, x]), 0.0)
            out[x] += gap * gap


@njit(**_OPTIONS)
def _reach(log_mass: float, power: float) -> float:
    """Return a squared distance R with ``log_mass + power/2 log R - R/2 <= 0`` from there on: at least 32, beyond any
    maximum."""
    a = max(2.0 * log_mass, 16.0)
    reach = 2.0 * max(a, 16.0)
    for _ in range(3):  # the fixed point is approached from above, so the iteration may stop at any step
        reach = a + power * np.log(reach)
    return max(reach, 32.0)


@njit(**_OPTIONS)
def _offset_of_bin(b: int) -> float:
    """Return how much farther than the nearest tile the tiles of a bin are, at least."""
    if b <= _FINE:
        return float64(b)
    eighths = 8 + (b - _FINE) % 8
    return float64(eighths * (_FINE // 8) << ((b - _FINE) // 8))


@njit(**_OPTIONS)
def _bin_of(beyond: float) -> int:
    """Return the bin of a tile that is so much farther than the nearest one: the last whose offset is not larger."""
    if beyond < _FINE:
        return int(beyond)
    # The exponent and the first three digits of a number: eighths of octaves.
    b = min(_FINE + (_to_bits(beyond / _FINE) >> 49) - (1023 << 3), _BINS - 1)
    return b - 1 if _offset_of_bin(b) > beyond else b  # the quotient may have been rounded up


@njit(**_OPTIONS)
def _tails(nearest: float, power: float, least: float, log_unit: float, weights: np.ndarray, tails: np.ndarray) -> None:
    """tails[b]: the most that the tiles of bins b and beyond can contribute, in units of exp(least).

    Tiles nearer than the maximum of u^p exp(-u^2 / 2) are never skipped.  A bin without tiles contributes nothing,
    whatever its bound: 0 times infinity is NaN, and a tail of NaN would skip everything.
    """
    tail = 0.0
    for b in range(_BINS - 1, -1, -1):
        if weights[b] > 0.0:
            square = nearest + _offset_of_bin(b)
            nats = np.inf
            if square >= max(power, 1.0):
                nats = log_unit - least - 0.5 * square + SLACK
                if power > 0.0:
                    nats += 0.5 * power * np.log(square)
            tail = tail + weights[b] * np.exp(nats) if nats < 700.0 else np.inf
        tails[b] = tail
