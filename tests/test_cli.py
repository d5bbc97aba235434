"""The `vicinal` command: through `main` in this process, and through the installed entry point where processes matter."""

import argparse
import contextlib
import csv
import decimal
import errno
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from needs import needs
from sklearn.datasets import load_wine
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import vicinal
from vicinal import io as model_io
from vicinal._detect.steps import fit_prepared
from vicinal.cli import main
from vicinal.cli.errors import MEANINGS
from vicinal.cli.parser import make_parser
from vicinal.cli.paths import OutputPath, same_file

OK, BUG, USAGE, DATA, MODEL, OUTPUT, FIT, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 3, 4, 5, 6, 130, 141
COMMAND = Path(sys.executable).parent / "vicinal"
pytestmark = pytest.mark.usefixtures("short_search_in_this_file")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def table(folder):
    """Two classes, three numeric columns of very different units, a text column, a row name."""
    rng = np.random.default_rng(0)
    kind = rng.integers(2, size=120)
    frame = pd.DataFrame(
        {
            "name": [f"row{i}" for i in range(120)],
            "length": 1000.0 * (rng.normal(size=120) + 2 * kind),
            "width": rng.normal(size=120) * 0.01,
            "hue": rng.normal(size=120) - kind,
            "colour": rng.choice(["red", "green", "blue"], size=120),
            "kind": np.where(kind, "b", "a"),
        }
    )
    frame.to_csv("table.csv", index=False)
    return frame


def run(*arguments):
    try:
        return main([str(argument) for argument in arguments])
    except SystemExit as stop:  # argparse
        return stop.code


def command(*arguments, **options):
    """The installed entry point, in its own process."""
    options.setdefault("env", {**os.environ, "OMP_NUM_THREADS": "1"})
    return subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, timeout=120, check=False, **options)


FEATURES = ["length", "width", "hue"]


def test_neighbors_of_a_model_without_local_directions_use_one_and_say_so(table, capsys):
    assert run("learn", "table.csv", "--method", "lca-gauss", "--drop", "kind", "-o", "model.vicinal") == OK
    assert model_io.load("model.vicinal")[-1].n_components_ == 0
    assert run("neighbors", "model.vicinal", "table.csv", "-k", 3) == OK
    assert "keeps the least Gaussian direction alone" in capsys.readouterr().err


def test_outliers_of_the_readme_are_what_the_command_prints(tmp_path, monkeypatch, capsys):
    """The row and its reason had changed with the default density, and the README had not."""
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    example = text.split("$ vicinal outliers wine.csv --drop cultivar | cut -d, -f 1,3,7-\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    load_wine(as_frame=True).frame.rename(columns={"target": "cultivar"}).to_csv("wine.csv", index=False)
    assert run("outliers", "wine.csv", "--drop", "cultivar") == OK
    printed = capsys.readouterr()
    (row,) = csv.DictReader(printed.out.splitlines())
    summary, header, line = example.splitlines()
    assert summary in printed.err
    assert next(csv.reader([line])) == [row[name] for name in header.split(",")]


@pytest.mark.parametrize(
    "method",
    ["lca", "lca-gauss", "rca", "nca", "parzen", "manifold-parzen", pytest.param("local-lca", marks=pytest.mark.slow)],
)
def test_learn_then_use(table, capsys, method):
    dropped = "kind,colour" if method in ("lca", "parzen") else "kind"
    supervised = ["--target", "kind"] if method in ("rca", "nca") else ["--drop", dropped]
    if method == "lca-gauss":  # which by itself finds that one Gaussian describes these rows best
        supervised += ["--set", "reg=0", "--set", "reg_gauss=0"]
    assert run("learn", "table.csv", "--method", method, *supervised, "-o", "model.vicinal") == OK
    captured = capsys.readouterr()
    assert captured.out == ""
    if method not in ("lca", "parzen"):  # which learn from categories
        assert "left out 1 column of text: 'colour' (3 values" in captured.err
    assert "they identify or number the rows: identifier: 'name'" in captured.err
    model = model_io.load("model.vicinal")
    assert list(model.feature_names_in_) == FEATURES
    # columns are picked by name: order and company do not matter
    table[["hue", "kind", "width", "length"]].to_parquet("shuffled.parquet")
    if hasattr(model, "transform"):
        assert run("transform", "model.vicinal", "shuffled.parquet", "-o", "images.npy", "-q") == OK
        np.testing.assert_allclose(np.load("images.npy"), model.transform(table[FEATURES]), rtol=1e-12, atol=1e-12)
        assert run("neighbors", "model.vicinal", "table.csv", "-k", 3, "--id", "name", "-o", "near.csv", "-q") == OK
        near = pd.read_csv("near.csv")
        assert list(near.columns) == ["query", "rank", "neighbor", "distance"]
        assert len(near) == 360
        assert (near["query"] != near["neighbor"]).all()
        _check_nearest(near, model.transform(table[FEATURES]), table["name"])
    else:
        assert run("transform", "model.vicinal", "table.csv") == MODEL
    capsys.readouterr()
    if method in ("rca", "nca"):
        assert run("score", "model.vicinal", "table.csv") == MODEL
        assert "a metric without a density" in capsys.readouterr().err
    else:
        _check_score(model, table, capsys)


def test_categories_take_part_in_densities(table, capsys):
    """Scores, neighbours and images are those of an LCA of the same rows and levels in Python."""
    assert run("learn", "table.csv", "--method", "lca", "--drop", "kind", "--set", "reg=0.1", "-o", "m.vicinal") == OK
    said = capsys.readouterr().err
    assert "used as levels: 'colour (3 values)'" in said
    assert "quantities: 'length', 'width', 'hue'; categories: colour (l = " in said
    scaled = (table[FEATURES] - table[FEATURES].mean()) / table[FEATURES].std(ddof=0)
    scaled.insert(list(table).index("colour") - list(table).index(FEATURES[0]), "colour", table["colour"])
    lca = vicinal.LCA(reg=0.1).fit(scaled)
    model = model_io.load("m.vicinal")
    np.testing.assert_allclose(model.transform(table), lca.transform(scaled), rtol=1e-8)
    volume = np.log(table[FEATURES].std(ddof=0)).sum()
    new = table.head(9).assign(hue=0.5, colour=["red", "pink", None] * 3)
    new.to_csv("new.csv", index=False)
    assert run("score", "m.vicinal", "new.csv", "-q") == OK
    scores = pd.read_csv(io.StringIO(capsys.readouterr().out))
    moved = scaled.head(9).assign(hue=(0.5 - table["hue"].mean()) / table["hue"].std(ddof=0), colour=new["colour"])
    np.testing.assert_allclose(scores["log_density"], lca.score_samples(moved) - volume, rtol=1e-8)
    assert run("transform", "m.vicinal", "table.csv", "-q") == OK
    images = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert list(images) == list(lca.get_feature_names_out())
    assert run("neighbors", "m.vicinal", "table.csv", "-k", 4, "-q") == OK
    near = pd.read_csv(io.StringIO(capsys.readouterr().out))
    codes = lca._codes(scaled)
    kernel = lca.mixture_.log_factors(codes)[0]
    numbers = np.square((scaled[FEATURES].to_numpy()[:, None] - scaled[FEATURES].to_numpy()) @ lca.components_.T).sum(
        axis=2
    )
    kernel = kernel - 0.5 * numbers
    own = np.diag(kernel).copy()
    np.fill_diagonal(kernel, -np.inf)
    expected = np.sort(np.sqrt(2.0 * (own[:, None] - kernel)), axis=1)[:, :4]
    np.testing.assert_allclose(near["distance"].to_numpy().reshape(-1, 4), expected, rtol=1e-6)
    at = near["neighbor"].to_numpy().reshape(-1, 4)
    assert (at != np.arange(120)[:, None]).all()
    assert run("outliers", "table.csv", "--drop", "kind") == OK
    assert "categories: colour (l = " in capsys.readouterr().err
    assert (
        run(
            "compare",
            "table.csv",
            "--drop",
            "kind",
            "--methods",
            "lca,lca-beside,gaussian",
            "--repeats",
            1,
            "--json",
            "-q",
        )
        == OK
    )
    compared = json.loads(capsys.readouterr().out)
    assert any("the categories 'colour'" in note for note in compared["notes"])


def _check_nearest(near, images, names):
    distances = np.linalg.norm(images[:, None] - images[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    position = {name: i for i, name in enumerate(names)}
    for query, group in near.groupby("query"):
        i = position[query]
        np.testing.assert_allclose(group["distance"], np.sort(distances[i])[:3], rtol=1e-9)
        np.testing.assert_allclose(
            distances[i][[position[name] for name in group["neighbor"]]], group["distance"], rtol=1e-9
        )


def _check_score(model, table, capsys):
    """Scores are those of a DensityOutlierDetector, in the units of the data."""
    scaled = model[:-1].transform(table[FEATURES])
    detector = vicinal.DensityOutlierDetector(model[-1]).fit(scaled)
    volume = np.log(model["scale"].scale_).sum()
    assert run("score", "model.vicinal", "table.csv", "-q") == OK
    scores = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert list(scores.columns) == ["row", "score", "p_value", "outlier", "log_density"]
    # Each row is left out of the fitted density; where p-values need refits, only they do.
    left_out = getattr(model[-1], "held_out_score_samples", lambda: model[-1].score_samples(None))
    own = left_out()
    np.testing.assert_allclose(scores["log_density"], own - volume, rtol=1e-9)
    np.testing.assert_allclose(scores["p_value"], detector.training_p_values_, rtol=1e-9)
    np.testing.assert_array_equal(scores["outlier"], detector.labels_ == -1)
    assert run("score", "model.vicinal", "--training", "-q") == OK
    np.testing.assert_allclose(pd.read_csv(io.StringIO(capsys.readouterr().out))["log_density"], scores["log_density"])
    new = table[FEATURES] + np.array([1.0, 1e-3, 9.0])
    new.to_csv("new.csv", index=False)
    assert run("score", "model.vicinal", "new.csv", "-q", "--level", "0.1") == OK
    scores = pd.read_csv(io.StringIO(capsys.readouterr().out))
    np.testing.assert_allclose(scores["log_density"], model.score_samples(new) - volume, rtol=1e-9)
    np.testing.assert_allclose(scores["p_value"], detector.p_values(model[:-1].transform(new)), rtol=1e-9)
    assert scores["outlier"].all()
    # a training row among new rows would hide behind its own kernel
    pd.concat([new, table[FEATURES].head(5)]).to_csv("mixed.csv", index=False)
    assert run("score", "model.vicinal", "mixed.csv") == OK
    captured = capsys.readouterr()
    assert "5 rows of 125 equal a training row exactly" in captured.err
    tail = pd.read_csv(io.StringIO(captured.out))["log_density"].tail(5)
    np.testing.assert_allclose(tail, own[:5] - volume, rtol=1e-9)
    table[FEATURES].head(1).to_csv("single.csv", index=False)
    assert run("score", "model.vicinal", "single.csv") == OK
    assert "1 row of 1 equals a training row exactly, and is scored" in capsys.readouterr().err


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "npz", "npy", "csv.gz"])
def test_every_format_is_read_and_written(table, capsys, ending):
    assert run("learn", "table.csv", "--method", "rca", "--target", "kind", "-o", "model.vicinal", "-q") == OK
    assert run("transform", "model.vicinal", "table.csv", "-o", f"first.{ending}", "-q") == OK
    assert run("learn", f"first.{ending}", "--method", "parzen", "-o", "second.vicinal", "-q") == OK
    assert run("score", "second.vicinal", f"first.{ending}", "-q") == OK
    assert len(pd.read_csv(io.StringIO(capsys.readouterr().out))) == 120
    images = model_io.load("model.vicinal").transform(table[FEATURES])
    np.testing.assert_allclose(model_io.load("second.vicinal")["scale"].mean_, images.mean(axis=0), atol=1e-12)


def test_supervision_by_pairs_and_groups_agrees_with_python(table):
    pd.DataFrame({"a": ["row0", "row3"], "b": ["row1", "row4"]}).to_csv("pairs.csv", index=False)
    assert (
        run(
            "learn",
            "table.csv",
            "--method",
            "rca",
            "--pairs",
            "pairs.csv",
            "--id",
            "name",
            "--drop",
            "kind",
            "-o",
            "p.vicinal",
            "-q",
        )
        == OK
    )
    pd.DataFrame({"a": [0, 3], "b": [1, 4]}).to_csv("numbers.csv", index=False)
    assert (
        run(
            "learn", "table.csv", "--method", "rca", "--pairs", "numbers.csv", "--drop", "kind", "-o", "n.vicinal", "-q"
        )
        == OK
    )
    grouped = table.assign(group=[None] * 120)
    grouped.loc[[0, 1], "group"], grouped.loc[[3, 4], "group"] = "x", "y"
    grouped.to_csv("grouped.csv", index=False)
    assert (
        run("learn", "grouped.csv", "--method", "rca", "--groups", "group", "--drop", "kind", "-o", "g.vicinal", "-q")
        == OK
    )
    X = table[FEATURES]
    expected = vicinal.RCA().fit((X - X.mean()) / X.std(ddof=0), [[0, 1], [3, 4]]).components_
    for name in ("p.vicinal", "n.vicinal", "g.vicinal"):
        np.testing.assert_allclose(model_io.load(name)[-1].components_, expected, rtol=1e-9)


def test_nca_takes_pairs_and_continuous_targets(table, capsys):
    pd.DataFrame({"a": [0, 3, 7], "b": [1, 4, 9]}).to_csv("pairs.csv", index=False)
    assert (
        run("learn", "table.csv", "--method", "nca", "--pairs", "pairs.csv", "--drop", "kind", "-o", "m.vicinal", "-q")
        == OK
    )
    assert type(model_io.load("m.vicinal")[-1]).__name__ == "PairNCA"
    assert run("learn", "table.csv", "--method", "nca", "--target", "hue", "--drop", "kind", "-o", "m.vicinal") == OK
    assert "is continuous" in capsys.readouterr().err
    assert model_io.load("m.vicinal")[-1].objective.match == "gaussian"


def test_parameters_scaling_and_seed(table):
    options = ["--method", "nca", "--target", "kind", "--set", "n_components=2", "--set", "init=random", "-q"]
    assert run("learn", "table.csv", *options, "--seed", 3, "-o", "a.vicinal") == OK
    assert run("learn", "table.csv", *options, "--seed", 3, "-o", "b.vicinal") == OK
    assert (
        run("learn", "table.csv", *options, "--seed", 4, "-o", "c.vicinal", "--threads", 1, "--memory", "64 MB") == OK
    )
    a, b, c = (model_io.load(f"{name}.vicinal")[-1].components_ for name in "abc")
    assert a.shape == (2, 3)
    np.testing.assert_array_equal(a, b)
    assert not np.allclose(a, c)
    assert (
        run(
            "learn",
            "table.csv",
            "--method",
            "parzen",
            "--drop",
            "kind",
            "--no-scale",
            "--set",
            "bandwidth=scott",
            "-o",
            "p.vicinal",
            "-q",
        )
        == OK
    )
    expected = vicinal.ParzenWindows("scott").fit(table[FEATURES])
    np.testing.assert_allclose(model_io.load("p.vicinal")[-1].covariance_, expected.covariance_)


def test_one_hot_columns_come_back_by_name(table, capsys):
    assert (
        run(
            "learn",
            "table.csv",
            "--method",
            "rca",
            "--target",
            "kind",
            "--drop",
            "name",
            "--one-hot",
            "-o",
            "m.vicinal",
        )
        == OK
    )
    model = model_io.load("m.vicinal")
    assert list(model.feature_names_in_) == [*FEATURES, "colour"]
    assert list(model[0].get_feature_names_out()) == [*FEATURES, "colour=blue", "colour=green", "colour=red"]
    table.drop(columns=["kind", "name"])[::-1].to_csv("new.csv", index=False)
    capsys.readouterr()
    assert run("transform", "m.vicinal", "new.csv", "-q") == OK
    images = pd.read_csv(io.StringIO(capsys.readouterr().out)).to_numpy()
    coded = pd.get_dummies(table[["length", "width", "hue", "colour"]], columns=["colour"], prefix_sep="=", dtype=float)
    np.testing.assert_allclose(images, model[1:].transform(coded)[::-1], rtol=1e-9)


def test_missing_values_are_counted_refused_and_dropped(table, capsys):
    holes = table.copy()
    holes.loc[[3, 5], "hue"] = np.nan
    holes.loc[5, "width"] = np.nan
    holes.loc[7, "kind"] = None
    holes.to_csv("holes.csv", index=False)
    assert run("learn", "holes.csv", "--method", "nca", "--target", "kind", "-o", "m.vicinal") == DATA
    message = capsys.readouterr().err
    assert "4 missing values in 3 rows of 120 ('width': 1, 'hue': 2, 'kind': 1)" in message
    assert "--missing drop" in message
    assert not Path("m.vicinal").exists()
    holes.assign(colour=holes["colour"].where(holes.index != 9)).to_csv("more.csv", index=False)
    assert run("learn", "more.csv", "--method", "nca", "--target", "kind", "--one-hot", "-o", "m.vicinal") == DATA
    assert "('width': 1, 'hue': 2, 'colour': 1, 'kind': 1)" in capsys.readouterr().err
    assert (
        run(
            "learn",
            "holes.csv",
            "--method",
            "nca",
            "--target",
            "kind",
            "--missing",
            "drop",
            "--json",
            "-o",
            "m.vicinal",
        )
        == OK
    )
    assert json.loads(capsys.readouterr().out)["rows"] == 117
    assert run("transform", "m.vicinal", "holes.csv", "--missing", "drop", "--keep", "name", "-q") == OK
    images = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert len(images) == 118  # a missing label is no matter here
    assert list(images.columns[:2]) == ["row", "name"]
    assert [f"row{i}" for i in images["row"]] == list(images["name"])


def test_what_is_odd_about_the_columns_is_said(folder, capsys):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"id": range(40), "x": rng.normal(size=40), "y": rng.normal(size=40), "same": 1.5, "empty": np.nan}
    )
    frame["age"] = [str(number) for number in rng.integers(20, 60, size=40)]
    frame.loc[11, "age"] = "n/k"
    frame.to_csv("odd.csv")  # with an index column that has no name
    assert run("learn", "odd.csv", "--method", "parzen", "-o", "m.vicinal") == OK
    err = capsys.readouterr().err
    assert "left out, because they identify or number the rows: counter: 'Unnamed: 0', 'id'" in err
    assert "are constant: 'same'" in err
    assert "have no values: 'empty'" in err
    assert "'age' (39 of 40 entries are numbers; row 11 holds 'n/k'" in err
    assert "Pass --na 'n/k' if 'n/k' means a missing value" in err
    assert list(model_io.load("m.vicinal").feature_names_in_) == ["x", "y"]


