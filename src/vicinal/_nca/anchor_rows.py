"""The rows that AnchorNCA learns from, which may be in memory maps."""

import numpy as np

from vicinal._checks import check_magnitude
from vicinal._nca.anchor_pairs import Batch


class AnchorRows:
    """The rows of X and those of the anchors, in one precision, gathered when they are needed.

    `unread` states that the rows are in memory maps and have not been validated yet.
    """

    def __init__(self, X: np.ndarray, anchors: np.ndarray, unread: bool = True) -> None:
        self.X, self.anchors, self.unread = X, anchors, unread
        self.dtype = np.result_type(X.dtype, anchors.dtype)

    def of(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """Return the anchors and the candidates of a batch."""
        return self.gather(self.anchors, batch.anchors), self.gather(self.X, batch.candidates)

    def gather(self, table: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return some rows, or raise an error if they are not finite, or too large to be squared."""
        rows = np.asarray(table[positions], dtype=self.dtype)
        if self.unread:
            if not np.isfinite(rows).all():
                raise ValueError(
                    "X or queries contain NaN or infinity in rows of pairs. Drop such rows or fill in their values."
                )
            check_magnitude(rows, "X or queries")
        return rows
