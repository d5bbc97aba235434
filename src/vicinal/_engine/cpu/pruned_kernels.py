"""Compiled: the uses of the exponentials of a group of queries, and the only kernel that `cpu/pruned_sweeps.py` runs.

One kernel computes all sums, because compiling the sweep takes longer than compiling everything that follows it.
"""

from typing import Any

import numpy as np
from numba import boolean, float64, int64, njit, types, void

from vicinal._engine.cpu.parts import ROWS, _add_columns, _add_to_points, _back
from vicinal._engine.cpu.pruned_group import exponentials_of_tile, make_workspace, start_block, sweep_group
from vicinal._engine.tuning import PRUNED_TILE as TILE
from vicinal._engine.tuning import QUERY_BLOCK, QUERY_GROUP, TILE_SPAN
from vicinal._engine.work.compiling import _OPTIONS, _kernel


@njit(fastmath={"contract"}, **_OPTIONS)
def _means_of_group(
    queries: np.ndarray,
    first: int,
    in_group: int,
    points: tuple[np.ndarray, ...],
    taken: int,
    workspace: tuple[Any, ...],
    relative: bool,
    log_sums: np.ndarray,
    certificates: np.ndarray,
    means: np.ndarray,
    entropies: np.ndarray,
) -> None:
    """Log-sums, certificates, means of values and entropies; those that are not requested are empty."""
    _, tile_of, alive, shifts, sums = workspace[2]
    shift, total, certificate = workspace[3]
    n_values, with_logs = means.shape[1], entropies.shape[0] > 0
    for r in range(in_group):
        i = first + r
        log_sums[i], certificates[i] = -np.inf, certificate[r]
        for k in range(n_values):
            means[i, k] = 0.0
        if with_logs:
            entropies[i] = 0.0
        if not total[r] > 0.0:
            continue
        log_sums[i], logs = shift[r] + np.log(total[r]), 0.0
        if n_values == 0 and not with_logs:
            continue
        for c in range(taken):
            if not alive[c, r // ROWS]:
                continue
            t, share = tile_of[c], _back(shifts[c, r], shift[r]) / total[r]
            mass = share * sums[c, r, n_values]
            for k in range(n_values):
                means[i, k] += share * sums[c, r, k]
                if relative:
                    means[i, k] += mass * (points[1][t, k] - queries[i, k])
            if with_logs:
                logs += share * sums[c, r, n_values + 1] + mass * (shifts[c, r] - shift[r])
        if with_logs:
            entropies[i] = np.log(total[r]) - logs


@njit(fastmath={"contract"}, **_OPTIONS)
def _received_of_tile(
    queries: np.ndarray,
    first: int,
    in_group: int,
    points: tuple[np.ndarray, ...],
    c: int,
    weights: np.ndarray,
    workspace: tuple[Any, ...],
    query_values: np.ndarray,
    images: bool,
    factors: np.ndarray,
    scaled: np.ndarray,
    received: np.ndarray,
) -> None:
    """What the points of the c-th tile receive, `received` (u, TILE): ``f_i p_ij`` times the values of the queries.

    For `images`, times ``q_i - c`` and 1, with c the centre of the tile.
    """
    _, tile_of, alive, shifts, _ = workspace[2]
    shift, total, _ = workspace[3]
    t, d = tile_of[c], queries.shape[1]
    for g in range(0, in_group, ROWS):
        if not alive[c, g // ROWS]:
            continue
        for r in range(ROWS):
            i, factor = first + min(g + r, in_group - 1), 0.0
            if g + r < in_group and total[g + r] > 0.0:
                factor = factors[i] * _back(shifts[c, g + r], shift[g + r]) / total[g + r]
            if images:
                for k in range(d):
                    scaled[r, k] = factor * (queries[i, k] - points[1][t, k])
                scaled[r, d] = factor
            else:
                for k in range(scaled.shape[1]):
                    scaled[r, k] = factor * query_values[i, k]
        _add_to_points(weights[g : g + ROWS], scaled, 0, received)


@njit(fastmath={"contract"}, **_OPTIONS)
def _shares_of_tile(
    first: int,
    in_group: int,
    c: int,
    weights: np.ndarray,
    workspace: tuple[Any, ...],
    codes: np.ndarray,
    shares: np.ndarray,
) -> None:
    """Add the shares of the c-th tile to those of the classes of its points."""
    _, tile_of, alive, shifts, _ = workspace[2]
    shift, total, _ = workspace[3]
    t = tile_of[c]
    for r in range(in_group):
        if alive[c, r // ROWS] and total[r] > 0.0:
            share = _back(shifts[c, r], shift[r]) / total[r]
            for j in range(TILE):
                if weights[r, j] > 0:
                    shares[first + r, codes[t, j]] += share * weights[r, j]


@njit(fastmath={"contract"}, **_OPTIONS)
def _add_outer(scatter: np.ndarray, mass: float, x: np.ndarray, sums: np.ndarray, sign: float) -> float:
    """scatter += mass x x' + sign (x sums' + sums x'), its lower triangle; returns mass |x|^2."""
    size = 0.0
    for k in range(x.shape[0]):
        a, b = mass * x[k] + sign * sums[k], sign * x[k]
        size += mass * x[k] * x[k]
        for m in range(k + 1):
            scatter[k, m] += a * x[m] + b * sums[m]
    return size


@njit(fastmath={"contract"}, **_OPTIONS)
def _add_differences(
    scatter: np.ndarray, weight: float, exponentials: np.ndarray, r: int, tiles: np.ndarray, t: int, x: np.ndarray
) -> None:
    """scatter += weight sum_j e_j (v_j - x)(v_j - x)', its lower triangle."""
    for j in range(TILE):
        w = weight * exponentials[r, j]
        if w != 0.0:
            for k in range(x.shape[0]):
                a = w * (tiles[t, k, j] - x[k])
                for m in range(k + 1):
                    scatter[k, m] += a * (tiles[t, m, j] - x[m])


@njit(fastmath={"contract"}, **_OPTIONS)
def _scatter_of_tile(
    first: int,
    in_group: int,
    points: tuple[np.ndarray, ...],
    c: int,
    weights: np.ndarray,
    workspace: tuple[Any, ...],
    values: np.ndarray,
    about: tuple[np.ndarray, np.ndarray],
    row_weights: np.ndarray,
    direct: bool,
    of_rows: np.ndarray,
    received: np.ndarray,
    scatter: np.ndarray,
) -> float:
    """``sum_ij r_i p_ij (v_i - v_j)(v_i - v_j)'`` over the c-th tile, except for the terms that follow from its columns and rows.

    With o the query group's first query, x = v_i - o, y = v_j - c and z = c - o for the centre c of the tile's values, the
    difference is ``y + z - x``.  The caller computes the terms in y y' from what the columns receive, and those in x from what
    `of_rows` gathers (`_scatter_of_rows`); those in z y' and z z' are computed here, once for all rows.  With `direct`, and for
    wide tiles, differences are taken pair by pair.  Returns the trace of its terms before they cancel.
    """
    _, tile_of, alive, shifts, sums = workspace[2]
    shift, total, _ = workspace[3]
    centres, of_queries = about
    t, n_values = tile_of[c], values.shape[1]
    factors, x, z, tile_sums, tile_mass = (
        np.zeros(QUERY_GROUP),
        np.empty(n_values),
        np.empty(n_values),
        np.zeros(n_values),
        0.0,
    )
    for k in range(n_values):
        z[k] = float64(centres[t, k]) - float64(of_queries[first, k])
    for r in range(in_group):
        if not alive[c, r // ROWS] or not total[r] > 0.0 or row_weights[first + r] == 0.0:
            continue
        factor = row_weights[first + r] * _back(shifts[c, r], shift[r]) / total[r]
        if direct or points[3][t]:
            for k in range(n_values):
                x[k] = float64(of_queries[first + r, k]) - float64(centres[t, k])
            _add_differences(scatter, factor, weights, r, values, t, x)
            continue
        factors[r] = factor
        mass = factor * sums[c, r, n_values]
        of_rows[r, n_values] += mass
        tile_mass += mass
        for k in range(n_values):
            here = factor * sums[c, r, k]
            tile_sums[k] += here
            of_rows[r, k] += mass * z[k] + here
    if tile_mass == 0.0:
        return 0.0
    for g in range(0, in_group, ROWS):
        if alive[c, g // ROWS]:
            _add_columns(received[0], weights[g : g + ROWS], factors[g : g + ROWS])
    return _add_outer(scatter, tile_mass, z, tile_sums, 1.0)


@njit(fastmath={"contract"}, **_OPTIONS)
def _scatter_of_rows(
    first: int, in_group: int, about: tuple[np.ndarray, np.ndarray], of_rows: np.ndarray, scatter: np.ndarray
) -> float:
    """Add the terms of `_scatter_of_tile` in x, of all tiles together; return their trace before they cancel."""
    of_queries, n_values, size = about[1], of_rows.shape[1] - 1, 0.0
    x, gathered = np.empty(n_values), np.empty(n_values)
    for r in range(in_group):
        for k in range(n_values):
            x[k] = float64(of_queries[first + r, k]) - float64(of_queries[first, k])
            gathered[k] = of_rows[r, k]
        size += _add_outer(scatter, of_rows[r, n_values], x, gathered, -1.0)
    return size


def _signature(real: Any) -> Any:
    a2, a3, doubles, ints = real[:, ::1], real[:, :, ::1], float64[::1], int64[::1]
    boxes, table = float64[:, :, ::1], float64[:, ::1]
    points = types.Tuple((a3, a2, a2, boolean[::1], ints))
    plan = types.Tuple((boxes, boxes, table, table, doubles, doubles, float64))
    asked = (a2, ints, ints, ints, ints, ints, points, plan, doubles, types.UniTuple(float64, 5))
    wanted = (a3, boolean, a2, boolean, doubles, int64[:, ::1], types.UniTuple(a2, 2), boolean)
    found = (doubles, doubles, table, doubles, table, table, doubles, ints)
    return void(*asked, *wanted, *found, boxes, ints, ints)


@njit(**_OPTIONS)
def _line_of(t: int, slots: np.ndarray, progress: np.ndarray) -> int:
    """Return the line that holds what a tile receives: the next free one if it has none yet."""
    if slots[t] < 0:
        slots[t] = progress[1]
        progress[1] += 1
    return slots[t]


@_kernel(_signature)
def visit_groups(
    queries: np.ndarray,
    left_out: np.ndarray,
    home: np.ndarray,
    blocks: np.ndarray,
    first_tiles: np.ndarray,
    last_tiles: np.ndarray,
    points: tuple[np.ndarray, ...],
    plan: tuple[Any, ...],
    heavy: np.ndarray,
    rule: tuple[float, ...],
    values: np.ndarray,
    relative: bool,
    query_values: np.ndarray,
    query_images: bool,
    factors: np.ndarray,
    codes: np.ndarray,
    about: tuple[np.ndarray, np.ndarray],
    direct: bool,
    log_sums: np.ndarray,
    certificates: np.ndarray,
    means: np.ndarray,
    entropies: np.ndarray,
    shares: np.ndarray,
    scatter: np.ndarray,
    size: np.ndarray,
    counts: np.ndarray,
    columns: np.ndarray,
    slots: np.ndarray,
    progress: np.ndarray,
) -> None:
    """Blocks of queries: log-sums and their certificates, and all other results whose arrays are not empty.

    - means (m, v) of `values`; with `relative` the values are the points as they are packed, and the means those of
      ``z_j - q_i``; entropies (m,);
    - columns (lines, u, TILE): what each point receives of the `query_values` times `factors`; the line of a tile is in
      `slots`, or -1;
    - shares (m, n_classes) of the classes `codes` (n_tiles, TILE);
    - scatter (v, v) of the values about their centres, ``about = (centres, values of the queries)``, weighted by
      `factors`; then the columns have one line, for `_scatter_of_tile`.

    progress = (finished blocks, lines in use, lines that the next block may need): if these are too many, the kernel
    returns, and is called again with more lines.
    """
    n_tiles, n_received, n_classes = points[0].shape[0], columns.shape[1], shares.shape[1]
    wants_scatter = scatter.shape[0] > 0
    keep = n_received > 0 or n_classes > 0
    workspace = make_workspace(n_tiles, queries.shape[1], values.shape[1], queries)
    low, spans = np.empty(QUERY_BLOCK), np.empty(-(-n_tiles // TILE_SPAN), np.int64)
    scaled, of_rows = np.empty((ROWS, max(n_received, 1)), queries.dtype), np.empty((QUERY_GROUP, scatter.shape[0] + 1))
    for b in range(progress[0], blocks.shape[0] - 1):
        start, stop, first_tile, last_tile = blocks[b], blocks[b + 1], first_tiles[b], last_tiles[b]
        n_spans = start_block(
            queries, left_out, home, start, stop, first_tile, last_tile, points, plan, rule, low, spans, workspace[1]
        )
        progress[2] = min(n_spans * TILE_SPAN, last_tile - first_tile) if n_received > 0 else 0
        if progress[1] + progress[2] > columns.shape[0]:
            return
        for first in range(start, stop, QUERY_GROUP):
            in_group = min(QUERY_GROUP, stop - first)
            taken = sweep_group(
                queries, first, in_group, left_out, low[first - start :], points, plan, heavy, rule, spans, n_spans,
                first_tile, last_tile, values, keep, entropies.shape[0] > 0, workspace, counts,
            )  # fmt: skip
            _means_of_group(
                queries, first, in_group, points, taken, workspace, relative, log_sums, certificates, means, entropies
            )
            if not keep:
                continue
            of_rows[:, :] = 0.0
            for c in range(taken):
                weights = exponentials_of_tile(queries, first, in_group, points, left_out, c, workspace)
                if n_classes > 0:
                    _shares_of_tile(first, in_group, c, weights, workspace, codes, shares)
                    continue
                received = columns[_line_of(workspace[2][1][c], slots, progress)]
                if wants_scatter:
                    size[0] += _scatter_of_tile(
                        first, in_group, points, c, weights, workspace, values, about, factors, direct, of_rows, received,
                        scatter,
                    )  # fmt: skip
                else:
                    _received_of_tile(
                        queries, first, in_group, points, c, weights, workspace, query_values, query_images, factors, scaled,
                        received,
                    )  # fmt: skip
            if wants_scatter:
                size[0] += _scatter_of_rows(first, in_group, about, of_rows, scatter)
        progress[0] = b + 1
