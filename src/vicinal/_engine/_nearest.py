"""Exact neighbours: a backend proposes candidates with a margin, and scores in float64 decide.

All backends therefore agree, whatever their products round.  Ties go by the order of the points.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from vicinal._engine._contract import Placed, Queries, listed_parts, to_images


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
        ranked = -score(query, point)
        order = np.lexsort((point, ranked, query))
        query, point, ranked = query[order], point[order], ranked[order]
        starts = np.flatnonzero(np.append(True, query[1:] != query[:-1]))
        best = starts[:, None] + np.arange(k)
        rows = query[starts]
        if len(rows) and (np.diff(np.append(starts, len(query))) < k).any():
            raise ValueError(f"k={k} neighbours were asked for, but some queries may see fewer points.")
        indices[rows], scores[rows] = point[best], ranked[best]
        done += len(rows)
    if done < m:
        raise ValueError(f"k={k} neighbours were asked for, but some queries may see none.")
    return Neighbors(indices, 2.0 * scores if origin is None else -scores)


def listed_pairs(
    placed: Placed, queries: Queries, floors: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield blocks of (query, point, score) with scores in float64 of at least ``floors``, grouped by query."""
    score = placed.pair_scores(queries)
    for query, point in placed.candidates(queries, floors=floors):
        if len(query) == 0:
            continue
        scores = score(query, point)
        # A floor that lies above the best score by rounding (beside scores of 1e20, or in float32) must not lose a
        # query's only neighbour.
        starts = np.flatnonzero(np.append(True, query[1:] != query[:-1]))
        best = np.repeat(np.maximum.reduceat(scores, starts), np.diff(np.append(starts, len(query))))
        kept = scores >= np.minimum(floors[query] - 1e-6, best)
        yield query[kept], point[kept], scores[kept]


def _products(placed: Placed, queries: Queries, origin: np.ndarray):
    """A function that gives the inner products of listed pairs of uncentred images, in float64."""
    theirs = to_images(placed.points.rows.astype(np.float64, copy=False), placed.metric) + origin
    if queries.rows is not None:
        mine = to_images(queries.rows.astype(np.float64, copy=False), placed.metric) + origin
    else:
        mine = theirs if queries.positions is None else theirs[queries.positions]

    def products(query: np.ndarray, point: np.ndarray) -> np.ndarray:
        found = np.empty(len(query))
        for part in listed_parts(len(query), 2 * theirs.shape[1]):
            found[part] = np.einsum("ij,ij->i", mine[query[part]], theirs[point[part]])
        return found

    return products
