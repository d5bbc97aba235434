r"""Compiled: the sweep over listed pairs of tiles, of which every sum that skips pairs is a specialisation.

Queries and points lie in tiles of 64, about the centres of their tiles.  With x and y there, and the step ``c_t - c_u`` between the centres, a
row is ``x + c_t - c_u`` about the centre of a tile of points: ``(x + step)'y = x'y + step'y``.  Rounding errors are those of the distance,
however far the data are from their origin.  *Wide* tiles, which span clusters, take differences instead.

A plan (`plan/plan.py`) lists the tiles of points for each tile of queries, and a level for each row: with ``E_ij = exp(s_ij - shift_i)``,
a pair counts if its score reaches the level of its row.  If *each pair is visited once*, for both of its rows, both have a level: with
``s_ji = s_ij - log b_j + log b_i``, and levels that contain the log-weight of their row, a pair is skipped if ``s_ij + log b_i`` is below
both.  Four rows are compared together with the 64 points of a tile; if none of their pairs counts, nothing is added.

Otherwise a pair adds ``M_ij v_j`` to its row, with M = E or ``M_ij = b_i E_ij (f_i + g_j)``, and ``M_ij w_i`` to its point.  Values of rows and points
are about the middles of their tiles, and what is added is moved from one middle to the other once for each pair of tiles.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import boolean, float64, int32, int64, njit, types, uint16, void

from vicinal._engine.cpu.parts import (
    ROWS,
    _add_columns,
    _add_to_points,
    _dot_all,
    _exp,
    _exp_in_place,
    _four_scores,
)
from vicinal._engine.cpu.vectors import (
    judged_differences,
    judged_products,
    lowest_bit,
    n_bits,
    products_of_one,
)
from vicinal._engine.plan.boxes import PackedTiles, tiles_type
from vicinal._engine.plan.lists import FOUR
from vicinal._engine.tuning import PRUNED_TILE as TILE
from vicinal._engine.work.compiling import _OPTIONS, _SUMS, _kernel

assert (ROWS, TILE) == (FOUR, 64), "a tile is a mask of 64 bits, in groups of four rows"

# Up to _FEW pairs of four rows with a tile, exponentials are computed one by one; up to _FEWEST pairs, products with values as well.
_FEW, _FEWEST = ROWS * TILE // 8, 12


class Visits(NamedTuple):
    """The tiles of points that some tiles of queries visit: where those of each begin, their numbers, the fours of rows concerned, and
    the lines of `column_sums` that belong to them."""

    starts: np.ndarray
    tiles: np.ndarray
    groups: np.ndarray
    lines: np.ndarray


class Levels(NamedTuple):
    """Of the queries (m,): levels, shifts, log-weights and weights; of the points in tiles (n_tiles, TILE): levels; of the tiles: how much more
    the values of their points count, in nats."""

    of_rows: np.ndarray
    shifts: np.ndarray
    log_weights: np.ndarray
    weights: np.ndarray
    of_points: np.ndarray
    heavy: np.ndarray


class Values(NamedTuple):
    """Values of the points and of the queries, (n_tiles, v, TILE), about middles (n_tiles, v), and the factors f (m,) and g (n_tiles, TILE);
    without f, M is E.  If each pair is visited once, the values of the queries are multiplied by their weights unless there are factors."""

    of_points: np.ndarray
    middles: np.ndarray
    of_rows: np.ndarray
    row_middles: np.ndarray
    row_factors: np.ndarray
    factors: np.ndarray


# -- lower bounds on the sums of rows ------------------------------------------------------------------------------


@njit(fastmath={"contract"}, **_OPTIONS)
def _add_bounds(
    rows: np.ndarray,
    i: int,
    count: int,
    points: PackedTiles,
    t: int,
    left_out: np.ndarray,
    shifted: np.ndarray,
    scores: np.ndarray,
    low: np.ndarray,
) -> None:
    """Raise low[r] to the logarithm of the sum of row i + r over a tile, for at most ROWS rows."""
    by_products = not points.wide[t]
    for r in range(ROWS):
        for k in range(rows.shape[1]):
            shifted[r, k] = rows[i + min(r, count - 1), k] - points.centres[t, k]
    _four_scores(shifted, 0, points.packed[t], points.offsets[t], by_products, scores)
    for r in range(count):
        skip, square, top = left_out[i + r] - points.starts[t], 0.0, -np.inf
        if 0 <= skip < TILE:
            scores[r, skip] = -np.inf
        for j in range(TILE):
            top = max(top, float64(scores[r, j]))
        if top == -np.inf:
            continue
        if by_products:
            for k in range(rows.shape[1]):
                square += float64(shifted[r, k]) * float64(shifted[r, k])
        total = float64(_exp_in_place(scores[r], scores.dtype.type(top)))
        low[i + r] = max(low[i + r], top - 0.5 * square + np.log(total) - 1e-3)


def _bounds_signature(real: Any) -> Any:
    tiles, ints = tiles_type(real), int64[::1]
    return void(tiles, tiles, float64[::1], ints, ints, ints, ints, int64, int64, float64[::1])


@_kernel(_bounds_signature)
def lower_bounds(
    queries: PackedTiles,
    points: PackedTiles,
    log_mass: np.ndarray,
    home: np.ndarray,
    first_tiles: np.ndarray,
    last_tiles: np.ndarray,
    left_out: np.ndarray,
    from_tile: int,
    to_tile: int,
    low: np.ndarray,
) -> None:
    """low[i] <= log sum_j exp(s_ij) for the rows of some tiles, from their home tiles; -inf only for a row without any neighbour."""
    d, dtype = queries.packed.shape[1], queries.packed.dtype
    rows, shifted, scores = np.empty((TILE, d), dtype), np.empty((ROWS, d), dtype), np.empty((ROWS, TILE), dtype)
    for t in range(from_tile, to_tile):
        first, stop = queries.starts[t], queries.starts[t + 1]
        for i in range(stop - first):
            low[first + i] = -np.inf
            for k in range(d):
                rows[i, k] = queries.packed[t, k, i] + queries.centres[t, k]
        its_low, its_left_out, i = low[first:stop], left_out[first:stop], 0
        while i < stop - first:
            count, at = 1, home[first + i]
            while count < ROWS and first + i + count < stop and home[first + i + count] == at:
                count += 1
            _add_bounds(rows, i, count, points, at, its_left_out, shifted, scores, its_low)
            for r in range(i, i + count):
                distance = 0
                while its_low[r] == -np.inf and distance < last_tiles[t] - first_tiles[t]:
                    distance += 1
                    for u in (at - distance, at + distance):
                        if first_tiles[t] <= u < last_tiles[t] and log_mass[u] > -np.inf:
                            _add_bounds(rows, r, int64(1), points, u, its_left_out, shifted, scores, its_low)
            i += count


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
    queries: PackedTiles,
    t: int,
    points: PackedTiles,
    u: int,
    rows: np.ndarray,
    squares: np.ndarray,
    shifted: np.ndarray,
    step: np.ndarray,
    start: np.ndarray,
    half: np.ndarray,
) -> None:
    """The step between the centres of two tiles, the initial values of the scores, start[0, j], and their excess, half[0, i].

    Half the square of a row about the other centre is ``|x|^2 / 2 + x'step + |step|^2 / 2``.  The rows of a wide tile are `shifted` first.
    """
    square, d = 0.0, step.shape[1]
    for k in range(d):
        x = queries.centres[t, k] - points.centres[u, k]
        step[0, k] = x
        square += float64(x) * float64(x)
    if not (queries.wide[t] or points.wide[u]):
        products_of_one(step, 0, points.packed[u], points.offsets[u], start)
        products_of_one(step, 0, queries.packed[t], squares, half)
        for j in range(TILE):
            half[0, j] += 0.5 * square
        return
    for j in range(TILE):
        start[0, j], square = points.offsets[u, j], 0.0
        for k in range(d):
            x = rows[j, k] + step[0, k]
            shifted[j, k] = x
            square += float64(x) * float64(x)
        half[0, j] = 0.0 if points.wide[u] else 0.5 * square


@njit(fastmath={"contract"}, **_OPTIONS)
def _judge(
    rows: np.ndarray,
    g: int,
    first: int,
    count: int,
    tile: np.ndarray,
    is_wide: bool,
    left_out: np.ndarray,
    place: int,
    levels: Levels,
    heavy: float,
    others: np.ndarray,
    half: np.ndarray,
    start: np.ndarray,
    work: tuple[np.ndarray, ...],
) -> int:
    """Compute the scores of four rows with a tile that begins at a place, plus half, and which of them count; return their number."""
    scores, own, lift, reached = work
    total = 0
    for r in range(ROWS):
        i = first + min(r, count - 1)
        own[r], lift[r] = levels.of_rows[i], half[0, g + r] - levels.log_weights[i] - heavy
    if is_wide:
        judged_differences(rows, g, g + 1, g + 2, g + 3, tile, start[0], scores, own, lift, others, reached)
    else:
        judged_products(rows, g, g + 1, g + 2, g + 3, tile, start[0], scores, own, lift, others, reached)
    for r in range(count):
        skip = left_out[first + r] - place
        if 0 <= skip < TILE:
            scores[r, skip] = -np.inf
            reached[r] &= ~(int64(1) << skip)
        total += n_bits(reached[r])
    return total


@njit(fastmath=_SUMS, **_OPTIONS)
def _exponentials(scores: np.ndarray, below: float, most: float) -> float:
    """scores <- E = exp(scores - below), at most exp(most); return sum E."""
    total = scores.dtype.type(0)
    for j in range(TILE):
        e = _exp(min(scores[j] - below, most))
        scores[j] = e
        total += e
    return total


@njit(fastmath={"contract"}, **_OPTIONS)
def _exponentials_of_some(
    scores: np.ndarray, bits: int, below: float, most: float, which: np.ndarray, some: np.ndarray
) -> float:
    """The same for the columns whose bits are set; the others become 0."""
    count, total = 0, scores.dtype.type(0)
    while bits != 0:
        j = lowest_bit(bits)
        bits &= bits - 1
        which[count] = j
        some[count] = min(scores[j] - below, most)
        count += 1
    scores[:] = 0
    for c in range(count):
        e = _exp(some[c])
        scores[which[c]] = e
        total += e
    return total


@njit(fastmath={"contract"}, **_OPTIONS)
def _exponents(scores: np.ndarray, below: float, most: float, log_weights: np.ndarray, logs: np.ndarray) -> None:
    """logs[j] = log E - log b, where E is computed from the scores."""
    for j in range(TILE):
        # Minus infinity times 0 is not a number.
        logs[j] = max(min(scores[j] - below, most), scores.dtype.type(-1e4)) - log_weights[j]


@njit(fastmath=_SUMS, **_OPTIONS)
def _times(logs: np.ndarray, weights: np.ndarray) -> float:
    """logs[j] *= weights[j]; return their sum."""
    total = logs.dtype.type(0)
    for j in range(TILE):
        logs[j] *= weights[j]
        total += logs[j]
    return total


@njit(fastmath=_SUMS, **_OPTIONS)
def _scale(weights: np.ndarray, b: float, f: float, factors: np.ndarray) -> float:
    """weights[j] *= b (f + factors[j]); return their sum."""
    total = weights.dtype.type(0)
    for j in range(TILE):
        weight = weights[j] * (b * (f + factors[j]))
        weights[j] = weight
        total += weight
    return total


@njit(fastmath={"contract"}, **_OPTIONS)
def _dot_some(weights: np.ndarray, reached: np.ndarray, count: int, values: np.ndarray, out: np.ndarray) -> None:
    """out[r, k] += sum_j weights[r, j] values[k, j] over the columns whose bits are set."""
    for r in range(count):
        bits = reached[r]
        while bits != 0:
            j = lowest_bit(bits)
            bits &= bits - 1
            weight = float64(weights[r, j])
            for k in range(values.shape[0]):
                out[r, k] += weight * values[k, j]


# -- scatters ------------------------------------------------------------------------------------------------------


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


@njit(fastmath={"contract"}, **_OPTIONS)
def _add_differences(
    scatter: np.ndarray, weights: np.ndarray, g: int, count: int, rows: np.ndarray, points: np.ndarray, z: np.ndarray
) -> None:
    """scatter += sum_rj weights[r, j] (x - y - z)(x - y - z)' for the rows g.. of a tile; for wide tiles, in which products lose digits."""
    difference = np.empty(z.shape[0])
    for r in range(count):
        for j in range(TILE):
            weight = float64(weights[r, j])
            if weight != 0.0:
                for k in range(z.shape[0]):
                    difference[k] = float64(rows[k, g + r]) - float64(points[k, j]) - z[k]
                for k in range(z.shape[0]):
                    for m in range(z.shape[0]):
                        scatter[k, m] += weight * difference[k] * difference[m]


