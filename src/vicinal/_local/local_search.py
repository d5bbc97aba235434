"""The search for the kernels of Local LCA by held-out rows.

The family has two paths along which the shared covariance only changes its size, so that one set of frames and one sweep
over the pairs serve all sizes and all numbers of directions: multiples of LCA's covariance, and multiples of the
identity (the noise of Manifold Parzen). The search

1. tries both paths with both centres, for two sizes of the vicinity and every third multiple;
2. then, around the best of these, all sizes of the vicinity, all multiples and numbers of directions nearby, and all directions;
3. then sums of the best members of the two paths;
4. returns to LCA unless the best member is ahead of it by more than a standard error.

LCA (its own covariance, no directions) and the grid of Manifold Parzen are among the members that it compares.

Everything that determines a kernel is computed without the held-out rows (`LocalFold`).
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from vicinal._checks import check_integer, check_positive
from vicinal._engine import Engine, Frames, one_blas_thread_beside_pairs, prepare
from vicinal._kernel_penalty import Penalty
from vicinal._lca.lca import LCA
from vicinal._lca.penalty import check_reg, has_plenty
from vicinal._lca.penalty_search import rough_metric
from vicinal._lca.steps import CollapseError, Structure
from vicinal._leave_one_out import leave_one_out, scatter_of_rows
from vicinal._local.grid import SLACK, auto_noises, check_grid
from vicinal._local.kernels import CENTERS, Coordinates, Kernels, Shared, find_neighbors, make_kernels
from vicinal._mixtures import LOG_2PI, LocalFrameMixture, SharedMixture
from vicinal._search import Selection, search_results

_FULL = Structure("full")
# The approximate number of passes of the fit of LCA to a fold, from which the engine chooses a backend.
_PASSES = 10
FOLDS = 5


class Member(NamedTuple):
    """One member of the family: the shared covariance, the size of a vicinity, the number of directions, and the centre."""

    shared: float
    noise: float
    n_neighbors: int
    n_components: int
    center: str

    def among(self, n_rows: int) -> "Member":
        """Return the member for a number of rows, which may have too few neighbours for this one."""
        k = min(self.n_neighbors, n_rows - 1)
        return self._replace(n_neighbors=k, n_components=min(self.n_components, k))


class Table(NamedTuple):
    """Members with the same vicinities and, up to a factor, the same shared covariance; one sweep scores all of them."""

    shape: Shared
    factors: Sequence[float]
    n_neighbors: int
    depths: Sequence[int]
    center: str


class LocalFold:
    """The rows that one fold learns from, and the log-densities of rows under kernels that they make.

    Parameters
    ----------
    train : array of shape (n, D)
        Rows of positive weight.
    weight : array of shape (n,), optional
    base : LCA or None
        Fitted to all rows; None if its covariance has no weight. Its penalty and its covariance are computed again from the training
        rows.
    engine : Engine
    """

    def __init__(self, train: np.ndarray, weight: np.ndarray | None, base: LCA | None, engine: Engine) -> None:
        self._train, self._weight, self._engine = train, weight, engine
        self._sigma = cache(lambda: fold_covariance(train, weight, base, engine))
        self._coordinates = cache(self._make_coordinates)
        self._near: dict[Shared, np.ndarray] = {}
        shares = np.full(len(train), 1.0 / len(train)) if weight is None else weight / weight.sum()
        self._log_weights = np.log(shares)

    @property
    def n_rows(self) -> int:
        """The rows that it learns from."""
        return len(self._train)

    def _make_coordinates(self, shape: Shared) -> tuple[Coordinates, np.ndarray]:
        sigma = self._sigma() if shape.shared else np.eye(self._train.shape[1])
        coordinates = Coordinates(self._train, shape.covariance(sigma))
        return coordinates, coordinates.of(self._train)

    def _neighbors(self, shape: Shared, k: int) -> np.ndarray:
        """Return the k nearest rows; those of the largest k so far are cached, because they contain all smaller
        sets."""
        known = self._near.get(shape)
        if known is None or known.shape[1] < k:
            places = self._coordinates(shape)[1] if shape.shared else self._train
            known = find_neighbors(places, k, None, self._engine)
            self._near[shape] = known
        return known[:, :k]

    def prepare_neighbors(self, shape: Shared, k: int) -> None:
        """Find the neighbours for all vicinities of a size up to k at once."""
        self._neighbors(shape, k)

    def table(self, test: np.ndarray, table: Table) -> np.ndarray:
        """Return log-densities of test rows for all depths and all factors of a table, shape (depths, factors, tests)."""
        kernels = self._kernels(table.shape, table.n_neighbors, table.depths[-1], table.center)
        return self._scores(kernels, self._coordinates(table.shape)[0], test, table.depths, table.factors)

    def score_samples(self, test: np.ndarray, choice: Member) -> np.ndarray:
        """Return log-densities of test rows under one member of the family."""
        shape = Shared(choice.shared, choice.noise)
        return self.table(test, Table(shape, [1.0], choice.n_neighbors, [choice.n_components], choice.center))[0, 0]

    def density(self, choice: Member) -> LocalFrameMixture | SharedMixture:
        """Return the density of the fold's rows."""
        shape = Shared(choice.shared, choice.noise)
        coordinates, _ = self._coordinates(shape)
        covariance = coordinates.lower @ coordinates.lower.T
        if choice.n_components == 0:
            return SharedMixture(self._train, covariance, self._log_weights, self._engine)
        kernels = self._kernels(shape, choice.n_neighbors, choice.n_components, choice.center)
        centres = coordinates.back(kernels.centres) if choice.center == "mean" else self._train
        frames = kernels.frames, kernels.variances
        return LocalFrameMixture(centres, covariance, *frames, self._log_weights, self._engine)

    def _kernels(self, shape: Shared, n_neighbors: int, depth: int, center: str) -> Kernels:
        _, Z = self._coordinates(shape)
        if depth == 0:
            return Kernels.at_rows(Z)
        return make_kernels(Z, self._neighbors(shape, n_neighbors), depth, self._weight, center, self._engine)

    def _scores(
        self,
        kernels: Kernels,
        coordinates: Coordinates,
        test: np.ndarray,
        depths: Sequence[int],
        factors: Sequence[float],
    ) -> np.ndarray:
        problem = prepare(self._engine, kernels.centres, log_weights=self._log_weights)
        slack = SLACK[kernels.centres.dtype]
        placed = problem.at(Frames(kernels.frames, kernels.variances, factors, depths, slack))
        sums = placed.log_sums_table(coordinates.of(test))
        return sums - coordinates.log_det - 0.5 * test.shape[1] * LOG_2PI


