r"""LCA-Gauss's pass over the pairs and its M-step (Proposition 1), as pure functions of arrays.

All computations use coordinates in which the Gaussian's covariance :math:`M_1 = C_G + R_G` is the identity:
``w = R (x - mu)`` with ``R M_1 R' = I``. There Proposition 1 says: take the eigenvalues e and eigenvectors
u of :math:`M_2 = C_L + R`; directions with e >= 1 are Gaussian (unit variance), directions with e < 1
are local, with kernel variance e. In other words, the kernel's covariance is :math:`M_2` with its
eigenvalues limited to 1, and a direction is Gaussian if its eigenvalue reaches the limit.
"""

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from vicinal._engine import Engine, Problem, Work
from vicinal._fit_loops import FitPath, Reason, Recorder
from vicinal._kernel_penalty import Penalty
from vicinal._lca.steps import COLLAPSE, CollapseError
from vicinal._leave_one_out import leave_one_out, mean_of_rows
from vicinal._mixtures import LOG_2PI
from vicinal._row_sources import ArrayRows, RowsFile, in_file

# Runs that differ by less need not be distinguished: the best one is continued to the user's tolerance. (With 1e-4, some
# runs stop on a plateau.)
ROUGH = 1e-5
_LONGEST = 30.0  # factors by which EM's move may be multiplied


class GaussProblem(NamedTuple):
    """The problem: whitened rows, their weights, the penalty, and the pair problem of the engine."""

    rows: np.ndarray  # (n, d), w = R (x - mu), those of positive weight
    weight: np.ndarray  # (n,)
    log_others: np.ndarray
    pairs: Problem  # the pair problem of the whitened rows
    reg: Penalty  # the penalty on the local covariance, in the coordinates of the data
    root: np.ndarray  # (d, d), R


class Split(NamedTuple):
    """Which directions are local: orthonormal columns (in whitened coordinates), and kernel variances < 1."""

    local: np.ndarray  # (d, d2)
    variances: np.ndarray  # (d2,), ascending
    gaussian: np.ndarray  # (d, d1)


Run = Callable[[Any, float], FitPath]  # a fit from a split to a tolerance


def whitened(
    X: np.ndarray,
    weight: np.ndarray | None,
    engine: Engine | str | None,
    reg: Penalty,
    root: np.ndarray,
    work: Work,
) -> tuple[np.ndarray, GaussProblem]:
    """Return the rows in coordinates where the Gaussian's covariance is the identity, and the problem there.

    Parameters
    ----------
    X : array of shape (n, d)
    weight : array of shape (n,), optional
    engine : None, str or Engine
    reg : Penalty
        The penalty on the local covariance.
    root : array of shape (d, d)
        R with ``R M_1 R' = I``.
    work : Work
        The expected work, from which the engine chooses a backend.
    """
    rows = ((X - mean_of_rows(X, weight)) @ root.T).astype(X.dtype, copy=False)
    plain = leave_one_out(rows, weight, engine, reg=reg, n_queries=work.n_queries, passes=work.passes)
    return rows, GaussProblem(plain.rows, plain.weight, plain.log_others, plain.pairs, reg, root)


def all_local(d: int) -> Split:
    """Return the start of Algorithm 1: every direction is local, with the Gaussian's covariance."""
    return Split(np.eye(d), np.ones(d), np.empty((d, 0)))


def split_at_one(matrix: np.ndarray) -> Split:
    """Return the split of Proposition 1: eigenvalues below 1 are local, the others Gaussian."""
    # Departure 5 (LCAGauss): The cut is that of Proposition 1. Algorithm 1's is off by one.
    values, vectors = np.linalg.eigh(matrix)
    if values[0] < COLLAPSE:
        raise CollapseError
    n_local = int(np.searchsorted(values, 1.0))
    return Split(vectors[:, :n_local], values[:n_local], vectors[:, n_local:])


