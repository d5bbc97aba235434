"""Test AnchorNCA: its gradient against finite differences, its mask, and the gain in retrieval."""

import numpy as np
import pytest
from scipy.optimize import check_grad
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.utils.estimator_checks import parametrize_with_checks

from vicinal import Adam, AnchorNCA, retrieval
from vicinal._nca.anchor_climb import AnchorRows, divided, hard_negatives
from vicinal._nca.anchor_objective import anchor_objective, held_out_gains
from vicinal._nca.anchor_pairs import read_anchor_pairs
from vicinal._search import paired_gain

rng = np.random.default_rng(0)
THINGS, NOISE = rng.normal(size=(150, 8)), rng.normal(size=(300, 9)) * 3.0
X = np.hstack([np.repeat(THINGS, 2, axis=0) + 0.1 * rng.normal(size=(300, 8)), NOISE])
PAIRS = np.arange(300).reshape(150, 2)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks([AnchorNCA(max_iter=2, random_state=0, solver=Adam(batch_size=16))])
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def read(n_rows=300, n_queries=None, **given):
    names = ("y", "pairs", "triplets", "negatives", "pair_weight")
    return read_anchor_pairs(n_rows, n_queries, *(given.get(name) for name in names), np.random.RandomState(0))


@pytest.mark.parametrize("similarity", ["cosine", "distance"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_gradient_is_that_of_finite_differences(similarity, weighted):
    rng = np.random.default_rng(1)
    anchors, candidates, positives = rng.normal(size=(7, 4)), rng.normal(size=(9, 4)), rng.permutation(9)[:7]
    masked = rng.random((7, 9)) < 0.3
    masked[np.arange(7), positives] = False
    settings = {"similarity": similarity, "temperature": 0.7, "weights": rng.random(7) if weighted else None}

    def both(vector):
        return anchor_objective(vector.reshape(3, 4), anchors, candidates, positives, masked, **settings)

    A = rng.normal(size=12)
    error = check_grad(lambda a: both(a).value, lambda a: both(a).gradient.ravel(), A)
    assert error < 1e-6 * np.linalg.norm(both(A).gradient)


def test_the_objective_is_the_sum_that_the_docs_say():
    A, a, c = np.eye(2), np.array([[1.0, 0.0]]), np.array([[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0]])
    masked = np.array([[False, False, True]])
    cosine = anchor_objective(A, a, c, np.array([0]), masked, similarity="cosine", temperature=0.5)
    assert cosine.value == pytest.approx(2.0 - np.log(np.exp(2.0) + np.exp(0.0)))
    distance = anchor_objective(A, a, c, np.array([0]), masked, similarity="distance", temperature=2.0)
    assert distance.value == pytest.approx(-0.5 - np.log(np.exp(-0.5) + np.exp(-5.0)))


def test_other_positives_and_the_anchor_itself_are_masked():
    anchored = read(6, pairs=[[0, 1], [0, 2], [3, 4]], negatives=[[3, 5]])
    batch = anchored.batch(np.array([0, 3]), np.array([1, 4]), np.array([0, 2, 3, 5]))
    seen = {int(a): set(batch.candidates[~row].tolist()) for a, row in zip(batch.anchors, batch.masked, strict=True)}
    assert seen == {0: {1, 3, 4, 5}, 3: {0, 1, 2, 4, 5}}
    assert list(batch.candidates[batch.positives]) == [1, 4]
    (only,) = anchored.batches(np.array([2]), 8, np.random.RandomState(0), None)
    assert 5 in only.candidates or only.anchors[0] == 4  # the pair may be turned: only 3 has a negative
    across = read(6, 2, pairs=[[0, 0], [1, 1]])  # query 0 is not row 0
    assert not across.batch(np.array([0, 1]), np.array([0, 1]), np.array([3])).masked.any()


def test_groups_are_positives_of_each_other_and_whole_components_are_held_out():
    groups = read(8, y=[0, 0, 0, 1, 1, -1, 2, None])
    assert {tuple(sorted(pair)) for pair in groups.pairs.tolist()} == {(0, 1), (1, 2), (0, 2), (3, 4)}
    batch = groups.batch(np.array([0]), np.array([1]), np.arange(8))
    assert set(batch.candidates[~batch.masked[0]].tolist()) == {1, 3, 4, 5, 6, 7}
    chain = read(40, pairs=[[i, i + 1] for i in range(0, 38) if i % 4 != 3])
    assert divided(chain, 0.3, np.random.RandomState(0)).stopping is None  # ten chains are not enough
    chain = read(400, pairs=[[i, i + 1] for i in range(0, 398) if i % 4 != 3])
    parts = divided(chain, 0.3, np.random.RandomState(0))
    rows = [set(chain.pairs[part].ravel()) for part in parts]
    assert len(set.union(*rows)) == sum(map(len, rows)) == 399
    assert [len(part) for part in parts] == [209, 45, 45]


def found(model, queries=None):
    return retrieval.evaluate(queries, X, PAIRS, model=model, k=1, n_bootstrap=2).mean["recall@1"]


@pytest.mark.parametrize("similarity", ["cosine", "distance"])
def test_pairs_make_the_search_better(similarity):
    unit = make_pipeline(
        Normalizer(), AnchorNCA(8, similarity=similarity, random_state=0, max_iter=100, init="identity")
    )
    unit.fit(X, anchornca__pairs=PAIRS)
    assert found(None) < 0.2
    assert found(unit) > 0.5
    path = unit[-1].objectives_
    assert path[-1] > path.max() - 0.01


def test_queries_in_a_table_of_their_own_and_weights():
    model = AnchorNCA(8, random_state=0, max_iter=60)
    model.fit(X[1::2], queries=X[::2], pairs=np.repeat(np.arange(150), 2).reshape(150, 2))
    after = retrieval.evaluate(
        X[::2], X[1::2], np.repeat(np.arange(150), 2).reshape(150, 2), model=model, k=1, n_bootstrap=2
    )
    assert after.mean["recall@1"] > 0.8
    # Pairs of weight 0 do not count.
    wrong = np.vstack([PAIRS, np.random.default_rng(2).permutation(300).reshape(150, 2)])
    weight = np.repeat([1.0, 0.0], 150)
    one = AnchorNCA(3, random_state=0, max_iter=5, tol=0.1, solver=Adam(n_iter_no_change=1)).fit(
        X, pairs=wrong, pair_weight=weight
    )
    other = AnchorNCA(3, random_state=0, max_iter=5, tol=0.1, solver=Adam(n_iter_no_change=1)).fit(X, pairs=PAIRS)
    np.testing.assert_array_equal(one.components_, other.components_)


@pytest.mark.slow
def test_triplets_and_mined_negatives_run_and_help():
    triplets = np.column_stack([PAIRS, np.roll(PAIRS[:, 1], 1)])
    for extra in ({"triplets": triplets}, {"pairs": PAIRS, "negatives": triplets[:, [0, 2]]}):
        assert found(AnchorNCA(8, random_state=0, max_iter=60, hard_negatives=2).fit(X, **extra)) > 0.8


def test_a_memory_map_gives_what_an_array_gives(tmp_path):
    np.save(tmp_path / "x.npy", X.astype(np.float32))
    there = np.load(tmp_path / "x.npy", mmap_mode="r")
    fits = [AnchorNCA(2, random_state=0, max_iter=60).fit(rows, pairs=PAIRS) for rows in (there, X.astype(np.float32))]
    np.testing.assert_array_equal(fits[0].components_, fits[1].components_)


def test_mined_negatives_are_near_and_no_positives():
    rows = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [9.0]])
    tables = AnchorRows(rows, rows)
    for anchored, expected in (
        (read(6, pairs=[[0, 1], [3, 4]]), [[2, 3], [2, 5]]),
        (read(6, y=[0, 0, 0, 1, 1, -1]), {0: [3, 4], 1: [3, 4], 2: [3, 4], 3: [2, 5], 4: [2, 5]}),
    ):
        model = AnchorNCA(similarity="distance", hard_negatives=2)
        mined = np.sort(hard_negatives(tables, anchored, np.eye(1), model, np.random.RandomState(0)), axis=1)
        for (anchor, _), found, i in zip(anchored.pairs, mined.tolist(), range(len(mined)), strict=True):
            wanted = expected[i] if isinstance(expected, list) else expected[int(anchor)]
            assert found == wanted or (anchor == 4 and found == [2, 5])


