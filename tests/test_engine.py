"""The laws of the pair engine, on every backend and in both precisions.

The tests run on every backend of `backends.BACKENDS`, so that a new one is held to all of them by its line in that table (Dask, which
needs a cluster, is held to the bits of "cpu" in tests/test_dask.py).
A backend that can do the same work in several ways (the compiled one has fused kernels, matrix products and differences,
and sees each pair once or twice) is tested with each of its methods: `WAYS` defines how each is forced.
"""

import itertools
import re
import textwrap
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from fuzz.pruning import PRUNED
from needs import needs
from scipy.spatial.distance import cdist

from vicinal import Engine
from vicinal._engine import Match, prepare
from vicinal._engine.backends import BACKENDS
from vicinal._engine.cpu.parts import TILE
from vicinal._engine.queries import Queries

# Those of one machine: Dask workers give the bits of "cpu", to which tests/test_dask.py holds them.
HERE = [name for name in BACKENDS if name != "dask"]

# -- backends and their ways ------------------------------------------------------------------------------------------


FORCED = {
    "each_pair_twice": {"ONCE_FROM_ROWS": np.inf},
    # COLUMN_TILES: several pieces of work, however few the rows
    "each_pair_once": {
        "ONCE_FROM_ROWS": 0, "HALF_SUMS_FROM_ROWS": 0, "HALF_SCATTER_WORK": 0, "COLUMN_TILES": 2,
    },
    "fused": {"PRODUCTS_FROM": np.inf, "PRODUCTS_FROM_WITHOUT_VALUES": np.inf, "HALF_PRODUCTS_FROM": np.inf},
    "products": {
        "PRODUCTS_FROM": 0, "PRODUCTS_FROM_WITHOUT_VALUES": 0, "HALF_PRODUCTS_FROM": 0, "PRODUCT_ROWS": 24, "STRIP_TILES": 1,
    },
    "differences": {"PRODUCT_TOLERANCE": -1.0},
    "pruned": PRUNED,
}  # fmt: skip
WAYS = [
    *HERE,
    "reference-differences",
    "cpu-each_pair_twice-fused",
    "cpu-each_pair_twice-products",
    "cpu-each_pair_twice-differences",
    "cpu-each_pair_once-fused",
    "cpu-each_pair_once-products",
    "cpu-each_pair_once-differences",
    "cpu-pruned",
]


@pytest.fixture(params=WAYS)
def kind(request, forced):
    """The name of a backend that is forced to use one of its methods."""
    backend, *ways = request.param.split("-")
    if backend == "torch":
        needs("torch").set_num_threads(1)
    forced(ARRAY_BLOCK_PAIRS=2**13)  # several blocks, however few the rows
    forced(KEPT_BYTES=2**16)  # several strips in a block
    for way in ways:
        forced(**FORCED[way])
    return backend


@pytest.fixture(autouse=True, scope="module")
def threads_that_do_not_spin():
    """The libraries' own threads wait for work by spinning, which costs more than all sums of these small problems."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        yield


precisions = pytest.mark.parametrize("dtype", ["float64", "float32"])
objectives = pytest.mark.parametrize("objective", ["accuracy", "likelihood"])
TOLERANCE = {"float64": 1e-10, "float32": 2e-4}


def assert_close(got, expected, dtype="float64", scale=None):
    """Equal up to the tolerance, relative to the largest entry, or to a scale for sums whose terms cancel."""
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.dtype == np.float64
    assert got.shape == expected.shape
    scale = np.max(np.abs(expected), initial=0.0) if scale is None else scale
    assert np.max(np.abs(got - expected), initial=0.0) <= TOLERANCE[str(dtype)] * scale


# -- the literal loop -------------------------------------------------------------------------------------------------


class Softmax(NamedTuple):
    """The log-sums (m,) and the softmax weights (m, n) of `contract.py`."""

    log_sums: np.ndarray
    weights: np.ndarray


def literal_softmax(queries, points, log_weights=None, left_out=None):
    """The softmax neighbours of each query, one query after the other, from differences in float64."""
    log_sums, weights = np.empty(len(queries)), np.empty((len(queries), len(points)))
    points = points.astype(float)
    for i, query in enumerate(queries.astype(float)):
        scores = -0.5 * np.sum((query - points) ** 2, axis=1)
        if log_weights is not None:
            scores += log_weights
        if left_out is not None and left_out[i] >= 0:
            scores[left_out[i]] = -np.inf
        exponentials = np.exp(scores - scores.max())
        log_sums[i] = scores.max() + np.log(exponentials.sum())
        weights[i] = exponentials / exponentials.sum()
    return Softmax(log_sums, weights)


def literal_scatter(weights, u, v):
    """``sum_ij w_ij (u_i - v_j)(u_i - v_j)'``."""
    total = np.zeros((u.shape[1], v.shape[1]))
    for row, mine in zip(weights, u.astype(float), strict=True):
        difference = mine - v
        total += (row[:, None] * difference).T @ difference
    return total


def literal_match(match):
    """The agreement m_ij of all pairs."""
    values = match.values
    if match.kind == "class":
        return (values[:, None] == values).astype(float)
    if match.kind == "gaussian":
        return np.exp(-0.5 * ((values[:, None] - values) ** 2).sum(-1))
    return values @ values.T


def literal_pull(p, m, row_weights, rows, images, objective):
    """The agreement a_i of the queries, which are resident rows, and the pull on all images, as defined by `Pull`."""
    m = m[rows]
    a = (p * m).sum(axis=1, keepdims=True)
    w = np.zeros((len(images), len(images)))
    w[rows] = p * (a - m) if objective == "accuracy" else p - p * m / np.where(a > 0, a, 1.0)
    w[rows] *= row_weights[:, None]
    pull = np.zeros_like(images)
    for j, image in enumerate(images):
        pull[j] = (w[:, j] + w[j]) @ (image - images)
    return a[:, 0], pull


