"""The kinds of all columns of a table: numbers, text and dates, as detected or as the user declares them.

pandas parses the values: numbers, dates and times, categories. This module detects whether numbers are rounded, or number or
identify the rows.
"""

import decimal
import math
import numbers
import re
from collections.abc import Mapping
from types import NoneType
from typing import Any

import numpy as np

from vicinal._tables.column_type import ColumnType, TableError, number_type, requested_type, tied_positions
from vicinal._words import shown, similar_columns

_TRUTH = {"true": True, "false": False}
# More distinct strings than this are names or sentences, not categories, unless there are ten rows or more for each.
MOST_LEVELS, _ROWS_PER_LEVEL = 50, 10
_FEWEST_NAMES = 10
_FEWEST_MARKS = 3  # rows with the same mark of a missing value
# The formats of dates; the first one that fits all entries of a column is used. If a date fits both formats of a pair, as
# 03/04/2024 does, the first is used, and a note says that the dates are ambiguous.
_DAYS = (
    "%d.%m.%Y",
    "%Y/%m/%d",
    "%m/%d/%Y",
    "%d/%m/%Y",
    "%d-%m-%Y",
    "%m-%d-%Y",
    "%m/%d/%y",
    "%d/%m/%y",
    "%d %b %Y",
    "%d %B %Y",
    "%d-%b-%Y",
    "%b %d, %Y",
    "%B %d, %Y",
)
_TIMES = ("", " %H:%M", " %H:%M:%S")
_CLOCKS = (" %I:%M %p", " %I:%M:%S %p")  # of 12 hours
_DATE_FORMATS = (
    "ISO8601",
    *(day + time for time in _TIMES for day in _DAYS),
    *(day + time for time in _CLOCKS for day in ("%Y-%m-%d", *_DAYS)),
)
_OTHER_READING = {"%m/%d": "%d/%m", "%d-%m": "%m-%d"}
_LOOKS_LIKE_A_DATE = (
    r"\s*(?:\d{4}-(?:0[1-9]|1[0-2])|\d{4}[-/]\d{1,2}[-/]\d{1,2}|\d{1,2}[./-]\d{1,2}[./-]\d{4}|\d{1,2}/\d{1,2}/\d{2}|\d{1,2}[ -][A-Za-z]{3,9}[ -]\d{4}"
    r"|[A-Za-z]{3,9} \d{1,2}, \d{4})(?!\d).*"
)


def as_frame(table: Any) -> Any:
    """Return the table as a DataFrame whose column names are strings: "x0", "x1", ... for an array."""
    import pandas as pd

    if isinstance(table, pd.DataFrame):
        frame = table.copy(deep=False)
        frame.columns = [str(name) for name in frame.columns]
    elif hasattr(table, "to_pandas"):
        return as_frame(table.to_pandas())
    else:
        values = np.asarray(table)
        if values.ndim != 2:
            raise TableError(f"a table must have rows and columns, got an array of shape {values.shape}.")
        frame = pd.DataFrame(values, columns=[f"x{i}" for i in range(values.shape[1])])
    if frame.columns.has_duplicates:
        name = frame.columns[frame.columns.duplicated()][0]
        raise TableError(f"the table has two columns with the name {name!r}. Rename one of them.")
    # pandas cannot compare values in the byte order of another machine, as binary files (FITS, for example) hold them.
    for name in frame.columns[[isinstance(dtype, np.dtype) and not dtype.isnative for dtype in frame.dtypes]]:
        frame[name] = frame[name].astype(frame[name].dtype.newbyteorder("="))
    # Columns of NumPy numbers need no conversion; a table may have thousands of them.
    for name in frame.columns[[dtype.kind not in "iufb" for dtype in frame.dtypes]]:
        column = frame[name]
        plain = _plain_values(column)
        if plain is not column:
            frame[name] = plain
    return frame


