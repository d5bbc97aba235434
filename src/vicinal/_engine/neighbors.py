"""The nearest points of queries, and pairs above a floor, exactly: products or a tree propose, and scores in float64 decide.

All backends therefore agree, whatever the rounding of their products.  Ties are resolved by the order of the points.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from vicinal._engine import tuning
from vicinal._engine.accuracy import TIED
from vicinal._engine.queries import Queries
from vicinal._engine.row_search import Neighbors, RankedBy, RowSearch, best_of
from vicinal._engine.work.blocks import Blocks
from vicinal._engine.work.pool import in_order
from vicinal._engine.work.sharing import NOTHING, made_by_all

if TYPE_CHECKING:
    from scipy.spatial import KDTree

    from vicinal._engine.contract import Placed

Pairs = tuple[np.ndarray, np.ndarray]  # (query, point)
ListedPairs = tuple[np.ndarray, np.ndarray, np.ndarray]  # (query, point, score, squared distance or weight)


def nearest(placed: "Placed", queries: Queries, k: int, origin: np.ndarray | None = None) -> Neighbors:
    """Return the k points of positive weight with the smallest distances, or the largest inner products, decided in float64.

    Parameters
    ----------
    origin : array of shape (k_dims,), optional
        The image of the problem's centre.  Given one, the best are the largest inner products of the uncentred
        images; otherwise they are the smallest distances.
    """
    n, weights = len(placed.points.rows), placed.points.log_weights
    present = np.arange(n) if weights is None else np.flatnonzero(weights > -np.inf)
    left_out = queries.left_out
    if len(present) < n and left_out is not None:
        numbers = np.append(np.full(n, -1), -1)
        numbers[present] = np.arange(len(present))
        left_out = numbers[left_out]
    if len(present) < k + (left_out is not None and bool((left_out >= 0).any())):
        raise ValueError(f"k={k} neighbours were requested, but some queries have fewer points.")
    if origin is None and _tree_is_faster(len(present), placed.n_coordinates, queries.count(n)):
        found = _by_tree(placed, present, queries, left_out, k)
    else:
        found = _by_products(placed, present, queries, left_out, k, origin)
    return found if len(present) == n else found._replace(indices=present[found.indices])


def _by_products(
    placed: "Placed",
    present: np.ndarray,
    queries: Queries,
    left_out: np.ndarray | None,
    k: int,
    origin: np.ndarray | None,
) -> Neighbors:
    """Find neighbours by `RowSearch`, on as many points at a time as have small images."""
    asked = placed.float64_images(queries) if origin is None else placed.float64_images(queries) + origin
    ranked_by: RankedBy = "distance" if origin is None else "product"
    search = RowSearch(
        asked, k, ranked_by, threads=placed.threads, left_out=left_out, compiled=placed.compiled
    )  # fmt: skip
    for part in Blocks(len(present), max(tuning.LISTED_BYTES // (8 * placed.n_coordinates), tuning.ALGEBRA_ROWS)):
        points = placed.float64_images(Queries(positions=present[part]))
        search.add(part.start, points if origin is None else points + origin)
    return search.found()


def _tree_is_faster(n: int, n_coordinates: int, m: int) -> bool:
    """Return whether a k-d tree finds neighbours faster than products with all points: of many points with few coordinates."""
    # More than a hundred coordinates would need more points than there can be, and higher powers overflow.
    growth = tuning.TREE_GROWTH ** min(n_coordinates, 100)
    return m >= max(tuning.TREE_FROM_QUERIES, 1) and n >= tuning.TREE_FROM_POINTS * growth


def _by_tree(placed: "Placed", present: np.ndarray, queries: Queries, left_out: np.ndarray | None, k: int) -> Neighbors:
    """Find neighbours in a k-d tree.

    A query is decided if the last point that the tree lists is clearly farther than the k-th.  The others, with many ties at the k-th
    place, are left to products.
    """
    n, m = len(present), queries.count(len(placed.points.rows))
    reach = min(k + 1 + tuning.SPARE_NEIGHBORS, n)
    points = placed.float64_images(Queries(positions=present) if n < len(placed.points.rows) else Queries())
    tree = made_by_all(lambda: kd_tree(points), kd_tree, points)
    asked = placed.float64_images(queries)

    def work(part: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        distance, point = tree.query(asked[part], reach)
        scores = -np.square(distance.reshape(-1, reach))
        last, point = scores[:, -1].copy(), point.reshape(-1, reach)
        if left_out is not None:
            scores[point == left_out[part, None]] = -np.inf
        point, scores = best_of(point, scores, k)
        return point, scores, np.flatnonzero((last >= (1.0 + 4.0 * TIED) * scores[:, -1]) & (reach < n))

    indices, scores, undecided = np.empty((m, k), dtype=np.int64), np.empty((m, k)), []
    parts = Blocks(m, max(-(-m // tuning.SEARCH_BLOCKS), tuning.TREE_FROM_QUERIES))
    for part, (point, score, open_ones) in zip(parts, in_order(work, parts, placed.threads, NOTHING), strict=True):
        indices[part], scores[part] = point, -score
        undecided.append(part.start + open_ones)
    again = np.concatenate(undecided)
    if len(again):
        some = queries.take(again, len(placed.points.rows))
        found = _by_products(placed, present, some, None if left_out is None else left_out[again], k, None)
        indices[again], scores[again] = found.indices, found.scores
    return Neighbors(indices, np.maximum.accumulate(scores, axis=1))


def kd_tree(points: np.ndarray) -> "KDTree":
    """Return a k-d tree of points (n, k)."""
    from scipy.spatial import KDTree

    return KDTree(points, balanced_tree=False)  # building a balanced tree takes quadratic time for equal rows


def nearest_with_ties(placed: "Placed", queries: Queries, k: int) -> Iterator[ListedPairs]:
    """Yield blocks of (query, point, squared distance): each query's k nearest points and all that tie with the k-th.

    The pairs of a query come together, nearest first.
    """
    n, weights = len(placed.points.rows), placed.points.log_weights
    n_points = n if weights is None else int((weights > -np.inf).sum())
    reach = max(min(k + tuning.SPARE_NEIGHBORS, n_points - (queries.left_out is not None)), k)
    near = placed.nearest(queries, reach)
    kth = near.scores[:, k - 1]
    tied = near.scores <= kth[:, None] * (1.0 + 2.0 * TIED)
    query, place = np.nonzero(tied & ~tied[:, -1:])
    yield query, near.indices[query, place], near.scores[query, place]
    many = np.flatnonzero(tied[:, -1])  # ties beyond the last one that was found
    if not len(many):
        return
    for query, point, scores in listed_pairs(placed, queries.take(many, n), -0.5 * kth[many] * (1.0 + 4.0 * TIED)):
        squares = -2.0 * scores
        order = np.lexsort((point, squares, query))
        query, point, squares = query[order], point[order], squares[order]
        kept = squares <= kth[many[query]] * (1.0 + 2.0 * TIED)
        yield many[query[kept]], point[kept], squares[kept]


def groups_of_queries(query: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where the pairs of each query start, and how many there are."""
    starts = np.flatnonzero(np.append(True, query[1:] != query[:-1])) if len(query) else np.empty(0, np.intp)
    return starts, np.diff(np.append(starts, len(query)))


