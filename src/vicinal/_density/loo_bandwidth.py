"""The isotropic bandwidth of maximum leave-one-out likelihood."""

import numpy as np

from vicinal._engine import one_blas_thread_beside_pairs
from vicinal._fit_loops import FitPath, Reason, Recorder
from vicinal._leave_one_out import LeaveOneOut, scatter_of_rows
from vicinal._mixtures import LOG_2PI

# The approximate number of passes of the search, from which the engine chooses a backend.
LOO_PASSES = 10
# A step that would gain less per row is not made; the width is then within about 1e-6 of the best one, relatively.
_LEAST_GAIN = 1e-12
# From twice as many rows on, the scores of this many rows under all others locate the best width approximately: few rows on the
# way, and more of them near its end.
_SCOUTS = ((64, 0.1), (256, 1e-3))  # and the tolerance for the logarithm of the variance, times the number of columns


def loo_variance(problem: LeaveOneOut, *, max_iter: int = 200, tol: float = 1e-10) -> FitPath:
    """Maximise the leave-one-out log-likelihood per row over covariances ``v I``.

    The step is that of Local Component Analysis with a spherical covariance (Eqs. 3-4 with the trace, sec. 6.2),
    ``v <- tr S(v) / (n d)``, on the logarithm of v, extrapolated by the secant of its displacement: the fixed point is
    the same, and about six passes suffice instead of dozens with the plain update.  A pass that does not increase the objective
    is undone, and the plain step, which cannot decrease it, is made instead.  If there are many rows, the search begins with a few:
    the likelihood of those rows under all others has its maximum close by, so that about three passes of all rows are enough.

    Parameters
    ----------
    problem : LeaveOneOut
        The problem of rows that all differ; see `merged_twins`.
    """
    n, d = problem.rows.shape
    total = np.trace(scatter_of_rows(problem.rows, problem.weight)) / d
    # If rows are far apart, the objective has few digits for the width; if it is too coarse, the update still works.
    negligible_step = 1e-6 if problem.rows.dtype == np.float64 else 1e-4
    at, slope = float(np.log(total)), 0.0
    with one_blas_thread_beside_pairs(n, d):  # this includes the algebra between the passes
        for count, least in _SCOUTS if n >= 2 * _SCOUTS[-1][0] else ():
            some = np.sort(np.random.default_rng(0).choice(n, count, replace=False))
            scouts, slope = _climb(_Width(problem, some), at, slope, Recorder(), max_iter, least, least, np.inf)
            if scouts.reason.by_user:  # no result to keep before the first pass over all rows
                raise KeyboardInterrupt
            at = scouts.parameters
        path, _ = _climb(_Width(problem), at, slope, Recorder(), max_iter, 1e-7, negligible_step, tol)
    return path._replace(parameters=float(np.exp(path.parameters)))


class _Width:
    """The leave-one-out likelihood of all rows, or of some, as a function of the logarithm of the kernel's variance."""

    def __init__(self, problem: LeaveOneOut, some: np.ndarray | None = None) -> None:
        self._problem, self._some = problem, some
        self.n_features = problem.rows.shape[1]
        chosen = slice(None) if some is None else some
        self._weight, self._log_others = problem.weight[chosen], problem.log_others[chosen]

    def evaluate(self, log_v: float) -> tuple[float, float]:
        """Return the objective per row at v = exp(log_v), and the logarithm of EM's update of v."""
        d, weight = self.n_features, self._weight
        mass = weight.sum()
        placed = self._problem.pairs.at(np.full(d, np.exp(-0.5 * log_v)))
        sums, squares = placed.squares(weight, self._some)
        terms = sums - self._log_others - 0.5 * d * (LOG_2PI + log_v)
        return float(weight @ terms) / mass, log_v + float(np.log(squares / (mass * d)))


def _climb(
    width: _Width,
    at: float,
    slope: float,
    record: Recorder,
    max_iter: int,
    least_step: float,
    negligible_step: float,
    tol: float,
) -> tuple[FitPath, float]:
    """Return the path from a logarithm of the variance, and the slope of the displacement at its end.

    Parameters
    ----------
    slope : float
        The slope of the displacement ``update - at``, if it is known; 0 takes the plain step first.
    least_step : float
        The displacement, times the number of columns, that ends the path.
    negligible_step, tol : float
        A pass that gains no more than `tol` also ends the path if the displacement is no larger than this.
    """
    d = width.n_features
    with record:
        objective, update = width.evaluate(at)
        record.add(at, objective)
        while len(record.objectives) < max_iter:
            displacement = update - at
            stride = displacement / max(1.0 - slope, 1e-3)  # the root of the secant
            # The gradient in log v is d/2 times the displacement: the remaining gain is far below tol.
            if abs(displacement) * d * max(1.0, abs(displacement)) <= least_step:
                raise record.end(Reason.CONVERGED, "the update no longer changes the width")
            if slope != 0.0 and 0.25 * d * displacement * stride <= _LEAST_GAIN:
                raise record.end(Reason.CONVERGED, f"the next step would gain no more than {_LEAST_GAIN:g}")
            trial = at + float(np.clip(stride, -3.0, 3.0))
            new_objective, new_update = width.evaluate(trial)
            if not record.add(trial, new_objective, keep=not new_objective < objective):
                trial = update
                new_objective, new_update = width.evaluate(trial)
                record.add(trial, new_objective, keep=True)
            gained = new_objective - objective
            slope = 1.0 + ((new_update - trial) - displacement) / (trial - at)
            at, objective, update = trial, new_objective, new_update
            if gained <= tol and abs(update - at) * d <= negligible_step:
                raise record.end(Reason.CONVERGED, f"a pass gained no more than tol={tol:g}")
        raise record.end(Reason.LIMIT, f"{max_iter} passes were used")
    return record.path(), slope
