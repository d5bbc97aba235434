"""Preparation of a table: the choice of features, their conversion, and notes about what was done and what is unusual.

`vicinal learn`, `vicinal compare` and `vicinal.tables.prepare` share this function.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import skew

from vicinal._checks import check_choice
from vicinal._notebook import table_html
from vicinal._tables.column_type import ColumnType, TableError, describe_types
from vicinal._tables.encoder import TableEncoder
from vicinal._tables.encoding import describe_text
from vicinal._tables.frames import (
    MOST_LEVELS,
    as_frame,
    as_numbers,
    check_names,
    hidden_numbers,
    is_numeric,
    looks_like_days,
    other_reading,
)
from vicinal._words import count, shown

LARGEST = 1e150  # the largest number that can be squared and summed in float64
_SKEWED = 2.0  # the skewness of an exponential distribution
MISSING = ("refuse", "drop", "impute", "marginalise")


class Words(NamedTuple):
    """The caller's names of the options that messages recommend."""

    drop: str = "drop"
    log: str = "log"
    types: str = "types"
    one_hot: str = "one_hot=True"
    drop_rows: str = "missing='drop'"
    impute: str = "missing='impute'"
    marginalise: str = "missing='marginalise'"
    label: str = "target"
    as_kind: str = "types={{{name!r}: {kind!r}}}"
    not_known: str = "na_values=[{text!r}] when you read the table"
    decimal: str = "decimal=',' of pandas.read_csv"


COMMAND_WORDS = Words(
    drop="--drop",
    log="--log",
    types="--type",
    one_hot="--one-hot",
    drop_rows="--missing drop",
    impute="--missing impute",
    marginalise="--missing marginalise",
    label="--target",
    as_kind="--type {name}={kind}",
    not_known="--na {text!r}",
    decimal="--decimal ,",
)


class Note(NamedTuple):
    """A sentence about something that was done to the table, or that is unusual about it."""

    text: str
    odd: bool = False


class PreparedTable(NamedTuple):
    """A prepared table.

    Attributes
    ----------
    X : DataFrame of float64
        The features without noise, with NaN for missing values that `missing` keeps.
    labels : Series or None
        The target or the groups of the rows that were kept.
    rows : array
        Positions of the kept rows in the table.
    types : dict of str to ColumnType
        The kind of every raw column except the target, including those that were left out.
    encoder : TableEncoder
        The fitted encoder that creates X from the raw columns, for use as the first step of a pipeline.
    notes : list of Note
        Sentences about the preparation.
    """

    X: Any
    labels: Any
    rows: np.ndarray
    types: dict[str, ColumnType]
    encoder: TableEncoder
    notes: list[Note]

    @property
    def feature_types(self) -> dict[str, ColumnType]:
        """The kind of each feature, by name."""
        return dict(zip(map(str, self.X.columns), self.encoder.feature_types_, strict=True))

    def measured(self, words: Words | None = None) -> "PreparedTable":
        """Return the table with the features that densities and LCA can learn from: continuous ones and lattices.

        Parameters
        ----------
        words : Words, optional
            The caller's names of the options that notes recommend.

        Returns
        -------
        PreparedTable
        """
        chosen = np.array([kind.measured for kind in self.encoder.feature_types_], dtype=bool)
        if chosen.all():
            return self
        notes = [Note(text, True) for text in kept_out_notes(self.feature_types, words or Words())]
        return self._replace(
            X=self.X.loc[:, chosen], encoder=self.encoder.select(np.flatnonzero(chosen)), notes=[*self.notes, *notes]
        )

    def to_frame(self) -> Any:
        """Return a table of the raw columns: their kinds, and whether they are features.

        Returns
        -------
        DataFrame
        """
        import pandas as pd

        used = set(self.encoder.sources)
        lines = [(name, str(kind), name in used) for name, kind in self.types.items()]
        return pd.DataFrame(lines, columns=["column", "kind", "used"])

    def _repr_html_(self) -> str:
        lines = [tuple(escape(str(cell)) for cell in line) for line in self.to_frame().itertuples(index=False)]
        notes = "".join(f"<li>{escape(note.text)}</li>" for note in self.notes)
        return table_html(("column", "kind", "used"), lines, most=100) + f"<ul>{notes}</ul>"

    def take(self, rows: np.ndarray) -> "PreparedTable":
        """Return some of the kept rows, by position among them.

        Parameters
        ----------
        rows : array of int
            Positions among the kept rows.

        Returns
        -------
        PreparedTable
        """
        labels = None if self.labels is None else self.labels.iloc[rows]
        return self._replace(X=self.X.iloc[rows], labels=labels, rows=self.rows[rows])


