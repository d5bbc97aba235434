"""Uphill to a mode of a Gaussian mixture: the mean-shift step, which never lowers the density.

With p_j the share of component j at x, the step is the maximiser of the lower bound that EM gives,

    x <- (sum_j p_j C_j^-1)^-1 sum_j p_j C_j^-1 c_j,

which for a covariance shared by all components is the plain mean of the centres, ``sum_j p_j c_j``.
"""

import numpy as np
from scipy.special import softmax

from vicinal._engine import pair_reductions
from vicinal._engine._choice import as_engine
from vicinal._engine._pool import available_threads, in_order, one_blas_thread
from vicinal._manifold_parzen.frame_mixture import FrameMixture

_NEGLIGIBLE = 1e-12  # shares below this do not move a step


def climb(mixture, X, *, max_iter, tol):
    """Follow each row of X uphill until its step is shorter than `tol`, in units of the kernels.

    Parameters
    ----------
    mixture : SharedMixture or FrameMixture
    X : array of shape (m, D)

    Returns
    -------
    modes : array of shape (m, D)
    n_iter : int
        Steps of the row that took most.
    converged : boolean array of shape (m,)
    """
    step = _frame_step if isinstance(mixture, FrameMixture) else _shared_step
    modes = np.array(X, dtype=np.float64)
    moving = np.arange(len(modes))
    n_iter = 0
    while len(moving) and n_iter < max_iter:
        n_iter += 1
        moved, lengths = step(mixture, modes[moving])
        modes[moving] = moved
        moving = moving[lengths > tol]
    converged = np.ones(len(modes), dtype=bool)
    converged[moving] = False
    return modes, n_iter, converged


def in_kernel_units(mixture, rows):
    """Rows where a kernel's standard deviation (for frames: the noise's, the smallest) is 1 in every direction."""
    rows = np.asarray(rows, dtype=np.float64)
    if isinstance(mixture, FrameMixture):
        return (rows - mixture.centres.mean(axis=0, dtype=np.float64)) / np.sqrt(mixture.noise)
    return mixture.scaled(rows).astype(np.float64)


def _shared_step(mixture, X):
    """One step for each row, and its length in units of the kernel."""
    points = mixture.scaled(mixture.centres)
    queries = mixture.scaled(X)
    pairs = pair_reductions(mixture.engine, len(X), *points.shape)
    log_weights = mixture._log_weights_or_none()
    means = pairs.softmax_means(queries, points, points, log_weights=log_weights).means
    return mixture.unscaled(means), np.linalg.norm(means - queries, axis=1)


def _frame_step(mixture, X):
    """One step for each row, and its length in units of the noise's standard deviation."""
    engine = as_engine(mixture.engine)
    noise = mixture.noise
    spreads = noise + mixture.variances  # (d, n)
    gains = 1.0 / noise - 1.0 / spreads
    log_dets = np.log(spreads).sum(axis=0)

    def work(i):
        x = X[i]
        differences = mixture.centres - x  # (n, D)
        along = np.einsum("lnk,nk->ln", mixture.frames, differences)
        residual = np.maximum((differences**2).sum(axis=1) - (along**2).sum(axis=0), 0.0)
        square = residual / noise + (along**2 / spreads).sum(axis=0)
        shares = softmax(mixture.log_weights - 0.5 * (square + log_dets))
        near = np.flatnonzero(shares > _NEGLIGIBLE)
        p, gain = shares[near], gains[:, near]
        frames, along = mixture.frames[:, near].astype(np.float64), along[:, near]
        gradient = p @ differences[near] / noise - np.einsum("ln,lnk->k", p * gain * along, frames)
        # sum_j p_j C_j^-1 = I / noise - U'U with the rows of U sqrt(p_j gain_jl) V_jl.
        U = (np.sqrt(p * gain)[:, :, None] * frames).reshape(-1, len(x))
        if len(U) < len(x):
            inner = np.eye(len(U)) - noise * (U @ U.T)
            step = noise * (gradient + noise * U.T @ np.linalg.solve(inner, U @ gradient))
        else:
            step = np.linalg.solve(np.eye(len(x)) / noise - U.T @ U, gradient)
        return x + step, np.linalg.norm(step) / np.sqrt(noise)

    with one_blas_thread():
        moved, lengths = zip(*in_order(work, range(len(X)), available_threads(engine.threads)), strict=True)
    return np.array(moved), np.array(lengths)
