r"""Broad Gaussians that have a share of a density beside its kernels, so that a row far from all of them has a fair density.

A Gaussian kernel falls without limit: a row that lies 30 widths from its nearest neighbour costs 450 nats. With a share s_k of
broad Gaussians, the density of kernels :math:`p_0` becomes

.. math:: p(x) = \big(1 - \sum_k s_k\big) \, p_0(x) + \sum_k s_k \, N(x; m, \kappa_k (C + \Sigma))

where m and C are the mean and the covariance of the training rows and :math:`\Sigma` is that of the kernels. With
:math:`\kappa = 1` this is the Gaussian that has the moments of :math:`p_0`; the second one, three times as wide, is for heavy tails.
Marginals and conditionals have the same form, because the Schur complement of :math:`C + \Sigma` is at least that of
:math:`\Sigma`.

If a training row is left out, it is left out of m and C as well. With its weight w (of a sum of one) and u = x - m,
C becomes :math:`a C - b u u'`, :math:`a = 1 / (1 - w)` and :math:`b = w / (1 - w)^2`, and m becomes :math:`x - u / (1 - w)`. In coordinates
in which :math:`\Sigma` is the identity and C a diagonal, all rows together take one product of matrices.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from vicinal._leave_one_out import mean_of_rows, scatter_of_rows

# Squares of the widths of the broad Gaussians, in units of the moments of the density.
WIDTHS = (1.0, 9.0)
# The shares are those of maximum likelihood for the rows and these further ones, which are drawn from the broad Gaussians: one row, or
# 1 % of few rows. Without them, a density whose training rows have no tails would give none to new rows.
_PRIOR_ROWS, _PRIOR_SHARE = 1.0, 0.01
_LEAST_OF_KERNELS = 1e-6  # rows
_STEPS, _UNCHANGED = 500, 1e-9  # of EM for the shares, and the change of a share at which it ends
_HEAVIEST = 1.0 - 1e-12  # the largest weight of a row that is left out
_LOG_2PI = float(np.log(2.0 * np.pi))


class BroadTerms(NamedTuple):
    """The broad Gaussians at rows.

    log_densities : (m, K)
    pulls : (m, K, d), ``P (x - m)`` with the inverse P of the covariance
    precisions : (m, K, d), the diagonal of P
    """

    log_densities: np.ndarray
    pulls: np.ndarray
    precisions: np.ndarray


class Background(NamedTuple):
    """K broad Gaussians beside the kernels of a density.

    log_shares : (1 + K,), logarithms of the shares: of the kernels, and of each broad Gaussian
    mean : (d,), of the training rows
    spread : (d, d), their covariance C
    widths : (K,), the factors of ``C + Sigma``
    """

    log_shares: np.ndarray
    mean: np.ndarray
    spread: np.ndarray
    widths: np.ndarray

    @classmethod
    def of_moments(cls, rows: np.ndarray, log_weights: np.ndarray) -> "Background":
        """Return broad Gaussians with the moments of some rows, whose shares are not chosen yet."""
        d, widths = rows.shape[1], np.array(WIDTHS)
        start = np.log(np.full(1 + len(widths), 1.0 / (1 + len(widths))))
        return cls(start, np.zeros(d), np.zeros((d, d)), widths).of_rows(rows, log_weights)

    def of_rows(self, rows: np.ndarray, log_weights: np.ndarray) -> "Background":
        """Return broad Gaussians of the same shares with the moments of some rows (n, d), of log-weights (n,)."""
        weights = None if np.ptp(log_weights) == 0 else np.exp(log_weights)
        return self._replace(mean=mean_of_rows(rows, weights), spread=scatter_of_rows(rows, weights))

    # -- densities ---------------------------------------------------------------------------------------------------

    def log_densities(self, rows: np.ndarray, covariance: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        """Return the log-density of each row under each broad Gaussian, shape (m, K).

        Parameters
        ----------
        rows : array of shape (m, d)
        covariance : array of shape (d, d)
            That of the kernels.
        weights : array of shape (m,), optional
            The rows are training rows of these weights (of a sum of one), and are left out.
        """
        return self._terms(rows, covariance, weights)[0]

    def terms(self, rows: np.ndarray, covariance: np.ndarray, weights: np.ndarray | None = None) -> BroadTerms:
        """Return the log-densities with the pulls and the precisions of each column, as `log_densities` does."""
        log_densities, axes, scaled, variances, down, added = self._terms(rows, covariance, weights)
        slopes = scaled @ axes
        pulls = (slopes / down[:, None])[:, None, :] / self.widths[:, None]
        precisions = (1.0 / variances) @ np.square(axes) + added[:, None] * np.square(slopes)
        return BroadTerms(log_densities, pulls, precisions[:, None, :] / self.widths[:, None])

    def _axes(self, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the root L of the kernels' covariance, and V and v with ``L^-1 C L^-T = V diag(v) V'``."""
        lower = np.linalg.cholesky(covariance)
        units = solve_triangular(lower, np.eye(len(lower)), lower=True) if len(lower) else lower
        spread = units @ self.spread @ units.T
        values, vectors = np.linalg.eigh(0.5 * (spread + spread.T))
        return lower, vectors, np.maximum(values, 0.0)

    def _terms(self, rows: np.ndarray, covariance: np.ndarray, weights: np.ndarray | None) -> tuple[Any, ...]:
        """Return the log-densities, U, and of the rows ``z = U (x - m)``: z divided by their variances, these, (1 - w)(1 - b q), b / (1 - b q)."""
        lower, vectors, values = self._axes(covariance)
        axes = solve_triangular(lower, vectors, lower=True, trans=1).T if len(lower) else lower
        z = (np.asarray(rows, dtype=np.float64) - self.mean) @ axes.T
        weights = np.zeros(len(z)) if weights is None else np.minimum(weights, _HEAVIEST)
        rest = 1.0 - weights
        variances = values / rest[:, None] + 1.0
        scaled = z / variances
        with np.errstate(over="ignore"):
            squares = (scaled * z).sum(axis=1)
        b = weights / rest**2
        # 1 - b q is positive: rounding must not make it zero for a row that alone makes the spread along a direction.
        down = np.maximum(1.0 - b * squares, 1.0 - _HEAVIEST)
        log_dets = np.log(np.diag(lower)).sum() + 0.5 * np.log(variances).sum(axis=1) + 0.5 * np.log(down)
        constants = 0.5 * len(lower) * (_LOG_2PI + np.log(self.widths))
        log_densities = -0.5 * (squares / down / rest**2)[:, None] / self.widths - log_dets[:, None] - constants
        return log_densities, axes, scaled, variances, rest * down, b / down

    def beside(self, kernels: np.ndarray, broad: np.ndarray) -> np.ndarray:
        """Return the log-density of rows from that of the kernels (m,) and those of the broad Gaussians (m, K)."""
        return logsumexp(np.column_stack([kernels, broad]) + self.log_shares, axis=1)

    def chosen(self, kernels: np.ndarray, broad: np.ndarray, weight: np.ndarray | None = None) -> "Background":
        """Return the same Gaussians with the shares of largest likelihood for held-out rows, by EM; rows of no finite score do not count.

        Parameters
        ----------
        kernels : array of shape (m,)
            The log-densities of the rows under the kernels, without the rows themselves.
        broad : array of shape (m, K)
        weight : array of shape (m,), optional
        """
        table = np.column_stack([kernels, broad])
        finite = np.isfinite(table.max(axis=1))
        table, weight = table[finite], np.ones(finite.sum()) if weight is None else weight[finite]
        weight = weight * (len(table) / weight.sum())
        scaled = np.exp(table - table.max(axis=1, keepdims=True))
        prior = np.full(table.shape[1], min(_PRIOR_ROWS, _PRIOR_SHARE * len(table)) / broad.shape[1])
        prior[0] = _LEAST_OF_KERNELS  # so that the density has components
        shares = np.exp(self.log_shares)
        for _ in range(_STEPS):
            mixed = scaled * shares
            counts = weight @ (mixed / mixed.sum(axis=1, keepdims=True)) + prior
            last, shares = shares, counts / counts.sum()
            if np.abs(shares - last).max() < _UNCHANGED:
                break
        return self._replace(log_shares=np.log(shares))

    # -- other densities and rows ------------------------------------------------------------------------------------

    def of_columns(self, columns: np.ndarray) -> "Background":
        """Return the broad Gaussians of some columns."""
        return self._replace(mean=self.mean[columns], spread=self.spread[np.ix_(columns, columns)])

    def given(
        self, fixed: np.ndarray, values: np.ndarray, rest: np.ndarray, covariance: np.ndarray, kernels: float
    ) -> "Background":
        """Return the broad Gaussians of the columns `rest`, given the values of those at `fixed`.

        Parameters
        ----------
        covariance : array of shape (d, d)
            That of the kernels.
        kernels : float
            The log-density of the values under the kernels.
        """
        whole, kernel = self.spread + covariance, covariance[np.ix_(fixed, fixed)]
        broad = self.of_columns(fixed).log_densities(values[None], kernel)[0]

        def remainder(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            gain = np.linalg.solve(matrix[np.ix_(fixed, fixed)], matrix[np.ix_(fixed, rest)]).T
            return gain, matrix[np.ix_(rest, rest)] - gain @ matrix[np.ix_(fixed, rest)]

        (gain, broad_rest), (_, kernel_rest) = remainder(whole), remainder(covariance)
        spread = broad_rest - kernel_rest
        mean = self.mean[rest] + gain @ (values - self.mean[fixed])
        return self.reweighted(kernels, broad)._replace(mean=mean, spread=0.5 * (spread + spread.T))

    def reweighted(self, kernels: float, broad: np.ndarray) -> "Background":
        """Return the same Gaussians with the shares that follow from a known value's log-densities, shape (K,) for the broad ones."""
        log_shares = self.log_shares + np.append(kernels, broad)
        return self._replace(log_shares=log_shares - logsumexp(log_shares))

    def drawn(self, chosen: np.ndarray, covariance: np.ndarray, rng: Any) -> np.ndarray:
        """Return a row from each of the chosen broad Gaussians, shape (len(chosen), d)."""
        lower, vectors, values = self._axes(covariance)
        z = rng.standard_normal((len(chosen), len(values))) * np.sqrt(np.outer(self.widths[chosen], values + 1.0))
        return self.mean + z @ (lower @ vectors).T

    def mean_shift(
        self, rows: np.ndarray, covariance: np.ndarray, kernels: np.ndarray, steps: np.ndarray
    ) -> np.ndarray:
        """Return the step of each row uphill, as `Mixture.mean_shift` does, from those to the centres of the kernels.

        Parameters
        ----------
        rows, steps : arrays of shape (m, d)
        covariance : array of shape (d, d)
            That of the kernels.
        kernels : array of shape (m,)
            The log-densities of the rows under the kernels.
        """
        lower, vectors, values = self._axes(covariance)
        axes = solve_triangular(lower, vectors, lower=True, trans=1).T
        broad = self.log_shares[1:] + self.log_densities(rows, covariance)
        kernels = kernels + self.log_shares[0]
        top = np.maximum(kernels, broad.max(axis=1))
        of_kernels, of_broad = np.exp(kernels - top)[:, None], np.exp(broad - top[:, None]) / self.widths
        pull = of_broad.sum(axis=1)[:, None] / (values + 1.0)
        z = (of_kernels * (steps @ axes.T) - pull * ((rows - self.mean) @ axes.T)) / (of_kernels + pull)
        return z @ (lower @ vectors).T
