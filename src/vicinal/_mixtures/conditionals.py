"""Each column of a row given the others, in a mixture with one shared covariance: surprise, median and interval.

With P the inverse of the covariance, q the squared distance of a row x from a centre c and ``g = P (x - c)``, the squared
distance in all columns but k is ``q - g_k^2 / P_kk``, and the component says of column k, given the others, that it is
Gaussian of mean ``x_k - g_k / P_kk`` and variance ``1 / P_kk``.  So all columns of m rows cost O(m n d), after O(n d^2).
"""

from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp, ndtr

from vicinal._engine import as_engine, robust_centre
from vicinal._mixtures.components import LOG_2PI
from vicinal._mixtures.shared_mixture import SharedMixture

# Squared distances above this leave q - g_k^2 / P_kk too few digits: such rows are conditioned one by one.
_LARGEST_SQUARE = 1e8
_NEGLIGIBLE = 1e-7  # components of a smaller share move no quantile that anyone reads
_HALVINGS = 28


class Conditionals(NamedTuple):
    """``surprises`` (m, d) = -log p(x_k | the other columns), and ``quantiles`` (s, m, d) of the same densities."""

    surprises: np.ndarray
    quantiles: np.ndarray


def column_conditionals(
    mixture: SharedMixture, X: np.ndarray, left_out: np.ndarray | None = None, shares: tuple[float, ...] = ()
) -> Conditionals:
    """Condition each column of each row on the row's other columns.

    Parameters
    ----------
    mixture : SharedMixture
    X : array of shape (m, d)
    left_out : integer array of shape (m,), optional
        The component that each row must not see.
    shares : tuple of float
        Of the quantiles; none are computed by default.
    """
    m, d = X.shape
    found = Conditionals(np.empty((m, d)), np.empty((len(shares), m, d)))
    for rows, scores, pulls, precisions in _blocks(mixture, X, left_out):
        total = logsumexp(scores, axis=1)
        for k in range(d):
            pull = pulls[0][:, k, None] - pulls[1][None, :, k]
            others = scores + 0.5 * pull**2 / precisions[k]
            known = logsumexp(others, axis=1)
            found.surprises[rows, k] = known - total + 0.5 * (LOG_2PI - np.log(precisions[k]))
            if shares:
                means = X[rows, k, None] - pull / precisions[k]
                weights = np.exp(others - known[:, None])
                found.quantiles[:, rows, k] = _quantiles(means, weights, precisions[k] ** -0.5, shares)
        far = np.flatnonzero(scores.max(axis=1) < -_LARGEST_SQUARE)
        for i in np.arange(m)[rows][far]:
            _condition_one(mixture, X, i, left_out, shares, found)
    return found


def _blocks(
    mixture: SharedMixture, X: np.ndarray, left_out: np.ndarray | None
) -> Iterator[tuple[slice, np.ndarray, tuple[np.ndarray, np.ndarray], np.ndarray]]:
    """Some rows at a time: the scores ``log w_j - q_ij / 2``, ``P x`` and ``P c``, and the diagonal of P."""
    units = mixture.kernel_units
    units = np.diag(units) if units.ndim == 1 else units
    precision = units.T @ units
    centre = robust_centre(mixture.centres)
    centres, queries = mixture.centres.astype(np.float64) - centre, np.asarray(X, dtype=np.float64) - centre
    images, mine = centres @ units.T, queries @ units.T
    squares = np.square(images).sum(axis=1)
    step = max(as_engine(mixture.engine).memory_bytes // (8 * 8 * len(centres)), 1)
    for start in range(0, len(X), step):
        rows = slice(start, start + step)
        distances = squares + np.square(mine[rows]).sum(axis=1)[:, None] - 2.0 * mine[rows] @ images.T
        scores = mixture.log_weights - 0.5 * np.maximum(distances, 0.0)
        if left_out is not None:
            scores[np.arange(len(scores)), left_out[rows]] = -np.inf
        yield rows, scores, (queries[rows] @ precision, centres @ precision), np.diag(precision)


def _condition_one(
    mixture: SharedMixture, X: np.ndarray, i: int, left_out: np.ndarray | None, shares: tuple[float, ...], found: Any
) -> None:
    """One row, by the mixture's own conditionals: for rows so far away that the short way has no digits left."""
    log_weights = mixture.log_weights.copy()
    if left_out is not None:
        log_weights[left_out[i]] = -np.inf
    rest = SharedMixture(mixture.centres, mixture.covariance, log_weights, mixture.engine)
    for k in range(X.shape[1]):
        given: dict[Hashable, float] = {j: X[i, j] for j in range(X.shape[1]) if j != k}
        one: Any = rest.conditional(given) if given else rest
        found.surprises[i, k] = -one.score_samples(X[i : i + 1, k : k + 1])[0]
        if shares:
            means, weights = one.centres[None, :, 0].astype(np.float64), np.exp(one.log_weights)[None]
            found.quantiles[:, i, k] = _quantiles(means, weights, np.sqrt(one.covariance[0, 0]), shares)[:, 0]


def _quantiles(means: np.ndarray, weights: np.ndarray, sd: float, shares: tuple[float, ...]) -> np.ndarray:
    """Quantiles (s, m) of the mixtures of Gaussians with these means (m, n), weights and one standard deviation."""
    most = int((weights > _NEGLIGIBLE).sum(axis=1).max())
    if most < weights.shape[1]:
        kept = np.argpartition(-weights, most - 1, axis=1)[:, :most]
        means, weights = np.take_along_axis(means, kept, 1), np.take_along_axis(weights, kept, 1)
    weights = weights / weights.sum(axis=1, keepdims=True)
    counted = np.where(weights > _NEGLIGIBLE, means, np.nan)
    answer = np.empty((len(shares), len(means)))
    for s, share in enumerate(shares):
        low, high = np.nanmin(counted, axis=1) - 9.0 * sd, np.nanmax(counted, axis=1) + 9.0 * sd
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            below = (weights * ndtr((middle[:, None] - means) / sd)).sum(axis=1) < share
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        answer[s] = 0.5 * (low + high)
    return answer