class Case:
    """Rows under a metric, with everything optional, and the results of the literal loop.

    Parameters
    ----------
    d : int
        Dimensions of the images; the rows have one more.
    hermit : float, optional
        How far row 7 is from all others.
    """

    def __init__(self, dtype, n=61, d=3, weights=True, own=True, hermit=0.0, seed=0):
        rng = np.random.default_rng(seed)
        self.n, self.d, self.own, self.dtype = n, d, own, dtype
        X, new = rng.normal(size=(n, d + 1)), 1.2 * rng.normal(size=(9, d + 1))
        X[3] = X[2]
        X[7, 0] += hermit
        new[0] = X[2]
        offset = 50.0 * rng.normal(size=d + 1)
        self.X, self.new = (X + offset).astype(dtype), (new + offset).astype(dtype)
        self.metric = 2.0 * rng.normal(size=(d, d + 1)) / np.sqrt(d * (d + 1))  # typical scores are about -4
        self.log_weights = rng.normal(size=n) if weights else None
        if weights:
            self.log_weights[[1, n - 1]] = -np.inf  # not there at all
        self.left_out_of_new = np.array([2, -1, 5, 6, -1, 5, 0, 1, 3])
        self.some = rng.permutation(n)[:17]
        self.codes = rng.integers(0, 4, n)
        self.codes[self.codes == 2] = 3  # class 2 is empty
        self.codes[9] = 4  # a class of one row
        self.values = (rng.normal(size=(n, 3)) + 5.0).astype(dtype)
        self.targets = rng.random((n, 2))
        self.targets[5, 0] = 0.0
        self._row_weights = rng.random(n)

    def at(self, kind, match=None, **options):
        """The case on a backend."""
        engine = Engine(kind, **{"threads": 2} | options)
        problem = prepare(engine, self.X, log_weights=self.log_weights, leave_one_out=self.own, match=match)
        assert problem.backend == kind
        return problem.at(self.metric)

    def match(self, kind):
        """The match of this kind, of the classes or the targets."""
        return Match(kind, self.codes if kind == "class" else self.targets)

    def asked(self, queries):
        """The arguments of a call, for all rows, some positions or new rows."""
        if queries == "new":
            return {"queries": self.new, "left_out": self.left_out_of_new}
        return {"queries": None if queries == "all" else self.some}

    def rows(self, queries):
        """The queries' positions, where they are resident."""
        return np.arange(self.n) if queries == "all" else self.some

    def row_weights(self, queries):
        """A weight per query."""
        return self._row_weights[: len(self.new)] if queries == "new" else self._row_weights[self.rows(queries)]

    @cached_property
    def _origin(self):
        return self.X.astype(float).mean(axis=0)

    def coordinates(self, queries, of):
        """The rows or images of the queries, in float64, about an origin that does not matter."""
        rows = self.new if queries == "new" else self.X[self.rows(queries)]
        rows = rows.astype(float) - self._origin
        return rows if of == "rows" else rows @ self.metric.T

    @cache  # noqa: B019  (the cases are few and kept anyway)
    def softmax(self, queries):
        """The literal softmax."""
        own = self.rows(queries) if self.own and queries != "new" else None
        left_out = self.left_out_of_new if queries == "new" else own
        images = self.coordinates("all", "images")
        return literal_softmax(self.coordinates(queries, "images"), images, self.log_weights, left_out)

    @cache  # noqa: B019
    def scatter(self, queries, of, weighted=True):
        """The literal pooled scatter."""
        w = self.softmax(queries).weights * (self.row_weights(queries)[:, None] if weighted else 1.0)
        return literal_scatter(w, self.coordinates(queries, of), self.coordinates("all", of))

    @cache  # noqa: B019
    def pull(self, rule, queries, objective):
        """The literal agreement and pull."""
        p, rows = self.softmax(queries).weights, self.rows(queries)
        images = self.coordinates("all", "images")
        return literal_pull(p, literal_match(self.match(rule)), self.row_weights(queries), rows, images, objective)


case = cache(Case)  # the same case serves all backends


def small_cases(dtype, dimensions=(3, 1, 5, 2)):
    """Cases with and without weights, with and without the row itself."""
    options = itertools.cycle(itertools.product((True, False), repeat=2))
    for d, (weights, own) in zip(dimensions, options, strict=False):
        yield case(dtype, d=d, weights=weights, own=own)


def large_cases(dtype, kind):
    """Several tiles of points, and a row whose terms underflow without a maximum of its own."""
    # Among few rows, the pull of the hermit is the largest, and a difference of numbers that float32 does not tell apart.
    hermit, tile = (60.0, TILE) if dtype == "float64" else (20.0, 2 * TILE)
    yield case(dtype, n=several_tiles(kind, 2, tile), d=6, weights=False, hermit=hermit)
    yield case(dtype, n=several_tiles(kind, 1, tile), d=6, weights=True, hermit=hermit)


def several_tiles(kind, whole=2, tile=TILE):
    """Rows for some whole tiles and a part of one; backends of array arithmetic have blocks, which are smaller here."""
    return 70 * (whole + 1) if kind in ("reference", "torch") else tile * whole + 100


def cases(dtype, size, kind):
    return large_cases(dtype, kind) if size == "several tiles" else small_cases(dtype)


sizes = pytest.mark.parametrize("size", ["small", "several tiles"])


# -- agreement with the literal loop ----------------------------------------------------------------------------------


def check_softmax(case, kind):
    placed = case.at(kind, case.match("class"))
    for queries in ("all", "some", "new"):
        asked = case.asked(queries)
        log_sums, p = case.softmax(queries)
        assert_close(placed.log_sums(**asked), log_sums, case.dtype)
        means = placed.softmax_means(case.values, **asked)
        assert_close(means.log_sums, log_sums, case.dtype)
        assert_close(means.means, p @ case.values, case.dtype)
        shifts = placed.mean_shifts(**asked)
        images = case.coordinates("all", "images"), case.coordinates(queries, "images")
        expected = np.array([row @ (images[0] - mine) for row, mine in zip(p, images[1], strict=True)])
        assert_close(shifts.log_sums, log_sums, case.dtype)
        assert_close(shifts.means, expected, case.dtype)
        shares = placed.class_shares(**asked)
        assert_close(shares, p @ np.eye(5)[case.codes], case.dtype)
        assert np.all(shares[:, 2] == 0)  # a class without points
        with np.errstate(divide="ignore", invalid="ignore"):
            entropy = -np.where(p > 0, p * np.log(p), 0.0).sum(axis=1)
        assert_close(placed.perplexities(**asked), np.exp(entropy), case.dtype)


@precisions
@sizes
def test_softmax_reductions_equal_the_literal_loop(kind, dtype, size):
    for case in cases(dtype, size, kind):
        check_softmax(case, kind)


@precisions
def test_any_number_of_dimensions(kind, dtype):
    """Kernels take coordinates in groups of two and four, and what is left over."""
    for case in small_cases(dtype, (1, 2, 3, 4, 5, 6, 7, 8, 50)):
        placed, expected = case.at(kind), case.softmax("all")
        assert_close(placed.log_sums(), expected.log_sums, dtype)
        assert_close(placed.softmax_means(case.values).means, expected.weights @ case.values, dtype)
        images = case.coordinates("all", "images")
        assert_close(placed.scatter().scatter, literal_scatter(expected.weights, images, images), dtype)
        placed, r = case.at(kind, case.match("class")), case.row_weights("all")
        for objective in ("accuracy", "likelihood"):
            assert_close(placed.pull(r, objective=objective).pull, case.pull("class", "all", objective)[1], dtype)


def check_scatter(case, kind):
    placed = case.at(kind)
    for queries in ("all", "some", "new"):
        log_sums, _ = case.softmax(queries)
        r = case.row_weights(queries)
        for of in ("images", "rows"):
            got = placed.scatter(r, **case.asked(queries), space=of)
            assert_close(got.log_sums, log_sums, case.dtype)
            assert_close(got.scatter, case.scatter(queries, of), case.dtype)
        if queries != "new":
            squares = placed.squares(r, case.asked(queries)["queries"])
            assert_close(squares.log_sums, log_sums, case.dtype)
            assert_close(squares.total, np.trace(case.scatter(queries, "images")), case.dtype)
        got = placed.scatter(**case.asked(queries))
        assert_close(got.scatter, case.scatter(queries, "images", weighted=False), case.dtype)
    log_sums, p = case.softmax("all")
    for n_first in {1, None}:
        got = placed.scatter_and_means(case.values, case.row_weights("all"), n_first=n_first)
        assert_close(got.log_sums, log_sums, case.dtype)
        assert_close(got.scatter, case.scatter("all", "images")[:n_first, :n_first], case.dtype)
        assert_close(got.means, p @ case.values, case.dtype)


@precisions
@sizes
def test_scatter_equals_the_literal_loop(kind, dtype, size):
    for case in cases(dtype, size, kind):
        check_scatter(case, kind)


@precisions
def test_fourth_moments_of_contributing(kind, dtype):
    """The verb that CONTRIBUTING adds as its example."""
    page = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    namespace = {}
    exec(textwrap.dedent(re.search(r"  ```python\n(.*?)  ```", page, re.DOTALL)[1]), namespace)
    for case in small_cases(dtype):
        for queries in ("all", "some"):
            p, images = case.softmax(queries).weights, [case.coordinates(which, "images") for which in (queries, "all")]
            expected = (p * cdist(*images, "sqeuclidean") ** 2).sum(axis=1)
            got = namespace["fourth_moments"](case.at(kind), case.asked(queries)["queries"])
            assert_close(got, expected, dtype)


