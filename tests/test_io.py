"""Test model files: every estimator is restored bit by bit, and no file can do harm."""

import errno
import hashlib
import json
import os
import stat
import subprocess
import sys
import threading
from functools import cache

import numpy as np
import pandas as pd
import pytest
import sklearn
from needs import needs
from sklearn.base import BaseEstimator, clone
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning, InconsistentVersionWarning, NotFittedError
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MaxAbsScaler, Normalizer, StandardScaler, normalize

import vicinal
from vicinal import LCA, NCA, RCA, Engine, LCAGauss, ManifoldParzen, Objective, ParzenWindows, io, retrieval
from vicinal._model_files.codec import Reader, Writer
from vicinal._model_files.container import DIGEST_AT, DIGEST_END, FORMAT, parse_json, read_arrays, write_arrays

N, D = 61, 3  # a prime number of rows: an array that holds them is seen by its length
X = np.random.default_rng(0).normal(size=(N, D)) * [1.0, 0.3, 2.0]
CLASSES = np.resize([0, 1, 2], N)
NAMES = np.array(["a", "bb", "é"])[CLASSES]
CHUNKLETS = np.where(np.arange(N) < 40, np.arange(N) // 4, -1)
TABLE = pd.DataFrame(X, columns=["length", "width", "colour"])
WEIGHT = np.where(np.arange(N) % 5 == 0, 0.0, np.linspace(0.5, 2.0, N))

pytestmark = pytest.mark.usefixtures("short_search_in_this_file")

# How to fit each public estimator: each entry makes a fitted one. Several entries for what differs in state.
HOW_TO_FIT = {
    "BinnedTargetMetric": [
        lambda: vicinal.companions.BinnedTargetMetric(RCA(n_components=2), n_bins=4).fit(TABLE, X[:, 0])
    ],
    "ConstrainedGaussianMixture": [
        lambda: vicinal.companions.ConstrainedGaussianMixture(2, random_state=0).fit(X, CHUNKLETS)
    ],
    "ConstrainedKMeans": [
        lambda: vicinal.companions.ConstrainedKMeans(3, n_init=2, random_state=0).fit(TABLE, CHUNKLETS)
    ],
    "DensityClassifier": [
        lambda: vicinal.DensityClassifier(ParzenWindows()).fit(X, CLASSES == 0),
        lambda: vicinal.DensityClassifier(make_pipeline(StandardScaler(), ParzenWindows(0.5))).fit(TABLE, NAMES),
        lambda: vicinal.DensityClassifier(GaussianMixture(1, random_state=0)).fit(X, NAMES.astype(object)),
    ],
    "DensityImputer": [
        lambda: vicinal.DensityImputer().fit(TABLE.mask(np.arange(len(X))[:, None] == [[3, 5, 7]])),
        lambda: vicinal.DensityImputer(ParzenWindows(0.5), sample=True, random_state=0).fit(X),
    ],
    "DensityOutlierDetector": [
        lambda: vicinal.DensityOutlierDetector().fit(X),
        lambda: vicinal.DensityOutlierDetector(GaussianMixture(2, random_state=0), contamination=0.1, cv=3).fit(TABLE),
        lambda: vicinal.DensityOutlierDetector.from_density(make_pipeline(StandardScaler(), LCA(reg=0.0)).fit(TABLE)),
    ],
    "Dequantizer": [lambda: vicinal.Dequantizer().fit(X), lambda: vicinal.Dequantizer([0.5, 0.0, 1.0]).fit(TABLE)],
    "LCA": [
        lambda: LCA(reg=0.0).fit(X),
        lambda: LCA(covariance_type="low_rank", rank=1, engine=Engine(threads=1), random_state=3, reg=0.0).fit(
            TABLE, None, WEIGHT
        ),
    ],
    "LCAGauss": [
        lambda: vicinal.LCAGauss(reg=0.0, reg_gauss=0.0).fit(X),
        lambda: vicinal.LCAGauss(reg=0.0, reg_gauss=0.0).fit(TABLE, None, WEIGHT),
    ],
    "LocalLCA": [
        lambda: vicinal.LocalLCA(reg=0.0).fit(X),
        lambda: vicinal.LocalLCA(1, 4, 0.01, shared=0.5, center="mean", reg=0.0).fit(TABLE, None, WEIGHT),
    ],
    "MMC": [
        lambda: vicinal.companions.MMC().fit(X, CLASSES),
        lambda: vicinal.companions.MMC(structure="diag").fit(TABLE, NAMES),
    ],
    "AnchorNCA": [lambda: anchors_of_few_pairs()],
    "PairNCA": [lambda: vicinal.PairNCA(max_iter=500, random_state=0).fit(TABLE, CHUNKLETS)],
    "ManifoldParzen": [
        lambda: ManifoldParzen(selection=vicinal.Selection()).fit(TABLE),
        lambda: ManifoldParzen(metric=LCA(reg=0.0).fit(X), n_components=1, n_neighbors=5).fit(X, sample_weight=WEIGHT),
        lambda: ManifoldParzen(n_components=0, n_neighbors=5).fit(X.astype(np.float32)),
        lambda: ManifoldParzen(vicinity="kernel", bandwidth=[0.5, 0.5, 0.5], noise=0.1, n_components=1).fit(TABLE),
        lambda: ManifoldParzen(
            metric=make_pipeline(StandardScaler(), PCA(2)).fit(TABLE), n_components=1, n_neighbors=5
        ).fit(TABLE),
    ],
    "NCA": [
        lambda: NCA(random_state=0).fit(X, CLASSES),
        lambda: NCA(init=np.eye(2, D, order="F"), random_state=np.random.RandomState(3)).fit(TABLE, NAMES),
        lambda: NCA(max_iter=200, structure="diag", objective=Objective(match="gaussian")).fit(X, X[:, 0]),
    ],
    "OnlineRCA": [lambda: vicinal.OnlineRCA().fit(X, CHUNKLETS)],
    "ParzenMeanShift": [
        lambda: vicinal.ParzenMeanShift().fit(X),
        lambda: vicinal.ParzenMeanShift(LCA(reg=0.0), max_iter=10_000).fit(TABLE),
    ],
    "ParzenWindows": [
        lambda: ParzenWindows().fit(X),
        lambda: ParzenWindows(bandwidth=(0.5, 1.0, 2.0), engine=Engine(memory="64 MB")).fit(
            TABLE.astype(np.float32), sample_weight=WEIGHT
        ),
        lambda: (
            ParzenWindows("scott", engine="reference").fit(TABLE).set_output(transform="pandas")
            if hasattr(ParzenWindows, "set_output")
            else ParzenWindows("scott", engine="reference").fit(TABLE)
        ),
    ],
    "TableEncoder": [
        lambda: vicinal.TableEncoder().fit(X),
        lambda: vicinal.TableEncoder(types={TABLE.columns[0]: "lattice:0.5"}).fit(TABLE),
    ],
    "SoftNeighborsClassifier": [
        lambda: vicinal.SoftNeighborsClassifier().fit(X, CLASSES),
        lambda: vicinal.SoftNeighborsClassifier(NCA(random_state=0), bandwidth=0.7).fit(TABLE, NAMES, WEIGHT),
    ],
    "SoftNeighborsRegressor": [lambda: vicinal.SoftNeighborsRegressor(RCA().fit(X, CLASSES)).fit(X, X[:, :2])],
    "NeuralNCA": [
        lambda: neural(network=5),
        lambda: neural(),  # the default network
        lambda: neural(network=torch().nn.Sequential(torch().nn.Linear(X.shape[1], 2, bias=False), torch().nn.Tanh())),
        lambda: neural(network=torch().nn.Linear(X.shape[1], 3)),
    ],
    "RCA": [
        lambda: RCA().fit(X, CHUNKLETS),
        lambda: RCA(n_components=2).fit(TABLE, CLASSES).set_output(transform="pandas"),
        lambda: RCA(shrinkage=0).partial_fit(X, np.full(N, -1)),  # not fitted yet, but with state
    ],
}
ESTIMATORS = [
    name
    for module in (vicinal, vicinal.companions)
    for name in module.__all__
    if isinstance(getattr(module, name), type) and issubclass(getattr(module, name), BaseEstimator)
]
METHODS = ("p_values", "transform", "score_samples", "predict", "predict_proba", "decision_function")


def torch():
    return needs("torch")


def neural(**options):
    torch()
    with pytest.warns(ConvergenceWarning):
        return vicinal.NeuralNCA(max_iter=2, random_state=0, **options).fit(X, CLASSES)


def anchors_of_few_pairs():
    with pytest.warns(UserWarning, match="keeps the raw rows"):
        return vicinal.AnchorNCA(max_iter=500, random_state=0).fit(TABLE, CHUNKLETS)


@cache
def fitted(name):
    """Fits of an estimator, shared by all tests, which do not change them."""
    if name not in HOW_TO_FIT:
        pytest.fail(f"vicinal.{name} is a public estimator without an entry in HOW_TO_FIT of {__file__}: add one.")
    return [make() for make in HOW_TO_FIT[name]]


def round_trip(estimator, tmp_path, **options):
    io.save(estimator, tmp_path / "model.vicinal", **options)
    return io.load(tmp_path / "model.vicinal")


def through_a_file(value, tmp_path):
    """A value that needs no estimator around it, written and read."""
    writer = Writer()
    write_arrays(tmp_path / "model.vicinal", json.dumps({"value": writer.value(value, ("value",))}), writer.arrays)
    text, arrays = read_arrays(tmp_path / "model.vicinal")
    return Reader(arrays).value(parse_json(text)["value"])


def assert_identical(a, b, place="estimator"):
    """Same types and same bits, all the way down; a number of NumPy becomes one of Python."""
    if isinstance(a, np.generic) and not isinstance(b, np.generic):
        a = a.item()
    assert type(a) is type(b), f"{place}: {type(a)} became {type(b)}"
    if isinstance(a, np.ndarray) and a.dtype == object:
        assert a.shape == b.shape, place
        assert_identical(list(a.ravel()), list(b.ravel()), place)
    elif isinstance(a, (np.ndarray, np.generic)):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), place
        assert a.tobytes() == b.tobytes(), place
    elif hasattr(a, "state_dict"):
        assert (str(a), a.training) == (str(b), b.training), place
        for (name, left), (other, right) in zip(a.state_dict().items(), b.state_dict().items(), strict=True):
            assert name == other
            assert_identical(left.numpy(), right.numpy(), f"{place}.{name}")
        assert [p.requires_grad for p in a.parameters()] == [p.requires_grad for p in b.parameters()], place
    elif isinstance(a, np.random.RandomState):
        assert_identical(list(a.get_state()), list(b.get_state()), place)
    elif isinstance(a, float):
        assert np.float64(a).tobytes() == np.float64(b).tobytes(), place
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), place
        for i, (left, right) in enumerate(zip(a, b, strict=True)):
            assert_identical(left, right, f"{place}.{i}")
    elif isinstance(a, dict):
        assert list(a) == list(b), f"{place}: {list(a)} became {list(b)}"
        for key in a:
            assert_identical(a[key], b[key], f"{place}.{key}")
    elif hasattr(a, "__dict__"):
        assert_identical(a.__getstate__(), b.__getstate__(), place)  # without what is made again when needed
    else:
        assert a == b, place


