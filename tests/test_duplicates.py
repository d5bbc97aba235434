"""Test the threshold for duplicates: the bound of Clopper and Pearson, the order of the tests, the promise, and bad input."""

import numpy as np
import pytest
from scipy.stats import beta, binom

from vicinal import retrieval
from vicinal._retrieval.duplicates import _fewest, _upper_bound


def test_upper_bound_is_that_of_clopper_and_pearson():
    for n_false, n in ((0, 59), (1, 93), (7, 200), (30, 31)):
        bound = _upper_bound(n_false, n, 0.95)
        assert bound == pytest.approx(beta.ppf(0.95, n_false + 1, n - n_false), rel=1e-10)
        assert binom.cdf(n_false, n, bound) == pytest.approx(0.05, rel=1e-8)
    assert _upper_bound(5, 5, 0.95) == 1.0


def test_fewest_pairs_without_a_false_one_are_59_and_299():
    assert (_fewest(0.05, 0.95), _fewest(0.01, 0.95)) == (59, 299)
    assert _upper_bound(0, 59, 0.95) <= 0.05 < _upper_bound(0, 58, 0.95)
    with pytest.raises(
        ValueError, match=r"needs at least 59 labelled pairs, even if all of them are duplicates, got 58"
    ):
        retrieval.duplicate_threshold(np.arange(58.0), np.ones(58))
    with pytest.raises(ValueError, match=r"needs at least 299 labelled groups.*got 100"):
        retrieval.duplicate_threshold(np.arange(500.0), np.ones(500), groups=np.arange(500) // 5, max_false=0.01)


def literal(distances, labels, groups, max_false):
    """The threshold by a loop over the tests, from the nearest pairs on."""
    units, accepted = len(set(groups)), None
    for step in range(1, 21):
        wanted = max(int(units * step / 20), 59)
        for candidate in sorted(set(distances)):
            below = [i for i in range(len(distances)) if distances[i] <= candidate]
            if len({groups[i] for i in below}) >= wanted:
                break
        false = {groups[i] for i in below if not labels[i]}
        total = {groups[i] for i in below}
        if len(false) == len(total) or beta.ppf(0.95, len(false) + 1, len(total) - len(false)) > max_false:
            return accepted
        farther = [d for d in distances if d > candidate]
        accepted = np.nextafter(min(farther), candidate) if farther else candidate
    return accepted


@pytest.mark.parametrize("seed", range(6))
def test_threshold_agrees_with_a_literal_loop(seed):
    rng = np.random.default_rng(seed)
    distances = np.round(rng.random(240), 2 + seed % 2)  # with ties
    labels = rng.random(240) < np.where(distances < 0.4, 0.995, 0.4)
    groups = np.arange(240) if seed < 3 else np.arange(240) // 2
    result = retrieval.duplicate_threshold(distances, labels, groups=groups, larger_is_nearer=False)
    assert result.threshold == literal(distances, labels, groups, 0.05)
    cosines = retrieval.duplicate_threshold(-distances, labels, groups=groups)
    assert cosines.threshold == (None if result.threshold is None else -result.threshold)


def test_first_failure_ends_the_tests_although_looser_thresholds_would_pass():
    distances, labels = np.arange(1000.0), np.ones(1000, dtype=bool)
    labels[:10] = False  # the nearest pairs are false: a looser threshold would have 1 % of false pairs
    result = retrieval.duplicate_threshold(distances, labels, larger_is_nearer=False)
    assert result.threshold is None
    assert (result.n_units, result.n_false, result.share) == (59, 10, 0.0)
    assert "no threshold has at most 5.0% false pairs" in str(result)


def test_all_duplicates_give_the_farthest_score():
    result = retrieval.duplicate_threshold(np.linspace(0.5, 1.0, 200), np.ones(200))
    assert result.threshold == 0.5
    assert (result.n_units, result.n_false, result.share) == (200, 0, 1.0)
    assert "at most 5.0% of the pairs up to it are false" in str(result)


@pytest.mark.parametrize("size", [1, 5])
def test_promise_is_broken_in_at_most_six_percent_of_draws(size):
    """The chance of a false pair is s^2 / 5 at distance s, so t^2 / 15 of the pairs up to t are false; groups are false together."""
    rng, broken, runs = np.random.default_rng(0), 0, 2000
    for _ in range(runs):
        centres = rng.random(400)
        false = rng.random(400) < centres**2 / 5
        distances = np.repeat(centres, size) + 1e-9 * rng.random(400 * size)
        result = retrieval.duplicate_threshold(
            distances, ~np.repeat(false, size), groups=np.repeat(np.arange(400), size), larger_is_nearer=False
        )
        broken += result.threshold is not None and result.threshold**2 / 15 > 0.05
    assert 0 < broken <= 0.06 * runs


def test_pairs_to_label_are_a_sample_of_unordered_pairs():
    corpus = np.random.default_rng(0).normal(size=(60, 3))
    found = retrieval.search(None, corpus, 4)
    every = {
        (min(i, j), max(i, j)): s
        for i, row in enumerate(found.indices)
        for j, s in zip(row, found.scores[i], strict=True)
    }
    sample = retrieval.pairs_to_label(found, 50, random_state=0)
    assert len(sample.pairs) == len({tuple(pair) for pair in sample.pairs}) == 50
    assert all(
        every[tuple(pair)] == pytest.approx(score) for pair, score in zip(sample.pairs, sample.scores, strict=True)
    )
    same = retrieval.pairs_to_label(found, 50, random_state=0)
    np.testing.assert_array_equal(sample.pairs, same.pairs)
    assert len(retrieval.pairs_to_label(found, 10**6).pairs) == len(every)
    # Pairs that share a row are in the same group, and only those that a chain of pairs connects.
    for a, left in zip(sample.groups, sample.pairs, strict=True):
        for b, right in zip(sample.groups, sample.pairs, strict=True):
            assert a == b or not set(left) & set(right)


def test_pairs_of_new_queries_are_all_counted_and_grouped_by_shared_rows():
    found = retrieval.Found(np.array([[0, 1], [1, 2], [5, 6]]), np.array([[0.9, 0.8], [0.9, 0.7], [0.6, 0.5]]))
    sample = retrieval.pairs_to_label(found, 1000, queries=np.zeros((3, 2)))
    assert sample.pairs.tolist() == [[0, 0], [0, 1], [1, 1], [1, 2], [2, 5], [2, 6]]
    assert sample.scores.tolist() == [0.9, 0.8, 0.9, 0.7, 0.6, 0.5]
    assert len(set(sample.groups[:4])) == len(set(sample.groups[4:])) == 1
    assert sample.groups[0] != sample.groups[4]


def test_pairs_of_some_rows_of_the_corpus_have_their_positions():
    found = retrieval.Found(np.array([[7, 2], [5, 3]]), np.array([[0.9, 0.8], [0.9, 0.7]]))
    sample = retrieval.pairs_to_label(found, queries=[5, 7])
    assert sample.pairs.tolist() == [[2, 5], [3, 7], [5, 7]]  # 5 and 7 find each other, and count once
    assert len(set(sample.groups)) == 1
    with pytest.raises(ValueError, match=r"result of retrieval.search for these queries.* for 3 queries"):
        retrieval.pairs_to_label(found, queries=[5, 7, 9])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scores": [[1.0]], "labels": [1]}, "scores must be finite numbers, one per pair, got float64 of shape"),
        ({"scores": [np.nan] * 60, "labels": [1] * 60}, "scores must be finite numbers"),
        ({"scores": np.arange(60), "labels": np.ones(59)}, "labels has 59 entries for 60 rows"),
        ({"scores": np.arange(60), "labels": np.full(60, 2)}, "labels must say of each pair whether it is a duplicate"),
        ({"scores": np.arange(60), "labels": ["yes"] * 60}, "labels must say of each pair whether it is a duplicate"),
        (
            {"scores": np.arange(60), "labels": np.ones(60), "max_false": 0},
            "max_false must be a number between 0 and 1",
        ),
        (
            {"scores": np.arange(60), "labels": np.ones(60), "confidence": 95},
            "confidence must be a number between 0 and 1",
        ),
        (
            {"scores": np.arange(60), "labels": np.ones(60), "groups": [None] * 60},
            "groups must name the group of every pair",
        ),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        retrieval.duplicate_threshold(**arguments)
