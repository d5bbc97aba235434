"""Compiled kernels: serial, cached on disk, releasing the GIL; `_cpu.py` runs them on blocks in threads.

Points arrive *packed*: `(n_tiles, d, TILE)`, so that a tile's coordinates lie together and the inner loop runs over
the points j.  The last tile is padded with offset -inf, hence weight 0.  Queries are taken ROWS at a time, so that
one load of a coordinate serves ROWS pairs.

Rules that keep this correct:

1. `_exp` stays in this file: the disk cache does not notice edits in other files.
2. `_exp` is compiled without `reassoc`, which would cancel its round-to-integer trick; the reductions over j need
   `reassoc` to be vectorised.  LLVM keeps the flags of each instruction when it inlines one into the other.
3. No `ninf` anywhere, because -inf is a legal score (a padded or left-out pair); `nnan` only where maxima are taken,
   and nothing is subtracted there.
4. Signatures are explicit and every array C-contiguous: a second layout would compile a second kernel.
5. Sums over a tile are in the working precision, sums over tiles in float64.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import float32, float64, int64, njit, types, void
from numba.extending import intrinsic, overload

ROWS = 4  # queries that share one load of a coordinate; the loops below are written out for four
TILE = 512  # points in a tile
KEPT_ROW_GROUP = 8  # queries that share one visit of a tile where exponentials are kept
ROW_GROUP = 32  # the same where nothing is kept: the points stream by less often

_SUMS = {"reassoc", "contract", "nsz", "arcp"}  # fast-math flags of reductions over j


def _can_cache() -> bool:
    """Whether Numba finds a folder for its disk cache: beside this file, or in the user's cache folder."""
    try:
        njit(cache=True)(_can_cache)
    except RuntimeError:  # a read-only install for a user without a home: compile in each process
        return False
    return True


_OPTIONS: dict[str, Any] = {"nogil": True, "cache": _can_cache(), "error_model": "numpy"}


@intrinsic
def _to_bits(typing_context, value):
    """Reinterpret a float as the integer with the same bits."""
    bits = types.int64 if value == types.float64 else types.int32

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(bits.bitwidth))

    return bits(value), codegen


@intrinsic
def _from_bits(typing_context, value):
    """Reinterpret an integer as the float with the same bits."""
    real = types.float64 if value == types.int64 else types.float32

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.DoubleType() if real == types.float64 else ir.FloatType())

    return real(value), codegen


def _exp(x):
    """exp(x) for x <= 700 (80 in float32), -inf included; what would be subnormal is 0.

    x = k ln 2 + r, with k rounded by adding 1.5 * 2^52 (1.5 * 2^23 in float32), whose low bits then hold k; a
    polynomial in r, fitted at Chebyshev nodes on +-ln(2)/2 to a relative error of 2.2e-16 (2e-9 in float32); 2^k is
    added into the exponent bits.
    """
    raise NotImplementedError("only for compiled code")


@overload(_exp, jit_options={"fastmath": {"contract"}})
def _exp_overload(x):
    if x == types.float64:

        def exp64(x):
            clamped = x if x > -708.0 else -708.0
            shifted = clamped * 1.4426950408889634 + 6755399441055744.0
            k = shifted - 6755399441055744.0
            r = clamped - k * 0.6931471805599453
            p = 2.7626426376580332789e-7
            p = p * r + 2.7640263790318920709e-6
            p = p * r + 0.000024801504180837138252
            p = p * r + 0.00019841170070971307319
            p = p * r + 0.0013888888932619635148
            p = p * r + 0.0083333333858250861512
            p = p * r + 0.041666666666572767692
            p = p * r + 0.16666666666553954401
            p = p * r + 0.50000000000000056451
            p = p * r + 1.0000000000000067762
            p = p * r + 1.0
            value = _from_bits(_to_bits(p) + (_to_bits(shifted) << types.int64(52)))
            return value if x > -708.0 else 0.0

        return exp64

    def exp32(x):
        low, zero, magic = float32(-87.0), float32(0.0), float32(12582912.0)
        clamped = x if x > low else low
        shifted = clamped * float32(1.44269504) + magic
        k = shifted - magic
        r = clamped - k * float32(0.69314718)
        p = float32(0.0013941160753825470173)
        p = p * r + float32(0.0083751682889542005264)
        p = p * r + float32(0.041666352268082527868)
        p = p * r + float32(0.16666415011290059983)
        p = p * r + float32(0.50000000472593981536)
        p = p * r + float32(1.0000000378296144612)
        p = p * r + float32(1.0)
        value = _from_bits(types.int32(_to_bits(p) + types.int32(_to_bits(shifted) << types.int32(23))))
        return value if x > low else zero

    return exp32


class _Kernel:
    """A compiled entry point, made for one precision at its first use (1 to 3 s, then from the disk cache).

    The signature is explicit, so an unexpected layout is an error here, never a silent second compilation.
    """

    def __init__(self, function: Callable[..., None], signature: Callable[[Any], Any]):
        self._dispatcher = njit(fastmath={"contract"}, **_OPTIONS)(function)
        self._signature = signature
        self._ready: set[np.dtype[Any]] = set()
        self.__doc__ = function.__doc__

    def __call__(self, *args: Any) -> None:
        dtype = args[0].dtype
        if dtype not in self._ready:
            self._dispatcher.compile(self._signature(float64 if dtype == np.float64 else float32))
            self._ready.add(dtype)
        self._dispatcher(*args)


def _kernel(signature: Callable[[Any], Any]) -> Callable[[Callable[..., None]], _Kernel]:
    return lambda function: _Kernel(function, signature)