# -- what comes back -------------------------------------------------------------------------------


def test_a_network_of_ones_own_layers_is_refused_with_the_remedy(tmp_path):
    class Own(torch().nn.Linear):
        pass

    with pytest.raises(TypeError, match=r"(module_|network) holds a network of layers of your own.*state_dict"):
        io.save(neural(network=Own(X.shape[1], 2)), tmp_path / "model.vicinal")
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_default_network_of_constant_columns_is_saved(tmp_path):
    """It has no bins, and was refused as a network of layers of one's own."""
    torch()
    metric = vicinal.NeuralNCA(random_state=0, max_iter=1).fit(np.ones((20, 2)), np.arange(20) % 2)
    io.save(metric, tmp_path / "constant.vicinal")
    again = io.load(tmp_path / "constant.vicinal")
    np.testing.assert_array_equal(again.transform(np.eye(2)), metric.transform(np.eye(2)))


@pytest.mark.parametrize(
    "change",
    [
        {"layers": []},
        {"layers": [{"layer": "Dropout", "arrays": {}}]},
        {"layers": [{"layer": "Linear", "arrays": {}}]},
        {"layers": "Linear"},
        {"layers": [["Linear", {}]]},
        {"chain": 1},
        {"training": None},
    ],
)
def test_networks_that_make_no_sense_are_refused(change):
    torch()
    tree = {"is": "network", "layers": [{"layer": "Tanh", "arrays": {}}], "chain": True, "training": False}
    with pytest.raises(ValueError, match="it "):
        Reader({}).value({**tree, "trainable": False, **change})


def test_layers_that_do_not_fit_each_other_are_refused():
    from vicinal._model_files.networks import network_of

    torch()
    layers = [("Linear", {"weight": np.ones((3, 2))}), ("Linear", {"weight": np.ones((1, 4))})]
    with pytest.raises(ValueError, match="do not fit each other"):
        network_of(layers, chain=True, training=False, trainable=False)


def test_parts_of_the_default_network_that_do_not_fit_each_other_are_refused():
    """A bin of a column that the rows do not have, a missing array, a rate that is a text."""
    from vicinal._model_files.networks import layers_of, network_of

    torch()
    flags = {"chain": True, "training": False, "trainable": False}
    layers = layers_of(neural().module_)
    assert [name for name, _ in layers] == ["PiecewiseLinear", "Linear", "ResidualBlock", "BatchNorm1d", "Linear"]
    same = network_of(layers, **flags)
    rows = torch().as_tensor(X, dtype=torch().float64)
    assert torch().equal(same(rows), neural().module_(rows))
    encoding, block = layers[0][1], layers[2][1]
    for place, arrays in (
        (0, encoding | {"columns": encoding["columns"] + X.shape[1]}),
        (0, encoding | {"columns": encoding["columns"] - 1}),
        (0, encoding | {"columns": encoding["columns"].astype(float)}),
        (0, encoding | {"starts": encoding["starts"][1:]}),
        (2, {key: array for key, array in block.items() if key != "norm.bias"}),
        (2, block | {"rate": np.array("0.3")}),
        (2, block | {"second.weight": block["second.weight"].T}),
    ):
        changed = list(layers)
        changed[place] = (layers[place][0], arrays)
        with pytest.raises(ValueError, match="do not fit each other"):
            network_of(changed, **flags)


