"""Test the comparison: its folds, its arithmetic and its verdicts."""

import json
import warnings
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from needs import needs
from scipy import stats
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.covariance import LedoitWolf
from sklearn.datasets import load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.model_selection import RepeatedKFold, RepeatedStratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import vicinal
from vicinal._compare import folds
from vicinal._compare import kept as kept_outcomes
from vicinal._compare.folds import RECALL_AT, Outcome, neighbor_scores
from vicinal._compare.independent import IndependentColumns
from vicinal._compare.intervals import corrected_interval
from vicinal._compare.methods import metric_names
from vicinal._compare.rows import read_targets
from vicinal._detect.steps import flat_steps

PLAIN = ["euclidean", "z-scored", "pca-whitened", "lda"]
pytestmark = pytest.mark.usefixtures("short_search_in_this_file")


def nuisance_data(n=300, seed=0):
    """Three classes along the difference of two columns, under a strong nuisance that both columns share."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    nuisance = 8 * rng.normal(size=n)
    return np.column_stack([1.5 * y + 0.3 * rng.normal(size=n) + nuisance, nuisance, rng.normal(size=n)]), y


def test_scores_are_those_of_scikit_learn():
    """Accuracy of each metric = cross_val_score of the pipeline that a user would write."""
    X, y = load_wine(return_X_y=True)
    result = vicinal.compare(
        X, y, metrics=["euclidean", "z-scored", "rca"], densities=[], n_neighbors=5, n_repeats=2, random_state=7
    )
    folds = RepeatedStratifiedKFold(n_splits=5, n_repeats=2, random_state=7)
    for name, steps in (
        ("euclidean", []),
        ("z-scored", [StandardScaler()]),
        ("rca", [StandardScaler(), vicinal.RCA()]),
    ):
        pipeline = make_pipeline(*steps, KNeighborsClassifier(5))
        np.testing.assert_allclose(
            result.result("metric", name).scores["accuracy"], cross_val_score(pipeline, X, y, cv=folds)
        )


def test_neighbor_scores_literally():
    rng = np.random.default_rng(0)
    neighbors, labels = rng.integers(3, size=(50, 12)), rng.integers(3, size=50)
    scores, curve = neighbor_scores(neighbors, labels, 4, 3)
    votes = [np.bincount(row[:4], minlength=3).argmax() for row in neighbors]
    assert scores["accuracy"] == np.mean(np.array(votes) == labels)
    for k in RECALL_AT:
        # The share of right neighbours: that one of ten is right was once enough, and 95 % of raw rows had it.
        assert scores[f"recall@{k}"] == pytest.approx(
            np.mean([np.mean(row[:k] == label) for row, label in zip(neighbors, labels, strict=True)])
        )
    assert scores["purity"] == pytest.approx(
        np.mean([np.mean(row[:4] == label) for row, label in zip(neighbors, labels, strict=True)])
    )
    np.testing.assert_allclose(curve[11], np.mean(neighbors == labels[:, None]))


def test_log_likelihood_is_in_the_units_of_the_data():
    """Standardising inside changes nothing: the Gaussian's held-out likelihood is SciPy's, fold by fold."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3)) * [300.0, 0.01, 1.0] + [0, 5, -5]
    result = vicinal.compare(X, densities=["gaussian", "parzen-scott"], n_repeats=1, random_state=3)
    from sklearn.model_selection import RepeatedKFold

    gaussian, scott = [], []
    for train, test in RepeatedKFold(n_splits=5, n_repeats=1, random_state=3).split(X):
        # As the rows have it, or shrunk in units of the columns, whichever held-out training rows prefer.
        mean, scale = X[train].mean(axis=0), X[train].std(axis=0)
        shrunk = LedoitWolf().fit((X[train] - mean) / scale).covariance_ * np.outer(scale, scale)
        candidates = (np.cov(X[train].T, bias=True), shrunk)
        gaussian.append([stats.multivariate_normal(mean, spread).logpdf(X[test]).mean() for spread in candidates])
        scott.append(stats.gaussian_kde(X[train].T, "scott").logpdf(X[test].T).mean())
    found = result.result("density", "gaussian").scores["log_likelihood"]
    assert np.abs(found[:, None] - gaussian).min(axis=1).max() < 2e-5
    np.testing.assert_allclose(result.result("density", "parzen-scott").scores["log_likelihood"], scott, rtol=1e-8)


class Spy(TransformerMixin, BaseEstimator):
    """Keeps what it was fitted to, across clones."""

    seen: ClassVar = []

    def fit(self, X, y=None):
        self.seen.append((np.array(X), None if y is None else np.array(y)))
        self.mean_ = X.mean(axis=0)
        return self

    def transform(self, X):
        return X - self.mean_


def test_nothing_of_a_test_fold_is_ever_fitted():
    """Rows contain their number: each fit gets exactly the raw training rows of its fold."""
    X, y = nuisance_data(60)
    X = np.column_stack([np.arange(60.0), X])
    Spy.seen = []
    vicinal.compare(X, y, metrics={"spy": Spy()}, densities=[], n_splits=4, n_repeats=1, random_state=0)
    folds = list(RepeatedStratifiedKFold(n_splits=4, n_repeats=1, random_state=0).split(X, y))
    assert len(Spy.seen) == 4
    for (rows, labels), (train, _) in zip(Spy.seen, folds, strict=True):
        np.testing.assert_array_equal(rows[:, 0], train)
        np.testing.assert_array_equal(labels, y[train])


def test_intervals_follow_nadeau_and_bengio():
    values = np.array([0.1, 0.3, 0.2, 0.25])
    found = corrected_interval(values, 0.25, level=0.95, n_comparisons=3)
    error = values.std(ddof=1) * np.sqrt(1 / 4 + 0.25)
    reach = stats.t.ppf(1 - 0.05 / 6, 3) * error
    np.testing.assert_allclose(found, [values.mean(), values.mean() - reach, values.mean() + reach])
    assert corrected_interval([0.5, 0.5], 0.25) == (0.5, 0.5, 0.5)
    assert corrected_interval([0.5], 0.25) == (0.5, -np.inf, np.inf)