def kept_out_notes(types: Mapping[str, ColumnType], words: Words) -> list[str]:
    """Return which columns densities and LCA do not learn from, and why, in sentences; an empty list if they learn from all."""
    tied = {name: kind for name, kind in types.items() if kind.kind == "tied"}
    others = [(name, kind) for name, kind in types.items() if not kind.measured and name not in tied]
    notes = []
    if others:
        notes.append(f"Left out, because densities and LCA learn only from quantities: {describe_types(others)}.")
    if tied:
        shares = [f"{name!r} ({100 * kind.tied:.0f} % of the rows)" for name, kind in list(tied.items())[:8]]
        rest = f" and {len(tied) - 8} more" if len(tied) > 8 else ""
        notes.append(
            "Left out of densities and of LCA, because their values repeat, but fill no even steps, so that a density could be "
            f"made arbitrarily high: {', '.join(shares)}{rest}. Pass {words.as_kind.format(name=next(iter(tied)), kind='continuous')} "
            "to include such a column."
        )
    return notes


def prepare(
    table: Any,
    *,
    target: str | None = None,
    drop: Sequence[str] = (),
    log: Sequence[str] = (),
    types: Mapping[str, Any] | None = None,
    one_hot: bool = False,
    missing: str = "refuse",
    random_state: int = 0,
) -> PreparedTable:
    """Prepare a table: detect the kinds of its columns, convert them to numbers, and treat missing values.

    ``vicinal learn`` and ``vicinal compare`` use this function.

    Parameters
    ----------
    table : DataFrame, or array of shape (n, d)
        The table.
    target : str, optional
        The column of the target, which is not a feature.
    drop : list of str
        Columns that are not features.
    log : list of str
        Columns of positive quantities of which the logarithm is used; a note names skewed columns for which this is advisable.
    types : dict, optional
        Overrides of the kinds that :func:`column_types` detects, by column.
    one_hot : bool, default=False
        Whether to convert categories to 0/1 columns; otherwise they are left out.
    missing : {"refuse", "drop", "impute", "marginalise"}, default="refuse"
        The treatment of missing values of features: raise an error, leave such rows out, or keep them (NaN in X) for
        an imputer or for a density that learns from rows with missing values. Rows without a target raise an error or are
        left out.
    random_state : int, default=0
        The seed of the noise on rounded columns; see :class:`vicinal.TableEncoder`.

    Returns
    -------
    PreparedTable

    Examples
    --------
    >>> import pandas as pd
    >>> from vicinal.tables import prepare
    >>> table = pd.DataFrame({"id": range(6), "size": [1.5, 2.25, 0.5, 4.0, 3.125, 2.0], "kind": list("ababab")})
    >>> prepared = prepare(table, target="kind")
    >>> list(prepared.X), [note.text for note in prepared.notes]
    (['size'], ["Left out, because they identify or number the rows: counter: 'id'."])
    """
    return prepare_table(
        table, target, drop=drop, log=log, types=types, one_hot=one_hot, missing=missing, random_state=random_state
    )