def test_layers_with_other_settings_than_those_of_torch_are_refused(tmp_path):
    nn = torch().nn
    with pytest.raises(TypeError, match="state_dict"):
        io.save(
            neural(network=nn.Sequential(nn.Linear(X.shape[1], 2), nn.BatchNorm1d(2, eps=0.1))), tmp_path / "m.vicinal"
        )
    io.save(neural(network=nn.Sequential(nn.Linear(X.shape[1], 2), nn.BatchNorm1d(2))), tmp_path / "m.vicinal")


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_public_estimator_comes_back_bit_for_bit(name, tmp_path):
    for estimator in fitted(name):
        same = round_trip(estimator, tmp_path)
        assert_identical(estimator, same)
        assert str(same.get_params(deep=False).keys()) == str(estimator.get_params(deep=False).keys())
        rows = TABLE.iloc[:7] if hasattr(estimator, "feature_names_in_") else X[:7]
        for method in METHODS:
            if not hasattr(estimator, method):
                continue
            try:
                answer = getattr(estimator, method)(rows)
            except NotFittedError:
                with pytest.raises(NotFittedError):
                    getattr(same, method)(rows)
            else:
                pd.testing.assert_frame_equal(
                    pd.DataFrame(answer), pd.DataFrame(getattr(same, method)(rows)), check_exact=True
                )
        # A file of what was loaded has the same bytes.
        before = (tmp_path / "model.vicinal").read_bytes()
        io.save(same, tmp_path / "model.vicinal")
        assert (tmp_path / "model.vicinal").read_bytes() == before


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_that_are_not_fitted_come_back(name, tmp_path):
    for estimator in fitted(name):
        copy = clone(estimator)
        assert_identical(copy, round_trip(copy, tmp_path))


VALUES = [
    None, True, False, 0, -1, 2**70, 0.1, -0.0, 1e300, 5e-324, float("inf"), float("-inf"), float("nan"),
    "", "text", "a\u0000b", "\udc80 lone surrogate", "<script>", [], (), [1, (2, [3.0])], (None,), {},
    {"a": 1, 2: (3,), (4, 5): [6], None: None}, np.float32(0.1), np.int8(-3), np.uint64(2**63),
    np.bool_(True),
    np.float64("nan"), np.str_("é"), np.str_(""),
    np.array(1.5), np.array("zero-dim"), np.array([], dtype=np.float32), np.empty((0, 3)),
    np.zeros((2, 0, 3), int),
    np.array([True, False]), np.array(["a", "long text", ""]),
    np.array(["é", "", "\udc80 b"], dtype=object), np.array(["", ""]), np.arange(6.0).reshape(2, 3).T, np.asfortranarray(np.eye(2, 3)),
    np.arange(24).reshape(2, 3, 4).transpose(1, 0, 2), np.arange(24).reshape(2, 3, 4).transpose(1, 2, 0), np.arange(10)[::-2],
    np.arange(10.0).reshape(5, 2)[:, 1],
    np.array([], dtype=object), np.arange(3, dtype=np.float16),
    np.random.RandomState(5), Engine("cpu", threads=2), ParzenWindows(0.5), [ParzenWindows(), {"x": RCA()}],
]  # fmt: skip


@pytest.mark.parametrize(
    "value",
    VALUES,
    # Without addresses in memory: ids must be the same in every process.
    ids=lambda value: f"{type(value).__name__} {value!r}".split(" at 0x")[0][:50].encode("ascii", "replace").decode(),
)
def test_values_come_back(value, tmp_path):
    """Of every type that a file can hold, whichever class has a field for it."""
    assert_identical([value, [value, value]], through_a_file([value, [value, value]], tmp_path))


def test_random_states_go_on_where_they_were(tmp_path):
    state = np.random.RandomState(1)
    state.normal(size=3)  # an odd number: one Gaussian is kept back
    same = round_trip(NCA(random_state=state), tmp_path).random_state
    np.testing.assert_array_equal(same.normal(size=9), state.normal(size=9))


def test_loaded_arrays_can_be_written(tmp_path):
    density = round_trip(ParzenWindows().fit(X), tmp_path)
    density.covariance_[0, 0] = 7.0
    assert density.fit(X).covariance_[0, 0] != 7.0


def test_pipelines_come_back(tmp_path):
    pipeline = make_pipeline(StandardScaler(), PCA(2), LCA(reg=0.0)).fit(TABLE)
    same = round_trip(pipeline, tmp_path)
    assert_identical(pipeline, same)
    np.testing.assert_array_equal(same.transform(TABLE), pipeline.transform(TABLE))
    np.testing.assert_array_equal(same.score_samples(TABLE), pipeline.score_samples(TABLE))


def test_another_version_of_scikit_learn_is_warned_of_where_it_matters(tmp_path, monkeypatch):
    monkeypatch.setattr(sklearn, "__version__", "0.9.9")
    io.save(make_pipeline(StandardScaler(), RCA()), tmp_path / "pipeline.vicinal")
    io.save(RCA(), tmp_path / "metric.vicinal")
    monkeypatch.undo()
    with pytest.warns(InconsistentVersionWarning, match="Pipeline"), pytest.warns(match="StandardScaler"):
        io.load(tmp_path / "pipeline.vicinal")
    io.load(tmp_path / "metric.vicinal")


# -- without training rows -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ESTIMATORS)
def test_metrics_save_without_training_rows(name, tmp_path):
    for estimator in fitted(name):
        if not hasattr(estimator, "get_mahalanobis_matrix"):
            with pytest.raises(ValueError, match=f"{name}.*training_rows=True"):
                io.save(estimator, tmp_path / "model.vicinal", training_rows=False)
            continue
        same = round_trip(estimator, tmp_path, training_rows=False)
        shapes = [entry["shape"] for entry in io.describe(tmp_path / "model.vicinal")["arrays"].values()]
        assert not [shape for shape in shapes if N in shape and len(shape) > 1]
        if not hasattr(estimator, "components_"):
            continue
        rows = TABLE if hasattr(estimator, "feature_names_in_") else X
        np.testing.assert_array_equal(same.transform(rows), estimator.transform(rows))
        np.testing.assert_array_equal(same.pair_distance([[0, 1]], rows), estimator.pair_distance([[0, 1]], rows))
        if hasattr(estimator, "score_samples"):
            with pytest.raises(NotFittedError, match=r"saved without its training rows.*training_rows=True"):
                same.score_samples(rows)
            with pytest.raises(NotFittedError, match="training_rows=False"):
                same.sample()
            assert_identical(same, round_trip(same, tmp_path))
            assert np.isfinite(same.fit(X).score())


