"""Test that the pair engine finds neighbours exactly by every method, and sums over listed neighbours."""

import numpy as np
import pytest
from needs import needs

from vicinal import Engine
from vicinal._engine import Match, prepare
from vicinal._engine.accuracy import round_centre
from vicinal._engine.backends import BACKENDS
from vicinal._engine.families import Frames

# Those of one machine: Dask workers give the bits of "cpu", to which tests/test_dask.py holds them.
HERE = [name for name in BACKENDS if name != "dask"]


def backend(name):
    """An engine of a backend of the table, so that a new backend is held to these laws by its line there."""
    if name == "torch":
        needs("torch")
        return Engine("torch", device="cpu")
    return name


ALL = 10**9
WAYS = {
    "in a tree": {"TREE_FROM_QUERIES": 0, "TREE_FROM_POINTS": 0},
    "by compiled kernels": {"TREE_FROM_QUERIES": ALL, "SEARCH_INSERTED": ALL, "SEARCH_ROWS": 70, "SEARCH_QUERIES": 32},
    "by sorting": {"TREE_FROM_QUERIES": ALL, "SEARCH_INSERTED": 0, "SEARCH_ROWS": 50},
}


@pytest.fixture(params=WAYS)
def way(request, forced):
    """All ways in which neighbours are found, whatever the number of rows."""
    forced(**WAYS[request.param])


