"""Preparation of a table: the choice of features, their conversion, and notes about what was done and what is unusual.

`vicinal learn`, `vicinal compare` and `vicinal.tables.prepare` share this function.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import skew

from vicinal._checks import check_choice
from vicinal._notebook import table_html
from vicinal._tables.column_type import ColumnType, TableError, describe_types
from vicinal._tables.encoder import TableEncoder
from vicinal._tables.encoding import CATEGORIES, describe_text
from vicinal._tables.frames import (
    MOST_LEVELS,
    as_frame,
    as_numbers,
    check_names,
    hidden_numbers,
    is_numeric,
    looks_like_days,
    missing_marks,
    other_reading,
)
from vicinal._tables.rows import chosen, collected, extremes, is_mapped, parts_of
from vicinal._words import count, shown

LARGEST = 1e150  # the largest number that can be squared and summed in float64
_SKEWED = 2.0  # the skewness of an exponential distribution
MISSING = ("refuse", "drop", "impute", "marginalise")


class Note(NamedTuple):
    """A sentence about something that was done to the table, or that is unusual about it."""

    text: str
    odd: bool = False


class PreparedTable(NamedTuple):
    """A prepared table.

    Attributes
    ----------
    X : DataFrame of float64
        The features without noise, with NaN for missing values that `missing` keeps. Columns of levels are codes, whose texts are
        in ``encoder.levels_``.
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

    def learnable(self, *, levels: bool) -> "PreparedTable":
        """Return the table with the features that a density can learn from.

        Parameters
        ----------
        levels : bool
            Whether these include columns of levels beside quantities (continuous columns and lattices).

        Returns
        -------
        PreparedTable
        """
        learnable = _learnable(self.encoder, levels=levels)
        if learnable.all():
            return self
        values = chosen(self.X.to_numpy(), np.ones(len(self.X), dtype=bool), learnable)
        notes = [Note(text, True) for text in kept_out_notes(self.feature_types, levels=levels)]
        return self._replace(
            X=_as_features(values, self.X.columns[learnable], self.X.index),
            encoder=self.encoder.select(np.flatnonzero(learnable)),
            notes=[*self.notes, *notes],
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


def _learnable(encoder: TableEncoder, *, levels: bool) -> np.ndarray:
    """Return which columns of the output are quantities or, with `levels`, codes of levels."""
    coded = encoder.level_texts if levels else {}
    return np.array([kind.measured or k in coded for k, kind in enumerate(encoder.feature_types_)], dtype=bool)


def kept_out_notes(types: Mapping[str, ColumnType], *, levels: bool) -> list[str]:
    """Return which columns densities do not learn from, and why, in sentences; an empty list if they learn from all."""
    tied = {name: kind for name, kind in types.items() if kind.kind == "tied"}
    others = [
        (name, kind)
        for name, kind in types.items()
        if not (kind.measured or kind.kind == "tied" or (levels and kind.has_levels))
    ]
    notes = []
    if others:
        only = "quantities and levels" if levels else "quantities"
        notes.append(f"Left out, because this density learns only from {only}: {describe_types(others)}.")
    if tied:
        shares = [f"{name!r} ({100 * kind.tied:.0f} % of the rows)" for name, kind in list(tied.items())[:8]]
        rest = f" and {len(tied) - 8} more" if len(tied) > 8 else ""
        notes.append(
            "Left out of densities, because their values repeat, but fill no even steps, so that a density could be "
            f"made arbitrarily high: {', '.join(shares)}{rest}. Pass {_as_kind(next(iter(tied)), 'continuous')} "
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
    categories: str = "omit",
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
    categories : {"omit", "one_hot", "codes", "codes+one_hot"}, default="omit"
        What is made of categories: nothing, 0/1 columns, or the codes of their levels, which ``vicinal learn`` and ``vicinal compare``
        use for densities.
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
        table,
        target,
        drop=drop,
        log=log,
        types=types,
        categories=categories,
        missing=missing,
        random_state=random_state,
    )


def prepare_table(
    table: Any,
    label: str | None,
    *,
    drop: Sequence[str] = (),
    log: Sequence[str] = (),
    types: Mapping[str, Any] | None = None,
    categories: str = "omit",
    missing: str = "refuse",
    random_state: int = 0,
    partial: bool = False,
    for_density: bool = False,
) -> PreparedTable:
    """Prepare a table.

    With `partial`, missing labels mean unknown and are kept. With `for_density`, missing values count only in the columns that
    `PreparedTable.learnable` keeps. If columns of the table are memory maps, the features are one, too.
    """
    check_choice(missing, "missing", MISSING)
    check_choice(categories, "categories", tuple(name for name in CATEGORIES if name != "levels"))
    frame = as_frame(table)
    check_names(drop, frame.columns, "drop")
    if label is not None:
        check_names([label], frame.columns, "target")
        if label in drop:
            raise TableError(f"target and drop both name {label!r}. Leave it out of drop.")
    features = frame.drop(columns=[*drop, *([] if label is None else [label])])
    check_names(log, features.columns, "log")
    notes = [Note(f"Left out on request: {shown(drop)}.")] if drop else []
    types = {
        name: kind.spec if isinstance(kind, ColumnType) else kind
        for name, kind in (types or {}).items()
        if name not in (*drop, label)
    }
    encoder = TableEncoder(types or None, log=list(log) or None, categories=categories, random_state=random_state)
    encoder.fit(features)
    kinds = encoder.types_
    marked = _notes_on_marks(features, kinds)
    notes += [
        *_notes_on_columns(features, kinds, categories, set(encoder.sources), for_density=for_density),
        *_notes_on_days(features, kinds),
        *marked.values(),
        *_notes_on_skew(features, {name: kind for name, kind in kinds.items() if name not in marked}, log),
    ]
    if not len(encoder.get_feature_names_out()):
        if all(kind.kind == "constant" for kind in kinds.values()):
            raise TableError(_all_constant(len(features)), notes)
        usable = categories == "omit" and _categories(features, kinds.items())
        hint = _hints(features, list(kinds.items()))
        hint += _AS_INDICATORS if usable else ""
        raise TableError(f"no column is left to learn from.{hint}", notes)
    encoder = encoder.select(np.arange(len(encoder.get_feature_names_out())))
    names = [str(name) for name in encoder.get_feature_names_out()]
    blocks = (encoder.transform(features.iloc[part]) for part in parts_of(len(features)))
    values = collected(blocks, len(names), mapped=is_mapped(features))
    refuse_infinite(values, names, ", or drop the columns")
    labels = None if label is None else frame[label]
    counted = _learnable(encoder, levels=True) | (not for_density)
    rows = _Gaps(values, counted, encoder.sources, None if partial else labels).kept_rows(missing, notes)
    changing = _changing(values, rows)
    if not changing.all():
        encoder = _without_constants(encoder, values, rows, changing, notes)
    values = chosen(values, rows, changing)
    X = _as_features(values, [name for name, kept in zip(names, changing, strict=True) if kept], features.index[rows])
    return PreparedTable(X, None if labels is None else labels[rows], np.flatnonzero(rows), kinds, encoder, notes)


def _as_features(values: np.ndarray, names: Any, index: Any) -> Any:
    import pandas as pd

    return pd.DataFrame(values, columns=names, index=index, copy=False)


def _as_kind(name: str, kind: str) -> str:
    return f"types={{{name!r}: {kind!r}}}"


def _all_constant(n: int) -> str:
    return f"every feature is constant over the {count(n, 'row')}, so there is nothing to learn from."


def _notes_on_columns(
    features: Any, types: dict[str, ColumnType], categories: str, used: set[str], *, for_density: bool
) -> list[Note]:
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
        notes.append(Note(named + _hints(features, rows_named), True))
    unread = [column for column in of("text", "category") if column[0] not in used]
    if unread:
        notes.append(Note(_unread(features, unread, categories, for_density=for_density), True))
    read = [column for column in of("category") if column[0] in used]
    if read:
        counted = [f"{name} ({features[name].nunique()} values)" for name, _ in read]
        hints = _hints(features, read)
        done = {"codes": "Used as levels", "one_hot": "Converted to 0/1 columns"}.get(
            categories, "Used as levels and as 0/1 columns"
        )
        notes.append(Note(f"{done}: {shown(counted)}.{hints}", bool(hints)))
    if of("date"):
        notes.append(
            Note(f"Converted dates to days and positions in the year, week and day: {shown(dict(of('date')))}.")
        )
    for name, kind in of("date"):
        other = None if kind.format is None else other_reading(features[name].dropna().astype(str), kind.format)
        if other is not None:
            text = (
                f"The dates of {name!r} can be read with the month or with the day first, and are read as {kind.format}. "
                f"Pass {_as_kind(name, 'date:' + other)} for the other reading."
            )
            notes.append(Note(text, True))
    return notes


def _notes_on_days(features: Any, types: dict[str, ColumnType]) -> list[Note]:
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
            f"{_as_kind(name, 'date:%Y%m%d')} to read them as dates.",
            True,
        )
        for name in days
    ]


