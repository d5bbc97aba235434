"""Acceleration of a fixed-point iteration by quasi-Newton steps on the displacement of the plain step."""

from collections import deque
from collections.abc import Callable

import numpy as np

from vicinal._fit_loops import FitPath, Reason, Recorder


def accelerated_fixed_point(
    step: Callable[[np.ndarray], tuple[float, np.ndarray]],
    move: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]],
    parameters: np.ndarray,
    record: Recorder,
    *,
    max_iter: int,
    tol: float,
    memory: int = 10,
    longest: float = 2.0,
) -> FitPath:
    """Maximise an objective that a fixed-point step (an EM step) never lowers, by a safeguarded quasi-Newton method.

    The displacement of the plain step vanishes exactly at the fixed points and is, close to one, the
    gradient in the metric that the plain step uses. L-BFGS's two-loop recursion on displacements instead of
    gradients therefore has the plain step as its first direction and learns from the path how much longer
    the steps may be. A trial that does not raise the objective is shortened, and in the end replaced by the
    plain step, so accepted objectives never fall. The loop ends when a *plain* step gains no more than
    `tol`, which is the criterion of `fixed_point`.

    Parameters
    ----------
    step : callable
        ``objective, displacement = step(parameters)``; the displacement is an array in coordinates that
        `move` transports; the plain step is ``move(parameters, displacement)``. Close to a fixed point
        it is proportional to the gradient, as it is for EM on the logarithm of a covariance.
    move : callable
        ``new, made = move(parameters, displacement)``, with the displacement that was actually made.
    record : Recorder
        Its iterations are the start and the points that were accepted.
    memory : int
        The number of secant pairs to keep.
    longest : float
        The largest absolute eigenvalue (of a symmetric matrix) or entry (of a vector) of a quasi-Newton step.

    Returns
    -------
    FitPath
        Its objectives have one entry per pass, rejected trials included; the last belongs to the parameters.
    """
    # Departure 2 (LCA): Quasi-Newton steps accelerate EM.

    def evaluate(at: np.ndarray) -> tuple[float, np.ndarray]:
        objective, displacement = step(at)
        record.add(at, objective, keep=objective >= record.objective)
        return record.objectives[-1], displacement

    secants: deque = deque(maxlen=memory)
    confirm = False  # the next step is a plain one, because a quasi-Newton step with a small gain may be poor
    with record:
        objective, displacement = evaluate(parameters)
        record.iterated(parameters)
        while len(record.objectives) < max_iter:
            plain = confirm or not secants
            direction = displacement if plain else _two_loops(displacement, secants)
            # The gain that the quadratic model predicts: half of gradient times direction.
            if not plain and 0.25 * np.vdot(direction, displacement) <= tol:
                plain, direction = True, displacement
            if not plain:
                direction = direction * min(1.0, longest / max(_size(direction), 1e-300))
            # A plain step can lower the objective only by rounding, so it is tried once.
            trials = min(1 if plain else 5, max_iter - len(record.objectives))
            trial = _line_search(evaluate, move, parameters, objective, displacement, direction, trials)
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
            displacement = new_displacement
            record.iterated(parameters)
            if gained <= tol and plain:
                raise record.end(Reason.CONVERGED, f"a plain step gained no more than tol={tol:g}")
            confirm = gained <= tol
        raise record.end(Reason.LIMIT, f"max_iter={max_iter} passes were used")
    return record.path()


def _line_search(
    evaluate: Callable[[np.ndarray], tuple[float, np.ndarray]],
    move: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]],
    parameters: np.ndarray,
    objective: float,
    displacement: np.ndarray,
    direction: np.ndarray,
    trials: int,
) -> tuple[np.ndarray, float, np.ndarray, np.ndarray] | None:
    """Return the first point along the direction that does not lower the objective, or None."""
    slope, fraction = np.vdot(displacement, direction), 1.0
    for _ in range(trials):
        there, made = move(parameters, fraction * direction)
        reached, new_displacement = evaluate(there)
        if reached >= objective:
            return there, reached - objective, made, new_displacement
        # The zero of a straight line through the two slopes; the slopes are those of the
        # displacements.
        new_slope = np.vdot(new_displacement, direction)
        root = fraction * slope / (slope - new_slope) if new_slope < 0 else 0.5 * fraction
        fraction = float(np.clip(root, 0.1 * fraction, 0.5 * fraction))
    return None


def _two_loops(displacement: np.ndarray, secants: deque[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
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
