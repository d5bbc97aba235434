"""Conversion of an estimator to a tree of JSON values and a table of arrays.

``None``, booleans, integers, strings, finite floats and lists are written directly; everything else is an
object whose ``"is"`` names its type. Arrays are stored in the table by name, and the tree refers to each of them once.
"""

import math
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from vicinal._metric import LinearMetricMixin
from vicinal._model_files.fields import Fault
from vicinal._model_files.networks import is_network, layers_of
from vicinal._model_files.parameters import find_fault
from vicinal._model_files.states import state_of
from vicinal._model_files.types import (
    MAX_DEPTH,
    as_plain,
    can_hold,
    fields_of,
    find_class,
    foreign_estimators,
    is_plain,
    name_of_class,
    parameters_of,
)
from vicinal._row_sources import in_file

_SET = "Set it to such a value first."
_FIT = "A fit did not finish, or an attribute was changed after it. Fit again before saving."


class Writer:
    """Turns values into a tree and collects their arrays, named by the place of each."""

    def __init__(self, *, training_rows: bool = True) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self.callbacks: list[str] = []  # the functions that are left out, as text
        self._training_rows = training_rows

    def estimator(self, estimator: BaseEstimator, place: tuple[str, ...] = ()) -> dict[str, Any]:
        """Return the tree of an estimator."""
        cls = type(estimator)
        name = name_of_class(cls)
        if name is None:
            raise TypeError(
                f"{_where(place)} is a {cls.__module__}.{cls.__qualname__}, which a model file cannot hold. "
                f"It holds the estimators of vicinal itself and {foreign_estimators()}. Use joblib or skops "
                "for subclasses and other estimators."
            )
        kept = dict(vars(estimator)) if self._training_rows else _without_rows(estimator)
        parameters = {key: kept.pop(key) for key in list(kept) if key in parameters_of(cls)}
        if callable(parameters.get("callback")):  # code, which a file never contains; only a further fit would call it
            self.callbacks.append(f"{_where((*place, 'callback'))} ({_name_of_function(parameters['callback'])})")
            parameters["callback"] = None
        attributes = _by_field(name, kept, place)
        tree = {
            "is": "estimator",
            "class": name,
            "parameters": {key: self.value(value, (*place, key)) for key, value in parameters.items()},
            "attributes": {key: self.value(value, (*place, key)) for key, value in attributes.items()},
        }
        _refuse(find_fault(name, parameters), place, _SET)
        _refuse(state_of(name).fault(attributes), place, _FIT)
        return tree

    def value(self, value: Any, place: tuple[str, ...]) -> Any:
        """Return the tree of a value; `place` is its position, for messages and for the names of arrays."""
        kind = type(value)
        if len(place) > MAX_DEPTH:
            raise TypeError(f"{_where(place[:1])} is nested too deeply to be saved, or holds itself.")
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"is": "float", "bits": np.float64(value).tobytes().hex()}
        if kind in (list, tuple):
            items = [self.value(item, (*place, str(i))) for i, item in enumerate(value)]
            return items if kind is list else {"is": "tuple", "items": items}
        if kind is dict:
            pairs = [
                [self.value(key, (*place, str(i), "key")), self.value(item, (*place, str(i)))]
                for i, (key, item) in enumerate(value.items())
            ]
            return {"is": "dict", "items": pairs}
        if isinstance(value, np.generic) and can_hold(value.dtype):
            raw = value.tobytes()[: value.dtype.itemsize]  # NumPy represents an empty string by four bytes
            return {"is": "scalar", "dtype": value.dtype.str, "bits": raw.hex()}
        if kind in (np.ndarray, np.memmap):
            return self._array(value, place)
        if kind is np.random.RandomState:
            return self._random_state(value, place)
        if _holds_rows(value) and in_file(getattr(value, "centres", None)):
            raise TypeError(
                f"the components of {_where(place)} are in a file of rows, and a model file never holds a reference. "
                "Call gather() on the density to copy its training rows into memory, or save a metric with training_rows=False."
            )
        if isinstance(value, BaseEstimator):
            return self.estimator(value, place)
        if is_network(value):
            return self._network(value, place)
        if name_of_class(kind) is not None:
            return self._record(value, place)
        raise _cannot_save(value, place)

    def _array(self, array: np.ndarray, place: tuple[str, ...]) -> dict[str, Any]:
        if array.dtype == object:
            items = [self.value(item, (*place, str(i))) for i, item in enumerate(array.ravel())]
            return {"is": "objects", "shape": list(array.shape), "items": items}
        if not can_hold(array.dtype) or array.dtype.itemsize == 0:
            raise TypeError(f"{_where(place)} has the dtype {array.dtype}, which a model file cannot hold.")
        name = ".".join(place)
        tree = {"is": "array", "name": name}
        if not is_plain(array.dtype):
            tree["dtype"] = array.dtype.str
        self.arrays[name] = as_plain(array)
        return tree

    def _random_state(self, state: np.random.RandomState, place: tuple[str, ...]) -> dict[str, Any]:
        values = state.get_state(legacy=False)
        if values["bit_generator"] != "MT19937":
            raise _cannot_save(state, place)
        return {
            "is": "random_state",
            "key": self._array(values["state"]["key"], (*place, "key")),
            "position": int(values["state"]["pos"]),
            "has_gauss": int(values["has_gauss"]),
            "gauss": self.value(float(values["gauss"]), place),
        }

    def _network(self, network: Any, place: tuple[str, ...]) -> dict[str, Any]:
        layers = layers_of(network)
        if layers is None:
            raise _cannot_save(network, place)
        trees = [
            {"layer": name, "arrays": {key: self._array(array, (*place, str(i), key)) for key, array in arrays.items()}}
            for i, (name, arrays) in enumerate(layers)
        ]
        return {
            "is": "network",
            "layers": trees,
            "chain": type(network).__name__ == "Sequential",
            "training": bool(network.training),
            "trainable": any(part.requires_grad for part in network.parameters()),
        }

    def _record(self, record: Any, place: tuple[str, ...]) -> dict[str, Any]:
        class_name, names = name_of_class(type(record)), fields_of(type(record))
        assert class_name is not None  # only instances of the closed set are passed here
        kept = {name: getattr(record, name) for name in names} if names else dict(vars(record))
        for name in state_of(class_name).derived:
            del kept[name]
        values = _by_field(class_name, kept, place)
        trees = {name: self.value(value, (*place, name)) for name, value in values.items()}
        _refuse(state_of(class_name).fault(values), place, _SET if names else _FIT)
        return {"is": "record", "class": class_name, "fields": trees}


