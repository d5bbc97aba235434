"""The rows that a fit of NCA works on, a sample of them for evaluating a scale, and draws of rows that do not fit into memory.

With rows in a file, every round of minibatches works on a new draw (`DrawnRows`), and searches neighbours among its rows, which are as
many as fit into the working memory. The initial matrix, and the rows on which all rounds are evaluated, come from the first draw.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from vicinal._callers import callers_line
from vicinal._checks import check_random_state
from vicinal._engine import Engine, Work, prepare, resident_rows
from vicinal._nca.objectives import Evaluation, neighbor_objective, neighbor_value, placed_at
from vicinal._nca.options import Objective
from vicinal._nca.pair_matrix import PairMatrix
from vicinal._row_sources import RowSource
from vicinal._rows import check_source, check_spread, check_weights, log_weights
from vicinal._supervision import Targets, check_targets, read_targets
from vicinal._tensors import take_rows

# The number of rows that the searches below use: enough to find a scale within a few per cent, cheap compared with a pass.
QUERIES, _POINTS = 256, 2048
# Up to this number of rows, pairs are kept as matrices, of 8 MB each, if compiled kernels do not pay.
_MATRIX_ROWS = 1000


def sample_rows(n: int, n_queries: int = QUERIES, n_points: int = _POINTS) -> tuple[np.ndarray, np.ndarray]:
    """Return positions of the queries and of the points to search the scale on: evenly spaced, so a pure function
    of n.

    The queries are among the points; rows that are sorted by class give each class its share.
    """
    points = np.unique(np.linspace(0, n - 1, min(n, n_points)).round().astype(np.intp))
    queries = np.unique(np.linspace(0, len(points) - 1, min(n, n_queries)).round().astype(np.intp))
    return points, queries


def column_spread(X: np.ndarray) -> np.ndarray:
    """Return the standard deviation of each column; exactly 0 if it is rounding noise of a constant."""
    spread = X.std(axis=0, dtype=np.float64)
    noise = 16.0 * np.finfo(X.dtype).eps * np.abs(X).max(axis=0).astype(np.float64)
    return np.where(spread > noise, spread, 0.0)


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of positive weight, sorted by class (kernels are faster on runs of one class), and their pairs."""

    X: np.ndarray
    targets: Targets
    weight: np.ndarray | None
    positions: np.ndarray  # positions in the X that was passed
    spread: np.ndarray
    problem: Any = None  # a Problem, once the rows are passed to the engine

    def resident(self, engine: Engine | str | None, work: Work) -> Rows:
        """Return the rows as a problem of the engine for such `Work`, and X relative to its centre."""
        problem = prepare(
            engine,
            self.X,
            log_weights=log_weights(self.weight),
            leave_one_out=True,
            match=self.targets.match(),
            n_queries=work.n_queries,
            n_dims=work.n_dims,
            passes=work.passes,
        )
        return replace(self, X=problem.points.rows, problem=problem)

    @cached_property
    def sample(self) -> Rows:
        """A few thousand of these rows, for evaluating a scale."""
        points, _ = sample_rows(len(self.X))
        if len(points) == len(self.X):
            return self
        problem = self.problem.some(points)
        weight = None if self.weight is None else self.weight[points]
        return Rows(
            problem.points.rows, self.targets.take(points), weight, self.positions[points], self.spread, problem
        )

    @cached_property
    def _queries(self) -> np.ndarray:
        """A few of the rows that have a class mate: the likelihood of the others is -inf at every scale."""
        queries = sample_rows(len(self.X))[1]
        return queries[~self.targets.alone()[queries]]

    @cached_property
    def _matrix(self) -> PairMatrix | None:
        """All pairs as one matrix, if the engine would compute in NumPy and the rows are few."""
        if self.problem.backend != "reference" or len(self.X) > _MATRIX_ROWS:
            return None
        return PairMatrix(self.X, self.targets.agreement(), self.weight)

    def objective(self, A: np.ndarray, kind: str, queries: np.ndarray | None = None) -> Evaluation:
        """Return Eq. 3 or 6 per row, for these rows or some of them, and its gradient by A (Eq. 5 or 7)."""
        evaluation = self._matrix.objective(A, kind) if self._matrix is not None and queries is None else None
        if evaluation is None:
            evaluation = neighbor_objective(A, self.problem, objective=kind, weight=self.weight, rows=queries)
        return evaluation

    def value(self, A: np.ndarray, kind: str, queries: np.ndarray) -> float:
        """Return Eq. 3 or 6 per row for some of the rows."""
        value = self._matrix.value(A, kind, queries) if self._matrix is not None else None
        if value is None:
            value = neighbor_value(A, self.problem, objective=kind, weight=self.weight, rows=queries)
        return value

    def likelihood(self, A: np.ndarray) -> float:
        """Return Eq. 6 per row for a few of the rows."""
        return self.value(A, "likelihood", self._queries) if len(self._queries) else 0.0

    def perplexities(self, A: np.ndarray, queries: np.ndarray | None = None) -> np.ndarray:
        """Return the effective number of neighbours of each row, or of some of them."""
        if self._matrix is None:
            return placed_at(self.problem, A).perplexities(queries)
        return self._matrix.perplexities(A)[slice(None) if queries is None else queries]


