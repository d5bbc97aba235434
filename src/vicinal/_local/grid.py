"""Checks of sizes, and the noises to try."""

import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from vicinal._callers import callers_line
from vicinal._checks import check_positive, check_spread
from vicinal._engine import Engine
from vicinal._local.kernels import nearest_neighbors

_STEP = 1.5  # ratio of neighbouring candidates; the curve is smooth, and the best three are interpolated
_MOST = 64  # candidates in a pass


# Comparing noises needs fewer digits than reporting a density; see `Frames`.
SLACK = {np.dtype(np.float64): 1e6, np.dtype(np.float32): 10.0}


class NoiseChoice(NamedTuple):
    """The chosen noise, and the candidates with their mean held-out log-densities."""

    noise: float
    candidates: np.ndarray
    scores: np.ndarray


def choose_noise(evaluate: Callable[[np.ndarray], np.ndarray], X: np.ndarray, nearest: np.ndarray) -> NoiseChoice:
    """Choose the variance with the largest held-out likelihood on a geometric grid, with interpolation.

    Parameters
    ----------
    evaluate : callable
        ``evaluate(noises)`` returns the mean held-out log-density for each noise, all in one pass over the
        pairs.
    X : array of shape (n, D)
    nearest : array of shape (n,)
        Distance of each row to its nearest neighbour.
    """
    low, high = noise_range(X, nearest)
    candidates, scores = np.array([]), np.array([])
    # Smaller candidates are tried as long as the smallest is the best: with as many directions as features, the noise may
    # vanish.
    for _ in range(3):
        steps = int(np.clip(np.ceil(np.log(high / low) / np.log(_STEP)), 8, _MOST))
        new = np.geomspace(low, high, steps + 1)[: steps + (len(candidates) == 0)]
        candidates, scores = np.concatenate([new, candidates]), np.concatenate([evaluate(new), scores])
        best = int(np.argmax(scores))
        if best > 0 or scores[0] - scores[2] < 1e-3:
            break
        low, high = max(low * 1e-4, float(np.finfo(X.dtype).tiny)), low
    else:
        warnings.warn(
            f"noise='auto' did not converge: it chose {candidates[0]:.3g}, the smallest candidate, and "
            "a smaller one may score better. Check for constant or dependent columns and for rows that almost "
            "repeat others, or pass noise as a number.",
            ConvergenceWarning,
            stacklevel=callers_line(),
        )
    return NoiseChoice(_interpolated(candidates, scores, best), candidates, scores)


def noise_range(X: np.ndarray, nearest: np.ndarray) -> tuple[float, float]:
    """Return the noises to try, from far below the distance of nearest neighbours to the variance of the data."""
    largest = float(X.var(axis=0, dtype=np.float64).mean())
    positive = nearest[nearest > 0]
    if largest == 0 or len(positive) == 0:
        raise ValueError(
            f"noise='auto' found no scale: every one of the {len(X)} rows has an exact twin, and the "
            "likelihood of a row at the place of its twin grows without bound as the noise shrinks. Merge twins "
            "into weights: X, w = np.unique(X, axis=0, return_counts=True), then fit(X, sample_weight=w); "
            "or pass a number."
        )
    twins = int((nearest == 0).sum())
    if twins:
        warnings.warn(
            f"{twins} of {len(X)} rows have an exact twin. A held-out row is at distance zero from its twin, "
            "so noise='auto' chooses a noise that is too small. Merge twins into weights: "
            "X, w = np.unique(X, axis=0, return_counts=True), then fit(X, sample_weight=w).",
            UserWarning,
            stacklevel=callers_line(),
        )
    least = float(np.finfo(X.dtype).tiny)  # the inverse of anything smaller would overflow
    low = max(1e-3 * float(np.median(positive)) ** 2 / X.shape[1], least)
    return low, max(largest, 10.0 * low)


def _interpolated(candidates: np.ndarray, scores: np.ndarray, best: int) -> float:
    """Return the top of the parabola through the best candidate and its neighbours, in log noise."""
    if best in (0, len(candidates) - 1):
        return float(candidates[best])
    x, y = np.log(candidates[best - 1 : best + 2]), scores[best - 1 : best + 2]
    a, b, _ = np.polyfit(x - x[1], y - y[1], 2)
    return float(np.exp(x[1] - b / (2 * a))) if a < 0 else float(candidates[best])


def check_noise(noise: float, dtype: np.dtype) -> float:
    """Return a variance whose inverse the precision of the data can hold."""
    noise, least = check_positive(noise, "noise"), float(np.finfo(dtype).tiny)
    if noise < least:
        raise ValueError(
            f"noise must be at least {least:.3g}, got {noise:.3g}, whose inverse overflows {dtype}. Rescale the data, or "
            "increase the noise."
        )
    return noise


N_NOISES = 16  # the number of noises of "auto"


def check_sizes(d: int, k: int | None, n_features: int, n_rows: int) -> None:
    """Check the number of directions and of neighbours (None if they are not counted) against each other and the data."""
    if d > n_features:
        raise ValueError(
            f"n_components={d} needs at least {d} features that vary, got {n_features}. Lower n_components."
        )
    if d == 0 or k is None:
        return
    if d > k:
        raise ValueError(
            f"n_components={d} needs at least {d} neighbours, got n_neighbors={k}. Raise n_neighbors or lower n_components."
        )
    if n_rows <= k:
        raise ValueError(
            f"n_neighbors={k} needs at least {k + 1} training rows, got {n_rows}. Lower n_neighbors or add data."
        )


def check_grid(
    depths: Sequence[int], neighbors: Sequence[int], n_features: int, smallest: int, parts: str = "split"
) -> None:
    """Check the numbers of directions and of neighbours to try; `smallest` is the number of rows of the smallest training part."""
    check_sizes(max(depths), None, n_features, smallest)
    if max(neighbors) >= smallest and max(depths) > 0:
        raise ValueError(
            f"n_neighbors={max(neighbors)} needs at least {max(neighbors) + 1} training rows in every {parts}, got {smallest} in "
            "the smallest. Lower n_neighbors or use fewer folds."
        )
    if min(depths) > max(neighbors):
        raise ValueError(
            f"n_components={min(depths)} needs at least as many neighbours, got n_neighbors={max(neighbors)}. Raise "
            "n_neighbors or lower n_components."
        )


def auto_noises(X: np.ndarray, weight: np.ndarray | None, engine: Engine) -> list[float]:
    """Return the noises of "auto": from far below the distance of nearest neighbours to the variance of the data."""
    check_spread(X)
    # Equal rows are never separated, so that a held-out row has no twin among the training rows.
    rows = np.unique(X if weight is None else X[weight > 0], axis=0)
    nearest = nearest_neighbors(rows, 1, engine=engine)[:, 0]
    low, high = noise_range(rows, np.linalg.norm(rows - rows[nearest], axis=1))
    return np.geomspace(low, high, N_NOISES).tolist()
