"""The active Dask client, and the handling of lost workers."""

import asyncio
import logging
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any

import dask
from distributed import Client, Future, KilledWorker, WorkerPlugin, get_client, get_worker, wait

PATIENCE = 20.0  # the time without any worker after which a call raises an error, in seconds
LOOK_EVERY = 2.0  # the interval at which a waiting call checks whether there are still workers, in seconds
_ATTEMPTS = 3  # attempts to send something to all workers
_COPY_LOOKS = (
    10  # waits of half a second each, after which a worker that has not copied the data is no longer waited for
)


class LostError(Exception):
    """Data or results were on workers that have left."""


class ClusterError(RuntimeError):
    """The scheduler or the workers cannot do the work; the message names the reason and a remedy."""


class OwnWorker(WorkerPlugin):
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


def has_client() -> bool:
    """Return whether there is an active client."""
    try:
        return bool(get_client().status in ("running", "connecting"))
    except ValueError:
        return False


def inside_task() -> bool:
    """Return whether this code runs in a task on a worker, which must not submit work to other workers."""
    try:
        get_worker()
    except ValueError:
        return False
    return True


def active_client(asked: str = "Engine('dask')") -> Client:
    """Return the active client; if there is none, raise an error that names the remedy and what needs the client."""
    if not has_client():
        raise RuntimeError(
            f"{asked} needs an active Dask client, and found none. Create one first: distributed.Client() starts "
            "workers on this machine, and distributed.Client('tcp://host:8786') connects to those of a scheduler. Processes that "
            "joblib starts (n_jobs=2 in GridSearchCV) have none: use n_jobs=1 there."
        )
    client = get_client()
    if client.asynchronous:
        raise RuntimeError(
            f"{asked} waits for the workers, and the active Dask client is asynchronous. Create one without asynchronous=True, "
            "and call the estimator in a thread (await asyncio.to_thread(estimator.fit, X)) if an event loop must go on meanwhile."
        )
    return client


def threads_of_workers(client: Client) -> dict[str, int]:
    """Return the workers that accept tasks, and their threads, without workers that are paused because their memory is
    full; return none if the scheduler does not answer."""
    return _threads(client) or {}


def _threads(client: Client) -> dict[str, int] | None:
    """Return the threads of the workers that accept tasks; None if the scheduler does not answer."""
    if client.status != "running":  # it has lost the scheduler, and tries to connect to it again
        return None
    try:
        return dict(client.sync(client.scheduler.ncores_running, workers=None, callback_timeout=5.0))
    except (OSError, TimeoutError, CancelledError, AttributeError):
        return None


def wait_for_a_worker(client: Client) -> None:
    """Wait until there is a worker; raise an error if there has been none for some time."""
    since = time.monotonic()
    while not (found := _threads(client)):
        if time.monotonic() - since > PATIENCE or client.status == "closed":
            raise ClusterError(_why_nobody(client, found is not None))
        time.sleep(0.5)


def _why_nobody(client: Client, answers: bool) -> str:
    """Return why no worker is available, and what to do."""
    if not answers or client.status == "closed":
        return (
            f"the Dask scheduler {_address(client)} has not answered for {PATIENCE:.0f} s, so nothing can be computed: it has ended, or "
            "cannot be reached. Start it and its workers again, and create a new client."
        )
    return (
        f"no Dask worker has been available for {PATIENCE:.0f} s, or all are paused because their memory is full, so nothing can be "
        "computed. Start workers (dask worker tcp://scheduler:8786), or look at the logs of the workers that left."
    )


def _address(client: Client) -> str:
    return str(getattr(client.scheduler, "address", None) or "of the client")


def scattered(client: Client, things: dict[str, Any]) -> dict[str, Future]:
    """Send objects to some workers, by key (see `new_key`); the others fetch them with the first task that needs them."""
    try:
        return dict(_outcome(client, client.scatter(things, timeout=2.0, asynchronous=True)))
    except (OSError, TimeoutError, KeyError, ValueError) as error:  # no worker, or one left while it was sent something
        wait_for_a_worker(client)
        raise LostError(f"{type(error).__name__}: {error}") from error


def broadcast(client: Client, things: dict[str, Any]) -> dict[str, Future]:
    """Send objects to all workers, by key (see `new_key`).

    Dask's own broadcast waits forever if a worker leaves while it copies something (`Scheduler.replicate` contacts it again and
    again), and so does every later one on that scheduler.  Here the objects are put on some workers, and a task on each
    worker lets it fetch them from the others.  The wait for a slow worker is limited.
    """
    sent = scattered(client, things)
    workers = threads_of_workers(client)
    if len(workers) > 1:
        copies = [
            client.submit(_hold, *sent.values(), workers=[name], key=new_key("vicinal.copy"), pure=False)
            for name in workers
        ]
        with suppress(CancelledError):
            for _ in range(_COPY_LOOKS):
                try:
                    wait(copies, timeout=0.5)
                    break
                except TimeoutError:
                    if workers.keys() - threads_of_workers(client).keys():
                        break
    return sent


