"""Validation of the parameters of Manifold Parzen Windows: the metric, the bandwidth, and the number of rows needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cholesky, solve_triangular
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from vicinal._checks import bandwidth_covariance, check_integer, check_spread
from vicinal._density.noise_choice import check_noise
from vicinal._density.selection import Selection
from vicinal._engine import robust_centre
from vicinal._tensors import on_device

if TYPE_CHECKING:
    from vicinal._manifold_parzen.manifold_parzen import ManifoldParzen


_NEIGHBORHOODS = ("nearest", "kernel")


def check_soft_rows(n_rows: int, least: int, purpose: str) -> None:
    if n_rows < least:
        raise ValueError(
            f"vicinity='kernel'{purpose} needs at least {least} training rows of positive weight, got {n_rows}. "
            "Add data, or pass n_components=0 and noise as a number."
        )


def clone_but_keep_metric(estimator: ManifoldParzen) -> ManifoldParzen:
    """Clone all parameters except the metric, whose clone would no longer be fitted."""
    copy = BaseEstimator.__sklearn_clone__(estimator)
    copy.metric = estimator.metric
    return copy


def rows_under_metric(metric: Any, rows: ArrayLike, X: np.ndarray) -> np.ndarray:
    """Return the rows transformed by the metric, for which its distances are Euclidean.

    `rows` are as the user passed them (perhaps with column names, which the metric may use), and X is the validated
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


def in_bandwidths(Z: np.ndarray, bandwidth: Any) -> np.ndarray:
    """Return rows in units of the bandwidth: where the weight is exp(-|z_i - z_j|^2 / 2)."""
    lower = cholesky(bandwidth_covariance(bandwidth, Z.shape[1]), lower=True)
    centred = (Z - robust_centre(Z)).T
    return np.ascontiguousarray(solve_triangular(lower, centred.astype(np.float64), lower=True).T)


def check_parameters(estimator: ManifoldParzen, X: np.ndarray) -> None:
    """Raise an error for parameters that are invalid for any data."""
    for name, least in (("n_components", 0), ("n_neighbors", 1)):
        value = getattr(estimator, name)
        if isinstance(value, str):
            if value != "auto":
                raise ValueError(f"{name} must be an integer or 'auto', got {value!r}.")
        else:
            check_integer(value, name, least=least)
    if isinstance(estimator.noise, str):
        if estimator.noise != "auto":
            raise ValueError(f"noise must be a variance greater than 0 or 'auto', got {estimator.noise!r}.")
        check_spread(X)
    else:
        check_noise(estimator.noise, X.dtype)
    if estimator.vicinity not in _NEIGHBORHOODS:
        raise ValueError(f"vicinity must be 'nearest' or 'kernel', got {estimator.vicinity!r}.")
    if estimator.selection is not None:
        if not isinstance(estimator.selection, Selection):
            raise TypeError(
                f"selection must be a vicinal.Selection or None, got {type(estimator.selection).__name__}. "
                "Selection(criterion='error', cv=5) for example."
            )
        if estimator.vicinity == "kernel":
            raise ValueError("selection needs vicinity='nearest': a soft neighbourhood has no number of neighbours.")


def check_sizes(
    estimator: ManifoldParzen, X: np.ndarray, n_rows: int, d: int, k: int, noise: float | str
) -> tuple[int, int]:
    """Check d and k against each other and the data, and return them."""
    n_features = X.shape[1]
    if d > n_features:
        raise ValueError(
            f"n_components={d} needs at least {d} features that vary, got {n_features}. Lower n_components."
        )
    if d == 0:
        return d, k
    auto = isinstance(noise, str)
    if estimator.vicinity == "kernel":
        if estimator.bandwidth is None:
            raise ValueError(
                "vicinity='kernel' needs a bandwidth, got None. Pass a standard deviation, for "
                "example the typical distance of a row to its tenth neighbour."
            )
        check_soft_rows(n_rows, 3 if auto else 2, " with noise='auto'" if auto else "")
        return d, k
    if d > k:
        raise ValueError(
            f"n_components={d} needs at least {d} neighbours, got n_neighbors={k}. Raise n_neighbors or "
            "lower n_components."
        )
    if n_rows <= k:
        raise ValueError(
            f"n_neighbors={k} needs at least {k + 1} training rows, got {n_rows}. Lower n_neighbors or add data."
        )
    if auto and n_rows == k + 1:
        raise ValueError(
            f"n_neighbors={k} with noise='auto', which leaves rows out, needs at least {k + 2} training "
            f"rows, got {n_rows}. Lower n_neighbors, add data or pass noise as a number."
        )
    return d, k


def check_can_hold_out(density: Any) -> None:
    """Raise if a fitted density has too few rows to build frames without one of them."""
    neighbors, k = density._neighbors, density.n_neighbors_
    if neighbors is None:
        check_soft_rows(int(np.isfinite(density.mixture_.log_weights).sum()), 3, " when rows are left out")
    elif neighbors.shape[1] == k:
        raise ValueError(
            f"n_neighbors={k} needs at least {k + 2} training rows when a row is left out, got {len(neighbors)}. Lower "
            "n_neighbors or add data."
        )
