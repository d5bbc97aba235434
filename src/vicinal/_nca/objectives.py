"""The objectives of Neighbourhood Components Analysis and their gradients: pure functions of arrays.

Goldberger, Roweis, Hinton and Salakhutdinov (2004).  With ``p_ij`` the softmax over ``j != i`` of
``-|A x_i - A x_j|^2`` (Eq. 1, no 1/2 in the exponent) and the agreement ``m_ij`` of two targets,

    a_i = sum_j p_ij m_ij              (Eq. 2; m_ij = 1[same class] for hard classes)
    f   = sum_i w_i a_i                (Eq. 3, objective "accuracy")
    g   = sum_i w_i log a_i            (Eq. 6, objective "likelihood")

and the gradient of either is ``2 A S(v)`` with the scatter ``S(v) = sum_ij v_ij x_ij x_ij'`` of the signed
weights ``v_ij = w_i p_ij (a_i - m_ij)`` (Eq. 5) or ``w_i p_ij (1 - m_ij / a_i)`` (Eq. 7).

The engine's scores are ``-|z_i - z_j|^2 / 2``, so ``z = sqrt(2) A x``; it returns what ``v`` pulls on the
images, ``P = on_queries + on_points`` with ``P' X = sqrt(2) A S(v)``, and the gradient is ``sqrt(2) P' X``:
the pair work has as many dimensions as A has rows, however wide X is.

Everything is *per row* (divided by the sum of the weights), so that tolerances do not depend on n. A
diagonal A is given and differentiated as the vector of its diagonal.
"""

from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array

from vicinal._engine import Match
from vicinal._engine._pool import blas_out_of_the_way

ROOT2 = float(np.sqrt(2.0))


class Evaluation(NamedTuple):
    """An objective per row and its gradient in the shape of A."""

    value: float
    gradient: np.ndarray


def scaled_images(A, X):
    """``sqrt(2) A x`` for each row, in the precision of X; a vector A is a diagonal."""
    A = (ROOT2 * np.asarray(A)).astype(X.dtype, copy=False)
    return X * A if A.ndim == 1 else X @ A.T


def back_to_components(A, pull, X):
    """``sqrt(2) pull' X``: a gradient by the images, as a gradient by A; its diagonal when A is a vector."""
    pull = np.asarray(pull, dtype=np.float64)
    if np.ndim(A) == 1:
        return ROOT2 * np.einsum("ij,ij->j", pull, X)
    if X.dtype == np.float32:  # a float64 copy of a wide X would cost more than all pair work
        return ROOT2 * (pull.T.astype(np.float32) @ X).astype(np.float64)
    return ROOT2 * (pull.T @ X)


def log_or_none(weight):
    """Log-weights of the points as neighbours; None for equal weights."""
    return None if weight is None else np.log(weight)


def neighbor_objective(A, X, match, pairs, *, objective="accuracy", weight=None, rows=None):
    """The paper's f or g per row, and its gradient by A.

    Parameters
    ----------
    A : array of shape (d, D), or (D,) for a diagonal
    X : array of shape (n, D)
        Best centred; the result does not depend on it.
    match : Match
        Agreement of all rows with all rows.
    pairs : PairReductions
    objective : {"accuracy", "likelihood"}
    weight : array of shape (n,), positive, or None
        Importance of a row as a term and as a neighbour.
    rows : array of row positions, or None for all
        The terms i to sum over (sec. 2: "we can do stochastic gradient"); the neighbours j are always all
        rows.

    Returns
    -------
    Evaluation
        The mean over the terms, weighted.
    """
    with blas_out_of_the_way(len(X) if rows is None else len(rows), X.shape[1]):
        return _neighbor_objective(A, X, match, pairs, objective, weight, rows)


