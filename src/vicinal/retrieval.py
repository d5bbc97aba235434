"""Search with embeddings, and measures of its quality.

- `evaluate`: recall, precision, nDCG, MRR and MAP of a search, with raw rows or with a learned map, with intervals.
- `search`: find the best rows of a corpus for some queries, exactly, in blocks that fit a memory budget.

Both compare directions (cosines) by default, because embeddings are usually compared in this way. A learned
map is a fitted metric or a pipeline; for embeddings it is usually
``make_pipeline(Normalizer(), RCA(), Normalizer())``.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse

from vicinal._checks import check_choice, check_integer, check_random_state
from vicinal._dask import is_collection
from vicinal._engine import Engine
from vicinal._retrieval.evaluation import Evaluation, summarise
from vicinal._retrieval.measures import measures_of
from vicinal._retrieval.relevance import SearchSize, read_relevance
from vicinal._retrieval.search import SIMILARITIES, Found, Space, search_blocks

__all__ = ["Evaluation", "Found", "evaluate", "search"]


def __dir__() -> list[str]:
    return sorted(__all__)


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
    rows, positions = _rows_and_positions(queries, corpus)
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


def search(
    queries: ArrayLike | None,
    corpus: ArrayLike,
    k: int = 10,
    *,
    model: Any = None,
    similarity: str = "cosine",
    engine: Engine | str | None = None,
) -> Found:
    """Find the k best rows of a corpus for each query, exactly.

    Parameters
    ----------
    queries : array-like of shape (m, d), of shape (m,), or None
        New rows, positions of rows of the corpus, or None for all rows of the corpus; a row of the corpus never finds
        itself. If new rows are a Dask array or dataframe, the results are lazy Dask arrays.
    corpus : array-like of shape (n, d)
        The rows to search in. A memory map is read block by block.
    k : int, default=10
        The number of rows to find per query.
    model, similarity, engine
        As in `evaluate`.

    Returns
    -------
    Found
        ``indices`` of shape (m, k), best first, ties in the order of the rows; and ``scores``: cosines, products or
        distances.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import retrieval
    >>> corpus = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> retrieval.search([[2.0, 0.1]], corpus, k=2).indices
    array([[0, 1]])
    """
    check_integer(k, "k")
    check_choice(similarity, "similarity", SIMILARITIES)
    if model is not None and not hasattr(model, "transform"):
        raise TypeError(f"model must be None or have a transform method, got {type(model).__name__}.")
    if is_collection(queries):
        from vicinal._dask.lazy import searched_lazily

        return Found(*searched_lazily(search, queries, corpus, k, model=model, similarity=similarity, engine=engine))
    rows, positions = _rows_and_positions(queries, corpus)
    corpus = _table(corpus, "corpus")
    reach = len(corpus) - (positions is not None)
    if k > reach:
        raise ValueError(f"k={k} needs at least as many rows that a query can find, got {reach}. Lower k or add rows.")
    space = Space(model, similarity)
    images = space.images(*((rows, "queries") if positions is None else (corpus[positions], "corpus")))
    if positions is None and np.shape(rows)[1] != corpus.shape[1]:
        raise ValueError(
            f"queries and corpus must have the same columns, got {np.shape(rows)[1]} and {corpus.shape[1]}. Embed both with "
            "the same model."
        )
    return search_blocks(images, corpus, k, space, positions, engine)


def _table(corpus: ArrayLike, name: str) -> NDArray[Any]:
    """Return a table as an array, without a copy of a memory map."""
    if issparse(corpus):
        raise TypeError(f"{name} must be a dense table, got a sparse one. Pass {name}.toarray(), or fewer columns.")
    table = corpus if isinstance(corpus, np.ndarray) else np.asarray(corpus)
    if table.ndim != 2 or not len(table):
        raise ValueError(f"{name} must be a table of at least one row, got shape {table.shape}.")
    return table


def _rows_and_positions(queries: ArrayLike | None, corpus: ArrayLike) -> tuple[Any, NDArray[Any] | None]:
    """Return new rows and None, or None and the positions of the queries in the corpus."""
    n = len(_table(corpus, "corpus"))
    if queries is None:
        return None, np.arange(n)
    if issparse(queries):
        return _table(queries, "queries"), None
    table = np.asarray(queries)
    if table.ndim != 1:
        return _table(table, "queries"), None
    if table.dtype.kind not in "iu":
        raise ValueError(
            f"queries must be rows of shape (m, d) or positions of rows of the corpus (integers), got {table.dtype} of shape "
            f"{table.shape}. Reshape a single row with row[None]."
        )
    outside = int(((table < 0) | (table >= n)).sum())
    if outside or len(np.unique(table)) < len(table) or not len(table):
        raise ValueError(
            f"queries must be different positions of rows of the corpus, from 0 to {n - 1}, got {len(table)} of which "
            f"{outside} are out of range and {len(table) - len(np.unique(table))} are repeated."
        )
    return None, table.astype(np.int64)
