"""Fused Triton kernels that list pairs of tiles, and that sweep listed pairs; `cuda/pruned.py` launches them.

Symbols are those of `cuda/triton_once.py`, with a centre per tile.  The tiles that tile b visits are ``LIST[START[b]]`` to
``LIST[START[b + 1] - 1]``, in both directions: a program adds along rows alone and stores nothing per pair of tiles.
"""

import triton
import triton.language as tl


@triton.jit
def _box_squares(i, j, n_i, n_j, LOW_I, HIGH_I, LOW_J, HIGH_J, n_coordinates, shrink, D: tl.constexpr, BI: tl.constexpr, BJ: tl.constexpr):  # fmt: skip
    """Return squared distances of boxes i and j, rounded down."""
    squares = tl.zeros([BI, BJ], tl.float64)
    for k in range(n_coordinates):
        low_i = tl.load(LOW_I + i * D + k, mask=i < n_i, other=0.0)
        high_i = tl.load(HIGH_I + i * D + k, mask=i < n_i, other=0.0)
        low_j = tl.load(LOW_J + j * D + k, mask=j < n_j, other=0.0)
        high_j = tl.load(HIGH_J + j * D + k, mask=j < n_j, other=0.0)
        gap = tl.maximum(low_i[:, None] - high_j[None, :], low_j[None, :] - high_i[:, None])
        gap = tl.maximum(gap, 0.0)
        squares += gap * gap
    return squares * shrink


@triton.jit
def nearest_box(
    LOW_I, HIGH_I, LOW_J, HIGH_J, MASS, NEAREST, n_i, n_j, n_coordinates, shrink, half,
    D: tl.constexpr, BI: tl.constexpr, BJ: tl.constexpr,
):  # fmt: skip
    """For each box i, the box j that may add most to a sum, NEAREST (n_i,): a start for a lower bound of that sum."""
    i = tl.program_id(0) * BI + tl.arange(0, BI)
    best = tl.full([BI], float("-inf"), tl.float64)
    nearest = tl.zeros([BI], tl.int32)
    for block in range(tl.cdiv(n_j, BJ)):
        j = block * BJ + tl.arange(0, BJ)
        squares = _box_squares(i, j, n_i, n_j, LOW_I, HIGH_I, LOW_J, HIGH_J, n_coordinates, shrink, D, BI, BJ)
        mass = tl.load(MASS + j, mask=j < n_j, other=float("-inf"))
        most = mass[None, :] - half * squares
        highest, at = tl.max(most, 1), tl.argmax(most, 1)
        nearest = tl.where(highest > best, block * BJ + at, nearest)
        best = tl.maximum(best, highest)
    tl.store(NEAREST + i, nearest, mask=i < n_i)


