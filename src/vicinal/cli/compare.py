"""`vicinal compare`: measure whether a learned metric or density helps on a table."""

from __future__ import annotations

import os
import shlex
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from vicinal._compare.kept import holds_work
from vicinal._compare.words import comparison_table, score_name, shown
from vicinal._engine import Engine
from vicinal._tables import PreparedTable
from vicinal._words import one_line
from vicinal.cli.columns import prepare
from vicinal.cli.console import Console
from vicinal.cli.errors import DATA, OUTPUT, USAGE, Failure
from vicinal.cli.models import make_engine
from vicinal.cli.outputs import output_failure, write_json, write_lines, write_text
from vicinal.cli.parser import make_parser
from vicinal.cli.paths import is_special
from vicinal.cli.reading_code import categories_of, loading_code
from vicinal.cli.tables import TableOptions, chosen_columns, read_table, table_options
from vicinal.cli.wording import name_options

if TYPE_CHECKING:
    import pandas as pd

    from vicinal._compare.results import Comparison


_PARTIAL = ".partial"  # the extension of the file of finished work beside the report


def compare(arguments: Namespace, console: Console) -> None:
    """Run the command."""
    keep = _partial_file(arguments)
    chosen = _chosen(arguments)
    engine = make_engine(arguments)
    choice = chosen_columns(arguments.columns, [arguments.target])
    table = read_table(arguments.data, table_options(arguments), console, choice)
    prepared = prepare(table, console, arguments, label=arguments.target, categories=categories_of(arguments))
    result = run(
        prepared.X,
        None if prepared.labels is None else prepared.labels.to_numpy(),
        console,
        arguments,
        types=prepared.feature_types,
        missing=arguments.missing if arguments.missing in ("impute", "marginalise") else "refuse",
        engine=engine,
        task=arguments.task,
        n_neighbors=arguments.k,
        n_splits=arguments.folds,
        n_repeats=arguments.repeats,
        max_rows=arguments.max_rows,
        fast=arguments.fast,
        keep=keep,
        **chosen,
    )
    if arguments.report is not None:
        _write_report(result, table, prepared, arguments, console, engine)
        if keep is not None:
            Path(keep).unlink(missing_ok=True)  # another run with the same output may have removed it
    if arguments.json:
        write_json(result.to_dict())
    else:
        write_lines(comparison_table(result, next_command(result, arguments)))


def next_command(comparison: Comparison, arguments: Namespace) -> str:
    """Return the command that follows from the verdict, with the options of this one that choose columns and read the table."""
    read = [*TableOptions._fields, "missing", "columns", "drop", "log", "type", "one_hot"]
    target = [] if arguments.target is None else ["--target", arguments.target]
    helped = [kind for kind in ("metric", "density") if comparison.helped[kind] == "helped"]
    if helped:
        method = comparison.best[helped[0]]
        # A metric for a number to predict is learned from it by NCA alone.
        if (method, comparison.task) == ("rca", "numbers"):
            return comparison.next_step
        options = ["--method", method, *target, *as_typed(arguments, read), "-o", "model.vicinal"]
        words = ["learn", arguments.data, *options]
    elif any(result.promising for result in [*comparison.metrics, *comparison.densities]):
        words = ["compare", arguments.data, *target, *as_typed(arguments, [*read, "task", "methods"]), "--repeats", "3"]
    elif arguments.report is None:
        more = as_typed(arguments, [*read, "task", "methods", "fast"])
        words = ["compare", arguments.data, *target, *more, "--report", "report.html"]
    else:
        return f"open {shlex.quote(arguments.report)} in a browser."
    return shlex.join(["vicinal", *words])


def as_typed(arguments: Namespace, names: list[str]) -> list[str]:
    """Return the options of these names that differ from their defaults, as they are typed."""
    default = make_parser().parse_args([arguments.command, arguments.data])
    words: list[str] = []
    for name in names:
        value, option = getattr(arguments, name), f"--{name.replace('_', '-')}"
        if value == getattr(default, name):
            continue
        for item in value if isinstance(value, list) else [value]:
            words += [option] if item is True else [option, str(item)]
    return words


