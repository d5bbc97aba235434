"""The runner of the papers' experiments, and the quick ones among them with their claims."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from vicinal.cli import main
from vicinal.papers import PAPERS, _contents, _page, _prose, _runner
from vicinal.papers._experiment import (
    Claim,
    Experiment,
    Setting,
    Summary,
    Table,
    at_the_end,
    data_folder,
    experiments,
)

ROOT = Path(__file__).parents[1]

# Quick mode of everything takes minutes; these are the parts that are cheap enough for every run of the tests.
CHEAP = {
    "lca": ["figure_1", "section_7"],
    "mparzen": ["figure_1", "table_2"],
    "rca": ["figure_1", "figure_2", "figure_5", "section_3", "figure_11"],
    "nca": ["figure_2"],
}


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch):
    monkeypatch.delenv("VICINAL_DATA", raising=False)  # quick mode must do without


def vicinal(*arguments, folder):
    """Run `vicinal papers` in a separate process."""
    command = [sys.executable, "-m", "vicinal.cli", "papers", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)


def in_process(*arguments, folder):
    """Run the same in this process, which does not import everything again."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(["papers", *arguments])
        except SystemExit as stop:  # argparse
            code = stop.code
    said = []
    for stream in (out, err):
        stream.flush()
        said.append(stream.buffer.getvalue().decode("utf-8"))
    return subprocess.CompletedProcess(arguments, code, *said)


# -- the experiments ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("paper", "name"),
    [(paper, name) for paper, names in CHEAP.items() for name in names],
)
def test_claims_hold_in_quick_mode(paper, name, tmp_path):
    (experiment,) = [e for e in experiments(paper) if e.name == name]
    outcome = _runner.run(experiment, Setting(), tmp_path)
    assert not outcome.skipped
    assert outcome.summary.claims
    assert not [f"{claim.says}: {claim.evidence}" for claim in outcome.summary.claims if claim.fails]
    assert outcome.pictures
    assert all((tmp_path / picture).stat().st_size > 5000 for picture in outcome.pictures)


def test_every_table_and_figure_has_a_module_that_says_what_it_covers():
    covered = {paper: {name for e in experiments(paper) for name in e.module.COVERS} for paper in PAPERS}
    assert {"figure 1", "figure 3", "figure 4", "figure 5"} <= covered["lca"]
    assert {"figure 1", "figure 2", "table 1", "table 2", "table 3", "table 4"} <= covered["mparzen"]
    assert {f"figure {k}" for k in (1, *range(3, 12))} | {"equation 12", "section 9.2"} <= covered["rca"]
    assert {"figure 1", "figure 2", "figure 3"} <= covered["nca"]
    for paper in PAPERS:
        for experiment in experiments(paper):
            about = experiment.module.__doc__.partition("\n")[2].strip()
            assert len(about) > 100, f"{experiment.source} should say what it shows and how it is set up"


@pytest.mark.parametrize("paper", PAPERS)
def test_everything_a_paper_has_is_where_its_page_says(paper):
    """Files, tests and experiments that the table of contents names exist."""
    found = _contents.entries(paper)
    names = {experiment.name for experiment in experiments(paper)}
    told = {entry.experiment for entry in found} - {""}
    assert told <= names
    assert names <= told, "an experiment without a row"
    for entry in found:
        assert entry.code or entry.test or entry.experiment or entry.note, entry.place
        assert not entry.code or (ROOT / "src" / "vicinal" / entry.code).is_file(), entry.code
        if entry.test:
            file, _, test = entry.test.partition("::")
            text = (ROOT / "tests" / file).read_text(encoding="utf-8")
            assert not test or f"def {test}(" in text, entry.test


@pytest.mark.parametrize("paper", PAPERS)
def test_minutes_are_stated_and_no_number_is_typed_into_prose(paper):
    for experiment in experiments(paper):
        quick, full = experiment.module.MINUTES
        assert 0 < quick <= 2
        assert full > 0
        _prose.refuse_typed_numbers(experiment.module)
        assert "{" not in _prose.about(experiment.module)


def test_quick_mode_of_everything_is_planned_for_five_minutes_on_two_cores():
    minutes = [experiment.module.MINUTES[0] for paper in PAPERS for experiment in experiments(paper)]
    assert sum(minutes) <= 10  # of one core


# -- the runner, on an experiment of our own ----------------------------------------------------------------------


