"""Detection of the kind of a column of numbers: measurements, rounded measurements, booleans, identifiers, constants."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from vicinal._words import shown

KINDS = (
    "continuous",
    "lattice",
    "tied",
    "boolean",
    "category",
    "indicator",
    "date",
    "text",
    "identifier",
    "counter",
    "constant",
    "empty",
)
# The kinds from which any density can be learned: the values are quantities, and noise can undo rounding (a lattice).
MEASURED = ("continuous", "lattice")
# The kinds that `LCA` and `ParzenWindows` learn as levels beside the quantities.
LEVELS = ("boolean", "category")
DAYS = "days"  # the format of a quantity that was made of dates

# Values tie if more than this share of the rows repeat an earlier one.
_MANY_REPEATS = 0.05
# A step that is less than this share of the range of the middle 80 % of the values is indistinguishable from no rounding at
# the scale of any kernel. Neither this share nor those below depend on the number of rows.
_FINE = 4e-6
# Values are far apart if they fill less than one of this many points of the lattice around them.
_FAR = 4
_FLOAT32 = 2.0**-24  # the relative rounding error of float32
_NEARLY_ALL = 0.95  # the share of the values that must lie on a lattice
# With fewer rows than this, quantities cannot be distinguished reliably from identifiers or booleans.
_FEWEST_ROWS = 10
# "CustomerID" and "userId" are read as "customer_id" and "user_id".
_WORD_BREAK = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ID_NAME = re.compile(r"(^|[\W_])(id|uuid)([\W_]|$)")
# Columns with these names are identifiers if no value repeats. Compounds are listed, because many words end in "id".
_UNIQUE_NAME = re.compile(
    r"(^|[\W_])(key|index)([\W_]|$)|[a-z][\W_]+(no|nr|num|number)\.?$|^unnamed: \d+$"
    r"|(account|case|client|customer|device|employee|event|invoice|item|member|object|order|passenger|patient|person"
    r"|product|record|row|sample|session|store|student|subject|ticket|transaction|user|visit)(id|key|number|no|nr)$"
)


class TableError(ValueError):
    """A table that cannot be used.

    Parameters
    ----------
    message : str
        The problem and the remedy.
    notes : list of Note
        Notes about the table up to the error.
    """

    def __init__(self, message: str, notes: Iterable[Any] = ()) -> None:
        super().__init__(message)
        self.notes = list(notes)


class ColumnType(NamedTuple):
    """The kind of a column.

    Attributes
    ----------
    kind : str
        One of "continuous", "lattice", "tied", "boolean", "category", "date", "text", "identifier", "counter", "constant",
        "empty", and "indicator" for a 0/1 column that was made of a value of a category.
    step, offset : float or None
        The lattice: its values are ``offset + k * step`` with whole numbers k. None for other kinds.
    format : str or None
        The format of dates that are written as text: "ISO8601", or a format of ``strptime``; the levels of a column of codes, as JSON;
        "days" for a quantity that counts the days since 1970-01-01, which a :class:`vicinal.TableEncoder` makes of dates. None for others.
    tied : float
        The share of the rows of a tied column whose value occurs in an earlier row. It is 0 for real
        measurements; a density of many tied values can be made arbitrarily high. A tied column that the user declares
        continuous keeps its share.
    log : bool
        Whether the column holds logarithms of values of this kind.
    """

    kind: str
    step: float | None = None
    offset: float | None = None
    format: str | None = None
    tied: float = 0.0
    log: bool = False

    def __str__(self) -> str:
        if self.log:
            return f"logarithm ({self._replace(log=False)})"
        if self.kind == "lattice":
            return f"lattice of step {self.step:g}"
        if self.kind == "tied":
            return f"tied ({100 * self.tied:.0f} % of the rows repeat a value)"
        return f"date ({self.format})" if self.kind == "date" and self.format else self.kind

    @property
    def spec(self) -> str:
        """The string that selects this kind: "lattice:0.5", "date:%d/%m/%Y", "boolean"."""
        detail = self.format if self.step is None else repr(float(self.step)) + (":log" if self.log else "")
        return f"{self.kind}:{detail}" if detail and detail != DAYS else self.kind

    @property
    def are_days(self) -> bool:
        """Whether the values are days since 1970-01-01, which are shown as dates."""
        return self.format == DAYS

    @property
    def measured(self) -> bool:
        """Whether the values are quantities, from which any density can be learned."""
        return self.kind in MEASURED

    @property
    def levels(self) -> list[str]:
        """The levels of a column of codes, in their order; empty for other columns."""
        return json.loads(self.format) if self.has_levels and self.format else []

    @property
    def has_levels(self) -> bool:
        """Whether the values are levels, which `LCA` and `ParzenWindows` learn beside quantities."""
        return self.kind in LEVELS


def number_type(values: np.ndarray, name: str = "") -> ColumnType:
    """Return the kind of a column of numbers.

    Parameters
    ----------
    values : array of shape (n,)
        The values, with NaN for missing ones. Their order matters: it shows whether a column numbers the rows.
    name : str
        The name of the column. Whole numbers in a column whose name marks it as an id are identifiers.
    """
    values = np.asarray(values)
    values = values.astype(np.float64)
    known = np.isfinite(values)
    found = values[known]
    if not len(found):
        return ColumnType("empty")
    distinct = np.unique(found)
    if len(distinct) == 1:
        return ColumnType("constant")
    if not (np.floor(found) != found).any():
        if _counts_rows(values, known):
            return ColumnType("counter")
        if _names_rows(name, found, distinct):
            return ColumnType("identifier")
    if len(distinct) == 2 and (set(distinct.tolist()) == {0.0, 1.0} or len(found) >= _FEWEST_ROWS):
        return ColumnType("boolean")
    tied = 1.0 - len(distinct) / len(found)
    lattice = find_lattice(found)
    if lattice is None:
        return ColumnType("tied", tied=tied) if tied > _MANY_REPEATS else ColumnType("continuous")
    if not _filled(found, lattice[0]):
        lattice = _converted_lattice(found, lattice[0])
        if lattice is None:
            return ColumnType("tied", tied=tied)
    lower, upper = np.quantile(found, [0.1, 0.9])
    return ColumnType("lattice", *lattice) if lattice[0] > _FINE * (upper - lower) else ColumnType("continuous")


def _filled(values: np.ndarray, step: float) -> bool:
    """Return whether most rows have a value that occurs once, or that has others on the points of the lattice near it.

    Smooth quantities that are rounded repeat a value only after they have filled the points around it, however many rows there
    are. A few values that repeat far apart are not rounded quantities, whatever their decimals: a density of them can be made
    nearly as high as the step is small.
    """
    distinct, counts = np.unique(values, return_counts=True)
    gaps = np.diff(distinct) / step
    points = (np.append(gaps, gaps[-1]) + np.insert(gaps, 0, gaps[0])) / 2.0
    return counts[(counts > 1) & (points > _FAR)].sum() <= len(values) / 2


def _counts_rows(values: np.ndarray, known: np.ndarray) -> bool:
    """Return whether whole numbers are the numbers of the rows of the table; some of them may be missing."""
    first = values[known] - np.flatnonzero(known)
    few = 3 if first[0] in (0, 1) else _FEWEST_ROWS
    return len(first) >= few and bool((first == first[0]).all())


def _names_rows(name: str, found: np.ndarray, distinct: np.ndarray) -> bool:
    """Return whether whole numbers are identifiers, by their name or because they never repeat and fill a range."""
    if len(found) < _FEWEST_ROWS:
        return False
    name = _WORD_BREAK.sub("_", name.strip()).casefold()
    if _ID_NAME.search(name):
        return True
    no_gaps = distinct[-1] == distinct[0] + (len(found) - 1)  # the range of huge numbers would overflow
    return len(distinct) == len(found) and bool(no_gaps or _UNIQUE_NAME.search(name))


def requested_type(values: np.ndarray, asked: "str | ColumnType", name: str) -> ColumnType:
    """Return the kind of a column of numbers that the user requests, with details from the values."""
    if isinstance(asked, ColumnType):
        found = requested_type(values, asked.spec, name)._replace(format=asked.format, log=asked.log)
        return found if asked.offset is None else found._replace(offset=asked.offset)
    if not isinstance(asked, str):
        raise TypeError(f"types: the kind of {name!r} must be a string or a ColumnType, got {type(asked).__name__}.")
    kind, _, detail = asked.partition(":")
    if kind == "lattice" and detail.endswith(":log"):
        return requested_type(np.exp(values), asked.removesuffix(":log"), name)._replace(log=True)
    if kind not in KINDS:
        raise TableError(f"types: {name!r} cannot be {kind!r}; expected one of {', '.join(KINDS)}.")
    if kind in ("continuous", "tied"):
        return ColumnType(kind, tied=number_type(values).tied)
    if kind in LEVELS and detail:
        return ColumnType(kind, format=detail)
    if kind != "lattice":
        return ColumnType(kind)
    values = np.asarray(values, dtype=np.float64)
    values = values[np.isfinite(values)]
    if not detail:
        lattice = find_lattice(values) if len(values) and np.ptp(values) else (1.0, 0.0)
        if lattice is None:
            raise TableError(f"types: the values of {name!r} have no common step. Pass one, as in 'lattice:0.5'.")
        return ColumnType("lattice", *lattice)
    try:
        step = float(detail)
    except ValueError:
        step = 0.0
    if not (np.isfinite(step) and step > 0):
        raise TableError(f"types: the step of {name!r} must be a number greater than 0, got {detail!r}.")
    return ColumnType("lattice", step, float(values[0] % step) if len(values) else 0.0)


def array_types(X: np.ndarray, names: list[str], types: Mapping[Any, Any] | None = None) -> list[ColumnType]:
    """Return the kinds of the columns of an array, as detected or, for names (or positions) in `types`, as requested."""
    asked = {
        names[key] if isinstance(key, int) and key < len(names) else key: kind for key, kind in (types or {}).items()
    }
    unknown = [key for key in asked if key not in names]
    if unknown:
        raise TableError(f"types: there is no column {unknown[0]!r}. There are {shown(names)}.")

    def kind_of(name: str, column: np.ndarray) -> ColumnType:
        return requested_type(column, asked[name], name) if name in asked else number_type(column, name)

    found = [kind_of(name, column) for name, column in zip(names, X.T, strict=True)]
    again = tied_positions(found)
    if again:
        once = np.sort(np.unique(X, axis=0, return_index=True)[1])
        for k in again if len(once) < len(X) else ():
            found[k] = kind_of(names[k], X[once, k])
    return found


def tied_positions(kinds: Sequence[ColumnType]) -> list[int]:
    """Return the positions of tied columns that must be checked again without the rows that repeat completely.

    Such rows tie all of their columns, whatever the values are. With a single column of quantities this cannot be decided.
    """
    if sum(kind.kind in ("tied", "continuous", "lattice") for kind in kinds) < 2:
        return []
    return [k for k, kind in enumerate(kinds) if kind.tied]


def find_lattice(values: np.ndarray) -> tuple[float, float] | None:
    """Return the step and the offset of the coarsest lattice that holds nearly all values (95 %), or None.

    Not all values need to lie on it, because tables mix precisions, such as 12.7 and 12.74999. Numbers that were stored in
    float32 once, such as 690.799987792969 for 690.8, are recognised.

    Parameters
    ----------
    values : array of shape (n,)
        Finite, with at least two different ones.
    """
    distinct, counts = np.unique(values, return_counts=True)
    largest = float(np.abs(distinct).max())
    errors = [2.0**-50 * largest]
    if largest < 3e38 and np.allclose(distinct, distinct.astype(np.float32), rtol=1e-14, atol=0.0):
        errors.append(_FLOAT32 * largest)
    for error in errors:
        lattice = _decimal_lattice(distinct, counts, error)
        if lattice is not None:
            return lattice
    return _lattice_of_any_step(distinct, counts, errors[-1])


def _decimal_lattice(distinct: np.ndarray, counts: np.ndarray, error: float) -> tuple[float, float] | None:
    """Return a lattice whose step has a short decimal form."""
    largest = float(np.abs(distinct).max())
    for digits in range(10):
        scaled = distinct * 10.0**digits
        slack = error * 10.0**digits
        if slack > 0.05 or largest * 10.0**digits > 2.0**52:
            return None
        whole = np.rint(scaled)
        fits = np.abs(scaled - whole) <= slack
        if counts[fits].sum() >= _NEARLY_ALL * counts.sum() and fits.sum() > 1:
            whole = whole[fits].astype(np.int64)
            step = int(np.gcd.reduce(np.diff(whole)))
            if step == 0:  # the values differ by less than their rounding error
                continue
            return step / 10.0**digits, (int(whole[0]) % step) / 10.0**digits
    return None


def _lattice_of_any_step(distinct: np.ndarray, counts: np.ndarray, error: float) -> tuple[float, float] | None:
    """Return a lattice whose step is the smallest gap between values that repeat, or a simple fraction of it."""
    repeated = distinct[counts > 1]
    gaps = np.diff(repeated)
    if len(gaps) < 2 or gaps.min() < max(1e4 * error, 1e-300):  # the inverse of smaller gaps overflows
        return None
    for parts in range(1, 7):
        fine = parts / float(gaps.min())
        position = np.concatenate([[0.0], np.cumsum(np.rint(gaps * fine))])
        step = float((repeated[-1] - repeated[0]) / position[-1])
        away = (distinct - repeated[0]) / step
        fits = np.abs(away - np.rint(away)) <= 1e-3 + 8.0 * error / step
        if counts[fits].sum() >= _NEARLY_ALL * counts.sum():
            return step, float(repeated[0] % step)
    return None


def _converted_lattice(values: np.ndarray, rounding: float) -> tuple[float, float] | None:
    """Return the lattice of values that were rounded, converted to another unit and rounded again, or None.

    Whole degrees Fahrenheit are 0.5556 degrees Celsius apart, and printed as 12.2, 12.8, 13.3.
    """
    distinct, counts = np.unique(values, return_counts=True)
    frequent = distinct[counts >= counts.mean()]
    if len(frequent) < 6:  # fewer values would fit by chance
        return None
    gaps = np.diff(frequent)
    usual = float(gaps[gaps < 1.5 * np.median(gaps)].mean())
    position = np.insert(np.cumsum(np.rint(gaps / usual)), 0, 0.0)
    step, offset = np.polyfit(position, frequent, 1)
    fits = np.abs(distinct - offset - step * np.rint((distinct - offset) / step)) <= 0.6 * rounding
    if counts[fits].sum() < _NEARLY_ALL * len(values) or not _filled(values, step):
        return None
    return float(step), float(offset % step)


def describe_types(types: Iterable[tuple[str, ColumnType]], most: int = 8) -> str:
    """Return columns by kind for a message: "boolean: 'coin'; identifier: 'order_id'"."""
    by_kind: dict[str, list[str]] = {}
    for name, kind in types:
        said = "tied (values that repeat, but fill no even steps)" if kind.kind == "tied" else kind.kind
        by_kind.setdefault(said, []).append(str(name))
    return "; ".join(f"{kind}: {shown(names, most)}" for kind, names in by_kind.items())
