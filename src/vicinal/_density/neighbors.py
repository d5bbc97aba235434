"""Nearest neighbours among the training rows: exactly k, the row itself left out by its index."""

from dataclasses import replace

import numpy as np

from vicinal._engine import Engine, as_engine, prepare


def nearest_neighbors(
    Z: np.ndarray,
    k: int,
    candidates: np.ndarray | None = None,
    *,
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
    engine : None, str or Engine
        Its precision is ignored: neighbours are decided in float64.
    """
    n = len(Z)
    Z = Z.astype(np.float64, copy=False)
    everyone = candidates is None or len(candidates) == n
    candidates = np.arange(n) if candidates is None or everyone else candidates
    own = np.full(n, -1)
    own[candidates] = np.arange(len(candidates))
    engine = replace(as_engine(engine), precision=None)
    problem = prepare(engine, Z if everyone else Z[candidates], n_queries=n, leave_one_out=everyone)
    # Departure 1 (ManifoldParzen): Exactly k neighbours count. Ties are in the order of the index.
    rows, left_out = (None, None) if everyone else (Z, own)
    return candidates[problem.at().nearest(k, rows, left_out).indices]
