"""Test NCA: its solution, invariances, soft targets, engines, edge cases, and agreement with scikit-learn."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from estimator_checks import check_conventions
from needs import needs
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, load_wine, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from vicinal import NCA, Engine, Objective, which_engine
from vicinal._engine import Match, prepare
from vicinal._nca.objectives import neighbor_objective
from vicinal._nca.rows import Rows, prepare_rows

# Whether 50 iterations are enough may hang on the last bit of a sum; where it matters, converged_ is asserted.
pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.usefixtures("short_search_in_this_file"),
]

LEFT_OUT_WHOLE = (
    "a row of weight 2 is left out as a whole when its own neighbours are chosen, while the second copy "
    "of a repeated row stays its neighbour: leave-one-out methods cannot equate weights and repetition"
)
SQUARE = "the check sets n_components=1, but a diagonal matrix has as many rows as there are features"
EXPECTED_FAILURES = {"check_sample_weight_equivalence_on_dense_data": LEFT_OUT_WHOLE}
EXPECTED_FAILURES_OF_DIAGONAL = EXPECTED_FAILURES | {
    "check_dont_overwrite_parameters": SQUARE,
    "check_fit2d_predict1d": SQUARE,
    "check_methods_sample_order_invariance": SQUARE,
    "check_methods_subset_invariance": SQUARE,
}


@parametrize_with_checks(
    [NCA(max_iter=5)],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
)
@pytest.mark.filterwarnings("ignore:all .* targets are equal:UserWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator",
    [
        NCA(structure="diag", max_iter=5),
        NCA(objective="likelihood"),
        NCA(solver="cg", random_state=0, n_init=2),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:all .* targets are equal:UserWarning")
def test_scikit_learn_checks_of_other_settings(estimator):
    diagonal = estimator.structure == "diag"
    check_conventions(estimator, EXPECTED_FAILURES_OF_DIAGONAL if diagonal else EXPECTED_FAILURES)


def objective(A, X, y, which="accuracy"):
    codes = np.unique(y, return_inverse=True)[1]
    problem = prepare("reference", X, leave_one_out=True, match=Match("class", codes))
    return neighbor_objective(A, problem, objective=which).value


@pytest.fixture(scope="module")
def wine():
    return load_wine(return_X_y=True)


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


# -- against scikit-learn ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("whole_search")
@pytest.mark.parametrize("init", ["identity", "pca", "lda", "random", "array", "auto"])
@pytest.mark.parametrize(
    ("load", "n_components"),
    [
        (load_wine, 2),
        (load_iris, None),
        pytest.param(load_iris, 2, marks=pytest.mark.slow),
        pytest.param(load_wine, None, marks=pytest.mark.slow),
    ],
)
def test_not_below_scikit_learn_from_the_same_start(load, n_components, init):
    X, y = (array[::2] for array in load(return_X_y=True))
    if init == "lda" and n_components is None:
        pytest.skip("LDA has too few directions")
    if init == "array":
        init = np.random.default_rng(1).normal(size=(n_components or X.shape[1], X.shape[1]))
    theirs = NeighborhoodComponentsAnalysis(n_components, init=init, random_state=0).fit(X, y)
    ours = NCA(n_components, init=init, random_state=0).fit(X, y)
    assert ours.components_.shape == theirs.components_.shape
    # "auto" is a start of its own, and after many steps the rounding of another processor leads to another maximum, which may
    # serve one row less.
    assert objective(ours.components_, X, y) >= objective(theirs.components_, X, y) - 1.0 / len(X)


def test_the_path_is_scikit_learns_from_a_named_start():
    X, y = load_digits(n_class=4, return_X_y=True)
    X, y = X[:300], y[:300]
    theirs, ours = [], []
    for cls, seen in ((NeighborhoodComponentsAnalysis, theirs), (NCA, ours)):
        cls(2, init="pca", max_iter=8, callback=lambda A, k, seen=seen: seen.append((k, A.copy()))).fit(X, y)
    assert [k for k, _ in ours] == [k for k, _ in theirs]
    for (_, mine), (_, other) in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)


# -- scale safety --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("whole_search")
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"structure": "diag"},
        pytest.param({"n_components": 2}, marks=pytest.mark.slow),
        pytest.param({"objective": Objective("likelihood", penalty=0.01)}, marks=pytest.mark.slow),
    ],
)
def test_auto_does_not_see_units(wine, parameters):
    X, y = (array[::2] for array in wine)
    here = NCA(**parameters, max_iter=15).fit(X, y)
    for scale in (1e-3, 1e3):
        there = NCA(**parameters, max_iter=15).fit(scale * X, y)
        largest = np.abs(here.components_).max()
        np.testing.assert_allclose(scale * there.components_, here.components_, atol=1e-6 * largest)
        np.testing.assert_allclose(there.objectives_[-1], here.objectives_[-1], rtol=1e-8)


@pytest.mark.usefixtures("whole_search")
def test_badly_scaled_columns_are_no_obstacle(iris):
    X, y = iris
    bad = X * np.array([1e-4, 1.0, 1e5, 30.0])
    assert NCA(random_state=0).fit(bad, y).objectives_[-1] > 0.98
    theirs = NeighborhoodComponentsAnalysis(random_state=0).fit(bad, y)
    assert objective(theirs.components_, bad, y) < 0.96


def test_a_saturated_named_start_is_left(iris):
    """At X * 1000, each row has only one effective neighbour under the identity; scikit-learn returns it unchanged."""
    X, y = iris
    theirs = NeighborhoodComponentsAnalysis(init="identity").fit(1000 * X, y)
    np.testing.assert_array_equal(theirs.components_, np.eye(4))
    for scale in (1e-4, 1000.0, 1e8):
        ours = NCA(init="identity").fit(scale * X, y)
        assert ours.objectives_[-1] > 0.97
        assert ours.n_iter_ <= min(50, ours.n_passes_)
        assert len(ours.objectives_) >= ours.n_passes_


# -- variants ------------------------------------------------------------------------------------------------


def test_likelihood_and_accuracy_each_win_at_their_own_game(wine):
    X, y = wine
    X = X[::2][:, :4]
    y = y[::2]
    f = NCA(max_iter=200).fit(X, y).components_
    g = NCA(objective="likelihood", max_iter=200).fit(X, y).components_
    assert objective(f, X, y) > objective(g, X, y)
    assert objective(g, X, y, "likelihood") > objective(f, X, y, "likelihood")


def test_diagonal_finds_the_relevant_features():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 6)) * [1, 1, 50, 1, 0.01, 1]
    y = (X[:, 1] + 100 * X[:, 4] > 0).astype(int)
    nca = NCA(max_iter=300, objective="likelihood", structure="diag").fit(X, y)
    A = nca.components_
    np.testing.assert_array_equal(A, np.diag(np.diag(A)))
    assert np.all(np.diag(A) >= 0)
    assert nca.feature_relevance_[[1, 4]].sum() > 0.9
    np.testing.assert_allclose(nca.feature_relevance_.sum(), 1.0)


def test_solvers_agree(iris):
    X, y = iris
    settings = {"objective": Objective("likelihood", penalty=0.02), "tol": 1e-10, "max_iter": 500}
    lbfgs = NCA(solver="lbfgs", **settings).fit(X, y)
    cg = NCA(solver="cg", **settings).fit(X, y)
    np.testing.assert_allclose(lbfgs.objectives_[-1], cg.objectives_[-1], atol=1e-7)
    M = lbfgs.get_mahalanobis_matrix()
    np.testing.assert_allclose(cg.get_mahalanobis_matrix(), M, atol=1e-3 * np.abs(M).max())


def test_penalty_shrinks(iris):
    X, y = iris
    sizes = [
        np.linalg.norm(NCA(max_iter=300, objective=Objective(penalty=reg)).fit(X, y).components_)
        for reg in (0.0, 0.01, 0.1)
    ]
    assert sizes[0] > sizes[1] > sizes[2] > 0
    nca = NCA(max_iter=300, objective=Objective(penalty=0.01)).fit(X, y)
    penalty = 0.01 * np.sum(X.var(axis=0) * nca.components_**2)
    np.testing.assert_allclose(nca.objectives_[-1], objective(nca.components_, X, y) - penalty, rtol=1e-10)


def test_restarts_keep_the_best(wine):
    X, y = (array[::3] for array in wine)
    one = NCA(2, init="random", random_state=0).fit(X, y)
    many = NCA(2, init="random", n_init=4, random_state=0).fit(X, y)
    assert many.objectives_[-1] >= one.objectives_[-1]
    others = NCA(2, init="pca", n_init=3, random_state=0).fit(X, y)
    assert others.objectives_[-1] >= NCA(2, init="pca", random_state=0).fit(X, y).objectives_[-1]


def test_low_rank_finds_the_rings():
    """Fig. 2, top row: concentric rings in two dimensions, noise of large variance in the third."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, 300)
    angle = rng.uniform(0, 2 * np.pi, 300)
    X = np.column_stack([(y + 1) * np.cos(angle), (y + 1) * np.sin(angle), 20 * rng.normal(size=300)])
    X[:, :2] += 0.05 * rng.normal(size=(300, 2))
    nca = NCA(2, random_state=0, max_iter=200).fit(X, y)
    assert nca.objectives_[-1] > 0.95
    A = nca.components_
    assert np.linalg.norm(A[:, 2]) * 20 < 0.2 * np.linalg.norm(A[:, :2])


