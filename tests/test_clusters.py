"""`--workers` and `--cluster` of the command: real Dask workers give the results of one process."""

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from needs import needs

from vicinal import RCA
from vicinal import io as model_io
from vicinal._files import table_file
from vicinal.cli import main, results, score, workers
from vicinal.cli.workers import cluster_of

distributed = needs("distributed")

OK, USAGE, DATA, MISSING_EXTRA, WORKERS, INTERRUPTED = 0, 2, 3, 7, 8, 130
pytestmark = pytest.mark.filterwarnings("ignore")  # of Dask


def test_workers_learn_and_score_as_one_process_does(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    pd.DataFrame(rng.normal(size=(3_000, 3)) * [1.0, 0.2, 5.0], columns=list("abc")).to_csv("rows.csv", index=False)
    learn = ["learn", "rows.csv", "--method", "lca", "--set", "reg=0", "--set", "solver=em", "--set", "max_iter=3"]
    assert main([*learn, "-o", "one.vicinal", "-q"]) == OK
    assert main([*learn, "-o", "two.vicinal", "--workers", "2"]) == OK
    assert "using 2 Dask workers" in capsys.readouterr().err
    assert not logging.getLogger("distributed.client").isEnabledFor(logging.WARNING)  # "Couldn't gather 1 keys"
    one, two = model_io.load("one.vicinal")[-1], model_io.load("two.vicinal")[-1]
    np.testing.assert_array_equal(two.covariance_, one.covariance_)
    assert two.engine_ == "dask"
    assert two.engine is None  # a model does not carry the cluster that made it


@contextlib.contextmanager
def scheduler_and_worker(folder):
    """The address of a scheduler with one worker, in separate processes, started as in the documentation."""
    file = folder / "scheduler.json"
    commands = [
        ["scheduler", "--port", "0", "--dashboard-address", ":0", "--scheduler-file", str(file)],
        ["worker", "--scheduler-file", str(file), "--nthreads", "1", "--no-nanny", "--dashboard-address", ":0"],
    ]
    with contextlib.ExitStack() as stack, open(folder / "log", "w") as log:
        for command in commands:
            process = subprocess.Popen([sys.executable, "-m", "dask", *command], stdout=log, stderr=log, cwd=folder)
            stack.callback(process.wait)
            stack.callback(process.terminate)
        while not file.exists():
            time.sleep(0.05)
        yield json.loads(file.read_text())["address"]


def test_an_address_of_a_scheduler_serves_as_one_process_does(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    pd.DataFrame(rng.normal(size=(3_000, 3)), columns=list("abc")).to_csv("rows.csv", index=False)
    learn = ["learn", "rows.csv", "--method", "lca", "--set", "reg=0", "--set", "solver=em", "--set", "max_iter=2"]
    assert main([*learn, "-o", "one.vicinal", "-q"]) == OK
    assert main(["score", "one.vicinal", "rows.csv", "-o", "here.csv", "-q"]) == OK
    with scheduler_and_worker(tmp_path) as address:
        assert main([*learn, "-o", "there.vicinal", "--cluster", address]) == OK
        said = capsys.readouterr().err  # the worker may have joined before the command asked, or only later
        assert "using 1 Dask worker" in said or f"the scheduler at {address} has no workers yet" in said
        assert main(["score", "one.vicinal", "rows.csv", "-o", "there.csv", "-q", "--cluster", address]) == OK
    one, there = model_io.load("one.vicinal")[-1], model_io.load("there.vicinal")[-1]
    np.testing.assert_array_equal(there.covariance_, one.covariance_)
    assert there.engine_ == "dask"
    assert (tmp_path / "there.csv").read_bytes() == (tmp_path / "here.csv").read_bytes()


@pytest.mark.parametrize(("option", "value"), [("--workers", "2"), ("--cluster", "tcp://127.0.0.1:8786")])
def test_without_dask_the_extra_is_named(option, value, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("m.vicinal", "rows.csv"):
        (tmp_path / name).touch()
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(["score", "m.vicinal", "rows.csv", option, value]) == MISSING_EXTRA
    message = capsys.readouterr().err
    assert f"error: {option} needs the package 'distributed'" in message
    assert "pip install 'vicinal[dask]'" in message


def test_a_scheduler_without_workers_is_no_bug(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("vicinal._engine.dask.cluster.PATIENCE", 1.0)
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(size=(3_000, 3)), columns=list("abc"))
    rows.to_csv("rows.csv", index=False)
    model_io.save(RCA().fit(rows, np.arange(3_000) % 3), "m.vicinal")
    monkeypatch.setattr(workers, "ROWS_IN_PART", 1_000)
    with distributed.LocalCluster(n_workers=0, dashboard_address=None) as nobody:
        there = ["--cluster", nobody.scheduler_address, "-o", "out.csv"]
        assert main(["transform", "m.vicinal", "rows.csv", *there]) == WORKERS
    message = capsys.readouterr().err
    assert "has no workers yet" in message
    assert "error: no Dask worker has been available" in message
    assert "bug" not in message
    assert not (tmp_path / "out.csv").exists()


def test_a_scheduler_that_does_not_answer_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(workers, "_SECONDS_TO_CONNECT", 1)
    pd.DataFrame({"a": [1.5, 2.0, 4.0]}).to_csv("rows.csv", index=False)
    learn = ["learn", "rows.csv", "--method", "parzen", "-o", "m.vicinal"]
    assert main([*learn, "--cluster", "tcp://127.0.0.1:9"]) == USAGE
    assert "--cluster tcp://127.0.0.1:9: no scheduler answers" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*learn, "--cluster", "tcp://127.0.0.1:9", "--workers", "2"])


# -- commands whose rows, folds or queries are tasks of the workers --------------------------------------------------------


@pytest.fixture(scope="module")
def cluster():
    """Two workers, each a separate process with one thread, for all commands of these tests."""
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as found:
        yield found


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a table, another one with gaps, and three models."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    kind = rng.integers(2, size=300)
    frame = pd.DataFrame(rng.normal(size=(300, 3)) * [1000.0, 0.01, 1.0], columns=["length", "width", "hue"])
    frame["hue"] += 3.0 * kind
    frame["whole"], frame["kind"] = rng.integers(0, 9, size=300), np.where(kind, "b", "a")
    frame["name"] = [f"=row {i}" for i in range(300)]
    frame.to_csv("rows.csv", index=False)
    frame.loc[[10, 150], "hue"] = np.nan
    frame.to_csv("gaps.csv", index=False)
    quick = ["--max-rows", "100", "--drop", "name", "-q"]
    assert main(["learn", "rows.csv", "--method", "rca", "--target", "kind", *quick, "-o", "rca.vicinal"]) == OK
    parzen = ["--method", "parzen", "--set", "bandwidth=0.5", "--target", "kind"]
    assert main(["learn", "rows.csv", *parzen, *quick, "-o", "parzen.vicinal"]) == OK
    return tmp_path


def in_blocks(monkeypatch, values=480):
    monkeypatch.setattr(table_file, "LARGE", 0)
    monkeypatch.setattr(table_file, "BATCH_VALUES", values)


def not_here(*args, **options):
    raise AssertionError("this work was not done by a worker")


@pytest.mark.parametrize(
    "command",
    [
        ["transform", "rca.vicinal", "rows.csv", "--keep", "name", "-o", "out.csv"],
        ["transform", "rca.vicinal", "gaps.csv", "--missing", "drop", "-o", "out.npy"],
        ["score", "parzen.vicinal", "rows.csv", "--explain", "--keep", "name", "-o", "out.parquet"],
        ["score", "parzen.vicinal", "gaps.csv", "--missing", "drop", "--fdr", "0.3", "-o", "out.csv"],
    ],
    ids=["transform", "transform with gaps", "score", "score with a false discovery rate"],
)
def test_blocks_are_done_by_workers_with_the_same_bytes(command, folder, cluster, monkeypatch, capsys):
    in_blocks(monkeypatch)
    monkeypatch.setattr(workers, "ROWS_IN_PART", 32)
    capsys.readouterr()
    output = folder / command[-1]
    assert main(command) == OK
    expected, said = output.read_bytes(), capsys.readouterr().err
    output.unlink()
    assert main([*command, "--cluster", cluster.scheduler_address]) == OK
    assert output.read_bytes() == expected
    # The messages are the same, and name the same rows.
    assert messages_in(capsys.readouterr().err) == ["using 2 Dask workers.", *messages_in(said)]


def messages_in(text):
    """The lines of stderr, without progress, which appears on slow machines only."""
    return [line for line in text.splitlines() if not line.startswith("[")]


def test_a_failure_on_a_worker_leaves_the_old_output(folder, cluster, monkeypatch, capsys):
    in_blocks(monkeypatch)
    (folder / "out.csv").write_text("old")
    command = ["transform", "rca.vicinal", "gaps.csv", "-o", "out.csv", "-q"]
    assert main(command) == DATA
    said = capsys.readouterr().err
    assert main([*command, "--cluster", cluster.scheduler_address]) == DATA
    assert capsys.readouterr().err == said
    assert "Pass --missing drop" in said
    assert (folder / "out.csv").read_text() == "old"


def tasks_of(name, dask_scheduler):
    return [key for key in dask_scheduler.tasks if str(key).startswith(name)]


def test_an_interruption_leaves_the_old_output_and_no_tasks(folder, cluster, monkeypatch, capsys):
    in_blocks(monkeypatch, 60)
    (folder / "out.csv").write_text("old")
    written = []

    def write(self, frame):
        written.append(frame)
        if len(written) == 3:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5.0)

    monkeypatch.setattr(results._Text, "write", write)
    command = ["transform", "rca.vicinal", "rows.csv", "-o", "out.csv", "-q"]
    assert main([*command, "--cluster", cluster.scheduler_address]) == INTERRUPTED
    assert (folder / "out.csv").read_text() == "old"
    with distributed.Client(cluster) as client:
        assert not client.run_on_scheduler(tasks_of, "vicinal.rows")


