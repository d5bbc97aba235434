"""`--workers` and `--cluster`: Dask workers that fit, and that score or transform the parts of a table."""

import contextlib
import logging
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any

from vicinal._words import count, one_line
from vicinal.cli.console import Console
from vicinal.cli.errors import USAGE, WORKERS, Failure, need

ROWS_IN_PART = 8192
_SECONDS_TO_CONNECT = 20
# The environment in which workers are started. By default, Dask lets the C library return every large array to the system as soon as
# it is freed; the page faults of the next one then take several times as long as NumPy's computations with it.
_ENVIRONMENT = "distributed.nanny.pre-spawn-environ"
_MALLOC = {"MALLOC_TRIM_THRESHOLD_": 2**27, "MALLOC_MMAP_THRESHOLD_": 2**25}


@contextlib.contextmanager
def cluster_of(arguments: Namespace, console: Console) -> Iterator[None]:
    """Let the workers that the command line requests do the work within the context; do nothing if it requests none.

    Their client is the active one, and engines that are "auto" use them for computations that are not small.
    """
    n_workers, address = getattr(arguments, "workers", None), getattr(arguments, "cluster", None)
    if n_workers is None and address is None:
        yield
        return
    need("distributed", "--workers" if address is None else "--cluster", "dask")
    import dask
    from distributed import Client, LocalCluster

    from vicinal._engine import on_cluster
    from vicinal._engine.dask.cluster import ClusterError, OwnWorker

    # The logs of the workers are not meant for users of the command. Dask sets a level of its own for the client.
    for name in ("distributed", "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with contextlib.ExitStack() as stack:
        scheduler: Any = address
        if address is None:
            # One thread per worker, because several kernels in one worker would compete for memory bandwidth.
            with dask.config.set({_ENVIRONMENT: {**dask.config.get(_ENVIRONMENT, {}), **_MALLOC}}):
                local = LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=None)
            scheduler = stack.enter_context(local)
        try:
            client = stack.enter_context(Client(scheduler, timeout=_SECONDS_TO_CONNECT))
        except (OSError, ValueError, TimeoutError) as error:
            raise Failure(
                USAGE,
                f"--cluster {address}: no scheduler answers at this address ({one_line(error)}). Start one with `dask scheduler`, "
                "and pass the address that it prints, as in tcp://192.168.0.1:8786.",
            ) from error
        if address is None:
            client.register_plugin(OwnWorker())
        n_known = len(client.scheduler_info(n_workers=-1)["workers"])
        none_yet = f"the scheduler at {address} has no workers yet; those that join are used."
        console.say(f"using {count(n_known, 'Dask worker')}." if n_known else none_yet)
        stack.enter_context(on_cluster())
        try:
            yield
        except ClusterError as error:
            raise Failure(WORKERS, one_line(error)) from error


def each_part(work: Callable[[Any], Any], rows: Any, console: Console, doing: str) -> list[Any]:
    """Return the results of a function for the parts of a table, in their order; workers compute them if there are any."""
    from vicinal._engine import rows_on_cluster

    table = getattr(rows, "iloc", rows)
    parts = [table[start : start + ROWS_IN_PART] for start in range(0, max(len(rows), 1), ROWS_IN_PART)]
    results: Any = map(work, parts)
    if len(parts) > 1 and rows_on_cluster():
        from vicinal._engine.dask.cluster import results_in_order

        results = results_in_order(work, parts, "vicinal.rows")
    done = []
    with contextlib.closing(results) if hasattr(results, "close") else contextlib.nullcontext():
        for result in results:
            done.append(result)
            console.progress(len(done), len(parts), doing)
    return done
