"""Dask collections as rows: arguments of `fit`, and of methods for new rows, which return lazy collections.

Dask is imported only if there is a collection, so the functions here import it themselves.

::

      fits_collections     a decorator of `fit`: a stochastic fit draws rows from the collection; otherwise they are loaded into memory
      answers_collections  a decorator of `transform`, `score_samples`, ...: a lazy collection, block by block
      in_memory            the arguments of a fit, whose rows, labels and weights are aligned
      DaskRows             a collection as a source of rows
"""

import pickle
import warnings
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from functools import wraps
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import check_is_fitted, validate_data

from vicinal._callers import callers_line
from vicinal._engine import on_cluster

_Method = TypeVar("_Method", bound=Callable[..., Any])

MOST_DENSITY_BYTES = 2**31  # the rows of a collection that a density keeps in the memory of this process, in bytes
_LARGE = 2**20  # the size, in bytes, from which a model is put on the workers rather than into the graph of tasks


def is_collection(X: Any) -> bool:
    """Return whether X is a Dask collection, without importing Dask."""
    return type(X).__module__.partition(".")[0] in ("dask", "dask_expr") and hasattr(X, "__dask_graph__")


# -- methods that take collections -------------------------------------------------------------------------------------


def fits_collections(fit: _Method) -> _Method:
    """Let a `fit` method take Dask collections: X, and labels and weights that are aligned with it."""

    @wraps(fit)
    def fit_there(self: Any, X: Any, *args: Any, **options: Any) -> Any:
        if not any(map(is_collection, (X, *args, *options.values()))):
            return fit(self, X, *args, **options)
        from vicinal._engine.dask.cluster import has_client

        source = _source_of_draws(self, X)  # the steps of such a fit are small, and this process computes them
        is_density = hasattr(self, "score_samples") or hasattr(self, "_inner_estimator")  # or holds densities
        X, args, options = in_memory(X if source is None else source, args, options, of_density=is_density)
        with on_cluster(source is None and has_client()):
            return fit(self, X, *args, **options)

    return cast(_Method, fit_there)


def _source_of_draws(estimator: Any, X: Any) -> "DaskRows | None":
    """Return a collection as a source of rows if a stochastic fit draws from it; None if the fit needs all rows."""
    if not is_collection(X) or not hasattr(estimator, "_pick_solver"):
        return None
    source = DaskRows(X)
    return source if estimator._pick_solver(source.shape[0]) == "stochastic" else None


def answers_collections(
    columns: Callable[[Any], int | None] | None = None,
    dtype: Callable[[Any], Any] | None = None,
    *,
    needs_rows: bool = True,
) -> Callable[[_Method], _Method]:
    """Let a method for new rows take a Dask collection and return a lazy one.

    Parameters
    ----------
    columns : callable, optional
        Return the number of columns of the result, given the estimator; None means one number per row.
    dtype : callable, optional
        Return the dtype of the result, given the estimator; None means that of floating-point rows.
    needs_rows : bool
        Whether the method needs the training rows. If not, they are not sent to the workers.
    """

    def decorate(method: _Method) -> _Method:
        @wraps(method)
        def answer(self: Any, *args: Any, **options: Any) -> Any:
            X, *more = args if args else (options.get("X"),)
            if not is_collection(X):
                return method(self, *args, **options)
            check_is_fitted(self)
            others = {name: value for name, value in options.items() if name != "X"}
            width = None if columns is None else columns(self)
            kind = None if dtype is None else dtype(self)
            return _lazy_results(self, (method.__name__, more, others), X, width, kind, needs_rows)

        return cast(_Method, answer)

    return decorate


def float_numbers(estimator: Any) -> Any:
    """Return the dtype of scores, which does not depend on that of the rows."""
    return np.dtype(np.float64)


