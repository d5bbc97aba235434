"""Each column of a row given the others, in a mixture whose components share a covariance or also have frames.

With P_j the inverse of a component's covariance, q the squared distance of a row x from its centre c and ``g = P_j (x - c)``,
the squared distance in all columns but k is ``q - g_k^2 / P_kk``, and under the component, column k given the others is
Gaussian with mean ``x_k - g_k / P_kk`` and variance ``1 / P_kk``.  All columns of m rows therefore cost O(m n d) if the
components share P, after O(n d^2), and O(m n d^2) if they do not.
"""

import copy
from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp, ndtr

from vicinal._engine import as_engine, robust_centre
from vicinal._mixtures.components import LOG_2PI
from vicinal._mixtures.local_frame_mixture import LocalFrameMixture
from vicinal._mixtures.shared_mixture import SharedMixture

# For squared distances above this, q - g_k^2 / P_kk has too few digits; such rows are conditioned one by one.
_LARGEST_SQUARE = 1e8
_NEGLIGIBLE = 1e-7  # components with a smaller share do not change a quantile noticeably
_HALVINGS = 28


class Conditionals(NamedTuple):
    """``surprises`` (m, d) = -log p(x_k | the other columns), and ``quantiles`` (s, m, d) of the same densities."""

    surprises: np.ndarray
    quantiles: np.ndarray


class _Block(NamedTuple):
    """Some rows: their scores (m, n), and for column k the pulls g (m, n) and the diagonals P_kk, one or (n,)."""

    rows: slice
    scores: np.ndarray
    column: Callable[[int], tuple[np.ndarray, Any]]


def column_conditionals(
    mixture: SharedMixture | LocalFrameMixture,
    X: np.ndarray,
    left_out: np.ndarray | None = None,
    shares: tuple[float, ...] = (),
) -> Conditionals:
    """Condition each column of each row on the row's other columns.

    Parameters
    ----------
    mixture : SharedMixture or LocalFrameMixture
    X : array of shape (m, d)
    left_out : integer array of shape (m,), optional
        The component to leave out for each row.
    shares : tuple of float
        The probabilities of the quantiles; by default none are computed.
    """
    m, d = X.shape
    found = Conditionals(np.empty((m, d)), np.empty((len(shares), m, d)))
    blocks = _shared_blocks if isinstance(mixture, SharedMixture) else _frame_blocks
    for rows, scores, column in blocks(mixture, X, left_out):
        total = logsumexp(scores, axis=1)
        for k in range(d):
            pull, precision = column(k)
            others = scores + 0.5 * pull**2 / precision - 0.5 * np.log(precision)
            known = logsumexp(others, axis=1)
            found.surprises[rows, k] = known - total + 0.5 * LOG_2PI
            if shares:
                means = X[rows, k, None] - pull / precision
                weights = np.exp(others - known[:, None])
                found.quantiles[:, rows, k] = _quantiles(means, weights, precision**-0.5, shares)
        far = np.flatnonzero(scores.max(axis=1) < -_LARGEST_SQUARE)
        for i in np.arange(m)[rows][far]:
            _condition_one(mixture, X, i, left_out, shares, found)
    return found


