"""The choice of LCA's penalty: the user's, checked against the data, or the result of a search."""

from typing import Any

import numpy as np

from vicinal._engine import fit_engine
from vicinal._lca.checks import LCA_REMEDIES, Remedies, check_answerable, check_scale, check_twins, is_answerable
from vicinal._lca.folds import search_penalty
from vicinal._lca.penalty import (
    check_reg,
    check_semidefinite,
    family_matrix,
    has_plenty,
    least_penalty,
    warn_at_edge,
)
from vicinal._lca.steps import Structure
from vicinal._leave_one_out import counted_rows


class PenaltyChoiceMixin:
    """Mixin of LCA that chooses the penalty of a fit."""

    # Attributes and methods of LCA.
    reg: Any
    active_features_: np.ndarray
    _active_names: Any
    _keep_active: Any

    def _penalty(
        self,
        X: np.ndarray,
        weight: np.ndarray | None,
        structure: Structure,
        remedies: Remedies = LCA_REMEDIES,
        varies: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the columns that vary and their penalty; raise for data without a solution, and search for "auto".

        `varies` states which columns vary in the rows of which X is a sample.
        """
        given = check_reg(self.reg, X.shape[1])
        # A penalty gives the kernel a width along constant columns, so they are kept.
        kept = None if given is None else np.diag(given) > 0
        if varies is not None:
            kept = varies if kept is None else varies | kept
        if structure.covariance in ("spherical", "low_rank") and given is not None:
            kept = np.full(len(given), given.any() or bool(np.ptp(X, axis=0).any()))
        X = self._keep_active(X, weight, width="reg", kept=kept)
        rows, weight = counted_rows(X, weight)
        if given is None or not given.any():
            check_scale(rows, structure.covariance, self._active_names)
        if given is None:
            return X, self._search(rows, weight, structure, remedies)
        self.reg_search_: dict[str, Any] | None = None
        check_semidefinite(given)
        if not given.any():
            check_answerable(rows, *structure, names=self._active_names, remedies=remedies)
            check_twins(rows, remedies)
        return X, given[np.ix_(self.active_features_, self.active_features_)]

    def _search(self, X: np.ndarray, weight: np.ndarray | None, structure: Structure, remedies: Remedies) -> np.ndarray:
        """Return the penalty for ``reg="auto"``, from rows of positive weight."""
        self.reg_search_ = None
        if has_plenty(X, structure):
            answerable = is_answerable(X, *structure)
            return np.zeros(2 * X.shape[1:]) if answerable else least_penalty(X, weight)
        choice = search_penalty(X, weight, structure, fit_engine(self))
        if choice is None:
            return family_matrix("diagonal", X, weight)
        if choice.at_edge:
            warn_at_edge(X, self._active_names, remedies.method)
        self.reg_search_ = choice.table
        return choice.factor * family_matrix(choice.family, X, weight)
