"""Rows with missing values: fits to them, literal expectations, and the imputer."""

import io
import json
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags

import vicinal
from vicinal import LCA, DensityImputer, LCAGauss, ManifoldParzen, ParzenWindows
from vicinal._leave_one_out import expect, gaussian_start
from vicinal.cli import main

RNG = np.random.default_rng(0)
COMPLETE = RNG.normal(size=(80, 3)) @ np.array([[1.0, 0.6, 0.0], [0.0, 0.5, 0.3], [0.0, 0.0, 0.4]])
GAPS = np.where(RNG.random(COMPLETE.shape) < 0.2, np.nan, COMPLETE)
GAPS[7] = np.nan  # a row of which nothing is known
FITS = {"ParzenWindows": ParzenWindows("loo"), "LCA": LCA(reg=0.01), "LCAGauss": LCAGauss(reg=0.01, reg_gauss=0.01)}


def literal(X, centres, covariance, weight):
    """`expect`, row by row and pair by pair."""
    n, d = X.shape
    scores, rows, scatter, spread = np.zeros(n), X.copy(), np.zeros((d, d)), np.zeros((d, d))
    for i, x in enumerate(X):
        o, m = np.flatnonzero(~np.isnan(x)), np.flatnonzero(np.isnan(x))
        others = np.flatnonzero(np.arange(n) != i)
        gain = covariance[np.ix_(m, o)] @ np.linalg.inv(covariance[np.ix_(o, o)])
        rest = covariance[np.ix_(m, m)] - gain @ covariance[np.ix_(o, m)]
        densities = weight[others] * np.array(
            [stats.multivariate_normal(centres[j, o], covariance[np.ix_(o, o)]).pdf(x[o]) for j in others]
        )
        scores[i] = np.log(densities.sum() / weight[others].sum())
        shares = densities / densities.sum()
        guesses = np.array([centres[j, m] + gain @ (x[o] - centres[j, o]) for j in others])
        rows[i, m] = shares @ guesses
        for j, share, guess in zip(others, shares, guesses, strict=True):
            full = x.copy()
            full[m] = guess
            scatter += weight[i] * share * np.outer(full - centres[j], full - centres[j])
        scatter[np.ix_(m, m)] += weight[i] * rest
        centred = guesses - rows[i, m]
        spread[np.ix_(m, m)] += weight[i] * (rest + (centred * shares[:, None]).T @ centred)
    return scores, rows, scatter, spread


@pytest.mark.parametrize("weighted", [False, True])
def test_expectations_literally(weighted):
    X = np.delete(GAPS, 7, axis=0)[:20] + 1e3  # far from the origin
    centres, covariance = gaussian_start(X, None)
    weight = RNG.uniform(0.5, 2.0, size=20) if weighted else np.ones(20)
    found = expect(X, centres, 0.3 * covariance, weight if weighted else None, None)
    assert found.masses is None  # there are no levels
    for name, mine, theirs in zip(
        found._fields[:4], found[:4], literal(X, centres, 0.3 * covariance, weight), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-7, atol=1e-8, err_msg=name)


def test_the_start_is_the_gaussian_of_maximum_likelihood_where_nothing_is_missing():
    filled, covariance = gaussian_start(COMPLETE, None)
    np.testing.assert_array_equal(filled, COMPLETE)
    np.testing.assert_allclose(covariance, np.cov(COMPLETE.T, bias=True), atol=2e-3)


@pytest.mark.parametrize("name", FITS)
def test_fits_to_rows_with_gaps(name):
    model = clone(FITS[name]).fit(GAPS)
    assert get_tags(model).input_tags.allow_nan
    known = ~np.isnan(GAPS)
    if name != "LCAGauss":  # whose centres move along the Gaussian directions
        np.testing.assert_array_equal(model.mixture_.centres[known], GAPS[known])
    assert np.isfinite(model.mixture_.centres).all()
    # what is recorded is the observed-data leave-one-out score, the best pass is kept, and score() gives it
    penalty = 0.0
    if name == "LCA":
        penalty = 0.5 * 0.01 * np.trace(model.precision_)
    if name != "LCAGauss":
        assert model.objectives_[-1] == pytest.approx(model.score() - penalty, rel=1e-9)
    assert model.objectives_[-1] == model.objectives_.max()
    assert len(model.objectives_) >= 2
    assert model.score_samples()[7] == 0.0
    # better than a fit to the complete rows alone, on what is known of all rows
    complete = known.all(axis=1)
    fewer = clone(FITS[name]).fit(GAPS[complete])
    rows = np.where(known, COMPLETE, np.nan)[~complete]
    assert model.score_samples()[~complete].mean() > fewer.score_samples(rows).mean() - 0.1
    again = clone(FITS[name]).fit(COMPLETE)  # nothing of the fit with gaps is left
    np.testing.assert_allclose(again.score(), type(model)(**model.get_params()).fit(COMPLETE).score())


