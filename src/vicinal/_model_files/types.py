"""The closed set of classes and dtypes that a model file can hold, and the conversion of arrays to plain numbers.

Classes are looked up in `_CLASSES` and among the public names of vicinal, never by an arbitrary name in a
file.
"""

import inspect
import re
from collections.abc import Collection
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

import vicinal

# The names in files of the records that fitted estimators hold and of the estimators of scikit-learn that people put
# before or into ours, and where the classes are now. Each has a declaration in `states` or `sklearn_states`, and keeps
# nothing but values of the types that `Writer.value` lists.
_CLASSES = {
    "Adam": "vicinal._nca.options.Adam",
    "BinnedTargetMetric": "vicinal.companions.BinnedTargetMetric",
    "ChunkletReport": "vicinal._supervision.ChunkletReport",
    "ChunkletScatter": "vicinal._scatter.ChunkletScatter",
    "ConstrainedGaussianMixture": "vicinal.companions.ConstrainedGaussianMixture",
    "ConstrainedKMeans": "vicinal.companions.ConstrainedKMeans",
    "Engine": "vicinal._engine.Engine",
    "FrameMixture": "vicinal._mixtures.FrameMixture",
    "MMC": "vicinal.companions.MMC",
    "LocalFrameMixture": "vicinal._mixtures.LocalFrameMixture",
    "LCA.penalty": "vicinal._lca.penalty.Form",
    "Objective": "vicinal._nca.options.Objective",
    "OnlineRCA.state": "vicinal._rca.online_rca._State",
    "RowsLeftOut": "vicinal._density.mixture_density.RowsLeftOut",
    "Selection": "vicinal._search.Selection",
    "SharedMixture": "vicinal._mixtures.SharedMixture",
    "Shrinkage": "vicinal._lca.penalty.Shrinkage",
    "StochasticEM": "vicinal._lca.stochastic.StochasticEM",
    "StochasticGradient": "vicinal._nca.options.StochasticGradient",
    "sklearn.BayesianGaussianMixture": "sklearn.mixture.BayesianGaussianMixture",
    "sklearn.GaussianMixture": "sklearn.mixture.GaussianMixture",
    "sklearn.KFold": "sklearn.model_selection.KFold",
    "sklearn.KMeans": "sklearn.cluster.KMeans",
    "sklearn.LabelEncoder": "sklearn.preprocessing.LabelEncoder",
    "sklearn.LinearDiscriminantAnalysis": "sklearn.discriminant_analysis.LinearDiscriminantAnalysis",
    "sklearn.MaxAbsScaler": "sklearn.preprocessing.MaxAbsScaler",
    "sklearn.MinMaxScaler": "sklearn.preprocessing.MinMaxScaler",
    "sklearn.Normalizer": "sklearn.preprocessing.Normalizer",
    "sklearn.PCA": "sklearn.decomposition.PCA",
    "sklearn.Pipeline": "sklearn.pipeline.Pipeline",
    "sklearn.RobustScaler": "sklearn.preprocessing.RobustScaler",
    "sklearn.StandardScaler": "sklearn.preprocessing.StandardScaler",
    "sklearn.StratifiedKFold": "sklearn.model_selection.StratifiedKFold",
    "sklearn.VarianceThreshold": "sklearn.feature_selection.VarianceThreshold",
}
MAX_DEPTH = 25
MOST_EQUAL_HASHES = 8  # among the keys of a dict, because each further one is compared with all of them

_PLAIN_KINDS = "biuf"  # dtypes that a file holds as they are
_DTYPE = re.compile(r"[<>|](?:b1|[iu][1248]|f[248]|[US][0-9]{1,8}|[Mm]8(?:\[[0-9a-zA-Z]{1,12}\])?)")


def find_class(name: Any) -> Any:
    """Return the class of the closed set that has this name in a file, or None."""
    if not isinstance(name, str):
        return None
    try:
        if name in _CLASSES:
            module, _, attribute = _CLASSES[name].rpartition(".")
            return getattr(import_module(module), attribute)
        found = getattr(vicinal, name) if name in vicinal._HOME else None
    except ImportError as error:
        raise ValueError(f"{name} needs a package that is not installed: {error}.") from error
    return found if isinstance(found, type) and issubclass(found, BaseEstimator) else None


