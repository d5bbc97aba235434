r"""Columns of levels as coordinates: a category of a row is copied from the neighbour, or drawn from the shares of the levels.

For a column with level shares pi, the factor of a query i and a point j is

.. math:: (1 - l) [c_i = c_j] + l \pi(c_i) = l \pi(c_i) e^{s^2 [c_i = c_j]}, \qquad s_c^2 = \log(1 + (1 - l) / (l \pi_c))

With coordinates ``s_c e_c`` and log-weights ``s_c^2 / 2`` on both sides, the Gaussian kernel equals the factor up to ``l pi(c_i)``, so
that the engine needs no other kernel.  A query with another table of shares has the coordinate ``a e_c`` with ``a b = s^2``, where ``b``
is that of the points.  A level that the query lacks has the factor 1, and one that the point lacks has the factor ``pi(c_i)``.

Rows are held as *codes*: a table of floats with the numbers as they are, and the position of the level in the columns of levels; NaN where
a value is missing, and K for a level that the training rows lack.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from vicinal._checks import check_integer
from vicinal._rows import check_array, check_magnitude, check_names, is_frame

# The shares of a query, by what is known of it: a training row under all other rows, a new row, and a training row in the place of a
# new one, whose score is then compared with those of new rows.
TRAINING, NEW, COMPARED = "training", "new", "compared"
MOST_SMOOTHING = 1.0 - 1e-9
_SHOWN = 5


class CodedRows(NamedTuple):
    """Rows of numbers whose columns of levels are codes already, as `TableEncoder` makes them.

    values : (n, D), NaN where a value is missing
    names : of the columns
    texts : for each column of levels, by its place, the text of each code; empty if numbers are to be shown
    """

    values: np.ndarray
    names: np.ndarray
    texts: dict[int, list[str]]


class Shares(NamedTuple):
    """The shares of the levels of a column, shape (K + 1,): the last cell is for levels that the training rows lack.

    level : the share of the level
    group : that of the coordinate that it has, alone or with other rare levels
    copied : whether the level can be copied from a neighbour
    """

    level: np.ndarray
    group: np.ndarray
    copied: np.ndarray


class Category(NamedTuple):
    """A column of levels.

    position : its place among the columns of the table
    name : for messages
    levels : (K,), the levels of the training rows, in order
    counts, rows : (K,), the weight and the number of the training rows at each level
    group : (K,), the coordinate of each level; rare levels share the last one
    kind : "category", "text", "bool", "number" or "code", for rows of codes
    categories : the categories of the column's dtype, for the kind "category"
    texts : (K,), how the levels are written
    """

    position: int
    name: str
    levels: np.ndarray
    counts: np.ndarray
    rows: np.ndarray
    group: np.ndarray
    kind: str
    categories: np.ndarray
    texts: np.ndarray

    @property
    def n_groups(self) -> int:
        """The number of coordinates."""
        return int(self.group.max()) + 1

    @property
    def labels(self) -> list[str]:
        """The level of each coordinate; "rare levels" for those that share one."""
        sizes = np.bincount(self.group)
        first = {int(g): str(text) for g, text in zip(self.group[::-1], self.texts[::-1], strict=True)}
        return [first[g] if sizes[g] == 1 else "rare levels" for g in range(self.n_groups)]

    def shares(self, of: str) -> Shares:
        """Return the shares for `TRAINING`, `NEW` or `COMPARED` queries."""
        total, copied = self.counts.sum(), np.append(np.ones(len(self.levels), dtype=bool), False)
        pooled, members = np.bincount(self.group, self.counts), np.bincount(self.group, self.rows)
        if of == NEW:
            level, group, unit = self.counts, pooled[self.group], 1.0 / (total + 1.0)
        else:  # without a row, of mean weight among those of its level
            level = np.maximum(self.counts - self.counts / self.rows, 1.0)
            group = np.maximum(pooled - pooled / members, 1.0)[self.group]
            unit = 1.0 / total if of == TRAINING else 1.0 / (total + 1.0)
        if of == COMPARED:  # the only row of a level has a level that the others lack
            copied[:-1] = self.rows > 1
        level, group = np.append(level, 1.0) * unit, np.append(group, 1.0) * unit
        return Shares(level, np.maximum(group, level), copied)

    def encode(self, values: Any) -> np.ndarray:
        """Return the codes of values of the column."""
        values, missing = plain_values(values, self.kind)
        code_of = {level: float(k) for k, level in enumerate(self.levels.tolist())}
        codes = np.array([code_of.get(value, float(len(code_of))) for value in values.tolist()], dtype=np.float64)
        codes[missing] = np.nan
        return codes

    def decode(self, codes: np.ndarray) -> Any:
        """Return the levels of codes, with the dtype of the column; missing where no level of the training rows is meant."""
        known = codes < len(self.levels)
        values, levels = np.full(len(codes), None, dtype=object), self._written.tolist()
        values[known] = [levels[k] for k in codes[known].astype(int)]
        if self.kind == "category":
            import pandas as pd

            return pd.Categorical(values, categories=self.categories.tolist())
        if known.all() and self.kind in ("bool", "number"):
            return values.astype(bool if self.kind == "bool" else np.float64)
        return values

    @property
    def _written(self) -> np.ndarray:
        """The levels as a user passes them: texts if the rows of the fit were codes."""
        return self.texts if self.kind == "code" else self.levels

    def code(self, level: Any) -> float:
        """Return the code of one level, which may be one that the training rows lack."""
        if self.kind != "code":
            return float(self.encode([level])[0])
        return float(np.append(np.flatnonzero(self.texts == str(level)), len(self.levels))[0])


class Categories(NamedTuple):
    """The columns of levels of a table, in order, and what the table is.

    columns : tuple of Category
    n_features : the number of columns of the table, numbers included
    names : of all columns; None for an array
    """

    columns: tuple[Category, ...]
    n_features: int
    names: np.ndarray | None

    @property
    def positions(self) -> np.ndarray:
        """The places of the columns of levels."""
        return np.array([column.position for column in self.columns], dtype=int)

    @property
    def numbers(self) -> np.ndarray:
        """The places of the other columns."""
        return np.setdiff1d(np.arange(self.n_features), self.positions)

    def of_columns(self, kept: np.ndarray) -> Categories:
        """Return those of a table of some columns, in their order."""
        place = {int(k): p for p, k in enumerate(kept)}
        columns = [column for column in self.columns if column.position in place]
        moved = sorted(
            (column._replace(position=place[column.position]) for column in columns), key=lambda c: c.position
        )
        return Categories(tuple(moved), len(kept), None if self.names is None else self.names[kept])

    # -- tables and codes --------------------------------------------------------------------------------------------

    def encode(self, X: Any, estimator: Any = None) -> np.ndarray:
        """Return the codes of new rows; raise an error if they have other columns."""
        if is_frame(X):
            check_names(_Named(self.names, estimator), list(X.columns), reset=False)
        X = X.values if isinstance(X, CodedRows) else X if hasattr(X, "shape") else np.array(X, dtype=object)
        if len(X.shape) != 2 or X.shape[1] != self.n_features:
            raise ValueError(f"X must have {self.n_features} columns, got shape {tuple(X.shape)}.")
        codes = np.empty((X.shape[0], self.n_features))
        codes[:, self.numbers] = numbers_of(X, self.numbers)
        for column in self.columns:
            codes[:, column.position] = column.encode(column_of(X, column.position))
        return codes

    def decode(self, codes: np.ndarray) -> Any:
        """Return rows as a table like that of the training rows."""
        levels = {column.position: column.decode(codes[:, column.position]) for column in self.columns}
        columns = [levels.get(k, codes[:, k]) for k in range(self.n_features)]
        if self.names is None:
            kind = object if any(np.asarray(values).dtype.kind == "O" for values in columns) else np.float64
            return np.stack([np.asarray(values).astype(kind) for values in columns], axis=1)
        import pandas as pd

        return pd.DataFrame(dict(zip(self.names, columns, strict=True)))

    # -- coordinates -------------------------------------------------------------------------------------------------

    def indicators(self, codes: np.ndarray) -> np.ndarray:
        """Return which coordinate each row has, shape (n, coordinates) of zeros and ones."""
        shown = np.zeros((len(codes), sum(column.n_groups for column in self.columns)))
        for column, coordinates in self.coordinates():
            mine = codes[:, column.position]
            known = np.flatnonzero(mine < len(column.levels))
            shown[known, coordinates.start + column.group[mine[known].astype(int)]] = 1.0
        return shown

    def coordinates(self) -> Iterator[tuple[Category, slice]]:
        """Yield the columns with the places of their coordinates."""
        start = 0
        for column in self.columns:
            yield column, slice(start, start + column.n_groups)
            start += column.n_groups

    def scales(self, smoothing: np.ndarray) -> np.ndarray:
        """Return the coordinate s of each group for the points, shape (coordinates,)."""
        found = [np.zeros(0)]
        for column, l in zip(self.columns, smoothing, strict=True):
            shares, scale = column.shares(TRAINING), np.empty(column.n_groups)
            scale[column.group] = np.sqrt(_squares(l, shares.group))[:-1]
            found.append(scale)
        return np.concatenate(found)

    def point_weights(self, codes: np.ndarray, smoothing: np.ndarray, known: np.ndarray | None = None) -> np.ndarray:
        """Return the log-weights of the points for queries that know some columns of levels, by default all, shape (n,)."""
        weights, scales = np.zeros(len(codes)), self.scales(smoothing)
        known = np.ones(len(self.columns), dtype=bool) if known is None else known
        for (column, coordinates), l, are_known in zip(self.coordinates(), smoothing, known, strict=True):
            half = np.append(0.5 * np.square(scales[coordinates])[column.group], 0.0)
            mine = codes[:, column.position]
            weights += np.where(np.isnan(mine), -np.log(l) * are_known, half[np.nan_to_num(mine).astype(int)])
        return weights

    def queries(self, codes: np.ndarray, smoothing: np.ndarray, of: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the coordinates (m, coordinates) of queries, and what their log-sums lack, shape (m,).

        Levels that a query lacks have no coordinate; the points must then be weighted without that column.
        """
        shown, scales = self.indicators(codes), self.scales(smoothing)
        lacking = np.zeros(len(codes))
        for (column, coordinates), l in zip(self.coordinates(), smoothing, strict=True):
            shares, mine = column.shares(of), codes[:, column.position]
            known = np.flatnonzero(~np.isnan(mine))
            code = mine[known].astype(int)
            there = np.append(scales[coordinates][column.group], 1.0)
            own = np.where(shares.copied, _squares(l, shares.group) / there, 0.0)
            shown[known, coordinates] *= own[code, None]
            lacking[known] += np.log(l * shares.level)[code] + 0.5 * np.square(own[code])
        return shown, lacking

    def log_factors(self, k: int, codes: np.ndarray, point_codes: np.ndarray, l: float, of: str) -> np.ndarray:
        """Return the logarithm of the factor of the k-th column of levels for codes (m,) and points (n,), shape (m, n)."""
        column = self.columns[k]
        shares, group = column.shares(of), np.append(column.group, -1)
        known, there = ~np.isnan(codes), ~np.isnan(point_codes)
        code, point = np.nan_to_num(codes).astype(int), np.nan_to_num(point_codes).astype(int)
        same = (group[code][:, None] == group[point]) & shares.copied[code][:, None] & there & known[:, None]
        drawn = np.where(there, np.log(l), 0.0) + np.log(shares.level)[code][:, None]
        drawn = drawn + np.where(same, _squares(l, shares.group)[code][:, None], 0.0)
        return np.where(known[:, None], drawn, 0.0)


