"""Images of queries and points as the compiled kernels want them."""

from functools import cached_property

import numpy as np
from scipy.spatial.distance import cdist

from vicinal._engine._accuracy import products_are_accurate
from vicinal._engine._kernels import TILE
from vicinal._engine._tuning import FLOAT32, FLOAT64, SAMPLED_ROWS

_SMALLEST = {FLOAT64: 1e-270, FLOAT32: 1e-24}
_MOST_RAISE = {FLOAT64: 600.0, FLOAT32: 40.0}  # exp of it, times any n, does not overflow


class PointImages:
    """The points under a metric: images, their squares and weights, packed into tiles at the first use.

    Parameters
    ----------
    images : array of shape (n, k)
        Centred and contiguous.
    log_weights : array of shape (n,), optional
    """

    def __init__(self, images, log_weights=None):
        self.images, self.dtype = images, images.dtype
        self.n, self.k = images.shape
        self.log_weights = None if log_weights is None else log_weights.astype(self.dtype)
        self.half_squares = 0.5 * np.einsum("ij,ij->i", images, images)
        self.largest = 2.0 * float(self.half_squares.max())

    @property
    def heaviest(self):
        """The largest log-weight."""
        return 0.0 if self.log_weights is None else float(self.log_weights.max())

    @cached_property
    def packed(self):
        """The images in tiles, (n_tiles, k, TILE)."""
        return pack(self.images)

    @cached_property
    def product_offsets(self):
        """What a point adds to the product q'z."""
        return self._offsets(True)

    @cached_property
    def difference_offsets(self):
        """What a point adds to -|q - z|^2 / 2."""
        return self._offsets(False)

    def _offsets(self, by_products):
        offsets = -self.half_squares if by_products else np.zeros(self.n, dtype=self.dtype)
        return offsets if self.log_weights is None else offsets + self.log_weights

    @cached_property
    def packed_product_offsets(self):
        """`product_offsets` in tiles, -inf beyond the last point."""
        return _padded(self.product_offsets)

    @cached_property
    def packed_difference_offsets(self):
        """`difference_offsets` in tiles, -inf beyond the last point."""
        return _padded(self.difference_offsets)


class Pairs:
    """Queries against points.

    Parameters
    ----------
    points : PointImages
    queries : array of shape (m, k), optional
        Images of the queries; None for the points themselves.
    left_out : integer array of shape (m,), optional
    """

    def __init__(self, points, queries=None, left_out=None):
        self.points, self.dtype, self.n, self.k = points, points.dtype, points.n, points.k
        self.are_points = queries is None
        self.queries = points.images if queries is None else np.ascontiguousarray(queries, dtype=self.dtype)
        self.m = len(self.queries)
        # A copy: kernels take no read-only arrays.
        self.left_out = np.full(self.m, -1, np.int64) if left_out is None else np.array(left_out, dtype=np.int64)
        if self.are_points:
            self.half_squares, largest = points.half_squares, points.largest
        else:
            self.half_squares = 0.5 * np.einsum("ij,ij->i", self.queries, self.queries)
            largest = max(points.largest, 2.0 * float(self.half_squares.max(initial=0.0)))
        self.accurate = products_are_accurate(largest, self.dtype)
        self.raised = 0.0  # how far scores are raised above the largest that they could be
        self.mostly_underflows = False  # whether most rows underflow even so

    @property
    def offsets(self):
        """What a point adds to the products or, without products, to the squares."""
        return self.points.product_offsets if self.accurate else self.points.difference_offsets

    def log_sums(self, sums):
        """Log-sums of the scores from those the kernels made of offsets and products."""
        return sums - self.half_squares if self.accurate else sums

    @property
    def bounds(self):
        """What no score of a row exceeds by more than `raised`: distance zero to the heaviest point, and room for the
        rounding of products."""
        if not self.accurate:
            return np.full(self.m, self.points.heaviest - self.raised)
        return self.half_squares.astype(np.float64) + (self.points.heaviest + 1e-3 - self.raised)

    def raise_scores(self, largest_value=1.0):
        """Lower the bounds towards where the nearest other points are, of points against themselves.

        Rows whose nearest score lies hundreds below its bound would underflow under it, and would have to be done
        again.  A row that sees itself never does; sums of exponentials times values must not overflow.
        """
        most = _MOST_RAISE[self.dtype] - np.log(max(largest_value, 1.0))
        if self.n < 2 or self.left_out[0] == -1:
            return
        most = max(most, 0.0)
        rows = np.arange(0, self.n, max(self.n // SAMPLED_ROWS, 1))
        images, squares = self.points.images, self.points.half_squares
        if self.accurate:
            half = squares[rows, None].astype(np.float64) + squares - images[rows] @ images.T
        else:
            half = 0.5 * cdist(images[rows].astype(np.float64), images.astype(np.float64, copy=False), "sqeuclidean")
        half[np.arange(len(rows)), rows] = np.inf
        nearest = half.min(axis=1)
        self.raised = float(np.clip(nearest.max(), 0.0, most))
        self.mostly_underflows = bool(np.median(nearest) - self.raised > -np.log(self.smallest))

    @property
    def smallest(self):
        """The sum of a row under its bound below which terms may have been lost: such rows are done carefully."""
        return _SMALLEST[self.dtype]

    @property
    def scored(self):
        """What the fused kernels need to score the points."""
        points = self.points
        offsets = points.packed_product_offsets if self.accurate else points.packed_difference_offsets
        return self.queries, points.packed, offsets, self.bounds, self.smallest, self.accurate, self.left_out


def pack(rows):
    """(n, d) -> (n_tiles, d, TILE), padded with zeros."""
    n, d = rows.shape
    n_tiles = -(-n // TILE)
    packed = np.zeros((n_tiles, d, TILE), dtype=rows.dtype)
    whole = n // TILE
    packed[:whole] = rows[: whole * TILE].reshape(whole, TILE, d).transpose(0, 2, 1)
    if whole < n_tiles:
        packed[whole, :, : n - whole * TILE] = rows[whole * TILE :].T
    return packed


def unpack(tiles, n):
    """(n_tiles, d, TILE) -> (n, d)."""
    return tiles.transpose(0, 2, 1).reshape(-1, tiles.shape[1])[:n]


def _padded(offsets):
    padded = np.full(-(-len(offsets) // TILE) * TILE, -np.inf, dtype=offsets.dtype)
    padded[: len(offsets)] = offsets
    return padded.reshape(-1, TILE)
