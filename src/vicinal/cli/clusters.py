"""`--workers` and `--cluster`: Dask workers for the computations of a command."""

import argparse
import contextlib
import logging
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any

from vicinal.cli.console import Console, count, one_line
from vicinal.cli.errors import USAGE, WORKERS, Failure, need

_SECONDS_TO_CONNECT = 20
# The environment in which workers are started. By default, Dask lets the C library return every large array to the system as soon as
# it is freed; the page faults of the next one then take several times as long as NumPy's computations with it.
_ENVIRONMENT = "distributed.nanny.pre-spawn-environ"
_MALLOC = {"MALLOC_TRIM_THRESHOLD_": 2**27, "MALLOC_MMAP_THRESHOLD_": 2**25}


def cluster_options(positive: Callable[[str], int]) -> argparse.ArgumentParser:
    """Return the options, for the parser of a command; `positive` reads a number of workers."""
    parser = argparse.ArgumentParser(add_help=False)
    there = parser.add_argument_group("more than one process").add_mutually_exclusive_group()
    there.add_argument(
        "--workers", type=positive, metavar="N", help="use N Dask workers, which are processes on this machine"
    )
    there.add_argument(
        "--cluster", metavar="ADDRESS", help="use the workers of this Dask scheduler, as in tcp://host:8786"
    )
    return parser


def wants_cluster(arguments: Namespace) -> bool:
    """Return whether the command line requests Dask workers."""
    return getattr(arguments, "workers", None) is not None or getattr(arguments, "cluster", None) is not None


@contextlib.contextmanager
def cluster_of(arguments: Namespace, console: Console) -> Iterator[None]:
    """Let the workers that the command line requests do the work within the context; do nothing if it requests none.

    Their client is the active one, and engines that are "auto" use them for computations that are not small.
    """
    if not wants_cluster(arguments):
        yield
        return
    need("distributed", "--workers" if arguments.cluster is None else "--cluster", "dask")
    import dask
    from distributed import Client, LocalCluster

    from vicinal._dask import on_cluster
    from vicinal._dask.cluster import ClusterError, OwnWorker

    # The logs of the workers are not meant for users of the command. Dask sets a level of its own for the client.
    for name in ("distributed", "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with contextlib.ExitStack() as stack:
        if arguments.cluster is None:
            # One thread per worker, because several kernels in one worker would compete for memory bandwidth.
            with dask.config.set({_ENVIRONMENT: {**dask.config.get(_ENVIRONMENT, {}), **_MALLOC}}):
                local = LocalCluster(n_workers=arguments.workers, threads_per_worker=1, dashboard_address=None)
            address: Any = stack.enter_context(local)
        else:
            address = arguments.cluster
        try:
            client = stack.enter_context(Client(address, timeout=_SECONDS_TO_CONNECT))
        except (OSError, ValueError, TimeoutError) as error:
            raise Failure(
                USAGE,
                f"--cluster {arguments.cluster}: no scheduler answers at this address ({one_line(error)}). Start one with `dask scheduler`, "
                "and pass the address that it prints, as in tcp://192.168.0.1:8786.",
            ) from error
        if arguments.cluster is None:
            client.register_plugin(OwnWorker())
        n_workers = len(client.scheduler_info(n_workers=-1)["workers"])
        if n_workers:
            console.say(f"using {count(n_workers, 'Dask worker')}.")
        else:
            console.say(f"the scheduler at {arguments.cluster} has no workers yet; those that join are used.")
        stack.enter_context(on_cluster())
        try:
            yield
        except ClusterError as error:
            raise Failure(WORKERS, one_line(error)) from error