def _neighbor_objective(A, X, match, pairs, objective, weight, rows):
    Z = scaled_images(A, X)
    options = {"objective": objective, "log_weights": log_or_none(weight)}
    if rows is None:
        row_weights = weight
        found = pairs.mutual_pull(Z, match, row_weights=weight, **options)
        pull = found.pull
    else:
        row_weights = None if weight is None else weight[rows]
        match = Match(match.kind, match.queries[rows], match.points)
        found = pairs.signed_pull(Z[rows], Z, match, row_weights=row_weights, left_out=np.asarray(rows), **options)
        pull = found.on_points.copy()
        pull[rows] += found.on_queries  # rows are distinct
    terms = np.exp(found.log_agreement) if objective == "accuracy" else found.log_agreement
    total = float(len(terms) if row_weights is None else row_weights.sum())
    value = float(terms.mean() if row_weights is None else row_weights @ terms / total)
    return Evaluation(value, back_to_components(A, pull, X) / total)


def with_penalty(evaluation, A, reg):
    """Subtract the penalty ``sum_k reg_k |A_k|^2`` over the columns of A from the objective."""
    if not np.any(reg):
        return evaluation
    A = np.asarray(A, dtype=np.float64)
    return Evaluation(evaluation.value - float((reg * A**2).sum()), evaluation.gradient - 2.0 * reg * A)


# -- Eq. 8: only close pairs are given -----------------------------------------------------------------------


def listed_pairs(pairs, weight, n):
    """The attraction of close pairs as a function ``pull(Z) = L Z``.

    L is the Laplacian of the pairs, with weights that sum to one: ``sum_ab w_ab |z_a - z_b|^2 = tr(Z' L Z)``.

    Parameters
    ----------
    pairs : row positions, shape (p, 2)
    weight : array of shape (p,)
    n : int
        Rows in all.
    """
    share = weight / weight.sum()
    a, b = pairs.T
    rows, columns = np.concatenate([a, b, a, b]), np.concatenate([a, b, b, a])
    entries = np.concatenate([share, share, -share, -share])
    laplacian = coo_array((entries, (rows, columns)), shape=(n, n)).tocsr()
    return lambda Z: laplacian @ Z


def pairs_in_groups(groups):
    """The attraction of all pairs of rows with the same code (0, 1, ...; -1 for a row in no group), of
    weight one.

    They need no list: ``(L Z)_a = size (z_a - mean of the group) / n_pairs``.
    """
    inside = groups >= 0
    codes = groups[inside]
    sizes = np.bincount(codes)
    n_pairs = float((sizes * (sizes - 1) / 2).sum())

    def pull(Z):
        sums = np.stack([np.bincount(codes, z, minlength=len(sizes)) for z in Z[inside].T], axis=1)
        out = np.zeros(Z.shape)
        out[inside] = (sizes[codes, None] * Z[inside] - sums[codes]) / n_pairs
        return out

    return pull


def pair_objective(A, X, pull_close, pairs, *, weight=None):
    """The negative of Eq. 8 per unit of pair weight, and its gradient by A.

    ``sum_ab w_ab log(exp(-|y_a - y_b|^2) / sum_{c != d} exp(-|y_c - y_d|^2))`` with ``y = A x`` and weights
    that sum to one; c and d run over all ordered pairs of rows. The kernel is symmetric, hence what
    ``q_cd`` (the softmax over all pairs) pulls on its first index it pulls on its second, and the row
    softmax means are all that is needed.
    """
    Z = scaled_images(A, X)
    found = pairs.softmax_means(Z, Z, Z, log_weights=log_or_none(weight), left_out=np.arange(len(X)))
    row_sums = found.log_sums if weight is None else found.log_sums + np.log(weight)
    top = row_sums.max()
    log_total = float(top + np.log(np.exp(row_sums - top).sum()))
    share = np.exp(row_sums - log_total)  # of the pairs (c, d), those with first index c
    Z = Z.astype(np.float64, copy=False)
    attraction = pull_close(Z)
    value = -0.5 * float((Z * attraction).sum()) - log_total
    pull = 2.0 * share[:, None] * (Z - found.means) - attraction
    return Evaluation(value, back_to_components(A, pull, X))
