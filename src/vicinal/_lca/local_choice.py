"""The choice of Local LCA's kernels: the base that gives the shared covariance, the folds, and the search."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from vicinal._callers import callers_line
from vicinal._density.selection import Selection, fixed_folds
from vicinal._engine import Engine, fit_engine
from vicinal._lca.checks import Remedies
from vicinal._lca.lca import LCA
from vicinal._lca.local_folds import FOLDS, Choice, LocalFold
from vicinal._lca.local_grid import SMALLEST_MULTIPLE, local_grid
from vicinal._lca.local_search import HeldOut, LocalSearch
from vicinal._lca.options import Shrinkage
from vicinal._lca.penalty import as_parameter, check_reg

_REMEDIES = Remedies("LocalLCA", simpler="", merge="keep one of each: np.unique(X, axis=0)")
# With more rows than this, 512 rows are held out once, which is enough for the choice; with fewer, all are, in five folds.
MANY_ROWS = 1500
HELD_OUT_ROWS = 512


class LocalChoiceMixin:
    """Mixin of LocalLCA that fits its base and chooses a member of the family."""

    # Attributes of LocalLCA.
    n_components: Any
    n_neighbors: Any
    noise: Any
    shared: Any
    center: str
    reg: Any
    selection: Selection | None
    verbose: Any
    n_features_in_: int
    active_features_: Any
    base_: Any

    def _fit_base(self, X: NDArray[Any], weight: NDArray[Any] | None) -> LCA:
        """Fit the LCA whose covariance is Sigma_0, with exact passes for any number of rows, so that nothing is random."""
        base = LCA(reg=self._reg_of_base(), solver="accelerated", engine=fit_engine(self), verbose=self.verbose)
        base._fit(X, weight, _REMEDIES)
        return base

    def _reg_of_base(self) -> Any:
        """Return the penalty for the columns that vary."""
        given = (
            check_reg(self.reg, self.n_features_in_) if isinstance(self.reg, Shrinkage) or np.ndim(self.reg) else None
        )
        return self.reg if given is None else as_parameter(given.of_columns(self.active_features_))

    def _choose(self, X: NDArray[Any], weight: NDArray[Any] | None, engine: Engine) -> Choice:
        """Return the member of the family, chosen by held-out rows unless all parameters are given."""
        self.cv_results_, self.best_score_ = None, None
        self.converged_ = self.base_ is None or self.base_.converged_
        given = (self.shared, self.noise, self.n_neighbors, self.n_components, self.center)
        if "auto" not in [value for value in given if isinstance(value, str)]:
            sizes = int(self.n_neighbors), int(self.n_components)
            return Choice(float(self.shared), float(self.noise), *sizes, self.center)
        folds = self._folds(X, weight, self.base_, engine)
        if not folds:  # hardly any rows differ: LCA, or plain windows
            return self._without_folds()
        smallest = min(held_out.fold.n_rows for held_out in folds)
        grid = local_grid(self, Selection() if self.selection is None else self.selection, X, weight, smallest, engine)
        choice, self.best_score_, self.cv_results_ = LocalSearch(folds, grid).run()
        self._warn_if_multiples_end_too_early(choice)
        return choice

    def _warn_if_multiples_end_too_early(self, choice: Choice) -> None:
        """Warn if the smallest multiple of LCA's covariance that the search tries is the best, without noise."""
        if isinstance(self.shared, str) and choice.shared == SMALLEST_MULTIPLE and choice.noise == 0:
            warnings.warn(
                f"LocalLCA: the search chose {SMALLEST_MULTIPLE:g}, the smallest multiple of LCA's covariance that it tries, and a "
                "smaller one may score better. Check for dependent columns, columns of few distinct values and rows that almost repeat "
                "others, or pass shared as a number.",
                ConvergenceWarning,
                stacklevel=callers_line(),
            )

    def _without_folds(self) -> Choice:
        if self.shared == 0 and isinstance(self.noise, str):
            raise ValueError(
                "noise='auto' with shared=0 needs at least 5 distinct rows, so that some can be held out. Add data, or pass noise "
                "as a number."
            )
        shared = 1.0 if isinstance(self.shared, str) else float(self.shared)
        noise = 0.0 if isinstance(self.noise, str) else float(self.noise)
        return Choice(shared, noise, 1, 0, "row")

    def _folds(self, X: NDArray[Any], weight: NDArray[Any] | None, base: LCA | None, engine: Engine) -> list[HeldOut]:
        """Return the folds of the search with the rows that they hold out."""
        # Rows of weight 0 are not part of the folds; splits that the user passes include all rows.
        counted = np.arange(len(X)) if weight is None else np.flatnonzero(weight)
        if self.selection is None:
            held_out_once = len(counted) > MANY_ROWS
            parts = fixed_folds(X[counted], 1 if held_out_once else FOLDS, HELD_OUT_ROWS if held_out_once else None)
            splits = [(np.delete(counted, part), counted[part]) for part in parts]
        elif isinstance(self.selection.cv, int):
            found = self.selection.splits(X[counted], np.zeros(len(counted), dtype=int))
            splits = [(counted[train], counted[test]) for train, test in found]
        else:
            splits = self.selection.splits(X, np.zeros(len(X), dtype=int))
            if weight is not None:
                splits = [(train[weight[train] > 0], test[weight[test] > 0]) for train, test in splits]
        folds = []
        for train, test in splits:
            if len(train) < 2 or len(test) == 0:
                continue
            own = (None, None) if weight is None else (weight[train], weight[test])
            folds.append(HeldOut(LocalFold(X[train], own[0], base, engine), X[test], own[1]))
        return folds
