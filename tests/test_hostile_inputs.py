"""Regression tests for inputs that used to give NaN, a wrong result or an error of another library."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

import vicinal
from vicinal import LCA, NCA, RCA, ParzenWindows
from vicinal._lca.penalty import shrinkage

X = np.random.default_rng(0).normal(size=(60, 3))
X32 = X.astype(np.float32)
Y = np.arange(60) % 2


def narrow(factor):
    """Rows whose first column is in such units."""
    return X * [factor, 1.0, 1.0]


@pytest.mark.parametrize("dtype", ["Int64", "boolean", "string", "Float64"])
@pytest.mark.parametrize(
    "estimator",
    [
        NCA(max_iter=1),
        vicinal.DensityClassifier(ParzenWindows(1.0)),
        vicinal.SoftNeighborsClassifier(bandwidth=1.0),
        vicinal.SoftNeighborsRegressor(bandwidth=1.0),
        vicinal.companions.BinnedTargetMetric(RCA()),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_missing_labels_of_a_nullable_array_are_counted(estimator, dtype):
    y = pd.array([1, None] * 30, dtype="Int64").astype(dtype)
    with pytest.raises(ValueError, match=r"y must not hold missing .*got 30 of 60"):
        estimator.fit(X, y)


@pytest.mark.parametrize("estimator", [RCA(), vicinal.PairNCA(max_iter=1), vicinal.companions.MMC()])
def test_missing_chunklets_of_a_nullable_array_are_rows_in_none(estimator):
    y = pd.array([1, None] * 30, dtype="Int64")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = estimator.fit(X, y).get_mahalanobis_matrix()
        expected = estimator.fit(X, np.where(Y == 0, 1, -1)).get_mahalanobis_matrix()
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("size", [1e20, 1e38, 1e100])
@pytest.mark.parametrize(
    ("estimator", "method"),
    [
        (vicinal.SoftNeighborsClassifier(bandwidth=1.0), "predict_proba"),
        (vicinal.SoftNeighborsRegressor(bandwidth=1.0), "predict"),
        (vicinal.SoftNeighborsRegressor(np.eye(3), bandwidth=1.0), "effective_neighbors"),
        (vicinal.ParzenMeanShift(ParzenWindows(1.0)), "predict"),
        (vicinal.companions.ConstrainedKMeans(2, n_init=1), "predict"),
    ],
)
def test_rows_beyond_the_precision_of_the_training_rows_are_refused(estimator, method, size):
    """Fitted to float32, they gave NaN, the mean of all targets, or an error of the engine."""
    estimator.fit(X32, Y)
    with pytest.raises(ValueError, match=r"magnitude .*, whose squares overflow float32; expected at most 1e\+18"):
        getattr(estimator, method)(np.full((2, 3), size))


@pytest.mark.parametrize("size", [1e151, 1e200, 1e300])
def test_rows_to_climb_from_are_refused_where_squares_overflow(size):
    with pytest.raises(ValueError, match="X holds values of magnitude"):
        vicinal.ParzenMeanShift(ParzenWindows(1.0)).fit(X).predict(np.full((2, 3), size))


@pytest.mark.parametrize(("size", "width"), [(1e151, 1.0), (1e149, 1e-3)])
def test_rows_too_far_to_be_explained_are_refused(size, width):
    """The result was a warning of NumPy about an overflow, and infinite numbers."""
    detector = vicinal.DensityOutlierDetector(ParzenWindows(width)).fit(X)
    with pytest.raises(ValueError, match=r"holds values of magnitude .*, whose squares overflow|shorter than 1e\+140"):
        detector.explain(np.full((2, 3), size))


def test_images_to_map_back_are_named():
    with pytest.raises(ValueError, match="Input X contains infinity"):
        RCA().fit(X, Y).inverse_transform(np.full((2, 3), np.inf))


@pytest.mark.parametrize("factor", [1e-160, 1e-155])
def test_a_mahalanobis_matrix_beyond_float64_is_refused(factor):
    """It was infinite, with a warning of NumPy; distances need no such matrix."""
    metric = RCA().fit(X, Y)
    metric.components_ = metric.components_ / factor
    with pytest.raises(ValueError, match=r"components_ hold values of magnitude .*, whose squares overflow"):
        metric.get_mahalanobis_matrix()


@pytest.mark.parametrize("factor", [1e-200, 1e-155, 1e200])
def test_distances_whose_squares_leave_the_range_are_right(factor):
    """They were infinite, or 0."""
    metric = RCA().fit(X, Y)
    expected = metric.mahalanobis(X[:4])
    metric.components_ = metric.components_ / factor
    np.testing.assert_allclose(metric.mahalanobis(X[:4]) * factor, expected, rtol=1e-12, atol=1e-12)
    pairs = [[0, 1], [2, 3], [1, 1]]
    np.testing.assert_allclose(
        metric.pair_distance(pairs, X[:4]) * factor, [expected[0, 1], expected[2, 3], 0.0], rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize(("fitted", "asked"), [(X, X32), (X32, X)])
def test_clusters_are_predicted_in_either_precision(fitted, asked):
    """It was "Buffer dtype mismatch, expected 'const double' but got 'float'"."""
    clusters = vicinal.companions.ConstrainedKMeans(2, n_init=1, random_state=0).fit(fitted)
    np.testing.assert_array_equal(clusters.predict(asked), clusters.labels_)
    assert clusters.transform(asked).shape == (60, 2)
    assert clusters.score(asked) < 0


def test_draws_that_float32_cannot_hold_are_refused():
    with pytest.raises(ValueError, match="exceed float32"):
        ParzenWindows(1e150).fit(X32).sample(3, random_state=0)
    assert np.isfinite(ParzenWindows(1e150).fit(X).sample(3, random_state=0)).all()


@pytest.mark.parametrize("factor", [1e-152, 1e-155, 1e-160, 1e-200, 1e-310])
@pytest.mark.parametrize(
    "estimator", [RCA(), vicinal.companions.MMC(), vicinal.companions.MMC(structure="diag"), LCA()]
)
def test_columns_in_tiny_units_are_named(estimator, factor):
    """Their variances are subnormal or zero, which gave "array must not contain infs or NaNs"."""
    with pytest.raises(ValueError, match=r"1 of 3 columns \(0\) have a range of at most .* whose square underflows"):
        estimator.fit(narrow(factor), Y)


@pytest.mark.parametrize("factor", [1e-152, 1e-155, 1e-200])
def test_a_bandwidth_is_not_searched_where_all_squares_underflow(factor):
    """It was "cannot convert float NaN to integer"."""
    with pytest.raises(ValueError, match=r"the spread of X is .*underflows float64"):
        vicinal.SoftNeighborsClassifier().fit(factor * X, Y)


def test_weights_over_600_orders_of_magnitude():
    weight = 10.0 ** np.random.default_rng(0).uniform(-300, 300, size=20)
    assert np.isfinite(LCA(reg=0.1).fit(X[:20], sample_weight=weight).components_).all()
    with pytest.raises(ValueError, match="collapses"):
        LCA(reg=0.0).fit(X[:20], sample_weight=weight)


def test_lda_finds_no_more_directions_than_columns_that_vary():
    """With four classes it returned two components instead of the requested three; without any, an IndexError."""
    rows, classes = X * [1.0, 0.0, 1.0], np.arange(60) % 4
    with pytest.raises(ValueError, match=r"finds 2 directions .*got n_components=3"):
        NCA(3, init="lda", max_iter=1).fit(rows, classes)
    assert NCA(2, init="lda", max_iter=30, random_state=0).fit(rows, classes).components_.shape == (2, 3)
    with pytest.raises(ValueError, match="finds 0 directions"):
        NCA(1, init="lda", max_iter=1).fit(np.ones((60, 3)), classes)


def test_rows_that_are_all_equal_have_no_outliers_and_no_warning():
    """The width of the trusted neighbourhoods was the logarithm of 0."""
    detector = vicinal.DensityOutlierDetector(ParzenWindows(1.0)).fit(np.zeros((12, 1)))
    assert np.isfinite(detector.score_samples(np.zeros((2, 1)))).all()


def test_equal_rows_of_huge_numbers_are_refused_by_their_size():
    with pytest.raises(ValueError, match=r"X holds values of magnitude 1e\+200"):
        RCA().fit(np.full((4, 2), 1e200), [0, 0, 1, 1])


def test_components_beyond_float32_map_float32_rows():
    """They were cast to infinity, and zeros times infinity is NaN."""
    metric = RCA(shrinkage=0).fit(X * [1e-60, 1.0, 1.0], Y)
    assert np.abs(metric.components_).max() > 1e50
    images = metric.transform(X32 * np.float32([0.0, 1.0, 1.0]))
    np.testing.assert_allclose(images, metric.transform(X32.astype(np.float64) * [0.0, 1.0, 1.0]))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # ten passes may end before the collapse
def test_a_collapse_under_the_least_penalty_is_explained():
    """One row outweighed the others by hundreds of orders of magnitude; the error had no text."""
    rng, said = np.random.default_rng([2, 615]), []
    for _ in range(20):
        rows = rng.normal(size=(3, 1)) * rng.normal(size=3) + 10.0 ** rng.uniform(0, 12)
        try:
            LCA(max_iter=10).fit(rows, sample_weight=10.0 ** rng.uniform(-300, 300, size=3))
        except ValueError as error:
            said.append(str(error))
    assert said
    assert min(map(len, said)) > 50


def test_texts_are_told_as_such():
    with pytest.raises(ValueError, match=r"X must hold numbers, got text .*'a'.*TableEncoder"):
        RCA().fit([["a"], ["b"]], [0, 0])
    with pytest.raises(ValueError, match=r"sample_weight must hold numbers, got text"):
        ParzenWindows(1.0).fit(X, sample_weight=["a"] * 60)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("size", [1e140, *(pytest.param(size, marks=pytest.mark.slow) for size in (1e-100, 1e100))])
def test_anchors_in_any_unit(size):
    """Fourth powers of the rows used to overflow in the start."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = vicinal.AnchorNCA(max_iter=5, solver=vicinal.Adam(), random_state=0).fit(size * X, Y)
        same = vicinal.AnchorNCA(max_iter=5, solver=vicinal.Adam(), random_state=0).fit(X, Y)
    assert np.isfinite(found.components_).all()
    np.testing.assert_allclose(found.transform(size * X[:3]), same.transform(X[:3]), rtol=0.05, atol=0.05)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_one_row_with_all_the_weight_has_no_variance_to_divide_by():
    """Folds of LCA's search in which one row has all the weight divided by a variance of 0."""
    assert shrinkage(X[:4], np.array([1.0, 0.0, 0.0, 0.0])) == 1.0


