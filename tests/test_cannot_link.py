"""Test cannot-link pairs in the constrained mixture against the enumeration of all assignments."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.stats import multivariate_normal
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

from vicinal import RCA
from vicinal._rca.cannot_link import CannotLinks
from vicinal.companions import ConstrainedGaussianMixture, simulate_pairs
from vicinal.quality import clustering_accuracy

GRAPHS = {
    "a pair": [(0, 1)],
    "two pairs and a pair told twice": [(0, 1), (2, 3), (1, 0)],
    "a chain": [(0, 1), (1, 2), (2, 3), (3, 4)],
    "a star": [(0, 1), (0, 2), (0, 3), (0, 4)],
    "a triangle and a pair": [(0, 1), (1, 2), (0, 2), (3, 4)],
    "a ring of five": [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)],
    "a ring with a chord and a tail": [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (3, 5)],
    "nothing": np.empty((0, 2), dtype=int),
}
N_GROUPS, K = 6, 3


def enumerate_assignments(potentials, edges):
    """All admitted assignments and the logarithms of their weights."""
    n, k = potentials.shape
    admitted = [h for h in product(range(k), repeat=n) if all(h[a] != h[b] for a, b in edges)]
    return np.array(admitted), np.array([sum(potentials[g, l] for g, l in enumerate(h)) for h in admitted])


@pytest.mark.parametrize("edges", GRAPHS.values(), ids=GRAPHS.keys())
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_sums_marginals_and_best_assignment_are_those_of_the_enumeration(edges, scale):
    potentials = scale * np.random.default_rng(len(edges)).normal(size=(N_GROUPS, K)) - 5 * scale
    admitted, logs = enumerate_assignments(potentials, edges)
    links = CannotLinks(np.asarray(edges), N_GROUPS, K)
    total, shares = links.log_sum(potentials)
    weights = np.exp(logs - logs.max())
    assert total == pytest.approx(logs.max() + np.log(weights.sum()), rel=1e-12)
    expected = np.stack([weights @ (admitted == l) for l in range(K)], axis=1) / weights.sum()
    np.testing.assert_allclose(shares, expected, atol=1e-12)
    np.testing.assert_array_equal(links.best(potentials), admitted[logs.argmax()])


def test_groups_that_cannot_all_differ_are_found():
    triangle = np.array([(0, 1), (1, 2), (0, 2)])
    assert not CannotLinks(triangle, 4, 2).can_be_kept()
    assert CannotLinks(triangle, 4, 3).can_be_kept()
    ring = np.array([(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)])
    assert not CannotLinks(ring, 5, 2).can_be_kept()  # no two of its groups are more than joined, but it is odd


def small_problem():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 2)) + np.repeat([[0, 0], [2, 0], [1, 2]], 4, axis=0)
    y = np.array([0, 0, 0, -1, 1, 1, -1, -1, 2, 2, -1, -1])
    apart = np.array([[0, 4], [1, 8], [3, 6], [6, 10]])
    groups = [[0, 1, 2], [4, 5], [8, 9], [3], [6], [7], [10], [11]]
    where = {row: g for g, rows in enumerate(groups) for row in rows}
    return X, y, apart, groups, [(where[a], where[b]) for a, b in apart]


def brute_force(model, X, groups, edges, count_by):
    """The objective and the shares of all groups by enumeration, from a model's parameters."""
    counts = np.array([len(rows) if count_by == "points" else 1 for rows in groups])
    prior = counts[:, None] * np.log(model.weights_)
    normals = [multivariate_normal(m, c) for m, c in zip(model.means_, model.covariances_, strict=True)]
    joint = prior + [[sum(normal.logpdf(X[i]) for i in rows) for normal in normals] for rows in groups]
    admitted, logs = enumerate_assignments(joint, edges)
    log_z = np.logaddexp.reduce(enumerate_assignments(prior, edges)[1])
    weights = np.exp(logs - np.logaddexp.reduce(logs))
    shares = np.stack([weights @ (admitted == l) for l in range(len(normals))], axis=1)
    return (np.logaddexp.reduce(logs) - log_z) / len(X), shares, counts, admitted[logs.argmax()]


