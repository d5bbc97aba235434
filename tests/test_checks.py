"""What all fits have in common: validation of rows and parameters, and a refit that leaves nothing behind."""

import warnings

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from vicinal import LCA, NCA, RCA, ManifoldParzen, Objective, StochasticGradient


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
