"""Test RCA(shrinkage="cv"): the share of the raw metric that is kept, and that uninformative pairs do no harm."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, normalize

from vicinal import RCA, retrieval
from vicinal._rca.raw_shrinkage import _spectrum, choose_raw_shrinkage, chunklet_folds
from vicinal._supervision import read_chunklets


def things(n, d=40, seed=0, loud=2.0):
    """Pairs of views of n objects, with 10 directions in which the views differ strongly."""
    rng = np.random.default_rng(seed)
    X = np.repeat(rng.normal(size=(n, d)), 2, axis=0)
    X += loud * rng.normal(size=(2 * n, 10)) @ rng.normal(size=(10, d)) + 0.3 * rng.normal(size=(2 * n, d))
    return X, np.arange(2 * n).reshape(n, 2)


def recall(X, pairs, model=None):
    return retrieval.evaluate(pairs[:, 0], X, pairs, model=model, n_bootstrap=2).mean["recall@10"]


@pytest.mark.parametrize("n_pairs", [10, 100])  # fewer and more contrasts than columns
def test_products_follow_from_the_directions_that_pairs_span(n_pairs):
    X, pairs = things(n_pairs)
    entries = read_chunklets(pairs, len(X))[0]
    V, variances, mu = _spectrum(X, entries)
    difference = X[pairs[:, 0]] - X[pairs[:, 1]]
    C = difference.T @ difference / 4 / n_pairs  # Eq. 1 for pairs
    np.testing.assert_allclose(V * variances @ V.T, C, atol=1e-10)
    s, (x, y) = 0.3, X[:2]
    expected = x @ np.linalg.solve((1 - s) * C + s * np.trace(C) / 40 * np.eye(40), y)
    a = 1 - s * mu / ((1 - s) * variances + s * mu)
    assert (x @ y - (x @ V * a) @ (V.T @ y)) / (s * mu) == pytest.approx(expected, rel=1e-9)


def test_larger_chunklets_span_what_they_should():
    X, _ = things(30)
    ids = np.repeat([0, 1, 2, -1], [2, 3, 7, 48])
    V, variances, _ = _spectrum(X, read_chunklets(ids, 60)[0])
    C = sum(len(Y) * np.cov(Y.T, bias=True) for Y in (X[:2], X[2:5], X[5:12])) / 12
    np.testing.assert_allclose(V * variances @ V.T, C, atol=1e-10)


def test_the_fitted_metric_is_the_one_that_was_chosen():
    X, pairs = things(60)
    rca = RCA(shrinkage="cv").fit(X, pairs)
    difference = X[pairs[:, 0]] - X[pairs[:, 1]]
    C = difference.T @ difference / 4 / 60
    s = rca.shrinkage_
    expected = np.linalg.inv((1 - s) * C + s * np.trace(C) / 40 * np.eye(40))
    np.testing.assert_allclose(rca.get_mahalanobis_matrix(), expected, rtol=1e-7, atol=1e-9)
    assert rca.shrinkage_path_[-1, 0] == 1.0
    assert s in rca.shrinkage_path_[:, 0]


def test_pairs_that_say_something_are_used():
    X, pairs = things(200)
    model = make_pipeline(Normalizer(), RCA(shrinkage="cv"), Normalizer()).fit(X[:200], pairs[:100])
    assert model[1].shrinkage_ < 0.5
    assert recall(X, pairs[100:], model) > recall(X, pairs[100:]) + 0.3


def test_pairs_that_say_nothing_leave_the_raw_metric():
    kept = []
    for seed in range(4):
        X, _ = things(150, seed=seed)
        X = normalize(X)
        rca = RCA(shrinkage="cv").fit(X, np.random.default_rng(seed).permutation(300)[:60].reshape(30, 2))
        kept.append(rca.shrinkage_)
        if rca.shrinkage_ == 1.0:
            near = retrieval.search(None, X, 10).indices
            np.testing.assert_array_equal(retrieval.search(None, X, 10, model=rca).indices, near)
    assert sum(share == 1.0 for share in kept) >= 3  # chance may find something in one of them


def test_folds_are_cut_between_chunklets():
    X, pairs = things(50)
    entries = read_chunklets(pairs, len(X))[0]
    asked = []
    for fold in chunklet_folds(entries, len(X)):
        assert not set(fold.train.rows) & set(fold.queries)
        np.testing.assert_array_equal(fold.found[: len(fold.queries)], fold.queries)
        asked += fold.queries.tolist()
    assert sorted(asked) == list(range(100))
    again = choose_raw_shrinkage(X, entries)
    np.testing.assert_array_equal(again.path, choose_raw_shrinkage(X, entries).path)


def test_a_reduction_that_loses_to_the_raw_rows_is_told():
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(60, 30)), 2, axis=0) + 0.5 * rng.normal(size=(120, 30))
    with pytest.warns(UserWarning, match="2 components find held-out mates less well than the raw rows"):
        RCA(2, shrinkage="cv").fit(X, np.arange(120).reshape(60, 2))


def test_one_chunklet_keeps_the_raw_metric_and_parts_are_refused():
    X, pairs = things(30)
    with pytest.warns(UserWarning, match="at least two chunklets"):
        assert RCA(shrinkage="cv").fit(X, pairs[:1]).shrinkage_ == 1.0
    with pytest.raises(ValueError, match="partial_fit keeps sums instead of rows"):
        RCA(shrinkage="cv").partial_fit(X, pairs)
    fitted = RCA(shrinkage="cv").fit(X, pairs)
    with pytest.raises(ValueError, match="merge keeps sums instead of rows"):
        fitted.merge(RCA().fit(X, pairs))
