"""Python code that creates an estimator, generated from the estimator itself."""

import inspect
import math
import numbers
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from importlib import import_module
from textwrap import indent
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline, make_pipeline

from vicinal import companions

_WIDTH = 88
# Arrays of more entries than this are data, which belong in a file and not in code.
_LARGEST_ARRAY = 100


class CodeWriter:
    """Turns estimators and plain values into Python expressions, and collects the imports that these need.

    Estimators are written with the parameters that differ from the defaults, pipelines as ``make_pipeline`` if their
    steps have the usual names, records such as ``Engine`` with the fields that differ from the defaults.

    Attributes
    ----------
    gaps : list of str
        The values that cannot be written as code (a large array, a lambda, an object of another kind) and appear in the
        expressions as ``...``, or as the name of a class that cannot be imported.

    Examples
    --------
    >>> from sklearn.decomposition import PCA
    >>> from sklearn.pipeline import make_pipeline
    >>> from vicinal import LCA
    >>> writer = CodeWriter()
    >>> print(writer.expression(make_pipeline(PCA(2, whiten=True), LCA(tol=1e-5))))
    make_pipeline(PCA(n_components=2, whiten=True), LCA(tol=1e-05))
    >>> print("\\n".join(writer.import_lines()))
    from sklearn.decomposition import PCA
    from sklearn.pipeline import make_pipeline
    from vicinal import LCA
    """

    def __init__(self) -> None:
        self.gaps: list[str] = []
        self._homes: dict[str, str] = {}  # the modules of imported names
        self._modules: dict[str, str] = {}  # modules that are imported as a whole, with their names in the code

    def import_lines(self) -> list[str]:
        """Return the import statements for the expressions so far, sorted."""
        whole = [
            f"import {module}" + (f" as {name}" if name != module else "") for module, name in self._modules.items()
        ]
        parts = [
            f"from {home} import {', '.join(sorted(name for name, place in self._homes.items() if place == home))}"
            for home in set(self._homes.values())
        ]
        return sorted(whole) + sorted(parts)

    def import_module(self, module: str, name: str | None = None) -> None:
        """Add ``import module``, or ``import module as name``."""
        self._modules[module] = name or module

    def expression(self, value: Any, place: str = "a value") -> str:
        """Return the expression of a value; `place` is its location for `gaps`."""
        value = value.item() if isinstance(value, np.generic) else value
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return repr(value)
        if kind is float:
            return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
        if kind in (list, tuple):
            items = [self.expression(item, place) for item in value]
            return laid_out("[", items, "]") if kind is list else laid_out("(", items, ",)" if len(items) == 1 else ")")
        if kind is dict:
            pairs = [f"{self.expression(key, place)}: {self.expression(item, place)}" for key, item in value.items()]
            return laid_out("{", pairs, "}")
        if kind is np.ndarray and value.dtype.kind in "biuf" and value.size <= _LARGEST_ARRAY:
            return self._array(value, place)
        if isinstance(value, Pipeline):
            return self._pipeline(value)
        if isinstance(value, BaseEstimator):
            return self._call(kind, value.get_params(deep=False), _parameters(kind))
        if is_dataclass(kind) and isinstance(value, kind):
            values = {field.name: getattr(value, field.name) for field in fields(kind) if field.init}
            return self._call(kind, values, _parameters(kind))
        if isinstance(value, (type, np.ufunc)) or inspect.isroutine(value):
            name = self._name(value)
            if name is not None:
                return name
        self.gaps.append(f"{place}: {_described(value)}")
        return "..."

    def _array(self, array: np.ndarray, place: str) -> str:
        self.import_module("numpy", "np")
        plain = array.tolist()
        dtype = "" if np.array(plain).dtype == array.dtype else f", dtype={array.dtype.name!r}"
        return f"np.array({self.expression(plain, place)}{dtype})"

    def _pipeline(self, pipeline: Pipeline) -> str:
        """Return ``make_pipeline(...)`` if it gives the steps the names that they have, else ``Pipeline([...])``."""
        values = pipeline.get_params(deep=False)
        steps = [step for _, step in pipeline.steps]
        if [name for name, _ in make_pipeline(*steps).steps] != [name for name, _ in pipeline.steps]:
            return self._call(type(pipeline), values, _parameters(type(pipeline)))
        return self._call(make_pipeline, values, _parameters(make_pipeline), steps)

    def _call(
        self,
        function: Callable[..., Any],
        values: dict[str, Any],
        parameters: Iterable[inspect.Parameter],
        positional: Iterable[Any] = (),
    ) -> str:
        """Return a call with the values that differ from the defaults, in the order of the parameters."""
        owner = function.__name__
        items = [self.expression(value, f"a step of {owner}") for value in positional]
        items += [
            f"{part.name}={self.expression(values[part.name], f'{part.name} of {owner}')}"
            for part in parameters
            if part.name in values
            and part.kind is not part.VAR_POSITIONAL
            and not _same(values[part.name], part.default)
        ]
        name = self._name(function)
        if name is None:
            name = owner
            self.gaps.append(f"{owner}: {_described(function)}")
        return laid_out(f"{name}(", items, ")")

    def _name(self, thing: Any) -> str | None:
        """Return the name of a class or function once it is imported; None if no module offers it under its name."""
        name, home = getattr(thing, "__name__", ""), _public_home(thing)
        if home is None:
            return None
        if home == "builtins":
            return name
        if self._homes.setdefault(name, home) != home:  # another module already uses this name
            self.import_module(home)
            return f"{home}.{name}"
        return name


def _public_home(thing: Any) -> str | None:
    """Return the shortest module path that offers a class or function under its own name, or None."""
    name = getattr(thing, "__qualname__", getattr(thing, "__name__", ""))
    parts = (getattr(thing, "__module__", None) or ("numpy" if isinstance(thing, np.ufunc) else "__main__")).split(".")
    if parts[0] == "__main__":  # another script could not import it from there
        return None
    for end in range(1, len(parts) + 1):
        module = ".".join(parts[:end])
        if getattr(import_module(module), name, None) is thing:
            return module
        if module == "vicinal" and getattr(companions, name, None) is thing:
            return "vicinal.companions"
    return None


def _parameters(function: Callable[..., Any]) -> Iterable[inspect.Parameter]:
    """Return the parameters of a constructor or function, in their order."""
    return inspect.signature(function).parameters.values()


def _same(value: Any, default: Any) -> bool:
    """Return whether a parameter has its default value; arrays and estimators are never defaults."""
    if value is default:
        return True
    value = value.item() if isinstance(value, np.generic) else value
    plain = (str, numbers.Number, tuple)
    if type(value) is not type(default) or not isinstance(value, plain):
        return False
    return bool(value == default or (value != value and default != default))


def _described(value: Any) -> str:
    """Return a short description of a value that cannot be written as code."""
    if isinstance(value, np.ndarray):
        return f"an array of dtype {value.dtype} and shape {value.shape}"
    if isinstance(value, type) or inspect.isroutine(value):
        return f"{getattr(value, '__qualname__', value)} of {value.__module__}"
    return f"a {type(value).__name__}"


def laid_out(head: str, items: list[str], tail: str) -> str:
    """Return a call, list or dict on one line if it fits, else with one item per line."""
    line = f"{head}{', '.join(items)}{tail}"
    if (len(line) <= _WIDTH and "\n" not in line) or not items:
        return line
    body = "".join(indent(item, "    ") + ",\n" for item in items)
    return f"{head}\n{body}{tail.lstrip(',')}"
