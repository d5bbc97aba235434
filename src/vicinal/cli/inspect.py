"""`vicinal inspect`: describe the columns of a table, or a model file."""

import os
from argparse import Namespace
from typing import Any

import numpy as np
from sklearn.preprocessing import Normalizer, StandardScaler

from vicinal._compare.learned import linear_map
from vicinal._detect.numbers import ColumnNumbers
from vicinal._files import is_table
from vicinal._notebook import FitFacts, column_shares
from vicinal._tables import ColumnType, TableError, as_frame, column_types, parse_types, read_dates
from vicinal._words import count, on_one_line, one_line, shown
from vicinal.cli.columns import prepare
from vicinal.cli.console import Console
from vicinal.cli.errors import Failure, need
from vicinal.cli.models import Model, load_model
from vicinal.cli.outputs import write_json, write_lines
from vicinal.cli.reading_code import categories_of
from vicinal.cli.tables import chosen_columns, read_table, split_names, table_options
from vicinal.cli.wording import in_command

_WIDEST = 48  # characters of a cell


def inspect(arguments: Namespace, console: Console) -> None:
    """Run the command."""
    if arguments.format or arguments.model == "-" or os.path.isdir(arguments.model) or is_table(arguments.model):
        _inspect_table(arguments, console)
        return
    model = load_model(arguments.model, None)
    facts = describe(model, arguments.model)
    if arguments.json:
        write_json(facts)
    else:
        write_lines(as_text(facts))


_USES = {
    "continuous": "quantity",
    "lattice": "quantity",
    "tied": "metrics only",
    "boolean": "levels; 0/1 in metrics",
    "date": "metrics only",
    "category": "levels; 0/1 columns with --one-hot",
}


def _inspect_table(arguments: Namespace, console: Console) -> None:
    """Print the kind of each column of a table, and notes on what is unusual."""
    need("pandas", "vicinal inspect")
    options = table_options(arguments)
    frame = read_table(arguments.model, options, console, chosen_columns(arguments.columns))
    arguments.missing = "marginalise"  # gaps are listed, and no reason to stop
    types: dict[str, ColumnType] = {}
    quantities: set[str] = set()  # those among the columns that are made of the table's, such as the days of a date
    try:
        prepared = prepare(frame, console, arguments, categories=categories_of(arguments))
        types = prepared.types
        quantities = {name for name, kind in prepared.feature_types.items() if kind.measured}
    except (Failure, TableError) as error:
        console.warn(f"nothing can be learned from this table: {in_command(one_line(error))}")
    drop, log = split_names(arguments.drop, frame.columns), split_names(arguments.log, frame.columns)
    requested, others = parse_types(arguments.type, frame.columns), [name for name in frame if name not in types]
    types = types | column_types(frame[others], {name: kind for name, kind in requested.items() if name in others})
    frame = as_frame(frame)
    columns = [
        {
            "column": name,
            "kind": str(kind),
            "use": _use(name, kind.kind, drop, log, quantities),
            "values": int(frame[name].nunique()),
            "missing": int(frame[name].isna().sum()),
            "range": _range(frame[name], kind),
        }
        for name, kind in ((name, types[name]) for name in frame)
    ]
    if arguments.json:
        write_json({"file": arguments.model, "rows": len(frame), "columns": columns})
        return
    table = [["column", "kind", "use", "values", "missing", "range"]]
    for facts in columns:
        texts = (f"{value:,}" if isinstance(value, int) else value for value in facts.values())
        table.append([on_one_line(str(text))[:_WIDEST] for text in texts])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in table]
    title = f"{on_one_line(arguments.model)}: {count(len(frame), 'row')}, {count(len(columns), 'column')}"
    write_lines("\n".join([title, "", *lines]))


def _use(name: str, kind: str, drop: list[str], log: list[str], quantities: set[str]) -> str:
    if name in drop:
        return "left out"
    if kind == "date" and name in quantities:
        return "quantity (days)"
    return "logarithm" if name in log else _USES.get(kind, "left out")


def _range(column: Any, kind: Any) -> str:
    """Return the smallest and the largest value of a column of numbers, or the most frequent ones of another column."""
    known = column.dropna()
    if not len(known):
        return ""
    if kind.kind == "date":
        dates = read_dates(known, kind.format)
        return f"{dates.min()} to {dates.max()}".replace(" 00:00:00", "")
    if known.dtype.kind in "iuf":
        numbers = ColumnNumbers(kind, known.to_numpy(np.float64))
        return f"{numbers.text(known.min())} to {numbers.text(known.max())}"
    return ", ".join(str(value) for value in known.astype(str).value_counts().index[:3])


