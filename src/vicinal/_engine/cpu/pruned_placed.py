"""A placement that prunes its pairwise computations if that saves time, and otherwise uses a dense placement.

The choice depends only on the rows, the metrics so far and the number of queries: a count on a sample of rows
(`PrunedSweeps.expected_shares`) estimates the share of the pairs that a pass would visit.  That count takes a few per cent of a
dense pass over some thousand rows; it is skipped if even the pairs that matter to a few rows (`_near_share`) are
too many.
"""

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np

from vicinal._engine import accuracy, tuning
from vicinal._engine.contract import (
    LogSums,
    Placed,
    Points,
    Pull,
    Scatter,
    SoftmaxSums,
    Space,
    Values,
    finite,
    to_images,
)
from vicinal._engine.cpu.pruned_lists import listed_by_boxes
from vicinal._engine.cpu.pruned_once import PrunedHalves
from vicinal._engine.cpu.pruned_sweeps import PrunedSums, PrunedSweeps, Shares, Work
from vicinal._engine.plan.order import spatial_order
from vicinal._engine.plan.tiles import QueryGroups, Tiles
from vicinal._engine.queries import Queries
from vicinal._engine.tuning import PRUNED_TILE
from vicinal._engine.work.blocks import Blocks
from vicinal._engine.work.pool import one_blas_thread
from vicinal._engine.work.sharing import made_by_all, shared_by, sharing

# A sweep may spend 1.03 times its budget, and the shares of classes rest on two sweeps.
_BUDGETS = 2.06


class Orders:
    """The spatial orders of the rows of a problem, kept over passes.

    An order is valid under any metric, but best under the one that it was made for: it is computed again when the share of
    the pairs that a pass visits has grown.
    """

    def __init__(self) -> None:
        self.whole: np.ndarray | None = None
        self.by_class: np.ndarray | None = None
        self.visited = 1.0  # the share that a pass visited when the order was made
        # The share of pairs that mattered when pruned work was last rejected, by the requested work.
        self.refused: dict[tuple[Work, bool], float] = {}


