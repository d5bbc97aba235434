"""Test pictures: their content, axes and labels, for data of every kind."""

import sys
import warnings

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scipy.integrate
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from vicinal import LCA, NCA, RCA, DensityOutlierDetector, LocalLCA, ManifoldParzen, ParzenWindows
from vicinal._plot.density import share_inside
from vicinal.plot import metric_field, plot_density, plot_embedding, plot_metric, plot_outlier, plot_path, plot_purity
from vicinal.quality import neighbor_purity

matplotlib.use("Agg")

RNG = np.random.default_rng(0)
N = 90
CODES = np.arange(N) % 3
X = RNG.normal(size=(N, 4)) + 3.0 * CODES[:, None] * [1.0, 0.5, 0.0, 0.0]
TABLE = pd.DataFrame(X, columns=["length", "$width", "_colour", "a very long name of a column indeed"])


@pytest.fixture(autouse=True)
def draw_and_close():
    """Every picture is drawn to the end, where matplotlib finds its faults."""
    yield
    for number in plt.get_fignums():
        plt.figure(number).canvas.draw()
    plt.close("all")


def legend_texts(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def n_points(ax):
    return [len(collection.get_offsets()) for collection in ax.collections]


# -- all of them ------------------------------------------------------------------------------------------------

DRAW = {
    "embedding": lambda ax=None: plot_embedding(X, CODES, ax=ax),
    "density of one": lambda ax=None: plot_density(ParzenWindows().fit(X[:, :1]), ax=ax),
    "density of two": lambda ax=None: plot_density(ParzenWindows().fit(X[:, :2]), ax=ax, resolution=30),
    "purity": lambda ax=None: plot_purity(X, CODES, {"RCA": RCA().fit(X, CODES)}, ax=ax),
    "metric": lambda ax=None: plot_metric(RCA().fit(X, CODES), ax=ax),
    "path": lambda ax=None: plot_path(LCA(reg=0.0).fit(X), ax=ax),
}


@pytest.mark.parametrize("name", DRAW)
def test_axes_are_taken_returned_and_named(name):
    fig, axes = plt.subplots(1, 2)
    given = axes[1]
    ax = DRAW[name](ax=given)
    assert ax is given
    assert not axes[0].has_data()
    new = DRAW[name]()
    assert isinstance(new, Axes)
    assert new.figure is not fig
    assert new.get_xlabel()
    assert new.get_ylabel()


@pytest.mark.parametrize("name", DRAW)
@pytest.mark.parametrize("wrong", ["figure", "array", 3])
def test_what_is_no_axes_is_refused(name, wrong):
    wrong = plt.figure() if wrong == "figure" else plt.subplots(1, 2)[1] if wrong == "array" else wrong
    with pytest.raises(TypeError, match=r"ax must be a matplotlib Axes.*plt\.subplots"):
        DRAW[name](ax=wrong)
    plt.close("all")  # there is nothing to draw


@pytest.mark.parametrize("name", DRAW)
def test_text_can_be_read_at_half_size(name):
    ax = DRAW[name]()
    texts = [ax.xaxis.label, ax.yaxis.label, *ax.get_xticklabels()]
    texts += ax.get_legend().get_texts() if ax.get_legend() else []
    assert min(text.get_size() for text in texts) >= 11.0  # points; a page is seldom read below 5.5
    assert max(ax.figure.get_size_inches()) <= 6.0


def test_the_absence_of_matplotlib_is_explained(monkeypatch):
    """That it is imported late is shown by test_import_is_light in test_engine_resources.py."""
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    for draw in DRAW.values():
        with pytest.raises(ImportError, match=r"pip install 'vicinal\[plot\]'"):
            draw()


# -- embeddings -------------------------------------------------------------------------------------------------

LABELS = {
    "int": (CODES, ["0", "1", "2"]),
    "negative": (CODES - 1, ["-1", "0", "1"]),
    "bool": (CODES == 0, ["False", "True"]),
    "whole float": (CODES.astype(float), ["0", "1", "2"]),
    "str": (np.array(["b", "a", "c"])[CODES], ["a", "b", "c"]),
    "list of str": (list(np.array(["b", "a", "c"])[CODES]), ["a", "b", "c"]),
    "bytes": (np.array([b"b", b"a", b"c"])[CODES], ["b'a'", "b'b'", "b'c'"]),
    "mixed": (np.array(["b", 1, (2, 3)], dtype=object)[CODES], ["1", "b", "(2, 3)"]),
    "missing": (np.array(["b", None, np.nan], dtype=object)[CODES], ["no label", "b"]),
    "missing float": (np.where(CODES == 0, np.nan, CODES), ["no label", "1", "2"]),
    "categories": (pd.Categorical.from_codes(CODES, ["low", "mid", "high"]), ["low", "mid", "high"]),
    "series": (pd.Series(pd.Categorical.from_codes(CODES, ["z", "y", "x"])), ["z", "y", "x"]),
    "nullable": (pd.Series([1, 2, pd.NA] * 30, dtype="Int64"), ["no label", "1", "2"]),
    "dates": (np.array(["2020-01-02", "2020-01-01", "2021-01-01"], dtype="M8[D]")[CODES], None),
    "column": (CODES[:, None], ["0", "1", "2"]),
    "awkward": (np.array(["_a", "$x$ \\frac{", "<b>"])[CODES], ["$x$ \\frac{", "<b>", "_a"]),
    "long": (np.array(["x" * 99, "", "two\nlines"])[CODES], ["''", "two lines", "x" * 23 + "…"]),
}


@pytest.mark.parametrize("name", LABELS)
def test_labels_of_any_type_are_named(name):
    y, expected = LABELS[name]
    ax = plot_embedding(X, y)
    texts = legend_texts(ax)
    if expected is None:
        assert len(texts) == 3
    else:
        assert texts == expected
    assert sum(n_points(ax)) == N
    assert len(texts) == len(ax.collections)


def test_classes_differ_in_colour_and_marker():
    ax = plot_embedding(X, np.arange(N) % 12)
    signs = {(to_hex(c.get_facecolor()[0]), c.get_paths()[0].vertices.tobytes()) for c in ax.collections}
    assert len(signs) == 12
    assert "#f0e442" not in {colour for colour, _ in signs}  # yellow cannot be seen on white


def test_many_classes_are_named_amid_their_rows():
    ax = plot_embedding(X, [f"class {i}" for i in np.arange(N) % 30])
    assert ax.get_legend() is None
    assert len(ax.texts) == 30


def test_numbers_with_fractions_get_a_colour_scale():
    y = pd.Series(RNG.normal(size=N), name="price $")
    ax = plot_embedding(X, y)
    assert ax.figure.axes[1].get_ylabel() == "price $"
    assert ax.get_legend() is None
    y[0] = np.nan
    plot_embedding(X[:, :1], y.to_numpy())


def test_two_columns_are_drawn_as_they_are_and_more_by_principal_components():
    ax = plot_embedding(TABLE.iloc[:, :2], CODES)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("length", "$width")
    np.testing.assert_array_equal(ax.collections[1].get_offsets(), X[CODES == 1, :2])
    ax = plot_embedding(X)
    assert ax.get_xlabel().startswith("principal component 1 (")
    assert ax.get_legend() is None
    assert ax.get_aspect() == 1.0


def test_the_metric_is_applied_first():
    metric = RCA(n_components=2).fit(TABLE, CODES)
    ax = plot_embedding(TABLE, metric=metric)
    assert ax.get_xlabel() == "component 1"
    np.testing.assert_array_equal(ax.collections[0].get_offsets(), metric.transform(TABLE))
    metric.set_output(transform="pandas")
    plot_embedding(TABLE, CODES, metric=metric)


def test_one_column_makes_strips():
    ax = plot_embedding(TABLE[["length"]], np.array(["b", "a", "$"])[CODES])
    assert [text.get_text() for text in ax.get_yticklabels()] == ["$", "a", "b"]
    plot_embedding(X[:, :1])


def test_of_many_rows_a_sample_is_drawn_and_said():
    ax = plot_embedding(X, CODES, max_rows=40)
    assert sum(n_points(ax)) == 40
    assert ax.get_legend().get_title().get_text() == "40 of 90 rows"
    other = plot_embedding(X, max_rows=40, random_state=1)
    assert other.get_legend().get_title().get_text() == "40 of 90 rows"


def test_classes_of_many_rows_do_not_hide_each_other():
    rows = np.random.default_rng(1).normal(size=(3000, 2))
    ax = plot_embedding(rows, np.arange(3000) % 2)
    assert len(legend_texts(ax)) == 2
    colours = [to_hex(collection.get_facecolor()[0]) for collection in ax.collections]
    assert colours == colours[:2] * 8
    np.testing.assert_array_equal(
        np.sort(np.vstack([c.get_offsets() for c in ax.collections]), axis=0), np.sort(rows, axis=0)
    )


def test_degenerate_rows():
    plot_embedding(X[:1], [1])
    plot_embedding(np.ones((5, 4)), [1, 2, 3, 4, 5])
    plot_embedding(np.ones((5, 1)))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((X, CODES[:-1]), ValueError, "y has 89 entries for 90 rows"),
        ((X, X), ValueError, "y should be a 1d array of labels, got an array of shape"),
        ((np.full((3, 2), np.nan),), ValueError, "X contains NaN"),
        ((X[:, 0],), ValueError, "Expected 2D array"),
        ((X, None, {"metric": "LCA"}), TypeError, "metric must be fitted and have a transform method, got str"),
        ((X, None, {"metric": LCA(reg=0.0)}), NotFittedError, "LCA"),
        ((X, None, {"max_rows": 0}), ValueError, "max_rows must be at least 1"),
    ],
)
def test_bad_input_of_embeddings(arguments, error, message):
    *positional, options = arguments if isinstance(arguments[-1], dict) else (*arguments, {})
    with pytest.raises(error, match=message):
        plot_embedding(*positional, **options)
    assert not plt.get_fignums()


