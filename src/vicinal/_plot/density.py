"""Preparations of `plot.plot_density`: the range, the features, and the mass inside contours."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from vicinal._callers import callers_line
from vicinal._mixtures import feature_positions
from vicinal._plot.parts import short
from vicinal._rows import check_array


def prepared_density(
    density: Any, X: ArrayLike | None, features: Any
) -> tuple[Callable[[np.ndarray], np.ndarray], list[str], np.ndarray, Kernel]:
    """Return a function that scores plain rows, the names of the features, rows that span them, and its kernel."""
    if not hasattr(density, "score_samples"):
        raise TypeError(
            f"density must have score_samples, got {type(density).__name__}. Pass a fitted density: LCA, "
            "ParzenWindows, ManifoldParzen or a mixture."
        )
    if hasattr(density, "fit"):
        check_is_fitted(density)
    mixture = getattr(density, "mixture_", density)
    d = getattr(density, "n_features_in_", None) or getattr(mixture, "n_features", None)
    names = getattr(density, "feature_names_in_", getattr(mixture, "feature_names", None))
    if d is None:
        d = check_array(X, input_name="X").shape[1] if X is not None else 1
    if features is None and d > 2:
        raise ValueError(
            f"the density has {d} features, and a picture has two. Pass features=(0, 1), or the names of two "
            "features, to draw their marginal."
        )
    kept = np.arange(d)
    if features is not None:
        kept = feature_positions(features, d, names)
        if len(kept) > 2:
            raise ValueError(f"features must name one or two features, got {len(kept)}.")
        if list(kept) != list(range(d)):
            if not hasattr(mixture, "marginal"):
                raise TypeError(f"{type(density).__name__} has no marginal. Pass a density of one or two features.")
            mixture = density = mixture.marginal(list(kept))
    shown = [f"column {i + 1}" for i in kept] if names is None else [short(names[i]) for i in kept]
    if X is not None:
        rows = check_array(X, dtype=np.float64, input_name="X")
        if rows.shape[1] not in (d, len(kept)):
            raise ValueError(f"X must have the {d} columns of the density, got {rows.shape[1]}.")
        rows = rows[:, kept] if rows.shape[1] == d else rows
    elif hasattr(mixture, "centres"):
        rows = np.asarray(mixture.centres, dtype=np.float64)
    elif hasattr(density, "sample"):
        rows = density.sample(1000)
        rows = np.asarray(rows[0] if isinstance(rows, tuple) else rows, dtype=np.float64)
    else:
        raise ValueError(f"{type(density).__name__} has no training rows that give the range of the picture. Pass X.")
    return _plain_score(density, mixture), shown, rows, _kernel_of(mixture, len(kept))


def _plain_score(density: Any, mixture: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Score rows without names, even if the density was fitted on named columns."""
    if mixture is not density or not hasattr(density, "feature_names_in_"):
        return mixture.score_samples
    import pandas as pd

    return lambda rows: density.score_samples(pd.DataFrame(rows, columns=density.feature_names_in_))


class Kernel(NamedTuple):
    """Return the covariances of a typical and of the narrowest kernel of a density, or None if they are unknown."""

    typical: Any
    narrowest: Any


def _kernel_of(mixture: Any, d: int) -> Kernel:
    if hasattr(mixture, "frames"):
        narrow = mixture.covariance * np.eye(d) if np.ndim(mixture.covariance) == 0 else mixture.covariance
        return Kernel(narrow * (1.0 + np.median(mixture.variances[0]) / mixture.noise), narrow)
    covariance = np.asarray(getattr(mixture, "covariance", None))
    return Kernel(covariance, covariance) if covariance.shape == (d, d) else Kernel(None, None)


def range_of(rows: np.ndarray, kernel: Kernel) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of the axes: the range of the rows and three standard deviations of a kernel around them."""
    low, high = rows.min(axis=0), rows.max(axis=0)
    margin = 0.05 * (high - low)
    if kernel.typical is not None:
        margin = np.maximum(margin, 3.0 * np.sqrt(np.diag(kernel.typical)))
    margin = np.where(margin > 0, margin, np.maximum(np.abs(low), 1.0) * 0.05)
    return low - margin, high + margin


def warn_if_too_coarse(kernel: Kernel, cells: np.ndarray) -> None:
    """Warn when peaks of the density fit between the points of the grid."""
    if kernel.narrowest is None:
        return
    narrowest = float(np.sqrt(np.linalg.eigvalsh(kernel.narrowest / np.outer(cells, cells))[0]))
    if narrowest < 0.4:
        warnings.warn(
            f"the kernels of the density are {narrowest:.2g} cells of the grid wide, so the picture misses parts of it. "
            f"Raise resolution {0.5 / narrowest:.0f} times or more, or pass rows X of a smaller region.",
            UserWarning,
            stacklevel=callers_line(),
        )


def share_inside(log_density: np.ndarray) -> np.ndarray:
    """Return for each cell of the grid the share of the mass in cells that are at least as dense."""
    flat = log_density.ravel()
    order = np.argsort(-flat, kind="stable")
    mass = np.cumsum(np.exp(flat[order] - flat[order[0]]))
    share = np.empty(len(flat))
    # A cell counts half of its own mass, so that the value does not depend on the size of the cells.
    share[order] = (mass - 0.5 * np.diff(mass, prepend=0.0)) / mass[-1]
    return share.reshape(log_density.shape)
