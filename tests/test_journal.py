"""Test that a killed fit continues from its journal with bitwise equal results, repeating at most one pass."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from vicinal import LCA, NCA
from vicinal._app.errors import DATA, INTERRUPTED, OK, OUTPUT, USAGE
from vicinal._journal import Journal, OtherFitError, journaled, keep_journal
from vicinal.cli import main
from vicinal.datasets import make_machine_states

METHODS = {
    "lca": ["--method", "lca", "--drop", "state"],
    "lca, given penalty": ["--method", "lca", "--drop", "state", "--set", "reg=0.1"],
    "lca, stochastic": ["--method", "lca", "--drop", "state", "--set", "reg=0.1", "--set", "solver=stochastic"],
    "lca-gauss": ["--method", "lca-gauss", "--drop", "state"],
    "nca": ["--method", "nca", "--target", "state"],
    "parzen": ["--method", "parzen", "--drop", "state"],
    "manifold-parzen": ["--method", "manifold-parzen", "--drop", "state"],
}
# Fits to rows with gaps once kept nothing.
GAPS = {
    f"{method}, {missing}": ["--method", method, *supervision, "--missing", missing]
    for method, missing, supervision in (
        ("lca", "marginalise", ["--drop", "state"]),
        ("lca-gauss", "marginalise", ["--drop", "state"]),
        ("lca", "impute", ["--drop", "state", "--set", "reg=0.1"]),
        ("rca", "impute", ["--target", "state"]),
    )
}


class Killed(BaseException):
    """Simulates a process that is killed in the middle of a pass."""


def kill():
    raise Killed


def interrupt():
    signal.raise_signal(signal.SIGINT)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y = make_machine_states(60, random_state=3)
    whole = pd.DataFrame(X[:, :3], columns=list("abc"))
    whole.assign(state=y).to_csv("table.csv", index=False)
    gaps = np.random.default_rng(0).random(whole.shape) < 0.1
    whole.mask(gaps).assign(state=y).to_csv("gaps.csv", index=False)
    return tmp_path


@pytest.fixture
def passes(monkeypatch):
    """Counts the passes that are made; `kill` is the number of the one during which the process is killed."""
    counts = {"made": 0, "kill": None, "how": kill}
    passed = Journal.passed

    def counted(self, name, digest, compute):
        def compute_and_count():
            counts["made"] += 1
            if counts["made"] == counts["kill"]:
                counts["how"]()
            return compute()

        return passed(self, name, digest, compute_and_count)

    monkeypatch.setattr(Journal, "passed", counted)
    return counts


@pytest.mark.usefixtures("short_search")
@pytest.mark.parametrize("method", [*METHODS, *GAPS])
def test_a_killed_fit_goes_on_with_the_same_bits(folder, passes, method):
    table, options = ("table.csv", METHODS[method]) if method in METHODS else ("gaps.csv", GAPS[method])
    command = ["learn", table, *options, "-q", "-o"]
    assert main([*command, "whole.v"]) == OK
    total, passes["made"] = passes["made"], 0
    assert not (folder / "whole.v.partial").exists()
    assert total > 3
    passes["kill"] = total - 1
    with pytest.raises(Killed):
        main([*command, "model.v"])
    assert not (folder / "model.v").exists()
    kept = folder / "model.v.partial"
    kept.write_bytes(kept.read_bytes()[:-3])  # and the last record was being written
    passes.update(made=0, kill=None)
    assert main([*command, "model.v", "--resume"]) == OK
    assert passes["made"] == 3  # the last two, and the record that was cut off
    assert (folder / "model.v").read_bytes() == (folder / "whole.v").read_bytes()
    assert not kept.exists()


# The command, whose fit waits in the pass after a number of them: otherwise it could end before it is killed.
WAITING = """
import sys, time
from vicinal._journal import Journal
from vicinal.cli import main

passed, made = Journal.passed, []

def passed_or_waiting(self, name, digest, compute):
    made.append(name)
    return passed(self, name, digest, compute if len(made) <= int(sys.argv[1]) else lambda: time.sleep(600))

