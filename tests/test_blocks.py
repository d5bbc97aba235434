"""Test large tables on the command line: they are read and written in blocks, with the results of a table in memory."""

import os
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from needs import needs

from vicinal import RCA, Engine
from vicinal import io as model_io
from vicinal._files import table_file
from vicinal.cli import main
from vicinal.cli.console import Console
from vicinal.cli.tables import TableOptions, blocks, read_table

OK, USAGE, DATA = 0, 2, 3


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments):
    return main(list(map(str, arguments)))


@pytest.fixture
def in_blocks(monkeypatch):
    """A function after which every table is large, and a block has some rows."""

    def patch(values=120):
        monkeypatch.setattr(table_file, "LARGE", 0)
        monkeypatch.setattr(table_file, "BATCH_VALUES", values)

    return patch


@pytest.fixture
def table(folder):
    rng = np.random.default_rng(0)
    kind = rng.integers(2, size=200)
    numbers = rng.normal(size=(200, 3)) * [1000.0, 0.01, 1.0] + np.outer(kind, [2000.0, 0.0, -1.0])
    frame = pd.DataFrame(numbers, columns=["length", "width", "hue"])
    frame.insert(0, "name", [f"row{i}" for i in range(200)])
    frame["colour"], frame["kind"] = rng.choice(["red", "green", "blue"], size=200), np.where(kind, "b", "a")
    frame.loc[190, "hue"] = 40.0
    frame.to_csv("table.csv", index=False)
    frame.to_parquet("table.parquet")
    (folder / "parts").mkdir()
    for place, part in enumerate(np.array_split(np.arange(200), 3)):
        frame.iloc[part].to_parquet(folder / "parts" / f"{place}.parquet")
    return frame


@pytest.fixture
def metric(table):
    """The file of a metric for the table, m.vicinal."""
    model_io.save(RCA().fit(table[["length", "width", "hue"]], table["kind"]), "m.vicinal")


def test_mixed_columns_have_the_types_of_the_whole_file(folder, in_blocks):
    """Block by block, pandas would read numbers where the whole file has text: 1 and "1.0" were two categories."""
    n = 60
    frame = pd.DataFrame(
        {
            "whole": np.arange(n),
            "late fraction": ["7"] * 50 + ["7.5"] * 10,
            "late text": ["1"] * 50 + ["x"] * 10,
            "late gap": ["1"] * 50 + [""] * 10,
            "first gap": [""] * 20 + ["3"] * 40,
            "switch": ["True", "False"] * 30,
            "switch with gaps": ["True", "False"] * 25 + [""] * 10,
            "empty": [""] * n,
        }
    )
    frame.to_csv("mixed.csv", index=False)
    expected = read_table("mixed.csv", TableOptions())
    in_blocks(8 * 7)
    found = [block.table for block in blocks("mixed.csv", TableOptions(), Console(quiet=True))]
    assert len(found) > 5
    pd.testing.assert_frame_equal(pd.concat(found, ignore_index=True), expected)


@pytest.mark.parametrize(
    ("form", "output"),
    [
        ("table.csv", "out.npy"),
        ("table.csv", "-"),
        ("parts", "out.parquet"),
        pytest.param("table.csv", "out.csv", marks=pytest.mark.slow),
        pytest.param("table.parquet", "out.npz", marks=pytest.mark.slow),
        pytest.param("table.parquet", "out.csv.gz", marks=pytest.mark.slow),
    ],
)
def test_transform_in_blocks_writes_the_same_table(form, output, table, metric, in_blocks, capsys):
    keep = [] if output == "out.npy" else ["--keep", "name"]
    capsys.readouterr()
    assert run("transform", "m.vicinal", "table.csv", *keep, "-o", output, "-q") == OK
    expected = capsys.readouterr().out if output == "-" else read_table(output, TableOptions())
    in_blocks()
    assert run("transform", "m.vicinal", form, *keep, "-o", output, "-q") == OK
    found = capsys.readouterr().out if output == "-" else read_table(output, TableOptions())
    if output == "-":
        assert found == expected
    else:
        pd.testing.assert_frame_equal(found, expected)


