"""Kernels with a full covariance per point: scores are quadratic forms of the queries, computed by matrix products if these are accurate.

With ``P_j = R_j' R_j`` the score of a pair is

    s_ij = log_weights_j + log|R_j| - (q_i - x_j)' P_j (q_i - x_j) / 2
         = c_j + (P_j x_j)' q_i - P_j : (q_i q_i') / 2,

linear in the d coordinates of q and their d (d + 1) / 2 products.  So a tile of scores is one matrix product, of half the
work that the images ``R_j (q_i - x_j)`` would need, and nothing wider than the tile is held.  As with distances, the
terms cancel: the error of the product is about ``eps |R_j|^2 (|q_i| + |x_j|)^2`` in the exponent of a weight.  Tiles in which
that bound is too large are computed from differences.

All arithmetic is NumPy's in float64, for any backend and precision of the rows.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from vicinal._engine._accuracy import product_error, products_are_accurate
from vicinal._engine._blocks import columns_of
from vicinal._engine._contract import LogSums, Placed, Queries, SoftmaxSums, Values, listed_parts
from vicinal._engine._families import Covariances
from vicinal._engine._frame_scores import Skips
from vicinal._engine._kernel_sums import Add, KernelSums, may_skip
from vicinal._engine._pool import available_threads, in_order, one_blas_thread
from vicinal._engine._sharing import NOTHING
from vicinal._engine._tuning import COVARIANCE_ROWS, COVARIANCE_TILE, DIFFERENCE_NUMBERS, KERNEL_BLOCK

if TYPE_CHECKING:
    from vicinal._engine._kernel_tiles import KernelTiles

# What the largest scores of tiles may be off by rounding, relative to floors.
_ROUNDING = 1e-9

_Result = TypeVar("_Result")


class PlacedCovariances(Placed):
    """Rows with one covariance each, on any backend: the `Placed` of `Covariances`."""

    metric = None

    def __init__(self, backend: Any, kernel: Covariances) -> None:
        self.points = backend.points
        self._engine, self._skips, self.certificate = backend.engine, backend.name == "cpu", 0.0
        self._memory, self._threads = backend.engine.memory_bytes, available_threads(backend.engine.threads)
        self._rows = self.points.rows.astype(np.float64, copy=False)
        self._roots = np.asarray(kernel.inverse_roots, dtype=np.float64)
        self._log_norms = np.log(np.diagonal(self._roots, axis1=1, axis2=2)).sum(axis=1)
        if self.points.log_weights is not None:
            self._log_norms = self._log_norms + self.points.log_weights
        n, d = self._rows.shape
        # |R_j|^2 and |x_j|, for the bound.
        self._steepness = np.square(self._roots).sum(axis=(1, 2))
        self._reach = np.linalg.norm(self._rows, axis=1)
        self._first, self._second = np.tril_indices(d)
        self._terms = np.empty((n, d + len(self._first)))
        self._constants = np.empty(n)
        with np.errstate(over="ignore", invalid="ignore"):  # if these overflow, differences are used
            for part in listed_parts(n, 2 * d * d):
                precisions = self._roots[part].transpose(0, 2, 1) @ self._roots[part]
                slopes = np.einsum("jkl,jl->jk", precisions, self._rows[part])
                self._terms[part, :d] = slopes
                doubled = np.where(self._first == self._second, 0.5, 1.0)
                self._terms[part, d:] = -precisions[:, self._first, self._second] * doubled
                squares = np.einsum("jk,jk->j", slopes, self._rows[part])
                self._constants[part] = self._log_norms[part] - 0.5 * squares

    # -- scores --------------------------------------------------------------------------------------------------

    def _sizes(self) -> tuple[int, int]:
        """Return the number of queries in a block that fit into the memory, and the threads that may work on blocks at once."""
        bytes_per_row = 8 * (self._terms.shape[1] + 3 * COVARIANCE_TILE)
        rows = int(min(max(self._memory // bytes_per_row, 1), COVARIANCE_ROWS))
        return rows, int(min(self._threads, max(self._memory // (bytes_per_row * rows), 1)))

    def _tiles(self) -> list[slice]:
        return _slices(len(self._rows), COVARIANCE_TILE)

    def _block(self, queries: Queries, rows: slice) -> "_Block":
        mine = self._rows if queries.rows is None else queries.rows
        mine = mine[rows] if queries.positions is None else mine[queries.positions[rows]]
        return _Block(
            mine.astype(np.float64, copy=False),
            None if queries.left_out is None else queries.left_out[rows],
            self._first,
            self._second,
        )

    def _bound(self, block: "_Block", tile: slice | np.ndarray) -> float:
        """Return the largest ``|R_j|^2 (|q_i| + |x_j|)^2`` of a block and a tile."""
        with np.errstate(over="ignore"):
            return float((self._steepness[tile] * (block.reach + self._reach[tile]) ** 2).max(initial=0.0))

    def _scores(self, block: "_Block", tile: slice | np.ndarray) -> np.ndarray:
        """Return the scores of a block of queries and a tile of points."""
        if products_are_accurate(self._bound(block, tile), np.float64):
            scores = block.features @ self._terms[tile].T
            scores += self._constants[tile]
        else:
            scores = self._log_norms[tile] - 0.5 * self._squares(block.rows, tile)
        if block.left_out is not None:
            hit, columns = columns_of(tile, block.left_out)
            scores[hit, columns] = -np.inf
        return scores

    def _squares(self, rows: np.ndarray, tile: slice | np.ndarray) -> np.ndarray:
        """``|R_j (q_i - x_j)|^2`` from differences; infinite where it overflows."""
        points, roots = self._rows[tile], self._roots[tile]
        squares = np.empty((len(rows), len(points)))
        with np.errstate(over="ignore", invalid="ignore"):
            for part in _slices(squares.shape[1], max(DIFFERENCE_NUMBERS // rows.size, 1)):
                images = (rows[None] - points[part, None]) @ roots[part].transpose(0, 2, 1)
                squares[:, part] = np.einsum("jik,jik->ij", images, images)
        squares[np.isnan(squares)] = np.inf  # the difference of two infinite terms of an image
        return squares

    # -- reductions ----------------------------------------------------------------------------------------------

    def log_sums(self, queries: Queries, by_class: bool = False) -> LogSums:
        """Return the log-sums; this family does not support shares of classes."""
        _without_classes(by_class)
        self.certificate = 0.0
        if not self._skips or not may_skip(self._engine, self.points.rows, queries.count(len(self._rows))):
            top, total, _ = self._gather(queries, None)
            return LogSums(_log(top, total))
        rows = self.coordinates(queries, "rows").astype(np.float64, copy=False)
        sums = KernelSums((1, 1), rows, Skips.of(queries, len(rows)), self._adder)
        n_rows, threads = self._sizes()
        with one_blas_thread():
            found, self.certificate = sums.over_points(self._kernel_tiles, n_rows, threads)
        self.points.certificates.add(self.certificate)
        return LogSums(found[0, 0])

    @cached_property
    def _kernel_tiles(self) -> "KernelTiles":
        from vicinal._engine._kernel_tiles import KernelTiles  # compiled

        def kernels(positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            smallest = np.linalg.svd(self._roots[positions], compute_uv=False)[:, -1]
            return self._log_norms[positions][None], (1.0 / np.square(smallest))[None]

        error = self._engine.error_in(self.points.rows.dtype)
        return KernelTiles(np.ascontiguousarray(self._rows), kernels, error, self._threads)

    def _adder(
        self, q: np.ndarray, pairs: tuple[np.ndarray, np.ndarray] | None, tops: np.ndarray, totals: np.ndarray
    ) -> Add:
        """Return a function that adds tiles of points to the sums of a block of queries."""
        block = _Block(q, None, self._first, self._second)
        top, total = tops[0, 0], totals[0, 0]

        def add(tiles: np.ndarray | None) -> None:
            seen = None if tiles is None else self._kernel_tiles.positions(tiles)
            for part in _slices(len(self._rows if seen is None else seen), COVARIANCE_TILE):
                tile = part if seen is None else seen[part]
                scores = self._scores(block, tile)
                if pairs is not None:
                    here, columns = columns_of(tile, pairs[1])
                    scores[pairs[0][here], columns] = -np.inf
                higher = np.maximum(top, scores.max(axis=1))
                with np.errstate(under="ignore"):
                    fading = np.exp(np.where(top > -np.inf, top - higher, -np.inf))
                    total[:] = total * fading + _exp_below(scores, higher).sum(axis=1)
                top[:] = higher

        return add

    def softmax_sums(
        self,
        queries: Queries,
        factors: np.ndarray | None,
        values: Values | None,
        query_values: Values | None = None,
        own_class: bool = False,
    ) -> SoftmaxSums:
        """Apply the softmax weights; one sweep for what the queries gather, a second for what the points receive."""
        _without_classes(own_class)
        theirs = None if values is None else self._values(values, Queries())
        mine = None if query_values is None else self._values(query_values, queries)
        top, total, gathered = self._gather(queries, theirs)
        shares = (1.0 if factors is None else factors) / np.where(total > 0, total, np.inf)
        gathered *= shares[:, None]
        received = np.empty((len(self._rows), 0)) if mine is None else self._give(queries, top, shares, mine)
        return SoftmaxSums(_log(top, total), gathered, received)

    def _values(self, values: Values, queries: Queries) -> np.ndarray:
        if not isinstance(values, str):
            return np.asarray(values, dtype=np.float64)
        rows = self.coordinates(queries, "rows").astype(np.float64, copy=False)
        return np.hstack([rows, np.ones((len(rows), 1))])

    def _gather(self, queries: Queries, values: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return each query's largest score t, ``sum_j exp(s_ij - t_i)`` and ``sum_j exp(s_ij - t_i) values_j``."""
        m = queries.count(len(self._rows))
        n_rows, threads = self._sizes()
        blocks, tiles = _slices(m, n_rows), self._tiles()
        n_values = 0 if values is None else values.shape[1]

        def work(rows: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            block = self._block(queries, rows)
            top, total = np.full(len(block.rows), -np.inf), np.zeros(len(block.rows))
            gathered = np.zeros((len(block.rows), n_values))
            for tile in tiles:
                scores = self._scores(block, tile)
                higher = np.maximum(top, scores.max(axis=1))
                weights = _exp_below(scores, higher)
                fading = np.exp(np.where(top > -np.inf, top - higher, -np.inf))
                total = total * fading + weights.sum(axis=1)
                if values is not None:
                    gathered = gathered * fading[:, None] + weights @ values[tile]
                top = higher
            return top, total, gathered

        top, total, gathered = np.empty(m), np.empty(m), np.empty((m, n_values))
        with one_blas_thread(), np.errstate(under="ignore"):
            for rows, found in zip(blocks, in_order(_quiet(work), blocks, threads, NOTHING), strict=True):
                top[rows], total[rows], gathered[rows] = found
        return top, total, gathered

    def _give(self, queries: Queries, top: np.ndarray, shares: np.ndarray, query_values: np.ndarray) -> np.ndarray:
        """``sum_i shares_i exp(s_ij - top_i) query_values_i`` for each point: tiles of points in parallel."""
        n_rows, threads = self._sizes()
        blocks, tiles = _slices(len(top), n_rows), self._tiles()

        def work(tile: slice) -> np.ndarray:
            received = np.zeros((tile.stop - tile.start, query_values.shape[1]))
            for rows in blocks:
                weights = _exp_below(self._scores(self._block(queries, rows), tile), top[rows])
                weights *= shares[rows, None]
                received += weights.T @ query_values[rows]
            return received

        received = np.empty((len(self._rows), query_values.shape[1]))
        with one_blas_thread():
            for tile, found in zip(tiles, in_order(_quiet(work), tiles, threads, NOTHING), strict=True):
                received[tile] = found
        return received

    # -- listed pairs --------------------------------------------------------------------------------------------

    def candidates(
        self, queries: Queries, k: int | None = None, floors: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield pairs that may be among the best k, or above the floors, with a margin for rounding.

        Above floors, tiles of points that cannot reach them are skipped.
        """
        n, m = len(self._rows), queries.count(len(self._rows))
        n_rows, threads = self._sizes()
        n_rows = int(min(n_rows, max(self._memory // (4 * 8 * n), 1)))
        if floors is not None and self._skips and may_skip(self._engine, self.points.rows, m):
            yield from self._listed_in_tiles(queries, floors, min(n_rows, KERNEL_BLOCK), threads)
            return

        def work(rows: slice) -> tuple[np.ndarray, np.ndarray]:
            scores, margins = self._scores_and_margins(self._block(queries, rows), self._tiles(), n)
            if floors is not None:
                least = floors[rows]
            else:  # at least k points certainly reach this score
                kth = n - min(n if k is None else k, n)
                least = np.partition(scores - margins, kth, axis=1)[:, kth]
            query, point = np.nonzero((scores + margins >= least[:, None]) & (scores > -np.inf))
            return query + rows.start, point

        with one_blas_thread():
            yield from in_order(_quiet(work), _slices(m, n_rows), threads, NOTHING)

    def _scores_and_margins(
        self, block: "_Block", tiles: list[slice], n: int, seen: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the scores of a block of queries, (R, n), and how far those of each point may be off, (n,).

        The points are all of them, or those at the positions `seen`, some at a time.
        """
        scores, margins = np.empty((len(block.rows), n)), np.empty(n)
        for part in tiles:
            tile = part if seen is None else seen[part]
            scores[:, part] = self._scores(block, tile)
            margins[part] = product_error(self._bound(block, tile), self._rows.shape[1] ** 2, np.float64)
        return scores, margins

    def _listed_in_tiles(
        self, queries: Queries, floors: np.ndarray, n_rows: int, threads: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the pairs that may be above the floors, of those tiles alone in which a score may reach one."""
        tiles = self._kernel_tiles
        order = tiles.order_of(self.coordinates(queries, "rows").astype(np.float64, copy=False))
        asked, levels = queries.take(order, len(self._rows)), floors[order]

        def work(rows: slice) -> tuple[np.ndarray, np.ndarray]:
            block, least = self._block(asked, rows), levels[rows]
            reached = tiles.reached(block.rows, float((least - _ROUNDING * (1.0 + np.abs(least))).min()))
            seen = tiles.positions(reached)
            scores, margins = self._scores_and_margins(block, _slices(len(seen), COVARIANCE_TILE), len(seen), seen)
            query, point = np.nonzero((scores + margins >= least[:, None]) & (scores > -np.inf))
            return order[query + rows.start], seen[point]

        with one_blas_thread():
            yield from in_order(_quiet(work), _slices(len(order), n_rows), threads, NOTHING)

    def pair_scores(self, queries: Queries) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """Return a function of listed pairs (query, point) that gives their scores, from differences."""
        mine = self.coordinates(queries, "rows").astype(np.float64, copy=False)
        d = mine.shape[1]

        def scores(query: np.ndarray, point: np.ndarray) -> np.ndarray:
            found = np.empty(len(query))
            with np.errstate(over="ignore"):
                for part in listed_parts(len(query), d * (d + 2)):
                    difference = mine[query[part]] - self._rows[point[part]]
                    images = (self._roots[point[part]] @ difference[:, :, None])[:, :, 0]
                    found[part] = self._log_norms[point[part]] - 0.5 * np.einsum("ij,ij->i", images, images)
            return found

        return scores


class _Block:
    """A block of queries: rows, the points left out, the features of their quadratic forms, and their largest norm."""

    def __init__(self, rows: np.ndarray, left_out: np.ndarray | None, first: np.ndarray, second: np.ndarray) -> None:
        self.rows, self.left_out = rows, left_out
        self.reach = float(np.linalg.norm(rows, axis=1).max(initial=0.0))
        with np.errstate(over="ignore"):  # if these overflow, differences are used
            self.features = np.hstack([rows, rows[:, first] * rows[:, second]])


def _exp_below(scores: np.ndarray, top: np.ndarray) -> np.ndarray:
    """``exp(scores - top)`` in place, at most 1; zeros where top is -inf."""
    scores -= np.where(top > -np.inf, top, 0.0)[:, None]
    return np.exp(np.minimum(scores, 0.0, out=scores), out=scores)


def _log(top: np.ndarray, total: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.where(total > 0, top + np.log(total), -np.inf)


def _quiet(work: Callable[[slice], _Result]) -> Callable[[slice], _Result]:
    """Return the same work without warnings of underflow: NumPy's error state belongs to a thread."""

    def quietly(item: slice) -> _Result:
        with np.errstate(under="ignore"):
            return work(item)

    return quietly


def _slices(n: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def _without_classes(asked: bool) -> None:
    if asked:
        raise NotImplementedError(
            "shares of classes need one metric that all points share, got a covariance per point."
        )
