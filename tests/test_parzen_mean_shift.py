"""Test ParzenMeanShift: literal steps, ascent, and modes that another optimiser finds."""

import warnings

import numpy as np
import pytest
from estimator_checks import check_conventions
from scipy.optimize import approx_fprime, minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture
from sklearn.utils.estimator_checks import parametrize_with_checks

from vicinal import LCA, LocalLCA, ManifoldParzen, ParzenMeanShift, ParzenWindows, Selection, which_engine
from vicinal._detect.mean_shift import seek_modes

NEIGHBORS = "the check repeats rows instead of weighing them, and repeated rows are neighbours of each other"
EXPECTED_FAILURES = {
    type(None): {},
    ManifoldParzen: {"check_sample_weight_equivalence_on_dense_data": NEIGHBORS},
    ParzenWindows: {},
}


@parametrize_with_checks(
    [ParzenMeanShift()], expected_failed_checks=lambda estimator: EXPECTED_FAILURES[type(estimator.density)]
)
@pytest.mark.filterwarnings("ignore:.*exact twin.*:UserWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator", [ParzenMeanShift(ParzenWindows(1.0)), ParzenMeanShift(ManifoldParzen(1, 3, 0.5))], ids=str
)
@pytest.mark.filterwarnings("ignore:.*exact twin.*:UserWarning")
def test_scikit_learn_checks_of_other_settings(estimator):
    check_conventions(estimator, EXPECTED_FAILURES[type(estimator.density)])


@pytest.fixture
def blobs():
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(50, 2)), rng.normal(size=(30, 2)) + np.array([7.0, 0.0])])
    return X, np.repeat([0, 1], [50, 30])


DENSITIES = [
    ParzenWindows(1.0),
    ParzenWindows([0.8, 1.5]),
    ManifoldParzen(1, 8, 0.8),
    ManifoldParzen(2, 8, 0.8),
    ManifoldParzen(0, 5, 1.0),
    LocalLCA(1, 5, 0, shared=1, center="row", reg=0.7),
]


@pytest.mark.parametrize("density", DENSITIES)
def test_clusters_are_the_basins(blobs, density):
    X, y = blobs
    shift = ParzenMeanShift(density).fit(X)
    assert adjusted_rand_score(y, shift.labels_) == 1.0
    assert shift.converged_
    assert np.all(np.diff(shift.mode_log_densities_) <= 0)
    np.testing.assert_array_equal(shift.predict(X), shift.labels_)
    np.testing.assert_array_equal(shift.fit_predict(X), shift.labels_)
    np.testing.assert_allclose(shift.density_.score_samples(shift.cluster_centers_), shift.mode_log_densities_)


@pytest.mark.parametrize("density", DENSITIES)
def test_modes_are_maxima_that_another_optimiser_finds(blobs, density):
    X, _ = blobs
    shift = ParzenMeanShift(density, step_tol=1e-9).fit(X)
    score = shift.density_.score_samples
    for mode in shift.cluster_centers_:
        np.testing.assert_allclose(approx_fprime(mode, lambda x: score(x[None])[0], 1e-6), 0, atol=1e-5)
        found = minimize(lambda x: -score(x[None])[0], mode + 0.1, method="Nelder-Mead", options={"xatol": 1e-7})
        np.testing.assert_allclose(found.x, mode, atol=1e-3)


@pytest.mark.parametrize("density", DENSITIES)
def test_a_step_never_lowers_the_density(blobs, density):
    X, _ = blobs
    fitted = density.fit(X)
    at = X + 0.5
    heights = fitted.score_samples(at)
    for _ in range(15):
        at, _, _ = seek_modes(fitted.mixture_, at, max_iter=1, tol=1e-12)
        new = fitted.score_samples(at)
        assert np.all(new >= heights - 1e-10)
        heights = new


def test_one_step_is_the_literal_formula():
    """(sum p C^-1)^-1 sum p C^-1 c with full matrices; more features than directions takes the other branch."""
    rng = np.random.default_rng(1)
    for D, d in ((2, 2), (12, 1)):
        X = rng.normal(size=(6, D))
        mixture = ManifoldParzen(d, 3, 0.5).fit(X).mixture_
        x = X.mean(axis=0)
        inverses = [
            np.linalg.inv(0.5 * np.eye(D) + (V.T * v) @ V)
            for V, v in zip(mixture.frames.transpose(1, 0, 2), mixture.variances.T, strict=True)
        ]
        p = np.array(
            [np.sqrt(np.linalg.det(P)) * np.exp(-0.5 * (x - c) @ P @ (x - c)) for P, c in zip(inverses, X, strict=True)]
        )
        p /= p.sum()
        A = sum(q * P for q, P in zip(p, inverses, strict=True))
        b = sum(q * P @ c for q, P, c in zip(p, inverses, X, strict=True))
        got, _, _ = seek_modes(mixture, x[None], max_iter=1, tol=1e-12)
        np.testing.assert_allclose(got[0], np.linalg.solve(A, b), rtol=1e-8)


