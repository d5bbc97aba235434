"""One recorder for all fit loops, and four loops: a fixed point, the same accelerated, an ascent by gradients, and rounds of random steps.

A loop is a plain function that reports to a `Recorder` and returns the recorder's `FitPath`::

    with record:
        for _ in range(max_iter):
            objective, following = step(parameters)          # one pass over the pairs
            record.add(parameters, objective)                # the path, the best point, the progress
            record.iterated(parameters)                      # the user's callback
            if objective - before <= tol:
                raise record.end(Reason.CONVERGED, f"a pass gained no more than tol={tol:g}")
            parameters = following
        raise record.end(Reason.LIMIT, f"max_iter={max_iter} passes were used")
    return record.path()

The recorder ends the ``with`` block when the loop raises its end, when the callback raises StopIteration, and when
the user interrupts the fit (KeyboardInterrupt) after a point was kept. The loops print nothing and do not depend on estimators.
"""

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from itertools import count
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from vicinal._callers import callers_line
from vicinal._checks import check_verbose

_MEMORY = 10  # the number of secants of a quasi-Newton step
_LONGEST = 30.0  # the largest factor by which a fixed point's move is lengthened

# What the user passes as `callback`: called with the parameters of an iteration and the number of iterations.
Callback = Callable[[np.ndarray, int], Any]


class Reason(Enum):
    """The reason why a fit loop ended; the value is the default clause for messages."""

    CONVERGED = "the tolerance was reached"
    LIMIT = "all passes were used"
    CALLBACK = "the callback stopped it"
    INTERRUPTED = "it was interrupted"

    @property
    def by_user(self) -> bool:
        """Whether the user ended the loop, so that the whole fit ends."""
        return self in (Reason.CALLBACK, Reason.INTERRUPTED)


class FitPath(NamedTuple):
    """The result of a fit loop.

    Attributes
    ----------
    parameters : the parameters that were kept: the best ones found.
    objectives : the objective after each pass, followed by that of `parameters` if they are not from the last pass.
    n_iter : the number of iterations: of passes, except in `ascend`, whose iterations may need several passes.
    reason : why the loop ended.
    clause : the same in words, for messages.
    more : fitted attributes that only this loop has, by name.
    n_passes : the number of passes over the pairs, including line searches.
    """

    parameters: Any
    objectives: np.ndarray
    n_iter: int
    reason: Reason
    clause: str
    more: Mapping = MappingProxyType({})
    n_passes: int = 0

    @property
    def converged(self) -> bool:
        """Whether the tolerance was reached."""
        return self.reason is Reason.CONVERGED

    def finished(self) -> Any:
        """Return the parameters of a fit to a part of the rows; if the user interrupts it, there is no result to keep."""
        if self.reason is Reason.INTERRUPTED:
            raise KeyboardInterrupt
        return self.parameters

    def ended_by(self, reason: Reason) -> Self:
        """Return the path of a fit that the user ended for this reason; the path as it is for other reasons."""
        return self._replace(reason=reason, clause=reason.value) if reason.by_user else self


