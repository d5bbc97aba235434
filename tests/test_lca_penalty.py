"""The penalty R of LCA and LCA-Gauss: numbers, vectors, matrices, and the search of reg="auto"."""

import numpy as np
import pytest
from sklearn.covariance import ledoit_wolf
from sklearn.datasets import load_iris, load_wine
from sklearn.preprocessing import StandardScaler

from vicinal import LCA, LCAGauss, LocalLCA, ParzenWindows, io
from vicinal._lca.penalty import (
    as_parameter,
    check_reg,
    family_matrix,
    free_parameters,
    has_plenty,
    rounding_variances,
    shrunk_covariance,
)
from vicinal._lca.penalty_search import search, search_penalty, split_folds
from vicinal._lca.steps import Structure
from vicinal._search import fixed_folds

WINE = load_wine().data
IRIS = load_iris().data


@pytest.fixture(scope="module")
def wine():
    """One default fit to raw wine."""
    return LCA().fit(WINE)


def spread_matrix(d, seed=0):
    """A positive definite matrix."""
    root = np.random.default_rng(seed).normal(size=(d, d))
    return 0.1 * (root @ root.T + np.eye(d))


def literal_objective(X, lca):
    """Eq. 1 with the penalty, written out."""
    precision = np.linalg.inv(lca.covariance_)
    differences = X[:, None] - X[None]
    scores = -0.5 * np.einsum("ijk,kl,ijl->ij", differences, precision, differences)
    np.fill_diagonal(scores, -np.inf)
    log_norm = 0.5 * np.linalg.slogdet(precision)[1] - 0.5 * X.shape[1] * np.log(2 * np.pi)
    means = np.log(np.exp(scores).sum(axis=1) / (len(X) - 1)) + log_norm
    return means.mean() - 0.5 * np.trace(precision @ lca.reg_)


# -- what may be passed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("structure", [("full", None), ("diag", None), ("spherical", None), ("low_rank", 2)])
def test_the_objective_and_the_step_have_the_matrix(structure):
    R = spread_matrix(4)
    lca = LCA(structure[0], rank=structure[1], reg=R, solver="em", tol=1e-13).fit(IRIS)
    np.testing.assert_allclose(lca.objectives_[-1], literal_objective(IRIS, lca), rtol=1e-10)
    assert np.all(np.diff(lca.objectives_) > -1e-12)
    fast = LCA(structure[0], rank=structure[1], reg=R, solver="accelerated", tol=1e-12).fit(IRIS)
    np.testing.assert_allclose(fast.objectives_[-1], lca.objectives_[-1], atol=1e-8)
    if structure[0] == "full":
        assert np.linalg.eigvalsh(lca.covariance_ - R)[0] > 0  # Sigma >= R


def test_a_number_a_vector_and_a_matrix_are_one_penalty():
    number, vector, matrix = (LCA(reg=reg).fit(IRIS) for reg in (0.05, np.full(4, 0.05), 0.05 * np.eye(4)))
    np.testing.assert_array_equal(number.covariance_, vector.covariance_)
    np.testing.assert_array_equal(number.covariance_, matrix.covariance_)
    assert number.reg_search_ is None


def test_a_matrix_is_carried_by_a_linear_map():
    R, A = spread_matrix(4), np.random.default_rng(1).normal(size=(4, 4))
    here, there = LCA(reg=R).fit(IRIS), LCA(reg=A @ R @ A.T).fit(IRIS @ A.T)
    np.testing.assert_allclose(there.covariance_, A @ here.covariance_ @ A.T, rtol=1e-5)


@pytest.mark.parametrize(
    ("reg", "error", "message"),
    [
        ("large", ValueError, "reg must be 'auto', a number"),
        (-1.0, ValueError, "at least 0"),
        ([0.1, -0.1, 0.1, 0.1], ValueError, "variances, which must not be negative"),
        ([0.1, 0.1], ValueError, r"shape \(4,\) or \(4, 4\) for 4 features, got \(2,\)"),
        (np.triu(np.ones((4, 4))), ValueError, "must be symmetric"),
        (-np.eye(4), ValueError, "positive semidefinite"),
        (np.full((4, 4), np.nan), ValueError, "finite"),
        (np.array(["a"] * 4), TypeError, "must hold numbers"),
        (True, TypeError, "must be a number"),
    ],
)
def test_what_is_no_penalty_is_refused(reg, error, message):
    with pytest.raises(error, match=message):
        LCA(reg=reg).fit(IRIS)


# -- the search ---------------------------------------------------------------------------------------------------


