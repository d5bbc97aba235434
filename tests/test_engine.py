"""The pair engine: literal oracles and laws, on every backend and precision."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import vicinal._engine._cpu as cpu_module
import vicinal._engine._pairs as pairs_module
import vicinal._engine._symmetric as symmetric_module
from vicinal import Engine, which_engine
from vicinal._engine import Match, pair_reductions
from vicinal._engine._blocks import Blocks
from vicinal._engine._pool import available_threads, blas_out_of_the_way, in_order, one_blas_thread

try:
    import torch  # noqa: F401

    KINDS = ["reference", "cpu", "torch"]
except ImportError:
    KINDS = ["reference", "cpu"]

# From how many coordinates on BLAS does the products: as it is, or always.
AS_IS, ALWAYS = pairs_module._FEW, dict.fromkeys(pairs_module._FEW, 0)
TOLERANCE = {"float64": 1e-10, "float32": 2e-4}
engines = pytest.mark.parametrize("kind", KINDS)
precisions = pytest.mark.parametrize("dtype", ["float64", "float32"])


def backend(kind, **options):
    return pair_reductions(Engine(kind, **options), 1, 1, 1)


class Problem:
    """Queries against points, with everything optional switched on."""

    def __init__(self, d=3, m=37, n=61, seed=0, dtype="float64", offset=0.0):
        rng = np.random.default_rng(seed)
        self.queries = (rng.normal(size=(m, d)) + offset).astype(dtype)
        self.points = (1.5 * rng.normal(size=(n, d)) + offset).astype(dtype)
        self.query_values = rng.normal(size=(m, 4)).astype(dtype)
        self.point_values = rng.normal(size=(n, 4)).astype(dtype)
        self.log_weights = rng.normal(size=n)
        self.left_out = np.where(np.arange(m) % 3 == 0, -1, rng.permutation(max(n, m))[:m] % n)
        self.row_weights = rng.random(m)
        self.classes, self.query_classes = rng.integers(0, 4, n), rng.integers(0, 4, m)
        self.options = {"log_weights": self.log_weights, "left_out": self.left_out}


def literal_softmax(p):
    """The scores, log-sums and softmax weights of `_contract`, by loops over pairs."""
    q, z = p.queries.astype(float), p.points.astype(float)
    scores = np.empty((len(q), len(z)))
    for i in range(len(q)):
        for j in range(len(z)):
            scores[i, j] = -0.5 * np.sum((q[i] - z[j]) ** 2) + p.log_weights[j]
            if p.left_out[i] == j:
                scores[i, j] = -np.inf
    top = scores.max(axis=1)
    log_sums = top + np.log(np.exp(scores - top[:, None]).sum(axis=1))
    return log_sums, np.exp(scores - log_sums[:, None])


def literal_scatter(weights, u, v):
    total = np.zeros((u.shape[1], v.shape[1]))
    for i in range(len(u)):
        for j in range(len(v)):
            difference = u[i].astype(float) - v[j]
            total += weights[i, j] * np.outer(difference, difference)
    return total


def assert_close(got, expected, dtype):
    scale = np.max(np.abs(expected))
    assert np.max(np.abs(np.asarray(got) - expected)) <= TOLERANCE[str(dtype)] * max(scale, 1e-300)


# -- agreement with the literal loop ------------------------------------------------------------------------------


@engines
@precisions
@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 6, 7, 8, 50])
def test_softmax_reductions_equal_the_literal_loop(kind, dtype, d):
    p = Problem(d=d, dtype=dtype)
    pairs = backend(kind)
    log_sums, w = literal_softmax(p)
    assert_close(pairs.log_sums(p.queries, p.points, **p.options), log_sums, dtype)
    means = pairs.softmax_means(p.queries, p.points, p.point_values, **p.options)
    assert_close(means.log_sums, log_sums, dtype)
    assert_close(means.means, w @ p.point_values, dtype)
    spread = pairs.softmax_spread(p.queries, p.points, p.query_values, **p.options)
    assert_close(spread, w.T @ p.query_values, dtype)
    shares = pairs.class_shares(p.queries, p.points, p.classes, 5, **p.options)
    assert_close(shares.shares, w @ np.eye(5)[p.classes], dtype)
    assert np.all(shares.shares[:, 4] == 0)  # a class without points


@engines
@precisions
@pytest.mark.parametrize("d", [1, 2, 3, 8, 50])
def test_scatter_equals_the_literal_loop(kind, dtype, d):
    p = Problem(d=d, dtype=dtype)
    pairs = backend(kind)
    w = literal_softmax(p)[1] * p.row_weights[:, None]
    got = pairs.softmax_scatter(p.queries, p.points, row_weights=p.row_weights, **p.options)
    assert_close(got.scatter, literal_scatter(w, p.queries, p.points), dtype)
    got = pairs.softmax_scatter(
        p.queries,
        p.points,
        query_values=p.query_values,
        point_values=p.point_values,
        row_weights=p.row_weights,
        **p.options,
    )
    assert_close(got.scatter, literal_scatter(w, p.query_values, p.point_values), dtype)


def literal_signed(p, m, objective):
    """w_ij of `_contract.SignedPull` and a_i."""
    w = literal_softmax(p)[1]
    a = (w * m).sum(axis=1)
    signed = w * (a[:, None] - m) if objective == "accuracy" else w - w * m / a[:, None]
    return signed * p.row_weights[:, None], a


@engines
@precisions
@pytest.mark.parametrize("objective", ["accuracy", "likelihood"])
@pytest.mark.parametrize("kind_of_match", ["class", "gaussian", "dot"])
@pytest.mark.parametrize("d", [2, 5, 50])
def test_signed_pull_equals_the_literal_loop(kind, dtype, objective, kind_of_match, d):
    p = Problem(d=d, dtype=dtype)
    if kind_of_match == "class":
        match = Match("class", p.query_classes, p.classes)
        m = (p.query_classes[:, None] == p.classes[None, :]).astype(float)
    elif kind_of_match == "gaussian":
        match = Match("gaussian", p.query_values, p.point_values)
        m = np.exp(-0.5 * ((p.query_values[:, None, :].astype(float) - p.point_values[None]) ** 2).sum(-1))
    else:
        match = Match("dot", p.query_values**2, p.point_values**2)
        m = (p.query_values.astype(float) ** 2) @ (p.point_values.astype(float) ** 2).T
    w, a = literal_signed(p, m, objective)
    got = backend(kind).signed_pull(
        p.queries, p.points, match, objective=objective, row_weights=p.row_weights, **p.options
    )
    q, z = p.queries.astype(float), p.points.astype(float)
    assert_close(np.exp(got.log_agreement), a, dtype)
    assert_close(got.on_queries, w.sum(1)[:, None] * q - w @ z, dtype)
    assert_close(got.on_points, w.sum(0)[:, None] * z - w.T @ q, dtype)


# -- points against themselves: each pair once ------------------------------------------------------------------------


@pytest.fixture(params=["fused", "products", "differences"])
def symmetric_road(request, monkeypatch):
    """Every road of the symmetric sweeps, however few the rows."""
    monkeypatch.setattr(symmetric_module, "_ROWS_FOR_ONE_SWEEP", 0)
    monkeypatch.setattr(symmetric_module, "_ROWS_FOR_TWO_SWEEPS", 0)
    monkeypatch.setattr(symmetric_module, "_COLUMN_TILES", 2)
    if request.param == "products":
        monkeypatch.setattr(pairs_module, "_FEW", ALWAYS)
        monkeypatch.setattr(pairs_module, "_FEW_WITHOUT_VALUES", ALWAYS)
    elif request.param == "differences":
        monkeypatch.setattr(pairs_module, "products_are_accurate", lambda *args: False)


def rows_with_a_hermit(dtype, n=1700, d=5):
    """Four tiles and a part of one, a pair of twins, and a row so far away that its terms underflow."""
    X = np.random.default_rng(3).normal(size=(n, d)).astype(dtype)
    X[9] = X[8]
    X[700] += 60.0
    return X


@precisions
@pytest.mark.parametrize("leave_out", [True, False])
def test_each_pair_once_equals_each_pair_twice(symmetric_road, dtype, leave_out):
    X = rows_with_a_hermit(dtype)
    left_out = np.arange(len(X)) if leave_out else None
    row_weights = np.random.default_rng(4).random(len(X))
    exact = X.astype(float)
    truth, ours = backend("reference"), backend("cpu", threads=2)
    assert_close(ours.log_sums(X, X, left_out=left_out), truth.log_sums(exact, exact, left_out=left_out), dtype)
    expected = truth.softmax_means(exact, exact, exact[:, :3], left_out=left_out)
    got = ours.softmax_means(X, X, X[:, :3], left_out=left_out)
    assert_close(got.means, expected.means, dtype)
    expected = truth.softmax_scatter(exact, exact, row_weights=row_weights, left_out=left_out)
    got = ours.softmax_scatter(X, X, row_weights=row_weights, left_out=left_out)
    assert_close(got.log_sums, expected.log_sums, dtype)
    assert_close(got.scatter, expected.scatter, dtype)


@precisions
@pytest.mark.parametrize("objective", ["accuracy", "likelihood"])
def test_mutual_pull_equals_the_two_pulls(symmetric_road, dtype, objective):
    X = rows_with_a_hermit(dtype)
    rng = np.random.default_rng(5)
    y = rng.integers(0, 6, len(X))
    options = {"objective": objective, "row_weights": rng.random(len(X))}
    exact = X.astype(float)
    expected = backend("reference").signed_pull(
        exact, exact, Match("class", y, y), left_out=np.arange(len(X)), **options
    )
    got = backend("cpu", threads=2).mutual_pull(X, Match("class", y, y), **options)
    assert_close(got.log_sums, expected.log_sums, dtype)
    assert_close(np.exp(got.log_agreement), np.exp(expected.log_agreement), dtype)
    assert_close(got.pull, expected.on_queries + expected.on_points, dtype)


@engines
def test_mutual_pull_takes_weights_and_soft_targets(kind):
    rng = np.random.default_rng(6)
    X, targets, weights = rng.normal(size=(50, 3)), rng.random((50, 2)), rng.random(50)
    match = Match("dot", targets, targets)
    options = {"row_weights": weights, "log_weights": np.log(weights)}
    expected = backend("reference").signed_pull(X, X, match, left_out=np.arange(50), **options)
    got = backend(kind).mutual_pull(X, match, **options)
    assert_close(got.pull, expected.on_queries + expected.on_points, "float64")


def test_symmetric_sweeps_do_not_depend_on_the_threads(symmetric_road):
    X, y = rows_with_a_hermit("float64"), np.arange(1700) % 3
    match = Match("class", y, y)
    one, three = (backend("cpu", threads=threads) for threads in (1, 3))
    np.testing.assert_array_equal(one.mutual_pull(X, match).pull, three.mutual_pull(X, match).pull)
    np.testing.assert_array_equal(one.softmax_scatter(X, X).scatter, three.softmax_scatter(X, X).scatter)


def test_rows_far_from_all_others_need_no_second_look(symmetric_road, monkeypatch):
    """On data in large units every row's exponentials used to underflow, and every row was done twice."""
    X = 6.3 * np.random.default_rng(7).normal(size=(700, 40))
    half_squares = 0.5 * cdist(X, X, "sqeuclidean") + np.diag(np.full(700, np.inf))
    assert 600 < np.median(half_squares.min(axis=1)) < half_squares.min(axis=1).max() < 1200
    y = np.arange(700) % 3
    expected = backend("reference").mutual_pull(X, Match("class", y, y))
    monkeypatch.setattr("vicinal._engine._cpu.CpuReductions.signed_pull", None)
    got = backend("cpu", threads=2).mutual_pull(X, Match("class", y, y))
    assert_close(got.log_sums, expected.log_sums, "float64")
    assert_close(got.pull, expected.pull, "float64")


