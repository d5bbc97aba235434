"""The compiled CPU backend: Numba kernels and BLAS tiles, on our own threads.

Few coordinates: whole reductions in one fused kernel (`_kernels.py`).  Many: BLAS for the products q'z and W V, compiled
passes between them (`_products.py`).  Where products would lose digits (`_accuracy.py`), the fused kernels take
differences.  Points against themselves are computed once for both rows of a pair (`_half.py`).
"""

from collections.abc import Iterator
from functools import cached_property
from typing import ClassVar

import numpy as np

from vicinal._engine import _kernels as kernels
from vicinal._engine._accuracy import entropies_are_accurate, scatter_is_accurate, score_error
from vicinal._engine._arrays import ArrayBackend, ArrayPlaced
from vicinal._engine._blocks import Blocks
from vicinal._engine._contract import (
    LogSums,
    Placed,
    Points,
    Pull,
    Queries,
    Scatter,
    SoftmaxSums,
    Space,
    Values,
    finite,
    to_images,
)
from vicinal._engine._families import Covariances, Frames, Kernel
from vicinal._engine._half import HalfSweeps
from vicinal._engine._kernels import TILE
from vicinal._engine._nearest import candidates_of_scores, search_is_faster, searched
from vicinal._engine._pairs import CompiledPairs, PointImages, pack, unpack
from vicinal._engine._pool import available_threads, in_order, one_blas_thread
from vicinal._engine._products import signed_by_products, softmax_by_products
from vicinal._engine._pruned_placed import Orders, PrunedPlaced
from vicinal._engine._settings import Engine
from vicinal._engine._tuning import (
    ALGEBRA_ROWS,
    COMPILED_BLOCK_PAIRS,
    FLOAT32,
    FLOAT64,
    HALF_SCATTER_FROM_COORDINATES,
    HALF_SCATTER_FROM_ROWS,
    HALF_SCATTER_FROM_ROWS_ALWAYS,
    HALF_SUMS_FROM_ROWS,
    KEPT_POINTS,
    LEAST_BLOCKS,
    LISTED_BYTES,
    PRODUCT_ROWS,
    PRODUCTS_FROM,
    PRODUCTS_FROM_WITHOUT_VALUES,
    PRUNED_FROM_POINTS,
)

# Below this agreement, exponentials of class mates are lost in the precision; such rows are done again in NumPy.
_LEAST_AGREEMENT = {FLOAT64: 1e-200, FLOAT32: 1e-20}
# Log-sums up to this size keep their digits in the scores of the transposed problem.
_LARGEST_LOG_SUM = {FLOAT64: 1e5, FLOAT32: 1e3}
# Log-weights within this range can multiply values instead of being added to scores.
_WIDEST_LOG_WEIGHTS = {FLOAT64: 200.0, FLOAT32: 20.0}


class CpuBackend:
    """Rows in memory, and the order of their classes where there are classes.

    Parameters
    ----------
    points : Points
    engine : Engine
    """

    name: ClassVar[str] = "cpu"

    def __init__(self, points: Points, engine: Engine):
        self.points, self.engine = points, engine
        self.memory, self.threads = engine.memory_bytes, available_threads(engine.threads)
        self.orders = Orders()
        self.order: np.ndarray | None = None
        self.log_weights = points.log_weights
        if points.classes is not None and (np.diff(points.classes) < 0).any():
            self.order = np.argsort(points.classes, kind="stable")
            self.log_weights = None if points.log_weights is None else points.log_weights[self.order]

    def at(self, kernel: Kernel) -> Placed:
        """Place the rows under a kernel."""
        if isinstance(kernel, Frames):
            from vicinal._engine._frames import PlacedFrames

            return PlacedFrames(self, kernel)
        if isinstance(kernel, Covariances):
            from vicinal._engine._covariances import PlacedCovariances

            return PlacedCovariances(self, kernel)
        error = self.engine.error_in(self.points.rows.dtype)
        if error == 0.0 or len(self.points.rows) < PRUNED_FROM_POINTS:
            return CpuPlaced(self, kernel)
        return PrunedPlaced(self.points, kernel, error, self.threads, self.orders, lambda: CpuPlaced(self, kernel))


