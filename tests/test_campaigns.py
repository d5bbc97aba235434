"""Test the harness of the campaigns: several workers, and cases that end or block their process."""

import sys

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


def tried(seconds=60.0, **options):
    tally = harness.Tally()
    summaries = workers.try_all(worker(**options), range(8), 2, seconds, tally.take)
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
