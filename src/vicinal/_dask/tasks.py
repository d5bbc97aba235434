"""Coarse tasks on the workers of the active client, with results in the order of the tasks."""

import pickle
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

import dask
from distributed import Client, Future

from vicinal._dask.cluster import (
    ClusterError,
    LostError,
    active_client,
    answer_of,
    new_key,
    sent_to_all,
    threads_of_workers,
    wait_for_a_worker,
)
from vicinal._version import __version__

_AHEAD = 2  # tasks that each thread of a worker is given in advance
_ATTEMPTS = 3  # attempts at a task whose workers were lost
_LARGE_TASK = "distributed.admin.large-graph-warning-threshold"


def n_threads() -> int:
    """Return the number of threads of all workers of the active client; wait if there is no worker yet."""
    client = active_client()
    wait_for_a_worker(client)
    return max(sum(threads_of_workers(client).values()), 1)


def results_in_order(work: Callable[[Any], Any], items: Iterable[Any], name: str) -> Generator[Any, None, None]:
    """Yield ``work(item)`` for each item, in the order of the items, computed by the workers of the active client.

    The work is sent to each worker once, and is the same object in all tasks of a worker. Items are requested only when a
    worker can soon begin with them, and are kept until their result has been fetched: at any time, there are about
    `_AHEAD` items for each thread of a worker. If a worker is lost, other workers repeat its tasks. If the caller stops early,
    the remaining tasks are cancelled.

    Parameters
    ----------
    work : callable
        Can be pickled.
    items : iterable
        Objects that can be pickled.
    name : str
        The name of the tasks on Dask's dashboard.
    """
    tasks = _Tasks(work, name)
    items = iter(items)
    try:
        while True:
            most = _AHEAD * n_threads() + 1
            while len(tasks) < most and tasks.add(items):
                pass
            if not len(tasks):
                return
            yield tasks.first_result()
    finally:
        tasks.cancel()


class _Tasks:
    """Tasks whose results have not been fetched, in their order."""

    def __init__(self, work: Callable[[Any], Any], name: str) -> None:
        self._client, self._work, self._name = active_client(), work, name
        self._there: Future | None = None
        self._waiting: deque[tuple[bytes, Future]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, items: Iterator[Any]) -> bool:
        """Submit the next item; return whether there was one."""
        for item in items:
            # Bytes pass through the scheduler without being unpickled and pickled again.
            code = pickle.dumps(item, protocol=5)
            self._waiting.append((code, self._submitted(code)))
            return True
        return False

    def _submitted(self, code: bytes) -> Future:
        if self._there is None:
            self._there = sent_to_all(self._client, f"{self._name}-work", self._work)
        with dask.config.set({_LARGE_TASK: "1TB"}):  # a task contains a block of rows
            return self._client.submit(
                _worked, __version__, self._there, code,
                key=new_key(self._name), pure=False, retries=0,
            )  # fmt: skip

    def first_result(self) -> Any:
        """Return the result of the first task; send it again if it was lost with a worker."""
        for _ in range(_ATTEMPTS):
            try:
                found = answer_of(
                    self._client, self._waiting[0][1], lambda: "A task holds a block of rows and the model."
                )
                self._waiting.popleft()
                return found
            except LostError as error:
                lost = error
                self.cancel(forget=False)
                self._there = None
                self._waiting = deque((code, self._submitted(code)) for code, _ in self._waiting)
        raise ClusterError(
            f"Dask workers were lost {_ATTEMPTS} times at the same task ({lost}). Look at their logs, or give them more memory."
        )

    def cancel(self, *, forget: bool = True) -> None:
        """Cancel the tasks that are not finished."""
        _cancelled(self._client, [task for _, task in self._waiting])
        if forget:
            self._waiting.clear()


def _cancelled(client: Client, tasks: list[Future]) -> None:
    if tasks and client.status == "running":
        client.cancel(tasks, force=True)


def _worked(version: str, work: Callable[[Any], Any], code: bytes) -> Any:
    """Compute one result: a Dask task, which may be repeated anywhere."""
    if version != __version__:
        raise ClusterError(
            f"this Dask worker has vicinal {__version__}, and the process that sent the task has {version}. Install the same "
            "version on both."
        )
    return work(pickle.loads(code))
