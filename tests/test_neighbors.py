"""Test the nearest neighbours of densities against a sort, with ties and twins."""

import numpy as np
import pytest

from vicinal._local.kernels import nearest_neighbors


@pytest.mark.parametrize(("n", "D", "grain"), [(200, 3, 2), (100, 2, 1), (60, 2, 1000), (80, 20, 1), (40, 1, 1)])
@pytest.mark.parametrize("some", [False, True])
def test_neighbours_by_sorting_with_ties_in_the_order_of_the_index(n, D, grain, some):
    """Rows on a grid: many ties and many twins."""
    rng = np.random.default_rng(n)
    X = np.round(rng.normal(size=(n, D)) * grain) / grain
    candidates = np.flatnonzero(rng.random(n) < 0.7) if some else np.arange(n)
    squares = ((X[:, None] - X[None, candidates]) ** 2).sum(axis=2)
    squares[candidates, np.arange(len(candidates))] = np.inf
    expected = candidates[np.argsort(squares, axis=1, kind="stable")]
    for k in (1, 4, 20):
        np.testing.assert_array_equal(nearest_neighbors(X, k, candidates if some else None), expected[:, :k])


def test_a_far_offset_and_a_far_row_do_not_cost_digits():
    rng = np.random.default_rng(0)
    X = 1e-3 * rng.normal(size=(100, 30))
    expected = nearest_neighbors(X, 5)
    far = np.vstack([X, np.full((1, 30), 1e7)]) + 1e6
    assert np.mean(nearest_neighbors(far, 5)[:100] == expected) > 0.99
