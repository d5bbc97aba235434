"""Test the report: its figures are the computed ones, and no text from the data can break out of its element."""

import html.parser
import json
import re
import subprocess
import sys
from functools import partial
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.model_selection import RepeatedKFold, RepeatedStratifiedKFold
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor, NearestNeighbors
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import vicinal
from vicinal._pages import with_minus
from vicinal._pages.charts import nice_ticks
from vicinal._report import views
from vicinal.cli import main
from vicinal.cli.demo import draw_densities
from vicinal.datasets import make_machine_states, make_slanted_bars

EVIL = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>\"'&\u2028\u202e${title}"
SHOWN = EVIL.replace("\u2028", "\\u2028").replace("\u202e", "\\u202e")
FEW = {"metrics": ["euclidean", "z-scored", "lca"], "densities": ["gaussian", "lca"], "n_repeats": 1}
pytestmark = pytest.mark.usefixtures("short_search_in_this_file")


@pytest.fixture(scope="module")
def machine():
    X, y = make_machine_states(240, random_state=2)
    X = pd.DataFrame(X, columns=[f"sensor {i}" for i in range(8)])
    return X, y, vicinal.compare(X, y, **FEW)


@pytest.fixture(scope="module")
def report(machine):
    X, y, comparison = machine
    return vicinal.report(X, y, comparison=comparison, title="machine", notes=["One note."])


