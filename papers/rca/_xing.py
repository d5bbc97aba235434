"""The algorithm of Xing et al. (2002) as they published it: gradient ascent with alternating projections.

Their problem is Eq. 8 of the RCA paper, turned round: the sum of distances of pairs that differ is to be large, and the
sum of squared distances of pairs alike at most t. Every step goes along the gradient of the first, made orthogonal to that of
the second, and then projects, in turns, on the half-space of the constraint and on the cone of positive semidefinite
matrices, until both hold. Start, step sizes, tolerances and the number of steps are those of their code; `MMC` solves the
same problem to a proven gap.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

N_STEPS = 100
_TOLERANCE = 0.01  # of the step, relative to the matrix, and of the constraint


class XingFit(NamedTuple):
    """Where the algorithm ended.

    Attributes
    ----------
    components : rows A with M = A'A.
    n_steps, n_accepted, n_failed : steps in all, those that were kept, and those whose projections did not end.
    n_projections : rounds of projections over all steps.
    converged : whether the last step was small and its projections had ended.
    """

    components: NDArray[Any]
    n_steps: int
    n_accepted: int
    n_failed: int
    n_projections: int
    converged: bool


def xing_metric(alike: NDArray[Any], apart: NDArray[Any], n_rounds: int = 1000) -> XingFit:
    """Return the metric from differences of rows.

    Parameters
    ----------
    alike, apart : arrays of shape (p, d) and (q, d)
        Differences x_i - x_j of pairs alike and of pairs that differ.
    n_rounds : int
        Rounds of projections per step at most; the authors leave the number to the user.
    """
    scatter = alike.T @ alike
    kept = M = 0.1 * np.eye(len(scatter))
    bound = np.vdot(scatter, M) / 100
    _, gradient = _sum_of_distances(apart, M)
    direction = _orthogonal(scatter, gradient)  # as printed in the code: of the first step the other way round
    step, n_failed, n_accepted, n_projections = 0.1, 0, 0, 0
    for n_steps in range(1, N_STEPS + 1):
        M, rounds, ended = _project(M, scatter, bound, n_rounds)
        n_projections += rounds
        n_failed += not ended
        objective, gradient = _sum_of_distances(apart, M)
        if ended and (n_steps == 1 or objective > _sum_of_distances(apart, kept)[0]):
            step, kept, n_accepted = 1.05 * step, M, n_accepted + 1
            direction = _orthogonal(gradient, scatter)
            M = M + step * direction
        else:
            step /= 2
            M = kept + step * direction
        small = step < _TOLERANCE * np.linalg.norm(kept)
        if small:
            break
    values, vectors = np.linalg.eigh(kept)
    positive = values > 0
    components = (vectors[:, positive] * np.sqrt(values[positive])).T
    return XingFit(components, n_steps, n_accepted, n_failed, n_projections, bool(small and ended))


def _project(M: NDArray[Any], scatter: NDArray[Any], bound: float, n_rounds: int) -> tuple[NDArray[Any], int, bool]:
    """Alternate projections on the half-space <scatter, M> <= bound and on the cone, until the bound holds."""
    square = np.vdot(scatter, scatter)
    for rounds in range(1, n_rounds + 1):
        excess = np.vdot(scatter, M) - bound
        if excess > 0:
            M = M - excess / square * scatter
        values, vectors = np.linalg.eigh((M + M.T) / 2)
        M = (vectors * np.maximum(values, 0)) @ vectors.T
        if np.vdot(scatter, M) - bound <= _TOLERANCE * bound:
            return M, rounds, True
    return M, n_rounds, False


def _sum_of_distances(apart: NDArray[Any], M: NDArray[Any]) -> tuple[float, NDArray[Any]]:
    """Return the sum over pairs of sqrt(h'Mh) and its gradient, of which only the direction matters."""
    distances = np.sqrt(np.maximum(np.einsum("ij,ij->i", apart @ M, apart), 0.0))
    weights = np.where(distances > 0, 1.0 / np.where(distances > 0, distances, 1.0), 0.0)
    return float(distances.sum()), (apart * weights[:, None]).T @ apart


def _orthogonal(gradient: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    """Return the part of a gradient that is orthogonal to another, of length one."""
    other = other / np.linalg.norm(other)
    rest = gradient - np.vdot(gradient, other) * other
    return rest / np.linalg.norm(rest)
