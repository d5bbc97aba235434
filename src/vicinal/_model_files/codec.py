"""Conversion of an estimator to a tree of JSON values with a table of arrays, and back.

``None``, booleans, integers, strings, finite floats and lists are written directly; everything else is an object whose ``"is"``
names its type. Arrays are stored in the table by name, and the tree refers to each of them once.

The `Reader` does not trust a tree: anything that does not follow the rules of the `Writer`, or the declaration of its class in
`_model_files/states`, raises a ValueError. The state of an estimator is checked as a whole and then written into its ``__dict__``: no
constructor, property or ``__setstate__`` of an estimator runs. Of records of options, the constructor runs, which checks its arguments.
"""

import math
import warnings
from collections.abc import Set
from typing import Any

import numpy as np
import sklearn
from sklearn.base import BaseEstimator
from sklearn.exceptions import InconsistentVersionWarning

from vicinal._callers import callers_line
from vicinal._metric import LinearMetricMixin
from vicinal._model_files.classes import (
    Fault,
    expected_parameter,
    fields_of,
    find_class,
    foreign_estimators,
    is_network,
    name_of_class,
)
from vicinal._model_files.kinds import State, shown
from vicinal._model_files.networks import layers_of, network_of
from vicinal._model_files.states import state_of
from vicinal._row_sources import in_file
from vicinal._words import on_one_line

_DEEPEST = 25  # levels of nested values
_MOST_STRINGS = 2**19  # in arrays of one file, because a string takes more memory than in the file
_MOST_KEYS = 1_000  # of a dict that are not strings, because numbers with equal hashes are easily chosen
_SPECIAL = ("nan", "inf", "-inf")
_NEWER = "Install the version of vicinal that wrote it, or a newer one."
_SET = "Set it to such a value first."
_FIT = "A fit did not finish, or an attribute was changed after it. Fit again before saving."
_ROWS = ("_incomplete_rows", "rows_")  # the attributes of a metric that hold training rows, beside its density
_MIXTURES = ("FrameMixture", "MixedMixture", "SharedMixture")


