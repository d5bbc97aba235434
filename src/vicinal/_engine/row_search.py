"""The best rows of a table for each query, block by block: for many columns, and for tables that are larger than memory.

Fast products in the working precision determine which rows may be among the best, with a margin for their rounding; scores
in float64, of the rows as they were given, decide while the block is in memory.  Only the best rows of each query are kept.
Compiled kernels (`cpu/search_kernels.py`) and NumPy give the same results.
"""

from importlib import import_module
from typing import Any, Literal, NamedTuple

import numpy as np

from vicinal._engine import tuning
from vicinal._engine.accuracy import FLOAT32, FLOAT64, SAME_DIRECTION, TIED, round_centre
from vicinal._engine.contract import listed_parts
from vicinal._engine.neighbors import Neighbors, groups_of_queries
from vicinal._engine.work.blocks import Blocks
from vicinal._engine.work.pool import in_order

RankedBy = Literal["distance", "product", "cosine"]
# Lengths between which products and their quotients by lengths neither overflow nor lose digits as subnormal numbers.
_LENGTHS = {FLOAT32: (1e-12, 1e12), FLOAT64: (1e-140, 1e140)}
_ROUNDINGS = 16  # the rounding errors of a score by products, in addition to one per column


class _Table(NamedTuple):
    """Rows as given and in the form in which they are multiplied, the lengths of the latter, and the factors of the given rows."""

    given: np.ndarray
    multiplied: np.ndarray
    lengths: np.ndarray
    factors: np.ndarray


class _Margins(NamedTuple):
    """``products * scale + offset`` is the score of a row, up to ``extra`` plus ``slack`` times the length of the query."""

    scale: np.ndarray
    offset: np.ndarray
    extra: np.ndarray
    slack: np.ndarray