def _notes_on_skew(features: Any, types: dict[str, ColumnType], log: Sequence[str]) -> list[Note]:
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
                f"log={skewed!r} to use {'its logarithm' if len(skewed) == 1 else 'their logarithms'}.",
                True,
            )
        )
    return notes


def _notes_on_marks(features: Any, types: dict[str, ColumnType]) -> dict[str, Note]:
    """Return notes, by column, about repeated extreme values that may be marks of missing values, such as 999 and -1."""
    notes = {}
    for name, kind in types.items():
        if kind.kind not in ("continuous", "lattice", "tied"):
            continue
        values = as_numbers(features[name])
        for mark, times, low, high in missing_marks(values[~np.isnan(values)]):
            side = "above" if mark > high else "below"
            text = f"{name!r} is {mark:g} in {count(times, 'row')}, far {side} its other values ({low:g} to {high:g}). Pass "
            notes[name] = Note(f"{text}na=['{mark:g}'] if this means a missing value.", True)
    return notes


_AS_LEVELS = " LCA and Parzen windows learn from categories as they are; this density does not."
_AS_INDICATORS = " Pass categories='one_hot' to use categories as 0/1 columns."


def _unread(features: Any, columns: list[tuple[str, ColumnType]], categories: str, *, for_density: bool) -> str:
    described = [describe_text(features[name]) for name, _ in columns]
    rest = f"; and {len(described) - 8} more" if len(described) > 8 else ""
    if categories == "one_hot":
        text = (
            f"Left out, because they have more than {MOST_LEVELS} different values each (too many for 0/1 columns): "
            f"{shown(dict(columns))}."
        )
    else:
        text = f"Left out {count(len(columns), 'column')} of text: {'; '.join(described[:8])}{rest}."
    if categories == "omit" and _categories(features, columns):
        text += _AS_LEVELS if for_density else _AS_INDICATORS
    return text + _hints(features, columns)