class _Named:
    """The names of the columns of a fit, for `check_names`."""

    def __new__(cls, names: np.ndarray | None, estimator: Any) -> Any:
        kind = type("density" if estimator is None else type(estimator).__name__, (), {})
        named = kind()
        named.feature_names_in_ = names
        return named


def _squares(l: float, group: np.ndarray) -> np.ndarray:
    """Return s^2 of groups."""
    return np.log1p((1.0 - l) / (l * group))


# -- the columns of a table ---------------------------------------------------------------------------------------------


def check_parameters(categorical_features: Any, max_categories: Any) -> None:
    """Raise an error if the parameters have no meaning for any table."""
    if max_categories is not None:
        check_integer(max_categories, "max_categories", least=2)
    if categorical_features is None or (isinstance(categorical_features, str) and categorical_features == "from_dtype"):
        return
    listed = isinstance(categorical_features, list | tuple | set | np.ndarray) or hasattr(
        categorical_features, "tolist"
    )
    values = list(categorical_features) if listed and np.ndim(categorical_features) != 0 else None
    if values is not None and all(isinstance(value, str | int | np.integer | bool | np.bool_) for value in values):
        return
    expected = (
        "categorical_features must be 'from_dtype', None, or a list that is a mask, positions or names of columns"
    )
    if isinstance(categorical_features, str):
        raise ValueError(f"{expected}, got {categorical_features!r}.")
    raise TypeError(f"{expected}, got {type(categorical_features).__name__}.")


