"""The isotropic bandwidth of maximum leave-one-out likelihood."""

import warnings

import numpy as np

from vicinal._density.mixture import LOG_2PI, log_weight_of_others
from vicinal._engine._accuracy import robust_centre
from vicinal._fit_loops import FitPath
from vicinal._lca.checks import count_twins


def loo_variance(X, weight, pairs, *, max_iter=200, tol=1e-10):
    """Maximise the leave-one-out log-likelihood per row over covariances ``v I``.

    The step is that of Local Component Analysis with a spherical covariance (Eqs. 3-4 with the trace, sec. 6.2),
    ``v <- tr S(v) / (n d)``, on the logarithm of v, extrapolated by the secant of its displacement: the fixed point is
    the same, and about six passes do what the plain update does in dozens.  A pass that does not raise the objective
    is undone and the plain step, which cannot lower it, is taken instead.

    Parameters
    ----------
    X : array of shape (n, d)
    weight : array of shape (n,) with mean 1, or None
    pairs : PairReductions
    """
    n, d = X.shape
    check_twins(X, weight)
    X = X - robust_centre(X).astype(X.dtype)
    row_weights = np.ones(n) if weight is None else weight
    log_weights, log_others = None, np.full(n, np.log(n - 1.0))
    if weight is not None:
        with np.errstate(divide="ignore"):
            log_weights = np.log(weight)
        log_others = log_weight_of_others(log_weights - np.log(n)) + np.log(n)
    counted = row_weights > 0  # rows of weight zero are as if absent
    mean = row_weights @ X / n
    total = float(row_weights[counted] @ np.square(X[counted] - mean, dtype=np.float64).sum(axis=1)) / (n * d)
    left_out = np.arange(n)

    def evaluate(log_v):
        """Objective per row at v = exp(log_v), and the log of the EM update of v."""
        Z = X * X.dtype.type(np.exp(-0.5 * log_v))
        sums, scatter = pairs.softmax_scatter(Z, Z, row_weights=row_weights, log_weights=log_weights, left_out=left_out)
        terms = sums - log_others - 0.5 * d * (LOG_2PI + log_v)
        return float(row_weights[counted] @ terms[counted]) / n, log_v + np.log(np.trace(scatter) / (n * d))

    objectives = []
    at = np.log(total)
    objective, update = evaluate(at)
    objectives.append(objective)
    slope = 0.0  # of the displacement update - at, by the secant
    reason, converged = f"{max_iter} passes were used", False
    # Rows far apart leave the objective few digits for the width: where it no longer tells, the update still does.
    settled = 1e-6 if X.dtype == np.float64 else 1e-4
    while len(objectives) < max_iter:
        displacement = update - at
        if abs(displacement) * d * max(1.0, abs(displacement)) <= 1e-7:
            # The gradient in log v is d/2 times the displacement: what is left to gain is far below tol.
            reason, converged = "the update no longer moves", True
            break
        stride = displacement / max(1.0 - slope, 1e-3)  # the root of the secant
        trial = at + float(np.clip(stride, -3.0, 3.0))
        new_objective, new_update = evaluate(trial)
        objectives.append(new_objective)
        if new_objective < objective:
            trial = update
            new_objective, new_update = evaluate(trial)
            objectives.append(new_objective)
        gained = new_objective - objective
        slope = 1.0 + ((new_update - trial) - displacement) / (trial - at)
        at, objective, update = trial, new_objective, new_update
        if gained <= tol and abs(update - at) * d <= settled:
            reason, converged = f"a pass gained no more than tol={tol:g}", True
            break
    return FitPath(float(np.exp(at)), np.array(objectives), len(objectives), converged, reason)


def check_twins(X, weight=None):
    """Refuse rows that all have an exact twin, and warn of some: leave-one-out sees a twin at distance zero."""
    counted = X if weight is None else X[weight > 0]
    if np.all(counted == counted[0]):
        raise ValueError(
            f"all {len(counted)} rows are equal: leave-one-out has no scale to find. Pass bandwidth as a number."
        )
    twins = count_twins(counted)
    if twins == len(counted):
        raise ValueError(
            f"every one of the {twins} rows has an exact twin: the leave-one-out likelihood is unbounded, because each row is "
            "explained by its twin with a bandwidth of zero. Merge twins into weights: "
            "X, w = np.unique(X, axis=0, return_counts=True), then fit(X, sample_weight=w)."
        )
    if twins:
        warnings.warn(
            f"{twins} of {len(counted)} rows have an exact twin. Leave-one-out sees a twin at distance zero and chooses a "
            "bandwidth that is too small. Merge twins into weights: X, w = np.unique(X, axis=0, return_counts=True), "
            "then fit(X, sample_weight=w).",
            UserWarning,
            stacklevel=5,
        )
