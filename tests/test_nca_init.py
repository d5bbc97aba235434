"""Test the initial matrices of NCA: scikit-learn's named ones, the best scale, and the choice of init="auto"."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.neighbors import NeighborhoodComponentsAnalysis

from vicinal import NCA
from vicinal._engine import Work
from vicinal._nca.rows import column_spread, prepare_rows, sample_rows
from vicinal._nca.starts import _variance_is_shared, auto_start, best_scale, given_units, named_start

# Whether 50 iterations are enough may hang on the last bit of a sum; where it matters, converged_ is asserted.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.parametrize("load", [load_iris, load_wine, load_digits])
@pytest.mark.parametrize(
    ("init", "n_components"), [("identity", 2), ("random", 3), ("pca", 3), ("lda", 2), ("pca", None)]
)
def test_named_starts_are_scikit_learns(load, init, n_components):
    X, y = load(return_X_y=True)
    theirs = NeighborhoodComponentsAnalysis(n_components, init=init, random_state=3)
    theirs.random_state_ = np.random.RandomState(3)
    expected = theirs._initialize(X, y, init)
    found = named_start(init, X, y, n_components or X.shape[1], np.random.RandomState(3))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("init", ["identity", "random", "pca", "lda"])
def test_the_first_pass_is_at_the_named_start(init):
    """Neither library passes the start to its callback, but the first objective depends on it."""
    X, y = load_iris(return_X_y=True)
    ours = NCA(2, init=init, random_state=5, max_iter=30).fit(X, y)
    theirs = NeighborhoodComponentsAnalysis(2, init=init, random_state=5)
    theirs.random_state_ = np.random.RandomState(5)
    theirs.n_iter_ = 1
    A = theirs._initialize(X, y, init)
    loss, _ = theirs._loss_grad_lbfgs(A.ravel(), X, y[:, None] == y)
    np.testing.assert_allclose(ours.objectives_[0], loss / len(X), rtol=1e-10)


def leave_one_out_likelihood(A, X, y):
    """Eq. 6 per row, from differences."""
    Z = X @ A.T if A.ndim == 2 else X * A
    scores = -((Z[:, None] - Z) ** 2).sum(axis=-1)
    np.fill_diagonal(scores, -np.inf)
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    return float(np.log((shares * (y[:, None] == y)).sum(axis=1) / shares.sum(axis=1)).mean())


def test_auto_start_of_classes_that_differ_in_small_directions_whitens_the_classes():
    """One class is a thin parallel copy of the other: principal components cannot tell them apart, RCA's directions can."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 60)
    X = rng.normal(size=(120, 2)) @ np.array([[3.0, 3.0], [0.1, -0.1]]) + np.array([0.3, -0.3]) * y[:, None]
    X -= X.mean(axis=0)
    arguments = X, column_spread(X), lambda A: leave_one_out_likelihood(A, X, y)
    by_class = auto_start(*arguments, n_components=2, classes=y).components
    principal = auto_start(*arguments, n_components=2).components
    assert leave_one_out_likelihood(by_class, X, y) > leave_one_out_likelihood(principal, X, y) + 0.2


