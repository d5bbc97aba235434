"""Validation of the parameters of Local LCA, by themselves and against the data."""

from typing import Any

import numpy as np

from vicinal._checks import check_choice, check_integer, check_positive
from vicinal._density.selection import Selection
from vicinal._lca.local_folds import Choice
from vicinal._lca.local_kernels import CENTERS


def check_parameters(parameters: Any) -> None:
    """Raise if parameters of a LocalLCA are invalid for any data."""
    for name, least in (("n_components", 0), ("n_neighbors", 1)):
        value = getattr(parameters, name)
        if not isinstance(value, str):
            check_integer(value, name, least=least)
        elif value != "auto":
            raise ValueError(f"{name} must be an integer or 'auto', got {value!r}.")
    for name in ("noise", "shared"):
        value = getattr(parameters, name)
        if not isinstance(value, str):
            check_positive(value, name, strict=False)
        elif value != "auto":
            raise ValueError(f"{name} must be a number of at least 0 or 'auto', got {value!r}.")
    if all(not isinstance(value, str) and value == 0 for value in (parameters.noise, parameters.shared)):
        raise ValueError("noise and shared must not both be 0: kernels of width 0 have no density.")
    check_choice(parameters.center, "center", ("auto", *CENTERS))
    if parameters.center == "mean" and not isinstance(parameters.n_components, str) and parameters.n_components == 0:
        raise ValueError(
            "center='mean' needs n_components of at least 1: without directions, kernels are centred at the rows."
        )
    if parameters.selection is None:
        return
    if not isinstance(parameters.selection, Selection):
        raise TypeError(
            f"selection must be a vicinal.Selection or None, got {type(parameters.selection).__name__}. "
            "For example, pass Selection(cv=10)."
        )
    if parameters.selection.classifies:
        raise ValueError(
            f"selection.criterion must be 'log_likelihood' for LocalLCA, got {parameters.selection.criterion!r}. "
            "DensityClassifier(LocalLCA()) chooses the kernels of each class by the likelihood of that class."
        )


def check_sizes(choice: Choice, X: np.ndarray, weight: np.ndarray | None) -> None:
    """Check the number of directions and the size of a vicinity against each other and the data."""
    d, k, n_rows = choice.n_components, choice.n_neighbors, len(X) if weight is None else np.count_nonzero(weight)
    if d > X.shape[1]:
        raise ValueError(
            f"n_components={d} needs at least {d} features that vary, got {X.shape[1]}. Lower n_components."
        )
    if d == 0:
        return
    if d > k:
        raise ValueError(
            f"n_components={d} needs at least {d} neighbours, got n_neighbors={k}. Raise n_neighbors or lower "
            "n_components."
        )
    if n_rows <= k:
        raise ValueError(
            f"n_neighbors={k} needs at least {k + 1} training rows, got {n_rows}. Lower n_neighbors or add data."
        )
