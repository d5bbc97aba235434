"""A linear metric: what every estimator with ``components_`` can do.

A fitted metric is a matrix ``A = components_`` with one row a learned direction.  The distance of two
rows is the Euclidean distance of their images,

    d(x, y) = |A x - A y| = sqrt((x - y)' M (x - y)),        M = A' A.
"""

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from vicinal._checks import check_rows


class LinearMetricMixin(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """``transform``, distances and the Mahalanobis matrix of an estimator that fits ``components_``.

    Put it before ``BaseEstimator`` in the list of bases.
    """

    @property
    def _n_features_out(self):
        return self.components_.shape[0]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def transform(self, X):
        """Map rows to where the learned distance is Euclidean: ``X @ components_.T``, not centred.

        Parameters
        ----------
        X : array-like of shape (n, n_features)

        Returns
        -------
        Z : array of shape (n, n_components), float32 when X is float32, else float64
        """
        check_is_fitted(self, "components_")
        X = check_rows(self, X, reset=False)
        return X @ self.components_.T.astype(X.dtype, copy=False)

    def get_mahalanobis_matrix(self):
        """Return ``M = components_.T @ components_`` of shape (n_features, n_features)."""
        check_is_fitted(self, "components_")
        return self.components_.T @ self.components_

    def mahalanobis(self, X, Y=None):
        """Distances between all rows of X and all rows of Y.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
        Y : array-like of shape (m, n_features), default=None
            None measures the rows of X among themselves.

        Returns
        -------
        distances : float64 array of shape (n, m)
            Not squared.  For neighbours in a large set, search ``transform(X)`` with
            :class:`sklearn.neighbors.NearestNeighbors` instead of holding this matrix.
        """
        check_is_fitted(self, "components_")
        X = check_rows(self, X, reset=False).astype(np.float64, copy=False)
        Y = X if Y is None else check_rows(self, Y, reset=False).astype(np.float64, copy=False)
        # A common shift changes no distance and keeps the digits of data that lie far from the origin.
        shift = X[0]
        images = (X - shift) @ self.components_.T
        others = images if Y is X else (Y - shift) @ self.components_.T
        return cdist(images, others)

    def pair_distance(self, pairs, X=None):
        """Distance within each pair.

        Parameters
        ----------
        pairs : array-like of shape (p, 2, n_features), or of shape (p, 2) when X is given
            The two rows of each pair, or their positions in X.
        X : array-like of shape (n, n_features), default=None

        Returns
        -------
        distances : float64 array of shape (p,)
            Not squared.
        """
        check_is_fitted(self, "components_")
        difference = self._difference_of_rows(pairs) if X is None else self._difference_of_positions(pairs, X)
        # The difference is formed before the product: an offset shared by both rows costs no digits.
        return np.linalg.norm(difference @ self.components_.T, axis=1)

    def _difference_of_rows(self, pairs):
        pairs = check_array(
            pairs, dtype=np.float64, allow_nd=True, ensure_2d=False, ensure_min_samples=0, input_name="pairs"
        )
        n_features = self.components_.shape[1]
        if pairs.ndim != 3 or pairs.shape[1:] != (2, n_features):
            raise ValueError(
                f"pairs must have shape (p, 2, {n_features}), got {pairs.shape}. Pass "
                "np.stack([left, right], axis=1), or pass positions of shape (p, 2) together with X."
            )
        return pairs[:, 0] - pairs[:, 1]

    def _difference_of_positions(self, pairs, X):
        X = check_rows(self, X, reset=False).astype(np.float64, copy=False)
        positions = np.asarray(pairs)
        if positions.ndim != 2 or positions.shape[1] != 2 or positions.dtype.kind not in "iu":
            raise ValueError(
                f"pairs must be integers of shape (p, 2) when X is given, got {positions.dtype} of shape "
                f"{positions.shape}. Pass row positions, or pass the rows themselves without X."
            )
        if positions.size and (positions.min() < 0 or positions.max() >= len(X)):
            raise ValueError(
                f"pairs must hold row positions 0 to {len(X) - 1}, got {positions.min()} to "
                f"{positions.max()}. Positions count from 0 and are not DataFrame index labels."
            )
        return X[positions[:, 0]] - X[positions[:, 1]]
