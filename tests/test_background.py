"""Broad Gaussians beside the kernels: a literal mixture, rows that are left out, and what a density with them answers."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import approx_fprime
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from vicinal import LCA, DensityOutlierDetector, ParzenWindows, io
from vicinal._leave_one_out import mean_of_rows, scatter_of_rows
from vicinal._mixtures import column_conditionals
from vicinal._mixtures.background import WIDTHS

RNG = np.random.default_rng(0)
ROWS = RNG.standard_t(3, size=(60, 3)) @ RNG.normal(size=(3, 3)) + 5.0
WEIGHT = RNG.integers(1, 4, size=60).astype(float)
NEW = np.vstack([ROWS[:4] + 0.3, ROWS.mean(axis=0) + np.array([30.0, -20.0, 10.0])])


def literal(rows, weight, x, covariance, log_shares):
    """The log-density of one row under kernels at rows of some weights, and the broad Gaussians of the same rows."""
    weight = weight / weight.sum()
    kernels = [multivariate_normal(row, covariance, allow_singular=True).logpdf(x) for row in rows]
    broad = [
        multivariate_normal(mean_of_rows(rows, weight), k * (scatter_of_rows(rows, weight) + covariance)).logpdf(x)
        for k in WIDTHS
    ]
    return logsumexp(np.append(logsumexp(np.array(kernels), b=weight), broad) + log_shares)


@pytest.fixture(scope="module", params=[None, WEIGHT], ids=["plain", "weights"])
def weight(request):
    return request.param


@pytest.fixture(scope="module", params=[LCA, ParzenWindows])
def density(request, weight):
    return request.param().fit(ROWS, sample_weight=weight)


def test_new_rows_equal_the_literal_mixture(density, weight):
    weight = np.ones(60) if weight is None else weight
    log_shares = density.mixture_.background.log_shares
    expected = [literal(ROWS, weight, x, density.covariance_, log_shares) for x in NEW]
    np.testing.assert_allclose(density.score_samples(NEW), expected, rtol=1e-11)


def test_training_rows_are_left_out_of_the_kernels_and_of_the_moments(density, weight):
    weight = np.ones(60) if weight is None else weight
    log_shares, others = density.mixture_.background.log_shares, ~np.eye(60, dtype=bool)
    expected = [
        literal(ROWS[o], weight[o], x, density.covariance_, log_shares) for x, o in zip(ROWS, others, strict=True)
    ]
    np.testing.assert_allclose(density.score_samples(None), expected, rtol=1e-9)
    some = np.arange(10, 20)
    np.testing.assert_allclose(density.mixture_.left_out_scores_of(ROWS[some], some), expected[10:20], rtol=1e-9)


def test_without_some_components_their_rows_are_not_in_the_moments_either(density, weight):
    weight, remaining = np.ones(60) if weight is None else weight, np.arange(60) >= 7
    rest = density.mixture_.only(remaining)
    expected = [
        literal(ROWS[7:], weight[7:], x, density.covariance_, density.mixture_.background.log_shares) for x in NEW
    ]
    np.testing.assert_allclose(rest.score_samples(NEW), expected, rtol=1e-10)


def test_the_shares_have_the_largest_likelihood_of_rows_left_out(density, weight):
    """With one row more, divided among the broad Gaussians, or 1 % of few rows: no other shares are better."""
    mixture, weight = density.mixture_, np.ones(60) if weight is None else weight * 60 / weight.sum()
    kernels = mixture.log_kernels() - mixture._log_others
    broad = mixture.broad_log_densities(ROWS, np.arange(60))

    def likelihood(shares):
        logs = np.log(np.append(1.0 - shares.sum(), shares))
        return weight @ mixture.background._replace(log_shares=logs).beside(kernels, broad) + 0.3 * logs[1:].sum()

    best = np.exp(mixture.background.log_shares[1:])
    for factors in ((0.9, 1.0), (1.1, 1.0), (1.0, 0.9), (1.0, 1.1), (0.9, 1.1), (1.1, 0.9)):
        assert likelihood(best * factors) < likelihood(best)


def test_a_row_far_from_all_others_costs_no_more_than_under_the_broad_gaussian():
    heavy = np.random.default_rng(1).standard_t(1.5, size=(300, 2))
    far = np.array([[300.0, 200.0]])
    wide = multivariate_normal(heavy.mean(axis=0), 9.0 * np.cov(heavy.T))
    for density in (LCA().fit(heavy), ParzenWindows().fit(heavy)):
        assert density.score_samples(far)[0] > wide.logpdf(far) - np.log(300.0) - 3.0
    kernels_alone = LCA(reg=LCA().fit(heavy).reg_).fit(heavy).score_samples(far)[0]
    assert kernels_alone < wide.logpdf(far) - 1000.0


def test_marginals_and_conditionals_stay_exact(density):
    for x in NEW:
        joint = density.score_samples(x[None])[0]
        for fixed in ([0], [1], [2, 0]):
            rest = [k for k in range(3) if k not in fixed]
            marginal = density.marginal(fixed).score_samples(x[None, fixed])[0]
            conditional = density.conditional({k: x[k] for k in fixed}).score_samples(x[None, rest])[0]
            assert marginal + conditional == pytest.approx(joint, rel=1e-10)
    step = density.conditional({0: 4.0}).conditional({0: 5.0}).score_samples([[4.5]])
    np.testing.assert_allclose(step, density.conditional({0: 4.0, 1: 5.0}).score_samples([[4.5]]), rtol=1e-10)
    gaps = NEW.copy()
    gaps[:, 1] = np.nan
    np.testing.assert_allclose(density.score_samples(gaps), density.marginal([0, 2]).score_samples(NEW[:, [0, 2]]))


@pytest.mark.parametrize("is_left_out", [False, True])
def test_columns_given_the_others_are_ratios_of_densities(density, is_left_out):
    mixture, left_out = density.mixture_, np.arange(60) if is_left_out else None
    rows = ROWS if is_left_out else np.vstack([ROWS + 0.1, NEW])
    conditionals = column_conditionals(mixture, rows, left_out, (0.1, 0.5))

    def scores(part, columns):
        rows_of_columns = np.ascontiguousarray(rows[:, columns])
        return part.left_out_scores_of(rows_of_columns, left_out) if is_left_out else part.scores_of(rows_of_columns)

    for k in range(3):
        others = np.delete(np.arange(3), k)
        expected = scores(mixture.marginal(others), others) - scores(mixture, np.arange(3))
        np.testing.assert_allclose(conditionals.surprises[:, k], expected, rtol=1e-8, atol=1e-9)
    if not is_left_out:
        one = density.conditional({0: rows[0, 0], 2: rows[0, 2]})
        below = np.linspace(-400, conditionals.quantiles[1, 0, 1], 400_001)
        mass = np.trapezoid(np.exp(one.score_samples(below[:, None])), below)
        assert mass == pytest.approx(0.5, abs=1e-5)


def test_samples_have_the_moments_of_the_mixture(density):
    """Kernels and the first broad Gaussian have the covariance C + Sigma, the second one nine times it."""
    background, rows = density.mixture_.background, density.sample(200_000, random_state=0)
    share = np.exp(background.log_shares[2])
    expected = (1.0 + 8.0 * share) * (background.spread + density.covariance_)
    np.testing.assert_allclose(rows.mean(axis=0), background.mean, atol=0.05 * np.sqrt(np.diag(expected)).max())
    scale = np.sqrt(np.diag(expected))
    np.testing.assert_allclose(np.cov(rows.T) / np.outer(scale, scale), expected / np.outer(scale, scale), atol=0.04)


def test_mean_shift_climbs_the_whole_density(density):
    steps = density.mixture_.mean_shift(NEW)
    heights = density.score_samples(NEW)
    for x, step in zip(NEW, steps, strict=True):
        assert approx_fprime(x, lambda z: density.score_samples(z[None])[0], 1e-6) @ step > 0
    assert (density.score_samples(NEW + steps) > heights).all()


def test_rows_with_gaps_and_levels_are_scored_by_the_same_law():
    frame = pd.DataFrame(ROWS, columns=list("abc"))
    frame["kind"] = np.where(RNG.random(60) < 0.4, "x", "y")
    log_share = np.log((frame["kind"] == "x").sum() / 61.0)  # one row more is of a level that nobody has seen
    model = LCA().fit(frame)
    far = pd.DataFrame([[200.0, -300.0, 100.0, "x"]], columns=[*"abc", "kind"])
    background = model.mixture_.background
    numbers = far[list("abc")].to_numpy(np.float64)
    broad = background.log_densities(numbers, model.covariance_)[0] + log_share
    assert model.score_samples(far)[0] == pytest.approx(logsumexp(background.log_shares[1:] + broad), rel=1e-9)
    joint, given = model.score_samples(frame[:5]), model.marginal(["a", "b", "c"])
    for i in range(5):
        row = frame.iloc[i]
        levels = model.conditional({name: row[name] for name in "abc"})
        split = given.score_samples(frame.loc[[i], list("abc")])[0]
        assert split + levels.score_samples(frame.loc[[i], ["kind"]])[0] == pytest.approx(joint[i], rel=1e-9)
        chances = model.mixture_.level_probabilities(model.mixture_.centres[[i]], 0)[0]
        both = [levels.score_samples(pd.DataFrame({"kind": [level]}))[0] for level in ("x", "y")]
        np.testing.assert_allclose(np.log(chances[:2]), both, atol=1e-9)
    gaps = ROWS.copy()
    gaps[RNG.random(gaps.shape) < 0.1] = np.nan
    for density in (LCA().fit(gaps), ParzenWindows().fit(gaps)):
        mixture, i = density.mixture_, int(np.flatnonzero(np.isnan(gaps).sum(axis=1) == 1)[0])
        known = np.flatnonzero(~np.isnan(gaps[i]))
        expected = mixture.marginal(known).left_out_scores_of(gaps[i][None, known], np.array([i]))
        assert density.score_samples(None)[i] == pytest.approx(expected[0], rel=1e-9)


def test_levels_of_training_rows_given_their_numbers_leave_the_row_out():
    frame = pd.DataFrame(ROWS, columns=list("abc")).assign(kind=np.where(ROWS[:, 0] > 5, "x", "y"))
    mixture, own = LCA().fit(frame).mixture_, np.arange(60)
    conditionals = column_conditionals(mixture, mixture.centres, own, (0.5,))
    numbers = mixture.marginal([0, 1, 2])
    expected = numbers.left_out_scores_of(mixture.centres[:, :3].copy(), own) - mixture.left_out_score_samples()
    np.testing.assert_allclose(conditionals.surprises[:, 3], expected, rtol=1e-8, atol=1e-9)


def test_a_model_file_keeps_the_background(tmp_path):
    frame = pd.DataFrame(ROWS, columns=list("abc")).assign(kind=np.where(ROWS[:, 0] > 5, "x", "y"))
    for rows in (ROWS, frame):
        model = LCA().fit(rows)
        io.save(model, tmp_path / "model.vicinal")
        same = io.load(tmp_path / "model.vicinal")
        np.testing.assert_array_equal(same.score_samples(rows), model.score_samples(rows))
        np.testing.assert_array_equal(same.score_samples(None), model.score_samples(None))


def test_units_and_offsets_do_not_matter():
    scale = np.array([1e-3, 1.0, 1e4])
    for make in (LCA, ParzenWindows):
        plain, moved = make().fit(ROWS), make().fit(ROWS * scale + 1e3 * scale)
        expected = plain.score_samples(None) - np.log(scale).sum()
        np.testing.assert_allclose(moved.score_samples(None), expected, rtol=1e-4, atol=1e-4)


def test_given_parameters_give_the_plain_density():
    for plain in (LCA(reg=0.1), ParzenWindows("loo"), ParzenWindows("scott"), ParzenWindows(0.5)):
        assert plain.fit(ROWS).mixture_.background is None


def test_p_values_of_new_rows_stay_valid():
    """Training rows and their moments are left out of their own scores: the ranks of new rows are uniform."""
    rng, shares = np.random.default_rng(3), []
    for _ in range(12):
        rows = rng.standard_t(3, size=(400, 2))
        detector = DensityOutlierDetector(ParzenWindows(), largest_group=None).fit(rows[:100])
        shares.append([(detector.p_values(rows[100:]) <= level).mean() for level in (0.01, 0.05, 0.2)])
    mean, error = np.mean(shares, axis=0), np.std(shares, axis=0) / np.sqrt(12)
    assert (mean <= np.array([0.01, 0.05, 0.2]) + 3 * error).all()


# -- the shape of ParzenWindows ---------------------------------------------------------------------------------------


def test_parzen_windows_have_the_shape_of_largest_likelihood():
    rng = np.random.default_rng(0)
    slanted = rng.normal(size=(600, 2)) @ [[1.0, 0.99], [0.0, 0.1]]
    corners = rng.normal(size=(300, 2)) * 0.1 + 4.0 * rng.integers(0, 2, size=(300, 1))  # long, with round groups
    for rows, is_round in ((slanted, False), (corners, True)):
        model = ParzenWindows().fit(rows)
        covariances = [np.eye(2), np.diag(rows.var(axis=0)), np.cov(rows.T, bias=True)]
        assert (model.covariance_[0, 1] == 0.0) == is_round
        best = model.objectives_[-1]
        assert model.mixture_.log_kernels().mean() - np.log1p(-1 / len(rows)) == pytest.approx(best, rel=1e-9)
        for shape in covariances:
            for factor in np.geomspace(1e-3, 1.0, 13):
                assert ParzenWindows(factor * shape).fit(rows).score() < best + 1e-6
