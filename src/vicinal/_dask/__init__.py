"""Dask collections as arguments of estimators, in `fit` and in the methods for new rows.

Dask itself is imported only if there is a collection, or if ``Engine("dask")`` is used.

::

      fits_collections     a decorator of `fit`: a stochastic fit draws rows from the collection; otherwise they are loaded into memory
      answers_collections  a decorator of `transform`, `score_samples`, ...: a lazy collection, block by block (`lazy.py`)
      rows.py              collections as tables in memory, and as sources of rows
      cluster.py           the active client, looked up at each call, its data and its tasks
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted

_Method = TypeVar("_Method", bound=Callable[..., Any])

_rows_on_cluster: ContextVar[bool] = ContextVar("vicinal_rows_on_cluster", default=False)


def is_collection(X: Any) -> bool:
    """Return whether X is a Dask collection, without importing Dask."""
    return type(X).__module__.partition(".")[0] in ("dask", "dask_expr") and hasattr(X, "__dask_graph__")


def rows_on_cluster() -> bool:
    """Return whether a fit to a Dask collection is running here with an active client; "auto" then means the cluster."""
    return _rows_on_cluster.get()


@contextmanager
def on_cluster(there: bool = True) -> Iterator[None]:
    """Within this context, engines that are "auto" use the workers of the active client."""
    token = _rows_on_cluster.set(there)
    try:
        yield
    finally:
        _rows_on_cluster.reset(token)


def fits_collections(fit: _Method) -> _Method:
    """Let a `fit` method take Dask collections: X, and labels and weights that are aligned with it."""

    @wraps(fit)
    def fit_there(self: Any, X: Any, *args: Any, **options: Any) -> Any:
        if not any(map(is_collection, (X, *args, *options.values()))):
            return fit(self, X, *args, **options)
        from vicinal._dask.cluster import has_client

        source = _source_of_draws(self, X)  # the steps of such a fit are small, and this process computes them
        is_density = hasattr(self, "score_samples") or hasattr(self, "_inner_estimator")  # or holds densities
        X, args, options = in_memory(X if source is None else source, args, options, of_density=is_density)
        with on_cluster(source is None and has_client()):
            return fit(self, X, *args, **options)

    return cast(_Method, fit_there)


def _source_of_draws(estimator: Any, X: Any) -> Any:
    """Return a collection as a source of rows if a stochastic fit draws from it; None if the fit needs all rows."""
    if not is_collection(X) or not hasattr(estimator, "_pick_solver"):
        return None
    from vicinal._dask.rows import DaskRows

    source = DaskRows(X)
    return source if estimator._pick_solver(source.shape[0]) == "stochastic" else None


def in_memory(
    X: Any, args: tuple[Any, ...], options: dict[str, Any], *, of_density: bool = False
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a fit, with Dask collections in memory; raise if labels or weights are not aligned with X.

    If a density could not keep all rows of X, a random sample of them is returned, with a warning.
    """
    if not any(map(is_collection, (X, *args, *options.values()))):
        return X, args, options
    from vicinal._dask.rows import tables_in_memory

    return tables_in_memory(X, args, options, of_density)


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
            X = args[0] if args else options.get("X")
            if not is_collection(X):
                return method(self, *args, **options)
            from vicinal._dask.lazy import lazily

            check_is_fitted(self)
            others = {name: value for name, value in options.items() if name != "X"}
            work = _Asked(method.__name__, args[1:], others)
            width = None if columns is None else columns(self)
            kind = None if dtype is None else dtype(self)
            return lazily(self, work, X, width, kind, needs_rows)

        return cast(_Method, answer)

    return decorate


def float_numbers(estimator: Any) -> Any:
    """Return the dtype of scores, which does not depend on that of the rows."""
    return np.dtype(np.float64)


def predictions(estimator: Any, X: Any, y: Any, sample_weight: Any) -> tuple[np.ndarray, Any, Any]:
    """Return an estimator's predictions, the labels and the weights in memory; raise if collections are not aligned with X.

    The rows of a collection stay where they are.
    """
    found = estimator.predict(X)
    if not any(map(is_collection, (found, y, sample_weight))):
        return np.asarray(found), y, sample_weight
    table = found[:, None] if found.ndim == 1 else found
    table, (y, sample_weight), _ = in_memory(table, (y, sample_weight), {})
    return np.asarray(table[:, 0] if found.ndim == 1 else table), y, sample_weight


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


class _Asked:
    """The name of a method, and its arguments other than the rows."""

    def __init__(self, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        self.name, self.args, self.options = name, args, options

    def __call__(self, estimator: Any, rows: Any) -> Any:
        return getattr(estimator, self.name)(rows, *self.args, **self.options)