def literal_neighbors(queries, points, left_out, k):
    """The k nearest points, nearest first and ties in the order of the points, from differences in float64."""
    squares = ((queries[:, None].astype(float) - points[None].astype(float)) ** 2).sum(-1)
    hit = np.flatnonzero(left_out >= 0)
    squares[hit, left_out[hit]] = np.inf
    order = np.argsort(squares, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(squares, order, axis=1)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("d", [1, 3, 14])
def test_nearest_is_a_sort_of_all_distances(name, dtype, d):
    rng = np.random.default_rng(d)
    X = rng.integers(0, 5, size=(120, d)).astype(dtype) / 4  # exact, and full of ties and twins
    n = np.arange(120)
    problem = prepare(backend(name), X, log_weights=rng.normal(size=120), leave_one_out=True)
    some, new = rng.permutation(120)[:50], rng.integers(0, 5, size=(40, d)).astype(dtype) / 4
    skip = np.where(np.arange(40) % 2, np.arange(40), -1)
    for k in (1, 4, 119):
        for queries, given, left_out in ((None, X, n), (some, X[some], some)):
            indices, squares = literal_neighbors(given, X, left_out, k)
            found = problem.at().nearest(k, queries)
            np.testing.assert_array_equal(found.indices, indices)
            np.testing.assert_allclose(found.scores, squares, rtol=1e-12)
        found = problem.at().nearest(k, new, left_out=skip)
        np.testing.assert_array_equal(found.indices, literal_neighbors(new, X, skip, k)[0])


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_nearest_of_present_points_and_far_queries_is_a_sort_of_their_distances(name, dtype):
    """Ties and twins, points that are absent, queries far away, and rows so far that products lose all digits."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 5, size=(120, 3)).astype(dtype) / 4
    X[60:] += 2.0**20
    new = np.r_[rng.integers(0, 5, size=(40, 3)) / 4, [[1e15, 0.0, 0.0]]].astype(dtype)
    skip = np.where(np.arange(41) % 2, np.arange(41), -1)
    absent = np.arange(120) % 7 == 0
    placed = prepare(backend(name), X, log_weights=np.where(absent, -np.inf, 0.3)).at()
    present = np.flatnonzero(~absent)
    numbers = np.where(absent, -1, np.cumsum(~absent) - 1)
    for k in (1, 4, 30):
        found = placed.nearest(k, new, skip)
        indices, squares = literal_neighbors(new, X[present], np.where(skip >= 0, numbers[skip], -1), k)
        np.testing.assert_array_equal(found.indices[:-1], present[indices[:-1]])
        np.testing.assert_allclose(found.scores[:-1], squares[:-1], rtol=1e-12)
        np.testing.assert_allclose(found.scores[-1], squares[-1], rtol=1e-7)  # torch moves such a row closer in float32


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("name", HERE)
def test_nearest_in_float32_is_decided_in_float64(name):
    """Far from the origin scores come from differences of rounded images, and a twin at distance 0 is no measure of it."""
    rng = np.random.default_rng(0)
    far = np.repeat([[-900.0], [900.0]], 60, axis=0)
    X = (far + 1e-3 * rng.normal(size=(120, 3))).astype(np.float32)
    X[::4] = X[1::4]
    A = np.eye(3) + 0.3 * rng.normal(size=(3, 3))
    problem = prepare(backend(name), X, leave_one_out=True)
    images = (X.astype(np.float64) - problem.centre) @ A.T
    np.testing.assert_array_equal(
        problem.at(A).nearest(7).indices, literal_neighbors(images, images, np.arange(120), 7)[0]
    )


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("d", [2, 12])
def test_an_outlier_does_not_hide_neighbors(name, d):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(150, d))
    X[7] = 1e20
    found = prepare(backend(name), X, leave_one_out=True).at().nearest(5)
    others = np.delete(np.arange(150), 7)
    np.testing.assert_array_equal(found.indices[others], literal_neighbors(X, X, np.arange(150), 5)[0][others])


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("d", [2, 15])
def test_all_that_tie_with_the_kth_are_listed(name, d):
    rng = np.random.default_rng(d)
    grid = rng.integers(0, 3, size=(90, d))
    X = 0.1 * grid + 7.0  # 0.3 - 0.2 and 0.2 - 0.1 differ in their last bit
    exact = ((grid[:, None] - grid[None]) ** 2).sum(-1)
    np.fill_diagonal(exact, 10**9)
    placed = prepare(backend(name), X, leave_one_out=True, log_weights=rng.normal(size=90)).at()
    seen = np.zeros((90, 90), dtype=bool)
    for query, point, squares in placed.nearest_with_ties(6):
        assert not seen[query, point].any()
        seen[query, point] = True
        np.testing.assert_allclose(squares, 0.01 * exact[query, point], atol=1e-12)
        same = query[1:] == query[:-1]
        assert (np.diff(squares)[same] >= 0).all()
    np.testing.assert_array_equal(seen, exact <= np.sort(exact, axis=1)[:, 5:6])


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("d", [2, 15])
def test_distances_tie_to_twelve_digits(name, d):
    """This also holds beyond the error of a tree or of products."""
    rng = np.random.default_rng(d)
    directions = rng.normal(size=(100, d))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    squares = np.where(np.arange(100) < 5, 1.0, 1.0 + 1e-12)
    squares[30:] = 1.0 + 1e-9
    X = np.vstack([np.zeros(d), np.sqrt(squares)[:, None] * directions])
    found = [point for _, point, _ in prepare(backend(name), X, leave_one_out=True).at().nearest_with_ties(3, [0])]
    np.testing.assert_array_equal(np.sort(np.concatenate(found)), np.arange(1, 31))


@pytest.mark.usefixtures("way")
def test_nearest_with_ties_of_a_kernel_per_point_is_an_error():
    X = np.random.default_rng(0).normal(size=(20, 3))
    frames = Frames(np.tile(np.eye(3)[:1], (1, 20, 1)), np.ones((1, 20)), 0.1)
    placed = prepare("reference", X, log_weights=np.zeros(20)).at(frames)
    with pytest.raises(TypeError, match="nearest_with_ties is for a metric that all points share"):
        placed.nearest_with_ties(3)


def test_fewer_points_than_neighbors_are_refused():
    for X in (np.zeros((4, 2)), np.arange(8.0).reshape(4, 2)):
        with pytest.raises(ValueError, match="k=4 neighbours were requested, but some queries have fewer"):
            prepare("reference", X, leave_one_out=True).at().nearest(4)


def test_neighbors_in_thousands_of_columns_are_found_by_products():
    """The number of points from which a tree is faster grows with a power of the columns, which once overflowed from 900 on."""
    X = np.random.default_rng(0).normal(size=(70, 3000))
    indices, squares = literal_neighbors(X, X, np.arange(70), 3)
    nearest = prepare("cpu", X, leave_one_out=True).at().nearest(3)
    np.testing.assert_array_equal(nearest.indices, indices)
    np.testing.assert_allclose(nearest.scores, squares, rtol=1e-12)


def test_threads_and_blocks_do_not_change_neighbors():
    rng = np.random.default_rng(0)
    for d in (3, 20):
        X = rng.normal(size=(3000, d))
        first, *others = (
            prepare(Engine("reference", threads=threads, memory="1 MB"), X, leave_one_out=True).at().nearest(9)
            for threads in (1, 2, 3)
        )
        for other in others:
            np.testing.assert_array_equal(first.indices, other.indices)
            np.testing.assert_array_equal(first.scores, other.scores)


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_the_centre_takes_no_digits_from_the_rows(scale):
    """Most rows can be recovered exactly: the centre that was subtracted has so few digits that nothing was rounded."""
    rng = np.random.default_rng(0)
    X = scale * (rng.normal(size=(400, 4)) * [1, 1e-6, 1e3, 1] + [0, 1, 1e6, 40])
    X[3] = 1e5 * scale
    centre = round_centre(X)
    bulk = np.delete(X, 3, axis=0)
    np.testing.assert_array_equal((bulk - centre) + centre, bulk)
    spread = scale * np.array([1, 1e-6, 1e3, 1])
    assert (np.abs(centre - scale * np.array([0, 1, 1e6, 40])) < spread).all()
    np.testing.assert_array_equal(round_centre(np.full((5, 2), 0.1)), [0.1, 0.1])


# -- some of the rows, and listed neighbours -------------------------------------------------------------------


RNG = np.random.default_rng(5)
X = RNG.normal(size=(40, 4))
X[3] = X[17] = X[30]
VALUES = {
    "class": RNG.integers(0, 3, 40),
    "gaussian": RNG.normal(size=(40, 2)),
    "dot": RNG.dirichlet(np.ones(3), 40),
}
WEIGHT = RNG.uniform(0.2, 2.0, 40)
METRICS = {"matrix": RNG.normal(size=(2, 4)), "diagonal": RNG.normal(size=4), "none": None}


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("kind", VALUES)
def test_some_rows_are_a_problem_of_their_own(name, kind):
    some = np.array([9, 3, 17, 2, 30, 25, 38])
    whole = prepare(
        backend(name), X + 5, log_weights=np.log(WEIGHT), leave_one_out=True, match=Match(kind, VALUES[kind])
    )
    alone = prepare(
        "reference",
        X[some],
        log_weights=np.log(WEIGHT[some]),
        leave_one_out=True,
        match=Match(kind, VALUES[kind][some]),
    )
    A = METRICS["matrix"]
    got, expected = (problem.at(A).gradient(WEIGHT[some]) for problem in (whole.some(some), alone))
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-10)
    new = RNG.normal(size=(5, 4))
    np.testing.assert_allclose(whole.some(some).at(A).log_sums(new + 5), alone.at(A).log_sums(new), atol=1e-10)


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("kind", VALUES)
def test_log_agreement_is_that_of_the_pull(name, kind):
    problem = prepare(backend(name), X, log_weights=np.log(WEIGHT), leave_one_out=True, match=Match(kind, VALUES[kind]))
    # At the larger scales the exponentials of all mates underflow.
    for scale in (0.1, 1.0, 40.0):
        placed = problem.at(scale * METRICS["matrix"])
        for queries in (None, np.array([5, 30, 2])):
            expected = placed.pull(queries=queries, objective="likelihood").log_agreement
            np.testing.assert_allclose(placed.log_agreement(queries), expected, rtol=1e-9, atol=1e-12)
            assert np.isfinite(expected).all()


# -- little memory ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["reference", "cpu"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_neighbours_are_found_some_points_at_a_time(name, dtype, forced):
    """All rows used to be mapped for 64 queries or more, whatever the memory."""
    rng = np.random.default_rng(0)
    X, A = rng.normal(size=(400, 15)).astype(dtype), rng.normal(size=(12, 15))
    problem = prepare(name, X, leave_one_out=True)
    expected = problem.at(A).nearest(7, np.arange(70))
    forced(LISTED_BYTES=8 * 12 * 200, ALGEBRA_ROWS=256)
    found = problem.at(A).nearest(7, np.arange(70))
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-12)


@pytest.mark.parametrize("weights", [None, "given"])
def test_perplexities_take_queries_in_blocks(weights):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2500, 30))
    log_weights = None if weights is None else rng.normal(size=2500)
    for queries in (None, X[:2400] + 0.1):
        answers = [
            prepare(engine, X, log_weights=log_weights, leave_one_out=True).at(np.full(30, 0.5)).perplexities(queries)
            for engine in ("reference", Engine("cpu", memory="1 MB"), "cpu")
        ]
        np.testing.assert_allclose(answers[1], answers[0], rtol=1e-9)
        np.testing.assert_allclose(answers[2], answers[0], rtol=1e-9)
