"""Test LCA-Gauss: Proposition 1, its limits without and with only Gaussian directions, and the search for directions."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from estimator_checks import check_conventions
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import subspace_angles
from scipy.optimize import minimize
from scipy.stats import multivariate_normal
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from vicinal import LCA, LCAGauss, which_engine
from vicinal._lca.gauss_steps import GaussGaps, GaussRows, Split, all_local
from vicinal._leave_one_out import IncompleteRows, expect

ALL_TWINS = (
    "the check's data hold every row four times, where the leave-one-out likelihood is unbounded: refused, "
    "with the remedy"
)
GRID = (
    "the check's data are a grid of 3 x 4 points: along one axis every row has a twin, so that the "
    "likelihood "
    "of one local direction is unbounded: refused, with the remedy"
)
LEFT_OUT_WHOLLY = (
    "sample_weight is importance: a row of weight 2 is left out as a whole, its repetition is not, so the "
    "two differ by design wherever rows are left out"
)


def expected_failures(estimator):
    failures = {"check_sample_weight_equivalence_on_dense_data": LEFT_OUT_WHOLLY}
    if estimator.reg == 0:
        failures |= {
            "check_sample_weights_shape": ALL_TWINS,
            "check_sample_weights_not_overwritten": ALL_TWINS,
            "check_sample_weights_pandas_series": GRID,
            "check_sample_weights_not_an_array": GRID,
        }
    return failures


@parametrize_with_checks([LCAGauss(reg=0.1, reg_gauss=0.1, reduce=True)], expected_failed_checks=expected_failures)
@pytest.mark.filterwarnings("ignore:.*exact twin.*:UserWarning")
@pytest.mark.filterwarnings("ignore:LCAGauss. one Gaussian:UserWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*exact twin.*:UserWarning")
@pytest.mark.filterwarnings("ignore:LCAGauss. one Gaussian:UserWarning")
def test_scikit_learn_checks_with_a_search():
    check_conventions(LCAGauss(), expected_failures(LCAGauss()))


def clusters_and_noise(n=200, noise=2, seed=0):
    """Three tight clusters in two dimensions, Gaussian noise in more, all mixed; and the true directions."""
    rng = np.random.default_rng(seed)
    corners = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    signal = corners[rng.integers(3, size=n)] + 0.2 * rng.normal(size=(n, 2))
    rows = np.c_[signal, rng.normal(size=(n, noise))]
    mixing = rng.normal(size=(noise + 2, noise + 2))
    return rows @ mixing + 3.0, np.linalg.inv(mixing)[:, :2]


@pytest.fixture(scope="module")
def rows():
    return clusters_and_noise()[0]


def literal_log_density(B_G, B_L, mean, X, centres, left_out=False):
    """NOTES: log|det B| - d/2 log 2 pi - |B_G'(x - mu)|^2/2 + log of the mean of the kernels."""
    d = X.shape[1]
    log_det = np.linalg.slogdet(np.concatenate([B_G, B_L], axis=1))[1]
    out = []
    for i, x in enumerate(X):
        others = np.delete(centres, i, axis=0) if left_out else centres
        kernels = [np.exp(-0.5 * np.sum((B_L.T @ (x - c)) ** 2)) for c in others]
        gauss = -0.5 * np.sum((B_G.T @ (x - mean)) ** 2)
        out.append(log_det - 0.5 * d * np.log(2 * np.pi) + gauss + np.log(np.mean(kernels)))
    return np.array(out)


def literal_algorithm(X, steps, reg, reg_gauss):
    """Algorithm 1 as corrected: one (B_G, B_L) per step."""
    n, d = X.shape
    C_G = np.cov(X.T, bias=True) + reg_gauss * np.eye(d)
    values, vectors = np.linalg.eigh(C_G)
    I_G = vectors / np.sqrt(values) @ vectors.T
    B_G, B_L = np.zeros((d, 0)), np.linalg.cholesky(np.linalg.inv(C_G))
    for _ in range(steps):
        yield B_G, B_L
        C_L = np.zeros((d, d))
        for i in range(n):
            m = np.array([np.exp(-0.5 * np.sum((B_L.T @ (X[i] - x)) ** 2)) for x in X])
            m[i] = 0.0
            for j in range(n):
                C_L += m[j] / m.sum() * np.outer(X[i] - X[j], X[i] - X[j])
        e, V = np.linalg.eigh(I_G @ (C_L / n + reg * np.eye(d)) @ I_G)
        B_L = I_G @ V[:, e < 1] / np.sqrt(e[e < 1])
        B_G = I_G @ V[:, e >= 1]


