"""Rows with missing values: each is ranked among the training rows by its known columns."""

from typing import Any, NamedTuple

import numpy as np

from vicinal._density.outlier_threshold import Ranks
from vicinal._density.steps import Steps
from vicinal._density.training_rows import weights_in
from vicinal._mixtures import known_patterns

# The least number of training rows with the same columns among which a row can be an outlier: among fewer, no p-value is below 5 %.
FEWEST = 19
_MOST = (
    4000  # training rows that are compared; if there are more with the same columns, an evenly spaced sample of them
)


class RowsByKnown(NamedTuple):
    """The results for rows with missing values.

    p_values : the share of the training rows with the same columns that are as unusual, with the row itself
    log_densities : of the known values
    depths : how far the log-density lies below that of all of these training rows, in nats; 0 if it does not
    """

    p_values: np.ndarray
    log_densities: np.ndarray
    depths: np.ndarray


def rank_by_known(
    steps: Steps, training_rows: np.ndarray, rows: np.ndarray, own: np.ndarray | None = None
) -> RowsByKnown:
    """Rank rows with missing values as new rows, or as training rows without themselves.

    Log-densities of different numbers of columns cannot be compared. Each row is therefore compared with the training rows
    under the marginal density of its known columns. Every training row is scored without itself, and only training rows that
    have these columns are compared: values that a fit has filled in are denser than others. The p-value of a row is 1 if it has no
    known values, or if hardly any training row has them all.

    Parameters
    ----------
    steps : Steps
        Its density is a mixture.
    training_rows, rows : arrays of shape (n, d) and (m, d)
        In the active columns of the density, NaN where a value is missing.
    own : array of shape (m,), optional
        The positions of the rows among the training rows, if they are training rows.
    """
    density, mixture = steps.density, steps.density._mixture()
    ranked = RowsByKnown(np.ones(len(rows)), np.zeros(len(rows)), np.zeros(len(rows)))
    weight = weights_in(density)
    for positions, known in known_patterns(rows):
        having = np.flatnonzero(~np.isnan(training_rows[:, known]).any(axis=1))
        compared = having[np.unique(np.linspace(0, len(having) - 1, min(len(having), _MOST)).astype(int))]
        if own is None:
            marginal = mixture.marginal(known) if len(known) < mixture.n_features else mixture
            scores = marginal.score_samples(np.ascontiguousarray(rows[np.ix_(positions, known)]))
        else:
            scores = _held_out_scores(density, training_rows, own[positions], known)
        ranked.log_densities[positions] = scores
        if len(compared) < FEWEST:
            continue
        training_scores = _held_out_scores(density, training_rows, compared, known)
        ranks = Ranks.of(training_scores, None if weight is None else weight[compared])
        itself = np.ones(len(positions)) if own is None else 1.0 - np.isin(own[positions], compared)
        ranked.p_values[positions] = (itself + ranks.weight_below(scores)) / (len(compared) + itself)
        ranked.depths[positions] = np.maximum(training_scores.min() - scores, 0.0)
    return ranked


def held_out_log_densities(density: Any, training_rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return the log-densities of the known values of training rows, each without the row; 0 without any known value."""
    scores = np.zeros(len(positions))
    for members, known in known_patterns(training_rows[positions]):
        scores[members] = _held_out_scores(density, training_rows, positions[members], known)
    return scores


def _held_out_scores(density: Any, training_rows: np.ndarray, positions: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return the log-densities of training rows by some columns, each without the row, as the density leaves it out."""
    scores = np.empty(len(positions))
    for part in density._held_out_rows(positions):
        rows = training_rows[positions[part.positions]]
        scores[part.positions] = part.scores(rows, np.arange(len(part.positions)), columns)
    return scores
