"""`vicinal report`: one page about a model file and the rows of a table."""

from argparse import Namespace
from typing import TYPE_CHECKING, Any

import numpy as np

from vicinal._detect.scored_table import reasons_of_rows
from vicinal._report import unusual_rows
from vicinal._tables import check_names
from vicinal._words import count, one_line
from vicinal.cli.columns import Picked
from vicinal.cli.console import Console
from vicinal.cli.errors import DATA, Failure
from vicinal.cli.models import Model, open_model
from vicinal.cli.outputs import write_json, write_text
from vicinal.cli.reading_code import reading_code
from vicinal.cli.score import detector_of, rows_as_taken, scores_of_rows
from vicinal.cli.wording import name_options

if TYPE_CHECKING:
    import pandas as pd


_MOST_UNUSUAL = 10


def report(arguments: Namespace, console: Console) -> None:
    """Run the command."""
    model, table, picked = open_model(arguments, console)
    y = None
    if arguments.target is not None:
        check_names([arguments.target], table.columns, "--target")
        y = table[arguments.target].iloc[picked.rows]
        known = y.notna().to_numpy()
        if not known.all():
            without = f"{count(int((~known).sum()), 'row')} without a value of {arguments.target!r}"
            if arguments.missing != "drop":
                raise Failure(DATA, f"--target: {without}. Pass --missing drop to leave such rows out.")
            console.say(f"left out {without}.")
            picked = picked.take(known)
        y = y.to_numpy()[known]
    X = picked.features.to_numpy(dtype=np.float64)
    notes = [f"Rows of {'stdin' if arguments.data == '-' else arguments.data}, as prepared by {arguments.model}."]
    if np.isnan(X).any():
        X, note = _filled(model, picked.features, X)
        console.say(note)
        notes.append(f"{note[0].upper()}{note[1:]}")
    if len(X) < 3:
        raise Failure(DATA, f"a report needs at least 3 rows, got {len(X)}.")
    names = [str(name) for name in picked.features.columns]
    row_names = np.asarray(picked.rows) if arguments.id is None else _named_rows(arguments, table, picked)
    outliers = None
    if hasattr(model.whole, "score_samples"):
        outliers = _outliers(model, rows_as_taken(model, table, picked), row_names, console)
    from vicinal._report import model_report

    console.doing(f"drawing {arguments.output}")
    use = "transform" if hasattr(model.whole, "transform") else "score_samples"
    code = [
        "from vicinal import io",
        "from vicinal.tables import read_table",
        "",
        f"model = io.load({arguments.model!r})",
        reading_code(arguments),
        f"print(model.{use}(table))",
    ]
    try:
        page = model_report(
            model.whole,
            X,
            y,
            title=f"vicinal: {arguments.model} on {'stdin' if arguments.data == '-' else arguments.data}",
            feature_names=names,
            feature_types=None if model.encoder is None else model.encoder.feature_types_,
            row_names=row_names,
            outliers=outliers,
            notes=notes,
            code="\n".join(code),
            seed=arguments.seed,
        )
    except ValueError as error:
        raise Failure(DATA, name_options(one_line(error), y="--target")) from error
    arguments.check_interrupted()
    write_text(arguments.output, page.html())
    console.say(f"wrote {arguments.output}.")
    if arguments.json:
        write_json(page.summary)


def _filled(model: Model, features: "pd.DataFrame", X: np.ndarray) -> tuple[np.ndarray, str]:
    """Return the rows with their missing values as the model fills them in, in the units of the table, and a note on that."""
    from vicinal import DensityImputer
    from vicinal._detect.steps import Steps

    place = next((i for i, step in enumerate(model.steps) if isinstance(step, DensityImputer)), None)
    before = Steps(model.whole[: place + 1]) if place else None
    if place is None or (before is not None and not before.by_column):
        raise Failure(DATA, "the table has missing values, which a plane cannot show. Pass --missing drop.")
    rows = model.whole[: place + 1].transform(features)
    rows = np.asarray(before.in_units(np.asarray(rows)) if before is not None else rows)
    gaps = np.isnan(X)
    found = f"{count(int(gaps.sum()), 'missing value')} in {count(int(gaps.any(axis=1).sum()), 'row')}"
    return np.where(gaps, rows, X), f"{found} are shown as the model fills them in."


def _named_rows(arguments: Namespace, table: "pd.DataFrame", picked: Picked) -> np.ndarray:
    check_names([arguments.id], table.columns, "--id")
    return table[arguments.id].astype(str).to_numpy()[picked.rows]


def _outliers(model: Model, rows: Any, row_names: np.ndarray, console: Console) -> dict[str, Any]:
    """Return the least likely rows, as `vicinal score` ranks them, with the reasons if the density can give some."""
    detector = detector_of(model)
    table, own = scores_of_rows(detector, rows, False, console)
    strangest = np.argsort(table["score"].to_numpy(), kind="stable")[:_MOST_UNUSUAL]
    try:
        texts = reasons_of_rows(detector, rows, own, strangest)
    except (TypeError, ValueError):
        texts = [""] * len(own)
    why = [[texts[i]] if texts[i] else [] for i in strangest]
    return unusual_rows(model.kind, table, strangest, why, np.arange(len(table)), row_names)
