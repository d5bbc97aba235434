"""Dask collections as arguments of estimators, in `fit` and in the methods for new rows.

Dask itself is imported only if there is a collection, or if ``Engine("dask")`` is used.

::

      fits_collections     a decorator of `fit`: an estimator that needs sums over the rows, or some of them at a time, gets rows that stay
                           on the workers; otherwise they are loaded into memory. The fitted density stays on the workers
      answers_collections  a decorator of `transform`, `score_samples`, ...: a lazy collection, block by block (`lazy.py`)
      rows.py              collections as tables in memory, and as sources of rows
      tasks.py             coarse tasks, with results in their order
      distant_rows.py      rows that stay on the workers, in blocks
      distant.py           a density that is on the workers as one object
      references.py        whether the active client can use a density on the workers, and why not
      spread_scores.py     methods of estimators whose densities have blocks of components on several workers
      cluster.py           the active client, looked up at each call, and the handling of lost workers
      heartbeats.py        workers that do not respond
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted

from vicinal._row_sources import all_rows, in_file

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


def is_distant(density: Any) -> bool:
    """Return whether the rows of a fitted density, or of one inside it, are on the workers of a cluster."""
    return any(getattr(type(mixture), "is_distant", False) for _, mixture in _mixtures_of(density))


def _mixtures_of(estimator: Any) -> list[tuple[Any, Any]]:
    """Yield the densities in a fitted estimator, itself or those that it fitted, and their mixtures."""
    inner = getattr(estimator, "density_", None)
    densities = [estimator, inner, *getattr(estimator, "densities_", ())]
    if inner is not None and hasattr(inner, "steps"):
        densities.append(inner.steps[-1][1])
    found = [(density, vars(density).get("mixture_")) for density in densities if density is not None]
    return [(density, mixture) for density, mixture in found if mixture is not None]


def fits_collections(fit: _Method) -> _Method:
    """Let a `fit` method take Dask collections: X, and labels and weights that are aligned with it."""

    @wraps(fit)
    def fit_there(self: Any, X: Any, *args: Any, **options: Any) -> Any:
        if hasattr(self, "_before_fit"):
            self._before_fit()
        if not any(map(is_collection, (X, *args, *options.values()))):
            fit(self, X, *args, **options)
            if hasattr(self, "_after_fit"):
                self._after_fit()
            return self
        from vicinal._dask.cluster import has_client

        asked, _held = _where_it_is(self, X)
        drawn = asked is not X  # the steps are then small, and this process computes them
        X, args, options = in_memory(asked, args, options)
        with on_cluster(has_client() and not drawn):
            fit(self, X, *args, **options)
        if hasattr(self, "_after_fit"):
            self._after_fit()
        if has_client():
            leave_there(self)
        return self

    return cast(_Method, fit_there)


def _where_it_is(estimator: Any, X: Any) -> tuple[Any, Any]:
    """Return a collection as a source of rows if a fit does not need all of them in this process, else X unchanged.

    The second result must be kept until the rows have been loaded: it refers to partitions that were computed to find
    their sizes.
    """
    from vicinal._dask.cluster import has_client

    held = None
    if hasattr(estimator, "_fits_distant_rows") and has_client() and has_numbers(X):
        from vicinal._dask.distant_rows import Persisted

        held = Persisted(X)
        if held.shape[0] and estimator._fits_distant_rows(held.shape, held.dtype):
            return held.rows(), None
    if is_collection(X) and hasattr(estimator, "_pick_solver"):
        from vicinal._dask.rows import DaskRows

        source = DaskRows(X)
        if estimator._pick_solver(source.shape[0]) == "stochastic":
            return source, held
    return X, held


def has_numbers(X: Any) -> bool:
    """Return whether X is a collection of rows of numbers; other collections raise an error where they are loaded."""
    if not is_collection(X) or hasattr(getattr(X, "_meta", None), "nnz"):
        return False
    kinds = list(X.dtypes) if hasattr(X, "columns") else [getattr(X, "dtype", None)]
    return getattr(X, "ndim", 0) == 2 and all(getattr(kind, "kind", "O") in "fiub" for kind in kinds)


def are_distant(rows: Any) -> bool:
    """Return whether rows are on the workers of a cluster; see `DistantRows`."""
    return bool(getattr(type(rows), "is_distant", False))


def in_memory(X: Any, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a fit, with Dask collections in memory; raise if labels or weights are not aligned with X."""
    if not any(map(is_collection, (X, *args, *options.values()))):
        return X, args, options
    from vicinal._dask.rows import tables_in_memory

    return tables_in_memory(X, args, options)


def leave_there(estimator: Any) -> None:
    """Move the densities of a fitted estimator to the workers: a small one to each, a large one in blocks."""
    from vicinal._dask.distant import DistantMixture
    from vicinal._dask.distant_rows import DistantRows

    for density, mixture in _mixtures_of(estimator):
        if "centres" not in vars(mixture):
            continue
        spread = mixture.spread()
        density.mixture_ = DistantMixture.of(mixture) if spread is None else spread
        if spread is not None and "rows_" in vars(density):  # of LCA-Gauss, whose centres have moved away from its rows
            density.rows_ = DistantRows.sent(density.rows_)


def gather(estimator: Any) -> Any:
    """Move the densities of a fitted estimator into this process; do nothing if they are here already."""
    for density, mixture in _mixtures_of(estimator):
        if getattr(type(mixture), "is_distant", False):
            density.mixture_ = mixture.gather()
        elif in_file(vars(mixture).get("centres")):
            density.mixture_ = copy(mixture)  # another object, for which the engine keeps no placement in the file
            density.mixture_.centres = np.array(mixture.centres)
        rows = vars(density).get("rows_")  # of LCA-Gauss, whose centres have moved away from its rows
        if are_distant(rows):
            density.rows_ = all_rows(rows)
        elif in_file(rows):
            density.rows_ = np.array(rows)
    return estimator


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
        Whether the method needs the training rows. If these are on the workers, rows in memory are sent there, too.
    """

    def decorate(method: _Method) -> _Method:
        @wraps(method)
        def answer(self: Any, *args: Any, **options: Any) -> Any:
            X = args[0] if args else options.get("X")
            there = is_collection(X)
            if not there and not (needs_rows and is_distant(self) and X is not None):
                return method(self, *args, **options)
            from vicinal._dask.lazy import answered, lazily

            check_is_fitted(self)
            if needs_rows:
                for _, mixture in _mixtures_of(self):
                    _ = mixture.n_features  # raises an explanatory error if the rows were not kept
            others = {name: value for name, value in options.items() if name != "X"}
            work = _Asked(method.__name__, args[1:], others)
            width = None if columns is None else columns(self)
            kind = None if dtype is None else dtype(self)
            return lazily(self, work, X, width, kind, needs_rows) if there else answered(self, work, X)

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