def check_pull(case, kind, rule, objective):
    placed, rows = case.at(kind, case.match(rule)), case.coordinates("all", "rows")
    for queries in ("all", "some"):
        asked, r = case.asked(queries)["queries"], case.row_weights(queries)
        a, pull = case.pull(rule, queries, objective)
        got = placed.pull(r, asked, objective=objective)
        assert_close(got.log_sums, case.softmax(queries).log_sums, case.dtype)
        assert_close(np.exp(got.log_agreement), a, case.dtype)
        assert_close(got.pull, pull, case.dtype)
        gradient = placed.gradient(r, asked, objective=objective).pull
        assert_close(gradient, pull.T @ rows, case.dtype, scale=np.max(np.abs(pull).T @ np.abs(rows)))
        assert_close(np.exp(placed.log_agreement(asked)), a, case.dtype)


@precisions
@objectives
@pytest.mark.parametrize("rule", ["class", "gaussian", "dot"])
def test_pull_equals_the_literal_loop(kind, dtype, objective, rule):
    for case in small_cases(dtype):
        check_pull(case, kind, rule, objective)


@precisions
@objectives
@pytest.mark.parametrize("rule", ["class", "gaussian", "dot"])
def test_pull_over_several_tiles_equals_the_literal_loop(kind, dtype, objective, rule):
    for case in large_cases(dtype, kind):
        check_pull(case, kind, rule, objective)


@cache
def case_of_positive_weights(dtype):
    made = Case(dtype, n=TILE + 44, d=4, seed=1)
    made.log_weights = np.random.default_rng(2).normal(size=made.n)
    return made


@precisions
def test_positive_weights(kind, dtype):
    """With a point of weight 0, which all other cases with weights have, no pair is visited only once."""
    case = case_of_positive_weights(dtype)
    check_softmax(case, kind)
    check_scatter(case, kind)
    check_pull(case, kind, "class", "likelihood")
    check_pull(case, kind, "gaussian", "accuracy")


@precisions
@objectives
def test_diagonal_metrics_and_none(kind, dtype, objective):
    """A vector is a diagonal matrix, whose gradient is a diagonal; without a metric the rows are their own images."""
    case = Case(dtype, d=4)
    scales = np.array([1.0, 0.5, 2.0, 0.1, 0.7])
    problem = prepare(Engine(kind), case.X, leave_one_out=True, match=case.match("class"))
    rows = case.coordinates("all", "rows")
    for metric, scale in ((scales, scales), (None, np.ones(5))):
        expected = problem.at(np.diag(scale)).gradient(objective=objective)
        placed = problem.at(metric)
        got = placed.gradient(objective=objective)
        assert_close(got.log_sums, literal_softmax(rows * scale, rows * scale, None, np.arange(case.n)).log_sums, dtype)
        assert_close(got.pull, np.diag(expected.pull) if metric is not None else expected.pull, dtype)
        assert_close(placed.scatter().scatter, problem.at(np.diag(scale)).scatter().scatter, dtype)


@precisions
def test_the_verbs_of_the_contract(kind, dtype):
    """What a backend must implement, with all options: what points receive, and sums over a query's own class."""
    for case in small_cases(dtype):
        placed = case.at(kind, case.match("class")).placed
        for queries in ("all", "some", "new"):
            log_sums, p = case.softmax(queries)
            asked = placed_queries(case, queries)
            f = case.row_weights(queries)
            f[2] = 0.0
            spread = case.values[: len(f)]
            got = placed.softmax_sums(asked, f, case.values, spread)
            w = f[:, None] * p
            assert_close(got.log_sums, log_sums, dtype)
            assert_close(got.gathered, w @ case.values, dtype)
            assert_close(got.received, w.T @ spread, dtype)
            assert_close(placed.softmax_sums(asked, -f, None, spread).received, -w.T @ spread, dtype)
            assert_close(placed.softmax_sums(asked, None, None, spread[:, :1]).received, p.T @ spread[:, :1], dtype)
            assert placed.softmax_sums(asked, f, None).gathered.shape == (len(f), 0)
            if queries == "new":
                continue
            same = case.codes[case.rows(queries), None] == case.codes
            with np.errstate(invalid="ignore"):
                own = np.nan_to_num(w * same / (p * same).sum(axis=1, keepdims=True)) * f.astype(bool)[:, None]
            got = placed.softmax_sums(asked, f, case.values, spread, own_class=True)
            own = own * f[:, None] / np.where(f > 0, f, 1.0)[:, None]
            assert_close(got.gathered, own @ case.values, dtype)
            assert_close(got.received, own.T @ spread, dtype)


def placed_queries(case, queries):
    """The queries as a backend receives them."""
    if queries == "new":
        centre = prepare("reference", case.X).centre
        return Queries(rows=(case.new - centre).astype(case.dtype), left_out=case.left_out_of_new)
    positions = None if queries == "all" else case.some
    return Queries(positions=positions, left_out=case.rows(queries) if case.own else None)


# -- neighbours -------------------------------------------------------------------------------------------------------


