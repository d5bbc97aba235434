r"""Measures of a ranking from the grades of the rows that were found, best first.

With grades :math:`g_1, g_2, \ldots` of the rows found for a query, R relevant rows, and :math:`h_i = 1[g_i > 0]`:

- precision@k :math:`= \frac1k \sum_{i \le k} h_i`, recall@k :math:`= \frac1R \sum_{i \le k} h_i`;
- MRR: the mean of the reciprocal rank of the first relevant row;
- nDCG@k :math:`= \sum_{i \le k} g_i / \log_2(i + 1)`, divided by the same sum for the best possible ranking;
- MAP: the mean of :math:`\frac1R \sum_i h_i \frac1i \sum_{j \le i} h_j`.

MRR and MAP use the first `depth` ranks; a relevant row beyond them counts as not found.
"""

import numpy as np

from vicinal._retrieval.relevance import Relevance


def measures_of(found: np.ndarray, relevance: Relevance, ks: tuple[int, ...], depth: int) -> dict[str, np.ndarray]:
    """Return the measures of each query by name; each query has a relevant row.

    Parameters
    ----------
    found : int array of shape (m, depth)
        The rows that were found, best first.
    ks : tuple of int
        The cutoffs, none of which exceeds `depth`.
    """
    grades = relevance.grades(found)
    hits = grades > 0
    seen = np.cumsum(hits, axis=1)
    total = relevance.totals
    measures = {}
    for k in ks:
        measures[f"recall@{k}"] = seen[:, k - 1] / total
    for k in ks:
        measures[f"precision@{k}"] = seen[:, k - 1] / k
    for k in ks:
        measures[f"nDCG@{k}"] = discounted(grades[:, :k]) / discounted(relevance.ideal(k))
    first = np.argmax(hits, axis=1)
    measures[f"MRR@{depth}"] = np.where(hits.any(axis=1), 1.0 / (first + 1), 0.0)
    measures[f"MAP@{depth}"] = (hits * seen / np.arange(1, depth + 1)).sum(axis=1) / total
    return measures


def discounted(grades: np.ndarray) -> np.ndarray:
    """Return the discounted cumulative gain of each row of grades."""
    return grades @ (1.0 / np.log2(np.arange(2, grades.shape[1] + 2)))
