"""Exact neighbours: a backend proposes candidates with a margin, and scores in float64 decide.

All backends therefore agree, whatever the rounding of their products.  Ties are resolved by the order of the points.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vicinal._engine import tuning
from vicinal._engine.accuracy import TIED, product_error
from vicinal._engine.contract import Placed, Queries
from vicinal._engine.work.blocks import Blocks
from vicinal._engine.work.pool import in_order, openmp_threads
from vicinal._engine.work.sharing import NOTHING, made_by_all

if TYPE_CHECKING:
    from scipy.spatial import KDTree

Pairs = tuple[np.ndarray, np.ndarray]  # (query, point)
ListedPairs = tuple[np.ndarray, np.ndarray, np.ndarray]  # (query, point, score, squared distance or weight)
# A function that finds the nearest points of some queries: squared distances, the points, and a bound on the error.
Find = Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray, np.ndarray]]


class Neighbors(NamedTuple):
    """``indices`` (m, k) of the points, best first, and ``scores`` (m, k): squared distances or inner products."""

    indices: np.ndarray
    scores: np.ndarray


def nearest(placed: Placed, queries: Queries, k: int, origin: np.ndarray | None = None) -> Neighbors:
    """Return the k points with the best scores, decided in float64.

    Parameters
    ----------
    origin : array of shape (k_dims,), optional
        The image of the problem's centre.  Given one, the best are the largest inner products of the uncentred
        images; otherwise they are the smallest distances.
    """
    n = len(placed.points.rows)
    m = queries.count(n)
    indices, scores = np.empty((m, k), dtype=np.int64), np.empty((m, k))
    # Without log-weights a score is minus half the squared distance.
    score = placed.pair_scores(queries) if origin is None else _products(placed, queries, origin)
    done = 0
    for query, point in placed.candidates(queries, k=k):
        starts, counts = groups_of_queries(query)
        if (counts < k).any():
            raise ValueError(f"k={k} neighbours were requested, but some queries have fewer points.")
        rows = query[starts]
        indices[rows], scores[rows] = _best_of_groups(point, -score(query, point), starts, counts, k)
        done += len(rows)
    if done < m:
        raise ValueError(f"k={k} neighbours were requested, but some queries have no points.")
    return Neighbors(indices, 2.0 * scores if origin is None else -scores)


def _best_of_groups(
    point: np.ndarray, ranked: np.ndarray, starts: np.ndarray, counts: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the k points of each group of pairs with the smallest values, smallest first, and the values, both (groups, k)."""
    width, group = int(counts.max(initial=k)), np.repeat(np.arange(len(starts)), counts)
    if width * len(starts) > 4 * len(
        point
    ):  # a few groups have many ties, so a table of all groups would be mostly empty
        order = np.lexsort((point, ranked, group))
        best = order[starts[:, None] + np.arange(k)]
        return point[best], ranked[best]
    place = group, np.arange(len(point)) - np.repeat(starts, counts)
    points, values = np.full((len(starts), width), np.iinfo(np.int64).max), np.full((len(starts), width), np.inf)
    points[place], values[place] = point, ranked
    best = np.lexsort((points, values), axis=1)[:, :k]
    return np.take_along_axis(points, best, axis=1), np.take_along_axis(values, best, axis=1)


def nearest_with_ties(placed: Placed, queries: Queries, k: int) -> Iterator[ListedPairs]:
    """Yield blocks of (query, point, squared distance): each query's k nearest points and all that tie with the k-th.

    The pairs of a query come together, nearest first.
    """
    score = placed.pair_scores(queries)
    for query, point in placed.candidates(queries, k=k):
        squares = -2.0 * score(query, point)
        order = np.lexsort((point, squares, query))
        query, point, squares = query[order], point[order], squares[order]
        starts, counts = groups_of_queries(query)
        kth = squares[starts + np.minimum(counts, k) - 1]
        kept = squares <= np.repeat(kth * (1.0 + 2.0 * TIED), counts)
        yield query[kept], point[kept], squares[kept]


