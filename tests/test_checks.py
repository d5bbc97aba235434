"""What all fits have in common: validation of rows and parameters, and a refit that leaves nothing behind."""

import warnings

import numpy as np
import pandas as pd
import pytest
from needs import needs
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from vicinal import (
    LCA,
    NCA,
    RCA,
    AnchorNCA,
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