def test_a_gap_changes_a_fit_as_little_as_it_says():
    holed = COMPLETE.copy()
    holed[0, 0] = np.nan
    whole, close = LCA(reg=0.05, tol=1e-6).fit(COMPLETE), LCA(reg=0.05, tol=1e-6).fit(holed)
    np.testing.assert_allclose(close.covariance_, whole.covariance_, atol=0.03)
    assert close.mixture_.centres[0, 0] == pytest.approx(COMPLETE[0, 0], abs=1.5)


def test_bandwidths_of_parzen_windows_with_gaps():
    for bandwidth in (0.4, "scott", "silverman"):
        model = ParzenWindows(bandwidth).fit(GAPS)
        np.testing.assert_allclose(model.covariance_, ParzenWindows(bandwidth).fit(COMPLETE).covariance_, atol=0.05)


def test_what_cannot_be_fitted_names_the_imputer():
    with pytest.raises(
        ValueError, match=r"contains NaN in the columns 0, 1, 2: ManifoldParzen .*vicinal\.DensityImputer"
    ):
        ManifoldParzen().fit(GAPS)
    with pytest.raises(ValueError, match="1 of 3 columns hold no value at all"):
        LCA().fit(np.where(np.arange(3) == 1, np.nan, COMPLETE))
    with pytest.raises(TypeError, match="density must be LCA, LCAGauss or ParzenWindows"):
        DensityImputer(ManifoldParzen()).fit(GAPS)


@pytest.mark.parametrize("density", [None, *FITS.values()], ids=["default", *FITS])
def test_the_imputer_fills_in_conditional_means(density):
    imputer = DensityImputer(density).fit(GAPS)
    new = np.array([[0.3, np.nan, -0.2], [np.nan, 0.5, np.nan], [0.1, 0.2, 0.3]])
    filled = imputer.transform(new)
    np.testing.assert_array_equal(filled[~np.isnan(new)], new[~np.isnan(new)])
    scaled = (new - imputer.mean_) / imputer.scale_
    mixture = imputer.density_.mixture_
    for row, gaps in ((0, [1]), (1, [0, 2])):
        given = {j: scaled[row, j] for j in range(3) if j not in gaps}
        conditional = mixture.conditional(given)
        mean = np.exp(conditional.log_weights) @ conditional.centres
        np.testing.assert_allclose(filled[row, gaps], mean * imputer.scale_[gaps] + imputer.mean_[gaps], rtol=1e-9)
    nothing = imputer.transform(np.full((1, 3), np.nan))
    weights = np.exp(mixture.log_weights)
    np.testing.assert_allclose(nothing[0], weights @ mixture.centres * imputer.scale_ + imputer.mean_, rtol=1e-9)


def test_training_rows_are_filled_in_from_the_others():
    imputer = DensityImputer(LCA(reg=0.01))
    filled = imputer.fit_transform(GAPS)
    scaled = (GAPS - imputer.mean_) / imputer.scale_
    mixture = imputer.density_.mixture_
    expected = expect(scaled, mixture.centres, mixture.covariance, None, None).rows * imputer.scale_ + imputer.mean_
    known_something = np.arange(len(GAPS)) != 7
    np.testing.assert_allclose(filled[known_something], expected[known_something], rtol=1e-9)


