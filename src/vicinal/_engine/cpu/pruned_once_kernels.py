"""Compiled: points against themselves, each pair once for both of its rows, over the pairs of tiles that matter.

With the scores ``s_ij = log b_j - |z_i - z_j|^2 / 2``, a pair that has the score s_ij for its row i has for row j the score
``s_ji = s_ij - log b_j + log b_i``.  A row has a threshold T_i for its scores, below which all of them together are within
its error (`cpu/pruned_once.py`).  With the levels ``A_i = T_i + log b_i``, a pair is skipped if it is below the thresholds of
both of its rows: ``s_ij + log b_i < min(A_i, A_j)``.  Four rows are compared together with the 64 points of a tile.
"""

from typing import Any

import numpy as np
from numba import boolean, float64, int64, njit, types, uint16, void

from vicinal._engine.cpu.parts import ROWS, _add_columns, _dot_all, _exp, _exp_in_place
from vicinal._engine.cpu.pruned_group import _lower_bounds
from vicinal._engine.cpu.vectors import judged_products, lowest_bit, n_bits, products_of_one
from vicinal._engine.plan.boxes import (
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
from vicinal._engine.tuning import PRUNED_TILE as TILE
from vicinal._engine.tuning import QUERY_GROUP, TILE_SPAN
from vicinal._engine.work.compiling import _OPTIONS, _kernel

assert (ROWS, TILE) == (4, 64), "a tile is a mask of 64 bits, in groups of four rows"

# Up to _FEW pairs of four rows with a tile, exponentials are computed one by one; up to _FEWEST pairs, products with values as well.
_FEW, _FEWEST = ROWS * TILE // 8, 12


def _types(real: Any) -> tuple[Any, ...]:
    a2, a3, doubles, ints = real[:, ::1], real[:, :, ::1], float64[::1], int64[::1]
    boxes, table = float64[:, :, ::1], float64[:, ::1]
    points = types.Tuple((a3, a2, a2, boolean[::1], ints))
    plan = types.Tuple((boxes, boxes, table, table, doubles, doubles, float64))
    return a2, a3, doubles, ints, points, plan


def _lows_signature(real: Any) -> Any:
    a2, _, doubles, ints, points, plan = _types(real)
    return void(a2, ints, ints, points, plan, ints, doubles)


@_kernel(_lows_signature)
def lower_bounds(
    images: np.ndarray,
    left_out: np.ndarray,
    home: np.ndarray,
    points: tuple[np.ndarray, ...],
    plan: tuple[Any, ...],
    starts: np.ndarray,
    low: np.ndarray,
) -> None:
    """low[i] <= log sum_j exp(s_ij) for the rows of some tiles, which begin at `starts`, from their own tiles."""
    d = images.shape[1]
    scratch = (
        np.empty((QUERY_GROUP, TILE), images.dtype), np.empty((QUERY_GROUP, d), images.dtype), np.empty(QUERY_GROUP),
        np.empty(QUERY_GROUP),
    )  # fmt: skip
    for t in range(starts.shape[0] - 1):
        first, stop = starts[t], starts[t + 1]
        _lower_bounds(
            images, first, stop, points, plan[5], home, int64(0), points[0].shape[0], left_out, low[first:stop], scratch
        )


@njit(**_OPTIONS)
def _box_of_tile(plan: tuple[Any, ...], t: int, box: np.ndarray) -> None:
    s, x = t // TILE_SPAN, t % TILE_SPAN
    for k in range(box.shape[1]):
        box[0, k], box[1, k] = plan[0][s, k, x], plan[1][s, k, x]


def _radii_signature(real: Any) -> Any:
    _, _, doubles, _, _, plan = _types(real)
    return void(real[:, ::1], plan, types.UniTuple(float64, 4), doubles, int64, int64, doubles)


@_kernel(_radii_signature)
def radii(
    centres: np.ndarray,
    plan: tuple[Any, ...],
    rule: tuple[float, ...],
    least: np.ndarray,
    from_tile: int,
    to_tile: int,
    radius: np.ndarray,
) -> None:
    """radius[t]: tiles whose boxes are at this squared distance, or farther, are within the error of all rows of tile t.

    rule = (error, power, log_unit, log_all), and ``least[t]`` is a lower bound of the log-sums of the tile's rows.  Parts of
    tile t may be farther away than its box, so a nearer tile counts as if it were at the radius.
    """
    error, power, log_unit, log_all = rule
    n_tiles, d = plan[4].shape[0], centres.shape[1]
    lists = (
        np.empty(n_tiles, np.int64), np.empty(n_tiles), np.empty(_BINS, np.int64), np.empty(_BINS),
        np.empty(n_tiles, np.int64),
    )  # fmt: skip
    tails, box, spans = np.empty(_BINS), np.empty((2, d)), np.empty(plan[2].shape[0], np.int64)
    for t in range(from_tile, to_tile):
        radius[t] = 0.0
        if least[t] == np.inf:  # no row of it needs any tile
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
def _list_later(
    plan: tuple[Any, ...],
    t: int,
    box: np.ndarray,
    radius: np.ndarray,
    widest: np.ndarray,
    from_offset: int,
    to_offset: int,
    tiles: np.ndarray,
) -> int:
    """Return the tiles from t + from_offset up to t + to_offset that tile t must visit, or that must visit it."""
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


def _counts_signature(real: Any) -> Any:
    _, _, doubles, ints, _, plan = _types(real)
    return void(real[:, ::1], plan, doubles, doubles, int64, int64, int64, int64, ints)


@_kernel(_counts_signature)
def count_later(
    centres: np.ndarray,
    plan: tuple[Any, ...],
    radius: np.ndarray,
    widest: np.ndarray,
    from_offset: int,
    to_offset: int,
    from_tile: int,
    to_tile: int,
    counts: np.ndarray,
) -> None:
    """counts[t]: how many tiles `_list_later` lists."""
    box, tiles = np.empty((2, centres.shape[1])), np.empty(radius.shape[0], np.int64)
    for t in range(from_tile, to_tile):
        counts[t] = _list_later(plan, t, box, radius, widest, from_offset, to_offset, tiles)


# -- scores and exponentials ---------------------------------------------------------------------------------------


@njit(fastmath={"contract"}, **_OPTIONS)
def _open_tile(tile: np.ndarray, rows: np.ndarray, squares: np.ndarray) -> None:
    """The points of a tile as rows about its centre, and half their squares."""
    for j in range(TILE):
        square = 0.0
        for k in range(tile.shape[0]):
            x = tile[k, j]
            rows[j, k] = x
            square += float64(x) * float64(x)
        squares[j] = 0.5 * square


@njit(fastmath={"contract"}, **_OPTIONS)
def _meet(
    points: tuple[np.ndarray, ...],
    t: int,
    u: int,
    squares: np.ndarray,
    delta: np.ndarray,
    half: np.ndarray,
    start: np.ndarray,
) -> None:
    """The initial values of the scores of tile t with tile u, start[0, j], and the excess of these scores, half[0, i].

    With x and y about the centres of their tiles and ``delta = c_t - c_u``, a row is ``x + delta`` about the centre of u:
    ``(x + delta)'y = x'y + delta'y``, and half its square is ``|x|^2 / 2 + x'delta + |delta|^2 / 2``.
    """
    packed, centres, offsets, _, _ = points
    square = 0.0
    for k in range(centres.shape[1]):
        x = centres[t, k] - centres[u, k]
        delta[0, k] = x
        square += float64(x) * float64(x)
    products_of_one(delta, 0, packed[u], offsets[u], start)
    products_of_one(delta, 0, packed[t], squares, half)
    for j in range(TILE):
        half[0, j] += 0.5 * square


@njit(fastmath={"contract"}, **_OPTIONS)
def _judge(
    rows: np.ndarray,
    g: int,
    first: int,
    count: int,
    points: tuple[np.ndarray, ...],
    u: int,
    own_tile: bool,
    left_out: np.ndarray,
    levels: np.ndarray,
    log_weights: np.ndarray,
    others: np.ndarray,
    half: np.ndarray,
    start: np.ndarray,
    work: tuple[np.ndarray, ...],
) -> int:
    """Compute the scores of four rows with a tile, plus half, and which of them matter to one of their rows; return their number."""
    scores, own, lift, reached = work
    weighted, total = log_weights.shape[0] > 0, 0
    for r in range(ROWS):
        i = first + min(r, count - 1)
        own[r], lift[r] = levels[i], half[0, g + r] - (log_weights[i] if weighted else 0.0)
    judged_products(rows, g, g + 1, g + 2, g + 3, points[0][u], start[0], scores, own, lift, others, reached)
    for r in range(count):
        if own_tile:
            skip = left_out[first + r] - points[4][u]
            if 0 <= skip < TILE:
                scores[r, skip] = -np.inf
                reached[r] &= ~(int64(1) << skip)
        total += n_bits(reached[r])
    return total


@njit(**_OPTIONS)
def _workspace(d: int, dtype_of: np.ndarray) -> tuple[Any, ...]:
    """Return the working arrays of a tile's rows: the rows, their squares, and the arrays that `_meet` and `_judge` fill."""
    dtype = dtype_of.dtype
    meeting = np.empty((TILE, d), dtype), np.empty(TILE, dtype), np.empty((1, d), dtype)
    judged = np.empty((ROWS, TILE), dtype), np.empty(ROWS, dtype), np.empty(ROWS, dtype), np.zeros(ROWS, np.int64)
    return meeting, np.empty((1, TILE), dtype), np.empty((1, TILE), dtype), judged


@njit(fastmath={"contract"}, **_OPTIONS)
def _exponentials(
    scores: np.ndarray, in_group: int, half: np.ndarray, g: int, raised: float, totals: np.ndarray
) -> None:
    """scores <- K = exp(s + raised), zero for rows beyond the last; totals[r] += the sum of a row."""
    for r in range(ROWS):
        if r < in_group:
            totals[r] += _exp_in_place(scores[r], scores.dtype.type(half[0, g + r] - raised))
        else:
            scores[r, :] = 0


@njit(fastmath={"contract"}, **_OPTIONS)
def _exponentials_of_some(
    scores: np.ndarray, r: int, bits: int, shift: float, which: np.ndarray, some: np.ndarray
) -> int:
    """some[c] = exp(score - shift) of the columns whose bits are set, and these columns; return how many there are."""
    count, below = 0, scores.dtype.type(shift)
    while bits != 0:
        j = lowest_bit(bits)
        bits &= bits - 1
        which[count] = j
        some[count] = scores[r, j] - below
        count += 1
    for c in range(count):
        some[c] = _exp(some[c])
    return count


def _sums_signature(real: Any) -> Any:
    a2, _, doubles, ints, points, plan = _types(real)
    listed = (doubles, doubles, int64, int64, int64, int64)
    return void(a2, ints, doubles, doubles, points, plan, float64, *listed, doubles, doubles, ints, uint16[::1], ints)


@_kernel(_sums_signature)
def half_sums(
    centres: np.ndarray,
    left_out: np.ndarray,
    levels: np.ndarray,
    log_weights: np.ndarray,
    points: tuple[np.ndarray, ...],
    plan: tuple[Any, ...],
    raised: float,
    radius: np.ndarray,
    widest: np.ndarray,
    from_offset: int,
    to_offset: int,
    from_tile: int,
    to_tile: int,
    sums: np.ndarray,
    column_sums: np.ndarray,
    tile_of: np.ndarray,
    alive: np.ndarray,
    counts: np.ndarray,
) -> None:
    """Sums of ``K_ij = exp(s_ij + raised)`` over the pairs of tiles from..to that matter.

    `levels` are T_i + log b_i.  sums[i] = sum_j K_ij, and in later tiles column_sums[j] += sum_i b_i K_ij.  The tiles that
    tile t was taken with go to `tile_of`, ``counts[t]`` of them, and which groups of four of its rows to the bits of
    `alive`.  The last two of `counts` are the pairs whose distances and whose exponentials were computed.
    """
    starts, n_tiles, d, dtype = points[4], points[0].shape[0], centres.shape[1], centres.dtype
    (rows_of_tile, squares, delta), half, start_scores, work = _workspace(d, centres)
    scores, reached = work[0], work[3]
    box, other_box, group_boxes = np.empty((2, d)), np.empty((2, d)), np.empty((TILE // QUERY_GROUP, 2, d))
    others, factors, column = np.empty(TILE, dtype), np.zeros(ROWS), np.empty(TILE)
    which, some = np.empty(TILE, np.int64), np.empty(TILE, dtype)
    tiles, totals, place = np.empty(n_tiles, np.int64), np.empty(ROWS), 0
    for t in range(from_tile, to_tile):
        first, count = starts[t], starts[t + 1] - starts[t]
        listed = _list_later(plan, t, box, radius, widest, from_offset, to_offset, tiles)
        counts[t] = 0
        sums[first : first + count] = 0.0
        _open_tile(points[0][t], rows_of_tile, squares)
        for g in range(0, count, QUERY_GROUP):
            b = group_boxes[g // QUERY_GROUP]
            _box(rows_of_tile, g, min(g + QUERY_GROUP, count), b[0], b[1])
            for k in range(d):
                b[0, k] += float64(centres[t, k])
                b[1, k] += float64(centres[t, k])
        for u in tiles[:listed]:
            start, width = starts[u], starts[u + 1] - starts[u]
            _meet(points, t, u, squares, delta, half, start_scores)
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
                n_pairs = _judge(
                    rows_of_tile, g, first + g, in_group, points, u, u == t, left_out, levels, log_weights, others, half,
                    start_scores, work,
                )  # fmt: skip
                if n_pairs == 0:
                    continue
                bits |= 1 << (g // ROWS)
                totals[:] = 0.0
                _weights_of(log_weights, first + g, in_group, factors)
                if n_pairs > _FEW:
                    counts[n_tiles + 1] += in_group * TILE
                    _exponentials(scores, in_group, half, g, raised, totals)
                    if u > t:
                        _add_columns(column, scores, factors)
                else:
                    counts[n_tiles + 1] += n_pairs
                    for r in range(in_group):
                        n_some = _exponentials_of_some(scores, r, reached[r], half[0, g + r] - raised, which, some)
                        for c in range(n_some):
                            totals[r] += some[c]
                            if u > t:
                                column[which[c]] += factors[r] * some[c]
                for r in range(in_group):
                    sums[first + g + r] += totals[r]
            if bits:
                tile_of[place], alive[place] = u, bits
                place += 1
                counts[t] += 1
                if u > t:
                    for j in range(width):
                        column_sums[start + j] += column[j]


@njit(**_OPTIONS)
def _weights_of(log_weights: np.ndarray, first: int, in_group: int, weights: np.ndarray) -> None:
    """The weights b of four rows, 0 beyond the last."""
    for r in range(ROWS):
        weights[r] = 0.0
        if r < in_group:
            weights[r] = np.exp(log_weights[first + r]) if log_weights.shape[0] > 0 else 1.0


# -- scatters ------------------------------------------------------------------------------------------------------


@njit(fastmath={"contract"}, **_OPTIONS)
def _to_both_ways(scores: np.ndarray, r: int, weight: float, factor: float, others: np.ndarray) -> float:
    """Replace a row of K by ``b_i K_ij (f_i + f_j)``; return its sum."""
    total = 0.0
    real = scores.dtype.type
    b, f = real(weight), real(factor)
    for j in range(TILE):
        scores[r, j] *= b * (f + others[j])
    for j in range(TILE):
        total += scores[r, j]
    return total


def _scatter_signature(real: Any) -> Any:
    a2, a3, doubles, ints, points, _ = _types(real)
    given = (a3, a2, doubles)
    return void(
        a2, ints, doubles, doubles, points, float64, *given, ints, uint16[::1], ints, int64, int64, doubles,
        float64[:, ::1], doubles,
    )  # fmt: skip


@_kernel(_scatter_signature)
def half_scatter(
    centres: np.ndarray,
    left_out: np.ndarray,
    levels: np.ndarray,
    log_weights: np.ndarray,
    points: tuple[np.ndarray, ...],
    raised: float,
    values: np.ndarray,
    middles: np.ndarray,
    factors: np.ndarray,
    tile_of: np.ndarray,
    alive: np.ndarray,
    counts: np.ndarray,
    from_tile: int,
    to_tile: int,
    mass: np.ndarray,
    scatter: np.ndarray,
    size: np.ndarray,
) -> None:
    """``sum m_ij (v_i - v_j)(v_i - v_j)'`` over the pairs that `half_sums` took, except for the terms that follow from `mass`.

    ``m_ij = b_i b_j K_ij (f_i + f_j)`` with `factors` f.  `values` are packed about the `middles` of their tiles: with
    x = v_i - c_t, y = v_j - c_u and z = c_u - c_t the difference is ``y + z - x``.  The caller computes the terms in x x' and y y'
    from the mass of each point, and those in x y' from what a tile gathers of all others; those in z are computed here,
    for each pair of tiles.  size[0] += the trace of the terms in z z', before they cancel.
    """
    starts, d, dtype, v = points[4], centres.shape[1], centres.dtype, values.shape[1]
    (rows_of_tile, squares, delta), half, start_scores, work = _workspace(d, centres)
    scores, reached = work[0], work[3]
    others, weights, ones, totals = np.zeros(TILE, dtype), np.zeros(ROWS), np.ones(ROWS), np.zeros(ROWS)
    gathered, here, rows, theirs = np.empty((TILE, v)), np.empty((ROWS, v)), np.empty(TILE), np.empty(TILE, dtype)
    which, some = np.empty(TILE, np.int64), np.empty(TILE, dtype)
    column, z, of_x, of_y = np.empty(TILE), np.empty(v), np.empty(v), np.empty(v)
    place = 0
    for t in range(from_tile, to_tile):
        first, count = starts[t], starts[t + 1] - starts[t]
        gathered[:, :] = 0.0
        _open_tile(points[0][t], rows_of_tile, squares)
        for c in range(place, place + counts[t]):
            u, bits = tile_of[c], int64(alive[c])
            start, width = starts[u], starts[u + 1] - starts[u]
            _meet(points, t, u, squares, delta, half, start_scores)
            both = 0.5 if u == t else 1.0  # the pairs within a tile are counted twice
            others[width:] = 0
            for j in range(TILE):
                theirs[j] = levels[start + min(j, width - 1)]
                if j < width:
                    others[j] = factors[start + j]
            column[:] = 0.0
            rows[:] = 0.0
            of_x[:] = 0.0
            of_y[:] = 0.0
            for g in range(0, count, ROWS):
                if not (bits >> (g // ROWS)) & 1:
                    continue
                in_group = min(ROWS, count - g)
                _weights_of(log_weights, first + g, in_group, weights)
                here[:, :] = 0.0
                n_pairs = _judge(
                    rows_of_tile, g, first + g, in_group, points, u, u == t, left_out, levels, log_weights, theirs, half,
                    start_scores, work,
                )  # fmt: skip
                if n_pairs > _FEW:
                    _exponentials(scores, in_group, half, g, raised, totals)
                    for r in range(in_group):
                        rows[g + r] = _to_both_ways(scores, r, both * weights[r], factors[first + g + r], others)
                    _add_columns(column, scores, ones)
                else:
                    for r in range(ROWS):
                        n_some = int64(0)
                        if r < in_group:
                            n_some = _exponentials_of_some(scores, r, reached[r], half[0, g + r] - raised, which, some)
                        if n_pairs > _FEWEST:
                            scores[r, :] = 0
                        for c in range(n_some):
                            j = which[c]
                            m = some[c] * both * weights[r] * (factors[first + g + r] + others[j])
                            rows[g + r] += m
                            column[j] += m
                            if n_pairs > _FEWEST:
                                scores[r, j] = m
                            else:
                                for k in range(v):
                                    here[r, k] += m * values[u, k, j]
                if n_pairs > _FEWEST:
                    _dot_all(scores, values[u], here)
                for r in range(in_group):
                    for k in range(v):
                        gathered[g + r, k] += here[r, k]
                        of_y[k] += here[r, k]
            total = 0.0
            for r in range(count):
                if rows[r] != 0.0:
                    mass[first + r] += rows[r]
                    total += rows[r]
                    if u > t:
                        for k in range(v):
                            of_x[k] += rows[r] * values[t, k, r]
            for j in range(width):
                mass[start + j] += column[j]
            if u > t:
                for k in range(v):
                    z[k] = float64(middles[u, k]) - float64(middles[t, k])
                    of_y[k] += 0.5 * total * z[k] - of_x[k]
                    size[0] += total * z[k] * z[k]
                _add_both(scatter, z, of_y)
        place += counts[t]
        _add_cross(scatter, values[t], gathered, count)


@njit(fastmath={"contract"}, **_OPTIONS)
def _add_both(scatter: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """scatter += a b' + b a'."""
    for k in range(a.shape[0]):
        x, y = a[k], b[k]
        for m in range(a.shape[0]):
            scatter[k, m] += x * b[m] + y * a[m]


@njit(fastmath={"contract"}, **_OPTIONS)
def _add_cross(scatter: np.ndarray, tile: np.ndarray, gathered: np.ndarray, count: int) -> None:
    """scatter -= x g' + g x' over the rows of a tile, with what they gathered."""
    v = scatter.shape[0]
    for r in range(count):
        for k in range(v):
            x, g = float64(tile[k, r]), gathered[r, k]
            for m in range(v):
                scatter[k, m] -= x * gathered[r, m] + g * float64(tile[m, r])
