"""Test BinnedTargetMetric: metrics of numeric targets through bins."""

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import TruncatedSVD
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from vicinal import NCA, RCA
from vicinal.companions import MMC, BinnedTargetMetric


@parametrize_with_checks([BinnedTargetMetric()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_it_is_the_metric_of_the_bins():
    """Ten bins of equal size by sorting, no quantiles: the same groups, and RCA of them."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), rng.normal(size=200)
    bins = np.empty(200, dtype=int)
    bins[np.argsort(y)] = np.repeat(np.arange(10), 20)
    for metric in (None, RCA(n_components=2), NCA(random_state=0, max_iter=3), MMC()):
        found = BinnedTargetMetric(metric).fit(X, y)
        np.testing.assert_array_equal(np.digitize(y, found.bin_edges_), bins)
        expected = (RCA() if metric is None else metric).fit(X, bins)
        np.testing.assert_array_equal(found.components_, expected.components_)
        np.testing.assert_array_equal(found.transform(X), expected.transform(X))


def test_few_rows_and_few_numbers_make_fewer_bins():
    rng = np.random.default_rng(0)
    assert len(BinnedTargetMetric().fit(rng.normal(size=(12, 2)), np.arange(12.0)).bin_edges_) == 2
    assert len(BinnedTargetMetric().fit(rng.normal(size=(3, 2)), np.arange(3.0)).bin_edges_) == 1
    y = np.array([0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    assert len(BinnedTargetMetric().fit(rng.normal(size=(8, 2)), y).bin_edges_) == 1
    y = np.repeat([1.0, 2.0, 5.0], [60, 20, 20])
    edges = BinnedTargetMetric().fit(rng.normal(size=(100, 2)), y).bin_edges_
    assert (np.diff(edges) > 0).all()
    assert len(np.unique(np.digitize(y, edges))) == 3  # equal numbers are never parted


def test_it_finds_the_column_that_decides():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(300, 4)) * [0.1, 3.0, 3.0, 3.0], columns=list("abcd"))
    y = np.sin(15.0 * X["a"])
    learned = make_pipeline(StandardScaler(), BinnedTargetMetric(), KNeighborsRegressor())
    plain = make_pipeline(StandardScaler(), KNeighborsRegressor())
    assert cross_val_score(learned, X, y).mean() > cross_val_score(plain, X, y).mean() + 0.05
    fitted = learned[:-1].fit(X, y)
    assert fitted.get_feature_names_out().tolist() == [f"binnedtargetmetric{i}" for i in range(4)]


@pytest.mark.parametrize(
    ("estimator", "y", "error", "match"),
    [
        (BinnedTargetMetric(n_bins=1), np.arange(20.0), ValueError, "n_bins must be at least 2, got 1"),
        (BinnedTargetMetric(n_bins=2.5), np.arange(20.0), TypeError, "n_bins must be an integer"),
        (BinnedTargetMetric(), np.full(20, np.nan), ValueError, "NaN"),
        (BinnedTargetMetric(), np.array(["a", "b"] * 10), ValueError, "could not convert"),
        (BinnedTargetMetric(), np.arange(19.0), ValueError, "inconsistent numbers of samples"),
        (
            BinnedTargetMetric(LinearDiscriminantAnalysis()),
            np.arange(20.0),
            TypeError,
            "got LinearDiscriminantAnalysis",
        ),
    ],
)
def test_bad_input(estimator, y, error, match):
    X = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(error, match=match):
        estimator.fit(X, y)


def test_a_metric_of_another_library_only_needs_components():
    X = np.random.default_rng(0).normal(size=(40, 3))
    found = BinnedTargetMetric(TruncatedSVD(2, random_state=0)).fit(X, X[:, 0])
    assert found.transform(X).shape == (40, 2)