@precisions
@pytest.mark.parametrize("leave_out", [True, False])
def test_headroom_does_not_overflow_beside_large_values(symmetric_road, dtype, leave_out):
    X = np.random.default_rng(7).normal(size=(700, 40)).astype(dtype) * (6.3 if dtype == "float64" else 1.6)
    X[1] = X[0]  # twins: the largest exponential there can be
    values = X[:, :2] * np.asarray(1e100 if dtype == "float64" else 1e20, dtype=dtype)
    left_out = np.arange(700) if leave_out else None
    exact = [array.astype(float) for array in (X, X, values)]
    expected = backend("reference").softmax_means(*exact, left_out=left_out)
    got = backend("cpu", threads=2).softmax_means(X, X, values, left_out=left_out)
    assert_close(got.means, expected.means, dtype)


def test_symmetric_sweeps_do_not_depend_on_the_memory(symmetric_road):
    """With room for them, the exponentials of the first sweep are what the second would make anew, digit for digit."""
    X, y = rows_with_a_hermit("float64"), np.arange(1700) % 3
    match = Match("class", y, y)
    little, much = (backend("cpu", threads=2, memory=memory) for memory in ("1 MB", "128 MB"))
    np.testing.assert_array_equal(little.mutual_pull(X, match).pull, much.mutual_pull(X, match).pull)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_blas_tiles_and_fused_kernels_agree(dtype, monkeypatch):
    # More rows than a block and more points than a tile, on both of the CPU backend's roads and by differences.
    p = Problem(d=6, m=301, n=2100, dtype=dtype)
    match = Match("class", p.query_classes, p.classes)

    def everything():
        pairs = backend("cpu", threads=2)
        return [
            *pairs.softmax_scatter(p.queries, p.points, row_weights=p.row_weights, **p.options),
            *pairs.class_shares(p.queries, p.points, p.classes, 4, **p.options),
            *pairs.signed_pull(p.queries, p.points, match, row_weights=p.row_weights, **p.options),
            *pairs.signed_pull(p.queries, p.points, match, objective="likelihood", **p.options),
        ]

    fused = everything()
    monkeypatch.setattr(cpu_module, "_KEPT_POINTS", 0)
    nothing_kept = everything()
    for got, expected in zip(nothing_kept, fused, strict=True):
        assert_close(got, expected, dtype)
    monkeypatch.setattr(pairs_module, "_FEW", ALWAYS)
    tiles = everything()
    monkeypatch.setattr(pairs_module, "products_are_accurate", lambda *args: False)
    differences = everything()
    for a, b, c in zip(fused, tiles, differences, strict=True):
        assert_close(b, a, dtype)
        assert_close(c, a, dtype)