def grid_case(dtype, n=90, d=3, seed=0):
    """Rows on a grid of whole numbers, hence many twins and ties, under a metric that keeps all digits."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-3, 4, size=(n, d)).astype(dtype)
    metric = np.array([[1.0, 0.0, 0.0], [0.0, 2.0, -1.0]])
    return X, metric, rng.integers(-3, 4, size=(11, d)).astype(dtype)


def literal_nearest(scores, k, left_out=None):
    """The k largest scores of each row, ties in the order of the points."""
    scores = scores.astype(float)
    if left_out is not None:
        hit = np.flatnonzero(left_out >= 0)
        scores[hit, left_out[hit]] = -np.inf
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


@precisions
@pytest.mark.parametrize("by", ["distance", "product"])
@pytest.mark.parametrize("k", [1, 4, 20])
def test_nearest_equals_a_sort_of_all_pairs_with_ties_by_index(kind, dtype, by, k):
    X, metric, new = grid_case(dtype)
    some, left_out = np.array([40, 3, 77]), np.array([3, -1] * 5 + [0])
    images, new_images = X @ metric.T, new @ metric.T
    for own in (True, False):
        placed = prepare(Engine(kind, threads=2), X, leave_one_out=own).at(metric)
        for mine, asked, skipped in (
            (images, {}, np.arange(len(X)) if own else None),
            (images[some], {"queries": some}, some if own else None),
            (new_images, {"queries": new, "left_out": left_out}, left_out),
        ):
            scores = -cdist(mine, images, "sqeuclidean") if by == "distance" else mine @ images.T
            expected = literal_nearest(scores, k, skipped)
            got = placed.nearest(k, **asked, by=by)
            np.testing.assert_array_equal(got.indices, expected)
            found = np.take_along_axis(scores, expected, axis=1)
            np.testing.assert_array_equal(got.scores, -found if by == "distance" else found)


@cache
def many_rows(dtype, d):
    """Rows far from the origin, their squared distances, and the three smallest of each."""
    X = (np.random.default_rng(1).normal(size=(2 * TILE + 100, d)) * 2.0 + 64.0).astype(dtype)
    squares = cdist(X.astype(float), X.astype(float), "sqeuclidean")
    np.fill_diagonal(squares, np.inf)
    return X, squares, np.sort(squares, axis=1)[:, :3]


@precisions
@pytest.mark.parametrize("d", [2, 12])
def test_nearest_neighbours_of_many_rows(kind, dtype, d):
    """Without ties, in few and in many coordinates and over several tiles, far from the origin."""
    X, squares, smallest = many_rows(dtype, d)
    got = prepare(Engine(kind, threads=2), X, leave_one_out=True).at(None).nearest(3)
    found = np.take_along_axis(squares, got.indices, axis=1)
    # Rows are centred in their own precision, so that near ties of float32 rows may change places.
    np.testing.assert_allclose(found, smallest, rtol=1e-12 if dtype == "float64" else 1e-5)
    np.testing.assert_allclose(got.scores, found, rtol=1e-12 if dtype == "float64" else 1e-5)


def test_nearest_finds_what_products_would_confuse(kind):
    """Two tight pairs a million apart: by products every distance within a pair would be lost in rounding."""
    X = np.array([[1e6, 0.0], [1e6 + 1e-4, 0.0], [-1e6, 0.0], [-1e6, 1e-4], [1e6, 3e-4]])
    got = prepare(Engine(kind), X, leave_one_out=True).at(None).nearest(2)
    np.testing.assert_array_equal(got.indices[:, 0], [1, 0, 3, 2, 0])
    np.testing.assert_array_equal(got.indices[[0, 1, 4], 1], [4, 4, 1])


def test_weights_do_not_change_who_is_near_but_weight_zero_is_absence(kind):
    X, metric, _ = grid_case("float64")
    weights = np.random.default_rng(2).normal(size=len(X))
    weights[::3] = -np.inf
    present = np.flatnonzero(weights > -np.inf)
    for by in ("distance", "product"):
        expected = prepare(Engine(kind), X[present]).at(metric).nearest(5, X + 0.0, by=by).indices
        got = prepare(Engine(kind), X, log_weights=weights).at(metric).nearest(5, X + 0.0, by=by)
        np.testing.assert_array_equal(got.indices, present[expected])


def test_more_neighbours_than_there_are_is_refused(kind):
    placed = prepare(Engine(kind), np.arange(6.0)[:, None], leave_one_out=True).at(None)
    np.testing.assert_array_equal(np.sort(placed.nearest(5).indices[0]), np.arange(1, 6))
    with pytest.raises(ValueError, match="k=6"):
        placed.nearest(6)


@precisions
def test_neighbors_above_lists_every_pair_of_weight_and_no_other(kind, dtype):
    for case in small_cases(dtype):
        placed = case.at(kind)
        for queries in ("all", "some", "new"):
            _, p = case.softmax(queries)
            least = 0.03
            assert np.abs(p - least).min() > 1e-6  # no pair is at the border
            got = np.zeros_like(p)
            seen = []
            for query, point, weight in placed.neighbors_above(least, **case.asked(queries)):
                assert np.all(got[query, point] == 0)
                got[query, point] = weight
                starts = query[np.flatnonzero(np.append(True, query[1:] != query[:-1]))]
                assert len(np.unique(starts)) == len(starts)  # the pairs of a query come together
                seen.extend(starts)
            assert len(set(seen)) == len(seen)
            kept = np.where(p >= least, p, 0.0)
            some = kept.any(axis=1)
            np.testing.assert_array_equal(got[some] > 0, kept[some] > 0)
            assert_close(got[some], kept[some] / kept[some].sum(axis=1, keepdims=True), dtype)
            assert not got[~some].any()


# -- laws -------------------------------------------------------------------------------------------------------------


def placed_rows(kind, X, metric=None, own=True, match=None, log_weights=None, **options):
    engine = Engine(kind, **options)
    return prepare(engine, X, leave_one_out=own, match=match, log_weights=log_weights).at(metric)


def everything(placed):
    """All reductions of a placement with classes, as a list of arrays."""
    pulls = [array for objective in ("accuracy", "likelihood") for array in placed.pull(objective=objective)]
    return [
        *placed.softmax_means(placed.images),
        placed.mean_shifts().means,
        *placed.scatter(),
        placed.class_shares(),
        placed.perplexities(),
        *pulls,
        *placed.nearest(3),
    ]


def rows_with_a_hermit(n=1700, d=5, dtype="float64"):
    """Three tiles and a part of one, a pair of twins, and a row so far away that its terms underflow."""
    X = np.random.default_rng(3).normal(size=(n, d)).astype(dtype)
    X[9] = X[8]
    X[70] += 60.0
    return X


def test_blocks_and_memory_do_not_matter(kind, forced):
    n = several_tiles(kind)
    X, match = rows_with_a_hermit(n, 3), Match("class", np.arange(n) % 3)
    expected = everything(placed_rows(kind, X, match=match))
    small = everything(placed_rows(kind, X, match=match, memory="1 MB"))
    forced(LEAST_BLOCKS=100, ARRAY_BLOCK_PAIRS=2**16)
    other = everything(placed_rows(kind, X, match=match))
    for answers in (small, other):
        for got, wanted in zip(answers, expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-11, atol=1e-11 * np.abs(wanted).max())


@pytest.mark.parametrize("rule", ["class", "gaussian", "dot"])
def test_threads_do_not_matter_to_the_last_bit(kind, rule):
    X = rows_with_a_hermit(several_tiles(kind, 3))
    rng = np.random.default_rng(4)
    match = Match(rule, rng.integers(0, 3, len(X)) if rule == "class" else rng.random((len(X), 2)))
    answers = []
    for threads in (1, 3):
        placed = placed_rows(kind, X, match=match, threads=threads)
        answers.append(everything(placed) if rule == "class" else placed.pull())
    for other in answers[1:]:
        for a, b in zip(answers[0], other, strict=True):
            if kind == "cpu":
                np.testing.assert_array_equal(a, b)
            else:  # NumPy's and torch's own sums may depend on the alignment of memory
                np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12 * np.abs(a).max())


def test_blocks_do_not_depend_on_threads_whatever_the_memory(kind):
    X = np.random.default_rng(15).normal(size=(700, 5))
    for memory in ("1 MB", "128 MB"):
        first, second = (placed_rows(kind, X, threads=t, memory=memory).scatter().scatter for t in (1, 6))
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("way", ["fused", "products"])
def test_exponentials_that_are_kept_are_those_made_anew(way, forced):
    """If they fit into the memory, the second sweep uses the exponentials of the first; the bits are the same with little memory."""
    forced(**FORCED["each_pair_once"], **FORCED[way])
    X, match = rows_with_a_hermit(), Match("class", np.arange(1700) % 3)
    little, much = (placed_rows("cpu", X, match=match, memory=memory, threads=2) for memory in ("1 MB", "128 MB"))
    np.testing.assert_array_equal(little.pull().pull, much.pull().pull)
    np.testing.assert_array_equal(little.scatter().scatter, much.scatter().scatter)


def test_permutation_and_translation(kind):
    rng = np.random.default_rng(3)
    X, codes = rng.normal(size=(150, 4)), rng.integers(0, 3, 150)
    order = rng.permutation(150)
    expected = placed_rows(kind, X, match=Match("class", codes))
    permuted = placed_rows(kind, X[order], match=Match("class", codes[order]))
    moved = placed_rows(kind, X + 1e4, match=Match("class", codes))
    np.testing.assert_allclose(permuted.log_sums(), expected.log_sums()[order], rtol=1e-12)
    np.testing.assert_allclose(permuted.scatter().scatter, expected.scatter().scatter, rtol=1e-10)
    np.testing.assert_allclose(permuted.pull().pull, expected.pull().pull[order], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(permuted.perplexities(), expected.perplexities()[order], rtol=1e-10)
    np.testing.assert_array_equal(order[permuted.nearest(3).indices], expected.nearest(3).indices[order])
    np.testing.assert_allclose(moved.log_sums(), expected.log_sums(), rtol=1e-8)
    np.testing.assert_allclose(moved.scatter().scatter, expected.scatter().scatter, rtol=1e-8)
    np.testing.assert_allclose(moved.pull().pull, expected.pull().pull, rtol=1e-7, atol=1e-9)


def test_some_rows_are_the_same_rows_of_all(kind):
    case = Case("float64", n=200, d=4)
    placed = case.at(kind, case.match("class"))
    every, some = placed.pull(), placed.pull(queries=case.some)
    assert_close(some.log_sums, every.log_sums[case.some])
    assert_close(np.exp(some.log_agreement), np.exp(every.log_agreement[case.some]))
    rest = np.setdiff1d(np.arange(case.n), case.some)
    assert_close(some.pull + placed.pull(queries=rest).pull, every.pull)
    parts = [placed.scatter(queries=rows).scatter for rows in (case.some, rest)]
    assert_close(sum(parts), placed.scatter().scatter)


def test_new_rows_that_are_resident_rows(kind):
    case = Case("float64", n=100, d=3)
    placed = case.at(kind)
    got = placed.scatter(queries=case.X, left_out=np.arange(case.n))
    assert_close(got.log_sums, placed.log_sums())
    assert_close(got.scatter, placed.scatter().scatter)


@precisions
@pytest.mark.parametrize("n", [3, 600])
def test_a_row_that_sees_no_other(kind, dtype, n):
    """The only row of positive weight leaves itself out: its log-sum is -inf, and the others are not affected."""
    X = np.random.default_rng(5).normal(size=(n, 2)).astype(dtype)
    log_weights = np.full(n, -np.inf)
    log_weights[1] = 0.0
    placed = placed_rows(kind, X, log_weights=log_weights, match=Match("class", np.zeros(n, dtype=int)))
    log_sums = -0.5 * ((X - X[1]).astype(float) ** 2).sum(axis=1)
    log_sums[1] = -np.inf
    np.testing.assert_allclose(placed.log_sums(), log_sums, rtol=1e-4)
    others = np.arange(n) != 1
    means = placed.softmax_means(X)
    np.testing.assert_allclose(means.log_sums, log_sums, rtol=1e-4)
    np.testing.assert_allclose(means.means[others], np.tile(X[1], (n - 1, 1)), rtol=1e-5)
    np.testing.assert_allclose(placed.class_shares()[others, 0], 1.0, rtol=1e-6)
    got = placed.scatter(queries=np.flatnonzero(others)).scatter
    assert_close(got, (X - X[1]).T.astype(float) @ (X - X[1]), dtype)


def test_a_scatter_of_one_row_far_from_the_centre_keeps_its_digits(kind):
    """Its terms were summed about the common centre, as those of many rows are, but one row cannot be split when they cancel."""
    X = np.random.default_rng(8).normal(size=(60, 2))
    X[:20] += 1e7
    placed = placed_rows(kind, X)
    weights = literal_softmax(X[[3]], X, left_out=[3]).weights[0]
    expected = np.einsum("j,jk,jl->kl", weights, X - X[3], X - X[3])
    got = placed.scatter(queries=np.array([3])).scatter
    np.testing.assert_allclose(got, expected, atol=1e-7 * np.trace(expected))


def test_no_queries_at_all(kind):
    case = Case("float64")
    placed = case.at(kind, case.match("class"))
    for queries in (case.new[:0], case.some[:0]):
        assert placed.log_sums(queries).shape == (0,)
        assert placed.softmax_means(case.values, queries).means.shape == (0, 3)
        assert placed.class_shares(queries).shape == (0, 5)
        assert placed.perplexities(queries).shape == (0,)
        assert placed.nearest(2, queries).indices.shape == (0, 2)


def test_the_row_left_out_is_skipped_by_index_not_by_distance(kind):
    X = np.zeros((5, 2))
    X[3:] = [[1.0, 0.0], [0.0, 2.0]]
    got = placed_rows(kind, X).log_sums()
    # Row 0 has two twins at distance zero which stay: log(2 + exp(-1/2) + exp(-2)).
    assert got[0] == pytest.approx(np.log(2 + np.exp(-0.5) + np.exp(-2.0)), rel=1e-14)


def test_weights_are_importance(kind):
    # A point of weight 3 is three points, where nothing is left out.
    rng = np.random.default_rng(5)
    q, z, times = rng.normal(size=(20, 3)), rng.normal(size=(30, 3)), rng.integers(1, 4, 30)
    weighted = placed_rows(kind, z, own=False, log_weights=np.log(times))
    repeated = placed_rows(kind, np.repeat(z, times, axis=0), own=False)
    for queries in (q, z):
        one, other = weighted.scatter(queries=queries), repeated.scatter(queries=queries)
        np.testing.assert_allclose(one.log_sums, other.log_sums, rtol=1e-12)
        np.testing.assert_allclose(one.scatter, other.scatter, rtol=1e-11)
    # The same among the points themselves, where each pair may be seen once.
    np.testing.assert_allclose(weighted.scatter(times).scatter, repeated.scatter().scatter, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(weighted.perplexities(q) > 0, True)
    # Weight zero is absence.
    with np.errstate(divide="ignore"):
        gone = placed_rows(kind, z, own=False, log_weights=np.log(np.arange(30) % 2))
    np.testing.assert_allclose(gone.log_sums(q), placed_rows(kind, z[1::2], own=False).log_sums(q), rtol=1e-12)


@precisions
def test_a_constant_added_to_all_log_weights_adds_to_the_log_sums_alone(kind, dtype):
    for shift in (300.0, -300.0):
        expected = case(dtype, d=4, n=120)
        moved = prepare(Engine(kind), expected.X, log_weights=expected.log_weights + shift, leave_one_out=True)
        placed = moved.at(expected.metric)
        assert_close(placed.log_sums() - shift, expected.softmax("all").log_sums, "float32")
        wanted = literal_scatter(expected.softmax("all").weights, *[expected.coordinates("all", "images")] * 2)
        assert_close(placed.scatter().scatter, wanted, dtype)


@precisions
def test_log_weights_of_a_wide_range(kind, dtype):
    """Such weights cannot multiply values instead of being added to scores: they would underflow."""
    rng = np.random.default_rng(6)
    X, log_weights = rng.normal(size=(600, 3)).astype(dtype), rng.uniform(-1e3, 0.0, size=600)
    placed = placed_rows(kind, X, log_weights=log_weights)
    expected = literal_softmax(X, X, log_weights, np.arange(600))
    assert_close(placed.log_sums(), expected.log_sums, dtype)
    assert_close(placed.scatter().scatter, literal_scatter(expected.weights, X, X), dtype)


# -- accuracy ---------------------------------------------------------------------------------------------------------


def test_centring_keeps_float32_digits_of_data_far_from_the_origin(kind):
    # Raw, float32 products lose all digits here (relative error 0.2); centred they keep what the input has.
    X = (np.random.default_rng(4).normal(size=(300, 8)) + 1e3).astype(np.float32)
    exact = placed_rows("reference", X.astype(np.float64)).scatter().scatter
    got = placed_rows(kind, X).scatter().scatter
    assert np.max(np.abs(got - exact)) <= 2e-5 * np.max(np.abs(exact))


@precisions
def test_far_queries_have_finite_log_sums(kind, dtype):
    z = np.random.default_rng(6).normal(size=(40, 3)).astype(dtype)
    q = np.full((2, 3), 1e4, dtype=dtype)
    expected = -0.5 * ((q[0].astype(float) - z) ** 2).sum(1)
    got = placed_rows(kind, z, own=False).log_sums(q)
    np.testing.assert_allclose(got, expected.max(), rtol=1e-5 if dtype == "float32" else 1e-12)


def test_isolated_points_keep_their_softmax(kind):
    # Every exponential of the last row underflows without a shift; its nearest neighbour must still weigh one.
    z = np.array([[0.0], [1.0], [1e4]])
    placed = placed_rows(kind, z)
    got = placed.softmax_means(z)
    assert got.means[2, 0] == pytest.approx(1.0)
    assert got.log_sums[2] == pytest.approx(-0.5 * (1e4 - 1) ** 2, rel=1e-14)
    assert placed.perplexities()[2] == pytest.approx(1.0)
    [(query, point, weight)] = placed.neighbors_above(0.01, queries=np.array([2]))
    assert (query.tolist(), point.tolist(), weight.tolist()) == ([0], [1], [1.0])


def test_a_row_at_1e20_does_not_harm_the_others(kind):
    """Centring by a mean that includes such a row would round every other row away."""
    X = np.random.default_rng(7).normal(size=(600, 3))
    codes = np.arange(600) % 2
    far = np.vstack([X, np.full((1, 3), 1e20)])
    alone = placed_rows(kind, X, match=Match("class", codes))
    beside = placed_rows(kind, far, match=Match("class", np.append(codes, 0)))
    assert_close(beside.log_sums()[:-1], alone.log_sums())
    assert_close(beside.mean_shifts(X).means, alone.mean_shifts(X).means)
    assert_close(beside.perplexities()[:-1], alone.perplexities())
    rows = np.arange(600)
    assert_close(beside.scatter(queries=rows).scatter, alone.scatter().scatter)
    for objective in ("accuracy", "likelihood"):
        assert_close(beside.pull(queries=rows, objective=objective).pull[:-1], alone.pull(objective=objective).pull)
    np.testing.assert_array_equal(beside.nearest(4).indices[:-1], alone.nearest(4).indices)
    assert np.isfinite(beside.log_sums()[-1])


def test_far_queries_keep_weights_that_sum_to_one(kind):
    # A score of -1e20 plus log 2 is -1e20: weights taken from such a log-sum would sum to 2.
    z, q = np.array([[0.0], [0.0], [5.0]]), np.array([[-1e10]])
    placed = placed_rows(kind, z, own=False)
    assert placed.softmax_means(np.array([[1.0], [3.0], [9.0]]), q).means[0, 0] == pytest.approx(2.0, rel=1e-12)
    assert placed.perplexities(q)[0] == pytest.approx(2.0, rel=1e-9)


@objectives
def test_soft_agreement_beside_huge_distances(kind, objective):
    # Each row's nearest neighbour takes all, at scores of about -1e21: a_i is their agreement, not 1.
    z = 1e10 * np.array([[0.0], [1.0], [3.0], [3.5]])
    targets = np.array([[0.6, 0.4], [0.5, 0.5], [0.2, 0.8], [1.0, 0.0]])
    got = placed_rows(kind, z, match=Match("dot", targets)).pull(objective=objective)
    np.testing.assert_allclose(np.exp(got.log_agreement), (targets * targets[[1, 0, 3, 2]]).sum(1), rtol=1e-12)


def test_likelihood_weights_survive_class_mates_that_underflow(kind):
    # Row 0's only class mate is 60 units away behind a crowd: p_i is about e^-1800, yet the weights are exact.
    z = np.array([[0.0], [0.1], [0.2], [60.0]])
    y = np.array([0, 1, 1, 0])
    scores = -0.5 * (z - z.T) ** 2
    np.fill_diagonal(scores, -np.inf)
    log_sums = np.logaddexp.reduce(scores, axis=1)
    p = np.exp(scores[0] - log_sums[0])
    for match in (Match("class", y), Match("dot", np.eye(2)[y])):
        got = placed_rows(kind, z, match=match).pull(np.array([1.0, 0.0, 0.0, 0.0]), objective="likelihood")
        assert got.log_agreement[0] == pytest.approx(scores[0, 3] - log_sums[0], rel=1e-12)
        # pull_0 = sum_j (p_0j - [j=3]) (z_0 - z_j), with p_03 = 0 in double precision.
        assert got.pull[0, 0] == pytest.approx(p[1:] @ -z[1:, 0] + 60.0, rel=1e-12)
        assert got.pull[3, 0] == pytest.approx(-60.0, rel=1e-12)


@pytest.mark.parametrize(("dtype", "near", "mid", "far"), [("float32", 50, 86, 87.5), ("float64", 598, 700, 709.5)])
def test_far_class_mates_are_not_flushed(kind, dtype, near, mid, far):
    # Mates whose exponentials vanish under the row's bound count all the same.
    z = np.sqrt(2 * np.r_[0.0, near, mid, np.full(3000, far)])[:, None].astype(dtype)
    codes = np.r_[1, 0, np.ones(3001, dtype=int)]
    got = placed_rows(kind, z, match=Match("class", codes)).pull(queries=np.array([0]), objective="likelihood")
    scores = -0.5 * z[1:, 0].astype(float) ** 2
    expected = np.logaddexp.reduce(scores[1:]) - np.logaddexp.reduce(scores)
    assert got.log_agreement[0] == pytest.approx(expected, rel=1e-4 if dtype == "float32" else 1e-12)


@precisions
def test_log_shares_of_far_classes_are_finite(kind, dtype):
    """A share below the smallest number of the precision was -inf: from -103 on in float32."""
    rng, codes = np.random.default_rng(0), np.arange(300) % 3
    X = rng.normal(size=(300, 2))
    for far in (12.0, 40.0):
        rows, queries = (X + far * (codes == 1)[:, None]).astype(dtype), rng.normal(size=(20, 2)).astype(dtype)
        placed = placed_rows(kind, rows, match=Match("class", codes), own=False)
        scores = -0.5 * np.square(queries[:, None].astype(float) - rows[None].astype(float)).sum(axis=2)
        whole = np.logaddexp.reduce(scores, axis=1)
        expected = np.stack([np.logaddexp.reduce(scores[:, codes == c], axis=1) - whole for c in range(3)], axis=1)
        np.testing.assert_allclose(
            placed.class_log_shares(queries), expected, rtol=1e-4 if dtype == "float32" else 1e-11
        )


def test_gaussian_agreement_of_a_far_row_keeps_its_digits(kind):
    # As the difference of two log-sums of -5e15 it was off by 0.04.
    rng = np.random.default_rng(0)
    X, targets = np.round(rng.normal(size=(40, 2)), 2), rng.normal(size=(40, 1))
    X[8] = [9.0, 0.0]  # the nearest of the far row by more than 10,000 nats
    expected = -0.5 * (targets[7, 0] - targets[8, 0]) ** 2
    for far in (1e4, 1e6, 1e8):
        X[7, 0] = far
        placed = placed_rows(kind, X, match=Match("gaussian", targets))
        assert placed.log_agreement()[7] == pytest.approx(expected, abs=1e-10)
        assert placed.pull(queries=np.array([3, 7])).log_agreement[1] == pytest.approx(expected, abs=1e-10)


@objectives
def test_rows_without_class_mates_are_only_pushed_away(kind, objective):
    """a_i is 0: under "accuracy" such a row has no weight, under "likelihood" its own class pulls nothing."""
    X = np.random.default_rng(8).normal(size=(30, 2))
    codes = np.r_[5, np.zeros(29, dtype=int)]
    placed = placed_rows(kind, X, match=Match("class", codes))
    got = placed.pull(np.eye(30)[0], objective=objective)
    assert got.log_agreement[0] == -np.inf
    p = literal_softmax(X[:1], X, None, np.array([0])).weights[0]
    expected = np.zeros_like(X)
    if objective == "likelihood":
        expected = p[:, None] * (X - X[0])
        expected[0] = -expected.sum(axis=0)
    np.testing.assert_allclose(got.pull, expected, atol=1e-12)


def test_outlying_coordinates_fall_back_to_differences(kind):
    # |z|^2 = 1e12: by products the exponent would err by 1e-4.
    z = np.array([[1e6], [1e6 + 1.0], [-1e6], [-1e6 + 2.0]])
    placed = placed_rows(kind, z)
    np.testing.assert_allclose(placed.log_sums(), [-0.5, -0.5, -2.0, -2.0], rtol=1e-12)
    np.testing.assert_allclose(placed.perplexities(), 1.0)


@pytest.mark.parametrize(
    ("dtype", "gap"), [("float64", 1e2), ("float64", 1e4), ("float64", 1e7), ("float32", 1e2), ("float32", 1e5)]
)
def test_the_scatter_of_far_clusters_keeps_its_digits(kind, dtype, gap):
    # About one centre its relative error grew as eps * gap^2: 1e-8 at 1e4, everything at 1e8.
    X = 8.0 * np.random.default_rng(12).normal(size=(60, 3))
    X[:20] += gap
    X[20:30, 1] -= gap
    X = np.round(X).astype(dtype)  # whole numbers, which float32 holds beside the gap
    metric = np.eye(3) / 8.0
    softmax = literal_softmax(X / 8.0, X / 8.0, None, np.arange(60))
    placed = placed_rows(kind, X, metric)
    got = placed.scatter()
    assert_close(got.log_sums, softmax.log_sums, dtype)
    rtol = TOLERANCE[dtype]
    for of, coordinates in (("images", X / 8.0), ("rows", X)):
        expected = literal_scatter(softmax.weights, coordinates, coordinates)
        np.testing.assert_allclose(
            placed.scatter(space=of).scatter, expected, atol=rtol * np.abs(expected).max(), rtol=0
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.nan_to_num(softmax.weights * np.log(softmax.weights)).sum(axis=1)
    np.testing.assert_allclose(placed.perplexities(), np.exp(entropy), rtol=1e-8 if dtype == "float64" else 1e-3)


@precisions
@pytest.mark.parametrize("own", [True, False])
def test_headroom_does_not_overflow_beside_large_values(kind, dtype, own):
    X = np.random.default_rng(7).normal(size=(700, 40)).astype(dtype) * (6.3 if dtype == "float64" else 1.6)
    X = X.astype(dtype)
    X[1] = X[0]  # twins: the largest exponential there can be
    values = X[:, :2] * np.asarray(1e100 if dtype == "float64" else 1e20, dtype=dtype)
    expected = _headroom_means(dtype, own, X.tobytes(), values.tobytes())
    assert_close(placed_rows(kind, X, own=own).softmax_means(values).means, expected, dtype)


@cache
def _headroom_means(dtype, own, X, values):
    X, values = np.frombuffer(X, dtype).reshape(-1, 40), np.frombuffer(values, dtype).reshape(-1, 2)
    return literal_softmax(X, X, None, np.arange(700) if own else None).weights @ values.astype(float)


def test_weights_below_the_smallest_number_of_the_precision_keep_their_digits(kind):
    """Exponentials of log-weights at -100 are subnormal in float32: they have one or two digits."""
    rng = np.random.default_rng(0)
    X, log_weights = rng.normal(size=(1100, 3)).astype(np.float32), rng.normal(size=1100)
    answers = []
    for level in (0.0, -100.0):
        placed = prepare(Engine(kind), X, leave_one_out=True, log_weights=log_weights + level).at(None)
        answers.append((placed.log_sums() - level, placed.scatter().scatter))
    for first, second in zip(*answers, strict=True):
        assert_close(second, first, "float32")


def test_rows_far_from_all_others_need_no_second_look(monkeypatch, forced):
    """On data in large units every row's exponentials used to underflow, and every row was computed twice."""
    X = 6.3 * np.random.default_rng(7).normal(size=(700, 40))
    half_squares = 0.5 * cdist(X, X, "sqeuclidean") + np.diag(np.full(700, np.inf))
    assert 600 < np.median(half_squares.min(axis=1)) < half_squares.min(axis=1).max() < 1200
    match = Match("class", np.arange(700) % 3)
    expected = placed_rows("reference", X, match=match).pull()
    from vicinal._engine.cpu.placed import CpuPlaced

    monkeypatch.setattr(CpuPlaced, "_pull_of_rows", None)
    for way in ("fused", "products"):
        forced(**FORCED[way])
        got = placed_rows("cpu", X, match=match, threads=2).pull()
        assert_close(got.log_sums, expected.log_sums)
        assert_close(got.pull, expected.pull)