# -- the sweep -----------------------------------------------------------------------------------------------------


def _signature(real: Any) -> Any:
    a2, a3, doubles, ints = real[:, ::1], real[:, :, ::1], float64[::1], int64[::1]
    visits = types.NamedTuple((ints, int32[::1], uint16[::1], int32[::1]), Visits)
    levels = types.NamedTuple((doubles, doubles, doubles, doubles, a2, doubles), Levels)
    values = types.NamedTuple((a3, a2, a3, a2, doubles, a2), Values)
    tables = float64[:, ::1]
    return void(
        tiles_type(real), tiles_type(real), visits, levels, values, boolean, boolean, float64, ints, int64, int64, tables,
        float64[:, :, ::1], uint16[::1], ints, tables, doubles,
    )  # fmt: skip


@_kernel(_signature)
def sweep(
    queries: PackedTiles, points: PackedTiles, visits: Visits, levels: Levels, values: Values, once: bool, squares: bool, highest: float,
    left_out: np.ndarray, from_tile: int, to_tile: int, row_sums: np.ndarray, column_sums: np.ndarray, taken: np.ndarray, counts: np.ndarray,
    scatter: np.ndarray, size: np.ndarray,
) -> None:  # fmt: skip
    """``M V`` and ``M 1`` to rows, and ``M' W`` and ``M' 1`` to points.

    For mean *squares*, ``E (log E - log b)`` comes before the last sum, where ``log b`` are the factors g, without a row's factors f.  If there is a
    `scatter`, only ``M 1`` goes to rows and points, and ``sum M (v_i - v_j)(v_i - v_j)'`` to it, but for the terms in x x' and y y' that these imply.
    Arrays that a sum does not need are empty.
    """
    scatters = scatter.shape[0] > 0
    d, v, u_given, n_columns = (
        queries.packed.shape[1], values.of_points.shape[1], values.of_rows.shape[1], column_sums.shape[1]
    )  # fmt: skip
    n_received = min(u_given, n_columns - 1)  # values of the queries that points receive
    dtype, last, scaled = queries.packed.dtype, row_sums.shape[1] - 1, values.row_factors.shape[0] > 0
    most = dtype.type(highest)
    own_rows, shifted, halves = np.empty((TILE, d), dtype), np.empty((TILE, d), dtype), np.empty(TILE, dtype)
    step, start, half = np.empty((1, d), dtype), np.empty((1, TILE), dtype), np.empty((1, TILE), dtype)
    scores, reached = np.empty((ROWS, TILE), dtype), np.zeros(ROWS, np.int64)
    logs = np.empty((ROWS, TILE), dtype)
    work = scores, np.empty(ROWS, dtype), np.empty(ROWS, dtype), reached
    which, some = np.empty(TILE, np.int64), np.empty(TILE, dtype)
    given = np.empty((TILE, u_given), dtype)
    gathered, sums, totals, b = np.empty((TILE, v)), np.empty((ROWS, v)), np.empty(ROWS), np.zeros(ROWS)
    masses, here, column = np.empty(TILE), np.empty(TILE), np.empty(TILE)
    z, of_points = np.zeros(values.middles.shape[1]), np.empty(v)
    for t in range(from_tile, to_tile):
        first, count = queries.starts[t], queries.starts[t + 1] - queries.starts[t]
        _open_tile(queries.packed[t], own_rows, halves)
        for k in range(u_given):
            for j in range(TILE):
                given[j, k] = values.of_rows[t, k, j]
        gathered[:, :] = 0.0
        masses[:] = 0.0
        for c in range(visits.starts[t - from_tile], visits.starts[t - from_tile + 1]):
            u, bits, seen = int64(visits.tiles[c]), int64(visits.groups[c]), 0
            taken[c] = 0
            if bits == 0:
                continue
            _meet(queries, t, points, u, own_rows, halves, shifted, step, start, half)
            is_wide, within = queries.wide[t] or points.wide[u], once and u == t
            rows = shifted if is_wide else own_rows
            gives = n_columns > 0 and (scatters or not within)
            both = 0.5 if scatters and within else 1.0  # the pairs within a tile are counted twice
            for k in range(z.shape[0]):
                z[k] = float64(values.middles[u, k]) - float64(values.row_middles[t, k])
            heavy = max(levels.heavy[u], levels.heavy[t]) if once else levels.heavy[u]
            others = levels.of_points[u if levels.of_points.shape[0] > 1 else 0]
            factors = values.factors[u if values.factors.shape[0] > 1 else 0]
            tile, tile_values, columns = points.packed[u], values.of_points[u], column_sums[visits.lines[c]]
            column[:] = 0.0
            here[:] = 0.0
            of_points[:] = 0.0
            for g in range(0, count, ROWS):
                if not (bits >> (g // ROWS)) & 1:
                    continue
                in_group = min(ROWS, count - g)
                counts[0] += in_group * TILE
                n_pairs = _judge(
                    rows,
                    g,
                    first + g,
                    in_group,
                    tile,
                    points.wide[u],
                    left_out,
                    points.starts[u],
                    levels,
                    heavy,
                    others,
                    half,
                    start,
                    work,
                )
                if n_pairs == 0:
                    continue
                seen |= 1 << (g // ROWS)
                counts[1] += in_group * TILE if n_pairs > _FEW else n_pairs
                for r in range(ROWS):
                    b[r] = 0.0
                    if r >= in_group:
                        scores[r, :] = 0
                        if squares:
                            logs[r, :] = 0
                        continue
                    i = first + g + r
                    below = dtype.type(half[0, g + r] + levels.shifts[i])
                    b[r] = levels.weights[i]
                    if squares:
                        _exponents(scores[r], below, most, factors, logs[r])
                    if n_pairs > _FEW:
                        totals[r] = _exponentials(scores[r], below, most)
                    else:
                        totals[r] = _exponentials_of_some(scores[r], reached[r], below, most, which, some)
                    if squares:
                        row_sums[i, last - 1] += _times(logs[r], scores[r])
                    if scaled:
                        weight, factor = dtype.type(both * b[r]), dtype.type(values.row_factors[i])
                        totals[r] = _scale(scores[r], weight, factor, factors)
                        b[r] = 1.0
                if scatters and is_wide:
                    _add_differences(scatter, scores, g, in_group, values.of_rows[t], tile_values, z)
                    continue
                if v > 0:
                    sums[:, :] = 0.0
                    if n_pairs > _FEWEST:
                        _dot_all(scores, tile_values, sums)
                    else:
                        _dot_some(scores, reached, in_group, tile_values, sums)
                for r in range(in_group):
                    here[g + r] = totals[r]
                    for k in range(v):
                        gathered[g + r, k] += sums[r, k]
                        of_points[k] += sums[r, k]
                if gives:
                    _add_columns(column, scores, b)
                    if squares:
                        _add_columns(columns[n_columns - 2], logs, b)
                    if n_received > 0:
                        _add_to_points(scores, given, g, columns)
            taken[c] = seen
            if seen == 0:
                continue
            total = 0.0
            for r in range(count):
                if here[r] != 0.0:
                    total += here[r]
                    masses[r] += here[r]
                    for k in range(v):
                        gathered[r, k] += here[r] * z[k]
            if gives:
                for j in range(TILE):
                    columns[n_columns - 1, j] += column[j]
                for k in range(n_received):
                    for j in range(TILE):
                        columns[k, j] -= column[j] * z[k]
            if scatters:
                for k in range(v):
                    of_points[k] += 0.5 * total * z[k]
                    size[0] += total * z[k] * z[k]
                _add_both(scatter, z, of_points)
        for r in range(count):
            row_sums[first + r, last] += masses[r]
            if not scatters:
                for k in range(v):
                    row_sums[first + r, k] += gathered[r, k]
        if scatters:
            _add_cross(scatter, values.of_rows[t], gathered, count)
