"""Test LocalLCA: its kernels by the formula, its limiting cases, the choice of parameters, and the local metric."""

import copy
import pickle
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from estimator_checks import check_conventions
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from vicinal import LCA, DensityOutlierDetector, Engine, LocalLCA, ManifoldParzen, Selection, io, which_engine
from vicinal._lca.penalty import LEAST_PENALTY, as_parameter, family_matrix
from vicinal._lca.steps import CollapseError
from vicinal._local import local_lca
from vicinal._local.kernels import Member, Table, nearest_neighbors
from vicinal._local.local_lca import penalty_of_fold
from vicinal._mixtures import FrameMixture, column_conditionals
from vicinal.datasets import make_spiral

GIVEN = {"shared": 0.5, "center": "mean", "reg": 0.1}


pytestmark = pytest.mark.usefixtures("short_search_in_this_file")
SMALL_SEARCH = Selection(cv=2, n_neighbors=[2, 3], n_components=[0, 1])


@parametrize_with_checks([LocalLCA(1, 3, 0.01, **GIVEN)])
@pytest.mark.filterwarnings("ignore:.*held-out rows score higher:UserWarning", "ignore:.*exact twin:UserWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*held-out rows score higher:UserWarning", "ignore:.*exact twin:UserWarning")
def test_scikit_learn_checks_with_a_search():
    check_conventions(LocalLCA(reg=0.1, selection=SMALL_SEARCH))


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    bent = rng.uniform(0, 4, size=60)
    return np.c_[np.sin(bent), np.cos(bent)] + 0.05 * rng.normal(size=(60, 2)) + 3.0


WEIGHT = np.random.default_rng(5).uniform(0.2, 2.0, size=60)
NEW = np.random.default_rng(6).normal(size=(15, 2)) * 0.5 + 3.0


# -- the family and its limits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weights"])
def test_without_directions_it_is_lca(rows, weight):
    local = LocalLCA(0, 5, 0, shared=1, center="row").fit(rows, None, weight)
    lca = LCA(reg=local.base_.reg_).fit(rows, None, weight)  # without a background
    np.testing.assert_allclose(local.score_samples(NEW), lca.score_samples(NEW), rtol=0, atol=1e-10)
    np.testing.assert_allclose(local.score_samples(None), lca.score_samples(None), rtol=0, atol=1e-10)
    np.testing.assert_allclose(local.local_covariances_[7], lca.covariance_, rtol=1e-12)


def test_tied_distances_choose_the_neighbours_of_manifold_parzen():
    """Coordinates scaled by the noise once broke ties of rounded columns by their own rounding: 0.04 nats on iris."""
    rows = np.round(np.random.default_rng(3).normal(size=(60, 3)), 1)
    parzen = ManifoldParzen(2, 5, 0.05).fit(rows)
    local = LocalLCA(2, 5, 0.05, shared=0, center="row").fit(rows)
    np.testing.assert_array_equal(local.neighbors_, parzen.neighbors_[:, :5])
    np.testing.assert_allclose(local.score_samples(rows + 0.03), parzen.score_samples(rows + 0.03), rtol=0, atol=1e-10)


@pytest.mark.parametrize("make", [LocalLCA, ManifoldParzen])
def test_rows_of_weight_0_change_nothing(rows, make):
    """They used to be part of the folds, so that other parameters were chosen."""
    weight = np.r_[np.ones(60), np.zeros(10)]
    with_others = make().fit(np.r_[rows, rows[:10] + 50.0], sample_weight=weight)
    alone = make().fit(rows)
    np.testing.assert_allclose(with_others.score_samples(NEW), alone.score_samples(NEW), rtol=1e-10)
    if make is LocalLCA:
        held_out = with_others.held_out_score_samples()
        np.testing.assert_allclose(held_out[:60], alone.held_out_score_samples(), rtol=1e-9)
        assert np.isfinite(held_out).all()


