"""Test that RCA is the optimum of the problems of sections 3 to 5 of its paper, by comparison with a generic optimiser."""

import numpy as np
import pytest
from papers.rca import _problems as problems
from scipy.linalg import eigh
from scipy.optimize import LinearConstraint, NonlinearConstraint, minimize

from vicinal import RCA

D = 3


@pytest.fixture(scope="module")
def fitted():
    """Chunklets of 2 to 5 points of unlike spread in three columns, beside rows in none, and RCA of them."""
    rng = np.random.default_rng(0)
    sizes = [2, 3, 5, 2, 4, 3, 2, 5]
    ids = np.r_[np.repeat(np.arange(8), sizes), np.full(20, -1)]
    mixing = rng.normal(size=(D, D)) * [[1.0], [0.3], [2.0]]
    X = 3 * rng.normal(size=(28, D))[ids + 1] + rng.normal(size=(len(ids), D)) @ mixing
    return X, ids, RCA(shrinkage=0).fit(X, ids)


def within(X, ids, A=None):
    """(1/N) sum of the squared distances to the chunklet's mean, point by point as the paper writes it."""
    A = np.eye(X.shape[1]) if A is None else A
    total, N = 0.0, 0
    for j in range(ids.max() + 1):
        for x in X[ids == j]:
            total += np.sum((A @ (x - X[ids == j].mean(axis=0))) ** 2)
            N += 1
    return total / N


def starts(shape=(D, D), n=4):
    rng = np.random.default_rng(1)
    return [rng.normal(size=shape) for _ in range(n)]


