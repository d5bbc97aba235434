"""Test the conversion of labels, groups and pairs to chunklets, and its report."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vicinal import chunklets_from_groups, chunklets_from_labels, chunklets_from_pairs
from vicinal._supervision import ChunkletRows, chunklets, code_groups, merge_shared, read_chunklets, read_partition


def labels_report(y):
    return chunklets._from_codes(code_groups(y))[1]


def pairs_report(pairs, n, cannot_link=None, labels=None):
    return chunklets._read_pairs(pairs, n, cannot_link, labels)[1]


def groups_report(groups, n):
    return chunklets._from_groups(groups, n, "groups")[1]


def literal_closure(pairs, n):
    """Join groups one pair at a time; number by first row, drop singletons."""
    groups = [{i} for i in range(n)]
    for i, j in pairs:
        a = next(g for g in groups if i in g)
        b = next(g for g in groups if j in g)
        if a is not b:
            groups.remove(b)
            a |= b
    out = np.full(n, -1)
    for k, group in enumerate(sorted((g for g in groups if len(g) > 1), key=min)):
        out[list(group)] = k
    return out


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.tuples(*[st.integers(0, n - 1)] * 2)))))
@example((6, [(0, 0)] * 5 + [(0, 1)]))
def test_closure_of_pairs_agrees_with_joining_one_by_one(case):
    n, pairs = case
    found, report = chunklets_from_pairs(pairs, n), pairs_report(pairs, n)
    expected = literal_closure(pairs, n)
    np.testing.assert_array_equal(found, expected)
    assert report.n_chunklets == expected.max() + 1
    assert report.n_points == (expected >= 0).sum() == n - report.n_leftover
    assert report.n_self_pairs == sum(i == j for i, j in pairs)
    np.testing.assert_array_equal(chunklets_from_groups(pairs, n), expected)
    table = np.array(pairs, dtype=int).reshape(-1, 2)
    if len(table) == n >= 3 and set(table.ravel()) == {0, 1}:  # this may as well be one-hot labels of n rows
        with pytest.raises(ValueError, match="looks like labels"):
            read_partition(table.tolist(), n)
        return
    np.testing.assert_array_equal(read_partition(table.tolist() or table, n)[0], expected)


SAME = np.array([0, -1, 1, 0, 1, -1, 0])


@pytest.mark.parametrize(
    "labels",
    [
        [7, -1, 3, 7, 3, 5, 7],
        np.array([7, -1, 3, 7, 3, 5, 7], dtype=np.int8),
        np.array([7.0, np.nan, 3, 7, 3, 5, 7]),
        np.array([10**12, -1, 3, 10**12, 3, 5, 10**12]),
        np.array([2**63, 1, 3, 2**63, 3, 5, 2**63], dtype=np.uint64),
        ["a", None, "b", "a", "b", "c", "a"],
        np.array(["a", "z", "b", "a", "b", "c", "a"]),
        np.array(["a", "-1", "b", "a", "b", "-1", "a"]),
        ["a", -1, "b", "a", "b", float("nan"), "a"],
        np.array(["2020", "NaT", "2021", "2020", "2021", "2022", "2020"], dtype="M8[Y]"),
        pd.Series(["a", None, "b", "a", "b", "c", "a"], dtype="category"),
        pd.Series(["a", None, "b", "a", "b", "c", "a"], index=list("tuvwxyz")),
        pd.Series([7, None, 3, 7, 3, 5, 7], dtype="Int64"),
        pd.Categorical([7, -1, 3, 7, 3, 5, 7]),
        pd.DataFrame({"group": ["a", np.nan, "b", "a", "b", "c", "a"]}),
        ["a", pd.NA, 3, "a", 3, pd.NaT, "a"],
    ],
)
def test_labels_of_every_kind_say_the_same(labels):
    np.testing.assert_array_equal(chunklets_from_labels(labels), SAME)
    np.testing.assert_array_equal(read_partition(labels, 7)[0], SAME)


@pytest.mark.parametrize(
    "y",
    [
        [[0, 3, 6], [2, 4]],
        [[0, 3], [6, 3], [4, 2], [5, 5], [1]],
        {"left": np.array([0, 3, 6]), "right": [2, 4], "none": []},
        [{0, 3, 6}, {2, 4}],
        pd.DataFrame({"g": list("abcacda")}).groupby("g").indices,
        np.array([[0, 3], [3, 6], [2, 4]]),
        np.array([[0, 3, 6], [2, 4, 4]]),
        pd.DataFrame({"left": [0, 6, 2], "right": [3, 3, 4]}),
        np.array([[0, 3, 6], [2, 4]], dtype=object),
        (np.array([0, 3, 6, 2, 4, 5]), np.array([9, 9, 9, 1, 1, 0])),
        ([0, 3, 6, 2, 4, 5, 1], ["x", "x", "x", "y", "y", "z", None]),
        ChunkletRows(np.array([4, 2, 6, 3, 0]), np.array([0, 0, 5, 5, 5])),
    ],
)
def test_groups_pairs_and_positions_say_the_same(y):
    np.testing.assert_array_equal(read_partition(y, 7)[0], SAME)


def test_rows_and_ids_keep_shared_rows_apart_until_they_are_merged():
    y = ([0, 1, 1, 2, 3, 4], [0, 0, 1, 1, 2, 2])
    entries, report = read_chunklets(y, 6)
    assert entries.rows.tolist() == [0, 1, 1, 2, 3, 4]
    assert entries.ids.tolist() == [0, 0, 1, 1, 2, 2]
    assert (report.n_points, report.n_shared, report.n_leftover, report.degrees_of_freedom) == (6, 1, 1, 3)
    merged = merge_shared(entries, 6)
    assert merged.rows.tolist() == [0, 1, 2, 3, 4]
    assert merged.ids.tolist() == [0, 0, 0, 1, 1]
    assert read_partition(y, 6)[0].tolist() == [0, 0, 0, 1, 1, -1]


def test_the_report_counts_everything():
    report = groups_report([[0, 1], [1, 2, 2], [5], [6, 6]], 9)
    assert report.n_chunklets == 1
    assert report.n_points == 3
    assert report.n_leftover == 6
    assert report.n_singletons == 2
    assert report.n_self_pairs == 2
    assert report.n_shared == 1
    assert str(report) == (
        "1 chunklets hold 3 points (R = 2); 6 of 9 rows are in none; 2 singletons; 2 self-pairs ignored; "
        "1 rows named more than once."
    )
    report = labels_report([0, 0, 1, -1, 2])
    assert (report.n_singletons, report.n_leftover, report.n_points) == (2, 3, 2)


def test_contradictions_are_counted_and_told():
    pairs = [[0, 1], [1, 2], [3, 4]]
    with pytest.warns(UserWarning, match="2 of 4 cannot_link pairs fall inside one chunklet"):
        report = pairs_report(pairs, 7, cannot_link=[[0, 2], [0, 3], [5, 5], [5, 6]])
    assert report.n_conflicts == 2
    with pytest.warns(UserWarning, match="1 of 2 chunklets join different labels"):
        report = pairs_report(pairs, 5, labels=["a", None, "b", "c", "c"])
    assert report.n_conflicts == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chunklets_from_pairs(pairs, 5, cannot_link=[[0, 3]], labels=[0, 0, -1, 1, 1])


def test_nothing_given_is_no_chunklet():
    assert chunklets_from_pairs([], 3).tolist() == [-1, -1, -1]
    assert chunklets_from_groups([], 2).tolist() == [-1, -1]
    assert chunklets_from_labels([]).tolist() == []
    assert chunklets_from_labels([-1, None]).tolist() == [-1, -1]
    entries, report = read_chunklets([-1, -1, 0], 3)
    assert len(entries.rows) == 0
    assert report.n_leftover == 3


def test_labels_are_not_changed():
    y = np.array([5, 5, -1, 9])
    chunklets_from_labels(y)
    assert y.tolist() == [5, 5, -1, 9]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: chunklets_from_pairs([[0, 5]], 5), r"positions 0 to 4, got 1 out of range \(0 to 5\)"),
        (lambda: chunklets_from_pairs([[0, -1]], 5), r"positions 0 to 4, got 1 out of range \(-1 to 0\)"),
        (lambda: chunklets_from_pairs([[0.0, 1.0]], 5), "integers"),
        (lambda: chunklets_from_pairs([["a", "b"]], 5), "integers"),
        (lambda: chunklets_from_pairs([0, 1], 5), r"shape \(p, 2\), got \(2,\)"),
        (lambda: chunklets_from_pairs([[0, 1]], 0), "n_samples must be at least 1, got 0"),
        (
            lambda: chunklets_from_pairs([[0, 1]], 2.5),
            "n_samples must be an integer of at least 1, got float",
        ),
        (lambda: chunklets_from_pairs([[0, 1]], 3, labels=[0, 0]), "labels has 2 entries for 3 rows"),
        (
            lambda: chunklets_from_pairs([[0, 1]], 3, cannot_link=[[0, 3]]),
            "cannot_link must hold row positions",
        ),
        (lambda: chunklets_from_groups([[0, 1], [2, 9]], 5), "positions 0 to 4, got 1 out of range"),
        (lambda: chunklets_from_groups([[True, False]], 5), "integers"),
        (lambda: chunklets_from_groups([["a", "b"]], 5), "lists of row positions"),
        (lambda: chunklets_from_labels([0, -2, 1]), "1 integers below -1"),
        (lambda: chunklets_from_labels(["a", -2]), "1 integers below -1 .smallest -2"),
        (lambda: chunklets_from_labels([0.5, 1.0]), "fractions"),
        (lambda: chunklets_from_labels([[0, 1], [1, 0]]), "1d array"),
        (lambda: read_chunklets(None, 3), "requires y to be passed, but the target y is None"),
        (lambda: read_chunklets([0, 1], 3), "y has 2 entries for 3 rows"),
        (lambda: read_chunklets(([0, 1], [0, 0, 0]), 3), "as many rows as ids"),
        (lambda: read_chunklets(([0, 7], [0, 0]), 3), "out of range"),
        (lambda: read_chunklets("group", 3), "1d array"),
        (lambda: read_chunklets(np.ones((2, 2)), 3), "integers"),
        (lambda: chunklets_from_labels([0.0, np.inf, 0.0]), "y holds infinite"),
        (lambda: chunklets_from_labels([1e300, 1e300]), "y holds numbers up to 1e\\+300, which cannot be labels"),
        (lambda: chunklets_from_pairs([[0, 1], [2]], 4), "pairs must have shape .p, 2., got rows of different lengths"),
        (lambda: chunklets_from_groups(None, 4), "groups must hold lists of row positions"),
        (lambda: chunklets_from_groups(3, 4), "groups must hold lists of row positions"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_a_mixture_of_labels_and_lists_is_refused():
    y = np.empty(2, dtype=object)
    y[0], y[1] = "a", [1, 2]
    with pytest.raises(TypeError, match="got a list as entry 1"):
        read_chunklets(y, 2)


@pytest.mark.parametrize(
    "y",
    [
        (pd.Series([0, 1, 2, 3, 4, 5]), pd.Series([0, 0, 0, 1, 1, -1])),
        (pd.Index([0, 1, 2, 3, 4, 5]), pd.Categorical(["a", "a", "a", "b", "b", None])),
        (np.arange(6), pd.Series(["a", "a", "a", "b", "b", None], index=range(10, 16))),
        [pd.Series([0, 1, 2]), pd.Index([3, 4])],
        pd.Series([0, 0, 0, 1, 1], index=range(5)).groupby([0, 0, 0, 1, 1]).indices.values(),
        pd.DataFrame({"left": [0, 1, 3], "right": [1, 2, 4]}, dtype="Int64"),
    ],
)
def test_pandas_columns_are_lists_like_any_other(y):
    entries, _ = read_chunklets(y, 6)
    assert entries.rows.tolist() == [0, 1, 2, 3, 4]
    assert entries.ids.tolist() == [0, 0, 0, 1, 1]


@pytest.mark.parametrize(
    "y",
    [
        np.eye(3, dtype=int)[[0, 0, 1, 1, 2, 2]],
        np.eye(2, dtype=int)[[0, 0, 0, 1, 1, 1]],
        np.eye(2, dtype=int)[[0, 0, 0, 1, 1, 1]].tolist(),
        np.array([[0, 0, 0, 1, 1, 1]]),
    ],
)
def test_labels_in_a_table_are_not_read_as_row_positions(y):
    with pytest.raises(ValueError, match=r"looks like labels.*Pass one label per row"):
        read_chunklets(y, 6)


def test_a_list_of_neighbours_a_row_is_a_table_of_positions():
    assert read_partition([[0, 1, 2], [1, 0, 2], [2, 1, 0]], 3)[0].tolist() == [0, 0, 0]
    assert read_partition(np.array([[0, 1], [0, 1]]), 2)[0].tolist() == [0, 0]


def test_masked_labels_are_none():
    y = np.ma.array([0, 0, 1, 1, 0], mask=[False, True, False, False, False])
    assert chunklets_from_labels(y).tolist() == [0, -1, 1, 1, 0]


def test_the_report_holds_plain_integers():
    assert {type(count) for count in vars(pairs_report([[0, 1]], 4)).values()} == {int}
