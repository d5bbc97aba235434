"""The objectives of Neighbourhood Components Analysis and their gradients: functions of a matrix and a pair problem.

Goldberger, Roweis, Hinton and Salakhutdinov (2004).  With ``p_ij`` the softmax over ``j != i`` of
``-|A x_i - A x_j|^2`` (Eq. 1, no 1/2 in the exponent) and the agreement ``m_ij`` of two targets,

    a_i = sum_j p_ij m_ij              (Eq. 2; m_ij = 1[same class] for hard classes)
    f   = sum_i w_i a_i                (Eq. 3, objective "accuracy")
    g   = sum_i w_i log a_i            (Eq. 6, objective "likelihood")

and the gradient of either is ``2 A S(v)`` with the scatter ``S(v) = sum_ij v_ij x_ij x_ij'`` of the signed
weights ``v_ij = w_i p_ij (a_i - m_ij)`` (Eq. 5) or ``w_i p_ij (1 - m_ij / a_i)`` (Eq. 7).

The engine's scores are ``-|z_i - z_j|^2 / 2``, so its metric is ``sqrt(2) A``. It returns the pull ``P`` of the weights
``v`` on the images, with ``P' X = sqrt(2) A S(v)``, and the gradient is ``sqrt(2) P' X``. The pairwise computations have as
many dimensions as A has rows, however many columns X has.

All values are *per row* (divided by the sum of the weights), so that tolerances do not depend on n. A
diagonal A is given and differentiated as the vector of its diagonal.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from vicinal._engine import Problem, one_blas_thread_beside_pairs

ROOT2 = float(np.sqrt(2.0))


class Evaluation(NamedTuple):
    """An objective per row and its gradient in the shape of A."""

    value: float
    gradient: np.ndarray


Evaluate = Callable[[np.ndarray], Evaluation]  # a function of a matrix A


def placed_at(problem: Any, A: np.ndarray) -> Any:
    """Return the rows of a problem mapped by A, so that distances are those of Eq. 1; a vector A is a diagonal."""
    return problem.at(ROOT2 * np.asarray(A, dtype=np.float64))


def neighbor_objective(
    A: np.ndarray,
    problem: Problem,
    *,
    objective: str = "accuracy",
    weight: np.ndarray | None = None,
    rows: np.ndarray | None = None,
) -> Evaluation:
    """Return the paper's f or g per row, and its gradient by A.

    Parameters
    ----------
    A : array of shape (d, D), or (D,) for a diagonal
    problem : Problem
        All rows, with their match and their log-weights as neighbours; rows leave themselves out.
    objective : {"accuracy", "likelihood"}
    weight : array of shape (n,), positive, or None
        Importance of a row as a term; the problem holds its importance as a neighbour.
    rows : array of row positions, or None for all
        The terms i to sum over (sec. 2: "we can do stochastic gradient"); the neighbours j are always all
        rows.

    Returns
    -------
    Evaluation
        The mean over the terms, weighted.
    """
    row_weights = _of_rows(weight, rows)
    with one_blas_thread_beside_pairs(problem.n_points if rows is None else len(rows), problem.n_features):
        gradient = placed_at(problem, A).gradient(row_weights, rows, objective=objective)
    total = float(len(gradient.log_agreement) if row_weights is None else row_weights.sum())
    return Evaluation(mean_term(_terms(gradient.log_agreement, objective), row_weights), ROOT2 * gradient.pull / total)


def neighbor_value(
    A: np.ndarray,
    problem: Problem,
    *,
    objective: str = "accuracy",
    weight: np.ndarray | None = None,
    rows: np.ndarray | None = None,
) -> float:
    """Return the value of `neighbor_objective` alone, which takes fewer sweeps over the pairs."""
    with one_blas_thread_beside_pairs(problem.n_points if rows is None else len(rows), problem.n_features):
        log_agreement = placed_at(problem, A).log_agreement(rows)
    return mean_term(_terms(log_agreement, objective), _of_rows(weight, rows))


def _of_rows(weight: np.ndarray | None, rows: np.ndarray | None) -> np.ndarray | None:
    return weight if weight is None or rows is None else weight[rows]


def _terms(log_agreement: np.ndarray, objective: str) -> np.ndarray:
    return np.exp(log_agreement) if objective == "accuracy" else log_agreement


def mean_term(terms: np.ndarray, row_weights: np.ndarray | None) -> float:
    """Return the mean of the terms of an objective, weighted."""
    # Departure 1 (NCA): Objectives are per row.
    return float(terms.mean() if row_weights is None else row_weights @ terms / row_weights.sum())


def with_penalty(evaluation: Evaluation, A: np.ndarray, penalty: np.ndarray | float) -> Evaluation:
    """Subtract ``sum_k penalty_k |A_k|^2`` over the columns of A from the objective."""
    # Departure 5 (NCA): A penalty is offered.
    if not np.any(penalty):
        return evaluation
    A = np.asarray(A, dtype=np.float64)
    return Evaluation(evaluation.value - size_penalty(A, penalty), evaluation.gradient - 2.0 * penalty * A)


def size_penalty(A: np.ndarray, penalty: np.ndarray | float) -> float:
    """Return ``sum_k penalty_k |A_k|^2`` over the columns of A."""
    return float((penalty * np.asarray(A, dtype=np.float64) ** 2).sum())


# -- Eq. 8: only close pairs are given -----------------------------------------------------------------------


def pair_objective(A: np.ndarray, problem: Problem, pull_close: Callable[[np.ndarray], np.ndarray]) -> Evaluation:
    """Return the negative of Eq. 8 per unit of pair weight, and its gradient by A.

    ``sum_ab w_ab log(exp(-|y_a - y_b|^2) / sum_{c != d} exp(-|y_c - y_d|^2))`` with ``y = A x`` and weights
    that sum to one; c and d run over all ordered pairs of rows. The kernel is symmetric, so ``q_cd`` (the softmax
    over all pairs) pulls equally on both of its indices, and only the shifts from each row to its softmax mean are
    needed.

    Parameters
    ----------
    A : array of shape (d, D), or (D,) for a diagonal
    problem : Problem
        All rows, with their log-weights as c and d; rows leave themselves out.
    pull_close : callable
        The attraction of the close pairs: see `listed_pairs`, `pairs_in_groups`.
    """
    placed = placed_at(problem, A)
    row_sums, shifts = placed.mean_shifts()
    if problem.points.log_weights is not None:
        row_sums = row_sums + problem.points.log_weights
    top = row_sums.max()
    log_total = float(top + np.log(np.exp(row_sums - top).sum()))
    share = np.exp(row_sums - log_total)  # the pairs (c, d) with first index c
    Z = placed.images.astype(np.float64, copy=False)
    attraction = pull_close(Z)
    value = -0.5 * float((Z * attraction).sum()) - log_total
    pull = -2.0 * share[:, None] * shifts - attraction
    return Evaluation(value, ROOT2 * placed.by_metric(pull))