class Writer:
    """Turns values into a tree and collects their arrays, named by the place of each."""

    def __init__(self, *, training_rows: bool = True) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self.callbacks: list[str] = []  # the functions that are left out, as text
        self._training_rows, self._n_strings = training_rows, 0

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
        values = dict(vars(estimator)) if self._training_rows else _without_rows(estimator)
        parameters = {key: values.pop(key) for key in list(values) if key in cls._get_param_names()}
        if callable(parameters.get("callback")):  # code, which a file never contains; only a further fit would call it
            self.callbacks.append(f"{_where((*place, 'callback'))} ({_name_of_function(parameters['callback'])})")
            parameters["callback"] = None
        tree = {
            "is": "estimator",
            "class": name,
            "parameters": {key: self.value(value, (*place, key)) for key, value in parameters.items()},
            "attributes": self._state(name, state_of(name), values, place),
        }
        self._check_parameters(parameters, place)
        return tree

    def _state(
        self, class_name: str, state: State, values: dict[str, Any], place: tuple[str, ...], remedy: str = _FIT
    ) -> dict[str, Any]:
        """Return the trees of a declared state, all of which must be declared."""
        for name in values:
            if name not in state.fields:
                raise TypeError(
                    f"{_where((*place, name))} is not a declared attribute of {class_name}, so a model file cannot hold "
                    f"it. Keep it elsewhere and delete it first: del {_expression(place)}.{name}."
                )
        trees = {name: self.value(value, (*place, name)) for name, value in values.items()}
        _refuse_to_save(state.fault(values), place, remedy)
        return trees

    def _check_parameters(self, values: dict[str, Any], place: tuple[str, ...], *, of_record: bool = False) -> None:
        for name, value in values.items():
            expected = expected_parameter(name, value, of_record=of_record)
            if expected is not None:
                fault = Fault(name, expected, shown(value))
                _refuse_to_save(fault, place, _set_to_none((*place, name)) if expected == "None" else _SET)

    def value(self, value: Any, place: tuple[str, ...]) -> Any:
        """Return the tree of a value; `place` is its position, for messages and for the names of arrays."""
        kind = type(value)
        if len(place) > _DEEPEST:
            raise TypeError(f"{_where(place[:1])} is nested too deeply to be saved, or holds itself.")
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"is": "float", "text": repr(value)}
        if kind in (list, tuple):
            items = [self.value(item, (*place, str(i))) for i, item in enumerate(value)]
            return items if kind is list else {"is": "tuple", "items": items}
        if kind is dict:
            if sum(not isinstance(key, str) for key in value) > _MOST_KEYS:
                raise TypeError(f"{_where(place)} has more than {_MOST_KEYS:,} keys that are not strings. Use fewer.")
            pairs = [
                [self.value(key, (*place, str(i), "key")), self.value(item, (*place, str(i)))]
                for i, (key, item) in enumerate(value.items())
            ]
            return {"is": "dict", "items": pairs}
        if kind in (np.ndarray, np.memmap):
            return self._array(value, place)
        if isinstance(value, np.generic) and not isinstance(value.item(), np.generic):
            return self.value(value.item(), place)  # a number of Python answers with the same bits
        if kind is np.random.RandomState:
            return self._random_state(value, place)
        if isinstance(value, BaseEstimator):
            return self.estimator(value, place)
        if is_network(value):
            return self._network(value, place)
        if name_of_class(kind) is not None:
            return self._record(value, place)
        raise _cannot_save(value, place)

    def _array(self, array: np.ndarray, place: tuple[str, ...]) -> dict[str, Any]:
        name = ".".join(place)
        if array.dtype == object and array.ndim == 1 and all(type(item) is str for item in array):
            return self._strings(array, name)
        if array.dtype.kind not in "biufU" or (array.dtype.itemsize not in (1, 2, 4, 8) and array.dtype.kind != "U"):
            raise TypeError(f"{_where(place)} has the dtype {array.dtype}, which a model file cannot hold.")
        little = np.asarray(array, order="C").astype(array.dtype.newbyteorder("<"), copy=False)
        tree = {"is": "array", "name": name}
        if array.dtype.kind == "U":  # code points, with one more axis
            tree["dtype"] = little.dtype.str
            little = little.astype(f"<U{max(little.dtype.itemsize // 4, 1)}").reshape(*array.shape, 1).view("<u4")
        self.arrays[name] = little
        return tree

    def _strings(self, array: np.ndarray, name: str) -> dict[str, Any]:
        """Store strings as their bytes, one after the other, and their lengths."""
        self._n_strings += len(array)
        if self._n_strings > _MOST_STRINGS:
            raise ValueError(f"the model has too many names to save: at most {_MOST_STRINGS:,} are allowed.")
        parts = [text.encode("utf-8", "surrogatepass") for text in array]
        self.arrays[name] = np.frombuffer(b"".join(parts), dtype=np.uint8)
        self.arrays[f"{name}.lengths"] = np.array([len(part) for part in parts], dtype=np.int64)
        return {"is": "strings", "name": name}

    def _random_state(self, state: np.random.RandomState, place: tuple[str, ...]) -> dict[str, Any]:
        values: Any = state.get_state(legacy=False)
        if values["bit_generator"] != "MT19937":
            raise _cannot_save(state, place)
        return {
            "is": "random_state",
            "key": self._array(values["state"]["key"], (*place, "key")),
            "position": int(values["state"]["pos"]),
            "has_gauss": int(values["has_gauss"]),
            "gauss": float(values["gauss"]),
        }

    def _network(self, network: Any, place: tuple[str, ...]) -> dict[str, Any]:
        layers = layers_of(network)
        if layers is None:
            raise _cannot_save(network, place)
        trees = [
            {"layer": name, "arrays": {key: self._array(array, (*place, str(i), key)) for key, array in arrays.items()}}
            for i, (name, arrays) in enumerate(layers)
        ]
        chain, trainable = type(network).__name__ == "Sequential", any(p.requires_grad for p in network.parameters())
        flags = {"chain": chain, "training": bool(network.training), "trainable": trainable}
        return {"is": "network", "layers": trees, **flags}

    def _record(self, record: Any, place: tuple[str, ...]) -> dict[str, Any]:
        class_name, names = name_of_class(type(record)), fields_of(type(record))
        assert class_name is not None  # only instances of the closed set are passed here
        if in_file(getattr(record, "centres", None)):
            raise TypeError(
                f"the components of {_where(place)} are in a file of rows, and a model file never holds a reference. "
                "Call gather() on the density to copy its training rows into memory, or save a metric with training_rows=False."
            )
        state = state_of(class_name)
        values = {name: getattr(record, name) for name in names} if names else dict(vars(record))
        if state is None:  # options, which check themselves
            trees = {name: self.value(value, (*place, name)) for name, value in values.items()}
            self._check_parameters(values, place, of_record=True)
        else:
            stored = {name: value for name, value in values.items() if name not in state.derived}
            trees = self._state(class_name, state, stored, place, _SET if names else _FIT)
        return {"is": "record", "class": class_name, "fields": trees}