BAD = [
    ("empty", b"", "is empty"),
    ("blank", b"\n\n\n", "is empty"),
    ("header only", b"a,b\n", "but no rows"),
    ("ragged", b"a,b\n1,2\n3,4,5\n", "is not a table"),
    ("longer than the header", b"a,b\n1,2,3\n4,5,6\n", "is not a table"),
    ("not utf-8", "a,b\n1,é\n".encode("latin-1"), "is not utf-8 text"),
    ("binary", bytes(range(256)) * 4, "not utf-8"),
    ("no numbers", b"a,b\nx,y\nz,w\n", "no column is left to learn from"),
    ("infinite", b"a,b\n1,2\ninf,3\n4,4\n", "infinite values in 'a (1)'"),
    ("constant", b"a,b\n1,2\n1,2\n1,2\n", "every feature is constant"),
    ("open quote", b'a,b\n1,"2\n3,4\n', ""),
]


@pytest.mark.parametrize(("content", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_csv_is_explained(folder, capsys, content, message):
    Path("bad.csv").write_bytes(content)
    assert run("learn", "bad.csv", "--method", "parzen", "-o", "m.vicinal") == DATA
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.splitlines()[-1].startswith("vicinal: error: ")
    assert not Path("m.vicinal").exists()


def test_other_encodings_separators_and_headers(folder, capsys):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(30, 2))
    pd.DataFrame(rows, columns=["größe", "breite"]).to_csv("l.csv", index=False, sep=";", encoding="utf-16")
    assert (
        run("learn", "l.csv", "--method", "parzen", "--sep", ";", "--encoding", "utf-16", "-o", "m.vicinal", "-q") == OK
    )
    assert list(model_io.load("m.vicinal").feature_names_in_) == ["größe", "breite"]
    np.savetxt("plain.csv", rows, delimiter=",")
    assert run("learn", "plain.csv", "--method", "parzen", "-o", "m.vicinal") == OK
    assert "--no-header" in capsys.readouterr().err
    assert run("learn", "plain.csv", "--method", "parzen", "--no-header", "-o", "m.vicinal", "-q") == OK
    assert model_io.load("m.vicinal")[-1].mixture_.centres.shape == (30, 2)
    Path("with-bom.csv").write_bytes("\ufeffa,b\n1,2\n2,5\n4,1\n".encode())
    assert run("learn", "with-bom.csv", "--method", "parzen", "--set", "bandwidth=1", "-o", "m.vicinal", "-q") == OK
    assert list(model_io.load("m.vicinal").feature_names_in_) == ["a", "b"]


def test_bad_numpy_and_parquet_files_are_explained(folder, capsys):
    np.save("objects.npy", np.array([{"a": 1}, None], dtype=object), allow_pickle=True)
    Path("no.npy").write_bytes(b"a,b\n1,2\n")
    np.save("cube.npy", np.zeros((2, 2, 2)))
    np.save("text.npy", np.array([["a", "b"]]))
    np.savez("two.npz", first=np.eye(3), second=np.random.default_rng(0).normal(size=(5, 2)))
    Path("broken.npz").write_bytes(b"PK\x03\x04 nothing")
    Path("broken.parquet").write_bytes(b"PAR1 nothing PAR1")
    Path("broken.npy").write_bytes(b"\x93NUMPY\x01\x00v\x00{")
    Path("broken.csv.gz").write_bytes(b"a,b\n1,2\n")
    for name in (
        "objects.npy",
        "no.npy",
        "cube.npy",
        "text.npy",
        "two.npz",
        "broken.npz",
        "broken.parquet",
        "broken.npy",
        "broken.csv.gz",
    ):
        assert run("learn", name, "--method", "parzen", "-o", "m.vicinal") == DATA, name
        err = capsys.readouterr().err
        assert "vicinal: error: " in err
        assert "unsafe" not in err  # as NumPy words it for what is no file of its own
    assert run("learn", "two.npz", "--array", "second", "--method", "parzen", "-o", "m.vicinal", "-q") == OK


def test_wrong_columns_are_named(table, capsys):
    assert run("learn", "table.csv", "--method", "nca", "--target", "knd", "-o", "m.vicinal") == DATA
    assert "there is no column 'knd'. Did you mean 'kind'?" in capsys.readouterr().err
    assert run("learn", "table.csv", "--method", "lca", "--drop", "kind,widht", "-o", "m.vicinal") == DATA
    assert "Did you mean 'width'?" in capsys.readouterr().err
    assert run("learn", "table.csv", "--method", "lca", "--drop", "kind", "-o", "m.vicinal", "-q") == OK
    table.drop(columns=["hue"]).rename(columns={"width": "Width"}).to_csv("wrong.csv", index=False)
    assert run("score", "m.vicinal", "wrong.csv") == DATA
    assert "lacks 2 columns of the model: 'width', 'hue'. Did you mean 'Width'" in capsys.readouterr().err
    table.assign(hue="dark").to_csv("wrong.csv", index=False)
    assert run("score", "m.vicinal", "wrong.csv") == DATA
    assert "must be numeric: 'hue'" in capsys.readouterr().err


USAGE_ERRORS = [
    (["learn", "table.csv"], USAGE),
    (["learn", "table.csv", "--method", "svm", "-o", "m"], USAGE),
    (["learn", "table.csv", "--method", "rca", "-o", "m"], USAGE),
    (["learn", "table.csv", "--method", "lca", "--pairs", "p.csv", "-o", "m"], USAGE),
    (["learn", "table.csv", "--method", "rca", "--target", "kind", "--groups", "kind", "-o", "m"], USAGE),
    (["learn", "table.csv", "--method", "lca", "--set", "bandwidth=1", "-o", "m"], USAGE),
    (["learn", "table.csv", "--method", "lca", "--set", "reg", "-o", "m"], USAGE),
    (["learn", "table.csv", "--method", "lca", "--memory", "lots", "-o", "m"], USAGE),
    (["learn", "table.csv", "--method", "lca", "--memory", "12", "-o", "m"], USAGE),
    (["learn", "table.csv", "--method", "lca", "--threads", "0", "-o", "m"], USAGE),
    (["learn", "table.csv", "--method", "lca", "--seed", "-1", "-o", "m"], USAGE),
    (["learn", "table.data", "--method", "lca", "-o", "m"], USAGE),
    (["learn", "missing.csv", "--method", "lca", "-o", "m"], DATA),
    (["learn", ".", "--format", "csv", "--method", "lca", "-o", "m"], DATA),
    (["learn", "table.csv", "--method", "lca", "--set", "reg=-1", "--drop", "kind", "-o", "m"], FIT),
    (["learn", "table.csv", "--method", "nca", "--target", "name", "--drop", "kind", "-o", "no/such/folder/m"], OUTPUT),
    (["learn", "table.csv", "--method", "lca", "--drop", "kind", "-o", "."], OUTPUT),
    (["inspect", "missing.vicinal"], DATA),
    (["score", "table.csv", "table.csv"], MODEL),
    (["score", "table.csv"], USAGE),
    (["compare", "table.csv", "--target", "kind", "--methods", "magic"], USAGE),
    (["compare", "table.csv", "--target", "hue", "--task", "classes"], DATA),
    (["learn", "table.csv", "--method", "lca", "--drop", "kind", "-o", "-"], USAGE),
    (["compare", "table.csv", "--target", "kind", "--report", "-"], USAGE),
    (["neighbors", "m.vicinal", "-", "--query", "-"], USAGE),
    (["learn", "table.csv", "--decimal", ",", "--method", "lca", "-o", "m"], USAGE),
    (["compare", "table.csv", "--target", "name"], DATA),
    (["compare", "table.csv", "--target", "kind", "--report", "no/such/folder/r.html"], OUTPUT),
]


@pytest.mark.parametrize(
    ("arguments", "code"), USAGE_ERRORS, ids=[" ".join(case[0][:5]) or "nothing" for case in USAGE_ERRORS]
)
def test_exit_codes(table, capsys, arguments, code):
    for name in ("table.data", "p.csv", "m.vicinal"):  # what the command lines are about are other faults
        Path(name).write_text("a,b\n1,2\n")
    assert run(*arguments) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "error: " in captured.err
    assert "Traceback" not in captured.err
    if code in (DATA, FIT):  # the message names the file
        assert next(name for name in arguments if name.endswith((".csv", ".vicinal", "."))) in captured.err
    assert not Path("m").exists()


def test_inspect_shows_the_range_of_decimals_and_the_kinds_of_dropped_columns(folder, capsys):
    amounts = [decimal.Decimal(cents) / 100 for cents in (1050, 950, 20000, 300, 999, 1234)]
    pd.DataFrame({"amount": amounts, "n": [1, 2, 3, 5, 8, 13]}).to_parquet("t.parquet")
    assert run("inspect", "t.parquet", "--drop", "n", "--json") == OK
    amount, n = json.loads(capsys.readouterr().out)["columns"]
    assert amount["range"] == "3.00 to 200.00"
    assert (n["kind"], n["use"], n["range"]) == ("lattice of step 1", "left out", "1 to 13")


def test_inspect_shows_the_kinds_of_columns_before_anything_is_learned(table, capsys):
    table["price"] = np.exp(1.5 * np.random.default_rng(0).normal(size=120)).round(2)
    table.loc[3, "hue"] = np.nan
    table.to_csv("table.csv", index=False)
    assert run("inspect", "table.csv") == OK
    captured = capsys.readouterr()
    lines = {line.split()[0]: line for line in captured.out.splitlines()[2:]}
    assert captured.out.startswith("table.csv: 120 rows, 7 columns\n")
    assert lines["name"].split()[1:4] == ["identifier", "left", "out"]
    assert "lattice of step 0.01  quantity" in lines["price"]
    assert "category" in lines["colour"]
    assert "levels; 0/1 columns with --one-hot" in lines["colour"]
    assert "Pass --log price to use its logarithm" in captured.err
    assert (
        run("inspect", "table.csv", "--log", "price", "--drop", "name", "--type", "hue=lattice:0.5", "--json", "-q")
        == OK
    )
    columns = {facts["column"]: facts for facts in json.loads(capsys.readouterr().out)["columns"]}
    assert columns["price"]["use"] == "logarithm"
    assert columns["name"]["use"] == "left out"
    assert columns["hue"]["kind"] == "lattice of step 0.5"
    assert columns["hue"]["missing"] == 1


def test_inspect_a_folder_of_parquet_files_is_a_table(table, capsys):
    Path("parts").mkdir()
    table.to_parquet("parts/1.parquet")
    assert run("inspect", "parts") == OK
    assert "parts: 120 rows, 6 columns" in capsys.readouterr().out


def test_inspect_shows_numbers_as_in_the_table_and_what_dates_are_used_for(folder, capsys):
    rng = np.random.default_rng(0)
    days = pd.Timestamp("2021-01-01") + pd.to_timedelta(rng.integers(0, 700, 120), "D")
    rows = {"day": days.strftime("%Y-%m-%d"), "month": days.strftime("%Y-%m"), "year": days.year}
    pd.DataFrame({**rows, "code": 20_210_000 + 7 * rng.integers(0, 99, 120), "x": rng.normal(size=120)}).to_csv(
        "t.csv", index=False
    )
    assert run("inspect", "t.csv", "--json", "-q") == OK
    columns = {facts["column"]: facts for facts in json.loads(capsys.readouterr().out)["columns"]}
    assert columns["day"]["use"] == "quantity (days)"
    assert columns["month"]["use"] == "metrics only"  # its days repeat, but fill no even steps
    assert columns["year"]["range"] == "2021 to 2022"
    assert re.fullmatch(r"20,21\d,\d{3} to 20,21\d,\d{3}", columns["code"]["range"])


def test_outliers_of_gaps_refuses_only_if_told_to(folder, capsys):
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=["a", "b"])
    rows.loc[0, "b"] = np.nan
    rows.to_csv("t.csv", index=False)
    assert run("outliers", "t.csv", "-q") == OK
    assert run("outliers", "t.csv", "-q", "--missing", "refuse") == 3
    assert "1 missing value in 1 row of 60" in capsys.readouterr().err