def test_a_zarr_array_is_a_table(folder, in_blocks, capsys):
    zarr = needs("zarr")
    rows = np.random.default_rng(0).normal(size=(90, 3))
    np.save("rows.npy", rows)
    zarr.create_array("rows.zarr", data=rows, chunks=(25, 3))
    model_io.save(RCA().fit(rows, np.arange(90) % 4), "m.vicinal")
    assert run("transform", "m.vicinal", "rows.npy", "-o", "whole.npy", "-q") == OK
    in_blocks(60)
    assert run("transform", "m.vicinal", "rows.zarr", "-o", "out.npy") == OK
    np.testing.assert_array_equal(np.load("out.npy"), np.load("whole.npy"))
    said = capsys.readouterr().err
    assert said.count("the model has no column names") == 1  # and not for every block
    (folder / "nothing.zarr").mkdir()
    assert run("transform", "m.vicinal", "nothing.zarr", "-o", "out.npy") == DATA
    assert "cannot read nothing.zarr" in capsys.readouterr().err
    assert run("learn", "rows.zarr", "--method", "lca", "--set", "reg=0.1", "-o", "lca.vicinal", "-q") == OK


def test_progress_is_the_share_of_the_table(table, metric, in_blocks, monkeypatch):
    shown = []
    monkeypatch.setattr(
        Console, "_show_progress", lambda self, done, total, text, *more: shown.append((done, total, text))
    )
    in_blocks()
    for form in ("table.csv", "table.parquet", "parts"):
        assert run("transform", "m.vicinal", form, "-o", "out.csv") == OK
        done = [share for share, total, text in shown if text == f"% of {form}: transforming rows"]
        assert len(done) > 2
        assert done == sorted(done)
        assert done[-1] == 100


def test_no_complete_row_is_no_discovery(table, in_blocks, capsys):
    learn = ["learn", "table.csv", "--method", "parzen", "--set", "bandwidth=0.4", "--target", "kind"]
    assert run(*learn, "--max-rows", "50", "-o", "m.vicinal", "-q") == OK
    table["hue"] = np.nan
    table.to_csv("gaps.csv", index=False)
    in_blocks()
    capsys.readouterr()
    assert run("score", "m.vicinal", "gaps.csv", "--fdr", "0.1", "--missing", "drop", "-q") == DATA
    assert "no row is complete" in capsys.readouterr().err


@pytest.mark.parametrize("options", [[], ["--fdr", "0.2"], ["--explain", "--keep", "name"], ["--as-new"], ["--json"]])
def test_score_in_blocks_writes_the_same_table(options, table, in_blocks, capsys):
    learn = ["learn", "table.csv", "--method", "parzen", "--set", "bandwidth=0.4", "--target", "kind"]
    assert run(*learn, "--max-rows", "150", "-o", "m.vicinal", "-q") == OK
    capsys.readouterr()
    assert run("score", "m.vicinal", "table.csv", *options) == OK
    expected = capsys.readouterr()
    in_blocks()
    assert run("score", "m.vicinal", "table.csv", *options) == OK
    found = capsys.readouterr()
    assert found.out == expected.out
    summary = [line for line in expected.err.splitlines() if " outlier" in line]
    assert summary
    assert summary[-1] in found.err


def test_rows_with_gaps_keep_their_numbers(table, metric, in_blocks, capsys):
    table.loc[:25, "hue"] = np.nan  # all rows of the first block, and some of the second
    table.loc[100, "hue"] = np.nan
    table.to_csv("gaps.csv", index=False)
    in_blocks()
    capsys.readouterr()
    assert run("transform", "m.vicinal", "gaps.csv", "-o", "out.csv") == DATA
    assert "Pass --missing drop" in capsys.readouterr().err
    assert run("transform", "m.vicinal", "gaps.csv", "--missing", "drop", "-o", "out.csv") == OK
    assert "rows 100 to 119: left out 1 row" in capsys.readouterr().err
    rows = pd.read_csv("out.csv")["row"]
    assert rows.tolist() == [i for i in range(26, 200) if i != 100]


