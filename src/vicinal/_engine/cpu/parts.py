"""The parts of the compiled kernels, which `work/compiling.py` compiles.

::

      cpu/sweep_kernels.py    the sweep over rows and tiles of points      frames/kernels.py                          frames
      cpu/listed_kernels.py   the sweep over listed pairs of tiles

Points arrive *packed*: `(n_tiles, d, TILE)`, so that a tile's coordinates lie together and the inner loop runs over
the points j.  The last tile is padded with offset -inf, hence weight 0.  Queries are taken ROWS at a time, so that
one load of a coordinate serves ROWS pairs.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import float32, float64, njit, types
from numba.extending import overload

from vicinal._engine.cpu.vectors import add_outer, differences, one_dot, products, two_dots
from vicinal._engine.work.compiling import _OPTIONS, _SUMS, _from_bits, _to_bits

ROWS = 4  # queries that share one load of a coordinate: a fact, because the loops below are written out for four
TILE = 256  # points in a tile: the coordinates of more points would not fit into the first-level cache


def _exp(x: float) -> float:
    """exp(x) for x <= 700 (80 in float32), -inf included; results that would be subnormal are 0.

    x = k ln 2 + r, with k rounded by adding 1.5 * 2^52 (1.5 * 2^23 in float32), whose low bits then hold k; a
    polynomial in r, fitted at Chebyshev nodes on +-ln(2)/2 to a relative error of 2.2e-16 (2e-9 in float32); 2^k is
    added into the exponent bits.
    """
    raise NotImplementedError("only for compiled code")


@overload(_exp, jit_options={"fastmath": {"contract"}, "forceinline": True})
def _exp_overload(x: Any) -> Callable[[Any], float]:  # Numba requires the same annotations of x here and below
    if x == types.float64:

        def exp64(x: Any) -> float:
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

    def exp32(x: Any) -> float:
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


@njit(fastmath={"contract"}, **_OPTIONS)
def _four_scores(
    queries: np.ndarray, i: int, tile: np.ndarray, offsets: np.ndarray, by_products: bool, scores: np.ndarray
) -> None:
    """scores[r, j] = offsets[j] + q_r'z_j, or offsets[j] - |q_r - z_j|^2 / 2, for ROWS rows; past the end, the last row again."""
    last = queries.shape[0] - 1
    i1, i2, i3 = min(i + 1, last), min(i + 2, last), min(i + 3, last)
    if by_products:
        products(queries, i, i1, i2, i3, tile, offsets, scores)
    else:
        differences(queries, i, i1, i2, i3, tile, offsets, scores)


@njit(fastmath={"nnan", "nsz"}, **_OPTIONS)
def _peaks(scores: np.ndarray, peaks: np.ndarray) -> None:
    """peaks[r] = max_j scores[r, j]."""
    low = scores.dtype.type(-np.inf)
    p0, p1, p2, p3 = low, low, low, low
    for j in range(scores.shape[1]):
        p0, p1 = max(p0, scores[0, j]), max(p1, scores[1, j])
        p2, p3 = max(p2, scores[2, j]), max(p3, scores[3, j])
    peaks[0], peaks[1], peaks[2], peaks[3] = p0, p1, p2, p3


@njit(fastmath=_SUMS, **_OPTIONS)
def _exp_in_place(scores: np.ndarray, shift: float) -> float:
    """scores <- e = exp(scores - shift); return sum_j e_j."""
    total = scores.dtype.type(0)
    for j in range(scores.shape[0]):
        e = _exp(scores[j] - shift)
        scores[j] = e
        total += e
    return total


@njit(fastmath={"contract"}, **_OPTIONS)
def _add_columns(column: np.ndarray, weights: np.ndarray, factors: np.ndarray) -> None:
    """column[j] += sum_r factors[r] weights[r, j]."""
    real = column.dtype.type
    f0, f1, f2, f3 = real(factors[0]), real(factors[1]), real(factors[2]), real(factors[3])
    for j in range(weights.shape[1]):
        column[j] += f0 * weights[0, j] + f1 * weights[1, j] + f2 * weights[2, j] + f3 * weights[3, j]


@njit(fastmath=_SUMS, **_OPTIONS)
def _sum_between(weights: np.ndarray, start: int, stop: int) -> float:
    total = weights.dtype.type(0)
    for j in range(start, stop):
        total += weights[j]
    return float64(total)


@njit(fastmath={"contract"}, **_OPTIONS)
def _dot_all(weights: np.ndarray, values: np.ndarray, out: np.ndarray) -> None:
    """out[r, k] += sum_j weights[r, j] values[k, j]."""
    k = 0
    while k + 1 < values.shape[0]:
        two_dots(weights, values, k, out, k)
        k += 2
    if k < values.shape[0]:
        one_dot(weights, values, k, out, k)


@njit(fastmath={"contract"}, **_OPTIONS)
def _add_to_points(weights: np.ndarray, queries: np.ndarray, i: int, out: np.ndarray) -> None:
    """out[k, j] += sum_r weights[r, j] queries[i + r, k]; weights of rows beyond the last query are zero."""
    last = queries.shape[0] - 1
    add_outer(weights, queries, i, min(i + 1, last), min(i + 2, last), min(i + 3, last), out)
