"""Tables that a command reads: whole or in blocks, from a file or from stdin ("-"), with its messages and exit codes."""

import sys
from argparse import Namespace
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from vicinal._files import FileError, ReadOptions, TableFile
from vicinal._files import format_of as _format_of
from vicinal._files import is_table as is_table
from vicinal._files import map_array as _map_array
from vicinal._words import similar_columns
from vicinal.cli.console import Console, Messages, count, one_line, shown
from vicinal.cli.errors import DATA, MISSING_EXTRA, USAGE, Failure
from vicinal.cli.wording import in_command

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

TableOptions = ReadOptions
_EXTRAS = {"zarr": "zarr"}


def table_options(arguments: Namespace) -> TableOptions:
    """Return the table options of a parsed command line; every field has the name of its option."""
    return TableOptions(**{name: getattr(arguments, name) for name in TableOptions._fields})


class ColumnChoice(NamedTuple):
    """The columns of a table that are read.

    options : the values of ``--columns``, or None for all
    also : further columns that are needed, if the table has them
    most : the largest number of columns that can be used, or None
    refusal : the message for more columns
    """

    options: list[str] | None = None
    also: tuple[str | None, ...] = ()
    most: int | None = None
    refusal: str = ""

    def of(self, columns: list[str], name: str) -> list[str] | None:
        """Return the columns to read, in the order of the table; None for all."""
        if self.options is None:
            if self.most is not None and len(columns) > self.most:
                raise Failure(DATA, f"{name} has {count(len(columns), 'column')}: {self.refusal}")
            return None
        wanted = split_names(self.options, columns)
        check_columns(wanted, columns, "--columns")
        return [column for column in columns if column in {*wanted, *self.also}]


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


_AS_NAMED, ALL_COLUMNS = TableOptions(), ColumnChoice()


