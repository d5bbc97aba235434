"""Test the stochastic solver of LCA-Gauss: minibatches, the exact solution, files of rows, interruption, model files."""

import pickle
import tracemalloc

import numpy as np
import pytest
from scipy.linalg import subspace_angles
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from test_lca_gauss import clusters_and_noise, interrupt_at

from vicinal import Engine, LCAGauss, StochasticEM
from vicinal._fit_loops import Recorder
from vicinal._lca.gauss_steps import GaussRows, all_local, mixture_of_directions
from vicinal._lca.steps import Penalty
from vicinal._lca.stochastic import Splits, Sweep, sweep_path
from vicinal._leave_one_out import LeaveOneOut, Minibatch, leave_one_out
from vicinal._mixtures import SharedMixture
from vicinal._row_sources import in_file
from vicinal.io import load, save

SMALL = Engine(memory="1 MB")  # of which five copies of some thousand rows fit
PLAIN = {"reg": 0.0, "reg_gauss": 0.0}


def stochastic(**parameters):
    return LCAGauss(**{**PLAIN, "solver": "stochastic", "random_state": 0, **parameters})


def angle(model, true):
    """Return the largest angle between the local directions and the true ones, in degrees."""
    return np.degrees(subspace_angles(model.components_.T, true)).max()


@pytest.fixture(scope="module")
def rows():
    return clusters_and_noise(600)[0]


def model_of(X, reg):
    """Return what is learned by sweeps, in whitened coordinates."""
    centred = X - X.mean(axis=0)
    root = np.linalg.inv(np.linalg.cholesky(np.cov(X.T, bias=True)))
    penalty = Penalty(reg * np.eye(X.shape[1]))
    return Splits(GaussRows(leave_one_out(centred @ root.T, None, "reference"), root, X.mean(axis=0)), penalty)


# -- the paper, literally ---------------------------------------------------------------------------------------------


def literal_directions(local, C_G, reg):
    """Proposition 1 for C_L: the columns of B_G and of B_L."""
    values, vectors = np.linalg.eigh(C_G)
    root = vectors / np.sqrt(values) @ vectors.T
    e, V = np.linalg.eigh(root @ (local + reg * np.eye(len(local))) @ root)
    return root @ V[:, e >= 1], root @ V[:, e < 1] / np.sqrt(e[e < 1])


def literal_local(X, B_L, terms, points):
    total = np.zeros(2 * X.shape[1:])
    for i in terms:
        others = [j for j in points if j != i]
        kernels = np.array([np.exp(-0.5 * np.sum((B_L.T @ (X[i] - X[j])) ** 2)) for j in others])
        for j, kernel in zip(others, kernels, strict=True):
            total += kernel / kernels.sum() * np.outer(X[i] - X[j], X[i] - X[j])
    return total / len(terms)


