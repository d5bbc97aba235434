"""A penalty that draws the kernel's covariance towards a target: its laws in every structure, solver and estimator."""

import numpy as np
import pytest
from scipy.optimize import check_grad
from sklearn.base import clone
from sklearn.datasets import load_iris

from vicinal import LCA, LCAGauss, LocalLCA, Selection, Shrinkage, StochasticEM, io
from vicinal._lca import penalty_search
from vicinal._lca.penalty_search import _best_path
from vicinal._lca.steps import Penalty, nearest_structured
from vicinal._leave_one_out import leave_one_out

IRIS = load_iris().data
STRUCTURES = [("full", None), ("diag", None), ("spherical", None), ("low_rank", 2)]


def target(d=4, seed=0):
    """A positive definite matrix."""
    root = np.random.default_rng(seed).normal(size=(d, d))
    return 0.05 * (root @ root.T + np.eye(d))


def literal_penalty(covariance, T, w):
    """w/2 [tr(Sigma^-1 T) + log det Sigma], written out."""
    return 0.5 * w * (np.trace(np.linalg.inv(covariance) @ T) + np.log(np.linalg.det(covariance)))


@pytest.fixture
def shrinks(monkeypatch):
    """A short search, which takes a target whatever it gains."""
    for name, value in {"_GAIN_OF_TARGET": -np.inf, "_FOLDS": 2, "FAMILIES": ("diagonal",)}.items():
        monkeypatch.setattr(penalty_search, name, value)


# -- the objective and its M-step --------------------------------------------------------------------------------------


@pytest.mark.parametrize("structure", STRUCTURES)
def test_the_objective_rises_to_a_fixed_point_of_the_step(structure):
    T, w, rows = target(), 0.7, IRIS[::2]
    options = {"covariance_type": structure[0], "rank": structure[1], "reg": Shrinkage(T, w)}
    lca = LCA(**options, solver="em", tol=1e-13).fit(rows)
    assert lca.objectives_[-1] == pytest.approx(lca.score() - literal_penalty(lca.covariance_, T, w), abs=1e-10)
    assert np.all(np.diff(lca.objectives_) > -1e-12)
    # At the optimum, Sigma is the M-step (S/n + w T) / (1 + w) of its own neighbours.
    metric = lca.components_
    problem = leave_one_out(rows, None, "reference")
    inverse = np.linalg.inv(metric)
    local = inverse @ problem.em_statistics(metric).scatter @ inverse.T
    step = nearest_structured((local + w * T) / (1 + w), *structure)
    np.testing.assert_allclose(lca.covariance_, step, atol=1e-6)
    fast = LCA(**options, tol=1e-12).fit(rows)
    assert fast.objectives_[-1] == pytest.approx(lca.objectives_[-1], abs=1e-9)


def test_gradient_by_finite_differences():
    rows, weight = IRIS[::6], np.linspace(0.5, 1.5, 25)
    problem, penalty = leave_one_out(rows, weight, "reference"), Penalty(target(), 0.7)
    A = np.random.default_rng(3).normal(size=16)

    def gradient(a):
        """(1 + w) (I - M) A^-T, with the matrix M of the EM step."""
        metric = a.reshape(4, 4)
        matrix = penalty.in_frame(metric).updated(problem.em_statistics(metric).scatter)
        return 1.7 * np.linalg.solve(metric, np.eye(4) - matrix).T.ravel()

    def objective(a):
        metric = a.reshape(4, 4)
        return problem.em_statistics(metric).log_likelihood - penalty.cost(metric)

    assert check_grad(objective, gradient, A) < 1e-5


def test_a_large_weight_gives_the_target_and_a_small_one_the_plain_fit():
    T, rows = target(), IRIS[::2] + 0.01 * np.random.default_rng(0).normal(size=(75, 4))
    np.testing.assert_allclose(LCA(reg=Shrinkage(T, 1e9)).fit(rows).covariance_, T, rtol=1e-6)
    # A fit to a target starts there; from the same start, it is the plain fit.
    plain, nearly = (LCA(reg=reg, init=T).fit(rows) for reg in (0.0, Shrinkage(T, 1e-9)))
    np.testing.assert_allclose(nearly.covariance_, plain.covariance_, rtol=1e-3, atol=1e-6)


