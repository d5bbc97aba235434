"""Test DensityOutlierDetector: scores and p-values computed directly, thresholds, false discovery rates, and any density."""

import numpy as np
import pandas as pd
import pytest
from estimator_checks import check_conventions
from scipy.special import logsumexp
from scipy.stats import ks_2samp
from scipy.stats import multivariate_normal as norm
from sklearn.base import clone
from sklearn.covariance import EllipticEnvelope
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.metrics import roc_auc_score
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import KFold, PredefinedSplit
from sklearn.neighbors import KernelDensity
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from vicinal import (
    LCA,
    DensityImputer,
    DensityOutlierDetector,
    LCAGauss,
    LocalLCA,
    ManifoldParzen,
    ParzenWindows,
    Selection,
    io,
)
from vicinal._detect.steps import Steps
from vicinal._detect.training_rows import rank_by_known
from vicinal.results import TrainingRowsWarning

AS_NEW = (
    "fit_predict judges the training rows leave-one-out, predict treats the same rows as new ones that "
    "happen to lie on training rows: they differ on purpose"
)
REPETITION = "a weighted row is left out as a whole, a repeated one is explained by its twin"
EXPECTED_FAILURES = {
    "check_outliers_fit_predict": AS_NEW,
    "check_outliers_train": AS_NEW,
}


@parametrize_with_checks([DensityOutlierDetector()], expected_failed_checks=lambda estimator: EXPECTED_FAILURES)
@pytest.mark.filterwarnings("ignore:.*exact twin.*:UserWarning", "ignore::vicinal.results.TrainingRowsWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator", [DensityOutlierDetector(ParzenWindows(0.5)), DensityOutlierDetector(KernelDensity())], ids=str
)
@pytest.mark.filterwarnings("ignore:.*exact twin.*:UserWarning", "ignore::vicinal.results.TrainingRowsWarning")
def test_scikit_learn_checks_of_other_settings(estimator):
    repetition = {"check_sample_weight_equivalence_on_dense_data": REPETITION}
    check_conventions(
        estimator, EXPECTED_FAILURES | (repetition if isinstance(estimator.density, KernelDensity) else {})
    )


@pytest.fixture
def masked():
    """200 rows in a cluster and 10 isolated ones: with a small bandwidth every row explains itself best."""
    rng = np.random.default_rng(0)
    outliers = 20.0 * rng.normal(size=(10, 2))
    X = np.vstack([rng.normal(size=(200, 2)), outliers + 15.0 * np.sign(outliers)])
    return X, np.repeat([0, 1], [200, 10])


@pytest.mark.parametrize(
    ("density", "in_sample_auc"),
    [(ParzenWindows(0.002), 0.6), (ManifoldParzen(0, 5, 4e-6), 0.6), (ManifoldParzen(1, 5, 0.05), 1.0)],
)
def test_self_masking_is_undone(masked, density, in_sample_auc):
    X, is_outlier = masked
    in_sample = density.fit(X).score_samples(X)
    assert roc_auc_score(is_outlier, -in_sample.round(6)) <= in_sample_auc
    detector = DensityOutlierDetector(density, contamination=10 / 210).fit(X)
    assert roc_auc_score(is_outlier, -detector.training_scores_) > 0.999
    labels = detector.fit_predict(X)
    assert set(np.flatnonzero(labels == -1)) == set(np.flatnonzero(is_outlier))
    assert detector.training_p_values_[is_outlier == 1].max() <= 10 / 210


def test_training_scores_leave_rows_out():
    X = np.random.default_rng(1).normal(size=(40, 3))
    for density in (ParzenWindows(0.5), ManifoldParzen(2, 5, 0.1)):
        detector = DensityOutlierDetector(density, largest_group=None).fit(X)
        expected = [clone(density).fit(np.delete(X, i, 0)).score_samples(X[i : i + 1])[0] for i in range(40)]
        np.testing.assert_allclose(detector.training_scores_, expected, rtol=1e-9)
        np.testing.assert_allclose(detector.score_samples(X), density.fit(X).score_samples(X), rtol=1e-12)


@pytest.mark.parametrize(
    "density",
    [
        KernelDensity(bandwidth=0.5),
        GaussianMixture(2, random_state=0),
        make_pipeline(PCA(1), ParzenWindows(0.3)),
    ],
)
def test_other_densities_are_scored_by_folds(density):
    X = np.random.default_rng(2).normal(size=(60, 2))
    detector = DensityOutlierDetector(density, cv=4, largest_group=None).fit(X)
    expected = np.empty(60)
    for train, test in KFold(4, shuffle=True, random_state=0).split(X):
        expected[test] = clone(density).fit(X[train]).score_samples(X[test])
    np.testing.assert_allclose(detector.training_scores_, expected)
    with pytest.raises(ValueError, match="cv left 30 of 60 training rows without a score"):
        DensityOutlierDetector(density, cv=PredefinedSplit(np.repeat([-1, 0], 30))).fit(X)


