"""Test DensityClassifier: Bayes' rule, priors, weights, constant columns and far rows."""

import numpy as np
import pandas as pd
import pytest
from estimator_checks import check_conventions
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KernelDensity
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from vicinal import LCA, DensityClassifier, LCAGauss, ManifoldParzen, ParzenWindows

ONE_ROW = "the check leaves a class one row, which has no neighbour; the error names the class"
REPETITION = (
    "the check repeats rows instead of weighing them: the leave-one-out bandwidth sees a repeated row as its "
    "own twin, a weighted row is left out as a whole"
)
EXPECTED_FAILURES = {
    ManifoldParzen: {"check_sample_weight_equivalence_on_dense_data": ONE_ROW},
    type(None): {
        "check_sample_weight_equivalence_on_dense_data": REPETITION,
    },
}


@parametrize_with_checks(
    [
        DensityClassifier(),
    ],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES.get(type(estimator.density), {}),
)
@pytest.mark.filterwarnings("ignore:.*exact twin.*:UserWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator",
    [
        DensityClassifier(ParzenWindows(bandwidth=0.5)),
        DensityClassifier(ManifoldParzen(n_components=1, n_neighbors=1, noise=0.3)),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.*exact twin.*:UserWarning")
def test_scikit_learn_checks_of_other_settings(estimator):
    check_conventions(estimator, EXPECTED_FAILURES.get(type(estimator.density)))


@pytest.fixture
def two_classes():
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(30, 2)), rng.normal(size=(10, 2)) + 2.0])
    return X, np.repeat(["near", "far"], [30, 10])


def test_probabilities_are_bayes_rule_by_hand(two_classes):
    X, y = two_classes
    queries = np.array([[0.5, 0.5], [2.0, 1.0], [-3.0, 4.0]])
    likelihood = {
        label: np.mean([multivariate_normal.pdf(queries, x, 0.49 * np.eye(2)) for x in X[y == label]], axis=0)
        for label in ("near", "far")
    }
    evidence = 0.25 * likelihood["far"] + 0.75 * likelihood["near"]
    classifier = DensityClassifier(ParzenWindows(0.7)).fit(X, y)
    assert classifier.classes_.tolist() == ["far", "near"]
    np.testing.assert_allclose(classifier.priors_, [0.25, 0.75])
    np.testing.assert_allclose(classifier.predict_proba(queries)[:, 0], 0.25 * likelihood["far"] / evidence, rtol=1e-12)
    np.testing.assert_allclose(
        logsumexp(classifier.predict_joint_log_proba(queries), axis=1), np.log(evidence), rtol=1e-12
    )
    expected = np.where(0.25 * likelihood["far"] > 0.75 * likelihood["near"], "far", "near")
    assert classifier.predict(queries).tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("priors", "expected"),
    [
        (None, [0.25, 0.75]),
        ("uniform", [0.5, 0.5]),
        ([0.9, 0.1], [0.9, 0.1]),
        ({"near": 0.2, "far": 0.8}, [0.8, 0.2]),
        ([0.0, 1.0], [0.0, 1.0]),
    ],
)
def test_priors(two_classes, priors, expected):
    classifier = DensityClassifier(ParzenWindows(0.7), priors=priors).fit(*two_classes)
    np.testing.assert_allclose(classifier.priors_, expected)
    likelihoods = np.exp(np.column_stack([d.score_samples([[1.0, 1.0]]) for d in classifier.densities_]))
    joint = likelihoods * expected
    np.testing.assert_allclose(classifier.predict_proba([[1.0, 1.0]]), joint / joint.sum(), rtol=1e-10)


@pytest.mark.parametrize(
    "density",
    [
        None,
        ParzenWindows(0.3),
        ManifoldParzen(1, 4, 0.05),
        KernelDensity(bandwidth=0.3),
        GaussianMixture(2, random_state=0),
    ],
)
def test_far_rows_have_probabilities_that_sum_to_one(two_classes, density):
    classifier = DensityClassifier(density).fit(*two_classes)
    far = np.array([[1e6, 1e6], [-1e6, 3e5], [0.0, 1e4]])
    probabilities = classifier.predict_proba(far)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-15)
    assert np.all(np.isfinite(probabilities))
    # The class at (2, 2) is nearer to the first row, by 2e6 in the squared distance.
    if density is None or isinstance(density, ParzenWindows):
        assert classifier.predict(far[:1]) == ["far"]


