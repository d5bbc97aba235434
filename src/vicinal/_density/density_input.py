"""Validation of the ``density`` of meta-estimators, and rows in the form that it expects."""

from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import has_fit_parameter

from vicinal._density.parzen import ParzenWindows
from vicinal._tensors import on_device


def as_density(density: Any) -> Any:
    """Return the density to clone: ``ParzenWindows()`` for None, otherwise the validated argument."""
    if density is None:
        return ParzenWindows()
    if isinstance(density, type) or not (hasattr(density, "fit") and hasattr(density, "score_samples")):
        what = f"the class {density.__name__}" if isinstance(density, type) else type(density).__name__
        raise TypeError(
            f"density must be an estimator with fit and score_samples, got {what}. Pass an instance such as "
            "ParzenWindows()."
        )
    return density


def check_takes_weights(density: Any, weight: np.ndarray | None) -> None:
    """Raise an error for weights that the density's fit would not accept."""
    if weight is not None and not has_fit_parameter(density, "sample_weight"):
        raise ValueError(
            f"sample_weight needs a density whose fit accepts it; {type(density).__name__} does not. Use "
            "ParzenWindows, KernelDensity or ManifoldParzen, or leave sample_weight out."
        )


def rows_as_passed(passed: Any, X: np.ndarray, chosen: np.ndarray | None = None, *, density: Any = None) -> Any:
    """Return rows as passed if they have column names, which a density's metric may use; otherwise as validated.

    A tensor on a GPU is also passed on unchanged to a `density` of vicinal, which then works on the device.
    """
    if on_device(passed) and hasattr(density, "engine"):
        return passed if chosen is None else passed[chosen]
    rows = passed if hasattr(passed, "columns") else X
    return rows if chosen is None else _safe_indexing(rows, chosen)


def breaks_constants(rows: np.ndarray, constants: np.ndarray) -> np.ndarray:
    """Return where rows (m, d) differ from the values of columns that are constant in the training rows (NaN: varying columns).

    A difference of one rounding is ignored, because the constant may have been scaled or converted to float32. A missing value is not a difference either.
    """
    return ~(np.isnan(constants) | np.isnan(rows) | np.isclose(rows, constants, rtol=1e-7, atol=0.0))