class Recorder:
    """The bookkeeping of a fit loop: best point, path of the objective, progress, callback, interruption, reason.

    Parameters
    ----------
    report : callable, optional
        ``report(passes, objective)`` follows each pass; see `progress`.
    callback : callable, optional
        The user's ``callback(vector, iterations)`` follows each iteration; it may raise StopIteration.
    as_vector : callable
        Converts the loop's parameters to the argument of the callback, of any shape.
    iterations : iterator of int, optional
        Counts the iterations for the callback if one fit runs several loops; the default counts from 1.

    Attributes
    ----------
    kept : the parameters to return; None before there are any.
    objective : float
        The objective at these parameters.
    objectives : list of float
        One entry per pass.
    n_iterations : int
        The number of iterations.
    """

    def __init__(
        self,
        report: Callable[[int, float], None] | None = None,
        callback: Callback | None = None,
        as_vector: Callable[[Any], np.ndarray] = np.asarray,
        iterations: Iterator[int] | None = None,
    ) -> None:
        self.kept: Any = None
        self.objective = -np.inf
        self.objectives: list[float] = []
        self.n_iterations = 0
        self._report, self._callback, self._as_vector = report, callback, as_vector
        self._iterations = count(1) if iterations is None else iterations
        self._has_point = False
        self._reason, self._clause = Reason.LIMIT, Reason.LIMIT.value

    @classmethod
    def of(
        cls,
        estimator: Any,
        as_vector: Callable[[Any], np.ndarray] = np.asarray,
        iterations: Iterator[int] | None = None,
    ) -> Self:
        """Return the recorder for an estimator with a `callback` and perhaps a `verbose`."""
        report = progress(type(estimator).__name__, getattr(estimator, "verbose", False))
        return cls(report, estimator.callback, as_vector, iterations)

    def begin(self, parameters: Any, objective: float) -> None:
        """Keep a start whose objective is known before the first pass."""
        self._keep(parameters, float(objective))

    def add(self, parameters: Any, objective: float, *, keep: bool | None = None) -> bool:
        """Record a pass: the parameters and the objective at them.

        Parameters
        ----------
        keep : bool, optional
            Whether these parameters replace the ones that were kept. By default they do when their objective is
            higher; the first ones always do.

        Returns
        -------
        bool
            Whether they were kept.
        """
        objective = float(objective)
        better = objective > self.objective if keep is None else keep
        if better or not self._has_point:
            self._keep(parameters, objective)
            better = True
        self.objectives.append(objective)
        if self._report is not None:
            self._report(len(self.objectives), objective)
        return bool(better)

    def _keep(self, parameters: Any, objective: float) -> None:
        # An objective that is NaN counts as lower than any other, because a comparison with it would never be true.
        self.kept, self.objective, self._has_point = parameters, -np.inf if np.isnan(objective) else objective, True

    def iterated(self, parameters: Any) -> None:
        """Count an iteration, and call the callback with a copy of the parameters as a vector."""
        self.n_iterations += 1
        if self._callback is not None:
            vector = np.array(self._as_vector(parameters), dtype=np.float64).ravel()
            try:
                self._callback(vector, next(self._iterations))
            except StopIteration:
                raise self.end(Reason.CALLBACK) from None

    def end(self, reason: Reason, clause: str | None = None) -> "_EndError":
        """Record why the loop ends; the loop raises the returned exception to leave the ``with`` block from any depth."""
        self._reason, self._clause = reason, reason.value if clause is None else clause
        return _EndError()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if kind is not None and issubclass(kind, KeyboardInterrupt) and self._has_point:
            self.end(Reason.INTERRUPTED)
            return True
        return kind is _EndError

    def path(self) -> FitPath:
        """Return the result of the loop; the last objective belongs to the parameters."""
        objectives = list(self.objectives)
        if not objectives or objectives[-1] != self.objective:
            objectives.append(self.objective)
        n_passes = len(self.objectives)
        return FitPath(self.kept, np.array(objectives), n_passes, self._reason, self._clause, n_passes=n_passes)


class _EndError(Exception):
    """The end of a loop, which its recorder catches."""


# -- the loops that methods share ---------------------------------------------------------------------------------------


def fixed_point(
    step: Callable[[Any], tuple[float, Any]],
    parameters: Any,
    record: Recorder,
    *,
    max_iter: int,
    tol: float,
    may_lose: bool = False,
    stretched: Callable[[Any, Any, float], Any] | None = None,
) -> FitPath:
    """Repeat ``objective, new = step(parameters)`` until the objective gains no more than `tol`.

    `step` evaluates the objective *at* the parameters it is given and returns the next ones. An EM step lowers the
    objective by rounding at most, so the last evaluated parameters are the result. For steps that may lower the objective
    (`may_lose`), the result is the parameters with the highest objective.

    With ``beyond = stretched(parameters, new, factor)``, moves are lengthened as long as this helps (adaptive over-relaxation,
    Salakhutdinov and Roweis, 2003). A pass that does not gain is undone, and a plain step is made instead.
    """
    before, factor = -np.inf, 1.0
    trial, last, following = parameters, parameters, None
    with record:
        for _ in range(max_iter):
            objective, after_trial = step(trial)
            gained = objective - before
            if factor > 1.0 and not gained > tol:  # too long a move
                record.add(trial, objective, keep=False)
                record.iterated(last)
                trial, factor = following, 1.0
                continue
            record.add(trial, objective, keep=None if may_lose else True)
            record.iterated(trial)
            if factor == 1.0 and gained <= tol:
                raise record.end(Reason.CONVERGED, f"a pass gained no more than tol={tol:g}")
            if stretched is not None and following is not None:
                factor = min(1.5 * factor, _LONGEST)
            before, last, following = objective, trial, after_trial
            trial = following if factor == 1.0 or stretched is None else stretched(last, following, factor)
        raise record.end(Reason.LIMIT, f"max_iter={max_iter} passes were used")
    return record.path()


