"""Test pruned computations: their certificates, and the parts that these depend on."""

import itertools
import warnings

import numpy as np
import pytest
from fuzz import pruning
from numba import njit
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline

from vicinal import (
    LCA,
    NCA,
    RCA,
    DensityClassifier,
    DensityImputer,
    DensityOutlierDetector,
    Engine,
    ParzenWindows,
    which_engine,
)
from vicinal._engine import Match, prepare
from vicinal._engine.cpu.listed import Listed
from vicinal._engine.cpu.placed import CpuPlaced
from vicinal._engine.plan import boxes as kernels
from vicinal._engine.plan import plan
from vicinal._engine.plan.order import spatial_order
from vicinal._engine.plan.tiles import Tiles, far_values
from vicinal._engine.tuning import QUERY_GROUP
from vicinal._engine.work.sharing import Touched
from vicinal._nca import nca


def clusters(n=3000, d=3, seed=0, width=0.3):
    rng = np.random.default_rng(seed)
    return (0.3 * rng.normal(size=(n, d)) + 5.0 * rng.normal(size=(20, d))[rng.integers(20, size=n)]) / width


def visited(placement):
    """The share of the pairs that a scatter of all rows visits."""
    return placement.placed._listed(placement.problem.queries(None, None), "scatter", power=2.0).sums().shares.visited


def is_dense(placement):
    """Whether a scatter of all rows visits every pair."""
    return placement.placed._listed(placement.problem.queries(None, None), "scatter", power=2.0) is None


def callable_part(function):
    """Parts of kernels cannot be called from Python; this can."""
    return njit(lambda *args: function(*args))


# -- the campaign -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 10))])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_errors_stay_below_their_certificates(pruned, part, dtype):
    """200 fixed cases of the campaign; docs/engine.md has the proof."""
    outcomes = [pruning.check_case(seed, 600, dtype) for seed in range(10 * part, 10 * part + 10)]
    assert sum(outcome.skipped for outcome in outcomes) >= 3


