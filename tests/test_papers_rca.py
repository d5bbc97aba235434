"""Test the shared parts of the figures of the RCA paper: faces, teachers, sets, exact ratios."""

import numpy as np
import pytest
from papers.experiment import Setting, experiments
from papers.rca import (
    _faces,
    _film,
    _uci,
    _xing,
    equation_12,
    figure_4,
    figure_8,
    figure_9,
    figure_10,
    figure_11,
    section_9_2,
)
from scipy.spatial.distance import cdist
from sklearn.datasets import load_iris

from vicinal import RCA
from vicinal.companions import MMC
from vicinal.quality import neighbor_purity

QUICK = Setting()


@pytest.fixture(scope="module")
def faces():
    return _faces.coefficients(QUICK)


def test_drawn_faces_are_those_of_the_paper_in_number():
    pictures, people, lights = _faces.faces(QUICK)
    assert pictures.shape == (1920, 400)
    assert np.bincount(people).tolist() == [64] * 30
    assert len(np.unique(lights, axis=0)) == 64
    assert np.array_equal(pictures, _faces.drawn_faces()[0])


def test_coefficients_are_of_normalised_pictures(faces):
    X = faces[0]
    assert X.shape == (1920, 60)
    rows = _faces.normalised(_faces.faces(QUICK)[0])
    assert np.allclose(rows.mean(axis=1), 0)
    assert np.allclose(rows.std(axis=1), 1)
    assert np.all(np.diff(X.var(axis=0)) < 0)


@pytest.mark.parametrize(("percent", "teachers"), [(10, 3), (30, 10), (75, 24)])
def test_teachers_see_two_pictures_a_person(faces, percent, teachers):
    assert _faces.n_teachers(faces[1], percent) == teachers
    rows, ids = _faces.taught(faces[1], percent, 0)
    assert len(rows) <= 60 * teachers
    assert all(len(np.unique(faces[1][rows[ids == group]])) == 1 for group in np.unique(ids))


def test_pairs_apart_are_of_different_people(faces):
    people = faces[1]
    (rows, ids), apart = _faces.taught_both_ways(people, 10, 0)
    assert np.all(people[apart[:, 0]] != people[apart[:, 1]])
    assert all(len(np.unique(people[rows[ids == group]])) == 1 for group in np.unique(ids))
    # 3 teachers with about 52 of 60 pictures in groups each
    assert 3 * 900 < len(apart) < 3 * 1770


def test_discriminants_have_unit_total_variance(faces):
    X, people = faces
    A = _faces.discriminants(RCA(5, shrinkage=0).fit(X, people))
    assert np.allclose((X @ A.T).var(axis=0), 1)
    assert np.allclose(np.cov((X @ A.T).T), np.eye(5) * 1920 / 1919)


def test_purity_is_kept_at_the_places(faces):
    X, people = faces[0][:300], faces[1][:300]
    expected = neighbor_purity(X, people, 64)[[place - 1 for place in _faces.PLACES]]
    assert np.allclose(_faces.purity(X, people), expected, atol=5e-5)


@pytest.mark.parametrize(
    ("name", "rows", "columns", "classes"),
    [("wine", 178, 13, 3), ("balance", 625, 4, 3), ("iris", 150, 4, 3), ("small digits", 48, 64, 4)],
)
def test_quick_sets_need_no_files(name, rows, columns, classes):
    X, y = _uci.rows_of(QUICK, name)
    assert X.shape == (rows, columns)
    assert len(np.unique(y)) == classes


def test_exact_ratio_of_variances():
    """(nk - 1) / (n (k - 1)), below the bound 1 + 1 / (k - 1) and near it."""
    assert equation_12._exact(2) == pytest.approx(119 / 60)
    for k in equation_12._SIZES:
        assert 0.99 * (1 + 1 / (k - 1)) < equation_12._exact(k) < 1 + 1 / (k - 1)


def test_a_unit_of_clustering_scores_every_method():
    result = figure_10.measure(QUICK, set="iris", amount="much", run=0)
    assert list(result["score"]) == list(figure_10._METHODS)
    assert all(0.5 < score <= 1 for score in result["score"].values())


def test_symmetric_root_whitens_the_average_of_the_classes():
    X, y = figure_11._classes(0)
    Z = figure_11._aligned(X, y)
    within = np.mean([np.cov(Z[y == k].T, bias=True) for k in (0, 1)], axis=0)
    assert np.allclose(within, np.eye(3))


def test_every_figure_of_the_paper_is_there():
    covers = {cover for experiment in experiments("rca") for cover in experiment.module.COVERS}
    assert covers >= {f"figure {n}" for n in range(1, 12)} | {"equation 12", "section 9.2"}


