"""Test engine reductions with a frame per point against their literal formulas."""

from functools import cache

import numpy as np
import pytest
from needs import needs
from scipy.special import logsumexp

from vicinal._engine import Frames, prepare
from vicinal._engine.backends import BACKENDS

# Those of one machine: Dask workers give the bits of "cpu", to which tests/test_dask.py holds them.
HERE = [name for name in BACKENDS if name != "dask"]

# (n, D, d, noise): one column, few, more than a kernel keeps in the cache; and noises that products cannot resolve.
SHAPES = [(30, 1, 1, 0.2), (40, 5, 2, 0.2), (50, 20, 4, 0.2), (50, 20, 4, 1e-7), (40, 5, 2, 1e-9), (60, 110, 3, 0.3)]
TOLERANCE = {"float64": 1e-9, "float32": 3e-4}


@cache
def literal(n, D, d, noise, dtype):
    return Literal(n, D, d, noise, dtype)


class Literal:
    """Random frames far from the origin, and their scores by full covariances."""

    def __init__(self, n, D, d, noise, dtype):
        rng = np.random.default_rng(D)
        self.n, self.d, self.noise = n, d, noise
        self.X = (rng.normal(size=(n, D)) + 50).astype(dtype)
        bases = [np.linalg.qr(rng.normal(size=(D, D)))[0][:d] for _ in range(n)]
        self.frames = np.stack(bases, axis=1).astype(dtype)
        self.variances = np.sort(rng.uniform(0, 2, size=(d, n)), axis=0)[::-1]
        self.log_weights = rng.normal(size=n)
        self.log_weights[7] = -np.inf
        # New rows close to points: a few standard deviations of the noise, and along the frame.
        along = np.einsum("ln,lnk->nk", rng.normal(size=(d, n)) * np.sqrt(self.variances), self.frames)
        self.bases = [np.linalg.qr(self.frames[:, j].T.astype(np.float64), mode="complete")[0] for j in range(n)]
        self.queries = (self.X + along + 0.5 * np.sqrt(noise) * rng.normal(size=(n, D)))[:13].astype(dtype)

    def kernel(self):
        return Frames(self.frames, self.variances, self.noise)

    def scores(self, rows, noise=None, depth=None):
        noise, depth = self.noise if noise is None else noise, self.d if depth is None else depth
        scores = np.empty((len(rows), self.n))
        for j, basis in enumerate(self.bases):  # of the frame and its complement: there the covariance is diagonal
            spreads = np.full(basis.shape[1], noise)
            spreads[:depth] += self.variances[:depth, j]
            parts = (rows.astype(np.float64) - self.X[j]) @ basis
            scores[:, j] = self.log_weights[j] - 0.5 * ((parts**2 / spreads).sum(1) + np.log(spreads).sum())
        return scores


def softmax(scores):
    log_sums = logsumexp(scores, axis=1)
    return log_sums, np.exp(scores - log_sums[:, None])


def skip_cases(kind, dtype, noise):
    if kind == "torch":
        needs("torch")
    if dtype == "float32" and noise < 1e-3:
        pytest.skip("float32 rows 50 away from the origin do not hold such a noise")


@pytest.mark.parametrize("kind", HERE)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("n", "D", "d", "noise"), SHAPES)
def test_every_reduction_equals_its_formula(kind, dtype, n, D, d, noise):
    skip_cases(kind, dtype, noise)
    truth = literal(n, D, d, noise, dtype)
    problem = prepare(kind, truth.X, log_weights=truth.log_weights, leave_one_out=True)
    placed = problem.at(truth.kernel())
    values = np.random.default_rng(1).normal(size=(n, 2))
    own = np.arange(n)
    some = np.array([5, 2, 29])
    for queries, rows, left_out in (
        (truth.queries, truth.queries, None),
        (None, truth.X, own),
        (some, truth.X[some], some),
    ):
        scores = truth.scores(rows)
        if left_out is not None:
            scores[np.arange(len(rows)), left_out] = -np.inf
        log_sums, p = softmax(scores)
        size = max(np.abs(log_sums).max(), 1.0)
        tolerance = TOLERANCE[dtype] * size
        np.testing.assert_allclose(placed.log_sums(queries), log_sums, atol=tolerance, rtol=0)
        means = placed.softmax_means(values, queries)
        np.testing.assert_allclose(means.log_sums, log_sums, atol=tolerance, rtol=0)
        np.testing.assert_allclose(means.means, p @ values, atol=10 * tolerance)
        shifts = placed.mean_shifts(queries).means
        np.testing.assert_allclose(shifts, p @ truth.X.astype(float) - rows, atol=20 * tolerance)
        difference = rows[:, None].astype(float) - truth.X
        expected = np.einsum("ij,ijk,ijl->kl", p, difference, difference)
        np.testing.assert_allclose(placed.scatter(None, queries).scatter, expected, atol=10 * tolerance * len(rows))
        entropy = -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=1)
        np.testing.assert_allclose(np.log(placed.perplexities(queries)), entropy, atol=20 * tolerance)
        listed = np.zeros_like(p)
        for query, point, shares in placed.neighbors_above(1e-9, queries):
            listed[query, point] = shares
        np.testing.assert_allclose(listed, p, atol=10 * tolerance + 1e-7)
        assert np.all(listed[p > 2e-9] > 0)
        assert np.all(p[listed > 0] > 0.5e-9)