def test_numbers_with_commas_are_named_once_as_the_remedy(folder, capsys):
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 3)).round(2), columns=["a", "b", "c"])
    rows.to_csv("t.csv", index=False, sep=";", decimal=",")
    assert run("outliers", "t.csv") == 3
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].count("--decimal ,") == 1
    assert [line.count("--decimal ,") for line in lines if "left out" in line] == [1]


def test_bare_command_prints_the_help(capsys):
    assert run() == OK
    assert capsys.readouterr().out.startswith("usage: vicinal")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            ["compare", "t.csv", "--taget", "y"],
            "compare has no option or argument '--taget'. Did you mean --target? See vicinal",
        ),
        (["compare", "t.csv", "--reprot=r.html"], "Did you mean --report?"),
        (["lern", "t.csv"], "Did you mean learn?"),
        (["learn", "t.csv", "--method", "lda", "-o", "m"], "Did you mean lca?"),
        (["learn", "t.csv"], "the following arguments are required: --method, -o/--output"),
    ],
)
def test_errors_in_options_are_one_line_with_a_hint(line, message, capsys):
    assert run(*line) == USAGE
    err = capsys.readouterr().err
    assert err.startswith("vicinal: error: ")
    assert err.count("\n") == 1
    assert message in err


def test_json_and_inspect(table, capsys):
    assert run("learn", "table.csv", "--method", "lca", "--drop", "kind", "-o", "m.vicinal", "--json", "-q") == OK
    summary = json.loads(capsys.readouterr().out)
    assert summary["rows"] == 120
    assert sorted(summary["columns"]) == sorted([*FEATURES, "colour"])
    assert list(summary["levels"]) == ["colour"]
    assert 0 < summary["levels"]["colour"] <= 1
    assert run("inspect", "m.vicinal", "--json") == OK
    facts = json.loads(capsys.readouterr().out)
    assert facts["class"] == "LCA"
    assert facts["training_rows"] == 120
    assert sum(facts["weights"].values()) == pytest.approx(1)
    assert run("inspect", "m.vicinal") == OK
    assert "converged in" in capsys.readouterr().out
    assert run("score", "m.vicinal", "table.csv", "--json", "-q") == OK
    records = json.loads(capsys.readouterr().out)
    assert len(records) == 120
    assert set(records[0]) == {"row", "score", "log_density", "p_value", "outlier"}


def test_a_sample_of_the_rows(table):
    options = ["--drop", "kind,colour", "--max-rows", 50, "--seed", 1, "-q"]
    assert run("learn", "table.csv", "--method", "parzen", *options, "-o", "m.vicinal") == OK
    centres = model_io.load("m.vicinal")[-1].mixture_.centres
    rows = np.sort(np.random.default_rng(1).choice(120, 50, replace=False))
    X = table[FEATURES].to_numpy()[rows]
    np.testing.assert_allclose(centres, (X - X.mean(axis=0)) / X.std(axis=0))


def test_models_made_in_python(table, capsys):
    """No column names, a detector, an unfitted one: each is used or explained."""
    X = table[FEATURES]
    model_io.save(vicinal.LCA().fit(X.to_numpy()), "nameless.vicinal")
    X.to_csv("features.csv", index=False)
    assert run("transform", "nameless.vicinal", "features.csv", "-q") == OK
    images = pd.read_csv(io.StringIO(capsys.readouterr().out))
    np.testing.assert_allclose(images, vicinal.LCA().fit(X.to_numpy()).transform(X.to_numpy()), rtol=1e-9)
    assert run("transform", "nameless.vicinal", "table.csv", "-q") == OK  # the numeric columns are those three
    table.assign(more=1.0).to_csv("wide.csv", index=False)
    capsys.readouterr()
    assert run("transform", "nameless.vicinal", "wide.csv") == DATA
    assert "fitted without column names on 3 columns" in capsys.readouterr().err
    detector = vicinal.DensityOutlierDetector().fit(X)
    model_io.save(detector, "detector.vicinal")
    assert run("score", "detector.vicinal", "features.csv", "-q") == OK
    scores = pd.read_csv(io.StringIO(capsys.readouterr().out))
    np.testing.assert_allclose(scores["p_value"], detector.training_p_values_)
    model_io.save(vicinal.LCA(), "unfitted.vicinal")
    assert run("score", "unfitted.vicinal", "features.csv") == MODEL
    assert "was not fitted" in capsys.readouterr().err
    model_io.save(vicinal.LCA().fit(X), "thin.vicinal", training_rows=False)
    assert run("transform", "thin.vicinal", "features.csv", "-q") == OK
    capsys.readouterr()
    assert run("score", "thin.vicinal", "features.csv") == MODEL
    assert "saved without its training rows" in capsys.readouterr().err


def scored(capsys, *arguments):
    assert run("score", *arguments, "-q") == OK
    return pd.read_csv(io.StringIO(capsys.readouterr().out))


def test_score_explains_outliers_and_holds_a_false_discovery_rate(table, capsys):
    X = table[FEATURES]
    X.to_csv("features.csv", index=False)
    new = X + 0.1 * X.std().to_numpy()
    new.iloc[:12, 0] = X.iloc[:12, 0] + 30 * X.iloc[:, 0].std()
    new.to_csv("new.csv", index=False)
    assert run("learn", "features.csv", "--method", "parzen", "-q", "-o", "m.vicinal") == OK
    detector = vicinal.DensityOutlierDetector.from_density(model_io.load("m.vicinal")[1:], fdr=0.2)
    scores = scored(capsys, "m.vicinal", "new.csv", "--explain", "--fdr", "0.2")
    np.testing.assert_array_equal(scores["outlier"], detector.predict(new) == -1)
    assert scores["outlier"][:12].all()
    assert scores["why"].isna().tolist() == (scores["outlier"] == 0).tolist()
    expected = detector.explain(new[:1])
    assert scores["why"][0] == "; ".join(expected.reasons(0))
    assert scores["why"][0].startswith(f"{FEATURES[0]}: expected ")
    assert f"got {new.iloc[0, 0]:,.0f}" in scores["why"][0]  # in the units of the table
    own = scored(capsys, "m.vicinal", "--training", "--explain", "--level", "0.1")
    first = int(np.flatnonzero(own["outlier"])[0])
    detector = vicinal.DensityOutlierDetector.from_density(model_io.load("m.vicinal")[1:], contamination=0.1)
    assert own["why"][first] == "; ".join(detector.explain(None).reasons(first))
    pd.testing.assert_frame_equal(scored(capsys, "m.vicinal", "features.csv", "--explain", "--level", "0.1"), own)
    assert run("score", "m.vicinal", "--training", "--fdr", "0.2") == USAGE
    assert "--fdr is for new rows" in capsys.readouterr().err
    assert run("score", "m.vicinal", "new.csv", "--fdr", "2") == USAGE
    assert "expected a number between 0 and 1, got '2'" in capsys.readouterr().err
    assert run("learn", "features.csv", "--method", "lca-gauss", "-q", "-o", "g.vicinal") == OK
    capsys.readouterr()
    assert scored(capsys, "g.vicinal", "new.csv", "--explain")["why"].notna().any()


@pytest.mark.parametrize("method", ["lca-gauss", "manifold-parzen", pytest.param("local-lca", marks=pytest.mark.slow)])
def test_score_explains_by_densities_whose_kernels_moved_or_differ(table, capsys, method):
    """Training rows of LocalLCA, whose kernels are at the means of vicinities, were taken for new rows."""
    table[FEATURES].to_csv("features.csv", index=False)
    assert run("learn", "features.csv", "--method", method, "-q", "-o", "m.vicinal") == OK
    own = scored(capsys, "m.vicinal", "--training", "--explain", "--level", "0.1")
    assert own["why"].isna().tolist() == (own["outlier"] == 0).tolist()
    same = scored(capsys, "m.vicinal", "features.csv", "--explain", "--level", "0.1")
    pd.testing.assert_frame_equal(same, own)
    detector = vicinal.DensityOutlierDetector.from_density(model_io.load("m.vicinal")[1:], contamination=0.1)
    first = int(np.flatnonzero(own["outlier"])[0])
    assert own["why"][first] == "; ".join(detector.explain(None, rows=[first]).reasons(0))


def test_scores_of_detectors_and_weighted_densities_made_in_python(table, capsys):
    X = table[FEATURES]
    X.to_csv("features.csv", index=False)
    new = X + 0.5 * X.std().to_numpy() * np.random.default_rng(1).normal(size=X.shape)
    new.to_csv("new.csv", index=False)
    detectors = {
        "plain": vicinal.DensityOutlierDetector(vicinal.ParzenWindows(0.5), contamination=0.1).fit(X),
        "from a pipeline": vicinal.DensityOutlierDetector.from_density(
            make_pipeline(StandardScaler(), vicinal.LCA()).fit(X), contamination=0.1
        ),
    }
    for name, detector in detectors.items():
        model_io.save(detector, f"{name}.vicinal")
        scores = scored(capsys, f"{name}.vicinal", "new.csv")
        np.testing.assert_allclose(scores["p_value"], detector.p_values(new), rtol=1e-9)
        np.testing.assert_array_equal(scores["outlier"], detector.predict(new) == -1)
        own = scored(capsys, f"{name}.vicinal", "features.csv")
        np.testing.assert_allclose(own["p_value"], detector.training_p_values_, rtol=1e-9)
        assert run("score", f"{name}.vicinal", "new.csv", "--level", "0.1", "-q") == OK
        capsys.readouterr()
        assert run("score", f"{name}.vicinal", "new.csv", "--level", "0.2", "-q") == USAGE
        assert "--level: the model is a DensityOutlierDetector" in capsys.readouterr().err

    scaler = StandardScaler().fit(X)
    last = vicinal.DensityOutlierDetector(vicinal.ParzenWindows(0.5)).fit(scaler.transform(X))
    model_io.save(Pipeline([("scale", scaler), ("detector", last)]), "last.vicinal")
    np.testing.assert_allclose(
        scored(capsys, "last.vicinal", "new.csv")["p_value"], last.p_values(scaler.transform(new)), rtol=1e-9
    )

    # The weights of a density count in the ranks: the command used to count rows.
    weight = np.linspace(0.1, 3.0, len(X))
    density = vicinal.ParzenWindows("scott").fit(X, sample_weight=weight)
    model_io.save(density, "weighted.vicinal")
    expected = vicinal.DensityOutlierDetector(vicinal.ParzenWindows("scott")).fit(X, sample_weight=weight)
    np.testing.assert_allclose(
        scored(capsys, "weighted.vicinal", "new.csv")["p_value"], expected.p_values(new), rtol=1e-9
    )
    np.testing.assert_allclose(
        scored(capsys, "weighted.vicinal", "--training")["p_value"], expected.training_p_values_, rtol=1e-9
    )


