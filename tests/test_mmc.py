"""Test MMC: its maximum against a general optimiser, its certified gap, and metric-learn's solution."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from estimator_checks import check_conventions
from scipy.optimize import minimize
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from vicinal.companions import MMC, simulate_pairs


@parametrize_with_checks([MMC()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
def test_scikit_learn_checks_of_the_diagonal():
    check_conventions(MMC(structure="diag"))


def literal_ratio(M, X, alike, differ):
    """Mean distance of pairs that differ over the root mean square of pairs alike: free of the scale of M."""

    def square(i, j):
        return (X[i] - X[j]) @ M @ (X[i] - X[j])

    return np.mean([np.sqrt(square(i, j)) for i, j in differ]) / np.sqrt(np.mean([square(i, j) for i, j in alike]))


@pytest.fixture
def small():
    """30 rows, 3 columns, 8 chunklets, the rest in none; all pairs alike, all others."""
    rng = np.random.default_rng(0)
    y = np.r_[np.repeat(np.arange(8), 3), np.full(6, -1)]
    X = rng.normal(size=(30, 3)) @ rng.normal(size=(3, 3)) + 3 * rng.normal(size=(9, 3))[y] + 100
    alike = [(i, j) for i, j in combinations(range(30), 2) if y[i] == y[j] >= 0]
    differ = [p for p in combinations(range(30), 2) if p not in set(alike)]
    return X, y, alike, differ


@pytest.mark.parametrize("diagonal", [False, True])
def test_the_maximum_against_a_general_optimiser(small, diagonal):
    X, y, alike, differ = small
    mmc = MMC(gap_tol=1e-8, max_iter=5000, structure="diag" if diagonal else "full").fit(X, y)
    M = mmc.get_mahalanobis_matrix()
    ours = literal_ratio(M, X, alike, differ)
    # mmc.objectives_ is that ratio, and pairs alike have mean squared distance one
    assert mmc.objectives_[-1] == pytest.approx(ours, rel=1e-7)
    assert np.mean([(X[i] - X[j]) @ M @ (X[i] - X[j]) for i, j in alike]) == pytest.approx(1.0, rel=1e-7)
    H = np.array([X[i] - X[j] for i, j in differ])
    S = np.array([X[i] - X[j] for i, j in alike])

    def negative_ratio(flat):
        L = np.diag(flat) if diagonal else flat.reshape(3, 3)
        return -np.linalg.norm(H @ L, axis=1).mean() / np.sqrt((np.linalg.norm(S @ L, axis=1) ** 2).mean())

    rng = np.random.default_rng(1)
    starts = [rng.normal(size=3 if diagonal else 9) for _ in range(6)]
    theirs = max(-minimize(negative_ratio, start, method="BFGS").fun for start in starts)
    assert ours == pytest.approx(theirs, rel=1e-5)
    assert ours >= theirs * (1 - 1e-8)
    if diagonal:
        np.testing.assert_array_equal(M, np.diag(np.diag(M)))


def test_every_step_rises_and_the_gap_is_a_bound(small):
    X, y, _, _ = small
    best = MMC(gap_tol=1e-10, max_iter=20000).fit(X, y).objectives_[-1]
    for iterations in (1, 2, 3, 5):
        with pytest.warns(ConvergenceWarning, match=r"did not converge.*share of"):
            mmc = MMC(max_iter=iterations, gap_tol=1e-12).fit(X, y)
        assert not mmc.converged_
        assert mmc.n_iter_ == iterations
        assert (np.diff(mmc.objectives_) >= 0).all()
        assert best <= mmc.objectives_[-1] * (1 + mmc.gap_) * (1 + 1e-9)


def test_given_pairs_that_differ(small):
    X, y, alike, differ = small
    some = differ[::7]
    mmc = MMC(gap_tol=1e-8, max_iter=5000).fit(X, y, cannot_link=some)
    every = MMC(gap_tol=1e-8, max_iter=5000).fit(X, y, cannot_link=differ)
    M = mmc.get_mahalanobis_matrix()
    assert mmc.objectives_[-1] == pytest.approx(literal_ratio(M, X, alike, some), rel=1e-7)
    assert mmc.objectives_[-1] > literal_ratio(every.get_mahalanobis_matrix(), X, alike, some)
    # all other pairs by name are what None means
    none = MMC(gap_tol=1e-8, max_iter=5000).fit(X, y)
    np.testing.assert_allclose(every.get_mahalanobis_matrix(), none.get_mahalanobis_matrix(), rtol=1e-4, atol=1e-7)


def test_it_finds_more_than_metric_learn():
    """metric-learn 0.7.0 on these pairs (tol=1e-10, 10000 iterations) stops at these values of the ratio."""
    X, _ = load_iris(return_X_y=True)
    alike = np.arange(150).reshape(75, 2)
    differ = np.array([(i, (i + 50) % 150) for i in range(0, 150, 3)])
    full, diagonal = MMC().fit(X, alike, differ), MMC(structure="diag").fit(X, alike, differ)
    assert literal_ratio(full.get_mahalanobis_matrix(), X, alike, differ) > 6.3596205
    assert literal_ratio(diagonal.get_mahalanobis_matrix(), X, alike, differ) > 4.3103291


@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_real_data_converge_and_units_do_not_matter(load):
    X, y = load(return_X_y=True)
    entries = simulate_pairs(y, 0.7, random_state=0)
    mmc = MMC(gap_tol=1e-4).fit(X, entries)
    assert mmc.converged_
    units = np.geomspace(1e-3, 1e3, X.shape[1])
    scaled = MMC(gap_tol=1e-4).fit(X * units + 50, entries)
    assert scaled.objectives_[-1] == pytest.approx(mmc.objectives_[-1], rel=1e-6)


def test_more_columns_than_pairs_constant_columns_and_duplicates():
    X, y = load_digits(return_X_y=True)
    X, y = X[:150], y[:150]
    for chunklets in (y, [[0, 10], [1, 11], [2, 22]], np.r_[0, 0, 1, 1, np.full(146, -1)]):
        for diagonal in (False, True):
            mmc = MMC(structure="diag" if diagonal else "full").fit(X, chunklets)
            assert np.isfinite(mmc.components_).all()
            assert mmc.components_.shape[0] <= 64
    doubled = MMC().fit(np.repeat(X, 2, axis=0), np.repeat(y, 2))
    assert np.isfinite(doubled.components_).all()


def test_pandas():
    X, y = load_iris(return_X_y=True, as_frame=True)
    mmc = MMC().fit(X, y.astype("category")).set_output(transform="pandas")
    assert isinstance(mmc.transform(X), pd.DataFrame)


X6 = np.arange(18.0).reshape(6, 3) ** 1.5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MMC().fit(X6, None), "requires y to be passed, but the target y is None"),
        (lambda: MMC().fit(X6, [0, 1, 2, 3, 4, 5]), "MMC needs a chunklet .* got none: .*6 singletons"),
        (lambda: MMC().fit(X6, [0, 0, 0, 0, 0, 0]), "MMC needs dissimilar pairs, got none"),
        (lambda: MMC().fit(X6, [0, 0, 0, 1, 1, 1], cannot_link=[[2, 2]]), "MMC needs dissimilar pairs, got none"),
        (lambda: MMC().fit(X6, [0, 0, 0, 1, 1, 1], cannot_link=[[2, 6]]), "cannot_link must hold row positions"),
        (lambda: MMC().fit(np.ones((6, 2)), [0, 0, 0, 1, 1, 1]), "All 6 rows of X are equal"),
        (lambda: MMC().fit(np.repeat(X6[:3], 2, axis=0), [0, 0, 1, 1, 2, 2]), "only equal points"),
        (lambda: MMC(structure="diag").fit(np.repeat(X6[:3], 2, axis=0), [0, 0, 1, 1, 2, 2]), "only equal points"),
        (
            lambda: MMC(structure="no").fit(X6, [0, 0, 0, 1, 1, 1]),
            "structure must be one of 'full', 'diag', got 'no'",
        ),
        (lambda: MMC().fit(X6 * 1e-200, [0, 0, 0, 1, 1, 1]), "columns .* have a range of at most .*e-199"),
        (lambda: MMC(gap_tol=0).fit(X6, [0, 0, 0, 1, 1, 1]), "gap_tol must be"),
        (lambda: MMC(max_iter=0).fit(X6, [0, 0, 0, 1, 1, 1]), "max_iter must be"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
