"""Test the explanations of unusual rows."""

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from vicinal import LCA, DensityImputer, DensityOutlierDetector, LCAGauss, ManifoldParzen, ParzenWindows
from vicinal._density import explanation


@pytest.fixture
def table():
    """Column c is the sum of a and b; d is on its own."""
    rng = np.random.default_rng(0)
    a, b, d = rng.normal(size=(3, 300))
    return pd.DataFrame({"a": a, "b": b, "c": a + b + 0.1 * rng.normal(size=300), "d": d})


@pytest.mark.usefixtures("short_search")
def test_a_broken_relation_is_the_reason_although_each_value_is_usual(table):
    detector = DensityOutlierDetector(LCA()).fit(table)
    row = pd.DataFrame({"a": [1.0], "b": [1.0], "c": [-1.0], "d": [0.0]})
    found = detector.explain(row)
    assert found.names == ["a", "b", "c", "d"]
    assert found.shares[0, :3].max() < 0.02
    # Given values that no training row comes near to, the nearest row alone says what d should be: the surprise tells.
    assert found.ranking()[0, -1] == 3
    assert found.surprises[0, 3] < 0.5 * found.surprises[0, :3].min()
    assert 1.5 < found.lows[0, 2] < found.medians[0, 2] < found.highs[0, 2] < 2.5
    said = found.reasons(0)
    assert len(said) == 3
    assert any(text.startswith("c: expected 1.") and text.endswith(", got -1") for text in said)
    assert found.values.tolist() == row.to_numpy().tolist()


@pytest.mark.usefixtures("short_search")
def test_units_change_neither_shares_nor_ranking(table):
    rows = table.sample(20, random_state=0) * [1.0, 1.0, -1.0, 3.0]
    units = np.array([1e3, 1.0, 1e-4, 7.0])
    one = DensityOutlierDetector(LCA()).fit(table).explain(rows)
    other = DensityOutlierDetector(LCA()).fit(table * units).explain(rows * units)
    np.testing.assert_allclose(one.shares, other.shares, atol=0.01)
    np.testing.assert_allclose(one.surprises, other.surprises, rtol=0.02, atol=0.02)
    np.testing.assert_array_equal(one.ranking()[:, 0], other.ranking()[:, 0])
    np.testing.assert_allclose(one.lows, other.lows / units, rtol=0.02, atol=0.02)


def test_training_rows_are_left_out_one_by_one(table):
    X = table.to_numpy()[:60]
    detector = DensityOutlierDetector(ParzenWindows(0.5), largest_group=None).fit(X)
    found = detector.explain()
    for i in (0, 30, 59):
        others = DensityOutlierDetector(ParzenWindows(0.5), largest_group=None).fit(np.delete(X, i, axis=0))
        alone = others.explain(X[i : i + 1])
        np.testing.assert_allclose(found.medians[i], alone.medians[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.highs[i], alone.highs[0], rtol=1e-5, atol=1e-6)
    some = detector.explain(rows=[30, 5])
    np.testing.assert_array_equal(some.shares, found.shares[[30, 5]])
    np.testing.assert_allclose(some.lows, found.lows[[30, 5]], rtol=1e-5)  # by halving, from other ends
    # Ranks among the rows themselves: the most surprising value of each column has a share of 1/n.
    np.testing.assert_allclose(np.sort(found.shares, axis=0)[0], 1 / 60)
    np.testing.assert_allclose(found.shares.mean(axis=0), (60 + 1) / 120, rtol=1e-6)


def test_about_nine_in_ten_usual_values_are_in_the_interval(table):
    found = DensityOutlierDetector(LCA()).fit(table[:200]).explain(table[200:])
    inside = (found.values >= found.lows) & (found.values <= found.highs)
    assert 0.85 < inside.mean() < 0.98


def test_the_group_of_a_row_is_no_excuse():
    """Expected values come from inliers only, so that a tight group of outliers does not explain its members."""
    rng = np.random.default_rng(1)
    X = np.vstack([rng.normal(size=(200, 3)), 0.1 * rng.normal(size=(12, 3)) + [6.0, 0.0, 0.0]])
    found = DensityOutlierDetector().fit(X).explain()
    assert (found.ranking()[200:, 0] == 0).all()
    assert found.highs[200:, 0].max() < 4.0
    excused = DensityOutlierDetector(largest_group=None).fit(X).explain()
    assert excused.highs[200:, 0].max() > 5.0


def test_scalers_before_the_density_are_undone(table):
    scaled = make_pipeline(StandardScaler(), ParzenWindows(0.5)).fit(table * 1000.0)
    detector = DensityOutlierDetector.from_density(scaled)
    row = table[:1] * 1000.0
    found = detector.explain(row)
    plain = DensityOutlierDetector.from_density(scaled[-1]).explain(scaled[0].transform(row))
    np.testing.assert_allclose(found.shares, plain.shares)
    np.testing.assert_allclose(found.highs, scaled[0].inverse_transform(plain.highs))
    np.testing.assert_allclose(found.values, row)
    np.testing.assert_allclose(detector.explain(None).values, table * 1000.0, rtol=1e-9, atol=1e-9)


def test_many_training_rows_are_spoken_for_by_some(table, monkeypatch):
    monkeypatch.setattr(explanation, "MOST_REFERENCE_ROWS", 100)
    few = DensityOutlierDetector(ParzenWindows(0.5)).fit(table).explain(table[:50] + 0.1)
    monkeypatch.setattr(explanation, "MOST_REFERENCE_ROWS", 4000)
    all_rows = DensityOutlierDetector(ParzenWindows(0.5)).fit(table).explain(table[:50] + 0.1)
    assert np.abs(few.shares - all_rows.shares).max() < 0.15
    np.testing.assert_array_equal(few.highs, all_rows.highs)


@pytest.mark.parametrize(
    ("density", "named"),
    [
        (ManifoldParzen(1, 5, 0.1), "got ManifoldParzen"),
        (LCAGauss(), "got LCAGauss"),
        (make_pipeline(PCA(2), ParzenWindows(0.5)), "fitted to the output of PCA"),
    ],
)
def test_what_cannot_be_explained_is_an_error_that_says_so(table, density, named):
    detector = DensityOutlierDetector(density).fit(table[:60])
    with pytest.raises(TypeError, match=named):
        detector.explain(table[:2])


def test_rows_that_were_filled_in_are_explained_in_their_own_columns():
    """A pipeline that scales and then fills gaps keeps its columns; explaining it used to raise an error."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3)) * [1.0, 10.0, 100.0]
    X[:, 2] += 5.0 * X[:, 1]
    detector = DensityOutlierDetector(make_pipeline(StandardScaler(), DensityImputer(), LCA(reg=0.1))).fit(X)
    found = detector.explain(np.array([[0.0, 10.0, -500.0]]))
    assert found.shares[0, 1:].max() < 0.05
    assert found.lows[0, 2] < 50.0 < found.highs[0, 2]
