"""Test the noise that undoes rounding: properties of the transformer, and the bound given by its scores."""

import numpy as np
import pytest
from scipy import stats
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from vicinal import LCA, DensityImputer, DensityOutlierDetector, Dequantizer, ParzenWindows
from vicinal._tables import EqualRows
from vicinal.tables import score_rows

RNG = np.random.default_rng(0)
COUNTS = np.column_stack([RNG.poisson(3.0, size=200), 0.5 * RNG.binomial(9, 0.4, size=200), RNG.normal(size=200)])


@parametrize_with_checks([Dequantizer()])
def test_scikit_learn_accepts_it(estimator, check):
    check(estimator)


def test_noise_is_uniform_over_one_step_and_can_be_taken_back():
    dequantizer = Dequantizer().fit(COUNTS)
    np.testing.assert_allclose(dequantizer.steps_, [1.0, 0.5, 0.0])
    noisy = dequantizer.fit_transform(COUNTS)
    np.testing.assert_array_equal(np.rint(noisy[:, 0]), COUNTS[:, 0])
    np.testing.assert_allclose(0.5 * np.rint(noisy[:, 1] / 0.5), COUNTS[:, 1])
    np.testing.assert_array_equal(noisy[:, 2], COUNTS[:, 2])
    draws = np.concatenate([dequantizer.draw(COUNTS, k) - COUNTS for k in range(10)])
    assert stats.kstest(draws[:, 0], stats.uniform(-0.5, 1.0).cdf).pvalue > 1e-3
    assert stats.kstest(draws[:, 1], stats.uniform(-0.25, 0.5).cdf).pvalue > 1e-3
    assert abs(np.corrcoef(draws[:, 0], draws[:, 1])[0, 1]) < 0.1  # columns are independent
    pairs = np.corrcoef([dequantizer.draw(COUNTS, k)[:, 0] - COUNTS[:, 0] for k in range(6)])
    assert np.abs(pairs - np.eye(6)).max() < 0.3  # and so are draws


def test_a_row_has_the_same_noise_alone_in_blocks_and_in_any_order():
    dequantizer = Dequantizer().fit(COUNTS)
    whole = dequantizer.transform(COUNTS)
    np.testing.assert_array_equal(dequantizer.transform(COUNTS[7:8]), whole[7:8])
    np.testing.assert_array_equal(dequantizer.transform(COUNTS[::-1]), whole[::-1])
    np.testing.assert_array_equal(
        np.vstack([dequantizer.draw(COUNTS[:50], 3), dequantizer.draw(COUNTS[50:], 3)]), dequantizer.draw(COUNTS, 3)
    )
    np.testing.assert_array_equal(dequantizer.transform(-0.0 * COUNTS), dequantizer.transform(0.0 * COUNTS))
    other = Dequantizer(random_state=1).fit(COUNTS).transform(COUNTS)
    assert not np.any(other[:, 0] == whole[:, 0])


def test_training_rows_that_are_equal_are_told_apart():
    twins = np.repeat(COUNTS[:5, :2], 4, axis=0)
    dequantizer = Dequantizer([1.0, 0.5])
    noisy = dequantizer.fit_transform(twins)
    assert len(np.unique(noisy, axis=0)) == 20
    new = dequantizer.transform(twins)
    assert len(np.unique(new, axis=0)) == 5
    np.testing.assert_array_equal(noisy[::4], new[::4])  # the first of equal rows has the noise of a new one


@pytest.mark.usefixtures("short_search")
def test_metrics_see_no_noise_after_the_fit():
    model = make_pipeline(Dequantizer(training_only=True), StandardScaler(), LCA()).fit(COUNTS[:, :2])
    np.testing.assert_array_equal(model[0].transform(COUNTS[:, :2]), COUNTS[:, :2])
    # but the fit did: without noise LCA has no answer on a grid of twins
    assert len(np.unique(model[-1].mixture_.centres, axis=0)) == len(COUNTS)


def test_missing_values_stay_missing():
    holes = COUNTS.copy()
    holes[3, 0] = np.nan
    noisy = Dequantizer([1.0, 0.5, 0.0]).fit_transform(holes)
    assert np.isnan(noisy[3, 0])
    assert np.isnan(noisy).sum() == 1


@pytest.mark.slow
def test_scores_are_a_bound_on_the_log_probability():
    """E log p(x + u) + log s <= log P(x): the cell's mass, by quadrature, for whole numbers and for halves."""
    for step in (1.0, 0.5):
        X = step * RNG.poisson(4.0, size=(300, 1)).astype(float)
        model = make_pipeline(Dequantizer(), StandardScaler(), ParzenWindows(0.2)).fit(X)
        values = step * np.arange(10.0)[:, None]
        bound = score_rows(model, values, n_draws=400, probability=True)
        grid = (np.arange(4000) + 0.5) / 4000 - 0.5
        cells = [np.exp(model[1:].score_samples(value + step * grid[:, None])).mean() for value in values]
        exact = np.log(cells) - np.log(model[1].scale_[0]) + np.log(step)
        assert np.exp(exact).sum() == pytest.approx(1.0, abs=0.02)  # probabilities of all values
        assert np.all(bound <= exact + 0.05)
        assert np.abs(bound - exact)[1:7].max() < 0.3
        plain = score_rows(model, values, n_draws=400)
        np.testing.assert_allclose(bound - plain, np.log(step))


