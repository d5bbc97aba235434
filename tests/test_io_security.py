"""Test forged model files: no parameter in them runs code or opens a path, neither on loading nor when fitted again.

The story: `Pipeline.memory` was taken from a file as any text, and joblib opened its pickle cache at that path when the
loaded pipeline was fitted again.
"""

import inspect
import json
import re
from contextlib import suppress

import joblib
import numpy as np
import pytest
import sklearn
from needs import needs
from sklearn.base import BaseEstimator
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.exceptions import InconsistentVersionWarning
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, Normalizer, RobustScaler, StandardScaler

import vicinal
from vicinal import (
    LCA,
    NCA,
    RCA,
    DensityClassifier,
    DensityOutlierDetector,
    Engine,
    ManifoldParzen,
    ParzenWindows,
    SoftNeighborsClassifier,
    io,
)
from vicinal._model_files.classes import _CLASSES, find_class, name_of_class
from vicinal._model_files.codec import Reader, Writer
from vicinal._model_files.container import read_arrays, write_arrays
from vicinal._model_files.model_file import write_model

X = np.random.default_rng(0).normal(size=(40, 3))
Y = np.resize([0, 1], 40)

ESTIMATORS = [
    name
    for name in [*_CLASSES, *vicinal.__all__]
    if (cls := find_class(name)) is not None and issubclass(cls, BaseEstimator)
]


@pytest.fixture(autouse=True)
def _in_the_folder_that_is_watched(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a path in a file may be relative


def default_estimator(name):
    """Return an estimator with its defaults, and a small value of each parameter without one."""
    required = {"sklearn.Pipeline": [[("scaler", StandardScaler())]], "QueryMap": [RCA()]}
    return find_class(name)(*required.get(name, []))


def default_tree(name):
    """What a file holds of an estimator with its defaults."""
    return Writer().estimator(default_estimator(name))


def write(path, tree, arrays=None):
    """A file with a valid checksum around any description."""
    model = {"vicinal": vicinal.__version__, "sklearn": sklearn.__version__, "estimator": tree}
    write_arrays(path, json.dumps(model), arrays or {})


def write_changed(path, estimator, change):
    """A file as `save` writes it, but for what `change` does to the description."""
    writer = Writer()
    tree = writer.estimator(estimator)
    change(tree)
    write(path, tree, writer.arrays)


def assert_does_nothing(path, match):
    """Check that the file is rejected, or that fitting the loaded estimator leaves the folder unchanged."""
    before, message = sorted(path.parent.rglob("*")), "the file was loaded"
    try:
        loaded = io.load(path)
    except ValueError as error:
        message = str(error)
    else:
        with suppress(Exception):
            loaded.fit(X, Y)
    assert sorted(path.parent.rglob("*")) == before
    assert re.search(rf"cannot load .*{match}", message, re.DOTALL), message
    assert len(message) < 1000


def pipeline_tree(memory):
    tree = Writer().estimator(make_pipeline(StandardScaler(), PCA(2), ParzenWindows()))
    tree["parameters"]["memory"] = memory
    return tree


# -- a cache -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spell",
    [
        str,
        lambda path: f"{path}/../{path.name}",
        lambda path: f"{path}/",
        lambda path: path.name,
        lambda path: [str(path)],
        lambda path: {"is": "tuple", "items": [str(path)]},
        lambda path: {"is": "dict", "items": [["location", str(path)]]},
        lambda path: Writer().estimator(ParzenWindows()),
        lambda path: Writer().value(Engine(), ()),
        lambda path: "",
        lambda path: True,
        lambda path: 1,
    ],
)
def test_a_pipeline_from_a_file_has_no_cache(spell, tmp_path):
    write(tmp_path / "model.vicinal", pipeline_tree(spell(tmp_path / "cache")))
    assert_does_nothing(tmp_path / "model.vicinal", r"its sklearn\.Pipeline has memory=.*expected None")


def steps(tree):
    return tree["parameters"]["steps"]


def step(tree, position):
    return steps(tree)[position]["items"][1]