def prepare_table(
    table: Any,
    label: str | None,
    *,
    drop: Sequence[str] = (),
    log: Sequence[str] = (),
    types: Mapping[str, Any] | None = None,
    one_hot: bool = False,
    missing: str = "refuse",
    random_state: int = 0,
    partial: bool = False,
    measured_only: bool = False,
    first_rows: bool = False,
    words: Words | None = None,
) -> PreparedTable:
    """Prepare a table with messages in the terms of the caller.

    With `partial`, missing labels mean unknown and are kept. With `measured_only`, missing values count only in the columns that
    `PreparedTable.measured` keeps. With `first_rows`, more rows follow, so columns that `types` names are kept even if they are
    constant.
    """
    words = Words() if words is None else words
    check_choice(missing, "missing", MISSING)
    frame = as_frame(table)
    check_names(drop, frame.columns, words.drop)
    if label is not None:
        check_names([label], frame.columns, words.label)
        if label in drop:
            raise TableError(f"{words.label} and {words.drop} both name {label!r}. Leave it out of {words.drop}.")
    features = frame.drop(columns=[*drop, *([] if label is None else [label])])
    check_names(log, features.columns, words.log)
    notes = [Note(f"Left out on request: {shown(drop)}.")] if drop else []
    types = {
        name: kind.spec if isinstance(kind, ColumnType) else kind
        for name, kind in (types or {}).items()
        if name not in (*drop, label)
    }
    encoder = TableEncoder(types or None, log=list(log) or None, one_hot=one_hot, random_state=random_state).fit(
        features
    )
    found = encoder.types_
    notes += [
        *_notes_on_columns(features, found, one_hot, words),
        *_notes_on_days(features, found, words),
        *_notes_on_skew(features, found, log, words),
    ]
    if not len(encoder.get_feature_names_out()):
        if all(kind.kind == "constant" for kind in found.values()):
            raise TableError(_all_constant(len(features)), notes)
        usable = not one_hot and _categories(features, found.items())
        hint = _hints(features, list(found.items()), words)
        hint += f" Pass {words.one_hot} to use categories as 0/1 columns." if usable else ""
        raise TableError(f"no numeric columns are left to use as features.{hint}", notes)
    encoder = encoder.select(np.arange(len(encoder.get_feature_names_out())))
    values = encoder.transform(features)
    names = [str(name) for name in encoder.get_feature_names_out()]
    refuse_infinite(values, names, f", or {words.drop} the columns")
    labels = None if label is None else frame[label]
    counted = values
    if measured_only:
        counted = np.where([kind.measured for kind in encoder.feature_types_], values, 0.0)
    kept = _kept_rows(counted, encoder.sources, None if partial else labels, label, missing, words, notes)
    values, labels = values[kept], None if labels is None else labels[kept]
    encoder, values, names = _without_constants(encoder, values, names, notes, types if first_rows else ())
    import pandas as pd

    X = pd.DataFrame(values, columns=names, index=features.index[kept])
    return PreparedTable(X, labels, np.flatnonzero(kept), found, encoder, notes)


def _all_constant(n: int) -> str:
    return f"every feature is constant over the {count(n, 'row')}, so there is nothing to learn from."


def _notes_on_columns(features: Any, types: dict[str, ColumnType], one_hot: bool, words: Words) -> list[Note]:
    """Return notes about columns that are left out, and about the conversion of columns that are not plain numbers."""

    def of(*kinds: str) -> list[tuple[str, ColumnType]]:
        return [(name, kind) for name, kind in types.items() if kind.kind in kinds]

    notes = []
    if of("empty"):
        notes.append(Note(f"Left out, because they have no values: {shown(dict(of('empty')))}.", True))
    if of("constant"):
        notes.append(Note(f"Left out, because they are constant: {shown(dict(of('constant')))}.", True))
    rows_named = of("identifier", "counter")
    if rows_named:
        named = f"Left out, because they identify or number the rows: {describe_types(rows_named)}."
        notes.append(Note(named + _hints(features, rows_named, words), True))
    unread = of("text") if one_hot else of("text", "category")
    if unread:
        notes.append(Note(_unread(features, unread, one_hot, words), True))
    if one_hot and of("category"):
        counted = [f"{name} ({features[name].nunique()} values)" for name, _ in of("category")]
        hints = _hints(features, of("category"), words)
        notes.append(Note(f"Converted to 0/1 columns: {shown(counted)}.{hints}", bool(hints)))
    if of("date"):
        notes.append(
            Note(f"Converted dates to days and positions in the year, week and day: {shown(dict(of('date')))}.")
        )
    for name, kind in of("date"):
        other = None if kind.format is None else other_reading(features[name].dropna().astype(str), kind.format)
        if other is not None:
            text = (
                f"The dates of {name!r} can be read with the month or with the day first, and are read as {kind.format}. "
                f"Pass {words.as_kind.format(name=name, kind='date:' + other)} for the other reading."
            )
            notes.append(Note(text, True))
    return notes