def test_intervals_seldom_claim_help_where_there_is_none():
    """Two equally good classifiers on fresh data, many times: the corrected interval excludes zero in about 5 %."""

    def accuracy(train, classes, test, truth):
        """Of five neighbours on a line; KNeighborsClassifier's, for a tenth of the time."""
        nearest = np.argsort(np.abs(test[:, None] - train), axis=1)[:, :5]
        return np.mean((classes[nearest].mean(axis=1) > 0.5) == truth)

    rng = np.random.default_rng(0)
    claims = 0
    for _ in range(200):
        X, y = rng.normal(size=(80, 2)), np.repeat([0, 1], 40)
        folds = RepeatedStratifiedKFold(n_splits=5, n_repeats=1, random_state=int(rng.integers(1e6)))
        differences = [
            accuracy(X[a, 0], y[a], X[b, 0], y[b]) - accuracy(X[a, 1], y[a], X[b, 1], y[b])
            for a, b in folds.split(X, y)
        ]
        low, high = corrected_interval(differences, 0.25)[1:]
        claims += low > 0 or high < 0
    assert claims <= 20


def test_help_is_claimed_where_it_is_and_not_where_it_is_not():
    X, y = nuisance_data()
    helpful = vicinal.compare(X, y, metrics=["euclidean", "z-scored", "rca"], densities=[])
    assert helpful.helped["metric"] == "helped"
    assert helpful.verdict.startswith("RCA helped: held-out 5-nearest-neighbour accuracy rose from")
    # labels without meaning, which every metric must fail to predict
    shuffled = np.random.default_rng(1).permutation(y)
    useless = vicinal.compare(X, shuffled, metrics=["euclidean", "z-scored", "rca"], densities=[])
    assert useless.helped["metric"] == "unclear"
    assert useless.verdict.startswith(
        "No metric predicts the target better than its largest class (38.3 %): the best, "
    )
    assert ". RCA did not clearly help:" in useless.verdict
    assert "includes zero" in useless.verdict
    assert useless.largest_class == np.bincount(y).max() / len(y)
    # LDA knows as much as RCA here, and is a plain method: no claim against it
    fair = vicinal.compare(X, y, metrics=["euclidean", "lda", "rca"], densities=[])
    assert fair.reference["metric"] == "lda"
    assert fair.helped["metric"] in ("unclear", "hurt")


@pytest.mark.slow
def test_anisotropic_density_verdict():
    rng = np.random.default_rng(0)
    turn = np.array([[np.cos(0.6), -np.sin(0.6)], [np.sin(0.6), np.cos(0.6)]])
    X = np.concatenate([rng.normal(size=(150, 2)) * [1.5, 0.05] @ turn.T + centre for centre in ([0, 0], [0, 1.0])])
    result = vicinal.compare(X, densities=["gaussian", "parzen-scott", "parzen-loo", "lca"], n_repeats=1, n_splits=3)
    assert result.helped == {"metric": None, "density": "helped"}
    assert result.verdict.startswith("LCA helped: held-out log-likelihood rose from")
    assert result.metrics == []
    assert result.largest_class is None


def test_result_reads_as_text_and_as_plain_values():
    import json

    X, y = load_iris(return_X_y=True)
    result = vicinal.compare(X, y, metrics=["euclidean", "rca"], densities=["gaussian", "lca"], n_repeats=1, n_splits=2)
    text = str(result)
    assert text.startswith(result.verdict)
    assert "5-NN accuracy" in text
    assert "(the best plain one)" in text
    assert "1 of the 150 rows repeat" in text
    plain = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert plain["classes"] == ["0", "1", "2"]
    assert plain["metrics"][0]["intervals"]["accuracy"]["mean"] == pytest.approx(result.metrics[0].main.mean)
    again = vicinal.compare(X, y, **result.settings)
    assert again.to_dict()["metrics"][1]["scores"] == plain["metrics"][1]["scores"]
    with pytest.raises(KeyError, match="there is no metric 'nca'"):
        result.result("metric", "nca")


@pytest.mark.slow
def test_caps_are_kept_and_said():
    X, y = nuisance_data(400)
    told = []
    result = vicinal.compare(
        X, y, metrics=["euclidean", "lca"], densities=["gaussian", "parzen-scott"], max_rows=200, fit_rows=100, n_repeats=1,
        progress=lambda done, total, text: told.append((done, total)),
    )  # fmt: skip
    assert result.n_rows == 200
    assert any("random sample of 200 of the 400 rows" in note for note in result.notes)
    assert any("LCA was fitted to 100 of the 160 training rows" in note for note in result.notes)
    assert any("All densities were fitted to 100 of the 160" in note for note in result.notes)
    assert told[0] == (0, 20)
    assert told[-1] == (20, 20)


@pytest.mark.slow
def test_wide_and_dependent_columns_are_projected_and_said():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 70)) @ PCA().fit(rng.normal(size=(90, 70))).components_
    result = vicinal.compare(X, densities=["gaussian", "lca"], n_repeats=1)
    assert any("Densities used the 18 leading principal components of the 70" in note for note in result.notes)
    assert all(density.failure is None for density in result.densities)
    Y = rng.normal(size=(100, 2))
    result = vicinal.compare(np.column_stack([Y, Y.sum(axis=1)]), densities=["gaussian", "parzen-scott"], n_repeats=1)
    assert any("Densities used the 2 leading principal components of the 3" in note for note in result.notes)