def test_a_density_that_keeps_no_rows_is_explained(table, capsys):
    model_io.save(make_pipeline(StandardScaler(), GaussianMixture()).fit(table[FEATURES]), "gauss.vicinal")
    assert run("score", "gauss.vicinal", "table.csv") == FIT
    assert "the training rows cannot be scored without themselves" in capsys.readouterr().err


def test_a_target_that_cannot_be_used_is_told_in_the_words_of_the_command(table, capsys):
    table.assign(one="a").to_csv("one.csv", index=False)
    assert run("compare", "one.csv", "--target", "one", "--task", "classes") == DATA
    assert "y holds only one class, 'a'" in (err := capsys.readouterr().err)
    assert "Leave y out. (In the command: y is --target.)" in err
    assert run("compare", "table.csv", "--target", "hue", "--task", "classes") == DATA
    err = capsys.readouterr().err
    assert "y is continuous: " in err
    assert "Leave task out to predict them as numbers" in err
    assert "or leave y out to compare densities. (In the command: y is --target.)" in err


def test_names_that_clash(table, capsys):
    table.assign(row=1).to_csv("clash.csv", index=False)
    assert run("learn", "table.csv", "--method", "parzen", "--drop", "kind", "-o", "m.vicinal", "-q") == OK
    assert run("score", "m.vicinal", "clash.csv", "--keep", "row", "-q") == USAGE
    assert "--keep row" in capsys.readouterr().err


def test_a_missing_package_names_its_extra(table):
    code = "import sys; sys.modules['pandas'] = None; from vicinal.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, "compare", "table.csv"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 7
    assert "pip install 'vicinal[app]'" in done.stderr


def test_a_fault_of_ours_is_told_apart(table, capsys, monkeypatch):
    monkeypatch.setattr("vicinal._files.TableFile.read", lambda *_: 1 / 0)
    assert run("learn", "table.csv", "--method", "lca", "-o", "m.vicinal") == BUG
    assert "an unexpected ZeroDivisionError" in capsys.readouterr().err


# -- through the installed entry point


def test_help_is_light():
    """`--help` must not import what a command needs, so that it is immediate."""
    code = "import sys, vicinal.cli\ntry: vicinal.cli.main(['--help'])\nexcept SystemExit: pass\nprint([m for m in ('numpy', 'sklearn', 'pandas', 'scipy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    done = command("--help")
    assert done.returncode == OK
    assert b"Exit codes" in done.stdout


def test_python_m_vicinal_is_the_command():
    done = subprocess.run([sys.executable, "-m", "vicinal", "--help"], capture_output=True, check=True)
    assert done.stdout == command("--help").stdout


@pytest.mark.slow
def test_a_million_rows_on_stdin(table):
    assert run("learn", "table.csv", "--method", "rca", "--target", "kind", "-o", "m.vicinal", "-q") == OK
    line = "1500.5,0.003,-0.2\n"
    data = ("length,width,hue\n" + line * 1_000_000).encode()
    done = command("transform", "m.vicinal", "-", "-o", "out.npy", input=data)
    assert done.returncode == OK, done.stderr
    assert b"wrote 1,000,000 rows" in done.stderr
    images = np.load("out.npy", mmap_mode="r")
    assert images.shape == (1_000_000, 3)
    expected = model_io.load("m.vicinal").transform(pd.DataFrame([[1500.5, 0.003, -0.2]], columns=FEATURES))
    np.testing.assert_allclose(images[[0, -1]], np.repeat(expected, 2, axis=0), rtol=1e-9)


def test_a_reader_that_leaves_early_is_no_error(table):
    pd.concat([table[FEATURES]] * 100).to_csv("long.csv", index=False)  # more than a pipe holds
    assert run("learn", "table.csv", "--method", "rca", "--target", "kind", "-o", "m.vicinal", "-q") == OK
    process = subprocess.Popen(
        [COMMAND, "transform", "m.vicinal", "long.csv", "-q"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout.readline().startswith(b"rca0,")
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=60) == BROKEN_PIPE
    assert err == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_on_stdout(table):
    assert run("learn", "table.csv", "--method", "rca", "--target", "kind", "-o", "m.vicinal", "-q") == OK
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [COMMAND, "transform", "m.vicinal", "table.csv"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == OUTPUT
    assert b"No space left" in done.stderr
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


@pytest.mark.parametrize(
    "ending", ["csv", *(pytest.param(ending, marks=pytest.mark.slow) for ending in ("parquet", "npz"))]
)
def test_a_full_disk_leaves_the_old_file(table, ending):
    """A limit on the size of files simulates a disk that becomes full."""
    resource = needs("resource")  # which Windows does not have
    assert run("learn", "table.csv", "--method", "rca", "--target", "kind", "-o", "m.vicinal", "-q") == OK
    out = Path(f"out.{ending}")
    out.write_bytes(b"the old content")

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

    done = command("transform", "m.vicinal", "table.csv", "-o", out, preexec_fn=limit)
    assert done.returncode == OUTPUT, done.stderr
    assert b"cannot write" in done.stderr
    assert b"Traceback" not in done.stderr
    assert out.read_bytes() == b"the old content"
    assert sorted(path.name for path in Path().iterdir()) == ["m.vicinal", out.name, "table.csv"]


@pytest.mark.skipif(
    not Path("/proc/version").exists(), reason="needs a folder in which nobody can write, root included"
)
def test_unwritable_output(table, capsys):
    learn = ["learn", "table.csv", "--method", "rca", "--target", "kind", "-o", "/proc/model.vicinal", "-q"]
    assert run(*learn) == OUTPUT
    said = capsys.readouterr().err
    assert "cannot write /proc/" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, INTERRUPTED), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_an_interruption_ends_without_a_trace(folder, number, code):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(600, 12)), columns=[f"x{i}" for i in range(12)])
    frame["y"] = rng.integers(5, size=600)
    frame.to_csv("big.csv", index=False)
    Path("m.vicinal").write_bytes(b"the old content")
    process = subprocess.Popen(
        [COMMAND, "learn", "big.csv", "--method", "nca", "--target", "y", "--set", "init=identity", "--set", "verbose=1", "--set", "max_iter=100000", "--set", "tol=0", "-o", "m.vicinal"],
        stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    while process.stderr.readline().startswith("[..."):  # a sign of life, on a slow machine
        pass
    # The first pass is done: the fit is under way.
    time.sleep(0.2)
    process.send_signal(number)
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=60) == code
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("vicinal: error: ")
    # The best model so far is there; it once said "kept", and wrote nothing.
    assert "this is the best model so far; the fit was not completed." in err
    assert not model_io.load("m.vicinal")[-1].converged_
    assert sorted(path.name for path in Path().iterdir()) == ["big.csv", "m.vicinal"]


def test_decimal_commas_and_marks_for_missing_values(folder, capsys):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(40, 2)), columns=["a", "b"]).round(3)
    frame.to_csv("comma.csv", index=False, sep=";", decimal=",")
    assert run("learn", "comma.csv", "--sep", ";", "--method", "parzen", "-o", "m.vicinal") == DATA
    said = capsys.readouterr().err
    assert "can be read with --decimal ," in said
    assert "--one-hot" not in said  # the wrong advice
    learn = ["learn", "comma.csv", "--sep", ";", "--decimal", ",", "--method", "parzen", "--no-scale"]
    assert run(*learn, "-o", "m.vicinal", "-q") == OK
    # Rounded columns get noise of one step.
    np.testing.assert_allclose(model_io.load("m.vicinal")[-1].mixture_.centres, frame.to_numpy(), rtol=0, atol=5e-4)

    marked = frame.astype(object)
    marked.iloc[3, 0], marked.iloc[5, 0] = "?", "-99"
    marked.to_csv("marked.csv", index=False)
    assert run("learn", "marked.csv", "--method", "parzen", "-o", "m.vicinal") == OK
    err = capsys.readouterr().err
    assert "row 3 holds '?'" in err
    assert "Pass --na '?' if '?' means a missing value." in err
    marks = ["--na", "?", "--na", "-99"]
    assert run("learn", "marked.csv", *marks, "--method", "parzen", "-o", "m.vicinal") == DATA
    assert "2 missing values in 2 rows of 40 ('a': 2)" in capsys.readouterr().err
    assert run("learn", "marked.csv", *marks, "--missing", "drop", "--method", "parzen", "-o", "m.vicinal", "-q") == OK
    assert len(model_io.load("m.vicinal")[-1].mixture_.centres) == 38


def test_columns_that_look_like_identifiers_are_mentioned(folder, capsys):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(30, 2)), columns=["x", "y"])
    frame["customer"] = 5000 + rng.permutation(30)
    frame["order_id"] = rng.choice(10**6, size=30, replace=False)
    frame["width"] = rng.choice(10**6, size=30, replace=False)  # "id" inside a word is no id
    frame.to_csv("t.csv", index=False)
    assert run("learn", "t.csv", "--method", "parzen", "-o", "m.vicinal") == OK
    assert "they identify or number the rows: identifier: 'customer', 'order_id'" in capsys.readouterr().err
    assert list(model_io.load("m.vicinal").feature_names_in_) == ["x", "y", "width"]


def test_numbers_that_cannot_be_squared_name_their_column(table, capsys):
    table.assign(length=1e200 * table["length"]).to_csv("huge.csv", index=False)
    assert run("learn", "huge.csv", "--method", "lca", "--drop", "kind", "-o", "m.vicinal") == DATA
    err = capsys.readouterr().err
    assert "numbers too large to square in 'length (" in err
    assert "overflow encountered" not in err
    assert run("learn", "table.csv", "--method", "lca", "--drop", "kind", "-o", "m.vicinal", "-q") == OK
    assert run("score", "m.vicinal", "huge.csv") == DATA
    assert "numbers too large to square in 'length (" in capsys.readouterr().err


def test_unseen_categories_are_said(table, capsys):
    assert run("learn", "table.csv", "--one-hot", "--target", "kind", "--method", "rca", "-o", "m", "-q") == OK
    table.assign(colour=table["colour"].replace("red", "mauve")).to_csv("new.csv", index=False)
    assert run("transform", "m", "new.csv") == OK
    captured = capsys.readouterr()
    number = int((table["colour"] == "red").sum())
    assert f"'colour' holds values that the model was not fitted on, in {number} rows: 'mauve'" in captured.err
    assert run("transform", "m", "table.csv") == OK
    assert "not fitted on" not in capsys.readouterr().err


def test_advice_fits_the_command(table, capsys):
    assert run("learn", "table.csv", "--method", "lca", "--drop", "kind", "-o", "m.vicinal", "-q") == OK
    table.rename(columns={"hue": "HUE"}).to_csv("upper.csv", index=False)
    assert run("score", "m.vicinal", "upper.csv") == DATA
    assert "lacks 1 column of the model: 'hue'. Did you mean 'HUE'?" in capsys.readouterr().err
    table.assign(hue=table["hue"].where(table.index > 2)).to_csv("gaps.csv", index=False)
    assert run("score", "m.vicinal", "gaps.csv") == OK
    assert "3 rows with missing values, scored by the known values." in capsys.readouterr().err
    assert run("transform", "m.vicinal", "gaps.csv") == DATA
    err = capsys.readouterr().err
    assert "Pass --missing drop to leave those rows out." in err
    assert "--drop the" not in err  # transform has no --drop


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_model_is_no_device(table, capsys):
    assert run("learn", "table.csv", "--method", "parzen", "--drop", "kind", "-o", "/dev/full") == OUTPUT
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "vicinal: error: cannot write '/dev/full': it is not a regular file, and would be replaced by one."


def test_json_has_the_digits_of_csv(table, capsys):
    assert run("learn", "table.csv", "--method", "lca", "--drop", "kind", "-o", "m.vicinal", "-q") == OK
    assert run("transform", "m.vicinal", "table.csv", "--keep", "name,hue", "-o", "z.csv", "-q") == OK
    assert run("transform", "m.vicinal", "table.csv", "--keep", "name,hue", "--json", "-q") == OK
    records = pd.DataFrame(json.loads(capsys.readouterr().out))
    pd.testing.assert_frame_equal(records, pd.read_csv("z.csv"), rtol=1e-15)


def test_compare_ends_its_verdict_with_the_next_command(table, capsys):
    table["both"] = table["length"] - 1000.0 * table["hue"]
    table.to_csv("my table.csv", index=False)
    line = [
        "compare",
        "my table.csv",
        "--drop",
        "name,both",
        "--type",
        "hue=continuous",
        "--target",
        "kind",
        "--methods",
        "z-scored,rca",
    ]
    assert run(*line, "-q") == OK
    said = capsys.readouterr().out.split("\n\n")[1]
    assert said == (
        "Next: vicinal compare 'my table.csv' --target kind --drop name,both --type hue=continuous --methods z-scored,rca --report report.html"
    )
    assert run(*shlex.split(said.removeprefix("Next: vicinal ")), "-q") == OK
    assert "\n\nNext: open report.html in a browser.\n\n" in capsys.readouterr().out
    rng = np.random.default_rng(0)
    kind, nuisance = rng.integers(3, size=200), 8 * rng.normal(size=200)
    helped = pd.DataFrame({"a": 1.5 * kind + 0.3 * rng.normal(size=200) + nuisance, "b": nuisance, "kind": kind})
    helped.to_csv("helped.csv", index=False)
    assert run("compare", "helped.csv", "--target", "kind", "--methods", "z-scored,rca", "-q") == OK
    said = capsys.readouterr().out.split("\n\n")[1]
    assert said == "Next: vicinal learn helped.csv --method rca --target kind -o model.vicinal"
    assert run(*shlex.split(said.removeprefix("Next: vicinal ")), "-q") == OK