class Outline(html.parser.HTMLParser):
    """Tags, attributes and texts of a document; every opened element must be closed in order."""

    VOID = frozenset({"meta", "link", "input", "br", "img"})

    def __init__(self, document):
        super().__init__()
        self.open, self.tags, self.texts, self.attributes = [], [], [], []
        self.feed(document)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.extend(attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def without_next(text):
    """Return the output without the next step, which is Python code in Python and a command on the command line."""
    return re.sub(r"\nNext: .*\n", "", text)


def test_the_verdict_comes_first_and_the_figures_are_the_comparisons(machine, report):
    _, _, comparison = machine
    summary = report.summary
    assert summary["verdict"]["text"] == "A learned metric helps here, and so does a learned density."
    assert " ".join(detail["text"] for detail in summary["verdict"]["details"]) == comparison.verdict
    accuracy = next(card for card in summary["headline"] if "accuracy" in card["name"])
    lca = comparison.result("metric", "lca")
    assert [bar["label"] for bar in accuracy["bars"]][-1] == "LCA"
    assert accuracy["bars"][-1]["mean"] == pytest.approx(lca.main.mean)
    assert accuracy["change"]["low"] == pytest.approx(lca.difference.low, rel=1e-6)
    names = [card["name"] for card in summary["headline"]]
    assert "Recall@1" in names
    assert "Log-likelihood" in names
    document = report.html()
    body = document[document.index("<body>") :]
    assert body.index("A learned metric helps here") < body.index("<section")
    for curve, result in zip(summary["purity"]["curves"], comparison.metrics, strict=True):
        np.testing.assert_allclose(curve["values"], result.curve, rtol=1e-4)


def test_views_are_honest_planes(machine, report):
    """The plane is that of a metric fitted to the training rows only; neighbours are those of its full image."""
    X, y, _ = machine
    seen = report.summary["views"]
    codes = np.unique(y, return_inverse=True)[1]
    train, test = views.split_rows(len(X), codes, 4000, 0)
    assert set(train) | set(test) == set(range(240))
    np.testing.assert_array_equal(np.flatnonzero(seen["held_out"]), test)
    values = X.to_numpy()
    scaler = StandardScaler().fit(values[train])
    plane = PCA(2).fit(scaler.transform(values[train])).transform(scaler.transform(values))
    before = seen["planes"][seen["before"]]
    assert (before["label"], seen["planes"][seen["after"]]["label"]) == ("z-scored", "LCA")
    assert [shown["name"] for shown in seen["planes"]] == ["z-scored", "lca", "euclidean"]  # any of them can be chosen
    np.testing.assert_allclose(np.abs(before["points"]), np.abs(plane), rtol=1e-3, atol=1e-4)
    near = NearestNeighbors(n_neighbors=10).fit(scaler.transform(values)).kneighbors(return_distance=False)
    np.testing.assert_array_equal(before["neighbors"], near)
    raw = NearestNeighbors(n_neighbors=10).fit(values).kneighbors(return_distance=False)
    np.testing.assert_array_equal(seen["planes"][2]["neighbors"], raw)
    np.testing.assert_allclose(seen["values"], values, rtol=1e-3)
    assert seen["classes"] == ["failing", "hot", "idle", "running"]


def test_the_plane_before_is_that_of_the_best_plain_metric():
    """The baseline used to be the better of Euclidean and z-scored distance, which made the change look larger."""
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = rng.normal(size=(90, 4)) + np.outer(y, [0.0, 0.0, 1.5, 1.5])
    X[:, 0] += 8 * X[:, 2]  # LDA takes this away
    comparison = vicinal.compare(X, y, metrics=["euclidean", "z-scored", "lda", "rca"], densities=[], n_repeats=1)
    assert comparison.reference["metric"] == "lda"
    seen = vicinal.report(X, y, comparison=comparison).summary["views"]
    assert seen["planes"][seen["before"]]["label"] == "LDA"
    assert {plane["name"] for plane in seen["planes"]} == {"euclidean", "z-scored", "lda", "rca"}


def test_unusual_rows_are_drawn_and_lead_to_each_other(report):
    seen, rows = report.summary["views"], report.summary["outliers"]["rows"]
    assert {int(i): rows[place]["row"] for i, place in seen["unusual"].items()} == {
        row["position"]: row["row"] for row in rows
    }
    drawn, _ = views.shown_rows(5000, np.arange(1500), 0, [17, 4999, 4000])
    assert len(drawn) == views.MOST_POINTS
    assert {17, 4000, 4999} <= set(drawn)


def test_one_minus_sign_and_dips_that_are_explained(report):
    document = re.sub(r"<(style|script|pre).*?</\1>", "", report.html(), flags=re.DOTALL)
    texts = re.findall(r">([^<>]+)<", document)
    assert any("\u2212" in text for text in texts)
    assert [text for text in texts if re.search(r"(?<![\w.])-[0-9]", text)] == []
    assert with_minus("row-1 2020-01-05") == "row-1 2020-01-05"  # names and dates have hyphens
    assert with_minus("-1 (-2.5)") == "\u22121 (\u22122.5)"
    path = {"label": "NCA", "values": [0.1, 0.3, 0.2, 0.4], "converged": True}
    assert "Where the curve dips, a step did not improve the objective" in with_path(report, path)
    assert "dips" not in with_path(report, {**path, "values": [0.1, 0.2, 0.4]})


def with_path(report, path):
    """The page of a report with another curve of the objective."""
    return type(report)({**report.summary, "path": path}).html()


def test_names_of_rows_classes_and_columns_keep_their_hyphens(machine):
    # All of them once got a minus sign, and "Find row" then did not accept what the page showed.
    X, _, comparison = machine
    renamed = X.set_axis([f"-{i}" for i in range(8)], axis=1)
    y = np.where(np.arange(240) % 2, "-1", "-2")
    page = vicinal.report(renamed, y, comparison=comparison, row_names=-np.arange(240)).html()
    rows = re.findall(r'<span class="row-name">(.*?)</span>', page)
    assert len(rows) == 10
    assert all(re.fullmatch(r"-\d+", name) for name in rows)
    columns = re.findall(r'<th scope="row">([^<]*)</th><td class="bars">', page)
    assert sorted(columns, reverse=True) == [f"-{i}" for i in range(7, -1, -1)]
    assert "<strong>Classes:</strong> -1 (120), -2 (120)" in page


def test_page_shows_the_next_step_which_is_a_plain_method_if_no_learned_one_helped(report):
    assert (
        '<p class="next">Next: <code>comparison.estimator(&#39;metric&#39;, &#39;lca&#39;).fit(X, y)</code></p>'
        in report.html()
    )
    X, y = make_machine_states(60, random_state=0)
    plain = vicinal.compare(X, y, metrics=["euclidean"], densities=[], n_repeats=1)
    assert not plain.has_next_step
    page = vicinal.report(X, y, comparison=plain).html()
    assert "Next: <code>comparison.estimator(&#39;metric&#39;, &#39;euclidean&#39;).fit(X, y)</code>" in page


def test_learned_metric_and_relevance_literally(machine, report):
    X, y, _ = machine
    codes = np.unique(y, return_inverse=True)[1]
    train, _ = views.split_rows(len(X), codes, 4000, 0)
    scaler = StandardScaler().fit(X.to_numpy()[train])
    lca = vicinal.LCA(tol=1e-5, random_state=0).fit(scaler.transform(X.to_numpy()[train]))
    M = lca.get_mahalanobis_matrix()
    shares = {entry["name"]: entry["after"] for entry in report.summary["metric"]["relevance"]}
    np.testing.assert_allclose([shares[name] for name in X], np.diag(M) / np.trace(M), rtol=1e-3)
    order = [list(X).index(name) for name in report.summary["metric"]["columns"]]
    np.testing.assert_allclose(report.summary["metric"]["matrix"], M[np.ix_(order, order)] / np.abs(M).max(), atol=1e-3)
    np.testing.assert_allclose(report.summary["path"]["values"], lca.objectives_, rtol=1e-5)


def test_outliers_are_left_out_scores():
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(99, 2)) * [100.0, 0.1], [[900.0, 0.0]]])
    comparison = vicinal.compare(X, densities=["gaussian", "lca"], n_repeats=1)
    found = vicinal.report(X, comparison=comparison, row_names=[f"r{i}" for i in range(100)]).summary["outliers"]
    first = found["rows"][0]
    assert first["row"] == "r99"
    assert first["p_value"] == 0.01
    assert first["outlier"]
    low, high, value = re.fullmatch(r"x0: expected (-\d+) to (\d+), got (\d+)", first["why"][0]).groups()
    assert -400 < float(low) < float(high) < 400
    assert value == "900"
    assert found["flagged"] == 1
    assert all(row["why"] for row in found["rows"])  # although one of them alone is flagged
    assert first["log_density"] < found["typical"] - 5


