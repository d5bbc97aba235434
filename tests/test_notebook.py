"""Test the notebook display: its facts are true, texts are escaped, and nothing is shown before the fit."""

import html.parser
import inspect
import re
import xml.etree.ElementTree as ET

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import BaseEstimator

import vicinal
from vicinal._notebook import NotebookMixin, fitted_html, sparkline

EVIL = "<script>window.hacked=1</script>"


def estimator_classes():
    return [
        found
        for module in (vicinal, vicinal.companions)
        for name in module.__all__
        if name != "NeuralNCA"  # needs torch
        and inspect.isclass(found := getattr(module, name))
        and issubclass(found, BaseEstimator)
    ]


@pytest.mark.parametrize("cls", estimator_classes(), ids=lambda cls: cls.__name__)
def test_every_estimator_has_the_mixin_before_scikit_learns_own(cls):
    order = cls.__mro__
    assert order.index(NotebookMixin) < order.index(BaseEstimator)


@pytest.fixture(scope="module")
def lca():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 3)) * [1, 5, 0.2], columns=["a", EVIL, "c"])
    return vicinal.LCA(reg=0.1).fit(X)


def test_a_stochastic_fit_that_was_chosen_automatically_is_displayed(lca, monkeypatch):
    assert "stochastic" not in fitted_html(lca)
    monkeypatch.setattr("vicinal._lca.base.EXACT_PAIRS", 100)
    monkeypatch.setattr("vicinal._lca.lca.exact_is_affordable", lambda *arguments: False)
    chosen = vicinal.LCA(reg=0.1, random_state=0).fit(np.random.default_rng(0).normal(size=(300, 3)))
    assert chosen.solver_ == "stochastic"
    assert "solver: stochastic, which is not exact" in fitted_html(chosen)


def test_facts_of_a_fit(lca):
    shown = lca._repr_mimebundle_()["text/html"]
    assert shown.startswith("<div")
    assert "<b>LCA</b>" in shown
    assert f"converged after {lca.n_iter_} passes" in shown
    assert "3 directions of 3 columns" in shown
    assert f"effective neighbours: {np.median(lca.effective_neighbors_):.3g}" in shown
    assert EVIL not in fitted_html(lca)
    assert "&lt;script&gt;" in fitted_html(lca)
    # In standard deviations: in units of the columns, one in millimetres would count a million times what it does in metres.
    squares = np.square(lca.components_ * lca.mixture_.centres.std(axis=0)).sum(axis=0)
    shares = squares / squares.sum()
    assert "share of one standard deviation of each column in the squared distance" in fitted_html(lca)
    assert [float(text) for text in re.findall(r">([0-9.]+) %<", fitted_html(lca))] == pytest.approx(
        100 * np.sort(shares)[::-1], abs=0.06
    )
    ET.fromstring(f"<all>{fitted_html(lca)}</all>")  # well-formed
    with config_context(display="text"):
        assert "text/html" not in lca._repr_mimebundle_()


def test_names_that_turn_the_text_around_are_escaped():
    rows = np.random.default_rng(0).normal(size=(30, 2))
    page = fitted_html(vicinal.RCA().fit(pd.DataFrame(rows, columns=["a\u202eb\x1b", "<b>\u2028"]), np.arange(30) % 2))
    assert "a\\u202eb\\u001b" in page
    assert "&lt;b&gt;\\u2028" in page
    assert not set(page) & set("\u202e\u2028\x1b")


def test_nothing_before_the_fit_and_a_warning_after_one_that_failed():
    assert fitted_html(vicinal.LCA()) == ""
    assert vicinal.LCA()._repr_mimebundle_()["text/html"]
    X = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.warns(Warning, match="did not converge"):
        short = vicinal.LCA(reg=0.1, max_iter=2).fit(X)
    assert "did NOT converge: it stopped after 2 passes" in fitted_html(short)


def test_densities_detectors_and_clusters():
    X = np.random.default_rng(0).normal(size=(40, 2))
    detector = vicinal.DensityOutlierDetector(vicinal.ParzenWindows(0.5)).fit(X)
    assert f"{(detector.labels_ == -1).sum()} of 40 training rows are outliers" in fitted_html(detector)
    clusters = vicinal.ParzenMeanShift(vicinal.ParzenWindows(2.0)).fit(X)
    assert f"{len(np.unique(clusters.labels_))} clusters of 40 rows" in fitted_html(clusters)
    rca = vicinal.RCA().fit(X, np.arange(40) % 2)
    assert "2 directions of 2 columns" in fitted_html(rca)


class Tags(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)

    def handle_data(self, text):
        self.text += text


def test_a_comparison():
    rng = np.random.default_rng(0)
    X, y = pd.DataFrame(rng.normal(size=(40, 2)), columns=[EVIL, "b"]), np.array([EVIL, "no"])[np.arange(40) % 2]
    comparison = vicinal.compare(X, y, metrics=["euclidean", "rca"], densities=["gaussian"], n_splits=2, n_repeats=1)
    found = Tags(comparison._repr_html_())
    assert "script" not in found.tags
    assert comparison.verdict in found.text
    for result in [*comparison.metrics, *comparison.densities]:
        assert result.label in found.text
    assert found.tags.count("table") == 2
    assert sparkline([1.0], "x") == sparkline([np.nan, np.inf], "x") == ""


def test_what_was_found_in_a_table_and_in_a_search():
    """Encoders, dequantizers and imputers showed only the number of their columns; an evaluation had no HTML."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=40), "b": rng.poisson(5.0, size=40), "c": [EVIL, "x"] * 20})
    assert "3 columns: 1 continuous, 1 lattice, 1 category" in fitted_html(vicinal.TableEncoder().fit(table))
    counts = table[["a", "b"]].to_numpy()
    assert "1 of 2 columns are rounded, by steps from 1 to 1" in fitted_html(vicinal.Dequantizer().fit(counts))
    counts[::5, 0] = np.nan
    imputer = vicinal.DensityImputer().fit(counts)
    assert "filled in by LCA: converged after" in fitted_html(imputer)
    assert f"are multiplied by {imputer.draw_scale_:.3g}" in fitted_html(imputer)
    found = vicinal.retrieval.evaluate(None, rng.normal(size=(20, 3)), np.arange(20) % 4)
    shown = found._repr_html_()
    ET.fromstring(shown)
    assert "20 queries, 95 % intervals" in shown
    assert f">{found.mean['recall@10']:.4f}</td>" in shown