def test_wide_tables_of_few_rows_have_learned_metrics_too():
    """64 components of 40 rows do not exist: every costly metric used to fail on such a table."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 25)
    X = rng.normal(size=(50, 80)) + 2.0 * y[:, None]
    result = vicinal.compare(X, y, metrics=["z-scored", "pca-whitened", "lca", "nca"], densities=[], n_repeats=1)
    assert not any(found.failure for found in result.metrics)
    assert any(
        "NCA and PCA-whitening used the 20 leading principal components of the 80" in note for note in result.notes
    )
    estimator = result.estimator("metric", "nca")
    assert [type(step).__name__ for _, step in estimator.steps] == ["StandardScaler", "PCA", "NCA"]
    assert estimator[1].n_components == 20


def test_networks_are_compared_only_if_they_are_named():
    """Verdicts must not differ between machines with and without torch."""
    X, y = nuisance_data(90)
    everything = vicinal.compare(X, y, densities=[], n_repeats=1, n_splits=2)
    assert "nca" in everything.methods["metric"]
    assert "neural-nca" not in everything.methods["metric"]
    assert "neural-nca" in metric_names()
    needs("torch")
    for target, task in ((y, "classes"), (y + X[:, 2], "numbers")):
        options = {"task": task, "densities": [], "n_repeats": 1, "n_splits": 2}
        result = vicinal.compare(X, target, metrics=["z-scored", "neural-nca"], **options)
        assert result.result("metric", "neural-nca").failure is None
        network = result.estimator("metric", "neural-nca")[-1]
        assert network.objective == ("likelihood" if task == "classes" else "regression")


def test_densities_of_all_folds_see_the_same_number_of_dimensions():
    """A column of few ones is constant in some training folds; log-likelihoods of other dimensions have no common mean."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(60, 2)), np.arange(60) == 7])
    result = vicinal.compare(X, types={2: "continuous"}, densities=["gaussian", "lca"], n_repeats=1)
    assert any("Densities used the 2 leading principal components of the 3" in note for note in result.notes)
    assert all(found.failure is None for found in result.densities)
    expected = []
    for train, test in RepeatedKFold(n_splits=5, n_repeats=1, random_state=0).split(X):
        density = result.estimator("density", "gaussian").fit(X[train])
        assert density[1].n_components_ == 2
        expected.append(density.score_samples(X[test]).mean() - np.log(density[0].scale_).sum())
    np.testing.assert_allclose(result.result("density", "gaussian").scores["log_likelihood"], expected)


def test_own_densities_see_what_the_others_see():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2)) * [100.0, 0.01]
    result = vicinal.compare(X, densities={"scott": vicinal.ParzenWindows("scott")}, n_repeats=1)
    np.testing.assert_array_equal(
        result.result("density", "scott").scores["log_likelihood"],
        result.result("density", "parzen-scott").scores["log_likelihood"],
    )
    assert [type(step).__name__ for _, step in result.estimator("density", "scott").steps] == [
        "StandardScaler",
        "ParzenWindows",
    ]


def test_settings_give_the_same_result_again():
    X, y = nuisance_data(60)
    result = vicinal.compare(
        X,
        y,
        metrics={"mine": vicinal.RCA(n_components=2)},
        densities=["gaussian", "lca"],
        n_repeats=1,
        n_splits=2,
        engine=vicinal.Engine("reference", threads=1),
    )
    again = vicinal.compare(X, y, **result.settings)
    assert str(again) == str(result)
    plain = json.loads(json.dumps(result.to_dict()))["settings"]
    assert plain["metrics"] == {"mine": "RCA(n_components=2)"}
    assert plain["engine"].startswith("Engine(kind='reference', threads=1")


def test_target_of_one_class_is_refused_by_the_name_of_the_parameter():
    with pytest.raises(ValueError, match=r"^y holds only one class, '\{a\}', .* Leave y out"):
        read_targets(np.full(20, "{a}"), 20)


def test_rows_that_all_have_a_twin_are_compared():
    X = np.repeat(np.random.default_rng(0).normal(size=(60, 2)), 2, axis=0)  # every row has a twin
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = vicinal.compare(X, densities=["gaussian", "lca"], n_repeats=1)
    assert result.result("density", "lca").failure is None
    assert any("60 of the 120 rows repeat another row exactly" in note for note in result.notes)


