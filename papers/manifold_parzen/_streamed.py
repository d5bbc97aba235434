"""Manifold Parzen windows for many numbers of directions and noises at once, without keeping the directions.

With k in the hundreds the directions of 5,400 pictures fill tens of gigabytes. Here each kernel is made, scored and forgotten: the algorithm of the
paper, one kernel after another, the same numbers as `ManifoldParzen`.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from joblib import cpu_count
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits

from papers.arrays import back, placed


def log_densities(
    train: np.ndarray,
    rows: np.ndarray,
    n_neighbors: int,
    directions: Sequence[int],
    noises: np.ndarray,
    device: str | None = None,
) -> np.ndarray:
    """Return the log-density of rows for each number of directions and each noise; shape (directions, noises, rows).

    Parameters
    ----------
    train, rows : arrays of shapes (l, n) and (m, n)
    n_neighbors : int
        k.
    directions : sequence of int
        Numbers of directions d, in ascending order, at most k.
    noises : array
        Variances sigma^2.
    device : str, optional
        A torch device for the products and eigenvalues; None is NumPy, in as many threads as there are cores.
    """
    neighbors = (
        NearestNeighbors(n_neighbors=n_neighbors, algorithm="brute").fit(train).kneighbors(return_distance=False)
    )
    threads = cpu_count() if device is None else 1
    train, rows, noises = (placed(array, device) for array in (train, rows, noises))
    xp = array_namespace(train)

    def work(part: np.ndarray) -> Any:
        total = None
        for i in part:
            logs = _kernel(train[i], train[neighbors[i].tolist()], rows, directions, noises)
            total = logs if total is None else xp.logaddexp(total, logs)
        return total

    with threadpool_limits(1), ThreadPoolExecutor(threads) as pool:
        found = reduce(xp.logaddexp, pool.map(work, np.array_split(np.arange(len(train)), 4 * threads)))
    return back(found) - np.log(len(train))


def _kernel(center: Any, near: Any, rows: Any, directions: Sequence[int], noises: Any) -> Any:
    """Return the log-density of rows under one kernel, for each number of directions and each noise."""
    xp, n = array_namespace(rows), len(center)
    axes, variances = principal_directions(near - center, directions[-1])
    difference = rows - center
    squares = (difference @ axes.T) ** 2
    length = xp.sum(difference**2, axis=1)
    logs = []
    for d in directions:
        scale = variances[:d, None] + noises  # (d, noises)
        r = n * np.log(2 * np.pi) + xp.sum(xp.log(scale), axis=0) + (n - len(scale)) * xp.log(noises)
        q = length[:, None] / noises + squares[:, :d] @ (1 / scale - 1 / noises)
        logs.append(-0.5 * (r + q).T)
    return xp.stack(logs)


def principal_directions(differences: Any, count: int) -> tuple[Any, Any]:
    """Return the leading directions of the scatter about zero and the variances along them, fewer where its rank is
    lower."""
    xp, k = array_namespace(differences), len(differences)
    used = xp.any(differences != 0, axis=0)  # the margins of a picture are black
    part = differences[:, used]
    few = k <= part.shape[1]
    values, vectors = xp.linalg.eigh(part @ part.T if few else part.T @ part)
    values, vectors = xp.flip(values, axis=0), xp.flip(vectors, axis=1)
    kept = min(count, int(xp.sum(values > 1e-10 * values[0])))
    values, vectors = values[:kept], vectors[:, :kept]
    axes = xp.zeros_like(differences[:1]) + xp.zeros_like(values)[:, None]
    axes[:, used] = (part.T @ vectors / xp.sqrt(values)).T if few else vectors.T
    return axes, values / k
