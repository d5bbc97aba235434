"""The folds of Local LCA's search: everything that determines a kernel is computed without the held-out rows."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from vicinal._density.noise_choice import SLACK
from vicinal._density.selection import fixed_folds
from vicinal._engine import Engine, Frames, one_blas_thread_beside_pairs, prepare
from vicinal._kernel_penalty import Penalty
from vicinal._lca.folds import rough_metric, rough_split
from vicinal._lca.gauss_penalty import GAUSSIAN_RULES, Penalties, given_gaussian, given_local, local_rule
from vicinal._lca.gauss_steps import directions, mixture_of_directions
from vicinal._lca.lca import LCA
from vicinal._lca.lca_gauss import LCAGauss
from vicinal._lca.local_kernels import (
    Coordinates,
    Kernels,
    Shared,
    Vicinities,
    adapted_neighbors,
    count_candidates,
    count_members,
    find_neighbors,
    make_kernels,
    make_vicinities,
    squared_distances,
)
from vicinal._lca.penalty import FAMILIES, Form, check_reg, family_matrix, has_plenty
from vicinal._lca.steps import CollapseError, Structure
from vicinal._leave_one_out import leave_one_out, mean_of_rows, scatter_of_rows
from vicinal._mixtures import LOG_2PI, LocalFrameMixture, SharedMixture

_FULL = Structure("full")
# The approximate number of passes of the fit of LCA to a fold, from which the engine chooses a backend.
_PASSES = 10
FOLDS = 5


class Choice(NamedTuple):
    """One member of the family: the shared covariance, the size of a vicinity, the number of directions, and the centre."""

    shared: float
    noise: float
    n_neighbors: int
    n_components: int
    center: str
    vicinity: str = "nearest"


class Table(NamedTuple):
    """Members with the same vicinities and, up to a factor, the same shared covariance; one sweep scores all of them."""

    shape: Shared
    factors: Sequence[float]
    n_neighbors: int
    depths: Sequence[int]
    center: str
    vicinity: str


class Making(NamedTuple):
    """How kernels are made from near rows: the size of the vicinities, and the parameters of `make_kernels`."""

    n_neighbors: int
    depth: int
    weight: np.ndarray | None
    center: str
    vicinity: str
    engine: Engine

    def count_members(self, n_rows: int) -> int:
        """Return how many rows a vicinity has."""
        return count_members(self.n_neighbors, self.vicinity, n_rows)

    def kernels(self, Z: np.ndarray, near: np.ndarray, squares: np.ndarray | None) -> tuple[Kernels, Vicinities]:
        """Return the kernels of near rows, shape (n, m), at these squared distances if the vicinities are soft."""
        vicinities = make_vicinities(near, None if self.vicinity == "nearest" else squares, self.n_neighbors)
        return make_kernels(Z, vicinities, self.depth, self.weight, self.center, self.engine), vicinities


class LocalFold:
    """The rows that one fold learns from, and the log-densities of rows under kernels that they make.

    Parameters
    ----------
    train : array of shape (n, D)
        Rows of positive weight.
    weight : array of shape (n,), optional
    base : LCA, LCAGauss or None
        Fitted to all rows; None if its covariance has no weight. Its penalty and its covariance are computed again from the training
        rows. So are the centres of an LCAGauss, which take the place of the rows.
    engine : Engine
    """

    def __init__(
        self, train: np.ndarray, weight: np.ndarray | None, base: LCA | LCAGauss | None, engine: Engine
    ) -> None:
        self._train, self._weight, self._engine = train, weight, engine
        self._base = cache(lambda: self._fit_base(base))
        self._coordinates = cache(self._make_coordinates)
        self._near: dict[Shared, np.ndarray] = {}
        self._adapted: dict[Choice, tuple[int, Kernels]] = {}
        shares = np.full(len(train), 1.0 / len(train)) if weight is None else weight / weight.sum()
        self._log_weights = np.log(shares)

    @property
    def n_rows(self) -> int:
        """The rows that it learns from."""
        return len(self._train)

    def _fit_base(self, base: LCA | LCAGauss | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows, or the places that LCA-Gauss moves them to, and the covariance of the base."""
        if isinstance(base, LCAGauss):
            return fold_gauss(self._train, self._weight, base, self._engine)
        if base is None:
            return self._train, np.eye(self._train.shape[1])
        return self._train, fold_covariance(self._train, self._weight, base, self._engine)

    def _make_coordinates(self, shape: Shared) -> tuple[Coordinates, np.ndarray]:
        rows, sigma = self._base() if shape.shared else (self._train, np.eye(self._train.shape[1]))
        found = Coordinates(rows, shape.covariance(sigma))
        return found, found.of(rows)

    def _neighbors(self, shape: Shared, k: int) -> np.ndarray:
        """Return the k nearest rows; those of the largest k so far are cached, because they contain all smaller
        sets."""
        known = self._near.get(shape)
        if known is None or known.shape[1] < k:
            places = self._coordinates(shape)[1] if shape.shared else self._train
            known = find_neighbors(places, k, None, self._engine)
            self._near[shape] = known
        return known[:, :k]

    def prepare_neighbors(self, shape: Shared, k: int, vicinity: str) -> None:
        """Find the neighbours for all vicinities of a size up to k at once."""
        self._neighbors(shape, count_members(k, vicinity, len(self._train)))

    def table(self, test: np.ndarray, table: Table) -> np.ndarray:
        """Return log-densities of test rows for all depths and all factors of a table, shape (depths, factors, tests)."""
        coordinates, Z = self._coordinates(table.shape)
        kernels, depth = Kernels.at_rows(Z), table.depths[-1]
        if depth:
            making = Making(table.n_neighbors, depth, self._weight, table.center, table.vicinity, self._engine)
            near = self._neighbors(table.shape, making.count_members(len(Z)))
            kernels = first_kernels(Z, near, making)[0]
        return self._scores(kernels, coordinates, test, table.depths, table.factors)

    def adapted_table(self, test: np.ndarray, choice: Choice, factors: Sequence[float], passes: int) -> np.ndarray:
        """Return log-densities of test rows after a number of passes that adapt vicinities to the rows' own metrics."""
        coordinates, _ = self._coordinates(Shared(choice.shared, choice.noise))
        kernels = self._adapted_kernels(choice, passes)
        return self._scores(kernels, coordinates, test, [choice.n_components], factors)[0]

    def density(self, choice: Choice, passes: int) -> LocalFrameMixture | SharedMixture:
        """Return the density of the fold's rows after a number of passes of adaptation."""
        shape = Shared(choice.shared, choice.noise)
        (coordinates, _), kernels = self._coordinates(shape), self._adapted_kernels(choice, passes)
        covariance = coordinates.lower @ coordinates.lower.T
        if choice.n_components == 0:
            rows = self._base()[0] if choice.shared else self._train
            return SharedMixture(rows, covariance, self._log_weights, self._engine)
        centres = coordinates.back(kernels.centres) if choice.center == "mean" else self._train
        frames = kernels.frames, kernels.variances
        return LocalFrameMixture(centres, covariance, *frames, self._log_weights, self._engine)

    def _adapted_kernels(self, choice: Choice, passes: int) -> Kernels:
        shape = Shared(choice.shared, choice.noise)
        _, Z = self._coordinates(shape)
        if choice.n_components == 0:
            return Kernels.at_rows(Z)
        making = Making(*choice[2:4], self._weight, *choice[4:], self._engine)
        members = making.count_members(len(Z))
        known, kernels = self._adapted.get(choice, (0, None))
        if kernels is None or known > passes:
            known, kernels = 0, first_kernels(Z, self._neighbors(shape, members), making)[0]
        if passes:
            candidates = self._neighbors(shape, count_candidates(members, len(Z)))
            for _ in range(known, passes):
                kernels, _ = adapted(Z, kernels, candidates, making)
        self._adapted[choice] = passes, kernels  # the next pass continues from here
        return kernels

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


