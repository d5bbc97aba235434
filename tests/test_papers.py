"""The command of the papers' experiments, the pages from stored results, and the quick experiments with their claims."""

from pathlib import Path

import pytest
from papers import contents, run
from papers.experiment import PAPERS, Missing, Setting, at_the_end, experiments
from papers.page import page
from papers.results import read

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


@pytest.mark.parametrize(("paper", "name"), [(paper, name) for paper, names in CHEAP.items() for name in names])
def test_claims_quick_mode_hold(paper, name, tmp_path):
    (experiment,) = [experiment for experiment in experiments(paper) if experiment.name == name]
    assert not experiment.missing(Setting())
    results = run.measure(experiment, Setting(), 1, tmp_path / "cache")
    claims = experiment.module.summarise(Setting(), results.records).claims
    assert claims
    assert not [f"{claim.says}: {claim.evidence}" for claim in claims if claim.fails]
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


def test_run_measured_units_come_from_the_cache(tmp_path, monkeypatch):
    (experiment,) = [experiment for experiment in experiments("rca") if experiment.name == "figure_11"]
    first = run.measure(experiment, Setting(), 1, tmp_path)

    def missing(setting, **unit):
        raise Missing

    monkeypatch.setattr(experiment.module, "measure", missing)
    assert run.measure(experiment, Setting(), 1, tmp_path) == first


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
