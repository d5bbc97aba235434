"""Literal oracles of Eqs. 1-8 and finite differences for every variant."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.neighbors import NeighborhoodComponentsAnalysis

from vicinal._engine import Match, prepare
from vicinal._nca.objectives import neighbor_objective, neighbor_value, pair_objective, placed_at, with_penalty
from vicinal._nca.pair_matrix import PairMatrix
from vicinal._supervision import check_targets, listed_pairs, pairs_in_groups

N, D = 24, 4
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D))
X[5] = X[9]  # a duplicate
CODES = RNG.integers(0, 3, N)
TARGETS = RNG.normal(size=(N, 2))
SHARES = RNG.dirichlet(np.ones(3), N)
WEIGHT = RNG.uniform(0.3, 2.0, N)
MATCHES = {
    "class": Match("class", CODES),
    "gaussian": Match("gaussian", TARGETS),
    "dot": Match("dot", SHARES),
}
AGREEMENT = {
    "class": (CODES[:, None] == CODES).astype(float),
    "gaussian": np.exp(-0.5 * ((TARGETS[:, None] - TARGETS) ** 2).sum(-1)),
    "dot": SHARES @ SHARES.T,
}
STARTS = {
    "full": RNG.normal(size=(D, D)),
    "low rank": 0.7 * RNG.normal(size=(2, D)),
    "diagonal": RNG.normal(size=D),
}


def problem_of(match=None, weight=None, rows=X, engine="reference"):
    log_weights = None if weight is None else np.log(weight)
    return prepare(engine, rows, log_weights=log_weights, leave_one_out=True, match=match)


def matrix(A):
    return np.diag(A) if A.ndim == 1 else A


def literal_probabilities(A, weight=None):
    """Eq. 1, one pair at a time."""
    w = np.ones(N) if weight is None else weight
    p = np.zeros((N, N))
    for i in range(N):
        for j in range(N):
            if i != j:
                p[i, j] = w[j] * np.exp(-np.sum((matrix(A) @ X[i] - matrix(A) @ X[j]) ** 2))
        p[i] /= p[i].sum()
    return p


def literal_gradient(A, p, agreement, objective, weight):
    """Eqs. 5 and 7, outer products and all."""
    S = np.zeros((D, D))
    for i in range(N):
        outer = np.stack([np.outer(X[i] - x, X[i] - x) for x in X])
        matched = p[i] * agreement[i]
        a = matched.sum()
        if objective == "accuracy":
            S += weight[i] * (a * np.einsum("k,kab->ab", p[i], outer) - np.einsum("k,kab->ab", matched, outer))
        else:
            S += weight[i] * (np.einsum("k,kab->ab", p[i] - matched / a, outer))
    return 2.0 * matrix(A) @ S / weight.sum()


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["equal", "weighted"])
@pytest.mark.parametrize("objective", ["accuracy", "likelihood"])
@pytest.mark.parametrize("kind", MATCHES)
@pytest.mark.parametrize("shape", STARTS)
def test_value_and_gradient_are_the_papers(shape, kind, objective, weight):
    A = STARTS[shape]
    w = np.ones(N) if weight is None else weight
    p = literal_probabilities(A, weight)
    a = (p * AGREEMENT[kind]).sum(1)
    value = np.average(a if objective == "accuracy" else np.log(a), weights=w)
    gradient = literal_gradient(A, p, AGREEMENT[kind], objective, w)
    problem = problem_of(MATCHES[kind], weight)
    found = neighbor_objective(A, problem, objective=objective, weight=weight)
    assert neighbor_value(A, problem, objective=objective, weight=weight) == pytest.approx(found.value, rel=1e-12)
    np.testing.assert_allclose(found.value, value, rtol=1e-12)
    expected = np.diag(gradient) if A.ndim == 1 else gradient
    np.testing.assert_allclose(found.gradient, expected, atol=1e-12 * max(1.0, np.abs(gradient).max()))


def differences(fun, A, step=1e-5):
    out = np.zeros_like(A)
    for k in np.ndindex(A.shape):
        E = np.zeros_like(A)
        E[k] = step
        out[k] = (fun(A + E).value - fun(A - E).value) / (2 * step)
    return out


@pytest.mark.parametrize("rows", [None, np.array([3, 0, 17])], ids=["all", "batch"])
@pytest.mark.parametrize("objective", ["accuracy", "likelihood"])
@pytest.mark.parametrize("kind", MATCHES)
@pytest.mark.parametrize("shape", STARTS)
def test_gradient_by_differences(shape, kind, objective, rows):
    problem = problem_of(MATCHES[kind], WEIGHT)

    def fun(A):
        found = neighbor_objective(A, problem, objective=objective, weight=WEIGHT, rows=rows)
        alone = neighbor_value(A, problem, objective=objective, weight=WEIGHT, rows=rows)
        assert alone == pytest.approx(found.value, rel=1e-12)
        return with_penalty(found, A, np.array([0.01, 0.0, 0.02, 0.03]))

    A = STARTS[shape]
    numeric = differences(fun, A)
    np.testing.assert_allclose(fun(A).gradient, numeric, atol=1e-8 * max(1.0, np.abs(numeric).max()))


def test_batches_average_to_the_whole():
    A = STARTS["low rank"]
    batches = np.split(RNG.permutation(N), 4)
    problem = problem_of(MATCHES["class"])
    parts = [neighbor_objective(A, problem, rows=rows) for rows in batches]
    whole = neighbor_objective(A, problem)
    np.testing.assert_allclose(np.mean([part.value for part in parts]), whole.value, rtol=1e-13)
    np.testing.assert_allclose(np.mean([part.gradient for part in parts], axis=0), whole.gradient, atol=1e-14)


def test_one_hot_rows_are_classes():
    one_hot = np.eye(3)[CODES]
    for objective in ("accuracy", "likelihood"):
        hard = neighbor_objective(STARTS["full"], problem_of(MATCHES["class"]), objective=objective)
        soft = neighbor_objective(STARTS["full"], problem_of(Match("dot", one_hot)), objective=objective)
        np.testing.assert_allclose(hard.value, soft.value, rtol=1e-13)
        np.testing.assert_allclose(hard.gradient, soft.gradient, atol=1e-13)
        far = 100.0 * one_hot  # targets so far apart that only equal ones agree
        soft = neighbor_objective(STARTS["full"], problem_of(Match("gaussian", far)), objective=objective)
        np.testing.assert_allclose(hard.gradient, soft.gradient, atol=1e-13)


def test_equals_scikit_learns_loss():
    X, y = load_iris(return_X_y=True)
    theirs = NeighborhoodComponentsAnalysis()
    theirs.n_iter_ = 1
    for A in (np.eye(4), RNG.normal(size=(2, 4))):
        loss, gradient = theirs._loss_grad_lbfgs(A.ravel(), X, y[:, None] == y)
        for engine in ("reference", "cpu"):
            ours = neighbor_objective(A, problem_of(Match("class", y), rows=X, engine=engine))
            np.testing.assert_allclose(150 * ours.value, loss, rtol=1e-10)
            atol = 1e-9 * abs(gradient).max()
            np.testing.assert_allclose(150 * ours.gradient.ravel(), gradient, rtol=1e-8, atol=atol)


def test_translation_and_offset():
    A = STARTS["full"]
    here = neighbor_objective(A, problem_of(MATCHES["class"]))
    there = neighbor_objective(A, problem_of(MATCHES["class"], rows=X + 1e4))
    np.testing.assert_allclose(here.gradient, there.gradient, atol=1e-8)


# -- Eq. 8 ---------------------------------------------------------------------------------------------------

CLOSE = np.array([[0, 1], [2, 7], [4, 9], [0, 5], [7, 2]])
CLOSE_WEIGHT = np.array([1.0, 0.5, 2.0, 1.0, 0.25])


def literal_equation_8(A, pairs, pair_weight, weight):
    """The negative of Eq. 8 with sum of pair weights one: c and d over all ordered pairs."""
    y = X @ matrix(A).T
    total = sum(
        weight[c] * weight[d] * np.exp(-np.sum((y[c] - y[d]) ** 2)) for c in range(N) for d in range(N) if c != d
    )
    share = pair_weight / pair_weight.sum()
    return sum(s * (-np.sum((y[a] - y[b]) ** 2) - np.log(total)) for s, (a, b) in zip(share, pairs, strict=True))


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["equal", "weighted"])
@pytest.mark.parametrize("shape", STARTS)
def test_equation_8(shape, weight):
    A = STARTS[shape]
    close = listed_pairs(CLOSE, CLOSE_WEIGHT, N)

    def fun(A):
        return pair_objective(A, problem_of(weight=weight), close)

    w = np.ones(N) if weight is None else weight
    np.testing.assert_allclose(fun(A).value, literal_equation_8(A, CLOSE, CLOSE_WEIGHT, w), rtol=1e-12)
    numeric = differences(fun, A)
    np.testing.assert_allclose(fun(A).gradient, numeric, atol=1e-7 * max(1.0, np.abs(numeric).max()))


def test_groups_are_all_their_pairs():
    groups = np.where(CODES == 2, -1, CODES)
    listed = np.array([(a, b) for a in range(N) for b in range(a + 1, N) if groups[a] == groups[b] >= 0])
    for A in STARTS.values():
        by_list = pair_objective(A, problem_of(), listed_pairs(listed, np.ones(len(listed)), N))
        by_group = pair_objective(A, problem_of(), pairs_in_groups(groups))
        np.testing.assert_allclose(by_group.value, by_list.value, rtol=1e-12)
        np.testing.assert_allclose(by_group.gradient, by_list.gradient, atol=1e-11)


# -- perplexity ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["equal", "weighted"])
def test_effective_neighbors_are_perplexities(weight):
    A = STARTS["low rank"]
    p = literal_probabilities(A, weight)
    entropy = -np.sum(np.where(p > 0, p * np.log(np.where(p > 0, p, 1.0)), 0.0), axis=1)
    found = placed_at(problem_of(weight=weight, rows=X + 7.0), A).perplexities()
    np.testing.assert_allclose(found, np.exp(entropy), rtol=1e-10)


def test_effective_neighbors_at_both_ends():
    np.testing.assert_allclose(placed_at(problem_of(), 0 * np.eye(D)).perplexities(), N - 1)
    for scale in (1e4, 1e9):
        lonely = placed_at(problem_of(rows=X[:4]), scale * np.eye(D)).perplexities()
        np.testing.assert_allclose(lonely, np.ones(4), rtol=1e-9)


def test_effective_neighbors_far_from_the_origin():
    """The two formulas agree where both are accurate; the second is used if squares are huge."""
    A = STARTS["low rank"]
    away = np.linalg.pinv(A) @ np.ones(2)
    skip = np.where(np.arange(N) % 2, np.arange(N), -1)

    def perplexities(distance):
        rows = X.copy()
        rows[0] += distance * away
        return placed_at(problem_of(weight=WEIGHT, rows=rows), A).perplexities(rows, left_out=skip)

    np.testing.assert_allclose(perplexities(30.0)[1:], perplexities(1e6)[1:], rtol=1e-9)


# -- all pairs as one matrix ---------------------------------------------------------------------------


def targets_of_kind(kind, n, rng):
    if kind == "class":
        return check_targets(np.sort(rng.integers(3, size=n)), "class", None)
    if kind == "gaussian":
        return check_targets(rng.normal(size=(n, 2)), "gaussian", None)
    return check_targets(rng.dirichlet(np.ones(3), size=n), "dot", None)


@pytest.mark.parametrize("objective", ["accuracy", "likelihood"])
@pytest.mark.parametrize("kind", ["class", "gaussian", "dot"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("diagonal", [False, True])
def test_pair_matrix_at_any_scale_equals_the_engine(objective, kind, weighted, diagonal):
    """The scales reach from equal weights to images so far apart that products are not accurate and most weights underflow."""
    rng = np.random.default_rng(3)
    X, targets = rng.normal(size=(40, 4)), targets_of_kind(kind, 40, rng)
    weight = rng.uniform(0.2, 3.0, size=40) if weighted else None
    matrix = PairMatrix(X, targets.agreement(), weight)
    problem = prepare(
        "reference",
        X,
        log_weights=None if weight is None else np.log(weight),
        leave_one_out=True,
        match=targets.match(),
    )
    queries = np.array([3, 0, 39, 17])
    compared = 0
    for scale in (1e-3, 0.5, 3.0, 30.0, 1000.0):
        A = scale * (rng.uniform(0.5, 2.0, size=4) if diagonal else rng.normal(size=(3, 4)))
        expected = neighbor_objective(A, problem, objective=objective, weight=weight)
        evaluation = matrix.objective(A, objective)
        if evaluation is None:  # the class mates of a row have underflowed
            assert objective == "likelihood"
            continue
        compared += 1
        np.testing.assert_allclose(evaluation.value, expected.value, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(evaluation.gradient, expected.gradient, rtol=1e-7, atol=1e-9 * scale)
        value = neighbor_value(A, problem, objective=objective, weight=weight, rows=queries)
        np.testing.assert_allclose(matrix.value(A, objective, queries), value, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(matrix.perplexities(A), placed_at(problem, A).perplexities(), rtol=1e-6)
    assert compared >= 3


def test_pair_matrix_whose_class_mates_underflow_leaves_the_likelihood_to_the_engine():
    X = np.array([[0.0], [1.0], [100.0], [101.0]])
    targets = check_targets(np.array([0, 1, 0, 1]), "class", None)
    matrix = PairMatrix(X, targets.agreement(), None)
    A = np.array([[3.0]])
    assert matrix.objective(A, "likelihood") is None
    assert matrix.value(A, "likelihood", np.arange(4)) is None
    assert matrix.objective(A, "accuracy").value < 1e-300


def test_pair_matrix_of_far_groups_keeps_the_digits_of_small_distances():
    """Two groups of rows lie 2e6 apart and have neighbours at a distance of one: products would round their squares to 1e-3."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(30, 3)) + np.where(np.arange(30) < 15, -1e6, 1e6)[:, None]
    targets = check_targets(np.arange(30) // 3 % 2, "class", None)
    matrix = PairMatrix(X, targets.agreement(), None)
    problem = prepare("reference", X, leave_one_out=True, match=targets.match())
    A = np.eye(3)
    expected, evaluation = neighbor_objective(A, problem), matrix.objective(A, "accuracy")
    np.testing.assert_allclose(evaluation.value, expected.value, rtol=1e-8)