def test_a_search_that_ends_at_its_smallest_kernels_warns():
    X = np.random.default_rng(0).normal(size=(60, 2))
    with pytest.warns(ConvergenceWarning, match="smallest multiple of LCA's covariance"):
        LocalLCA().fit(np.c_[X, X.sum(axis=1)])


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weights"])
@pytest.mark.parametrize(("d", "k", "noise"), [(1, 6, 1e-3), (2, 9, 1e-6), (2, 2, 4.0)])
def test_without_lcas_covariance_it_is_manifold_parzen(rows, weight, d, k, noise):
    parzen = ManifoldParzen(d, k, noise).fit(rows, sample_weight=weight)
    local = LocalLCA(d, k, noise, shared=0, center="row").fit(rows, None, weight)
    assert local.base_ is None
    scale = np.maximum(np.abs(parzen.score_samples(NEW)), 1.0)  # far rows in units of a small noise
    assert np.max(np.abs(local.score_samples(NEW) - parzen.score_samples(NEW)) / scale) < 1e-10
    np.testing.assert_array_equal(local.neighbors_, parzen.neighbors_)
    np.testing.assert_allclose(local.score_samples(None), parzen.score_samples(None), rtol=1e-10, atol=1e-10)


def test_with_all_rows_as_vicinity_and_their_mean_as_centre_it_is_one_gaussian(rows):
    local = LocalLCA(2, 59, 1e-9, shared=0, center="mean").fit(rows)
    gaussian = multivariate_normal(rows.mean(axis=0), np.cov(rows.T, bias=True) + 1e-9 * np.eye(2))
    np.testing.assert_allclose(local.score_samples(NEW), gaussian.logpdf(NEW), rtol=0, atol=1e-6)


@pytest.mark.parametrize("center", ["row", "mean"])
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weights"])
def test_the_kernels_are_those_of_the_docstring(rows, center, weight):
    """Vicinities, scatters and kernels, each written out."""
    d, k, noise, shared = 1, 7, 0.002, 0.3
    options = {"shared": shared, "center": center, "reg": 0.01}
    model = LocalLCA(d, k, noise, **options).fit(rows, None, weight)
    w = np.ones(60) if weight is None else weight
    B = shared * model.base_.covariance_ + noise * np.eye(2)
    root = np.linalg.inv(np.linalg.cholesky(B))
    scores = np.empty((15, 60))
    for j in range(60):
        distances = np.linalg.norm((rows - rows[j]) @ root.T, axis=1)
        distances[j] = -1.0
        members = np.argsort(distances, kind="stable")[: k + 1]
        np.testing.assert_array_equal(members[1:], model.neighbors_[j])
        members = members if center == "mean" else members[1:]
        centre = np.average(rows[members], axis=0, weights=w[members]) if center == "mean" else rows[j]
        apart = (rows[members] - centre) @ root.T
        values, vectors = np.linalg.eigh((apart * w[members, None]).T @ apart / w[members].sum())
        leading = vectors[:, -d:] * np.sqrt(values[-d:]) / 1.0
        C = B + np.linalg.solve(root, leading) @ np.linalg.solve(root, leading).T
        np.testing.assert_allclose(model.local_covariances_[j], C, rtol=1e-9, atol=1e-12)
        scores[:, j] = multivariate_normal(centre, C).logpdf(NEW) + np.log(w[j] / w.sum())
    np.testing.assert_allclose(model.score_samples(NEW), logsumexp(scores, axis=1), rtol=1e-10)


def test_leave_one_out_drops_the_own_kernel(rows):
    model = LocalLCA(1, 7, 0.01, **GIVEN).fit(rows, None, WEIGHT)
    shares = np.exp(model.mixture_.log_weights)
    terms = np.array(
        [
            multivariate_normal(model.mixture_.centres[j], C).logpdf(rows) + np.log(shares[j])
            for j, C in enumerate(model.local_covariances_)
        ]
    ).T
    np.fill_diagonal(terms, -np.inf)
    expected = logsumexp(terms, axis=1) - np.log1p(-shares)
    np.testing.assert_allclose(model.score_samples(None), expected, rtol=1e-10)


def test_equivariance(rows):
    """With LCA's covariance alone the density follows every invertible map, vicinities and directions included."""
    T, shift = np.array([[3.0, 1.0], [0.0, 0.5]]), [5.0, -100.0]
    options = {"shared": 0.2, "center": "mean", "reg": 0.0}
    a = LocalLCA(1, 6, 0, **options).fit(rows)
    b = LocalLCA(1, 6, 0, **options).fit(rows @ T.T + shift)
    log_det = np.log(1.5)
    np.testing.assert_allclose(b.score_samples(NEW @ T.T + shift), a.score_samples(NEW) - log_det, atol=1e-5)


# -- the choice --------------------------------------------------------------------------------------------------------


