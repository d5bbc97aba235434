"""The objectives of `objectives.py` for a few hundred rows: all pairs in one matrix, a pass in about ten NumPy calls.

A pass over 100 rows takes 0.1 ms, where the engine's blocks and general sums take 1 ms, so that the fit of a small table is about as fast as
scikit-learn's.  Distances come from matrix products if these are accurate, else from differences.  One kind of pass is left to the engine,
whose results keep all digits there: rows whose class mates have underflowed when the objective is the likelihood, or whose images overflow.
"""

import numpy as np
from scipy.spatial.distance import cdist

from vicinal._engine import products_are_accurate
from vicinal._nca.objectives import Evaluation, mean_term
from vicinal._rows import log_weights

# Smaller scores below the largest of a row count as this one: NumPy's exp is ten times slower if it underflows.
_LEAST_SCORE = -700.0
# A smaller share of the class mates may have lost digits to underflow.
_LEAST_SHARE = 1e-200


class PairMatrix:
    """All pairs of some rows.

    Parameters
    ----------
    X : array of shape (n, D), about its centre
    agreement : array of shape (n, n)
        ``m_ij``; the diagonal does not matter.
    weight : array of shape (n,), positive, or None
        The importance of a row as a term and as a neighbour.
    """

    def __init__(self, X: np.ndarray, agreement: np.ndarray, weight: np.ndarray | None) -> None:
        n = len(X)
        self._X = X.astype(np.float64, copy=False)
        self._agreement, self._weight, self._log_weights = agreement, weight, log_weights(weight)
        self._share = np.full(n, 1.0 / n) if weight is None else weight / weight.sum()
        self._kernel, self._scores = np.empty((n, n)), np.empty((n, n))  # written in every pass

    def objective(self, A: np.ndarray, kind: str) -> Evaluation | None:
        """Return Eq. 3 or 6 per row and its gradient by A (Eq. 5 or 7); None if the engine has to compute them."""
        Z = self._images(A)
        kernel, totals = self._softmax(Z, None)
        agreement = np.einsum("ij,ij->i", kernel, self._agreement) / totals  # Eq. 2
        if not _is_accurate(agreement, kind):
            return None
        slope = self._share / totals
        if kind == "likelihood":
            slope /= agreement
        value = mean_term(np.log(agreement) if kind == "likelihood" else agreement, self._weight)
        # The signed weights v_ij = w_i p_ij (a_i - m_ij), divided by a_i in Eq. 7, are slope_i pulls_ij; their rows sum to zero.
        pulls = np.subtract(agreement[:, None], self._agreement, out=self._scores)
        pulls *= kernel
        pull = (slope @ pulls)[:, None] * Z - pulls.T @ (slope[:, None] * Z) - slope[:, None] * (pulls @ Z)
        gradient = 2.0 * (pull.T @ self._X if A.ndim == 2 else np.einsum("ij,ij->j", pull, self._X))
        return Evaluation(value, gradient)

    def value(self, A: np.ndarray, kind: str, queries: np.ndarray) -> float | None:
        """Return Eq. 3 or 6 per row for some of the rows; None if the engine has to compute it."""
        Z = self._images(A)
        kernel, totals = self._softmax(Z, queries)
        agreement = np.einsum("ij,ij->i", kernel, self._agreement[queries]) / totals
        if not _is_accurate(agreement, kind):
            return None
        weight = None if self._weight is None else self._weight[queries]
        return mean_term(np.log(agreement) if kind == "likelihood" else agreement, weight)

    def perplexities(self, A: np.ndarray) -> np.ndarray:
        """Return the effective number of neighbours of each row."""
        kernel, totals = self._softmax(self._images(A), None)
        scores = self._scores
        scores.flat[:: len(scores) + 1] = 0.0
        return np.exp(np.log(totals) - np.einsum("ij,ij->i", kernel, scores) / totals)

    def _images(self, A: np.ndarray) -> np.ndarray:
        return self._X @ A.T if A.ndim == 2 else self._X * A

    def _softmax(self, Z: np.ndarray, queries: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return Eq. 1 for some rows or all, as ``exp(s_ij - max_j s_ij)`` and the sums over j by which it is divided."""
        rows = Z if queries is None else Z[queries]
        squares = np.einsum("ij,ij->i", Z, Z)
        farthest = 4.0 * squares.max()
        scores, kernel = self._scores[: len(rows)], self._kernel[: len(rows)]
        if products_are_accurate(farthest, np.float64):  # without the square of the query, which cancels
            offsets = -squares if self._log_weights is None else self._log_weights - squares
            np.matmul(np.column_stack([2.0 * rows, np.ones(len(rows))]), np.column_stack([Z, offsets]).T, out=scores)
        else:
            np.subtract(
                0.0 if self._log_weights is None else self._log_weights, cdist(rows, Z, "sqeuclidean"), out=scores
            )
        own_pairs = np.arange(len(rows)), np.arange(len(Z)) if queries is None else queries
        scores[own_pairs] = -np.inf
        with np.errstate(invalid="ignore"):  # if squares of images overflow
            scores -= scores.max(axis=1)[:, None]
        if farthest > -_LEAST_SCORE or self._log_weights is not None:
            np.maximum(scores, _LEAST_SCORE, out=scores)
        np.exp(scores, out=kernel)
        kernel[own_pairs] = 0.0
        return kernel, kernel @ np.ones(len(Z))


def _is_accurate(agreement: np.ndarray, kind: str) -> bool:
    """Return whether shares have all their digits, as this objective needs them."""
    least = agreement.min()
    return bool(least >= _LEAST_SHARE if kind == "likelihood" else not np.isnan(least))
