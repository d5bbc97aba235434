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
import scipy.sparse
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
    CHARACTERS_PER_OBJECT,
    MAX_DEPTH,
    MOST_EQUAL_HASHES,
    MOST_OBJECTS,
    MOST_REFERENCES,
    SPARSE,
    check_text,
    default_parameters,
    fields_of,
    find_class,
    from_plain,
    parameters_of,
    read_dtype,
)
from vicinal._words import count, on_one_line


class Reader:
    """Turns trees into values.

    Parameters
    ----------
    arrays : dict
        The table of the file.
    n_characters : int
        The length of the description. It bounds the number of estimators, records and layers: each takes time.
    """

    def __init__(self, arrays: dict[str, np.ndarray], n_characters: int = 0) -> None:
        self._arrays = arrays
        self._done: dict[str, tuple[Any, np.ndarray]] = {}
        self._references: Counter[str] = Counter()
        self._copied: set[str] = set()
        self._class_names: set[str] = set()
        self._n_objects, self._most_objects = 0, MOST_OBJECTS + n_characters // CHARACTERS_PER_OBJECT

    def estimator(self, tree: Any, depth: int = 0) -> BaseEstimator:
        """Return the estimator of a tree."""
        _expect(tree, "estimator", {"class", "parameters", "attributes"}, optional={"metadata_request"})
        cls = find_class(tree["class"])
        if cls is None or not issubclass(cls, BaseEstimator):
            raise ValueError(f"it holds an estimator of the unknown class {shown(tree['class'])}. {_NEWER}")
        self._count_object()
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
        if "metadata_request" in tree:
            _restore_requests(estimator, tree["metadata_request"])
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
        _expect(tree, "array", {"name"}, optional={"dtype", "axes"})
        name = tree["name"]
        if not isinstance(name, str) or name not in self._arrays:
            raise ValueError(f"it refers to the array {shown(name)}, which it does not hold.")
        self._references[name] += 1
        most = 1 if name in self._copied else MOST_REFERENCES
        if self._references[name] > most:
            raise ValueError(
                f"it refers to the array {shown(name)} more than {count(most, 'time')}. vicinal.io.save does not write such files."
            )
        if name not in self._done:
            self._done[name] = (tree, _restored(self._arrays[name], tree))
        first, array = self._done[name]
        if first != tree:
            raise ValueError(f"it describes the array {shown(name)} in two ways.")
        return array

    def _copied_array(self, tree: Any) -> Any:
        """Return an array to which nothing else may refer, so that copies are no larger than the file."""
        if isinstance(tree, dict) and isinstance(tree.get("name"), str):
            self._copied.add(tree["name"])
        return self._array(tree, 0)

    def _count_object(self) -> None:
        self._n_objects += 1
        if self._n_objects > self._most_objects:
            raise ValueError(
                f"it holds more than {self._most_objects} estimators, records and layers, too many for the length of its "
                "description. vicinal.io.save does not write such files."
            )

    def _objects(self, tree: Any, depth: int) -> np.ndarray:
        _expect(tree, "objects", {"shape", "items"})
        items, shape = self._items(tree["items"], depth), check_shape(tree["shape"])
        if len(items) != math.prod(shape):
            raise ValueError(f"it holds {len(items)} objects for an array of shape {shape}.")
        array = np.empty(len(items), dtype=object)
        for i, item in enumerate(items):  # one by one, because NumPy would convert lists
            array[i] = item
        return array.reshape(shape)

    def _sparse(self, tree: Any, depth: int) -> Any:
        _expect(tree, "sparse", {"class", "shape", "parts"})
        kind = SPARSE.get(tree["class"]) if isinstance(tree["class"], str) else None
        part = {name: self._array(value, depth) for name, value in _named(tree["parts"])}
        names = {"data", "row", "col"} if kind == "coo" else {"data", "indices", "indptr"}
        if kind is None or set(part) != names or any(array.ndim != 1 for array in part.values()):
            raise ValueError("it does not describe a sparse matrix as such.")
        if any(array.dtype.kind != "i" for name, array in part.items() if name != "data"):
            raise ValueError("it holds a sparse matrix whose positions are not integers.")
        cls, shape = getattr(scipy.sparse, tree["class"]), check_shape(tree["shape"])
        if kind == "coo":
            matrix = cls((part["data"], (part["row"], part["col"])), shape=shape)
        else:
            matrix = cls((part["data"], part["indices"], part["indptr"]), shape=shape)
            matrix.check_format(full_check=True)  # a wrong position would be read outside of the arrays
        for name, array in part.items():  # SciPy may have chosen smaller integers
            setattr(matrix, name, array)
        return matrix

    def _random_state(self, tree: Any, depth: int) -> np.random.RandomState:
        _expect(tree, "random_state", {"key", "position", "has_gauss", "gauss"})
        key, gauss = self._copied_array(tree["key"]), self.value(tree["gauss"], depth)
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
            self._count_object()
            layers.append((layer["layer"], {key: self._copied_array(part) for key, part in _named(layer["arrays"])}))
        return network_of(layers, **flags)

    def _record(self, tree: Any, depth: int) -> Any:
        _expect(tree, "record", {"class", "fields"})
        cls = find_class(tree["class"])
        if cls is None or issubclass(cls, BaseEstimator):
            raise ValueError(f"it holds a record of the unknown class {shown(tree['class'])}. {_NEWER}")
        self._count_object()
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
    "sparse": Reader._sparse,
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


def _restored(plain: np.ndarray, tree: Any) -> np.ndarray:
    """Return the array in its own dtype, with its axes in the order in which they lay in memory."""
    dtype = read_dtype(tree["dtype"]) if "dtype" in tree else plain.dtype
    array = from_plain(plain, dtype) if "dtype" in tree else plain
    # At most one copy is made, for all reasons together.
    if "axes" not in tree:
        return np.require(array, dtype, "A")
    axes = tree["axes"]
    if not isinstance(axes, list) or not all(type(axis) is int for axis in axes):
        raise ValueError(f"the axes of the array {shown(tree['name'])} are not numbers.")
    if sorted(axes) != list(range(array.ndim)):
        raise ValueError(f"the array {shown(tree['name'])} of shape {array.shape} cannot have those axes.")
    return np.require(array.transpose(axes), dtype, ("C", "A")).transpose(np.argsort(axes))


def _restore_requests(estimator: Any, requests: Any) -> None:
    """Restore the requested metadata routing, through scikit-learn's own checks."""
    routing = estimator._get_metadata_request()
    for method, asked in _named(requests):
        for name, alias in _named(asked):
            getattr(routing, method).add_request(param=name, alias=alias)
    estimator._metadata_request = routing
