"""Conversion of one raw column of a table: numbers, days and positions in the year, week and day, codes of levels, or 0/1 columns."""

import json
from typing import Any

import numpy as np

from vicinal._tables.column_type import DAYS, ColumnType, TableError, number_type
from vicinal._tables.frames import MOST_LEVELS, as_numbers, is_numeric, read_dates
from vicinal._words import count

_DAY = 86_400.0  # seconds
# What is made of categories: columns of levels, the codes of these, 0/1 columns, or nothing.
CATEGORIES = ("levels", "codes", "one_hot", "omit", "codes+one_hot")
_MOST_VALUES = 1_000  # the number of values of a column that the user declares as a category; more would fill the memory with zeros
_MOST_WHOLE = 2.0**53  # beyond this, not every whole number is a float
# The periodic parts of a date: the length of the period, and the position of a time in it.
_ROUNDS: dict[str, Any] = {
    "month": lambda dates: (dates.dt.day_of_year - 1.0) / 366.0,
    "weekday": lambda dates: (dates.dt.day_of_week + dates.dt.hour / 24.0) / 7.0,
    "hour": lambda dates: (dates.dt.hour + dates.dt.minute / 60.0) / 24.0,
}
# A part is used if this varies. The weekdays of dates that are all on the same day of a month, as months and years are, say nothing.
_VARIES: dict[str, Any] = {
    "month": lambda dates: dates.dt.month,
    "weekday": lambda dates: dates.dt.day_of_week if dates.dt.day.nunique() > 1 else dates.dt.day,
    "hour": lambda dates: dates.dt.hour,
}


def outputs_of(
    column: Any, kind: ColumnType, categories: str, *, log: bool = False, declared: bool = False
) -> list[tuple[str, ColumnType]]:
    """Return the outputs of a raw column, each with its kind.

    Parameters
    ----------
    categories : str
        One of `CATEGORIES`.
    log : bool
        Whether the logarithm is used.
    declared : bool
        Whether the user declared the kind, so that 0/1 columns of many values are wanted.
    """
    if log:
        if kind.kind not in ("continuous", "lattice", "tied"):
            raise TableError(f"log: {str(column.name)!r} is not a quantity, but a column of the kind {kind.kind}.")
        return [("log", kind._replace(log=True))]
    as_codes = categories == "levels" or categories.startswith("codes")
    if kind.kind in ("continuous", "lattice", "tied") or (kind.kind == "boolean" and not as_codes):
        return [("number", kind)]
    outputs = []
    if as_codes and (kind.kind == "boolean" or (kind.kind == "category" and (declared or _repeats(column)))):
        outputs = [("codes", kind._replace(format=json.dumps(_levels(column), ensure_ascii=False)))]
    if kind.kind == "category" and categories.endswith("one_hot"):
        values = _levels(column)
        if len(values) > MOST_LEVELS and not declared:
            return outputs
        if len(values) > _MOST_VALUES:
            raise TableError(
                f"{str(column.name)!r} has {len(values):,} values, and at most {_MOST_VALUES:,} can be converted to 0/1 columns. "
                "Declare it as text to leave it out, or merge rare values."
            )
        return [*outputs, *((f"={value}", ColumnType("indicator")) for value in values)]
    if kind.kind != "date":
        return outputs
    dates = read_dates(column, kind.format)
    days = number_type(_days(dates))
    parts = [] if days.kind == "constant" else [("days", days if days.has_levels else days._replace(format=DAYS))]
    for name, varying in _VARIES.items():
        if varying(dates).nunique() > 1:
            parts += [(f"{name}_sin", kind._replace(format=None)), (f"{name}_cos", kind._replace(format=None))]
    return parts


def output_name(column: str, part: str) -> str:
    if part in ("number", "days", "codes"):
        return column
    if part == "log":
        return f"log({column})"
    return f"{column}{part}" if part.startswith("=") else f"{column}:{part}"