def test_without_classes():
    X = make_slanted_bars(150, random_state=0)[0]
    few = {"densities": ["gaussian", "parzen-loo", "lca"], "n_repeats": 1, "n_splits": 2}
    report = vicinal.report(X, comparison=vicinal.compare(X, **few))
    summary = report.summary
    assert summary["verdict"]["text"] == "A learned density helps here."
    assert summary["purity"] is None
    assert summary["views"]["codes"] is None
    assert summary["views"]["planes"][summary["views"]["after"]]["label"] == "LCA"
    document = report.html()
    Outline(document)
    assert "Neighbour purity" not in document
    assert "    X,\n    densities=" in summary["code"]


def test_a_metric_of_ones_own():
    X, y = make_machine_states(150, random_state=0)
    comparison = vicinal.compare(
        X, y, metrics={"mine": vicinal.NCA(n_components=2, random_state=0)}, densities=[], n_repeats=1
    )
    report = vicinal.report(X, y, comparison=comparison)
    summary = report.summary
    assert summary["views"]["planes"][summary["views"]["after"]]["label"] == "mine"
    assert summary["outliers"] is None
    Outline(report.html())


def test_nothing_worked_is_a_report_too():
    X, y = make_machine_states(60, random_state=0)
    comparison = vicinal.compare(X, y, metrics=["euclidean"], densities=["gaussian"], n_repeats=1)
    report = vicinal.report(X, y, comparison=comparison)
    assert "There is no verdict" in report.summary["verdict"]["text"]
    Outline(report.html())


