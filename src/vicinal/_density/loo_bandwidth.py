"""The isotropic bandwidth of maximum leave-one-out likelihood."""

import numpy as np

from vicinal._fit_loops import Reason, Recorder
from vicinal._journal import journaled
from vicinal._leave_one_out import scatter_of_rows
from vicinal._mixtures import LOG_2PI

# The approximate number of passes of the search, from which the engine chooses a backend.
LOO_PASSES = 10


def loo_variance(problem, *, max_iter=200, tol=1e-10):
    """Maximise the leave-one-out log-likelihood per row over covariances ``v I``.

    The step is that of Local Component Analysis with a spherical covariance (Eqs. 3-4 with the trace, sec. 6.2),
    ``v <- tr S(v) / (n d)``, on the logarithm of v, extrapolated by the secant of its displacement: the fixed point is
    the same, and about six passes suffice instead of dozens with the plain update.  A pass that does not raise the objective
    is undone, and the plain step, which cannot lower it, is made instead.

    Parameters
    ----------
    problem : LeaveOneOut
        Of rows that all differ; see `merged_twins`.
    """
    d, weight = problem.rows.shape[1], problem.weight
    mass = weight.sum()
    total = np.trace(scatter_of_rows(problem.rows, weight)) / d

    @journaled()
    def evaluate(log_v):
        """Return the objective per row at v = exp(log_v), and the logarithm of the EM update of v."""
        sums, scatter = problem.pairs.at(np.full(d, np.exp(-0.5 * log_v))).scatter(weight)
        terms = sums - problem.log_others - 0.5 * d * (LOG_2PI + log_v)
        return float(weight @ terms) / mass, log_v + np.log(np.trace(scatter) / (mass * d))

    record, at = Recorder(), np.log(total)
    slope = 0.0  # of the displacement update - at, by the secant
    # If rows are far apart, the objective has few digits for the width; where it is too coarse, the update still works.
    negligible_step = 1e-6 if problem.rows.dtype == np.float64 else 1e-4
    with record:
        objective, update = evaluate(at)
        record.add(at, objective)
        while len(record.objectives) < max_iter:
            displacement = update - at
            if abs(displacement) * d * max(1.0, abs(displacement)) <= 1e-7:
                # The gradient in log v is d/2 times the displacement: what is left to gain is far below tol.
                raise record.end(Reason.CONVERGED, "the update no longer moves")
            stride = displacement / max(1.0 - slope, 1e-3)  # the root of the secant
            trial = at + float(np.clip(stride, -3.0, 3.0))
            new_objective, new_update = evaluate(trial)
            if not record.add(trial, new_objective, keep=not new_objective < objective):
                trial = update
                new_objective, new_update = evaluate(trial)
                record.add(trial, new_objective, keep=True)
            gained = new_objective - objective
            slope = 1.0 + ((new_update - trial) - displacement) / (trial - at)
            at, objective, update = trial, new_objective, new_update
            if gained <= tol and abs(update - at) * d <= negligible_step:
                raise record.end(Reason.CONVERGED, f"a pass gained no more than tol={tol:g}")
        raise record.end(Reason.LIMIT, f"{max_iter} passes were used")
    path = record.path()
    return path._replace(parameters=float(np.exp(path.parameters)))
