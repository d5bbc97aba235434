"""Fits to rows that stay on the workers of a Dask cluster (`DistantRows`): what is computed there."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from vicinal._checks import check_source, validate_data
from vicinal._dask import are_distant, gather


class InnerDensityMixin(ABC):
    """Mixin of estimators that fit densities to the rows: where these rows are."""

    def gather(self) -> Self:
        """Copy the training rows of densities that were fitted to a Dask collection into memory; see `LCA.gather`."""
        check_is_fitted(self)
        return gather(self)

    @abstractmethod
    def _inner_estimator(self) -> Any:
        """Return the density that is fitted, for `which_engine`."""

    def _fits_distant_rows(self, shape: tuple[int, int], dtype: Any) -> bool:
        """Return whether rows of this shape stay on the workers of a cluster: if the density leaves them there.

        If it must be fitted again without some of the rows, it does not.
        """
        density = self._inner_estimator()
        leaves = getattr(density, "_fits_distant_rows", None)
        return leaves is not None and leaves(shape, dtype) and not density._needs_refits(*shape)


def checked_rows(estimator: Any, X: Any, **options: Any) -> Any:
    """Return the validated rows of a fit, as float64 or float32; `DistantRows` are validated where they are."""
    if not are_distant(X):
        return validate_data(estimator, X, dtype=[np.float64, np.float32], **options)
    check_source(estimator, X, min_rows=options.get("ensure_min_samples", 1))
    return X


class RangesThere(NamedTuple):
    """The smallest and the largest value of each column of rows on the workers, among rows of positive weight."""

    extremes: np.ndarray  # (2, d)
    n_rows: int  # the number of rows of positive weight
    has_gaps: bool  # whether a value is missing in any row


def ranges_there(rows: Any, weight: np.ndarray | None) -> RangesThere:
    """Return the ranges of the columns of `DistantRows`; each block is visited by a worker."""
    found = rows.each(_ranges_of_block, weight)
    low, high, counts, gaps = zip(*found, strict=True)
    extremes = np.stack([np.min(low, axis=0), np.max(high, axis=0)]).astype(rows.dtype)
    return RangesThere(extremes, sum(counts), any(gaps))


def _ranges_of_block(rows: np.ndarray, weight: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, int, bool]:
    gaps = bool(np.isnan(rows.min()))
    counted = rows if weight is None else rows[weight > 0]
    d = rows.shape[1]
    low, high = counted.min(axis=0, initial=np.inf), counted.max(axis=0, initial=-np.inf)
    return low.reshape(d), high.reshape(d), len(counted), gaps


def constant_values(rows: Any, weight: np.ndarray | None) -> np.ndarray:
    """Return a row with the values of columns that are equal in all rows of positive weight, and NaN in the others.

    Parameters
    ----------
    rows : array of shape (n, d), or `DistantRows`
    weight : array of shape (n,), optional
    """
    counted = ranges_there(rows, weight).extremes if are_distant(rows) else rows
    if weight is not None and counted is rows:
        counted = rows[weight > 0]
    return np.where(np.ptp(counted, axis=0) == 0, counted[0], np.nan).astype(np.float64)
