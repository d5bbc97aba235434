"""The folds of Local LCA's search: everything that determines a kernel is computed without the held-out rows."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from vicinal._density.noise_choice import SLACK
from vicinal._density.selection import fixed_folds
from vicinal._engine import Engine, Frames, one_blas_thread_beside_pairs, prepare
from vicinal._kernel_penalty import Penalty
from vicinal._lca.folds import rough_metric
from vicinal._lca.lca import LCA
from vicinal._lca.local_kernels import Coordinates, Kernels, Shared, find_neighbors, make_kernels
from vicinal._lca.penalty import FAMILIES, Form, check_reg, family_matrix, has_plenty
from vicinal._lca.steps import CollapseError, Structure
from vicinal._leave_one_out import leave_one_out, scatter_of_rows
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

    def score_samples(self, test: np.ndarray, choice: Choice) -> np.ndarray:
        """Return log-densities of test rows under one member of the family."""
        shape = Shared(choice.shared, choice.noise)
        return self.table(test, Table(shape, [1.0], choice.n_neighbors, [choice.n_components], choice.center))[0, 0]

    def density(self, choice: Choice) -> LocalFrameMixture | SharedMixture:
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


def held_out_folds(
    X: np.ndarray, weight: np.ndarray | None, base: LCA | None, choice: Choice, engine: Engine
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


def fold_covariance(train: np.ndarray, weight: np.ndarray | None, base: LCA | None, engine: Engine) -> np.ndarray:
    """Return LCA's covariance for some of the rows that `base` was fitted to, or that of all rows if it cannot be fitted.

    Without a base it is the identity.

    The penalty is of the same family and factor as that of `base`, if its search chose one.
    """
    if base is None:
        return np.eye(train.shape[1])
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


def _penalty_of(base: LCA) -> Penalty:
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
        total, size = float(np.trace(penalty.matrix)), float(np.trace(matrix))
        forms.append(Form(family, total / size, penalty.weight))
        distances.append(np.abs(matrix / size - penalty.matrix / total).max())
    return forms[int(np.argmin(distances))]
