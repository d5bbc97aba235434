"""How the pairs are cut into blocks of rows and tiles of points."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Blocks:
    """Rows in blocks, points in tiles; a pure function of the problem, never of the number of threads.

    Parameters
    ----------
    n_queries, n_points : int
    rows : int
        Queries in a block.
    """

    n_queries: int
    n_points: int
    rows: int

    @classmethod
    def for_pairs(cls, n_queries, n_points, pairs, multiple=1):
        """Blocks of about `pairs` pairs, their rows a multiple of `multiple`."""
        rows = max(pairs // max(n_points, 1), 1)
        rows = max(rows // multiple, 1) * multiple
        return cls(n_queries, n_points, min(rows, -(-n_queries // multiple) * multiple))

    def __iter__(self):
        """Yield the slices of the queries, in order."""
        for start in range(0, self.n_queries, self.rows):
            yield slice(start, min(start + self.rows, self.n_queries))

    def __len__(self):
        return -(-self.n_queries // self.rows)
