"""The best rows of a table for each query, block by block: the one exact search of the library, also for tables beyond memory.

Products in float32 propose: each gives the largest score that a row may have, whatever their rounding.  Scores in float64, of the rows
as they were given, decide while the block is in memory, and only the best rows of each query are kept.  Rows are proposed by products
in float64 instead if those in float32 would propose too many.  Compiled kernels (`cpu/search_kernels.py`) and NumPy give the same results.
"""

from importlib import import_module
from typing import Literal, NamedTuple

import numpy as np

from vicinal._engine import tuning
from vicinal._engine.accuracy import FLOAT32, FLOAT64, SAME_DIRECTION, TIED, round_centre
from vicinal._engine.work.blocks import Blocks, listed_parts
from vicinal._engine.work.pool import in_order
from vicinal._engine.work.sharing import NOTHING, made_by_all

RankedBy = Literal["distance", "product", "cosine"]
# Lengths up to which products and squares neither overflow nor leave the normal numbers.
_LONGEST = {FLOAT32: 1e12, FLOAT64: 1e140}
_SHORTEST = 1e-140
_ROUNDINGS = 20  # the rounding errors of a score by products, in addition to one per column
_CHUNK = 64  # rows whose largest score is found at once, as in the kernel
_MOST_PROPOSED = 16  # one row in this many, beyond those that are requested, may be proposed in vain
_SAMPLED = 8  # queries for which that is counted


class Neighbors(NamedTuple):
    """``indices`` (m, k) of the points, best first, and ``scores`` (m, k): squared distances or inner products."""

    indices: np.ndarray
    scores: np.ndarray


class Table:
    """Rows in float64 as given, their factors, and the form in which products propose them.

    A row x is ``[x, error |x|, -|x|^2/2 + error |x|^2/2]`` for products and a query q is ``[q, |q|, 1]``: their product is the
    largest value that ``q'x - |x|^2/2`` may have in exact arithmetic.  Distances are those of rows about a common centre, inner products
    have no last term, and cosines are products of unit vectors.

    Parameters
    ----------
    rows : array of shape (n, d)
    ranked_by : {"distance", "product", "cosine"}
    centre : array of shape (d,), optional
    dtype : dtype, optional
        The precision of the products; None is float32, or float64 for rows that are too long for it.
    """

    def __init__(
        self, rows: np.ndarray, ranked_by: RankedBy, centre: np.ndarray | None, dtype: np.dtype | None = None
    ) -> None:
        self.given = np.ascontiguousarray(rows, dtype=np.float64)
        self.factors = np.ones(len(rows))
        centred = self.given if centre is None else self.given - centre
        self.lengths = _lengths(centred)
        longest = float(self.lengths.max(initial=0.0))
        if ranked_by == "cosine":
            self.factors, centred = 1.0 / self.lengths, centred / self.lengths[:, None]
            self.lengths = np.ones(len(rows))
        elif longest > _LONGEST[FLOAT64]:
            raise ValueError(
                f"rows must be shorter than {_LONGEST[FLOAT64]:g} for products and distances, got one of length "
                f"{longest:.3g}. Scale the rows."
            )
        elif dtype is None and longest > _LONGEST[FLOAT32]:
            dtype = FLOAT64
        self.dtype = FLOAT32 if dtype is None else dtype
        # A generous bound on the relative error of a score by products, half an eps per column in the worst case; ties are within it.
        self.error = max((rows.shape[1] + _ROUNDINGS) * float(np.finfo(self.dtype).eps), 4.0 * TIED)
        self.squares = np.square(self.lengths) if ranked_by == "distance" else np.zeros(len(rows))
        self._multiplied = centred

    def as_rows(self) -> "Table":
        """Return the table in the form of rows."""
        tiny = self.given.shape[1] * float(np.finfo(self.dtype).tiny)  # the error of products that are subnormal
        return self._with(self.error * self.lengths, tiny - 0.5 * (1.0 - self.error) * self.squares)

    def as_queries(self) -> "Table":
        """Return the table in the form of queries."""
        return self._with(self.lengths, np.ones(len(self.given)))

    def _with(self, *columns: np.ndarray) -> "Table":
        multiplied = np.empty((len(self.given), self.given.shape[1] + 2), dtype=self.dtype)
        multiplied[:, :-2] = self._multiplied
        multiplied[:, -2:] = np.column_stack(columns)
        self._multiplied = multiplied
        return self

    @property
    def multiplied(self) -> np.ndarray:
        """The rows as they are multiplied, with two more columns."""
        return self._multiplied


