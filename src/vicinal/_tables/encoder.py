"""Conversion of the raw columns of a table to numbers, by their kinds."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from types import NoneType
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from vicinal._checks import check_choice, check_random_state
from vicinal._notebook import NotebookMixin
from vicinal._tables.column_type import ColumnType, TableError
from vicinal._tables.dequantizer import Dequantizer
from vicinal._tables.encoding import CATEGORIES, as_texts, differs, encoded, output_name, outputs_of
from vicinal._tables.frames import as_frame, check_names, column_types, is_numeric
from vicinal._words import count, shown, similar_columns


class TableEncoder(NotebookMixin, TransformerMixin, BaseEstimator):
    """Convert the columns of a table to numbers, according to the kind of each column.

    Numbers are not changed. A date becomes days (since 1970-01-01) and, if they vary, the sine and cosine of its
    position in the year, in the week and in the day. Categories and truth values become columns of levels, from which
    :class:`vicinal.LCA` and :class:`vicinal.ParzenWindows` learn as they are; other methods need one of the other values of ``categories``. Text and
    columns that identify or number the rows, are constant, or are empty are left out. Missing values stay missing
    (NaN); :class:`vicinal.DensityImputer` fills them in.

    Parameters
    ----------
    types : dict, optional
        Overrides of the detected kinds, by column, in the notation of :func:`vicinal.tables.column_types`.
    log : list of str, optional
        Columns of positive quantities of which the logarithm is used, under the name "log(column)". The distance between
        logarithms is that of ratios, which is usually meant for prices, incomes and other skewed quantities.
    categories : {"levels", "codes", "one_hot", "omit", "codes+one_hot"}, default="levels"
        What is made of categories and of truth values:

        - "levels": a column of the dtype category; ``transform`` then returns a DataFrame;
        - "codes": a column of numbers, the position of the value in ``levels_``, and the number of these for another value;
        - "one_hot": 0/1 columns with the names "column=value"; truth values are one 0/1 column;
        - "omit": categories are left out, and truth values are a 0/1 column;
        - "codes+one_hot": both kinds of columns.
    random_state : int, default=0
        The seed of the noise that densities need on rounded columns (`dequantizer`). ``transform`` adds none.

    Attributes
    ----------
    types_ : dict of str to ColumnType
        The kind of each raw column.
    feature_types_ : list of ColumnType
        The kind of each column of the output. Densities and LCA can learn from those that are ``measured`` (continuous or
        on a lattice).
    constants_ : dict of str to str
        The value of each constant raw column. `broken_constants` finds rows with another value.
    n_features_in_, feature_names_in_ : int, ndarray of str
        The number of columns of the training rows, and their names if they have names.

    Notes
    -----
    A model file contains the encoder, so that new rows are treated as the training rows were. ``transform`` finds the
    columns of a DataFrame by name: their order does not matter, and others are ignored.

    Examples
    --------
    >>> import pandas as pd
    >>> from vicinal import TableEncoder
    >>> table = pd.DataFrame({"price": [9.5, 8.0, 9.5, 7.0], "colour": ["red", "blue", "red", "blue"]})
    >>> encoder = TableEncoder(categories="one_hot").fit(table)
    >>> list(encoder.get_feature_names_out())
    ['price', 'colour=blue', 'colour=red']
    >>> encoder.transform(table[:2])
    array([[9.5, 0. , 1. ],
           [8. , 1. , 0. ]])
    """

    def __init__(
        self,
        types: Mapping[str, Any] | None = None,
        *,
        log: Sequence[str] | None = None,
        categories: str = "levels",
        random_state: int = 0,
    ) -> None:
        self.types = types
        self.log = log
        self.categories = categories
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags

    def fit(self, X: Any, y: Any = None) -> "TableEncoder":
        """Find the kinds of the columns.

        Parameters
        ----------
        X : DataFrame, or array of shape (n_samples, n_features)
            The training table.
        y : ignored
            Not used; accepted because pipelines of scikit-learn pass it.

        Returns
        -------
        self
        """
        check_choice(self.categories, "categories", CATEGORIES)
        check_random_state(self.random_state)
        frame = as_frame(X)
        self.n_features_in_ = frame.shape[1]
        names = np.array(list(frame.columns), dtype=object)
        if hasattr(X, "columns"):
            self.feature_names_in_ = names
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self._columns = names
        found = list(column_types(frame, self.types).values())
        if isinstance(self.log, str) or not isinstance(self.log, (Iterable, NoneType)):
            raise TypeError(f"log must be a list of names of columns or None, got {self.log!r}.")
        log = [] if self.log is None else [str(name) for name in self.log]
        check_names(log, frame.columns, "log")
        outputs = [
            (position, part, kind)
            for position, column_type in enumerate(found)
            for part, kind in outputs_of(
                frame.iloc[:, position],
                column_type,
                self.categories,
                log=str(names[position]) in log,
                declared=str(names[position]) in (self.types or {}),
            )
        ]
        made = [output_name(str(names[position]), part) for position, part, _ in outputs]
        twice = next((name for name, times in Counter(made).items() if times > 1), None)
        if twice is not None:
            raise TableError(
                f"two columns would have the name {twice!r}: one of the table, and one that is made from a category. Rename the former."
            )
        self._column_types = _packed(found)
        self._sources = np.array([position for position, _, _ in outputs], dtype=np.int64)
        self._parts = np.array([part for _, part, _ in outputs], dtype=object)
        self._feature_types = _packed([kind for _, _, kind in outputs])
        constant = [frame.iloc[:, position] for position, kind in enumerate(found) if kind.kind == "constant"]
        self._keep_constants({str(column.name): as_texts(column).dropna().iloc[0] for column in constant})
        return self

    @property
    def types_(self) -> dict[str, ColumnType]:
        """The kind of each raw column, by name."""
        check_is_fitted(self, "_columns")
        return {str(name): _unpacked(kind) for name, kind in zip(self._columns, self._column_types, strict=True)}

    @property
    def feature_types_(self) -> list[ColumnType]:
        """The kind of each column of the output."""
        check_is_fitted(self, "_columns")
        return [_unpacked(kind) for kind in self._feature_types]

    @property
    def level_texts(self) -> dict[int, list[str]]:
        """The levels of each column of levels or codes, in their order, by its position in the output."""
        check_is_fitted(self, "_columns")
        return {k: kind.levels for k, kind in enumerate(self.feature_types_) if self._parts[k] == "codes"}

    @property
    def levels_(self) -> dict[str, list[str]]:
        """The levels of each column of levels or codes, in their order, by name."""
        names = self.get_feature_names_out()
        return {str(names[k]): texts for k, texts in self.level_texts.items()}

    @property
    def sources(self) -> list[str]:
        """The raw column of each column of the output."""
        check_is_fitted(self, "_columns")
        return [str(self._columns[position]) for position in self._sources]

    @property
    def used_columns(self) -> list[str]:
        """The raw columns that ``transform`` reads."""
        return list(dict.fromkeys(self.sources))

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the output: "column", "column=value" or "column:part of a date".

        Parameters
        ----------
        input_features : ignored
            Not used; accepted as in scikit-learn's transformers.

        Returns
        -------
        ndarray of str objects
        """
        check_is_fitted(self, "_columns")
        named = zip(self._sources, self._parts, strict=True)
        return np.array([output_name(str(self._columns[position]), part) for position, part in named], dtype=object)

    def transform(self, X: Any) -> Any:
        """Return the numbers, NaN where a value is missing; with columns of levels, a DataFrame.

        A level that the training rows lack is not a category of the dtype, but remains as it is.

        Parameters
        ----------
        X : DataFrame, or array of shape (n_samples, n_features)
            The table.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out), or DataFrame
        """
        frame = self.pick(X)
        raw, made = self.types_, self.feature_types_
        values = np.empty((len(frame), len(self._parts)))
        for j, (position, part) in enumerate(zip(self._sources, self._parts, strict=True)):
            name = str(self._columns[position])
            values[:, j] = encoded(frame[name], part, raw[name], made[j])
        return self._with_levels(values, frame) if self.categories == "levels" and self.level_texts else values

    def _with_levels(self, values: np.ndarray, frame: Any) -> Any:
        """Return a DataFrame of numbers and of levels; a column with other values than the known levels holds them as text."""
        import pandas as pd

        columns: dict[str, Any] = dict(zip(self.get_feature_names_out(), values.T, strict=True))
        for k, texts in self.level_texts.items():
            name, codes = list(columns)[k], values[:, k]
            if np.nanmax(codes, initial=0.0) < len(texts):
                columns[name] = pd.Categorical.from_codes(np.nan_to_num(codes, nan=-1.0).astype(int), texts)
            else:
                shown = as_texts(frame[self.sources[k]]).astype(object)
                columns[name] = shown.where(shown.notna(), None).to_numpy()
        return pd.DataFrame(columns, index=frame.index)

    def pick(self, X: Any) -> Any:
        """Return the raw columns that ``transform`` reads, by name, as a DataFrame; raise an error if some are missing.

        Parameters
        ----------
        X : DataFrame, or array of shape (n_samples, n_features)
            The table.

        Returns
        -------
        DataFrame
        """
        check_is_fitted(self, "_columns")
        frame = as_frame(X)
        if not hasattr(X, "columns"):
            if frame.shape[1] != self.n_features_in_:
                raise TableError(
                    f"X has {frame.shape[1]} features, but TableEncoder is expecting {self.n_features_in_} features as input."
                )
            frame.columns = [str(name) for name in self._columns]
        used = self.used_columns
        absent = [name for name in used if name not in frame.columns]
        if absent:
            others = list(frame.columns.difference(used, sort=False))  # a column that was found is not misspelt
            hint = similar_columns(absent[:3], others)
            raise TableError(
                f"the table lacks {count(len(absent), 'column')} of the model: {shown(absent)}.{hint} It has "
                f"{shown(frame.columns)}."
            )
        return frame[used]

    def unseen(self, X: Any) -> dict[str, list[str]]:
        """Return the values of categories that were not in the training rows, row by row, by column.

        Parameters
        ----------
        X : DataFrame, or array of shape (n_samples, n_features)
            The table.

        Returns
        -------
        dict of str to list of str
            All 0/1 columns of these values are 0.
        """
        frame, found = self.pick(X), {}
        values: dict[str, set[str]] = {}
        for source, part in zip(self.sources, self._parts, strict=True):
            if part.startswith("="):
                values.setdefault(source, set()).add(part[1:])
        for name, known in values.items():
            texts = as_texts(frame[name]).dropna()
            found[name] = texts[~texts.isin(known)].tolist()
        return {name: values for name, values in found.items() if values}

    def _keep_constants(self, constants: Mapping[str, str]) -> None:
        self._constant_names = np.array(list(constants), dtype=object)
        self._constant_texts = np.array([str(text) for text in constants.values()], dtype=object)

    @property
    def constants_(self) -> dict[str, str]:
        """The value, as a string, of each raw column that had only one value."""
        check_is_fitted(self, "_columns")
        return {str(name): str(text) for name, text in zip(self._constant_names, self._constant_texts, strict=True)}

    def broken_constants(self, X: Any) -> dict[str, np.ndarray]:
        """Return, by column, which rows have another value than the one that all training rows had.

        Parameters
        ----------
        X : DataFrame, or array of shape (n_samples, n_features)
            The table.

        Returns
        -------
        dict of str to boolean ndarray of shape (n_samples,)
            Columns without such rows and columns that the table does not have are not included. Missing values are ignored.
        """
        frame, found = as_frame(X), {}
        for name, text in self.constants_.items():
            if name not in frame.columns:
                continue
            column = frame[name]
            broken = differs(column, text) & column.notna().to_numpy()
            if broken.any():
                found[name] = broken
        return found

    def select(self, outputs: Any) -> "TableEncoder":
        """Return a fitted encoder with some of the outputs, which reads only the raw columns that it needs.

        Parameters
        ----------
        outputs : array of bool or of positions, shape (n_features_out,)
            The columns of the output to keep.

        Returns
        -------
        TableEncoder
        """
        check_is_fitted(self, "_columns")
        narrow = copy(self)
        sources = self._sources[outputs]
        used = np.unique(sources)
        narrow._columns, narrow.n_features_in_ = self._columns[used], len(used)
        if hasattr(self, "feature_names_in_"):
            narrow.feature_names_in_ = narrow._columns
        narrow._sources, narrow._parts = np.searchsorted(used, sources), self._parts[outputs]
        narrow._column_types, narrow._feature_types = self._column_types[used], self._feature_types[outputs]
        narrow.log = None if self.log is None else [name for name in self.log if name in narrow._columns]
        narrow.types = None if self.types is None else {n: t for n, t in self.types.items() if n in narrow._columns}
        return narrow

    def dequantizer(self) -> Dequantizer | None:
        """Return the fitted noise for the output's rounded columns, or None if no column is rounded.

        As a step of a pipeline it adds noise to the training rows only: ``training_only`` is True.

        Returns
        -------
        Dequantizer or None
        """
        steps = [kind.step if kind.kind == "lattice" else 0.0 for kind in self.feature_types_]
        if not any(steps):
            return None
        log = [int(j) for j in np.flatnonzero(self._parts == "log")]
        dequantizer = Dequantizer(steps=steps, log=log, training_only=True, random_state=self.random_state)
        dequantizer.fit(np.zeros((1, len(steps))))
        dequantizer.offsets_ = np.array([kind.offset or 0.0 for kind in self.feature_types_])
        dequantizer.feature_names_in_ = self.get_feature_names_out()
        return dequantizer.set_output(transform="pandas")

    @classmethod
    def of_features(cls, names: list[str], table: Any) -> "TableEncoder":
        """Return a fitted encoder that creates the columns of these names from a table, without using its values.

        "column=value" is created from a column of text if the table has no column of that name. Names that the table
        does not have are required as they are.

        Parameters
        ----------
        names : list of str
        table : DataFrame

        Returns
        -------
        TableEncoder
        """
        frame, columns, outputs = as_frame(table), [], []
        for name in names:
            column, part = _column_and_part(frame, name)
            if column not in columns:
                columns.append(column)
            outputs.append((columns.index(column), part))
        encoder = cls(categories="one_hot")
        encoder.n_features_in_ = len(columns)
        encoder.feature_names_in_ = encoder._columns = np.array(columns, dtype=object)
        encoder._sources = np.array([position for position, _ in outputs], dtype=np.int64)
        encoder._parts = np.array([part for _, part in outputs], dtype=object)
        plain, coded = ColumnType("continuous"), ColumnType("indicator")
        encoder._column_types = _packed([plain] * len(columns))
        encoder._feature_types = _packed([plain if part == "number" else coded for _, part in outputs])
        encoder._keep_constants({})
        return encoder


def _packed(types: list[ColumnType]) -> np.ndarray:
    """Return types as strings, which a model file can contain."""
    return np.array([json.dumps(kind) for kind in types], dtype=object)


def _unpacked(text: str) -> ColumnType:
    return ColumnType(*json.loads(text))


def _column_and_part(frame: Any, name: str) -> tuple[str, str]:
    """Return the column and the part to make of it: "=value" if the table has such a column of text, else "number"."""
    pieces = name.split("=")
    if name not in frame.columns:
        for cut in range(len(pieces) - 1, 0, -1):
            column = "=".join(pieces[:cut])
            if column in frame.columns and not is_numeric(frame[column]):
                return column, "=" + "=".join(pieces[cut:])
    return name, "number"
