"""Test LCA: its steps and gradient, invariances, penalties, weights, convergence and bad input."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from estimator_checks import check_conventions
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import check_grad
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.estimator_checks import parametrize_with_checks

from vicinal import LCA, ParzenWindows, which_engine
from vicinal._fit_loops import Recorder, _line_search
from vicinal._lca.steps import Penalty, nearest_structured
from vicinal._leave_one_out import leave_one_out
from vicinal._rows import count_twins

ALL_TWINS = (
    "the check's data hold every row four times, where the leave-one-out likelihood is unbounded: refused, "
    "with the remedy"
)
COLLAPSE = (
    "the check's data are 20 rows of five digits 0 to 2, whose leave-one-out likelihood is unbounded: "
    "refused, with the remedy"
)
LEFT_OUT_WHOLLY = (
    "sample_weight is importance: a row of weight 2 is left out as a whole, its repetition is not, so the "
    "two differ by design wherever rows are left out"
)
STRUCTURES = [("full", None), ("diag", None), ("spherical", None), ("low_rank", 2)]


def expected_failures(estimator):
    failures = {
        "check_sample_weight_equivalence_on_dense_data": LEFT_OUT_WHOLLY,
    }
    if estimator.reg == 0:
        failures |= {
            "check_sample_weights_shape": ALL_TWINS,
            "check_sample_weights_not_overwritten": ALL_TWINS,
            "check_estimators_dtypes": COLLAPSE,
        }
    return failures


@parametrize_with_checks([LCA(reg=0.1)], expected_failed_checks=expected_failures)
@pytest.mark.filterwarnings("ignore:.*exact twin.*:UserWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", [LCA("diag", reg=0.1, solver="em"), LCA()], ids=str)
@pytest.mark.filterwarnings("ignore:.*exact twin.*:UserWarning")
def test_scikit_learn_checks_of_other_settings(estimator):
    check_conventions(estimator, expected_failures(estimator))


@pytest.fixture
def rows():
    """Three slanted clusters in four dimensions, 90 rows, far from the origin."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(4, 4))
    return (rng.normal(size=(3, 4)) * 3)[rng.integers(3, size=90)] + rng.normal(size=(90, 4)) @ mixing + 20.0


def literal_objective(X, sigma, reg=0.0, weight=None):
    """Eq. 1 per row, maximised, with the penalty; weights as terms and as neighbours."""
    weight = np.ones(len(X)) if weight is None else weight
    total = 0.0
    for i in range(len(X)):
        others = np.delete(np.arange(len(X)), i)
        kernels = multivariate_normal(X[i], sigma).pdf(X[others])
        total += weight[i] * np.log(weight[others] @ kernels / weight[others].sum())
    return total / weight.sum() - 0.5 * reg * np.trace(np.linalg.inv(sigma))


def literal_step(X, sigma, reg=0.0, weight=None):
    """Eqs. 3 and 4, with the penalty's nu I."""
    weight = np.ones(len(X)) if weight is None else weight
    n, d = X.shape
    new = np.zeros((d, d))
    precision = np.linalg.inv(sigma)
    for i in range(n):
        kernels = np.array([np.exp(-0.5 * (X[i] - x) @ precision @ (X[i] - x)) for x in X]) * weight
        kernels[i] = 0.0
        shares = weight[i] * kernels / kernels.sum()
        for j in range(n):
            new += shares[j] * np.outer(X[i] - X[j], X[i] - X[j])
    return new / weight.sum() + reg * np.eye(d)


def structure(covariance, sigma):
    """The M-steps of the structures, from the text."""
    if covariance == "diag":
        return np.diag(np.diag(sigma))
    if covariance == "spherical":
        return np.trace(sigma) / len(sigma) * np.eye(len(sigma))
    return sigma


# -- the paper, literally ----------------------------------------------------------------------------------