@pytest.mark.parametrize("n_neighbors", [25, 60])
@pytest.mark.parametrize("reg", [0.0, 0.1])
def test_a_sweep_literally(rows, n_neighbors, reg):
    """Eq. 7 for the local covariance, in the coordinates of the data, and Proposition 1 after every minibatch."""
    X = rows[:60]
    model, C_G = model_of(X, reg), np.cov(X.T, bias=True)
    start = 0.5 * np.eye(4)  # in whitened coordinates, without the penalty
    sweep, limits = Sweep(60, 20, n_neighbors), {"discount": 0.5, "tol": 0.0, "max_iter": 1}
    path = sweep_path(model, start, Recorder(), sweep, np.random.default_rng(7), **limits)
    rng = np.random.default_rng(7)
    rng.choice(60, 60, replace=False)  # the measuring rows
    if n_neighbors < 60:
        rng.choice(60, n_neighbors, replace=False)
    inverse = np.linalg.inv(model.rows.root)
    C = inverse @ start @ inverse.T
    B_G, B_L = literal_directions(C, C_G, reg)
    for _, terms, points in sweep.minibatches(model.problem, rng):
        points = np.arange(60) if points is None else points
        C = 0.5 ** (1 / 3) * C + (1 - 0.5 ** (1 / 3)) * literal_local(X, B_L, terms, points)
        B_G, B_L = literal_directions(C, C_G, reg)
    assert path.n_iter == 1
    assert path.objectives[-1] == path.objectives[0]  # the sweep is the best point
    gaussian, local = path.parameters.directions(model.rows.root)
    assert len(local) > 0
    np.testing.assert_allclose(local.T @ local, B_L @ B_L.T, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(gaussian.T @ gaussian, B_G @ B_G.T, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("reg", [Penalty(0.1 * np.eye(4)), Penalty(0.1 * np.eye(4), 0.5)])
def test_directions_and_local_covariances_belong_to_each_other(rows, reg):
    model = model_of(rows[:60], 0.0)._replace(reg=reg)
    split = model.at(0.6 * np.eye(4) + np.diag([0.1, 0.2, 0.0, -0.1])).transferred(1)
    again = model.at(model.local_of(split))
    np.testing.assert_allclose(again.variances, split.variances, rtol=1e-10)
    np.testing.assert_allclose(again.gaussian @ again.gaussian.T, split.gaussian @ split.gaussian.T, atol=1e-10)
    # All Gaussian: an absorbing state, whatever the rows.
    none = all_local(4).transferred(4)
    objective, local = model.em_statistics(none, Minibatch(model.problem, np.arange(5)))
    assert len(model.at(0.3 * model.local_of(none) + 0.7 * local).variances) == 0
    everybody = split.transferred(len(split.variances))
    batch = Minibatch(model.problem, np.arange(9), np.arange(30))
    assert objective == pytest.approx(model.em_statistics(everybody, batch)[0], rel=1e-12)


# -- the exact solution -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "n_candidates"),
    [(PLAIN, None), (PLAIN, 600), ({"reg": 0.05, "reg_gauss": 0.02}, None), ({**PLAIN, "reduce": True}, None)],
)
def test_stochastic_converges_to_exact(rows, parameters, n_candidates):
    """The objective of all rows, penalised as the exact fit's is, ends within 0.005 nats per row of the maximum."""
    exact = LCAGauss(**parameters).fit(rows)
    assert exact.solver_ == "em"
    sampled = stochastic(solver=StochasticEM(discount=0.8, n_candidates=n_candidates), **parameters).fit(rows)
    assert sampled.solver_ == "stochastic"
    assert sampled.converged_
    assert sampled.n_components_ == exact.n_components_
    assert penalised(exact, rows) - penalised(sampled, rows) < 0.005
    assert penalised(exact, rows) == pytest.approx(exact.objectives_[-1], abs=1e-9)


def test_objectives_are_penalised(rows):
    """Up to 500 rows, sweeps are measured on all of them."""
    model = stochastic(reg=0.05, reg_gauss=0.02).fit(rows[:400])
    assert model.objectives_[-1] == model.objectives_.max()
    assert model.objectives_[-1] == pytest.approx(penalised(model, rows[:400]), abs=1e-9)


def penalised(model, X):
    local, gaussian = model.components_, model.gaussian_components_
    penalty = np.sum(model.reg_ * (local.T @ local)) + np.sum(model.reg_gauss_ * (gaussian.T @ gaussian))
    return model.score_samples(None).mean() - 0.5 * penalty


def test_planted_directions_are_found_with_all_rows_as_neighbors():
    X, true = clusters_and_noise(3400)
    exact = LCAGauss(reduce=True, **PLAIN).fit(X)
    model = stochastic(reduce=True).fit(X)
    assert model.n_components_ == exact.n_components_ == 2
    assert angle(model, true) < 1.0
    assert abs(exact.score() - model.score()) < 0.005
    assert model.effective_neighbors_.shape == (3400,)
    assert model.effective_neighbors_.max() <= 3000
    assert len(model.objectives_) - model.n_iter_ in (0, 1)


def test_one_gaussian_stays_one_gaussian(rows):
    model = stochastic(reg=1e6, reg_gauss=0.0).fit(rows)
    assert model.n_components_ == 0
    assert model.converged_
    centred = rows - rows.mean(axis=0)
    precision = np.linalg.inv(np.cov(rows.T, bias=True))
    literal = -0.5 * np.einsum("ij,jk,ik->i", centred, precision, centred)
    literal += 0.5 * np.linalg.slogdet(precision)[1] - 2 * np.log(2 * np.pi)
    np.testing.assert_allclose(model.score_samples(rows), literal, rtol=1e-9)


def test_a_few_neighbors_widen_the_kernel(rows):
    narrow, wide = stochastic().fit(rows), stochastic(solver=StochasticEM(n_candidates=60)).fit(rows)
    assert np.linalg.det(wide.covariance_) > 1.2 * np.linalg.det(narrow.covariance_)
    assert wide.effective_neighbors_.max() <= 60


def test_many_rows_are_drawn_by_default():
    assert LCAGauss()._pick_solver(44_721) == "em"
    assert LCAGauss()._pick_solver(44_722) == "stochastic"
    assert LCAGauss(solver="em")._pick_solver(10**7) == "em"


def test_random_state_and_weights(rows):
    weight = np.r_[np.ones(400), np.zeros(200)]
    one, again = (stochastic(random_state=3).fit(rows, sample_weight=weight) for _ in range(2))
    np.testing.assert_array_equal(one.covariance_, again.covariance_)
    other = stochastic(random_state=4, tol=0.1).fit(rows, sample_weight=weight)
    assert not np.array_equal(one.covariance_, other.covariance_)
    moved = np.r_[rows[:400], rows[400:] * 1e6]
    far = stochastic(random_state=3).fit(moved, sample_weight=weight)
    np.testing.assert_allclose(far.covariance_, one.covariance_, rtol=1e-6)
    np.testing.assert_allclose(far.mean_, rows[:400].mean(axis=0), rtol=1e-9)


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"solver": "accelerated"}, ValueError, r"solver must be one of .*'auto', 'em', 'stochastic'"),
        ({"solver": Engine()}, TypeError, "solver must be"),
        ({"max_iter": 0}, ValueError, "max_iter must be at least 1"),
        ({"tol": -1.0}, ValueError, "tol must be"),
        ({"random_state": "x"}, ValueError, "random_state must be None"),
    ],
)
def test_bad_parameters(rows, parameters, error, message):
    with pytest.raises(error, match=message):
        stochastic(**parameters).fit(rows)


