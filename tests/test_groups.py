"""Test that groups of outliers in the training rows do not raise each other's scores."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import KFold
from sklearn.neighbors import KernelDensity
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from vicinal import LCA, DensityOutlierDetector, Engine, LCAGauss, LocalLCA, ManifoldParzen, ParzenWindows, io
from vicinal._detect import scores
from vicinal._detect.scores import (
    Part,
    ScoreScale,
    lowest_of,
    scale_of_scores,
    training_scores,
    weighted_quantile,
)
from vicinal._detect.training_rows import held_out_parts, held_out_rows, refitted_parts

pytestmark = pytest.mark.usefixtures("short_search_in_this_file")


def with_group(d, sd, *, n=300, size=20, seed=0):
    """Usual rows and a group apart from them."""
    rng = np.random.default_rng(seed)
    centre = np.r_[np.sqrt(d) + 3.0, np.zeros(d - 1)]
    X = np.vstack([rng.normal(size=(n, d)), sd * rng.normal(size=(size, d)) + centre])
    return X, np.arange(n + size) >= n


@pytest.mark.parametrize("d", [2, 5, 20])
@pytest.mark.parametrize("sd", [0.0, 0.2, 0.7])
def test_a_group_is_found_however_tight_it_is(d, sd):
    """The members of a tight group are the densest rows of all, to a narrow kernel."""
    X, is_outlier = with_group(d, sd)
    X[is_outlier] += 1e-6 * np.random.default_rng(1).normal(size=(20, d))  # exact twins have a warning of their own
    plain = DensityOutlierDetector(largest_group=None).fit(X)
    detector = DensityOutlierDetector(contamination=0.1).fit(X)
    # In 2 columns isolated rows at the edge of the cloud are stranger than a group: their neighbours are far apart.
    assert roc_auc_score(is_outlier, -detector.training_scores_) > (0.97 if d == 2 else 0.99)
    more, is_more = with_group(d, sd, seed=2)
    # A wide group in 2 columns hides nothing: its rows are as sparse as the edge of the cloud.
    assert roc_auc_score(is_more, -detector.score_samples(more)) > (0.95 if d == 2 and sd == 0.7 else 0.98)
    if sd < 0.5:
        assert roc_auc_score(is_outlier, -plain.training_scores_) < 0.8
    if d < 20:
        assert (detector.labels_[is_outlier] == -1).all()
        # Another row of the group is strange, too, and a usual one is not.
        new = np.vstack([X[-1] + 0.01, np.zeros(d)])
        assert detector.predict(new).tolist() == [-1, 1]


def by_hand(X, rows, kept, left_out):
    """The first two scores of rows under a kernel of width 0.6, from those of 90 rows that are kept."""
    distances = np.sqrt(np.square(rows[:, None] - X[None]).sum(axis=2))
    if left_out:
        np.fill_diagonal(distances, np.inf)
    kernel = np.exp(-0.5 * distances[:, kept] ** 2 / 0.36) / (2 * np.pi * 0.36) ** 1.5
    # 12 % of 90 rows are 10.8: the eleventh neighbour is outside of a group of eleven rows.
    return (
        np.log(kernel.sum(axis=1) / (kept.sum() - (kept if left_out else 0))),
        -0.5 * (np.sort(distances, axis=1)[:, 10] / 0.6) ** 2,
    )


def lowest_by_hand(views, of=None):
    """The lowest of some scores on the scale of the first, that of the rows `of`."""
    scales = [np.sort(view)[[22, 45, 67]] for view in (views if of is None else of)]
    z = [(view - median) / (high - low) for view, (low, median, high) in zip(views, scales, strict=True)]
    low, median, high = scales[0]
    return median + (high - low) * np.min(z, axis=0)


def test_scores_of_new_rows_are_the_lower_of_two_literally():
    X, _ = with_group(3, 0.3, n=80, size=6)
    X = np.vstack([X, np.random.default_rng(2).normal(size=(4, 3))])
    detector = DensityOutlierDetector(ParzenWindows(0.6), largest_group=0.12).fit(X)
    new, everyone = np.random.default_rng(3).normal(size=(5, 3)) * 3, np.ones(90, dtype=bool)
    own, asked = by_hand(X, X, everyone, True), by_hand(X, new, everyone, False)
    np.testing.assert_allclose(detector.score_samples(new), lowest_by_hand(asked, own), rtol=1e-9)
    # They are ranked among the scores of the training rows by the same rule.
    among = np.sort(lowest_by_hand(own))
    expected = [(1 + np.sum(among <= score)) / 91 for score in detector.score_samples(new)]
    np.testing.assert_allclose(detector.p_values(new), expected)
    assert detector.offset_ == pytest.approx(
        among[0]
    )  # among 90 rows, no p-value is 1 % unless a row is below all of them


@pytest.mark.parametrize("contamination", [0.05, 0.1])
def test_training_rows_are_ranked_by_the_lower_of_two_scores_literally(contamination):
    X, _ = with_group(3, 0.3, n=80, size=6)
    X = np.vstack([X, np.random.default_rng(2).normal(size=(4, 3))])
    scores = lowest_by_hand(by_hand(X, X, np.ones(90, dtype=bool), True))
    detector = DensityOutlierDetector(ParzenWindows(0.6), largest_group=0.12, contamination=contamination).fit(X)
    assert np.diff(detector.training_scores_[np.argsort(scores)]).min() >= -1e-9
    np.testing.assert_allclose(detector.training_p_values_, [np.mean(scores <= score) for score in scores])
    count = int(90 * contamination)
    assert np.flatnonzero(detector.labels_ == -1).tolist() == np.sort(np.argsort(scores)[:count]).tolist()


@pytest.mark.parametrize("weighted", [False, True])
def test_the_third_score_of_more_than_200_training_rows_is_the_kernel_at_the_twentieth_nearest(weighted):
    X, _ = with_group(2, 0.3, n=230, size=10)
    weight = np.where(np.arange(240) % 12 == 1, 0.0, 1.0) if weighted else None
    kept = np.ones(240, dtype=bool) if weight is None else weight > 0
    detector = DensityOutlierDetector(ParzenWindows(0.6), largest_group=0.12).fit(X, sample_weight=weight)
    alone = DensityOutlierDetector(ParzenWindows(0.6), largest_group=None).fit(X, sample_weight=weight)
    distances = np.sqrt(np.square(X[:, None] - X[None, kept]).sum(axis=2))
    distances[np.flatnonzero(kept), np.arange(kept.sum())] = np.inf
    in_order = -0.5 * np.square(np.sort(distances, axis=1) / 0.6)
    views = [alone.training_scores_, in_order[:, int(np.ceil(0.12 * kept.sum())) - 1], in_order[:, 19]]
    scales = [scale_of_scores(view, weight) for view in views]
    lowest = lowest_of(views, scales)
    shares = [np.mean(lowest[kept] <= score) for score in lowest]
    np.testing.assert_allclose(detector.training_p_values_, shares, atol=1e-12)
    # New rows are ranked by the first two scores, whose scales a row of weight 0 does not change.
    by_two = lowest_of(views[:2], scales[:2])
    new = np.random.default_rng(4).normal(size=(20, 2)) * 4.0
    expected = [(1 + np.mean(by_two[kept] <= score) * 240) / 241 for score in detector.score_samples(new)]
    np.testing.assert_allclose(detector.p_values(new), expected, rtol=1e-9)


def test_a_group_hides_if_more_than_a_fifth_of_the_most_unusual_rows_are_dense():
    """Of 100 rows, the most unusual 5 % are five; a group hides if two of them are outside of the least dense quarter."""
    for n_dense, hides in ((1, False), (2, True)):
        X, density = np.square(np.arange(10.0, 110.0))[:, None], np.linspace(0.0, 1.0, 100)
        X[:5] = -1e6 * np.arange(2, 7)[:, None]  # far from the others
        density[:5] = np.r_[np.full(n_dense, 0.9), np.full(5 - n_dense, -1.0)]
        part = Part(np.arange(100), X, np.ones(1), "reference", density)
        result = training_scores([part], X, np.ones(1), None, "auto")
        assert (result.groups is not None) == hides
        assert set(np.argsort(result.ranking)[:5]) == set(range(5))
        assert (result.scores is result.log_densities) == (not hides)


def test_new_rows_are_compared_with_the_density_alone_unless_a_group_hides():
    X, is_outlier = with_group(5, 0.2)
    usual = X[~is_outlier]
    alone, auto = (DensityOutlierDetector(ParzenWindows(0.6), largest_group=g).fit(usual) for g in (None, "auto"))
    new = np.random.default_rng(3).normal(size=(50, 5))
    np.testing.assert_array_equal(auto.score_samples(new), alone.score_samples(new))
    np.testing.assert_array_equal(auto.p_values(new), alone.p_values(new))
    assert (auto.training_p_values_ != alone.training_p_values_).any()  # whose order looks for groups
    both, auto = (DensityOutlierDetector(ParzenWindows(0.6), largest_group=g).fit(X) for g in (0.1, "auto"))
    np.testing.assert_array_equal(auto.score_samples(new), both.score_samples(new))
    np.testing.assert_array_equal(auto.training_p_values_, both.training_p_values_)


def test_equal_outliers_are_no_neighbours_of_each_other():
    """Twelve equal rows are dense, and all of them are left out."""
    rng = np.random.default_rng(6)
    X = np.vstack([rng.normal(size=(300, 3)), np.full((12, 3), 6.0) + 1e-6 * rng.normal(size=(12, 3))])
    detector = DensityOutlierDetector(ParzenWindows(0.5)).fit(X)
    assert set(np.argsort(detector.training_scores_)[:12]) == set(range(300, 312))
    assert detector.training_scores_[300:].max() < np.sort(detector.training_scores_[:300])[0] - 1.0


@pytest.mark.parametrize(("n_clusters", "d", "n"), [(4, 20, 100), (4, 3, 60), (5, 5, 300)])
def test_clusters_of_more_rows_than_a_group_are_usual(n_clusters, d, n):
    """Trimmed rounds dropped the least dense cluster whole: of four equal ones, one was flagged to the last row."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        centres, labels = 4 * rng.normal(size=(n_clusters, d)), np.arange(n) % n_clusters
        flagged = DensityOutlierDetector().fit(centres[labels] + rng.normal(size=(n, d))).labels_ == -1
        assert max(flagged[labels == c].mean() for c in range(n_clusters)) < 0.3
        assert flagged.mean() < 0.12