def _categories(features: Any, columns: Iterable[tuple[str, ColumnType]]) -> list[str]:
    """Return the categories for which 0/1 columns are useful, without numbers and times that are written as text."""
    written = ("commas", "signs", "times")
    return [name for name, kind in columns if kind.kind == "category" and _hidden(features[name]) not in written]


def _hidden(column: Any) -> str | None:
    """Return the result of `hidden_numbers` for a column of text; None for numbers."""
    return None if is_numeric(column) else hidden_numbers(column.dropna().astype(str))


def _hints(features: Any, columns: list[tuple[str, ColumnType]]) -> str:
    """Return how to read numbers and times that are written as text."""
    import pandas as pd

    hints: list[str] = []
    for name, _ in columns:
        texts, found = features[name].dropna().astype(str), _hidden(features[name])
        if found == "commas" and any("decimal=" in hint for hint in hints):
            continue
        if found == "commas":
            hints.append(f" Numbers such as {texts.iloc[0][:20]!r} in {name!r} can be read with decimal=','.")
        elif found == "signs":
            example = f"{texts.iloc[0][:20]!r} in {name!r}"
            hints.append(
                f" Numbers such as {example} can be read after you remove the signs and the separators of thousands from the table."
            )
        elif found == "times":
            kind = _as_kind(name, "date:FORMAT")
            hints.append(
                f" If {name!r} holds dates or times, such as {texts.iloc[0][:20]!r}, pass {kind} with the format of strptime."
            )
        elif found == "some":
            others = texts[pd.to_numeric(texts, errors="coerce").isna()]
            culprit = others.iloc[0][:30] if len(others) else ""
            if culprit:
                hints.append(f" Pass na=[{culprit!r}] if {culprit!r} means a missing value.")
    return "".join(list(dict.fromkeys(hints))[:3])


def refuse_infinite(values: np.ndarray, names: list[str], or_else: str = "") -> None:
    """Raise an error for infinite numbers, and for numbers whose squares would be infinite."""
    least, most = extremes(values)
    largest = np.where(least > most, 0.0, np.maximum(most, -least))  # 0 for a column without values
    if np.isinf(largest).any():
        numbers = sum(np.isinf(values[part]).sum(axis=0) for part in parts_of(len(values)))
        infinite = [f"{name} ({number:,})" for name, number in zip(names, numbers, strict=True) if number]
        raise TableError(f"infinite values in {shown(infinite)}. Replace them{or_else}.")
    if largest.max(initial=0.0) > LARGEST:
        large = [f"{name} ({size:.3g})" for name, size in zip(names, largest, strict=True) if size > LARGEST]
        raise TableError(
            f"numbers too large to square in {shown(large)}; expected at most {LARGEST:g}. Change their unit{or_else}."
        )


