"""Test that the generators follow their papers, and that the loaders find, convert or fetch data or explain how to."""

import itertools

import numpy as np
import pytest
import scipy.sparse
from papers.manifold_parzen._spiral import curve, spiral_log_density
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from vicinal import datasets

GENERATORS = [
    datasets.make_two_gaussians,
    datasets.make_two_circles,
    datasets.make_five_gaussians,
    datasets.make_spiral,
    datasets.make_text,
    datasets.make_slanted_bars,
    datasets.make_machine_states,
]


# --- generators -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", GENERATORS)
def test_generators_repeat_with_a_seed_and_give_the_size_asked_for(make):
    X, y = make(n_samples=83, random_state=7)
    again, _ = make(n_samples=83, random_state=np.random.RandomState(7))
    other, _ = make(n_samples=83, random_state=8)
    assert len(X) == len(y) == 83
    assert np.isfinite(X).all()
    np.testing.assert_array_equal(X, again)
    assert not np.array_equal(X, other)


def test_two_gaussians():
    X, y = datasets.make_two_gaussians(40_000, random_state=0)
    np.testing.assert_array_equal(np.bincount(y), [20_000, 20_000])
    for label, center in enumerate([(-3, 0), (3, 0)]):
        np.testing.assert_allclose(X[y == label].mean(axis=0), center, atol=0.03)
        np.testing.assert_allclose(np.cov(X[y == label].T), np.eye(2), atol=0.05)
    assert 0 < y[:100].sum() < 100  # shuffled


def test_two_circles():
    X, y = datasets.make_two_circles(5001, noise_std=0, random_state=0)
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), y + 1, rtol=1e-12)
    assert sorted(np.bincount(y)) == [2500, 2501]
    noisy, y = datasets.make_two_circles(20_000, random_state=0)
    assert np.linalg.norm(noisy[y == 1], axis=1).std() == pytest.approx(0.1, rel=0.03)


@pytest.mark.parametrize("n", [5, 8, 83, 800])
def test_five_gaussians(n):
    _, y = datasets.make_five_gaussians(n, random_state=0)
    counts = np.bincount(y, minlength=5)
    assert counts.sum() == n
    assert np.ptp(counts[1:]) <= 1
    if n % 8 == 0:  # "four times as many datapoints"
        np.testing.assert_array_equal(counts[0], 4 * counts[1:])


def test_five_gaussians_have_nearly_gaussian_marginals():
    X, _ = datasets.make_five_gaussians(400_000, random_state=0)
    fourth = (X**4).mean(axis=0) - 3 * (X**2).mean(axis=0) ** 2
    np.testing.assert_allclose(fourth, 5**4 / 16, rtol=0.05)


