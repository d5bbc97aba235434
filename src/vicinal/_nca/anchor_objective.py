"""The objective of anchors and its gradient, and the score of held-out pairs, as functions of a matrix and a batch."""

from __future__ import annotations

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
    fixed: bool = False,
) -> Evaluation:
    """Return the objective of a batch and its gradient by A.

    Parameters
    ----------
    A : array of shape (k, d)
    anchors : array of shape (m, d)
    candidates : array of shape (c, d), or (c, k) if they are fixed
    positives : int array of shape (m,)
        Which candidate is the positive of each anchor.
    masked : bool array of shape (m, c)
        Candidates that an anchor does not compete with; never its positive.
    similarity : {"cosine", "distance"}
        s is the cosine of the images divided by the temperature (the linear form of InfoNCE), or minus the squared distance of
        the images divided by the temperature.
    fixed : bool
        Whether the candidates are images already, so that A maps the anchors alone.
    """
    queries, points = anchors @ A.T, candidates if fixed else candidates @ A.T
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
    positive_scores = scores[np.arange(m), positives].copy()
    np.exp(scores, out=scores)
    sums = scores.sum(axis=1)
    value = float(share @ (positive_scores - np.log(sums)))
    # d value / d scores, of shape (m, c): the rows sum to zero.
    slope = scores
    slope *= (-share / sums).astype(slope.dtype, copy=False)[:, None]
    slope[np.arange(m), positives] += share.astype(slope.dtype, copy=False)
    slope /= temperature
    by_query = slope @ right
    if similarity == "cosine":
        by_query = (by_query - (by_query * left).sum(axis=1, keepdims=True) * left) / lengths[0]
    else:
        by_query *= 2.0
    gradient = by_query.T @ anchors
    if fixed:
        return Evaluation(value, gradient)
    by_point = slope.T @ left
    if similarity == "cosine":
        by_point = (by_point - (by_point * right).sum(axis=1, keepdims=True) * right) / lengths[1]
    else:
        by_point = 2.0 * (by_point - slope.sum(axis=0)[:, None] * right)
    return Evaluation(value, gradient + by_point.T @ candidates)


def held_out_gains(
    A: np.ndarray | None,
    anchors: np.ndarray,
    candidates: np.ndarray,
    positives: np.ndarray,
    masked: np.ndarray,
    *,
    similarity: str,
    fixed: bool = False,
    top: int | None = None,
) -> np.ndarray:
    """Return ``1 / log2(1 + rank)`` of each anchor's positive among the candidates (nDCG of one relevant row).

    With `top` it is 0 beyond this rank. The rows are compared as they are if A is None; other arguments are those of
    `anchor_objective`.
    """
    queries = anchors if A is None else anchors @ A.T
    points = candidates if A is None or fixed else candidates @ A.T
    if similarity == "cosine":
        scores = queries @ (points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-30)).T
    else:
        scores = queries @ points.T - 0.5 * np.square(points).sum(axis=1)
    positive_scores = scores[np.arange(len(anchors)), positives].copy()
    scores[masked] = -np.inf
    scores[np.arange(len(anchors)), positives] = -np.inf
    ahead = (scores > positive_scores[:, None]).sum(axis=1) + 0.5 * (scores == positive_scores[:, None]).sum(axis=1)
    return np.where(True if top is None else ahead < top, 1.0 / np.log2(2.0 + ahead), 0.0)