def test_held_out_gain_counts_places():
    A, anchor = np.eye(1), np.array([[1.0]])
    candidates, masked = np.array([[1.0], [0.9], [0.5], [3.0]]), np.array([[False, True, False, False]])
    gains = held_out_gains(A, anchor, candidates, np.array([2]), masked, similarity="distance")
    assert gains == pytest.approx([1 / np.log2(3)])  # one candidate that is not masked is nearer
    for top, expected in ((1, 0.0), (2, 1 / np.log2(3))):
        at_top = held_out_gains(A, anchor, candidates, np.array([2]), masked, similarity="distance", top=top)
        assert at_top == pytest.approx([expected])


def noise(n, seed=0):
    """Pairs of rows that have nothing in common beyond the raw cosine."""
    rng = np.random.default_rng(seed)
    things = rng.normal(size=(n, 30))
    rows = np.stack([things + 0.7 * rng.normal(size=(n, 30)) for _ in range(2)], axis=1).reshape(2 * n, 30)
    return rows, np.arange(2 * n).reshape(n, 2)


def test_raw_rows_are_kept_with_a_warning_unless_held_out_pairs_gain_two_standard_errors():
    for seed in range(5):
        rows, pairs = noise(400, seed)
        with pytest.warns(
            UserWarning, match="AnchorNCA keeps the raw rows: on held-out pairs the learned map changes nDCG@10 by"
        ):
            model = AnchorNCA(random_state=0).fit(rows, pairs=pairs[:60])
        np.testing.assert_array_equal(model.components_, np.eye(30))
        assert model.chosen_ == "raw"
        assert model.held_out_gain_[0] <= 2 * model.held_out_gain_[1]
        assert repr(model) == "AnchorNCA(random_state=0) (keeps the raw rows)"
    model = AnchorNCA(random_state=0).fit(X, pairs=PAIRS)
    assert (model.chosen_, repr(model)) == ("anchors", "AnchorNCA(random_state=0)")
    assert model.held_out_gain_[0] > 2 * model.held_out_gain_[1]


