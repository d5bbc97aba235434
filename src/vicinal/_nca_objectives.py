"""The objectives of Neighbourhood Components Analysis and their gradients: pure functions of arrays.

Goldberger, Roweis, Hinton and Salakhutdinov (2004).  With ``p_ij`` the softmax over ``j != i`` of
``-|A x_i - A x_j|^2`` (Eq. 1, no 1/2 in the exponent) and the agreement ``m_ij`` of two targets,

    a_i = sum_j p_ij m_ij              (Eq. 2; m_ij = 1[same class] for hard classes)
    f   = sum_i w_i a_i                (Eq. 3, objective "accuracy")
    g   = sum_i w_i log a_i            (Eq. 6, objective "likelihood")

and the gradient of either is ``2 A S(v)`` with the scatter ``S(v) = sum_ij v_ij x_ij x_ij'`` of the signed weights
``v_ij = w_i p_ij (a_i - m_ij)`` (Eq. 5) or ``w_i p_ij (1 - m_ij / a_i)`` (Eq. 7).

The engine's scores are ``-|z_i - z_j|^2 / 2``, so ``z = sqrt(2) A x``; it returns what ``v`` pulls on the images,
``P = on_queries + on_points`` with ``P' X = sqrt(2) A S(v)``, and the gradient is ``sqrt(2) P' X``: the pair work has as
many dimensions as A has rows, however wide X is.

Everything is *per row* (divided by the sum of the weights), so that tolerances do not depend on n.  A diagonal A is
given and differentiated as the vector of its diagonal.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_array

from vicinal._engine import Match

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
        The terms i to sum over (sec. 2: "we can do stochastic gradient"); the neighbours j are always all rows.

    Returns
    -------
    Evaluation
        The mean over the terms, weighted.
    """
    Z = scaled_images(A, X)
    if rows is None:
        queries, left_out, row_weights = Z, np.arange(len(X)), weight
    else:
        queries, left_out = Z[rows], np.asarray(rows)
        row_weights = None if weight is None else weight[rows]
        match = Match(match.kind, match.queries[rows], match.points)
    total = len(queries) if row_weights is None else float(row_weights.sum())
    pulled = pairs.signed_pull(
        queries,
        Z,
        match,
        objective=objective,
        row_weights=row_weights,
        log_weights=log_or_none(weight),
        left_out=left_out,
    )
    terms = np.exp(pulled.log_agreement) if objective == "accuracy" else pulled.log_agreement
    value = float(terms.mean() if row_weights is None else row_weights @ terms / total)
    pull = pulled.on_points
    if rows is None:
        pull = pull + pulled.on_queries
    else:
        pull = pull.copy()
        pull[rows] += pulled.on_queries  # rows are distinct
    return Evaluation(value, back_to_components(A, pull, X) / total)


def with_penalty(evaluation, A, reg):
    """Subtract the penalty ``reg * |A|^2`` from the objective."""
    if reg == 0.0:
        return evaluation
    A = np.asarray(A, dtype=np.float64)
    return Evaluation(evaluation.value - reg * float((A**2).sum()), evaluation.gradient - 2.0 * reg * A)


# -- Eq. 8: only close pairs are given -----------------------------------------------------------------------------


class ClosePairs(NamedTuple):
    """Close pairs as a Laplacian, so that ``sum_ab w_ab |z_a - z_b|^2 = tr(Z' L Z)`` with weights that sum to one.

    ``laplacian`` is a sparse matrix (listed pairs), or None for all pairs inside groups, which need no list:
    ``(L Z)_a = size (z_a - mean of the group) / n_pairs``.
    """

    laplacian: Any
    groups: np.ndarray | None
    sizes: np.ndarray | None

    def pull(self, Z):
        """``L Z``."""
        if self.laplacian is not None:
            return self.laplacian @ Z
        inside = self.groups >= 0
        codes = self.groups[inside]
        sums = np.stack([np.bincount(codes, z, minlength=len(self.sizes)) for z in Z[inside].T], axis=1)
        out = np.zeros(Z.shape)
        out[inside] = (self.sizes[codes, None] * Z[inside] - sums[codes]) / self.n_group_pairs
        return out

    @property
    def n_group_pairs(self):
        """Unordered pairs inside the groups."""
        return float((self.sizes * (self.sizes - 1) / 2).sum())


def listed_pairs(pairs, weight, n):
    """`ClosePairs` of row positions (p, 2) and their weights (p,)."""
    share = weight / weight.sum()
    a, b = pairs.T
    rows, columns = np.concatenate([a, b, a, b]), np.concatenate([a, b, b, a])
    entries = np.concatenate([share, share, -share, -share])
    return ClosePairs(coo_array((entries, (rows, columns)), shape=(n, n)).tocsr(), None, None)


def pairs_in_groups(groups):
    """`ClosePairs` of all pairs of rows with the same code; codes 0, 1, ... and -1 for a row in no group."""
    return ClosePairs(None, groups, np.bincount(groups[groups >= 0]))


def pair_objective(A, X, close, pairs, *, weight=None):
    """The negative of Eq. 8 per unit of pair weight, and its gradient by A.

    ``sum_ab w_ab log(exp(-|y_a - y_b|^2) / sum_{c != d} exp(-|y_c - y_d|^2))`` with ``y = A x`` and weights that sum
    to one; c and d run over all ordered pairs of rows.  The kernel is symmetric, hence what ``q_cd`` (the softmax over
    all pairs) pulls on its first index it pulls on its second, and the row softmax means are all that is needed.
    """
    Z = scaled_images(A, X)
    found = pairs.softmax_means(Z, Z, Z, log_weights=log_or_none(weight), left_out=np.arange(len(X)))
    row_sums = found.log_sums if weight is None else found.log_sums + np.log(weight)
    top = row_sums.max()
    log_total = float(top + np.log(np.exp(row_sums - top).sum()))
    share = np.exp(row_sums - log_total)  # of the pairs (c, d), those with first index c
    Z = Z.astype(np.float64, copy=False)
    attraction = close.pull(Z)
    value = -0.5 * float((Z * attraction).sum()) - log_total
    pull = 2.0 * share[:, None] * (Z - found.means) - attraction
    return Evaluation(value, back_to_components(A, pull, X))


# -- how many neighbours count -------------------------------------------------------------------------------------


def effective_neighbors(queries, points, pairs, *, log_weights=None, left_out=None):
    """The perplexity ``exp(H(p_i))`` of each row's softmax neighbours: the paper's real-valued estimate of K (sec. 2).

    ``H_i = log_sums_i - sum_j p_ij s_ij``, and the expected score follows from the softmax means of the coordinates and
    of their squares.
    """
    centre = points.mean(axis=0)
    queries, points = queries - centre, points - centre
    offsets = 0.5 * (points.astype(np.float64) ** 2).sum(1)
    if log_weights is not None:
        offsets = offsets - log_weights
    values = np.column_stack([points, offsets.astype(points.dtype)])
    log_sums, means = pairs.softmax_means(queries, points, values, log_weights=log_weights, left_out=left_out)
    queries = queries.astype(np.float64, copy=False)
    expected = (queries * means[:, :-1]).sum(1) - means[:, -1] - 0.5 * (queries**2).sum(1)
    most = len(points) - (0 if left_out is None else 1)
    return np.clip(np.exp(np.clip(log_sums - expected, 0.0, 700.0)), 1.0, max(most, 1))
