"""Log-sums, samples, marginals and conditionals of mixtures with a frame for each component."""

import pickle

import mpmath
import numpy as np
import pandas as pd
import pytest
from needs import needs
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import ks_2samp, multivariate_normal

from vicinal import LCA, Engine, LocalLCA, ManifoldParzen, ParzenWindows
from vicinal._engine import Frames, prepare
from vicinal._mixtures import LOG_2PI, FrameMixture

KINDS = ["reference", "cpu"]


def random_mixture(n, D, d, seed=0, noise=0.2, weighted=True, **options):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n, D))
    bases = [np.linalg.qr(rng.normal(size=(D, D)))[0][:d] for _ in range(n)]
    frames = np.stack(bases, axis=1)
    variances = np.sort(rng.uniform(0, 2, size=(d, n)), axis=0)[::-1]
    log_weights = rng.normal(size=n) if weighted else None
    return FrameMixture(centres, frames, variances, noise, log_weights, **options)


def covariance(mixture, j, depth=None, noise=None):
    """C_j = sigma^2 I + V diag(v) V', in full."""
    V, v = mixture.frames[:depth, j], mixture.variances[:depth, j]
    return (mixture.noise if noise is None else noise) * np.eye(mixture.n_features) + (V.T * v) @ V


def log_sums_table(mixture, queries, noises, depths, skips, kind):
    """Log-densities of the queries for every depth and noise, without some components each."""
    problem = prepare(kind, mixture.centres, log_weights=mixture.log_weights)
    placed = problem.at(Frames(mixture.frames, mixture.variances, noises, depths))
    return placed.log_sums_table(queries, skips=skips) - 0.5 * mixture.n_features * LOG_2PI


def literal_terms(mixture, X):
    """log w_j + log N(x; c_j, C_j) with full covariances, a row for each component."""
    return np.array(
        [
            log_weight + np.atleast_1d(multivariate_normal.logpdf(X, centre, covariance(mixture, j)))
            for j, (log_weight, centre) in enumerate(zip(mixture.log_weights, mixture.centres, strict=True))
        ]
    )


def literal_log_density(mixture, X, leave_out=()):
    """log sum_j w_j N(x; c_j, C_j)."""
    return logsumexp(np.delete(literal_terms(mixture, X), list(leave_out), axis=0), axis=0)