@pytest.mark.parametrize("kind", HERE)
@pytest.mark.parametrize(("n", "D", "d", "noise"), SHAPES)
def test_listed_scores_are_exact(kind, n, D, d, noise):
    skip_cases(kind, "float64", noise)
    truth = literal(n, D, d, noise, "float64")
    problem = prepare(kind, truth.X, log_weights=truth.log_weights)
    score = problem.at(truth.kernel()).placed.pair_scores(problem.queries(truth.queries, None))
    query, point = np.divmod(np.arange(13 * n), n)
    expected = truth.scores(truth.queries).ravel()
    np.testing.assert_allclose(score(query, point), expected, rtol=1e-7 if noise < 1e-3 else 1e-10)


@pytest.mark.parametrize("kind", HERE)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("n", "D", "d", "noise"), SHAPES)
def test_a_table_serves_every_depth_and_noise(kind, dtype, n, D, d, noise):
    skip_cases(kind, dtype, noise)
    truth = literal(n, D, d, noise, dtype)
    problem = prepare(kind, truth.X, log_weights=truth.log_weights)
    depths, noises = sorted({0, d // 2, d}), [noise, 3 * noise]
    placed = problem.at(Frames(truth.frames, truth.variances, noises, depths))
    left_out = np.full(13, -1)
    left_out[4] = 11
    table = placed.log_sums_table(truth.queries, left_out, skips=([1, 1, 9], [2, 3, 0]))
    assert table.shape == (len(depths), 2, 13)
    for m, depth in enumerate(depths):
        for s, variance in enumerate(noises):
            scores = truth.scores(truth.queries, variance, depth)
            scores[[1, 1, 9, 4], [2, 3, 0, 11]] = -np.inf
            expected = logsumexp(scores, axis=1)
            tolerance = TOLERANCE[dtype] * max(np.abs(expected).max(), 1.0)
            np.testing.assert_allclose(table[m, s], expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_queries_on_the_frame_of_a_point_have_no_negative_residual(dtype):
    """Their residual is the difference of two equal numbers, of which one may be rounded up and the other down."""
    from vicinal._engine.frames.kernels import project

    rng = np.random.default_rng(3)
    points = rng.normal(size=(3, 40)).astype(dtype)
    frames = rng.normal(size=(1, 3, 40))
    frames = (frames / np.linalg.norm(frames, axis=1)).astype(dtype)
    offsets = np.einsum("lkj,kj->lj", frames, points)
    residuals, squares = np.empty((2, 40, 40), dtype), np.empty((1, 40, 40), dtype)
    queries = np.ascontiguousarray((points + 2 * frames[0]).T)
    project(queries, points, frames, offsets, np.array([0, 1]), residuals, squares)
    difference = queries[:, :, None].astype(np.float64) - points
    distances = np.square(difference).sum(axis=1)
    along = np.square(np.einsum("ikj,kj->ij", difference, frames[0]))
    tolerance = 50 * np.finfo(dtype).eps * (1 + distances.max())
    np.testing.assert_allclose(residuals[0], distances, atol=tolerance)
    np.testing.assert_allclose(residuals[1], distances - along, atol=tolerance)
    assert np.all(residuals >= 0)


@pytest.mark.parametrize("kind", HERE)
def test_a_query_without_points_has_no_neighbours(kind):
    skip_cases(kind, "float64", 1.0)
    problem = prepare(kind, np.zeros((1, 2)), leave_one_out=True)
    placed = problem.at(Frames(np.array([[[1.0, 0.0]]]), np.ones((1, 1)), 0.5))
    assert placed.log_sums()[0] == -np.inf
    assert list(placed.neighbors_above(1e-3)) == []


def test_what_frames_cannot_answer_is_said():
    truth = literal(30, 5, 2, 0.2, "float64")
    problem = prepare("reference", truth.X)
    with pytest.raises(TypeError, match="a metric that all points share"):
        problem.at(truth.kernel()).nearest(2)
    several = problem.at(Frames(truth.frames, truth.variances, [0.1, 0.2], [1, 2]))
    for ask in (several.log_sums, several.perplexities, several.mean_shifts):
        with pytest.raises(ValueError, match="one depth and one noise, got 2 and 2"):
            ask()


def test_many_directions_in_many_columns_take_many_queries_at_a_time():
    """Products copy one frame of a tile at a time; memory for all of them was reserved, and left one query per block."""
    n, D, d = 512, 256, 64
    rng = np.random.default_rng(0)
    frames = np.broadcast_to(np.eye(D)[:d, None], (d, n, D))
    problem = prepare("cpu", rng.normal(size=(n, D)))
    placed = problem.at(Frames(frames, np.ones((d, n)), 0.1)).placed
    queries, tile = placed._block_shape("products", 500)
    assert tile == n
    assert queries >= 100
    numbers = queries * tile * (d + placed.shape[0] + 6) + 2 * tile * D
    assert 8 * numbers <= placed._backend.memory // (placed._backend.threads + 1)