class RowSearch:
    """The k best rows for each query, of those that were added so far.

    Parameters
    ----------
    queries : array of shape (m, d), float32 or float64
    k : int
    ranked_by : {"distance", "product", "cosine"}
        The smallest Euclidean distance, the largest inner product, or the largest cosine, which rows of zeros do not have.
    threads : int
    left_out : int array of shape (m,), optional
        A row of the table that is left out for each query, or -1.
    compiled : bool
        Whether to use compiled kernels.
    """

    def __init__(
        self,
        queries: np.ndarray,
        k: int,
        ranked_by: RankedBy,
        *,
        threads: int,
        left_out: np.ndarray | None = None,
        compiled: bool,
    ) -> None:
        m = len(queries)
        self._kernels: Any = import_module("vicinal._engine.cpu.search_kernels") if compiled else None
        self._given, self._ranked_by, self._threads = queries, ranked_by, threads
        self._centre: np.ndarray | None = None
        self._queries: dict[np.dtype, _Table] = {}
        self._left_out = np.full(m, -1) if left_out is None else left_out.astype(np.int64)
        self._scores, self._rows = np.full((m, k), -np.inf), np.full((m, k), -1)

    def add(self, start: int, rows: np.ndarray) -> None:
        """Add the rows of the table from `start` on; blocks must be added in the order of the table."""
        if self._centre is None and self._ranked_by == "distance":
            self._centre = round_centre(rows)
        dtype = np.result_type(rows, self._given)
        table, queries = self._table(rows, dtype), self._queries_in(dtype)
        if dtype == FLOAT32 and max(table.lengths.max(), queries.lengths.max()) > _LENGTHS[dtype][1]:
            table, queries = self._table(rows, FLOAT64), self._queries_in(FLOAT64)
        margins = _margins(table, self._ranked_by)
        blocks = Blocks(len(self._rows), min(tuning.SEARCH_QUERIES, -(-len(self._rows) // self._threads)))
        for _ in in_order(lambda part: self._take(part, queries, start, table, margins), blocks, self._threads):
            pass

    def found(self) -> Neighbors:
        """Return the best rows, best first, and their products, or squared distances (for cosines: of the unit vectors)."""
        scores = np.minimum.accumulate(self._scores, axis=1)  # tied ones may differ in their last digits
        return Neighbors(self._rows, scores if self._ranked_by == "product" else -scores)

    def _take(self, part: slice, queries: _Table, start: int, table: _Table, margins: _Margins) -> None:
        products = queries.multiplied[part] @ table.multiplied.T
        sizes, left_out = queries.lengths[part], self._left_out[part] - start
        k, floors = self._rows.shape[1], np.full(len(products), -np.inf)
        if self._rows[part.start, -1] < 0 and len(table.given) > k:
            floors = _floors(products, sizes, margins, k, left_out)
        if self._kernels is None:
            self._take_in_numpy(
                part, _Table(*(column[part] for column in queries)), products, start, table, margins, floors
            )
            return
        self._kernels.take_best(
            products, queries.given[part], sizes, queries.factors[part], table.given, table.factors,
            margins.scale, margins.offset + margins.extra, margins.slack, self._left_out[part], start,
            getattr(self._kernels, self._ranked_by.upper()), _margin_of_floors(products), floors,
            self._scores[part], self._rows[part],
        )  # fmt: skip

    def _take_in_numpy(
        self, part: slice, queries: _Table, products: np.ndarray, start: int, table: _Table, margins: _Margins,
        floors: np.ndarray,
    ) -> None:  # fmt: skip
        """The function of the kernel, in NumPy."""
        worst, sizes, margin = self._scores[part, -1], queries.lengths, _margin_of_floors(products)
        if self._ranked_by == "product":
            least = worst
        elif self._ranked_by == "distance":
            least = 0.5 * (worst + sizes**2) - margin * sizes**2
        else:
            least = sizes * (1.0 + 0.5 * worst)
        with np.errstate(invalid="ignore"):
            least = np.fmax(floors, least - margin * np.abs(least))
        highest = products * margins.scale + (margins.offset + margins.extra)
        highest += sizes[:, None].astype(products.dtype) * margins.slack
        query, row = np.nonzero(highest >= least[:, None])
        others = start + row != self._left_out[part][query]
        query, row = query[others], row[others]
        scores = np.empty(len(query))
        for some in listed_parts(len(query), table.given.shape[1], tuning.GATHERED_BYTES):
            scores[some] = _scores(queries, table, query[some], row[some], self._ranked_by)
        self._merge(part, query, start + row, scores)

    def _merge(self, part: slice, query: np.ndarray, row: np.ndarray, scores: np.ndarray) -> None:
        """Merge listed rows into the best of some queries; the first of tied rows are kept."""
        number, place = np.nonzero(self._rows[part] >= 0)
        query = np.append(number, query)
        row, scores = (
            np.append(self._rows[part][number, place], row),
            np.append(self._scores[part][number, place], scores),
        )
        order = np.lexsort((row, -scores, query))
        query, row, scores = query[order], row[order], scores[order]
        tie = TIED * np.abs(scores) + (SAME_DIRECTION if self._ranked_by == "cosine" else 0.0)
        apart = (query[1:] != query[:-1]) | (scores[1:] < scores[:-1] - tie[:-1])
        order = np.lexsort((row, np.cumsum(np.append(False, apart))))
        row, scores = row[order], scores[order]  # the order of the queries is kept
        starts, counts = groups_of_queries(query)
        place = np.arange(len(query)) - np.repeat(starts, counts)
        kept = place < self._rows.shape[1]
        self._rows[part][query[kept], place[kept]] = row[kept]
        self._scores[part][query[kept], place[kept]] = scores[kept]

    def _queries_in(self, dtype: np.dtype) -> _Table:
        if dtype not in self._queries:
            self._queries = {dtype: self._table(self._given, dtype)}
        return self._queries[dtype]

    def _table(self, rows: np.ndarray, dtype: np.dtype) -> _Table:
        given = np.ascontiguousarray(rows, dtype=dtype)
        if self._ranked_by == "cosine":
            lengths = self._lengths(given)
            low, high = _LENGTHS[dtype]
            if low < lengths.min() and lengths.max() < high:
                return _Table(given, given, lengths, 1.0 / lengths)
            return _Table(given, (given / lengths[:, None]).astype(dtype), np.ones(len(given)), 1.0 / lengths)
        multiplied = given if self._centre is None else (given - self._centre).astype(dtype)
        lengths = self._lengths(multiplied)
        if dtype == FLOAT64 and lengths.max() > _LENGTHS[dtype][1]:
            raise ValueError(
                f"rows must be shorter than {_LENGTHS[dtype][1]:g} for products and distances, got one of length "
                f"{lengths.max():.3g}. Scale the rows."
            )
        return _Table(given, multiplied, lengths, np.ones(len(given)))

    def _lengths(self, rows: np.ndarray) -> np.ndarray:
        squares = np.empty(len(rows))

        def work(part: slice) -> None:
            if self._kernels is None:
                squares[part] = np.square(rows[part], dtype=np.float64).sum(axis=1)
            else:
                self._kernels.square_lengths(rows[part], squares[part])

        with np.errstate(over="ignore", under="ignore"):
            for _ in in_order(work, Blocks(len(rows), tuning.ALGEBRA_ROWS), self._threads):
                pass
        lengths = np.sqrt(squares)
        odd = np.flatnonzero(~((lengths > 1e-140) & (lengths < 1e140)))
        if len(odd):  # squares of these overflow, or lose digits
            largest = np.abs(rows[odd]).max(axis=1, initial=0.0).astype(np.float64)
            scaled = rows[odd] / np.where(largest > 0, largest, 1.0)[:, None]
            lengths[odd] = largest * np.linalg.norm(scaled, axis=1)
        return lengths


def _margin_of_floors(products: np.ndarray) -> float:
    """Relative rounding of a floor in the precision of the products."""
    return 8.0 * float(np.finfo(products.dtype).eps)


def _scores(queries: _Table, table: _Table, query: np.ndarray, row: np.ndarray, ranked_by: RankedBy) -> np.ndarray:
    """Return the numbers by which the rows of listed pairs are ranked, in float64: products, or minus the squared distances."""
    mine, theirs = queries.given[query].astype(np.float64), table.given[row].astype(np.float64)
    if ranked_by == "product":
        return np.einsum("ij,ij->i", mine, theirs)
    difference = mine * queries.factors[query, None] - theirs * table.factors[row, None]
    return -np.einsum("ij,ij->i", difference, difference)


def _margins(table: _Table, ranked_by: RankedBy) -> _Margins:
    """Return a generous bound on the error of scores by products: the worst case is half an eps per column."""
    n, d = table.given.shape
    dtype, lengths = table.given.dtype, table.lengths
    error = (d + _ROUNDINGS) * float(np.finfo(dtype).eps)
    scale, offset, extra, slack = np.ones(n), np.zeros(n), np.zeros(n), np.full(n, error)
    if ranked_by == "cosine":
        scale = 1.0 / lengths
    else:
        slack *= lengths
        extra += d * float(np.finfo(dtype).tiny)  # the error of products that are subnormal
    if ranked_by == "distance":
        offset = -0.5 * lengths**2
        extra -= error * offset
    return _Margins(*(np.ascontiguousarray(part, dtype=dtype) for part in (scale, offset, extra, slack)))


def _floors(products: np.ndarray, sizes: np.ndarray, margins: _Margins, k: int, left_out: np.ndarray) -> np.ndarray:
    """Return scores that at least k rows reach, for each query."""
    least = products * margins.scale + (margins.offset - margins.extra)
    least -= sizes[:, None].astype(products.dtype) * margins.slack
    hit = np.flatnonzero((left_out >= 0) & (left_out < products.shape[1]))
    least[hit, left_out[hit]] = -np.inf
    place = products.shape[1] - k
    return np.partition(least, place, axis=1)[:, place].astype(np.float64)
