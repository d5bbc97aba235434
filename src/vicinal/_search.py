"""What the searches of Manifold Parzen and Local LCA share: checks of sizes, the noises to try, the table of results, a warning."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata
from sklearn.exceptions import ConvergenceWarning

from vicinal._callers import callers_line
from vicinal._checks import check_spread
from vicinal._density.neighbors import nearest_neighbors
from vicinal._density.noise_choice import noise_range
from vicinal._engine import Engine

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


def search_results(params: list[dict[str, Any]], scores: np.ndarray) -> dict[str, Any]:
    """Return the scores of candidates, of shape (splits, candidates), as GridSearchCV's ``cv_results_``."""
    results: dict[str, Any] = {"params": params}
    for name in params[0]:
        results[f"param_{name}"] = np.array([candidate[name] for candidate in params])
    for s, split in enumerate(scores):
        results[f"split{s}_test_score"] = split
    results["mean_test_score"] = scores.mean(axis=0)
    known = np.isfinite(results["mean_test_score"])
    results["std_test_score"] = np.full(len(params), np.inf)
    with np.errstate(over="ignore"):
        results["std_test_score"][known] = scores[:, known].std(axis=0)
    results["rank_test_score"] = rankdata(-results["mean_test_score"], method="min").astype(int)
    return results


def warn_at_smallest(method: str, value: float, candidates: str, remedy: str) -> None:
    """Warn that a search chose the smallest of its candidates."""
    warnings.warn(
        f"{method}: the search chose {value:.3g}, the smallest {candidates}, and a smaller one may score better. Check for "
        "dependent columns, columns of few distinct values and rows that almost repeat others, or pass "
        f"{remedy}.",
        ConvergenceWarning,
        stacklevel=callers_line(),
    )
