"""How the rows are cut into blocks."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from vicinal._engine import tuning


@dataclass(frozen=True)
class Blocks:
    """Queries in blocks: a pure function of the problem, never of the number of threads.

    Parameters
    ----------
    n_queries : int
    rows : int
        The number of queries in a block.
    """

    n_queries: int
    rows: int

    @classmethod
    def for_pairs(cls, n_queries: int, n_points: int, pairs: int) -> "Blocks":
        """Return blocks of about `pairs` pairs."""
        return cls(n_queries, max(min(pairs // n_points, n_queries), 1))

    def __iter__(self) -> Iterator[slice]:
        """Yield the slices of the queries, in order."""
        for start in range(0, self.n_queries, self.rows):
            yield slice(start, min(start + self.rows, self.n_queries))

    def __len__(self) -> int:
        return -(-self.n_queries // self.rows)


def columns_of(part: slice | np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which of some points are in a part, given as a slice or by positions, and where there."""
    if isinstance(part, slice):
        here = np.flatnonzero((points >= part.start) & (points < part.stop))
        return here, points[here] - part.start
    order = np.argsort(part)
    at = np.minimum(np.searchsorted(part, points, sorter=order), len(part) - 1)
    here = np.flatnonzero(part[order[at]] == points)
    return here, order[at[here]]


def cut_by_cost(costs: np.ndarray, parts: int) -> list[tuple[int, int]]:
    """Divide consecutive items into at most a given number of parts, from..to, of about equal cost."""
    ends = np.cumsum(costs)
    cuts = np.searchsorted(ends, np.linspace(0, ends[-1], parts + 1)[1:-1], side="left") + 1
    edges = np.unique(np.concatenate([[0], np.minimum(cuts, len(costs)), [len(costs)]]))
    return [(int(first), int(last)) for first, last in pairwise(edges)]


def listed_parts(n_pairs: int, numbers_per_pair: int, most: int | None = None) -> Iterator[slice]:
    """Return slices of listed pairs whose differences, with a given number of float64 numbers per pair, fit into `most` bytes."""
    most = tuning.LISTED_BYTES if most is None else most
    step = max(most // (8 * numbers_per_pair), 1)
    for start in range(0, n_pairs, step):
        yield slice(start, start + step)