@pytest.mark.parametrize("reg", [0.0, 0.3])
@pytest.mark.parametrize("covariance", ["full", "diag", "spherical"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_em_follows_equations_1_3_and_4(rows, covariance, reg, weighted):
    X = rows[:18]
    weight = np.random.default_rng(1).integers(0, 4, size=18).astype(float) if weighted else None
    sigma = structure(covariance, np.cov(X.T, bias=True, aweights=weight) + reg * np.eye(4))
    path = []
    for _ in range(3):
        path.append(literal_objective(X, sigma, reg, weight))
        last, sigma = sigma, structure(covariance, literal_step(X, sigma, reg, weight))
    lca = LCA(covariance, reg=reg, solver="em", max_iter=3).fit(X, sample_weight=weight)
    np.testing.assert_allclose(lca.objectives_, path, rtol=1e-10)
    np.testing.assert_allclose(lca.covariance_, last, rtol=1e-9, atol=1e-12)
    assert lca.n_iter_ == 3
    assert not lca.converged_


def test_low_rank_step_is_the_best_of_its_structure():
    # No covariance of rank 2 plus a scalar does better than the closed form: perturb it and see.
    rng = np.random.default_rng(0)
    T = np.cov(rng.normal(size=(50, 5)).T) @ np.diag([1, 4, 9, 1, 1])
    T = T @ T.T

    def value(sigma):
        return -np.linalg.slogdet(sigma)[1] - np.trace(np.linalg.solve(sigma, T))

    best = nearest_structured(T, "low_rank", 2)
    values, vectors = np.linalg.eigh(best)
    np.testing.assert_allclose(values[:3], values[0])
    for _ in range(200):
        W = vectors[:, 3:] * np.sqrt(values[3:] - values[0]) + 0.05 * rng.normal(size=(5, 2))
        assert value(W @ W.T + values[0] * np.exp(0.1 * rng.normal()) * np.eye(5)) <= value(best)
    np.testing.assert_allclose(nearest_structured(T, "low_rank", 4), T, rtol=1e-12)


@pytest.mark.parametrize("reg", [0.0, 0.5])
def test_gradient_by_finite_differences(rows, reg):
    X = rows[:25]
    weight = np.linspace(0.5, 1.5, 25)
    problem, penalty = leave_one_out(X, weight, "reference"), Penalty(reg * np.eye(4))
    A = np.random.default_rng(3).normal(size=(4, 4)) * 0.5

    def gradient(a):
        """(I - M) A^-T, with the matrix M of the EM step."""
        metric = a.reshape(4, 4)
        matrix = penalty.in_frame(metric).updated(problem.em_statistics(metric).scatter)
        return np.linalg.solve(metric, np.eye(4) - matrix).T.ravel()

    def objective(a):
        metric = a.reshape(4, 4)
        return problem.em_statistics(metric).log_likelihood - penalty.cost(metric)

    assert check_grad(objective, gradient, A.ravel()) < 1e-5
    # design: A^-T - A S/n - nu A
    S = literal_step(X, np.linalg.inv(A.T @ A), reg, weight)
    np.testing.assert_allclose(gradient(A).reshape(4, 4), np.linalg.inv(A).T - A @ S, rtol=1e-8, atol=1e-8)


# -- laws --------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 10**6),
    st.integers(6, 40),
    st.integers(1, 4),
    st.sampled_from(STRUCTURES),
    st.sampled_from([0.0, 0.01, 1.0]),
    st.booleans(),
)
def test_the_penalised_objective_never_falls(seed, n, d, structure, reg, weighted):
    covariance, rank = structure
    if covariance == "low_rank" and d < 3:
        covariance, rank = "diag", None
    rng = np.random.default_rng(seed)
    X = rng.standard_t(3, size=(n, d)) @ rng.normal(size=(d, d))
    weight = rng.exponential(size=n) if weighted else None
    lca = LCA(covariance, rank=rank, reg=reg, solver="em", max_iter=60, tol=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            lca.fit(X, sample_weight=weight)
        except ValueError as error:  # few rows in many dimensions may collapse, and must say so
            assert "reg" in str(error)  # noqa: PT017
            return
    assert np.diff(lca.objectives_).min(initial=0.0) >= -1e-9
    assert np.isfinite(lca.covariance_).all()
    assert np.isfinite(lca.components_).all()


@pytest.mark.parametrize(("covariance", "rank"), [("full", None), ("diag", None), ("spherical", None), ("low_rank", 1)])
@pytest.mark.parametrize("reg", [0.0, 0.2])
def test_accelerated_reaches_the_optimum_of_em_in_fewer_passes(rows, covariance, rank, reg):
    em = LCA(covariance, rank=rank, reg=reg, solver="em", tol=1e-11, max_iter=5000).fit(rows)
    fast = LCA(covariance, rank=rank, reg=reg, solver="accelerated", tol=1e-11).fit(rows)
    assert em.converged_
    assert fast.converged_
    assert fast.n_iter_ < em.n_iter_
    assert abs(fast.objectives_[-1] - em.objectives_[-1]) < 1e-8
    np.testing.assert_allclose(fast.covariance_, em.covariance_, rtol=2e-3, atol=2e-3)
    assert fast.objectives_[-1] == fast.objectives_.max()


def test_a_trial_that_lowers_the_objective_is_shortened():
    """The accelerated solver accepts no loss, however small it is."""
    tried = []

    def evaluate(at):
        tried.append(at.item())
        return (1.1 if at.item() < 1.0 else 1.0 - 1e-9), 0.5 - at

    def search(objective, direction, trials):
        start = np.zeros(1), objective, np.ones(1), direction * np.ones(1)
        return _line_search(evaluate, lambda at, step: (at + step, step), Recorder(), *start, trials)

    found = search(1.0, 4.0, 5)
    assert tried[0] == 4.0
    assert tried[-1] < 1.0
    assert found[0].item() == tried[-1]
    assert found[1] == pytest.approx(0.1)
    assert search(1.2, 1.0, 2) is None


def test_at_the_optimum_the_step_stands_still(rows):
    rows = rows[:50]
    lca = LCA(tol=1e-13, reg=0.0).fit(rows)
    np.testing.assert_allclose(literal_step(rows, lca.covariance_), lca.covariance_, rtol=1e-4, atol=1e-4)
    assert lca.objectives_[-1] == pytest.approx(literal_objective(rows, lca.covariance_), rel=1e-10)
    assert lca.score() == pytest.approx(lca.objectives_[-1], rel=1e-10)


@pytest.mark.parametrize("solver", ["em", "accelerated"])
@pytest.mark.parametrize("covariance", ["full", "diag", "spherical", "low_rank"])
def test_equivariance(rows, covariance, solver):
    rng = np.random.default_rng(5)
    rotation = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    maps = {
        "full": rng.normal(size=(4, 4)),
        "diag": np.diag([1e-3, 1.0, 7.0, -1e4]),
        "spherical": 30.0 * rotation,
        "low_rank": 0.01 * rotation,
    }
    T = maps[covariance]
    rank = 2 if covariance == "low_rank" else None
    plain = LCA(covariance, rank=rank, solver=solver, max_iter=3000, reg=0.0).fit(rows)
    mapped = LCA(covariance, rank=rank, solver=solver, max_iter=3000, reg=0.0).fit(rows @ T.T + rng.normal(size=4))
    scale = np.sqrt(np.diag(mapped.covariance_))
    np.testing.assert_allclose(
        mapped.covariance_ / np.outer(scale, scale),
        T @ plain.covariance_ @ T.T / np.outer(scale, scale),
        atol=1e-6,
    )
    shift = np.linalg.slogdet(T)[1]
    np.testing.assert_allclose(mapped.objectives_[-1], plain.objectives_[-1] - shift, atol=1e-9)
    np.testing.assert_allclose(mapped.score_samples(None), plain.score_samples(None) - shift, atol=1e-5)
    np.testing.assert_allclose(mapped.effective_neighbors_, plain.effective_neighbors_, rtol=1e-4)
    if covariance == "full":  # the image itself does not change, up to a shift and signs
        a = plain.transform(rows) - plain.transform(rows).mean(0)
        b = mapped.transform(rows @ T.T) - mapped.transform(rows @ T.T).mean(0)
        np.testing.assert_allclose(b * np.sign((a * b).sum(0)), a, atol=1e-4)


def test_permutation_of_the_rows(rows):
    order = np.random.default_rng(0).permutation(len(rows))
    a, b = LCA(reg=0.0).fit(rows), LCA(reg=0.0).fit(rows[order])
    np.testing.assert_allclose(a.covariance_, b.covariance_, rtol=1e-6)
    np.testing.assert_allclose(a.effective_neighbors_[order], b.effective_neighbors_, rtol=1e-6)


def test_weights_equal_to_one_change_nothing_and_rows_of_weight_zero_do_not_count(rows):
    plain = LCA(reg=0.0).fit(rows)
    np.testing.assert_allclose(LCA(reg=0.0).fit(rows, sample_weight=np.full(90, 3.0)).covariance_, plain.covariance_)
    weight = np.r_[np.ones(90), np.zeros(10)]
    extended = LCA(reg=0.0).fit(np.r_[rows, rows[:10] * 1e7], sample_weight=weight)
    np.testing.assert_allclose(extended.covariance_, plain.covariance_, rtol=1e-8)
    np.testing.assert_allclose(extended.effective_neighbors_[:90], plain.effective_neighbors_, rtol=1e-6)
    np.testing.assert_allclose(extended.score_samples(rows[:5]), plain.score_samples(rows[:5]))


def test_components_are_the_ordered_local_components(rows):
    lca = LCA(reg=0.0).fit(rows)
    A = lca.components_
    np.testing.assert_allclose(A.T @ A, lca.precision_, rtol=1e-9)
    np.testing.assert_allclose(lca.precision_ @ lca.covariance_, np.eye(4), atol=1e-9)
    np.testing.assert_allclose(A @ lca.covariance_ @ A.T, np.eye(4), atol=1e-9)
    spread = np.cov(lca.transform(rows).T, bias=True)
    np.testing.assert_allclose(spread, np.diag(np.diag(spread)), atol=1e-8 * spread.max())
    assert np.all(np.diff(np.diag(spread)) <= 0)
    np.testing.assert_allclose(lca.get_mahalanobis_matrix(), lca.precision_)
    difference = rows[0] - rows[1]
    assert lca.mahalanobis(rows[:1], rows[1:2])[0, 0] == pytest.approx(
        np.sqrt(difference @ lca.precision_ @ difference)
    )
    neighbors = NearestNeighbors(n_neighbors=1).fit(lca.transform(rows))
    distance = neighbors.kneighbors(lca.transform(rows[:1]), n_neighbors=2)[0][0, 1]
    assert distance == pytest.approx(np.sort(lca.mahalanobis(rows)[0])[1])


@pytest.mark.parametrize("covariance", ["diag", "spherical"])
def test_diagonal_structures_have_diagonal_components(rows, covariance):
    lca = LCA(covariance, reg=0.0).fit(rows)
    for matrix in (lca.components_, lca.covariance_, lca.precision_):
        assert np.count_nonzero(matrix - np.diag(np.diag(matrix))) == 0
        assert np.diag(matrix).min() > 0


def test_effective_neighbors_are_perplexities(rows):
    weight = np.linspace(0.1, 2, 90)
    lca = LCA(reg=0.0).fit(rows, sample_weight=weight)
    Z = lca.transform(rows)
    scores = -0.5 * ((Z[:, None] - Z[None]) ** 2).sum(-1) + np.log(weight)
    np.fill_diagonal(scores, -np.inf)
    p = np.exp(scores - scores.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    entropy = -np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0).sum(1)
    np.testing.assert_allclose(lca.effective_neighbors_, np.exp(entropy), rtol=1e-8)


def test_spherical_lca_is_parzen_windows_by_leave_one_out(rows):
    np.testing.assert_allclose(
        LCA("spherical", tol=1e-12, reg=0.0).fit(rows).covariance_,
        ParzenWindows("loo").fit(rows).covariance_,
        rtol=1e-4,
    )


def test_a_start_and_the_penalty(rows):
    lca = LCA(reg=0.0).fit(rows)
    again = LCA(init=lca.covariance_, reg=0.0).fit(rows)
    assert again.n_iter_ <= 3
    np.testing.assert_allclose(again.covariance_, lca.covariance_, rtol=1e-3)
    assert np.isfinite(LCA(init=0.5, reg=0.0).fit(rows).objectives_).all()
    smallest = [np.linalg.eigvalsh(LCA(reg=reg).fit(rows).covariance_)[0] for reg in (0.01, 1.0, 100.0)]
    assert smallest[0] >= 0.01
    assert smallest[1] >= 1.0
    assert smallest[2] >= 100.0


def test_float32_and_engines_agree(rows):
    exact = LCA(engine="reference", reg=0.0).fit(rows)
    np.testing.assert_allclose(LCA(engine="cpu", reg=0.0).fit(rows).covariance_, exact.covariance_, rtol=1e-6)
    single = LCA(reg=0.0).fit((rows - 20).astype(np.float32))
    np.testing.assert_allclose(single.covariance_, exact.covariance_, rtol=2e-2, atol=2e-3)
    assert single.covariance_.dtype == np.float64
    assert single.transform(rows.astype(np.float32)).dtype == np.float32


def test_far_from_the_origin_costs_few_digits(rows):
    near, far = LCA(reg=0.0).fit(rows), LCA(reg=0.0).fit(rows + 1e6)
    np.testing.assert_allclose(far.covariance_, near.covariance_, rtol=1e-5)


# -- at home in scikit-learn -------------------------------------------------------------------------------


def test_frames_names_clone_pickle_search(rows):
    frame = pd.DataFrame(rows, columns=list("abcd"))
    lca = LCA(reg=0.0).set_output(transform="pandas").fit(frame)
    assert list(lca.transform(frame).columns) == ["lca0", "lca1", "lca2", "lca3"]
    assert lca.marginal(["a", "c"]).score(frame[["a", "c"]].to_numpy()) > -20
    again = pickle.loads(pickle.dumps(lca))
    np.testing.assert_array_equal(again.score_samples(frame), lca.score_samples(frame))
    assert clone(lca).get_params()["reg"] == 0.0
    search = GridSearchCV(LCA(reg=0.0), {"reg": [0.001, 1000.0]}, cv=3).fit(rows)
    assert search.best_params_["reg"] == 0.001
    with pytest.raises(NotFittedError):
        LCA(reg=0.0).score_samples(rows)
    assert LCA(reg=0.0).fit(rows).sample(7, random_state=0).shape == (7, 4)


def test_the_data_may_change_after_the_fit(rows):
    X = rows.copy()
    lca = LCA(reg=0.0).fit(X)
    before = lca.score_samples(rows[:3])
    X[:] = 0
    np.testing.assert_array_equal(lca.score_samples(rows[:3]), before)
    np.testing.assert_array_equal(lca.mixture_.centres, rows)


def test_auto_says_what_it_picks(rows, capsys):
    lca = LCA(verbose=True, reg=0.0).fit(rows)
    assert lca.solver_ == "accelerated"
    err = capsys.readouterr().err
    assert "solver='accelerated'" in err
    assert "pass 1: objective" in err


def test_not_converged_is_said(rows):
    with pytest.warns(ConvergenceWarning, match="max_iter=3"):
        lca = LCA(max_iter=3, reg=0.0).fit(rows)
    assert not lca.converged_
    assert lca.objectives_[-1] == pytest.approx(lca.score())


# -- degenerate data ---------------------------------------------------------------------------------------


def degenerate():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    dependent = np.c_[X, X @ [1.0, 2.0, -1.0]]
    grid = np.array([[a, b, c] for a in range(4) for b in range(4) for c in range(4)], dtype=float)
    sheet = np.c_[np.repeat(rng.normal(size=15), 2), rng.normal(size=30)]  # each row shares x with another
    return {
        "twins": (LCA(reg=0.0), np.repeat(X, 2, axis=0), "every one of the 60 rows has an exact twin"),
        "equal": (LCA("spherical", reg=0.0), np.ones((5, 2)), "all 5 rows are equal"),
        "wide": (LCA(reg=0.0), X[:3], "needs more than 3 rows, got 3"),
        "dependent": (LCA(reg=0.0), dependent, "span only 3 dimensions of 4"),
        "dependent low": (LCA("low_rank", rank=3, reg=0.0), dependent, "span only 3 dimensions of 4"),
        "sheet": (LCA(init=np.diag([1e-4, 1.0]), reg=0.0), sheet, "collapses"),
        "nearly twins": (LCA(reg=0.0), np.r_[X, X[:29]], "twin"),
        "lost penalty": (LCA(reg=1e-20), X[:3], "reg=1e-20 is too small compared with the variance of the data"),
        "far groups, lost penalty": (LCA(reg=1e-20), np.r_[X, X + 1e9] * 1e-6, "reg=1e-20 is too small"),
        "far groups": (LCA("spherical", reg=0.0), np.r_[X, X + 1e9] * 1e-6, "collapses.*a million times further"),
    }, grid


@pytest.mark.parametrize("case", degenerate()[0])
def test_degenerate_data_are_refused_with_the_remedy(case):
    lca, X, message = degenerate()[0][case]
    with pytest.raises((ValueError, UserWarning), match=message) as error:
        lca.fit(X)
    assert "reg" in str(error.value)
    # The remedy works.
    fitted = clone(lca).set_params(reg=0.01).fit(X)
    assert np.isfinite(fitted.objectives_).all()
    assert np.isfinite(fitted.components_).all()
    assert np.isfinite(fitted.score_samples(None)).all()


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
@pytest.mark.parametrize("reg", [0.0, "auto"])
def test_constant_columns_are_named_and_ignored(rows, covariance_type, reg):
    frame = pd.DataFrame(rows, columns=list("abcd"))
    frame.insert(2, "flat", 0.1)
    with pytest.warns(UserWarning, match=r"1 of 5 columns is constant \(flat\)"):
        lca = LCA(covariance_type, reg=reg).fit(frame)
    plain = LCA(covariance_type, reg=reg).fit(rows)
    np.testing.assert_array_equal(lca.active_features_, [0, 1, 3, 4])
    np.testing.assert_array_equal(lca.constant_values_, [0.1])
    np.testing.assert_array_equal(lca.components_[:, 2], 0.0)
    np.testing.assert_array_equal(lca.components_[:, lca.active_features_], plain.components_)
    np.testing.assert_array_equal(lca.covariance_, plain.covariance_)
    np.testing.assert_array_equal(lca.precision_, plain.precision_)
    np.testing.assert_array_equal(lca.reg_[np.ix_(lca.active_features_, lca.active_features_)], plain.reg_)
    assert lca.get_feature_names_out().shape == (4,)
    # The density is that of the others, whatever the constant column holds.
    other = frame.assign(flat=7.0)
    np.testing.assert_allclose(lca.score_samples(other), plain.score_samples(rows))
    assert np.all(lca.sample(3, random_state=0)[:, 2] == 0.1)
    assert lca.score_samples(other.assign(a=np.nan)[:1]) == lca.marginal(["b", "c", "d"]).score_samples(rows[:1, 1:])
    given = lca.conditional({"a": 1.0, "flat": 0.1})
    assert given.score_samples(rows[:1, 1:]) == plain.conditional({0: 1.0}).score_samples(rows[:1, 1:])
    with pytest.raises(ValueError, match="features 2 are constant"):
        lca.marginal(["flat", "b"])
    with pytest.warns(UserWarning, match="constant"):
        again = LCA(covariance_type, reg=lca.reg_).fit(frame)
    np.testing.assert_array_equal(again.covariance_, lca.covariance_)


def test_a_penalty_keeps_constant_columns(rows):
    lca = LCA(reg=0.5).fit(np.insert(rows, 2, 0.1, axis=1))
    np.testing.assert_array_equal(lca.active_features_, np.arange(5))
    np.testing.assert_allclose(lca.covariance_[2], [0, 0, 0.5, 0, 0], atol=1e-12)


def test_structures_that_need_less_accept_deficient_data():
    X = np.random.default_rng(0).normal(size=(40, 3))
    X[:, 1] = 0.1
    for lca in (LCA("spherical", reg=0.0), LCA("low_rank", rank=1, reg=0.0), LCA(reg=1e-3)):
        assert np.isfinite(lca.fit(X).score_samples(None)).all()
    merged, counts = np.unique(np.repeat(X[:, ::2], 2, axis=0), axis=0, return_counts=True)
    assert LCA(reg=0.0).fit(merged, sample_weight=counts).converged_


def test_few_twins_are_no_trouble(rows):
    lca = LCA(reg=0.0).fit(np.r_[rows, rows[:2]])
    assert lca.converged_
    assert count_twins(np.r_[rows, rows[:2]]) == 4
    assert count_twins(np.array([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0]])) == 2


@pytest.mark.parametrize(
    ("lca", "scale", "message"),
    [
        (LCA(reg=0.0), 1e-160, "3 of 3 columns"),
        (LCA("spherical", reg=0.0), 1e-200, "3 of 3 columns"),
        (LCA("low_rank", rank=1, reg=0.0), 1e-320, "3 of 3 columns"),
        (LCA(reg=0.0), [1.0, 1.0, 1e-200], r"1 of 3 columns \(2\)"),
        (LCA("diag", reg=0.0), [1.0, 1e-200, 1.0], r"1 of 3 columns \(1\)"),
    ],
)
def test_columns_whose_variances_underflow(lca, scale, message):
    X = np.random.default_rng(0).normal(size=(30, 3)) * scale
    with pytest.raises(ValueError, match=message + ".*underflows.*Rescale"):
        lca.fit(X)
    assert np.isfinite(clone(lca).set_params(reg=0.1).fit(X).score_samples(None)).all()
    assert LCA("spherical", reg=0.0).fit(np.c_[X[:, :1] * 0.0, np.arange(30.0) ** 2]).converged_


def test_far_groups_do_not_matter(rows):
    near, far = (LCA(reg=0.0).fit(np.r_[rows, rows + shift]) for shift in (1e3, 1e5))
    np.testing.assert_allclose(far.covariance_, near.covariance_, rtol=1e-2, atol=1e-3)
    assert far.score() == pytest.approx(near.score(), abs=1e-6)


@pytest.mark.parametrize("start", [1e150, 1e7, 1e-12])
@pytest.mark.parametrize("solver", ["em", "accelerated"])
def test_a_start_far_from_the_scale_of_the_data_is_no_collapse(rows, start, solver):
    assert LCA(init=start, solver=solver, reg=0.0).fit(rows).score() == pytest.approx(
        LCA(reg=0.0).fit(rows).score(), abs=1e-4
    )


@pytest.mark.parametrize("scale", [1e-140, 1e-9, 1e9, 1e140])
def test_any_scale_of_the_data(rows, scale):
    lca = LCA(reg=0.0).fit((rows - 20.0) * scale)
    np.testing.assert_allclose(lca.covariance_ / scale / scale, LCA(reg=0.0).fit(rows).covariance_, rtol=1e-5)


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"covariance_type": "tied"}, ValueError, "covariance_type must be one of 'full'"),
        ({"solver": "newton"}, ValueError, "solver must be one of"),
        ({"init": "pca"}, ValueError, "init must be one of 'covariance'"),
        ({"init": np.eye(3)}, ValueError, r"init as an array must have shape \(4,\) or \(4, 4\)"),
        ({"init": -1.0}, ValueError, "init must be a finite number greater than 0"),
        ({"reg": -0.1}, ValueError, "reg must be a finite number at least 0"),
        ({"reg": "big"}, ValueError, "reg must be 'auto', a number"),
        ({"reg": np.nan}, ValueError, "reg must be a finite number"),
        ({"tol": -1.0}, ValueError, "tol must be"),
        ({"max_iter": 0}, ValueError, "max_iter must be at least 1"),
        ({"max_iter": 2.5}, TypeError, "max_iter must be an integer"),
        ({"covariance_type": "low_rank"}, ValueError, "needs rank"),
        ({"covariance_type": "low_rank", "rank": 4}, ValueError, "rank must be less than the number of features, 4"),
        ({"covariance_type": "low_rank", "rank": 0}, ValueError, "rank must be at least 1"),
        ({"engine": "gpu"}, ValueError, "engine must be one of"),
        # Also where the solver does not need them.
        ({"solver": 3}, TypeError, "solver must be one of 'auto', .* or a vicinal.StochasticEM, got int"),
    ],
)
def test_bad_parameters(rows, parameters, error, message):
    with pytest.raises(error, match=message):
        LCA(**{"reg": 0.1} | parameters).fit(rows)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: X[:1], "minimum of 2"),
        (lambda X: X[0], "Expected 2D array"),
        (lambda X: np.where(X[0, 0] == X, np.inf, X), "infinity"),
        (lambda X: X * 1e200, "magnitude"),
    ],
)
def test_bad_data(rows, change, message):
    with pytest.raises(ValueError, match=message):
        LCA(reg=0.0).fit(change(rows))


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (-np.ones(90), "must not be negative"),
        (
            np.zeros(90),
            "at least one non-zero|must not be all zero",
        ),  # the words of newer versions of scikit-learn, or ours
        (np.r_[1.0, np.zeros(89)], "at least 2 rows"),
        (np.ones(3), "sample_weight.shape"),
    ],
)
def test_bad_weights(rows, weight, message):
    with pytest.raises(ValueError, match=message):
        LCA(reg=0.0).fit(rows, sample_weight=weight)


