"""Rows with missing values: the log-density of what is known of them, exactly."""

import numpy as np


def incomplete_log_density(mixture, X):
    """Log-density of each row's known entries under the marginal of those features; 0 for a row without any.

    Parameters
    ----------
    mixture : SharedMixture or FrameMixture
    X : array of shape (m, D), NaN where a value is missing

    Notes
    -----
    One marginal for each pattern of missing values, so the cost grows with the number of patterns.
    """
    patterns, pattern_of = np.unique(np.isnan(X), axis=0, return_inverse=True)
    pattern_of = pattern_of.reshape(-1)
    scores = np.zeros(len(X))
    for p, missing in enumerate(patterns):
        rows, known = np.flatnonzero(pattern_of == p), np.flatnonzero(~missing)
        if len(known) == X.shape[1]:
            scores[rows] = mixture.score_samples(X[rows])
        elif len(known):
            scores[rows] = mixture.marginal(known).score_samples(X[np.ix_(rows, known)])
    return scores
