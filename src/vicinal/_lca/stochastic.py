r"""LCA and LCA-Gauss with minibatches (sec. 5): each step uses a few rows as terms and a sample of rows as neighbours.

A step takes B rows (sec. 5.1) and N possible neighbours (sec. 5.2), computes the local covariance :math:`\hat C_L` of the B
rows, and blends it with the current one (Eq. 7),

.. math:: C_L \leftarrow \gamma^{B/n} C_L + (1 - \gamma^{B/n}) \hat C_L .

The parameters follow from the local covariance: a metric (`Metrics`), or Gaussian and local directions
(`gauss_stochastic.py`).
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from vicinal._engine import Problem
from vicinal._fit_loops import FitPath, Reason, Recorder
from vicinal._kernel_penalty import Penalty
from vicinal._lca.accelerated import accelerated_fixed_point
from vicinal._lca.steps import (
    CollapseError,
    Steps,
    Structure,
    inverse_root,
    nearest_structured,
    one_pass,
    penalised_objective,
)
from vicinal._leave_one_out import LeaveOneOut, some_rows, weight_of_others

# The number of rows on which progress is measured, the same ones after every sweep.
_MONITORED = 500
# Up to this many rows, all of them are shuffled if a sweep visits some; with more, this would take longer than the sweep.
_PERMUTED = 10**6


def blend(local: np.ndarray, estimate: np.ndarray, discount: float, share: float) -> np.ndarray:
    """Apply Eq. 7: the old local covariance keeps the weight ``discount ** share``, with share = B / n."""
    kept = discount**share
    return kept * local + (1.0 - kept) * estimate


def metric_of(local: np.ndarray, reg: Penalty, structure: Structure) -> np.ndarray:
    """Return the metric of a local covariance: the inverse root of its M-step."""
    sigma = nearest_structured(reg.updated(local), *structure)
    try:
        metric = inverse_root(0.5 * (sigma + sigma.T))
    except np.linalg.LinAlgError:
        raise CollapseError from None
    if not np.isfinite(metric).all():
        raise CollapseError
    # The pivots of the Cholesky factor of the correlations, which the metric holds inverted. One that is rounding alone makes
    # a column depend on those before it, whether or not the factorisation happens to succeed.
    pivots = 1.0 / (np.diag(metric) * np.sqrt(np.diag(sigma)))
    if pivots.min() ** 2 <= 10 * len(sigma) * np.finfo(np.float64).eps:
        raise CollapseError
    return metric


class SampledProblem(Protocol):
    """A leave-one-out problem whose rows can be drawn: `LeaveOneOut`, or that of LCA-Gauss."""

    @property
    def rows(self) -> np.ndarray:
        """The rows of positive weight."""

    @property
    def weight(self) -> np.ndarray:
        """Their weights."""

    @property
    def log_others(self) -> np.ndarray:
        """The logarithm of the weight that remains when a row is left out."""

    @property
    def pairs(self) -> Problem:
        """The pair problem of the engine."""


def sampled_neighbors(
    problem: SampledProblem, metric: np.ndarray, queries: np.ndarray, points: np.ndarray | None = None
) -> tuple[float, np.ndarray]:
    """Return the mean log of the mean kernel of some rows, and their local covariance, with some rows as neighbours.

    Parameters
    ----------
    problem : SampledProblem
    metric : array of shape (k, d)
    queries : array of row positions
    points : array of row positions, sorted, optional
        None means all rows. A row is never its own neighbour.
    """
    weight = problem.weight[queries]
    if points is None:
        log_others = problem.log_others[queries]
        sums, scatter = problem.pairs.at(metric).scatter(weight, queries, space="rows")
    else:
        found = np.minimum(np.searchsorted(points, queries), len(points) - 1)
        left_out = np.where(points[found] == queries, found, -1)
        seen = problem.weight[points]
        log_others = np.log(np.where(left_out >= 0, weight_of_others(seen)[left_out], seen.sum()))
        placed = problem.pairs.some(points).at(metric)
        sums, scatter = placed.scatter(weight, problem.rows[queries], left_out, space="rows")
    mass = weight.sum()
    return float(weight @ (sums - log_others) / mass), scatter / mass


def sampled_covariance(
    problem: LeaveOneOut, metric: np.ndarray, queries: np.ndarray, points: np.ndarray | None = None
) -> tuple[float, np.ndarray]:
    """Return LCA's objective for some rows at a metric, and their local covariance; see `sampled_neighbors`."""
    assert problem.reg is not None
    log_mean, local = sampled_neighbors(problem, metric, queries, points)
    return penalised_objective(log_mean, metric, problem.reg), local


