"""The true density of the noisy spiral (sec. 4.1)."""

from __future__ import annotations

import numpy as np

_STEP, _FIRST, _LAST = 0.04, 3.0, 15.0  # x = 0.04 t sin t, y = 0.04 t cos t, t from 3 to 15


def spiral_log_density(X: np.ndarray, noise: float = 0.01) -> np.ndarray:
    r"""Return the log-density of rows near `vicinal.datasets.make_spiral` or far from it, by quadrature over its parameter.

    .. math:: \log p(x) = \log \frac{1}{12} \int_3^{15} N\bigl(x;\, c(t), \mathrm{noise}^2 I\bigr)\, dt

    The interval is halved where the exponent changes by more than 3 within a piece, pieces more than 50 nats below the best are
    dropped, and the rest is integrated by Gauss-Legendre with 12 nodes. This takes a few hundred evaluations per point.
    """
    blocks = np.array_split(X, -(-len(X) // 1024))
    return np.concatenate([_log_density(block, noise) for block in blocks])


def _log_density(X: np.ndarray, noise: float) -> np.ndarray:
    n = len(X)
    query, left, right = np.arange(n), np.full(n, _FIRST), np.full(n, _LAST)
    best = np.full(n, np.inf)  # smallest exponent seen, by query
    done: list[tuple] = []
    # Each pass halves the pieces that are not smooth yet; after 48 passes, they are as short as the rounding error of t.
    for level in range(48):
        middle, half = (left + right) / 2, (right - left) / 2
        distance = np.linalg.norm(X[query] - curve(middle), axis=1) / noise
        reach = _STEP * np.sqrt(1 + right**2) * half / noise  # the curve's speed is largest at the right end
        np.minimum.at(best, query, distance**2 / 2)
        nearest = np.maximum(distance - reach, 0) ** 2 / 2
        rounding = 2e-15 * best[query]  # the accuracy of exponents far away
        alive = nearest <= best[query] + 50 + rounding
        smooth = alive & ((distance + reach) ** 2 / 2 - nearest <= 3 + rounding)
        if level == 47:
            smooth = alive
        done.append((query[smooth], middle[smooth], half[smooth]))
        split = alive & ~smooth
        if not split.any():
            break
        query = np.repeat(query[split], 2)
        left, right = (
            np.column_stack([left[split], middle[split]]).ravel(),
            np.column_stack([middle[split], right[split]]).ravel(),
        )
    query, middle, half = (np.concatenate(parts) for parts in zip(*done, strict=True))
    nodes, weights = np.polynomial.legendre.leggauss(12)
    t = middle[:, None] + half[:, None] * nodes
    offset = (X[query, None] - curve(t)) / noise
    exponent = (offset**2).sum(axis=2) / 2
    # The sum is shifted by its smallest exponent, so that rounding cannot remove the largest term.
    lowest = np.full(n, np.inf)
    np.minimum.at(lowest, query, exponent.min(axis=1))
    terms = weights * half[:, None] * np.exp(lowest[query, None] - exponent)
    total = np.bincount(query, weights=terms.sum(axis=1), minlength=n)
    return np.log(total) - lowest - np.log(2 * np.pi * noise**2 * (_LAST - _FIRST))


def curve(t: np.ndarray) -> np.ndarray:
    """Return points of the spiral without noise."""
    return _STEP * t[..., None] * np.stack([np.sin(t), np.cos(t)], axis=-1)