def test_p_values_by_hand():
    X = np.array([[0.0], [0.1], [0.3], [5.0]])
    detector = DensityOutlierDetector(ParzenWindows(1.0)).fit(X)
    s = detector.training_scores_
    assert detector.training_p_values_[3] == 0.25
    np.testing.assert_allclose(detector.training_p_values_, [np.mean(s <= value) for value in s])
    queries = np.array([[0.1], [100.0], [4.0]])
    scores = detector.score_samples(queries)
    np.testing.assert_allclose(detector.p_values(queries), [(1 + np.sum(s <= value)) / 5 for value in scores])
    assert detector.p_values([[100.0]]) == [0.2]


def test_p_values_of_clean_rows_are_uniform():
    rng = np.random.default_rng(3)
    detector = DensityOutlierDetector(ParzenWindows(0.4)).fit(rng.normal(size=(800, 2)))
    # Both samples are random: their p-values are compared with each other, not with the uniform law.
    assert ks_2samp(detector.p_values(rng.normal(size=(800, 2))), detector.training_p_values_).pvalue > 0.01


def test_rows_are_flagged_at_the_level_of_their_p_values():
    """The default was the fence of a box plot, which flagged 10 to 15 % of ordinary rows."""
    rng = np.random.default_rng(4)
    X, new = rng.normal(size=(300, 2)), rng.normal(size=(2000, 2))
    for level, detector in ((0.01, DensityOutlierDetector()), (0.1, DensityOutlierDetector(contamination=0.1))):
        labels = detector.fit_predict(X)
        assert np.sum(labels == -1) == round(level * 300)
        np.testing.assert_array_equal(labels == -1, detector.training_p_values_ <= level + 1e-12)
        np.testing.assert_array_equal(detector.predict(new) == -1, detector.p_values(new) <= level)
        np.testing.assert_allclose(detector.decision_function(new), detector.score_samples(new) - detector.offset_)
        assert np.mean(detector.predict(new) == -1) < 2 * level


def test_log_normal_rows_are_flagged_at_the_level():
    """11 to 15 % of log-normal rows were outliers by the fence of a box plot."""
    rng = np.random.default_rng(0)
    detector = DensityOutlierDetector().fit(np.exp(rng.normal(size=(500, 2))))
    assert np.sum(detector.labels_ == -1) == 5
    assert np.mean(detector.predict(np.exp(rng.normal(size=(1000, 2)))) == -1) < 0.03


def test_few_rows_have_no_p_value_below_the_level():
    X = np.random.default_rng(5).normal(size=(40, 2))
    detector = DensityOutlierDetector().fit(X)
    assert (detector.labels_ == 1).all()
    # A new row that is more unusual than every training row is an outlier: its p-value is the smallest possible one.
    assert detector.predict([[9.0, 9.0], [0.0, 0.0]]).tolist() == [-1, 1]
    assert detector.p_values([[9.0, 9.0]])[0] == 1 / 41


@pytest.mark.parametrize("density", [ParzenWindows(0.5), LCA(reg=0.1), ManifoldParzen(1, 8, 0.1)])
def test_p_values_follow_scores(density):
    """They did not: training rows were ranked by other scores than those in the output, and rows with gaps by others still."""
    rng = np.random.default_rng(6)
    X, new = rng.normal(size=(150, 3)), 2.0 * rng.normal(size=(150, 3))
    new[rng.random(new.shape) < 0.1] = np.nan
    table = DensityOutlierDetector(density, contamination=0.05).fit(X).scored_table(np.vstack([X, new]), explain=False)
    table = table.sort_values(["score", "p_value"])
    assert (np.diff(table["p_value"]) >= 0).all()
    assert (np.diff(table["outlier"]) <= 0).all()


def test_bounded_kernels_with_density_zero():
    X = np.vstack([np.random.default_rng(5).normal(size=(50, 1)), [[40.0], [80.0]]])
    detector = DensityOutlierDetector(KernelDensity(kernel="tophat", bandwidth=1.0), contamination=0.02)
    labels = detector.fit_predict(X)
    assert labels[-2:].tolist() == [-1, -1]
    assert np.isfinite(detector.offset_)
    assert detector.predict([[1000.0], [0.0]]).tolist() == [-1, 1]
    with pytest.raises(ValueError, match="every training row has density 0"):
        DensityOutlierDetector(KernelDensity(kernel="tophat", bandwidth=1e-9)).fit(X)