def test_a_row_outside_every_bounded_kernel_gets_the_priors(two_classes):
    classifier = DensityClassifier(KernelDensity(kernel="tophat", bandwidth=1.0)).fit(*two_classes)
    np.testing.assert_allclose(classifier.predict_proba([[50.0, 50.0]]), [[0.25, 0.75]])
    assert classifier.predict([[50.0, 50.0]]) == ["near"]


def test_neighbours_are_found_inside_the_class(two_classes):
    X, y = two_classes
    classifier = DensityClassifier(ManifoldParzen(1, 3, 0.1)).fit(X, y)
    alone = ManifoldParzen(1, 3, 0.1).fit(X[y == "far"])
    np.testing.assert_array_equal(classifier.densities_[0].score_samples(X), alone.score_samples(X))


def test_weights_are_importance(two_classes):
    X, y = two_classes
    weight = 1.0 + np.arange(40) % 3
    weighted = DensityClassifier(ParzenWindows(0.7)).fit(X, y, sample_weight=weight)
    repeated = np.repeat(np.arange(40), weight.astype(int))
    same = DensityClassifier(ParzenWindows(0.7)).fit(X[repeated], y[repeated])
    np.testing.assert_allclose(weighted.predict_proba(X), same.predict_proba(X), rtol=1e-10)
    without = DensityClassifier(ParzenWindows(0.7)).fit(X[:35], y[:35])
    zero = DensityClassifier(ParzenWindows(0.7)).fit(X, y, sample_weight=np.arange(40) < 35)
    np.testing.assert_allclose(zero.predict_proba(X), without.predict_proba(X), rtol=1e-12)
    with pytest.raises(ValueError, match="GaussianMixture does not"):
        DensityClassifier(GaussianMixture()).fit(X, y, sample_weight=weight)


def test_names_grid_search_and_a_fitted_metric():
    X, y = load_iris(return_X_y=True, as_frame=True)
    scaler = StandardScaler().fit(X)
    classifier = DensityClassifier(ManifoldParzen(1, 10, 0.05, metric=scaler))
    search = GridSearchCV(classifier, {"density__noise": [0.01, 0.1]}, cv=3, scoring="neg_log_loss").fit(X, y)
    assert search.best_score_ > -0.3
    fitted = clone(classifier).fit(X, y)
    assert fitted.feature_names_in_.tolist() == list(X.columns)
    assert fitted.score(X, y) > 0.95
    assert set(pd.unique(fitted.predict(X))) == {0, 1, 2}


@pytest.mark.parametrize(
    ("density", "priors", "error", "match"),
    [
        (ParzenWindows(0.5), [0.5, 0.6], ValueError, "probabilities that sum to 1"),
        (ParzenWindows(0.5), [1.5, -0.5], ValueError, "probabilities that sum to 1"),
        (ParzenWindows(0.5), [1.0], ValueError, "one number for each of the 2 classes"),
        (ParzenWindows(0.5), "equal", ValueError, "'uniform'"),
        (ParzenWindows(0.5), {"near": 1.0}, ValueError, r"exactly the classes \['far', 'near'\]"),
        (ParzenWindows, None, TypeError, "got the class ParzenWindows"),
        ("gaussian", None, TypeError, "fit and score_samples, got str"),
        (
            ManifoldParzen(1, 12, 0.1),
            None,
            ValueError,
            r"class .*far.* with 10 training rows: n_neighbors=12 needs",
        ),
    ],
)
def test_bad_parameters(two_classes, density, priors, error, match):
    with pytest.raises(error, match=match):
        DensityClassifier(density, priors=priors).fit(*two_classes)