class Unfittable(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        raise ValueError("no luck today")


def test_a_method_that_cannot_be_fitted_is_told_not_hidden():
    X, y = nuisance_data(60)
    result = vicinal.compare(X, y, metrics={"luckless": Unfittable()}, densities=[], n_repeats=1)
    luckless = result.result("metric", "luckless")
    assert luckless.failure == "no luck today"
    assert luckless.intervals == {}
    assert result.helped["metric"] is None
    assert "There is no verdict" in result.verdict
    assert "no luck today" in str(result)


def test_labels_of_every_kind():
    X, y = nuisance_data(60)
    names = np.array(["low", "mid", "high"])[y]
    expected = vicinal.compare(X, y, metrics=["euclidean"], densities=[], n_repeats=1).metrics[0].scores["accuracy"]
    for labels in (y.astype(float), y.tolist(), pd.Series(y), y.astype(np.uint8)):
        found = vicinal.compare(X, labels, metrics=["euclidean"], densities=[], n_repeats=1)
        np.testing.assert_array_equal(found.metrics[0].scores["accuracy"], expected)
    for labels in (names, names.astype(object), pd.Series(names), pd.Series(names, dtype="category")):
        assert vicinal.compare(X, labels, metrics=["euclidean"], densities=[], n_repeats=1).classes == [
            "high",
            "low",
            "mid",
        ]


BAD = [
    ("few rows", {"X": np.eye(3)}, "at least 10 rows, got 3"),
    ("nan", {"X": np.full((20, 2), np.nan)}, "hold no value at all"),
    ("one class", {"y": np.zeros(20)}, "only one class"),
    ("identifier", {"y": np.arange(20)}, "looks like an identifier"),
    ("fractions as classes", {"y": np.linspace(0, 1, 20), "task": "classes"}, "fractional numbers"),
    ("unknown task", {"task": "guess"}, "task must be one of 'auto', 'classes', 'numbers', got 'guess'"),
    (
        "text as numbers",
        {"y": np.array(["a", "b"] * 10), "task": "numbers"},
        "task=.numbers. needs numbers in y, .* Leave task out",
    ),
    ("constant number", {"y": np.full(20, 0.5)}, "nothing to predict"),
    (
        "infinite number",
        {"y": np.r_[np.inf, np.linspace(0, 1, 19)], "task": "numbers"},
        "must hold finite numbers, got 1 of 20 infinite",
    ),
    ("short numbers", {"y": np.linspace(0, 1, 19)}, "y has 19 entries for 20 rows"),
    ("lda of numbers", {"y": np.linspace(0, 1, 20), "metrics": ["lda"]}, "metrics must be among .*pls"),
    ("missing", {"y": np.array([None] + ["a", "b"] * 9 + ["a"], dtype=object)}, "missing labels .*, got 1 of 20"),
    ("short y", {"y": np.zeros(19)}, "y has 19 entries for 20 rows"),
    ("unknown metric", {"metrics": ["magic"]}, "metrics must be among"),
    ("unknown density", {"densities": ["magic"]}, "densities must be among"),
    ("nothing", {"y": None, "densities": []}, "nothing to compare"),
    ("folds", {"n_splits": 1}, "n_splits must be at least 2"),
    ("neighbors", {"n_neighbors": 0}, "n_neighbors must be at least 1"),
    ("repeats", {"n_repeats": 0}, "n_repeats must be at least 1"),
    ("huge", {"X": np.random.default_rng(0).normal(size=(20, 2)) * 1e200}, "overflow"),
]


@pytest.mark.parametrize(("change", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_input(change, message):
    rng = np.random.default_rng(0)
    arguments = {"X": rng.normal(size=(20, 2)), "y": rng.integers(2, size=20), **change}
    with pytest.raises(ValueError, match=message):
        vicinal.compare(arguments.pop("X"), arguments.pop("y"), **arguments)


def test_small_and_unequal_classes():
    rng = np.random.default_rng(0)
    y = np.array([0] * 12 + [1] * 6 + [2])
    result = vicinal.compare(rng.normal(size=(19, 2)), y, metrics=["euclidean", "rca"], densities=[], n_repeats=1)
    assert any("1 class has fewer rows than there are folds" in note for note in result.notes)
    result = vicinal.compare(
        rng.normal(size=(12, 2)), np.repeat(np.arange(4), 3), metrics=["euclidean"], densities=[], n_repeats=1
    )
    assert result.n_folds == 3


def test_words_do_not_round_a_verdict_away():
    from vicinal._compare.intervals import Interval
    from vicinal._compare.words import headline, signed

    assert signed("metric", Interval(0.004, 0.0002, 0.008)) == "+0.40 points (95 % interval +0.02 to +0.80)"
    assert signed("metric", Interval(0.292, 0.151, 0.432)) == "+29.2 points (95 % interval +15.1 to +43.2)"
    assert signed("density", Interval(0.0, 0.0, 0.0)) == "+0.00 nats (95 % interval +0.00 to +0.00)"
    assert headline({"metric": "unclear", "density": "helped"}) == (
        "A learned metric does not clearly help here; a learned density helps."
    )
    assert headline({"metric": None, "density": "hurt"}) == "A learned density does not help here."


def test_a_sure_small_gain_does_not_hide_a_larger_unsure_one():
    from types import SimpleNamespace

    from vicinal._compare.intervals import Interval
    from vicinal._compare.words import verdict_sentences

    def result(name, mean, low, high, learned=True):
        return SimpleNamespace(
            name=name,
            label=name.upper(),
            learned=learned,
            failure=None,
            not_judged=None,
            judged=True,
            scale="metric",
            main=Interval(mean, mean, mean),
            difference=Interval(mean - 0.8, low, high),
        )

    metrics = [result("lda", 0.8, 0, 0, False), result("rca", 0.81, 0.002, 0.02), result("nca", 0.9, -0.1, 0.3)]
    comparison = SimpleNamespace(
        metrics=metrics,
        densities=[],
        helped={"metric": "helped", "density": None},
        reference={"metric": "lda"},
        best={"metric": "rca"},
        n_neighbors=5,
        largest_class=0.5,
        result=lambda kind, name: next(one for one in metrics if one.name == name),
    )
    said = verdict_sentences(comparison)
    assert said["metric"].startswith("RCA helped: ")
    assert "; NCA scores higher on average, 90.0 %, but with a wider interval." in said["metric"]


@pytest.fixture(scope="module")
def numbers():
    """A target that one column of small variance decides; the others are noise of large variance."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(160, 4)) * [0.1, 3.0, 3.0, 3.0]
    y = np.sin(15.0 * X[:, 0]) + 0.05 * rng.normal(size=160)
    return X, y


def test_a_numeric_target_is_judged_by_the_literal_r2_of_neighbours(numbers):
    X, y = numbers
    result = vicinal.compare(X, y, metrics=["euclidean", "z-scored"], densities=[], n_repeats=1, n_neighbors=3)
    assert result.task == "numbers"
    assert result.classes == []
    expected = []
    for train, test in RepeatedKFold(n_splits=5, n_repeats=1, random_state=0).split(X):
        predicted = KNeighborsRegressor(3).fit(X[train], y[train]).predict(X[test])
        expected.append(1.0 - np.mean((y[test] - predicted) ** 2) / np.var(y[train]))
    euclidean = result.result("metric", "euclidean")
    np.testing.assert_allclose(euclidean.scores["r2"], expected, atol=1e-12)
    assert euclidean.main.mean == pytest.approx(np.mean(expected))
    assert set(euclidean.scores) == {"r2", "mean_error"}
    json.dumps(result.to_dict(), allow_nan=False)


@pytest.mark.slow
def test_learned_metrics_help_where_a_hidden_column_decides_a_number(numbers):
    X, y = numbers
    result = vicinal.compare(X, y, densities=[], n_repeats=1, n_splits=3)
    assert [found.name for found in result.metrics] == [
        "euclidean", "z-scored", "pca-whitened", "pls", "rca", "lca", "lca-gauss", "nca",
    ]  # fmt: skip
    # The rows are one Gaussian, and LCA-Gauss says so: no direction is left for a metric.
    failures = {found.name: found.failure for found in result.metrics if found.failure is not None}
    assert failures == {"lca-gauss": "it keeps no direction"}
    assert result.helped["metric"] == "helped"
    assert result.best["metric"] == "nca"
    assert "NCA helped: held-out 5-nearest-neighbour R² rose from" in result.verdict
    assert "5-NN R²" in str(result)
    assert "mean error" in str(result)


def test_which_targets_are_numbers():
    def task(y, **options):
        targets = read_targets(y, len(y), notes=notes, **options)
        return targets.task

    notes = []
    rng = np.random.default_rng(0)
    assert task(rng.normal(size=100)) == "numbers"
    assert task(rng.integers(5, size=100)) == "classes"
    assert task(rng.integers(5, size=100).astype(float)) == "classes"
    assert task(np.array(["a", "b"] * 10)) == "classes"
    assert notes == []
    assert task(np.repeat(np.arange(40), 10)) == "classes"  # many values, but ten rows each, as codes of classes have
    assert "treated as classes (task='numbers' or --task numbers" in notes.pop()
    assert task(rng.integers(300, size=440)) == "numbers"  # whole, as counts and prices are
    assert "treated as a number to predict (task='classes' or --task classes" in notes.pop()
    assert task(rng.negative_binomial(1, 0.08, 4_000)) == "numbers"  # a count of doctor visits was 59 classes
    assert task(rng.poisson(25, 500)) == "numbers"  # 28 values; none is very frequent, but some occur once
    assert task(rng.integers(300, size=440), task="classes") == "classes"
    assert task(rng.integers(5, size=100), task="numbers") == "numbers"


def test_lca_and_lca_gauss_share_their_search_and_their_fits(monkeypatch):
    """Each fold used to search for LCA's penalty four times: for two metrics and two densities that are two models."""
    from vicinal._lca import penalty_search

    searches = []
    search = penalty_search.search
    monkeypatch.setattr(penalty_search, "search", lambda *given: searches.append(1) or search(*given))
    X = np.round(nuisance_data(60, seed=3)[0][:, :3], 1)  # rounded, so that there is noise on the training rows
    y, names = np.arange(60) % 2, ["lca", "lca-gauss"]
    few = {"n_splits": 2, "n_repeats": 1}
    together = vicinal.compare(X, y, metrics=["z-scored", *names], densities=["gaussian", *names], **few)
    assert len(searches) == 2  # one per fold
    apart = [
        *vicinal.compare(X, y, metrics=["z-scored", *names], densities=[], **few).metrics,
        *vicinal.compare(X, y, metrics=[], densities=["gaussian", *names], **few).densities,
    ]
    for one, other in zip([*together.metrics, *together.densities], apart, strict=True):
        assert one.failure == other.failure
        assert one.scores.keys() == other.scores.keys()
        for score in one.scores:
            np.testing.assert_array_equal(one.scores[score], other.scores[score])


@pytest.mark.slow
def test_a_fast_comparison_says_what_it_left_out():
    X, y = nuisance_data(1200)
    result = vicinal.compare(X, y, metrics=["z-scored", "lca"], densities=[], fast=True)
    assert result.n_folds == 5
    assert (result.settings["n_repeats"], result.settings["fit_rows"]) == (1, 500)
    assert result.notes[0].startswith(
        "This is a fast comparison: one round of folds, at most 3,000 rows compared and 500 rows"
    )
    assert "LCA was fitted to 500 of the 960 training rows" in str(result)
    fewer = vicinal.compare(X, y, metrics=["z-scored"], densities=[], fast=True, n_splits=3, max_rows=600)
    assert (fewer.n_folds, fewer.n_rows) == (3, 600)
    with pytest.raises(TypeError, match="fast must be True or False"):
        vicinal.compare(X, y, fast="yes")


FEW = {"metrics": ["euclidean", "z-scored", "lca"], "densities": ["gaussian", "lca"], "n_splits": 3, "n_repeats": 1}


@pytest.fixture(scope="module")
def few():
    X, y = nuisance_data(60)
    return X, y, vicinal.compare(X, y, **FEW)


def same_results(one, other):
    assert one.verdict == other.verdict
    assert (one.n_folds, one.settings, one.helped) == (other.n_folds, other.settings, other.helped)
    for a, b in zip([*one.metrics, *one.densities], [*other.metrics, *other.densities], strict=True):
        assert (a.name, a.failure, a.note, a.not_judged) == (b.name, b.failure, b.note, b.not_judged)
        for name in a.scores:
            np.testing.assert_array_equal(a.scores[name], b.scores[name])
        np.testing.assert_array_equal(a.curve, b.curve)


class Killed(Exception):
    """Simulates a process that is killed: the comparison does not catch it."""


def test_what_is_done_is_kept_and_not_done_again(few, tmp_path):
    X, y, whole = few
    kept = tmp_path / "comparison.partial"

    def kill(done, total, text):
        if done == 11:
            raise Killed

    with pytest.raises(Killed):
        vicinal.compare(X, y, **FEW, progress=kill, keep=kept)
    lines = kept.read_text().splitlines(keepends=True)
    assert len(lines) == 1 + 11
    kept.write_text("".join(lines[:-1]) + lines[-1][:40])  # the last line was being written
    resumed = vicinal.compare(X, y, **FEW, keep=kept)
    same_results(resumed, whole)
    again = kept.read_text().splitlines(keepends=True)
    assert len(again) == 1 + 15 + 1  # with the line that was cut
    assert again[:11] == lines[:11]  # one outcome was repeated, no more
    same_results(vicinal.compare(X, y, **FEW, keep=kept), whole)
    assert kept.read_text().splitlines(keepends=True) == again  # nothing was done
    with pytest.raises(ValueError, match="other rows, or with other settings"):
        vicinal.compare(X + 1, y, **FEW, keep=kept)
    with pytest.raises(ValueError, match="other rows, or with other settings"):
        vicinal.compare(X, y, **{**FEW, "n_neighbors": 4}, keep=kept)
    for notes in (b"my notes\n", b"\xff\xfe\x00"):
        kept.write_bytes(notes)
        with pytest.raises(ValueError, match="is not a file of a comparison, and is not changed"):
            vicinal.compare(X, y, **FEW, keep=kept)
        assert kept.read_bytes() == notes


def test_what_is_kept_survives_cuts_and_damage(tmp_path, monkeypatch):
    """A kill while the file was rewritten lost all of it, a damaged line was an error of json, and an empty file was rejected."""
    monkeypatch.setattr(kept_outcomes, "_digest", lambda plan: plan)
    path, names = tmp_path / "comparison.partial", ["a", "b", "c"]

    def known():
        kept = kept_outcomes.KeptOutcomes(path, "of these rows")
        return [name for name in names if kept.get("metric", name, 0) is not None]

    for left in (b"", b'{"what": "vicinal comp'):  # of a header
        path.write_bytes(left)
        assert known() == []
    for name in names:
        outcome = Outcome({"score": 0.1}, np.arange(3.0), None, True, 1.0)
        kept_outcomes.KeptOutcomes(path, "of these rows").add("metric", name, 0, outcome)
    assert known() == names
    header, a, b, c = path.read_bytes().split(b"\n")
    damaged = [header, a, b"\x00" * 20, b'{"kind": 1}', b"[]", b"[" * 10_000, b'{"outcome": null}', c, b[:40]]
    path.write_bytes(b"\n".join(damaged))

    def kill(path, *_, **__):
        open(path, "w").close()
        raise Killed

    for name in ("write_text", "write_bytes"):  # as if killed between their two steps
        monkeypatch.setattr(Path, name, kill)
    assert known() == ["a", "c"]
    kept_outcomes.KeptOutcomes(path, "of these rows").add("metric", "b", 0, outcome)
    assert known() == names
    assert path.read_bytes() == b"\n".join([*damaged, b])


def test_first_results_come_before_what_takes_long(few):
    X, y, _ = few
    told, first = [], []

    def first_results(comparison):
        first.append((len(told), comparison))

    whole = vicinal.compare(X, y, **FEW, progress=lambda *step: told.append(step), first_results=first_results)
    ((when, comparison),) = first
    assert when == 9  # three quick methods in three folds, none of those that take long
    assert [result.name for result in [*comparison.metrics, *comparison.densities]] == [
        "euclidean",
        "z-scored",
        "gaussian",
    ]
    for result in comparison.metrics:
        np.testing.assert_array_equal(result.scores["accuracy"], whole.result("metric", result.name).scores["accuracy"])
    assert [step[:2] for step in told] == [(done, 15) for done in range(16)]
    # The time left is told when every method was done once.
    assert ["left" in text for _, _, text in told] == [False] * 11 + [True] * 4 + [False]


@pytest.mark.parametrize(
    ("when", "n_folds", "names"),
    [
        (14, 2, ["euclidean", "z-scored", "lca", "gaussian", "lca"]),
        (10, 3, ["euclidean", "z-scored", "gaussian"]),
        (3, None, []),
    ],
)
def test_an_interrupted_comparison_is_one_of_what_is_done(few, when, n_folds, names):
    X, y, whole = few

    def interrupt(done, total, text):
        if done == when:
            raise KeyboardInterrupt

    if n_folds is None:
        with pytest.raises(KeyboardInterrupt):
            vicinal.compare(X, y, **FEW, progress=interrupt)
        return
    result = vicinal.compare(X, y, **FEW, progress=interrupt)
    assert result.n_folds == n_folds
    assert [found.name for found in [*result.metrics, *result.densities]] == names
    assert result.notes[0].startswith(f"The comparison was interrupted: this is the result of {n_folds} of 3 folds")
    assert ("without LCA" in result.notes[0]) == (n_folds == 3)
    for found in result.metrics:
        np.testing.assert_array_equal(
            found.scores["accuracy"], whole.result("metric", found.name).scores["accuracy"][:n_folds]
        )


def test_one_gaussian_ahead_of_all_kernel_densities_is_said():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 6))
    result = vicinal.compare(X, densities=["gaussian", "parzen-loo", "lca"], n_splits=3, n_repeats=1)
    gaussian, loo, lca = (found.main.mean for found in result.densities)
    assert gaussian > max(loo, lca)
    best = "LCA" if lca > loo else "Parzen (leave-one-out)"
    said = f"One Gaussian scores better than all kernel densities here: it has {gaussian:.2f} nats per row, and the best of "
    assert said + f"them, {best}, has {max(loo, lca):.2f}." in result.verdict
    bars = vicinal.datasets.make_slanted_bars(120, random_state=0)[0]
    other = vicinal.compare(bars, densities=["gaussian", "lca"], n_splits=2, n_repeats=1)
    assert "One Gaussian" not in other.verdict


def test_gaps_are_marginalised_where_that_is_asked_for():
    """The score of a row with a gap is the density of its known values, in the units of the data."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(80, 2)) * [1.0, 50.0] + [3.0, -7.0]
    X[::5, 0] = np.nan
    X[1::7, 1] = np.nan
    X[10] = np.nan
    given = {"densities": ["gaussian", "manifold-parzen", "lca"], "n_splits": 2, "n_repeats": 1}
    result = vicinal.compare(X, missing="marginalise", **given)
    gaussian, _, manifold = (result.result("density", name) for name in ("gaussian", "lca", "manifold-parzen"))
    assert "missing" in manifold.failure
    folds = list(RepeatedKFold(n_splits=2, n_repeats=1, random_state=0).split(X))
    for (train, test), found in zip(folds, gaussian.scores["log_likelihood"], strict=True):
        fitted = result.estimator("density", "gaussian").fit(X[train])
        scaler, density = fitted[0], fitted[-1]
        expected = []
        for row in X[test]:
            known = ~np.isnan(row)
            if known.any():
                mean = scaler.mean_[known] + scaler.scale_[known] * density.mean_[known]
                spread = np.outer(scaler.scale_, scaler.scale_) * density.covariance_
                expected.append(stats.multivariate_normal(mean, spread[np.ix_(known, known)]).logpdf(row[known]))
        np.testing.assert_allclose(found, np.mean(expected), rtol=1e-9)
    assert "densities are learned from and evaluated on the known values" in " ".join(result.notes)
    assert str(vicinal.compare(X, **result.settings)) == str(result)


@pytest.mark.parametrize("random_state", [None, np.random.RandomState(3)])
def test_random_state_without_a_seed_gives_one_that_repeats_the_comparison(random_state):
    X, y = np.random.default_rng(0).normal(size=(900, 3)), np.arange(900) % 2
    options = {"metrics": ["euclidean"], "densities": ["parzen-scott"], "fast": True}
    first = vicinal.compare(X, y, random_state=random_state, **options)
    again = vicinal.compare(X, y, random_state=first.settings["random_state"], **options)
    assert [result.main for result in again.densities] == [result.main for result in first.densities]
    assert vicinal.report(X, y, comparison=first).html()


def test_compare_with_columns_that_lca_does_not_use_gives_them_up_for_plain_metrics_too():
    """Two columns decide, and five random flags do not. Leaving out the flags is not a gain from learning."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(400, 2)), rng.integers(0, 2, (400, 5))])
    y = X[:, 0] * X[:, 1] > 0
    found = vicinal.compare(X, y, metrics=["euclidean", "z-scored", "lca"], densities=[], n_repeats=1)
    assert found.helped["metric"] != "helped"
    assert found.reference["metric"].endswith("-quantities")
    only = vicinal.compare(X[:, :2], y, metrics=["euclidean", "z-scored"], densities=[], n_repeats=1)
    for name in ("euclidean", "z-scored"):
        np.testing.assert_allclose(
            found.result("metric", f"{name}-quantities").scores["accuracy"],
            only.result("metric", name).scores["accuracy"],
        )
    assert vicinal.compare(X, y, **found.settings).verdict == found.verdict


def test_compare_of_a_wide_table_has_a_plain_metric_on_the_same_components():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(150, 70)), rng.integers(0, 2, 150)
    found = vicinal.compare(X, y, metrics=["z-scored", "lca"], densities=[], n_repeats=1, n_splits=2)
    assert [result.name for result in found.metrics] == ["z-scored", "pca", "lca"]
    assert found.estimator("metric", "pca")[-1].n_components == found.estimator("metric", "lca")[-2].n_components


