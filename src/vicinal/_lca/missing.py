"""LCA and LCA-Gauss of rows with missing values. `vicinal._density.gaps` describes a pass."""

from itertools import count
from typing import Any, NamedTuple

import numpy as np

from vicinal._checks import bandwidth_covariance, check_choice
from vicinal._density.gaps import (
    MAX_PASSES,
    TOL,
    GapFit,
    check_columns_known,
    expect,
    fit_gaps,
    gaussian_start,
    narrowed,
)
from vicinal._fit_loops import Recorder, fixed_point, warn_if_not_converged
from vicinal._kernel_penalty import Penalty
from vicinal._lca.gauss_steps import (
    directions,
    mixture_of_directions,
    penalty_of_directions,
    search_directions,
    split_at_one,
)
from vicinal._lca.penalty import as_parameter, check_penalty
from vicinal._lca.steps import COLLAPSE, CollapseError, Structure, inverse_root, nearest_structured
from vicinal._leave_one_out import leave_one_out, mean_of_rows, perplexities, scatter_of_rows
from vicinal._mixtures import SharedMixture

# The penalty of reg="auto", as a share of the covariance of the data. It is not searched, because scores of held-out rows with
# different gaps cannot be compared.
AUTO_SHARE = 0.1
_COLLAPSED = (
    "{name}: with missing values the kernel's covariance collapses: its variance in some direction goes to zero and the "
    "leave-one-out likelihood to infinity. Pass a larger reg (a variance, in squared units of the data), drop columns "
    "that depend on each other, or leave out rows with missing values."
)


def _check_collapse(covariance: np.ndarray, data_covariance: np.ndarray) -> np.ndarray:
    """Return the covariance if its smallest variance, in units of the data's spread, is not lost in rounding."""
    whitened = np.linalg.solve(data_covariance, covariance)
    if not np.isfinite(covariance).all() or not np.linalg.eigvals(whitened).real.min() > COLLAPSE:
        raise CollapseError
    return covariance


def fit_lca_to_gaps(
    estimator: Any,
    X: np.ndarray,
    weight: np.ndarray | None,
    reg: Penalty | None,
    structure: Structure,
    *,
    data_share: float = AUTO_SHARE,
) -> None:
    """Fit an LCA to rows with missing values.

    The penalty is `reg` or, if that is None, `data_share` times the covariance of the data.
    """
    check_columns_known(X, getattr(estimator, "feature_names_in_", None))
    rows = X.astype(np.float64)
    filled, data_covariance = gaussian_start(rows, weight)
    ridge = Penalty(data_share * data_covariance) if reg is None else reg
    check_penalty(ridge, np.arange(X.shape[1]), getattr(estimator, "feature_names_in_", None))
    if isinstance(estimator.init, str):
        check_choice(estimator.init, "init", ("covariance",))
        initial = ridge.updated(narrowed(data_covariance, len(X)))
    else:
        initial = bandwidth_covariance(estimator.init, X.shape[1], name="init")
    start, limits = GapFit(nearest_structured(initial, *structure), filled), estimator._limits(MAX_PASSES, TOL)

    def update(found: Any, mass: float) -> np.ndarray:
        return _check_collapse(nearest_structured(ridge.updated(found.scatter / mass), *structure), data_covariance)

    record = Recorder.of(estimator, lambda at: inverse_root(at.covariance))
    try:
        path, found = fit_gaps(rows, weight, estimator.engine, start, update, record, penalty=ridge, **limits)
    except (CollapseError, np.linalg.LinAlgError):
        raise ValueError(_COLLAPSED.format(name="LCA")) from None
    warn_if_not_converged("LCA", path)
    kept = path.parameters
    problem = leave_one_out(kept.centres, weight, estimator.engine, reg=ridge)
    estimator._constants, estimator.reg_, estimator.reg_search_ = None, as_parameter(ridge), None
    estimator.solver_, estimator.engine_, estimator._stream = "em", problem.pairs.backend, None
    estimator._keep(inverse_root(kept.covariance), scatter_of_rows(kept.centres, weight))
    estimator._keep_density(kept.centres.astype(X.dtype), weight, problem)
    estimator._left_out_scores, estimator._incomplete_rows = found.scores, X.copy()
    estimator.objectives_, estimator.n_iter_, estimator.converged_ = path.objectives, path.n_iter, path.converged


class _Split(NamedTuple):
    """A point of LCA-Gauss's fit: its directions, mean, rows, and the mixture that they make."""

    gaussian: np.ndarray
    local: np.ndarray
    variances: np.ndarray  # of the kernel along the local directions, ascending, in units of the Gaussian
    mean: np.ndarray
    rows: np.ndarray
    covariance: np.ndarray
    centres: np.ndarray


def _split(
    gaussian: np.ndarray, local: np.ndarray, variances: np.ndarray, mean: np.ndarray, rows: np.ndarray
) -> _Split:
    centres, covariance = mixture_of_directions(gaussian, local, mean, rows)
    return _Split(gaussian, local, variances, mean, rows, covariance, centres)