SCALED = make_pipeline(StandardScaler(), ParzenWindows(1.0))
HIDING_PLACES = {
    "a step": (make_pipeline(make_pipeline(StandardScaler()), LCA(reg=0.0)), lambda tree: step(tree, 0)),
    "a step of a step": (
        make_pipeline(make_pipeline(make_pipeline(StandardScaler())), ParzenWindows()),
        lambda tree: step(step(tree, 0), 0),
    ),
    "a density": (DensityClassifier(SCALED), lambda tree: tree["parameters"]["density"]),
    "a metric": (ManifoldParzen(metric=make_pipeline(RCA())), lambda tree: tree["parameters"]["metric"]),
    "a fitted attribute": (
        DensityOutlierDetector(SCALED).fit(X),
        lambda tree: tree["attributes"]["density_"],
    ),
    "a fitted metric": (
        SoftNeighborsClassifier(make_pipeline(StandardScaler())).fit(X, Y),
        lambda tree: tree["attributes"]["metric_"],
    ),
    "a list in an attribute": (
        DensityClassifier(SCALED).fit(X, Y),
        lambda tree: tree["attributes"]["densities_"][1],
    ),
}


@pytest.mark.parametrize("place", HIDING_PLACES)
def test_a_pipeline_inside_of_something_has_no_cache_either(place, tmp_path):
    estimator, pipeline_in = HIDING_PLACES[place]
    for memory, loads in ((None, True), (str(tmp_path / "cache"), False)):

        def change(tree, memory=memory):
            pipeline_in(tree)["parameters"]["memory"] = memory

        write_changed(tmp_path / "model.vicinal", estimator, change)
        if loads:
            assert type(io.load(tmp_path / "model.vicinal")) is type(estimator)
        else:
            assert_does_nothing(tmp_path / "model.vicinal", r"its sklearn\.Pipeline has memory=.*expected None")


@pytest.mark.parametrize("memory", [None, "cache"])
@pytest.mark.parametrize(
    ("hide", "match"),
    [
        (lambda tree, evil: tree["attributes"].update(_kept=evil), "ParzenWindows has no attribute '_kept'"),
        (
            lambda tree, evil: tree["attributes"].update(_kept={"is": "dict", "items": [["a", evil]]}),
            "ParzenWindows has no attribute '_kept'",
        ),
        (
            lambda tree, evil: tree["attributes"]["mixture_"]["fields"].update(_kept=evil),
            "SharedMixture has no field '_kept'",
        ),
    ],
)
def test_there_is_no_place_for_a_pipeline_where_none_is_declared(hide, match, memory, tmp_path):
    write_changed(tmp_path / "model.vicinal", ParzenWindows().fit(X), lambda tree: hide(tree, pipeline_tree(memory)))
    assert_does_nothing(tmp_path / "model.vicinal", match)


@pytest.mark.parametrize("cls", [FeatureUnion, ColumnTransformer])
def test_other_classes_with_functions_and_caches_are_not_known(cls, tmp_path):
    tree = {"is": "estimator", "class": f"sklearn.{cls.__name__}", "parameters": {}, "attributes": {}}
    write(tmp_path / "model.vicinal", tree)
    assert_does_nothing(tmp_path / "model.vicinal", "unknown class")


# -- names -------------------------------------------------------------------------------------------------------------


MISSPELLED = ["Memory", "scaler__memory", "n_jobs"]  # as attributes they are never read
STRANGE = [
    "memory ", " memory", "memory\u200b", "memory\0", "ｍｅｍｏｒｙ", "__class__", "__dict__", "__module__", "__reduce__",
    "__setstate__", "__sklearn_clone__", "__sklearn_tags__", "fit", "set_params", "_final_estimator",
    "_parameter_constraints", "_doc_link_module", "_metadata_request",
]  # fmt: skip


@pytest.mark.parametrize(
    ("part", "name"),
    [("parameters", name) for name in [*MISSPELLED, *STRANGE]]
    + [("attributes", name) for name in ["memory", *STRANGE]],
)
def test_names_that_a_pipeline_does_not_have(part, name, tmp_path):
    tree = pipeline_tree(None)
    tree[part][name] = str(tmp_path / "cache")
    write(tmp_path / "model.vicinal", tree)
    assert_does_nothing(tmp_path / "model.vicinal", f"sklearn.Pipeline has no {part[:-1]} ")


def test_constraints_of_a_file_do_not_replace_those_of_the_class(tmp_path):
    """They would switch off the checks of scikit-learn when the estimator is fitted again."""
    replaced = {"is": "dict", "items": []}
    change = {"attributes": {"_parameter_constraints": replaced}}
    write(tmp_path / "model.vicinal", {**default_tree("sklearn.KMeans"), **change})
    assert_does_nothing(tmp_path / "model.vicinal", "sklearn.KMeans has no attribute '_parameter_constraints'")


