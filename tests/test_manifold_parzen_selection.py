"""Test the choice of ManifoldParzen's parameters: grids, folds, criteria and validation sets."""

import numpy as np
import pandas as pd
import pytest
from estimator_checks import check_conventions
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, KFold, PredefinedSplit, StratifiedKFold
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from vicinal import DensityClassifier, DensityOutlierDetector, ManifoldParzen, Selection, which_engine


def selecting(n_components="auto", n_neighbors="auto", noise="auto", *, metric=None, engine=None, **options):
    """A Manifold Parzen density that chooses among these values."""
    grids = {"n_components": n_components, "n_neighbors": n_neighbors, "noise": noise}
    return ManifoldParzen(metric=metric, engine=engine, selection=Selection(**grids, **options))


def best(model):
    """The parameters in use."""
    return {"n_components": model.n_components_, "n_neighbors": model.n_neighbors_, "noise": model.noise_}


@parametrize_with_checks([selecting([0, 1], 1, [0.1, 1.0], cv=2)])
@pytest.mark.filterwarnings("ignore:.*are constant:UserWarning")
@pytest.mark.filterwarnings("ignore:.*the search chose:sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*are constant:UserWarning")
@pytest.mark.filterwarnings("ignore:.*the search chose:sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_checks_of_the_default_search():
    check_conventions(ManifoldParzen())


GRID = {"n_components": [0, 1, 2, 3], "n_neighbors": [4, 8], "noise": [0.003, 0.03, 0.3]}


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    chosen = np.isin(y, [1, 4, 7])
    X, y = X[chosen][:240] / 16.0, y[chosen][:240]
    return X[:, (X > 0).mean(axis=0) > 0.2], y  # no column is constant in any fold or class


@pytest.mark.parametrize("weighted", [False, True])
def test_density_scores_and_winner_are_those_of_grid_search(digits, weighted):
    X, _ = digits
    weight = 1.0 + np.arange(len(X)) % 3 if weighted else None
    ours = selecting(**GRID, cv=KFold(3)).fit(X, sample_weight=weight)
    if weighted:  # GridSearchCV does not weigh test rows: compare with fits by hand
        for params, got in zip(ours.cv_results_["params"], ours.cv_results_["split1_test_score"], strict=True):
            train = np.r_[0:80, 160:240]
            fit = ManifoldParzen(**params).fit(X[train], sample_weight=weight[train])
            expected = np.average(fit.score_samples(X[80:160]), weights=weight[80:160])
            assert got == pytest.approx(expected, rel=1e-9)
        return
    theirs = GridSearchCV(ManifoldParzen(), GRID, cv=3).fit(X)
    assert best(ours) == theirs.best_params_
    assert ours.best_score_ == pytest.approx(theirs.best_score_, rel=1e-9)
    for key in ("mean_test_score", "std_test_score", "split2_test_score"):
        np.testing.assert_allclose(ours.cv_results_[key], theirs.cv_results_[key], rtol=1e-7)
    assert ours.cv_results_["params"] == theirs.cv_results_["params"]
    np.testing.assert_array_equal(ours.cv_results_["rank_test_score"], theirs.cv_results_["rank_test_score"])
    np.testing.assert_allclose(ours.score_samples(X[:9]), theirs.best_estimator_.score_samples(X[:9]))


def conditional_log_likelihood(classifier, X, y):
    """Minus the paper's ANCLL; scikit-learn's neg_log_loss clips probabilities at 2e-16."""
    codes = np.searchsorted(classifier.classes_, y)
    return np.mean(np.take_along_axis(classifier.predict_log_proba(X), codes[:, None], axis=1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("criterion", "scoring", "shift"),
    [("error", "accuracy", 1.0), ("conditional_log_likelihood", conditional_log_likelihood, 0.0)],
)
def test_classifier_scores_and_winner_are_those_of_grid_search(digits, criterion, scoring, shift):
    X, y = digits
    ours = selecting(**GRID, criterion=criterion, cv=StratifiedKFold(3)).fit(X, y)
    grid = {f"density__{name}": values for name, values in GRID.items()}
    theirs = GridSearchCV(DensityClassifier(ManifoldParzen()), grid, cv=3, scoring=scoring).fit(X, y)
    np.testing.assert_allclose(
        ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"] - shift, rtol=1e-6, atol=1e-9
    )
    assert {f"density__{name}": value for name, value in best(ours).items()} == theirs.best_params_
    # A classifier chooses one set of values for all classes.
    search = selecting(**GRID, criterion=criterion, cv=StratifiedKFold(3))
    classifier = DensityClassifier(search).fit(X, y)
    assert [best(density) for density in classifier.densities_] == [best(ours)] * 3
    np.testing.assert_allclose(classifier.predict_proba(X[:9]), theirs.predict_proba(X[:9]), rtol=1e-9)
    chosen = search.selected(X, y)
    assert (chosen.n_components, chosen.n_neighbors, chosen.noise) == tuple(best(ours).values())
    assert chosen.selection is None


def test_a_validation_set(digits):
    X, _ = digits
    fold = np.where(np.arange(len(X)) < 160, -1, 0)
    search = selecting(**GRID, cv=PredefinedSplit(fold)).fit(X)
    assert "split1_test_score" not in search.cv_results_
    fits = [ManifoldParzen(**p).fit(X[:160]).score(X[160:]) for p in search.cv_results_["params"]]
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], fits, rtol=1e-7)
    # The winner is fitted to all rows.
    assert len(search.mixture_.centres) == 240
    pairs = selecting(**GRID, cv=[(np.arange(160), np.arange(160, 240))]).fit(X)
    assert best(pairs) == best(search)


