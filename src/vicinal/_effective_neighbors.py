"""How many neighbours a softmax vicinity has."""

import numpy as np
from scipy.spatial.distance import cdist


def effective_neighbors(queries, points, pairs, *, log_weights=None, left_out=None):
    """The perplexity ``exp(H(p_i))`` of each row's softmax neighbours: the paper's estimate of K (sec. 2).

    ``H_i = log_sums_i - sum_j p_ij s_ij``, and the expected score follows from the softmax means of the
    coordinates and of their squares.
    """
    centre, same = points.mean(axis=0), queries is points
    points = points - centre
    queries = points if same else queries - centre
    squares = (points.astype(np.float64) ** 2).sum(1)
    largest = max(squares.max(), float((queries.astype(np.float64) ** 2).sum(1).max()))
    if np.finfo(points.dtype).eps * largest > (1e-3 if points.dtype == np.float32 else 1e-8):
        # Squares that large would drown the entropy in rounding.
        return _effective_neighbors_by_differences(queries, points, log_weights, left_out)
    offsets = 0.5 * squares if log_weights is None else 0.5 * squares - log_weights
    values = np.column_stack([points, offsets.astype(points.dtype)])
    log_sums, means = pairs.softmax_means(queries, points, values, log_weights=log_weights, left_out=left_out)
    queries = queries.astype(np.float64, copy=False)
    expected = (queries * means[:, :-1]).sum(1) - means[:, -1] - 0.5 * (queries**2).sum(1)
    most = len(points) - (0 if left_out is None else 1)
    return np.clip(np.exp(np.clip(log_sums - expected, 0.0, 700.0)), 1.0, max(most, 1))


def _effective_neighbors_by_differences(queries, points, log_weights, left_out):
    """The same from the differences themselves, a block of rows at a time: slow, and right at any scale."""
    answer = np.empty(len(queries))
    for start in range(0, len(queries), step := max(2**20 // len(points), 1)):
        block = slice(start, start + step)
        scores = -0.5 * cdist(queries[block], points, "sqeuclidean")
        if log_weights is not None:
            scores += log_weights
        if left_out is not None:
            hit = np.flatnonzero(left_out[block] >= 0)
            scores[hit, left_out[block][hit]] = -np.inf
        scores -= scores.max(axis=1, keepdims=True)
        p = np.exp(scores)
        total = p.sum(axis=1)
        entropy = np.log(total) - (p * np.where(p > 0, scores, 0.0)).sum(axis=1) / total
        answer[block] = np.exp(entropy)
    return answer