def test_many_rows_are_spoken_for_by_some(monkeypatch):
    X, is_outlier = with_group(3, 0.2, n=1500, size=100)
    detector = DensityOutlierDetector(ParzenWindows(0.4)).fit(X)
    assert len(detector._group_rows) == 400
    monkeypatch.setattr(scores, "_MOST_REFERENCES", 1600)
    by_all = DensityOutlierDetector(ParzenWindows(0.4)).fit(X)
    assert np.corrcoef(detector.training_scores_, by_all.training_scores_)[0, 1] > 0.99
    for one in (detector, by_all):
        assert roc_auc_score(is_outlier, -one.training_scores_) > 0.97


def test_left_out_scores_are_those_of_a_detector_without_the_row():
    """The row itself moves medians and quartiles by little: it counts as one row in a hundred."""
    X, _ = with_group(2, 0.5, n=150, size=10)
    density = ParzenWindows(0.5).fit(X)
    (part,) = held_out_parts(density)
    scores = training_scores([part], part.rows, part.units, None, 0.1).scores
    np.testing.assert_allclose(
        np.sort(scores), DensityOutlierDetector.from_density(density, largest_group=0.1)._sorted_scores
    )
    scale = scale_of_scores(scores, None)
    for i in [0, 40, 80, 120, 155]:
        without = DensityOutlierDetector(ParzenWindows(0.5), largest_group=0.1).fit(np.delete(X, i, axis=0))
        gap = abs(without.score_samples(X[i : i + 1])[0] - scores[i])
        assert gap < 0.1 * scale.width + 0.05 * abs(scores[i] - scale.median)


