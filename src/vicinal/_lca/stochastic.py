r"""LCA and LCA-Gauss on samples of the rows.

*Minibatches* (sec. 5): a step takes B rows as terms (sec. 5.1) and N possible neighbours (sec. 5.2), computes the local covariance
:math:`\hat C_L` of the B rows, and blends it with the current one (Eq. 7),

.. math:: C_L \leftarrow \gamma^{B/n} C_L + (1 - \gamma^{B/n}) \hat C_L .

The parameters follow from the local covariance: a metric (`Metrics`), or Gaussian and local directions (`Splits`; the covariance is
then in coordinates in which the Gaussian's covariance is the identity, and Proposition 1 determines the directions).

*Levels*: starts of exact fits to many rows. In the first passes of a fit that starts at the data's covariance, kernels are so wide that
every pair matters and none can be skipped. A fit to a sample is cheap, and its kernel is nearly that of all rows except for its size:
the variances of the best kernel decrease with the number of rows n as ``n^(-2/(d+4))``.

*Streams* (sec. 5.1): the state of ``partial_fit``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np

from vicinal._checks import check_integer, check_positive
from vicinal._engine import Engine
from vicinal._fit_loops import FitPath, Recorder, accelerated_fixed_point, climb_by_rounds
from vicinal._lca.gauss_steps import (
    ROUGH,
    GaussPoint,
    GaussRows,
    Split,
    all_local,
    em_step,
    penalty_of_directions,
    run_em,
    search_directions,
)
from vicinal._lca.steps import CollapseError, Penalty, Point, Steps, Structure, inverse_root, nearest_structured
from vicinal._leave_one_out import LeaveOneOut, Minibatch, leave_one_out, log_norm, some_rows
from vicinal._records import Record

# The number of rows on which progress is measured, the same ones after every sweep.
_MONITORED = 500
# Up to this many rows, all of them are shuffled if a sweep visits some; with more, this would take longer than the sweep.
_PERMUTED = 10**6


def blend(local: np.ndarray, estimate: np.ndarray, discount: float, share: float) -> np.ndarray:
    """Apply Eq. 7: the old local covariance keeps the weight ``discount ** share``, with share = B / n."""
    old_share = discount**share
    return old_share * local + (1.0 - old_share) * estimate


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


@dataclass(frozen=True, eq=False)
class StochasticEM(Record):
    """Options of the stochastic solver of :class:`vicinal.LCA` and :class:`vicinal.LCAGauss` (sec. 5 of the paper).

    ``LCA(solver="stochastic")`` and ``LCAGauss(solver="stochastic")`` use the defaults.

    Parameters
    ----------
    batch_size : int, default=100
        The number of rows in a minibatch.
    n_candidates : int, optional
        The number of rows that are drawn at each step as possible neighbours (sec. 5.2). The fewer there are, the
        wider the learned kernel is. By default all rows are candidates, and a sweep visits max(2000, 100 d) rows
        instead of all; the cost is still linear in n, without that bias. For ``partial_fit`` this is the size of the
        sample of rows that is kept (3000 by default).
    discount : float, default=0.6
        The weight of the old covariance after a sweep over the rows (gamma of Eq. 7), at least 0 and less than 1.

    Examples
    --------
    >>> from vicinal import LCA, StochasticEM
    >>> LCA(solver=StochasticEM(batch_size=50)).set_params(solver__discount=0.9).solver
    StochasticEM(batch_size=50, n_candidates=None, discount=0.9)
    """

    batch_size: int = 100
    n_candidates: int | None = None
    discount: float = 0.6

    def __post_init__(self) -> None:
        check_integer(self.batch_size, "batch_size")
        if self.n_candidates is not None:
            check_integer(self.n_candidates, "n_candidates", least=2)
        if check_positive(self.discount, "discount", strict=False) >= 1:
            raise ValueError(
                f"discount must be less than 1, got {self.discount:g}: with 1, new rows would have no influence."
            )


class Sweep(NamedTuple):
    """The sizes of a sweep: the rows that it visits (n of Eq. 7), those of a step (B), and their possible neighbours (N)."""

    n_rows: int
    batch_size: int
    n_neighbors: int

    @classmethod
    def of(cls, n: int, d: int, options: StochasticEM, most: int | None) -> Sweep:
        """Return the sizes for n rows of d columns, of which at most `most` fit into memory."""
        if options.n_candidates is None and n > SAMPLE:
            # Departure 4 (LCA): All rows are neighbours in a sweep of fixed size. Nothing is biased then, and with R rows (in
            # place of n in Eq. 7) the cost R n d stays linear in n. R keeps the noise of d(d+1)/2 covariances low.
            # Minibatches are a tenth of it, if more than the user's: moving all rows to a new frame costs O(n d^2) too.
            n_rows = rows_per_sweep(n, d)
            return cls(n_rows, max(options.batch_size, n_rows // 10), min(n, most or n))
        return cls(n, options.batch_size, options.n_candidates or min(n, most or n))

    def minibatches(self, problem: LeaveOneOut, rng: np.random.Generator) -> Iterator[Minibatch]:
        """Yield the steps of one sweep."""
        n = len(problem.weight)
        shuffled = n <= _PERMUTED or self.n_rows == n
        order = rng.permutation(n)[: self.n_rows] if shuffled else rng.choice(n, self.n_rows, replace=False)
        for start in range(0, self.n_rows, self.batch_size):
            yield Minibatch(problem, order[start : start + self.batch_size], self.neighbors(n, rng))

    def neighbors(self, n: int, rng: np.random.Generator) -> np.ndarray | None:
        """Return the possible neighbours of a step, drawn from n rows; None if they are all rows."""
        return None if self.n_neighbors >= n else np.sort(rng.choice(n, self.n_neighbors, replace=False, shuffle=False))


def rows_per_sweep(n: int, d: int) -> int:
    """Return R of a sweep in which all n rows are neighbours."""
    return n if n <= SAMPLE else min(n, max(2000, 100 * d))


class Sweepable(Protocol):
    """What is learned by sweeps: parameters that follow from a local covariance."""

    @property
    def problem(self) -> LeaveOneOut:
        """The rows that are drawn."""

    def at(self, local: np.ndarray) -> Any:
        """Return the parameters of a local covariance: the M-step."""

    def local_of(self, parameters: Any) -> np.ndarray:
        """Return a local covariance that has these parameters, without the penalty's share."""

    def em_statistics(self, parameters: Any, batch: Minibatch) -> tuple[float, np.ndarray]:
        """Return the objective of a minibatch at the parameters, and its local covariance."""

    def fit_sample(self, start: Any, size: int, rng: np.random.Generator) -> Any:
        """Return the parameters of the exact fit to a sample of rows, or the start if there are none."""

    def fit_terms(self, start: Any, batch: Minibatch) -> Any:
        """Return the parameters of the fit to a minibatch, or the start if there are none."""


