"""Compiled: tiles of points with their boxes, and which of them are within reach of a group of queries."""

from typing import Any

import numpy as np
from numba import boolean, float64, int64, njit, void

from vicinal._engine._kernels import _OPTIONS, _kernel
from vicinal._engine._tuning import PRUNED_TILE as TILE
from vicinal._engine._tuning import TILE_SPAN

# Bins of squared distances: of width 1 up to _FINE beyond the nearest tile, then 8 per octave.
_FINE, _BINS = 96, 256
# Rounding errors of exponentials, sums and scores are below this many nats, by which bounds are raised.
SLACK = 0.02

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
    boxes = float64[:, :, ::1]
    return void(real[:, ::1], int64[::1], boxes, boxes, float64[::1], int64[::1])


@_kernel(_home_signature)
def home_tiles(
    images: np.ndarray, rows: np.ndarray, low: np.ndarray, high: np.ndarray, mass: np.ndarray, homes: np.ndarray
) -> None:
    """homes[h] = the tile of positive weight whose box is nearest to a row or, if several boxes contain it, whose middle is."""
    d = images.shape[1]
    for h in range(homes.shape[0]):
        best, best_middle, home = np.inf, np.inf, 0
        for t in range(mass.shape[0]):
            if mass[t] == -np.inf:
                continue
            s, x = t // TILE_SPAN, t % TILE_SPAN
            outside, middle = 0.0, 0.0
            for k in range(d):
                q = float64(images[rows[h], k])
                gap = max(max(low[s, k, x] - q, q - high[s, k, x]), 0.0)
                outside += gap * gap
                gap = q - 0.5 * (low[s, k, x] + high[s, k, x])
                middle += gap * gap
            if outside < best or (outside == best and middle < best_middle):
                best, best_middle, home = outside, middle, t
        homes[h] = home


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
    return float64(b) if b <= _FINE else _FINE * 2.0 ** ((b - _FINE) / 8.0)


@njit(**_OPTIONS)
def _list_tiles(
    group_box: np.ndarray,
    reach: float,
    plan: tuple[Any, ...],
    spans: np.ndarray,
    n_spans: int,
    first_tile: int,
    last_tile: int,
    lists: tuple[np.ndarray, ...],
) -> tuple[int, float]:
    """List the tiles within reach of a query group, from near to far by bins; return how many there are, and the nearest.

    lists = (tiles, distances, ends, weights, sorted): the last holds the result, ``ends[b]`` is the end of bin b in it and
    ``weights[b]`` the weight of its tiles in units of the heaviest.
    """
    low, high, mass = plan[0], plan[1], plan[5]
    tiles, distances, ends, weights, ordered = lists
    span = np.empty(TILE_SPAN)
    shrink = plan[6]
    count, nearest = 0, np.inf
    for s in spans[:n_spans]:
        _apart_from_span(group_box[0], group_box[1], low[s], high[s], span)
        for x in range(max(first_tile - s * TILE_SPAN, 0), min(last_tile - s * TILE_SPAN, TILE_SPAN)):
            square = span[x] * shrink
            if square < reach and mass[s * TILE_SPAN + x] > 0.0:
                tiles[count], distances[count] = s * TILE_SPAN + x, square
                nearest = min(nearest, square)
                count += 1
    ends[:] = 0
    weights[:] = 0.0
    for c in range(count):
        beyond = distances[c] - nearest
        b = int64(beyond)
        if beyond >= _FINE:
            b = min(int64(_FINE + 8.0 * np.log2(beyond / _FINE)), _BINS - 1)
            if _offset_of_bin(b) > beyond:  # rounded up by the logarithm
                b -= 1
        distances[c] = b
        ends[b] += 1
        weights[b] += mass[tiles[c]]
    start = 0
    for b in range(_BINS):
        start, ends[b] = start + ends[b], start
    for c in range(count):
        b = int64(distances[c])
        ordered[ends[b]] = tiles[c]
        ends[b] += 1
    return count, nearest


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
                nats = log_unit - least + 0.5 * power * np.log(square) - 0.5 * square + SLACK
            tail = tail + weights[b] * np.exp(nats) if nats < 700.0 else np.inf
        tails[b] = tail