@njit(fastmath={"contract"}, **_OPTIONS)
def _square_distances(queries, i, tile, out):
    """out[r, j] = |queries[i + r] - tile[:, j]|^2 for ROWS rows, by differences, four coordinates per sweep."""
    d = tile.shape[0]
    last = queries.shape[0] - 1
    i1, i2, i3 = min(i + 1, last), min(i + 2, last), min(i + 3, last)
    out[:, :] = 0
    k = 0
    while k < d % 4:  # what four do not divide, one by one
        a, b, c, e = queries[i, k], queries[i1, k], queries[i2, k], queries[i3, k]
        for j in range(tile.shape[1]):
            t = tile[k, j]
            out[0, j] += (a - t) * (a - t)
            out[1, j] += (b - t) * (b - t)
            out[2, j] += (c - t) * (c - t)
            out[3, j] += (e - t) * (e - t)
        k += 1
    while k < d:
        a0, a1, a2, a3 = queries[i, k], queries[i, k + 1], queries[i, k + 2], queries[i, k + 3]
        b0, b1, b2, b3 = queries[i1, k], queries[i1, k + 1], queries[i1, k + 2], queries[i1, k + 3]
        c0, c1, c2, c3 = queries[i2, k], queries[i2, k + 1], queries[i2, k + 2], queries[i2, k + 3]
        e0, e1, e2, e3 = queries[i3, k], queries[i3, k + 1], queries[i3, k + 2], queries[i3, k + 3]
        for j in range(tile.shape[1]):
            t0, t1, t2, t3 = tile[k, j], tile[k + 1, j], tile[k + 2, j], tile[k + 3, j]
            out[0, j] += (a0 - t0) ** 2 + (a1 - t1) ** 2 + (a2 - t2) ** 2 + (a3 - t3) ** 2
            out[1, j] += (b0 - t0) ** 2 + (b1 - t1) ** 2 + (b2 - t2) ** 2 + (b3 - t3) ** 2
            out[2, j] += (c0 - t0) ** 2 + (c1 - t1) ** 2 + (c2 - t2) ** 2 + (c3 - t3) ** 2
            out[3, j] += (e0 - t0) ** 2 + (e1 - t1) ** 2 + (e2 - t2) ** 2 + (e3 - t3) ** 2
        k += 4


@njit(fastmath={"contract"}, **_OPTIONS)
def _offset_products(queries, i, tile, offsets, out):
    """out[r, j] = offsets[j] + queries[i + r]'tile[:, j] for ROWS rows, four coordinates a sweep."""
    d = tile.shape[0]
    last = queries.shape[0] - 1
    i1, i2, i3 = min(i + 1, last), min(i + 2, last), min(i + 3, last)
    # The first sweep takes up to four coordinates and the offsets; a missing coordinate has coefficient zero.
    zero = out.dtype.type(0)
    k = min(d, 4 if d % 4 == 0 else d % 4)
    l1, l2, l3 = min(1, k - 1), min(2, k - 1), min(3, k - 1)
    u1, u2, u3 = k > 1, k > 2, k > 3
    a0, b0, c0, e0 = queries[i, 0], queries[i1, 0], queries[i2, 0], queries[i3, 0]
    a1, b1 = queries[i, l1] if u1 else zero, queries[i1, l1] if u1 else zero
    c1, e1 = queries[i2, l1] if u1 else zero, queries[i3, l1] if u1 else zero
    a2, b2 = queries[i, l2] if u2 else zero, queries[i1, l2] if u2 else zero
    c2, e2 = queries[i2, l2] if u2 else zero, queries[i3, l2] if u2 else zero
    a3, b3 = queries[i, l3] if u3 else zero, queries[i1, l3] if u3 else zero
    c3, e3 = queries[i2, l3] if u3 else zero, queries[i3, l3] if u3 else zero
    for j in range(tile.shape[1]):
        w, t0, t1, t2, t3 = offsets[j], tile[0, j], tile[l1, j], tile[l2, j], tile[l3, j]
        out[0, j] = w + a0 * t0 + a1 * t1 + a2 * t2 + a3 * t3
        out[1, j] = w + b0 * t0 + b1 * t1 + b2 * t2 + b3 * t3
        out[2, j] = w + c0 * t0 + c1 * t1 + c2 * t2 + c3 * t3
        out[3, j] = w + e0 * t0 + e1 * t1 + e2 * t2 + e3 * t3
    while k < d:
        a0, a1, a2, a3 = queries[i, k], queries[i, k + 1], queries[i, k + 2], queries[i, k + 3]
        b0, b1, b2, b3 = queries[i1, k], queries[i1, k + 1], queries[i1, k + 2], queries[i1, k + 3]
        c0, c1, c2, c3 = queries[i2, k], queries[i2, k + 1], queries[i2, k + 2], queries[i2, k + 3]
        e0, e1, e2, e3 = queries[i3, k], queries[i3, k + 1], queries[i3, k + 2], queries[i3, k + 3]
        for j in range(tile.shape[1]):
            t0, t1, t2, t3 = tile[k, j], tile[k + 1, j], tile[k + 2, j], tile[k + 3, j]
            out[0, j] += a0 * t0 + a1 * t1 + a2 * t2 + a3 * t3
            out[1, j] += b0 * t0 + b1 * t1 + b2 * t2 + b3 * t3
            out[2, j] += c0 * t0 + c1 * t1 + c2 * t2 + c3 * t3
            out[3, j] += e0 * t0 + e1 * t1 + e2 * t2 + e3 * t3
        k += 4


@njit(fastmath={"nnan", "nsz"}, **_OPTIONS)
def _peaks(scores, peaks):
    """peaks[r] = max_j scores[r, j]."""
    low = scores.dtype.type(-np.inf)
    p0, p1, p2, p3 = low, low, low, low
    for j in range(scores.shape[1]):
        p0, p1 = max(p0, scores[0, j]), max(p1, scores[1, j])
        p2, p3 = max(p2, scores[2, j]), max(p3, scores[3, j])
    peaks[0], peaks[1], peaks[2], peaks[3] = p0, p1, p2, p3


@njit(fastmath={"contract"}, **_OPTIONS)
def _distances_to_scores(scores, log_weights):
    """scores <- log_weights[j] - scores / 2."""
    half = scores.dtype.type(0.5)
    for j in range(scores.shape[1]):
        w = log_weights[j]
        scores[0, j] = w - half * scores[0, j]
        scores[1, j] = w - half * scores[1, j]
        scores[2, j] = w - half * scores[2, j]
        scores[3, j] = w - half * scores[3, j]