@pytest.mark.parametrize("metric", [LCA(reg=0.1), LCAGauss(reg=0.1, reg_gauss=0.1)], ids=["LCA", "LCAGauss"])
def test_a_fit_to_rows_with_gaps_is_saved_without_any_of_them(metric, tmp_path):
    holed = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
    metric.fit(holed)
    same = round_trip(metric, tmp_path, training_rows=False)
    shapes = [entry["shape"] for entry in io.describe(tmp_path / "model.vicinal")["arrays"].values()]
    assert not [shape for shape in shapes if N in shape and len(shape) > 1]
    content = (tmp_path / "model.vicinal").read_bytes()
    known = holed[np.isfinite(holed)].ravel()
    assert not any(value.tobytes() in content for value in known[:50])
    np.testing.assert_array_equal(same.transform(X), metric.transform(X))
    with pytest.raises(NotFittedError, match="saved without its training rows"):
        same.score_samples(X)
    np.testing.assert_array_equal(same.score_samples(None), metric.score_samples(None))
    assert_identical(same, round_trip(same, tmp_path))
    assert np.isfinite(same.fit(holed).score())


def test_pipelines_save_without_training_rows(tmp_path):
    pipeline = make_pipeline(StandardScaler(), LCA(reg=0.0)).fit(X)
    same = round_trip(pipeline, tmp_path, training_rows=False)
    np.testing.assert_array_equal(same.transform(X), pipeline.transform(X))


# -- what cannot be saved --------------------------------------------------------------------------


class _OwnMetric(LCA):
    pass


def _circle():
    items: list = []
    items.append(items)
    return items


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (vicinal.companions.ConstrainedKMeans(init=print), r"init holds a function, print,.*set_params\(init=None\)"),
        (ManifoldParzen(metric=vicinal.companions.ConstrainedKMeans(init=print), n_components=1, n_neighbors=5), r"metric.init holds a.*estimator\.metric\.set_params\(init=None\)"),
        (NCA(random_state=np.random.default_rng(0)), "random_state holds a .*Generator.*RandomState"),
        (ParzenWindows(object()), "bandwidth holds a builtins.object"),
        (ParzenWindows({1, 2}), "bandwidth holds a builtins.set"),
        (ParzenWindows(_circle()), "bandwidth is nested too deeply.*or holds itself"),
        (ParzenWindows(np.longdouble(1)), "bandwidth holds a numpy.longdouble"),
        (ParzenWindows(np.ones(2, dtype=np.longdouble)), "bandwidth has the dtype"),
        (ParzenWindows(np.zeros(2, dtype=[("a", int)])), "bandwidth has the dtype"),
        (ParzenWindows(np.ma.array([1.0])), "bandwidth holds a .*MaskedArray"),
        (ParzenWindows(np.array([object()], dtype=object)), "bandwidth has the dtype object"),
        (ParzenWindows(pd.Series([1.0])), "bandwidth holds a .*Series"),
        (_OwnMetric(), "the estimator is a .*_OwnMetric.*subclasses"),
        (ManifoldParzen(metric=sklearn.neighbors.KernelDensity(), n_components=1, n_neighbors=5), "metric is a sklearn.*KernelDensity"),
        (X, "expected an estimator.*ndarray"),
        (ParzenWindows, "expected an estimator.*instance"),
    ],
)  # fmt: skip
def test_what_cannot_be_saved_is_named(estimator, message, tmp_path):
    with pytest.raises(TypeError, match=message):
        io.save(estimator, tmp_path / "model.vicinal")
    assert not os.listdir(tmp_path)


def test_a_callback_is_left_out_and_said_once(tmp_path):
    path = tmp_path / "model.vicinal"
    with pytest.warns(UserWarning, match=r"does not contain callback \(print\),.*callback=None") as said:
        io.save(NCA(callback=print), path)
    assert len(said) == 1
    assert said[0].filename == __file__
    assert io.load(path).callback is None
    assert b"print" not in path.read_bytes()
    nested = ManifoldParzen(
        metric=make_pipeline(NCA(callback=print), LCA(callback=str.upper, reg=0.0)), n_components=1, n_neighbors=5
    )
    with pytest.warns(UserWarning, match=r"metric\.steps\.0\.1\.callback \(print\) and .*\(str\.upper\),") as said:
        io.save(nested, path)
    assert len(said) == 1
    assert [step.callback for _, step in io.load(path).metric.steps] == [None, None]
    assert nested.metric[0].callback is print  # the estimator keeps it


@pytest.mark.parametrize("position", [-1, 625, 624.0, True, None])
def test_a_random_state_that_points_outside_of_its_key_is_refused(position):
    """NumPy takes any position, and reads whatever lies there in memory."""
    writer = Writer()
    tree = writer.value(np.random.RandomState(0), ("value",))
    assert isinstance(Reader(writer.arrays).value(tree), np.random.RandomState)
    with pytest.raises(ValueError, match="does not describe a random state"):
        Reader(writer.arrays).value({**tree, "position": position})


def test_endless_lists_are_refused(tmp_path):
    density = vicinal.DensityClassifier(priors={f"{i:099}": 0.5 for i in range(20_000)})
    with pytest.raises(ValueError, match=r"too many parts.*MB"):
        io.save(density, tmp_path / "model.vicinal")
    assert not os.listdir(tmp_path)


# -- damaged files ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small_file(tmp_path_factory):
    """A file small enough to be damaged at every byte, with numbers, strings and arrays of both."""
    path = tmp_path_factory.mktemp("small") / "model.vicinal"
    rows = pd.DataFrame([[0.25, 0.5]], columns=["é", "b"])
    io.save(Pipeline([("scale", MaxAbsScaler().fit(rows))]), path)
    return path.read_bytes()


def assert_refused(data, tmp_path, match="cannot load"):
    path = tmp_path / "model.vicinal"
    path.write_bytes(data)
    for read in (io.load, io.describe, io.load_components):
        with pytest.raises(ValueError, match=match) as caught:
            read(path)
        assert str(path) in str(caught.value)
        assert len(str(caught.value)) < 1000


def test_every_byte_counts(small_file, tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "model.vicinal"
    for position in range(len(small_file)):
        changed = bytearray(small_file)
        changed[position] ^= 1 << rng.integers(8) if position % 2 else rng.integers(1, 256)
        path.write_bytes(changed)
        with pytest.raises(ValueError, match="cannot load"):
            io.load(path)


def test_truncated_and_longer_files(small_file, tmp_path):
    rng = np.random.default_rng(1)
    lengths = {*range(130), *rng.integers(len(small_file), size=100), len(small_file) - 1}
    for length in lengths:
        assert_refused(small_file[:length], tmp_path, "cannot load")
    for _ in range(100):
        at, extra = rng.integers(len(small_file) + 1), rng.bytes(rng.integers(1, 20))
        assert_refused(small_file[:at] + extra + small_file[at:], tmp_path, "cannot load")
    assert_refused(small_file + b"\0", tmp_path, "checksum")
    assert_refused(small_file + small_file, tmp_path, "checksum")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 7,
        b"\0" * 500,
        b"hello",
        b"\x80\x04\x95",
        b"PK\x03\x04" + b"\0" * 99,
        bytes(range(256)) * 9,
    ],
)
def test_other_files(data, tmp_path):
    assert_refused(data, tmp_path, "not a model file")


