"""Test Dask: results on workers are bitwise equal to those of one process, even if workers are lost; collections are accepted and returned."""

import concurrent.futures
import contextlib
import copy
import itertools
import operator
import os
import signal
import sys
import threading
import time
import warnings

import numpy as np
import pandas as pd
import pytest
from needs import needs
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

dask, distributed, da, dd = needs("dask", "distributed", "dask.array", "dask.dataframe")


from dask_workers import ENOUGH, clustered, limit_workers, wait_for_two_workers, wait_until  # noqa: E402

from vicinal import (  # noqa: E402
    LCA,
    NCA,
    RCA,
    DensityClassifier,
    DensityOutlierDetector,
    LCAGauss,
    ManifoldParzen,
    ParzenWindows,
    SoftNeighborsClassifier,
    SoftNeighborsRegressor,
    which_engine,
)
from vicinal._engine import (  # noqa: E402
    Match,
    prepare,
    tuning,
)
from vicinal._engine.dask import backend as _dask  # noqa: E402
from vicinal._engine.dask import cluster as cluster_module  # noqa: E402
from vicinal._engine.dask.packing import Packed, Recipes  # noqa: E402
from vicinal._engine.dask.worker import Job, _Loader  # noqa: E402
from vicinal._engine.queries import Queries  # noqa: E402
from vicinal._engine.work import sharing as work_sharing  # noqa: E402
from vicinal._engine.work.sharing import FAN, NOTHING, Touched, TreeSum, nodes_by_cost  # noqa: E402


@pytest.fixture(autouse=True)
def small_work_is_sent(forced):
    """Let workers do work that would be faster in this process, so that tests are short."""
    forced(SHARED_WORK=4e7)


X, Y = clustered(240, 3)
FRAME = pd.DataFrame(X, columns=["a", "b", "c"])
NEW = FRAME + 0.01


def test_without_a_client_the_error_names_the_remedy():  # before the first test that makes one
    with pytest.raises(RuntimeError, match=r"needs an active Dask client.*distributed\.Client\('tcp"):
        prepare("dask", X)