def test_pairs_within_the_certificate_of_a_floor_may_be_listed(pruned, monkeypatch):
    """Pruned sums, and so the floors, are smaller by up to the error of 0.01 here: some pairs are listed that dense sums exclude."""
    monkeypatch.setattr(pruning, "draw_rows", lambda seed, most, rng: int(rng.integers(most // 4, most)))
    case = pruning.draw_case(5003, 5000)
    assert case["text"] == "manifold, n=2230, d=1, width=0.039"
    assert case["error"] == 0.01
    assert pruning.check_kernels(case, pruning.Checker("float64"), 5003)


# -- the bounds -------------------------------------------------------------------------------------------------------


def test_an_empty_bin_times_an_infinite_bound_skips_nothing():
    """0 times infinity is NaN, which is not above any budget, so that all tiles used to be skipped."""
    weights, tails = np.zeros(kernels._BINS), np.empty(kernels._BINS)
    weights[[3, 40]] = 1.0, 2.0
    callable_part(kernels._tails)(
        0.0, 0.0, -1e5, 0.0, weights, tails
    )  # a row whose sum is e^-100000: every bound overflows
    assert np.all(tails[:41] == np.inf)
    assert np.all(tails[41:] == 0.0)


def test_far_outliers_beside_empty_bins(pruned):
    """Rows at -1e5 nats from all others keep their sums, and their query_groups do not visit everything."""
    X = np.vstack([clusters(2000, 2), 450.0 * np.random.default_rng(1).normal(size=(40, 2))])
    placed = prepare(Engine("cpu", error=1e-6), X, leave_one_out=True).at(None)
    log_sums = placed.log_sums()
    assert log_sums.min() < -1e4
    expected = prepare(Engine("reference"), X, leave_one_out=True).at(None).log_sums()
    np.testing.assert_allclose(log_sums, expected, rtol=1e-10, atol=2e-6)
    assert visited(placed) < 0.6


def test_tiles_nearer_than_the_maximum_are_never_skipped():
    """u^2 exp(-u^2 / 2) grows up to u^2 = 2: a box at a smaller distance bounds nothing."""
    weights, tails = np.zeros(kernels._BINS), np.empty(kernels._BINS)
    weights[0] = 1e-30
    fill_tails = callable_part(kernels._tails)
    for nearest, power, never in ((0.5, 0.0, True), (1.5, 0.0, False), (1.5, 2.0, True), (2.5, 2.0, False)):
        fill_tails(nearest, power, 0.0, 0.0, weights, tails)
        assert (tails[0] == np.inf) == never


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_the_reach_is_beyond_what_a_mass_can_contribute(power):
    find_reach = callable_part(kernels._reach)
    for log_mass in (-5.0, 1.0, 30.0, 1e3, 1e6):
        reach = find_reach(log_mass, power)
        for square in (reach, 2.0 * reach):
            assert log_mass + 0.5 * power * np.log(square) - 0.5 * square <= 1e-9 * abs(log_mass)


def test_the_tangent_is_above_the_logarithm():
    squares = np.logspace(-3, 6, 200)
    assert np.all(np.log(squares) <= squares / 64.0 + plan._TANGENT + 1e-12)


# -- order and tiles --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 7, 8, 9, 64, 65, 1000, 70_000])
def test_an_order_is_a_permutation_whatever_the_threads(n):
    X = np.random.default_rng(n).normal(size=(n, 3)).round(1)
    groups = np.array([0, n // 3, n]) if n > 3 else np.array([0, n])
    one, many = (spatial_order(X, groups, threads) for threads in (1, 3))
    np.testing.assert_array_equal(one, many)
    np.testing.assert_array_equal(np.sort(one), np.arange(n))
    assert np.all(one[: groups[1]] < groups[1])


@pytest.mark.parametrize("kind", ["random", "constant", "sorted", "reversed", "few values", "one outlier"])
def test_groups_of_rows_on_a_line_follow_each_other(kind):
    """Whatever the pivots of the selection: no row of a group is beyond one of the next group."""
    x = np.random.default_rng(0).normal(size=5003)
    x = {
        "random": x, "constant": np.zeros(5003), "sorted": np.sort(x), "reversed": np.sort(x)[::-1],
        "few values": np.round(x), "one outlier": np.append(x[:-1], 1e300),
    }[kind]  # fmt: skip
    ordered = x[spatial_order(np.ascontiguousarray(x[:, None]), np.array([0, 5003]), 1)]
    groups = ordered[: 5003 // QUERY_GROUP * QUERY_GROUP].reshape(-1, QUERY_GROUP)
    assert np.all(groups[:-1].max(axis=1) <= groups[1:].min(axis=1))
    np.testing.assert_array_equal(np.sort(ordered), np.sort(x))


def test_homes_have_the_nearest_boxes():
    """Of all tiles that have weight; groups of queries that span clusters do not share one home."""
    X, queries = clusters(5000, 3), clusters(300, 3, seed=1)
    log_weights = np.where(np.arange(5000) < 4000, 0.0, -np.inf)
    order = np.append(spatial_order(X[:4000], np.array([0, 4000]), 1), np.arange(4000, 5000))
    tiles = Tiles(X, None, log_weights, order, np.array([0, 4000, 5000]), 1)
    found = tiles.new_rows(queries, None, 1)
    low, high = (box.transpose(0, 2, 1).reshape(-1, 3)[: tiles.n_tiles] for box in tiles.boxes[:2])
    images = queries[found.tiles.order]
    gaps = np.maximum(np.maximum(low - images[:, None], images[:, None] - high), 0.0)
    outside = np.where(tiles.log_mass > -np.inf, np.square(gaps).sum(axis=2), np.inf)
    np.testing.assert_allclose(outside[np.arange(300), found.home], outside.min(axis=1))
    assert (np.diff(found.home.reshape(-1, 4)[:, :2]) != 0).any()


def test_bins_are_no_farther_than_their_tiles():
    offset_of, bin_of = callable_part(kernels._offset_of_bin), callable_part(kernels._bin_of)
    edges = np.array([offset_of(b) for b in range(kernels._BINS)])
    assert np.all(np.diff(edges) > 0)
    for beyond in np.concatenate([edges, np.nextafter(edges[1:], 0.0), np.logspace(-3, 8, 500)]):
        b = bin_of(beyond)
        assert edges[b] <= beyond
        assert b == kernels._BINS - 1 or beyond < edges[b + 1]


def test_boxes_hold_their_points():
    X = clusters(500, 4).astype(np.float32)
    order = spatial_order(X, np.array([0, 500]), 1)
    tiles = Tiles(X, None, None, order, np.array([0, 500]), 1)
    low, high = (box.transpose(0, 2, 1).reshape(-1, 4)[: tiles.n_tiles] for box in tiles.boxes[:2])
    inside = X[order].astype(float)
    assert np.all((low[tiles.tile_at] <= inside) & (inside <= high[tiles.tile_at]))
    np.testing.assert_allclose(tiles.images(np.arange(500)), inside, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(tiles.unpack(tiles.pack(X)), X)


# -- weights and values -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [(0, 500), (0, 100, 228, 500)])
def test_images_of_consecutive_places_are_those_of_single_places(groups):
    """Tiles that are not full are in the middle if there are several groups."""
    rng = np.random.default_rng(0)
    tiles = Tiles(rng.normal(size=(500, 3)), None, None, rng.permutation(500), np.array(groups), 1)
    for start, stop in itertools.product((0, 5, 64, 99, 228), (100, 128, 229, 499, 500)):
        places = np.arange(start, stop)
        found = tiles.images(slice(start, stop))
        np.testing.assert_array_equal(found, tiles.images(places))
        assert found.flags.c_contiguous


def test_a_skipped_tile_with_a_huge_target_matters(pruned):
    """A target of 1e12 in a far tile: relative to the range of all targets nothing would be underflowed, but it is."""
    X = np.concatenate([np.linspace(0.0, 10.0, 2000), np.linspace(16.0, 17.0, 100)])[:, None]
    targets = np.zeros((2100, 1))
    targets[:, 0] = np.sin(X[:, 0])
    targets[2000:] = 1e12
    placed = prepare(Engine("cpu", error=1e-6), X, leave_one_out=True).at(None)
    expected = prepare(Engine("reference"), X, leave_one_out=True).at(None).softmax_means(targets).means
    got = placed.softmax_means(targets).means
    assert np.abs(expected[:2000]).max() > 1e2  # the far targets do reach some rows
    np.testing.assert_allclose(got, expected, rtol=2e-6, atol=2e-6)
    np.testing.assert_array_equal(far_values(targets)[:5], 1.0)


def test_likelihood_judges_class_mates_by_their_own_sum(pruned):
    """The mates of every row are so far away that they are underflowed in the sum of all, but not in their own."""
    near, far = clusters(500, 2), clusters(500, 2) + 40.0
    X, codes = np.vstack([near, far]), np.tile(np.arange(500) % 200, 2)
    match = Match("class", codes)
    got, expected = (
        prepare(engine, X, leave_one_out=True, match=match).at(None).pull(objective="likelihood")
        for engine in (Engine("cpu", error=1e-9), Engine("reference"))
    )
    assert (expected.log_agreement < -50).any()
    np.testing.assert_allclose(got.log_agreement, expected.log_agreement, rtol=1e-8, atol=1e-7)
    np.testing.assert_allclose(got.pull, expected.pull, atol=1e-6 * np.abs(expected.pull).max())


# -- each pair once ---------------------------------------------------------------------------------------------------


def test_sums_of_images_of_a_row_without_neighbors_are_zero(pruned):
    log_weights = np.full(500, -np.inf)
    log_weights[7] = 0.0  # only row 7 has any weight, and is left out of its own sum
    problem = prepare(Engine("cpu"), clusters(500, 2) + 3.0, log_weights=log_weights, leave_one_out=True)
    gathered = problem.at(None).placed.softmax_sums(problem.queries(None, None), None, "images").gathered
    assert not gathered[7].any()
    np.testing.assert_array_equal(np.delete(gathered[:, 2], 7), 1.0)


def test_a_sparse_tile_reaches_farther_than_a_dense_one(pruned):
    """The dense tiles, which come first, do not need the sparse one; it needs them."""
    X = np.concatenate([np.linspace(0.0, 0.01, 2048), 6.9 + np.arange(64.0)])[:, None]
    problem, exact = (
        prepare(engine, X, leave_one_out=True) for engine in (Engine("cpu", error=1e-8), Engine("reference"))
    )
    got, expected = problem.at(None).log_sums(), exact.at(None).log_sums()
    assert 0.0 < problem.certified_row_error <= 1.03e-8
    assert np.abs(got - expected).max() <= 1.03e-8


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_scatters_that_see_each_pair_once(pruned, weighted, dtype):
    """Of images and of rows, with rows of their own or without; few pairs are visited, and no thread changes a bit."""
    rng = np.random.default_rng(4)
    X = clusters(1500, 5).astype(dtype)
    log_weights = rng.uniform(-8.0, 3.0, size=1500) if weighted else None
    row_weights, metric = rng.random(1500), rng.normal(size=(5, 5)) / 2.0
    for leave_one_out in (True, False):
        arguments = {"log_weights": log_weights, "leave_one_out": leave_one_out}
        expected = prepare(Engine("reference"), X.astype(float), **arguments).at(metric)
        placed = prepare(Engine("cpu", threads=3, error=1e-6), X, **arguments).at(metric)
        again = prepare(Engine("cpu", threads=1, error=1e-6), X, **arguments).at(metric)
        for space in ("images", "rows"):
            got, literal = placed.scatter(row_weights, space=space), expected.scatter(row_weights, space=space)
            tolerance = 3e-6 if dtype == "float64" else 3e-4
            np.testing.assert_allclose(got.log_sums, literal.log_sums, atol=tolerance)
            np.testing.assert_allclose(got.scatter, literal.scatter, atol=tolerance * np.trace(literal.scatter))
            assert visited(placed) < 0.35  # of half of the pairs
            np.testing.assert_array_equal(again.scatter(row_weights, space=space).scatter, got.scatter)


def test_rows_that_would_underflow_are_set_aside(pruned, monkeypatch):
    """Outliers have sums of e^-1000: they are done by themselves, and the others do not visit everything for them."""
    X = np.vstack([clusters(2000, 2), 55.0 * np.random.default_rng(1).normal(size=(20, 2))])
    placed = prepare(Engine("cpu", error=1e-6), X, leave_one_out=True).at(None)
    asides = []
    sums = Listed.sums
    monkeypatch.setattr(Listed, "sums", lambda *given: asides.append(found := sums(*given)) or found)
    found = placed.scatter()
    assert 0 < asides[-2].again.sum() < 20
    assert not asides[-1].again.any()  # with shifts of their own
    assert found.log_sums.min() < -1e3
    expected = prepare(Engine("reference"), X, leave_one_out=True).at(None).scatter()
    np.testing.assert_allclose(found.log_sums, expected.log_sums, rtol=1e-10, atol=2e-6)
    np.testing.assert_allclose(found.scatter, expected.scatter, atol=2e-6 * np.trace(expected.scatter))
    assert visited(placed) < 0.4


# -- the engine -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [-1e-9, np.nan, 0.5, "small", True])
def test_an_error_that_is_none_is_refused(error):
    with pytest.raises(ValueError, match="error must be a number from 0 to"):
        Engine(error=error)


def test_the_default_certifies_what_rounding_exceeds():
    assert Engine().error_in(np.float64) == 1e-12
    assert Engine().error_in(np.float32) == 1e-7
    assert Engine(error=0).error_in(np.float64) == 0.0
    X = np.zeros((5, 2))
    for error, precision, warns in (
        (1e-13, None, True),
        (1e-9, "float32", True),
        (1e-6, None, False),
        (0, None, False),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            prepare(Engine("cpu", error=error, precision=precision), X)
            prepare(Engine("reference", error=error, precision=precision), X)  # skips nothing anyway
        assert len(caught) == warns
        assert all(warning.filename == __file__ for warning in caught)


def test_every_pair_is_visited_where_nothing_may_be_skipped(pruned):
    X = clusters(600)
    exact = prepare(Engine("cpu", error=0), X, leave_one_out=True)
    exact.at(None).scatter()
    assert exact.certified_row_error == 0.0
    assert is_dense(exact.at(None))
    loose = prepare(Engine("cpu", error=1e-6), X, leave_one_out=True)
    loose.at(None).scatter()
    assert 0.0 < loose.certified_row_error <= 1.05e-6


def test_pruning_stands_back_where_it_would_not_pay():
    """With one broad cluster nothing can be skipped, and the result is that of the dense pass to the last bit."""
    X = np.random.default_rng(0).normal(size=(6200, 3))
    placed = prepare(Engine("cpu", error=1e-9), X, leave_one_out=True).at(None)
    assert is_dense(placed)
    np.testing.assert_array_equal(
        placed.log_sums(), prepare(Engine("cpu", error=0), X, leave_one_out=True).at(None).log_sums()
    )


def test_an_order_is_made_again_when_it_has_worn(pruned):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(4000, 6))
    problem = prepare(Engine("cpu", error=1e-6), X, leave_one_out=True)
    scales = np.array([200.0, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3])
    problem.at(scales).log_sums()
    first = problem._rows.orders.whole
    problem.at(scales).log_sums()
    assert problem._rows.orders.whole is first
    placed = problem.at(scales[::-1].copy())  # the order along the first axis excludes nothing here
    log_sums = placed.log_sums()
    assert problem._rows.orders.whole is not first
    assert visited(placed) < 0.2
    expected = prepare(Engine("reference"), X, leave_one_out=True).at(scales[::-1].copy()).log_sums()
    np.testing.assert_allclose(log_sums, expected, atol=2e-6)


@pytest.mark.usefixtures("short_search")
def test_fitted_estimators_say_what_is_certified(pruned):
    X = clusters(700, 2, width=1.0)
    y = np.arange(len(X)) % 2
    loose = Engine("cpu", error=1e-6)
    for estimator, arguments in (
        (ParzenWindows(bandwidth=0.1, engine=loose), (X,)),
        (lca := LCA(engine=loose), (X,)),
        (NCA(engine=loose, max_iter=2), (X, y)),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            estimator.fit(*arguments)
        assert 0.0 <= estimator.certified_row_error_ <= 2.1e-6
    assert lca.certified_row_error_ > 0.0
    assert LCA().fit(X[:100]).certified_row_error_ == 0.0


@pytest.mark.usefixtures("short_search")
def test_which_engine_states_the_expected_share():
    X = clusters(9000, 2, width=1.0)
    fitted = LCA().fit(X[:400])
    said = which_engine(X, fitted)
    assert said.startswith("cpu: 9000 x 9000 pairs")
    share = float(said.split("expected to visit ")[1].split("%")[0]) / 100
    assert 0.0 < share < 0.6
    assert "expected" not in which_engine(X, LCA(engine=Engine("cpu", error=0)))
    assert "expected" not in which_engine(X[:100], fitted)
    assert "expected" not in which_engine(np.zeros((9000, 2)), LCA())


def test_which_engine_counts_under_the_bandwidth_that_is_used():
    """It estimated the kernel by itself, and did not report the pairs that `score_samples` skips."""
    X = clusters(9000, 3, width=1.0)
    assert "expected to visit" in which_engine(X, ParzenWindows(bandwidth=0.05))
    assert "expected to visit" not in which_engine(X, ParzenWindows(bandwidth=1e4))
    fitted = ParzenWindows(bandwidth=0.05).fit(X[:100])
    assert "expected to visit" in which_engine(X, fitted.set_params(bandwidth="loo"))


def test_which_engine_answers_for_the_estimator_inside():
    X = np.zeros((300, 5))
    inner = which_engine(X, ParzenWindows())
    for estimator in (
        DensityClassifier(),
        DensityOutlierDetector(ParzenWindows()),
        make_pipeline(PCA(), ParzenWindows()),
    ):
        assert which_engine(X, estimator) == f"{inner}, in ParzenWindows of {type(estimator).__name__}"
    assert which_engine(X, DensityImputer()).endswith("in LCA of DensityImputer")
    assert which_engine(X, RCA()).startswith("none: RCA")
    assert which_engine(X, PCA()).startswith("unknown: PCA is not an estimator of vicinal")
    assert which_engine(X, Engine("cpu")) == "cpu: it was requested"
    with pytest.raises(TypeError, match=r"got the class LCA. Pass an instance, LCA\(\)"):
        which_engine(X, LCA)


@pytest.mark.parametrize(
    ("field", "value"), [("error", 0.0), ("precision", "float32"), ("threads", 2), ("memory", 2**24)]
)
def test_a_changed_field_of_the_engine_is_obeyed_at_the_next_score(field, value):
    """The cache of placements held the record itself, which `set_params` changes: it never detected a difference."""
    X = clusters(300, 3)
    density = ParzenWindows(0.3, engine=Engine("cpu", error=1e-2)).fit(X)
    placement = density.mixture_.placement(len(X))
    assert density.mixture_.placement(len(X)) is placement
    density.set_params(**{f"engine__{field}": value})
    density.score_samples(X)
    renewed = density.mixture_.placement(len(X))
    assert renewed is not placement
    assert getattr(renewed.problem.engine, field) == value
    assert getattr(placement.problem.engine, field) != value


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_neighbors_above_a_share_are_listed_from_near_tiles_alone(pruned, dtype):
    X = 10.0 * np.random.default_rng(0).normal(size=(900, 2)).astype(dtype)
    log_weights = np.random.default_rng(1).normal(size=900)
    log_weights[::50] = -np.inf
    engines = Engine("cpu", error=0.0, precision=dtype), Engine("cpu", error=1e-3, precision=dtype)
    dense, pruned = (prepare(engine, X, log_weights=log_weights, leave_one_out=True).at(None) for engine in engines)
    floors = dense.log_sums() - 80.0
    for queries in (None, np.arange(0, 900, 2), X[:100] + 0.1):
        asked = dense.problem.queries(queries, None)
        m = asked.count(900)
        listed = []
        for placed in (dense.placed, pruned.placed):
            pairs = [np.stack(block) for block in placed.candidates(asked, floors=floors[:m])]
            assert all(
                len(np.flatnonzero(np.diff(block[0]))) + 1 == len(np.unique(block[0])) for block in pairs if block.size
            )
            listed.append(np.concatenate(pairs, axis=1))
        scores = [dense.placed.pair_scores(asked)(*pairs) for pairs in listed]
        sure = [pairs[:, score >= floors[pairs[0]]] for pairs, score in zip(listed, scores, strict=True)]
        assert len(sure[0][0]) < 0.5 * m * 900
        assert np.array_equal(*(np.unique(900 * pairs[0] + pairs[1]) for pairs in sure))


def test_every_sum_of_a_fit_counts_for_its_certificate(pruned):
    """A dense sweep at the end of a fit, and sums on derived problems, used to hide what had been skipped."""
    X = clusters(700)
    problem = prepare(Engine("cpu", error=1e-3), X, leave_one_out=True)
    derived = problem.some(np.arange(300))
    derived.at(None).log_sums()
    certified = problem.certified_row_error
    assert 0.0 < certified <= 1e-3
    problem.points.certificates.add(0.0)
    assert problem.certified_row_error == certified
    soft = prepare(Engine("cpu", error=1e-3), X, leave_one_out=True, match=Match("gaussian", X[:, :1]))
    soft.with_targets().at(None).log_sums()
    assert 0.0 < soft.certified_row_error <= 1e-3


def test_a_sum_of_two_sweeps_keeps_the_error_that_was_asked_for(pruned):
    match = Match("class", np.arange(700) % 3)
    for error in (1e-1, 1e-3):
        problem = prepare(Engine("cpu", error=error), clusters(700, width=0.1), leave_one_out=True, match=match)
        problem.at(None).pull(objective="likelihood")
        assert problem.certified_row_error <= error


def test_logarithms_of_class_shares_are_certified_relative_to_themselves(pruned):
    """Only the shares themselves were: logarithms were off by hundreds of nats where a class is far away."""
    X = clusters(700, width=0.5)
    match = Match("class", (X[:, 0] > 0).astype(int) + 2 * (X[:, 1] > 0))
    dense, pruned = (
        prepare(Engine("cpu", error=error), X, leave_one_out=True, match=match).at(None) for error in (0.0, 1e-9)
    )
    for queries in (None, X[:80] + 0.1):
        expected, got = dense.class_log_shares(queries), pruned.class_log_shares(queries)
        sure = expected > -300.0
        assert (expected[sure] < -40.0).any()
        np.testing.assert_allclose(got[sure], expected[sure], atol=1e-8)


@pytest.mark.parametrize("n_lines", [0, 5])
def test_what_points_receive_does_not_depend_on_the_room_for_it(pruned, forced, monkeypatch, n_lines):
    """Lines for all tiles took as much memory as the rows in every thread; now a piece is cut where they would take too much."""
    X, match = clusters(1500), Match("class", np.arange(1500) % 3)

    def pull():
        return prepare(Engine("cpu", error=1e-9), X, leave_one_out=True, match=match).at(None).pull().pull

    expected, numbers = pull(), []
    add_to = Touched.add_to
    monkeypatch.setattr(
        Touched, "add_to", lambda self, total: (numbers.append(len(self.sums[0])), add_to(self, total))[1]
    )
    pull()
    before, numbers[:] = max(numbers), []
    forced(RECEIVED_BYTES=n_lines * 8 * 4 * 64)
    np.testing.assert_allclose(pull(), expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())
    assert max(numbers) <= before


@pytest.mark.usefixtures("short_search")
def test_auto_of_nca_is_exact_where_few_pairs_have_to_be_visited(pruned, monkeypatch):
    X = clusters(500, 2, width=0.1)
    y = np.arange(500) % 2
    monkeypatch.setattr(nca, "_EXACT_ROWS", 300)
    for pairs, solver in ((1e9, "lbfgs"), (1.0, "stochastic")):
        monkeypatch.setattr(nca, "_EXACT_PAIRS", pairs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert NCA(engine="cpu", max_iter=1, random_state=0).fit(X, y).solver_ == solver


def test_squares_of_rows_that_are_not_pruned_take_one_sweep(forced, monkeypatch):
    """From 6,144 rows on, they took the two sweeps of a scatter, and so did every width that leave-one-out tries."""
    X = np.random.default_rng(0).normal(size=(2500, 3))
    forced(PRUNED_FROM_POINTS=0, PRUNED_FROM_QUERIES=0)
    placed = prepare(Engine("cpu"), X, leave_one_out=True).at(np.full(3, 0.5))
    expected = np.trace(placed.scatter().scatter)
    monkeypatch.setattr(CpuPlaced, "scatter", None)
    assert is_dense(placed)
    assert placed.squares().total == pytest.approx(expected, rel=1e-11)


def test_the_certificate_of_a_call_is_its_own_if_another_thread_asks_meanwhile(pruned, monkeypatch):
    """It was an attribute of the placement, so that a scatter could get that of a call for log-sums."""
    placed = prepare(Engine("cpu", error=1e-6), clusters(1500), leave_one_out=True).at(None)
    alone, sums = placed.perplexities() is not None and placed.problem.certified_row_error, Listed.sums

    def interrupted(self, *args, **options):
        found = sums(self, *args, **options)
        some = self.points.some_rows(np.arange(4), np.arange(4), 1)
        sums(Listed(self.points, some, 1e-2, 1))  # by another thread
        return found

    monkeypatch.setattr(Listed, "sums", interrupted)
    again = prepare(Engine("cpu", error=1e-6), clusters(1500), leave_one_out=True).at(None)
    again.perplexities()
    assert again.problem.certified_row_error == alone > 0.0


def test_hopeless_pruning_is_not_counted_again():
    """The count took a tenth of a dense pass over 10,000 x 128 rows, in every pass."""
    X = np.random.default_rng(0).normal(size=(7000, 3))
    placed = prepare(Engine("cpu"), X, leave_one_out=True).at(np.full(3, 0.1))
    assert is_dense(placed)
    assert "_counted" not in placed.placed._gate.__dict__
    assert not is_dense(prepare(Engine("cpu"), clusters(7000), leave_one_out=True).at(None))


@pytest.mark.parametrize("verb", ["log_sums", "scatter", "pull", "perplexities", "class_shares", "mean_shifts"])
def test_threads_do_not_change_a_bit(pruned, verb):
    X, match = clusters(1500), Match("class", np.arange(1500) % 3)
    answers = []
    for threads in (1, 3):
        placed = prepare(Engine("cpu", error=1e-9, threads=threads), X, leave_one_out=True, match=match).at(None)
        found = getattr(placed, verb)()
        answers.append(found if isinstance(found, tuple) else (found,))
    for one, other in zip(*answers, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_rows_whose_home_is_a_far_cluster_are_shifted_again(pruned, dtype):
    """A tile that spans two clusters gives most of one row's sum no lower bound that its exponentials could use."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(70, 2)), rng.normal(size=(600, 2)) + 60.0, rng.normal(size=(90, 2)) + 90.0])
    expected = prepare(Engine("reference"), X, leave_one_out=True).at(None)
    placed = prepare(Engine("cpu", error=1e-6), X.astype(dtype), leave_one_out=True).at(None)
    tolerance = 3e-6 if dtype == "float64" else 3e-4
    np.testing.assert_allclose(placed.log_sums(), expected.log_sums(), atol=tolerance)
    np.testing.assert_allclose(placed.log_sums(X + 0.5), expected.log_sums(X + 0.5), atol=tolerance)
    np.testing.assert_allclose(placed.perplexities(), expected.perplexities(), rtol=tolerance)
    some, weights = np.arange(0, 760, 2), rng.random(380)
    for queries, r in ((None, rng.random(760)), (some, weights)):
        literal = expected.scatter(r, queries).scatter
        got = placed.scatter(r, queries).scatter
        np.testing.assert_allclose(got, literal, atol=tolerance * np.trace(literal))


def test_wide_tiles_of_far_clusters_keep_their_digits(pruned):
    """Groups at a distance of 1e8, some in one tile: products of coordinates would lose all digits there."""
    rng = np.random.default_rng(3)
    X = np.round(rng.normal(size=(700, 2)), 3) + 1e8 * rng.integers(0, 3, size=(700, 1))
    some, weights = np.arange(0, 700, 2), rng.random(350)
    placed = prepare(Engine("cpu", error=1e-9), X, leave_one_out=True).at(None)
    differences = X[:, None] - X[None]
    scores = -0.5 * np.square(differences).sum(axis=2)
    np.fill_diagonal(scores, -np.inf)
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    for queries, r in ((None, np.ones(700)), (some, weights)):
        rows = np.arange(700) if queries is None else queries
        expected = np.einsum("i,ij,ijk,ijl->kl", r, p[rows], differences[rows], differences[rows])
        np.testing.assert_allclose(
            placed.scatter(r, queries).scatter, expected, rtol=1e-7, atol=1e-7 * np.trace(expected)
        )