def test_categories_of_huge_whole_numbers():
    """1e200 is a whole number, but no 64-bit integer: pandas said that it cannot be cast."""
    codes = np.array([1e200, 2e200] * 6)
    table = pd.DataFrame({"code": codes, "x": np.arange(12.0)})
    encoder = vicinal.TableEncoder({"code": "category"}, categories="one_hot").fit(table)
    assert np.isfinite(encoder.transform(table)).all()


def test_load_detector_without_its_scales_refused():
    """Such files loaded, and failed at the first call with an AttributeError."""
    from vicinal._model_files.states import STATES

    detector = vicinal.DensityOutlierDetector(ParzenWindows(1.0), largest_group=0.1).fit(X)
    assert detector._group_scales is not None
    state = STATES["DensityOutlierDetector"]
    values = {name: getattr(detector, name) for name in state.fields if hasattr(detector, name)}
    assert state.fault(values) is None
    del values["_group_scales"]
    assert state.fault(values).name == "_group_scales"


@pytest.mark.parametrize("as_table", [np.asarray, pd.DataFrame])
def test_numbers_in_the_byte_order_of_another_machine_are_encoded(as_table):
    """pandas said "Big-endian buffer not supported on little-endian compiler" where values repeat."""
    rows = np.repeat(X[:10], 2, axis=0)
    other = rows.astype(rows.dtype.newbyteorder())
    assert not other.dtype.isnative
    found = vicinal.TableEncoder().fit(as_table(other))
    expected = vicinal.TableEncoder().fit(as_table(rows))
    assert found.types_ == expected.types_
    np.testing.assert_array_equal(found.transform(as_table(other)), expected.transform(as_table(rows)))


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_the_range_of_huge_whole_numbers_is_not_formed():
    """Numbers of 1e308 and -1e308 are whole; their range overflowed in the test whether they number the rows."""
    table = pd.DataFrame({"a": 1e307 * np.linspace(-17.0, 17.0, 30)})
    assert vicinal.TableEncoder().fit(table).types_["a"].kind != "identifier"
    numbered = pd.DataFrame({"a": np.random.default_rng(0).permutation(np.arange(500.0, 530.0))})
    assert vicinal.TableEncoder().fit(numbered).types_["a"].kind == "identifier"