def test_follows_a_curve_where_an_ellipse_cannot():
    """The middle of a ring has a low density, but lies inside an elliptic envelope."""
    rng = np.random.default_rng(6)
    angle = rng.uniform(0, 2 * np.pi, size=300)
    ring = np.column_stack([np.cos(angle), np.sin(angle)]) + 0.03 * rng.normal(size=(300, 2))
    detector = DensityOutlierDetector(ManifoldParzen(1, 10)).fit(ring)
    assert detector.predict([[0.0, 0.0]]) == [-1]
    assert detector.p_values([[0.0, 0.0]]) == [1 / 301]
    assert EllipticEnvelope(random_state=0).fit(ring).predict([[0.0, 0.0]]) == [1]


def test_names_and_weights():
    rng = np.random.default_rng(7)
    frame = pd.DataFrame(rng.normal(size=(50, 2)), columns=["a", "b"])
    detector = DensityOutlierDetector(ManifoldParzen(1, 5, 0.1, metric=StandardScaler().fit(frame))).fit(frame)
    assert detector.feature_names_in_.tolist() == ["a", "b"]
    assert detector.predict(frame[:40]).shape == (40,)
    weight = np.arange(50) % 3
    weighted = DensityOutlierDetector(ParzenWindows(0.5), largest_group=None).fit(frame, sample_weight=weight)
    expected = ParzenWindows(0.5).fit(frame, sample_weight=weight).score_samples(None)
    np.testing.assert_allclose(weighted.training_scores_, expected)
    # A row of weight 0 counts nowhere.
    kept = weight > 0
    without = DensityOutlierDetector(ParzenWindows(0.5), largest_group=None).fit(
        frame[kept], sample_weight=weight[kept]
    )
    assert weighted.offset_ == pytest.approx(without.offset_)
    np.testing.assert_allclose(weighted.training_p_values_[kept], without.training_p_values_)
    folds = DensityOutlierDetector(KernelDensity(bandwidth=0.5)).fit(frame, sample_weight=1.0 + weight)
    assert np.all(np.isfinite(folds.training_scores_))
    with pytest.raises(ValueError, match="GaussianMixture does not"):
        DensityOutlierDetector(GaussianMixture()).fit(frame, sample_weight=weight)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"contamination": 0.0}, ValueError, "contamination must be a finite number greater than 0"),
        ({"contamination": 0.6}, ValueError, "at most 0.5"),
        ({"contamination": "auto"}, TypeError, "contamination must be a number"),
        ({"contamination": None}, TypeError, "contamination must be a number"),
        ({"largest_group": 0.5}, ValueError, "largest_group must be less than 0.5, got 0.5"),
        ({"largest_group": "large"}, ValueError, "largest_group must be one of"),
        ({"fdr": 1.0}, ValueError, "fdr must be less than 1, got 1.0"),
        ({"fdr": -0.1}, ValueError, "fdr must be a finite number greater than 0"),
        ({"density": ParzenWindows}, TypeError, "got the class ParzenWindows"),
        ({"density": StandardScaler()}, TypeError, "fit and score_samples, got StandardScaler"),
        ({"density": ManifoldParzen(1, 40, 0.1)}, ValueError, "n_neighbors=40 needs at least 41"),
        ({"density": ManifoldParzen(1, 29, 0.1)}, ValueError, "needs at least 31 training rows when a row"),
    ],
)
def test_bad_parameters(options, error, match):
    with pytest.raises(error, match=match):
        DensityOutlierDetector(**options).fit(np.random.default_rng(0).normal(size=(30, 2)))
    detector = DensityOutlierDetector(ParzenWindows(1.0)).fit(np.random.default_rng(0).normal(size=(30, 2)))
    with pytest.raises(ValueError, match="expecting 2 features"):
        detector.predict(np.zeros((3, 3)))


def test_cv_may_be_a_list_of_folds():
    X = np.random.default_rng(0).normal(size=(31, 2))
    folds = list(KFold(2).split(X))  # of 16 and 15 rows
    given = DensityOutlierDetector(GaussianMixture(random_state=0), cv=folds).fit(X)
    expected = DensityOutlierDetector(GaussianMixture(random_state=0), cv=KFold(2)).fit(X)
    np.testing.assert_allclose(given.training_scores_, expected.training_scores_)


def assert_same_answers(one, other, new):
    """Compare all results of two fitted detectors for their training rows and for new rows."""
    np.testing.assert_allclose(one.training_scores_, other.training_scores_, rtol=1e-12)
    np.testing.assert_allclose(one.training_p_values_, other.training_p_values_, rtol=1e-12)
    assert one.offset_ == pytest.approx(other.offset_, rel=1e-12)
    np.testing.assert_allclose(one.score_samples(new), other.score_samples(new), rtol=1e-12)
    np.testing.assert_allclose(one.p_values(new), other.p_values(new), rtol=1e-12)
    np.testing.assert_array_equal(one.predict(new), other.predict(new))


