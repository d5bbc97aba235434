"""Scores, p-values and explanations of rows for `score` and `report`."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vicinal._app.console import Console, Messages, count, one_line
from vicinal._app.errors import DataFailure, FitFailure, ModelFailure, UsageFailure
from vicinal._app.sharing import ROWS_IN_PART, each_part
from vicinal._density.explanation import Explanation
from vicinal._density.gaps import incomplete_rows_in
from vicinal._density.incomplete import score_incomplete_rows
from vicinal._density.training_rows import (
    last_step,
    left_out_scores,
    positions_among,
    table_in,
)
from vicinal._tables import N_DRAWS, fills_in, log_steps

if TYPE_CHECKING:
    import pandas as pd

    from vicinal._app.models import Model
    from vicinal._density.outliers import DensityOutlierDetector


def scores_and_reasons(
    model: "Model", features: "pd.DataFrame", console: Console, most: int
) -> tuple[dict[str, np.ndarray], list[list[str]]]:
    """Return the scores of some rows, and explanations of the `most` unusual ones as a list of strings per row.

    Returns
    -------
    dict of arrays
        "score", "p_value", "log_density", "outlier", and "most_unusual": positions.
    list of list of str
        The explanations of the most unusual rows; empty lists if the density cannot explain rows.
    """
    detector = detector_of(model, "auto")
    versions = versions_of(model, features)
    own = training_rows_of(model, versions[0])
    note_training_rows(own, console)
    scores = scores_of_rows(model, detector, versions, own, console)
    scores["outlier"] = scores["score"] < detector.offset_
    scores["most_unusual"] = np.argsort(scores["score"], kind="stable")[:most]
    try:
        why = reasons_of(model, detector, features, own, np.isin(np.arange(len(own)), scores["most_unusual"]))
    except ModelFailure:
        return scores, [[] for _ in scores["most_unusual"]]
    return scores, [why[i] for i in scores["most_unusual"]]


def versions_of(model: "Model", features: "pd.DataFrame | None") -> list[Any]:
    """Return the rows under each draw of the noise on rounded columns; the rows themselves if there is no noise."""
    import pandas as pd

    if features is None or model.noise is None:
        return [features]
    numbers = features.to_numpy()
    return [
        pd.DataFrame(model.noise.draw(numbers, draw), columns=features.columns, index=features.index)
        for draw in range(N_DRAWS)
    ]


def note_training_rows(own: np.ndarray, console: Messages) -> None:
    n = int((own >= 0).sum())
    if n:
        equal, are, them = ("equals", "is", "it as a new row") if n == 1 else ("equal", "are", "them as new rows")
        console.say(
            f"{count(n, 'row')} of {len(own):,} {equal} a training row exactly, and {are} scored under the model without that row "
            f"(use --as-new to score {them})."
        )


def apply_to_rows(method: Any, features: "pd.DataFrame") -> np.ndarray:
    """Call a method on rows; its ValueErrors become failures of the data, other errors failures of the model."""
    from sklearn.exceptions import NotFittedError

    rows = features if getattr(method.__self__, "feature_names_in_", None) is not None else features.to_numpy()
    try:
        return np.asarray(method(rows))
    except (NotFittedError, NotImplementedError) as error:
        raise ModelFailure(one_line(error)) from error
    except (ValueError, TypeError) as error:
        raise DataFailure(one_line(error)) from error


def parts_of(features: "pd.DataFrame") -> list[Any]:
    """Return the parts of a table that are given to a model one after the other."""
    return [features.iloc[start : start + ROWS_IN_PART] for start in range(0, max(len(features), 1), ROWS_IN_PART)]


def scores_of_rows(
    model: "Model", detector: "DensityOutlierDetector", versions: list[Any], own: np.ndarray, console: Messages
) -> dict[str, np.ndarray]:
    """Return scores, p-values and log-densities: of training rows (``own >= 0``) without themselves, of others as new rows.

    Those of new rows are means over the draws of the noise on rounded columns. Each training row is scored with one draw,
    so that the p-value of a draw is comparable with that of a training row.
    """
    known = own >= 0
    if versions[0] is None:
        scores = {name: np.empty(len(own)) for name in ("score", "p_value", "log_density")}
    else:
        parts = [part for version in versions for part in parts_of(version)]
        found = each_part(partial(_scores_as_new, model, detector), parts, console, f"scoring {count(len(own), 'row')}")
        names = [*found[0]]
        scores = {
            name: np.concatenate([one[name] for one in found]).reshape(len(versions), -1).mean(axis=0) for name in names
        }
    if known.any():
        plain = left_out_scores(last_step(detector.density_))
        of_training = {
            "score": detector.training_scores_,
            "p_value": detector.training_p_values_,
            "log_density": detector.training_scores_ if plain is None else plain,  # None if they come from folds
        }
        scores = {name: np.where(known, of_training[name][own], values) for name, values in scores.items()}
        _score_own_gaps(model, detector, own, scores)
    return scores


def _score_own_gaps(
    model: "Model", detector: "DensityOutlierDetector", own: np.ndarray, scores: dict[str, np.ndarray]
) -> None:
    """Rank training rows with missing values by their known columns, as new rows are, each without itself."""
    density = last_step(detector.density_)
    training_rows = incomplete_rows_in(density)
    if training_rows is None:
        return
    mine = np.flatnonzero(own >= 0)
    gaps = np.isnan(training_rows[own[mine]])
    mine, gaps = mine[gaps.any(axis=1)], gaps[gaps.any(axis=1)]
    if len(mine):
        found = score_incomplete_rows(detector, training_rows[own[mine]], own[mine])
        for name, values in zip(("score", "p_value", "log_density"), found, strict=True):
            scores[name][mine] = values
    scores["log_density"][mine] += gaps @ _log_scale_of(model, gaps.shape[1])


def _log_scale_of(model: "Model", n_features: int) -> np.ndarray:
    """Return the logarithm of the scale of each column that the density uses."""
    from sklearn.preprocessing import StandardScaler

    scalers = [step for _, step in getattr(model.whole, "steps", [])[:-1] if isinstance(step, StandardScaler)]
    return sum((np.log(scaler.scale_) for scaler in scalers), np.zeros(n_features))


def _scores_as_new(
    model: "Model", detector: "DensityOutlierDetector", features: "pd.DataFrame"
) -> dict[str, np.ndarray]:
    """Return the same for rows that are all new, from their known values if they have missing values."""
    gaps = features.isna().to_numpy().any(axis=1)
    # A row that the model fills in has no gaps when the density scores it.
    if gaps.any() and hasattr(model.estimator, "marginal") and not fills_in(model.whole):
        return _scores_with_gaps(model, detector, features, gaps)
    scores = apply_to_rows(model.whole.score_samples if _is_detector(model) else detector.score_samples, features)
    return {
        "score": scores,
        "p_value": detector.p_values_from_scores(scores),
        "log_density": apply_to_rows(detector.density_.score_samples, _rows_for_detector(model, features)),
    }


def _scores_with_gaps(
    model: "Model", detector: "DensityOutlierDetector", features: "pd.DataFrame", gaps: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the same if some rows have missing values: those are ranked by their known columns, the others as usual."""
    rows = features[gaps]
    for _, step in getattr(model.whole, "steps", [])[:-1]:
        rows = step.transform(rows)
    found = score_incomplete_rows(detector, np.asarray(rows, dtype=np.float64))
    scores = {name: np.empty(len(features)) for name in ("score", "p_value", "log_density")}
    complete = {} if gaps.all() else _scores_as_new(model, detector, features[~gaps])
    for name, values in zip(scores, found, strict=True):
        scores[name][gaps] = values
        if complete:
            scores[name][~gaps] = complete[name]
    # The scales of the unknown columns are not part of these densities.
    unknown = features[gaps].isna().to_numpy()
    scores["log_density"][gaps] += unknown @ _log_scale_of(model, unknown.shape[1])
    return scores