def test_it_can_be_narrower_than_the_local_covariance():
    """A penalty that is added never is."""
    rows = np.random.default_rng(0).normal(size=(40, 5))
    plain, drawn = LCA(reg=0.0).fit(rows), LCA(reg=Shrinkage(0.01, 1.0)).fit(rows)
    assert np.trace(drawn.covariance_) < 0.8 * np.trace(plain.covariance_)


def test_a_linear_map_carries_the_target():
    A, T = np.random.default_rng(1).normal(size=(4, 4)), target()
    here = LCA(reg=Shrinkage(T, 0.5)).fit(IRIS)
    there = LCA(reg=Shrinkage(A @ T @ A.T, 0.5)).fit(IRIS @ A.T)
    np.testing.assert_allclose(there.covariance_, A @ here.covariance_ @ A.T, rtol=1e-4, atol=1e-7)


# -- other solvers and estimators --------------------------------------------------------------------------------------


def test_lca_gauss_rises_and_is_lca_where_all_directions_are_local():
    reg = Shrinkage(0.05 * np.cov(IRIS.T), 1.0)
    gauss = LCAGauss(reg=reg, reg_gauss=0.0, tol=1e-11).fit(IRIS)
    lca = LCA(reg=reg, solver="em", tol=1e-11, init=np.cov(IRIS.T, bias=True)).fit(IRIS)
    assert gauss.n_components_ == 4
    assert np.diff(gauss.objectives_).min() > -1e-11
    assert gauss.objectives_[-1] == pytest.approx(lca.objectives_[-1], abs=1e-7)
    np.testing.assert_allclose(gauss.covariance_, lca.covariance_, rtol=1e-3)
    # With Gaussian directions, too, the objective rises, and the penalty does not favour them.
    rows = np.random.default_rng(0).normal(size=(60, 3)) * [0.3, 2.0, 3.0]
    rows[::2, 0] += 4.0
    mixed = LCAGauss(reg=Shrinkage([0.1, 4.0, 9.0], 1.0), reg_gauss=0.1, tol=1e-10).fit(rows)
    assert 0 < mixed.n_components_ < 3
    assert np.diff(mixed.objectives_).min() > -1e-11


def test_sweeps_and_streams_end_near_the_exact_fit():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1500, 2)) * [1.0, 0.2] + 4 * rng.integers(2, size=(1500, 1))
    reg = Shrinkage([0.05, 0.05], 1.0)
    exact = LCA(reg=reg).fit(rows)
    swept = LCA(reg=reg, solver=StochasticEM(batch_size=150), random_state=0).fit(rows)
    np.testing.assert_allclose(swept.covariance_, exact.covariance_, rtol=0.1, atol=0.003)
    stream = LCA(reg=reg, random_state=0)
    for part in np.split(rows, 5):
        stream.partial_fit(part)
    np.testing.assert_allclose(np.diag(stream.covariance_), np.diag(exact.covariance_), rtol=0.25)
    # A fit goes on as a stream from where it is.
    again = clone(exact).fit(rows).partial_fit(rows[:1])
    np.testing.assert_allclose(again.covariance_, exact.covariance_, rtol=0.05, atol=1e-3)


@pytest.mark.parametrize("make", [lambda reg: LCA(reg=reg), lambda reg: LCAGauss(reg=reg, reg_gauss=0.0)])
def test_rows_with_missing_values(make):
    rows, T = IRIS[::3].copy(), 0.02 * np.cov(IRIS.T)
    rows[::5, 1], rows[1::5, 2] = np.nan, np.nan
    model = make(Shrinkage(T, 1e6)).fit(rows)
    np.testing.assert_allclose(model.covariance_, T, rtol=1e-3)
    expected = np.mean(model.score_samples(None)) - literal_penalty(model.covariance_, T, 1e6)
    assert model.objectives_.max() == pytest.approx(expected, rel=1e-9)


# -- the search --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_the_record_that_was_chosen_gives_the_same_fit(shrinks, tmp_path, covariance_type):
    rows = np.insert(IRIS[::3], 1, 2.0, axis=1)
    with pytest.warns(UserWarning, match="constant"):
        lca = LCA(covariance_type).fit(rows)
    assert isinstance(lca.reg_, Shrinkage)
    assert not lca.reg_.target[1].any()
    with pytest.warns(UserWarning, match="constant"):
        again = LCA(covariance_type, reg=lca.reg_).fit(rows)
    np.testing.assert_array_equal(again.covariance_, lca.covariance_)
    np.testing.assert_array_equal(again.objectives_, lca.objectives_)
    io.save(again, tmp_path / "model.vicinal")
    loaded = io.load(tmp_path / "model.vicinal")
    assert loaded.reg_ == again.reg_ == loaded.reg
    np.testing.assert_array_equal(loaded.score_samples(rows), again.score_samples(rows))