def describe(model: Model, path: str) -> dict[str, Any]:
    """Return the facts about a model."""
    steps, estimator, fit = model.steps, model.estimator, FitFacts.of(model.estimator)
    names = _feature_names(model)
    centres = getattr(getattr(estimator, "mixture_", None), "centres", None)
    matrix = linear_map(model.whole)
    shares = None if matrix is None else column_shares(matrix)
    categories = getattr(estimator, "_categories", None)
    levels: Any = () if categories is None else categories.columns
    smoothing: Any = () if categories is None else estimator.category_smoothing_
    places = {column.position for column in levels}
    return {
        "file": path,
        "bytes": os.path.getsize(path),
        "class": model.kind,
        "parameters": {
            name: value
            for name, value in estimator.get_params(deep=False).items()
            if name not in ("engine", "callback")
        },
        "columns": names,
        "types": None if model.encoder is None else {name: str(kind) for name, kind in model.encoder.types_.items()},
        "scaled": any(isinstance(step, StandardScaler) for step in steps),
        "unit_length": sum(isinstance(step, Normalizer) for step in steps),
        "training_rows": None if centres is None else len(centres),
        "converged": fit.converged,
        "passes": fit.passes,
        "objective": fit.objective,
        "components": None if fit.directions is None else fit.directions[0],
        "can": [
            command
            for command, method in (("transform", "transform"), ("neighbors", "transform"), ("score", "score_samples"))
            if hasattr(model.whole, method)
        ],
        "weights": None
        if shares is None
        else {names[i]: float(shares[i]) for i in np.argsort(-shares) if i not in places},
        "levels": {column.name: float(l) for column, l in zip(levels, smoothing, strict=True)},
    }


def _feature_names(model: Model) -> list[str]:
    """Return what the estimator's columns are called."""
    if model.encoder is not None:
        return [str(name) for name in model.encoder.get_feature_names_out()]
    if model.names is None:
        return [f"column {i}" for i in range(model.n_features)]
    return [str(name) for name in model.names]


def as_text(facts: dict[str, Any]) -> str:
    """Return the facts as lines for a terminal."""
    lines = [f"{facts['class']} in {on_one_line(facts['file'])} ({facts['bytes']:,} bytes)"]
    changed = ", ".join(f"{name}={value!r}" for name, value in facts["parameters"].items())
    lines.append(f"  parameters    {changed}")
    scaled = ", each standardised first" if facts["scaled"] else ""
    lines.append(
        f"  columns       {count(len(facts['columns']), 'column')}{scaled}: {shown(facts['columns'], most=12)}"
    )
    rounded = [f"{on_one_line(name)}: {kind}" for name, kind in (facts["types"] or {}).items() if kind != "continuous"]
    if rounded:
        lines.append(
            f"  kinds         {', '.join(rounded[:12])}{f' and {len(rounded) - 12} more' * (len(rounded) > 12)}"
        )
    if facts["unit_length"]:
        lines.append(f"  unit length   {'rows and their images' if facts['unit_length'] > 1 else 'once'}")
    if facts["training_rows"] is not None:
        lines.append(f"  holds         {count(facts['training_rows'], 'training row')}")
    if facts["components"] is not None:
        lines.append(f"  metric        {count(facts['components'], 'component')}")
    if facts["passes"]:
        state = "converged" if facts["converged"] else "did NOT converge"
        value = "" if facts["objective"] is None else f", objective {facts['objective']:.6g} per row"
        lines.append(f"  fit           {state} in {count(facts['passes'], 'pass')}{value}")
    lines.append(f"  can           {', '.join(facts['can'])}")
    if facts["levels"]:
        lines.append(
            f"  categories    {', '.join(f'{on_one_line(name)} (l = {l:.2g})' for name, l in list(facts['levels'].items())[:20])}"
        )
    if facts["weights"]:
        lines.append("  share of one standard deviation of each column in the squared distance:")
        largest = [(on_one_line(name), share) for name, share in list(facts["weights"].items())[:15]]
        width = max(len(name) for name, _ in largest)
        for name, share in largest:
            lines.append(f"    {name:<{width}}  {100 * share:5.1f} %  {'#' * round(40 * share)}")
        if len(facts["weights"]) > 15:
            lines.append(f"    ... and {len(facts['weights']) - 15} more")
    return "\n".join(lines)
