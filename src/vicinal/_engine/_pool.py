"""Our own threads: blocks in parallel, results in order, Ctrl-C between blocks."""

import os
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any

import joblib
from threadpoolctl import ThreadpoolController


def available_threads(requested=None):
    """The number of threads to use: what was asked for, or what this process may use.

    `joblib.cpu_count` honours CPU affinity and cgroup limits; joblib gives its loky workers a share of the machine
    through OMP_NUM_THREADS, which is honoured as well.
    """
    if requested is not None:
        return int(requested)
    count = joblib.cpu_count()
    with suppress(KeyError, ValueError):
        count = min(count, int(os.environ["OMP_NUM_THREADS"]))
    return max(count, 1)


def in_order(work, items, n_threads):
    """Yield ``work(item)`` for each item, in the order of the items, computed by `n_threads` threads.

    At most ``n_threads + 1`` results exist at a time.  The pool lives for this call only, so nothing survives a fork.
    An exception, KeyboardInterrupt included, stops new blocks, waits for the running ones, and is raised.
    """
    items = iter(items)
    if n_threads <= 1:
        yield from map(work, items)
        return
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
    """Holds BLAS to one thread while anyone is inside: the limit is process-wide, so callers are counted."""

    def __init__(self):
        self._start()

    def _start(self):
        self._lock = threading.Lock()
        self._inside = 0
        self._limiter: Any = None
        self._controller: Any = None

    def restart_in_child(self):
        """A forked child inherits the limit, and a count of threads that it does not have."""
        if self._limiter is not None:
            self._limiter.__exit__(None, None, None)
        self._start()

    def __enter__(self):
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                if self._controller is None:
                    self._controller = ThreadpoolController()
                self._limiter = self._controller.limit(limits=1, user_api="blas")
                self._limiter.__enter__()

    def __exit__(self, *exc):
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limiter.__exit__(None, None, None)
                self._limiter = None


_blas_limit = _BlasLimit()
os.register_at_fork(after_in_child=_blas_limit.restart_in_child)


@contextmanager
def one_blas_thread():
    """Inside, BLAS uses one thread: the parallelism is over blocks."""
    with _blas_limit:
        yield


@contextmanager
def blas_out_of_the_way(n_rows, n_columns):
    """Inside, matrix products that are small beside the pair work around them use one thread.

    OpenBLAS's threads wait for more work by spinning, for some twenty milliseconds after each product: on the very
    cores that the pair work then wants.  A product of (n, D) rows costs D / n of a sweep over the pairs.
    """
    if 4 * n_columns <= n_rows:
        with _blas_limit:
            yield
    else:
        yield