def made_experiment(tmp_path, *, holds=True, departs="", fails_at=None, name="figure_9"):
    """Three units, each a number; `fails_at` interrupts."""
    from matplotlib.figure import Figure

    module = ModuleType(f"made.{name}")
    source = tmp_path / f"{name}.py"
    source.write_text("def measure(setting, run):\n    return {'value': run * 10.0}\n")
    module.__file__, module.__package__ = str(source), "made"
    module.__doc__ = "Figure 9.\n\nWhat it shows."
    module.TITLE, module.COVERS, module.ORDER, module.MINUTES = "Figure 9: made", ("figure 9",), 9, (0.1, 1)
    module.measured = []

    def measure(setting, run):
        if run == fails_at:
            raise KeyboardInterrupt
        module.measured.append(run)
        return {"value": run * 10.0}

    def summarise(setting, records):
        assert [record["value"] for record in records] == [0.0, 10.0, 20.0]
        table = Table(["run", "paper", "here"], [[r["run"], "a | b", r["value"]] for r in records])
        return Summary([table], [Claim("it is so", holds, "20", departs=departs)], ["A remark."])

    module.units = lambda setting: [{"run": run} for run in range(3)]
    module.measure, module.summarise = measure, summarise
    module.draw = lambda setting, records: {"figure-9": Figure()}
    return Experiment("lca", name, module)


def test_interrupted_runs_go_on_where_they_were(tmp_path):
    interrupted = made_experiment(tmp_path, fails_at=2)
    with pytest.raises(KeyboardInterrupt):
        _runner.run(interrupted, Setting(), tmp_path)
    assert interrupted.module.measured == [0, 1]
    again = made_experiment(tmp_path)
    outcome = _runner.run(again, Setting(), tmp_path)
    assert again.module.measured == [2]
    assert outcome.summary.claims[0].holds
    assert outcome.pictures == ("lca-figure-9-quick.png",)
    stored = json.loads((tmp_path / "results" / "lca" / "figure_9-quick.json").read_text())
    assert {"version", "code", "machine", "units"} <= set(stored)
    assert stored["machine"]["cores"] >= 1
    assert [entry["unit"]["run"] for entry in stored["units"]] == [0, 1, 2]


def test_results_of_other_code_are_measured_anew(tmp_path):
    def run_with(code, **options):
        experiment = made_experiment(tmp_path)
        (tmp_path / "figure_9.py").write_text(code)
        _runner.run(experiment, Setting(), tmp_path, **options)
        return experiment.module.measured

    all_of_it = [0, 1, 2]
    assert run_with("TENS = 10\ndef measure(run):\n    return run * TENS\n") == all_of_it
    # Words, claims and pictures do not make the numbers: hours of measurement survive a better sentence.
    words = '"""A text."""\nTENS = 10\ndef measure(run):\n    """Say it."""\n    # why\n    return run * TENS\ndef draw(): pass\n'
    assert run_with(words) == []
    # Nor do annotations, nor what is imported for them alone.
    typed = words.replace("TENS = 10", "from typing import Any\nTENS: int = 10").replace("(run)", "(run: int) -> Any")
    assert typed.count("Any") == 2
    assert run_with(typed) == []
    assert run_with(words.replace("TENS = 10", "TENS = 11")) == all_of_it
    assert run_with(words, fresh=True) == all_of_it


def test_a_damaged_results_file_is_measured_anew(tmp_path):
    path = tmp_path / "results" / "lca" / "figure_9-quick.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"units": [')
    experiment = made_experiment(tmp_path)
    _runner.run(experiment, Setting(), tmp_path)
    assert experiment.module.measured == [0, 1, 2]


@pytest.mark.parametrize("part", ["unit", "result", "seconds"])
def test_damaged_entries_are_measured_anew(part, tmp_path):
    _runner.run(made_experiment(tmp_path), Setting(), tmp_path)
    path = tmp_path / "results" / "lca" / "figure_9-quick.json"
    stored = json.loads(path.read_text())
    del stored["units"][1][part]
    path.write_text(json.dumps(stored))
    experiment = made_experiment(tmp_path)
    assert not _runner.run(experiment, Setting(), tmp_path).skipped
    assert 1 in experiment.module.measured


