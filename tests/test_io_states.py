"""Test the states of classes in model files: they are declared completely, and loaded estimators work."""

import copy
import json
import warnings
from contextlib import suppress
from dataclasses import is_dataclass
from functools import cache

import numpy as np
import pytest
import sklearn
from model_file_fits import CHUNKLETS, FITS, X, Y, answers, fitted_once
from needs import needs
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import vicinal
from vicinal import LCA, NCA, io
from vicinal._model_files.classes import _CLASSES, find_class
from vicinal._model_files.codec import Writer
from vicinal._model_files.container import write_arrays
from vicinal._model_files.kinds import State, count, equal, floats, integers, maybe, nans
from vicinal._model_files.states import STATES, state_of

CLASSES = set(STATES)
SEEDS = range(40)


def needs_torch(name):
    if name.startswith("NeuralNCA"):
        needs("torch")


@cache
def written_once(name):
    writer = Writer()
    return json.dumps(writer.estimator(fitted_once(name))), writer.arrays


def written(name):
    """The description and the arrays of a fit, as a file holds them."""
    text, arrays = written_once(name)
    return json.loads(text), dict(arrays)


def write(path, tree, arrays):
    model = {"vicinal": vicinal.__version__, "sklearn": sklearn.__version__, "estimator": tree}
    write_arrays(path, json.dumps(model), arrays)


def described_objects(tree):
    """The estimators and records of a description, at any depth."""
    if isinstance(tree, dict):
        if tree.get("is") in ("estimator", "record"):
            yield tree
        tree = list(tree.values())
    for item in tree if isinstance(tree, list) else ():
        yield from described_objects(item)


def fields_in(tree):
    return tree["attributes"] if tree["is"] == "estimator" else tree["fields"]


def assert_close(found, expected, rtol):
    """Equal types and names, and numbers that agree."""
    assert found.keys() == expected.keys()
    for method in expected:
        left, right = np.asarray(found[method]), np.asarray(expected[method])
        if right.dtype.kind == "f":
            np.testing.assert_allclose(left, right, rtol=rtol, atol=rtol, err_msg=method)
        else:
            np.testing.assert_array_equal(left, right, err_msg=method)


# -- the declarations --------------------------------------------------------------------------------------------------


def test_every_class_that_a_file_can_hold_is_declared():
    public = [name for name in vicinal.__all__ if isinstance(getattr(vicinal, name), type)]
    options = {name for name in [*public, *_CLASSES] if is_dataclass(find_class(name))} - {
        "ChunkletReport",
        "ChunkletScatter",
    }
    classes = {name for name in [*public, *_CLASSES] if find_class(name) is not None}
    assert classes - options == set(STATES)


@pytest.mark.parametrize("name", FITS)
def test_all_that_a_fit_keeps_is_declared_and_comes_back(name, tmp_path):
    """Saving raises an error for attributes that are not declared, at any depth."""
    needs_torch(name)
    estimator = fitted_once(name)
    io.save(estimator, tmp_path / "model.vicinal")
    same = io.load(tmp_path / "model.vicinal")
    assert list(vars(same)) == list(vars(estimator))
    assert answers(same) == answers(estimator)


def test_everything_that_is_declared_occurs():
    """A field that no fit has is dead, or a way to fit is missing among the fits."""
    needs("torch")
    seen = {
        (tree["class"], name) for fit in FITS for tree in described_objects(written(fit)[0]) for name in fields_in(tree)
    }
    without_rows = Writer(training_rows=False)
    metric = fitted_once("LCA")
    seen |= {("RowsLeftOut", name) for name in fields_in(without_rows.estimator(metric)["attributes"]["mixture_"])}
    declared = {(name, field) for name in CLASSES for field in state_of(name).fields}
    # Of settings, one class shows that they come back; engines are given to what stands for a density by its user.
    elsewhere = {pair for pair in declared if pair[1] in ("_sklearn_output_config", "feature_names_in_")} | {
        ("RowsLeftOut", "engine")
    }
    assert declared - seen - elsewhere == set()


def test_attributes_that_are_not_declared_are_not_saved(tmp_path):
    metric = LCA(reg=0.0).fit(X)
    metric.note_ = "mine"
    with pytest.raises(TypeError, match=r"^note_ is not a declared attribute of LCA.*del estimator\.note_\.$"):
        io.save(metric, tmp_path / "model.vicinal")
    metric = make_pipeline(StandardScaler(), LCA(reg=0.0)).fit(X)
    metric[1].mixture_.cache = np.zeros(3)
    with pytest.raises(TypeError, match=r"del estimator\.steps\[1\]\[1\]\.mixture_\.cache\.$"):
        io.save(metric, tmp_path / "model.vicinal")
    assert not list(tmp_path.iterdir())