# -- soft targets --------------------------------------------------------------------------------------------


def test_one_hot_probabilities_are_hard_classes(wine):
    X, y = wine
    hard = NCA(2, init="pca", max_iter=20, tol=1e-3).fit(X / X.std(0), y)
    soft = NCA(2, init="pca", max_iter=20, tol=1e-3, objective=Objective(match="dot")).fit(X / X.std(0), np.eye(3)[y])
    np.testing.assert_allclose(soft.components_, hard.components_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(soft.objectives_, hard.objectives_, rtol=1e-9)


@pytest.mark.parametrize("objective_", ["accuracy", "likelihood"])
@pytest.mark.parametrize("solver", ["lbfgs", "stochastic"])
def test_one_hot_rows_are_hard_classes_to_the_last_bit(wine, objective_, solver):
    X, y = (array[::2] for array in wine)
    weight = np.random.default_rng(0).random(len(y))
    settings = {"solver": solver, "max_iter": 5, "random_state": 0}
    hard = NCA(2, objective=objective_, **settings).fit(X, y, sample_weight=weight)
    for rows in (np.eye(3)[y], np.eye(5, dtype=bool)[y + 1], pd.get_dummies(pd.Series(y))):
        soft = NCA(2, objective=Objective(objective_, match="dot"), **settings).fit(X, rows, sample_weight=weight)
        np.testing.assert_array_equal(soft.components_, hard.components_)
        np.testing.assert_array_equal(soft.objectives_, hard.objectives_)


def test_the_objective_of_probability_rows_is_true_at_any_scale():
    # The climb goes to scales at which one neighbour takes all, where log-sums are as large as 1e16.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    rows = rng.dirichlet(np.ones(3), 60)
    rows[-1] = 0.0
    for init in (1e9 * np.eye(2, 4), np.eye(2, 4), "auto"):
        for solver in ("lbfgs", "stochastic"):
            nca = NCA(2, init=init, solver=solver, max_iter=20, random_state=0, objective=Objective(match="dot")).fit(
                X, rows
            )
            Z = X @ nca.components_.T
            scores = -((Z[:, None] - Z[None]) ** 2).sum(-1)
            np.fill_diagonal(scores, -np.inf)
            p = np.exp(scores - scores.max(1, keepdims=True))
            literal = (p / p.sum(1, keepdims=True) * (rows @ rows.T)).sum() / 60
            assert nca.objectives_[-1] == pytest.approx(literal, abs=1e-9)


@pytest.mark.parametrize("unit", [1e200, 1e-200])
def test_the_unit_of_the_target_does_not_matter(unit):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = X[:, 0] + 0.1 * rng.normal(size=60)
    one = NCA(1, max_iter=10, objective=Objective(match="gaussian")).fit(X, y)
    other = NCA(1, max_iter=10, objective=Objective(match="gaussian")).fit(X, unit * y)
    np.testing.assert_allclose(other.objectives_, one.objectives_, rtol=1e-6)
    np.testing.assert_allclose(other.match_scale_, unit * one.match_scale_)


@pytest.mark.parametrize("outputs", [1, 2])
def test_regression_targets(outputs):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 6)) * [1, 5, 1, 1, 1, 20]
    signal = np.column_stack([X[:, 0] + X[:, 2], X[:, 3]])
    y = signal[:, 0] if outputs == 1 else signal
    nca = NCA(outputs, random_state=0, max_iter=100, objective=Objective(match="gaussian")).fit(X, y)
    M = nca.get_mahalanobis_matrix() * np.outer(X.std(0), X.std(0))
    share = np.diag(M) / np.trace(M)
    assert share[[0, 2, 3] if outputs == 2 else [0, 2]].sum() > 0.9
    np.testing.assert_allclose(nca.match_scale_, 0.25 * np.sqrt(outputs) * np.atleast_1d(y.std(axis=0)))