# -- laws -----------------------------------------------------------------------------------------------------------


def scatter_of(kind, X, **options):
    left_out = np.arange(len(X))
    return backend(kind, **options).softmax_scatter(X, X, left_out=left_out)


@engines
def test_tiles_do_not_matter(kind, monkeypatch):
    X = np.random.default_rng(1).normal(size=(1100, 3))
    expected = scatter_of(kind, X)
    small = scatter_of(kind, X, memory="1 MB")
    monkeypatch.setattr(cpu_module, "_LEAST_BLOCKS", 100)
    other = scatter_of(kind, X)
    for got in (small, other):
        np.testing.assert_allclose(got.log_sums, expected.log_sums, rtol=1e-13)
        np.testing.assert_allclose(got.scatter, expected.scatter, rtol=1e-11)


@pytest.mark.parametrize("kind", ["reference", "cpu"])
@pytest.mark.parametrize("few", [AS_IS, ALWAYS], ids=["fused", "blas"])
def test_threads_do_not_matter_at_all(kind, few, monkeypatch):
    monkeypatch.setattr(pairs_module, "_FEW", few)
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(900, 5)), rng.integers(0, 3, 900)
    answers = []
    for threads in (1, 2, 5):
        pairs = backend(kind, threads=threads)
        scatter = pairs.softmax_scatter(X, X, left_out=np.arange(900))
        pull = pairs.signed_pull(X, X, Match("class", y, y), left_out=np.arange(900))
        answers.append([*scatter, *pull])
    for other in answers[1:]:
        for a, b in zip(answers[0], other, strict=True):
            if kind == "cpu":
                assert np.array_equal(a, b)
            else:
                np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@engines