def held_out_folds(
    X: np.ndarray, weight: np.ndarray | None, base: LCA | LCAGauss | None, choice: Choice, engine: Engine
) -> Iterator[tuple[np.ndarray, LocalFold | None, Choice]]:
    """Yield the positions of rows, the fold that was computed without them, and its member of the family.

    Every row is held out once, in five folds; there are none if fewer than five rows differ. The fold is None for rows of
    weight 0, which have shaped no kernel. A fold may have fewer rows than `choice` has neighbours.
    """
    counted = np.arange(len(X)) if weight is None else np.flatnonzero(weight)
    if len(counted) < len(X):
        yield np.setdiff1d(np.arange(len(X)), counted, assume_unique=True), None, choice
    for positions in fixed_folds(X[counted], FOLDS):
        train = np.delete(counted, positions)
        own = None if weight is None else weight[train]
        fitted = choice._replace(n_neighbors=min(choice.n_neighbors, len(train) - 1))
        fitted = fitted._replace(n_components=min(choice.n_components, fitted.n_neighbors))
        yield counted[positions], LocalFold(X[train], own, base, engine), fitted


def first_kernels(Z: np.ndarray, near: np.ndarray, making: Making) -> tuple[Kernels, Vicinities]:
    """Return the vicinities in the shared metric, and the kernels that they make.

    Parameters
    ----------
    Z : array of shape (n, D)
        The rows in coordinates in which the shared covariance is the identity.
    near : integer array of shape (n, m)
        The nearest rows of each row; m is given by ``making.count_members``.
    making : Making
    """
    return making.kernels(Z, near, None if making.vicinity == "nearest" else squared_distances(Z, near))