@pytest.mark.parametrize("count_by", ["chunklets", "points"])
def test_one_round_of_em_against_the_enumeration(count_by):
    X, y, apart, groups, edges = small_problem()
    options = {"count_by": count_by, "tol": 0, "reg_covar": 1e-3, "random_state": 0}
    with pytest.warns(ConvergenceWarning):
        before = ConstrainedGaussianMixture(3, max_iter=2, **options).fit(X, y, apart)
    with pytest.warns(ConvergenceWarning):
        after = ConstrainedGaussianMixture(3, max_iter=3, **options).fit(X, y, apart)
    objective, shares, counts, best = brute_force(before, X, groups, edges, count_by)
    assert before.objectives_[-1] == pytest.approx(objective, rel=1e-10)
    for g, rows in enumerate(groups):
        assert set(before.labels_[rows]) == {best[g]}
    by_row = np.empty((len(X), 3))
    for g, rows in enumerate(groups):
        by_row[rows] = shares[g]
    for l in range(3):
        mean = by_row[:, l] @ X / by_row[:, l].sum()
        np.testing.assert_allclose(after.means_[l], mean, rtol=1e-8, atol=1e-10)
        apart_from_mean = X - mean
        covariance = (by_row[:, l, None] * apart_from_mean).T @ apart_from_mean / by_row[:, l].sum()
        np.testing.assert_allclose(after.covariances_[l], covariance + 1e-3 * np.eye(2), rtol=1e-7, atol=1e-10)

    # The weights maximise the expected log prior, whose normaliser is the sum over the admitted assignments.
    def expected_log_prior(logs):
        log_z = np.logaddexp.reduce(enumerate_assignments(counts[:, None] * logs, edges)[1])
        return counts @ shares @ logs - log_z

    slope = approx_fprime(np.log(after.weights_), expected_log_prior, 1e-6)
    assert np.abs(slope).max() < 2e-3
    assert expected_log_prior(np.log(after.weights_)) >= expected_log_prior(np.log(before.weights_)) - 1e-9


@pytest.mark.parametrize("kind", ["full", "tied", "diag"])
def test_the_objective_never_falls_and_pairs_stay_apart(kind):
    X, y = load_iris(return_X_y=True)
    rng = np.random.default_rng(1)
    pairs = rng.integers(0, 150, size=(60, 2))
    apart = pairs[y[pairs[:, 0]] != y[pairs[:, 1]]][:30]
    model = ConstrainedGaussianMixture(
        3, covariance_type=kind, reg_covar=0, tol=1e-5, max_iter=500, random_state=0
    ).fit(X, simulate_pairs(y, 0.9, random_state=0), apart)
    assert model.converged_
    assert (np.diff(model.objectives_) > -1e-9).all()
    assert np.all(model.labels_[apart[:, 0]] != model.labels_[apart[:, 1]])
    assert model.weights_.sum() == pytest.approx(1.0)


def test_pairs_that_differ_bring_classes_apart():
    rng = np.random.default_rng(2)
    y = np.repeat([0, 1], 60)
    X = rng.normal(size=(120, 2)) * [0.7, 5.0] + y[:, None] * [1.8, 0.0]  # the long axis says nothing
    plain = ConstrainedGaussianMixture(2, covariance_type="tied", random_state=0).fit(X)
    apart = np.column_stack([rng.permutation(60), 60 + rng.permutation(60)])
    told = ConstrainedGaussianMixture(2, covariance_type="tied", random_state=0).fit(X, cannot_link=apart)
    assert clustering_accuracy(y, told.labels_) > 0.9
    assert clustering_accuracy(y, plain.labels_) < 0.7
    assert clustering_accuracy(y, told.predict(X)) > 0.8  # and rows by themselves are told apart, too