def _notes_on_days(features: Any, types: dict[str, ColumnType], words: Words) -> list[Note]:
    """Return a note about columns of numbers that look like days."""
    days = [
        name
        for name, kind in types.items()
        if is_numeric(features[name])
        and looks_like_days(as_numbers(features[name]))
        and kind.kind not in ("constant", "boolean", "date")
    ]
    return [
        Note(
            f"The numbers of {name!r} look like dates ({as_numbers(features[name].dropna())[0]:.0f}). Pass "
            f"{words.as_kind.format(name=name, kind='date:%Y%m%d')} to read them as dates.",
            True,
        )
        for name in days
    ]


def _notes_on_skew(features: Any, types: dict[str, ColumnType], log: Sequence[str], words: Words) -> list[Note]:
    """Return a note about columns that are replaced by their logarithms, and one about those that are better replaced."""
    notes = [Note(f"Replaced by their logarithms: {shown(log)}.")] if log else []
    skewed = []
    for name, kind in types.items():
        if kind.measured and name not in log:
            values = as_numbers(features[name])
            values = values[~np.isnan(values)]
            if values.min() > 0 and skew(values) > _SKEWED and abs(skew(np.log(values))) < skew(values) / 2.0:
                skewed.append(name)
    if skewed:
        notes.append(
            Note(
                f"Positive and skewed, so that most rows are close together and a few are far away: {shown(skewed)}. Pass "
                f"{words.log} {','.join(skewed)} to use {'its logarithm' if len(skewed) == 1 else 'their logarithms'}.",
                True,
            )
        )
    return notes


def _unread(features: Any, columns: list[tuple[str, ColumnType]], one_hot: bool, words: Words) -> str:
    described = [describe_text(features[name]) for name, _ in columns]
    rest = f"; and {len(described) - 8} more" if len(described) > 8 else ""
    text = (
        f"Left out {count(len(columns), 'column')} of text: {'; '.join(described[:8])}{rest}."
        if not one_hot
        else f"Left out, because they have more than {MOST_LEVELS} different values each (too many for 0/1 columns): "
        f"{shown(dict(columns))}."
    )
    if not one_hot and _categories(features, columns):
        text += f" Pass {words.one_hot} to use categories as 0/1 columns."
    return text + _hints(features, columns, words)


def _categories(features: Any, columns: Iterable[tuple[str, ColumnType]]) -> list[str]:
    """Return the categories for which 0/1 columns are useful, without numbers and times that are written as text."""
    written = ("commas", "signs", "times")
    return [name for name, kind in columns if kind.kind == "category" and _hidden(features[name]) not in written]


def _hidden(column: Any) -> str | None:
    """Return the result of `hidden_numbers` for a column of text; None for numbers."""
    return None if is_numeric(column) else hidden_numbers(column.dropna().astype(str))


def _hints(features: Any, columns: list[tuple[str, ColumnType]], words: Words) -> str:
    """Return how to read numbers and times that are written as text."""
    import pandas as pd

    hints: list[str] = []
    for name, _ in columns:
        texts, found = features[name].dropna().astype(str), _hidden(features[name])
        if found == "commas" and any(words.decimal in hint for hint in hints):
            continue
        if found == "commas":
            hints.append(f" Numbers such as {texts.iloc[0][:20]!r} in {name!r} can be read with {words.decimal}.")
        elif found == "signs":
            example = f"{texts.iloc[0][:20]!r} in {name!r}"
            hints.append(
                f" Numbers such as {example} can be read after you remove the signs and the separators of thousands from the table."
            )
        elif found == "times":
            kind = words.as_kind.format(name=name, kind="date:FORMAT")
            hints.append(
                f" If {name!r} holds dates or times, such as {texts.iloc[0][:20]!r}, pass {kind} with the format of strptime."
            )
        elif found == "some":
            others = texts[pd.to_numeric(texts, errors="coerce").isna()]
            culprit = others.iloc[0][:30] if len(others) else ""
            if culprit:
                hints.append(f" Pass {words.not_known.format(text=culprit)} if {culprit!r} means a missing value.")
    return "".join(hints[:3])