def test_scores_without_rounded_columns_are_those_of_the_model_in_units_of_the_data():
    X = RNG.normal(size=(50, 2)) * [10.0, 0.1]
    model = make_pipeline(StandardScaler(), ParzenWindows("scott")).fit(X)
    np.testing.assert_allclose(score_rows(model, X), stats.gaussian_kde(X.T).logpdf(X.T), rtol=1e-9)
    np.testing.assert_allclose(score_rows(ParzenWindows("scott").fit(X), X), score_rows(model, X), rtol=1e-9)
    bent = make_pipeline(PolynomialFeatures(), ParzenWindows(1.0)).fit(X)
    with pytest.raises(ValueError, match="the units of the data are lost"):
        score_rows(bent, X)


@pytest.mark.parametrize(
    ("steps", "message"),
    [("all", "steps must be 'auto'"), ([1.0], "one number for each of the 3"), ([1.0, -1.0, 0.0], "at least 0")],
)
def test_bad_steps(steps, message):
    with pytest.raises(ValueError, match=message):
        Dequantizer(steps).fit(COUNTS)


def test_float32_rows_have_the_same_noise_alone_and_among_large_values():
    """The result was float64 if the rows contained a large value, and float32 for the same row alone."""
    X = np.append(COUNTS[:, :1], 1e6).astype(np.float32)[:, None]
    dequantizer = Dequantizer([1.0]).fit(X)
    whole = dequantizer.transform(X)
    np.testing.assert_array_equal(dequantizer.transform(X[:1]), whole[:1])
    assert len(np.unique(dequantizer.fit_transform(np.full((50, 1), 2.0**23, np.float32)))) == 50
    gap = dequantizer.transform(np.full((2, 1), np.nan, np.float32))  # which once warned of an all-NaN slice
    assert np.isnan(gap).all()


def test_rows_with_gaps_are_scored_by_what_is_known_of_them():
    """Only the command could score them, and it counted the steps of missing columns into the probability."""
    X = np.column_stack([RNG.poisson(4.0, size=80), 10.0 * RNG.binomial(9, 0.4, size=80)])
    model = make_pipeline(Dequantizer([1.0, 10.0]), StandardScaler(), ParzenWindows(0.4)).fit(X)
    row, other = np.array([[3.0, np.nan]]), np.array([[3.0, 20.0]])
    alone = [model[-1].marginal([0]).score_samples(model[1].transform(model[0].draw(row, k))[:, :1]) for k in range(8)]
    expected = np.mean(alone) - np.log(model[1].scale_[0])
    found = score_rows(model, np.concatenate([row, other]))
    np.testing.assert_allclose(found[0], expected, rtol=1e-9)
    np.testing.assert_allclose(found[1:], score_rows(model, other), rtol=1e-9)
    bound = score_rows(model, np.concatenate([row, other]), probability=True)
    np.testing.assert_allclose(bound - found, [np.log(1.0), np.log(10.0)], atol=1e-12)
    # A step that fills in values does not change this.
    filling = make_pipeline(Dequantizer([1.0, 10.0]), StandardScaler(), DensityImputer(), ParzenWindows(0.4)).fit(X)
    np.testing.assert_allclose(score_rows(filling, np.concatenate([row, other]), probability=True), bound, rtol=1e-9)


def test_equal_training_rows_in_different_blocks_are_told_apart():
    """The rows of a large table come in blocks, and equal rows of two blocks had the same noise."""
    dequantizer, seen = Dequantizer([1.0, 0.5]).fit(COUNTS[:, :2]), EqualRows()
    whole = dequantizer.transform_training_rows(COUNTS[:, :2])
    parts = [dequantizer.transform_training_rows(part, seen) for part in np.array_split(COUNTS[:, :2], 7)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert len(np.unique(whole, axis=0)) == len(COUNTS)


def test_a_density_in_fewer_dimensions_has_no_probability_of_rounded_rows():
    rows = np.random.default_rng(0).poisson(9.0, size=(200, 3)).astype(float)
    model = make_pipeline(Dequantizer(), StandardScaler(), PCA(2), ParzenWindows()).fit(rows)
    detector = DensityOutlierDetector.from_density(model)
    for table in (detector.scored_table(explain=False), detector.scored_table(rows[:5], explain=False)):
        assert "log_density" in table
        assert "log_probability" not in table
    with pytest.raises(ValueError, match="not available for a density of 2 dimensions of a table of 3 columns"):
        score_rows(model, rows, probability=True)


def test_values_off_the_lattice_are_known_by_their_row_when_rows_come_in_blocks():
    X = np.add(np.random.default_rng(0).integers(0, 9, (60, 2)), (0.5, 0.0))
    X[[3, 41, 41], [1, 0, 1]] = [2.25, 7.7, 3.3]
    dequantizer, seen = Dequantizer().fit(X), EqualRows()
    for start in (0, 20, 40):
        dequantizer.transform_training_rows(X[start : start + 20], seen)
    positions = np.array([41, 7, 3])
    np.testing.assert_array_equal(
        dequantizer.training_cells(np.rint(X[positions]), positions)[[0, 2]], [[7.7, 3.3], [np.rint(X[3, 0]), 2.25]]
    )
    np.testing.assert_allclose(dequantizer.offsets_, [0.5, 0.0], atol=1e-12)
