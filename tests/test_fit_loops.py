import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from vicinal._fit_loops import ascend, fixed_point, progress, warn_if_not_converged

RNG = np.random.default_rng(0)
CURVATURE = np.diag([1.0, 10.0, 100.0])
TOP = RNG.normal(size=3)


def hill(x):
    """A concave quadratic with its top at TOP."""
    away = x - TOP
    return -0.5 * away @ CURVATURE @ away, -CURVATURE @ away


@pytest.mark.parametrize("method", ["L-BFGS-B", "CG"])
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_ascend_reaches_the_top_in_any_units_of_the_objective(method, unit):
    path = ascend(
        lambda x: tuple(unit * v for v in hill(x)), np.zeros(3), max_iter=100, tol=unit * 1e-12, method=method
    )
    np.testing.assert_allclose(path.parameters, TOP, atol=1e-4)
    assert path.converged
    assert path.objectives[-1] == path.objectives.max()
    assert len(path.objectives) in (path.n_iter, path.n_iter + 1)


def test_parameters_keep_their_shape():
    def matrix_hill(A):
        return -0.5 * (A**2).sum(), -A

    path = ascend(matrix_hill, np.ones((2, 3)), max_iter=50, tol=1e-12)
    assert path.parameters.shape == (2, 3)


def test_passes_are_the_limit_unless_iterations_are():
    path = ascend(hill, np.zeros(3), max_iter=3, tol=0.0)
    assert path.n_iter == 3
    assert not path.converged
    assert path.reason == "max_iter=3 passes were used"
    path = ascend(hill, np.zeros(3), max_iter=3, tol=0.0, max_passes=100)
    assert path.n_iter > 3
    assert path.reason == "max_iter=3 iterations were used"
    path = ascend(hill, np.zeros(3), max_iter=50, tol=0.0, max_passes=4)
    assert path.n_iter == 4
    assert path.reason == "4 passes were used, line searches included"


def test_patience_asks_for_more_than_one_small_gain():
    once, twice = (ascend(hill, np.zeros(3), max_iter=100, max_passes=200, tol=0.05, patience=k) for k in (1, 2))
    assert twice.n_iter > once.n_iter
    assert twice.objectives[-1] >= once.objectives[-1]


def test_a_flat_objective_has_converged():
    path = ascend(lambda x: (1.0, np.zeros(3)), np.ones(3), max_iter=10, tol=1e-5)
    assert path.converged
    np.testing.assert_array_equal(path.parameters, np.ones(3))


def test_callback_report_and_interruption():
    reports, calls = [], []

    def callback(x, passes):
        calls.append(passes)
        if len(calls) == 2:
            raise StopIteration

    path = ascend(
        hill, np.zeros(3), max_iter=50, tol=0.0, report=lambda k, v: reports.append((k, v)), callback=callback
    )
    assert len(calls) == 2
    assert path.reason == "the callback stopped it"
    assert not path.converged
    assert [k for k, _ in reports] == list(range(1, path.n_iter + 1))

    def interrupted(x):
        if len(seen) == 4:
            raise KeyboardInterrupt
        seen.append(hill(x)[0])
        return hill(x)

    seen: list = []
    path = ascend(interrupted, np.zeros(3), max_iter=50, tol=0.0)
    assert path.reason == "it was interrupted"
    assert path.objectives[-1] == max(seen)

    def at_once(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ascend(at_once, np.zeros(3), max_iter=5, tol=0.0)


def test_fixed_point_returns_what_it_evaluated():
    """x <- (x + 2 / x) / 2 has the fixed point sqrt(2); the objective is minus the distance to it."""
    path = fixed_point(lambda x: (-abs(x - np.sqrt(2)), (x + 2 / x) / 2), 10.0, max_iter=50, tol=1e-15)
    np.testing.assert_allclose(path.parameters, np.sqrt(2), atol=1e-12)
    assert path.converged
    assert path.n_iter == len(path.objectives)
    np.testing.assert_allclose(-abs(path.parameters - np.sqrt(2)), path.objectives[-1])
    assert not fixed_point(lambda x: (x, x + 1), 0.0, max_iter=4, tol=0.0).converged


def test_warnings_and_progress(capsys):
    path = ascend(hill, np.zeros(3), max_iter=2, tol=0.0)
    with pytest.warns(ConvergenceWarning, match="X did not converge: max_iter=2 passes were used"):
        warn_if_not_converged("X", path)
    assert progress("X", 0) is None
    progress("X", 1)(3, 0.5)
    assert "[X] pass 3: objective 0.5 per row" in capsys.readouterr().err
