"""The local metrics of a fitted Local LCA: the covariance at a point, distances from it, and the map of its vicinity."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from vicinal._checks import check_rows
from vicinal._lca.steps import inverse_root

# Kernels with a smaller share in the density at a point do not contribute to its metric.
_NEGLIGIBLE = 1e-6


class LocalMetricMixin:
    """Mixin for densities with a covariance per component: local metrics, maps and distances."""

    def local_metric(self: Any, X: ArrayLike) -> NDArray[Any]:
        r"""Return the covariance of the kernels at each row of X, shape (n, n_active, n_active).

        It is :math:`\sum_j p_j(x) C_j`, with the share :math:`p_j(x)` of each kernel in the density at x. Its inverse
        is the matrix of the metric there.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            The rows at which the metric is computed.
        """
        check_is_fitted(self)
        return self._metric_at(self._active(check_rows(self, X, reset=False)).astype(np.float64))

    def _metric_at(self: Any, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the covariance of the kernels at rows of the columns that vary."""
        mixture = self._mixture()
        if not hasattr(mixture, "covariances"):  # one covariance for all
            return np.repeat(mixture.covariance[None], len(rows), axis=0)
        shares = mixture.responsibilities(rows, _NEGLIGIBLE)
        d = rows.shape[1]
        some = np.unique(shares.indices)
        own = mixture.covariances_of(some)
        return (shares[:, some] @ own.reshape(len(some), d * d)).reshape(-1, d, d)

    def _one_row(self: Any, x: ArrayLike) -> NDArray[Any]:
        """Return one row of the columns that vary, shape (1, n_active)."""
        check_is_fitted(self)
        row = np.asarray(x, dtype=np.float64)
        if row.shape not in ((self.n_features_in_,), (1, self.n_features_in_)) or not np.isfinite(row).all():
            raise ValueError(f"x must be one row of {self.n_features_in_} finite numbers, got shape {row.shape}.")
        return self._active(row.reshape(1, -1))

    def local_map(self: Any, x: ArrayLike) -> NDArray[Any]:
        """Return the linear map of the vicinity of one row, shape (n_active, n_active), under which local distances are Euclidean.

        ``(X - x)[:, active_features_] @ local_map(x).T`` has the row at its origin and the direction in which its vicinity is widest first.
        Columns that are constant in the training rows are not in ``active_features_``.

        Parameters
        ----------
        x : array-like of shape (n_features,)
            The row.
        """
        # Rotations of an inverse root keep the digits of columns in units that differ by many orders of magnitude; the eigenvalues
        # of the covariance itself would lose the smaller ones.
        try:
            root = inverse_root(self._metric_at(self._one_row(x))[0])
        except np.linalg.LinAlgError:
            raise ValueError(
                "the covariance of the kernels at x is singular in float64, so that x has no local metric. Pass a larger reg, or "
                "drop columns that depend on each other."
            ) from None
        return np.linalg.svd(root)[0][:, ::-1].T @ root

    def local_distances(self: Any, x: ArrayLike, X: ArrayLike) -> NDArray[Any]:
        """Return the distance of each row of X from one row, in the metric of that row, shape (n,).

        The unit is a standard deviation of the kernels at that row. The distance from a to b differs from that from b to a.

        Parameters
        ----------
        x : array-like of shape (n_features,)
            The row from which distances are measured.
        X : array-like of shape (n, n_features)
            The other rows.
        """
        there = self.local_map(x)
        rows = self._active(check_rows(self, X, reset=False)).astype(np.float64)
        return np.linalg.norm((rows - self._one_row(x)) @ there.T, axis=1)
