"""Test the initial matrices of NCA: scikit-learn's named ones, the best scale, and the choice of init="auto"."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.neighbors import NeighborhoodComponentsAnalysis

from vicinal import NCA
from vicinal._nca import starts
from vicinal._nca.rows import column_spread, sample_rows
from vicinal._nca.starts import auto_kind, auto_start, auto_units, best_scale, given_units, named_start

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


def test_kind_by_shape_is_scikit_learns_rule_but_for_few_rows():
    assert auto_kind(2, 4, 150, 3) == "lda"
    assert auto_kind(3, 4, 150, 3) == "pca"
    assert auto_kind(4, 4, 150, 3) == "identity"
    assert auto_kind(2, 100, 50, 3) == "pca"  # scikit-learn: lda, which separates any labelling of 50 rows
    assert auto_kind(2, 4, 150, None) == "pca"  # soft targets
    assert auto_kind(100, 100, 50, 3) == "identity"


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
@pytest.mark.parametrize("kind", ["pca", "identity", "lda"])
def test_auto_start_does_not_see_units(kind, scale):
    X, y = load_wine(return_X_y=True)
    X = X - X.mean(0)

    def start(X, c):
        looked_at = X, column_spread(X), lambda A: -float((np.log(np.linalg.norm(A * c * X.std(0) / c) / 3.0)) ** 2)
        return auto_start(
            *looked_at,
            auto_units(*looked_at),
            kind=kind,
            n_components=2 if kind != "identity" else 13,
            classes=y,
            random_state=np.random.RandomState(0),
        )

    here, there = start(X, 1.0), start(X * scale, scale)
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


@pytest.mark.parametrize("objective", ["accuracy", "likelihood"])
@pytest.mark.parametrize("seed", range(4))
def test_held_out_rows_choose_the_start(monkeypatch, objective, seed):
    """The objective of the rows climbed on is at its maximum from every start on wine, and cannot choose among them.

    Here a trial ends where it starts, and the choice is that of a literal softmax over held-out rows.
    """
    rng = np.random.default_rng(seed)
    y = np.sort(rng.integers(3, size=60))
    X = rng.normal(size=(60, 3)) @ rng.normal(size=(3, 3)) + rng.normal(size=(3, 3))[y]
    ends, chosen = [], []

    def end_at_once(evaluate, start, n_iter, solver):
        ends.append(start.components)
        return start.components

    def noted(X, *arguments, kind, **options):
        chosen.append(kind)
        return auto_start(X, *arguments, kind=kind, **options)

    monkeypatch.setattr(starts, "climb_briefly", end_at_once)
    monkeypatch.setattr(starts, "auto_start", noted)
    NCA(objective=objective, max_iter=1, random_state=0).fit(X, y)
    kinds = ["identity", "whitening", "rca"]
    assert chosen[:-1] == [kind for kind in kinds for _ in range(3)]
    values = {}
    for number, kind in enumerate(kinds):
        terms = np.empty(60)
        for fold in range(3):
            Z = X @ ends[3 * number + fold].T
            scores = -((Z[:, None] - Z) ** 2).sum(axis=-1)
            np.fill_diagonal(scores, -np.inf)
            shares = np.exp(scores - scores.max(axis=1, keepdims=True))
            shares /= shares.sum(axis=1, keepdims=True)
            terms[fold::3] = (shares * (y[:, None] == y)).sum(axis=1)[fold::3]
        values[kind] = terms.mean() if objective == "accuracy" else np.log(terms).mean()
    assert chosen[-1] == max(values, key=values.get)


@pytest.mark.parametrize("n_components", [None, 1, 2])
@pytest.mark.parametrize("objective", ["accuracy", "likelihood"])
def test_folds_of_the_trial_may_lose_a_class(monkeypatch, n_components, objective):
    """With two rows per class, a held-out row leaves its mate alone, and fewer rows than columns are left."""
    monkeypatch.setattr(starts, "_FEWEST_ROWS", 0)
    X, y = load_iris(return_X_y=True)
    some = [0, 1, 60, 61, 120, 121]
    nca = NCA(n_components, objective=objective, random_state=0).fit(X[some], y[some])
    assert np.isfinite(nca.components_).all()
    assert np.isfinite(nca.objectives_).all()