def test_initial_matrices_are_computed_without_held_out_pairs(monkeypatch):
    """They were computed from all pairs, so held-out pairs were found under any initial matrix, and the raw rows never won."""
    given, starts = [], AnchorNCA._starts
    monkeypatch.setattr(
        AnchorNCA, "_starts", lambda self, rows, pairs, *rest: given.append(pairs) or starts(self, rows, pairs, *rest)
    )
    model = AnchorNCA(random_state=0, max_iter=60).fit(X, pairs=PAIRS)
    learned = {tuple(pair) for pair in given[0].tolist()}
    held_out = {tuple(pair) for pair in PAIRS[model.held_out_pairs_].tolist()}
    assert len(learned) + len(held_out) == len(PAIRS)
    assert not learned & held_out


def test_raw_rows_with_fewer_components_are_their_leading_directions():
    rows, pairs = noise(400)
    rows[:, 4:] *= 0.1
    with pytest.warns(UserWarning, match="keeps the raw rows"):
        model = AnchorNCA(4, random_state=0).fit(rows, pairs=pairs[:60])
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(4), atol=1e-12)
    assert np.abs(model.components_[:, 4:]).max() < 0.1


def test_too_few_components_of_pairs_keep_the_raw_rows_and_labels_of_few_groups_are_divided_by_rows():
    chains = np.column_stack([np.arange(299), np.arange(1, 300)])
    with pytest.warns(UserWarning, match="1 connected component of pairs is not enough"):
        model = AnchorNCA(random_state=0).fit(X, pairs=chains)
    assert (model.chosen_, model.held_out_gain_) == ("raw", None)
    groups = read(300, y=np.arange(300) % 3)
    sizes = np.bincount(groups.components)
    assert len(sizes) == 30
    assert set(sizes) == {10}
    parts = divided(groups, 0.4, np.random.RandomState(0))
    assert not set(groups.pairs[parts.learning].ravel()) & set(groups.pairs[parts.choosing].ravel())