Journal.passed = passed_or_waiting
main(sys.argv[2:])
"""


def number_of_records(kept):
    """Return how many passes of a fit, or steps of a comparison, a file holds."""
    data = kept.read_bytes() if kept.exists() else b""
    return max(data.count(b'{"pass"'), data.count(b"\n{"))


def killed_when(records, kept, command):
    """Run the command in a separate process, and kill it as soon as a number of records are saved."""
    run = ["-c", WAITING, str(records)] if command[0] == "learn" else ["-m", "vicinal"]
    process = subprocess.Popen([sys.executable, *run, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline and number_of_records(kept) < records:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    return process.wait()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL")
@pytest.mark.parametrize("what", ["learn", pytest.param("compare", marks=pytest.mark.slow)])
def test_a_process_that_is_killed_in_earnest_goes_on(folder, passes, capsys, what):
    """`kill -9` gives a process no time to clean up."""
    if what == "learn":
        command, records = ["learn", "table.csv", *METHODS["lca"], "-o", "done"], 4
    else:
        some = ["--methods", "z-scored,rca,gaussian,lca", "--repeats", "1", "--folds", "3"]
        command, records = ["compare", "table.csv", "--target", "state", *some, "--json", "--report", "done"], 10
    kept = folder / "done.partial"
    assert killed_when(records, kept, command) == -signal.SIGKILL
    assert not (folder / "done").exists()
    n_kept = number_of_records(kept)
    assert n_kept >= records
    assert main([*command, "--resume"]) == OK
    resumed, again = capsys.readouterr().out, passes["made"]
    assert not kept.exists()
    (folder / "done").rename("resumed")
    passes["made"] = 0
    assert main(command) == OK
    if what == "learn":
        assert (folder / "done").read_bytes() == (folder / "resumed").read_bytes()
        assert again <= passes["made"] - n_kept + 1  # one pass may have been cut off
        return
    whole = json.loads(capsys.readouterr().out)
    for name in ("metrics", "densities"):
        mine = [{**method, "seconds": 0} for method in json.loads(resumed)[name]]
        assert mine == [{**method, "seconds": 0} for method in whole[name]]


@pytest.mark.usefixtures("short_search")
@pytest.mark.parametrize("method", ["lca, given penalty", "lca", "nca"])
def test_an_interrupted_fit_writes_the_best_model_so_far_or_says_that_nothing_was_written(
    folder, passes, capsys, method
):
    """The message used to say that the best parameters so far were kept, although no file was written."""
    command = ["learn", "table.csv", *METHODS[method], "-o"]
    assert main([*command, "whole.v"]) == OK
    total = passes["made"]
    capsys.readouterr()
    for when in (1, total - 1):
        passes.update(made=0, kill=when, how=interrupt)
        assert main([*command, "model.v"]) == INTERRUPTED
        said = capsys.readouterr().err
        written = (folder / "model.v").exists()
        assert written == (when > 1)
        assert ("this is the best model so far" if written else "nothing was written to model.v.") in said
        assert "Use --resume to continue from model.v.partial." in said
    assert (folder / "model.v").read_bytes() != (folder / "whole.v").read_bytes()
    passes.update(made=0, kill=None)
    assert main([*command, "model.v", "--resume"]) == OK
    assert passes["made"] == 2
    assert "passes from model.v.partial." in capsys.readouterr().err
    assert (folder / "model.v").read_bytes() == (folder / "whole.v").read_bytes()


@pytest.mark.parametrize("left", [b"", b'{"what": "vici'])
@pytest.mark.parametrize("resume", [[], ["--resume"]])
def test_a_header_that_a_kill_cut_off_is_written_anew(folder, passes, left, resume):
    """The next run reported that the empty file was not a file of vicinal and should be moved away."""
    command = ["learn", "table.csv", *METHODS["parzen"], "-q", "-o", "model.v"]
    (folder / "model.v.partial").write_bytes(left)
    assert main([*command, *resume]) == OK
    assert not (folder / "model.v.partial").exists()


@pytest.mark.usefixtures("short_search")
def test_a_journal_belongs_to_one_fit(folder, passes):
    command = ["learn", "table.csv", *METHODS["lca"], "-q", "-o", "model.v"]
    assert main([*command, "--resume"]) == USAGE  # there is nothing to go on from
    passes["kill"] = 5
    with pytest.raises(Killed):
        main(command)
    before = (folder / "model.v.partial").read_bytes()
    assert json.loads(before.splitlines()[0])["what"] == "vicinal fit"
    passes.update(made=0, kill=None)
    assert main([*command, "--resume", "--set", "reg=0.5"]) == DATA
    assert (folder / "model.v.partial").read_bytes() == before
    assert passes["made"] == 0
    assert main(command) == OK  # without --resume it begins anew
    assert not (folder / "model.v.partial").exists()
    (folder / "model.v.partial").write_text("my notes")
    assert main(command) == OUTPUT
    assert (folder / "model.v.partial").read_text() == "my notes"
    (folder / "model.v").rename(folder / "other.v.partial")
    assert main(["learn", "other.v.partial", *METHODS["lca"], "-o", "other.v"]) == USAGE  # it would replace the data


@pytest.mark.usefixtures("short_search")
def test_two_runs_with_the_same_output(folder, passes, capsys):
    """The second run to finish reported a bug, because the first had removed the file of the saved passes."""
    passes.update(kill=2, how=lambda: (folder / "model.v.partial").unlink())
    assert main(["learn", "table.csv", *METHODS["lca, given penalty"], "-o", "model.v"]) == OK, capsys.readouterr().err
    assert sorted(path.name for path in folder.iterdir()) == ["gaps.csv", "model.v", "table.csv"]


def test_damaged_records_are_computed_again(tmp_path):
    """A changed digit of a saved number was used, and sizes that are no sizes ended the fit with errors of NumPy."""
    calls, path = [], tmp_path / "journal"

    @journaled()
    def double(x):
        calls.append(x)
        return float(x[0]), 2 * x

    def fit():
        with keep_journal(path, "a"):
            return [double(np.array([k, np.pi])) for k in (1.0, 2.0)]

    expected = fit()
    whole = path.read_bytes()
    start = whole.index(b"\n") + 1  # after the header
    heads = [b"[1]", b"[" * 10_000, b"{}"]
    heads += [b'{"pass": "x", "digest": "", "check": "", "arrays": [["' + array + b"]]}"
              for array in (b'<f8", [-1, -8]', b'<f8", [1000000000000]', b'<f8", ["2"]', b'<f8", 2', b'f8,,", [2]', b'O", [2]')]  # fmt: skip
    damaged = [whole[:start] + head + b"\n" + whole[start:] for head in heads]
    damaged += [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(start, len(whole))]
    for content in damaged:
        path.write_bytes(content)
        calls.clear()
        for (value, array), (other, other_array) in zip(expected, fit(), strict=True):
            assert (type(other), other) == (float, value)
            np.testing.assert_array_equal(other_array, array)
        assert 1 <= len(calls) <= 2  # the damaged record and what follows it


def test_replayed_passes_are_those_that_were_made(tmp_path):
    calls = []

    @journaled()
    def double(x):
        calls.append(x)
        if x[0] < 0:
            raise ValueError("negative")
        return float(x[0]), 2 * x

    def fit(last):
        found = [double(np.array([1.0, np.pi]))]
        with pytest.raises(ValueError, match="negative"):
            double(np.array([-1.0]))
        return [*found, double(np.array([0.1], dtype=np.float32)), double(np.array([last]))]

    def kept():
        return keep_journal(tmp_path / "journal", "a")

    with kept():
        whole = fit(5.0)
    assert len(calls) == 4
    with kept() as journal:
        again = fit(5.0)
    assert (journal.n_replayed, journal.n_computed) == (3, 0)
    assert len(calls) == 5  # a pass that raised is tried again, and what followed it is still replayed
    for (value, array), (other, other_array) in zip(whole, again, strict=True):
        assert (type(other), other) == (float, value)
        assert array.dtype == other_array.dtype
        np.testing.assert_array_equal(other_array, array)
    with kept() as journal:
        np.testing.assert_array_equal(fit(6.0)[-1][1], [12.0])
    assert (journal.n_replayed, journal.n_computed) == (2, 1)
    with pytest.raises(OtherFitError, match="other rows, or with other parameters"), keep_journal(journal.path, "b"):
        pass
    assert double(np.array([3.0]))[0] == 3.0  # without a journal nothing changes


@pytest.mark.usefixtures("short_search")
@pytest.mark.parametrize("estimator", [LCA(), NCA(tol=1e-2, random_state=0)])
def test_a_journal_changes_no_fit(tmp_path, estimator):
    X, y = make_machine_states(50, random_state=1)
    plain = estimator.fit(X[:, :3], y).components_.copy()
    for _ in range(2):
        with keep_journal(tmp_path / "j", "one"):
            np.testing.assert_array_equal(estimator.fit(X[:, :3], y).components_, plain)
