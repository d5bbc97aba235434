"""Test the harness of the programs in ``fuzz``: several processes, and cases that fail, end or block their process."""

import pytest
from fuzz import harness

_CAMPAIGN = """
import os, time
from fuzz import harness

CASES, UNTIMED = 6, 2
harness.LONGEST = 3.0

def check(case):
    case.what = "number"
    case.largest["number"] = float(case.number)
    if case.number == 1:
        raise harness.Bad("wrong")
    if case.number == 2:
        os._exit(5)
    if case.number == 3:
        time.sleep(600)
    return "fine"
"""


@pytest.fixture
def campaign(tmp_path, monkeypatch):
    (tmp_path / "trial_campaign.py").write_text(_CAMPAIGN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_run_cases_that_fail_end_or_block_are_bad_and_the_others_are_tried(campaign, capfd):
    assert harness.run("trial_campaign", ["--jobs", "2"]) == 1
    printed = capfd.readouterr().out
    assert "bad: case 1, number: Bad: wrong" in printed
    assert "bad: case 2, ?: the process ended with 5; run it again with --seed 0 --start 2 --cases 1" in printed
    assert "bad: case 3, ?: the process ended with 1" in printed
    assert printed.split("\nall ")[1].split()[:3] == ["6", "3", "3"]
    assert "number: 5.000" in printed
    assert harness.run("trial_campaign", ["--seed", "0", "--start", "1", "--cases", "1"]) == 1
    assert "bad: case 1, number: Bad: wrong; run it again with --seed 0 --start 1 --cases 1" in capfd.readouterr().out


def test_run_no_seconds_the_first_cases_are_tried(campaign, capfd):
    assert harness.run("trial_campaign", ["--seconds", "0", "--start", "4"]) == 0
    assert capfd.readouterr().out.split("\nall ")[1].split()[:3] == ["2", "2", "0"]


def test_run_a_share_of_bad_cases_that_is_accepted_is_no_failure(campaign, capfd):
    (campaign / "share_campaign.py").write_text(
        "from fuzz import harness\nCASES, MOST_BAD = 10, 0.3\n"
        "def check(case):\n    if case.number < case.rows:\n        raise harness.Bad('wrong')\n    return 'fine'\n"
    )
    assert harness.run("share_campaign", ["--rows", "3"]) == 0
    assert harness.run("share_campaign", ["--rows", "4"]) == 1
