"""The evaluation of a search: measures per query, their means, and bootstrap intervals."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from vicinal._checks import check_integer, check_random_state
from vicinal._engine import Engine
from vicinal._notebook import table_html
from vicinal._retrieval.measures import measures_of
from vicinal._retrieval.relevance import SearchSize, read_relevance
from vicinal._retrieval.search import rows_and_positions, search
from vicinal._words import count


@dataclass(frozen=True)
class Evaluation:
    """The measures of a search.

    Attributes
    ----------
    per_query : dict of str to array of shape (n_queries,)
        Each measure of each query that has a relevant row, by names such as ``"recall@10"``.
    mean : dict of str to float
        Their means.
    intervals : dict of str to (low, high)
        Percentile bootstrap intervals of the means, over queries.
    queries : int array of shape (n_queries,)
        The numbers of these queries.
    n_without_relevant : int
        The number of queries without a relevant row in the corpus, which are not included in the measures.
    confidence : float
        The confidence of the intervals.
    """

    per_query: dict[str, np.ndarray] = field(repr=False)
    mean: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    queries: np.ndarray = field(repr=False)
    n_without_relevant: int
    confidence: float
    _draws: np.ndarray = field(repr=False)

    def difference(self, other: Evaluation) -> Evaluation:
        """Return the difference between this evaluation and another one of the same queries, with paired intervals.

        Parameters
        ----------
        other : Evaluation
            An evaluation of the same queries, usually with raw rows.

        Returns
        -------
        Evaluation
            The differences of the measures that both have. An interval above 0 means that this search is better.
        """
        if not np.array_equal(self.queries, other.queries):
            raise ValueError(
                f"a difference needs evaluations of the same queries, got {len(self.queries)} and {len(other.queries)} "
                "queries that are not the same. Evaluate both with the same queries and relevant rows."
            )
        shared = {
            name: self.per_query[name] - other.per_query[name] for name in self.per_query if name in other.per_query
        }
        return summarise(shared, self.queries, self.n_without_relevant, self.confidence, self._draws)

    def to_dict(self) -> dict[str, Any]:
        """Return the means and the intervals as plain numbers."""
        return {
            "queries": len(self.queries),
            "queries_without_relevant": self.n_without_relevant,
            "confidence": self.confidence,
            "measures": {name: {"mean": self.mean[name], "interval": list(self.intervals[name])} for name in self.mean},
        }

    def __str__(self) -> str:
        lines = [f"{count(len(self.queries), 'query')}, {100 * self.confidence:g} % intervals"]
        if self.n_without_relevant:
            lines[0] += f"; {self.n_without_relevant} queries without a relevant row are left out"
        for name, mean in self.mean.items():
            low, high = self.intervals[name]
            lines.append(f"{name:>14}  {mean:7.4f}  [{low:.4f}, {high:.4f}]")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        heads = (str(self).splitlines()[0], "Mean", "Interval")
        ends = zip(self.mean.items(), self.intervals.values(), strict=True)
        return table_html(
            heads, [(escape(name), f"{mean:.4f}", f"{low:.4f} to {high:.4f}") for (name, mean), (low, high) in ends]
        )


def summarise(
    per_query: dict[str, np.ndarray], queries: np.ndarray, n_without_relevant: int, confidence: float, draws: np.ndarray
) -> Evaluation:
    """Return means and percentile bootstrap intervals of measures per query.

    Parameters
    ----------
    draws : int array of shape (n_bootstrap,)
        Seeds of the resamples, so that evaluations with the same seeds are compared on the same ones.
    """
    names, values = list(per_query), np.column_stack(list(per_query.values()))
    means = values.mean(axis=0)
    resampled = np.array([values[_resample(seed, len(values))].mean(axis=0) for seed in draws])
    tail = 50.0 * (1.0 - confidence)
    low, high = np.percentile(resampled, [tail, 100.0 - tail], axis=0)
    return Evaluation(
        per_query,
        dict(zip(names, means.tolist(), strict=True)),
        {name: (float(a), float(b)) for name, a, b in zip(names, low, high, strict=True)},
        queries,
        n_without_relevant,
        confidence,
        draws,
    )


def _resample(seed: int, size: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(size, size=size)


def evaluate(
    queries: ArrayLike | None,
    corpus: ArrayLike,
    relevant: Any,
    *,
    model: Any = None,
    similarity: str = "cosine",
    k: int | Sequence[int] = (1, 10),
    depth: int = 100,
    n_bootstrap: int = 1000,
    confidence: float = 0.95,
    engine: Engine | str | None = None,
    random_state: int | None = 0,
) -> Evaluation:
    """Measure how well a search finds the relevant rows of a corpus.

    Parameters
    ----------
    queries : array-like of shape (m, d), of shape (m,), or None
        New rows, positions of rows of the corpus, or None for every row of the corpus that has a relevant one. A query
        that is a row of the corpus never finds itself. It is excluded by its position, so that duplicates of it can be
        found.
    corpus : array-like of shape (n, d)
        The rows to search in. A memory map is read block by block.
    relevant : pairs, judgements, mapping or labels
        - pairs (query, row) of positions, of shape (p, 2). If the queries are rows of the corpus, both are positions in
          the corpus and a pair counts in both directions;
        - graded judgements (query, row, grade), of shape (p, 3); a grade of 0 means "not relevant";
        - a mapping of queries to rows, or of queries to mappings of rows to grades;
        - labels: one per row of the corpus if the queries are rows of it, otherwise a tuple (labels of the queries, labels
          of the corpus). Rows with the label of the query are relevant; -1, None and NaN mean that there is no label.
    model : fitted metric or Pipeline, optional
        Any object with ``transform``. None compares the raw rows.
    similarity : {"cosine", "dot", "euclidean"}, default="cosine"
        How transformed rows are compared. "cosine" normalises them first.
    k : int or sequence of int, default=(1, 10)
        The cutoffs of recall, precision and nDCG.
    depth : int, default=100
        The number of rows found per query, for ``"MRR@depth"`` and ``"MAP@depth"``. It is raised to the largest `k`, and
        lowered to the number of rows that a query can find; the names of the measures contain the resulting number.
    n_bootstrap : int, default=1000
        The number of resamples of the queries for the intervals.
    confidence : float, default=0.95
        The confidence of the intervals.
    engine : None, str or Engine, default=None
        The backend of the search and its memory; see :class:`vicinal.Engine`.
    random_state : int or None, default=0
        The seed of the resamples. Evaluations with the same seed can be compared by `Evaluation.difference`.

    Returns
    -------
    Evaluation

    Notes
    -----
    The search takes O(m n d) time. The memory beyond the queries is the engine's budget plus O(m depth).

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import retrieval
    >>> corpus = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    >>> found = retrieval.evaluate(None, corpus, ["a", "a", "b", "b"], k=1)
    >>> found.mean["recall@1"]
    1.0
    """
    ks = tuple(check_integer(one, "k") for one in (k if isinstance(k, Sequence | np.ndarray) else [k]))
    if not ks:
        raise ValueError("k must hold at least one number, got none.")
    check_integer(depth, "depth")
    check_integer(n_bootstrap, "n_bootstrap")
    if not (isinstance(confidence, numbers.Real) and 0.0 < float(confidence) < 1.0):
        raise ValueError(f"confidence must be a number between 0 and 1, got {confidence!r}.")
    rows, positions = rows_and_positions(queries, corpus)
    n_queries = len(rows) if positions is None else len(positions)
    relevance = read_relevance(relevant, SearchSize(n_queries, len(corpus), positions))
    answered = np.flatnonzero(relevance.totals > 0)
    if not len(answered):
        raise ValueError(
            f"none of the {n_queries} queries has a relevant row in the corpus, so there is nothing to measure. Check the "
            "positions or labels in relevant."
        )
    reach = len(corpus) - (positions is not None)
    if max(ks) > reach:
        raise ValueError(
            f"k={max(ks)} needs at least as many rows that a query can find, got {reach}. Lower k or add rows."
        )
    # Queries without a relevant row are not searched for; in a corpus with few pairs, these are most rows.
    asked = rows[answered] if positions is None else positions[answered]
    found = search(asked, corpus, min(max(depth, *ks), reach), model=model, similarity=similarity, engine=engine)
    per_query = measures_of(found.indices, relevance.of(answered), ks, found.indices.shape[1])
    seeds = check_random_state(random_state).randint(2**31 - 1, size=n_bootstrap)
    return summarise(per_query, answered, n_queries - len(answered), float(confidence), seeds)
