"""A fused Triton kernel for points with a low-rank frame each; `cuda/frames.py` launches it.

With ``t_l = V_jl' q_i - o_jl`` and ``o_jl = V_jl' x_j``, the base-2 logarithm of a pair is, up to a term in ``|q_i|^2`` that
belongs to the row and is added by the caller,

    slope q_i' x_j + a_j + sum_l g_jl t_l^2.

Products of float32 matrices are ``tf32x3``.  A program keeps only the scores of its block of pairs.
"""

import triton
import triton.language as tl


@triton.jit
def _product(i, present, Q, j, X, width, BQ: tl.constexpr, BJ: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """``q_i' x_j`` of rows of any width, a multiple of BK."""
    k = tl.arange(0, BK)
    found = tl.zeros([BQ, BJ], X.dtype.element_ty)
    for start in range(0, width, BK):
        q = tl.load(Q + i[:, None].to(tl.int64) * width + (start + k)[None, :], mask=present[:, None], other=0.0)
        x = tl.load(X + j[:, None].to(tl.int64) * width + (start + k)[None, :])
        found += tl.dot(q, tl.trans(x), input_precision=PRECISION, out_dtype=X.dtype.element_ty)
    return found


@triton.jit
def frame_sums(
    Q, SKIPPED, X, FRAMES, OFFSETS, GAINS, A, SLOPE, TOP, TOTAL, m, width, depth, n_places, n_blocks, chunk,
    BQ: tl.constexpr, BJ: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The log-sum-exp state of queries over all points, in parts: TOP and TOTAL (parts, m).

    Q (m, width) are queries and X (N, width) points; FRAMES (depth, N, width), OFFSETS and GAINS (depth, N) are V, o and g,
    A (N,) and SLOPE (1,) the rest of the scores, -inf in places without a point.  A query leaves out the place SKIPPED.
    """
    part = tl.program_id(1)
    i = tl.program_id(0) * BQ + tl.arange(0, BQ)
    present = i < m
    skipped = tl.load(SKIPPED + i, mask=present, other=-1)
    slope = tl.load(SLOPE)
    real = X.dtype.element_ty
    top = tl.full([BQ], float("-inf"), real)
    total = tl.zeros([BQ], real)
    for block in range(part * chunk, tl.minimum((part + 1) * chunk, n_blocks)):
        j = block * BJ + tl.arange(0, BJ)
        scores = _product(i, present, Q, j, X, width, BQ, BJ, BK, PRECISION) * slope + tl.load(A + j)[None, :]
        for l in range(depth):
            at = l * (tl.full([], 0, tl.int64) + n_places)
            along = _product(i, present, Q, j, FRAMES + at * width, width, BQ, BJ, BK, PRECISION)
            along -= tl.load(OFFSETS + at + j)[None, :]
            scores += tl.load(GAINS + at + j)[None, :] * along * along
        scores = tl.where(skipped[:, None] == j[None, :], float("-inf"), scores)
        higher = tl.maximum(top, tl.max(scores, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp2(top - base) + tl.sum(tl.exp2(scores - base[:, None]), 1)
        top = higher
    to = part.to(tl.int64) * m + i
    tl.store(TOP + to, top, mask=present)
    tl.store(TOTAL + to, total, mask=present)