# -- the tree of sums -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_pieces", [1, 3, FAN, 21, 64])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_tree_of_nodes_gives_the_bits_of_a_tree_of_pieces(n_pieces, level):
    rng = np.random.default_rng(n_pieces)
    pieces = [(rng.normal(size=(6, 2)) * 10.0 ** rng.integers(-8, 8), rng.normal(size=3)) for _ in range(n_pieces)]
    for columns, _ in pieces:
        columns[rng.permutation(6)[:4]] = 0.0

    def total(parts, at=0):
        tree = TreeSum()
        for sums in parts:
            tree.add(sums, at)
        return tree.total()

    size = FAN**level
    nodes = [copy.deepcopy(pieces[first : first + size]) for first in range(0, n_pieces, size)]
    whole = total(copy.deepcopy(pieces))
    again = total([Touched.of(total(node)) for node in nodes], level)
    for one, other in zip(whole, again, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("n_pieces", [1, 5, 64, 70])
@pytest.mark.parametrize("wanted", [1, 8, 24, 500])
def test_tasks_are_whole_nodes_of_about_the_same_cost(n_pieces, wanted):
    """The heaviest nodes are split; together they are all pieces, in order, and none holds a part of a subtree."""
    costs = np.random.default_rng(n_pieces).random(n_pieces) ** 4
    nodes = nodes_by_cost(costs, wanted)
    edges = [first for first, _ in nodes] + [n_pieces]
    for (first, level), stop in zip(nodes, edges[1:], strict=True):
        assert first % FAN**level == 0
        assert stop == min(first + FAN**level, n_pieces)
        assert level == 0 or costs[first:stop].sum() * wanted <= 1.5 * costs.sum()
    assert min(wanted, n_pieces) <= len(nodes) <= 4 * wanted


# -- the engine -------------------------------------------------------------------------------------------------------


def sums_of(engine, rows, metric, codes, log_weights):
    placed = prepare(engine, rows, leave_one_out=True, match=Match("class", codes), log_weights=log_weights).at(metric)
    new = rows[:600] + 0.1
    nearest = placed.nearest(3)
    pulled = placed.pull(objective="likelihood")
    return [
        *placed.scatter(), placed.scatter(space="rows").scatter, placed.log_sums(), placed.log_sums(new),
        placed.mean_shifts(new).means, placed.perplexities(), placed.class_shares(), nearest.indices, nearest.scores,
        *pulled,
    ]  # fmt: skip


@pytest.mark.parametrize(("n", "d", "scale", "weighted"), [(3200, 5, 1.0, False), (6400, 2, 30.0, True)])
def test_workers_give_the_bits_of_one_process(client, n, d, scale, weighted):
    """Dense, weighted, and pruned: the plan depends only on the data, and workers run the kernels of the local engine."""
    rows, codes = clustered(n, d)
    log_weights = np.log(np.random.default_rng(1).random(n) + 0.1) if weighted else None
    local, there = (sums_of(kind, rows, scale * np.eye(d), codes, log_weights) for kind in ("cpu", "dask"))
    for one, other in zip(local, there, strict=True):
        np.testing.assert_array_equal(one, other)
    assert sum(client.run(lambda: len(sys.modules["vicinal._engine.dask.worker"]._made._things)).values()) > 0


PIECES = "vicinal.pairs."  # the keys of tasks that compute something


def bytes_so_far():
    """On a worker: bytes that it has sent and received since the first call, over all of its connections."""
    from distributed.comm import tcp
    from distributed.utils import nbytes

    if not hasattr(tcp, "counted"):
        tcp.counted, to_frames, from_frames = 0, tcp.to_frames, tcp.from_frames

        async def sent(*args, **options):
            frames = await to_frames(*args, **options)
            tcp.counted += sum(map(nbytes, frames))
            return frames

        async def received(frames, *args, **options):
            tcp.counted += sum(map(nbytes, frames))
            return await from_frames(frames, *args, **options)

        tcp.to_frames, tcp.from_frames = sent, received
    return tcp.counted


def test_what_travels_in_a_pass(client, forced):
    """At most (8 n + 16 d^2)(tasks + 1) bytes per worker, both ways: a task returns the sums of its subtree once."""
    forced(LEAST_TASK_PAIRS=2**18)  # as many tasks as of many rows
    n, d, n_passes = 20_000, 2, 2
    problem = prepare("dask", clustered(n, d)[0], leave_one_out=True)
    problem.at(7.0 * np.eye(d)).scatter()  # brings the rows there
    before, start = client.run(bytes_so_far), time.monotonic()
    with distributed.get_task_stream(client) as tasks:
        for k in range(n_passes):
            problem.at((8.0 + k) * np.eye(d)).scatter()
    after, end = client.run(bytes_so_far), time.monotonic()
    time.sleep(2.0)
    later, idle = (
        client.run(bytes_so_far),
        (end - start) / (time.monotonic() - end),
    )  # heartbeats, on a busy machine for long
    done = [task["worker"] for task in tasks.data if str(task["key"]).startswith(PIECES)]
    assert len(done) >= 8 * n_passes
    for worker in after:
        heartbeats = 2.0 * idle * (later[worker] - after[worker])
        assert 0 < after[worker] - before[worker] <= (8 * n + 16 * d * d) * (done.count(worker) + n_passes) + heartbeats


def test_the_heaviest_tasks_are_begun_first(client, forced, monkeypatch):
    """Their results are used in the order of the pieces all the same."""
    begun, submit = [], _dask.ClusterSharing._submit

    def noted(client, work, job, groups, data):
        begun.extend(len(group.pieces) for group in groups)
        return submit(client, work, job, groups, data)

    monkeypatch.setattr(_dask.ClusterSharing, "_submit", staticmethod(noted))
    forced(LEAST_TASK_PAIRS=1)
    costs = np.array([1.0] * 60 + [50.0] * 4)
    nodes = list(_dask.ClusterSharing().run_nodes(lambda i: (np.full(1, float(i)),), range(64), NOTHING, costs))
    assert begun[:4] == [1, 1, 1, 1]  # heavy pieces are alone
    assert max(begun) == 16
    assert [node.sums[0][0] for node in nodes[-4:]] == [60.0, 61.0, 62.0, 63.0]
    tree = TreeSum()
    for node in nodes:
        tree.add(node.sums, node.level)
    assert tree.total()[0][0] == sum(range(64))


def test_sums_are_sent_if_workers_save_enough_time(client):
    """Two threads save half of the work."""
    sharing = _dask.ClusterSharing()
    enough = 2.0 * tuning.SHARED_WORK / sharing.pair_cost
    assert sharing.takes(np.array([enough]))
    assert not sharing.takes(np.array([0.99 * enough]))
    assert sharing.takes(None)


def test_a_task_that_fails_is_an_error_before_the_others_end(client, monkeypatch):
    monkeypatch.setattr(cluster_module, "LOOK_EVERY", 0.1)
    end = distributed.Event()
    waits = client.submit(end.wait, 60, pure=False)
    fails = client.submit(operator.truediv, 1, 0, pure=False)
    with pytest.raises(ZeroDivisionError):
        in_time(lambda: list(cluster_module.finished(client, [waits, fails], lambda: "")), 30)
    assert not waits.done()
    end.set()


def test_a_new_verb_of_a_placement_is_shared_and_a_copy_is_no_endless_recursion():
    """Verbs were listed by name, so that a new one stayed in this process without notice."""
    here = prepare("cpu", ROWS).at(None).placed
    here.fourth_moments = lambda queries: work_sharing.sharing()
    cluster = _dask.ClusterSharing.__new__(_dask.ClusterSharing)
    placed = _dask._PlacedOnCluster(here, cluster)
    assert placed.fourth_moments(Queries()) is cluster
    assert copy.copy(placed)._here is here


def test_kernels_travel_by_name():
    """This includes kernels that this process has never used: a worker uses its own, compiled or not."""
    from vicinal._engine.cpu import sweep_kernels
    from vicinal._engine.plan import order

    packed = Packed(Recipes())
    for module, name in ((sweep_kernels, "means"), (order, "split_node")):
        code = packed.dumps(getattr(module, name))
        job = Job("", b"", {}, "", frozenset(), [], [])
        assert _Loader(code, job, {}, []).load() is getattr(module, name)


# -- faults -----------------------------------------------------------------------------------------------------------


def exact_lca(engine, **options):
    return LCA(reg=0.0, solver="em", tol=1e-2, engine=engine, **options)


ROWS = clustered(3200, 4)[0]


@pytest.fixture(scope="module")
def fitted_here():
    return exact_lca("cpu").fit(ROWS)


def while_busy(client, act, name=None):
    """Change the cluster, from another thread, as soon as a worker (or the one with a given name) has a piece of work."""

    def watch():
        for _ in range(3000):
            given = {worker: keys for worker, keys in client.processing().items() if name in (None, worker)}
            busy = [worker for worker, keys in given.items() if any(str(k).startswith(PIECES) for k in keys)]
            if busy:
                act(busy[0])
                return
            time.sleep(0.002)

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def test_a_killed_worker_changes_no_bit(client, fitted_here):
    """A worker is killed in the middle of a pass; the nanny starts another one, which joins late and has no data."""
    processes = client.run(os.getpid)
    thread = while_busy(client, lambda worker: os.kill(processes[worker], signal.SIGKILL))
    model = exact_lca("dask").fit(ROWS)
    thread.join()
    np.testing.assert_array_equal(model.components_, fitted_here.components_)
    np.testing.assert_array_equal(model.objectives_, fitted_here.objectives_)
    assert model.engine_ == "dask"
    wait_for_two_workers(client)
    assert set(client.run(os.getpid).values()) != set(processes.values())


@pytest.mark.slow
def test_workers_killed_for_their_memory_change_no_bit(client, fitted_here):
    """Both restart in the middle of a fit.  What they were sent is lost with them, and Dask sends it again."""
    processes = set(client.run(os.getpid).values())

    def kill_all(_):
        limit_workers(client, 2**20)
        wait_until(lambda: not processes & {nanny.pid for nanny in client.cluster.workers.values()})
        limit_workers(client, ENOUGH)

    thread = while_busy(client, kill_all)
    model = exact_lca("dask").fit(ROWS)
    thread.join()
    np.testing.assert_array_equal(model.components_, fitted_here.components_)
    wait_for_two_workers(client)
    assert not processes & set(client.run(os.getpid).values())


@pytest.mark.slow
def test_workers_that_never_have_enough_memory_are_an_error(client):
    """They are killed as soon as they have loaded what a task needs, and restart, again and again."""
    limit_workers(client, 200 * 2**20)
    try:
        with pytest.raises(RuntimeError, match=r"several Dask workers in a row died.*Each worker holds all rows"):
            exact_lca("dask").fit(ROWS)
    finally:
        wait_for_two_workers(client)


def in_time(work, seconds):
    """Run some work in a separate thread and return its result, or fail if it takes too long."""
    found = concurrent.futures.Future()

    def run():
        try:
            found.set_result(work())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return found.result(seconds)


# A share of the memory that stays above Dask's limit for pausing (0.8) when a worker frees its data. The limit by which a nanny restarts a
# worker is another one.
OVERFULL = 5.0


def use_share(share, dask_worker):
    """Let the data of a worker be a given share of the memory that it may use."""
    dask_worker.memory_manager.memory_limit = int(dask_worker.monitor.get_process_memory() / share)


def set_saturation(value, dask_scheduler):
    """Set how many tasks a worker may be given per thread, and return the former value."""
    before, dask_scheduler.WORKER_SATURATION = dask_scheduler.WORKER_SATURATION, value
    return before


def wait_for_event(name):
    distributed.Event(name).wait()


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(cluster_module, "PATIENCE", 1.0)
    monkeypatch.setattr(cluster_module, "LOOK_EVERY", 0.2)


def test_tasks_that_wait_on_a_worker_whose_memory_is_full_are_an_error(client, impatient):
    """Dask pauses the worker and does not reassign the tasks that it was given."""
    worker = next(iter(cluster_module.threads_of_workers(client)))
    go = distributed.Event("go", client=client)
    before = client.submit(wait_for_event, "go", workers=[worker], pure=False)
    waits = client.submit(operator.add, 1, 2, workers=[worker], pure=False)
    try:
        wait_until(lambda: waits.key in client.processing()[worker])
        client.run(use_share, OVERFULL, workers=[worker])
        wait_until(lambda: worker not in cluster_module.threads_of_workers(client))
        with pytest.raises(RuntimeError, match=rf"worker {worker} has been paused .* memory is full.* It holds rows\."):
            list(cluster_module.finished(client, [waits], lambda: "It holds rows."))
    finally:
        go.set()  # a busy worker would hold up all later tests
        client.run(use_share, 0.01)
    assert before.result() is None
    wait_for_two_workers(client)


@pytest.mark.slow
def test_a_frozen_worker_changes_no_bit(fitted_here):
    """Dask removes it after `worker-ttl`, five minutes by default, and repeats its tasks elsewhere."""
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        dask.config.set({"distributed.scheduler.worker-ttl": "3 s"}),
        distributed.LocalCluster(**options) as cluster,
        distributed.Client(cluster) as client,
    ):
        processes = client.run(os.getpid)
        frozen = []

        def freeze(worker):
            frozen.append(processes[worker])
            os.kill(processes[worker], signal.SIGSTOP)

        thread = while_busy(client, freeze)
        try:
            model = exact_lca("dask").fit(ROWS)
        finally:
            thread.join()
            for process in frozen:
                with contextlib.suppress(ProcessLookupError):  # its nanny may have ended it
                    os.kill(process, signal.SIGCONT)
    assert len(frozen) == 1
    np.testing.assert_array_equal(model.components_, fitted_here.components_)