def test_a_failure_in_a_later_block_leaves_the_old_output(table, metric, in_blocks, capsys):
    table.to_csv("bad.csv", index=False)
    with open("bad.csv", "a") as file:
        file.write("row200,1,2,3,red,a,one too many\n")
    in_blocks()
    for output in ("out.csv", "out.parquet", "out.npy"):
        Path(output).write_text("old")
        assert run("transform", "m.vicinal", "bad.csv", "-o", output, "-q") == DATA
        assert Path(output).read_text() == "old"
    assert "bad.csv is not a table" in capsys.readouterr().err


# -- learn ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["table.csv", "table.parquet", "parts"])
def test_rca_in_blocks_learns_the_same_metric(form, table, in_blocks, capsys):
    learn = ["--method", "rca", "--target", "kind", "--drop", "name,colour", "-q"]
    assert run("learn", "table.csv", *learn, "-o", "whole.vicinal") == OK
    in_blocks()
    assert run("learn", form, *learn, "-o", "blocks.vicinal") == OK
    whole, found = model_io.load("whole.vicinal"), model_io.load("blocks.vicinal")
    np.testing.assert_allclose(found[-1].components_, whole[-1].components_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.transform(table), whole.transform(table), rtol=1e-9, atol=1e-12)


def test_pairs_name_rows_of_all_blocks(table, in_blocks):
    pd.DataFrame({"a": ["row0", "row1", "row150"], "b": ["row199", "row120", "row7"]}).to_csv("pairs.csv", index=False)
    learn = [
        "learn",
        "table.csv",
        "--method",
        "rca",
        "--pairs",
        "pairs.csv",
        "--id",
        "name",
        "--drop",
        "kind,colour",
        "-q",
    ]
    assert run(*learn, "-o", "whole.vicinal") == OK
    in_blocks()
    assert run(*learn, "-o", "blocks.vicinal") == OK
    whole, found = model_io.load("whole.vicinal"), model_io.load("blocks.vicinal")
    np.testing.assert_allclose(found[-1].components_, whole[-1].components_, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["lca", "lca-gauss"])
def test_lca_of_a_large_table_keeps_a_sample_that_fits(folder, in_blocks, capsys, method):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(6_000, 6)) + 5.0 * rng.integers(2, size=(6_000, 1))
    pd.DataFrame(rows, columns=list("abcdef")).to_parquet("rows.parquet")
    in_blocks(8_000)
    learn = ["learn", "rows.parquet", "--method", method, "--set", "solver=stochastic", "--set", "max_iter=2"]
    assert run(*learn, "--memory", "1 MB", "--no-scale", "-o", "m.vicinal") == OK
    most = Engine(memory="1 MB").memory_bytes // (5 * 6 * 8)
    assert f"keeps a random sample of {most:,} of 6,000 rows" in capsys.readouterr().err
    model = model_io.load("m.vicinal")
    assert model[-1].mixture_.centres.shape == (most, 6)
    assert set(map(tuple, model[-1]._training_rows())) <= set(map(tuple, rows))
    assert run("score", "m.vicinal", "rows.parquet", "-o", "scores.npy", "-q") == OK
    assert np.load("scores.npy").shape == (6_000, 5)


@pytest.mark.parametrize("form", ["sorted.csv", "sorted.parquet"])
def test_learn_from_a_sorted_table_in_blocks_kinds_and_model_of_the_whole_table(form, folder, in_blocks, capsys):
    """The kinds of the columns came from the first block: constant, rounded or whole numbers there, and not later."""
    n = 400
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": np.sort(rng.normal(size=n)), "late": np.where(np.arange(n) < 300, 1.0, 2.5)})
    frame["rounded"] = np.where(np.arange(n) < 200, np.round(frame["size"], 1), frame["size"] * 1.01)
    frame["never at first"] = np.where(np.arange(n) < 250, np.nan, rng.normal(size=n))
    frame["text later"] = np.where(np.arange(n) < 350, "3", "x")
    frame["group"] = np.arange(n) // 8 % 5
    frame.to_csv("sorted.csv", index=False)
    frame.to_parquet("sorted.parquet")
    learn = ["learn", form, "--method", "rca", "--target", "group", "--missing", "drop"]
    assert run(*learn, "-o", "whole.vicinal") == OK
    whole_said = capsys.readouterr().err.splitlines()
    in_blocks(6 * 20)
    assert run(*learn, "-o", "blocks.vicinal") == OK
    said = capsys.readouterr().err.splitlines()
    assert said[:-1] == whole_said[:-1]
    whole, found = model_io.load("whole.vicinal"), model_io.load("blocks.vicinal")
    assert {name: str(kind) for name, kind in found[0].types_.items()} == {
        name: str(kind) for name, kind in whole[0].types_.items()
    }
    assert np.array_equal(found[0].get_feature_names_out(), whole[0].get_feature_names_out())
    np.testing.assert_allclose(found[-1].components_, whole[-1].components_, rtol=1e-9)


