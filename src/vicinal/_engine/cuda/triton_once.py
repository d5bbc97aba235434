"""Fused Triton kernels over pairs of tiles, for points against themselves; `cuda/once.py` launches them.

Points lie in tiles of ``B`` rows.  U holds offsets ``u_j = sqrt(log2 e) (z_j - c_J)`` from the centre of the tile, times a
power of two whose inverse square is ``unit``.  The base-2 logarithm of ``K_ij = b_i b_j exp(raised - |z_i - z_j|^2 / 2)`` is

    u_i' u_j + a_Ij + a_Ji,        a_Ij = s_IJ' u_j - |s_IJ|^2 / 4 - |u_j|^2 / 2 + log2(b_j),    s_IJ = c_I - c_J,

in units of U.  Under one common centre (``LOCAL=False``) s is 0 and a belongs to the point alone: A (N,) for columns and G
(N,) for rows, which holds the raise as well.  With a centre per tile (``LOCAL=True``) A (panel tiles, N) and G (tiles,
n_panel) hold a of every tile and point, made in float64: a pair that is near keeps its digits however far both are from the
origin.  a is -inf in places without a row.

With SPLIT, a float32 matrix is given as the sum of two float16 matrices (U and UL), which hold 22 of its 24 bits, and a
product is three products of tensor cores that are added in float32: as accurate as TensorFloat-32 in three parts, at half
the bytes and twice the rate.  Without, matrices are float64 and products are done by the float64 units.

Nothing is added atomically: every program stores its own sums, which torch adds in float64 and in a fixed order, so that
two runs give the same bits.  A program takes a tile of rows and up to `chunk` blocks of BJ columns.  D is a power of two and
at least 16, with zeros beyond the last coordinate.
"""

import triton
import triton.language as tl


@triton.jit
def _parts(at, U, UL, D: tl.constexpr, SPLIT: tl.constexpr):
    """Return the entries of U and UL for some places."""
    where = at[:, None] * D + tl.arange(0, D)[None, :]
    high = tl.load(U + where)
    low = high
    if SPLIT:
        low = tl.load(UL + where)
    return high, low


@triton.jit
def _kernel_values(b, c, i, ui, ui_low, gi, j, uj, uj_low, A, G, first, unit, n_places, n_panel, B: tl.constexpr, SPLIT: tl.constexpr, LOCAL: tl.constexpr):  # fmt: skip
    """``K_ij`` of the rows i of tile b and a block of columns j of tile c."""
    if SPLIT:
        scores = tl.dot(ui_low, tl.trans(uj))
        scores = tl.dot(ui, tl.trans(uj_low), scores)
        scores = tl.dot(ui, tl.trans(uj), scores)
    else:
        scores = tl.dot(ui, tl.trans(uj), input_precision="ieee", out_dtype=ui.dtype)
    if LOCAL:
        # Products of tiles and places exceed 32 bits.
        aj = tl.load(A + (b - first).to(tl.int64) * n_places + j)
        gi = tl.load(G + c * (tl.full([], 0, tl.int64) + n_panel) + (i - first * B))
    else:
        aj = tl.load(A + j)
    return tl.exp2(scores * unit + gi[:, None] + aj[None, :])


