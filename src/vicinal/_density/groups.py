"""Groups of outliers: rows that are near each other and far from the rest.

Under a narrow leave-one-out kernel, the members of a small group of outliers raise each other's density.  Each row is
therefore scored twice: by the density, which finds isolated rows, and by the distance to its k-th nearest row, where k is the
largest possible number of rows of a group of outliers.  That neighbour is outside the group, however tight the group is, but
inside a cluster of more than k rows.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from vicinal._engine import prepare
from vicinal._mixtures import SharedMixture

_FEWEST_ROWS = 10  # with fewer rows, groups are not considered
_FEWEST_NEIGHBORS = 3
# The k-th neighbour is far away, so a sample of this many rows represents all of them.
_MOST_REFERENCES = 400
_QUERIES = 20_000  # rows at a time, because a copy of all rows of a large table would fill the memory


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


def reference_rows(mixture: Any) -> np.ndarray:
    """Return the positions of the reference centres: all, or an evenly spaced sample in proportion to their weights."""
    shares = np.exp(mixture.log_weights)
    cumulated = np.cumsum(shares)
    n = min(int(np.count_nonzero(shares)), _MOST_REFERENCES)
    return np.unique(np.searchsorted(cumulated, (np.arange(n) + 0.5) / n * cumulated[-1]))


class TrainingViews(NamedTuple):
    """Two scores of each training row: the log-density and the score for groups."""

    scores: list[np.ndarray]
    scales: list[ScoreScale]
    reference: np.ndarray  # the positions of the training rows that are neighbours of the second score


def training_views(
    mixture: Any, log_densities: np.ndarray, largest_group: float, weight: np.ndarray | None
) -> TrainingViews | None:
    """Return the scores of the training rows, each without itself; None if there is no second score.

    There is none for few rows, or if half of the rows have the same density, because then there is no scale on which two
    scores can be compared.
    """
    if len(log_densities) < _FEWEST_ROWS:
        return None
    reference = reference_rows(mixture)
    scores = [log_densities, group_scores(mixture, reference, largest_group)]
    scales = [scale_of_scores(view, weight) for view in scores]
    return TrainingViews(scores, scales, reference) if min(scale.width for scale in scales) > 0 else None


def group_scores(mixture: Any, reference: np.ndarray, largest_group: float, X: np.ndarray | None = None) -> np.ndarray:
    """Return the logarithm of the kernel at the k-th nearest reference row: minus half the squared distance, in units of the kernel.

    Parameters
    ----------
    mixture : SharedMixture, or one whose components are on the workers of a cluster
        Its centres are the training rows.
    reference : integer array
        The positions of the training rows that are neighbours.
    largest_group : float
        k is this share of the reference rows, and at least 3.
    X : array of shape (m, d), optional
        New rows. None scores the training rows, none of which is its own neighbour.
    """
    near = _Near(mixture.centres[reference], mixture.kernel_units, mixture.engine, largest_group)
    if X is not None:
        return near.scores(X)
    own = np.full(len(mixture.log_weights), -1)
    own[reference] = np.arange(len(reference))
    return near.scores_of_centres(mixture, own)


class _Near(NamedTuple):
    """The rows that are neighbours for the scores of groups."""

    rows: np.ndarray
    kernel_units: np.ndarray
    engine: Any
    largest_group: float

    def scores_of_centres(self, mixture: SharedMixture, own: np.ndarray) -> np.ndarray:
        """Return the scores of the centres of a mixture; see `scores`."""
        return self.scores(mixture.centres, own)

    def scores(self, queries: np.ndarray, own: np.ndarray | None = None) -> np.ndarray:
        """Return the scores of rows; `own` is the position of each among the neighbours, or -1."""
        placed = prepare(self.engine, self.rows).at(self.kernel_units)
        n = len(self.rows)
        k = min(max(int(np.ceil(self.largest_group * n)), _FEWEST_NEIGHBORS), n - 1)
        squares = np.empty(len(queries))
        for start in range(0, len(queries), _QUERIES):
            some = slice(start, start + _QUERIES)
            squares[some] = placed.kth_squares(k, queries[some], None if own is None else own[some])
        return -0.5 * squares


def strangest_of(views: Sequence[np.ndarray], scales: Sequence[ScoreScale]) -> np.ndarray:
    """Return the lowest score of each row, after all scores were given the median and quartile distance of the first."""
    first = scales[0]
    return np.min(
        [
            first.median + (scores - scale.median) * (first.width / scale.width)
            for scores, scale in zip(views, scales, strict=True)
        ],
        axis=0,
    )
