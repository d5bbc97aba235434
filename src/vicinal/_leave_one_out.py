"""The leave-one-out problem: each row is scored by all other rows."""

from typing import NamedTuple, Protocol

import numpy as np

from vicinal._checks import count_twins
from vicinal._engine import Engine, Problem, prepare
from vicinal._kernel_penalty import Penalty
from vicinal._tensors import take_rows

_ALGEBRA_ROWS = 8192  # the number of rows that are centred at a time; a copy of all rows would be as large as the data


class LeaveOneOut(NamedTuple):
    """The rows of positive weight, their weights, the penalty, and the resident pair problem."""

    rows: np.ndarray  # (n, d): rows of weight zero are left out
    weight: np.ndarray  # (n,)
    log_others: np.ndarray  # (n,), log(W - w_i): the weight that remains when row i is left out
    pairs: Problem
    reg: Penalty | None = None  # the penalty of LCA


def leave_one_out(
    X: np.ndarray,
    weight: np.ndarray | None,
    engine: Engine | str | None,
    *,
    reg: Penalty | None = None,
    n_queries: int | None = None,
    passes: int = 1,
) -> LeaveOneOut:
    """Pass the rows of positive weight to the engine.

    Parameters
    ----------
    X : array of shape (n, d)
    weight : array of shape (n,), or None for ones
    engine : None, str or Engine
    reg : Penalty, optional
    n_queries : int, optional
        Queries per pass; the default is all rows.
    passes : int
        The expected number of passes, a constant of the solver.
    """
    log_weights = None
    if weight is None:
        weight = np.ones(len(X))
        log_others = np.full(len(X), np.log(len(X) - 1.0))
    else:
        if not weight.all():
            X, weight = take_rows(X, weight > 0), weight[weight > 0]
        log_weights, log_others = np.log(weight), np.log(weight_of_others(weight))
    pairs = prepare(engine, X, log_weights=log_weights, leave_one_out=True, n_queries=n_queries, passes=passes)
    return LeaveOneOut(X, weight, log_others, pairs, reg)


def some_rows(problem: LeaveOneOut, positions: np.ndarray) -> LeaveOneOut:
    """Return the problem of the rows at some positions, on the same backend."""
    weight = problem.weight[positions]
    log_others = np.log(weight_of_others(weight))
    return LeaveOneOut(problem.rows[positions], weight, log_others, problem.pairs.some(positions), problem.reg)


def merged_twins(X: np.ndarray, weight: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Return each distinct row once, with the weight of all rows that are equal to it; if all rows differ, return them unchanged.

    A row is then left out together with its twins, which would otherwise be at distance zero from it.
    """
    if count_twins(X) == 0:
        return X, weight
    rows, of_row = np.unique(X, axis=0, return_inverse=True)
    return rows, np.bincount(of_row.ravel(), weights=weight, minlength=len(rows)).astype(np.float64)


def counted_rows(X: np.ndarray, weight: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the rows of positive weight and their weights; None stays None."""
    return (X, weight) if weight is None or weight.all() else (X[weight > 0], weight[weight > 0])


def weight_of_others(weight: np.ndarray) -> np.ndarray:
    """Return ``W - w_i`` for each row, without cancellation if one row has nearly all the weight."""
    others = weight.sum() - weight
    heaviest = int(weight.argmax())
    others[heaviest] = np.delete(weight, heaviest).sum()
    return others


def mean_of_rows(X: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """Return the (weighted) mean, in float64."""
    return X.mean(axis=0, dtype=np.float64) if weight is None else weight @ X / weight.sum()


def scatter_of_rows(X: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """Return the (weighted) covariance of the rows, divided by n (by the weights' sum)."""
    found, mean = np.zeros((X.shape[1], X.shape[1])), mean_of_rows(X, weight)
    for start in range(0, len(X), _ALGEBRA_ROWS):
        part = slice(start, start + _ALGEBRA_ROWS)
        centred = X[part] - mean
        found += (centred if weight is None else centred * weight[part, None]).T @ centred
    return found / (len(X) if weight is None else weight.sum())


class Moments(NamedTuple):
    """The weight, the mean and the scatter of rows."""

    mass: float  # the sum of the weights
    squares: float  # the sum of their squares
    mean: np.ndarray  # (d,)
    scatter: np.ndarray  # (d, d), about the mean, not divided

    @property
    def covariance(self) -> np.ndarray:
        """The covariance, divided by n (by the weights' sum)."""
        return self.scatter / self.mass

    @classmethod
    def of(cls, rows: np.ndarray, weight: np.ndarray | None = None) -> "Moments | None":
        """Return the moments of rows in memory; None if none of them has weight. Rows of weight zero may hold any numbers."""
        rows, weight = counted_rows(rows, weight)
        if len(rows) == 0:
            return None
        mass = float(len(rows) if weight is None else weight.sum())
        squares = mass if weight is None else float(weight @ weight)
        return cls(mass, squares, mean_of_rows(rows, weight), mass * scatter_of_rows(rows, weight))

    def merged(self, other: "Moments") -> "Moments":
        """Return the moments of these rows and others together."""
        mass, apart = self.mass + other.mass, other.mean - self.mean
        return Moments(
            mass,
            self.squares + other.squares,
            self.mean + other.mass / mass * apart,
            self.scatter + other.scatter + self.mass * other.mass / mass * np.outer(apart, apart),
        )


class HasPairs(Protocol):
    """An object that holds the rows of positive weight as a problem of the engine, such as `LeaveOneOut`."""

    @property
    def pairs(self) -> Problem:
        """The problem."""


def perplexities(
    problem: HasPairs,
    metric: np.ndarray,
    X: np.ndarray,
    weight: np.ndarray | None = None,
    sample: np.ndarray | None = None,
) -> np.ndarray:
    """Return the effective number of neighbours of each row of X under a metric: the paper's estimate of K (sec. 2).

    Parameters
    ----------
    problem : LeaveOneOut, or another record with `pairs`
        The problem of the rows of X that have positive weight.
    metric : array of shape (k, d)
    X : array of shape (n, d)
    weight : array of shape (n,), optional
    sample : positions among the rows of positive weight, optional
        The possible neighbours; the default is all.
    """
    counted = np.ones(len(X), dtype=bool) if weight is None else weight > 0
    if sample is not None:
        left_out = np.full(len(X), -1)
        left_out[np.flatnonzero(counted)[sample]] = np.arange(len(sample))
        return problem.pairs.some(sample).at(metric).perplexities(X, left_out)
    placed = problem.pairs.at(metric)
    found = np.empty(len(X))
    found[counted] = placed.perplexities()
    if not counted.all():
        found[~counted] = placed.perplexities(X[~counted])
    return found
