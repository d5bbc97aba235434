"""What the figures of the RCA paper share: faces, teachers, sets, exact ratios."""

import numpy as np
import pytest

from vicinal import RCA
from vicinal.papers._experiment import Setting, experiments
from vicinal.papers.rca import _faces, _uci, equation_12, figure_4, figure_8, figure_10, figure_11
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
def test_most_of_the_gain_is_asked_of_chunklets_of_three(three, holds):
    errors = {2: 0.56, 3: three, 4: 0.537, 5: 0.535, 6: 0.534, 8: 0.532, 10: 0.53}
    records = [
        {"size": size, "run": run, "error": error + 0.001 * run} for size, error in errors.items() for run in (0, 1)
    ]
    claim = figure_8.summarise(QUICK, records).claims[1]
    assert "3 points" in claim.says
    assert claim.holds == holds
    assert not claim.fails


def test_uncertainty_of_a_share_by_simulation():
    rng = np.random.RandomState(0)
    errors = {size: mean + 0.006 * rng.standard_normal(20) for size, mean in {2: 0.56, 3: 0.546, 10: 0.53}.items()}
    drawn = {s: v.mean() + v.std(ddof=1) / np.sqrt(20) * rng.standard_normal(50_000) for s, v in errors.items()}
    shares = (drawn[2] - drawn[3]) / (drawn[2] - drawn[10])
    assert figure_8._uncertainty(errors) == pytest.approx(shares.std(), rel=0.1)


@pytest.mark.parametrize(("rca", "holds", "fails"), [(0.95, True, False), (0.85, False, False), (0.76, False, True)])
def test_a_metric_that_helps_much_more_helps_twice_as_much(rca, holds, fails):
    score = {"a": 0.7, "b": 0.78, "c": 0.8, "d": rca, "e": 0.7, "f": 0.9, "d'": 0.9}
    records = [{"set": "wine", "amount": amount, "run": 0, "score": score} for amount in ("little", "much")]
    claims = [c for c in figure_10.summarise(QUICK, records).claims if "much more" in c.says]
    assert [c.holds for c in claims] == [holds, holds]
    assert [c.fails for c in claims] == [fails, fails]
