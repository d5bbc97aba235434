"""NCA of rows that do not fit into memory: every round of minibatches works on a new draw of rows from a source.

A round searches neighbours among the rows of its draw, which are as many as fit into the working memory.  The initial
matrix, and the rows on which all rounds are evaluated, come from the first draw.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from vicinal._checks import check_source, check_spread, check_weights
from vicinal._engine import Work, fit_engine, resident_rows
from vicinal._nca.rows import Rows, prepare_rows
from vicinal._row_sources import RowSource
from vicinal._supervision import read_targets


class DrawnRows:
    """Rows with their targets and weights, drawn from a source.

    Parameters
    ----------
    estimator : NCA
    source : RowSource
    y, sample_weight : array-like of length n, or None
    objective : Objective

    Attributes
    ----------
    first : integer array
        The positions in the source of the rows of the first draw.
    """

    first: np.ndarray | None = None

    def __init__(self, estimator: Any, source: RowSource, y: Any, sample_weight: Any, objective: Any) -> None:
        ranges = check_source(estimator, source, min_rows=2)
        check_spread(np.stack(ranges))
        self._source, self._objective, n = source, objective, source.shape[0]
        self._targets = read_targets(y, n, objective.match)
        self._weight = check_weights(sample_weight, np.broadcast_to(0.0, source.shape))
        self._counted = None if self._weight is None else np.flatnonzero(self._weight)
        self._most = min(resident_rows(estimator.engine, source.shape[1], source.dtype), n)
        estimator.random_state_ = check_random_state(estimator.random_state)
        self._rng = np.random.default_rng(estimator.random_state_.randint(2**31 - 1))

    @property
    def targets(self) -> np.ndarray:
        """The targets of all rows of positive weight."""
        return self._targets if self._counted is None else self._targets[self._counted]

    def draw(self) -> tuple[np.ndarray, Rows]:
        """Return some rows of the source, and those of positive weight with their targets.

        A row that is the only one of its class in a draw agrees with no other row there, and is left out.
        """
        n = self._source.shape[0] if self._counted is None else len(self._counted)
        chosen = np.sort(self._rng.choice(n, min(self._most, n), replace=False))
        positions = chosen if self._counted is None else self._counted[chosen]
        if self._objective.match == "class":
            codes = self._targets[positions]
            positions = positions[np.bincount(codes)[codes] > 1]
        if len(positions) < 2:
            raise ValueError(
                f"no two of {len(chosen):,} rows that were drawn at random from {n:,} rows have the same class. Merge small classes, or "
                "give the engine more memory, as in Engine(memory='4 GB'), to draw more rows at a time."
            )
        if self.first is None:
            self.first = positions
        X = self._source.take(positions)
        weight = None if self._weight is None else self._weight[positions]
        match, scale = self._objective.match, self._objective.match_scale
        return X, prepare_rows(X, self._targets[positions], weight, match, scale)

    def rounds(self, estimator: Any, n_queries: int, n_points: int, n_dims: int, passes: int) -> Callable[[], Rows]:
        """Return a function that draws other rows for each round and passes them to the engine for such `Work`."""

        def draw() -> Rows:
            return self.draw()[1].resident(fit_engine(estimator), Work(n_queries, n_points, n_dims, passes))

        return draw
