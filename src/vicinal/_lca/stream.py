"""LCA of a stream of rows (sec. 5.1): the state of ``partial_fit`` and its updates."""

import numpy as np

from vicinal._engine import Engine
from vicinal._kernel_penalty import Penalty
from vicinal._lca.steps import Structure
from vicinal._lca.stochastic import blend, metric_of, sampled_covariance
from vicinal._leave_one_out import leave_one_out


class Stream:
    """A uniform sample of the rows seen (a reservoir), the local covariance learned from them, and their number.

    Parameters
    ----------
    reservoir : array of shape (r, d)
        The rows that are used as neighbours and as components of the density; at most `size`.
    local : array of shape (d, d)
        The local covariance, without the penalty's share.
    seen : int
        The number of rows seen so far.
    size : int
    seed : int
        Together with the number of rows seen, it determines the next draws, so that no other state is needed.
    """

    def __init__(self, reservoir: np.ndarray, local: np.ndarray, seen: int, size: int, seed: int) -> None:
        self.local, self.seen, self.size, self.seed = local, seen, size, seed
        self.rng = np.random.default_rng([seed, seen])
        self.reservoir = reservoir if len(reservoir) <= size else self.rng.permutation(reservoir)[:size]

    def learn(
        self, batch: np.ndarray, *, reg: Penalty, structure: Structure, discount: float, engine: Engine | str | None
    ) -> float:
        """Learn from a minibatch; return its objective per row before that.

        The neighbours of its rows are the other rows and the reservoir. The exponent of Eq. 7 is B / n, where n is the
        number of rows seen so far, so that early rows do not have more weight than late ones.
        """
        # Departure 5 (LCA): A stream counts the rows seen so far. It has no n, and no set of all rows to draw neighbours from.
        points = np.concatenate([self.reservoir, batch])
        terms = np.arange(len(self.reservoir), len(points))
        problem = leave_one_out(points, None, engine, reg=reg, n_queries=len(batch))
        objective, estimate = sampled_covariance(problem, metric_of(self.local, reg, structure), terms)
        self.local = blend(self.local, estimate, discount, len(batch) / (self.seen + len(batch)))
        self._remember(batch)
        return objective

    def _remember(self, batch: np.ndarray) -> None:
        """Apply Algorithm R: every row seen is in the reservoir with the same probability."""
        room = self.size - len(self.reservoir)
        self.reservoir = np.concatenate([self.reservoir, batch[:room]])
        self.seen += len(batch)
        late = batch[room:]
        # Row number t (counted from 1) takes the place of a random one with probability size / t.
        places = self.rng.integers(np.arange(self.seen - len(late), self.seen) + 1)
        for row, place in zip(late, places, strict=True):
            if place < self.size:
                self.reservoir[place] = row