@njit(fastmath={"nnan", "nsz", "contract"}, **_OPTIONS)
def _products_to_scores(products, column_offsets):
    """products <- products + column_offsets[j]; return their largest."""
    best = products.dtype.type(-np.inf)
    for j in range(products.shape[0]):
        score = products[j] + column_offsets[j]
        products[j] = score
        best = max(best, score)
    return best


@njit(fastmath=_SUMS, **_OPTIONS)
def _exp_in_place(scores, shift):
    """scores <- e = exp(scores - shift); return sum_j e_j."""
    total = scores.dtype.type(0)
    for j in range(scores.shape[0]):
        e = _exp(scores[j] - shift)
        scores[j] = e
        total += e
    return total


@njit(fastmath=_SUMS, **_OPTIONS)
def _dot_one(weights, values, out, k):
    """out[r, k] += sum_j weights[r, j] values[j] for ROWS rows."""
    zero = weights.dtype.type(0)
    s0, s1, s2, s3 = zero, zero, zero, zero
    for j in range(weights.shape[1]):
        v = values[j]
        s0 += weights[0, j] * v
        s1 += weights[1, j] * v
        s2 += weights[2, j] * v
        s3 += weights[3, j] * v
    out[0, k] += s0
    out[1, k] += s1
    out[2, k] += s2
    out[3, k] += s3


@njit(fastmath=_SUMS, **_OPTIONS)
def _dot_two(weights, values, k, out):
    """`_dot_one` for two values at once: six loads for eight products."""
    zero = weights.dtype.type(0)
    s0, s1, s2, s3 = zero, zero, zero, zero
    t0, t1, t2, t3 = zero, zero, zero, zero
    for j in range(weights.shape[1]):
        v = values[k, j]
        w = values[k + 1, j]
        s0 += weights[0, j] * v
        s1 += weights[1, j] * v
        s2 += weights[2, j] * v
        s3 += weights[3, j] * v
        t0 += weights[0, j] * w
        t1 += weights[1, j] * w
        t2 += weights[2, j] * w
        t3 += weights[3, j] * w
    out[0, k] += s0
    out[1, k] += s1
    out[2, k] += s2
    out[3, k] += s3
    out[0, k + 1] += t0
    out[1, k + 1] += t1
    out[2, k + 1] += t2
    out[3, k + 1] += t3


@njit(fastmath={"contract"}, **_OPTIONS)
def _scores(queries, i, count, tile, offsets, by_products, left_out, j0, careful, scores, peaks):
    """Scores of ROWS rows against a tile, -inf for the pair left out, and each row's peak when `careful`.

    By differences: ``offsets[j] - |q_r - z_j|^2 / 2`` with offsets = log_weights.  By products:
    ``offsets[j] + q_r'z_j`` with offsets = log_weights - |z_j|^2 / 2: the same less a constant of the row, which a
    softmax does not see and the caller takes off the log-sums.
    """
    if by_products:
        _offset_products(queries, i, tile, offsets, scores)
    else:
        _square_distances(queries, i, tile, scores)
    for r in range(count):
        skip = left_out[i + r] - j0
        if 0 <= skip < TILE:
            scores[r, skip] = -np.inf if by_products else np.inf
    if not by_products:
        _distances_to_scores(scores, offsets)
    if careful:
        _peaks(scores, peaks)
    else:
        peaks[:] = -np.inf


@njit(fastmath={"contract"}, **_OPTIONS)
def _begin_log_sums(bounds, first, in_group, careful, top, total):
    """Begin the log-sum-exp state of the rows of a group.

    No score exceeds `bounds`, so this shift cannot overflow and needs no pass for the peaks.  Only rows without any
    near neighbour underflow under it: `_underflowed` finds them, and the group is done again, carefully.
    """
    for r in range(top.shape[0]):
        top[r] = bounds[first + r] if r < in_group and not careful else -np.inf
        total[r] = 0.0


@njit(fastmath={"contract"}, **_OPTIONS)
def _inverse(total):
    """1 / total; 0 for a row that sees no point, whose softmax weights are all 0."""
    return 1.0 / total if total > 0.0 else 0.0


@njit(fastmath={"contract"}, **_OPTIONS)
def _underflowed(total, in_group, smallest):
    """Whether a row's sum is so small that its terms may have been lost."""
    for r in range(in_group):
        if total[r] < smallest:
            return True
    return False


@njit(fastmath={"contract"}, **_OPTIONS)
def _add_to_log_sums(scores, peaks, top, total, rescale):
    """Turn a tile of scores into exponentials and take them into the log-sum-exp state (top, total) of each row.

    rescale[r] is what earlier exponentials of the row must be multiplied by to share the new top.
    """
    for r in range(scores.shape[0]):
        rescale[r] = 1.0
        if peaks[r] > top[r]:
            rescale[r] = np.exp(top[r] - peaks[r])
            total[r] *= rescale[r]
            top[r] = peaks[r]
        if top[r] == -np.inf:  # nothing but padded or left-out pairs so far
            scores[r, :] = 0
        else:
            total[r] += _exp_in_place(scores[r], scores.dtype.type(top[r]))


@njit(fastmath={"contract"}, **_OPTIONS)
def _add_columns(column, weights, factors):
    """column[j] += sum_r factors[r] weights[r, j]."""
    real = column.dtype.type
    f0, f1, f2, f3 = real(factors[0]), real(factors[1]), real(factors[2]), real(factors[3])
    for j in range(weights.shape[1]):
        column[j] += f0 * weights[0, j] + f1 * weights[1, j] + f2 * weights[2, j] + f3 * weights[3, j]


@njit(fastmath=_SUMS, **_OPTIONS)
def _sum_between(weights, start, stop):
    total = weights.dtype.type(0)
    for j in range(start, stop):
        total += weights[j]
    return float64(total)


