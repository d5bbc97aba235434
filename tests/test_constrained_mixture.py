"""Test ConstrainedGaussianMixture: its objective never falls, chunklets stay together, and singular cases."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.datasets import load_iris, make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.utils.estimator_checks import parametrize_with_checks

from vicinal import RCA
from vicinal.companions import ConstrainedGaussianMixture, simulate_pairs
from vicinal.quality import clustering_accuracy

KINDS = ["full", "tied", "diag", "spherical"]


@parametrize_with_checks([ConstrainedGaussianMixture(n_components=2)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("kind", KINDS)
def test_without_constraints_it_is_the_gaussian_mixture(kind):
    X = make_blobs(300, centers=3, random_state=0, cluster_std=2.0)[0]
    settings = {"covariance_type": kind, "tol": 1e-6, "max_iter": 500, "random_state": 3}
    ours = ConstrainedGaussianMixture(3, **settings).fit(X)
    theirs = GaussianMixture(3, **settings).fit(X)
    np.testing.assert_allclose(ours.score_samples(X), theirs.score_samples(X), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(ours.means_, theirs.means_, rtol=1e-2, atol=1e-2)
    assert ours.covariances_.shape == theirs.covariances_.shape
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-2)
    assert ours.objectives_[-1] == pytest.approx(ours.score(X), rel=1e-9)
    points = ConstrainedGaussianMixture(3, count_by="points", **settings).fit(X)
    np.testing.assert_allclose(points.means_, ours.means_, rtol=1e-10)


def literal_objective(model, X, chunklets, priors):
    total = 0.0
    groups = [np.flatnonzero(chunklets == k) for k in range(chunklets.max() + 1)]
    groups += [[i] for i in np.flatnonzero(chunklets < 0)]
    for rows in groups:
        terms = []
        for l in range(len(model.weights_)):
            log_prior = np.log(model.weights_[l]) * (len(rows) if priors == "points" else 1)
            normal = multivariate_normal(model.means_[l], model.covariances_[l])
            terms.append(log_prior + sum(normal.logpdf(X[i]) for i in rows))
        total += np.logaddexp.reduce(terms)
    return total / len(X)


@pytest.mark.parametrize("priors", ["chunklets", "points"])
def test_one_round_of_em_against_the_formulas(priors):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 2)) + np.repeat([[0, 0], [3, 1]], 20, axis=0)
    chunklets = np.r_[np.repeat([0, 1, 2], 4), np.full(16, -1), np.repeat([3, 4], 6)]
    with pytest.warns(ConvergenceWarning):
        before = ConstrainedGaussianMixture(2, count_by=priors, max_iter=3, tol=0, reg_covar=0, random_state=0).fit(
            X, chunklets
        )
    with pytest.warns(ConvergenceWarning):
        after = ConstrainedGaussianMixture(2, count_by=priors, max_iter=4, tol=0, reg_covar=0, random_state=0).fit(
            X, chunklets
        )
    assert before.objectives_[-1] == pytest.approx(literal_objective(before, X, chunklets, priors), rel=1e-10)
    groups = [np.flatnonzero(chunklets == k) for k in range(5)] + [[i] for i in np.flatnonzero(chunklets < 0)]
    shares = np.empty((len(groups), 2))
    for g, rows in enumerate(groups):
        for l in range(2):
            normal = multivariate_normal(before.means_[l], before.covariances_[l])
            power = len(rows) if priors == "points" else 1
            shares[g, l] = before.weights_[l] ** power * np.prod([normal.pdf(X[i]) for i in rows])
        shares[g] /= shares[g].sum()
    counts = np.array([len(rows) if priors == "points" else 1 for rows in groups])
    np.testing.assert_allclose(after.weights_, counts @ shares / counts.sum(), rtol=1e-9)
    by_point = np.empty((40, 2))
    for g, rows in enumerate(groups):
        by_point[rows] = shares[g]
    for l in range(2):
        r = by_point[:, l]
        mean = r @ X / r.sum()
        np.testing.assert_allclose(after.means_[l], mean, rtol=1e-9)
        covariance = sum(r[i] * np.outer(X[i] - mean, X[i] - mean) for i in range(40)) / r.sum()
        np.testing.assert_allclose(after.covariances_[l], covariance, rtol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("priors", ["chunklets", "points"])
def test_the_objective_never_falls_and_chunklets_stay_together(kind, priors):
    X, y = load_iris(return_X_y=True)
    entries = simulate_pairs(y, 0.6, random_state=2)
    model = ConstrainedGaussianMixture(
        3, covariance_type=kind, count_by=priors, reg_covar=0, tol=1e-8, max_iter=2000, random_state=0
    ).fit(X, entries)
    assert (np.diff(model.objectives_) > -1e-12).all()
    assert model.converged_
    for k in set(entries.ids.tolist()):
        assert len(set(model.labels_[entries.rows[entries.ids == k]])) == 1
    assert model.weights_.sum() == pytest.approx(1.0)


def test_priors_count_chunklets_or_points():
    rng = np.random.default_rng(3)
    X = np.r_[rng.normal(size=(100, 1)), rng.normal(size=(100, 1)) + 20]
    y = np.r_[np.repeat(np.arange(10), 10), np.full(100, -1)]  # ten chunklets and a hundred rows
    chunklets = ConstrainedGaussianMixture(2, random_state=0).fit(X, y)
    points = ConstrainedGaussianMixture(2, count_by="points", random_state=0).fit(X, y)
    assert chunklets.weights_.min() == pytest.approx(10 / 110, abs=1e-6)
    assert points.weights_.min() == pytest.approx(0.5, abs=1e-6)


def test_constraints_help_on_wine_like_data_after_rca():
    X, y = load_iris(return_X_y=True)
    entries = simulate_pairs(y, 0.7, random_state=1)
    Z = RCA().fit(X, entries).transform(X)
    constrained = ConstrainedGaussianMixture(3, n_init=5, random_state=0).fit(Z, entries)
    assert clustering_accuracy(y, constrained.labels_) > 0.95


def test_restarts_keep_the_best():
    X = make_blobs(200, centers=6, random_state=4, cluster_std=1.5)[0]
    one = [ConstrainedGaussianMixture(6, random_state=s).fit(X).objectives_[-1] for s in range(3)]
    many = ConstrainedGaussianMixture(6, n_init=10, random_state=0).fit(X)
    assert many.objectives_[-1] >= max(one) - 1e-3
    assert many.n_iter_ == len(many.objectives_)


def test_too_few_iterations_are_told():
    X = make_blobs(200, centers=3, random_state=5, cluster_std=4.0)[0]
    with pytest.warns(ConvergenceWarning, match="did not converge.*max_iter=2"):
        assert not ConstrainedGaussianMixture(3, max_iter=2, tol=1e-9).fit(X).converged_


def test_equal_rows_need_a_floor():
    X = np.repeat([[0.0, 0.0], [1.0, 5.0]], 10, axis=0)
    assert np.isfinite(ConstrainedGaussianMixture(2, random_state=0).fit(X).score_samples(X)).all()
    for kind in KINDS:
        with pytest.raises(ValueError, match=r"singular.*Raise reg_covar"):
            ConstrainedGaussianMixture(2, covariance_type=kind, reg_covar=0, random_state=0).fit(X)


X6 = np.arange(12.0).reshape(6, 2) ** 1.5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: ConstrainedGaussianMixture(3).fit(X6, [0, 0, 0, 1, 1, 1]),
            "n_components=3 needs at least as many .* got 2",
        ),
        (lambda: ConstrainedGaussianMixture(0).fit(X6), "n_components must be at least 1"),
        (
            lambda: ConstrainedGaussianMixture(1, covariance_type="round").fit(X6),
            "covariance_type must be one of",
        ),
        (lambda: ConstrainedGaussianMixture(1, count_by="rows").fit(X6), "count_by must be one of"),
        (lambda: ConstrainedGaussianMixture(1, tol=-1).fit(X6), "tol must be"),
        (lambda: ConstrainedGaussianMixture(1, reg_covar=-1).fit(X6), "reg_covar must be"),
        (lambda: ConstrainedGaussianMixture(1).fit(X6, [[0, 9]]), "out of range"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unit", [1.0, 1e-10])
def test_rows_at_any_distance_have_probabilities(kind, unit):
    X = np.random.default_rng(0).normal(size=(200, 3)) * unit * np.repeat([1.0, 3.0], 100)[:, None]
    mixture = ConstrainedGaussianMixture(2, covariance_type=kind, reg_covar=0, random_state=0)
    mixture.fit(X, np.repeat([0, 1], 100))
    far = np.array([[1e150, -1e150, 1e149], [1e40, 0.0, 0.0], [0.0, 0.0, 0.0]])
    probability = mixture.predict_proba(far)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0)
    np.testing.assert_array_equal(mixture.predict(far), probability.argmax(axis=1))
    if kind != "tied":  # far away the wider component has all of it
        wide = mixture.labels_[-1]
        np.testing.assert_array_equal(probability[:2, wide], 1.0)
    assert not np.isnan(mixture.score_samples(far)).any()


def test_means_are_in_the_precision_of_the_rows():
    """They used to be float64 for rows of any precision; covariances stay in float64."""
    X = np.random.default_rng(0).normal(size=(60, 2)) + 4.0 * np.repeat([[0.0], [1.0]], 30, axis=0)
    exact = ConstrainedGaussianMixture(2, random_state=0).fit(X)
    single = ConstrainedGaussianMixture(2, random_state=0).fit(X.astype(np.float32))
    assert exact.means_.dtype == np.float64
    assert single.means_.dtype == np.float32
    np.testing.assert_allclose(single.means_, exact.means_, rtol=1e-3, atol=1e-3)
    far = np.array([[1e17, 1e17], [-1e17, 0.0]], dtype=np.float32)
    np.testing.assert_array_equal(single.predict(far), exact.predict(far))