def test_a_numeric_target_is_compared(table, capsys):
    arguments = [
        "compare",
        "table.csv",
        "--target",
        "hue",
        "--drop",
        "kind",
        "--methods",
        "z-scored,rca",
        "--repeats",
        "1",
    ]
    assert run(*arguments, "--json", "-q") == OK
    found = json.loads(capsys.readouterr().out)
    assert found["task"] == "numbers"
    assert set(found["metrics"][0]["intervals"]) == {"r2", "mean_error"}


# -- outputs are never inputs


def commands():
    """The parser of each command."""
    (action,) = (action for action in make_parser()._actions if isinstance(action, argparse._SubParsersAction))
    return action.choices


# What an argument may stand for when it is free text and not a path.
TEXTS = {"COL", "COLS", "COL=KIND", "NAME", "NAMES", "NAME=VALUE", "CHAR", "TEXT", "N", "ADDRESS", "DIR"}


def test_every_argument_that_may_be_a_path_is_an_input_or_an_output():
    for parser in commands().values():
        free = [a for a in parser._actions if a.nargs != 0 and a.choices is None and a.type is None]
        assert {action.metavar for action in free} <= TEXTS


def link_to(original, name):
    os.symlink(original, name)
    return name


def hard_link_to(original, name):
    os.link(original, name)
    return name


# The names of the input and of the output, given the absolute path of an input named "a.csv".
SPELLINGS = {
    "the same": lambda path: ("a.csv", "a.csv"),
    "a dot": lambda path: ("a.csv", "./a.csv"),
    "absolute": lambda path: ("a.csv", str(path)),
    "up and down": lambda path: (str(path), os.path.join("..", path.parent.name, "a.csv")),
    "the output is a link": lambda path: ("a.csv", link_to("a.csv", "b.csv")),
    "the input is a link": lambda path: (link_to("a.csv", "b.csv"), "a.csv"),
    "two links": lambda path: (link_to("a.csv", "b.csv"), link_to("b.csv", "c.csv")),
    "a linked folder": lambda path: ("a.csv", os.path.join(link_to(path.parent, "here"), "a.csv")),
    "hard links": lambda path: ("a.csv", hard_link_to("a.csv", "b.csv")),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_output_that_is_an_input_is_refused_and_nothing_is_lost(folder, capsys, spelling):
    """The input is no table, so a command that opened it before rejecting it would end with the exit code of bad data."""
    path = folder / "a.csv"
    path.write_bytes(b"precious")
    given, written = SPELLINGS[spelling](path)
    before = sorted(folder.rglob("*"))
    assert run("learn", given, "--method", "lca", "-o", written) == USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    (message,) = captured.err.splitlines()
    assert message.startswith(f"vicinal: error: -o {written} is the same file as DATA {given}: every output needs")
    assert sorted(folder.rglob("*")) == before
    assert path.read_bytes() == b"precious"


def test_two_outputs_that_are_the_same_file_are_refused(folder, capsys):
    for name in ("x.npy", "p.csv"):
        Path(name).touch()
    assert run("adapt", "x.npy", "--pairs", "p.csv", "-o", "new", "--report", "./new") == USAGE
    assert "--report ./new is the same file as -o new" in capsys.readouterr().err
    assert run("adapt", "x.npy", "--pairs", "p.csv", "-o", "new", "--report", "p.csv") == USAGE
    assert "--report p.csv is the same file as --pairs p.csv" in capsys.readouterr().err


def test_files_that_do_not_exist_yet_are_told_apart_by_where_they_would_be(folder):
    Path("real").mkdir()
    link_to("real", "linked")
    link_to(os.path.join("real", "new.csv"), "dangling.csv")
    for first, second in (
        ("real/new.csv", "linked/new.csv"),
        ("real/new.csv", "dangling.csv"),
        ("linked/../new.csv", "new.csv"),
        ("no/such/folder/new.csv", "./no/such/folder/new.csv"),
    ):
        assert same_file(first, second)
        assert same_file(second, first)
    assert not same_file("real/new.csv", "linked/other.csv")
    assert not same_file("real/new.csv", "new.csv")


def test_a_new_output_in_a_linked_folder(table, capsys):
    """An output beside the data is written through a link; an output at the place of missing data is rejected."""
    link_to(".", "linked")
    assert run("learn", "table.csv", "--method", "parzen", "--drop", "kind", "-o", "linked/m.vicinal", "-q") == OK
    assert run("inspect", "m.vicinal") == OK
    capsys.readouterr()
    assert run("transform", "m.vicinal", "missing.csv", "-o", "linked/missing.csv") == USAGE
    assert "-o linked/missing.csv is the same file as DATA missing.csv" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/null").exists(), reason="needs /dev/null")
def test_a_device_may_be_read_and_written(folder, capsys):
    assert run("compare", "/dev/null", "--format", "csv", "--report", "/dev/null") == DATA
    assert "/dev/null is empty" in capsys.readouterr().err


WRITING = {
    "learn": "learn table.csv --method parzen --drop kind -o old.vicinal",
    "transform": "transform m.vicinal table.csv -o old.csv",
    "score": "score m.vicinal table.csv -o old.parquet",
    "outliers": "outliers table.csv -o old.csv",
    "neighbors": "neighbors m.vicinal table.csv -o old.npz",
    "compare": "compare table.csv --target kind --methods euclidean,parzen-scott --repeats 1 --report old.html",
    "report": "report m.vicinal table.csv -o page.html",
    "adapt": "adapt rows.npy --pairs alike.csv --methods rca -o old.vicinal",
}


def write_rows_that_are_alike():
    """Vectors of which each successive pair agrees in some columns and differs strongly in the others."""
    rng = np.random.default_rng(0)
    same, noise = np.repeat(rng.normal(size=(60, 6)), 2, axis=0), 3.0 * rng.normal(size=(120, 6))
    np.save("rows.npy", np.hstack([same, noise]))
    pd.DataFrame(np.arange(120).reshape(60, 2), columns=["a", "b"]).to_csv("alike.csv", index=False)


def test_every_command_that_writes_is_interrupted_below():
    writing = {
        name: [
            action
            for action in parser._actions
            if isinstance(action.type, type) and issubclass(action.type, OutputPath)
        ]
        for name, parser in commands().items()
    }
    assert {name for name, outputs in writing.items() if outputs} == {*WRITING}


@pytest.mark.parametrize(
    ("error", "code"), [(OSError(errno.ENOSPC, "No space left on device"), OUTPUT), (KeyboardInterrupt(), INTERRUPTED)]
)
@pytest.mark.parametrize("name", WRITING)
def test_a_write_that_fails_at_the_end_leaves_the_old_output(table, monkeypatch, name, error, code):
    learn = ["learn", "table.csv", "--method", "lca", "--set", "reg=0.1", "--drop", "kind", "-o", "m.vicinal", "-q"]
    assert run(*learn) == OK
    write_rows_that_are_alike()
    old = Path(WRITING[name].split()[-1])
    old.write_bytes(b"the old content")
    before = sorted(Path().rglob("*"))

    def fail(*_):
        raise error

    monkeypatch.setattr(os, "replace", fail)
    assert run(*WRITING[name].split(), "-q") == code
    assert old.read_bytes() == b"the old content"
    # What is done of a comparison is kept for --resume; nothing else is left.
    assert sorted(Path().rglob("*")) == sorted([*before, *([Path("old.html.partial")] if name == "compare" else [])])


def test_learn_that_cannot_be_fitted_says_how_parameters_are_set(table, capsys):
    learn = ["learn", "table.csv", "--drop", "kind", "-o", "m.vicinal", "--method", "manifold-parzen"]
    assert run(*learn, "--set", "n_neighbors=300", "--set", "n_components=2") == FIT
    said = capsys.readouterr().err
    assert "ManifoldParzen: n_neighbors=300 needs at least 301 training rows, got 120." in said
    assert "The command sets parameters with --set NAME=VALUE." in said


def test_a_misspelt_column_suggests_only_columns_that_are_missing(table, capsys):
    assert run("learn", "table.csv", "--method", "lca", "--drop", "kind", "-o", "m.vicinal", "-q") == OK
    table.rename(columns={"length": "lenght"}).to_csv("wrong.csv", index=False)
    assert run("score", "m.vicinal", "wrong.csv") == DATA
    assert "lacks 1 column of the model: 'length'. Did you mean 'lenght'?" in capsys.readouterr().err
    more = table.assign(lengths=table["hue"] ** 3)
    more.to_csv("more.csv", index=False)
    assert run("learn", "more.csv", "--method", "lca", "--drop", "kind", "-o", "m.vicinal", "-q") == OK
    more.drop(columns="length").to_csv("wrong.csv", index=False)
    assert run("score", "m.vicinal", "wrong.csv") == DATA
    assert "Did you mean" not in capsys.readouterr().err  # 'lengths' is a column of the model itself
    assert run("learn", "table.csv", "--method", "lca", "--drop", "kind,kinds", "-o", "m.vicinal") == DATA
    assert "Did you mean" not in capsys.readouterr().err


@pytest.mark.parametrize("sep", [",", ";", "\t", "|"])
def test_the_separator_is_found(table, sep, capsys):
    text = table.assign(name=[f"a, b; {i}" for i in range(120)])  # texts that hold other separators
    text.to_csv("other.csv", sep=sep, index=False)
    assert run("learn", "other.csv", "--method", "lca", "--drop", "kind", "-o", "m.vicinal") == OK
    said = capsys.readouterr().err
    assert "learned lca from 120 rows and 4 columns" in said
    assert (f"the columns of other.csv are separated by {sep!r}." in said) == (sep != ",")
    report = ["--report", "r.html", "--target", "kind", "--methods", "euclidean,rca", "--repeats", "1", "-q"]
    assert run("compare", "other.csv", *report) == OK
    assert "table = read_table('other.csv')" in Path("r.html").read_text().replace("&#39;", "'")


def test_text_is_written_as_it_was_read_unless_a_spreadsheet_would_evaluate_it(table, capsys):
    table["name"] = ["=1+1", "+cmd", "-2+3", "@SUM(A1)", "\tx", "plain", *(f"row{i}" for i in range(114))]
    table.rename(columns={"colour": "=colour"}).to_csv("table.csv", index=False)
    assert run("learn", "table.csv", "--method", "lca", "--drop", "kind", "-o", "m.vicinal", "-q") == OK
    assert run("transform", "m.vicinal", "table.csv", "--keep", "name,=colour", "-o", "out.csv", "-q") == OK
    found = pd.read_csv("out.csv")
    assert list(found["name"]) == list(table["name"])
    assert "=colour" in found.columns
    keep = ["--keep", "name,=colour", "--spreadsheet", "-q"]
    assert run("transform", "m.vicinal", "table.csv", *keep, "-o", "out.csv") == OK
    found = pd.read_csv("out.csv")
    assert list(found["name"][:6]) == ["'=1+1", "'+cmd", "'-2+3", "'@SUM(A1)", "'\tx", "plain"]
    assert "'=colour" in found.columns
    assert found["lca0"].dtype == float
    assert (found["lca0"] < 0).any()  # numbers keep their minus
    assert run("transform", "m.vicinal", "table.csv", "--keep", "name", "-o", "out.parquet", "-q") == OK
    assert pd.read_parquet("out.parquet")["name"][0] == "=1+1"  # not a spreadsheet's format
    capsys.readouterr()
    assert run("transform", "m.vicinal", "table.csv", *keep) == OK
    assert capsys.readouterr().out == Path("out.csv").read_text()


def test_many_columns_are_refused_before_they_are_read(folder, capsys, monkeypatch):
    monkeypatch.setattr("vicinal.cli.learn._MOST_COLUMNS", 20)
    rng = np.random.default_rng(0)
    wide = pd.DataFrame(rng.normal(size=(30, 21)), columns=[f"c{i}" for i in range(21)])
    wide.to_csv("wide.csv", index=False)
    wide.to_parquet("wide.parquet")
    with open("wide.csv", "a") as file:
        file.write("1,2,3\n" * 3 + "not a table\0")  # what follows the header is not looked at
    for name in ("wide.csv", "wide.parquet"):
        assert run("learn", name, "--method", "lca", "-o", "m.vicinal") == DATA
        assert (
            "has 21 columns: lca learns a coefficient for each pair of columns, and supports at most 20 columns. Choose some with --columns"
            in (capsys.readouterr().err)
        )
    wide.to_csv("wide.csv", index=False)
    for name in ("wide.csv", "wide.parquet"):
        assert run("learn", name, "--method", "lca", "--columns", "c3,c1", "--columns", "c7", "-o", "m.vicinal") == OK
        assert "3 columns" in capsys.readouterr().err
    assert run("inspect", "m.vicinal", "--json") == OK
    assert "c3" in capsys.readouterr().out
    assert run("learn", "wide.csv", "--method", "lca", "--columns", "c3,c99", "-o", "m.vicinal") == DATA
    assert "--columns: there is no column 'c99'." in capsys.readouterr().err


def test_a_wrong_path_is_told_before_anything_heavy_is_imported(folder):
    code = "import sys; from vicinal.cli import main; code = main(sys.argv[1:]); print(code, 'numpy' in sys.modules)"
    for code_of, arguments in (
        (DATA, ["learn", "no.csv", "--method", "lca", "-o", "m"]),
        (MODEL, ["score", "no.v", "a"]),
    ):
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
        assert re.search(r"cannot (read|load) no\.", done.stderr)
        assert done.stdout == f"{code_of} False\n"


def test_a_workbook_is_read(table, capsys):
    needs("openpyxl")
    with pd.ExcelWriter("book.xlsx") as book:
        table.to_excel(book, sheet_name="first", index=False)
        table.iloc[:50].to_excel(book, sheet_name="second", index=False)
    assert run("learn", "book.xlsx", "--method", "lca", "--drop", "kind", "-o", "m.vicinal") == OK
    assert "from 120 rows and 4 columns" in capsys.readouterr().err
    assert run("learn", "book.xlsx", "--array", "second", "--method", "lca", "--drop", "kind", "-o", "m.vicinal") == OK
    assert "from 50 rows" in capsys.readouterr().err
    assert run("learn", "book.xlsx", "--array", "third", "--method", "lca", "-o", "m.vicinal") == DATA
    assert "cannot read book.xlsx as a workbook: Worksheet named 'third' not found" in capsys.readouterr().err
    Path("bad.xlsx").write_bytes(b"PK no")
    assert run("learn", "bad.xlsx", "--method", "lca", "-o", "m.vicinal") == DATA


def test_a_report_of_a_model(table, capsys):
    methods = {"lca": ["--drop", "kind", "--set", "reg=0.1"], "rca": ["--target", "kind"], "parzen": ["--drop", "kind"]}
    for method, options in methods.items():
        assert run("learn", "table.csv", "--method", method, *options, "-o", "m.vicinal", "-q") == OK
        assert (
            run("report", "m.vicinal", "table.csv", "--target", "kind", "--id", "name", "-o", "r.html", "--json") == OK
        )
        said = capsys.readouterr()
        assert "warning" not in said.err
        summary = json.loads(said.out)
        page = Path("r.html").read_text()
        assert "does not show whether the model helps" in page
        assert ("The rows, before and after" in page) == (method != "parzen")
        assert "How to read the intervals" not in page
        if method == "rca":
            assert summary["outliers"] is None
            continue
        # The unusual rows are those of `vicinal score`.
        assert run("score", "m.vicinal", "table.csv", "-o", "s.csv", "-q") == OK
        scores = pd.read_csv("s.csv")
        assert summary["outliers"]["flagged"] == scores["outlier"].sum()
        for row in summary["outliers"]["rows"]:
            assert row["row"] == f"row{row['position']}"
            assert row["log_density"] == pytest.approx(scores["log_density"][row["position"]], rel=1e-4)
            assert row["p_value"] == pytest.approx(scores["p_value"][row["position"]], rel=1e-4)
            assert row["why"]
    assert run("report", "m.vicinal", "table.csv", "-o", "table.csv") == USAGE
    assert run("report", "m.vicinal", "table.csv", "--target", "knd", "-o", "r.html") == DATA
    assert run("transform", "m.vicinal", "table.csv", "-o", "rows.jsonl") == USAGE


def test_a_report_leaves_rows_without_a_target_out_if_told_to(table, capsys):
    assert run("learn", "table.csv", "--method", "rca", "--target", "kind", "-o", "m.vicinal", "-q") == OK
    table["kind"] = table["kind"].where(np.arange(120) != 7)
    table.to_csv("gap.csv", index=False)
    report = ["report", "m.vicinal", "gap.csv", "--target", "kind", "-o", "r.html", "--json"]
    assert run(*report) == DATA
    assert "--target: 1 row without a value of 'kind'. Pass --missing drop" in capsys.readouterr().err
    assert run(*report, "--missing", "drop") == OK
    views = json.loads(capsys.readouterr().out)["views"]
    assert views["rows"] == [str(i) for i in range(120) if i != 7]
    assert views["values"][7] == [pytest.approx(x, rel=1e-3) for x in table[FEATURES].iloc[8]]


def test_json_lines_are_read_and_workbooks_written(table, capsys):
    needs("openpyxl")
    table.to_json("table.jsonl", orient="records", lines=True, double_precision=15)
    for source in ("table.csv", "table.jsonl"):
        assert run("learn", source, "--method", "rca", "--target", "kind", "-o", "m.vicinal", "-q") == OK
        assert run("transform", "m.vicinal", source, "-o", "book.xlsx", "-q") == OK
        images = model_io.load("m.vicinal").transform(table[FEATURES])
        np.testing.assert_allclose(pd.read_excel("book.xlsx").to_numpy(dtype=float)[:, -3:], images, rtol=1e-6)
    assert (
        run("compare", "table.jsonl", "--target", "kind", "--methods", "z-scored,rca", "--report", "r.html", "-q") == OK
    )
    assert "table = read_table(&#39;table.jsonl&#39;" in Path("r.html").read_text()
    Path("bad.jsonl").write_text('{"a": 1}\n{"a": ')
    assert run("learn", "bad.jsonl", "--method", "lca", "-o", "m.vicinal") == DATA
    assert "bad.jsonl" in capsys.readouterr().err


def test_a_workbook_without_openpyxl_names_the_extra(table, capsys, monkeypatch):
    Path("book.xlsx").write_bytes(b"PK")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    for arguments in (["inspect", "book.xlsx"], ["outliers", "table.csv", "-o", "book.xlsx"]):
        assert run(*arguments) == 7
        error = capsys.readouterr().err.splitlines()[-1]
        assert "'openpyxl'" in error
        assert error.endswith("pip install 'vicinal[app]'")


def test_dates_are_shown_as_dates_in_ranges_and_reasons(folder, capsys):
    rng = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=200, freq="12h")
    load = np.arange(200) + rng.normal(size=200)
    pd.DataFrame({"day": days, "load": load, "heat": load + rng.normal(size=200)}).to_csv("days.csv", index=False)
    assert run("inspect", "days.csv") == OK
    assert "2024-01-01 to 2024-04-09 12:00" in capsys.readouterr().out
    table = pd.read_csv("days.csv").drop(index=[100, 101])
    table.to_csv("train.csv", index=False)
    assert run("learn", "train.csv", "--method", "lca", "-o", "m.vicinal", "-q") == OK
    pd.DataFrame({"day": ["2024-02-20 12:00:00"], "load": [1.0], "heat": [1.0]}).to_csv("new.csv", index=False)
    assert run("score", "m.vicinal", "new.csv", "--explain") == OK
    [line] = csv.DictReader(io.StringIO(capsys.readouterr().out))
    expected = re.fullmatch(r"day: expected (.*) to (.*), got 2024-02-20 12:00", line["why"].split("; ")[0])
    assert expected is not None, line["why"]
    assert (
        pd.Timestamp("2024-01-01")
        <= pd.Timestamp(expected[1])
        <= pd.Timestamp(expected[2])
        < pd.Timestamp("2024-01-10")
    )