# -- densities --------------------------------------------------------------------------------------------------


def test_a_density_of_one_feature_is_its_curve():
    density = ParzenWindows(0.5).fit(TABLE[["length"]])
    line = plot_density(density).lines[0]
    expected = np.exp(density.mixture_.score_samples(line.get_xdata()[:, None]))
    np.testing.assert_array_equal(line.get_ydata(), expected)
    assert scipy.integrate.trapezoid(line.get_ydata(), line.get_xdata()) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(
    "density",
    [ParzenWindows(), LCA(reg=0.0), ManifoldParzen(n_neighbors=5, n_components=1)],
    ids=lambda d: type(d).__name__,
)
def test_a_pair_of_features_is_drawn_by_its_marginal(density):
    density.fit(TABLE)
    ax = plot_density(density, TABLE, features=["_colour", "length"], resolution=20)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("_colour", "length")
    np.testing.assert_array_equal(ax.collections[-1].get_offsets(), X[:, [2, 0]])
    assert plot_density(density, features=3).get_xlabel() == "a very long name of a c…"
    assert plot_density(density.fit(X), features=(-1, 0), resolution=20).get_xlabel() == "column 4"


def test_regions_hold_the_shares_they_claim():
    """The standard normal in two dimensions: radius sqrt(-2 log(1 - share))."""
    across = np.linspace(-6, 6, 401)
    radius = np.hypot(*np.meshgrid(across, across))
    inside = share_inside(-0.5 * radius**2)
    for share in (0.25, 0.5, 0.9, 0.99):
        assert radius[inside <= share].max() == pytest.approx(np.sqrt(-2 * np.log(1 - share)), abs=0.03)


