"""Tables that are too large to be read at once: CSV, TSV, Parquet (a file or a folder), NPY and Zarr, block by block."""

import contextlib
import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vicinal._rows_in_files import open_rows
from vicinal._tables import objects_as_text
from vicinal.cli.console import Console, Messages, count, one_line
from vicinal.cli.errors import DATA, Failure, need
from vicinal.cli.tables import (
    ALL_COLUMNS,
    ColumnChoice,
    TableOptions,
    frame_of_array,
    map_array,
    read_table,
    reading_errors,
    table_format,
)
from vicinal.cli.text_tables import decoding, text_table

# Tables up to this size are read at once. It is the size of a text file, or of the numbers of another one, in bytes.
LARGE = 64 << 20
_UNPACKED = 4  # a compressed text unpacks to about this many times its size
BLOCK_VALUES = 2**20  # values of a block, in all columns together


class NeededColumns(NamedTuple):
    """The columns of a large table that are read for a model: those that it uses, if the table has all required ones.

    needed : the columns that the model requires, or None if it has no column names
    also : further columns
    """

    needed: frozenset[str] | None
    also: frozenset[str]

    def of(self, columns: list[str], name: str) -> list[str] | None:
        """Return the columns to read, in the order of the table.

        Return None for all columns if one is missing, because the message lists them.
        """
        if self.needed is None or not self.needed <= set(columns):
            return None
        return [column for column in columns if column in self.needed | self.also]


class TableBlocks:
    """The blocks of a table, as DataFrames with unique text column names; they can be read more than once.

    Parameters
    ----------
    source : str
        A path.
    options : TableOptions
    console : Console
        Receives warnings about the header.
    choice : ColumnChoice or NeededColumns

    Attributes
    ----------
    source : str
    share : float
        The share of the table that has been read, from 0 to 1.
    """

    def __init__(
        self, source: str, options: TableOptions, console: Console, choice: ColumnChoice | NeededColumns = ALL_COLUMNS
    ) -> None:
        self.source, self._options, self._console, self._choice = source, options, console, choice
        self._kind = table_format(source, options)
        self._types: dict[Any, Any] | None = None
        self.share = 0.0

    def __iter__(self) -> Iterator[Any]:
        """Yield the blocks; none is empty."""
        seen, columns = 0, 0
        for frame in self._with_failures(self._read()):
            frame.columns = [str(column) for column in frame.columns]
            frame = frame.reset_index(drop=True)
            chosen = self._choice.of(list(frame.columns), self.source)
            frame = frame if chosen is None else frame[chosen]
            columns = len(frame.columns)
            if not columns:
                raise Failure(DATA, f"{self.source} has no columns.")
            if len(frame):
                seen += len(frame)
                yield objects_as_text(frame)
        if not seen:
            # A file of another format than text without rows has no block, and then the columns are not known.
            raise Failure(DATA, f"{self.source} has {count(columns, 'column') + ' but ' if columns else ''}no rows.")

    def _with_failures(self, frames: Iterator[Any]) -> Iterator[Any]:
        """Yield the same frames; errors while reading become failures of the command."""
        while True:
            with reading_errors(self.source):
                try:
                    frame = next(frames)
                except StopIteration:
                    return
            yield frame

    def _read(self) -> Iterator[Any]:
        if self._kind in ("csv", "tsv"):
            return self._read_text()
        if self._kind == "parquet":
            return self._read_parquet()
        return self._read_zarr() if self._kind == "zarr" else self._read_array()

    def _read_text(self) -> Iterator[Any]:
        import pandas as pd

        with self._opened() as file:
            console = self._console if self._types is None else None  # the header is reported only once
            text = text_table(file, self.source, self._kind, self._options, console, self._choice)
        rows = _rows_in_block(text.n_columns)
        if self._types is None:
            types: dict[Any, str] = {}
            with self._opened() as file, text.errors():
                for frame in pd.read_csv(file, chunksize=rows, **text.arguments):
                    _widen(types, frame)
                    share = _share_of_bytes(file, self.source)
                    self._console.progress(
                        int(100 * share), 100, f"% of {self.source}: detecting numbers and texts", work=id(types)
                    )
            self._types = types
        with self._opened() as file:
            with text.errors():
                reader = pd.read_csv(file, chunksize=rows, dtype=_dtypes(self._types), **text.arguments)
            while True:
                with text.errors():
                    frame = next(reader, None)
                if frame is None:
                    return
                self.share = _share_of_bytes(file, self.source)
                yield text.named(frame)

    def _opened(self) -> Any:
        return gzip.open(self.source) if self.source.lower().endswith(".gz") else open(self.source, "rb")

    def _read_parquet(self) -> Iterator[Any]:
        need("pyarrow", "reading Parquet")
        from pyarrow import dataset
        from pyarrow.parquet import ParquetFile

        with decoding(self.source, "a Parquet table"):
            files = dataset.dataset(self.source, format="parquet").files
        if not files:
            raise Failure(DATA, f"cannot read {self.source}: the folder holds no Parquet file.")
        for place, path in enumerate(files):
            with decoding(path, "a Parquet table"), ParquetFile(path) as content:
                columns = [str(name) for name in content.schema_arrow.names]
                chosen = self._choice.of(columns, path)
                n_read, n_rows = 0, max(content.metadata.num_rows, 1)
                for batch in content.iter_batches(_rows_in_block(len(chosen or columns)), columns=chosen):
                    n_read += len(batch)
                    self.share = (place + n_read / n_rows) / len(files)
                    yield batch.to_pandas()

    def _read_array(self) -> Iterator[Any]:
        rows = map_array(self.source)
        step = _rows_in_block(rows.shape[1] if rows.ndim == 2 else 1)
        for start in range(0, len(rows), step):
            self.share = min(start + step, len(rows)) / len(rows)
            yield frame_of_array(np.array(rows[start : start + step]), self.source)

    def _read_zarr(self) -> Iterator[Any]:
        need("zarr", "reading Zarr", "zarr")
        try:
            rows = open_rows(self.source)
            step, n_read = _rows_in_block(rows.shape[1]), 0
            for chunk in rows.blocks():
                for start in range(0, len(chunk), step):
                    part = chunk[start : start + step]
                    n_read += len(part)
                    self.share = n_read / rows.shape[0]
                    yield frame_of_array(part, self.source)
        except ValueError as error:
            reason = one_line(error)  # which names the array, unless there is none
            raise Failure(
                DATA, f"cannot read {self.source}: {reason}." if isinstance(error, OSError) else reason
            ) from error


