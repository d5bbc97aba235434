"""Rows that do not fit into memory as a leave-one-out problem: each step draws its terms and its possible neighbours (sec. 5)."""

from typing import Any

import numpy as np

from vicinal._engine import Engine, Placement, Problem, Work, prepare, resolved_engine
from vicinal._leave_one_out.moments import weight_of_others
from vicinal._leave_one_out.problem import LeaveOneOut


class _DrawnPairs:
    """The pair problems of rows that are drawn from a file; that of the last draw is kept.

    Parameters
    ----------
    rows : object that is indexed by positions, such as `DrawnRows`
    weight : array of shape (n,), or None for ones
    engine : Engine
        An engine whose backend has been chosen.
    passes : int
        The expected number of passes of the fit.
    """

    def __init__(self, rows: Any, weight: np.ndarray | None, engine: Any, passes: int) -> None:
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


def problem_in_file(rows: Any, weight: np.ndarray | None, engine: Engine | str | None, work: Work) -> LeaveOneOut:
    """Return the leave-one-out problem of rows in a file; if all have the same weight, each vector of weights is held as one number.

    Parameters
    ----------
    rows : object that is indexed by positions, of shape (n, d)
    weight : array of shape (n,), positive, or None for ones
    engine : None, str or Engine
    work : Work
        The expected work, with the number of points of a step.
    """
    pairs: Any = _DrawnPairs(rows, weight, resolved_engine(engine, work), work.passes)
    if weight is None:
        n = len(rows)
        return LeaveOneOut(rows, np.broadcast_to(1.0, n), np.broadcast_to(np.log(n - 1.0), n), pairs)
    return LeaveOneOut(rows, weight, np.log(weight_of_others(weight)), pairs)
