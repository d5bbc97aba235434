"""The images of rows of numbers and levels: those of the numbers, and the coordinates of the levels beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from vicinal._checks import shown_columns
from vicinal._density.mixed import MixedColumnsMixin
from vicinal._metric import LinearMetricMixin, distances_between, lengths, warn_of_unknown_images
from vicinal._rows import has_gaps
from vicinal._supervision import check_pairs


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
        return self._images_of(codes)

    def _images_of(self, codes: np.ndarray) -> np.ndarray:
        shown = self._categories.indicators(codes) * self._categories.scales(self.category_smoothing_)
        for column, coordinates in self._categories.coordinates():
            shown[np.isnan(codes[:, column.position]), coordinates] = np.nan
        return np.hstack([codes[:, self._categories.numbers] @ self.components_.T, shown])

    def _known_codes(self, X: Any) -> np.ndarray:
        """Return rows as codes; raise an error if values are missing, because distances to them are unknown."""
        codes = self._codes(X)
        missing = np.isnan(codes)
        if missing.any():
            raise ValueError(
                f"Input X contains NaN: {missing.any(axis=1).sum()} of {len(codes)} rows have missing values in the columns "
                f"{shown_columns(missing.any(axis=0), self._categories.names)}. Fill them in with vicinal.DensityImputer before, "
                "or leave such rows out."
            )
        return codes

    def mahalanobis(self, X: ArrayLike, Y: ArrayLike | None = None) -> NDArray[Any]:
        """Return distances between all rows of X and all rows of Y; with levels, those of the images of `transform`.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            The rows from which distances are measured.
        Y : array-like of shape (m, n_features), default=None
            The other rows. None computes the distances among the rows of X.

        Returns
        -------
        distances : float64 array of shape (n, m)
            Not squared.
        """
        check_is_fitted(self, "components_")
        if not self._has_levels:
            return super().mahalanobis(X, Y)
        codes = self._known_codes(X)
        others = codes if Y is None else self._known_codes(Y)
        # A common shift of the numbers changes no distance and keeps the digits of data that lie far from the origin.
        shift = np.zeros(codes.shape[1])
        shift[self._categories.numbers] = codes[0, self._categories.numbers]
        images = self._images_of(codes - shift)
        return distances_between(images, images if others is codes else self._images_of(others - shift))

    def pair_distance(self, pairs: ArrayLike, X: ArrayLike | None = None) -> NDArray[Any]:
        """Return the distance within each pair.

        Parameters
        ----------
        pairs : array-like of shape (p, 2, n_features), or of shape (p, 2) when X is given
            The two rows of each pair, or their positions in X.
        X : array-like of shape (n, n_features), default=None
            The rows to which positions refer; needed if columns are levels.

        Returns
        -------
        distances : float64 array of shape (p,)
            Not squared.
        """
        check_is_fitted(self, "components_")
        if not self._has_levels:
            return super().pair_distance(pairs, X)
        if X is None:
            raise ValueError("pair_distance of rows with levels needs positions of shape (p, 2) together with X.")
        codes = self._known_codes(X)
        left, right = check_pairs(pairs, len(codes), "pairs").T
        numbers, levels = self._categories.numbers, self._categories.indicators(codes)
        scales = self._categories.scales(self.category_smoothing_)
        # The differences are formed before the product: an offset shared by both rows costs no digits.
        between = (codes[left][:, numbers] - codes[right][:, numbers]) @ self.components_.T
        return lengths(np.hstack([between, (levels[left] - levels[right]) * scales]))
