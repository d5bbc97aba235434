"""Work of a command on the rows of a table, which Dask workers do if ``--workers`` or ``--cluster`` requests them.

A table that is read in blocks is sent to the workers block by block (`each_block`). The rows of a table in memory are sent in
parts of `ROWS_IN_PART` rows (`each_part`). The command applies the same functions to the same blocks and parts without workers, so
the results have the same bits.
"""

import warnings
from argparse import Namespace
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from vicinal._dask import rows_on_cluster
from vicinal.cli.console import Console, Messages, one_line
from vicinal.cli.errors import Failure
from vicinal.cli.tables import in_turn

ROWS_IN_PART = 8192
_TASKS_PER_THREAD = 4  # of the parts of a table in memory, so that workers finish at about the same time

# Returns a result for the rows of a block, or None if no row is left, given the number of its first row, the table, the receiver of
# messages, and whether the block is the whole table.
BlockWork = Callable[[int, Any, Messages, bool], Any]


def each_block(work: BlockWork, blocks: Any, console: Console, doing: str) -> Iterator[tuple[Any, Messages]]:
    """Yield the results for the blocks of a table, in their order, with the receiver of messages about the block.

    Parameters
    ----------
    work : callable
        See `BlockWork`. It can be pickled if there are workers.
    blocks : TableBlocks or list of DataFrame
    console : Console
    doing : str
        What is done with the rows, for the progress, as in "scoring".
    """
    if isinstance(blocks, list) or not rows_on_cluster():
        for first, table, messages in in_turn(blocks, console):
            found = work(first, table, messages, isinstance(blocks, list))
            if found is not None:
                yield found, messages
            if not isinstance(blocks, list):
                messages.progress(1, 1, doing)
        return
    from vicinal._dask.tasks import results_in_order

    consoles: deque[Messages] = deque()

    def items() -> Iterator[tuple[int, Any]]:
        for first, table, messages in in_turn(blocks, console):
            consoles.append(messages)
            yield first, table

    for answer in results_in_order(_OnWorker(work), items(), "vicinal.block"):
        messages = consoles.popleft()
        answer.repeat(messages, console)
        if answer.result is not None:
            yield answer.result, messages
        messages.progress(1, 1, doing)


def each_part(work: Callable[[Any], Any], parts: Sequence[Any], messages: Messages, doing: str) -> list[Any]:
    """Return the results of a function for parts of a table in memory, in their order.

    Inside a worker, and for a single part, this process computes them.
    """
    if len(parts) == 1 or not rows_on_cluster():
        found = []
        for done, part in enumerate(parts):
            if len(parts) > 1:
                messages.progress(done, len(parts), doing)
            found.append(work(part))
        return found
    from vicinal._dask.tasks import n_threads, results_in_order

    size = max(len(parts) // (_TASKS_PER_THREAD * n_threads()), 1)
    found = []
    tasks = (parts[first : first + size] for first in range(0, len(parts), size))
    for some in results_in_order(_EachOf(work), tasks, "vicinal.rows"):
        found += some
        messages.progress(len(found), len(parts), doing)
    return found


def parts_of(rows: Any) -> list[Any]:
    """Return the parts of a table that are given to a model one after the other."""
    rows = getattr(rows, "iloc", rows)
    return [
        rows[start : start + ROWS_IN_PART] for start in range(0, max(len(getattr(rows, "obj", rows)), 1), ROWS_IN_PART)
    ]


def plain_options(arguments: Namespace) -> Namespace:
    """Return the options of a command line without its functions, which cannot be sent to workers."""
    return Namespace(**{name: value for name, value in vars(arguments).items() if not callable(value)})


class _EachOf:
    """The results of a function for some parts: the work of one task."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self._work = work

    def __call__(self, parts: Sequence[Any]) -> list[Any]:
        return [self._work(part) for part in parts]


class _Answer(NamedTuple):
    """The result of a task, and what it would have printed.

    told : the names of methods of `Messages`, and the texts
    warned : warnings of the library
    failure : the failure that ended it, or None
    """

    result: Any
    told: list[tuple[str, str]]
    warned: list[tuple[type[Warning], str]]
    failure: Failure | None

    def repeat(self, messages: Messages, console: Console) -> None:
        """Print the messages in this process, and raise the failure."""
        for how, text in self.told:
            getattr(messages, how)(text)
        for category, text in self.warned:
            console.show_warning(text, category, "", 0)
        if self.failure is not None:
            raise self.failure


class _OnWorker:
    """The work for a block, on a worker."""

    def __init__(self, work: BlockWork) -> None:
        self._work = work

    def __call__(self, item: tuple[int, Any]) -> _Answer:
        messages, result, failure = _Recorded(), None, None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                result = self._work(*item, messages, False)
            except Failure as raised:
                # Not raised here, because messages that came before it belong to the answer.
                failure = raised
        return _Answer(result, messages.told, [(one.category, one_line(one.message)) for one in caught], failure)


class Silent:
    """Messages that are not printed."""

    def say(self, text: str) -> None:
        """Print nothing."""

    def warn(self, text: str) -> None:
        """Print nothing."""

    def progress(self, done: float, total: float, text: str) -> None:
        """Print nothing."""


class _Recorded(Silent):
    """Messages about a block that another process prints; its progress is shown when the block is finished."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def say(self, text: str) -> None:
        self.told.append(("say", text))

    def warn(self, text: str) -> None:
        self.told.append(("warn", text))