def test_scalings_of_columns_carry_the_search(shrinks):
    scale = np.array([1e-3, 1.0, 10.0, 1e4])
    here, there = LCA().fit(IRIS[::3]), LCA().fit(IRIS[::3] * scale)
    assert there.reg_.weight == pytest.approx(here.reg_.weight, rel=1e-6)
    np.testing.assert_allclose(there.covariance_, here.covariance_ * np.outer(scale, scale), rtol=1e-5)


def test_lca_gauss_and_local_lca_take_the_choice(shrinks):
    gauss = LCAGauss(tol=1e-3).fit(IRIS[::3])
    assert (gauss.reg_search_["weight"] > 0).any()
    local = LocalLCA(selection=Selection(cv=2, n_neighbors=[3], n_components=[1])).fit(IRIS[::3])
    assert isinstance(local.base_.reg_, Shrinkage)
    given = clone(local).set_params(reg=local.base_.reg_).fit(IRIS[::3])
    np.testing.assert_array_equal(given.base_.covariance_, local.base_.covariance_)


def test_many_columns_of_counts_are_drawn_towards_one_width():
    """Kernels of digits need the shape of one width: a penalty that is added only makes them wider."""
    rng = np.random.default_rng(0)
    centres = rng.poisson(0.4, size=(12, 30))
    X = rng.poisson(centres[rng.integers(12, size=260)] + 0.15).astype(float)
    X = X[:, np.ptp(X[:130], axis=0) > 0]
    lca = LCA().fit(X[:130])
    assert isinstance(lca.reg_, Shrinkage)
    table = lca.reg_search_
    added = table["mean_test_score"][table["weight"] == 0].max()
    assert table["mean_test_score"].max() > added + 0.1


def test_a_target_must_be_clearly_better():
    assert _best_path({"diagonal": -0.95, "target": -0.9}) == "diagonal"
    assert _best_path({"diagonal": -0.95, "target": -0.8}) == "target"


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Shrinkage(0.1, 0.0), ValueError, "weight must be a finite number greater than 0, got 0.0"),
        (
            lambda: Shrinkage(0.1, 1e308),
            ValueError,
            r"weight must be at most 1e150, got 1e\+308",
        ),  # objectives_ were NaN
        (lambda: Shrinkage(0.1, "1"), TypeError, "weight must be a number greater than 0, got str"),
        (lambda: LCA(reg=Shrinkage("auto", 1.0)), ValueError, "reg.target must be a number, a vector .* got 'auto'"),
        (lambda: LCA(reg=Shrinkage(np.ones(3), 1.0)), ValueError, r"reg.target as an array must have shape \(4,\)"),
        (lambda: LCA(reg=Shrinkage([1, 1, 0, 1], 1.0)), ValueError, "greater than 0 along every column .* along 2:"),
        (lambda: LCA(reg=Shrinkage(np.ones((4, 4)), 1.0)), ValueError, "reg.target as a matrix must be positive def"),
        (lambda: LCA(reg=Shrinkage(-np.eye(4), 1.0)), ValueError, "reg.target as a matrix must be positive semi"),
        (lambda: LCAGauss(reg_gauss=Shrinkage(1, 1)), ValueError, "reg_gauss must be 'auto', a number, .* or a matrix"),
        (lambda: LCA().set_params(reg__weight=1.0), ValueError, r"reg=Shrinkage\(weight=...\)"),
    ],
)
def test_what_is_no_target_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make().fit(IRIS)


def test_a_target_keeps_constant_columns():
    rows = np.insert(IRIS[::3], 2, 0.1, axis=1)
    lca = LCA(reg=Shrinkage(0.5, 1.0)).fit(rows)
    assert lca.covariance_.shape == (5, 5)
    assert lca.covariance_[2, 2] == pytest.approx(0.25)  # (0 + w T) / (1 + w)
