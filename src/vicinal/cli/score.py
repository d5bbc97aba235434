"""`vicinal score`: log-densities, p-values, flags and reasons of rows, by `DensityOutlierDetector.scored_table`."""

from argparse import Namespace
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from vicinal._detect.scored_table import reasons_of_rows, scored_table
from vicinal._words import count, one_line, shown
from vicinal.cli.columns import Picked, pick_features
from vicinal.cli.console import Console
from vicinal.cli.errors import DATA, FIT, MODEL, USAGE, Failure
from vicinal.cli.models import (
    Model,
    blocks_for,
    check_method,
    how_to_treat_gaps,
    load_model,
    make_engine,
    say_if_slow_to_rank,
)
from vicinal.cli.results import check_output, columns_to_keep, write_results
from vicinal.cli.tables import Block, is_large, table_options
from vicinal.cli.workers import each_part

if TYPE_CHECKING:
    import pandas as pd

    from vicinal._detect.outliers import DensityOutlierDetector


_EXPLAINED_AT_ONCE = 200  # rows
_MOST_EXPLAINED = 1_000  # outliers that `outliers` explains without being asked to


def score(arguments: Namespace, console: Console) -> None:
    """Run the command."""
    if (arguments.data is None) != arguments.training:
        raise Failure(USAGE, "score needs either DATA or --training.")
    check_output(arguments)
    model = load_model(arguments.model, make_engine(arguments))
    model.note_order(console)
    missing = how_to_treat_gaps(arguments, model, marginalise=True)
    check_method(model, "score_samples", "a metric without a density")
    if np.isnan(model.log_scale):
        console.warn(
            "the model transforms the features before the density, so log_density is in the transformed units."
        )
    if arguments.fdr is not None and arguments.training:
        raise Failure(
            USAGE,
            "--fdr is for new rows: the p-values of training rows are ranks, for which no false discovery rate can be controlled. "
            "Omit --fdr or --training.",
        )
    if model.detector is None:
        say_if_slow_to_rank(model.estimator, console)
    console.doing("ranking the training rows, each without itself")
    detector = detector_of(model, arguments.level)
    console.doing("scoring rows")
    frames = _frames(model, detector, missing, arguments, console)
    write_results(shown_rows(frames, detector, arguments, console), model.kind, arguments, console)


def _frames(
    model: Model, detector: "DensityOutlierDetector", missing: str, arguments: Namespace, console: Console
) -> "Iterator[pd.DataFrame]":
    """Yield the rows of the output, block by block."""
    if arguments.data is None:
        yield output_rows(detector, None, np.arange(len(detector.training_scores_)), None, arguments, console)
        return
    most, quiet = None, Console(quiet=True)
    if arguments.fdr is not None and is_large(arguments.data, table_options(arguments)):
        # All rows are considered together, so they are read twice.
        console.doing("scoring rows for the first time")
        scored = (scores_of_rows(detector, rows, arguments.as_new, quiet)[0]["p_value"]
                  for _, _, rows in _picked_blocks(model, missing, arguments, quiet))  # fmt: skip
        most = _largest_discovery(np.concatenate([np.empty(0), *scored]), arguments.fdr)
    for block, picked, rows in _picked_blocks(model, missing, arguments, console):
        _say_what_is_odd(picked, console)
        kept = columns_to_keep(arguments, block.table, picked.rows)
        yield output_rows(detector, rows, block.first + picked.rows, kept, arguments, console, most)


def _picked_blocks(
    model: Model, missing: str, arguments: Namespace, console: Console
) -> Iterator[tuple[Block, Picked, Any]]:
    """Yield the blocks of the table that have rows to score, and these rows as the pipeline of the model takes them."""
    for block in blocks_for(model, arguments, console):
        picked = pick_features(block.table, model, console, missing, whole=block.whole)
        if len(picked.rows):
            yield block, picked, rows_as_taken(model, block.table, picked)


def _say_what_is_odd(picked: Picked, console: Console) -> None:
    """Print how many rows break a constant of the training rows, and how many have missing values."""
    if picked.broken:
        rows = np.any(list(picked.broken.values()), axis=0)
        console.warn(
            f"{count(int(rows.sum()), 'row')} of {len(rows):,} differ from the constant value of all training rows in "
            f"{shown(picked.broken)}. The density ignores these columns; the rows are flagged as outliers."
        )
    incomplete = int(picked.features.isna().any(axis=1).sum())
    if incomplete:
        console.say(f"{count(incomplete, 'row')} with missing values, scored by the known values.")


def shown_rows(
    frames: "Iterable[pd.DataFrame]", detector: "DensityOutlierDetector", arguments: Namespace, console: Console
) -> "Iterator[pd.DataFrame]":
    """Yield the scored rows to write: all, the outliers or the most unusual ones; in the order of the table or of the scores."""
    import pandas as pd

    n_rows = n_outliers = 0
    in_order: list[pd.DataFrame] = []
    by_score = arguments.sort or arguments.top is not None
    for frame in frames:
        n_rows, n_outliers = n_rows + len(frame), n_outliers + int(frame["outlier"].sum())
        rows = frame[frame["outlier"] == 1] if arguments.only_outliers else frame
        if by_score:
            in_order.append(rows)
        else:
            yield rows
    if in_order:
        yield pd.concat(in_order).sort_values(["score", "p_value"], kind="stable").iloc[: arguments.top]
    how = f"a false discovery rate of {arguments.fdr:g}" if arguments.fdr else _level_text(detector)
    console.say(f"{count(n_outliers, 'outlier')} in {count(n_rows, 'row')}, flagged at {how}.")


