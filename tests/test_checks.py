"""What all fits have in common: validation of rows and parameters, and a refit that leaves nothing behind."""

import inspect
import warnings

import numpy as np
import pandas as pd
import pytest
from needs import needs
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import validation

import vicinal
import vicinal.companions
from vicinal import (
    LCA,
    NCA,
    RCA,
    AnchorNCA,
    DensityClassifier,
    DensityImputer,
    DensityOutlierDetector,
    ManifoldParzen,
    Objective,
    ParzenWindows,
    StochasticGradient,
)


def fitted_attributes(estimator):
    return {name for name in vars(estimator) if name.endswith("_")}


def test_refit_with_other_parameters_leaves_nothing_of_the_earlier_fit():
    rng, y = np.random.default_rng(0), np.arange(60) % 3
    X = rng.normal(size=(60, 3)) + y[:, None]
    cases = [
        (RCA(shrinkage="cv"), {"shrinkage": "auto"}),
        (NCA(max_iter=2, structure="diag"), {"structure": "full"}),
        (NCA(max_iter=2, solver=StochasticGradient(), random_state=0), {"solver": "lbfgs"}),
        (NCA(max_iter=2, objective=Objective(match="gaussian")), {"objective": "accuracy"}),
        (ManifoldParzen(1, n_neighbors=5), {"noise": 0.1}),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for estimator, changed in cases:
            first = fitted_attributes(estimator.fit(X, y))
            refitted = estimator.set_params(**changed).fit(X, y)
            assert first != fitted_attributes(refitted)
            assert fitted_attributes(refitted) == fitted_attributes(clone(refitted).fit(X, y)), refitted
        stream = LCA(reg=0.1).partial_fit(X)
        assert fitted_attributes(stream.fit(X)) == fitted_attributes(LCA(reg=0.1).fit(X))


BAD_TABLES = {
    "got dict. Pass pandas.DataFrame": lambda X: dict(enumerate(X.T)),
    r"got generator. Pass list\(X\)": lambda X: (row for row in X),
    "rows of 1 to 2 values. Fill missing values": lambda X: [[1.0, 2.0], [3.0]],
    "different names, got a more than once. Rename them": lambda X: pd.DataFrame(X, columns=["a", "a", "b"]),
    "got an entry of type 'object'": lambda X: [[object(), 1.0]] * len(X),
    "a data frame or a list of rows, got NoneType": lambda X: None,
}


def test_what_is_no_table_is_explained_by_every_estimator():
    """scikit-learn's, NumPy's and narwhals' own errors name neither the argument nor a remedy."""
    X, y = np.random.default_rng(0).normal(size=(30, 3)), np.arange(30) % 3
    for estimator in (LCA(), ManifoldParzen(), ParzenWindows(), RCA(), NCA(), AnchorNCA(), DensityOutlierDetector()):
        for message, table in BAD_TABLES.items():
            with pytest.raises((TypeError, ValueError), match=message):
                estimator.fit(table(X), y)


def test_tensor_that_requires_grad_is_a_table():
    torch = needs("torch")
    X = np.random.default_rng(0).normal(size=(30, 3))
    fits = [ParzenWindows().fit(rows) for rows in (X, torch.tensor(X, requires_grad=True))]
    np.testing.assert_array_equal(fits[0].covariance_, fits[1].covariance_)


def test_density_of_an_imputer_that_is_no_density_is_named():
    with pytest.raises(TypeError, match=r"density must be LCA, LCAGauss or ParzenWindows.*got str"):
        DensityImputer("nonsense").fit(np.zeros((5, 2)))


BAD_VALUES = {"text": "nonsense", "-1": -1, "list": [], "dict": {}, "object": object(), "nan": np.nan, "huge": 10**400}
# Values that mean something, or that are not looked at unless another parameter has a certain value.
ALLOWED = {
    ("Dequantizer", "log"): {"list", "dict"},
    ("TableEncoder", "log"): {"list", "dict"},
    ("TableEncoder", "types"): {"dict"},
    ("LCA", "categorical_features"): {"list"},
    ("ParzenWindows", "categorical_features"): {"list"},
    ("ManifoldParzen", "bandwidth"): set(BAD_VALUES),
    ("DensityOutlierDetector", "cv"): set(BAD_VALUES),
}
ESTIMATORS = {
    name: getattr(module, name)
    for module in (vicinal, vicinal.companions)
    for name in module.__all__
    if isinstance(getattr(module, name), type) and issubclass(getattr(module, name), BaseEstimator)
}
RAW = ("not supported between", "unsupported operand", "has no attribute", "not iterable", "to seed", "Seed must be")


@pytest.mark.parametrize("name", ESTIMATORS)
def test_wrongly_typed_parameter_is_named_by_every_estimator(name):
    if name == "NeuralNCA":
        needs("torch")
    X, y = np.random.default_rng(0).normal(size=(30, 3)), np.arange(30) % 3
    parameters = inspect.signature(ESTIMATORS[name]).parameters
    usual = {key: value for key, value in {"max_iter": 2, "n_clusters": 3}.items() if key in parameters}
    faults = []
    for parameter in parameters:
        for label, value in BAD_VALUES.items():
            if label in ALLOWED.get((name, parameter), ()):
                continue
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    ESTIMATORS[name](**{**usual, parameter: value}).fit(X, None if name == "ConstrainedKMeans" else y)
                faults.append((parameter, label, "accepted"))
            except (TypeError, ValueError) as error:
                if parameter not in str(error) or any(words in str(error) for words in RAW):
                    faults.append((parameter, label, str(error)[:100]))
            except Exception as error:
                faults.append((parameter, label, repr(error)[:100]))
    assert faults == []


def warnings_of(fit):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit()
    return [str(warning.message) for warning in caught]


def test_classes_with_the_same_warning_give_it_once():
    X, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 3
    X[:, 2] = X[:, 0] + X[:, 1]
    for density in (LCA(max_iter=1), ManifoldParzen()):
        messages = warnings_of(lambda density=density: DensityClassifier(density).fit(X, y))
        assert len(messages) == 1
        assert "for 3 classes" in messages[0]


def test_stream_with_a_constant_column_warns_once():
    X, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 3
    X[:, 2] = 1.0
    rca = RCA()
    messages = warnings_of(lambda: [rca.partial_fit(X[k : k + 10], y[k : k + 10]) for k in range(0, 60, 10)])
    assert messages == ["2 of 3 directions are kept: 1 column is constant (2). Drop it to silence this warning."]
    assert len(warnings_of(lambda: rca.fit(X, y))) == len(warnings_of(lambda: rca.fit(X, y))) == 1


def test_comparison_of_metrics_on_equal_rows_says_that_rows_are_equal():
    comparison = vicinal.compare(np.ones((60, 4)), np.arange(60) % 3)
    assert "the training rows of a fold are all equal" in str(comparison)


def test_rows_of_a_detector_are_validated_once(monkeypatch):
    """The density, its refits in folds and the scores of held-out rows take the rows that the detector has validated."""
    calls, check = [], validation.check_array
    monkeypatch.setattr(
        validation, "check_array", lambda *args, **options: (calls.append(1), check(*args, **options))[1]
    )
    DensityOutlierDetector(LCA(reg=0.1)).fit(np.random.default_rng(0).normal(size=(60, 3)))
    assert len(calls) == 1
    LCA(reg=0.1).fit(np.random.default_rng(0).normal(size=(60, 3)))
    assert len(calls) == 2


def test_rows_that_a_detector_hands_on_are_still_refused_if_their_squares_overflow():
    X = 1e160 * np.random.default_rng(0).normal(size=(60, 3))
    with pytest.raises(ValueError, match="X holds values of magnitude"):
        DensityOutlierDetector(LCA(reg=0.1)).fit(X)
