"""Scores of rows, low for outliers: views of a row at several distances, on one scale, and ranks.

1. The log-density; of a training row, under a density that was computed without it.
2. The kernel at the k-th nearest row, where k is a share of the rows: that neighbour is outside of any smaller group of outliers.
3. For training rows only: the kernel at the twentieth nearest row, between the two.

The views need nothing of a density but its log-densities and the units of its distances (`Part`), so that they exist for every density.

"Which of these rows are unusual?" and "is this new row unlike them?" are different questions.  The training rows themselves may include
groups of outliers, which raise each other's density: they are ranked by the lowest view.  A new row is compared with all training
rows, because these are the only information about ordinary rows: its score is the log-density.  If many of the most unusual training rows
are dense, a group of outliers hides among them, and then the lower of the first two views counts for new rows as well.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from vicinal._engine import is_streamed, prepare

_FEWEST_ROWS = 10  # with fewer rows, groups are not considered
_FEWEST_NEIGHBORS = 3
# The k-th neighbour is far away, so a sample of this many rows represents all of them.
_MOST_REFERENCES = 400
_QUERIES = 20_000  # rows at a time, because a copy of all rows of a large table would fill the memory
_NEIGHBOR = 20  # the neighbour of the third view
LARGEST_GROUP = 0.1  # of "auto"
# A group hides if more than a fifth of the most unusual 5 % of the rows do not belong to the least dense quarter of all rows. The most
# unusual rows of a table without outliers have a low density.
_MOST_UNUSUAL, _HIDING, _LEAST_DENSE = 0.05, 0.2, 0.25


class Part(NamedTuple):
    """Some training rows, and the density that scores them, which was computed without them (or without each of them).

    positions : (m,), which of the training rows
    rows : (n, d), all training rows, as this density takes them
    units : (d, d), or (d,) for a diagonal: the map to coordinates in which distances between rows are compared
    engine : the engine of the density
    log_densities : (m,)
    asked : (n, d), the training rows as queries, if these have other coordinates: levels that depend on the row itself
    """

    positions: np.ndarray
    rows: np.ndarray
    units: np.ndarray
    engine: Any
    log_densities: np.ndarray
    asked: np.ndarray | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the part is all training rows."""
        return len(self.positions) == len(self.rows)

    @property
    def queries(self) -> np.ndarray:
        """The m rows."""
        rows = self.rows if self.asked is None else self.asked
        return rows if self.is_whole else rows[self.positions]


class ScoreScale(NamedTuple):
    """The median and the distance between the quartiles of scores."""

    median: float
    width: float


class GroupScores(NamedTuple):
    """What the second score of new rows needs: the reference rows, the units of distances, and the scales of both scores."""

    rows: np.ndarray  # (r, d)
    units: np.ndarray  # as in `Part`
    largest_group: float
    scales: np.ndarray  # (2, 2): the median and the width of the log-densities, and of the second score

    def lowest(self, log_densities: np.ndarray, X: np.ndarray, engine: Any) -> np.ndarray:
        """Return the lower of the two scores of new rows."""
        near = kernel_at_kth(self.rows, self.units, engine, outside_of_groups(self.largest_group, len(self.rows)), X)
        return lowest_of([log_densities, near], [ScoreScale(*scale) for scale in self.scales])


class TrainingScores(NamedTuple):
    """The scores of the training rows, each computed without the row.

    log_densities : (n,)
    scores : (n,), by the function that scores new rows
    ranking : (n,), the scores whose order is that of the training rows
    groups : GroupScores, or None if the score of new rows is the log-density
    """

    log_densities: np.ndarray
    scores: np.ndarray
    ranking: np.ndarray
    groups: GroupScores | None