@pytest.mark.slow
def test_densities_of_other_kinds():
    plot_density(ParzenWindows().fit(X).marginal([0, 1]), resolution=20)
    plot_density(ParzenWindows().fit(TABLE).conditional({"length": 0.0, "$width": 0.0}), resolution=20)
    plot_density(GaussianMixture(2, random_state=0).fit(X[:, :2]), resolution=20)
    plot_density(GaussianMixture(2, random_state=0).fit(TABLE.iloc[:, :2]), resolution=20)
    plot_density(GaussianMixture(1).fit(X[:, :1]), X[:, :1])
    pipeline = make_pipeline(StandardScaler(), ParzenWindows()).fit(X[:, :2])
    plot_density(pipeline, X[:, :2], resolution=20)
    with pytest.warns(UserWarning, match="Raise resolution .* times"):  # peaks narrower than a cell
        plot_density(ParzenWindows(1e-3).fit(X[:5, :2]), resolution=20)
    plot_density(ParzenWindows(1e-3).fit(np.ones((3, 2))), resolution=20)  # no spread at all
    plot_density(ManifoldParzen(n_components=0, n_neighbors=5).fit(X[:, :2]), resolution=20)


@pytest.mark.parametrize(
    ("density", "options", "error", "message"),
    [
        (ParzenWindows().fit(X), {}, ValueError, r"has 4 features, and a picture has two\. Pass features=\(0, 1\)"),
        (ParzenWindows().fit(X), {"features": (0, 1, 2)}, ValueError, "one or two features, got 3"),
        (ParzenWindows().fit(X), {"features": (0, 9)}, ValueError, "feature 9 is out of range"),
        (ParzenWindows().fit(X), {"features": "length"}, ValueError, "columns without names"),
        (ParzenWindows(), {}, NotFittedError, "ParzenWindows"),
        (StandardScaler(), {}, TypeError, "density must have score_samples, got StandardScaler"),
        (GaussianMixture(1).fit(X), {"features": (0, 1)}, TypeError, "GaussianMixture has no marginal"),
        (make_pipeline(StandardScaler(), LCA(reg=0.0)).fit(X[:, :2]), {}, ValueError, "Pipeline has no training rows.*Pass X"),
        (ParzenWindows().fit(X[:, :2]), {"X": X}, ValueError, "X must have the 2 columns of the density, got 4"),
        (ParzenWindows().fit(X[:, :2]), {"resolution": 1}, ValueError, "resolution must be at least 2"),
    ],
)  # fmt: skip
def test_bad_input_of_densities(density, options, error, message):
    with pytest.raises(error, match=message):
        plot_density(density, **options)
    assert not plt.get_fignums()


