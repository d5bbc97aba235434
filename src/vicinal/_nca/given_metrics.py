"""The metrics that the user may give to soft neighbours: a fitted one, an estimator of one, a matrix, or none."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_array, check_is_fitted, has_fit_parameter


def width_under(metric: Any, n_features: int) -> int:
    """Return the number of dimensions of the images under a metric, as far as its parameters and fitted attributes determine it."""
    matrix = getattr(metric, "components_", None if hasattr(metric, "transform") else metric)
    if matrix is not None:
        return len(np.atleast_2d(matrix))
    width = getattr(metric, "n_components", None)
    return int(width) if isinstance(width, numbers.Integral) else n_features


def fitted_metric(metric: Any, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> Any:
    """Return the metric as None, a matrix, or a fitted transformer; an estimator is cloned and fitted."""
    if metric is None:
        return None
    if not hasattr(metric, "transform") or isinstance(metric, type):
        if hasattr(metric, "fit") or isinstance(metric, str) or callable(metric):
            raise TypeError(
                "metric must be a fitted metric (an object with transform), an estimator of one, a matrix or "
                f"None, got {metric!r}."
            )
        matrix = check_array(metric, dtype=np.float64, input_name="metric")
        if matrix.shape[1] != np.shape(X)[1]:
            raise ValueError(
                f"metric as a matrix must have as many columns as X has features, {np.shape(X)[1]}, got "
                f"shape {matrix.shape}."
            )
        return matrix
    try:
        check_is_fitted(metric)
    except NotFittedError:
        weighs = sample_weight is not None and has_fit_parameter(metric, "sample_weight")
        return clone(metric).fit(X, y, **({"sample_weight": sample_weight} if weighs else {}))
    return metric


def images_under(metric: Any, given: ArrayLike, X: np.ndarray) -> np.ndarray:
    """Return the images of rows under a metric, between which distances are Euclidean; X are the given rows, validated."""
    if metric is None:
        return X
    if isinstance(metric, np.ndarray):
        return X @ metric.T.astype(X.dtype)
    named = hasattr(metric, "feature_names_in_") and hasattr(given, "columns")
    Z = np.asarray(metric.transform(given if named else X))
    return np.ascontiguousarray(Z, dtype=np.float32 if Z.dtype == np.float32 else np.float64)
