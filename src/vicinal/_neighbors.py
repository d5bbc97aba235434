"""Nearest neighbours among the training rows: exactly k, the row itself left out by its index."""

import numpy as np
from sklearn.neighbors import NearestNeighbors

SEARCHES = ("exact", "approximate")


def nearest_neighbors(Z, k, candidates=None, *, search="exact"):
    """Return the k nearest rows of each row of Z, itself excluded by index, shape (n, k), nearest first.

    Parameters
    ----------
    Z : array of shape (n, p)
        Rows where the distance is Euclidean.
    candidates : increasing integer array, optional
        Rows that may be neighbours; the default is all.
    search : {"exact", "approximate"}
        "exact" is scikit-learn's search, "approximate" is pynndescent's, for large n.
    """
    if search not in SEARCHES:
        raise ValueError(f"search must be one of {', '.join(map(repr, SEARCHES))}, got {search!r}.")
    # Distances by matrix products lose the digits of a common offset; the median is not moved by a few far
    # rows.
    Z = Z - np.median(Z, axis=0)
    if candidates is None or len(candidates) == len(Z):
        return _among_themselves(Z, k, search)
    neighbors = np.empty((len(Z), k), dtype=np.int64)
    others = np.setdiff1d(np.arange(len(Z)), candidates)
    neighbors[candidates] = candidates[_among_themselves(Z[candidates], k, search)]
    found = NearestNeighbors(n_neighbors=k).fit(Z[candidates]).kneighbors(Z[others], return_distance=False)
    neighbors[others] = candidates[found]
    return neighbors


def _among_themselves(Z, k, search):
    if search == "exact":
        return NearestNeighbors(n_neighbors=k).fit(Z).kneighbors(return_distance=False)
    try:
        from pynndescent import NNDescent
    except ImportError as error:
        raise ImportError("search='approximate' needs pynndescent: pip install 'vicinal[ann]'") from error
    found, _ = NNDescent(Z, n_neighbors=min(k + 6, len(Z)), random_state=0).neighbor_graph
    # The row itself is usually, not always, among its own neighbours; a missing neighbour is -1.
    usable = (found != np.arange(len(Z))[:, None]) & (found >= 0)
    first = np.argsort(~usable, axis=1, kind="stable")[:, :k]
    neighbors = np.take_along_axis(found, first, axis=1).astype(np.int64)
    short = np.flatnonzero(usable.sum(axis=1) < k)
    if len(short):
        exact = NearestNeighbors(n_neighbors=k + 1).fit(Z).kneighbors(Z[short], return_distance=False)
        rows = [row[row != i][:k] for i, row in zip(short, exact, strict=True)]
        neighbors[short] = np.stack(rows)
    return neighbors
