"""What a fitted mixture with one kernel says of the missing entries of rows: means and draws."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vicinal._density.gaps import Conditional, conditionals

Array = NDArray[Any]

# Shares of a mixture below this do not count when draws choose a component.
_LEAST_SHARE = 1e-9


class Filling:
    """Missing entries of rows under a density, in the units that it sees.

    Parameters
    ----------
    density : estimator
        Fitted :class:`LCA`, :class:`LCAGauss` or :class:`ParzenWindows`.
    """

    def __init__(self, density: Any) -> None:
        self._density, self._mixture = density, density.mixture_

    @property
    def constant(self) -> Array:
        """Which columns hold one value only."""
        return np.ptp(self._mixture.centres, axis=0) == 0

    def means(self, rows: Array, left_out: Array | None) -> Array:
        """Return the rows with their missing entries replaced by conditional means.

        Parameters
        ----------
        rows : array of shape (m, d)
        left_out : array of shape (m,) or None
            The centre that does not count for each row.
        """
        filled = np.array(rows)
        for part in self._parts(rows):
            filled[np.ix_(part.positions, part.missing)] = self._means_of(part, rows, left_out)
        return filled

    def draws(self, rows: Array, left_out: Array | None, n_draws: int, random: Any, scale: float) -> Array:
        """Return the rows with their missing entries drawn, of shape (n_draws, m, d).

        Parameters
        ----------
        scale : float
            By how much the deviations of draws from the conditional mean are multiplied.
        """
        filled = np.repeat(np.array(rows)[None], n_draws, axis=0)
        factors = np.where(self.constant, 0.0, scale)  # a column of one value has no spread to draw from
        for part in self._parts(rows):
            m = part.missing
            lower = np.linalg.cholesky(part.rest + 1e-12 * np.trace(part.rest) * np.eye(len(m)))
            means = dict(zip(part.positions.tolist(), self._means_of(part, rows, left_out), strict=True))
            for i, chosen in self._components(part, rows, left_out, n_draws, random):
                noise = random.standard_normal((n_draws, len(m))) @ lower.T
                known = rows[i, part.known] @ part.gain.T if len(part.known) else 0.0
                away = part.residuals[chosen] + known + noise - means[i]
                filled[:, i, m] = means[i] + factors[m] * away
        return filled

    def _parts(self, rows: Array) -> Iterator[Conditional]:
        """Return what the density says of the missing entries, for each pattern with some."""
        weights = None if np.ptp(self._mixture.log_weights) == 0 else self._mixture.log_weights
        centres = self._mixture.centres.astype(np.float64)
        found = conditionals(rows, centres, self._mixture.covariance, weights, self._density.engine)
        return (part for part in found if len(part.missing))

    def _means_of(self, part: Conditional, rows: Array, left_out: Array | None) -> Array:
        """Return the conditional means of the missing entries of the rows of a pattern."""
        mine = part.positions
        if part.placed is None:
            weights = np.exp(self._mixture.log_weights)
            return np.broadcast_to(weights @ part.residuals / weights.sum(), (len(mine), len(part.missing)))
        own = None if left_out is None else left_out[mine]
        means = part.placed.softmax_means(part.residuals, np.nan_to_num(rows[mine]), own).means
        return means + rows[np.ix_(mine, part.known)] @ part.gain.T

    def _components(
        self, part: Conditional, rows: Array, left_out: Array | None, n_draws: int, random: Any
    ) -> Iterator[tuple[int, Array]]:
        """For each row of a pattern the components that its draws come from."""
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
