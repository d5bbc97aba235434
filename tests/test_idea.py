"""The facts that the whole library rests on, each by brute force: see docs/idea.md."""

import numpy as np
import pytest
from scipy.optimize import check_grad
from scipy.special import softmax
from sklearn.neighbors import NearestNeighbors

from vicinal import LCA, RCA, LCAGauss, ParzenWindows
from vicinal._engine import Match, prepare
from vicinal._mixtures import SharedMixture


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return (rng.normal(size=(3, 3)) * 3)[rng.integers(3, size=45)] + rng.normal(size=(45, 3))


def scatter(w, X):
    """S(w) = sum_ij w_ij (x_i - x_j)(x_i - x_j)'."""
    difference = X[:, None] - X[None]
    return np.einsum("ij,ijk,ijl->kl", w, difference, difference)


def left_out_softmax(Z, factor=0.5):
    scores = -factor * ((Z[:, None] - Z[None]) ** 2).sum(-1)
    np.fill_diagonal(scores, -np.inf)
    return softmax(scores, axis=1)


def test_the_scatter_needs_no_differences(rows):
    w = np.random.default_rng(1).uniform(size=(45, 45))
    laplacian = np.diag(w.sum(1)) + np.diag(w.sum(0)) - w - w.T
    np.testing.assert_allclose(scatter(w, rows), rows.T @ laplacian @ rows)


def test_rca_is_the_scatter_of_chunklet_mates(rows):
    chunklets = np.random.default_rng(1).integers(9, size=45)
    same = chunklets[:, None] == chunklets[None]
    w = same / (2 * same.sum(1, keepdims=True))
    within = sum(
        (part - part.mean(0)).T @ (part - part.mean(0)) for part in (rows[chunklets == c] for c in np.unique(chunklets))
    )
    np.testing.assert_allclose(scatter(w, rows), within)
    counted = np.isin(chunklets, [c for c in range(9) if (chunklets == c).sum() > 1]).sum()
    np.testing.assert_allclose(RCA(shrinkage=0).fit(rows, chunklets).covariance_, within / counted)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_lca_repeats_the_scatter_of_the_left_out_softmax(rows):
    lca = LCA(solver="em", max_iter=1, reg=0.0).fit(rows)
    once = LCA(solver="em", max_iter=2, reg=0.0).fit(rows)
    w = left_out_softmax(lca.transform(rows))
    np.testing.assert_allclose(scatter(w, rows) / 45, once.covariance_, rtol=1e-9, atol=1e-12)
    assert once.objectives_[1] > once.objectives_[0]


def test_lca_can_be_climbed_by_its_gradient(rows):
    def objective(a):
        A = a.reshape(3, 3)
        Z = rows @ A.T
        kernels = np.exp(-0.5 * ((Z[:, None] - Z[None]) ** 2).sum(-1)) * (1 - np.eye(45))
        return np.log(kernels.sum(1) / 44).mean() + np.linalg.slogdet(A)[1]

    def gradient(a):
        A = a.reshape(3, 3)
        return (np.linalg.inv(A).T - A @ scatter(left_out_softmax(rows @ A.T), rows) / 45).ravel()

    assert check_grad(objective, gradient, np.random.default_rng(2).normal(size=9)) < 1e-5