def _transfer(at: _Split, moved: int) -> _Split:
    """Make the `moved` local directions with the largest kernel variances Gaussian."""
    kept = len(at.variances) - moved
    gaussian = np.concatenate([at.local[kept:] * np.sqrt(at.variances[kept:, None]), at.gaussian])
    return _split(gaussian, at.local[:kept], at.variances[:kept], at.mean, at.rows)


def fit_lca_gauss_to_gaps(
    estimator: Any,
    X: np.ndarray,
    weight: np.ndarray | None,
    reg: Penalty | None,
    reg_gauss: np.ndarray | None,
    limits: dict[str, Any],
) -> None:
    """Fit an LCAGauss to rows with missing values, with at most `max_iter` passes of a tolerance `tol` of the limits."""
    check_columns_known(X, getattr(estimator, "feature_names_in_", None))
    known, d = X.astype(np.float64), X.shape[1]
    w = np.ones(len(X)) if weight is None else weight
    mass = float(w.sum())
    filled, data_covariance = gaussian_start(known, weight)
    reg = Penalty(AUTO_SHARE * data_covariance) if reg is None else reg
    check_penalty(reg, np.arange(d), getattr(estimator, "feature_names_in_", None))
    reg_gauss = np.zeros((d, d)) if reg_gauss is None else reg_gauss
    root = inverse_root(data_covariance + reg_gauss)
    start = _split(np.empty((0, d)), root, np.ones(d), mean_of_rows(filled, weight), filled)

    def step(at: _Split) -> tuple[float, _Split]:
        found = expect(known, at.centres, at.covariance, weight, estimator.engine)
        penalty = 0.5 * float(np.sum(reg_gauss * (at.gaussian.T @ at.gaussian)))
        penalty += penalty_of_directions(reg, at.gaussian, at.local)
        objective = float(w @ found.scores) / mass - penalty
        added = found.uncertainty / mass
        whole = scatter_of_rows(found.rows, weight) + added + reg_gauss
        root, mean = inverse_root(whole), mean_of_rows(found.rows, weight)
        if not len(at.local):  # all Gaussian: the state absorbs, as with complete rows
            return objective, _split(root, at.local, at.variances, mean, found.rows)
        pairs = leave_one_out(found.rows, weight, estimator.engine).pairs
        scatter = pairs.at(at.local).scatter(w[w > 0], space="rows").scatter
        matrix = root @ reg.updated(scatter / mass + added) @ root.T
        split = split_at_one(0.5 * (matrix + matrix.T))
        gaussian, local = directions(split, root)
        return objective, _split(gaussian, local, split.variances, mean, found.rows)

    iterations = count(1)

    def run(split: _Split, tol: float) -> Any:
        record = Recorder.of(estimator, lambda at: np.concatenate([at.gaussian, at.local]), iterations)
        return fixed_point(step, split, record, max_iter=limits["max_iter"], tol=tol, may_lose=True)

    tol = max(limits["tol"], TOL)
    try:
        path = run(start, tol)
        if estimator.reduce and not path.reason.by_user:
            path = search_directions(run, path, tol, mass, move=_transfer)
    except (CollapseError, np.linalg.LinAlgError):
        raise ValueError(_COLLAPSED.format(name="LCAGauss")) from None
    warn_if_not_converged("LCAGauss", path)
    estimator._constants, estimator.reg_search_ = None, None
    estimator.reg_, estimator.reg_gauss_ = as_parameter(reg), reg_gauss
    _keep_gauss(estimator, X, weight, path)


def _keep_gauss(estimator: Any, X: np.ndarray, weight: np.ndarray | None, path: Any) -> None:
    kept = path.parameters
    both = np.concatenate([kept.gaussian, kept.local])
    estimator.gaussian_components_, estimator.components_ = kept.gaussian, kept.local
    estimator.n_components_, estimator.mean_ = len(kept.local), kept.mean
    estimator.precision_, estimator.covariance_ = both.T @ both, kept.covariance
    with np.errstate(divide="ignore"):
        log_weights = None if weight is None else np.log(weight)
    names = getattr(estimator, "feature_names_in_", None)
    estimator.mixture_ = SharedMixture(
        kept.centres.astype(X.dtype), kept.covariance, log_weights, estimator.engine, names
    )
    estimator.rows_ = kept.rows.astype(X.dtype)
    found = expect(X.astype(np.float64), kept.centres, kept.covariance, weight, estimator.engine)
    estimator._left_out_scores, estimator._incomplete_rows = found.scores, X.copy()
    problem = leave_one_out(kept.rows, weight, estimator.engine)
    estimator.solver_ = "em"
    estimator.engine_, estimator.certified_row_error_ = problem.pairs.backend, problem.pairs.certified_row_error
    metric = kept.local if len(kept.local) else np.zeros((1, X.shape[1]))
    estimator.effective_neighbors_ = perplexities(problem, metric, kept.rows, weight)
    estimator.objectives_, estimator.n_iter_, estimator.converged_ = path.objectives, path.n_iter, path.converged
