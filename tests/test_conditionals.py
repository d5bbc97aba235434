"""Each column given the others, against the mixture's own conditionals."""

import numpy as np
import pytest
from scipy.stats import norm

from vicinal._mixtures import SharedMixture, column_conditionals


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
    surprises, quantiles = column_conditionals(mixture, X, own, shares)
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
    surprises, quantiles = column_conditionals(mixture, X, shares=(0.5,))
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