@pytest.mark.parametrize(
    "command",
    [
        ["transform", "rca.vicinal", "rows.csv", "-o", "out.csv"],
        ["score", "parzen.vicinal", "rows.csv", "--explain", "--fdr", "0.3", "-o", "out.csv"],
    ],
    ids=["transform", "score"],
)
def test_parts_of_a_table_in_memory_are_done_by_workers_with_the_same_bytes(command, folder, cluster, monkeypatch):
    monkeypatch.setattr(workers, "ROWS_IN_PART", 32)
    output = folder / command[-1]
    assert main([*command, "-q"]) == OK
    expected = output.read_bytes()
    output.unlink()
    monkeypatch.setattr(score, "scored_table", Elsewhere(score.scored_table))
    monkeypatch.setattr(RCA, "transform", not_here)
    assert main([*command, "-q", "--cluster", cluster.scheduler_address]) == OK
    assert output.read_bytes() == expected


class Elsewhere:
    """A function that fails in the process of the tests; a worker gets the function itself."""

    def __init__(self, function):
        self._function = function

    def __call__(self, *args, **options):
        not_here()

    def __reduce__(self):
        return getattr, (sys.modules[self._function.__module__], self._function.__name__)


@pytest.mark.slow
def test_a_comparison_by_workers_is_that_of_one_process(folder, cluster, monkeypatch, capsys):
    from vicinal._compare import running

    command = ["compare", "rows.csv", "--target", "kind", "--methods", "z-scored,nca,parzen-scott,manifold-parzen", "--fast", "--drop", "name", "--json"]  # fmt: skip
    capsys.readouterr()
    assert main(command) == OK
    expected = without_seconds(json.loads(capsys.readouterr().out))
    monkeypatch.setattr(running, "outcome_of", not_here)
    assert main([*command, "--cluster", cluster.scheduler_address]) == OK
    found = capsys.readouterr()
    assert without_seconds(json.loads(found.out)) == expected
    assert "first metrics" in found.err