def test_the_penalty_that_was_used_gives_the_same_fit(wine):
    again = LCA(reg=wine.reg_).fit(WINE)
    np.testing.assert_array_equal(again.covariance_, wine.covariance_)
    np.testing.assert_array_equal(again.objectives_, wine.objectives_)
    gauss = LCAGauss(max_iter=20, tol=1e-3).fit(IRIS)
    again = LCAGauss(reg=gauss.reg_, reg_gauss=gauss.reg_gauss_, max_iter=20, tol=1e-3).fit(IRIS)
    np.testing.assert_array_equal(again.covariance_, gauss.covariance_)


@pytest.mark.slow
def test_held_out_rows_are_better_than_without_a_penalty():
    rng = np.random.default_rng(0)
    test = np.isin(np.arange(len(WINE)), rng.choice(len(WINE), 60, replace=False))
    # Measured: -15.1 with the search, -17.2 without a penalty (standardised columns).
    rows = StandardScaler().fit_transform(WINE)
    searched = LCA().fit(rows[~test]).score(rows[test])
    plain = LCA(reg=0.0).fit(rows[~test]).score(rows[test])
    assert searched > plain + 1.0


def test_scalings_and_shifts_of_columns_and_the_order_of_rows_change_nothing(wine):
    scale = 10.0 ** np.arange(-6, 7)
    moved = LCA().fit(WINE * scale + 3.0)
    np.testing.assert_allclose(moved.covariance_, wine.covariance_ * np.outer(scale, scale), rtol=1e-5)
    turned = LCA(random_state=5).fit(WINE[::-1])
    np.testing.assert_allclose(turned.covariance_, wine.covariance_, rtol=1e-6)


def test_the_table_of_the_search(wine):
    table = wine.reg_search_
    assert set(table) == {"family", "factor", "weight", "mean_test_score", "std_test_score"}
    assert set(table["family"][table["weight"] == 0]) == {"diagonal", "shrunk", "sample"}
    assert set(table["family"][table["weight"] > 0]) == {"diagonal"}
    used = check_reg(wine.reg_, 13)
    alike = (table["weight"] > 0) == (used.weight is not None)
    best = int(np.where(alike, table["mean_test_score"], -np.inf).argmax())
    matrix, rounding = family_matrix(table["family"][best], WINE), np.diag(rounding_variances(WINE))
    of_family = used.matrix - (rounding if used.weight is None else rounding * (1.0 + 1.0 / used.weight))
    factor = of_family[0, 0] / matrix[0, 0]
    np.testing.assert_allclose(of_family, factor * matrix, atol=1e-12 * matrix.max())
    place = factor / table["factor"][best] if used.weight is None else used.weight / table["weight"][best]
    assert 10**-0.5 <= place <= 10**0.5
    assert set(LCA("diag").fit(IRIS[:60]).reg_search_["family"]) == {"diagonal"}
    assert not LCA("spherical").fit(IRIS[:60]).reg_search_["weight"].any()


class Parabolas:
    """A fold with known scores: a parabola in the logarithm of the factor, with a top and a height per family."""

    def __init__(self, tops, slope=0.04):
        self.tops, self.slope, self.fitted, self.starts = tops, slope, [], []
        self.n_held_out, self.n_features = 100, 2

    def penalty(self, form):
        return form

    def fit(self, form, start):
        self.fitted.append((form.family, round(2 * np.log10(form.factor))))
        self.starts.append(start)
        return self.fitted[-1]

    def score(self, metric):
        place, height = self.tops[metric[0]]
        return height - self.slope * (metric[1] - place) ** 2


def test_the_search_finds_the_top_and_fits_nothing_twice():
    folds = [Parabolas({"diagonal": (-4.3, 2.0)}) for _ in range(3)]
    choice = search(folds, ["diagonal"])
    assert choice.form.family == "diagonal"
    assert choice.form.factor == pytest.approx(10 ** (-4.3 / 2))
    for fold in folds:
        assert len(fold.fitted) == len(set(fold.fitted))
    # Only the first fold, with its 100 held-out rows, is scouted, in steps of 10 from 0.1 on, both ways.
    assert [place for _, place in folds[0].fitted] == [-2, -4, -6, -3, -5]
    # A fit starts from the nearest one before it, the wider one if there are two.
    assert folds[0].starts[3:] == [("diagonal", -2), ("diagonal", -4)]
    assert [place for _, place in folds[1].fitted] == [-4, -3, -5]