def test_equation_3_no_map_within_the_constraint_has_a_larger_volume(fitted):
    X, ids, rca = fitted
    C = rca.covariance_
    ours = problems.scaled_to_constraint(rca.components_, C)
    assert within(X, ids, ours) == pytest.approx(1.0)
    np.testing.assert_allclose(ours.T @ ours, np.linalg.inv(C) / D, rtol=1e-9)  # B = C^-1 / D
    best = -np.linalg.slogdet(ours)[1]
    for start in starts():
        found = problems.search(
            lambda A: problems.log_volume(A, C), start, lambda A: problems.scaled_to_constraint(A, C)
        )
        assert found.value == pytest.approx(best, abs=1e-6)
        assert found.value >= best - 1e-10
        np.testing.assert_allclose(found.metric, ours.T @ ours, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kappa", [0.5, 1.0, 7.0])
def test_equation_2_the_bound_is_reached_and_only_scales_the_solution(fitted, kappa):
    """The inequality: a solver of constrained problems, which may stay below the bound, ends on it."""
    X, ids, rca = fitted
    bound = NonlinearConstraint(lambda flat: within(X, ids, flat.reshape(D, D)), -np.inf, kappa)
    found = minimize(
        lambda flat: -np.linalg.slogdet(flat.reshape(D, D))[1],
        0.1 * np.eye(D).ravel(),
        method="SLSQP",
        constraints=[bound],
        options={"maxiter": 500, "ftol": 1e-12},
    )
    A = found.x.reshape(D, D)
    assert within(X, ids, A) == pytest.approx(kappa, rel=1e-6)
    np.testing.assert_allclose(A.T @ A, kappa / D * rca.get_mahalanobis_matrix(), rtol=2e-3, atol=1e-3)


def test_equation_4_the_gradient_is_a_multiple_of_the_constraints(fitted):
    """log|B| is concave and the constraint linear: where B^-1 = lambda C, with tr(B C) = 1, B is the only maximum."""
    _, _, rca = fitted
    B = rca.get_mahalanobis_matrix() / D
    np.testing.assert_allclose(np.linalg.inv(B), D * rca.covariance_, rtol=1e-9)
    assert np.trace(B @ rca.covariance_) == pytest.approx(1.0)
    rng = np.random.default_rng(2)
    for _ in range(200):
        other = rng.normal(size=(D, D))
        other = other @ other.T
        other /= np.trace(other @ rca.covariance_)
        assert np.linalg.slogdet(other)[1] <= np.linalg.slogdet(B)[1]


@pytest.mark.parametrize("kept", [1, 2])
def test_equation_5_with_fewer_dimensions_it_is_cfld_and_whitening(fitted, kept):
    X, ids, _ = fitted
    rca = RCA(kept, shrinkage=0).fit(X, ids)
    C, total = rca.covariance_, rca.total_covariance_
    ours = problems.scaled_to_constraint(rca.components_, C)
    np.testing.assert_allclose(ours @ C @ ours.T, np.eye(kept) / kept, atol=1e-10)  # Appendix A: A C A' = I / K
    best = problems.log_entropy(rca.components_, C, total)
    values = [
        problems.search(lambda A: problems.log_entropy(A, C, total), start).value for start in starts((kept, D), 6)
    ]
    assert min(values) == pytest.approx(best, abs=1e-6)
    assert min(values) >= best - 1e-10
    ratios = eigh(total, C, eigvals_only=True)[::-1][:kept]
    assert best == pytest.approx(-np.log(ratios).sum() + kept * np.log(kept), rel=1e-9)


def test_equations_6_and_7_no_metric_of_that_volume_has_smaller_distances(fitted):
    X, ids, rca = fitted
    C = rca.covariance_
    ours = problems.scaled_to_volume(rca.components_)
    best = within(X, ids, ours)
    scale = np.linalg.det(C) ** (1 / D)
    np.testing.assert_allclose(ours.T @ ours, scale * np.linalg.inv(C), rtol=1e-9)  # B = |C|^(1/D) C^-1
    for start in starts():
        found = problems.search(lambda A: problems.within_distance(A, C), start, problems.scaled_to_volume)
        assert found.value == pytest.approx(best, rel=1e-6)
        assert found.value >= best * (1 - 1e-10)
        np.testing.assert_allclose(found.metric, ours.T @ ours, rtol=1e-3, atol=1e-4)
    # Eq. 7: with lambda = N |C|^(1/D) the Lagrangian, which is convex, has no slope there, and log|B| = 0.
    N = int((ids >= 0).sum())
    B = ours.T @ ours
    np.testing.assert_allclose(N * C, N * scale * np.linalg.inv(B), rtol=1e-9)
    assert np.linalg.slogdet(B)[1] == pytest.approx(0.0, abs=1e-10)


def test_equation_6_as_an_inequality(fitted):
    """|B| may be larger than one: a solver of constrained problems ends at one."""
    X, ids, rca = fitted
    C, lower = rca.covariance_, np.tril_indices(D)

    def factor(flat):
        L = np.zeros((D, D))
        L[lower] = flat
        return L.T

    volume = NonlinearConstraint(lambda flat: 2 * np.log(np.abs(np.diag(factor(flat)))).sum(), 0.0, np.inf)
    positive = LinearConstraint(np.eye(len(lower[0]))[[0, 2, 5]], 1e-3, np.inf)
    found = minimize(
        lambda flat: within(X, ids, factor(flat)),
        (2 * np.eye(D))[lower],
        method="SLSQP",
        constraints=[volume, positive],
        options={"maxiter": 500, "ftol": 1e-12},
    )
    B = factor(found.x).T @ factor(found.x)
    assert np.linalg.slogdet(B)[1] == pytest.approx(0.0, abs=1e-6)
    np.testing.assert_allclose(B, np.linalg.det(C) ** (1 / D) * np.linalg.inv(C), rtol=2e-3, atol=1e-3)


def test_equations_9_and_10_are_equation_6_in_pairs(fitted):
    X, ids, rca = fitted
    A = rca.components_
    N = int((ids >= 0).sum())
    by_pairs = 0.0
    for j in range(ids.max() + 1):
        points = X[ids == j] @ A.T
        by_pairs += sum(np.sum((len(points) * x - points.sum(axis=0)) ** 2) for x in points) / len(points) ** 2
    assert by_pairs / N == pytest.approx(within(X, ids, A))
    pairs = np.r_[np.repeat(np.arange(14), 2), np.full(len(X) - 28, -1)]
    differences = X[:28:2] - X[1:28:2]
    assert np.sum((differences @ A.T) ** 2) / (2 * 28) == pytest.approx(within(X, pairs, A))


def test_equation_11_maximum_likelihood_with_free_means(fitted):
    """The likelihood of Gaussian chunklets, climbed over all means and the covariance: Eq. 1 comes out."""
    X, ids, rca = fitted
    inside = ids >= 0
    rows, own = X[inside], ids[inside]
    n_means = own.max() + 1
    best = problems.minus_log_likelihood(rca.components_, rca.covariance_)

    def falls(flat):
        A, means = flat[: D * D].reshape(D, D), flat[D * D :].reshape(n_means, D)
        return np.sum(((rows - means[own]) @ A.T) ** 2) / len(rows) - 2 * np.linalg.slogdet(A)[1]

    start = np.r_[np.eye(D).ravel(), np.zeros(n_means * D)]
    found = minimize(falls, start, method="BFGS", options={"maxiter": 5000, "gtol": 1e-7})
    A, means = found.x[: D * D].reshape(D, D), found.x[D * D :].reshape(n_means, D)
    assert found.fun == pytest.approx(best, rel=1e-7)
    np.testing.assert_allclose(np.linalg.inv(A.T @ A), rca.covariance_, rtol=2e-3, atol=1e-3)
    np.testing.assert_allclose(means, [rows[own == j].mean(axis=0) for j in range(n_means)], atol=1e-3)


def test_equation_13_weights_of_the_principal_dimensions(fitted):
    """Squared differences of two points of a chunklet along C's eigenvectors: lambda_i before, equal afterwards."""
    X, _, _ = fitted
    pairs = np.arange(len(X)) // 2
    rca = RCA(shrinkage=0).fit(X, pairs)
    values, axes = np.linalg.eigh(rca.covariance_)
    differences = (X[::2] - X[1::2]) @ axes
    whitened = (X[::2] - X[1::2]) @ (axes / np.sqrt(values))  # the paper's W = C^(-1/2), seen along the same axes
    before, after = (np.mean(rows**2, axis=0) / np.mean(np.sum(rows**2, axis=1)) for rows in (differences, whitened))
    np.testing.assert_allclose(after, 1 / D, rtol=1e-9)
    np.testing.assert_allclose(before / after, values / values.mean(), rtol=1e-9)