def refuse_infinite(values: np.ndarray, names: list[str], or_else: str = "") -> None:
    """Raise an error for infinite numbers, and for numbers whose squares would be infinite."""
    infinite = np.isinf(values).sum(axis=0)
    if infinite.any():
        found = [f"{name} ({number:,})" for name, number in zip(names, infinite, strict=True) if number]
        raise TableError(f"infinite values in {shown(found)}. Replace them{or_else}.")
    largest = np.nanmax(np.abs(values), axis=0, initial=0.0)
    if largest.max(initial=0.0) > LARGEST:
        found = [f"{name} ({size:.3g})" for name, size in zip(names, largest, strict=True) if size > LARGEST]
        raise TableError(
            f"numbers too large to square in {shown(found)}; expected at most {LARGEST:g}. Change their unit{or_else}."
        )


def _kept_rows(
    values: np.ndarray,
    sources: list[str],
    labels: Any,
    label: str | None,
    missing: str,
    words: Words,
    notes: list[Note],
) -> np.ndarray:
    """Return which rows are kept; raise an error for missing values, or add a note about their treatment."""
    gaps = np.isnan(values)
    # Several features may come from one raw column, which is counted once.
    by_column = {name: int(number) for name, number in zip(sources, gaps.sum(axis=0), strict=True) if number}
    incomplete, unlabelled = gaps.any(axis=1), np.zeros(len(values), dtype=bool)
    if labels is not None and labels.isna().any():
        unlabelled = labels.isna().to_numpy()
        by_column[str(label)] = int(unlabelled.sum())
    if not by_column:
        return np.ones(len(values), dtype=bool)
    left_out = unlabelled | incomplete if missing in ("refuse", "drop") else unlabelled
    found = describe_gaps(by_column, int((unlabelled | incomplete).sum()), len(values))
    if missing == "refuse":
        raise TableError(
            f"{found}. Pass {words.marginalise} to learn densities from the known values, {words.impute} to fill in missing values "
            f"of features, {words.drop_rows} to leave those rows out, or {words.drop} the columns."
        )
    if left_out.all():
        raise TableError(
            f"{found}: no row is complete, so {words.drop_rows} leaves none. Use {words.marginalise} or {words.impute} instead."
        )
    if left_out.any():
        notes.append(Note(f"Left out {count(int(left_out.sum()), 'row')} of {len(values):,} with missing values."))
    if missing in ("impute", "marginalise") and gaps.any():
        done = (
            "are filled in by DensityImputer"
            if missing == "impute"
            else "stay missing: densities are learned from the known values"
        )
        notes.append(Note(f"{found[0].upper()}{found[1:]} {done}."))
    return ~left_out


def describe_gaps(by_column: dict[str, int], n_rows: int, n: int) -> str:
    """Return how many values are missing, in how many rows, by column."""
    counts = ", ".join(f"{name!r}: {number:,}" for name, number in list(by_column.items())[:8])
    rest = f" and {len(by_column) - 8} more columns" if len(by_column) > 8 else ""
    return f"{count(sum(by_column.values()), 'missing value')} in {count(n_rows, 'row')} of {n:,} ({counts}{rest})"


def _without_constants(
    encoder: TableEncoder, values: np.ndarray, names: list[str], notes: list[Note], needed: Collection[str] = ()
) -> tuple[TableEncoder, np.ndarray, list[str]]:
    """Leave out features that do not change over the rows that were kept, unless they come from a needed column."""
    if len(values) < 2:
        return encoder, values, names
    with np.errstate(invalid="ignore"):
        varies = np.nanmax(values, axis=0, initial=-np.inf) > np.nanmin(values, axis=0, initial=np.inf)
    varies |= [source in needed for source in encoder.sources]
    if varies.all():
        return encoder, values, names
    if not varies.any():
        raise TableError(_all_constant(len(values)), notes)
    gone = [name for name, changes in zip(names, varies, strict=True) if not changes]
    notes.append(Note(f"Left out, because they are constant over the rows that are kept: {shown(gone)}.", True))
    kept, narrow = np.flatnonzero(varies), encoder.select(np.flatnonzero(varies))
    values_of = dict(zip(names, np.nanmax(values, axis=0), strict=True))
    plain = {
        name: repr(float(values_of[name])) for name in gone if name in encoder.sources and not np.isnan(values_of[name])
    }
    narrow._keep_constants(encoder.constants_ | plain)
    return narrow, values[:, kept], [names[j] for j in kept]
