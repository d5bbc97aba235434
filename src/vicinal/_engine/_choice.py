"""Which backend does the pair work: a pure function of shapes and parameters."""

import importlib.util
import warnings
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from vicinal._engine._settings import Engine, as_engine
from vicinal._engine._tuning import PAIR_COST, PRUNED_FROM_POINTS, SMALL_WORK


class Work(NamedTuple):
    """The pair work of a fit: queries, points and dimensions of one pass, and the passes that it is expected to make."""

    n_queries: int
    n_points: int
    n_dims: int
    passes: int = 1


class Choice(NamedTuple):
    """The name of a backend and the reason for it."""

    backend: str
    reason: str


def choose(engine: Engine, work: Work) -> Choice:
    """Return the backend for some work, and why."""
    if engine.kind == "cpu" and _numba_is_missing():
        return Choice("reference", "Numba could not be imported")
    if engine.kind != "auto":
        return Choice(engine.kind, "it was asked for")
    amount = f"{work.n_queries} x {work.n_points} pairs in {work.n_dims} dimensions"
    if work.passes > 1:
        amount += f", {work.passes} times,"
    if float(work.passes) * work.n_queries * work.n_points * (work.n_dims + PAIR_COST) <= SMALL_WORK:
        return Choice("reference", f"{amount} are too few to load compiled kernels")
    if _numba_is_missing():
        return Choice("reference", "Numba could not be imported")
    return Choice("cpu", f"{amount} are enough to justify compiled kernels")


def resolved_engine(engine: "Engine | str | None", work: Work) -> Engine:
    """The engine with its backend chosen for some work, for a fit that prepares several problems."""
    engine = as_engine(engine)
    kind = choose(engine, work).backend
    return replace(engine, kind=kind, device=engine.device if kind == "torch" else None)


@cache
def _numba_is_missing() -> bool:
    """Whether Numba cannot be used; says so once."""
    if importlib.util.find_spec("numba") is not None:
        try:
            import numba  # noqa: F401

            return False
        except Exception as error:  # a Numba that does not fit this Python or NumPy fails in many ways
            reason = f"{type(error).__name__}: {error}"
    else:
        reason = "it is not installed"
    warnings.warn(
        f"Numba could not be imported ({reason}); the slower NumPy engine is used instead.",
        RuntimeWarning,
        stacklevel=2,
    )
    return True


def which_engine(X: ArrayLike, estimator: Any = None) -> str:
    """Say which backend does the pairwise computations for the rows of X, and why.

    From some thousand rows on, the compiled backend skips pairs that are too far apart to matter (see ``error`` of
    :class:`vicinal.Engine`); then the share of the pairs that a pass is expected to visit is said as well. It is counted
    on a sample of rows, under the metric of a fitted estimator, or else under a kernel as wide as the rows of each
    column are spread, narrowed to the number of rows.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
    estimator : estimator, None, str or Engine
        An estimator (fitted or not), for what its ``fit`` on X would use; or an engine as given to an estimator, for one
        pass of all rows against all rows.

    Returns
    -------
    str

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import LCA, which_engine
    >>> print(which_engine(np.zeros((200, 5))))
    reference: 200 x 200 pairs in 5 dimensions are too few to load compiled kernels
    >>> print(which_engine(np.zeros((5000, 5)), LCA()))
    cpu: 5000 x 5000 pairs in 5 dimensions, 20 times, are enough to justify compiled kernels
    """
    shape = np.shape(X)
    if len(shape) != 2:
        raise ValueError(f"X must have two dimensions (rows, columns), got shape {shape}.")
    if hasattr(estimator, "get_params"):
        if not hasattr(estimator, "_pair_work"):
            return f"none: {type(estimator).__name__} makes no computations over all pairs of rows"
        work, engine = estimator._pair_work(*shape), as_engine(estimator.engine)
    else:
        work, engine = Work(shape[0], shape[0], shape[1]), as_engine(estimator)
    backend, reason = choose(engine, work)
    share = 1.0
    if backend == "cpu" and shape[0] >= PRUNED_FROM_POINTS:
        share = _expected_share(engine, np.asarray(X), getattr(estimator, "components_", None))
    visits = "" if share == 1.0 else f"; a pass is expected to visit {100 * share:.2g}% of the pairs"
    return f"{backend}: {reason}{visits}"


def _expected_share(engine: Engine, X: np.ndarray, metric: np.ndarray | None) -> float:
    """The share of the pairs that a pass visits; 1 where that cannot be told, or nothing is skipped."""
    from vicinal._engine._problem import prepare

    if X.dtype.kind not in "fiu" or not np.isfinite(X).all():
        return 1.0
    X = X.astype(np.float64, copy=False)
    if metric is None or metric.ndim != 2 or metric.shape[1] != X.shape[1]:
        spread = X.std(axis=0)
        if not spread.all():
            return 1.0
        metric = len(X) ** (1.0 / (X.shape[1] + 4)) / spread
    return prepare(replace(engine, kind="cpu", device=None), X, leave_one_out=True).at(metric).expected_share