def test_bad_data(two_classes):
    X, y = two_classes
    with pytest.raises(ValueError, match=r"class .*alone.* with 1 training row"):
        DensityClassifier().fit(np.vstack([X, [[9.0, 9.0]]]), [*y, "alone"])
    # A number as bandwidth needs no second row.
    single = DensityClassifier(ParzenWindows(1.0)).fit(np.vstack([X, [[9.0, 9.0]]]), [*y, "alone"])
    assert single.predict([[9.0, 9.1]]) == ["alone"]
    with pytest.raises(ValueError, match="expecting 2 features"):
        DensityClassifier(ParzenWindows(1.0)).fit(X, y).predict(X[:, :1])
    with pytest.raises(ValueError, match=r"[Uu]nknown label type"):
        DensityClassifier().fit(X, X[:, 0])


@pytest.mark.parametrize(
    "density",
    [LCA("diag", reg=0.0), LCA(reg=0.0), LCAGauss(reg=0.0, reg_gauss=0.0), ParzenWindows()],
    ids=["diag", "reg=0", "LCAGauss", "ParzenWindows"],
)
def test_a_column_that_is_constant_in_one_class_is_evidence(density):
    """LCA rejected such columns, because the densities of the classes cannot be compared in different columns."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 3)), np.repeat([0, 1], 40)
    X[y == 1, 2] = 5.0
    classifier = DensityClassifier(density).fit(X, y)
    variance = X[y == 0, 2].var() / 2 / 41  # within classes, over 40 equal rows and one of the usual spread
    np.testing.assert_allclose(classifier.constant_variances_, [[0, 0, 0], [0, 0, variance]], rtol=1e-12)
    queries = np.array([[0.0, 0.0, 5.0], [0.0, 0.0, 4.0], [0.0, 0.0, 1.0]])
    joint = classifier.predict_joint_log_proba(queries)
    alone = clone(density).fit(X[y == 1][:, :2]).score_samples(queries[:, :2])
    along = multivariate_normal.logpdf(queries[:, 2], 5.0, variance)
    np.testing.assert_allclose(joint[:, 1], np.log(0.5) + alone + along, rtol=1e-9)
    assert classifier.predict(queries).tolist() == [1, 0, 0]


def test_constants_that_differ_between_classes_and_scales_of_columns():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(60, 3)), np.repeat([0, 1], 30)
    X[:, 2] = np.where(y == 1, 2.0, -2.0)  # no class varies: the spread of all rows is the scale
    queries = rng.normal(size=(20, 3))
    classifier = DensityClassifier(LCA(reg=0.0)).fit(X, y)
    np.testing.assert_allclose(classifier.constant_variances_[:, 2], 4.0 / 31, rtol=1e-12)
    scaled = DensityClassifier(LCA(reg=0.0)).fit(X * [1, 1, 1000], y)
    np.testing.assert_allclose(
        scaled.predict_proba(queries * [1, 1, 1000]), classifier.predict_proba(queries), atol=1e-6
    )
    assert classifier.score(X, y) == 1.0


@pytest.mark.parametrize("density", [LCA(reg=0.0), ParzenWindows()], ids=["LCA", "ParzenWindows"])
def test_a_column_that_is_constant_in_all_rows_is_ignored(density):
    """With weights, the rounding errors of the moments gave such a column a variance of 1e-33 and a share of the probabilities."""
    rng = np.random.default_rng(0)
    X, weight = rng.standard_t(3, size=(300, 3)), rng.uniform(0.1, 2.0, size=300)
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    constant = np.column_stack([X, np.full(300, 0.1)])
    classifier = DensityClassifier(density).fit(constant, y, sample_weight=weight)
    np.testing.assert_array_equal(classifier.constant_variances_, 0.0)
    plain = DensityClassifier(density).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(classifier.predict_proba(constant), plain.predict_proba(X), rtol=1e-9)


def test_equal_values_in_each_class_have_no_variance_within_classes_under_weights():
    rng = np.random.default_rng(0)
    X, y, weight = rng.normal(size=(200, 3)), np.repeat([0, 1], 100), rng.uniform(0.1, 2.0, size=200)
    X[:, 2] = np.where(y == 1, 0.1, 0.7)
    classifier = DensityClassifier(LCA(reg=0.0)).fit(X, y, sample_weight=weight)
    weight *= 200 / weight.sum()
    between = np.average(np.square(X[:, 2] - np.average(X[:, 2], weights=weight)), weights=weight)
    expected = between / (np.bincount(y, weights=weight) + 1.0)
    np.testing.assert_allclose(classifier.constant_variances_[:, 2], expected, rtol=1e-9)


def with_few_rounded_rows(n, seed=0, noise=1.0):
    """Rows on a coarse grid, whose own kernels are narrow, with labels that depend on one of five columns."""
    rng = np.random.default_rng(seed)
    X = np.round(0.8 * rng.normal(size=(n, 5)))
    return X, (X[:, 0] + noise * rng.normal(size=n) > 0).astype(int)


def test_kernels_of_lca_are_replaced_by_one_for_all_classes_if_left_out_rows_are_classified_better():
    """The classes' own kernels gave fewer right answers than the majority class on tables of rounded values."""
    X, y = with_few_rounded_rows(100, noise=3.0)
    new, truth = with_few_rounded_rows(1000, seed=1, noise=3.0)
    classifier = DensityClassifier(LCA()).fit(X, y)
    own = [LCA().fit(X[y == c]) for c in (0, 1)]
    pooled = sum(np.mean(y == c) * own[c].covariance_ for c in (0, 1))
    covariance = classifier.densities_[0].covariance_
    factor = np.sqrt(covariance[0, 0] / pooled[0, 0])
    assert factor > 1.1
    np.testing.assert_allclose(covariance, factor**2 * pooled, rtol=1e-9)
    assert factor == pytest.approx(min((1.0, 1.5, 2.0, 3.0, 4.5), key=lambda width: abs(width - factor)))

    def left_out_probability(densities):
        joint = np.column_stack([density.score_samples(X) for density in densities])
        for c in (0, 1):
            joint[y == c, c] = densities[c].held_out_score_samples()
        joint += np.log([np.mean(y == c) for c in (0, 1)])
        return np.mean((joint - logsumexp(joint, axis=1, keepdims=True))[np.arange(len(X)), y])

    by_width = {
        width: left_out_probability([ParzenWindows(width**2 * pooled).fit(X[y == c]) for c in (0, 1)])
        for width in (1.0, 1.5, 2.0, 3.0, 4.5)
    }
    assert max(by_width, key=by_width.get) == pytest.approx(factor)
    assert max(by_width.values()) > left_out_probability(own)
    by_own = np.argmax([np.log(np.mean(y == c)) + own[c].score_samples(new) for c in (0, 1)], axis=0)
    assert classifier.score(new, truth) > np.mean(by_own == truth)


