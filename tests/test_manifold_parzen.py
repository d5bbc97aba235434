"""Test ManifoldParzen: literal densities, its limits, the choice of its noise, and held-out scores."""

import pickle

import numpy as np
import pandas as pd
import pytest
from estimator_checks import check_conventions
from scipy.special import logsumexp
from scipy.stats import ks_2samp, multivariate_normal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from vicinal import ManifoldParzen, ParzenWindows, which_engine
from vicinal._density.mixture_density import MixtureDensityMixin

ALL_TWINS = (
    "the check's data hold every row several times, where the held-out likelihood is unbounded: noise='auto' "
    "raises an explanatory error"
)
EXPECTED_FAILURES = {
    "auto": {
        "check_sample_weights_shape": ALL_TWINS,
        "check_sample_weights_not_overwritten": ALL_TWINS,
    },
}


@parametrize_with_checks(
    [
        ManifoldParzen(n_components=1, n_neighbors=5),
        ManifoldParzen(vicinity="kernel", bandwidth=1.0, noise=0.3, n_components=1),
    ],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES.get(estimator.noise, {}),
)
@pytest.mark.filterwarnings("ignore:.*exact twin.*:UserWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator",
    [
        ManifoldParzen(n_neighbors=3, noise=0.5, n_components=1),
        ManifoldParzen(n_components=0, noise=0.2, n_neighbors=5),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.*exact twin.*:UserWarning")
def test_scikit_learn_checks_of_other_settings(estimator):
    check_conventions(estimator, EXPECTED_FAILURES.get(estimator.noise))


@pytest.fixture
def spiral():
    """Sec. 4.1: x = .04 t sin t + e, y = .04 t cos t + e, t uniform on (3, 15), e of deviation .01."""
    rng = np.random.default_rng(0)
    t = rng.uniform(3, 15, size=3300)
    curve = 0.04 * t[:, None] * np.column_stack([np.sin(t), np.cos(t)])
    return curve + rng.normal(0, 0.01, size=(3300, 2))


@pytest.fixture
def rows():
    rng = np.random.default_rng(1)
    return rng.normal(size=(60, 4)) @ np.diag([3.0, 1.0, 0.5, 0.1])


def literal_log_density(X, centres, d, k, noise, weight=None):
    """The restored LocalGaussian of sec. 2, by loops: neighbours by sorting, SVD, r and q."""
    n, D = centres.shape
    weight = np.ones(n) if weight is None else weight
    alive = [i for i in range(n) if weight[i] > 0]
    terms = []
    for i in alive:
        others = [j for j in alive if j != i]
        near = sorted(others, key=lambda j: np.sum((centres[j] - centres[i]) ** 2))[:k]
        shares = weight[near] / weight[near].sum()
        _, s, V = np.linalg.svd(np.sqrt(shares)[:, None] * (centres[near] - centres[i]))
        lam = noise + np.append(s, np.zeros(D))[:d] ** 2
        r = D * np.log(2 * np.pi) + np.log(lam).sum() + (D - d) * np.log(noise)
        delta = X - centres[i]
        q = (delta**2).sum(axis=1) / noise + ((1 / lam - 1 / noise) * (delta @ V[:d].T) ** 2).sum(axis=1)
        terms.append(np.log(weight[i]) - (r + q) / 2)
    return logsumexp(terms, axis=0) - np.log(weight.sum())


@pytest.mark.parametrize("engine", ["reference", "cpu"])
@pytest.mark.parametrize(("d", "k"), [(1, 1), (1, 7), (2, 2), (3, 10), (4, 20), (4, 4)])
@pytest.mark.parametrize("weighted", [False, True])
def test_log_density_equals_the_papers_formula(rows, engine, d, k, weighted):
    weight = (1.0 + np.arange(len(rows)) % 4) * (np.arange(len(rows)) % 5 > 0) if weighted else None
    density = ManifoldParzen(d, k, 0.05, engine=engine).fit(rows, sample_weight=weight)
    X = rows[:6] + 0.3
    expected = literal_log_density(X, rows, d, k, 0.05, weight)
    np.testing.assert_allclose(density.score_samples(X), expected, rtol=1e-10)
    assert density.score(X) == pytest.approx(expected.mean())


@pytest.mark.parametrize("weighted", [False, True])
def test_wide_rows_take_the_gram_route_and_still_equal_the_formula(weighted):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 60)) @ np.diag(np.geomspace(1, 0.01, 60))
    weight = rng.uniform(0.5, 2, size=35) if weighted else np.ones(35)
    density = ManifoldParzen(4, 6, 0.01).fit(X[:35], sample_weight=weight if weighted else None)
    np.testing.assert_allclose(
        density.score_samples(X[35:]), literal_log_density(X[35:], X[:35], 4, 6, 0.01, weight), rtol=1e-10
    )
    expected = [
        literal_log_density(X[i : i + 1], np.delete(X[:35], i, 0), 4, 6, 0.01, np.delete(weight, i))[0]
        for i in range(35)
    ]
    np.testing.assert_allclose(density.held_out_score_samples(), expected, rtol=1e-9)


