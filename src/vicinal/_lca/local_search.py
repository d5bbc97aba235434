"""The search for the kernels of Local LCA by held-out rows.

The family has two paths along which the shared covariance only changes its size, so that one set of frames and one sweep
over the pairs serve all sizes and all numbers of directions: multiples of LCA's covariance, and multiples of the
identity (the noise of Manifold Parzen). The search

1. tries both paths with both centres, for two sizes of the vicinity and every third multiple;
2. then, around the best of these, all sizes of the vicinity, all multiples and numbers of directions nearby, and all directions;
3. then sums of the best members of the two paths;
4. returns to LCA unless the best member is ahead of it by more than a standard error.

LCA (its own covariance, no directions) and the grid of Manifold Parzen are among the members that it compares.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

from vicinal._lca.local_folds import Choice, LocalFold, Table
from vicinal._lca.local_kernels import Shared

_NEARBY = 2  # positions on a path around the best
_SUMS = (0.25, 0.5, 1.0)  # multiples of the sum of the best members of both paths
_FEW = 2  # sizes of the vicinity in the first round


class Grid(NamedTuple):
    """The search space: sizes of the vicinity, numbers of directions, centres, and paths of shared covariances."""

    neighbors: Sequence[int]
    depths: Sequence[int]
    centers: Sequence[str]
    paths: Sequence[tuple[Shared, Sequence[float]]]
    sums: bool  # whether sums of the best members of two paths are tried


class HeldOut(NamedTuple):
    """A fold with the rows that it holds out and their weights."""

    fold: LocalFold
    test: np.ndarray
    weight: np.ndarray | None


class Found(NamedTuple):
    """The best member, its mean score, and the table of all members."""

    choice: Choice
    score: float
    results: dict[str, Any]


# The log-density of a row that is infinitely far from all kernels: means and squares of such numbers are finite.
_FARTHEST = -1e100


class LocalSearch:
    """Search over the family; see the module docstring.

    Parameters
    ----------
    folds : sequence of HeldOut
    grid : Grid
    """

    def __init__(self, folds: Sequence[HeldOut], grid: Grid) -> None:
        self._folds, self._grid = folds, grid
        self._scores: dict[Choice, np.ndarray] = {}  # of each fold

    def run(self) -> Found:
        """Return the best member that was found."""
        grid = self._grid
        for shape, factors in grid.paths:
            for held_out in self._folds:
                held_out.fold.prepare_neighbors(shape, max(grid.neighbors))
            few = factors[::3] if len(factors) > 4 else factors
            for center in grid.centers:
                for k in self._few_neighbors():
                    self._try(shape, few, k, center)
        best = self._best()
        shape, factors, at = self._place_of(best)
        nearby = factors[max(at - _NEARBY, 0) : at + _NEARBY + 1]
        for k in grid.neighbors:
            self._try(shape, nearby, k, best.center, self._depths_near(best))
        if grid.sums:
            self._try_sums()
        return self._settle(self._best())

    def _few_neighbors(self) -> Sequence[int]:
        """Return sizes that are spread over all of them."""
        sizes = self._grid.neighbors
        return sizes if len(sizes) <= _FEW else [sizes[1], sizes[-2]] if len(sizes) > 3 else [sizes[0], sizes[-1]]

    def _depths_near(self, member: Choice) -> Sequence[int]:
        """Return the number of directions of a member, the next ones, and all, which vicinities of another size may need."""
        depths = self._grid.depths
        at = depths.index(member.n_components)
        return sorted({*depths[max(at - 1, 0) : at + 2], depths[-1]})

    def _try(
        self, shape: Shared, factors: Sequence[float], k: int, center: str, depths: Sequence[int] | None = None
    ) -> None:
        """Score numbers of directions (by default all) and multiples of a shape, unless all are known."""
        depths = self._grid.depths if depths is None else depths
        depths = [depth for depth in depths if depth <= k and (depth or center == "row")]
        if not depths:
            return
        table = Table(shape, factors, k, depths, center)
        members = [[Choice(*shape.times(f), k, depth, center) for f in factors] for depth in depths]
        if all(member in self._scores for row in members for member in row):
            return
        tables = np.stack([_means(held_out, table) for held_out in self._folds])
        for i, row in enumerate(members):
            for j, member in enumerate(row):
                self._scores.setdefault(member, tables[:, i, j])

    def _best(self, among: Sequence[Choice] | None = None) -> Choice:
        return max(self._scores if among is None else among, key=lambda member: self._scores[member].mean())

    def _place_of(self, member: Choice) -> tuple[Shared, Sequence[float], int]:
        """Return the path that a member of the first round lies on, and its place there."""
        places = (
            (shape, factors, at)
            for shape, factors in self._grid.paths
            for at, factor in enumerate(factors)
            if shape.times(factor) == (member.shared, member.noise)
        )
        return next(places)

    def _best_of_path(self, name: str) -> Choice | None:
        """Return the best member with directions whose shared covariance has the part of this name alone."""
        pure = [m for m in self._scores if getattr(m, name) == m.shared + m.noise and m.n_components > 0]
        return self._best(pure) if pure else None

    def _try_sums(self) -> None:
        """Try sums of the best multiple of LCA's covariance and the best noise, for the best vicinity."""
        best, parts = self._best(), [self._best_of_path(name) for name in ("shared", "noise")]
        if None not in parts:
            both = Shared(parts[0].shared, parts[1].noise)  # type: ignore[union-attr]
            self._try(both, _SUMS, best.n_neighbors, best.center, self._depths_near(best))

    def _settle(self, best: Choice) -> Found:
        """Return the best member, or LCA unless the best member is ahead of it by more than a paired standard error.

        With few rows, the best of a hundred members is ahead by chance.
        """
        plain = next((m for m in self._scores if m[:2] == (1.0, 0.0) and m[3:] == (0, "row")), None)
        if plain is not None and plain != best:
            gain, error = self._paired(best, plain)
            if gain <= error:
                best = plain
        return Found(best, float(self._scores[best].mean()), self._results())

    def _paired(self, first: Choice, second: Choice) -> tuple[float, float]:
        """Return how far one member is ahead of another in the mean over all held-out rows, and its standard error."""
        gains, weights = [], []
        for fold, test, weight in self._folds:
            scores = [np.maximum(fold.score_samples(test, choice), _FARTHEST) for choice in (first, second)]
            gains.append(scores[0] - scores[1])
            weights.append(np.ones(len(test)) if weight is None else weight)
        gain, weight = np.concatenate(gains), np.concatenate(weights)
        mean = np.average(gain, weights=weight)
        return float(mean), float(np.linalg.norm(weight * (gain - mean)) / weight.sum())

    def _results(self) -> dict[str, Any]:
        """Return the members that were tried, as ``cv_results_`` of GridSearchCV."""
        members = list(self._scores)
        scores = np.array([self._scores[member] for member in members])
        results: dict[str, Any] = {"params": [member._asdict() for member in members]}
        for name in Choice._fields:
            results[f"param_{name}"] = np.array([getattr(member, name) for member in members])
        for s in range(scores.shape[1]):
            results[f"split{s}_test_score"] = scores[:, s]
        results["mean_test_score"], results["std_test_score"] = scores.mean(axis=1), scores.std(axis=1)
        results["rank_test_score"] = rankdata(-results["mean_test_score"], method="min").astype(int)
        return results


def _means(held_out: HeldOut, table: Table) -> np.ndarray:
    return _average(held_out.fold.table(held_out.test, table), held_out.weight)


def _average(scores: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """Return the weighted mean over the last axis; a row infinitely far from all kernels makes a member the worst."""
    return np.average(np.maximum(scores, _FARTHEST), axis=-1, weights=weight)