def _hold(*things: Any) -> None:
    """Do nothing, on a worker that has fetched some objects for it."""


def sent_to_all(client: Client, name: str, thing: Any) -> Future:
    """Send an object to all workers, under a key that begins with a name; try again if workers are lost meanwhile."""
    for _ in range(_ATTEMPTS):
        key = new_key(name)
        try:
            return broadcast(client, {key: thing})[key]
        except LostError as error:
            lost = error
    raise ClusterError(
        f"Dask workers were lost {_ATTEMPTS} times while data were sent to them ({lost}). Look at their logs."
    )


def new_key(name: str) -> str:
    """Return a key that was never used; Dask's dashboard shows the name.

    The data of a key that is used again may be lost: the message that releases the old data travels beside the one that
    brings the new data, and may arrive after it.
    """
    return f"{name}-{uuid.uuid4().hex}"


def finished(client: Client, tasks: list[Future], explain: Callable[[], str]) -> Iterator[tuple[Future, Any]]:
    """Yield tasks with their results as soon as the first half of them has finished; stop waiting if no worker is available.

    Asking for the result of each task by itself would take longer than a short task.  The halves of what is left become
    smaller and smaller, so that little is left to be fetched when the last task has finished.

    Parameters
    ----------
    explain : callable
        Return what a worker needs memory for; used in the message if several workers in a row die.
    """
    since = time.monotonic()
    first = tasks[: (len(tasks) + 1) // 2]
    while not all(task.done() for task in first) and all(task.status in ("pending", "finished") for task in tasks):
        try:
            wait(first, timeout=LOOK_EVERY)
        except (TimeoutError, CancelledError):
            wait_for_a_worker(client)
            if time.monotonic() - since > PATIENCE / 2 and _held_up(client, tasks):
                raise LostError("a worker is paused because its memory is full") from None
    done = [task for task in tasks if task.done()]
    try:
        if any(task.status in ("cancelled", "lost") for task in done):
            raise LostError("a task was cancelled")
        answers = list(_outcome(client, client.gather(done, asynchronous=True)))
    except KilledWorker as error:
        raise ClusterError(
            f"several Dask workers in a row died at the same task, most likely because their memory was full: {error} {explain()} Give "
            "workers more memory, or fewer threads each."
        ) from error
    except (CancelledError, TimeoutError, OSError) as error:
        raise LostError(f"{type(error).__name__}: {error}") from error
    yield from zip(done, answers, strict=True)


def _outcome(client: Client, asked: Any) -> Any:
    """Return the result of a coroutine of the client; stop waiting if no worker is available."""
    waiting = asyncio.run_coroutine_threadsafe(asked, client.loop.asyncio_loop)
    try:
        while not waiting.done():
            with suppress(TimeoutError):
                waiting.exception(timeout=LOOK_EVERY)
            if not waiting.done():
                wait_for_a_worker(client)
        return waiting.result()
    finally:
        waiting.cancel()


def _held_up(client: Client, tasks: list[Future]) -> bool:
    """Return whether some tasks wait on a worker that is paused.

    Dask leaves tasks on a worker that were assigned before it paused.
    """
    running = threads_of_workers(client)
    try:
        given = client.sync(client.scheduler.processing, workers=None, callback_timeout=5.0)
    except (OSError, TimeoutError, CancelledError):
        return False
    waiting = {key for worker, keys in given.items() if worker not in running for key in keys}
    return any(task.key in waiting for task in tasks)


def computed(tasks: list[Any], remedy: str = "Load the data again") -> list[Any]:
    """Compute delayed tasks, on the workers of the active client if there is one, and return the results.

    `remedy` is what to do if data on lost workers cannot be computed again.
    """
    if not has_client():
        return list(dask.compute(*tasks))
    client = active_client()
    wait_for_a_worker(client)
    answers: dict[int, Any] = {}
    try:
        _compute(client, tasks, answers)
    except LostError as error:
        raise RuntimeError(
            f"Dask workers that held parts of the data have left, or accept no tasks ({error}). {remedy}, or give workers more memory."
        ) from None
    return [answers[place] for place in range(len(tasks))]


def _compute(client: Client, tasks: list[Any], answers: dict[int, Any]) -> None:
    """Compute delayed tasks on the workers, and put the results into a dictionary by the places of the tasks."""
    left = dict(enumerate(client.compute(tasks, optimize_graph=True)))
    try:
        while left:
            unique = list(dict.fromkeys(left.values()))
            found = dict(finished(client, unique, lambda: "A task holds a partition and its results."))
            for place in [place for place, future in left.items() if future in found]:
                answers[place] = found[left.pop(place)]
    finally:
        if left:
            client.cancel(list(left.values()), force=True)


def answer_of(client: Client, task: Future, explain: Callable[[], str]) -> Any:
    """Return the result of one task."""
    return next(answer for _, answer in finished(client, [task], explain))
