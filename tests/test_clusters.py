"""`--workers` and `--cluster` of the command: real Dask workers give the results of one process."""

import contextlib
import json
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from vicinal import io as model_io
from vicinal.cli import main

pytest.importorskip("distributed")

OK, USAGE = 0, 2
pytestmark = pytest.mark.filterwarnings("ignore")  # of Dask


def test_workers_learn_and_score_as_one_process_does(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    pd.DataFrame(rng.normal(size=(3_000, 3)) * [1.0, 0.2, 5.0], columns=list("abc")).to_csv("rows.csv", index=False)
    learn = ["learn", "rows.csv", "--method", "lca", "--set", "reg=0", "--set", "solver=em", "--set", "max_iter=3"]
    assert main([*learn, "-o", "one.vicinal", "-q"]) == OK
    assert main([*learn, "-o", "two.vicinal", "--workers", "2"]) == OK
    assert "using 2 Dask workers" in capsys.readouterr().err
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


def test_a_scheduler_that_does_not_answer_is_named(tmp_path, monkeypatch, capsys):
    from vicinal._app import clusters

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(clusters, "_SECONDS_TO_CONNECT", 1)
    pd.DataFrame({"a": [1.5, 2.0, 4.0]}).to_csv("rows.csv", index=False)
    learn = ["learn", "rows.csv", "--method", "parzen", "-o", "m.vicinal"]
    assert main([*learn, "--cluster", "tcp://127.0.0.1:9"]) == USAGE
    assert "--cluster tcp://127.0.0.1:9: no scheduler answers" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*learn, "--cluster", "tcp://127.0.0.1:9", "--workers", "2"])
