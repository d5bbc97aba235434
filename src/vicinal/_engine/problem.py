"""The resident pair problem: rows that are prepared once and placed under a metric, for sums over pairs.

::

    problem = prepare(engine, X, leave_one_out=True, passes=20)      # once per fit: cast, centre, order, place
    placed = problem.at(A)                                           # once per pass: only the metric is sent
    placed.scatter(row_weights)                                      # only sums are returned
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import ArrayLike, DTypeLike

from vicinal._engine import accuracy, tuning
from vicinal._engine.accuracy import round_centre
from vicinal._engine.backends import backend_class
from vicinal._engine.certificates import Certificates
from vicinal._engine.choice import Work, choose
from vicinal._engine.contract import Match, Points
from vicinal._engine.families import Frames, Kernel
from vicinal._engine.placement import Placement
from vicinal._engine.queries import Queries
from vicinal._engine.reference.arrays import like
from vicinal._engine.settings import Engine, as_engine
from vicinal._engine.work.blocks import Blocks
from vicinal._tensors import on_device, tensor_of


def prepare(
    engine: Engine | str | None,
    points: ArrayLike,
    *,
    log_weights: ArrayLike | None = None,
    leave_one_out: bool = False,
    match: Match | None = None,
    n_queries: int | None = None,
    n_dims: int | None = None,
    passes: int = 1,
) -> Problem:
    """Prepare rows for the engine, once per fit; return a `Problem`.

    This function chooses the backend, by a pure function of the shapes and the parameters, and casts, centres and
    stores the rows as that backend needs them.

    Parameters
    ----------
    engine : None, str or Engine
    points : array of shape (n, D)
    log_weights : array of shape (n,), optional
        Log-weights of the points as neighbours; -inf removes a point.
    leave_one_out : bool
        Whether a query that is a resident row is excluded from its own neighbours.
    match : Match, optional
        The agreement of rows, for `Placement.pull` and `Placement.class_shares`.
    n_queries : int, optional
        Queries per pass; the default is all rows.
    n_dims : int, optional
        Dimensions of the images; the default is D.
    passes : int
        The expected number of passes of a fit, a constant of the solver.
    """
    engine = as_engine(engine)
    rows = np.asarray(points)
    n, width = rows.shape
    work = Work(n if n_queries is None else n_queries, n, width if n_dims is None else n_dims, passes)
    name = choose(engine, work).backend
    if name != "reference":
        engine.check_error(np.dtype(engine.precision or rows.dtype))
    weights = None if log_weights is None else np.asarray(log_weights, dtype=np.float64)
    return Problem(engine, name, rows, weights, leave_one_out, match)


def centred(rows: np.ndarray, centre: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return rows minus a centre, in another precision, in blocks, so that there is no second copy in float64.

    Rows whose squares would overflow in that precision are moved closer, so that they do not.
    """
    found = np.empty(rows.shape, dtype=dtype)
    largest = np.sqrt(np.finfo(dtype).max) / 2.0**12 if np.dtype(dtype).itemsize < rows.dtype.itemsize else np.inf
    for part in Blocks(len(rows), tuning.ALGEBRA_ROWS):
        less = rows[part] - centre
        found[part] = less if largest == np.inf else np.clip(less, -largest, largest, out=less)
    return found


