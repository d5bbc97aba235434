"""Climbing an objective of a matrix A from a start, in units that make the units of X irrelevant."""

from collections.abc import Mapping
from itertools import count
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from vicinal._fit_loops import INTERRUPTED, FitPath, ascend, progress

CALLBACK_STOPPED = "the callback stopped it"
METHODS = {"lbfgs": "L-BFGS-B", "cg": "CG"}

# A line search rarely needs more than two passes an iteration; this only stops a hopeless one.
_PASSES_PER_ITERATION = 20


def climb(evaluate, start, estimator, *, solver, iterations=None):
    """Climb ``evaluate(A)`` (an `Evaluation`) from a `Start` by L-BFGS or conjugate gradients; return a `FitPath`.

    The optimiser sees ``B = A / units``, which has the size of a rotation at the start. `estimator` gives max_iter,
    tol, verbose and callback; `iterations` counts for the callback, where one fit climbs more than once.
    """

    def objective_and_gradient(B):
        found = evaluate(B * start.units)
        return found.value, found.gradient * start.units

    path = ascend(
        objective_and_gradient,
        start.components / start.units,
        max_iter=estimator.max_iter,
        max_passes=_PASSES_PER_ITERATION * estimator.max_iter,
        tol=estimator.tol,
        patience=2,
        method=METHODS[solver],
        report=progress(type(estimator).__name__, estimator.verbose),
        callback=matrix_callback(estimator.callback, start.units, iterations),
    )
    return path._replace(parameters=path.parameters * start.units)


def matrix_callback(callback, units=1.0, iterations=None):
    """scikit-learn's convention: the flattened matrix and the number of iterations so far."""
    if callback is None:
        return None
    iterations = count(1) if iterations is None else iterations

    def call(B, passes):
        A = B * units
        callback((np.diag(A) if A.ndim == 1 else A).ravel(), next(iterations))

    return call


class Climb(NamedTuple):
    """The end of a climb: its path, with A itself as parameters, and further attributes to store."""

    path: FitPath
    more: Mapping = MappingProxyType({})


def best_climb(climbs):
    """The highest of several climbs; an interruption, or a callback that stops, ends them all and is not forgotten."""
    done: list[Climb] = []
    try:
        for found in climbs:
            done.append(found)
            if found.path.reason in (INTERRUPTED, CALLBACK_STOPPED):
                break
        reason = done[-1].path.reason
    except KeyboardInterrupt:  # before the first pass of a later start
        if not done:
            raise
        reason = INTERRUPTED
    best = max(done, key=lambda found: found.path.objectives[-1])
    return best._replace(path=ended_early(best.path, reason))


def ended_early(path, reason):
    """The path with the reason that ended the whole fit, if that was the user's wish."""
    return path._replace(converged=False, reason=reason) if reason in (INTERRUPTED, CALLBACK_STOPPED) else path


def relevance(A, spread):
    """Each feature's share of the mean squared distance under a diagonal A."""
    share = (A * spread) ** 2
    total = share.sum()
    return share / total if total > 0 else np.full(len(A), 1.0 / len(A))
