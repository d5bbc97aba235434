"""The images of rows of numbers and levels: those of the numbers, and the coordinates of the levels beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vicinal._categories import NEW
from vicinal._checks import shown_columns
from vicinal._density.mixed import MixedColumnsMixin
from vicinal._metric import LinearMetricMixin, warn_of_unknown_images
from vicinal._rows import has_gaps


class MixedMetricMixin(LinearMetricMixin, MixedColumnsMixin):
    """`LinearMetricMixin` for estimators whose columns may be levels."""

    components_: np.ndarray

    @property
    def _n_features_out(self) -> int:
        levels = sum(column.n_groups for column in self._categories.columns) if self._has_levels else 0
        return len(self.components_) + levels

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the images: "lca0", "lca1", ..., and "column=level" for the coordinates of levels.

        Parameters
        ----------
        input_features : ignored
            Not used; accepted as in scikit-learn's transformers.

        Returns
        -------
        ndarray of str objects
        """
        names = super().get_feature_names_out(input_features)
        if not self._has_levels:
            return names
        levels = [f"{column.name}={label}" for column in self._categories.columns for label in column.labels]
        return np.array([*names[: len(self.components_)], *levels], dtype=object)

    def _map_rows(self, X: Any) -> NDArray[Any]:
        if not self._has_levels:
            return super()._map_rows(X)
        codes = self._codes(X)
        if has_gaps(codes):
            warn_of_unknown_images(np.isnan(codes), self._categories.names)
        shown = self._categories.indicators(codes) * self._categories.scales(self.category_smoothing_)
        for column, coordinates in self._categories.coordinates():
            shown[np.isnan(codes[:, column.position]), coordinates] = np.nan
        return np.hstack([codes[:, self._categories.numbers] @ self.components_.T, shown])

    def kernel_images(self, X: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return rows as points and as queries whose distances rank points as the kernel does, its log-weights included.

        The squared distance of a query from a point, minus the offset of the query, is that of their numbers under the metric, and
        ``2 s^2`` more, with s of the query's level, for each column in which their levels differ: twice the logarithm of how much denser
        the kernel is where they agree.

        Returns
        -------
        points, queries : arrays of shape (n, images)
        offsets : array of shape (n,)
        """
        codes = self._known_rows(X)
        numbers = codes[:, self._categories.numbers] @ self.components_.T
        scales = self._categories.scales(self.category_smoothing_)
        of_points = self._categories.indicators(codes)
        of_queries = self._categories.queries(codes, self.category_smoothing_, NEW)[0] * scales
        offsets = np.zeros(len(codes))
        for _, part in self._categories.coordinates():
            common = scales[part].max()  # all points are as far from the origin
            of_points[:, part] *= common
            of_queries[:, part] /= common
            known = of_points[:, part].any(axis=1)  # a level that no training row has differs from all
            away = np.square(of_queries[:, part] - of_points[:, part]).sum(axis=1)
            offsets += np.where(known, away, common**2)
        return np.hstack([numbers, of_points]), np.hstack([numbers, of_queries]), offsets

    def _known_rows(self, X: Any) -> np.ndarray:
        if not self._has_levels:
            return super()._known_rows(X)
        codes = self._codes(X)
        missing = np.isnan(codes)
        if missing.any():
            raise ValueError(
                f"Input X contains NaN: {missing.any(axis=1).sum()} of {len(codes)} rows have missing values in the columns "
                f"{shown_columns(missing.any(axis=0), self._categories.names)}. Fill them in with vicinal.DensityImputer before, "
                "or leave such rows out."
            )
        return codes

    def _rows_of_pairs(self, pairs: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        if self._has_levels:
            raise ValueError("pair_distance of rows with levels needs positions of shape (p, 2) together with X.")
        return super()._rows_of_pairs(pairs)

    def _images_between(self, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
        if not self._has_levels:
            return super()._images_between(rows, others)
        numbers, indicators = self._categories.numbers, self._categories.indicators
        of_levels = (indicators(rows) - indicators(others)) * self._categories.scales(self.category_smoothing_)
        return np.hstack([(rows[:, numbers] - others[:, numbers]) @ self.components_.T, of_levels])