def test_label_noise_as_probabilities(iris):
    X, y = iris
    rng = np.random.default_rng(0)
    noisy = np.where(rng.random(150) < 0.2, rng.integers(0, 3, 150), y)
    rows = 0.8 * np.eye(3)[noisy] + 0.2 / 3
    nca = NCA(2, objective=Objective("likelihood", match="dot"), max_iter=100).fit(X, rows)
    Z = nca.transform(X)
    assert cross_val_score(KNeighborsClassifier(9), Z, y).mean() > 0.93


# -- weights -------------------------------------------------------------------------------------------------


def test_weight_zero_is_absence(iris):
    X, y = iris
    weight = np.ones(150)
    weight[::3] = 0
    kept = weight > 0
    without = NCA(2, init="identity").fit(X[kept], y[kept])
    zero = NCA(2, init="identity").fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(zero.components_, without.components_, rtol=1e-9)
    assert zero.effective_neighbors_.shape == (150,)
    np.testing.assert_allclose(zero.effective_neighbors_[kept], without.effective_neighbors_, rtol=1e-8)


def test_only_equal_weights_are_none(iris):
    """Weights of which the first is the smallest would be taken for equal ones if rows were compared by size."""
    X, y = iris
    for weight in (1.0 + (np.arange(150) % 7), 8.0 - (np.arange(150) % 7)):
        rows = prepare_rows(X, y, weight, "class", None)
        np.testing.assert_allclose(rows.weight * weight.mean(), weight[rows.positions], rtol=1e-12)
    assert prepare_rows(X, y, np.full(150, 3.0), "class", None).weight is None