@pytest.mark.parametrize("contamination", [0.01, 0.1])
@pytest.mark.parametrize(
    "density",
    [
        ParzenWindows(),
        LCA(reg=0.0),
        LCAGauss(reg=0.0, reg_gauss=0.0),
        LocalLCA(1, 5, 0, shared=1, center="mean", reg=0.0),
        ManifoldParzen(1, 5, 0.1),
        ManifoldParzen(0, 5, 0.1),
        ManifoldParzen(selection=Selection(n_components=[1], n_neighbors=[5], noise=[0.1])),
    ],
    ids=lambda density: type(density).__name__,
)
def test_from_density_answers_as_a_detector_fitted_to_the_rows(density, contamination):
    rng = np.random.default_rng(8)
    X = pd.DataFrame(np.vstack([rng.normal(size=(60, 3)), [[6.0, 6.0, -6.0]]]), columns=["a", "b", "c"])
    new = pd.DataFrame(2.0 * rng.normal(size=(20, 3)), columns=["a", "b", "c"])
    fitted = clone(density).fit(X)
    expected = DensityOutlierDetector(density, contamination=contamination).fit(X)
    detector = DensityOutlierDetector.from_density(fitted, contamination=contamination)
    assert_same_answers(detector, expected, new)
    assert detector.density_ is fitted
    assert detector.n_features_in_ == 3
    assert detector.feature_names_in_.tolist() == ["a", "b", "c"]
    assert detector.get_params()["contamination"] == contamination


@pytest.mark.parametrize("density", [ParzenWindows(0.5), ManifoldParzen(1, 5, 0.1)], ids=lambda d: type(d).__name__)
def test_from_density_counts_rows_with_the_weights_of_the_density(density):
    rng = np.random.default_rng(9)
    X, weight = rng.normal(size=(50, 2)), rng.uniform(0.1, 3.0, size=50)
    weight[::10] = 0.0
    detector = DensityOutlierDetector.from_density(clone(density).fit(X, sample_weight=weight), contamination=0.2)
    expected = DensityOutlierDetector(density, contamination=0.2).fit(X, sample_weight=weight)
    assert_same_answers(detector, expected, rng.normal(size=(20, 2)))
    unweighted = DensityOutlierDetector(density, contamination=0.2).fit(X)
    assert np.abs(detector.training_p_values_ - unweighted.training_p_values_).max() > 0.02


def test_from_density_of_a_pipeline_keeps_the_steps_before_the_density():
    rng = np.random.default_rng(10)
    X = pd.DataFrame(rng.normal(size=(50, 2)) * [100.0, 0.01], columns=["a", "b"])
    pipeline = make_pipeline(StandardScaler(), ParzenWindows(0.4)).fit(X)
    Z = pipeline[0].transform(X)
    detector = DensityOutlierDetector.from_density(pipeline)
    expected = DensityOutlierDetector(ParzenWindows(0.4)).fit(Z)
    np.testing.assert_allclose(detector.training_scores_, expected.training_scores_)
    np.testing.assert_allclose(detector.p_values(X), expected.p_values(Z))
    assert detector.feature_names_in_.tolist() == ["a", "b"]


def test_from_density_can_be_cloned_and_saved(tmp_path):
    rng = np.random.default_rng(11)
    X, new = rng.normal(size=(50, 2)), 2.0 * rng.normal(size=(20, 2))
    detector = DensityOutlierDetector.from_density(
        make_pipeline(StandardScaler(), LCA(reg=0.0)).fit(X), contamination=0.1
    )
    fresh = clone(detector)
    with pytest.raises(NotFittedError):
        fresh.predict(new)
    with pytest.raises(NotFittedError):  # the parameter is unfitted, as in every meta-estimator
        fresh.density.score_samples(new)
    assert_same_answers(fresh.fit(X), detector, new)
    io.save(detector, tmp_path / "detector.vicinal")
    assert_same_answers(io.load(tmp_path / "detector.vicinal"), detector, new)


@pytest.mark.parametrize("density", [KernelDensity(), make_pipeline(StandardScaler(), GaussianMixture())])
def test_from_density_needs_training_rows_that_can_be_left_out(density):
    X = np.random.default_rng(12).normal(size=(30, 2))
    last = "KernelDensity" if isinstance(density, KernelDensity) else "GaussianMixture"
    with pytest.raises(TypeError, match=rf"score its training rows leave-one-out .*got {last}\. Fit the detector"):
        DensityOutlierDetector.from_density(density.fit(X))


def test_from_density_refuses_what_is_no_fitted_density(tmp_path):
    X = np.random.default_rng(13).normal(size=(30, 2))
    with pytest.raises(NotFittedError):
        DensityOutlierDetector.from_density(ParzenWindows())
    with pytest.raises(TypeError, match="fit and score_samples, got StandardScaler"):
        DensityOutlierDetector.from_density(StandardScaler().fit(X))
    with pytest.raises(ValueError, match=r"at most 0\.5"):
        DensityOutlierDetector.from_density(ParzenWindows().fit(X), contamination=0.7)
    io.save(LCA(reg=0.0).fit(X), tmp_path / "thin.vicinal", training_rows=False)
    with pytest.raises(NotFittedError, match="saved without its training rows"):
        DensityOutlierDetector.from_density(io.load(tmp_path / "thin.vicinal"))


