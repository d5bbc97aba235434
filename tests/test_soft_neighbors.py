"""Test the classifier and the regressor by soft neighbours: bandwidths, weights, outputs and far rows."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from estimator_checks import check_conventions
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris, load_wine, make_regression
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from vicinal import NCA, Engine, Objective, SoftNeighborsClassifier, SoftNeighborsRegressor, which_engine
from vicinal._engine import prepare
from vicinal._nca import soft_neighbors

# Whether 50 iterations are enough may hang on the last bit of a sum; where it matters, converged_ is asserted.
pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.usefixtures("short_search_in_this_file"),
]

CHOSEN_BANDWIDTH = (
    "the bandwidth is chosen by leave-one-out, where a row of weight 2 is left out as a whole while the "
    "second copy of a repeated row stays; with bandwidth given, weights and repetition are the same (see "
    "test_given_bandwidth_weights_are_repetition)"
)


@parametrize_with_checks(
    [
        SoftNeighborsClassifier(),
        SoftNeighborsRegressor(),
    ],
    expected_failed_checks=lambda estimator: {"check_sample_weight_equivalence_on_dense_data": CHOSEN_BANDWIDTH},
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator", [SoftNeighborsClassifier(bandwidth=0.5), SoftNeighborsRegressor(bandwidth=0.5)], ids=str
)
def test_scikit_learn_checks_of_other_settings(estimator):
    check_conventions(estimator)


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    X = (X - X.mean(0)) / X.std(0)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    return X[:120], y[:120], X[120:], y[120:]


def literal_shares(A, X, points, h, weight):
    """p_j(x) one pair at a time, in extended precision."""
    p = np.zeros((len(X), len(points)), dtype=np.longdouble)
    for i, x in enumerate(X):
        for j, z in enumerate(points):
            p[i, j] = weight[j] * np.exp(-np.sum((A @ (x - z)).astype(np.longdouble) ** 2) / (2 * h * h))
    return (p / p.sum(1, keepdims=True)).astype(float)


@pytest.mark.parametrize("engine", ["reference", "cpu"])
@pytest.mark.parametrize("weighted", [False, True])
def test_probabilities_are_the_softmax(wine, engine, weighted):
    X, y, X_test, _ = wine
    rng = np.random.default_rng(1)
    A = 0.3 * rng.normal(size=(3, 13))
    weight = rng.uniform(0.1, 3, len(X)) if weighted else None
    model = SoftNeighborsClassifier(A, bandwidth=0.9, engine=engine).fit(X, y, sample_weight=weight)
    p = literal_shares(A, X_test, X, 0.9, np.ones(len(X)) if weight is None else weight)
    expected = p @ np.eye(3)[y]
    np.testing.assert_allclose(model.predict_proba(X_test), expected, atol=1e-12)
    values = np.column_stack([y, y**2]).astype(float)
    regressor = SoftNeighborsRegressor(A, bandwidth=0.9, engine=engine).fit(X, values[:, 0], sample_weight=weight)
    mean, std = regressor.predict(X_test), regressor.predict_std(X_test)
    np.testing.assert_allclose(mean, p @ values[:, 0], atol=1e-12)
    np.testing.assert_allclose(std**2, p @ values[:, 1] - (p @ values[:, 0]) ** 2, atol=1e-10)
    entropy = -np.sum(np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0), axis=1)
    np.testing.assert_allclose(model.effective_neighbors(X_test), np.exp(entropy), rtol=1e-9)


def test_leave_one_out_is_ncas_objective(wine):
    """With a fitted NCA, the mean leave-one-out probability of the true class is f (Eq. 3), its log g."""
    X, y, _, _ = wine
    nca = NCA(2, objective=Objective("likelihood", penalty=0.01), max_iter=200).fit(X, y)
    model = SoftNeighborsClassifier(nca).fit(X, y)
    assert model.bandwidth_ == np.sqrt(0.5)
    own = model.predict_proba()[np.arange(len(y)), y]
    penalty = 0.01 * np.sum(X.var(0) * nca.components_**2)
    np.testing.assert_allclose(np.log(own).mean() - penalty, nca.objectives_[-1], rtol=1e-9)
    np.testing.assert_allclose(model.effective_neighbors(), nca.effective_neighbors_, rtol=1e-8)
    np.testing.assert_array_equal(model.predict(), model.classes_[model.predict_proba().argmax(1)])


def test_given_bandwidth_weights_are_repetition(wine):
    X, y, X_test, _ = wine
    weight = np.random.default_rng(0).integers(0, 4, len(X))
    repeated = np.repeat(np.arange(len(X)), weight)
    for cls in (SoftNeighborsClassifier, SoftNeighborsRegressor):
        weighted = cls(bandwidth=0.7).fit(X, y, sample_weight=weight)
        copied = cls(bandwidth=0.7).fit(X[repeated], y[repeated])
        np.testing.assert_allclose(weighted.predict(X_test), copied.predict(X_test), atol=1e-12)


def test_the_chosen_bandwidth_is_the_best(wine):
    X, y, _, _ = wine

    def likelihood(h):
        own = SoftNeighborsClassifier(bandwidth=h).fit(X, y).predict_proba()[np.arange(len(y)), y]
        return np.log(own).mean()

    h = SoftNeighborsClassifier().fit(X, y).bandwidth_
    assert likelihood(h) >= max(likelihood(1.15 * h), likelihood(h / 1.15))

    def error(h):
        return np.mean((SoftNeighborsRegressor(bandwidth=h).fit(X, X[:, 0] ** 2).predict() - X[:, 0] ** 2) ** 2)

    h = SoftNeighborsRegressor().fit(X, X[:, 0] ** 2).bandwidth_
    assert error(h) <= min(error(1.15 * h), error(h / 1.15))
    scaled = SoftNeighborsRegressor().fit(1000 * X, X[:, 0] ** 2).bandwidth_
    np.testing.assert_allclose(scaled, 1000 * h, rtol=1e-6)


def test_metric_may_be_anything_that_maps_rows(wine):
    X, y, X_test, y_test = wine
    nca = NCA(2).fit(X, y)
    fitted = SoftNeighborsClassifier(nca).fit(X, y)
    assert fitted.metric_ is nca
    matrix = SoftNeighborsClassifier(nca.components_, bandwidth=np.sqrt(0.5)).fit(X, y)
    np.testing.assert_allclose(matrix.predict_proba(X_test), fitted.predict_proba(X_test), atol=1e-9)
    unfitted = SoftNeighborsClassifier(NCA(2)).fit(X, y)
    assert unfitted.metric_ is not unfitted.metric
    np.testing.assert_allclose(unfitted.predict_proba(X_test), fitted.predict_proba(X_test), atol=1e-9)
    theirs = NeighborhoodComponentsAnalysis(2, init="pca").fit(X, y)
    assert SoftNeighborsClassifier(theirs).fit(X, y).bandwidth_ == np.sqrt(0.5)
    scaler = SoftNeighborsClassifier(StandardScaler()).fit(X * 7, y)
    assert scaler.score(X_test * 7, y_test) > 0.85
    pipeline = SoftNeighborsClassifier(make_pipeline(StandardScaler(), NCA(2))).fit(X, y)
    assert pipeline.score(X_test, y_test) > 0.9


@pytest.mark.slow
def test_learned_probabilities_beat_euclidean_ones():
    X, y = load_wine(return_X_y=True)
    plain = cross_val_score(SoftNeighborsClassifier(), X, y, scoring="neg_log_loss").mean()
    metric = NCA(objective=Objective("likelihood", penalty=0.01), max_iter=300)
    learned = cross_val_score(SoftNeighborsClassifier(metric), X, y, scoring="neg_log_loss").mean()
    assert learned > -0.2 > plain


def test_regression_in_a_learned_metric():
    X, y = make_regression(300, 8, n_informative=2, noise=5.0, random_state=0)
    X = X * [1, 1, 30, 1, 1, 1, 1, 1]
    plain = SoftNeighborsRegressor().fit(X[:200], y[:200]).score(X[200:], y[200:])
    metric = NCA(2, max_iter=300, objective=Objective(match="gaussian", penalty=1e-3)).fit(X[:200], y[:200])
    learned = SoftNeighborsRegressor(metric).fit(X[:200], y[:200]).score(X[200:], y[200:])
    assert learned > 0.9 > 0.6 > plain


def test_multi_output():
    X, y = load_diabetes(return_X_y=True)
    Y = np.column_stack([y, -2 * y])
    model = SoftNeighborsRegressor().fit(X[:200], Y[:200])
    mean, std = model.predict(X[200:]), model.predict_std(X[200:])
    assert mean.shape == std.shape == (242, 2)
    one = SoftNeighborsRegressor(bandwidth=model.bandwidth_).fit(X[:200], y[:200])
    np.testing.assert_allclose(mean, np.column_stack([one.predict(X[200:]), -2 * one.predict(X[200:])]), rtol=1e-9)


def test_far_rows_still_get_probabilities():
    X = np.array([[0.0], [1.0], [5.0]])
    model = SoftNeighborsClassifier(bandwidth=0.1).fit(X, ["a", "a", "b"])
    np.testing.assert_allclose(model.predict_proba([[1e6], [-1e6]]), [[0, 1], [1, 0]], atol=1e-12)
    assert list(model.predict([[1e6], [-1e6]])) == ["b", "a"]
    # The difference of the two nearest squared distances, -(999,999^2 - 999,995^2) / 0.02.
    np.testing.assert_allclose(model.predict_log_proba([[1e6]])[0, 0], -399_998_800.0)


@pytest.mark.parametrize("engine", ["reference", "cpu"])
def test_far_rows_with_several_nearest_get_their_mean(engine):
    X = np.array([[0.0], [0.0], [-5.0]])
    model = SoftNeighborsRegressor(bandwidth=0.1, engine=engine).fit(X, [1.0, 3.0, 9.0])
    mean, std = model.predict([[1e12]]), model.predict_std([[1e12]])
    np.testing.assert_allclose([mean[0], std[0]], [2.0, 1.0], rtol=1e-12)


def test_the_unit_of_the_targets_does_not_matter():
    X, y = load_diabetes(return_X_y=True)
    plain = SoftNeighborsRegressor().fit(X[:200], y[:200])
    for unit in (2.0**600, 2.0**-600):
        scaled = SoftNeighborsRegressor().fit(X[:200], unit * y[:200])
        np.testing.assert_array_equal(scaled.predict(X[200:]) / unit, plain.predict(X[200:]))
        np.testing.assert_array_equal(scaled.predict_std(X[200:]) / unit, plain.predict_std(X[200:]))


def test_targets_must_be_there_and_of_the_right_kind():
    X = np.arange(6.0)[:, None]
    for cls in (SoftNeighborsClassifier, SoftNeighborsRegressor):
        with pytest.raises(ValueError, match=r"missing (labels|numbers) .*, got 2 of 6\. Drop these rows"):
            cls().fit(X, [None, 1.0, 2.0] * 2)
    with pytest.raises(ValueError, match=r"y must hold numbers, .* Use SoftNeighborsClassifier"):
        SoftNeighborsRegressor().fit(X, ["a", "b", "c"] * 2)


def test_one_row_and_equal_rows():
    one = SoftNeighborsClassifier().fit([[1.0, 2.0]], ["x"])
    assert list(one.predict([[5.0, 5.0]])) == ["x"]
    with pytest.raises(ValueError, match="leave-one-out needs at least 2 training rows"):
        one.predict()
    equal = SoftNeighborsClassifier().fit(np.ones((6, 2)), [0, 0, 0, 0, 1, 1])
    np.testing.assert_allclose(equal.predict_proba([[9.0, 9.0]]), [[2 / 3, 1 / 3]])


def test_rows_without_weight_are_not_kept(wine):
    X, y, X_test, _ = wine
    weight = (np.arange(len(X)) % 3 > 0).astype(float)
    model = SoftNeighborsClassifier().fit(X, y, sample_weight=weight)
    assert len(model.points_) == weight.sum() == len(model.predict())
    kept = SoftNeighborsClassifier().fit(X[weight > 0], y[weight > 0])
    np.testing.assert_allclose(model.predict_proba(X_test), kept.predict_proba(X_test), atol=1e-12)


def test_memory_budget_and_precision_do_not_matter(wine):
    X, y, X_test, _ = wine
    plain = SoftNeighborsClassifier(bandwidth=1.0).fit(X, y).predict_proba(X_test)
    for engine in (Engine("cpu", memory="1 MB", threads=2), Engine("reference", memory="1 MB")):
        found = SoftNeighborsClassifier(bandwidth=1.0, engine=engine).fit(X, y).predict_proba(X_test)
        np.testing.assert_allclose(found, plain, atol=1e-12)
    single = SoftNeighborsClassifier(bandwidth=1.0).fit(X.astype(np.float32), y)
    np.testing.assert_allclose(single.predict_proba(X_test.astype(np.float32)), plain, atol=1e-5)


def test_at_home_in_scikit_learn():
    X, y = load_iris(return_X_y=True, as_frame=True)
    nca = NCA(2, max_iter=5).set_output(transform="pandas").fit(X, y)
    model = SoftNeighborsClassifier(nca).fit(X, y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))
    frozen = clone(SoftNeighborsClassifier(FrozenEstimator(nca))).fit(X, y)
    np.testing.assert_allclose(frozen.metric_.transform(X), nca.transform(X))
    search = GridSearchCV(SoftNeighborsClassifier(NCA(max_iter=10)), {"metric__n_components": [1, 2]}, cv=2)
    assert search.fit(X, y).best_score_ > 0.9
    names = pd.Series(np.array(["s", "v", "w"])[y], dtype="category")
    assert set(SoftNeighborsClassifier().fit(X, names).predict(X)) == {"s", "v", "w"}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"metric": "euclidean"}, "metric must be a fitted metric"),
        ({"metric": NCA}, "metric must be a fitted metric"),
        ({"metric": np.eye(5)}, "as many columns as X has features, 4, got shape"),
        ({"metric": np.full((2, 4), np.nan)}, "metric contains NaN"),
        ({"bandwidth": 0.0}, "bandwidth must be a finite number greater than 0"),
        ({"bandwidth": "loo"}, "bandwidth must be a number"),
        ({"engine": "gpu"}, "engine must be one of"),
    ],
)
def test_bad_parameters(parameters, message):
    X, y = load_iris(return_X_y=True)
    for cls in (SoftNeighborsClassifier, SoftNeighborsRegressor):
        with pytest.raises((ValueError, TypeError), match=message):
            cls(**parameters).fit(X, y).predict(X)


# -- the placement that is kept for predicting -----------------------------------------------------------------


@pytest.fixture
def made(monkeypatch):
    """The problems that are prepared, counted."""
    seen = []

    def counted(*arguments, **options):
        seen.append(arguments)
        return prepare(*arguments, **options)

    monkeypatch.setattr(soft_neighbors, "prepare", counted)
    return seen


def test_rows_are_placed_once_for_all_predictions(wine, made):
    X, y, X_test, _ = wine
    model = SoftNeighborsClassifier(bandwidth=0.5).fit(X, y)
    before = set(vars(model))
    first = model.predict_proba(X_test)
    for _ in range(3):
        np.testing.assert_array_equal(model.predict_proba(X_test), first)
        model.effective_neighbors()
    assert len(made) == 1
    assert set(vars(model)) == before
    # What is kept is neither pickled nor copied, and made anew on demand.
    for other in (pickle.loads(pickle.dumps(model)), copy.copy(model), copy.deepcopy(model)):
        np.testing.assert_array_equal(other.predict_proba(X_test), first)
    assert len(made) == 4


def test_a_refit_drops_the_placement(wine):
    X, _, X_test, _ = wine
    model = SoftNeighborsRegressor(bandwidth=0.5).fit(X, X[:, 0])
    model.predict(X_test)
    again = model.fit(X[:50] + 1, X[:50, 1]).predict(X_test)
    np.testing.assert_array_equal(
        again, SoftNeighborsRegressor(bandwidth=0.5).fit(X[:50] + 1, X[:50, 1]).predict(X_test)
    )
    single = model.set_params(engine=Engine("reference", precision="float32")).predict(X_test)
    np.testing.assert_allclose(single, again, rtol=1e-4)
    assert (single != again).any()


def test_predictions_are_the_same_from_many_threads(wine):
    X, y, X_test, _ = wine
    model = SoftNeighborsClassifier(bandwidth=0.5).fit(X, y)
    expected = pickle.loads(pickle.dumps(model)).predict_proba(X_test)
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda _: model.predict_proba(X_test), range(40)):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("cls", [SoftNeighborsClassifier, SoftNeighborsRegressor])
def test_the_engine_that_fits_use_is_the_one_foretold(cls, wine):
    X, y, _, _ = wine
    for parameters in ({}, {"bandwidth": 1.0}, {"metric": NCA(2)}, {"metric": np.eye(2, 13)}, {"engine": "cpu"}):
        model = cls(**parameters)
        assert which_engine(X, model).startswith(model.fit(X, y).engine_ + ":")
    rows = np.zeros((30_000, 4))
    assert which_engine(rows, cls(bandwidth=1.0)).startswith("cpu")
    assert "1024 x 4096 pairs in 4 dimensions, 10 times" in which_engine(rows, cls())
