"""Test references to densities on the workers of a Dask cluster: other clients, lost workers, restarts, and copies from pickles."""

import os
import pickle
import signal

import numpy as np
import pytest
from needs import needs

distributed, da = needs("distributed", "dask.array")

from dask_workers import clustered, wait_for_two_workers, wait_until  # noqa: E402

from vicinal import LCA, DensityOutlierDetector, Engine, ParzenWindows  # noqa: E402
from vicinal._dask import cluster  # noqa: E402
from vicinal._mixtures.spread_mixture import SpreadMixture  # noqa: E402

MANY = clustered(9000, 4)[0]
FEW, NEW = MANY[:3000], MANY[::90] + 0.3
OPTIONS = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0"}


def in_chunks(rows):
    return da.from_array(rows, chunks=(1000, 4))


def small():
    return ParzenWindows(1.0).fit(in_chunks(FEW))


def large():
    found = ParzenWindows(1.0, engine=Engine(memory="1 MB")).fit(in_chunks(MANY))
    assert isinstance(found.mixture_, SpreadMixture)
    return found


def uses_of(density):
    """Return calls that need the components."""
    return [
        lambda: density.score(NEW),
        lambda: density.score_samples(in_chunks(NEW)).compute(),
        density.score_samples,
        density.gather,
    ]


def holders(client, density):
    """Return the workers that hold a small density."""
    return next(iter(client.who_has([density.mixture_.future]).values()), ())


@pytest.fixture
def other_cluster():
    with distributed.LocalCluster(**OPTIONS) as started:
        yield started


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:LCA did not converge")
@pytest.mark.filterwarnings("error:Sending large graph")
def test_a_small_density_outlives_the_workers_that_hold_it(client):
    """Dask reduces the copies of an object to one; if its worker is killed, another one makes the density again."""
    rows = da.random.default_rng(0).normal(size=(400_000, 4))  # large for a graph of tasks, and small for a density
    big, model = ParzenWindows(1.0).fit(rows), LCA(reg=0.0, max_iter=2).fit(in_chunks(FEW).persist())
    expected, images = model.score_samples(NEW), model.transform(NEW)
    client.amm.run_once()
    for _ in range(2):  # so that each of the workers is killed at least once
        wait_until(lambda: holders(client, model))
        names = holders(client, model)
        processes = client.run(os.getpid)
        for name in names:
            os.kill(processes[name], signal.SIGKILL)
        wait_until(lambda gone=names: not set(gone) & set(client.scheduler_info(n_workers=-1)["workers"]))
        np.testing.assert_array_equal(model.score_samples(NEW), expected)
        np.testing.assert_array_equal(model.transform(in_chunks(NEW)).compute(), images)
        wait_for_two_workers(client)
    np.testing.assert_array_equal(model.gather().score_samples(NEW), expected)
    assert big.gather().mixture_.centres.shape == rows.shape


@pytest.mark.parametrize("fitted", [small, large])
def test_another_active_client(client, other_cluster, fitted):
    """The error names the client to use, and the density can be used with that one, or with a copy of it from a pickle."""
    density = fitted()
    expected, code = density.score(NEW), pickle.dumps(density)
    with distributed.Client(other_cluster):
        for use in uses_of(density):
            with pytest.raises(RuntimeError, match=rf"another Dask client.*{client.scheduler.address}.*as_current\(\)"):
                use()
        copy = pickle.loads(code)
        for use in (lambda: copy.score(NEW), copy.score_samples, copy.gather):
            with pytest.raises(RuntimeError, match=r"(?i)fit the density again"):
                use()
        with client.as_current():
            assert density.score(NEW) == expected
    assert pickle.loads(code).score(NEW) == expected


@pytest.mark.parametrize("fitted", [small, large])
def test_restarted_and_closed_clients(other_cluster, monkeypatch, fitted):
    """No advice that cannot help: the rows do not come back."""
    with distributed.Client(other_cluster) as client:
        density = fitted()
        client.restart(wait_for_workers=False)
        client.wait_for_workers(1)
        for use in uses_of(density):
            with pytest.raises(
                RuntimeError, match=r"not on the workers of the active Dask client any more.*Fit the density again"
            ):
                use()
        density = fitted()
        code = pickle.dumps(density)
    for use in uses_of(density):
        with pytest.raises(RuntimeError, match=r"client has been closed.*Fit the density again.*gather\(\) before"):
            use()

    def no_client():
        raise ValueError

    monkeypatch.setattr(cluster, "default_client", no_client)
    copy = pickle.loads(code)
    for use in uses_of(copy):
        with pytest.raises(RuntimeError, match=r"loaded from a pickle.*Connect to the cluster where it was fitted"):
            use()


@pytest.mark.parametrize("fitted", [small, large])
def test_inside_a_task(client, fitted):
    """Scoring would wait for tasks that cannot begin; a metric can be used."""
    task = client.submit(lambda density: density.score(NEW), fitted(), pure=False)
    with pytest.raises(RuntimeError, match=r"inside a task.*Call gather\(\) on the estimator before"):
        task.result(timeout=30)


def test_the_false_discovery_rate_of_rows_in_memory(client):
    """All rows are tested together, although several workers score them."""
    new = np.vstack([NEW, NEW[:5] + 100.0])
    engine = Engine(memory="1 MB")
    there = DensityOutlierDetector(ParzenWindows(1.0, engine=engine), fdr=0.2).fit(in_chunks(MANY))
    found = there.predict(new)
    assert (found[-5:] == -1).all()
    np.testing.assert_array_equal(found, there.gather().predict(new))
