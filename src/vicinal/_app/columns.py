"""From a table to numbers: which columns are features, and what was done to get them."""

import difflib
import re
from typing import Any, NamedTuple

import numpy as np

from vicinal._app.console import count, shown
from vicinal._app.errors import DataFailure, UsageFailure

LARGEST = 1e150  # what can be squared and summed in float64
MOST_LEVELS = 50  # more distinct texts than this are names or sentences, not categories


class Prepared(NamedTuple):
    """A table made ready.

    X : DataFrame of float64 features
    labels : Series or None, the target or the groups
    rows : positions of the kept rows in the table
    notes : sentences, what was done
    recipe : lines of pandas code on `table` that do the same
    """

    X: Any
    labels: Any
    rows: np.ndarray
    notes: list[str]
    recipe: list[str]


def split_names(options, columns):
    """Column names from repeated or comma-separated options; a name that holds a comma is found too."""
    names: list[str] = []
    for option in options or ():
        if option in columns:
            names.append(option)
        else:
            names.extend(part.strip() for part in option.split(",") if part.strip())
    return list(dict.fromkeys(names))


def _nearest_names(name, columns, most):
    """Columns that are called nearly so, whatever their case."""
    by_case = {str(column).casefold(): column for column in columns}
    return [by_case[match] for match in difflib.get_close_matches(name.casefold(), list(by_case), n=most)]


def check_columns(names, columns, option):
    """Refuse names that the table does not have, with the nearest ones that it has."""
    for name in names:
        if name not in columns:
            near = _nearest_names(name, columns, 3)
            hint = f" Did you mean {shown(near)}?" if near else ""
            raise DataFailure(f"{option}: there is no column {name!r}.{hint} The table has {shown(columns)}.")


def prepare(
    frame, console, *, label=None, label_option="--target", drop=None, one_hot=False, drop_missing=False, partial=False
):
    """Take the numeric columns as features, say what is left out, and refuse missing values.

    Parameters
    ----------
    frame : DataFrame
    console : Console
    label : str, optional
        The column of the target or groups; never a feature.
    drop : list of str, optional
        The `--drop` options.
    one_hot : bool
        Turn text columns into 0/1 columns named "column=value".
    drop_missing : bool
        Leave out rows with missing values instead of refusing them.
    partial : bool
        Missing labels mean "not known" and are kept.
    """
    notes: list[str] = []
    recipe: list[str] = []
    dropped = split_names(drop, frame.columns)
    check_columns(dropped, frame.columns, "--drop")
    if label is not None:
        check_columns([label], frame.columns, label_option)
        if label in dropped:
            raise UsageFailure(f"{label_option} and --drop both name {label!r}. Leave it out of --drop.")
    labels = None if label is None else frame[label]
    features = frame.drop(columns=[*dropped, *([] if label is None else [label])])
    if dropped:
        notes.append(f"Left out on request: {shown(dropped)}.")
    if label is not None or dropped:
        recipe.append(f"features = table.drop(columns={[*([] if label is None else [label]), *dropped]!r})")
    else:
        recipe.append("features = table")

    features = _without_index_and_empty(features, console, notes, recipe)
    features, coded = _numbers_and_categories(features, console, one_hot, notes, recipe)
    if not features.shape[1]:
        raise DataFailure(
            "no numeric columns are left to use as features. Pass --one-hot to use text columns as 0/1 columns."
        )
    features, labels, rows = _complete_rows(
        features, labels, label, drop_missing, partial, console, notes, recipe, ", or --drop the columns"
    )
    features = _one_hot(features, coded, console, notes, recipe)
    _refuse_infinite(features, ", or --drop the columns")
    constant = [name for name in features if features[name].nunique() < 2] if len(features) > 1 else []
    if len(constant) == features.shape[1]:
        raise DataFailure(
            f"every feature is constant over the {count(len(features), 'row')}: there is nothing to learn from."
        )
    if constant:
        console.warn(f"left out, because they never change: {shown(constant)}.")
        notes.append(f"Left out, constant: {shown(constant)}.")
        features = _leave_out(features, constant, recipe)
    _mention_counters(features, console)
    return Prepared(features.astype(np.float64), labels, rows, notes, recipe)


def _leave_out(features, names, recipe):
    if names:
        recipe.append(f"features = features.drop(columns={list(names)!r})")
    return features.drop(columns=names)


def _without_index_and_empty(features, console, notes, recipe):
    """Leave out columns without any value, and a nameless column that only counts the rows."""
    empty = [name for name in features if features[name].isna().all()]
    if empty:
        console.warn(f"left out, because they hold no value at all: {shown(empty)}.")
        notes.append(f"Left out, empty: {shown(empty)}.")
    index = [name for name in features if name.startswith("Unnamed: ") and _counts_rows(features[name])]
    if index:
        console.warn("left out a column without a name that only counts the rows (an index written with the data).")
        notes.append("Left out a nameless column that only counts the rows.")
    return _leave_out(features, [*empty, *index], recipe)


