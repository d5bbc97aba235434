"""The isotropic bandwidth of maximum leave-one-out likelihood: Local Component Analysis with a spherical covariance."""

import numpy as np

from vicinal._engine import one_blas_thread_beside_pairs
from vicinal._fit_loops import FitPath, Recorder, accelerated_fixed_point
from vicinal._leave_one_out import LeaveOneOut, scatter_of_rows
from vicinal._mixtures import LOG_2PI

# The approximate number of passes of the search, from which the engine chooses a backend.
LOO_PASSES = 10
# From twice as many rows on, the scores of this many rows under all others locate the best width approximately: few rows on the
# way, and more of them near its end.
_SCOUTS = ((64, 1e-2), (256, 1e-6))  # and the tolerance, in nats per row


def loo_variance(problem: LeaveOneOut, *, max_iter: int = 200) -> FitPath:
    """Maximise the leave-one-out log-likelihood per row over covariances ``v I``.

    The plain step is that of Local Component Analysis with a spherical covariance (Eqs. 3 and 4 with the trace, sec. 6.2),
    ``v <- tr S(v) / (n d)``. If there are many rows, the search begins with a few: the likelihood of those rows under all others
    has its maximum close by, so that about three passes of all rows are enough.

    Parameters
    ----------
    problem : LeaveOneOut
        The problem of rows that all differ; see `merged_twins`.
    """
    n, d = problem.rows.shape
    unit = 1.0 / np.sqrt(d)  # of log v, in which the gradient is half of the step, as `accelerated_fixed_point` expects

    def climbed(start: np.ndarray, terms: np.ndarray | None, tol: float) -> FitPath:
        chosen = slice(None) if terms is None else terms
        weight, log_others = problem.weight[chosen], problem.log_others[chosen]

        def step(at: np.ndarray) -> tuple[float, np.ndarray]:
            log_v, mass = unit * at[0], weight.sum()
            sums, squares = problem.pairs.at(np.full(d, np.exp(-0.5 * log_v))).squares(weight, terms)
            objective = weight @ (sums - log_others) / mass - 0.5 * d * (LOG_2PI + log_v)
            return float(objective), np.array([np.log(squares / (mass * d))]) / unit

        limits = {"max_iter": max_iter, "tol": tol, "longest": 3.0 / unit}
        return accelerated_fixed_point(step, lambda at, move: (at + move, move), start, Recorder(), secants, **limits)

    secants: list[tuple[np.ndarray, np.ndarray]] = []  # what the scouts learn of the curvature
    start = np.array([np.log(np.trace(scatter_of_rows(problem.rows, problem.weight)) / d)]) / unit
    with one_blas_thread_beside_pairs(n, d):  # this includes the algebra between the passes
        for count, tol in _SCOUTS if n >= 2 * _SCOUTS[-1][0] else ():
            start = climbed(start, np.sort(np.random.default_rng(0).choice(n, count, replace=False)), tol).finished()
        # If rows are far apart, the objective has few digits for the width.
        path = climbed(start, None, 1e-12 if problem.rows.dtype == np.float64 else 1e-9)
    return path._replace(parameters=float(np.exp(unit * path.parameters[0])))