@pytest.mark.parametrize("kind", [*KINDS, "torch"])
@pytest.mark.parametrize(("D", "d"), [(1, 1), (2, 1), (3, 3), (5, 2), (17, 4), (40, 7)])
def test_every_depth_and_noise_equals_full_covariances(kind, D, d):
    if kind == "torch":
        needs("torch")
    mixture = random_mixture(30, D, d)
    queries = np.random.default_rng(1).normal(size=(13, D))
    depths, noises = sorted({0, d // 2, d}), [0.1, 0.7]
    got = log_sums_table(mixture, queries, noises, depths, ([0, 3, 3], [5, 0, 29]), kind)
    assert got.shape == (len(depths), len(noises), len(queries))
    skipped = {0: [5], 3: [0, 29]}
    for m, depth in enumerate(depths):
        for s, noise in enumerate(noises):
            part = FrameMixture(
                mixture.centres, mixture.frames[:depth], mixture.variances[:depth], noise, mixture.log_weights
            )
            terms = literal_terms(part, queries)
            for i, components in skipped.items():
                terms[components, i] = -np.inf
            np.testing.assert_allclose(got[m, s], logsumexp(terms, axis=0), rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_tiny_noise_far_from_the_origin_keeps_its_digits(kind):
    """Long thin pancakes: rho / sigma^2 by subtraction would lose everything; the truth is in 60 digits."""
    rng = np.random.default_rng(0)
    D, n, noise = 3, 6, 1e-9
    frames = np.stack([np.linalg.qr(rng.normal(size=(D, D)))[0][:2] for _ in range(n)], axis=1)
    variances = np.tile([[4.0], [1.0]], (1, n))
    centres = rng.normal(size=(n, D)) + 1e3
    # Queries off the plane of component 0 by a few times the noise's deviation, far along it.
    queries = centres[0] + rng.normal(size=(4, 2)) @ frames[:, 0] + 3e-5 * rng.normal(size=(4, D))
    got = FrameMixture(centres, frames, variances, noise, engine=kind).score_samples(queries)
    with mpmath.workdps(60):
        for x, answer in zip(queries, got, strict=True):
            total = mpmath.mpf(0)
            for j in range(n):
                left = [mpmath.mpf(float(a)) - float(b) for a, b in zip(x, centres[j], strict=True)]
                exponent = D * mpmath.log(2 * mpmath.pi) + (D - 2) * mpmath.log(noise)
                for l in range(2):
                    direction = [mpmath.mpf(float(v)) for v in frames[l, j]]
                    along = mpmath.fdot(left, direction)
                    left = [a - along * b for a, b in zip(left, direction, strict=True)]
                    exponent += along**2 / (noise + variances[l, j]) + mpmath.log(noise + variances[l, j])
                exponent += mpmath.fdot(left, left) / noise
                total += mpmath.exp(-exponent / 2) / n
            # Coordinates of size 1e3 hold 1e-13; that over the noise's deviation, times the distance in it.
            assert answer == pytest.approx(float(mpmath.log(total)), abs=2e-7)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("noise", [1e-4, 1e-8])
def test_screening_by_products_changes_nothing(kind, noise, forced):
    """Small noise in many dimensions: products only find the pairs that matter, which are then done exactly."""
    mixture = random_mixture(120, 25, 4, noise=noise, engine=kind)
    rng = np.random.default_rng(8)
    X = mixture.centres[:30] + 2.0 * np.sqrt(noise) * rng.normal(size=(30, 25))
    forced(ARRAY_BLOCK_PAIRS=32 * 120)
    got, left_out = mixture.score_samples(X), mixture.left_out_score_samples()
    forced(LARGEST_SCREENED_ERROR=-1.0)
    np.testing.assert_allclose(got, mixture.score_samples(X), rtol=1e-11)
    np.testing.assert_allclose(left_out, mixture.left_out_score_samples(), rtol=1e-11)
    # By products alone the answer would be off.
    forced(PRODUCT_TOLERANCE=np.inf, FRAME_FEATURES_IN_CACHE=0)
    assert np.abs(mixture.score_samples(X) - got).max() > 1e-15 / noise


@pytest.mark.parametrize("kind", KINDS)
def test_answers_do_not_depend_on_tiles_threads_or_memory(kind, forced):
    X = np.random.default_rng(2).normal(size=(70, 20))

    def scores(engine):
        return random_mixture(150, 20, 4, engine=engine).score_samples(X)  # a mixture keeps what it was placed as

    expected = scores(kind)
    for engine in (Engine(kind, threads=3), Engine(kind, memory="1 MB", threads=2)):
        np.testing.assert_allclose(scores(engine), expected, rtol=1e-13)
    forced(FRAME_TILE=7, ARRAY_BLOCK_PAIRS=4 * 7 * 70)
    np.testing.assert_allclose(scores(kind), expected, rtol=1e-13)
    forced(FRAME_FEATURES_IN_CACHE=0)
    np.testing.assert_allclose(scores(kind), expected, rtol=1e-12)
    forced(FRAME_FEATURES_FEW=100)
    np.testing.assert_allclose(scores(kind), expected, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_mixture_is_placed_once_for_each_engine(kind, monkeypatch):
    """Scoring rows one by one must not pack all frames each time; other settings must not reuse the old placement."""
    mixture = random_mixture(150, 20, 4, engine=kind)
    X = np.random.default_rng(2).normal(size=(3, 20))
    expected = mixture.score_samples(X)
    with monkeypatch.context() as patch:
        patch.setattr("vicinal._mixtures.base.prepare", None)
        assert [mixture.score_samples(x[None])[0] for x in X] == pytest.approx(expected, rel=1e-13)
        mixture.left_out_score_samples()
    mixture.engine = Engine(kind, precision="float32")
    assert np.all(mixture.score_samples(X) != expected)
    np.testing.assert_allclose(mixture.score_samples(X), expected, atol=2e-4)
    # What is kept is neither stored nor copied, and a copy makes its own.
    assert set(vars(mixture)) == {
        "centres", "frames", "variances", "covariance", "_lower", "engine", "feature_names", "log_weights"
    }  # fmt: skip
    again = pickle.loads(pickle.dumps(mixture))
    np.testing.assert_array_equal(again.score_samples(X), mixture.score_samples(X))


@pytest.mark.parametrize("kind", KINDS)
def test_a_far_query_has_a_finite_density_and_does_not_disturb_the_others(kind):
    mixture = random_mixture(40, 20, 3, engine=kind)
    near = np.random.default_rng(3).normal(size=(5, 20))
    alone = mixture.score_samples(near)
    together = mixture.score_samples(np.vstack([near, np.full((1, 20), 1e8)]))
    np.testing.assert_allclose(together[:5], alone, rtol=1e-12)
    # Far away only the widest component in that direction counts.
    quadratic = [
        (np.full(20, 1e8) - c) @ np.linalg.solve(covariance(mixture, j), np.full(20, 1e8) - c)
        for j, c in enumerate(mixture.centres)
    ]
    assert together[5] == pytest.approx(-0.5 * min(quadratic), rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_float32_is_close_to_float64(kind):
    mixture = random_mixture(200, 30, 5)
    X = np.random.default_rng(4).normal(size=(20, 30))
    expected = mixture.score_samples(X)
    single = FrameMixture(
        mixture.centres.astype(np.float32), mixture.frames.astype(np.float32), mixture.variances, 0.2,
        mixture.log_weights, kind,
    )  # fmt: skip
    np.testing.assert_allclose(single.score_samples(X.astype(np.float32)), expected, atol=2e-4)
    np.testing.assert_allclose(
        FrameMixture(
            mixture.centres, mixture.frames, mixture.variances, 0.2, mixture.log_weights,
            Engine(kind, precision="float32"),
        ).score_samples(X), expected, atol=2e-4,
    )  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("D", "d"), [(1, 1), (3, 2), (6, 4), (9, 5), (23, 3), (120, 3)])
def test_one_depth_and_noise_equals_several_in_one_pass(kind, D, d):
    mixture = random_mixture(70, D, d, seed=D)
    queries = np.random.default_rng(1).normal(size=(30, D))
    skips = [0, 3, 3, 29], [5, 0, 69, 69]
    together = log_sums_table(mixture, queries, [0.2, 0.9], [d - 1, d], skips, kind)
    for s, noise in enumerate((0.2, 0.9)):
        alone = log_sums_table(mixture, queries, noise, None, skips, kind)
        np.testing.assert_allclose(alone[0, 0], together[1, s], rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_leaving_out_a_component_is_the_mixture_of_the_others(kind):
    mixture = random_mixture(12, 3, 2, engine=kind)
    weights = np.exp(mixture.log_weights)
    for i in range(12):
        expected = literal_log_density(mixture, mixture.centres[i], [i])[0] - np.log(1 - weights[i])
        assert mixture.left_out_score_samples()[i] == pytest.approx(expected, rel=1e-11)
    with pytest.raises(ValueError, match="at least two rows"):
        random_mixture(1, 3, 2).left_out_score_samples()


def test_integrates_to_one():
    one = random_mixture(5, 1, 1)
    area = quad(lambda x: np.exp(one.score_samples([[x]])[0]), -15, 15, limit=200)[0]
    assert area == pytest.approx(1, abs=1e-8)
    two = random_mixture(3, 2, 1)
    grid = np.linspace(-12, 12, 481)
    X = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    assert np.exp(two.score_samples(X)).sum() * (grid[1] - grid[0]) ** 2 == pytest.approx(1, abs=1e-8)


def test_integrates_to_one_in_ten_dimensions_by_importance_sampling():
    mixture = random_mixture(8, 10, 3, noise=0.5)
    # A cover with heavier tails: every component's covariance, built in full, stretched by 1.5.
    weights = np.exp(mixture.log_weights)
    covers = [multivariate_normal(c, 1.5 * covariance(mixture, j)) for j, c in enumerate(mixture.centres)]
    rng = np.random.default_rng(0)
    chosen = rng.choice(8, size=40_000, p=weights)
    counts = np.bincount(chosen, minlength=8)
    draws = [cover.rvs(count, random_state=rng) for cover, count in zip(covers, counts, strict=True)]
    X = np.concatenate([draw.reshape(-1, 10) for draw in draws])
    log_cover = logsumexp([np.log(weights[j]) + covers[j].logpdf(X) for j in range(8)], axis=0)
    ratios = np.exp(mixture.score_samples(X) - log_cover)
    error = ratios.std() / np.sqrt(len(X))
    assert error < 0.01
    assert ratios.mean() == pytest.approx(1, abs=4 * error)


def test_samples_match_the_density():
    mixture = random_mixture(6, 4, 2)
    X = mixture.sample(20_000, random_state=0)
    weights = np.exp(mixture.log_weights)
    mean = weights @ mixture.centres
    scatter = sum(
        w * (covariance(mixture, j) + np.outer(c - mean, c - mean))
        for j, (w, c) in enumerate(zip(weights, mixture.centres, strict=True))
    )
    np.testing.assert_allclose(X.mean(axis=0), mean, atol=4 * np.sqrt(np.diag(scatter) / len(X)).max())
    np.testing.assert_allclose(np.cov(X.T), scatter, atol=0.08)
    # A two-sample test of log-densities against a sampler that builds the covariances in full.
    rng = np.random.default_rng(1)
    literal = np.concatenate(
        [
            rng.multivariate_normal(centre, covariance(mixture, j), size=size)
            for j, (centre, size) in enumerate(zip(mixture.centres, rng.multinomial(20_000, weights), strict=True))
        ]
    )
    assert ks_2samp(mixture.score_samples(X), mixture.score_samples(literal)).pvalue > 0.01
    for axis in range(4):
        assert ks_2samp(X[:, axis], literal[:, axis]).pvalue > 0.001
    assert np.array_equal(X, mixture.sample(20_000, random_state=0))


@pytest.mark.parametrize("features", [[0], [2, 0], [1, 2, 3], [3, 2, 1, 0]])
def test_marginals_drop_rows_and_columns_of_every_covariance(features):
    mixture = random_mixture(9, 4, 3)
    marginal = mixture.marginal(features)
    X = np.random.default_rng(5).normal(size=(7, len(features)))
    expected = logsumexp(
        [
            mixture.log_weights[j]
            + multivariate_normal.logpdf(
                X, mixture.centres[j, features], covariance(mixture, j)[np.ix_(features, features)]
            ).reshape(-1)
            for j in range(9)
        ],
        axis=0,
    )
    np.testing.assert_allclose(marginal.score_samples(X), expected, rtol=1e-10)
    # The frames are orthonormal again.
    frames = marginal.frames.transpose(1, 0, 2)
    for frame in frames:
        np.testing.assert_allclose(frame @ frame.T, np.eye(len(frame)), atol=1e-12)


def test_marginal_against_numerical_integration():
    mixture = random_mixture(5, 2, 1)
    marginal = mixture.marginal([1])
    for y in (-1.0, 0.3):
        integral = quad(lambda x, y=y: np.exp(mixture.score_samples([[x, y]])[0]), -20, 20, limit=300)[0]
        assert np.exp(marginal.score_samples([[y]])[0]) == pytest.approx(integral, rel=1e-7)


def test_conditional_is_joint_over_marginal_by_integration():
    mixture = random_mixture(5, 3, 2)
    conditional = mixture.conditional({1: 0.4})

    def joint(XZ):
        return np.exp(mixture.score_samples(np.insert(XZ, 1, 0.4, axis=1)))

    # A Gaussian sampled finer than its width integrates to machine precision.
    grid = np.linspace(-10, 10, 301)
    cells = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    evidence = joint(cells).sum() * (grid[1] - grid[0]) ** 2
    X = np.random.default_rng(6).normal(size=(4, 2))
    np.testing.assert_allclose(conditional.score_samples(X), np.log(joint(X) / evidence), rtol=1e-9)


@pytest.mark.parametrize(
    ("D", "d", "given"), [(6, 4, {0: 0.2, 5: -1.0}), (4, 2, {1: 3.0, 2: 0.0, 3: 1.0}), (5, 1, {4: 9.0})]
)
def test_conditional_times_marginal_is_the_joint(D, d, given):
    mixture = random_mixture(10, D, d, noise=0.01)
    fixed, rest = sorted(given), [k for k in range(D) if k not in given]
    X = np.random.default_rng(7).normal(size=(6, D))
    X[:, list(given)] = list(given.values())
    joint = mixture.score_samples(X)
    evidence = mixture.marginal(fixed).score_samples(X[:, fixed])
    conditional = mixture.conditional(given)
    np.testing.assert_allclose(conditional.score_samples(X[:, rest]) + evidence, joint, rtol=1e-9)
    assert conditional.sample(3, random_state=0).shape == (3, len(rest))
    # and a conditional has marginals and conditionals itself
    if len(rest) > 1:
        again = conditional.conditional({0: X[0, rest[0]]})
        both = {**given, rest[0]: X[0, rest[0]]}
        expected = mixture.conditional(both).score_samples(X[:, rest[1:]])
        np.testing.assert_allclose(again.score_samples(X[:, rest[1:]]), expected, rtol=1e-8)


def test_bad_requests():
    mixture = random_mixture(5, 3, 1, feature_names=np.array(["a", "b", "c"], dtype=object))
    assert mixture.marginal(["c", "a"]).feature_names.tolist() == ["c", "a"]
    assert mixture.conditional({"b": 1.0}).feature_names.tolist() == ["a", "c"]
    for call, match in [
        (lambda: mixture.marginal([]), "at least one column"),
        (lambda: mixture.marginal(["z"]), "not a column"),
        (lambda: mixture.marginal([0, 0]), "repeat"),
        (lambda: mixture.conditional({"a": np.nan}), "finite"),
        (lambda: mixture.conditional({"a": 1e200}), "so far from all components|overflow"),
        (lambda: mixture.score_samples(np.zeros((2, 4))), "3 columns, got 4"),
        (lambda: mixture.sample(0), "positive integer"),
    ]:
        with pytest.raises(ValueError, match=match):
            call()


@pytest.mark.parametrize(
    "density",
    [
        ManifoldParzen(1, 5, 0.1),
        ManifoldParzen(0, 5, 0.1),
        LCA(reg=0.0),
        LocalLCA(1, 5, 0, shared=1, center="mean", reg=0.0),
    ],
)
def test_marginals_and_conditionals_refuse_columns_of_other_names(density):
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 3)), columns=["a", "b", "c"])
    density = density.fit(rows)
    for part in (density.marginal(["b", "a"]), density.conditional({"c": 0.1}).marginal(["b", "a"])):
        np.testing.assert_allclose(
            part.score_samples(rows[["b", "a"]]), part.score_samples(rows[["b", "a"]].to_numpy())
        )
        with pytest.raises(ValueError, match="columns b, a in this order, got a, b"):
            part.score_samples(rows[["a", "b"]])


@pytest.mark.parametrize(
    "density",
    [
        ManifoldParzen(1, 5, 0.1),
        ManifoldParzen(0, 5, 0.1),
        LCA(reg=0.0),
        LocalLCA(1, 5, 0, shared=1, center="mean", reg=0.0),
    ],
)
def test_marginals_and_conditionals_score_rows_with_gaps(density):
    rows = np.random.default_rng(0).normal(size=(40, 3))
    density = density.fit(rows)
    gaps = np.array([[0.3, np.nan], [np.nan, np.nan], [0.3, -0.2]])
    for part in (density.marginal([0, 2]), density.conditional({1: 0.5})):
        expected = [part.marginal([0]).score_samples([[0.3]])[0], 0.0, part.score_samples(gaps[2:])[0]]
        np.testing.assert_allclose(part.score_samples(gaps), expected, rtol=1e-12)
        with pytest.raises(ValueError, match="2 columns, got 3"):
            part.score_samples(rows)
        with pytest.raises(ValueError, match="Only a fitted estimator has training rows"):
            part.score_samples(None)


def test_given_values_beyond_the_precision_of_the_density_are_refused():
    rows = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    for density in (ManifoldParzen(1, 5, 0.1), ParzenWindows(0.5)):
        with pytest.raises(ValueError, match=r"given holds values .* float32"):
            density.fit(rows).conditional({0: 1e100})
