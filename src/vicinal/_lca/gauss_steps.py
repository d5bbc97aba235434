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

from vicinal._fit_loops import FitPath, Reason, Recorder, fixed_point
from vicinal._lca.steps import COLLAPSE, CollapseError, Penalty, inverse_root
from vicinal._leave_one_out import EMStatistics, IncompleteRows, mean_of_rows, scatter_of_rows
from vicinal._mixtures import LOG_2PI
from vicinal._row_sources import ArrayRows, RowsFile, in_file

# Runs that differ by less need not be distinguished: the best one is continued to the user's tolerance. (With 1e-4, some
# runs stop on a plateau.)
ROUGH = 1e-5


class Split(NamedTuple):
    """Which directions are local: orthonormal columns (in whitened coordinates), and kernel variances < 1."""

    local: np.ndarray  # (d, d2)
    variances: np.ndarray  # (d2,), ascending; they may exceed 1 if the user asks for so many directions
    gaussian: np.ndarray  # (d, d1)
    n_local: int | None = None  # how many directions the steps from here make local; None for Proposition 1

    @property
    def metric(self) -> np.ndarray:
        """The map of whitened rows to local coordinates, in which the kernel's covariance is the identity; shape (d2, d).

        If there is no local direction, all rows are equally near, and the map is zero.
        """
        if len(self.variances) == 0:
            return np.zeros((1, len(self.local)))
        return (self.local / np.sqrt(self.variances)).T

    @property
    def kernel_covariance(self) -> np.ndarray:
        """The kernel's covariance in whitened coordinates, 1 along Gaussian directions."""
        return np.eye(len(self.local)) - (self.local * (1.0 - self.variances)) @ self.local.T

    def directions(self, root: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the Gaussian and the local directions in the coordinates of the data: the rows of B_G' and of B_L'."""
        return self.gaussian.T @ root, self.metric[: len(self.variances)] @ root

    def transferred(self, moved: int) -> "Split":
        """Return the split in which the `moved` local directions with the largest kernel variances are Gaussian."""
        n_local = len(self.variances) - moved
        gaussian = np.concatenate([self.local[:, n_local:], self.gaussian], axis=1)
        return self._replace(local=self.local[:, :n_local], variances=self.variances[:n_local], gaussian=gaussian)

    def following(self, matrix: np.ndarray) -> "Split":
        """Return the split that follows from M_2: Proposition 1, or its most local directions if their number is given."""
        # Departure 5 (LCAGauss): The cut is that of Proposition 1. Algorithm 1's is off by one.
        values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
        if values[0] < COLLAPSE:
            raise CollapseError
        n_local = int(np.searchsorted(values, 1.0)) if self.n_local is None else self.n_local
        return self._replace(local=vectors[:, :n_local], variances=values[:n_local], gaussian=vectors[:, n_local:])


class GaussRows(NamedTuple):
    """Complete rows in coordinates where the Gaussian's covariance is the identity."""

    whitened: Any  # LeaveOneOut or Minibatch of the rows w = R (x - mu)
    root: np.ndarray  # (d, d), R with R (C_G + R_G) R' = I
    mean: np.ndarray  # (d,)

    def em_statistics(self, split: Split) -> EMStatistics:
        """Return the log-likelihood per row, less the Gaussian's penalty, and the local covariance C_L in whitened coordinates."""
        if len(split.variances) == 0:  # no direction is left to see neighbours in: all are equally near
            return EMStatistics(self.log_likelihood_of_gaussian(split), np.eye(len(self.root)), self)
        # Departure 3 (LCAGauss): The E-step uses the local directions.
        # Departure 2 (LCAGauss): Equation 5 bounds a mean.
        log_mean, local = self.whitened.neighbors(split.metric)
        return EMStatistics(log_mean + self.log_likelihood_of_gaussian(split), local, self)

    def log_likelihood_of_gaussian(self, split: Split) -> float:
        """Return everything except the neighbours' term: log-norms, the Gaussian's exponent and its penalty."""
        d = len(self.root)
        # Departure 1 (LCAGauss): The density is normalised by the determinant itself.
        log_norm = np.linalg.slogdet(self.root)[1] - 0.5 * np.log(split.variances).sum() - 0.5 * d * LOG_2PI
        # tr B_G' M_1 B_G = d1: the mean exponent and the Gaussian's penalty together.
        return float(log_norm - 0.5 * split.gaussian.shape[1])


class GaussGaps(NamedTuple):
    """Rows with gaps: each pass fills them in again, which also changes the Gaussian."""

    filled: IncompleteRows  # in the coordinates of the data
    reg_gauss: np.ndarray  # (d, d), R_G
    root: np.ndarray
    mean: np.ndarray

    def em_statistics(self, split: Split) -> EMStatistics:
        """Return what `GaussRows.em_statistics` returns, for the known values, in the whitened coordinates of the next pass."""
        gaussian, local = split.directions(self.root)
        centres, covariance = mixture_of_directions(gaussian, local, self.mean, self.filled.rows)
        expectation = self.filled._replace(rows=centres).expect(covariance)
        log_likelihood = self.filled.mean(expectation.scores)
        log_likelihood -= 0.5 * float(np.sum(self.reg_gauss * (gaussian.T @ gaussian)))
        filled = self.filled._replace(rows=expectation.rows)
        added = expectation.uncertainty / filled.mass
        root = inverse_root(scatter_of_rows(filled.rows, filled.weight) + added + self.reg_gauss)
        following = GaussGaps(filled, self.reg_gauss, root, mean_of_rows(filled.rows, filled.weight))
        if len(split.variances) == 0:
            return EMStatistics(log_likelihood, np.eye(len(root)), following)
        scatter = filled.complete().neighbors(local)[1] + added
        return EMStatistics(log_likelihood, root @ scatter @ root.T, following)

    def left_out_scores(self, split: Split) -> np.ndarray:
        """Return the log-density of the known values of each row under the kernels of the others."""
        centres, covariance = mixture_of_directions(*split.directions(self.root), self.mean, self.filled.rows)
        return self.filled._replace(rows=centres).expect(covariance).scores


class GaussPoint(NamedTuple):
    """A point of a fit: the split, and the problem, which each pass changes if rows have gaps."""

    split: Split
    problem: Any  # GaussRows or GaussGaps

    def transferred(self, moved: int) -> "GaussPoint":
        """Return the point at which the `moved` local directions with the largest kernel variances are Gaussian."""
        return self._replace(split=self.split.transferred(moved))

    def stretched(self, following: "GaussPoint", factor: float) -> "GaussPoint":
        """Return the point beyond EM's next one: its move from here, on the geodesic of covariances, made `factor` times as long.

        This applies only if as many directions stay local as EM keeps; otherwise it is EM's own next point.
        """
        before, after = self.split.kernel_covariance, following.split.kernel_covariance
        values, vectors = np.linalg.eigh(before)
        root, inverse = (vectors * values**power @ vectors.T for power in (0.5, -0.5))
        moved = inverse @ after @ inverse
        values, vectors = np.linalg.eigh(0.5 * (moved + moved.T))
        if values[0] <= 0.0:
            return following
        further = root @ (vectors * values**factor) @ vectors.T @ root
        try:
            split_beyond = self.split.following(further)
        except CollapseError:
            return following
        same = len(split_beyond.variances) == len(following.split.variances)
        return following._replace(split=split_beyond) if same else following


def em_step(at: GaussPoint, reg: Penalty) -> tuple[float, GaussPoint]:
    """Return the penalised objective per row at a point, and the next point.

    .. math::

        F = \\frac1W \\sum_i w_i \\Big( \\log|\\det B| - \\tfrac d2 \\log 2\\pi - \\tfrac12 |B_G'(x_i -
        \\mu)|^2
            + \\log \\Big[ \\frac{1}{W - w_i} \\sum_{j \\ne i} w_j e^{-|B_L'(x_i - x_j)|^2 / 2} \\Big] \\Big)
            - \\tfrac12 \\operatorname{tr} B_G' R_G B_G - \\tfrac12 \\operatorname{tr} B_L' R B_L
    """
    log_likelihood, local, problem = at.problem.em_statistics(at.split)  # C_L of Eq. 5, in whitened coordinates
    objective = log_likelihood - penalty_of_directions(reg, *at.split.directions(at.problem.root))
    if len(at.split.variances) == 0:
        # Departure 6 (LCAGauss): The state in which all directions are Gaussian is absorbing. The scatter of all rows is twice
        # the covariance, so all stay Gaussian.
        return objective, GaussPoint(at.split, problem)
    matrix = reg.in_frame(problem.root).updated(local)
    return objective, GaussPoint(at.split.following(matrix), problem)  # Proposition 1 solves Eq. 6


def run_em(
    at: GaussPoint,
    reg: Penalty,
    record: Recorder,
    *,
    max_iter: int,
    tol: float,
    relaxed: bool = False,
    may_lose: bool = False,
) -> FitPath:
    """Run Algorithm 1 from a point.

    With `relaxed`, moves are lengthened as long as this helps: directions that are nearly Gaussian make EM slow. `may_lose` is that of
    `fixed_point`.
    """
    stretched = GaussPoint.stretched if relaxed else None
    options: dict[str, Any] = {"max_iter": max_iter, "tol": tol, "may_lose": may_lose, "stretched": stretched}
    return fixed_point(lambda at: em_step(at, reg), at, record, **options)


Run = Callable[[GaussPoint, float], FitPath]  # a fit from a point to a tolerance


def all_local(d: int, n_local: int | None = None) -> Split:
    """Return the split whose directions are all local, with the Gaussian's covariance."""
    return Split(np.eye(d), np.ones(d), np.empty((d, 0)), n_local)


def start_of(problem: Any, reg: Penalty, n_local: int | None = None) -> GaussPoint:
    """Return the start of Algorithm 1: all directions are local, or, if their number is given, those that one pass finds most local."""
    start = GaussPoint(all_local(len(problem.root), n_local), problem)
    return start if n_local is None else em_step(start, reg)[1]


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
) -> FitPath:
    """Run LCA-Gauss-Red: make some local directions Gaussian and run again, for the best number of them.

    Each free parameter of a local direction makes the leave-one-out objective too high, by about 1/n nats per row
    (Akaike). The number of directions is chosen by the objective less that, among runs that do not end lower than `path`.

    Parameters
    ----------
    run : callable
        ``path = run(point, tol)``: a run of EM from a point.
    path : FitPath
        The path of EM without the search.
    tol : float
        The tolerance of the last run; the others are compared after runs to a tolerance of 1e-5.
    n : float
        The number of rows.
    rounds : int, optional
        The maximum number of rounds of golden sections; by default they end when a round gains nothing.

    Returns
    -------
    FitPath
        The path of the best split found; its objectives are the best so far, one entry per pass of all runs, of which `n_iter`
        belong to the run that found it.
    """
    best, record, rough = path, [path.objectives], max(tol, ROUGH)

    def worth(round_path: FitPath) -> float:
        if round_path is not path and round_path.objectives[-1] < path.objectives[-1]:
            return -np.inf
        return round_path.objectives[-1] - _n_parameters(round_path.parameters.split) / n

    # Departure 7 (LCAGauss): The search moves the directions of largest kernel variance. They are the most Gaussian-like;
    # this, the score (the penalised leave-one-out objective, corrected) and the bracket (none to all) are our reading.
    for _ in range(rounds) if rounds else count():
        round_path = _golden_round(lambda at: run(at, rough), best, record, worth)
        gained = worth(round_path) - worth(best)
        best = round_path if gained > 0 or round_path.reason.by_user else best
        if gained <= rough or round_path.reason.by_user:
            break
    if best is not path and tol < rough and not best.reason.by_user:
        best = _run_or_keep(lambda: run(best.parameters, tol), best)
        record.append(best.objectives)
    # Runs that were not kept may have been higher.
    every_pass = np.minimum(np.maximum.accumulate(np.concatenate(record)), best.objectives[-1])
    return best._replace(objectives=every_pass, n_passes=len(every_pass))


def _n_parameters(split: Split) -> float:
    """Return the free parameters of the local directions: a subspace and a metric on it."""
    local, d = len(split.variances), max(split.local.shape)
    return local * (d - local) + local * (local + 1) / 2


def _golden_round(
    run: Callable[[Any], FitPath],
    path: FitPath,
    record: list[np.ndarray],
    worth: Callable[[FitPath], float],
) -> FitPath:
    """Return the best of the runs of a golden-section search over the number of transferred directions."""
    start = path.parameters
    tried = {0: path}

    def ended() -> Reason:
        """Return the last reason; after an end by the user there are no further runs."""
        return [*tried.values()][-1].reason

    def value(moved: int) -> float:
        if moved not in tried and not ended().by_user:
            try:
                tried[moved] = _run_or_keep(lambda: run(start.transferred(moved)), path)
                record.append(tried[moved].objectives)
            except CollapseError:
                tried[moved] = path._replace(objectives=np.array([-np.inf]))
        return worth(tried.get(moved, path))

    low, high = 0, len(start.split.variances)
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
