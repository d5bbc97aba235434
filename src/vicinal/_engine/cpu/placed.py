"""The compiled CPU backend: Numba kernels and BLAS tiles, on our own threads; its sums are in `cpu/rows.py`."""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from vicinal._engine import accuracy, tuning
from vicinal._engine.accuracy import scatter_is_accurate, score_error
from vicinal._engine.backends import placed_frames
from vicinal._engine.contract import LogSums, Placed, Points, Pull, Scatter, SoftmaxSums, Space, Squares, Values
from vicinal._engine.cpu import row_kernels as kernels
from vicinal._engine.cpu.pairs import CompiledPairs, unpack
from vicinal._engine.cpu.parts import KEPT_ROW_GROUP, ROWS, TILE
from vicinal._engine.cpu.products import signed_by_products
from vicinal._engine.cpu.pruned_placed import Orders, PrunedPlaced
from vicinal._engine.cpu.rows import CompiledRows
from vicinal._engine.families import Frames, Kernel
from vicinal._engine.neighbors import candidates_of_scores
from vicinal._engine.queries import Queries
from vicinal._engine.settings import Engine
from vicinal._engine.work.blocks import Blocks
from vicinal._engine.work.pool import available_threads, in_order, one_blas_thread
from vicinal._engine.work.sharing import NOTHING, Filled


class CpuBackend:
    """Rows in memory, and the order of their classes if there are classes.

    Parameters
    ----------
    points : Points
    engine : Engine
    """

    name: ClassVar[str] = "cpu"

    def __init__(self, points: Points, engine: Engine) -> None:
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
            return placed_frames(self, kernel)
        error = self.engine.error_in(self.points.rows.dtype)
        if error == 0.0 or len(self.points.rows) < tuning.PRUNED_FROM_POINTS:
            return CpuPlaced(self, kernel)
        return PrunedPlaced(self.points, kernel, error, self.threads, self.orders, lambda: CpuPlaced(self, kernel))