def test_draws_have_the_spread_of_the_conditional():
    imputer = DensityImputer().fit(GAPS)
    row = np.array([[0.5, np.nan, np.nan]])
    draws = imputer.draw(row, n_draws=4000, random_state=0)
    assert draws.shape == (4000, 1, 3)
    assert np.all(draws[:, 0, 0] == 0.5)
    conditional = imputer.density_.mixture_.conditional({0: (0.5 - imputer.mean_[0]) / imputer.scale_[0]})
    sample = conditional.sample(4000, random_state=1) * imputer.scale_[1:] + imputer.mean_[1:]
    mean = imputer.transform(row)[0, 1:]
    sample = mean + imputer.draw_scale_ * (sample - mean)  # drawn towards the mean by the one calibrated factor
    for j in (0, 1):
        assert stats.ks_2samp(draws[:, 0, j + 1], sample[:, j]).pvalue > 1e-3
    np.testing.assert_array_equal(imputer.draw(row, 3, random_state=5), imputer.draw(row, 3, random_state=5))
    sampled = DensityImputer(sample=True, random_state=0).fit(GAPS)
    assert not np.array_equal(sampled.transform(row), imputer.transform(row))
    with pytest.raises(ValueError, match="needs the 80 rows of fit, got 1"):
        imputer.draw(row, training=True)


def test_imputation_follows_a_bent_line():
    """On a parabola, a linear regression predicts nothing, while the density does."""
    t = RNG.uniform(-2, 2, size=200)
    X = np.column_stack([t, t**2]) + 0.05 * RNG.normal(size=(200, 2))
    holed = X.copy()
    holed[::4, 1] = np.nan
    filled = DensityImputer(LCA(reg=1e-3)).fit_transform(holed)
    assert np.sqrt(np.mean((filled - X)[::4, 1] ** 2)) < 0.25 * X[::4, 1].std()


def test_the_imputer_is_a_step_of_a_pipeline():
    density = ManifoldParzen(n_neighbors=5, n_components=1, noise=0.1)
    model = make_pipeline(StandardScaler(), DensityImputer(), density).fit(GAPS[:40])
    assert np.isfinite(vicinal.tables.score_rows(model, GAPS[10:12])).all()


# -- the command


@pytest.fixture
def holes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame(GAPS, columns=["a", "b", "c"]).assign(kind=np.where(COMPLETE[:, 0] > 0, "x", "y"))
    table.to_csv("holes.csv", index=False)
    return table


def run(*arguments):
    return main([str(argument) for argument in arguments])


def test_missing_values_on_the_command_line(holes, capsys):
    learn = ["learn", "holes.csv", "-o", "m.vicinal", "--drop", "kind"]
    assert run(*learn, "--method", "lca") == 3
    assert "--missing drop" in (err := capsys.readouterr().err)
    assert "--missing impute" in err
    assert run(*learn, "--method", "manifold-parzen", "--missing", "marginalise") == 2
    assert "--missing marginalise is for lca, lca-gauss and parzen" in capsys.readouterr().err
    assert run(*learn, "--method", "parzen", "--missing", "marginalise", "-q") == 0
    for options in ((), ("--as-new",)):  # rows with gaps are scored by their known values
        assert run("score", "m.vicinal", "holes.csv", *options, "-q") == 0
        scores = pd.read_csv(io.StringIO(capsys.readouterr().out))
        assert len(scores) == 80
        assert scores["log_density"].notna().all()
    assert run("score", "m.vicinal", "holes.csv", "--missing", "impute", "-q") == 2
    assert "the model has no imputer" in capsys.readouterr().err


def test_a_model_that_imputes_carries_its_imputer(holes, capsys):
    learn = ["learn", "holes.csv", "--method", "rca", "--target", "kind", "--missing", "impute"]
    assert run(*learn, "-o", "m.vicinal", "--json", "-q") == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 80
    assert run("transform", "m.vicinal", "holes.csv", "-q") == 0
    images = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert images.shape == (80, 3)
    assert images.notna().all().all()
    model = vicinal.io.load("m.vicinal")
    np.testing.assert_allclose(images, model.transform(holes), rtol=1e-9)


@pytest.mark.slow
def test_compare_imputes_within_the_folds(holes, capsys):
    few = {"metrics": ["z-scored", "rca"], "densities": ["gaussian", "lca"], "n_repeats": 1, "n_splits": 3}
    X, y = holes[["a", "b", "c"]], holes["kind"].to_numpy()
    result = vicinal.compare(X, y, missing="impute", **few)
    assert all(found.failure is None for found in [*result.metrics, *result.densities])
    assert any("were filled in by DensityImputer, fitted to the training rows" in note for note in result.notes)
    assert isinstance(result.estimator("metric", "rca")[0], DensityImputer)
    assert str(vicinal.compare(X, y, **result.settings)) == str(result)
    default = vicinal.compare(X, y, **few)  # densities use the known values
    assert any("evaluated on the known values of the rows" in note for note in default.notes)
    line = ["compare", "holes.csv", "--target", "kind", "--methods", "z-scored,rca", "--repeats", 1, "-q"]
    assert run(*line, "--missing", "impute", "--report", "r.html") == 0
    assert run(*line, "--missing", "marginalise") == 0
    capsys.readouterr()