def _refuse_to_save(fault: Fault | None, place: tuple[str, ...], remedy: str) -> None:
    """Raise an error for values that could not be read again."""
    if fault is not None:
        raise TypeError(
            f"{_where((*place, fault.name))} is {fault.got}, which a model file cannot hold; expected {fault.expected}. "
            f"{remedy}"
        )


def _without_rows(estimator: BaseEstimator) -> dict[str, Any]:
    """Return the state of a metric without the density of its training rows."""
    if isinstance(estimator, LinearMetricMixin):
        stub = find_class("RowsLeftOut")(type(estimator).__name__)
        values = {name: value for name, value in vars(estimator).items() if name not in _ROWS}
        return {name: stub if name_of_class(type(value)) in _MIXTURES else value for name, value in values.items()}
    if type(estimator).__module__.startswith("sklearn."):
        return dict(vars(estimator))
    raise ValueError(
        f"training_rows=False is for metrics, and {type(estimator).__name__} is not one: it needs its "
        "training rows. Save it with training_rows=True."
    )


def _name_of_function(function: Any) -> str:
    return getattr(function, "__qualname__", type(function).__name__)


def _cannot_save(value: Any, place: tuple[str, ...]) -> TypeError:
    kind = type(value)
    what = f"holds a {kind.__module__}.{kind.__qualname__}"
    remedy = "It can hold numbers, strings, arrays, lists, tuples, dicts and estimators of vicinal."
    if is_network(value):
        what = "holds a network of layers of your own"
        remedy = (
            "It can hold the default network of NeuralNCA, and torch.nn.Linear, BatchNorm1d and plain activations, alone or in a "
            "torch.nn.Sequential; save the state_dict() of other networks with torch."
        )
    elif callable(value) and not isinstance(value, type):
        what, remedy = f"holds a function, {_name_of_function(value)}", _set_to_none(place)
    elif hasattr(value, "cache"):  # the memory of a pipeline may be a cache or a path
        what, remedy = f"holds a cache, {kind.__module__}.{kind.__qualname__}", _set_to_none(place)
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


