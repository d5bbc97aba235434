"""Units of work in several processes, each with its share of the cores; results in the order in which they arrive."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from typing import TypeVar

from vicinal._engine import available_threads

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


def as_they_come(
    work: Callable[[_Task], _Result], tasks: Iterable[_Task], jobs: int, go_on: Callable[[], bool]
) -> Iterator[tuple[_Task, _Result]]:
    """Yield ``(task, work(task))`` for all tasks, `jobs` at a time; no task is started after `go_on` has returned False.

    `work` and the tasks must be picklable.  An exception in a worker, or in the consumer of the results, ends all work.
    """
    tasks = iter(tasks)
    pool = ProcessPoolExecutor(
        jobs,
        multiprocessing.get_context("spawn"),
        initializer=_prepare,
        initargs=(max(available_threads() // jobs, 1),),
    )
    running: dict[Future[_Result], _Task] = {}
    try:
        while True:
            for task in islice(tasks, jobs - len(running)) if go_on() else ():
                running[pool.submit(work, task)] = task
            if not running:
                return
            for future in wait(running, timeout=1.0, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()
    finally:
        for process in multiprocessing.active_children() if running else ():
            process.terminate()  # an interruption does not wait for units that take minutes
        pool.shutdown(wait=not running, cancel_futures=True)


def _prepare(threads: int) -> None:
    """Limit a worker to its share of the cores, and make it end with the process that started it."""
    from threadpoolctl import threadpool_limits

    os.environ["OMP_NUM_THREADS"] = str(threads)  # the engine asks for it
    threadpool_limits(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
