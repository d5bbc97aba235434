"""The queries of one call: all resident rows, some of them, or new rows."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Queries:
    """The queries of one call.

    Attributes
    ----------
    positions : integer array of shape (m,), optional
        Resident rows by position.
    rows : array of shape (m, D), optional
        New rows, centred like the points.  If both are None, the queries are all resident rows.
    left_out : integer array of shape (m,), optional
        The position that is excluded for each query, or -1.  None excludes nothing.
    """

    positions: np.ndarray | None = None
    rows: np.ndarray | None = None
    left_out: np.ndarray | None = None

    @property
    def are_all(self) -> bool:
        """Whether the queries are all resident rows, in their order."""
        return self.positions is None and self.rows is None

    def take(self, some: np.ndarray, n: int) -> "Queries":
        """Return some of the queries; `n` is the number of resident rows."""
        left_out = None if self.left_out is None else self.left_out[some]
        if self.rows is not None:
            return Queries(rows=self.rows[some], left_out=left_out)
        positions = np.arange(n) if self.positions is None else self.positions
        return Queries(positions=positions[some], left_out=left_out)

    def count(self, n: int) -> int:
        """Return the number of queries, m."""
        if self.rows is not None:
            return len(self.rows)
        return n if self.positions is None else len(self.positions)