def test_what_is_measured_but_needs_data_to_be_drawn_is_a_skip_with_the_remedy(tmp_path):
    _runner.run(made_experiment(tmp_path), Setting(full=True), tmp_path)
    experiment = made_experiment(tmp_path)
    experiment.module.draw = lambda setting, records: setting.load("usps")
    outcome = _runner.run(experiment, Setting(full=True, data_home=str(tmp_path)), tmp_path)
    assert experiment.module.measured == []
    assert "usps.npz" in outcome.skipped
    assert "--data" in outcome.skipped


def test_a_missing_package_or_data_set_is_a_skip_with_the_remedy(tmp_path):
    experiment = made_experiment(tmp_path)
    experiment.module.EXTRAS = {"no_such_package": "torch"}
    outcome = _runner.run(experiment, Setting(), tmp_path)
    assert "no_such_package" in outcome.skipped
    assert "pip install 'vicinal[torch]'" in outcome.skipped
    assert outcome.summary is None
    experiment = made_experiment(tmp_path)
    experiment.module.NEEDS = ("usps",)
    outcome = _runner.run(experiment, Setting(full=True, data_home=str(tmp_path)), tmp_path)
    assert "usps.npz" in outcome.skipped
    assert "--data" in outcome.skipped
    assert "skipped" in _page.text(outcome)
    assert not _runner.run(experiment, Setting(), tmp_path).skipped  # quick mode has no need of it


def test_the_page_shows_numbers_claims_and_why_not(tmp_path):
    outcome = _runner.run(made_experiment(tmp_path, holds=False, departs="Because of this."), Setting(), tmp_path)
    page = _page.page("lca", [outcome])
    assert "a \\| b" in page
    assert "does not hold" in page
    assert "Because of this." in page
    assert "vicinal papers lca --figure 9 --quick" in page
    assert "(lca-figure-9-quick.png)" in page
    assert not outcome.summary.claims[0].fails
    assert _runner.run(made_experiment(tmp_path, holds=False), Setting(), tmp_path).summary.claims[0].fails


def test_units_that_are_left_after_the_given_minutes_wait_for_the_next_call(tmp_path):
    experiment = made_experiment(tmp_path)
    outcome = _runner.run(experiment, Setting(), tmp_path, minutes=0)
    assert experiment.module.measured == []
    assert "3 of 3 units have not been measured" in outcome.skipped
    assert _runner.run(experiment, Setting(), tmp_path).summary


def test_reduced_mode_has_the_first_runs_only(tmp_path):
    experiment = made_experiment(tmp_path)
    experiment.module.REDUCED_RUNS = 2
    reduced = Setting(full=True, reduced=True)
    assert reduced.mode == "reduced"
    assert [unit["run"] for unit in experiment.units(reduced)] == [0, 1]
    assert len(experiment.units(Setting(full=True))) == 3


def test_what_reduced_mode_lacks_is_shown_in_quick_mode(tmp_path, monkeypatch, capsys):
    from vicinal import cli
    from vicinal._app import papers

    experiment = made_experiment(tmp_path)
    experiment.module.NEEDS = ("usps",)
    monkeypatch.setattr(papers, "experiments", lambda paper: [experiment])
    arguments = ["papers", "lca", "--figure", "9", "-o", str(tmp_path)]
    assert cli.main([*arguments, "--reduced"]) == 0
    assert "nothing was run" in capsys.readouterr().out
    assert cli.main([*arguments, "--quick"]) == 0
    assert cli.main([*arguments, "--reduced"]) == 0
    assert "1 of 1 claim of the papers hold" in capsys.readouterr().out.splitlines()[-1]
    full = _runner.run(made_experiment(tmp_path), Setting(full=True), tmp_path)
    quick = _runner.run(made_experiment(tmp_path), Setting(), tmp_path)
    assert "there is no full run" in _page.page("lca", [quick, full])


def test_results_can_be_recorded_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setattr("vicinal.papers._experiment.find_spec", lambda name: None if name == "matplotlib" else True)
    experiment = made_experiment(tmp_path)
    assert "matplotlib" in _runner.measure([experiment], Setting(), tmp_path)[experiment.source]
    assert experiment.module.measured == []
    assert _runner.measure([experiment], Setting(), tmp_path, drawing=False) == {}
    assert experiment.module.measured == [0, 1, 2]