def test_without_early_stopping_nothing_is_held_out_or_compared():
    model = AnchorNCA(solver=Adam(), tol=1.0, random_state=0).fit(X, pairs=PAIRS)
    assert (model.chosen_, model.held_out_gain_, len(model.held_out_pairs_)) == ("anchors", None, 0)


@pytest.mark.parametrize(
    ("parameters", "given", "words"),
    [
        ({}, {}, "requires y to be passed"),
        ({}, {"pairs": PAIRS, "y": np.zeros(300)}, "y and pairs"),
        ({}, {"pairs": [[0, 300]]}, "0 to 299"),
        ({}, {"pairs": [[3, 3]]}, "different rows"),
        ({}, {"triplets": [[0, 1]]}, r"\(p, 3\)"),
        ({}, {"pairs": [[0, 9]], "queries": X[:4], "negatives": [[4, 0]]}, "negatives must hold row positions 0 to 3"),
        ({}, {"y": np.zeros(300), "queries": X[:4]}, "Pass pairs together with queries"),
        ({}, {"pairs": PAIRS, "pair_weight": np.zeros(150)}, "not all zero"),
        ({"temperature": 0.0}, {"pairs": PAIRS}, "temperature"),
        ({"similarity": "dot"}, {"pairs": PAIRS}, "similarity"),
        ({"init": np.zeros((2, 3))}, {"pairs": PAIRS}, "init must be"),
        ({"init": "lda"}, {"pairs": PAIRS}, "init"),
        ({"n_components": 99}, {"pairs": PAIRS}, "n_components"),
    ],
)
def test_what_is_refused(parameters, given, words):
    with pytest.raises(ValueError, match=words):
        AnchorNCA(**parameters).fit(X, **given)


def test_negatives_that_are_positives_are_ignored_with_a_warning():
    negatives = [[0, 1], [1, 150], [2, 2]]  # PAIRS join 0 and 1
    with pytest.warns(UserWarning, match="2 of 3 negatives are positives of the same anchor, or the anchor itself"):
        read(300, pairs=PAIRS, negatives=negatives)


def test_held_out_gain_is_weighted_and_its_error_is_that_of_connected_components():
    gains, units, weights = np.array([0.3, 0.1, -0.2, 0.5]), np.array([0, 0, 1, 2]), np.array([1.0, 1.0, 2.0, 1.0])
    mean, error = paired_gain(gains, np.zeros(4), weights, units)
    assert mean == pytest.approx(weights @ gains / 5)
    residuals = [0.4 - 2 * mean, 2 * (-0.2 - mean), 0.5 - mean]
    assert error == pytest.approx(np.sqrt(np.square(residuals).sum() * 3 / 2) / 5)
    assert paired_gain(gains[:2], np.zeros(2), None, units[:2])[1] == np.inf


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore:AnchorNCA keeps")
def test_equal_rows_are_an_error_by_distance_and_rows_of_any_unit_give_numbers():
    """The squares of the gradient overflowed, and the components were NaN."""
    labels = np.arange(40) // 2
    with pytest.raises(ValueError, match="all rows in pairs are equal: there is no direction to learn from"):
        AnchorNCA(similarity="distance", random_state=0).fit(np.full((40, 3), 1e100), labels)
    X = np.random.default_rng(0).normal(size=(40, 3)) + labels[:, None]
    for unit in (1e-100, 1e100):
        fits = (
            AnchorNCA(similarity="distance", init="identity", random_state=0).fit(X * u, labels) for u in (1.0, unit)
        )
        assert all(np.isfinite(fit.components_).all() for fit in fits)


def test_batches_larger_than_the_pairs_take_the_steps_of_one_batch_of_all_pairs():
    """The number of steps grew with the size of the batches: 19 seconds for 12 rows."""
    X, labels = np.random.default_rng(0).normal(size=(12, 3)), np.arange(12) // 2
    with pytest.warns(ConvergenceWarning):
        fits = [
            AnchorNCA(solver=Adam(batch_size=size), max_iter=1, random_state=0).fit(X, labels) for size in (100, 10**5)
        ]
    np.testing.assert_array_equal(fits[0].components_, fits[1].components_)