def test_a_text_among_images_to_map_back_is_told_as_such():
    """The error was NumPy's, "could not convert string to float: 'a'", which names neither the argument nor a remedy."""
    frame = pd.DataFrame(X[:2]).assign(text="a")
    with pytest.raises(ValueError, match=r"X must hold numbers, got text .*'a'"):
        RCA().fit(X, Y).inverse_transform(frame)


@pytest.mark.parametrize("factor", [1e-318, 1e-300, 1e-160])
def test_anchors_whose_squares_underflow_are_refused(factor):
    """The initial matrix overflowed when it was divided by so small a unit."""
    with pytest.raises(
        ValueError,
        match=r"the rows in pairs contain values of magnitude at most .*underflow float64; expected at least",
    ):
        vicinal.AnchorNCA(max_iter=2, random_state=0).fit(factor * X, Y)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(
    ("entry", "said"), [(np.inf, "X or queries contain NaN or infinity"), (1e200, "X or queries holds values of")]
)
def test_rows_of_a_memory_map_are_checked_before_the_start(tmp_path, entry, said):
    """Memory maps are checked when rows are used, but the start of AnchorNCA used them unchecked: infinity minus infinity."""
    rows = X.copy()
    rows[3, 1] = entry
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    with pytest.raises(ValueError, match=said):
        vicinal.AnchorNCA(max_iter=2, random_state=0).fit(mapped, Y)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("estimator", [vicinal.SoftNeighborsRegressor(), vicinal.SoftNeighborsClassifier()])