def encoded(column: Any, part: str, raw: ColumnType, made: ColumnType) -> np.ndarray:
    """Return one output of a raw column, from the kinds of both."""
    written = raw.format
    if part in ("number", "log"):
        if not is_numeric(column):
            raise TableError(f"1 column of the model must be numeric: {describe_text(column)}.")
        numbers = as_numbers(column).astype(np.float64)
        return numbers if part == "number" else _logarithms(numbers, column)
    if part == "codes":
        return _codes(column, made.levels)
    if part.startswith("="):
        texts = as_texts(column)
        coded = (texts == part[1:]).to_numpy(dtype=np.float64, na_value=np.nan)
        coded[texts.isna().to_numpy()] = np.nan
        return coded
    dates = read_dates(column, written)
    unreadable = dates.isna() & column.notna()
    if unreadable.any():
        culprit = str(column[unreadable].iloc[0])[:30]
        raise TableError(
            f"1 column of the model must hold dates: {str(column.name)!r} holds {culprit!r} in row "
            f"{column.index[unreadable][0]} (expected {written or 'ISO 8601, such as 2024-03-05'})."
        )
    if part == "days":
        return _days(dates)
    name, _, function = part.partition("_")
    angle = 2.0 * np.pi * _ROUNDS[name](dates).to_numpy(dtype=np.float64, na_value=np.nan)
    return np.sin(angle) if function == "sin" else np.cos(angle)


def _repeats(column: Any) -> bool:
    """Return whether a category has a dtype of categories, or at most half as many values as rows: others are free text."""
    return str(column.dtype) == "category" or column.nunique() <= 0.5 * column.notna().sum()


def _levels(column: Any) -> list[str]:
    """Return the different values of a category as text, numbers in their order."""
    texts = as_texts(column).dropna().unique().tolist()
    return sorted(texts, key=_as_number if is_numeric(column) else None)


def _as_number(text: str) -> float:
    """Return the number of a level of a column of numbers or truth values; NaN for another text."""
    try:
        return {"True": 1.0, "False": 0.0}[text] if text in ("True", "False") else float(text)
    except ValueError:  # it was text in the training rows
        return np.nan


def _codes(column: Any, texts: list[str]) -> np.ndarray:
    """Return the position of each value among the levels, and their number for another value."""
    missing = column.isna().to_numpy(dtype=bool)
    values: list[Any] = as_texts(column).tolist()
    levels: list[Any] = texts
    if is_numeric(column):
        values, levels = as_numbers(column).tolist(), [_as_number(text) for text in texts]
    code_of = {level: float(k) for k, level in enumerate(levels)}
    return np.where(missing, np.nan, [code_of.get(value, float(len(texts))) for value in values])


def _logarithms(numbers: np.ndarray, column: Any) -> np.ndarray:
    without = np.flatnonzero(numbers <= 0)
    if len(without):
        raise TableError(
            f"log: {str(column.name)!r} holds {numbers[without[0]]:g} in row {column.index[without[0]]}, which has no logarithm "
            f"({count(len(without), 'such row')}). Use the column without its logarithm, or mark such values as missing."
        )
    return np.log(numbers)


def _days(dates: Any) -> np.ndarray:
    import pandas as pd

    return ((dates - pd.Timestamp(0)).dt.total_seconds() / _DAY).to_numpy(dtype=np.float64, na_value=np.nan)


def as_texts(column: Any) -> Any:
    """Return the values of a category as strings, whole numbers without a fraction; missing values stay missing."""
    if column.dtype.kind == "f":
        known = column.dropna()
        whole = (known % 1 == 0).all() and (known.abs() <= _MOST_WHOLE).all()
        column = column.astype("Int64") if whole else column
    return column.astype("string")


def differs(column: Any, text: str) -> np.ndarray:
    """Return where a column differs from a value that is given as a string."""
    if is_numeric(column):
        try:
            return ~np.isclose(
                as_numbers(column), float({"True": 1.0, "False": 0.0}.get(text, text)), rtol=1e-7, atol=0.0
            )
        except ValueError:  # it was text in the training rows
            return np.ones(len(column), dtype=bool)
    return (as_texts(column) != text).to_numpy(dtype=bool, na_value=False)


def describe_text(column: Any) -> str:
    """Return a description of the texts of a column; if nearly all are numbers, it names the first one that is not."""
    import pandas as pd

    name, values = repr(str(column.name)), column.dropna()
    if not len(values):
        return f"{name} (no value at all)"
    texts = values.astype(str)
    numbers = pd.to_numeric(texts, errors="coerce").notna()
    if numbers.mean() > 0.5 and not numbers.all():
        culprit = values[~numbers]
        return (
            f"{name} ({int(numbers.sum()):,} of {len(values):,} entries are numbers; row {culprit.index[0]} holds "
            f"{str(culprit.iloc[0])[:30]!r})"
        )
    return f"{name} ({count(values.nunique(), 'value')}, as {str(values.iloc[0])[:20]!r})"