def test_scale_of_the_weights_does_not_matter(iris):
    X, y = iris
    weight = np.random.default_rng(0).uniform(0.5, 2, 150)
    one, two = (NCA(2, max_iter=20).fit(X, y, sample_weight=c * weight) for c in (1.0, 7.0))
    np.testing.assert_allclose(one.objectives_, two.objectives_, rtol=1e-6)


# -- honest convergence --------------------------------------------------------------------------------------


def test_says_when_it_has_not_converged(wine):
    X, y = wine
    with pytest.warns(ConvergenceWarning, match="max_iter=2 iterations were used"):
        nca = NCA(max_iter=2, init="identity").fit(X / X.std(0), y)
    assert not nca.converged_
    assert nca.n_iter_ == 2 <= nca.n_passes_


def test_iterations_never_exceed_max_iter_and_passes_are_counted_apart(wine):
    """NCA used to report 141 iterations with max_iter=50: the passes of line searches and of a resumed climb."""
    X, y = wine
    for max_iter, n_init in ((1, 1), (3, 2), (50, 1)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            nca = NCA(init="identity", max_iter=max_iter, n_init=n_init, random_state=0).fit(X, y)
        assert 1 <= nca.n_iter_ <= max_iter
        assert nca.n_iter_ <= nca.n_passes_ <= len(nca.objectives_)


def test_objectives_belong_to_the_components(wine):
    X, y = wine
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a fit that has converged says nothing
        nca = NCA(3, max_iter=200).fit(X, y)
    assert nca.converged_
    assert len(nca.objectives_) in (nca.n_passes_, nca.n_passes_ + 1)
    np.testing.assert_allclose(nca.objectives_[-1], nca.objectives_.max(), rtol=1e-12)
    np.testing.assert_allclose(nca.objectives_[-1], objective(nca.components_, X, y), rtol=1e-9)


def test_an_interrupted_fit_keeps_the_best(wine):
    X, y = wine

    def interrupt(A, iteration):
        if iteration == 3:
            raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning, match="it was interrupted"):
        nca = NCA(init="pca", n_init=5, callback=interrupt).fit(X / X.std(0), y)
    assert not nca.converged_
    np.testing.assert_allclose(nca.objectives_[-1], objective(nca.components_, X / X.std(0), y), rtol=1e-9)
    assert nca.objectives_[-1] > nca.objectives_[0]