def transfer(split: Split, moved: int) -> Split:
    """Make the `moved` local directions with the largest kernel variances Gaussian."""
    n_local = len(split.variances) - moved
    return Split(
        split.local[:, :n_local],
        split.variances[:n_local],
        np.concatenate([split.local[:, n_local:], split.gaussian], axis=1),
    )


def local_metric(split: Split) -> np.ndarray:
    """Return the map of whitened rows to local coordinates, in which the kernel's covariance is the identity; shape (d2, d).

    If there is no local direction, all rows are equally near, and the map is zero.
    """
    if len(split.variances) == 0:
        return np.zeros((1, len(split.local)))
    return (split.local / np.sqrt(split.variances)).T


def directions(split: Split, root: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the Gaussian and the local directions in the coordinates of the data: the rows of B_G' and of B_L'."""
    return split.gaussian.T @ root, local_metric(split)[: len(split.variances)] @ root


def mixture_of_directions(
    gaussian: np.ndarray, local: np.ndarray, mean: np.ndarray, rows: Any
) -> tuple[Any, np.ndarray]:
    """Return the centres of the mixture, the rows moved to the mean along the Gaussian directions, and its covariance.

    Parameters
    ----------
    gaussian : array of shape (d1, d)
        The rows of B_G'.
    local : array of shape (d2, d)
        The rows of B_L'.
    mean : array of shape (d,)
    rows : array of shape (n, d)
        If they are a memory map, the centres are written to a temporary one.
    """
    inverse = np.linalg.inv(np.concatenate([gaussian, local]))
    projection = inverse[:, len(gaussian) :] @ local
    moved = partial(_moved, mean, projection)
    if not in_file(rows):
        return moved(rows), inverse @ inverse.T
    with RowsFile(rows.shape[1], rows.dtype) as file:
        for block in ArrayRows(rows).blocks():
            file.write(moved(block))
        return file.mapped(), inverse @ inverse.T


def _moved(mean: np.ndarray, projection: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return mean + (rows - mean) @ projection.T


def em_step(problem: GaussProblem, split: Split) -> tuple[float, Split]:
    """Return the penalised objective per row at a split, and the next split.

    .. math::

        F = \\frac1W \\sum_i w_i \\Big( \\log|\\det B| - \\tfrac d2 \\log 2\\pi - \\tfrac12 |B_G'(x_i -
        \\mu)|^2
            + \\log \\Big[ \\frac{1}{W - w_i} \\sum_{j \\ne i} w_j e^{-|B_L'(x_i - x_j)|^2 / 2} \\Big] \\Big)
            - \\tfrac12 \\operatorname{tr} B_G' R_G B_G - \\tfrac12 \\operatorname{tr} B_L' R B_L
    """
    if len(split.variances) == 0:
        # Departure 6 (LCAGauss): The state in which all directions are Gaussian is absorbing. No direction is left to see neighbours in,
        # so all are equally near, their scatter is twice the covariance, and all stay Gaussian.
        return gaussian_part(problem, split), split
    # Departure 3 (LCAGauss): The E-step uses the local directions.
    fit, scatter = _neighbors(problem, local_metric(split))
    matrix = problem.reg.in_frame(problem.root).updated(scatter)
    return float(fit + gaussian_part(problem, split)), split_at_one(0.5 * (matrix + matrix.T))


def _neighbors(problem: GaussProblem, metric: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the neighbours' term of F, and the local scatter per unit of weight."""
    sums, scatter = problem.pairs.at(metric).scatter(problem.weight, space="rows")
    # Departure 2 (LCAGauss): Equation 5 bounds a mean.
    mass = problem.weight.sum()
    return float(problem.weight @ (sums - problem.log_others) / mass), scatter / mass


def stretched(split: Split, following: Split, factor: float) -> Split:
    """Return the split beyond EM's next one: its move from `split`, on the geodesic of covariances, made `factor` times as long.

    This applies only if as many directions stay local as EM keeps; otherwise it is EM's own split.
    """
    before, after = (kernel_covariance(at) for at in (split, following))
    values, vectors = np.linalg.eigh(before)
    root, inverse = (vectors * values**power @ vectors.T for power in (0.5, -0.5))
    moved = inverse @ after @ inverse
    values, vectors = np.linalg.eigh(0.5 * (moved + moved.T))
    if values[0] <= 0.0:
        return following
    further = root @ (vectors * values**factor) @ vectors.T @ root
    try:
        split_beyond = split_at_one(0.5 * (further + further.T))
    except CollapseError:
        return following
    return split_beyond if len(split_beyond.variances) == len(following.variances) else following


def kernel_covariance(split: Split) -> np.ndarray:
    """Return the kernel's covariance in whitened coordinates, 1 along Gaussian directions."""
    return np.eye(len(split.local)) - (split.local * (1.0 - split.variances)) @ split.local.T


def relaxed_em(
    step: Callable[[Split], tuple[float, Split]], split: Split, record: Recorder, *, max_iter: int, tol: float
) -> FitPath:
    """Run EM, ``objective, next split = step(split)``, from a split, with moves that are lengthened as long as this helps (adaptive over-relaxation, Salakhutdinov and
    Roweis, 2003): directions that are nearly Gaussian make EM slow.

    A pass that lowers the objective is undone, and a plain EM step, which cannot lower it, is made instead. The loop ends
    with a plain EM step that gains no more than `tol`.
    """
    with record:
        objective, following = step(split)
        record.add(split, objective, keep=True)
        record.iterated(split)
        factor = 1.0
        while len(record.objectives) < max_iter:
            trial = stretched(split, following, factor) if factor > 1.0 else following
            new_objective, new_following = step(trial)
            gained = new_objective - objective
            overshot = factor > 1.0 and not gained > tol
            record.add(trial, new_objective, keep=not overshot)
            if overshot:
                record.iterated(split)
                factor = 1.0
                continue
            record.iterated(trial)
            if factor == 1.0 and gained <= tol:
                raise record.end(Reason.CONVERGED, f"a pass gained no more than tol={tol:g}")
            split, objective, following = trial, new_objective, new_following
            factor = min(1.5 * factor, _LONGEST)
        raise record.end(Reason.LIMIT, f"max_iter={max_iter} passes were used")
    return record.path()


def gaussian_part(problem: GaussProblem, split: Split) -> float:
    """Return everything in F except the neighbours' term: log-norms, the Gaussian's exponent, the penalties."""
    d = problem.rows.shape[1]
    # Departure 1 (LCAGauss): The density is normalised by the determinant itself.
    log_norm = np.linalg.slogdet(problem.root)[1] - 0.5 * np.log(split.variances).sum() - 0.5 * d * LOG_2PI
    # tr B_G' M_1 B_G = d1: the mean exponent and the Gaussian's penalty together.
    exponent = -0.5 * split.gaussian.shape[1]
    return float(log_norm + exponent - penalty_of_directions(problem.reg, *directions(split, problem.root)))


def penalty_of_directions(reg: Penalty, gaussian: np.ndarray, local: np.ndarray) -> float:
    """Return the penalty of the local covariance at the rows of B_G' and of B_L'.

    A penalty with a target is that of w additional rows per row, whose local covariance is T and whose Gaussian covariance is the
    data's own, so that it does not favour either kind of direction. Proposition 1 then holds with its M-step.
    """
    pull = 0.5 * float(np.vdot(local @ reg.added, local))
    if reg.weight is None:
        return pull
    log_det = float(np.linalg.slogdet(np.concatenate([gaussian, local]))[1])
    return pull + reg.weight * (0.5 * len(gaussian) - log_det)


def search_directions(
    run: Run,
    path: FitPath,
    tol: float,
    n: float,
    rounds: int | None = None,
    move: Callable[[Any, int], Any] | None = None,
) -> FitPath:
    """Run LCA-Gauss-Red: make some local directions Gaussian and run again, for the best number of them.

    Each free parameter of a local direction makes the leave-one-out objective too high, by about 1/n nats per row
    (Akaike). The number of directions is chosen by the objective less that, among runs that do not end lower than `path`.

    Parameters
    ----------
    run : callable
        ``path = run(split, tol)``: a run of `relaxed_em` from a split.
    path : FitPath
        The path of EM without the search.
    tol : float
        The tolerance of the last run; the others are compared after runs to a tolerance of 1e-5.
    n : float
        The number of rows.
    rounds : int, optional
        The maximum number of rounds of golden sections; by default they end when a round gains nothing.
    move : callable, optional
        ``split = move(split, moved)``: `transfer`, or the same for another kind of split.

    Returns
    -------
    FitPath
        The path of the best split found; its objectives are the best so far, one entry per pass of all runs.
    """
    best, record, rough = path, [path.objectives], max(tol, ROUGH)

    def worth(round_path: FitPath) -> float:
        if round_path is not path and round_path.objectives[-1] < path.objectives[-1]:
            return -np.inf
        return round_path.objectives[-1] - _n_parameters(round_path.parameters) / n

    # Departure 7 (LCAGauss): The search moves the directions of largest kernel variance. They are the most Gaussian-like;
    # this, the score (the penalised leave-one-out objective, corrected) and the bracket (none to all) are our reading.
    for _ in range(rounds) if rounds else count():
        round_path = _golden_round(lambda split: run(split, rough), best, record, worth, move or transfer)
        gained = worth(round_path) - worth(best)
        best = round_path if gained > 0 or round_path.reason.by_user else best
        if gained <= rough or round_path.reason.by_user:
            break
    if best is not path and tol < rough and not best.reason.by_user:
        best = _run_or_keep(lambda: run(best.parameters, tol), best)
        record.append(best.objectives)
    # Runs that were not kept may have been higher.
    every_pass = np.minimum(np.maximum.accumulate(np.concatenate(record)), best.objectives[-1])
    return best._replace(objectives=every_pass, n_iter=len(every_pass))


def _n_parameters(split: Split) -> float:
    """Return the free parameters of the local directions: a subspace and a metric on it."""
    local, d = len(split.variances), max(split.local.shape)
    return local * (d - local) + local * (local + 1) / 2


def _golden_round(
    run: Callable[[Any], FitPath],
    path: FitPath,
    record: list[np.ndarray],
    worth: Callable[[FitPath], float],
    move: Callable[[Any, int], Any],
) -> FitPath:
    """Return the best of the runs of a golden-section search over the number of transferred directions."""
    split = path.parameters
    tried = {0: path}

    def ended() -> Reason:
        """Return the last reason; after an end by the user there are no further runs."""
        return [*tried.values()][-1].reason

    def value(moved: int) -> float:
        if moved not in tried and not ended().by_user:
            try:
                tried[moved] = _run_or_keep(lambda: run(move(split, moved)), path)
                record.append(tried[moved].objectives)
            except CollapseError:
                tried[moved] = path._replace(objectives=np.array([-np.inf]))
        return worth(tried.get(moved, path))

    low, high = 0, len(split.variances)
    while high - low > 2 and not ended().by_user:
        left = low + round(0.382 * (high - low))
        right = max(low + round(0.618 * (high - low)), left + 1)
        low, high = (left, high) if value(left) < value(right) else (low, right)
    for moved in range(low, high + 1):
        value(moved)
    return max(tried.values(), key=worth).ended_by(ended())


def _run_or_keep(run: Callable[[], FitPath], path: FitPath) -> FitPath:
    """Return a run's path, or the known path, marked as interrupted, if the run is interrupted before its first pass ends."""
    try:
        return run()
    except KeyboardInterrupt:
        return path._replace(objectives=path.objectives[-1:]).ended_by(Reason.INTERRUPTED)
