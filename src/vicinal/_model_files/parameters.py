"""The permitted values of the parameters of each class in a model file.

When a loaded estimator is fitted again, its parameters determine what it does, and a file may come from anyone. A parameter
may therefore hold only the values that are declared here; a parameter that is not declared may hold none. The
declarations have the form that scikit-learn uses: `_OWN` and `_SHARED` for the classes of vicinal, and for those
of scikit-learn the class's ``_parameter_constraints``, of which only numbers, arrays of numbers, flags, seeds and named
choices are kept. Paths, caches (``memory``) and functions (``callback``, ``init`` as a function) are therefore rejected in
every class, including classes that are added to the closed set later.
"""

import re
from collections.abc import Callable
from functools import cache
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Hidden, Interval, Options, make_constraint

from vicinal._model_files.fields import Fault, Kind, one_of, record, shown
from vicinal._model_files.networks import is_network
from vicinal._model_files.types import find_class, parameters_of

# The devices that vicinal's torch code is meant for; further kinds belong to backends that other packages register.
_DEVICE = re.compile(r"(?:cpu|cuda|mps|xpu)(?::[0-9]{1,3})?")


def find_fault(class_name: str, parameters: dict[str, Any]) -> Fault | None:
    """Return the first parameter of an estimator that a model file may not hold, or None.

    Parameters
    ----------
    class_name : str
        The name of the class in a file; it is one of the closed set.
    parameters : dict
        The values by name.
    """
    for name, allowed in _declared(class_name).items():
        if name in parameters and not any(constraint.is_satisfied_by(parameters[name]) for constraint in allowed):
            expected = " or ".join(map(str, allowed)) or "nothing that a file can hold"
            return Fault(name, expected, shown(parameters[name]), any(kind.is_satisfied_by(None) for kind in allowed))
    return None


@cache
def _declared(class_name: str) -> dict[str, list[Any]]:
    """Return the constraints by name for a class of the closed set."""
    cls: Any = find_class(class_name)
    general = getattr(cls, "_parameter_constraints", {}) if class_name.startswith("sklearn.") else _SHARED
    declared = {name: general.get(name, ()) for name in parameters_of(cls)} | _OWN.get(class_name, {})
    return {
        name: [kept for kept in map(_as_constraint, constraints) if kept is not None]
        for name, constraints in declared.items()
    }


def _as_constraint(declared: Any) -> Any:
    """Return a function that checks a value; None for a constraint that would accept more than plain values."""
    constraint = declared.constraint if isinstance(declared, Hidden) else declared
    if isinstance(constraint, str) and constraint == "array-like":
        return NUMBERS  # the array-likes of scikit-learn may hold anything, including estimators
    if isinstance(constraint, Kind):
        return constraint
    plain = constraint in _PLAIN_WORDS if isinstance(constraint, str) else isinstance(constraint, (Interval, Options))
    return make_constraint(constraint) if plain or constraint is None else None


def _is_numbers(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biuf"
    return isinstance(value, (list, tuple)) and all(isinstance(item, Real) or _is_numbers(item) for item in value)


def _is_prior_by_class(value: Any) -> bool:
    labels = (str, Real, np.generic, tuple, type(None))
    return isinstance(value, dict) and all(isinstance(k, labels) and isinstance(v, Real) for k, v in value.items())


def _is_pairs(value: Any, holds: Callable[[Any, Any], bool]) -> bool:
    pairs = isinstance(value, (list, tuple)) and all(isinstance(pair, (list, tuple)) for pair in value)
    return pairs and all(len(pair) == 2 and holds(*pair) for pair in value)


def _is_step(name: Any, step: Any) -> bool:
    plain = step is None or (isinstance(step, str) and step == "passthrough")
    return isinstance(name, str) and (plain or isinstance(step, BaseEstimator))


def _is_texts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)


_PLAIN_WORDS = ("boolean", "random_state", "verbose")
INTEGER = Kind("an integer", lambda value: isinstance(value, Integral))
NUMBER = Kind("a number", lambda value: isinstance(value, Real))
NUMBERS = Kind("an array of numbers", _is_numbers)
_ESTIMATOR = Kind("an estimator", lambda value: isinstance(value, BaseEstimator))
_NETWORK = Kind("a torch.nn.Module", is_network)
SPLITTER = record("sklearn.KFold", "sklearn.StratifiedKFold")
SPLITS = Kind(
    "a list of (train, test) pairs",
    lambda value: _is_pairs(value, lambda train, test: _is_numbers(train) and _is_numbers(test)),
)
_STEPS = Kind("a list of (name, estimator) pairs", lambda value: _is_pairs(value, _is_step))
_TEXTS = Kind("a list of texts", _is_texts)
_PRIORS = Kind("a dict of numbers by class", _is_prior_by_class)
_KINDS_OF_COLUMNS = Kind(
    "a dict of strings by column",
    lambda value: isinstance(value, dict) and all(type(k) is str and type(v) is str for k, v in value.items()),
)
_NAMES = Kind("a list of strings", lambda value: isinstance(value, list) and all(type(name) is str for name in value))
_TWO_NUMBERS = Kind("two numbers", lambda value: _is_numbers(value) and np.shape(value) == (2,))
TORCH_DEVICE = Kind(
    "a device such as 'cpu', 'cuda' or 'cuda:1'",
    lambda value: isinstance(value, str) and _DEVICE.fullmatch(value) is not None,
)
BACKENDS = ("cpu", "dask", "reference", "torch")
ENGINE_KIND = one_of("auto", *BACKENDS)
ENGINE = (None, ENGINE_KIND, record("Engine"))