def test_the_table_of_the_search_is_what_fits_without_the_held_out_rows_score(rows, monkeypatch):
    """For members that were tried: fit to the training part of each split, LCA included, and score the held-out rows."""
    # A fold's LCA is made to few digits; here it is made to all of them.
    exact = lambda train, weight, base, engine: LCA(reg=0.01, solver="accelerated").fit(train, None, weight).covariance_  # noqa: E731
    monkeypatch.setattr(local_lca, "fold_covariance", exact)
    selection = Selection(cv=3, n_neighbors=[5, 12], n_components=[0, 1, 2], noise=[1e-3, 1e-2])
    model = LocalLCA(reg=0.01, selection=selection).fit(rows)
    table, splits = model.cv_results_, selection.splits(rows, np.zeros(60, dtype=int))
    chosen = {name: getattr(model, f"{name}_") for name in table["params"][0]}
    assert model.best_score_ == table["mean_test_score"][table["params"].index(chosen)]
    tried = {(p["shared"] > 0, p["noise"] > 0, p["center"]): i for i, p in enumerate(table["params"])}
    assert len(tried) >= 4
    for at in tried.values():
        given = table["params"][at]
        for s, (train, test) in enumerate(splits):
            local = LocalLCA(**given, reg=0.01).fit(rows[train])
            assert table[f"split{s}_test_score"][at] == pytest.approx(local.score(rows[test]), abs=1e-7)


@pytest.mark.parametrize("reg", ["auto", 0.01])
def test_a_fold_knows_nothing_of_the_held_out_rows(rows, reg):
    """Its LCA ends at that of its own rows, to few digits, although the fit to all rows had wilder ones."""
    train, wild = rows[:40], np.r_[rows[:40], 4 * rows[40:]]
    base = LCA(reg=reg).fit(wild)
    found = local_lca.fold_covariance(train, None, base, Engine())
    family = (
        {"reg": base.reg_} if reg != "auto" else {"reg": as_parameter(local_lca.penalty_of_fold(train, None, base))}
    )
    own = LCA(**family).fit(train)
    away = np.linalg.norm(base.covariance_ - own.covariance_)
    assert np.linalg.norm(found - own.covariance_) < 0.1 * away


def test_the_fit_to_all_rows_is_not_the_start_of_a_fold():
    """With few rows, LCA's likelihood has several maxima, and a start that knows the held-out rows finds one near them."""
    X = np.random.default_rng(0).normal(size=(35, 12))
    bases = [LCA(reg=0.05).fit(rows) for rows in (X, np.r_[X[:28], X[:7] + 0.01])]
    first, second = (local_lca.fold_covariance(X[:28], None, base, Engine()) for base in bases)
    assert np.array_equal(first, second)
    assert not np.allclose(bases[0].covariance_, bases[1].covariance_, rtol=0.1)


@pytest.mark.usefixtures("whole_search")
def test_a_member_must_be_ahead_of_lca_by_a_standard_error():
    """With few rows, the best of many members is ahead by chance."""
    n_returned = 0
    for seed in range(6):
        X = np.random.default_rng(seed).normal(size=(25, 3))
        model = LocalLCA().fit(X)
        corner = LocalLCA(0, 1, 0.0, shared=1.0, center="row").fit(X)
        gains = model.held_out_score_samples() - corner.held_out_score_samples()
        is_corner = (model.shared_, model.noise_, model.n_components_) == (1, 0, 0)
        n_returned += is_corner and model.best_score_ < model.cv_results_["mean_test_score"].max()
        assert is_corner or gains.mean() > gains.std() / 5
    assert 0 < n_returned < 6


def test_both_neighbours_are_among_the_members(rows):
    params = LocalLCA(reg=0.01).fit(rows).cv_results_["params"]
    assert any(p["n_components"] == 0 and p["shared"] == 1 and p["noise"] == 0 and p["center"] == "row" for p in params)
    assert any(p["n_components"] > 0 and p["shared"] == 0 and p["center"] == "row" for p in params)
    assert any(p["shared"] > 0 and p["noise"] > 0 for p in params)


@pytest.mark.slow
def test_it_follows_a_spiral():
    X, test = make_spiral(300, random_state=0)[0], make_spiral(1000, random_state=1)[0]
    model = LocalLCA().fit(X)
    assert model.score(test) > LCA().fit(X).score(test) + 0.15
    assert model.score(test) > ManifoldParzen().fit(X).score(test) - 0.02
    # Honest: the choice is judged by rows that shaped nothing; leaving out the own kernel alone flatters.
    assert model.held_out_score_samples().mean() == pytest.approx(model.score(test), abs=0.15)
    assert model.score() > model.held_out_score_samples().mean()


