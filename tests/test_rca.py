"""Test RCA: its closed form, shrinkage, rank, streams and merging, and bad input."""

import pickle
import re
import warnings
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from estimator_checks import check_conventions
from scipy.linalg import eigh, helmert, sqrtm, subspace_angles
from sklearn.base import clone
from sklearn.covariance import ledoit_wolf
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from vicinal import RCA
from vicinal._metric import contrast_shrinkage
from vicinal.companions import simulate_teachers

# Many tests are about data on which directions are dropped; those about the warning ask for it.
pytestmark = pytest.mark.filterwarnings("ignore:.*directions are kept:UserWarning")


@parametrize_with_checks([RCA()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", [RCA(n_components=1, shrinkage=0.1), RCA(shrinkage=0, unbiased=True)], ids=str)
def test_scikit_learn_checks_of_other_settings(estimator):
    check_conventions(estimator)


def literal_covariance(X, chunklets, unbiased=False):
    """Eq. 1."""
    S, n_points, n_chunklets = 0.0, 0, 0
    for k in set(chunklets[chunklets >= 0]):
        points = X[chunklets == k]
        if len(points) > 1:
            S = S + sum(np.outer(x - points.mean(0), x - points.mean(0)) for x in points)
            n_points, n_chunklets = n_points + len(points), n_chunklets + 1
    return S / (n_points - n_chunklets if unbiased else n_points)


@pytest.fixture
def blobs():
    """120 rows, 5 columns, chunklets of 1 to 4 rows, some rows in none."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(5, 5))
    y = np.sort(rng.integers(0, 45, size=120))
    X = (rng.normal(size=(45, 5)) * 3)[y] + rng.normal(size=(120, 5)) @ mixing + 7.0
    order = rng.permutation(120)
    return X[order], np.where(rng.random(120) < 0.2, -1, y[order])


@pytest.mark.parametrize("unbiased", [False, True])
def test_the_metric_is_the_inverse_of_equation_1(blobs, unbiased):
    X, y = blobs
    C = literal_covariance(X, y, unbiased)
    rca = RCA(shrinkage=0, unbiased=unbiased).fit(X, y)
    np.testing.assert_allclose(rca.covariance_, C, rtol=1e-10)
    np.testing.assert_allclose(rca.get_mahalanobis_matrix(), np.linalg.inv(C), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(rca.components_ @ C @ rca.components_.T, np.eye(5), atol=1e-10)
    x, z = X[:10], X[10:20]
    literal = [np.sqrt((a - b) @ np.linalg.inv(C) @ (a - b)) for a, b in zip(x, z, strict=True)]
    np.testing.assert_allclose(rca.pair_distance(np.stack([x, z], axis=1)), literal, rtol=1e-10)
    # the paper's W = C^(-1/2) differs by a rotation
    W = np.real(sqrtm(np.linalg.inv(C)))
    rotation = rca.components_ @ np.linalg.inv(W)
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(5), atol=1e-9)


def test_total_covariance_is_of_all_rows_and_cfld_solves_equation_14(blobs):
    X, y = blobs
    rca = RCA(n_components=2, shrinkage=0).fit(X, y)
    C, T = literal_covariance(X, y), np.cov(X.T, bias=True)
    np.testing.assert_allclose(rca.total_covariance_, T, rtol=1e-10)
    A = rca.components_
    np.testing.assert_allclose(A @ C @ A.T, np.eye(2), atol=1e-10)  # whitening last
    np.testing.assert_allclose(A @ T @ A.T, np.diag(rca.ratios_), atol=1e-8)
    expected = eigh(T, C, eigvals_only=True)[::-1]
    np.testing.assert_allclose(rca.ratios_, expected[:2], rtol=1e-10)
    # no other projection to two dimensions has a larger determinant ratio
    rng = np.random.default_rng(1)
    best = np.prod(rca.ratios_)
    for _ in range(200):
        B = rng.normal(size=(2, 5))
        assert np.linalg.det(B @ T @ B.T) / np.linalg.det(B @ C @ B.T) <= best * (1 + 1e-12)


def test_the_first_components_do_not_depend_on_their_number(blobs):
    X, y = blobs
    whole = RCA().fit(X, y)
    for k in range(1, 6):
        np.testing.assert_allclose(RCA(k).fit(X, y).components_, whole.components_[:k], rtol=1e-8, atol=1e-10)


def test_supervised_rca_is_within_class_whitening():
    X, y = load_iris(return_X_y=True)
    centred = np.concatenate([X[y == k] - X[y == k].mean(axis=0) for k in range(3)])
    rca = RCA(shrinkage=0).fit(X, y)
    np.testing.assert_allclose(rca.get_mahalanobis_matrix(), np.linalg.inv(centred.T @ centred / 150), rtol=1e-9)
    images = rca.transform(X)
    within = np.concatenate([images[y == k] - images[y == k].mean(axis=0) for k in range(3)])
    np.testing.assert_allclose(within.T @ within / 150, np.eye(4), atol=1e-10)


@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_cfld_with_full_labels_spans_the_subspace_of_lda(load):
    X, y = load(return_X_y=True)
    lda = LinearDiscriminantAnalysis(solver="eigen").fit(X, y)
    rca = RCA(n_components=2, shrinkage=0).fit(X, y)
    assert subspace_angles(rca.components_.T, lda.scalings_[:, :2]).max() < 1e-6


def test_agreement_with_metric_learn():
    """Recorded from metric-learn 0.7.0 with scikit-learn 1.7.2."""
    X, y = load_iris(return_X_y=True)
    pairs = np.where(np.arange(150) % 50 < 6, np.arange(150) // 2, -1)
    recorded = [
        [26.498796893914, -4.741076944503, -33.138969568463, 9.301548575677],
        [-4.741076944503, 68.91635722435, -19.186963961168, -38.409691350717],
        [-33.138969568463, -19.186963961168, 75.163651333236, -30.816192577986],
        [9.301548575677, -38.409691350717, -30.816192577986, 127.959873946092],
    ]
    np.testing.assert_allclose(RCA(shrinkage=0).fit(X, pairs).get_mahalanobis_matrix(), recorded, rtol=1e-10)
    recorded = [
        [1.165739229418, 1.651286556824, -3.144870105502, -0.431856565382],
        [1.651286556824, 2.656532555818, -5.60976736372, 3.214294691439],
        [-3.144870105502, -5.60976736372, 12.686328957326, -12.755120301421],
        [-0.431856565382, 3.214294691439, -12.755120301421, 46.271053868438],
    ]
    reduced = RCA(n_components=2, shrinkage=0).fit(X, np.arange(150) // 3)
    np.testing.assert_allclose(reduced.get_mahalanobis_matrix(), recorded, rtol=1e-9)
    X, y = load_wine(return_X_y=True)
    diagonal = [
        4.525648394130, 1.436306716382, 33.83163046574, 0.2413694116267, 0.006994364703494, 11.47957862213,
        9.811882852914, 120.8639099630, 6.158640461637, 0.7342861177748, 51.60621515651, 8.781872407332,
        4.193742576916e-05,
    ]  # fmt: skip
    M = RCA(shrinkage=0).fit(X, y).get_mahalanobis_matrix()
    np.testing.assert_allclose(np.diag(M), diagonal, rtol=1e-9)
    assert np.linalg.slogdet(M)[1] == pytest.approx(3.4104099965506407, rel=1e-9)


def test_digits_where_metric_learn_gives_nan():
    X, y = load_digits(return_X_y=True)
    rca = RCA().fit(X, y)
    assert rca.rank_ == 61  # three pixels never change
    assert rca.components_.shape == (61, 64)
    for model in (rca, RCA(shrinkage=0).fit(X, y), RCA(shrinkage=0).fit(X, np.arange(len(X)) // 30)):
        assert np.isfinite(model.components_).all()
        assert np.isfinite(model.transform(X)).all()


# --- shrinkage


def test_shrinkage_of_pairs_is_ledoit_wolf_of_their_differences():
    rng = np.random.default_rng(2)
    for n_pairs, d in ((30, 5), (20, 60), (8, 200)):
        mixing = np.linalg.qr(rng.normal(size=(d, d)))[0] * np.linspace(0.2, 3, d)
        X = (rng.normal(size=(2 * n_pairs, d)) @ mixing.T) * 10.0 ** rng.uniform(-2, 2, d) + 100
        spread = X.std(axis=0)
        contrasts = (X[::2] - X[1::2]) / np.sqrt(2) / spread
        C, shrinkage = ledoit_wolf(contrasts, assume_centered=True)
        rca = RCA(unbiased=True).fit(X, np.arange(2 * n_pairs) // 2)
        assert rca.shrinkage_ == pytest.approx(shrinkage, rel=1e-9)
        np.testing.assert_allclose(rca.covariance_ / np.outer(spread, spread), C, rtol=1e-8, atol=1e-12)


def test_shrinkage_of_larger_chunklets_is_that_of_their_contrasts_whatever_the_order():
    rng = np.random.default_rng(3)
    mixing = np.linalg.qr(rng.normal(size=(20, 20)))[0] * np.linspace(0.5, 2, 20)
    X, y = rng.normal(size=(400, 20)) @ mixing.T, np.arange(400) // 5
    shrinkage = RCA().fit(X, y).shrinkage_
    X = X / X.std(axis=0)
    assert RCA().fit(X, y).shrinkage_ == pytest.approx(shrinkage, rel=1e-9)
    contrasts = np.concatenate([helmert(5) @ X[y == k] for k in range(80)])
    assert shrinkage == pytest.approx(ledoit_wolf(contrasts, assume_centered=True)[1], rel=0.05)
    order = rng.permutation(400)
    assert RCA().fit(X[order], y[order]).shrinkage_ == pytest.approx(shrinkage, rel=1e-12)
    # residuals counted as independent observations would shrink too little or too much
    residuals = np.concatenate([X[y == k] - X[y == k].mean(axis=0) for k in range(80)])
    assert abs(ledoit_wolf(residuals, assume_centered=True)[1] - shrinkage) > 0.1 * shrinkage


def test_shrinkage_fades_as_contrasts_grow_and_one_contrast_has_none_to_trust():
    rng = np.random.default_rng(4)
    mixing = np.linalg.qr(rng.normal(size=(6, 6)))[0] * np.linspace(0.5, 2, 6)
    found = [RCA().fit(rng.normal(size=(n, 6)) @ mixing.T, np.arange(n) // 2).shrinkage_ for n in (20, 200, 20000)]
    assert found[0] > found[1] > found[2]
    assert found[2] < 0.01
    rows = rng.normal(size=(9, 4))
    one = RCA().fit(rows, [[2, 5]])
    assert one.shrinkage_ == 1.0
    M = one.get_mahalanobis_matrix() * rows.var(axis=0)  # standardised columns
    np.testing.assert_allclose(M, M[0, 0] * np.eye(4), atol=1e-9 * M[0, 0])


def test_given_shrinkage(blobs):
    X, y = blobs
    C = literal_covariance(X, y)
    rca = RCA(shrinkage=0.3).fit(X, y)
    variances = X.var(axis=0)
    expected = 0.7 * C + 0.3 * np.mean(np.diag(C) / variances) * np.diag(variances)
    np.testing.assert_allclose(rca.covariance_, expected, rtol=1e-10)
    np.testing.assert_allclose(rca.get_mahalanobis_matrix(), np.linalg.inv(expected), rtol=1e-9)
    assert contrast_shrinkage(rca._sums, X.std(axis=0)) == pytest.approx(RCA().fit(X, y).shrinkage_, rel=1e-12)


def test_raw_and_standardised_columns_give_one_answer():
    """Raw wine: the 3-nearest-neighbour error was .102 when shrinkage was towards one variance in raw units."""
    X, y = load_wine(return_X_y=True)
    raw, standard = RCA().fit(X, y), RCA().fit(X / X.std(axis=0), y)
    assert raw.shrinkage_ == pytest.approx(standard.shrinkage_, rel=1e-9)
    np.testing.assert_allclose(raw.mahalanobis(X[:9]), standard.mahalanobis(X[:9] / X.std(axis=0)), rtol=1e-7)
    errors = []
    for train, test in StratifiedKFold(5, shuffle=True, random_state=0).split(X, y):
        rca = RCA().fit(X[train], y[train])
        nearest = KNeighborsClassifier(3).fit(rca.transform(X[train]), y[train])
        errors.append(1 - nearest.score(rca.transform(X[test]), y[test]))
    assert np.mean(errors) < 0.03


def test_directions_that_are_dropped_or_rest_on_shrinkage_are_told():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 10)), np.r_[np.arange(6) // 2, np.full(34, -1)]
    with pytest.warns(UserWarning, match=r"n_components=5, but the chunklets have only R = 3 contrasts"):
        assert len(RCA(5).fit(X, y).components_) == 5
    with pytest.warns(
        UserWarning, match=r"1 of 10 directions are kept: with shrinkage=0, R = 3 contrasts and alpha=0.5"
    ):
        RCA(shrinkage=0).fit(X, y)
    with pytest.warns(UserWarning, match=r"10 of 11 directions are kept: 1 column is constant \(4\)"):
        RCA().fit(np.insert(X, 4, 1.0, axis=1), y)
    with pytest.warns(UserWarning, match="10 of 11 directions are kept, because the rows do not vary along the others"):
        RCA().fit(np.c_[X, X[:, 0] + X[:, 1]], y)


@pytest.mark.slow
def test_shrinkage_helps_in_768_dimensions_with_few_pairs():
    rng = np.random.default_rng(5)
    d, n_pairs = 768, 150
    scale = np.r_[np.full(20, 10.0), np.full(d - 20, 1.5)]  # nuisance along 20 directions

    def draw(n, m):
        return (rng.normal(size=(n, 1, d)) + rng.normal(size=(n, m, d)) * scale).reshape(n * m, d)

    X = np.concatenate([draw(n_pairs, 2), draw(1000, 1)])
    y = np.r_[np.arange(2 * n_pairs) // 2, np.full(1000, -1)]
    test = draw(150, 2)

    def recall(images):
        distances = ((images[::2, None] - images[None, 1::2]) ** 2).sum(axis=-1)
        return (distances.argmin(axis=1) == np.arange(150)).mean()

    auto = RCA().fit(X, y)
    assert auto.rank_ == d
    assert recall(auto.transform(test)) > 0.95
    assert recall(test) < 0.3
    assert recall(RCA(shrinkage=0).fit(X, y).transform(test)) < 0.3


# --- degenerate data


def test_algorithm_2_reduces_to_alpha_r_dimensions_first():
    rng = np.random.default_rng(6)
    X = rng.normal(size=(60, 30)) * np.linspace(3, 0.1, 30)
    y = np.where(np.arange(60) < 24, np.arange(60) // 2, -1)  # R = 12 < D = 30
    rca = RCA(shrinkage=0, alpha=0.6).fit(X, y)
    assert rca.components_.shape == (7, 30)  # floor(0.6 * 12)
    # by hand: PCA, then RCA in its space
    pca = PCA(7).fit(X)
    inner = RCA(shrinkage=0).fit(pca.transform(X), y)
    np.testing.assert_allclose(
        rca.get_mahalanobis_matrix(),
        pca.components_.T @ inner.get_mahalanobis_matrix() @ pca.components_,
        rtol=1e-8,
        atol=1e-9,
    )
    assert rca.rank_ == 30
    assert RCA(shrinkage=0, alpha=0.01).fit(X, y).components_.shape == (1, 30)
    assert len(RCA(alpha=0.6).fit(X, y).components_) == 30  # shrinkage needs no such step


def test_directions_without_within_variance_take_the_smallest_positive_eigenvalue():
    rng = np.random.default_rng(7)
    y = np.arange(90) // 3  # the last column is the same all over a group
    X = np.column_stack([rng.normal(size=(90, 2)) * [1.0, 2.0], rng.normal(size=30)[y]])
    rca = RCA(shrinkage=0).fit(X, y)
    C = literal_covariance(X, y)
    smallest = np.linalg.eigvalsh(C[:2, :2])[0]
    C[2, 2] = smallest
    np.testing.assert_allclose(rca.get_mahalanobis_matrix(), np.linalg.inv(C), rtol=1e-8, atol=1e-10)
    # the same in rotated coordinates
    Q = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    turned = RCA(shrinkage=0).fit(X @ Q.T, y)
    np.testing.assert_allclose(
        turned.get_mahalanobis_matrix(), Q @ rca.get_mahalanobis_matrix() @ Q.T, rtol=1e-7, atol=1e-7
    )


def test_constant_and_dependent_columns_are_dropped():
    rng = np.random.default_rng(8)
    base = rng.normal(size=(60, 3))
    X = np.column_stack([base, base[:, 0] + base[:, 1], np.full(60, 0.1), np.full(60, 1e6 / 3)])
    y = np.arange(60) // 4
    for shrinkage in (0, "auto", 0.5):
        rca = RCA(shrinkage=shrinkage).fit(X, y)
        assert rca.rank_ == 3
        assert rca.components_.shape == (3, 6)
        assert np.isfinite(rca.components_).all()
        assert np.abs(rca.components_[:, 4:]).max() == 0.0
    rca = RCA(shrinkage=0).fit(X, y)
    plain = RCA(shrinkage=0).fit(base, y)
    np.testing.assert_allclose(rca.mahalanobis(X[:20]), plain.mahalanobis(base[:20]), rtol=1e-8)


def test_units_of_columns_do_not_decide_the_rank():
    rng = np.random.default_rng(9)
    base, y = rng.normal(size=(200, 4)), np.arange(200) // 4
    units = np.array([1e10, 1.0, 1e-6, 1e-9])
    plain, scaled = RCA(shrinkage=0).fit(base, y), RCA(shrinkage=0).fit(base * units, y)
    assert scaled.rank_ == 4
    np.testing.assert_allclose(scaled.components_ * units, plain.components_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(scaled.ratios_, plain.ratios_, rtol=1e-8)


def test_more_columns_than_rows():
    rng = np.random.default_rng(10)
    X, y = rng.normal(size=(20, 50)), np.arange(20) // 2
    for shrinkage in ("auto", 0.2):
        rca = RCA(shrinkage=shrinkage).fit(X, y)
        assert rca.rank_ == 19
        assert rca.components_.shape == (19, 50)
        np.testing.assert_allclose(rca.components_ @ rca.covariance_ @ rca.components_.T, np.eye(19), atol=1e-8)
    assert RCA(shrinkage=0).fit(X, y).components_.shape == (5, 50)


def test_one_chunklet_is_enough_and_duplicates_do_no_harm():
    rng = np.random.default_rng(11)
    X = rng.normal(size=(40, 3))
    y = np.r_[np.zeros(20, int), np.full(20, -1)]
    rca = RCA(shrinkage=0).fit(X, y)
    np.testing.assert_allclose(rca.covariance_, np.cov(X[:20].T, bias=True), rtol=1e-10)
    doubled = RCA(shrinkage=0).fit(np.repeat(X, 2, axis=0), np.repeat(y, 2))
    np.testing.assert_allclose(doubled.components_, rca.components_, rtol=1e-8)
    some = RCA().fit(np.concatenate([X, X[:5], X[:5]]), np.r_[y, np.arange(10) % 5 + 10])
    assert np.isfinite(some.components_).all()


def test_singletons_count_in_neither_n_nor_r(blobs):
    X, y = blobs
    alone = np.array([np.count_nonzero(y == label) == 1 for label in y])
    rca = RCA().fit(X, y)
    assert rca.n_points_ == ((y >= 0) & ~alone).sum()
    assert rca.n_contrasts_ == rca.n_points_ - rca.n_chunklets_
    assert rca.chunklet_report_.n_singletons == (alone & (y >= 0)).sum()
    dropped = RCA().fit(X, np.where(alone, -1, y))
    np.testing.assert_array_equal(dropped.components_, rca.components_)


def test_groups_constant_up_to_rounding_are_no_variance():
    y = np.arange(90) // 3
    X = np.column_stack([np.random.default_rng(0).normal(size=90), (np.arange(30) * 0.1 + 1e5)[y]])
    rca = RCA(shrinkage=0).fit(X, y)
    smallest = literal_covariance(X, y)[0, 0]
    np.testing.assert_allclose(np.diag(rca.get_mahalanobis_matrix()), 1 / smallest, rtol=1e-6)


def degenerate_tables(rng):
    n, d = rng.integers(2, 25), rng.integers(1, 10)
    X = rng.normal(size=(n, d))
    yield rng.integers(0, 2, size=(n, d)).astype(float)
    yield X[:, rng.integers(0, d, size=d)]
    yield X * 10.0 ** rng.integers(-12, 12, size=d)
    yield X[rng.integers(0, n, size=n)] + 1e7
    yield np.round(X, 1) * 0.1 + rng.integers(0, 3, size=(n, 1)) * 1e5
    yield X.astype(np.float32) + np.float32(1e4)


def test_random_degenerate_data_give_a_finite_answer_or_a_clear_error():
    rng = np.random.default_rng(17)
    answers = 0
    for _ in range(30):
        for X in degenerate_tables(rng):
            y = rng.integers(-1, max(1, len(X) // 2), size=len(X))
            for shrinkage in (0, "auto", 1.0):
                try:
                    rca = RCA(shrinkage=shrinkage).fit(X, y)
                except ValueError as error:
                    if not re.search("needs at least one chunklet|only equal points|are equal", str(error)):
                        raise
                    continue
                answers += 1
                assert 1 <= len(rca.components_) <= rca.rank_
                for array in (rca.components_, rca.ratios_, rca.inverse_transform(rca.transform(X))):
                    assert np.isfinite(array).all()
    assert answers > 500


# --- laws


def test_an_invertible_map_of_the_data_changes_no_distance_without_shrinkage(blobs):
    X, y = blobs
    G = np.random.default_rng(12).normal(size=(5, 5))
    plain, mapped = RCA(shrinkage=0).fit(X, y), RCA(shrinkage=0).fit(X @ G.T + 3.0, y)
    np.testing.assert_allclose(mapped.mahalanobis(X @ G.T), plain.mahalanobis(X), rtol=1e-7)
    np.testing.assert_allclose(mapped.ratios_, plain.ratios_, rtol=1e-8)


def test_offset_of_a_million():
    rng = np.random.default_rng(13)
    X = rng.integers(-(2**10), 2**10, size=(600, 5)) / 2.0**8
    y = np.arange(600) // 3
    here, there = RCA().fit(X, y), RCA().fit(X + 2.0**20, y)
    np.testing.assert_allclose(there.components_, here.components_, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("ratio_of_sizes", [3, *(pytest.param(ratio, marks=pytest.mark.slow) for ratio in (2, 5))])
def test_the_variance_bound_of_equation_12(ratio_of_sizes):
    """Var C(n, k) <= k/(k-1) Var C(1, nk), and exactly (nk-1)/(n(k-1)) times it for Gaussian data."""
    k, n = ratio_of_sizes, 30 // ratio_of_sizes
    rng = np.random.default_rng(14)
    draws = rng.normal(size=(250, n * k, 10))  # independent columns: the diagonal of C holds ten variances
    groups = np.arange(n * k) // k
    small = np.concatenate([np.diag(RCA(unbiased=True, shrinkage=0).fit(X, groups).covariance_) for X in draws])
    best = draws.var(axis=1, ddof=1)
    observed = small.var() / best.var()
    expected = (n * k - 1) / (n * (k - 1))
    assert small.mean() == pytest.approx(1.0, abs=0.02)  # unbiased
    assert observed == pytest.approx(expected, rel=0.1)
    assert observed <= k / (k - 1) * 1.1


def test_every_spelling_of_chunklets_gives_the_same_model(blobs):
    X, y = blobs
    reference = RCA().fit(X, y).components_
    groups = [np.flatnonzero(y == k).tolist() for k in set(y[y >= 0].tolist())]
    pairs = np.array([p for g in groups for p in pairwise(g)])
    rows = np.flatnonzero(y >= 0)
    spellings = [
        groups,
        pairs,
        (rows, y[rows]),
        pd.Series(y).astype("category"),
        pd.DataFrame({"group": np.where(y < 0, None, y.astype(str))})["group"],
        [None if k < 0 else f"g{k}" for k in y],
        pd.DataFrame(pairs, columns=["left", "right"]),
    ]
    for spelling in spellings:
        np.testing.assert_allclose(RCA().fit(X, spelling).components_, reference, rtol=1e-9, atol=1e-12)


def test_teachers_who_share_points_merged_or_not():
    X, y = load_iris(return_X_y=True)
    apart = simulate_teachers(y, 20, 8, random_state=0)
    rca = RCA(shrinkage=0).fit(X, apart)
    copied = RCA(shrinkage=0).fit(X[apart.rows], apart.ids)
    np.testing.assert_allclose(rca.covariance_, copied.covariance_, rtol=1e-10)
    assert rca.n_points_ == len(apart.rows)
    np.testing.assert_allclose(rca.total_covariance_, np.cov(X.T, bias=True), rtol=1e-10)
    merged = RCA(shrinkage=0).fit(X, simulate_teachers(y, 20, 8, merge=True, random_state=0))
    assert merged.n_chunklets_ < rca.n_chunklets_


# --- streams


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("shrinkage", [0, "auto"])
def test_partial_fit_over_100_blocks_equals_one_fit(offset, shrinkage):
    rng = np.random.default_rng(15)
    X = rng.normal(size=(3000, 6)) @ rng.normal(size=(6, 6)) + offset
    y = np.arange(3000) // 3
    y[rng.random(3000) < 0.1] = -1
    whole = RCA(shrinkage=shrinkage).fit(X, y)
    stream = RCA(shrinkage=shrinkage)
    for block in np.split(np.arange(3000), 100):
        ids = np.where(y[block] < 0, -1, y[block] - y[block].max() + 50)  # ids are used again in every call
        stream.partial_fit(X[block], ids)
    for name in ("components_", "covariance_", "total_covariance_", "mean_", "ratios_", "shrinkage_"):
        np.testing.assert_allclose(getattr(stream, name), getattr(whole, name), rtol=1e-10, atol=1e-10)
    assert (stream.n_points_, stream.n_chunklets_) == (whole.n_points_, whole.n_chunklets_)


def test_merge_equals_one_fit_and_leaves_the_other_alone(blobs):
    X, y = blobs
    left, right = np.flatnonzero(y < 20), np.flatnonzero(y >= 20)  # no chunklet is split
    a, b = RCA(2).fit(X[left], y[left]), RCA(shrinkage=0.5).fit(X[right], y[right])
    before = b.components_.copy()
    assert a.merge(b) is a
    whole = RCA(2).fit(np.concatenate([X[left], X[right]]), np.concatenate([y[left], y[right]]))
    np.testing.assert_allclose(a.components_, whole.components_, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(b.components_, before)


def test_a_stream_may_start_without_chunklets(blobs):
    X, y = blobs
    rca = RCA().partial_fit(X[:30], np.full(30, -1))
    with pytest.raises(NotFittedError):
        rca.transform(X)
    rca.partial_fit(np.repeat(X[:1], 3, axis=0), [0, 0, 0])  # equal points tell nothing either
    with pytest.raises(NotFittedError):
        rca.transform(X)
    rca.partial_fit(X[30:], y[30:])
    whole = RCA().fit(np.concatenate([X, np.repeat(X[:1], 3, axis=0)]), np.r_[np.full(30, -1), y[30:], 99, 99, 99])
    np.testing.assert_allclose(rca.components_, whole.components_, rtol=1e-10, atol=1e-12)
    rca.partial_fit(X[:1], [-1])
    assert rca.chunklet_report_.n_leftover == 1


def test_fit_forgets_and_a_failed_call_changes_nothing(blobs):
    X, y = blobs
    rca = RCA().partial_fit(X[:60], y[:60])
    before = rca.components_.copy()
    with pytest.raises(ValueError, match="out of range"):
        rca.partial_fit(X[60:], [[0, 99]])
    np.testing.assert_array_equal(rca.components_, before)
    np.testing.assert_array_equal(rca.fit(X, y).components_, RCA().fit(X, y).components_)


# --- scikit-learn


def test_inverse_transform():
    X, y = load_iris(return_X_y=True)
    rca = RCA(shrinkage=0).fit(X, y)
    np.testing.assert_allclose(rca.inverse_transform(rca.transform(X)), X, rtol=1e-9)
    two = RCA(2, shrinkage=0).fit(X, y)
    back = two.inverse_transform(two.transform(X))
    np.testing.assert_allclose(two.transform(back), two.transform(X), rtol=1e-8)  # a projection
    # the best linear guess of x from its image, by least squares on the data
    Z = np.column_stack([two.transform(X), np.ones(150)])
    guess = Z @ np.linalg.lstsq(Z, X, rcond=None)[0]
    np.testing.assert_allclose(back, guess, rtol=1e-7)
    assert two.inverse_transform(two.transform(X.astype(np.float32))).dtype == np.float32


def test_pandas_names_output_clone_pickle_and_search():
    X, y = load_iris(return_X_y=True, as_frame=True)
    rca = RCA(2).fit(X, y).set_output(transform="pandas")
    assert rca.transform(X).columns.tolist() == ["rca0", "rca1"]
    assert rca.feature_names_in_.tolist() == X.columns.tolist()
    again = pickle.loads(pickle.dumps(rca))
    np.testing.assert_array_equal(again.transform(X).to_numpy(), rca.transform(X).to_numpy())
    assert clone(rca).get_params() == rca.get_params()
    pipeline = make_pipeline(RCA(), KNeighborsClassifier(3))
    search = GridSearchCV(pipeline, {"rca__n_components": [1, 2], "rca__shrinkage": [0, "auto"]}, cv=3).fit(X, y)
    assert search.best_score_ > 0.95


def test_partial_labels_with_missing_values_of_pandas():
    X, y = load_iris(return_X_y=True, as_frame=True)
    names = pd.Series(np.array(["a", "b", "c"])[y], dtype="category")
    names[::2] = np.nan
    assert RCA().fit(X, names).n_points_ == 75


X6 = np.arange(18.0).reshape(6, 3) ** 1.5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: RCA().fit(X6, None), "requires y to be passed, but the target y is None"),
        (lambda: RCA().fit(X6, [0, 1, 2, 3, 4, -1]), "got none: 0 chunklets hold 0 points .* 5 singletons"),
        (lambda: RCA().fit(X6, [[0, 0], [3, 3]]), "got none: .*2 self-pairs ignored"),
        (lambda: RCA().fit(X6, [0, 0, 1]), "y has 3 entries for 6 rows"),
        (lambda: RCA().fit(X6, [[0, 6]]), "row positions 0 to 5, got 1 out of range"),
        (lambda: RCA().fit(np.repeat(X6[:3], 2, axis=0), [0, 0, 1, 1, 2, 2]), "only equal points"),
        (lambda: RCA(shrinkage=0).fit(np.repeat(X6[:3], 2, axis=0), [0, 0, 1, 1, 2, 2]), "only equal points"),
        (lambda: RCA().fit(np.ones((6, 3)), [0, 0, 1, 1, 2, 2]), "All 6 rows of X are equal"),
        (lambda: RCA().fit(X6 * 1e200, [0, 0, 1, 1, 2, 2]), "Rescale"),
        (
            lambda: RCA().fit(X6 * 1e100, [0, 0, 1, 1, 2, 2]),
            "Fourth powers of X overflow: rows differ by up to .*e.101, expected 1e-70 to 1e70",
        ),
        (
            lambda: RCA().fit(X6 * 1e-90, [0, 0, 1, 1, 2, 2]),
            "Fourth powers of X underflow: rows differ by .*e-89, expected 1e-70",
        ),
        (lambda: RCA().fit(X6 * 1e-200, [0, 0, 1, 1, 2, 2]), "columns .* have a range of at most .*e-199"),
        (
            lambda: RCA(n_components=4).fit(X6, [0, 0, 0, 1, 1, 1]),
            "n_components=4 is more than the 3 features",
        ),
        (lambda: RCA(n_components=0).fit(X6, [0, 0, 0, 1, 1, 1]), "n_components must be"),
        (
            lambda: RCA(n_components=1.5).fit(X6, [0, 0, 0, 1, 1, 1]),
            "n_components must be",
        ),
        (lambda: RCA(alpha=0).fit(X6, [0, 0, 0, 1, 1, 1]), "alpha must be"),
        (lambda: RCA(alpha=1.5).fit(X6, [0, 0, 0, 1, 1, 1]), "alpha must be"),
        (lambda: RCA(shrinkage=-0.1).fit(X6, [0, 0, 0, 1, 1, 1]), "shrinkage must be"),
        (lambda: RCA(shrinkage="none").fit(X6, [0, 0, 0, 1, 1, 1]), "shrinkage must be"),
        (lambda: RCA(unbiased=2).fit(X6, [0, 0, 0, 1, 1, 1]), "unbiased must be"),
        (
            lambda: RCA().fit(X6, [0, 0, 0, 1, 1, 1]).merge(RCA().fit(X6[:, :2], [0, 0, 0, 1, 1, 1])),
            "3 and 2",
        ),
        (lambda: RCA(1).fit(X6, [0, 0, 0, 1, 1, 1]).inverse_transform(np.ones((2, 3))), "has 1 components"),
        (lambda: RCA().fit(X6, [0, 0, 0, 1, 1, 1]).partial_fit(X6[:, :2], [0] * 6), "expecting 3 features"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_merge_of_something_else_or_unfitted():
    fitted = RCA().fit(X6, [0, 0, 0, 1, 1, 1])
    with pytest.raises(TypeError, match="got PCA"):
        fitted.merge(PCA())
    with pytest.raises(NotFittedError):
        fitted.merge(RCA())


def test_more_components_than_the_data_support_are_told():
    rng = np.random.default_rng(16)
    X = rng.normal(size=(6, 8))
    with pytest.warns(UserWarning, match="n_components=7, but only 5 directions"):
        rca = RCA(7).fit(X, [0, 0, 1, 1, 2, 2])
    assert len(rca.components_) == rca.rank_ == 5
    with pytest.warns(UserWarning, match="n_components=7, but only 1 directions"):
        RCA(7, shrinkage=0).fit(X, [0, 0, 1, 1, 2, 2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RCA(3).fit(X, [0, 0, 1, 1, 2, 2])


@pytest.mark.parametrize("shrinkage", [0, "auto"])
@pytest.mark.parametrize("kind", ["dependent", "mirrored", "few contrasts"])
def test_a_stream_of_dependent_columns_has_the_signs_of_one_fit(kind, shrinkage):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        base = rng.normal(size=(400, 4))
        X = {
            "dependent": np.column_stack([base, base @ rng.normal(size=(4, 4))]) + 7.0,
            "mirrored": np.column_stack([base, -base]),
            "few contrasts": rng.normal(size=(400, 30)) * np.linspace(1, 3, 30),
        }[kind]
        chunklets = np.where(np.arange(400) % 100 < 12, np.arange(400) // 4, -1)
        stream = RCA(shrinkage=shrinkage)
        for first in range(0, 400, 100):
            stream.partial_fit(X[first : first + 100], chunklets[first : first + 100])
        np.testing.assert_allclose(
            stream.components_, RCA(shrinkage=shrinkage).fit(X, chunklets).components_, atol=1e-8
        )


def test_no_ratio_of_variances_is_negative():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 5)) * 10.0 ** np.array([-60, -20, 0, 20, 60])
    for seed in range(10):
        chunklets = np.random.default_rng(seed).permutation(40) // 4
        assert (RCA(shrinkage=0.2).fit(X, chunklets).ratios_ >= 0).all()