class Reader:
    """Turns trees into values.

    Parameters
    ----------
    arrays : dict
        The table of the file. A tree may refer to each of them once.
    """

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self._arrays, self._n_strings = dict(arrays), 0
        self._class_names: set[str] = set()

    def estimator(self, tree: Any, depth: int = 0) -> BaseEstimator:
        """Return the estimator of a tree."""
        _expect(tree, "estimator", {"class", "parameters", "attributes"})
        name, cls = tree["class"], find_class(tree["class"])
        if cls is None or not issubclass(cls, BaseEstimator):
            raise ValueError(f"it holds an estimator of the unknown class {shown(name)}. {_NEWER}")
        self._class_names.add(name)
        state = state_of(name)
        attributes = self._fields(name, tree["attributes"], state.fields, depth, "attribute")
        parameters = self._fields(name, tree["parameters"], cls._get_param_names(), depth, "parameter")
        missing = set(cls._get_param_names()) - set(parameters)
        if missing:
            raise ValueError(f"{name} lacks the parameter {min(missing)!r}.")
        _check_read(name, parameters)
        _refuse_to_load(name, state.fault(attributes))
        estimator = object.__new__(cls)
        estimator.__dict__.update(parameters, **attributes)
        if name == "sklearn.Pipeline":
            _check_steps(estimator.steps)
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
        if depth > 4 * _DEEPEST:  # the writer counts an item of a dict once, here it is three lists deep
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
        if sum(not isinstance(key, str) for key, _ in pairs) > _MOST_KEYS:
            raise ValueError(f"a dict has more than {_MOST_KEYS:,} keys that are not strings.")
        by_key = dict(pairs)
        if len(by_key) < len(pairs):
            raise ValueError("a dict repeats a key.")
        return by_key

    def _float(self, tree: Any, depth: int) -> float:
        _expect(tree, "float", {"text"})
        if tree["text"] not in _SPECIAL:
            raise ValueError(f"it holds the number {shown(tree['text'])}, expected one of {', '.join(_SPECIAL)}.")
        return float(tree["text"])

    def _table_entry(self, name: Any) -> np.ndarray:
        if not isinstance(name, str) or name not in self._arrays:
            raise ValueError(
                f"it refers to the array {shown(name)}, which it does not hold, or to which it has referred before."
            )
        return self._arrays.pop(name)

    def _array(self, tree: Any, depth: int) -> np.ndarray:
        _expect(tree, "array", {"name"}, optional={"dtype"})
        plain = self._table_entry(tree["name"])
        if "dtype" not in tree:
            return np.require(plain, plain.dtype, "A")
        width = max(int(tree["dtype"].removeprefix("<U")), 1)
        if plain.dtype != np.uint32 or plain.ndim < 1 or plain.shape[-1] != width or width >= 2**22:
            raise ValueError(f"it holds strings as {plain.dtype} of shape {plain.shape}.")
        if plain.size and plain.max() > 0x10FFFF:
            raise ValueError("it holds a string with code points that are not characters.")
        texts = np.require(plain, plain.dtype, ["A", "C"]).view(f"<U{width}").reshape(plain.shape[:-1])
        return texts.astype(tree["dtype"], copy=False)

    def _strings(self, tree: Any, depth: int) -> np.ndarray:
        _expect(tree, "strings", {"name"})
        data, lengths = self._table_entry(tree["name"]), self._table_entry(f"{tree['name']}.lengths")
        self._n_strings += lengths.size
        sound = lengths.dtype == np.int64 and lengths.ndim == 1 and self._n_strings <= _MOST_STRINGS
        sound = sound and data.dtype == np.uint8 and lengths.min(initial=0) >= 0 and lengths.max(initial=0) <= data.size
        if not sound or int(lengths.sum()) != data.size:
            raise ValueError(f"its strings {shown(tree['name'])} and their lengths do not fit each other.")
        texts, end = np.empty(len(lengths), dtype=object), 0
        for i, length in enumerate(lengths):
            start, end = end, end + int(length)
            texts[i] = data[start:end].tobytes().decode("utf-8", "surrogatepass")
        return texts

    def _random_state(self, tree: Any, depth: int) -> np.random.RandomState:
        _expect(tree, "random_state", {"key", "position", "has_gauss", "gauss"})
        key, position, has_gauss, gauss = (
            self._array(tree["key"], depth),
            *(tree[name] for name in ("position", "has_gauss", "gauss")),
        )
        # NumPy does not check the position, and would read outside of the key.
        in_range = type(position) is int and 0 <= position <= 624 and has_gauss in (0, 1)
        if key.shape != (624,) or key.dtype != np.uint32 or not in_range or type(gauss) is not float:
            raise ValueError("it does not describe a random state as such.")
        state = np.random.RandomState(0)
        state.set_state(("MT19937", key, position, int(has_gauss), gauss))
        return state

    def _network(self, tree: Any, depth: int) -> Any:
        _expect(tree, "network", {"layers", "chain", "training", "trainable"})
        flags = {key: tree[key] for key in ("chain", "training", "trainable")}
        if not isinstance(tree["layers"], list) or not all(isinstance(flag, bool) for flag in flags.values()):
            raise ValueError("it does not describe a network as such.")
        layers = []
        for layer in tree["layers"]:
            if (
                not isinstance(layer, dict)
                or set(layer) != {"layer", "arrays"}
                or not isinstance(layer["arrays"], dict)
            ):
                raise ValueError("it does not describe the layer of a network as such.")
            layers.append((layer["layer"], {key: self._array(part, depth) for key, part in layer["arrays"].items()}))
        return network_of(layers, **flags)

    def _record(self, tree: Any, depth: int) -> Any:
        _expect(tree, "record", {"class", "fields"})
        name, cls = tree["class"], find_class(tree["class"])
        if cls is None or issubclass(cls, BaseEstimator):
            raise ValueError(f"it holds a record of the unknown class {shown(name)}. {_NEWER}")
        state, names = state_of(name), fields_of(cls)
        values = self._fields(name, tree["fields"], names if state is None else state.fields, depth, "field")
        if state is None:
            _check_read(name, values, of_record=True)
        else:
            _refuse_to_load(name, state.fault(values))
        if names:  # a dataclass or a named tuple, whose constructor only stores and checks
            return cls(**values)
        record = object.__new__(cls)
        record.__dict__.update(values)
        if state.derived:
            record._derive()
        return record

    def _fields(self, class_name: str, trees: Any, known: Any, depth: int, what: str) -> dict[str, Any]:
        """Return values by name; raise an error for unknown names before any value is read."""
        if not isinstance(trees, dict):
            raise ValueError("values by name are missing.")
        for name in trees:
            if name not in known:
                raise ValueError(f"{class_name} has no {what} {shown(name)} here. {_NEWER}")
        return {name: self.value(tree, depth + 1) for name, tree in trees.items()}