@precisions
def test_data_in_huge_units(kind, dtype):
    """No exponential of any row survives a common bound: every row needs its own maximum."""
    X = (1e3 * np.random.default_rng(9).normal(size=(600, 3))).astype(dtype)
    softmax = literal_softmax(X, X, None, np.arange(600))
    placed = placed_rows(kind, X, match=Match("class", np.arange(600) % 2))
    assert_close(placed.log_sums(), softmax.log_sums, dtype)
    nearest = placed.nearest(1).indices[:, 0]
    assert_close(placed.softmax_means(X).means, softmax.weights @ X, dtype)
    if dtype == "float64":
        assert_close(placed.scatter().scatter, literal_scatter(softmax.weights, X, X))
    shares = placed.class_shares()
    np.testing.assert_allclose(shares[np.arange(600), nearest % 2] > 0.4, True)


@precisions
def test_values_of_another_precision_or_of_whole_numbers(kind, dtype):
    c = case(dtype, d=3)
    placed, p = c.at(kind), c.softmax("all").weights
    other = c.values.astype("float64" if dtype == "float32" else "float32")
    assert_close(placed.softmax_means(other).means, p @ other, "float32")
    whole = np.arange(c.n)[:, None] % 7 + 10
    for values in (whole, whole.astype(np.uint8), whole > 12):
        assert_close(placed.softmax_means(values).means, p @ values, dtype)


