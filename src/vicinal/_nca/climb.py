"""Maximisation of an objective of a matrix A from a start, in units that make the units of X irrelevant."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from vicinal._fit_loops import FitPath, Recorder, ascend

if TYPE_CHECKING:
    from vicinal._nca.init import Start
    from vicinal._nca.nca import NCA
    from vicinal._nca.objectives import Evaluate
    from vicinal._nca.pair_nca import PairNCA


# Departure 2 (NCA): L-BFGS is the default solver. The paper's conjugate gradients are "cg".
# Departure 9 (NCA): Delta-bar-delta is not offered. Line searches need no rule for steps.
METHODS = {"lbfgs": "L-BFGS-B", "cg": "CG"}

# A line search rarely needs more than two passes per iteration; this limit only ends one that makes no progress.
_PASSES_PER_ITERATION = 20


def climb(
    evaluate: "Evaluate",
    start: "Start",
    estimator: "NCA | PairNCA",
    *,
    solver: str,
    iterations: Iterator[int] | None = None,
) -> FitPath:
    """Maximise ``evaluate(A)`` (an `Evaluation`) from a `Start` by L-BFGS or conjugate gradients; return a `FitPath`.

    The optimiser works on ``B = A / units``, which has the size of a rotation at the start. `estimator` gives max_iter,
    tol, verbose and callback; `iterations` counts the calls of the callback when one fit runs the optimiser several times.
    """

    def objective_and_gradient(B: np.ndarray) -> tuple[float, np.ndarray]:
        found = evaluate(B * start.units)
        return found.value, found.gradient * start.units

    path = ascend(
        objective_and_gradient,
        start.components / start.units,
        Recorder.of(estimator, lambda B: as_matrix(B * start.units), iterations),
        max_iter=estimator.max_iter,
        max_passes=_PASSES_PER_ITERATION * estimator.max_iter,
        tol=estimator.tol,
        patience=2,
        method=METHODS[solver],
    )
    return path._replace(parameters=path.parameters * start.units)


def climb_briefly(evaluate: "Evaluate", start: "Start", n_iter: int, solver: str) -> np.ndarray:
    """Return the matrix after a few iterations from a start."""

    def objective_and_gradient(B: np.ndarray) -> tuple[float, np.ndarray]:
        found = evaluate(B * start.units)
        return found.value, found.gradient * start.units

    path = ascend(
        objective_and_gradient,
        start.components / start.units,
        Recorder(),
        max_iter=n_iter,
        max_passes=4 * n_iter,
        tol=0.0,
        method=METHODS[solver],
    )
    return path.parameters * start.units


def as_matrix(A: np.ndarray) -> np.ndarray:
    """Return the square matrix of a diagonal that is given as a vector; return a matrix unchanged."""
    return np.diag(A) if A.ndim == 1 else A


def relevance(A: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Return each feature's share of the mean squared distance under a diagonal A."""
    share = (A * spread) ** 2
    total = share.sum()
    return share / total if total > 0 else np.full(len(A), 1.0 / len(A))
