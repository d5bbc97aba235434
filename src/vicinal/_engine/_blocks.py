"""How the rows are cut into blocks."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Blocks:
    """Queries in blocks: a pure function of the problem, never of the number of threads.

    Parameters
    ----------
    n_queries : int
    rows : int
        Queries in a block.
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
