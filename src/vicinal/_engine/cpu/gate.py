"""Whether skipping pairs saves time under a metric, and the tiles for it.

The choice depends only on the rows, the metrics so far and the number of queries: a count on a sample of rows estimates the share of the
pairs that a pass would visit.  It takes a few per cent of a dense pass over some thousand rows, and is skipped if even the pairs that
matter to a few rows (`Gate._near_share`) are too many.
"""

from functools import cached_property
from typing import Literal

import numpy as np

from vicinal._engine import tuning
from vicinal._engine.contract import Points, to_images
from vicinal._engine.cpu.listed import Listed, Shares
from vicinal._engine.plan.order import spatial_order
from vicinal._engine.plan.tiles import Tiles
from vicinal._engine.tuning import PRUNED_TILE
from vicinal._engine.work.pool import one_blas_thread
from vicinal._engine.work.sharing import made_by_all, shared_by

# Only sums, values of pairs as well, or a scatter.
Work = Literal["sums", "values", "scatter"]


class Orders:
    """The spatial orders of the rows of a problem, kept over passes.

    An order is valid under any metric, but best under the one that it was made for: it is computed again when the share of
    the pairs that a pass visits has grown.
    """

    def __init__(self) -> None:
        self.whole: np.ndarray | None = None
        self.by_class: np.ndarray | None = None
        self.visited = 1.0  # the share that a pass visited when the order was made
        # The share of pairs that mattered when skipping was last rejected, by the requested work.
        self.refused: dict[tuple[Work, bool], float] = {}