def test_the_search_starts_a_family_from_the_fits_of_another():
    folds = [Parabolas({"diagonal": (-4.0, 2.0), "sample": (-3.0, 2.0)})]
    search(folds, ["diagonal", "sample"])
    starts = dict(zip(folds[0].fitted, folds[0].starts, strict=True))
    assert starts["diagonal", -2] is None
    assert starts["sample", -2] == ("diagonal", -2)  # the nearest place of the other family
    assert starts["sample", -4] == ("sample", -2)  # the nearest of its own, though the other has been at this place


def test_the_search_halves_its_steps_where_a_curve_is_sharp():
    """A step of 10 ends 8 nats below the top, and a parabola through such steps would miss it."""
    folds = [Parabolas({"diagonal": (-4.9, 50.0)}, slope=2.0) for _ in range(3)]
    assert search(folds, ["diagonal"]).form.factor == pytest.approx(10 ** (-4.9 / 2))
    assert {-5, -6, -4} <= {place for _, place in folds[0].fitted}
    assert [place for _, place in folds[1].fitted] == [-5, -4, -6]


def test_the_search_compares_on_all_folds_what_is_near_the_leader_on_the_first():
    """All folds but the first disagree with it about the best family, and about the best factor by six steps."""
    first = {"diagonal": (-2.0, 2.2), "sample": (-2.0, 2.0)}
    for far, compared in ((-0.2, True), (-3.0, False)):
        others = {"diagonal": (-8.0, 2.0), "sample": (-8.0, 3.0)}
        first["sample"] = (-2.0, 2.2 + far)
        folds = [Parabolas(first), *[Parabolas(others) for _ in range(9)]]
        choice = search(folds, ["diagonal", "sample"])
        assert choice.form.family == ("sample" if compared else "diagonal")
        assert choice.form.factor == pytest.approx(10 ** (-7.4 / 2))
        assert set(choice.table["family"]) == ({"diagonal", "sample"} if compared else {"diagonal"})


def test_a_shrunk_covariance_is_not_tried_where_that_of_the_sample_is_far_better_than_its_diagonal():
    tops = {"diagonal": (-2.0, 2.0), "shrunk": (-2.0, 9.0)}
    for height, tried in ((2.5, True), (3.5, False)):
        fold = Parabolas(tops | {"sample": (-2.0, height)})
        search([fold] * 2, ["diagonal", "sample", "shrunk"])
        assert ("shrunk" in {family for family, _ in fold.fitted}) == tried


def test_a_weight_of_zero_is_an_absent_row():
    weight = np.ones(len(IRIS))
    weight[::7] = 0.0
    here, there = LCA().fit(IRIS, sample_weight=weight), LCA().fit(IRIS[weight > 0], sample_weight=np.ones(128))
    np.testing.assert_allclose(check_reg(here.reg_, 4).matrix, check_reg(there.reg_, 4).matrix)


def test_folds_never_split_equal_rows():
    X = np.repeat(np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % 4 + 1, axis=0)
    folds = fixed_folds(X)
    assert len(folds) == 5
    np.testing.assert_array_equal(np.sort(np.concatenate(folds)), np.arange(len(X)))
    owners = [set(map(tuple, X[fold])) for fold in folds]
    assert sum(map(len, owners)) == len(set.union(*owners)) == 40
    assert max(map(len, folds)) - min(map(len, folds)) <= 8
    turned = fixed_folds(X[::-1])
    assert [set(map(tuple, X[::-1][fold])) for fold in turned] == owners
    assert sum(map(len, fixed_folds(np.arange(9000.0)[:, None], 5, 2000))) == 2000
    assert fixed_folds(X[:4]) == []


def test_a_row_that_alone_makes_a_column_vary_is_never_held_out():
    """Digits have pixels that are lit in one row of 500; the fold without it had no scale there."""
    X = np.random.default_rng(0).normal(size=(60, 3))
    X[:, 2] = 0.0
    X[7, 2] = 1.0
    for train, _, test, _ in split_folds(X, None):
        assert np.ptp(train, axis=0).all()
        assert len(train) + len(test) == 60
    assert np.isfinite(LCA().fit(X).score())
    assert np.isfinite(LCAGauss(tol=1e-3).fit(X).score())


