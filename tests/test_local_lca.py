import pickle
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from vicinal import LCA, Engine, LocalLCA, io, which_engine
from vicinal._lca import lca as lca_module
from vicinal._mixtures import LocalMixture
from vicinal.datasets import make_spiral

COLLAPSE = (
    "the check's data are 20 rows of five digits 0 to 2, whose leave-one-out likelihood is unbounded: refused by "
    "LCA, with the remedy"
)


@parametrize_with_checks(
    [LocalLCA(), LocalLCA(0.5, pool=3, reg=0.1)],
    expected_failed_checks=lambda estimator: {} if estimator.reg else {"check_estimators_dtypes": COLLAPSE},
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    bent = rng.uniform(0, 4, size=60)
    return np.c_[np.sin(bent), np.cos(bent)] + 0.05 * rng.normal(size=(60, 2)) + 3.0


def literal_objective(X, covariances, sigma, kappa):
    """The docstring's objective."""
    n, d = X.shape
    total = 0.0
    for i in range(n):
        kernels = [multivariate_normal(X[j], covariances[j]).pdf(X[i]) for j in range(n) if j != i]
        total += np.log(np.mean(kernels))
    prior = [
        np.linalg.slogdet(np.linalg.solve(sigma, S))[1] + np.trace(np.linalg.solve(S, sigma)) - d for S in covariances
    ]
    return total / n - 0.5 * kappa * np.mean(prior)


def literal_step(X, covariances, sigma, kappa):
    n = len(X)
    kernels = np.array([[multivariate_normal(X[j], covariances[j]).pdf(X[i]) for j in range(n)] for i in range(n)])
    np.fill_diagonal(kernels, 0)
    share = kernels / kernels.sum(1, keepdims=True)
    new = []
    for j in range(n):
        S = sum(share[i, j] * np.outer(X[i] - X[j], X[i] - X[j]) for i in range(n))
        new.append((S + kappa * sigma) / (share[:, j].sum() + kappa))
    return np.array(new)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("memory", ["1 MB", "128 MB"])
def test_em_literally(rows, memory):
    X = rows[:25]
    model = LocalLCA(0.75, max_iter=3, engine=Engine(memory=memory), reg=0.0).fit(X)
    sigma, kappa = model.base_.covariance_, 3.0
    covariances, path = np.repeat(sigma[None], 25, axis=0), []
    for _ in range(3):
        path.append(literal_objective(X, covariances, sigma, kappa))
        last, covariances = covariances, literal_step(X, covariances, sigma, kappa)
    np.testing.assert_allclose(model.objectives_, path, rtol=1e-8)
    np.testing.assert_allclose(model.local_covariances_, last, rtol=1e-7, atol=1e-12)
    assert model.objectives_[0] == pytest.approx(model.base_.score())


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.integers(12, 40), st.integers(1, 3), st.sampled_from([0.05, 0.5, 0.95]))
def test_the_objective_never_falls(seed, n, d, smoothing):
    rng = np.random.default_rng(seed)
    X = rng.standard_t(4, size=(n, d)) @ rng.normal(size=(d, d))
    model = LocalLCA(smoothing, max_iter=40, tol=0.0, reg=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            model.fit(X)
        except ValueError as error:
            assert "reg" in str(error)  # noqa: PT017
            return
    assert np.diff(model.objectives_).min(initial=0.0) >= -1e-9
    assert np.linalg.eigvalsh(model.local_covariances_).min() > 0


def test_full_smoothing_is_lca(rows):
    model, lca = LocalLCA(1.0, reg=0.0).fit(rows), LCA(reg=0.0).fit(rows)
    np.testing.assert_allclose(model.local_covariances_, np.repeat(lca.covariance_[None], 60, axis=0), rtol=1e-9)
    np.testing.assert_allclose(model.score_samples(None), lca.score_samples(None))
    np.testing.assert_allclose(model.score_samples(rows + 0.1), lca.score_samples(rows + 0.1))
    close = LocalLCA(1 - 1e-7, reg=0.0).fit(rows)
    np.testing.assert_allclose(close.score_samples(rows), lca.score_samples(rows), atol=1e-4)


def test_it_gains_over_lca_on_the_spiral():
    X, test = make_spiral(300, random_state=0)[0], make_spiral(2000, random_state=1)[0]
    lca = LCA(reg=0.0).fit(X).score(test)
    assert LocalLCA(0.5, reg=0.0).fit(X).score(test) > lca + 0.02
    pooled = LocalLCA(0.1, pool=12, reg=0.0).fit(X)
    assert pooled.score(test) > lca + 0.1
    assert pooled.objectives_[-1] == pooled.objectives_.max()
    assert pooled.converged_


def test_any_linear_map(rows):
    T = np.array([[2.0, 1.0], [0.0, 0.1]])
    a, b = LocalLCA(0.5, reg=0.0).fit(rows), LocalLCA(0.5, reg=0.0).fit(rows @ T.T)
    np.testing.assert_allclose(b.local_covariances_, T @ a.local_covariances_ @ T.T, rtol=1e-3, atol=1e-8)


def test_the_mixture_is_exact(rows):
    rng = np.random.default_rng(1)
    X = np.c_[rows, rng.normal(size=60)]
    model = LocalLCA(0.5, reg=0.0).fit(X)
    q = X[:5] + 0.05
    literal = [
        np.log(np.mean([multivariate_normal(c, S).pdf(x) for c, S in zip(X, model.local_covariances_, strict=True)]))
        for x in q
    ]
    np.testing.assert_allclose(model.score_samples(q), literal, rtol=1e-9)
    left = np.mean([multivariate_normal(X[j], model.local_covariances_[j]).pdf(X[0]) for j in range(1, 60)])
    assert model.score_samples(None)[0] == pytest.approx(np.log(left))
    given = model.conditional({1: q[0, 1]})
    split = model.marginal([1]).score_samples(q[:1, 1:2]) + given.score_samples(q[:1, [0, 2]])
    np.testing.assert_allclose(split, model.score_samples(q[:1]))
    drawn = model.sample(4000, random_state=0)
    mixture_covariance = np.cov(X.T, bias=True) + model.local_covariances_.mean(axis=0)
    np.testing.assert_allclose(np.cov(drawn.T), mixture_covariance, atol=0.08)
    grid = np.linspace(rows[:, 0].min() - 2, rows[:, 0].max() + 2, 3000)[:, None]
    density = np.exp(model.marginal([0]).score_samples(grid))
    assert density.sum() * (grid[1] - grid[0])[0] == pytest.approx(1.0, abs=1e-4)
    assert isinstance(model.mixture_, LocalMixture)


def test_frames_and_files(rows, tmp_path):
    frame = pd.DataFrame(rows, columns=["a", "b"])
    model = LocalLCA(0.5, reg=0.0).fit(frame)
    io.save(model, tmp_path / "local.vicinal")
    for again in (pickle.loads(pickle.dumps(model)), io.load(tmp_path / "local.vicinal")):
        np.testing.assert_array_equal(again.score_samples(frame), model.score_samples(frame))
    assert model.marginal("b").n_features == 1


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"smoothing": 0.0}, ValueError, "smoothing must be a finite number greater than 0"),
        ({"smoothing": 1.5}, ValueError, r"smoothing must be in \(0, 1\]"),
        ({"pool": 0}, ValueError, "pool must be at least 1"),
        ({"pool": 61}, ValueError, "pool=61 needs at least 61 rows, got 60"),
        ({"max_iter": 0}, ValueError, "max_iter must be at least 1"),
        ({"reg": -1}, ValueError, "reg must be"),
        ({"smoothing": 1e-300}, ValueError, "smoothing=1e-300 its prior weighs too little.*larger smoothing"),
    ],
)
def test_bad_parameters(rows, parameters, error, message):
    with pytest.raises(error, match=message):
        LocalLCA(**parameters).fit(rows)