def test_local_directions_are_searched_for_in_rows_with_gaps():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3))
    X[:, 0] = 0.2 * X[:, 0] + 2 * rng.integers(2, size=150)
    holed = np.where(rng.random(X.shape) < 0.05, np.nan, X)
    plain, searched = (LCAGauss(reduce=reduce, reg=0.01, reg_gauss=0.0).fit(holed) for reduce in (False, True))
    assert searched.objectives_[-1] >= plain.objectives_[-1]
    assert searched.n_components_ == 1 < plain.n_components_
    along = np.abs(searched.components_[0]) / np.linalg.norm(searched.components_[0])
    assert along[0] > 0.98
    assert len(searched.gaussian_components_) == 2
    assert np.isfinite(searched.score_samples(None)).all()


def test_draws_cover_what_was_hidden():
    """Draws from the mixture itself, which is wider than the data by its kernel, covered .94 to .99 instead of .90."""
    inside, total = 0, 0
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(100, 4)) @ rng.normal(size=(4, 4))
        gaps = rng.random(X.shape) < 0.2
        holed = np.where(gaps, np.nan, X)
        imputer = DensityImputer().fit(holed)
        assert imputer.draw_scale_ < 0.95
        draws = imputer.draw(holed, 19, random_state=0, training=True)
        inside += ((draws.min(axis=0) <= X) & (draws.max(axis=0) >= X))[gaps].sum()
        total += gaps.sum()
    assert abs(inside / total - 0.9) < 2.5 * np.sqrt(0.9 * 0.1 / total) + 0.02


def test_draws_of_a_constant_column_are_the_constant():
    X = np.column_stack([COMPLETE, np.full(80, 4.0)])
    X[:10, 3] = np.nan
    imputer = DensityImputer().fit(X)
    np.testing.assert_array_equal(imputer.draw(X, 3, random_state=0)[:, :10, 3], 4.0)
    assert len(np.unique(imputer.draw(np.array([[np.nan, 0.0, 0.0, 4.0]]), 9, random_state=0)[:, 0, 0])) == 9


@pytest.mark.parametrize("density", [None, *FITS.values()], ids=["default", *FITS])
def test_a_constant_column_of_complete_training_rows_is_filled_in(density):
    """ParzenWindows ignores such a column, which the imputer did not take into account."""
    X = np.column_stack([COMPLETE, np.full(80, 4.0)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the constant column
        imputer = DensityImputer(density).fit(X)
    holed = np.array([[0.1, np.nan, 0.2, np.nan], [0.1, 0.2, 0.3, np.nan]])
    filled = imputer.transform(holed)
    np.testing.assert_array_equal(filled[:, 3], 4.0)
    np.testing.assert_array_equal(imputer.draw(holed, 3, random_state=0)[:, :, 3], 4.0)
    narrow = DensityImputer(density).fit(COMPLETE).transform(holed[:, :3])
    np.testing.assert_allclose(filled[:, :3], narrow, atol=0.05)


def test_draws_cover_what_a_fit_to_few_rows_and_many_columns_has_not_seen():
    """A fit fills the gaps of all rows in from each other, so that a known entry is in the centres of other rows, too. Draws
    that were calibrated on such entries covered .79 of the hidden ones where .90 is meant."""
    X = StandardScaler().fit_transform(load_wine().data[np.random.default_rng(0).permutation(178)[:80]])
    gaps = np.random.default_rng(0).random(X.shape) < 0.1
    holed = np.where(gaps, np.nan, X)
    draws = DensityImputer().fit(holed).draw(holed, 19, random_state=0, training=True)
    inside = ((draws.min(axis=0) <= X) & (draws.max(axis=0) >= X))[gaps]
    assert abs(inside.mean() - 0.9) < 0.07
