"""Lazy results for the rows of a Dask collection, block by block."""

import io
import pickle
from typing import Any

import dask
import dask.array as da
import numpy as np
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import validate_data

from vicinal._dask.cluster import (
    LostError,
    active_client,
    answer_of,
    computed,
    has_client,
    only_responding,
    sent_to_all,
    threads_of_workers,
)
from vicinal._dask.distant import same
from vicinal._dask.rows import delayed_blocks, table_of
from vicinal._dask.spread_scores import spread_answers

_LARGE = 2**20  # the size, in bytes, from which data are put on the workers rather than into the graph of tasks
_ROWS_PER_TASK = 2**14
_ROWS = -1  # stands for training rows on the workers, which no method needs there


class _Light(pickle.Pickler):
    """A pickler of estimators that leaves out what is on the workers: mixtures, which are numbered, and rows."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.distant: list[Any] = []

    def persistent_id(self, thing: Any) -> int | None:
        if not getattr(type(thing), "is_distant", False):
            return None
        if not hasattr(type(thing), "gather"):
            return _ROWS
        self.distant.append(thing)
        return len(self.distant) - 1


class _Whole(pickle.Unpickler):
    def __init__(self, code: bytes, mixtures: tuple[Any, ...]) -> None:
        super().__init__(io.BytesIO(code))
        self._mixtures = mixtures

    def persistent_load(self, place: int) -> Any:
        return self._mixtures[place] if place != _ROWS and self._mixtures else None


def _made_whole(code: bytes, *mixtures: Any) -> Any:
    """Return the estimator, on a worker."""
    return _Whole(code, mixtures).load()


class _Packed:
    """An estimator as bytes, and its mixtures that are on the workers.

    Parameters
    ----------
    estimator : estimator
    needs_rows : bool
        Whether a method needs the mixtures; if not, the estimator has none on the workers.
    """

    def __init__(self, estimator: Any, needs_rows: bool = True) -> None:
        file = io.BytesIO()
        pickler = _Light(file)
        pickler.dump(estimator)
        self.code = file.getvalue()
        self.distant = distant = pickler.distant if needs_rows else []
        for mixture in distant:
            mixture.client()  # raises an error if another client is active, or if the components are lost
        self.spread = [mixture for mixture in distant if hasattr(type(mixture), "delayed_scores")]
        # Each mixture is a future, or, if its components are on several workers, an outline.
        self.mixtures = [
            mixture.outline(self.spread.index(mixture)) if mixture in self.spread else mixture.future
            for mixture in distant
        ]

    def model(self) -> Any:
        """Return the estimator as one node of a graph, which is sent to every worker once."""
        return dask.delayed(_made_whole, pure=False)(_shared(self.code), *self.mixtures)


def _rows_answered(estimator: Any, asked: Any, rows: Any, width: int | None, dtype: Any) -> np.ndarray:
    if len(rows) == 0:
        return np.empty((0,) if width is None else (0, width), dtype=dtype)
    return np.asarray(asked(estimator, rows)).astype(dtype, copy=False)


def lazily(estimator: Any, asked: Any, X: Any, width: int | None, dtype: Any, needs_rows: bool) -> Any:
    """Return the results for the rows of a collection, as a lazy Dask array with blocks of the same rows.

    Columns that differ from those of the fit raise an error here, and not later on a worker.
    """
    container = _get_output_config("transform", estimator)["dense"] if asked.name == "transform" else "default"
    if container != "default":
        raise ValueError(
            f"the result for a Dask collection is a lazy Dask array, but set_output(transform={container!r}) requests a table in "
            "memory. Call set_output(transform='default') on the estimator, or pass rows in memory."
        )
    blocks, one = delayed_blocks(X, "X"), table_of(X)
    if dtype is None:
        dtype = np.asarray(asked(estimator, one)).dtype
    else:
        validate_data(estimator, one, reset=False, skip_check_array=True)
    dtype = np.dtype(dtype)
    lengths = X.chunks[0] if hasattr(X, "chunks") else (np.nan,) * X.npartitions
    packed = _Packed(estimator, needs_rows)
    model = packed.model()
    if packed.spread:
        answers = spread_answers(model, packed.spread, asked, blocks, lengths, (width, dtype))
    else:
        apply = dask.delayed(_rows_answered, pure=True, name=f"vicinal.{asked.name}")
        answers = [apply(model, asked, block, width, dtype) for block in blocks]
    parts = [
        da.from_delayed(one, shape=(n,) if width is None else (n, width), dtype=dtype)
        for n, one in zip(lengths, answers, strict=True)
    ]
    return da.concatenate(parts, allow_unknown_chunksizes=True)


def searched_lazily(search: Any, queries: Any, corpus: Any, k: int, **options: Any) -> tuple[Any, Any]:
    """Return positions (integers) and scores (n, k) of the search results for the rows of a collection, as lazy Dask arrays."""
    search(
        np.asarray(table_of(queries)) + 1.0, corpus, k, **options
    )  # an error is raised here, and not later on a worker
    lengths = queries.chunks[0] if hasattr(queries, "chunks") else (np.nan,) * queries.npartitions
    where, how = _shared(np.asarray(corpus)), dask.delayed(options, pure=True)
    run = dask.delayed(_found, pure=True, name="vicinal.search")
    found = [run(search, block, where, k, how) for block in delayed_blocks(queries, "queries")]
    answers = []
    for place, dtype in enumerate((np.int64, np.float64)):
        parts = [da.from_delayed(one[place], (n, k), dtype) for n, one in zip(lengths, found, strict=True)]
        answers.append(da.concatenate(parts, allow_unknown_chunksizes=True))
    return answers[0], answers[1]


def _found(
    search: Any, rows: Any, corpus: np.ndarray, k: int, options: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    if len(rows) == 0:
        return np.empty((0, k), dtype=np.int64), np.empty((0, k))
    found = search(np.asarray(rows), corpus, k, **options)
    return found[0], found[1].astype(np.float64)


def _shared(thing: Any) -> Any:
    """Return an array or bytes as one node of a graph, which is sent to every worker once, in advance if it is large."""
    size = len(thing) if isinstance(thing, bytes) else thing.nbytes
    if size <= _LARGE or not has_client():
        return dask.delayed(thing, pure=True)
    return dask.delayed(sent_to_all(active_client(), "vicinal-shared", thing))


def answered(estimator: Any, asked: Any, X: Any) -> Any:
    """Return the results for rows in memory, computed by workers that hold the training rows."""
    packed = _Packed(estimator)
    client = active_client()
    rows = X if hasattr(X, "iloc") else np.asarray(X)
    threads = max(sum(threads_of_workers(client).values()), 1)
    step = min(_ROWS_PER_TASK, max(-(-len(rows) // threads), 1))
    some = [rows[first : first + step] for first in range(0, max(len(rows), 1), step)]
    if packed.spread:
        lengths = [len(part) for part in some]
        # As results of tasks, they are sent again if a worker is lost.
        blocks = [dask.delayed(client.submit(same, part, workers=only_responding(client), pure=False)) for part in some]
        tasks = spread_answers(packed.model(), packed.spread, asked, blocks, lengths, None)
        return np.concatenate(computed(tasks, "Fit the density again"))
    whole = client.submit(_made_whole, packed.code, *packed.mixtures, workers=only_responding(client), pure=False)
    futures = [client.submit(_answer, whole, asked, part, workers=only_responding(client), pure=False) for part in some]
    try:
        return np.concatenate(
            [answer_of(client, future, lambda: "Each holds the whole density.") for future in futures]
        )
    except LostError as error:
        raise packed.distant[0].lost(client, error) from None
    finally:
        client.cancel(futures, force=True)


def _answer(estimator: Any, asked: Any, rows: Any) -> np.ndarray:
    return np.asarray(asked(estimator, rows))