def test_not_converged_is_said(rows):
    with pytest.warns(ConvergenceWarning, match="LocalLCA did not converge"):
        LocalLCA(0.2, max_iter=2, reg=0.0).fit(rows)


def test_the_objective_of_full_smoothing_is_not_penalised(rows):
    model = LocalLCA(1.0, reg=0.05).fit(rows[:20])
    literal = literal_objective(rows[:20], model.local_covariances_, model.base_.covariance_, 1.0)
    np.testing.assert_allclose(model.objectives_, [literal])
    assert model.n_iter_ == 1


def test_messages_name_remedies_that_there_are(rows):
    for X, message in [(np.repeat(rows, 2, axis=0), r"twin.*keep one of each"), (rows[:2], "needs more than 2 rows")]:
        with pytest.raises(ValueError, match=message) as error:
            LocalLCA(reg=0.0).fit(X)
        assert "sample_weight" not in str(error.value)
        assert "covariance=" not in str(error.value)
        assert np.isfinite(LocalLCA(reg=0.01).fit(X).score_samples(None)).all()
    with pytest.warns(UserWarning, match="keep one of each"):
        LocalLCA(reg=0.0).fit(np.r_[rows, rows[:20]])
    outlier = np.r_[np.random.default_rng(0).normal(size=(60, 3)), [[1e8, 1e8, 1e8]]]
    with pytest.raises(ValueError, match=r"singular in float64.*drop far rows"):
        LocalLCA(reg=0.0).fit(outlier)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_memory_does_not_grow_with_the_passes():
    X = np.random.default_rng(0).normal(size=(100, 20))
    peaks = []
    for passes in (4, 24):
        tracemalloc.start()
        LocalLCA(0.3, pool=2, max_iter=passes, tol=0.0, engine=Engine(memory="1 MB"), reg=0.0).fit(X)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 4 * X.shape[0] * X.shape[1] ** 2 * 8