# -- the paper, literally ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("reg", "reg_gauss"), [(0.0, 0.0), (0.2, 0.0), (0.3, 0.1)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_algorithm_1_literally(rows, reg, reg_gauss):
    X = rows[:40]
    path = []
    for B_G, B_L in literal_algorithm(X, 4, reg, reg_gauss):
        penalty = 0.5 * reg_gauss * np.sum(B_G**2) + 0.5 * reg * np.sum(B_L**2)
        path.append(literal_log_density(B_G, B_L, X.mean(0), X, X, left_out=True).mean() - penalty)
    model = LCAGauss(reg=reg, reg_gauss=reg_gauss, max_iter=4).fit(X)
    np.testing.assert_allclose(model.objectives_, path, rtol=1e-9)
    np.testing.assert_allclose(model.components_.T @ model.components_, B_L @ B_L.T, rtol=1e-7, atol=1e-9)
    gaussian = model.gaussian_components_
    np.testing.assert_allclose(gaussian.T @ gaussian, B_G @ B_G.T, rtol=1e-7, atol=1e-9)
    assert len(model.components_) + len(gaussian) == 4


def proposition_value(B_G, B_L, M1, M2):
    """Eq. 6."""
    both = np.concatenate([B_G, B_L], axis=1)
    return np.trace(B_G.T @ M1 @ B_G) + np.trace(B_L.T @ M2 @ B_L) - np.linalg.slogdet(both @ both.T)[1]


@pytest.mark.parametrize("seed", range(6))
def test_proposition_1_is_the_minimum(seed):
    rng = np.random.default_rng(seed)
    M1, M2 = (A @ A.T + 0.1 * np.eye(3) for A in rng.normal(size=(2, 3, 3)))
    values, vectors = np.linalg.eigh(M1)
    root = vectors / np.sqrt(values) @ vectors.T
    split = all_local(len(M2)).following(root @ M2 @ root)
    B_G, B_L = root @ split.gaussian, root @ split.local / np.sqrt(split.variances)
    optimum = proposition_value(B_G, B_L, M1, M2)
    e = np.linalg.eigvalsh(root @ M2 @ root)
    assert optimum == pytest.approx(3 + np.linalg.slogdet(M1)[1] + np.log(e[e < 1]).sum())
    # No other split of dimensions does better, wherever a local search starts.
    for d1 in range(4):
        for _ in range(3):
            found = minimize(
                lambda b, d1=d1: proposition_value(*np.split(b.reshape(3, 3), [d1], axis=1), M1, M2),
                rng.normal(size=9),
            )
            assert found.fun >= optimum - 1e-6


def test_eigenvalues_of_one_are_gaussian():
    split = all_local(3).following(np.diag([0.5, 1.0, 2.0]))
    np.testing.assert_array_equal(split.variances, [0.5])
    moved = Split(np.eye(3), np.array([0.1, 0.2, 0.3]), np.empty((3, 0))).transferred(2)
    np.testing.assert_array_equal(moved.variances, [0.1])
    np.testing.assert_array_equal(moved.gaussian, np.eye(3)[:, 1:])
    assert len(all_local(3).variances) == 3


# -- the density -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("search", [False, True])
def test_scores_are_the_literal_density(rows, search):
    model = LCAGauss(reduce=search, reg=0.0, reg_gauss=0.0).fit(rows)
    B_G, B_L = model.gaussian_components_.T, model.components_.T
    new = rows[:7] + 0.3
    np.testing.assert_allclose(
        model.score_samples(new), literal_log_density(B_G, B_L, rows.mean(0), new, rows), rtol=1e-9
    )
    np.testing.assert_allclose(
        model.score_samples(None), literal_log_density(B_G, B_L, rows.mean(0), rows, rows, True), rtol=1e-9
    )
    assert model.score() == pytest.approx(model.objectives_[-1])
    assert model.transform(rows).shape == (200, model.n_components_)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_density_integrates_to_one(d):
    rng = np.random.default_rng(d)
    X = rng.normal(size=(60, d))
    X[:, 0] = 0.15 * X[:, 0] + rng.integers(2, size=60)
    model = LCAGauss(reduce=True, reg=0.0, reg_gauss=0.0).fit(X)
    n_points = {1: 4000, 2: 250, 3: 90}[d]
    axes = [np.linspace(x.min() - 4.5 * x.std(), x.max() + 4.5 * x.std(), n_points) for x in X.T]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, d)
    cell = np.prod([axis[1] - axis[0] for axis in axes])
    assert np.exp(model.score_samples(grid)).sum() * cell == pytest.approx(1.0, abs=2e-4)
    assert model.n_components_ < d or d == 1


