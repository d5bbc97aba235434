"""The two ways to fit: repeat a step until it stops gaining, or climb a gradient.

Both are plain functions that return a `FitPath`. Neither prints nor knows an estimator: `report` is called
after each pass, and an interruption (KeyboardInterrupt) ends the loop with the best parameters so far.
"""

import sys
import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

# The reason of a loop that Ctrl-C ended.
INTERRUPTED = "it was interrupted"


class FitPath(NamedTuple):
    """What a fit loop did.

    Attributes
    ----------
    parameters : the best parameters found.
    objectives : (n_iter,) the objective after each pass, the last one belonging to `parameters`.
    n_iter : passes over the pairs, line searches included.
    converged : whether the tolerance was reached.
    reason : one clause that says why the loop ended.
    """

    parameters: Any
    objectives: np.ndarray
    n_iter: int
    converged: bool
    reason: str


def fixed_point(step, parameters, *, max_iter, tol, report=None):
    """Repeat ``objective, new = step(parameters)`` until the objective gains less than `tol`.

    `step` evaluates the objective *at* the parameters it is given and returns the next ones, so the
    parameters returned here are those of the last evaluation: the objective path and the answer belong
    together.
    """
    objectives = []
    converged, reason = False, f"max_iter={max_iter} passes were used"
    best = parameters
    try:
        for passes in range(max_iter):
            objective, following = step(parameters)
            best = parameters
            objectives.append(float(objective))
            if report is not None:
                report(passes + 1, objectives[-1])
            if passes > 0 and objectives[-1] - objectives[-2] <= tol:
                converged, reason = True, f"a pass gained no more than tol={tol:g}"
                break
            parameters = following
    except KeyboardInterrupt:
        if not objectives:
            raise
        reason = INTERRUPTED
    return FitPath(best, np.array(objectives), len(objectives), converged, reason)


def ascend(
    objective_and_gradient,
    parameters,
    *,
    max_iter,
    tol,
    method="L-BFGS-B",
    max_passes=None,
    patience=1,
    report=None,
    callback=None,
):
    """Climb ``objective, gradient = objective_and_gradient(parameters)`` (a maximisation) by a SciPy method.

    A pass is one evaluation, wherever the line search asks for it; an iteration is one accepted step. The
    loop ends when `patience` iterations in a row gain no more than `tol` each, when the gradient vanishes,
    or after `max_iter` iterations or `max_passes` passes (None: `max_iter`), whichever comes first. The
    best point evaluated is returned. `callback(parameters, passes)` follows each iteration and may raise
    StopIteration.
    """
    shape = np.shape(parameters)
    max_passes = max_iter if max_passes is None else max_passes
    state: dict[str, Any] = {
        "best": -np.inf,
        "at": np.array(parameters, dtype=float),
        "after": -np.inf,
        "small": 0,
    }
    objectives: list[float] = []

    class _Enough(Exception):
        pass

    def negative(flat):
        if len(objectives) >= max_passes:
            raise _Enough
        objective, gradient = objective_and_gradient(flat.reshape(shape))
        gradient = np.asarray(gradient, dtype=float).ravel()
        if not objectives:
            # Conjugate gradients guess their first step from the size of the gradient: its units must not
            # matter.
            size = float(np.linalg.norm(gradient))
            state["unit"] = size if size > 1e-30 else 1.0
        objectives.append(float(objective))
        if objective > state["best"]:
            state["best"], state["at"] = float(objective), flat.reshape(shape).copy()
        if report is not None:
            report(len(objectives), float(objective))
        return -float(objective) / state["unit"], -gradient / state["unit"]

    def after_iteration(flat):
        gained = state["best"] - state["after"]
        state["after"] = state["best"]
        state["small"] = state["small"] + 1 if gained <= tol else 0
        if callback is not None:
            try:
                callback(flat.reshape(shape), len(objectives))
            except StopIteration:
                state["stopped"] = True
                raise
        if state["small"] >= patience:
            raise StopIteration

    converged, reason = False, f"max_iter={max_iter} passes were used"
    options = {"maxiter": max_iter, "maxfun": max_passes + 1} if method == "L-BFGS-B" else {"maxiter": max_iter}
    options |= {"ftol": 0.0, "gtol": 1e-12} if method == "L-BFGS-B" else {"gtol": 1e-12}
    try:
        result = minimize(
            negative,
            np.ravel(parameters).astype(float),
            jac=True,
            method=method,
            options=options,
            callback=after_iteration,
        )
        if state.get("stopped"):
            reason = "the callback stopped it"
        elif state["small"] >= patience:
            converged, reason = True, f"an iteration gained no more than tol={tol:g}"
        elif result.nit >= max_iter:
            reason = f"max_iter={max_iter} iterations were used"
        else:
            # SciPy stopped by itself: a zero gradient, or a line search that cannot gain (rounding).
            converged, reason = True, f"the optimiser can gain no more ({result.message})"
    except _Enough:
        if max_passes != max_iter:
            reason = f"{max_passes} passes were used, line searches included"
    except KeyboardInterrupt:
        if not objectives:
            raise
        reason = INTERRUPTED
    path = np.array(objectives)
    n_iter = len(path)
    if n_iter and path[-1] != state["best"]:
        path = np.append(path, state["best"])  # the last entry belongs to the returned parameters
    return FitPath(state["at"], path, n_iter, converged, reason)


def warn_if_not_converged(name, path, *, remedy="Raise max_iter, raise tol, or look at objectives_", stacklevel=3):
    """Warn, whatever `verbose` says, when a fit ended before its tolerance was reached."""
    if not path.converged:
        warnings.warn(
            f"{name} did not converge: {path.reason}; the best parameters so far are kept. {remedy}.",
            ConvergenceWarning,
            stacklevel=stacklevel,
        )


def progress(name, verbose):
    """A `report` function that writes a line per pass to stderr, or None when `verbose` is false."""
    if not verbose:
        return None

    def report(passes, objective):
        print(f"[{name}] pass {passes}: objective {objective:.9g} per row", file=sys.stderr, flush=True)

    return report
