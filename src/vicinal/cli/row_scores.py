"""Scores, p-values and explanations of rows for `score`, `outliers` and `report`."""

import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vicinal._detect.scored_table import reasons_of_rows, scored_table
from vicinal._mixtures import Mixture
from vicinal.cli.console import Console, Messages, count, one_line
from vicinal.cli.errors import DATA, FIT, MODEL, USAGE, Failure
from vicinal.cli.sharing import ROWS_IN_PART, each_part

if TYPE_CHECKING:
    import pandas as pd

    from vicinal._detect.outliers import DensityOutlierDetector
    from vicinal.cli.models import Model


_MANY_ROWS = 50_000
_NEIGHBORS_SECONDS = 4e-5  # per row, for its nearest neighbours


def rows_to_score(model: "Model", table: "pd.DataFrame", picked: Any) -> Any:
    """Return the rows that were picked, as the pipeline of the model takes them."""
    if model.encoder is not None:
        return table.iloc[picked.rows].reset_index(drop=True)
    return picked.features if model.names is not None else picked.features.to_numpy()


def note_training_rows(own: np.ndarray, console: Messages) -> None:
    """Print how many rows are training rows, which are scored without themselves."""
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
        raise Failure(MODEL, one_line(error)) from error
    except (ValueError, TypeError) as error:
        raise Failure(DATA, one_line(error)) from error


def parts_of(features: "pd.DataFrame") -> list[Any]:
    """Return the parts of a table that are given to a model one after the other."""
    rows = getattr(features, "iloc", features)
    return [rows[start : start + ROWS_IN_PART] for start in range(0, max(len(features), 1), ROWS_IN_PART)]


def score_table(
    detector: "DensityOutlierDetector", table: "pd.DataFrame | None", as_new: bool, console: Messages
) -> "tuple[pd.DataFrame, np.ndarray]":
    """Return the scores of rows, part by part, and for each row the position of the training row that it is, or -1."""
    import pandas as pd

    try:
        if table is None:
            return scored_table(detector, None)
        doing = f"scoring {count(len(table), 'row')}"
        found = each_part(partial(_score_part, detector, as_new), parts_of(table), console, doing)
    except (ValueError, TypeError) as error:
        raise Failure(DATA, one_line(error)) from error
    own = np.concatenate([positions for _, positions in found])
    note_training_rows(own, console)
    return pd.concat([part for part, _ in found]), own


def _score_part(detector: "DensityOutlierDetector", as_new: bool, part: "pd.DataFrame") -> Any:
    return scored_table(detector, part, as_new=as_new)


def explain_rows(detector: "DensityOutlierDetector", table: Any, own: np.ndarray, chosen: np.ndarray) -> list[str]:
    """Return why the chosen rows are unusual; an empty text for the others."""
    try:
        return reasons_of_rows(detector, table, own, chosen)
    except (TypeError, ValueError) as error:
        raise Failure(MODEL, f"--explain: {one_line(error)}") from error


class ScoringCost(NamedTuple):
    """The time that scoring takes, in seconds: for ranking the training rows, each without itself, and for 1,000 new rows."""

    ranking: float
    rows: float

    @classmethod
    def of(cls, density: Any) -> "ScoringCost | None":
        """Measure some rows of a density with many training rows; None if there are few, so that it takes no time."""
        mixture = getattr(density, "mixture_", None)
        if not isinstance(mixture, Mixture) or len(mixture.log_weights) < _MANY_ROWS:  # a metric may have no rows
            return None
        mixture = density._mixture()
        n = len(mixture.log_weights)
        sample = np.linspace(0, n - 1, 1000).astype(int)
        mixture.left_out_scores_of(mixture.centres[sample], sample)  # places the rows
        start = time.perf_counter()
        mixture.left_out_scores_of(mixture.centres[sample], sample)
        seconds = time.perf_counter() - start
        # Two passes over the pairs, and the neighbours of each row.
        return cls(2.0 * seconds * n / 1000 + _NEIGHBORS_SECONDS * n, seconds)


def detector_of(
    model: "Model", level: float | None = None, console: Messages | None = None
) -> "DensityOutlierDetector":
    """Return the detector that was saved, or one of the density as it was fitted: nothing is fitted again."""
    from sklearn.exceptions import NotFittedError

    from vicinal import DensityOutlierDetector

    if isinstance(model.estimator, DensityOutlierDetector):  # saved from Python
        if level not in (None, model.estimator.contamination):
            raise Failure(
                USAGE,
                "--level: the model is a DensityOutlierDetector, whose level was chosen when it was fitted. Omit --level.",
            )
        return DensityOutlierDetector.from_pipeline(model.pipeline)
    cost = None if console is None else ScoringCost.of(model.estimator)
    if cost is not None and console is not None:
        n = len(model.estimator.mixture_.log_weights)
        console.say(f"ranking the {n:,} training rows, each without itself; this takes about {cost.ranking:.0f} s ...")
    try:
        return DensityOutlierDetector.from_density(
            model.pipeline, **({} if level is None else {"contamination": level})
        )
    except NotFittedError as error:
        raise Failure(MODEL, one_line(error)) from error
    except (ValueError, TypeError) as error:
        raise Failure(FIT, f"the training rows cannot be scored without themselves: {one_line(error)}") from error


def level_text(detector: "DensityOutlierDetector") -> str:
    """Return the level of the flags, "p <= 0.01", and whether a p-value can be so small."""
    n, level = len(detector.training_scores_), detector.contamination
    if level * (n + 1) >= 1:
        return f"p <= {level:g}"
    return f"p <= {level:g}; the smallest p-value among {n:,} training rows is {1 / n:.2g}, see --level and --top"


def scores_and_reasons(
    model: "Model", table: "pd.DataFrame", console: Console, most: int
) -> "tuple[pd.DataFrame, np.ndarray, list[str]]":
    """Return the scores of rows, the positions of the `most` unusual ones, and why these are unusual."""
    detector = detector_of(model)
    scores, own = score_table(detector, table, False, console)
    strangest = np.argsort(scores["score"].to_numpy(), kind="stable")[:most]
    try:
        why = explain_rows(detector, table, own, strangest)
    except Failure:
        why = [""] * len(own)
    return scores, strangest, [why[i] for i in strangest]
