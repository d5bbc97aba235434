"""`vicinal learn` of a table that is larger than memory: its rows are converted to numbers in a temporary file."""

import contextlib
from argparse import Namespace
from typing import Any, NamedTuple

import numpy as np

from vicinal._engine import resident_rows
from vicinal._row_sources import RowsFile
from vicinal._tables import EqualRows, TableError, refuse_infinite
from vicinal.cli.blocks import in_turn
from vicinal.cli.columns import measured, note_unused_label, prepare
from vicinal.cli.console import Console, Messages, count, one_line, shown
from vicinal.cli.errors import DATA, Failure
from vicinal.cli.models import fit_failure, set_engine
from vicinal.cli.tables import check_columns

# Methods that learn from rows in a file.
METHODS = ("lca", "lca-gauss", "nca", "rca")
_SCALED_ROWS = 2**16  # rows that are scaled at a time


class NamedRows(NamedTuple):
    """Rows in a file and the names of their columns, in the form that a fit expects."""

    rows: np.ndarray
    columns: list[str]

    def __len__(self) -> int:
        return len(self.rows)


class LargeTable(NamedTuple):
    """The contents of a `PreparedTable` for a table whose rows stay in a file.

    X : the features, scaled, and with noise on rounded columns if a density learns from them
    labels, rows : the labels and the positions of the rows that were kept
    table : the columns by which pairs identify rows
    steps : the steps of the pipeline before the estimator
    """

    X: NamedRows
    labels: Any
    rows: np.ndarray
    types: dict[str, Any]
    encoder: Any
    notes: list[Any]
    table: Any
    steps: list[tuple[str, Any]]


def random_rows(blocks: Any, most: int, seed: int) -> tuple[Any, int]:
    """Return a random sample of the rows of a table, in their order, and the number of all rows."""
    import pandas as pd

    rng, kept, keys, seen = np.random.default_rng(seed), None, np.empty(0), 0
    for block in blocks:
        drawn = rng.random(len(block))
        seen += len(block)
        kept = block if kept is None else pd.concat([kept, block], ignore_index=True)
        keys = np.concatenate([keys, drawn])
        if len(keys) > most:  # rows with the smallest keys; every row has the same chance of a small key
            chosen = np.sort(np.argpartition(keys, most)[:most])
            kept, keys = kept.iloc[chosen].reset_index(drop=True), keys[chosen]
    return kept, seen


def prepare_large(blocks: Any, arguments: Namespace, console: Console, **options: Any) -> LargeTable:
    """Return the features of a table in a temporary file.

    The kinds of the columns are those of the first block; later rows that do not agree with them raise an error.

    Parameters
    ----------
    blocks : TableBlocks
    arguments : parsed command line of ``learn``
    console : Console
    options
        Of `columns.prepare`.
    """
    import pandas as pd
    from sklearn.preprocessing import StandardScaler

    unsupervised, label = arguments.method in ("lca", "lca-gauss"), options.get("label")
    first_block: Any = None
    noise: Any = None
    labels, rows, ids, scaler, seen = [], [], [], StandardScaler(), EqualRows()
    with contextlib.ExitStack() as stack:
        for first, frame, told in in_turn(blocks, console):
            if first_block is None:
                if arguments.id is not None:
                    check_columns([arguments.id], frame.columns, "--id")
                first_block = prepare(frame, console, arguments, first_rows=True, **options)
                console.say(f"the kinds of the columns are determined from the first {count(len(frame), 'row')}.")
                if unsupervised:
                    first_block = measured(first_block, console, arguments.method)
                    note_unused_label(label, arguments.method, console)
                    noise = first_block.encoder.dequantizer()
                file = stack.enter_context(RowsFile(first_block.X.shape[1]))
            values, kept = _numbers(frame, first_block, arguments, told, **options)
            if noise is not None:
                values = noise.transform_training_rows(pd.DataFrame(values, columns=first_block.X.columns), seen)
            file.write(values)
            scaler.partial_fit(values)
            rows.append(first + kept)
            labels += [] if label is None else [frame[label].iloc[kept]]
            ids += [frame[[arguments.id]] if arguments.id else pd.DataFrame(index=frame.index)]
        found = file.mapped()
    steps = [("columns", first_block.encoder.set_output(transform="pandas"))]
    if noise is not None:
        steps.append(("noise", noise))
    if not arguments.no_scale:
        steps.append(("scale", _scale(found, scaler, list(first_block.X.columns))))
    return LargeTable(
        NamedRows(found, list(first_block.X.columns)),
        pd.concat(labels, ignore_index=True) if labels else None,
        np.concatenate(rows),
        first_block.types,
        first_block.encoder,
        first_block.notes,
        pd.concat(ids, ignore_index=True),
        steps,
    )


