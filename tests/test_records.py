"""Records of options: fields by the names of scikit-learn, in clones, searches, reprs and model files."""

import inspect
import re

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import vicinal
from vicinal import (
    LCA,
    NCA,
    Adam,
    Engine,
    Objective,
    ParzenWindows,
    Shrinkage,
    StochasticEM,
    StochasticGradient,
    io,
)
from vicinal._records import Record

RECORDS = [
    Adam(),
    Engine(),
    Objective(),
    Shrinkage(0.1, 2.0),
    StochasticEM(),
    StochasticGradient(),
]
ESTIMATORS = [
    cls for cls in map(vicinal.__getattr__, vicinal._HOME) if inspect.isclass(cls) and issubclass(cls, BaseEstimator)
]
# What scikit-learn's NeighborhoodComponentsAnalysis has: changing the import line remains the migration.
SCIKIT_LEARN_NCA = {"n_components", "init", "warm_start", "max_iter", "tol", "callback", "verbose", "random_state"}


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_no_constructor_has_more_than_twelve_parameters(cls):
    parameters = inspect.signature(cls).parameters.values()
    # NCA has the eight of scikit-learn's NCA, and its pairs follow it; LCA has the two of scikit-learn's encoders for its categories.
    assert len(parameters) <= (13 if cls in (NCA, vicinal.PairNCA, vicinal.LCA) else 12)
    assert not any(p.kind is p.VAR_KEYWORD for p in parameters)
    assert not any(isinstance(p.default, Record) for p in parameters)


def test_the_parameters_of_scikit_learns_nca_stay():
    assert set(inspect.signature(NCA).parameters) >= SCIKIT_LEARN_NCA


@pytest.mark.parametrize("record", RECORDS, ids=repr)
def test_a_record_is_cloned_and_compared_by_its_fields(record):
    copy = clone(record)
    assert copy is not record
    assert copy == record
    with pytest.raises(TypeError, match="unhashable"):  # it can be changed by set_params
        hash(record)
    assert eval(repr(record), vars(vicinal)) == record
    assert record != "auto"
    name = next(iter(record.get_params()))
    with pytest.raises(AttributeError):
        setattr(record, name, 3)
    with pytest.raises(ValueError, match=rf"{type(record).__name__} has no field 'fild'. Its fields are '{name}'"):
        record.set_params(fild=1)


def test_records_with_arrays_are_compared_by_their_entries():
    scales = [
        Objective(match="gaussian", match_scale=np.array(scale)) for scale in ([1.0, 2.0], [1.0, 2.0], [1.0, 3.0])
    ]
    assert scales[0] == scales[1]
    assert scales[0] != scales[2]


def test_a_refused_value_changes_nothing():
    record = StochasticEM(batch_size=50)
    with pytest.raises(ValueError, match="discount must be less than 1"):
        record.set_params(batch_size=70, discount=2.0)
    assert record == StochasticEM(batch_size=50)


def test_fields_are_parameters_of_the_estimator():
    lca = LCA(solver=StochasticEM(), engine=Engine(threads=1), reg=0.0)
    assert lca.get_params()["solver__batch_size"] == 100
    copy = clone(lca).set_params(solver__batch_size=20, engine__memory="64 MB")
    assert (copy.solver.batch_size, copy.engine.memory) == (20, "64 MB")
    assert (lca.solver.batch_size, lca.engine.memory) == (100, None)
    assert "StochasticEM(batch_size=20" in repr(copy)
    whole = LCA(reg=0.0).set_params(solver=StochasticEM(), solver__discount=0.9)
    assert whole.solver.discount == 0.9


def test_fields_are_searched_through_a_pipeline():
    X, y = (array[::3] for array in load_iris(return_X_y=True))
    pipeline = make_pipeline(StandardScaler(), NCA(2, objective=Objective(), max_iter=5, random_state=0))
    pipeline = make_pipeline(pipeline, vicinal.SoftNeighborsClassifier())
    grid = {"pipeline__nca__objective__penalty": [0.0, 0.1], "pipeline__nca__objective__kind": ["likelihood"]}
    with pytest.warns(UserWarning, match="NCA"):
        search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(X, y)
    assert search.best_estimator_[0][1].objective.kind == "likelihood"


@pytest.mark.parametrize(
    ("estimator", "key", "remedy"),
    [
        (LCA(solver="stochastic", reg=0.0), "solver__batch_size", "solver=StochasticEM(batch_size=...)"),
        (NCA(), "objective__penalty", "objective=Objective(penalty=...)"),
        (NCA(), "solver__batch_size", "solver=StochasticGradient(batch_size=...)"),
        (vicinal.NeuralNCA(), "solver__learning_rate", "solver=Adam(learning_rate=...)"),
        (ParzenWindows(engine="cpu"), "engine__threads", "engine=Engine(threads=...)"),
    ],
)
def test_a_field_of_a_string_is_an_error_that_names_the_record(estimator, key, remedy):
    with pytest.raises(ValueError, match=re.escape(remedy)):
        estimator.set_params(**{key: 1})


def test_records_come_back_from_model_files(tmp_path):
    X, y = load_iris(return_X_y=True)
    nca = NCA(2, objective=Objective(penalty=0.1), solver=StochasticGradient(batch_size=40), n_init=2)
    nca.set_params(max_iter=100, random_state=0).fit(X, y)
    io.save(nca, tmp_path / "nca.vicinal")
    same = io.load(tmp_path / "nca.vicinal")
    assert same.get_params(deep=False) == nca.get_params(deep=False)


def test_old_names_are_gone():
    with pytest.raises(TypeError, match="unexpected keyword argument 'neighborhood'"):
        LCA(neighborhood=3, reg=0.0)


def test_a_field_is_set_in_one_estimator_alone():
    """Two estimators that were given one record shared it: setting a field of one changed the other."""
    engine = Engine(threads=1)
    one, other = LCA(engine=engine), ParzenWindows(engine=engine)
    one.set_params(engine__threads=4, engine__error=1e-6)
    assert (one.engine.threads, one.engine.error) == (4, 1e-6)
    assert other.engine is engine
    assert engine.threads == 1
    # Fields that are valid together are set together, in any order.
    one.set_params(engine__device="cpu", engine__kind="torch")
    assert one.engine == Engine("torch", threads=4, error=1e-6, device="cpu")
    with pytest.raises(ValueError, match="engine=None is not a record"):
        LCA().set_params(engine__threads=4)