def test_a_frozen_density_is_sent_to_from_density():
    """Fitted to its own training rows, a frozen density would score each of them with its own kernel."""
    X = np.random.default_rng(14).normal(size=(30, 2))
    for density in (ParzenWindows(0.002), ManifoldParzen(1, 5, 0.1)):
        with pytest.raises(TypeError, match=r"density is frozen.*from_density"):
            DensityOutlierDetector(FrozenEstimator(density.fit(X))).fit(X)


def test_p_values_from_scores_are_those_of_the_rows():
    rng = np.random.default_rng(15)
    X, weight, new = rng.normal(size=(50, 2)), rng.uniform(size=50), 2.0 * rng.normal(size=(20, 2))
    detector = DensityOutlierDetector(ParzenWindows(0.5)).fit(X, sample_weight=weight)
    np.testing.assert_array_equal(detector.p_values_from_scores(detector.score_samples(new)), detector.p_values(new))


def test_predict_warns_of_the_training_table_alone():
    """``fit(X).predict(X)`` found none where ``fit_predict(X)`` found seven."""
    rng = np.random.default_rng(16)
    X = np.vstack([rng.normal(size=(100, 2)), 10.0 * np.arange(1, 8)[:, None] * [1.0, -1.0]])
    detector = DensityOutlierDetector(ParzenWindows(0.1), contamination=0.07)
    assert np.flatnonzero(detector.fit_predict(X) == -1).tolist() == list(range(100, 107))
    for table in (X, np.asfortranarray(X), X.tolist()):
        with pytest.warns(TrainingRowsWarning, match=r"use fit_predict\(X\) or labels_"):
            detector.predict(table)
    for table in (X[::-1], X[:-1], np.nextafter(X, 1e9), np.vstack([X, X])):
        detector.predict(table)  # warnings are errors here
    detector.p_values(X)
    detector.decision_function(X)
    with pytest.warns(TrainingRowsWarning):
        DensityOutlierDetector.from_density(ParzenWindows(0.1).fit(X)).predict(X)
    frame = pd.DataFrame(X, columns=["a", "b"])
    with pytest.warns(TrainingRowsWarning):
        DensityOutlierDetector(GaussianMixture(random_state=0)).fit(frame).predict(frame)


@pytest.mark.parametrize("kind", ["normal", "heavy tails", "clusters"])
def test_p_values_of_clean_rows_are_no_smaller_than_they_may_be(kind):
    """P(p <= a) <= a + 2 SE, for new rows and for training rows."""
    rng = np.random.default_rng(17)
    draws = {
        "normal": lambda m: rng.normal(size=(m, 3)),
        "heavy tails": lambda m: rng.standard_t(3, size=(m, 2)),
        "clusters": lambda m: rng.normal(size=(m, 3)) + 4.0 * np.eye(4, 3)[rng.integers(0, 4, size=m)],
    }
    found: dict[str, list] = {"new": [], "training": []}
    levels = np.array([0.01, 0.05, 0.1])
    for _ in range(25):
        detector = DensityOutlierDetector().fit(draws[kind](150))
        for name, p in (("new", detector.p_values(draws[kind](150))), ("training", detector.training_p_values_)):
            found[name].append((p[:, None] <= levels + 1e-12).mean(axis=0))
    for shares in map(np.array, found.values()):
        error = np.maximum(shares.std(axis=0), np.sqrt(levels * (1 - levels) / 150)) / np.sqrt(len(shares))
        assert np.all(shares.mean(axis=0) <= levels + 2 * error)


@pytest.mark.usefixtures("short_search")
@pytest.mark.parametrize("d", [3, pytest.param(12, marks=pytest.mark.slow)])
def test_p_values_under_lca_are_no_smaller_than_they_may_be(d):
    """The kernel's covariance had seen the training rows: at 100 x 20, 15 % of new rows had a p-value of at most 5 %."""
    rng = np.random.default_rng(19)
    levels, found = np.array([0.01, 0.05, 0.1]), []
    for _ in range(24 if d > 3 else 4):
        p = DensityOutlierDetector(LCA()).fit(rng.normal(size=(100, d))).p_values(rng.normal(size=(600, d)))
        found.append((p[:, None] <= levels + 1e-12).mean(axis=0))
    # The training rows of a repeat are common to its new rows: 100 of them tell a share a to sqrt(a (1 - a) / 100).
    error = np.sqrt(levels * (1 - levels) * (1 / 100 + 1 / 600) / len(found))
    assert np.all(np.mean(found, axis=0) <= levels + 2 * error)