@njit(fastmath={"contract"}, **_OPTIONS)
def _dot_all(weights, values, out):
    """out[r, k] += sum_j weights[r, j] values[k, j]."""
    k = 0
    while k + 1 < values.shape[0]:
        _dot_two(weights, values, k, out)
        k += 2
    if k < values.shape[0]:
        _dot_one(weights, values[k], out, k)


@njit(fastmath={"contract"}, **_OPTIONS)
def _add_to_points(weights, queries, i, out):
    """out[k, j] += sum_r weights[r, j] queries[i + r, k]; weights of rows beyond the last query are zero."""
    d = queries.shape[1]
    last = queries.shape[0] - 1
    i1, i2, i3 = min(i + 1, last), min(i + 2, last), min(i + 3, last)
    k = 0
    while k + 1 < d:
        a0, a1, a2, a3 = queries[i, k], queries[i1, k], queries[i2, k], queries[i3, k]
        b0, b1, b2, b3 = queries[i, k + 1], queries[i1, k + 1], queries[i2, k + 1], queries[i3, k + 1]
        for j in range(weights.shape[1]):
            w0, w1, w2, w3 = weights[0, j], weights[1, j], weights[2, j], weights[3, j]
            out[k, j] += a0 * w0 + a1 * w1 + a2 * w2 + a3 * w3
            out[k + 1, j] += b0 * w0 + b1 * w1 + b2 * w2 + b3 * w3
        k += 2
    if k < d:
        a0, a1, a2, a3 = queries[i, k], queries[i1, k], queries[i2, k], queries[i3, k]
        for j in range(weights.shape[1]):
            out[k, j] += a0 * weights[0, j] + a1 * weights[1, j] + a2 * weights[2, j] + a3 * weights[3, j]


@njit(fastmath={"contract"}, **_OPTIONS)
def _scale_sides(weights, inside, outside, start, stop):
    """weights *= inside between start and stop, outside elsewhere."""
    real = weights.dtype.type
    a, b = real(inside), real(outside)
    for j in range(start):
        weights[j] *= b
    for j in range(start, stop):
        weights[j] *= a
    for j in range(stop, weights.shape[0]):
        weights[j] *= b


# -- whole reductions on a block of rows ---------------------------------------------


def _softmax_signature(real):
    a2, a3 = real[:, ::1], real[:, :, ::1]
    doubles, ints = float64[::1], int64[::1]
    pairs = (a2, a3, a2, doubles, float64, types.boolean, ints)
    return void(*pairs, a3, doubles, doubles, float64[:, ::1], a2, a3)


@_kernel(_softmax_signature)
def softmax_rows(
    queries, points, offsets, bounds, smallest, by_products, left_out,
    values, row_weights, log_sums, means, columns, kept,
):  # fmt: skip
    """A block of rows: log-sum-exp, softmax means of the values, and what each column receives.

    columns += sum_i row_weights_i p_ij; pass an empty array to do without.  A row's normaliser is known only after its
    last tile, so `kept` holds the exponentials of the rows of a group: (n_tiles, KEPT_ROW_GROUP, TILE), or (1, ROWS, TILE) without
    columns.
    """
    n_tiles, n_values = points.shape[0], values.shape[1]
    want_columns = columns.shape[0] > 0
    size = KEPT_ROW_GROUP if want_columns else ROW_GROUP
    shifts = np.empty((n_tiles if want_columns else 1, size))
    peaks, top, total, rescale = np.empty(ROWS), np.empty(size), np.empty(size), np.empty(ROWS)
    factors = np.zeros(ROWS)
    sums = np.empty((size, n_values))
    n_rows = queries.shape[0]
    for first in range(0, n_rows, size):
        in_group = min(size, n_rows - first)
        for careful in (False, True):
            if careful and not _underflowed(total, in_group, smallest):
                break
            _begin_log_sums(bounds, first, in_group, careful, top, total)
            sums[:, :] = 0.0
            for t in range(n_tiles):
                for g in range(0, in_group, ROWS):
                    group = slice(g, g + ROWS)
                    count = min(ROWS, in_group - g)
                    scores = kept[t, group] if want_columns else kept[0]
                    _scores(
                        queries, first + g, count, points[t], offsets[t], by_products, left_out, t * TILE, careful,
                        scores, peaks,
                    )  # fmt: skip
                    _add_to_log_sums(scores, peaks, top[group], total[group], rescale)
                    for r in range(ROWS):
                        if want_columns:
                            shifts[t, g + r] = top[g + r]
                        if rescale[r] != 1.0:
                            for k in range(n_values):
                                sums[g + r, k] *= rescale[r]
                    _dot_all(scores, values[t], sums[group])
        for r in range(in_group):
            log_sums[first + r] = top[r] + np.log(total[r])
            inverse = _inverse(total[r])
            for k in range(n_values):
                means[first + r, k] = sums[r, k] * inverse
        if want_columns:
            for t in range(n_tiles):
                for g in range(0, in_group, ROWS):
                    for r in range(ROWS):
                        factors[r] = 0.0
                        if g + r < in_group and total[g + r] > 0.0:
                            weight = row_weights[first + g + r] / total[g + r]
                            factors[r] = weight * np.exp(shifts[t, g + r] - top[g + r])
                    _add_columns(columns[t], kept[t, g : g + ROWS], factors)


def _received_signature(real):
    a2, a3 = real[:, ::1], real[:, :, ::1]
    doubles, ints = float64[::1], int64[::1]
    return void(a2, a3, a2, types.boolean, ints, doubles, doubles, a2)