def _by_field(class_name: str, kept: dict[str, Any], place: tuple[str, ...]) -> dict[str, Any]:
    """Return the state of an object, by the names in a file; all of it must be declared."""
    names = state_of(class_name).names
    for attribute in kept:
        if attribute not in names:
            owner = _expression(place)
            raise TypeError(
                f"{_where((*place, attribute))} is not a declared attribute of {class_name}, so a model file cannot hold "
                f"it. Keep it elsewhere and delete it first: del {owner}.{attribute}."
            )
    return {names[attribute]: value for attribute, value in kept.items()}


def _refuse(fault: Fault | None, place: tuple[str, ...], remedy: str) -> None:
    """Raise an error for values that could not be read again."""
    if fault is not None:
        where = (*place, fault.name)
        raise TypeError(
            f"{_where(where)} is {fault.got}, which a model file cannot hold; expected {fault.expected}. "
            f"{_set_to_none(where) if fault.may_be_none and remedy is _SET else remedy}"
        )


def _without_rows(estimator: BaseEstimator) -> dict[str, Any]:
    """Return the state of a metric without the density of its training rows."""
    if isinstance(estimator, LinearMetricMixin):
        stub = find_class("RowsLeftOut")(type(estimator).__name__)
        kept = {name: value for name, value in vars(estimator).items() if name not in ("_incomplete_rows", "rows_")}
        return {name: stub if _holds_rows(value) else value for name, value in kept.items()}
    if type(estimator).__module__.startswith("sklearn."):
        return dict(vars(estimator))
    raise ValueError(
        f"training_rows=False is for metrics, and {type(estimator).__name__} is not one: it needs its "
        "training rows. Save it with training_rows=True."
    )


def _holds_rows(value: Any) -> bool:
    return name_of_class(type(value)) in ("FrameMixture", "LocalFrameMixture", "SharedMixture")


def _name_of_function(function: Any) -> str:
    return getattr(function, "__qualname__", type(function).__name__)


def _cannot_save(value: Any, place: tuple[str, ...]) -> TypeError:
    kind = type(value)
    what = f"holds a {kind.__module__}.{kind.__qualname__}"
    remedy = "It can hold numbers, strings, arrays, lists, tuples, dicts and estimators of vicinal."
    if is_network(value):
        what = "holds a network of layers of your own"
        remedy = (
            "It can hold torch.nn.Linear and plain activations, alone or in a torch.nn.Sequential; save the state_dict() of "
            "other networks with torch."
        )
    elif callable(value) and not isinstance(value, type):
        what = f"holds a function, {_name_of_function(value)}"
        remedy = _set_to_none(place)
    elif hasattr(value, "cache"):  # the memory of a pipeline may be a cache or a path
        what = f"holds a cache, {kind.__module__}.{kind.__qualname__}"
        remedy = _set_to_none(place)
    elif isinstance(value, (np.random.Generator, np.random.RandomState)):
        remedy = "Use an integer or numpy.random.RandomState(seed) instead."
    return TypeError(f"{_where(place)} {what}, which a model file cannot hold. {remedy}")


def _set_to_none(place: tuple[str, ...]) -> str:
    """Return the remedy for a parameter that must be None in a file, as a call on the estimator that has it."""
    return f"Set it to None first: {_expression(place[:-1])}.set_params({place[-1]}=None)."


def _expression(place: tuple[str, ...]) -> str:
    """Return the object at a place, as Python."""
    return "estimator" + "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in place)


def _where(place: tuple[str, ...]) -> str:
    return ".".join(place) or "the estimator"
