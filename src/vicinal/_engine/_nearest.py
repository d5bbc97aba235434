"""Exact neighbours: a backend proposes candidates with a margin, and scores in float64 decide.

All backends therefore agree, whatever their products round.  Ties go by the order of the points.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from vicinal._engine._contract import Placed, Queries, to_images

_BLOCK_BYTES = 2**25  # of differences that are held at a time


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
    decide = _Decision(placed, queries)
    done = 0
    for query, point in placed.candidates(queries, k=k):
        ranked = decide.squares(query, point) if origin is None else -decide.products(query, point, origin)
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
    return Neighbors(indices, scores if origin is None else -scores)


def listed_pairs(
    placed: Placed, queries: Queries, floors: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield blocks of (query, point, score) with scores in float64 of at least ``floors``, grouped by query."""
    decide = _Decision(placed, queries)
    log_weights = placed.points.log_weights
    for query, point in placed.candidates(queries, floors=floors):
        scores = -0.5 * decide.squares(query, point)
        if log_weights is not None:
            scores += log_weights[point]
        # A floor that lies above the best score by rounding must not lose the only neighbour.
        kept = scores >= floors[query] - 1e-6
        yield query[kept], point[kept], scores[kept]


class _Decision:
    """Scores of listed pairs in float64, from differences."""

    def __init__(self, placed: Placed, queries: Queries):
        rows = placed.points.rows.astype(np.float64, copy=False)
        self._points = to_images(rows, placed.metric)
        if queries.rows is not None:
            self._queries = to_images(queries.rows.astype(np.float64, copy=False), placed.metric)
        else:
            self._queries = self._points if queries.positions is None else self._points[queries.positions]

    def squares(self, query: np.ndarray, point: np.ndarray) -> np.ndarray:
        """Squared distances of listed pairs."""
        squares = np.empty(len(query))
        step = max(_BLOCK_BYTES // (8 * self._points.shape[1]), 1)
        for start in range(0, len(query), step):
            part = slice(start, start + step)
            difference = self._queries[query[part]] - self._points[point[part]]
            squares[part] = np.einsum("ij,ij->i", difference, difference)
        return squares

    def products(self, query: np.ndarray, point: np.ndarray, origin: np.ndarray) -> np.ndarray:
        """Inner products of listed pairs of uncentred images."""
        products = np.empty(len(query))
        step = max(_BLOCK_BYTES // (16 * self._points.shape[1]), 1)
        for start in range(0, len(query), step):
            part = slice(start, start + step)
            mine, theirs = self._queries[query[part]] + origin, self._points[point[part]] + origin
            products[part] = np.einsum("ij,ij->i", mine, theirs)
        return products