def test_permutation_and_translation(kind):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(150, 4))
    expected = scatter_of(kind, X)
    order = rng.permutation(150)
    permuted = scatter_of(kind, X[order])
    np.testing.assert_allclose(permuted.log_sums, expected.log_sums[order], rtol=1e-12)
    np.testing.assert_allclose(permuted.scatter, expected.scatter, rtol=1e-10)
    moved = scatter_of(kind, X + 1e4)
    np.testing.assert_allclose(moved.log_sums, expected.log_sums, rtol=1e-8)


@engines
def test_centring_keeps_float32_digits_of_data_far_from_the_origin(kind):
    # Raw, float32 products lose all digits here (relative error 0.2); centred they keep what the input has.
    rng = np.random.default_rng(4)
    X = (rng.normal(size=(300, 8)) + 1e3).astype(np.float32)
    exact = scatter_of("reference", X.astype(np.float64))
    got = scatter_of(kind, X)
    assert np.max(np.abs(got.scatter - exact.scatter)) <= 2e-5 * np.max(np.abs(exact.scatter))


@engines
def test_the_row_left_out_is_skipped_by_index_not_by_distance(kind):
    X = np.zeros((5, 2))
    X[3:] = [[1.0, 0.0], [0.0, 2.0]]
    got = backend(kind).log_sums(X, X, left_out=np.arange(5))
    # Row 0 has two twins at distance zero which stay: log(2 + exp(-1/2) + exp(-2)).
    assert got[0] == pytest.approx(np.log(2 + np.exp(-0.5) + np.exp(-2.0)), rel=1e-14)


