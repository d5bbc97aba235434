"""The declarations of the state that a class keeps in a model file.

A declaration is a `State`: the fields by their names in a file. The kind of a field defines its permitted values. Sizes
are symbols, which denote the same number in the whole state, so that no kernel reads outside of an array::

    State(
        {
            "n_features_in_": count("d", least=1),
            "components_": floats("k", "d"),
            "feature_names_in_": maybe(names("d")),                    # it may be absent
            "stream": private("_stream", None, floats("d", "d")),      # None, or an array; the attribute is _stream
        }
    )

Names in a file never change; the attribute of a field can be renamed, here and in the class.
"""

import math
from collections.abc import Callable, Collection, Mapping
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, OneToOneFeatureMixin
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectorMixin
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from vicinal._model_files.networks import has_finite_float64, is_network, widths_of
from vicinal._model_files.types import name_of_class


class Fault(NamedTuple):
    """A value that a class may not hold, and whether None would be accepted instead."""

    name: str
    expected: str
    got: str
    may_be_none: bool = False


class Kind:
    """A kind of value: a description, and a function that returns whether a value is of this kind.

    The function of a kind with sizes also takes the sizes that are known so far, and adds to them.
    """

    def __init__(self, text: str, holds: Callable[..., Any], *, sized: bool = False) -> None:
        self._text = text
        self._holds = holds
        self._sized = sized

    def __str__(self) -> str:
        return self._text

    def is_satisfied_by(self, value: Any, sizes: dict[str, int] | None = None) -> bool:
        """Return whether the value is of this kind; only then are sizes added."""
        if not self._sized:
            return bool(self._holds(value))
        found = dict(sizes or {})
        satisfied = bool(self._holds(value, found))
        if satisfied and sizes is not None:
            sizes.update(found)
        return satisfied


_NONE = Kind("None", lambda value: value is None)
# The attributes that may be set before an estimator is fitted.
_SETTINGS = {"set_output"}


class Field(NamedTuple):
    """One part of a state."""

    kinds: tuple[Kind, ...]
    attribute: str | None = None  # None: as in the file
    required: bool = True

    def __str__(self) -> str:
        return " or ".join(map(str, self.kinds))


Fields = Mapping[str, Kind | Field]  # by their names in a file


def field(*kinds: Kind | None) -> Field:
    """Return a field that holds a value of one of the kinds; None among them is the value None."""
    return Field(tuple(_NONE if kind is None else kind for kind in kinds))


def maybe(*kinds: Kind | None, attribute: str | None = None) -> Field:
    """Return a field that some states do not have."""
    return field(*kinds)._replace(attribute=attribute, required=False)


def private(attribute: str, *kinds: Kind | None) -> Field:
    """Return a field whose attribute has a different name."""
    return field(*kinds)._replace(attribute=attribute)


class State:
    """The state that a class keeps in a file.

    Parameters
    ----------
    fields : dict
        Kinds or `Field`s by their names in a file.
    early : list of str
        The fields of an estimator that has seen rows, but not enough of them to be fitted.
    derived : list of str
        The attributes that a file does not hold, because the method `_derive` of the class computes them from the others.
    """

    def __init__(self, fields: Fields, *, early: Collection[str] = (), derived: Collection[str] = ()) -> None:
        self.fields = {name: kind if isinstance(kind, Field) else field(kind) for name, kind in fields.items()}
        self.attributes = {name: part.attribute or name for name, part in self.fields.items()}
        self.names = {attribute: name for name, attribute in self.attributes.items()}
        self._early = set(early)
        self.derived = derived

    def fault(self, values: dict[str, Any]) -> Fault | None:
        """Return the first fault of the values by field name; None if there is none.

        Either all required values (or all early ones) are present or, if the estimator is not fitted, none of them.
        """
        given = set(values) - _SETTINGS
        expected = self._early if given <= self._early else set(self.fields)
        for name in [name for name in self.fields if given and name in expected - given]:
            if self.fields[name].required:
                return Fault(name, str(self.fields[name]), "nothing")
        sizes: dict[str, int] = {}
        for name, part in self.fields.items():
            if name in values and not any(kind.is_satisfied_by(values[name], sizes) for kind in part.kinds):
                return Fault(name, f"{part}{_known(part, sizes)}", shown(values[name]), _NONE in part.kinds)
        return None


