"""What the figures of the RCA paper share: faces, teachers, sets, exact ratios."""

import numpy as np
import pytest

from vicinal import RCA
from vicinal.papers._experiment import Setting, experiments
from vicinal.papers.rca import _faces, _uci, equation_12, figure_10, figure_11
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
    [("wine", 178, 13, 3), ("balance", 625, 4, 3), ("iris", 150, 4, 3), ("digits 0-3", 48, 64, 4)],
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
    assert covers >= {f"figure {n}" for n in (1, 3, 4, 5, 6, 7, 8, 9, 10, 11)} | {"equation 12", "section 9.2"}
