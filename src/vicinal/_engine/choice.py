"""Choose the backend of pairwise computations, as a pure function of shapes and parameters."""

import importlib.util
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from vicinal._callers import callers_line
from vicinal._engine import tuning
from vicinal._engine.settings import Engine, as_engine

_rows_on_cluster: ContextVar[bool] = ContextVar("vicinal_rows_on_cluster", default=False)


def rows_on_cluster() -> bool:
    """Return whether a fit to a Dask collection is running here with an active client; "auto" then means the cluster."""
    return _rows_on_cluster.get()


@contextmanager
def on_cluster(there: bool = True) -> Iterator[None]:
    """Within this context, engines that are "auto" use the workers of the active Dask client."""
    token = _rows_on_cluster.set(there)
    try:
        yield
    finally:
        _rows_on_cluster.reset(token)


class Work(NamedTuple):
    """The size of the pairwise computations of a fit: queries, points and dimensions of a pass, and the expected number of passes."""

    n_queries: int
    n_points: int
    n_dims: int
    passes: int = 1


class Choice(NamedTuple):
    """The name of a backend and the reason for its choice."""

    backend: str
    reason: str


def choose(engine: Engine, work: Work) -> Choice:
    """Return the backend for some work, with the reason."""
    if engine.kind == "cpu" and numba_is_missing():
        return Choice("reference", "Numba could not be imported")
    if engine.kind == "dask" and _inside_task():
        return Choice("reference" if numba_is_missing() else "cpu", "this is a task on a worker already")
    if engine.kind != "auto":
        return Choice(engine.kind, "it was requested")
    amount = f"{work.n_queries} x {work.n_points} pairs in {work.n_dims} dimensions"
    if work.passes > 1:
        amount += f", {work.passes} times,"
    if float(work.passes) * work.n_queries * work.n_points * (work.n_dims + tuning.PAIR_COST) <= tuning.SMALL_WORK:
        return Choice("reference", f"{amount} are too few to load compiled kernels")
    if rows_on_cluster():
        return Choice("dask", f"{amount} came from a Dask collection, and there is an active client")
    if numba_is_missing():
        return Choice("reference", "Numba could not be imported")
    return Choice("cpu", f"{amount} are enough to justify compiled kernels")


def resolved_engine(engine: "Engine | str | None", work: Work) -> Engine:
    """Return the engine with its backend chosen for some work, for a fit that prepares several problems."""
    engine = as_engine(engine)
    kind = choose(engine, work).backend
    return replace(engine, kind=kind, device=engine.device if kind == "torch" else None)


def _inside_task() -> bool:
    """Return whether this code runs in a task on a Dask worker, which must not submit work to other workers."""
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:
        return False
    return True


@cache
def numba_is_missing() -> bool:
    """Return whether Numba cannot be used, with one warning per process."""
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
        stacklevel=callers_line(),
    )
    return True