def without_seconds(value):
    if isinstance(value, dict):
        return {key: without_seconds(inner) for key, inner in value.items() if key != "seconds"}
    return [without_seconds(inner) for inner in value] if isinstance(value, list) else value


def test_an_interrupted_comparison_by_workers_is_continued_without_them(folder, cluster, monkeypatch, capsys):
    from vicinal._compare import running

    command = ["compare", "rows.csv", "--target", "kind", "--methods", "z-scored,nca", "--fast", "--drop", "name", "--json"]  # fmt: skip
    assert main([*command, "--report", "whole.html"]) == OK
    expected = without_seconds(json.loads(capsys.readouterr().out))
    finished = []
    finish = running.Run._finish

    def stop_after_some(self, *args):
        finish(self, *args)
        finished.append(args)
        if len(finished) == 8:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5.0)

    monkeypatch.setattr(running.Run, "_finish", stop_after_some)
    assert main([*command, "--report", "page.html", "--cluster", cluster.scheduler_address]) == INTERRUPTED
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    assert not (folder / "page.html").exists()
    computed = []
    outcome_of = running.outcome_of
    monkeypatch.setattr(running, "outcome_of", lambda *args: computed.append(args) or outcome_of(*args))
    capsys.readouterr()
    assert main([*command, "--report", "page.html", "--resume"]) == OK
    assert without_seconds(json.loads(capsys.readouterr().out)) == expected
    assert len(computed) == 2  # of 10


