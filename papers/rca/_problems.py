"""The optimisation problems of sections 3 to 5 of the paper, for a general optimiser and for RCA.

Each problem is a function of any square (or K x D) matrix A that is to be made small. Constraints of equality are kept by
scaling A, so that every matrix stands for an admitted one: no optimiser needs to know of them. With B = A'A and the
within-chunklet covariance C of Eq. 1,

    (1/N) sum ||A(x_ji - m_j)||^2 = tr(A C A').
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize


def scaled_to_constraint(A: NDArray[Any], C: NDArray[Any], bound: float = 1.0) -> NDArray[Any]:
    """Return a times the number that makes the mean squared distance within chunklets equal to the bound."""
    return A * np.sqrt(bound / np.trace(A @ C @ A.T))


def scaled_to_volume(A: NDArray[Any]) -> NDArray[Any]:
    """Return a times the number that makes |det A|, and so |det B|, one."""
    return A * np.exp(-np.linalg.slogdet(A)[1] / len(A))


def log_volume(A: NDArray[Any], C: NDArray[Any]) -> float:
    """Return Equations 2 to 4: minus log |A|, of A scaled to the constraint."""
    return -float(np.linalg.slogdet(scaled_to_constraint(A, C))[1])


def log_entropy(A: NDArray[Any], C: NDArray[Any], total: NDArray[Any]) -> float:
    """Return Equation 5: minus log |A S A'|, of A (K x D) scaled to the constraint."""
    A = scaled_to_constraint(A, C)
    return -float(np.linalg.slogdet(A @ total @ A.T)[1])


def within_distance(A: NDArray[Any], C: NDArray[Any]) -> float:
    """Return Equation 6: the mean squared distance within chunklets, of A scaled to |B| = 1."""
    A = scaled_to_volume(A)
    return float(np.trace(A @ C @ A.T))


def minus_log_likelihood(A: NDArray[Any], C: NDArray[Any]) -> float:
    """Return Equation 11 per point: tr(B C) - log |B|."""
    return float(np.trace(A @ C @ A.T) - 2.0 * np.linalg.slogdet(A)[1])


class Solution(NamedTuple):
    """What a general optimiser finds: the value, and B = A'A."""

    value: float
    metric: NDArray[Any]


def search(problem: Any, start: NDArray[Any], admitted: Any = lambda A: A) -> Solution:
    """Run L-BFGS with numerical gradients from a start; `admitted` scales the matrix that is found."""
    found: OptimizeResult = minimize(
        lambda flat: problem(flat.reshape(start.shape)),
        start.ravel(),
        method="L-BFGS-B",
        options={"maxiter": 2000, "maxfun": 200_000, "ftol": 1e-14, "gtol": 1e-9},
    )
    A = admitted(found.x.reshape(start.shape))
    return Solution(float(found.fun), A.T @ A)