def test_texts_of_the_data_stay_texts():
    """Titles, names, classes, rows and notes full of markup: no new element, no new attribute, no lost character.

    Line separators and marks that turn the text around are shown as escapes.
    """
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 2)), columns=[EVIL, "b<i>"])
    y = np.where(np.arange(60) % 2, EVIL, "<b>bold</b>")
    comparison = vicinal.compare(X, y, **{**FEW, "densities": ["gaussian", "lca"], "n_splits": 2})
    arguments = {
        "row_names": [f"{EVIL}{i}" for i in range(60)],
        "notes": [EVIL],
        "loading": f"# {SHOWN}",
    }
    evil = vicinal.report(X, y, comparison=comparison, title=EVIL, **arguments)
    tame = vicinal.report(
        X.to_numpy(),
        np.where(np.arange(60) % 2, "p", "q"),
        comparison=comparison,
        feature_names=["a", "b"],
        notes=["x"],
        loading="# x",
    )
    found, expected = Outline(evil.html()), Outline(tame.html())
    assert found.tags == expected.tags
    assert "img" not in found.tags
    assert not any(name.startswith("on") for name, _ in found.attributes)
    assert evil.html().count("<script") == 2
    assert SHOWN in found.texts
    assert not set(evil.html()) & set("\u2028\u202e")
    block = re.search(r'<script type="application/json" id="views">(.*?)</script>', evil.html(), re.DOTALL)[1]
    assert "<" not in block
    assert json.loads(block)["columns"][0] == SHOWN
    assert json.loads(block)["rows"][3] == f"{SHOWN}3"


def test_one_self_contained_document(report):
    document = report.html()
    outline = Outline(document)
    assert document.startswith("<!doctype html>")
    assert "default-src 'none'" in document
    for name, value in outline.attributes:
        if name in ("src", "href"):
            assert value.startswith(("#", "data:")), value
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", document)
    assert len(document) < 3_000_000
    assert "prefers-color-scheme: dark" in document
    headings = [int(tag[1]) for tag in outline.tags if re.fullmatch(r"h[1-6]", tag)]
    assert headings.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(headings))
    for attributes in re.findall(r"<svg ([^>]*)>", document):
        assert 'aria-label="' in attributes


@pytest.mark.slow
def test_size_stays_small_for_many_rows_and_columns():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 60))
    y = rng.integers(15, size=3000)
    comparison = vicinal.compare(X, y, metrics=["euclidean", "rca"], densities=[], n_repeats=1, n_splits=2)
    report = vicinal.report(X, y, comparison=comparison)
    assert len(report.summary["views"]["rows"]) == views.MOST_POINTS
    assert "1,000 of 3,000 rows are drawn" in report.html()
    assert len(report.html()) < 3_000_000


