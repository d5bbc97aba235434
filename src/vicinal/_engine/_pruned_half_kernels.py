"""Compiled: points against themselves, each pair once for both of its rows, over the pairs of tiles that matter.

After an edit of `_kernels.py`, `_pruned_boxes.py` or `_pruned_sweep.py` touch this file: a disk cache does not notice edits in other files.

With the scores ``s_ij = log b_j - |z_i - z_j|^2 / 2``, a pair that is seen by its row i as s_ij is seen by row j as
``s_ji = s_ij - log b_j + log b_i``.  A row has a threshold T_i for its scores, below which all of them together are within
its error (`_pruned_half.py`).  With the levels ``A_i = T_i + log b_i``, a pair is skipped if it is below the thresholds of
both of its rows: ``s_ij + log b_i < min(A_i, A_j)``.  Four rows are judged together, against the 64 points of a tile.
"""

import numpy as np
from numba import boolean, float64, int64, njit, types, uint16, void

from vicinal._engine._kernels import _OPTIONS, ROWS, _add_columns, _dot_all, _exp_in_place, _four_scores, _kernel
from vicinal._engine._pruned_boxes import (
    _BINS,
    SLACK,
    _apart,
    _apart_from_span,
    _box,
    _list_tiles,
    _offset_of_bin,
    _reach,
    _tails,
)
from vicinal._engine._pruned_sweep import _lower_bounds
from vicinal._engine._tuning import PRUNED_TILE as TILE
from vicinal._engine._tuning import QUERY_GROUP, TILE_SPAN

_GROUPS = TILE // ROWS


def _types(real):
    a2, a3, doubles, ints = real[:, ::1], real[:, :, ::1], float64[::1], int64[::1]
    boxes, table = float64[:, :, ::1], float64[:, ::1]
    points = types.Tuple((a3, a2, a2, boolean[::1], ints))
    plan = types.Tuple((boxes, boxes, table, table, doubles, doubles, float64))
    return a2, a3, doubles, ints, points, plan


def _lows_signature(real):
    a2, _, doubles, ints, points, plan = _types(real)
    return void(a2, ints, ints, points, plan, int64, int64, doubles)


@_kernel(_lows_signature)
def lower_bounds(images, left_out, home, points, plan, from_tile, to_tile, low):
    """low[i] <= log sum_j exp(s_ij) for the rows of tiles from..to, from their own tiles."""
    starts, d = points[4], images.shape[1]
    scratch = (
        np.empty((QUERY_GROUP, TILE), images.dtype), np.empty((QUERY_GROUP, d), images.dtype), np.empty(QUERY_GROUP),
        np.empty(QUERY_GROUP),
    )  # fmt: skip
    for t in range(from_tile, to_tile):
        first, stop = starts[t], starts[t + 1]
        _lower_bounds(
            images, first, stop, points, plan[5], home, int64(0), points[0].shape[0], left_out, low[first:stop], scratch
        )


@njit(**_OPTIONS)
def _box_of_tile(plan, t, box):
    s, x = t // TILE_SPAN, t % TILE_SPAN
    for k in range(box.shape[1]):
        box[0, k], box[1, k] = plan[0][s, k, x], plan[1][s, k, x]


def _radii_signature(real):
    _, _, doubles, _, _, plan = _types(real)
    return void(real[:, ::1], plan, types.UniTuple(float64, 4), doubles, int64, int64, doubles)


@_kernel(_radii_signature)
def radii(images, plan, rule, least, from_tile, to_tile, radius):
    """radius[t]: tiles whose boxes are at this squared distance, or farther, are within the error of all rows of tile t.

    rule = (error, power, log_unit, log_all), and ``least[t]`` is a lower bound of the log-sums of the tile's rows.  Parts of
    tile t may be farther away than its box, so that a tile which is nearer counts as if it were at the radius.
    """
    error, power, log_unit, log_all = rule
    n_tiles, d = plan[4].shape[0], images.shape[1]
    lists = (
        np.empty(n_tiles, np.int64), np.empty(n_tiles), np.empty(_BINS, np.int64), np.empty(_BINS),
        np.empty(n_tiles, np.int64),
    )  # fmt: skip
    tails, box, spans = np.empty(_BINS), np.empty((2, d)), np.empty(plan[2].shape[0], np.int64)
    for t in range(from_tile, to_tile):
        radius[t] = 0.0
        if least[t] == np.inf:  # no row of it asks for anything
            continue
        reach = _reach(log_all - least[t] - np.log(0.25 * error) + SLACK, power)
        _box_of_tile(plan, t, box)
        n_spans = 0
        for s in range(plan[2].shape[0]):
            if _apart(box[0], box[1], plan[2][s], plan[3][s]) * plan[6] < reach:
                spans[n_spans] = s
                n_spans += 1
        _, nearest = _list_tiles(box, reach, plan, spans, n_spans, int64(0), n_tiles, lists)
        weights = lists[3]
        _tails(nearest, power, least[t], log_unit, weights, tails)
        radius[t], nearer = reach, 0.0
        for b in range(_BINS):
            square = nearest + _offset_of_bin(b)
            if square >= reach:
                break
            if square >= max(power, 1.0):
                nats = log_unit - least[t] + 0.5 * power * np.log(square) - 0.5 * square + SLACK
                here = nearer * np.exp(nats) if nats < 700.0 else np.inf
                if nearer == 0.0:
                    here = 0.0
                if here + tails[b] <= 0.25 * error:
                    radius[t] = square
                    break
            nearer += weights[b]


