"""The command of the papers' experiments, the pages from stored results, and the quick experiments with their claims."""

from pathlib import Path

import numpy as np
import pytest
from papers import contents, run
from papers.experiment import PAPERS, Claim, Missing, Setting, Summary, at_the_end, best_positions, experiments
from papers.page import page, verdicts_by_grid
from papers.results import read

ROOT = Path(__file__).parents[1]

# Quick mode of everything takes minutes; these are the parts that are cheap enough for every run of the tests.
CHEAP = {
    "lca": ["figure_1", "section_7"],
    "mparzen": ["figure_1", "table_2"],
    "rca": ["figure_1", "figure_2", "figure_5", "section_3", "figure_11"],
    "nca": ["figure_2"],
}

# Claims that do not hold in quick mode: the distance in all columns has three of four rings right, and LDA is as good on wine.
FAILING = ("a full-rank Euclidean metric", "wine: the classes are much better separated")


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch):
    monkeypatch.delenv("VICINAL_DATA", raising=False)  # quick mode must do without


@pytest.mark.parametrize(("paper", "name"), [(paper, name) for paper, names in CHEAP.items() for name in names])
def test_claims_quick_mode_hold(paper, name, tmp_path):
    (experiment,) = [experiment for experiment in experiments(paper) if experiment.name == name]
    assert not experiment.missing(Setting())
    *_, results = run.measure(experiment, Setting(), 1)
    claims = experiment.module.summarise(Setting(), results.records).claims
    assert claims
    failing = [f"{claim.says}: {claim.evidence}" for claim in claims if not claim.holds]
    assert all(any(part in text for part in FAILING) for text in failing), failing
    pictures = run.draw(experiment, Setting(), results, tmp_path)
    assert pictures
    assert all((tmp_path / f"{paper}-{name}.png").stat().st_size > 5000 for name in pictures)


@pytest.mark.parametrize("paper", PAPERS)
def test_page_from_stored_results_is_the_published_one(paper):
    """Claims, tables and sentences are computed from the results, and none needs the data."""
    published = ROOT / "docs" / "papers" / f"{PAPERS[paper][0]}.md"
    assert page(paper) == published.read_text(encoding="utf-8"), "run: python papers/run.py --pages"


def test_pictures_of_stored_results_exist():
    for paper in PAPERS:
        for experiment in experiments(paper):
            for picture in read(experiment).pictures:
                assert (ROOT / "docs" / "papers" / f"{paper}-{picture}.png").is_file()


def test_experiments_cover_every_table_and_figure():
    covered = {paper: {name for e in experiments(paper) for name in e.module.COVERS} for paper in PAPERS}
    assert {"figure 1", "figure 3", "figure 4", "figure 5"} <= covered["lca"]
    assert {"figure 1", "figure 2", "table 1", "table 2", "table 3", "table 4"} <= covered["mparzen"]
    assert {f"figure {k}" for k in (1, *range(3, 12))} | {"equation 12", "section 9.2"} <= covered["rca"]
    assert {"figure 1", "figure 2", "figure 3"} <= covered["nca"]


@pytest.mark.parametrize("paper", PAPERS)
def test_contents_name_files_tests_and_experiments_that_exist(paper):
    entries = contents.entries(paper)
    names = {experiment.name for experiment in experiments(paper)}
    assert {entry.experiment for entry in entries} - {""} == names
    for entry in entries:
        assert entry.code or entry.test or entry.experiment or entry.note, entry.place
        folder = ROOT if entry.code.startswith("papers/") else ROOT / "src" / "vicinal"
        assert not entry.code or (folder / entry.code).is_file(), entry.code
        if entry.test:
            file, _, test = entry.test.partition("::")
            text = (ROOT / "tests" / file).read_text(encoding="utf-8")
            assert not test or f"def {test}(" in text, entry.test


def test_run_full_mode_without_data_skips(capsys):
    assert run.main(["rca", "figure_8", "--full"]) == 0
    assert "skipped: the data set 'yale_b' needs the file yaleb_32x32.npz" in capsys.readouterr().out


def test_run_stored_units_are_not_measured_again(monkeypatch):
    (experiment,) = [experiment for experiment in experiments("rca") if experiment.name == "figure_11"]
    partial, *_, first = run.measure(experiment, Setting(), 1)
    assert not partial.units

    def missing(setting, **unit):
        raise Missing

    monkeypatch.setattr(experiment.module, "measure", missing)
    assert list(run.measure(experiment, Setting(), 1, first)) == [first]
    with pytest.raises(Missing):
        list(run.measure(experiment, Setting(), 1, first._replace(units=first.units[1:])))


def test_check_lists_verdicts_that_change_with_the_grid(monkeypatch, capsys):
    (experiment,) = [experiment for experiment in experiments("mparzen") if experiment.name == "table_1"]
    assert run.check(experiment) == (not [row for row in verdicts_by_grid(experiment) if row.changes])
    capsys.readouterr()

    def summarise(setting, records):
        return Summary([], [Claim("steady", True, setting.grid), Claim("hangs on it", setting.grid == "even", "x")])

    monkeypatch.setattr(experiment.module, "summarise", summarise)
    assert not run.check(experiment)
    printed = capsys.readouterr().out
    assert "hangs on it" in printed
    assert "steady" not in printed


def test_best_positions_are_the_best_of_each_half_on_every_axis():
    scores = np.zeros((4, 5))
    scores[1, 2], scores[2, 2], scores[1, 3] = 3, 2, 1
    assert best_positions(scores) == {"whole": (1, 2), "even": (2, 2), "odd": (1, 3)}


@pytest.mark.parametrize("paper", PAPERS)
def test_every_claim_is_evidence_for_an_item_of_the_contents(paper):
    entries = contents.entries(paper)
    for experiment in (experiment for experiment in experiments(paper) if read(experiment).units):
        own = [entry for entry in entries if entry.experiment == experiment.name]
        claims = experiment.module.summarise(Setting(full=True), read(experiment).records).claims
        for claim in claims:
            assert any(claim in entry.about(claims) for entry in own), (experiment.name, claim.says)
        if len(read(experiment).units) == len(experiment.module.units(Setting(full=True))):
            for entry in own:
                assert all(any(part in claim.says for claim in claims) for part in entry.claims), entry.what


def test_run_list_and_unknown_names(capsys):
    assert run.main([]) == 0
    assert "figure_8" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        run.main(["rca", "figure_99"])
    assert "rca has no figure_99" in capsys.readouterr().err


def test_at_the_end_first_and_last_values_are_remarked():
    assert at_the_end((1, 2, 4), 2) == ""
    assert at_the_end((4, 2, 1), 4) == " (the largest that was tried)"
    assert at_the_end((1, 2, 4), 1) == " (the smallest that was tried)"
