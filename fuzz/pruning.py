"""Random problems on which pruned sums must keep their certificates.

Each case draws rows, weights, a kernel width, queries and an error, and compares the pruned sums with the dense ones in
the same arithmetic and with a literal softmax in float64.  What skipping adds must stay below the certificate, which
docs/engine.md proves; rounding errors are allowed in addition, by `ROUNDING`.
"""

from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import entr

from fuzz.harness import Case
from vicinal import Engine
from vicinal._engine import Frames, Match, prepare, tuning
from vicinal._engine.plan.tiles import value_scales

# What rounding may add, relative to the largest entry of an answer: the tolerance table of tests/test_engine.py.
ROUNDING = {"float64": 1e-10, "float32": 2e-4}
CASES = 10_000
UNTIMED = 12  # the first cases of each precision compile the kernels, which takes a minute or two
ROWS = 5000  # of the largest problems
# Constants of the engine that let it prune however few the rows and little the saving.
PRUNED = {"PRUNED_FROM_POINTS": 0, "PRUNED_FROM_QUERIES": 0, "PRUNED_SAVING": np.inf, "KERNELS_VISITED": 1.0}
KINDS = ("gauss", "clusters", "manifold", "far clusters", "duplicates", "outliers", "grid")


class Outcome(NamedTuple):
    """What a case showed: its number, whether pairs were skipped, and the worst ratio of error to certificate."""

    seed: int
    text: str
    skipped: bool
    ratio: float


