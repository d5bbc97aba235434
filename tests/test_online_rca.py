"""Test OnlineRCA: convergence to RCA, drifting data, and independence of units and blocks."""

import pickle

import numpy as np
import pandas as pd
import pytest
from estimator_checks import check_conventions
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from vicinal import RCA, OnlineRCA


@parametrize_with_checks([OnlineRCA()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
def test_scikit_learn_checks_of_a_given_step():
    check_conventions(OnlineRCA(step=0.01))


def stream(rng, mixing, n_chunklets, sizes=(2, 3)):
    """Chunklets of random sizes, their centres far apart."""
    d = len(mixing)
    ids = np.repeat(np.arange(n_chunklets), rng.integers(sizes[0], sizes[1], size=n_chunklets))
    return (10 * rng.normal(size=(n_chunklets, d)))[ids] + rng.normal(size=(len(ids), d)) @ mixing.T, ids


def off_white(model, covariance):
    """How far W C W' is from the identity: root mean square over its eigenvalues."""
    W = model.components_
    return np.linalg.norm(W @ covariance @ W.T - np.eye(len(W))) / np.sqrt(len(W))


def mixing_of(rng, d, condition):
    return np.linalg.qr(rng.normal(size=(d, d)))[0] * np.sqrt(np.geomspace(1.0, condition, d))


def test_one_step_is_algorithm_4():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(9, 3)), np.array([0, 0, 0, 1, 1, 1, 1, 2, 2])
    model = OnlineRCA(step=0.02).fit(X, y)
    started = OnlineRCA(step=1e-300).fit(X, y)  # no step to speak of: where W starts
    W = started.components_.copy()
    np.testing.assert_allclose(W, np.diag(np.diag(W)), atol=1e-200)
    for k in range(3):
        points = X[y == k]
        h = points - points.mean(axis=0)
        images = [W @ row for row in h]
        W = W + 0.02 * sum(W - np.outer(image, image) @ W for image in images)
    np.testing.assert_allclose(model.components_, W, rtol=1e-12)
    assert (model.n_chunklets_, model.n_points_, model.step_) == (3, 9, 0.02)


def test_pairs_are_algorithm_3_at_half_the_scale():
    """With V = W / 2, W + eta sum (W - y y'W) is Algorithm 3, V + 2 eta (V - (V h)(V h)' V)."""
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(40, 3)), np.arange(40) // 2
    V = OnlineRCA(step=1e-300).fit(X, y).components_ / 2
    for first, second in X.reshape(20, 2, 3):
        h = first - second
        V = V + 0.02 * (V - np.outer(V @ h, V @ h) @ V)
    np.testing.assert_allclose(OnlineRCA(step=0.01).fit(X, y).components_, 2 * V, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize(("d", "condition"), [(2, 1.0), (5, 100.0), (5, 1e4), (20, 100.0)])
@pytest.mark.parametrize("sizes", [(2, 3), (2, 8)])
def test_it_converges_out_of_the_box(d, condition, sizes):
    rng = np.random.default_rng(2)
    mixing = mixing_of(rng, d, condition)
    model, errors, n_points = OnlineRCA(), [], 0
    truth = RCA(shrinkage=0)
    for n_chunklets in (500, 4500):
        X, y = stream(rng, mixing, n_chunklets, sizes)
        for block in np.array_split(np.arange(n_chunklets), 10):
            rows = np.isin(y, block)
            model.partial_fit(X[rows], y[rows])
        truth.partial_fit(X, y)
        n_points += len(X)
        errors.append(off_white(model, mixing @ mixing.T * (1 - truth.n_chunklets_ / truth.n_points_)))
    assert errors[1] < errors[0]
    # an estimate of d^2 numbers from n contrasts errs by about sqrt(d / n)
    assert errors[1] < 3 * np.sqrt(d / truth.n_contrasts_)
    assert off_white(model, truth.covariance_) < 3 * np.sqrt(d / truth.n_contrasts_)


@pytest.mark.parametrize("units", [1e-8, 1e8, np.array([1e3, 1e-3, 1.0])])
def test_units_do_not_matter(units):
    rng = np.random.default_rng(3)
    X, y = stream(rng, mixing_of(rng, 3, 10.0), 2000)
    plain, scaled = OnlineRCA().fit(X, y), OnlineRCA().fit(X * units, y)
    covariance = RCA(shrinkage=0).fit(X, y).covariance_
    assert off_white(plain, covariance) < 0.1
    assert off_white(scaled, covariance * np.outer(units * np.ones(3), units * np.ones(3))) < 0.1


def test_blocks_do_not_matter_after_the_start():
    rng = np.random.default_rng(4)
    X, y = stream(rng, mixing_of(rng, 3, 10.0), 60)
    whole, parts = (
        OnlineRCA().fit(X[:40], y[:40]).partial_fit(X[40:], y[40:]),
        OnlineRCA().fit(X[:40], y[:40]),
    )
    for start in range(40, len(X), 2):
        parts.partial_fit(X[start : start + 2], [7, 7])  # the id is used again: a new chunklet
    np.testing.assert_allclose(parts.components_, whole.components_, rtol=1e-12)


@pytest.mark.slow
def test_one_pair_at_a_time_from_the_beginning():
    rng = np.random.default_rng(5)
    mixing = mixing_of(rng, 4, 100.0)
    model = OnlineRCA()
    for _ in range(4000):
        model.partial_fit(rng.normal(size=(2, 4)) @ mixing.T, [0, 0])
    assert off_white(model, mixing @ mixing.T / 2) < 0.15


def test_a_constant_step_follows_a_drift_and_a_decaying_one_does_not():
    rng = np.random.default_rng(6)
    before, after = np.eye(3), np.diag([1.0, 5.0, 0.2])
    models = {"auto": OnlineRCA(), "constant": OnlineRCA(step=0.005)}
    for mixing, n in ((before, 3000), (after, 1500)):
        X, y = stream(rng, mixing, n)
        for model in models.values():
            model.partial_fit(X, y)
    assert off_white(models["constant"], after @ after.T / 2) < 0.4
    assert off_white(models["auto"], after @ after.T / 2) > 2 * off_white(models["constant"], after @ after.T / 2)


def test_noise_is_in_proportion_to_a_constant_step():
    rng = np.random.default_rng(7)
    X, y = stream(rng, np.eye(3), 6000)
    errors = [off_white(OnlineRCA(step=step).fit(X, y), np.eye(3) / 2) for step in (0.03, 0.001)]
    assert errors[1] < errors[0] / 3


@pytest.mark.parametrize("step", [0.9, 5.0, 1e6])
def test_a_step_that_diverges_is_refused_with_a_remedy_that_works(step):
    rng = np.random.default_rng(8)
    X, y = stream(rng, np.eye(10), 3000)
    model = OnlineRCA().fit(X[:100], y[:100])
    before = model.components_.copy()
    with pytest.raises(ValueError, match=r"step=.* diverges: .*try step=0\.01, or step='auto'"):
        model.set_params(step=step).partial_fit(X, y)
    np.testing.assert_array_equal(model.components_, before)
    with pytest.raises(ValueError, match="diverges"):
        OnlineRCA(step=step).fit(X, y)
    assert off_white(OnlineRCA(step=0.01).fit(X, y), np.eye(10) / 2) < 0.6


def test_outliers_do_not_upset_the_automatic_step():
    rng = np.random.default_rng(9)
    X, y = stream(rng, np.eye(4), 3000)
    X[500] += 1e6
    assert off_white(OnlineRCA().fit(X, y), np.eye(4) / 2) < 0.3


def test_large_chunklets_and_full_labels():
    rng = np.random.default_rng(10)
    model = OnlineRCA()
    mixing = mixing_of(rng, 5, 50.0)
    for _ in range(100):
        X, y = stream(rng, mixing, 3, (100, 200))
        model.partial_fit(X, y)
    assert off_white(model, mixing @ mixing.T) < 0.1


def test_columns_that_never_differ_within_a_chunklet_wait_at_zero():
    rng = np.random.default_rng(11)
    X, y = stream(rng, np.eye(3), 1000)
    X = np.column_stack([X, np.full(len(X), 0.1), (y * 0.7)])
    model = OnlineRCA().fit(X, y)
    np.testing.assert_array_equal(model.components_[:, 3:], 0.0)
    assert off_white_of_first(model, 3) < 0.15
    later, ids = stream(rng, np.eye(5), 4000)
    model.partial_fit(later, ids)
    assert off_white(model, np.eye(5) / 2) < 0.2


def off_white_of_first(model, k):
    W = model.components_[:k, :k]
    return np.linalg.norm(W @ W.T / 2 - np.eye(k)) / np.sqrt(k)


def test_dependent_columns_and_a_constant_step_run_away_and_say_so():
    rng = np.random.default_rng(12)
    X, y = stream(rng, np.eye(2), 3000)
    X = np.column_stack([X, X.sum(axis=1)])
    with pytest.raises(ValueError, match=r"grows without bound.*PCA"):
        OnlineRCA(step=0.05).fit(X, y)
    assert np.isfinite(OnlineRCA().fit(X, y).components_).all()


def test_a_stream_may_start_without_chunklets_or_with_duplicates():
    rng = np.random.default_rng(13)
    X, y = stream(rng, np.eye(3), 50)
    model = OnlineRCA().partial_fit(X[:4], [-1, 0, 1, 2]).partial_fit(np.ones((2, 3)), [0, 0])
    with pytest.raises(NotFittedError):
        model.transform(X)
    model.partial_fit(X, y)
    np.testing.assert_array_equal(model.components_, OnlineRCA().fit(X, y).components_)
    model.partial_fit(X[:1], [-1])
    assert model.n_chunklets_ == 50


def test_pandas_names_and_pickle():
    rng = np.random.default_rng(14)
    X, y = stream(rng, np.eye(2), 40)
    table = pd.DataFrame(X, columns=["a", "b"])
    model = OnlineRCA().fit(table, pd.Series(y).astype(str)).set_output(transform="pandas")
    assert model.transform(table).columns.tolist() == ["onlinerca0", "onlinerca1"]
    again = pickle.loads(pickle.dumps(model)).partial_fit(table, y)
    np.testing.assert_array_equal(again.components_, model.partial_fit(table, y).components_)


X4 = np.arange(8.0).reshape(4, 2) ** 1.5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: OnlineRCA().fit(X4, None), "requires y to be passed, but the target y is None"),
        (
            lambda: OnlineRCA().fit(X4, [0, 1, 2, 3]),
            "needs a chunklet .* got none: 0 chunklets .* 4 singletons",
        ),
        (
            lambda: OnlineRCA().fit(np.ones((4, 2)), [0, 0, 1, 1]),
            "needs a chunklet of two or more different points",
        ),
        (lambda: OnlineRCA(step=0).fit(X4, [0, 0, 1, 1]), "step must be"),
        (lambda: OnlineRCA(step=-1.0).fit(X4, [0, 0, 1, 1]), "step must be"),
        (lambda: OnlineRCA(step="fast").fit(X4, [0, 0, 1, 1]), 'step must be "auto" or a number'),
        (lambda: OnlineRCA().fit(X4, [[0, 4]]), "out of range"),
        (lambda: OnlineRCA().fit(X4, [0, 0, 1, 1]).partial_fit(X4[:, :1], [0] * 4), "expecting 2 features"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
