"""Rows under one shared metric in the layout of the compiled kernels, and the softmax sums over them.

Few coordinates: whole reductions in one fused kernel (`cpu/row_kernels.py`).  Many: BLAS for the products q'z and W V, compiled
passes between them (`cpu/products.py`).  If products would lose digits (`accuracy.py`), the fused kernels use
differences.  Points against themselves are computed once for both rows of a pair (`cpu/once.py`).
"""

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from vicinal._engine import accuracy, tuning
from vicinal._engine.accuracy import FLOAT64, entropies_are_accurate
from vicinal._engine.contract import Placed, Space, Values, finite, to_images
from vicinal._engine.cpu import row_kernels as kernels
from vicinal._engine.cpu.once import HalfSweeps
from vicinal._engine.cpu.pairs import CompiledPairs, PointImages, nearest_of_sample, pack
from vicinal._engine.cpu.parts import KEPT_ROW_GROUP, ROW_GROUP, ROWS, TILE
from vicinal._engine.cpu.products import softmax_by_products
from vicinal._engine.queries import Queries
from vicinal._engine.reference.arrays import ArrayBackend, ArrayPlaced
from vicinal._engine.work.blocks import Blocks
from vicinal._engine.work.pool import one_blas_thread, summed
from vicinal._engine.work.sharing import Filled, made_by_all, remember

if TYPE_CHECKING:
    from vicinal._engine.cpu.placed import CpuBackend


def images_of_rows(
    rows: np.ndarray, metric: np.ndarray | None, order: np.ndarray | None, log_weights: np.ndarray | None = None
) -> PointImages:
    """Return the points under a metric, in tiles, in some order."""
    with one_blas_thread():
        return PointImages(pack(rows, metric, order), len(rows), log_weights)