def test_json_save_and_notebook(report, tmp_path):
    assert json.loads(report.json()) == json.loads(json.dumps(report.summary))
    report.save(tmp_path / "r.html")
    assert (tmp_path / "r.html").read_text(encoding="utf-8") == report.html()
    report.save(tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["title"] == "machine"
    shown = report._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert "<script" not in shown
    assert "A learned metric helps here" in repr(report)


@pytest.mark.slow
def test_defaults_run_the_comparison():
    X, y = load_wine(return_X_y=True, as_frame=True)
    told = []
    report = vicinal.report(X[["alcohol", "hue"]], y, fast=True, progress=lambda *step: told.append(step))
    assert told
    assert report.summary["data"]["names"] == ["alcohol", "hue"]
    assert len(report.summary["metrics"]) == 8
    assert len(report.summary["densities"]) == 7


def test_bad_input(machine):
    X, y, comparison = machine
    with pytest.raises(ValueError, match="same X"):
        vicinal.report(X.iloc[:, :3], y, comparison=comparison)
    with pytest.raises(ValueError, match="row_names must hold one name per row"):
        vicinal.report(X, y, comparison=comparison, row_names=[1, 2])
    with pytest.raises(ValueError, match="feature_names must hold one name per column"):
        vicinal.report(X, y, comparison=comparison, feature_names=["a"])


def code_of(path):
    """The Python code that a report shows."""
    outline = Outline(path.read_text(encoding="utf-8"))
    return next(text for text in outline.texts if "comparison = vicinal.compare(" in text)


@pytest.mark.filterwarnings("ignore:6 of 7 directions are kept")  # both columns of a colour
@pytest.mark.parametrize(
    "ending", ["csv", *(pytest.param(ending, marks=pytest.mark.slow) for ending in ("npz", "parquet"))]
)
def test_the_code_in_the_report_runs_and_says_the_same(tmp_path, monkeypatch, capsys, ending):
    monkeypatch.chdir(tmp_path)
    X, y = make_machine_states(120, random_state=0)
    frame = pd.DataFrame(X[:, :4], columns=["a", "b", "c", "d"])
    frame["e"] = X[:, 4]
    if ending != "npz":
        frame.loc[5, "e"] = np.nan
        frame["colour"] = np.where(np.arange(120) % 3 == 0, "red", "blue")
        frame["same"] = 1.0
    frame["y"] = y
    frame.insert(0, "id", np.arange(120))
    if ending == "csv":
        frame.to_csv("data.csv", index=False)
    elif ending == "parquet":
        frame.to_parquet("data.parquet")
    else:
        np.savez("data.npz", X=frame.drop(columns="y").to_numpy(), names=list(frame.columns[:-1]), y=y)
    methods = "euclidean,z-scored,rca,gaussian"
    options = [
        "--target",
        "y",
        "--drop",
        "id",
        "--one-hot",
        "--missing",
        "drop",
        "--methods",
        methods,
        "--repeats",
        "1",
        "-q",
    ]
    assert main(["compare", f"data.{ending}", *options, "--report", "report.html"]) == 0
    said = capsys.readouterr().out
    code = code_of(tmp_path / "report.html") + "print(metric.transform(X).shape[0] == len(y))\n"
    if ending == "csv":  # as a script, once
        (tmp_path / "again.py").write_text(code)
        done = subprocess.run([sys.executable, "again.py"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert without_next(done.stdout) == without_next(said) + "True\n"
        return
    exec(code, {})
    assert without_next(capsys.readouterr().out) == without_next(said) + "True\n"


def several_data_sets():
    """Data of every kind that changes the code."""
    rng = np.random.default_rng(5)
    states, labels = make_machine_states(90, random_state=1)
    wide = np.hstack([states, rng.normal(size=(90, 60))]) * rng.uniform(0.1, 10.0, size=68)
    states = states[:, :5]
    small = rng.normal(size=(80, 3)) * [0.1, 3.0, 3.0]
    numbers = np.sin(15.0 * small[:, 0]) + 0.05 * rng.normal(size=80)
    dependent = np.column_stack([small, small.sum(axis=1)])
    few = {"n_repeats": 1, "n_splits": 2}
    yield "labels", states, labels, few
    yield "text labels, LCA", states, labels, {**few, "metrics": ["z-scored", "lca"], "n_neighbors": 3}  # fmt: skip
    nca, lca = {"metrics": ["z-scored", "nca"]}, {"metrics": ["z-scored", "lca"]}
    yield "many columns", wide, labels, {**few, **nca, "densities": ["gaussian", "manifold-parzen"]}  # fmt: skip
    yield "many columns, LCA", wide, labels, {**few, **lca, "densities": ["gaussian", "lca-gauss"]}  # fmt: skip
    yield "numbers", small, numbers, few
    yield "numbers, RCA", small, numbers, {**few, "metrics": ["z-scored", "rca"], "densities": ["gaussian", "manifold-parzen"]}  # fmt: skip
    yield (
        "labels, densities only",
        states,
        labels,
        {**few, "metrics": [], "densities": ["gaussian", "lca"]},
    )
    yield "no labels", states, None, few
    yield "no labels, dependent columns", dependent, None, {**few, "densities": ["gaussian", "manifold-parzen"], "random_state": 7}  # fmt: skip
    yield "an engine", states, labels, {**few, "metrics": ["z-scored", "nca"], "densities": ["gaussian", "lca"], "engine": vicinal.Engine("reference", threads=1)}  # fmt: skip
    own = {
        "metrics": {"mine": make_pipeline(StandardScaler(), vicinal.NCA(2, max_iter=500, random_state=0))},
        "densities": {"ours\n": vicinal.ParzenWindows(np.full(5, 0.5))},
    }
    yield "estimators of one's own", states, labels, {**few, **own}


DATA_SETS = {name: rest for name, *rest in several_data_sets()}
# The default run has the three cases of what was once lost, a number and no labels; slow tests run the others.
LONGER = {
    "labels",
    "many columns, LCA",
    "numbers",
    "no labels",
    "an engine",
    "labels, densities only",
    "estimators of one's own",
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LONGER else []) for name in DATA_SETS]
)
def test_the_printed_models_are_those_that_were_compared(name, capsys):
    """The code is run, and its models are cross-validated by scikit-learn on the folds of the comparison: they reach
    the figures of the report, fold by fold.
    """
    X, y, settings = DATA_SETS[name]
    comparison = vicinal.compare(X, y, **settings)
    code = vicinal.report(X, y, comparison=comparison).summary["code"]
    assert "._" not in code  # public names only
    namespace = {"X": X, "y": y, "array": np.array, "Pipeline": Pipeline, "StandardScaler": StandardScaler}
    namespace |= {"NCA": vicinal.NCA, "ParzenWindows": vicinal.ParzenWindows}
    exec(code, namespace)
    assert capsys.readouterr().out == f"{comparison}\n"
    numbers, seed = comparison.task == "numbers", settings.get("random_state", 0)
    splitter = RepeatedKFold if y is None or numbers else RepeatedStratifiedKFold
    folds = list(splitter(n_splits=2, n_repeats=1, random_state=seed).split(X, y))
    if comparison.metrics:
        best = comparison.result("metric", comparison.best["metric"])
        neighbors = (KNeighborsRegressor if numbers else KNeighborsClassifier)(comparison.n_neighbors)
        model = make_pipeline(namespace["metric"], neighbors)
        scores = []
        for train, test in folds:
            predicted = clone(model).fit(X[train], y[train]).predict(X[test])
            error = np.mean((predicted - y[test]) ** 2) / np.var(y[train]) if numbers else np.mean(predicted != y[test])
            scores.append(1.0 - error)
        np.testing.assert_allclose(scores, best.scores["r2" if numbers else "accuracy"], rtol=1e-9)
    best = comparison.result("density", comparison.best["density"])
    scores = []
    for train, test in folds:
        density = clone(namespace["density"]).fit(X[train])
        scores.append(density.score_samples(X[test]).mean() - np.log(density[0].scale_).sum())
    np.testing.assert_allclose(scores, best.scores["log_likelihood"], rtol=1e-9)


def test_the_code_says_where_the_folds_differ_from_a_fit_to_all_rows():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), rng.integers(2, size=200)
    comparison = vicinal.compare(
        X, y, metrics=["z-scored", "lca"], densities=["gaussian", "lca"], n_repeats=1, fit_rows=100
    )
    code = vicinal.report(X, y, comparison=comparison).summary["code"]
    assert code.count("# (the comparison fitted it to 100 of the training rows of each fold)\n") == 2