def test_kernels_of_classes_of_different_shapes_stay_and_a_given_penalty_is_kept():
    rng = np.random.default_rng(2)
    X = np.vstack([rng.normal(size=(80, 2)) * [3.0, 0.02], rng.normal(size=(80, 2)) * [0.02, 3.0]])
    y = np.repeat(["flat", "steep"], 80)
    for density in (LCA(), LCA(reg=0.1)):
        classifier = DensityClassifier(density).fit(X, y)
        assert all(isinstance(fitted, LCA) for fitted in classifier.densities_)


@pytest.mark.filterwarnings("ignore:.*held-out rows score higher the narrower:UserWarning")
def test_one_kernel_for_all_classes_takes_weights_names_and_constant_columns():
    X, y = with_few_rounded_rows(150)
    X = np.column_stack([X, np.full(150, 7.0)])
    X[y == 0, 4] = 1.0  # constant in one class; the last column is constant in both
    frame = pd.DataFrame(X, columns=list("abcdef"))
    weight = np.where(np.arange(150) % 9 == 0, 0.0, 1.0)
    classifier = DensityClassifier(LCA()).fit(frame, y, sample_weight=weight)
    without = DensityClassifier(LCA()).fit(frame[weight > 0], y[weight > 0])
    assert all(isinstance(density, ParzenWindows) for density in classifier.densities_)
    np.testing.assert_array_equal(classifier.constant_variances_, 0.0)
    np.testing.assert_allclose(classifier.predict_proba(frame), without.predict_proba(frame), rtol=1e-6)
    far = frame.assign(f=8.0)  # another value in a column without information changes nothing
    np.testing.assert_allclose(classifier.predict_proba(far), classifier.predict_proba(frame), rtol=1e-9)