@pytest.mark.parametrize(
    ("structure", "expected"),
    [(("full", None), 55), (("diag", None), 10), (("spherical", None), 1), (("low_rank", 2), 20)],
)
def test_the_search_is_skipped_where_rows_are_plentiful(monkeypatch, structure, expected):
    assert free_parameters(Structure(*structure), 10) == expected
    many = np.random.default_rng(0).normal(size=(2000, 10))
    assert has_plenty(many, Structure(*structure))
    assert not has_plenty(many[1:], Structure(*structure))
    monkeypatch.setattr("vicinal._lca.penalty._PLENTY_IN_ALL", 0)
    X = many[: 25 * expected]
    assert has_plenty(X, Structure(*structure))
    assert not has_plenty(X[1:], Structure(*structure))
    assert not has_plenty(np.r_[X[1:], X[-1:]], Structure(*structure))  # twins do not count
    if structure[0] == "diag":
        lca = LCA("diag").fit(X)
        assert lca.reg_search_ is None
        assert not lca.reg_.any()


def test_the_shrunk_covariance_is_that_of_ledoit_and_wolf():
    mean, scale = WINE.mean(axis=0), WINE.std(axis=0)
    expected = ledoit_wolf((WINE - mean) / scale, assume_centered=True)[0] * np.outer(scale, scale)
    np.testing.assert_allclose(shrunk_covariance(WINE), expected, rtol=1e-10)
    np.testing.assert_allclose(shrunk_covariance(WINE, np.full(len(WINE), 2.0)), expected, rtol=1e-10)


# -- data that the paper's estimator has no answer for -----------------------------------------------------------


def ordinary():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    return {
        "twins": np.repeat(X, 2, axis=0),
        "dependent": np.c_[X, X[:, 0] - 2 * X[:, 1]],
        "wide": rng.normal(size=(12, 30)),
        "ties": rng.integers(0, 2, size=(30, 3)).astype(float),
        "integers": rng.integers(0, 9, size=(30, 3)).astype(float),
        "plenty of integers": rng.integers(0, 5, size=(80, 2)) + np.array([0.0, 0.1]) * rng.normal(size=(80, 1)),
        "plenty of dependent": np.c_[rng.normal(size=(60, 1)), np.zeros((60, 1))] @ np.array([[1.0, 2.0], [0, 0]]),
        "two rows": X[:2],
        "far": np.r_[X, [[1e9, 0, 0]]],
    }


@pytest.mark.filterwarnings("ignore:.*held-out rows score higher:UserWarning")
@pytest.mark.filterwarnings("ignore:LocalLCA. the search chose 0.001:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("make", "name"),
    [
        *((LCA, name) for name in ordinary()),
        *(
            pytest.param(make, name, marks=[] if name in ("twins", "wide", "ties", "far") else pytest.mark.slow)
            for make in (lambda: LCAGauss(tol=1e-3), LocalLCA)
            for name in ordinary()
        ),
    ],
)
def test_nothing_ordinary_is_refused(make, name, request):
    X = ordinary()[name]
    model = make()
    if not isinstance(model, LCA):  # the others begin with the same search
        request.getfixturevalue("short_search")
    with np.errstate(all="raise", under="ignore"):
        model.fit(X)
    assert np.isfinite(model.score_samples(X)).all()
    assert np.isfinite(model.score_samples(None)).all()
    assert np.isfinite(model.sample(3, random_state=0)).all()


@pytest.mark.parametrize("make", [LCA, LCAGauss, LocalLCA])
def test_what_has_no_answer_is_refused(make):
    with pytest.raises(ValueError, match="all 9 rows are equal"):
        make().fit(np.ones((9, 2)))
    with pytest.raises(ValueError, match="minimum of 2 is required"):
        make().fit(np.ones((1, 2)))


def test_no_kernel_is_narrower_than_the_resolution_of_the_values():
    """On a grid, the likelihood of held-out rows grows without bound as the kernel narrows: LCA became a sum of spikes."""
    rng = np.random.default_rng(0)
    grid = rng.integers(0, 5, size=(400, 4)).astype(float)
    dependent = np.column_stack([grid[:, :2], grid[:, 0] + grid[:, 1]])  # narrow across the columns as well
    for rows, seen in ((grid[:200], grid[200:]), (dependent[:200], dependent[200:])):
        model = LCA().fit(rows)
        assert np.linalg.eigvalsh(model.covariance_)[0] > 1.0 / 6.0 * (1.0 - 1e-9)
        scores = model.score_samples(seen)
        assert scores.mean() < 0.0  # no cell has a density above one
        assert scores.min() > scores.mean() - 10.0


