"""The grid that Local LCA searches for parameters that are "auto"."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from vicinal._checks import check_integer, check_positive, check_spread
from vicinal._density.neighbors import nearest_neighbors
from vicinal._density.noise_choice import noise_range
from vicinal._density.selection import Selection
from vicinal._engine import Engine
from vicinal._lca.local_kernels import CENTERS, Shared
from vicinal._lca.local_search import Grid

_NEIGHBORS = (5, 10, 20, 40, 80, 160)
_PLENTY = 10  # training rows per row of a vicinity, for vicinities of more than 80 rows
_MOST_DIRECTIONS = 32
_NOISES = 16
# Multiples of LCA's covariance, a factor of 10^(1/4) apart; 1 is at a place that
# the first round of a search tries.
_MULTIPLES = tuple(10.0 ** (e / 4.0) for e in range(-12, 3))
SMALLEST_MULTIPLE = _MULTIPLES[0]


def local_grid(
    parameters: Any, selection: Selection, X: np.ndarray, weight: np.ndarray | None, smallest: int, engine: Engine
) -> Grid:
    """Return the grid for the parameters of an estimator; a parameter that is a number is the only value of its axis.

    Parameters
    ----------
    parameters : LocalLCA
    selection : Selection
    X : array of shape (n, D)
    weight : array of shape (n,), optional
    smallest : int
        The number of rows of the smallest training part.
    engine : Engine
    """
    neighbors = _values(parameters.n_neighbors, selection.n_neighbors)
    if neighbors is None:
        neighbors = [k for k in _NEIGHBORS if k < (smallest if k <= 80 else smallest / _PLENTY)]
        neighbors = neighbors or [max(smallest - 1, 1)]
    neighbors = sorted({check_integer(k, "n_neighbors") for k in neighbors})
    D = X.shape[1]
    depths = _values(parameters.n_components, selection.n_components)
    if depths is None:
        most = min(D, max(neighbors), _MOST_DIRECTIONS)
        depths = [0, *(2**e for e in range(6) if 2**e <= most), most]
    depths = sorted({check_integer(d, "n_components", least=0) for d in depths})
    _check_sizes(depths, neighbors, D, smallest)
    centers = CENTERS if parameters.center == "auto" else (parameters.center,)
    if max(depths) == 0:
        centers = CENTERS[:1]  # the only one without directions
    paths, sums = _paths(parameters, selection, X, weight, engine)
    return Grid(neighbors, depths, centers, paths, sums)


def _values(own: Any, grid: Any) -> Sequence[Any] | None:
    """Return the values of a parameter: its own, those of the grid, or None for "auto"."""
    if not isinstance(own, str):
        return [own]
    return None if isinstance(grid, str) else np.ravel(grid).tolist()


def _check_sizes(depths: Sequence[int], neighbors: Sequence[int], n_features: int, smallest: int) -> None:
    if max(depths) > n_features:
        raise ValueError(
            f"n_components={max(depths)} needs at least {max(depths)} features that vary, got {n_features}. Lower "
            "n_components."
        )
    if max(neighbors) >= smallest:
        raise ValueError(
            f"n_neighbors={max(neighbors)} needs at least {max(neighbors) + 1} training rows in every split, got "
            f"{smallest} in the smallest. Lower n_neighbors or use fewer folds."
        )
    if min(depths) > max(neighbors):
        raise ValueError(
            f"n_components={min(depths)} needs at least as many neighbours, got n_neighbors={max(neighbors)}. Raise "
            "n_neighbors or lower n_components."
        )


def _paths(
    parameters: Any, selection: Selection, X: np.ndarray, weight: np.ndarray | None, engine: Engine
) -> tuple[list[tuple[Shared, Sequence[float]]], bool]:
    """Return the paths of shared covariances, and whether sums of members of two paths are tried."""
    multiples: Sequence[float] = _MULTIPLES if isinstance(parameters.shared, str) else [float(parameters.shared)]
    noises = _values(parameters.noise, selection.noise)
    if noises is None:
        noises = _auto_noises(X, weight, engine)
        if not isinstance(parameters.shared, str) and parameters.shared > 0:
            noises = [0.0, *noises[::3]]
    noises = sorted({check_positive(noise, "noise", strict=False) for noise in noises})
    free_shared, free_noise = isinstance(parameters.shared, str), isinstance(parameters.noise, str)
    if free_shared and free_noise:
        return [(Shared(1.0, 0.0), multiples), (Shared(0.0, 1.0), [s for s in noises if s > 0])], True
    if free_shared and noises == [0.0]:
        return [(Shared(1.0, 0.0), multiples)], False
    if free_noise and multiples == [0.0]:
        return [(Shared(0.0, 1.0), noises)], False
    # One of the two is given, so that the shape of the sum changes with the other: a path of one member for each.
    return [(Shared(a, s), [1.0]) for a in multiples for s in noises], False


def _auto_noises(X: np.ndarray, weight: np.ndarray | None, engine: Engine) -> list[float]:
    """Return the noises of Manifold Parzen: from far below the distance of nearest neighbours to the variance of the data."""
    check_spread(X)
    rows = np.unique(X if weight is None else X[weight > 0], axis=0)
    nearest = nearest_neighbors(rows, 1, engine=engine)[:, 0]
    low, high = noise_range(rows, np.linalg.norm(rows - rows[nearest], axis=1))
    return np.geomspace(low, high, _NOISES).tolist()