@pytest.mark.parametrize("name", ["_scaled_centres", "__class__", "__dict__", "score_samples"])
def test_names_that_a_mixture_does_not_keep(name, tmp_path):
    """``_scaled_centres`` is made at the first use: of a file it would come without any check of its shape."""
    write_changed(
        tmp_path / "model.vicinal",
        ParzenWindows().fit(X),
        lambda tree: tree["attributes"]["mixture_"]["fields"].update({name: 1.0}),
    )
    assert_does_nothing(tmp_path / "model.vicinal", f"SharedMixture has no field {name!r}")


# -- every parameter of every class ------------------------------------------------------------------------------------


def test_save_every_documented_choice_of_a_parameter_comes_back():
    for name in ESTIMATORS:
        cls, estimator = find_class(name), default_estimator(name)
        if name not in vicinal.__all__:
            continue
        for parameter in cls._get_param_names():
            described = re.search(rf"^ *{parameter} : (.*)$", inspect.getdoc(cls), re.MULTILINE)
            for choice in re.findall(r'"([^"]+)"', described[1] if described else ""):
                tree = Writer().estimator(estimator.set_params(**{parameter: choice}))
                assert Reader({}).estimator(tree).get_params(deep=False)[parameter] == choice


def test_load_parameter_that_is_a_path_refused():
    """Nor a module, a program, or an address."""
    for name in ESTIMATORS:
        for parameter in find_class(name)._get_param_names():
            for path in ("/tmp/cache", "../cache", "os.system", "file:///etc/passwd", "rm -rf .", "a\nb", "a" * 100):
                tree = default_tree(name)
                tree["parameters"][parameter] = path
                with pytest.raises(ValueError, match=rf"its {re.escape(name)} has {parameter}=|steps"):
                    Reader({}).estimator(tree)


def test_load_parameter_that_can_be_called_refused():
    """Of all that a file holds, only a network can be called; it is for `network`."""
    needs("torch")
    layers = [{"layer": "Identity", "arrays": {}}]
    network = {"is": "network", "layers": layers, "chain": False, "training": False, "trainable": False}
    for name in ESTIMATORS:
        for parameter in find_class(name)._get_param_names():
            tree = default_tree(name)
            tree["parameters"][parameter] = network
            if parameter == "network":
                assert Reader({}).estimator(tree).network is not None
                continue
            with pytest.raises(ValueError, match=rf"its {re.escape(name)} has {parameter}=|steps"):
                Reader({}).estimator(tree)


def value_tree(value):
    return Writer().value(value, ())


@pytest.mark.parametrize(
    ("name", "parameter", "value"),
    [
        ("LCA", "random_state", "numpy.random"),
        ("NCA", "callback", "builtins.print"),
        ("NCA", "callback", value_tree(ParzenWindows())),
        ("NeuralNCA", "network", "torch.nn.Linear"),
        ("sklearn.PCA", "svd_solver", "numpy.linalg.svd"),
        ("sklearn.Pipeline", "steps", [["scaler"]]),
        ("sklearn.Pipeline", "steps", [["scaler", "os.system"]]),
        ("sklearn.Pipeline", "steps", [[1, None]]),
        ("sklearn.Pipeline", "steps", {"is": "dict", "items": []}),
    ],
)
def test_load_parameter_with_a_value_that_no_class_has_refused(name, parameter, value, tmp_path):
    tree = default_tree(name)
    tree["parameters"][parameter] = value
    write(tmp_path / "model.vicinal", tree)
    assert_does_nothing(tmp_path / "model.vicinal", rf"its {re.escape(name)} has {parameter}")


@pytest.mark.parametrize(
    ("record", "field", "value"),
    [
        (Engine("torch"), "device", "xla"),
        (Engine("torch"), "device", "hpu:0"),
        (Engine("torch"), "device", ["cpu"]),
        (Engine("cpu"), "threads", 10**9),
        (Engine("cpu"), "threads", 0),
        (Engine("cpu"), "memory", True),
        (Engine("cpu"), "memory", "/tmp/cache"),
        (Engine("cpu"), "kind", "numba"),
        (Engine("cpu"), "precision", "float128"),
    ],
)
def test_values_that_a_record_does_not_have(record, field, value, tmp_path):
    tree = default_tree("DensityOutlierDetector")
    tree["parameters"]["cv"] = value_tree(record)
    tree["parameters"]["cv"]["fields"][field] = value
    write(tmp_path / "model.vicinal", tree)
    assert_does_nothing(tmp_path / "model.vicinal", field)


