"""A cache of the placements of fitted densities for scoring, outside their ``__dict__``.

Scoring a single row should not require centring and mapping all points.  Cached placements are neither pickled nor
copied, belong to one object, and are dropped with that object (a refit replaces them).
"""

import os
import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from vicinal._engine.choice import Work, choose
from vicinal._engine.placement import Placement
from vicinal._engine.settings import Engine, as_engine


class _Cache:
    """Placements by owner and backend.

    The lock protects only the dictionaries: two threads that need the same placement at the same time may both make it,
    and one of the two is kept.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Reset the cache; in a forked child the lock may be held by a thread that does not exist there."""
        self._lock = threading.Lock()
        self._kept: WeakKeyDictionary[Any, dict[str, tuple[Engine, Placement]]] = WeakKeyDictionary()

    def get(self, owner: Any, backend: str, engine: Engine) -> Placement | None:
        with self._lock:
            kept = self._kept.get(owner, {}).get(backend)
        return None if kept is None or kept[0] != engine else kept[1]

    def keep(self, owner: Any, backend: str, engine: Engine, placement: Placement) -> None:
        with self._lock:
            self._kept.setdefault(owner, {})[backend] = (engine, placement)

    def forget(self, owner: Any) -> None:
        with self._lock:
            self._kept.pop(owner, None)


_cache = _Cache()
if hasattr(os, "register_at_fork"):  # Windows has neither fork nor this
    os.register_at_fork(after_in_child=_cache.clear)


def resident(owner: Any, engine: Any, work: Work, make: Callable[[], Placement]) -> Placement:
    """Return the cached placement of `owner` for such work, made by ``make()`` at the first use.

    Parameters
    ----------
    owner : object
        Hashed by identity.  It must not change after its first use here (a fitted mixture), or must be forgotten (`forget`, at
        a refit).  `make` must not return anything that refers to it, or it would never be freed.
    engine : None, str or Engine
        At most one placement per backend is kept; one that was made under other settings is replaced.
    work : Work
        The size of the work, from which the backend is chosen.
    make : callable
        Returns a `Placement` whose problem was prepared for the same engine and work.
    """
    engine = as_engine(engine)
    backend = choose(engine, work).backend
    placement = _cache.get(owner, backend, engine)
    if placement is None:
        placement = make()
        _cache.keep(owner, backend, engine, placement)
    return placement


def forget(owner: Any) -> None:
    """Drop the placements of `owner`, which is about to change."""
    _cache.forget(owner)
