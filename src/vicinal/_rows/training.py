"""The rows of a fit, validated once: all of them in memory, or a sample of those in a file."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from vicinal._engine import large_source, resident_rows
from vicinal._row_sources import ColumnsOf, RowSource
from vicinal._rows.validation import check_rows, check_source, check_weights, has_gaps, log_weights, own_rows


class DrawnRows:
    """The rows of a source that have positive weight, by position, indexed like an array.

    Parameters
    ----------
    source : RowSource
    counted : integer array, optional
        The positions of the rows of positive weight; the default is all.
    whiten : (array of shape (d,), array of shape (d, d)), optional
        A mean and a root: the rows are ``root @ (x - mean)``.
    """

    def __init__(
        self, source: RowSource, counted: np.ndarray | None, whiten: tuple[np.ndarray, np.ndarray] | None = None
    ) -> None:
        self._source, self._counted, self._whiten = source, counted, whiten
        self.shape = source.shape[0] if counted is None else len(counted), source.shape[1]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, positions: np.ndarray) -> np.ndarray:
        rows = self._source.take(positions if self._counted is None else self._counted[positions])
        if self._whiten is None:
            return rows
        mean, root = self._whiten
        return ((rows - mean) @ root.T).astype(rows.dtype, copy=False)


class RowsInFile(NamedTuple):
    """Rows that stay in their file, because they do not fit into the working memory."""

    source: RowSource
    weight: np.ndarray | None  # of all rows
    counted: np.ndarray | None  # the positions of the rows of positive weight; None for all
    most: int  # the number of rows that fit into the working memory
    varies: np.ndarray  # which columns vary

    @property
    def weight_of_counted(self) -> np.ndarray | None:
        """The weights of the rows of positive weight; None for ones."""
        return self.weight if self.weight is None or self.counted is None else self.weight[self.counted]

    def drawn(self, whiten: tuple[np.ndarray, np.ndarray] | None = None) -> DrawnRows:
        """Return the rows of positive weight, by position."""
        return DrawnRows(self.source, self.counted, whiten)


class TrainingRows(NamedTuple):
    """The rows of a fit.

    values : (n, d), all rows, NaN where a value is missing; of rows in a file, a sample that determines penalties and units
    weight : (n,), the weights of these rows, with mean one over all rows; None for equal ones
    given : what the user passed
    file : the rows that stay in a file, or None
    incomplete : whether values may be missing
    levels : the columns of levels and the codes of the rows; None if all columns are numbers
    """

    values: np.ndarray
    weight: np.ndarray | None
    given: Any
    file: RowsInFile | None = None
    incomplete: bool = False
    levels: Any = None

    def of_columns(self, values: np.ndarray, columns: np.ndarray) -> "TrainingRows":
        """Return the rows of some columns, whose values are known."""
        if self.file is None or len(columns) == self.file.source.shape[1]:
            return self._replace(values=values)
        return self._replace(values=values, file=self.file._replace(source=ColumnsOf(self.file.source, columns)))

    @property
    def mass(self) -> float:
        """The sum of the weights."""
        return float(len(self.values) if self.weight is None else self.weight.sum())

    def kept(self) -> tuple[Any, np.ndarray | None]:
        """Return the rows that a density keeps, where they are or in memory, and their log-weights."""
        if self.file is None:
            return own_rows(self.values, self.given), log_weights(self.weight)
        source, weight = self.file.source, self.file.weight
        positions = source.density_positions()
        if positions is None:
            return source.kept(), log_weights(weight)
        return source.take(positions), log_weights(None if weight is None else weight[positions])


def open_rows(
    estimator: Any, X: Any, sample_weight: Any, *, draws: Callable[[int], bool], seed: Callable[[], int]
) -> TrainingRows:
    """Validate the rows of a fit and their weights.

    Parameters
    ----------
    estimator : estimator with an `engine`
    X : array-like of shape (n, d), or rows in a file
    sample_weight : array-like of shape (n,), optional
    draws : callable
        ``draws(n)``: whether a fit to n rows draws samples of them, so that they may stay in their file.
    seed : callable
        Return the seed of the sample of rows in a file.
    """
    source = large_source(X, estimator.engine)
    if source is None or not draws(source.shape[0]):
        values = check_rows(estimator, X, reset=True, min_rows=2, gaps=True)
        weight = check_two_rows(check_weights(sample_weight, values))
        return TrainingRows(values, weight, X, incomplete=has_gaps(values))
    ranges = check_source(estimator, source, min_rows=2)
    weight = check_two_rows(check_weights(sample_weight, np.broadcast_to(0.0, source.shape)))
    counted = None if weight is None or weight.all() else np.flatnonzero(weight)
    n = source.shape[0] if counted is None else len(counted)
    most = min(resident_rows(estimator.engine, source.shape[1], source.dtype), n)
    file = RowsInFile(source, weight, counted, most, ranges.least < ranges.most)
    sample = np.sort(np.random.default_rng(seed()).choice(n, most, replace=False))
    shares = file.weight_of_counted
    return TrainingRows(file.drawn()[sample], None if shares is None else shares[sample], X, file)


def check_two_rows(weight: np.ndarray | None) -> np.ndarray | None:
    """Raise an error if only one row has a positive weight, because no row is left when it is left out."""
    if weight is not None and np.count_nonzero(weight) < 2:
        raise ValueError(
            "sample_weight must be positive for at least 2 rows, got 1: no row is left when that row is left out."
        )
    return weight
