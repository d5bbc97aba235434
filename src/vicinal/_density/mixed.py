"""Tables of numbers and levels: how a density opens them, what it keeps of them, and how it takes further rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vicinal._categories import (
    Categories,
    CodedRows,
    category_positions,
    check_parameters,
    column_of,
    is_table,
    learn_categories,
)
from vicinal._density.mixture_density import MixtureDensityMixin
from vicinal._mixtures import MixedMixture
from vicinal._rows import ValidRows, check_rows, check_weights, is_frame


class MixedTable(NamedTuple):
    """The rows of a fit.

    numbers : (n, d), NaN where one is missing
    weight : (n,), of mean one; None for equal ones
    categories : Categories
    codes : (n, D), all columns
    """

    numbers: np.ndarray
    weight: np.ndarray | None
    categories: Categories
    codes: np.ndarray

    @property
    def incomplete(self) -> bool:
        """Whether a number or a level is missing."""
        return bool(np.isnan(self.codes).any())

    def take(self, positions: np.ndarray) -> MixedTable:
        """Return some of the rows; the shares of the levels stay those of all rows."""
        weight = None if self.weight is None else self.weight[positions]
        return MixedTable(self.numbers[positions], weight, self.categories, self.codes[positions])


def _frame(rows: ValidRows) -> Any:
    import pandas as pd

    return pd.DataFrame(rows.values, columns=rows.names)


class MixedColumnsMixin(MixtureDensityMixin):
    """A density whose columns may be levels; put it in the place of `MixtureDensityMixin`.

    During a fit, the estimator has the columns of numbers alone; `_keep_levels` gives it the others.
    """

    categorical_features: Any
    max_categories: int | None
    covariance_: np.ndarray
    category_smoothing_: np.ndarray
    _categories: Categories  # of all columns; absent if all columns are numbers

    def _levels_in(self, X: Any) -> Categories | None:
        """Return the columns of levels of a data frame, for estimators that pass parts of it to this one; None if there are none."""
        if not is_frame(X) or self.categorical_features is None:
            return None
        check_parameters(self.categorical_features, self.max_categories)
        positions = category_positions(X, self.categorical_features)
        return learn_categories(X, positions, None, self.max_categories) if len(positions) else None

    def _open_table(self, X: Any, sample_weight: Any) -> MixedTable | None:
        """Return the rows of a fit if some columns are levels; None for numbers."""
        self.__dict__.pop("_categories", None)
        if isinstance(X, MixedTable):  # another estimator has opened it
            return X._replace(numbers=ValidRows(X.numbers).taken_by(self))
        check_parameters(self.categorical_features, self.max_categories)
        if isinstance(X, ValidRows):  # numbers, unless the parameter names columns
            if self.categorical_features is None or isinstance(self.categorical_features, str):
                return None
            X = X.values if X.names is None else _frame(X)
        given = X
        if isinstance(X, CodedRows):
            X, positions = X.values, np.array(sorted(X.texts), dtype=int)
        elif is_table(X, self.categorical_features):
            given = X = X if hasattr(X, "shape") else np.array(X, dtype=object)
            positions = category_positions(X, self.categorical_features)
        else:
            return None
        if not len(positions):
            return None
        n, width = X.shape
        if n < 2:
            raise ValueError(f"columns of levels need at least 2 rows, got {n}.")
        if is_frame(X) and len({str(name) for name in X.columns}) < width:
            raise ValueError("the columns of X must have different names. Rename them.")
        others = np.setdiff1d(np.arange(width), positions)
        if len(others):
            chosen = X.iloc[:, others] if is_frame(X) else X[:, others]
            numbers = check_rows(self, chosen, reset=True, gaps=True).astype(np.float64)
        else:
            numbers = ValidRows(np.empty((n, 0))).taken_by(self)
        weight = check_weights(sample_weight, np.broadcast_to(0.0, (n, 1)))
        if weight is not None and np.count_nonzero(weight) < 2:
            raise ValueError("sample_weight must be positive for at least 2 rows, got 1.")
        categories = learn_categories(given, positions, weight, self.max_categories)
        codes = np.empty((n, width))
        codes[:, others] = numbers
        for column in categories.columns:
            codes[:, column.position] = column.encode(column_of(X, column.position))
        return MixedTable(numbers, weight, categories, codes)

    def _keep_levels(self, table: MixedTable, smoothing: np.ndarray, filled: np.ndarray, log_weights: Any) -> None:
        """Store the density of all columns after a fit of the numbers, and the columns themselves.

        Parameters
        ----------
        filled : array of shape (n, active numbers)
            The numbers of the components.
        """
        categories, codes = table.categories, table.codes.copy()
        constants = self._constants
        active = categories.numbers if constants is None else categories.numbers[np.isnan(constants)]
        codes[:, active] = filled
        self.n_features_in_ = categories.n_features
        names = categories.names
        self.__dict__.pop("feature_names_in_", None)
        if names is not None and all(isinstance(name, str) for name in names):
            self.feature_names_in_ = names
        if constants is not None:
            self._constants = np.full(categories.n_features, np.nan)
            self._constants[categories.numbers] = constants
        self._categories, self.category_smoothing_ = categories, np.asarray(smoothing)
        kept = self.active_features_
        self.mixture_ = MixedMixture(
            np.ascontiguousarray(codes[:, kept]),
            self.covariance_,
            self.category_smoothing_,
            categories.of_columns(kept),
            log_weights,
            self.engine,
            self._active_names,
        )

    @property
    def _has_levels(self) -> bool:
        return hasattr(self, "_categories")

    def _codes(self, X: Any) -> NDArray[Any]:
        """Return new rows as codes of all columns."""
        return X.values if isinstance(X, ValidRows) else self._categories.encode(X, self)

    def _score_rows(self, X: Any) -> NDArray[Any]:
        if not self._has_levels:
            return super()._score_rows(X)
        return self._mixture().scores_of(self._active(self._codes(X)))

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Any:
        """Draw rows from the density.

        Parameters
        ----------
        n_samples : int, default=1
            The number of rows.
        random_state : int, RandomState instance or None, default=None
            The seed of the random numbers.

        Returns
        -------
        ndarray of shape (n_samples, n_features), or a data frame like that of the training rows if some columns are levels
        """
        if not self._has_levels:
            return super().sample(n_samples, random_state)
        rows = self._mixture().sample_codes(n_samples, random_state)
        return self._categories.decode(self._with_constants(rows))
