"""NCA by stochastic gradients (sec. 2 of the paper): sample the rows i, keep all neighbours j, or the nearest ones.

    "the sums [...] over the data points and over the neighbours of each point can be truncated (one because we can do
    stochastic gradient rather than exact gradient and the other because p_ij drops off quickly)"

A *round* is a number of steps, at most one visit of every row.  After each round the objective is evaluated exactly on
a fixed sample of rows against all rows; the result is the best matrix by that measure.  After two successive rounds that
gain no more than tol, the solver returns to the best matrix and halves the step; when the step is a sixteenth of the
first one, the fit has converged.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from vicinal._engine import one_blas_thread_beside_pairs
from vicinal._fit_loops import FitPath, Reason, Recorder
from vicinal._nca.climb import as_matrix
from vicinal._nca.objectives import (
    ROOT2,
    Evaluation,
    neighbor_objective,
    neighbor_value,
    placed_at,
    size_penalty,
    with_penalty,
)

if TYPE_CHECKING:
    from vicinal._nca.init import Start
    from vicinal._nca.nca import NCA
    from vicinal._nca.options import StochasticGradient
    from vicinal._nca.rows import Rows


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
    *,
    objective: str,
    penalty: np.ndarray | float,
    draw: "Callable[[], Rows] | None" = None,
) -> FitPath:
    """Maximise from a `Start` by batches of rows; return a `FitPath` with ``evaluation_rows_`` and ``dropped_mass_``.

    If `draw` is given, every round after the first works on the rows that ``draw()`` returns; all rounds are evaluated on
    `rows`.

    The step is Adam's with one second moment for the whole matrix, ``step * m / sqrt(v)``: it has no unit, and it
    treats all directions equally (a second moment for each entry would amplify the noise of columns that hardly vary,
    such as the pixels at the edge of a digit). `options` is a `StochasticGradient`; `estimator` gives max_iter, tol,
    verbose, callback and the generator of random numbers.
    """
    n = len(rows.X)
    batch = _batch_size(options, *rows.X.shape)
    random = np.random.RandomState(estimator.random_state_.randint(2**31 - 1))
    seen = np.sort(random.permutation(n)[:_EVALUATION_ROWS])
    whole = _AllNeighbors(rows, objective)
    some = whole if options.n_neighbors is None else _KeptNeighbors(rows, objective, options.n_neighbors)
    record = Recorder.of(estimator, lambda B: as_matrix(B * start.units))

    def evaluate(A: np.ndarray) -> float:
        return whole.value(A, seen) - size_penalty(A, penalty)

    B = start.components / start.units
    step = first_step = _FIRST_STEP * float(np.linalg.norm(B))
    record.begin(B, evaluate(B * start.units))
    momentum, size, age, idle = np.zeros_like(B), 0.0, 0, 0
    batches = _batches(n, batch, random)
    with record:
        for round_ in range(estimator.max_iter):
            if draw is not None and round_ > 0:
                others = draw()
                some = some.of(others)
                batches = _batches(len(others.X), min(batch, len(others.X)), random)
            steps = [next(batches) for _ in range(min(_STEPS_IN_ROUND, -(-n // batch)))]
            some.find(B * start.units, np.unique(np.concatenate(steps)))
            for chosen in steps:
                A = B * start.units
                gradient = with_penalty(some.evaluate(A, chosen), A, penalty).gradient * start.units
                age += 1
                momentum = _MOMENTUM * momentum + (1 - _MOMENTUM) * gradient
                size = _MEMORY * size + (1 - _MEMORY) * float((gradient**2).sum())
                if size > 0:
                    unbiased = momentum / (1 - _MOMENTUM**age)
                    # Departure 6 (NCA): Stochastic gradients use Adam's step.
                    B = B + step * unbiased / np.sqrt(size / (1 - _MEMORY**age))
            value = evaluate(B * start.units)
            gained = value - record.objective
            record.add(B, value)
            record.iterated(B)
            idle = 0 if gained > estimator.tol else idle + 1
            if idle == _PATIENCE:
                idle = 0
                B, momentum, step = record.kept, np.zeros_like(B), 0.5 * step
                if step < first_step / 2**_HALVINGS:
                    raise record.end(Reason.CONVERGED, f"rounds gained no more than tol={estimator.tol:g}")
        raise record.end(Reason.LIMIT, f"max_iter={estimator.max_iter} rounds were used")
    A = record.kept * start.units
    dropped = some.of(rows).dropped_mass(A, seen)
    more = {"evaluation_rows_": rows.positions[seen], "dropped_mass_": dropped}
    return record.path()._replace(parameters=A, more=more)


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


class _AllNeighbors:
    """Sampled rows i against all rows j."""

    def __init__(self, rows: "Rows", objective: str) -> None:
        self._problem, self._objective = rows.problem, objective
        self._options: dict[str, Any] = {"objective": objective, "weight": rows.weight}

    def of(self, rows: "Rows") -> "_AllNeighbors":
        """Return the same object for other rows."""
        return _AllNeighbors(rows, self._objective)

    def find(self, A: np.ndarray, needed: np.ndarray) -> None:
        """Do nothing, because all rows are neighbours."""

    def dropped_mass(self, A: np.ndarray, seen: np.ndarray) -> float:
        """Return 0, because no neighbour is dropped."""
        return 0.0

    def evaluate(self, A: np.ndarray, chosen: np.ndarray) -> Evaluation:
        return neighbor_objective(A, self._problem, rows=chosen, **self._options)

    def value(self, A: np.ndarray, chosen: np.ndarray) -> float:
        return neighbor_value(A, self._problem, rows=chosen, **self._options)


class _KeptNeighbors:
    """Sampled rows i against their nearest rows j, and against the nearest row that agrees with them.

    The neighbours are those of the metric at the beginning of a round. A row that has no class mate among them also gets
    its nearest class mate, because otherwise it could not be pulled towards its class.
    """

    def __init__(self, rows: "Rows", objective: str, n_neighbors: int) -> None:
        self._rows, self._objective, self._n_neighbors = rows, objective, n_neighbors
        self._count = min(n_neighbors, len(rows.X) - 1)

    def of(self, rows: "Rows") -> "_KeptNeighbors":
        """Return the same object for other rows."""
        return _KeptNeighbors(rows, self._objective, self._n_neighbors)

    def find(self, A: np.ndarray, needed: np.ndarray) -> None:
        """Find the neighbours of the rows that the next round will visit."""
        targets = self._rows.targets
        found = placed_at(self._rows.problem, A).nearest(self._count, needed).indices
        if targets.kind == "class":
            found = np.column_stack([found, self._missing_mates(A, needed, found, targets.values)])
        self._needed, self._found = needed, found

    def _missing_mates(self, A: np.ndarray, needed: np.ndarray, found: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return the nearest class mate of rows that have none among those found; -1 for the others."""
        lacking = np.flatnonzero((codes[found] != codes[needed, None]).all(axis=1))
        mates = np.full(len(needed), -1)
        for code in np.unique(codes[needed[lacking]]):
            members = np.flatnonzero(codes == code)
            if len(members) < 2:
                continue
            of_class = lacking[codes[needed[lacking]] == code]
            places = np.searchsorted(members, needed[of_class])
            nearest = placed_at(self._rows.problem.some(members), A).nearest(1, places).indices[:, 0]
            mates[of_class] = members[nearest]
        return mates

    def _placed(self, A: np.ndarray, chosen: np.ndarray) -> Any:
        neighbors = self._found[np.searchsorted(self._needed, chosen)]
        return placed_at(self._rows.problem.listed(chosen, neighbors), A)

    def evaluate(self, A: np.ndarray, chosen: np.ndarray) -> Evaluation:
        weight = np.ones(len(chosen)) if self._rows.weight is None else self._rows.weight[chosen]
        with one_blas_thread_beside_pairs(self._found[: len(chosen)].size, self._rows.X.shape[1]):
            found = self._placed(A, chosen).gradient(weight, objective=self._objective)
        # A row that agrees with none of its neighbours has no gradient, and must not make the likelihood -inf.
        terms = np.exp(found.log_agreement) if self._objective == "accuracy" else found.log_agreement
        value = weight @ np.where(np.isfinite(terms), terms, 0.0)
        return Evaluation(float(value / weight.sum()), ROOT2 * found.pull / weight.sum())

    def dropped_mass(self, A: np.ndarray, seen: np.ndarray) -> float:
        """Return the mean probability of the neighbours that are not kept."""
        self.find(A, seen)
        kept = self._placed(A, seen).log_sums()
        whole = placed_at(self._rows.problem, A).log_sums(seen)
        return float(np.mean(np.clip(-np.expm1(kept - whole), 0.0, 1.0)))