def test_a_fit_that_did_not_finish_is_not_saved(tmp_path):
    metric = LCA(reg=0.0)
    with pytest.raises(ValueError, match="span only"):
        metric.fit(X[:, :1] * [1.0, 2.0])
    assert hasattr(metric, "n_features_in_")
    with pytest.raises(TypeError, match=r"objectives_ is nothing.*fit did not finish.*Fit again"):
        io.save(metric, tmp_path / "model.vicinal")
    assert not list(tmp_path.iterdir())


def test_what_was_changed_into_nonsense_is_not_saved(tmp_path):
    metric = NCA(random_state=0, max_iter=3, tol=1.0).fit(X, Y)
    metric.components_ = metric.components_[:, :1]
    with pytest.raises(TypeError, match=r"components_ is an array .*expected floats\(k, d, filled=True\), where d=2"):
        io.save(metric, tmp_path / "model.vicinal")
    assert not list(tmp_path.iterdir())


def test_a_refit_under_other_parameters_can_be_saved(tmp_path):
    """Some attributes belonged to an earlier fit, perhaps on other columns."""
    metric = NCA(solver="stochastic", random_state=0, max_iter=1, tol=10.0, structure="diag")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        metric.fit(np.hstack([X, X**2]), Y).set_params(structure="full", solver="lbfgs").fit(X, Y)
    io.save(metric, tmp_path / "model.vicinal")
    assert not hasattr(io.load(tmp_path / "model.vicinal"), "feature_relevance_")


def stop(parameters, n_iter):
    raise StopIteration


@pytest.mark.parametrize(
    "name",
    [
        "ConstrainedGaussianMixture",
        "LCA",
        "LCAGauss",
        "MMC",
        "NCA",
        "NeuralNCA",
        "PairNCA",
    ],
)
def test_a_fit_that_was_stopped_at_once_can_be_saved(name, tmp_path):
    needs_torch(name)
    estimator = clone(fitted_once(name)).set_params(callback=stop)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(X, CHUNKLETS)
        io.save(estimator, tmp_path / "model.vicinal")
    assert answers(io.load(tmp_path / "model.vicinal")) == answers(estimator)


# -- the language ------------------------------------------------------------------------------------------------------


def test_sizes_are_the_same_in_the_whole_state():
    state = State({"n": count("n"), "a": floats("n", "k"), "b": maybe(floats("k", "k"))})
    good = {"n": 2, "a": np.zeros((2, 3))}
    assert state.fault(good) is None
    assert state.fault({**good, "b": np.zeros((3, 3))}) is None
    fault = state.fault({**good, "b": np.zeros((2, 2))})
    assert (fault.name, fault.expected) == ("b", "floats(k, k), where k=3")
    assert fault.got == "an array of dtype float64 and shape (2, 2) with values from 0 to 0"
    assert state.fault({**good, "n": 3}).name == "a"
    assert state.fault({**good, "n": True}).expected == "count(n)"


def test_positions_stay_below_the_number_of_rows():
    state = State({"n_rows": count("n"), "positions": integers("m", below="n")})
    for positions in ([0, 2], [2, 1, 0], []):
        assert state.fault({"n_rows": 3, "positions": np.array(positions, dtype=np.int64)}) is None
    for positions in ([0, 3], [-1, 0]):
        assert state.fault({"n_rows": 3, "positions": np.array(positions)}).name == "positions"


def test_a_state_is_whole_or_empty():
    state = State({"a": count(), "b": count(), "c": maybe(count()), "d": count()}, early=["a", "b"])
    assert state.fault({}) is None
    assert state.fault({"a": 1, "b": 1}) is None
    assert state.fault({"a": 1, "b": 1, "c": 1, "d": 1}) is None
    assert state.fault({"a": 1}).name == "b"
    assert state.fault({"a": 1, "b": 1, "c": 1}) == ("d", "count()", "nothing")
    assert state.fault({"c": 1}).name == "a"


def test_a_number_of_nan_is_a_size():
    state = State(
        {"d": count("d"), "constants": maybe(equal("a", "d"), nans("d", "a")), "covariance": floats("a", "a")}
    )
    constants = np.array([1.0, np.nan, np.nan])
    assert state.fault({"d": 3, "constants": constants, "covariance": np.eye(2)}) is None
    assert state.fault({"d": 3, "constants": None, "covariance": np.eye(3)}) is None
    for known, size in ((constants, 3), (None, 2)):
        assert state.fault({"d": 3, "constants": known, "covariance": np.eye(size)}).name == "covariance"
    assert state.fault({"d": 1, "constants": np.ones(1), "covariance": np.eye(0)}).name == "constants"