class _Gaps:
    """The missing values of the features that count, and of the labels.

    Several features may come from one raw column, which is counted once.
    """

    def __init__(self, values: np.ndarray, counted: np.ndarray, sources: list[str], labels: Any) -> None:
        self._incomplete = np.zeros(len(values), dtype=bool)
        self._unlabelled = np.zeros(len(values), dtype=bool) if labels is None else labels.isna().to_numpy()
        numbers, labelled_numbers = np.zeros((2, values.shape[1]), dtype=np.int64)
        for part in parts_of(len(values)):
            gaps = np.isnan(values[part]) & counted
            self._incomplete[part] = gaps.any(axis=1)
            numbers += gaps.sum(axis=0)
            labelled_numbers += gaps[~self._unlabelled[part]].sum(axis=0)
        self._by_column = {name: int(number) for name, number in zip(sources, numbers, strict=True) if number}
        # Those of rows with labels: rows without are left out, whatever is done about missing features.
        self._to_fill = {name: int(number) for name, number in zip(sources, labelled_numbers, strict=True) if number}
        if self._unlabelled.any():
            self._by_column[str(labels.name)] = int(self._unlabelled.sum())

    def kept_rows(self, missing: str, notes: list[Note]) -> np.ndarray:
        """Return which rows are kept; raise an error for missing values, or add a note about their treatment."""
        n = len(self._incomplete)
        if not self._by_column:
            return np.ones(n, dtype=bool)
        left_out = self._unlabelled | self._incomplete if missing in ("refuse", "drop") else self._unlabelled
        gaps = describe_gaps(self._by_column, int((self._unlabelled | self._incomplete).sum()), n)
        if missing == "refuse":
            raise TableError(
                f"{gaps}. Pass missing='marginalise' to learn densities from the known values, missing='impute' to fill in missing values "
                "of features, missing='drop' to leave those rows out, or drop the columns."
            )
        if left_out.all():
            raise TableError(
                f"{gaps}: no row is complete, so missing='drop' leaves none. Use missing='marginalise' or missing='impute' instead."
            )
        if left_out.any():
            notes.append(Note(f"Left out {count(int(left_out.sum()), 'row')} of {n:,} with missing values."))
        stay = self._incomplete & ~left_out
        if stay.any():
            gaps = describe_gaps(self._to_fill, int(stay.sum()), n)
            filled = missing == "impute"
            done = (
                "are filled in by DensityImputer"
                if filled
                else "stay missing: densities are learned from the known values"
            )
            notes.append(Note(f"{gaps[0].upper()}{gaps[1:]} {done}."))
        return ~left_out


def describe_gaps(by_column: dict[str, int], n_rows: int, n: int) -> str:
    """Return how many values are missing, in how many rows, by column."""
    counts = ", ".join(f"{name!r}: {number:,}" for name, number in list(by_column.items())[:8])
    rest = f" and {len(by_column) - 8} more columns" if len(by_column) > 8 else ""
    return f"{count(sum(by_column.values()), 'missing value')} in {count(n_rows, 'row')} of {n:,} ({counts}{rest})"


def _changing(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return which features change over the rows that are kept; all of them if there is one row."""
    if rows.sum() < 2:
        return np.ones(values.shape[1], dtype=bool)
    least, most = extremes(values, rows)
    return most > least


def _without_constants(
    encoder: TableEncoder, values: np.ndarray, rows: np.ndarray, changing: np.ndarray, notes: list[Note]
) -> TableEncoder:
    """Return the encoder without the features that do not change over the rows that are kept."""
    if not changing.any():
        raise TableError(_all_constant(int(rows.sum())), notes)
    constants = dict(zip(encoder.get_feature_names_out(), extremes(values, rows)[1], strict=True))
    gone = [str(name) for name, changes in zip(constants, changing, strict=True) if not changes]
    notes.append(Note(f"Left out, because they are constant over the rows that are kept: {shown(gone)}.", True))
    known = [name for name in gone if name in encoder.sources and np.isfinite(constants[name])]
    narrow = encoder.select(np.flatnonzero(changing))
    narrow._keep_constants(encoder.constants_ | {name: repr(float(constants[name])) for name in known})
    return narrow