def ascend(
    objective_and_gradient: Callable[[np.ndarray], tuple[float, np.ndarray]],
    parameters: np.ndarray,
    record: Recorder,
    *,
    max_iter: int,
    tol: float,
    method: str = "L-BFGS-B",
    max_passes: int | None = None,
    patience: int = 1,
) -> FitPath:
    """Maximise ``objective, gradient = objective_and_gradient(parameters)`` by a SciPy method.

    A pass is one evaluation, including those of line searches; an iteration is one accepted step. The
    loop ends when `patience` successive iterations gain no more than `tol` each, when the gradient vanishes,
    or after `max_iter` iterations or `max_passes` passes (None: `max_iter`), whichever comes first. The
    best point evaluated is kept.
    """
    shape = np.shape(parameters)
    max_passes = max_iter if max_passes is None else max_passes
    unit, after, small = 1.0, -np.inf, 0

    def negative(flat: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal unit
        if len(record.objectives) >= max_passes:
            spent = f"max_iter={max_iter} passes were used"
            if max_passes != max_iter:
                spent = f"{max_passes} passes were used, line searches included"
            raise record.end(Reason.LIMIT, spent)
        if not np.isfinite(flat).all():  # a line search has left the range of finite numbers and must return
            return np.inf, np.zeros_like(flat)
        objective, gradient = objective_and_gradient(flat.reshape(shape))
        gradient = np.asarray(gradient, dtype=float).ravel()
        if not record.objectives:
            # Conjugate gradients derive their first step from the size of the gradient, whose units must not
            # matter.
            size = float(np.linalg.norm(gradient))
            unit = size if size > 1e-30 else 1.0
        record.add(flat.reshape(shape).copy(), objective)  # a copy, because SciPy may write into its array later
        return -float(objective) / unit, -gradient / unit

    def after_iteration(flat: np.ndarray) -> None:
        nonlocal after, small
        gained, after = record.objective - after, record.objective
        small = small + 1 if gained <= tol else 0
        record.iterated(flat.reshape(shape))
        if small >= patience:
            raise record.end(Reason.CONVERGED, f"an iteration gained no more than tol={tol:g}")

    options: dict[str, float] = (
        {"maxiter": max_iter, "maxfun": max_passes + 1} if method == "L-BFGS-B" else {"maxiter": max_iter}
    )
    options |= {"ftol": 0.0, "gtol": 1e-12} if method == "L-BFGS-B" else {"gtol": 1e-12}
    with record:
        result = minimize(
            negative,
            np.ravel(parameters).astype(float),
            jac=True,
            method=method,
            options=options,
            callback=after_iteration,
        )
        if result.nit >= max_iter:
            raise record.end(Reason.LIMIT, f"max_iter={max_iter} iterations were used")
        # SciPy stopped by itself: the gradient is zero, or the line search finds no improvement because of rounding.
        raise record.end(Reason.CONVERGED, f"the optimiser found no further improvement ({result.message})")
    # An optimiser that finds no step from the start has made one iteration, as in scikit-learn.
    return record.path()._replace(n_iter=max(record.n_iterations, 1))


def climb_by_rounds(
    play: Callable[[Any, float], tuple[Any, float]],
    parameters: Any,
    record: Recorder,
    *,
    max_iter: int,
    tol: float,
    patience: int = 2,
    halvings: int = 0,
    name: str = "rounds",
) -> FitPath:
    """Maximise by rounds of random steps: ``parameters, objective = play(parameters, scale)``.

    After `patience` successive rounds that gain no more than `tol` over the best one, the loop ends, or returns to the best
    parameters and halves the scale of the steps, which is 1 at first, as often as `halvings` allows. The best parameters are kept.
    """
    scale, idle = 1.0, 0
    with record:
        for _ in range(max_iter):
            parameters, objective = play(parameters, scale)
            best = record.objective
            record.add(parameters, objective)
            record.iterated(parameters)
            idle = 0 if objective > best + tol else idle + 1
            if idle == patience:
                if scale <= 0.5**halvings:
                    raise record.end(Reason.CONVERGED, f"{patience} successive {name} gained no more than tol={tol:g}")
                parameters, scale, idle = record.kept, 0.5 * scale, 0
        raise record.end(Reason.LIMIT, f"max_iter={max_iter} {name} were used")
    return record.path()


def best_path(paths: Iterable[FitPath]) -> FitPath:
    """Return the best of several paths, run one after the other; if the user ends one of them, the others do not run."""
    done: list[FitPath] = []
    try:
        for path in paths:
            done.append(path)
            if path.reason.by_user:
                break
        reason = done[-1].reason
    except KeyboardInterrupt:  # before a later loop has kept a point
        if not done:
            raise
        reason = Reason.INTERRUPTED
    return max(done, key=lambda path: path.objectives[-1]).ended_by(reason)


# -- messages -----------------------------------------------------------------------------------------------------------


def warn_if_not_converged(
    name: str, path: FitPath, *, remedy: str = "Raise max_iter, raise tol, or look at objectives_"
) -> None:
    """Warn if a fit ended before its tolerance was reached, independently of `verbose`."""
    if not path.converged:
        warnings.warn(
            f"{name} did not converge: {path.clause}; the best parameters so far are kept. {remedy}.",
            ConvergenceWarning,
            stacklevel=callers_line(),
        )


def progress(name: str, verbose: bool | int) -> Callable[[int, float], None] | None:
    """Return a `report` function that writes a line per pass to stderr, or None when `verbose` is false."""
    check_verbose(verbose)
    if not verbose:
        return None

    def report(passes: int, objective: float) -> None:
        print(f"[{name}] pass {passes}: objective {objective:.9g} per row", file=sys.stderr, flush=True)

    return report


def accelerated_fixed_point(
    step: Callable[[Any], tuple[float, np.ndarray]],
    move: Callable[[Any, np.ndarray], tuple[Any, np.ndarray]],
    parameters: Any,
    record: Recorder,
    secants: list[tuple[np.ndarray, np.ndarray]] | None = None,
    *,
    max_iter: int,
    tol: float,
    longest: float = 2.0,
) -> FitPath:
    """Maximise an objective that a fixed-point step (an EM step) never lowers, by a safeguarded quasi-Newton method.

    The displacement of the plain step vanishes exactly at the fixed points and is, close to one, twice the
    gradient in the metric that the plain step uses. L-BFGS's two-loop recursion on displacements instead of
    gradients therefore has the plain step as its first direction and learns from the path how much longer
    the steps may be. A trial that does not raise the objective is shortened, and in the end replaced by the
    plain step, so accepted objectives never fall. The loop ends when a *plain* step gains no more than
    `tol`, which is the criterion of `fixed_point`, or when neither it nor a quasi-Newton step can gain more by the
    displacement at hand, which needs no further pass.

    Parameters
    ----------
    step : callable
        ``objective, displacement = step(parameters)``; the displacement is an array in coordinates that
        `move` transports; the plain step is ``move(parameters, displacement)``. Close to a fixed point
        it is twice the gradient, as it is for EM on the logarithm of a covariance.
    move : callable
        ``new, made = move(parameters, displacement)``, with the displacement that was actually made.
    record : Recorder
        Its iterations are the start and the points that were accepted.
    secants : list, optional
        Pairs of moves and what the displacement lost by them, from a fit to a part of the rows; those of this fit are appended.
    longest : float
        The largest absolute eigenvalue (of a symmetric matrix) or entry (of a vector) of a quasi-Newton step.

    Returns
    -------
    FitPath
        Its objectives have one entry per pass, rejected trials included; the last belongs to the parameters.
    """
    # Departure 2 (LCA): Quasi-Newton steps accelerate EM.
    secants = [] if secants is None else secants
    confirm = False  # the next step is a plain one, because a quasi-Newton step with a small gain may be poor
    with record:
        objective, displacement = step(parameters)
        record.add(parameters, objective)
        record.iterated(parameters)
        while len(record.objectives) < max_iter:
            plain = confirm or not secants
            direction = displacement if plain else _two_loops(displacement, secants)
            # The gains that the quadratic model predicts: half of gradient times direction; for EM twice that, which is more than it
            # gains on a concave objective.
            if plain or 0.25 * np.vdot(direction, displacement) <= tol:
                if 0.5 * np.vdot(displacement, displacement) <= tol:
                    raise record.end(Reason.CONVERGED, f"the next step would gain no more than tol={tol:g}")
                plain, direction = True, displacement
            if not plain:
                direction = direction * min(1.0, longest / max(_size(direction), 1e-300))
            # A plain step can lower the objective only by rounding, so it is tried once.
            trials = min(1 if plain else 5, max_iter - len(record.objectives))
            trial = _line_search(step, move, record, parameters, objective, displacement, direction, trials)
            if trial is None:
                if plain:
                    raise record.end(Reason.CONVERGED, "a plain step can gain no more than rounding")
                secants.clear()
                continue
            parameters, gained, made, new_displacement = trial
            objective = record.objective
            change = displacement - new_displacement
            if np.vdot(made, change) > 1e-10 * np.linalg.norm(made) * np.linalg.norm(change):
                secants.append((made, change))
                del secants[:-_MEMORY]
            displacement = new_displacement
            record.iterated(parameters)
            if gained <= tol and plain:
                raise record.end(Reason.CONVERGED, f"a plain step gained no more than tol={tol:g}")
            confirm = gained <= tol
        raise record.end(Reason.LIMIT, f"max_iter={max_iter} passes were used")
    return record.path()


def _line_search(
    step: Callable[[Any], tuple[float, np.ndarray]],
    move: Callable[[Any, np.ndarray], tuple[Any, np.ndarray]],
    record: Recorder,
    parameters: Any,
    objective: float,
    displacement: np.ndarray,
    direction: np.ndarray,
    trials: int,
) -> tuple[Any, float, np.ndarray, np.ndarray] | None:
    """Return the first point along the direction that does not lower the objective, or None."""
    slope, fraction = np.vdot(displacement, direction), 1.0
    for _ in range(trials):
        trial, made = move(parameters, fraction * direction)
        reached, new_displacement = step(trial)
        record.add(trial, reached, keep=reached >= record.objective)
        if reached >= objective:
            return trial, reached - objective, made, new_displacement
        # The zero of a straight line through the two slopes; the slopes are those of the
        # displacements.
        new_slope = np.vdot(new_displacement, direction)
        root = fraction * slope / (slope - new_slope) if new_slope < 0 else 0.5 * fraction
        fraction = float(np.clip(root, 0.1 * fraction, 0.5 * fraction))
    return None


def _two_loops(displacement: np.ndarray, secants: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Return L-BFGS's estimate of the Newton step, from pairs (move, displacement lost by it)."""
    direction = displacement
    shares = []
    for made, change in reversed(secants):
        share = np.vdot(made, direction) / np.vdot(made, change)
        direction = direction - share * change
        shares.append(share)
    made, change = secants[-1]
    direction = direction * (np.vdot(made, change) / np.vdot(change, change))
    for (made, change), share in zip(secants, reversed(shares), strict=True):
        direction = direction + (share - np.vdot(change, direction) / np.vdot(made, change)) * made
    return direction


def _size(displacement: np.ndarray) -> float:
    return np.abs(np.linalg.eigvalsh(displacement) if displacement.ndim == 2 else displacement).max()
