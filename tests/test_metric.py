"""Test the methods of fitted metrics, and the step from a scatter to components."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from vicinal._metric import LinearMetricMixin, _generalised_eigh, range_basis, rank_tolerance, whitening
from vicinal._rows import check_rows


class FixedMetric(LinearMetricMixin, BaseEstimator):
    def __init__(self, matrix=None):
        self.matrix = matrix

    def fit(self, X, y=None):
        check_rows(self, X, reset=True)
        self.components_ = np.asarray(self.matrix, dtype=float)
        return self


@pytest.fixture
def metric():
    rng = np.random.default_rng(0)
    return FixedMetric(rng.normal(size=(2, 3))).fit(rng.normal(size=(5, 3)))


def test_all_distances_agree_with_the_definition(metric):
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(4, 3)), rng.normal(size=(6, 3))
    M = metric.get_mahalanobis_matrix()
    literal = np.array([[np.sqrt((x - y) @ M @ (x - y)) for y in Y] for x in X])
    np.testing.assert_allclose(metric.mahalanobis(X, Y), literal, rtol=1e-12)
    np.testing.assert_allclose(metric.pair_distance(np.stack([X, Y[:4]], axis=1)), np.diag(literal), rtol=1e-12)
    positions = np.array([[0, 3], [2, 2]])
    np.testing.assert_allclose(
        metric.pair_distance(positions, X),
        metric.mahalanobis(X)[positions[:, 0], positions[:, 1]],
        rtol=1e-12,
    )
    images = metric.transform(X)
    np.testing.assert_allclose(images, X @ metric.components_.T)
    np.testing.assert_allclose(metric.mahalanobis(X)[0, 1], np.linalg.norm(images[0] - images[1]), rtol=1e-12)


def test_distances_keep_their_digits_far_from_the_origin(metric):
    X = np.random.default_rng(2).integers(-8, 8, size=(5, 3)) / 8.0
    far = X + 2.0**30
    np.testing.assert_allclose(metric.mahalanobis(far), metric.mahalanobis(X), rtol=1e-12, atol=1e-12)
    pairs = np.stack([X[:-1], X[1:]], axis=1)
    np.testing.assert_allclose(metric.pair_distance(pairs + 2.0**30), metric.pair_distance(pairs), rtol=1e-12)


def test_dtype_feature_names_and_pandas_output(metric):
    X = np.ones((2, 3), dtype=np.float32)
    assert metric.transform(X).dtype == np.float32
    assert metric.transform(X.astype(int)).dtype == np.float64
    assert metric.get_feature_names_out().tolist() == ["fixedmetric0", "fixedmetric1"]
    table = pd.DataFrame(X.astype(float), columns=list("abc"))
    fitted = FixedMetric(metric.matrix).fit(table).set_output(transform="pandas")
    assert fitted.transform(table).columns.tolist() == ["fixedmetric0", "fixedmetric1"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.pair_distance(np.ones((4, 3))), r"shape \(p, 2, 3\), got \(4, 3\)"),
        (lambda m: m.pair_distance(np.ones((4, 2, 5))), r"shape \(p, 2, 3\), got \(4, 2, 5\)"),
        (lambda m: m.pair_distance([[0, 9]], np.ones((4, 3))), "row positions 0 to 3, got 1 out of range"),
        (lambda m: m.pair_distance([[0, -1]], np.ones((4, 3))), "row positions 0 to 3, got 1 out of range"),
        (lambda m: m.pair_distance([[0.0, 1.0]], np.ones((4, 3))), "integers"),
        (lambda m: m.transform(np.ones((2, 4))), "expecting 3 features"),
        (lambda m: m.mahalanobis(np.ones((2, 3)), np.full((2, 3), np.nan)), "NaN"),
    ],
)
def test_bad_input(metric, call, message):
    with pytest.raises(ValueError, match=message):
        call(metric)


def test_an_unfitted_metric_says_so():
    for call in (
        lambda m: m.transform([[1.0]]),
        lambda m: m.get_mahalanobis_matrix(),
        lambda m: m.mahalanobis([[1.0]]),
        lambda m: m.pair_distance([[[1.0], [2.0]]]),
    ):
        with pytest.raises(NotFittedError):
            call(FixedMetric())


def test_no_pairs_have_no_distances(metric):
    assert metric.pair_distance(np.empty((0, 2, 3))).shape == (0,)
    assert metric.pair_distance(np.empty((0, 2), dtype=int), np.ones((2, 3))).shape == (0,)


def test_whitening_survives_a_scatter_singular_up_to_rounding():
    rng = np.random.default_rng(3)
    base = rng.normal(size=(20, 2))
    X = np.column_stack([base, base.sum(axis=1)])
    scatter = X.T @ X / 20
    spread = np.sqrt(np.diag(scatter))
    near = scatter / np.outer(spread, spread) - 1e-15 * np.eye(3)  # not positive definite
    ratios, vectors = _generalised_eigh(np.eye(3), near, 3, rank_tolerance(3))
    assert np.isfinite(vectors).all()
    assert (np.diff(ratios) <= 0).all()
    np.testing.assert_allclose((vectors.T @ near @ vectors)[1:, 1:], np.eye(2), atol=1e-6)


def test_whitening_makes_the_scatter_the_identity_and_the_reference_diagonal():
    rng = np.random.default_rng(4)
    S, T = (rows.T @ rows for rows in rng.normal(size=(2, 9, 6)))
    basis = np.linalg.qr(rng.normal(size=(6, 4)))[0]
    for span in (None, basis):
        for k in (None, 1, 3):
            A, B, ratios = whitening(S, T, basis=span, n_components=k, tolerance=1e-13, resolution=1e-16)
            np.testing.assert_allclose(A @ S @ A.T, np.eye(len(A)), atol=1e-10)
            np.testing.assert_allclose(A @ T @ A.T, np.diag(ratios), atol=1e-9)
            np.testing.assert_allclose(A @ B, np.eye(len(A)), atol=1e-10)
            assert (np.diff(ratios) <= 0).all()


def test_the_basis_of_the_range():
    rng = np.random.default_rng(5)
    base = rng.normal(size=(50, 3))
    X = np.column_stack([base * [1e9, 1.0, 1e-9], base[:, 0] * 1e3 - base[:, 1], np.zeros(50)])
    C = np.cov(X.T)
    basis = range_basis(C, tolerance=rank_tolerance(5))
    assert basis.shape == (5, 3)
    np.testing.assert_allclose(basis.T @ basis, np.eye(3), atol=1e-12)
    np.testing.assert_array_equal(basis[4], 0.0)
    assert range_basis(np.cov(base.T), tolerance=rank_tolerance(3)) is None
    assert range_basis(np.zeros((2, 2)), tolerance=1e-12).shape == (2, 0)