def test_rows_infinitely_far_from_all_neighbours_are_refused(estimator):
    """The regressor answered with the mean of all targets, after a warning about an overflow; the classifier with NaN."""
    estimator.fit(1e-100 * X, Y)
    with pytest.raises(ValueError, match=r"X, in units of the bandwidth, holds values of magnitude"):
        estimator.predict(np.full((2, 3), 1e100))


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("bandwidth", ["loo", "scott"])
def test_rows_infinitely_far_from_a_density_are_refused_without_a_warning(bandwidth):
    """The error was there, but NumPy warned of an overflow before it."""
    density = ParzenWindows(bandwidth).fit(1e-100 * X)
    with pytest.raises(ValueError, match="2 rows lie so far from every component"):
        density.score_samples(np.full((2, 3), 1e100))


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("size", [1.0, 1e300, 1e-300])
def test_the_score_of_a_regressor_does_not_depend_on_the_unit_of_its_targets(size):
    """Squares of targets of 1e300 overflow, and R² was NaN."""
    targets = X[:, 0] + 0.1 * X[:, 1]
    expected = vicinal.SoftNeighborsRegressor(bandwidth=0.5).fit(X[:40], targets[:40]).score(X[40:], targets[40:])
    found = vicinal.SoftNeighborsRegressor(bandwidth=0.5).fit(X[:40], size * targets[:40])
    assert found.score(X[40:], size * targets[40:]) == pytest.approx(expected, rel=1e-9)


def test_the_score_of_a_regressor_is_that_of_scikit_learn():
    from sklearn.metrics import r2_score

    both, weight = np.column_stack([X[:, 0], 1e9 * X[:, 1] + X[:, 2]]), np.arange(20.0) + 1.0
    model = vicinal.SoftNeighborsRegressor(bandwidth=0.5).fit(X[:40], both[:40])
    expected = r2_score(both[40:], model.predict(X[40:]), sample_weight=weight)
    assert model.score(X[40:], both[40:], weight) == pytest.approx(expected, rel=1e-12)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("fall", [1e-150, 1e-200, 1e-310])