def candidates_of_scores(
    scores: np.ndarray, rows: slice, error: Callable[[slice, np.ndarray], np.ndarray], floors: np.ndarray
) -> Pairs:
    """Return the candidates of a block of queries, from their scores with all points.

    Parameters
    ----------
    scores : float64 array of shape (block, n)
    rows : slice
        The queries of the block.
    error : callable
        ``error(rows, least)``: a bound on the error of scores of these queries that reach `least`.
    floors : see `Placed.candidates`
    """
    least = floors[rows] - error(rows, floors[rows])
    least = np.maximum(least, np.finfo(scores.dtype).min)  # a point that is left out has the score -inf
    query, point = np.divmod(np.flatnonzero(scores >= least[:, None]), scores.shape[1])  # faster than `nonzero`
    return query + rows.start, point


def listed_pairs(placed: "Placed", queries: Queries, floors: np.ndarray) -> Iterator[ListedPairs]:
    """Yield blocks of (query, point, score) with scores in float64 of at least ``floors``, grouped by query."""
    score = placed.pair_scores(queries)
    for query, point in placed.candidates(queries, floors):
        if len(query) == 0:
            continue
        scores = score(query, point)
        # A floor that lies above the best score because of rounding (with scores of 1e20, or in float32) must not lose a
        # query's only neighbour.
        starts, counts = groups_of_queries(query)
        best = np.repeat(np.maximum.reduceat(scores, starts), counts)
        kept = scores >= np.minimum(floors[query] - 1e-6, best)
        yield query[kept], point[kept], scores[kept]
