"""The active Dask client: data that the workers hold, tasks, and their results.

Dask itself repeats the tasks of a lost worker.  Data are results of tasks as well, which contain them, so that they come back in
the same way; only the scheduler must survive.
"""

import logging
import pickle
import signal
import time
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from itertools import islice
from typing import Any

import dask
from distributed import Client, Future, KilledWorker, WorkerPlugin, get_client, wait

from vicinal._version import __version__

PATIENCE = 20.0  # the time without any worker after which a call raises an error, in seconds
LOOK_EVERY = 2.0  # the interval at which a waiting call checks whether there are still workers, in seconds
_COPY_SECONDS = 5.0  # how long workers that are slow to copy data are waited for
_AHEAD = 2  # tasks that each thread of a worker is given in advance
_LARGE_TASK = "distributed.admin.large-graph-warning-threshold"


class ClusterError(RuntimeError):
    """The scheduler or the workers cannot do the work; the message names the reason and a remedy."""


class OwnWorker(WorkerPlugin):  # type: ignore[misc]  # Dask has no types here
    """A worker that belongs to this process.

    Ctrl-C on a terminal reaches the workers as well, but only the calling process handles it: it may still need them to return the
    best parameters so far, and it stops them. Their logs are not shown.
    """

    name = "vicinal-own-worker"

    def setup(self, worker: Any) -> None:
        """Change the settings of a worker when it starts."""
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        with suppress(ValueError):  # not the main thread of its process
            signal.signal(signal.SIGINT, signal.SIG_IGN)


# -- the client and its workers ----------------------------------------------------------------------------------------


def has_client() -> bool:
    """Return whether there is an active client."""
    try:
        return bool(get_client().status in ("running", "connecting"))
    except ValueError:
        return False


def active_client(purpose: str = "Engine('dask')") -> Client:
    """Return the active client; if there is none, raise an error that names the remedy and what needs the client."""
    if not has_client():
        raise RuntimeError(
            f"{purpose} needs an active Dask client, and found none. Create one first: distributed.Client() starts "
            "workers on this machine, and distributed.Client('tcp://host:8786') connects to those of a scheduler. Processes that "
            "joblib starts (n_jobs=2 in GridSearchCV) have none: use n_jobs=1 there."
        )
    client = get_client()
    if client.asynchronous:
        raise RuntimeError(
            f"{purpose} waits for the workers, and the active Dask client is asynchronous. Create one without asynchronous=True, "
            "and call the estimator in a thread (await asyncio.to_thread(estimator.fit, X)) if an event loop must go on meanwhile."
        )
    return client


def threads_of_workers(client: Client) -> dict[str, int]:
    """Return the threads of each worker that accepts tasks; paused workers, whose memory is full, accept none."""
    return _threads(client) or {}


def _threads(client: Client) -> dict[str, int] | None:
    """Return the threads of the workers that accept tasks; None if the scheduler does not answer."""
    if client.status != "running":  # it has lost the scheduler, and tries to connect to it again
        return None
    try:
        return dict(client.sync(client.scheduler.ncores_running, workers=None, callback_timeout=5.0))
    except (OSError, TimeoutError, CancelledError, AttributeError):
        return None


def n_threads() -> int:
    """Return the number of threads of all workers of the active client; wait if there is no worker yet."""
    client = active_client()
    wait_for_a_worker(client)
    return max(sum(threads_of_workers(client).values()), 1)


def wait_for_a_worker(client: Client) -> None:
    """Wait until there is a worker; raise an error if there has been none for some time."""
    since = time.monotonic()
    while not (threads := _threads(client)):
        if time.monotonic() - since > PATIENCE or client.status == "closed":
            if threads is None or client.status == "closed":
                raise _lost_scheduler(client)
            raise ClusterError(
                f"no Dask worker has been available for {PATIENCE:.0f} s, or all are paused because their memory is full, so nothing "
                "can be computed. Start workers (dask worker tcp://scheduler:8786), or look at the logs of the workers that left."
            )
        time.sleep(0.5)


def _lost_scheduler(client: Client) -> ClusterError:
    address = getattr(client.scheduler, "address", None) or "of the client"
    return ClusterError(
        f"the Dask scheduler {address} has not answered for {PATIENCE:.0f} s, so nothing can be computed: it has ended, or cannot be "
        "reached. Start it and its workers again, and create a new client."
    )


# -- data and results --------------------------------------------------------------------------------------------------


def new_key(name: str) -> str:
    """Return a key that was never used; Dask's dashboard shows the name."""
    return f"{name}-{uuid.uuid4().hex}"


def held_by_workers(client: Client, name: str, things: Sequence[Any], *, by_all: bool = False) -> list[Future]:
    """Return objects as data of the workers; with `by_all`, every worker gets them before its first task.

    Dask prefers workers that hold the data of a task, so that the others would be idle.

    Parameters
    ----------
    client : Client
    name : str
        The name of the data on Dask's dashboard.
    things : sequence of objects
    by_all : bool
    """
    with dask.config.set({_LARGE_TASK: "1TB"}):
        data = [client.submit(_itself, thing, key=new_key(name), pure=False) for thing in things]
    workers = threads_of_workers(client)
    if by_all and len(workers) > 1:
        copies = [
            client.submit(_no_result, *data, workers=[worker], key=new_key("vicinal.copy"), pure=False)
            for worker in workers
        ]
        with suppress(TimeoutError, CancelledError):  # a worker may leave meanwhile
            wait(copies, timeout=_COPY_SECONDS)
    return data