def name_of_class(cls: type) -> str | None:
    """Return the name of a class of the closed set in a file, or None for other classes."""
    return _name_of_class(cls)


@cache
def _name_of_class(cls: type) -> str | None:
    listed = [name for name, path in _CLASSES.items() if path.endswith(f".{cls.__name__}")]
    return next((name for name in (*listed, cls.__name__) if find_class(name) is cls), None)


def foreign_estimators() -> str:
    """Return the estimators of scikit-learn that a file can hold, as text."""
    return ", ".join(name for name in _CLASSES if name.startswith("sklearn."))


def parameters_of(cls: type) -> tuple[str, ...]:
    """Return the names of an estimator's constructor parameters."""
    return _parameters_of(cls)


@cache
def _parameters_of(cls: Any) -> tuple[str, ...]:
    return tuple(cls._get_param_names())


@cache
def _defaults(cls: type) -> dict[str, Any]:
    signature = inspect.signature(cls).parameters
    listed = [signature[name] for name in parameters_of(cls)]
    return {part.name: part.default for part in listed if part.default is not inspect.Parameter.empty}


def default_parameters(cls: type, given: Collection[str]) -> dict[str, Any]:
    """Return the defaults of the parameters that are not given, because files of an older vicinal do not have them."""
    return {name: default for name, default in _defaults(cls).items() if name not in given}


def fields_of(cls: type) -> tuple[str, ...]:
    """Return the fields of a dataclass or a named tuple; none for other classes."""
    return tuple(field.name for field in fields(cls)) if is_dataclass(cls) else getattr(cls, "_fields", ())


def can_hold(dtype: np.dtype) -> bool:
    """Return whether a file can hold arrays and numbers of this dtype."""
    return _DTYPE.fullmatch(dtype.str) is not None and dtype.fields is None and dtype.subdtype is None


def read_dtype(name: Any) -> np.dtype:
    """Return the dtype of a name; raise a ValueError for names outside the closed set."""
    if not isinstance(name, str) or not _DTYPE.fullmatch(name):
        raise ValueError(f"it holds numbers of the unknown dtype {name!r}.")
    try:
        return np.dtype(name)
    except TypeError as error:
        raise ValueError(f"it holds numbers of the unknown dtype {name!r}.") from error


def is_plain(dtype: np.dtype) -> bool:
    """Return whether this is one of the file's own dtypes."""
    return dtype.kind in _PLAIN_KINDS and dtype == dtype.newbyteorder("<")


def as_plain(array: np.ndarray) -> np.ndarray:
    """Return the array in C order and in a dtype of the file, with one more axis if its own dtype needs it.

    Strings become code points, times integers.
    """
    array = np.asarray(array, order="C").astype(array.dtype.newbyteorder("<"), copy=False)
    kind = array.dtype.kind
    if kind in _PLAIN_KINDS:
        return array
    if kind in "mM":
        return array.view("<i8")
    part = {"U": "<u4", "S": "|u1"}[kind]
    return array.reshape(*array.shape, 1).view(part)


def from_plain(plain: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Undo `as_plain` except for the byte order; raise a ValueError if the numbers cannot be of this dtype."""
    little = dtype.newbyteorder("<")
    if not 0 < little.itemsize < 2**24:
        raise ValueError(f"it holds an array of dtype {dtype}.")
    pattern = as_plain(np.empty(0, dtype=little))  # without entries, but for the axis of one entry
    inner = pattern.shape[1:]
    shape = plain.shape[: plain.ndim - len(inner)]
    if plain.ndim < len(inner) or plain.dtype != pattern.dtype or plain.shape != shape + inner:
        raise ValueError(f"it holds an array of dtype {dtype} as {plain.dtype} of shape {plain.shape}.")
    if dtype.kind == "U":
        check_text(plain)
    return plain.view(little).reshape(shape)


def check_text(code_points: np.ndarray) -> None:
    """Raise an error for numbers that are not characters."""
    if code_points.size and code_points.max() > 0x10FFFF:
        raise ValueError("it holds a string with code points that are not characters.")
