"""Uphill to a mode of a Gaussian mixture: the mean-shift step, which never lowers the density.

With p_j the share of component j at x, the step is the maximiser of the lower bound that EM gives,

    x <- (sum_j p_j C_j^-1)^-1 sum_j p_j C_j^-1 c_j,

which for a covariance shared by all components is the plain mean of the centres, ``sum_j p_j c_j``.
"""

import numpy as np

from vicinal._engine import as_engine, available_threads, in_order, one_blas_thread, robust_centre

_NEGLIGIBLE = 1e-12  # shares below this do not move a step
CLIMB_PASSES = 20  # steps that the rows make, about; the engine chooses by it


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
    step = _frame_step if _has_frames(mixture) else _shared_step
    placed = mixture.placement(len(X), CLIMB_PASSES)
    modes = np.array(X, dtype=np.float64)
    moving = np.arange(len(modes))
    n_iter = 0
    while len(moving) and n_iter < max_iter:
        n_iter += 1
        moved, lengths = step(mixture, placed, modes[moving])
        modes[moving] = moved
        moving = moving[lengths > tol]
    converged = np.ones(len(modes), dtype=bool)
    converged[moving] = False
    return modes, n_iter, converged


def in_kernel_units(mixture, rows):
    """Rows where a kernel's standard deviation (for frames: the noise's, the smallest) is 1 in every direction."""
    rows = np.asarray(rows, dtype=np.float64)
    if _has_frames(mixture):
        return (rows - robust_centre(mixture.centres)) / np.sqrt(mixture.noise)
    return mixture.scaled(rows)


def _has_frames(mixture):
    return hasattr(mixture, "frames")


def _shared_step(mixture, placed, X):
    """One step for each row, and its length in units of the kernel."""
    shifts = placed.mean_shifts(X).means
    return X + mixture.unscaled(shifts), np.linalg.norm(shifts, axis=1)


def _frame_step(mixture, placed, X):
    """One step for each row, and its length in units of the noise's standard deviation."""
    steps = np.zeros_like(X)
    gains = 1.0 / mixture.noise - 1.0 / (mixture.noise + mixture.variances)  # (d, n)
    threads = available_threads(as_engine(mixture.engine).threads)
    for query, point, shares in placed.neighbors_above(_NEGLIGIBLE, X):
        starts = np.flatnonzero(np.append(True, query[1:] != query[:-1]))
        ends = np.append(starts[1:], len(query))

        def work(some, query=query, point=point, shares=shares):
            near = point[some]
            return _frame_shift(mixture, gains[:, near], near, shares[some], X[query[some.start]])

        with one_blas_thread():
            steps[query[starts]] = list(in_order(work, map(slice, starts, ends), threads))
    return X + steps, np.linalg.norm(steps, axis=1) / np.sqrt(mixture.noise)


def _frame_shift(mixture, gain, near, p, x):
    """The step of one row x, from its neighbours `near` with the shares p."""
    noise = mixture.noise
    differences = mixture.centres[near] - x
    frames = mixture.frames[:, near].astype(np.float64)  # (d, k, D)
    along = np.einsum("lnk,nk->ln", frames, differences)
    gradient = p @ differences / noise - np.einsum("ln,lnk->k", p * gain * along, frames)
    # sum_j p_j C_j^-1 = I / noise - U'U with the rows of U sqrt(p_j gain_jl) V_jl.
    U = (np.sqrt(p * gain)[:, :, None] * frames).reshape(-1, len(x))
    if len(U) < len(x):
        inner = np.eye(len(U)) - noise * (U @ U.T)
        return noise * (gradient + noise * U.T @ np.linalg.solve(inner, U @ gradient))
    return np.linalg.solve(np.eye(len(x)) / noise - U.T @ U, gradient)