@pytest.mark.parametrize("units", [(1, 1), (1e-9, 1e9), (1e140, 1e-140)])
def test_noise_dimensions(units):
    X, _ = datasets.make_two_gaussians(3000, random_state=0)
    X = (X @ [[1, 0.5], [0, 1]] + 5) * units
    noisy = datasets.add_noise_dimensions(X, 4, random_state=0)
    assert noisy.shape == (3000, 6)
    np.testing.assert_allclose(noisy[:, :2].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(np.cov(noisy[:, :2].T, bias=True), np.eye(2), atol=1e-10)
    np.testing.assert_allclose(np.cov(noisy.T), np.eye(6), atol=0.1)
    # Whitening keeps the information: the old columns are a linear function of the new ones.
    design = np.column_stack([noisy[:, :2], np.ones(3000)])
    scaled = X / units
    fitted = design @ np.linalg.lstsq(design, scaled, rcond=None)[0]
    np.testing.assert_allclose(fitted, scaled, atol=1e-10)
    assert datasets.add_noise_dimensions(X, 0).shape == (3000, 2)


def test_anisotropic_mixture_knows_its_density():
    for d, m in [(1, 1), (3, 4)]:
        mixture = datasets.make_anisotropic_mixture(50, d, n_components=m, condition=1e3, random_state=0)
        density = sum(
            weight * multivariate_normal(mean, mixture.covariance).pdf(mixture.data)
            for weight, mean in zip(mixture.weights, mixture.means, strict=True)
        )
        np.testing.assert_allclose(mixture.log_density, np.log(density), rtol=1e-9)
        assert np.linalg.cond(mixture.covariance) == pytest.approx(1e3 if d > 1 else 1)
    big = datasets.make_anisotropic_mixture(50_000, 3, random_state=1)
    residual = big.data - big.means[big.target]
    np.testing.assert_allclose(np.cov(residual.T), big.covariance, atol=0.02)


def test_text_is_legible_from_its_points():
    """Every pixel of ink contains points and no other pixel does, so the picture can be reconstructed."""
    X, y = datasets.make_text("bot", 5000, random_state=0)
    canvas = np.full((7, 16), ".")
    canvas[6 - X[:, 1].astype(int), X[:, 0].astype(int)] = "#"
    assert ["".join(row) for row in canvas] == [
        "#............#..",
        "#............#..",
        "####...###..###.",
        "#...#.#...#..#..",
        "#...#.#...#..#..",
        "#...#.#...#..#..",
        "####...###...##.",
    ]
    np.testing.assert_array_equal(y, np.searchsorted([6, 12], X[:, 0], side="right"))


def test_text_keeps_its_height_when_it_grows():
    short, _ = datasets.make_text("to be", 4000, random_state=0)
    long, letters = datasets.make_text("To be or not to be", 4000, random_state=0)
    assert long[:, 0].max() > 2.5 * short[:, 0].max()
    assert long[:, 1].max() <= 7
    assert set(letters) == {i for i, letter in enumerate("To be or not to be") if letter != " "}


# --- the spiral -------------------------------------------------------------------------------------------


def test_spiral_follows_its_formula():
    X, t = datasets.make_spiral(1000, noise_std=0, random_state=0)
    np.testing.assert_allclose(X[:, 0], 0.04 * t * np.sin(t), atol=1e-15)
    np.testing.assert_allclose(X[:, 1], 0.04 * t * np.cos(t), atol=1e-15)
    assert t.min() >= 3
    assert t.max() <= 15
    noisy, t = datasets.make_spiral(20_000, random_state=0)
    np.testing.assert_allclose((noisy - curve(t)).std(axis=0), 0.01, rtol=0.02)


def literal_spiral_log_density(points, noise):
    """The integral over t on one fine grid: Gauss-Legendre with 10 nodes on each of 60,000 pieces."""
    nodes, weights = np.polynomial.legendre.leggauss(10)
    half = 12 / 60_000 / 2
    t = (np.linspace(3 + half, 15 - half, 60_000)[:, None] + half * nodes).ravel()
    log_weight = np.log(np.tile(half * weights, 60_000) / 12)
    log_density = []
    for x, y in points:
        square = (x - 0.04 * t * np.sin(t)) ** 2 + (y - 0.04 * t * np.cos(t)) ** 2
        log_density.append(logsumexp(log_weight - square / (2 * noise**2)) - np.log(2 * np.pi * noise**2))
    return log_density


@pytest.mark.parametrize("noise", [0.01, 0.2])
def test_spiral_density_literal(noise):
    inside, _ = datasets.make_spiral(2, noise_std=noise, random_state=1)
    end = 0.04 * 15 * np.array([np.sin(15), np.cos(15)])
    points = np.vstack([inside, end + 0.5 * noise, [0.0, 0.0], [1.0, -1.5]])
    expected = literal_spiral_log_density(points, noise)
    np.testing.assert_allclose(spiral_log_density(points, noise), expected, rtol=1e-12, atol=1e-12)


def test_spiral_density_integrates_to_one():
    grid = np.linspace(-1.1, 1.1, 71)
    points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    total = np.exp(spiral_log_density(points, 0.05)).sum() * (grid[1] - grid[0]) ** 2
    assert total == pytest.approx(1, abs=1e-9)


def test_spiral_density_far_away():
    """The nearest point of the curve decides: log p ~ -distance^2 / (2 noise^2), finite, never NaN."""
    far = np.array([[50.0, 0.0], [0.0, 1e6], [1e9, 0.0], [1e13, -1e14], [1e16, 1e15], [1e100, 1e100]])
    t = np.linspace(3, 15, 200_001)
    distance = np.array([np.linalg.norm(point - curve(t), axis=1).min() for point in far])
    np.testing.assert_allclose(spiral_log_density(far), -(distance**2) / 2e-4, rtol=1e-5)
    for noise in (1e-3, 1e-12, 1e-100):
        on_curve = spiral_log_density(curve(np.array([5.0])), noise)
        # A straight line there, locally: density 1 / (12 speed) per length, times N(0; 0, noise^2) across.
        straight = -np.log(12 * 0.04 * np.sqrt(26)) - np.log(np.sqrt(2 * np.pi) * noise)
        if noise > 1e-14:
            np.testing.assert_allclose(on_curve, straight, rtol=1e-4)
        assert np.isfinite(on_curve).all()


@pytest.mark.slow
def test_spiral_entropy():
    """The mean negative log-likelihood of the truth, by quadrature over t and the noise: -1.792 nats."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(6)
    weights = weights / weights.sum()
    t = 3 + 12 * (np.arange(200) + 0.5) / 200
    mean = sum(
        wa * wb * spiral_log_density(curve(t) + 0.01 * np.array([a, b])).mean()
        for (a, wa), (b, wb) in itertools.product(zip(nodes, weights, strict=True), repeat=2)
    )
    assert -mean == pytest.approx(-1.792, abs=2e-3)


# --- the public names ---------------------------------------------------------------------------------


def test_everything_public_is_there():
    assert all(callable(getattr(datasets, name)) for name in datasets.__all__)


# --- bad input --------------------------------------------------------------------------------------------

PLANE = np.arange(12.0).reshape(6, 2) ** 2


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: datasets.make_two_gaussians(1), ValueError, "n_samples must be at least 2, got 1"),
        (lambda: datasets.make_two_gaussians(10.0), TypeError, "n_samples must be an integer.*float"),
        (lambda: datasets.make_two_gaussians(True), TypeError, "n_samples must be an integer.*bool"),
        (lambda: datasets.make_two_gaussians(10, random_state="x"), ValueError, "random_state must be None"),
        (lambda: datasets.make_two_circles(10, noise_std=-1), ValueError, "noise_std must be.*-1"),
        (lambda: datasets.make_two_circles(10, noise_std=np.nan), ValueError, "noise_std must be a finite"),
        (lambda: datasets.make_five_gaussians(4), ValueError, "n_samples must be at least 5"),
        (lambda: datasets.make_five_gaussians(8, radius=0), ValueError, "radius must be"),
        (lambda: datasets.add_noise_dimensions(PLANE, -1), ValueError, "n_dimensions must be at least 0"),
        (
            lambda: datasets.add_noise_dimensions(PLANE[:, [0, 0]], 1),
            ValueError,
            "got rank 1 with 2 columns.*PCA",
        ),
        (lambda: datasets.add_noise_dimensions(np.ones((5, 2)), 1), ValueError, "got rank 0 with 2 columns"),
        (lambda: datasets.add_noise_dimensions(PLANE[:2], 1), ValueError, "got rank 1 .*2 rows"),
        (lambda: datasets.add_noise_dimensions(PLANE[:1], 1), ValueError, "minimum of 2"),
        (lambda: datasets.add_noise_dimensions(PLANE * np.nan, 1), ValueError, "NaN"),
        (lambda: datasets.add_noise_dimensions(PLANE * 1e200, 1), ValueError, "Rescale"),
        (lambda: datasets.add_noise_dimensions(scipy.sparse.csr_array(PLANE), 1), TypeError, "parse"),
        (lambda: datasets.make_anisotropic_mixture(0), ValueError, "n_samples must be at least 1"),
        (lambda: datasets.make_anisotropic_mixture(9, 0), ValueError, "n_features must be at least 1"),
        (lambda: datasets.make_anisotropic_mixture(9, n_components=0), ValueError, "n_components must be"),
        (
            lambda: datasets.make_anisotropic_mixture(9, condition=0.5),
            ValueError,
            "condition must be between 1",
        ),
        (lambda: datasets.make_anisotropic_mixture(9, separation=-1), ValueError, "separation must be"),
        (lambda: datasets.make_text("hello"), ValueError, "letters T b e n o r t and spaces.*'hello'"),
        (lambda: datasets.make_text("  "), ValueError, "at least one letter"),
        (lambda: datasets.make_text(3), TypeError, "text must be a string, got int"),
        (lambda: datasets.make_text("to", 0), ValueError, "n_samples must be at least 1"),
        (lambda: datasets.make_spiral(0), ValueError, "n_samples must be at least 1"),
        (lambda: datasets.make_spiral(5, noise_std=-1), ValueError, "noise_std must be"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()