def test_the_limit_of_all_gaussian():
    X = np.random.default_rng(0).normal(size=(400, 3)) @ np.diag([1, 2, 3])
    model = LCAGauss(reduce=True, reg=0.0, reg_gauss=0.0).fit(X)
    assert model.n_components_ == 0
    gaussian = multivariate_normal(X.mean(0), np.cov(X.T, bias=True))
    np.testing.assert_allclose(model.score_samples(X), gaussian.logpdf(X))
    np.testing.assert_allclose(model.score_samples(None), gaussian.logpdf(X))
    np.testing.assert_allclose(model.covariance_, np.cov(X.T, bias=True))
    np.testing.assert_allclose(model.effective_neighbors_, 399)
    with pytest.warns(UserWarning, match="one Gaussian describes the training rows best"):
        assert model.transform(X).shape == (400, 1)  # so that the next step of a pipeline has a column
    assert model.sample(5, random_state=0).shape == (5, 3)


def test_the_limit_of_none_gaussian():
    rng = np.random.default_rng(1)
    X = 5.0 * rng.integers(4, size=(150, 3)) + rng.normal(size=(150, 3)) @ rng.normal(size=(3, 3)) * 0.3
    model = LCAGauss(tol=1e-9, reg=0.0, reg_gauss=0.0).fit(X)
    lca = LCA(solver="em", tol=1e-9, reg=0.0).fit(X)
    assert model.n_components_ == 3
    np.testing.assert_allclose(model.objectives_, lca.objectives_, rtol=1e-10)
    np.testing.assert_allclose(model.covariance_, lca.covariance_, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(np.abs(model.components_), np.abs(lca.components_), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model.score_samples(X), lca.score_samples(X), rtol=1e-8)
    np.testing.assert_allclose(model.effective_neighbors_, lca.effective_neighbors_, rtol=1e-7)


def test_marginals_and_conditionals_come_from_the_mixture(rows):
    model = LCAGauss(reduce=True, reg=0.0, reg_gauss=0.0).fit(pd.DataFrame(rows, columns=list("abcd")))
    a, rest = rows[0, 0], rows[0, 1:]
    joint = model.score_samples(pd.DataFrame(rows[:1], columns=list("abcd")))[0]
    split = model.marginal(["a"]).score_samples([[a]])[0] + model.conditional({"a": a}).score_samples([rest])[0]
    assert joint == pytest.approx(split)


# -- laws --------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=30)
@given(
    st.integers(0, 10**6),
    st.integers(8, 40),
    st.integers(1, 4),
    st.sampled_from([(0.0, 0.0), (0.05, 0.0), (0.1, 0.3)]),
    st.booleans(),
)
def test_the_penalised_objective_never_falls(seed, n, d, penalties, weighted):
    rng = np.random.default_rng(seed)
    X = rng.standard_t(3, size=(n, d)) @ rng.normal(size=(d, d))
    weight = rng.exponential(size=n) if weighted else None
    model = LCAGauss(reg=penalties[0], reg_gauss=penalties[1], max_iter=60, tol=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            model.fit(X, sample_weight=weight)
        except ValueError as error:
            assert "reg" in str(error)  # noqa: PT017
            return
    assert np.diff(model.objectives_).min(initial=0.0) >= -1e-9
    assert np.isfinite(model.score_samples(None)).all()


@pytest.mark.parametrize("seed", range(4))
def test_the_search_never_ends_lower(seed):
    X, _ = clusters_and_noise(n=80, noise=3, seed=seed)
    plain, searched = LCAGauss(reg=0.0, reg_gauss=0.0).fit(X), LCAGauss(reduce=True, reg=0.0, reg_gauss=0.0).fit(X)
    assert searched.objectives_[-1] >= plain.objectives_[-1] - 1e-12
    assert len(searched.objectives_) > plain.n_iter_
    assert np.diff(searched.objectives_).min() >= -1e-9
    assert searched.score() == pytest.approx(searched.objectives_[-1])


@pytest.mark.slow
@pytest.mark.parametrize("noise", [1, 3, 6])
def test_a_planted_subspace_is_found_among_noise_dimensions(noise):
    X, truth = clusters_and_noise(n=300, noise=noise, seed=noise)
    model = LCAGauss(reduce=True, reg=0.0, reg_gauss=0.0).fit(X)
    assert model.n_components_ == 2
    assert np.degrees(subspace_angles(truth, model.components_.T).max()) < 8


def test_any_linear_map_of_the_data_gives_the_same_image(rows):
    T = np.random.default_rng(3).normal(size=(4, 4))
    a, b = (
        LCAGauss(reduce=True, reg=0.0, reg_gauss=0.0).fit(rows),
        LCAGauss(reduce=True, reg=0.0, reg_gauss=0.0).fit(rows @ T.T - 5.0),
    )
    assert a.n_components_ == b.n_components_ == 2
    u, v = a.transform(rows), b.transform(rows @ T.T)
    u, v = u - u.mean(0), v - v.mean(0)
    np.testing.assert_allclose(v * np.sign((u * v).sum(0)), u, atol=1e-3)
    np.testing.assert_allclose(a.score_samples(None), b.score_samples(None) + np.linalg.slogdet(T)[1], atol=1e-5)


def test_weights_of_one_and_of_zero(rows):
    plain = LCAGauss(reg=0.0, reg_gauss=0.0).fit(rows)
    weight = np.r_[np.ones(200), np.zeros(5)]
    extended = LCAGauss(reg=0.0, reg_gauss=0.0).fit(np.r_[rows, rows[:5] * 1e5], sample_weight=weight)
    np.testing.assert_allclose(extended.covariance_, plain.covariance_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(extended.mean_, plain.mean_)
    np.testing.assert_allclose(extended.score_samples(None)[:200], plain.score_samples(None), rtol=1e-6)


def test_frames_pickle_engines_and_float32(rows):
    frame = pd.DataFrame(rows, columns=list("abcd"))
    model = LCAGauss(reduce=True, reg=0.0, reg_gauss=0.0).set_output(transform="pandas").fit(frame)
    assert list(model.transform(frame).columns) == ["lcagauss0", "lcagauss1"]
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.score_samples(None), model.score_samples(None))
    compiled = LCAGauss(reduce=True, engine="cpu", reg=0.0, reg_gauss=0.0).fit(rows)
    np.testing.assert_allclose(compiled.objectives_[-1], model.objectives_[-1], atol=1e-8)
    single = LCAGauss(reg=0.0, reg_gauss=0.0).fit(rows.astype(np.float32))
    np.testing.assert_allclose(
        single.objectives_[-1], LCAGauss(reg=0.0, reg_gauss=0.0).fit(rows).objectives_[-1], atol=1e-3
    )


def test_not_converged_is_said_and_progress_is_shown(rows, capsys):
    with pytest.warns(ConvergenceWarning, match="LCAGauss did not converge"):
        LCAGauss(max_iter=2, verbose=True, reg=0.0, reg_gauss=0.0).fit(rows)
    assert "[LCAGauss] pass 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: X[:4], "needs more than 4 rows"),
        (lambda X: np.c_[X, X[:, 0] - X[:, 1]], "span only 4 dimensions of 5"),
    ],
)
def test_degenerate_data_are_refused_with_the_remedy(rows, change, message):
    with pytest.raises(ValueError, match=message) as error:
        LCAGauss(reg=0.0, reg_gauss=0.0).fit(change(rows))
    assert "reg and reg_gauss > 0" in str(error.value)
    assert "covariance_type=" not in str(error.value)  # LCA's remedy
    model = LCAGauss(reg=0.01, reg_gauss=0.01).fit(change(rows))
    assert np.isfinite(model.score_samples(None)).all()
    assert np.isfinite(model.components_).all()


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"reg": -1}, ValueError, "reg must be a finite number at least 0"),
        ({"reg_gauss": "x"}, ValueError, "reg_gauss must be 'auto', a number"),
        ({"max_iter": 0}, ValueError, "max_iter must be at least 1"),
        ({"tol": -1e-3}, ValueError, "tol must be"),
        ({"reduce": "yes"}, TypeError, "reduce must be True or False"),
    ],
)
def test_bad_parameters(rows, parameters, error, message):
    with pytest.raises(error, match=message):
        LCAGauss(**parameters).fit(rows)