def rows_of_kind(kind, n, d, rng):
    """Rows whose nearest neighbours are about one unit apart, unless their kind changes this."""
    X = rng.normal(size=(n, d))
    if kind == "clusters":
        X = 0.3 * X + 6.0 * rng.normal(size=(12, d))[rng.integers(12, size=n)]
    elif kind == "manifold":
        angles = rng.uniform(-3, 3, size=(n, min(2, d)))
        X = np.sin(angles @ rng.normal(size=(min(2, d), d))) + 0.01 * X
    elif kind == "far clusters":
        X = np.round(X, 3) + 1e8 * rng.integers(-1, 2, size=(4, d))[rng.integers(4, size=n)]
    elif kind == "duplicates":
        X = X[rng.integers(max(n // 5, 1), size=n)]
    elif kind == "outliers":
        some = rng.integers(n, size=max(n // 100, 1))
        X[some] *= 10.0 ** rng.uniform(1, 4, size=(len(some), 1))
    elif kind == "grid":
        X = np.round(2.0 * X)
    return X


def draw_rows(seed, most_rows, rng):
    """Number of rows: from one row to some tiles in one case of four, large problems in one of sixty-four, else some tiles.

    A case costs n^2: those of thousands of rows take seconds.
    """
    low, high = 1, max(most_rows // 3, min(600, most_rows))
    if seed % 64 == 1:
        low, high = most_rows // 4, most_rows
    elif seed % 4:
        low, high = min(128, most_rows), max(most_rows // 6, min(600, most_rows))
    return int(np.exp(rng.uniform(np.log(max(low, 1)), np.log(high))))


def draw_case(seed, most_rows):
    """A problem, and the requested results."""
    rng = np.random.default_rng(seed)
    n = draw_rows(seed, most_rows, rng)
    n, d = max(n, 1), int(np.exp(rng.uniform(0.0, np.log(60.9))))
    if seed % 3:
        d = min(d, 8)
    kind = KINDS[int(rng.integers(len(KINDS)))]
    X = rows_of_kind(kind, n, d, rng)
    width = 10.0 ** rng.uniform(-1.7, 0.2)
    log_weights = None
    if seed % 2:
        log_weights = rng.uniform(-12, 0, size=n) * np.log(10.0)
        absent = rng.random(n) < 0.05
        if seed % 4 == 1:  # otherwise a pair may be visited once for both of its rows
            log_weights[absent] = -np.inf
        log_weights[rng.integers(n)] = 0.0
    return {
        "kind": kind, "text": f"{kind}, n={n}, d={d}, width={width:.3g}", "X": X, "metric": np.full(d, 1.0 / width),
        "log_weights": log_weights, "own": bool(rng.integers(2)) and n > 1, "classes": rng.integers(0, 3, size=n),
        "values": rng.normal(size=(n, 2)) * np.where(rng.random((n, 1)) < 0.01, 1e12, 1.0),
        "error": 10.0 ** rng.choice([-12.0, -9.0, -6.0, -3.0, -2.0]), "new": X[rng.integers(n, size=max(n // 7, 1))] + 0.1 * width,
        "row_weights": rng.random(n),
    }  # fmt: skip


def literal(case, queries=None):
    """Log-sums and softmax weights from differences in float64, of images in the precision of the case.

    Those of all rows, which several checks need, are kept with the case.
    """
    if queries is None:
        if "literal" not in case:
            case["literal"] = _literal(case, case["rows"], case["own"])
        return case["literal"]
    return _literal(case, queries, own=False)


def _literal(case, queries, own):
    dtype = case["rows"].dtype
    points, queries = ((rows * case["metric"]).astype(dtype).astype(np.float64) for rows in (case["rows"], queries))
    scores = cdist(queries, points, "sqeuclidean")  # sums of squared differences, pair by pair
    scores *= -0.5
    if case["log_weights"] is not None:
        scores += case["log_weights"]
    if own:
        np.fill_diagonal(scores, -np.inf)
    return softmax_of(scores)


def softmax_of(scores):
    """Log-sums and softmax weights of scores, which are overwritten."""
    top = scores.max(axis=1)
    top = np.where(np.isfinite(top), top, 0.0)
    scores -= top[:, None]
    with np.errstate(under="ignore"):
        e = np.exp(scores, out=scores)
    total = e.sum(axis=1)
    e /= np.where(total > 0, total, 1.0)[:, None]
    with np.errstate(divide="ignore"):
        return top + np.log(total), e


class Checker:
    """Holds errors to their certificates, and remembers the worst ratio."""

    def __init__(self, dtype):
        self.dtype, self.ratio = dtype, 0.0

    def check(self, what, got, expected, certified, scale):
        """|got - expected| <= certified + rounding, entry by entry; `scale` is what rounding is relative to."""
        assert not np.isnan(got).any(), f"{what}: not a number"
        got, expected = np.asarray(got), np.asarray(expected)
        with np.errstate(invalid="ignore"):
            error = np.where(got == expected, 0.0, np.abs(got - expected))
        rounding = ROUNDING[self.dtype] * scale
        beyond = error - rounding
        certified = np.broadcast_to(certified, error.shape)
        assert np.all(beyond <= certified), (
            f"{what}: an error of {error.max():.3g} exceeds the certificate of "
            f"{certified.ravel()[np.argmax(beyond - certified)]:.3g} by more than rounding, {np.max(rounding):.3g}"
        )
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratios = np.where((certified > 10 * rounding) & (beyond > 0), beyond / certified, 0.0)
        self.ratio = max(self.ratio, float(np.max(ratios, initial=0.0)))


def largest(array):
    finite = np.abs(array[np.isfinite(array)])
    return max(float(finite.max(initial=0.0)), 1.0)


def check_case(seed, most_rows=5000, dtype="float64"):
    """Run one case; return its `Outcome`, or raise AssertionError."""
    case = draw_case(seed, most_rows)
    X = case["X"].astype(dtype)
    # A precision that is asked for is kept, whatever digits it costs.
    engine = Engine(
        "cpu", threads=1 + seed % 2, precision=dtype, error=max(case["error"], 1e-12 if dtype == "float64" else 1e-7)
    )
    problem = prepare(
        engine, X, log_weights=case["log_weights"], leave_one_out=case["own"], match=Match("class", case["classes"])
    )
    case["rows"] = problem.points.rows
    placement = problem.at(case["metric"])
    placed = placement.placed
    dense = placed._every_pair
    checker, skipped = Checker(dtype), False
    some = np.random.default_rng(seed).permutation(len(X))[: max(len(X) // 5, 1)]
    for queries in (
        problem.queries(None, None), problem.queries(some, None), problem.queries(case["new"].astype(dtype), None)
    ):  # fmt: skip
        for once in (False, True) if queries.are_all else (False,):
            skipped |= check_sums(case, checker, placed, queries, dense, once)
    check_all_rows(case, checker, placed, problem.queries(None, None))
    if dtype == "float64":
        check_rows(case, checker, placement, X)
    if (seed + (dtype == "float32")) % 2:  # each problem in one of the precisions
        skipped |= check_kernels(case, checker, seed)
    return Outcome(seed, case["text"], skipped, checker.ratio)


def check_rows(case, checker, placement, X):
    """Compare log-sums with differences of the rows as given, which the images of far rows have lost."""
    for queries in (None, case["new"]):
        scores = cdist(X if queries is None else queries, X, "sqeuclidean")
        scores *= -0.5 * case["metric"][0] ** 2
        if case["log_weights"] is not None:
            scores += case["log_weights"]
        if case["own"] and queries is None:
            np.fill_diagonal(scores, -np.inf)
        expected, _ = softmax_of(scores)
        got = placement.log_sums(queries)
        checker.check("log-sums of rows", got, expected, placement.problem.certified_row_error, largest(expected))


def check_sums(case, checker, placed, queries, dense, once):
    rows = case["rows"] if queries.rows is None else queries.rows
    log_sums, p = literal(case, queries.rows)
    if queries.positions is not None:
        rows, log_sums, p = rows[queries.positions], log_sums[queries.positions], p[queries.positions]
    listed = placed._listed(queries, "sums", once=once)
    found, given = listed.sums(), listed.queries.given
    c = found.certificate
    assert c <= 1.05 * placed._error
    skipped = found.shares.visited < 0.999 or found.shares.taken < 0.999
    # Rows that no shift suits are computed by the dense placement.
    mine, got = ~given(found.again), given(found.log_sums)
    sees = (log_sums > -np.inf) & mine
    checker.check("log-sums", got[mine], log_sums[mine], c, largest(log_sums))
    # Dense scores are products about one centre, which round |z|^2; those of tiles are computed about the centre of each tile.
    lost = np.finfo(checker.dtype).eps * largest((case["rows"] * case["metric"]) ** 2) * rows.shape[1]
    scale = largest(log_sums) + lost / ROUNDING[checker.dtype]
    checker.check("log-sums, dense", got[mine], dense.log_sums(queries).log_sums[mine], c, scale)
    checker.check("a sum never gains", np.maximum(got - log_sums, 0.0)[sees], 0.0, 0.0, largest(log_sums))
    sees &= mine
    values = case["values"]
    listed = placed._listed(queries, "sums", once=once, far_values=values)
    found = listed.sums(values)
    means = given(found.means)
    centre, scale = value_scales(values)
    certified = found.certificate * (scale + np.abs(means - centre))
    sizes = p @ np.abs(values)
    # A score of 1e5 has 1e-5 of its digits left in float32: means are as good as their weights.
    slips = 1.0 + 3e-2 * largest(log_sums) if checker.dtype == "float32" else 1.0 + 1e-4 * largest(log_sums)
    sure = sees & (np.abs(log_sums) < 1e6 if checker.dtype == "float64" else np.abs(log_sums) < 1e2)
    checker.check("means", means[sure], (p @ values)[sure], certified[sure], slips * (1.0 + sizes[sure]))
    found = placed._listed(queries, "sums", once=once).sums(squares=True)
    c = max(found.certificate, 1e-300)
    weights = np.zeros(1) if case["log_weights"] is None else case["log_weights"][np.isfinite(case["log_weights"])]
    certified = 2.0 * c * (np.log(len(values) / c) + 1.0 + np.ptp(weights) + entr(p).sum(axis=1))
    dtype = case["rows"].dtype
    images = ((x * case["metric"]).astype(dtype).astype(np.float64) for x in (rows, case["rows"]))
    squares = cdist(*images, "sqeuclidean")
    expected = (p * np.where(p > 0, squares, 0.0)).sum(axis=1)
    checker.check(
        "mean squares",
        given(found.means)[sure, 0],
        expected[sure],
        certified[sure],
        slips * (1.0 + largest(log_sums[sure]) + largest(expected[sure])),
    )
    found = placed._listed(queries, "values", once=once, power=1.0).sums(shifts_of_images=True)
    check_shifts(case, checker, found.certificate, given(found.means), rows, p, sure, slips)
    return skipped


def check_shifts(case, checker, certificate, means, rows, p, sure, slips):
    """The way from each query to the mean of its neighbours, in kernel units."""
    dtype = case["rows"].dtype
    images, mine = ((x * case["metric"]).astype(dtype).astype(np.float64) for x in (case["rows"], rows))
    shifts = p @ images - p.sum(axis=1)[:, None] * mine
    certified = certificate * (1.0 + np.linalg.norm(means, axis=1))
    error = np.linalg.norm(means - shifts, axis=1)
    checker.check("shifts", error[sure], 0.0, certified[sure], slips * (1.0 + np.abs(images).max()))


def certified(placed, verb, *args):
    """The answer of a verb, and the certificate of this call alone."""
    placed.points.certificates.largest = 0.0
    answer = getattr(placed, verb)(*args)
    return answer, placed.points.certificates.largest


def check_agreement(case, checker, placed, queries):
    """The share of the class mates, relative to itself however small it is, against a literal softmax."""
    codes, (log_sums, p) = case["classes"], literal(case)
    mates = (p @ np.eye(int(codes.max()) + 1)[codes])[np.arange(len(codes)), codes]
    (_, got), certificate = certified(placed, "class_agreement", queries)
    sure = mates > (1e-200 if checker.dtype == "float64" else 1e-20)
    rounding = largest(log_sums) + largest(np.log(mates[sure]))
    checker.check("agreement", got[sure], np.log(mates[sure]), certificate, rounding)


def check_all_rows(case, checker, placed, queries):
    """Scatter and pull of all rows, against the dense placement in the same arithmetic.

    Scatters of clusters at 1e8, whose rows the dense placement would do one by one, are compared with literal ones.
    """
    n, r = len(case["X"]), case["row_weights"]
    log_sums = placed._every_pair.log_sums(queries).log_sums
    if not np.isfinite(log_sums).all() or np.abs(log_sums).max() > (1e6 if checker.dtype == "float64" else 1e2):
        return
    check_agreement(case, checker, placed, queries)
    expected = expected_scatter(case, placed, queries, "images")
    trace, (log_sums, _) = float(np.trace(expected)), literal(case, None)
    one_by_one = queries.take(np.random.default_rng(0).permutation(n), n)  # all rows, but not in their order
    for what, asked, weights in (("each pair once", queries, r), ("each row", one_by_one, r[one_by_one.positions])):
        found, c = certified(placed, "scatter", asked, weights, "images")
        difference = np.linalg.norm(found.scatter - expected, 2)
        bound = c * (r.sum() + np.trace(found.scatter))
        checker.check(f"scatter, {what}", difference, 0.0, bound, 10.0 * trace + 1e-6 * r.sum())
        of_rows = log_sums if asked is queries else log_sums[asked.positions]
        checker.check(f"log-sums, {what}", found.log_sums, of_rows, c, largest(log_sums))
    scaled = np.outer(case["metric"], case["metric"])
    found, c = certified(placed, "scatter", queries, r, "rows")
    of_rows, expected = found.scatter * scaled, expected_scatter(case, placed, queries, "rows") * scaled
    difference = np.linalg.norm(of_rows - expected, 2)
    checker.check("scatter of rows", difference, 0.0, c * (r.sum() + np.trace(of_rows)), 20.0 * trace + 1e-6 * r.sum())
    found, c = certified(placed, "scatter_and_means", queries, r, case["values"], 1)
    bound = c * (r.sum() + found.scatter[0, 0])
    one = float(expected_scatter(case, placed, queries, "images")[0, 0])
    checker.check("scatter beside means", found.scatter[0, 0], one, bound, 10.0 * trace + 1e-6 * r.sum())
    shares, c = certified(placed, "class_shares", queries)
    dense = np.exp(placed._every_pair.log_sums(queries, by_class=True).log_shares)
    checker.check("class shares", shares, dense, 2.0 * c, 1.0 + 1e-2 * largest(log_sums))
    size = np.abs(placed.coordinates(queries, "images")).max()
    if n > 1 and size < (1e6 if checker.dtype == "float64" else 1e3):
        pull, c = certified(placed, "softmax_pull", queries, r)
        dense = placed._every_pair.softmax_pull(queries, r)
        bound = 2.0 * c * (r.sum() + np.sqrt(r.sum() * max(trace, 0.0)))
        total = np.linalg.norm(pull - dense, axis=1).sum()
        checker.check("pull", total, 0.0, bound, n * (1.0 + size) * (1.0 + 1e-2 * largest(log_sums)))


def expected_scatter(case, placed, queries, space):
    """The scatter of all rows without pruning."""
    r = case["row_weights"]
    if case["kind"] != "far clusters":
        return placed._every_pair.scatter(queries, r, space).scatter
    p, values = literal(case)[1], placed.coordinates(queries, space).astype(np.float64)
    scatter = np.zeros((values.shape[1],) * 2)
    for i, weights in enumerate(p):
        seen = np.flatnonzero(weights)
        differences = values[seen] - values[i]
        scatter += r[i] * (differences * weights[seen, None]).T @ differences
    return scatter


# -- kernels of their own ---------------------------------------------------------------------------------------------

ORACLE_ROWS = 40  # queries that are compared with a literal sum; all of them are compared with the dense answer


def draw_kernels(case, seed):
    """Frames of widely different variances, and their log-weights and noise."""
    rng = np.random.default_rng([seed, 1])
    n, d = case["X"].shape
    depth, width = int(rng.integers(0, min(d, 3) + 1)), float(1.0 / case["metric"][0])
    frames = np.empty((depth, n, d))
    for l, direction in enumerate(rng.normal(size=(depth, n, d))):
        for other in frames[:l]:
            direction = direction - (direction * other).sum(axis=1, keepdims=True) * other
        frames[l] = direction / np.linalg.norm(direction, axis=1, keepdims=True)
    variances = np.sort(width**2 * 10.0 ** rng.uniform(-2, 1.5, size=(depth, n)), axis=0)[::-1]
    return frames, variances, width**2 * 10.0 ** rng.uniform(-2, 0)


def check_kernels(case, checker, seed):
    """Log-sums and listed pairs of points with a kernel each, against dense and literal ones; whether any were skipped."""
    frames, variances, noise = draw_kernels(case, seed)
    X, d = case["X"].astype(checker.dtype), case["X"].shape[1]
    covariances = noise * np.eye(d) + np.einsum("lnj,ln,lnk->njk", frames, variances, frames)
    queries = None if seed % 3 else case["new"].astype(X.dtype)
    pruned, dense = (
        prepare(
            Engine("cpu", threads=1 + seed % 2, precision=checker.dtype, error=error), X, log_weights=case["log_weights"],
            leave_one_out=case["own"],
        ).at(Frames(frames.astype(X.dtype), variances, noise))
        for error in (max(case["error"], 1e-12 if checker.dtype == "float64" else 1e-7), 0.0)
    )  # fmt: skip
    sums, expected = pruned.log_sums(queries), dense.log_sums(queries)
    problem = pruned.problem
    certified, finite = problem.certified_row_error, np.isfinite(expected)
    assert certified <= problem.engine.error
    assert dense.problem.certified_row_error == 0.0
    checker.check("frames, dense", sums, expected, certified, largest(expected))
    gains = np.maximum(sums - expected, 0.0)[finite]
    checker.check("frames: a sum never gains", gains, 0.0, 0.0, largest(expected))
    if checker.dtype == "float64" or largest(expected) < 1e2:
        some = np.random.default_rng(seed).permutation(len(sums))[:ORACLE_ROWS]
        literal_sums = literal_kernels(case, problem, covariances, queries, some)
        checker.check("frames", sums[some], literal_sums, certified, 10.0 * largest(expected))
    check_listed(pruned, dense, queries)
    return certified > 0.0


def check_listed(pruned, dense, queries):
    """The pairs above a floor are the same, but for those within rounding of it, and within the certificate below it.

    Pruned sums are smaller by up to the certificate, and so are the floors that follow from them.  What counts is the share of a
    pair in the sum of its row, not in that of the pairs that are listed.
    """
    least, slip = 1e-2, 0.1
    listed = []
    for placed in (pruned, dense):
        parts = list(placed.neighbors_above(least, queries))
        query, point = (np.concatenate([part[k] for part in parts] or [[]]).astype(int) for k in range(2))
        listed.append(set(zip(query.tolist(), point.tolist(), strict=True)))
    scores = dense.placed.pair_scores(dense.problem.queries(queries, None))
    log_sums, certified = dense.log_sums(queries), pruned.problem.certified_row_error
    for some, below in ((listed[0] - listed[1], certified), (listed[1] - listed[0], 0.0)):
        query, point = np.array(sorted(some), dtype=int).reshape(-1, 2).T
        nats = scores(query, point) - log_sums[query] - np.log(least)
        assert np.all((nats >= -slip - below) & (nats <= slip)), "listed pairs differ"


def literal_kernels(case, problem, covariances, queries, some):
    """Log-sums of some queries under full covariances, in float64."""
    points = problem.points.rows.astype(np.float64)
    mine = points[some] if queries is None else (queries[some] - problem.centre).astype(problem.points.rows.dtype)
    log_sums, inverses = [], np.linalg.inv(covariances)
    heights = -0.5 * np.linalg.slogdet(covariances)[1]
    heights = heights if case["log_weights"] is None else heights + case["log_weights"]
    for q, i in zip(mine.astype(np.float64), some, strict=True):
        scores = heights - 0.5 * np.einsum("nj,njk,nk->n", q - points, inverses, q - points)
        if queries is None and case["own"]:
            scores[i] = -np.inf
        log_sums.append(softmax_of(scores[None])[0][0])
    return np.array(log_sums)


def check(case: Case) -> str:
    """One problem in one precision."""
    case.what = ("float64", "float32")[case.number % 2]
    number = case.seed + case.number // 2
    case.text = f"check_case({number}, {case.rows}, {case.what!r}): {draw_case(number, case.rows)['text']}"
    with tuning.forced(**PRUNED):
        outcome = check_case(number, case.rows, case.what)
    case.largest[f"largest error over certificate, {case.what}"] = outcome.ratio
    return "within the certificate, pairs skipped" if outcome.skipped else "within the certificate, no pair skipped"