def test_if_the_memory_of_all_workers_is_full_there_is_an_error(client, impatient):
    client.run(use_share, OVERFULL)
    wait_until(lambda: not cluster_module.threads_of_workers(client))
    for work in (
        lambda: exact_lca("dask").fit(ROWS),
        lambda: RCA().fit(da.from_array(X, chunks=(50, 3)), Y),
        lambda: ParzenWindows(1.0).fit(da.from_array(X, chunks=(50, 3))),
    ):
        with pytest.raises(
            RuntimeError, match=r"no Dask worker has been available.*paused because their memory is full"
        ):
            work()
    client.run(use_share, 0.01)
    wait_for_two_workers(client)


def test_without_workers_there_is_an_error_and_no_hang(client, monkeypatch):
    monkeypatch.setattr(cluster_module, "PATIENCE", 1.0)
    options = {"n_workers": 0, "dashboard_address": ":0", "processes": False, "protocol": "tcp"}
    with distributed.LocalCluster(**options) as nobody, distributed.Client(nobody).as_current():
        start = time.monotonic()
        with pytest.raises(RuntimeError, match=r"no Dask worker has been available.*Start workers"):
            exact_lca("dask").fit(ROWS)
        assert time.monotonic() - start < 30


def test_an_interrupted_fit_keeps_the_best_so_far(client, fitted_here, monkeypatch):
    passes, finished = [], _dask.finished

    def interrupted_while_it_waits(*waiting):
        if passes == [1, 2]:
            passes.append("interrupted")
            os.kill(os.getpid(), signal.SIGINT)
        return finished(*waiting)

    monkeypatch.setattr(_dask, "finished", interrupted_while_it_waits)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore SIGINT
    try:
        with pytest.warns(ConvergenceWarning, match="it was interrupted"):
            model = exact_lca("dask", callback=lambda _, iteration: passes.append(iteration)).fit(ROWS)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert model.n_iter_ == 2
    np.testing.assert_array_equal(model.objectives_, fitted_here.objectives_[:2])
    assert not any(client.processing().values())  # nothing goes on behind the user's back