def sweep_path(
    model: Sweepable,
    local: np.ndarray,
    record: Recorder,
    sweep: Sweep,
    rng: np.random.Generator,
    *,
    discount: float,
    max_iter: int,
    tol: float,
) -> FitPath:
    """Sweep until two successive sweeps gain no more than `tol` on rows that are set aside for this measurement.

    Parameters
    ----------
    model : Sweepable
    local : array of shape (d, d)
        The local covariance to start from, without the penalty's share.

    Returns
    -------
    FitPath
        The parameters are those of the best sweep; its objectives are those of the measuring rows after
        each sweep.
    """
    problem, n = model.problem, len(model.problem.weight)
    measured = np.sort(rng.choice(n, min(_MONITORED, n), replace=False))
    drawn = None if sweep.n_neighbors >= n else np.sort(rng.choice(n, sweep.n_neighbors, replace=False))
    monitored = Minibatch(problem, measured, drawn)
    parameters = model.at(local)
    record.begin(parameters, model.em_statistics(parameters, monitored)[0])

    def play(parameters: Any, scale: float) -> tuple[Any, float]:
        nonlocal local
        for batch in sweep.minibatches(problem, rng):
            _, estimate = model.em_statistics(parameters, batch)
            local = blend(local, estimate, discount, problem.weight[batch.terms].sum() / sweep.n_rows)
            parameters = model.at(local)
        return parameters, model.em_statistics(parameters, monitored)[0]

    return climb_by_rounds(play, parameters, record, max_iter=max_iter, tol=tol, name="sweeps")


