"""Scores of queries against points with frames, block by block, for listed pairs and sums in array arithmetic."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_namespace

from vicinal._engine import accuracy
from vicinal._engine.contract import Array
from vicinal._engine.queries import Queries
from vicinal._engine.reference.arrays import like
from vicinal._engine.work.blocks import columns_of

if TYPE_CHECKING:
    from vicinal._engine.frames.placed import PlacedFrames


class Skips:
    """Pairs to leave out: for each query, points by position.

    Parameters
    ----------
    queries, points : integer arrays of the same length
        The pairs.
    n_queries : int
    """

    def __init__(self, queries: np.ndarray, points: np.ndarray, n_queries: int) -> None:
        order = np.argsort(queries, kind="stable")
        self.queries, self.points = queries[order], points[order]
        self.n_queries = n_queries

    @classmethod
    def of(cls, queries: Queries, n_queries: int, more: tuple[Any, Any] | None = None) -> "Skips | None":
        """Return the positions that the queries leave out, and further pairs; None if there are none."""
        pairs = [np.empty((2, 0), dtype=np.int64)]
        if queries.left_out is not None:
            some = np.flatnonzero(queries.left_out >= 0)
            pairs.append(np.stack([some, queries.left_out[some]]))
        if more is not None:
            pairs.append(np.asarray(more, dtype=np.int64))
        left, right = np.concatenate(pairs, axis=1)
        return cls(left, right, n_queries) if len(left) else None

    def block(self, rows: slice) -> tuple[np.ndarray, np.ndarray]:
        """Return positions in the block and points of the pairs of a slice of queries."""
        start, stop = np.searchsorted(self.queries, [rows.start, rows.stop])
        return self.queries[start:stop] - rows.start, self.points[start:stop]

    def take(self, picked: np.ndarray) -> "Skips":
        """Return the pairs of some queries, renumbered."""
        position = np.full(self.n_queries, -1)
        position[picked] = np.arange(len(picked))
        kept = position[self.queries] >= 0
        return Skips(position[self.queries[kept]], self.points[kept], len(picked))


class FrameScorer:
    """Scores of blocks of queries against all points under one depth and noise, as `_BlockScorer` of `reference/arrays.py` gives them.

    ``shift`` is subtracted.  If products are not accurate, parts along the directions are removed in float64.
    """

    def __init__(self, placed: "PlacedFrames", rows: np.ndarray, skips: Skips | None, listing: bool) -> None:
        self._placed, self._skips = placed, skips
        self.rows = self.images = like(rows, placed._rows)
        self.m = len(rows)
        self.shift = float(placed._shift[0, 0])
        self._errors = 4.0 * placed.product_errors(rows)
        self._by_products = self._errors < accuracy.LARGEST_SCREENED_ERROR if listing else placed.are_accurate(rows)

    def scores(self, rows: slice, points: np.ndarray | None = None) -> Array:
        """Return the scores of a block with all points, or with those at some positions, shape (R, n)."""
        q, good = self.rows[rows], self._by_products[rows]
        seen = slice(0, len(self._placed.points.rows)) if points is None else points
        scores = empty_like((len(q), len(self._placed.points.rows) if points is None else len(points)), q)
        for some, fill in ((np.flatnonzero(good), self._products), (np.flatnonzero(~good), self._removal)):
            if len(some) == len(q):
                fill(q, seen, scores)
            elif len(some):
                part = empty_like((len(some), scores.shape[1]), q)
                fill(q[some], seen, part)
                scores[some] = part
        if self._skips is not None:
            i, j = self._skips.block(rows)
            here, columns = columns_of(seen, j)
            scores[i[here], columns] = -math.inf
        return scores

    def _products(self, q: Array, points: slice | np.ndarray, scores: Array) -> None:
        """constants - |q - x|^2 / (2 sigma^2) + sum_l gains_l (V_l'q - offsets_l)^2, gains (1/sigma^2 - 1/lambda_l) / 2."""
        placed = self._placed
        half_precision = 0.5 / float(placed.noises[0])
        inverse_variances, constants, _ = placed._tables(points, q)
        xp = array_namespace(q)
        xp.matmul(q, placed._rows[points].T, out=scores)
        scores *= 2.0 * half_precision
        scores -= half_precision * (q * q).sum(1)[:, None]
        scores += constants[0, 0] - half_precision * placed._squares[points]
        along = empty_like(scores.shape, q)
        for l in range(len(placed._variances)):
            xp.matmul(q, placed._frames[l, points].T, out=along)
            along -= placed._offsets[l, points]
            along *= along
            along *= half_precision - 0.5 * inverse_variances[0, l]
            scores += along

    def _removal(self, q: Array, points: slice | np.ndarray, scores: Array) -> None:
        placed, xp = self._placed, array_namespace(q)
        q = like(q, q, xp.float64)
        n = scores.shape[1]
        tile = placed._block_shape("project_by_removal", len(q))[1]
        rows = max(2**20 // (tile * q.shape[1]), 1)
        for first in range(0, len(q), rows):
            block = slice(first, min(first + rows, len(q)))
            for start in range(0, n, tile):
                part = slice(start, min(start + tile, n))
                some = part if isinstance(points, slice) else points[part]
                residuals, squares = placed._by_kernel(q[block], some, placed.arithmetic.project_by_removal)
                inverse_variances, constants, precisions = placed._tables(some, q)
                with np.errstate(over="ignore"):  # a point infinitely far from a query has weight 0
                    quadratic = precisions[0] * residuals[0]
                    for square, inverse in zip(squares, inverse_variances[0], strict=True):
                        quadratic += square * inverse
                    scores[block, part] = constants[0, 0] - 0.5 * quadratic

    def error(self, rows: slice, least: np.ndarray) -> np.ndarray:
        """Return a bound on the difference between scores of the rows that reach `least` and those in float64."""
        rounding = 4.0 * self.rows.shape[1] * float(np.finfo(self._placed.points.rows.dtype).eps)
        by_removal = rounding * (accuracy.LARGEST_SCREENED_ERROR + np.where(np.isfinite(least), np.abs(least), 0.0))
        return np.where(self._by_products[rows], self._errors[rows], by_removal)


def empty_like(shape: tuple[int, ...], q: Array, float64: bool = False) -> Array:
    """Return a new array of the namespace, device and dtype of `q`."""
    xp = array_namespace(q)
    options = {} if is_numpy_namespace(xp) else {"device": q.device}
    return xp.empty(shape, dtype=xp.float64 if float64 else q.dtype, **options)