def test_resolution_of_columns():
    rng = np.random.default_rng(0)
    measured = rng.normal(size=500)
    columns = {
        "measured": (measured, 0.0),
        "whole": (np.round(3 * measured), 1.0),
        "rounded": (np.round(measured, 1), 0.1),
        "multiples": (7.0 * np.round(3 * measured), 7.0),
        "few repeats": (np.append(measured[:490], measured[:10]), 0.0),
    }
    X = np.column_stack([values for values, _ in columns.values()])
    expected = [step**2 / 6.0 for _, step in columns.values()]
    np.testing.assert_allclose(rounding_variances(X), expected, rtol=1e-9)
    np.testing.assert_allclose(rounding_variances(X[::-1] * 10.0), 100.0 * np.array(expected), rtol=1e-9)
    # Rows that repeat completely tie in all of their columns, whatever these are.
    assert not rounding_variances(np.repeat(X[:, :1], 3, axis=0)).any()
    np.testing.assert_allclose(rounding_variances(np.repeat(X, 2, axis=0)), expected, rtol=1e-9)


def test_a_few_rows_far_from_all_others_do_not_choose_the_penalty():
    """Under kernels alone, such held-out rows score so low that the widest kernels win."""
    gains = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        map_to_columns = rng.normal(size=(4, 4))
        rows, new = (rng.standard_t(1.5, size=(n, 4)) @ map_to_columns for n in (300, 3000))
        kernels_alone = search_penalty(rows, None, Structure("full"), None, False)
        model = LCA(reg=as_parameter(kernels_alone.form.of_rows(rows, None)))
        model._background_stays = True
        gains.append(LCA().fit(rows).score(new) - model.fit(rows).score(new))
    assert min(gains) > 0.1


# -- LCA-Gauss ----------------------------------------------------------------------------------------------------


def test_one_gaussian_is_among_the_candidates():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 5)) @ rng.normal(size=(5, 5))
    table = LCAGauss().fit(rows).reg_search_
    assert set(table["gaussian"]) == {"none", "shrunk"}
    assert np.any((table["factor"] == 1.0) & (table["family"] == "shrunk") & (table["gaussian"] == "shrunk"))
    # That candidate is one Gaussian with the covariance of Ledoit and Wolf.
    shrunk = shrunk_covariance(rows)
    model = LCAGauss(reg=shrunk, reg_gauss=shrunk - np.cov(rows.T, bias=True)).fit(rows)
    assert model.n_components_ == 0
    np.testing.assert_allclose(model.covariance_, shrunk, rtol=1e-8)


def test_one_of_the_two_penalties_may_be_given():
    rows = IRIS[::2]
    first = LCAGauss(reg=0.01).fit(rows)
    np.testing.assert_array_equal(first.reg_, 0.01 * np.eye(4))
    assert set(first.reg_search_["family"]) == {"given"}
    second = LCAGauss(reg_gauss=0.01).fit(rows)
    np.testing.assert_array_equal(second.reg_gauss_, 0.01 * np.eye(4))
    assert set(second.reg_search_["gaussian"]) == {"given"}


# -- streams and files --------------------------------------------------------------------------------------------


def test_the_first_rows_of_a_stream_choose_its_penalty():
    lca = LCA(random_state=0).partial_fit(IRIS[::2])
    reg = lca.reg_
    assert not check_reg(reg, 4).is_zero
    lca.partial_fit(IRIS[1::2])
    assert np.array_equal(lca.reg_, reg)


def test_a_model_file_holds_the_search_and_the_constants(tmp_path, wine):
    with pytest.warns(UserWarning, match="constant"):
        model = LCA().fit(np.insert(IRIS[::3], 1, 2.0, axis=1))
    for before in (wine, model, LCA(reg=wine.reg_).fit(WINE)):
        io.save(before, tmp_path / "model.vicinal")
        after = io.load(tmp_path / "model.vicinal")
        assert np.array_equal(after.reg_, before.reg_)
        np.testing.assert_array_equal(after.active_features_, before.active_features_)
        X = np.ones((2, before.n_features_in_))
        np.testing.assert_array_equal(after.score_samples(X), before.score_samples(X))
        (tmp_path / "model.vicinal").unlink()
    np.testing.assert_array_equal(check_reg(after.reg, 13).matrix, check_reg(wine.reg_, 13).matrix)


def test_skewed_columns_are_searched_although_rows_outnumber_parameters():
    """With 76 rows of two lognormal columns the search was skipped, and LCA() was three nats per row below Scott's rule."""
    losses = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X, new = np.exp(rng.normal(size=(76, 2))), np.exp(rng.normal(size=(800, 2)))
        lca = LCA().fit(X)
        assert lca.reg_search_ is not None
        losses.append(ParzenWindows("scott").fit(X).score(new) - lca.score(new))
    assert np.mean(losses) < 0.1
