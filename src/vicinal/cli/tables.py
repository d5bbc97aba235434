"""Tables that a command reads: whole or in blocks, from a file or from stdin ("-")."""

import sys
from argparse import Namespace
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from vicinal._files import FileError, ReadOptions, TableFile
from vicinal._tables import check_names
from vicinal._words import count
from vicinal.cli.console import Console
from vicinal.cli.errors import DATA, Failure
from vicinal.cli.wording import in_command

if TYPE_CHECKING:
    import pandas as pd

TableOptions = ReadOptions
_AS_NAMED = TableOptions()
Choose = Callable[[list[str]], list[str] | None]  # the columns to read, given all of them; None stands for all


def table_options(arguments: Namespace) -> TableOptions:
    """Return the table options of a parsed command line; every field has the name of its option."""
    return TableOptions(**{name: getattr(arguments, name) for name in TableOptions._fields})


def all_columns(columns: list[str]) -> None:
    """Choose all columns."""


def chosen_columns(options: list[str] | None, also: Collection[str | None] = (), most: int | None = None, refusal: str = "") -> Choose:  # fmt: skip
    """Return a choice of the columns of ``--columns`` and of further ones; without the option, of all.

    Parameters
    ----------
    options : list of str or None
    also : further columns that are needed, if the table has them
    most : the largest number of columns that can be used, or None
    refusal : the message for more columns
    """

    def choose(columns: list[str]) -> list[str] | None:
        if options is None:
            if most is not None and len(columns) > most:
                raise Failure(DATA, f"the table has {count(len(columns), 'column')}: {refusal}")
            return None
        wanted = split_names(options, columns)
        check_names(wanted, columns, "--columns")
        return [column for column in columns if column in {*wanted, *also}]

    return choose


def split_names(options: Any, columns: Any) -> list[str]:
    """Return column names from repeated or comma-separated options; names that contain a comma are recognised, too."""
    names: list[str] = []
    for option in options or ():
        names += [option] if option in columns else [name.strip() for name in option.split(",") if name.strip()]
    return names


def table_file(source: str, options: TableOptions = _AS_NAMED, *, lists: bool = False) -> TableFile:
    """Return a table that is read later; "-" is stdin (CSV unless `options.format` says otherwise)."""
    if source != "-":
        return TableFile(source, options, lists=lists)
    if sys.stdin is None:
        raise FileError("cannot read stdin: it is closed.")
    return TableFile("stdin", options, data=sys.stdin.buffer.read(), lists=lists)


def read_table(
    source: str,
    options: TableOptions = _AS_NAMED,
    console: Console | None = None,
    choose: Choose = all_columns,
    *,
    lists: bool = False,
) -> "pd.DataFrame":
    """Return a whole table; columns of numbers of a large one are memory maps.

    Parameters
    ----------
    source : str
        A path, or "-" for stdin.
    options : TableOptions
    console : Console, optional
        Receives messages about the header.
    choose : callable
        Chooses the columns to read.
    lists : bool
        Whether lists stay lists; otherwise they are read as text, like all objects that are neither numbers nor text.
    """
    file = table_file(source, options, lists=lists)
    _say_notes(file, console)
    return file.read(choose, _progress_of(file, console))


def is_large(source: str, options: TableOptions) -> bool:
    """Return whether `blocks` yields a table in more than one part."""
    return source != "-" and TableFile(source, options).is_large


class Block(NamedTuple):
    """Some rows of a table.

    first : the number of the first one
    table : DataFrame
    whole : whether they are all rows of the table
    """

    first: int
    table: Any
    whole: bool


def blocks(source: str, options: TableOptions, console: Console, choose: Choose = all_columns) -> Iterator[Block]:
    """Yield a large table block by block, and another one as one block; meanwhile messages name the rows of the block."""
    file = table_file(source, options)
    _say_notes(file, console)
    if not file.is_large:
        yield Block(0, file.read(choose), True)
        return
    first, share = 0, 0.0
    for frame in file.frames(choose, None, _progress_of(file, console)):
        with console.block(f"rows {first:,} to {first + len(frame) - 1:,}", source, share, file.share):
            yield Block(first, frame, False)
        first, share = first + len(frame), file.share


def _say_notes(file: TableFile, console: Console | None) -> None:
    """Print what is unusual about the header."""
    if console is not None:
        for text, is_warning in file.notes:
            (console.warn if is_warning else console.say)(in_command(text))


def _progress_of(file: TableFile, console: Console | None) -> Callable[[float], None]:
    def progress(share: float) -> None:
        if console is not None and file.is_large:
            console.progress(int(100 * share), 100, f"% of {file.name}: detecting numbers and texts")

    return progress
