"""Regression tests for damaged tables, which used to end in a traceback of another library and exit code 1."""

import gzip
import io
import os
import sys
import warnings
from argparse import Namespace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from fuzz.harness import Case, damaged
from needs import needs

from vicinal._files import FileError
from vicinal.cli import main
from vicinal.cli.console import Console
from vicinal.cli.errors import DATA
from vicinal.cli.results import write_results
from vicinal.cli.tables import TableOptions, read_table


@cache
def whole(ending):
    """A table of numbers, texts and truth values in a format."""
    rng, file = np.random.default_rng(0), io.BytesIO()
    frame = pd.DataFrame({"a": rng.normal(size=30), "b": np.arange(30), "c": list("xyz") * 10, "é": [True, False] * 15})
    numbers = frame[["a", "b"]].to_numpy()
    if ending == "npy":
        np.save(file, numbers)
    elif ending == "record.npy":
        np.save(file, frame[["a", "b"]].to_records(index=False))
    elif ending.endswith("npz"):
        save = np.savez_compressed if ending.startswith("packed") else np.savez
        save(file, X=numbers, names=np.array(["a", "b"]), y=frame["c"].to_numpy(dtype="U1"))
    elif ending == "parquet":
        frame.to_parquet(file)
    elif ending == "xlsx":
        frame.to_excel(file, index=False)
    else:
        text = frame.to_csv(index=False, sep="\t" if ending == "tsv" else ",").encode()
        file.write(gzip.compress(text, mtime=0) if ending.endswith("gz") else text)
    return file.getvalue()


@pytest.mark.parametrize(
    "ending", ["csv", "csv.gz", "tsv", "npy", "npz", "packed.npz", "record.npy", "parquet", "xlsx"]
)
def test_read_table_changed_bytes_a_table_or_one_sentence(ending, tmp_path):
    if ending == "xlsx":
        needs("openpyxl")
    path = tmp_path / f"table.{ending}"
    for number in range(30):
        path.write_bytes(damaged(Case(0, number), whole(ending)))
        failure = frame = None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                frame = read_table(str(path))
        except FileError as error:
            failure = error
        if failure:
            assert path.name in str(failure)
            assert "\n" not in str(failure)
        else:
            assert frame.size
            assert all(isinstance(name, str) for name in frame.columns)


def npy(header):
    """An NPY file with this header."""
    text = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(64)


def zipped(compression):
    """An NPZ file whose entry claims another compression."""
    content = bytearray(whole("npz"))
    for mark, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        at = content.index(mark) + offset
        content[at : at + 2] = compression.to_bytes(2, "little")
    return bytes(content)


def parquet_of_lists():
    return pd.DataFrame({"a": [1.0, 2.0]}).to_parquet()[:-6] + b"\xff\xff\x00PAR1"


@pytest.mark.parametrize(
    ("ending", "content"),
    [
        ("csv.gz", whole("csv.gz")[:40] + bytes(20) + whole("csv.gz")[60:]),
        ("csv.gz", whole("csv.gz")[:100]),
        ("npy", npy("{'descr': '<f8', 'fortran_order': False, 'shape': (8,")),  # TokenError
        ("npy", npy("{'descr': 'O', 'fortran_order': False, 'shape': (8,)}")),
        ("npy", npy("{'descr': 7, 'fortran_order': False, 'shape': (8,)}")),
        ("npy", npy(f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({10**30},)}}")),
        ("npz", zipped(99)),  # NotImplementedError
        ("npz", whole("packed.npz")[:60] + bytes(30) + whole("packed.npz")[90:]),
        ("parquet", parquet_of_lists()),
        ("parquet", b"PAR1"),
    ],
)
def test_damage_is_exit_code_3_and_one_sentence(ending, content, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"table.{ending}").write_bytes(content)
    assert main(["learn", f"table.{ending}", "--method", "parzen", "-o", "m.vicinal"]) == DATA
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"table.{ending}" in said
    assert not (tmp_path / "m.vicinal").exists()