def test_fdr_judges_new_rows_together_by_benjamini_and_hochberg():
    rng = np.random.default_rng(18)
    X = rng.normal(size=(400, 2))
    detector = DensityOutlierDetector(fdr=0.1).fit(X)
    usual, strange = rng.normal(size=(150, 2)), rng.normal(size=(30, 2)) + 7.0
    new = np.vstack([usual, strange])
    flagged = detector.predict(new) == -1
    p = np.sort(detector.p_values(new))
    below = np.flatnonzero(p <= 0.1 * np.arange(1, 181) / 180)  # the step-up rule, literally
    assert flagged.sum() == below[-1] + 1
    assert flagged[150:].all()
    # One strange row among many usual ones: its p-value cannot be small enough.
    assert (detector.predict(np.vstack([usual, strange[:1]])) == 1).all()
    np.testing.assert_array_equal(detector.labels_, DensityOutlierDetector().fit(X).labels_)


def test_a_new_value_in_a_constant_column_is_an_outlier():
    rng = np.random.default_rng(19)
    X = np.column_stack([rng.normal(size=(99, 2)), np.full(99, 0.1)])
    for detector in (
        DensityOutlierDetector(ParzenWindows(1.0)).fit(X),
        DensityOutlierDetector(ParzenWindows(1.0), largest_group=None, contamination=0.5).fit(X),
        DensityOutlierDetector.from_density(ParzenWindows(1.0).fit(X)),
        DensityOutlierDetector.from_density(make_pipeline(StandardScaler(), ParzenWindows(1.0)).fit(X)),
    ):
        new = np.array([[0.0, 0.0, 0.1], [0.0, 0.0, 0.1001]])  # a wide kernel hardly sees the difference
        assert detector.p_values(new)[1] == 0.01
        assert detector.p_values(new)[0] > 0.4
        assert detector.predict(new)[1] == -1
        assert detector.decision_function(new)[1] < 0
        found = detector.explain(new)
        assert found.reasons(1)[0] == "x2: expected 0.1 as in all training rows, got 0.1001"
        assert found.shares[1, 2] == 0.01
        assert found.shares[0, 2] == 1.0
        assert detector.explain(None).constants.tolist() == [False, False, True]


def test_rows_with_gaps_are_ranked_by_the_columns_that_they_have():
    """They were ranked by densities of fewer columns among densities of all: with two gaps in four, every p-value was 1."""
    rng = np.random.default_rng(20)
    mixing = rng.normal(size=(4, 4))
    X, new = rng.normal(size=(120, 4)) @ mixing, rng.normal(size=(400, 4)) @ mixing
    new = np.where(rng.random(new.shape) < 0.3, np.nan, new)
    new[0], new[1] = np.nan, [50.0, np.nan, np.nan, np.nan]
    detector = DensityOutlierDetector(ParzenWindows(0.7)).fit(X)
    found = detector.scored_table(new, explain=False)
    known = np.isnan(new[1]).argmin()
    alone = ParzenWindows(0.7).fit(X[:, [known]])
    np.testing.assert_allclose(found["log_density"][1], alone.score_samples(new[1:2, [known]])[0])
    assert found["p_value"][1] == 1 / 121  # nothing in the training rows is so strange
    assert found["outlier"][:2].tolist() == [0, 1]
    assert found["p_value"][0] == 1.0
    for gaps in range(4):
        p = found["p_value"][2:][np.isnan(new[2:]).sum(axis=1) == gaps]
        assert 0.3 < np.median(p) < 0.7


DENSITIES_OF_GAPS = [
    LocalLCA(3, 10, 0.02, shared=0.3, center="mean", reg=0.1),
    LCAGauss(reg=0.1, reg_gauss=0.0),
    ManifoldParzen(3, 10, 0.05),
    ManifoldParzen(3, 10, 0.05, vicinity="kernel", bandwidth=1.0),
    LCA(reg=0.1),
]


@pytest.mark.parametrize("density", DENSITIES_OF_GAPS, ids=lambda density: f"{type(density).__name__}")
def test_p_values_of_rows_with_gaps_are_uniform(density):
    """Centres were scored instead of training rows that are held out: every row had a p-value below 5 % under LCAGauss."""
    rng, mixing = np.random.default_rng(3), np.random.default_rng(9).normal(size=(6, 6))
    X, new = rng.normal(size=(150, 6)) @ mixing, rng.normal(size=(600, 6)) @ mixing
    new[:, [1, 4]] = np.nan
    detector = DensityOutlierDetector.from_density(clone(density).fit(X))
    p = detector.p_values(new)
    assert np.mean(p <= 0.1) < 0.15
    assert 0.43 < p.mean() < 0.57