def log_probabilities(
    model: "Model", log_density: np.ndarray, features: "pd.DataFrame | None", own: np.ndarray
) -> np.ndarray | None:
    """Return bounds on the log-probabilities of rows, NaN if a value was filled in; None if a column is not rounded.

    Parameters
    ----------
    model : Model
    log_density : array of shape (m,)
        In the units of the table.
    features : DataFrame or None
        The rows; None for the training rows.
    own : array of shape (m,)
        The positions of equal training rows, or -1.
    """
    if model.noise is None or not model.noise.steps_.all() or len(model.noise.log):
        return None
    gaps = _training_gaps(model, own) if features is None else features.isna().to_numpy()
    found = log_density + ~gaps @ log_steps(model.noise)
    return np.where(gaps.any(axis=1), np.nan, found) if fills_in(model.whole) else found


def _training_gaps(model: "Model", own: np.ndarray) -> np.ndarray:
    """Return which values of the training rows were missing."""
    from vicinal import DensityImputer

    steps = [step for _, step in getattr(model.whole, "steps", [])]
    densities = [model.estimator, *(step.density_ for step in steps if isinstance(step, DensityImputer))]
    rows = next((rows for rows in map(incomplete_rows_in, densities) if rows is not None), None)
    return np.zeros((len(own), model.n_features), dtype=bool) if rows is None else np.isnan(rows[own])


