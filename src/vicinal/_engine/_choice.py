"""Which backend does the pair work: a pure function of shapes and parameters."""

import importlib.util
import warnings
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from vicinal._engine._settings import Engine, as_engine
from vicinal._engine._tuning import PAIR_COST, SMALL_WORK


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


def settled(engine: "Engine | str | None", work: Work) -> Engine:
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
    return f"{backend}: {reason}"
