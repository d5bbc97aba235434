"""Fused Triton kernels for queries one by one, each with its own maximum; `cuda/rows.py` launches them.

Points lie in tiles of ``B`` rows, which are read in blocks of BJ.  A kernel reads offsets ``u_j = z_j - c_J`` from the centre of the tile, in the working
precision, and makes the base-2 logarithm of ``b_j exp(-|z_i - z_j|^2 / 2)``, with the weight b_j of a point.

- Under one common centre (``LOCAL=False``) it is ``log2(e) q_i' u_j - h_j`` with ``h_j = log2(e) |u_j|^2 / 2 - log2(b_j)``;
  the term in ``|q_i|^2`` belongs to the row and is added by the caller.  Products of float32 matrices are ``tf32x3``: three
  products of TensorFloat-32 parts, about as accurate as float32 (plain ``tf32`` errs by 1e-3).
- With a centre per tile (``LOCAL=1``) it is made of differences, ``-log2(e) |q_i - c_J - u_j|^2 / 2 - h_j`` with ``h_j =
  -log2(b_j)``: centres and queries are in float64, and their difference is rounded once.
- With a centre per tile whose rows are near each other (``LOCAL=2``) it is ``log2(e) (r_ij' u_j - |r_ij|^2 / 2) - h_j`` with
  ``r_ij = q_i - c_J``, which is rounded once, and h as under one common centre: products, about five times as fast.

h is infinite in places without a row.  Nothing is added atomically: programs store their own sums, which torch adds in
float64 and in a fixed order.

Symbols: U (N, D), H (N,), C (tiles, D), CODE (N,) are offsets, h, centres and classes; UT (D, N) is U by columns.  Q (m, D)
are images of the queries, in float64 with ``LOCAL=2`` and else in the working precision, QT (D, m) those in float64 by
columns.  D is a power of two and at least
16, with zeros beyond the last coordinate.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _queries(i, present, Q, D: tl.constexpr, LOCAL: tl.constexpr):
    """Return the images of some queries; with a centre per tile they are read column by column instead."""
    k = tl.arange(0, D)
    if LOCAL == 1:
        return k
    else:
        return tl.load(Q + i[:, None].to(tl.int64) * D + k[None, :], mask=present[:, None], other=0.0)


@triton.jit
def _logarithms(
    i, present, q, QT, block, U, UT, H, C, m, n_places, n_coordinates,
    D: tl.constexpr, B: tl.constexpr, BJ: tl.constexpr, BQ: tl.constexpr, PRECISION: tl.constexpr, LOCAL: tl.constexpr,
):  # fmt: skip
    """Return the places of a block, and the logarithms of its points."""
    j, c = block * BJ + tl.arange(0, BJ), block // (B // BJ)
    real = U.dtype.element_ty
    if LOCAL == 1:
        squares = tl.zeros([BQ, BJ], real)
        for k in range(n_coordinates):
            mine = tl.load(QT + k * m + i, mask=present, other=0.0) - tl.load(C + c * D + k)
            difference = mine.to(real)[:, None] - tl.load(UT + k * n_places + j)[None, :]
            squares += difference * difference
        scores = squares * (-0.5 * LOG2E)
    elif LOCAL == 2:
        u = tl.load(U + j[:, None] * D + tl.arange(0, D)[None, :])
        r = (q - tl.load(C + c * D + tl.arange(0, D))[None, :]).to(real)
        products = tl.dot(r, tl.trans(u), input_precision=PRECISION, out_dtype=real)
        scores = (products - 0.5 * tl.sum(r * r, 1)[:, None]) * LOG2E
    else:
        u = tl.load(U + j[:, None] * D + tl.arange(0, D)[None, :])
        scores = tl.dot(q, tl.trans(u), input_precision=PRECISION, out_dtype=real) * LOG2E
    return j, scores - tl.load(H + j)[None, :]


@triton.jit
def softmax_rows(
    Q, QT, SKIPPED, Q_CODE, U, UT, H, C, CODE, V, LIST, START, TOP, TOTAL, GATHERED, BELOW,
    first, m, n_queries, n_blocks, chunk, n_places, n_coordinates, n_values,
    D: tl.constexpr, DV: tl.constexpr, B: tl.constexpr, BJ: tl.constexpr, BQ: tl.constexpr,
    PRECISION: tl.constexpr, LOCAL: tl.constexpr, CLASSES: tl.constexpr, VALUES: tl.constexpr, ENTROPY: tl.constexpr,
    LISTED: tl.constexpr,
):  # fmt: skip
    """The log-sum-exp state of the queries from `first` on over all points, in parts.

    TOP and TOTAL (parts, n_queries) are the largest base-2 logarithm and ``sum_j 2^(l_ij - top_i)``; GATHERED (parts,
    n_queries, n_values) is the same sum times values V (N, n_values), of which a program takes DV columns.  A query leaves
    out the place SKIPPED and, with CLASSES, the points of other classes.  With ENTROPY, BELOW (parts, n_queries) is
    ``sum_j 2^(l_ij - top_i) (l_ij - top_i)``.  With LISTED, the queries of tile b (BQ of them) visit only the tiles of points
    ``LIST[START[b]]`` to ``LIST[START[b + 1] - 1]``.
    """
    part, group = tl.program_id(1), tl.program_id(2)
    here = tl.program_id(0) * BQ + tl.arange(0, BQ)
    i, kv = first + here, group * DV + tl.arange(0, DV)
    present = here < n_queries
    q = _queries(i, present, Q, D, LOCAL)
    skipped = tl.load(SKIPPED + i, mask=present, other=-1)
    if CLASSES:
        mine = tl.load(Q_CODE + i, mask=present, other=-1)
    real = U.dtype.element_ty
    top = tl.full([BQ], float("-inf"), real)
    total = tl.zeros([BQ], real)
    gathered = tl.zeros([BQ, DV], real)
    below = tl.zeros([BQ], real)
    if LISTED:
        at = START + first // BQ + tl.program_id(0)
        begin, count = tl.load(at) * (B // BJ), (tl.load(at + 1) - tl.load(at)) * (B // BJ)
        start, stop = begin + count * part // tl.num_programs(1), begin + count * (part + 1) // tl.num_programs(1)
    else:
        start, stop = part * chunk, tl.minimum((part + 1) * chunk, n_blocks)
    for step in range(start, stop):
        if LISTED:
            block = tl.load(LIST + step // (B // BJ)) * (B // BJ) + step % (B // BJ)
        else:
            block = step
        j, scores = _logarithms(
            i, present, q, QT, block, U, UT, H, C, m, n_places, n_coordinates, D, B, BJ, BQ, PRECISION, LOCAL
        )
        scores = tl.where(skipped[:, None] == j[None, :], float("-inf"), scores)
        if CLASSES:
            scores = tl.where(mine[:, None] == tl.load(CODE + j)[None, :], scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp2(scores - base[:, None])
        before = tl.exp2(top - base)
        if ENTROPY:
            lowered = tl.where(total > 0, below + total * (top - base), 0.0)
            steps = tl.where(weights > 0, weights * (scores - base[:, None]), 0.0)
            below = tl.where(total > 0, lowered * before, 0.0) + tl.sum(steps, 1)
        total = total * before + tl.sum(weights, 1)
        if VALUES:
            v = tl.load(V + j[:, None].to(tl.int64) * n_values + kv[None, :])
            gathered = gathered * before[:, None] + tl.dot(weights, v, input_precision=PRECISION, out_dtype=real)
        top = higher
    to = part.to(tl.int64) * n_queries + here
    if group == 0:
        tl.store(TOP + to, top, mask=present)
        tl.store(TOTAL + to, total, mask=present)
        if ENTROPY:
            tl.store(BELOW + to, below, mask=present)
    if VALUES:
        tl.store(GATHERED + to[:, None] * n_values + kv[None, :], gathered, mask=present[:, None])


@triton.jit
def best_of_blocks(
    Q, QT, SKIPPED, U, UT, H, C, TOP, first, m, n_queries, n_blocks, chunk, n_places, n_coordinates,
    D: tl.constexpr, B: tl.constexpr, BJ: tl.constexpr, BQ: tl.constexpr, PRECISION: tl.constexpr, LOCAL: tl.constexpr,
):  # fmt: skip
    """The largest base-2 logarithm of each block for each query from `first` on: TOP (n_blocks, n_queries)."""
    part = tl.program_id(1)
    here = tl.program_id(0) * BQ + tl.arange(0, BQ)
    i, present = first + here, here < n_queries
    q = _queries(i, present, Q, D, LOCAL)
    skipped = tl.load(SKIPPED + i, mask=present, other=-1)
    wide = tl.full([], 0, tl.int64) + n_queries
    for block in range(part * chunk, tl.minimum((part + 1) * chunk, n_blocks)):
        j, scores = _logarithms(
            i, present, q, QT, block, U, UT, H, C, m, n_places, n_coordinates, D, B, BJ, BQ, PRECISION, LOCAL
        )
        scores = tl.where(skipped[:, None] == j[None, :], float("-inf"), scores)
        tl.store(TOP + block * wide + here, tl.max(scores, 1), mask=present)
