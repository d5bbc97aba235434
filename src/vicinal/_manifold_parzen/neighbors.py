"""Nearest neighbours among the training rows: exactly k, the row itself left out by its index."""

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.neighbors import NearestNeighbors

SEARCHES = ("exact", "approximate")
_SPARE = 5  # neighbours found beyond k, among which ties are settled


def nearest_neighbors(Z, k, candidates=None, *, search="exact"):
    """Return the k nearest rows of each row of Z, itself excluded by index, shape (n, k), nearest first.

    Rows at equal distance come in the order of their index, so the neighbours for a smaller k are the first of
    those for a larger one, and do not depend on how they were found.

    Parameters
    ----------
    Z : array of shape (n, p)
        Rows where the distance is Euclidean.
    k : int
    candidates : increasing integer array, optional
        Rows that may be neighbours; the default is all.
    search : {"exact", "approximate"}
        "exact" is scikit-learn's search, "approximate" is pynndescent's, for large n.
    """
    if search not in SEARCHES:
        raise ValueError(f"search must be one of {', '.join(map(repr, SEARCHES))}, got {search!r}.")
    # Distances by matrix products lose the digits of a common offset; a few far rows do not move the median.
    Z = (Z - np.median(Z, axis=0)).astype(np.float64, copy=False)
    n = len(Z)
    candidates = np.arange(n) if candidates is None else candidates
    own = np.full(n, -1)
    own[candidates] = np.arange(len(candidates))
    wanted = min(k + 1 + _SPARE, len(candidates))
    if search == "exact":
        found = NearestNeighbors(n_neighbors=wanted).fit(Z[candidates]).kneighbors(Z, return_distance=False)
    else:
        found = _approximate(Z, candidates, wanted)
    neighbors = np.empty((n, k), dtype=np.int64)
    batch = max(2**22 // (wanted * Z.shape[1]), 1)
    for start in range(0, n, batch):
        rows = np.arange(start, min(start + batch, n))
        neighbors[rows] = _settled(Z, rows, candidates, found[rows], own[rows], k, search == "exact")
    return candidates[neighbors]


def _settled(Z, rows, candidates, found, own, k, exact):
    """The k nearest of the neighbours found for some rows, themselves excluded, ties in the order of the index."""
    distances = ((Z[candidates[found]] - Z[rows, None, :]) ** 2).sum(axis=2)
    distances[(found == own[:, None]) | (found < 0)] = np.inf
    order = np.lexsort((found, distances), axis=1)
    found, distances = (np.take_along_axis(a, order, axis=1) for a in (found, distances))
    # What was found may end amid rows at equal distance (many twins), or hold too few: look at all rows then.
    open_ended = distances[:, k - 1] == np.inf
    if exact and found.shape[1] < len(candidates):
        usable = np.where(np.isfinite(distances), distances, -np.inf).max(axis=1)
        open_ended |= distances[:, k - 1] == usable
    for i in np.flatnonzero(open_ended):
        squares = cdist(Z[rows[i], None], Z[candidates], "sqeuclidean")[0]
        if own[i] >= 0:
            squares[own[i]] = np.inf
        found[i, :k] = np.argsort(squares, kind="stable")[:k]
    return found[:, :k]


def _approximate(Z, candidates, wanted):
    """Neighbours by pynndescent, -1 where it found too few."""
    try:
        from pynndescent import NNDescent
    except ImportError as error:
        raise ImportError("search='approximate' needs pynndescent: pip install 'vicinal[ann]'") from error
    index = NNDescent(Z[candidates], n_neighbors=wanted, random_state=0)
    found = np.full((len(Z), wanted), -1, dtype=np.int64)
    found[candidates] = index.neighbor_graph[0]
    others = np.setdiff1d(np.arange(len(Z)), candidates)
    if len(others):
        found[others] = index.query(Z[others], k=wanted)[0]
    return found