# The parameters that mean the same in all estimators of vicinal. Ranges are checked by `fit`, which has the data.
_SHARED: dict[str, list] = {
    "bandwidth": [None, NUMBER, NUMBERS],
    "callback": [None],
    "cv": [None, INTEGER, SPLITTER, SPLITS],
    "density": [None, _ESTIMATOR],
    "engine": [*ENGINE],
    "max_iter": [INTEGER],
    "metric": [None, _ESTIMATOR, NUMBERS],
    "n_components": [None, INTEGER],
    "n_init": [INTEGER],
    "n_neighbors": [INTEGER],
    "objective": [one_of("accuracy", "likelihood", "pairs"), record("Objective")],
    "random_state": ["random_state"],
    "reg": [one_of("auto"), NUMBER, NUMBERS, record("Shrinkage")],
    "structure": [one_of("full", "diag")],
    "tol": [NUMBER],
    "verbose": ["verbose"],
    "warm_start": ["boolean"],
}

# The parameters of single classes. For a class of scikit-learn, these replace its own declarations.
_OWN: dict[str, dict[str, list]] = {
    "AnchorNCA": {
        "hard_negatives": [INTEGER],
        "init": [one_of("rca", "identity"), NUMBERS],
        "similarity": [one_of("cosine", "distance")],
        "solver": [one_of("adam"), record("Adam")],
        "temperature": [NUMBER],
    },
    "BinnedTargetMetric": {"n_bins": [INTEGER]},
    "ConstrainedGaussianMixture": {
        "covariance_type": [one_of("full", "tied", "diag", "spherical")],
        "count_by": [one_of("chunklets", "points")],
        "init": [one_of("k-means"), _ESTIMATOR],
        "reg_covar": [NUMBER],
    },
    "ConstrainedKMeans": {
        "center_tol": [NUMBER],
        "init": [one_of("k-means++", "random"), NUMBERS],
        "n_clusters": [INTEGER],
    },
    "DensityClassifier": {"priors": [None, one_of("uniform"), NUMBERS, _PRIORS]},
    "DensityImputer": {"sample": ["boolean"]},
    "DensityOutlierDetector": {
        "contamination": [NUMBER],
        "fdr": [None, NUMBER],
        "largest_group": [None, NUMBER],
    },
    "Dequantizer": {"log": [NUMBERS], "steps": [one_of("auto"), NUMBERS], "training_only": ["boolean"]},
    "LCA": {
        "covariance_type": [one_of("full", "diag", "spherical", "low_rank")],
        "init": [one_of("covariance"), NUMBER, NUMBERS],
        "max_iter": [None, INTEGER],
        "rank": [None, INTEGER],
        "solver": [one_of("auto", "em", "accelerated", "stochastic"), record("StochasticEM")],
        "tol": [None, NUMBER],
    },
    "LCAGauss": {
        "max_iter": [None, INTEGER],
        "reduce": ["boolean"],
        "reg_gauss": [one_of("auto"), NUMBER, NUMBERS],
        "solver": [one_of("auto", "em", "stochastic"), record("StochasticEM")],
        "tol": [None, NUMBER],
    },
    "LocalLCA": {
        "center": [one_of("auto", "row", "mean")],
        "n_components": [one_of("auto"), INTEGER],
        "n_neighbors": [one_of("auto"), INTEGER],
        "noise": [one_of("auto"), NUMBER],
        "selection": [None, record("Selection")],
        "shared": [one_of("auto"), NUMBER],
    },
    "ManifoldParzen": {
        "n_components": [one_of("auto"), INTEGER],
        "n_neighbors": [one_of("auto"), INTEGER],
        "selection": [None, record("Selection")],
        "noise": [one_of("auto"), NUMBER],
        "vicinity": [one_of("nearest", "kernel")],
    },
    "NCA": {
        "init": [one_of("auto", "pca", "lda", "identity", "random"), NUMBERS],
        "solver": [one_of("auto", "lbfgs", "cg", "stochastic"), record("StochasticGradient")],
    },
    "NeuralNCA": {
        "device": [None, TORCH_DEVICE],
        "network": [None, INTEGER, _NETWORK],
        "solver": [one_of("adam"), record("Adam")],
        "standardize": ["boolean"],
    },
    "OnlineRCA": {"step": [one_of("auto"), NUMBER]},
    "PairNCA": {
        "init": [one_of("auto", "pca", "identity", "random"), NUMBERS],
        "solver": [one_of("lbfgs", "cg")],
    },
    "MMC": {"gap_tol": [NUMBER]},
    "ParzenMeanShift": {"merge_distance": [NUMBER], "step_tol": [NUMBER]},
    "ParzenWindows": {"bandwidth": [one_of("loo", "scott", "silverman"), NUMBER, NUMBERS]},
    "TableEncoder": {
        "log": [None, _NAMES],
        "one_hot": ["boolean"],
        "random_state": [INTEGER],
        "types": [None, _KINDS_OF_COLUMNS],
    },
    "RCA": {"alpha": [NUMBER], "shrinkage": [one_of("auto", "cv"), NUMBER], "unbiased": ["boolean"]},
    "sklearn.LinearDiscriminantAnalysis": {"covariance_estimator": [None, _ESTIMATOR]},
    "sklearn.MinMaxScaler": {"feature_range": [_TWO_NUMBERS]},
    "sklearn.Pipeline": {"steps": [_STEPS], "transform_input": [None, _TEXTS]},
    "sklearn.RobustScaler": {"quantile_range": [_TWO_NUMBERS]},
}
