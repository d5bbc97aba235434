import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from vicinal import DensityClassifier, DensityOutlierDetector, ManifoldParzen, ManifoldParzenCV, which_engine

TWINS = "the check's data hold every row several times: noise='auto' finds no scale in them and says why"

FEW = "a class of the check's data has two rows: two folds leave one, which has no neighbour; the error says so"
EXPECTED_FAILURES = {
    "log_likelihood": {
        "check_sample_weights_shape": TWINS,
        "check_sample_weights_not_overwritten": TWINS,
        "check_sample_weight_equivalence_on_dense_data": TWINS,
    },
    "error": {"check_fit2d_1feature": FEW},
}


@parametrize_with_checks(
    [ManifoldParzenCV(), ManifoldParzenCV([0, 1], 1, [0.1, 1.0], criterion="error", cv=2)],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES[estimator.criterion],
)
@pytest.mark.filterwarnings("ignore:.*exact twin.*:UserWarning")
@pytest.mark.filterwarnings("ignore:The least populated class.*:UserWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


GRID = {"n_components": [0, 1, 2, 3], "n_neighbors": [4, 8], "noise": [0.003, 0.03, 0.3]}


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    chosen = np.isin(y, [1, 4, 7])
    return X[chosen][:240] / 16.0, y[chosen][:240]


@pytest.mark.parametrize("weighted", [False, True])
def test_density_scores_and_winner_are_those_of_grid_search(digits, weighted):
    X, _ = digits
    weight = 1.0 + np.arange(len(X)) % 3 if weighted else None
    ours = ManifoldParzenCV(**GRID, cv=3).fit(X, sample_weight=weight)
    if weighted:  # GridSearchCV does not weigh test rows: compare with fits by hand
        for params, got in zip(ours.cv_results_["params"], ours.cv_results_["split1_test_score"], strict=True):
            train = np.r_[0:80, 160:240]
            fit = ManifoldParzen(**params).fit(X[train], sample_weight=weight[train])
            expected = np.average(fit.score_samples(X[80:160]), weights=weight[80:160])
            assert got == pytest.approx(expected, rel=1e-9)
        return
    theirs = GridSearchCV(ManifoldParzen(), GRID, cv=3).fit(X)
    assert ours.best_params_ == theirs.best_params_
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


@pytest.mark.parametrize(
    ("criterion", "scoring", "shift"),
    [("error", "accuracy", 1.0), ("conditional_log_likelihood", conditional_log_likelihood, 0.0)],
)
def test_classifier_scores_and_winner_are_those_of_grid_search(digits, criterion, scoring, shift):
    X, y = digits
    ours = ManifoldParzenCV(**GRID, criterion=criterion, cv=3).fit(X, y)
    grid = {f"density__{name}": values for name, values in GRID.items()}
    theirs = GridSearchCV(DensityClassifier(ManifoldParzen()), grid, cv=3, scoring=scoring).fit(X, y)
    np.testing.assert_allclose(
        ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"] - shift, rtol=1e-6, atol=1e-9
    )
    assert {f"density__{name}": value for name, value in ours.best_params_.items()} == theirs.best_params_
    np.testing.assert_allclose(ours.predict_proba(X[:9]), theirs.predict_proba(X[:9]), rtol=1e-9)
    assert ours.score(X, y) == theirs.best_estimator_.score(X, y)
    assert is_classifier(ours)
    assert not is_classifier(ManifoldParzenCV())
    assert not hasattr(ours, "sample")


def test_a_validation_set(digits):
    X, _ = digits
    fold = np.where(np.arange(len(X)) < 160, -1, 0)
    search = ManifoldParzenCV(**GRID, cv=PredefinedSplit(fold)).fit(X)
    assert search.n_splits_ == 1
    fits = [ManifoldParzen(**p).fit(X[:160]).score(X[160:]) for p in search.cv_results_["params"]]
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], fits, rtol=1e-7)
    # The winner is fitted to all rows.
    assert len(search.best_estimator_.mixture_.centres) == 240
    pairs = ManifoldParzenCV(**GRID, cv=[(np.arange(160), np.arange(160, 240))]).fit(X)
    assert pairs.best_params_ == search.best_params_


def test_more_directions_than_neighbours_are_left_out(digits):
    X, _ = digits
    search = ManifoldParzenCV([1, 6], [2, 8], [0.1], cv=2).fit(X)
    pairs = [(p["n_components"], p["n_neighbors"]) for p in search.cv_results_["params"]]
    assert pairs == [(1, 2), (1, 8), (6, 8)]


def test_automatic_grids(digits):
    X, y = digits
    search = ManifoldParzenCV(cv=2).fit(X)
    assert set(search.cv_results_["param_n_components"]) == {0, 1, 2, 4, 8, 16, 32}
    assert set(search.cv_results_["param_n_neighbors"]) == {5, 10, 20, 40}
    assert len(set(search.cv_results_["param_noise"])) == 16
    # The best noise is inside the grid, and the choice is at least as good as plain Parzen windows.
    noises = np.unique(search.cv_results_["param_noise"])
    assert noises[0] < search.best_params_["noise"] < noises[-1]
    plain = search.cv_results_["param_n_components"] == 0
    assert search.best_score_ > search.cv_results_["mean_test_score"][plain].max() + 1
    few = ManifoldParzenCV(criterion="error", cv=2).fit(X[:24], y[:24])
    assert max(few.cv_results_["param_n_neighbors"]) < 8