def test_a_small_model_has_the_same_bits(folder, cluster, capsys):
    """Without workers, NumPy computes small sums; the workers' kernels would differ in the last bits."""
    learn = [
        "learn",
        "rows.csv",
        "--method",
        "lca",
        "--drop",
        "name,kind",
        "--set",
        "reg=0.01",
        "--max-rows",
        "60",
        "-q",
    ]
    for output, more in (("one.vicinal", []), ("two.vicinal", ["--cluster", cluster.scheduler_address])):
        assert main([*learn, "-o", output, *more]) == OK
        assert main(["score", output, "rows.csv", "-o", f"{output}.csv", "-q", *more]) == OK
    assert (folder / "one.vicinal").read_bytes() == (folder / "two.vicinal").read_bytes()
    assert (folder / "one.vicinal.csv").read_bytes() == (folder / "two.vicinal.csv").read_bytes()


@pytest.mark.parametrize("command", ["inspect", "demo", "adapt", "neighbors", "report", "outliers"])
def test_commands_without_work_for_workers_do_not_offer_them(command, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert "--workers" not in capsys.readouterr().out


# -- tasks in order -------------------------------------------------------------------------------------------------------


class Slow:
    """The square of a number, and the process that computed it; small numbers take longer than large ones."""

    def __call__(self, number):
        time.sleep(0.2 if number < 2 else 0.01)
        return number**2, os.getpid()


def test_results_come_in_order_and_few_items_are_in_memory(cluster):
    from vicinal._engine.dask.cluster import results_in_order

    requested = []

    def items():
        for number in range(40):
            requested.append(number)
            yield number

    with distributed.Client(cluster):
        for place, (found, process) in enumerate(results_in_order(Slow(), items(), "test.slow")):
            assert found == place**2
            assert process != os.getpid()
            assert len(requested) - place <= 5  # two for each of two threads, and the one that is returned
        assert place == 39


class Fatal:
    """The square of a number; the process is killed once, at the number 5."""

    def __init__(self, marker):
        self._marker = marker

    def __call__(self, number):
        if number == 5 and not self._marker.exists():
            self._marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number**2


def test_a_killed_worker_changes_no_result(cluster, tmp_path):
    from vicinal._engine.dask.cluster import results_in_order

    with distributed.Client(cluster) as client:
        found = list(results_in_order(Fatal(tmp_path / "killed"), range(12), "test.fatal"))
        assert (tmp_path / "killed").exists()
        client.wait_for_workers(2, timeout=60)
    assert found == [number**2 for number in range(12)]


def test_workers_of_the_command_open_no_dashboard(monkeypatch):
    opened = {}

    class Stop(Exception):
        pass

    def local_cluster(**options):
        opened.update(options)
        raise Stop

    monkeypatch.setattr(distributed, "LocalCluster", local_cluster)
    with pytest.raises(Stop), cluster_of(SimpleNamespace(workers=2, cluster=None), None):
        pass
    assert opened["dashboard_address"] is None