def _rows_in_block(n_columns: int) -> int:
    return max(BLOCK_VALUES // max(n_columns, 1), 1)


def _share_of_bytes(file: Any, path: str) -> float:
    """Return the share of a text file that has been read, by its position in the file on the disk."""
    raw: Any = file.fileobj if isinstance(file, gzip.GzipFile) else file
    return min(raw.tell() / max(os.path.getsize(path), 1), 1.0)


# -- the types of the columns of a text file ------------------------------------------------------------------------------


def _widen(types: dict[Any, str], frame: Any) -> None:
    """Widen the types of columns to those of another block, as if pandas had read the whole file at once."""
    for name in frame.columns:
        column = frame[name]
        found = {"i": "int", "u": "float", "f": "float", "b": "bool"}.get(getattr(column.dtype, "kind", "O"), "text")
        if found == "float" and column.isna().all():
            found = "empty"
        if found == "text" and column.map(lambda value: isinstance(value, bool)).any():
            found = "bool with gaps"
        known = types.get(name, found)
        types[name] = known if known == found else _WIDER.get(frozenset((known, found)), "text")


_WIDER = {
    frozenset(("int", "float")): "float",
    frozenset(("int", "empty")): "float",
    frozenset(("float", "empty")): "float",
    frozenset(("text", "empty")): "text",
    frozenset(("bool", "bool with gaps")): "bool with gaps",
    frozenset(("bool", "empty")): "bool with gaps",
    frozenset(("bool with gaps", "empty")): "bool with gaps",
}


def _dtypes(types: dict[Any, str]) -> dict[Any, Any]:
    """Return the types that pandas must not infer separately for each block."""
    fixed = {"int": np.int64, "float": np.float64, "text": str}
    return {name: fixed[kind] for name, kind in types.items() if kind in fixed}


# -- public functions -----------------------------------------------------------------------------------------------------


def open_table(
    source: str, options: TableOptions, console: Console, choice: ColumnChoice = ALL_COLUMNS, in_blocks: Any = None
) -> Any:
    """Return the blocks of a table: those of a large one as they are needed, or else a list of one DataFrame.

    If `in_blocks` is given, it chooses the columns of a large table.
    """
    if is_large(source, options):
        return TableBlocks(source, options, console, choice if in_blocks is None else in_blocks)
    return [read_table(source, options, console, choice)]


def in_turn(blocks: Any, console: Console) -> Iterator[tuple[int, Any, Messages]]:
    """Yield the number of the first row of each block, the block, and a console whose messages name the rows of the block."""
    if isinstance(blocks, list):
        for frame in blocks:
            yield 0, frame, console
        return
    first, share, work = 0, 0.0, object()
    for frame in blocks:
        yield (
            first,
            frame,
            BlockConsole(console, blocks.source, (first, first + len(frame)), (share, blocks.share), work),
        )
        first, share = first + len(frame), blocks.share


class BlockConsole:
    """A console whose messages refer to some rows of a table, and whose progress is that of the whole table.

    Parameters
    ----------
    console : Console
    source : str
        The name of the table.
    rows : (int, int)
        The numbers of the first row and of the row after the last one.
    shares : (float, float)
        The shares of the table that have been read before the block and after it.
    work : object
        The same for all blocks of a table that is read once.
    """

    def __init__(
        self, console: Console, source: str, rows: tuple[int, int], shares: tuple[float, float], work: object
    ) -> None:
        self._console, self._source, self._shares, self._work = console, source, shares, work
        self._rows = f"rows {rows[0]:,} to {rows[1] - 1:,}"

    def progress(self, done: float, total: float, text: str) -> None:
        """Print progress within this block as a share of the whole table."""
        share = self._shares[0] + (self._shares[1] - self._shares[0]) * done / total
        self._console.progress(int(100 * share), 100, f"% of {self._source}: {text}", work=self._work)

    def say(self, text: str) -> None:
        """Print a note that names the rows of this block."""
        self._console.say(f"{self._rows}: {text}")

    def warn(self, text: str) -> None:
        """Print a warning that names the rows of this block."""
        self._console.warn(f"{self._rows}: {text}")


def is_large(source: str, options: TableOptions) -> bool:
    """Return whether a table should be read in blocks; errors are left to the function that reads it."""
    if source == "-" or not os.path.exists(source):
        return False
    kind = table_format(source, options)
    path = Path(source)
    if path.is_dir():
        return kind in ("parquet", "zarr")
    if kind == "parquet":
        with contextlib.suppress(Exception):  # it is damaged, or pyarrow is missing
            from pyarrow.parquet import read_metadata

            metadata = read_metadata(source)
            return 8 * metadata.num_rows * metadata.num_columns > LARGE
    if kind in ("csv", "tsv", "npy"):
        size = path.stat().st_size
        return size * (_UNPACKED if source.lower().endswith(".gz") else 1) > LARGE
    return False
