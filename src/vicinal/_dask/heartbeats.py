"""Workers that do not respond: a frozen process, a machine that is swapping, or a network that is interrupted.

Dask itself removes such workers only after five minutes (``distributed.scheduler.worker-ttl``), because other users' tasks may keep
a worker from sending heartbeats for as long.  Here they are only avoided, and used again as soon as they respond.
"""

import time
import weakref
from concurrent.futures import CancelledError
from typing import Any

from distributed import Client

SILENCE = 8.0  # the time without heartbeats after which a worker is avoided, in seconds; workers send them every 0.5 s
_WORKERS_PER_SECOND = (
    50  # more workers send fewer heartbeats each: this is four times the interval of thousands of them
)
_LOOK_EVERY = 1.0  # the interval at which the scheduler is asked for the last heartbeats, in seconds
_LONGEST_LOOK = 4.0  # a pause between two looks counts as no more: this process, too, may have been stopped or busy
_BUSY = ("executing", "long-running", "ready", "resumed")  # the states of tasks that a worker computes, or is about to
_FETCHING = ("flight", "fetch")  # those of data that it receives


class _Heartbeats:
    """The workers of a client, and for how long each has been silent.

    Times of heartbeats are by the scheduler's clock, which may be wrong, so they are only compared with each other.
    """

    def __init__(self) -> None:
        self._looked = -float("inf")
        self._workers: dict[str, dict[str, Any]] = {}
        self._silence: dict[str, float] = {}

    def look(self, client: Client) -> None:
        """Ask the scheduler for the last heartbeats, unless that was done just now."""
        now = time.monotonic()
        passed = now - self._looked
        if passed < _LOOK_EVERY:
            return
        found = _asked(client)
        if found is None:
            return
        before, self._workers, self._looked = self._workers, found, now
        self._silence = {
            name: self._silence[name] + min(passed, _LONGEST_LOOK)
            if name in before and before[name]["last_seen"] == worker["last_seen"]
            else 0.0
            for name, worker in found.items()
        }

    def silent(self) -> set[str]:
        """Return the workers that do not respond."""
        limit = max(SILENCE, len(self._workers) / _WORKERS_PER_SECOND)
        return {name for name, silence in self._silence.items() if silence > limit}

    def shortest(self) -> float:
        """Return how long all workers have been silent, in seconds; 0 if there is none."""
        return min(self._silence.values(), default=0.0)

    def nobody_works(self) -> bool:
        """Return whether no worker that responds computes anything, or receives data from another one that responds."""
        silent = self.silent()
        states = _BUSY if silent else _BUSY + _FETCHING
        counts = [worker["metrics"].get("task_counts") for name, worker in self._workers.items() if name not in silent]
        return all(count is not None and not any(count.get(state) for state in states) for count in counts)


_of_clients: weakref.WeakKeyDictionary[Client, _Heartbeats] = weakref.WeakKeyDictionary()


def heartbeats(client: Client) -> _Heartbeats:
    """Return the last heartbeats of a client's workers."""
    found = _of_clients.setdefault(client, _Heartbeats())
    found.look(client)
    return found


def _asked(client: Client) -> dict[str, dict[str, Any]] | None:
    """Return what the scheduler knows about each worker, by address; None if it does not answer."""
    for options in ({"n_workers": -1}, {}):  # older versions of Dask return all workers, and do not have the option
        try:
            return dict(client.sync(client.scheduler.identity, **options, callback_timeout=5.0)["workers"])
        except TypeError:
            continue
        except (OSError, TimeoutError, CancelledError, AttributeError):
            break
    return None
