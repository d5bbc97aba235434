"""The kinds of all columns of a table: numbers, texts and dates, as found or as the user says.

Reading values is left to pandas, which does it well: numbers, dates and times, categories. What is found here is what
no library tells: whether numbers are rounded, count the rows, or name them.
"""

import difflib
from collections.abc import Mapping
from typing import Any

import numpy as np

from vicinal._tables.column_type import ColumnType, TableError, asked_type, number_type
from vicinal._words import shown

MOST_LEVELS = 50  # more distinct texts than this are names or sentences, not categories
_FEWEST_NAMES = 10
# How dates are written, the first that fits all entries of a column. A date that fits both of the last pairs, as
# 03/04/2024, is read with the month first, and said to be ambiguous.
_DATE_FORMATS = (
    "ISO8601",
    "%d.%m.%Y",
    "%d.%m.%Y %H:%M",
    "%d.%m.%Y %H:%M:%S",
    "%m/%d/%Y",
    "%d/%m/%Y",
    "%m/%d/%Y %H:%M",
    "%d/%m/%Y %H:%M",
    "%m/%d/%Y %H:%M:%S",
    "%d/%m/%Y %H:%M:%S",
)
_LOOKS_LIKE_A_DATE = r"\s*(?:\d{4}-\d{1,2}-\d{1,2}|\d{1,2}[./]\d{1,2}[./]\d{4}).*"


def as_frame(table: Any) -> Any:
    """The table as a DataFrame whose column names are texts: "x0", "x1", ... for an array."""
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
        raise TableError(f"the table has two columns that are called {name!r}. Rename one of them.")
    return frame


