"""Points with a kernel each: tiles that cannot matter are skipped, with a certificate."""

import numpy as np
import pytest

from vicinal import Engine, LocalLCA, ManifoldParzen, which_engine
from vicinal._engine import Frames, certificates_of_fit, prepare
from vicinal._engine.frames.boxes import KernelTiles


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return 0.3 * rng.normal(size=(1500, 3)) + 4.0 * rng.normal(size=(15, 3))[rng.integers(15, size=1500)]


def frames_of(rows, depth=2, noise=0.01):
    """Random frames of widely different variances."""
    rng = np.random.default_rng(1)
    turned = np.linalg.qr(rng.normal(size=(len(rows), 3, 3)))[0]
    variances = np.sort(0.1 * 10.0 ** rng.uniform(-2, 0, size=(depth, len(rows))), axis=0)[::-1]
    return np.ascontiguousarray(turned.transpose(2, 0, 1)[:depth]), variances, noise


def both(rows, kernel, error, **options):
    """The same problem with tiles that are skipped, and with every pair."""
    return (prepare(Engine("cpu", error=level), rows, **options).at(kernel) for level in (error, 0.0))


@pytest.mark.parametrize("error", [1e-2, 1e-6])
def test_what_is_skipped_stays_below_the_certificate(pruned, rows, error):
    kernel = Frames(*frames_of(rows))
    log_weights = np.random.default_rng(2).uniform(-9, 0, size=len(rows))
    log_weights[::50] = -np.inf
    skipping, dense = both(rows, kernel, error, log_weights=log_weights, leave_one_out=True)
    for queries in (None, rows[:700] + 0.05):
        found, expected = skipping.log_sums(queries), dense.log_sums(queries)
        assert np.all(found <= expected + 1e-10)
        assert np.all(expected - found <= skipping.placed.certificate + 1e-10)
    assert 0.0 < skipping.problem.certified_row_error <= error
    assert dense.problem.certified_row_error == 0.0


def test_a_table_of_depths_and_noises_keeps_its_certificate(pruned, rows):
    """All of them share the tiles, so each must be bounded by its own widths; pairs are skipped as well."""
    frames, variances, _ = frames_of(rows)
    kernel = Frames(frames, variances, [0.3, 0.003], [0, 2])
    rng = np.random.default_rng(3)
    pairs = rng.integers(900, size=3000), rng.integers(len(rows), size=3000)
    skipping, dense = both(rows, kernel, 1e-3)
    found, expected = (placed.log_sums_table(rows[:900], skips=pairs) for placed in (skipping, dense))
    assert 0.0 < skipping.placed.certificate <= 1e-3
    np.testing.assert_allclose(found, expected, rtol=0, atol=skipping.placed.certificate + 1e-10)


def test_wider_kernels_than_the_tiles_know_are_noticed(pruned, monkeypatch):
    """The law above fails if kernels reach farther than the bounds of their tiles."""
    made, rows = KernelTiles._extremes, np.random.default_rng(0).normal(size=(1500, 3))

    def too_narrow(rows, kernels, positions):
        *boxes, falls = made(rows, kernels, positions)
        return (*boxes, 8.0 * falls)

    monkeypatch.setattr(KernelTiles, "_extremes", staticmethod(too_narrow))
    skipping, dense = both(rows, Frames(*frames_of(rows)), 1e-6, leave_one_out=True)
    assert np.any(dense.log_sums() - skipping.log_sums() > skipping.problem.certified_row_error + 1e-10)


@pytest.mark.parametrize("new", [False, True])
def test_pairs_above_a_floor_are_those_of_all_pairs(pruned, rows, new):
    listed, queries = [], rows[::-1] + 0.01 if new else None
    for placed in both(rows, Frames(*frames_of(rows)), 1e-6, leave_one_out=True):
        parts = list(placed.neighbors_above(1e-3, queries))
        listed.append({(int(i), int(j)) for query, point, _ in parts for i, j in zip(query, point, strict=True)})
    assert listed[0] == listed[1]
    assert len(listed[0]) > len(rows)


def test_few_tiles_of_frames_are_looked_at_for_listed_pairs(pruned, rows, monkeypatch):
    seen, reached = [], KernelTiles.reached
    monkeypatch.setattr(KernelTiles, "reached", lambda self, *at: seen.append(reached(self, *at)) or seen[-1])
    placed = prepare(Engine("cpu", threads=1, error=1e-6), rows).at(Frames(*frames_of(rows)))
    assert sum(len(query) for query, _, _ in placed.neighbors_above(1e-3)) > len(rows)
    assert np.mean([len(tiles) for tiles in seen]) < 0.5 * (len(rows) / 64)


def test_a_floor_that_no_pair_reaches_lists_nothing(pruned, rows):
    """Blocks of queries that reach no tile at all used to end in an IndexError."""
    skipping, _ = both(rows, Frames(*frames_of(rows)), 1e-6, leave_one_out=True)
    assert not any(len(query) for query, _, _ in skipping.neighbors_above(1e30))


def test_a_row_that_sees_nobody_visits_everything(pruned, rows):
    """Its sum is 0, so no tile is negligible for it; the other sums are correct."""
    log_weights = np.full(len(rows), -np.inf)
    log_weights[0] = 0.0
    skipping, dense = both(rows, Frames(*frames_of(rows)), 1e-3, log_weights=log_weights, leave_one_out=True)
    found = skipping.log_sums()
    assert found[0] == -np.inf
    np.testing.assert_allclose(found[1:], dense.log_sums()[1:], rtol=0, atol=1e-9)


@pytest.mark.parametrize("threads", [1, 3])
def test_bits_do_not_depend_on_the_threads(pruned, rows, threads):
    placed, one = (
        prepare(Engine("cpu", threads=count, error=1e-6), rows, leave_one_out=True).at(Frames(*frames_of(rows)))
        for count in (threads, 2)
    )
    np.testing.assert_array_equal(placed.log_sums(), one.log_sums())


def test_estimators_tell_what_was_skipped(pruned, rows):
    """`which_engine` states what the fitted kernels visit, and `certified_row_error_` is that of all sums of the fit."""
    engine = Engine("cpu", error=1e-4)
    parzen = ManifoldParzen(n_components=1, n_neighbors=10, engine=engine)
    assert "of the pairs" not in which_engine(rows, parzen)
    assert parzen.fit(rows).certified_row_error_ <= 1e-4
    assert "of the pairs" in which_engine(rows, parzen)
    local = LocalLCA(shared=1.0, noise=0.0, n_neighbors=10, n_components=1, reg=0.0, engine=engine).fit(rows)
    assert 0.0 < local.certified_row_error_ <= 1e-4  # that of LCA, which it begins with
    assert local.set_params(engine=Engine("cpu", error=0.0)).fit(rows).certified_row_error_ == 0.0


def test_certificates_of_several_problems_belong_to_the_fit_around_them(pruned, rows):
    kernel = Frames(*frames_of(rows))
    with certificates_of_fit() as found:
        one, other = (prepare(Engine("cpu", error=error), rows).at(kernel) for error in (1e-3, 1e-6))
        one.log_sums()
        other.log_sums()
    assert found.largest == one.problem.certified_row_error > other.problem.certified_row_error > 0.0