@pytest.mark.slow
def test_kernels_of_different_shape_are_found():
    """Three flat clusters of different orientation, for which one covariance is a compromise."""
    rng = np.random.default_rng(0)
    roots = [np.diag([2.0, 0.5, 0.1]) @ np.linalg.qr(rng.normal(size=(3, 3)))[0] for _ in range(3)]
    y = rng.integers(3, size=900)
    X = rng.normal(size=(900, 3))
    X = np.einsum("ni,nij->nj", X, np.array(roots)[y]) + 6 * np.eye(3)[y]
    model = LocalLCA(selection=Selection(cv=3, n_neighbors=[20, 40])).fit(X[:250])
    assert model.score(X[250:]) > LCA().fit(X[:250]).score(X[250:]) + 0.25
    widest = model.local_map(X[0])[0]
    true = np.linalg.eigh(roots[y[0]].T @ roots[y[0]])[1][:, -1]
    assert abs(widest @ true) / np.linalg.norm(widest) > 0.9


def test_held_out_rows_are_those_of_fixed_folds(rows):
    model = LocalLCA(1, 6, 0.01, **GIVEN).fit(rows, None, WEIGHT)
    scores = model.held_out_score_samples()
    part = next(iter(Selection().splits(rows, np.zeros(60, dtype=int))))
    member = Member(0.5, 0.01, 6, 1, "mean")
    kernels = model._kernels_of(rows, WEIGHT, part[0], Engine())
    expected = kernels.log_densities(rows[part[1]], Table(member.shape, [1.0], 6, [1], "mean"))[0, 0]
    np.testing.assert_allclose(scores[part[1]], expected, rtol=1e-9)


def test_a_row_of_weight_zero_is_as_if_absent(rows):
    weight = np.where(np.arange(60) % 4 == 0, 0.0, 1.0)
    local = LocalLCA(1, 6, 0.01, **GIVEN)
    with_zeros = local.fit(rows, None, weight).score_samples(NEW)
    np.testing.assert_allclose(with_zeros, local.fit(rows[weight > 0]).score_samples(NEW), rtol=1e-9)
    assert np.isfinite(local.fit(rows, None, weight).held_out_score_samples()).all()


# -- the local metric --------------------------------------------------------------------------------------------------


def test_the_metric_at_a_point_is_the_mean_of_the_kernels_by_their_shares(rows):
    model = LocalLCA(1, 7, 0.01, **GIVEN).fit(rows)
    shares = model.mixture_.responsibilities(NEW).toarray()
    expected = np.einsum("ij,jkl->ikl", shares, model.local_covariances_)
    np.testing.assert_allclose(model.local_metric(NEW), expected, rtol=1e-4)
    there = model.local_map(NEW[0])
    np.testing.assert_allclose(there.T @ there, np.linalg.inv(model.local_metric(NEW[:1])[0]), rtol=1e-9)
    assert np.linalg.norm(there[0]) < np.linalg.norm(there[1])  # the widest direction first
    apart = rows - NEW[0]
    expected = np.sqrt(np.einsum("ij,jk,ik->i", apart, there.T @ there, apart))
    np.testing.assert_allclose(model.local_distances(NEW[0], rows), expected, rtol=1e-9)
    shared = LocalLCA(0, 5, 0, shared=1, center="row", reg=0.01).fit(rows)
    np.testing.assert_allclose(shared.local_metric(NEW)[3], shared.base_.covariance_, rtol=1e-12)


def test_one_row_may_come_from_a_table_with_names(rows):
    """A row of a dataframe is a Series: its names are those of the columns, and no warning is needed."""
    frame = pd.DataFrame(rows, columns=["a", "b"])
    model, plain = (LocalLCA(1, 7, 0.01, **GIVEN).fit(table) for table in (frame, rows))
    np.testing.assert_array_equal(model.local_map(frame.iloc[3]), plain.local_map(rows[3]))
    np.testing.assert_array_equal(model.local_distances(frame.iloc[3], frame), plain.local_distances(rows[3], rows))
    for wrong in (rows[:2], rows[0, :1], [np.nan, 1.0]):
        with pytest.raises(ValueError, match="x must be one row of 2 finite numbers, got shape"):
            model.local_map(wrong)


