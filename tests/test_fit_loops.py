"""Test the recorder of fits, and the loops that estimators share."""

from itertools import count

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from vicinal._fit_loops import (
    FitPath,
    Reason,
    Recorder,
    accelerated_fixed_point,
    ascend,
    best_path,
    climb_by_rounds,
    fixed_point,
    progress,
    warn_if_not_converged,
)

RNG = np.random.default_rng(0)
CURVATURE = np.diag([1.0, 10.0, 100.0])
TOP = RNG.normal(size=3)


def hill(x):
    """A concave quadratic with its top at TOP."""
    away = x - TOP
    return -0.5 * away @ CURVATURE @ away, -CURVATURE @ away


def towards_the_top(x):
    """A step that always gains; different speeds in different directions."""
    return hill(x)[0], x + np.array([0.9, 0.5, 0.1]) * (TOP - x)


def displaced(x):
    objective, following = towards_the_top(x)
    return objective, following - x


def wandering(x):
    """A step that gains and loses: the objective at the points 0, 1, 2, ... is -(4 - k)^2 with a dip at 3."""
    k = int(x[0])
    return -((4 - k) ** 2) - (5 if k == 3 else 0), x + 1


# The loops, each as a function of the evaluation: ``loop(wrap, record, **limits)``, where wrap is put around what a pass
# evaluates.
LOOPS = {
    "fixed_point": lambda wrap, record, **limits: fixed_point(wrap(towards_the_top), np.zeros(3), record, **limits),
    "fixed_point that may lose": lambda wrap, record, **limits: fixed_point(
        wrap(wandering), np.zeros(1), record, **{**limits, "tol": -100.0}, may_lose=True
    ),
    "accelerated": lambda wrap, record, **limits: accelerated_fixed_point(
        wrap(displaced), lambda x, move: (x + move, move), np.zeros(3), record, **limits
    ),
    "L-BFGS-B": lambda wrap, record, **limits: ascend(wrap(hill), np.zeros(3), record, **limits),
    "CG": lambda wrap, record, **limits: ascend(wrap(hill), np.zeros(3), record, **limits, method="CG"),
}


class Watched:
    """Counts the passes of an evaluation and remembers where they were; Ctrl-C at one of them."""

    def __init__(self, interrupt_at=None):
        self.interrupt_at, self.passes = interrupt_at, []

    def __call__(self, evaluate):
        def watched(x):
            if len(self.passes) + 1 == self.interrupt_at:
                raise KeyboardInterrupt
            found = evaluate(x)
            self.passes.append((float(found[0]), np.array(x)))
            return found

        return watched


# -- the recorder -------------------------------------------------------------------------------------------


def test_the_highest_point_is_kept_and_the_path_ends_with_its_objective():
    record = Recorder()
    assert [record.add(name, value) for name, value in zip("abcd", (1.0, 3.0, 2.0, 3.0), strict=True)] == [
        True,
        True,
        False,
        False,  # the first of equal points
    ]
    path = record.path()
    assert path.parameters == "b"
    assert path.objectives.tolist() == [1.0, 3.0, 2.0, 3.0]
    assert path.n_iter == 4
    record.add("e", 0.0)
    assert record.path().objectives.tolist() == [1.0, 3.0, 2.0, 3.0, 0.0, 3.0]
    assert record.path().n_iter == 5


def test_a_loop_may_decide_what_is_kept():
    record = Recorder()
    record.add("a", 2.0)
    assert not record.add("b", 3.0, keep=False)
    assert record.add("c", 1.0, keep=True)
    assert record.kept == "c"
    assert record.path().objectives.tolist() == [2.0, 3.0, 1.0]
    first = Recorder()
    assert first.add("a", 2.0, keep=False)  # there is no other point to return
    assert first.kept == "a"


def test_a_start_may_be_known_before_the_first_pass():
    record = Recorder()
    record.begin("start", 5.0)
    assert record.path().n_iter == 0
    assert record.path().objectives.tolist() == [5.0]
    record.add("a", 4.0)
    assert record.path().parameters == "start"
    assert record.path().objectives.tolist() == [4.0, 5.0]


