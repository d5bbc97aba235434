"""Starts of exact fits to many rows: fits to samples, each narrowed to suit the number of rows of the next.

In the first passes of a fit that starts at the data's covariance, kernels are so wide that every pair matters and none can
be skipped.  A fit to a sample is cheap, and its kernel is nearly that of all rows except for its size: the variances of the
best kernel decrease with the number of rows n as ``n^(-2/(d+4))``.
"""

import time
from collections.abc import Callable

import numpy as np

from vicinal._fit_loops import FitPath, Reason, Recorder
from vicinal._kernel_penalty import Penalty
from vicinal._lca.accelerated import accelerated_fixed_point
from vicinal._lca.steps import Steps, Structure, inverse_root, one_pass
from vicinal._leave_one_out import LeaveOneOut, some_rows

# The number of rows of the first sample, of which a dense pass takes tens of milliseconds, and the growth factor of samples.
FIRST_LEVEL, GROWTH = 5000, 4
# The fit to a sample is only a start: this tolerance, in nats per row, is below the gain from the rows of the next sample.
_LEVEL_TOL, _LEVEL_PASSES = 1e-4, 50


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


def predicted_pairs(problem: LeaveOneOut, start: np.ndarray, structure: Structure, reference: np.ndarray) -> float:
    """Return the pairs that an exact pass at the best metric is expected to visit: a function of the rows and parameters alone.

    The metric is that of a sample, narrowed to all rows; the share of the pairs is counted on a sample of rows.
    """
    n = len(problem.rows)
    size = min(FIRST_LEVEL, n)
    metric = _fit_level(_sample(problem, size), start, structure, reference).parameters
    share = problem.pairs.at(narrowed(metric, size, n, problem.reg)).expected_share
    return share * float(n) ** 2


def multilevel_start(
    problem: LeaveOneOut, start: np.ndarray, structure: Structure, reference: np.ndarray,
    say: Callable[[str], None] | None = None,
) -> np.ndarray:  # fmt: skip
    """Return a metric close to the best for all rows, from a start at any distance."""
    n, metric = len(problem.rows), start
    sizes = level_sizes(n)
    for size, following in zip(sizes, [*sizes[1:], n], strict=True):
        began, sample = time.perf_counter(), _sample(problem, size)
        path = _fit_level(sample, metric, structure, reference)
        if say is not None:
            say(
                f"{size} rows: {path.n_iter} passes to {path.objectives[-1]:.6f} nats per row in "
                f"{time.perf_counter() - began:.1f} s; the last visited about "
                f"{100 * sample.pairs.at(path.parameters).expected_share:.2g}% of the pairs"
            )
        metric = narrowed(path.parameters, size, following, problem.reg)
    return metric


def _sample(problem: LeaveOneOut, size: int) -> LeaveOneOut:
    """Return the problem of a number of rows, the same ones in every fit, because a start need not be random."""
    chosen = np.random.default_rng(0).permutation(len(problem.rows))[:size]
    return some_rows(problem, np.sort(chosen))


def _fit_level(problem: LeaveOneOut, start: np.ndarray, structure: Structure, reference: np.ndarray) -> FitPath:
    steps = Steps(lambda metric: one_pass(problem, metric), structure, start, reference)
    path = accelerated_fixed_point(
        steps.displacement, steps.move, start, Recorder(), max_iter=_LEVEL_PASSES, tol=_LEVEL_TOL
    )
    if path.reason is Reason.INTERRUPTED:  # before the first pass over all rows, there is no result to keep
        raise KeyboardInterrupt
    return path