@triton.jit
def skipped_sums(
    LOW_I, HIGH_I, LOW_J, HIGH_J, MASS, LEAST, FOUND, n_i, n_j, n_coordinates, raised, shrink, half, lowest, step,
    D: tl.constexpr, BI: tl.constexpr, BJ: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    """What skipping the tiles below a threshold could cost, for T thresholds: FOUND (parts, n_i, T).

    The threshold t of box i is ``LEAST_i + lowest + t step``, in base-2 logarithms.  Squares below 2 count as 2, where
    ``u^2 exp(-u^2 / 2)`` is largest, because the box contains points at all larger distances.  FOUND is the sum, relative to ``2^LEAST``,
    of what the boxes j below it can add to a sum, times their squared distance.
    """
    i = tl.program_id(0) * BI + tl.arange(0, BI)
    part, parts = tl.program_id(1), tl.num_programs(1)
    least = tl.load(LEAST + i, mask=i < n_i, other=0.0)
    thresholds = tl.arange(0, T)
    total = tl.zeros([BI, T], tl.float64)
    n_blocks = tl.cdiv(n_j, BJ)
    for block in range(n_blocks * part // parts, n_blocks * (part + 1) // parts):
        j = block * BJ + tl.arange(0, BJ)
        squares = _box_squares(i, j, n_i, n_j, LOW_I, HIGH_I, LOW_J, HIGH_J, n_coordinates, shrink, D, BI, BJ)
        mass = tl.load(MASS + j, mask=j < n_j, other=float("-inf"))
        most = raised - half * squares + tl.log2(tl.maximum(squares, 2.0)) + mass[None, :] - least[:, None]
        values = tl.where((j < n_j)[None, :], tl.exp2(most), 0.0)
        for t in tl.static_range(T):
            below = tl.sum(tl.where(most <= lowest + t * step, values, 0.0), 1)
            total += tl.where(thresholds == t, 1.0, 0.0)[None, :] * below[:, None]
    to = (part.to(tl.int64) * n_i + i)[:, None] * T + thresholds[None, :]
    tl.store(FOUND + to, total, mask=(i < n_i)[:, None])


@triton.jit
def nearby_tiles(
    LOW_I, HIGH_I, LOW_J, HIGH_J, MASS_I, MASS_J, THRESHOLD_I, THRESHOLD_J, KEPT, REST,
    n_i, n_j, n_coordinates, raised, shrink, half,
    D: tl.constexpr, BI: tl.constexpr, BJ: tl.constexpr, BOTH: tl.constexpr,
):  # fmt: skip
    """Which pairs of tiles must be visited, KEPT (n_i, n_j), and a bound of what the others hold.

    LOW and HIGH (tiles, D) are boxes, MASS the base-2 logarithms of the sums of the tiles' weights.  A pair is skipped where
    the most that tile j can add, times the squared distance, is at most ``2^THRESHOLD_i``, and with BOTH the other way as
    well.  REST (blocks, n_i) gets the sum of ``2^bound`` over the tiles that a tile skips.  All in float64.
    """
    i = tl.program_id(0) * BI + tl.arange(0, BI)
    j = tl.program_id(1) * BJ + tl.arange(0, BJ)
    there = (i < n_i)[:, None] & (j < n_j)[None, :]
    squares = _box_squares(i, j, n_i, n_j, LOW_I, HIGH_I, LOW_J, HIGH_J, n_coordinates, shrink, D, BI, BJ)
    bound = raised - half * squares
    weighed = bound + tl.log2(tl.maximum(squares, 2.0))
    mass_j = tl.load(MASS_J + j, mask=j < n_j, other=0.0)
    far = weighed + mass_j[None, :] <= tl.load(THRESHOLD_I + i, mask=i < n_i, other=0.0)[:, None]
    if BOTH:
        mass_i = tl.load(MASS_I + i, mask=i < n_i, other=0.0)
        far &= weighed + mass_i[:, None] <= tl.load(THRESHOLD_J + j, mask=j < n_j, other=0.0)[None, :]
    tl.store(KEPT + i[:, None].to(tl.int64) * n_j + j[None, :], tl.where(far, 0, 1).to(tl.int8), mask=there)
    rest = tl.sum(tl.where(far & there, tl.exp2(bound + mass_j[None, :]), 0.0), 1)
    tl.store(REST + tl.program_id(1).to(tl.int64) * n_i + i, rest, mask=i < n_i)


@triton.jit
def _parts(at, U, UL, D: tl.constexpr, SPLIT: tl.constexpr):
    """Return what U and UL hold for some places, and their sum."""
    where = at[:, None] * D + tl.arange(0, D)[None, :]
    high = tl.load(U + where)
    if SPLIT:
        low = tl.load(UL + where)
        return high, low, high.to(tl.float32) + low.to(tl.float32)
    else:
        return high, high, high


@triton.jit
def _kernel_values(b, c, i, ui, ui_low, ui_whole, j, uj, uj_low, uj_whole, C, H, shift, unit, D: tl.constexpr, SPLIT: tl.constexpr):  # fmt: skip
    """``K_ij`` of the rows i of tile b and a block of columns j of tile c, 0 for a row and itself."""
    k = tl.arange(0, D)
    step = (tl.load(C + b * D + k) - tl.load(C + c * D + k)).to(ui_whole.dtype)
    if SPLIT:
        scores = tl.dot(ui_low, tl.trans(uj))
        scores = tl.dot(ui, tl.trans(uj_low), scores)
        scores = tl.dot(ui, tl.trans(uj), scores)
    else:
        scores = tl.dot(ui, tl.trans(uj), input_precision="ieee", out_dtype=ui.dtype)
    quarter = 0.25 * tl.sum(step * step, 0)
    aj = (tl.sum(uj_whole * step[None, :], 1) - quarter) * unit - tl.load(H + j)
    ai = (-tl.sum(ui_whole * step[None, :], 1) - quarter) * unit - tl.load(H + i) + shift
    K = tl.exp2(scores * unit + ai[:, None] + aj[None, :])
    return tl.where(i[:, None] == j[None, :], 0.0, K), step


@triton.jit
def listed_sums(
    U, UL, C, H, CODE, LIST, START, SHIFT, SUMS, MATES, unit, n_places,
    D: tl.constexpr, B: tl.constexpr, BJ: tl.constexpr, SPLIT: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    """``sum_j K_ij`` in parts: SUMS (parts, n_places); with CLASSES also over pairs of the same class, MATES."""
    b, part = tl.program_id(0), tl.program_id(1)
    i = b * B + tl.arange(0, B)
    ui, ui_low, ui_whole = _parts(i, U, UL, D, SPLIT)
    shift = tl.load(SHIFT)
    total = tl.zeros([B], ui_whole.dtype)
    matched = tl.zeros([B], ui_whole.dtype)
    if CLASSES:
        mine = tl.load(CODE + i)
    first, count = tl.load(START + b) * (B // BJ), (tl.load(START + b + 1) - tl.load(START + b)) * (B // BJ)
    n_parts = tl.num_programs(1)
    for at in range(first + count * part // n_parts, first + count * (part + 1) // n_parts):
        c = tl.load(LIST + at // (B // BJ))
        j = c * B + (at % (B // BJ)) * BJ + tl.arange(0, BJ)
        uj, uj_low, uj_whole = _parts(j, U, UL, D, SPLIT)
        K, step = _kernel_values(b, c, i, ui, ui_low, ui_whole, j, uj, uj_low, uj_whole, C, H, shift, unit, D, SPLIT)
        total += tl.sum(K, 1)
        if CLASSES:
            matched += tl.sum(tl.where(mine[:, None] == tl.load(CODE + j)[None, :], K, 0.0), 1)
    to = part.to(tl.int64) * n_places + i
    tl.store(SUMS + to, total)
    if CLASSES:
        tl.store(MATES + to, matched)


@triton.jit
def listed_pulls(
    U, UL, C, H, CODE, OUTSIDE, INSIDE, V, VL, CV, LIST, START, SHIFT, PULL, EDGES, unit, n_places,
    D: tl.constexpr, DV: tl.constexpr, B: tl.constexpr, BJ: tl.constexpr, SPLIT: tl.constexpr, CLASSES: tl.constexpr,
    SAME: tl.constexpr, WITH_EDGES: tl.constexpr,
):  # fmt: skip
    """``sum_j M_ij (v_i - v_j)`` in parts: PULL (parts, n_places, DV), with M of `triton_once.half_scatter`.

    V and VL are offsets of values from their centres CV (tiles, DV), in float64; SAME says that they are U and C.  With
    WITH_EDGES, EDGES (blocks of entries of the list, DV) is the sum over the rows of a tile and a block of columns.
    """
    b, part = tl.program_id(0), tl.program_id(1)
    i, kv = b * B + tl.arange(0, B), tl.arange(0, DV)
    ui, ui_low, ui_whole = _parts(i, U, UL, D, SPLIT)
    vi_high, vi_low, vi = _parts(i, V, VL, DV, SPLIT)
    shift, outside = tl.load(SHIFT), tl.load(OUTSIDE + i)
    if CLASSES:
        mine, inside = tl.load(CODE + i), tl.load(INSIDE + i)
    pull = tl.zeros([B, DV], ui_whole.dtype)
    first, count = tl.load(START + b) * (B // BJ), (tl.load(START + b + 1) - tl.load(START + b)) * (B // BJ)
    n_parts = tl.num_programs(1)
    for at in range(first + count * part // n_parts, first + count * (part + 1) // n_parts):
        c = tl.load(LIST + at // (B // BJ))
        j = c * B + (at % (B // BJ)) * BJ + tl.arange(0, BJ)
        uj, uj_low, uj_whole = _parts(j, U, UL, D, SPLIT)
        K, step = _kernel_values(b, c, i, ui, ui_low, ui_whole, j, uj, uj_low, uj_whole, C, H, shift, unit, D, SPLIT)
        factors = outside[:, None] + tl.load(OUTSIDE + j)[None, :]
        if CLASSES:
            mates = mine[:, None] == tl.load(CODE + j)[None, :]
            factors = tl.where(mates, inside[:, None] + tl.load(INSIDE + j)[None, :], factors)
        M = K * factors
        if SAME:
            vj, vj_low, of_values = uj, uj_low, step
        else:
            vj, vj_low, vj_whole = _parts(j, V, VL, DV, SPLIT)
            of_values = (tl.load(CV + b * DV + kv) - tl.load(CV + c * DV + kv)).to(ui_whole.dtype)
        if SPLIT:
            high = M.to(tl.float16)
            low = (M - high.to(tl.float32)).to(tl.float16)
            applied = tl.dot(low, vj)
            applied = tl.dot(high, vj_low, applied)
            applied = tl.dot(high, vj, applied)
        else:
            applied = tl.dot(M, vj, input_precision="ieee", out_dtype=M.dtype)
        added = tl.sum(M, 1)[:, None] * (vi + of_values[None, :]) - applied
        pull += added
        if WITH_EDGES:
            tl.store(EDGES + at * DV + kv, tl.sum(added, 0))
    to = part.to(tl.int64) * n_places + i
    tl.store(PULL + to[:, None] * DV + kv[None, :], pull)