def _plain_values(column: Any) -> Any:
    """Return a column of objects that are numbers or truth values as such, other objects as text, a period as its start, and a
    duration in days.
    """
    import pandas as pd
    from pandas.api.types import is_timedelta64_dtype

    if isinstance(column.dtype, pd.PeriodDtype):
        return column.dt.to_timestamp()
    if is_timedelta64_dtype(column):
        return column.dt.total_seconds() / 86_400.0
    if column.dtype != object and not isinstance(column.dtype, pd.StringDtype):
        return column
    known = column.dropna()
    if not len(known):
        return column
    if known.map(type).eq(str).all():
        if all(value.strip().casefold() in _TRUTH for value in known.unique()):
            return column.map(lambda value: _TRUTH[value.strip().casefold()], na_action="ignore").astype("boolean")
        return column
    if known.map(lambda value: isinstance(value, (bool, np.bool_))).all():
        return column.astype("boolean")
    if known.map(lambda value: isinstance(value, (numbers.Real, decimal.Decimal))).all():
        return column.map(_as_float, na_action="ignore").astype(np.float64)
    return column.map(str, na_action="ignore")  # bytes, lists and records can be compared as text only


def _as_float(value: Any) -> float:
    """Return a number as a float, which is infinite if the number is a whole one that is too large."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def column_types(table: Any, types: Mapping[str, Any] | None = None) -> dict[str, ColumnType]:
    """Detect the kind of each column of a table.

    Parameters
    ----------
    table : DataFrame, or array of shape (n, d)
        The table.
    types : dict, optional
        Overrides by column: a :class:`ColumnType`, or a string: one of the kinds, "lattice:0.5" with a step,
        or "date:%d/%m/%Y" with a format.

    Returns
    -------
    dict of str to ColumnType

    Notes
    -----
    ==============  =================================================================================================
    kind            detected if
    ==============  =================================================================================================
    "empty"         there is no value
    "constant"      there is one value
    "counter"       whole numbers number the rows: each is one more than the one above it
    "identifier"    the values are whole numbers and the column is named like an id; or they never repeat, and fill a range
                    or the column is named like a key or a number; or the values are text that never repeats
    "boolean"       there are two values, as numbers, or True and False
    "lattice"       nearly all values are ``offset + k * step``, and they repeat or the step is coarse compared with their
                    spread: counts and rounded measurements
    "tied"          more than 5 % of the rows repeat a value, and the values are on no lattice: quantities that are often
                    exactly zero, logarithms and ratios of counts (rows that repeat as a whole are counted once)
    "continuous"    all other numbers
    "date"          the values are times, or text that consists of dates of one format
    "category"      the values are text, with at most 50 different values, or at least ten rows per value
    "text"          the values are other text
    ==============  =================================================================================================

    Examples
    --------
    >>> import pandas as pd
    >>> from vicinal.tables import column_types
    >>> table = pd.DataFrame({"price": [9.5, 8.0, 9.5, 7.0], "day": ["2024-01-05", "2024-02-01", None, "2024-03-01"]})
    >>> {name: str(kind) for name, kind in column_types(table).items()}
    {'price': 'lattice of step 0.5', 'day': 'date (ISO8601)'}
    """
    frame = as_frame(table)
    if not isinstance(types, (Mapping, NoneType)):
        raise TypeError(
            f"types must be a dict of names of columns and their types or None, got {type(types).__name__}."
        )
    types = {} if types is None else dict(types)
    for name in types:
        if name not in frame.columns:
            raise TableError(f"types: there is no column {name!r}. The table has {shown(frame.columns)}.")

    def kind_of(column: Any) -> ColumnType:
        return _requested(column, types[column.name]) if column.name in types else _found(column)

    found = {name: kind_of(frame[name]) for name in frame.columns}
    again = [list(found)[k] for k in tied_positions(list(found.values()))]
    if again:
        import pandas as pd

        try:  # by hashes, which take less memory than a copy of the table
            repeats = pd.util.hash_pandas_object(frame, index=False).duplicated().to_numpy()
        except TypeError:  # entries that cannot be compared, such as lists
            return found
        found |= {name: kind_of(frame[name][~repeats]) for name in again if repeats.any()}
    return found


def is_numeric(column: Any) -> bool:
    """Return whether a column holds numbers or booleans."""
    from pandas.api.types import is_bool_dtype, is_complex_dtype, is_numeric_dtype

    return (is_numeric_dtype(column) or is_bool_dtype(column)) and not is_complex_dtype(column)


def as_numbers(column: Any) -> np.ndarray:
    """Return a column of numbers as float64 (float32 stays), NaN where a value is missing."""
    kind = np.float32 if column.dtype == np.float32 else np.float64
    return column.to_numpy(dtype=kind, na_value=np.nan)


def _found(column: Any) -> ColumnType:
    from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype

    known = column.dropna()
    if not len(known):
        return ColumnType("empty")
    if is_datetime64_any_dtype(column):
        return ColumnType("date") if known.nunique() > 1 else ColumnType("constant")
    if is_bool_dtype(column):
        return ColumnType("boolean" if known.nunique() > 1 else "constant")
    if is_numeric(column):
        # The index of a table that pandas wrote has no name.
        return number_type(as_numbers(column), str(column.name) or "Unnamed: 0")
    texts = known.astype(str)
    n_values = texts.nunique()
    if n_values == 1:
        return ColumnType("constant")
    written = date_format(texts)
    if written is not None:
        return ColumnType("date", format=written)
    if n_values == len(texts) and len(texts) >= _FEWEST_NAMES and not hidden_numbers(texts):
        return ColumnType("identifier")
    return ColumnType("category" if n_values <= max(MOST_LEVELS, len(texts) // _ROWS_PER_LEVEL) else "text")


def hidden_numbers(texts: Any) -> str | None:
    """Return what most strings of a column are: "some" numbers (others are not), numbers with decimal "commas", numbers with "signs"
    and separators of thousands, "times" or dates of another format, or None.
    """
    import pandas as pd

    if not len(texts):
        return None

    def most(pattern: str) -> bool:
        return texts.str.fullmatch(pattern).mean() > 0.5

    if pd.to_numeric(texts, errors="coerce").notna().mean() > 0.5:
        return "some"
    if most(r"\s*[-+]?\d+,\d+\s*") and not most(r"\s*[-+]?[1-9]\d{0,2}(,\d{3})+\s*"):
        return "commas"
    if most(r"\s*[-+(]?\s*[$€£¥]?\s*[-+]?\d[\d,' ]*(\.\d+)?\s*[%$€£¥)]?\s*"):
        return "signs"
    if most(
        r"\s*(\d{4}[-/]\d{1,2}|\d{1,2}:\d{2}(:\d{2})?(\s*[AaPp][Mm])?|(\d{1,4}|[A-Za-z]{3,9})[-/ ]\w{1,9}[-/ ,]+\d{1,4}(\D.*)?)\s*"
    ):
        return "times"
    return None


def date_format(texts: Any) -> str | None:
    """Return the format in which all strings are dates, or None."""
    if not texts.head(5).str.fullmatch(_LOOKS_LIKE_A_DATE).all():
        return None
    possible = [written for written in _DATE_FORMATS if read_dates(texts.head(20), written).notna().all()]
    return next((written for written in possible if read_dates(texts, written).notna().all()), None)


def looks_like_days(numbers: np.ndarray) -> bool:
    """Return whether numbers are days that are written as 20210304."""
    import pandas as pd

    numbers = numbers[~np.isnan(numbers)]
    if not len(numbers) or numbers.min() < 18_000_101 or numbers.max() > 22_001_231 or (numbers % 1).any():
        return False
    texts = pd.Series(np.unique(numbers)).astype(np.int64).astype(str)
    return bool(pd.to_datetime(texts, format="%Y%m%d", errors="coerce").notna().all())


def missing_marks(values: np.ndarray) -> list[tuple[float, int, float, float]]:
    """Return the smallest and the largest value if they look like marks of missing values, each with its frequency and the range of the others.

    Such a value repeats and lies farther from the others than these are apart; or it repeats more often than its neighbour and is
    written like a mark: -1, -9, -99 ... as the only negative value, or 9, 99, 999 ... beyond a tenth of the range of the others.
    """
    distinct, counts = np.unique(values, return_counts=True)
    marks = []
    for first, second in ((0, 1), (-1, -2)):
        if len(distinct) < _FEWEST_NAMES or counts[first] < _FEWEST_MARKS:
            continue
        mark, others = float(distinct[first]), np.delete(distinct, first)
        gap, spread = abs(mark - float(distinct[second])), float(np.ptp(others))
        written = re.fullmatch(r"-1|-?9+(\.9+)?", f"{mark:.10g}") and counts[first] > counts[second]
        alone = others[0] >= 0 if mark < 0 else gap > spread / 10
        if gap > spread or (written and alone):
            marks.append((mark, int(counts[first]), float(others[0]), float(others[-1])))
    return marks


def other_reading(texts: Any, written: str) -> str | None:
    """Return the format with day and month exchanged if it fits all strings as well, else None."""
    for first, second in _OTHER_READING.items():
        if first in written:
            other = written.replace(first, second)
            return other if read_dates(texts, other).notna().all() else None
    return None


def read_dates(column: Any, written: str | None) -> Any:
    """Return a column of times as pandas stores them, without a time zone; NaT where an entry is not a date.

    A format is for text, which is read as ISO 8601 without one: pandas would guess, and take 03/04/2024 for a day of March. Times that
    are stored as such are taken as they are.
    """
    import pandas as pd
    from pandas.api.types import is_datetime64_any_dtype

    if is_datetime64_any_dtype(column):
        dates = column
    else:
        written = written or "ISO8601"
        column = column.astype("Int64") if column.dtype.kind == "f" else column  # 20210304 with a gap is a float
        dates = pd.to_datetime(column.astype("string").str.strip(), format=written, errors="coerce", utc=True)
    return dates.dt.tz_convert("UTC").dt.tz_localize(None) if dates.dt.tz is not None else dates


def _requested(column: Any, asked: Any) -> ColumnType:
    """Return the kind that the user requests, with details from the column; raise an error if it is not possible."""
    name = str(column.name)
    spec = asked.spec if isinstance(asked, ColumnType) else asked
    kind, _, detail = spec.partition(":") if isinstance(spec, str) else ("", "", "")
    if kind in ("continuous", "lattice", "tied", "boolean", "counter") and not is_numeric(column):
        raise TableError(f"types: {name!r} cannot be {kind}, because it holds {column.dtype} and not numbers.")
    if kind == "date":
        return _requested_date(column, detail, name)
    return requested_type(as_numbers(column) if is_numeric(column) else np.zeros(0), asked, name)


def _requested_date(column: Any, written: str, name: str) -> ColumnType:
    from pandas.api.types import is_datetime64_any_dtype

    if is_datetime64_any_dtype(column):
        return ColumnType("date")
    texts = (column.astype("Int64") if column.dtype.kind == "f" and not (column % 1 > 0).any() else column).dropna()
    texts = texts.astype(str)
    found = written or date_format(texts)
    try:
        fits = found is not None and read_dates(texts, found).notna().all()
    except (ValueError, re.error) as error:  # pandas makes a regular expression of the format
        raise TableError(f"types: {written!r} is not a format of dates for {name!r}: {error}.") from error
    if not fits:
        example = f", as in {texts.iloc[0][:30]!r}" if len(texts) else ""
        raise TableError(
            f"types: {name!r} is not a date{f' of the format {written!r}' if written else ''}{example}. Name the format, as "
            "in 'date:%d/%m/%Y'."
        )
    return ColumnType("date", format=found)


def check_names(names: Any, columns: Any, option: str) -> None:
    """Raise an error for names that the table does not have, with similar names as a hint."""
    for name in names:
        if name not in columns:
            hint = similar_columns([name], [column for column in columns if column not in names])
            raise TableError(f"{option}: there is no column {name!r}.{hint} The table has {shown(columns)}.")


def parse_types(assignments: list[str] | None, columns: Any) -> dict[str, str]:
    """Return the kinds of ``COL=KIND`` assignments; a name may hold an equals sign."""
    found: dict[str, str] = {}
    for text in assignments or ():
        name, equals, kind = text.rpartition("=")
        if not equals or not name:
            raise TableError(f"expected COL=KIND, got {text!r}.")
        if name not in columns:
            raise TableError(f"there is no column {name!r}.{similar_columns([name], columns)}")
        found[name] = kind
    return found
