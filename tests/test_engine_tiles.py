"""The tiles of the CUDA placement, which torch makes on any device."""

import numpy as np
import pytest
from needs import needs

torch = needs("torch")

from vicinal._engine.cuda.tiles import Tiles, compact_tiles, halved, in_given_order, indices_fit, near_share  # noqa: E402


def clusters(n_clusters, n=900, d=5, gap=1e3, seed=0):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, n_clusters, n)
    return torch.as_tensor(gap * rng.normal(size=(n_clusters, d))[codes] + rng.normal(size=(n, d)))


@pytest.mark.parametrize("n_clusters", [1, 2, 3, 20])
def test_compact_tiles_hold_every_row_once_and_near_their_centre(n_clusters):
    """Where a tile holds three clusters, the median of its columns may be near none: its rows then never came to rest."""
    Z = clusters(n_clusters)
    index = compact_tiles(Z, halved(Z, 16), 16, 200.0)
    rows = index[index >= 0]
    np.testing.assert_array_equal(np.sort(rows), np.arange(len(Z)))
    tiles = Tiles(Z, None, index, torch.float32, True)
    assert tiles.largest <= 4 * 200.0  # of rows that are all within 200 of one of them
    back = tiles.offsets[:, :5] + tiles.centres[:, :5].repeat_interleave(16, 0)
    np.testing.assert_allclose(back[tiles.place], Z, rtol=1e-12)


def test_a_row_far_from_all_others_has_a_tile_of_its_own():
    Z = clusters(1)
    Z[7] = 1e20
    index = compact_tiles(Z, halved(Z, 16), 16, 200.0)
    [tile] = index[(index == 7).any(1)]
    assert tile[tile >= 0].tolist() == [7]


def test_rows_far_from_each_other_have_no_compact_tiles():
    Z = clusters(1, n=3000)
    assert compact_tiles(1e3 * Z, halved(Z, 16), 16, 200.0) is None


def test_tiles_in_given_order_know_where_rows_are():
    Z = clusters(2, n=37)
    tiles = Tiles(Z, torch.zeros(37, dtype=torch.float64), in_given_order(37, 16, "cpu"), torch.float64, False)
    assert (tiles.n_tiles, tiles.n_places) == (3, 48)
    np.testing.assert_array_equal(tiles.offsets[tiles.place, :5], Z)
    np.testing.assert_array_equal(torch.isinf(tiles.of_points), np.arange(48) >= 37)


def test_near_tiles_are_counted_by_their_boxes():
    """Beside each other all tiles are near; of 10 clusters far apart, those of one cluster are; apart from all, each alone."""
    Z = clusters(10, n=3200, d=3)
    assert near_share(0.01 * clusters(1, n=3200, d=3), halved(Z, 16), 16, 1e-6) == 1.0
    assert near_share(Z, halved(Z, 16), 16, 1e-6) == pytest.approx(0.1, abs=0.05)
    spread = 1e3 * clusters(1, n=3200, d=3)
    assert near_share(spread, halved(spread, 16), 16, 1e-6) < 0.05


def test_indices_of_rows_that_fill_more_tiles_than_they_need_fit_into_32_bits():
    """Compact tiles have up to a quarter more places than rows, and values are up to twice as wide as images."""
    assert indices_fit(10_000_000, 64, 128)
    assert not indices_fit(2**31 // 64 - 1, 64, 128)  # only the rows themselves would fit
    assert not indices_fit(14_000_000, 64, 128)
