"""Code written from estimators: run it, and the same estimators come back."""

from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import vicinal
from vicinal import LCA, NCA, RCA, DensityOutlierDetector, Engine, ManifoldParzen, Objective, ParzenWindows
from vicinal._compare.estimator_code import CodeWriter
from vicinal._compare.methods import Columns, density_methods, metric_methods
from vicinal.companions import BinnedTargetMetric


def run(value):
    """The value that the code for a value makes, and the code."""
    writer = CodeWriter()
    expression = writer.expression(value)
    assert writer.gaps == []
    namespace = {}
    exec("\n".join([*writer.import_lines(), f"value = {expression}"]), namespace)
    return namespace["value"], expression


def assert_same_estimator(found, expected):
    """Same class and, at every depth, same parameters."""
    assert type(found) is type(expected)
    if isinstance(expected, BaseEstimator):
        assert_same_estimator(found.get_params(deep=False), expected.get_params(deep=False))
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for name in expected:
            assert_same_estimator(found[name], expected[name])
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same_estimator(one, other)
    elif isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    else:
        assert found == expected or (found != found and expected != expected)


ESTIMATORS = [
    LCA(),
    LCA(tol=1e-5, engine=Engine("cpu", threads=2, memory="64 MB"), random_state=3),
    ParzenWindows([0.5, 1.0 / 3.0]),
    ParzenWindows((0.5, 2)),
    ParzenWindows(np.array([[1.0, 0.1], [0.1, 2.0]])),
    ParzenWindows(np.array([1, 2], dtype=np.float32)),
    NCA(init=np.eye(3, 5)),
    GaussianMixture(2, reg_covar=float("inf")),
    BinnedTargetMetric(RCA(n_components=2), n_bins=4),
    DensityOutlierDetector(make_pipeline(StandardScaler(), ManifoldParzen(1, 5)), contamination=0.1),
    make_pipeline(StandardScaler(), PCA(0.999999, whiten=True, svd_solver="full"), LCA(), KNeighborsClassifier(3)),
    make_pipeline(StandardScaler(), StandardScaler(with_std=False), "passthrough", verbose=True),
    make_pipeline(make_pipeline(StandardScaler(), PCA(2)), RCA()),
    Pipeline([("first", StandardScaler()), ("second", RCA())]),
    FeatureUnion([("a", StandardScaler()), ("b", PCA(2))], transformer_weights={"a": 0.5, "b": 2.0}),
    FunctionTransformer(np.log1p, inverse_func=np.expm1),
    PCA(2, random_state=np.int64(7)),
]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__)
def test_the_code_of_an_estimator_makes_it_again(estimator):
    found, _ = run(estimator)
    if isinstance(estimator, PCA):  # a NumPy integer is written as the integer that it equals
        estimator = PCA(2, random_state=7)
    assert_same_estimator(found, estimator)


def test_only_what_differs_from_the_defaults_is_written():
    nca = NCA(engine=Engine(threads=2), objective=Objective(match="dot"))
    assert run(nca)[1] == "NCA(objective=Objective(match='dot'), engine=Engine(threads=2))"
    assert (
        run(make_pipeline(StandardScaler(), NCA(max_iter=7)))[1] == "make_pipeline(StandardScaler(), NCA(max_iter=7))"
    )
    assert run(KNeighborsClassifier(n_neighbors=np.int64(5)))[1] == "KNeighborsClassifier()"
    # True equals 1 and 1 equals 1.0, but they are other values to a parameter.
    assert run(PCA(whiten=True, tol=1))[1] == "PCA(whiten=True, tol=1)"


@pytest.mark.parametrize("n_features", [4, 100])
@pytest.mark.parametrize("task", ["classes", "numbers"])
def test_every_method_of_a_comparison_has_code(task, n_features):
    engine = Engine("cpu", threads=1)
    # A column that is left out, a rounded one, and continuous ones.
    measured = tuple(range(1, n_features))
    columns = Columns(n_features, measured, (0.5, *(0.0 for _ in measured[1:])))
    methods = [
        *metric_methods(columns, 128, 3, engine, task).values(),
        *density_methods(columns, min(len(measured), 64), 3, engine).values(),
    ]
    for method in methods:
        for candidate in method.candidates:
            found, code = run(candidate)
            assert_same_estimator(found, candidate)
            assert "._" not in code


def test_imports_are_public_and_names_do_not_collide():
    class_of_same_name = type("NCA", (NeighborhoodComponentsAnalysis,), {"__module__": "colliding"})
    import sys
    from types import ModuleType

    module = ModuleType("colliding")
    module.NCA = class_of_same_name
    sys.modules["colliding"] = module
    try:
        both = make_pipeline(NCA(), class_of_same_name(n_components=2))
        writer = CodeWriter()
        assert writer.expression(both) == "make_pipeline(NCA(), colliding.NCA(n_components=2))"
        assert writer.import_lines() == [
            "import colliding",
            "from sklearn.pipeline import make_pipeline",
            "from vicinal import NCA",
        ]
    finally:
        del sys.modules["colliding"]


@dataclass(frozen=True)
class Record:
    number: int = 1
    items: list = field(default_factory=list)
    text: str = ""


class Own(TransformerMixin, BaseEstimator):
    def __init__(self, record=None, thing=None):
        self.record = record
        self.thing = thing

    def fit(self, X, y=None):
        return self


def test_records_and_estimators_of_ones_own():
    writer = CodeWriter()
    assert (
        writer.expression(Own(Record(text="a\nb\"'", items=[1]))) == "Own(record=Record(items=[1], text='a\\nb\"\\''))"
    )
    assert writer.import_lines() == [f"from {__name__} import Own, Record"]


@pytest.mark.parametrize(
    ("value", "gap"),
    [
        (np.zeros(1000), "an array of dtype float64 and shape (1000,)"),
        (lambda x: x, "<lambda> of"),
        (partial(max, 1), "a partial"),
        (np.random.RandomState(0), "a RandomState"),
        (np.array([None]), "an array of dtype object and shape (1,)"),
    ],
    ids=["large array", "lambda", "partial", "random state", "objects"],
)
def test_what_has_no_code_is_told_not_invented(value, gap):
    writer = CodeWriter()
    assert writer.expression(make_pipeline(Own(thing=value))) == "make_pipeline(Own(thing=...))"
    assert len(writer.gaps) == 1
    assert writer.gaps[0].startswith(f"thing of Own: {gap}")


def test_a_class_that_no_module_offers_is_told():
    class Local(Own):
        pass

    class Main(Own):
        pass

    Main.__module__ = "__main__"
    writer = CodeWriter()
    assert writer.expression(make_pipeline(Local(), Main())) == "make_pipeline(Local(), Main())"
    assert writer.import_lines() == ["from sklearn.pipeline import make_pipeline"]
    assert [gap.split(":")[0] for gap in writer.gaps] == ["Local", "Main"]


def test_long_code_has_an_item_per_line():
    code = run(
        make_pipeline(*[LCA(tol=1e-5, engine=Engine("cpu"), random_state=0, max_iter=100 + i) for i in range(3)])
    )[1]
    assert max(map(len, code.splitlines())) <= 92
    assert code.startswith("make_pipeline(\n    LCA(")
    assert code.endswith("),\n)")


def test_every_public_estimator_has_code():
    for name in [*vicinal.__all__, *vicinal.companions.__all__]:
        cls = getattr(vicinal, name, None) or getattr(vicinal.companions, name)
        if isinstance(cls, type) and issubclass(cls, BaseEstimator):
            found, code = run(cls())
            assert type(found) is cls
            assert code == f"{name}()"