class CpuPlaced(CompiledRows):
    """Rows under one shared metric on the CPU: the reductions, from the sums of `cpu/rows.py`."""

    # -- the verbs -------------------------------------------------------------------------------------------------

    def log_sums(self, queries: Queries, by_class: bool = False) -> LogSums:
        if by_class:
            return self._class_sums(queries)
        return LogSums(self._softmax(queries, None)[0])

    def _class_sums(self, queries: Queries) -> LogSums:
        pairs = self._pairs(queries)
        n_classes = self.points.n_classes
        assert self.points.classes is not None
        if n_classes <= tuning.FEW_CLASSES:
            # Means of indicators: no slower for few classes, and one kernel less to compile.
            members = np.eye(n_classes, dtype=pairs.dtype)[self.points.classes]
            log_sums, shares, _ = self._row_by_row(pairs, self._packed(members), None)
            return self._class_log_sums(queries, log_sums, shares)
        bounds = np.searchsorted(self._inside(self.points.classes), np.arange(n_classes + 1))
        log_sums, shares = np.empty(pairs.m), np.empty((pairs.m, n_classes))

        def work(rows: slice) -> None:
            scores = np.empty((ROWS, TILE), dtype=pairs.dtype)
            kernels.class_rows(*pairs.scored(rows), bounds, log_sums[rows], shares[rows], scores)

        for _ in in_order(work, self._blocks(pairs), self._threads, Filled((log_sums, shares), lambda rows: rows)):
            pass
        return self._class_log_sums(queries, pairs.log_sums(log_sums), shares)

    def _class_log_sums(self, queries: Queries, log_sums: np.ndarray, shares: np.ndarray) -> LogSums:
        with np.errstate(divide="ignore"):
            log_shares = np.log(shares)
        return LogSums(self._of_queries(queries, log_sums), self._of_queries(queries, log_shares))

    def softmax_sums(
        self,
        queries: Queries,
        factors: np.ndarray | None,
        values: Values | None,
        query_values: Values | None = None,
        own_class: bool = False,
    ) -> SoftmaxSums:
        if (
            own_class
        ):  # only rows that the kernels cannot handle are computed here, because `class_pull` has separate kernels
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

    def candidates(self, queries: Queries, floors: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        pairs, order = self._pairs(queries), self._backend.order
        levels = self._inside(floors) if queries.are_all else floors
        weights = self.points.log_weights
        heaviest = 0.0 if weights is None else float(np.abs(weights[np.isfinite(weights)]).max(initial=0.0))

        def error(rows: slice, least: np.ndarray) -> np.ndarray:
            squares = 2.0 * pairs.half_squares[rows].astype(np.float64)
            return score_error(pairs.accurate, squares, self._images.largest, heaviest, pairs.k, pairs.dtype, least)

        def work(rows: slice) -> tuple[np.ndarray, np.ndarray]:
            return candidates_of_scores(pairs.scores(rows), rows, error, levels)

        n_rows = min(tuning.LISTED_BYTES // (8 * pairs.n), self._memory // (4 * 8 * pairs.n * self._threads))
        for query, point in in_order(work, Blocks(pairs.m, max(n_rows, 1)), self._threads, NOTHING):
            if order is not None:
                query, point = order[query] if queries.are_all else query, order[point]
            yield query, point

    # -- scatters and pulls ----------------------------------------------------------------------------------------

    def scatter(self, queries: Queries, row_weights: np.ndarray, space: Space) -> Scatter:
        packed_values = self._packed(space)
        n, k = self._images.n, self._images.k
        half = None
        if n * (k + 12) >= tuning.HALF_SCATTER_WORK:
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

    def squares(self, queries: Queries, row_weights: np.ndarray) -> Squares:
        if self._images.n < tuning.HALF_SUMS_FROM_ROWS:
            return super().squares(queries, row_weights)
        half = self._half(queries, self._images.packed[:, :0], 0)
        found = None if half is None else half.squares()
        if found is None:
            return super().squares(queries, row_weights)
        log_sums, total = self._outside(found.log_sums), float(self._inside(row_weights) @ found.squares)
        if len(found.underflowed):
            again = self._at_places(queries, found.underflowed)
            more = super().squares(again, row_weights[again.positions])
            log_sums[again.positions] = more.log_sums
            total += more.total
        return Squares(log_sums, total)

    def entropies(self, queries: Queries) -> np.ndarray | None:
        """``H_i = log_sums_i + sum_j p_ij |z_i - z_j|^2 / 2`` without log-weights, if each pair is visited once."""
        half = None if self._images.log_weights is not None else self._half(queries, self._images.packed[:, :0], 0)
        found = None if half is None else half.squares()
        if found is None or len(found.underflowed):
            return super().entropies(queries)
        return self._outside(found.log_sums + 0.5 * found.squares)

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
        underflowed = np.flatnonzero(log_agreement < np.log(accuracy.LEAST_SHARE[self._images.dtype]))
        if len(underflowed):
            log_agreement[underflowed] = self._in_numpy().class_agreement(queries.take(underflowed, self._images.n))[1]
        return log_sums, log_agreement

    def class_pull(self, queries: Queries, row_weights: np.ndarray, likelihood: bool) -> Pull:
        assert self.points.classes is not None
        unweighted = self._images.log_weights is None
        half = self._half(queries, self._images.packed, self._images.k) if unweighted else None
        if half is None:
            # Only a few trial steps of a fit have kernels so narrow that most rows underflow.
            few = unweighted and queries.are_all and self._images.n**2 <= tuning.FEW_PAIRS_OF_TRIALS
            by = self._in_numpy().class_pull if few else self._signed_pull
            return by(queries, row_weights, likelihood)
        least = accuracy.LEAST_SHARE[self._images.dtype]
        with one_blas_thread():
            found = half.class_pull(
                self._mates(self._inside(self.points.classes)), self._inside(row_weights), likelihood, least
            )
        log_sums, log_agreement = self._outside(found.log_sums), self._outside(found.log_agreement)
        pull = self._outside(found.pull)
        if len(found.underflowed):
            again = self._at_places(queries, found.underflowed)
            # A few rows take less time in NumPy than compiling a kernel for them.
            few = len(found.underflowed) * self._images.n <= tuning.FEW_PAIRS
            by = self._in_numpy().class_pull if few else self._signed_pull
            more = by(again, row_weights[again.positions], likelihood)
            log_sums[again.positions], log_agreement[again.positions] = more.log_sums, more.log_agreement
            pull += more.pull
        return Pull(log_sums, log_agreement, pull)

    def _mates(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return where the points of some classes begin and end, in the internal order."""
        assert self.points.classes is not None
        ordered = self._inside(self.points.classes)
        left, right = (np.searchsorted(ordered, codes, side=side).astype(np.int64) for side in ("left", "right"))
        return left, right

    def _signed_pull(self, queries: Queries, row_weights: np.ndarray, likelihood: bool) -> Pull:
        """`class_pull` row by row, for any queries."""
        pairs = self._pairs(queries)
        classes = self.points.classes
        assert classes is not None
        r = np.ascontiguousarray(row_weights)
        codes = classes if queries.positions is None else classes[queries.positions]
        if queries.are_all:
            codes, r = self._inside(codes), np.ascontiguousarray(self._inside(r))
        mates = self._mates(codes)
        least = accuracy.LEAST_SHARE[pairs.dtype]
        if self._by_products(pairs, 2 * pairs.k):
            blocks = self._product_blocks(pairs, pairs.n)
            threads = self._threads_for(blocks, 8 * pairs.n * (pairs.k + 1))
            found = signed_by_products(pairs, mates, r, likelihood, least, blocks, threads)
        else:
            found = self._signed_fused(pairs, mates, r, likelihood, least)
        log_sums, log_agreement, of_queries, gathered = found
        for part in Blocks(pairs.n, tuning.ALGEBRA_ROWS):
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
            kept = np.empty((n_tiles, KEPT_ROW_GROUP, TILE), dtype=pairs.dtype)
            kernels.signed_rows(
                *pairs.scored(rows), row_weights[rows], mates[0][rows], mates[1][rows], likelihood, least_agreement,
                log_sums[rows], log_agreement[rows], of_queries[rows], of_points, kept,
            )  # fmt: skip
            return of_points

        gathered = np.zeros((n_tiles, pairs.k + 1, TILE))
        threads = int(min(self._threads, max(self._memory // gathered.nbytes - 2, 1)))
        for of_points in in_order(work, self._blocks(pairs, KEPT_ROW_GROUP), threads):
            gathered += of_points
        return pairs.log_sums(log_sums), log_agreement, of_queries, unpack(gathered, slice(0, pairs.n))
