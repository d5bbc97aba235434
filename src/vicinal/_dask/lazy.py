"""Lazy results for the rows of a Dask collection, block by block."""

import pickle
from copy import copy
from typing import Any

import dask
import dask.array as da
import numpy as np
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import validate_data

from vicinal._dask.cluster import active_client, has_client, held_by_workers
from vicinal._dask.rows import delayed_blocks, table_of

_LARGE = 2**20  # the size, in bytes, from which data are put on the workers rather than into the graph of tasks


def _model(estimator: Any, needs_rows: bool) -> Any:
    """Return an estimator as one node of a graph, which is sent to every worker once; without its training rows if no method needs them."""
    if not needs_rows:
        estimator = copy(estimator)
        vars(estimator).update({name: None for name in ("mixture_", "rows_") if name in vars(estimator)})
    return dask.delayed(pickle.loads, pure=False)(_shared(pickle.dumps(estimator)))


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
    if needs_rows and "mixture_" in vars(estimator):
        _ = estimator.mixture_.n_features  # raises an error that explains it if the rows were not saved
    model = _model(estimator, needs_rows)
    apply = dask.delayed(_rows_answered, pure=True, name=f"vicinal.{asked.name}")
    answers = [apply(model, asked, block, width, dtype) for block in blocks]
    parts = [
        da.from_delayed(one, shape=(n,) if width is None else (n, width), dtype=dtype)
        for n, one in zip(lengths, answers, strict=True)
    ]
    return da.concatenate(parts, allow_unknown_chunksizes=True)


def _shared(thing: Any) -> Any:
    """Return an array or bytes as one node of a graph, which is sent to every worker once, in advance if it is large."""
    size = len(thing) if isinstance(thing, bytes) else thing.nbytes
    if size <= _LARGE or not has_client():
        return dask.delayed(thing, pure=True)
    return dask.delayed(held_by_workers(active_client(), "vicinal-shared", [thing])[0])
