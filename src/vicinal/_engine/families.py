"""Kernel families: the forms of a point's kernel, as records that `Problem.at` takes.

A metric (an array, or None) is the kernel that all points share.  A record gives every point a kernel of its
own; it shares the engine's tiles, threads and accuracy rules, but not its symmetry.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Frames:
    r"""A low-rank frame plus noise per point: ``C_j = noise I + sum_l v_jl V_jl V_jl'``.

    The score of a pair is ``s_ij = log_weights_j - (q_i - x_j)' C_j^-1 (q_i - x_j) / 2 - log det C_j / 2``: the
    logarithm of a Gaussian density without the constant ``-D/2 log(2 pi)``.

    Attributes
    ----------
    frames : array of shape (d, n, D)
        Orthonormal directions of each point, the leading one first.
    variances : array of shape (d, n)
        Variance along each direction beyond the noise, at least 0.
    noise : float or sequence of float
        The variance in every direction, greater than 0.
    depths : increasing sequence of int, optional
        Numbers of leading directions to keep; the default is all.
    slack : float
        Matrix products may err by this many times more than usual: comparing noises needs fewer digits than reporting
        densities.

    Several depths or noises can only be used with `Placement.log_sums_table`, which computes all of them in one sweep.
    """

    frames: np.ndarray
    variances: np.ndarray
    noise: float | Sequence[float] | np.ndarray
    depths: Sequence[int] | None = None
    slack: float = 1.0


# A metric that all points share (a matrix, a vector that is a diagonal, or None), or a frame per point.
Kernel = np.ndarray | Frames | None