# -- purity, metric, path ---------------------------------------------------------------------------------------


def test_purity_curves_are_the_scores():
    rca, nca = RCA().fit(X, CODES), NCA(n_components=2, random_state=0).fit(X, CODES)
    names = np.array(["a", "b", "c"])[CODES]
    ax = plot_purity(TABLE.to_numpy(), names, {"_RCA": rca, "$NCA": nca}, n_neighbors=7)
    assert legend_texts(ax) == ["X as it is", "_RCA", "$NCA", "chance"]
    for line, rows in zip(ax.lines, (X, rca.transform(X), nca.transform(X)), strict=False):
        np.testing.assert_array_equal(line.get_ydata(), neighbor_purity(rows, CODES, 7))
    assert ax.lines[-1].get_ydata()[0] == pytest.approx(29 / 89)  # 30 rows a class, one of them the row itself
    assert legend_texts(plot_purity(X, CODES, rca, baseline=False)) == ["RCA"]
    assert len(plot_purity(X[:4], CODES[:4]).lines[0].get_ydata()) == 3
    assert len(plot_purity(X, CODES, {str(i): rca for i in range(12)}, n_neighbors=2).lines) == 14


def test_bad_input_of_purity():
    with pytest.raises(ValueError, match="nothing to draw"):
        plot_purity(X, CODES, baseline=False)
    with pytest.raises(TypeError, match="transform method, got ParzenWindows"):
        plot_purity(X, CODES, ParzenWindows())
    with pytest.raises(ValueError, match="y is continuous"):
        plot_purity(X, X[:, 0])
    with pytest.raises(ValueError, match="y has 89 entries for 90 rows"):
        plot_purity(X, CODES[:-1])
    assert not plt.get_fignums()