def test_more_directions_than_neighbours_are_left_out(digits):
    X, _ = digits
    search = selecting([1, 6], [2, 8], [0.1], cv=2).fit(X)
    pairs = [(p["n_components"], p["n_neighbors"]) for p in search.cv_results_["params"]]
    assert pairs == [(1, 2), (1, 8), (6, 8)]


def test_automatic_grids(digits):
    X, y = digits
    search = selecting(cv=2).fit(X)
    assert set(search.cv_results_["param_n_components"]) == {0, 1, 2, 4, 8, 16, 32}
    assert set(search.cv_results_["param_n_neighbors"]) == {5, 10, 20, 40}
    assert len(set(search.cv_results_["param_noise"])) == 16
    # The best noise is inside the grid, and the choice is at least as good as plain Parzen windows.
    noises = np.unique(search.cv_results_["param_noise"])
    assert noises[0] < search.noise_ < noises[-1]
    plain = search.cv_results_["param_n_components"] == 0
    assert search.best_score_ > search.cv_results_["mean_test_score"][plain].max() + 1
    few = selecting(criterion="error", cv=2).fit(X[:24], y[:24])
    assert max(few.cv_results_["param_n_neighbors"]) < 8


def test_the_default_searches_and_numbers_do_not(digits):
    X, _ = digits
    default = ManifoldParzen().fit(X[:80])
    assert default.cv_results_["param_n_components"].max() > 1
    again = ManifoldParzen(**best(default)).fit(X[:80])
    assert again.cv_results_ is None
    np.testing.assert_array_equal(again.score_samples(X[80:90]), default.score_samples(X[80:90]))
    some = ManifoldParzen(n_neighbors=7).fit(X[:80])
    assert set(some.cv_results_["param_n_neighbors"]) == {7}
    detector = DensityOutlierDetector(ManifoldParzen(2, 5, 0.05), largest_group=None).fit(X)
    np.testing.assert_allclose(detector.training_scores_, ManifoldParzen(2, 5, 0.05).fit(X).held_out_score_samples())


def test_held_out_rows_are_limited():
    X = np.random.default_rng(0).normal(size=(300, 2))
    splits = Selection(max_rows=50).splits(X, np.zeros(300, dtype=int))
    assert [len(test) for _, test in splits] == [10] * 5
    assert all(len(train) == 240 for train, _ in splits)
    everyone = Selection(max_rows=None).splits(X, np.zeros(300, dtype=int))
    assert sum(len(test) for _, test in everyone) == 300


def test_twins_are_never_split():
    X = np.repeat(np.random.default_rng(0).normal(size=(60, 2)), 2, axis=0)
    y = np.repeat([0, 1], 60)
    for selection in (Selection(), Selection("error")):
        for train, test in selection.splits(X, y):
            assert not set(map(tuple, X[train])) & set(map(tuple, X[test]))
    density = ManifoldParzen().fit(X)
    plain = ManifoldParzen().fit(X[::2])
    assert 0.2 < density.noise_ / plain.noise_ < 5.0


@pytest.mark.parametrize("n", [2, 4, 7])
def test_few_rows_have_an_answer(n):
    X = np.random.default_rng(0).normal(size=(n, 3))
    assert np.isfinite(ManifoldParzen().fit(X).score_samples(X)).all()


def test_constant_columns_are_named_and_ignored():
    X = load_iris().data[::2]
    with pytest.warns(UserWarning, match=r"1 of 5 columns is constant \(1\)"):
        density = ManifoldParzen().fit(np.insert(X, 1, 4.0, axis=1))
    plain = ManifoldParzen().fit(X)
    assert best(density) == best(plain)
    np.testing.assert_array_equal(density.score_samples(np.insert(X, 1, 0.0, axis=1)), plain.score_samples(X))
    assert np.all(density.sample(3, random_state=0)[:, 1] == 4.0)


