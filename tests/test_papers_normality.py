"""Test Mardia's tests and condition numbers against definitions and published values."""

import numpy as np
import pytest
from papers.rca._normality import condition_numbers, mardia_test
from scipy import stats
from sklearn.datasets import load_iris

from vicinal import RCA


def literal_mardia(X):
    n = len(X)
    centred = X - X.mean(axis=0)
    inverse = np.linalg.inv(centred.T @ centred / n)
    skewness = sum((a @ inverse @ b) ** 3 for a in centred for b in centred) / n**2
    kurtosis = sum((a @ inverse @ a) ** 2 for a in centred) / n
    return skewness, kurtosis


@pytest.mark.parametrize(("n", "d"), [(30, 2), (30, 6), (60, 3), (12, 9)])
def test_skewness_and_kurtosis_against_the_definition(n, d):
    X = np.random.default_rng(0).exponential(size=(n, d)) @ np.random.default_rng(1).normal(size=(d, d)) + 1e3
    test = mardia_test(X)
    np.testing.assert_allclose([test.skewness, test.kurtosis], literal_mardia(X), rtol=1e-8)
    assert test.n_dimensions == d


def test_one_column_is_the_textbook():
    x = np.random.default_rng(2).gamma(2.0, size=200)
    test = mardia_test(x[:, None])
    assert test.skewness == pytest.approx(stats.skew(x) ** 2)
    assert test.kurtosis == pytest.approx(stats.kurtosis(x, fisher=False))


def test_iris_setosa_as_published_for_the_r_package_mvn():
    X, y = load_iris(return_X_y=True)
    test = mardia_test(X[y == 0])
    assert test.skewness_statistic == pytest.approx(25.6643445196298, rel=1e-10)
    assert test.skewness_p_value == pytest.approx(0.177185884467652, rel=1e-10)
    assert test.kurtosis_statistic == pytest.approx(1.29499223711605, rel=1e-10)
    assert test.kurtosis_p_value == pytest.approx(0.195322907441935, rel=1e-10)


def test_gaussian_rows_pass_as_often_as_they_should_and_others_fail():
    rng = np.random.default_rng(3)
    tests = [mardia_test(rng.normal(size=(200, 3)), small_sample=True) for _ in range(400)]
    for values in ([t.skewness_p_value for t in tests], [t.kurtosis_p_value for t in tests]):
        assert 0.02 < np.mean(np.array(values) < 0.05) < 0.09
    assert mardia_test(rng.exponential(size=(200, 3))).skewness_p_value < 1e-6
    assert mardia_test(rng.standard_t(3, size=(400, 3))).kurtosis_p_value < 1e-6
    assert mardia_test(rng.uniform(size=(400, 3))).kurtosis_p_value < 1e-3  # too light tails count, too


def test_small_samples_are_corrected():
    X = np.random.default_rng(4).normal(size=(15, 2))
    plain, corrected = mardia_test(X), mardia_test(X, small_sample=True)
    assert corrected.skewness_statistic / plain.skewness_statistic == pytest.approx(3 * 16 * 18 / (15 * (16 * 3 - 6)))
    assert corrected.kurtosis_statistic == plain.kurtosis_statistic


def test_affine_maps_and_superfluous_columns_change_nothing():
    rng = np.random.default_rng(5)
    X = rng.gamma(2.0, size=(50, 3))
    plain = mardia_test(X)
    mapped = mardia_test(X @ np.diag([1e9, 1.0, 1e-9]) + [1e5, 0, 1e-9])
    more = mardia_test(np.column_stack([X, X.sum(axis=1), np.full(50, 0.1)]))
    for other in (mapped, more):
        np.testing.assert_allclose(other[:6], plain[:6], rtol=1e-6)
        assert other.n_dimensions == 3


def test_condition_numbers_by_class():
    rng = np.random.default_rng(6)
    X = rng.normal(size=(300, 3)) @ np.diag([1.0, 3.0, 9.0])
    y = np.array(["b", "a", "c"])[np.arange(300) % 3]
    classes, before, after = condition_numbers(X, y)
    assert classes.tolist() == ["a", "b", "c"]
    for label, value in zip(classes, before, strict=True):
        assert value == pytest.approx(np.linalg.cond(np.cov(X[y == label].T)), rel=1e-8)
    np.testing.assert_array_equal(before, after)


def test_figure_11_rca_makes_both_classes_rounder():
    """Spreads (e, 1, 2) and (1, e, 2): RCA divides both condition numbers by about 4."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(2000, 3)) * np.repeat([[0.1, 1.0, 2.0], [1.0, 0.1, 2.0]], 1000, axis=0)
    y = np.repeat([0, 1], 1000)
    _, before, after = condition_numbers(X, y, RCA(shrinkage=0).fit(X, y))
    np.testing.assert_allclose(before, 400, rtol=0.2)
    np.testing.assert_allclose(before / after, 4, rtol=0.15)


def test_singular_classes_are_infinite_not_nan():
    X = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0], [5.0, 5.0], [6.0, 7.0], [9.0, 2.0], [1.0, 1.0]])
    _, before, _ = condition_numbers(X, [0, 0, 0, 1, 1, 1, 2])
    assert np.isinf(before[[0, 2]]).all()
    assert np.isfinite(before[1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mardia_test(np.ones((5, 2))), "All 5 rows of X are equal"),
        (
            lambda: mardia_test(np.random.default_rng(0).normal(size=(6, 5))),
            "at least 7 rows for 5 dimensions, got 6",
        ),
        (lambda: mardia_test([[1.0, 2.0]]), "minimum of 3"),
        (lambda: mardia_test([[np.nan], [1.0], [2.0]]), "NaN"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