@pytest.mark.parametrize("at", [2, 5, 30, 60, 61, 65, 90])
def test_whenever_it_is_interrupted_the_best_is_kept_and_nothing_more_is_done(monkeypatch, at):
    # Three starts, the first of them resumed at another scale: before, at and after the first pass of each climb.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    y = (X[:, 0] + 0.3 * rng.normal(size=60) > 0).astype(int) + (X[:, 1] > 0.5)
    passes = []

    complete = Rows.objective

    def interrupted(*arguments):
        passes.append(None)
        if len(passes) == at:
            raise KeyboardInterrupt
        return complete(*arguments)

    monkeypatch.setattr(Rows, "objective", interrupted)
    with pytest.warns(ConvergenceWarning, match="it was interrupted"):
        nca = NCA(2, init=300 * np.eye(2, 4), n_init=3, max_iter=25, random_state=0).fit(X, y)
    assert not nca.converged_
    assert len(passes) == at
    np.testing.assert_allclose(nca.objectives_[-1], objective(nca.components_, X, y), rtol=1e-9)


def test_a_callback_stops_all_starts(wine):
    X, y = wine
    seen = []

    def stop(A, iteration):
        seen.append(iteration)
        raise StopIteration

    with pytest.warns(ConvergenceWarning, match="callback stopped"):
        NCA(2, init="pca", n_init=4, callback=stop).fit(X / X.std(0), y)
    assert seen == [1]


def test_a_callback_may_stop(wine):
    X, y = wine
    seen = []

    def stop(A, iteration):
        seen.append((iteration, A.shape))
        if iteration == 2:
            raise StopIteration

    with pytest.warns(ConvergenceWarning, match="callback stopped"):
        NCA(2, init="pca", callback=stop).fit(X / X.std(0), y)
    assert seen == [(1, (26,)), (2, (26,))]


def test_warm_start_resumes(wine):
    X, y = wine
    X = X / X.std(0)
    nca = NCA(2, init="pca", warm_start=True, max_iter=3)
    with pytest.warns(ConvergenceWarning):
        first = nca.fit(X, y).objectives_
    nca.set_params(max_iter=100)
    second = nca.fit(X, y).objectives_
    np.testing.assert_allclose(second[0], first[-1], rtol=1e-10)
    assert second[-1] > first[-1]
    with pytest.raises(ValueError, match="components_ of the last fit must have as many columns"):
        nca.fit(X[:, :5], y)


# -- edge cases ----------------------------------------------------------------------------------------------


def test_duplicates_are_fine():
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(20, 3)), 3, axis=0)
    y = np.repeat(np.arange(20) % 2, 3)
    nca = NCA(max_iter=500).fit(X, y)
    assert np.isfinite(nca.components_).all()
    assert nca.objectives_[-1] > 0.99


def test_all_points_equal():
    for init in ("auto", "identity"):
        nca = NCA(init=init).fit(np.full((12, 3), 4.0), np.arange(12) % 2)
        assert nca.converged_
        assert np.isfinite(nca.components_).all()
        np.testing.assert_allclose(nca.objectives_[-1], 5 / 11)
        np.testing.assert_allclose(nca.effective_neighbors_, 11.0)


def test_one_class_is_trivial_and_says_so(iris):
    X, _ = iris
    for objective_, best in (("accuracy", 1.0), ("likelihood", 0.0)):
        with pytest.warns(UserWarning, match="all 150 targets are equal"):
            nca = NCA(objective=objective_).fit(X, np.zeros(150))
        np.testing.assert_allclose(nca.objectives_[-1], best, atol=1e-12)
        assert nca.converged_