class RowSearch:
    """The k best rows for each query, of those that were added so far.

    Rows at equal distances (to twelve digits) are in the order of the table.

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
        self._queries, self._ranked_by, self._threads = queries, ranked_by, threads
        # A kernel inserts rows one by one into a list, which takes long if the list is long.
        self._compiled = compiled and k <= tuning.SEARCH_INSERTED
        self._centre: np.ndarray | None = None
        self._dtype: np.dtype | None = None
        self._left_out = np.full(m, -1) if left_out is None else left_out.astype(np.int64)
        self._scores, self._rows = np.full((m, k), -np.inf), np.full((m, k), -1)

    def add(self, start: int, rows: np.ndarray) -> None:
        """Add the rows of the table from `start` on; blocks must be added in the order of the table."""
        if self._centre is None and self._ranked_by == "distance":
            self._centre = round_centre(rows)
        table = self._table(rows)
        queries, left_out, scores, numbers = self._queries, self._left_out, self._scores, self._rows
        ranked_by, centre, compiled = self._ranked_by, self._centre, self._compiled

        def work(part: slice) -> tuple[np.ndarray, np.ndarray]:
            asked = Table(queries[part], ranked_by, centre, table.dtype).as_queries()
            best = numbers[part].copy(), scores[part].copy()
            # One array for all products: new ones would be cleared by the system, which takes longer than a product.
            memory = np.empty(len(asked.given) * min(tuning.SEARCH_ROWS, len(table.given)), dtype=table.dtype)
            for rows in Blocks(len(table.given), tuning.SEARCH_ROWS):
                bounds = memory[: len(asked.given) * (rows.stop - rows.start)].reshape(len(asked.given), -1)
                np.matmul(asked.multiplied, table.multiplied[rows].T, out=bounds)
                best = _take(bounds, asked, table, rows, start, left_out[part] - start, ranked_by, best, compiled)
            return best

        rounds = max(
            -(-len(queries) // (tuning.SEARCH_QUERIES * self._threads)), 1
        )  # in which each thread takes one part
        parts = Blocks(len(queries), max(-(-len(queries) // (rounds * self._threads)), 1))
        for part, best in zip(parts, in_order(work, parts, self._threads, NOTHING), strict=True):
            self._rows[part], self._scores[part] = best

    def found(self) -> Neighbors:
        """Return the best rows, best first, and their products, or squared distances (for cosines: of the unit vectors)."""
        scores = np.minimum.accumulate(self._scores, axis=1)  # tied ones may differ in their last digits
        return Neighbors(self._rows, scores if self._ranked_by == "product" else -scores)

    def _table(self, rows: np.ndarray) -> Table:
        """Return rows for products in float32, unless these would propose too many rows: far from the centre, they have few digits."""
        table = self._made(rows, self._dtype)
        if table.dtype == FLOAT64 or len(rows) == 0 or len(self._queries) == 0:
            return table
        some = slice(None, None, -(-len(self._queries) // _SAMPLED))
        asked = Table(self._queries[some], self._ranked_by, self._centre)
        sharp = asked.dtype == FLOAT32
        if sharp and self._dtype is None:
            part = slice(0, min(len(rows), tuning.SEARCH_ROWS))
            asked, k = asked.as_queries(), self._rows.shape[1]
            bounds = asked.multiplied @ table.multiplied[part].T
            proposed = bounds >= _floors_of_block(bounds, k, _gaps(asked, table, part))[:, None]
            sharp = proposed.sum() <= len(bounds) * (4 * k + bounds.shape[1] / _MOST_PROPOSED)
        self._dtype = FLOAT32 if sharp else FLOAT64
        longest = float(np.abs(self._queries).max(initial=0.0)) * np.sqrt(rows.shape[1])
        if self._ranked_by != "cosine" and longest > 0.5 * _LONGEST[FLOAT32]:
            self._dtype = FLOAT64
        return table if self._dtype == FLOAT32 else self._made(rows, FLOAT64)

    def _made(self, rows: np.ndarray, dtype: np.dtype | None) -> Table:
        args = rows, self._ranked_by, self._centre, dtype
        return made_by_all(lambda: table_of_rows(*args), table_of_rows, *args)


def table_of_rows(
    rows: np.ndarray, ranked_by: RankedBy, centre: np.ndarray | None, dtype: np.dtype | None = None
) -> Table:
    """Return rows in the form in which queries search them; see `Table`."""
    if dtype == FLOAT32:  # rows may be too long for it
        dtype = None
    return Table(rows, ranked_by, centre, dtype).as_rows()


def _take(
    bounds: np.ndarray,
    queries: Table,
    table: Table,
    rows: slice,
    start: int,
    left_out: np.ndarray,
    ranked_by: RankedBy,
    best: tuple[np.ndarray, np.ndarray],
    compiled: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the best rows of some queries and their scores, with some more rows of a table that begins at `start`."""
    hit = np.flatnonzero((left_out >= rows.start) & (left_out < rows.stop))
    bounds[hit, left_out[hit] - rows.start] = -np.inf
    gaps, margin = _gaps(queries, table, rows), max(8.0 * float(np.finfo(bounds.dtype).eps), 4.0 * TIED)
    numbers, scores = best
    if compiled:
        kernels = import_module("vicinal._engine.cpu.search_kernels")
        kernels.take_best(
            bounds, gaps, queries.given, queries.lengths, queries.factors, table.given[rows], table.factors[rows],
            start + rows.start, getattr(kernels, ranked_by.upper()), margin, scores, numbers,
        )  # fmt: skip
        return best
    k = numbers.shape[1]
    floors = np.fmax(
        _floors_of_best(scores[:, -1], queries.lengths, ranked_by, margin), _floors_of_block(bounds, k, gaps)
    )
    floors = np.maximum(floors, np.finfo(bounds.dtype).min)  # a row that is left out has the score -inf
    query, row = np.divmod(np.flatnonzero(bounds >= floors[:, None].astype(bounds.dtype)), bounds.shape[1])
    if len(query) == 0:
        return best
    more = np.empty(len(query))
    for part in listed_parts(len(query), 4 * table.given.shape[1], tuning.GATHERED_BYTES):
        more[part] = _scores(queries, table, query[part], rows.start + row[part], ranked_by)
    place = np.arange(len(query)) - np.searchsorted(query, query)
    width = k + int(place.max()) + 1
    all_numbers, all_scores = np.full((len(bounds), width), -1), np.full((len(bounds), width), -np.inf)
    all_numbers[:, :k], all_scores[:, :k] = best
    all_numbers[query, k + place], all_scores[query, k + place] = start + rows.start + row, more
    return best_of(all_numbers, all_scores, k, SAME_DIRECTION if ranked_by == "cosine" else 0.0)


