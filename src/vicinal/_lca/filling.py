"""The missing entries of rows under a fitted mixture with one kernel: conditional means and draws."""

from collections.abc import Iterator
from copy import copy
from typing import Any

import numpy as np

from vicinal._density.gaps import Conditional, conditionals
from vicinal._lca.gauss_steps import mixture_of_directions
from vicinal._mixtures import SharedMixture

# How often the gaps of all rows are filled in again after some entries were hidden.
_PASSES = 2
# Components with a smaller share are ignored when the component of a draw is chosen.
_LEAST_SHARE = 1e-9


class Filling:
    """Missing entries of rows under a density, in the units of the rows that it was fitted to.

    Parameters
    ----------
    density : estimator
        Fitted :class:`LCA`, :class:`LCAGauss` or :class:`ParzenWindows`.
    """

    def __init__(self, density: Any) -> None:
        self._density, self._mixture = density, density.mixture_
        # A density that was fitted to complete rows ignores constant columns.
        self._seen = getattr(density, "active_features_", np.arange(density.n_features_in_))

    def hiding(self, rows: np.ndarray) -> "Filling":
        """Return the same kernel with centres that are computed again from training rows in which further entries are hidden.

        A fit fills in the gaps of all rows from each other, so a known entry affects the centres of other rows as well, and it
        would be predicted too well if only the entry itself were hidden.

        Parameters
        ----------
        rows : array of shape (n, d)
            All training rows, in their order.
        """
        found, filled = copy(self), self.means(rows, np.arange(len(rows)))
        for _ in range(_PASSES):
            centres = self._centres_of(filled[:, self._seen])
            found._mixture = SharedMixture(centres, self._mixture.covariance, self._mixture.log_weights)
            filled = found.means(rows, np.arange(len(rows)))
        return found

    def _centres_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the centres that complete rows become: LCA-Gauss moves them along its Gaussian directions."""
        if not hasattr(self._density, "gaussian_components_"):
            return rows
        gauss = self._density
        return mixture_of_directions(gauss.gaussian_components_, gauss.components_, gauss.mean_, rows)[0]

    @property
    def constant(self) -> np.ndarray:
        """Which columns have only one value."""
        found = np.ones(self._density.n_features_in_, dtype=bool)
        found[self._seen] = np.ptp(self._mixture.centres, axis=0) == 0
        return found

    def means(self, rows: np.ndarray, left_out: np.ndarray | None) -> np.ndarray:
        """Return the rows with their missing entries replaced by conditional means.

        Parameters
        ----------
        rows : array of shape (m, d)
        left_out : array of shape (m,) or None
            The centre that is left out for each row.
        """
        filled, rows = self._with_constants(rows), rows[:, self._seen]
        for part in self._parts(rows):
            filled[np.ix_(part.positions, self._seen[part.missing])] = self._means_of(part, rows, left_out)
        return filled

    def _with_constants(self, rows: np.ndarray) -> np.ndarray:
        """Return a copy of rows whose missing entries in columns of one value are that value."""
        filled = np.array(rows)
        if len(self._seen) < rows.shape[1]:
            others = np.setdiff1d(np.arange(rows.shape[1]), self._seen)
            filled[:, others] = np.where(np.isnan(rows[:, others]), self._density.constant_values_, rows[:, others])
        return filled

    def draws(
        self, rows: np.ndarray, left_out: np.ndarray | None, n_draws: int, random: Any, scale: float
    ) -> np.ndarray:
        """Return the rows with their missing entries drawn, of shape (n_draws, m, d).

        Parameters
        ----------
        scale : float
            The factor by which the deviations of draws from the conditional mean are multiplied.
        """
        filled = np.repeat(self._with_constants(rows)[None], n_draws, axis=0)
        factors = np.where(self.constant, 0.0, scale)[self._seen]  # a constant column has no spread to draw from
        rows = rows[:, self._seen]
        for part in self._parts(rows):
            m = part.missing
            lower = np.linalg.cholesky(part.rest + 1e-12 * np.trace(part.rest) * np.eye(len(m)))
            means = dict(zip(part.positions.tolist(), self._means_of(part, rows, left_out), strict=True))
            for i, chosen in self._components(part, rows, left_out, n_draws, random):
                noise = random.standard_normal((n_draws, len(m))) @ lower.T
                known = rows[i, part.known] @ part.gain.T if len(part.known) else 0.0
                away = part.residuals[chosen] + known + noise - means[i]
                filled[:, i, self._seen[m]] = means[i] + factors[m] * away
        return filled

    def _parts(self, rows: np.ndarray) -> Iterator[Conditional]:
        """Return the conditional distribution of the missing entries, for each pattern with missing entries."""
        weights = None if np.ptp(self._mixture.log_weights) == 0 else self._mixture.log_weights
        centres = self._mixture.centres.astype(np.float64)
        found = conditionals(rows, centres, self._mixture.covariance, weights, self._density.engine)
        return (part for part in found if len(part.missing))

    def _means_of(self, part: Conditional, rows: np.ndarray, left_out: np.ndarray | None) -> np.ndarray:
        """Return the conditional means of the missing entries of the rows of a pattern."""
        mine = part.positions
        if part.placed is None:
            weights = np.exp(self._mixture.log_weights)
            return np.broadcast_to(weights @ part.residuals / weights.sum(), (len(mine), len(part.missing)))
        own = None if left_out is None else left_out[mine]
        means = part.placed.softmax_means(part.residuals, np.nan_to_num(rows[mine]), own).means
        return means + rows[np.ix_(mine, part.known)] @ part.gain.T

    def _components(
        self, part: Conditional, rows: np.ndarray, left_out: np.ndarray | None, n_draws: int, random: Any
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Return for each row of a pattern the components from which its values are drawn."""
        if part.placed is None:
            weights = np.exp(self._mixture.log_weights)
            for i in part.positions:
                yield i, random.choice(len(weights), size=n_draws, p=weights / weights.sum())
            return
        own = None if left_out is None else left_out[part.positions]
        for query, point, shares in part.placed.neighbors_above(_LEAST_SHARE, np.nan_to_num(rows[part.positions]), own):
            for some in np.split(np.arange(len(query)), np.flatnonzero(np.diff(query)) + 1):
                p = shares[some] / shares[some].sum()
                yield part.positions[query[some[0]]], point[random.choice(some, size=n_draws, p=p)]