def column_types(table: Any, types: Mapping[str, Any] | None = None) -> dict[str, ColumnType]:
    """Find what kind each column of a table is of.

    Parameters
    ----------
    table : DataFrame, or array of shape (n, d)
    types : dict, optional
        What you know better, by column: a :class:`ColumnType`, or a text: one of the kinds, "lattice:0.5" with a step,
        or "date:%d/%m/%Y" with a format.

    Returns
    -------
    dict of str to ColumnType

    Notes
    -----
    ==============  =================================================================================================
    kind            found where
    ==============  =================================================================================================
    "empty"         there is no value
    "constant"      there is one value
    "counter"       whole numbers count the rows: each is one more than the one above it
    "identifier"    whole numbers are called an id, or never repeat and fill a range; texts never repeat
    "boolean"       there are two values, as numbers, or True and False
    "lattice"       nearly all values are ``offset + k * step``, and they repeat or are coarse beside their spread:
                    counts, and measurements that were rounded
    "continuous"    all other numbers
    "date"          times, or texts that are all dates of one format
    "category"      texts of at most 50 values
    "text"          other texts
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
    types = {} if types is None else dict(types)
    for name in types:
        if name not in frame.columns:
            raise TableError(f"types: there is no column {name!r}. The table has {shown(frame.columns)}.")
    return {
        name: _as_asked(frame[name], types[name]) if name in types else _found(frame[name]) for name in frame.columns
    }


def is_numeric(column: Any) -> bool:
    """Whether a column holds numbers or booleans."""
    from pandas.api.types import is_bool_dtype, is_complex_dtype, is_numeric_dtype

    return (is_numeric_dtype(column) or is_bool_dtype(column)) and not is_complex_dtype(column)


def as_numbers(column: Any) -> np.ndarray:
    """A column of numbers as float64 (float32 stays), NaN where a value is missing."""
    kind = np.float32 if column.dtype == np.float32 else np.float64
    return column.to_numpy(dtype=kind, na_value=np.nan)


def _found(column: Any) -> ColumnType:
    from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype

    known = column.dropna()
    if not len(known):
        return ColumnType("empty")
    if is_datetime64_any_dtype(column):
        return ColumnType("date") if known.nunique() > 1 else ColumnType("constant")
    if is_bool_dtype(column) or (column.dtype == object and known.map(lambda value: isinstance(value, bool)).all()):
        return ColumnType("boolean" if known.nunique() > 1 else "constant")
    if is_numeric(column):
        return number_type(as_numbers(column), str(column.name))
    texts = known.astype(str)
    n_values = texts.nunique()
    if n_values == 1:
        return ColumnType("constant")
    written = date_format(texts)
    if written is not None:
        return ColumnType("date", format=written)
    if n_values == len(texts) and len(texts) >= _FEWEST_NAMES and not hidden_numbers(texts):
        return ColumnType("identifier")
    return ColumnType("category" if n_values <= MOST_LEVELS else "text")


def hidden_numbers(texts: Any) -> str | None:
    """Whether most texts of a column are numbers: "some" (others are not), "commas" (with decimal commas) or None."""
    import pandas as pd

    if not len(texts):
        return None
    numbers = pd.to_numeric(texts, errors="coerce").notna()
    if numbers.mean() > 0.5:
        return "some"
    return "commas" if texts.str.fullmatch(r"\s*[-+]?\d+,\d+\s*").mean() > 0.5 else None


def date_format(texts: Any) -> str | None:
    """The format in which all texts are dates, or None."""
    if not texts.head(5).str.fullmatch(_LOOKS_LIKE_A_DATE).all():
        return None
    return next((written for written in _DATE_FORMATS if read_dates(texts, written).notna().all()), None)


def is_ambiguous(texts: Any, written: str) -> bool:
    """Whether dates with the month before the day could as well be read the other way round."""
    other = written.replace("%m/%d", "%d/%m")
    return other != written and bool(read_dates(texts, other).notna().all())


def read_dates(column: Any, written: str | None) -> Any:
    """A column of times as pandas keeps them, without a time zone; NaT where an entry is not a date."""
    import pandas as pd

    if written is None:
        dates = pd.to_datetime(column, errors="coerce")
    else:
        dates = pd.to_datetime(column.astype("string").str.strip(), format=written, errors="coerce", utc=True)
    return dates.dt.tz_convert("UTC").dt.tz_localize(None) if dates.dt.tz is not None else dates


def _as_asked(column: Any, asked: Any) -> ColumnType:
    """The kind that the user names, completed by what the column holds; refuses what the column cannot be."""
    name = str(column.name)
    spec = asked.spec if isinstance(asked, ColumnType) else asked
    kind, _, detail = spec.partition(":") if isinstance(spec, str) else ("", "", "")
    if kind in ("continuous", "lattice", "boolean", "counter") and not is_numeric(column):
        raise TableError(f"types: {name!r} cannot be {kind}, because it holds {column.dtype} and not numbers.")
    if kind == "date":
        return _asked_date(column, detail, name)
    return asked_type(as_numbers(column) if is_numeric(column) else np.zeros(0), asked, name)


def _asked_date(column: Any, written: str, name: str) -> ColumnType:
    from pandas.api.types import is_datetime64_any_dtype

    if is_datetime64_any_dtype(column):
        return ColumnType("date")
    texts = column.dropna().astype(str)
    found = written or date_format(texts)
    if found is None or (len(texts) and not read_dates(texts, found).notna().all()):
        example = f", as in {texts.iloc[0][:30]!r}" if len(texts) else ""
        raise TableError(
            f"types: {name!r} is not a date{f' of the format {written!r}' if written else ''}{example}. Name the format, as "
            "in 'date:%d/%m/%Y'."
        )
    return ColumnType("date", format=found)


def nearest_names(name: str, columns: Any, most: int) -> list[str]:
    """Columns that are called nearly so, whatever their case."""
    by_case = {str(column).casefold(): column for column in columns}
    return [by_case[match] for match in difflib.get_close_matches(name.casefold(), list(by_case), n=most)]


def parse_types(assignments: list[str] | None, columns: Any) -> dict[str, str]:
    """The kinds of ``COL=KIND`` assignments; a name may hold an equals sign."""
    found: dict[str, str] = {}
    for text in assignments or ():
        name, equals, kind = text.rpartition("=")
        if not equals or not name:
            raise TableError(f"expected COL=KIND, got {text!r}.")
        if name not in columns:
            near = nearest_names(name, columns, 3)
            hint = f" Did you mean {shown(near)}?" if near else ""
            raise TableError(f"there is no column {name!r}.{hint}")
        found[name] = kind
    return found
