"""`vicinal learn`: fit a metric or a density and save it."""

import os
import time
from argparse import Namespace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from vicinal._detect.steps import fit_prepared, takes_levels
from vicinal._engine import Engine, resident_rows
from vicinal._notebook import FitFacts
from vicinal._tables import Note, PreparedTable, check_names, is_mapped
from vicinal._words import count, shown
from vicinal.cli.columns import learnable, levels_text, note_dependence, prepare, smoothing_of
from vicinal.cli.console import Console
from vicinal.cli.errors import DATA, USAGE, Failure
from vicinal.cli.models import (
    engine_for,
    fit_failure,
    make_engine,
    make_estimator,
    save_model,
    set_engine,
    set_parameter,
)
from vicinal.cli.outputs import write_json
from vicinal.cli.pairs import as_row_numbers, read_pair_table
from vicinal.cli.tables import Choose, chosen_columns, read_table, table_options

if TYPE_CHECKING:
    import pandas as pd


# Methods without a stochastic solver, and the number of rows from which a pass over all pairs takes a minute.
_EXACT, _MANY_ROWS = ("local-lca", "parzen"), 100_000
# Methods whose matrices have a row and a column for every column of the table, and their maximum number: 200 MB each. RCA uses
# the principal components of wider tables, of which there are fewer than rows.
_SQUARE, _MOST_COLUMNS = ("lca", "lca-gauss", "local-lca", "nca", "parzen"), 5_000
_MOST_COMPONENTS = 2_000
_FOR_WIDE_TABLES = {name: "manifold-parzen" if name in ("local-lca", "parzen") else "rca" for name in _SQUARE}
_FROM_FILES = ("lca", "lca-gauss", "nca", "rca")  # the methods that learn from rows in a file
_FROM_SAMPLES = (
    "stochastic",
    "stream",
)  # solvers that do not visit all pairs of rows, as scores of the training rows do
_UNSUPERVISED = ("lca", "lca-gauss", "local-lca", "parzen", "manifold-parzen")


def learn(arguments: Namespace, console: Console) -> None:
    """Run the command."""
    method = arguments.method
    _check_supervision(arguments)
    engine = make_engine(arguments)
    paired = method == "nca" and arguments.pairs is not None
    estimator = make_estimator(method, arguments.set, arguments.seed, class_name="PairNCA" if paired else None)

    table, prepared, dependent = _read(arguments, console, levels=takes_levels(estimator))
    supervision = {}
    if method not in _UNSUPERVISED:
        pairs = None if arguments.pairs is None else _read_pairs(arguments, table, prepared.rows, console)
        if paired:
            supervision = {"pairs": pairs}
        else:
            supervision = {"y": _labels(method, prepared.labels, estimator, console) if pairs is None else pairs}

    console.doing(f"fitting {method}")
    start = time.perf_counter()
    _report_passes(estimator, console)
    try:
        model, detector = _fit(estimator, prepared, supervision, engine, arguments, console)
    except KeyboardInterrupt:
        console.say(f"nothing was written to {arguments.output}.")
        raise
    seconds = time.perf_counter() - start
    save_model(model if detector is None else detector, arguments.output, ranked=detector is not None)
    summary = _summary(arguments, estimator, prepared, dependent, seconds)
    console.say(_sentence(summary))
    if prepared.encoder.levels_:
        console.say(levels_text(estimator, prepared))
    if arguments.interrupted():
        console.say("this is the best model so far; the fit was not completed.")
        raise KeyboardInterrupt
    if arguments.json:
        write_json(summary)


def _read(arguments: Namespace, console: Console, *, levels: bool) -> "tuple[pd.DataFrame, PreparedTable, list[str]]":
    """Return the table, the features to learn from, and which of them are linear combinations of others.

    With `levels`, categories are levels of a density.
    """
    method = arguments.method
    table = read_table(arguments.data, table_options(arguments), console, _column_choice(arguments))
    if arguments.id is not None:
        check_names([arguments.id], table.columns, "--id")
    label = arguments.target or arguments.groups
    prepared = prepare(
        table,
        console,
        arguments,
        label=label,
        label_option="--target" if arguments.target else "--groups",
        partial=arguments.groups is not None and method == "rca",
        also_drop=[] if arguments.id is None else [arguments.id],
        categories="codes" if levels else "one_hot" if arguments.one_hot else "omit",
        for_density=method in _UNSUPERVISED,
    )
    if method in _UNSUPERVISED:
        prepared = learnable(prepared, console, method, levels=levels)
        if label is not None:
            console.say(f"{method} learns without labels, so the column {label!r} is not used.")
    prepared, dependent = _sample(prepared, arguments, console), list[str]()
    if method in _UNSUPERVISED:
        prepared, dependent = note_dependence(prepared, console)
    return table, prepared, dependent


def _report_passes(estimator: Any, console: Console) -> None:
    """Let an estimator that takes a callback report its passes, at most `max_iter` of them."""
    if not hasattr(estimator, "callback"):
        return

    def report_pass(parameters: Any, n_iter: int) -> None:
        # LCA's own limit depends on the solver, which is known when the passes begin.
        most = estimator.max_iter or estimator.default_max_iter(estimator.solver_)
        console.progress(min(n_iter, most), most, f"pass {n_iter} of at most {most}", at_most=True)

    estimator.callback = report_pass