def test_the_winner_is_a_density(digits):
    X, _ = digits
    search = ManifoldParzenCV([2], [5], [0.05], cv=2).fit(X)
    assert search.sample(3, random_state=0).shape == (3, 64)
    assert search.marginal([0, 30]).n_features == 2
    assert search.conditional({0: 0.1}).n_features == 63
    np.testing.assert_array_equal(search.held_out_score_samples(), search.best_estimator_.held_out_score_samples())
    assert not hasattr(search, "predict")
    detector = DensityOutlierDetector(search).fit(X)
    np.testing.assert_allclose(detector.training_scores_, search.held_out_score_samples())


def test_metric_names_and_clone():
    X, y = load_iris(return_X_y=True, as_frame=True)
    scaler = StandardScaler().fit(X)
    search = ManifoldParzenCV([1, 2], [5, 10], [0.01, 0.1], metric=scaler, criterion="error", cv=3)
    assert clone(search).metric is scaler
    ours = clone(search).fit(X, y)
    grid = {"density__n_components": [1, 2], "density__n_neighbors": [5, 10], "density__noise": [0.01, 0.1]}
    theirs = GridSearchCV(DensityClassifier(ManifoldParzen(metric=scaler)), grid, cv=3).fit(X, y)
    np.testing.assert_allclose(
        ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"] - 1, atol=1e-12
    )
    assert ours.feature_names_in_.tolist() == list(X.columns)
    assert ours.classes_.tolist() == [0, 1, 2]
    assert isinstance(pd.DataFrame(ours.cv_results_), pd.DataFrame)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"criterion": "likelihood"}, ValueError, "criterion must be one of 'log_likelihood'"),
        ({"n_neighbors": [3, 30]}, ValueError, "n_neighbors=30 needs at least 31 training points in every split"),
        ({"n_neighbors": [0]}, ValueError, "n_neighbors must be at least 1"),
        ({"n_neighbors": [2.5]}, TypeError, "n_neighbors must be an integer"),
        ({"n_components": [9], "n_neighbors": [2]}, ValueError, "n_components=9 needs at least 9 features"),
        ({"n_components": [3], "n_neighbors": [2]}, ValueError, "at least as many neighbours"),
        ({"n_components": "all"}, ValueError, "n_components must be 'auto'"),
        ({"noise": [0.1, 0.0]}, ValueError, "noise must be a finite number greater than 0"),
        ({"noise": []}, ValueError, "noise must hold at least one value"),
        ({"criterion": "error", "cv": [(np.arange(20), np.arange(20, 30))]}, ValueError, "class 1 has no training"),
        ({"cv": [(np.arange(0), np.arange(30))]}, ValueError, "cv must give training and test rows"),
    ],
)
def test_bad_parameters(options, error, match):
    rng = np.random.default_rng(0)
    with pytest.raises(error, match=match):
        ManifoldParzenCV(**options).fit(rng.normal(size=(30, 4)), np.repeat([0, 1], [20, 10]))


def test_splits_as_lists_ranges_and_masks():
    X = np.random.default_rng(0).normal(size=(40, 3))
    first = np.arange(40) < 25
    weight = np.linspace(0, 1, 40)
    for sample_weight in (None, weight):
        scores = [
            ManifoldParzenCV([1], [5], [0.1, 1.0], cv=[split])
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
    with pytest.raises(ValueError, match="test rows of split 0 all have weight 0"):
        ManifoldParzenCV([1], [5], [0.1], cv=4).fit(X, sample_weight=weight)


def test_scores_that_overflow_stay_with_their_parameters():
    X = 1e10 * np.random.default_rng(0).normal(size=(60, 3))
    y = np.arange(60) % 3
    for criterion in ("log_likelihood", "conditional_log_likelihood"):
        search = ManifoldParzenCV([1], [5], [1e-300, 1.0], criterion=criterion, cv=3).fit(X, y)
        assert search.best_params_["noise"] == 1.0
        scores = search.cv_results_["mean_test_score"]
        assert scores[0] == -np.inf
        assert np.isfinite(scores[1])
        assert search.cv_results_["rank_test_score"].tolist() == [2, 1]
        assert search.cv_results_["std_test_score"][0] == np.inf  # unknown, and never NaN


def test_classes_of_values_that_cannot_be_squared_are_refused_at_once():
    X = 1e200 * np.random.default_rng(0).normal(size=(30, 2))
    with pytest.raises(ValueError, match=r"^X holds values of magnitude"):
        ManifoldParzenCV([1], [5], [0.1], criterion="error", cv=3).fit(X, np.arange(30) % 2)


def test_score_without_rows_is_leave_one_out():
    X = np.random.default_rng(0).normal(size=(40, 2))
    search = ManifoldParzenCV([1], [5], [0.1, 1.0], cv=3).fit(X)
    assert search.score() == pytest.approx(search.score_samples(None).mean())


def test_an_automatic_grid_that_ends_too_early_warns():
    line = np.outer(np.random.default_rng(0).normal(size=60), [1.0, 2.0, 3.0])
    with pytest.warns(ConvergenceWarning, match="smallest of noise='auto'"):
        ManifoldParzenCV([1], [8], cv=3).fit(line)


def test_rows_too_close_together_for_automatic_noises_are_refused():
    X = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.raises(ValueError, match="the spread of X is"):
        ManifoldParzenCV([1], [5], cv=3).fit(1e-155 * X)


@pytest.mark.parametrize("engine", [None, "cpu"])
def test_the_engine_that_was_used_is_recorded_and_foretold(engine):
    X = np.random.default_rng(0).normal(size=(60, 3))
    search = ManifoldParzenCV([1, 2], [4, 6], [0.1, 0.3], cv=3, engine=engine)
    assert which_engine(X, search).startswith(f"{search.fit(X).engine_}: ")
    assert search.engine_ == (engine or "reference")
    assert which_engine(np.zeros((3000, 20)), ManifoldParzenCV()).startswith("cpu: ")
