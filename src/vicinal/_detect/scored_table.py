"""Scores, p-values, flags and reasons of rows as a table: what `DensityOutlierDetector.scored_table` and the command return."""

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import _safe_indexing

from vicinal._detect.steps import Steps, log_steps
from vicinal._detect.training_rows import held_out_log_densities, positions_among, table_in

if TYPE_CHECKING:
    import pandas as pd


def scored_table(detector: Any, X: Any, *, as_new: bool = False) -> "tuple[pd.DataFrame, np.ndarray]":
    """Return the table without reasons, and for each row the position of the training row that it is, or -1.

    Parameters
    ----------
    detector : DensityOutlierDetector
        Fitted.
    X : table, or None for the training rows
    as_new : bool
        Whether rows that equal a training row are scored as new rows, and not without that training row.
    """
    import pandas as pd

    steps = Steps(detector.density_)
    if X is None:
        own = np.arange(len(detector.training_scores_))
        scores, log_densities = np.empty(len(own)), np.zeros(len(own))
        known = np.ones((len(own), 1)) if detector._gaps is None else detector._gaps == 0
        known = np.broadcast_to(known, (len(own), steps.density.n_features_in_))
    else:
        rows = detector._rows(X)
        own = np.full(len(rows.known), -1) if as_new else _own_positions(detector, steps, rows)
        scores, log_densities = detector._scored(rows)
        known = ~np.isnan(rows.known)
    p_values = detector.p_values_from_scores(scores)
    outliers = scores < detector.offset_
    mine = np.flatnonzero(own >= 0)
    if len(mine):
        scores[mine], p_values[mine] = detector.training_scores_[own[mine]], detector.training_p_values_[own[mine]]
        outliers[mine] = detector.labels_[own[mine]] == -1
        log_densities[mine] = _training_log_densities(detector, steps)[own[mine]]
    table = pd.DataFrame(
        {
            "score": scores,
            "p_value": p_values,
            "outlier": outliers.astype(int),
            "log_density": log_densities - np.nan_to_num(steps.log_volume(known)),
        },
        index=X.index if hasattr(X, "index") and hasattr(X, "columns") else None,
    )
    if steps.noise is not None and steps.noise.steps_.all() and not len(steps.noise.log):
        cells = log_steps(steps.noise)
        if len(cells) == known.shape[1]:  # a density in fewer dimensions has no probability of a row
            table["log_probability"] = table["log_density"] + known @ cells
    return table, own


def reasons_of_rows(detector: Any, X: Any, own: np.ndarray, chosen: np.ndarray, most: int = 3) -> list[str]:
    """Return why rows are unusual, for the chosen positions; an empty text for the others.

    Parameters
    ----------
    detector : DensityOutlierDetector
    X : table, or None for the training rows
    own : integer array of shape (m,)
        From `scored_table`.
    chosen : integer array
    most : int
        The number of reasons per row.
    """
    texts = [""] * len(own)
    new, mine = chosen[own[chosen] < 0], chosen[own[chosen] >= 0]
    for positions in (new, mine):
        if len(positions):
            its_rows = None if X is None else _safe_indexing(X, positions)
            explained = detector._explain_as_unusual(its_rows, own[positions] if positions is mine else None)
            for place, i in enumerate(positions):
                texts[i] = "; ".join(explained.reasons(place, most))
    return texts


def _own_positions(detector: Any, steps: Steps, rows: Any) -> np.ndarray:
    """Return for each row the position of an equal training row, or -1.

    The first draw of the noise on rounded columns is that of the first of equal training rows.
    """
    table = table_in(steps.density) if steps.by_column else None
    if table is None:
        return np.full(len(rows.known), -1)
    if detector._gaps is not None:
        table = np.where(detector._gaps == 1, np.nan, table)
    return positions_among(rows.versions[0], table)


def _training_log_densities(detector: Any, steps: Steps) -> np.ndarray:
    """Return the log-density of each training row without itself, by its known values."""
    if detector._gaps is None:
        return detector._log_densities
    scores, known = detector._log_densities.copy(), detector._known_training_rows(steps)
    incomplete = np.flatnonzero(detector._gaps.any(axis=1))
    scores[incomplete] = held_out_log_densities(steps.density, known, incomplete)
    return scores