def test_the_code_runs_where_every_row_has_a_twin(capsys):
    """LCA had an answer in the folds, which part twins, and none for all rows before it chose its own penalty."""
    X = np.repeat(np.random.default_rng(0).normal(size=(60, 3)), 2, axis=0)
    comparison = vicinal.compare(X, densities=["gaussian", "lca"], n_repeats=1, n_splits=2)
    code = vicinal.report(X, comparison=comparison).summary["code"]
    namespace = {"X": X}
    exec(code, namespace)
    assert capsys.readouterr().out == f"{comparison}\n"
    assert namespace["density"][-1].reg == "auto"


def demo_writes_its_files(folder, capsys):
    """Run the demonstration in a folder; return the code of its report and its output."""
    assert main(["demo", "-q"]) == 0
    said = capsys.readouterr().out
    assert "Parzen windows, Scott's rule" in said
    assert "5-nearest-neighbour accuracy" in said
    assert sorted(path.name for path in folder.iterdir()) == ["vicinal-demo.html", "vicinal-demo.png"]
    assert (folder / "vicinal-demo.png").read_bytes().startswith(b"\x89PNG")
    code = code_of(folder / "vicinal-demo.html")
    assert "vicinal._" not in code  # what a reader copies uses public names only
    return code, said


def test_demo_runs_on_few_rows(tmp_path, monkeypatch, capsys):
    """The same commands as in the demonstration, on smaller data and with fewer methods."""
    from vicinal.cli import demo

    def few(X, y, *more, **settings):
        settings.setdefault("densities", ["gaussian", "lca"])
        metrics = {} if y is None else {"metrics": ["euclidean", "z-scored", "rca"]}
        return run(X, y, *more, **{**settings, **metrics, "n_splits": 2})

    run = demo.run
    monkeypatch.setattr(demo, "run", few)
    for name, make, size in (("slanted_bars", make_slanted_bars, 80), ("machine_states", make_machine_states, 120)):
        smaller = partial(make, size)
        monkeypatch.setattr(f"vicinal.datasets.make_{name}", smaller)
    monkeypatch.chdir(tmp_path)
    demo_writes_its_files(tmp_path, capsys)