def test_other_safetensors_files(tmp_path):
    safetensors = needs("safetensors.numpy")
    assert_refused(safetensors.save({"components_": np.eye(2)}), tmp_path, "not a model file")


def test_other_kinds_of_paths(tmp_path):
    with pytest.raises(FileNotFoundError):
        io.load(tmp_path / "missing.vicinal")
    with pytest.raises(ValueError, match="it is a folder"):
        io.load(tmp_path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(ValueError, match="not a regular file"):
            io.load(tmp_path / "pipe")


# -- files written on purpose: the checksum agrees -------------------------------------------------


def forge(text, data=b""):
    """A file with a valid checksum around any header."""
    if not isinstance(text, bytes):
        text = json.dumps(text, separators=(",", ":")).encode()
    text += b" " * max(DIGEST_END - len(text), 0)
    raw = len(text).to_bytes(8, "little") + text + data
    digest = hashlib.sha256(raw[:DIGEST_AT] + raw[DIGEST_END:]).hexdigest()
    return raw[:DIGEST_AT] + digest.encode() + raw[DIGEST_END:]


def forge_model(model, arrays=None, data=b"", **metadata):
    model = model if isinstance(model, str) else json.dumps({"vicinal": "1", "sklearn": "1", "estimator": model})
    metadata = {"sha256": "0" * 64, "format": FORMAT, "version": "1", "model": model, **metadata}
    return forge({"__metadata__": metadata, **(arrays or {})}, data)


def estimator_tree(cls="ParzenWindows", parameters=None, attributes=None, **more):
    parameters = {
        "bandwidth": 1.0,
        "engine": None,
        "categorical_features": None,
        "max_categories": 32,
        **(parameters or {}),
    }
    return {"is": "estimator", "class": cls, "parameters": parameters, "attributes": attributes or {}, **more}


def test_the_forger_can_make_a_good_file(tmp_path):
    (tmp_path / "good").write_bytes(forge_model(estimator_tree()))
    assert io.load(tmp_path / "good").bandwidth == 1.0


def test_newer_format_versions(tmp_path):
    for version in ("2", "99999999999", "one"):
        assert_refused(forge_model(estimator_tree(), version=version), tmp_path, f"format version '{version}'.*newer")
    assert_refused(forge_model(estimator_tree(), format="other"), tmp_path, "format is 'other'")


SHAPES = [[2**40], [2**62, 4], [-1], [1.0], [True], ["1"], None, 3, [1] * 40, [0, 2**63], [10**4000], [[1]]]
HEAD = b'{"__metadata__":{"sha256":"' + b"0" * 64 + b'",'


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: repr(shape)[:20])
def test_absurd_sizes(shape, tmp_path):
    end = 8 * shape[0] if isinstance(shape, list) and type(shape[0]) is int else 8
    for offsets in ([0, end], [0, 8], [8, 16], [0], None, ["0", "8"], [0.0, 8.0]):
        entry = {"dtype": "F64", "shape": shape, "data_offsets": offsets}
        assert_refused(forge_model(estimator_tree(), {"a": entry}, b"\0" * 8), tmp_path)


@pytest.mark.parametrize(
    "header",
    [
        HEAD + b'"format":' + b"[" * 200_000 + b"]" * 200_000 + b"}}",
        HEAD + b'"format":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}}",
        HEAD + b'"a":1}, NaN}',
        HEAD + b'"a":"b"},"a":NaN}',
        HEAD + b'"a":"b"},"a":' + b"9" * 10_000 + b"}",
        HEAD + b'"format":"x","format":"y"}}',
        HEAD + b'"a":"\xff"}}',
        HEAD + b'"a":[]}}',
        HEAD + b'"a":"b"},"c":1}',
        HEAD + b'"a":"b"},"c":{"dtype":"F64"}}',
        HEAD,
    ],
    ids=range(11),
)
def test_malformed_headers(header, tmp_path):
    assert_refused(forge(header), tmp_path, "cannot load")


ONE = {"a": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}


@pytest.mark.parametrize(
    ("arrays", "data"),
    [
        ({}, b"\0" * 8),
        (ONE, b"\0" * 16),
        ({**ONE, "b": ONE["a"]}, b"\0" * 8),
        ({"a": {**ONE["a"], "dtype": "O"}}, b"\0" * 8),
        ({"a": {**ONE["a"], "dtype": "object"}}, b"\0" * 8),
        ({"a": {**ONE["a"], "dtype": None}}, b"\0" * 8),
        ({"a": {**ONE["a"], "dtype": "BOOL", "shape": [8]}}, b"\2" * 8),
        ({"a": {**ONE["a"], "more": 1}}, b"\0" * 8),
        ({"a": [1]}, b"\0" * 8),
    ],
)
def test_arrays_that_do_not_fit_the_file(arrays, data, tmp_path):
    assert_refused(forge_model(estimator_tree(), arrays, data), tmp_path)


def mixture_tree(**changes):
    fields = {
        "centres": {"is": "array", "name": "a"},
        "covariance": {"is": "array", "name": "c"},
        "engine": None,
        "feature_names": None,
        "log_weights": {"is": "array", "name": "b"},
        "background": None,
        **changes,
    }
    return {"mixture_": {"is": "record", "class": "SharedMixture", "fields": fields}}


def array_tree(name):
    return {"is": "array", "name": name}


def engine_tree(**fields):
    return {"is": "record", "class": "Engine", "fields": fields}


def random_tree(key, **changes):
    state = {"key": array_tree(key), "position": 1, "has_gauss": 0, "gauss": 0.0, **changes}
    return value_tree({"is": "random_state", **state})


def value_tree(value):
    """The value in a place whose value is read before it is compared with the declaration."""
    return estimator_tree(attributes={"objectives_": value})


def nested(depth):
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