def test_singleton_classes(iris):
    X, y = iris
    y = y.copy()
    y[[3, 77]] = [7, 8]
    with pytest.raises(ValueError, match=r"2 of 150 rows have no other row of their class.*Merge or drop"):
        NCA(objective="likelihood").fit(X, y)
    nca = NCA().fit(X, y)
    assert nca.objectives_[-1] <= 148 / 150
    with pytest.raises(ValueError, match="all 4 rows have no other row of their class"):
        NCA().fit(X[:4], [0, 1, 2, 3])


@pytest.mark.parametrize("objective_", ["accuracy", "likelihood"])
@pytest.mark.parametrize(
    "labels",
    [
        lambda y: np.array(["setosa", "versicolor", "virginica"])[y],
        lambda y: np.array(["setosa", "versicolor", "virginica"], dtype=object)[y],
        lambda y: pd.Categorical.from_codes(y, ["b", "a", "c"]),
        lambda y: pd.Series(np.array(["u", "v", "w"])[y], dtype="string"),
        lambda y: y - 10,
        lambda y: y.astype(float),
        lambda y: (y - 1).astype(np.int8),
        lambda y: [["x"], ["y"], ["z"]] and [("x", "y", "z")[k] for k in y],
    ],
    ids=["str", "object", "categorical", "string", "negative", "float", "int8", "list"],
)
def test_label_dtypes(iris, labels, objective_):
    X, y = iris
    plain = NCA(2, max_iter=10, objective=objective_, init="identity").fit(X, y)
    other = NCA(2, max_iter=10, objective=objective_, init="identity").fit(X, labels(y))
    np.testing.assert_allclose(other.objectives_[-1], plain.objectives_[-1], rtol=1e-6)


def test_boolean_labels(iris):
    X, y = iris
    both = [NCA(2, max_iter=5).fit(X, labels).components_ for labels in (y == 1, (y == 1).astype(int))]
    np.testing.assert_array_equal(*both)


def test_more_columns_than_rows():
    X, y = make_classification(40, 100, n_informative=5, random_state=0)
    for n_components in (2, 30, None):
        nca = NCA(n_components, random_state=0).fit(X, y)
        assert nca.components_.shape == (n_components or 100, 100)
        assert np.isfinite(nca.components_).all()


def test_permuted_rows_give_the_same_metric(iris):
    X, y = iris
    order = np.random.default_rng(0).permutation(150)
    straight = NCA(2, init="identity").fit(X, y)
    permuted = NCA(2, init="identity").fit(X[order], y[order])
    np.testing.assert_allclose(permuted.components_, straight.components_, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(permuted.effective_neighbors_, straight.effective_neighbors_[order], rtol=1e-4)


def test_float32_follows_float64(wine):
    X, y = wine
    X = X / X.std(0)
    double = NCA(2, init="pca").fit(X, y)
    single = NCA(2, init="pca").fit(X.astype(np.float32), y)
    assert single.transform(X.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(single.objectives_[-1], double.objectives_[-1], atol=1e-4)


@pytest.mark.parametrize("engine", ["cpu", "torch", Engine("reference", threads=2), Engine("cpu", memory="2 MB")])
def test_engines_agree(iris, engine):
    if engine == "torch":
        needs("torch")
    X, y = iris
    expected = NCA(2, init="pca", engine="reference").fit(X, y)
    found = NCA(2, init="pca", engine=engine).fit(X, y)
    np.testing.assert_allclose(found.objectives_[-1], expected.objectives_[-1], rtol=1e-4)
    np.testing.assert_allclose(found.objectives_[0], expected.objectives_[0], rtol=1e-11)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"solver": "cg"},
        {"n_components": 2},
        {"init": np.eye(2, 4)},
        {"solver": "stochastic"},
    ],
    ids=str,
)
@pytest.mark.parametrize("engine", [None, "cpu", "reference"])
def test_the_engine_is_recorded_and_foretold(iris, parameters, engine):
    X, y = (array[::3] for array in iris)
    nca = NCA(**parameters, engine=engine, max_iter=2)
    assert which_engine(X, nca).startswith(nca.fit(X, y).engine_ + ":")
    assert nca.engine_ == (engine or "reference")
    solver = parameters.get("solver", "lbfgs")
    assert nca.solver_ == (solver if isinstance(solver, str) else "stochastic")