@pytest.mark.slow
def test_demo_writes_its_files_and_speaks(whole_search, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, said = demo_writes_its_files(tmp_path, capsys)
    assert "The density of LCA at an unseen row is" in said
    assert "LCA helped: held-out 5-nearest-neighbour accuracy rose from" in said
    loading = code[: code.index("# the figures of this report")]
    namespace: dict = {}
    exec(loading, namespace)
    X, y = make_machine_states(random_state=0)
    np.testing.assert_array_equal(namespace["X"].to_numpy(), X)
    np.testing.assert_array_equal(namespace["y"], y)


def test_demo_picture_is_drawn_from_the_densities(tmp_path):
    X = make_slanted_bars(60, random_state=0)[0]
    with open(tmp_path / "p.png", "wb") as file:
        draw_densities(X, [vicinal.ParzenWindows("scott").fit(X)], ["one"], file)
    assert (tmp_path / "p.png").stat().st_size > 5000


def test_nice_ticks():
    np.testing.assert_allclose(nice_ticks(0, 1), [0, 0.2, 0.4, 0.6, 0.8, 1.0])
    np.testing.assert_allclose(nice_ticks(-31.5, -22.2), [-30, -28, -26, -24])
    assert nice_ticks(3, 3) == [3]


@pytest.mark.parametrize("metric", ["rca", pytest.param("nca", marks=pytest.mark.slow), "pls"])
def test_a_numeric_target_has_a_report_and_code_that_runs(tmp_path, monkeypatch, capsys, metric):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(80, 3)) * [0.1, 3.0, 3.0], columns=["a", "b", "c"])
    X.assign(price=np.round(10.0 * X["a"] + 20.0, 3)).to_csv(tmp_path / "data.csv", index=False)
    monkeypatch.chdir(tmp_path)
    chosen = f"euclidean,z-scored,{metric}" + (",rca" if metric == "pls" else "")
    arguments = ["--target", "price", "--methods", chosen, "--repeats", "1", "-q"]
    assert main(["compare", "data.csv", *arguments, "--report", "r.html"]) == 0
    said = capsys.readouterr().out
    assert "5-nearest-neighbour R²" in said
    document = (tmp_path / "r.html").read_text(encoding="utf-8")
    outline = Outline(document)
    assert "5-nearest-neighbour R²" in document
    assert any(text.startswith("target from") for text in outline.texts)
    assert "purity" not in document[: document.index("<footer>")].split("</style>")[1]
    exec(code_of(tmp_path / "r.html") + "print(metric.transform(X).shape[0] == len(y))\n", {})
    assert without_next(capsys.readouterr().out) == without_next(said) + "True\n"


def test_the_views_of_a_numeric_target_carry_its_values():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = X[:, 0] + 0.1 * rng.normal(size=60)
    comparison = vicinal.compare(X, y, metrics=["euclidean", "nca"], densities=[], n_repeats=1)
    summary = vicinal.report(X, y, comparison=comparison).summary
    assert summary["views"]["codes"] is None
    np.testing.assert_allclose(summary["views"]["targets"], y, rtol=1e-4)
    assert summary["headline"][0]["name"] == "5-nearest-neighbour R²"
    assert summary["metric"]["label"] == "NCA"