def run(X: ArrayLike, y: ArrayLike | None, console: Console, arguments: Namespace, **settings: Any) -> Comparison:
    """Run `vicinal.compare` with progress; interruptions are handled, and its errors become failures of the data."""
    import vicinal

    def progress(done: float, total: float, text: str) -> None:
        console.progress(done, total, text, estimate=False)

    def first_results(comparison: Comparison) -> None:
        for line in _first_lines(comparison):
            console.say(line)

    console.doing("preparing the comparison")
    try:
        found = vicinal.compare(
            X, y, random_state=arguments.seed, progress=progress, first_results=first_results, **settings
        )
    except ValueError as error:
        options = {"y": "--target", "task": "--task", "keep": "--resume"}
        if " must be among " in str(error):  # elsewhere, these are ordinary words
            options |= {"metrics": "--methods", "densities": "--methods"}
        raise Failure(DATA, name_options(one_line(error), **options)) from error
    except OSError as error:  # of the file that holds finished work
        raise output_failure(settings.get("keep"), error) from error
    if not arguments.interrupted():
        return found
    kept = settings.get("keep")
    if kept is not None:
        console.say(f"finished folds are kept in {kept}; use --resume to continue.")
    write_lines(str(found))
    raise KeyboardInterrupt


def _first_lines(comparison: Comparison) -> Iterator[str]:
    """Yield the first results, before the slow methods begin: one line for metrics and one for densities."""
    for kind, results in (("metrics", comparison.metrics), ("densities", comparison.densities)):
        known = [f"{result.label} {shown(result.scale, result.main.mean)}" for result in results if result.main]
        if known:
            yield f"first {kind} ({score_name(results[0].scale, comparison.n_neighbors)}): {', '.join(known)}"


def _chosen(arguments: Namespace) -> dict[str, list[str]]:
    """Return which metrics and densities ``--methods`` names."""
    if arguments.methods is None:
        return {}
    from vicinal._compare.methods import density_names, metric_names

    metrics, densities = metric_names(), density_names()
    names = [name.strip() for name in arguments.methods.split(",") if name.strip()]
    unknown = [name for name in names if name not in metrics and name not in densities]
    if unknown or not names:
        known = ", ".join(dict.fromkeys([*metrics, *densities]))
        raise Failure(USAGE, f"--methods: unknown: {', '.join(unknown) or 'nothing'}. Choose from {known}.")
    return {
        "metrics": [name for name in names if name in metrics],
        "densities": [name for name in names if name in densities],
    }


def _write_report(
    result: Comparison,
    table: pd.DataFrame,
    prepared: PreparedTable,
    arguments: Namespace,
    console: Console,
    engine: Engine,
) -> None:
    import vicinal

    console.doing(f"drawing {arguments.report}")
    report = vicinal.report(
        prepared.X,
        None if prepared.labels is None else prepared.labels.to_numpy(),
        comparison=result,
        title=f"vicinal: {'stdin' if arguments.data == '-' else arguments.data}",
        notes=[note.text for note in prepared.notes],
        row_names=prepared.rows,
        loading=loading_code(arguments, table),
        engine=engine,
    )
    if result.has_next_step:
        report.summary["next"] = next_command(result, arguments)
    arguments.check_interrupted()
    write_text(arguments.report, report.html())
    console.say(f"wrote {arguments.report}.")


def _partial_file(arguments: Namespace) -> str | None:
    """Return the path of the file for finished folds, beside the report; None without a report.

    Without --resume the work starts again.
    """
    if arguments.report is None:
        if arguments.resume:
            raise Failure(USAGE, "--resume needs --report FILE, because finished folds are kept beside it.")
        return None
    if is_special(arguments.report):
        return None  # nothing can be kept beside a device
    path = arguments.report + _PARTIAL
    if arguments.resume and not os.path.exists(path):
        raise Failure(USAGE, f"--resume: there is no {path} to continue from. Omit --resume.")
    if not arguments.resume and os.path.exists(path):
        if not holds_work(path):
            raise Failure(
                OUTPUT, f"{path} would be used to keep finished work, but it is not a file of vicinal. Move it away."
            )
        Path(path).unlink(missing_ok=True)
    return path