@engines
@pytest.mark.parametrize("few", [AS_IS, ALWAYS], ids=["fused", "blas"])
def test_weights_are_importance(kind, few, monkeypatch):
    # A point of weight 3 is three points, where nothing is left out.
    monkeypatch.setattr(pairs_module, "_FEW", few)
    rng = np.random.default_rng(5)
    q, z, times = rng.normal(size=(20, 3)), rng.normal(size=(30, 3)), rng.integers(1, 4, 30)
    pairs = backend(kind)
    weighted = pairs.softmax_scatter(q, z, log_weights=np.log(times))
    repeated = pairs.softmax_scatter(q, np.repeat(z, times, axis=0))
    np.testing.assert_allclose(weighted.log_sums, repeated.log_sums, rtol=1e-12)
    np.testing.assert_allclose(weighted.scatter, repeated.scatter, rtol=1e-11)
    # Weight zero is absence.
    with np.errstate(divide="ignore"):
        gone = pairs.log_sums(q, z, log_weights=np.log(np.arange(30) % 2))
    np.testing.assert_allclose(gone, pairs.log_sums(q, z[1::2]), rtol=1e-12)


@engines
@precisions
def test_far_queries_have_finite_log_sums(kind, dtype):
    z = np.random.default_rng(6).normal(size=(40, 3)).astype(dtype)
    q = np.full((2, 3), 1e4, dtype=dtype)
    expected = -0.5 * ((q[0].astype(float) - z) ** 2).sum(1)
    got = backend(kind).log_sums(q, z)
    assert np.allclose(got, expected.max(), rtol=1e-5 if dtype == "float32" else 1e-12)


@engines
def test_isolated_points_keep_their_softmax(kind):
    # Every exponential of the last row underflows without a shift; its nearest neighbour must still weigh one.
    z = np.array([[0.0], [1.0], [1e4]])
    got = backend(kind).softmax_means(z, z, z, left_out=np.arange(3))
    assert got.means[2, 0] == pytest.approx(1.0)
    assert got.log_sums[2] == pytest.approx(-0.5 * (1e4 - 1) ** 2, rel=1e-14)


@engines
def test_far_queries_keep_weights_that_sum_to_one(kind):
    # A score of -1e20 plus log 2 is -1e20: weights taken from such a log-sum would sum to 2.
    z, q = np.array([[0.0], [0.0], [5.0]]), np.array([[-1e10]])
    got = backend(kind).softmax_means(q, z, np.array([[1.0], [3.0], [9.0]]))
    assert got.means[0, 0] == pytest.approx(2.0, rel=1e-12)


@engines
@pytest.mark.parametrize("objective", ["accuracy", "likelihood"])
def test_soft_agreement_beside_huge_distances(kind, objective):
    # Each row's nearest neighbour takes all, at scores of about -1e21: a_i is their agreement, not 1.
    z = 1e10 * np.array([[0.0], [1.0], [3.0], [3.5]])
    targets = np.array([[0.6, 0.4], [0.5, 0.5], [0.2, 0.8], [1.0, 0.0]])
    match = Match("dot", targets, targets)
    got = backend(kind).signed_pull(z, z, match, objective=objective, left_out=np.arange(4))
    nearest = [1, 0, 3, 2]
    np.testing.assert_allclose(np.exp(got.log_agreement), (targets * targets[nearest]).sum(1), rtol=1e-12)


@engines
@pytest.mark.parametrize("few", [AS_IS, ALWAYS], ids=["fused", "blas"])
def test_likelihood_weights_survive_class_mates_that_underflow(kind, few, monkeypatch):
    # Row 0's only class mate is 60 units away behind a crowd: p_i is about e^-1800, yet the weights are exact.
    monkeypatch.setattr(pairs_module, "_FEW", few)
    z = np.array([[0.0], [0.1], [0.2], [60.0]])
    y = np.array([0, 1, 1, 0])
    got = backend(kind).signed_pull(z, z, Match("class", y, y), objective="likelihood", left_out=np.arange(4))
    scores = -0.5 * (z - z.T) ** 2
    np.fill_diagonal(scores, -np.inf)
    log_sums = np.logaddexp.reduce(scores, axis=1)
    assert got.log_agreement[0] == pytest.approx(scores[0, 3] - log_sums[0], rel=1e-12)
    # on_queries_0 = sum_j (p_0j - [j=3]) (z_0 - z_j), with p_03 = 0 in double precision.
    p = np.exp(scores[0] - log_sums[0])
    assert got.on_queries[0, 0] == pytest.approx(p[1:] @ -z[1:, 0] + 60.0, rel=1e-12)