def minibatches(
    n: int, n_neighbors: int, n_rows: int, batch_size: int, rng: np.random.Generator
) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    """Yield one sweep: (terms, neighbours) for each step, as row positions; neighbours are None if all rows are used.

    Parameters
    ----------
    n : int
        The number of rows.
    n_neighbors : int
        The number of rows to draw as possible neighbours at each step.
    n_rows : int
        The number of rows of the sweep.
    """
    order = rng.permutation(n)[:n_rows] if n <= _PERMUTED or n_rows == n else rng.choice(n, n_rows, replace=False)
    for start in range(0, n_rows, batch_size):
        terms = order[start : start + batch_size]
        if n_neighbors >= n:
            yield terms, None
        else:
            yield terms, np.sort(rng.choice(n, n_neighbors, replace=False, shuffle=False))


class Sweepable(Protocol):
    """What is learned by sweeps: parameters that follow from a local covariance."""

    @property
    def problem(self) -> SampledProblem:
        """The rows, their weights, and the pair problem."""

    def at(self, local: np.ndarray) -> Any:
        """Return the parameters of a local covariance: the M-step."""

    def local_of(self, parameters: Any) -> np.ndarray:
        """Return a local covariance that has these parameters, without the penalty's share."""

    def sampled(self, parameters: Any, queries: np.ndarray, points: np.ndarray | None) -> tuple[float, np.ndarray]:
        """Return the objective of some rows at the parameters, and their local covariance among some rows."""

    def fit_sample(self, start: Any, size: int, rng: np.random.Generator) -> FitPath | None:
        """Return the exact fit to a sample of rows, or None if there is none."""

    def fit_terms(self, start: Any, terms: np.ndarray, points: np.ndarray | None) -> FitPath | None:
        """Return the fit to some terms among some rows, from a start, or None if there is none."""


def sweep_path(
    model: Sweepable,
    local: np.ndarray,
    record: Recorder,
    *,
    batch_size: int,
    n_neighbors: int,
    n_rows: int,
    discount: float,
    max_iter: int,
    tol: float,
    rng: np.random.Generator,
) -> FitPath:
    """Sweep until two successive sweeps gain no more than `tol` on rows that are set aside for this measurement.

    Parameters
    ----------
    model : Sweepable
    local : array of shape (d, d)
        The local covariance to start from, without the penalty's share.
    record : Recorder
    n_rows : int
        The number of rows of a sweep: n of Eq. 7.

    Returns
    -------
    FitPath
        The parameters are those of the best sweep; its objectives are those of the measuring rows after
        each sweep.
    """
    weight = model.problem.weight
    n = len(weight)
    measured = np.sort(rng.choice(n, min(_MONITORED, n), replace=False))
    judges = None if n_neighbors >= n else np.sort(rng.choice(n, n_neighbors, replace=False))
    found = model.at(local)
    record.begin(found, model.sampled(found, measured, judges)[0])
    idle = 0
    with record:
        for _ in range(max_iter):
            for terms, points in minibatches(n, n_neighbors, n_rows, batch_size, rng):
                _, estimate = model.sampled(found, terms, points)
                local = blend(local, estimate, discount, weight[terms].sum() / n_rows)
                found = model.at(local)
            objective, best = model.sampled(found, measured, judges)[0], record.objective
            record.add(found, objective)
            record.iterated(found)
            idle = 0 if objective > best + tol else idle + 1
            if idle == 2:
                raise record.end(Reason.CONVERGED, f"two successive sweeps gained no more than tol={tol:g}")
        raise record.end(Reason.LIMIT, f"max_iter={max_iter} sweeps were used")
    return record.path()


# -- a start that is close ---------------------------------------------------------------------------------

# A kernel learned on this many rows costs a fraction of a sweep; it is also the number of neighbours that are drawn if the
# user does not specify it.
SAMPLE = 3000
START_TOL = 1e-3
START_PASSES = 50


def sampled_start(
    problem: LeaveOneOut, start: np.ndarray, structure: Structure, size: int, rng: np.random.Generator
) -> FitPath | None:
    """Return the exact fit to a sample of rows (or to all rows, if there are no more), or None if these are too few.

    The paper starts from the covariance of the data, from where Eq. 7 needs dozens of sweeps.
    """
    # Departure 3 (LCA): Stochastic fits start from a sample.
    n = len(problem.rows)
    size = min(size, n)
    if size <= 4 * len(start):
        return None
    sample = some_rows(problem, np.sort(rng.choice(n, size, replace=False)))
    return _quick_fit(lambda metric: one_pass(sample, metric), start, structure)


