"""Rows that do not fit into memory as a leave-one-out problem of LCA and LCA-Gauss: minibatches are drawn from a source (sec. 5).

The checks, the penalty and the units of the data come from a sample of the rows; every step draws its terms and its
possible neighbours from all rows. The components of the density stay in the source if it is a file.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from vicinal._checks import check_source, check_weights, log_weights
from vicinal._density.gaps import forget_gaps
from vicinal._engine import Placement, Problem, fit_engine, prepare, resident_rows, resolved_engine
from vicinal._kernel_penalty import Penalty
from vicinal._lca.checks import check_two_rows
from vicinal._leave_one_out import LeaveOneOut, weight_of_others
from vicinal._row_sources import ColumnsOf, RowSource

_PART_ROWS = 8192  # the number of rows whose moments are added at a time


class SourceRows:
    """The rows of a source that have positive weight, by position, indexed like an array.

    Parameters
    ----------
    source : RowSource
    counted : integer array, optional
        The positions of the rows of positive weight; the default is all.
    whiten : (array of shape (d,), array of shape (d, d)), optional
        A mean and a root: the rows are ``root @ (x - mean)``.
    """

    def __init__(
        self, source: RowSource, counted: np.ndarray | None, whiten: tuple[np.ndarray, np.ndarray] | None = None
    ) -> None:
        self._source, self._counted, self._whiten = source, counted, whiten
        self.shape = source.shape[0] if counted is None else len(counted), source.shape[1]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, positions: np.ndarray) -> np.ndarray:
        rows = self._source.take(positions if self._counted is None else self._counted[positions])
        if self._whiten is None:
            return rows
        mean, root = self._whiten
        return ((rows - mean) @ root.T).astype(rows.dtype, copy=False)


class _DrawnPairs:
    """The pair problems of rows that are drawn from a source; that of the last draw is kept.

    Parameters
    ----------
    rows : SourceRows
    weight : array of shape (n,), or None for ones
    engine : Engine
        An engine whose backend has been chosen.
    passes : int
        The expected number of passes of the fit.
    """

    def __init__(self, rows: SourceRows, weight: np.ndarray | None, engine: Any, passes: int) -> None:
        self._rows, self._weight, self._engine, self._passes = rows, weight, engine, passes
        self.backend = engine.kind
        self._drawn: tuple[np.ndarray, Problem] | None = None
        self._all: np.ndarray | None = None  # the positions of all rows, if these were used
        self._largest_error = 0.0

    def some(self, positions: np.ndarray) -> Problem:
        """Return the rows at some positions as a separate problem."""
        if self._drawn is None or self._drawn[0] is not positions:
            self._largest_error, self._drawn = self.certified_row_error, None
            weights = None if self._weight is None else np.log(self._weight[positions])
            rows = self._rows[positions]
            problem = prepare(self._engine, rows, log_weights=weights, leave_one_out=True, passes=self._passes)
            self._drawn = positions, problem
        return self._drawn[1]

    def at(self, metric: np.ndarray) -> Placement:
        """Return all rows under a metric, which fit into the working memory if some have weight zero."""
        if self._all is None:
            self._all = np.arange(len(self._rows))
        return self.some(self._all).at(metric)

    @property
    def certified_row_error(self) -> float:
        """The largest relative error of any row's sum in any pass so far."""
        return max(self._largest_error, 0.0 if self._drawn is None else self._drawn[1].certified_row_error)


class Draw(NamedTuple):
    """A source whose rows have been checked, and the sample of its rows that determines the penalty and the units."""

    source: Any  # a RowSource
    weight: np.ndarray | None  # of all rows
    counted: np.ndarray | None  # the positions of the rows of positive weight; None for all
    of_counted: np.ndarray | None  # the weights of these rows
    most: int  # the number of candidates of a step: as many rows as fit into the working memory
    sample: np.ndarray
    shares: np.ndarray | None  # the weights of the sample
    varies: np.ndarray  # which columns vary

    def active(self, estimator: Any) -> "Draw":
        """Return the source of the columns that the estimator uses; the sample has these columns already."""
        if estimator._constants is None:
            return self
        return self._replace(source=ColumnsOf(self.source, estimator.active_features_))

    def components(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the rows that the density keeps, where they are or in memory, and their log-weights."""
        positions = self.source.density_positions()
        if positions is None:
            return self.source.kept(), log_weights(self.weight)
        return self.source.take(positions), log_weights(None if self.weight is None else self.weight[positions])


def draw_rows(estimator: Any, source: RowSource, sample_weight: Any) -> Draw:
    ranges = check_source(estimator, source, min_rows=2)
    weight = check_two_rows(check_weights(sample_weight, np.broadcast_to(0.0, source.shape)))
    forget_gaps(estimator)
    counted = None if weight is None or weight.all() else np.flatnonzero(weight)
    of_counted = weight if weight is None or counted is None else weight[counted]
    rows = SourceRows(source, counted)
    most = min(resident_rows(estimator.engine, source.shape[1], source.dtype), len(rows))
    drawn = np.sort(np.random.default_rng(estimator._seed()).choice(len(rows), most, replace=False))
    shares = None if of_counted is None else of_counted[drawn]
    return Draw(source, weight, counted, of_counted, most, rows[drawn], shares, ranges.least < ranges.most)


def moments_of_source(draw: Draw, centre: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the covariance of all rows of positive weight, in one pass; `centre` is a point near the mean."""
    d = len(centre)
    mass, first, second = 0.0, np.zeros(d), np.zeros((d, d))
    start = 0
    for part in _parts(draw.source):
        weight = np.ones(len(part)) if draw.weight is None else draw.weight[start : start + len(part)]
        start += len(part)
        moved = part[weight > 0] - centre  # rows of weight zero may hold numbers of any size
        weight = weight[weight > 0]
        mass += weight.sum()
        first += weight @ moved
        second += (moved * weight[:, None]).T @ moved
    shift = first / mass
    return centre + shift, second / mass - np.outer(shift, shift)


def _parts(source: RowSource) -> Iterator[np.ndarray]:
    """Yield the rows in parts of the same size, so that sums over them do not depend on the blocks of the source."""
    left = np.empty((0, source.shape[1]), dtype=source.dtype)
    for block in source.blocks():
        rows = np.concatenate([left, block])
        whole = len(rows) - len(rows) % _PART_ROWS
        for start in range(0, whole, _PART_ROWS):
            yield rows[start : start + _PART_ROWS]
        left = rows[whole:]
    if len(left):
        yield left


def problem_of_source(rows: SourceRows, draw: Draw, estimator: Any, reg: Penalty) -> LeaveOneOut:
    """Return the leave-one-out problem of all rows; if all have the same weight, each vector of weights is held as one number."""
    n, d = rows.shape
    work = estimator._pair_work(n, d)
    engine = resolved_engine(fit_engine(estimator), work._replace(n_points=draw.most))
    pairs: Any = _DrawnPairs(rows, draw.of_counted, engine, work.passes)
    held: Any = rows
    if draw.of_counted is None:
        ones, others = np.broadcast_to(1.0, n), np.broadcast_to(np.log(n - 1.0), n)
        return LeaveOneOut(held, ones, others, pairs, reg)
    return LeaveOneOut(held, draw.of_counted, np.log(weight_of_others(draw.of_counted)), pairs, reg)