def test_frames_are_orthonormal_and_carry_the_local_scatter(rows):
    density = ManifoldParzen(4, 9, 0.1).fit(rows)
    assert density.local_frames_.shape == (60, 4, 4)
    assert density.neighbors_.shape == (60, 9)
    for i in range(60):
        V, v = density.local_frames_[i], density.local_variances_[i]
        np.testing.assert_allclose(V @ V.T, np.eye(4), atol=1e-12)
        delta = rows[density.neighbors_[i]] - rows[i]
        np.testing.assert_allclose((V.T * v) @ V, delta.T @ delta / 9, atol=1e-12)
        assert i not in density.neighbors_[i]


def test_no_components_is_plain_parzen_to_the_last_bit(rows):
    plain = ParzenWindows(bandwidth=np.sqrt(0.3)).fit(rows)
    density = ManifoldParzen(0, 5, 0.3).fit(rows)
    # The square of a square root is not the number itself: compare on the covariance.
    density.mixture_.covariance = plain.mixture_.covariance
    density.mixture_._lower = plain.mixture_._lower
    assert np.array_equal(density.score_samples(rows + 0.1), plain.score_samples(rows + 0.1))
    assert density.local_frames_.shape == (60, 0, 4)
    assert density.local_variances_.shape == (60, 0)
    np.testing.assert_array_equal(density.held_out_score_samples(), density.score_samples(None))
    auto = ManifoldParzen(0, n_neighbors=5).fit(rows)
    assert auto.noise_ == ParzenWindows("loo").fit(rows).covariance_[0, 0]


def test_vanishing_frames_approach_plain_parzen(rows):
    """With a noise that dwarfs the neighbourhoods every covariance is the noise."""
    density = ManifoldParzen(2, 5, 1e8).fit(rows)
    np.testing.assert_allclose(density.score_samples(rows), ParzenWindows(1e4).fit(rows).score_samples(rows))


def test_soft_neighbourhood_equals_the_weighted_covariance(rows):
    bandwidth, noise, d = 0.8, 0.05, 2
    density = ManifoldParzen(d, noise=noise, vicinity="kernel", bandwidth=bandwidth).fit(rows)
    X = rows[:5] + 0.2
    terms = []
    for i in range(60):
        delta = np.delete(rows, i, 0) - rows[i]
        K = np.exp(-0.5 * (delta**2).sum(1) / bandwidth**2)
        values, vectors = np.linalg.eigh((delta.T * K) @ delta / K.sum())
        kept = (vectors[:, -d:] * values[-d:]) @ vectors[:, -d:].T
        terms.append(multivariate_normal.logpdf(X, rows[i], kept + noise * np.eye(4)))
    expected = logsumexp(terms, axis=0) - np.log(60)
    np.testing.assert_allclose(density.score_samples(X), expected, rtol=1e-9)
    # A matrix is a covariance, a vector standard deviations.
    for same in (np.full(4, 0.8), 0.64 * np.eye(4)):
        again = clone(density).set_params(bandwidth=same).fit(rows)
        np.testing.assert_allclose(again.score_samples(X), expected, rtol=1e-9)


