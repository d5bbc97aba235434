"""Every density with everything that takes a density: one matrix, the same laws for all."""

import copy

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import cumulative_simpson, trapezoid
from scipy.optimize import approx_fprime
from scipy.special import logsumexp
from scipy.stats import kstest
from sklearn.base import clone

import vicinal
from vicinal import (
    LCA,
    DensityClassifier,
    DensityOutlierDetector,
    LCAGauss,
    LocalLCA,
    ManifoldParzen,
    ParzenMeanShift,
    ParzenWindows,
)
from vicinal._mixtures import FrameMixture, Mixture, SharedMixture

rng = np.random.default_rng(0)
y = np.repeat(["left", "right"], [25, 20])
X = (
    rng.normal(size=(45, 3)) @ [[1.0, 0.6, 0.0], [0.0, 0.5, 0.2], [0.0, 0.0, 0.4]]
    + np.where(y == "left", 0, 4)[:, None]
)
NEW = X[::5] + rng.normal(scale=0.3, size=(9, 3))

pytestmark = pytest.mark.usefixtures("short_search_in_this_file")
DENSITIES = {
    "ParzenWindows": (ParzenWindows(), SharedMixture),
    "LCA": (LCA(reg=0.0), SharedMixture),
    "LCAGauss": (LCAGauss(reg=0.0, reg_gauss=0.0), SharedMixture),
    "LocalLCA": (LocalLCA(2, 8, 0.05, shared=0.5, center="mean", reg=0.0), FrameMixture),
    "ManifoldParzen": (ManifoldParzen(2, 8, 0.05), FrameMixture),
}


def test_no_density_is_forgotten():
    """A density is a public estimator that scores, samples and is fitted to rows alone."""
    public = {name for name in vicinal.__all__ if name[0].isupper()}
    assert {name for name in public if hasattr(getattr(vicinal, name), "marginal")} == set(DENSITIES)


@pytest.fixture(scope="module", params=DENSITIES)
def density(request):
    return DENSITIES[request.param][0]


_fitted: dict = {}


@pytest.fixture
def fitted(density):
    name = type(density).__name__
    if name not in _fitted:
        _fitted[name] = clone(density).fit(X)
    return _fitted[name]


@pytest.fixture
def mixture(fitted):
    return getattr(fitted, "best_estimator_", fitted).mixture_


def saved_and_loaded(estimator, folder):
    vicinal.io.save(estimator, folder / "model.vicinal")
    return vicinal.io.load(folder / "model.vicinal")


# -- the protocol ------------------------------------------------------------------------------------------------


def test_every_mixture_answers_the_same_calls(fitted, mixture):
    kind = DENSITIES[type(fitted).__name__][1]
    for one in (mixture, fitted.marginal([0, 2]), fitted.conditional({1: 0.5})):
        assert isinstance(one, Mixture)
        assert type(one) is kind
    np.testing.assert_array_equal(mixture.score_samples(NEW), fitted.score_samples(NEW))
    assert mixture.score(NEW) == fitted.score(NEW)


def test_responsibilities_are_the_derivative_by_the_log_weights(mixture):
    """With weights w_j / sum w, the derivative of log p(x) by log w_j is p_j(x) - w_j, times what the components give to p(x)."""
    of_components = np.ones(len(NEW))
    if mixture.background is not None:
        of_components = np.exp(mixture.background.log_shares[0] + mixture.log_kernels(NEW) - mixture.score_samples(NEW))
    shares = mixture.responsibilities(NEW).toarray()
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-12)
    step = 1e-5
    for j in (0, 7, 44):
        sides = []
        for sign in (1, -1):
            moved = copy.copy(mixture)
            moved.log_weights = mixture.log_weights.copy()
            moved.log_weights[j] += sign * step
            moved.log_weights -= logsumexp(moved.log_weights)
            sides.append(moved.score_samples(NEW))
        slope = (sides[0] - sides[1]) / (2 * step)
        expected = of_components * (shares[:, j] - np.exp(mixture.log_weights[j]))
        np.testing.assert_allclose(slope, expected, atol=1e-8)
    few = mixture.responsibilities(NEW, least=0.05)
    assert few.nnz < np.count_nonzero(shares)
    assert few.data.min() >= 0.05


def test_the_step_of_mean_shift_climbs_and_is_zero_at_modes(fitted, mixture):
    at = NEW.copy()
    heights = fitted.score_samples(at)
    steps = mixture.mean_shift(at)
    for x, step in zip(at, steps, strict=True):
        gradient = approx_fprime(x, lambda z: fitted.score_samples(z[None])[0], 1e-6)
        assert gradient @ step > 0
    for _ in range(10):
        at = at + mixture.mean_shift(at)
        new = fitted.score_samples(at)
        assert np.all(new >= heights - 1e-10)
        heights = new


