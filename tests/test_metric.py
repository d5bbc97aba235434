import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from vicinal._checks import check_rows
from vicinal._metric import LinearMetricMixin


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