class Gate:
    """The choice between plans that list pairs and those of all pairs.

    Parameters
    ----------
    points : Points
    metric : array of shape (k, D) or (D,), or None
    n_coordinates : int
        The number of coordinates of the images.
    error : float
        The largest certificate, above 0.
    threads : int
    orders : Orders
        The orders of the problem.
    """

    def __init__(
        self, points: Points, metric: np.ndarray | None, n_coordinates: int, error: float, threads: int, orders: Orders
    ) -> None:
        self._points, self._metric, self._n_coordinates = points, metric, n_coordinates
        self._error, self._threads, self._orders = error, threads, orders

    def tiles(self, work: Work, once: bool) -> Tiles | None:
        """Return all points in tiles, or None if skipping pairs is not expected to save time.

        Parameters
        ----------
        work : {"sums", "values", "scatter"}
            The requested result.
        once : bool
            Whether a dense pass would compute each pair once for both of its rows.
        """
        n, refused = len(self._points.rows), self._orders.refused
        if n < tuning.COUNTED_FROM_POINTS and "_counted" not in self.__dict__:
            near = self._near_share
            if near > tuning.REFUSED_AGAIN * refused.get((work, once), np.inf):
                return None
            if not self._saves_time(Shares(near, near), work, once):
                return None
        tiles, shares = self._counted
        if self._saves_time(shares, work, once):
            return tiles
        if n < tuning.COUNTED_FROM_POINTS:
            refused[work, once] = self._near_share
        return None

    @property
    def expected_share(self) -> float:
        """The share of all pairs that a scatter of all rows is expected to visit."""
        return 1.0 if self.tiles("scatter", True) is None else float(self._counted[1].visited)

    @cached_property
    def tiles_by_class(self) -> Tiles:
        """The points in tiles that hold points of one class only."""
        codes = self._points.classes
        assert codes is not None
        counts = np.bincount(codes, minlength=self._points.n_classes)
        groups = np.concatenate([[0], np.cumsum(counts[counts > 0])])
        if self._orders.by_class is None:
            by_class = np.argsort(codes, kind="stable")
            order = spatial_order(self.mapped(self._points.rows[by_class]), groups, self._threads)
            self._orders.by_class = by_class[order]
        return self._tiles_in(self._orders.by_class, groups)

    def mapped(self, rows: np.ndarray) -> np.ndarray:
        """Return the images of rows."""
        with one_blas_thread():
            return np.ascontiguousarray(to_images(rows, self._metric))

    @cached_property
    def _near_share(self) -> float:
        """The share of the pairs that matter individually to some rows, which is about the least that any plan visits.

        Their sums are estimated from an even sample of the points, which is off by few nats of many.
        """
        n, points = len(self._points.rows), self._points
        some, seen = (np.arange(0, n, max(n // count, 1)) for count in (tuning.SAMPLED_GROUPS, tuning.NEAR_POINTS))
        with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
            mine, images = (to_images(points.rows[positions], self._metric) for positions in (some, seen))
            scores = mine @ images.T
            scores -= 0.5 * np.einsum("ij,ij->i", mine, mine)[:, None] + 0.5 * np.einsum("ij,ij->i", images, images)
            # Logarithms and exponentials in float32, which takes a fourth of the time: this is a count.
            scores = scores.astype(np.float32, copy=False)
            far = np.log(np.maximum(-2.0 * scores, 1.0))
            if points.log_weights is not None:
                scores += points.log_weights[seen].astype(np.float32)
            scores[some[:, None] == seen] = -np.inf
            top = scores.max(axis=1, keepdims=True)
            log_sums = top + np.log(np.exp(scores - top).sum(axis=1, keepdims=True)) + float(np.log(n / len(seen)))
            return float((scores + far - log_sums > float(np.log(self._error / (2.0 * n)))).mean())

    @cached_property
    def _counted(self) -> tuple[Tiles, Shares]:
        """All points in tiles, and the shares of pairs that a sweep is expected to visit."""
        everyone, orders = np.array([0, len(self._points.rows)]), self._orders
        if orders.whole is None:
            orders.whole = spatial_order(self.mapped(self._points.rows), everyone, self._threads)
            orders.visited = 1.0
        tiles = self._tiles_in(orders.whole, everyone)
        shares = self._expected_shares(tiles)
        if shares.visited > tuning.ORDER_WEARS * orders.visited:
            order = spatial_order(self.mapped(self._points.rows), everyone, self._threads)
            renewed = self._tiles_in(order, everyone)
            again = self._expected_shares(renewed)
            # The neighbourhoods may have grown instead of the boxes.
            orders.visited = again.visited
            if again.visited < shares.visited:
                orders.whole, orders.by_class = order, None
                tiles, shares = renewed, again
        else:
            orders.visited = min(orders.visited, shares.visited)
        return tiles, shares

    def _tiles_in(self, order: np.ndarray, groups: np.ndarray) -> Tiles:
        recipe = self._points.rows, self._metric, self._points.log_weights, order, groups
        return made_by_all(lambda: Tiles(*recipe, self._threads), Tiles, *recipe, 1)

    def _expected_shares(self, tiles: Tiles) -> Shares:
        """Return the shares of a sweep of all rows, counted on a sample of tiles."""
        sampled = np.unique(np.linspace(0, tiles.n_tiles - 1, tuning.SAMPLED_TILES).round().astype(int))
        places = (tiles.starts[sampled, None] + np.arange(PRUNED_TILE)).ravel()
        positions = tiles.order[places[places < tiles.n]]
        with shared_by(None):  # so few rows take less time than a request to a worker
            queries = tiles.some_rows(positions, positions, self._threads)
            return Listed(tiles, queries, self._error, self._threads, power=2.0).sums().shares

    def _saves_time(self, shares: Shares, work: Work, once: bool) -> bool:
        """Return whether a sweep with these shares takes clearly less time than a dense pass."""
        dense, visited, taken = (
            fixed + per_coordinate * self._n_coordinates
            for fixed, per_coordinate in (tuning.DENSE_COST[work], tuning.VISITED_COST[work], tuning.TAKEN_COST[work])
        )
        cost = shares.visited * visited + shares.taken * taken
        return cost <= tuning.PRUNED_SAVING * dense * (1.0 if once else 2.0)
