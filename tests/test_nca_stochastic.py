"""Test the stochastic solver of NCA: batches, and the exact solution."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from vicinal import NCA, Objective, StochasticGradient
from vicinal._engine import Match, prepare
from vicinal._nca.objectives import neighbor_value, placed_at
from vicinal._nca.solvers import _batches, default_batch

# Whether 50 iterations are enough may hang on the last bit of a sum; where it matters, converged_ is asserted.
pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.usefixtures("short_search_in_this_file"),
]


def test_batches_visit_every_row_once():
    """It comes first: without the last batch of a pass, a fit in one batch would never end."""
    batches = _batches(12, 4, np.random.RandomState(0))
    np.testing.assert_array_equal(np.sort(np.concatenate([next(batches) for _ in range(3)])), np.arange(12))
    assert default_batch(10) == 256
    assert default_batch(784) == 784


EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": (
        "a row of weight 2 is left out as a whole when its own neighbours are chosen, while the second copy of a "
        "repeated row stays its neighbour; also, batches of other rows are drawn"
    )
}


@parametrize_with_checks(
    [NCA(solver="stochastic", random_state=0, max_iter=3)], expected_failed_checks=lambda estimator: EXPECTED_FAILURES
)
@pytest.mark.filterwarnings("ignore:all .* targets are equal:UserWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["accuracy", "likelihood"])
def test_comes_near_the_exact_solver(which):
    X, y = load_digits(n_class=5, return_X_y=True)
    X, y = X[:350], y[:350]
    exact = NCA(5, objective=which, random_state=0).fit(X, y)
    found = NCA(5, objective=which, solver=StochasticGradient(35), random_state=0).fit(X, y)
    assert found.objectives_[-1] > exact.objectives_[-1] - 0.03
    assert found.objectives_[-1] == found.objectives_.max()
    # 350 rows: all are evaluated, so the last objective is that of the components
    codes = np.unique(y, return_inverse=True)[1]
    problem = prepare("reference", X, leave_one_out=True, match=Match("class", codes))
    value = neighbor_value(found.components_, problem, objective=which)
    np.testing.assert_allclose(found.objectives_[-1], value, rtol=1e-9)
    assert found.effective_neighbors_.shape == (350,)


def test_reproducible_and_scale_safe():
    X, y = load_iris(return_X_y=True)
    settings = {"solver": StochasticGradient(batch_size=30), "random_state": 3, "max_iter": 40}
    first = NCA(2, **settings).fit(X, y)
    np.testing.assert_array_equal(NCA(2, **settings).fit(X, y).components_, first.components_)
    scaled = NCA(2, **settings).fit(1000 * X, y)
    np.testing.assert_allclose(1000 * scaled.components_, first.components_, rtol=1e-4, atol=1e-4)
    assert first.objectives_[-1] > 0.97


def test_evaluation_rows_are_a_sample_of_many_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2500, 2)).astype(np.float32)
    y = (X[:, 0] > 0).astype(int)
    with pytest.warns(ConvergenceWarning, match="max_iter=2 rounds were used"):
        nca = NCA(1, solver="stochastic", max_iter=2, random_state=0).fit(X, y)
    assert nca.evaluation_rows_.shape == nca.effective_neighbors_.shape == (2048,)
    assert len(np.unique(nca.evaluation_rows_)) == 2048
    assert nca.objectives_[-1] > 0.9
    codes = y[nca.evaluation_rows_]
    problem = prepare("cpu", X, leave_one_out=True, match=Match("class", y))
    shares = placed_at(problem, nca.components_).class_shares(nca.evaluation_rows_)
    np.testing.assert_allclose(shares[np.arange(2048), codes].mean(), nca.objectives_[-1], rtol=1e-4)


def test_interrupt_callback_and_weights():
    X, y = load_iris(return_X_y=True)
    seen = []

    def interrupt(A, rounds):
        seen.append(A.shape)
        if rounds == 3:
            raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning, match="interrupted"):
        nca = NCA(2, solver=StochasticGradient(batch_size=20), callback=interrupt, random_state=0).fit(X, y)
    assert seen == [(8,)] * 3
    assert nca.n_iter_ == 3
    weight = np.r_[np.zeros(50), np.ones(100)]
    with pytest.warns(ConvergenceWarning):
        weighted = NCA(2, solver=StochasticGradient(batch_size=40), random_state=0, max_iter=3).fit(
            X, y, sample_weight=weight
        )
    assert weighted.evaluation_rows_.min() >= 50


@pytest.mark.slow
def test_diagonal_and_soft_targets():
    X, y = load_iris(return_X_y=True)
    diagonal = NCA(solver=StochasticGradient(batch_size=30), max_iter=200, random_state=0, structure="diag").fit(X, y)
    assert diagonal.feature_relevance_[[2, 3]].sum() > 0.8
    soft = NCA(
        2, solver=StochasticGradient(batch_size=30), max_iter=200, random_state=0, objective=Objective(match="gaussian")
    ).fit(X[:, :3], X[:, 3])
    exact = NCA(2, random_state=0, max_iter=200, objective=Objective(match="gaussian")).fit(X[:, :3], X[:, 3])
    # The exact solver ends in one of two optima, 0.728 or 0.732, depending on the processor's rounding; the stochastic
    # one ends at 0.693 on both.  What it must do is to make most of the way from the common start.
    start = exact.objectives_[0]
    assert soft.objectives_[-1] - start > 0.7 * (exact.objectives_[-1] - start)