@triton.jit
def half_sums(
    U, UL, A, G, CODE, ROWS, COLUMNS, MATE_ROWS, MATE_COLUMNS, unit, first, n_blocks, chunk, n_places, n_panel,
    D: tl.constexpr, B: tl.constexpr, BJ: tl.constexpr, SPLIT: tl.constexpr, LOCAL: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    """``sum_j K_ij`` over the pairs i < j, for the rows (parts, n_panel) and for the columns (panel tiles, n_places).

    With CLASSES also the sums over pairs of the same class.
    """
    part, b = tl.program_id(0), first + tl.program_id(1)
    start, stop = tl.maximum(part * chunk, b * (B // BJ)), tl.minimum((part + 1) * chunk, n_blocks)
    if start < stop:
        i = b * B + tl.arange(0, B)
        ui, ui_low = _parts(i, U, UL, D, SPLIT)
        gi = tl.load(G + i) if not LOCAL else tl.load(G + (i - first * B))
        total = tl.zeros([B], gi.dtype)
        matched = tl.zeros([B], gi.dtype)
        if CLASSES:
            mine = tl.load(CODE + i)
        for block in range(start, stop):
            j = block * BJ + tl.arange(0, BJ)
            uj, uj_low = _parts(j, U, UL, D, SPLIT)
            K = _kernel_values(
                b,
                block // (B // BJ),
                i,
                ui,
                ui_low,
                gi,
                j,
                uj,
                uj_low,
                A,
                G,
                first,
                unit,
                n_places,
                n_panel,
                B,
                SPLIT,
                LOCAL,
            )
            if block < (b + 1) * (B // BJ):
                K = tl.where(i[:, None] < j[None, :], K, 0.0)
            total += tl.sum(K, 1)
            to = tl.program_id(1).to(tl.int64) * n_places + j
            tl.store(COLUMNS + to, tl.sum(K, 0))
            if CLASSES:
                mates = tl.where(mine[:, None] == tl.load(CODE + j)[None, :], K, 0.0)
                matched += tl.sum(mates, 1)
                tl.store(MATE_COLUMNS + to, tl.sum(mates, 0))
        to = part.to(tl.int64) * n_panel + (i - first * B)
        tl.store(ROWS + to, total)
        if CLASSES:
            tl.store(MATE_ROWS + to, matched)


@triton.jit
def _applied(M, v, v_low, SPLIT: tl.constexpr):
    """``M v``.

    Tensor cores truncate their sums instead of rounding them. Sums over many blocks are therefore added
    outside of them; otherwise they would shrink by 1e-5.
    """
    if SPLIT:
        high = M.to(tl.float16)
        low = (M - high.to(tl.float32)).to(tl.float16)
        found = tl.dot(low, v)
        found = tl.dot(high, v_low, found)
        return tl.dot(high, v, found)
    else:
        return tl.dot(M, v, input_precision="ieee", out_dtype=M.dtype)


@triton.jit
def half_scatter(
    U, UL, A, G, CODE, OUTSIDE, INSIDE, V, VL, ROWS, ALONG, COLUMNS, unit, first, n_blocks, chunk, n_places, n_panel,
    D: tl.constexpr, DV: tl.constexpr, B: tl.constexpr, BJ: tl.constexpr, SPLIT: tl.constexpr, LOCAL: tl.constexpr,
    CLASSES: tl.constexpr, SAME: tl.constexpr,
):  # fmt: skip
    """``M_ij = K_ij (f_i + f_j)`` over the pairs i < j, applied to values V of the points.

    f is OUTSIDE or, for pairs of the same class (with CLASSES), INSIDE; it is scaled so that no M exceeds float16.  ROWS
    (parts, n_panel, DV) gets ``sum_j M_ij v_j``, ALONG (blocks, n_panel) the sums of M along the rows of each block, and
    COLUMNS (panel tiles, n_places) those along columns.  SAME states that V is U.
    """
    part, b = tl.program_id(0), first + tl.program_id(1)
    start, stop = tl.maximum(part * chunk, b * (B // BJ)), tl.minimum((part + 1) * chunk, n_blocks)
    if start < stop:
        i = b * B + tl.arange(0, B)
        ui, ui_low = _parts(i, U, UL, D, SPLIT)
        gi = tl.load(G + i) if not LOCAL else tl.load(G + (i - first * B))
        outside = tl.load(OUTSIDE + i)
        if CLASSES:
            mine, inside = tl.load(CODE + i), tl.load(INSIDE + i)
        gathered = tl.zeros([B, DV], gi.dtype)
        wide = tl.full([], 0, tl.int64) + n_panel
        for block in range(start, stop):
            j = block * BJ + tl.arange(0, BJ)
            uj, uj_low = _parts(j, U, UL, D, SPLIT)
            K = _kernel_values(
                b,
                block // (B // BJ),
                i,
                ui,
                ui_low,
                gi,
                j,
                uj,
                uj_low,
                A,
                G,
                first,
                unit,
                n_places,
                n_panel,
                B,
                SPLIT,
                LOCAL,
            )
            factors = outside[:, None] + tl.load(OUTSIDE + j)[None, :]
            if CLASSES:
                mates = mine[:, None] == tl.load(CODE + j)[None, :]
                factors = tl.where(mates, inside[:, None] + tl.load(INSIDE + j)[None, :], factors)
            M = K * factors
            if block < (b + 1) * (B // BJ):
                M = tl.where(i[:, None] < j[None, :], M, 0.0)
            tl.store(ALONG + block * wide + (i - first * B), tl.sum(M, 1))
            tl.store(COLUMNS + tl.program_id(1).to(tl.int64) * n_places + j, tl.sum(M, 0))
            if SAME:
                vj, vj_low = uj, uj_low
            else:
                vj, vj_low = _parts(j, V, VL, DV, SPLIT)
            gathered += _applied(M, vj, vj_low, SPLIT)
        to = part.to(tl.int64) * n_panel + (i - first * B)
        tl.store(ROWS + to[:, None] * DV + tl.arange(0, DV)[None, :], gathered)


@triton.jit
def pull_rows(
    U, UL, EXACT, C, A, G, CODE, OUTSIDE, INSIDE, PULL, unit, first, n_blocks, chunk, n_places, n_panel,
    D: tl.constexpr, B: tl.constexpr, BJ: tl.constexpr, SPLIT: tl.constexpr, LOCAL: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    """``sum_j M_ij (z_i - z_j)`` over all j, in parts: PULL (parts, n_panel, D), in units of U.

    M is that of `half_scatter`, and EXACT (N, D) is U in one piece.  With a centre per tile, C (tiles, D) are the centres,
    in float64 and the same units.
    """
    part, b = tl.program_id(0), first + tl.program_id(1)
    k = tl.arange(0, D)
    i = b * B + tl.arange(0, B)
    ui, ui_low = _parts(i, U, UL, D, SPLIT)
    gi = tl.load(G + i) if not LOCAL else tl.load(G + (i - first * B))
    mine_exact = tl.load(EXACT + i[:, None] * D + k[None, :])
    outside = tl.load(OUTSIDE + i)
    if CLASSES:
        mine, inside = tl.load(CODE + i), tl.load(INSIDE + i)
    pull = tl.zeros([B, D], gi.dtype)
    for block in range(part * chunk, tl.minimum((part + 1) * chunk, n_blocks)):
        j = block * BJ + tl.arange(0, BJ)
        uj, uj_low = _parts(j, U, UL, D, SPLIT)
        K = _kernel_values(
            b,
            block // (B // BJ),
            i,
            ui,
            ui_low,
            gi,
            j,
            uj,
            uj_low,
            A,
            G,
            first,
            unit,
            n_places,
            n_panel,
            B,
            SPLIT,
            LOCAL,
        )
        factors = outside[:, None] + tl.load(OUTSIDE + j)[None, :]
        if CLASSES:
            mates = mine[:, None] == tl.load(CODE + j)[None, :]
            factors = tl.where(mates, inside[:, None] + tl.load(INSIDE + j)[None, :], factors)
        M = K * factors
        if block // (B // BJ) == b:
            M = tl.where(i[:, None] == j[None, :], 0.0, M)
        q = mine_exact
        if LOCAL:
            c = block // (B // BJ)
            q = mine_exact + (tl.load(C + b * D + k) - tl.load(C + c * D + k)).to(mine_exact.dtype)[None, :]
        pull += tl.sum(M, 1)[:, None] * q - _applied(M, uj, uj_low, SPLIT)
    to = part.to(tl.int64) * n_panel + (i - first * B)
    tl.store(PULL + to[:, None] * D + k[None, :], pull)