@pytest.mark.parametrize("n", [60, 600])
def test_the_engine_is_recorded_and_foretold(n):
    """With 600 x 5 rows `which_engine` used to say "reference" while LCA ran compiled."""
    X = np.random.default_rng(0).normal(size=(n, 5))
    for lca in (
        LCA(reg=0.0),
        LCA(solver="stochastic", random_state=0, tol=0.1, reg=0.0),
        LCA(engine="cpu", reg=0.0),
        LCA(max_iter=400, reg=0.0),
    ):
        assert which_engine(X, lca).split(":")[0] == lca.fit(X).engine_
    wide = np.zeros((50_000, 30))
    assert which_engine(wide, LCA(reg=0.0)).startswith("cpu: 3000 x 50000 pairs in 30 dimensions, 20 times,")
    assert which_engine(wide, LCA(solver="em", reg=0.0)).startswith("cpu: 50000 x 50000 pairs")


def test_rows_of_weight_zero_have_neighbors_too(rows):
    """They are not resident, so they see every row that counts."""
    weight = np.ones(90)
    weight[[3, 50]] = 0.0
    lca = LCA(reg=0.0).fit(rows, sample_weight=weight)
    np.testing.assert_allclose(lca.covariance_, LCA(reg=0.0).fit(rows[weight > 0]).covariance_, rtol=1e-9)
    Z = lca.transform(rows)
    scores = -0.5 * ((Z[:, None] - Z[None]) ** 2).sum(-1)
    scores[:, weight == 0] = -np.inf
    np.fill_diagonal(scores, -np.inf)
    p = np.exp(scores - scores.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    entropy = -np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0).sum(1)
    np.testing.assert_allclose(lca.effective_neighbors_, np.exp(entropy), rtol=1e-8)


@pytest.mark.parametrize("tol", [1e-3, 1e-6])
def test_a_fit_ends_where_little_more_can_be_gained(tol):
    X = np.random.default_rng(3).normal(size=(150, 4)) ** 3
    best, fit = (LCA(reg=0.01, tol=t).fit(X) for t in (1e-12, tol))
    assert best.objectives_[-1] - 30 * tol < fit.objectives_[-1] <= best.objectives_[-1] + 1e-9