def test_learn_in_blocks_a_density_with_noise_the_same_model(folder, in_blocks):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=300).round(1), "b": rng.normal(size=300)})
    frame.to_csv("t.csv", index=False)
    learn = ["learn", "t.csv", "--method", "lca", "--set", "reg=0.1", "--set", "solver=em", "-q"]
    assert run(*learn, "-o", "whole.vicinal") == OK
    in_blocks(60)
    assert run(*learn, "-o", "blocks.vicinal") == OK
    whole, found = model_io.load("whole.vicinal"), model_io.load("blocks.vicinal")
    assert [name for name, _ in found.steps] == ["columns", "noise", "scale", "lca"]
    np.testing.assert_allclose(found[-1].components_, whole[-1].components_, rtol=1e-8)
    np.testing.assert_array_equal(found[-1].mixture_.centres, whole[-1].mixture_.centres)


def test_a_large_table_without_labels_or_ids_is_explained(table, in_blocks, capsys):
    in_blocks(8 * 20)
    learn = ["learn", "table.csv", "-o", "m.vicinal"]
    assert run(*learn, "--method", "lca", "--target", "kind") == OK
    assert "lca learns without labels, so the column 'kind' is not used." in capsys.readouterr().err
    assert run(*learn, "--method", "rca", "--target", "kind", "--id", "nope") == DATA
    assert "--id: there is no column 'nope'" in capsys.readouterr().err


def test_a_folder_without_rows_is_refused(table, capsys):
    os.mkdir("rows")
    table.iloc[:0].to_parquet("rows/none.parquet")
    assert run("learn", "rows", "--method", "lca", "-o", "m.vicinal") == DATA
    assert "rows has no rows." in capsys.readouterr().err


def test_max_rows_of_a_large_table_draws_from_all_blocks(table, in_blocks, capsys):
    in_blocks()
    learn = ["learn", "table.csv", "--method", "parzen", "--set", "bandwidth=0.4", "--no-scale", "--drop", "kind"]
    assert run(*learn, "--max-rows", "50", "-o", "m.vicinal") == OK
    assert "random sample of 50 of 200 rows" in capsys.readouterr().err
    lengths = model_io.load("m.vicinal")[-1].mixture_.centres[:, 0]
    places = np.flatnonzero(np.isin(table["length"], lengths))
    assert len(places) == 50
    assert places.max() > 150
    assert run(*learn[:3], "rca", "--pairs", "p.csv", "--max-rows", "50", "-o", "m.vicinal") in (USAGE, DATA)


def test_memory_of_the_command_does_not_grow_with_the_table(folder, monkeypatch):
    rows = np.random.default_rng(0).normal(size=(20_000, 40))
    frame = pd.DataFrame(rows, columns=[f"c{k}" for k in range(40)])
    model_io.save(RCA().fit(frame[:500], np.arange(500) % 3), "m.vicinal")
    frame.to_parquet("rows.parquet")
    monkeypatch.setattr(table_file, "LARGE", 0)
    monkeypatch.setattr(table_file, "BATCH_VALUES", 2**15)  # a twenty-fifth
    del frame
    tracemalloc.start()
    try:
        assert run("transform", "m.vicinal", "rows.parquet", "-o", "out.npy", "-q") == OK
        assert tracemalloc.get_traced_memory()[1] < 0.5 * rows.nbytes
    finally:
        tracemalloc.stop()
    assert np.load("out.npy").shape == rows.shape
