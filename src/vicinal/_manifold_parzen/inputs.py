"""What Manifold Parzen Windows takes in besides rows: a metric, a bandwidth; and how many rows they need."""

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from vicinal._checks import bandwidth_covariance
from vicinal._engine import robust_centre
from vicinal._tensors import on_device


def check_soft_rows(n_rows, least, purpose):
    if n_rows < least:
        raise ValueError(
            f"vicinity='kernel'{purpose} needs at least {least} training points of positive weight, got {n_rows}. "
            "Add data, or pass n_components=0 and noise as a number."
        )


def clone_but_keep_metric(estimator):
    """Clone all parameters but the metric, an input that would no longer be fitted."""
    copy = BaseEstimator.__sklearn_clone__(estimator)
    copy.metric = estimator.metric
    return copy


def rows_under_metric(metric, rows, X):
    """The rows where the metric's distances are Euclidean.

    `rows` are as the user passed them (perhaps with column names, which the metric may know), X the checked
    array.
    """
    if metric is None:
        return X
    if not hasattr(metric, "transform"):
        raise TypeError(
            f"metric must be a fitted metric with a transform method, or None, got {type(metric).__name__}. "
            "Fit LCA, RCA, NCA or a scikit-learn transformer first and pass it."
        )
    try:
        Z = np.asarray(metric.transform(X if on_device(rows) else rows))
    except NotFittedError as error:
        raise NotFittedError(
            f"metric must be fitted before it is passed, and this {type(metric).__name__} is not."
        ) from error
    if Z.ndim != 2 or len(Z) != len(X) or not np.all(np.isfinite(Z)):
        raise ValueError(
            f"metric must map the {len(X)} rows to {len(X)} finite rows, got an array of shape {Z.shape}"
            f"{'' if np.all(np.isfinite(Z)) else ' that is not finite'}."
        )
    return Z


def in_bandwidths(Z, bandwidth):
    """Rows in units of the bandwidth: where the weight is exp(-|z_i - z_j|^2 / 2)."""
    lower = cholesky(bandwidth_covariance(bandwidth, Z.shape[1]), lower=True)
    centred = (Z - robust_centre(Z)).T
    return np.ascontiguousarray(solve_triangular(lower, centred.astype(np.float64), lower=True).T)
