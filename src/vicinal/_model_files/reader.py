"""Conversion of a tree of JSON values and a table of arrays to an estimator.

The tree is not trusted: anything that does not follow the rules of `_model_files/writer`, or the declaration of its
class in `_model_files/states`, raises a ValueError. The state of an estimator is checked as a whole and then written into its
``__dict__``: no constructor, property or ``__setstate__`` of an estimator runs.
"""

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Set
from typing import Any

import numpy as np
import sklearn
from sklearn.base import BaseEstimator
from sklearn.exceptions import InconsistentVersionWarning

from vicinal._callers import callers_line
from vicinal._model_files.fields import Fault, shown
from vicinal._model_files.model_file import check_shape
from vicinal._model_files.networks import network_of
from vicinal._model_files.parameters import find_fault
from vicinal._model_files.states import state_of
from vicinal._model_files.types import (
    MAX_DEPTH,
    MOST_EQUAL_HASHES,
    check_text,
    default_parameters,
    fields_of,
    find_class,
    from_plain,
    parameters_of,
    read_dtype,
)
from vicinal._words import on_one_line


class Reader:
    """Turns trees into values.

    Parameters
    ----------
    arrays : dict
        The table of the file. A tree may refer to each of them once.
    """

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self._arrays = dict(arrays)
        self._class_names: set[str] = set()

    def estimator(self, tree: Any, depth: int = 0) -> BaseEstimator:
        """Return the estimator of a tree."""
        _expect(tree, "estimator", {"class", "parameters", "attributes"})
        cls = find_class(tree["class"])
        if cls is None or not issubclass(cls, BaseEstimator):
            raise ValueError(f"it holds an estimator of the unknown class {shown(tree['class'])}. {_NEWER}")
        self._class_names.add(tree["class"])
        attributes = self._fields(tree["class"], tree["attributes"], depth, "attribute")
        parameters = {}
        for name, value in _named(tree["parameters"]):
            if name not in parameters_of(cls):
                raise ValueError(f"{tree['class']} has no parameter {shown(name)} here. {_NEWER}")
            parameters[name] = self.value(value, depth + 1)
        parameters = {**default_parameters(cls, parameters), **parameters}
        if not set(parameters_of(cls)) <= set(parameters):
            raise ValueError(f"{tree['class']} lacks the parameter {min(set(parameters_of(cls)) - set(parameters))!r}.")
        _refuse(tree["class"], find_fault(tree["class"], parameters))
        _refuse(tree["class"], state_of(tree["class"]).fault(attributes))
        estimator = object.__new__(cls)
        estimator.__dict__.update(parameters, **_by_attribute(tree["class"], attributes))
        return estimator

    def warn_of_other_scikit_learn(self, version: str) -> None:
        """Warn, as unpickling does, if estimators of scikit-learn were saved under another version of it."""
        for name in sorted(self._class_names):
            if name.startswith("sklearn.") and version != sklearn.__version__:
                warning = InconsistentVersionWarning(
                    estimator_name=name.removeprefix("sklearn."),
                    current_sklearn_version=sklearn.__version__,
                    original_sklearn_version=on_one_line(version[:40]),
                )
                warnings.warn(warning, stacklevel=callers_line())

    def value(self, tree: Any, depth: int = 0) -> Any:
        """Return the value of a tree."""
        if depth > 4 * MAX_DEPTH:  # the writer counts an item of a dict once, here it is three lists deep
            raise ValueError("its values are nested too deeply.")
        if tree is None or isinstance(tree, (bool, int, float, str)):
            return tree
        if isinstance(tree, list):
            return [self.value(item, depth + 1) for item in tree]
        kind = tree.get("is")
        read = _READ.get(kind) if isinstance(kind, str) else None
        if read is None:
            raise ValueError(f"it holds a value of the unknown type {shown(kind)}. {_NEWER}")
        return read(self, tree, depth)

    def _items(self, items: Any, depth: int) -> list[Any]:
        if not isinstance(items, list):
            raise ValueError("a list of values is missing.")
        return self.value(items, depth)

    def _tuple(self, tree: Any, depth: int) -> tuple[Any, ...]:
        _expect(tree, "tuple", {"items"})
        return tuple(self._items(tree["items"], depth))

    def _dict(self, tree: Any, depth: int) -> dict[Any, Any]:
        _expect(tree, "dict", {"items"})
        pairs = self._items(tree["items"], depth)
        if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
            raise ValueError("a dict is not made of pairs.")
        # Numbers are easily chosen so that all have the same hash, and the time of a dict then grows with its square.
        hashes = Counter(map(hash, (key for key, _ in pairs)))
        if max(hashes.values(), default=0) > MOST_EQUAL_HASHES:
            raise ValueError(
                f"a dict has more than {MOST_EQUAL_HASHES} keys with the same hash. vicinal.io.save does not write such files."
            )
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("a dict repeats a key.")
        return found

    def _float(self, tree: Any, depth: int) -> float:
        _expect(tree, "float", {"bits"})
        return float(_from_bits(tree["bits"], np.dtype("<f8")))

    def _scalar(self, tree: Any, depth: int) -> np.generic:
        _expect(tree, "scalar", {"dtype", "bits"})
        return _from_bits(tree["bits"], read_dtype(tree["dtype"]))

    def _array(self, tree: Any, depth: int) -> np.ndarray:
        _expect(tree, "array", {"name"}, optional={"dtype"})
        name = tree["name"]
        if not isinstance(name, str) or name not in self._arrays:
            raise ValueError(
                f"it refers to the array {shown(name)}, which it does not hold, or to which it has referred before."
            )
        plain = self._arrays.pop(name)
        dtype = read_dtype(tree["dtype"]) if "dtype" in tree else plain.dtype
        return np.require(from_plain(plain, dtype) if "dtype" in tree else plain, dtype, "A")

    def _objects(self, tree: Any, depth: int) -> np.ndarray:
        _expect(tree, "objects", {"shape", "items"})
        items, shape = self._items(tree["items"], depth), check_shape(tree["shape"])
        if len(items) != math.prod(shape):
            raise ValueError(f"it holds {len(items)} objects for an array of shape {shape}.")
        array = np.empty(len(items), dtype=object)
        for i, item in enumerate(items):  # one by one, because NumPy would convert lists
            array[i] = item
        return array.reshape(shape)

    def _random_state(self, tree: Any, depth: int) -> np.random.RandomState:
        _expect(tree, "random_state", {"key", "position", "has_gauss", "gauss"})
        key, gauss = self._array(tree["key"], depth), self.value(tree["gauss"], depth)
        position, has_gauss = tree["position"], tree["has_gauss"]
        # NumPy does not check the position, and would read outside of the key.
        in_range = type(position) is int and 0 <= position <= 624 and has_gauss in (0, 1)
        if key.shape != (624,) or key.dtype != np.uint32 or not in_range or type(gauss) is not float:
            raise ValueError("it does not describe a random state as such.")
        state = _random_state()
        state.set_state(("MT19937", key, position, int(has_gauss), gauss))
        return state

    def _network(self, tree: Any, depth: int) -> Any:
        _expect(tree, "network", {"layers", "chain", "training", "trainable"})
        flags = {key: tree[key] for key in ("chain", "training", "trainable")}
        if not isinstance(tree["layers"], list) or not all(isinstance(flag, bool) for flag in flags.values()):
            raise ValueError("it does not describe a network as such.")
        layers = []
        for layer in tree["layers"]:
            if not isinstance(layer, dict) or set(layer) != {"layer", "arrays"}:
                raise ValueError("it does not describe the layer of a network as such.")
            layers.append((layer["layer"], {key: self._array(part, depth) for key, part in _named(layer["arrays"])}))
        return network_of(layers, **flags)

    def _record(self, tree: Any, depth: int) -> Any:
        _expect(tree, "record", {"class", "fields"})
        cls = find_class(tree["class"])
        if cls is None or issubclass(cls, BaseEstimator):
            raise ValueError(f"it holds a record of the unknown class {shown(tree['class'])}. {_NEWER}")
        values = self._fields(tree["class"], tree["fields"], depth, "field")
        _refuse(tree["class"], state_of(tree["class"]).fault(values))
        state = _by_attribute(tree["class"], values)
        if fields_of(cls):  # a dataclass or a named tuple, whose constructor only stores and checks
            return cls(**state)
        record = object.__new__(cls)
        record.__dict__.update(state)
        if state_of(tree["class"]).derived:
            record._derive()
        return record

    def _fields(self, class_name: str, trees: Any, depth: int, what: str) -> dict[str, Any]:
        """Return the values of declared fields by name; raise an error for other fields before their values are read."""
        declared = state_of(class_name).fields
        for name, _ in _named(trees):
            if name not in declared:
                raise ValueError(f"{class_name} has no {what} {shown(name)} here. {_NEWER}")
        return {name: self.value(value, depth + 1) for name, value in _named(trees)}


