"""The choice of the solver of LCA and LCA-Gauss by the number of rows, and the sweeps of the stochastic solver."""

import sys
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from vicinal._checks import check_integer, check_positive
from vicinal._engine import Work, one_blas_thread_beside_pairs
from vicinal._fit_loops import FitPath, Recorder
from vicinal._lca.levels import multilevel_start, predicted_pairs
from vicinal._lca.options import StochasticEM
from vicinal._lca.steps import Structure
from vicinal._lca.stochastic import SAMPLE, Sweepable, rows_per_sweep, stochastic_path
from vicinal._leave_one_out import LeaveOneOut

# The maximum number of pairs in a pass of an exact fit. Such a pass takes seconds on two cores, and the accelerated solver
# needs 10 to 30 of them.
_EXACT_PAIRS = 2e9
# From this number of rows on, an exact fit starts from fits to samples.
_LEVELS_FROM_ROWS = 20_000
# The approximate number of passes (or sweeps) of a fit, from which the engine chooses a backend.
PASSES = 20


class StochasticMixin:
    """Mixin of estimators with a stochastic solver."""

    # Attributes of the estimator.
    solver: Any
    engine: Any
    max_iter: int | None
    tol: float | None
    random_state: Any
    _exact_solver: str  # the one that "auto" means if there are not too many rows
    _passes = PASSES  # of a fit

    def _stochastic_options(self) -> StochasticEM:
        """Return the options of minibatches: those of the solver if it is stochastic, else the defaults."""
        return self.solver if isinstance(self.solver, StochasticEM) else StochasticEM()

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _pick_solver(self, n: int) -> str:
        if isinstance(self.solver, StochasticEM):
            return "stochastic"
        if self.solver != "auto":
            return self.solver
        return self._exact_solver if float(n) ** 2 <= _EXACT_PAIRS else "stochastic"

    def _pair_work(self, n_samples: int, n_features: int) -> Work:
        """Return the pair work of a fit: all pairs in each pass, or those of a sweep."""
        queries = n_samples
        if self._pick_solver(n_samples) == "stochastic":
            queries = min(n_samples, self._stochastic_options().n_candidates or rows_per_sweep(n_samples, n_features))
        return Work(queries, n_samples, n_features, self._passes)

    def _limits(self, max_iter: int, tol: float) -> dict[str, Any]:
        """Return the user's max_iter and tol, or these defaults."""
        return {
            "max_iter": max_iter if self.max_iter is None else check_integer(self.max_iter, "max_iter"),
            "tol": tol if self.tol is None else check_positive(self.tol, "tol", strict=False),
        }

    def _sweep(
        self,
        model: Sweepable,
        start: Any,
        record: Recorder,
        limits: dict[str, Any],
        most: int | None = None,
    ) -> tuple[FitPath, np.ndarray]:
        """Make sweeps of minibatches with at most `most` candidates; return the path and a sample of rows as possible neighbours."""
        options = self._stochastic_options()
        rng = np.random.default_rng(self._seed())
        path = stochastic_path(
            model,
            start,
            record,
            n_candidates=options.n_candidates,
            warm=isinstance(getattr(self, "init", ""), str),
            rng=rng,
            batch_size=options.batch_size,
            most=most,
            discount=options.discount,
            **limits,
        )
        n = len(model.problem.weight)
        sample = np.sort(rng.choice(n, min(options.n_candidates or min(SAMPLE, most or n), n), replace=False))
        return path, sample


class SolverChoiceMixin(StochasticMixin):
    """Mixin of LCA that chooses the solver."""

    # Attributes and methods of LCA.
    solver_: str
    init: Any
    verbose: Any
    _exact_solver = "accelerated"

    def _choose_solver(
        self, problem: LeaveOneOut, start: np.ndarray, structure: Structure, reference: np.ndarray
    ) -> np.ndarray:
        """Set `solver_`, and return a start for it: that of an exact fit of many rows comes from samples of them."""
        n = len(problem.rows)
        self.solver_ = self._pick_solver(n)
        takes_levels = n > _LEVELS_FROM_ROWS and isinstance(self.init, str)
        with one_blas_thread_beside_pairs(*problem.rows.shape):
            unsure = self.solver == "auto" and self.solver_ == "stochastic" and takes_levels
            if unsure and predicted_pairs(problem, start, structure, reference) <= _EXACT_PAIRS:
                self.solver_ = "accelerated"
            if self.verbose and self.solver == "auto":
                self._print(f"solver={self.solver_!r} for {n} rows")
            if takes_levels and self.solver_ == "accelerated":
                return multilevel_start(problem, start, structure, reference, self._print if self.verbose else None)
        return start

    def _print(self, text: str) -> None:
        if self.verbose:
            print(f"[LCA] {text}", file=sys.stderr, flush=True)