def test_kernel_units_do_not_depend_on_the_units_of_the_data(density, fitted, mixture):
    """In other units of all columns the rows lie as far apart, in units of the kernels."""
    scale, shift = 8.0, 100.0
    other = clone(density)
    if "noise" in other.get_params():  # a variance in the units of the data
        other.set_params(noise=np.multiply(other.noise, scale**2).tolist())
    other.fit(X * scale + shift)
    moved = getattr(other, "best_estimator_", other).mixture_
    here, there = mixture.in_kernel_units(NEW), moved.in_kernel_units(NEW * scale + shift)
    apart = [np.linalg.norm(rows[1:] - rows[0], axis=1) for rows in (here, there)]
    np.testing.assert_allclose(apart[1], apart[0], rtol=1e-4)
    np.testing.assert_allclose(
        other.score_samples(NEW * scale + shift), fitted.score_samples(NEW) - 3 * np.log(scale), atol=1e-3
    )


# -- marginals, conditionals, incomplete rows, samples ---------------------------------------------------------------


def test_a_marginal_is_the_integral_of_the_joint(fitted):
    marginal, grid = (
        fitted.marginal([2, 0]),
        np.linspace(-100, 105, 16401),
    )  # 15 points per standard deviation, and all of their tails and those of the background
    for a, c in ((0.2, -0.1), (4.5, 4.0)):
        line = np.column_stack([np.full_like(grid, a), grid, np.full_like(grid, c)])
        joint = trapezoid(np.exp(fitted.score_samples(line)), grid)
        assert np.exp(marginal.score_samples([[c, a]])[0]) == pytest.approx(joint, rel=1e-8)
    total = trapezoid(np.exp(fitted.marginal([0]).score_samples(grid[:, None])), grid)
    assert total == pytest.approx(1.0, rel=1e-8)


def test_conditional_times_marginal_is_the_joint(fitted):
    for x in NEW[:3]:
        split = fitted.marginal([1]).score_samples([[x[1]]]) + fitted.conditional({1: x[1]}).score_samples([x[[0, 2]]])
        np.testing.assert_allclose(split, fitted.score_samples(x[None]), rtol=1e-9)
        chain = fitted.conditional({0: x[0]}).conditional({0: x[1]})  # what was column 1 is column 0 of the rest
        both = fitted.conditional({0: x[0], 1: x[1]})
        np.testing.assert_allclose(chain.score_samples([[x[2]]]), both.score_samples([[x[2]]]), rtol=1e-9)


def test_incomplete_rows_score_what_is_known_of_them(fitted):
    gaps = NEW.copy()
    gaps[0, 1] = gaps[1, [0, 2]] = gaps[2] = np.nan
    got = fitted.score_samples(gaps)
    assert got[0] == pytest.approx(fitted.marginal([0, 2]).score_samples(NEW[:1, [0, 2]])[0], rel=1e-9)
    assert got[1] == pytest.approx(fitted.marginal([1]).score_samples(NEW[1:2, [1]])[0], rel=1e-9)
    assert got[2] == 0.0
    np.testing.assert_allclose(got[3:], fitted.score_samples(NEW[3:]), rtol=1e-12)


def test_columns_by_name_are_columns_by_position(density, fitted):
    named = clone(density).fit(pd.DataFrame(X, columns=["a", "b", "c"]))
    pairs = [
        (named.marginal(["c", "a"]), fitted.marginal([2, 0])),
        (named.conditional({"b": 0.5}), fitted.conditional({1: 0.5})),
    ]
    for by_name, by_position in pairs:
        np.testing.assert_allclose(by_name.score_samples(NEW[:, :2]), by_position.score_samples(NEW[:, :2]), rtol=1e-9)
    assert list(named.marginal(["c", "a"]).feature_names) == ["c", "a"]
    with pytest.raises(ValueError, match="not a column of the fitted data"):
        named.marginal(["d"])