def test_the_metric_is_the_matrix_in_the_units_asked_for():
    rca = RCA().fit(TABLE, CODES)
    M = rca.get_mahalanobis_matrix()
    ax = plot_metric(rca)
    np.testing.assert_array_equal(ax.images[0].get_array(), M)
    assert ax.images[0].norm.vmin == -ax.images[0].norm.vmax  # no sign is favoured
    assert [t.get_text() for t in ax.get_yticklabels()][:3] == ["length", "$width", "_colour"]
    assert len(ax.texts) == 16
    spread = X.std(axis=0)
    np.testing.assert_allclose(plot_metric(M, TABLE).images[0].get_array(), M * np.outer(spread, spread))
    names = [t.get_text() for t in plot_metric(M, X, feature_names=list("abcd")).get_xticklabels()]
    assert names == list("abcd")


def test_metrics_of_many_features_and_none():
    ax = plot_metric(np.eye(100))
    assert len(ax.get_xticklabels()) == 20
    assert not ax.texts
    plot_metric(np.zeros((2, 2)))
    plot_metric(np.array([[1e-300]]))


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((np.ones((2, 3)),), {}, ValueError, r"must be square, got shape \(2, 3\)"),
        ((np.eye(2),), {"feature_names": ["a"]}, ValueError, "a name for each of the 2 features, got 1"),
        ((np.eye(2), X), {}, ValueError, "X must have the 2 columns of the metric, got 4"),
        ((ParzenWindows(),), {}, TypeError, "linear metric .* or a square matrix, got ParzenWindows"),
        ((RCA(),), {}, NotFittedError, "RCA"),
        (([[np.inf]],), {}, ValueError, "infinity"),
    ],
)
def test_bad_input_of_metrics(arguments, options, error, message):
    with pytest.raises(error, match=message):
        plot_metric(*arguments, **options)
    assert not plt.get_fignums()


def test_the_path_is_the_objectives():
    lca = LCA(reg=0.0).fit(X)
    ax = plot_path(lca)
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), lca.objectives_)
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), 1 + np.arange(len(lca.objectives_)))
    assert legend_texts(ax) == ["LCA"]
    assert legend_texts(plot_path({"a": lca, "b": lca.objectives_})) == ["a", "b"]
    assert legend_texts(plot_path([1.0, 2.0])) == ["objective"]
    plot_path([1.0])


def test_a_fit_that_did_not_converge_says_so():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        lca = LCA(max_iter=2, reg=0.0).fit(X)
    ax = plot_path({"short": lca})
    assert legend_texts(ax) == ["short (not converged)"]
    assert ax.lines[1].get_marker() == "X"


@pytest.mark.parametrize(
    ("estimators", "error", "message"),
    [
        (ParzenWindows(1.0).fit(X), ValueError, "ParzenWindows has no curve to draw.*without passes"),
        (RCA().fit(X, CODES), TypeError, "RCA has no objectives_"),
        (LCA(reg=0.0), NotFittedError, "LCA"),
        ({}, ValueError, "at least one fitted estimator"),
        ([], ValueError, "objective has no curve"),
    ],
)
def test_bad_input_of_paths(estimators, error, message):
    with pytest.raises(error, match=message):
        plot_path(estimators)
    assert not plt.get_fignums()


def test_outlier_is_drawn_against_its_conditionals():
    detector = DensityOutlierDetector(LCA(reg=0.01)).fit(TABLE)
    row = TABLE[:1].copy()
    row.iloc[0, 1] = 50.0
    found = detector.explain(row)
    ax = plot_outlier(detector, row)
    assert ax.get_yticklabels()[0].get_text() == "$width"
    assert len(ax.patches) == 4
    assert ax.patches[0].get_width() == 2.0
    dots = [line for line in ax.lines if line.get_marker() in ("o", ">", "<")]
    assert dots[0].get_marker() == ">"  # beyond the edge
    k = found.ranking()[0][-1]
    low, high, value = found.lows[0, k], found.highs[0, k], found.values[0, k]
    expected = (value - 0.5 * (low + high)) / (0.5 * (high - low))
    assert dots[-1].get_xdata()[0] == pytest.approx(np.clip(expected, -3, 3))
    assert any("got 50" in text.get_text() for text in ax.texts)
    assert len(plot_outlier(detector, 3, most=2).patches) == 2
    own = detector.explain(rows=[3])
    assert f"got {own.values[0, own.ranking()[0][0]]:.3g}" in plot_outlier(detector, 3).texts[0].get_text()


