"""Test Dask clients and schedulers that cannot do the work: an error says what is wrong; there is no hang."""

import asyncio
import concurrent.futures
import contextvars
import re
import subprocess
import sys
import threading

import pytest
from needs import needs

dask, distributed = needs("dask", "distributed")

from dask_workers import clustered  # noqa: E402

from vicinal import LCA  # noqa: E402
from vicinal._engine.dask import cluster as cluster_module  # noqa: E402

ROWS = clustered(3200, 4)[0]


@pytest.fixture(autouse=True)
def impatient(monkeypatch, forced):
    """Let workers do work that would be faster in this process, and wait for them for seconds rather than minutes."""
    forced(SHARED_WORK=4e7)
    monkeypatch.setattr(cluster_module, "PATIENCE", 8.0)
    monkeypatch.setattr(cluster_module, "LOOK_EVERY", 0.2)


def exact_lca(engine):
    return LCA(reg=0.0, solver="em", tol=1e-2, engine=engine)


def in_time(work, seconds=60):
    """Run some work in a separate thread and return its result, or fail if it takes too long."""
    found = concurrent.futures.Future()

    def run():
        try:
            found.set_result(work())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True).start()
    return found.result(seconds)


def test_an_asynchronous_client_is_refused(client):
    """It gave a TypeError: 'coroutine' object is not iterable."""

    async def fit(X):
        async with distributed.Client(client.scheduler.address, asynchronous=True, set_as_default=False) as other:
            with other.as_current(), pytest.raises(RuntimeError, match=r"client is asynchronous\. Create one without"):
                LCA(reg=0.0, solver="em", engine="dask").fit(X)

    asyncio.run(fit(ROWS))


@pytest.mark.slow
def test_a_lost_scheduler_is_named(monkeypatch):
    monkeypatch.setattr(cluster_module, "PATIENCE", 1.0)
    options = ["--port", "0", "--no-dashboard", "--host", "127.0.0.1"]
    with subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_scheduler", *options], stderr=subprocess.PIPE, text=True
    ) as scheduler:
        try:
            address = next(found[0] for line in scheduler.stderr if (found := re.search(r"tcp://[\d.:]+", line)))
            with distributed.Client(address, set_as_default=False) as client, client.as_current():
                scheduler.kill()
                scheduler.wait()
                with pytest.raises(
                    RuntimeError, match=rf"the Dask scheduler {address} has not answered .*a new client"
                ):
                    in_time(lambda: exact_lca("dask").fit(ROWS))
        finally:
            scheduler.kill()


def without_the_package():
    raise ModuleNotFoundError("No module named 'vicinal'", name="vicinal")


def test_a_worker_without_the_package_is_named(client):
    task = client.submit(without_the_package, pure=False)
    with pytest.raises(RuntimeError, match=r"cannot import vicinal\. Install the same version of it on all workers"):
        list(cluster_module.finished(client, [task], lambda: ""))


def test_a_worker_with_another_version_is_named(client):
    task = client.submit(cluster_module.check_version, "0.0.9", pure=False)
    with pytest.raises(RuntimeError, match=r"worker has vicinal .*, and the process that sent the task has 0\.0\.9"):
        list(cluster_module.finished(client, [task], lambda: ""))