def _lazy_results(
    estimator: Any, call: tuple[str, list[Any], dict[str, Any]], X: Any, width: int | None, dtype: Any, needs_rows: bool
) -> Any:
    """Return the results for the rows of a collection, as a lazy Dask array with blocks of the same rows.

    Columns that differ from those of the fit raise an error here, and not later on a worker.
    """
    import dask
    import dask.array as da

    container = _get_output_config("transform", estimator)["dense"] if call[0] == "transform" else "default"
    if container != "default":
        raise ValueError(
            f"the result for a Dask collection is a lazy Dask array, but set_output(transform={container!r}) requests a table in "
            "memory. Call set_output(transform='default') on the estimator, or pass rows in memory."
        )
    blocks, one = _delayed_blocks(X, "X"), table_of(X)
    if dtype is None:
        dtype = _called(estimator, call, one).dtype
    else:
        validate_data(estimator, one, reset=False, skip_check_array=True)
    dtype = np.dtype(dtype)
    lengths = X.chunks[0] if hasattr(X, "chunks") else (np.nan,) * X.npartitions
    if needs_rows and "mixture_" in vars(estimator):
        _ = estimator.mixture_.n_features  # raises an error that explains it if the rows were not saved
    shape = () if width is None else (width,)
    model, answer = _model(estimator, needs_rows), dask.delayed(_answer, pure=True, name=f"vicinal.{call[0]}")
    parts = [
        da.from_delayed(answer(model, call, block, shape, dtype), shape=(n, *shape), dtype=dtype)
        for n, block in zip(lengths, blocks, strict=True)
    ]
    return da.concatenate(parts, allow_unknown_chunksizes=True)


def _called(estimator: Any, call: tuple[str, list[Any], dict[str, Any]], rows: Any) -> np.ndarray:
    name, args, options = call
    return np.asarray(getattr(estimator, name)(rows, *args, **options))