def test_outlier_in_a_constant_column_and_bad_rows():
    rows = np.column_stack([X[:, :2], np.ones(N)])
    detector = DensityOutlierDetector(ParzenWindows(1.0)).fit(rows)
    ax = plot_outlier(detector, [0.0, 0.0, 0.5])
    assert ax.get_yticklabels()[0].get_text() == "x2"
    assert ax.lines[1].get_marker() == "<"
    with pytest.raises(ValueError, match="row must be one row, got 2"):
        plot_outlier(detector, rows[:2])
    with pytest.raises(ValueError, match="row=90 must be the position of one of 90 training rows"):
        plot_outlier(detector, 90)
    with pytest.raises(TypeError, match="fitted DensityOutlierDetector, got LCA"):
        plot_outlier(LCA(), 0)


# -- the field of metrics ----------------------------------------------------------------------------------------------

LOCAL = LocalLCA(2, 12, 0.01, shared=0.5, center="mean", reg=0.0)


def test_ellipses_are_one_standard_deviation_of_the_kernels_there():
    model = LOCAL.fit(X)
    ax = metric_field(model, X, features=(3, 0), n_ellipses=7, scale=1.0)
    outlines = [path.vertices[:-1] for path in ax.collections[1].get_paths()]
    assert len(outlines) == 7
    for outline in outlines:
        centre = 0.5 * (outline.min(axis=0) + outline.max(axis=0))
        at = int(np.argmin(np.linalg.norm(X[:, [3, 0]] - centre, axis=1)))
        seen = model.local_metric(X[at : at + 1])[0][np.ix_([3, 0], [3, 0])]
        apart = outline - X[at, [3, 0]]
        np.testing.assert_allclose(np.einsum("ij,jk,ik->i", apart, np.linalg.inv(seen), apart), 1.0, rtol=1e-6)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("column 4", "column 1")


def test_the_field_in_two_components_and_by_name():
    model = LOCAL.fit(TABLE)
    assert metric_field(model, TABLE).get_xlabel().startswith("principal component 1 (")
    ax = metric_field(model, TABLE, features=["$width", "length"], n_ellipses=200)
    assert ax.get_xlabel() == "$width"
    assert len(ax.collections[1].get_paths()) == N


def test_ellipses_of_a_field_do_not_cover_each_other():
    """With two of many columns, ellipses of one standard deviation lay in one heap."""
    model = LOCAL.fit(X)
    ax = metric_field(model, X, features=(0, 1))
    whole = metric_field(model, X, features=(0, 1), scale=1)
    small, large = (one.collections[1].get_paths()[0].vertices for one in (ax, whole))
    size = np.ptp(small, axis=0) / np.ptp(large, axis=0)
    assert 0.01 < size[0] < 0.7
    np.testing.assert_allclose(size, size[0])
    assert ax.get_title() == f"ellipses of {size[0]:.2g} standard deviations"
    assert whole.get_title() == ""
    with pytest.raises(ValueError, match="scale must be a finite number greater than 0"):
        metric_field(model, X, features=(0, 1), scale=0)


def test_a_field_that_cannot_be_drawn():
    with pytest.raises(TypeError, match="density must have a local_metric, got LCA"):
        metric_field(LCA().fit(X), X)
    with pytest.raises(ValueError, match="features must name two columns, got 3"):
        metric_field(LOCAL.fit(X), X, features=(0, 1, 2))
    with pytest.raises(ValueError, match="X must have the 4 columns of the density, got 2"):
        metric_field(LOCAL.fit(X), X[:, :2])
    with pytest.raises(NotFittedError):
        metric_field(LocalLCA(), X)


def test_share_inside_counts_half_of_the_mass_of_a_cell():
    np.testing.assert_allclose(np.sort(share_inside(np.zeros((2, 2))).ravel()), [0.125, 0.375, 0.625, 0.875])
    shares = share_inside(np.log(np.array([[0.5, 0.3], [0.15, 0.05]])))
    np.testing.assert_allclose(shares, [[0.25, 0.65], [0.875, 0.975]])
