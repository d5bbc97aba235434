"""The pandas code that reads and prepares a table as the command did, for the report."""

from argparse import Namespace
from typing import TYPE_CHECKING

from vicinal._tables import parse_types
from vicinal.cli.tables import TableOptions, split_names

if TYPE_CHECKING:
    import pandas as pd


def loading_code(arguments: Namespace, kind: str, options: TableOptions, table: "pd.DataFrame") -> str:
    """Return lines that create X (and y) from the file; a comment if the table came from stdin."""
    source, label = arguments.data, arguments.target
    lines = ["import pandas as pd", "from vicinal.tables import prepare", ""]
    if source == "-":
        lines.append("table = ...  # the table that came on stdin")
    elif kind in ("csv", "tsv"):
        extra = "" if table.attrs["sep"] == "," else f", sep={table.attrs['sep']!r}"
        extra += "" if options.encoding == "utf-8" else f", encoding={options.encoding!r}"
        extra += "" if options.decimal is None else f", decimal={options.decimal!r}"
        marks = options.missing_marks if options.na or options.not_na else {}
        extra += "".join(f", {name}={value!r}" for name, value in marks.items())
        extra += ", header=None" if options.no_header else ""
        lines.append(f"table = pd.read_csv({source!r}{extra}, skipinitialspace=True)")
        if options.no_header:
            lines.append('table.columns = [f"x{i}" for i in range(table.shape[1])]')
    elif kind == "parquet":
        lines.append(f"table = pd.read_parquet({source!r})")
    elif kind == "xlsx":
        extra = ", header=None" if options.no_header else ""
        lines.append(f"table = pd.read_excel({source!r}, sheet_name={table.attrs['array']!r}{extra})")
    elif kind == "jsonl":
        lines.append(
            f"table = pd.read_json({source!r}, lines=True, dtype=False, convert_dates=False, precise_float=True)"
        )
    elif kind == "npy":
        lines.insert(0, "import numpy as np")
        lines.append(f"table = pd.DataFrame(np.load({source!r}))")
        lines.append('table.columns = [f"x{i}" for i in range(table.shape[1])]')
    else:
        lines.insert(0, "import numpy as np")
        lines += _from_arrays(source, table)
    if arguments.columns is not None:
        lines.append(f"table = table[{list(table.columns)!r}]")
    settings = {
        "target": label,
        "drop": split_names(arguments.drop, table.columns),
        "log": split_names(arguments.log, table.columns),
        "types": parse_types(arguments.type, table.columns),
        "one_hot": arguments.one_hot,
        "missing": None if arguments.missing == "refuse" else arguments.missing,
        "random_state": arguments.seed,
    }
    given = "".join(f", {name}={value!r}" for name, value in settings.items() if value)
    lines.append(f"prepared = prepare(table{given})")
    lines.append("X = prepared.X")
    if label is not None:
        lines.append("y = prepared.labels.to_numpy()")
    return "\n".join(lines)


def _from_arrays(source: str, table: "pd.DataFrame") -> list[str]:
    """Return lines that combine the arrays of an NPZ file."""
    import numpy as np

    with np.load(source, allow_pickle=False) as arrays:
        shape = arrays[table.attrs["array"]].shape
    width = shape[1] if len(shape) > 1 else 1
    lines = [
        f"arrays = np.load({source!r})",
        f"table = pd.DataFrame(arrays[{table.attrs['array']!r}], columns={list(table.columns[:width])!r})",
    ]
    return lines + [f"table[{name!r}] = arrays[{name!r}]" for name in table.columns[width:]]