@precisions
@pytest.mark.parametrize(
    ("n", "present"), [(1, []), (30, [5]), (30, []), (300, [5]), (300, [])], ids=lambda value: str(value)
)
def test_a_row_that_sees_nobody_has_no_neighbours_and_no_nan(kind, dtype, present, n):
    """Its log-sum is -inf and its weights are 0; the fused kernels used to divide 0 by 0."""
    rng = np.random.default_rng(15)
    X, values, codes = rng.normal(size=(n, 3)).astype(dtype), rng.normal(size=(n, 2)) + 9.0, np.arange(n) % 2
    log_weights = None
    if n > 1:
        log_weights = np.full(n, -np.inf)
        log_weights[present] = 0.3
    sees = np.zeros(n, dtype=bool) if n == 1 or not present else np.arange(n) != 5
    placed = placed_rows(kind, X, match=Match("class", codes), log_weights=log_weights)
    p = np.zeros((n, n))
    if n > 1:
        p[np.ix_(sees, present)] = 1.0
    log_sums = np.full(n, -np.inf)
    if sees.any():
        log_sums[sees] = 0.3 - 0.5 * np.square(X[sees].astype(float) - X[5]).sum(axis=1)

    def check(got, expected):
        np.testing.assert_allclose(got, expected, rtol=TOLERANCE[dtype], atol=10 * TOLERANCE[dtype])

    check(placed.log_sums(), log_sums)
    check(placed.softmax_means(values).means, p @ values)
    check(placed.mean_shifts().means, np.where(sees[:, None], X[present[0] if sees.any() else 0] - X, 0.0))
    check(placed.class_shares(), p @ np.eye(2)[codes][:, : codes.max() + 1])
    check(placed.perplexities(), np.ones(n))
    scatter = literal_scatter(p, X, X)
    for of in ("images", "rows"):
        check(placed.scatter(space=of).scatter, scatter)
    check(placed.scatter(queries=np.arange(n)[::-1].copy()).scatter, scatter)
    asked = Queries(left_out=np.arange(n))
    for spread in (np.ones((n, 1)), values):
        check(placed.placed.softmax_sums(asked, None, None, spread).received, p.T @ spread)
    for match in (Match("class", codes), Match("gaussian", values), Match("dot", np.abs(values))):
        soft = placed_rows(kind, X, match=match, log_weights=log_weights)
        for objective in ("accuracy", "likelihood"):
            got = soft.pull(objective=objective)
            check(got.log_sums, log_sums)
            assert np.all(got.log_agreement[~sees] == -np.inf)
            assert not np.isnan(got.log_agreement).any()
            assert np.isfinite(got.pull).all()
            if not sees.any():
                assert np.all(got.pull == 0.0)
    listed = {int(i) for query, *_ in placed.neighbors_above(1e-3) for i in query}
    assert listed == set(np.flatnonzero(sees))


