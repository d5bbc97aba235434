"""LCA on a stream of rows (sec. 5.1): ``partial_fit``."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from vicinal._checks import check_rows
from vicinal._density.gaps import forget_gaps
from vicinal._kernel_penalty import Penalty
from vicinal._lca.checks import collapse_message
from vicinal._lca.penalty import as_parameter, check_reg
from vicinal._lca.steps import CollapseError, Structure
from vicinal._lca.stochastic import SAMPLE, metric_of, sampled_start
from vicinal._lca.stream import Stream
from vicinal._leave_one_out import leave_one_out, scatter_of_rows

# The approximate number of passes of the fit to the first rows, from which the engine chooses a backend.
_PASSES = 20


class PartialFitMixin:
    """Mixin of LCA with ``partial_fit``."""

    # Attributes and methods of LCA.
    _stream: dict[str, Any] | None
    reg: Any
    init: Any
    engine: Any
    covariance_type: str
    mixture_: Any
    covariance_: np.ndarray
    active_features_: Any
    n_features_in_: int
    _check_parameters: Any
    _stochastic_options: Any
    _penalty: Any
    _in_all_columns: Any
    _active: Any
    _initial_metric: Any
    _seed: Any
    _keep: Any
    _keep_density: Any

    def partial_fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Learn from more rows of a stream (sec. 5.1), in bounded memory.

        The rows are processed in minibatches of ``batch_size``. The possible neighbours of a minibatch are its own rows and
        a uniform sample of ``n_candidates`` (3000 by default) of the rows seen before. It updates the covariance by Eq. 7,
        where n is the number of rows seen. The density is that of the sample. After ``fit``, the stream continues from the
        fit.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows. The first call starts from a fit to its rows (from their covariance if there are at most four rows per
            feature, or from ``init``). With ``reg="auto"`` these rows also determine the penalty of the whole stream, and
            columns that are constant in them are ignored in the whole stream.
        y : ignored
            Not used; accepted because pipelines of scikit-learn pass it.

        Returns
        -------
        self
            ``n_samples_seen_`` counts the rows; ``objectives_`` holds the objective per row of each minibatch before
            the update, and ``n_iter_`` is their number; ``converged_`` is False, because a stream has no end;
            ``effective_neighbors_`` and ``score_samples(None)`` are those of the sample. The callback is not called.
        """
        fresh = not hasattr(self, "components_")
        rows = check_rows(self, X, reset=fresh, min_rows=2 if fresh else 1).astype(np.float64, copy=False)
        structure, options = self._check_parameters(rows.shape[1]), self._stochastic_options()
        if fresh:
            rows, reg = self._penalty(rows, None, structure)
            self.reg_ = as_parameter(reg, self._in_all_columns)
        given = check_reg(self.reg, self.n_features_in_) or check_reg(self.reg_, self.n_features_in_)
        assert given is not None
        reg = given.of_columns(self.active_features_)
        rows = rows if fresh else self._active(rows)
        stream, objectives = self._open_stream(rows, reg, structure, options.n_candidates or SAMPLE, fresh)
        try:
            # The very first minibatch has two rows at least: a single row has no neighbour.
            cuts = range(max(options.batch_size, 2 - len(stream.reservoir)), len(rows), options.batch_size)
            for batch in np.split(rows, cuts):
                objectives.append(
                    stream.learn(batch, reg=reg, structure=structure, discount=options.discount, engine=self.engine)
                )
            metric = metric_of(stream.local, reg, structure)
        except CollapseError:
            raise ValueError(collapse_message(stream.reservoir, None, self.covariance_type)) from None
        forget_gaps(self)
        self._stream = {"local": stream.local, "seed": stream.seed}
        self.solver_, self.converged_ = "stream", False
        self.objectives_, self.n_iter_, self.n_samples_seen_ = np.array(objectives), len(objectives), stream.seen
        problem = leave_one_out(stream.reservoir, None, self.engine, reg=reg)
        self.engine_ = problem.pairs.backend
        self._keep(metric, scatter_of_rows(stream.reservoir))
        self._keep_density(stream.reservoir, None, problem)
        return self

    def _open_stream(
        self, X: np.ndarray, reg: Penalty, structure: Structure, size: int, fresh: bool
    ) -> tuple[Stream, list[float]]:
        """Return the stream before the rows of X, which may come from `fit` or from the last call, and its objectives."""
        if fresh:
            seed = self._seed()
            problem = leave_one_out(X, None, self.engine, reg=reg, passes=_PASSES)
            start = self._initial_metric(scatter_of_rows(X), reg, structure)
            if isinstance(self.init, str):
                fit = sampled_start(problem, start, structure, size, np.random.default_rng(seed))
                start = start if fit is None else fit.parameters
            local = reg.local_part(np.linalg.inv(start.T @ start))
            return Stream(X[:0], local, 0, size, seed), []
        centres, shares = self.mixture_.centres, np.exp(self.mixture_.log_weights)
        left = getattr(self, "_stream", None)
        if left is not None:
            seen = self.n_samples_seen_
            return Stream(centres.astype(np.float64), left["local"], seen, size, left["seed"]), list(self.objectives_)
        seed, n = self._seed(), int(np.count_nonzero(shares))
        kept = np.random.default_rng(seed).choice(len(centres), min(size, n), replace=False, p=shares / shares.sum())
        return Stream(centres[kept].astype(np.float64), reg.local_part(self.covariance_), n, size, seed), []
