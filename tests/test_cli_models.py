"""Test the command with every kind of model file: with pipelines in pipelines, empty steps, and steps alone."""

import json

import numpy as np
import pandas as pd
import pytest
from model_file_fits import TABLE, X, Y
from sklearn.decomposition import PCA
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from vicinal import LCA, RCA, Dequantizer, ParzenWindows, TableEncoder, io
from vicinal.cli import main
from vicinal.cli.errors import MODEL, OK, USAGE
from vicinal.cli.wording import name_options

COMMANDS = {
    "inspect": ["inspect", "m.vicinal"],
    "inspect --json": ["inspect", "m.vicinal", "--json"],
    "transform": ["transform", "m.vicinal", "t.csv", "-o", "out.csv"],
    "score": ["score", "m.vicinal", "t.csv", "-o", "out.csv"],
    "neighbors": ["neighbors", "m.vicinal", "t.csv", "-k", "2", "-o", "out.csv"],
    "report": ["report", "m.vicinal", "t.csv", "-o", "out.html"],
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    TABLE.to_csv("t.csv", index=False)


def run(command):
    return main(COMMANDS[command])


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Pipeline([("same", "passthrough")]).fit(X), "holds no estimator"),
        (TableEncoder().fit(TABLE), "holds only a TableEncoder"),
        (make_pipeline(TableEncoder()).fit(TABLE), "holds only a TableEncoder"),
        (make_pipeline(StandardScaler(), LCA()), "holds a LCA that was not fitted"),
    ],
    ids=["no estimator", "encoder", "pipeline of an encoder", "not fitted"],
)
def test_a_model_that_cannot_be_used_is_refused(model, message, command, capsys):
    """These ended in a TypeError or an AttributeError, with the exit code of a bug."""
    io.save(model, "m.vicinal")
    assert run(command) == MODEL
    assert message in capsys.readouterr().err


def test_a_single_step_with_steps_of_its_own_is_used():
    """The steps of rounding were taken for those of a pipeline."""
    io.save(Dequantizer([0.0, 0.5], random_state=3).fit(TABLE), "m.vicinal")
    assert run("transform") == OK


@pytest.mark.parametrize(
    ("same", "plain"),
    [
        (
            lambda: make_pipeline(make_pipeline(StandardScaler(), PCA(1)), make_pipeline(LCA(reg=0.1))),
            lambda: make_pipeline(StandardScaler(), PCA(1), LCA(reg=0.1)),
        ),
        (
            lambda: make_pipeline(make_pipeline(TableEncoder()), None, make_pipeline("passthrough", LCA(reg=0.1))),
            lambda: make_pipeline(TableEncoder(), LCA(reg=0.1)),
        ),
        (
            lambda: Pipeline([("a", "passthrough"), ("b", ParzenWindows(0.5))]),
            lambda: make_pipeline(ParzenWindows(0.5)),
        ),
        (lambda: Pipeline([("a", RCA()), ("b", None)]), lambda: make_pipeline(RCA())),
    ],
    ids=["pipelines", "an encoder in a pipeline", "an empty first step", "an empty last step"],
)
def test_pipelines_in_pipelines_and_empty_steps_change_nothing(same, plain, capsys):
    found = []
    for make in (same, plain):
        model = make().fit(TABLE, Y)
        io.save(model, "m.vicinal")
        codes = {command: run(command) for command in COMMANDS}
        assert set(codes.values()) <= {OK, MODEL}
        last = "score" if hasattr(model, "score_samples") else "transform"
        assert run(last) == OK
        found.append((codes, pd.read_csv("out.csv")))
    assert found[0][0] == found[1][0]
    pd.testing.assert_frame_equal(found[0][1], found[1][1])
    assert np.isfinite(found[0][1].select_dtypes("number")).all().all()


def test_inspect_and_report_show_the_same_shares_of_columns_whatever_the_rows(capsys):
    rows = pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])])
    io.save(make_pipeline(StandardScaler(), RCA()).fit(rows, Y), "m.vicinal")
    (rows.iloc[:30] * np.geomspace(1.0, 50.0, X.shape[1])).to_csv("t.csv", index=False)
    assert run("inspect --json") == OK
    inspected = json.loads(capsys.readouterr().out)["weights"]
    assert main([*COMMANDS["report"], "--json", "-q"]) == OK
    reported = json.loads(capsys.readouterr().out)["metric"]["relevance"]
    assert {entry["name"]: entry["after"] for entry in reported} == pytest.approx(inspected, rel=1e-4)
    assert sum(inspected.values()) == pytest.approx(1.0)


def test_options_are_added_to_messages_that_name_parameters():
    options = {"y": "--target", "task": "--task", "keep": "--resume"}
    assert name_options("y holds 'keep' only.", **options) == "y holds 'keep' only. (In the command: y is --target.)"
    assert name_options("pass task='numbers'.", **options) == "pass task='numbers'."  # the option has the same name
    assert name_options("keep: it is not mine; by y.", **options).endswith("y is --target, keep is --resume.)")


def test_duplicates_are_all_pairs_within_the_distance_each_once(capsys):
    TABLE[:40].to_csv("t.csv", index=False)
    io.save(make_pipeline(TableEncoder(), RCA()).fit(TABLE, np.arange(len(TABLE)) // 3), "m.vicinal")
    assert main(["transform", "m.vicinal", "t.csv", "-o", "images.csv", "-q"]) == OK
    images = pd.read_csv("images.csv").to_numpy()
    apart = np.linalg.norm(images[:, None] - images[None], axis=2)
    most = float(np.median(apart[np.triu_indices(len(images), 1)])) + 1e-6
    first, second = np.nonzero(np.triu(apart <= most, 1))
    for k in ("1", "4"):  # rows with more pairs than -k are searched again
        assert main(["neighbors", "m.vicinal", "t.csv", "-k", k, "--duplicates", str(most), "-o", "out.csv"]) == OK
        assert f"{len(first)} pairs at distance {most:g} or nearer." in capsys.readouterr().err
        pairs = pd.read_csv("out.csv")
        assert list(pairs.columns) == ["query", "neighbor", "distance"]
        assert sorted(zip(pairs["query"], pairs["neighbor"], strict=True)) == sorted(zip(first, second, strict=True))
        assert pairs["distance"].is_monotonic_increasing
    of_queries = ["neighbors", "m.vicinal", "t.csv", "--query", "t.csv", "-k", "1", "--duplicates", str(most)]
    assert main([*of_queries, "-o", "out.csv", "-q"]) == OK
    assert len(pd.read_csv("out.csv")) == 2 * len(first) + len(images)  # new rows: each finds its own copy
    with pytest.raises(SystemExit):
        main(["neighbors", "m.vicinal", "t.csv", "--duplicates", "-1"])
    assert "--duplicates: expected a distance of at least 0, got '-1'" in capsys.readouterr().err


def test_more_neighbors_than_other_rows_are_refused(capsys):
    io.save(make_pipeline(StandardScaler(), RCA()).fit(X, Y), "m.vicinal")
    pd.DataFrame(X[:5]).to_csv("t.csv", index=False)
    assert main(["neighbors", "m.vicinal", "t.csv", "-k", "4", "-q"]) == OK
    assert main(["neighbors", "m.vicinal", "t.csv", "-k", "5", "-q"]) == USAGE
    assert "-k 5 needs at least 5 other rows in DATA, got 4" in capsys.readouterr().err
    assert main(["neighbors", "m.vicinal", "t.csv", "--query", "t.csv", "-k", "5", "-q"]) == OK
