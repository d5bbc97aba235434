"""The code that reads and prepares a table as the command did, for the report."""

from argparse import Namespace
from typing import TYPE_CHECKING

from vicinal._files import ReadOptions
from vicinal._tables import parse_types
from vicinal.cli.tables import split_names, table_options

if TYPE_CHECKING:
    import pandas as pd


def reading_code(arguments: Namespace, columns: list[str] | None = None) -> str:
    """Return a line that reads the table, or some of its columns; a comment if it came from stdin."""
    if arguments.data == "-":
        return "table = ...  # the table that came on stdin"
    options, defaults = table_options(arguments)._asdict(), ReadOptions()._asdict()
    reading = {name: value for name, value in options.items() if value != defaults[name]}
    if columns is not None:
        reading["columns"] = columns
    return f"table = read_table({arguments.data!r}{_keywords(reading)})"


def loading_code(arguments: Namespace, table: "pd.DataFrame") -> str:
    """Return lines that create X (and y) from the file."""
    settings = {
        "target": arguments.target,
        "drop": split_names(arguments.drop, table.columns),
        "log": split_names(arguments.log, table.columns),
        "types": parse_types(arguments.type, table.columns),
        "categories": categories_of(arguments),
        "missing": None if arguments.missing == "refuse" else arguments.missing,
        "random_state": arguments.seed,
    }
    lines = [
        "from vicinal.tables import prepare, read_table",
        "",
        reading_code(arguments, None if arguments.columns is None else list(table.columns)),
        f"prepared = prepare(table{_keywords({k: v for k, v in settings.items() if v})})",
        "X = prepared.X",
    ]
    if arguments.target is not None:
        lines.append("y = prepared.labels.to_numpy()")
    return "\n".join(lines)


def categories_of(arguments: Namespace) -> str:
    """Return what `compare` makes of categories: codes for densities, and 0/1 columns for metrics on request."""
    return "codes+one_hot" if arguments.one_hot else "codes"


def _keywords(values: dict[str, object]) -> str:
    return "".join(f", {name}={value!r}" for name, value in values.items())
