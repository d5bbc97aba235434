"""Test the harness of the campaigns: several workers, and cases that end or block their process."""

import sys
from pathlib import Path

import pytest
from campaigns import harness, workers

_WORKER = """
import os, sys, time
sys.path.insert(0, {folder!r})
import workers
def try_case(number):
    print("noise of a library")
    if number == 3:
        os._exit(5)
    if number == 0 and {hang}:
        time.sleep(600)
    return {{"verdict": "fine", "what": "number"}}
workers.serve(try_case, lambda: "that was all")
"""


def worker(*, hang=False):
    return [sys.executable, "-S", "-c", _WORKER.format(folder=workers.__file__.rpartition("/")[0], hang=hang)]


def tried(seconds=60.0, untimed=1, **options):
    tally = harness.Tally()
    summaries = workers.try_all(worker(**options), range(8), 2, seconds, tally.take, untimed=untimed)
    return tally, summaries


def test_a_case_that_ends_its_process_is_bad_and_the_others_are_tried(capsys):
    tally, summaries = tried()
    assert (tally.clean["number"], tally.bad["?"]) == (7, 1)
    assert "bad: case 3, ?: the case ended its process with 5" in capsys.readouterr().out
    assert set(summaries) == {"that was all"}  # one worker may have done all that was left


def test_a_case_that_goes_on_after_the_end_is_cut_off(capsys, monkeypatch):
    monkeypatch.setattr(workers, "GRACE", 0.1)
    tally, _ = tried(0.5, hang=True)
    assert tally.verdicts["left out: the time was over"] >= 1
    assert not tally.bad["?"] or "case 0" not in capsys.readouterr().out


def test_a_case_that_takes_too_long_is_bad_and_the_others_are_tried(capsys, monkeypatch):
    monkeypatch.setattr(workers, "LONG", 3.0)
    tally, _ = tried(hang=True)
    assert (tally.clean["number"], tally.bad["?"]) == (6, 2)
    said = capsys.readouterr().out
    assert "bad: case 0, ?: the case did not end in 3 seconds; try it again with --start 0 --cases 1" in said
    assert "bad: case 3, ?: the case ended its process with 5" in said


def test_the_first_cases_are_tried_however_short_the_time_is():
    """The four seconds of CI were over before the first case had compiled its kernels."""
    for untimed in (1, 5):
        tally, _ = tried(1e-9, untimed=untimed)
        assert untimed <= tally.clean.total() + tally.bad.total() <= untimed + 1  # the other worker has a case, too


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux")
@pytest.mark.parametrize("wait", ["threading.Event().wait()", "[None for _ in iter(int, 1)]"])
def test_a_hang_is_shown_with_the_stacks_of_all_processes(wait):
    """Cases were stopped after some seconds, also those of a busy machine, and nothing told where they had been."""
    program = f"""
import faulthandler, os, threading
faulthandler.enable()
def in_the_child():
    {wait}
if os.fork() == 0:
    in_the_child()
os.wait()
"""
    with pytest.raises(harness.Bad, match=r"it hangs after \d+ seconds of processor time") as error:
        harness.watched([sys.executable, "-S", "-c", program], idle=2.0, busy=1.0)
    assert "in in_the_child" in str(error.value)
    assert "do_wait" in str(error.value) or "'state': 'S'" in str(error.value)


def test_what_a_watched_process_prints():
    done = harness.watched([sys.executable, "-S", "-c", "import sys; print(1); print(2, file=sys.stderr); sys.exit(3)"])
    assert (done.returncode, done.stdout, done.stderr) == (3, "1\n", "2\n")