def test_the_choice_of_the_engine_does_not_depend_on_max_iter():
    X = np.zeros((5000, 10))
    assert len({which_engine(X, NCA(max_iter=max_iter)) for max_iter in (1, 50, 10**6)}) == 1
    assert which_engine(X, NCA(2)) == (
        "cpu: 5000 x 5000 pairs in 2 dimensions, 50 times, are enough to justify compiled kernels"
    )
    assert "16384 x 30000 pairs in 10 dimensions, 20 times" in which_engine(np.zeros((30_000, 10)), NCA())
    assert which_engine(np.zeros((178, 13)), NCA(max_iter=10**6)).startswith("reference")


# -- at home in scikit-learn ---------------------------------------------------------------------------------


def test_pandas_and_names(iris):
    X, y = iris
    frame = pd.DataFrame(X, columns=list("abcd"))
    nca = NCA(2).set_output(transform="pandas").fit(frame, y)
    assert list(nca.feature_names_in_) == list("abcd")
    assert list(nca.transform(frame).columns) == ["nca0", "nca1"]


def test_pickle_clone_and_search(iris):
    X, y = iris
    nca = NCA(2, max_iter=5, random_state=0).fit(X, y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(nca)).transform(X), nca.transform(X))
    assert clone(nca).get_params() == nca.get_params()
    search = GridSearchCV(
        make_pipeline(NCA(max_iter=5), KNeighborsClassifier(3)), {"nca__n_components": [1, 2]}, cv=2
    ).fit(X, y)
    assert search.best_score_ > 0.9


def test_verbose_writes_to_stderr(iris, capsys):
    X, y = iris
    NCA(2, max_iter=3, verbose=1).fit(X, y)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "[NCA] pass 1: objective" in captured.err


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": 0}, "n_components must be at least 1, got 0"),
        ({"n_components": 2.0}, "n_components must be an integer"),
        ({"n_components": 5}, "n_components=5 is larger than the number of features, 4"),
        ({"init": "best"}, "init must be one of 'auto', 'pca'"),
        ({"init": None}, "init must be an array of numbers or one of"),
        ({"init": len}, "init must be an array of numbers or one of .* got builtin"),
        ({"structure": "no"}, "structure must be one of 'full', 'diag', got 'no'"),
        ({"warm_start": 1}, "warm_start must be True or False, got 1"),
        ({"objective": Objective(match="gaussian", match_scale=1e-308)}, "match_scale=1e-308 is too small"),
        ({"init": np.eye(3)}, "init must have as many columns as X has features, 4, got shape"),
        ({"init": np.ones((5, 4))}, "init must not have more rows than columns"),
        ({"init": np.eye(4), "n_components": 2}, "n_components=2 does not match init, which has 4 rows"),
        ({"init": np.full((2, 4), np.nan)}, "init contains NaN"),
        ({"init": np.zeros((2, 4))}, "init must not be all zero"),
        ({"init": "lda", "n_components": 3}, r"init='lda' finds at most .*=2 components, got n_components=3"),
        ({"init": "lda", "n_components": 1, "objective": Objective(match="gaussian")}, "init='lda' needs classes"),
        ({"structure": "diag", "n_components": 2}, "structure='diag' learns one weight for each of the 4 features"),
        ({"structure": "diag", "init": "pca"}, "init='pca' is not diagonal"),
        ({"structure": "diag", "init": np.ones((4, 4))}, "needs a square diagonal init"),
        ({"objective": "f"}, "objective must be one of 'accuracy', 'likelihood'"),
        ({"solver": "adam"}, "solver must be one of"),
        ({"objective": "pairs"}, "objective must be one of 'accuracy', 'likelihood' or a vicinal.Objective"),
        ({"objective": Objective("pairs")}, "the kind of objective must be one of 'accuracy', 'likelihood'"),
        ({"objective": Objective(match_scale=1.0)}, "match_scale=1.0 is only for match='gaussian'"),
        (
            {"objective": Objective(match="gaussian", match_scale=0.0)},
            "match_scale must be a finite number greater than 0, got 0.0",
        ),
        (
            {"objective": Objective(match="gaussian", match_scale=[1.0, 2.0])},
            "one for each of the 1 outputs, got shape",
        ),
        ({"objective": Objective(match="dot")}, r"needs one row of non-negative numbers .* got y of shape \(150,\)"),
        ({"max_iter": 0}, "max_iter must be at least 1"),
        ({"tol": -1e-3}, "tol must be a finite number at least 0"),
        ({"callback": 3}, "callback must be callable"),
        ({"engine": "gpu"}, "engine must be one of"),
    ],
)
def test_bad_parameters(iris, parameters, message):
    X, y = iris
    with pytest.raises((ValueError, TypeError), match=message):
        NCA(**parameters).fit(X, y)