def test_a_numeric_target_without_repetitions_names_the_task_numbers():
    with pytest.raises(ValueError, match=r"identifier, not a class\. Pass task='numbers' if it holds numbers"):
        read_targets(np.arange(1, 31), 30)
    assert read_targets(np.arange(1, 31), 30, "numbers").task == "numbers"


def test_negative_r2_of_every_metric_is_said_first():
    rng = np.random.default_rng(0)
    found = vicinal.compare(rng.normal(size=(120, 3)), rng.normal(size=120), densities=[], n_repeats=1)
    assert found.verdict.startswith("No metric predicts the target better than its mean (an R² of 0): the best, ")


def test_a_clear_gain_below_the_base_rate_is_no_help():
    rng = np.random.default_rng(0)
    X, y = nuisance_data(240)
    X[:, 2] = rng.normal(size=240)
    y = np.where(rng.random(240) < 0.85, 9, y)  # most rows belong to a class that the columns do not show
    found = vicinal.compare(X, y, metrics=["euclidean", "rca"], densities=[], n_repeats=1, n_neighbors=1)
    assert found.verdict.startswith("No metric predicts the target better than its largest class (8")
    assert found.helped["metric"] != "helped"


def test_a_large_gain_in_few_folds_is_too_few_folds_to_tell():
    X, y = nuisance_data(60, seed=8)
    X[:, 1] += np.random.default_rng(8).normal(size=60)
    found = vicinal.compare(X, y, metrics=["euclidean", "rca"], densities=[], fast=True)
    rca = found.result("metric", "rca")
    assert rca.promising
    assert found.verdict.startswith("5 folds are too few to tell whether RCA helps: it has ")
    assert found.next_step == "vicinal.compare(X, y, n_repeats=3)"
    assert f"\n\nNext: {found.next_step}\n\n" in str(found)


