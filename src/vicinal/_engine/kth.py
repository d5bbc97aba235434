"""The distance of the k-th nearest point, without a list of the k nearest."""

import numpy as np

from vicinal._engine import accuracy, tuning
from vicinal._engine.accuracy import product_error
from vicinal._engine.contract import Placed, Queries
from vicinal._engine.neighbors import nearest
from vicinal._engine.work.blocks import Blocks
from vicinal._engine.work.pool import one_blas_thread


def kth_squares(placed: Placed, queries: Queries, k: int) -> np.ndarray:
    """Return the squared distance of each query from the k-th nearest of the points, shape (m,); for few points.

    Products find the point, and differences its distance. The exact search is used for queries for which products are not accurate
    enough.

    Parameters
    ----------
    placed : Placed
        A placement without weights, except those of points that are absent.
    queries : Queries
    k : int
        At most the number of points that are not left out for a query.
    """
    n = len(placed.points.rows)
    points = placed.float64_images(Queries())
    halves = 0.5 * np.einsum("ij,ij->i", points, points)
    if placed.points.log_weights is not None:  # which only state which points are present
        halves = np.where(placed.points.log_weights > -np.inf, halves, np.inf)
    squares, norms = np.empty(queries.count(n)), np.empty(queries.count(n))
    with one_blas_thread():
        for block in Blocks.for_pairs(len(squares), n, tuning.ARRAY_BLOCK_PAIRS):
            some = queries.take(np.arange(block.start, block.stop), n)
            mine = placed.float64_images(some)
            order = halves - mine @ points.T  # half of the square, up to a constant that all points of a query share
            if some.left_out is not None:
                own = np.flatnonzero(some.left_out >= 0)
                order[own, some.left_out[own]] = np.inf
            found = np.argpartition(order, k - 1, axis=1)[:, k - 1]
            squares[block] = np.square(mine - points[found]).sum(axis=1)
            norms[block] = np.einsum("ij,ij->i", mine, mine)
    # A point at the squared distance D of q is at most 2 |q|^2 + 2 D from the origin, squared.
    errors = 4.0 * product_error(3.0 * norms + 2.0 * squares, points.shape[1], np.float64)
    doubtful = np.flatnonzero(~(errors <= accuracy.VISIBLE_SHARE * squares))
    if len(doubtful):
        squares[doubtful] = nearest(placed, queries.take(doubtful, n), k).scores[:, -1]
    return squares
