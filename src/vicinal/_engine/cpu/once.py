"""Sums of points against themselves: ``K_ij = exp(-|z_i - z_j|^2 / 2)`` is symmetric, so half of the pairs are enough.

With point weights b, the sums of a row are ``Z = K b``, one half sweep.  For the weights ``W_ij = r_i b_j K_ij / Z_i``
of a softmax with row weights r,

    W + W' = b_i b_j K_ij (f_i + f_j)    with    f = r / (b Z),

so a second half sweep gives ``(W + W') V``.  A scatter is ``V' diag(m) V - V' (W + W') V`` with ``m = (W + W') 1``, and
needs that product only for the rows of each pair, not for its columns: ``n^2`` exponentials and ``1.5 n^2 k``
multiply-adds in total.  Between two sweeps, exponentials that were computed by matrix products are kept if they fit into
the memory.

Rows are shifted by the largest score that they could have, less what typical rows leave unused (`CompiledPairs.raise_scores`).
A row without any near neighbour underflows under that shift. It is returned as underflowed, and the caller computes it again
with its own maximum.
"""

from typing import NamedTuple

import numpy as np

from vicinal._engine import tuning
from vicinal._engine.cpu import product_kernels
from vicinal._engine.cpu.once_sweeps import FusedSweep, Mates, ProductSweep, WeightedValues
from vicinal._engine.cpu.pairs import CompiledPairs, unpack
from vicinal._engine.work.blocks import Blocks


class HalfSums(NamedTuple):
    """``log_sums`` (n,), ``sums`` (n, v + 1) = K V / Z with a last column of ones, and the rows that underflowed."""

    log_sums: np.ndarray
    sums: np.ndarray
    underflowed: np.ndarray


class HalfScatter(NamedTuple):
    """``log_sums`` (n,), ``scatter`` (v, v), its trace before it cancels, and the rows that underflowed."""

    log_sums: np.ndarray
    scatter: np.ndarray
    size: float
    underflowed: np.ndarray


class HalfSquares(NamedTuple):
    """``log_sums`` (n,), ``squares`` (n,) = sum_j p_ij |z_i - z_j|^2, and the rows that underflowed, with squares of 0."""

    log_sums: np.ndarray
    squares: np.ndarray
    underflowed: np.ndarray


class HalfPull(NamedTuple):
    """``log_sums`` (n,), ``log_agreement`` (n,), ``pull`` (n, k), and the rows that underflowed."""

    log_sums: np.ndarray
    log_agreement: np.ndarray
    pull: np.ndarray
    underflowed: np.ndarray


