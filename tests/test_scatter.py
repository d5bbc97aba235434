"""Test scatters and fourth moments against their definitions, also in parts and far from the origin."""

import numpy as np
import pytest
from scipy.linalg import helmert

from vicinal import _scatter
from vicinal._scatter import chunklet_scatter
from vicinal._supervision import read_chunklets


def literal_within(X, entries):
    """N times Eq. 1, chunklet by chunklet, point by point."""
    S = np.zeros((X.shape[1], X.shape[1]))
    for k in range(entries.ids.max() + 1):
        points = X[entries.rows[entries.ids == k]]
        for x in points:
            S += np.outer(x - points.mean(axis=0), x - points.mean(axis=0))
    return S


def literal_fourth(X, entries, n_bases=None, seed=0):
    """Sum of |z|^4 over contrasts: of the Helmert basis, or the mean over random bases."""
    rng = np.random.default_rng(seed)
    total = 0.0
    for k in range(entries.ids.max() + 1):
        points = X[entries.rows[entries.ids == k]]
        basis = helmert(len(points))
        rotations = np.eye(len(basis))[None]
        if n_bases:
            q, r = np.linalg.qr(rng.normal(size=(n_bases, len(basis), len(basis))))
            rotations = q * np.sign(np.diagonal(r, axis1=1, axis2=2))[:, None, :]
        z = rotations @ basis @ points
        total += (np.linalg.norm(z, axis=-1) ** 4).sum() / len(rotations)
    return total


CASES = {
    "pairs": np.arange(60) // 2,
    "sizes 1 to 9": np.repeat(np.arange(12), [1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 3, 3]),
    "larger than d": np.repeat([0, 1, -1], [30, 25, 5]),
    "mostly none": np.r_[[0, 0, 1, 1, 1], np.full(55, -1)],
    "rows in several": (
        np.r_[np.arange(40), np.arange(20), 5, 6],
        np.r_[np.arange(40) // 4, np.arange(20) // 2 + 20, 50, 50],
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("block", [None, 4])
def test_against_the_definition(name, block, monkeypatch):
    X = np.random.default_rng(0).normal(size=(60, 4)) @ np.diag([1, 10, 0.1, 3]) + 5
    entries, report = read_chunklets(CASES[name], 60)
    if block:  # chunklets larger than a block, many jobs, several parts
        by_size = _scatter._by_size
        monkeypatch.setattr(_scatter, "_by_size", lambda entries, alone, most: by_size(entries, alone, block))
        sum_jobs = _scatter._sum_jobs
        monkeypatch.setattr(_scatter, "_sum_jobs", lambda *a: sum_jobs(*a[:4], block, a[5]))
    sums = chunklet_scatter(X, entries)
    np.testing.assert_allclose(sums.within, literal_within(X, entries), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(sums.total, np.cov(X.T, bias=True) * 60, rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(sums.mean, X.mean(axis=0), rtol=1e-14)
    assert (sums.n_rows, sums.n_points) == (60, report.n_points)
    assert sums.n_contrasts == report.degrees_of_freedom


def test_the_vicinity_of_a_chunklet_has_this_scatter():
    """w_ij = 1[same chunklet] / (2 |C|) in S(w) = sum_ij w_ij (x_i - x_j)(x_i - x_j)'."""
    X = np.random.default_rng(1).normal(size=(30, 3))
    y = np.arange(30) // 3
    S = np.zeros((3, 3))
    for i in range(30):
        for j in range(30):
            if y[i] == y[j]:
                S += np.outer(X[i] - X[j], X[i] - X[j]) / (2 * 3)
    np.testing.assert_allclose(chunklet_scatter(X, read_chunklets(y, 30)[0]).within, S, rtol=1e-12)


def test_fourth_powers_of_contrasts():
    X = np.random.default_rng(2).normal(size=(60, 4))
    pairs = read_chunklets(CASES["pairs"], 60)[0]
    assert chunklet_scatter(X, pairs).fourth.sum() == pytest.approx(literal_fourth(X, pairs), rel=1e-12)
    mixed = read_chunklets(CASES["sizes 1 to 9"], 60)[0]
    assert chunklet_scatter(X, mixed).fourth.sum() == pytest.approx(literal_fourth(X, mixed, 4000), rel=5e-3)
    # Any one basis gives about the same, not the same.
    assert chunklet_scatter(X, mixed).fourth.sum() == pytest.approx(literal_fourth(X, mixed), rel=0.3)


def test_an_offset_of_a_million_costs_no_digits():
    rng = np.random.default_rng(3)
    X = rng.integers(-(2**12), 2**12, size=(5000, 6)) / 2.0**10  # exact after the offset, too
    for y in (np.arange(5000) // 5, np.arange(5000) % 3):
        entries = read_chunklets(y, 5000)[0]
        here, there = chunklet_scatter(X, entries), chunklet_scatter(X + 2.0**20, entries)
        np.testing.assert_allclose(there.within, here.within, rtol=1e-12, atol=1e-9)
        np.testing.assert_allclose(there.total, here.total, rtol=1e-12, atol=1e-9)
        np.testing.assert_allclose(there.fourth, here.fourth, rtol=1e-9)


def test_outliers_first_cost_no_digits():
    X = np.random.default_rng(4).normal(size=(400, 3))
    X[0] = 1e7
    entries = read_chunklets(np.r_[-1, -1, np.arange(398) // 2], 400)[0]
    np.testing.assert_allclose(chunklet_scatter(X, entries).within, literal_within(X, entries), rtol=1e-12, atol=1e-12)


def test_sums_of_parts_are_the_sums_of_the_whole():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(90, 4)) + 1e6
    y = np.arange(90) // 3
    whole = chunklet_scatter(X, read_chunklets(y, 90)[0])
    parts = [chunklet_scatter(X[a : a + 30], read_chunklets(y[a : a + 30], 30)[0]) for a in (0, 30, 60)]
    both = parts[0] + parts[1] + parts[2]
    for name in ("within", "total", "mean", "fourth"):
        np.testing.assert_allclose(getattr(both, name), getattr(whole, name), rtol=1e-10, atol=1e-9)
    assert (both.n_rows, both.n_points, both.n_chunklets) == (90, 90, 30)


def test_threads_change_no_digit(monkeypatch):
    X = np.random.default_rng(6).normal(size=(6000, 5))
    entries = read_chunklets(np.arange(6000) // 3, 6000)[0]
    results = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(_scatter, "available_threads", lambda threads=threads: threads)
        results.append(chunklet_scatter(X, entries))
    for other in results[1:]:
        assert np.array_equal(results[0].within, other.within)
        assert np.array_equal(results[0].total, other.total)
        np.testing.assert_array_equal(results[0].fourth, other.fourth)


def test_float32_is_summed_in_float64():
    X = np.random.default_rng(7).normal(size=(100, 3)).astype(np.float32)
    entries = read_chunklets(np.arange(100) // 2, 100)[0]
    single, double = chunklet_scatter(X, entries), chunklet_scatter(X.astype(np.float64), entries)
    assert single.within.dtype == np.float64
    np.testing.assert_array_equal(single.within, double.within)
    assert single.resolution > double.resolution


def test_read_only_memory_maps(tmp_path):
    X = np.random.default_rng(8).normal(size=(50, 3))
    np.save(tmp_path / "X.npy", X)
    entries = read_chunklets(np.arange(50) // 2, 50)[0]
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    np.testing.assert_array_equal(chunklet_scatter(mapped, entries).within, chunklet_scatter(X, entries).within)