def _column_choice(arguments: Namespace) -> Choose:
    """Return which columns are read, and how many the method can use."""
    needed = arguments.target, arguments.groups, arguments.id
    if arguments.method not in _SQUARE:
        return chosen_columns(arguments.columns, needed)
    refusal = (
        f"{arguments.method} learns a coefficient for each pair of columns, and supports at most {_MOST_COLUMNS:,} columns. Choose some with "
        f"--columns COL,COL,... or use --method {_FOR_WIDE_TABLES[arguments.method]}, which supports all of them."
    )
    return chosen_columns(arguments.columns, needed, _MOST_COLUMNS, refusal)


def _sample(prepared: PreparedTable, arguments: Namespace, console: Console) -> PreparedTable:
    """Keep a random sample of the rows if ``--max-rows`` requires it; warn if there are many rows without it."""
    n, most = len(prepared.X), arguments.max_rows
    if most is None or n <= most:
        if n > _MANY_ROWS and (arguments.method in _EXACT or prepared.encoder.levels_):
            console.warn(
                f"{arguments.method}{' with columns of levels' if prepared.encoder.levels_ else ''} visits all pairs of {n:,} rows in every "
                "pass, which may take a long time. Use --max-rows 20000 to learn from a sample."
            )
        return prepared
    kept = np.sort(np.random.default_rng(arguments.seed).choice(n, most, replace=False))
    note = f"Learned from a random sample of {most:,} of {n:,} rows."
    console.say(note)
    sample = prepared.take(kept)
    return sample._replace(notes=[*prepared.notes, Note(note)])


def _check_supervision(arguments: Namespace) -> None:
    method, given = arguments.method, arguments.target or arguments.groups or arguments.pairs
    if method not in _UNSUPERVISED and not given:
        ways = "--target COL, --groups COL or --pairs FILE"
        raise Failure(USAGE, f"{method} needs to know which rows belong together: pass {ways}.")
    if method in _UNSUPERVISED and arguments.pairs:
        raise Failure(USAGE, f"{method} learns without labels and does not accept --pairs, which is for rca and nca.")


def _labels(method: str, labels: "pd.Series", estimator: Any, console: Console) -> np.ndarray:
    """Return labels in the form that the estimator expects; continuous targets switch NCA to soft agreement."""
    values = labels.to_numpy()
    if labels.dtype.kind == "f" and method == "nca" and (np.floor(values) != values).any():
        if getattr(estimator.objective, "match", "class") == "class":
            set_parameter(estimator, "objective__match", "gaussian")
            console.say(
                f"{labels.name!r} is continuous, so rows agree to the degree that their values are close (match='gaussian')."
            )
        return values.astype(np.float64)
    if labels.dtype.kind in "iufb":
        return values
    return labels.astype(object).where(labels.notna(), None).to_numpy()


def _read_pairs(arguments: Namespace, table: "pd.DataFrame", rows: np.ndarray, console: Console) -> np.ndarray:
    """Return pairs of positions among the kept rows."""
    ids = None if arguments.id is None else table[arguments.id].astype(str)
    frame = read_pair_table(arguments.pairs, console, None if ids is None else set(ids))
    if ids is not None:
        pairs = _look_up(frame, ids, arguments)
    else:
        remedy = " Pass --id COL if pairs identify rows by the values of a column."
        values = as_row_numbers(frame, arguments.pairs, remedy)
        outside = (values < 0) | (values >= len(table))
        if outside.any():
            raise Failure(
                DATA,
                f"--pairs {arguments.pairs}: row numbers must be 0 to {len(table) - 1}, got {values[outside][0]} "
                f"({int(outside.sum())} out of range).",
            )
        pairs = values
    position = np.full(len(table), -1)
    position[rows] = np.arange(len(rows))
    pairs = position[pairs]
    known = (pairs >= 0).all(axis=1)
    if not known.all():
        console.warn(f"ignored {count(int((~known).sum()), 'pair')} of rows that were left out.")
    return pairs[known]


def _look_up(frame: "pd.DataFrame", keys: "pd.Series", arguments: Namespace) -> np.ndarray:
    if keys.duplicated().any():
        raise Failure(DATA, f"--id {arguments.id}: {keys[keys.duplicated()].iloc[0]!r} occurs in more than one row.")
    position = dict(zip(keys, range(len(keys)), strict=True))
    wanted = frame.astype(str).to_numpy()
    unknown = [name for name in dict.fromkeys(wanted.ravel()) if name not in position]
    if unknown:
        raise Failure(DATA, f"--pairs {arguments.pairs}: {shown(unknown)} not found in the column {arguments.id!r}.")
    return np.array([[position[name] for name in pair] for pair in wanted])


