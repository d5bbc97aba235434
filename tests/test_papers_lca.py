"""What the experiments of the LCA paper are made of: NGCA, the graph of spectral clustering, FastICA's planes."""

import numpy as np
import pytest

from vicinal.datasets import make_two_gaussians
from vicinal.papers._experiment import Setting, experiments
from vicinal.papers.lca import _clustering, _ngca, figure_4, figure_5
from vicinal.papers.lca._digits import split_digits


def two_clusters(n_features=6, n=800):
    """Rows with one direction of two clusters, hidden by a rotation; and that direction."""
    rng = np.random.RandomState(0)
    X = rng.standard_normal((n, n_features))
    X[:, 0] = 0.3 * X[:, 0] + np.sign(rng.standard_normal(n))
    rotation = np.linalg.qr(rng.standard_normal((n_features, n_features)))[0]
    return X @ rotation, X[:, 0]


def test_ngca_finds_a_planted_direction():
    X, planted = two_clusters()
    image = _ngca.ngca(X, 1, random_state=0)
    assert image.shape == (800, 1)
    assert abs(np.corrcoef(image[:, 0], planted)[0, 1]) > 0.98


def test_ngca_is_the_same_after_a_linear_map():
    X, planted = two_clusters()
    image = _ngca.ngca(X @ np.diag([1.0, 5.0, 0.1, 2.0, 3.0, 10.0]), 1, random_state=1)
    assert abs(np.corrcoef(image[:, 0], planted)[0, 1]) > 0.98


@pytest.mark.parametrize("family", range(4))
def test_ngca_vectors_by_the_definition(family):
    """E[y h(y) - grad h(y)] over its standard deviation, row by row, with a numerical gradient."""
    rows = np.random.RandomState(1).standard_normal((50, 3))
    w = np.array([[0.6, 0.0, 0.8], [0.0, 1.0, 0.0]])
    function = _ngca._families(2)[family]
    found = _ngca._scaled(rows, function, w)
    for k in range(2):

        def h(y, k=k):
            return function((y @ w.T)[None])[0][0, k]

        step = 1e-6 * np.eye(3)
        terms = np.array(
            [y * h(y) - [(h(y + e) - h(y - e)) / 2e-6 for e in step] for y in rows],
        )
        spread = np.sqrt(((terms - terms.mean(axis=0)) ** 2).sum(axis=1).mean())
        assert np.allclose(found[k], terms.mean(axis=0) / spread * np.sqrt(50), atol=1e-5)


def test_spectral_clustering_of_clusters_that_fall_apart():
    X, y = make_two_gaussians(200, random_state=0)
    assert _clustering.accuracy(X * [3, 1], y) == 100


def test_fastica_puts_the_least_gaussian_first():
    X, planted = two_clusters()
    for plane in _clustering.fastica_planes(X):
        assert plane.shape == (800, 2)
        assert abs(np.corrcoef(plane[:, 0], planted)[0, 1]) > 0.95


def test_split_digits_do_not_overlap():
    parts = split_digits(Setting(), 3, 500, 400, 300)
    assert [len(part) for part in parts] == [500, 400, 300]
    assert len(np.unique(np.concatenate(parts), axis=0)) == 1200


def test_one_gaussian_by_the_definition():
    from scipy.stats import multivariate_normal

    X = np.random.RandomState(0).standard_normal((40, 3))
    covariance = np.cov(X.T, bias=True) + 0.1 * np.eye(3)
    expected = multivariate_normal(X.mean(axis=0), covariance).logpdf(X).mean()
    assert np.isclose(figure_4._Gaussian(0.1).fit(X).score(X), expected, rtol=1e-12)


def test_walk_stops_when_validation_gets_worse():
    class Model:
        def __init__(self, reg):
            self.reg = reg

        def score(self, X):
            return -((self.reg - 2.0) ** 2)

    tried = []

    def fit(reg):
        tried.append(reg)
        return Model(reg)

    best = figure_4._walk(fit, [8.0, 4.0, 2.0, 1.0, 0.5], None, None)
    assert best["reg"] == 2.0
    assert tried == [8.0, 4.0, 2.0, 1.0]


def test_every_figure_is_there():
    covers = [cover for experiment in experiments("lca") for cover in experiment.module.COVERS]
    assert sorted(covers) == [f"figure {number}" for number in range(1, 6)]


def test_a_small_neighbourhood_has_to_hurt_on_test_rows_in_full_mode():
    def claims(test_of_few):
        cost = {1000: (6.8, test_of_few), 3000: (2.5, -0.8), 6000: (0.0, 0.0)}
        mean = {(g, b, n): np.array(cost[n]) for g in (0.3, 0.6) for b in cost for n in cost}
        return figure_5._claims(Setting(full=True), tuple(cost), mean)

    assert all(claim.holds for claim in claims(2.0))
    assert [bool(claim.holds) for claim in claims(0.5)] == [True] * 5 + [False]


def test_the_papers_likelihoods_are_met_within_two_nats():
    mean = {name: value for name, (value, _) in figure_4._PAPER.items()}
    gain = {"Gaussian": 12.0, "LCA - Full": 13.5}
    (claim,) = [c for c in figure_4._claims_of_numbers(mean, gain) if "the numbers of" in c.says]
    assert claim.holds
    mean["Gaussian"] -= 2.2
    (claim,) = [c for c in figure_4._claims_of_numbers(mean, gain) if "the numbers of" in c.says]
    assert claim.fails