@pytest.mark.parametrize("density", DENSITIES_OF_GAPS[:5], ids=lambda density: f"{type(density).__name__}")
def test_training_rows_are_held_out_by_some_columns_as_by_all(density):
    X = np.random.default_rng(4).normal(size=(60, 6)) @ np.random.default_rng(9).normal(size=(6, 6))
    weight = np.random.default_rng(5).uniform(0.5, 2.0, size=60)
    density = clone(density).fit(X, sample_weight=weight)
    scores, by_two = np.empty(60), np.empty(60)
    for part in density._held_out_rows(np.arange(60)):
        everyone = np.arange(len(part.positions))
        scores[part.positions] = part.scores(X[part.positions], everyone, np.arange(6))
        by_two[part.positions] = part.scores(X[part.positions], everyone, np.array([0, 3]))
        if part.left_out is None:  # the density without the fold, integrated by its own marginal
            marginal = part.mixture.marginal([0, 3]).score_samples(X[np.ix_(part.positions, [0, 3])])
            np.testing.assert_allclose(by_two[part.positions], marginal, rtol=1e-9)
    known = getattr(density, "held_out_score_samples", density.score_samples)()
    if isinstance(density, LCAGauss):  # all columns together: the Gaussian part keeps the row
        others = np.log(1 - weight / weight.sum())
        mixture = density.mixture_
        pairs = np.array([norm(c, mixture.covariance).logpdf(X) for c in mixture.centres]).T + mixture.log_weights
        np.fill_diagonal(pairs, -np.inf)
        known = logsumexp(pairs, axis=1) - others
    np.testing.assert_allclose(scores, known, rtol=1e-7)


