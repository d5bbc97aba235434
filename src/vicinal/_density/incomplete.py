"""Outliers among rows with missing values: each is ranked among the training rows by its known columns."""

from typing import Any, NamedTuple

import numpy as np

from vicinal._density.gaps import incomplete_rows_in
from vicinal._density.outlier_threshold import Ranks, outlier_threshold
from vicinal._density.training_rows import last_step, weights_in

# The least number of training rows with the same columns among which a row can be an outlier: among fewer, no p-value is below 5 %.
_FEWEST = 19


class ScoredRows(NamedTuple):
    """The results for rows: scores (an outlier is below the detector's ``offset_``), p-values and log-densities."""

    scores: np.ndarray
    p_values: np.ndarray
    log_densities: np.ndarray


def score_incomplete_rows(detector: Any, X: np.ndarray, own: np.ndarray | None = None) -> ScoredRows:
    """Score rows with missing values as new rows, or as training rows without themselves.

    Log-densities of different numbers of columns cannot be compared. Each row is therefore compared with the training rows
    under the marginal density of its known columns. Every training row is scored without itself, as the detector scores complete
    rows (`_held_out_rows` of the density), and only training rows that have these columns are compared: values that a fit has
    filled in are denser than others. The threshold for outliers comes from the same scores, by the rule of the detector. A row is
    not an outlier if it has no known values, or if hardly any training row has them all.

    Parameters
    ----------
    detector : DensityOutlierDetector
        Fitted, on a density that is a mixture.
    X : array of shape (m, d)
        Rows in the form that the density takes, NaN where a value is missing.
    own : array of shape (m,), optional
        The positions of the rows among the training rows, if they are training rows. Their p-values are ranks, as those
        of complete training rows are.
    """
    density = last_step(detector.density_)
    mixture, table = density._mixture(), _TrainingRows(density)
    rows = np.asarray(X)[:, density.active_features_]
    judged = ScoredRows(np.full(len(rows), detector.offset_ + 1.0), np.ones(len(rows)), np.zeros(len(rows)))
    patterns, pattern_of = np.unique(np.isnan(rows), axis=0, return_inverse=True)
    for p, gaps in enumerate(patterns):
        mine, known = np.flatnonzero(pattern_of.reshape(-1) == p), np.flatnonzero(~gaps)
        if not len(known):
            continue
        compared, training, ranks = table.scores(known)
        if own is None:
            marginal = mixture.marginal(known) if gaps.any() else mixture
            scores = marginal.score_samples(rows[np.ix_(mine, known)])
        else:
            scores = training[np.searchsorted(compared, own[mine])]
        judged.log_densities[mine] = scores
        itself = 1.0 if own is None else 0.0  # a training row is among them already
        judged.p_values[mine] = (itself + ranks.weight_below(scores)) / (len(training) + itself)
        if len(training) >= _FEWEST:
            judged.scores[mine] = detector.offset_ + scores - outlier_threshold(ranks, detector.contamination)
    return judged


class _TrainingRows:
    """The training rows of a density, and their log-densities without themselves by some columns.

    Parameters
    ----------
    density : MixtureDensityMixin
    """

    def __init__(self, density: Any) -> None:
        incomplete = incomplete_rows_in(density)
        rows = density._training_rows() if incomplete is None else incomplete[:, density.active_features_]
        if rows is None:  # a model file of an earlier version
            rows = density._mixture().centres
        self._rows, self._weight = rows, weights_in(density)
        # Everything that is computed without some rows is computed once, for all sets of columns.
        self._parts = list(density._held_out_rows(np.arange(len(rows))))

    def scores(self, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray, Ranks]:
        """Return the positions of the rows that have these columns, their scores, and the ranks of these."""
        compared = np.flatnonzero(~np.isnan(self._rows[:, columns]).any(axis=1))
        scores = np.empty(len(self._rows))
        for part in self._parts:
            some = np.flatnonzero(np.isin(part.positions, compared))
            if len(some):
                scores[part.positions[some]] = part.scores(self._rows[part.positions[some]], some, columns)
        weight = None if self._weight is None else self._weight[compared]
        if weight is not None:
            weight = weight * (len(weight) / max(weight.sum(), np.finfo(np.float64).tiny))
        return compared, scores[compared], Ranks.of(scores[compared], weight)
