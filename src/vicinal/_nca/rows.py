"""The rows that a fit of NCA works on, and a sample of them to judge a scale by."""

from typing import NamedTuple

import numpy as np

from vicinal._effective_neighbors import effective_neighbors
from vicinal._engine import pair_reductions
from vicinal._nca.init import column_spread, sample_rows
from vicinal._nca.objectives import log_or_none, neighbor_objective, scaled_images
from vicinal._nca.targets import Targets, check_targets


class Rows(NamedTuple):
    """The rows that count: those of positive weight, centred, sorted by class (kernels like runs)."""

    X: np.ndarray
    targets: Targets
    weight: np.ndarray | None
    positions: np.ndarray  # in the X that was given
    centre: np.ndarray
    spread: np.ndarray


class Sample:
    """A few queries against a few thousand points, to judge a scale by."""

    def __init__(self, rows, engine, n_components):
        points, queries = sample_rows(len(rows.X))
        self.X = rows.X[points]
        targets = rows.targets.take(points)
        self._match = targets.match()
        self._weight = None if rows.weight is None else rows.weight[points]
        self._queries = queries
        self._with_mates = queries[~targets.alone()[queries]]
        self._pairs = pair_reductions(engine, len(queries), len(points), n_components)

    def likelihood(self, A):
        """Eq. 6 per query that has a mate; the others are -inf at every scale."""
        if len(self._with_mates) == 0:
            return 0.0
        found = neighbor_objective(
            A,
            self.X,
            self._match,
            self._pairs,
            objective="likelihood",
            weight=self._weight,
            rows=self._with_mates,
        )
        return found.value

    def effective_neighbors(self, A):
        Z = scaled_images(A, self.X)
        return effective_neighbors(
            Z[self._queries], Z, self._pairs, log_weights=log_or_none(self._weight), left_out=self._queries
        )


def prepare_rows(X, y, weight, match, match_scale):
    positions = np.arange(len(X))
    if weight is not None:
        positions = np.flatnonzero(weight > 0)
        if len(positions) < 2:
            raise ValueError(
                f"at least 2 rows must have a positive sample_weight, got {len(positions)}. Weight more rows."
            )
        weight = weight[positions]
    targets = check_targets(y[positions], match, match_scale, weight)
    if targets.kind == "class":
        order = np.argsort(targets.values, kind="stable")
        positions, targets = positions[order], targets.take(order)
        weight = None if weight is None else weight[order]
    counted = X[positions]
    spread = column_spread(counted)
    centre = counted.mean(axis=0, dtype=np.float64).astype(X.dtype)
    counted -= centre
    if weight is not None:
        weight = weight * (len(weight) / weight.sum())
    return Rows(counted, targets, weight, positions, centre, spread)
