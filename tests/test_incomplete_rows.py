"""Test that scores of rows with missing values are integrals over these values."""

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import trapezoid
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import get_tags

from vicinal import LCA, LCAGauss, ManifoldParzen, ParzenWindows, Selection
from vicinal._leave_one_out import gaussian_start

NAN = np.nan


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(60, 3)) * [2.0, 1.0, 0.5]


@pytest.mark.parametrize(
    "density",
    [ParzenWindows(0.5), LCA(reg=0.0), ManifoldParzen(1, 5, 0.1), ManifoldParzen(2, 5, 0.1), ManifoldParzen(0, 1, 0.2)],
)
def test_missing_values_are_integrated_out(rows, density):
    density = density.fit(rows)
    X = np.array([[0.5, NAN, 0.1], [NAN, 0.3, NAN], [1.0, 0.0, 0.2], [NAN, NAN, NAN], [-1.0, NAN, 0.4]])
    got = density.score_samples(X)
    values = np.linspace(-15, 15, 6001)  # for such smooth functions, the trapezoidal rule is exact to many digits
    for i in (0, 4):
        filled = np.where(np.arange(3) == 1, values[:, None], X[i])
        assert np.exp(got[i]) == pytest.approx(trapezoid(np.exp(density.score_samples(filled)), values), rel=1e-6)
    assert got[1] == pytest.approx(density.marginal([1]).score_samples([[0.3]])[0])
    assert got[2] == pytest.approx(density.score_samples(X[2:3])[0], rel=1e-12)
    assert got[3] == 0.0


def test_names_bad_rows_and_the_tuned_estimator(rows):
    frame = pd.DataFrame(rows, columns=["a", "b", "c"])
    density = ParzenWindows(0.5).fit(frame)
    frame.loc[3, "b"] = NAN
    assert np.all(np.isfinite(density.score_samples(frame)))
    with pytest.raises(ValueError, match="infinity"):
        ParzenWindows(0.5).fit(rows).score_samples(np.full((1, 3), np.inf))
    with pytest.raises(ValueError, match="expecting 3 features"):
        ParzenWindows(0.5).fit(rows).score_samples(rows[:, :2])
    search = ManifoldParzen(selection=Selection(n_components=[1], n_neighbors=[5], noise=[0.1], cv=2)).fit(rows)
    X = np.array([[NAN, 0.0, 0.1]])
    plain = ManifoldParzen(1, 5, 0.1).fit(rows)
    np.testing.assert_allclose(search.score_samples(X), plain.score_samples(X))


@pytest.mark.parametrize("density", [ParzenWindows(0.5), LCA(reg=0.1), LCAGauss(reg=0.1, reg_gauss=0.1)])
def test_rows_with_gaps_are_scored_by_densities_that_are_fitted_to_them(rows, density):
    rows[::7, 1] = NAN
    assert get_tags(density).input_tags.allow_nan
    scores = density.fit(rows).score_samples(rows)
    assert np.isfinite(scores).all()
    np.testing.assert_allclose(scores[::7], density.marginal([0, 2]).score_samples(rows[::7, [0, 2]]), rtol=1e-10)


@pytest.mark.parametrize("metric", [LCA(reg=0.1), LCAGauss(reg=0.1, reg_gauss=0.1)])
def test_transform_of_rows_with_gaps_names_the_remedy(rows, metric):
    metric.fit(rows)
    holed = np.where(np.arange(60)[:, None] % 7 == np.array([-1, 0, -1]), NAN, rows)
    with pytest.warns(
        UserWarning, match=r"9 of 60 rows have missing values in the columns 1, .* vicinal\.DensityImputer"
    ):
        images = metric.transform(holed)
    np.testing.assert_array_equal(np.isnan(images).all(axis=1), np.arange(60) % 7 == 0)
    np.testing.assert_array_equal(images[1:7], metric.transform(rows)[1:7])
    with pytest.raises(ValueError, match=r"contains NaN in the columns 1.*vicinal\.DensityImputer"):
        metric.mahalanobis(holed)


