"""The output of commands that make a table: rows in a file or on stdout, block by block, or JSON."""

import contextlib
import gzip
import sys
from argparse import Namespace
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from vicinal._row_sources import write_npy_header
from vicinal._tables import check_names
from vicinal._words import count, printable
from vicinal.cli.console import Console
from vicinal.cli.errors import DATA, USAGE, Failure
from vicinal.cli.outputs import output_file, output_format, to_stdout, without_formulas, write_json
from vicinal.cli.tables import split_names

if TYPE_CHECKING:
    import pandas as pd

_MOST_ROWS_OF_A_SHEET = 1_048_576


def check_output(arguments: Namespace) -> None:
    """Raise an error before any work if no table can be written under this name."""
    if arguments.output not in (None, "-"):
        output_format(arguments.output)


def columns_to_keep(arguments: Namespace, table: "pd.DataFrame", rows: np.ndarray) -> "pd.DataFrame":
    """Return the columns of ``--keep``."""
    names = split_names(arguments.keep, table.columns)
    check_names(names, table.columns, "--keep")
    return table[names].iloc[rows].reset_index(drop=True)


def write_results(frames: "Iterable[pd.DataFrame]", kind: str, arguments: Namespace, console: Console) -> None:
    """Write the blocks of a table: a file is replaced completely or not at all; stdout receives each block.

    Parameters
    ----------
    frames : blocks of rows with the same columns
    kind : str
        The class of the model, for the summary as JSON.
    arguments, console
    """
    output = None if arguments.output == "-" else arguments.output
    n_rows, columns, sink = 0, list[str](), None
    with contextlib.ExitStack() as stack:
        for frame in frames:
            arguments.check_interrupted()
            if sink is None:
                sink, columns = _sink(frame, output, arguments, stack), [str(name) for name in frame]
            sink.write(frame)
            n_rows += len(frame)
        if sink is None:
            raise Failure(DATA, "no row is complete, so --missing drop leaves none.")
        sink.close()
    if output is not None:
        console.say(f"wrote {count(n_rows, 'row')} to {output}.")
        if arguments.json:
            write_json({"model": kind, "output": output, "rows": n_rows, "columns": columns})


def _sink(frame: "pd.DataFrame", output: str | None, arguments: Namespace, stack: contextlib.ExitStack) -> Any:
    """Return what takes the blocks, given the first one."""
    if frame.columns.has_duplicates:
        name = frame.columns[frame.columns.duplicated()][0]
        raise Failure(USAGE, f"--keep {name}: the output already has a column of that name. Rename it in the table.")
    if output is None:
        if arguments.json:
            return _Whole(None, "json")
        return _Text(stack.enter_context(to_stdout()), ",", arguments.spreadsheet, escaped=sys.stdout.isatty())
    kind, texts = output_format(output), _texts(frame)
    if texts and kind == "npy":
        raise Failure(
            DATA,
            f"the columns {', '.join(texts)} are not numbers and do not fit into .npy. Write .npz, .csv or .parquet.",
        )
    file: Any = stack.enter_context(output_file(output))
    if kind in ("parquet", "npy"):
        return _Parquet(file) if kind == "parquet" else _Array(file)
    if kind not in ("csv", "tsv"):
        return _Whole(file, kind)
    if output.lower().endswith(".gz"):
        file = stack.enter_context(gzip.GzipFile(fileobj=file, mode="wb"))
    return _Text(file, "\t" if kind == "tsv" else ",", arguments.spreadsheet)


def _texts(frame: Any) -> list[str]:
    """Return the columns that do not hold numbers."""
    return [str(name) for name in frame if frame[name].dtype.kind not in "iufb"]


class _Text:
    """CSV or TSV; on a terminal, control characters in the cells are escaped."""

    def __init__(self, file: Any, sep: str, spreadsheet: bool, *, escaped: bool = False) -> None:
        self._file, self._sep, self._spreadsheet, self._escaped = file, sep, spreadsheet, escaped
        self._header = True

    def write(self, frame: Any) -> None:
        frame = without_formulas(frame) if self._spreadsheet else frame
        options = {"index": False, "sep": self._sep, "header": self._header}
        if self._escaped:
            self._file.write(printable(frame.to_csv(**options)))
        else:
            frame.to_csv(self._file, **options)
        self._header = False

    def close(self) -> None:
        """Do nothing, because everything has been written."""


class _Parquet:
    """Parquet, a row group per block."""

    def __init__(self, file: Any) -> None:
        self._file, self._writer = file, None  # type: Any, Any

    def write(self, frame: Any) -> None:
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter

        schema = None if self._writer is None else self._writer.schema
        try:
            table = pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise Failure(
                DATA, f"a column does not have the same type in all blocks of the table ({error}). Write .csv instead."
            ) from error
        if self._writer is None:
            self._writer = ParquetWriter(self._file, table.schema)
        self._writer.write_table(table)

    def close(self) -> None:
        self._writer.close()


class _Array:
    """NPY; the number of rows is written into reserved space of the header at the end."""

    def __init__(self, file: Any) -> None:
        self._file, self._shape = file, (0, 0)

    def write(self, frame: Any) -> None:
        rows = np.ascontiguousarray(frame.to_numpy(dtype=np.float64))
        if self._shape[0] == 0:
            write_npy_header(self._file, rows.shape, rows.dtype)
        self._shape = self._shape[0] + len(rows), rows.shape[1]
        self._file.write(rows.data)

    def close(self) -> None:
        self._file.seek(0)
        write_npy_header(self._file, self._shape, np.dtype(np.float64))


class _Whole:
    """XLSX, NPZ or JSON on stdout, which is written at the end."""

    def __init__(self, file: Any, kind: str) -> None:
        self._file, self._kind, self._frames = file, kind, []  # type: Any, str, list[Any]

    def write(self, frame: Any) -> None:
        self._frames.append(frame)
        if self._kind == "xlsx" and sum(map(len, self._frames)) >= _MOST_ROWS_OF_A_SHEET:
            raise Failure(
                DATA, f"a sheet of .xlsx holds at most {_MOST_ROWS_OF_A_SHEET - 1:,} rows. Write .csv or .parquet."
            )

    def close(self) -> None:
        import pandas as pd

        frame = pd.concat(self._frames, ignore_index=True)
        if self._kind == "json":
            write_json(frame.to_dict("records"))
        elif self._kind == "xlsx":
            without_formulas(frame).to_excel(self._file, index=False, engine="openpyxl")
        else:
            texts = _texts(frame)
            numbers = [name for name in frame if name not in texts]
            arrays = {name: frame[name].astype(str).to_numpy(dtype=str) for name in texts}
            named = {"X": frame[numbers].to_numpy(dtype=np.float64), "names": np.array(numbers, dtype=str)}
            np.savez(self._file, allow_pickle=False, **named | arrays)
