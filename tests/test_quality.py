"""vicinal.quality against literal versions of each definition."""

import itertools

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits, load_iris
from sklearn.metrics import rand_score

from vicinal.quality import (
    balanced_rand_score,
    clustering_accuracy,
    negative_log_likelihood,
    neighbor_purity,
)

labelings = st.integers(2, 12).flatmap(lambda n: st.tuples(*[st.lists(st.integers(0, 4), min_size=n, max_size=n)] * 2))


# --- literal versions -------------------------------------------------------------------------------------


def literal_accuracy(y_true, y_pred):
    """The LCA paper's max over permutations, by trying them all."""
    classes, clusters = sorted(set(y_true)), sorted(set(y_pred))
    size = max(len(classes), len(clusters))
    best = 0
    for permutation in itertools.permutations(range(size)):
        name = {c: permutation[m] for m, c in enumerate(clusters)}
        best = max(best, sum(classes.index(t) == name[p] for t, p in zip(y_true, y_pred, strict=True)))
    return best / len(y_true)


def literal_balanced_rand(y_true, y_pred, balance):
    """The RCA paper's note 8, pair by pair."""
    agree = {True: [], False: []}
    for i in range(len(y_true)):
        for j in range(i):
            same_true, same_predicted = y_true[i] == y_true[j], y_pred[i] == y_pred[j]
            kind = same_predicted if balance == "predicted" else same_true
            agree[kind].append(same_true == same_predicted)
    return np.mean([np.mean(a) for a in agree.values() if a])


def literal_purity(X, y, k):
    """Sec. 8 of the RCA paper: sort the other rows by distance and count those of the same class. For data without ties."""
    purity = np.zeros(k)
    for i in range(len(X)):
        others = [j for j in range(len(X)) if j != i]
        others.sort(key=lambda j: float(((X[i] - X[j]) ** 2).sum()))
        purity += np.cumsum([y[j] == y[i] for j in others[:k]]) / np.arange(1, k + 1)
    return purity / len(X)


def literal_purity_with_ties(X, y, k):
    """The same on integers, where equal distances are exactly equal: average over the orders of ties."""
    purity = np.zeros(k)
    for i in range(len(X)):
        groups = {}
        for j in range(len(X)):
            if j != i:
                groups.setdefault(int(((X[i] - X[j]) ** 2).sum()), []).append(y[j] == y[i])
        chance = [np.mean(groups[s]) for s in sorted(groups) for _ in groups[s]]
        purity += np.cumsum(chance)[:k] / np.arange(1, k + 1)
    return purity / len(X)


# --- negative log-likelihood ------------------------------------------------------------------------------


def test_nll_is_mean_and_standard_error():
    log_density = np.random.default_rng(0).normal(size=50)
    score = negative_log_likelihood(log_density)
    mean = -sum(log_density) / 50
    variance = sum((-value - mean) ** 2 for value in log_density) / 49
    np.testing.assert_allclose(score, [mean, np.sqrt(variance / 50)], rtol=1e-13)
    assert (score.mean, score.standard_error) == tuple(score)


def test_nll_edges():
    assert negative_log_likelihood([-3.0]) == (3.0, np.inf)
    assert negative_log_likelihood([0.0, 0.0]) == (0.0, 0.0)
    assert negative_log_likelihood([-1.0, -np.inf]) == (np.inf, np.inf)
    np.testing.assert_allclose(negative_log_likelihood([-1e200, -3e200]), [2e200, 1e200], rtol=1e-14)
    float32 = np.full(100_000, -0.1, dtype=np.float32)  # a float32 sum would drift
    assert negative_log_likelihood(float32).mean == pytest.approx(float(np.float32(0.1)), rel=1e-12)
    assert negative_log_likelihood(pd.Series([-1.0, -2.0])).mean == 1.5


# --- clusterings ------------------------------------------------------------------------------------------


@given(labelings)
@settings(max_examples=40, deadline=None)
def test_clustering_accuracy_literal(pair):
    assert clustering_accuracy(*pair) == pytest.approx(literal_accuracy(*pair), abs=1e-15)


@pytest.mark.parametrize("balance", ["predicted", "true"])
@given(pair=labelings)
@settings(max_examples=60, deadline=None)
def test_balanced_rand_literal(balance, pair):
    assert balanced_rand_score(*pair, balance=balance) == pytest.approx(
        literal_balanced_rand(*pair, balance), abs=1e-14
    )