def test_what_is_not_a_number_is_never_kept_beside_a_number():
    record = Recorder()
    record.add("a", np.nan)
    assert record.path().parameters == "a"
    record.add("b", -1e300)
    record.add("c", np.nan)
    assert record.path().parameters == "b"
    assert record.path().objectives[-1] == -1e300


def test_the_callback_gets_a_vector_of_its_own_and_a_count():
    seen, A = [], np.arange(6.0).reshape(2, 3)
    record = Recorder(callback=lambda vector, n: seen.append((vector, n)))
    record.iterated(A)
    record.iterated(A.astype(np.float32))
    assert [n for _, n in seen] == [1, 2]
    for vector, _ in seen:
        np.testing.assert_array_equal(vector, A.ravel())
        assert vector.dtype == np.float64
        vector[:] = -1.0
    np.testing.assert_array_equal(A.ravel(), np.arange(6.0))
    counter = count(7)
    for _ in range(2):
        other = Recorder(callback=lambda vector, n: seen.append((vector, n)), as_vector=np.diag, iterations=counter)
        other.iterated([1.0, 2.0])
    assert [n for _, n in seen[2:]] == [7, 8]
    assert seen[-1][0].tolist() == [1.0, 0.0, 0.0, 2.0]


def test_every_way_to_end_has_a_reason():
    def stop(vector, n):
        raise StopIteration

    for reason in Reason:
        record = Recorder(callback=stop if reason is Reason.CALLBACK else None)
        with record:
            record.add(1.0, 1.0)
            record.iterated(1.0)
            if reason is Reason.INTERRUPTED:
                raise KeyboardInterrupt
            raise record.end(reason)
        path = record.path()
        assert path.reason is reason
        assert path.clause == reason.value
        assert path.converged == (reason is Reason.CONVERGED)
        assert reason.by_user == (reason in (Reason.CALLBACK, Reason.INTERRUPTED))
    with pytest.raises(KeyboardInterrupt), Recorder():
        raise KeyboardInterrupt  # nothing is kept that could be returned
    record = Recorder()
    record.add(1.0, 1.0)
    with pytest.raises(ZeroDivisionError), record:
        raise ZeroDivisionError  # faults are not swallowed


def test_an_error_in_a_callback_is_the_users():
    def fault(vector, n):
        raise KeyError("mine")

    record = Recorder(callback=fault)
    with pytest.raises(KeyError, match="mine"):
        fixed_point(towards_the_top, np.zeros(3), record, max_iter=5, tol=0.0)


# -- laws of every loop ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("max_iter", [1, 2, 6, 60])
def test_the_best_point_and_its_objective_are_returned(loop, max_iter):
    watched, reports = Watched(), []
    record = Recorder(report=lambda passes, objective: reports.append((passes, objective)))
    path = LOOPS[loop](watched, record, max_iter=max_iter, tol=1e-9)
    objectives = [objective for objective, _ in watched.passes]
    assert path.n_passes == len(objectives)
    assert path.objectives[: path.n_passes].tolist() == objectives
    assert path.objectives[-1] == max(objectives)
    assert len(path.objectives) in (path.n_passes, path.n_passes + 1)
    assert any(value == max(objectives) and (x == path.parameters).all() for value, x in watched.passes)
    assert reports == list(enumerate(objectives, start=1))
    assert path.reason is (Reason.CONVERGED if path.converged else Reason.LIMIT)
    if max_iter == 1:
        assert not path.converged


@pytest.mark.parametrize("loop", LOOPS)
def test_an_interruption_at_any_pass_keeps_the_best_so_far(loop):
    whole = Watched()
    LOOPS[loop](whole, Recorder(), max_iter=12, tol=1e-9)
    with pytest.raises(KeyboardInterrupt):
        LOOPS[loop](Watched(1), Recorder(), max_iter=12, tol=1e-9)
    for at in range(2, len(whole.passes) + 1):
        watched = Watched(at)
        path = LOOPS[loop](watched, Recorder(), max_iter=12, tol=1e-9)
        assert len(watched.passes) == at - 1 == path.n_passes
        assert path.reason is Reason.INTERRUPTED
        assert path.clause == "it was interrupted"
        assert not path.converged
        best = max(objective for objective, _ in whole.passes[: at - 1])
        assert path.objectives[-1] == best
        assert any(value == best and (x == path.parameters).all() for value, x in watched.passes)