def stochastic_path(
    model: Sweepable,
    start: Any,
    record: Recorder,
    options: StochasticEM,
    rng: np.random.Generator,
    *,
    warm: bool,
    most: int | None = None,
    **limits: Any,
) -> FitPath:
    """Fit by sweeps over minibatches.

    Parameters
    ----------
    model : Sweepable
    start : object
        The initial parameters.
    record : Recorder
    options : StochasticEM
    warm : bool
        Whether to improve the start by fits to samples first.
    most : int, optional
        The number of rows that fit into memory, if they are in a file.
    limits
        ``max_iter, tol`` of `sweep_path`.
    """
    n, d = model.problem.rows.shape
    sweep = Sweep.of(n, d, options, most)
    if warm:
        start = model.fit_sample(start, options.n_candidates or min(SAMPLE, most or n), rng)
        if options.n_candidates is None and n > SAMPLE:
            # A kernel learned with N neighbours is too wide for n (sec. 5.2), so a fit to a sample of terms with all rows as
            # neighbours (or as many as fit into memory) follows.
            terms = np.sort(rng.choice(n, min(max(2000, 20 * d), n), replace=False))
            start = model.fit_terms(start, Minibatch(model.problem, terms, sweep.neighbors(n, rng)))
    return sweep_path(model, model.local_of(start), record, sweep, rng, discount=options.discount, **limits)


# -- what is learned: the metrics of LCA, and the directions of LCA-Gauss -------------------------------------

# A kernel learned on this many rows costs a fraction of a sweep; it is also the number of neighbours that are drawn if the
# user does not specify it.
SAMPLE = 3000
_START: dict[str, Any] = {"max_iter": 50, "tol": 1e-3}
# Passes of LCA-Gauss's fit to a sample. Directions that are nearly Gaussian make EM slow, and sweeps would be slower.
_SAMPLE_PASSES = 200


