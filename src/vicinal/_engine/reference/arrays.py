"""The backend of plain array arithmetic: NumPy and, on torch tensors, the torch engine.

The compiled backend is tested against it, and small problems use it, because compiling kernels for 200 rows takes too long.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_namespace

from vicinal._engine import tuning
from vicinal._engine.accuracy import products_are_accurate, score_error
from vicinal._engine.backends import placed_frames
from vicinal._engine.contract import Array, LogSums, Placed, Points, SoftmaxSums, Values, finite, to_images
from vicinal._engine.families import Frames, Kernel
from vicinal._engine.neighbors import Pairs, candidates_of_scores
from vicinal._engine.queries import Queries
from vicinal._engine.settings import Engine
from vicinal._engine.work.blocks import Blocks
from vicinal._engine.work.pool import available_threads, in_order, one_blas_thread
from vicinal._engine.work.sharing import NOTHING

_Result = TypeVar("_Result")


class ArrayBackend:
    """Rows as NumPy arrays.

    Parameters
    ----------
    points : Points
    engine : Engine
    """

    name: ClassVar[str] = "reference"

    def __init__(self, points: Points, engine: Engine) -> None:
        self.points, self.engine = points, engine
        self.memory, self.threads = engine.memory_bytes, available_threads(engine.threads)
        self.rows = self.to_device(points.rows if points.tensor is None else points.tensor)

    def to_device(self, array: np.ndarray) -> Array:
        """Return an array on the device on which this backend computes."""
        return array

    def at(self, kernel: Kernel) -> Placed:
        """Place the rows under a kernel."""
        if isinstance(kernel, Frames):
            return placed_frames(self, kernel)
        return ArrayPlaced(self, kernel)


class BlockScores(Placed):
    """The reductions of a kernel family from blocks of scores, as arrays of any namespace.

    A family defines its scores in `_scorer`; the images and rows of its points are arrays on the device on which it computes.
    """

    _backend: Any
    _images: Array
    _rows: Array

    @abstractmethod
    def _scorer(self, queries: Queries, listing: bool = False) -> Any:
        """Return the scores of some queries, block by block; see `_BlockScorer`.

        With `listing` they only propose candidates, with an error of at most ``error``.
        """

    def log_sums(self, queries: Queries, by_class: bool = False) -> LogSums:
        scorer = self._scorer(queries)
        xp = array_namespace(self._images)
        there, log_sums = answered(queries), np.empty(scorer.m)
        log_shares = np.empty((scorer.m, self.points.n_classes)) if by_class else None
        if there is not as_numpy:
            log_sums = xp.empty(scorer.m, dtype=xp.float64, device=device(self._images))

        def work(rows: slice) -> tuple[Array, Array | None]:
            top, below = _below_top(scorer.scores(rows))
            rest = _log_sum_exp(below)
            if not by_class:
                return top + rest, None
            parts = xp.stack([_log_sum_exp(below[:, some]) for some in self._members], axis=1)
            # A row without any neighbour has no shares either.
            return top + rest, parts - xp.where(rest > -math.inf, rest, xp.zeros_like(rest))[:, None]

        for rows, (sums, shares) in self._in_blocks(work, scorer.m):
            log_sums[rows] = there(sums) + scorer.shift
            if log_shares is not None:
                log_shares[rows] = as_numpy(shares)
        return LogSums(log_sums, log_shares)

    @cached_property
    def _members(self) -> list[Array]:
        """The positions of the points of each class."""
        found = [np.flatnonzero(self.points.classes == code) for code in range(self.points.n_classes)]
        return [as_index(some, self._images) for some in found]

    def _blocks(self, m: int) -> tuple[Blocks, int]:
        """Return blocks of queries within the memory, and the threads that may work on them at once."""
        return blocks_within(self._backend, m)

    def _in_blocks(self, work: Callable[[slice], _Result], m: int) -> Iterator[tuple[slice, _Result]]:
        """Yield blocks of queries and the results of ``work``; BLAS uses one thread, because its threads would compete with ours."""
        blocks, threads = self._blocks(m)
        with one_blas_thread() if is_numpy_namespace(array_namespace(self._images)) else nullcontext():
            yield from zip(blocks, in_order(work, blocks, threads, NOTHING), strict=True)

    def softmax_sums(
        self,
        queries: Queries,
        factors: np.ndarray | None,
        values: Values | None,
        query_values: Values | None = None,
        own_class: bool = False,
    ) -> SoftmaxSums:
        scorer = self._scorer(queries)
        xp = array_namespace(self._images)
        f = None if factors is None else like(factors, self._images)
        theirs = None if values is None else self._values(values, self._images, self._rows)
        mine = None if query_values is None else self._values(query_values, scorer.images, scorer.rows)
        codes = self._codes(queries) if own_class else None

        def work(rows: slice) -> tuple[Array, Array | None, Array | None]:
            scores = scorer.scores(rows)
            if codes is not None:
                same = codes[0][rows, None] == codes[1][None, :]
                scores = xp.where(same, scores, xp.full_like(scores, -math.inf))
            log_sums, weights = _softmax(scores)
            if f is not None:
                weights = weights * f[rows, None]
            gathered = None if theirs is None else weights @ theirs
            return log_sums, gathered, None if mine is None else weights.T @ mine[rows]

        log_sums = np.empty(scorer.m)
        gathered = np.empty((scorer.m, 0 if theirs is None else theirs.shape[1]))
        received = np.zeros((len(self.points.rows), 0 if mine is None else mine.shape[1]))
        for rows, (sums, to_queries, to_points) in self._in_blocks(work, scorer.m):
            log_sums[rows] = as_numpy(sums) + scorer.shift
            if to_queries is not None:
                gathered[rows] = as_numpy(to_queries)
            if to_points is not None:
                received += as_numpy(to_points)
        return SoftmaxSums(log_sums, gathered, received)

    def _values(self, values: Values, images: Array, rows: Array) -> Array:
        if isinstance(values, str):
            own = images if values == "images" else rows
            return array_namespace(own).concat([own, own[:, :1] * 0.0 + 1.0], axis=1)
        return like(values, self._images)

    def _codes(self, queries: Queries) -> tuple[Array, Array]:
        """Classes of the queries and of the points, compared on the device of the points, so that no matrix of matches is transferred."""
        codes = self.points.classes
        assert codes is not None
        mine = codes if queries.positions is None else codes[queries.positions]
        return as_index(mine, self._images), as_index(codes, self._images)

    def candidates(self, queries: Queries, floors: np.ndarray) -> Iterator[Pairs]:
        scorer = self._scorer(queries, listing=True)
        levels = floors - scorer.shift

        def work(rows: slice) -> Pairs:
            return candidates_of_scores(as_numpy(scorer.scores(rows)), rows, scorer.error, levels)

        for _, found in self._in_blocks(work, scorer.m):
            yield found


class ArrayPlaced(BlockScores):
    """Rows under one shared metric, as arrays of any namespace."""

    takes_tensors: ClassVar[bool] = True

    def __init__(self, backend: ArrayBackend, metric: np.ndarray | None) -> None:
        self._backend, self.points, self.threads = backend, backend.points, backend.threads
        self.metric = None if metric is None else np.asarray(metric, dtype=np.float64)
        self._rows = backend.rows
        self._images = self._map(backend.rows)
        with np.errstate(over="ignore"):  # if squares overflow, products are not used
            self._squares = (self._images**2).sum(1)
        self._largest = float(self._squares.max())
        weights = backend.points.log_weights
        self._log_weights = None if weights is None else like(weights, self._images)
        self._heaviest = 0.0 if weights is None else float(np.abs(weights[np.isfinite(weights)]).max(initial=0.0))

    def _map(self, rows: Array) -> Array:
        xp = array_namespace(rows)
        if self.metric is None or is_numpy_namespace(xp):
            return to_images(rows, self.metric)
        return xp.astype(self._map_exactly(rows), rows.dtype)

    def _map_exactly(self, rows: Array) -> Array:
        """Return the images of tensors in float64."""
        xp = array_namespace(rows)
        rows = xp.astype(rows, xp.float64)
        if self.metric is None:
            return rows
        metric = like(self.metric, rows)
        return rows * metric if self.metric.ndim == 1 else rows @ metric.T

    def _scorer(self, queries: Queries, listing: bool = False) -> "_BlockScorer":
        return _BlockScorer(self, queries)

    def squares(self, queries: Queries) -> tuple[np.ndarray, np.ndarray]:
        scorer, given = self._scorer(queries), self.points.log_weights
        xp = array_namespace(self._images)
        weights_of_points = None if given is None else like(finite(given), self._images)

        def work(rows: slice) -> tuple[Array, Array]:
            scores = scorer.scores(rows)
            log_sums, weights = _softmax(scores)
            halves = -scores if weights_of_points is None else weights_of_points[None, :] - scores
            halves = xp.where(xp.isfinite(halves), halves, xp.zeros_like(halves))  # those of pairs that are left out
            return log_sums, (2.0 * weights * halves).sum(1)

        log_sums, squares = np.empty(scorer.m), np.empty(scorer.m)
        for rows, found in self._in_blocks(work, scorer.m):
            log_sums[rows], squares[rows] = as_numpy(found[0]), as_numpy(found[1])
        return log_sums, squares


class _BlockScorer:
    """Scores of blocks of queries against all points, by products if these are accurate."""

    shift = 0.0  # the number that must be added to the scores; a family may keep them small, so that their differences lose no digits

    def __init__(self, placed: ArrayPlaced, queries: Queries) -> None:
        self._placed = placed
        if queries.rows is not None:
            self.rows = like(queries.rows, placed._images)
            self.images = placed._map(self.rows)
            with np.errstate(over="ignore"):  # if squares overflow, products are not used
                self._squares = (self.images**2).sum(1)
        else:
            some = slice(None) if queries.positions is None else as_index(queries.positions, placed._images)
            self.rows, self.images = placed._backend.rows[some], placed._images[some]
            self._squares = placed._squares[some]
        self.m = self.images.shape[0]
        self._left_out = queries.left_out
        self._largest = max(placed._largest, float(self._squares.max()) if self.m else 0.0)
        self._by_products = products_are_accurate(self._largest, _dtype(self.images))

    def scores(self, rows: slice) -> Array:
        q, points = self.images[rows], self._placed._images
        if self._by_products:
            squares = self._squares[rows, None] + self._placed._squares[None, :] - 2.0 * (q @ points.T)
            squares = squares.clip(0)
        else:
            with np.errstate(over="ignore"):  # a point infinitely far from a query has no share in it
                squares = (q[:, :1] - points[None, :, 0]) ** 2
                for k in range(1, points.shape[1]):
                    squares += (q[:, k, None] - points[None, :, k]) ** 2
        weights = self._placed._log_weights
        scores = -0.5 * squares if weights is None else weights[None, :] - 0.5 * squares
        if self._left_out is not None:
            skip = self._left_out[rows]
            hit = np.flatnonzero(skip >= 0)
            scores[hit, skip[hit]] = -math.inf
        return scores

    def error(self, rows: slice, least: np.ndarray) -> np.ndarray:
        """Return a bound on the difference between scores of the rows that reach `least` and those in float64."""
        placed, squares = self._placed, as_numpy(self._squares[rows])
        return score_error(
            self._by_products, squares, placed._largest, placed._heaviest,
            self.images.shape[1], _dtype(self.images), least,
        )  # fmt: skip


# -- small helpers ------------------------------------------------------------------------------------------------


def blocks_within(backend: Any, m: int, numbers_per_pair: int = 10) -> tuple[Blocks, int]:
    """Return blocks of m queries against all points within a backend's memory, and the number of threads that work on them."""
    size = backend.points.rows.dtype.itemsize * numbers_per_pair
    pairs = backend.memory // size
    if backend.name != "torch":
        pairs = min(pairs, tuning.ARRAY_BLOCK_PAIRS)
    threads = int(min(backend.threads, max(backend.memory // (size * pairs), 1)))
    return Blocks.for_pairs(m, len(backend.points.rows), pairs), threads


def _exp(x: Array) -> Array:
    with np.errstate(under="ignore"):
        return array_namespace(x).exp(x)


def _below_top(scores: Array) -> tuple[Array, Array]:
    """Return each row's largest score (0 for a row of -inf), and the scores below it."""
    xp = array_namespace(scores)
    top = xp.max(scores, axis=1)
    top = xp.where(xp.isfinite(top), top, xp.zeros_like(top))
    return top, scores - top[:, None]


def _log_sum_exp(scores: Array) -> Array:
    """Row log-sum-exp, shifted by the maximum; -inf for a row of -inf or without entries."""
    if scores.shape[1] == 0:
        xp = array_namespace(scores)
        return xp.full((scores.shape[0],), -math.inf, dtype=scores.dtype, device=device(scores))
    top, below = _below_top(scores)
    with np.errstate(divide="ignore"):
        return top + array_namespace(scores).log(_exp(below).sum(1))


def _softmax(scores: Array) -> tuple[Array, Array]:
    """Row log-sum-exp and softmax; zeros for a row of -inf.

    The weights are divided by their sum instead of being computed from the log-sum, which for scores of 1e16 has lost the
    number of neighbours: the weights would sum to that number.
    """
    top, below = _below_top(scores)
    weights = _exp(below)
    total = weights.sum(1)
    with np.errstate(divide="ignore"):
        log_sums = top + array_namespace(scores).log(total)
    return log_sums, weights / total.clip(1e-300 if _dtype(scores) == np.float64 else 1e-30)[:, None]


def _dtype(array: Array) -> np.dtype:
    """Return the NumPy dtype of an array of any namespace."""
    return np.dtype(str(array.dtype).removeprefix("torch."))


def like(array: Any, other: Array, dtype: Any = None) -> Array:
    """`array` as an array of the namespace and device of `other`, and of its dtype (or another)."""
    xp, dtype = array_namespace(other), dtype or other.dtype
    if is_numpy_namespace(xp):
        return np.asarray(array, dtype=dtype)
    return xp.asarray(array if hasattr(array, "cpu") else np.array(array), dtype=dtype, device=device(other))


def as_index(positions: np.ndarray, other: Array) -> Array:
    """Return positions as an index of arrays of the namespace and device of `other`."""
    return like(positions, other, array_namespace(other).int64)


def as_numpy(array: Array) -> np.ndarray:
    """`array` as float64 NumPy."""
    return np.asarray(array.cpu() if hasattr(array, "cpu") else array, dtype=np.float64)


def answered(queries: Queries) -> Callable[[Array], Any]:
    """Return a function that brings a result to the device of the queries: float64 tensors if they are tensors, else NumPy."""
    return (lambda found: found.double()) if hasattr(queries.rows, "cpu") else as_numpy


def as_positions(array: Array) -> np.ndarray:
    """Return an integer array as NumPy."""
    return np.asarray(array.cpu() if hasattr(array, "cpu") else array, dtype=np.int64)