@pytest.mark.parametrize(("n", "by_class"), [(49, False), (50, True)])
def test_auto_start_with_fewer_than_five_rows_per_column_ignores_the_classes(n, by_class):
    """With few rows, RCA's directions would separate any labels. The score prefers them here, because they are not diagonal."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 10))
    y = np.sort(np.arange(n) % 2)

    def score(A):
        return float(A.ndim == 2 and np.any(np.diag(np.diag(A)) != A))

    start = auto_start(X, column_spread(X), score, n_components=10, classes=y)
    assert score(start.components) == by_class


def test_best_scale_finds_the_maximum():
    X = np.random.default_rng(0).normal(size=(300, 3))
    for shift in (-7.0, 0.0, 3.3):
        A = np.ones(3) * 2.0**shift
        score, found = best_scale(lambda A: -((np.log2(A[0]) - 0.7) ** 2), A, X)
        np.testing.assert_allclose(np.log2(found), 0.7, atol=0.1)
        assert score > -0.02


def test_best_scale_follows_a_maximum_beyond_the_grid():
    X = np.random.default_rng(0).normal(size=(50, 2))
    _, found = best_scale(lambda A: -abs(np.log2(A[0]) - 25.0), np.ones(2), X)
    np.testing.assert_allclose(np.log2(found), 25.0, atol=0.2)


@pytest.mark.parametrize("scale", [1e-3, 1e3, 1e12])
@pytest.mark.parametrize(("n_components", "by_class"), [(2, False), (13, False), (2, True), (13, True)])
def test_auto_start_does_not_see_units(n_components, by_class, scale):
    X, y = load_wine(return_X_y=True)
    X = X - X.mean(0)

    def start(X):
        return auto_start(
            X,
            column_spread(X),
            lambda A: leave_one_out_likelihood(A, X, y),
            n_components=n_components,
            classes=y if by_class else None,
        )

    here, there = start(X), start(X * scale)
    np.testing.assert_allclose(there.components * scale, here.components, rtol=1e-6)
    np.testing.assert_allclose(there.units * scale, here.units, rtol=1e-6)
    size = np.linalg.norm(here.components / here.units) / np.sqrt(len(here.components))
    np.testing.assert_allclose(size, 1.0)


def test_constant_columns_get_no_weight():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=60), np.full(60, 1e6 / 3), rng.normal(size=60)])
    y = (X[:, 0] > 0).astype(int)
    spread = column_spread(X)
    assert spread[1] == 0
    assert np.all(spread[[0, 2]] > 0.5)
    for diagonal in (False, True):
        nca = NCA(max_iter=200, structure="diag" if diagonal else "full").fit(X, y)
        np.testing.assert_array_equal(nca.components_[:, 1], 0)
    np.testing.assert_allclose(nca.feature_relevance_[1], 0)


def test_sample_is_spread_over_the_rows():
    points, queries = sample_rows(100_000)
    assert len(points) == 2048
    assert len(queries) == 256
    assert points[0] == 0
    assert points[-1] == 99_999
    points, queries = sample_rows(10)
    np.testing.assert_array_equal(points, np.arange(10))
    np.testing.assert_array_equal(queries, np.arange(10))


def test_units_of_a_given_start():
    assert given_units(np.eye(5)) == 1.0
    assert given_units(np.random.default_rng(0).normal(size=(3, 50))) == 1.0
    np.testing.assert_allclose(given_units(1e-6 * np.eye(5)), 1e-6)
    np.testing.assert_allclose(given_units(1e6 * np.eye(5)), 1e6)
    assert given_units(np.zeros((2, 3))) == 1.0


def test_auto_start_chooses_the_units_in_which_the_likelihood_is_higher():
    """Columns of unlike spread share a unit here: the narrow ones are noise, and standardised columns would raise it."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 50)
    X = rng.normal(size=(100, 4)) * [2.0, 2.0, 0.7, 0.7] + np.outer(2 * y - 1, [1.5, 1.5, 0.0, 0.0])
    spread = column_spread(X)
    start = auto_start(X, spread, lambda A: leave_one_out_likelihood(A, X, y), n_components=4).components
    np.testing.assert_allclose(start, start[0, 0] * np.eye(4), atol=1e-12)  # raw units, not diag(1 / spread)


def test_likelihood_of_a_scale_leaves_out_rows_without_a_class_mate():
    """Their likelihood is 0 at every scale, so that no scale would be better than another."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 2)), np.append(np.arange(29) % 2, 2)
    rows = prepare_rows(X, y, None, "class", None).resident(None, Work(30, 30, 2, 10))
    assert np.isfinite(rows.likelihood(np.eye(2)))


def test_start_standardises_columns_of_which_one_has_nearly_all_the_variance():
    """The participation ratio of the variances 1 and 0.09 is 0.18, that of 1 and 0.25 is 0.47."""
    assert not _variance_is_shared(np.array([1.0, 0.3]))
    assert _variance_is_shared(np.array([1.0, 0.5]))
    assert _variance_is_shared(np.array([7.0]))
