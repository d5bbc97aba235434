"""The closed set of classes that a model file can hold, and what a parameter may hold.

Classes are looked up in `_CLASSES` and among the public names of vicinal, never by an arbitrary name in a file.
"""

import re
import sys
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from sklearn.base import BaseEstimator

import vicinal

# The records that fitted estimators hold, the companions, and the estimators of scikit-learn that people put before or into ours: where
# the classes are now, by their names in files. All but plain records of options have a declaration in `states`.
_CLASSES = {
    "Adam": "vicinal._nca.options.Adam",
    "Background": "vicinal._mixtures.Background",
    "BinnedTargetMetric": "vicinal.companions.BinnedTargetMetric",
    "Categories": "vicinal._categories.Categories",
    "Category": "vicinal._categories.Category",
    "ChunkletReport": "vicinal._supervision.ChunkletReport",
    "ChunkletScatter": "vicinal._scatter.ChunkletScatter",
    "ConstrainedGaussianMixture": "vicinal.companions.ConstrainedGaussianMixture",
    "ConstrainedKMeans": "vicinal.companions.ConstrainedKMeans",
    "Engine": "vicinal._engine.Engine",
    "FrameMixture": "vicinal._mixtures.FrameMixture",
    "LCA.penalty": "vicinal._lca.penalty.Form",
    "MMC": "vicinal.companions.MMC",
    "MixedMixture": "vicinal._mixtures.MixedMixture",
    "Objective": "vicinal._nca.options.Objective",
    "OnlineRCA.state": "vicinal._rca.online_rca._State",
    "QueryMap": "vicinal.retrieval.QueryMap",
    "RowsLeftOut": "vicinal._density.mixture_density.RowsLeftOut",
    "Selection": "vicinal._search.Selection",
    "SharedMixture": "vicinal._mixtures.SharedMixture",
    "Shrinkage": "vicinal._lca.penalty.Shrinkage",
    "StochasticEM": "vicinal._lca.stochastic.StochasticEM",
    "StochasticGradient": "vicinal._nca.options.StochasticGradient",
    "sklearn.GaussianMixture": "sklearn.mixture.GaussianMixture",
    "sklearn.KMeans": "sklearn.cluster.KMeans",
    "sklearn.MaxAbsScaler": "sklearn.preprocessing.MaxAbsScaler",
    "sklearn.MinMaxScaler": "sklearn.preprocessing.MinMaxScaler",
    "sklearn.Normalizer": "sklearn.preprocessing.Normalizer",
    "sklearn.PCA": "sklearn.decomposition.PCA",
    "sklearn.Pipeline": "sklearn.pipeline.Pipeline",
    "sklearn.RobustScaler": "sklearn.preprocessing.RobustScaler",
    "sklearn.StandardScaler": "sklearn.preprocessing.StandardScaler",
}
# A bound far above the cores of the machines that vicinal is used on.
MOST_THREADS = 4096
# A string in a parameter is the name of a choice, or a size such as "512 MB": never a path, a module or a program.
_CHOICE = re.compile(r"[\w+-]{1,40}|[0-9.]{1,20} ?[A-Za-z]{0,3}")
# The devices that vicinal's torch code is meant for; further kinds belong to backends that other packages register.
_DEVICE = re.compile(r"(?:cpu|cuda|mps|xpu)(?::[0-9]{1,3})?")


class Fault(NamedTuple):
    """A value that a class may not hold."""

    name: str
    expected: str
    got: str


def find_class(name: Any) -> Any:
    """Return the class of the closed set that has this name in a file, or None."""
    if not isinstance(name, str):
        return None
    try:
        if name in _CLASSES:
            module, _, attribute = _CLASSES[name].rpartition(".")
            return getattr(import_module(module), attribute)
        public = getattr(vicinal, name) if name in vicinal._HOME else None
    except ImportError as error:
        raise ValueError(f"{name} needs a package that is not installed: {error}.") from error
    return public if isinstance(public, type) and issubclass(public, BaseEstimator) else None


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


def fields_of(cls: Any) -> tuple[str, ...]:
    """Return the fields of a dataclass or a named tuple; none for other classes."""
    return tuple(part.name for part in fields(cls)) if is_dataclass(cls) else getattr(cls, "_fields", ())


def is_network(value: object) -> bool:
    """Return whether a value is a torch module, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def expected_parameter(name: str, value: Any, *, of_record: bool = False) -> str | None:
    """Return what a parameter of an estimator, or a field of a record, should hold if a file may not hold its value, else None.

    No value names a path, a cache or a function. Whether a value makes sense is checked by the next fit, as always.
    """
    if name == "callback" or (name == "memory" and not of_record):
        return None if value is None else "None"
    if name == "device":
        fits = value is None or (isinstance(value, str) and _DEVICE.fullmatch(value))
        return None if fits else "None or a device such as 'cpu', 'cuda' or 'cuda:1'"
    if name == "threads" and isinstance(value, int) and value > MOST_THREADS:
        return f"at most {MOST_THREADS}"
    if isinstance(value, str) and not _CHOICE.fullmatch(value):
        return "the name of a choice"
    return "a value that is not a network" if is_network(value) and name != "network" else None
