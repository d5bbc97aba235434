"""Compiled kernels for points with a frame each: serial, cached on disk, releasing the GIL.

`frames/placed.py` runs them on blocks in threads.  The rules are those of `cpu/parts.py`, whose `exp` is used here.
"""

from typing import Any

import numpy as np
from numba import float64, int64, njit, void

from vicinal._engine.cpu.parts import _exp
from vicinal._engine.cpu.vectors import differences_alone, products_alone
from vicinal._engine.work.compiling import _OPTIONS, _SUMS, _kernel

_ROWS = 4  # queries that share one load of a tile's coordinates


def _project_signature(real: Any) -> Any:
    a2, a3 = real[:, ::1], real[:, :, ::1]
    return void(a2, a2, a3, a2, int64[::1], a3, a3)


@njit(fastmath={"contract"}, **_OPTIONS)
def _along(queries: np.ndarray, i: int, frame: np.ndarray, out: np.ndarray) -> None:
    """out[r, j] = sum_k frame[k, j] queries[i + r, k] for _ROWS rows; past the end, the last row again."""
    last = queries.shape[0] - 1
    products_alone(queries, i, min(i + 1, last), min(i + 2, last), min(i + 3, last), frame, out)


@njit(fastmath={"contract"}, **_OPTIONS)
def _minus_half_squares(queries: np.ndarray, i: int, points: np.ndarray, out: np.ndarray) -> None:
    """out[r, j] = -|queries[i + r] - points[:, j]|^2 / 2 for _ROWS rows; past the end, the last row again."""
    last = queries.shape[0] - 1
    differences_alone(queries, i, min(i + 1, last), min(i + 2, last), min(i + 3, last), points, out)


@_kernel(_project_signature)
def project(
    queries: np.ndarray,
    points: np.ndarray,
    frames: np.ndarray,
    offsets: np.ndarray,
    depths: np.ndarray,
    residuals: np.ndarray,
    squares: np.ndarray,
) -> None:
    """Split every difference query - point into its parts along the point's frame and the remainder.

    squares[l, i, j] = (V_jl'(q_i - x_j))^2, with offsets[l, j] = V_jl'x_j; residuals[m, i, j] = |q_i - x_j|^2
    minus the first depths[m] squares.  `points` is (D, T) and `frames` (d, D, T): the inner loops run over
    the points.
    """
    n_points = points.shape[1]
    along = np.empty((_ROWS, n_points), points.dtype)
    left = np.empty((_ROWS, n_points), points.dtype)
    zero, two = points.dtype.type(0), points.dtype.type(2)
    for i in range(0, queries.shape[0], _ROWS):
        count = min(_ROWS, queries.shape[0] - i)
        _minus_half_squares(queries, i, points, left)
        for r in range(count):
            for j in range(n_points):
                left[r, j] *= -two
        l = 0
        for m in range(depths.shape[0]):
            while l < depths[m]:
                _along(queries, i, frames[l], along)
                for r in range(count):
                    for j in range(n_points):
                        part = along[r, j] - offsets[l, j]
                        square = part * part
                        squares[l, i + r, j] = square
                        left[r, j] -= square
                l += 1
            for r in range(count):
                for j in range(n_points):
                    residuals[m, i + r, j] = max(left[r, j], zero)


@_kernel(lambda real: void(real[:, ::1], real[::1], real[:, ::1]))
def take_squares(along: np.ndarray, offsets: np.ndarray, left: np.ndarray) -> None:
    """along <- (along - offsets)^2, taken from left: the pass between two matrix products."""
    for i in range(along.shape[0]):
        for j in range(along.shape[1]):
            part = along[i, j] - offsets[j]
            along[i, j] = part * part
            left[i, j] -= part * part