class Problem:
    """Rows in the form that their backend needs; make one with `prepare`."""

    def __init__(
        self,
        engine: Engine,
        backend: str,
        points: np.ndarray,
        log_weights: np.ndarray | None = None,
        leave_one_out: bool = False,
        match: Match | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        self.centre = round_centre(points)
        real = np.dtype(engine.precision or points.dtype)
        self.engine, self.backend = engine, backend
        self.n_points, self.n_features = points.shape
        self.leave_one_out, self.match = leave_one_out, match
        rows = centred(points, self.centre, real)
        codes, n_classes = None, 0
        if match is not None and match.kind == "class":
            codes = np.asarray(match.values, dtype=np.int64)
            n_classes = int(codes.max()) + 1
        tensor = tensor_of(points) if backend == "torch" else None
        if tensor is not None:
            tensor = centred_tensor(tensor, self.centre, real)
        self.points = Points(rows, log_weights, codes, n_classes, tensor, certificates or Certificates())
        self._rows = backend_class(backend)(self.points, engine)
        # The rows as given, if their digits may be needed.  On a GPU every tile has its own centre.
        plain = real == np.float64 or (engine.precision is None and backend != "torch")
        self.given_rows = points if plain and points.dtype == real else None
        self._in_float64: Problem | None = None
        self._with_targets: Problem | None = None
        self._by_column: list[Problem] | None = None

    @property
    def certified_row_error(self) -> float:
        """The largest relative error that skipped pairs may have caused in the sum of any row, in any pass so far."""
        return float(self.points.certificates.largest)

    @property
    def given_match(self) -> Match:
        """Return the match; raise an error if the problem was prepared without one."""
        if self.match is None:
            raise TypeError("this sum needs a match, got match=None. Pass a Match to prepare.")
        return self.match

    def at(self, kernel: Kernel = None) -> Placement:
        """Place the rows under a kernel.

        Parameters
        ----------
        kernel : array of shape (k, D) or (D,), a record of `families.py`, or None
            A matrix A maps rows to images ``A x`` with the score ``-|A (x_i - x_j)|^2 / 2``; a vector is a diagonal
            matrix; None leaves the rows as they are.
        """
        if self.given_rows is not None and self._rounds_visibly(kernel):
            if self._in_float64 is None:
                engine = replace(self.engine, precision="float64")
                self._in_float64 = Problem(
                    engine, self.backend, self.given_rows, self.points.log_weights, self.leave_one_out, self.match,
                    self.points.certificates,
                )  # fmt: skip
            return self._in_float64.at(kernel)
        return Placement(self, self._rows.at(kernel), kernel)

    def _rounds_visibly(self, kernel: Kernel) -> bool:
        """Return whether images in float32 about one centre may have errors that matter relative to a kernel's width.

        This is so for groups of rows that are a million widths apart, even if differences within a group are exact.
        """
        if isinstance(kernel, Frames) or self.points.rows.dtype != np.float32:
            return False
        largest = 1.0 if kernel is None else float(np.linalg.norm(kernel))
        return float(np.finfo(np.float32).eps) * largest * self._largest_norm > accuracy.VISIBLE_ROUNDING

    @cached_property
    def _largest_norm(self) -> float:
        return max(
            float(np.linalg.norm(self.points.rows[part], axis=1).max())
            for part in Blocks(self.n_points, tuning.ALGEBRA_ROWS)
        )

    def reweighted(self, log_weights: np.ndarray | None) -> Problem:
        """Return the same rows with other log-weights, on the same backend."""
        weights = None if log_weights is None else np.asarray(log_weights, dtype=np.float64)
        return self._with_points(replace(self.points, log_weights=weights), self.match, self.given_rows)

    def some(self, positions: np.ndarray) -> Problem:
        """Return the rows at some positions as a separate problem on the same backend."""
        given = self.points
        points = replace(
            given,
            rows=np.ascontiguousarray(given.rows[positions]),
            tensor=None if given.tensor is None else given.tensor[positions],
            log_weights=None if given.log_weights is None else given.log_weights[positions],
            classes=None if given.classes is None else given.classes[positions],
        )
        match = None if self.match is None else replace(self.match, values=self.match.values[positions])
        return self._with_points(points, match, None if self.given_rows is None else self.given_rows[positions])

    def _with_points(self, points: Points, match: Match | None, given: np.ndarray | None) -> Problem:
        other = object.__new__(Problem)
        other.__dict__.update(self.__dict__)
        other.points, other.match, other.n_points = points, match, len(points.rows)
        other._rows = backend_class(self.backend)(points, self.engine)
        other._with_targets, other._by_column, other._in_float64, other.given_rows = None, None, None, given
        other.__dict__.pop("_largest_norm", None)
        return other

    def with_targets(self) -> Problem:
        """Return the rows with their targets as further coordinates: Gaussian matches are distances there.

        The targets are centred before they are rounded to the precision of the rows.
        """
        if self._with_targets is None:
            targets = self.given_match.values - round_centre(self.given_match.values)
            rows = self.points.rows if self.given_rows is None else self.given_rows
            rows = np.hstack([rows, targets.astype(rows.dtype, copy=False)])
            self._with_targets = Problem(
                self.engine,
                self.backend,
                rows,
                self.points.log_weights,
                self.leave_one_out,
                None,
                self.points.certificates,
            )
        return self._with_targets

    def by_target_column(self) -> list[Problem]:
        """Return the rows weighted by each column of their targets: dot matches are such sums."""
        if self._by_column is None:
            base = 0.0 if self.points.log_weights is None else self.points.log_weights
            with np.errstate(divide="ignore"):
                self._by_column = [self.reweighted(base + np.log(column)) for column in self.given_match.values.T]
        return self._by_column

    def centred(self, rows: ArrayLike) -> np.ndarray:
        """Return new rows in the form of the resident ones: minus the centre, in the working precision."""
        if on_device(rows):
            return centred_tensor(rows, self.centre, self.points.rows.dtype)
        return centred(np.asarray(rows), self.centre, self.points.rows.dtype)

    def queries(self, queries: ArrayLike | None, left_out: ArrayLike | None) -> Queries:
        """Return the queries of a call: None for all rows, integers for positions, a table for new rows."""
        if queries is not None and np.ndim(queries) == 2:
            given = None if left_out is None else np.asarray(left_out, dtype=np.int64)
            return Queries(rows=self.centred(queries), left_out=given)
        positions = None if queries is None else np.asarray(queries, dtype=np.int64)
        own = np.arange(self.n_points) if positions is None else positions
        return Queries(positions=positions, left_out=own if self.leave_one_out else None)


def centred_tensor(rows: Any, centre: np.ndarray, dtype: DTypeLike) -> Any:
    """Return a tensor of rows minus the centre, in a precision; the result equals NumPy's to the last bit."""
    xp = array_namespace(rows)
    return xp.astype(xp.astype(rows, xp.float64) - like(centre, rows, xp.float64), getattr(xp, np.dtype(dtype).name))