def test_the_callback_gets_all_directions_after_each_sweep(rows):
    seen = []
    with pytest.warns(ConvergenceWarning, match="max_iter=2 sweeps"):
        stochastic(max_iter=2, tol=0.0, callback=lambda B, k: seen.append((k, B.size))).fit(rows)
    assert seen == [(1, 16), (2, 16)]


@pytest.mark.parametrize(("problem", "call"), [(LeaveOneOut, 4), (Minibatch, 2), (Minibatch, 60)])
def test_an_interruption_before_the_sweeps_has_no_result_and_a_later_one_keeps_the_best(monkeypatch, problem, call):
    """In the fit to a sample, in the fit to a sample of terms, and in a sweep."""
    X = clusters_and_noise(3200)[0]
    calls = interrupt_at(monkeypatch, problem, "neighbors", call)
    if call < 60:
        with pytest.raises(KeyboardInterrupt):
            stochastic(tol=0.0).fit(X)
        assert len(calls) == call
        return
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model = stochastic(tol=0.0).fit(X)
    assert not model.converged_
    assert len(calls) == call
    assert np.isfinite(model.score_samples(X[:5])).all()


def test_model_files_pickles_and_clones(rows, tmp_path):
    model = stochastic(solver=StochasticEM(batch_size=50)).fit(rows)
    save(model, tmp_path / "m.vicinal")
    for copy in (load(tmp_path / "m.vicinal"), pickle.loads(pickle.dumps(model)), clone(model).fit(rows)):
        assert copy.solver_ == "stochastic"
        assert copy.solver == StochasticEM(batch_size=50)
        np.testing.assert_array_equal(copy.score_samples(rows), model.score_samples(rows))
        np.testing.assert_array_equal(copy.score_samples(None), model.score_samples(None))


def test_rows_with_gaps_are_fitted_by_em(rows):
    X = rows[:60].copy()
    X[3, 1] = np.nan
    assert stochastic(reg=0.05, reg_gauss=0.05).fit(X).solver_ == "em"


# -- rows in files ----------------------------------------------------------------------------------------------------


def as_map(X, folder):
    np.save(folder / "rows.npy", X)
    return np.load(folder / "rows.npy", mmap_mode="r")