@pytest.mark.slow
def test_processes_give_the_results_of_one(tmp_path):
    (experiment,) = [e for e in experiments("rca") if e.name == "figure_11"]
    skipped = _runner.measure([experiment], Setting(), tmp_path / "two", jobs=2, drawing=False)
    assert skipped == {}
    _runner.measure([experiment], Setting(), tmp_path / "one", drawing=False)
    two, one = (
        json.loads((tmp_path / name / "results" / "rca" / "figure_11-quick.json").read_text())
        for name in ("two", "one")
    )
    results = [{json.dumps(entry["unit"]): entry["result"] for entry in stored["units"]} for stored in (two, one)]
    assert results[0] == results[1]
    assert two["code"] == one["code"]


TYPED = '''"""Figure 9.

{about}
"""
BLUR = 0.75
MARGIN = f"a margin of {{BLUR}} pixel (Fig. 4, Tables 3 and 4, sec. 6.2)"


def summarise(setting, records):
    value = {{"rank 2": 1}}["rank 2"]
    return Claim("at least 3 nats", value > 3, f"{{value:.2f}} nats"), {prose}, MARGIN


def measure(setting):
    return "never on the page: 3.5"
'''


@pytest.mark.parametrize(
    ("prose", "found"),
    [
        ('"no number"', None),
        ('f"{value:.3f} nats and {100 * value:.0f}%"', None),
        ('"{:.2f} ± {:.2f}".format(value, value)', None),
        ('"1-NN by the bound `n(k-1)`"', None),
        ('"it has -384.6 in the first run"', "-384.6"),
        ('f"{value} nats, 0.3 less than before"', "0.3 less"),
        ('Claim(f"by {value}", True, "20 of 36")', "20 of 36"),
        ('Claim("by 3 nats", True, evidence="", departs="because of 7")', "because of 7"),
    ],
)
def test_typed_numbers_are_refused(prose, found, tmp_path):
    """Three numbers had been typed into pages, and one of them had become wrong."""
    module = ModuleType("made.figure_9")
    source = tmp_path / "figure_9.py"
    source.write_text(TYPED.format(about="What it shows.", prose=prose))
    module.__file__, module.__package__ = str(source), "made"
    if found is None:
        _prose.refuse_typed_numbers(module)
    else:
        with pytest.raises(_prose.TypedNumber, match=re.escape(found)):
            _prose.refuse_typed_numbers(module)


def test_the_set_up_names_constants_and_no_decimals():
    module = ModuleType("made.figure_9")
    module.BLUR = 0.75
    module.__doc__ = "Figure 9.\n\n2,000 digits, blurred by {BLUR} pixel (sec. 6.2)."
    assert _prose.about(module) == "2,000 digits, blurred by 0.75 pixel (sec. 6.2)."
    module.__doc__ = "Figure 9.\n\nThe numbers move by 0.03."
    with pytest.raises(_prose.TypedNumber, match="docstring"):
        _prose.about(module)


def test_a_page_with_a_typed_number_is_not_written(tmp_path):
    outcome = _runner.run(made_experiment(tmp_path), Setting(), tmp_path)
    (tmp_path / "figure_9.py").write_text("def summarise(setting, records):\n    return 'it is 0.3 nats'\n")
    with pytest.raises(_prose.TypedNumber, match=r"0\.3 nats"):
        _page.page("lca", [outcome])


def test_the_page_tells_where_everything_is(tmp_path):
    outcome = _runner.run(made_experiment(tmp_path), Setting(full=True), tmp_path)
    page = _page.page("lca", [outcome])
    assert "| Proposition 1 |" in page
    assert "`test_lca_gauss.py::test_proposition_1_is_the_minimum` | tested |" in page


def test_the_end_of_a_grid_is_told():
    assert at_the_end((1, 2, 4), 2) == ""
    assert at_the_end((4, 2, 1), 4) == " (the largest that was tried)"
    assert at_the_end((1, 2, 4), 1) == " (the smallest that was tried)"


def test_figures_are_found_by_the_names_people_use(tmp_path):
    experiment = made_experiment(tmp_path)
    experiment.module.COVERS = ("figure 9", "table 1", "equation 12")
    for wish in ("9", "figure 9", "fig9", "Fig. 9", "table1", "Table 1", "eq12", "equation 12"):
        assert experiment.answers_to(wish), wish
    for wish in ("1", "12", "figure 1", "90", ""):
        assert not experiment.answers_to(wish), wish