class Metrics(NamedTuple):
    """The metrics of LCA as what is learned by sweeps; see `Sweepable`."""

    problem: LeaveOneOut
    reg: Penalty
    structure: Structure

    def at(self, local: np.ndarray) -> np.ndarray:
        """Return the metric of a local covariance."""
        return metric_of(local, self.reg, self.structure)

    def local_of(self, parameters: np.ndarray) -> np.ndarray:
        """Return the local covariance of a metric."""
        return self.reg.local_part(np.linalg.inv(parameters.T @ parameters))

    def em_statistics(self, parameters: np.ndarray, batch: Minibatch) -> tuple[float, np.ndarray]:
        """Return the objective and the local covariance of a minibatch."""
        log_mean, local = batch.neighbors(parameters)
        return log_mean + log_norm(parameters) - self.reg.cost(parameters), local

    def fit_sample(self, start: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
        """Return the metric of the exact fit to a sample of rows (or to all rows, if there are no more), if these are not too few.

        The paper starts from the covariance of the data, from where Eq. 7 needs dozens of sweeps.
        """
        # Departure 3 (LCA): Stochastic fits start from a sample.
        size = min(size, len(self.problem.rows))
        if size <= 4 * len(start):
            return start
        sample = np.sort(rng.choice(len(self.problem.rows), size, replace=False))
        return self.fit_terms(start, some_rows(self.problem, sample))

    def fit_terms(self, start: np.ndarray, batch: Minibatch | LeaveOneOut) -> np.ndarray:
        """Return the metric of the fit to a minibatch; a fit to a sample may collapse even if the fit to all rows does not."""
        steps, at = Steps(self.reg, self.structure, start), Point(start, batch)
        try:
            path = accelerated_fixed_point(steps.displacement, steps.move, at, Recorder(), **_START)
        except CollapseError:
            return start
        return path.finished().metric


class Splits(NamedTuple):
    """The directions of LCA-Gauss as what is learned by sweeps; see `Sweepable`."""

    rows: GaussRows
    reg: Penalty
    reduce: bool = False  # whether the fit to a sample searches for the number of local directions
    n_local: int | None = None  # their number, if it is given

    @property
    def problem(self) -> LeaveOneOut:
        """The whitened rows."""
        return self.rows.whitened

    @property
    def _whitened_reg(self) -> Penalty:
        return self.reg.in_frame(self.rows.root)

    def at(self, local: np.ndarray) -> Split:
        """Return the directions of a local covariance."""
        matrix = self._whitened_reg.updated(local)
        return all_local(len(matrix), self.n_local).following(matrix)

    def local_of(self, parameters: Split) -> np.ndarray:
        """Return a local covariance with these directions.

        Along a Gaussian direction, on which the choice of neighbours does not depend, the scatter of neighbours is twice the
        covariance.
        """
        twice = parameters.gaussian @ parameters.gaussian.T
        return self._whitened_reg.local_part(parameters.kernel_covariance + twice)

    def em_statistics(self, parameters: Split, batch: Minibatch) -> tuple[float, np.ndarray]:
        """Return the objective and the local covariance of a minibatch.

        The Gaussian's term is that of all rows, which is known without a pass.
        """
        log_likelihood, local, _ = self.rows._replace(whitened=batch).em_statistics(parameters)
        if len(parameters.variances) == 0:  # see departure 6: all directions stay Gaussian
            local = self.local_of(parameters)
        return log_likelihood - penalty_of_directions(self.reg, *parameters.directions(self.rows.root)), local

    def fit_sample(self, start: Split, size: int, rng: np.random.Generator) -> Split:
        """Return the directions of the exact fit to a sample of rows, of at least 3000 if there are so many."""
        # Departure 8 (LCAGauss): Stochastic fits start from a sample, on which LCA-Gauss-Red searches. Sweeps are measured on too few
        # rows to compare numbers of directions by them.
        n = len(self.problem.weight)
        sample = some_rows(self.problem, np.sort(rng.choice(n, min(max(size, SAMPLE), n), replace=False)))

        def run(at: GaussPoint, tol: float) -> FitPath:
            return run_em(at, self.reg, Recorder(), max_iter=_SAMPLE_PASSES, tol=tol, relaxed=True)

        at = GaussPoint(start, self.rows._replace(whitened=sample))
        path = run(at if start.n_local is None else em_step(at, self.reg)[1], ROUGH)
        if self.reduce and not path.reason.by_user:
            path = search_directions(run, path, ROUGH, sample.weight.sum())
        return path.finished().split

    def fit_terms(self, start: Split, batch: Minibatch) -> Split:
        """Return the directions of the fit to a minibatch."""
        at = GaussPoint(start, self.rows._replace(whitened=batch))
        return run_em(at, self.reg, Recorder(), **_START, relaxed=True).finished().split


# -- levels --------------------------------------------------------------------------------------------

# The maximum number of pairs in a pass of an exact fit. Such a pass takes seconds on two cores, and the accelerated solver
# needs 10 to 30 of them.
EXACT_PAIRS = 2e9
# From this number of rows on, an exact fit starts from a fit to some of its rows, and from the other one, from fits to samples.
COARSE_FROM_ROWS, LEVELS_FROM_ROWS = 2000, 20_000
# The number of rows of the first sample, of which a dense pass takes tens of milliseconds, and the growth factor of samples.
FIRST_LEVEL, GROWTH = 5000, 4
# The fit to a sample is only a start: this tolerance, in nats per row, is below the gain from the rows of the next sample.
_LEVEL: dict[str, Any] = {"max_iter": 50, "tol": 1e-4}


def level_sizes(n: int) -> list[int]:
    """Return the number of rows of each level before the last, which has all n; empty if n is hardly more than the first.

    The last of them has half of the rows if the one before it has less than a fourth: structure that appears only in so dense
    a sample (such as rows on a lattice) then costs passes over half of the rows instead of all.
    """
    sizes, size = [], FIRST_LEVEL
    while GROWTH * size <= 2 * n:
        sizes.append(size)
        size *= GROWTH
    return [*sizes, n // 2] if sizes and GROWTH * sizes[-1] < n else sizes


def narrowed(metric: np.ndarray, n_old: int, n_new: int, reg: Penalty | None = None) -> np.ndarray:
    """Return the metric of a sample of n_old rows for n_new of them: its covariance, beyond the penalty, is narrowed."""
    factor = (n_old / n_new) ** (2.0 / (len(metric) + 4.0))
    if reg is None or reg.is_zero:
        return metric / np.sqrt(factor)
    inverse = np.linalg.inv(metric)
    return inverse_root(reg.updated(factor * reg.local_part(inverse @ inverse.T)))


def exact_is_affordable(problem: LeaveOneOut, steps: Steps, start: np.ndarray) -> bool:
    """Return whether an exact pass at the best metric is expected to visit few pairs: a function of the rows and parameters alone.

    The metric is that of a sample, narrowed to all rows; the share of the pairs is counted on a sample of rows.
    """
    n = len(problem.rows)
    size = min(FIRST_LEVEL, n)
    metric = _fit_level(_sample(problem, size), steps, start).parameters.metric
    share = problem.pairs.at(narrowed(metric, size, n, steps.reg)).expected_share
    return share * float(n) ** 2 <= EXACT_PAIRS


def coarse_start(problem: LeaveOneOut, steps: Steps, start: np.ndarray, report: Callable[[str], None]) -> np.ndarray:
    """Return a metric close to the best for all rows, from a start at any distance; that start if there are few rows.

    The likelihood of a few rows under all others has its maximum close to that of all rows; for many rows, a pass over a sample
    is cheaper.
    """
    n, metric = len(problem.rows), start
    if COARSE_FROM_ROWS <= n <= LEVELS_FROM_ROWS:
        terms = np.sort(np.random.default_rng(0).permutation(n)[: min(max(200, 20 * len(start)), n)])
        return Metrics(problem, steps.reg, steps.structure).fit_terms(start, Minibatch(problem, terms))
    sizes = [*level_sizes(n), n] if n > LEVELS_FROM_ROWS else [n]
    for size, following in pairwise(sizes):
        began, sample = time.perf_counter(), _sample(problem, size)
        path = _fit_level(sample, steps, metric)
        report(
            f"{size} rows: {path.n_iter} passes to {path.objectives[-1]:.6f} nats per row in "
            f"{time.perf_counter() - began:.1f} s"
        )
        metric = narrowed(path.parameters.metric, size, following, steps.reg)
    return metric


def _sample(problem: LeaveOneOut, size: int) -> LeaveOneOut:
    """Return the problem of a number of rows, the same ones in every fit, because a start need not be random."""
    chosen = np.random.default_rng(0).permutation(len(problem.rows))[:size]
    return some_rows(problem, np.sort(chosen))


def _fit_level(problem: LeaveOneOut, steps: Steps, start: np.ndarray) -> FitPath:
    path = accelerated_fixed_point(steps.displacement, steps.move, Point(start, problem), Recorder(), **_LEVEL)
    path.finished()
    return path


# -- streams -------------------------------------------------------------------------------------------


class Stream:
    """A uniform sample of the rows seen (a reservoir), the local covariance learned from them, and their number.

    Parameters
    ----------
    reservoir : array of shape (r, d)
        The rows that are used as neighbours and as components of the density; at most `size`.
    local : array of shape (d, d)
        The local covariance, without the penalty's share.
    seen : int
        The number of rows seen so far.
    size : int
    seed : int
        Together with the number of rows seen, it determines the next draws, so that no other state is needed.
    """

    def __init__(self, reservoir: np.ndarray, local: np.ndarray, seen: int, size: int, seed: int) -> None:
        self.local, self.seen, self.size, self.seed = local, seen, size, seed
        self.rng = np.random.default_rng([seed, seen])
        self.reservoir = reservoir if len(reservoir) <= size else self.rng.permutation(reservoir)[:size]

    def learn(
        self, batch: np.ndarray, *, reg: Penalty, structure: Structure, discount: float, engine: Engine | str | None
    ) -> float:
        """Learn from a minibatch; return its objective per row before that.

        The neighbours of its rows are the other rows and the reservoir. The exponent of Eq. 7 is B / n, where n is the
        number of rows seen so far, so that early rows do not have more weight than late ones.
        """
        # Departure 5 (LCA): A stream counts the rows seen so far. It has no n, and no set of all rows to draw neighbours from.
        points = np.concatenate([self.reservoir, batch])
        terms = np.arange(len(self.reservoir), len(points))
        problem = leave_one_out(points, None, engine, n_queries=len(batch))
        model = Metrics(problem, reg, structure)
        objective, estimate = model.em_statistics(model.at(self.local), Minibatch(problem, terms))
        self.local = blend(self.local, estimate, discount, len(batch) / (self.seen + len(batch)))
        self._remember(batch)
        return objective

    def _remember(self, batch: np.ndarray) -> None:
        """Apply Algorithm R: every row seen is in the reservoir with the same probability."""
        room = self.size - len(self.reservoir)
        self.reservoir = np.concatenate([self.reservoir, batch[:room]])
        self.seen += len(batch)
        late = batch[room:]
        # Row number t (counted from 1) takes the place of a random one with probability size / t.
        places = self.rng.integers(np.arange(self.seen - len(late), self.seen) + 1)
        for row, place in zip(late, places, strict=True):
            if place < self.size:
                self.reservoir[place] = row
