"""Mean shift to a mode of a Gaussian mixture, by steps that never lower the density.

With p_j the share of component j at x, the step is the maximiser of the lower bound that EM gives,

    x <- (sum_j p_j C_j^-1)^-1 sum_j p_j C_j^-1 c_j,

which for a covariance shared by all components is the plain mean of the centres, ``sum_j p_j c_j``.
"""

import numpy as np

from vicinal._engine import Engine
from vicinal._mixtures import Mixture

SEEKING_PASSES = 20  # the approximate number of steps, from which the engine chooses a backend


def seek_modes(
    mixture: Mixture, X: np.ndarray, *, max_iter: int, tol: float, engine: Engine | str | None = None
) -> tuple[np.ndarray, int, np.ndarray]:
    """Follow each row of X uphill until its step is shorter than `tol`, in units of the kernels.

    Parameters
    ----------
    mixture : Mixture
    X : array of shape (m, D)
    engine : Engine, optional
        The engine for the steps, if it is not that of the mixture.

    Returns
    -------
    modes : array of shape (m, D)
    n_iter : int
        The largest number of steps of any row.
    converged : boolean array of shape (m,)
    """
    units = mixture.kernel_units
    placed = mixture.placement(len(X), SEEKING_PASSES, engine=engine)
    modes = np.array(X, dtype=np.float64)
    moving = np.arange(len(modes))
    n_iter = 0
    while len(moving) and n_iter < max_iter:
        n_iter += 1
        steps = mixture.mean_shift(modes[moving], placed)
        modes[moving] += steps
        lengths = np.linalg.norm(steps * units if units.ndim == 1 else steps @ units.T, axis=1)
        moving = moving[lengths > tol]
    converged = np.ones(len(modes), dtype=bool)
    converged[moving] = False
    return modes, n_iter, converged
