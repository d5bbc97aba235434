"""The part of `dask/backend.py` that runs on a Dask worker: pieces of a reduction, on arrays that it holds.

A task contains the code of its pieces with references instead of large arrays: to data that Dask has put on the worker, and
to objects that the worker makes from them and keeps (the rows under the metric of the pass, in tiles).
"""

import io
import operator
import pickle
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from vicinal._engine.dask.cluster import check_version
from vicinal._engine.work.pool import one_blas_thread
from vicinal._engine.work.sharing import node_of

_KEPT = 16  # the maximum number of objects that a worker keeps, over all problems


@dataclass(frozen=True)  # not a tuple, which Dask would search for tasks
class Job:
    """The common part of all tasks of a reduction, in the form in which it is sent.

    Attributes
    ----------
    version : str
        The version of the library.
    code : bytes
        Two functions, pickled with references: what is done with a piece, and the rows that it fills.
    recipes : dict
        For each object that the worker makes: a function and its arguments, pickled with references.
    problem, alive : str, frozenset of str
        The name of the problem, and the objects that it may still need; other objects that were made for it can be dropped.
    filled : list
        The shapes and dtypes of the arrays that pieces fill.
    keys : list of str
        The names of the data that come with the task.
    """

    version: str
    code: bytes
    recipes: dict[str, bytes]
    problem: str
    alive: frozenset[str]
    filled: list[tuple[tuple[int, ...], np.dtype[Any]]]
    keys: list[str]


@dataclass(frozen=True)
class Group:
    """Consecutive pieces of one task: those of a node with its level, or with None if each piece has its own result."""

    level: int | None
    pieces: Sequence[Any]


class Answer(NamedTuple):
    """The results of the pieces, or their node, and what they filled, for consecutive rows from `start` on."""

    results: Any
    start: int
    filled: tuple[np.ndarray, ...]


class _Made:
    """Objects that were made from data of this worker; they are dropped with that data, or when their problem no longer needs them."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._things: OrderedDict[tuple[str, str], Any] = OrderedDict()

    def get(self, key: str, job: Job, data: dict[str, np.ndarray]) -> Any:
        name = job.problem, key
        with self._lock:  # so that two tasks that need the same object do not both make it
            if name not in self._things:
                for other in [other for other in self._things if other[0] == job.problem and other[1] not in job.alive]:
                    del self._things[other]
                loader = _Loader(job.recipes[key], job, data, [])
                make, args = loader.load()
                self._things[name] = make(*args)
                for array in loader.used:
                    weakref.finalize(array, self._things.pop, name, None).atexit = False
            self._things.move_to_end(name)
            while len(self._things) > _KEPT:
                self._things.popitem(last=False)
            return self._things[name]


_made = _Made()


class _Loader(pickle.Unpickler):
    """Replaces references by arrays."""

    def __init__(self, code: bytes, job: Job, data: dict[str, np.ndarray], filled: list[np.ndarray]) -> None:
        super().__init__(io.BytesIO(code))
        self._job, self._data, self._filled = job, data, filled
        self.used: list[np.ndarray] = []

    def persistent_load(self, reference: Any) -> Any:
        kind, name, path = reference
        if kind == "data":
            self.used.append(self._data[name])
            return self._data[name]
        if kind == "filled":
            return self._filled[name]
        if kind == "kernel":
            return getattr(import_module(name), path)
        thing = _made.get(name, self._job, self._data)
        for step in path:
            thing = getattr(thing, step) if isinstance(step, str) else operator.getitem(thing, step)
        return thing


def do_pieces(job: Job, group: Group, *data: np.ndarray) -> Answer:
    """Compute some consecutive pieces of a reduction: a Dask task, which may be repeated anywhere."""
    check_version(job.version)
    level, pieces = group.level, group.pieces
    filled = [np.zeros(shape, dtype) for shape, dtype in job.filled]
    work, rows_of = _Loader(job.code, job, dict(zip(job.keys, data, strict=True)), filled).load()
    with one_blas_thread():
        results = [work(piece) for piece in pieces] if level is None else node_of(work, pieces, level)
    rows = slice(rows_of(pieces[0]).start, rows_of(pieces[-1]).stop)
    # Copies, so that the whole arrays can be freed before the result is fetched.
    return Answer(results, rows.start, tuple(array[rows].copy() for array in filled))
