"""LCA of rows that do not fit into memory: sweeps over minibatches that are drawn from a source of rows (sec. 5).

The checks, the penalty and the units of the data come from a sample of the rows; every step draws its terms and its
possible neighbours from all rows.  The components of the density stay in the source.
"""

from typing import Any

import numpy as np

from vicinal._checks import check_callback, check_source, check_weights
from vicinal._density.gaps import forget_gaps
from vicinal._engine import Problem, Work, as_engine, fit_engine, prepare, resident_rows, resolved_engine
from vicinal._fit_loops import Recorder
from vicinal._kernel_penalty import Penalty
from vicinal._lca.checks import LCA_REMEDIES, check_two_rows
from vicinal._lca.solver_choice import PASSES
from vicinal._leave_one_out import LeaveOneOut, scatter_of_rows, weight_of_others
from vicinal._mixtures import SharedMixture
from vicinal._row_sources import ColumnsOf, RowSource


class _SourceRows:
    """The rows of a source that have positive weight, by position, indexed like an array.

    Parameters
    ----------
    source : RowSource
    counted : integer array, optional
        The positions of the rows of positive weight; the default is all.
    """

    def __init__(self, source: RowSource, counted: np.ndarray | None) -> None:
        self._source, self._counted = source, counted
        self.shape = source.shape[0] if counted is None else len(counted), source.shape[1]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, positions: np.ndarray) -> np.ndarray:
        return self._source.take(positions if self._counted is None else self._counted[positions])


class _DrawnPairs:
    """The pair problems of rows that are drawn from a source; that of the last draw is kept.

    Parameters
    ----------
    rows : _SourceRows
    weight : array of shape (n,), or None for ones
    engine : Engine
        An engine whose backend has been chosen.
    """

    def __init__(self, rows: _SourceRows, weight: np.ndarray | None, engine: Any) -> None:
        self._rows, self._weight, self._engine = rows, weight, engine
        self.backend = engine.kind
        self._drawn: tuple[np.ndarray, Problem] | None = None
        self._largest_error = 0.0

    def some(self, positions: np.ndarray) -> Problem:
        """Return the rows at some positions as a separate problem."""
        if self._drawn is None or self._drawn[0] is not positions:
            self._largest_error, self._drawn = self.certified_row_error, None
            weights = None if self._weight is None else np.log(self._weight[positions])
            rows = self._rows[positions]
            problem = prepare(self._engine, rows, log_weights=weights, leave_one_out=True, passes=PASSES)
            self._drawn = positions, problem
        return self._drawn[1]

    @property
    def certified_row_error(self) -> float:
        """The largest relative error of any row's sum in any pass so far."""
        return max(self._largest_error, 0.0 if self._drawn is None else self._drawn[1].certified_row_error)


def fit_lca_to_source(estimator: Any, source: RowSource, sample_weight: Any, limits: tuple[int, float]) -> None:
    """Fit an LCA by its stochastic solver to the rows of a source.

    Parameters
    ----------
    estimator : LCA
    source : RowSource
    sample_weight : array-like of shape (n,), optional
    limits : (int, float)
        The default number of sweeps and the default tolerance.
    """
    check_callback(estimator.callback)
    structure = estimator._check_parameters(source.shape[1])
    ranges = check_source(estimator, source, min_rows=2)
    weight = check_two_rows(check_weights(sample_weight, np.broadcast_to(0.0, source.shape)))
    estimator._stream = None
    forget_gaps(estimator)
    counted = None if weight is None or weight.all() else np.flatnonzero(weight)
    of_counted = weight if weight is None or counted is None else weight[counted]
    rows = _SourceRows(source, counted)
    # The candidates of a step are as many rows as fit into the working memory.
    most = min(resident_rows(estimator.engine, source.shape[1], source.dtype), len(rows))
    drawn = np.sort(np.random.default_rng(estimator._seed()).choice(len(rows), most, replace=False))
    sample, shares = rows[drawn], None if of_counted is None else of_counted[drawn]
    sample, reg = estimator._penalty(sample, shares, structure, LCA_REMEDIES, varies=ranges.least < ranges.most)
    if estimator._constants is not None:
        source = ColumnsOf(source, estimator.active_features_)
        rows = _SourceRows(source, counted)
    covariance = scatter_of_rows(sample, shares)

    def fit_metric(reg: Penalty) -> Any:
        problem = _problem(rows, of_counted, estimator, most, reg)
        start = estimator._initial_metric(covariance, reg, structure)
        estimator.solver_, estimator.engine_ = "stochastic", problem.pairs.backend
        record, options = Recorder.of(estimator), estimator._limits(*limits)
        path, among = estimator._sweep(problem, start, structure, record, options, most=most)
        estimator._keep(path.parameters, covariance)
        metric = estimator.components_[:, estimator.active_features_]
        estimator.effective_neighbors_ = problem.pairs.some(among).at(metric).perplexities()
        estimator.certified_row_error_ = problem.pairs.certified_row_error
        return path

    estimator._fit_under_penalty(fit_metric, sample, shares, reg, LCA_REMEDIES)
    if as_engine(estimator.engine).keep == "metric":
        return
    with np.errstate(divide="ignore"):
        log_weights = None if weight is None else np.log(weight)
    estimator.mixture_ = SharedMixture(
        source.kept(), estimator.covariance_, log_weights, estimator.engine, estimator._active_names
    )


def _problem(rows: _SourceRows, weight: np.ndarray | None, estimator: Any, most: int, reg: Penalty) -> LeaveOneOut:
    """Return the leave-one-out problem of all rows; if all have the same weight, each vector of weights is held as one number."""
    n, d = rows.shape
    work = Work(estimator._pair_work(n, d).n_queries, most, d, PASSES)
    pairs: Any = _DrawnPairs(rows, weight, resolved_engine(fit_engine(estimator), work))
    held: Any = rows
    if weight is None:
        ones, others = np.broadcast_to(1.0, n), np.broadcast_to(np.log(n - 1.0), n)
        return LeaveOneOut(held, ones, others, pairs, reg)
    return LeaveOneOut(held, weight, np.log(weight_of_others(weight)), pairs, reg)
