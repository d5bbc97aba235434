"""Test engine reductions with a full covariance per point against the literal formula."""

import numpy as np
import pytest
from scipy.special import logsumexp

from vicinal import Engine
from vicinal._engine import Covariances, prepare

N, D = 70, 3
CASES = [
    pytest.param(0.0, id="quadratic forms"),
    pytest.param(1e4, id="differences"),  # clusters so far apart that quadratic forms would lose digits
]


def problem_of(gap=0.0, *, weighted=True, leave_one_out=True, n=N, d=D, seed=0, **engine):
    """Rows with kernels of all shapes, half of them moved by a gap; the prepared problem and its literal scores."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 100.0
    X[n // 2 :, 0] += gap
    roots = np.tril(rng.normal(size=(n, d, d)))
    roots[:, np.arange(d), np.arange(d)] = rng.uniform(0.5, 3.0, size=(n, d))
    log_weights = rng.normal(size=n) if weighted else None
    problem = prepare(
        Engine("reference", **engine), X, log_weights=log_weights, leave_one_out=leave_one_out, n_dims=d * d
    )

    def literal(queries, left_out=None):
        scores = np.empty((len(queries), n))
        for i, q in enumerate(queries):
            for j in range(n):
                image = roots[j] @ (q - X[j])
                scores[i, j] = np.log(np.abs(np.linalg.det(roots[j]))) - 0.5 * image @ image
                scores[i, j] += 0.0 if log_weights is None else log_weights[j]
        if left_out is not None:
            hit = left_out >= 0
            scores[np.flatnonzero(hit), left_out[hit]] = -np.inf
        return scores

    return X, problem.at(Covariances(roots)), literal


@pytest.mark.parametrize("gap", CASES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("leave_one_out", [False, True])
def test_every_reduction_is_the_literal_formula(gap, weighted, leave_one_out):
    X, placed, literal = problem_of(gap, weighted=weighted, leave_one_out=leave_one_out)
    own = np.arange(N) if leave_one_out else None
    scores = literal(X, own)
    sums = logsumexp(scores, axis=1)
    p = np.exp(scores - sums[:, None])
    np.testing.assert_allclose(placed.log_sums(), sums, rtol=1e-10)
    values = np.random.default_rng(1).normal(size=(N, 2))
    np.testing.assert_allclose(placed.softmax_means(values).means, p @ values, rtol=1e-9, atol=1e-12)
    r = np.random.default_rng(2).uniform(size=N)
    found = placed.local_scatters(r)
    difference = X[:, None] - X[None]
    local = np.einsum("i,ij,ijk,ijl->jkl", r, p, difference, difference)
    np.testing.assert_allclose(found.log_sums, sums, rtol=1e-10)
    np.testing.assert_allclose(found.counts, r @ p, rtol=1e-9)
    np.testing.assert_allclose(found.scatters, local, rtol=1e-8, atol=1e-10 * np.abs(local).max())
    np.testing.assert_allclose(placed.scatter(r, space="rows").scatter, local.sum(axis=0), rtol=1e-8, atol=1e-9)
    entropy = -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=1)
    np.testing.assert_allclose(placed.perplexities(), np.exp(entropy), rtol=1e-9)
    for query, point, weights in placed.neighbors_above(1e-4):
        assert {(i, j) for i, j in zip(query, point, strict=True)} == set(zip(*np.nonzero(p >= 1e-4), strict=True))
        np.testing.assert_allclose(weights, p[query, point], atol=1e-2)


def test_some_rows_and_new_rows():
    X, placed, literal = problem_of()
    some = np.array([40, 3, 11])
    np.testing.assert_allclose(placed.log_sums(some), logsumexp(literal(X[some], some), axis=1), rtol=1e-10)
    new = X[:5] + 0.3
    np.testing.assert_allclose(placed.log_sums(new), logsumexp(literal(new), axis=1), rtol=1e-10)
    left_out = np.array([-1, 2, 0, -1, 69])
    np.testing.assert_allclose(placed.log_sums(new, left_out), logsumexp(literal(new, left_out), axis=1), rtol=1e-10)


@pytest.mark.parametrize("gap", CASES)
def test_candidates_contain_the_best(gap):
    X, placed, literal = problem_of(gap)
    best = np.argsort(-literal(X, np.arange(N)), axis=1)[:, :4]
    queries = placed.problem.queries(None, None)
    listed = {
        pair for query, point in placed.placed.candidates(queries, k=4) for pair in zip(query, point, strict=True)
    }
    assert {(i, j) for i in range(N) for j in best[i]} <= listed
    assert len(listed) < 8 * N
    assert all(i != j for i, j in listed)


def test_blocks_and_threads_change_nothing():
    """700 rows are several blocks and tiles; a budget of 1 MB makes other blocks."""
    answers = []
    for engine in ({"threads": 1}, {"threads": 3}, {"memory": "1 MB"}):
        _, placed, _ = problem_of(n=700, d=6, **engine)
        answers.append((placed.log_sums(), placed.local_scatters().scatters, placed.perplexities()))
    for a, b in zip(answers[0], answers[1], strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(answers[0], answers[2], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_one_row_far_away_costs_the_others_nothing():
    X, placed, literal = problem_of()
    far = np.vstack([X, [[1e20, -1e20, 3.0]]])
    roots = np.concatenate([placed.placed._roots, np.eye(D)[None]])
    weights = np.append(placed.problem.points.log_weights, 0.0)
    with_far = prepare("reference", far, log_weights=weights).at(Covariances(roots))
    np.testing.assert_allclose(with_far.log_sums(X + 0.1), logsumexp(literal(X + 0.1), axis=1), rtol=1e-10)
    assert with_far.log_sums(far[-1:])[0] == pytest.approx(0.0, abs=1e-9)  # it sees itself alone
    assert with_far.log_sums(far[-1:] * 1e60)[0] < -1e150
    assert with_far.log_sums(np.full((1, D), 1e150))[0] <= -1e290  # a square that overflows is no NaN


def test_weights_sum_to_one_however_far_the_neighbours_are():
    _, placed, _ = problem_of(weighted=False)
    means = placed.softmax_means(np.ones((N, 1)), np.full((1, D), 1e12)).means
    np.testing.assert_allclose(means, 1.0, rtol=1e-12)


def test_classes_are_refused():
    _, placed, _ = problem_of()
    with pytest.raises(NotImplementedError, match="one metric that all points share"):
        placed.placed.log_sums(placed.problem.queries(None, None), by_class=True)