class PrunedPlaced(Placed):
    """Rows under one shared metric, in a spatial order.

    Parameters
    ----------
    points : Points
    metric : array of shape (k, D) or (D,), or None
    error : float
        The largest certificate, above 0.
    threads : int
    orders : Orders
        The orders of the problem.
    dense : callable
        Makes the dense placement, for work that is not pruned.
    """

    compiled = True

    def __init__(
        self, points: Points, metric: np.ndarray | None, error: float, threads: int, orders: Orders,
        dense: Callable[[], Placed],
    ) -> None:  # fmt: skip
        self.points = points
        self.metric = None if metric is None else np.asarray(metric, dtype=np.float64)
        self._error, self._threads, self._orders = error / _BUDGETS, threads, orders
        self.threads = threads
        self._make_dense = dense
        self.certificate = 0.0

    @property
    def expected_share(self) -> float:  # type: ignore[override]
        return 1.0 if self.sweeps is None else float(self._counted[1].visited)

    @cached_property
    def dense(self) -> Placed:
        """The same rows without pruning."""
        return self._make_dense()

    # -- the gate and the plans ------------------------------------------------------------------------------------

    @property
    def sweeps(self) -> PrunedSweeps | None:
        """Pruned sweeps over all points; None if a scatter of all rows is dense."""
        return self._sweeps_for("scatter", True)

    def _sweeps_for(self, work: Work, halves: bool) -> PrunedSweeps | None:
        """Pruned sweeps over all points; None if they are not expected to save time."""
        n, refused = len(self.points.rows), self._orders.refused
        if n < tuning.PRUNED_FROM_POINTS:
            return None
        if n < tuning.COUNTED_FROM_POINTS and "_counted" not in self.__dict__:
            near = self._near_share
            if near > tuning.REFUSED_AGAIN * refused.get((work, halves), np.inf):
                return None
            if not PrunedSweeps.saves_time(self.n_coordinates, Shares(near, near), work, halves):
                return None
        sweeps, shares = self._counted
        if sweeps.saves_time(self.n_coordinates, shares, work, halves):
            return sweeps
        if n < tuning.COUNTED_FROM_POINTS:
            refused[work, halves] = self._near_share
        return None

    @cached_property
    def _near_share(self) -> float:
        """The share of the pairs that matter individually to some rows, which is about the least that any plan visits.

        Their sums are estimated from an even sample of the points, which is off by few nats of many.
        """
        n = len(self.points.rows)
        some, seen = (np.arange(0, n, max(n // count, 1)) for count in (tuning.SAMPLED_GROUPS, tuning.NEAR_POINTS))
        with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
            mine, images = (to_images(self.points.rows[positions], self.metric) for positions in (some, seen))
            scores = mine @ images.T
            scores -= 0.5 * np.einsum("ij,ij->i", mine, mine)[:, None] + 0.5 * np.einsum("ij,ij->i", images, images)
            # Logarithms and exponentials in float32, which takes a fourth of the time: this is a count.
            scores = scores.astype(np.float32, copy=False)
            far = np.log(np.maximum(-2.0 * scores, 1.0))
            if self.points.log_weights is not None:
                scores += self.points.log_weights[seen].astype(np.float32)
            scores[some[:, None] == seen] = -np.inf
            top = scores.max(axis=1, keepdims=True)
            log_sums = top + np.log(np.exp(scores - top).sum(axis=1, keepdims=True)) + float(np.log(n / len(seen)))
            return float((scores + far - log_sums > float(np.log(self._error / (2.0 * n)))).mean())

    @cached_property
    def _counted(self) -> tuple[PrunedSweeps, Shares]:
        """Return pruned sweeps over all points, and the shares of pairs that they are expected to visit."""
        everyone, known = np.array([0, len(self.points.rows)]), self._orders.whole
        if known is None:
            known = self._orders.whole = spatial_order(self._mapped(self.points.rows), everyone, self._threads)
            self._orders.visited = 1.0
        sweeps = self._sweeps_over(known, everyone)
        shares = sweeps.expected_shares()
        if shares.visited > tuning.ORDER_WEARS * self._orders.visited:
            order = spatial_order(self._mapped(self.points.rows), everyone, self._threads)
            renewed = self._sweeps_over(order, everyone)
            again = renewed.expected_shares()
            # The neighbourhoods may have grown instead of the boxes.
            self._orders.visited = again.visited
            if again.visited < shares.visited:
                self._orders.whole, self._orders.by_class = order, None
                sweeps, shares = renewed, again
        else:
            self._orders.visited = min(self._orders.visited, shares.visited)
        return sweeps, shares

    @cached_property
    def _class_sweeps(self) -> PrunedSweeps:
        """Return pruned sweeps in which the neighbours of a row are only the points of its own class."""
        codes = self.points.classes
        assert codes is not None
        counts = np.bincount(codes, minlength=self.points.n_classes)
        groups = np.concatenate([[0], np.cumsum(counts[counts > 0])])
        if self._orders.by_class is None:
            by_class = np.argsort(codes, kind="stable")
            some = self._mapped(self.points.rows[by_class])
            self._orders.by_class = by_class[spatial_order(some, groups, self._threads)]
        return self._sweeps_over(self._orders.by_class, groups)

    def _sweeps_over(self, order: np.ndarray, groups: np.ndarray) -> PrunedSweeps:
        recipe = self.points.rows, self.metric, self.points.log_weights, order, groups
        tiles = made_by_all(lambda: Tiles(*recipe, self._threads), Tiles, *recipe, 1)
        return PrunedSweeps(tiles, self._error, self._threads)

    def _mapped(self, rows: np.ndarray) -> np.ndarray:
        with one_blas_thread():
            return np.ascontiguousarray(to_images(rows, self.metric))

    def _plan(
        self, queries: Queries, work: Work = "values", own_class: bool = False
    ) -> tuple[PrunedSweeps, QueryGroups] | None:
        """Return the sweeps for some queries, and the queries in query groups.

        Return None if the dense placement does the work.
        """
        sweeps = None
        if queries.count(len(self.points.rows)) >= tuning.PRUNED_FROM_QUERIES:
            sweeps = self._sweeps_for(work, queries.are_all)
        if sweeps is None:
            self._certify(0.0)
            return None
        sweeps = self._class_sweeps if own_class else sweeps
        tiles, left_out = sweeps.tiles, queries.left_out
        if queries.rows is not None:
            return sweeps, tiles.new_rows(self._mapped(queries.rows), left_out, self._threads)
        if queries.positions is None:
            return sweeps, tiles.all_rows(left_out)
        return sweeps, tiles.some_rows(queries.positions, left_out)

    # -- the verbs -------------------------------------------------------------------------------------------------

    def log_sums(self, queries: Queries, by_class: bool = False) -> LogSums:
        plan = self._plan(queries, "sums")
        if plan is None:
            return self.dense.log_sums(queries, by_class)
        sweeps, query_groups = plan
        found = sweeps.sums(query_groups)
        self._certify(found.certificate)
        log_shares = self._log_shares(queries, found) if by_class else None
        return LogSums(found.log_sums, log_shares)

    def _log_shares(self, queries: Queries, all_points: PrunedSums) -> np.ndarray:
        """Return the log-sums and shares from a sweep per class, so that each sum is certified relative to itself."""
        sweeps, codes, log_sums = self._class_sweeps, self.points.classes, all_points.log_sums
        assert codes is not None
        rows = self.coordinates(queries, "rows")
        images, log_shares = self._mapped(rows), np.full((len(rows), self.points.n_classes), -np.inf)
        certificate = 0.0
        for group, c in enumerate(np.unique(codes)):
            asked = sweeps.tiles.new_rows(images, queries.left_out, self._threads, group)
            found = sweeps.sums(asked)
            certificate, of_class = max(certificate, found.certificate), found.log_sums
            with np.errstate(invalid="ignore"):
                log_shares[:, c] = np.where(of_class > -np.inf, np.minimum(of_class - log_sums, 0.0), -np.inf)
        self._certify(all_points.certificate + certificate)
        imprecise = self._imprecise(log_sums)
        if len(imprecise):
            log_shares[imprecise] = self.dense.log_sums(queries.take(imprecise, len(codes)), by_class=True).log_shares
        return log_shares

    def _imprecise(self, log_sums: np.ndarray) -> np.ndarray:
        """Queries whose log-sums are so large that their differences have too few digits."""
        return np.flatnonzero(
            np.isfinite(log_sums) & (np.abs(log_sums) > accuracy.LARGEST_LOG_SUM_OF_SWEEPS[self.points.rows.dtype])
        )

    def class_shares(self, queries: Queries) -> np.ndarray:
        plan = self._plan(queries, "sums")
        if plan is None:
            return self.dense.class_shares(queries)
        sweeps, query_groups = plan
        codes = self.points.classes
        assert codes is not None
        shares, certificate = sweeps.class_shares(query_groups, codes, self.points.n_classes)
        self._certify(certificate)
        return shares

    def _certify(self, certificate: float) -> None:
        self.certificate = certificate
        self.points.certificates.add(certificate)

    def softmax_sums(
        self, queries: Queries, factors: np.ndarray | None, values: Values | None, query_values: Values | None = None,
        own_class: bool = False,
    ) -> SoftmaxSums:  # fmt: skip
        plan = self._plan(queries, own_class=own_class)
        if plan is None:
            return self.dense.softmax_sums(queries, factors, values, query_values, own_class)
        sweeps, query_groups = plan
        by_images = isinstance(values, str) and values == "images"
        query_images = isinstance(query_values, str) and query_values == "images"
        found = sweeps.sums(
            query_groups, power=1.0 if by_images or query_images else 0.0, relative=by_images, factors=factors,
            values=None if by_images else self._given(values, Queries()),
            query_values=None if query_images else self._given(query_values, queries), query_images=query_images,
        )  # fmt: skip
        self._certify(found.certificate)
        sees = (found.log_sums > -np.inf).astype(np.float64)[:, None]
        gathered = found.means
        received = found.received if query_values is not None else np.empty((sweeps.tiles.n_tiles, 0, PRUNED_TILE))
        if by_images:
            gathered = np.hstack([gathered, sees])
            for part in Blocks(len(gathered), tuning.ALGEBRA_ROWS):
                asked = query_groups.order[part]
                gathered[asked, :-1] += sees[asked] * sweeps.tiles.images_of(query_groups, part)
        if factors is not None:
            gathered = gathered * factors[:, None]
        if query_images:
            for some in Blocks(len(received), tuning.ALGEBRA_ROWS // PRUNED_TILE):
                received[some, :-1] += received[some, -1:] * sweeps.tiles.centres[some, :, None]
        return SoftmaxSums(found.log_sums, gathered, sweeps.tiles.unpack(received))

    def _given(self, values: Values | None, queries: Queries) -> np.ndarray | None:
        """Return values as an array; rows with their column of ones."""
        if not isinstance(values, str):
            return values
        rows = self.coordinates(queries, "rows")
        return np.hstack([rows, np.ones((len(rows), 1), dtype=rows.dtype)])

    def candidates(self, queries: Queries, floors: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        plan = self._plan(queries, "sums")
        if plan is None:
            return self.dense.candidates(queries, floors)
        return listed_by_boxes(plan[0].tiles, plan[1], self.points.log_weights, floors, self._threads)

    def squares(self, queries: Queries) -> tuple[np.ndarray, np.ndarray]:
        plan = self._plan(queries, "sums")
        if plan is None:
            return self.dense.squares(queries)
        sweeps, query_groups = plan
        weights = self.points.log_weights
        values = None if weights is None else finite(weights)[:, None]
        found = sweeps.sums(query_groups, values=values, entropies=True)
        self._certify(found.certificate)
        with np.errstate(invalid="ignore"):
            squares = 2.0 * (found.entropies - found.log_sums + found.means.sum(axis=1))
        return found.log_sums, np.where(found.log_sums > -np.inf, np.maximum(squares, 0.0), 0.0)

    def scatter(self, queries: Queries, row_weights: np.ndarray, space: Space) -> Scatter:
        own = self._halves(queries)
        if own is not None:
            plan = self._plan(queries, "scatter")
            if plan is not None and PrunedHalves.can_be_used(plan[0].tiles, self.points.log_weights):
                once = self._half_scatter(plan[0], own, row_weights, space)
                if once is not None:
                    return once
        plan = self._plan(queries)
        if plan is None:
            return self.dense.scatter(queries, row_weights, space)
        sweeps, query_groups = plan
        values = None
        if space == "rows":
            values = self.coordinates(Queries(), "rows"), self.coordinates(queries, "rows")
        found = sweeps.scatter(query_groups, row_weights, values)
        self._certify(found.certificate)
        return Scatter(found.log_sums, found.scatter)

    def _halves(self, queries: Queries) -> bool | None:
        """Return whether rows are left out of their own sums, if the queries are the points, in their order.

        None if they are not.
        """
        if not queries.are_all:
            return None
        if queries.left_out is None:
            return False
        return True if np.array_equal(queries.left_out, np.arange(len(self.points.rows))) else None

    def _half_scatter(self, sweeps: PrunedSweeps, own: bool, row_weights: np.ndarray, space: Space) -> Scatter | None:
        """Return the scatter of all rows, each pair once; None if that would lose digits."""
        tiles = sweeps.tiles
        values = None if space == "images" else tiles.centred(self.coordinates(Queries(), "rows"))
        halves = PrunedHalves(tiles, self.points.log_weights, own, self._error, self._threads)
        found = halves.scatter(row_weights, values)
        if found is None:
            return None
        log_sums, scatter, certificate = found.log_sums, found.scatter, found.certificate
        sweeps.shares = Shares(*found.shares)
        if len(found.aside):
            queries = Queries(positions=found.aside, left_out=found.aside if own else None)
            rows = None
            if space == "rows":
                rows = self.coordinates(Queries(), "rows"), self.coordinates(queries, "rows")
            visited = sweeps.shares
            some = tiles.some_rows(found.aside, queries.left_out)
            with shared_by(None if len(found.aside) < tuning.PRUNED_FROM_QUERIES else sharing()):
                more = sweeps.scatter(some, row_weights[found.aside], rows)
            log_sums[found.aside] = more.log_sums
            scatter, certificate = scatter + more.scatter, max(certificate, more.certificate)
            sweeps.shares = Shares(*(np.add(visited, np.multiply(sweeps.shares, len(found.aside) / tiles.n))))
        self._certify(certificate)
        return Scatter(log_sums, scatter)

    def softmax_pull(self, queries: Queries, factors: np.ndarray, own_class: bool = False) -> np.ndarray:
        plan = self._plan(queries, own_class=own_class)
        if plan is None:
            return self.dense.softmax_pull(queries, factors, own_class)
        pull = np.zeros((len(self.points.rows), self.n_coordinates))
        self._certify(plan[0].add_pull(plan[1], factors, pull))
        return pull

    def class_agreement(self, queries: Queries) -> tuple[np.ndarray, np.ndarray]:
        """Return both sums from separate sweeps, so that the sum of the class mates is certified relative to itself."""
        log_sums, log_agreement, certificate = self._class_agreement(queries)
        self._certify(certificate)
        return log_sums, log_agreement

    def _class_agreement(self, queries: Queries) -> tuple[np.ndarray, np.ndarray, float]:
        n = len(self.points.rows)
        every, mates = self._plan(queries, "sums"), self._plan(queries, "sums", own_class=True)
        if every is None or mates is None:
            return *self.dense.class_agreement(queries), 0.0
        of_all, of_mates = (sweeps.sums(query_groups) for sweeps, query_groups in (every, mates))
        log_sums, matched = of_all.log_sums, of_mates.log_sums
        with np.errstate(invalid="ignore"):
            log_agreement = np.where(matched > -np.inf, np.minimum(matched - log_sums, 0.0), -np.inf)
        imprecise = self._imprecise(log_sums)
        if len(imprecise):
            log_agreement[imprecise] = self.dense.class_agreement(queries.take(imprecise, n))[1]
        return log_sums, log_agreement, of_all.certificate + of_mates.certificate

    def class_pull(self, queries: Queries, row_weights: np.ndarray, likelihood: bool) -> Pull:
        every, mates = self._plan(queries), self._plan(queries, own_class=True)
        if every is None or mates is None or self._plan(queries, "sums") is None:
            return self.dense.class_pull(queries, row_weights, likelihood)
        log_sums, log_agreement, certificate = self._class_agreement(queries)
        with np.errstate(under="ignore"):
            factors = row_weights if likelihood else row_weights * np.exp(log_agreement)
        pull = np.zeros((len(self.points.rows), self.n_coordinates))
        for (sweeps, query_groups), signed in ((every, factors), (mates, -factors)):
            certificate = max(certificate, sweeps.add_pull(query_groups, signed, pull))
        self._certify(certificate)
        return Pull(log_sums, log_agreement, pull)