def test_only_gaps_of_rows_that_are_kept_are_said_to_be_filled_in(table, capsys):
    table = table.assign(kind=table["kind"].astype(object))
    table.loc[[3, 4], "length"] = np.nan
    table.loc[[4, 5], "kind"] = np.nan
    table.to_csv("gaps.csv", index=False)
    assert (
        run("learn", "gaps.csv", "--method", "rca", "--target", "kind", "--missing", "impute", "-o", "m.vicinal") == OK
    )
    said = capsys.readouterr().err
    assert "left out 2 rows of 120 with missing values." in said
    assert "1 missing value in 1 row of 120 ('length': 1) are filled in" in said


def test_none_is_a_value_if_asked_for(folder, capsys):
    rng = np.random.default_rng(0)
    size, garage = rng.normal(size=60), rng.choice(["None", "one", "two"], 60)
    pd.DataFrame({"size": size, "garage": garage}).to_csv("homes.csv", index=False)
    line = ["compare", "homes.csv", "--target", "garage", "--methods", "z-scored,rca", "--repeats", 1]
    assert run(*line, "-q") == DATA
    assert run(*line, "--not-na", "None", "--json", "-q") == OK
    found = json.loads(capsys.readouterr().out)
    assert found["classes"] == ["None", "one", "two"]
    assert found["n_rows"] == 60


def test_a_row_with_a_gap_changes_no_other_row_and_is_ranked_by_what_is_known(table, capsys):
    """One missing value in the table used to change the p-values of all rows, and rows with two had a p-value of 1."""
    assert (
        run(
            "learn",
            "table.csv",
            "--method",
            "lca",
            "--drop",
            "kind,colour",
            "--set",
            "reg=0.1",
            "-o",
            "m.vicinal",
            "-q",
        )
        == OK
    )
    new = table.iloc[:20].copy()
    new[FEATURES] += 1e-9 * new[FEATURES].std()  # rows that the model has not seen
    new.to_csv("whole.csv", index=False)
    assert run("score", "m.vicinal", "whole.csv", "-o", "whole_scores.csv", "-q") == OK
    gaps = new.copy()
    gaps.loc[3, "hue"] = np.nan
    gaps.loc[5, ["hue", "width"]] = np.nan
    gaps.loc[7, ["hue", "width"]] = np.nan
    gaps.loc[7, "length"] = 1e6
    gaps.to_csv("gaps.csv", index=False)
    assert run("score", "m.vicinal", "gaps.csv", "--missing", "marginalise", "-o", "scores.csv", "-q") == OK
    whole, scores = pd.read_csv("whole_scores.csv"), pd.read_csv("scores.csv")
    others = np.setdiff1d(np.arange(20), [3, 5, 7])
    pd.testing.assert_frame_equal(scores.iloc[others], whole.iloc[others])
    assert scores["outlier"][7] == 1
    assert scores["p_value"][7] == pytest.approx(1 / 121)
    # By hand: the rank among the training rows in the column that is known, each without itself.
    pipeline = model_io.load("m.vicinal")
    scaled = pipeline[:-1].transform(table[FEATURES])
    marginal = pipeline[-1].marginal([0])
    of_training = marginal.left_out_score_samples()
    mine = marginal.score_samples(np.asarray(scaled)[5:6, :1])
    assert scores["p_value"][5] == pytest.approx((1 + (of_training <= mine).sum()) / 121, abs=0.02)
    scale = table["length"].std(ddof=0)
    assert scores["log_density"][5] == pytest.approx(float(mine[0]) - np.log(scale), rel=1e-5)


@pytest.mark.parametrize(
    ("method", "missing"),
    [
        ("parzen", "marginalise"),
        ("lca", "impute"),
        pytest.param("lca-gauss", "marginalise", marks=pytest.mark.slow),
        pytest.param("lca", "marginalise", marks=pytest.mark.slow),
        pytest.param("lca-gauss", "impute", marks=pytest.mark.slow),
    ],
)
def test_training_rows_with_gaps_are_known_again(table, capsys, method, missing):
    """Training rows used to be scored as new rows, each with its own kernel in the density."""
    table["steps"] = np.random.default_rng(1).poisson(3.0, size=120)  # a rounded column, whose noise depends on the row
    rng = np.random.default_rng(0)
    for name in (*FEATURES, "steps"):
        table[name] = table[name].where(rng.random(120) > 0.1)
    table.loc[5, [*FEATURES, "steps"]] = [9_999.0, np.nan, -9.0, 30.0]
    table.to_csv("table.csv", index=False)
    gaps = table[[*FEATURES, "steps"]].isna().any(axis=1).to_numpy()
    assert gaps.sum() > 20
    learn = ["learn", "table.csv", "--method", method, "--drop", "kind", "--missing", missing, "-o", "m.vicinal", "-q"]
    assert run(*learn) == OK
    capsys.readouterr()
    score = ["score", "m.vicinal", "table.csv", "--missing", missing, "--level", "0.02"]
    assert run(*score, "-o", "scores.csv") == OK
    assert "120 rows of 120 equal a training row exactly" in capsys.readouterr().err
    assert run("score", "m.vicinal", "--training", "--level", "0.02", "-o", "training.csv", "-q") == OK
    scores, training = pd.read_csv("scores.csv"), pd.read_csv("training.csv")
    pd.testing.assert_frame_equal(scores, training)
    assert scores["outlier"][5] == 1
    # The strangest of n rows has the p-value 1/n; as a new row it would lie on itself. Rows that lack its columns are not compared.
    columns = [name for name in (*FEATURES, "steps") if not np.isnan(table.loc[5, name])]
    n_compared = table[columns].notna().all(axis=1).sum()
    assert n_compared < 100
    assert scores["p_value"][5] == pytest.approx(1 / n_compared, rel=1e-9)
    assert run(*score, "--as-new", "-o", "new.csv", "-q") == OK
    new = pd.read_csv("new.csv")
    assert (new["log_density"] != scores["log_density"]).mean() > 0.9
    assert new["p_value"][5] != scores["p_value"][5]
    if missing == "marginalise" and method != "lca-gauss":
        # By hand: the density of what is known, in the units of the table, under the mixture of the other rows.
        pipeline = model_io.load("m.vicinal")
        known = pipeline[-1].score_samples(None)
        log_scale = np.log(pipeline["scale"].scale_)
        unknown = table[list(pipeline[:-1].get_feature_names_out())].isna().to_numpy()
        expected = known - (~unknown) @ log_scale
        np.testing.assert_allclose(scores["log_density"][gaps], expected[gaps], rtol=1e-6, atol=1e-6)


def test_gaps_in_a_column_that_a_density_does_not_see_cost_no_row(table, capsys):
    """A boolean column with gaps made `learn --method lca` reject the table, and --missing drop left out rows that it could use."""
    rng = np.random.default_rng(0)
    table["ok"] = np.where(rng.random(120) < 0.3, np.nan, rng.integers(2, size=120))
    table.to_csv("table.csv", index=False)
    learn = ["learn", "table.csv", "--drop", "kind,colour", "-o", "m.vicinal"]
    for more in ([], ["--missing", "drop"]):
        assert run(*learn, "--method", "manifold-parzen", *more) == OK
        said = capsys.readouterr().err
        assert "learned manifold-parzen from 120 rows and 3 columns" in said
        assert "missing" not in said
    assert run("score", "m.vicinal", "table.csv", "-q") == OK
    assert len(pd.read_csv(io.StringIO(capsys.readouterr().out))) == 120
    assert run("learn", "table.csv", "--method", "rca", "--target", "kind", "-o", "m.vicinal") == DATA  # which sees it