@_kernel(_received_signature)
def received_of_rows(queries, points, offsets, by_products, left_out, log_sums, row_weights, columns):
    """columns += sum_i row_weights_i exp(s_ij - log_sums_i) over a block of rows: what each column receives."""
    scores, peaks, factors = np.empty((ROWS, TILE), dtype=points.dtype), np.empty(ROWS), np.zeros(ROWS)
    n_rows = queries.shape[0]
    for group in range(0, n_rows, ROW_GROUP):
        for t in range(points.shape[0]):
            for first in range(group, min(group + ROW_GROUP, n_rows), ROWS):
                count = min(ROWS, n_rows - first)
                _scores(
                    queries, first, count, points[t], offsets[t], by_products, left_out, t * TILE, False, scores, peaks
                )
                for r in range(ROWS):
                    if r < count and log_sums[first + r] > -np.inf:
                        # What a log-sum loses in the working precision is a factor of the whole row.
                        shift = scores.dtype.type(log_sums[first + r])
                        _exp_in_place(scores[r], shift)
                        factors[r] = row_weights[first + r] * np.exp(float64(shift) - log_sums[first + r])
                    else:
                        scores[r, :] = 0
                        factors[r] = 0.0
                _add_columns(columns[t], scores, factors)


def _class_signature(real):
    a2, a3 = real[:, ::1], real[:, :, ::1]
    doubles, ints = float64[::1], int64[::1]
    pairs = (a2, a3, a2, doubles, float64, types.boolean, ints)
    return void(*pairs, ints, doubles, float64[:, ::1], a2)


@_kernel(_class_signature)
def class_rows(
    queries, points, offsets, bounds, smallest, by_products, left_out,
    class_bounds, log_sums, shares, scores,
):  # fmt: skip
    """A block of rows: log-sum-exp and each class's share of the softmax.

    Points are sorted by class; class c is at class_bounds[c]..class_bounds[c + 1].
    """
    n_tiles, n_classes = points.shape[0], shares.shape[1]
    peaks, top, total, rescale = np.empty(ROWS), np.empty(ROWS), np.empty(ROWS), np.empty(ROWS)
    sums = np.empty((ROWS, n_classes))
    n_rows = queries.shape[0]
    for first in range(0, n_rows, ROWS):
        in_group = min(ROWS, n_rows - first)
        for careful in (False, True):
            if careful and not _underflowed(total, in_group, smallest):
                break
            _begin_log_sums(bounds, first, in_group, careful, top, total)
            sums[:, :] = 0.0
            lowest = 0
            for t in range(n_tiles):
                _scores(
                    queries,
                    first,
                    in_group,
                    points[t],
                    offsets[t],
                    by_products,
                    left_out,
                    t * TILE,
                    careful,
                    scores,
                    peaks,
                )
                _add_to_log_sums(scores, peaks, top, total, rescale)
                while lowest < n_classes - 1 and class_bounds[lowest + 1] <= t * TILE:
                    lowest += 1
                for r in range(in_group):
                    if rescale[r] != 1.0:
                        for c in range(n_classes):
                            sums[r, c] *= rescale[r]
                    c = lowest
                    while c < n_classes and class_bounds[c] < (t + 1) * TILE:
                        lo, hi = max(class_bounds[c] - t * TILE, 0), min(class_bounds[c + 1] - t * TILE, TILE)
                        sums[r, c] += _sum_between(scores[r], lo, hi)
                        c += 1
        for r in range(in_group):
            log_sums[first + r] = top[r] + np.log(total[r])
            inverse = _inverse(total[r])
            for c in range(n_classes):
                shares[first + r, c] = sums[r, c] * inverse


@njit(fastmath={"contract"}, **_OPTIONS)
def _factors_of_row(likelihood, matched, total, row_weight, least_agreement, smallest):
    """Factors of a row's exponentials inside and outside its class (`_contract.Pull`), and log a_i.

    Under "likelihood" a row whose class mates are too far for this precision gets factors of zero and log-agreement
    NaN: the caller does such rows by the reference.
    """
    if total == 0.0:  # a row that sees no point agrees with nobody, and pulls nothing
        return 0.0, 0.0, -np.inf
    agreement = matched / total
    if likelihood:
        if agreement < least_agreement or matched < smallest:
            return 0.0, 0.0, np.nan
        return row_weight * (1.0 - 1.0 / agreement) / total, row_weight / total, np.log(agreement)
    return row_weight * (agreement - 1.0) / total, row_weight * agreement / total, np.log(agreement)


def _signed_signature(real):
    a2, a3 = real[:, ::1], real[:, :, ::1]
    doubles, ints = float64[::1], int64[::1]
    pairs = (a2, a3, a2, doubles, float64, types.boolean, ints)
    return void(
        *pairs,
        doubles,
        ints,
        ints,
        types.boolean,
        float64,
        doubles,
        doubles,
        float64[:, ::1],
        a3,
        a3,
    )