def test_constant_columns_are_named_and_ignored(rows):
    flat = np.insert(rows, 1, 3.0, axis=1)
    with pytest.warns(UserWarning, match=r"1 of 5 columns is constant \(1\)"):
        model = LCAGauss(reg=0.0, reg_gauss=0.0).fit(flat)
    plain = LCAGauss(reg=0.0, reg_gauss=0.0).fit(rows)
    for name in ("components_", "gaussian_components_"):
        np.testing.assert_array_equal(np.delete(getattr(model, name), 1, axis=1), getattr(plain, name))
        assert not getattr(model, name)[:, 1].any()
    np.testing.assert_array_equal(model.covariance_, plain.covariance_)
    np.testing.assert_array_equal(model.mean_, np.insert(plain.mean_, 1, 3.0))
    np.testing.assert_array_equal(model.score_samples(np.add(flat, [0, 1, 0, 0, 0])), plain.score_samples(rows))
    np.testing.assert_array_equal(model.score_samples(None), plain.score_samples(None))
    assert np.all(model.sample(2, random_state=0)[:, 1] == 3.0)


def test_twins_and_lost_penalties(rows):
    twins = np.repeat(rows, 2, axis=0)
    with pytest.raises(ValueError, match=r"exact twin.*Pass reg > 0"):
        LCAGauss(reg_gauss=0.01, reg=0.0).fit(twins)
    # They are no trouble for the Gaussian, so its penalty is not asked for.
    assert np.isfinite(LCAGauss(reg=0.01, reg_gauss=0.0).fit(twins).score_samples(None)).all()
    with pytest.raises(ValueError, match="reg_gauss=1e-20 is too small compared with the variance of the data"):
        LCAGauss(reg=1e-20, reg_gauss=1e-20).fit(rows[:4])


