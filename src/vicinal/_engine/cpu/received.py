"""What the points receive in a piece of pruned work, only for the tiles that the piece reaches.

A piece of work reaches few tiles, and lines for all tiles would take as much memory as several copies of the rows.  The
kernel takes a line for a tile when it first reaches the tile, and returns when there may not be enough lines for its next block
of queries.
"""

import numpy as np

from vicinal._engine import tuning
from vicinal._engine.tuning import PRUNED_TILE
from vicinal._engine.work.sharing import Sums, Touched


class ReceivedTiles:
    """The lines of tiles in one piece of work.

    Parameters
    ----------
    n_tiles : int
    width : int
        The number of columns that a point receives; 0 if points receive nothing.

    Attributes
    ----------
    columns : array of shape (lines, width, PRUNED_TILE)
    slots : integer array of shape (n_tiles,)
        The line of each tile, or -1.
    progress : integer array of shape (3,)
        Blocks of queries that are done, lines in use, and lines that the next block may need.
    """

    def __init__(self, n_tiles: int, width: int) -> None:
        lines = min(n_tiles, max(tuning.RECEIVED_BYTES // (8 * width * PRUNED_TILE), 1)) if width else 0
        self.columns = np.zeros((lines, width, PRUNED_TILE))
        self.slots = np.full(n_tiles, -1, dtype=np.int64)
        self.progress = np.zeros(3, dtype=np.int64)
        self._total: Sums | Touched = Touched((self.columns[:0],), np.empty(0, dtype=np.uint32), n_tiles)

    def make_room(self) -> None:
        """Add the lines in use to the sums of the piece, and allocate enough of them for the next block."""
        _, used, needed = self.progress.tolist()
        if used:
            touched = np.flatnonzero(self.slots >= 0)
            lines = self.columns[self.slots[touched]]
            self._total = Touched((lines,), touched.astype(np.uint32), len(self.slots)).add_to(self._total)
            self.columns[:used], self.slots[touched], self.progress[1] = 0.0, -1, 0
        if needed > len(self.columns):
            self.columns = np.zeros((needed, *self.columns.shape[1:]))

    def sums(self, *others: np.ndarray) -> Sums | Touched:
        """Return the sums of the piece, with others beside them."""
        if self.columns.shape[1] == 0:
            return self.columns, *others
        if isinstance(self._total, Touched):
            return self._total._replace(sums=(*self._total.sums, *others))
        return *self._total, *others


class GivenNumbers:
    """One number for each point of tiles, which pieces of work give to the few tiles that they reach.

    Arrays of zeros for all tiles are used again by the next piece: new ones would be filled by the system page by page.

    Parameters
    ----------
    n_tiles : int
    """

    def __init__(self, n_tiles: int) -> None:
        self._n_tiles = n_tiles
        self._zeros: list[np.ndarray] = []

    def zeros(self) -> np.ndarray:
        """Return zeros of shape (n_tiles, PRUNED_TILE), for one piece."""
        try:
            return self._zeros.pop()
        except IndexError:  # another thread may have taken the last one
            return np.zeros((self._n_tiles, PRUNED_TILE))

    def sums(self, given: np.ndarray, reached: np.ndarray, *others: np.ndarray) -> Touched:
        """Return the sums of a piece, given the tiles that it has reached (with repetitions), with others beside them."""
        touched = np.flatnonzero(np.bincount(reached, minlength=self._n_tiles)).astype(np.uint32)
        lines = given[touched]
        given[touched] = 0.0
        self._zeros.append(given)
        return Touched((lines, *others), touched, self._n_tiles)