@_kernel(_signed_signature)
def signed_rows(
    queries, points, offsets, bounds, smallest, by_products, left_out,
    row_weights, mates_from, mates_to, likelihood, least_agreement,
    log_sums, log_agreement, on_queries, on_points, kept,
):  # fmt: skip
    """A block of rows of `_contract.Pull` for hard classes; points sorted by class, mates of query i at mates_from..to.

    on_points (n_tiles, d + 1, TILE) gathers ``sum_i w_ij q_i`` and, in its last line, ``sum_i w_ij``.
    """
    n_tiles, d = points.shape[0], points.shape[1]
    shifts = np.empty((n_tiles, KEPT_ROW_GROUP))
    peaks, top, total, rescale = np.empty(ROWS), np.empty(KEPT_ROW_GROUP), np.empty(KEPT_ROW_GROUP), np.empty(ROWS)
    matched, inside, outside = np.empty(KEPT_ROW_GROUP), np.zeros(KEPT_ROW_GROUP), np.zeros(KEPT_ROW_GROUP)
    sums, weight, ones = np.empty((KEPT_ROW_GROUP, d)), np.empty(KEPT_ROW_GROUP), np.ones(ROWS)
    n_rows = queries.shape[0]
    for first in range(0, n_rows, KEPT_ROW_GROUP):
        in_group = min(KEPT_ROW_GROUP, n_rows - first)
        for careful in (False, True):
            if careful and not _underflowed(total, in_group, smallest):
                break
            _begin_log_sums(bounds, first, in_group, careful, top, total)
            matched[:] = 0.0
            for t in range(n_tiles):
                for g in range(0, in_group, ROWS):
                    group = slice(g, g + ROWS)
                    count = min(ROWS, in_group - g)
                    scores = kept[t, group]
                    _scores(
                        queries, first + g, count, points[t], offsets[t], by_products, left_out, t * TILE, careful,
                        scores, peaks,
                    )  # fmt: skip
                    _add_to_log_sums(scores, peaks, top[group], total[group], rescale)
                    for r in range(ROWS):
                        shifts[t, g + r] = top[g + r]
                        matched[g + r] *= rescale[r]
                        if r < count:
                            lo = min(max(mates_from[first + g + r] - t * TILE, 0), TILE)
                            hi = min(max(mates_to[first + g + r] - t * TILE, 0), TILE)
                            if lo < hi:
                                matched[g + r] += _sum_between(scores[r], lo, hi)
        for r in range(in_group):
            i = first + r
            inside[r], outside[r], log_agreement[i] = _factors_of_row(
                likelihood, matched[r], total[r], row_weights[i], least_agreement, smallest
            )
            log_sums[i] = top[r] + np.log(total[r])
        sums[:, :] = 0.0
        weight[:] = 0.0
        for t in range(n_tiles):
            for g in range(0, in_group, ROWS):
                weights = kept[t, g : g + ROWS]
                for r in range(ROWS):
                    if g + r < in_group:
                        i = first + g + r
                        lo = min(max(mates_from[i] - t * TILE, 0), TILE)
                        hi = min(max(mates_to[i] - t * TILE, 0), TILE)
                        back = np.exp(shifts[t, g + r] - top[g + r]) if total[g + r] > 0.0 else 0.0
                        _scale_sides(weights[r], inside[g + r] * back, outside[g + r] * back, lo, hi)
                        weight[g + r] += _sum_between(weights[r], 0, TILE)
                    else:
                        weights[r, :] = 0
                _dot_all(weights, points[t], sums[g : g + ROWS])
                _add_to_points(weights, queries, first + g, on_points[t])
                _add_columns(on_points[t, d], weights, ones)
        for r in range(in_group):
            for k in range(d):
                on_queries[first + r, k] = weight[r] * queries[first + r, k] - sums[r, k]


# -- points against themselves: each pair once for both of its rows --------------------------------------------
#
# The kernel K_ij = exp(-|z_i - z_j|^2 / 2) is symmetric.  A block of rows, which begins at the row `start` of a tile,
# meets the tiles from_tile..to_tile that are not before its own; a pair gives to its row in `row_sums` (padded to whole
# ROWS) and, in later tiles, to its column in `column_sums` (n_tiles, width, TILE) as well.  Nothing is kept between tiles,
# so memory traffic does not grow with n.  Rows shift by `bounds`; the caller finds those whose sum underflowed.
# `queries`, `bounds`, `left_out` and `values` are those of the block, everything else is of all points.  `weights` b, which
# are padded with zeros to whole tiles, are the last column of the values; where there are none, all weights are 1.


@njit(fastmath={"contract"}, **_OPTIONS)
def _half_exponentials(
    queries, first, count, points, offsets, bounds, by_products, left_out, j0, scores, peaks, totals
):
    """K for ROWS rows against a tile, zero for rows beyond the last, and each row's sum."""
    _scores(queries, first, count, points, offsets, by_products, left_out, j0, False, scores, peaks)
    for r in range(ROWS):
        if r < count:
            totals[r] = _exp_in_place(scores[r], scores.dtype.type(bounds[first + r]))
        else:
            scores[r, :] = 0
            totals[r] = 0.0


def _half_signature(own):
    """The signature of a symmetric kernel from the types of its own arguments."""

    def signature(real):
        a2, a3 = real[:, ::1], real[:, :, ::1]
        pairs = (a2, a3, a2, float64[::1], float64, types.boolean, int64[::1])
        return void(*pairs, *own(real), int64, int64, int64, float64[:, ::1], a3)

    return signature


@_kernel(_half_signature(lambda real: (real[:, ::1], real[:, :, ::1], real[::1])))
def half_sums(
    queries, points, offsets, bounds, smallest, by_products, left_out,
    values, packed_values, weights, start, from_tile, to_tile, row_sums, column_sums,
):  # fmt: skip
    """``K V``."""
    scores, peaks, totals = np.empty((ROWS, TILE), dtype=points.dtype), np.empty(ROWS), np.empty(ROWS)
    n_rows, last = queries.shape[0], packed_values.shape[1]
    for t in range(from_tile, to_tile):
        for place in range(0, n_rows, ROWS):
            own = (start + place) // TILE
            if t < own:
                continue
            _half_exponentials(
                queries, place, min(ROWS, n_rows - place), points[t], offsets[t], bounds, by_products, left_out,
                t * TILE, scores, peaks, totals,
            )  # fmt: skip
            _dot_all(scores, packed_values[t], row_sums[place : place + ROWS])
            if weights.shape[0] > 0:
                _dot_one(scores, weights[t * TILE : (t + 1) * TILE], row_sums[place : place + ROWS], last)
            else:
                row_sums[place : place + ROWS, last] += totals
            if t > own:
                _add_to_points(scores, values, place, column_sums[t - from_tile])


@_kernel(_half_signature(lambda real: (real[:, :, ::1], real[::1], real[::1])))
def half_scatter(
    queries, points, offsets, bounds, smallest, by_products, left_out,
    packed_values, weights, factors, start, from_tile, to_tile, row_sums, column_sums,
):  # fmt: skip
    """``M V`` for ``M_ij = K_ij (f_i + f_j)``, to the rows of each pair; to its columns only ``M b``.

    A tile that meets itself gives half of it to its rows and half to its columns, as all others do.  `factors` f are
    padded with zeros to whole tiles.
    """
    scores, peaks, totals = np.empty((ROWS, TILE), dtype=points.dtype), np.empty(ROWS), np.empty(ROWS)
    b = np.empty(ROWS)
    n_rows, last = queries.shape[0], packed_values.shape[1]
    for t in range(from_tile, to_tile):
        of_columns = factors[t * TILE : (t + 1) * TILE]
        for place in range(0, n_rows, ROWS):
            first, count = start + place, min(ROWS, n_rows - place)
            own = first // TILE
            if t < own:
                continue
            _half_exponentials(
                queries, place, count, points[t], offsets[t], bounds, by_products, left_out, t * TILE,
                scores, peaks, totals,
            )  # fmt: skip
            half = scores.dtype.type(0.5 if t == own else 1.0)
            for r in range(count):
                total = _scale_by_sum(scores[r], factors[first + r], of_columns, half)
                b[r] = 1.0
                if weights.shape[0] > 0:
                    b[r] = weights[first + r]
                else:
                    row_sums[place + r, last] += total
            for r in range(count, ROWS):
                b[r] = 0.0
            _dot_all(scores, packed_values[t], row_sums[place : place + ROWS])
            if weights.shape[0] > 0:
                _dot_one(scores, weights[t * TILE : (t + 1) * TILE], row_sums[place : place + ROWS], last)
            _add_columns(column_sums[t - from_tile, 0], scores, b)