@pytest.mark.parametrize("loop", LOOPS)
def test_the_callback_may_stop_at_any_iteration(loop):
    def run(stop_at):
        seen = []

        def callback(vector, n):
            seen.append((vector, n))
            if n == stop_at:
                raise StopIteration

        return LOOPS[loop](Watched(), Recorder(callback=callback), max_iter=12, tol=1e-9), seen

    whole, calls = run(None)
    assert [n for _, n in calls] == list(range(1, len(calls) + 1))
    assert 1 < len(calls) <= whole.n_iter
    for at in range(1, len(calls) + 1):
        path, seen = run(at)
        assert path.reason is Reason.CALLBACK
        assert path.clause == "the callback stopped it"
        assert not path.converged
        assert len(seen) == at
        for (vector, _), (same, _) in zip(seen, calls, strict=False):
            np.testing.assert_array_equal(vector, same)
    if loop in ("fixed_point", "accelerated"):  # the others may end on a way back
        np.testing.assert_array_equal(calls[-1][0], whole.parameters)


@pytest.mark.parametrize("loop", LOOPS)
def test_an_interrupting_callback_is_an_interruption(loop):
    def callback(vector, n):
        if n == 2:
            raise KeyboardInterrupt

    assert LOOPS[loop](Watched(), Recorder(callback=callback), max_iter=12, tol=1e-9).reason is Reason.INTERRUPTED


# -- several loops of one fit -----------------------------------------------------------------------------------


def path_of(value, reason=Reason.CONVERGED):
    return FitPath(value, np.array([0.0, value]), 2, reason, reason.value)


def test_the_best_of_several_paths():
    best = best_path(path_of(value) for value in (1.0, 3.0, 2.0))
    assert best.parameters == 3.0
    assert best.converged
    assert best_path([path_of(1.0, Reason.LIMIT), path_of(0.0)]).reason is Reason.LIMIT


@pytest.mark.parametrize("reason", [Reason.CALLBACK, Reason.INTERRUPTED])
def test_a_user_who_ends_one_path_ends_them_all(reason):
    def paths():
        yield path_of(2.0)
        yield path_of(1.0, reason)
        raise AssertionError

    best = best_path(paths())
    assert best.parameters == 2.0
    assert best.reason is reason
    assert best.clause == reason.value
    assert not best.converged


def test_an_interruption_before_a_later_path_has_a_point():
    def paths(n):
        for _ in range(n):
            yield path_of(2.0)
        raise KeyboardInterrupt

    assert best_path(paths(1)).reason is Reason.INTERRUPTED
    with pytest.raises(KeyboardInterrupt):
        best_path(paths(0))


# -- the shared loops ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["L-BFGS-B", "CG"])
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_ascend_reaches_the_top_in_any_units_of_the_objective(method, unit):
    def scaled(x):
        return tuple(unit * v for v in hill(x))

    path = ascend(scaled, np.zeros(3), Recorder(), max_iter=100, tol=unit * 1e-12, method=method)
    np.testing.assert_allclose(path.parameters, TOP, atol=1e-4)
    assert path.converged


def test_parameters_keep_their_shape():
    path = ascend(lambda A: (-0.5 * (A**2).sum(), -A), np.ones((2, 3)), Recorder(), max_iter=50, tol=1e-12)
    assert path.parameters.shape == (2, 3)


def test_passes_are_the_limit_unless_iterations_are():
    path = ascend(hill, np.zeros(3), Recorder(), max_iter=3, tol=0.0)
    assert path.n_passes == 3
    assert path.reason is Reason.LIMIT
    assert path.clause == "max_iter=3 passes were used"
    path = ascend(hill, np.zeros(3), Recorder(), max_iter=3, tol=0.0, max_passes=100)
    assert path.n_iter == 3 < path.n_passes
    assert path.reason is Reason.LIMIT
    assert path.clause == "max_iter=3 iterations were used"
    path = ascend(hill, np.zeros(3), Recorder(), max_iter=50, tol=0.0, max_passes=4)
    assert path.n_passes == 4
    assert path.clause == "4 passes were used, line searches included"