def test_clustering_scores_known_values():
    truth = [0, 0, 1, 1, 2, 2]
    assert clustering_accuracy(truth, [5, 5, 3, 3, 9, 9]) == 1.0
    assert clustering_accuracy(truth, [0] * 6) == pytest.approx(2 / 6)  # fewer clusters
    assert clustering_accuracy(truth, range(6)) == pytest.approx(3 / 6)  # more clusters
    assert balanced_rand_score(truth, [5, 5, 3, 3, 9, 9]) == 1.0
    # One cluster for all: no pair is apart, so only the pairs together count: 3 of 15 agree.
    assert balanced_rand_score(truth, [0] * 6) == pytest.approx(3 / 15)
    assert balanced_rand_score(truth, [0] * 6, balance="true") == 0.5
    assert balanced_rand_score(truth, range(6)) == pytest.approx(12 / 15)
    assert balanced_rand_score(truth, range(6), balance="true") == 0.5


def test_balanced_rand_is_the_rand_index_when_pairs_are_balanced():
    # 2 x 2 clusters of sizes a, b with as many pairs together as apart: (a - b)^2 = a + b, as 6 and 3.
    y_pred = np.repeat([0, 1], [6, 3])
    y_true = np.random.default_rng(0).integers(2, size=9)
    assert balanced_rand_score(y_true, y_pred) == pytest.approx(rand_score(y_true, y_pred), abs=1e-15)


def test_balanced_rand_swaps_roles():
    rng = np.random.default_rng(1)
    a, b = rng.integers(4, size=80), rng.integers(3, size=80)
    assert balanced_rand_score(a, b, balance="true") == balanced_rand_score(b, a, balance="predicted")