@pytest.mark.parametrize("missing", ["marginalise", pytest.param("impute", marks=pytest.mark.slow)])
def test_rows_with_gaps_are_explained_by_what_is_known_of_them(table, capsys, missing):
    """--explain failed on a new row with a gap, and named values of training rows that were filled in, or had noise on them."""
    rng = np.random.default_rng(0)
    table["steps"] = rng.poisson(3.0, size=120)
    for name in FEATURES:
        table[name] = table[name].where(rng.random(120) > 0.1)
    table.loc[5, ["length", "width", "hue", "steps"]] = [1000.0, np.nan, 0.0, 40]
    table.to_csv("table.csv", index=False)
    new = table.iloc[[5]].assign(length=[500.0], steps=60)
    new.to_csv("new.csv", index=False)
    learn = [
        "learn",
        "table.csv",
        "--method",
        "parzen",
        "--drop",
        "kind",
        "--missing",
        missing,
        "-o",
        "m.vicinal",
        "-q",
    ]
    assert run(*learn) == OK
    for data, got in (["new.csv"], 60), (["table.csv"], 40), (["--training"], 40):
        more = [] if data == ["--training"] else ["--missing", missing]
        assert run("score", "m.vicinal", *data, *more, "--explain", "--level", "0.05", "-o", "scores.csv", "-q") == OK
        why = pd.read_csv("scores.csv", dtype={"why": str})["why"].fillna("")
        reason = why[0 if data == ["new.csv"] else 5]
        assert re.match(rf"steps: expected [-0-9.]+ to [-0-9.]+, got {got}($|;)", reason), reason
        assert "width" not in reason
    # A plane shows rows as the model fills them in; of a model that does not, it cannot show them.
    report = ["report", "m.vicinal", "table.csv", "-o", "r.html"]
    assert run(*report) == (OK if missing == "impute" else DATA)
    assert (
        "are shown as the model fills them in." if missing == "impute" else "--missing drop"
    ) in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["marginalise", "impute"])
def test_scores_of_rows_with_gaps_are_those_of_score_rows(folder, missing):
    """The scale of missing columns was counted twice where a model fills in, and their steps counted into a probability."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.poisson(5.0, size=90), "b": 10.0 * rng.poisson(8.0, size=90)})
    table = table.where(rng.random(table.shape) > 0.1)
    table.to_csv("t.csv", index=False)
    new = pd.DataFrame({"a": [4.0, np.nan, 6.0, np.nan], "b": [70.0, 80.0, np.nan, np.nan]})
    new.to_csv("new.csv", index=False)
    assert run("learn", "t.csv", "--method", "parzen", "--missing", missing, "-o", "m.vicinal", "-q") == OK
    assert run("score", "m.vicinal", "new.csv", "--missing", missing, "--as-new", "-o", "s.csv", "-q") == OK
    scores, model = pd.read_csv("s.csv"), model_io.load("m.vicinal")
    np.testing.assert_allclose(scores["log_density"], vicinal.tables.score_rows(model, new), rtol=1e-6, atol=1e-9)
    gaps = new.isna().to_numpy()
    steps = scores["log_probability"] - scores["log_density"]
    np.testing.assert_allclose(steps, ~gaps @ np.log([1.0, 10.0]), atol=1e-6)
    assert run("score", "m.vicinal", "--training", "-o", "t_scores.csv", "-q") == OK
    scores = pd.read_csv("t_scores.csv")
    steps = scores["log_probability"] - scores["log_density"]
    np.testing.assert_allclose(steps, table.notna().to_numpy() @ np.log([1.0, 10.0]), atol=1e-6)


def test_columns_that_repeat_their_values_are_kept_out_and_columns_that_follow_from_others_are_told(table, capsys):
    """`learn` used to report neither."""
    rng = np.random.default_rng(2)
    table["rain"] = np.where(rng.random(120) < 0.4, 0.0, rng.gamma(2.0, size=120))
    table["sum"] = table["length"] + 3.0 * table["hue"]
    table.to_csv("table.csv", index=False)
    learn = ["learn", "table.csv", "--method", "lca", "--drop", "kind,colour", "-o", "m.vicinal"]
    assert run(*learn) == OK
    said = capsys.readouterr().err
    share = round(100 * (1 - table["rain"].nunique() / 120))
    assert (
        f"made arbitrarily high: 'rain' ({share} % of the rows). Pass --type rain=continuous to include such a column."
        in said
    )
    assert "linear combinations of other columns: sum. The rows span 3 of 4 dimensions" in said.replace("'", "")
    assert "--drop sum to leave it out." in said
    headline = said.splitlines()[-1]
    assert "learned lca from 120 rows and 4 columns" in headline
    assert "rain (tied)" in headline
    assert "colour" not in headline
    assert headline.replace("'", "").endswith("Linear combinations of others: sum.")
    assert run(*learn, "--json", "-q") == OK
    summary = json.loads(capsys.readouterr().out)
    assert summary["unused"]["rain"] == "tied"
    assert summary["dependent"] == ["sum"]
    assert run(*learn, "--type", "rain=continuous") == OK
    assert "learned lca from 120 rows and 5 columns" in capsys.readouterr().err
    assert run("learn", "table.csv", "--method", "lca", "--columns", "rain", "-o", "m.vicinal") == DATA
    assert "--type COL=continuous" in capsys.readouterr().err
    assert run("learn", "table.csv", "--method", "rca", "--target", "kind", "-o", "m.vicinal") == OK
    assert "5 columns" in capsys.readouterr().err  # metrics from labels see it


def test_messages_of_a_comparison_name_the_options_of_the_command(table, capsys):
    small = ["--methods", "euclidean,rca", "--repeats", "1", "--report", "r.html"]
    assert run("compare", "table.csv", "--methods", "rca") == DATA
    assert "metrics need y, and no density was requested. (In the command: y is --target.)" in capsys.readouterr().err
    assert run("compare", "table.csv", "--target", "hue", "--methods", "lda", "--task", "numbers") == DATA
    assert "metrics must be among euclidean," in capsys.readouterr().err
    Path("r.html.partial").write_text('{"what": "vicinal comparison", "version": "0", "digest": "x"}\n')
    assert run("compare", "table.csv", "--target", "kind", *small, "--resume") == DATA
    said = capsys.readouterr().err
    assert "keep: r.html.partial belongs to a comparison of other rows" in said
    assert "(In the command: keep is --resume.)" in said
    assert run("compare", "table.csv", "--target", "kind", *small, "--fast") == OK
    assert "Leave fast" not in capsys.readouterr().out + Path("r.html").read_text()


def test_learn_pairs_without_a_header_are_all_read(table, capsys):
    learn = ["learn", "table.csv", "--method", "rca", "--drop", "kind", "-o", "m.vicinal"]
    X = table[FEATURES]
    expected = vicinal.RCA().fit((X - X.mean()) / X.std(ddof=0), [[0, 1], [3, 4]]).components_
    Path("numbers.csv").write_text("0,1\n3,4\n")
    Path("names.csv").write_text("row0,row1\nrow3,row4\n")
    for pairs in (["numbers.csv"], ["names.csv", "--id", "name"]):
        assert run(*learn, "--pairs", *pairs) == OK
        assert f"the first line of {pairs[0]} is a pair and is read as data" in capsys.readouterr().err
        np.testing.assert_allclose(model_io.load("m.vicinal")[-1].components_, expected, rtol=1e-9)


def test_pairs_of_ids_below_the_names_that_pandas_writes_are_all_read(table, capsys):
    """The columns of a table without names are 0 and 1 in a file of pandas, which are no pair unless they are ids."""
    learn = ["learn", "table.csv", "--method", "rca", "--drop", "kind", "-o", "m.vicinal", "--id", "name"]
    pd.DataFrame([["row0", "row1"], ["row3", "row4"]]).to_csv("pairs.csv", index=False)
    assert run(*learn, "--pairs", "pairs.csv") == OK
    assert "is a pair" not in capsys.readouterr().err
    table.assign(name=np.arange(120)).to_csv("table.csv", index=False)
    pd.DataFrame([[5, 1], [3, 4]]).to_csv("pairs.csv", index=False, header=["0", "1"])
    assert run(*learn, "--pairs", "pairs.csv") == OK
    assert "the first line of pairs.csv is a pair and is read as data" in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ["nosuch", "hex", "idna", "undefined"])
def test_unknown_encoding_is_a_failure_of_usage(table, capsys, encoding):
    arguments = ["learn", "table.csv", "--method", "parzen", "--drop", "kind", "-o", "m.vicinal"]
    assert run(*arguments, "--encoding", encoding) == USAGE
    assert f"--encoding {encoding} is not an encoding that Python supports" in capsys.readouterr().err


def test_report_of_equal_rows_is_written_and_of_one_class_is_refused(table, capsys):
    assert run("learn", "table.csv", "--method", "rca", "--target", "kind", "-o", "m.vicinal", "-q") == OK
    table.iloc[[0] * 20].to_csv("equal.csv", index=False)
    assert run("report", "m.vicinal", "equal.csv", "-o", "r.html", "-q") == OK
    table.assign(kind="a").to_csv("one.csv", index=False)
    capsys.readouterr()
    assert run("report", "m.vicinal", "one.csv", "--target", "kind", "-o", "r.html", "-q") == DATA
    assert "one.csv: y holds only one class, 'a'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "values",
    [[b"\xff", b"\xfe"] * 60, [[float(i % 2)] * (i % 3) for i in range(120)], [{"u": i % 2} for i in range(120)]],
    ids=["binary", "list", "struct"],
)
def test_parquet_columns_that_are_neither_numbers_nor_text_are_read_as_text(table, capsys, values):
    columns = {name: pa.array(table[name]) for name in FEATURES}
    pq.write_table(pa.table({**columns, "extra": pa.array(values)}), "t.parquet")
    assert run("learn", "t.parquet", "--method", "parzen", "-o", "m.vicinal", "-q") == OK
    for output in ("s.csv", "s.parquet"):
        assert run("score", "m.vicinal", "t.parquet", "--keep", "extra", "-o", output, "-q") == OK
    assert run("score", "m.vicinal", "t.parquet", "--keep", "extra", "--json", "-q") == OK
    assert run("learn", "t.parquet", "--method", "rca", "--target", "extra", "-o", "m.vicinal", "-q") == OK
    assert run("report", "m.vicinal", "t.parquet", "--target", "extra", "--id", "extra", "-o", "r.html", "-q") == OK


def test_failures_about_a_table_name_its_file(table, capsys):
    table.assign(width=table["width"].mask(table.index < 3, np.inf)).to_csv("infinite.csv", index=False)
    learn = ["learn", "--method", "rca", "-o", "m.vicinal", "-q"]
    assert run(*learn, "infinite.csv", "--target", "kind") == DATA
    assert "error: infinite.csv: infinite values in" in capsys.readouterr().err
    assert run(*learn, "table.csv", "--target", "nothing") == DATA
    assert "error: table.csv: --target: there is no column 'nothing'" in capsys.readouterr().err
    assert run(*learn, "table.csv", "--target", "kind") == OK
    assert run("neighbors", "m.vicinal", "table.csv", "--query", "infinite.csv", "-o", "n.csv") == DATA
    assert "error: infinite.csv: " in capsys.readouterr().err


def test_learn_interrupted_before_the_first_pass_writes_nothing(table, capsys, monkeypatch):
    def interrupt(*_, **__):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(vicinal.RCA, "fit", interrupt)
    assert run("learn", "table.csv", "--method", "rca", "--target", "kind", "-o", "m.vicinal") == INTERRUPTED
    assert "nothing was written to m.vicinal." in capsys.readouterr().err
    assert not Path("m.vicinal").exists()


def test_an_interruption_that_compiled_code_loses_ends_the_command_at_its_next_step(table, capsys, monkeypatch):
    """A run on a million rows went on for half an hour."""

    def fit(*args, **more):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        return fit_prepared(*args, **more)

    monkeypatch.setattr("vicinal.cli.outliers.fit_prepared", fit)
    monkeypatch.setattr(
        "vicinal.cli.outliers.DensityOutlierDetector.from_density", lambda *_, **__: pytest.fail("went on")
    )
    assert run("outliers", "table.csv", "--drop", "kind", "-o", "o.csv") == 143
    assert capsys.readouterr().err.splitlines()[-1] == "vicinal: error: terminated."
    assert not Path("o.csv").exists()


COMPARE = ["compare", "table.csv", "--target", "kind", "--methods", "z-scored,rca", "--repeats", "1", "--folds", "3"]


def test_compare_without_resume_starts_again_and_keeps_files_of_others(table, capsys):
    assert run(*COMPARE, "--report", "r.html", "--resume") == USAGE  # there is nothing to continue from
    assert run(*COMPARE, "--resume") == USAGE
    Path("r.html.partial").write_text("my notes")
    assert run(*COMPARE, "--report", "r.html", "-q") == OUTPUT
    assert Path("r.html.partial").read_text() == "my notes"
    for left in (b"", b'{"what": "vici'):  # of a process that was killed
        Path("r.html.partial").write_bytes(left)
        assert run(*COMPARE, "--report", "r.html", "-q") == OK
        assert not Path("r.html.partial").exists()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL")
def test_compare_after_a_kill_continues_with_the_same_result(table, capsys):
    """`kill -9` gives a process no time to clean up."""
    waits = """
import sys, time
from vicinal._compare.kept import KeptOutcomes
from vicinal.cli import main

