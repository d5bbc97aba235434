"""The declarations of the state that a class keeps in a model file.

A declaration is a `State`: a kind of value per attribute. Sizes are symbols, which denote the same number in the whole state, so that
no compiled code reads outside of an array::

    State(
        {
            "n_features_in_": count("d", least=1),
            "components_": floats("k", "d"),
            "feature_names_in_": maybe(names("d")),     # it may be absent
            "_stream": field(None, floats("d", "d")),   # None, or an array
        }
    )
"""

import math
import re
import warnings
from collections.abc import Callable, Collection, Mapping
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from vicinal._model_files.classes import Fault, is_network, name_of_class

Sizes = dict[str, int]  # the known sizes, by symbol
# Squares of larger entries overflow, and estimators refuse to be fitted to them.
_LARGEST = 1e150
# An estimator may hold no array of this length, or one without rows, and creates one name per feature when names are requested.
MOST_COLUMNS = 10**6


class Kind(NamedTuple):
    """A kind of value: a description, and a function of a value and the known sizes, to which it adds.

    The function returns whether the value is of this kind.
    """

    text: str
    holds: Callable[[Any, Sizes], Any]

    def accepts(self, value: Any, sizes: Sizes) -> bool:
        """Return whether the value is of this kind; only then are sizes added."""
        grown = dict(sizes)
        accepted = bool(self.holds(value, grown))
        if accepted:
            sizes.update(grown)
        return accepted


def kind(holds: Callable[..., Any]) -> Callable[..., Kind]:
    """Turn a function of a value, the known sizes and the details of a kind into a function of the details that returns the kind.

    The description is the call itself, as in "floats(k, d, filled=True)".
    """

    def of(*details: Any, **options: Any) -> Kind:
        words = [part.text if isinstance(part, Kind) else str(part) for part in details]
        words += [f"{name}={part.text if isinstance(part, Kind) else part}" for name, part in options.items()]
        return Kind(
            f"{holds.__name__}({', '.join(words)})", lambda value, sizes: holds(value, sizes, *details, **options)
        )

    of.__doc__ = holds.__doc__
    return of


NONE = Kind("None", lambda value, sizes: value is None)


class Field(NamedTuple):
    """One attribute of a state."""

    kinds: tuple[Kind, ...]
    required: bool = True

    def __str__(self) -> str:
        return " or ".join(kind.text for kind in self.kinds)


Fields = Mapping[str, Kind | Field]


def field(*kinds: Kind | None) -> Field:
    """Return a field that holds a value of one of the kinds; None among them is the value None."""
    return Field(tuple(NONE if kind is None else kind for kind in kinds))


def maybe(*kinds: Kind | None) -> Field:
    """Return a field that some states do not have."""
    return field(*kinds)._replace(required=False)


class State:
    """The state that a class keeps in a file.

    Parameters
    ----------
    fields : dict
        Kinds or `Field`s by attribute; a key may hold several attributes, separated by spaces.
    early : list of str
        The attributes of an estimator that has seen rows, but not enough of them to be fitted.
    derived : list of str
        The attributes that a file does not hold, because the method `_derive` of the class computes them from the others.
    """

    def __init__(self, fields: Fields, *, early: Collection[str] = (), derived: Collection[str] = ()) -> None:
        self.fields = {
            name: part if isinstance(part, Field) else field(part)
            for key, part in fields.items()
            for name in key.split()
        }
        self.early, self.derived = set(early), derived

    def fault(self, values: Mapping[str, Any]) -> Fault | None:
        """Return the first fault of the values; None if there is none.

        Either all required values (or all early ones) are present or, if the estimator is not fitted, none of them.
        """
        present = set(values) - {"_sklearn_output_config"}  # which may be set before a fit
        expected = self.early if present <= self.early else set(self.fields)
        for name, part in self.fields.items():
            if present and part.required and name in expected - present:
                return Fault(name, str(part), "nothing")
        sizes: Sizes = {}
        for name, part in self.fields.items():
            if name in values and not any(kind.accepts(values[name], sizes) for kind in part.kinds):
                words = re.findall(r"\w+", str(part))
                known = ", ".join(f"{symbol}={size}" for symbol, size in sizes.items() if symbol in words)
                return Fault(name, f"{part}{f', where {known}' if known else ''}", shown(values[name]))
        return None