def test_no_pairs_that_differ_change_nothing():
    X, y = load_iris(return_X_y=True)
    chunklets = simulate_pairs(y, 0.8, random_state=0)
    none = ConstrainedGaussianMixture(3, random_state=0).fit(X, chunklets)
    empty = ConstrainedGaussianMixture(3, random_state=0).fit(X, chunklets, np.empty((0, 2), dtype=int))
    np.testing.assert_array_equal(none.means_, empty.means_)


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_covariances_may_start_from_a_metric_that_is_learned_from_the_chunklets(kind):
    X, y = load_iris(return_X_y=True)
    chunklets = simulate_pairs(y, 0.8, random_state=0)
    options = {"covariance_type": kind, "max_iter": 1, "tol": 0, "reg_covar": 0, "random_state": 0}
    with pytest.warns(ConvergenceWarning):
        model = ConstrainedGaussianMixture(3, init=RCA(shrinkage=0), **options).fit(X, chunklets)
    with pytest.warns(ConvergenceWarning):
        plain = ConstrainedGaussianMixture(3, **options).fit(X, chunklets)
    C = RCA(shrinkage=0).fit(X, chunklets).covariance_
    expected = {"full": [C] * 3, "tied": C, "diag": [np.diag(C)] * 3, "spherical": [np.diag(C).mean()] * 3}[kind]
    np.testing.assert_allclose(model.covariances_, expected, rtol=1e-8, atol=1e-12)
    np.testing.assert_array_equal(model.means_, plain.means_)
    assert not hasattr(model.init, "components_")  # it is cloned


def test_directions_that_the_metric_does_not_see_start_with_the_spread_of_the_rows():
    X, y = load_iris(return_X_y=True)
    X = np.column_stack([X, np.random.default_rng(0).normal(size=150)])
    options = {"max_iter": 1, "tol": 0, "reg_covar": 0, "random_state": 0}
    with pytest.warns(ConvergenceWarning):
        model = ConstrainedGaussianMixture(3, init=RCA(2, shrinkage=0), **options).fit(X, y)
    rca = RCA(2, shrinkage=0).fit(X, y)
    C = model.covariances_[0]
    blind = np.linalg.svd(rca.components_)[2][2:]
    np.testing.assert_allclose(blind @ C @ blind.T, blind @ np.cov(X.T, bias=True) @ blind.T, rtol=1e-8)
    M = rca.get_mahalanobis_matrix()
    np.testing.assert_allclose(M @ C @ M, M, rtol=1e-6, atol=1e-8)


CHUNKLETS = [0, 0, 1, 1, -1, -1]
X6 = np.random.default_rng(0).normal(size=(6, 2))


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (lambda m: m(2).fit(X6, CHUNKLETS, [[0, 1], [0, 2]]), "1 of 2 pairs .* in one chunklet"),
        (lambda m: m(2).fit(X6, None, [[4, 4]]), "1 of 1 pairs"),
        (lambda m: m(2).fit(X6, None, [[0, 1], [1, 2], [0, 2]]), "more than n_components=2 .*Raise n_components"),
        (lambda m: m(2).fit(X6, None, [[0, 6]]), "cannot_link must hold row positions 0 to 5"),
        (lambda m: m(2).fit(X6, None, [0, 1]), r"cannot_link must have shape \(p, 2\)"),
        (lambda m: m(2, init="random").fit(X6), "init must be"),
        (lambda m: m(2, init=RCA()).fit(X6), r"init=RCA\(\) learns a metric from chunklets, got y=None"),
    ],
)
def test_bad_input(fit, message):
    with pytest.raises(ValueError, match=message):
        fit(ConstrainedGaussianMixture)


def test_a_graph_that_is_too_dense_is_refused_before_the_fit():
    X = np.random.default_rng(0).normal(size=(40, 2))
    everyone = np.column_stack(np.triu_indices(20, 1))
    with pytest.raises(ValueError, match=r"20 groups so densely .* 20\^20 entries"):
        ConstrainedGaussianMixture(20).fit(X, None, everyone)