def interrupt_at(monkeypatch, owner, name, call):
    """Ctrl-C at the call-th call of a function of a module or class; the list counts the calls."""
    calls, function = [], getattr(owner, name)

    def interrupted(*arguments, **options):
        calls.append(1)
        if len(calls) == call:
            raise KeyboardInterrupt
        return function(*arguments, **options)

    monkeypatch.setattr(owner, name, interrupted)
    return calls


@pytest.mark.parametrize("share", ["first run", "first pass of the search", "search", "last run"])
def test_an_interrupted_search_ends_at_once_with_the_best_so_far(rows, monkeypatch, share):
    X = rows[:80]
    plain, whole = LCAGauss(reg=0.0, reg_gauss=0.0).fit(X), LCAGauss(reduce=True, reg=0.0, reg_gauss=0.0).fit(X)
    first = plain.n_iter_
    call = {
        "first run": 5,
        "first pass of the search": first + 1,
        "search": first + 3,
        "last run": len(whole.objectives_),
    }[share]
    calls = interrupt_at(monkeypatch, GaussRows, "em_statistics", call)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model = LCAGauss(reduce=True, reg=0.0, reg_gauss=0.0).fit(X)
    assert len(calls) == call
    assert not model.converged_
    if share != "first run":
        assert model.objectives_[-1] >= plain.objectives_[-1]
    assert model.objectives_[-1] == pytest.approx(model.score(), abs=1e-9)


def test_iterations_are_those_of_one_run_and_never_more_than_allowed(rows):
    with pytest.warns(ConvergenceWarning):
        model = LCAGauss(reduce=True, max_iter=4, reg=0.0, reg_gauss=0.0).fit(rows[:80])
    assert model.n_iter_ <= 4 < len(model.objectives_)


def test_the_engine_is_recorded_and_foretold():
    for n in (60, 600):
        X = np.random.default_rng(0).normal(size=(n, 5))
        model = LCAGauss(reg=0.0, reg_gauss=0.0)
        assert which_engine(X, model).split(":")[0] == model.fit(X).engine_