class HalfSweeps:
    """Half sweeps over points without weights in their kernel; weights b multiply the values instead.

    Parameters
    ----------
    pairs : CompiledPairs
        The pairs of points against themselves, without log-weights.
    weights : float64 array of shape (n,), optional
        The weights b; all positive, the largest is 1.
    threads, memory : int
    n_values : int
        The number of columns of the widest values, for the choice between fused kernels and matrix products.
    level : float
        The logarithm of the weight that was divided out of all weights.
    """

    def __init__(
        self, pairs: CompiledPairs, weights: np.ndarray | None, threads: int, memory: int, n_values: int = 0,
        level: float = 0.0,
    ) -> None:  # fmt: skip
        self._pairs, self._weights, self._level = pairs, weights, level
        by_products = pairs.accurate and pairs.k + n_values >= tuning.HALF_PRODUCTS_FROM[pairs.dtype]
        self._sweep = (ProductSweep if by_products else FusedSweep)(pairs, threads, memory)

    def sums(self, packed_values: np.ndarray) -> HalfSums:
        """Return the softmax means of values in tiles, (n_tiles, v, TILE)."""
        totals, underflowed, sums = self._totals(packed_values)
        sums[:, :-1] /= totals[:, None]
        sums[:, -1] = 1.0
        return HalfSums(self._log_sums(totals), sums, underflowed)

    def scatter(self, packed_values: np.ndarray, row_weights: np.ndarray) -> HalfScatter:
        """Return the scatter of values in tiles, (n_tiles, v, TILE), under the softmax weights."""
        n, b = self._pairs.n, self._column_weights()
        totals, underflowed, _ = self._totals(packed_values[:, :0], keep=True)
        factors = row_weights / (b * totals)
        factors[underflowed] = 0.0
        values = WeightedValues(packed_values, self._weights, n)
        cross, mass = self._sweep.scatter(values, factors.astype(self._pairs.dtype))
        mass = b * mass
        own, size = np.zeros_like(cross), 0.0
        for rows in Blocks(n, tuning.PRODUCT_BLOCK):
            some = unpack(packed_values, rows).astype(np.float64, copy=False)
            heavy = some * mass[rows, None]
            own += heavy.T @ some
            size += float(np.vdot(heavy, some))
        scatter = own - cross - cross.T
        return HalfScatter(self._log_sums(totals), 0.5 * (scatter + scatter.T), size, underflowed)

    def squares(self) -> HalfSquares | None:
        """Return the softmax means of squared distances, by one sweep of the fused kernels; None where products are faster."""
        if not isinstance(self._sweep, FusedSweep):
            return None
        pairs = self._pairs
        logs, totals = self._sweep.logs(WeightedValues(pairs.points.packed[:, :0], self._weights, pairs.n)).T
        totals, underflowed = self._checked(totals)
        # K is the exponential of minus half a square, less what the row was shifted by.
        squares = -2.0 * pairs.log_sums(pairs.bounds() + logs / totals)
        squares[underflowed] = 0.0
        return HalfSquares(self._log_sums(totals), np.maximum(squares, 0.0), underflowed)

    def softmax_pull(self, factors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``sum_i (w_ij + w_ji)(z_j - z_i)`` for ``w_ij = factors_i p_ij``, (n, k), and the rows that underflowed."""
        pairs = self._pairs
        totals, underflowed, _ = self._totals(pairs.points.packed[:, :0], keep=True)
        f = factors / (self._column_weights() * totals)
        f[underflowed] = 0.0
        nobody = np.zeros(pairs.n, dtype=np.int64)
        return self._pull((nobody, nobody), f, f), underflowed

    def class_pull(self, mates: Mates, row_weights: np.ndarray, likelihood: bool, least_agreement: float) -> HalfPull:
        """`Pull` for points sorted by class, the mates of row i at ``mates[0][i]..mates[1][i]``; no weights."""
        pairs = self._pairs
        totals, matched = (np.ascontiguousarray(column) for column in self._sweep.matches(mates).T)
        inside, outside, log_agreement = np.empty(pairs.n), np.empty(pairs.n), np.empty(pairs.n)
        product_kernels.class_factors(
            pairs.queries(slice(0, 1)), likelihood, matched, totals, row_weights, least_agreement, pairs.smallest,
            inside, outside, log_agreement,
        )  # fmt: skip
        underflowed = np.flatnonzero((totals < pairs.smallest) | np.isnan(log_agreement))
        inside[underflowed], outside[underflowed], totals[underflowed] = 0.0, 0.0, 1.0
        return HalfPull(self._log_sums(totals), log_agreement, self._pull(mates, inside, outside), underflowed)

    def _column_weights(self) -> np.ndarray:
        return np.ones(self._pairs.n) if self._weights is None else self._weights

    def _totals(self, packed_values: np.ndarray, keep: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Z (1 where it underflowed), the rows where it did, and all sums, whose last column is Z."""
        sums = self._sweep.sums(WeightedValues(packed_values, self._weights, self._pairs.n), keep=keep)
        return *self._checked(sums[:, -1]), sums

    def _checked(self, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Z (1 where it underflowed), and the rows where it did."""
        totals = sums.copy()
        underflowed = np.flatnonzero(totals < self._pairs.smallest)
        totals[underflowed] = 1.0
        return totals, underflowed

    def _log_sums(self, totals: np.ndarray) -> np.ndarray:
        return self._pairs.log_sums(self._pairs.bounds() + np.log(totals)) + self._level

    def _pull(self, mates: Mates, inside: np.ndarray, outside: np.ndarray) -> np.ndarray:
        """``M 1 z - M Z`` for ``M_ij = K_ij (g_i + g_j)``, weighted by b on both sides."""
        pairs, b = self._pairs, self._column_weights()
        values = WeightedValues(pairs.points.packed, self._weights, pairs.n)
        sums = self._sweep.pull(values, mates, inside.astype(pairs.dtype), outside.astype(pairs.dtype))
        for rows in Blocks(pairs.n, tuning.PRODUCT_BLOCK):
            pulled = sums[rows, -1:] * pairs.points.rows(rows) - sums[rows, :-1]
            sums[rows, :-1] = pulled if self._weights is None else b[rows, None] * pulled
        return sums[:, :-1]
