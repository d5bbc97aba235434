"""The output of commands that make a table: rows in a file or on stdout, or JSON."""

from argparse import Namespace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from vicinal.cli.console import Console, count
from vicinal.cli.errors import DATA, USAGE, Failure
from vicinal.cli.outputs import output_format, write_json
from vicinal.cli.table_writer import TableWriter
from vicinal.cli.tables import check_columns, split_names

if TYPE_CHECKING:
    import pandas as pd


def check_output(arguments: Namespace) -> None:
    """Raise an error before any work if no table can be written under this name."""
    if arguments.output not in (None, "-"):
        output_format(arguments.output)


def columns_to_keep(arguments: Namespace, table: "pd.DataFrame", rows: np.ndarray) -> "pd.DataFrame":
    """Return the columns of ``--keep``."""
    names = split_names(arguments.keep, table.columns)
    check_columns(names, table.columns, "--keep")
    return table[names].iloc[rows].reset_index(drop=True)


class Results:
    """The table that a command writes, block by block.

    Parameters
    ----------
    arguments : parsed command line
    console : Console
    kind : str
        The class of the model, for the summary as JSON.
    """

    def __init__(self, arguments: Namespace, console: Console, kind: str) -> None:
        self._arguments, self._console, self._kind = arguments, console, kind
        self._as_json = arguments.json and arguments.output in (None, "-")
        self._frames: list[pd.DataFrame] = []
        self._is_empty = True
        self._writer = TableWriter(arguments.output, spreadsheet=arguments.spreadsheet)

    def __enter__(self) -> Self:
        self._writer.__enter__()
        return self

    def write(self, frame: "pd.DataFrame") -> None:
        """Add a block of the table."""
        self._arguments.check_interrupted()
        self._is_empty = False
        if frame.columns.has_duplicates:
            name = frame.columns[frame.columns.duplicated()][0]
            raise Failure(
                USAGE, f"--keep {name}: the output already has a column of that name. Rename it in the table."
            )
        self._frames.append(frame) if self._as_json else self._writer.write(frame)

    def __exit__(self, *error: Any) -> None:
        import pandas as pd

        if error[0] is None and self._is_empty:
            failure = Failure(DATA, "no row is complete, so --missing drop leaves none.")
            self._writer.__exit__(Failure, failure, None)
            raise failure
        self._writer.__exit__(*error)
        if error[0] is not None:
            return
        output, n_rows = self._arguments.output, self._writer.n_rows
        if self._as_json:
            frame = pd.concat(self._frames, ignore_index=True)
            columns = [frame[name].tolist() for name in frame]
            write_json([dict(zip(frame.columns, row, strict=True)) for row in zip(*columns, strict=True)])
        elif output not in (None, "-"):
            self._console.say(f"wrote {count(n_rows, 'row')} to {output}.")
            if self._arguments.json:
                write_json({"model": self._kind, "output": output, "rows": n_rows, "columns": self._writer.columns})