def _known(part: Field, sizes: dict[str, int]) -> str:
    """Return the sizes that the description of a field mentions."""
    text = str(part).replace("(", " ").replace(")", " ").replace(",", " ").split()
    found = [f"{symbol}={size}" for symbol, size in sizes.items() if symbol in text]
    return f", where {', '.join(found)}" if found else ""


def shown(value: Any) -> str:
    """Return a value in a few characters: an array by its shape, a string with control characters escaped."""
    if isinstance(value, np.ndarray):
        return f"an array of dtype {value.dtype} and shape {value.shape}{_range(value)}"
    if value is None or isinstance(value, (str, Real)):
        text = ascii(value)
        return text if len(text) <= 80 else f"{text[:77]}..."
    return f"a {name_of_class(type(value)) or type(value).__name__}"


def _range(array: np.ndarray) -> str:
    if array.dtype.kind not in "iuf" or array.size == 0:
        return ""
    return f" with values from {array.min():.6g} to {array.max():.6g}"


# -- numbers, strings and arrays ---------------------------------------------------------------------------------------


def is_integer(value: Any) -> bool:
    """Return whether a value is a whole number, of Python or NumPy, and not a boolean."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _bounds(least: float | None, above: float | None, most: float | None) -> str:
    parts = [(least, "at least"), (above, "greater than"), (most, "at most")]
    return "".join(f", {words} {bound:g}" for bound, words in parts if bound is not None)


def _is_within(values: Any, least: float | None, above: float | None, most: float | None) -> bool:
    """Return whether no value lies outside the bounds; NaN is never outside."""
    if np.size(values) == 0:
        return True
    # In Python's floats: a bound may be beyond float32.
    smallest, largest = float(np.fmin.reduce(values, axis=None)), float(np.fmax.reduce(values, axis=None))
    low = (least is not None and smallest < least) or (above is not None and smallest <= above)
    return not low and (most is None or not largest > most)


def count(symbol: str | None = None, *, least: int = 0, most: int | None = None) -> Kind:
    """Return a whole number; with a symbol, that size."""

    def holds(value: Any, sizes: dict[str, int]) -> bool:
        if not is_integer(value) or not _is_within(value, least, None, most):
            return False
        return symbol is None or sizes.setdefault(symbol, int(value)) == value

    return Kind(f"an integer{'' if symbol is None else f' {symbol}'}{_bounds(least, None, most)}", holds, sized=True)


def number(
    *, least: float | None = None, above: float | None = None, most: float | None = None, finite: bool = True
) -> Kind:
    """Return a number of Python or NumPy, never NaN; finite or not."""

    def holds(value: Any) -> bool:
        if not isinstance(value, Real) or isinstance(value, (bool, np.bool_)) or value != value:
            return False
        return (not finite or math.isfinite(value)) and _is_within(value, least, above, most)

    return Kind(f"a {'finite ' if finite else ''}number{_bounds(least, above, most)}", holds)


FLAG = Kind("True or False", lambda value: isinstance(value, (bool, np.bool_)))
DIGEST = Kind(
    "64 hexadecimal digits",
    lambda value: isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef"),
)
RANDOM_STATE = Kind("a RandomState", lambda value: isinstance(value, np.random.RandomState))


def one_of(*choices: str) -> Kind:
    """Return one of some strings."""
    return Kind(" or ".join(map(repr, choices)), lambda value: isinstance(value, str) and value in choices)


def _fits(array: Any, shape: tuple[int | str, ...], sizes: dict[str, int]) -> bool:
    """Return whether an array has the shape, in numbers and symbols; the sizes of new symbols are recorded."""
    if not isinstance(array, np.ndarray) or array.ndim != len(shape):
        return False
    return all(
        size == (sizes.setdefault(part, size) if isinstance(part, str) else part)
        for part, size in zip(shape, array.shape, strict=True)
    )


def _shape_text(shape: tuple[int | str, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def floats(
    *shape: int | str,
    finite: bool = True,
    nan: bool = False,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    filled: bool = False,
) -> Kind:
    """Return an array of float32 or float64; NaN is allowed only if that is declared, no entries only if it is not `filled`."""

    def holds(value: Any, sizes: dict[str, int]) -> bool:
        if not isinstance(value, np.ndarray) or value.dtype not in (np.float32, np.float64):
            return False
        if not _fits(value, shape, sizes) or (filled and value.size == 0):
            return False
        sound = np.isfinite(value) if finite else ~np.isnan(value)
        return (nan or bool(sound.all())) and _is_within(value, least, above, most)

    text = f"{'finite ' if finite and not nan else ''}floats of shape {_shape_text(shape)}{_bounds(least, above, most)}"
    return Kind(f"{text}{', not empty' if filled else ''}", holds, sized=True)


def nans(size: str, n_nan: str) -> Kind:
    """Return an array of floats of which a number are NaN, at least one."""

    def holds(value: Any, sizes: dict[str, int]) -> bool:
        if not floats(size, nan=True).is_satisfied_by(value, sizes):
            return False
        found = int(np.isnan(value).sum())
        return found > 0 and sizes.setdefault(n_nan, found) == found

    return Kind(f"floats of shape ({size},), {n_nan} of them NaN", holds, sized=True)


def equal(size: str, other: str) -> Kind:
    """Return None, which means that a size is equal to another one, whose value is known."""

    def holds(value: Any, sizes: dict[str, int]) -> bool:
        return value is None and sizes.setdefault(size, sizes[other]) == sizes[other]

    return Kind(f"None, if {size} is {other}", holds, sized=True)


def integers(*shape: int | str, least: int = 0, below: int | str | None = None, increasing: bool = False) -> Kind:
    """Return an array of int32 or int64; `below` may be a symbol whose size is already known."""

    def holds(value: Any, sizes: dict[str, int]) -> bool:
        if not isinstance(value, np.ndarray) or value.dtype not in (np.int32, np.int64):
            return False
        if not _fits(value, shape, sizes) or not _is_within(value, least, None, None):
            return False
        if increasing and (value[:-1] > value[1:]).any():
            return False
        limit = sizes[below] if isinstance(below, str) else below
        return limit is None or value.size == 0 or int(value.max()) < limit

    text = f"integers of shape {_shape_text(shape)}, at least {least}"
    text += "" if below is None else f" and less than {below}"
    return Kind(f"{text}{', in increasing order' if increasing else ''}", holds, sized=True)


def names(size: int | str) -> Kind:
    """Return the names of columns: an array of strings."""

    def holds(value: Any, sizes: dict[str, int]) -> bool:
        texts = isinstance(value, np.ndarray) and value.dtype == object and _fits(value, (size,), sizes)
        return texts and all(type(item) is str for item in value)

    return Kind(f"an array of {size} strings", holds, sized=True)


def labels(size: int | str) -> Kind:
    """Return the names of classes, in increasing order."""

    def holds(value: Any, sizes: dict[str, int]) -> bool:
        if not isinstance(value, np.ndarray) or not _fits(value, (size,), sizes):
            return False
        if value.dtype == object and not all(isinstance(item, (str, Real)) for item in value):
            return False
        try:
            return len(value) > 0 and bool(np.all(value[:-1] < value[1:]))
        except TypeError:  # texts among numbers
            return False

    return Kind(f"an array of {size} class labels in increasing order", holds, sized=True)


def list_of(kind: Kind) -> Kind:
    """Return a list of values of one kind."""
    return Kind(f"a list of {kind}", lambda value: isinstance(value, list) and all(map(kind.is_satisfied_by, value)))


def mapping(**kinds: Kind) -> Kind:
    """Return a dict with exactly these keys."""

    def holds(value: Any, sizes: dict[str, int]) -> bool:
        if not isinstance(value, dict) or set(value) != set(kinds):
            return False
        return all(kind.is_satisfied_by(value[key], sizes) for key, kind in kinds.items())

    inner = ", ".join(f"{key!r}: {kind}" for key, kind in kinds.items())
    return Kind(f"a dict of {inner}", holds, sized=True)


# -- records, estimators and networks ----------------------------------------------------------------------------------


def record(*class_names: str, **shapes: tuple[int | str, ...]) -> Kind:
    """Return a record of one of the classes, whose arrays of these names have these shapes."""

    def holds(value: Any, sizes: dict[str, int]) -> bool:
        if name_of_class(type(value)) not in class_names:
            return False
        return all(_fits(getattr(value, name), shape, sizes) for name, shape in shapes.items())

    inner = ", ".join(f"{name} of shape {_shape_text(shape)}" for name, shape in shapes.items())
    return Kind(f"a {' or '.join(class_names)}{f' with {inner}' if inner else ''}", holds, sized=True)


def estimator(*class_names: str, method: str | None = None, inputs: str = "d", outputs: str | None = None) -> Kind:
    """Return a fitted estimator, of one of the classes or with a method, for rows of `inputs` columns."""

    def holds(value: Any, sizes: dict[str, int]) -> bool:
        if not isinstance(value, BaseEstimator) or not is_fitted(value):
            return False
        if class_names and name_of_class(type(value)) not in class_names:
            return False
        if method is not None and not hasattr(value, method):
            return False
        taken = inputs_of(value)
        given = None if outputs is None else outputs_of(value)
        fits = taken is None or sizes.setdefault(inputs, taken) == taken
        return fits and (outputs is None or (given is not None and sizes.setdefault(outputs, given) == given))

    what = " or ".join(class_names) or f"estimator with {method}"
    to = "" if outputs is None else f" to {outputs}"
    return Kind(f"a fitted {what}, of {inputs}{to} columns", holds, sized=True)


def estimators(size: str, **options: Any) -> Kind:
    """Return a list of a given number of fitted estimators."""
    kind = estimator(**options)

    def holds(value: Any, sizes: dict[str, int]) -> bool:
        if not isinstance(value, list) or sizes.setdefault(size, len(value)) != len(value):
            return False
        return all(kind.is_satisfied_by(item, sizes) for item in value)

    return Kind(f"a list of {size} estimators, each {kind}", holds, sized=True)


def network(inputs: str, outputs: str) -> Kind:
    """Return a network of finite float64 numbers, from rows of `inputs` columns to rows of `outputs` columns."""

    def holds(value: Any, sizes: dict[str, int]) -> bool:
        if not is_network(value) or not has_finite_float64(value):
            return False
        # Activations alone keep the columns.
        taken, given = widths_of(value) or (sizes[inputs], sizes[inputs])
        return sizes[inputs] == taken and sizes[outputs] == given

    return Kind(f"a torch.nn.Module of finite float64 numbers, from {inputs} to {outputs} columns", holds, sized=True)


def real_steps(pipeline: Pipeline) -> list[Any]:
    """Return the estimators of a pipeline."""
    return [step for _, step in pipeline.steps if not (step is None or isinstance(step, str))]


def is_fitted(value: Any) -> bool:
    """Return whether an estimator is fitted; a pipeline is fitted if all of its steps are."""
    if isinstance(value, Pipeline):
        return all(map(is_fitted, real_steps(value)))
    try:
        check_is_fitted(value)
    except NotFittedError:
        return False
    return True


def inputs_of(value: Any) -> int | None:
    """Return the number of columns that a fitted estimator takes; None if it takes any number."""
    if isinstance(value, Pipeline):
        return next((inputs_of(step) for step in real_steps(value)), None)
    return getattr(value, "n_features_in_", None)


def outputs_of(value: Any) -> int | None:
    """Return the number of columns that a fitted estimator transforms rows to; None if that is not known."""
    if isinstance(value, Pipeline):
        steps = real_steps(value)
        return outputs_of(steps[-1]) if steps else None
    # A file could claim any number of names, so they are not listed.
    if isinstance(value, OneToOneFeatureMixin):
        return getattr(value, "n_features_in_", None)
    if isinstance(value, SelectorMixin):
        return int(value.get_support().sum())
    if isinstance(value, ClassNamePrefixFeaturesOutMixin):
        return value._n_features_out
    return len(value.get_feature_names_out()) if hasattr(value, "get_feature_names_out") else None
