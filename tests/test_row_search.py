"""Test that the streamed search agrees with a sort of all scores for all blocks, threads and precisions."""

import numpy as np
import pytest

from vicinal._engine import RowSearch

RANKED_BY = ("distance", "product", "cosine")


def by_hand(queries, rows, ranked_by, left_out=None):
    """All scores (larger is better) in extended precision, and the order of the rows, ties in their order."""
    Q, X = queries.astype(np.longdouble), rows.astype(np.longdouble)
    if ranked_by == "cosine":
        Q, X = (Z / np.sqrt((Z * Z).sum(axis=1))[:, None] for Z in (Q, X))
    scores = Q @ X.T if ranked_by == "product" else -((Q[:, None] - X[None]) ** 2).sum(axis=2)
    if left_out is not None:
        hit = np.flatnonzero(left_out >= 0)
        scores[hit, left_out[hit]] = -np.inf
    return np.argsort(-scores, axis=1, kind="stable"), scores


def found_in_blocks(queries, rows, k, ranked_by, *, size, threads=1, left_out=None):
    """What the compiled search finds, which is what the one in NumPy finds."""
    both = []
    for compiled in (True, False):
        search = RowSearch(queries, k, ranked_by, threads=threads, left_out=left_out, compiled=compiled)
        for start in range(0, len(rows), size):
            search.add(start, rows[start : start + size])
        both.append(search.found())
    np.testing.assert_array_equal(both[0].indices, both[1].indices)
    np.testing.assert_allclose(both[0].scores, both[1].scores, rtol=1e-12, atol=1e-25)
    return both[0]


def shown(scores, ranked_by):
    return scores if ranked_by == "product" else -scores


@pytest.mark.parametrize("ranked_by", RANKED_BY)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_blocks_and_threads_change_nothing_and_the_order_is_that_of_a_sort(ranked_by, dtype):
    rng = np.random.default_rng(0)
    rows, queries = (rng.normal(size=(n, 24)).astype(dtype) for n in (700, 40))
    left_out = np.where(np.arange(40) % 3 == 0, np.arange(40) * 5, -1)
    order, scores = by_hand(queries, rows, ranked_by, left_out)
    for size, threads in ((700, 1), (64, 2), (7, 1)):
        found = found_in_blocks(queries, rows, 12, ranked_by, size=size, threads=threads, left_out=left_out)
        np.testing.assert_array_equal(found.indices, order[:, :12])
        best = np.take_along_axis(scores, order[:, :12], axis=1).astype(np.float64)
        np.testing.assert_allclose(shown(found.scores, ranked_by), best, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("ranked_by", RANKED_BY)
def test_ties_go_by_the_order_of_the_rows(ranked_by):
    # Small whole numbers: many rows are equal, and many others have equal scores.
    rng = np.random.default_rng(1)
    rows = rng.integers(-1, 2, size=(300, 3)).astype(np.float32)
    rows[~rows.any(axis=1)] = 1
    queries = rows[:25] + 0
    for size in (300, 31):
        found = found_in_blocks(queries, rows, 20, ranked_by, size=size)
        scores = np.round(by_hand(queries, rows, ranked_by)[1].astype(np.float64), 9)
        np.testing.assert_array_equal(found.indices, np.argsort(-scores, axis=1, kind="stable")[:, :20])


def test_multiples_of_a_row_have_its_direction_and_so_tie_by_cosine():
    rng = np.random.default_rng(2)
    one, others = rng.normal(size=(1, 50)), rng.normal(size=(40, 50))
    rows = np.vstack([others, one * 3.0, one * 0.1, one * 7.0, one]).astype(np.float32).astype(np.float64)
    rows[40:] = rows[43] * np.array([[3.0], [0.1], [7.0], [1.0]])
    found = found_in_blocks(rows[43:], rows, 4, "cosine", size=13)
    np.testing.assert_array_equal(found.indices[0], [40, 41, 42, 43])
    np.testing.assert_allclose(found.scores, 0.0, atol=1e-25)


@pytest.mark.parametrize("offset", [1e3, 1e6])
def test_distances_far_from_the_origin_keep_their_order(offset):
    # By products about the origin in float32 all of these distances would be rounding errors.
    rng = np.random.default_rng(3)
    rows = (offset + rng.normal(size=(400, 8))).astype(np.float32)
    order, _ = by_hand(rows[:30], rows, "distance", np.arange(30))
    ties = by_hand(rows[:30], rows, "distance", np.arange(30))[1]
    found = found_in_blocks(rows[:30], rows, 5, "distance", size=90, left_out=np.arange(30))
    taken, best = (np.take_along_axis(ties, some[:, :5], axis=1) for some in (found.indices, order))
    np.testing.assert_array_equal(taken, best)


def test_one_row_of_another_size_does_not_hide_the_others():
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(500, 16)).astype(np.float32)
    rows[77] *= 1e15  # beyond what float32 may multiply
    for ranked_by in RANKED_BY:
        order, _ = by_hand(rows[:20], rows, ranked_by, np.arange(20))
        found = found_in_blocks(rows[:20], rows, 6, ranked_by, size=128, left_out=np.arange(20))
        np.testing.assert_array_equal(found.indices, order[:, :6])


@pytest.mark.parametrize("factor", [1e-200, 1e-30, 1e30, 1e200])
def test_cosines_do_not_depend_on_the_size_of_the_rows(factor):
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(200, 9))
    expected = by_hand(rows[:10], rows, "cosine", np.arange(10))[0][:, :5]
    dtype = np.float32 if 1e-31 < factor < 1e31 else np.float64
    some = (rows * factor).astype(dtype)
    found = found_in_blocks(some[:10], some, 5, "cosine", size=50, left_out=np.arange(10))
    np.testing.assert_array_equal(found.indices, expected)


def test_products_that_would_overflow_are_refused():
    rows = np.full((5, 3), 1e200)
    with pytest.raises(ValueError, match="Scale the rows"):
        found_in_blocks(rows, rows, 2, "product", size=5)


def test_rows_and_queries_of_two_precisions_are_compared_in_the_larger():
    rng = np.random.default_rng(6)
    rows, queries = 1.0 + 1e-9 * rng.normal(size=(60, 4)), np.ones((1, 4), dtype=np.float32)
    order, _ = by_hand(queries, rows, "distance")
    np.testing.assert_array_equal(found_in_blocks(queries, rows, 8, "distance", size=60).indices, order[:, :8])


@pytest.mark.parametrize("compiled", [True, False])
def test_few_queries_in_a_tight_cluster_far_away_keep_their_neighbors(compiled):
    # Products in float32, which serve all other queries, err by more than all of the distances within this cluster.
    rng = np.random.default_rng(8)
    rows, queries = rng.normal(size=(5000, 8)), rng.normal(size=(80, 8))
    rows[4200:] = 1e3 + 1e-2 * rng.normal(size=(800, 8))
    queries[7::10] = 1e3 + 1e-2 * rng.normal(
        size=(8, 8)
    )  # none of those, and beyond the rows, on which the precision of products is decided
    search = RowSearch(queries, 10, "distance", threads=1, compiled=compiled)
    search.add(0, rows)
    assert search._dtype == np.float32
    np.testing.assert_array_equal(search.found().indices, by_hand(queries, rows, "distance")[0][:, :10])