def best_of(rows: np.ndarray, scores: np.ndarray, k: int, tie: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Return the k best of listed rows and their scores, best first and tied ones in the order of their numbers, both (m, k).

    Parameters
    ----------
    rows, scores : arrays of shape (m, width)
        Scores of -inf mark places without a row.
    tie : float
        Scores that differ by less are tied, and those that agree to a relative difference of `accuracy.TIED`.
    """
    order = np.argsort(-scores, axis=1, kind="stable")
    rows, scores = np.take_along_axis(rows, order, axis=1), np.take_along_axis(scores, order, axis=1)
    with np.errstate(invalid="ignore"):
        apart = scores[:, 1:] < scores[:, :-1] - (TIED * np.abs(scores[:, :-1]) + tie)
    tied = np.flatnonzero((~apart & (scores[:, 1:] > -np.inf)).any(axis=1))
    if len(tied):
        group = np.zeros((len(tied), rows.shape[1]), dtype=np.int64)
        np.cumsum(apart[tied] | (scores[tied, 1:] == -np.inf), axis=1, out=group[:, 1:])
        order = np.lexsort((rows[tied], group), axis=1)
        rows[tied] = np.take_along_axis(rows[tied], order, axis=1)
        scores[tied] = np.take_along_axis(scores[tied], order, axis=1)
    return rows[:, :k], scores[:, :k]


def _gaps(queries: Table, table: Table, rows: slice) -> np.ndarray:
    """Return how far the score of one of these rows may be below what products give, for each query; ties are within it."""
    longest = float(table.lengths[rows].max())
    squares = queries.squares + (longest**2 if table.squares.any() else 0.0)
    return table.error * (2.0 * queries.lengths * longest + squares)


def _floors_of_block(bounds: np.ndarray, k: int, gaps: np.ndarray) -> np.ndarray:
    """Return scores that at least k rows of a block reach, for each query: the k-th largest of the maxima of chunks, less a gap."""
    n = bounds.shape[1]
    tops = bounds
    if n >= _CHUNK * k:
        whole = n - n % _CHUNK
        tops = bounds[:, :whole].reshape(len(bounds), -1, _CHUNK).max(axis=2)
    place = tops.shape[1] - k
    if place < 0:
        return np.full(len(bounds), -np.inf)
    return np.partition(tops, place, axis=1)[:, place] - gaps


def _floors_of_best(worst: np.ndarray, lengths: np.ndarray, ranked_by: RankedBy, margin: float) -> np.ndarray:
    """Return what products must give for rows that are as good as the worst that is kept; see `_floor` in the kernels."""
    if ranked_by == "product":
        floors = worst
    elif ranked_by == "distance":
        floors = 0.5 * (worst + lengths**2) - margin * lengths**2
    else:
        floors = 1.0 + 0.5 * worst
    with np.errstate(invalid="ignore"):
        return floors - margin * np.abs(floors)


def _scores(queries: Table, table: Table, query: np.ndarray, row: np.ndarray, ranked_by: RankedBy) -> np.ndarray:
    """Return the numbers by which the rows of listed pairs are ranked, in float64: products, or minus the squared distances."""
    of_queries, of_rows = queries.given[query], table.given[row]
    if ranked_by == "product":
        return np.einsum("ij,ij->i", of_queries, of_rows)
    if ranked_by == "cosine":
        of_queries, of_rows = of_queries * queries.factors[query, None], of_rows * table.factors[row, None]
    difference = of_queries - of_rows
    return -np.einsum("ij,ij->i", difference, difference)


def _lengths(rows: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore", under="ignore"):
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    odd = np.flatnonzero(~((lengths > _SHORTEST) & (lengths < _LONGEST[FLOAT64])))
    if len(odd):  # squares of these overflow, or lose digits
        largest = np.abs(rows[odd]).max(axis=1, initial=0.0)
        scaled = rows[odd] / np.where(largest > 0, largest, 1.0)[:, None]
        lengths[odd] = largest * np.linalg.norm(scaled, axis=1)
    return lengths