def fold_covariance(train: np.ndarray, weight: np.ndarray | None, base: LCA | None, engine: Engine) -> np.ndarray:
    """Return LCA's covariance for some of the rows that `base` was fitted to, or that of all rows if it cannot be fitted.

    Without a base it is the identity.

    The penalty is that of `base`, made from these rows if it depends on rows.
    """
    if base is None:
        return np.eye(train.shape[1])
    # The fit to all rows knows the held-out rows: with few rows, passes that start from it end near it, at another maximum
    # than those that start from the covariance of the training rows, and held-out rows score up to a nat too high.
    start = base.components_[:, base.active_features_] if has_plenty(train, _FULL) else None
    try:
        with np.errstate(divide="raise", invalid="raise"):
            reg = penalty_of_fold(train, weight, base)
            problem = leave_one_out(train, weight, engine, passes=_PASSES)
        with one_blas_thread_beside_pairs(*train.shape):
            inverse = np.linalg.inv(rough_metric(problem, reg, scatter_of_rows(train, weight), _FULL, start))
        covariance = inverse @ inverse.T
        np.linalg.cholesky(covariance)
    except (CollapseError, np.linalg.LinAlgError, FloatingPointError):
        return base.covariance_
    return covariance


def penalty_of_fold(train: np.ndarray, weight: np.ndarray | None, base: LCA) -> Penalty:
    """Return the penalty of `base` for other rows: the user's, or the same family, factor and weight made from these rows."""
    if base._reg_form is not None:
        return base._reg_form.of_rows(train, weight)
    penalty = check_reg(base.reg_, base.n_features_in_)
    assert penalty is not None
    return penalty.of_columns(base.active_features_)


# -- the search ----------------------------------------------------------------------------------------

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


class SearchResult(NamedTuple):
    """The best member, its mean score, and the table of all members."""

    choice: Member
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
        self._scores: dict[Member, np.ndarray] = {}  # of each fold

    def run(self) -> SearchResult:
        """Return the best member that was found."""
        grid = self._grid
        for shape, factors in grid.paths:
            for held_out in self._folds if max(grid.depths) else ():
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

    def _depths_near(self, member: Member) -> Sequence[int]:
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
        members = [[Member(*shape.times(f), k, depth, center) for f in factors] for depth in depths]
        if all(member in self._scores for row in members for member in row):
            return
        tables = np.stack([_means(held_out, table) for held_out in self._folds])
        for i, row in enumerate(members):
            for j, member in enumerate(row):
                self._scores.setdefault(member, tables[:, i, j])

    def _best(self, among: Sequence[Member] | None = None) -> Member:
        return max(self._scores if among is None else among, key=lambda member: self._scores[member].mean())

    def _place_of(self, member: Member) -> tuple[Shared, Sequence[float], int]:
        """Return the path that a member of the first round lies on, and its place there."""
        places = (
            (shape, factors, at)
            for shape, factors in self._grid.paths
            for at, factor in enumerate(factors)
            if shape.times(factor) == (member.shared, member.noise)
        )
        return next(places)

    def _best_of_path(self, name: str) -> Member | None:
        """Return the best member with directions whose shared covariance has the part of this name alone."""
        pure = [m for m in self._scores if getattr(m, name) == m.shared + m.noise and m.n_components > 0]
        return self._best(pure) if pure else None

    def _try_sums(self) -> None:
        """Try sums of the best multiple of LCA's covariance and the best noise, for the best vicinity."""
        best, parts = self._best(), [self._best_of_path(name) for name in ("shared", "noise")]
        if None not in parts:
            both = Shared(parts[0].shared, parts[1].noise)  # type: ignore[union-attr]
            self._try(both, _SUMS, best.n_neighbors, best.center, self._depths_near(best))

    def _settle(self, best: Member) -> SearchResult:
        """Return the best member, or LCA unless the best member is ahead of it by more than a paired standard error.

        With few rows, the best of a hundred members is ahead by chance.
        """
        plain = next((m for m in self._scores if m[:2] == (1.0, 0.0) and m[3:] == (0, "row")), None)
        if plain is not None and plain != best:
            gain, error = self._paired(best, plain)
            if gain <= error:
                best = plain
        return SearchResult(best, float(self._scores[best].mean()), self._results())

    def _paired(self, first: Member, second: Member) -> tuple[float, float]:
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
        return search_results([member._asdict() for member in members], scores.T)


