"""The active Dask client, and what is done when workers are lost."""

import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

from distributed import Client, Future, KilledWorker, get_client, get_worker, wait

PATIENCE = 20.0  # seconds without any worker before a call gives up


class LostError(Exception):
    """Data or answers were on workers that are gone."""


def has_client() -> bool:
    """Whether there is an active client."""
    try:
        return bool(get_client().status in ("running", "connecting"))
    except ValueError:
        return False


def inside_task() -> bool:
    """Whether this is a task on a worker, which must not ask other workers."""
    try:
        get_worker()
    except ValueError:
        return False
    return True


def active_client() -> Client:
    """The active client; an error that names the remedy where there is none."""
    if not has_client():
        raise RuntimeError(
            "Engine('dask') needs an active Dask client, and found none. Make one first: distributed.Client() starts "
            "workers on this machine, and distributed.Client('tcp://host:8786') finds those of a scheduler."
        )
    return get_client()


def threads_of_workers(client: Client) -> dict[str, int]:
    """The workers and their threads; nobody where the scheduler does not answer."""
    try:
        return dict(client.sync(client.scheduler.ncores, workers=None, callback_timeout=5.0))
    except (OSError, TimeoutError, CancelledError, AttributeError):
        return {}


def wait_for_a_worker(client: Client) -> None:
    """Return when there is a worker; raise when there has been none for a while."""
    since = time.monotonic()
    while not threads_of_workers(client):
        if time.monotonic() - since > PATIENCE or client.status == "closed":
            raise RuntimeError(
                f"no Dask worker has been there for {PATIENCE:.0f} s, so that nothing can be computed. Start workers "
                "(dask worker tcp://scheduler:8786), or look at the logs of those that left."
            )
        time.sleep(0.5)


def broadcast(client: Client, things: dict[str, Any]) -> dict[str, Future]:
    """Send objects to all workers, by key."""
    wait_for_a_worker(client)
    try:
        return dict(client.scatter(things, broadcast=True, timeout=PATIENCE))
    except (OSError, TimeoutError, KeyError, ValueError) as error:  # a worker left while it was sent something
        raise LostError(f"{type(error).__name__}: {error}") from error


def answer_of(client: Client, future: Future, explain: Callable[[], str]) -> Any:
    """What a task returned; never waits for workers that do not come.

    Parameters
    ----------
    explain : callable
        What a worker needs memory for, for the message where several in a row die.
    """
    while not future.done():
        try:
            wait([future], timeout=2.0)
        except (TimeoutError, CancelledError):
            wait_for_a_worker(client)
    try:
        if future.status in ("cancelled", "lost"):
            raise LostError("a task was cancelled")
        return future.result(timeout=PATIENCE)
    except KilledWorker as error:
        raise RuntimeError(
            f"several Dask workers in a row died at the same task, most likely for want of memory: {error} {explain()} Give "
            "workers more memory, or fewer threads each."
        ) from error
    except (CancelledError, TimeoutError, OSError) as error:
        raise LostError(f"{type(error).__name__}: {error}") from error
