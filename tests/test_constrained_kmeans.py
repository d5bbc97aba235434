"""Test ConstrainedKMeans: the best constrained assignment, and k-means without constraints."""

import itertools

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris, make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from vicinal import chunklets_from_pairs
from vicinal.companions import ConstrainedKMeans, simulate_pairs
from vicinal.quality import clustering_accuracy


@parametrize_with_checks([ConstrainedKMeans(n_clusters=2, n_init=2)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def best_by_enumeration(X, group, k):
    """Smallest inertia over all assignments that are constant on groups."""
    n_groups = group.max() + 1
    best = np.inf
    for assignment in itertools.product(range(k), repeat=n_groups):
        labels = np.array(assignment)[group]
        total = sum(
            ((X[labels == c] - X[labels == c].mean(axis=0)) ** 2).sum() for c in range(k) if (labels == c).any()
        )
        best = min(best, total)
    return best


def test_the_best_of_all_constrained_assignments_is_found():
    rng = np.random.default_rng(0)
    for seed in range(5):
        X = rng.normal(size=(10, 2))
        pairs = rng.integers(0, 10, size=(4, 2))
        chunklets = chunklets_from_pairs(pairs, 10)
        group = np.where(chunklets < 0, 100 + np.arange(10), chunklets)
        group = np.unique(group, return_inverse=True)[1]
        model = ConstrainedKMeans(2, n_init=40, random_state=seed).fit(X, pairs)
        assert model.inertia_ == pytest.approx(best_by_enumeration(X, group, 2), rel=1e-9)
        for k in range(group.max() + 1):
            assert len(set(model.labels_[group == k])) == 1


def test_without_constraints_it_is_k_means():
    X = make_blobs(200, centers=4, random_state=1, cluster_std=3.0)[0]
    ours = ConstrainedKMeans(4, n_init=3, random_state=7).fit(X)
    theirs = KMeans(4, n_init=3, random_state=7).fit(X)
    np.testing.assert_array_equal(ours.labels_, theirs.labels_)
    np.testing.assert_array_equal(ours.cluster_centers_, theirs.cluster_centers_)
    assert ours.inertia_ == pytest.approx(theirs.inertia_)
    np.testing.assert_array_equal(ours.transform(X), theirs.transform(X))
    assert ours.score(X) == theirs.score(X)
    none = ConstrainedKMeans(4, n_init=3, random_state=7).fit(X, np.full(200, -1))
    assert none.inertia_ == pytest.approx(theirs.inertia_)


def test_constraints_help_and_are_kept():
    X, y = load_iris(return_X_y=True)
    entries = simulate_pairs(y, 0.5, random_state=0)
    model = ConstrainedKMeans(3, random_state=0).fit(X, entries)
    for k in set(entries.ids.tolist()):
        assert len(set(model.labels_[entries.rows[entries.ids == k]])) == 1
    plain = ConstrainedKMeans(3, random_state=0).fit(X)
    assert clustering_accuracy(y, model.labels_) > clustering_accuracy(y, plain.labels_)
    # the cost of the constraints, and the rows at their own nearest centres are cheaper
    assert plain.inertia_ <= model.inertia_
    assert -model.score(X) <= model.inertia_
    # the centres are the means of their clusters
    for c in range(3):
        np.testing.assert_allclose(model.cluster_centers_[c], X[model.labels_ == c].mean(axis=0), rtol=1e-2)


def test_far_from_the_origin():
    X, y = load_iris(return_X_y=True)
    entries = simulate_pairs(y, 0.7, random_state=1)
    here = ConstrainedKMeans(3, random_state=0).fit(X, entries)
    there = ConstrainedKMeans(3, random_state=0).fit(X + 2.0**20, entries)
    np.testing.assert_array_equal(here.labels_, there.labels_)
    assert there.inertia_ == pytest.approx(here.inertia_, rel=1e-6)


def test_pandas_output():
    X, y = load_iris(return_X_y=True, as_frame=True)
    names = ConstrainedKMeans(2, n_init=1).fit(X, y.astype("category")).set_output(transform="pandas")
    assert names.transform(X).columns.tolist() == ["constrainedkmeans0", "constrainedkmeans1"]
    assert isinstance(names.fit_transform(X, y), pd.DataFrame)


def test_too_few_iterations_are_told():
    X = make_blobs(500, centers=10, random_state=0, cluster_std=5.0)[0]
    with pytest.warns(ConvergenceWarning, match="did not converge: max_iter=1 iterations were used"):
        model = ConstrainedKMeans(10, n_init=1, max_iter=1, random_state=0).fit(X)
    assert not model.converged_
    assert ConstrainedKMeans(10, n_init=1, random_state=0).fit(X).converged_


X6 = np.arange(12.0).reshape(6, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: ConstrainedKMeans(7).fit(X6),
            "n_clusters=7 needs at least as many separate rows or chunklets.* got 6",
        ),
        (lambda: ConstrainedKMeans(3).fit(X6, [0, 0, 0, 1, 1, 1]), "n_clusters=3 needs at least as many .* got 2"),
        (lambda: ConstrainedKMeans(0).fit(X6), "n_clusters must be at least 1"),
        (lambda: ConstrainedKMeans(2, n_init=0).fit(X6), "n_init must be at least 1"),
        (lambda: ConstrainedKMeans(2, center_tol=-1.0).fit(X6), "tol must be"),
        (lambda: ConstrainedKMeans(2).fit(X6, [[0, 9]]), "out of range"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_given_centres_need_no_number_of_restarts():
    X = np.array([[0.0], [1.0], [4.0], [9.0], [10.0]])
    for init in (X[[0, 4]], X[[0, 4]].tolist()):
        kmeans = ConstrainedKMeans(2, init=init).fit(X, [[2, 3]])  # warnings are errors
        np.testing.assert_allclose(kmeans.cluster_centers_, [[0.5], [23 / 3]])