def shown(value: Any) -> str:
    """Return a value in a few characters: an array by its shape, a string with control characters escaped."""
    if isinstance(value, np.ndarray):
        has_range = value.dtype.kind in "iuf" and value.size
        extent = f" with values from {value.min():.6g} to {value.max():.6g}" if has_range else ""
        return f"an array of dtype {value.dtype} and shape {value.shape}{extent}"
    if value is None or isinstance(value, (str, Real)):
        text = ascii(value)
        return text if len(text) <= 80 else f"{text[:77]}..."
    return f"a {name_of_class(type(value)) or type(value).__name__}"


# -- numbers, strings and arrays ---------------------------------------------------------------------------------------


def _is_within(values: Any, least: float | None, most: float | None) -> bool:
    """Return whether no value lies outside the bounds; NaN is never outside."""
    if np.size(values) == 0:
        return True
    # In Python's floats: a bound may be beyond float32.
    smallest, largest = float(np.fmin.reduce(values, axis=None)), float(np.fmax.reduce(values, axis=None))
    return not (least is not None and smallest < least) and not (most is not None and largest > most)


def _fits(array: Any, shape: tuple[int | str, ...], sizes: Sizes) -> bool:
    """Return whether an array has the shape, in numbers and symbols; the sizes of new symbols are recorded."""
    if not isinstance(array, np.ndarray) or array.ndim != len(shape):
        return False
    return all(
        size == (sizes.setdefault(part, size) if isinstance(part, str) else part)
        for part, size in zip(shape, array.shape, strict=True)
    )


@kind
def count(value: Any, sizes: Sizes, symbol: str | None = None, *, least: int = 0, most: int | None = None) -> bool:
    """Whole numbers of Python or NumPy; with a symbol, that size."""
    if not isinstance(value, Integral) or isinstance(value, bool) or not _is_within(value, least, most):
        return False
    return symbol is None or sizes.setdefault(symbol, int(value)) == value


@kind
def number(value: Any, sizes: Sizes, *, finite: bool = True) -> bool:
    """Numbers of Python or NumPy, never NaN; finite or not."""
    if not isinstance(value, Real) or isinstance(value, (bool, np.bool_)):
        return False
    return math.isfinite(value) if finite else not math.isnan(value)


@kind
def one_of(value: Any, sizes: Sizes, *choices: str) -> bool:
    """Some strings."""
    return isinstance(value, str) and value in choices


@kind
def floats(
    value: Any,
    sizes: Sizes,
    *shape: int | str,
    finite: bool = True,
    nan: bool = False,
    least: float | None = None,
    most: float | None = None,
    filled: bool = False,
) -> bool:
    """Arrays of float32 or float64; NaN is allowed only if that is declared, no entries only if it is not `filled`."""
    if not _fits(value, shape, sizes) or value.dtype not in (np.float32, np.float64) or (filled and not value.size):
        return False
    sound = np.isfinite(value) if finite else ~np.isnan(value)
    return (nan or bool(sound.all())) and _is_within(value, least, most)


@kind
def rows(value: Any, sizes: Sizes, *shape: int | str) -> bool:
    """Arrays of floats whose squares do not overflow, with at least one entry."""
    return floats(*shape, filled=True).holds(value, sizes) and _is_within(value, -_LARGEST, _LARGEST)


@kind
def nans(value: Any, sizes: Sizes, size: str, n_nan: str) -> bool:
    """Arrays of floats of which a number are NaN, at least one."""
    if not floats(size, nan=True).holds(value, sizes):
        return False
    n_gaps = int(np.isnan(value).sum())
    return n_gaps > 0 and sizes.setdefault(n_nan, n_gaps) == n_gaps


@kind
def equal(value: Any, sizes: Sizes, size: str, other: str) -> bool:
    """None, which means that a size is equal to another one, whose value is known."""
    return value is None and sizes.setdefault(size, sizes[other]) == sizes[other]


@kind
def integers(
    value: Any,
    sizes: Sizes,
    *shape: int | str,
    least: int = 0,
    below: int | str | None = None,
    increasing: bool = False,
) -> bool:
    """Arrays of int32 or int64; `below` may be a symbol whose size is already known."""
    if not _fits(value, shape, sizes) or value.dtype not in (np.int32, np.int64) or not _is_within(value, least, None):
        return False
    if increasing and (value[:-1] > value[1:]).any():
        return False
    limit = sizes[below] if isinstance(below, str) else below
    return limit is None or value.size == 0 or int(value.max()) < limit