def test_soft_neighbourhood_of_an_isolated_point_is_its_nearest_row():
    X = np.array([[0.0, 0.0], [1.0, 0.0], [1000.0, 0.0]])
    density = ManifoldParzen(1, noise=0.1, vicinity="kernel", bandwidth=0.5).fit(X)
    assert density.local_variances_[2, 0] == pytest.approx(999.0**2)
    assert np.all(np.isfinite(density.score_samples(X)))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("d", [1, 2])
def test_held_out_scores_are_those_of_a_fit_without_the_row(spiral, d, weighted):
    X = spiral[:50]
    weight = np.random.default_rng(2).uniform(0.2, 3, size=50) if weighted else np.ones(50)
    density = ManifoldParzen(d, 5, 1e-3).fit(X, sample_weight=weight if weighted else None)
    expected = [
        clone(density)
        .fit(np.delete(X, i, 0), sample_weight=np.delete(weight, i) if weighted else None)
        .score_samples(X[i : i + 1])[0]
        for i in range(50)
    ]
    np.testing.assert_allclose(density.held_out_score_samples(), expected, rtol=1e-9)
    # Dropping the own component only leaks: those scores are better than honest ones.
    assert density.score() > np.mean(expected)


def test_score_samples_none_drops_the_own_component_only(rows):
    density = ManifoldParzen(2, 5, 0.1).fit(rows)
    full = np.exp(density.score_samples(rows))
    own = [
        multivariate_normal.pdf(rows[i], rows[i], 0.1 * np.eye(4) + (V.T * v) @ V)
        for i, (V, v) in enumerate(zip(density.local_frames_, density.local_variances_, strict=True))
    ]
    expected = np.log((60 * full - own) / 59)
    np.testing.assert_allclose(density.score_samples(None), expected, rtol=1e-6)
    assert "own component only" in " ".join(ManifoldParzen.score_samples.__doc__.split())


@pytest.mark.slow
def test_auto_noise_is_as_good_as_the_best_on_new_rows(spiral):
    train, test = spiral[:300], spiral[300:]
    density = ManifoldParzen(1, 12).fit(train)
    grid = np.geomspace(1e-6, 1e-2, 41)
    best = max(ManifoldParzen(1, 12, noise).fit(train).score(test) for noise in grid)
    assert density.score(test) > best - 0.01
    assert density.noise_candidates_.shape == density.noise_scores_.shape
    peak = density.noise_candidates_[np.argmax(density.noise_scores_)]
    assert 1 / 1.5 < density.noise_ / peak < 1.5