class CompiledRows(Placed):
    """Rows under one shared metric, in the layout of the compiled kernels.

    Internally, points are in the order of their classes; arguments and results are in the order in which points were given.  The
    images are kept once, in tiles.
    """

    compiled = True

    def __init__(self, backend: "CpuBackend", metric: np.ndarray | None) -> None:
        self._backend, self.points = backend, backend.points
        self._memory, self._threads = backend.memory, backend.threads
        self.threads = backend.threads
        self.metric = None if metric is None else np.asarray(metric, dtype=np.float64)
        recipe = self.points.rows, self.metric, backend.order, backend.log_weights
        self._images = made_by_all(lambda: images_of_rows(*recipe), images_of_rows, *recipe)

    # -- the order of the points -----------------------------------------------------------------------------------

    @cached_property
    def _place(self) -> np.ndarray | None:
        """The internal position of each point; None if the order is that of the rows."""
        order = self._backend.order
        if order is None:
            return None
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        return place

    def _inside(self, of_points: np.ndarray) -> np.ndarray:
        order = self._backend.order
        return of_points if order is None else of_points[order]

    def _outside(self, of_points: np.ndarray) -> np.ndarray:
        return of_points if self._place is None else of_points[self._place]

    def _pairs(self, queries: Queries, points: PointImages | None = None) -> CompiledPairs:
        """Return the pairs of a call; queries that are all rows are in the inner order."""
        left_out = queries.left_out
        if left_out is not None and self._place is not None:
            left_out = np.where(left_out >= 0, self._place[left_out], -1)
        points = self._images if points is None else points
        if queries.are_all:
            return CompiledPairs(points, None, None if left_out is None else self._inside(left_out))
        if queries.rows is not None:
            return CompiledPairs(points, to_images(queries.rows, self.metric), left_out)
        return CompiledPairs(points, self._images.take(self._places(queries)), left_out)

    def _places(self, queries: Queries) -> np.ndarray:
        """Return the internal positions of queries that are some of the resident rows."""
        assert queries.positions is not None
        return queries.positions if self._place is None else self._place[queries.positions]

    def _of_queries(self, queries: Queries, answers: np.ndarray) -> np.ndarray:
        """Return results in the order in which the queries were given."""
        return self._outside(answers) if queries.are_all else answers

    def coordinates(self, queries: Queries, space: Space) -> np.ndarray:
        if space == "rows" or queries.rows is not None:
            return super().coordinates(queries, space)
        if queries.are_all:
            return self._outside(self._images.rows(slice(0, self._images.n)))
        return np.ascontiguousarray(self._images.take(self._places(queries)))

    @property
    def holds_float64_images(self) -> bool:
        return self._images.dtype == FLOAT64

    def float64_images(self, queries: Queries) -> np.ndarray:
        if self.holds_float64_images:
            return self.coordinates(queries, "images")
        return super().float64_images(queries)

    def _packed(self, values: Values | None) -> np.ndarray:
        """Return values of the points in tiles, in the inner order and the working precision; without a column of ones."""
        if isinstance(values, np.ndarray) and values.ndim == 3:  # they are in tiles already
            return values
        if values is None:
            return self._images.packed[:, :0]
        if isinstance(values, str):
            return self._images.packed if values == "images" else pack(self.points.rows, None, self._backend.order)
        return pack(values, None, self._backend.order, self._images.dtype)

    # -- the method ------------------------------------------------------------------------------------------------

    def _by_products(self, pairs: CompiledPairs, n_values: int) -> bool:
        """Return whether BLAS should do the products: many coordinates, and accurate enough."""
        least = tuning.PRODUCTS_FROM if n_values else tuning.PRODUCTS_FROM_WITHOUT_VALUES
        return pairs.accurate and pairs.k + n_values >= least[pairs.dtype]

    def _half(self, queries: Queries, packed_values: np.ndarray, n_values: int) -> HalfSweeps | None:
        """Return half sweeps with some values in tiles if the queries are the points, in their order; otherwise None.

        `n_values` counts the columns that a pair multiplies, for the choice between fused kernels and products.
        """
        points, own = self._images, queries.left_out
        if (
            not queries.are_all
            or points.n < tuning.ONCE_FROM_ROWS
            or not (own is None or np.array_equal(own, np.arange(points.n)))
        ):
            return None
        weights, level, largest = None, 0.0, float(max(packed_values.max(initial=1.0), -packed_values.min(initial=0.0)))
        if points.log_weights is not None:
            log_weights = self._backend.log_weights
            assert log_weights is not None
            # If a point has weight 0, the range is infinite.
            if not np.isfinite(log_weights).all() or np.ptp(log_weights) > accuracy.WIDEST_LOG_WEIGHTS[points.dtype]:
                return None
            # Their common level may be below the smallest number of the precision.
            weights, points, level = np.exp(log_weights - log_weights.max()), self._unweighted, float(log_weights.max())
        pairs = CompiledPairs(points, None, None if own is None else np.arange(points.n))
        if own is not None and points.n > 1:
            pairs.raise_scores(self._nearest_of_sample, largest)
        if pairs.mostly_underflows:
            return None
        return HalfSweeps(pairs, weights, self._threads, self._memory, n_values, level)

    @cached_property
    def _nearest_of_sample(self) -> np.ndarray:
        return nearest_of_sample(self._images if self._images.log_weights is None else self._unweighted)

    @cached_property
    def _unweighted(self) -> PointImages:
        images = PointImages(self._images.packed, self._images.n)
        remember(images, images_of_rows, self.points.rows, self.metric, self._backend.order)
        return images

    def _in_numpy(self) -> ArrayPlaced:
        """Return the same placement in NumPy, for the few rows that the kernels cannot handle.

        It is made for each call, because it maps all rows.
        """
        return ArrayPlaced(ArrayBackend(self.points, self._backend.engine), self.metric)

    # -- softmax sums ----------------------------------------------------------------------------------------------

    def _softmax(
        self, queries: Queries, values: Values | None, row_weights: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Log-sums, means of the values and, given row weights, what each point receives; in the outer order.

        Images and rows have a last column of ones, whose mean is 1, or 0 for a query without neighbours.
        """
        packed_values = self._packed(values)
        with_ones = isinstance(values, str)
        half = None
        if row_weights is None and self._images.n >= tuning.HALF_SUMS_FROM_ROWS:
            half = self._half(queries, packed_values, packed_values.shape[1] + with_ones)
        if half is None:
            if row_weights is not None and queries.are_all:
                row_weights = self._inside(row_weights)
            log_sums, means, received = self._row_by_row(self._pairs(queries), packed_values, row_weights, with_ones)
            received = None if received is None else self._outside(received)
            return self._of_queries(queries, log_sums), self._of_queries(queries, means), received
        with one_blas_thread():
            log_sums, means, underflowed = half.sums(packed_values)
        means = means if with_ones else means[:, :-1]
        if len(underflowed):
            again = self._pairs(self._at_places(queries, underflowed))
            log_sums[underflowed], means[underflowed], _ = self._row_by_row(again, packed_values, None, with_ones)
        return self._outside(log_sums), self._outside(means), None

    def _at_places(self, queries: Queries, places: np.ndarray) -> Queries:
        """Return some of the rows, given by their internal positions."""
        positions = places if self._backend.order is None else self._backend.order[places]
        return Queries(positions=positions, left_out=None if queries.left_out is None else positions)

    def _row_by_row(
        self, pairs: CompiledPairs, packed_values: np.ndarray, row_weights: np.ndarray | None, with_ones: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """`_softmax` in the internal order, for any queries."""
        n_values = packed_values.shape[1]
        means = np.empty((pairs.m, n_values + with_ones))
        if self._by_products(pairs, n_values):
            blocks = self._product_blocks(pairs, pairs.n if row_weights is not None else None)
            threads = self._threads_for(blocks)
            log_sums, received = softmax_by_products(pairs, packed_values, row_weights, blocks, threads, means)
        else:
            log_sums, received = self._softmax_fused(pairs, packed_values, row_weights, means)
        if with_ones:
            means[:, -1] = log_sums > -np.inf
        return log_sums, means, received

    def _softmax_fused(
        self, pairs: CompiledPairs, packed_values: np.ndarray, row_weights: np.ndarray | None, means: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None]:
        n_tiles = len(pairs.points.packed)
        log_sums = np.empty(pairs.m)
        # The exponentials of a group of rows are kept until the shares of the points can be computed.
        keep = row_weights is not None
        r = np.empty(0) if row_weights is None else np.ascontiguousarray(row_weights)
        # For rows that are all far from each other, the first attempt is skipped.
        apart = pairs.n == pairs.m >= tuning.HALF_SUMS_FROM_ROWS and np.array_equal(pairs.left_out, np.arange(pairs.n))
        careful = apart and pairs.points.log_weights is None and pairs.are_far(self._nearest_of_sample)

        def work(rows: slice) -> tuple[np.ndarray, ...]:
            columns = np.zeros((n_tiles if keep else 0, TILE), dtype=pairs.dtype)
            shape = (n_tiles, KEPT_ROW_GROUP, TILE) if keep else (1, ROWS, TILE)
            kept = np.empty(shape, dtype=pairs.dtype)
            queries, points, offsets, bounds, smallest, *others = pairs.scored(rows)
            kernels.softmax_rows(
                queries, points, offsets, bounds, np.inf if careful else smallest, *others, packed_values, r[rows],
                log_sums[rows], means[rows], columns, kept,
            )  # fmt: skip
            return (columns.astype(np.float64, copy=False).ravel(),)

        blocks = list(self._blocks(pairs, KEPT_ROW_GROUP if keep else ROW_GROUP))
        held = pairs.n * KEPT_ROW_GROUP * pairs.dtype.itemsize if keep else 1
        threads = int(min(self._threads, max(self._memory // held, 1)))
        found = summed(work, blocks, threads, Filled((log_sums, means), lambda rows: rows))
        received = np.zeros(pairs.n) if found is None else found[0]
        return pairs.log_sums(log_sums), None if row_weights is None else received[: pairs.n]

    def _received(
        self, queries: Queries, factors: np.ndarray, log_sums: np.ndarray, query_values: Values
    ) -> np.ndarray:
        """``sum_i f_i p_ij query_values_i`` of wide values, as sums of the transposed problem.

        With the queries as points of log-weight ``log f_i - log_sums_i``, what point j receives is the sum of its
        neighbours among them, ``exp(log_weights_j + log_sums'_j) mean'_j``.
        """
        n = self._images.n
        plain = (factors > 0) & (np.abs(log_sums) <= accuracy.LARGEST_LOG_SUM[self._images.dtype])
        if queries.left_out is not None and not queries.are_all:
            # A point leaves out at most one query.
            left = queries.left_out[queries.left_out >= 0]
            plain &= len(np.unique(left)) == len(left)
        some, others = np.flatnonzero(plain), np.flatnonzero(~plain & (factors != 0))
        if isinstance(query_values, str):
            own = self.coordinates(queries, query_values)
            values = np.hstack([own, np.ones((len(own), 1), dtype=own.dtype)])
        else:
            values = query_values
        received = np.zeros((n, values.shape[1]))
        if len(some):
            received += self._transposed(queries, some, np.log(factors[some]) - log_sums[some], values[some])
        if len(others):
            asked = queries.take(others, n)
            received += self._in_numpy().softmax_sums(asked, factors[others], None, values[others]).received
        return received

    def _transposed(
        self, queries: Queries, some: np.ndarray, log_weights: np.ndarray, values: np.ndarray
    ) -> np.ndarray:
        points = self._images
        mine = self.coordinates(queries, "images")[some]
        left_out = None
        if queries.left_out is not None:
            left_out = np.full(points.n, -1)
            seen = queries.left_out[some]
            left_out[seen[seen >= 0]] = np.flatnonzero(seen >= 0)
        swapped = CompiledPairs(
            PointImages(pack(mine), len(mine), log_weights),
            points,
            None if left_out is None else self._inside(left_out),
        )
        log_sums, means, _ = self._row_by_row(swapped, pack(values, dtype=points.dtype), None)
        if points.log_weights is not None:
            log_sums = log_sums + self._backend.log_weights
        with np.errstate(under="ignore"):
            means *= np.exp(log_sums)[:, None]
        return self._outside(means)

    def entropies(self, queries: Queries) -> np.ndarray | None:
        """``H_i = log_sums_i - sum_j p_ij s_ij``, from softmax means of the images and of half their squares.

        None if squares are so large that the entropy would be lost in rounding.
        """
        points, k = self._images, self._images.k
        asked = self._pairs(queries).half_squares
        largest = 2.0 * max(float(asked.max(initial=0.0)), 0.5 * points.largest)
        if not entropies_are_accurate(largest, points.dtype):
            return None
        values = np.empty((len(points.packed), k + 1, TILE), dtype=points.dtype)
        values[:, :k] = points.packed
        offsets = (
            points.half_squares if points.log_weights is None else points.half_squares - finite(points.log_weights)
        )
        values[:, k] = np.append(offsets, np.zeros(len(values) * TILE - points.n)).reshape(-1, TILE)
        m = queries.count(points.n)
        answer = np.empty(m)
        # The means take as much memory as the images of the queries in float64.
        at_once = m if 16 * m * (k + 1) <= self._memory else max(self._memory // (16 * (k + 1)), 1)
        for part in Blocks(m, max(at_once, 1)):
            some = queries if at_once == m else queries.take(np.arange(m)[part], points.n)
            log_sums, means, _ = self._softmax(some, values)
            answer[part] = log_sums + means[:, k]
            for few in Blocks(len(means), tuning.ALGEBRA_ROWS):
                mine = self.coordinates(some.take(np.arange(len(means))[few], points.n), "images").astype(np.float64)
                places = slice(part.start + few.start, part.start + few.stop)
                answer[places] -= (mine * means[few, :k]).sum(axis=1) - 0.5 * np.square(mine).sum(axis=1)
        return answer

    # -- blocks ----------------------------------------------------------------------------------------------------

    def _blocks(self, pairs: CompiledPairs, group: int = KEPT_ROW_GROUP) -> Blocks:
        """Return blocks of queries in whole groups: short enough to interrupt, enough for the threads."""
        rows = self._rows_of_block(pairs)
        return Blocks(pairs.m, max(rows // group, 1) * group)

    @staticmethod
    def _rows_of_block(pairs: CompiledPairs) -> int:
        """Queries in a block: few enough to be interrupted and to keep the threads busy, but enough to be worth a call of the kernel."""
        shared = max(-(-pairs.m // tuning.LEAST_BLOCKS), tuning.LEAST_BLOCK_PAIRS // pairs.n)
        return min(tuning.COMPILED_BLOCK_PAIRS // pairs.n, shared)

    def _product_blocks(self, pairs: CompiledPairs, kept_points: int | None) -> Blocks:
        """Return blocks of queries for matrix products such that what they keep fits into the memory."""
        size = pairs.dtype.itemsize * (TILE if kept_points is None else kept_points)
        rows = min(self._rows_of_block(pairs), self._memory // (4 * size))
        group = KEPT_ROW_GROUP
        return Blocks(pairs.m, max(min(rows, tuning.PRODUCT_ROWS) // group, 1) * group)

    def _threads_for(self, blocks: Blocks, bytes_of_result: int = 0) -> int:
        """Return the number of threads for which the data of all threads and the total fit into the memory."""
        held = max(blocks.rows * self._images.n * self._images.dtype.itemsize, bytes_of_result, 1)
        return int(min(self._threads, max(self._memory // held - 2, 1)))
