"""`--workers` and `--cluster`: the Dask workers that do the pair work of a command."""

import argparse
import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

from vicinal._app.console import count, one_line
from vicinal._app.errors import UsageFailure, need

_SECONDS_TO_CONNECT = 20


def cluster_options(positive: Callable[[str], int]) -> argparse.ArgumentParser:
    """Return the options, for the parser of a command; `positive` reads a number of workers."""
    parser = argparse.ArgumentParser(add_help=False)
    there = parser.add_argument_group("more than one process").add_mutually_exclusive_group()
    there.add_argument(
        "--workers", type=positive, metavar="N", help="let N Dask workers on this machine do the pair work"
    )
    there.add_argument(
        "--cluster", metavar="ADDRESS", help="let the workers of a Dask scheduler do it, as in tcp://host:8786"
    )
    return parser


def wants_cluster(arguments: Any) -> bool:
    """Return whether the command line asks for Dask workers."""
    return getattr(arguments, "workers", None) is not None or getattr(arguments, "cluster", None) is not None


@contextlib.contextmanager
def cluster_of(arguments: Any, console: Any) -> Iterator[None]:
    """Inside, the workers that the command line asks for are those of the active Dask client; nothing where it asks for none."""
    if not wants_cluster(arguments):
        yield
        return
    need("distributed", "--workers and --cluster", "dask")
    from distributed import Client, LocalCluster

    # What the workers log is not for those who run a command.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with contextlib.ExitStack() as stack:
        if arguments.cluster is None:
            # A thread each: the kernels of a worker would wait for each other's memory.
            local = LocalCluster(n_workers=arguments.workers, threads_per_worker=1, dashboard_address=":0")
            address: Any = stack.enter_context(local)
        else:
            address = arguments.cluster
        try:
            client = stack.enter_context(Client(address, timeout=_SECONDS_TO_CONNECT))
        except (OSError, ValueError, TimeoutError) as error:
            raise UsageFailure(
                f"--cluster {arguments.cluster}: no scheduler answers there ({one_line(error)}). Start one with `dask scheduler`, "
                "and pass the address that it prints, as in tcp://192.168.0.1:8786."
            ) from error
        console.say(
            f"the pair work is done by {count(len(client.scheduler_info(n_workers=-1)['workers']), 'Dask worker')}."
        )
        yield
