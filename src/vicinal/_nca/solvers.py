"""Maximisation of an objective of a matrix A from a start, in units that make the units of X irrelevant.

`climb` uses exact gradients over all pairs. `climb_by_batches` uses stochastic gradients (sec. 2 of the paper): it samples the rows i and
keeps all neighbours j.

    "the sums [...] over the data points and over the neighbours of each point can be truncated (one because we can do
    stochastic gradient rather than exact gradient and the other because p_ij drops off quickly)"

The engine truncates the sums over j: it skips pairs that cannot matter, with a certificate of what they would have added.

A *round* is a number of steps, at most one visit of every row.  After each round the objective is evaluated exactly on
a fixed sample of rows against all rows; the result is the best matrix by that measure.  After two successive rounds that
gain no more than tol, the solver returns to the best matrix and halves the step; when the step is a sixteenth of the
first one, the fit has converged.
"""

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from vicinal._engine import fit_engine
from vicinal._fit_loops import FitPath, Reason, Recorder, ascend, climb_by_rounds
from vicinal._nca.objectives import size_penalty, with_penalty
from vicinal._nca.starts import Start, best_scale

if TYPE_CHECKING:
    from vicinal._nca.nca import NCA
    from vicinal._nca.objectives import Evaluate
    from vicinal._nca.options import StochasticGradient
    from vicinal._nca.pair_nca import PairNCA
    from vicinal._nca.rows import DrawnRows, Rows


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
    units = start.units

    def objective_and_gradient(B: np.ndarray) -> tuple[float, np.ndarray]:
        evaluation = evaluate(B * units)
        return evaluation.value, evaluation.gradient * units

    path = ascend(
        objective_and_gradient,
        start.components / units,
        Recorder.of(estimator, lambda B: as_matrix(B * units), iterations),
        max_iter=estimator.max_iter,
        max_passes=_PASSES_PER_ITERATION * estimator.max_iter,
        tol=estimator.tol,
        patience=2,
        method=METHODS[solver],
    )
    return path._replace(parameters=path.parameters * units)


def climb_off_plateau(
    evaluate: "Evaluate", start: "Start", estimator: "NCA", rows: "Rows", objective: str, *, solver: str
) -> FitPath:
    """Maximise by exact gradients over all pairs, and once more at another scale if the first climb ends on a plateau."""
    iterations = count(1)
    path = climb(evaluate, start, estimator, solver=solver, iterations=iterations)
    try:
        if not _is_saturated(path, rows, objective, estimator.tol):
            return path
        # Departure 4 (NCA): A climb that ends on a plateau is resumed once. A maximum where one neighbour takes all
        # (or all count alike) has the wrong scale, not wrong directions: these stay, at a scale with a slope.
        A = best_scale(rows.sample.likelihood, path.parameters, rows.sample.X)[1]
        scaled = Start(A, float(np.linalg.norm(A) / np.sqrt(len(A))))
        again = climb(evaluate, scaled, estimator, solver=solver, iterations=iterations)
    except KeyboardInterrupt:  # before the first pass of the second climb
        return path.ended_by(Reason.INTERRUPTED)
    n_passes, objectives = path.n_passes + again.n_passes, np.concatenate([path.objectives, again.objectives])
    if again.objectives[-1] > path.objectives[-1]:
        return again._replace(objectives=objectives, n_passes=n_passes)
    path = path._replace(objectives=np.append(objectives, path.objectives[-1]), n_passes=n_passes)
    return path.ended_by(again.reason)


def _is_saturated(path: FitPath, rows: "Rows", objective: str, tol: float) -> bool:
    """Return whether a climb ended on a plateau below the best conceivable value."""
    if not path.converged or not rows.spread.any() or rows.targets.all_equal():
        return False
    best = 1.0 - rows.targets.alone().mean() if objective == "accuracy" else 0.0
    if path.objectives[-1] >= best - tol or not path.parameters.any():
        return False
    neighbors = np.median(rows.sample.perplexities(path.parameters))
    return bool(neighbors <= 1.01 or neighbors >= 0.99 * (len(rows.sample.X) - 1))


def as_matrix(A: np.ndarray) -> np.ndarray:
    """Return the square matrix of a diagonal that is given as a vector; return a matrix unchanged."""
    return np.diag(A) if A.ndim == 1 else A


