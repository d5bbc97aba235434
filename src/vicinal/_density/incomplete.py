"""Outliers among rows with missing values: each is ranked among the training rows by its known columns."""

from typing import Any, NamedTuple

import numpy as np

from vicinal._density.outlier_threshold import Ranks, outlier_threshold
from vicinal._density.training_rows import last_step, weights_in


class ScoredRows(NamedTuple):
    """The results for rows: scores (an outlier is below the detector's ``offset_``), p-values and log-densities."""

    scores: np.ndarray
    p_values: np.ndarray
    log_densities: np.ndarray


def score_incomplete_rows(detector: Any, X: np.ndarray, own: np.ndarray | None = None) -> ScoredRows:
    """Score rows with missing values as new rows, or as training rows without themselves.

    Log-densities of different numbers of columns cannot be compared. Each row is therefore compared with the training rows
    under the marginal density of its known columns, with each training row left out. The threshold for outliers comes from
    the same scores, by the rule of the detector. A row without known values is not an outlier.

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
    mixture, weight = density._mixture(), weights_in(density)
    rows = np.asarray(X)[:, density.active_features_]
    judged = ScoredRows(np.full(len(rows), detector.offset_ + 1.0), np.ones(len(rows)), np.zeros(len(rows)))
    patterns, pattern_of = np.unique(np.isnan(rows), axis=0, return_inverse=True)
    for p, gaps in enumerate(patterns):
        mine, known = np.flatnonzero(pattern_of.reshape(-1) == p), np.flatnonzero(~gaps)
        if not len(known):
            continue
        marginal = mixture.marginal(known) if gaps.any() else mixture
        training = marginal.left_out_score_samples()
        scores = marginal.score_samples(rows[np.ix_(mine, known)]) if own is None else training[own[mine]]
        ranks = Ranks.of(training, weight)
        itself = 1.0 if own is None else 0.0  # a training row is among them already
        judged.p_values[mine] = (itself + ranks.weight_below(scores)) / (len(training) + itself)
        judged.scores[mine] = detector.offset_ + scores - outlier_threshold(ranks, detector.contamination)
        judged.log_densities[mine] = scores
    return judged
