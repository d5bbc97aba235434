"""A metric from a numeric target, for methods that learn from groups."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.utils import Tags
from sklearn.utils.validation import column_or_1d

from vicinal._checks import check_integer
from vicinal._metric import LinearMetricMixin
from vicinal._rca.rca import RCA
from vicinal._rows import validate_data
from vicinal._supervision import read_numbers

# A bin of fewer rows than this contains too little information about the variation within a group.
_FEWEST_ROWS = 4


class BinnedTargetMetric(LinearMetricMixin, BaseEstimator):
    """Learn a metric from a numeric target by treating rows in the same bin of the target as a group.

    The target is divided at its quantiles into bins of equal size, and the metric is fitted with the bins as classes.

    Parameters
    ----------
    metric : estimator, optional
        An unfitted metric that learns from classes or groups and sets ``components_``, such as :class:`RCA`,
        ``NCA`` or ``MMC``. The default is ``RCA()``.
    n_bins : int, default=10
        The number of bins. There are fewer, but at least two, if a bin would hold fewer than four rows,
        or if quantiles coincide because many rows have the same number.

    Attributes
    ----------
    metric_ : estimator
        The metric, fitted to the bins.
    bin_edges_ : ndarray
        The numbers between the bins, increasing; a number on an edge belongs to the bin above.
    components_ : ndarray of shape (n_components, n_features)
        The components of ``metric_``; ``transform`` multiplies by their transpose.
    n_features_in_, feature_names_in_ : int, ndarray of str
        The number of columns of the training rows, and their names if they have names.

    See Also
    --------
    NCA : With ``Objective(match="gaussian")`` it learns from numbers without bins.

    Notes
    -----
    The cost is that of the metric. :func:`vicinal.compare` uses this estimator for RCA if the target is a number.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.companions import BinnedTargetMetric
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> y = 10.0 * X[:, 0]                                     # the first column decides
    >>> metric = BinnedTargetMetric().fit(X, y)
    >>> print(np.round(np.sqrt(np.diag(metric.get_mahalanobis_matrix())), 1))
    [4.2 1. ]
    """

    def __init__(self, metric: Any = None, *, n_bins: int = 10) -> None:
        self.metric = metric
        self.n_bins = n_bins

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn the metric from bins of the target.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The training rows.
        y : array-like of shape (n_samples,)
            The numeric target.

        Returns
        -------
        self
        """
        n_bins = check_integer(self.n_bins, "n_bins", least=2)
        passed = X
        X = validate_data(self, X, dtype=[np.float64, np.float32], order="C", ensure_min_samples=2)
        numbers = column_or_1d(read_numbers(y, len(X)), warn=True)
        self.bin_edges_ = quantile_edges(numbers, n_bins)
        rows = passed if hasattr(passed, "columns") else X
        metric = RCA() if self.metric is None else self.metric
        if hasattr(metric, "fit"):
            self.metric_ = clone(metric).fit(rows, np.digitize(numbers, self.bin_edges_))
        if not hasattr(getattr(self, "metric_", None), "components_"):
            raise TypeError(
                f"metric must set components_ when it is fitted, got {type(self.metric).__name__}. Pass a linear metric such "
                "as RCA(), NCA() or MMC()."
            )
        self.components_ = self.metric_.components_
        return self


def quantile_edges(y: np.ndarray, n_bins: int) -> np.ndarray:
    """Return the different quantiles between bins of equal size, with at least four rows each if there are enough rows for two such bins."""
    n_bins = max(2, min(n_bins, len(y) // _FEWEST_ROWS))
    return np.unique(np.quantile(y, np.arange(1, n_bins) / n_bins))