_STEPS_IN_ROUND = 64
_EVALUATION_ROWS = 2048
# Heuristics, the best of a few settings on digits, letter and satimage: within 0.01 of L-BFGS, or above it.
_FIRST_STEP = 0.1  # relative to the size of the start
_HALVINGS = 4
_PATIENCE = 2
_MOMENTUM, _MEMORY = 0.5, 0.9


def climb_by_batches(
    rows: "Rows",
    start: "Start",
    estimator: "NCA",
    options: "StochasticGradient",
    draws: "DrawnRows | None",
    *,
    objective: str,
    penalty: np.ndarray | float,
) -> FitPath:
    """Maximise from a `Start` by batches of rows; return a `FitPath` with ``evaluation_rows_``.

    Every round works on `rows`, or, with `draws`, on other rows from the second round on; all rounds are evaluated on `rows`.

    The step is Adam's with one second moment for the whole matrix, ``step * m / sqrt(v)``: it has no unit, and it
    treats all directions equally (a second moment for each entry would amplify the noise of columns that hardly vary,
    such as the pixels at the edge of a digit). `options` is a `StochasticGradient`; `estimator` gives max_iter, tol,
    verbose, callback and the generator of random numbers.
    """
    n = len(rows.X)
    batch = _batch_size(options, *rows.X.shape)
    random = np.random.RandomState(estimator.random_state_.randint(2**31 - 1))
    evaluated = np.sort(random.permutation(n)[:_EVALUATION_ROWS])
    drawn = rows
    record = Recorder.of(estimator, lambda B: as_matrix(B * start.units))

    def evaluate(A: np.ndarray) -> float:
        return rows.value(A, objective, evaluated) - size_penalty(A, penalty)

    B = start.components / start.units
    first_step = _FIRST_STEP * float(np.linalg.norm(B))
    record.begin(B, evaluate(B * start.units))
    momentum, size, age, last_scale = np.zeros_like(B), 0.0, 0, 1.0
    batches = _batches(n, batch, random)

    def play(B: np.ndarray, scale: float) -> tuple[np.ndarray, float]:
        nonlocal drawn, batches, momentum, size, age, last_scale
        if draws is not None and record.objectives:
            drawn = draws.next_round(fit_engine(estimator))
            batches = _batches(len(drawn.X), min(batch, len(drawn.X)), random)
        if scale < last_scale:  # back at the best matrix
            momentum, last_scale = np.zeros_like(B), scale
        for chosen in [next(batches) for _ in range(min(_STEPS_IN_ROUND, -(-n // batch)))]:
            A = B * start.units
            gradient = with_penalty(drawn.objective(A, objective, chosen), A, penalty).gradient * start.units
            age += 1
            momentum = _MOMENTUM * momentum + (1 - _MOMENTUM) * gradient
            size = _MEMORY * size + (1 - _MEMORY) * float((gradient**2).sum())
            if size > 0:
                unbiased = momentum / (1 - _MOMENTUM**age)
                # Departure 6 (NCA): Stochastic gradients use Adam's step.
                B = B + scale * first_step * unbiased / np.sqrt(size / (1 - _MEMORY**age))
        return B, evaluate(B * start.units)

    limits: dict[str, Any] = {"max_iter": estimator.max_iter, "tol": estimator.tol}
    path = climb_by_rounds(play, B, record, patience=_PATIENCE, halvings=_HALVINGS, **limits)
    return path._replace(parameters=path.parameters * start.units, more={"evaluation_rows_": rows.positions[evaluated]})


def default_batch(n_features: int) -> int:
    """Return a batch size for which pairwise computations outweigh the two products with X of each step."""
    return int(np.clip(n_features, 256, 2048))


def _batch_size(options: "StochasticGradient", n_rows: int, n_features: int) -> int:
    return min(options.batch_size or default_batch(n_features), n_rows)


def rows_in_round(options: "StochasticGradient", n_rows: int, n_features: int) -> int:
    """Return the rows i that a round visits."""
    return min(_STEPS_IN_ROUND * _batch_size(options, n_rows, n_features), n_rows)


def _batches(n: int, size: int, random: np.random.RandomState) -> Iterator[np.ndarray]:
    """Yield rows in random order, without repetition inside a pass over them; a last short batch is left out."""
    while True:
        order = random.permutation(n)
        for start in range(0, n - size + 1, size):
            yield np.sort(order[start : start + size])