def _level_text(detector: "DensityOutlierDetector") -> str:
    """Return the level of the flags, "p <= 0.01", and whether a p-value can be so small."""
    n, level = len(detector.training_scores_), detector.contamination
    if level * (n + 1) >= 1:
        return f"p <= {level:g}"
    return f"p <= {level:g}; the smallest p-value among {n:,} training rows is {1 / n:.2g}, see --level and --top"


def _largest_discovery(p_values: np.ndarray, rate: float) -> float:
    """Return the largest p-value that is a discovery at a false discovery rate, or -1 if there is none."""
    from scipy.stats import false_discovery_control

    return p_values[false_discovery_control(p_values) <= rate].max(initial=-1.0) if len(p_values) else -1.0


def detector_of(model: Model, level: float | None = None) -> "DensityOutlierDetector":
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
    level = 0.01 if level is None else level
    if model.detector is not None:
        return model.detector.at_level(level)
    try:
        return DensityOutlierDetector.from_density(model.pipeline, contamination=level)
    except NotFittedError as error:
        raise Failure(MODEL, one_line(error)) from error
    except (ValueError, TypeError) as error:
        raise Failure(FIT, f"the training rows cannot be scored without themselves: {one_line(error)}") from error


def rows_as_taken(model: Model, table: "pd.DataFrame", picked: Picked) -> Any:
    """Return the rows that were picked, as the pipeline of the model takes them."""
    if model.encoder is not None:
        return table.iloc[picked.rows].reset_index(drop=True)
    return picked.features if model.names is not None else picked.features.to_numpy()


def scores_of_rows(
    detector: "DensityOutlierDetector", rows: Any, as_new: bool, console: Console, *, note_equal: bool = True
) -> "tuple[pd.DataFrame, np.ndarray]":
    """Return the scores of rows, part by part, and for each row the position of the training row that it is, or -1.

    With `note_equal`, print how many rows are training rows.
    """
    import pandas as pd

    try:
        scored = each_part(partial(scored_table, detector, as_new=as_new), rows, console, "scoring rows")
    except (ValueError, TypeError) as error:
        raise Failure(DATA, one_line(error)) from error
    own = np.concatenate([positions for _, positions in scored])
    n = int((own >= 0).sum())
    if n and note_equal:
        equal, are, them = ("equals", "is", "it as a new row") if n == 1 else ("equal", "are", "them as new rows")
        console.say(
            f"{count(n, 'row')} of {len(own):,} {equal} a training row exactly, and {are} scored under the model without that row "
            f"(use --as-new to score {them})."
        )
    return pd.concat([part for part, _ in scored], ignore_index=True), own


def output_rows(
    detector: "DensityOutlierDetector",
    rows: Any,
    numbers: np.ndarray,
    kept: Any,
    arguments: Namespace,
    console: Console,
    most: float | None = None,
) -> "pd.DataFrame":
    """Return the output for some rows (None for the training rows).

    Parameters
    ----------
    detector : DensityOutlierDetector
    rows : as the pipeline of the model takes them
    numbers : of the rows in the table
    kept : DataFrame of the columns of ``--keep``, or None
    arguments, console
    most : float, optional
        The largest p-value of an outlier, if ``--fdr`` determined it before.
    """
    import pandas as pd

    if rows is None:
        scores, own = scored_table(detector, None)
    else:
        # `outliers` learns from the rows of the table, which need not be said.
        note_equal = arguments.command == "score"
        scores, own = scores_of_rows(detector, rows, arguments.as_new, console, note_equal=note_equal)
    if arguments.fdr is not None:
        most = _largest_discovery(scores["p_value"].to_numpy(), arguments.fdr) if most is None else most
        scores["outlier"] = (scores["p_value"] <= most).astype(int)
    if arguments.explain:
        scores["why"] = _reasons(detector, rows, scores, own, arguments, console)
    return pd.concat([*([] if kept is None else [kept]), pd.DataFrame({"row": numbers}), scores], axis=1)


def _reasons(
    detector: "DensityOutlierDetector",
    rows: Any,
    scores: "pd.DataFrame",
    own: np.ndarray,
    arguments: Namespace,
    console: Console,
) -> list[str]:
    """Return why the outliers, or the most unusual rows of ``--top``, are unusual; an empty text for other rows."""
    order = np.argsort(scores["score"].to_numpy(), kind="stable")
    chosen = order[scores["outlier"].to_numpy()[order] == 1] if arguments.top is None else order[: arguments.top]
    if arguments.command == "outliers" and arguments.top is None and len(chosen) > _MOST_EXPLAINED:
        console.say(
            f"the reasons of the {_MOST_EXPLAINED:,} most unusual of {count(len(chosen), 'outlier')} are given, because more take long; "
            f"--top {len(chosen)} gives all."
        )
        chosen = chosen[:_MOST_EXPLAINED]
    texts = np.full(len(own), "", dtype=object)
    for start in range(0, len(chosen), _EXPLAINED_AT_ONCE):
        console.progress(start, len(chosen), f"explaining {count(len(chosen), 'row')}")
        part = chosen[start : start + _EXPLAINED_AT_ONCE]
        try:
            texts[part] = np.array(reasons_of_rows(detector, rows, own, part), dtype=object)[part]
        except (TypeError, ValueError) as error:
            raise Failure(MODEL, f"--explain: {one_line(error)}") from error
    return texts.tolist()