def test_units_change_nothing_where_the_density_does_not_see_them():
    X, _ = with_group(3, 0.3)
    one = DensityOutlierDetector(LCA()).fit(X)
    other = DensityOutlierDetector(LCA()).fit(X * [1e3, 1.0, 1e-3])
    np.testing.assert_allclose(one.training_p_values_, other.training_p_values_, atol=0.01)


def test_rows_of_weight_zero_vouch_for_nobody():
    X, is_outlier = with_group(2, 0.2)
    doubled = np.vstack([X, X[is_outlier] + 1e-3])
    weight = np.r_[np.ones(320), np.zeros(20)]
    one = DensityOutlierDetector(ParzenWindows(0.5)).fit(X)
    other = DensityOutlierDetector(ParzenWindows(0.5)).fit(doubled, sample_weight=weight)
    np.testing.assert_allclose(other.training_scores_[:320], one.training_scores_, rtol=1e-9)


EVERY_KIND = [
    ParzenWindows(),
    LCA(reg=0.05),
    LCAGauss(reg=0.05, reg_gauss=0.0),
    LocalLCA(1, 8, 0.02, shared=0.3, reg=0.05),
    LocalLCA(1, 8, 0.02, shared=0.3, center="mean", reg=0.05),
    LocalLCA(0, 8, 0.0, shared=1.0, reg=0.05),
    ManifoldParzen(1, 8, 0.02),
    ManifoldParzen(0, noise=0.02),
    ManifoldParzen(1, noise=0.02, vicinity="kernel", bandwidth=0.5),
    KernelDensity(bandwidth=0.3),
    GaussianMixture(3, random_state=0),
    make_pipeline(StandardScaler(), ParzenWindows()),
    make_pipeline(StandardScaler(), KernelDensity(bandwidth=0.3)),
    make_pipeline(PCA(2, random_state=0), ParzenWindows()),
]


