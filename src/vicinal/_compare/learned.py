"""The metric or density in a pipeline, and what it does to the columns."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.preprocessing import Normalizer, StandardScaler

from vicinal._detect.steps import flat_steps

_STEPS = 1_000  # columns that are moved at a time to find a linear map


def learned_step(model: Any) -> Any:
    """Return the metric or density: the last step, or the one before it in an adapter, which ends with a Normalizer."""
    steps = flat_steps(model)
    return next((step for step in reversed(steps) if not isinstance(step, Normalizer)), steps[-1])


def images_of(metric: Any, X: np.ndarray) -> np.ndarray:
    """Return rows transformed by the metric, as float64; raise an error if there are no columns."""
    estimator = learned_step(metric)
    if hasattr(estimator, "gaussian_components_") and estimator.n_components_ == 0:  # all directions are Gaussian
        raise ValueError("it keeps no direction")
    with warnings.catch_warnings():
        # A model from a file may have column names; here the columns are in its order.
        warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
        images = np.asarray(metric.transform(X), dtype=np.float64)
    if images.ndim != 2 or images.shape[1] == 0:
        raise ValueError("it keeps no direction")
    if not np.isfinite(images).all():
        raise ValueError("its image is not finite")
    return images


def linear_map(metric: Any, X: np.ndarray | None = None, levels: Sequence[int] = ()) -> np.ndarray | None:
    """Return the metric's map in standard deviations of the columns: (k, d), or None if it is not linear; zeros for levels.

    The standard deviations are those of the training rows, if the metric begins with a StandardScaler, and otherwise of the rows X;
    None if neither is known.
    """
    estimator = learned_step(metric)
    scaler = next((step for step in flat_steps(metric) if isinstance(step, StandardScaler)), None)
    if scaler is not None and scaler.scale_ is not None and scaler.n_features_in_ == metric.n_features_in_:
        mean, spread = np.zeros(len(scaler.scale_)) if scaler.mean_ is None else scaler.mean_, scaler.scale_
    elif X is not None:
        mean, spread = X.mean(axis=0), X.std(axis=0)
        mean[list(levels)], spread[list(levels)] = X[0, list(levels)], 0.0
    else:
        return None
    # The map of the numbers; levels have coordinates of their own.
    if not levels and getattr(estimator, "_has_levels", False) and hasattr(estimator, "components_"):
        matrix = np.zeros((len(estimator.components_), len(mean)))
        matrix[:, estimator._categories.numbers] = estimator.components_
        return matrix if scaler is not None else matrix * spread
    try:
        origin, away = images_of(metric, np.vstack([mean, mean - 2.0 * spread]))
        # A step along each column, some columns at a time: together they are as many numbers as the square of the columns.
        steps = []
        for first in range(0, len(mean), _STEPS):
            rows = np.repeat(mean[None], min(_STEPS, len(mean) - first), axis=0)
            rows[np.arange(len(rows)), first + np.arange(len(rows))] += spread[first : first + len(rows)]
            steps.append(images_of(metric, rows) - origin)
    except (AttributeError, ValueError, TypeError):
        return None
    matrix = np.concatenate(steps).T
    predicted = origin - 2.0 * matrix.sum(axis=1)
    size = np.abs(matrix).sum() or 1.0
    return matrix if np.abs(away - predicted).max() <= 1e-6 * size else None
