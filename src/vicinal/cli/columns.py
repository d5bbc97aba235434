"""Preparation of tables by `vicinal.tables` for the command line, with messages on the console."""

from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from vicinal._tables import (
    Note,
    PreparedTable,
    TableEncoder,
    TableError,
    check_names,
    dependent_columns,
    describe_gaps,
    describe_types,
    is_mapped,
    parse_types,
    prepare_table,
    refuse_infinite,
)
from vicinal._words import count, on_one_line, one_line, shown
from vicinal.cli.console import Console
from vicinal.cli.errors import DATA, USAGE, Failure
from vicinal.cli.tables import split_names
from vicinal.cli.wording import in_command

if TYPE_CHECKING:
    import pandas as pd

    from vicinal.cli.models import Model


def prepare(
    frame: "pd.DataFrame",
    console: Console,
    arguments: Namespace,
    *,
    label: str | None = None,
    label_option: str = "--target",
    partial: bool = False,
    also_drop: Sequence[str] = (),
    categories: str = "omit",
    for_density: bool = False,
) -> PreparedTable:
    """Return the features of a table by the options of the command line; print what was done and what is unusual.

    Parameters
    ----------
    frame : DataFrame
    console : Console
    arguments : parsed command line
    label : str, optional
        The column of the target or groups, which is not a feature.
    label_option : str
        The option that names it.
    partial : bool
        Whether missing labels mean "not known" and are kept.
    also_drop : list of str
        Columns that are not features for reasons other than ``--drop``.
    categories : str
        What is made of categories; see `vicinal.tables.prepare`.
    for_density : bool
        Whether missing values count only in columns from which densities learn, because the method uses no others.
    """
    drop = [*split_names(arguments.drop, frame.columns), *also_drop]
    check_names([] if label is None else [label], frame.columns, label_option)
    if label is not None and label in drop:
        raise Failure(USAGE, f"{label_option} and --drop both name {label!r}. Leave it out of --drop.")
    try:
        types = parse_types(arguments.type, frame.columns)
    except TableError as error:
        raise Failure(USAGE, f"--type: {one_line(error)}") from error
    console.doing("preparing the columns")
    try:
        prepared = prepare_table(
            frame,
            label,
            drop=list(dict.fromkeys(drop)),
            log=split_names(arguments.log, frame.columns),
            types=types,
            categories=categories,
            missing=arguments.missing,
            random_state=arguments.seed,
            partial=partial,
            for_density=for_density,
        )
    except TableError as error:
        print_notes(error.notes, console)
        raise
    return prepared._replace(notes=print_notes(prepared.notes, console))


def print_notes(notes: Iterable[Note], console: Console) -> list[Note]:
    """Print the notes on a table, those about problems as warnings; return them with the names of options."""
    notes = [note._replace(text=in_command(note.text)) for note in notes]
    for note in notes:
        text = note.text[:1].lower() + note.text[1:]
        console.warn(text) if note.odd else console.say(text)
    return notes


def learnable(prepared: PreparedTable, console: Console, method: str, *, levels: bool) -> PreparedTable:
    """Return the features that a density learns from: quantities and, with `levels`, levels.

    Print which columns are left out, and raise an error if none remains.
    """
    narrow = prepared.learnable(levels=levels)
    if not narrow.X.shape[1]:
        kinds = "quantities and categories" if levels else "quantities"
        raise Failure(
            DATA,
            f"{method} learns from {kinds}, and no column holds any: {describe_types(prepared.feature_types.items())}. Pass "
            "--type COL=lattice to treat a column of whole numbers as a quantity, or --type COL=continuous for one whose values repeat.",
        )
    new = print_notes(narrow.notes[len(prepared.notes) :], console)
    return narrow._replace(notes=[*prepared.notes, *new])


def note_dependence(prepared: PreparedTable, console: Console) -> tuple[PreparedTable, list[str]]:
    """Print which columns are linear combinations of others, and what this means for a density.

    Returns
    -------
    PreparedTable
        With the note.
    list of str
        The columns.
    """
    numbers = prepared.X.drop(columns=list(prepared.encoder.levels_))
    n, d = numbers.shape
    if is_mapped(prepared.X) or not d:  # larger than memory, or without numbers
        return prepared, []
    names = [str(numbers.columns[j]) for j in dependent_columns(numbers.to_numpy())]
    if names:
        text = (
            f"Linear combinations of other columns: {shown(names)}. The rows span {d - len(names)} of {d} dimensions, and the width of "
            f"the density in the others depends only on its smoothing (reg, noise, bandwidth), so use log-densities to compare rows, but not models. Pass --drop "
            f"{','.join(names[:8])} to leave {'it' if len(names) == 1 else 'them'} out."
        )
    elif n <= d:
        text = (
            f"There are no more rows ({n:,}) than columns ({d:,}), so the rows do not span all dimensions, and the width of the density in "
            "the others depends only on its smoothing (reg, noise, bandwidth). Use --columns to choose columns."
        )
    else:
        return prepared, []
    return prepared._replace(notes=[*prepared.notes, *print_notes([Note(text, True)], console)]), names