def _means(held_out: HeldOut, table: Table) -> np.ndarray:
    return _average(held_out.fold.table(held_out.test, table), held_out.weight)


def _average(scores: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """Return the weighted mean over the last axis; a row infinitely far from all kernels makes a member the worst."""
    return np.average(np.maximum(scores, _FARTHEST), axis=-1, weights=weight)


# -- the grid ------------------------------------------------------------------------------------------

_NEIGHBORS = (5, 10, 20, 40, 80, 160)
_PLENTY = 10  # training rows per row of a vicinity, for vicinities of more than 80 rows
_MOST_DIRECTIONS = 32
# Multiples of LCA's covariance, a factor of 10^(1/4) apart; 1 is at a place that
# the first round of a search tries.
_MULTIPLES = tuple(10.0 ** (e / 4.0) for e in range(-12, 3))
SMALLEST_MULTIPLE = _MULTIPLES[0]


def local_grid(
    parameters: Any, selection: Selection, X: np.ndarray, weight: np.ndarray | None, smallest: int, engine: Engine
) -> Grid:
    """Return the grid for the parameters of an estimator; a parameter that is a number is the only value of its axis.

    Parameters
    ----------
    parameters : LocalLCA
    selection : Selection
    X : array of shape (n, D)
    weight : array of shape (n,), optional
    smallest : int
        The number of rows of the smallest training part.
    engine : Engine
    """
    neighbors = _values(parameters.n_neighbors, selection.n_neighbors)
    if neighbors is None:
        neighbors = [k for k in _NEIGHBORS if k < (smallest if k <= 80 else smallest / _PLENTY)]
        neighbors = neighbors or [max(smallest - 1, 1)]
    neighbors = sorted({check_integer(k, "n_neighbors") for k in neighbors})
    D = X.shape[1]
    depths = _values(parameters.n_components, selection.n_components)
    if depths is None:
        most = min(D, max(neighbors), _MOST_DIRECTIONS)
        depths = [0, *(2**e for e in range(6) if 2**e <= most), most]
    depths = sorted({check_integer(d, "n_components", least=0) for d in depths})
    check_grid(depths, neighbors, D, smallest)
    centers = CENTERS if parameters.center == "auto" else (parameters.center,)
    if max(depths) == 0:
        centers = CENTERS[:1]  # the only one without directions
    paths, sums = _paths(parameters, selection, X, weight, engine)
    return Grid(neighbors, depths, centers, paths, sums)


def _values(own: Any, grid: Any) -> Sequence[Any] | None:
    """Return the values of a parameter: its own, those of the grid, or None for "auto"."""
    if not isinstance(own, str):
        return [own]
    return None if isinstance(grid, str) else np.ravel(grid).tolist()


def _paths(
    parameters: Any, selection: Selection, X: np.ndarray, weight: np.ndarray | None, engine: Engine
) -> tuple[list[tuple[Shared, Sequence[float]]], bool]:
    """Return the paths of shared covariances, and whether sums of members of two paths are tried."""
    multiples: Sequence[float] = _MULTIPLES if isinstance(parameters.shared, str) else [float(parameters.shared)]
    noises = _values(parameters.noise, selection.noise)
    if noises is None:
        noises = auto_noises(X, weight, engine)
        if not isinstance(parameters.shared, str) and parameters.shared > 0:
            noises = [0.0, *noises[::3]]
    noises = sorted({check_positive(noise, "noise", strict=False) for noise in noises})
    free_shared, free_noise = isinstance(parameters.shared, str), isinstance(parameters.noise, str)
    if free_shared and free_noise:
        return [(Shared(1.0, 0.0), multiples), (Shared(0.0, 1.0), [s for s in noises if s > 0])], True
    if free_shared and noises == [0.0]:
        return [(Shared(1.0, 0.0), multiples)], False
    if free_noise and multiples == [0.0]:
        return [(Shared(0.0, 1.0), noises)], False
    # One of the two is given, so that the shape of the sum changes with the other: a path of one member for each.
    return [(Shared(a, s), [1.0]) for a in multiples for s in noises], False