@pytest.mark.parametrize("decimal", [".", ","])
def test_numbers_are_read_to_the_last_bit(decimal, tmp_path):
    """With pandas 2 the last bit could differ, so that `score` treated training rows as new ones."""
    rows = np.random.default_rng(0).normal(size=(300, 2)) * 10.0 ** np.random.default_rng(1).uniform(
        -9, 9, size=(300, 2)
    )
    pd.DataFrame(rows, columns=["a", "b"]).to_csv(tmp_path / "t.csv", index=False, sep=";", decimal=decimal)
    options = TableOptions(sep=";", decimal=decimal)
    np.testing.assert_array_equal(read_table(str(tmp_path / "t.csv"), options).to_numpy(), rows)


def test_names_that_turn_the_text_around_are_escaped(tmp_path, capsys, monkeypatch):
    """In the words of the command and in what it prints; a table keeps them as they are."""
    monkeypatch.chdir(tmp_path)
    name = "a\u202eb\u2028\x1b[2Jc\x85"
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 2)), columns=[name, "b"])
    rows.to_parquet("t.parquet")
    assert main(["learn", "t.parquet", "--method", "parzen", "-o", "m.vicinal"]) == 0
    assert main(["inspect", "m.vicinal"]) == 0
    assert main(["inspect", "m.vicinal", "--json"]) == 0
    assert main(["learn", "t.parquet", "--method", "nca", "--target", name + "x", "-o", "n.vicinal"]) != 0
    said = "".join(capsys.readouterr())
    assert "a\\u202eb\\u2028\\u001b[2Jc\\u0085" in said
    assert not set(said) & set("\u202e\u2028\x1b\x85")


def test_a_name_with_a_line_feed_is_no_line_of_its_own(tmp_path, capsys, monkeypatch):
    """A column could be called ``a\\nvicinal: error: ...`` and pretend to be a message of the command."""
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 2)), columns=["a\nFAKE", "b"])
    table["kind\nFAKE"] = ["x\nFAKE", "y"] * 15
    table.to_parquet("t.parquet")
    assert main(["learn", "t.parquet", "--method", "lca", "--set", "reg=0.1", "-o", "m.vicinal"]) == 0
    assert main(["inspect", "m.vicinal"]) == 0
    assert main(["learn", "t.parquet", "--method", "rca", "--target", "kind\nFAKE", "-o", "m.vicinal"]) == 0
    assert main(["score", "m.vicinal", "t.parquet"]) != 0
    lines = [line for text in capsys.readouterr() for line in text.splitlines()]
    assert sum("\\nFAKE" in line for line in lines) >= 3
    assert not any(line.lstrip().startswith("FAKE") for line in lines)


@pytest.mark.parametrize("terminal", [True, False])
def test_cells_are_escaped_on_a_terminal_and_kept_in_a_pipe(terminal, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    options = {"output": None, "spreadsheet": False, "json": False, "check_interrupted": lambda: None}
    frame = pd.DataFrame({"a\u202e": ["x\x1b[2J", "y"]})
    write_results([frame], "LCA", Namespace(**options), Console(quiet=True))
    said = capsys.readouterr().out
    assert said == ("a\\u202e\nx\\u001b[2J\ny\n" if terminal else "a\u202e\nx\x1b[2J\ny\n")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_file_whose_name_is_not_utf_8_can_be_spoken_of(tmp_path, capsysbinary, monkeypatch):
    """Its name could not be written to the terminal, which was reported as a bug in vicinal."""
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(b"t\xff.csv")
    pd.DataFrame(np.random.default_rng(0).normal(size=(30, 2)), columns=["a", "b"]).to_csv(name, index=False)
    assert main(["learn", name, "--method", "parzen", "-o", os.fsdecode(b"m\xff.vicinal"), "--json"]) == 0
    assert main(["inspect", os.fsdecode(b"m\xff.vicinal")]) == 0
    assert main(["report", os.fsdecode(b"m\xff.vicinal"), name, "-o", "r.html"]) == 0
    assert b"unexpected" not in b"".join(capsysbinary.readouterr())
