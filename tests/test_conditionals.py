"""Each column given the others, against the mixture's own conditionals."""

import copy

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

from vicinal._mixtures import (
    FrameMixture,
    Replacements,
    SharedMixture,
    column_conditionals,
)


@pytest.fixture
def mixture():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(3, 3))
    return SharedMixture(3.0 * rng.normal(size=(25, 3)), root @ root.T + 0.1 * np.eye(3), rng.normal(size=25))


def one_column(mixture, x, k, left_out=None):
    """The density of column k given the others, by `SharedMixture.conditional`."""
    log_weights = mixture.log_weights.copy()
    if left_out is not None:
        log_weights[left_out] = -np.inf
    rest = SharedMixture(mixture.centres, mixture.covariance, log_weights)
    return rest.conditional({j: x[j] for j in range(len(x)) if j != k})


@pytest.mark.parametrize("left_out", [False, True])
def test_surprises_and_quantiles(mixture, left_out):
    X = mixture.centres if left_out else 3.0 * np.random.default_rng(1).normal(size=(10, 3))
    own = np.arange(25) if left_out else None
    shares = (0.05, 0.5, 0.95)
    surprises, quantiles, _ = column_conditionals(mixture, X, own, shares)
    for i in range(len(X)):
        for k in range(3):
            one = one_column(mixture, X[i], k, None if own is None else i)
            assert surprises[i, k] == pytest.approx(-one.score_samples([[X[i, k]]])[0], rel=1e-9, abs=1e-9)
            for share, quantile in zip(shares, quantiles[:, i, k], strict=True):
                below = np.exp(one.log_weights) @ norm.cdf(quantile, one.centres[:, 0], np.sqrt(one.covariance[0, 0]))
                assert below == pytest.approx(share, abs=1e-5)


@pytest.mark.parametrize("distance", [1e3, 1e6, 1e9])
def test_rows_far_away_keep_their_digits(mixture, distance):
    X = np.array([[distance, 0.0, 0.0], [distance, distance, -distance]])
    surprises, quantiles, _ = column_conditionals(mixture, X, shares=(0.5,))
    assert np.isfinite(quantiles).all()
    for i in range(2):
        for k in range(3):
            expected = -one_column(mixture, X[i], k).score_samples([[X[i, k]]])[0]
            assert surprises[i, k] == pytest.approx(expected, rel=1e-6, abs=1e-3)


def test_a_diagonal_kernel_one_column_and_blocks():
    rng = np.random.default_rng(2)
    diagonal = SharedMixture(rng.normal(size=(40, 2)), np.diag([0.5, 2.0]))
    whole = column_conditionals(diagonal, diagonal.centres, np.arange(40), (0.5,))
    parts = [column_conditionals(diagonal, diagonal.centres[[i]], np.array([i]), (0.5,)) for i in range(40)]
    np.testing.assert_allclose(whole.surprises, np.vstack([part.surprises for part in parts]), rtol=1e-10)
    single = SharedMixture(rng.normal(size=(30, 1)), np.array([[0.3]]))
    X = rng.normal(size=(5, 1))
    found = column_conditionals(single, X)  # given nothing: the density itself
    np.testing.assert_allclose(found.surprises[:, 0], -single.score_samples(X), rtol=1e-10)
    assert found.quantiles.shape == (0, 5, 1)


# -- components that have covariances of their own, against Gaussians with full covariances ---------------------------


N, D, DEPTH = 30, 4, 2


def directions(rng, n=N):
    """Two orthonormal directions per component, (2, n, D)."""
    return np.linalg.qr(rng.normal(size=(n, D, D)))[0][:, :, :DEPTH].transpose(2, 0, 1)


def mixtures(dtype=np.float64, noise=0.05):
    """A mixture of each kind."""
    rng = np.random.default_rng(3)
    centres, frames = (rng.normal(size=(N, D)) + 5.0).astype(dtype), directions(rng).astype(dtype)
    variances, log_weights, root = rng.exponential(size=(DEPTH, N)), rng.normal(size=N), rng.normal(size=(D, D))
    log_weights[7] = -np.inf
    covariance = root @ root.T + 0.1 * np.eye(D)
    return {
        "shared": SharedMixture(centres, covariance, log_weights),
        "frames": FrameMixture(centres, frames, variances, noise, log_weights),
        "shared and frames": FrameMixture(centres, frames, variances / noise, noise * covariance, log_weights),
    }


def covariances_of(mixture):
    """The covariance of each component, written out."""
    if isinstance(mixture, SharedMixture):
        return np.repeat(mixture.covariance[None], len(mixture.centres), axis=0)
    if isinstance(mixture, FrameMixture) and np.ndim(mixture.covariance) == 0:
        frames = mixture.frames.astype(np.float64)
        scatter = np.einsum("ln,lni,lnj->nij", mixture.variances, frames, frames)
        return mixture.noise * np.eye(mixture.n_features) + scatter
    return mixture.covariances


