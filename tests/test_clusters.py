"""`--workers` and `--cluster` of the command: real Dask workers, and the answers of one process."""

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
    assert "done by 2 Dask workers" in capsys.readouterr().err
    one, two = model_io.load("one.vicinal")[-1], model_io.load("two.vicinal")[-1]
    np.testing.assert_array_equal(two.covariance_, one.covariance_)
    assert two.engine_ == "dask"
    assert two.engine is None  # a model does not carry the cluster that made it


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