def test_a_mixture_from_a_file_has_an_engine_or_none(tmp_path):
    write_changed(
        tmp_path / "model.vicinal",
        ParzenWindows().fit(X),
        lambda tree: tree["attributes"]["mixture_"]["fields"].update(engine="/tmp/engine.so"),
    )
    assert_does_nothing(tmp_path / "model.vicinal", "its SharedMixture has engine='/tmp/engine.so'")


def test_a_file_does_not_say_how_many_threads_predict_starts(tmp_path):
    """With this number predict started one thread per 256 rows: 1,175 threads for 300,000 rows."""
    write_changed(
        tmp_path / "model.vicinal",
        KMeans(2, n_init=1).fit(X),
        lambda tree: tree["attributes"].update(_n_threads=10**8),
    )
    assert_does_nothing(tmp_path / "model.vicinal", "sklearn.KMeans has _n_threads=100000000")


def test_a_long_or_strange_text_is_shown_in_a_few_plain_characters(tmp_path):
    write(tmp_path / "model.vicinal", pipeline_tree("\x1b[2J\u202e" + "x" * 10**6))
    with pytest.raises(ValueError, match=r"memory='\\x1b\[2J\\u202ex+\.\.\., expected None") as caught:
        io.load(tmp_path / "model.vicinal")
    assert str(caught.value).isascii()
    assert len(str(caught.value)) < 400 + len(str(tmp_path))


# -- what is saved -----------------------------------------------------------------------------------------------------


def cached(path, *more):
    return make_pipeline(StandardScaler(), PCA(2), *more, memory=path)


@pytest.mark.parametrize("as_object", [False, True])
@pytest.mark.parametrize(
    ("wrap", "where", "owner"),
    [
        (lambda inner: inner, "memory", "estimator"),
        (lambda inner: make_pipeline(inner, RCA()), "steps.0.1.memory", "estimator.steps[0][1]"),
        (lambda inner: ManifoldParzen(metric=inner), "metric.memory", "estimator.metric"),
        (lambda inner: DensityClassifier(make_pipeline(inner, ParzenWindows())), "density.steps.0.1.memory",
         "estimator.density.steps[0][1]"),
    ],
)  # fmt: skip
def test_a_pipeline_with_a_cache_is_saved_after_the_remedy(wrap, where, owner, as_object, tmp_path):
    path = str(tmp_path / "cache")
    estimator = wrap(cached(joblib.Memory(path, verbose=0) if as_object else path))
    before = sorted(tmp_path.rglob("*"))
    remedy = f"{owner}.set_params(memory=None)"
    with pytest.raises(TypeError, match=rf"^{re.escape(where)} .*{re.escape(remedy)}\.$"):
        io.save(estimator, tmp_path / "model.vicinal")
    assert sorted(tmp_path.rglob("*")) == before
    eval(remedy, {"estimator": estimator})
    io.save(estimator, tmp_path / "model.vicinal")
    assert isinstance(io.load(tmp_path / "model.vicinal"), type(estimator))


def test_a_fit_that_used_a_cache_is_kept_by_the_remedy(tmp_path):
    classifier = DensityClassifier(cached(str(tmp_path / "cache"), ParzenWindows())).fit(X, Y)
    expected = classifier.predict_proba(X)
    for pipeline in (classifier.density, *classifier.densities_):
        with pytest.raises(TypeError, match=r"set_params\(memory=None\)"):
            io.save(classifier, tmp_path / "model.vicinal")
        pipeline.set_params(memory=None)
    io.save(classifier, tmp_path / "model.vicinal")
    np.testing.assert_array_equal(io.load(tmp_path / "model.vicinal").predict_proba(X), expected)


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (ParzenWindows("/tmp/x"), r"bandwidth is '/tmp/x',.*expected the name of a choice"),
        (NCA(callback="print"), r"callback is 'print',.*expected None.*estimator\.set_params\(callback=None\)"),
        (LCA(engine=Engine("torch", device="xla"), reg=0.0), "engine.device is 'xla'.*'cuda:1'"),
    ],
)
def test_what_a_parameter_cannot_hold_is_not_saved_either(estimator, message, tmp_path):
    with pytest.raises(TypeError, match=message):
        io.save(estimator, tmp_path / "model.vicinal")
    assert not list(tmp_path.iterdir())


