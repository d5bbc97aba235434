"""The relevant rows of each query, from pairs, labels or graded judgements, in one form."""

from collections.abc import Mapping
from copy import copy
from typing import Any, NamedTuple, Protocol

import numpy as np

from vicinal._supervision import check_length, code_groups
from vicinal._words import count


class Relevance(Protocol):
    """The interface of the relevant rows of m queries."""

    totals: np.ndarray  # relevant rows per query, of shape (m,)

    def grades(self, found: np.ndarray) -> np.ndarray:
        """Return the grades of the rows that a search found, of shape (m, depth); 0 for rows that are not relevant."""

    def ideal(self, most: int) -> np.ndarray:
        """Return the grades of the best possible ranking, of shape (m, most): largest first, 0 after the last relevant row."""

    def of(self, some: np.ndarray) -> "Relevance":
        """Return the same for some of the queries, by number in ascending order."""


class LabelRelevance:
    """Rows with the label of the query are relevant, with grade 1."""

    def __init__(self, mine: np.ndarray, theirs: np.ndarray, left_out: np.ndarray | None) -> None:
        self._mine, self._theirs = mine, theirs
        sizes = np.bincount(theirs[theirs >= 0], minlength=int(max(mine.max(initial=-1), theirs.max(initial=-1))) + 1)
        self.totals = np.where(mine >= 0, np.append(sizes, 0)[mine], 0)
        if left_out is not None:
            self.totals = self.totals - ((mine >= 0) & (mine == theirs[left_out]))

    def of(self, some: np.ndarray) -> "LabelRelevance":
        """See `Relevance`."""
        other = copy(self)
        other._mine, other.totals = self._mine[some], self.totals[some]
        return other

    def grades(self, found: np.ndarray) -> np.ndarray:
        """See `Relevance`."""
        return ((self._theirs[found] == self._mine[:, None]) & (self._mine >= 0)[:, None]).astype(np.float64)

    def ideal(self, most: int) -> np.ndarray:
        """See `Relevance`."""
        return (np.arange(most) < self.totals[:, None]).astype(np.float64)


class ListedRelevance:
    """Relevant rows that are listed one by one, with grades."""

    def __init__(self, query: np.ndarray, row: np.ndarray, grade: np.ndarray, n_queries: int, n_rows: int) -> None:
        keys, first, number = np.unique(query * n_rows + row, return_index=True, return_inverse=True)
        if (grade != grade[first][number]).any():
            raise ValueError(
                "relevant has two different grades for the same query and row. Pass one grade per query and row."
            )
        relevant = grade[first] > 0
        self._keys, self._grades, self._n_rows = keys[relevant], grade[first][relevant], n_rows
        self._query = self._keys // n_rows
        self.totals = np.bincount(self._query, minlength=n_queries)

    def of(self, some: np.ndarray) -> "ListedRelevance":
        """See `Relevance`."""
        number = np.full(len(self.totals), -1)
        number[some] = np.arange(len(some))
        kept = number[self._query] >= 0
        query, row = number[self._query[kept]], self._keys[kept] % self._n_rows
        return ListedRelevance(query, row, self._grades[kept], len(some), self._n_rows)

    def grades(self, found: np.ndarray) -> np.ndarray:
        """See `Relevance`."""
        wanted = np.arange(len(found))[:, None] * self._n_rows + found
        place = np.searchsorted(self._keys, wanted)
        known = np.append(self._keys, -1)[place] == wanted
        return np.where(known, np.append(self._grades, 0.0)[place], 0.0)

    def ideal(self, most: int) -> np.ndarray:
        """See `Relevance`."""
        order = np.lexsort((-self._grades, self._query))
        place = np.arange(len(order)) - np.repeat(np.cumsum(self.totals) - self.totals, self.totals)
        kept = place < most
        best = np.zeros((len(self.totals), most))
        best[self._query[order][kept], place[kept]] = self._grades[order][kept]
        return best


class SearchSize(NamedTuple):
    """How many queries and rows there are, and which row of the corpus each query is (None: queries are new rows)."""

    n_queries: int
    n_rows: int
    positions: np.ndarray | None