def test_a_map_that_fits_into_the_memory_gives_the_fit_of_the_array(rows, tmp_path):
    for solver in ("em", "stochastic"):
        there, here = (stochastic(solver=solver).fit(X) for X in (as_map(rows, tmp_path), rows))
        np.testing.assert_array_equal(there.covariance_, here.covariance_)
        assert in_file(there.rows_)
        np.testing.assert_array_equal(there.score_samples(None), here.score_samples(None))


def test_a_large_map_is_drawn_from(tmp_path):
    """The Gaussian is that of all rows, the kernel that of the candidates; the density is scored from its file."""
    X, true = clusters_and_noise(20_000)
    model = stochastic(reduce=True, engine=SMALL).fit(as_map(X, tmp_path))
    assert model.converged_
    assert model.n_components_ == 2
    assert angle(model, true) < 1.0
    np.testing.assert_allclose(model.mean_, X.mean(axis=0), rtol=1e-12)
    gaussian = model.gaussian_components_
    np.testing.assert_allclose(gaussian @ np.cov(X.T, bias=True) @ gaussian.T, np.eye(2), atol=1e-10)
    # The kernel is as good for as many rows as there are candidates as that of an exact fit to these.
    some = X[: 2**20 // (5 * 4 * 8)]
    best = LCAGauss(reduce=True, **PLAIN).fit(some)
    assert best.score(X[-3000:]) - density_of(model, some).score(X[-3000:]) < 0.01
    assert in_file(model.mixture_.centres)
    assert in_file(model.rows_)
    expected = density_of(model, X).score_samples(X[:50])
    np.testing.assert_allclose(model.score_samples(X[:50]), expected, rtol=1e-9)
    with pytest.raises(TypeError, match=r"in a file of rows.*gather\(\).*training_rows=False"):
        save(model, tmp_path / "m.vicinal")
    model.gather()
    assert not in_file(model.mixture_.centres)
    assert not in_file(model.rows_)
    save(model, tmp_path / "m.vicinal")
    np.testing.assert_allclose(load(tmp_path / "m.vicinal").score_samples(X[:50]), expected, rtol=1e-9)


def density_of(model, X):
    """Return a copy of a model whose components are some rows."""
    copy = clone(model).set_params(engine=None)
    copy.__dict__ |= {name: value for name, value in vars(model).items() if name not in ("mixture_", "rows_", "engine")}
    columns = model.active_features_
    directions = model.gaussian_components_[:, columns], model.components_[:, columns]
    copy.mixture_ = SharedMixture(*mixture_of_directions(*directions, model.mean_[columns], X))
    return copy


def test_a_large_map_with_weights_and_constant_columns(tmp_path):
    X = np.column_stack([clusters_and_noise(30_000, noise=1)[0], np.full(30_000, 7.0)])
    weight = np.ones(len(X))
    X[::3, :3], weight[::3] = 1e6, 0.0
    with pytest.warns(UserWarning, match="1 of 4 columns is constant"):
        model = stochastic(engine=SMALL).fit(as_map(X, tmp_path), sample_weight=weight)
    counted = X[weight > 0]
    np.testing.assert_allclose(model.mean_, counted.mean(axis=0), rtol=1e-12)
    both = np.concatenate([model.gaussian_components_, model.components_])
    assert both.shape == (3, 4)
    assert not both[:, 3].any()
    assert model.mixture_.centres.shape == (30_000, 3)
    assert np.isfinite(model.score_samples(X[1:2])).all()


def test_lca_gauss_of_a_large_map_is_saved_without_its_rows(tmp_path):
    X = clusters_and_noise(20_000)[0]
    model = stochastic(engine=SMALL).fit(as_map(X, tmp_path))
    save(model, tmp_path / "m.vicinal", training_rows=False)
    metric = load(tmp_path / "m.vicinal")
    np.testing.assert_array_equal(metric.transform(X[:5]), model.transform(X[:5]))
    for rows in (X[:5], None):
        with pytest.raises(NotFittedError, match="training_rows=False"):
            metric.score_samples(rows)


def test_memory_does_not_grow_with_the_file(tmp_path):
    peaks = []
    for n in (30_000, 90_000):
        mapped = as_map(clusters_and_noise(n)[0], tmp_path)
        tracemalloc.start()
        with pytest.warns(ConvergenceWarning):
            stochastic(engine=SMALL, max_iter=1).fit(mapped)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 2**21  # of 1.9 MB of further rows, in several copies, nothing