def test_density_of_independent_columns_is_the_product_of_its_columns():
    rng = np.random.default_rng(0)
    X = np.column_stack(
        [rng.normal(size=150), rng.lognormal(0.0, 1.5, 150), rng.standard_t(2, 150), rng.uniform(size=150)]
    )
    density = IndependentColumns().fit(X)
    for j in range(4):
        grid = np.linspace(X[:, j].min() - 60.0, X[:, j].max() + 60.0, 400_001)[:, None]
        assert np.trapezoid(np.exp(density.marginal(j).score_samples(grid)), grid[:, 0]) == pytest.approx(1.0, abs=2e-3)
    parts = sum(density.marginal(j).score_samples(X[:, [j]]) for j in range(4))
    np.testing.assert_allclose(density.score_samples(X), parts, rtol=1e-12)
    gaps = X.copy()
    gaps[:, 1] = np.nan
    np.testing.assert_allclose(density.score_samples(gaps), density.marginal([0, 2, 3]).score_samples(X[:, [0, 2, 3]]))


def test_learned_densities_of_independent_columns_did_not_help():
    """Columns of different shapes have different widths, which a product of densities of single columns has as well."""
    rng = np.random.default_rng(0)
    X = np.column_stack(
        [rng.normal(size=250) + 6 * rng.integers(0, 2, 250), rng.normal(size=250), rng.lognormal(0, 1.5, 250)]
    )
    found = vicinal.compare(
        X, densities=["gaussian", "parzen-loo", "independent", "lca", "manifold-parzen"], n_repeats=1
    )
    assert found.reference["density"] == "independent"
    assert found.helped["density"] != "helped"


