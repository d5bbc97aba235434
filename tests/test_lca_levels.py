"""Exact fits of many rows: starts from samples, and the choice between exact and stochastic fits."""

import numpy as np
import pytest

from vicinal import LCA
from vicinal._lca import base, stochastic
from vicinal._lca import lca as lca_module
from vicinal._lca.steps import Penalty


@pytest.fixture
def few_are_many(monkeypatch):
    """1500 rows are many, and samples begin at 200."""
    monkeypatch.setattr(stochastic, "LEVELS_FROM_ROWS", 1000)
    monkeypatch.setattr(stochastic, "FIRST_LEVEL", 200)


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    centres, shape = 4.0 * rng.normal(size=(8, 3)), rng.normal(size=(3, 3))
    return 0.4 * rng.normal(size=(1500, 3)) @ shape + centres[rng.integers(8, size=1500)]


def test_levels_grow_to_at_most_half_of_the_rows():
    assert stochastic.level_sizes(9_000) == []
    assert stochastic.level_sizes(10_000) == [5_000]
    assert stochastic.level_sizes(581_012) == [5_000, 20_000, 80_000, 290_506]
    for n in (10_000, 45_000, 10**6):
        assert all(2 * n >= stochastic.GROWTH * size for size in stochastic.level_sizes(n))


def test_a_kernel_narrows_with_the_number_of_rows():
    metric = np.array([[2.0, 0.0], [1.0, 3.0]])
    wider = np.linalg.inv(metric) @ np.linalg.inv(metric).T
    narrow = stochastic.narrowed(metric, 100, 6400)
    np.testing.assert_allclose(np.linalg.inv(narrow.T @ narrow), wider * (1 / 64) ** (2 / 6), rtol=1e-12)
    # What the penalty adds to every covariance does not narrow.
    narrow = stochastic.narrowed(metric, 100, 6400, Penalty(0.01 * np.eye(2)))
    expected = 0.01 * np.eye(2) + (wider - 0.01 * np.eye(2)) * (1 / 64) ** (2 / 6)
    np.testing.assert_allclose(np.linalg.inv(narrow.T @ narrow), expected, rtol=1e-10)


@pytest.mark.parametrize(
    ("reg", "limit"), [(0.0, "LEVELS_FROM_ROWS"), (0.01, "LEVELS_FROM_ROWS"), (0.01, "COARSE_FROM_ROWS")]
)
def test_a_start_from_some_of_the_rows_leads_to_the_same_optimum_in_fewer_passes(rows, monkeypatch, reg, limit):
    monkeypatch.setattr(stochastic, "FIRST_LEVEL", 200)
    plain = LCA(solver="accelerated", reg=reg).fit(rows)
    monkeypatch.setattr(stochastic, limit, 1000)
    started = LCA(solver="accelerated", reg=reg).fit(rows)
    assert started.objectives_[-1] == pytest.approx(plain.objectives_[-1], abs=1e-6)
    np.testing.assert_allclose(started.covariance_, plain.covariance_, rtol=1e-2, atol=1e-4)
    assert started.n_iter_ < plain.n_iter_
    assert started.objectives_[0] > plain.objectives_[0]


def test_auto_is_exact_where_few_pairs_are_expected(rows, few_are_many, monkeypatch):
    assert LCA(reg=0.0).fit(rows).solver_ == "accelerated"
    monkeypatch.setattr(base, "EXACT_PAIRS", 1e3)
    monkeypatch.setattr(stochastic, "EXACT_PAIRS", 1e3)
    assert LCA(reg=0.0, random_state=0).fit(rows).solver_ == "stochastic"


def test_a_start_that_is_given_is_kept(rows, few_are_many, monkeypatch):
    monkeypatch.setattr(lca_module, "coarse_start", None)
    assert LCA(solver="accelerated", init=0.5, reg=0.0).fit(rows).converged_
