"""Test the explanations of unusual rows."""

import re

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp
from sklearn.decomposition import PCA
from sklearn.model_selection import KFold
from sklearn.neighbors import KernelDensity
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from vicinal import (
    LCA,
    DensityImputer,
    DensityOutlierDetector,
    Dequantizer,
    LCAGauss,
    LocalLCA,
    ManifoldParzen,
    ParzenWindows,
    TableEncoder,
    io,
)
from vicinal._density import mixture_density
from vicinal._detect import explanation
from vicinal._search import fixed_folds


@pytest.fixture
def table():
    """Column c is the sum of a and b; d is on its own."""
    rng = np.random.default_rng(0)
    a, b, d = rng.normal(size=(3, 300))
    return pd.DataFrame({"a": a, "b": b, "c": a + b + 0.1 * rng.normal(size=300), "d": d})


@pytest.mark.usefixtures("short_search")
def test_a_broken_relation_is_the_reason_although_each_value_is_usual(table):
    detector = DensityOutlierDetector(LCA()).fit(table)
    row = pd.DataFrame({"a": [1.0], "b": [1.0], "c": [-1.0], "d": [0.0]})
    found = detector.explain(row)
    assert found.names == ["a", "b", "c", "d"]
    assert found.shares[0, :3].max() < 0.02
    # Given values that no training row comes near to, the nearest row alone says what d should be: the surprise tells.
    assert found.ranking()[0, -1] == 3
    assert found.surprises[0, 3] < 0.5 * found.surprises[0, :3].min()
    assert 1.5 < found.lows[0, 2] < found.medians[0, 2] < found.highs[0, 2] < 2.5
    said = found.reasons(0)
    assert len(said) == 1  # with c replaced by its expectation, the row is usual
    assert said[0].startswith("c: expected 1.")
    assert said[0].endswith(", got -1.00")
    assert found.values.tolist() == row.to_numpy().tolist()


@pytest.mark.usefixtures("short_search")
def test_units_change_neither_shares_nor_ranking(table):
    rows = table.sample(20, random_state=0) * [1.0, 1.0, -1.0, 3.0]
    units = np.array([1e3, 1.0, 1e-4, 7.0])
    one = DensityOutlierDetector(LCA()).fit(table).explain(rows)
    other = DensityOutlierDetector(LCA()).fit(table * units).explain(rows * units)
    np.testing.assert_allclose(one.shares, other.shares, atol=0.01)
    np.testing.assert_allclose(one.surprises, other.surprises, rtol=0.02, atol=0.02)
    np.testing.assert_array_equal(one.ranking()[:, 0], other.ranking()[:, 0])
    np.testing.assert_allclose(one.lows, other.lows / units, rtol=0.02, atol=0.02)


