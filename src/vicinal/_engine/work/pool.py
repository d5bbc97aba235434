"""Run blocks of work on a thread pool, with results in order; Ctrl-C takes effect between blocks."""

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import chain, islice
from typing import Any, TypeVar

import joblib
import numpy as np
from threadpoolctl import ThreadpoolController

from vicinal._engine import tuning
from vicinal._engine.work.sharing import Filled, Sums, Touched, TreeSum, WithItem, sharing

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def available_threads(requested: int | None = None) -> int:
    """Return the number of threads to use: the requested number, or the number that this process may use.

    `joblib.cpu_count` respects CPU affinity and cgroup limits; joblib gives its loky workers a share of the machine
    through OMP_NUM_THREADS, which is respected as well.
    """
    if requested is not None:
        return int(requested)
    count = joblib.cpu_count()
    with suppress(KeyError, ValueError):
        count = min(count, int(os.environ["OMP_NUM_THREADS"]))
    return max(count, 1)


def in_order(
    work: Callable[[_Item], _Result],
    items: Iterable[_Item],
    n_threads: int,
    filled: Filled | None = None,
    costs: np.ndarray | None = None,
) -> Iterator[_Result]:
    """Yield ``work(item)`` for each item, in the order of the items, computed by `n_threads` threads.

    If `filled` is given, which describes the arrays that the items fill besides their results, other processes may compute them
    (`work/sharing.py`); `costs` then are the expected numbers of pairs of the items.

    At most ``n_threads + 1`` results exist at a time.  The pool exists for this call only, so nothing survives a fork.
    A single item needs no pool: waking a thread would take longer than scoring a row.  BLAS uses one thread meanwhile.
    An exception, KeyboardInterrupt included, stops new blocks, waits for the running ones, and is raised.
    """
    those = None if filled is None else sharing()
    if those is not None and filled is not None and those.takes(costs):
        yield from those.run(work, list(items), filled, costs)
        return
    items = iter(items)
    first = list(islice(items, 2))
    items = iter(chain(first, items))
    with _blas_limit:
        if len(first) <= 1 or n_threads <= 1:
            yield from map(work, items)
        else:
            yield from _pooled(work, items, n_threads)


def summed(
    work: Callable[[_Item], Sums | Touched],
    pieces: Sequence[_Item],
    n_threads: int,
    filled: Filled,
    costs: np.ndarray | None = None,
) -> Sums | None:
    """Return the sums of ``work(piece)``, added in a tree that depends only on the number of pieces; None without pieces."""
    return summed_and_listed(work, pieces, n_threads, filled, costs)[0]


def summed_and_listed(
    work: Callable[[_Item], Sums | Touched | WithItem],
    pieces: Sequence[_Item],
    n_threads: int,
    filled: Filled,
    costs: np.ndarray | None = None,
) -> tuple[Sums | None, list[Any]]:
    """Return the sums of ``work(piece)`` as `summed` does, and the items of those pieces that have one, in order."""
    tree, listed, those = TreeSum(), [], sharing()
    if those is None or not those.takes(costs):
        for sums, items in in_order(lambda piece: _touched_and_items(work(piece)), pieces, n_threads):
            listed.extend(items)
            tree.add(sums)
    else:
        for node in those.run_nodes(work, pieces, filled, costs):
            listed.extend(node.items)
            tree.add(node.sums, node.level)
    return tree.total(), listed


def _touched_and_items(found: Sums | Touched | WithItem) -> tuple[Sums | Touched, list[Any]]:
    """Return the sums of a piece without their zeros, which would take much memory until they are added, and its item."""
    sums, items = (found.sums, [found.item]) if isinstance(found, WithItem) else (found, [])
    if not isinstance(sums, Touched) and sums and sums[0].ndim > 1:
        return Touched.of(sums), items
    return sums, items


def _pooled(work: Callable[[_Item], _Result], items: Iterator[_Item], n_threads: int) -> Iterator[_Result]:
    with ThreadPoolExecutor(n_threads, thread_name_prefix="vicinal") as pool:
        pending = deque(pool.submit(work, item) for item in islice(items, n_threads + 1))
        try:
            while pending:
                result = pending.popleft().result()
                for item in islice(items, 1):
                    pending.append(pool.submit(work, item))
                yield result
        finally:
            for future in pending:
                future.cancel()


class _BlasLimit:
    """Limit BLAS to one thread while any caller is inside; the limit is per process, so callers are counted.

    The numbers of threads are read and set directly, by threadpoolctl's controllers.  Its limiters restore them only
    from the thread that set them, and the last caller to leave need not be the one that came first.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before: list[tuple[Any, int]] = []

    def restart_in_child(self) -> None:
        """Reset the state in a forked child, which inherits the limit and a count of threads that it does not have."""
        self._restore()
        self._lock = threading.Lock()
        self._inside = 0

    def _restore(self) -> None:
        for library, threads in self._before:
            _set_threads(library, threads)
        self._before = []

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                libraries = [library for library in _thread_pools().lib_controllers if library.user_api == "blas"]
                self._before = [(library, library.get_num_threads()) for library in libraries]
                for library in libraries:
                    _set_threads(library, 1)

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._restore()


def _set_threads(library: Any, threads: int) -> None:
    library.set_num_threads(threads)
    # From version 3.8 on, threadpoolctl lets only the thread that set a limit change it, until that thread releases it.
    if hasattr(library, "clear_controlling_thread"):
        library.clear_controlling_thread()


class _ThreadPools:
    """The thread pools of this process: found at the first use and again when a module was imported since.

    Finding them takes milliseconds, and a library with its own BLAS (SciPy's, torch's) may be loaded at any time,
    together with new modules.
    """

    def __init__(self) -> None:
        self._controller: ThreadpoolController | None = None
        self._n_modules = 0

    def __call__(self) -> ThreadpoolController:
        if self._controller is None or len(sys.modules) != self._n_modules:
            self._n_modules = len(sys.modules)
            self._controller = ThreadpoolController()
        return self._controller


_thread_pools = _ThreadPools()


_blas_limit = _BlasLimit()
if hasattr(os, "register_at_fork"):  # Windows has neither fork nor this
    os.register_at_fork(after_in_child=_blas_limit.restart_in_child)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Within this context, BLAS uses one thread, because blocks run in parallel."""
    with _blas_limit:
        yield


@contextmanager
def openmp_threads(threads: int) -> Iterator[None]:
    """Within this context, OpenMP loops that this thread starts (those of scikit-learn) use a given number of threads."""
    with _thread_pools().limit(limits=threads, user_api="openmp"):
        yield


@contextmanager
def one_blas_thread_beside_pairs(n_rows: int, n_columns: int) -> Iterator[None]:
    """Within this context, matrix products use one thread if they are small, by themselves or compared with the pairwise
    computations.

    OpenBLAS's threads wait for more work by spinning, for some twenty milliseconds after each product, on the
    cores that the pairwise computations need.  A product of (n, D) rows costs D / n of a sweep over the pairs.  With many
    columns, the algebra between the sweeps takes most of the time, and threads help if each product takes longer than they spin.
    """
    if 4 * n_columns <= n_rows or max(n_rows, n_columns) * n_columns**2 <= tuning.ONE_THREAD_PRODUCT:
        with _blas_limit:
            yield
    else:
        yield
