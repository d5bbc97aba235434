"""Share pieces of work with other processes, and add their sums in a tree.

A reduction divides its work into pieces that depend on the data alone and passes them to `pool.in_order` or to `summed`.  If a
`Sharing` is active (`dask/backend.py`), the pieces are computed on the workers of a cluster, otherwise by threads of this process.
In both cases a piece is computed by the same code from the same numbers, and results are added in the same order, so that
results are bitwise equal for any number of threads or workers.

::

      root                sums of pieces are added in a tree whose nodes have FAN children, in their order:
      +-- node            a worker computes a whole node and returns only its sum
      |   +-- piece
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

FAN = 4  # children of a node
_SMALL = 2**20  # bytes of sums that are added faster with their zeros
_UNEVEN = 1.5  # a node that costs more than this many times the share of a task is split

Sums = tuple[np.ndarray, ...]
_Made = TypeVar("_Made")


class Filled(NamedTuple):
    """Arrays that pieces of work fill besides their results, each piece in its own consecutive rows.

    Attributes
    ----------
    arrays : tuple of arrays
        The arrays; those of length 0 are not filled.
    rows : callable
        The rows (a slice) that a piece fills; those of consecutive pieces follow one another.
    """

    arrays: tuple[np.ndarray, ...]
    rows: Callable[[Any], slice]


NOTHING = Filled((), lambda piece: slice(0, 0))  # for pieces that only return results


class WithItem(NamedTuple):
    """The result of a piece that has an item besides its sums; items of all pieces are listed."""

    sums: "Sums | Touched"
    item: Any


class Node(NamedTuple):
    """A node of the tree over the pieces: its level (0: a piece), its sums, and the items of its pieces."""

    level: int
    sums: "Sums | Touched"
    items: list[Any]


class Sharing(Protocol):
    """Compute pieces of work in other processes.

    `costs` are the numbers of pairs that the pieces are expected to visit; None if they are all equal.
    """

    def takes(self, costs: np.ndarray | None) -> bool:
        """Return whether work of these costs is done by others; small work is done here."""
        ...

    def run(
        self, work: Callable[[Any], Any], pieces: Sequence[Any], filled: Filled, costs: np.ndarray | None = None
    ) -> Iterator[Any]:
        """Yield ``work(piece)`` for each piece, in order."""
        ...

    def run_nodes(
        self,
        work: "Callable[[Any], Sums | Touched | WithItem]",
        pieces: Sequence[Any],
        filled: Filled,
        costs: np.ndarray | None = None,
    ) -> Iterator[Node]:
        """Yield consecutive nodes of the tree over the pieces; see `summed`."""
        ...

    def remember(self, made: Any, make: Callable[..., Any], *args: Any) -> None:
        """Record that ``make(*args)`` recreates `made`; the arguments must not change afterwards."""
        ...


_sharing: ContextVar[Sharing | None] = ContextVar("vicinal_sharing", default=None)


def sharing() -> Sharing | None:
    """Return the active `Sharing`, or None."""
    return _sharing.get()


@contextmanager
def shared_by(those: Sharing | None) -> Iterator[None]:
    """Within this context, pieces of work are computed by `those`, or by this process alone if it is None."""
    token = _sharing.set(those)
    try:
        yield
    finally:
        _sharing.reset(token)


def remember(made: Any, make: Callable[..., Any], *args: Any) -> None:
    """Record how to recreate an object from data that other processes have, so that it is never sent.

    Parameters
    ----------
    made : array, or object whose attributes are arrays
    make : callable
        A function of a module.
    args : objects
        Arrays among them must not change afterwards.
    """
    those = _sharing.get()
    if those is not None:
        those.remember(made, make, *args)


def made_by_all(here: Callable[[], _Made], make: Callable[..., Any], *args: Any) -> _Made:
    """Return ``here()``, which others recreate by ``make(*args)``; see `remember` for the arguments."""
    made = here()
    remember(made, make, *args)
    return made


class Touched(NamedTuple):
    """Sums whose first array is zero except at some of its leading indices."""

    sums: Sums
    touched: np.ndarray
    length: int

    @classmethod
    def of(cls, sums: Sums) -> "Sums | Touched":
        """Return the sums without their zeros if most entries are zero."""
        first = sums[0]
        if len(first) == 0:
            return sums
        touched = np.flatnonzero(first.reshape(len(first), -1).any(axis=1)).astype(np.uint32)
        if 2 * len(touched) > len(first):
            return sums
        return cls((first[touched], *sums[1:]), touched, len(first))

    def whole(self) -> Sums:
        """Return the sums with their zeros."""
        first = np.zeros((self.length, *self.sums[0].shape[1:]), dtype=self.sums[0].dtype)
        first[self.touched] = self.sums[0]
        return (first, *self.sums[1:])

    def add_to(self, total: "Sums | Touched") -> "Sums | Touched":
        """Return the sum of these and others, whose arrays may be changed; entries that are zero in both are not stored."""
        if isinstance(total, Touched) and self.length * total.sums[0][:1].nbytes <= _SMALL:
            total = total.whole()
        elif isinstance(total, Touched):
            either = np.zeros(self.length, dtype=bool)
            either[total.touched] = either[self.touched] = True
            if 2 * np.count_nonzero(either) > self.length:  # later sums are added to it in place
                total = total.whole()
        if isinstance(total, Touched):
            both = np.flatnonzero(either).astype(np.uint32)
            place = np.cumsum(either) - 1
            first = np.zeros((len(both), *self.sums[0].shape[1:]), dtype=self.sums[0].dtype)
            for part in (total, self):
                first[place[part.touched]] += part.sums[0]
            total = Touched((first, *total.sums[1:]), both, self.length)
            rest = total.sums[1:]
        else:
            total[0][self.touched] += self.sums[0]
            rest = total[1:]
        for to, more in zip(rest, self.sums[1:], strict=True):
            to += more
        return total


class TreeSum:
    """Sums of pieces, added in a tree: the sum of a node is that of its `FAN` children, in their order."""

    def __init__(self) -> None:
        self._levels: list[tuple[int, Sums | Touched | None]] = []

    def add(self, sums: "Sums | Touched", level: int = 0) -> None:
        """Add the next node of a level (0: a piece); its arrays may be changed."""
        while len(self._levels) <= level:
            self._levels.append((0, None))
        count, total = self._levels[level]
        count, total = count + 1, _added(total, sums)
        if count < FAN:
            self._levels[level] = count, total
        else:
            self._levels[level] = 0, None
            self.add(total, level + 1)

    def total(self) -> Sums | None:
        """Return the sums of all pieces; None if there were none."""
        rest: Sums | Touched | None = None
        for _, total in self._levels:
            if total is not None:
                rest = total if rest is None else _added(total, rest)
        return rest.whole() if isinstance(rest, Touched) else rest


def _added(total: "Sums | Touched | None", more: "Sums | Touched") -> "Sums | Touched":
    if total is None:
        # One number per point takes little memory, and adding to it is much faster than adding to a list of points.
        return more.whole() if isinstance(more, Touched) and more.sums[0].ndim == 1 else more
    if isinstance(more, Touched):
        return more.add_to(total)
    if isinstance(total, Touched):  # a + b = b + a, to the last bit
        return total.add_to(more)
    for to, part in zip(total, more, strict=True):
        to += part
    return total


def node_of(work: Callable[[Any], Sums | Touched | WithItem], pieces: Sequence[Any], level: int) -> Node:
    """Compute all pieces of a node."""
    tree, items = TreeSum(), []
    for piece in pieces:
        found: Sums | Touched | WithItem = work(piece)
        if isinstance(found, WithItem):
            items.append(found.item)
        tree.add(found.sums if isinstance(found, WithItem) else found)
    total = tree.total()
    assert total is not None
    return Node(level, Touched.of(total) if total else total, items)


def nodes_by_cost(costs: np.ndarray, wanted: int) -> list[tuple[int, int]]:
    """Consecutive nodes of the tree, as the first piece of each and its level: the heaviest ones are split.

    There are about as many as requested, and none costs much more than its share, if there are enough pieces.
    """
    ends = np.concatenate([[0.0], np.cumsum(costs)])
    n, level = len(costs), 0
    while FAN**level < n:
        level += 1

    def heavy(first: int, level: int) -> tuple[float, int, int]:
        return float(ends[first] - ends[min(first + FAN**level, n)]), first, level

    nodes = [heavy(0, level)]  # the heaviest of those that can be split comes first
    done: list[tuple[int, int]] = []
    while nodes and (len(nodes) + len(done) < wanted or -nodes[0][0] * wanted > _UNEVEN * ends[-1]):
        _, first, level = heapq.heappop(nodes)
        if level == 0:
            done.append((first, level))
            continue
        for child in range(first, min(first + FAN**level, n), FAN ** (level - 1)):
            heapq.heappush(nodes, heavy(child, level - 1))
    return sorted([*done, *((first, level) for _, first, level in nodes)])