_READ = {
    "array": Reader._array,
    "dict": Reader._dict,
    "estimator": Reader.estimator,
    "float": Reader._float,
    "network": Reader._network,
    "random_state": Reader._random_state,
    "record": Reader._record,
    "strings": Reader._strings,
    "tuple": Reader._tuple,
}


def _expect(tree: Any, kind: str, keys: set[str], optional: Set[str] = frozenset()) -> None:
    if not isinstance(tree, dict) or tree.get("is") != kind or not keys | {"is"} <= set(tree):
        raise ValueError(f"it does not describe a value of type {kind!r} as such.")
    if not set(tree) <= keys | optional | {"is"}:
        raise ValueError(f"its description of a value of type {kind!r} has unknown entries. {_NEWER}")


def _check_read(class_name: str, values: dict[str, Any], *, of_record: bool = False) -> None:
    """Raise an error for parameters that a file may not hold."""
    for name, value in values.items():
        expected = expected_parameter(name, value, of_record=of_record)
        _refuse_to_load(class_name, None if expected is None else Fault(name, expected, shown(value)))


def _check_steps(steps: Any) -> None:
    """Raise an error if the steps of a pipeline are not named estimators."""
    pairs = isinstance(steps, list) and all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in steps)
    if not pairs or not all(
        isinstance(name, str) and (step in (None, "passthrough") or isinstance(step, BaseEstimator))
        for name, step in steps
    ):
        raise ValueError("its sklearn.Pipeline has steps that are not pairs of a name and an estimator.")


def _refuse_to_load(class_name: str, fault: Fault | None) -> None:
    if fault is not None:
        raise ValueError(
            f"its {class_name} has {fault.name}={fault.got}, expected {fault.expected}. vicinal.io.save writes no "
            "other values, so do not trust the file unless a newer version of vicinal wrote it."
        )