MALICIOUS_TREES = {
    "builtin": estimator_tree("builtins.eval"),
    "module": estimator_tree("os.system"),
    "function": estimator_tree("which_engine"),
    "record as estimator": estimator_tree("SharedMixture"),
    "private name": estimator_tree("__version__"),
    "other scikit-learn": estimator_tree("sklearn.KernelDensity"),
    "class with a long name": estimator_tree("x" * 10**6),
    "class not text": estimator_tree(["LCA"]),
    "class a list in a record": value_tree({"is": "record", "class": ["Engine"], "fields": {}}),
    "estimator as record": value_tree({"is": "record", "class": "RCA", "fields": {}}),
    "unknown type": value_tree({"is": "pickle", "bits": "00"}),
    "no type": value_tree({"a": 1}),
    "type a list": value_tree({"is": ["tuple"], "items": []}),
    "unknown parameter": estimator_tree(parameters={"kernel": "tophat"}),
    "parameter as attribute": estimator_tree(attributes={"bandwidth": 2.0}),
    "attribute as parameter": estimator_tree(parameters={"mixture_": 1}),
    "hides a method": estimator_tree(attributes={"score_samples": 1}),
    "hides the class": estimator_tree(attributes={"__class__": "LCA"}),
    "hides the dict": estimator_tree(attributes={"__dict__": 1}),
    "not a name": estimator_tree(attributes={"a b": 1}),
    "attributes a list": {**estimator_tree(), "attributes": [1]},
    "no parameters": {"is": "estimator", "class": "ParzenWindows", "attributes": {}},
    "lacks a parameter": {**estimator_tree("sklearn.Pipeline"), "parameters": {}},
    "more keys": estimator_tree(more=1),
    "not an estimator": [1],
    "nothing": None,
    "deep": value_tree(nested(200)),
    "dict with keys that cannot be": value_tree({"is": "dict", "items": [[[1], 1]]}),
    "dict of no pairs": value_tree({"is": "dict", "items": [[1]]}),
    "dict with a repeated key": value_tree({"is": "dict", "items": [[1, 1], [1, 2]]}),
    "tuple of nothing": value_tree({"is": "tuple", "items": None}),
    "float of another text": value_tree({"is": "float", "text": "1e5"}),
    "float of no text": value_tree({"is": "float", "text": None}),
    "strings without lengths": value_tree({"is": "strings", "name": "a"}),
    "strings of other lengths": value_tree({"is": "strings", "name": "s"}),
    "strings of negative lengths": value_tree({"is": "strings", "name": "n"}),
    "missing array": value_tree({"is": "array", "name": "c"}),
    "array without name": value_tree({"is": "array", "name": ["a"]}),
    "array of objects": value_tree({"is": "array", "name": "a", "dtype": "|O"}),
    "array of another dtype": value_tree({"is": "array", "name": "a", "dtype": "<c8"}),
    "array of texts": value_tree({"is": "array", "name": "u", "dtype": "<U2"}),
    "array of long texts": value_tree({"is": "array", "name": "u", "dtype": "<U90000000"}),
    "array of no texts": value_tree({"is": "array", "name": "u", "dtype": "<U0"}),
    "engine of no kind": estimator_tree(parameters={"engine": engine_tree(kind="gpu")}),
    "engine with other fields": value_tree(engine_tree(run="rm")),
    "record with a method": estimator_tree(attributes=mixture_tree(score_samples=1)),
    "mixture that does not fit": estimator_tree(attributes=mixture_tree(log_weights=array_tree("a"))),
    "mixture of integers": estimator_tree(attributes=mixture_tree(centres=array_tree("u"))),
    "mixture without centres": estimator_tree(attributes=mixture_tree(centres=3)),
    "random state out of range": random_tree("k", position=10**6),
    "random state before the range": random_tree("k", position=-1),
    "random state too short": random_tree("u"),
    "random state with a text": random_tree("k", gauss="0"),
}  # fmt: skip


def table(**arrays):
    names = {"float64": "F64", "uint32": "U32", "int64": "I64", "uint8": "U8"}
    entries, data = {}, b""
    for name, array in arrays.items():
        end = len(data) + array.nbytes
        entries[name] = {
            "dtype": names[str(array.dtype)],
            "shape": list(array.shape),
            "data_offsets": [len(data), end],
        }
        data += array.tobytes()
    return entries, data


ARRAYS, DATA = table(
    a=np.eye(2),
    c=np.eye(2),
    d=np.eye(2),
    b=np.log([0.5, 0.5]),
    i=np.array([0, 10**9]),
    p=np.array([0, 1, 2]),
    u=np.full((2, 2), 2**31, dtype=np.uint32),
    k=np.zeros(624, dtype=np.uint32),
    e=np.zeros(0),
    s=np.zeros(3, dtype=np.uint8),
    n=np.zeros(3, dtype=np.uint8),
    **{"s.lengths": np.array([1, 1]), "n.lengths": np.array([4, -1])},
)


@pytest.mark.parametrize("name", MALICIOUS_TREES)
def test_malicious_descriptions(name, tmp_path):
    path = tmp_path / "model.vicinal"
    path.write_bytes(forge_model(MALICIOUS_TREES[name], ARRAYS, DATA))
    with pytest.raises(ValueError, match="cannot load") as caught:
        io.load(path)
    assert len(str(caught.value)) < 1000
    assert "has objectives_=" not in str(caught.value)  # the value as such is refused, whatever the place declares


def test_the_malicious_descriptions_are_close_to_good_ones(tmp_path):
    path = tmp_path / "model.vicinal"
    attributes = {"n_features_in_": 2, "_constants": None, "covariance_": array_tree("d"), **mixture_tree()}
    path_of_fit = {"objectives_": array_tree("e"), "n_iter_": 0, "converged_": True}
    path.write_bytes(forge_model(estimator_tree(attributes={**attributes, **path_of_fit}), ARRAYS, DATA))
    assert np.isfinite(io.load(path).score([[0.0, 0.0]]))


@pytest.mark.parametrize(
    "model", ["", "[]", "1", "{}", '{"estimator":1}', "[" * 10**5, '{"estimator":{}}', '{"a":NaN}']
)
def test_malformed_models(model, tmp_path):
    assert_refused(forge_model(model), tmp_path, "cannot load")


def test_forged_bytes_never_do_more_than_fail(tmp_path):
    """Random changes to the text of a model, with the checksum made to agree again."""
    rng = np.random.default_rng(7)
    path = tmp_path / "model.vicinal"
    io.save(NCA(n_components=1, random_state=0, max_iter=200).fit(X, CLASSES), path)
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    failures = 0
    for _ in range(400):
        text = bytearray(raw[8 : 8 + length])
        for position in rng.integers(DIGEST_END, length, size=rng.integers(1, 4)):
            text[position] = rng.choice(list(b'0123456789{}[]":,_aeNn\\'))
        path.write_bytes(forge(bytes(text), raw[8 + length :]))
        try:
            io.load(path)
        except ValueError:
            failures += 1
    assert failures > 200


def test_a_sparse_file_larger_than_memory_is_refused_at_once(tmp_path):
    path = tmp_path / "model.vicinal"
    path.write_bytes(forge_model(estimator_tree()))
    try:
        os.truncate(path, 2**43)
    except OSError:
        pytest.skip("the file system has no such large sparse files")
    with pytest.raises(ValueError, match=r"8192\.0 GB of arrays"):
        io.load(path)


def test_a_header_that_claims_gigabytes_is_refused_at_once(tmp_path, small_file):
    path = tmp_path / "model.vicinal"
    path.write_bytes((2**31).to_bytes(8, "little") + small_file[8:])
    try:
        os.truncate(path, 2**32)
    except OSError:
        pytest.skip("the file system has no such large sparse files")
    with pytest.raises(ValueError, match="header claims 2147483648 bytes"):
        io.load(path)