def test_it_has_not_converged_where_lca_has_not(rows, monkeypatch):
    monkeypatch.setattr(lca_module, "_LIMITS", ((2, 1e-8), (50, 1e-3)))
    with pytest.warns(ConvergenceWarning, match="LCA did not converge"):
        model = LocalLCA(reg=0.0).fit(rows)
    assert not model.converged_
    assert model.base_.solver_ == "accelerated"


def test_an_interruption_of_its_lca_ends_the_whole_fit(rows, monkeypatch):
    """It used to be an interruption of LCA alone: the longer climb then began all the same."""
    passes, one_pass = [], lca_module.one_pass

    def interrupted(*arguments):
        passes.append(1)
        if len(passes) == 3:
            raise KeyboardInterrupt
        return one_pass(*arguments)

    monkeypatch.setattr(lca_module, "one_pass", interrupted)
    with pytest.warns(ConvergenceWarning, match="LCA did not converge: it was interrupted") as said:
        model = LocalLCA(0.5, reg=0.0).fit(rows)
    assert str(said[-1].message).startswith("LocalLCA")
    assert model.n_iter_ == 1
    assert not model.converged_
    np.testing.assert_allclose(model.local_covariances_[7], model.base_.covariance_, rtol=1e-12)


def test_left_out_beside_a_dominant_component():
    """1 - w used to round to 0 beside a weight of nearly one, and the log-density of its centre to +inf."""
    centres, covariances = np.array([[0.0], [1.0], [2.0]]), np.ones((3, 1, 1))
    mixture = LocalMixture(centres, covariances, np.log([1e20, 1.0, 3.0]))
    expected = np.log(0.25 * multivariate_normal.pdf(1.0) + 0.75 * multivariate_normal.pdf(2.0))
    assert mixture.left_out_score_samples()[0] == pytest.approx(expected, rel=1e-12)


def test_one_centre_far_away_costs_the_others_nothing():
    """The centres used to be centred by their mean, which one at 1e20 moves away from all others."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(30, 2))
    roots = np.tril(rng.normal(size=(30, 2, 2))) + 2 * np.eye(2)
    covariances = roots @ roots.transpose(0, 2, 1)
    plain = LocalMixture(centres, covariances).score_samples(centres + 0.1)
    far = LocalMixture(np.r_[centres, [[1e20, -1e20]]], np.r_[covariances, np.eye(2)[None]])
    np.testing.assert_allclose(far.score_samples(centres + 0.1), plain + np.log(30 / 31), rtol=1e-10)
    own = far.score_samples([[1e20, -1e20]])
    np.testing.assert_allclose(own, -np.log(2 * np.pi) - np.log(31), rtol=1e-10)


def test_the_engine_is_recorded(rows):
    model = LocalLCA(0.5, reg=0.0).fit(rows)
    assert model.engine_ == "reference"
    assert which_engine(rows, model).startswith("reference: ")
    assert LocalLCA(0.5, engine="cpu", reg=0.0).fit(rows).engine_ == "cpu"
    assert which_engine(np.zeros((5000, 10)), model).startswith("cpu: ")