add = KeptOutcomes.add

def add_and_wait(self, kind, name, fold, outcome):
    add(self, kind, name, fold, outcome)
    if fold == 1:
        print("kept", flush=True)
        time.sleep(600)

KeptOutcomes.add = add_and_wait
main(sys.argv[1:])
"""
    arguments = [*COMPARE, "--json", "--report", "r.html"]
    process = subprocess.Popen([sys.executable, "-c", waits, *arguments], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"kept\n"
    process.kill()
    process.communicate()
    assert Path("r.html.partial").exists()
    assert not Path("r.html").exists()
    results = []
    for more in (["--resume"], []):
        assert run(*arguments, *more, "-q") == OK
        results.append(json.loads(capsys.readouterr().out))
        assert not Path("r.html.partial").exists()
    for name in ("metrics", "densities"):
        mine, other = ([{**method, "seconds": 0} for method in result[name]] for result in results)
        assert mine == other


def test_help_and_documentation_list_all_exit_codes(capsys):
    assert run("--help") == OK
    listed = capsys.readouterr().out.partition("Exit codes:")[2]
    page = (Path(__file__).parents[1] / "docs" / "command.md").read_text(encoding="utf-8").partition("| code |")[2]
    documented = {
        int(code) for codes in re.findall(r"^\| ([\d, ]+) \|", page, re.MULTILINE) for code in codes.split(",")
    }
    assert {int(code) for code in re.findall(r"^ +(\d+) ", listed, re.MULTILINE)} == documented == set(MEANINGS)


# -- outliers ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def odd_rows(folder):
    """400 ordinary rows, of which one has a wrong value and two have gaps."""
    rng = np.random.default_rng(0)
    price = np.exp(rng.normal(9.0, 0.5, 400)).round(2)
    table = pd.DataFrame(
        {
            "name": [f"r{i}" for i in range(400)],
            "price": price,
            "carat": (price / 9000 + rng.normal(0, 0.05, 400)).round(2),
        }
    )
    table["depth"] = rng.normal(61.0, 1.4, 400).round(1)
    table.loc[5, "carat"] = 17.5
    table.loc[9, "carat"] = np.nan
    table.loc[10, "depth"] = np.nan
    table.to_csv("rows.csv", index=False)
    return table


def test_outliers_goes_from_a_table_to_explained_rows(odd_rows, capsys):
    assert run("outliers", "rows.csv", "--keep", "name", "-o", "out.csv") == OK
    assert "3 outliers in 400 rows, flagged at p <= 0.01." in capsys.readouterr().err
    found = pd.read_csv("out.csv")
    assert list(found.columns) == ["name", "row", "score", "p_value", "outlier", "log_density", "why"]
    assert found["row"][0] == 5
    assert found["name"][0] == "r5"
    assert re.fullmatch(r"carat: expected \d+\.\d\d to \d+\.\d\d, got 17\.50", found["why"][0])
    assert len(found) == 3
    assert found["p_value"].is_monotonic_increasing
    assert run("outliers", "rows.csv", "--top", "7", "--method", "lca", "-o", "top.csv", "-q") == OK
    top = pd.read_csv("top.csv")
    assert len(top) == 7
    assert top["why"].notna().all()
    assert run("outliers", "rows.csv", "--all", "-o", "all.csv", "-q") == OK
    assert len(pd.read_csv("all.csv")) == 400


def test_score_writes_the_rows_that_are_asked_for(odd_rows, capsys):
    assert run("learn", "rows.csv", "--method", "parzen", "--missing", "marginalise", "-o", "m.vicinal", "-q") == OK
    assert run("score", "m.vicinal", "rows.csv", "-o", "all.csv", "-q") == OK
    scores = pd.read_csv("all.csv")
    np.testing.assert_array_equal(scores["outlier"], scores["p_value"] <= 0.01)
    assert (scores["p_value"][[9, 10]] > 0.01).all()
    assert run("score", "m.vicinal", "rows.csv", "--sort", "-o", "sorted.csv", "-q") == OK
    in_order = pd.read_csv("sorted.csv")
    assert in_order["score"].is_monotonic_increasing
    assert in_order["p_value"].is_monotonic_increasing
    assert run("score", "m.vicinal", "rows.csv", "--only-outliers", "--level", "0.05", "-o", "some.csv") == OK
    assert "outliers in 400 rows, flagged at p <= 0.05." in capsys.readouterr().err
    assert 18 <= len(pd.read_csv("some.csv")) <= 20
    assert run("score", "m.vicinal", "rows.csv", "--top", "3", "--explain", "-o", "top.csv", "-q") == OK
    top = pd.read_csv("top.csv")
    assert top["row"].tolist() == in_order["row"][:3].tolist()
    assert top["why"].notna().all()


def test_few_rows_are_told_that_no_p_value_is_so_small(odd_rows, capsys):
    odd_rows[20:60].to_csv("few.csv", index=False)
    assert run("outliers", "few.csv", "-o", "out.csv") == OK
    said = capsys.readouterr().err
    assert "0 outliers in 40 rows, flagged at p <= 0.01; the smallest p-value among 40 training rows is 0.025" in said
    assert len(pd.read_csv("out.csv")) == 0


def test_the_error_about_missing_values_offers_to_learn_from_the_known_ones(odd_rows, capsys):
    assert run("learn", "rows.csv", "--method", "parzen", "-o", "m.vicinal") == DATA
    assert "Pass --missing marginalise to learn densities from the known values" in capsys.readouterr().err


def test_rows_that_were_filled_in_are_not_flagged_for_it(folder, capsys):
    """Two clusters and an independent column: the ten rows with gaps had the ten smallest p-values, and that column was blamed."""
    rng = np.random.default_rng(1)
    side = rng.integers(0, 2, size=300) * 12.0
    table = pd.DataFrame(
        {"a": side + rng.normal(size=300), "b": side + rng.normal(size=300), "c": rng.normal(size=300)}
    )
    table.loc[:9, ["a", "b"]] = np.nan
    table.to_csv("t.csv", index=False)
    for missing in ("impute", "marginalise"):
        assert run("learn", "t.csv", "--method", "parzen", "--missing", missing, "-o", "m.vicinal", "-q") == OK
        assert run("score", "m.vicinal", "--training", "-o", "s.csv", "-q") == OK
        p_values = pd.read_csv("s.csv")["p_value"]
        assert p_values[:10].median() > 0.2
        assert p_values[:10].min() > 0.01


def test_score_uses_the_scores_of_the_training_rows_in_the_model_file(odd_rows, capsys, monkeypatch):
    assert run("learn", "rows.csv", "--method", "parzen", "--missing", "drop", "-o", "m.vicinal", "-q") == OK
    model_io.save(model_io.load("m.vicinal"), "alone.vicinal")  # without them
    scores = ["--missing", "drop", "--explain", "--level", "0.03", "-o"]
    monkeypatch.setattr("vicinal.cli.models._SLOW_TO_RANK", 300)
    assert run("score", "alone.vicinal", "rows.csv", *scores, "alone.csv") == OK
    assert run("score", "alone.vicinal", "--training", "-o", "alone-training.csv") == OK
    assert run("score", "alone.vicinal", "rows.csv", "--as-new", *scores, "alone-new.csv") == OK
    assert "score first ranks the 398 training rows, each without itself" in capsys.readouterr().err
    monkeypatch.setattr(
        "vicinal.DensityOutlierDetector.from_density", lambda *args, **more: pytest.fail("ranked again")
    )
    assert run("score", "m.vicinal", "rows.csv", *scores, "scores.csv") == OK
    assert run("score", "m.vicinal", "--training", "-o", "training.csv") == OK
    assert run("score", "m.vicinal", "rows.csv", "--as-new", *scores, "new.csv") == OK
    assert "first ranks" not in capsys.readouterr().err
    for name in ("scores.csv", "training.csv", "new.csv"):
        alone = {"scores.csv": "alone.csv"}.get(name, f"alone-{name}")
        assert Path(name).read_text() == Path(alone).read_text()
    described = model_io.describe("m.vicinal")
    assert described["class"] == "sklearn.Pipeline"
    assert {name: described[name] for name in ("class", "parameters", "attributes")} == {
        name: model_io.describe("alone.vicinal")[name] for name in ("class", "parameters", "attributes")
    }


def test_a_model_of_a_stochastic_fit_is_saved_without_scores_of_its_training_rows(folder, monkeypatch):
    pd.DataFrame(np.random.default_rng(0).normal(size=(300, 2)), columns=["a", "b"]).to_csv("t.csv", index=False)
    monkeypatch.setattr("vicinal.DensityOutlierDetector.from_density", lambda *args, **more: pytest.fail("ranked"))
    learn = [
        "learn",
        "t.csv",
        "--method",
        "lca",
        "--set",
        "reg=0.1",
        "--set",
        "solver=stochastic",
        "-o",
        "m.vicinal",
        "-q",
    ]
    assert run(*learn) == OK


def test_compare_names_the_task_numbers_for_a_target_without_repetitions(folder, capsys):
    rng = np.random.default_rng(0)
    pd.DataFrame({"a": rng.normal(size=60), "y": np.arange(1, 61)}).to_csv("t.csv", index=False)
    assert run("compare", "t.csv", "--target", "y", "-q") == DATA
    assert (
        "it looks like an identifier, not a class. Pass task='numbers' if it holds numbers" in capsys.readouterr().err
    )


def test_outliers_explains_the_most_unusual_rows_first_and_no_more_than_are_read(folder, capsys, monkeypatch):
    pd.DataFrame(np.random.default_rng(0).normal(size=(600, 2)), columns=["a", "b"]).to_csv("t.csv", index=False)
    assert run("outliers", "t.csv", "--level", "0.05", "-o", "all.csv", "-q") == OK
    every = pd.read_csv("all.csv")
    assert every["why"].notna().all()
    monkeypatch.setattr("vicinal.cli.score._MOST_EXPLAINED", 7)
    monkeypatch.setattr("vicinal.cli.score._EXPLAINED_AT_ONCE", 3)
    assert run("outliers", "t.csv", "--level", "0.05", "-o", "few.csv") == OK
    assert f"the reasons of the 7 most unusual of {len(every)} outliers are given" in capsys.readouterr().err
    few = pd.read_csv("few.csv")
    assert few["why"][:7].tolist() == every["why"][:7].tolist()
    assert few["why"][7:].isna().all()
    pd.testing.assert_frame_equal(few.drop(columns="why"), every.drop(columns="why"))
    assert run("outliers", "t.csv", "--level", "0.05", "--top", str(len(every)), "-o", "top.csv", "-q") == OK
    assert pd.read_csv("top.csv")["why"].tolist() == every["why"].tolist()


def test_columns_are_used_alike_whatever_the_size_of_the_file(folder, monkeypatch):
    rng = np.random.default_rng(0)
    kind = rng.choice(["red", "green", "blue"], 300)
    table = pd.DataFrame(
        {"a": rng.normal(size=300) + (kind == "red"), "b": np.round(rng.normal(size=300), 1), "kind": kind}
    )
    table.to_csv("t.csv", index=False)
    outputs = []
    for size in (64 << 20, 1000):  # bytes of a table that is read at once
        monkeypatch.setattr("vicinal._files.table_file.LARGE", size)
        monkeypatch.setattr("vicinal._files.table_file.BATCH_VALUES", 240)
        assert run("outliers", "t.csv", "--all", "-o", "outliers.csv", "-q") == OK
        assert run("learn", "t.csv", "--method", "lca", "--set", "reg=0.1", "-o", "m.vicinal", "-q") == OK
        assert run("score", "m.vicinal", "t.csv", "-o", "scores.csv", "-q") == OK
        outputs.append([Path(name).read_text() for name in ("outliers.csv", "scores.csv")])
        assert model_io.describe("m.vicinal")["arrays"]["density_.steps.0.1._sources"]["shape"] == (3,)
    assert outputs[0] == outputs[1]


def test_a_report_of_a_model_names_levels_beside_the_shares_of_numbers_and_shows_dates(folder, capsys):
    rng = np.random.default_rng(0)
    days = pd.Series(pd.date_range("2020-01-01", periods=80, freq="9D").strftime("%Y-%m-%d")).sample(
        frac=1, random_state=0
    )
    kind = rng.choice(["red", "blue"], 80)
    table = pd.DataFrame({"kind": kind, "a": rng.normal(size=80) + (kind == "red"), "day": days.to_numpy()})
    table.to_csv("t.csv", index=False)
    assert run("learn", "t.csv", "--method", "lca", "--set", "reg=0.1", "-o", "m.vicinal", "-q") == OK
    assert run("report", "m.vicinal", "t.csv", "-o", "r.html", "--json", "-q") == OK
    summary = json.loads(capsys.readouterr().out)
    assert {column["name"] for column in summary["metric"]["relevance"]} == {"a", "day"}
    assert summary["metric"]["levels"] == ["kind"]
    first = dict(zip(summary["views"]["columns"], summary["views"]["values"][0], strict=True))
    assert (first["kind"], first["day"]) == (table["kind"][0], table["day"][0])


def test_a_density_of_quantities_alone_does_not_advise_indicators(folder, capsys):
    rng = np.random.default_rng(0)
    pd.DataFrame({"a": rng.normal(size=60), "b": rng.normal(size=60), "kind": list("xyz") * 20}).to_csv(
        "t.csv", index=False
    )
    assert run("learn", "t.csv", "--method", "manifold-parzen", "-o", "m.vicinal") == OK
    assert "LCA and Parzen windows learn from categories as they are; this density does not." in capsys.readouterr().err
    assert run("learn", "t.csv", "--method", "nca", "--target", "a", "-o", "n.vicinal") == OK
    assert "Pass --one-hot to use categories as 0/1 columns." in capsys.readouterr().err