def test_the_learned_shape_separates_what_a_round_kernel_does_not():
    """Two long parallel stripes: LCA's kernel is as long as they are."""
    rng = np.random.default_rng(2)
    X = np.column_stack([rng.uniform(-30, 30, size=200), 0.3 * rng.normal(size=200) + np.repeat([0, 4], 100)])
    y = np.repeat([0, 1], 100)
    lca = LCA(reg=0.0).fit(X)
    wide = lca.covariance_ * 9.0
    learned = ParzenMeanShift(ParzenWindows(wide)).fit(X)
    same_area = np.linalg.det(wide) ** 0.25
    round_kernel = ParzenMeanShift(ParzenWindows(float(same_area))).fit(X)
    assert adjusted_rand_score(y, learned.labels_) > adjusted_rand_score(y, round_kernel.labels_)
    assert ParzenMeanShift(LCA(reg=0.0)).fit(X).labels_.shape == (200,)


def test_weights_move_the_modes(blobs):
    X, _ = blobs
    weight = np.where(X[:, 0] > 3, 10.0, 1.0)
    shift = ParzenMeanShift(ParzenWindows(1.0)).fit(X, sample_weight=weight)
    assert shift.cluster_centers_[0, 0] > 3  # the highest mode is now the other one


def test_cross_validated_density(blobs):
    X, _ = blobs
    shift = ParzenMeanShift(
        ManifoldParzen(selection=Selection(n_components=[1], n_neighbors=[5], noise=[1.0], cv=2))
    ).fit(X)
    assert len(shift.cluster_centers_) == 2


def test_bad_parameters(blobs):
    X, _ = blobs
    with pytest.warns(ConvergenceWarning, match="rows were still moving after max_iter=2"):
        assert not ParzenMeanShift(ParzenWindows(1.0), max_iter=2).fit(X).converged_
    for options, error, match in [
        ({"density": GaussianMixture()}, TypeError, "Gaussian-mixture density of vicinal"),
        ({"merge_distance": 0}, ValueError, "merge_distance must be"),
        ({"max_iter": 0}, ValueError, "max_iter must be at least 1"),
        ({"step_tol": -1.0}, ValueError, "step_tol must be"),
    ]:
        with pytest.raises(error, match=match):
            ParzenMeanShift(**options).fit(X)


@pytest.mark.parametrize("density", [ParzenWindows(1.0), LCA(reg=0.5), ManifoldParzen(1, 5, 1.0)])
def test_a_constant_column_changes_nothing(blobs, density):
    """It used to raise an error of NumPy about shapes."""
    X, _ = blobs
    with_constant = np.insert(X, 1, 7.0, axis=1)
    plain = ParzenMeanShift(density).fit(X)
    if isinstance(density, LCA):
        density = LCA(reg=[0.5, 0.0, 0.5])  # a penalty greater than 0 would keep the column
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        shift = ParzenMeanShift(density).fit(with_constant)
    np.testing.assert_allclose(shift.cluster_centers_, np.insert(plain.cluster_centers_, 1, 7.0, axis=1), atol=1e-3)
    np.testing.assert_array_equal(shift.labels_, plain.labels_)
    np.testing.assert_array_equal(shift.predict(np.insert(X, 1, 10.0, axis=1)), plain.predict(X))


def test_modes_are_in_the_precision_of_the_rows(blobs):
    """They used to be float64 for rows of any precision."""
    X, _ = blobs
    exact = ParzenMeanShift(ParzenWindows(1.0)).fit(X)
    single = ParzenMeanShift(ParzenWindows(1.0)).fit(X.astype(np.float32))
    assert exact.cluster_centers_.dtype == np.float64
    assert single.cluster_centers_.dtype == np.float32
    np.testing.assert_allclose(single.cluster_centers_, exact.cluster_centers_, atol=1e-3)
    np.testing.assert_array_equal(single.labels_, exact.labels_)


def test_the_engine_is_recorded_and_foretold(blobs):
    X, _ = blobs
    densities = (
        ParzenWindows(1.0),
        ParzenWindows(1.0, engine="cpu"),
        ManifoldParzen(1, 5, 1.0),
        LocalLCA(1, 5, 0, shared=1, center="row", reg=0.7),
    )
    for density in densities:
        shift = ParzenMeanShift(density)
        assert which_engine(X, shift).split(":")[0] == shift.fit(X).engine_
    # Steps over frames are more work than steps over as many points.
    wide = np.zeros((800, 4))
    assert which_engine(wide, ParzenMeanShift(ParzenWindows(1.0))).startswith("reference")
    assert which_engine(wide, ParzenMeanShift(ManifoldParzen(2, 5, 1.0))).startswith("cpu")
    assert which_engine(np.zeros((10_000, 5)), ParzenMeanShift()).startswith("cpu: 10000 x 10000 pairs")