@njit(fastmath=_SUMS, **_OPTIONS)
def _scale_by_sum(weights, factor, of_columns, half):
    """weights[j] *= half (factor + of_columns[j]); return their sum."""
    total = weights.dtype.type(0)
    for j in range(weights.shape[0]):
        weight = weights[j] * (half * (factor + of_columns[j]))
        weights[j] = weight
        total += weight
    return total


@_kernel(_half_signature(lambda real: (int64[::1], int64[::1])))
def half_matches(
    queries, points, offsets, bounds, smallest, by_products, left_out,
    mates_from, mates_to, start, from_tile, to_tile, row_sums, column_sums,
):  # fmt: skip
    """``K 1``, and the same over class mates alone; points sorted by class, mates of row i at mates_from..to."""
    scores, peaks, totals = np.empty((ROWS, TILE), dtype=points.dtype), np.empty(ROWS), np.empty(ROWS)
    n_rows = queries.shape[0]
    for t in range(from_tile, to_tile):
        for place in range(0, n_rows, ROWS):
            first, count = start + place, min(ROWS, n_rows - place)
            own = first // TILE
            if t < own:
                continue
            _half_exponentials(
                queries, place, count, points[t], offsets[t], bounds, by_products, left_out, t * TILE,
                scores, peaks, totals,
            )  # fmt: skip
            row_sums[place : place + ROWS, 0] += totals
            if t > own:
                column = column_sums[t - from_tile, 0]
                for j in range(TILE):
                    column[j] += scores[0, j] + scores[1, j] + scores[2, j] + scores[3, j]
            for r in range(count):
                lo, hi = max(mates_from[first + r] - t * TILE, 0), min(mates_to[first + r] - t * TILE, TILE)
                if lo < hi:
                    row_sums[place + r, 1] += _sum_between(scores[r], lo, hi)
                    if t > own:
                        matched = column_sums[t - from_tile, 1]
                        for j in range(lo, hi):
                            matched[j] += scores[r, j]


@njit(fastmath={"contract"}, **_OPTIONS)
def _scale_both_ways(weights, inside, outside, inside_columns, outside_columns, start, stop):
    """weights[j] *= inside + inside_columns[j] between start and stop, outside + outside_columns[j] elsewhere."""
    for j in range(start):
        weights[j] *= outside + outside_columns[j]
    for j in range(start, stop):
        weights[j] *= inside + inside_columns[j]
    for j in range(stop, weights.shape[0]):
        weights[j] *= outside + outside_columns[j]


def _half_pull_arguments(real):
    return real[:, ::1], real[:, :, ::1], real[::1], int64[::1], int64[::1], real[::1], real[::1]


@_kernel(_half_signature(_half_pull_arguments))
def half_pull(
    queries, points, offsets, bounds, smallest, by_products, left_out,
    values, packed_values, weights, mates_from, mates_to, inside, outside, start, from_tile, to_tile,
    row_sums, column_sums,
):  # fmt: skip
    """``M V`` for ``M_ij = K_ij (g_i + g_j)``, g the row's factor `inside` its class or `outside` it.

    `inside` and `outside` are padded with zeros to whole tiles.
    """
    scores, peaks, totals = np.empty((ROWS, TILE), dtype=points.dtype), np.empty(ROWS), np.empty(ROWS)
    n_rows, last = queries.shape[0], packed_values.shape[1]
    for t in range(from_tile, to_tile):
        columns = slice(t * TILE, (t + 1) * TILE)
        for place in range(0, n_rows, ROWS):
            first, count = start + place, min(ROWS, n_rows - place)
            own = first // TILE
            if t < own:
                continue
            _half_exponentials(
                queries, place, count, points[t], offsets[t], bounds, by_products, left_out, t * TILE,
                scores, peaks, totals,
            )  # fmt: skip
            for r in range(count):
                i = first + r
                lo = min(max(mates_from[i] - t * TILE, 0), TILE)
                hi = min(max(mates_to[i] - t * TILE, 0), TILE)
                _scale_both_ways(scores[r], inside[i], outside[i], inside[columns], outside[columns], lo, hi)
            _dot_all(scores, packed_values[t], row_sums[place : place + ROWS])
            _dot_one(scores, weights[columns], row_sums[place : place + ROWS], last)
            if t > own:
                _add_to_points(scores, values, place, column_sums[t - from_tile])


# -- the compiled passes between matrix products, for many coordinates -----------------------------------------


def _tile_signature(real):
    doubles = float64[::1]
    return void(real[:, ::1], real[::1], int64[::1], int64, doubles, doubles, doubles, doubles)


@_kernel(_tile_signature)
def exponentials_of_products(products, column_offsets, left_out, j0, top, total, rescale, shifts):
    """products q_i'z_j -> exponentials of the scores, taken into the log-sum-exp state of each row.

    The score is ``products + column_offsets[j]``, less a constant of the row; `shifts` returns each row's top.
    """
    peaks = np.empty(products.shape[0])
    for r in range(products.shape[0]):
        skip = left_out[r] - j0
        if 0 <= skip < products.shape[1]:
            products[r, skip] = -np.inf
        peaks[r] = _products_to_scores(products[r], column_offsets)
    _add_to_log_sums(products, peaks, top, total, rescale)
    shifts[:] = top


