"""Test the simulated chunklets and pairs of the RCA paper: sizes, shares and randomness."""

import numpy as np
import pytest

from vicinal import chunklets_from_pairs
from vicinal.companions import expected_chunklet_size, simulate_chunklets, simulate_pairs, simulate_teachers


def assert_well_formed(entries, y):
    """Entries are different, every chunklet has two or more rows of one class."""
    rows, ids = entries
    assert len(np.unique(np.column_stack([rows, ids]), axis=0)) == len(rows)
    assert np.bincount(ids).min() >= 2
    for k in range(ids.max() + 1):
        assert len({y[i] for i in rows[ids == k]}) == 1


@pytest.mark.parametrize("ratio", [0.5, 1.0, 2.0, 4.0])
def test_teachers_chunklets_have_the_size_of_appendix_d(ratio):
    n_classes = 400  # Appendix D replaces the binomial by its Poisson limit
    y = np.repeat(np.arange(n_classes), 200)
    _, ids = simulate_teachers(y, 60, ratio=ratio, random_state=0)
    sizes = np.bincount(ids)
    error = sizes.std() / np.sqrt(len(sizes))
    assert abs(sizes.mean() - expected_chunklet_size(ratio)) < 4 * error + 0.01


def test_expected_size_against_the_sum_over_the_distribution():
    from math import exp, factorial

    for r in (0.3, 1.0, 2.0, 5.0):
        p = [exp(-r) * r**k / factorial(k) for k in range(2, 80)]
        literal = sum(k * q for k, q in zip(range(2, 80), p, strict=True)) / sum(p)
        assert expected_chunklet_size(r) == pytest.approx(literal, rel=1e-12)
    assert expected_chunklet_size(2) == pytest.approx(2.911, abs=5e-4)
    # the series takes over smoothly
    assert expected_chunklet_size(0.999e-3) == pytest.approx(expected_chunklet_size(1.001e-3), abs=1e-6)


def test_teachers_share_points_unless_merged():
    y = np.repeat([0, 1, 2], 20)
    apart = simulate_teachers(y, 20, 6, random_state=1)
    assert_well_formed(apart, y)
    assert len(np.unique(apart.rows)) < len(apart.rows)
    merged = simulate_teachers(y, 20, 6, merge=True, random_state=1)
    assert_well_formed(merged, y)
    assert len(np.unique(merged.rows)) == len(merged.rows)
    assert set(merged.rows) == set(apart.rows)
    # T L rows are seen at most
    assert len(apart.rows) <= 20 * 6


@pytest.mark.parametrize("fraction", [0.9, 0.7, 0.2])
def test_pairs_stop_at_the_fraction_of_connected_components(fraction):
    y = np.r_[np.repeat(["a", "b", "c"], 40), [None] * 5].astype(object)
    apart = simulate_pairs(y, fraction, merge=False, random_state=3)
    pairs = apart.rows.reshape(-1, 2)
    assert apart.ids.tolist() == np.repeat(np.arange(len(pairs)), 2).tolist()
    assert all(y[i] == y[j] and i != j for i, j in pairs)
    assert len({frozenset(p) for p in pairs.tolist()}) == len(pairs)
    closed = chunklets_from_pairs(pairs, len(y))
    n_components = (closed < 0).sum() + closed.max() + 1
    assert n_components == np.floor(fraction * len(y))
    merged = simulate_pairs(y, fraction, random_state=3)
    assert_well_formed(merged, y)
    assert merged.ids.max() == closed.max()
    assert sorted(merged.rows) == np.flatnonzero(closed >= 0).tolist()


def test_pairs_are_drawn_evenly_from_all_pairs_of_a_class():
    y = np.r_[np.zeros(12, int), np.ones(4, int)]  # 66 and 6 pairs
    first = [simulate_pairs(y, 0.93, merge=False, random_state=s).rows[0] < 12 for s in range(600)]
    assert abs(np.mean(first) - 66 / 72) < 4 * np.sqrt(66 / 72 * 6 / 72 / 600)


def test_the_last_reachable_fraction_is_reached():
    y = np.repeat([0, 1], 5)
    assert simulate_pairs(y, 0.2, random_state=0).ids.tolist() == [0] * 5 + [1] * 5
    with pytest.raises(ValueError, match=r"leave at least 2\. Raise fraction to 0\.2 or more"):
        simulate_pairs(y, 0.1)


@pytest.mark.parametrize("size", [2, 3, 7, 10])
@pytest.mark.parametrize("remainder", [True, False])
def test_fixed_size_chunklets(size, remainder):
    rng = np.random.default_rng(0)
    y = rng.permutation(np.repeat([3, 1, 8, -1], [100, 60, 33, 20]))
    entries = simulate_chunklets(y, size, fraction=0.3, remainder=remainder, random_state=2)
    assert_well_formed(entries, y)
    sizes = np.bincount(entries.ids)
    assert sizes.max() == size
    per_class = {c: (y[entries.rows] == c).sum() for c in (3, 1, 8)}
    for c, total in ((3, 100), (1, 60), (8, 33)):
        drawn = 0.3 * total
        smallest = drawn - 1 - (1 if remainder else size - 1)
        assert smallest <= per_class[c] <= drawn + 1
        of_class = sizes[np.unique(entries.ids[y[entries.rows] == c])]
        assert (of_class < size).sum() <= remainder
    assert len(np.unique(entries.rows)) == len(entries.rows)


def test_no_class_is_starved_and_everything_can_be_drawn():
    y = np.repeat(np.arange(20), 10)
    entries = simulate_chunklets(y, 2, fraction=1.0, random_state=0)
    assert len(entries.rows) == 200
    assert set(y[simulate_chunklets(y, 2, fraction=0.2, random_state=0).rows]) == set(range(20))


def test_random_state_decides():
    y = np.repeat([0, 1, 2], 30)
    for simulate in (
        lambda s: simulate_teachers(y, 4, 8, random_state=s),
        lambda s: simulate_pairs(y, 0.8, random_state=s),
        lambda s: simulate_chunklets(y, 3, random_state=s),
    ):
        same, again, other = simulate(0), simulate(0), simulate(1)
        assert same.rows.tolist() == again.rows.tolist()
        assert same.rows.tolist() != other.rows.tolist()


def test_labels_are_not_changed():
    y = np.array([5, 5, 9, 9, -1])
    simulate_chunklets(y, 2, fraction=1.0)
    assert y.tolist() == [5, 5, 9, 9, -1]


Y = np.repeat([0, 1], 10)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: simulate_teachers(Y, 0), "n_teachers must be at least 1, got 0"),
        (lambda: simulate_teachers(Y, 2, 21), "n_points=21 is more than the 20 labelled rows"),
        (lambda: simulate_teachers(Y, 2, 1), "n_points must be at least 2"),
        (lambda: simulate_teachers(Y, 2, ratio=-1.0), "ratio must be"),
        (lambda: simulate_teachers([-1, -1, 0], 2), "at least 2 rows, got 1"),
        (lambda: simulate_pairs(Y, 1.5), "fraction must be"),
        (lambda: simulate_pairs(Y, 0), "fraction must be"),
        (lambda: simulate_chunklets(Y, 1), "size must be at least 2, got 1"),
        (lambda: simulate_chunklets(Y, 2, fraction=-0.1), "fraction must be"),
        (lambda: expected_chunklet_size(0), "ratio must be"),
        (lambda: simulate_chunklets(np.linspace(0, 1, 9)), "fractions"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
