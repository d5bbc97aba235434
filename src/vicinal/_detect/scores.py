"""Scores of rows, low for outliers: views of a row, one scale for all of them, and ranks.

1. The log-density; of a training row, under a density that was computed without it.
2. The kernel at the k-th nearest row, where k is a share of the rows: that neighbour is outside of any smaller group of outliers.
3. For training rows only: the kernel at the fifth nearest of the rows that are left as neighbours.

The views need nothing of a density but its log-densities and the units of its distances (`Part`), so that they exist for every density.

"Which of these rows are unusual?" and "is this new row unlike them?" are different questions.  A new row is compared with all training
rows, because these are the only information about ordinary rows: its score is the log-density.  The training rows themselves may include
outliers, which should not count as neighbours: the lowest view counts, the most unusual rows are left out as neighbours (they keep a
score), and all rows are compared with the rest.  If many of the rows that are left out are dense, a group of outliers hides in the
training rows, and then the lower of the first two views counts for new rows as well.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from vicinal._engine import is_streamed, prepare

_FEWEST_ROWS = 10  # with fewer rows, groups are not considered
_FEWEST_NEIGHBORS = 3
# The k-th neighbour is far away, so a sample of this many rows represents all of them.
_MOST_REFERENCES = 400
_QUERIES = 20_000  # rows at a time, because a copy of all rows of a large table would fill the memory
# The share of the rows that are left out as neighbours. It is too small to remove a cluster of the data.
_LEFT_OUT = 0.05
_NEIGHBOR = 5  # the neighbour whose distance is the third view
LARGEST_GROUP = 0.1  # of "auto"
# If more than a fifth of the rows that are left out do not belong to the least dense quarter of all rows, a group hides among them. Among
# rows without outliers, those that are left out have a low density.
_HIDING, _LEAST_DENSE = 0.2, 0.25


class Part(NamedTuple):
    """Some training rows, and the density that scores them, which was computed without them (or without each of them).

    positions : (m,), which of the training rows
    rows : (n, d), all training rows, as this density takes them
    units : (d, d), or (d,) for a diagonal: the map to coordinates in which distances between rows are compared
    engine : the engine of the density
    log_densities : the log-densities of the m rows; its argument is None, or (n,): which training rows remain in the density
    asked : (n, d), the training rows as queries, if these have other coordinates: levels that depend on the row itself
    """

    positions: np.ndarray
    rows: np.ndarray
    units: np.ndarray
    engine: Any
    log_densities: Callable[[np.ndarray | None], np.ndarray]
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
    log_densities = _gathered(parts, [part.log_densities(None) for part in parts])
    if np.isnan(log_densities).any():
        raise ValueError(
            f"cv left {int(np.isnan(log_densities).sum())} of {len(rows)} training rows without a score. Use folds "
            "that hold out every row once, such as KFold, and a density that returns numbers."
        )
    alone = TrainingScores(log_densities, log_densities, log_densities, None)
    if largest_group is None or len(rows) < _FEWEST_ROWS:
        return alone
    share = LARGEST_GROUP if isinstance(largest_group, str) else float(largest_group)
    reference = reference_positions(len(rows), weight)
    own = np.full(len(rows), -1)
    own[reference] = np.arange(len(reference))

    def kernel_outside_of_groups(part: Part) -> np.ndarray:
        neighbors, itself = part.rows[reference], own[part.positions]
        k = outside_of_groups(share, len(neighbors))
        return kernel_at_kth(neighbors, part.units, part.engine, k, part.queries, itself)

    views = [log_densities, _gathered(parts, [kernel_outside_of_groups(part) for part in parts])]
    scales = [scale_of_scores(view, weight) for view in views]
    if not np.isfinite(scales).all() or min(scale.width for scale in scales) <= 0:
        return alone
    groups = GroupScores(rows[reference], units, share, np.array(scales))
    lowest = lowest_of(views, scales)
    if any(is_streamed(part.rows, part.engine) for part in parts):  # only densities of rows in a file are computed
        ranking, hides = lowest, False
    else:
        counted = np.ones(len(rows), dtype=bool) if weight is None else weight > 0
        remaining = _without_lowest(lowest, weight, counted)
        density = _gathered(parts, [part.log_densities(remaining) for part in parts])
        near = _gathered(parts, [_kernel_at_fifth(part, remaining) for part in parts])
        ranking = _lowest([density, views[1], near], weight)
        left_out = counted & ~_without_lowest(ranking, weight, counted)
        dense = log_densities > weighted_quantile(log_densities, weight, _LEAST_DENSE)
        hides = bool((left_out & dense).sum() > _HIDING * left_out.sum())
    if isinstance(largest_group, str) and not hides:
        return TrainingScores(log_densities, log_densities, ranking, None)
    return TrainingScores(log_densities, lowest, ranking, groups)


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


def _kernel_at_fifth(part: Part, remaining: np.ndarray) -> np.ndarray:
    """Return the logarithm of the kernel at the fifth nearest of the training rows that remain as neighbours."""
    place = np.where(remaining, np.cumsum(remaining) - 1, -1)[part.positions]
    return kernel_at_kth(part.rows[remaining], part.units, part.engine, _NEIGHBOR, part.queries, place)


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


# -- the training rows -------------------------------------------------------------------------------------------------


def _lowest(views: list[np.ndarray], weight: np.ndarray | None) -> np.ndarray:
    """Return the lowest of the scores, without those that most rows share."""
    scales = [scale_of_scores(view, weight) for view in views]
    usable = [place for place, scale in enumerate(scales) if scale.width > 0 or place == 0]
    first = scales[0] if scales[0].width > 0 else ScoreScale(scales[0].median, 1.0)
    return lowest_of([views[place] for place in usable], [first, *(scales[place] for place in usable[1:])])


def _without_lowest(scores: np.ndarray, weight: np.ndarray | None, counted: np.ndarray) -> np.ndarray:
    """Return which rows remain neighbours: at least 95 % of those that count, and of their weight."""
    line = weighted_quantile(scores[counted], None, _LEFT_OUT)
    if weight is not None:
        line = min(line, weighted_quantile(scores, weight, _LEFT_OUT))
    return counted & (scores >= line)


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
