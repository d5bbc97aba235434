"""Mean-shift steps for components with different covariances: one linear system per row."""

from collections.abc import Callable

import numpy as np

from vicinal._engine import Placement, as_engine, available_threads, in_order, one_blas_thread
from vicinal._mixtures.base import MixtureBase

_NEGLIGIBLE = 1e-12  # smaller shares do not change a step noticeably


def neighbor_steps(
    mixture: MixtureBase,
    placed: Placement,
    X: np.ndarray,
    step_of_row: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray],
) -> np.ndarray:
    """Return the step of each row of X from the components that have a share in it.

    Parameters
    ----------
    mixture : MixtureBase
    placed : Placement
        The placement of its components.
    X : float64 array of shape (m, D)
    step_of_row : callable
        ``step_of_row(near, p, x)`` returns the step of the row x from the components `near` with the shares p.
    """
    steps = np.zeros_like(X)
    threads = available_threads(as_engine(mixture.engine).threads)
    for query, point, shares in placed.neighbors_above(_NEGLIGIBLE, X):
        starts = np.flatnonzero(np.append(True, query[1:] != query[:-1]))
        ends = np.append(starts[1:], len(query))

        def work(
            some: slice, query: np.ndarray = query, point: np.ndarray = point, shares: np.ndarray = shares
        ) -> np.ndarray:
            return step_of_row(point[some], shares[some], X[query[some.start]])

        with one_blas_thread():
            steps[query[starts]] = list(in_order(work, map(slice, starts, ends), threads))
    return steps