def _counts_rows(column):
    if column.dtype.kind not in "iu" or len(column) < 3:
        return False
    values = column.to_numpy()
    return values[0] in (0, 1) and bool((np.diff(values) == 1).all())


def _mention_counters(features, console):
    counters = [name for name in features if _counts_rows(features[name])]
    if counters:
        console.warn(f"{shown(counters)} counts the rows: leave it out with --drop if it is an identifier.")
    named = [name for name in features if name not in counters and _names_rows(name, features[name])]
    if named:
        console.warn(
            f"{shown(named)} holds a different whole number in every row: leave it out with --drop if it is an identifier."
        )


def _names_rows(name, column):
    """Whether whole numbers never repeat and fill a range without gaps, or are called an id."""
    if column.dtype.kind not in "iu" or len(column) < 10 or column.duplicated().any():
        return False
    no_gaps = int(column.max()) - int(column.min()) == len(column) - 1
    return no_gaps or re.search(r"(^|[\W_])(id|uuid|key|index)([\W_]|$)", name.casefold()) is not None


def is_numeric(column):
    """Whether a column holds numbers or booleans."""
    from pandas.api.types import is_bool_dtype, is_complex_dtype, is_numeric_dtype

    return (is_numeric_dtype(column) or is_bool_dtype(column)) and not is_complex_dtype(column)


def _numbers_and_categories(features, console, one_hot, notes, recipe):
    """Leave out text columns, or with `one_hot` those with too many values; name the ones that are left."""
    text = [name for name in features if not is_numeric(features[name])]
    if not text:
        return features, []
    if not one_hot:
        described = "; ".join(describe_text(features[name]) for name in text[:8])
        rest = f"; and {len(text) - 8} more" if len(text) > 8 else ""
        console.warn(
            f"left out {count(len(text), 'column')} that {'is' if len(text) == 1 else 'are'} not numeric: "
            f"{described}{rest}. Pass --one-hot to use categories as 0/1 columns."
        )
        notes.append(f"Left out, not numeric: {shown(text)}.")
        return _leave_out(features, text, recipe), []
    many = [name for name in text if features[name].nunique() > MOST_LEVELS]
    if many:
        console.warn(
            f"left out, because they have more than {MOST_LEVELS} different texts each (too many for 0/1 "
            f"columns): {shown(many)}."
        )
        notes.append(f"Left out, more than {MOST_LEVELS} different texts: {shown(many)}.")
        features = _leave_out(features, many, recipe)
    return features, [name for name in text if name not in many]


def _one_hot(features, coded, console, notes, recipe):
    import pandas as pd

    if not coded:
        return features
    console.say(f"made 0/1 columns of {shown([f'{name} ({features[name].nunique()} values)' for name in coded])}.")
    notes.append(f"0/1 columns for each value of {shown(coded)}.")
    recipe.append(f'features = pd.get_dummies(features, columns={coded!r}, prefix_sep="=", dtype=float)')
    return pd.get_dummies(features, columns=coded, prefix_sep="=", dtype=float)


def describe_text(column):
    """What kind of text a column holds; names the culprits when nearly all of it is numbers."""
    import pandas as pd

    values = column.dropna()
    if not len(values):
        return f"{column.name!r} (no value at all)"
    texts = values.astype(str)
    numbers = pd.to_numeric(texts, errors="coerce").notna()
    if numbers.mean() > 0.5 and not numbers.all():
        culprit = values[~numbers]
        said = str(culprit.iloc[0])[:30]
        return (
            f"{column.name!r} ({int(numbers.sum()):,} of {len(values):,} entries are numbers; row {culprit.index[0]} holds "
            f"{said!r}: --missing {said!r} if that means missing)"
        )
    if texts.str.fullmatch(r"\s*[-+]?\d+,\d+\s*").mean() > 0.5:
        return f"{column.name!r} (numbers as {texts.iloc[0][:20]!r}: --decimal , reads them)"
    return f"{column.name!r} ({count(values.nunique(), 'value')}, as {str(values.iloc[0])[:20]!r})"