def test_metric_names_and_clone():
    X, y = load_iris(return_X_y=True, as_frame=True)
    scaler = StandardScaler().fit(X)
    search = selecting([1, 2], [5, 10], [0.01, 0.1], metric=scaler, criterion="error", cv=StratifiedKFold(3))
    assert clone(search).metric is scaler
    ours = clone(search).fit(X, y)
    grid = {"density__n_components": [1, 2], "density__n_neighbors": [5, 10], "density__noise": [0.01, 0.1]}
    theirs = GridSearchCV(DensityClassifier(ManifoldParzen(metric=scaler)), grid, cv=3).fit(X, y)
    np.testing.assert_allclose(
        ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"] - 1, atol=1e-12
    )
    assert ours.feature_names_in_.tolist() == list(X.columns)
    assert isinstance(pd.DataFrame(ours.cv_results_), pd.DataFrame)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"criterion": "likelihood"}, ValueError, "criterion must be one of 'log_likelihood'"),
        ({"n_neighbors": [3, 30]}, ValueError, "n_neighbors=30 needs at least 31 training rows in every split"),
        ({"n_neighbors": [0]}, ValueError, "n_neighbors must be at least 1"),
        ({"n_neighbors": [2.5]}, TypeError, "n_neighbors must be an integer"),
        ({"n_components": [9], "n_neighbors": [2]}, ValueError, "n_components=9 needs at least 9 features"),
        ({"n_components": [3], "n_neighbors": [2]}, ValueError, "at least as many neighbours"),
        ({"n_components": "all"}, ValueError, "n_components must be 'auto' or a sequence"),
        ({"noise": [0.1, 0.0]}, ValueError, "noise must be a finite number greater than 0"),
        ({"noise": []}, ValueError, "noise must hold at least one value"),
        ({"criterion": "error", "cv": [(np.arange(20), np.arange(20, 30))]}, ValueError, "class 1 has no training"),
        ({"cv": [(np.arange(0), np.arange(30))]}, ValueError, "cv must give training and test rows"),
    ],
)
def test_bad_parameters(options, error, match):
    rng = np.random.default_rng(0)
    with pytest.raises(error, match=match):
        selecting(**options).fit(rng.normal(size=(30, 4)), np.repeat([0, 1], [20, 10]))


def test_splits_as_lists_ranges_and_masks():
    X = np.random.default_rng(0).normal(size=(40, 3))
    first = np.arange(40) < 25
    weight = np.linspace(0, 1, 40)
    for sample_weight in (None, weight):
        scores = [
            selecting([1], [5], [0.1, 1.0], cv=[split])
            .fit(X, sample_weight=sample_weight)
            .cv_results_["mean_test_score"]
            for split in (
                (np.arange(25), np.arange(25, 40)),
                (list(range(25)), list(range(25, 40))),
                (range(25), range(25, 40)),
                (first, ~first),
            )
        ]
        for score in scores[1:]:
            np.testing.assert_array_equal(score, scores[0])


def test_a_split_whose_test_rows_weigh_nothing_is_refused():
    X = np.random.default_rng(0).normal(size=(40, 3))
    weight = np.repeat([0.0, 1.0], [10, 30])
    with pytest.raises(ValueError, match="test rows of positive weight, got 30 and 0 in split 0"):
        selecting([1], [5], [0.1], cv=KFold(4)).fit(X, sample_weight=weight)


def test_scores_that_overflow_stay_with_their_parameters():
    X = 1e10 * np.random.default_rng(0).normal(size=(60, 3))
    y = np.arange(60) % 3
    for criterion in ("log_likelihood", "conditional_log_likelihood"):
        search = selecting([1], [5], [1e-300, 1.0], criterion=criterion, cv=3).fit(X, y)
        assert search.noise_ == 1.0
        scores = search.cv_results_["mean_test_score"]
        assert scores[0] == -np.inf
        assert np.isfinite(scores[1])
        assert search.cv_results_["rank_test_score"].tolist() == [2, 1]
        assert search.cv_results_["std_test_score"][0] == np.inf  # unknown, and never NaN


def test_classes_of_values_that_cannot_be_squared_are_refused_at_once():
    X = 1e200 * np.random.default_rng(0).normal(size=(30, 2))
    with pytest.raises(ValueError, match=r"^X holds values of magnitude"):
        selecting([1], [5], [0.1], criterion="error", cv=3).fit(X, np.arange(30) % 2)


def test_score_without_rows_is_leave_one_out():
    X = np.random.default_rng(0).normal(size=(40, 2))
    search = selecting([1], [5], [0.1, 1.0], cv=3).fit(X)
    assert search.score() == pytest.approx(search.score_samples(None).mean())


def test_an_automatic_grid_that_ends_too_early_warns():
    line = np.outer(np.random.default_rng(0).normal(size=60), [1.0, 2.0, 3.0])
    with pytest.warns(ConvergenceWarning, match="smallest of noise='auto'"):
        selecting([1], [8], cv=3).fit(line)


def test_rows_too_close_together_for_automatic_noises_are_refused():
    X = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.raises(ValueError, match="the spread of X is"):
        selecting([1], [5], cv=3).fit(1e-155 * X)


@pytest.mark.parametrize("engine", [None, "cpu"])
def test_the_engine_that_was_used_is_recorded_and_foretold(engine):
    X = np.random.default_rng(0).normal(size=(60, 3))
    search = selecting([1, 2], [4, 6], [0.1, 0.3], cv=3, engine=engine)
    assert which_engine(X, search).startswith(f"{search.fit(X).engine_}: ")
    assert search.engine_ == (engine or "reference")
    assert which_engine(np.zeros((3000, 20)), ManifoldParzen()).startswith("cpu: ")