def training_scores(
    parts: Sequence[Part],
    rows: np.ndarray,
    units: np.ndarray,
    weight: np.ndarray | None,
    largest_group: float | str | None,
) -> TrainingScores:
    """Return the scores of the training rows.

    There is no second score if `largest_group` is None, for few rows, or if half of the rows have the same score, because
    then there is no scale on which scores can be compared.

    Parameters
    ----------
    parts : sequence of Part
        Each training row is in one of them.
    rows : array of shape (n, d)
        The training rows, as the density of all of them takes them.
    units : array of shape (d, d) or (d,)
        The units of that density, as in `Part`.
    weight : array of shape (n,), optional
    largest_group : float, "auto" or None
        The share of the rows that a group of outliers may have. "auto" is `LARGEST_GROUP`, and the second score of new rows is used
        only if a group hides in the training rows.
    """
    log_densities = _gathered(parts, [part.log_densities for part in parts])
    if np.isnan(log_densities).any():
        raise ValueError(
            f"cv left {int(np.isnan(log_densities).sum())} of {len(rows)} training rows without a score. Use folds "
            "that hold out every row once, such as KFold, and a density that returns numbers."
        )
    alone = TrainingScores(log_densities, log_densities, log_densities, None)
    if largest_group is None or len(rows) < _FEWEST_ROWS:
        return alone
    counts = np.ones(len(rows)) if weight is None else weight
    share = LARGEST_GROUP if isinstance(largest_group, str) else float(largest_group)
    reference = reference_positions(len(rows), weight)
    views = [log_densities, _kernels(parts, reference, outside_of_groups(share, len(reference)))]
    scales = [scale_of_scores(view, weight) for view in views]
    if not np.isfinite(scales).all() or min(scale.width for scale in scales) <= 0:
        return alone
    groups = GroupScores(rows[reference], units, share, np.array(scales))
    scores = lowest = lowest_of(views, scales)
    in_memory = not any(is_streamed(part.rows, part.engine) for part in parts)
    if outside_of_groups(share, len(rows)) > _NEIGHBOR and in_memory:
        near = _kernels(parts, np.flatnonzero(counts), _NEIGHBOR)
        if (scale := scale_of_scores(near, weight)).width > 0:
            lowest = lowest_of([*views, near], [*scales, scale])
    unusual = lowest < weighted_quantile(lowest, weight, _MOST_UNUSUAL)
    dense = log_densities > weighted_quantile(log_densities, weight, _LEAST_DENSE)
    hides = counts[unusual & dense].sum() > _HIDING * counts[unusual].sum()
    if isinstance(largest_group, str) and not hides:
        return TrainingScores(log_densities, log_densities, lowest, None)
    return TrainingScores(log_densities, scores, lowest, groups)


def _gathered(parts: Sequence[Part], scores: Sequence[np.ndarray]) -> np.ndarray:
    """Return the scores of all parts in the order of the training rows, NaN for rows in no part."""
    gathered = np.full(len(parts[0].rows), np.nan)
    for part, of_part in zip(parts, scores, strict=True):
        gathered[part.positions] = of_part
    return gathered


# -- the second score, and scales --------------------------------------------------------------------------------------


def reference_positions(n: int, weight: np.ndarray | None) -> np.ndarray:
    """Return the positions of the rows that are neighbours of the second score: all, or an even sample in proportion to weights."""
    shares = np.full(n, 1.0 / n) if weight is None else weight / weight.sum()
    cumulated = np.cumsum(shares)
    count = min(int(np.count_nonzero(shares)), _MOST_REFERENCES)
    return np.unique(np.searchsorted(cumulated, (np.arange(count) + 0.5) / count * cumulated[-1]))


def outside_of_groups(largest_group: float, n_rows: int) -> int:
    """Return the k of the nearest row that is outside of any group of this share of the rows."""
    return max(int(np.ceil(largest_group * n_rows)), _FEWEST_NEIGHBORS)


def _kernels(parts: Sequence[Part], neighbors: np.ndarray, k: int) -> np.ndarray:
    """Return the logarithm of the kernel of each training row at the k-th nearest of some training rows, without itself."""
    place = np.full(len(parts[0].rows), -1)
    place[neighbors] = np.arange(len(neighbors))

    def of_part(part: Part) -> np.ndarray:
        rows = part.rows if len(neighbors) == len(part.rows) else part.rows[neighbors]
        return kernel_at_kth(rows, part.units, part.engine, k, part.queries, place[part.positions])

    return _gathered(parts, [of_part(part) for part in parts])