def _complete_rows(features, labels, label, drop_missing, partial, console, notes, recipe, or_else=""):
    missing = features.isna()
    by_column = missing.sum()
    by_column = {name: int(number) for name, number in by_column[by_column > 0].items()}
    incomplete = missing.to_numpy().any(axis=1)
    if labels is not None and not partial and labels.isna().any():
        by_column[label] = int(labels.isna().sum())
        incomplete |= labels.isna().to_numpy()
    rows = np.arange(len(features))
    if not by_column:
        if labels is not None:
            recipe.append(f"labels = table[{label!r}]")
        return features, labels, rows
    counts = ", ".join(f"{name!r}: {number:,}" for name, number in list(by_column.items())[:8])
    rest = f" and {len(by_column) - 8} more columns" if len(by_column) > 8 else ""
    found = (
        f"{count(sum(by_column.values()), 'missing value')} in {count(int(incomplete.sum()), 'row')} of {len(features):,} "
        f"({counts}{rest})"
    )
    if not drop_missing:
        raise DataFailure(
            f"{found}. Fill them in first{',' if or_else else ' or'} pass --drop-missing to leave those rows out{or_else}."
        )
    if incomplete.all():
        raise DataFailure(
            f"{found}: no row is complete, so --drop-missing leaves none."
            + (" --drop the emptiest columns instead." if or_else else "")
        )
    console.say(f"left out {count(int(incomplete.sum()), 'row')} with missing values.")
    notes.append(f"Left out {count(int(incomplete.sum()), 'row')} of {len(features):,} with missing values.")
    if labels is not None:
        recipe.append("complete = features.notna().all(axis=1)" + ("" if partial else f" & table[{label!r}].notna()"))
        recipe.append(f"features, labels = features[complete], table.loc[complete, {label!r}]")
        labels = labels[~incomplete]
    else:
        recipe.append("features = features.dropna()")
    return features[~incomplete], labels, rows[~incomplete]


def _refuse_infinite(features, or_else=""):
    """Refuse infinite numbers, and those whose squares would be."""
    values = features.to_numpy(dtype=np.float64)
    infinite = np.isinf(values).sum(axis=0)
    if infinite.any():
        names = [f"{name} ({number:,})" for name, number in zip(features.columns, infinite, strict=True) if number]
        raise DataFailure(f"infinite values in {shown(names)}. Replace them{or_else}.")
    largest = np.abs(values).max(axis=0)
    if largest.max() > LARGEST:
        names = [f"{name} ({size:.3g})" for name, size in zip(features.columns, largest, strict=True) if size > LARGEST]
        raise DataFailure(
            f"numbers too large to square in {shown(names)}; expected at most {LARGEST:g}. Change their unit{or_else}."
        )


def pick_features(frame, names, n_features, console, *, drop_missing=False):
    """The columns that a model was fitted on, by name and in its order; extra columns are ignored.

    "column=value" is made from the column when the table has no column of that name (see `--one-hot`).
    Returns (DataFrame of float64, positions of the kept rows).
    """
    import pandas as pd

    if names is None:
        numeric = [name for name in frame if is_numeric(frame[name])]
        if len(numeric) != n_features:
            raise DataFailure(
                f"the model was fitted without column names on {count(n_features, 'column')}; the table has "
                f"{count(len(numeric), 'numeric column')} ({shown(numeric)}). Pass a table with just those columns, in the same order."
            )
        console.say("the model knows no column names: the numeric columns are taken in their order.")
        names = numeric
    picked, absent = {}, []
    for name in map(str, names):
        if name in frame.columns:
            picked[name] = frame[name]
            continue
        category = _category(frame, name)
        if category is None:
            absent.append(name)
        else:
            picked[name] = category
    _mention_unseen(frame, [name for name in picked if name not in frame.columns], console)
    if absent:
        near = list(dict.fromkeys(match for name in absent[:3] for match in _nearest_names(name, frame.columns, 1)))
        hint = f" Did you mean {shown(near)}?" if near else ""
        raise DataFailure(
            f"the table lacks {count(len(absent), 'column')} of the model: {shown(absent)}.{hint} It has {shown(frame.columns)}."
        )
    features = pd.DataFrame(picked)
    text = [name for name in features if not is_numeric(features[name])]
    if text:
        described = "; ".join(describe_text(features[name].rename(name)) for name in text[:4])
        raise DataFailure(f"{count(len(text), 'column')} of the model must be numeric: {described}.")
    features, _, rows = _complete_rows(features, None, None, drop_missing, False, console, [], [])
    _refuse_infinite(features)
    return features.astype(np.float64), rows


def _category(frame, name):
    """The 0/1 column "column=value", or None when no column fits."""
    found = _column_and_value(frame, name)
    if found is None:
        return None
    column, value = found
    coded = (frame[column].astype(str) == value).astype(float)
    coded[frame[column].isna()] = np.nan
    return coded


def _column_and_value(frame, name):
    """The two parts of "column=value", where the table has such a column of texts."""
    parts = name.split("=")
    for cut in range(len(parts) - 1, 0, -1):
        column, value = "=".join(parts[:cut]), "=".join(parts[cut:])
        if column in frame.columns and not is_numeric(frame[column]):
            return column, value
    return None


def _mention_unseen(frame, coded, console):
    """Warn of values that the model has never seen: all their 0/1 columns are 0."""
    known: dict[str, set] = {}
    for name in coded:
        column, value = _column_and_value(frame, name)
        known.setdefault(column, set()).add(value)
    for column, values in known.items():
        texts = frame[column].dropna().astype(str)
        unseen = texts[~texts.isin(values)]
        if len(unseen):
            console.warn(
                f"{column!r} holds values that the model was not fitted on, in {count(len(unseen), 'row')}: "
                f"{shown(unseen.unique())}. They count as none of the known ones."
            )