def test_explanations_are_the_mixtures_own_conditionals(rows):
    """Each column given the others: near rows by the short way, a far one by conditionals; the kernels differ."""
    rng = np.random.default_rng(0)
    X = np.c_[rows, rows[:, 0] + 0.2 * rng.normal(size=60)]
    mixture = LocalLCA(2, 9, 0.01, **GIVEN).fit(X, None, WEIGHT).mixture_
    asked = np.r_[X[:3] + 0.1, [[1e6, 0.0, 3.0]]]
    found = column_conditionals(mixture, asked, np.array([0, 1, 2, 5]), (0.05, 0.5))
    for i, own in enumerate([0, 1, 2, 5]):
        rest = copy.copy(mixture)
        rest.log_weights = mixture.log_weights.copy()
        rest.log_weights[own] = -np.inf
        rest.log_weights -= logsumexp(rest.log_weights)
        for k in range(3):
            one = rest.conditional({j: asked[i, j] for j in range(3) if j != k})
            assert found.surprises[i, k] == pytest.approx(-one.score_samples(asked[i : i + 1, k : k + 1])[0], rel=1e-7)
            below = np.exp(one.log_weights) @ norm.cdf(
                found.quantiles[:, i, k][None] - one.centres, scale=np.sqrt(one.covariances[:, 0])
            )
            np.testing.assert_allclose(below, [0.05, 0.5], atol=1e-5)


def test_a_detector_explains_by_it(rows):
    detector = DensityOutlierDetector(LocalLCA(1, 7, 0.01, **GIVEN)).fit(rows)
    strange = np.array([[3.0, 5.5]])  # far above the arc
    assert detector.p_values(strange)[0] < 0.05
    assert detector.explain(strange).ranking()[0][0] == 1
    assert np.isfinite(detector.explain().surprises).all()


# -- what is passed in, and what goes out ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": 3, "n_neighbors": 5}, "n_components=3 needs at least 3 features that vary, got 2"),
        ({"n_components": 2, "n_neighbors": 1}, "n_components=2 needs at least as many neighbours, got n_neighbors=1"),
        ({"n_neighbors": 60}, "n_neighbors=60 needs at least 61 training rows in every split and class, got 48"),
        (
            {"n_neighbors": 60, "n_components": 1, "noise": 1, "shared": 1, "center": "row"},
            "needs at least 61 training",
        ),
        ({"noise": 0, "shared": 0}, "must not both be 0"),
        ({"noise": -1.0}, "noise must be a finite number at least 0, got -1.0"),
        ({"shared": "all"}, "shared must be a number of at least 0 or 'auto', got 'all'"),
        ({"center": "median"}, "center must be one of 'auto', 'row', 'mean'"),
        ({"center": "mean", "n_components": 0}, "center='mean' needs n_components of at least 1"),
        ({"selection": Selection("error")}, "criterion must be 'log_likelihood' for LocalLCA, got 'error'"),
        ({"reg": -1.0}, "reg must be"),
    ],
)
def test_bad_parameters(rows, parameters, message):
    with pytest.raises(ValueError, match=message):
        LocalLCA(**{"reg": 0.01, **parameters}).fit(rows)


def test_a_selection_of_another_type_is_refused(rows):
    with pytest.raises(TypeError, match=r"selection must be a vicinal\.Selection or None, got int"):
        LocalLCA(selection=5).fit(rows)


def test_few_rows_are_lca(rows):
    model = LocalLCA().fit(rows[:4])
    lca = LCA(reg=model.base_.reg_).fit(rows[:4])
    np.testing.assert_allclose(model.score_samples(NEW), lca.score_samples(NEW), rtol=1e-12)
    with pytest.raises(ValueError, match="noise='auto' with shared=0 needs at least 5 distinct rows"):
        LocalLCA(shared=0).fit(rows[:4])


def test_lca_that_does_not_converge_is_announced(rows, monkeypatch):
    fit = LCA.fit

    def unfinished(self, *arguments):
        fit(self, *arguments)
        self.converged_ = False
        return self

    monkeypatch.setattr(LCA, "fit", unfinished)
    with pytest.warns(ConvergenceWarning, match="LCA that gives the shared covariance did not converge"):
        LocalLCA(1, 7, 0.01, **GIVEN).fit(rows)