def test_samples_follow_the_density(fitted):
    """Each column of the sample against the integral of its marginal; and of a conditional."""
    rows = fitted.sample(1500, random_state=1)
    grid = np.linspace(-8, 13, 6001)
    given = fitted.conditional({0: 0.3, 2: 0.1})
    drawn = [(fitted.marginal([k]), rows[:, k]) for k in range(3)]
    for one, column in [*drawn, (given, given.sample(1500, random_state=2)[:, 0])]:
        share = cumulative_simpson(np.exp(one.score_samples(grid[:, None])), x=grid, initial=0)
        assert kstest(column, lambda x, share=share: np.interp(x, grid, share)).pvalue > 1e-3
    np.testing.assert_array_equal(fitted.sample(5, random_state=3), fitted.sample(5, random_state=3))


# -- meta-estimators and tools ---------------------------------------------------------------------------------------


def test_the_classifier_is_bayes_rule(density, tmp_path):
    classifier = DensityClassifier(density).fit(X, y)
    parts = [clone(density).fit(X[y == label]) for label in ("left", "right")]
    joint = np.stack([part.score_samples(NEW) for part in parts], axis=1) + np.log([25 / 45, 20 / 45])
    expected = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
    np.testing.assert_allclose(classifier.predict_proba(NEW), expected, atol=1e-12)
    assert classifier.score(X, y) > 0.95
    again = saved_and_loaded(classifier, tmp_path)
    np.testing.assert_array_equal(again.predict_joint_log_proba(NEW), classifier.predict_joint_log_proba(NEW))


def test_the_outlier_detector_finds_a_row_that_explains_nobody(density, tmp_path):
    rows = np.vstack([X, [[2.0, -3.0, 8.0]]])
    assert DensityOutlierDetector(density, contamination=0.03).fit_predict(rows)[-1] == -1
    detector = DensityOutlierDetector(density, contamination=0.03, largest_group=None).fit(rows)
    assert np.argmin(detector.training_scores_) == len(X)
    assert detector.labels_[-1] == -1
    np.testing.assert_array_equal(detector.score_samples(NEW), detector.density_.score_samples(NEW))
    np.testing.assert_allclose(detector.training_scores_, detector.density_.held_out_score_samples(), rtol=1e-9)
    again = saved_and_loaded(detector, tmp_path)
    np.testing.assert_array_equal(again.p_values(NEW), detector.p_values(NEW))


def test_mean_shift_takes_rows_up_to_modes(density, fitted, tmp_path):
    shift = ParzenMeanShift(density, step_tol=1e-8, max_iter=20_000).fit(X)
    assert shift.converged_
    heights = shift.mode_log_densities_
    np.testing.assert_allclose(fitted.score_samples(shift.cluster_centers_), heights, rtol=1e-9)
    assert np.all(np.diff(heights) <= 0)
    assert np.all(heights[shift.labels_] >= fitted.score_samples(X) - 1e-9)
    for mode in shift.cluster_centers_:
        gradient = approx_fprime(mode, lambda z: fitted.score_samples(z[None])[0], 1e-7)
        np.testing.assert_allclose(gradient, 0, atol=1e-4)
    for label in np.unique(shift.labels_):
        assert len(set(y[shift.labels_ == label])) == 1  # no mode is shared by the two groups
    again = saved_and_loaded(shift, tmp_path)
    np.testing.assert_array_equal(again.predict(NEW), shift.predict(NEW))


def test_a_model_file_brings_back_every_bit(fitted, tmp_path):
    again = saved_and_loaded(fitted, tmp_path)
    for ask in (
        lambda one: one.score_samples(NEW),
        lambda one: one.score_samples(None),
        lambda one: one.sample(7, random_state=0),
        lambda one: one.marginal([2, 0]).score_samples(NEW[:, :2]),
        lambda one: one.conditional({1: 0.5}).score_samples(NEW[:, :2]),
        lambda one: one.score_samples(np.where(np.arange(3) == 1, np.nan, NEW)),
    ):
        np.testing.assert_array_equal(ask(again), ask(fitted))


@pytest.mark.slow
def test_compare_and_report_take_the_density(density):
    """Held-out log-likelihoods are in the units of the data: rows twice as large have a density 2^3 times as small."""
    options = {"densities": {"mine": density}, "metrics": [], "n_splits": 2, "n_repeats": 1}
    result, doubled = vicinal.compare(X, **options), vicinal.compare(2 * X, **options)
    mine, larger = ({one.name: one for one in found.densities}["mine"] for found in (result, doubled))
    assert mine.failure is None
    np.testing.assert_allclose(
        larger.scores["log_likelihood"], mine.scores["log_likelihood"] - 3 * np.log(2), rtol=1e-6
    )
    report = vicinal.report(X, comparison=result, title="matrix")
    assert "mine" in report.html()
    assert report.summary["outliers"]["n"] == len(X)