# -- collections ------------------------------------------------------------------------------------------------------


ESTIMATORS = [
    LCA(reg=0.0),
    LCAGauss(reg=0.0),
    ParzenWindows("loo"),
    ManifoldParzen(1, 10),
    DensityOutlierDetector(),
    DensityClassifier(),
    NCA(max_iter=3),
    SoftNeighborsClassifier(bandwidth=1.0),
]
ASKED = ("transform", "score_samples", "decision_function", "predict", "predict_proba")


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_collections_go_in_and_come_out(client, estimator):
    table, labels = dd.from_pandas(FRAME, npartitions=3), dd.from_pandas(pd.Series(Y), npartitions=3)
    asked, rows = dd.from_pandas(NEW, npartitions=3), da.from_array(X.astype(np.float32) + 1, chunks=(100, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        here, there = clone(estimator).fit(FRAME, Y), clone(estimator).fit(table, labels)
    assert list(there.feature_names_in_) == ["a", "b", "c"]
    if hasattr(here, "components_"):
        np.testing.assert_array_equal(here.components_, there.components_)
    for name in [name for name in ASKED if hasattr(here, name)]:
        expected, lazy = getattr(here, name)(NEW), getattr(there, name)(asked)
        assert isinstance(lazy, da.Array)
        assert lazy.dtype == expected.dtype
        assert lazy.shape[1:] == expected.shape[1:]
        np.testing.assert_array_equal(lazy.compute(), expected)
        np.testing.assert_array_equal(getattr(there, name)(NEW), expected)  # rows in memory, a density on the workers
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # rows without names
            of_array, expected = getattr(there, name)(rows), getattr(here, name)(X.astype(np.float32) + 1)
        assert of_array.shape == expected.shape
        assert of_array.dtype == expected.dtype


@pytest.mark.parametrize(
    "labels", [Y, np.arange(240) // 2, np.random.default_rng(0).permutation(240) // 2, Y[::-1] * 4 + np.arange(240) % 4]
)
def test_rca_sums_partitions(client, labels):
    """Chunklets in one partition or in several, small or large."""
    here = RCA().fit(X, labels)
    rows, y = da.from_array(X, chunks=(50, 2)), da.from_array(labels, chunks=50)
    there = RCA().fit(rows, y)
    np.testing.assert_allclose(there.components_, here.components_, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(there.shrinkage_, here.shrinkage_, rtol=1e-10)
    assert there.chunklet_report_ == here.chunklet_report_
    np.testing.assert_array_equal(there.transform(rows).compute(), there.transform(X))


def test_empty_partitions_and_unknown_sizes(client):
    table = dd.from_pandas(FRAME.assign(y=Y), npartitions=4)
    table = table[table.a > 20.0]  # some partitions may be empty now, and no size is known
    some = FRAME.assign(y=Y)[FRAME.a > 20.0]
    emptied = dd.concat([table, table[table.a < -1e9]])
    rows, y = emptied[["a", "b", "c"]], emptied["y"]
    expected = ParzenWindows(1.0).fit(some[["a", "b", "c"]])
    there = ParzenWindows(1.0).fit(rows)
    np.testing.assert_array_equal(there.score_samples(rows).compute(), expected.score_samples(some[["a", "b", "c"]]))
    np.testing.assert_allclose(
        RCA().fit(rows, y).components_, RCA().fit(some[["a", "b", "c"]], some.y).components_, rtol=1e-10, atol=1e-12
    )
    unknown = rows.to_dask_array()
    assert np.isnan(unknown.shape[0])
    assert ParzenWindows(1.0).fit(unknown).score_samples(unknown).compute().shape == (len(some),)
    with pytest.raises(ValueError, match=r"X has no rows: all of its \d+ partitions are empty"):
        ParzenWindows(1.0).fit(rows[rows.a < -1e9])


def test_misaligned_labels_and_weights_are_refused(client):
    rows = da.from_array(X, chunks=(100, 3))
    unknown = dd.from_pandas(FRAME, npartitions=3)
    with pytest.raises(ValueError, match="X has 240 rows and y has 239"):
        NCA().fit(rows, da.from_array(Y[1:], chunks=100))
    with pytest.raises(ValueError, match="X has 240 rows and sample_weight has 100"):
        LCA().fit(rows, sample_weight=da.ones(100, chunks=50))
    with pytest.raises(ValueError, match="3 partitions of unknown sizes and y has 2"):
        NCA().fit(unknown, dd.from_pandas(pd.Series(Y), npartitions=2))
    with pytest.raises(ValueError, match="partition 0 of X has 80 rows and that of y 100"):
        NCA().fit(unknown, _cut(Y, (100, 60, 80)))
    with pytest.raises(ValueError, match="must be a table of rows"):
        LCA().fit(da.zeros((10, 2, 2)))
    with pytest.raises(ValueError, match="partition 1 of X contains NaN"):
        RCA().fit(da.where(da.arange(240, chunks=100)[:, None] == 150, np.nan, rows), Y)


def _cut(values, lengths):
    edges = np.cumsum([0, *lengths])
    parts = [dask.delayed(pd.Series(values[a:b])) for a, b in itertools.pairwise(edges)]
    return dd.from_delayed(parts, meta=pd.Series(values[:0]), verify_meta=False)


@pytest.mark.parametrize("estimator", [LCA(reg=0.0), NCA()], ids=lambda e: type(e).__name__)
def test_a_stochastic_fit_to_few_rows_of_a_collection_is_that_of_the_array(client, estimator):
    estimator.set_params(solver="stochastic", max_iter=2, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        here = clone(estimator).fit(X, Y)
        there = clone(estimator).fit(da.from_array(X, chunks=(100, 3)), da.from_array(Y, chunks=100))
    np.testing.assert_array_equal(there.components_, here.components_)


@pytest.mark.parametrize(
    "estimator", [DensityClassifier(ParzenWindows(1.0)), SoftNeighborsClassifier(), SoftNeighborsRegressor()]
)
def test_the_score_of_a_collection_of_unknown_sizes(client, estimator):
    """Partitions whose sizes are unknown, and one that is empty; labels and weights from the same dataframe."""
    table = FRAME.assign(y=Y, w=np.arange(len(Y)) % 3 + 0.5)
    last = dd.from_pandas(table, npartitions=1)
    there = dd.concat([dd.from_pandas(table, npartitions=3), last[last["a"] > 1e9]])
    columns = ["a", "b", "c"]
    estimator = clone(estimator).fit(FRAME, Y)
    expected = estimator.score(FRAME, Y), estimator.score(FRAME, Y, sample_weight=table["w"])
    assert expected[0] != expected[1]
    weighted = estimator.score(there[columns], there["y"], sample_weight=there["w"])
    assert (estimator.score(there[columns], there["y"]), weighted) == pytest.approx(expected, rel=1e-12)
    assert estimator.score(there[columns], Y) == pytest.approx(expected[0], rel=1e-12)
    with pytest.raises(ValueError, match="X has 4 partitions of unknown sizes and y has 2"):
        estimator.score(there[columns], da.from_array(Y, chunks=120))


def test_a_table_in_memory_is_not_promised_for_a_collection(client):
    model = RCA().set_output(transform="pandas").fit(FRAME, Y)
    assert isinstance(model.transform(FRAME), pd.DataFrame)
    with pytest.raises(ValueError, match=r"lazy Dask array.*set_output\(transform='default'\)"):
        model.transform(dd.from_pandas(FRAME, npartitions=2))


@pytest.mark.parametrize("asked", ["transform", "score_samples"])
def test_what_cannot_be_answered_is_refused_at_once(client, asked):
    """The error is raised here, not by a worker when the result is computed."""
    ask = getattr(LCA(reg=0.0).fit(dd.from_pandas(FRAME, npartitions=2)), asked)
    with (
        pytest.raises(ValueError, match="X has 4 features, but LCA is expecting 3"),
        pytest.warns(UserWarning, match="feature names"),
    ):
        ask(da.zeros((10, 4)))
    with pytest.raises(ValueError, match="feature names should match"):
        ask(dd.from_pandas(FRAME.rename(columns={"a": "z"}), npartitions=2))
    with pytest.raises(ValueError, match="must be a table of rows"):
        ask(da.zeros(10))
    with pytest.raises(NotFittedError):
        getattr(LCA(), asked)(da.zeros((10, 3)))


def test_columns_of_a_parquet_folder_keep_their_partitions(client, tmp_path):
    """Dask's optimisation merges small files if only a few of their columns are read; rows, labels and results must still match."""
    needs("pyarrow")
    others = {f"unused {k}": np.zeros(240) for k in range(30)}
    table = FRAME.assign(y=Y, **others)
    dd.from_pandas(table, npartitions=12).to_parquet(tmp_path)
    there = dd.read_parquet(tmp_path)
    rows, labels = there[["a", "b"]], there["y"]
    assert labels.optimize().npartitions < there.npartitions
    here = DensityClassifier(ParzenWindows(1.0)).fit(FRAME[["a", "b"]], Y)
    model = DensityClassifier(ParzenWindows(1.0)).fit(rows, labels)
    assert model.predict(rows).npartitions == 12
    np.testing.assert_array_equal(model.predict_proba(rows).compute(), here.predict_proba(FRAME[["a", "b"]]))
    assert model.score(rows, labels) == here.score(FRAME[["a", "b"]], Y)
    some = there[there["a"] > 0.0][["a", "b"]]
    assert len(model.predict(some).compute()) == np.count_nonzero(FRAME["a"] > 0.0)


# -- the choice of the engine -----------------------------------------------------------------------------------------


def test_which_engine_knows_dask():
    assert which_engine(X, "dask").startswith("dask: it was requested")
