"""Groups of outliers: rows that are near each other and far from the rest.

Under a narrow leave-one-out kernel the members of a small group of outliers vouch for each other.  So each row is looked at
twice: with the density, which finds rows that are alone, and by the distance to its k-th nearest row, where k is as many
rows as the largest group of outliers may have.  That neighbour is not in the group, however tight the group is; and a
cluster of more rows than that has it inside.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vicinal._engine import prepare
from vicinal._mixtures import SharedMixture

FEWEST_ROWS = 10  # fewer have no groups
_FEWEST_NEIGHBORS = 3
# The k-th neighbour is far away, so that of more rows this many speak for all.
_MOST_REFERENCES = 400
_QUERIES = 20_000  # at a time: the neighbours of all rows of a large table would fill the memory


class ScoreScale(NamedTuple):
    """The median and the distance between the quartiles of scores."""

    median: float
    width: float


def weighted_quantile(values: np.ndarray, weight: np.ndarray | None, share: float) -> float:
    """Return the smallest value such that more than this share of the weight has at most that value."""
    order = np.argsort(values, kind="stable")
    cumulated = np.cumsum(np.ones(len(values)) if weight is None else weight[order])
    place = np.searchsorted(cumulated, share * cumulated[-1], side="right")
    return float(values[order[min(place, len(values) - 1)]])


def scale_of_scores(scores: np.ndarray, weight: np.ndarray | None) -> ScoreScale:
    """Return the median and the distance between the quartiles, by weight."""
    low, median, high = (weighted_quantile(scores, weight, share) for share in (0.25, 0.5, 0.75))
    return ScoreScale(median, high - low)


def reference_rows(mixture: SharedMixture) -> np.ndarray:
    """Return the positions of the centres that speak for all: all of them, or an even sample, in proportion to their
    weights."""
    shares = np.exp(mixture.log_weights)
    cumulated = np.cumsum(shares)
    n = min(int(np.count_nonzero(shares)), _MOST_REFERENCES)
    return np.unique(np.searchsorted(cumulated, (np.arange(n) + 0.5) / n * cumulated[-1]))


def group_scores(
    mixture: SharedMixture, reference: np.ndarray, largest_group: float, X: np.ndarray | None = None
) -> np.ndarray:
    """Return the logarithm of the kernel at the k-th nearest reference row: minus half the squared distance, in units of the kernel.

    Parameters
    ----------
    mixture : SharedMixture
        Its centres are the training rows.
    reference : integer array
        The positions of the training rows that are neighbours.
    largest_group : float
        k is this share of the reference rows, and at least 3.
    X : array of shape (m, d), optional
        Rows, taken as new. None scores the training rows, none of which is its own neighbour.
    """
    placed = prepare(mixture.engine, mixture.centres[reference]).at(mixture.kernel_units)
    k = min(max(int(np.ceil(largest_group * len(reference))), _FEWEST_NEIGHBORS), len(reference) - 1)
    queries, own = mixture.centres if X is None else X, None
    if X is None:
        own = np.full(len(queries), -1)
        own[reference] = np.arange(len(reference))
    squares = np.empty(len(queries))
    for start in range(0, len(queries), _QUERIES):
        some = slice(start, start + _QUERIES)
        squares[some] = placed.nearest(k, queries[some], None if own is None else own[some]).scores[:, -1]
    return -0.5 * squares


def strangest_of(views: Sequence[np.ndarray], scales: Sequence[ScoreScale]) -> np.ndarray:
    """Return the lowest score of each row, after all scores have been given the median and quartile distance of the
    first."""
    first = scales[0]
    return np.min(
        [
            first.median + (scores - scale.median) * (first.width / scale.width)
            for scores, scale in zip(views, scales, strict=True)
        ],
        axis=0,
    )
