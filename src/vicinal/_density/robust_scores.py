"""Scores of the training rows that hold up if some of these rows are outliers.

"Which of these rows are unusual?" and "is this new row unlike them?" are different questions.  A new row is compared with all
training rows, because these are the only information about ordinary rows.  The training rows themselves may include outliers, which should not
count as neighbours: the most unusual rows are left out as neighbours (they keep a score), and all rows are compared with the rest.
"""

from typing import Any

import numpy as np

from vicinal._density.groups import ScoreScale, TrainingViews, scale_of_scores, strangest_of, weighted_quantile
from vicinal._density.loo_bandwidth import LOO_PASSES
from vicinal._engine import Neighbors, is_streamed, prepare
from vicinal._mixtures import SharedMixture

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
