"""Training rows with the density that was computed without them, for explanations and for rows with missing values."""

from typing import Any, NamedTuple

import numpy as np

from vicinal._mixtures import Conditionals, Replacements, column_conditionals, scores_with_replacements

_MANY = 20_000  # components


class HeldOutRows(NamedTuple):
    """Some training rows and the density without them, in the sense of the density's own leave-one-out.

    positions : (m,), places of the rows among those that were asked for
    mixture : the density
    left_out : (m,), the component of each row, which is left out for it; None if the mixture contains none of the rows
    replaced : components that have another covariance without the row; None if there are none
    made_from : (n,), the position of the training row of each component; None if there is one for each row, in their order
    """

    positions: np.ndarray
    mixture: Any
    left_out: np.ndarray | None = None
    replaced: Replacements | None = None
    made_from: np.ndarray | None = None

    def conditionals(
        self, rows: np.ndarray, some: np.ndarray, columns: np.ndarray, shares: tuple[float, ...] = ()
    ) -> Conditionals:
        """Condition each of some columns of rows on the others of these columns.

        Parameters
        ----------
        rows : array of shape (len(some), d)
            All columns of the mixture; only those in `columns` are used.
        some : integer array
            The places of the rows among the m.
        columns : integer array
        shares : tuple of float
            Of the quantiles.
        """
        mixture, left_out, replaced = self._marginal(some, columns)
        return column_conditionals(mixture, rows[:, columns], left_out, shares, replaced)

    def surprises(self, rows: np.ndarray, some: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return ``-log p(x_k | the others of these columns)``, shape (len(some), len(columns)).

        Of many components only those near a row matter, which the densities of columns (without k, and all) skip to; conditionals
        visit all of them.

        Parameters
        ----------
        rows, some, columns
            As in `conditionals`.
        """
        if len(self.mixture.centres) < _MANY or self.replaced is not None or len(columns) < 2:
            return self.conditionals(rows, some, columns).surprises
        whole = self.scores(rows, some, columns)
        others = [self.scores(rows, some, np.delete(columns, k)) for k in range(len(columns))]
        return np.stack(others, axis=1) - whole[:, None]

    def scores(self, rows: np.ndarray, some: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return log-densities of rows by some columns, shape (len(some),).

        Parameters
        ----------
        rows, some, columns
            As in `conditionals`.
        """
        mixture, left_out, replaced = self._marginal(some, columns)
        known = np.ascontiguousarray(rows[:, columns])
        if left_out is None:
            return mixture.score_samples(known)
        if replaced is None:
            return mixture.left_out_scores_of(known, left_out)
        return scores_with_replacements(mixture, known, left_out, replaced)

    def _marginal(self, some: np.ndarray, columns: np.ndarray) -> tuple[Any, np.ndarray | None, Replacements | None]:
        """Return the density of some columns, and what is left out of it and replaced for some rows."""
        mixture, replaced = self.mixture, self.replaced
        if replaced is not None:
            replaced = replaced.of_rows(some)
        if len(columns) < mixture.n_features:
            mixture = mixture.marginal(columns)
            if replaced is not None:
                replaced = replaced._replace(mixture=replaced.mixture.marginal(columns))
        return mixture, None if self.left_out is None else self.left_out[some], replaced