def test_a_data_folder_that_is_not_there_is_said(tmp_path):
    assert data_folder(str(tmp_path)) == str(tmp_path)
    with pytest.raises(NotADirectoryError, match="does not exist"):
        data_folder(str(tmp_path / "nowhere"))


def test_quick_mode_does_not_mind_a_data_folder_that_is_gone(tmp_path, monkeypatch):
    from vicinal import cli

    monkeypatch.setenv("VICINAL_DATA", str(tmp_path / "gone"))
    assert cli.main(["papers", "rca", "--figure", "11", "-o", str(tmp_path), "-q"]) == 0
    assert cli.main(["papers", "rca", "--figure", "11", "--full", "-o", str(tmp_path), "-q"]) == 3


# -- the command --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_writes_results_pictures_and_says_what_holds(tmp_path):
    done = vicinal("rca", "--figure", "11", "--quick", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "of the papers hold" in done.stdout
    assert (tmp_path / "vicinal-papers" / "results" / "rca" / "figure_11-quick.json").exists()
    assert list((tmp_path / "vicinal-papers").glob("rca-*.png"))
    assert f"wrote {os.path.join('vicinal-papers', 'rca-figure-11-quick.png')}" in done.stderr
    as_json = in_process("rca", "--figure", "11", "--quick", "--json", "-q", folder=tmp_path)
    (outcome,) = json.loads(as_json.stdout)
    assert outcome["claims"]
    assert as_json.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["lca", "--figure", "99"], 2, "no such table or figure"),
        (["lca", "--figure", "99"], 2, "lca: figure 1, footnote 1, "),
        (["lca", "--figure", "1,99"], 2, "--figure 99: there is no such table or figure"),
        (["lca", "--jobs", "0"], 2, "at least 1"),
        (["lca", "--minutes", "none"], 2, "expected a number of minutes above 0"),
        (["pca"], 2, "invalid choice"),
        (["--quick", "--full"], 2, "not allowed with"),
        (["lca", "--data", "nowhere"], 3, "does not exist"),
    ],
)
def test_the_command_refuses_what_cannot_be(arguments, code, words, tmp_path):
    done = in_process(*arguments, folder=tmp_path)
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_is_quick_unless_full_is_asked_for():
    from vicinal._app.parser import make_parser

    assert not make_parser().parse_args(["papers"]).full
    assert not make_parser().parse_args(["papers", "--quick"]).full
    assert make_parser().parse_args(["papers", "--full"]).full


def test_the_list_has_minutes_and_the_wheel_says_where_the_papers_are(monkeypatch, capsys):
    from vicinal import cli

    assert cli.main(["papers", "nca", "--list"]) == 0
    assert "min of one core)" in capsys.readouterr().out
    monkeypatch.setattr(cli, "find_spec", lambda name: None)
    assert cli.main(["papers", "nca", "--list"]) == 7
    assert "checkout" in capsys.readouterr().err


def test_recording_only_draws_nothing(tmp_path):
    done = in_process("rca", "--figure", "11", "--measure", "-o", ".", "-q", folder=tmp_path)
    assert done.stdout == "1 of 1 experiment measured.\n"
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


@pytest.mark.parametrize("taken", ["results", "rca-figure-11-quick.png"])
def test_an_output_that_cannot_be_written_is_said(taken, tmp_path):
    if taken == "results":
        (tmp_path / taken).write_text("a file where a folder has to be")
    else:
        (tmp_path / taken).mkdir()
    done = in_process("rca", "--figure", "11", "--quick", "-o", ".", folder=tmp_path)
    assert done.returncode == 5
    assert "cannot write" in done.stderr
    assert taken in done.stderr
    assert "bug in vicinal" not in done.stderr


def test_full_mode_without_data_skips_and_ends_well(tmp_path):
    done = in_process("mparzen", "--figure", "table2", "--full", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "nothing was run: 1 of 1 experiment skipped.\n"
    assert "skipped" in done.stderr
    assert "mnist.npz" in done.stderr


def test_a_failing_claim_ends_with_its_own_exit_code(tmp_path, monkeypatch, capsys):
    from vicinal import cli
    from vicinal._app import papers

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(papers, "experiments", lambda paper: [made_experiment(tmp_path, holds=False)])
    assert cli.main(["papers", "lca", "--figure", "9"]) == 8
    assert "it is so" in capsys.readouterr().err