def test_weights_of_which_one_row_has_all_leave_no_variance(fall):
    """LCA divided by a weighted variance of 0, or squared rows in units of a standard deviation of 1e-155."""
    weight = np.where(np.arange(5) == 2, 1.0, fall)
    rows = X[:5] * [1.0, 1.0, 1e-100]
    with pytest.raises(ValueError, match=r"columns .* have a variance of at most .* under sample_weight"):
        LCA(max_iter=10).fit(rows, sample_weight=weight)


def test_a_stream_that_collapses_is_explained_and_changes_nothing():
    """A row that is 1e30 times further away than the others along two columns leaves a covariance that is singular in float64.

    Whether its Cholesky factorisation failed, with "leading minor" as its only words, depended on the last bits of the
    products, and thus on where arrays lay in memory.
    """
    rows = X[:12] * [1.0, 1e-30, 1e-40]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        density = LCA(reg=0.0, max_iter=10).fit(rows)
        before = density.components_.copy()
        with pytest.raises(ValueError, match="the kernel's covariance collapses"):
            density.partial_fit(np.ones((1, 3)))
    np.testing.assert_array_equal(density.components_, before)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_local_map_of_columns_in_units_far_apart():
    """Eigenvalues of a covariance over 200 orders of magnitude came out negative, and their roots NaN."""
    units = np.array([1e70, 1e-60, 1.0])
    # Noise is the same in all columns, so that a search over it would depend on their units.
    plain = vicinal.LocalLCA(reg=np.eye(3) * 0.1, noise=0.0).fit(X)
    scaled = vicinal.LocalLCA(reg=np.diag(0.1 * units**2), noise=0.0).fit(X * units)
    expected = plain.local_distances(X[0], X)
    np.testing.assert_allclose(scaled.local_distances(X[0] * units, X * units), expected, rtol=1e-6)
    widths = np.linalg.norm(np.linalg.inv(plain.local_map(X[0])), axis=0)
    np.testing.assert_allclose(widths, np.sqrt(np.linalg.eigvalsh(plain.local_metric(X[:1])[0])[::-1]), rtol=1e-9)


@pytest.mark.parametrize("rows", [np.zeros((5, 2)), np.repeat(X[:30, :2], 2, axis=0)])
def test_a_bandwidth_does_not_shrink_to_nothing_beside_missing_values(rows):
    """For equal rows of which one lacks a value, ParzenWindows ended with a bandwidth of 1e-51 after 100 passes."""
    rows = rows.copy()
    rows[-1, 0] = np.nan
    with pytest.raises(ValueError, match=r"found no width .*Pass bandwidth as a number"):
        ParzenWindows().fit(rows)


@pytest.mark.parametrize("estimator", [ParzenWindows(0.5), RCA()])
def test_infinities_of_both_signs_are_refused_without_a_warning(estimator):
    """Their sum, by which scikit-learn looks for infinities, warned before the error; so did signalling NaNs of a damaged file."""
    signalling = np.frombuffer(bytes([1, 0, 0, 0, 0, 0, 0xF0, 0x7F]) * 6).reshape(3, 2)
    for X in ([[np.inf, 1.0], [2.0, -np.inf], [3.0, 4.0]], signalling):
        with pytest.raises(ValueError, match=r"Input X contains|hold no value at all"):
            estimator.fit(X, [0, 0, 1])


@pytest.mark.parametrize("unit", [1e-305, 1e-310, 5e-324])
def test_repeated_values_in_tiny_units_have_no_common_step(unit):
    """The step of values below 1e-308 was 0, and `TableEncoder` divided by it."""
    X = unit * np.repeat(np.random.default_rng(0).normal(size=(4, 1)), 3, axis=0)
    np.testing.assert_array_equal(vicinal.TableEncoder(categories="omit").fit_transform(X), X)