@_kernel(_project_signature)
def project_by_removal(
    queries: np.ndarray,
    points: np.ndarray,
    frames: np.ndarray,
    offsets: np.ndarray,
    depths: np.ndarray,
    residuals: np.ndarray,
    squares: np.ndarray,
) -> None:
    """`project` if digits would cancel: the parts are computed from the difference and removed from it."""
    n_features, n_points = points.shape
    left = np.empty((n_features, n_points), points.dtype)
    along = np.empty(n_points, points.dtype)
    for i in range(queries.shape[0]):
        for k in range(n_features):
            a = queries[i, k]
            for j in range(n_points):
                left[k, j] = a - points[k, j]
        l = 0
        for m in range(depths.shape[0]):
            while l < depths[m]:
                along[:] = 0
                for k in range(n_features):
                    for j in range(n_points):
                        along[j] += frames[l, k, j] * left[k, j]
                for k in range(n_features):
                    for j in range(n_points):
                        left[k, j] -= frames[l, k, j] * along[j]
                for j in range(n_points):
                    squares[l, i, j] = along[j] * along[j]
                l += 1
            residuals[m, i, :] = 0
            for k in range(n_features):
                for j in range(n_points):
                    residuals[m, i, j] += left[k, j] * left[k, j]


@njit(fastmath={"nnan", "nsz", "contract"}, **_OPTIONS)
def _peak(
    quadratic: np.ndarray, residual: np.ndarray, precision: float, constants: np.ndarray, out: np.ndarray
) -> float:
    """out[j] = constants[j] - (quadratic[j] + precision residual[j]) / 2; return the largest."""
    half = out.dtype.type(0.5)
    top = out.dtype.type(-np.inf)
    for j in range(out.shape[0]):
        score = constants[j] - half * (quadratic[j] + precision * residual[j])
        out[j] = score
        top = max(top, score)
    return top


@njit(fastmath=_SUMS, **_OPTIONS)
def _sum_exp(scores: np.ndarray, shift: float) -> float:
    total = scores.dtype.type(0)
    for j in range(scores.shape[0]):
        total += _exp(scores[j] - shift)
    return total


@njit(fastmath={"contract"}, **_OPTIONS)
def _add_direction(quadratic: np.ndarray, squares: np.ndarray, inverse_variances: np.ndarray) -> None:
    for j in range(quadratic.shape[0]):
        quadratic[j] += squares[j] * inverse_variances[j]


def _accumulate_signature(real: Any) -> Any:
    a1, a3 = real[::1], real[:, :, ::1]
    return void(a3, a3, a3, a3, a1, int64[::1], float64[:, :, ::1], float64[:, :, ::1])


@_kernel(_accumulate_signature)
def accumulate(
    residuals: np.ndarray,
    squares: np.ndarray,
    inverse_variances: np.ndarray,
    constants: np.ndarray,
    precisions: np.ndarray,
    depths: np.ndarray,
    tops: np.ndarray,
    totals: np.ndarray,
) -> None:
    """Add a tile of points to the log-sum-exp states of a block of queries, for every depth m and noise s.

    The score of a pair is constants[m, s, j] - (sum_l squares[l] inverse_variances[s, l] + precisions[s]
    residual) / 2, l running over the first depths[m] directions: one sweep over the directions serves all
    depths.
    """
    n_rows, n_points = residuals.shape[1], residuals.shape[2]
    quadratic = np.empty(n_points, residuals.dtype)
    scores = np.empty(n_points, residuals.dtype)
    zero = residuals.dtype.type(0)
    for i in range(n_rows):
        for s in range(precisions.shape[0]):
            quadratic[:] = zero
            l = 0
            for m in range(depths.shape[0]):
                while l < depths[m]:
                    _add_direction(quadratic, squares[l, i], inverse_variances[s, l])
                    l += 1
                peak = _peak(quadratic, residuals[m, i], precisions[s], constants[m, s], scores)
                if peak == -np.inf:
                    continue
                if peak > tops[m, s, i]:
                    totals[m, s, i] *= np.exp(tops[m, s, i] - peak)
                    tops[m, s, i] = peak
                totals[m, s, i] += _sum_exp(scores, scores.dtype.type(tops[m, s, i]))