def reasons_of(
    model: "Model",
    detector: "DensityOutlierDetector",
    features: "pd.DataFrame | None",
    own: np.ndarray,
    outliers: np.ndarray,
) -> list[list[str]]:
    """Return explanations of the outliers, a list of strings per row; empty lists for the others."""
    flagged = np.flatnonzero(outliers)
    why: list[list[str]] = [[] for _ in outliers]
    new, known = flagged[own[flagged] < 0], flagged[own[flagged] >= 0]
    try:
        if len(new):
            rows = _rows_for_detector(model, features).iloc[new]
            found = detector.explain(rows if hasattr(detector, "feature_names_in_") else rows.to_numpy())
            for place, i in enumerate(new):
                why[i] = found.reasons(place)
        if len(known):
            found = _without_noise(model, detector.explain(None, rows=own[known]))
            for place, i in enumerate(known):
                why[i] = found.reasons(place)
    except (TypeError, ValueError) as error:
        raise ModelFailure(f"--explain: {one_line(error)}") from error
    return why


def _without_noise(model: "Model", found: Explanation) -> Explanation:
    """Return an explanation of training rows with their values as they were before noise was added to rounded columns."""
    if model.noise is None:
        return found
    values = found.values.copy()
    for j, kind in enumerate(model.encoder.feature_types_):
        if kind.kind == "lattice" and not kind.log:
            offset = kind.offset or 0.0
            values[:, j] = offset + kind.step * np.rint((values[:, j] - offset) / kind.step)
    return replace(found, values=values)


def _is_detector(model: "Model") -> bool:
    from vicinal import DensityOutlierDetector

    return isinstance(model.estimator, DensityOutlierDetector)


def _rows_for_detector(model: "Model", features: "pd.DataFrame") -> "pd.DataFrame":
    """Return rows as the detector takes them: after the steps before it, if it was saved as the last step of a pipeline."""
    import pandas as pd
    from sklearn.pipeline import Pipeline

    if not _is_detector(model) or not isinstance(model.whole, Pipeline) or len(model.whole) == 1:
        return features
    return pd.DataFrame(np.asarray(model.whole[:-1].transform(features)), index=features.index)


def detector_of(model: "Model", contamination: float | Literal["auto"]) -> "DensityOutlierDetector":
    """Return the detector that was saved, or one of the density as it was fitted: nothing is fitted again."""
    from sklearn.exceptions import NotFittedError

    from vicinal import DensityOutlierDetector

    if _is_detector(model):  # saved from Python
        if contamination not in ("auto", model.estimator.contamination):
            raise UsageFailure(
                "--contamination: the model is a DensityOutlierDetector, whose threshold was chosen when it was fitted. Omit "
                "--contamination."
            )
        return model.estimator
    try:
        return DensityOutlierDetector.from_density(model.whole, contamination=contamination)
    except NotFittedError as error:
        raise ModelFailure(one_line(error)) from error
    except (ValueError, TypeError) as error:
        raise FitFailure(f"the training rows cannot be scored without themselves: {one_line(error)}") from error


def training_rows_of(model: "Model", features: "pd.DataFrame") -> np.ndarray:
    """Return for each row the position of an equal training row, or -1.

    The first draw of the noise on rounded columns is that of the first of equal training rows.
    """
    from sklearn.pipeline import Pipeline

    from vicinal import DensityImputer, DensityOutlierDetector

    density, rows = model.whole, features
    while isinstance(density, (Pipeline, DensityOutlierDetector)):
        if isinstance(density, Pipeline):
            for _, step in density.steps[:-1]:
                known = incomplete_rows_in(step.density_) if isinstance(step, DensityImputer) else None
                if known is not None:
                    # The fit filled in a training row from the others, which gives other values than filling in a new row.
                    return positions_among((np.asarray(rows) - step.mean_) / step.scale_, known)
                rows = step.transform(rows)
            density = density[-1]
        else:
            density = density.density_
    incomplete = incomplete_rows_in(density)
    if incomplete is not None:
        return positions_among(np.asarray(rows), incomplete)
    table = table_in(density)
    return np.full(len(rows), -1) if table is None else positions_among(np.asarray(rows), table)
