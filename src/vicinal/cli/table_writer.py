"""Writing a table block by block: a file is replaced completely or not at all; stdout receives each finished block."""

import contextlib
import gzip
import sys
from typing import Any

import numpy as np

from vicinal._row_sources import write_npy_header
from vicinal._words import printable
from vicinal.cli.errors import DATA, Failure
from vicinal.cli.outputs import output_file, output_format, to_stdout, without_formulas

_MOST_ROWS_OF_A_SHEET = 1_048_576


class TableWriter:
    """A table that is written block by block, in the format of the file's extension, or to stdout as CSV.

    Parameters
    ----------
    output : str or None
        A path; None and "-" are stdout. The file is replaced if the ``with`` block ends without an error.
    spreadsheet : bool
        Whether texts in CSV and TSV are protected from being evaluated as formulas; otherwise they are written as they were read.
    """

    def __init__(self, output: str | None, *, spreadsheet: bool = False) -> None:
        self._output, self._spreadsheet = output, spreadsheet
        self._stack = contextlib.ExitStack()
        self._sink: Any = None
        self.n_rows, self.columns = 0, []  # type: int, list[str]

    def __enter__(self) -> "TableWriter":
        self._stack.__enter__()
        return self

    def __exit__(self, *error: Any) -> bool | None:
        try:
            if error[0] is None and self._sink is not None:
                self._sink.close()
        except BaseException as failure:
            self._stack.__exit__(type(failure), failure, failure.__traceback__)
            raise
        return self._stack.__exit__(*error)

    def write(self, frame: Any) -> None:
        """Write a block; its columns are those of the first one."""
        if self._sink is None:
            self._sink, self.columns = self._opened(frame), [str(name) for name in frame]
        self._sink.write(frame)
        self.n_rows += len(frame)

    def _opened(self, frame: Any) -> Any:
        if self._output in (None, "-"):
            stdout = self._stack.enter_context(to_stdout())
            return _Text(stdout, ",", self._spreadsheet, escaped=sys.stdout.isatty())
        assert self._output is not None
        kind, texts = output_format(self._output), _texts(frame)
        if texts and kind == "npy":
            raise Failure(
                DATA,
                f"the columns {', '.join(texts)} are not numbers and do not fit into .npy. Write .npz, .csv or .parquet.",
            )
        file: Any = self._stack.enter_context(output_file(self._output))
        if kind in ("csv", "tsv"):
            if self._output.lower().endswith(".gz"):
                file = self._stack.enter_context(gzip.GzipFile(fileobj=file, mode="wb"))
            return _Text(file, "\t" if kind == "tsv" else ",", self._spreadsheet)
        if kind in ("xlsx", "npz"):
            return _Whole(file, kind)
        return _Array(file) if kind == "npy" else _Parquet(file)


def _texts(frame: Any) -> list[str]:
    """Return the columns that do not hold numbers."""
    return [str(name) for name in frame if frame[name].dtype.kind not in "iufb"]


class _Text:
    """CSV or TSV; on a terminal, control characters in the cells are escaped."""

    def __init__(self, file: Any, sep: str, spreadsheet: bool, *, escaped: bool = False) -> None:
        self._file, self._sep, self._spreadsheet = file, sep, spreadsheet
        self._header, self._escaped = True, escaped

    def write(self, frame: Any) -> None:
        to = None if self._escaped else self._file
        frame = without_formulas(frame) if self._spreadsheet else frame
        text = frame.to_csv(to, index=False, sep=self._sep, header=self._header)
        if self._escaped:
            self._file.write(printable(text))
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
        # A pipe does not allow seeking back to the header, so rows are collected until the end.
        self._file, self._shape, self._waiting = file, (0, 0), None if file.seekable() else []  # type: Any, Any, Any

    def write(self, frame: Any) -> None:
        rows = np.ascontiguousarray(frame.to_numpy(dtype=np.float64))
        if self._shape[0] == 0 and self._waiting is None:
            write_npy_header(self._file, rows.shape, rows.dtype)
        self._shape = self._shape[0] + len(rows), rows.shape[1]
        self._file.write(rows.data) if self._waiting is None else self._waiting.append(rows)

    def close(self) -> None:
        if self._waiting is None:
            self._file.seek(0)
        write_npy_header(self._file, self._shape, np.dtype(np.float64))
        for rows in self._waiting or ():
            self._file.write(rows.data)


class _Whole:
    """XLSX or NPZ, which is written at the end."""

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
        if self._kind == "xlsx":
            without_formulas(frame).to_excel(self._file, index=False, engine="openpyxl")
            return
        texts = _texts(frame)
        numbers = [name for name in frame if name not in texts]
        arrays: dict[str, Any] = {"X": frame[numbers].to_numpy(dtype=np.float64), "names": np.array(numbers, dtype=str)}
        arrays.update({name: frame[name].astype(str).to_numpy(dtype=str) for name in texts})
        np.savez(self._file, allow_pickle=False, **arrays)