def test_a_column_of_almost_no_width_is_explained():
    """The second attempt, under a larger penalty, collapsed as well, and its error had no text."""
    X = np.random.default_rng(0).normal(size=(60, 3)) * [1.0, 1e-60, 1.0]
    with pytest.raises(ValueError, match="LCAGauss: the kernel's covariance collapses"):
        LCAGauss(max_iter=6, reduce=True, reg_gauss=0.1).fit(X)


def test_gaussian_of_rows_with_gaps_includes_the_uncertainty_of_the_missing_values():
    """The next pass is whitened by the scatter of the filled rows, plus the covariance of what was filled in, plus R_G."""
    X = np.random.default_rng(0).normal(size=(30, 3)) @ np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 0.5], [0.0, 0.0, 0.5]])
    X[::3, 1] = np.nan
    filled, reg_gauss = IncompleteRows.of(X, None, "reference"), 0.1 * np.eye(3)
    root = np.linalg.inv(np.linalg.cholesky(filled.covariance + reg_gauss))
    problem = GaussGaps(filled, reg_gauss, root, filled.rows.mean(axis=0))
    split = all_local(3)
    expectation = expect(X, filled.rows, np.linalg.inv(root.T @ root), None, "reference")
    following = problem.em_statistics(split).problem
    added = expectation.uncertainty / 30
    assert np.trace(added) > 0.01
    expected = np.cov(expectation.rows.T, bias=True) + added + reg_gauss
    np.testing.assert_allclose(np.linalg.inv(following.root.T @ following.root), expected, rtol=1e-9)


# -- as a transformer --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["em", "stochastic"])
def test_the_number_of_directions_is_obeyed(solver):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5))
    X[:, 0] = 0.2 * X[:, 0] + 2.0 * rng.integers(2, size=300)
    X = X @ rng.normal(size=(5, 5))
    for k in (1, 3, 5):
        model = LCAGauss(k, reg=0.05, reg_gauss=0.0, solver=solver, random_state=0).fit(X)
        assert model.n_components_ == k
        assert model.transform(X).shape == (300, k)
        assert model.gaussian_components_.shape == (5 - k, 5)
        if solver == "em":
            assert (np.diff(model.objectives_) > -1e-9).all()
            sign, log_det = np.linalg.slogdet(np.cov(model.sample(50_000, random_state=0).T))
            assert sign > 0
            assert np.isfinite(log_det)
    free = LCAGauss(reg=0.05, reg_gauss=0.0, solver=solver, random_state=0).fit(X)
    same = LCAGauss(free.n_components_, reg=0.05, reg_gauss=0.0, solver=solver, random_state=0).fit(X)
    assert same.score() >= free.score() - 2e-3  # the directions that Proposition 1 finds by itself
    searched = LCAGauss(2).fit(X)
    assert searched.n_components_ == 2
    gaps = X.copy()
    gaps[rng.random(gaps.shape) < 0.05] = np.nan
    assert LCAGauss(2, reg=0.05).fit(gaps).n_components_ == 2


def test_a_pipeline_after_one_gaussian_has_a_column():
    """The next step used to fail with "Found array with 0 feature(s)"."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4)) @ rng.normal(size=(4, 4))
    gaps = X.copy()
    gaps[rng.random(gaps.shape) < 0.05] = np.nan
    for rows, solver in ((X, "em"), (X, "stochastic"), (gaps, "em")):
        model = LCAGauss(reg=1e3, reg_gauss=0.0, solver=solver, random_state=0).fit(rows)
        assert model.n_components_ == 0
        with pytest.warns(UserWarning, match="keeps the least Gaussian direction alone"):
            images = model.transform(X)
        assert images.shape == (200, 1)
        assert np.ptp(images) > 0
        assert model.held_out_score_samples().shape == (200,)


def test_numbers_of_directions_that_have_no_meaning_are_refused():
    X = np.random.default_rng(0).normal(size=(50, 3))
    with pytest.raises(ValueError, match=r"n_components=4 local directions need as many columns that vary, got 3"):
        LCAGauss(4).fit(X)
    assert LCAGauss(2, reduce=True, reg=0.1, reg_gauss=0.1).fit(X).n_components_ == 2
    with pytest.raises(ValueError, match="n_components"):
        LCAGauss(0).fit(X)