def test_a_point_that_everyone_leaves_out_receives_nothing(kind):
    z = np.random.default_rng(14).normal(size=(5, 2))
    placed = prepare(Engine(kind), z).at(None).placed
    asked = Queries(rows=z[:1] + 1, left_out=np.array([0]))
    for spread in (np.ones((1, 1)), np.ones((1, 3))):
        got = placed.softmax_sums(asked, None, None, spread).received
        assert np.all(got[0] == 0)
        np.testing.assert_allclose(got.sum(axis=0), 1.0)


def test_precision_casts_the_pair_work(kind):
    X = np.random.default_rng(11).normal(size=(100, 3))
    double = placed_rows(kind, X).log_sums()
    single = placed_rows(kind, X, precision="float32").log_sums()
    assert single.dtype == np.float64
    assert 0 < np.max(np.abs(double - single)) < 1e-4


def test_nothing_that_was_handed_over_is_changed(kind):
    """Rows, weights and targets may be read-only, and an answer of one call is not changed by the next."""
    case = Case("float64", n=600, d=3)
    for array in (case.X, case.metric, case.log_weights, case.codes, case.new, case.values, case.some):
        array.flags.writeable = False
    r = case.row_weights("all")
    r.flags.writeable = False
    placed = case.at(kind, case.match("class"))
    first = [*placed.scatter(r), *placed.pull(r), placed.images]
    copies = [array.copy() for array in first]
    placed.pull(0.5 * r, objective="likelihood")
    placed.softmax_means(case.values, case.some)
    placed.scatter(0.5 * r)
    for array, copy in zip(first, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_classes_are_compared_where_the_points_are():
    """The matrix of matches used to be made by NumPy and sent to the device, block by block: 50 times the pair work."""
    torch = needs("torch")
    X, codes = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30) % 3
    placed = placed_rows("torch", X, match=Match("class", codes)).placed
    mine, theirs = placed._codes(Queries(positions=np.arange(7)))
    assert isinstance(mine, torch.Tensor)
    assert isinstance(theirs, torch.Tensor)
    np.testing.assert_array_equal((mine[:, None] == theirs[None, :]).numpy(), codes[:7, None] == codes)


