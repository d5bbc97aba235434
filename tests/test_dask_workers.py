"""Test Dask workers and schedulers that stop to respond: other workers do the work, or an error says what is wrong; there is no hang."""

import asyncio
import concurrent.futures
import contextlib
import contextvars
import os
import re
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from needs import needs

dask, distributed, da = needs("dask", "distributed", "dask.array")

from dask_workers import clustered, wait_for_two_workers, wait_until  # noqa: E402

from vicinal import LCA, RCA  # noqa: E402
from vicinal._dask import cluster as cluster_module  # noqa: E402
from vicinal._dask import heartbeats as heartbeats_module  # noqa: E402
from vicinal._engine import _dask  # noqa: E402

ROWS, LABELS = clustered(3200, 4)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Let workers do work that would be faster in this process, and wait for them for seconds rather than minutes."""
    monkeypatch.setattr("vicinal._engine._dask.SHARED_WORK", 4e7)
    monkeypatch.setattr(cluster_module, "PATIENCE", 8.0)
    monkeypatch.setattr(cluster_module, "LOOK_EVERY", 0.2)
    monkeypatch.setattr(heartbeats_module, "SILENCE", 3.0)
    monkeypatch.setattr(heartbeats_module, "_LOOK_EVERY", 0.1)


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


@contextlib.contextmanager
def frozen(client, names=None):
    """Freeze a worker, or those with some names, as soon as the function that this yields is called."""
    processes = list(client.run(os.getpid, workers=names).values())[: None if names else 1]

    def freeze():
        for process in processes:
            os.kill(process, signal.SIGSTOP)

    try:
        yield freeze
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)
        wait_for_two_workers(client)


def test_a_frozen_worker_changes_no_bit(client, monkeypatch):
    """It has tasks that it does not compute.  Dask notices only after five minutes."""
    expected, waits, finished = exact_lca("cpu").fit(ROWS), [], _dask.finished

    def frozen_while_it_works(*arguments):
        waits.append(1)
        if len(waits) == 3:
            freeze()
        return finished(*arguments)

    monkeypatch.setattr(_dask, "finished", frozen_while_it_works)
    with frozen(client) as freeze:
        model = in_time(lambda: exact_lca("dask").fit(ROWS))
        assert len(cluster_module.threads_of_workers(client)) == 1
        again = in_time(lambda: exact_lca("dask").fit(ROWS), 20)  # it is no longer waited for
    for one in (model, again):
        np.testing.assert_array_equal(one.components_, expected.components_)
        np.testing.assert_array_equal(one.objectives_, expected.objectives_)


@pytest.mark.slow
def test_sums_of_partitions_are_done_by_workers_that_respond(client):
    expected = RCA().fit(ROWS, LABELS)
    with frozen(client) as freeze:
        freeze()
        rows = da.from_array(ROWS, chunks=(400, 4))
        np.testing.assert_allclose(in_time(lambda: RCA().fit(rows, LABELS)).components_, expected.components_, 1e-10)


@pytest.mark.slow
def test_data_on_a_frozen_worker_are_an_error(client):
    there = list(cluster_module.threads_of_workers(client))[:1]
    rows = da.from_array(ROWS + 1.0, chunks=(400, 4)).persist(workers=there)  # has no keys of other tests
    distributed.wait(rows)
    with frozen(client, there) as freeze:
        freeze()
        with pytest.raises(RuntimeError, match=r"held parts of the data .*or does not respond.*Load the data again"):
            in_time(lambda: RCA().fit(rows, LABELS))


def test_if_all_workers_are_frozen_there_is_an_error(client):
    with frozen(client, list(cluster_module.threads_of_workers(client))) as freeze:
        freeze()
        with pytest.raises(
            RuntimeError, match=r"no Dask worker has responded .*2 sent no heartbeat: tcp.*Restart them"
        ):
            in_time(lambda: exact_lca("dask").fit(ROWS))


def test_a_worker_that_responds_again_is_used_again(client):
    with frozen(client) as freeze:
        freeze()
        wait_until(lambda: len(cluster_module.threads_of_workers(client)) == 1)
        assert cluster_module.only_responding(client) == list(cluster_module.threads_of_workers(client))
    assert len(cluster_module.threads_of_workers(client)) == 2
    assert cluster_module.only_responding(client) is None


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