def test_training_rows_are_left_out_one_by_one(table):
    X = table.to_numpy()[:60]
    detector = DensityOutlierDetector(ParzenWindows(0.5), largest_group=None).fit(X)
    found = detector.explain()
    for i in (0, 30, 59):
        others = DensityOutlierDetector(ParzenWindows(0.5), largest_group=None).fit(np.delete(X, i, axis=0))
        alone = others.explain(X[i : i + 1])
        np.testing.assert_allclose(found.medians[i], alone.medians[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.highs[i], alone.highs[0], rtol=1e-5, atol=1e-6)
    some = detector.explain(rows=[30, 5])
    np.testing.assert_array_equal(some.shares, found.shares[[30, 5]])
    np.testing.assert_allclose(some.lows, found.lows[[30, 5]], rtol=1e-5)  # by halving, from other ends
    # Ranks among the rows themselves: the most surprising value of each column has a share of 1/n.
    np.testing.assert_allclose(np.sort(found.shares, axis=0)[0], 1 / 60)
    np.testing.assert_allclose(found.shares.mean(axis=0), (60 + 1) / 120, rtol=1e-6)


@pytest.mark.slow
def test_about_nine_in_ten_usual_values_are_in_the_interval(table):
    found = DensityOutlierDetector(LCA()).fit(table[:200]).explain(table[200:])
    inside = (found.values >= found.lows) & (found.values <= found.highs)
    assert 0.85 < inside.mean() < 0.98


def test_the_group_of_a_row_is_no_excuse():
    """Expected values come from inliers only, so that a tight group of outliers does not explain its members."""
    rng = np.random.default_rng(1)
    X = np.vstack([rng.normal(size=(200, 3)), 0.1 * rng.normal(size=(12, 3)) + [6.0, 0.0, 0.0]])
    found = DensityOutlierDetector().fit(X).explain()
    assert (found.ranking()[200:, 0] == 0).all()
    assert found.highs[200:, 0].max() < 4.0
    excused = DensityOutlierDetector(largest_group=None).fit(X).explain()
    assert excused.highs[200:, 0].max() > 5.0


def test_scalers_before_the_density_are_undone(table):
    scaled = make_pipeline(StandardScaler(), ParzenWindows(0.5)).fit(table * 1000.0)
    detector = DensityOutlierDetector.from_density(scaled)
    row = table[:1] * 1000.0
    found = detector.explain(row)
    plain = DensityOutlierDetector.from_density(scaled[-1]).explain(scaled[0].transform(row))
    np.testing.assert_allclose(found.shares, plain.shares)
    np.testing.assert_allclose(found.highs, scaled[0].inverse_transform(plain.highs))
    np.testing.assert_allclose(found.values, row)
    np.testing.assert_allclose(detector.explain(None).values, table * 1000.0, rtol=1e-9, atol=1e-9)


def test_many_training_rows_are_spoken_for_by_some(table, monkeypatch):
    monkeypatch.setattr(explanation, "MOST_REFERENCE_ROWS", 100)
    few = DensityOutlierDetector(ParzenWindows(0.5)).fit(table).explain(table[:50] + 0.1)
    monkeypatch.setattr(explanation, "MOST_REFERENCE_ROWS", 4000)
    all_rows = DensityOutlierDetector(ParzenWindows(0.5)).fit(table).explain(table[:50] + 0.1)
    assert np.abs(few.shares - all_rows.shares).max() < 0.15
    np.testing.assert_array_equal(few.highs, all_rows.highs)


@pytest.mark.parametrize(
    ("density", "named"),
    [
        (KernelDensity(bandwidth=0.5), "got KernelDensity"),
        (make_pipeline(PCA(2), ParzenWindows(0.5)), "fitted to the output of PCA"),
    ],
)
def test_what_cannot_be_explained_is_an_error_that_says_so(table, density, named):
    detector = DensityOutlierDetector(density).fit(table[:60])
    with pytest.raises(TypeError, match=named):
        detector.explain(table[:2])


def test_rows_that_were_filled_in_are_explained_in_their_own_columns():
    """A pipeline that scales and then fills gaps keeps its columns; explaining it used to raise an error."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3)) * [1.0, 10.0, 100.0]
    X[:, 2] += 5.0 * X[:, 1]
    detector = DensityOutlierDetector(make_pipeline(StandardScaler(), DensityImputer(), LCA(reg=0.1))).fit(X)
    found = detector.explain(np.array([[0.0, 10.0, -500.0]]))
    assert found.shares[0, 1:].max() < 0.05
    assert found.lows[0, 2] < 50.0 < found.highs[0, 2]


# -- every density -----------------------------------------------------------------------------------------------------


def local_lca(**more):
    return LocalLCA(2, 8, 0.02, shared=0.0, center="mean", **more)


DENSITIES = {
    "ParzenWindows": ParzenWindows(0.4),
    "LCA": LCA(reg=0.05),
    "LCAGauss": LCAGauss(reg=0.05, reg_gauss=0.05, reduce=True),
    "ManifoldParzen": ManifoldParzen(2, 6, 0.05),
    "ManifoldParzen, soft": ManifoldParzen(1, noise=0.05, vicinity="kernel", bandwidth=0.5),
    "LocalLCA": local_lca(),
    "LocalLCA without directions": LocalLCA(0, 5, 0.2, shared=0.0, center="row"),
}


def gaussians(density):
    """Weights, centres and covariances of a fitted density, written out from its public attributes."""
    mixture = density.mixture_
    if isinstance(density, LocalLCA):
        covariances = density.local_covariances_
    elif isinstance(density, ManifoldParzen):
        frames = density.local_frames_.astype(np.float64)
        scatter = np.einsum("nl,nli,nlj->nij", density.local_variances_, frames, frames)
        covariances = density.noise_ * np.eye(frames.shape[2]) + scatter
    else:
        covariances = np.repeat(density.covariance_[None], len(mixture.centres), axis=0)
    return np.exp(mixture.log_weights), mixture.centres, covariances


def surprise(x, weights, centres, covariances):
    """-log p(x_k | the others) of each column, from Gaussians with full covariances."""

    def log_density(columns):
        parts = covariances[:, columns[:, None], columns]
        differences = (x - centres)[:, columns]
        squares = np.einsum("nk,nk->n", differences, np.linalg.solve(parts, differences[:, :, None])[:, :, 0])
        constants = np.linalg.slogdet(parts)[1] + len(columns) * np.log(2 * np.pi)
        return logsumexp(-0.5 * (squares + constants), b=weights)

    columns = np.arange(len(x))
    return np.array([log_density(np.delete(columns, k)) - log_density(columns) for k in columns])


def density_without(name, density, X, i):
    """The density without row i, as its own leave-one-out defines it, made anew from the other rows."""
    if name == "ManifoldParzen":
        return gaussians(density.__class__(**density.get_params(deep=False)).fit(np.delete(X, i, axis=0)))
    if name == "ManifoldParzen, soft":
        parts = [test for _, test in KFold(5, shuffle=True, random_state=0).split(X)]
    elif name.startswith(("LCA", "LocalLCA")) and name != "LCAGauss":
        parts = fixed_folds(X, 5)
    else:
        weights, *others = gaussians(density)
        return np.where(np.arange(len(X)) == i, 0.0, weights), *others
    held_out = next(part for part in parts if i in part)
    return gaussians(density.__class__(**density.get_params(deep=False)).fit(np.delete(X, held_out, axis=0)))


@pytest.mark.parametrize("name", DENSITIES)
def test_every_density_is_explained_as_by_full_covariances(table, name):
    X = table.to_numpy()[:40, :3]
    detector = DensityOutlierDetector(DENSITIES[name], largest_group=None).fit(X)
    density, new = detector.density_, np.array([[0.5, 0.5, -1.0], [0.1, 0.2, 0.3]])
    theirs = np.array([surprise(X[i], *density_without(name, density, X, i)) for i in range(40)])
    own = detector.explain(None)
    np.testing.assert_allclose(own.surprises + np.median(theirs, axis=0), theirs, rtol=1e-7, atol=1e-7)
    expected_shares = (theirs[None] >= theirs[:, None] - 1e-9).sum(axis=1) / 40
    np.testing.assert_allclose(own.shares, expected_shares, atol=1e-12)
    found = detector.explain(new)
    mine = np.array([surprise(x, *gaussians(density)) for x in new])
    np.testing.assert_allclose(found.surprises, mine - np.median(theirs, axis=0), rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(found.shares, ((theirs[None] >= mine[:, None]).sum(axis=1) + 1) / 41)
    some = detector.explain(rows=[30, 5, 30])
    np.testing.assert_allclose(some.surprises, own.surprises[[30, 5, 30]], rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(some.values, X[[30, 5, 30]])


@pytest.mark.parametrize("name", DENSITIES)
def test_every_density_is_explained_after_scalers_in_float32_and_from_a_file(table, name, tmp_path):
    X = (table.to_numpy()[:60, :3] * [1.0, 100.0, 0.01]).astype(np.float32)
    scaled = make_pipeline(StandardScaler(), DENSITIES[name])
    detector = DensityOutlierDetector.from_density(scaled.fit(X))
    plain = DensityOutlierDetector.from_density(scaled[-1])
    found, there = detector.explain(X[:4] + 0.001), plain.explain(scaled[0].transform(X[:4] + np.float32(0.001)))
    np.testing.assert_allclose(found.shares, there.shares, atol=0.02)
    np.testing.assert_allclose(found.highs, scaled[0].inverse_transform(there.highs), rtol=1e-4)
    np.testing.assert_allclose(detector.explain(rows=[3]).values, X[3:4], rtol=1e-5)
    io.save(detector, tmp_path / "detector.vicinal")
    again = io.load(tmp_path / "detector.vicinal")
    np.testing.assert_array_equal(again.explain(X[:2]).shares, detector.explain(X[:2]).shares)
    np.testing.assert_array_equal(again.explain(rows=[1]).surprises, detector.explain(rows=[1]).surprises)


@pytest.mark.parametrize("density", [LCAGauss(reg=0, reg_gauss=0), ManifoldParzen(1, 6), local_lca()])
def test_a_new_value_in_a_constant_column_is_the_reason_under_every_density(table, density):
    X = np.c_[table.to_numpy()[:60, :3], np.full(60, 7.0)]
    with pytest.warns(UserWarning, match="constant"):
        detector = DensityOutlierDetector(density).fit(X)
    for made in (detector, DensityOutlierDetector.from_density(detector.density_)):
        assert made.p_values([[0.0, 0.0, 0.0, 8.0]]) == pytest.approx(1 / 61)
        found = made.explain([[0.0, 0.0, 0.0, 8.0]])
        assert found.reasons(0)[0] == "x3: expected 7 as in all training rows, got 8"
        assert made.explain(rows=[2]).shares[0, 3] == 1.0
        np.testing.assert_array_equal(made.explain(rows=[2]).values, X[2:3])


@pytest.mark.parametrize("density", [LocalLCA(1, 8, 0, shared=0.5, center="mean"), LCAGauss(reg=0, reg_gauss=0)])
def test_units_do_not_matter_to_densities_that_have_none(table, density):
    rows = table.sample(15, random_state=0) * [1.0, 1.0, -1.0, 3.0]
    units = np.array([1e3, 1.0, 1e-4, 7.0])
    one = DensityOutlierDetector(density).fit(table[:120]).explain(rows)
    other = DensityOutlierDetector(density).fit(table[:120] * units).explain(rows * units)
    np.testing.assert_allclose(one.shares, other.shares, atol=0.01)
    np.testing.assert_allclose(one.surprises, other.surprises, rtol=0.02, atol=0.02)
    np.testing.assert_array_equal(one.ranking()[:, 0], other.ranking()[:, 0])


@pytest.mark.parametrize("name", DENSITIES)
def test_a_pipeline_explains_rows_with_gaps_under_the_density_of_their_known_columns(table, name):
    """A detector of a pipeline takes missing values; no step fills them in here, so that the density itself is asked."""
    X = table.to_numpy()[:60, :3]
    detector = DensityOutlierDetector.from_density(
        make_pipeline(StandardScaler(), DENSITIES[name]).fit(X), largest_group=None
    )
    row = np.array([[0.5, np.nan, -1.0], [np.nan, np.nan, np.nan], [1.0, 1.0, -1.0]])
    found = detector.explain(row)
    density = detector.density_[-1]
    z = detector.density_[0].transform(row)[0, [0, 2]]
    weights, centres, covariances = gaussians(density)
    expected = surprise(z, weights, centres[:, [0, 2]], covariances[:, [[0], [2]], [0, 2]])
    difference = (found.surprises[0, [0, 2]] - expected)[:, None]
    held_out = np.array(
        [
            surprise(density._training_rows()[i, [0, 2]], w, c[:, [0, 2]], C[:, [[0], [2]], [0, 2]])
            for i in range(60)
            for w, c, C in [density_without(name, density, density._training_rows(), i)]
        ]
    )
    np.testing.assert_allclose(difference[:, 0], -np.median(held_out, axis=0), rtol=1e-6, atol=1e-6)
    assert np.isnan(found.values[0, 1])
    assert found.shares[0, 1] == 1.0
    assert (found.shares[1] == 1.0).all()
    assert found.shares[2].max() < 1.0


# -- what is said --------------------------------------------------------------------------------------------------------


@pytest.fixture
def odd_table():
    """Prices with cents, whole years, a column with two modes and a correlated pair, with some wrong values."""
    rng = np.random.default_rng(3)
    n = 400
    length = rng.normal(200.0, 14.0, n).round()
    frame = pd.DataFrame(
        {
            "price": np.exp(rng.normal(9.0, 0.4, n)).round(2),
            "year": rng.integers(1952, 2008, n),
            "rad": np.where(rng.random(n) < 0.5, rng.integers(1, 9, n), 24),
            "flipper": length,
            "mass": (50.0 * length - 5800.0 + rng.normal(0.0, 300.0, n)).round(-1),
        }
    )
    frame.loc[7, "flipper"] = 290.0
    frame.loc[11, "price"] = 98_765.43
    frame.loc[13, "year"] = 1890
    frame.loc[17, ["flipper", "mass"]] = [176.0, 5400.0]
    return frame


@pytest.fixture
def odd_detector(odd_table):
    return DensityOutlierDetector(
        make_pipeline(TableEncoder(), TableEncoder().fit(odd_table).dequantizer(), StandardScaler(), LCA(reg=0.05)),
        contamination=0.1,
    ).fit(odd_table)


def test_the_value_of_a_reason_lies_outside_of_its_interval(odd_table, odd_detector):
    """490 of 2,717 did not: "rad: expected 0.1165 to 9.82, got 1". In 50 of 979 rows no value was out of range."""
    found = odd_detector.explain(rows=np.flatnonzero(odd_detector.labels_ == -1))
    assert len(found.details) == 40
    for i, reasons in enumerate(found.details):
        assert reasons
        for reason in reasons:
            together = np.isnan(reason.low)
            assert together or reason.value < reason.low or reason.value > reason.high
            column = odd_table[found.names[reason.column]]
            assert together or column.min() <= reason.low <= reason.high <= column.max()
        assert found.reasons(i)[0].startswith("unusual combination") == np.isnan(reasons[0].low)
        assert all(text.split("got ")[-1] not in text.split("got ")[0].split() for text in found.reasons(i))


def test_a_row_without_a_value_out_of_range_is_an_unusual_combination():
    """The hole of a ring: every value is in the middle of its interval."""
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, size=400)
    ring = np.column_stack([np.cos(angle), np.sin(angle)]) + 0.05 * rng.normal(size=(400, 2))
    found = (
        DensityOutlierDetector(ParzenWindows(0.15))
        .fit(pd.DataFrame(ring, columns=["a", "b"]))
        .explain(pd.DataFrame([[0.0, 0.0]], columns=["a", "b"]))
    )
    assert sorted(reason.column for reason in found.details[0]) == [0, 1]
    assert found.reasons(0)[0].startswith("unusual combination: ")
    assert found.to_frame()["low"].isna().all()


def test_a_wrong_value_does_not_blame_the_columns_that_depend_on_it(odd_detector):
    """A flipper that was too long had the body mass blamed as well."""
    found = odd_detector.explain(rows=[7])
    assert [found.names[reason.column] for reason in found.details[0]] == ["flipper"]
    assert found.shares[0, 4] < 0.05  # at first sight the mass is surprising, given that flipper


def test_numbers_beyond_the_digits_of_a_float_are_short():
    """A value of 1e140 was written with 140 digits, most of which it does not have."""
    detector = DensityOutlierDetector().fit(np.random.default_rng(0).normal(size=(100, 2)))
    assert detector.explain([[1e140, 0.0]]).reasons(0)[0].endswith(", got 1e+140")
    assert detector.explain([[1e12, 0.0]]).reasons(0)[0].endswith(", got 1,000,000,000,000.00")


def test_numbers_are_written_as_in_the_table(odd_detector):
    """A price was "1.034e+04", and 17.5 was 17."""
    price, year = odd_detector.explain(rows=[11, 13]).reasons(0)[0], odd_detector.explain(rows=[11, 13]).reasons(1)[0]
    assert re.fullmatch(r"price: expected \d+,\d{3}\.\d\d to \d\d,\d{3}\.\d\d, got 98,765\.43", price), price
    assert re.fullmatch(r"year: expected \d{4} to \d{4}, got 1890", year), year
    whole = pd.DataFrame({"a": np.arange(300) % 20, "b": np.arange(300) % 7})
    detector = DensityOutlierDetector(make_pipeline(StandardScaler(), ParzenWindows(0.3))).fit(whole)
    assert detector.explain(pd.DataFrame({"a": [47.5], "b": [3.0]})).reasons(0)[0].endswith(", got 47.5")


def test_an_explanation_is_a_table_and_shows_itself(odd_detector):
    found = odd_detector.explain(rows=[7, 11])
    frame = found.to_frame()
    assert list(frame.columns) == ["row", "column", "value", "low", "high", "share", "reason"]
    assert frame["row"].iloc[0] == 7
    assert frame.loc[frame["row"] == 7, "column"].tolist() == ["flipper"]
    assert "<table>" in found._repr_html_()
    assert "flipper: expected" in found._repr_html_()


# -- tables --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def mixed_table(odd_table):
    rng = np.random.default_rng(1)
    when = pd.date_range("2020-01-01", periods=len(odd_table), freq="D")
    mixed = odd_table.assign(
        when=when, kind=rng.choice(["a", "b"], len(odd_table)), ok=rng.random(len(odd_table)) < 0.5
    )
    mixed.loc[::9, "price"] = np.nan
    return mixed


def test_a_detector_takes_any_table(mixed_table):
    with pytest.warns(UserWarning, match="learns only from quantities and levels"):
        detector = DensityOutlierDetector().fit(mixed_table)
    assert detector.density_[-1]._categories.columns[0].name == "kind"
    table = detector.scored_table(mixed_table)
    assert list(table.columns) == ["score", "p_value", "outlier", "log_density", "why"]
    assert table["outlier"].sum() == 4
    assert table["why"][11].startswith("price: expected ")
    assert detector.predict(mixed_table[["kind", *mixed_table.columns.drop("kind")]].tail(3)).tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "density", [ParzenWindows(), LCA(), ManifoldParzen()], ids=lambda density: type(density).__name__
)
def test_a_density_names_the_columns_that_are_no_numbers(mixed_table, density):
    """NumPy's "The DType <class 'numpy.dtypes.DateTime64DType'> could not be promoted" was the message, or none at all."""
    for columns in (["when", "year"], ["when"]):
        with pytest.raises(ValueError, match=r"got dates or times\. Columns without numbers: when\. .*TableEncoder"):
            density.fit(mixed_table[columns])
    if isinstance(density, ManifoldParzen):
        with pytest.raises(ValueError, match="Columns without numbers: kind"):
            density.fit(mixed_table[["kind", "year"]])


def test_a_detector_in_a_pipeline_explains_in_the_units_of_the_table(odd_table):
    pipeline = make_pipeline(StandardScaler(), DensityOutlierDetector(LCA(reg=0.05))).fit(odd_table)
    detector = DensityOutlierDetector.from_pipeline(pipeline)
    scaled = pipeline[:-1].transform(odd_table)
    np.testing.assert_allclose(detector.p_values(odd_table), pipeline[-1].p_values(scaled))
    assert detector.explain(rows=[7]).reasons(0)[0].endswith("got 290")
    with pytest.raises(TypeError, match="ends in a DensityOutlierDetector, got one that ends in StandardScaler"):
        DensityOutlierDetector.from_pipeline(make_pipeline(StandardScaler()))


def test_surprises_of_many_components_are_those_of_conditionals(table, monkeypatch):
    """Conditionals visit all components: a model of 327,000 rows took five minutes to explain a row."""
    X = table.to_numpy()
    density = LCA(reg=0.1).fit(X)
    (part,) = density._held_out_rows(np.arange(50))
    expected = part.surprises(X[:50], np.arange(50), np.arange(4))
    monkeypatch.setattr(mixture_density, "_MANY", 100)
    np.testing.assert_allclose(part.surprises(X[:50], np.arange(50), np.arange(4)), expected, rtol=1e-10, atol=1e-10)


@pytest.fixture
def rates():
    """Shares of eight exercises in percent and hours in tenths, with one cell each off the lattice of its column."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"percent": 12.5 * rng.binomial(8, 0.9, 300), "hours": rng.normal(30.0, 4.0, 300).round(1)})
    rows.loc[7, "percent"], rows.loc[8, "hours"] = 1.23, 1.83
    return rows


def _noisy_detector(rows):
    return DensityOutlierDetector(make_pipeline(Dequantizer(), StandardScaler(), ParzenWindows())).fit(rows)


def test_a_training_cell_off_the_lattice_of_its_column_is_shown_as_it_is(rates):
    why = _noisy_detector(rates).scored_table(rates)["why"]
    assert why[7].endswith(", got 1.23")
    assert why[8].endswith(", got 1.83")


def test_intervals_of_a_lattice_stay_within_its_observed_values(rates):
    found = _noisy_detector(rates).explain()
    assert found.highs[:, 0].max() == 100.0
    assert "to 100.0, got" in found.reasons(7)[0]


def test_the_value_of_a_new_row_is_shown_without_noise(rates):
    found = _noisy_detector(rates).explain(rates.iloc[:1].assign(hours=401.25))
    assert found.values[0].tolist() == [rates["percent"][0], 401.25]
    assert found.reasons(0)[0].endswith(", got 401.25")


def test_float32_cells_are_shown_with_the_decimals_of_their_column(rates):
    rows = rates.drop(index=[7, 8]).reset_index(drop=True)
    rows.loc[9, "hours"] = 690.8
    rows = rows.astype(np.float32).astype(np.float64)
    assert _noisy_detector(rows).scored_table(rows)["why"][9].endswith(", got 690.8")


def test_training_rows_off_the_lattice_are_explained_with_their_own_values(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"a": np.round(rng.normal(size=200), 1), "b": rng.normal(size=200), "c": rng.integers(0, 9, 200) + 0.5}
    )
    table.loc[3, "a"], table.loc[5, "c"] = 12.7499, 15.25
    prepared = DensityOutlierDetector().fit(table.assign(kind=list("xy") * 100))
    plain = DensityOutlierDetector(make_pipeline(Dequantizer(), ParzenWindows())).fit(table.to_numpy())
    io.save(prepared, tmp_path / "detector")
    for detector in (prepared, plain, io.load(tmp_path / "detector")):
        explained = detector.explain(rows=[5, 3, 7])
        np.testing.assert_allclose(explained.values[:, :3], table.iloc[[5, 3, 7]], rtol=1e-9)
        assert explained.reasons(0)[0].endswith("expected 0.5 to 8.5, got 15.25")
        assert explained.reasons(1)[0].endswith("got 12.7499")