@_kernel(lambda real: void(real[:, ::1], int64[::1], int64[::1], float64[::1], float64[::1], int64))
def scale_sides(weights, mates_from, mates_to, inside, outside, j0):
    """Multiply a tile of exponentials by each row's factor inside and outside its class."""
    width = weights.shape[1]
    for r in range(weights.shape[0]):
        lo, hi = min(max(mates_from[r] - j0, 0), width), min(max(mates_to[r] - j0, 0), width)
        _scale_sides(weights[r], inside[r], outside[r], lo, hi)


@_kernel(lambda real: void(real[:, ::1], int64[::1], int64[::1], int64, float64[::1]))
def add_matched(weights, mates_from, mates_to, j0, matched):
    """matched[r] += the row's exponentials inside its class."""
    width = weights.shape[1]
    for r in range(weights.shape[0]):
        lo, hi = min(max(mates_from[r] - j0, 0), width), min(max(mates_to[r] - j0, 0), width)
        if lo < hi:
            matched[r] += _sum_between(weights[r], lo, hi)


def _class_factors_signature(real):
    doubles = float64[::1]
    return void(real[:, ::1], types.boolean, doubles, doubles, doubles, float64, float64, doubles, doubles, doubles)


@_kernel(_class_factors_signature)
def class_factors(
    queries, likelihood, matched, total, row_weights, least_agreement, smallest, inside, outside, log_agreement
):
    """`_factors_of_row` for each row of a block; `queries` only carries the precision."""
    for r in range(matched.shape[0]):
        inside[r], outside[r], log_agreement[r] = _factors_of_row(
            likelihood, matched[r], total[r], row_weights[r], least_agreement, smallest
        )


@njit(fastmath=_SUMS, **_OPTIONS)
def _exp_of_products(products, column_offsets, shift):
    """products <- e = exp(products + column_offsets - shift)."""
    for j in range(products.shape[0]):
        products[j] = _exp(products[j] + column_offsets[j] - shift)


@njit(fastmath=_SUMS, **_OPTIONS)
def _dot(a, b):
    total = a.dtype.type(0)
    for j in range(a.shape[0]):
        total += a[j] * b[j]
    return float64(total)


@njit(fastmath={"contract"}, **_OPTIONS)
def _add_scaled(out, values, factor):
    for j in range(values.shape[0]):
        out[j] += factor * values[j]


def _under_bounds_signature(real):
    reals, doubles = real[::1], float64[::1]
    return void(real[:, ::1], reals, doubles, int64[::1], int64, reals, reals, types.boolean, float64[:], float64[:])


@_kernel(_under_bounds_signature)
def exponentials_under_bounds(
    products, column_offsets, bounds, left_out, j0, row_weights, column_weights, both, row_sums, column_sums
):
    """products q_i'z_j -> exponentials K of the scores less each row's bound.

    Given weights b (not empty), row_sums += K b and, for `both`, column_sums += K' b.
    """
    width = products.shape[1]
    columns = np.zeros(width, dtype=products.dtype)
    for r in range(products.shape[0]):
        skip = left_out[r] - j0
        if 0 <= skip < width:
            products[r, skip] = -np.inf
        _exp_of_products(products[r], column_offsets, products.dtype.type(bounds[r]))
        if row_weights.shape[0] > 0:
            row_sums[r] += _dot(products[r], column_weights)
            if both:
                _add_scaled(columns, products[r], row_weights[r])
    if both and row_weights.shape[0] > 0:
        for j in range(width):
            column_sums[j] += columns[j]


def _matches_both_ways_signature(real):
    ints = int64[::1]
    return void(real[:, ::1], ints, ints, int64, types.boolean, float64[:], float64[:])


@_kernel(_matches_both_ways_signature)
def add_matches_both_ways(weights, mates_from, mates_to, j0, both, row_matched, column_matched):
    """Add a tile's exponentials among class mates to the rows and, for `both`, to the columns."""
    width = weights.shape[1]
    for r in range(weights.shape[0]):
        lo, hi = min(max(mates_from[r] - j0, 0), width), min(max(mates_to[r] - j0, 0), width)
        if lo < hi:
            row_matched[r] += _sum_between(weights[r], lo, hi)
            if both:
                for j in range(lo, hi):
                    column_matched[j] += weights[r, j]


def _scale_both_ways_signature(real):
    ints, reals = int64[::1], real[::1]
    return void(real[:, ::1], ints, ints, int64, reals, reals, reals, reals)


@_kernel(_scale_both_ways_signature)
def scale_both_ways(weights, mates_from, mates_to, j0, inside, outside, inside_columns, outside_columns):
    """Multiply a tile of exponentials by the sum of its row's and its column's factor, inside and outside the class."""
    width = weights.shape[1]
    for r in range(weights.shape[0]):
        lo, hi = min(max(mates_from[r] - j0, 0), width), min(max(mates_to[r] - j0, 0), width)
        _scale_both_ways(weights[r], inside[r], outside[r], inside_columns, outside_columns, lo, hi)


def _scale_for_scatter_signature(real):
    reals = real[::1]
    return void(real[:, ::1], reals, reals, reals, reals, float64, float64[:], float64[:])


@_kernel(_scale_for_scatter_signature)
def scale_for_scatter(weights, factors, of_columns, row_weights, column_weights, half, row_sums, column_sums):
    """Multiply a tile of exponentials by ``half (f_i + f_j)`` to M; row_sums += M b, column_sums += M' b."""
    columns = np.zeros(weights.shape[1], dtype=weights.dtype)
    for r in range(weights.shape[0]):
        _scale_by_sum(weights[r], factors[r], of_columns, weights.dtype.type(half))
        row_sums[r] += _dot(weights[r], column_weights)
        _add_scaled(columns, weights[r], row_weights[r])
    for j in range(weights.shape[1]):
        column_sums[j] += columns[j]
