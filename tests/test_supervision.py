"""Test that all functions that take labels give the same result or the same error for each kind of labels."""

import decimal
import warnings

import numpy as np
import pandas as pd
import pytest
from needs import needs
from scipy.sparse import csr_array
from sklearn.exceptions import DataConversionWarning

import vicinal
from vicinal import (
    NCA,
    RCA,
    DensityClassifier,
    ManifoldParzen,
    NeuralNCA,
    Objective,
    OnlineRCA,
    PairNCA,
    ParzenWindows,
    Selection,
    SoftNeighborsClassifier,
    SoftNeighborsRegressor,
    chunklets_from_labels,
    chunklets_from_pairs,
    quality,
)
from vicinal._plot.parts import check_labels
from vicinal._supervision import code_classes, code_groups, code_labels, is_missing, read_numbers, read_values
from vicinal.companions import (
    MMC,
    BinnedTargetMetric,
    ConstrainedGaussianMixture,
    ConstrainedKMeans,
    simulate_chunklets,
    simulate_pairs,
    simulate_teachers,
)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

N = 30
CODES = np.random.default_rng(1).permutation(np.repeat([0, 1, 2], N // 3))
assert CODES[0] != 0  # so that sorted order and the order of first appearance differ
X = np.random.default_rng(0).normal(size=(N, 2)) + 3.0 * CODES[:, None] * [1.0, 0.0]
GAPS = np.arange(N) % 5 == 3
NAMES = np.array(["ant", "bee", "cat"])[CODES]
DATES = np.array(["2020", "2021", "2022"], dtype="M8[Y]")[CODES]


def objects(entries):
    return np.fromiter(entries, dtype=object, count=N)


def with_gaps(values, gap=None):
    """A list with `gap` in place of some entries."""
    return [gap if missing else value for value, missing in zip(np.asarray(values).tolist(), GAPS, strict=True)]


def network(y, objective):
    needs("torch")
    return NeuralNCA(1, objective=objective, max_iter=2, random_state=0, network=3).fit(X, y).transform(X)


# Rows may be in no group: -1 and whatever is missing.
GROUPS = {
    "chunklets_from_labels": chunklets_from_labels,
    "chunklets_from_pairs": lambda y: len(labels_against_pairs(y)),
    "simulate_chunklets": lambda y: np.concatenate(simulate_chunklets(y, fraction=0.6, random_state=0)),
    "simulate_pairs": lambda y: np.concatenate(simulate_pairs(y, random_state=0)),
    "simulate_teachers": lambda y: np.concatenate(simulate_teachers(y, 3, random_state=0)),
    "RCA": lambda y: RCA().fit(X, y).components_,
    "NeuralNCA of pairs": lambda y: network(y, "pairs"),
    "RCA.partial_fit": lambda y: RCA().partial_fit(X, y).components_,
    "OnlineRCA": lambda y: OnlineRCA().fit(X, y).components_,
    "MMC": lambda y: MMC(max_iter=5).fit(X, y).components_,
    "ConstrainedKMeans": lambda y: ConstrainedKMeans(2, n_init=1, random_state=0).fit(X, y).labels_,
    "ConstrainedGaussianMixture": lambda y: ConstrainedGaussianMixture(2, random_state=0).fit(X, y).means_,
    "PairNCA": lambda y: PairNCA(max_iter=2).fit(X, y).components_,
}
# Every row has a class, and classes are sorted.
CLASSES = {
    "NCA": lambda y: NCA(max_iter=2).fit(X, y).components_,
    "SoftNeighborsClassifier": lambda y: SoftNeighborsClassifier().fit(X, y).predict_proba(X),
    "DensityClassifier": lambda y: DensityClassifier(ParzenWindows(1.0)).fit(X, y).predict_proba(X),
    "ManifoldParzen": lambda y: (
        ManifoldParzen(
            n_components=1, n_neighbors=2, selection=Selection("conditional_log_likelihood", noise=[0.1, 1.0], cv=2)
        )
        .fit(X, y)
        .cv_results_["mean_test_score"]
    ),
}
# Every row has a class; classes are only told apart.
TOLD_APART = {
    "clustering_accuracy": lambda y: quality.clustering_accuracy(y, np.arange(N) % 3),
    "clustering_accuracy, predicted": lambda y: quality.clustering_accuracy(np.arange(N) % 3, y),
    "balanced_rand_score": lambda y: quality.balanced_rand_score(y, np.arange(N) % 3),
    "neighbor_purity": lambda y: quality.neighbor_purity(X, y, 3),
    "compare": lambda y: (
        vicinal.compare(X, y, task="classes", metrics=["rca"], densities=[], n_repeats=1, n_splits=2)
        .metrics[0]
        .scores["accuracy"]
    ),
}
METHODS = {**GROUPS, **CLASSES, **TOLD_APART}


def labels_against_pairs(y):
    """The warnings about pairs that join two labels."""
    pairs = [np.flatnonzero(CODES == 0)[:2], [np.flatnonzero(code == CODES)[-1] for code in (1, 2)]]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        chunklets_from_pairs(pairs, N, labels=y)
    return caught


@pytest.fixture(scope="module")
def answer():
    """Return the result of a method for plain integers, computed once."""
    known = {}

    def find(name, partial=False):
        if (name, partial) not in known:
            known[name, partial] = METHODS[name](np.where(GAPS, -1, CODES) if partial else CODES)
        return known[name, partial]

    return find


SPELLINGS = {
    "list": CODES.tolist(),
    "tuple": tuple(CODES.tolist()),
    "int8": CODES.astype(np.int8),
    "uint64": CODES.astype(np.uint64),
    "far apart": CODES * 10**15,
    "huge integers": [10**30 + int(code) for code in CODES],
    "whole floats": CODES.astype(float),
    "float32": CODES.astype(np.float32),
    "texts": NAMES,
    "list of texts": NAMES.tolist(),
    "texts as objects": NAMES.astype(object),
    "bytes": NAMES.astype("S"),
    "texts that say nan": np.array(["None", "nan", "x"])[CODES],
    "dates": DATES,
    "timestamps": [pd.Timestamp(date) for date in DATES.astype("M8[ns]")],
    "integers as objects": CODES.astype(object),
    "masked, nothing hidden": np.ma.array(CODES),
    "Series": pd.Series(NAMES, index=np.arange(N) + 7),
    "Index": pd.Index(NAMES),
    "Categorical": pd.Categorical(NAMES),
    "category": pd.Series(NAMES, dtype="category"),
    "string": pd.Series(NAMES, dtype="string"),
    "Int64": pd.array(CODES, dtype="Int64"),
    "Series of Int64": pd.Series(CODES, dtype="Int64"),
    "Float64": pd.array(CODES.astype(float), dtype="Float64"),
}


@pytest.mark.parametrize("name", METHODS)
def test_the_same_labels_give_the_same_answer(name, answer):
    for spelling, y in SPELLINGS.items():
        np.testing.assert_array_equal(METHODS[name](y), answer(name), err_msg=spelling)


@pytest.mark.parametrize(
    "y", [CODES > 0, (CODES > 0).tolist(), pd.array(CODES > 0, dtype="boolean"), (CODES > 0).astype(object)]
)
@pytest.mark.parametrize("name", METHODS)
def test_booleans_are_two_labels(name, y):
    np.testing.assert_array_equal(METHODS[name](y), METHODS[name]((CODES > 0).astype(int)))


@pytest.mark.parametrize("y", [CODES[:, None], pd.DataFrame({"species": NAMES}), [[name] for name in NAMES.tolist()]])
@pytest.mark.parametrize("name", METHODS)
def test_a_column_is_a_vector(name, y, answer):
    """Estimators that learn classes warn, as scikit-learn's classifiers do; for RCA a list of lists holds row positions."""
    if (
        isinstance(y, list)
        and name in GROUPS
        and not name.startswith(("chunklets", "simulate", "PairNCA", "NeuralNCA"))
    ):
        with pytest.raises(ValueError, match="y must hold lists of row positions"):
            METHODS[name](y)
        return
    with pytest.warns(DataConversionWarning, match="column-vector") if name in CLASSES else warnings.catch_warnings():
        found = METHODS[name](y)
    np.testing.assert_array_equal(found, answer(name))


INCOMPLETE = {
    "NaN": np.where(GAPS, np.nan, CODES),
    "None": with_gaps(CODES),
    "None among texts": with_gaps(NAMES),
    "NaN among texts": with_gaps(NAMES, np.nan),
    "None as objects": np.where(GAPS, None, NAMES),
    "pandas.NA": with_gaps(CODES, pd.NA),
    "NaT": np.where(GAPS, np.datetime64("NaT", "D"), DATES),
    "NaT among timestamps": with_gaps(DATES.astype("M8[s]"), pd.NaT),
    "Int64": pd.array(with_gaps(CODES), dtype="Int64"),
    "Series of Int64": pd.Series(with_gaps(CODES), dtype="Int64"),
    "Int64 beyond 2**53": pd.array(with_gaps(CODES + 2**60), dtype="Int64"),
    "Float64": pd.array(with_gaps(CODES.astype(float)), dtype="Float64"),
    "string": pd.array(with_gaps(NAMES), dtype="string"),
    "Categorical": pd.Categorical(with_gaps(NAMES)),
    "DataFrame": pd.DataFrame({"species": with_gaps(NAMES)}),
    "masked": np.ma.array(CODES, mask=GAPS),
    "masked texts": np.ma.array(NAMES, mask=GAPS),
    "Decimal": with_gaps([decimal.Decimal(int(code)) for code in CODES], decimal.Decimal("NaN")),
}


@pytest.mark.parametrize("name", METHODS)
def test_missing_labels_mean_no_group_or_are_refused(name, answer):
    """Two masked entries used to make a group of their own, an Int64 array an AttributeError, and NaT a class."""
    message = r"y(_true|_pred)? must not hold missing labels .*, got 6 of 30\. Drop these rows"
    for spelling, y in INCOMPLETE.items():
        if name in GROUPS:
            np.testing.assert_array_equal(METHODS[name](y), answer(name, partial=True), err_msg=spelling)
            continue
        with pytest.raises(ValueError, match=message):
            METHODS[name](y)


@pytest.mark.parametrize(
    "y", [np.where(GAPS, -1, CODES), with_gaps(CODES, -1.0), with_gaps(NAMES, "-1"), with_gaps(NAMES, -1)]
)
@pytest.mark.parametrize("name", METHODS)
def test_minus_one_means_no_group_and_is_a_class_like_any_other(name, y, answer):
    if name in GROUPS:
        np.testing.assert_array_equal(METHODS[name](y), answer(name, partial=True))
    elif name in TOLD_APART or len({type(label) for label in y}) == 1:
        four = np.where(GAPS, 0, CODES + 1)  # -1, as a number and as a text, comes before the others
        np.testing.assert_array_equal(METHODS[name](y), METHODS[name](four))


@pytest.mark.parametrize("name", METHODS)
def test_labels_of_several_kinds(name, answer):
    """They are different, but have no common order for `classes_`."""
    for y in (objects([3, "a", "b"][code] for code in CODES), [[3, "a", "b"][code] for code in CODES]):
        if name in CLASSES:
            with pytest.raises(TypeError, match=r"y must hold labels of one kind .*, got int, str\. Convert them"):
                METHODS[name](y)
        else:
            np.testing.assert_array_equal(METHODS[name](y), answer(name))
    one_and_one = objects([1, "1", "x"][code] for code in CODES)
    if name not in CLASSES:
        np.testing.assert_array_equal(METHODS[name](one_and_one), answer(name))


REFUSED = {
    "fractions": (CODES + 0.5, "y.* is continuous: 30 of its 30 entries are fractional numbers.*numpy.digitize"),
    "some fractions": (with_gaps(CODES, 0.5), "y.* is continuous: 6 of its 30 entries are fractional"),
    "fractions of pandas": (pd.array(CODES + 0.5, dtype="Float64"), "y.* is continuous"),
    "infinite": (np.where(CODES == 0, np.inf, CODES), "y.* holds infinite numbers.*Pass integers or strings"),
    "too large": (CODES * 1e300, r"y.* holds numbers up to 2e\+300.*Pass integers or strings"),
    "complex": (CODES + 0j, "y.* holds complex numbers.*Pass integers or strings"),
    "one-hot": (np.eye(3, dtype=int)[CODES], r"y.* (1d array of labels|looks like labels).*argmax\(axis=1\)"),
    "one-hot floats": (np.eye(3)[CODES], r"y.* (1d array of labels|looks like labels).*argmax\(axis=1\)"),
    "one-hot booleans": (np.eye(3, dtype=bool)[CODES], r"y.* (1d array of labels|looks like labels).*argmax\(axis=1\)"),
    "one row": (CODES[None], r"y.* (1d array of labels|looks like labels)"),
    "a number": (3, "y.* should be a 1d array of labels, got int instead"),
    "a text": ("abc", "y.* should be a 1d array of labels, got str instead"),
    "a set": ({0, 1, 2}, "y.* should be a 1d array of labels, got set instead"),
    "sparse": (csr_array(np.eye(3)[CODES]), "y.* should be a 1d array of labels, got csr_array instead"),
    "an unhashable label": (
        objects([*NAMES[:-1], {"a": 1}]),
        r"y.* must hold one label per row.*got a dict as entry 29",
    ),
}


@pytest.mark.parametrize("name", METHODS)
def test_what_is_no_label_is_refused_by_all(name):
    for y, message in REFUSED.values():
        expected = message.replace("y.*", "labels.*") if name == "chunklets_from_pairs" else message
        with pytest.raises((ValueError, TypeError), match=expected):
            METHODS[name](y)


@pytest.mark.parametrize("name", METHODS)
def test_too_few_labels_and_none_at_all(name):
    if name.startswith(("simulate", "chunklets_from_labels")):  # they learn the number of rows from y
        return
    if not name.startswith(("clustering", "balanced")):
        for y in (CODES[:-1], [], pd.Series(NAMES[:-1])):
            with pytest.raises(ValueError, match=f"has {len(y)} entries for 30 rows.*Pass one"):
                METHODS[name](y)
    if not name.startswith(("Constrained", "compare", "chunklets")):  # which take y=None
        with pytest.raises(ValueError, match=r"requires y(_true|_pred)? to be passed, but the target y\S* is None"):
            METHODS[name](None)


@pytest.mark.parametrize("name", GROUPS)
def test_numbers_below_minus_one_may_mean_either(name):
    for y in (CODES - 2, with_gaps(NAMES, -2), pd.array(CODES - 2, dtype="Int64")):
        with pytest.raises(ValueError, match=r"(y|labels) holds \d+ integers below -1 \(smallest -2\).*renumber"):
            GROUPS[name](y)


def test_a_label_that_holds_nothing_is_drawn_without_one():
    for y in INCOMPLETE.values():
        np.testing.assert_array_equal(check_labels(y, N)[0], np.where(GAPS, -1, CODES))


# --- the coder itself ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64])
def test_codes_are_those_of_unique_at_the_ends_of_every_dtype(dtype):
    rng = np.random.default_rng(0)
    info = np.iinfo(dtype)
    ends = np.array([info.min, info.min + 1, info.max - 1, info.max], dtype=dtype)
    for values in (
        ends,
        rng.choice(ends, 50),
        rng.integers(0, 9, 50).astype(dtype),
        (ends[2:])[rng.integers(0, 2, 50)],
    ):
        classes, codes = code_labels(values)
        expected, inverse = np.unique(values, return_inverse=True)
        np.testing.assert_array_equal(classes, expected)
        np.testing.assert_array_equal(codes, inverse)
        assert classes.dtype == dtype
        assert codes.dtype == np.int64


@pytest.mark.parametrize("y", [*SPELLINGS.values(), CODES > 0, objects([3, "a", b"z"][code] for code in CODES)])
def test_classes_at_codes_are_the_labels(y):
    classes, codes = code_labels(y)
    assert all(found == given for found, given in zip(classes[codes].tolist(), np.asarray(y).tolist(), strict=True))
    assert set(codes.tolist()) == set(range(len(classes)))


def test_codes_do_not_depend_on_the_order_of_the_rows():
    y = np.array(["b", 1, (2, 3), "a", 10, 9, None], dtype=object)
    order = np.random.default_rng(0).permutation(len(y))
    ahead, shuffled = code_labels(y, partial=True), code_labels(y[order], partial=True)
    assert ahead.classes.tolist() == shuffled.classes.tolist()
    np.testing.assert_array_equal(ahead.codes[order], shuffled.codes)


def test_predictions_are_labels_of_the_kind_that_was_given():
    for y, kind in ((NAMES, "U"), (NAMES.tolist(), "U"), (pd.array(CODES, dtype="Int64"), "i"), (CODES > 0, "b")):
        for model in (SoftNeighborsClassifier(), DensityClassifier(ParzenWindows(1.0))):
            assert model.fit(X, y).classes_.dtype.kind == kind
            assert (np.sort(model.classes_) == model.classes_).all()
            assert np.mean(model.predict(X) == np.asarray(y)) > 0.8


def test_classes_whose_rows_all_weigh_nothing_are_not_learned():
    weight = (CODES != 1).astype(float)
    assert DensityClassifier(ParzenWindows(1.0)).fit(X, NAMES, sample_weight=weight).classes_.tolist() == ["ant", "cat"]
    few = NCA(max_iter=2).fit(X, NAMES, sample_weight=weight)
    kept = NCA(max_iter=2).fit(X[CODES != 1], NAMES[CODES != 1])
    np.testing.assert_allclose(few.components_, kept.components_, rtol=1e-6)


@pytest.mark.parametrize(
    "value", [None, np.nan, np.float32("nan"), pd.NA, pd.NaT, np.datetime64("NaT", "D"), complex("nan")]
)
def test_missing_values(value):
    assert is_missing(value)


@pytest.mark.parametrize(
    "value", [0, -1, "", "nan", False, (), [], [1, 2], np.array([1, 2]), np.array([np.nan] * 2), {}]
)
def test_values_that_are_there(value):
    assert not is_missing(value)


def test_reading_changes_no_label():
    y = np.array(["b", None, "a"], dtype=object)
    masked = np.ma.array([1, 2, 3], mask=[False, True, False])
    for given in (y, masked):
        before = given.copy()
        read_values(given)
        code_groups(given)
        assert given.tolist() == before.tolist()
    assert code_classes(["b", "a", "b"], 3).classes.tolist() == ["a", "b"]


# --- numbers as targets --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fit",
    [
        lambda y: SoftNeighborsRegressor().fit(X, y).predict(X),
        lambda y: NCA(max_iter=2, objective=Objective(match="gaussian")).fit(X, y).components_,
        lambda y: BinnedTargetMetric().fit(X, y).components_,
    ],
)
@pytest.mark.filterwarnings("ignore:A column-vector y was passed")
def test_numbers_of_every_kind(fit):
    y = CODES + 0.25
    plain = fit(y)
    for given in (y.tolist(), y.astype(object), pd.Series(y), pd.array(y, dtype="Float64"), np.ma.array(y)):
        np.testing.assert_array_equal(fit(given), plain)
    np.testing.assert_array_equal(fit(y[:, None]).reshape(plain.shape), plain)
    for given in (
        np.where(GAPS, np.nan, y),
        with_gaps(y),
        pd.array(with_gaps(y), dtype="Float64"),
        np.ma.array(y, mask=GAPS),
    ):
        with pytest.raises(ValueError, match=r"y must not hold missing numbers .*, got 6 of 30\. Drop these rows"):
            fit(given)
    for given, message in (
        (NAMES, "y must hold numbers, but "),
        (np.where(GAPS, np.inf, y), "y must hold finite numbers, got 6 of 30 infinite"),
        (y + 0j, "y must hold real numbers, got complex"),
        (y[:-1], "y has 29 entries for 30 rows"),
        (None, "requires y to be passed, but the target y is None"),
        (3.0, "y should hold one number per row, .* got float instead"),
    ):
        with pytest.raises(ValueError, match=message):
            fit(given)


def test_several_outputs():
    y = np.random.default_rng(0).normal(size=(N, 2))
    np.testing.assert_array_equal(read_numbers(pd.DataFrame(y), N, ""), y)
    with pytest.raises(ValueError, match="got rows of different lengths"):
        read_numbers([[1.0, 2.0]] * (N - 1) + [[1.0]], N, "")