def _row_blocks(mixture: Any, m: int) -> Iterator[slice]:
    """Return some rows at a time, within the engine's memory."""
    step = max(as_engine(mixture.engine).memory_bytes // (8 * 8 * len(mixture.centres)), 1)
    return (slice(start, start + step) for start in range(0, m, step))


def _without_own(scores: np.ndarray, left_out: np.ndarray | None, rows: slice) -> np.ndarray:
    if left_out is not None:
        scores[np.arange(len(scores)), left_out[rows]] = -np.inf
    return scores


def _shared_blocks(mixture: Any, X: np.ndarray, left_out: np.ndarray | None) -> Iterator[_Block]:
    """Yield scores ``log w_j - q_ij / 2`` of components that share P."""
    units = mixture.kernel_units
    units = np.diag(units) if units.ndim == 1 else units
    precision = units.T @ units
    centre = robust_centre(mixture.centres)
    centres, queries = mixture.centres.astype(np.float64) - centre, np.asarray(X, dtype=np.float64) - centre
    images, mine = centres @ units.T, queries @ units.T
    squares, theirs, own = np.square(images).sum(axis=1), centres @ precision, queries @ precision
    for rows in _row_blocks(mixture, len(X)):
        distances = squares + np.square(mine[rows]).sum(axis=1)[:, None] - 2.0 * mine[rows] @ images.T
        scores = _without_own(mixture.log_weights - 0.5 * np.maximum(distances, 0.0), left_out, rows)

        def column(k: int, rows: slice = rows) -> tuple[np.ndarray, Any]:
            return own[rows, k, None] - theirs[None, :, k], precision[k, k]

        yield _Block(rows, scores, column)


def _frame_blocks(mixture: Any, X: np.ndarray, left_out: np.ndarray | None) -> Iterator[_Block]:
    """Yield scores with the determinants of components that have frames.

    ``P_j = A' (I - sum_l g_l V_l V_l') A`` with A = L^-1.
    """
    units, frames, variances = mixture.kernel_units, mixture.frames, mixture.variances
    gains, log_dets = variances / (1.0 + variances), 0.5 * np.log1p(variances).sum(axis=0)
    centres, queries = mixture._as_placed(mixture.centres), mixture._as_placed(np.asarray(X, dtype=np.float64))
    squares, offsets = np.square(centres).sum(axis=1), np.einsum("lnk,nk->ln", frames, centres)
    for rows in _row_blocks(mixture, len(X)):
        mine = queries[rows]
        distances = squares + np.square(mine).sum(axis=1)[:, None] - 2.0 * mine @ centres.T
        for frame, offset, gain in zip(frames, offsets, gains, strict=True):
            distances -= gain * (mine @ frame.T - offset) ** 2
        scores = mixture.log_weights - log_dets - 0.5 * np.maximum(distances, 0.0)

        def column(k: int, mine: np.ndarray = mine) -> tuple[np.ndarray, Any]:
            axis = units[:, k]
            slopes = axis - np.einsum("ln,lnk->nk", gains * (frames @ axis), frames)  # row k of P_j, times L
            return mine @ slopes.T - np.einsum("nk,nk->n", slopes, centres), slopes @ axis

        yield _Block(rows, _without_own(scores, left_out, rows), column)


def _condition_one(
    mixture: Any, X: np.ndarray, i: int, left_out: np.ndarray | None, shares: tuple[float, ...], found: Any
) -> None:
    """Condition one row by the mixture's own conditionals, for rows so far away that the fast formula loses all digits."""
    rest = copy.copy(mixture)
    rest.log_weights, rest.feature_names = mixture.log_weights.copy(), None
    if left_out is not None:
        rest.log_weights[left_out[i]] = -np.inf
        rest.log_weights -= logsumexp(rest.log_weights)
    for k in range(X.shape[1]):
        given: dict[Hashable, float] = {j: X[i, j] for j in range(X.shape[1]) if j != k}
        one: Any = rest.conditional(given) if given else rest
        found.surprises[i, k] = -one.score_samples(X[i : i + 1, k : k + 1])[0]
        if shares:
            means, weights = one.centres[None, :, 0].astype(np.float64), np.exp(one.log_weights)[None]
            variances = one.covariance[0, 0] if isinstance(one, SharedMixture) else one.covariances[:, 0, 0]
            found.quantiles[:, i, k] = _quantiles(means, weights, np.sqrt(variances), shares)[:, 0]


def _quantiles(means: np.ndarray, weights: np.ndarray, sd: Any, shares: tuple[float, ...]) -> np.ndarray:
    """Return quantiles (s, m) of the mixtures of Gaussians with these means (m, n), weights and standard deviations, one or (n,)."""
    most = int((weights > _NEGLIGIBLE).sum(axis=1).max())
    if most < weights.shape[1]:
        kept = np.argpartition(-weights, most - 1, axis=1)[:, :most]
        means, weights = np.take_along_axis(means, kept, 1), np.take_along_axis(weights, kept, 1)
        sd = sd[kept] if np.ndim(sd) else sd
    weights = weights / weights.sum(axis=1, keepdims=True)
    counted = np.where(weights > _NEGLIGIBLE, means, np.nan)
    answer = np.empty((len(shares), len(means)))
    for s, share in enumerate(shares):
        low, high = np.nanmin(counted - 9.0 * sd, axis=1), np.nanmax(counted + 9.0 * sd, axis=1)
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            below = (weights * ndtr((middle[:, None] - means) / sd)).sum(axis=1) < share
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        answer[s] = 0.5 * (low + high)
    return answer