class CpuPlaced(Placed):
    """Rows under one shared metric, as compiled kernels want them.

    Inside, points are in the order of their classes; what comes in and goes out is in the order they were given.  The
    images are kept once, in tiles.
    """

    def __init__(self, backend: CpuBackend, metric: np.ndarray | None):
        self._backend, self.points = backend, backend.points
        self._memory, self._threads = backend.memory, backend.threads
        self.metric = None if metric is None else np.asarray(metric, dtype=np.float64)
        with one_blas_thread():
            packed = pack(self.points.rows, self.metric, backend.order)
        self._images = PointImages(packed, len(self.points.rows), backend.log_weights)

    # -- the order of the points -----------------------------------------------------------------------------------

    @cached_property
    def _place(self) -> np.ndarray | None:
        """Where a point is, inside; None where the order is that of the rows."""
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
        """The pairs of a call; queries that are all rows are in the inner order."""
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
        """Where the queries are, inside, which are some of the resident rows."""
        assert queries.positions is not None
        return queries.positions if self._place is None else self._place[queries.positions]

    def _of_queries(self, queries: Queries, answers: np.ndarray) -> np.ndarray:
        """Answers for the queries, in the order they were asked."""
        return self._outside(answers) if queries.are_all else answers

    def coordinates(self, queries: Queries, space: Space) -> np.ndarray:
        if space == "rows" or queries.rows is not None:
            return super().coordinates(queries, space)
        if queries.are_all:
            return self._outside(self._images.rows(slice(0, self._images.n)))
        return np.ascontiguousarray(self._images.take(self._places(queries)))

    def float64_images(self, queries: Queries) -> np.ndarray:
        if self._images.dtype == FLOAT64:  # they are here already
            return self.coordinates(queries, "images")
        return super().float64_images(queries)

    def _packed(self, values: Values | None) -> np.ndarray:
        """Values of the points in tiles, in the inner order and the working precision; without a column of ones."""
        if isinstance(values, np.ndarray) and values.ndim == 3:  # they are in tiles already
            return values
        if values is None:
            return self._images.packed[:, :0]
        if isinstance(values, str):
            return self._images.packed if values == "images" else pack(self.points.rows, None, self._backend.order)
        return pack(values, None, self._backend.order, self._images.dtype)

    # -- which way -------------------------------------------------------------------------------------------------

    def _by_products(self, pairs: CompiledPairs, n_values: int) -> bool:
        """Whether BLAS should do the products: many coordinates, and accurate enough."""
        least = PRODUCTS_FROM if n_values else PRODUCTS_FROM_WITHOUT_VALUES
        return pairs.accurate and pairs.k + n_values >= least[pairs.dtype]

    def _half(self, queries: Queries, packed_values: np.ndarray, n_values: int) -> HalfSweeps | None:
        """Half sweeps with some values in tiles, where the queries are the points, pair for pair; None where they are not.

        `n_values` counts the columns that a pair multiplies, for the choice between fused kernels and products.
        """
        points, own = self._images, queries.left_out
        if not queries.are_all or not (own is None or np.array_equal(own, np.arange(points.n))):
            return None
        weights, largest = None, float(max(packed_values.max(initial=1.0), -packed_values.min(initial=0.0)))
        if points.log_weights is not None:
            log_weights = self._backend.log_weights
            assert log_weights is not None
            # Beside a point of weight 0 the range is infinite.
            if not np.isfinite(log_weights).all() or np.ptp(log_weights) > _WIDEST_LOG_WEIGHTS[points.dtype]:
                return None
            weights, points = np.exp(log_weights), self._unweighted
            largest *= float(weights.max())
        pairs = CompiledPairs(points, None, None if own is None else np.arange(points.n))
        pairs.raise_scores(largest)
        if pairs.mostly_underflows:
            return None
        return HalfSweeps(pairs, weights, self._threads, self._memory, n_values)

    @cached_property
    def _unweighted(self) -> PointImages:
        return PointImages(self._images.packed, self._images.n)

    def _in_numpy(self) -> ArrayPlaced:
        """The same placement in NumPy, for the few rows that kernels cannot do; made anew, because it maps all rows."""
        return ArrayPlaced(ArrayBackend(self.points, self._backend.engine), self.metric)

    # -- the verbs -------------------------------------------------------------------------------------------------

    def log_sums(self, queries: Queries, by_class: bool = False) -> LogSums:
        if by_class:
            return self._class_sums(queries)
        return LogSums(self._softmax(queries, None)[0])

    def _class_sums(self, queries: Queries) -> LogSums:
        pairs = self._pairs(queries)
        n_classes = self.points.n_classes
        assert self.points.classes is not None
        bounds = np.searchsorted(self._inside(self.points.classes), np.arange(n_classes + 1))
        log_sums, shares = np.empty(pairs.m), np.empty((pairs.m, n_classes))

        def work(rows: slice) -> None:
            scores = np.empty((kernels.ROWS, TILE), dtype=pairs.dtype)
            kernels.class_rows(*pairs.scored(rows), bounds, log_sums[rows], shares[rows], scores)

        for _ in in_order(work, self._blocks(pairs), self._threads):
            pass
        with np.errstate(divide="ignore"):
            log_shares = np.log(shares)
        return LogSums(self._of_queries(queries, pairs.log_sums(log_sums)), self._of_queries(queries, log_shares))

    def softmax_sums(
        self,
        queries: Queries,
        factors: np.ndarray | None,
        values: Values | None,
        query_values: Values | None = None,
        own_class: bool = False,
    ) -> SoftmaxSums:
        if own_class:  # only rows that kernels cannot do come here: `class_pull` has kernels of its own
            return self._in_numpy().softmax_sums(queries, factors, values, query_values, own_class)
        n = self._images.n
        f = np.ones(queries.count(n)) if factors is None else np.asarray(factors, dtype=np.float64)
        column = query_values[:, 0] if isinstance(query_values, np.ndarray) and query_values.shape[1] == 1 else None
        log_sums, gathered, received = self._softmax(queries, values, None if column is None else f * column)
        if factors is not None:
            gathered *= f[:, None]
        if query_values is None:
            return SoftmaxSums(log_sums, gathered, np.empty((n, 0)))
        if received is None:
            return SoftmaxSums(log_sums, gathered, self._received(queries, f, log_sums, query_values))
        return SoftmaxSums(log_sums, gathered, received[:, None])

    def candidates(
        self, queries: Queries, k: int | None = None, floors: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        with one_blas_thread():
            if k is not None and search_is_faster(self, queries, k):
                yield from searched(self, queries, k, self._threads, lambda some: self._by_scores(some, k, None))
            else:
                yield from self._by_scores(queries, k, floors)

    def _by_scores(
        self, queries: Queries, k: int | None, floors: np.ndarray | None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Candidates from the scores of all points."""
        pairs, order = self._pairs(queries), self._backend.order
        levels = None if floors is None or not queries.are_all else self._inside(floors)
        levels = floors if levels is None else levels
        weights = self.points.log_weights
        heaviest = 0.0 if weights is None else float(np.abs(weights[np.isfinite(weights)]).max(initial=0.0))

        def error(rows: slice, least: np.ndarray) -> np.ndarray:
            squares = 2.0 * pairs.half_squares[rows].astype(np.float64)
            return score_error(pairs.accurate, squares, self._images.largest, heaviest, pairs.k, pairs.dtype, least)

        def work(rows: slice) -> tuple[np.ndarray, np.ndarray]:
            return candidates_of_scores(pairs.scores(rows), rows, error, k, levels)

        n_rows = min(LISTED_BYTES // (8 * pairs.n), self._memory // (4 * 8 * pairs.n * self._threads))
        for query, point in in_order(work, Blocks(pairs.m, max(n_rows, 1)), self._threads):
            if order is not None:
                query, point = order[query] if queries.are_all else query, order[point]
            yield query, point

    # -- softmax sums ----------------------------------------------------------------------------------------------

    def _softmax(
        self, queries: Queries, values: Values | None, row_weights: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Log-sums, means of the values and, given row weights, what each point receives; in the outer order.

        Images and rows have a last column of ones, whose mean is 1, or 0 for a query that sees no point.
        """
        packed_values = self._packed(values)
        with_ones = isinstance(values, str)
        half = None
        if row_weights is None and self._images.n >= HALF_SUMS_FROM_ROWS:
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
        """Some of the rows, given by their inner places."""
        positions = places if self._backend.order is None else self._backend.order[places]
        return Queries(positions=positions, left_out=None if queries.left_out is None else positions)

    def _row_by_row(
        self, pairs: CompiledPairs, packed_values: np.ndarray, row_weights: np.ndarray | None, with_ones: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """`_softmax` in the inner order, whoever the queries are."""
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
        # The exponentials of a group of rows are kept until the points can have their shares, while they fit into the
        # cache; beyond, a second sweep makes them anew.
        keep = row_weights is not None and pairs.n < KEPT_POINTS
        r = np.empty(0) if row_weights is None else np.ascontiguousarray(row_weights)

        def work(rows: slice) -> np.ndarray:
            columns = np.zeros((n_tiles if keep else 0, TILE), dtype=pairs.dtype)
            shape = (n_tiles, kernels.KEPT_ROW_GROUP, TILE) if keep else (1, kernels.ROWS, TILE)
            kept = np.empty(shape, dtype=pairs.dtype)
            kernels.softmax_rows(
                *pairs.scored(rows), packed_values, r[rows], log_sums[rows], means[rows], columns, kept
            )
            return columns

        def receive(rows: slice) -> np.ndarray:
            columns = np.zeros((n_tiles, TILE), dtype=pairs.dtype)
            queries, points, offsets, _, _, by_products, left_out = pairs.scored(rows)
            kernels.received_of_rows(queries, points, offsets, by_products, left_out, log_sums[rows], r[rows], columns)
            return columns

        group = kernels.KEPT_ROW_GROUP if keep else kernels.ROW_GROUP
        received = np.zeros(n_tiles * TILE if row_weights is not None else 0)
        for columns in in_order(work, self._blocks(pairs, group), self._threads):
            if keep:
                received += columns.ravel()
        if row_weights is not None and not keep:
            for columns in in_order(receive, self._blocks(pairs, group), self._threads):
                received += columns.ravel()
        return pairs.log_sums(log_sums), None if row_weights is None else received[: pairs.n]

    def _received(
        self, queries: Queries, factors: np.ndarray, log_sums: np.ndarray, query_values: Values
    ) -> np.ndarray:
        """``sum_i f_i p_ij query_values_i`` of wide values, as sums of the transposed problem.

        With the queries as points of log-weight ``log f_i - log_sums_i``, what point j receives is the sum of its
        neighbours among them, ``exp(log_weights_j + log_sums'_j) mean'_j``.
        """
        n = self._images.n
        plain = (factors > 0) & (np.abs(log_sums) <= _LARGEST_LOG_SUM[self._images.dtype])
        if queries.left_out is not None and not queries.are_all:
            # A point leaves out one query at most.
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

        None where squares are so large that they would drown the entropy in rounding.
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
            for few in Blocks(len(means), ALGEBRA_ROWS):
                mine = self.coordinates(some.take(np.arange(len(means))[few], points.n), "images").astype(np.float64)
                places = slice(part.start + few.start, part.start + few.stop)
                answer[places] -= (mine * means[few, :k]).sum(axis=1) - 0.5 * np.square(mine).sum(axis=1)
        return answer

    # -- scatters and pulls ----------------------------------------------------------------------------------------

    def scatter(self, queries: Queries, row_weights: np.ndarray, space: Space) -> Scatter:
        packed_values = self._packed(space)
        n, k = self._images.n, self._images.k
        half = None
        if n >= HALF_SCATTER_FROM_ROWS_ALWAYS or (n >= HALF_SCATTER_FROM_ROWS and k >= HALF_SCATTER_FROM_COORDINATES):
            half = self._half(queries, packed_values, packed_values.shape[1])
        if half is None:
            return super().scatter(queries, row_weights, space)
        with one_blas_thread():
            found = half.scatter(packed_values, self._inside(row_weights))
        log_sums, scatter, size = found.log_sums, found.scatter, found.size
        again = self._at_places(queries, found.underflowed)
        if not scatter_is_accurate(scatter, size, packed_values.dtype):
            return super().scatter(queries, row_weights, space)
        log_sums = self._outside(log_sums)
        if len(found.underflowed):
            more = super().scatter(again, row_weights[again.positions], space)
            log_sums[again.positions] = more.log_sums
            scatter = scatter + more.scatter
        return Scatter(log_sums, scatter)

    def softmax_pull(self, queries: Queries, factors: np.ndarray, own_class: bool = False) -> np.ndarray:
        half = None if own_class else self._half(queries, self._images.packed, self._images.k)
        if half is None:
            return super().softmax_pull(queries, factors, own_class)
        with one_blas_thread():
            pull, underflowed = half.softmax_pull(self._inside(factors))
        pull = self._outside(pull)
        if len(underflowed):
            again = self._at_places(queries, underflowed)
            pull += super().softmax_pull(again, factors[again.positions])
        return pull

    def class_agreement(self, queries: Queries) -> tuple[np.ndarray, np.ndarray]:
        log_sums, log_agreement = super().class_agreement(queries)
        underflowed = np.flatnonzero(log_agreement < np.log(_LEAST_AGREEMENT[self._images.dtype]))
        if len(underflowed):
            log_agreement[underflowed] = self._in_numpy().class_agreement(queries.take(underflowed, self._images.n))[1]
        return log_sums, log_agreement

    def class_pull(self, queries: Queries, row_weights: np.ndarray, likelihood: bool) -> Pull:
        assert self.points.classes is not None
        unweighted = self._images.log_weights is None
        half = self._half(queries, self._images.packed, self._images.k) if unweighted else None
        if half is None:
            return self._signed_pull(queries, row_weights, likelihood)
        least = _LEAST_AGREEMENT[self._images.dtype]
        with one_blas_thread():
            found = half.class_pull(
                self._mates(self._inside(self.points.classes)), self._inside(row_weights), likelihood, least
            )
        log_sums, log_agreement = self._outside(found.log_sums), self._outside(found.log_agreement)
        pull = self._outside(found.pull)
        if len(found.underflowed):
            again = self._at_places(queries, found.underflowed)
            more = self._signed_pull(again, row_weights[again.positions], likelihood)
            log_sums[again.positions], log_agreement[again.positions] = more.log_sums, more.log_agreement
            pull += more.pull
        return Pull(log_sums, log_agreement, pull)

    def _mates(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the points of some classes begin and end, inside."""
        assert self.points.classes is not None
        ordered = self._inside(self.points.classes)
        left, right = (np.searchsorted(ordered, codes, side=side).astype(np.int64) for side in ("left", "right"))
        return left, right

    def _signed_pull(self, queries: Queries, row_weights: np.ndarray, likelihood: bool) -> Pull:
        """`class_pull` row by row, whoever the queries are."""
        pairs = self._pairs(queries)
        classes = self.points.classes
        assert classes is not None
        r = np.ascontiguousarray(row_weights)
        codes = classes if queries.positions is None else classes[queries.positions]
        if queries.are_all:
            codes, r = self._inside(codes), np.ascontiguousarray(self._inside(r))
        mates = self._mates(codes)
        least = _LEAST_AGREEMENT[pairs.dtype]
        if self._by_products(pairs, 2 * pairs.k):
            blocks = self._product_blocks(pairs, pairs.n)
            threads = self._threads_for(blocks, 8 * pairs.n * (pairs.k + 1))
            found = signed_by_products(pairs, mates, r, likelihood, least, blocks, threads)
        else:
            found = self._signed_fused(pairs, mates, r, likelihood, least)
        log_sums, log_agreement, of_queries, gathered = found
        for part in Blocks(pairs.n, TILE):
            gathered[part, :-1] = gathered[part, -1:] * self._images.rows(part) - gathered[part, :-1]
        pull = gathered[:, :-1]
        if queries.are_all:
            pull += of_queries
        else:
            pull[self._places(queries)] += of_queries
        pull = self._outside(pull)
        log_sums, log_agreement = self._of_queries(queries, log_sums), self._of_queries(queries, log_agreement)
        underflowed = np.flatnonzero(np.isnan(log_agreement))
        if len(underflowed):
            again = self._in_numpy().class_pull(
                queries.take(underflowed, pairs.n), row_weights[underflowed], likelihood
            )
            log_agreement[underflowed] = again.log_agreement
            pull += again.pull
        return Pull(log_sums, log_agreement, pull)

    def _signed_fused(
        self,
        pairs: CompiledPairs,
        mates: tuple[np.ndarray, np.ndarray],
        row_weights: np.ndarray,
        likelihood: bool,
        least_agreement: float,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        n_tiles = len(pairs.points.packed)
        log_sums, log_agreement = np.empty(pairs.m), np.empty(pairs.m)
        of_queries = np.empty((pairs.m, pairs.k))

        def work(rows: slice) -> np.ndarray:
            of_points = np.zeros((n_tiles, pairs.k + 1, TILE), dtype=pairs.dtype)
            kept = np.empty((n_tiles, kernels.KEPT_ROW_GROUP, TILE), dtype=pairs.dtype)
            kernels.signed_rows(
                *pairs.scored(rows), row_weights[rows], mates[0][rows], mates[1][rows], likelihood, least_agreement,
                log_sums[rows], log_agreement[rows], of_queries[rows], of_points, kept,
            )  # fmt: skip
            return of_points

        gathered = np.zeros((n_tiles, pairs.k + 1, TILE))
        threads = int(min(self._threads, max(self._memory // gathered.nbytes - 2, 1)))
        for of_points in in_order(work, self._blocks(pairs, kernels.KEPT_ROW_GROUP), threads):
            gathered += of_points
        return pairs.log_sums(log_sums), log_agreement, of_queries, unpack(gathered, slice(0, pairs.n))

    # -- blocks ----------------------------------------------------------------------------------------------------

    def _blocks(self, pairs: CompiledPairs, group: int = kernels.KEPT_ROW_GROUP) -> Blocks:
        """Blocks of queries in whole groups: short enough to interrupt, enough for the threads."""
        rows = min(COMPILED_BLOCK_PAIRS // pairs.n, -(-pairs.m // LEAST_BLOCKS))
        return Blocks(pairs.m, max(rows // group, 1) * group)

    def _product_blocks(self, pairs: CompiledPairs, kept_points: int | None) -> Blocks:
        """Blocks of queries for matrix products, within the memory for what they keep."""
        size = pairs.dtype.itemsize * (TILE if kept_points is None else kept_points)
        rows = min(COMPILED_BLOCK_PAIRS // pairs.n, -(-pairs.m // LEAST_BLOCKS), self._memory // (4 * size))
        group = kernels.KEPT_ROW_GROUP
        return Blocks(pairs.m, max(min(rows, PRODUCT_ROWS) // group, 1) * group)

    def _threads_for(self, blocks: Blocks, bytes_of_result: int = 0) -> int:
        """Threads such that what they hold, and the total, stay within the memory."""
        held = max(blocks.rows * self._images.n * self._images.dtype.itemsize, bytes_of_result, 1)
        return int(min(self._threads, max(self._memory // held - 2, 1)))