def _scale(rows: np.ndarray, scaler: Any, names: list[str]) -> Any:
    """Scale the rows of a file in place; return the scaler with the names of the columns."""
    scaler.feature_names_in_ = np.array(names, dtype=object)
    for start in range(0, len(rows), _SCALED_ROWS):
        part = slice(start, start + _SCALED_ROWS)
        rows[part] = (rows[part] - scaler.mean_) / scaler.scale_
    return scaler


def _numbers(
    frame: Any, first_block: Any, arguments: Namespace, console: Messages, **options: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Return the features of a block, of the same kinds as in the first block, and the positions of the rows that are kept."""
    encoder, names = first_block.encoder, list(first_block.X.columns)
    empty = [name for name, kind in first_block.types.items() if kind.kind == "empty"]
    changed = [*encoder.broken_constants(frame), *(name for name in empty if frame[name].notna().any())]
    try:
        values = np.asarray(encoder.transform(frame))
        if changed:
            raise TableError(
                f"{shown(changed)} was constant or empty in the first rows, from which the kinds of the columns are determined, but not later. "
                f"Pass --type {changed[0]}=continuous (or another kind), or --drop {changed[0]}."
            )
        refuse_infinite(values, names, ", or --drop the columns")
        for name, texts in encoder.unseen(frame).items():
            console.warn(f"{name!r} holds values that the first rows did not have: {shown(dict.fromkeys(texts))}.")
    except TableError as error:
        raise Failure(DATA, one_line(error)) from error
    missing = np.isnan(values).any(axis=1)
    label = options.get("label")
    if label is not None and not options.get("partial"):
        missing |= frame[label].isna().to_numpy()
    if missing.any() and arguments.missing == "refuse":
        raise Failure(
            DATA,
            f"missing values in {count(int(missing.sum()), 'row')} of {len(frame):,}. Pass --missing drop to leave those rows out, "
            "or --max-rows N to learn from a sample, which can be filled in with --missing impute.",
        )
    kept = np.flatnonzero(~missing)
    return values[kept], kept


def fit_large(estimator: Any, prepared: LargeTable, supervision: dict[str, Any], engine: Any, console: Console) -> Any:
    """Return the fitted pipeline; the density of LCA or LCA-Gauss keeps as many rows as were possible neighbours of each other."""
    from sklearn.pipeline import Pipeline

    rows = prepared.X.rows
    set_engine(estimator, engine)
    try:
        estimator.fit(rows, **supervision)
    except (ValueError, TypeError, np.linalg.LinAlgError) as error:
        raise fit_failure(estimator, error) from error
    if hasattr(estimator, "gather"):
        most = resident_rows(engine, rows.shape[1], rows.dtype)  # the candidates of a step
        if len(rows) > most:
            _keep_sample(estimator, most)
            console.say(
                f"the density keeps a random sample of {most:,} of {len(rows):,} rows; use a larger --memory to keep more."
            )
        estimator.gather()
    if hasattr(estimator, "callback"):
        estimator.callback = None  # which reported the passes
    set_engine(estimator, None)
    return Pipeline([*prepared.steps, (type(estimator).__name__.lower(), estimator)])


def _keep_sample(density: Any, n_rows: int) -> None:
    """Reduce a fitted density with one kernel for all rows to the components of a random sample of its rows."""
    positions = np.sort(np.random.default_rng(0).choice(len(density.mixture_.log_weights), n_rows, replace=False))
    density.mixture_ = density.mixture_.some(positions)
    if hasattr(density, "rows_"):  # of LCA-Gauss, whose centres have moved away from its rows
        density.rows_ = density.rows_[positions]