def adapted(Z: np.ndarray, kernels: Kernels, candidates: np.ndarray, making: Making) -> tuple[Kernels, Vicinities]:
    """Compute one pass: the vicinities in the rows' own metrics, and the kernels made from them.

    Parameters
    ----------
    Z : array of shape (n, D)
    kernels : Kernels
        The kernels that define the metrics.
    candidates : integer array of shape (n, m)
        The rows that may become neighbours.
    making : Making
    """
    members = min(making.count_members(len(Z)), candidates.shape[1])
    return making.kernels(Z, *adapted_neighbors(Z, kernels, candidates, members, 1.0))


def fold_covariance(train: np.ndarray, weight: np.ndarray | None, base: LCA, engine: Engine) -> np.ndarray:
    """Return LCA's covariance for some of the rows that `base` was fitted to, or that of all rows if it cannot be fitted.

    The penalty is of the same family and factor as that of `base`, if its search chose one.
    """
    # The fit to all rows knows the held-out rows: with few rows, passes that start from it end near it, at another maximum
    # than those that start from the covariance of the training rows, and held-out rows score up to a nat too high.
    start = base.components_[:, base.active_features_] if has_plenty(train, _FULL) else None
    reg = _penalty_of(base)
    try:
        with np.errstate(divide="raise", invalid="raise"):
            if base.reg_search_ is not None:
                reg = _penalty_again(train, weight, base)
            problem = leave_one_out(train, weight, engine, reg=reg, passes=_PASSES)
        with one_blas_thread_beside_pairs(*train.shape):
            inverse = np.linalg.inv(rough_metric(problem, scatter_of_rows(train, weight), _FULL, start))
        covariance = inverse @ inverse.T
        np.linalg.cholesky(covariance)
    except (CollapseError, np.linalg.LinAlgError, FloatingPointError):
        return base.covariance_
    return covariance


def fold_gauss(
    train: np.ndarray, weight: np.ndarray | None, base: LCAGauss, engine: Engine
) -> tuple[np.ndarray, np.ndarray]:
    """Return the centres and the covariance of LCA-Gauss for some of the rows that `base` was fitted to.

    The penalties are of the same kinds as those of `base`. The directions are those of all rows if there are none of some rows.
    """
    mean = mean_of_rows(train, weight)
    try:
        with np.errstate(divide="raise", invalid="raise"):
            problem, split = rough_split(train, weight, _penalties_again(base), bool(base.reduce), engine)
        return mixture_of_directions(*directions(split, problem.root), mean, train)
    except (CollapseError, np.linalg.LinAlgError, FloatingPointError):
        active = base.active_features_
        return mixture_of_directions(base.gaussian_components_[:, active], base.components_[:, active], mean, train)


def _penalties_again(base: LCAGauss) -> Penalties:
    """Return the penalties of LCA-Gauss as functions of the rows: the best of its search, or those that were given."""
    given = given_local(_penalty_of(base)), given_gaussian(base.reg_gauss_[np.ix_(*2 * [base.active_features_])])
    table = base.reg_search_
    if table is None:
        return Penalties(*given)
    best = int(np.argmax(table["mean_test_score"]))
    is_searched = str(table["family"][best]) in FAMILIES
    local = local_rule(_form_of(_penalty_of(base), base.rows_, base.mixture_.log_weights)) if is_searched else given[0]
    return Penalties(local, GAUSSIAN_RULES.get(str(table["gaussian"][best]), given[1]))


def _penalty_of(base: LCA | LCAGauss) -> Penalty:
    """Return the penalty that the base used, on the columns that vary."""
    penalty = check_reg(base.reg_, base.n_features_in_)
    assert penalty is not None
    return penalty.of_columns(base.active_features_)


def _penalty_again(train: np.ndarray, weight: np.ndarray | None, base: LCA) -> Penalty:
    """Return the penalty that `base` used, made from other rows: the same family, factor and weight."""
    return _form_of(_penalty_of(base), base.mixture_.centres, base.mixture_.log_weights).of_rows(train, weight)


def _form_of(penalty: Penalty, rows: np.ndarray, log_weights: np.ndarray) -> Form:
    """Return the form of a penalty of some rows: the family to whose matrix it is proportional.

    It need not be the best of a search, because a fit that collapses takes another one.
    """
    counted = log_weights > -np.inf
    shares = None if np.ptp(log_weights) == 0 else np.exp(log_weights[counted])
    forms, distances = [], []
    for family in FAMILIES:
        matrix = family_matrix(family, rows[counted], shares)
        factor = float(np.trace(penalty.matrix) / np.trace(matrix))
        forms.append(Form(family, factor, penalty.weight))
        distances.append(np.linalg.norm(factor * matrix - penalty.matrix))
    return forms[int(np.argmin(distances))]