def test_patience_asks_for_more_than_one_small_gain():
    once, twice = (
        ascend(hill, np.zeros(3), Recorder(), max_iter=100, max_passes=200, tol=0.05, patience=k) for k in (1, 2)
    )
    assert twice.n_iter > once.n_iter
    assert twice.objectives[-1] >= once.objectives[-1]


def test_a_flat_objective_has_converged():
    path = ascend(lambda x: (1.0, np.zeros(3)), np.ones(3), Recorder(), max_iter=10, tol=1e-5)
    assert path.converged
    np.testing.assert_array_equal(path.parameters, np.ones(3))


def test_fixed_point_returns_what_it_evaluated():
    """x <- (x + 2 / x) / 2 has the fixed point sqrt(2); the objective is minus the distance to it."""
    path = fixed_point(lambda x: (-abs(x - np.sqrt(2)), (x + 2 / x) / 2), 10.0, Recorder(), max_iter=50, tol=1e-15)
    np.testing.assert_allclose(path.parameters, np.sqrt(2), atol=1e-12)
    assert path.converged
    assert path.n_iter == len(path.objectives)
    np.testing.assert_allclose(-abs(path.parameters - np.sqrt(2)), path.objectives[-1])
    assert not fixed_point(lambda x: (x, x + 1), 0.0, Recorder(), max_iter=4, tol=0.0).converged


def test_a_fixed_point_ends_where_a_step_of_em_loses_by_rounding_or_before_a_step_that_loses():
    values = iter([1.0, 2.0, 2.0 - 1e-15, 9.0])
    path = fixed_point(lambda x: (next(values), x + 1), 0, Recorder(), max_iter=9, tol=1e-9)
    assert path.parameters == 2
    assert path.objectives.tolist() == [1.0, 2.0, 2.0 - 1e-15]
    values = iter([1.0, 2.0, 1.5, 9.0])
    path = fixed_point(lambda x: (next(values), x + 1), 0, Recorder(), max_iter=9, tol=1e-9, may_lose=True)
    assert path.parameters == 1
    assert path.objectives.tolist() == [1.0, 2.0, 1.5, 2.0]
    assert path.n_iter == 3


def test_warnings_and_progress(capsys):
    path = ascend(hill, np.zeros(3), Recorder(), max_iter=2, tol=0.0)
    with pytest.warns(ConvergenceWarning, match="X did not converge: max_iter=2 passes were used"):
        warn_if_not_converged("X", path)
    assert progress("X", 0) is None
    progress("X", 1)(3, 0.5)
    assert "[X] pass 3: objective 0.5 per row" in capsys.readouterr().err


def test_rounds_return_to_the_best_point_and_halve_their_steps():
    """The top is at 2.8; steps towards it swing about it until they are shorter."""
    record, scales = Recorder(), []

    def play(at, scale):
        scales.append(scale)
        at += scale * np.sign(2.8 - at)
        return at, -abs(at - 2.8)

    path = climb_by_rounds(play, 0.0, record, max_iter=100, tol=1e-3, patience=2, halvings=3)
    assert path.converged
    assert path.parameters == 2.75
    assert scales == sorted(scales, reverse=True)
    assert set(scales) == {1.0, 0.5, 0.25, 0.125}
    assert scales.count(0.5) == scales.count(0.125) == 2  # neither gains, and both begin at the best point
    assert not climb_by_rounds(play, 0.0, Recorder(), max_iter=3, tol=1e-3).converged


def test_accelerated_fixed_point_makes_no_pass_that_can_gain_nothing():
    """At 1e-6 from the top of -|x|^2/2, a step gains 5e-13 at most."""
    for start, passes in ((1e-6, 1), (1.0, 2)):
        path = accelerated_fixed_point(
            lambda x: (-0.5 * float(x @ x), -x),
            lambda x, move: (x + move, move),
            np.array([start]),
            Recorder(),
            max_iter=10,
            tol=1e-8,
        )
        assert path.converged
        assert path.n_passes == passes


@pytest.mark.parametrize("patience", [1, 3])
def test_ascent_ends_after_as_many_small_iterations_as_its_patience(patience):
    """With so large a tolerance all iterations are small, except the first one, before which there is no objective."""
    path = ascend(hill, np.zeros(3), Recorder(), max_iter=50, tol=1e9, patience=patience)
    assert path.converged
    assert path.n_iter == 1 + patience