@kind
def names(value: Any, sizes: Sizes, size: int | str) -> bool:
    """Arrays of strings, such as the names of columns."""
    return _fits(value, (size,), sizes) and value.dtype == object and all(type(item) is str for item in value)


@kind
def labels(value: Any, sizes: Sizes, size: int | str) -> bool:
    """The names of classes, in increasing order."""
    if not _fits(value, (size,), sizes):
        return False
    try:
        return len(value) > 0 and bool(np.all(value[:-1] < value[1:]))
    except TypeError:  # texts among numbers
        return False


@kind
def levels(value: Any, sizes: Sizes, size: int | str) -> bool:
    """The levels of a category: strings, finite numbers or truth values."""
    if not _fits(value, (size,), sizes):
        return False
    plain = value.dtype in (np.bool_, np.int64, np.float64) and bool(np.isfinite(value).all())
    return plain or names(size).holds(value, sizes)


@kind
def beside_levels(value: Any, sizes: Sizes, size: str, each: Kind) -> bool:
    """What an estimator holds whose columns are partly levels, so that a size is known."""
    return size in sizes and each.accepts(value, sizes)


@kind
def mapping(value: Any, sizes: Sizes, **kinds: Kind) -> bool:
    """Dicts with exactly these keys."""
    if not isinstance(value, dict) or set(value) != set(kinds):
        return False
    return all(part.accepts(value[key], sizes) for key, part in kinds.items())


@kind
def table(value: Any, sizes: Sizes, *needed: str) -> bool:
    """Tables of a search: dicts of columns of one length, among them the needed ones, and a list of parameters or none."""
    if not isinstance(value, dict) or not set(needed) <= set(value):
        return False
    columns = [column for name, column in value.items() if name != "params"]
    params = value.get("params", [{}] * len(columns[0]))
    return (
        all(isinstance(name, str) for name in value)
        and all(isinstance(column, np.ndarray) and column.dtype.kind in "ifU" for column in columns)
        and isinstance(params, list)
        and all(isinstance(row, dict) for row in params)
        and {column.shape for column in columns} == {(len(params),)}
    )


FLAG = Kind("True or False", lambda value, sizes: isinstance(value, (bool, np.bool_)))
TEXT = Kind("a string", lambda value, sizes: isinstance(value, str))
DIGEST = Kind("a string of 64 characters", lambda value, sizes: isinstance(value, str) and len(value) == 64)
RANDOM_STATE = Kind("a RandomState", lambda value, sizes: isinstance(value, np.random.RandomState))
NETWORK = Kind("a torch.nn.Module", lambda value, sizes: is_network(value))


# -- records and estimators --------------------------------------------------------------------------------------------


@kind
def record(value: Any, sizes: Sizes, *class_names: str, **shapes: tuple[int | str, ...]) -> bool:
    """Records of one of the classes, whose arrays of these names have these shapes."""
    if name_of_class(type(value)) not in class_names:
        return False
    return all(_fits(getattr(value, name), shape, sizes) for name, shape in shapes.items())


@kind
def records(value: Any, sizes: Sizes, size: str, class_name: str) -> bool:
    """Tuples of a given number of records of a class, at least one."""
    if not isinstance(value, tuple) or not value or sizes.setdefault(size, len(value)) != len(value):
        return False
    return all(name_of_class(type(item)) == class_name for item in value)


@kind
def estimator(
    value: Any, sizes: Sizes, *class_names: str, method: str = "fit", inputs: str = "d", outputs: str | None = None
) -> bool:
    """Fitted estimators, of one of the classes or with a method, for rows of `inputs` columns."""
    if not isinstance(value, BaseEstimator) or (class_names and name_of_class(type(value)) not in class_names):
        return False
    try:
        check_is_fitted(value)
    except NotFittedError:
        return False
    n_inputs = getattr(value, "n_features_in_", sizes.get(inputs))
    if not hasattr(value, method):
        return False
    if n_inputs is None:
        return outputs is None
    if sizes.setdefault(inputs, n_inputs) != n_inputs:
        return False
    if outputs is None:
        return True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the missing names of columns
        n_outputs = np.shape(value.transform(np.zeros((1, n_inputs))))[1]
    return sizes.setdefault(outputs, n_outputs) == n_outputs


@kind
def estimators(value: Any, sizes: Sizes, size: str, each: Kind) -> bool:
    """Lists of a given number of fitted estimators."""
    if not isinstance(value, list) or sizes.setdefault(size, len(value)) != len(value):
        return False
    return all(each.accepts(item, sizes) for item in value)
