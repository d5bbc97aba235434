"""The functions of `frames/kernels.py` in array arithmetic: for small problems, without Numba, and on torch.

The functions have the same names, arguments and results; they write into their last arguments.
"""

import math
from collections.abc import Sequence

import numpy as np
from array_api_compat import array_namespace

from vicinal._engine.contract import Array


def take_squares(along: Array, offsets: Array, left: Array) -> None:
    """along <- (along - offsets)^2, taken from left: the pass between two matrix products."""
    along -= offsets
    along *= along
    left -= along


def project_by_removal(
    queries: Array,
    points: Array,
    frames: Array,
    offsets: Array,
    depths: Sequence[int],
    residuals: Array,
    squares: Array,
) -> None:
    """Split every difference into its parts along the frame, which are removed one by one, and the remainder."""
    left = queries.T[:, :, None] - points[:, None, :]  # (D, R, T)
    l = 0
    for m, depth in enumerate(depths):
        while l < depth:
            direction = frames[l][:, None, :]
            along = (direction * left).sum(0)
            left -= direction * along
            squares[l] = along * along
            l += 1
        residuals[m] = (left * left).sum(0)


def accumulate(
    residuals: Array,
    squares: Array,
    inverse_variances: Array,
    constants: Array,
    precisions: Array,
    depths: Sequence[int],
    tops: Array,
    totals: Array,
) -> None:
    """Add a tile of points to the log-sum-exp states of a block of queries, for every depth m and noise s."""
    xp = array_namespace(residuals)
    for s in range(constants.shape[1]):
        quadratic, l = 0.0, 0
        for m, depth in enumerate(depths):
            with np.errstate(over="ignore"):  # a component infinitely far from a query has weight 0
                while l < depth:
                    quadratic = quadratic + squares[l] * inverse_variances[s, l]
                    l += 1
                scores = constants[m, s] - 0.5 * (quadratic + precisions[s] * residuals[m])
            scores = xp.astype(scores, xp.float64)
            top = xp.maximum(tops[m, s], xp.max(scores, axis=1))
            shift = xp.where(top == -math.inf, xp.zeros_like(top), top)
            with np.errstate(under="ignore"):
                kept = totals[m, s] * xp.exp(tops[m, s] - shift)
                totals[m, s] = kept + xp.sum(xp.exp(scores - shift[:, None]), axis=1)
            tops[m, s] = top