class Metrics(NamedTuple):
    """The metrics of LCA as what is learned by sweeps; see `Sweepable`."""

    problem: LeaveOneOut
    structure: Structure

    @property
    def _reg(self) -> Penalty:
        assert self.problem.reg is not None
        return self.problem.reg

    def at(self, local: np.ndarray) -> np.ndarray:
        """Return the metric of a local covariance."""
        return metric_of(local, self._reg, self.structure)

    def local_of(self, parameters: np.ndarray) -> np.ndarray:
        """Return the local covariance of a metric."""
        return self._reg.local_part(np.linalg.inv(parameters.T @ parameters))

    def sampled(
        self, parameters: np.ndarray, queries: np.ndarray, points: np.ndarray | None
    ) -> tuple[float, np.ndarray]:
        """Return the objective and the local covariance of some rows."""
        return sampled_covariance(self.problem, parameters, queries, points)

    def fit_sample(self, start: np.ndarray, size: int, rng: np.random.Generator) -> FitPath | None:
        """Return the fit to a sample of rows."""
        return sampled_start(self.problem, start, self.structure, size, rng)

    def fit_terms(self, start: np.ndarray, terms: np.ndarray, points: np.ndarray | None) -> FitPath | None:
        """Return the fit to some terms among some rows."""

        def evaluate(metric: np.ndarray) -> tuple[float, np.ndarray]:
            objective, local = self.sampled(metric, terms, points)
            matrix = metric @ self._reg.updated(local) @ metric.T
            return objective, 0.5 * (matrix + matrix.T)

        return _quick_fit(evaluate, start, self.structure)


def _quick_fit(
    evaluate: Callable[[np.ndarray], tuple[float, np.ndarray]], start: np.ndarray, structure: Structure
) -> FitPath | None:
    steps = Steps(evaluate, structure, start)
    try:
        return accelerated_fixed_point(
            steps.displacement, steps.move, start, Recorder(), max_iter=START_PASSES, tol=START_TOL
        )
    except CollapseError:
        return None  # the fit to a sample may collapse even if the fit to all rows does not


def stochastic_path(
    model: Sweepable,
    start: Any,
    record: Recorder,
    *,
    n_candidates: int | None,
    warm: bool,
    batch_size: int,
    rng: np.random.Generator,
    most: int | None = None,
    **options: Any,
) -> FitPath:
    """Fit by sweeps over minibatches.

    Parameters
    ----------
    model : Sweepable
    start : object
        The initial parameters.
    record : Recorder
    n_candidates : int or None
        N of sec. 5.2, or None: all rows, and sweeps of a number of rows that does not grow with n.
    warm : bool
        Whether to improve the start by fits to samples first.
    most : int, optional
        The maximum number of candidates at a time if `n_candidates` is None; those of a file are drawn.
    options
        ``discount, max_iter, tol`` of `sweep_path`.
    """
    n, d = model.problem.rows.shape
    fits = [model.fit_sample(start, n_candidates or min(SAMPLE, most or n), rng)] if warm else []
    n_rows, n_neighbors = n, n_candidates or min(n, most or n)
    if n_candidates is None and n > SAMPLE:
        # Departure 4 (LCA): All rows are neighbours in a sweep of fixed size. Nothing is biased then, and with R rows (in
        # place of n in Eq. 7) the cost R n d stays linear in n. R keeps the noise of d(d+1)/2 covariances low.
        # Minibatches are a tenth of it, if more than the user's: moving all rows to a new frame costs O(n d^2) too.
        n_rows = rows_per_sweep(n, d)
        batch_size = max(batch_size, n_rows // 10)
        if warm and not _interrupted(fits):
            # A kernel learned with N neighbours is too wide for n (sec. 5.2), so a fit to a sample of terms with all rows as
            # neighbours (or as many as fit into memory) follows.
            terms = np.sort(rng.choice(n, min(max(2000, 20 * d), n), replace=False))
            drawn = np.sort(rng.choice(n, n_neighbors, replace=False, shuffle=False)) if n_neighbors < n else None
            fits.append(model.fit_terms(_last(fits, start), terms, drawn))
    local = model.local_of(_last(fits, start))
    size = {"n_neighbors": n_neighbors, "n_rows": n_rows, "batch_size": batch_size}
    if not _interrupted(fits):
        return sweep_path(model, local, record, rng=rng, **size, **options)
    options["max_iter"] = 0
    return sweep_path(model, local, record, rng=rng, **size, **options).ended_by(Reason.INTERRUPTED)


def rows_per_sweep(n: int, d: int) -> int:
    """Return R of a sweep in which all n rows are neighbours."""
    return n if n <= SAMPLE else min(n, max(2000, 100 * d))


def _last(fits: list[FitPath | None], start: Any) -> Any:
    """Return the parameters of the last fit that has one, or the start."""
    return next((fit.parameters for fit in reversed(fits) if fit is not None), start)


def _interrupted(fits: list[FitPath | None]) -> bool:
    return any(fit is not None and fit.reason.by_user for fit in fits)
