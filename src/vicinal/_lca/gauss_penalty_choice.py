"""The choice of LCA-Gauss's two penalties: the user's, checked against the data, or the result of a search."""

from typing import Any

import numpy as np

from vicinal._engine import fit_engine
from vicinal._kernel_penalty import Penalty
from vicinal._lca.checks import Remedies, check_answerable, check_scale, check_twins, is_answerable
from vicinal._lca.folds import LCAGaussFold, search_penalty
from vicinal._lca.gauss_penalty import (
    Penalties,
    choose_both,
    gaussian_rules,
    given_gaussian,
    given_local,
    local_rules,
)
from vicinal._lca.penalty import check_matrix, check_penalty, check_reg, has_plenty, least_penalty, no_penalty
from vicinal._lca.penalty_search import split_folds
from vicinal._lca.steps import Structure
from vicinal._leave_one_out import counted_rows

LCA_GAUSS_REMEDIES = Remedies("LCAGauss", simpler="")


class GaussPenaltyChoiceMixin:
    """Mixin of LCAGauss that chooses the penalties of a fit."""

    # Attributes and methods of LCAGauss.
    reg: Any
    reg_gauss: Any
    reduce: bool
    active_features_: np.ndarray
    _active_names: Any
    _keep_active: Any

    def _given_penalties(self, n_features: int) -> tuple[Penalty | None, np.ndarray | None]:
        """Return the penalties that the user passed; None for "auto"."""
        if isinstance(self.reg_gauss, str) and self.reg_gauss == "auto":
            return check_reg(self.reg, n_features), None
        forms = "'auto', a number, a vector of variances or a matrix"
        return check_reg(self.reg, n_features), check_matrix(self.reg_gauss, n_features, "reg_gauss", forms)

    def _penalties(
        self, X: np.ndarray, weight: np.ndarray | None, varies: np.ndarray | None = None
    ) -> tuple[np.ndarray, Penalty, np.ndarray]:
        """Return the columns that vary, and the two penalties on them.

        Raise an error for data without a solution, and search for "auto". `varies` states which columns vary in the rows of
        which X is a sample.
        """
        reg, reg_gauss = self._given_penalties(X.shape[1])
        # Penalties give both parts a width along constant columns, so these are kept.
        kept = varies
        if reg is not None and reg_gauss is not None:
            wide = (np.diag(reg.matrix) > 0) & (np.diag(reg_gauss) > 0)
            kept = wide if varies is None else varies | wide
        X = self._keep_active(X, weight, width="reg and reg_gauss", kept=kept)
        rows, weight = counted_rows(X, weight)
        active = self.active_features_
        reg = None if reg is None else check_penalty(reg, active, self._active_names)
        reg_gauss = None if reg_gauss is None else reg_gauss[np.ix_(active, active)]
        zero = {"reg": reg is not None and reg.is_zero, "reg_gauss": reg_gauss is not None and not reg_gauss.any()}
        zeros = [name for name, is_zero in zero.items() if is_zero]
        if zeros or reg is None or reg_gauss is None:
            check_scale(rows, "full", self._active_names)
        if zeros:
            remedies = LCA_GAUSS_REMEDIES._replace(reg_name=" and ".join(zeros))
            check_answerable(rows, "full", names=self._active_names, remedies=remedies)
        if zero["reg"]:  # twins are not a problem for the Gaussian
            check_twins(rows, LCA_GAUSS_REMEDIES)
        self.reg_search_: dict[str, Any] | None = None
        if reg is not None and reg_gauss is not None:
            return X, reg, reg_gauss
        return X, *self._search(rows, weight, reg, reg_gauss)

    def _search(
        self, X: np.ndarray, weight: np.ndarray | None, reg: Penalty | None, reg_gauss: np.ndarray | None
    ) -> tuple[Penalty, np.ndarray]:
        """Return the penalties that are not given (None), from rows of positive weight."""
        structure, answerable = Structure("full"), is_answerable(X, "full")
        gaussians = gaussian_rules(X, weight, answerable) if reg_gauss is None else [given_gaussian(reg_gauss)]
        if has_plenty(X, structure):
            none = no_penalty(X.shape[1]) if answerable else least_penalty(X, weight)
            return none if reg is None else reg, gaussians[0].matrix(X, weight)
        parts = split_folds(X, weight)
        if reg is None:
            regs = local_rules(search_penalty(X, weight, structure, fit_engine(self)), answerable)
        else:
            regs = [given_local(reg)]
        chosen = Penalties(regs[0], gaussians[-1])
        if parts:
            folds = [LCAGaussFold(*part, reduce=self.reduce, engine=fit_engine(self)) for part in parts]
            chosen, self.reg_search_ = choose_both(folds, regs, gaussians)
        return chosen.local(X, weight), chosen.gaussian(X, weight)