def _contrast(one, other):
    """The contrast ratio of two colours by WCAG 2, 1 to 21."""

    def luminance(colour):
        parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        return np.where(parts <= 0.03928, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def test_colours_can_be_read_in_light_and_dark(report):
    """WCAG 2 level AA: 4.5 for text, 3 for what carries meaning in a picture or marks a control."""
    style = report.html().split("<style>")[1].split("</style>")[0]
    light, dark = (dict(re.findall(r"--(\w[\w-]*): (#[0-9a-f]{6})", block)) for block in style.split(":root {")[1:3])
    assert len(light) > 20
    assert set(light) == set(dark)
    grounds = ("paper", "card")
    texts = [
        (ink, ground) for ink in ("ink", "soft", "accent", "link", "good", "bad", "even", "c0") for ground in grounds
    ]
    texts += [(name, f"{name}-soft") for name in ("good", "bad", "even")]
    texts += [("ink", "accent-soft"), ("ink", "good-soft"), ("ink", "bad-soft"), ("ink", "even-soft")]
    pictures = [*(f"c{i}" for i in range(10)), "low", "high", "plain", "accent", "minus"]
    for palette in (light, dark):
        for ink, ground in texts:
            assert _contrast(palette[ink], palette[ground]) >= 4.5, (ink, ground)
        for name in pictures:
            for ground in grounds:
                assert _contrast(palette[name], palette[ground]) >= 3.0, (name, ground)
    # A control's edge is what tells it from text.
    assert re.search(r"\nbutton \{[^}]*border: 1px solid var\(--plain\)", style)
    assert re.search(r"\ninput \{[^}]*border: 1px solid var\(--plain\)", style)


def test_the_document_makes_sense_without_sight_or_mouse(report):
    document = report.html()
    assert '<html lang="en">' in document
    levels = [int(level) for level in re.findall(r"<h([1-6])", document)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))  # no level is skipped
    ids = re.findall(r' id="([^"]+)"', document)
    assert len(ids) == len(set(ids))
    for target in re.findall(r'(?:href="#|aria-labelledby=")([^"]+)"', document):
        assert target in ids
    for tag in re.findall(r"<svg[^>]*>", document):  # every picture says what it shows
        assert re.search(r'role="(img|group)"', tag)
        assert re.search(r'aria-label="[^"]{10,}"', tag)
    for tag in re.findall(r"<table.*?</table>", document, re.DOTALL):
        assert "<caption" in tag
        assert 'scope="row"' in tag
    for tag in re.findall(r'<(?:div class="scroll"|pre)[^>]*>', document):  # what scrolls can be reached by keys
        assert 'tabindex="0"' in tag
        assert "aria-label" in tag
    assert re.search(r"<label>[^<]*<input", document)
    assert re.search(r"Neighbour purity.*?aria-label=\"[^\"]*LCA \d+\.\d % at k = 1", document, re.DOTALL)


def test_dates_levels_and_logarithms_are_shown_as_in_the_table():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "day": pd.date_range("2023-03-01", periods=90, freq="13D").strftime("%Y-%m-%d"),
            "income": np.round(np.exp(rng.normal(8, 1, 90))),
            "colour": rng.choice(["red", "green"], 90),
            "width": rng.normal(size=90),
        }
    )
    table.loc[7, "day"] = "1999-12-31"
    settings = {"densities": ["gaussian", "lca-gauss"], "log": ["income"], "n_repeats": 1, "n_splits": 3}
    comparison = vicinal.compare(table, table["width"] > 0, metrics=["z-scored", "rca"], **settings)
    summary = vicinal.report(table, table["width"] > 0, comparison=comparison).summary
    shown = [dict(zip(summary["views"]["columns"], row, strict=True)) for row in summary["views"]["values"]]
    for i, row in enumerate(shown):
        assert row["day"] == table["day"][i]
        assert row["colour"] == table["colour"][i]
        assert float(row["income"].replace(",", "")) == pytest.approx(table["income"][i], abs=1)
    reasons = {row["row"]: row["why"] for row in summary["outliers"]["rows"]}
    assert any(
        re.match(r"day: expected 20\d\d-\d\d-\d\d to 20\d\d-\d\d-\d\d, got 1999-12-31", why) for why in reasons["7"]
    )