@engines
def test_outlying_coordinates_fall_back_to_differences(kind):
    # |z|^2 = 1e12: by products the exponent would err by 1e-4.
    z = np.array([[1e6], [1e6 + 1.0], [-1e6], [-1e6 + 2.0]])
    got = backend(kind).log_sums(z, z, left_out=np.arange(4))
    np.testing.assert_allclose(got, [-0.5, -0.5, -2.0, -2.0], rtol=1e-12)


# -- resources ------------------------------------------------------------------------------------------------------


def test_memory_budget_is_kept():
    # 40,000^2 pairs would be 12.8 GB; numpy reports its allocations to tracemalloc.
    import tracemalloc

    X = np.random.default_rng(7).normal(size=(20000, 2)).astype(np.float32)
    backend("cpu").log_sums(X[:8], X[:8])  # compile outside the measurement
    tracemalloc.start()
    backend("cpu", memory="16 MB", threads=2).softmax_scatter(X, X, left_out=np.arange(len(X)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * 2**20 + 4 * X.nbytes + 10 * 8 * len(X)


def test_two_python_threads_at_once():
    rng = np.random.default_rng(8)
    problems = [rng.normal(size=(700, d)) for d in (3, 120)]
    expected = [scatter_of("cpu", X).scatter for X in problems]
    got = [None, None]

    def work(k):
        for _ in range(3):
            got[k] = scatter_of("cpu", problems[k], threads=2).scatter

    threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(2):
        assert np.array_equal(got[k], expected[k])


def _log_sum_in_worker(X):
    return backend("cpu").log_sums(X, X, left_out=np.arange(len(X)))


def test_loky_workers_and_this_process_at_once():
    from joblib import Parallel, delayed

    X = np.random.default_rng(9).normal(size=(400, 3))
    expected = _log_sum_in_worker(X)
    results = Parallel(n_jobs=2)(delayed(_log_sum_in_worker)(X) for _ in range(3))
    for result in results:
        np.testing.assert_allclose(result, expected, rtol=1e-13)  # NumPy's own sums depend on memory alignment


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_works():
    X = np.random.default_rng(10).normal(size=(400, 3))
    expected = _log_sum_in_worker(X)  # the parent has used its threads and compiled kernels
    with multiprocessing.get_context("fork").Pool(1) as pool:
        result = pool.apply_async(_log_sum_in_worker, (X,)).get(timeout=120)
    np.testing.assert_allclose(result, expected, rtol=1e-13)


def test_an_interruption_is_heard_between_blocks():
    done = []

    def work(item):
        if item == 3:
            raise KeyboardInterrupt
        done.append(item)
        return item

    with pytest.raises(KeyboardInterrupt):
        for _ in in_order(work, range(1000), 2):
            pass
    assert len(done) < 20


_LONG_WORK = """
import signal
import numpy as np
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background inherits "ignore"
from vicinal._engine._cpu import CpuReductions
X = np.random.default_rng(0).normal(size=(400_000, 3))  # an hour
CpuReductions(threads=2).log_sums(X[:50], X[:50])
print("started", flush=True)
CpuReductions(threads=2).log_sums(X, X)
"""


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_ctrl_c_ends_long_work():
    process = subprocess.Popen(
        [sys.executable, "-c", _LONG_WORK], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGINT)
    try:
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert errors.rstrip().endswith("KeyboardInterrupt")


def test_in_order_yields_in_order_and_holds_few():
    alive, most = [], []

    def work(item):
        alive.append(item)
        return item

    for k, item in enumerate(in_order(work, range(50), 4)):
        assert item == k
        most.append(len(alive) - k)
    assert max(most) <= 4 + 2


def blas_threads():
    from threadpoolctl import threadpool_info

    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_blas_is_limited_inside_and_restored_after():
    before = blas_threads()
    with one_blas_thread():
        with one_blas_thread():
            assert set(blas_threads()) == {1}
        assert set(blas_threads()) == {1}
    assert blas_threads() == before


def test_blas_is_limited_where_its_products_are_small_beside_the_pairs():
    from threadpoolctl import threadpool_limits

    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        with blas_out_of_the_way(400, 100):
            assert set(blas_threads()) == {1}
        assert blas_threads() == before
        with blas_out_of_the_way(399, 100):
            assert blas_threads() == before


def test_threads_honour_the_environment(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert available_threads() == 1
    assert available_threads(3) == 3


_COMPILE = """
import numpy as np
from vicinal._engine import _kernels
from vicinal._engine._cpu import CpuReductions
X = np.random.default_rng(0).normal(size=(50, 2))
CpuReductions().softmax_scatter(X, X, left_out=np.arange(50))
stats = _kernels.softmax_rows._dispatcher.stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


def test_a_second_process_does_not_compile_again(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    runs = [
        subprocess.run(
            [sys.executable, "-c", _COMPILE], env=environment, check=True, capture_output=True, text=True
        ).stdout
        for _ in range(2)
    ]
    assert runs[0].split() == ["0", "1"]
    assert runs[1].split() == ["1", "0"]


# -- choosing -------------------------------------------------------------------------------------------------------


def test_auto_takes_the_reference_for_small_problems():
    assert which_engine(np.zeros((200, 5))).startswith("reference")
    assert which_engine(np.zeros((50_000, 5))).startswith("cpu")
    assert which_engine(np.zeros((200, 5)), "cpu") == "cpu: it was asked for"


def test_small_problems_never_load_numba():
    code = """
import sys, numpy as np
from vicinal import ParzenWindows
ParzenWindows().fit(np.random.default_rng(0).normal(size=(300, 3))).score_samples(np.zeros((5, 3)))
assert "numba" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_import_is_light():
    code = """
import sys
import vicinal
assert not {"numba", "torch", "dask", "matplotlib", "sklearn", "scipy"} & set(sys.modules), sys.modules.keys()
for name in vicinal.__all__:
    getattr(vicinal, name)
assert set(vicinal.__all__) <= set(dir(vicinal))
assert not {"torch", "dask", "matplotlib"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_precision_casts_the_pair_work():
    X = np.random.default_rng(11).normal(size=(100, 3))
    double = backend("cpu").log_sums(X, X)
    single = backend("cpu", precision="float32").log_sums(X, X)
    assert single.dtype == np.float64
    assert 0 < np.max(np.abs(double - single)) < 1e-4


def test_without_numba_the_reference_serves_with_one_warning():
    code = """
import sys, warnings
sys.modules["numba"] = None  # import numba fails
import numpy as np
from vicinal._engine import pair_reductions
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        assert pair_reductions("cpu", 10, 10, 2).name == "reference"
assert len(caught) == 1 and "Numba" in str(caught[0].message)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Engine("gpu"), ValueError, "'cpu'"),
        (lambda: Engine(threads=0), ValueError, "threads"),
        (lambda: Engine(memory="lots"), ValueError, "memory"),
        (lambda: Engine(memory=100), ValueError, "at least 1 MB"),
        (lambda: Engine(precision="half"), ValueError, "precision"),
        (lambda: Engine(device="cuda"), ValueError, "torch"),
        (lambda: pair_reductions(3, 1, 1, 1), TypeError, "Engine"),
        (lambda: which_engine(np.zeros(3)), ValueError, "two dimensions"),
    ],
)
def test_bad_engines(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_engines_copy_and_pickle():
    import copy
    import pickle

    engine = Engine("cpu", threads=2, memory="1 GB")
    assert pickle.loads(pickle.dumps(engine)) == engine == copy.deepcopy(engine)
    assert Engine(memory="1.5 GiB").memory_bytes == 3 * 2**29
    assert Engine().memory_bytes == 128 * 2**20


def test_blocks_cover_the_rows_once():
    blocks = Blocks.for_pairs(103, 50, 1000)
    rows = [i for block in blocks for i in range(block.start, block.stop)]
    assert rows == list(range(103))
    assert blocks.rows == 20
    assert len(list(blocks)) == len(blocks)


# -- regressions: what once went wrong ------------------------------------------------------------------------------


@engines
@pytest.mark.parametrize("gap", [1e2, 1e4, 1e7])
def test_the_scatter_of_far_clusters_keeps_its_digits(kind, gap):
    # About one centre its relative error grew as eps * gap^2: 1e-8 at 1e4, everything at 1e8.
    X = np.random.default_rng(12).normal(size=(60, 3))
    X[:20] += gap
    X[20:30, 1] -= gap
    differences = X[:, None] - X[None]
    scores = -0.5 * (differences**2).sum(-1)
    np.fill_diagonal(scores, -np.inf)
    weights = np.exp(scores - np.logaddexp.reduce(scores, axis=1)[:, None])
    expected = np.einsum("ij,ijk,ijl", weights, differences, differences)
    got = scatter_of(kind, X)
    np.testing.assert_allclose(got.scatter, expected, atol=1e-10 * np.abs(expected).max())
    np.testing.assert_allclose(got.log_sums, np.logaddexp.reduce(scores, axis=1), rtol=1e-10)


@pytest.mark.parametrize("kind", ["reference", "cpu"])
def test_partial_results_do_not_pile_up(kind):
    # The reference once kept an n-vector for every block of rows: 142 MB here.
    import tracemalloc

    rng = np.random.default_rng(13)
    n = 9000
    Z, targets = rng.normal(size=(n, 2)), rng.dirichlet(np.ones(3), n)
    pairs = backend(kind, threads=1, memory="8 MB")
    pairs.log_sums(Z[:8], Z[:8])
    tracemalloc.start()
    pairs.softmax_scatter(Z, Z, left_out=np.arange(n))
    pairs.signed_pull(Z[:1500], Z, Match("dot", targets[:1500], targets))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 2**20 + 8 * Z.nbytes + 100 * n


@engines
def test_values_of_another_precision(kind):
    p = Problem()
    single, double = p.queries.astype(np.float32), p.point_values.astype(np.float64)
    got = backend(kind).softmax_means(single, p.points.astype(np.float32), double, **p.options)
    assert_close(got.means, literal_softmax(p)[1] @ double, "float32")


@engines
@pytest.mark.parametrize(("dtype", "near", "mid", "far"), [("float32", 50, 86, 87.5), ("float64", 598, 700, 709.5)])
def test_far_class_mates_are_not_flushed(kind, dtype, near, mid, far):
    # Mates whose exponentials vanish under the row's bound count all the same.
    z = np.sqrt(2 * np.r_[near, mid, np.full(5000, far)])[:, None].astype(dtype)
    mates = np.r_[0, np.ones(5001, dtype=int)]
    got = backend(kind).signed_pull(
        np.zeros((1, 1), dtype), z, Match("class", np.array([1]), mates), objective="likelihood"
    )
    scores = -0.5 * z[:, 0].astype(float) ** 2
    expected = np.logaddexp.reduce(scores[1:]) - np.logaddexp.reduce(scores)
    assert got.log_agreement[0] == pytest.approx(expected, rel=1e-4 if dtype == "float32" else 1e-12)


@engines
def test_spread_where_a_point_is_left_out_by_everyone(kind):
    z = np.random.default_rng(14).normal(size=(5, 2))
    got = backend(kind).softmax_spread(z[:1] + 1, z, np.ones((1, 1)), left_out=np.array([0]))
    assert got[0, 0] == 0
    assert got.sum() == pytest.approx(1)


def test_blocks_do_not_depend_on_threads_whatever_the_memory(monkeypatch):
    monkeypatch.setattr(pairs_module, "_FEW", ALWAYS)
    X = np.random.default_rng(15).normal(size=(700, 5))
    for kind in ("reference", "cpu"):
        for memory in ("1 MB", "128 MB"):
            first, second = (scatter_of(kind, X, threads=t, memory=memory).scatter for t in (1, 6))
            assert np.array_equal(first, second)


def test_classes_are_compared_where_the_points_are(monkeypatch):
    """The matrix of matches used to be made by NumPy and sent to the device, block by block: 50 times the pair work."""
    torch = pytest.importorskip("torch")
    from vicinal._engine import _reference

    X = torch.asarray(np.random.default_rng(0).normal(size=(30, 2)))
    codes = np.arange(30) % 3
    agreement = _reference._Agreement(Match("class", codes, codes), X)
    monkeypatch.setattr(_reference, "_like", None)  # nothing else travels
    block = agreement.block(slice(0, 7))
    assert isinstance(block, torch.Tensor)
    assert block.dtype == X.dtype
    np.testing.assert_array_equal(block.numpy(), codes[:7, None] == codes)