# -- float32 rows in groups that are far apart ------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("apart", [1e4, 1e6, 1e7])
def test_float32_rows_keep_the_digits_of_groups_that_are_far_apart(backend, apart):
    """Centred on the larger group, rows near 0 were rounded to the digits of the other one: off by 1 to 20 nats."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2)).astype(np.float32)
    X[60:] += np.float32(apart)
    expected = prepare("reference", X.astype(np.float64), leave_one_out=True).at(np.full(2, 3.0))
    placed = prepare(backend, X, leave_one_out=True).at(np.full(2, 3.0))
    np.testing.assert_allclose(placed.log_sums(), expected.log_sums(), atol=5e-3)
    np.testing.assert_allclose(placed.log_sums(X[:50]), expected.log_sums(X[:50].astype(np.float64)), atol=5e-3)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_float32_rows_of_a_sample_and_with_other_weights_keep_their_digits(backend):
    """Both lost the rows as given, and 0.05 nats with them."""
    X = np.random.default_rng(0).normal(size=(120, 3))
    X[:60, 0] += 3e6
    X = X.astype(np.float32)
    problem, sample = prepare(backend, X, leave_one_out=True), np.arange(0, 120, 2)
    for other, rows in ((problem.some(sample), X[sample]), (problem.reweighted(np.zeros(120)), X)):
        exact = prepare("reference", rows.astype(np.float64), leave_one_out=True).at(None).log_sums()
        np.testing.assert_allclose(other.at(None).log_sums(), exact, atol=1e-6)


def test_float32_rows_with_float64_targets_stay_in_float32():
    rng = np.random.default_rng(0)
    X, targets = rng.normal(size=(50, 3)), rng.normal(size=(50, 1)) + 1e6
    problem = prepare("reference", X.astype(np.float32), leave_one_out=True, match=Match("gaussian", targets))
    assert problem.with_targets().points.rows.dtype == np.float32
    exact = prepare("reference", X, leave_one_out=True, match=Match("gaussian", targets)).at(None).log_agreement()
    np.testing.assert_allclose(problem.at(None).log_agreement(), exact, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_rows_that_are_all_far_apart_are_done_carefully_at_once(dtype):
    """Nearest neighbours are more than 1,200 nats (80 in float32) away, so that no row would keep its sum under a common bound."""
    width = 9.0 if dtype == "float64" else 2.5
    X = np.random.default_rng(0).normal(size=(1100, 40)).astype(dtype)
    found, expected = (prepare(kind, X, leave_one_out=True).at(np.full(40, width)) for kind in ("cpu", "reference"))
    assert found.placed._pairs(Queries(left_out=np.arange(1100))).mostly_underflow()
    for one, other in ((found.scatter(), expected.scatter()), (found.mean_shifts(), expected.mean_shifts())):
        for mine, theirs in zip(one, other, strict=True):
            scale = np.abs(theirs).max()
            np.testing.assert_allclose(mine, theirs, atol=(1e-10 if dtype == "float64" else 2e-4) * scale)


@pytest.mark.parametrize("backend", ["reference", "cpu", "torch"])
def test_log_sums_of_far_groups_are_those_of_their_rows(backend):
    """Images at 1e10 widths from the centre are rounded to 1e-6, and rows near 0 are when a centre of 1e9 is subtracted."""
    if backend == "torch":
        needs("torch")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    X[:150] += 1e9
    new = X[::3] + 0.01 * rng.normal(size=(100, 2))
    placed = prepare(backend, X, leave_one_out=True).at(np.full(2, 1.0 / 0.08))
    for queries, rows in ((None, X), (np.arange(0, 300, 7), X[::7]), (new, new)):
        scores = -0.5 * np.square((rows[:, None] - X[None]) / 0.08).sum(axis=2)
        if queries is not new:
            scores[(rows[:, None] == X[None]).all(axis=2)] = -np.inf
        np.testing.assert_allclose(
            placed.log_sums(queries), np.logaddexp.reduce(scores, axis=1), rtol=1e-12, atol=1e-12
        )