def groups_of_queries(query: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where the pairs of each query start, and how many there are."""
    starts = np.flatnonzero(np.append(True, query[1:] != query[:-1])) if len(query) else np.empty(0, np.intp)
    return starts, np.diff(np.append(starts, len(query)))


def candidates_of_scores(
    scores: np.ndarray,
    rows: slice,
    error: Callable[[slice, np.ndarray], np.ndarray],
    k: int | None,
    floors: np.ndarray | None,
) -> Pairs:
    """Return the candidates of a block of queries, from their scores with all points.

    Parameters
    ----------
    scores : float64 array of shape (block, n)
    rows : slice
        The queries of the block.
    error : callable
        ``error(rows, least)``: a bound on the error of scores of these queries that reach `least`.
    k, floors : see `Placed.candidates`
    """
    n = scores.shape[1]
    if floors is not None:
        least = floors[rows] - error(rows, floors[rows])
    else:
        kth = _kth_best(scores, min(k or n, n))
        with np.errstate(invalid="ignore"):
            least = kth - 2.0 * error(rows, kth) - 2.0 * TIED * np.abs(kth)
        least = np.where(kth > -np.inf, least, -np.inf)
    least = np.maximum(least, np.finfo(scores.dtype).min)  # a point that is left out has the score -inf
    query, point = np.divmod(np.flatnonzero(scores >= least[:, None]), n)  # faster than `nonzero` of two axes
    return query + rows.start, point


def _kth_best(scores: np.ndarray, k: int) -> np.ndarray:
    """Return the k-th largest score of each row.

    If there are many scores, a sample gives a level that is nearly always below the k-th largest, and only larger scores are
    sorted.
    """
    m, n = scores.shape
    in_sample = -(-k // tuning.LEVEL_STEP)
    in_sample += 2 + int(3.0 * np.sqrt(in_sample))
    if n < tuning.LEVEL_STEP * 4 * in_sample:
        return np.partition(scores, n - k, axis=1)[:, n - k]
    sample = scores[:, :: tuning.LEVEL_STEP]
    place = sample.shape[1] - in_sample
    levels = np.partition(sample, place, axis=1)[:, place]
    found = np.empty(m)
    for i in range(m):
        some = scores[i][scores[i] >= levels[i]]
        some = some if len(some) >= k else scores[i]
        found[i] = np.partition(some, len(some) - k)[len(some) - k]
    return found


def search_is_faster(placed: Placed, queries: Queries, k: int | None) -> bool:
    """Return whether `searched` is faster than computing all scores: for many queries, few neighbours and no weights."""
    n = len(placed.points.rows)
    return (
        k is not None
        and placed.points.log_weights is None
        and queries.count(n) >= tuning.SEARCH_FROM_QUERIES
        and 8 * (k + 1 + tuning.SPARE_NEIGHBORS) <= n
        # A tree takes time for every neighbour that it lists, and for every coordinate; scores take time for every point.
        and (placed.n_coordinates > tuning.TREE_COORDINATES or tuning.TREE_FROM_POINTS * k * placed.n_coordinates <= n)
    )


def searched(
    placed: Placed, queries: Queries, k: int, threads: int, scored: Callable[[Queries], Iterator[Pairs]]
) -> Iterator[Pairs]:
    """Yield candidates by a search: a k-d tree for few coordinates, scikit-learn's matrix products for more.

    A query is decided if the last point that the search lists is clearly farther than the k-th.  The others (if there
    are ties beyond the last place, or distances are lost in the rounding of products) get their candidates from
    ``scored``, which computes the scores of all points.
    """
    n = len(placed.points.rows)
    m, reach = queries.count(n), min(k + 1 + tuning.SPARE_NEIGHBORS, n)
    in_tree = placed.n_coordinates <= tuning.TREE_COORDINATES
    find = _tree(placed.float64_images(Queries()), threads) if in_tree else _brute(placed, threads)
    step = max(
        min(tuning.LISTED_BYTES // (64 * reach), -(-m // tuning.SEARCH_BLOCKS)),
        tuning.SEARCH_FROM_QUERIES,
        tuning.SEARCH_PAIRS // n,
    )

    def work(start: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        some = np.arange(start, min(start + step, m))
        squares, point, error = find(placed.float64_images(queries.take(some, n)), reach)
        last = squares[:, -1].copy()
        if queries.left_out is not None:
            squares[point == queries.left_out[some, None]] = np.inf
        kth = (np.partition(squares, k - 1, axis=1)[:, k - 1] + error) * (1.0 + 2.0 * TIED)
        decided = (kth < last - error) | (reach == n)
        row, place = np.nonzero(decided[:, None] & (squares <= (kth + error)[:, None]) & (squares < np.inf))
        return some[row], point[row, place], some[~decided]

    left_open = []
    for query, point, undecided in in_order(work, range(0, m, step), 1, NOTHING):  # `find` uses its own threads
        left_open.append(undecided)
        yield query, point
    rest = np.concatenate(left_open)
    if len(rest):
        for query, point in scored(queries.take(rest, n)):
            yield rest[query], point


def _tree(points: np.ndarray, threads: int) -> Find:
    """Return squared distances by a k-d tree, sorted, with the points, and a bound on the errors of the squares."""
    tree = made_by_all(lambda: kd_tree(points), kd_tree, points)

    def find(queries: np.ndarray, reach: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        distance, point = tree.query(queries, reach, workers=threads)
        return distance**2, point, 1e-14 * distance[:, -1] ** 2

    return find


def kd_tree(points: np.ndarray) -> "KDTree":
    """Return a k-d tree of points (n, k)."""
    from scipy.spatial import KDTree

    return KDTree(points, balanced_tree=False)  # building a balanced tree takes quadratic time for equal rows


def _brute(placed: Placed, threads: int) -> Find:
    """Return the same by scikit-learn's tiles of matrix products, on as many points at a time as have small images."""
    from sklearn.neighbors import NearestNeighbors

    n, k = len(placed.points.rows), placed.n_coordinates
    parts = list(Blocks(n, max(tuning.LISTED_BYTES // (8 * k), tuning.ALGEBRA_ROWS)))
    only = placed.float64_images(Queries()) if len(parts) == 1 else None

    def find(queries: np.ndarray, reach: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        squares, points = np.empty((len(queries), 0)), np.empty((len(queries), 0), dtype=np.int64)
        for part in parts:
            images = placed.float64_images(Queries(positions=np.arange(n)[part])) if only is None else only
            search = NearestNeighbors(algorithm="brute").fit(images)
            with openmp_threads(threads):
                distance, point = search.kneighbors(queries, min(reach, len(images)))
            squares, points = np.hstack([squares, distance**2]), np.hstack([points, point + part.start])
            if len(parts) > 1:
                order = np.argsort(squares, axis=1, kind="stable")[:, :reach]
                squares, points = np.take_along_axis(squares, order, 1), np.take_along_axis(points, order, 1)
        # A point at the squared distance D of q is at most 2 |q|^2 + 2 D from the origin, squared; the farthest
        # row, which may be an outlier, does not matter.
        reached = 3.0 * np.einsum("ij,ij->i", queries, queries) + 2.0 * squares[:, -1]
        return squares, points, 2.0 * product_error(reached, k, np.float64)

    return find


def listed_pairs(placed: Placed, queries: Queries, floors: np.ndarray) -> Iterator[ListedPairs]:
    """Yield blocks of (query, point, score) with scores in float64 of at least ``floors``, grouped by query."""
    score = placed.pair_scores(queries)
    for query, point in placed.candidates(queries, floors=floors):
        if len(query) == 0:
            continue
        scores = score(query, point)
        # A floor that lies above the best score because of rounding (with scores of 1e20, or in float32) must not lose a
        # query's only neighbour.
        starts, counts = groups_of_queries(query)
        best = np.repeat(np.maximum.reduceat(scores, starts), counts)
        kept = scores >= np.minimum(floors[query] - 1e-6, best)
        yield query[kept], point[kept], scores[kept]


def _products(placed: Placed, queries: Queries, origin: np.ndarray) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Return a function that gives the inner products of listed pairs of uncentred images, in float64."""
    images_of = placed.float64_pairs(queries)

    def products(query: np.ndarray, point: np.ndarray) -> np.ndarray:
        found = np.empty(len(query))
        for part, mine, theirs in images_of(query, point):
            found[part] = np.einsum("ij,ij->i", mine + origin, theirs + origin)
        return found

    return products
