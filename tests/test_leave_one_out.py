"""Test that the kinds of leave-one-out problem answer the same EM statistics where they hold the same rows."""

import numpy as np
import pytest

from vicinal import Engine
from vicinal._engine import Work
from vicinal._leave_one_out import (
    IncompleteRows,
    Minibatch,
    Moments,
    leave_one_out,
    mean_and_covariance,
    problem_in_file,
    some_rows,
    weight_of_others,
)
from vicinal._row_sources import ArrayRows
from vicinal._rows import TrainingRows
from vicinal._rows.training import DrawnRows, RowsInFile

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3)) @ RNG.normal(size=(3, 3)) + 2.0
A = np.array([[1.5, 0.0, 0.2], [0.3, 1.0, 0.0], [0.0, -0.4, 2.0]])  # not symmetric, so that A and A' differ
WEIGHT = RNG.uniform(0.2, 3.0, size=40)


def literal(rows, weight, metric):
    """Eqs. 1 and 3, and S of Eq. 4 in the frame of the metric, pair by pair."""
    weight, images = np.ones(len(rows)) if weight is None else weight, rows @ metric.T
    scatter, likelihood = np.zeros((3, 3)), 0.0
    for i, image in enumerate(images):
        away = image - images
        kernels = weight * np.exp(-0.5 * np.square(away).sum(axis=1))
        kernels[i] = 0.0
        density = kernels.sum() / (weight.sum() - weight[i]) * np.linalg.det(metric) / (2 * np.pi) ** 1.5
        likelihood += weight[i] * np.log(density)
        scatter += weight[i] * (away * (kernels / kernels.sum())[:, None]).T @ away
    return likelihood / weight.sum(), scatter / weight.sum()


def kinds(weight):
    """The same rows as each kind of problem."""
    whole = leave_one_out(X, weight, "reference")
    drawn = DrawnRows(ArrayRows(X), None)
    return {
        "complete": whole,
        "minibatch": Minibatch(whole, np.arange(40)),
        "among listed rows": Minibatch(whole, np.arange(40), np.arange(40)),
        "some": some_rows(whole, np.arange(40)),
        "gaps": IncompleteRows.of(X, weight, "reference"),
        "in a file": Minibatch(
            problem_in_file(drawn, weight, Engine("reference"), Work(40, 40, 3, 1)), np.arange(40), np.arange(40)
        ),
    }


@pytest.mark.parametrize("weight", [None, WEIGHT / WEIGHT.mean()])
def test_em_statistics_of_every_kind_of_problem_are_those_of_the_paper(weight):
    likelihood, scatter = literal(X, weight, A)
    for kind, problem in kinds(weight).items():
        statistics = problem.em_statistics(A)
        assert statistics.log_likelihood == pytest.approx(likelihood, rel=1e-9), kind
        np.testing.assert_allclose(statistics.scatter, scatter, rtol=1e-8, atol=1e-10, err_msg=kind)


def test_problem_of_the_next_pass_differs_only_for_rows_with_gaps():
    whole = leave_one_out(X, None, "reference")
    assert whole.em_statistics(A).problem is whole
    holed = X.copy()
    holed[3, 1] = np.nan
    incomplete = IncompleteRows.of(holed, None, "reference")
    following = incomplete.em_statistics(A).problem
    assert following.rows[3, 1] != incomplete.rows[3, 1]
    np.testing.assert_array_equal(np.delete(following.rows, 3, axis=0), np.delete(X, 3, axis=0))


@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_moments_of_rows_in_a_file_are_those_of_the_array(weight, monkeypatch):
    monkeypatch.setattr("vicinal._row_sources.BLOCK_BYTES", 7 * 3 * 8)  # blocks of 7 rows
    rows = TrainingRows(X, weight, X)
    file = RowsInFile(ArrayRows(X), weight, None, 40, np.ones(3, dtype=bool))
    for mine, theirs in zip(mean_and_covariance(rows._replace(file=file)), mean_and_covariance(rows), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)
    assert Moments.of(X, weight).mass == pytest.approx(40 if weight is None else WEIGHT.sum())


def test_the_weight_of_the_others_keeps_its_digits_if_one_row_has_nearly_all_the_weight():
    weight = np.array([0.25, 1e20, 1.0])
    np.testing.assert_allclose(weight_of_others(weight), [1e20, 1.25, 1e20], rtol=1e-15)