def test_balanced_rand_forms_no_pairs():
    """A million rows: 5e11 pairs, counted exactly."""
    y_true, y_pred = np.arange(10**6) % 2, np.arange(10**6) // 500_000
    half = 500_000
    together = (half // 2 - 1) / (half - 1)  # P(same class | same cluster)
    assert balanced_rand_score(y_true, y_pred) == pytest.approx((together + 0.5) / 2, abs=1e-14)


@pytest.mark.parametrize(
    "relabel",
    [
        lambda y: [f"class {v}" for v in y],
        lambda y: np.array([f"class {v}" for v in y], dtype=object),
        lambda y: np.asarray(y, dtype=float),
        lambda y: np.asarray(y) - 7,
        lambda y: np.asarray(y)[:, None],
        lambda y: pd.Series(y, index=np.arange(len(y))[::-1]),
        lambda y: pd.Series([f"c{v}" for v in y]),
        lambda y: pd.Categorical([f"c{v}" for v in y]),
        lambda y: np.array([["a", 3, b"z"][v] for v in y], dtype=object),
        lambda y: np.datetime64("2000-01-01") + np.asarray(y).astype("m8[D]"),
    ],
)
def test_labels_of_any_type(relabel):
    rng = np.random.default_rng(2)
    X, y, z = rng.normal(size=(40, 3)), rng.integers(3, size=40).tolist(), rng.integers(3, size=40).tolist()
    assert clustering_accuracy(relabel(y), z) == clustering_accuracy(y, z)
    assert balanced_rand_score(y, relabel(z)) == balanced_rand_score(y, z)
    np.testing.assert_array_equal(neighbor_purity(X, relabel(y), 5), neighbor_purity(X, y, 5))


def test_bool_and_mixed_labels():
    assert clustering_accuracy([1, 1, 2], [1, "1", "a"]) == pytest.approx(2 / 3)  # 1 and "1" are two labels
    assert clustering_accuracy([True, False, True], [0, 1, 0]) == 1.0


# --- neighbour purity -------------------------------------------------------------------------------------


@pytest.fixture(params=["by products", "in a tree"])
def way(request, forced):
    """Both ways in which the engine finds neighbours, whatever the number of rows."""
    forced(TREE_FROM_QUERIES=0, TREE_FROM_POINTS=0 if request.param == "in a tree" else 10**9)


@pytest.mark.parametrize(
    ("n", "d", "k"), [(2, 1, 1), (30, 1, 29), (60, 2, 10), (60, 15, 59), (60, 16, 10), (40, 80, 39)]
)
@pytest.mark.usefixtures("way")
def test_purity_literal(n, d, k):
    rng = np.random.default_rng(d)
    y = rng.integers(3, size=n)
    X = rng.normal(size=(n, d)) + y[:, None]
    np.testing.assert_allclose(neighbor_purity(X, y, k), literal_purity(X, y, k), atol=1e-13)


@pytest.mark.parametrize("d", [2, 20])
@pytest.mark.parametrize("k", [1, 7, 49])
@pytest.mark.usefixtures("way")
def test_purity_shares_ties(d, k):
    rng = np.random.default_rng(d + k)
    X = rng.integers(0, 3 if d == 2 else 2, size=(50, d))
    X[:, 5:] = 0
    y = rng.integers(2, size=50)
    assert len(np.unique(X, axis=0)) < 40  # twins of both classes
    expected = literal_purity_with_ties(X, y, k)
    np.testing.assert_allclose(neighbor_purity(X, y, k), expected, atol=1e-13)
    order = rng.permutation(50)
    np.testing.assert_allclose(neighbor_purity(X[order], y[order], k), expected, atol=1e-13)


@pytest.mark.usefixtures("way")
def test_purity_shares_ties_of_decimal_numbers():
    """0.3 - 0.2 and 0.2 - 0.1 differ in their last bit, and are the same distance."""
    X, y = load_iris(return_X_y=True)
    expected = literal_purity_with_ties(np.rint(X * 10).astype(int), y, 20)
    np.testing.assert_allclose(neighbor_purity(X, y, 20), expected, atol=1e-13)


@pytest.mark.usefixtures("way")
def test_purity_of_twins():
    """A row is left out by its index: its twin is its nearest neighbour."""
    rng = np.random.default_rng(3)
    for d in (2, 30):
        X, y = rng.normal(size=(30, d)), np.arange(30)
        purity = neighbor_purity(np.repeat(X, 2, axis=0), np.repeat(y, 2), 3)
        np.testing.assert_allclose(purity, [1, 1 / 2, 1 / 3], atol=1e-14)
        same = neighbor_purity(np.ones((20, d)), np.repeat([0, 1], 10), 4)
        np.testing.assert_allclose(same, np.full(4, 9 / 19), atol=1e-14)


@pytest.mark.parametrize("d", [3, 25])
@pytest.mark.parametrize(("scale", "offset"), [(2.0**600, 0), (2.0**-600, 0), (1, 2.0**20), (2.0**-20, 2.0**10)])
@pytest.mark.usefixtures("way")
def test_purity_does_not_depend_on_scale_and_offset(d, scale, offset):
    rng = np.random.default_rng(4)
    X = rng.integers(-(2**16), 2**16, size=(80, d)) / 2.0**16  # so that X * scale + offset is exact
    y = rng.integers(2, size=80)
    np.testing.assert_array_equal(neighbor_purity(X * scale + offset, y, 9), neighbor_purity(X, y, 9))


@pytest.mark.usefixtures("way")
def test_purity_where_products_lose_all_digits():
    """Two far clumps, each 1e-9 wide: distances inside a clump cancel wholly in |x|^2 + |y|^2 - 2 xy."""
    rng = np.random.default_rng(5)
    far = np.repeat([[-1.0], [1.0]], 40, axis=0)
    X = 1e-9 * rng.normal(size=(80, 20)) + far * np.ones(20)
    y = (X[:, 0] > far[:, 0]).astype(int)
    X[:, 0] += 5e-9 * y
    np.testing.assert_allclose(neighbor_purity(X, y, 8), literal_purity(X, y, 8), atol=1e-13)


@pytest.mark.parametrize("d", [4, 40])
@pytest.mark.usefixtures("way")
def test_purity_does_not_depend_on_the_blocks(d, forced):
    rng = np.random.default_rng(6)
    X, y = rng.integers(0, 4, size=(150, d)).astype(float), rng.integers(3, size=150)
    expected = neighbor_purity(X, y, 12)
    for listed, pairs in ((1, 1), (40_000, 5_000)):
        forced(LISTED_BYTES=listed, ARRAY_BLOCK_PAIRS=pairs)
        np.testing.assert_allclose(neighbor_purity(X, y, 12), expected, atol=1e-13)


def test_purity_float32_integers_and_pandas():
    X, y = load_digits(return_X_y=True)
    X, y = X[:200], y[:200]
    expected = neighbor_purity(X, y, 5)
    np.testing.assert_array_equal(neighbor_purity(X.astype(np.float32), y, 5), expected)
    np.testing.assert_array_equal(neighbor_purity(X.astype(np.uint8), y, np.int64(5)), expected)
    np.testing.assert_array_equal(neighbor_purity(pd.DataFrame(X), pd.Series(y), 5), expected)


# --- bad input --------------------------------------------------------------------------------------------

GOOD = np.arange(12.0).reshape(6, 2)
LABELS = [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: negative_log_likelihood([]), ValueError, r"log_density.*n >= 1.*\(0,\)"),
        (lambda: negative_log_likelihood(-1.0), ValueError, r"log_density.*\(n,\).*\(\)"),
        (
            lambda: negative_log_likelihood([[-1.0], [-2.0]]),
            ValueError,
            r"log_density.*\(2, 1\).*score_samples",
        ),
        (lambda: negative_log_likelihood([-1.0, np.nan]), ValueError, "log_density.*1 such"),
        (lambda: negative_log_likelihood([np.inf, np.inf]), ValueError, "log_density.*2 such"),
        (lambda: negative_log_likelihood(["a", "b"]), ValueError, "string"),
        (lambda: negative_log_likelihood([1j, 2j]), ValueError, "Complex"),
        (lambda: negative_log_likelihood(scipy.sparse.csr_array(GOOD)), TypeError, "parse"),
        (lambda: clustering_accuracy([0, 1], [0, 1, 2]), ValueError, "y_true and y_pred.*2 and 3"),
        (lambda: clustering_accuracy([], []), ValueError, "y_true is empty: at least one label"),
        (lambda: clustering_accuracy(1, 2), ValueError, "y_true should be a 1d array of labels, got int"),
        (lambda: clustering_accuracy(GOOD, GOOD), ValueError, r"y_true.*\(6, 2\)"),
        (lambda: clustering_accuracy([0.0, np.nan], [0, 1]), ValueError, "y_true.*missing.*1"),
        (lambda: clustering_accuracy([0, 1], [None, "a"]), ValueError, "y_pred.*missing.*1"),
        (
            lambda: clustering_accuracy([0, 1], pd.array([1, pd.NA], dtype="Int64")),
            ValueError,
            "y_pred.*missing",
        ),
        (lambda: clustering_accuracy([0, 1], pd.Series(["a", None])), ValueError, "y_pred.*missing"),
        (lambda: clustering_accuracy([0, 1], ["a", np.nan]), ValueError, "y_pred.*missing"),
        (
            lambda: clustering_accuracy([0, 1], np.array(["2000", "NaT"], "M8[D]")),
            ValueError,
            "y_pred.*missing",
        ),
        (lambda: clustering_accuracy([0.25, 0.75], [0, 1]), ValueError, "y_true.*fractional.*digitize"),
        (lambda: balanced_rand_score([0], [0]), ValueError, "at least 2 rows"),
        (
            lambda: balanced_rand_score([0, 1], [0, 1], balance="both"),
            ValueError,
            "'predicted' or 'true'.*'both'",
        ),
        (lambda: balanced_rand_score([0, 1], [0, 1], balance=[1]), ValueError, "'predicted' or 'true'"),
        (lambda: balanced_rand_score([0, 1], [0, 1, 1]), ValueError, "2 and 3"),
        (lambda: neighbor_purity(GOOD, LABELS[:5], 2), ValueError, "y has 5 entries for 6 rows"),
        (
            lambda: neighbor_purity(GOOD, LABELS, 6),
            ValueError,
            "n_neighbors=6 needs at least 7 rows, got 6. Lower",
        ),
        (lambda: neighbor_purity(GOOD, LABELS, 0), ValueError, "n_neighbors must be at least 1, got 0"),
        (lambda: neighbor_purity(GOOD, LABELS, 2.0), TypeError, "n_neighbors must be an integer.*float"),
        (lambda: neighbor_purity(GOOD, LABELS, True), TypeError, "n_neighbors must be an integer.*bool"),
        (lambda: neighbor_purity(GOOD, LABELS, "3"), TypeError, "n_neighbors must be an integer.*str"),
        (lambda: neighbor_purity(GOOD[:1], [0], 1), ValueError, "minimum of 2"),
        (lambda: neighbor_purity(GOOD[:, :0], LABELS, 1), ValueError, "0 feature"),
        (lambda: neighbor_purity(GOOD[0], LABELS, 1), ValueError, "2D"),
        (lambda: neighbor_purity(np.where(GOOD == 3, np.nan, GOOD), LABELS, 1), ValueError, "NaN"),
        (lambda: neighbor_purity(np.where(GOOD == 3, np.inf, GOOD), LABELS, 1), ValueError, "infinity"),
        (lambda: neighbor_purity(GOOD * 1j, LABELS, 1), ValueError, "Complex"),
        (lambda: neighbor_purity(scipy.sparse.csr_array(GOOD), LABELS, 1), TypeError, "parse"),
        (lambda: neighbor_purity([["a", "b"]] * 6, LABELS, 1), ValueError, "string"),
        (lambda: neighbor_purity(GOOD, [None] * 6, 1), ValueError, "y must not hold missing"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_purity_refuses_differences_that_vanish_beside_an_outlier():
    # One value of 1e200 made all other rows equal, and their purity a matter of chance.
    X = np.random.default_rng(0).normal(size=(20, 2))
    X[3, 0] = 1e200
    with pytest.raises(ValueError, match="differ by so much less than others"):
        neighbor_purity(X, np.arange(20) % 2, 3)
