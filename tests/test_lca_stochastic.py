"""Test the stochastic solver of LCA and partial_fit: minibatches, streams, memory, and the exact solution."""

import pickle
import tracemalloc

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from test_lca import literal_objective

from vicinal import LCA, StochasticEM, io
from vicinal._fit_loops import Recorder
from vicinal._lca.steps import Penalty, Structure
from vicinal._lca.stochastic import Metrics, Stream, Sweep, blend, sweep_path
from vicinal._leave_one_out import LeaveOneOut, Minibatch, leave_one_out

FULL = Structure("full")


@pytest.fixture(scope="module")
def rows():
    """Three slanted clusters in three dimensions."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(3, 3))
    return (rng.normal(size=(3, 3)) * 4)[rng.integers(3, size=600)] + rng.normal(size=(600, 3)) @ mixing + 5.0


def model_of(X, weight=None, reg=0.0):
    return Metrics(leave_one_out(X, weight, "reference"), Penalty(reg * np.eye(X.shape[1])), FULL)


def literal_local(X, sigma, terms, points, weight=None):
    """Sec. 5: the local covariance of some rows among some rows."""
    weight = np.ones(len(X)) if weight is None else weight
    precision, total = np.linalg.inv(sigma), np.zeros_like(sigma)
    for i in terms:
        others = [j for j in points if j != i]
        kernels = np.array([weight[j] * np.exp(-0.5 * (X[i] - X[j]) @ precision @ (X[i] - X[j])) for j in others])
        for j, kernel in zip(others, kernels, strict=True):
            total += weight[i] * kernel / kernels.sum() * np.outer(X[i] - X[j], X[i] - X[j])
    return total / weight[terms].sum()


# -- the paper, literally ----------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_a_sampled_covariance_is_the_local_covariance_of_some_rows_among_some_rows(rows, weighted):
    X = rows[:40]
    rng = np.random.default_rng(1)
    weight = rng.uniform(0.5, 1.5, size=40) if weighted else None
    weight = None if weight is None else weight / weight.mean()
    sigma = np.cov(X.T) / 4
    A = np.linalg.inv(np.linalg.cholesky(sigma))
    terms, points = rng.permutation(40)[:7], np.sort(rng.permutation(40)[:20])
    model = model_of(X, weight)
    objective, local = model.em_statistics(A, Minibatch(model.problem, terms, points))
    np.testing.assert_allclose(local, literal_local(X, sigma, terms, points, weight), rtol=1e-9, atol=1e-12)
    if not weighted:
        literal = np.mean(
            [
                np.log(
                    np.mean([np.exp(-0.5 * np.sum((A @ (X[i] - X[j])) ** 2)) for j in points if j != i])
                    * np.linalg.det(A)
                    / (2 * np.pi) ** 1.5
                )
                for i in terms
            ]
        )
        assert objective == pytest.approx(literal, rel=1e-10)
    model = model_of(X)
    everybody, _ = model.em_statistics(A, Minibatch(model.problem, np.arange(40)))
    assert everybody == pytest.approx(literal_objective(X, sigma), rel=1e-10)


def test_equation_7():
    old, new = np.diag([1.0, 2.0]), np.diag([3.0, 5.0])
    kept = 0.6 ** (100 / 6000)
    np.testing.assert_allclose(blend(old, new, 0.6, 100 / 6000), kept * old + (1 - kept) * new)
    # After a sweep the old covariance has the weight gamma, whatever the batch size.
    for batches in (1, 5, 60):
        weight = old * 0 + 1.0
        for _ in range(batches):
            weight = blend(weight, np.zeros((2, 2)), 0.6, 1 / batches)
        np.testing.assert_allclose(weight, 0.6)
    np.testing.assert_array_equal(blend(old, new, 0.0, 1.0), new)


@pytest.mark.parametrize("n_neighbors", [25, 60])
def test_a_sweep_literally(rows, n_neighbors):
    X, start = rows[:60], np.cov(rows[:60].T)
    model, sweep = model_of(X, reg=0.1), Sweep(60, 20, n_neighbors)
    rng = np.random.default_rng(7)
    path = sweep_path(model, start, Recorder(), sweep, rng, discount=0.5, max_iter=1, tol=0.0)
    rng = np.random.default_rng(7)
    rng.choice(np.arange(60), 60, replace=False)  # the measuring rows
    if n_neighbors < 60:
        rng.choice(np.arange(60), n_neighbors, replace=False)
    C = start
    for _, terms, points in sweep.minibatches(model.problem, rng):
        points = np.arange(60) if points is None else points
        estimate = literal_local(X, C + 0.1 * np.eye(3), terms, points)
        C = 0.5 ** (1 / 3) * C + (1 - 0.5 ** (1 / 3)) * estimate
    np.testing.assert_allclose(np.linalg.inv(path.parameters.T @ path.parameters), C + 0.1 * np.eye(3), rtol=1e-9)
    assert path.n_iter == 1


def test_minibatches_are_a_sweep():
    problem, rng = model_of(np.arange(200.0).reshape(100, 2)).problem, np.random.default_rng(0)
    batches = list(Sweep(100, 32, 30).minibatches(problem, rng))
    assert [len(batch.terms) for batch in batches] == [32, 32, 32, 4]
    np.testing.assert_array_equal(np.sort(np.concatenate([batch.terms for batch in batches])), np.arange(100))
    for _, _, points in batches:
        assert len(np.unique(points)) == 30
        assert np.isin(points, np.arange(100)).all()
        assert (np.diff(points) > 0).all()
    assert not np.array_equal(batches[0][1], batches[1][1])
    assert next(Sweep(100, 32, 100).minibatches(problem, rng)).points is None


# -- the estimator -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "n_candidates"),
    [({"reg": 0.0}, None), ({"reg": 0.3}, None), ({"covariance_type": "diag", "reg": 0.0}, None), ({"reg": 0.0}, 600)],
)
def test_stochastic_converges_to_exact(rows, parameters, n_candidates):
    exact = LCA(**parameters).fit(rows)
    options = {"n_candidates": n_candidates}
    solver = StochasticEM(discount=0.8, **options)
    sampled = LCA(solver=solver, random_state=0, tol=1e-4, max_iter=200, **parameters).fit(rows)
    assert sampled.converged_
    assert sampled.solver_ == "stochastic"
    loss = exact.score() - sampled.score()
    assert loss < 0.01
    # More memory of the past, less noise: closer.
    solver = StochasticEM(discount=0.98, **options)
    finer = LCA(solver=solver, init=exact.covariance_, random_state=0, **parameters).fit(rows)
    assert exact.score() - finer.score() < max(loss, 1e-3)


def test_a_few_neighbors_widen_the_kernel_as_the_paper_says(rows):
    narrow = LCA(solver="stochastic", random_state=0, reg=0.0).fit(rows)
    wide = LCA(solver=StochasticEM(n_candidates=60), random_state=0, reg=0.0).fit(rows)
    assert np.linalg.det(wide.covariance_) > 1.5 * np.linalg.det(narrow.covariance_)
    assert wide.score() < narrow.score()
    assert wide.effective_neighbors_.shape == (600,)
    assert wide.effective_neighbors_.max() <= 60


@pytest.mark.slow
def test_large_sets_see_all_rows_as_neighbors_and_end_near_exact():
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(3, 2)) * 4)[rng.integers(3, size=3400)] + rng.normal(size=(3400, 2)) * [1.0, 0.1]
    exact = LCA(reg=0.0).fit(X)
    sampled = LCA(solver="stochastic", random_state=0, reg=0.0).fit(X)
    assert exact.score() - sampled.score() < 5e-3
    biased = LCA(solver=StochasticEM(n_candidates=300), random_state=0, reg=0.0).fit(X)
    assert biased.score() < sampled.score()


def test_random_state_and_weights(rows):
    weight = np.r_[np.ones(400), np.zeros(200)]
    a = LCA(solver="stochastic", random_state=3, max_iter=5, tol=1.0, reg=0.0).fit(rows, sample_weight=weight)
    b = LCA(solver="stochastic", random_state=3, max_iter=5, tol=1.0, reg=0.0).fit(rows, sample_weight=weight)
    np.testing.assert_array_equal(a.covariance_, b.covariance_)
    moved = np.r_[rows[:400], rows[400:] * 1e6]
    c = LCA(solver="stochastic", random_state=3, max_iter=5, tol=1.0, reg=0.0).fit(moved, sample_weight=weight)
    np.testing.assert_allclose(c.covariance_, a.covariance_, rtol=1e-6)


def test_memory_is_linear_in_n():
    peaks = []
    with pytest.warns(ConvergenceWarning):  # what the first large fit imports does not count
        LCA(solver="stochastic", max_iter=1, reg=0.0).fit(np.random.default_rng(0).normal(size=(10_000, 2)))
    for n in (5_000, 10_000):
        X = np.random.default_rng(0).normal(size=(n, 2))
        lca = LCA(solver=StochasticEM(n_candidates=200), max_iter=1, random_state=0, reg=0.0)
        tracemalloc.start()
        with pytest.warns(ConvergenceWarning):
            lca.fit(X)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 2.2 * peaks[0] + 2**22


def test_not_converged_is_said(rows):
    with pytest.warns(ConvergenceWarning, match="max_iter=1 sweeps"):
        lca = LCA(solver="stochastic", max_iter=1, random_state=0, reg=0.0).fit(rows)
    assert not lca.converged_
    assert lca.n_iter_ == 1


def test_objectives_belong_to_the_measuring_rows(rows):
    lca = LCA(solver="stochastic", random_state=0, reg=0.0).fit(rows)
    assert lca.objectives_[-1] == lca.objectives_.max()
    assert abs(lca.objectives_[-1] - lca.score()) < 0.2  # 500 of 600 rows


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1"),
        ({"batch_size": 1.5}, TypeError, "batch_size must be an integer"),
        ({"n_candidates": 1}, ValueError, "n_candidates must be at least 2"),
        ({"discount": 1.0}, ValueError, "discount must be less than 1"),
        ({"discount": -0.1}, ValueError, "discount must be a finite number at least 0"),
    ],
)
def test_bad_options(parameters, error, message):
    with pytest.raises(error, match=message):
        StochasticEM(**parameters)


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_a_bad_seed(rows, method):
    with pytest.raises(ValueError, match="random_state must be None"):
        getattr(LCA(solver="stochastic", random_state="x", reg=0.0), method)(rows)


# -- streams -----------------------------------------------------------------------------------------------


def test_a_stream_literally(rows):
    first, second = rows[:50], rows[50:80]
    C = np.cov(first.T, bias=True)
    lca = LCA(reg=0.1, init=C + 0.1 * np.eye(3), solver=StochasticEM(batch_size=50, discount=0.7)).partial_fit(first)
    C = 0.7 * C + 0.3 * literal_local(rows, C + 0.1 * np.eye(3), range(50), range(50))
    np.testing.assert_allclose(lca.covariance_, C + 0.1 * np.eye(3), rtol=1e-9)
    lca.partial_fit(second)
    kept = 0.7 ** (30 / 80)
    C = kept * C + (1 - kept) * literal_local(rows, C + 0.1 * np.eye(3), range(50, 80), range(80))
    np.testing.assert_allclose(lca.covariance_, C + 0.1 * np.eye(3), rtol=1e-9)
    assert lca.n_samples_seen_ == 80
    assert lca.n_iter_ == len(lca.objectives_) == 2
    assert lca.score_samples(None).shape == lca.effective_neighbors_.shape == (80,)


@pytest.mark.slow
def test_a_long_stream_comes_close_to_a_fit(rows, tmp_path):
    stream = LCA(random_state=0, reg=0.0)
    for start in range(0, 600, 60):
        stream.partial_fit(rows[start : start + 60])
    for _ in range(10):
        stream.partial_fit(rows)
    assert stream.solver_ == "stream"
    exact = LCA(reg=0.0).fit(rows)
    held_out = np.random.default_rng(5).permutation(rows)[:100]
    assert exact.score(held_out) - stream.score(held_out) < 1.0
    io.save(stream, tmp_path / "stream.vicinal")
    copies = [pickle.loads(pickle.dumps(stream)), io.load(tmp_path / "stream.vicinal")]
    later = stream.partial_fit(rows[:10])
    for copy in copies:
        assert copy.partial_fit(rows[:10]).n_samples_seen_ == 6610
        np.testing.assert_array_equal(copy.covariance_, later.covariance_)
    smaller = stream.set_params(solver=StochasticEM(n_candidates=50)).partial_fit(rows[:10])
    assert smaller.mixture_.centres.shape == (50, 3)


def test_a_stream_goes_on_after_fit_and_keeps_its_memory_bounded(rows):
    lca = LCA(random_state=0, solver=StochasticEM(n_candidates=100), reg=0.0).fit(rows)
    before = lca.covariance_
    lca.partial_fit(rows[:20])
    assert lca.n_samples_seen_ == 620
    assert lca.mixture_.centres.shape == (100, 3)
    np.testing.assert_allclose(lca.covariance_, before, rtol=0.2, atol=0.2)
    assert LCA(reg=0.0).fit(rows).partial_fit(rows).fit(rows).n_iter_ == LCA(reg=0.0).fit(rows).n_iter_


def test_the_reservoir_is_a_uniform_sample():
    counts = np.zeros(60)
    for seed in range(400):
        stream = Stream(np.empty((0, 1)), np.eye(1), 0, 20, seed)
        for start in range(0, 60, 7):
            stream._remember(np.arange(start, min(start + 7, 60), dtype=float)[:, None])
        assert stream.seen == 60
        assert len(np.unique(stream.reservoir)) == 20
        counts[stream.reservoir[:, 0].astype(int)] += 1
    # 400 draws of 20 in 60: mean 133, standard deviation 9.4.
    assert np.abs(counts - 400 / 3).max() < 4.5 * 9.4


def test_a_stream_that_collapses_is_left_as_it_was(rows):
    lca = LCA(solver=StochasticEM(batch_size=50, discount=0.0), reg=0.0).partial_fit(rows[:50])
    before = lca.covariance_
    with pytest.raises(ValueError, match="collapses"):
        lca.partial_fit(np.repeat(rows[50:51], 20, axis=0)).partial_fit(np.repeat(rows[50:51], 2000, axis=0))
    assert lca.n_samples_seen_ in (50, 70)
    assert np.isfinite(lca.covariance_).all()
    assert np.isfinite(before).all()


def test_a_stream_refuses_what_it_cannot_start_from(rows):
    with pytest.raises(ValueError, match=r"needs more than 3 rows, got 2.*reg"):
        LCA(reg=0.0).partial_fit(rows[:2])
    assert LCA(reg=0.1).partial_fit(rows[:2]).n_samples_seen_ == 2
    with pytest.raises(ValueError, match="features"):
        LCA(reg=0.0).partial_fit(rows).partial_fit(rows[:, :2])


def test_one_pass_over_a_stream_is_enough(rows):
    stream = LCA(random_state=0, solver=StochasticEM(n_candidates=300), reg=0.0)
    rng = np.random.default_rng(4)
    many = rows[rng.integers(600, size=3000)] + 0.3 * rng.normal(size=(3000, 3))
    for start in range(0, 2500, 250):
        stream.partial_fit(many[start : start + 250])
    # As good as a fit to as many rows as the stream keeps; from the data's covariance it would be 0.6 nats behind.
    assert stream.score(many[2500:]) > LCA(reg=0.0).fit(many[:300]).score(many[2500:]) - 0.1


@pytest.mark.parametrize("reg", [0.0, 0.1])
def test_a_stream_row_by_row(rows, reg):
    stream = LCA(reg=reg, solver=StochasticEM(batch_size=1)).partial_fit(rows[:40])
    assert stream.n_iter_ == 39  # the first row waits for a neighbour
    assert np.isfinite(stream.objectives_).all()
    assert np.isfinite(stream.partial_fit(rows[40:41]).covariance_).all()
    assert stream.n_samples_seen_ == 41


@pytest.mark.parametrize(("n", "d"), [(60, 1), (200, 1), (600, 3)])
def test_small_sets_end_near_exact(rows, n, d):
    X = rows[:n, :d]
    for seed in range(3):
        assert LCA(reg=0.0).fit(X).score() - LCA(solver="stochastic", random_state=seed, reg=0.0).fit(X).score() < 5e-3


@pytest.mark.parametrize(
    ("problem", "name", "call"),
    [(LeaveOneOut, "em_statistics", 3), (Minibatch, "em_statistics", 1), (Minibatch, "neighbors", 12)],
)
def test_an_interruption_before_the_sweeps_has_no_result_and_a_later_one_keeps_the_best(
    monkeypatch, problem, name, call
):
    """In the fit to a sample, in the fit to a sample of terms, and in a sweep."""
    X = np.random.default_rng(0).standard_t(5, size=(3200, 3)) @ [[1.0, 0.9, 0.0], [0.0, 0.1, 0.0], [0.0, 0.0, 1.0]]
    calls, function = [], getattr(problem, name)

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == call:
            raise KeyboardInterrupt
        return function(*arguments)

    monkeypatch.setattr(problem, name, interrupted)
    lca = LCA(solver="stochastic", random_state=0, tol=0.0, reg=0.0)
    if name == "em_statistics":
        with pytest.raises(KeyboardInterrupt):
            lca.fit(X)
        assert len(calls) == call
        return
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        lca.fit(X)
    assert not lca.converged_
    assert len(calls) == call
    assert np.isfinite(lca.objectives_).all()


def test_weights_of_any_size_among_few_neighbors(rows):
    weight = np.r_[1e18, np.ones(599)]
    model = model_of(rows, weight * (600 / weight.sum()))
    objective, local = model.em_statistics(np.eye(3), Minibatch(model.problem, np.arange(5), np.arange(5)))
    assert np.isfinite(objective)
    assert np.isfinite(local).all()


def test_a_step_draws_no_more_neighbors_than_fit_into_memory():
    for n, options in ((10_000, StochasticEM()), (2_000, StochasticEM())):
        assert Sweep.of(n, 3, options, 500).n_neighbors == 500
        assert Sweep.of(n, 3, options, None).n_neighbors == n
    assert Sweep.of(10_000, 3, StochasticEM(n_candidates=70), 500).n_neighbors == 70