# -- what is refused ---------------------------------------------------------------------------------------------------


def changed_array(name, change):
    def apply(tree, arrays):
        arrays[name] = np.ascontiguousarray(change(arrays[name].copy()))

    return apply


def changed_field(name, value):
    def apply(tree, arrays):
        tree["attributes"][name] = value

    return apply


def with_entry(value):
    def change(array):
        array.flat[0] = value
        return array

    return change


@pytest.mark.parametrize(
    ("fit", "change", "message"),
    [
        (
            "LCA:shrinkage",
            lambda tree, arrays: tree["attributes"]["reg_"]["fields"].update(target=0.2),
            r"LCA has reg_=.*, expected .*record\(Shrinkage, target=",
        ),
        ("LCA", changed_field("n_features_in_", 3), r"LCA has .*=an array.* expected floats\(.*=3"),
        ("LCA", changed_field("engine_", "gpu"), "LCA has engine_='gpu', expected one_of.cpu, dask, reference, torch"),
        ("LCA", changed_field("converged_", 1), "LCA has converged_=1, expected True or False"),
        ("LCA", changed_field("mixture_", None), r"LCA has mixture_=None, expected record\(SharedMixture.* or record\(RowsLeftOut"),
        ("LCA", changed_array("components_", with_entry(np.nan)), "LCA has components_=.*nan.* expected floats"),
        ("LCA", changed_array("components_", lambda A: A[:1]), r"components_=.*shape \(1, 2\).* expected .*\(a, d\)"),
        ("LCA", changed_array("components_", lambda A: A > 0), "LCA has components_=.*dtype bool"),
        ("LCA", changed_array("mixture_.centres", lambda A: A[:5]), r"SharedMixture has log_weights=.*where n=5"),
        ("LCA:stream", changed_field("_stream", {"is": "dict", "items": []}), "LCA has _stream=a dict, expected None or"),
        ("LocalLCA:noise", changed_array("mixture_.frames", lambda A: 2 * A), "FrameMixture has frames=.*most=1.001"),
        ("ManifoldParzen", changed_array("_neighbors", with_entry(10**6)), "_neighbors=.*integers.n, k, below=n.*n=14"),
        ("ManifoldParzen", changed_array("_neighbors", with_entry(-1)), "ManifoldParzen has _neighbors="),
        ("ManifoldParzen", changed_array("mixture_.variances", lambda v: -v - 1), "FrameMixture has variances=.*least=0"),
        ("SoftNeighborsClassifier", changed_array("_codes", with_entry(9)), r"_codes=.*below=c.* c=3"),
        ("SoftNeighborsClassifier", changed_array("_codes", lambda c: c[::-1]), "_codes=.*increasing=True"),
        ("SoftNeighborsClassifier", changed_array("points_", lambda A: A[:, :1]), r"points_=.*rows\(m, k\), where k=2"),
        ("SoftNeighborsClassifier", changed_array("points_", with_entry(1e200)), r"points_=.*rows\(m, k\), where k=2"),
        ("SoftNeighborsClassifier", changed_array("classes_", lambda c: c[::-1]), "classes_=.*expected labels"),
        ("SoftNeighborsClassifier:metric", changed_field("metric_", None), r"points_=.*rows\(m, k\), where k=2"),
        ("SoftNeighborsRegressor", changed_field("bandwidth_", None), "bandwidth_=None, expected number"),
        ("DensityClassifier", changed_field("densities_", []), "densities_=a list, expected estimators.*c=3"),
        ("NeuralNCA", changed_field("_n_outputs", 0), "_n_outputs=0, expected count.k, least=1"),
        ("NCA", changed_array("components_", lambda A: A[:0]), "NCA has components_=.*filled=True"),
        ("PairNCA", changed_array("components_", lambda A: A[:0]), "PairNCA has components_=.*filled=True"),
        ("AnchorNCA", changed_array("components_", lambda A: A[:0]), "components_=.*filled=True"),
        ("MMC", changed_array("components_", lambda A: A[:0]), "components_=.*filled=True"),
    ],
)  # fmt: skip
def test_a_state_that_does_not_hold_together_is_refused(fit, change, message, tmp_path):
    needs_torch(fit)
    tree, arrays = written(fit)
    change(tree, arrays)
    write(tmp_path / "model.vicinal", tree, arrays)
    with pytest.raises(ValueError, match=rf"^cannot load .*model\.vicinal': its .*{message}"):
        io.load(tmp_path / "model.vicinal")