def test_loading_executes_and_imports_nothing(tmp_path):
    """A loaded metric needs none of the heavy packages."""
    io.save(RCA().fit(X, CHUNKLETS), tmp_path / "model.vicinal")
    code = (
        "import sys, vicinal.io; model = vicinal.io.load(sys.argv[1]);"
        "heavy = {'torch', 'matplotlib', 'faiss'} & set(sys.modules); print(type(model).__name__, *heavy)"
    )
    arguments = [sys.executable, "-c", code, str(tmp_path / "model.vicinal")]
    assert subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.split() == ["RCA"]


# -- writing: whole or not at all ------------------------------------------------------------------


def _fail(code):
    def fail(*arguments, **options):
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize("function", ["replace", "fsync"])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt, MemoryError])
def test_interrupted_writes_leave_the_old_file(function, error, tmp_path, monkeypatch):
    path = tmp_path / "model.vicinal"
    io.save(ParzenWindows(0.5), path)

    def fail(*arguments):
        raise error("interrupted")

    monkeypatch.setattr(os, function, fail)
    with pytest.raises(error, match="interrupted"):
        io.save(ParzenWindows(0.7).fit(X), path)
    monkeypatch.undo()
    assert io.load(path).bandwidth == 0.5
    assert os.listdir(tmp_path) == ["model.vicinal"]