def test_a_claim_that_hangs_on_the_scale_of_fld_is_told_so():
    def curve(last):
        return [0.9] * (len(_faces.PLACES) - 1) + [last]

    fixed = {"pca": 0.14, "fld": 0.42, "whitened": 0.52, "unit": 0.48}
    records = [{"kind": kind, "purity": curve(last)} for kind, last in fixed.items()]
    seen = {10: 0.37, 30: 0.45, 75: 0.47}
    records += [
        {"kind": "rca", "percent": p, "run": 0, "purity": curve(v), "sizes": [5, 4, 2]} for p, v in seen.items()
    ]
    remarks = " ".join(figure_4.summarise(QUICK, records).remarks)
    assert "is then below it" in remarks
    assert "depends on this choice" in remarks


@pytest.mark.parametrize(("three", "holds"), [(0.54, True), (0.546, False)])
def test_most_of_the_gain_is_asked_of_chunklets_of_three_in_both_readings(three, holds):
    errors = {2: 0.56, 3: three, 4: 0.537, 5: 0.535, 10: 0.53}
    records = [
        {"size": size, "reading": reading, "run": run, "error": error + 0.001 * run, "points": 576, "contrasts": 300}
        for size, error in errors.items()
        for reading in figure_8._READINGS
        for run in (0, 1)
    ]
    claims = [claim for claim in figure_8.summarise(QUICK, records).claims if "3 points" in claim.says]
    assert [claim.holds for claim in claims] == [holds] * 2


def test_errors_that_rise_with_the_size_of_chunklets_do_not_fall():
    def falls(errors):
        cells = {size: [error - 1e-3, error + 1e-3] for size, error in errors.items()}
        return figure_8._largest_rise(cells)

    assert falls({2: 0.56, 3: 0.55, 10: 0.54})[0] < 0
    rise, at = falls({2: 0.56, 9: 0.532, 10: 0.548})
    assert at == 10
    assert np.isclose(rise, 0.016 / np.hypot(1e-3, 1e-3))


@pytest.mark.parametrize("size", [2, 5, 7, 10])
def test_chunklets_as_printed_leave_one_that_is_smaller(faces, size):
    people = faces[1]
    rows, ids = figure_8._as_printed(people, size, 0)
    sizes = np.sort(np.bincount(ids))
    assert len(np.unique(rows)) == len(rows)
    assert len(rows) == 576 - (576 % size == 1)
    assert np.all(sizes[1:] == size)
    assert all(len(np.unique(people[rows[ids == group]])) == 1 for group in np.unique(ids))


def test_uncertainty_of_a_share_by_simulation():
    rng = np.random.RandomState(0)
    errors = {size: mean + 0.006 * rng.standard_normal(20) for size, mean in {2: 0.56, 3: 0.546, 10: 0.53}.items()}
    drawn = {s: v.mean() + v.std(ddof=1) / np.sqrt(20) * rng.standard_normal(50_000) for s, v in errors.items()}
    shares = (drawn[2] - drawn[3]) / (drawn[2] - drawn[10])
    assert figure_8._uncertainty(errors) == pytest.approx(shares.std(), rel=0.1)


@pytest.mark.parametrize(
    ("rca", "holds"),
    [(0.95, [True, True]), (0.88, [True, False]), (0.76, [False, False])],
)
def test_a_metric_that_helps_much_more_helps_twice_as_much_in_two_readings(rca, holds):
    score = {"a": 0.7, "b": 0.78, "c": 0.8, "d": rca, "e": 0.7, "f": 0.9, "d'": 0.9, "f'": 0.9}
    records = [{"set": "wine", "amount": amount, "run": 0, "score": score} for amount in ("little", "much")]
    records.append(
        {"set": "wine", "amount": "shape", "P": 178, "M": 3, "D": 13, "Kc": {"little": 160.0, "much": 125.0}}
    )
    claims = [c for c in figure_10.summarise(QUICK, records).claims if "much more" in c.says]
    assert [c.holds for c in claims] == 2 * holds


def pairs_of(y):
    left, right = np.triu_indices(len(y), 1)
    same = y[left] == y[right]
    return left[same], right[same], left[~same], right[~same]


def test_the_published_algorithm_stays_below_the_maximum():
    """Same problem, same scale: Xing's steps rise and end below what `MMC` proves to be the maximum."""
    X, y = load_iris(return_X_y=True)
    X = RCA().fit_transform(X, y) @ np.diag(
        [1.0, 1.5, 0.7, 1.2]
    )  # projections end soon where pairs alike are nearly round
    a, b, c, d = pairs_of(y)
    alike, apart = X[a] - X[b], X[c] - X[d]

    def objective(A):
        square = np.mean(np.sum((alike @ A.T) ** 2, axis=1))
        return np.mean(np.linalg.norm(apart @ A.T, axis=1)) / np.sqrt(square)

    fit = _xing.xing_metric(alike, apart)
    best = MMC().fit(X, y)
    assert fit.n_accepted > 1
    assert objective(np.eye(4)) < objective(fit.components) <= objective(best.components_) * (1 + best.gap_)


