r"""The per-anchor objective: each anchor distinguishes its own positive from the other rows of a batch.

.. math:: f(A) = \frac{1}{\sum_i w_i} \sum_i w_i \log \frac{\exp s_{ib_i}}{\sum_{c \in C_i} \exp s_{ic}}

over anchors i with positives b_i, where C_i holds the candidates of the batch except the other positives of i and i itself.
Eq. 8 of the NCA paper (`PairNCA`) has one denominator over all pairs of rows instead, so that a pair competes with all
pairs. Here it competes only with the pairs of its own anchor.
"""

import numpy as np

from vicinal._nca.objectives import Evaluation

SIMILARITIES = ("cosine", "distance")


def anchor_objective(
    A: np.ndarray,
    anchors: np.ndarray,
    candidates: np.ndarray,
    positives: np.ndarray,
    masked: np.ndarray,
    *,
    similarity: str,
    temperature: float,
    weights: np.ndarray | None = None,
) -> Evaluation:
    """Return the objective of a batch and its gradient by A.

    Parameters
    ----------
    A : array of shape (k, d)
    anchors : array of shape (m, d)
    candidates : array of shape (c, d)
    positives : int array of shape (m,)
        Which candidate is the positive of each anchor.
    masked : bool array of shape (m, c)
        Candidates that an anchor does not compete with; never its positive.
    similarity : {"cosine", "distance"}
        s is the cosine of the images divided by the temperature (the linear form of InfoNCE), or minus the squared distance of
        the images divided by the temperature.
    """
    queries, points = anchors @ A.T, candidates @ A.T
    m = len(anchors)
    share = np.full(m, 1.0 / m) if weights is None else weights / weights.sum()
    if similarity == "cosine":
        lengths = [np.maximum(np.linalg.norm(Z, axis=1, keepdims=True), 1e-30) for Z in (queries, points)]
        left, right = queries / lengths[0], points / lengths[1]
        scores = left @ right.T / temperature
    else:
        left, right = queries, points
        # Without the square of the query, which all of its candidates share.
        scores = (2.0 * (left @ right.T) - np.square(right).sum(axis=1)) / temperature
    scores[masked] = -np.inf
    scores -= scores.max(axis=1, keepdims=True)
    own = scores[np.arange(m), positives].copy()
    np.exp(scores, out=scores)
    sums = scores.sum(axis=1)
    value = float(share @ (own - np.log(sums)))
    # d value / d scores, of shape (m, c): the rows sum to zero.
    slope = scores
    slope *= (-share / sums).astype(slope.dtype, copy=False)[:, None]
    slope[np.arange(m), positives] += share.astype(slope.dtype, copy=False)
    slope /= temperature
    if similarity == "cosine":
        by_query, by_point = slope @ right, slope.T @ left
        by_query = (by_query - (by_query * left).sum(axis=1, keepdims=True) * left) / lengths[0]
        by_point = (by_point - (by_point * right).sum(axis=1, keepdims=True) * right) / lengths[1]
    else:
        by_query = 2.0 * (slope @ right)
        by_point = 2.0 * (slope.T @ left - slope.sum(axis=0)[:, None] * right)
    return Evaluation(value, by_query.T @ anchors + by_point.T @ candidates)


def held_out_gain(
    A: np.ndarray,
    anchors: np.ndarray,
    candidates: np.ndarray,
    positives: np.ndarray,
    masked: np.ndarray,
    similarity: str,
    weights: np.ndarray | None = None,
) -> float:
    """Return the weighted mean of ``1 / log2(1 + rank)`` of the positives among the candidates (nDCG of one relevant row)."""
    queries, points = anchors @ A.T, candidates @ A.T
    if similarity == "cosine":
        scores = queries @ (points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-30)).T
    else:
        scores = queries @ points.T - 0.5 * np.square(points).sum(axis=1)
    own = scores[np.arange(len(anchors)), positives].copy()
    scores[masked] = -np.inf
    scores[np.arange(len(anchors)), positives] = -np.inf
    ahead = (scores > own[:, None]).sum(axis=1) + 0.5 * (scores == own[:, None]).sum(axis=1)
    return float(np.average(1.0 / np.log2(2.0 + ahead), weights=weights))