def test_a_table_of_any_columns_is_compared_and_shown_as_a_table():
    """A text or a date in the table was NumPy's error."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=90), "b": rng.normal(size=90), "text": rng.choice(["x", "y"], 90)})
    table["when"] = pd.date_range("2020-01-01", periods=90, freq="D")
    table.loc[::9, "b"] = np.nan
    few = {"metrics": ["z-scored", "lca"], "densities": ["gaussian", "lca"], "n_repeats": 1, "n_splits": 2}
    labels = np.where(table["a"] > 0, "yes", "no")
    by_rows = vicinal.compare(table, labels, **few)
    by_name = vicinal.compare(table.assign(y=labels), "y", **few)
    pd.testing.assert_frame_equal(by_rows.to_frame(), by_name.to_frame())
    assert {"kind", "name", "learned", "score", "gain", "gain_low", "gain_high"} <= {*by_rows.to_frame().columns}
    prepared = vicinal.tables.prepare(table, missing="marginalise")
    assert prepared.to_frame()["column"].tolist() == ["a", "b", "text", "when"]
    assert "<table>" in prepared._repr_html_()


def test_costly_metrics_are_fitted_to_fit_rows_and_others_to_all_training_rows(monkeypatch):
    sizes, original = {}, folds.fitted

    def noted(estimator, X, y=None):
        sizes.setdefault(type(flat_steps(estimator)[-1]).__name__, set()).add(len(X))
        return original(estimator, X, y)

    monkeypatch.setattr(folds, "fitted", noted)
    X = np.random.default_rng(0).normal(size=(120, 2))
    vicinal.compare(X, np.arange(120) % 2, metrics=["rca", "nca"], densities=[], n_splits=3, n_repeats=1, fit_rows=30)
    assert sizes == {"RCA": {80}, "NCA": {30}}


def test_a_table_is_prepared_with_logarithms_and_its_notes_are_kept():
    rng = np.random.default_rng(0)
    income = np.exp(rng.normal(8, 1, 80))
    table = pd.DataFrame({"income": income, "width": rng.normal(size=80), "name": [f"row {i}" for i in range(80)]})
    table["kind"] = np.where(rng.random(80) > 0.5, "a", "b")
    few = {"metrics": [], "densities": ["gaussian", "parzen-scott"], "n_repeats": 1}
    result = vicinal.compare(table, log=["income"], **few)
    assert list(result.types) == ["log(income)", "width", "kind"]
    assert "Replaced by their logarithms: 'income'." in result.notes
    assert any("identify or number the rows" in note and "'name'" in note for note in result.notes)
    by_hand = vicinal.compare(
        table.drop(columns=["income", "name"]).assign(log_income=np.log(income))[["log_income", "width", "kind"]], **few
    )
    assert result.result("density", "gaussian").main.mean == pytest.approx(
        by_hand.result("density", "gaussian").main.mean, rel=1e-6
    )
    again = vicinal.compare(table, **result.settings)
    assert again.result("density", "gaussian").main == result.result("density", "gaussian").main
    with pytest.raises(ValueError, match="log needs the names of columns"):
        vicinal.compare(table[["width"]].to_numpy(), log=["income"], **few)
    with pytest.raises(ValueError, match=r"there is no column 'knd'\. Did you mean 'kind'"):
        vicinal.compare(table, "knd", **few)


def test_lca_as_a_metric_learns_from_categories_and_plain_metrics_have_them_too():
    """A category and a number decide; the codes of the category mean nothing as numbers."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=240)
    kind = np.array(list("xyz"))[(rng.integers(3, size=240) % 2 + y) % 3]
    table = pd.DataFrame({"size": y + rng.normal(size=240), "kind": kind, "width": rng.normal(size=240) > 0})
    few = {"metrics": ["z-scored", "lca"], "densities": ["lca"], "n_repeats": 1, "n_splits": 3}
    found = vicinal.compare(table, y, **few)
    assert [result.name for result in found.metrics] == [
        "z-scored",
        "z-scored-quantities",
        "z-scored-categories",
        "lca",
    ]
    accuracy = {result.name: result.main.mean for result in found.metrics}
    assert accuracy["lca"] > accuracy["z-scored"] + 0.08
    assert found.reference["metric"] == "z-scored-categories"
    by_hand = [make_pipeline(StandardScaler(), KNeighborsClassifier(5)) for _ in found.metrics[2].scores["accuracy"]]
    splits = RepeatedStratifiedKFold(n_splits=3, n_repeats=1, random_state=0).split(table, y)
    X = np.column_stack([table["size"], pd.get_dummies(table[["kind", "width"]].astype(str))]).astype(float)
    for model, (train, test), score in zip(by_hand, splits, found.metrics[2].scores["accuracy"], strict=True):
        assert model.fit(X[train], y[train]).score(X[test], y[test]) == pytest.approx(score, abs=0.02)
    assert vicinal.compare(table, y, **found.settings).verdict == found.verdict
    report = vicinal.report(table, y, comparison=found)
    assert [column["name"] for column in report.summary["metric"]["relevance"]] == ["size"]
    assert "Distances also include kind, width, whose levels have coordinates of their own." in report.html()
    assert "lca" in metric_names()
    assert not any("-categories" in name for name in metric_names())