def _answer(estimator: Any, call: Any, rows: Any, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return the results for the rows of a block: a Dask task."""
    return _called(estimator, call, rows).astype(dtype, copy=False) if len(rows) else np.empty((0, *shape), dtype)


def _model(estimator: Any, needs_rows: bool) -> Any:
    """Return an estimator as one node of a graph, which is sent to every worker once, in advance if it is large.

    It has no training rows if no method needs them.
    """
    import dask

    from vicinal._engine.dask.cluster import active_client, has_client, held_by_workers

    if not needs_rows:
        estimator = copy(estimator)
        vars(estimator).update({name: None for name in ("mixture_", "rows_") if name in vars(estimator)})
    code: Any = pickle.dumps(estimator)
    if len(code) > _LARGE and has_client():
        [code] = held_by_workers(active_client(), "vicinal-model", [code])
    return dask.delayed(pickle.loads, pure=False)(dask.delayed(code, pure=True))


def predictions(estimator: Any, X: Any, y: Any, sample_weight: Any) -> tuple[np.ndarray, Any, Any]:
    """Return an estimator's predictions, the labels and the weights in memory; raise if collections are not aligned with X.

    The rows of a collection stay where they are.
    """
    predicted = estimator.predict(X)
    if not any(map(is_collection, (predicted, y, sample_weight))):
        return np.asarray(predicted), y, sample_weight
    table = predicted[:, None] if predicted.ndim == 1 else predicted
    table, (y, sample_weight), _ = in_memory(table, (y, sample_weight), {})
    return np.asarray(table[:, 0] if predicted.ndim == 1 else table), y, sample_weight


class CollectionClassifierMixin(ClassifierMixin):
    """Mixin of classifiers whose `score` takes Dask collections."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of `predict`.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            The rows to predict.
        y : array-like of shape (n,)
            Their labels.
        sample_weight : array-like of shape (n,), optional
            Their weights in the score.

        Returns
        -------
        float
        """
        predicted, y, sample_weight = predictions(self, X, y, sample_weight)
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))


# -- collections in memory ---------------------------------------------------------------------------------------------


class _Sample(NamedTuple):
    """A random sample of the rows of a collection."""

    positions: np.ndarray  # increasing, among all rows
    blocks: list[Any]  # the chosen rows of each partition
    lengths: list[int]  # the numbers of all rows of the partitions


def in_memory(
    X: Any, args: tuple[Any, ...], options: dict[str, Any], *, of_density: bool = False
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a fit, with Dask collections in memory; raise if labels or weights are not aligned with X.

    If a density could not keep all rows of X, a random sample of them is returned, with a warning.
    """
    if not any(map(is_collection, (X, *args, *options.values()))):
        return X, args, options
    names = ("y", "sample_weight", *(f"argument {i}" for i in range(3, len(args) + 1)))[: len(args)]
    blocks = _aligned_blocks({"X": X, **dict(zip(names, args, strict=True)), **options})
    sample = _sample_of_parts(X, blocks["X"]) if of_density and "X" in blocks else None
    if sample is not None:
        blocks["X"] = sample.blocks
    tables, lengths = _computed_tables(blocks)
    if sample is not None:
        lengths["X"] = sample.lengths
    n = sum(lengths["X"]) if "X" in lengths else len(X)
    _check_lengths(lengths, lengths.get("X", getattr(X, "lengths", None)), n)

    def aligned(name: str, value: Any) -> Any:
        table = tables.get(name, value)
        if sample is None or not hasattr(table, "__len__") or len(table) != n:
            return table
        return _rows_of_part(table, sample.positions)

    return (
        tables.get("X", X),
        tuple(aligned(name, value) for name, value in zip(names, args, strict=True)),
        {name: aligned(name, value) for name, value in options.items()},
    )


def partitions(X: Any, y: Any) -> tuple[list[Any], list[int], Any]:
    """Return the partitions of X as delayed tables, their numbers of rows, and y in memory; raise if y is not aligned."""
    import dask

    from vicinal._engine.dask.cluster import computed

    blocks = _aligned_blocks({"X": X, "y": y})
    parts, length = blocks["X"], dask.delayed(len, pure=True)
    found = computed(
        [*(length(part) for part in parts), *blocks.get("y", [])]
    )  # at once, if both are read from the same files
    rows_of, labels = [int(n) for n in found[: len(parts)]], found[len(parts) :]
    lengths = {"X": rows_of, "y": [len(part) for part in labels]} if labels else {"X": rows_of}
    _check_lengths(lengths, rows_of, sum(rows_of))
    return parts, rows_of, _together(labels) if labels else y


def _aligned_blocks(arguments: dict[str, Any]) -> dict[str, list[Any]]:
    """Return the partitions of the arguments that are collections; raise if one cannot be aligned with X."""
    blocks = {name: _delayed_blocks(value, name) for name, value in arguments.items() if is_collection(value)}
    for name in blocks:
        if name == "X" or "X" not in blocks:
            continue
        known = _length(arguments["X"]), _length(arguments[name])
        if len(blocks["X"]) != len(blocks[name]) and None in known:
            raise ValueError(
                f"X has {len(blocks['X'])} partitions of unknown sizes and {name} has {len(blocks[name])}, so their rows cannot be "
                "matched. Take both from the same dataframe, or call compute_chunk_sizes() on the arrays."
            )
        if None not in known and known[0] != known[1]:
            raise ValueError(f"X has {known[0]} rows and {name} has {known[1]}: they must belong to the same rows.")
    return blocks


def _computed_tables(blocks: dict[str, list[Any]]) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """Return the tables of delayed blocks, and the number of rows of each block."""
    from vicinal._engine.dask.cluster import computed

    found = iter(computed([block for parts in blocks.values() for block in parts]))
    tables = {name: [next(found) for _ in parts] for name, parts in blocks.items()}
    lengths = {name: [len(block) for block in parts] for name, parts in tables.items()}
    return {name: _together(parts) for name, parts in tables.items()}, lengths


def _check_lengths(lengths: dict[str, list[int]], of_rows: list[int] | None, n: int) -> None:
    """Raise an error if X has no rows, or if the blocks of an argument are not those of X."""
    if n == 0 and "X" in lengths:
        raise ValueError(f"X has no rows: all of its {len(lengths['X'])} partitions are empty. Check how it was read.")
    for name, counts in lengths.items():
        if sum(counts) != n:
            raise ValueError(f"X has {n} rows and {name} has {sum(counts)}: they must belong to the same rows.")
        if of_rows is not None and len(counts) == len(of_rows) and counts != of_rows:
            at = next(i for i, (a, b) in enumerate(zip(counts, of_rows, strict=True)) if a != b)
            raise ValueError(
                f"partition {at} of X has {of_rows[at]} rows and that of {name} {counts[at]}: their rows cannot be matched. Take both "
                "from the same dataframe, or rechunk one like the other."
            )


def _sample_of_parts(X: Any, parts: list[Any]) -> _Sample | None:
    """Return a sample of the rows of a collection if a density cannot keep all of them, and warn; else None."""
    import dask

    known, row_bytes = _length(X), _row_bytes(X)
    if known is not None and known * row_bytes <= MOST_DENSITY_BYTES:
        return None
    lengths = _lengths_of(parts)
    positions = _sampled_positions(sum(lengths), row_bytes)
    if positions is None:
        return None
    starts = np.concatenate([[0], np.cumsum(lengths)])
    chosen = [positions[(positions >= first) & (positions < last)] - first for first, last in pairwise(starts)]
    take = dask.delayed(_rows_of_part, pure=True)
    return _Sample(positions, [take(part, rows) for part, rows in zip(parts, chosen, strict=True)], lengths)


def _sampled_positions(n: int, row_bytes: int) -> np.ndarray | None:
    """Return the positions of the sample of n rows that a density keeps, and warn; None if it keeps all of them."""
    most = max(MOST_DENSITY_BYTES // row_bytes, 1)
    if n <= most:
        return None
    warnings.warn(
        f"the density keeps a random sample of {most:,} of the {n:,} rows of this Dask collection, because it holds its rows in the "
        f"memory of this process, at most {MOST_DENSITY_BYTES / 2**30:.3g} GiB of them. Pass a sample of your own to choose which.",
        UserWarning,
        stacklevel=callers_line(),
    )
    return np.sort(np.random.default_rng(0).choice(n, most, replace=False))


# -- the rows and columns of a collection ------------------------------------------------------------------------------


class DaskRows:
    """A Dask array or dataframe as a source of rows; see `vicinal._row_sources`.

    With an active client, the partitions are computed once and stay with the workers, which move them to their disks if their
    memory is full. Without one, they are computed whenever some of their rows are needed.

    Parameters
    ----------
    collection : dask.array.Array or dask.dataframe.DataFrame
    """

    def __init__(self, collection: Any) -> None:
        import dask

        from vicinal._engine.dask.cluster import active_client, has_client

        self._parts = _delayed_blocks(collection, "X")
        if has_client():
            self._parts = [dask.delayed(future) for future in active_client().compute(self._parts)]
        self.lengths = _lengths_of(self._parts)
        self._starts = np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)
        n_columns, self.dtype, self.columns = columns_of(collection)
        self.shape = int(self._starts[-1]), n_columns

    def __len__(self) -> int:
        return self.shape[0]

    def blocks(self, start: int = 0) -> Iterator[np.ndarray]:
        """Yield the rows from position `start` on, a partition at a time."""
        from vicinal._engine.dask.cluster import computed

        for part, first, length in zip(self._parts, self._starts, self.lengths, strict=False):
            skipped = max(start - int(first), 0)
            if skipped < length:
                yield np.asarray(computed([part])[0][skipped:], dtype=self.dtype)

    def take(self, positions: np.ndarray) -> np.ndarray:
        """Return the rows at some positions; only these are transferred."""
        import dask

        from vicinal._engine.dask.cluster import computed

        positions = np.asarray(positions, dtype=np.int64)
        part_of_row = np.searchsorted(self._starts, positions, side="right") - 1
        places = {int(i): np.flatnonzero(part_of_row == i) for i in np.unique(part_of_row)}
        chosen = dask.delayed(_rows_of_part)
        tasks = [chosen(self._parts[i], positions[where] - self._starts[i]) for i, where in places.items()]
        rows = np.empty((len(positions), self.shape[1]), dtype=self.dtype)
        for where, values in zip(places.values(), computed(tasks), strict=True):
            rows[where] = values
        return rows

    def kept(self) -> np.ndarray:
        """Return all rows in memory."""
        return np.concatenate([np.empty((0, self.shape[1]), dtype=self.dtype), *self.blocks()])

    def density_positions(self) -> np.ndarray:
        """Return the positions of the rows that a density keeps in memory: all, or a sample with a warning if they are too many."""
        sample = _sampled_positions(len(self), self.shape[1] * self.dtype.itemsize)
        return np.arange(len(self)) if sample is None else sample


def columns_of(collection: Any) -> tuple[int, np.dtype, list[str] | None]:
    """Return the number of columns of a collection, the precision of its rows, and the names of its columns, if any."""
    if not hasattr(collection, "columns"):
        return int(collection.shape[1]), _precision([collection.dtype]), None
    names = [str(name) for name in collection.columns]
    return len(names), _precision(collection.dtypes), names


def table_of(X: Any) -> Any:
    """Return a table of one row of zeros, with the columns and the precision of a collection."""
    n_columns, dtype, names = columns_of(X)
    zeros = np.zeros((1, n_columns), dtype=dtype)
    if names is None:
        return zeros
    import pandas as pd

    return pd.DataFrame(zeros, columns=list(X.columns))


def _precision(kinds: Iterable[Any]) -> np.dtype:
    """Return float32 if all columns have that dtype, else float64."""
    return np.dtype(np.float32 if all(kind == np.dtype(np.float32) for kind in kinds) else np.float64)


def _row_bytes(X: Any) -> int:
    n_columns, dtype, _ = columns_of(X)
    return max(n_columns * dtype.itemsize, 1)


def _length(collection: Any) -> int | None:
    """Return the number of rows, if it is known without a computation."""
    if not hasattr(collection, "chunks") or np.isnan(collection.shape[0]):
        return None
    return int(collection.shape[0])


def _lengths_of(parts: list[Any]) -> list[int]:
    """Compute the numbers of rows of partitions."""
    import dask

    from vicinal._engine.dask.cluster import computed

    return [int(length) for length in computed([dask.delayed(len, pure=True)(part) for part in parts])]


def _rows_of_part(part: Any, positions: np.ndarray) -> Any:
    return part.iloc[positions] if hasattr(part, "iloc") else np.asarray(part)[positions]


def _delayed_blocks(collection: Any, name: str) -> list[Any]:
    """Return the partitions of a collection, each with whole rows."""
    from dask.delayed import Delayed

    kind = type(collection).__name__
    if isinstance(collection, Delayed) or not any(hasattr(collection, tell) for tell in ("chunks", "dtypes", "dtype")):
        raise TypeError(
            f"{name} must be a Dask array or dataframe, got a Dask {kind}. Make one of it with from_delayed."
        )
    if hasattr(collection, "chunks"):  # an array
        if hasattr(collection._meta, "nnz"):
            raise TypeError(
                f"{name} must have dense chunks, got sparse ones ({type(collection._meta).__name__}). Make them dense with "
                "map_blocks(lambda chunk: chunk.toarray())."
            )
        if collection.ndim not in (1, 2) or (name == "X" and collection.ndim != 2):
            raise ValueError(
                f"{name} must be a table of rows, got a Dask array of {collection.ndim} dimensions. Reshape it first."
            )
        if collection.ndim == 2 and collection.numblocks[1] > 1:
            collection = collection.rechunk({1: -1})
        return list(collection.to_delayed(optimize_graph=True).reshape(-1))
    # Only the columns that are needed are read.  Dask's full optimisation would also merge small files into fewer partitions,
    # which then no longer match those of other columns.
    return list(collection.simplify().to_delayed(optimize_graph=False))


def _together(parts: list[Any]) -> Any:
    """Concatenate blocks into one table; empty blocks are used only if all are empty."""
    filled = [part for part in parts if len(part)] or parts[:1]
    if hasattr(filled[0], "iloc"):
        import pandas as pd

        return pd.concat(filled) if len(filled) > 1 else filled[0]
    return np.concatenate(filled) if len(filled) > 1 else np.asarray(filled[0])