def _itself(thing: Any) -> Any:
    """Return the argument, which becomes data of a worker."""
    return thing


def _no_result(*things: Any) -> None:
    """Do nothing, on a worker that has fetched some objects for it."""


def finished(client: Client, tasks: list[Future], explain: Callable[[], str]) -> Iterator[tuple[Future, Any]]:
    """Yield tasks with their results as soon as the first half of them has finished; stop waiting if no worker is available.

    Asking for the result of each task by itself would take longer than a short task.  The halves of what is left become
    smaller and smaller, so that little is left to be fetched when the last task has finished.

    Parameters
    ----------
    explain : callable
        Return what a worker needs memory for; used in the message if several workers in a row die.
    """
    first, since = tasks[: (len(tasks) + 1) // 2], time.monotonic()
    while not all(task.done() for task in first) and all(task.status in ("pending", "finished") for task in tasks):
        try:
            wait(first, timeout=LOOK_EVERY)
        except (TimeoutError, CancelledError):
            wait_for_a_worker(client)
            if time.monotonic() - since > PATIENCE:
                _check_not_paused(client, tasks, explain)
    done = [task for task in tasks if task.done()]
    try:
        results = client.gather(done)
    except KilledWorker as error:
        raise ClusterError(
            f"several Dask workers in a row died at the same task, most likely because their memory was full: {error} {explain()} Give "
            "workers more memory, or fewer threads each."
        ) from error
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("vicinal"):
            raise
        raise ClusterError(
            "a Dask worker cannot import vicinal. Install the same version of it on all workers and on the scheduler."
        ) from error
    except (CancelledError, OSError) as error:
        raise _lost_scheduler(client) from error
    yield from zip(done, results, strict=True)


def _check_not_paused(client: Client, tasks: list[Future], explain: Callable[[], str]) -> None:
    """Raise an error if tasks wait on a worker that is paused; Dask leaves them there."""
    running = threads_of_workers(client)
    try:
        tasks_of = client.sync(client.scheduler.processing, workers=None, callback_timeout=5.0)
    except (OSError, TimeoutError, CancelledError):
        return
    for worker in tasks_of.keys() - running.keys():
        if any(task.key in tasks_of[worker] for task in tasks):
            raise ClusterError(
                f"the Dask worker {worker} has been paused for {PATIENCE:.0f} s because its memory is full, and tasks wait on it. "
                f"{explain()} Give workers more memory, or fewer threads each."
            )


def results(client: Client, tasks: list[Future], explain: Callable[[], str]) -> list[Any]:
    """Return the results of tasks; cancel those that have not finished if something fails."""
    waiting = list(dict.fromkeys(tasks))
    result_of: dict[Future, Any] = {}
    try:
        while waiting:
            result_of.update(finished(client, waiting, explain))
            waiting = [task for task in waiting if task not in result_of]
    finally:
        cancel(client, waiting)
    return [result_of[task] for task in tasks]


def cancel(client: Client, tasks: Iterable[Future]) -> None:
    """Cancel the tasks that have not finished."""
    waiting = [task for task in tasks if not task.done()]
    if waiting and client.status == "running":
        client.cancel(waiting, force=True)


def computed(tasks: list[Any]) -> list[Any]:
    """Compute delayed tasks, on the workers of the active client if there is one, and return the results."""
    if not has_client():
        return list(dask.compute(*tasks))
    client = active_client()
    wait_for_a_worker(client)
    futures = client.compute(tasks, optimize_graph=True)
    return results(client, futures, lambda: "A task holds a partition and its results.")


def results_in_order(work: Callable[[Any], Any], items: Iterable[Any], name: str) -> Generator[Any, None, None]:
    """Yield ``work(item)`` for each item, in the order of the items, computed by the workers of the active client.

    The work is sent to each worker once. Items are requested only when a worker can soon begin with them. If the caller stops
    early, the remaining tasks are cancelled.

    Parameters
    ----------
    work : callable
        Can be pickled.
    items : iterable
        Objects that can be pickled.
    name : str
        The name of the tasks on Dask's dashboard.
    """
    client, items = active_client(), iter(items)
    wait_for_a_worker(client)
    [there] = held_by_workers(client, f"{name}-work", [work], by_all=True)
    waiting: deque[Future] = deque()
    try:
        while True:
            for item in islice(items, max(_AHEAD * n_threads() + 1 - len(waiting), 0)):
                # Bytes pass through the scheduler without being unpickled and pickled again.
                code = pickle.dumps(item, protocol=5)
                with dask.config.set({_LARGE_TASK: "1TB"}):  # a task contains a block of rows
                    task = client.submit(_worked, __version__, there, code, key=new_key(name), pure=False)
                waiting.append(task)
            if not waiting:
                return
            [result] = results(client, [waiting[0]], lambda: "A task holds a block of rows and the model.")
            waiting.popleft()
            yield result
    finally:
        cancel(client, waiting)


def check_version(version: str) -> None:
    """Raise an error on a worker whose version of the library is not that of the process that sent a task."""
    if version != __version__:
        raise ClusterError(
            f"this Dask worker has vicinal {__version__}, and the process that sent the task has {version}. Install the same "
            "version on both."
        )


def _worked(version: str, work: Callable[[Any], Any], code: bytes) -> Any:
    """Compute one result: a Dask task, which may be repeated anywhere."""
    check_version(version)
    return work(pickle.loads(code))
