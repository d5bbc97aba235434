"""Queries and points as the compiled kernels want them."""

from copy import copy

import numpy as np
from scipy.spatial.distance import cdist

from vicinal._engine._accuracy import products_are_accurate, robust_centre
from vicinal._engine._kernels import TILE

# From so many coordinates (distance and values together) on, BLAS wins over the fused kernels; measured.  Sums without
# values turn earlier: nothing is kept.
_FEW = {np.dtype(np.float64): 192, np.dtype(np.float32): 1024}
_FEW_WITHOUT_VALUES = {np.dtype(np.float64): 64, np.dtype(np.float32): 512}

_SMALLEST = {np.dtype(np.float64): 1e-270, np.dtype(np.float32): 1e-24}
_MOST_HEADROOM = {np.dtype(np.float64): 600.0, np.dtype(np.float32): 40.0}  # exp of it, times any n, does not overflow
_SAMPLED_ROWS = 16


class Pairs:
    """Queries and points, centred, contiguous and of one precision; points optionally in another order."""

    def __init__(self, queries, points, log_weights, left_out, order=None):
        self.dtype = np.dtype(points.dtype)
        self.centre = robust_centre(points)
        centre = self.centre.astype(self.dtype)
        self.points = np.ascontiguousarray(points - centre if order is None else points[order] - centre)
        same = queries is points and order is None
        self.queries = self.points if same else np.ascontiguousarray(queries - centre, dtype=self.dtype)
        self.m, self.n, self.d = len(queries), len(points), points.shape[1]
        self.log_weights = None
        if log_weights is not None:
            self.log_weights = np.asarray(log_weights, dtype=self.dtype)
            if order is not None:
                self.log_weights = self.log_weights[order]
        self.left_out = np.full(self.m, -1, dtype=np.int64)
        if left_out is not None:
            self.left_out = np.array(left_out, dtype=np.int64)  # a copy: kernels take no read-only arrays
            if order is not None:
                place = np.empty(self.n, dtype=np.int64)
                place[order] = np.arange(self.n)
                self.left_out = np.where(self.left_out >= 0, place[self.left_out], -1)

        self.half_query_squares = 0.5 * np.einsum("ij,ij->i", self.queries, self.queries)
        self.half_point_squares = 0.5 * np.einsum("ij,ij->i", self.points, self.points)
        largest = 2.0 * float(max(self.half_query_squares.max(), self.half_point_squares.max()))
        self.accurate = products_are_accurate(largest, self.dtype)
        self.headroom = 0.0

    @property
    def symmetric(self):
        """Whether the queries are the points, pair for pair: no weights, none left out or each row itself."""
        if self.queries is not self.points or self.log_weights is not None:
            return False
        return bool(np.all(self.left_out == -1) or np.array_equal(self.left_out, np.arange(self.m)))

    def of(self, rows):
        """The pairs of some of the queries."""
        few = copy(self)
        few.queries = np.ascontiguousarray(self.queries[rows])
        few.half_query_squares, few.left_out, few.m = self.half_query_squares[rows], self.left_out[rows], len(rows)
        return few

    def many(self, n_values):
        """Whether BLAS should do the products: many coordinates, and accurate enough."""
        few = _FEW if n_values else _FEW_WITHOUT_VALUES
        return self.accurate and self.d + n_values >= few[self.dtype]

    @property
    def column_offsets(self):
        """What a column adds to the products q'z, or, without products, to the squares."""
        offsets = -self.half_point_squares if self.accurate else np.zeros(self.n, dtype=self.dtype)
        return offsets if self.log_weights is None else offsets + self.log_weights

    def log_sums(self, sums):
        """Log-sums of the scores from those the kernels made of offsets and products."""
        return sums - self.half_query_squares if self.accurate else sums

    @property
    def bounds(self):
        """What no score of a row exceeds by more than the headroom: distance zero to the heaviest point, and room for the
        rounding of products."""
        heaviest = 0.0 if self.log_weights is None else float(self.log_weights.max())
        if not self.accurate:
            return np.full(self.m, heaviest - self.headroom)
        return self.half_query_squares.astype(np.float64) + (heaviest + 1e-3 - self.headroom)

    def take_headroom(self, largest_value=1.0):
        """Lower the bounds towards where the nearest other points are, of points against themselves.

        Rows whose nearest score lies hundreds below its bound would underflow under it, and have to be done carefully.
        A row that sees itself never does; sums of exponentials times values must not overflow.
        """
        most = _MOST_HEADROOM[self.dtype] - np.log(max(largest_value, 1.0))
        if most <= 0 or self.n < 2 or self.left_out[0] == -1:
            return
        rows = np.arange(0, self.n, max(self.n // _SAMPLED_ROWS, 1))
        few, points = self.points[rows].astype(np.float64), self.points.astype(np.float64, copy=False)
        if self.accurate:
            half_squares = self.half_point_squares[rows, None] + self.half_point_squares - few @ points.T
        else:
            half_squares = 0.5 * cdist(few, points, "sqeuclidean")
        half_squares[np.arange(len(rows)), rows] = np.inf
        self.headroom = float(np.clip(half_squares.min(axis=1).max(), 0.0, most))

    @property
    def smallest(self):
        """The sum of a row under its bound below which terms may have been lost: such rows are done carefully."""
        return _SMALLEST[self.dtype]

    def packed(self):
        """The points in tiles, and what the fused kernels need to score them."""
        points = pack(self.points)
        offsets = np.full(len(points) * TILE, -np.inf, dtype=self.dtype)  # -inf beyond the last point
        offsets[: self.n] = self.column_offsets
        offsets = offsets.reshape(-1, TILE)
        return points, (self.queries, points, offsets, self.bounds, self.smallest, self.accurate, self.left_out)


def pack(rows):
    """(n, d) -> (n_tiles, d, TILE), padded with zeros."""
    n, d = rows.shape
    n_tiles = -(-n // TILE)
    packed = np.zeros((n_tiles * TILE, d), dtype=rows.dtype)
    packed[:n] = rows
    return np.ascontiguousarray(packed.reshape(n_tiles, TILE, d).transpose(0, 2, 1))


def unpack(tiles, n):
    """(n_tiles, d, TILE) -> (n, d)."""
    return tiles.transpose(0, 2, 1).reshape(-1, tiles.shape[1])[:n]
