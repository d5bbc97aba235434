"""The fits to folds from which LCA and LCA-Gauss choose their penalties."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from hashlib import blake2b
from typing import Any

import numpy as np

from vicinal._engine import Engine, Work, one_blas_thread_beside_pairs
from vicinal._fit_loops import FitPath, Recorder, fixed_point
from vicinal._lca.accelerated import accelerated_fixed_point
from vicinal._lca.gauss_penalty import Penalties
from vicinal._lca.gauss_steps import (
    GaussProblem,
    Split,
    all_local,
    em_step,
    local_metric,
    relaxed_em,
    search_directions,
    whitened,
)
from vicinal._lca.penalty import Form, family_matrix
from vicinal._lca.penalty_search import Choice, choose_penalty, split_folds
from vicinal._lca.steps import CollapseError, Steps, Structure, inverse_root, nearest_structured, one_pass
from vicinal._leave_one_out import LeaveOneOut, leave_one_out, mean_of_rows, scatter_of_rows
from vicinal._mixtures import LOG_2PI

# Penalties are compared to hundredths of a nat, and fits start close to where they end.
_TOL = 5e-3
_MAX_PASSES = 30
# The approximate number of passes of the fits of one fold, from which the engine chooses a backend.
_PASSES = 50
# Results of searches, by their inputs; None if results are not shared.
_KEPT: ContextVar[dict[Any, Choice | None] | None] = ContextVar("penalty searches", default=None)


@contextmanager
def shared_searches() -> Iterator[None]:
    """Search only once for the same rows, structure and engine within this block.

    LCA and LCA-Gauss begin with the same search, which need not be repeated if both are fitted to the same rows. A block
    within another one uses the results of the outer one.
    """
    kept = _KEPT.get()
    token = _KEPT.set({} if kept is None else kept)
    try:
        yield
    finally:
        _KEPT.reset(token)


def search_penalty(
    X: np.ndarray, weight: np.ndarray | None, structure: Structure, engine: Engine | str | None
) -> Choice | None:
    """Return the choice for ``reg="auto"``; None if too few rows differ to hold any out."""
    kept = _KEPT.get()
    if kept is None:
        return _search(X, weight, structure, engine)
    digests = [None if a is None else blake2b(np.ascontiguousarray(a)).digest() for a in (X, weight)]
    key = (X.shape, X.dtype, *digests, structure, repr(engine))
    if key not in kept:
        kept[key] = _search(X, weight, structure, engine)
    return kept[key]


def _search(
    X: np.ndarray, weight: np.ndarray | None, structure: Structure, engine: Engine | str | None
) -> Choice | None:
    folds = [LCAFold(*parts, structure=structure, engine=engine) for parts in split_folds(X, weight)]
    return choose_penalty(folds, structure)


class LCAFold:
    """LCA's fits to the training rows of one fold; a `Fold` of the search.

    Parameters
    ----------
    train : array of shape (n, d)
    train_weight : array of shape (n,), optional
    test : array of shape (m, d)
    test_weight : array of shape (m,), optional
    structure : Structure
    engine : None, str or Engine
    """

    def __init__(
        self,
        train: np.ndarray,
        train_weight: np.ndarray | None,
        test: np.ndarray,
        test_weight: np.ndarray | None,
        *,
        structure: Structure,
        engine: Engine | str | None,
    ) -> None:
        self._test, self._test_weight, self._structure = test, test_weight, structure
        self._problem = leave_one_out(train, train_weight, engine, passes=_PASSES)
        self._covariance = scatter_of_rows(train, train_weight)
        self._matrix = cache(lambda family: family_matrix(family, train, train_weight))

    @property
    def n_held_out(self) -> int:
        """The number of held-out rows."""
        return len(self._test)

    def fit(self, form: Form, start: np.ndarray | None) -> tuple[np.ndarray, float]:
        """Fit with a penalty from a metric, and score the held-out rows; see `Fold`."""
        with one_blas_thread_beside_pairs(*self._problem.rows.shape):
            problem = self._problem._replace(reg=form.with_matrix(self._matrix(form.family)))
            metric = rough_metric(problem, self._covariance, self._structure, start)
            return metric, self._score(metric)

    def score_of_kernel(self, family: str, factor: float) -> float:
        """Return the score of the held-out rows under one kernel; see `Fold`."""
        covariance = nearest_structured(factor * self._matrix(family), *self._structure)
        if not (np.diag(covariance) > 0).all():  # one row has all the weight
            return -np.inf
        with one_blas_thread_beside_pairs(*self._problem.rows.shape):
            return self._score(inverse_root(covariance))

    def _score(self, metric: np.ndarray) -> float:
        sums = self._problem.pairs.at(metric).log_sums(self._test) - np.log(self._problem.weight.sum())
        log_norm = np.linalg.slogdet(metric)[1] - 0.5 * len(metric) * LOG_2PI
        return float(np.average(sums, weights=self._test_weight) + log_norm)


def rough_metric(
    problem: LeaveOneOut, covariance: np.ndarray, structure: Structure, start: np.ndarray | None
) -> np.ndarray:
    """Return LCA's metric of some rows, with the few digits that a choice by folds needs.

    Parameters
    ----------
    problem : LeaveOneOut
        The problem with its penalty.
    covariance : array of shape (d, d)
        The covariance of the rows.
    structure : Structure
    start : array of shape (d, d), optional
        The metric to start from; the default is that of the rows' covariance.
    """
    assert problem.reg is not None
    covariance = nearest_structured(problem.reg.start(covariance), *structure)
    if not (np.diag(covariance) > 0).all():  # one row has all the weight
        raise CollapseError
    reference = inverse_root(covariance)
    start = reference if start is None else start
    steps = Steps(lambda metric: one_pass(problem, metric), structure, start, reference)
    limits: dict[str, Any] = {"max_iter": _MAX_PASSES, "tol": _TOL}
    return accelerated_fixed_point(steps.displacement, steps.move, start, Recorder(), **limits).parameters


class LCAGaussFold:
    """LCA-Gauss's fits to the training rows of one fold, and the scores of its held-out rows.

    Parameters
    ----------
    train, train_weight, test, test_weight
        As in `LCAFold`.
    reduce : bool
        Whether to search for the number of local directions, as the fit with these penalties does.
    engine : None, str or Engine
    """

    def __init__(
        self,
        train: np.ndarray,
        train_weight: np.ndarray | None,
        test: np.ndarray,
        test_weight: np.ndarray | None,
        *,
        reduce: bool,
        engine: Engine | str | None,
    ) -> None:
        self._train, self._test, self._weights = train, test, (train_weight, test_weight)
        self._reduce, self._engine = reduce, engine

    def score(self, penalty: Penalties) -> float:
        """Return the mean log-density of the held-out rows after a fit with two penalties to the training rows."""
        weight, test_weight = self._weights
        problem, split = rough_split(self._train, weight, penalty, self._reduce, self._engine)
        d = self._train.shape[1]
        rows = (self._test - mean_of_rows(self._train, weight)) @ problem.root.T
        log_norm = np.linalg.slogdet(problem.root)[1] - 0.5 * np.log(split.variances).sum() - 0.5 * d * LOG_2PI
        scores = log_norm - 0.5 * np.square(rows @ split.gaussian).sum(axis=1)
        if len(split.variances):
            scores += problem.pairs.at(local_metric(split)).log_sums(rows) - np.log(problem.weight.sum())
        return float(np.average(scores, weights=test_weight))


def rough_split(
    train: np.ndarray, weight: np.ndarray | None, penalty: Penalties, reduce: bool, engine: Engine | str | None
) -> tuple[GaussProblem, Split]:
    """Return LCA-Gauss's directions of some rows, with the few digits that a choice by folds needs.

    Parameters
    ----------
    train : array of shape (n, d)
    weight : array of shape (n,), optional
    penalty : Penalties
    reduce : bool
        Whether to search for the number of local directions.
    engine : None, str or Engine
    """
    gaussian = scatter_of_rows(train, weight) + penalty.gaussian(train, weight)
    reg = penalty.local(train, weight)
    n, d = train.shape
    _, problem = whitened(train, weight, engine, reg, inverse_root(gaussian), Work(n, n, d, _PASSES))

    def step(at: Split) -> tuple[float, Split]:
        return em_step(problem, at)

    def run(split: Split, tol: float) -> FitPath:
        return relaxed_em(step, split, Recorder(), max_iter=2 * _MAX_PASSES, tol=tol)

    with one_blas_thread_beside_pairs(*problem.rows.shape):
        # The fit starts as in Algorithm 1, because EM hardly ever makes a direction local again that is Gaussian under a larger R.
        limits: dict[str, Any] = {"max_iter": 2 * _MAX_PASSES, "tol": _TOL}
        path = fixed_point(step, all_local(d), Recorder(), **limits)
        if reduce:
            path = search_directions(run, path, _TOL, problem.weight.sum(), rounds=1)
    return problem, path.parameters