def kernel_at_kth(
    rows: np.ndarray, units: np.ndarray, engine: Any, k: int, queries: np.ndarray, own: np.ndarray | None = None
) -> np.ndarray:
    """Return the logarithm of the kernel at the k-th nearest row: minus half the squared distance, in the units of the kernel.

    Parameters
    ----------
    rows : array of shape (r, d)
    units : array of shape (d, d) or (d,)
    engine : None, str or Engine
    k : int
        If there are fewer rows, the farthest counts.
    queries : array of shape (m, d)
    own : integer array of shape (m,), optional
        The position of each query among the rows, or -1: no row is its own neighbour.
    """
    if len(rows) == 1:  # it has no neighbour but itself
        own = None
    k = max(min(k, len(rows) - 1), 1)
    placed, squares = prepare(engine, rows).at(units), np.empty(len(queries))
    for start in range(0, len(queries), _QUERIES):
        block = slice(start, start + _QUERIES)
        squares[block] = placed.nearest(k, queries[block], None if own is None else own[block]).scores[:, -1]
    return -0.5 * squares


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


def lowest_of(views: Sequence[np.ndarray], scales: Sequence[ScoreScale]) -> np.ndarray:
    """Return the lowest score of each row, after all scores were given the median and quartile distance of the first."""
    first = scales[0]
    return np.min(
        [
            first.median + (scores - scale.median) * (first.width / scale.width)
            for scores, scale in zip(views, scales, strict=True)
        ],
        axis=0,
    )


# -- ranks -------------------------------------------------------------------------------------------------------------


class Ranks(NamedTuple):
    """Scores in increasing order, and their cumulative weights, which are scaled to mean 1."""

    in_order: np.ndarray
    cumulated: np.ndarray

    @classmethod
    def of(cls, scores: np.ndarray, weight: np.ndarray | None) -> "Ranks":
        """Return the ranks of scores."""
        order = np.argsort(scores)
        if weight is None:
            return cls(scores[order], np.arange(1.0, len(scores) + 1.0))
        return cls(scores[order], np.cumsum(weight[order] * (len(weight) / max(weight.sum(), np.finfo(float).tiny))))

    def weight_below(self, scores: np.ndarray) -> np.ndarray:
        """Return the weight of the ranked scores that are not higher than each of some scores."""
        return np.append(0.0, self.cumulated)[np.searchsorted(self.in_order, scores, side="right")]

    def at_weight(self, weight: np.ndarray) -> np.ndarray:
        """Return the scores at which the cumulative weight reaches some weights; between two ranks, one between their scores."""
        places = np.minimum(np.searchsorted(self.cumulated, weight - 1e-9, side="left"), len(self.in_order) - 1)
        before, upper = np.append(0.0, self.cumulated)[places], self.in_order[places]
        lower = np.append(self.in_order[0] - 1.0, self.in_order)[places]
        if not np.isfinite(self.in_order[0]):
            return upper
        share = (weight - before) / np.maximum(self.cumulated[places] - before, np.finfo(float).tiny)
        return np.where(share > 1.0 - 1e-9, upper, lower + np.clip(share, 0.0, 1.0) * (upper - lower))

    def p_values(self, scores: np.ndarray) -> np.ndarray:
        """Return the p-values of scores of new rows."""
        return (1.0 + self.weight_below(scores)) / (len(self.in_order) + 1.0)

    def scores_at(self, p_values: np.ndarray, depths: np.ndarray) -> np.ndarray:
        """Return scores of new rows whose p-values are known, lower by their depth if they are below all ranked scores."""
        weight = p_values * (len(self.in_order) + 1.0) - 1.0
        lowest = self.in_order[np.isfinite(self.in_order)][0]
        return np.where(weight <= 1e-9, np.nextafter(lowest, -np.inf) - depths, self.at_weight(weight))

    def threshold(self, level: float) -> float:
        """Return the score below which the p-value of a new row is at most a level; the lowest score if no p-value is so small."""
        finite = np.isfinite(self.in_order)
        if not finite.any():
            raise ValueError(
                "every training row has density 0 under the others, so they cannot be ranked. Increase the "
                "density's bandwidth."
            )
        # Density 0 (a kernel of bounded support) is below everything, and stays below the threshold.
        scores = np.where(finite, self.in_order, self.in_order[finite][0] - 1.0)
        place = int(np.searchsorted(self.cumulated, level * (len(scores) + 1.0) - 1.0 + 1e-9, side="right"))
        return float(scores[min(place, len(scores) - 1)])
