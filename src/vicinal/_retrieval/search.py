"""Exact search in a corpus that may be larger than memory: block by block, by the engine's neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import normalize

from vicinal._checks import check_choice, check_integer
from vicinal._engine import Engine, RowSearch, Work, as_engine, available_threads, choose, prepare
from vicinal._retrieval.query_map import QueryMap
from vicinal._rows import check_array
from vicinal._words import count

_RANKED_BY: dict[str, Literal["distance", "product", "cosine"]] = {
    "cosine": "cosine",
    "dot": "product",
    "euclidean": "distance",
}
SIMILARITIES = tuple(_RANKED_BY)
# The copies of a block in a search on a problem of the engine, in bytes per number: the images, packed and centred in
# float32, and in float64.
_BYTES_PER_NUMBER = 4 + 4 + 4 + 8
# The copies of a block in a streaming search, in bytes per number: intermediate results of the model and the images, the images in
# float64 as they are and centred or of unit length (two of them while lengths are divided), and the latter in float32.
_STREAMED_BYTES = 8 + 4 * 8 + 4
_PRODUCTS_PER_ROW = 256  # products per row of a block that a thread holds at a time
_MOST_STREAMED_ROWS = 8192
_LEAST_ROWS = 1024
_LEAST_MEMORY = 2**20  # the smallest working memory of an Engine, in bytes


class Found(NamedTuple):
    """The result of a search.

    Attributes
    ----------
    indices : ndarray of shape (m, k)
        The positions of the rows of the corpus that were found for each query, best first.
    scores : ndarray of shape (m, k)
        Their cosines, products or distances.
    """

    indices: np.ndarray
    scores: np.ndarray


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
        itself.
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
    if isinstance(model, Pipeline) and any(isinstance(step, QueryMap) for _, step in model.steps):
        raise TypeError(
            "model must not be a pipeline with a QueryMap, which would map the corpus as well. Pass the QueryMap alone: it scales queries to "
            "unit length before and after its map."
        )
    rows, positions = rows_and_positions(queries, corpus)
    corpus = as_table(corpus, "corpus")
    reach = len(corpus) - (positions is not None)
    if k > reach:
        raise ValueError(f"k={k} needs at least as many rows that a query can find, got {reach}. Lower k or add rows.")
    space = Space(model, similarity)
    images = space.images(*((rows, "queries") if positions is None else (corpus[positions], "corpus")), of_queries=True)
    if positions is None and np.shape(rows)[1] != corpus.shape[1]:
        raise ValueError(
            f"queries and corpus must have the same columns, got {np.shape(rows)[1]} and {corpus.shape[1]}. Embed both with "
            "the same model."
        )
    return search_blocks(images, corpus, k, space, positions, engine)


def as_table(corpus: ArrayLike, name: str) -> NDArray[Any]:
    """Return a table as an array, without a copy of a memory map."""
    if issparse(corpus):
        raise TypeError(f"{name} must be a dense table, got a sparse one. Pass {name}.toarray(), or fewer columns.")
    table = corpus if isinstance(corpus, np.ndarray) else np.asarray(corpus)
    if table.ndim != 2 or not len(table):
        raise ValueError(f"{name} must be a table of at least one row, got shape {table.shape}.")
    return table


def rows_and_positions(queries: ArrayLike | None, corpus: ArrayLike) -> tuple[Any, NDArray[Any] | None]:
    """Return new rows and None, or None and the positions of the queries in the corpus."""
    n = len(as_table(corpus, "corpus"))
    if queries is None:
        return None, np.arange(n)
    if issparse(queries):
        return as_table(queries, "queries"), None
    table = np.asarray(queries)
    if table.ndim != 1:
        return as_table(table, "queries"), None
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


class Space(NamedTuple):
    """The space in which rows are compared: the images under a model (None: the raw rows), with a similarity.

    A QueryMap leaves the rows of the corpus as they are.
    """

    model: Any
    similarity: str

    def images(self, rows: Any, name: str, *, of_queries: bool = False) -> np.ndarray:
        """Return the rows in the form in which they are compared: mapped by the model, finite and, for cosines, not zero."""
        rows = _in_single(rows)
        images = check_array(rows, dtype=[np.float64, np.float32], input_name=name)
        if self.model is not None and (of_queries or not isinstance(self.model, QueryMap)):
            images = check_array(self.model.transform(images), dtype=[np.float64, np.float32], input_name=name)
        if self.similarity == "cosine":
            suspect = np.flatnonzero(np.einsum("ij,ij->i", images, images) == 0)
            empty = int((~images[suspect].any(axis=1)).sum())
            if empty:
                raise ValueError(
                    f"{name} contains {count(empty, 'row')} of zeros, which have no direction and therefore no cosine. Drop such rows "
                    "(they may come from empty texts), or pass similarity='euclidean'."
                )
        return images


def _in_single(rows: Any) -> Any:
    """Return rows in half precision as float32, which holds them exactly."""
    return rows.astype(np.float32) if getattr(rows, "dtype", None) == np.float16 else rows


def search_blocks(
    queries: np.ndarray, corpus: Any, k: int, space: Space, left_out: np.ndarray | None, engine: Any
) -> Found:
    """Return the k best rows of the corpus for each query.

    Parameters
    ----------
    queries : array of shape (m, q)
        Images of the queries.
    corpus : array of shape (n, d)
        Rows before the model; a memory map is read block by block.
    left_out : int array of shape (m,), optional
        One row per query that it must not find, which is the query itself.
    """
    settings = as_engine(engine)
    backend = choose(settings, Work(len(queries), len(corpus), queries.shape[1])).backend
    if backend != "torch":
        return _streamed(queries, corpus, k, space, left_out, settings, compiled=backend == "cpu")
    m, largest = len(queries), space.similarity == "dot"
    if space.similarity == "cosine":
        queries = _unit(queries)
    # One half of the memory is for a block and its copies, the other half for the scores of queries.
    settings = replace(settings, memory=max(settings.memory_bytes // 2, _LEAST_MEMORY))
    best = Found(np.empty((m, 0), dtype=np.int64), np.empty((m, 0)))
    for start, rows in _blocks(corpus, queries.shape[1], k, settings):
        images = space.images(rows, "corpus")
        images = (_unit(images) if space.similarity == "cosine" else images).astype(queries.dtype, copy=False)
        placed = prepare(settings, images, n_queries=m).at()
        here = (
            None
            if left_out is None
            else np.where((left_out >= start) & (left_out < start + len(rows)), left_out - start, -1)
        )
        if largest or best.indices.shape[1] < k:
            most = min(k, len(rows) - (here is not None))
            found = placed.nearest(most, queries, here, by="product" if largest else "distance")
            best = _merged(best, Found(found.indices + start, found.scores), k, largest)
        else:
            # Only rows that are nearer than the current k-th can change the result.
            for query, point, squares in placed.within(np.sqrt(best.scores[:, -1]), queries, here):
                best = _with_listed(best, query, point + start, squares)
    return _as_similarity(best, space.similarity)


def _streamed(
    queries: np.ndarray,
    corpus: Any,
    k: int,
    space: Space,
    left_out: np.ndarray | None,
    settings: Engine,
    *,
    compiled: bool,
) -> Found:
    """Search on the CPU: multiply each block with the queries, without keeping it."""
    threads = available_threads(settings.threads)
    dtype = settings.precision or queries.dtype
    search = RowSearch(
        queries.astype(dtype, copy=False), k, _RANKED_BY[space.similarity], threads=threads, left_out=left_out, compiled=compiled
    )  # fmt: skip
    per_row = _STREAMED_BYTES * max(queries.shape[1], corpus.shape[1]) + 4 * threads * _PRODUCTS_PER_ROW
    size = settings.memory_bytes // per_row
    size = min(max(size, _LEAST_ROWS), _MOST_STREAMED_ROWS)
    for start in range(0, len(corpus), size):
        images = space.images(corpus[start : start + size], "corpus")
        search.add(start, images if settings.precision is None else images.astype(dtype, copy=False))
    return _as_similarity(Found(*search.found()), space.similarity)


def _unit(images: np.ndarray) -> np.ndarray:
    """Return images of unit length, scaled first by powers of two, which is exact, so that no square over- or underflows."""
    exponents = np.frexp(np.abs(images).max(axis=1, keepdims=True))[1]
    return normalize(np.ldexp(images, -exponents))


def _blocks(corpus: Any, n_dims: int, k: int, engine: Engine) -> Iterator[tuple[int, Any]]:
    width = max(n_dims, corpus.shape[1])
    size = max(engine.memory_bytes // (_BYTES_PER_NUMBER * width), _LEAST_ROWS, 2 * k + 2)
    n = len(corpus)
    # All blocks have the same size, because a short last block could hold fewer rows than the requested neighbours.
    n_blocks = max(n // size, 1)
    bounds = np.linspace(0, n, n_blocks + 1).astype(np.int64)
    for start, stop in pairwise(bounds):
        yield int(start), corpus[start:stop]


def _merged(best: Found, more: Found, k: int, largest: bool) -> Found:
    """Return the k best of two lists per query; ties are in the order of the rows, and those of `best` come first."""
    indices = np.concatenate([best.indices, more.indices], axis=1)
    scores = np.concatenate([best.scores, more.scores], axis=1)
    order = np.argsort(-scores if largest else scores, axis=1, kind="stable")[:, :k]
    return Found(np.take_along_axis(indices, order, axis=1), np.take_along_axis(scores, order, axis=1))


def _with_listed(best: Found, query: np.ndarray, point: np.ndarray, squares: np.ndarray) -> Found:
    """Return the best with further rows that a block lists; the pairs of a query come together."""
    if not len(query):
        return best
    starts = np.flatnonzero(np.append(True, query[1:] != query[:-1]))
    counts = np.diff(np.append(starts, len(query)))
    place = np.arange(len(query)) - np.repeat(starts, counts)
    indices = np.full((len(starts), counts.max()), -1, dtype=np.int64)
    scores = np.full(indices.shape, np.inf)
    number = np.repeat(np.arange(len(starts)), counts)
    indices[number, place], scores[number, place] = point, squares
    changed, k = query[starts], best.indices.shape[1]
    merged = _merged(Found(best.indices[changed], best.scores[changed]), Found(indices, scores), k, largest=False)
    best.indices[changed], best.scores[changed] = merged
    return best


def _as_similarity(best: Found, similarity: str) -> Found:
    if similarity == "cosine":  # |u - v|^2 = 2 - 2 u'v for unit vectors
        return best._replace(scores=1.0 - 0.5 * best.scores)
    return best if similarity == "dot" else best._replace(scores=np.sqrt(best.scores))
