"""Kernel families: what a point's kernel looks like, as records that `Problem.at` takes.

A metric (an array, or None) is the kernel that all points share.  The records here give every point a kernel of its
own; they share the engine's tiles, threads and accuracy rules, but not its symmetry.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Frames:
    r"""A low-rank frame plus noise per point: ``C_j = noise I + sum_l v_jl V_jl V_jl'``.

    Attributes
    ----------
    frames : array of shape (d, n, D)
        Orthonormal directions of each point, the leading one first.
    variances : array of shape (d, n)
        Variance along each direction beyond the noise, at least 0.
    noise : float
    """

    frames: np.ndarray
    variances: np.ndarray
    noise: float


@dataclass(frozen=True)
class Covariances:
    """A full covariance per point, given by inverse roots: ``C_j^-1 = R_j' R_j``, shape (n, D, D), lower triangular."""

    inverse_roots: np.ndarray