@njit(**_OPTIONS)
def _list_later(plan, t, box, radius, widest, from_offset, to_offset, tiles):
    """The tiles from t + from_offset up to t + to_offset that tile t has to see, or that have to see it."""
    n_tiles, shrink, count = radius.shape[0], plan[6], 0
    _box_of_tile(plan, t, box)
    first, last = t + from_offset, min(t + to_offset, n_tiles)
    squares = np.empty(TILE_SPAN)
    for s in range(first // TILE_SPAN, -(-last // TILE_SPAN)):
        if not _apart(box[0], box[1], plan[2][s], plan[3][s]) * shrink < max(radius[t], widest[s]):
            continue
        _apart_from_span(box[0], box[1], plan[0][s], plan[1][s], squares)
        for u in range(max(first, s * TILE_SPAN), min(last, (s + 1) * TILE_SPAN)):
            if u == t or squares[u - s * TILE_SPAN] * shrink < max(radius[t], radius[u]):
                tiles[count] = u
                count += 1
    return count


def _counts_signature(real):
    _, _, doubles, ints, _, plan = _types(real)
    return void(real[:, ::1], plan, doubles, doubles, int64, int64, int64, int64, ints)


@_kernel(_counts_signature)
def count_later(images, plan, radius, widest, from_offset, to_offset, from_tile, to_tile, counts):
    """counts[t]: how many tiles `list_later` lists."""
    box, tiles = np.empty((2, images.shape[1])), np.empty(radius.shape[0], np.int64)
    for t in range(from_tile, to_tile):
        counts[t] = _list_later(plan, t, box, radius, widest, from_offset, to_offset, tiles)


# -- scores and exponentials ---------------------------------------------------------------------------------------


@njit(fastmath={"contract"}, **_OPTIONS)
def _about(images, first, count, centres, t, shifted, half):
    """The rows of a tile about the centre of another, and half their squares; past the last row, it again."""
    for r in range(TILE):
        i, square = first + min(r, count - 1), 0.0
        for k in range(images.shape[1]):
            x = images[i, k] - centres[t, k]
            shifted[r, k] = x
            square += float64(x) * float64(x)
        half[r] = 0.5 * square


@njit(fastmath={"contract"}, **_OPTIONS)
def _leave_out(scores, first, g, in_group, left_out, start):
    for r in range(in_group):
        skip = left_out[first + g + r] - start
        if 0 <= skip < TILE:
            scores[r, skip] = -np.inf


@njit(fastmath={"nnan", "nsz", "contract"}, **_OPTIONS)
def _reaches(scores, lift, own, others):
    """Whether a score of a row reaches its own level, or that of its column."""
    best = scores.dtype.type(-np.inf)
    for j in range(TILE):
        best = max(best, scores[j] - min(own, others[j]))
    return best >= lift


@njit(fastmath={"contract"}, **_OPTIONS)
def _group_matters(scores, in_group, rows, half, log_weights, levels, others):
    """Whether a pair of four rows with a tile matters to one of its rows."""
    real = scores.dtype.type
    for r in range(in_group):
        lift = half[r] - (log_weights[rows + r] if log_weights.shape[0] > 0 else 0.0)
        if _reaches(scores[r], real(lift), real(levels[rows + r]), others):
            return True
    return False


@njit(fastmath={"contract"}, **_OPTIONS)
def _exponentials(scores, in_group, half, raised, totals):
    """scores <- K = exp(s + raised), zero for rows beyond the last; totals[r] += the sum of a row."""
    for r in range(ROWS):
        if r < in_group:
            totals[r] += _exp_in_place(scores[r], scores.dtype.type(half[r] - raised))
        else:
            scores[r, :] = 0


def _sums_signature(real):
    a2, _, doubles, ints, points, plan = _types(real)
    listed = (doubles, doubles, int64, int64, int64, int64)
    return void(a2, ints, doubles, doubles, points, plan, float64, *listed, doubles, doubles, ints, uint16[::1], ints)


@_kernel(_sums_signature)
def half_sums(
    images, left_out, levels, log_weights, points, plan, raised, radius, widest, from_offset, to_offset,
    from_tile, to_tile, sums, column_sums, tile_of, alive, counts,
):  # fmt: skip
    """Sums of ``K_ij = exp(s_ij + raised)`` over the pairs of tiles from..to that matter.

    `levels` are T_i + log b_i.  sums[i] += sum_j K_ij, and in later tiles column_sums[j] += sum_i b_i K_ij.  The tiles that
    tile t was taken with go to `tile_of`, ``counts[t]`` of them, and which groups of four of its rows to the bits of
    `alive`.  The last two of `counts` are the pairs whose distances and whose exponentials were computed.
    """
    packed, centres, offsets, _, starts = points
    n_tiles, d, dtype = packed.shape[0], images.shape[1], images.dtype
    shifted, half, scores = np.empty((TILE, d), dtype), np.empty(TILE), np.empty((ROWS, TILE), dtype)
    box, other_box, group_boxes = np.empty((2, d)), np.empty((2, d)), np.empty((TILE // QUERY_GROUP, 2, d))
    others, factors, column = np.empty(TILE, dtype), np.zeros(ROWS), np.empty(TILE)
    tiles, totals, place = np.empty(n_tiles, np.int64), np.empty(ROWS), 0
    for t in range(from_tile, to_tile):
        first, count = starts[t], starts[t + 1] - starts[t]
        listed = _list_later(plan, t, box, radius, widest, from_offset, to_offset, tiles)
        for g in range(0, count, QUERY_GROUP):
            b = group_boxes[g // QUERY_GROUP]
            _box(images, first + g, first + min(g + QUERY_GROUP, count), b[0], b[1])
        counts[t] = 0
        for u in tiles[:listed]:
            start, width = starts[u], starts[u + 1] - starts[u]
            _about(images, first, count, centres, u, shifted, half)
            _box_of_tile(plan, u, other_box)
            for j in range(TILE):
                others[j] = levels[start + min(j, width - 1)]
            column[:] = 0.0
            near, bits, far = True, 0, max(radius[t], radius[u])
            for g in range(0, count, ROWS):
                if g % QUERY_GROUP == 0:
                    b = group_boxes[g // QUERY_GROUP]
                    near = u == t or _apart(b[0], b[1], other_box[0], other_box[1]) * plan[6] < far
                if not near:
                    continue
                in_group = min(ROWS, count - g)
                counts[n_tiles] += in_group * TILE
                _four_scores(shifted, g, packed[u], offsets[u], True, scores)
                _leave_out(scores, first, g, in_group, left_out, start)
                if not _group_matters(scores, in_group, first + g, half[g:], log_weights, levels, others):
                    continue
                counts[n_tiles + 1] += in_group * TILE
                bits |= 1 << (g // ROWS)
                totals[:] = 0.0
                _exponentials(scores, in_group, half[g:], raised, totals)
                for r in range(in_group):
                    sums[first + g + r] += totals[r]
                if u > t:
                    _weights_of(log_weights, first + g, in_group, factors)
                    _add_columns(column, scores, factors)
            if bits:
                tile_of[place], alive[place] = u, bits
                place += 1
                counts[t] += 1
                if u > t:
                    for j in range(width):
                        column_sums[start + j] += column[j]


@njit(**_OPTIONS)
def _weights_of(log_weights, first, in_group, weights):
    """The weights b of four rows, 0 beyond the last."""
    for r in range(ROWS):
        weights[r] = 0.0
        if r < in_group:
            weights[r] = np.exp(log_weights[first + r]) if log_weights.shape[0] > 0 else 1.0


# -- scatters ------------------------------------------------------------------------------------------------------


@njit(fastmath={"contract"}, **_OPTIONS)
def _to_both_ways(scores, r, weight, factor, others):
    """A row of K <- ``b_i K_ij (f_i + f_j)``; return its sum."""
    total = 0.0
    real = scores.dtype.type
    b, f = real(weight), real(factor)
    for j in range(TILE):
        scores[r, j] *= b * (f + others[j])
    for j in range(TILE):
        total += scores[r, j]
    return total


def _scatter_signature(real):
    a2, a3, doubles, ints, points, _ = _types(real)
    given = (a3, a2, doubles)
    return void(
        a2, ints, doubles, points, float64, *given, ints, uint16[::1], ints, int64, int64, doubles, float64[:, ::1],
        doubles,
    )  # fmt: skip


@_kernel(_scatter_signature)
def half_scatter(
    images, left_out, log_weights, points, raised, values, middles, factors, tile_of, alive, counts, from_tile, to_tile,
    mass, scatter, size,
):  # fmt: skip
    """``sum m_ij (v_i - v_j)(v_i - v_j)'`` over the pairs that `half_sums` took, but for what `mass` tells.

    ``m_ij = b_i b_j K_ij (f_i + f_j)`` with `factors` f.  `values` are packed about the `middles` of their tiles: with
    x = v_i - c_t, y = v_j - c_u and z = c_u - c_t the difference is ``y + z - x``.  The terms in x x' and y y' are made by
    the caller of the mass of each point, those in x y' of what a tile gathers of all others, and those in z here, for
    each pair of tiles.  size[0] += the trace of the terms in z z', before they cancel.
    """
    packed, centres, offsets, _, starts = points
    d, dtype, v = images.shape[1], images.dtype, values.shape[1]
    shifted, half, scores = np.empty((TILE, d), dtype), np.empty(TILE), np.empty((ROWS, TILE), dtype)
    others, weights, ones, totals = np.zeros(TILE, dtype), np.zeros(ROWS), np.ones(ROWS), np.zeros(ROWS)
    gathered, here, rows = np.empty((TILE, v)), np.empty((ROWS, v)), np.empty(TILE)
    column, z, of_x, of_y = np.empty(TILE), np.empty(v), np.empty(v), np.empty(v)
    place = 0
    for t in range(from_tile, to_tile):
        first, count = starts[t], starts[t + 1] - starts[t]
        gathered[:, :] = 0.0
        for c in range(place, place + counts[t]):
            u, bits = tile_of[c], int64(alive[c])
            start, width = starts[u], starts[u + 1] - starts[u]
            both = 0.5 if u == t else 1.0  # a tile that meets itself holds each pair twice
            _about(images, first, count, centres, u, shifted, half)
            for j in range(width):
                others[j] = factors[start + j]
            others[width:] = 0
            column[:] = 0.0
            rows[:] = 0.0
            of_x[:] = 0.0
            of_y[:] = 0.0
            for g in range(0, count, ROWS):
                if not (bits >> (g // ROWS)) & 1:
                    continue
                in_group = min(ROWS, count - g)
                _four_scores(shifted, g, packed[u], offsets[u], True, scores)
                _leave_out(scores, first, g, in_group, left_out, start)
                _exponentials(scores, in_group, half[g:], raised, totals)
                _weights_of(log_weights, first + g, in_group, weights)
                for r in range(in_group):
                    rows[g + r] = _to_both_ways(scores, r, both * weights[r], factors[first + g + r], others)
                here[:, :] = 0.0
                _dot_all(scores, values[u], here)
                _add_columns(column, scores, ones)
                for r in range(in_group):
                    for k in range(v):
                        gathered[g + r, k] += here[r, k]
                        of_y[k] += here[r, k]
            total = 0.0
            for r in range(count):
                mass[first + r] += rows[r]
                total += rows[r]
            for j in range(width):
                mass[start + j] += column[j]
            if u == t:
                continue
            for k in range(v):
                z[k] = float64(middles[u, k]) - float64(middles[t, k])
                for r in range(count):
                    of_x[k] += rows[r] * values[t, k, r]
            for k in range(v):
                size[0] += total * z[k] * z[k]
                for m in range(v):
                    scatter[k, m] += total * z[k] * z[m] + z[k] * (of_y[m] - of_x[m]) + (of_y[k] - of_x[k]) * z[m]
        place += counts[t]
        _add_cross(scatter, values[t], gathered, count)


@njit(fastmath={"contract"}, **_OPTIONS)
def _add_cross(scatter, tile, gathered, count):
    """scatter -= x g' + g x' over the rows of a tile, with what they gathered."""
    v = scatter.shape[0]
    for r in range(count):
        for k in range(v):
            x, g = float64(tile[k, r]), gathered[r, k]
            for m in range(v):
                scatter[k, m] -= x * gathered[r, m] + g * float64(tile[m, r])