@pytest.mark.parametrize("density", EVERY_KIND, ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_group_of_outliers_is_found_under_every_density(density, weighted):
    """The group is as dense as the rest, so that no density finds it alone."""
    X, is_outlier = with_group(3, 0.1, n=150, size=8)
    X[is_outlier] += [2.0, 0.0, 0.0]
    weight = np.random.default_rng(7).uniform(0.5, 1.5, size=len(X)) if weighted else None
    last = density[-1] if isinstance(density, Pipeline) else density
    if weighted and (isinstance(density, Pipeline) or isinstance(last, GaussianMixture)):
        return  # they take no weights
    detector = DensityOutlierDetector(density, contamination=0.06, largest_group=0.1).fit(X, sample_weight=weight)
    # Under the weighted folds of KernelDensity, one isolated row is more unusual than a member of the group.
    missed = int(weighted and isinstance(density, KernelDensity))
    assert (detector.labels_[is_outlier] == -1).sum() == 8 - missed
    assert len(set(np.argsort(detector.training_scores_)[:8]) & set(range(150, 158))) == 8 - missed
    more, is_more = with_group(3, 0.1, n=150, size=8, seed=2)
    more[is_more] += [2.0, 0.0, 0.0]
    assert roc_auc_score(is_more, -detector.score_samples(more)) > 0.99
    # Without the scores of groups the members raise each other's density, but for the density of one wide kernel or few of them.
    alone = DensityOutlierDetector(density, contamination=0.06, largest_group=None).fit(X, sample_weight=weight)
    assert (alone.labels_[is_outlier] == -1).mean() < 0.6


@pytest.mark.parametrize("density", EVERY_KIND, ids=str)
def test_new_rows_are_ranked_as_training_rows_are_under_every_density(density):
    """P-values of new rows are uniform."""
    X, new = np.random.default_rng(0).normal(size=(200, 3)), np.random.default_rng(1).normal(size=(1000, 3))
    p = DensityOutlierDetector(density).fit(X).p_values(new)
    assert 0.43 < p.mean() < 0.57
    assert np.mean(p <= 0.1) < 0.17


def test_saved_detectors_of_every_density_score_groups_alike(tmp_path):
    X, _ = with_group(3, 0.1, n=100, size=8)
    for i, density in enumerate(EVERY_KIND):
        if "KernelDensity" in str(density):
            continue  # model files do not hold it
        detector = DensityOutlierDetector(density, largest_group=0.1).fit(X)
        assert detector._group_rows is not None
        io.save(detector, tmp_path / f"{i}.vicinal")
        again = io.load(tmp_path / f"{i}.vicinal")
        np.testing.assert_array_equal(again.p_values(X), detector.p_values(X))


def test_few_rows_and_rows_of_one_density_score_alone():
    X = np.random.default_rng(4).normal(size=(9, 2))
    assert DensityOutlierDetector(ParzenWindows(1.0)).fit(X)._group_rows is None
    circle = np.column_stack([np.cos(np.arange(24)), np.sin(np.arange(24))]) * [[1.0]]
    grid = np.repeat(np.arange(4.0) * 100, 6)[:, None] + 0 * circle[:, :1]
    detector = DensityOutlierDetector(ParzenWindows(1.0)).fit(grid)  # all rows have the same neighbours
    assert detector._group_rows is None
    assert np.isfinite(detector.training_scores_).all()


def test_saved_detectors_answer_alike(tmp_path):
    X, _ = with_group(3, 0.3)
    detector = DensityOutlierDetector().fit(X)
    io.save(detector, tmp_path / "detector.vicinal")
    again = io.load(tmp_path / "detector.vicinal")
    new = 2.0 * np.random.default_rng(5).normal(size=(20, 3))
    np.testing.assert_array_equal(again.p_values(new), detector.p_values(new))
    np.testing.assert_array_equal(again.labels_, detector.labels_)
    np.testing.assert_allclose(again.explain(new).shares, detector.explain(new).shares)
    # A refit forgets what was kept for the first one.
    refitted = again.fit(X[:200])
    fresh = DensityOutlierDetector().fit(X[:200])
    np.testing.assert_array_equal(refitted.score_samples(new), fresh.score_samples(new))
    np.testing.assert_array_equal(refitted.explain(new).shares, fresh.explain(new).shares)


@pytest.mark.parametrize("engine", ["cpu", "reference", Engine("cpu", precision="float32")])
def test_engines_agree(engine):
    X, _ = with_group(3, 0.3)
    one = DensityOutlierDetector(ParzenWindows(0.5)).fit(X)
    other = DensityOutlierDetector(ParzenWindows(0.5, engine=engine)).fit(X)
    np.testing.assert_allclose(one.training_scores_, other.training_scores_, rtol=2e-3, atol=2e-3)


def test_weighted_quantiles_and_scales():
    values = np.array([3.0, 1.0, 2.0, 4.0])
    assert [weighted_quantile(values, None, share) for share in (0.0, 0.25, 0.5, 0.99)] == [1.0, 2.0, 3.0, 4.0]
    assert weighted_quantile(values, np.array([0.0, 5.0, 1.0, 1.0]), 0.5) == 1.0
    views = [np.array([0.0, 1.0]), np.array([10.0, 0.0])]
    lowest = lowest_of(views, [ScoreScale(0.0, 1.0), ScoreScale(10.0, 5.0)])
    np.testing.assert_allclose(lowest, [0.0, -2.0])


def test_all_rows_may_remain_neighbours():
    """Rows that are equally strange are all kept, so that there are no others to score."""
    corners = np.array(np.meshgrid([0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0])).reshape(4, -1).T
    detector = DensityOutlierDetector(ParzenWindows(0.5)).fit(corners)
    np.testing.assert_allclose(detector.training_scores_, detector.training_scores_[0])
    (part,) = held_out_rows(detector.density_, np.arange(len(corners)))
    everyone = np.ones(len(corners), dtype=bool)
    alone = detector.density_.mixture_.left_out_score_samples()
    np.testing.assert_allclose(part.remaining(everyone).log_densities(corners), alone, rtol=1e-12)
    some = everyone & (np.arange(len(corners)) > 2)
    rest = ParzenWindows(0.5).fit(corners[3:])
    expected = np.r_[rest.score_samples(corners[:3]), rest.score_samples(None)]
    np.testing.assert_allclose(part.remaining(some).log_densities(corners), expected, rtol=1e-12)


@pytest.mark.parametrize("density", [LocalLCA(1, 8, 0.02, shared=0.3, reg=0.05), LCA(reg=0.05)], ids=str)
def test_rows_that_are_left_out_are_left_out_of_the_densities_of_all_folds(density):
    """A fold's density has the components of the other folds, which have other positions than the training rows."""
    X, _ = with_group(3, 0.5, n=60, size=4)
    remaining = np.random.default_rng(0).uniform(size=64) > 0.3
    parts = list(density.fit(X)._held_out_rows(np.arange(64)))
    assert len(parts) == 5
    for part in parts:
        rest = part.remaining(remaining).mixture
        np.testing.assert_array_equal(rest.log_weights > -np.inf, remaining[part.made_from])
        assert np.exp(rest.log_weights).sum() == pytest.approx(1.0)


@pytest.mark.parametrize("density", [KernelDensity(bandwidth=0.4), make_pipeline(StandardScaler(), KernelDensity())])
def test_rows_are_left_out_of_the_fits_of_other_densities(density):
    X = with_group(3, 0.5, n=60, size=4)[0] * [1.0, 100.0, 0.01]
    folds = KFold(4, shuffle=True, random_state=0).split(X)
    for part, (train, test) in zip(refitted_parts(density, 4, X, X, None), folds, strict=True):
        np.testing.assert_allclose(part.log_densities, clone(density).fit(X[train]).score_samples(X[test]))
        np.testing.assert_allclose((part.rows * part.units).std(axis=0), 1.0)  # distances are in standard deviations