class _Failures:
    """Turns errors about a file into failures of the command."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, FileError):
            raise Failure(USAGE if error.is_option else DATA, in_command(str(error))) from error
        if isinstance(error, ImportError):
            package = (error.name or "").partition(".")[0]
            extra = f"'vicinal[{_EXTRAS.get(package, 'app')}]'" if package != "openpyxl" else "openpyxl"
            text = f"reading this table needs the package {package!r}, which could not be imported ({one_line(error)})."
            raise Failure(MISSING_EXTRA, f"{text} Install it with: pip install {extra}") from error


def format_of(path: str, *, what: str = "file") -> str:
    """Return the format of a file by its extension."""
    with _Failures():
        return _format_of(path, what=what)


def map_array(path: str) -> "np.ndarray":
    """Return the array of an NPY file as a memory map."""
    with _Failures():
        return _map_array(path)


def table_file(source: str, options: TableOptions = _AS_NAMED, *, lists: bool = False) -> TableFile:
    """Return a table that is read later; "-" is stdin (CSV unless `options.format` says otherwise)."""
    with _Failures():
        if source != "-":
            return TableFile(source, options, lists=lists)
        if sys.stdin is None:
            raise FileError("cannot read stdin: it is closed.")
        return TableFile("stdin", options, data=sys.stdin.buffer.read(), lists=lists)


def split_names(options: Any, columns: Any) -> list[str]:
    """Return column names from repeated or comma-separated options; names that contain a comma are recognised, too."""
    names: list[str] = []
    for option in options or ():
        names += [option] if option in columns else [name.strip() for name in option.split(",") if name.strip()]
    return names


def check_columns(names: Iterable[str], columns: Collection[str], option: str) -> None:
    """Raise an error for names that the table does not have, with similar names as a hint."""
    for name in names:
        if name not in columns:
            hint = similar_columns([name], [column for column in columns if column not in names])
            raise Failure(DATA, f"{option}: there is no column {name!r}.{hint} The table has {shown(columns)}.")


def read_table(
    source: str,
    options: TableOptions = _AS_NAMED,
    console: Messages | None = None,
    choice: ColumnChoice | NeededColumns = ALL_COLUMNS,
    *,
    vectors: bool = False,
) -> "pd.DataFrame":
    """Read a table into a DataFrame with unique text column names.

    Parameters
    ----------
    source : str
        A path, or "-" for stdin.
    options : TableOptions
    console : Console, optional
        Receives messages about the header.
    choice : ColumnChoice
        The columns to read; of text files, Parquet and Feather, only these columns are read.
    vectors : bool
        Whether lists stay lists; otherwise they are read as text, like all objects that are neither numbers nor text.
    """
    return TableBlocks(source, options, console, choice, vectors=vectors).whole()


class TableBlocks:
    """The rows of a table, as DataFrames with unique text column names; they can be read more than once.

    Parameters
    ----------
    source : str
        A path.
    options : TableOptions
    console : Console or None
        Receives messages about the header, and the progress of the search for types.
    choice : ColumnChoice or NeededColumns
    vectors : bool
        See `read_table`.

    Attributes
    ----------
    source : str
    """

    def __init__(
        self,
        source: str,
        options: TableOptions,
        console: Any,
        choice: ColumnChoice | NeededColumns = ALL_COLUMNS,
        *,
        vectors: bool = False,
    ) -> None:
        self.source, self._console, self._choice = source, console, choice
        self._file = table_file(source, options, lists=vectors)
        self._noted = False

    @property
    def share(self) -> float:
        """The share of the table that has been read, from 0 to 1."""
        return self._file.share

    @property
    def is_large(self) -> bool:
        """Whether the table should be read in blocks."""
        return self._file.is_large

    def whole(self) -> "pd.DataFrame":
        """Return the whole table; columns of numbers of a large one are memory maps."""
        with _Failures():
            self._say_notes()
            return self._file.read(self._choose, self._progress)

    def __iter__(self) -> Iterator[Any]:
        """Yield the blocks; none is empty."""
        with _Failures():
            self._say_notes()
        frames = self._file.frames(self._choose, None, self._progress)
        while True:
            with _Failures():
                frame = next(frames, None)
            if frame is None:
                return
            yield frame

    def _choose(self, columns: list[str]) -> list[str] | None:
        return self._choice.of(columns, self._file.name)

    def _say_notes(self) -> None:
        """Print what is unusual about the header, once."""
        if self._console is not None and not self._noted:
            for text, is_warning in self._file.notes:
                (self._console.warn if is_warning else self._console.say)(in_command(text))
        self._noted = True

    def _progress(self, share: float) -> None:
        if self._console is not None and self._file.is_large:
            text = f"% of {self.source}: detecting numbers and texts"
            self._console.progress(int(100 * share), 100, text, work=id(self))


def open_table(
    source: str, options: TableOptions, console: Console, choice: ColumnChoice = ALL_COLUMNS, in_blocks: Any = None
) -> Any:
    """Return the blocks of a table: those of a large one as they are needed, or else a list of one DataFrame.

    If `in_blocks` is given, it chooses the columns of a large table.
    """
    blocks = TableBlocks(source, options, console, choice)
    if not blocks.is_large:
        return [blocks.whole()]
    return blocks if in_blocks is None else TableBlocks(source, options, console, in_blocks)


def in_turn(blocks: Any, console: Console) -> Iterator[tuple[int, Any, Messages]]:
    """Yield the number of the first row of each block, the block, and a console whose messages name the rows of the block."""
    if isinstance(blocks, list):
        for frame in blocks:
            yield 0, frame, console
        return
    first, share, work = 0, 0.0, object()
    for frame in blocks:
        shares = (share, blocks.share)
        yield first, frame, BlockConsole(console, blocks.source, (first, first + len(frame)), shares, work)
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
        """Show the share of the table that is done."""
        share = self._shares[0] + (self._shares[1] - self._shares[0]) * done / total
        self._console.progress(int(100 * share), 100, f"% of {self._source}: {text}", work=self._work)

    def say(self, text: str) -> None:
        """Print a message about the rows of the block."""
        self._console.say(f"{self._rows}: {text}")

    def warn(self, text: str) -> None:
        """Print a warning about the rows of the block."""
        self._console.warn(f"{self._rows}: {text}")