# -- and what may be held is held --------------------------------------------------------------------------------------


FITTED = {
    "sklearn.GaussianMixture": GaussianMixture(2, means_init=[[0.0] * 3, [1.0] * 3], random_state=0),
    "sklearn.KMeans": KMeans(2, init=X[:2], n_init=1),
    "sklearn.MinMaxScaler": MinMaxScaler((-1, 1), clip=True),
    "sklearn.Normalizer": Normalizer("max"),
    "sklearn.PCA": PCA(0.9, svd_solver="full", random_state=np.random.RandomState(0)),
    "sklearn.Pipeline": Pipeline([("none", None), ("same", "passthrough"), ("pca", PCA(2))], verbose=False),
    "sklearn.RobustScaler": RobustScaler(quantile_range=(5.0, 95.0)),
}


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name.startswith("sklearn.")])
def test_fitted_estimators_of_scikit_learn_come_back_and_fit_again(name, tmp_path):
    estimator = FITTED[name] if name in FITTED else find_class(name)()
    estimator.fit(X, Y)
    io.save(estimator, tmp_path / "model.vicinal")
    same = io.load(tmp_path / "model.vicinal").fit(X, Y)
    assert name_of_class(type(same)) == name
    method = next(m for m in ("predict", "transform") if hasattr(same, m))
    np.testing.assert_array_equal(getattr(same, method)(X), getattr(estimator, method)(X))


@pytest.mark.parametrize(
    "cv",
    [3, [(np.arange(30), np.arange(30, 40))]],
)
def test_folds_come_back(cv, tmp_path):
    io.save(DensityOutlierDetector(cv=cv), tmp_path / "model.vicinal")
    assert repr(io.load(tmp_path / "model.vicinal").cv) == repr(cv)


def test_a_number_of_numpy_comes_back_as_a_number_of_python(tmp_path):
    io.save(DensityOutlierDetector(cv=np.int64(3)), tmp_path / "model.vicinal")
    assert repr(io.load(tmp_path / "model.vicinal").cv) == "3"


@pytest.mark.parametrize("priors", [{0: 0.5, 1: 0.5}, {"a": 0.5, np.str_("b"): np.float32(0.5)}, [0.5, 0.5], "uniform"])
def test_priors_come_back(priors, tmp_path):
    io.save(DensityClassifier(priors=priors), tmp_path / "model.vicinal")
    assert io.load(tmp_path / "model.vicinal").priors == priors


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:1", "mps", None])
def test_devices_come_back(device, tmp_path):
    io.save(LCA(engine=Engine("torch", device=device, memory="64 MB", threads=8), reg=0.0), tmp_path / "model.vicinal")
    assert io.load(tmp_path / "model.vicinal").engine == Engine("torch", device=device, memory="64 MB", threads=8)


def test_version_of_scikit_learn_in_a_file_is_shown_in_plain_characters(tmp_path):
    io.save(make_pipeline(StandardScaler().fit(X), RCA()), tmp_path / "model.vicinal")
    text, arrays = read_arrays(tmp_path / "model.vicinal")
    tree = json.loads(text) | {"sklearn": "\x1b[2J\u202e\n" + "1" * 500}
    write_arrays(tmp_path / "model.vicinal", json.dumps(tree), arrays)
    with pytest.warns(InconsistentVersionWarning) as caught:
        io.load(tmp_path / "model.vicinal")
    assert str(caught[0].message).isascii()
    assert "\x1b" not in str(caught[0].message)


def test_a_mark_of_another_kind_of_model_is_refused():
    density = vicinal.ParzenWindows().fit(X)
    detector = DensityOutlierDetector.from_density(density)
    write_model(detector, "ranked.vicinal", ranked=True)
    loaded = io.load("ranked.vicinal")
    assert type(loaded) is ParzenWindows
    assert (loaded.score_samples(X) == density.score_samples(X)).all()
    tree = json.loads(read_arrays("ranked.vicinal")[0])
    for estimator, kind in ((detector, "another"), (density, tree["is"]), (DensityOutlierDetector(), tree["is"])):
        writer = Writer()
        mark = {**tree, "is": kind, "estimator": writer.estimator(estimator)}
        write_arrays("forged.vicinal", json.dumps(mark), writer.arrays)
        for read in (io.load, io.describe, io.load_components):
            with pytest.raises(
                ValueError, match=r"cannot load 'forged\.vicinal': its description is not valid|a kind of model that"
            ):
                read("forged.vicinal")