def test_nca_climbs_a_signed_scatter(rows):
    y = np.random.default_rng(1).integers(3, size=45)
    same = y[:, None] == y[None]

    def objective(a):
        return (left_out_softmax(rows @ a.reshape(2, 3).T, 1.0) * same).sum()

    def weights(A):
        p = left_out_softmax(rows @ A.T, 1.0)
        return p * ((p * same).sum(1, keepdims=True) - same)

    def gradient(a):
        A = a.reshape(2, 3)
        return (2 * A @ scatter(weights(A), rows)).ravel()

    start = np.random.default_rng(2).normal(size=6) * 0.4
    assert check_grad(objective, gradient, start) < 1e-5
    S = scatter(weights(start.reshape(2, 3)), rows)
    assert np.linalg.eigvalsh(S)[0] < 0 < np.linalg.eigvalsh(S)[-1]  # signed: no covariance
    # The engine's pulls are the same scatter, in the image.
    A = np.sqrt(2) * start.reshape(2, 3)
    found = prepare("reference", rows, leave_one_out=True, match=Match("class", y)).at(A).pull().pull
    Z = rows @ A.T
    np.testing.assert_allclose(Z.T @ found, scatter(weights(start.reshape(2, 3)), Z))
    np.testing.assert_allclose(found.T @ rows, A @ scatter(weights(start.reshape(2, 3)), rows))


def test_the_mean_of_the_local_scatters_is_the_pooled_one(rows):
    w = left_out_softmax(rows)
    local = [sum(w[i, j] * np.outer(rows[i] - rows[j], rows[i] - rows[j]) for j in range(45)) for i in range(45)]
    np.testing.assert_allclose(np.mean(local, axis=0), scatter(w, rows) / 45)
    # Manifold Parzen's hard neighbourhood is the same with w_ij = 1/k.
    near = NearestNeighbors(n_neighbors=5).fit(rows).kneighbors(return_distance=False)
    hard = np.zeros((45, 45))
    np.put_along_axis(hard, near, 1 / 5, axis=1)
    frames = [(rows[near[i]] - rows[i]).T @ (rows[near[i]] - rows[i]) / 5 for i in range(45)]
    np.testing.assert_allclose(np.mean(frames, axis=0), scatter(hard, rows) / 45)


def test_lca_gauss_is_a_mixture_with_one_covariance(rows):
    X = np.c_[rows, np.random.default_rng(3).normal(size=(45, 2))]
    model = LCAGauss(reduce=True, reg=0.0, reg_gauss=0.0).fit(X)
    assert 0 < model.n_components_ < 5
    B = np.concatenate([model.gaussian_components_, model.components_]).T
    d1 = len(model.gaussian_components_)
    images = X @ B
    images[:, :d1] = X.mean(0) @ B[:, :d1]
    centres = images @ np.linalg.inv(B)  # B^-T (B_G' mu, B_L' x_j), as rows
    mixture = SharedMixture(centres, np.linalg.inv(B @ B.T))
    np.testing.assert_allclose(mixture.score_samples(X), model.score_samples(X))
    parzen = ParzenWindows(bandwidth=np.linalg.inv(B @ B.T)).fit(centres)
    np.testing.assert_allclose(parzen.score_samples(X), model.score_samples(X))


def test_centring_saves_the_digits_of_float32(rows):
    far = (rows + 1000.0).astype(np.float32)
    truth = scatter(left_out_softmax(far.astype(np.float64)), far.astype(np.float64))
    for engine in ("reference", "cpu"):
        found = prepare(engine, far, leave_one_out=True).at().scatter().scatter
        assert np.abs(found - truth).max() / np.abs(truth).max() < 1e-4
    raw = far @ far.T
    squares = np.diag(raw)[:, None] + np.diag(raw)[None] - 2 * raw  # what happens without
    true_squares = ((far[:, None].astype(float) - far[None]) ** 2).sum(-1)
    assert np.abs(squares - true_squares).max() > 0.1


def test_twins_make_the_likelihood_unbounded(rows):
    twins = np.repeat(rows, 2, axis=0)

    def objective(scale):
        Z = twins / scale
        kernels = np.exp(-0.5 * ((Z[:, None] - Z[None]) ** 2).sum(-1)) * (1 - np.eye(90))
        return np.log(kernels.sum(1) / 89).mean() - 3 * np.log(scale)

    assert objective(1e-3) < objective(1e-6) < objective(1e-9)
    with pytest.raises(ValueError, match="exact twin"):
        LCA(reg=0.0).fit(twins)