def test_projections_of_the_published_algorithm_meet_both_constraints():
    rng = np.random.default_rng(0)
    scatter = rng.normal(size=(5, 3))
    scatter = scatter.T @ scatter
    scatter += 5 * np.eye(3)  # rounds grow with the square of the condition number
    M, rounds, ended = _xing._project(np.eye(3) + 0.1, scatter, 0.01, 5000)
    assert ended
    assert rounds > 1
    assert np.vdot(scatter, M) <= 0.01 * 1.01
    assert np.linalg.eigvalsh(M)[0] >= -1e-12
    assert not _xing._project(np.eye(3), scatter, 1e-9, 2)[2]


def test_colours_in_lab_are_those_of_the_textbook():
    colours = np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    known = [[100, 0, 0], [0, 0, 0], [53.24, 80.09, 67.20], [87.73, -86.18, 83.18], [32.30, 79.19, -107.86]]
    np.testing.assert_allclose(_film.lab(colours), known, atol=0.15)


def test_a_film_has_its_clips_and_histograms_of_share_one():
    film = _film.drawn_film(4, 9, 20, random_state=0)
    assert np.allclose(film.histograms.sum(axis=1), 1)
    assert film.histograms.shape == (len(film.people), 125)
    assert len(np.unique(film.clips)) == 9
    assert all(len(np.unique(film.people[film.clips == clip])) == 1 for clip in range(9))
    assert film.pictures.shape[0] == 6
    assert film.pictures.min() >= 0
    assert film.pictures.max() <= 1
    again = _film.drawn_film(4, 9, 20, random_state=0)
    assert np.array_equal(film.histograms, again.histograms)


def test_purity_in_l1_distance_is_literal(monkeypatch):
    monkeypatch.setattr(figure_9, "_PLACES", (1, 3, 5))
    rng = np.random.default_rng(0)
    rows, people = rng.random((30, 4)), rng.integers(0, 3, 30)
    distances = cdist(rows, rows, "cityblock") + np.diag(np.full(30, np.inf))
    order = np.argsort(distances, axis=1)
    expected = [np.mean(people[order[:, :k]] == people[:, None]) for k in (1, 3, 5)]
    np.testing.assert_allclose(figure_9._purity_by_l1(rows, people), expected, atol=1e-4)


def test_random_chunklets_have_the_sizes_of_the_clips():
    film = _film.drawn_film(4, 9, 20, random_state=0)
    others = figure_9._same_sizes(film.people, film.clips, np.random.RandomState(0))
    assert np.array_equal(np.bincount(others), np.bincount(film.clips))
    assert all(len(np.unique(film.people[others == clip])) == 1 for clip in range(9))
    assert not np.array_equal(others, film.clips)


def test_all_k_are_judged():
    places = np.array(figure_9._PLACES)
    rng = np.random.default_rng(0)

    def curves(gain):
        return (gain + 0.001 * rng.random((4, len(places)))).round(4).tolist()

    records = []
    for kind in figure_9._KINDS:
        for run in range(4):
            loss = np.where(places <= 32, -0.02, 0.02)
            record = {"kind": kind, "run": run, "before": curves(0.2)[run], "clips": curves(0.5)[run], "n": [10, 2]}
            record["independent"] = (0.5 + loss + 0.001 * rng.random(len(places))).round(4).tolist()
            record["euclidean"] = curves(0.2)[run]
            records.append(record)
    told = [c for c in figure_9.summarise(QUICK, records).claims if "dependent" in c.says]
    assert len(told) == 2
    assert not any(c.holds for c in told)


def test_pooled_residuals_of_gaussian_classes_pass_and_others_fail():
    rng = np.random.RandomState(0)
    classes = np.repeat([0, 1, 2], 20)
    gaussian = rng.standard_normal((60, 3)) @ rng.standard_normal((3, 3)) + 5 * classes[:, None]
    skewed = rng.exponential(size=(60, 3)) + 5 * classes[:, None]
    assert np.allclose(section_9_2._residuals(gaussian, classes)[:20].mean(axis=0), 0)
    fine, bad = (section_9_2._pooled(rows, classes, 199) for rows in (gaussian, skewed))
    assert min(fine["skewness"], fine["kurtosis"]) > 0.05
    assert bad["skewness"] <= 0.01