def is_table(X: Any, categorical_features: Any) -> bool:
    """Return whether rows may have columns of levels, so that their columns have to be looked at."""
    return categorical_features is not None and (is_frame(X) or not isinstance(categorical_features, str))


def category_positions(X: Any, categorical_features: Any) -> np.ndarray:
    """Return the places of the columns of levels that the parameter means."""
    if isinstance(categorical_features, str):
        return np.flatnonzero([kind_of(X.iloc[:, k]) != "number" for k in range(X.shape[1])]) if is_frame(X) else _NONE
    given = np.asarray(list(categorical_features))
    width = np.shape(X)[1]
    if not len(given):
        return _NONE
    if given.dtype == bool:
        if given.shape != (width,):
            raise ValueError(f"categorical_features as a mask must have {width} entries, got shape {given.shape}.")
        return np.flatnonzero(given)
    if given.dtype.kind in "iu":
        if not -width <= given.min() <= given.max() < width:
            raise ValueError(f"categorical_features must be positions of {width} columns, got {given.tolist()}.")
        return np.unique(given % width)
    names = [str(name) for name in getattr(X, "columns", [])]
    lost = [str(name) for name in given.tolist() if str(name) not in names]
    if lost:
        raise ValueError(f"categorical_features names {', '.join(lost)}, which X does not have as columns.")
    return np.sort(np.array([names.index(str(name)) for name in given.tolist()], dtype=int))


