"""What a fork waits for: imports and compilation in other threads.

A child has only the thread that forked. Locks that other threads held at that moment stay locked in it, and it would wait for
them forever at its own first import or kernel.
"""

import concurrent.futures.thread
import importlib
import logging
import os
import sys
import threading
import time
from typing import Any

# Both hold locks during a fork. The hooks that are registered last run first, and a wait for imports that need these locks must
# come before the locks are taken.
_REGISTERED_BEFORE = (logging, concurrent.futures.thread)
LONGEST_WAIT = 60.0  # seconds; a fork is never prevented
# The packages that vicinal imports at the first use.
_PACKAGES = {
    "vicinal",
    "numpy",
    "scipy",
    "sklearn",
    "numba",
    "llvmlite",
    "joblib",
    "threadpoolctl",
    "array_api_compat",
    "pandas",
}
# CPython has no public name for the locks of modules that are being imported. Without this name, a fork does not wait for imports.
_MODULE_LOCKS = getattr(getattr(importlib, "_bootstrap", None), "_module_locks", {})


def _imported_elsewhere() -> bool:
    """Return whether another thread is importing a module of these packages."""
    locks = [reference() for name, reference in list(_MODULE_LOCKS.items()) if name.partition(".")[0] in _PACKAGES]
    return any(getattr(lock, "owner", None) not in (None, threading.get_ident()) for lock in locks)


class _Fork:
    """Holds the lock of Numba's compiler during a fork."""

    def __init__(self) -> None:
        self._held: list[Any] = []

    def prepare(self) -> None:
        """Wait for imports, then for the compiler: an import may compile, and would wait for the compiler's lock."""
        end = time.monotonic() + LONGEST_WAIT
        while _imported_elsewhere() and time.monotonic() < end:
            time.sleep(0.005)  # other threads continue meanwhile
        lock = getattr(sys.modules.get("numba.core.compiler_lock"), "global_compiler_lock", None)
        if lock is not None:
            lock.acquire()
            self._held.append(lock)

    def end(self) -> None:
        """Release the lock, in the parent and in the child."""
        if self._held:
            self._held.pop().release()


def watch_forks() -> None:
    """Let every later fork of this process wait. Windows has no forks."""
    if hasattr(os, "register_at_fork"):
        fork = _Fork()
        os.register_at_fork(before=fork.prepare, after_in_parent=fork.end, after_in_child=fork.end)
