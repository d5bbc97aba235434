"""Nearest neighbours among the training rows: exactly k, the row itself left out by its index."""

from dataclasses import replace

import numpy as np

from vicinal._engine import Engine, as_engine, prepare, robust_centre

SEARCHES = ("exact", "approximate")
_SPARE = 5  # neighbours beyond k that pynndescent searches for


def nearest_neighbors(
    Z: np.ndarray,
    k: int,
    candidates: np.ndarray | None = None,
    *,
    neighbor_search: str = "exact",
    engine: Engine | str | None = None,
) -> np.ndarray:
    """Return the k nearest rows of each row of Z except itself (by index), shape (n, k), nearest first.

    Rows at equal distance come in the order of their index, so the neighbours for a smaller k are the first of
    those for a larger one, and do not depend on how they were found.

    Parameters
    ----------
    Z : array of shape (n, p)
        Rows in coordinates in which the distance is Euclidean.
    k : int
    candidates : increasing integer array, optional
        Rows that may be neighbours; the default is all.
    neighbor_search : {"exact", "approximate"}
        "exact" is the pair engine's search, "approximate" is pynndescent's, for large n.
    engine : None, str or Engine
        Its precision is ignored: neighbours are decided in float64.
    """
    if neighbor_search not in SEARCHES:
        raise ValueError(f"neighbor_search must be one of {', '.join(map(repr, SEARCHES))}, got {neighbor_search!r}.")
    n = len(Z)
    Z = Z.astype(np.float64, copy=False)
    everyone = candidates is None or len(candidates) == n
    candidates = np.arange(n) if candidates is None or everyone else candidates
    own = np.full(n, -1)
    own[candidates] = np.arange(len(candidates))
    engine = replace(as_engine(engine), precision=None)
    problem = prepare(engine, Z if everyone else Z[candidates], n_queries=n, leave_one_out=everyone)
    # Departure 1 (ManifoldParzen): Exactly k neighbours count. Ties are in the order of the index.
    if neighbor_search == "exact":
        rows, left_out = (None, None) if everyone else (Z, own)
        return candidates[problem.at().nearest(k, rows, left_out).indices]
    wanted = min(k + 1 + _SPARE, len(candidates))
    found, lacking = _sorted(Z, candidates, own, _approximate(Z - robust_centre(Z), candidates, wanted), k)
    if len(lacking):
        found[lacking] = problem.at().nearest(k, Z[lacking], own[lacking]).indices
    return candidates[found]


def _sorted(
    Z: np.ndarray, candidates: np.ndarray, own: np.ndarray, found: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the k nearest of the neighbours found, without the rows themselves, ties by index; and the rows with fewer than k."""
    nearest = np.empty((len(Z), k), dtype=np.int64)
    lacking = np.zeros(len(Z), dtype=bool)
    batch = max(2**22 // (found.shape[1] * Z.shape[1]), 1)
    for start in range(0, len(Z), batch):
        rows = slice(start, min(start + batch, len(Z)))
        distances = ((Z[candidates[found[rows]]] - Z[rows, None, :]) ** 2).sum(axis=2)
        distances[(found[rows] == own[rows, None]) | (found[rows] < 0)] = np.inf
        order = np.lexsort((found[rows], distances), axis=1)[:, :k]
        nearest[rows] = np.take_along_axis(found[rows], order, axis=1)
        lacking[rows] = np.take_along_axis(distances, order, axis=1)[:, -1] == np.inf
    return nearest, np.flatnonzero(lacking)


def _approximate(Z: np.ndarray, candidates: np.ndarray, wanted: int) -> np.ndarray:
    """Return neighbours by pynndescent, with -1 if it found too few."""
    try:
        from pynndescent import NNDescent
    except ImportError as error:
        raise ImportError("neighbor_search='approximate' needs pynndescent: pip install 'vicinal[ann]'") from error
    index = NNDescent(Z[candidates], n_neighbors=wanted, random_state=0)
    found = np.full((len(Z), wanted), -1, dtype=np.int64)
    found[candidates] = index.neighbor_graph[0]
    others = np.setdiff1d(np.arange(len(Z)), candidates)
    if len(others):
        found[others] = index.query(Z[others], k=wanted)[0]
    return found
