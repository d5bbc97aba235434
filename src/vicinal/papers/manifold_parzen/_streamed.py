"""Manifold Parzen windows for many numbers of directions and noises at once, without keeping the directions.

With k in the hundreds the directions of 5,400 pictures fill tens of gigabytes. Here each kernel is made, scored and forgotten: the algorithm of the
paper, one kernel after another, the same numbers as `ManifoldParzen`.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import reduce

import numpy as np
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits

from vicinal._engine import available_threads


def log_densities(train, rows, n_neighbors, directions, noises):
    """The log-density of rows for each number of directions and each noise; shape (directions, noises, rows).

    Parameters
    ----------
    train, rows : arrays of shapes (l, n) and (m, n)
    n_neighbors : int
        k.
    directions : sequence of int
        Numbers of directions d, in ascending order, at most k.
    noises : array
        Variances sigma^2.
    """
    neighbors = (
        NearestNeighbors(n_neighbors=n_neighbors, algorithm="brute").fit(train).kneighbors(return_distance=False)
    )
    parts = np.array_split(np.arange(len(train)), 4 * available_threads())

    def work(part):
        total = np.full((len(directions), len(noises), len(rows)), -np.inf)
        for i in part:
            logs = _kernel(train[i], train[neighbors[i]], rows, directions, noises)
            np.logaddexp(total, logs, out=total)
        return total

    with threadpool_limits(1), ThreadPoolExecutor(available_threads()) as pool:
        return reduce(np.logaddexp, pool.map(work, parts)) - np.log(len(train))


def _kernel(center, near, rows, directions, noises):
    """The log-density of rows under one kernel, for each number of directions and each noise."""
    n = len(center)
    axes, variances = principal_directions(near - center, directions[-1])
    difference = rows - center
    squares = (difference @ axes.T) ** 2
    length = (difference**2).sum(axis=1)
    logs = np.empty((len(directions), len(noises), len(rows)))
    for place, d in enumerate(directions):
        scale = variances[:d, None] + noises  # (d, noises)
        r = n * np.log(2 * np.pi) + np.log(scale).sum(axis=0) + (n - len(scale)) * np.log(noises)
        q = length[:, None] / noises + squares[:, :d] @ (1 / scale - 1 / noises)
        logs[place] = -0.5 * (r + q).T
    return logs


def principal_directions(differences, count):
    """The leading directions of the scatter about zero and the variances along them, fewer where its rank is lower."""
    k = len(differences)
    used = np.flatnonzero(differences.any(axis=0))  # the margins of a picture are black
    part = differences[:, used]
    if k <= len(used):
        values, vectors = np.linalg.eigh(part @ part.T)
    else:
        values, vectors = np.linalg.eigh(part.T @ part)
    order = np.argsort(-values)[:count]
    order = order[values[order] > 1e-10 * values.max(initial=0.0)]
    values, vectors = values[order], vectors[:, order]
    axes = np.zeros((len(order), differences.shape[1]))
    axes[:, used] = (part.T @ vectors / np.sqrt(values)).T if k <= len(used) else vectors.T
    return axes, values / k