@pytest.mark.parametrize(
    ("y", "parameters", "message"),
    [
        (np.linspace(0.1, 0.9, 150), {}, "y is continuous: 150 of its 150 .* Use Objective\\(match='gaussian'\\)"),
        (np.tile([[0.5, -0.1]], (150, 1)), {"match": "dot"}, "needs non-negative rows .* 150 negative"),
        (np.eye(150), {"match": "dot"}, "all 150 rows have no other row that agrees"),
        (
            1e3 * np.arange(150),
            {"match": "gaussian", "match_scale": 1.0},
            "all 150 rows .* Raise match_scale",
        ),
        ([1, "a"] * 75, {}, "y must hold labels of one kind"),
        (np.zeros((150, 2)), {}, "y should be a 1d array"),
        (["a"] * 149, {}, "inconsistent numbers of samples"),
        (np.r_[np.nan, np.zeros(149)], {}, "y must not hold missing labels .*, got 1 of 150. Drop"),
        ([None, "a", "b"] * 50, {}, "missing labels .*, got 50 of 150"),
        ([np.nan, "a", "b"] * 50, {}, "missing labels .*, got 50 of 150"),
        (pd.Series(["a", "b", None] * 50, dtype="string"), {}, "missing labels .*, got 50 of 150"),
        (pd.Series([1, 2, None] * 50, dtype="Int64"), {}, "missing labels .*, got 50 of 150"),
        (pd.Categorical(["a", "b", None] * 50), {}, "missing labels .*, got 50 of 150"),
        (
            ["a", "b", "c"] * 50,
            {"match": "gaussian"},
            "y must hold numbers, but .* Use Objective\\(match='class'\\) for labels",
        ),
        (1e200 * np.ones((150, 2)), {"match": "dot"}, "expected 1e-100 to 1e.100. Divide the rows by their sums"),
        (1e-200 * np.ones((150, 2)), {"match": "dot"}, "expected 1e-100 to 1e.100"),
    ],
)
def test_bad_targets(iris, y, parameters, message):
    X, _ = iris
    if isinstance(y, list) and len(y) == 150:
        y = np.array(y, dtype=object)
    with pytest.raises((ValueError, TypeError), match=message):
        NCA(objective=Objective(**parameters)).fit(X, y)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.r_[-1.0, np.ones(149)], "sample_weight must not be negative"),
        (np.zeros(150), "(?i)sample.weights? must"),
        (np.r_[1.0, np.zeros(149)], "at least 2 rows must have a positive sample_weight, got 1"),
    ],
)
def test_bad_weights(iris, weight, message):
    X, y = iris
    with pytest.raises(ValueError, match=message):
        NCA().fit(X, y, sample_weight=weight)


def test_huge_values_are_refused(iris):
    X, y = iris
    with pytest.raises(ValueError, match="whose squares overflow float64"):
        NCA().fit(1e200 * X, y)


def test_tiny_differences_are_refused(iris):
    X, y = iris
    with pytest.raises(ValueError, match="whose square underflows float64"):
        NCA().fit(1e-200 * X, y)


def test_relevance_is_the_share_of_the_mean_squared_distance():
    X, y = load_iris(return_X_y=True)
    X = X * [1.0, 10.0, 0.1, 1.0]
    nca = NCA(structure="diag", max_iter=3).fit(X, y)
    images = nca.transform(X)
    shares = ((images[:, None] - images[None]) ** 2).mean(axis=(0, 1))
    np.testing.assert_allclose(nca.feature_relevance_, shares / shares.sum(), rtol=1e-10)