@pytest.mark.parametrize("room", [0, 10, 3000])
def test_a_full_disk_leaves_the_old_file(room, tmp_path, monkeypatch):
    path = tmp_path / "model.vicinal"
    io.save(ParzenWindows(0.5), path)
    real = os.fdopen

    class FullDisk:
        def __init__(self, file):
            self.file, self.room = file, room

        def __enter__(self):
            self.file.__enter__()
            return self

        def __exit__(self, *arguments):
            return self.file.__exit__(*arguments)

        def write(self, data):
            self.room -= len(data)
            if self.room < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return self.file.write(data)

        def __getattr__(self, name):
            return getattr(self.file, name)

    monkeypatch.setattr(os, "fdopen", lambda *arguments: FullDisk(real(*arguments)))
    with pytest.raises(OSError, match="No space left"):
        io.save(ParzenWindows(0.7).fit(X), path)
    monkeypatch.undo()
    assert io.load(path).bandwidth == 0.5
    assert os.listdir(tmp_path) == ["model.vicinal"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_devices_are_not_replaced():
    with pytest.raises(OSError, match="not a regular file"):
        io.save(ParzenWindows(), "/dev/full")
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_folders_that_cannot_be_written(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"folder .*nowhere.* does not exist"):
        io.save(ParzenWindows(), tmp_path / "nowhere" / "model.vicinal")
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        io.save(ParzenWindows(), tmp_path)
    with monkeypatch.context() as patch:  # as root, permissions do not stop anyone
        patch.setattr(os, "open", _fail(errno.EACCES))
        with pytest.raises(PermissionError):
            io.save(ParzenWindows(), tmp_path / "model.vicinal")
    if hasattr(os, "geteuid") and os.geteuid() != 0:
        os.chmod(tmp_path, 0o500)
        with pytest.raises(PermissionError):
            io.save(ParzenWindows(), tmp_path / "model.vicinal")
        os.chmod(tmp_path, 0o700)
    assert not os.listdir(tmp_path)


def test_a_file_that_may_not_be_read_is_a_value_error(tmp_path, monkeypatch):
    path = tmp_path / "model.vicinal"
    io.save(ParzenWindows(), path)
    monkeypatch.setattr("builtins.open", _fail(errno.EACCES))
    with pytest.raises(ValueError, match="Permission denied"):
        io.load(path)


@pytest.mark.skipif(os.name != "posix", reason="permissions of posix")
def test_permissions_and_links_are_kept(tmp_path):
    path, link = tmp_path / "model.vicinal", tmp_path / "link.vicinal"
    mask = os.umask(0o022)
    try:
        io.save(ParzenWindows(0.5), path)
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    path.chmod(0o640)
    link.symlink_to(path)
    io.save(ParzenWindows(0.7), link)
    assert link.is_symlink()
    assert io.load(path).bandwidth == 0.7
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_concurrent_saves_and_loads_see_whole_files(tmp_path):
    path = tmp_path / "model.vicinal"
    densities = [ParzenWindows(width).fit(X) for width in (0.5, 0.7, 0.9)]
    io.save(densities[0], path)
    problems: list = []

    def repeat(action):
        try:
            for _ in range(20):
                action()
        except Exception as error:
            problems.append(error)

    def check():
        density = io.load(path)
        assert density.covariance_[0, 0] == density.bandwidth**2

    threads = [threading.Thread(target=repeat, args=(lambda d=d: io.save(d, path),)) for d in densities]
    threads += [threading.Thread(target=repeat, args=(check,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert os.listdir(tmp_path) == ["model.vicinal"]


# -- other tools -----------------------------------------------------------------------------------


def test_describe(tmp_path):
    io.save(NCA(init=np.eye(D), engine=Engine(), random_state=0).fit(X, CLASSES), tmp_path / "model.vicinal")
    found = io.describe(tmp_path / "model.vicinal")
    assert found["class"] == "NCA"
    assert found["vicinal"] == vicinal.__version__
    assert found["parameters"]["init"] == "array init"
    assert found["parameters"]["engine"] == "Engine"
    assert found["parameters"]["max_iter"] == 50
    assert found["attributes"]["n_features_in_"] == D
    assert found["arrays"]["components_"] == {"dtype": "float64", "shape": (D, D)}
    json.dumps(found)


def test_load_components(tmp_path):
    metric = RCA(n_components=2).fit(X, CHUNKLETS)
    io.save(metric, tmp_path / "model.vicinal")
    np.testing.assert_array_equal(io.load_components(tmp_path / "model.vicinal"), metric.components_)
    io.save(ParzenWindows(), tmp_path / "model.vicinal")
    with pytest.raises(ValueError, match="ParzenWindows has no components_"):
        io.load_components(tmp_path / "model.vicinal")


def test_safetensors_reads_the_arrays(tmp_path):
    safetensors = needs("safetensors.numpy")
    metric = RCA().fit(X, CHUNKLETS)
    metric.components_ = np.asfortranarray(metric.components_)  # in files always in C order
    names = np.where(np.arange(len(X)) % 2, "é", "b")
    io.save(
        make_pipeline(metric, vicinal.DensityClassifier(ParzenWindows(1.0)).fit(X, names)), tmp_path / "model.vicinal"
    )
    arrays = safetensors.load_file(tmp_path / "model.vicinal")
    np.testing.assert_array_equal(arrays["steps.0.1.components_"], metric.components_)
    np.testing.assert_array_equal(arrays["steps.1.1.classes_"], [[ord("b")], [ord("é")]])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_to_torch(dtype):
    torch = needs("torch")
    metric = RCA(n_components=2).fit(X, CHUNKLETS)
    layer = io.to_torch(metric, dtype=getattr(torch, np.dtype(dtype).name))
    assert layer.bias is None
    rows = X.astype(dtype)
    np.testing.assert_allclose(layer(torch.from_numpy(rows)).detach(), metric.transform(rows), rtol=1e-5)
    layer.weight.data.zero_()  # a copy
    assert metric.components_.any()
    assert io.to_torch(metric).weight.dtype == torch.float32


def test_to_torch_with_unit_lengths():
    torch = needs("torch")
    model, rows = DIRECTIONS.fit(X, CHUNKLETS), X.astype(np.float32)
    module = io.to_torch(model)
    np.testing.assert_allclose(module(torch.from_numpy(rows)).detach(), model.transform(rows), atol=1e-5)
    assert not module(torch.zeros(1, X.shape[1])).any()  # a row of zeros stays one


def test_to_torch_of_a_pipeline():
    torch = needs("torch")
    for scaler in (
        StandardScaler(),
        StandardScaler(with_mean=False),
        StandardScaler(with_std=False),
        "passthrough",
    ):
        pipeline = make_pipeline(scaler, RCA(n_components=2), "passthrough").fit(X + 100.0, CHUNKLETS)
        layer = io.to_torch(pipeline, dtype=torch.float64)
        np.testing.assert_allclose(
            layer(torch.from_numpy(X + 100.0)).detach(), pipeline.transform(X + 100.0), atol=1e-11
        )


DIRECTIONS = make_pipeline(Normalizer(), RCA(n_components=2), Normalizer())


def apply_steps(steps, rows):
    for A, b in steps:
        rows = normalize(rows) if A is None else rows @ A.T + (0.0 if b is None else b)
    return rows


def test_to_numpy():
    for estimator in (DIRECTIONS, make_pipeline(StandardScaler(), Normalizer(), StandardScaler(), RCA(n_components=2))):
        estimator.fit(X, CHUNKLETS)
        steps = io.to_numpy(estimator, dtype=np.float64)
        np.testing.assert_allclose(apply_steps(steps, X), estimator.transform(X), rtol=1e-10)
        assert len(steps) == 3
    assert {step.A.dtype for step in io.to_numpy(RCA().fit(X, CHUNKLETS))} == {np.dtype(np.float32)}


def test_to_faiss():
    faiss = needs("faiss")
    rows = X.astype(np.float32)
    metric = LCA(reg=0.0).fit(X)
    index = io.to_faiss(metric)
    index.add(rows)
    distances = np.sqrt(index.search(rows[:5], 3)[0])
    expected = np.sort(metric.mahalanobis(rows[:5], rows), axis=1)[:, :3]
    np.testing.assert_allclose(distances, expected, atol=2e-3)
    pipeline = make_pipeline(StandardScaler(), RCA(n_components=2)).fit(X, CHUNKLETS)
    index = io.to_faiss(pipeline, faiss.IndexFlatL2(2))
    index.add(rows)
    np.testing.assert_allclose(index.index.reconstruct_n(0, 9), pipeline.transform(rows[:9]), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="2 dimensions"):
        io.to_faiss(pipeline, faiss.IndexFlatL2(7))


def test_to_faiss_finds_the_same_neighbours_by_direction(tmp_path):
    faiss = needs("faiss")
    model, rows = DIRECTIONS.fit(X, CHUNKLETS), X.astype(np.float32)
    index = io.to_faiss(model)
    index.add(rows)
    expected = retrieval.search(rows, rows, 4, model=model)
    faiss.write_index(index, str(tmp_path / "index"))
    for one in (index, faiss.read_index(str(tmp_path / "index"))):
        cosines, found = one.search(rows, 4)
        np.testing.assert_allclose(cosines, expected.scores, atol=1e-5)
        assert np.mean(found == expected.indices) > 0.98  # cosines that agree to float32 may change places


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("runtime", ["onnx.reference", "onnxruntime"])
def test_to_onnx(dtype, runtime):
    needs("onnx")
    runtime = needs(runtime)
    metric = RCA(n_components=2).fit(X, CHUNKLETS)
    pipeline = make_pipeline(StandardScaler(), RCA(n_components=2)).fit(X, CHUNKLETS)
    rows = X.astype(dtype)
    for estimator in (metric, pipeline, DIRECTIONS.fit(X, CHUNKLETS)):
        model = io.to_onnx(estimator, dtype=dtype)
        if hasattr(runtime, "ReferenceEvaluator"):
            session = runtime.ReferenceEvaluator(model)
        else:
            session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        (images,) = session.run(None, {"X": rows})
        assert images.dtype == rows.dtype
        np.testing.assert_allclose(images, estimator.transform(rows), rtol=1e-4, atol=1e-5)


def test_to_onnx_is_float32_unless_told_otherwise():
    onnx = needs("onnx")
    model = io.to_onnx(RCA().fit(X, CHUNKLETS))
    assert model.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT


@pytest.mark.parametrize("name", ["torch", "faiss", "onnx"])
def test_exports_say_what_to_install(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf"pip install 'vicinal\[{name}\]'"):
        getattr(io, f"to_{name}")(RCA().fit(X, CHUNKLETS))


@pytest.mark.parametrize("whiten", [False, True])
def test_a_pipeline_with_pca_is_one_linear_map(whiten):
    X = np.random.default_rng(3).normal(size=(80, 5)) + 3.0
    model = make_pipeline(Normalizer(), PCA(4, whiten=whiten), RCA(n_components=2), Normalizer())
    model.fit(X, np.arange(80) // 2)
    steps = io.to_numpy(model, dtype=np.float64)
    assert [step.is_unit_length for step in steps] == [True, False, True]
    Z = normalize(normalize(X) @ steps[1].A.T + steps[1].b)
    np.testing.assert_allclose(Z, model.transform(X), atol=1e-12)


def test_exports_refuse_what_they_cannot_say():
    X = np.random.default_rng(3).normal(size=(40, 3))
    metric = RCA().fit(X, np.arange(40) // 2)
    with pytest.raises(TypeError, match="floating-point dtype, such as 'float32', got int8"):
        io.to_numpy(metric, dtype="int8")  # ONNX models once had weights of -1, 0 and 1
    with pytest.raises(TypeError, match=r"got Normalizer\(norm='l1'\)"):
        io.to_numpy(make_pipeline(Normalizer("l1"), metric))
    needs("torch")
    with pytest.raises(TypeError, match=r"such as torch.float64, or None, got 'float64'"):
        io.to_torch(metric, dtype="float64")


@pytest.mark.parametrize("export", [io.to_torch, io.to_faiss, io.to_onnx, io.to_numpy])
@pytest.mark.parametrize(
    "estimator", [ParzenWindows(), make_pipeline(Normalizer("l1"), RCA()), make_pipeline("passthrough"), X]
)
def test_exports_refuse_what_is_not_linear(export, estimator):
    with pytest.raises(TypeError, match="Only linear maps"):
        export(estimator)


def test_exports_refuse_what_is_not_fitted():
    with pytest.raises(NotFittedError):
        io.to_torch(RCA())