def prepare_rows(
    X: np.ndarray, y: np.ndarray, weight: np.ndarray | None, match: str, match_scale: float | None
) -> Rows:
    positions = np.arange(len(X))
    if weight is not None:
        positions = np.flatnonzero(weight > 0)
        if len(positions) < 2:
            raise ValueError(
                f"at least 2 rows must have a positive sample_weight, got {len(positions)}. Pass positive weights for more rows."
            )
        weight = weight[positions]
        if (weight == weight[0]).all():  # equal weights are passed as None, which gives the same sums to the last bit
            weight = None
    targets = check_targets(y[positions], match, match_scale, weight)
    if targets.kind == "class":
        order = np.argsort(targets.values, kind="stable")
        positions, targets = positions[order], targets.take(order)
        weight = None if weight is None else weight[order]
    counted = take_rows(X, positions)
    if weight is not None:
        weight = weight * (len(weight) / weight.sum())
    return Rows(counted, targets, weight, positions, column_spread(counted))


def check_agreement(targets: Targets, objective: Objective) -> None:
    """Raise an error or warn, before any pairwise computation, about targets from which no metric can learn."""
    alone = targets.alone()
    n, count = len(alone), int(alone.sum())
    what = "no other row of their class" if objective.match == "class" else "no other row that agrees with them"
    remedy = {
        "class": "Merge or drop these classes",
        "gaussian": "Raise match_scale",
        "dot": "Smooth the rows of y or drop these",
    }[objective.match]
    if count == n:
        raise ValueError(f"all {n} rows have {what}, so there is nothing to learn. {remedy}.")
    # Departure 8 (NCA): A row without class mates raises an error under the likelihood.
    if count and objective.kind == "likelihood":
        raise ValueError(
            f"{count} of {n} rows have {what}, so objective='likelihood' is -inf for every metric. "
            f"{remedy}, or use objective='accuracy', in which such rows count 0."
        )
    if targets.all_equal():
        warnings.warn(
            f"all {n} targets are equal, so every metric predicts them, and components_ is the initial matrix.",
            UserWarning,
            stacklevel=callers_line(),
        )


# -- rows in a file ------------------------------------------------------------------------------------


class DrawnRows:
    """Rows with their targets and weights, drawn from a source.

    Parameters
    ----------
    estimator : NCA
    source : RowSource
    y, sample_weight : array-like of length n, or None
    objective : Objective

    Attributes
    ----------
    first : integer array
        The positions in the source of the rows of the first draw.
    work : Work
        The pairs of a round.
    """

    first: np.ndarray = np.empty(0, np.intp)
    work: Work

    def __init__(self, estimator: Any, source: RowSource, y: Any, sample_weight: Any, objective: Any) -> None:
        ranges = check_source(estimator, source, min_rows=2)
        check_spread(np.stack(ranges))
        self._source, self._objective, n = source, objective, source.shape[0]
        self._targets = read_targets(y, n, objective.match)
        self._weight = check_weights(sample_weight, np.broadcast_to(0.0, source.shape))
        self._counted = None if self._weight is None else np.flatnonzero(self._weight)
        self._most = min(resident_rows(estimator.engine, source.shape[1], source.dtype), n)
        estimator.random_state_ = check_random_state(estimator.random_state)
        self._rng = np.random.default_rng(estimator.random_state_.randint(2**31 - 1))

    @property
    def targets(self) -> np.ndarray:
        """The targets of all rows of positive weight."""
        return self._targets if self._counted is None else self._targets[self._counted]

    def draw(self) -> tuple[np.ndarray, Rows]:
        """Return some rows of the source, and those of positive weight with their targets.

        A row that is the only one of its class in a draw agrees with no other row there, and is left out.
        """
        n = self._source.shape[0] if self._counted is None else len(self._counted)
        chosen = np.sort(self._rng.choice(n, min(self._most, n), replace=False))
        positions = chosen if self._counted is None else self._counted[chosen]
        if self._objective.match == "class":
            codes = self._targets[positions]
            positions = positions[np.bincount(codes)[codes] > 1]
        if len(positions) < 2:
            raise ValueError(
                f"no two of {len(chosen):,} rows that were drawn at random from {n:,} rows have the same class. Merge small classes, or "
                "give the engine more memory, as in Engine(memory='4 GB'), to draw more rows at a time."
            )
        if not len(self.first):
            self.first = positions
        X = self._source.take(positions)
        weight = None if self._weight is None else self._weight[positions]
        match, scale = self._objective.match, self._objective.match_scale
        return X, prepare_rows(X, self._targets[positions], weight, match, scale)

    def next_round(self, engine: Engine | str | None) -> Rows:
        """Return other rows, drawn for a round of minibatches and passed to the engine."""
        return self.draw()[1].resident(engine, self.work)