def test_memory_stays_within_the_budget():
    X = np.random.default_rng(0).normal(size=(3000, 6))
    model = LocalLCA(3, 20, 0, shared=0.5, center="mean", reg=0.0, engine=Engine(memory="4 MB"))
    model.fit(X)  # compiled once
    tracemalloc.start()
    model.fit(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    held = 8 * 3000 * (3 * 6 + 6 * 6)  # the kernels, and copies of the rows
    assert peak < 12e6 + 6 * held


def test_pickles_and_model_files_bring_back_every_bit(rows, tmp_path):
    model = LocalLCA(2, 7, 0.01, **GIVEN).fit(pd.DataFrame(rows, columns=["a", "b"]), None, WEIGHT)
    io.save(model, tmp_path / "model.vicinal")
    frame = pd.DataFrame(NEW, columns=["a", "b"])
    for again in (pickle.loads(pickle.dumps(model)), io.load(tmp_path / "model.vicinal")):
        assert isinstance(again.mixture_, FrameMixture)
        np.testing.assert_array_equal(again.score_samples(frame), model.score_samples(frame))
        np.testing.assert_array_equal(again.held_out_score_samples(), model.held_out_score_samples())
        np.testing.assert_array_equal(again.local_metric(frame), model.local_metric(frame))
        np.testing.assert_array_equal(again.neighbors_, model.neighbors_)


def test_which_engine(rows):
    model = LocalLCA(1, 5, 0.01, **GIVEN).fit(rows)
    assert which_engine(rows, LocalLCA(1, 5, 0.01, **GIVEN)).split(":")[0] == model.engine_
    assert LocalLCA(1, 5, 0.01, **GIVEN, engine="reference").fit(rows).engine_ == "reference"


@pytest.mark.usefixtures("whole_search")
def test_penalty_of_folds_has_the_family_factor_and_weight_of_the_fit(tmp_path):
    """It used to be reconstructed from a ratio of traces."""
    rng = np.random.default_rng(0)
    for X in (rng.normal(size=(60, 3)) @ rng.normal(size=(3, 3)), rng.normal(size=(40, 12))):
        base = LCA().fit(X)
        whole = as_parameter(penalty_of_fold(X, None, base))
        np.testing.assert_array_equal(getattr(whole, "target", whole), getattr(base.reg_, "target", base.reg_))
        io.save(base, tmp_path / "base.vicinal")
        assert io.load(tmp_path / "base.vicinal")._reg_form == base._reg_form
        form = base._reg_form
        expected = form.factor * family_matrix(form.family, X[:30])
        np.testing.assert_array_equal(penalty_of_fold(X[:30], None, base).matrix, expected)
        assert penalty_of_fold(X[:30], None, base).weight == form.weight


def test_penalty_of_folds_after_a_collapse_is_the_larger_one_of_the_fit(rows, monkeypatch):
    """A fit that collapses takes another penalty than the best of its search, and the folds took that one."""
    maximised, penalties = LCA._maximised, []

    def collapse_once(self, problem, steps, *others):
        penalties.append(steps.reg)
        if len(penalties) == 1:
            raise CollapseError
        return maximised(self, problem, steps, *others)

    monkeypatch.setattr(LCA, "_maximised", collapse_once)
    base = LCA().fit(rows)
    np.testing.assert_array_equal(base.reg_, penalties[1].matrix)
    assert base._reg_form == LEAST_PENALTY
    np.testing.assert_array_equal(
        penalty_of_fold(rows[:40], None, base).matrix, 1e-4 * family_matrix("shrunk", rows[:40])
    )


def test_a_member_for_few_rows_has_as_many_neighbours_and_directions_as_these_allow():
    member = Member(1.0, 0.0, 10, 5, "row")
    assert member.among(11) == member
    assert member.among(8) == member._replace(n_neighbors=7)
    assert member.among(4) == member._replace(n_neighbors=3, n_components=3)


def test_neighbours_of_some_rows_are_those_of_all_rows_at_these_places():
    rows, some, candidates = np.random.default_rng(0).normal(size=(60, 3)), np.array([3, 4, 50]), np.arange(0, 60, 2)
    for among in (None, candidates):
        everyone = nearest_neighbors(rows, 4, among)
        np.testing.assert_array_equal(nearest_neighbors(rows, 4, among, queries=some), everyone[some])