def read_relevance(relevant: Any, asked: SearchSize) -> Relevance:
    """Read what the user passed as ``relevant``; see `vicinal.retrieval.evaluate`."""
    if isinstance(relevant, Mapping):
        return _listed(_from_mapping(relevant), asked)
    if isinstance(relevant, tuple) and len(relevant) == 2:
        return _from_labels(*relevant, asked)
    table = np.asarray(relevant)
    if table.ndim == 1 and asked.positions is not None and len(table):
        codes = code_groups(relevant, "relevant")
        check_length(codes, asked.n_rows, "relevant", "Pass one label per row of the corpus.")
        return LabelRelevance(codes[asked.positions], codes, asked.positions)
    if table.ndim == 2 and table.shape[1] in (2, 3):
        return _listed(table, asked)
    raise ValueError(
        f"relevant must be pairs (query, row) of shape (p, 2), graded judgements (query, row, grade) of shape (p, 3), a "
        f"mapping of queries to rows, or labels, got shape {table.shape}. Pass one label per row of the corpus if the "
        "queries are rows of it, otherwise a tuple (labels of the queries, labels of the corpus)."
    )


def _from_labels(mine: Any, theirs: Any, asked: SearchSize) -> Relevance:
    mine, theirs = np.asarray(mine), np.asarray(theirs)
    check_length(mine, asked.n_queries, "the first part of relevant", "Pass one label per query.")
    check_length(theirs, asked.n_rows, "the second part of relevant", "Pass one label per row of the corpus.")
    codes = code_groups([*mine.tolist(), *theirs.tolist()], "relevant")
    return LabelRelevance(codes[: len(mine)], codes[len(mine) :], asked.positions)


def _from_mapping(relevant: Mapping[Any, Any]) -> np.ndarray:
    """Return judgements (query, row, grade) from a mapping of queries to rows, or to mappings of rows to grades."""
    listed = [
        (query, row, grade)
        for query, rows in relevant.items()
        for row, grade in (rows.items() if isinstance(rows, Mapping) else ((row, 1.0) for row in rows))
    ]
    try:
        return np.array(listed, dtype=np.float64).reshape(-1, 3)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "a mapping as relevant must map numbers of queries to numbers of rows, or to mappings of these to grades, "
            f"got {listed[0][:2]!r}. Replace names by positions."
        ) from error


def _listed(table: np.ndarray, asked: SearchSize) -> Relevance:
    """Return judgements by position; if the queries are rows of the corpus, pairs count in both directions."""
    if table.dtype.kind not in "iuf" or not np.isfinite(table.astype(np.float64)).all():
        raise ValueError(f"relevant must hold finite numbers (positions and grades), got {table.dtype}.")
    anchors, rows = _positions(table[:, 0], "queries"), _positions(table[:, 1], "rows of the corpus")
    grades = table[:, 2].astype(np.float64) if table.shape[1] == 3 else np.ones(len(table))
    if (grades < 0).any():
        raise ValueError(f"grades of relevant must not be negative, got {grades.min():g}. Use 0 for 'not relevant'.")
    if asked.positions is not None:
        _check_range(anchors, asked.n_rows, "rows of the corpus (the queries are rows of it)")
        _check_range(rows, asked.n_rows, "rows of the corpus")
        if table.shape[1] == 2:
            anchors, rows, grades = np.append(anchors, rows), np.append(rows, anchors), np.append(grades, grades)
        number = np.full(asked.n_rows, -1)
        number[asked.positions] = np.arange(asked.n_queries)
        # A row is not relevant for itself, and pairs of rows that are not queries are ignored.
        kept = (anchors != rows) & (number[anchors] >= 0)
        anchors, rows, grades = number[anchors][kept], rows[kept], grades[kept]
    else:
        _check_range(anchors, asked.n_queries, "queries")
        _check_range(rows, asked.n_rows, "rows of the corpus")
    return ListedRelevance(anchors, rows, grades, asked.n_queries, asked.n_rows)


def _positions(values: np.ndarray, what: str) -> np.ndarray:
    whole = values.astype(np.int64)
    if (whole != values).any():
        raise ValueError(f"relevant must hold positions of {what} (whole numbers from 0), got fractions.")
    return whole


def _check_range(positions: np.ndarray, size: int, what: str) -> None:
    outside = int(((positions < 0) | (positions >= size)).sum())
    if outside:
        raise ValueError(
            f"relevant must name {what} from 0 to {size - 1}, got {count(outside, 'position')} out of range "
            f"({positions.min()} to {positions.max()})."
        )
