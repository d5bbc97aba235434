"""Complete rows in memory, each of which is scored by all others, and minibatches of them."""

from typing import Any, NamedTuple

import numpy as np

from vicinal._engine import Engine, Problem, one_blas_thread_beside_pairs, prepare
from vicinal._leave_one_out.moments import weight_of_others
from vicinal._rows import count_twins
from vicinal._tensors import take_rows

LOG_2PI = float(np.log(2.0 * np.pi))


class EMStatistics(NamedTuple):
    """What one pass over the pairs tells about a kernel of covariance ``(A'A)^-1``."""

    log_likelihood: float  # of each row under the kernels of the others, the (weighted) mean over the rows
    scatter: np.ndarray  # S / W in the kernel's frame z = A x, where S = sum_ij w_i lambda_ij (z_i - z_j)(z_i - z_j)'
    problem: Any  # that of the next pass: rows with gaps are filled in again, other problems stay as they are


def log_norm(metric: np.ndarray) -> float:
    """Return the logarithm of the constant of a Gaussian kernel with a square metric."""
    return float(np.linalg.slogdet(metric)[1]) - 0.5 * len(metric) * LOG_2PI


class LeaveOneOut(NamedTuple):
    """The rows of positive weight, their weights, and the resident pair problem."""

    rows: np.ndarray  # (n, d): rows of weight zero are left out
    weight: np.ndarray  # (n,)
    log_others: np.ndarray  # (n,), log(W - w_i): the weight that remains when row i is left out
    pairs: Problem

    def em_statistics(self, metric: np.ndarray) -> EMStatistics:
        """Return the log-likelihood per row (Eq. 1) and the scatter of the neighbours (Eqs. 3 and 4) in the frame of the metric."""
        mass = self.weight.sum()
        with one_blas_thread_beside_pairs(*self.rows.shape):
            # log sum_j exp(-|z_i - z_j|^2 / 2) of each row, and sum_ij w_i lambda_ij (z_i - z_j)(z_i - z_j)' with the lambda_ij of Eq. 3.
            sums, scatter = self.pairs.at(metric).scatter(self.weight)
        log_mean = float(self.weight @ (sums - self.log_others) / mass)
        return EMStatistics(log_mean + log_norm(metric), scatter / mass, self)

    def neighbors(self, metric: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the mean log of the mean kernel ``exp(-|z_i - z_j|^2 / 2)``, and S / W in the coordinates of the rows."""
        mass = self.weight.sum()
        sums, scatter = self.pairs.at(metric).scatter(self.weight, space="rows")
        return float(self.weight @ (sums - self.log_others) / mass), scatter / mass


class Minibatch(NamedTuple):
    """Some rows of a problem as terms, among some rows as possible neighbours."""

    whole: LeaveOneOut
    terms: np.ndarray  # row positions
    points: np.ndarray | None = None  # row positions, sorted; None means all rows. A row is never its own neighbour

    def em_statistics(self, metric: np.ndarray) -> EMStatistics:
        """Return the log-likelihood of the terms, and the scatter of their neighbours in the frame of the metric."""
        log_mean, local = self.neighbors(metric)
        return EMStatistics(log_mean + log_norm(metric), metric @ local @ metric.T, self.whole)

    def neighbors(self, metric: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the mean log of the mean kernel, and S / W of the terms in the coordinates of the rows."""
        problem, weight = self.whole, self.whole.weight[self.terms]
        if self.points is None:
            log_others = problem.log_others[self.terms]
            sums, scatter = problem.pairs.at(metric).scatter(weight, self.terms, space="rows")
        else:
            places = np.minimum(np.searchsorted(self.points, self.terms), len(self.points) - 1)
            left_out = np.where(self.points[places] == self.terms, places, -1)
            weight_of_points = problem.weight[self.points]
            log_others = np.log(
                np.where(left_out >= 0, weight_of_others(weight_of_points)[left_out], weight_of_points.sum())
            )
            placed = problem.pairs.some(self.points).at(metric)
            sums, scatter = placed.scatter(weight, problem.rows[self.terms], left_out, space="rows")
        mass = weight.sum()
        return float(weight @ (sums - log_others) / mass), scatter / mass


def leave_one_out(
    X: np.ndarray,
    weight: np.ndarray | None,
    engine: Engine | str | None,
    *,
    n_queries: int | None = None,
    passes: int = 1,
) -> LeaveOneOut:
    """Pass the rows of positive weight to the engine.

    Parameters
    ----------
    X : array of shape (n, d)
    weight : array of shape (n,), or None for ones
    engine : None, str or Engine
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
    return LeaveOneOut(X, weight, log_others, pairs)


def some_rows(problem: LeaveOneOut, positions: np.ndarray) -> LeaveOneOut:
    """Return the problem of the rows at some positions, on the same backend."""
    weight = problem.weight[positions]
    log_others = np.log(weight_of_others(weight))
    return LeaveOneOut(problem.rows[positions], weight, log_others, problem.pairs.some(positions))


def merged_twins(X: np.ndarray, weight: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Return each distinct row once, with the weight of all rows that are equal to it; if all rows differ, return them unchanged.

    A row is then left out together with its twins, which would otherwise be at distance zero from it.
    """
    if count_twins(X) == 0:
        return X, weight
    rows, of_row = np.unique(X, axis=0, return_inverse=True)
    return rows, np.bincount(of_row.ravel(), weights=weight, minlength=len(rows)).astype(np.float64)


def perplexities(
    pairs: Problem,
    metric: np.ndarray,
    X: np.ndarray,
    weight: np.ndarray | None = None,
    sample: np.ndarray | None = None,
) -> np.ndarray:
    """Return the effective number of neighbours of each row of X under a metric: the paper's estimate of K (sec. 2).

    Parameters
    ----------
    pairs : Problem
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
        return pairs.some(sample).at(metric).perplexities(X, left_out)
    placed = pairs.at(metric)
    perplexities_of_rows = np.empty(len(X))
    perplexities_of_rows[counted] = placed.perplexities()
    if not counted.all():
        perplexities_of_rows[~counted] = placed.perplexities(X[~counted])
    return perplexities_of_rows
