"""Scores of rows: the scales on which scores are compared, groups of outliers, scores of training rows that do not depend on outliers among them, and ranks."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import false_discovery_control

from vicinal._checks import check_positive
from vicinal._density.loo_bandwidth import LOO_PASSES
from vicinal._engine import Neighbors, is_streamed, prepare
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


# The share of the rows that are left out as neighbours. It is too small to remove a cluster of the data.
_LEFT_OUT = 0.05
_NEIGHBOR = 5  # the neighbour whose distance is the third score
_LISTED = 10  # neighbours that are listed, so that five remain without those that are left out


def robust_scores(mixture: Any, views: TrainingViews, weight: np.ndarray | None) -> np.ndarray | None:
    """Return scores of the training rows, low for outliers, also for those that raise each other's density.

    There are three scores per row: the log-density, the kernel at a row outside of small groups, and the kernel at the fifth
    nearest row.  All of them have the scale of the first, and the lowest counts.  Twice, the 5 % of the rows whose scores are
    lowest are left out as neighbours.  The first time only the fifth neighbours are found again, from the lists of
    neighbours.  The second time the densities are computed again as well, which takes one pass over all pairs.  The neighbour
    outside of groups is so far away that leaving out a few rows hardly changes its distance, so it stays.

    Parameters
    ----------
    mixture : SharedMixture, or one whose components are on the workers of a cluster
        Its centres are the training rows.
    views : TrainingViews
        The log-densities and the scores of groups.
    weight : array of shape (n,), optional

    Returns
    -------
    array of shape (n,) or None
        None if there are too few neighbours, or if the rows stay in a file or on the workers of a cluster, where only densities can
        be computed.
    """
    if not isinstance(mixture, SharedMixture) or is_streamed(mixture.centres, mixture.engine):
        return None
    counted = np.ones(len(mixture.centres), dtype=bool) if weight is None else weight > 0
    if counted.sum() < _NEIGHBOR + 2:
        return None
    density, groups = views.scores
    listed = mixture.placement(len(counted), LOO_PASSES).nearest(min(_LISTED, int(counted.sum()) - 1))
    near = _fifth_nearest(mixture, listed, counted)
    for passes in (0, 1):
        kept = _without_strangest(_strangest([density, groups, near], weight), weight, counted)
        near = _fifth_nearest(mixture, listed, kept)
        if passes:
            density = _densities_of(mixture, kept)
    return _strangest([density, groups, near], weight)


def _strangest(views: list[np.ndarray], weight: np.ndarray | None) -> np.ndarray:
    """Return the lowest of the scores, without those that most rows share."""
    scales = [scale_of_scores(view, weight) for view in views]
    usable = [place for place, scale in enumerate(scales) if scale.width > 0 or place == 0]
    first = scales[0] if scales[0].width > 0 else ScoreScale(scales[0].median, 1.0)
    return strangest_of([views[place] for place in usable], [first, *(scales[place] for place in usable[1:])])


def _without_strangest(scores: np.ndarray, weight: np.ndarray | None, counted: np.ndarray) -> np.ndarray:
    """Return which rows remain neighbours: at least 95 % of those that count, and of their weight."""
    line = weighted_quantile(scores[counted], None, _LEFT_OUT)
    if weight is not None:
        line = min(line, weighted_quantile(scores, weight, _LEFT_OUT))
    return counted & (scores >= line)


def _densities_of(mixture: SharedMixture, kept: np.ndarray) -> np.ndarray:
    """Return the log-density of each row under the rows that are kept, without itself."""
    rest = SharedMixture(mixture.centres[kept], mixture.covariance, mixture.log_weights[kept], mixture.engine)
    # Rows among themselves take half a sweep; the few others are new to them.
    scores = np.empty(len(kept))
    scores[kept] = rest.left_out_score_samples(LOO_PASSES)
    if not kept.all():  # of a few rows, none is left out
        scores[~kept] = rest.score_samples(mixture.centres[~kept])
    return scores


def _fifth_nearest(mixture: SharedMixture, listed: Neighbors, kept: np.ndarray) -> np.ndarray:
    """Return the logarithm of the kernel at the fifth nearest of the rows that are kept."""
    k = min(_NEIGHBOR, int(kept.sum()) - 1)
    rank = np.cumsum(kept[listed.indices], axis=1)
    squares = listed.scores[np.arange(len(rank)), np.argmax(rank == k, axis=1)]
    short = np.flatnonzero(rank[:, -1] < k)  # rows whose neighbours were left out
    if len(short):
        place = np.where(kept, np.cumsum(kept) - 1, -1)
        placed = prepare(mixture.engine, mixture.centres[kept], n_queries=len(short)).at(mixture.kernel_units)
        squares[short] = placed.nearest(k, mixture.centres[short], place[short]).scores[:, -1]
    return -0.5 * squares


def check_outlier_parameters(detector: Any) -> None:
    """Raise an error for values of contamination, largest_group and fdr that are out of range."""
    contamination, largest_group, fdr = detector.contamination, detector.largest_group, detector.fdr
    if check_positive(contamination, "contamination") > 0.5:
        raise ValueError(f"contamination must be at most 0.5, got {contamination}: outliers must be a minority.")
    if largest_group is not None and check_positive(largest_group, "largest_group") >= 0.5:
        raise ValueError(
            f"largest_group must be less than 0.5, got {largest_group}: a group of outliers must be a minority. Pass None "
            "to score by the density alone."
        )
    if fdr is not None and check_positive(fdr, "fdr") >= 1.0:
        raise ValueError(f"fdr must be less than 1, got {fdr}: it is a share of the rows that are flagged.")


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


def labels_of(detector: Any, scores: np.ndarray) -> np.ndarray:
    """Return -1 for outliers and 1 for other rows, given the scores of all rows; with ``fdr``, these are tested together."""
    if detector.fdr is None:
        return np.where(scores < detector.offset_, -1, 1)
    return np.where(false_discovery_control(detector.p_values_from_scores(scores)) <= detector.fdr, -1, 1)


def labels_in_blocks(detector: Any) -> Any:
    """Return the dtype of predictions for the blocks of a collection; raise if predictions need all rows together."""
    if detector.fdr is not None:
        raise ValueError(
            "fdr tests all rows together, but the blocks of a Dask collection are processed one by one. Pass "
            "p_values(X).compute() to scipy.stats.false_discovery_control, or set fdr=None."
        )
    return np.dtype(np.int64)