def test_rows_with_gaps_are_compared_with_training_rows_that_have_their_columns():
    """Values that the fit has filled in are denser than others, and made the p-values of new rows too small."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(90, 3)) @ rng.normal(size=(3, 3))
    X[:40, 1] = np.nan
    X[60:80, 2] = np.nan
    weight = rng.uniform(0.5, 2.0, size=90)
    density = LCA(reg=0.1).fit(X, sample_weight=weight)
    detector = DensityOutlierDetector.from_density(density)
    new = np.array([[3.0, 1.0, np.nan], [np.nan, np.nan, 1.0], [0.0, -1.0, np.nan]])
    found = rank_by_known(Steps(density), detector._known_training_rows(Steps(density)), new)
    own = np.array([65, 70])
    of_training = rank_by_known(Steps(density), X, X[own], own)
    mixture = density.mixture_
    for columns, some in (([0, 1], [0, 2]), ([2], [1])):
        compared = np.flatnonzero(~np.isnan(X[:, columns]).any(axis=1))
        kernel = norm(np.zeros(len(columns)), mixture.covariance[np.ix_(columns, columns)])
        scores = np.empty(len(compared))
        for at, i in enumerate(compared):
            pairs = kernel.logpdf(X[i, columns] - mixture.centres[:, columns]) + np.log(weight)
            pairs[i] = -np.inf
            scores[at] = logsumexp(pairs) - np.log(weight.sum() - weight[i])
        shares = weight[compared] / weight[compared].mean()
        for row in some:
            score = density.marginal(columns).score_samples(new[row : row + 1, columns])[0]
            expected = (1 + shares[scores <= score].sum()) / (len(compared) + 1)
            assert found.p_values[row] == pytest.approx(expected, rel=1e-9)
        if columns == [0, 1]:
            mine = np.searchsorted(compared, own)
            np.testing.assert_allclose(of_training.log_densities, scores[mine], rtol=1e-9)
            expected = [shares[scores <= scores[m]].sum() / len(compared) for m in mine]
            np.testing.assert_allclose(of_training.p_values, expected, rtol=1e-9)


def test_no_row_is_an_outlier_among_a_few_rows_with_its_columns():
    rng = np.random.default_rng(7)
    X = rng.normal(size=(60, 2))
    X[:45, 1] = np.nan
    detector = DensityOutlierDetector.from_density(ParzenWindows(0.5).fit(X))
    new = np.array([[np.nan, 9.0], [9.0, np.nan]])
    assert detector.p_values(new)[0] == 1.0
    assert detector.predict(new).tolist() == [1, -1]


@pytest.mark.parametrize(
    "density",
    [
        ParzenWindows(0.5),
        LCA(reg=0.1),
        make_pipeline(StandardScaler(), ParzenWindows(0.5)),
        make_pipeline(DensityImputer(), ParzenWindows(0.5)),
        make_pipeline(SimpleImputer(), StandardScaler(), ParzenWindows(0.5)),
    ],
)
def test_a_detector_is_fitted_to_rows_with_gaps_and_scores_them_by_their_known_values(density):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3)) @ rng.normal(size=(3, 3))
    holed = np.where(rng.random(X.shape) < 0.1, np.nan, X)
    detector = DensityOutlierDetector(density).fit(holed)
    assert np.isfinite(detector.training_scores_).all()
    assert detector.predict([[np.nan, 50.0, 0.0], [0.0, np.nan, 0.0]]).tolist() == [-1, 1]
    assert np.isnan(detector.explain(None).values).sum() == np.isnan(holed).sum()


@pytest.mark.parametrize("imputer", [DensityImputer(), SimpleImputer()])
def test_values_that_were_filled_in_are_neither_flagged_nor_explained(imputer):
    """Two clusters, and an independent column: the ten rows with gaps had the ten smallest p-values, and that column was blamed."""
    rng = np.random.default_rng(1)
    side = rng.integers(0, 2, size=300) * 12.0
    X = np.column_stack([side + rng.normal(size=300), side + rng.normal(size=300), rng.normal(size=300)])
    X[:10, :2] = np.nan
    detector = DensityOutlierDetector(make_pipeline(imputer, ParzenWindows()), contamination=0.05).fit(X)
    assert np.median(detector.training_p_values_[:10]) > 0.2
    assert (detector.labels_[:10] == -1).sum() <= 2
    for reasons in detector.explain(rows=range(10)).details:
        assert {reason.column for reason in reasons} <= {2}


@pytest.mark.parametrize("n", [7, 14])
def test_few_rows_of_which_none_is_left_out(n):
    """None of a few rows is among the lowest 5 %, and there was no row to score: "Found array with 0 sample(s)"."""
    rows = np.random.default_rng(0).normal(size=(n, 1))
    detector = DensityOutlierDetector.from_density(LCA(reg=0.1).fit(rows))
    assert np.isfinite(detector.training_scores_).all()


def test_rows_that_differ_in_a_nearly_constant_column_have_valid_p_values():
    """Of 400 rows, each of eight flags is set in one or two: half of the rows, or none, have seen it."""
    shares = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(800, 2))
        flags = (rng.permuted(np.tile(np.arange(800)[:, None], 24), axis=0) < 1).astype(
            float
        )  # each is set in one row of 800
        X = np.column_stack([X, flags])
        detector = DensityOutlierDetector(ParzenWindows(0.5)).fit(X[:400])
        shares.append((detector.p_values(X[400:]) <= 0.02).mean())
    assert np.mean(shares) < 0.02 + 3 * np.std(shares) / np.sqrt(40)


def test_a_new_row_that_differs_is_ranked_among_training_rows_that_differ_alone():
    """Constants are no columns of LCA, whose density alone does not separate such rows from others."""
    X = np.column_stack([np.random.default_rng(0).normal(size=(100, 2)), np.zeros((100, 3))])
    new = np.array([[0.0, 0.0, 0.0, 0.0, 9.0]])  # the last column is constant in all training rows
    for m in (0, 1, 2):
        X[:, 2:] = 0.0
        X[np.arange(m) * 7, 2 + np.arange(m)] = 1.0  # each in a column of its own
        for weight in (None, np.r_[np.ones(100), 0.0]):
            rows = X if weight is None else np.vstack([X, [[0.0, 0.0, 5.0, 5.0, 0.0]]])
            detector = DensityOutlierDetector(ParzenWindows(0.5), largest_group=None, contamination=0.025)
            detector.fit(rows, sample_weight=weight)
            usual = detector.density_.held_out_score_samples()[: len(X)][~np.isin(np.arange(100), np.arange(m) * 7)]
            differing = np.minimum(detector.density_.held_out_score_samples()[np.arange(m) * 7], usual.min() - 1.0)
            own = min(detector.density_.score_samples(new)[0], usual.min() - 1.0)
            n = len(rows)
            share = n / 100  # weights are scaled to mean one
            assert detector.p_values(new)[0] == pytest.approx((1 + share * np.sum(differing <= own)) / (n + 1))
            if weight is None:
                np.testing.assert_allclose(np.sort(detector._sorted_scores)[:m], np.sort(differing))


def test_the_only_differing_row_of_a_column_scores_below_all_others():
    X = np.column_stack([np.random.default_rng(0).normal(size=(100, 2)), np.zeros(100)])
    for place, value in (
        (4, 1e-3),
        (0, 1e-3),
        (0, -1e-3),
        (1, -1e-3),
    ):  # in the middle of the others, of which some come first
        rows = X.copy()
        rows[place] = [0.0, 0.0, value]
        detector = DensityOutlierDetector(ParzenWindows(0.5), largest_group=None).fit(rows)
        assert detector._sorted_scores[0] == pytest.approx(detector._sorted_scores[1] - 1.0)
        assert detector.p_values([[0.0, 0.0, value]])[0] > 0.5  # the column varies: its values are no constants
    rows[1] = [9.0, 9.0, 1e-3]  # the least dense row keeps its score
    detector = DensityOutlierDetector(ParzenWindows(0.5), largest_group=None).fit(rows)
    assert detector._sorted_scores[0] == pytest.approx(detector.density_.held_out_score_samples()[1])