_NONE = np.array([], dtype=int)


def kind_of(column: Any) -> str:
    """Return what a column of a data frame holds: "category", "bool", "text" or "number" (dates included)."""
    kind = type(column.dtype).__name__
    if kind == "CategoricalDtype":
        return "category"
    if getattr(column.dtype, "kind", "") == "b":
        return "bool"
    if kind == "StringDtype":
        return "text"
    if getattr(column.dtype, "kind", "") != "O":
        return "number"
    held = {type(value) for value in column.tolist()}
    if any(issubclass(one, str) for one in held):
        return "text"
    return "bool" if held & {bool, np.bool_} and held <= {bool, np.bool_, float, type(None)} else "number"


def column_of(X: Any, k: int) -> Any:
    """Return a column of a data frame or an array."""
    return X.iloc[:, k] if is_frame(X) else np.asarray(X)[:, k]


def numbers_of(X: Any, positions: np.ndarray) -> np.ndarray:
    """Return the columns of numbers, validated, in float64."""
    if not len(positions):
        return np.empty((X.shape[0], 0))
    numbers = X.iloc[:, positions] if is_frame(X) else np.asarray(X)[:, positions]
    rows = check_array(numbers, dtype=np.float64, input_name="X", ensure_all_finite="allow-nan")
    check_magnitude(rows)
    return rows


