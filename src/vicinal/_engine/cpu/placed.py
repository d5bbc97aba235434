"""The compiled CPU backend: Numba kernels and BLAS tiles, on our own threads.

A plan decides which pairs are visited.  If it lists those that can matter (`cpu/gate.py`), `cpu/listed.py` computes the sums; otherwise all pairs
are visited, as follows.  Few coordinates: whole reductions in one fused kernel.  Many: BLAS for the products q'z and W V (`cpu/sweeps.py`).  If products would lose
digits (`accuracy.py`), the fused kernels use differences.  Points against themselves are computed once for both rows of a pair
(`cpu/once.py`), all other queries row by row (`cpu/rows.py`).
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from vicinal._engine import accuracy, tuning
from vicinal._engine.accuracy import FLOAT64, scatter_is_accurate, score_error
from vicinal._engine.backends import placed_frames
from vicinal._engine.contract import (
    LogSums,
    Placed,
    Points,
    Pull,
    SoftmaxSums,
    Space,
    Values,
    finite,
    to_images,
)
from vicinal._engine.cpu import sweep_kernels as kernels
from vicinal._engine.cpu.floors import pairs_above
from vicinal._engine.cpu.gate import Gate, Orders, Work
from vicinal._engine.cpu.listed import Listed, Sums
from vicinal._engine.cpu.once import Once
from vicinal._engine.cpu.pairs import CompiledPairs, PointImages, pack
from vicinal._engine.cpu.parts import TILE
from vicinal._engine.cpu.rows import Rows, RowSums
from vicinal._engine.cpu.sweeps import Mates, Terms
from vicinal._engine.families import Frames, Kernel
from vicinal._engine.neighbors import candidates_of_scores
from vicinal._engine.queries import Queries
from vicinal._engine.reference.arrays import ArrayBackend, ArrayPlaced
from vicinal._engine.settings import Engine
from vicinal._engine.work.blocks import Blocks
from vicinal._engine.work.pool import available_threads, in_order, one_blas_thread
from vicinal._engine.work.sharing import NOTHING, made_by_all, remember

# A sweep may spend 1.03 times its budget, and the shares of classes rest on two sweeps.
_BUDGETS = 2.06
_CLASSES = 64  # classes whose shares are computed in one sweep


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
        skips = len(self.points.rows) >= tuning.PRUNED_FROM_POINTS
        return CpuPlaced(self, kernel, self.engine.error_in(self.points.rows.dtype) if skips else 0.0)


def images_of_rows(
    rows: np.ndarray, metric: np.ndarray | None, order: np.ndarray | None, log_weights: np.ndarray | None = None
) -> PointImages:
    """Return the points under a metric, in tiles, in some order."""
    with one_blas_thread():
        return PointImages(pack(rows, metric, order), len(rows), log_weights)


class CpuPlaced(Placed):
    """Rows under one shared metric on the CPU.

    Internally, points are in the order of their classes; arguments and results are in the order in which points were given.  The
    images are kept once, in tiles.

    Parameters
    ----------
    backend : CpuBackend
    metric : array of shape (k, D) or (D,), or None
    error : float
        The largest relative error of a sum that skipped pairs may cause; 0 if every pair is visited.
    """

    compiled = True
    _skips_for_few = False  # whether pairs are skipped however few the queries

    def __init__(self, backend: CpuBackend, metric: np.ndarray | None, error: float = 0.0) -> None:
        self._backend, self.points = backend, backend.points
        self._memory, self._threads = backend.memory, backend.threads
        self.threads = backend.threads
        self.metric = None if metric is None else np.asarray(metric, dtype=np.float64)
        self._error = error / _BUDGETS
        self._gate: Gate | None = None
        if error > 0.0:
            self._gate = Gate(self.points, self.metric, self.n_coordinates, self._error, self.threads, backend.orders)
        else:  # the images are needed in any case
            self._images  # noqa: B018

    @cached_property
    def _images(self) -> PointImages:
        recipe = self.points.rows, self.metric, self._backend.order, self._backend.log_weights
        return made_by_all(lambda: images_of_rows(*recipe), images_of_rows, *recipe)

    # -- the pairs that matter -------------------------------------------------------------------------------------

    @property
    def expected_share(self) -> float:  # type: ignore[override]
        return 1.0 if self._gate is None else self._gate.expected_share

    @property
    def _every_pair(self) -> "CpuPlaced":
        """The same rows, of which every pair is visited; made for each call, because it packs all images."""
        return self if self._gate is None else self._with(_gate=None, _error=0.0)

    def _with(self, **changes: Any) -> "CpuPlaced":
        other = CpuPlaced.__new__(CpuPlaced)
        other.__dict__.update(self.__dict__, **changes)
        return other

    @one_blas_thread()
    def _listed(
        self, queries: Queries, work: Work, *, power: float = 0.0, once: bool = True, own_class: bool = False,
        far_values: np.ndarray | None = None,
    ) -> Listed | None:  # fmt: skip
        """Return the pairs that matter to some queries, each once if that is possible and wanted; None if all pairs are to be visited."""
        count = queries.count(len(self.points.rows))
        if self._gate is None or count == 0 or (count < tuning.PRUNED_FROM_QUERIES and not self._skips_for_few):
            return None
        tiles = self._gate.tiles(work, queries.are_all)
        if tiles is None:
            return None
        tiles, left_out = self._gate.tiles_by_class if own_class else tiles, queries.left_out
        if queries.rows is not None:
            once, asked = False, tiles.new_rows(self._gate.mapped(queries.rows), left_out, self.threads)
        elif queries.positions is not None:
            once, asked = False, tiles.some_rows(queries.positions, left_out, self.threads)
        else:
            once, asked = once and self._each_leaves_itself_out(left_out), tiles.all_rows(left_out)
        log_weights = self.points.log_weights
        once = once and Listed.can_be_once(log_weights, tiles.dtype)
        return Listed(
            tiles, asked, self._error, self.threads, power=power, once=once, log_weights=log_weights, far_values=far_values,
        )  # fmt: skip

    def _each_leaves_itself_out(self, left_out: np.ndarray | None) -> bool:
        return left_out is None or np.array_equal(left_out, np.arange(len(self.points.rows)))

    def _rest(self, listed: Listed, sums: Sums, queries: Queries) -> "tuple[np.ndarray, Queries, CpuPlaced]":
        """Return which queries must be computed in another way, the queries themselves, and the placement that does it."""
        again = np.sort(listed.queries.tiles.order[sums.again])
        # Rows that the common shift of all rows does not suit may have shifts of their own, and be few.
        placed = (self._with(_skips_for_few=True) if listed.once else self._every_pair) if len(again) else self
        return again, queries.take(again, len(self.points.rows)), placed

    def _log_sums_of(self, listed: Listed, sums: Sums, queries: Queries) -> np.ndarray:
        """Return the log-sums of a sweep in the order of the queries, and those of the queries that must be computed in another way."""
        self.points.certificates.add(sums.certificate)
        log_sums = listed.queries.given(sums.log_sums)
        again, those, placed = self._rest(listed, sums, queries)
        if len(again):
            log_sums[again] = placed.log_sums(those).log_sums
        return log_sums

    def _listed_log_shares(self, queries: Queries, log_sums: np.ndarray) -> np.ndarray:
        """Return the log-shares of classes from a sweep per class, so that each sum is certified relative to itself."""
        assert self.points.classes is not None
        assert self._gate is not None
        tiles, codes = self._gate.tiles_by_class, self.points.classes
        images = self._gate.mapped(self.coordinates(queries, "rows"))
        log_shares = np.full((len(images), self.points.n_classes), -np.inf)
        imprecise = self._is_imprecise(log_sums)
        for group, c in enumerate(np.unique(codes)):
            asked = tiles.new_rows(images, queries.left_out, self.threads, group)
            sums = Listed(tiles, asked, self._error, self.threads).sums()
            self.points.certificates.add(2.0 * sums.certificate)  # a share is the quotient of two sums
            of_class = asked.given(sums.log_sums)
            with np.errstate(invalid="ignore"):
                log_shares[:, c] = np.where(of_class > -np.inf, np.minimum(of_class - log_sums, 0.0), -np.inf)
            imprecise[asked.tiles.order[sums.again]] = True
        some = np.flatnonzero(imprecise)
        if len(some):
            log_shares[some] = self._every_pair.log_sums(queries.take(some, len(codes)), by_class=True).log_shares
        return log_shares

    def _is_imprecise(self, log_sums: np.ndarray) -> np.ndarray:
        """Return which log-sums are so large that their differences have too few digits."""
        largest: float = accuracy.LARGEST_LOG_SUM_OF_SWEEPS[self.points.rows.dtype]
        return np.isfinite(log_sums) & (np.abs(log_sums) > largest)

    def _listed_agreement(
        self, queries: Queries, power: float
    ) -> tuple[tuple[Listed, Sums], tuple[Listed, Sums], np.ndarray, np.ndarray] | None:
        """Return the sums over all points and over class mates, the log-sums and the log-agreement; None if all pairs are visited.

        Both sums are from separate sweeps, so that the sum of the class mates is certified relative to itself.
        """
        work: Work = "values" if power else "sums"
        every = self._listed(queries, work, power=power)
        mates = self._listed(queries, work, power=power, own_class=True)
        if every is None or mates is None:
            return None
        of_all, of_mates = every.sums(), mates.sums()
        log_sums, matched = self._log_sums_of(every, of_all, queries), mates.queries.given(of_mates.log_sums)
        self.points.certificates.add(of_all.certificate + of_mates.certificate)
        with np.errstate(invalid="ignore"):
            log_agreement = np.where(matched > -np.inf, np.minimum(matched - log_sums, 0.0), -np.inf)
        imprecise = self._is_imprecise(log_sums)
        imprecise[mates.queries.tiles.order[of_mates.again]] = True
        some = np.flatnonzero(imprecise)
        if len(some):
            taken = queries.take(some, len(self.points.rows))
            log_agreement[some] = self._every_pair.class_agreement(taken)[1]
        return (every, of_all), (mates, of_mates), log_sums, log_agreement

    def _listed_pull(
        self, listed: Listed, sums: Sums, queries: Queries, factors: np.ndarray, own_class: bool = False
    ) -> np.ndarray:
        """Return the pull of softmax weights over the pairs of a sweep, and those of the queries that must be computed in another way."""
        pull = listed.pull(sums, listed.softmax_factors(sums, factors), queries.positions)
        again, those, placed = self._rest(listed, sums, queries)
        if len(again):
            pull += placed.softmax_pull(those, factors[again], own_class)
        return pull

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

    def coordinates(self, queries: Queries, space: Space) -> np.ndarray:
        if space == "rows" or queries.rows is not None or self._gate is not None:
            return super().coordinates(queries, space)
        if queries.are_all:
            return self._outside(self._images.rows(slice(0, self._images.n)))
        return np.ascontiguousarray(self._images.take(self._places(queries)))

    @property
    def holds_float64_images(self) -> bool:
        return self._gate is None and self._images.dtype == FLOAT64

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

    # -- how sums are computed -------------------------------------------------------------------------------------

    def _once(self, queries: Queries, *packed_values: np.ndarray) -> Once | None:
        """Return sweeps over each pair once, with some values in tiles if the queries are the points, in their order; otherwise None.

        The first values decide between fused kernels and products.
        """
        points, own = self._images, queries.left_out
        if (
            not queries.are_all
            or points.n < tuning.ONCE_FROM_ROWS
            or not (own is None or np.array_equal(own, np.arange(points.n)))
        ):
            return None
        weights, level = None, 0.0
        largest = max(float(max(some.max(initial=1.0), -some.min(initial=0.0))) for some in packed_values)
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
            pairs.raise_scores(largest)
            if pairs.mostly_underflow():
                return None
        return Once(pairs, weights, self._threads, self._memory, packed_values[0].shape[1], level)

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

    def _sums(
        self, queries: Queries, packed_values: np.ndarray, received: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Log-sums, means of values in tiles and, given values of the queries (m, u), what each point receives of them."""
        if received is None and self._images.n >= tuning.HALF_SUMS_FROM_ROWS:
            once = self._once(queries, packed_values)
            if once is not None:
                with one_blas_thread():
                    found = once.means(packed_values)
                log_sums, means = self._outside(found.log_sums), self._outside(found.means)
                if len(found.underflowed):
                    again = self._at_places(queries, found.underflowed)
                    log_sums[again.positions], means[again.positions], _ = self._sums(again, packed_values)
                return log_sums, means, np.empty((self._images.n, 0))
        width = packed_values.shape[1]
        mine = self._inside(received) if queries.are_all and received is not None else received
        rows = self._rows(queries, width + (0 if mine is None else mine.shape[1]))
        sums = self._of_queries(queries, rows.sums(Terms(kernels.means, width + 1, packed_values), received=mine))
        return sums.log_sums, sums.means, self._outside(sums.received)

    def _rows(self, queries: Queries, n_values: int = 0) -> Rows:
        return Rows(self._pairs(queries), self._threads, self._memory, n_values)

    def _of_queries(self, queries: Queries, sums: RowSums) -> RowSums:
        """Return sums in the order in which the queries were given."""
        if not queries.are_all:
            return sums
        return sums._replace(log_sums=self._outside(sums.log_sums), means=self._outside(sums.means))

    def _at_places(self, queries: Queries, places: np.ndarray) -> Queries:
        """Return some of the rows, given by their internal positions."""
        positions = places if self._backend.order is None else self._backend.order[places]
        return Queries(positions=positions, left_out=None if queries.left_out is None else positions)

    # -- the verbs -------------------------------------------------------------------------------------------------

    def log_sums(self, queries: Queries, by_class: bool = False) -> LogSums:
        listed = self._listed(queries, "sums")
        if listed is not None:
            log_sums = self._log_sums_of(listed, listed.sums(), queries)
            return LogSums(log_sums, self._listed_log_shares(queries, log_sums) if by_class else None)
        if not by_class:
            return LogSums(self._sums(queries, self._packed(None))[0])
        assert self.points.classes is not None
        n_classes = self.points.n_classes
        starts = np.searchsorted(self._inside(self.points.classes), np.arange(n_classes + 1)).astype(np.int64)
        terms = Terms(kernels.classes, n_classes + 1)
        found = self._of_queries(queries, self._rows(queries).sums(terms, mates=(starts, starts)))
        with np.errstate(divide="ignore"):
            return LogSums(found.log_sums, np.log(found.means))

    def softmax_sums(
        self,
        queries: Queries,
        factors: np.ndarray | None,
        values: Values | None,
        query_values: Values | None = None,
        own_class: bool = False,
    ) -> SoftmaxSums:
        by_images = isinstance(values, str) and values == "images"
        listed = self._listed(
            queries, "values", power=float(by_images or isinstance(query_values, str)), once=query_values is None,
            own_class=own_class, far_values=values if isinstance(values, np.ndarray) else None,
        )  # fmt: skip
        if listed is not None:
            return self._listed_means(listed, queries, factors, values, query_values, own_class)
        if own_class:  # only for rows whose class mates are too far for the kernels of `class_pull`
            return self._in_numpy().softmax_sums(queries, factors, values, query_values, own_class)
        f = None if factors is None else np.asarray(factors, dtype=np.float64)[:, None]
        mine = query_values
        if isinstance(mine, str):
            images = self.coordinates(queries, mine)
            mine = np.hstack([images, np.ones((len(images), 1), dtype=images.dtype)])
        mine = mine if mine is None or f is None else f * mine
        log_sums, gathered, received = self._sums(queries, self._packed(values), mine)
        if isinstance(values, str):
            gathered = np.hstack([gathered, log_sums[:, None] > -np.inf])
        return SoftmaxSums(log_sums, gathered if f is None else f * gathered, received)

    def _listed_means(
        self, listed: Listed, queries: Queries, factors: np.ndarray | None, values: Values | None,
        query_values: Values | None, own_class: bool,
    ) -> SoftmaxSums:  # fmt: skip
        """`softmax_sums` over the pairs that matter."""
        by_images = isinstance(values, str) and values == "images"
        sums = listed.sums(None if by_images else self._given(values, Queries()), shifts_of_images=by_images)
        self.points.certificates.add(sums.certificate)
        log_sums, (m, v) = listed.queries.given(sums.log_sums), sums.means.shape
        gathered = np.empty((m, v + by_images))
        gathered[listed.queries.tiles.order, :v] = sums.means
        if by_images:
            gathered[:, v] = log_sums > -np.inf
            for part in Blocks(m, tuning.ALGEBRA_ROWS):
                some = queries.take(np.arange(part.start, part.stop), len(self.points.rows))
                gathered[part, :v] += gathered[part, v:] * self.coordinates(some, "images")
        f = np.ones(len(log_sums)) if factors is None else factors
        mine, received = self._given(query_values, queries), np.empty((len(self.points.rows), 0))
        if mine is not None:
            received = listed.received(sums, listed.softmax_factors(sums, f), mine)
        found = SoftmaxSums(log_sums, gathered if factors is None else f[:, None] * gathered, received)
        again, those, placed = self._rest(listed, sums, queries)
        if len(again):
            given = query_values if mine is None or isinstance(query_values, str) else mine[again]
            more = placed.softmax_sums(those, None if factors is None else f[again], values, given, own_class)
            found.log_sums[again], found.gathered[again] = more.log_sums, more.gathered
            found = found._replace(received=found.received + more.received)
        return found

    def _given(self, values: Values | None, queries: Queries) -> np.ndarray | None:
        """Return values as an array; rows and images with their column of ones."""
        if not isinstance(values, str):
            return values
        rows = self.coordinates(queries, values)
        return np.hstack([rows, np.ones((len(rows), 1), dtype=rows.dtype)])

    def class_shares(self, queries: Queries) -> np.ndarray:
        listed = self._listed(queries, "values")
        if listed is None:
            return super().class_shares(queries)
        codes, parts = self.points.classes, []
        assert codes is not None
        for first in range(0, self.points.n_classes, _CLASSES):
            columns = np.arange(first, min(first + _CLASSES, self.points.n_classes))
            sums = listed.sums((codes[:, None] == columns).astype(listed.points.dtype))
            parts.append(listed.queries.given(sums.means))
        self.points.certificates.add(sums.certificate)
        shares = np.hstack(parts)
        again, those, placed = self._rest(listed, sums, queries)
        if len(again):
            shares[again] = placed.class_shares(those)
        return shares

    def squares(self, queries: Queries) -> tuple[np.ndarray, np.ndarray]:
        listed = self._listed(queries, "sums")
        if listed is not None:
            return self._listed_squares(listed, queries)
        once = None
        if self._images.n >= tuning.HALF_SUMS_FROM_ROWS:
            once = self._once(queries, self._packed(None))
        if once is None:
            return self._squares_of_rows(queries)
        with one_blas_thread():
            found = once.squares()
        log_sums, squares = self._outside(found.log_sums), self._outside(found.means[:, 0])
        if len(found.underflowed):
            again = self._at_places(queries, found.underflowed)
            log_sums[again.positions], squares[again.positions] = self._squares_of_rows(again)
        return log_sums, squares

    def _listed_squares(self, listed: Listed, queries: Queries) -> tuple[np.ndarray, np.ndarray]:
        sums = listed.sums(squares=True)
        self.points.certificates.add(sums.certificate)
        log_sums, squares = listed.queries.given(sums.log_sums), listed.queries.given(sums.means[:, 0])
        again, those, placed = self._rest(listed, sums, queries)
        if len(again):
            log_sums[again], squares[again] = placed.squares(those)
        return log_sums, squares

    def _squares_of_rows(self, queries: Queries) -> tuple[np.ndarray, np.ndarray]:
        """``sum_j p_ij |z_i - z_j|^2 = 2 sum_j p_ij (log_weights_j - log p_ij - log_sums_i)``."""
        weights, n_tiles = self.points.log_weights, len(self._images.packed)
        values = self._packed(None if weights is None else finite(weights)[:, None])
        terms = Terms(kernels.logs, values.shape[1] + 2, values, np.ones((n_tiles, TILE), dtype=self._images.dtype))
        log_sums, means, _ = self._of_queries(queries, self._rows(queries).sums(terms))
        with np.errstate(invalid="ignore"):
            squares = 2.0 * (means[:, :-1].sum(axis=1) - means[:, -1] - log_sums)
        return log_sums, np.where(log_sums > -np.inf, np.maximum(squares, 0.0), 0.0)

    def candidates(self, queries: Queries, floors: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        listed = self._listed(queries, "sums", once=False)
        if listed is not None:
            yield from pairs_above(listed.points, listed.queries, self.points.log_weights, floors, self.threads)
            return
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

    def _scatter_by_sums(
        self, queries: Queries, row_weights: np.ndarray, space: Space, values: np.ndarray | None = None, n_first: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
        given = queries, row_weights, space, values, n_first
        listed = self._listed(queries, "scatter" if queries.are_all else "values", power=2.0, far_values=values)
        if listed is not None:
            return self._listed_scatter(listed, *given)
        packed_values, means_of = self._packed(space), self._packed(values)
        if n_first is not None:
            packed_values = np.ascontiguousarray(packed_values[:, :n_first])
        n, k = self._images.n, self._images.k
        once = None
        if n * (k + 12) >= tuning.HALF_SCATTER_WORK:
            once = self._once(queries, packed_values, means_of)
        if once is None:
            return super()._scatter_by_sums(*given)
        with one_blas_thread():
            found = once.scatter(packed_values, self._inside(row_weights), means_of)
        if not scatter_is_accurate(found.scatter, found.size, packed_values.dtype):
            return super()._scatter_by_sums(*given)
        log_sums, scatter, means = self._outside(found.log_sums), found.scatter, self._outside(found.means)
        if len(found.underflowed):
            again = self._at_places(queries, found.underflowed)
            of_rows, more, of_values = super()._scatter_by_sums(again, row_weights[again.positions], *given[2:])
            log_sums[again.positions], means[again.positions], scatter = of_rows, of_values, scatter + more
        return log_sums, scatter, means

    def _listed_scatter(
        self, listed: Listed, queries: Queries, row_weights: np.ndarray, space: Space, values: np.ndarray | None, n_first: int | None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
        """`_scatter_by_sums` over the pairs that matter, or over all of them if that would lose digits."""
        rows = None
        if space == "rows":
            rows = self.coordinates(Queries(), "rows"), self.coordinates(queries, "rows")
        sums = listed.sums(values)
        scatter, size = listed.scatter(sums, listed.softmax_factors(sums, row_weights), rows, n_first)
        if not scatter_is_accurate(scatter, size, listed.points.dtype):
            return self._every_pair._scatter_by_sums(queries, row_weights, space, values, n_first)
        self.points.certificates.add(sums.certificate)
        log_sums, means = listed.queries.given(sums.log_sums), listed.queries.given(sums.means)
        again, those, placed = self._rest(listed, sums, queries)
        if len(again):
            of_rows, more, of_values = placed._scatter_by_sums(those, row_weights[again], space, values, n_first)
            log_sums[again], means[again], scatter = of_rows, of_values, scatter + more
        return log_sums, scatter, means

    def softmax_pull(self, queries: Queries, factors: np.ndarray, own_class: bool = False) -> np.ndarray:
        listed = self._listed(queries, "values", power=1.0, own_class=own_class)
        if listed is not None:
            sums = listed.sums()
            self.points.certificates.add(sums.certificate)
            return self._listed_pull(listed, sums, queries, factors, own_class)
        once = None if own_class else self._once(queries, self._images.packed)
        if once is None:
            return super().softmax_pull(queries, factors, own_class)
        with one_blas_thread():
            pull, underflowed = once.softmax_pull(self._inside(factors))
        pull = self._outside(pull)
        if len(underflowed):
            again = self._at_places(queries, underflowed)
            pull += super().softmax_pull(again, factors[again.positions])
        return pull

    def class_agreement(self, queries: Queries) -> tuple[np.ndarray, np.ndarray]:
        listed = self._listed_agreement(queries, power=0.0)
        if listed is not None:
            return listed[2:]
        log_sums, log_agreement = super().class_agreement(queries)
        underflowed = np.flatnonzero(log_agreement < np.log(accuracy.LEAST_SHARE[self._images.dtype]))
        if len(underflowed):
            log_agreement[underflowed] = self._in_numpy().class_agreement(queries.take(underflowed, self._images.n))[1]
        return log_sums, log_agreement

    def class_pull(self, queries: Queries, row_weights: np.ndarray, likelihood: bool) -> Pull:
        assert self.points.classes is not None
        listed = self._listed_agreement(queries, power=1.0)
        if listed is not None:
            every, mates, log_sums, log_agreement = listed
            with np.errstate(under="ignore"):
                factors = row_weights if likelihood else row_weights * np.exp(log_agreement)
            pull = self._listed_pull(*every, queries, factors)
            return Pull(log_sums, log_agreement, pull - self._listed_pull(*mates, queries, factors, own_class=True))
        once = self._once(queries, self._images.packed) if self._images.log_weights is None else None
        if once is None:
            return self._pull_of_rows(queries, row_weights, likelihood)
        with one_blas_thread():
            found = once.class_pull(
                self._mates(self._inside(self.points.classes)), self._inside(row_weights), likelihood,
                accuracy.LEAST_SHARE[self._images.dtype],
            )  # fmt: skip
        log_sums, log_agreement = self._outside(found.log_sums), self._outside(found.log_agreement)
        pull = self._outside(found.pull)
        if len(found.underflowed):
            again = self._at_places(queries, found.underflowed)
            more = self._pull_of_rows(again, row_weights[again.positions], likelihood)
            log_sums[again.positions], log_agreement[again.positions] = more.log_sums, more.log_agreement
            pull += more.pull
        return Pull(log_sums, log_agreement, pull)

    def _mates(self, codes: np.ndarray) -> Mates:
        """Return where the points of some classes begin and end, in the internal order."""
        assert self.points.classes is not None
        ordered = self._inside(self.points.classes)
        left, right = (np.searchsorted(ordered, codes, side=side).astype(np.int64) for side in ("left", "right"))
        return left, right

    def _pull_of_rows(self, queries: Queries, row_weights: np.ndarray, likelihood: bool) -> Pull:
        """`class_pull` row by row, for any queries."""
        n, classes = self._images.n, self.points.classes
        assert classes is not None
        codes = classes if queries.positions is None else classes[queries.positions]
        r = row_weights
        if queries.are_all:
            codes, r = self._inside(codes), self._inside(r)
        found = self._rows(queries, 2 * self._images.k).pull(
            self._mates(codes), r, likelihood, accuracy.LEAST_SHARE[self._images.dtype]
        )
        pull = np.empty((n, self._images.k))
        for part in Blocks(n, tuning.ALGEBRA_ROWS):
            pull[part] = found.received[part, -1:] * self._images.rows(part) - found.received[part, :-1]
        if queries.are_all:
            pull += found.of_queries
        else:
            pull[self._places(queries)] += found.of_queries
        pull, sums = self._outside(pull), RowSums(found.log_sums, found.log_agreement, pull)
        log_sums, log_agreement, _ = self._of_queries(queries, sums)
        lost = np.flatnonzero(np.isnan(log_agreement))
        if len(lost):
            again = self._in_numpy().class_pull(queries.take(lost, n), row_weights[lost], likelihood)
            log_agreement[lost] = again.log_agreement
            pull += again.pull
        return Pull(log_sums, log_agreement, pull)