def test_lca_of_rows_with_gaps_checks_its_limits_and_its_start(rows):
    gaps = rows.copy()
    gaps[3, 1] = np.nan
    wrong = {"max_iter": (0, ValueError), "tol": (-1.0, ValueError), "init": ("nonsense", ValueError)}
    for name, (value, error) in {**wrong, "max_iter ": ("x", TypeError)}.items():
        with pytest.raises(error, match=rf"{name.strip()} must be"):
            LCA(**{name.strip(): value}).fit(gaps)
    with pytest.warns(ConvergenceWarning):
        near, far = (LCA(init=init, max_iter=1).fit(gaps) for init in (0.5, 5.0))
    np.testing.assert_allclose(far.covariance_, 100.0 * near.covariance_, rtol=1e-9, atol=1e-9)


def test_partial_fit_after_a_fit_with_gaps_forgets_its_scores(rows):
    gaps = rows.copy()
    gaps[3, 1] = np.nan
    model = LCA(reg=0.1).fit(gaps).partial_fit(rows)
    assert len(model.score_samples(None)) == len(model.mixture_.centres)
    assert not hasattr(model, "_incomplete_rows")


def test_rules_of_thumb_do_not_depend_on_a_gap_in_a_row_without_weight(rows):
    gaps, weight = rows[:12].copy(), np.ones(12)
    gaps[0, 1], weight[0] = np.nan, 0.0
    for rule in ("scott", "silverman"):
        whole, holed = (ParzenWindows(rule).fit(X, sample_weight=weight) for X in (rows[:12], gaps))
        np.testing.assert_allclose(holed.covariance_, whole.covariance_, rtol=1e-9)


@pytest.mark.parametrize("density", [LCA(reg=0.1), LCAGauss(reg=0.1, reg_gauss=0.1), ParzenWindows()])
def test_refit_to_complete_rows_forgets_the_scores_and_the_rows_of_a_fit_with_gaps(density):
    X = np.random.default_rng(0).normal(size=(40, 3))
    holed = X.copy()
    holed[3, 1] = np.nan
    again, plain = clone(density).fit(holed).fit(X), clone(density).fit(X)
    np.testing.assert_array_equal(again.score_samples(None), plain.score_samples(None))
    assert not hasattr(again, "_incomplete_rows")


@pytest.mark.parametrize("density", [LCA(reg=0.1), LCAGauss(reg=0.1, reg_gauss=0.1)])
def test_weights_of_rows_with_gaps_are_those_of_the_kernels_and_the_rows_may_change_after_the_fit(density):
    random = np.random.default_rng(0)
    X, weight = random.normal(size=(40, 3)), random.uniform(0.2, 3.0, size=40)
    X[3, 1] = np.nan
    model = clone(density).fit(X, sample_weight=weight)
    np.testing.assert_allclose(np.exp(model.mixture_.log_weights), weight / weight.sum(), rtol=1e-12)
    rows = X.copy()
    X[:] = 0
    np.testing.assert_array_equal(model._incomplete_rows, rows)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_lca_of_rows_with_gaps_starts_from_the_width_of_scotts_rule():
    X = np.random.default_rng(0).normal(size=(40, 3))
    X[3, 1] = np.nan
    covariance = gaussian_start(X, None)[1] * 40 ** (-2 / 7) + 0.1 * np.eye(3)
    np.testing.assert_allclose(LCA(reg=0.1, max_iter=1).fit(X).covariance_, covariance, rtol=1e-9)


def test_masked_entries_are_missing_values(rows):
    holes = np.random.default_rng(1).random(rows.shape) < 0.1
    masked, with_nan = np.ma.masked_array(rows, holes), np.where(holes, NAN, rows)
    for density in (LCA(reg=0.1), ParzenWindows(), LCAGauss(reg=0.1, reg_gauss=0.1)):
        expected = clone(density).fit(with_nan).score_samples(with_nan)
        np.testing.assert_array_equal(density.fit(masked).score_samples(masked), expected)
    with pytest.raises(ValueError, match="Input X contains NaN in the columns 0, 1, 2"):
        ManifoldParzen().fit(masked)


def test_dates_are_not_said_to_be_categories(rows):
    table = pd.DataFrame({"a": rows[:, 0], "day": pd.date_range("2020", periods=len(rows))})
    with pytest.raises(
        ValueError, match=r"got dates or times. Columns without numbers: day. Drop such columns, or make"
    ):
        LCA().fit(table)