def plain_values(values: Any, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of a column as Python's objects, and which are missing."""
    listed = values.tolist() if hasattr(values, "tolist") else list(values)
    plain, missing = np.empty(len(listed), dtype=object), np.zeros(len(listed), dtype=bool)
    for i, value in enumerate(listed):
        missing[i] = value is None or type(value).__name__ in ("NAType", "NaTType") or value != value
        plain[i] = None if missing[i] else value
    if kind in ("number", "code"):
        plain[~missing] = [float(value) for value in plain[~missing]]
    return plain, missing


def learn_categories(
    X: Any, positions: Sequence[int] | np.ndarray, weight: np.ndarray | None, max_categories: int | None
) -> Categories:
    """Return the columns of levels of training rows: their levels, counts and coordinates."""
    texts = X.texts if isinstance(X, CodedRows) else {}
    names = X.names if isinstance(X, CodedRows) else np.asarray(X.columns, dtype=object) if is_frame(X) else None
    X = X.values if isinstance(X, CodedRows) else X
    counted = np.ones(X.shape[0]) if weight is None else weight
    columns = []
    for k in np.asarray(positions, dtype=int).tolist():
        name = str(k if names is None else names[k])
        columns.append(_learn_column(column_of(X, k), k, name, counted, max_categories, texts.get(k)))
    return Categories(tuple(columns), X.shape[1], names)


def as_categories(X: Any, categories: Categories) -> Any:
    """Return a data frame whose columns of text are categories, so that some of its rows have the levels of all rows."""
    import pandas as pd

    texts = {column.position: column.levels.tolist() for column in categories.columns if column.kind == "text"}
    columns = [pd.Categorical(X.iloc[:, k], texts[k]) if k in texts else X.iloc[:, k] for k in range(X.shape[1])]
    return pd.DataFrame(dict(zip(X.columns, columns, strict=True)), index=X.index)


def _learn_column(
    values: Any, k: int, name: str, weight: np.ndarray, most: int | None, texts: list[str] | None
) -> Category:
    kind = (
        kind_of(values) if hasattr(values, "iloc") else "number" if np.asarray(values).dtype.kind in "biuf" else "text"
    )
    kind = kind if texts is None else "code"
    plain, missing = plain_values(values, kind)
    known = np.flatnonzero(~missing & (weight > 0))
    if not len(known):
        raise ValueError(f"the column {name} holds no level at all. Drop it.")
    categories = np.array([], dtype=object)
    if kind == "category":
        categories = np.array([None, *values.cat.categories.tolist()], dtype=object)[1:]
    place = {level: i for i, level in enumerate(categories.tolist())}
    found = dict.fromkeys(plain[known].tolist())
    levels = np.array(
        [None, *sorted(found, key=lambda level: (place.get(level, 0), str(type(level)), level))], dtype=object
    )[1:]
    if kind == "text" and len(levels) > 0.5 * len(known):
        shown = ", ".join(map(repr, levels[:_SHOWN].tolist()))
        raise ValueError(
            f"the column {name} is text with {len(levels)} different values in {len(known)} rows ({shown}, ...), so it is an "
            "identifier or free text rather than a category. Drop it, or give it the dtype category to use it nevertheless."
        )
    code_of = {level: i for i, level in enumerate(levels.tolist())}
    codes = np.array([code_of[level] for level in plain[known].tolist()])
    counts, rows = np.bincount(codes, weight[known], len(levels)), np.bincount(codes, minlength=len(levels))
    group = np.arange(len(levels), dtype=np.int64)
    if most is not None and len(levels) > most:
        kept = np.sort(np.argsort(-counts, kind="stable")[: most - 1])
        group = np.full(len(levels), most - 1, dtype=np.int64)
        group[kept] = np.arange(most - 1)
    written = np.array([texts[int(level)] if texts else str(level) for level in levels], dtype=object)
    levels, categories = _as_array(levels), _as_array(categories)
    return Category(k, name, levels, counts, rows.astype(np.float64), group, kind, categories, written)


def _as_array(levels: np.ndarray) -> np.ndarray:
    """Return levels of one type as an array of it, which a model file can hold; texts and others as objects."""
    types = {type(level) for level in levels.tolist()}
    return np.array(levels.tolist()) if len(types) == 1 and types <= {bool, int, float} else levels
