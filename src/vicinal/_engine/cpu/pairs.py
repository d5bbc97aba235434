"""Images of queries and points in the layout of the compiled kernels."""

from functools import cached_property

import numpy as np
from numpy.typing import DTypeLike
from scipy.spatial.distance import cdist

from vicinal._engine import accuracy, tuning
from vicinal._engine.accuracy import products_are_accurate
from vicinal._engine.contract import to_images
from vicinal._engine.cpu.parts import TILE
from vicinal._engine.work.blocks import Blocks


class PointImages:
    """The points under a metric: their images in tiles, the only copy of them, with their squares and weights.

    Parameters
    ----------
    packed : array of shape (n_tiles, k, TILE)
        Centred images, as returned by `pack`.
    n : int
        The number of points.
    log_weights : array of shape (n,), optional
    """

    def __init__(self, packed: np.ndarray, n: int, log_weights: np.ndarray | None = None) -> None:
        self.packed, self.dtype, self.n, self.k = packed, packed.dtype, n, packed.shape[1]
        self.log_weights = None if log_weights is None else log_weights.astype(self.dtype)
        self.half_squares = 0.5 * np.einsum("tkj,tkj->tj", packed, packed).ravel()[:n]
        self.largest = 2.0 * float(self.half_squares.max())

    @property
    def heaviest(self) -> float:
        """The largest log-weight."""
        return 0.0 if self.log_weights is None else float(self.log_weights.max())

    def rows(self, part: slice) -> np.ndarray:
        """Return the images of consecutive points, shape (m, k), contiguous."""
        return unpack(self.packed, part)

    def take(self, places: np.ndarray) -> np.ndarray:
        """Return the images of some points, shape (m, k), contiguous."""
        return self.packed[places // TILE, :, places % TILE]

    @cached_property
    def product_offsets(self) -> np.ndarray:
        """What a point adds to the product q'z, in tiles; -inf beyond the last point."""
        return self._padded(-self.half_squares)

    @cached_property
    def difference_offsets(self) -> np.ndarray:
        """What a point adds to -|q - z|^2 / 2, in tiles; -inf beyond the last point."""
        return self._padded(np.zeros(self.n, dtype=self.dtype))

    def _padded(self, offsets: np.ndarray) -> np.ndarray:
        padded = np.full(self.packed.shape[0] * TILE, -np.inf, dtype=self.dtype)
        padded[: self.n] = offsets if self.log_weights is None else offsets + self.log_weights
        return padded.reshape(-1, TILE)


class CompiledPairs:
    """Queries against points.

    Parameters
    ----------
    points : PointImages
    queries : array of shape (m, k) or PointImages, optional
        Images of the queries; None for the points themselves.
    left_out : integer array of shape (m,), optional
    """

    def __init__(
        self,
        points: PointImages,
        queries: np.ndarray | PointImages | None = None,
        left_out: np.ndarray | None = None,
    ) -> None:
        self.points, self.dtype, self.n, self.k = points, points.dtype, points.n, points.k
        if queries is None:
            queries = points
        if isinstance(queries, PointImages):
            self.m, self.half_squares = queries.n, queries.half_squares
            self._queries: np.ndarray | PointImages = queries
        else:
            self._queries = np.ascontiguousarray(queries, dtype=self.dtype)
            self.m = len(queries)
            self.half_squares = 0.5 * np.einsum("ij,ij->i", self._queries, self._queries)
        largest = max(points.largest, 2.0 * float(self.half_squares.max(initial=0.0)))
        # A copy, because kernels do not accept read-only arrays.
        self.left_out = np.full(self.m, -1, np.int64) if left_out is None else np.array(left_out, dtype=np.int64)
        self.accurate = products_are_accurate(largest, self.dtype)
        self.raised = 0.0  # how far scores are raised above their largest possible value

    def queries(self, rows: slice) -> np.ndarray:
        """Return the images of a block of queries, contiguous."""
        return self._queries.rows(rows) if isinstance(self._queries, PointImages) else self._queries[rows]

    @property
    def offsets(self) -> np.ndarray:
        """What a point adds to the products or, without products, to the squares; in tiles."""
        return self.points.product_offsets if self.accurate else self.points.difference_offsets

    def take(self, places: np.ndarray) -> "CompiledPairs":
        """Return some of the queries against the same points."""
        mine = self._queries.take(places) if isinstance(self._queries, PointImages) else self._queries[places]
        return CompiledPairs(self.points, mine, self.left_out[places])

    def log_sums(self, sums: np.ndarray, rows: slice = slice(None)) -> np.ndarray:
        """Return the log-sums of the scores from those of the kernels, which use offsets and products."""
        return sums - self.half_squares[rows] if self.accurate else sums

    def bounds(self, rows: slice = slice(None)) -> np.ndarray:
        """Return a bound that no score of a row exceeds by more than `raised`: distance zero to the heaviest point, and a margin
        for the rounding of products.

        The bounds are in the working precision, because the kernels subtract them in that precision, and the log-sums must
        add the same numbers.
        """
        return self._bounds[rows]

    @cached_property
    def _bounds(self) -> np.ndarray:
        bounds = np.full(self.m, self.points.heaviest - self.raised)
        if self.accurate:
            bounds += self.half_squares.astype(np.float64) + 1e-3
        return bounds.astype(self.dtype).astype(np.float64)

    @cached_property
    def depths(self) -> np.ndarray:
        """How far the largest scores of some of the queries are below their largest possible value."""
        sample = self.take(np.arange(0, self.m, max(self.m // tuning.SAMPLED_ROWS, 1)))
        depths: np.ndarray = self.points.heaviest - sample.scores(slice(0, sample.m)).max(axis=1)
        return depths

    def raise_scores(self, largest_value: float = 1.0) -> None:
        """Lower the bounds towards the scores of the nearest other points, for points against themselves.

        Rows whose nearest score lies hundreds below its bound would underflow under it, and would have to be computed
        again.  A row that is its own neighbour never does.  Sums of exponentials times values must not overflow.
        """
        most = max(accuracy.MOST_RAISE[self.dtype] - np.log(max(largest_value, 1.0)), 0.0)
        self.raised = float(np.clip(self.depths.max(), 0.0, most))
        self.__dict__.pop("_bounds", None)

    def mostly_underflow(self) -> bool:
        """Return whether most rows underflow under their bounds, from a sample of them."""
        return bool(np.median(self.depths) - self.raised > -np.log(self.smallest))

    def scores(self, rows: slice) -> np.ndarray:
        """Return the scores of a block of queries with all points, in float64 but from products of the working precision."""
        queries, squares = self.queries(rows), self.half_squares[rows, None].astype(np.float64)
        scores = np.empty((len(queries), self.n))
        for part in Blocks(self.n, tuning.ALGEBRA_ROWS):
            if self.accurate:
                tiles = self.points.packed[part.start // TILE : -(-part.stop // TILE)]
                products = (queries @ tiles).transpose(1, 0, 2).reshape(len(queries), -1)
                np.subtract(products[:, : part.stop - part.start], squares, out=scores[:, part])
            else:
                theirs = self.points.rows(part).astype(np.float64)
                scores[:, part] = -0.5 * cdist(queries.astype(np.float64), theirs, "sqeuclidean")
        scores += self.offsets.ravel()[: self.n]
        left_out = self.left_out[rows]
        hit = np.flatnonzero(left_out >= 0)
        scores[hit, left_out[hit]] = -np.inf
        return scores

    @property
    def smallest(self) -> float:
        """The sum of a row under its bound below which terms may have been lost: such rows are computed with their own maximum."""
        return accuracy.SMALLEST_SUM[self.dtype]


def pack(
    rows: np.ndarray, metric: np.ndarray | None = None, order: np.ndarray | None = None, dtype: DTypeLike | None = None
) -> np.ndarray:
    """(n, d) -> (n_tiles, k, TILE), padded with zeros: rows in some order, mapped by a metric, a few tiles at a time."""
    n, k = len(rows), rows.shape[1] if metric is None or metric.ndim == 1 else len(metric)
    packed = np.empty((-(-n // TILE), k, TILE), dtype=rows.dtype if dtype is None else dtype)
    for start in range(0, n, tuning.ALGEBRA_ROWS):
        stop = min(start + tuning.ALGEBRA_ROWS, n)
        images = to_images(rows[start:stop] if order is None else rows[order[start:stop]], metric)
        first, whole = start // TILE, (stop - start) // TILE
        packed[first : first + whole] = images[: whole * TILE].reshape(whole, TILE, k).transpose(0, 2, 1)
        if whole * TILE < stop - start:
            packed[-1, :, : n % TILE] = images[whole * TILE :].T
            packed[-1, :, n % TILE :] = 0
    return packed


def unpack(tiles: np.ndarray, part: slice) -> np.ndarray:
    """(n_tiles, d, TILE) -> the rows of a slice, (m, d), contiguous."""
    start, stop, _ = part.indices(len(tiles) * TILE)
    first, last = start // TILE, -(-max(stop, start) // TILE)
    rows = np.ascontiguousarray(tiles[first:last].transpose(0, 2, 1)).reshape((last - first) * TILE, tiles.shape[1])
    return rows[start - first * TILE : max(stop, start) - first * TILE]
