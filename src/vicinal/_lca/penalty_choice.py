"""The choice of LCA's penalty: the user's, checked against the data, or the result of a search."""

from typing import Any

import numpy as np

from vicinal._engine import fit_engine
from vicinal._kernel_penalty import Penalty
from vicinal._lca.checks import LCA_REMEDIES, Remedies, check_answerable, check_scale, check_twins, is_answerable
from vicinal._lca.folds import search_penalty
from vicinal._lca.penalty import Form, check_penalty, check_reg, has_plenty, least_penalty, no_penalty
from vicinal._lca.penalty_search import warn_at_edge
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
    ) -> tuple[np.ndarray, Penalty]:
        """Return the columns that vary and their penalty; raise for data without a solution, and search for "auto".

        `varies` states which columns vary in the rows of which X is a sample.
        """
        given = check_reg(self.reg, X.shape[1])
        # A penalty gives the kernel a width along constant columns, so they are kept.
        kept = None if given is None else np.diag(given.matrix) > 0
        if varies is not None:
            kept = varies if kept is None else varies | kept
        if structure.covariance in ("spherical", "low_rank") and given is not None and given.weight is None:
            kept = np.full(X.shape[1], not given.is_zero or bool(np.ptp(X, axis=0).any()))
        X = self._keep_active(X, weight, width="reg", kept=kept)
        rows, weight = counted_rows(X, weight)
        if given is None or given.is_zero:
            check_scale(rows, structure.covariance, self._active_names)
        if given is None:
            return X, self._search(rows, weight, structure, remedies)
        self.reg_search_: dict[str, Any] | None = None
        given = check_penalty(given, self.active_features_, self._active_names)
        if given.is_zero:
            check_answerable(rows, *structure, names=self._active_names, remedies=remedies)
            check_twins(rows, remedies)
        return X, given

    def _search(self, X: np.ndarray, weight: np.ndarray | None, structure: Structure, remedies: Remedies) -> Penalty:
        """Return the penalty for ``reg="auto"``, from rows of positive weight."""
        self.reg_search_ = None
        if has_plenty(X, structure):
            answerable = is_answerable(X, *structure)
            return no_penalty(X.shape[1]) if answerable else least_penalty(X, weight)
        choice = search_penalty(X, weight, structure, fit_engine(self))
        if choice is None:
            return Form("diagonal", 1.0).of_rows(X, weight)
        if choice.at_edge:
            warn_at_edge(X, self._active_names, remedies.method)
        self.reg_search_ = choice.table
        return choice.form.of_rows(X, weight)