def smoothing_of(estimator: Any, prepared: PreparedTable) -> dict[str, float]:
    """Return the share of levels that are drawn and not copied from neighbours, by column."""
    return dict(zip(prepared.encoder.levels_, map(float, getattr(estimator, "category_smoothing_", ())), strict=False))


def levels_text(estimator: Any, prepared: PreparedTable) -> str:
    """Return which columns a density learned as quantities and as levels, with the l of each of the latter."""
    smoothing = smoothing_of(estimator, prepared)
    numbers = [str(name) for name in prepared.X.columns if str(name) not in smoothing]
    parts = [f"{on_one_line(name)} (l = {l:.2g})" for name, l in sorted(smoothing.items(), key=lambda item: item[1])]
    beside = f"quantities: {shown(numbers, most=20)}; " if numbers else ""
    return (
        f"{beside}categories: {', '.join(parts[:20])}{' ...' if len(parts) > 20 else ''}. (l is the share of levels that the other columns "
        "do not predict: 0 for a column that they determine, 1 for an independent one.)"
    )


class Picked(NamedTuple):
    """The columns of a table that a model reads.

    features : DataFrame of numbers
    rows : positions of the kept rows
    broken : for columns that never changed in the training rows, which of the kept rows have another value
    """

    features: Any
    rows: np.ndarray
    broken: dict[str, np.ndarray]

    def take(self, kept: np.ndarray) -> Self:
        """Return some of the rows, by truth values."""
        broken = {name: rows[kept] for name, rows in self.broken.items()}
        return self._replace(features=self.features[kept], rows=self.rows[kept], broken=broken)


def pick_features(
    frame: "pd.DataFrame", model: "Model", console: Console, missing: str, *, whole: bool = True
) -> Picked:
    """Return the columns that a model was fitted on, by name; extra columns are ignored.

    A model without a TableEncoder needs numbers; "column=value" is computed from the column if the table has no
    column of that name.

    Parameters
    ----------
    frame : DataFrame
    model : Model
    console : Console
    missing : str
        The option ``--missing``; "keep" keeps missing values.
    whole : bool
        Whether the frame is the whole table, so that at least one row must remain.
    """
    import pandas as pd

    encoder = model.encoder
    if encoder is None:
        encoder = TableEncoder.of_features(_names_of(frame, model), frame)
    features = encoder.pick(frame)
    numbers = np.asarray(encoder.transform(frame))
    for column, values in encoder.unseen(frame).items():
        console.warn(
            f"{column!r} holds values that the model was not fitted on, in {count(len(values), 'row')}: "
            f"{shown(dict.fromkeys(values))}. Their 0/1 columns are all 0."
        )
    rows = _complete_rows(numbers, features, missing, console, whole)
    names = encoder.get_feature_names_out()
    refuse_infinite(numbers[rows], [str(name) for name in names])
    broken = {name: differs[rows] for name, differs in encoder.broken_constants(frame).items()}
    return Picked(pd.DataFrame(numbers, columns=names, index=frame.index).iloc[rows], rows, broken)


def _names_of(frame: "pd.DataFrame", model: "Model") -> list[str]:
    from pandas.api.types import is_numeric_dtype

    if model.names is not None:
        return [str(name) for name in model.names]
    numeric = [name for name in frame if is_numeric_dtype(frame[name])]
    if len(numeric) != model.n_features:
        raise Failure(
            DATA,
            f"the model was fitted without column names on {count(model.n_features, 'column')}; the table has "
            f"{count(len(numeric), 'numeric column')} ({shown(numeric)}). Pass a table with just those columns, in the same order.",
        )
    return numeric


def _complete_rows(
    numbers: np.ndarray, features: "pd.DataFrame", missing: str, console: Console, whole: bool
) -> np.ndarray:
    """Return positions of the rows to use."""
    incomplete = np.isnan(numbers).any(axis=1)
    if not incomplete.any() or missing == "keep":
        return np.arange(len(numbers))
    by_column = features.isna().sum()
    gaps = describe_gaps(by_column[by_column > 0].to_dict(), int(incomplete.sum()), len(numbers))
    if missing != "drop":
        raise Failure(
            DATA,
            f"{gaps}. Pass --missing drop to leave those rows out. (A model that was learned with --missing impute fills them "
            "in; `score --missing marginalise` scores the known values of a row.)",
        )
    if incomplete.all() and whole:
        raise Failure(DATA, f"{gaps}: no row is complete, so --missing drop leaves none.")
    console.say(f"left out {count(int(incomplete.sum()), 'row')} with missing values.")
    return np.flatnonzero(~incomplete)