_NEWER = "Install the version of vicinal that wrote it, or a newer one."
_READ = {
    "array": Reader._array,
    "dict": Reader._dict,
    "estimator": Reader.estimator,
    "float": Reader._float,
    "network": Reader._network,
    "objects": Reader._objects,
    "random_state": Reader._random_state,
    "record": Reader._record,
    "scalar": Reader._scalar,
    "tuple": Reader._tuple,
}


def _expect(tree: Any, kind: str, keys: set[str], optional: Set[str] = frozenset()) -> None:
    if not isinstance(tree, dict) or tree.get("is") != kind or not keys | {"is"} <= set(tree):
        raise ValueError(f"it does not describe a value of type {kind!r} as such.")
    if not set(tree) <= keys | optional | {"is"}:
        raise ValueError(f"its description of a value of type {kind!r} has unknown entries. {_NEWER}")


def _refuse(class_name: str, fault: Fault | None) -> None:
    if fault is not None:
        raise ValueError(
            f"its {class_name} has {fault.name}={fault.got}, expected {fault.expected}. vicinal.io.save writes no "
            "other values, so do not trust the file unless a newer version of vicinal wrote it."
        )


def _by_attribute(class_name: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return the state of an object, by the names of its attributes."""
    attributes = state_of(class_name).attributes
    return {attributes[name]: value for name, value in values.items()}


def _named(trees: Any) -> Iterable[tuple[str, Any]]:
    if not isinstance(trees, dict):
        raise ValueError("values by name are missing.")
    return trees.items()


def _random_state() -> np.random.RandomState:
    """Return a random state to be set."""
    return np.random.RandomState(0)


def _from_bits(bits: Any, dtype: np.dtype) -> Any:
    raw = bytes.fromhex(bits) if isinstance(bits, str) else b""
    if len(raw) != dtype.itemsize or (dtype.kind == "b" and raw[0] > 1):
        raise ValueError(f"it holds a number of dtype {dtype} with {len(raw)} bytes.")
    if dtype.itemsize == 0:
        return dtype.type()
    if dtype.kind == "U":
        check_text(np.frombuffer(raw, dtype=f"{dtype.str[0]}u4"))
    return np.frombuffer(raw, dtype=dtype)[0]
