"""Test PairNCA: its objective, groups and weights of pairs, and the agreement of solvers and engines."""

import pickle

import numpy as np
import pandas as pd
import pytest
from estimator_checks import check_conventions
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from vicinal import Engine, Objective, PairNCA, SoftNeighborsClassifier

# Whether 50 iterations are enough may hang on the last bit of a sum; where it matters, converged_ is asserted.
pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.usefixtures("short_search_in_this_file"),
]


EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": (
        "sample_weight weighs a row in the sum over all pairs c != d, where a repeated row also meets its own copy, "
        "and groups of repeated rows hold more close pairs"
    )
}


@parametrize_with_checks([PairNCA(max_iter=5)], expected_failed_checks=lambda estimator: EXPECTED_FAILURES)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
def test_scikit_learn_checks_of_several_starts():
    check_conventions(PairNCA(solver="cg", random_state=0, n_init=2, max_iter=5), EXPECTED_FAILURES)


@pytest.fixture(scope="module")
def views():
    """150 things seen twice: the views share two of six columns, whatever their scale."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6))
    X[150:, :2] = X[:150, :2] + 0.1 * rng.normal(size=(150, 2))
    X = X * [0.01, 1, 5, 1, 100, 1]
    return X, np.column_stack([np.arange(150), np.arange(150, 300)])


def literal_objective(A, X, pairs, w):
    """The negative of Eq. 8, with the sum over ordered pairs c != d."""
    Y = X @ A.T
    squares = ((Y[:, None] - Y) ** 2).sum(-1)
    total = np.exp(-squares).sum() - len(X)
    return np.average(-squares[pairs[:, 0], pairs[:, 1]] - np.log(total), weights=w)


def test_finds_what_the_views_share(views):
    X, pairs = views
    for scale in (1e-3, 1.0, 1e3):
        nca = PairNCA(2, max_iter=300).fit(scale * X, pairs=pairs)
        size = np.abs(nca.components_) * X.std(0)
        assert size[:, 2:].max() < 0.15 * size[:, :2].max()
        if scale == 1e-3:
            first = nca
        np.testing.assert_allclose(nca.objectives_[-1], first.objectives_[-1], atol=1e-4)
    Z = nca.transform(scale * X)
    assert np.mean(cdist(Z[:150], Z[150:]).argmin(1) == np.arange(150)) > 0.4
    assert np.mean(cdist(X[:150], X[150:]).argmin(1) == np.arange(150)) < 0.1


def test_objectives_are_equation_8(views):
    X, pairs = views
    X = X / X.std(0)
    w = np.random.default_rng(1).uniform(0, 1, 150)
    nca = PairNCA(2, max_iter=200).fit(X, pairs=pairs, pair_weight=w)
    np.testing.assert_allclose(nca.objectives_[-1], literal_objective(nca.components_, X, pairs, w), rtol=1e-9)
    assert nca.converged_
    assert nca.objectives_[-1] == nca.objectives_.max()
    assert -np.log(300 * 299) < nca.objectives_[-1] < -np.log(2 * 150) + 1  # weights are not quite equal
    np.testing.assert_allclose(
        PairNCA(2, max_iter=200).fit(X, pairs=pairs[:, ::-1], pair_weight=7 * w).objectives_[-1], nca.objectives_[-1],
        atol=1e-6,
    )  # fmt: skip


def test_the_bound_of_the_objective():
    """Pairs of equal rows, all else far away: -log(2 p) is reached."""
    X = np.repeat(10.0 * np.arange(8)[:, None], 2, axis=0)
    nca = PairNCA().fit(X, pairs=np.arange(16).reshape(8, 2))
    np.testing.assert_allclose(nca.objectives_[-1], -np.log(16), atol=1e-4)


def test_a_weight_of_two_is_a_pair_given_twice(views):
    X, pairs = views
    settings = {"init": "pca", "max_iter": 5}
    with pytest.warns(ConvergenceWarning):  # noqa: PT031
        once = PairNCA(2, **settings).fit(X, pairs=pairs[:50], pair_weight=np.r_[np.full(25, 2.0), np.ones(25)])
        twice = PairNCA(2, **settings).fit(X, pairs=np.vstack([pairs[:25], pairs[:50]]))
        zero = PairNCA(2, **settings).fit(X, pairs=pairs, pair_weight=np.r_[np.ones(50), np.zeros(100)])
        absent = PairNCA(2, **settings).fit(X, pairs=pairs[:50])
    np.testing.assert_allclose(once.components_, twice.components_, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(zero.components_, absent.components_, rtol=1e-6, atol=1e-12)


def test_groups_are_all_their_pairs():
    X, y = load_iris(return_X_y=True)
    partial = np.where(np.arange(150) % 4 == 0, y, -1)
    listed = np.array([(a, b) for a in range(150) for b in range(a + 1, 150) if partial[a] == partial[b] >= 0])
    by_group = PairNCA(2, init="pca", max_iter=300).fit(X, partial)
    by_list = PairNCA(2, init="pca", max_iter=300).fit(X, pairs=listed)
    np.testing.assert_allclose(by_group.objectives_[-1], by_list.objectives_[-1], rtol=1e-7)
    names = pd.Series(np.array(["x", "y", "z"], dtype=object)[y]).where(partial >= 0, None)
    np.testing.assert_allclose(
        PairNCA(2, init="pca", max_iter=300).fit(X, names).objectives_[-1], by_group.objectives_[-1], rtol=1e-7
    )
    assert KNeighborsClassifier(3).fit(by_group.transform(X), y).score(by_group.transform(X), y) > 0.93


def test_rows_without_weight_are_not_repelled(views):
    X, pairs = views
    weight = np.ones(300)
    weight[[20, 170]] = 0
    kept = np.setdiff1d(np.arange(150), [20])
    moved = np.column_stack([np.arange(149), np.arange(149, 298)])
    without = PairNCA(2, init="identity", max_iter=300).fit(np.delete(X, [20, 170], axis=0), pairs=moved)
    zero = PairNCA(2, init="identity", max_iter=300).fit(X, pairs=pairs[kept], sample_weight=weight)
    # weights have mean one, so that the sum over c and d is larger by a constant
    np.testing.assert_allclose(zero.objectives_[-1], without.objectives_[-1] - 2 * np.log(300 / 298), atol=1e-4)


def test_diagonal_and_penalty(views):
    X, pairs = views
    nca = PairNCA(max_iter=300, structure="diag").fit(X, pairs=pairs)
    assert nca.feature_relevance_[:2].sum() > 0.9
    np.testing.assert_array_equal(nca.components_, np.diag(np.diag(nca.components_)))
    small = PairNCA(max_iter=300, structure="diag", objective=Objective("pairs", penalty=0.05)).fit(X, pairs=pairs)
    assert np.linalg.norm(small.components_ * X.std(0)) < np.linalg.norm(nca.components_ * X.std(0))


def test_solvers_and_engines_agree(views):
    X, pairs = views
    settings = {"n_components": 2, "max_iter": 1000, "tol": 1e-9, "objective": Objective("pairs", penalty=0.01)}
    first = PairNCA(**settings).fit(X, pairs=pairs).objectives_[-1]
    for extra in ({"solver": "cg"}, {"engine": "cpu"}, {"engine": Engine("reference", memory="1 MB", threads=2)}):
        found = PairNCA(**settings, **extra).fit(X, pairs=pairs).objectives_[-1]
        np.testing.assert_allclose(found, first, atol=1e-5)


def test_the_scale_of_the_pair_weights_does_not_matter(views):
    X, pairs = views
    weight = np.random.default_rng(0).random(len(pairs))
    one, other = (PairNCA(2, max_iter=5).fit(X, pairs=pairs, pair_weight=scale * weight) for scale in (1.0, 1e308))
    np.testing.assert_allclose(other.components_, one.components_, rtol=1e-6)


def test_tiny_differences_are_refused(views):
    X, pairs = views
    with pytest.raises(ValueError, match="whose square underflows float64"):
        PairNCA().fit(1e-200 * X, pairs=pairs)


def test_all_points_equal():
    nca = PairNCA().fit(np.ones((6, 2)), pairs=[[0, 1]])
    assert np.isfinite(nca.components_).all()
    np.testing.assert_allclose(nca.objectives_[-1], -np.log(30))


def test_warm_start_interrupt_and_callback(views):
    X, pairs = views
    X = X / X.std(0)

    def interrupt(A, iteration):
        if iteration == 2:
            raise KeyboardInterrupt

    nca = PairNCA(2, init="pca", callback=interrupt)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        nca.fit(X, pairs=pairs)
    before = nca.objectives_[-1]
    nca.set_params(callback=None, warm_start=True, max_iter=300).fit(X, pairs=pairs)
    np.testing.assert_allclose(nca.objectives_[0], before, rtol=1e-9)
    assert nca.objectives_[-1] > before


def test_at_home():
    X, y = load_wine(return_X_y=True, as_frame=True)
    nca = PairNCA(2, max_iter=200).fit(X, y)
    assert list(nca.get_feature_names_out()) == ["pairnca0", "pairnca1"]
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(nca)).transform(X), nca.transform(X))
    assert clone(nca).get_params() == nca.get_params()
    assert SoftNeighborsClassifier(nca).fit(X, y).score(X, y) > 0.9


@pytest.mark.parametrize(
    ("parameters", "given", "message"),
    [
        ({}, {}, "requires y to be passed, but the target y is None: pass groups as y, or close pairs as pairs="),
        ({}, {"y": np.arange(20)}, "no two of the 20 rows share a group"),
        ({}, {"y": np.zeros(19)}, "y has 19 entries for 20 rows"),
        ({}, {"y": np.zeros(20), "pairs": [[0, 1]]}, "either as pairs or as groups y, not both"),
        ({}, {"y": np.zeros(20), "pair_weight": [1.0]}, "pair_weight is only for pairs="),
        ({}, {"pairs": []}, "pairs is empty"),
        ({}, {"pairs": [[0, 1, 2]]}, r"pairs must have shape \(p, 2\)"),
        ({}, {"pairs": [[0, 20]]}, "row positions 0 to 19"),
        ({}, {"pairs": [[0.5, 1.0]]}, "row positions"),
        ({}, {"pairs": [[3, 3], [0, 1]]}, "got 1 pairs of a row with itself"),
        ({}, {"pairs": [[0, 1]], "pair_weight": [1.0, 2.0]}, "one weight for each of the 1 pairs"),
        ({}, {"pairs": [[0, 1]], "pair_weight": [-1.0]}, "pair_weight must be finite, not negative"),
        ({}, {"pairs": [[0, 1]], "pair_weight": [0.0]}, "not all zero"),
        ({}, {"pairs": [[0, 1]], "pair_weight": ["a"]}, "pair_weight must hold one number for each of the 1 pairs"),
        ({"structure": "no"}, {"pairs": [[0, 1]]}, "structure must be one of"),
        ({"objective": "accuracy"}, {"pairs": [[0, 1]]}, "objective must be one of 'pairs'"),
        ({"objective": Objective("pairs", match="dot")}, {"pairs": [[0, 1]]}, "PairNCA .* has no soft targets"),
        ({"init": "lda"}, {"pairs": [[0, 1]]}, "init must be one of 'auto', 'pca', 'identity', 'random'"),
        ({"solver": "stochastic"}, {"pairs": [[0, 1]]}, "solver must be one of 'lbfgs', 'cg'"),
        ({"n_components": 4}, {"pairs": [[0, 1]]}, "n_components=4 is larger than the number of features, 3"),
        ({"max_iter": 0}, {"pairs": [[0, 1]]}, "max_iter must be at least 1"),
        ({"callback": 1}, {"pairs": [[0, 1]]}, "callback must be callable"),
    ],
)
def test_bad_input(parameters, given, message):
    X = np.random.default_rng(0).normal(size=(20, 3))
    with pytest.raises((ValueError, TypeError), match=message):
        PairNCA(**parameters).fit(X, **given)