@njit(fastmath={"contract"}, **_OPTIONS)
def _to_scores(scores: np.ndarray, precision: float, constants: np.ndarray) -> None:
    """scores <- constants + precision scores, for _ROWS rows."""
    for j in range(constants.shape[0]):
        c = constants[j]
        scores[0, j] = c + precision * scores[0, j]
        scores[1, j] = c + precision * scores[1, j]
        scores[2, j] = c + precision * scores[2, j]
        scores[3, j] = c + precision * scores[3, j]


@njit(fastmath={"contract"}, **_OPTIONS)
def _add_gain(scores: np.ndarray, along: np.ndarray, offsets: np.ndarray, gains: np.ndarray) -> None:
    """scores += gains (along - offsets)^2, for _ROWS rows."""
    for j in range(offsets.shape[0]):
        o, g = offsets[j], gains[j]
        a0, a1, a2, a3 = along[0, j] - o, along[1, j] - o, along[2, j] - o, along[3, j] - o
        scores[0, j] += g * (a0 * a0)
        scores[1, j] += g * (a1 * a1)
        scores[2, j] += g * (a2 * a2)
        scores[3, j] += g * (a3 * a3)


@njit(fastmath={"nnan", "nsz"}, **_OPTIONS)
def _largest(scores: np.ndarray) -> float:
    top = scores.dtype.type(-np.inf)
    for j in range(scores.shape[0]):
        top = max(top, scores[j])
    return top


def _tiles_signature(real: Any) -> Any:
    a2, a3, a4 = real[:, ::1], real[:, :, ::1], real[:, :, :, ::1]
    ints, doubles = int64[::1], float64[::1]
    return void(a2, a3, a4, a3, a3, a2, float64, ints, ints, ints, doubles, doubles)


@_kernel(_tiles_signature)
def add_tiles(
    queries: np.ndarray,
    points: np.ndarray,
    frames: np.ndarray,
    offsets: np.ndarray,
    gains: np.ndarray,
    constants: np.ndarray,
    precision: float,
    tiles: np.ndarray,
    starts: np.ndarray,
    skipped: np.ndarray,
    tops: np.ndarray,
    totals: np.ndarray,
) -> None:
    """Add some tiles of points to the log-sum-exp states of a block of queries, for one depth and noise.

    Everything stays in the cache. The score of a pair is constants - precision |q - x|^2 / 2 + sum_l gains_l (V_l'q -
    offsets_l)^2 with gains (1 / sigma^2 - 1 / lambda_l) / 2.  Query i leaves out the positions
    skipped[starts[i] : starts[i + 1]], which are counted through all tiles.
    """
    n_points = points.shape[2]
    scores = np.empty((_ROWS, n_points), points.dtype)
    along = np.empty((_ROWS, n_points), points.dtype)
    over_noise = points.dtype.type(precision)
    for t in tiles:
        for i in range(0, queries.shape[0], _ROWS):
            _minus_half_squares(queries, i, points[t], scores)
            _to_scores(scores, over_noise, constants[t])
            for l in range(frames.shape[1]):
                _along(queries, i, frames[t, l], along)
                _add_gain(scores, along, offsets[t, l], gains[t, l])
            for r in range(min(_ROWS, queries.shape[0] - i)):
                for s in range(starts[i + r], starts[i + r + 1]):
                    place = skipped[s] - t * n_points
                    if 0 <= place < n_points:
                        scores[r, place] = -np.inf
                peak = _largest(scores[r])
                if peak == -np.inf:
                    continue
                if peak > tops[i + r]:
                    totals[i + r] *= np.exp(tops[i + r] - peak)
                    tops[i + r] = peak
                totals[i + r] += _sum_exp(scores[r], scores.dtype.type(tops[i + r]))