def _fit(
    estimator: Any,
    prepared: PreparedTable,
    supervision: dict[str, Any],
    engine: Engine,
    arguments: Namespace,
    console: Console,
) -> tuple[Pipeline, Any]:
    """Return the encoder of the columns, the scaler and the estimator, fitted, as a pipeline from the raw columns, and its detector."""
    from sklearn.decomposition import PCA
    from sklearn.utils import get_tags

    from vicinal import DensityImputer

    in_memory = arguments.method not in _FROM_FILES or arguments.missing in ("impute", "marginalise")
    if is_mapped(prepared.X) and (in_memory or prepared.encoder.levels_):
        prepared = prepared._replace(X=prepared.X.copy())
    engine = engine_for(engine, len(prepared.X))
    set_engine(estimator, engine)
    if arguments.missing == "marginalise" and not get_tags(estimator).input_tags.allow_nan:
        raise Failure(
            USAGE,
            f"--missing marginalise is for lca, lca-gauss and parzen. Pass --missing impute for {arguments.method}.",
        )
    more: list[tuple[str, Any]] = []
    if arguments.missing == "impute":
        # The imputer is added even if the training rows have no gaps, because new rows may have some.
        more.append(("impute", DensityImputer(random_state=arguments.seed)))
    if arguments.method == "rca" and prepared.X.shape[1] > _MOST_COLUMNS:
        n_components = min(len(prepared.X) - 1, _MOST_COMPONENTS)
        more.append(("components", PCA(n_components, random_state=arguments.seed)))
    try:
        model = fit_prepared(
            estimator,
            prepared,
            noise=arguments.method in _UNSUPERVISED,
            scale=not arguments.no_scale,
            more=more,
            supervision=supervision,
        )
    except (ValueError, TypeError, np.linalg.LinAlgError) as error:
        raise fit_failure(estimator, error) from error
    if is_mapped(prepared.X) and hasattr(estimator, "gather"):
        _gather(estimator, engine, prepared.X.shape, console)
    if hasattr(estimator, "callback"):
        estimator.callback = None  # which reported the passes
    detector = None if arguments.method not in _UNSUPERVISED else _detector(model, arguments, console)
    set_engine(estimator, None)  # a model does not contain the settings of the machine that made it
    if detector is not None:
        detector.density = clone(model)
    return model, detector


def _detector(model: Pipeline, arguments: Namespace, console: Console) -> Any:
    """Return the detector of a density, whose scores of the training rows `score` needs; None if they take longer than the fit."""
    from vicinal import DensityOutlierDetector

    if getattr(model[-1], "solver_", "") in _FROM_SAMPLES or arguments.interrupted():
        return None
    console.doing("ranking the training rows, each without itself")
    try:
        return DensityOutlierDetector.from_density(model)
    except (ValueError, TypeError):  # `score` names the reason
        return None


def _gather(density: Any, engine: Engine, shape: tuple[int, int], console: Console) -> None:
    """Copy the rows of a density in a file into memory: as many as were possible neighbours of each other."""
    most = resident_rows(engine, shape[1], np.dtype(np.float64))  # the candidates of a step
    if shape[0] > most:
        positions = np.sort(np.random.default_rng(0).choice(shape[0], most, replace=False))
        density.mixture_ = density.mixture_.some(positions)
        if hasattr(density, "rows_"):  # of LCA-Gauss, whose centres have moved away from its rows
            density.rows_ = density.rows_[positions]
        console.say(
            f"the density keeps a random sample of {most:,} of {shape[0]:,} rows; use a larger --memory to keep more."
        )
    density.gather()


def _summary(
    arguments: Namespace, estimator: Any, prepared: PreparedTable, dependent: list[str], seconds: float
) -> dict[str, Any]:
    fit = FitFacts.of(estimator)
    used = set(prepared.encoder.sources)
    return {
        "method": arguments.method,
        "model": arguments.output,
        "bytes": os.path.getsize(arguments.output),
        "rows": len(prepared.X),
        "columns": list(prepared.X.columns),
        "types": {name: str(kind) for name, kind in prepared.types.items()},
        "unused": {name: kind.kind for name, kind in prepared.types.items() if name not in used},
        "levels": smoothing_of(estimator, prepared),
        "dependent": dependent,
        "scaled": not arguments.no_scale,
        "converged": fit.converged is not False,
        "passes": fit.passes or 0,
        "objective": fit.objective,
        "components": None if fit.directions is None else fit.directions[0],
        "seconds": round(seconds, 3),
        "notes": [note.text for note in prepared.notes],
    }


def _sentence(summary: dict[str, Any]) -> str:
    passes = f" in {count(summary['passes'], 'pass')}" if summary["passes"] else ""
    components = "" if summary["components"] is None else f", {count(summary['components'], 'component')}"
    unused = [f"{name} ({kind})" for name, kind in summary["unused"].items()]
    what = f" Not used: {', '.join(unused[:8])}{' ...' if len(unused) > 8 else ''}." if unused else ""
    what += f" Linear combinations of others: {shown(summary['dependent'])}." if summary["dependent"] else ""
    return (
        f"learned {summary['method']} from {count(summary['rows'], 'row')} and {count(len(summary['columns']), 'column')}{passes} "
        f"({summary['seconds']:.1f} s{components}); wrote {summary['model']} ({summary['bytes']:,} bytes).{what}"
    )
