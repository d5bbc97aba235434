"""Shrinkage of the within-chunklet covariance of RCA, in units of the columns."""

import numpy as np

from vicinal._scatter import ChunkletScatter


def contrast_shrinkage(sums: ChunkletScatter, spread: np.ndarray) -> float:
    """Return the shrinkage of Ledoit and Wolf (2004) for R contrasts z with known mean zero, in units of the columns.

    With ``S = sum z z' / R`` and ``mu = tr S / d`` the optimal weight of ``mu I`` is estimated by

        min(1, b / c),    b = (sum |z|^4 / R - |S|_F^2) / R,    c = |S - mu I|_F^2.

    With a single contrast, b cannot be estimated, and the weight is 1.

    Parameters
    ----------
    sums : ChunkletScatter
    spread : array of shape (d,)
        The standard deviations of the columns; 0 for constant ones, which are ignored.
    """
    n_contrasts = sums.n_contrasts
    if n_contrasts == 1:
        return 1.0
    moving = np.flatnonzero(spread)
    here = np.ix_(moving, moving)
    units = np.outer(spread[moving], spread[moving])
    S = sums.within[here] / units / n_contrasts
    square = np.vdot(S, S)
    from_isotropic = square - np.trace(S) ** 2 / len(S)
    fourth = (sums.fourth[here] / units / units).sum()
    from_truth = (fourth / n_contrasts - square) / n_contrasts
    if from_isotropic <= np.finfo(np.float64).eps * square:
        return 1.0
    return float(np.clip(from_truth / from_isotropic, 0.0, 1.0))


def shrunk(covariance: np.ndarray, shrinkage: float, spread: np.ndarray) -> np.ndarray:
    """Return ``(1 - s) C + s mu D^2`` with D the standard deviations of the columns and ``mu = tr(D^-1 C D^-1) / d``."""
    moving = spread > 0
    share = np.mean(np.diag(covariance)[moving] / spread[moving] ** 2)
    result = (1.0 - shrinkage) * covariance
    result[np.diag_indices(len(covariance))] += shrinkage * share * spread**2
    return result
