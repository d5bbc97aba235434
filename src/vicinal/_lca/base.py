"""What LCA and LCA-Gauss share: kinds of rows, the choice of the solver, minibatches, and what a fit stores."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils import Tags

from vicinal._checks import check_callback, check_integer, check_positive, check_random_state, check_verbose
from vicinal._density.mixture_density import MixtureDensityMixin
from vicinal._engine import Engine, Work, fit_engine
from vicinal._fit_loops import FitPath, Recorder, warn_if_not_converged
from vicinal._lca.checks import Remedies, collapse_message
from vicinal._lca.penalty import LEAST_PENALTY, Shrinkage, as_parameter
from vicinal._lca.steps import Penalty
from vicinal._lca.stochastic import EXACT_PAIRS, SAMPLE, StochasticEM, Sweepable, rows_per_sweep, stochastic_path
from vicinal._leave_one_out import LeaveOneOut, counted_rows, leave_one_out, perplexities, problem_in_file
from vicinal._metric import LinearMetricMixin
from vicinal._mixtures import SharedMixture
from vicinal._records import Record, RecordParametersMixin, check_record
from vicinal._rows import TrainingRows, open_rows


class LocalComponents(RecordParametersMixin, LinearMetricMixin, MixtureDensityMixin, DensityMixin, BaseEstimator):
    """The base of LCA and LCAGauss."""

    # Parameters and attributes of the estimators.
    solver: Any
    engine: Any
    max_iter: int | None
    tol: float | None
    random_state: Any
    callback: Any
    verbose: Any
    reg: Any
    reg_: Any
    reg_search_: dict[str, Any] | None
    covariance_: np.ndarray
    _auto_share: float

    _record_types: ClassVar[dict[str, type[Record]]] = {"reg": Shrinkage, "solver": StochasticEM, "engine": Engine}
    _solvers: ClassVar[
        tuple[str, ...]
    ]  # the strings that `solver` may be; the second is what "auto" means for few rows
    _passes: ClassVar[
        int
    ]  # the approximate number of passes (or sweeps) of a fit, from which the engine chooses a backend
    # The default max_iter and tol of exact fits, of fits by sweeps, and of fits to rows with gaps.
    _limits: ClassVar[dict[str, tuple[int, float]]]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    # -- rows and parameters --------------------------------------------------------------------------------------------

    def _open(self, X: ArrayLike, sample_weight: ArrayLike | None) -> TrainingRows:
        """Return the rows of a fit, validated; they stay in their file if they do not fit into memory and are drawn from."""
        return open_rows(
            self, X, sample_weight, draws=lambda n: self._pick_solver(n) == "stochastic", seed=lambda: self._seed()
        )

    def _check_solver(self) -> None:
        """Raise an error for invalid values of the parameters that both methods have."""
        check_callback(self.callback)
        check_record(self.solver, StochasticEM, "solver", self._solvers)
        check_verbose(self.verbose)
        check_random_state(self.random_state)
        self._limits_of("exact")

    @classmethod
    def default_max_iter(cls, solver: str) -> int:
        """Return the default of `max_iter` for complete rows and a solver."""
        return cls._limits["stochastic" if solver == "stochastic" else "exact"][0]

    def _limits_of(self, kind: str) -> dict[str, Any]:
        """Return the user's max_iter and tol, or the defaults of a kind of fit."""
        max_iter, tol = self._limits[kind]
        return {
            "max_iter": max_iter if self.max_iter is None else check_integer(self.max_iter, "max_iter"),
            "tol": tol if self.tol is None else check_positive(self.tol, "tol", strict=False),
        }

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _stochastic_options(self) -> StochasticEM:
        """Return the options of minibatches: those of the solver if it is stochastic, else the defaults."""
        return self.solver if isinstance(self.solver, StochasticEM) else StochasticEM()

    # -- solvers --------------------------------------------------------------------------------------------------------

    def _pick_solver(self, n: int) -> str:
        if isinstance(self.solver, StochasticEM):
            return "stochastic"
        if self.solver != "auto":
            return self.solver
        return self._solvers[1] if float(n) ** 2 <= EXACT_PAIRS else "stochastic"

    def _pair_work(self, n_samples: int, n_features: int) -> Work:
        """Return the pair work of a fit: all pairs in each pass, or those of a sweep."""
        queries = n_samples
        if self._pick_solver(n_samples) == "stochastic":
            queries = min(n_samples, self._stochastic_options().n_candidates or rows_per_sweep(n_samples, n_features))
        return Work(queries, n_samples, n_features, self._passes)

    def _problem(self, rows: TrainingRows, whiten: tuple[np.ndarray, np.ndarray] | None = None) -> LeaveOneOut:
        """Return the leave-one-out problem of complete rows, in the coordinates ``root @ (x - mean)`` if these are given."""
        if rows.file is not None:
            drawn = rows.file.drawn(whiten)
            work = self._pair_work(*drawn.shape)._replace(n_points=rows.file.most)
            return problem_in_file(drawn, rows.file.weight_of_counted, fit_engine(self), work)
        work, X = self._pair_work(*rows.values.shape), rows.values
        if whiten is not None:
            X = ((X - whiten[0]) @ whiten[1].T).astype(X.dtype, copy=False)
        return leave_one_out(X, rows.weight, fit_engine(self), n_queries=work.n_queries, passes=work.passes)

    def _sweep(self, model: Sweepable, start: Any, rows: TrainingRows, record: Recorder) -> tuple[FitPath, np.ndarray]:
        """Make sweeps of minibatches (sec. 5); return the path and a sample of rows as possible neighbours."""
        options, most = self._stochastic_options(), None if rows.file is None else rows.file.most
        rng = np.random.default_rng(self._seed())
        warm = isinstance(getattr(self, "init", ""), str)
        limits = self._limits_of("stochastic")
        path = stochastic_path(model, start, record, options, rng, warm=warm, most=most, **limits)
        n = len(model.problem.weight)
        sample = np.sort(rng.choice(n, min(options.n_candidates or min(SAMPLE, most or n), n), replace=False))
        return path, sample

    def _penalties(self, reg: Penalty | None, covariance: np.ndarray, rows: TrainingRows) -> Iterator[Penalty]:
        """Yield the penalty and, for ``reg="auto"``, a larger one, under which a kernel that collapses may have a solution.

        Values that repeat (a grid of integers) leave directions without width even if there are many rows. `reg` is None for
        "auto" and rows with missing values.
        """
        yield Penalty(self._auto_share * covariance) if reg is None else reg
        if isinstance(self.reg, str) and not rows.incomplete:
            yield LEAST_PENALTY.of_rows(*counted_rows(rows.values, rows.weight))

    # -- what a fit stores ----------------------------------------------------------------------------------------------

    def _keep_path(self, path: FitPath, reg: Penalty) -> None:
        """Store the penalty that was used and the path of the objective; warn if it has not converged."""
        self.reg_ = as_parameter(reg, self._in_all_columns)
        warn_if_not_converged(type(self).__name__, path)
        self.objectives_, self.n_iter_, self.converged_ = path.objectives, path.n_iter, path.converged

    def _keep_neighbors(
        self, problem: LeaveOneOut, metric: np.ndarray, rows: TrainingRows, X: np.ndarray, neighbors: np.ndarray | None
    ) -> None:
        """Store the effective number of neighbours of each row, among a sample of them if the fit was stochastic."""
        if rows.file is None:
            self.effective_neighbors_ = perplexities(problem.pairs, metric, X, rows.weight, neighbors)
        else:
            assert neighbors is not None
            self.effective_neighbors_ = problem.pairs.some(neighbors).at(metric).perplexities()
        self.engine_, self.certified_row_error_ = problem.pairs.backend, problem.pairs.certified_row_error

    def _shared_mixture(self, centres: Any, log_shares: np.ndarray | None) -> SharedMixture:
        return SharedMixture(centres, self.covariance_, log_shares, self.engine, self._active_names)

    def _print(self, text: str) -> None:
        if self.verbose:
            print(f"[{type(self).__name__}] {text}", file=sys.stderr, flush=True)


def collapse_error(rows: TrainingRows, covariance: str, remedies: Remedies) -> ValueError:
    """Return the error for a kernel whose covariance becomes singular during a fit to some rows."""
    return ValueError(collapse_message(rows.values, rows.weight, covariance, remedies, gaps=rows.incomplete))