def test_auto_noise_does_not_leak():
    """Dropping only the own component chooses a noise whose held-out score is 20 nats worse."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 30)) @ np.diag(np.geomspace(1, 0.05, 30))
    train, test = X[:100], X[100:]
    fits = [ManifoldParzen(4, 5, noise).fit(train) for noise in np.geomspace(1e-3, 1, 16)]
    honest = ManifoldParzen(4, 5).fit(train).score(test)
    assert honest > max(density.score(test) for density in fits) - 0.05
    assert max(fits, key=lambda density: density.score()).score(test) < honest - 20


def test_auto_noise_of_the_soft_neighbourhood(spiral):
    train, test = spiral[:200], spiral[300:900]
    density = ManifoldParzen(1, vicinity="kernel", bandwidth=0.05).fit(train)
    best = max(clone(density).set_params(noise=noise).fit(train).score(test) for noise in np.geomspace(1e-5, 1e-2, 16))
    assert density.score(test) > best - 0.03
    held_out = density.held_out_score_samples()
    assert held_out.shape == (200,)
    assert abs(held_out.mean() - density.score(test)) < 0.25


@pytest.mark.slow
def test_the_papers_order_on_the_spiral(spiral):
    """Table 1: d=1 beats d=2, both beat Parzen; parameters tuned without the test set."""
    train, validation, test = spiral[:300], spiral[300:600], spiral[600:]

    def best(d):
        fits = [
            ManifoldParzen(d, k, noise).fit(train)
            for k in (8, 10, 12, 14, 16)
            for noise in np.geomspace(1e-6, 1e-3, 13)
        ]
        return max(fits, key=lambda density: density.score(validation)).score(test)

    plain = ManifoldParzen(0, n_neighbors=5).fit(train).score(test)
    one, two = best(1), best(2)
    assert one > two > plain
    assert one - plain > 0.1


def test_scale_equivariance(spiral):
    X = spiral[:200]
    small, large = ManifoldParzen(1, 10).fit(X), ManifoldParzen(1, 10).fit(1e4 * X + 7e5)
    assert large.noise_ == pytest.approx(1e8 * small.noise_, rel=1e-5)
    np.testing.assert_allclose(
        large.score_samples(1e4 * X + 7e5) + 2 * np.log(1e4), small.score_samples(X), rtol=1e-5, atol=1e-5
    )


def test_a_metric_decides_who_is_near(rows):
    scaler = StandardScaler().fit(rows)
    density = ManifoldParzen(2, 5, 0.1, metric=scaler).fit(rows)
    Z = scaler.transform(rows)
    expected = NearestNeighbors(n_neighbors=5).fit(Z).kneighbors(return_distance=False)
    assert [set(a) for a in density.neighbors_] == [set(b) for b in expected]
    assert [set(a) for a in ManifoldParzen(2, 5, 0.1).fit(rows).neighbors_] != [set(b) for b in expected]
    # The directions are those of the rows themselves, not of their images.
    delta = rows[density.neighbors_[0]] - rows[0]
    assert density.local_variances_[0, 0] == pytest.approx(np.linalg.svd(delta)[1][0] ** 2 / 5)
    # A clone keeps the fitted metric, so that a grid search can use it.
    assert clone(density).metric is scaler
    search = GridSearchCV(density, {"n_components": [1, 2]}, cv=2).fit(rows)
    assert np.all(np.isfinite(search.cv_results_["mean_test_score"]))


def test_a_metric_knows_the_column_names(rows):
    frame = pd.DataFrame(rows, columns=list("abcd"))
    scaler = StandardScaler().fit(frame)
    density = ManifoldParzen(2, 5, 0.1, metric=scaler).fit(frame)
    assert density.feature_names_in_.tolist() == list("abcd")
    marginal, conditional = density.marginal(["d", "a"]), density.conditional({"b": 0.5})
    assert marginal.score_samples(rows[:3, [3, 0]]).shape == (3,)
    assert conditional.sample(5, random_state=0).shape == (5, 3)


def test_duplicates_and_rank_deficiency_are_finite():
    X = np.repeat(np.arange(6.0)[:, None], 4, axis=0) * np.array([[1.0, 2.0, 0.0]])
    density = ManifoldParzen(2, 3, 0.1).fit(X)  # all three neighbours of a row are its twins
    assert np.all(density.local_variances_ == 0)
    assert np.all(np.isfinite(density.local_frames_))
    np.testing.assert_allclose(
        density.score_samples(X), ParzenWindows(np.sqrt(0.1)).fit(X).score_samples(X), rtol=1e-12
    )
    line = ManifoldParzen(3, 8, 0.1).fit(X)  # rank one, three directions asked for
    assert np.all(np.isfinite(line.score_samples(X)))
    np.testing.assert_allclose(line.local_variances_[:, 1:], 0, atol=1e-12)


def test_auto_noise_with_twins():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    with pytest.raises(ValueError, match=r"every one of the 60 rows has an exact twin.*np\.unique"):
        ManifoldParzen(1, 5).fit(np.repeat(X, 2, axis=0))
    with pytest.warns(UserWarning, match="2 of 31 rows have an exact twin"):
        density = ManifoldParzen(1, 5).fit(np.vstack([X, X[:1]]))
    assert np.isfinite(density.noise_)


def test_auto_noise_of_rows_in_a_plane_does_not_converge():
    """A dependent column and as many directions as the rest has: the likelihood grows as the noise vanishes."""
    X = np.random.default_rng(0).normal(size=(50, 3))
    X[:, 1] = 7.0 * X[:, 0]
    with pytest.warns(ConvergenceWarning, match="constant or dependent columns"):
        density = ManifoldParzen(2, 6).fit(X)
    assert np.all(np.isfinite(density.score_samples(X)))


def test_samples_marginals_and_conditionals_come_from_the_mixture(rows):
    density = ManifoldParzen(2, 6, 0.2).fit(rows)
    assert isinstance(density, MixtureDensityMixin)
    assert density.sample(7, random_state=0).shape == (7, 4)
    X = rows[:4]
    given = {0: X[0, 0], 2: X[0, 2]}
    joint = density.score_samples(X[:1])
    parts = density.marginal([0, 2]).score_samples(X[:1, [0, 2]]) + density.conditional(given).score_samples(
        X[:1, [1, 3]]
    )
    np.testing.assert_allclose(parts, joint, rtol=1e-10)


FAR = {
    "all columns": np.full(4, 1e20),
    "one column": np.array([1e20, 0.0, 0.0, 0.0]),
    "mixed": np.array([3e19, -1e20, 2.0, 7e18]),
}


@pytest.mark.parametrize("engine", ["reference", "cpu"])
@pytest.mark.parametrize("far", FAR)
@pytest.mark.parametrize("d", [1, 2, 4])
@pytest.mark.parametrize("soft", [False, True])
def test_a_row_at_1e20_changes_nothing_for_ordinary_rows(rows, engine, far, d, soft):
    """Centring by a mean rounded every other row away: ordinary densities were wrong by 6 nats, silently."""
    soft = {"vicinity": "kernel", "bandwidth": 1.0} if soft else {}
    without = ManifoldParzen(d, 5, 0.05, engine=engine, **soft).fit(rows)
    density = clone(without).fit(np.vstack([rows, FAR[far]]))
    X, tolerance = rows[:10] + 0.2, {"rtol": 0, "atol": 1e-11}
    share = np.log(60 / 61)  # the far component weighs something and explains nothing here
    np.testing.assert_allclose(density.score_samples(X), without.score_samples(X) + share, **tolerance)
    others = np.log(59 / 60)
    np.testing.assert_allclose(density.score_samples()[:60], without.score_samples() + others, **tolerance)
    held_out = density.held_out_score_samples()
    assert np.all(np.isfinite(held_out))
    if not soft:  # soft neighbourhoods are held out by folds, which one more row moves
        np.testing.assert_allclose(held_out[:60], without.held_out_score_samples() + others, **tolerance)
    kept = [0, 2]
    marginal = without.marginal(kept).score_samples(X[:, kept]) + share
    np.testing.assert_allclose(density.marginal(kept).score_samples(X[:, kept]), marginal, **tolerance)
    # Conditionals on a column where the far row is far: its component has no weight there.
    conditional = without.conditional({0: 0.3}).score_samples(X[:, 1:])
    np.testing.assert_allclose(density.conditional({0: 0.3}).score_samples(X[:, 1:]), conditional, **tolerance)
    drawn = density.sample(2000, random_state=0)
    ordinary = drawn[np.abs(drawn).max(axis=1) < 1e6]
    assert 1900 < len(ordinary) < 2000
    assert ks_2samp(density.score_samples(ordinary), density.score_samples(without.sample(2000, 1))).pvalue > 1e-3


def test_the_engine_that_was_used_is_recorded_and_foretold(rows):
    wide = np.random.default_rng(0).normal(size=(700, 40))
    for estimator, X in (
        (ManifoldParzen(1, 5), rows),
        (ManifoldParzen(1, 5), wide),
        (ManifoldParzen(3, 5), wide),
        (ManifoldParzen(3, 5, 0.1), wide),
        (ManifoldParzen(0, n_neighbors=5), wide),
        (ManifoldParzen(1, noise=0.1, vicinity="kernel", bandwidth=5.0), rows),
        (ManifoldParzen(1, 5, engine="cpu"), rows),
    ):
        assert which_engine(X, estimator).startswith(f"{estimator.fit(X).engine_}: ")
    assert ManifoldParzen(1, 5).fit(rows).engine_ == "reference"
    assert ManifoldParzen(1, 5, engine="cpu").fit(rows).engine_ == "cpu"


def test_float32_stays_float32(spiral):
    X = spiral[:200].astype(np.float32)
    density = ManifoldParzen(1, 8).fit(X)
    assert density.local_frames_.dtype == np.float32
    assert density.sample(2, random_state=0).dtype == np.float32
    double = ManifoldParzen(1, 8, density.noise_).fit(X.astype(float))
    np.testing.assert_allclose(density.score_samples(X), double.score_samples(X.astype(float)), atol=5e-3)


def test_pickle_clone_and_refit(rows):
    density = ManifoldParzen(2, 6, 0.2).fit(rows)
    again = pickle.loads(pickle.dumps(density))
    np.testing.assert_array_equal(again.score_samples(rows), density.score_samples(rows))
    np.testing.assert_array_equal(again.held_out_score_samples(), density.held_out_score_samples())
    density.set_params(n_components=0).fit(rows)
    with pytest.raises(AttributeError, match="only if kernels have directions"):
        _ = density.neighbors_


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        (
            {"n_components": 1, "n_neighbors": 30},
            ValueError,
            "n_neighbors=30 needs at least 31 training rows, got 25. Lower",
        ),
        ({"n_components": 1, "n_neighbors": 24}, ValueError, "needs at least 26 training rows, got 25"),
        ({"n_neighbors": 0}, ValueError, "n_neighbors must be at least 1"),
        ({"n_neighbors": 2.5}, TypeError, "n_neighbors must be an integer"),
        ({"n_components": 3, "n_neighbors": 2}, ValueError, "n_components=3 needs at least 3 neighbours"),
        ({"n_components": 5}, ValueError, "n_components=5 needs at least 5 features that vary, got 4"),
        ({"n_components": -1}, ValueError, "n_components must be at least 0"),
        ({"noise": 0.0}, ValueError, "noise must be a finite number greater than 0"),
        ({"noise": -1}, ValueError, "noise must be"),
        ({"noise": np.nan}, ValueError, "noise must be"),
        ({"noise": "small"}, ValueError, "noise must be a variance greater than 0 or 'auto', got 'small'"),
        ({"vicinity": "soft"}, ValueError, "vicinity must be 'nearest' or 'kernel'"),
        ({"vicinity": "kernel"}, ValueError, "needs a bandwidth, got None"),
        ({"vicinity": "kernel", "bandwidth": -1.0}, ValueError, "bandwidth"),
        ({"metric": "euclidean"}, TypeError, "metric must be a fitted metric"),
        ({"metric": StandardScaler()}, NotFittedError, "metric must be fitted"),
        ({"engine": "gpu"}, ValueError, "engine must be"),
    ],
)
def test_bad_parameters(rows, options, error, match):
    with pytest.raises(error, match=match):
        ManifoldParzen(**options).fit(rows[:25])


def test_bad_rows(rows):
    density = ManifoldParzen(1, 5, 0.1).fit(rows)
    with pytest.raises(ValueError, match="expecting 4 features"):
        density.score_samples(rows[:, :3])
    with pytest.raises(NotFittedError):
        ManifoldParzen(n_components=1, n_neighbors=5).score_samples(rows)
    with pytest.raises(ValueError, match="negative"):
        ManifoldParzen(n_components=1, n_neighbors=5).fit(rows, sample_weight=-np.ones(60))
    with pytest.raises(ValueError, match="needs at least 7 training rows when a row is left out, got 6"):
        ManifoldParzen(1, 5, 0.1).fit(rows[:6]).held_out_score_samples()
    # Rows of weight 0 are no neighbours and do not count.
    with pytest.raises(ValueError, match="at least 11 training rows, got 10"):
        ManifoldParzen(1, 10, 1.0).fit(rows, sample_weight=np.arange(60) < 10)


def test_held_out_scores_beside_a_row_of_nearly_all_the_weight():
    X = np.random.default_rng(0).normal(size=(40, 2))
    for heavy in (1e12, 1e20):
        weight = np.r_[heavy, np.ones(39)]
        got = ManifoldParzen(1, 5, 0.1).fit(X, sample_weight=weight).held_out_score_samples()
        assert got[0] == pytest.approx(ManifoldParzen(1, 5, 0.1).fit(X[1:]).score_samples(X[:1])[0], rel=1e-12)
        assert np.all(np.isfinite(got))


def test_held_out_scores_that_overflow_are_refused():
    X = np.random.default_rng(0).normal(size=(40, 2))
    X[0] = 1e100
    with pytest.raises(ValueError, match="1 rows lie so far from every component"):
        ManifoldParzen(1, 5, 1e-200).fit(X).held_out_score_samples()


def test_rows_or_noise_too_small_for_their_precision_are_refused():
    X = np.random.default_rng(0).normal(size=(40, 2))
    for rows in (1e-155 * X, (1e-25 * X).astype(np.float32)):
        with pytest.raises(ValueError, match="the spread of X is"):
            ManifoldParzen(1, 5).fit(rows)
    for rows, noise in ((X, 1e-310), (X.astype(np.float32), 1e-40)):
        with pytest.raises(ValueError, match=r"noise must be at least .* whose inverse overflows"):
            ManifoldParzen(1, 5, noise).fit(rows)
    # Close to the limits all is well.
    small = ManifoldParzen(1, 5).fit(1e-149 * X)
    shift = 2 * np.log(1e-149)
    np.testing.assert_allclose(small.score_samples() + shift, ManifoldParzen(1, 5).fit(X).score_samples(), atol=1e-8)
    single = X.astype(np.float32)
    assert np.all(np.isfinite(ManifoldParzen(1, 5, 1.2e-38).fit(single).score_samples(single)))
    assert np.isfinite(ManifoldParzen(1, 5).fit((1e-17 * X).astype(np.float32)).noise_)


def test_soft_neighborhoods_of_very_few_rows():
    X = np.random.default_rng(0).normal(size=(30, 2))
    soft = {"vicinity": "kernel", "bandwidth": 1.0}
    with pytest.raises(ValueError, match="at least 2 training rows of positive weight, got 1"):
        ManifoldParzen(1, noise=0.1, **soft).fit(X, sample_weight=np.arange(30) == 4)
    with pytest.raises(ValueError, match="at least 3 training rows of positive weight, got 2"):
        ManifoldParzen(1, **soft).fit(X[:2])
    two = ManifoldParzen(1, noise=0.1, **soft).fit(X[:2])
    assert np.all(np.isfinite(two.score_samples()))
    with pytest.raises(ValueError, match="at least 3 training rows of positive weight, got 2"):
        two.held_out_score_samples()


def test_soft_held_out_scores_ignore_rows_of_weight_zero():
    X = np.random.default_rng(0).normal(size=(30, 2))
    alive = np.isin(np.arange(30), [3, 8, 11, 20, 28])
    density = ManifoldParzen(1, noise=0.1, vicinity="kernel", bandwidth=1.0)
    few = clone(density).fit(X[alive])
    got = density.fit(X, sample_weight=alive).held_out_score_samples()
    np.testing.assert_allclose(got[alive], few.held_out_score_samples(), rtol=1e-12)
    np.testing.assert_allclose(got[~alive], few.score_samples(X[~alive]), rtol=1e-12)


def test_one_row_is_enough_for_plain_parzen_windows():
    X = np.array([[1.0, 2.0]])
    plain = ManifoldParzen(0, noise=0.25, n_neighbors=5).fit(X)
    np.testing.assert_array_equal(plain.score_samples(X + 1), ParzenWindows(0.5).fit(X).score_samples(X + 1))
    for noise, d in (("auto", 0), (0.25, 1)):
        with pytest.raises(ValueError, match="1 sample"):
            ManifoldParzen(d, 1, noise).fit(X)