def literal(x, k, centres, covariances, log_weights):
    """The surprise of column k given the others, and the cumulative distribution of that column given the others."""
    rest = np.delete(np.arange(len(x)), k)
    parts = [
        (c, C, w) for c, C, w in zip(centres.astype(np.float64), covariances, log_weights, strict=True) if w > -np.inf
    ]
    whole = logsumexp([w + multivariate_normal(c, C).logpdf(x) for c, C, w in parts])
    shares = np.array([w + multivariate_normal(c[rest], C[np.ix_(rest, rest)]).logpdf(x[rest]) for c, C, w in parts])
    gains = [np.linalg.solve(C[np.ix_(rest, rest)], C[rest, k]) for _, C, _ in parts]
    means = [c[k] + gain @ (x - c)[rest] for (c, _, _), gain in zip(parts, gains, strict=True)]
    sds = [np.sqrt(C[k, k] - gain @ C[rest, k]) for (_, C, _), gain in zip(parts, gains, strict=True)]
    weights = np.exp(shares - logsumexp(shares))
    return logsumexp(shares) - whole, lambda value: weights @ norm.cdf(value, means, sds)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", ["shared", "frames", "shared and frames"])
def test_every_kind_of_component_against_full_covariances(kind, dtype):
    mixture = mixtures(dtype)[kind]
    X = np.random.default_rng(4).normal(size=(6, D)) + 5.0
    left_out = np.arange(6)
    found = column_conditionals(mixture, X, left_out, (0.05, 0.95))
    rtol = 1e-8 if dtype is np.float64 else 1e-4
    for i in range(len(X)):
        log_weights = np.where(np.arange(N) == left_out[i], -np.inf, mixture.log_weights)
        for k in range(D):
            surprise, below = literal(X[i], k, mixture.centres, covariances_of(mixture), log_weights)
            assert found.surprises[i, k] == pytest.approx(surprise, rel=rtol, abs=rtol)
            assert [below(value) for value in found.quantiles[:, i, k]] == pytest.approx([0.05, 0.95], abs=1e-4)


@pytest.mark.parametrize("noise", [0.05, 1e-14])
def test_components_may_be_replaced_for_single_rows(noise):
    """Also with a noise so small that squared distances in its units have no digits left as differences of products."""
    rng = np.random.default_rng(5)
    mixture = mixtures(noise=noise)["frames"]
    X, rows, components = rng.normal(size=(4, D)) + 5.0, np.array([0, 0, 2, 3]), np.array([3, 9, 9, 0])
    others = FrameMixture(
        mixture.centres[components], directions(rng, 4), rng.exponential(size=(DEPTH, 4)), mixture.noise
    )
    # Rows on the planes of two components, so that the smallest noise leaves the squares of moderate size.
    near = np.array([3, 12, 9, 0])
    frames = [others.frames[:, 0], mixture.frames[:, 12], others.frames[:, 2], others.frames[:, 3]]
    X = np.array([mixture.centres[j] + [0.3, -0.2] @ frame for j, frame in zip(near, frames, strict=True)])
    found = column_conditionals(mixture, X, np.array([1, 2, 3, 4]), (0.5,), Replacements(rows, components, others))
    some = np.array([2, 0])
    again = column_conditionals(
        mixture, X[some], np.array([3, 1]), (0.5,), Replacements(rows, components, others).of_rows(some)
    )
    np.testing.assert_allclose(again.surprises, found.surprises[some], rtol=1e-10)
    if noise < 1e-10:  # full covariances would be singular; a replaced mixture's own conditionals are the oracle
        expected = [own_conditionals(mixture, X[i], i, rows, components, others) for i in range(4)]
        np.testing.assert_allclose(found.surprises, expected, rtol=1e-5, atol=1e-3)
        return
    for i in range(4):
        covariances = covariances_of(mixture)
        covariances[components[rows == i]] = covariances_of(others)[rows == i]
        log_weights = np.where(np.arange(N) == i + 1, -np.inf, mixture.log_weights)
        for k in range(D):
            surprise, below = literal(X[i], k, mixture.centres, covariances, log_weights)
            assert found.surprises[i, k] == pytest.approx(surprise, rel=1e-8, abs=1e-8)
            assert below(found.quantiles[0, i, k]) == pytest.approx(0.5, abs=1e-5)


def own_conditionals(mixture, x, i, rows, components, others):
    """Surprises by `FrameMixture.conditional`, with the components of row i in their places and component i + 1 left out."""
    frames, variances = mixture.frames.copy(), mixture.variances.copy()
    frames[:, components[rows == i]] = others.frames[:, rows == i]
    variances[:, components[rows == i]] = others.variances[:, rows == i]
    log_weights = np.where(np.arange(N) == i + 1, -np.inf, mixture.log_weights)
    rest = FrameMixture(mixture.centres, frames, variances, mixture.noise, log_weights)
    ones = [rest.conditional({j: x[j] for j in range(D) if j != k}) for k in range(D)]
    return [-one.score_samples([[x[k]]])[0] for k, one in enumerate(ones)]


@pytest.mark.parametrize("kind", ["shared", "frames", "shared and frames"])
def test_every_kind_keeps_the_digits_of_a_far_row(kind):
    mixture = mixtures()[kind]
    x = np.array([1e7, 0.0, -1e7, 3.0])
    found = column_conditionals(mixture, x[None], np.array([2]), (0.5,))
    rest = copy.copy(mixture)
    rest.log_weights = np.where(np.arange(N) == 2, -np.inf, mixture.log_weights)
    for k in range(D):
        one = rest.conditional({j: x[j] for j in range(D) if j != k})
        assert found.surprises[0, k] == pytest.approx(-one.score_samples([[x[k]]])[0], rel=1e-6)
        below = np.exp(one.log_weights) @ norm.cdf(
            found.quantiles[0, 0, k], one.centres[:, 0], np.sqrt(covariances_of(one)[:, 0, 0])
        )
        assert below == pytest.approx(0.5, abs=1e-4)