@pytest.mark.parametrize("fit", ["LCA", "RCA", "sklearn.PCA", "ManifoldParzen"])
def test_no_required_part_of_a_state_may_be_missing(fit, tmp_path):
    tree, arrays = written(fit)
    for name, field in state_of(tree["class"]).fields.items():
        if field.required:
            less = {key: value for key, value in tree["attributes"].items() if key != name}
            write(tmp_path / "model.vicinal", {**tree, "attributes": less}, arrays)
            with pytest.raises(ValueError, match=f"has {name}=nothing, expected"):
                io.load(tmp_path / "model.vicinal")


# -- whatever loads never ends the process -----------------------------------------------------------------------------

OTHER_VALUES = [
    None, True, False, -1, 0, 1, 2, 3, 10**6, 0.5, -0.5, "", "text", "auto", "reference", [], [0], [None],
    {"is": "tuple", "items": []}, {"is": "dict", "items": []}, {"is": "float", "text": "nan"},

]  # fmt: skip


def places(tree, path=()):
    """The paths to everything in a description."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in list(items):
        yield (*path, key)
        yield from places(value, (*path, key))


def at(tree, path):
    for key in path:
        tree = tree[key]
    return tree


def mutated_tree(tree, arrays, rng):
    """The description with one thing in it replaced, exchanged or removed."""
    tree = copy.deepcopy(tree)
    *path, key = choose(list(places(tree)), rng)
    place, kind = at(tree, path), rng.integers(5)
    if kind == 0 and isinstance(place, (dict, list)):
        del place[key]
    elif kind == 1:
        place[key] = {"is": "array", "name": choose(list(arrays), rng)} if arrays else None
    elif kind == 2:
        place[key] = copy.deepcopy(at(tree, choose(list(places(tree)), rng)))
    else:
        place[key] = choose(OTHER_VALUES, rng)
    return tree


def mutated_arrays(arrays, rng):
    """The arrays with one of another size, dtype or content."""
    if not arrays:
        return arrays
    name = choose(list(arrays), rng)
    changes = [
        lambda a: a[:-1],
        lambda a: a[..., :-1],
        lambda a: np.concatenate([a, a]),
        lambda a: a.reshape(-1),
        lambda a: a.T,
        lambda a: a[None],
        lambda a: a.astype(np.float32),
        lambda a: a.astype(np.float64),
        lambda a: a.astype(np.int64),
        lambda a: a.astype(np.int32),
        lambda a: a.astype(np.uint8),
        lambda a: a > 0,
        lambda a: -a,
        lambda a: a[::-1],
        lambda a: 0 * a,
        *(with_entry(value) for value in (-1, 0, 1, 99)),
        *(lambda a, value=value: with_entry(value)(a.astype(np.float64)) for value in (np.nan, np.inf, -np.inf, 1e300)),
    ]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            changed = np.ascontiguousarray(choose(changes, rng)(arrays[name].copy()))
        except (IndexError, TypeError, ValueError):  # an array without axes or entries
            return arrays
    return {**arrays, name: changed}


def choose(options, rng):
    return options[rng.integers(len(options))]


def use(estimator):
    """Call all methods of an estimator, which may raise exceptions, but must not end the process."""
    answers(estimator)
    repr(estimator)
    if hasattr(estimator, "get_feature_names_out"):
        with suppress(Exception):
            estimator.get_feature_names_out()


@pytest.fixture(scope="module")
def descriptions():
    """Of all fits but networks, which are checked by torch as well."""
    return {name: written(name) for name in FITS if not name.startswith("NeuralNCA")}


@pytest.mark.parametrize("seed", SEEDS)
def test_forged_state_is_refused_or_can_be_used_without_a_crash(seed, descriptions, tmp_path):
    """Compiled kernels do not check bounds: a position or a size that is wrong could end the process."""
    rng, path = np.random.default_rng(seed), tmp_path / "model.vicinal"
    names = sorted(descriptions)
    for _ in range(10):
        tree, arrays = descriptions[choose(names, rng)]
        for _ in range(rng.integers(1, 3)):
            if rng.random() < 0.5:
                tree = mutated_tree(tree, arrays, rng)
            else:
                arrays = mutated_arrays(arrays, rng)
        write(path, tree, arrays)
        with suppress(ValueError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            use(io.load(path))
