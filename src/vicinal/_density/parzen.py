"""Gaussian Parzen windows: exact kernel density estimation."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils import Tags

from vicinal._checks import bandwidth_covariance, check_choice, is_positive_definite
from vicinal._density.mixed import MixedColumnsMixin, MixedTable
from vicinal._density.mixture_density import LOO_PASSES
from vicinal._engine import Engine, Work, as_engine, choose, fit_engine, one_blas_thread_beside_pairs
from vicinal._fit_loops import FitPath, Recorder, accelerated_fixed_point, fixed_point, warn_if_not_converged
from vicinal._leave_one_out import (
    GAP_LIMITS,
    Expectation,
    IncompleteRows,
    LeaveOneOut,
    MixedRows,
    Moments,
    leave_one_out,
    merged_twins,
    narrowed,
    scatter_of_rows,
)
from vicinal._mixtures import LOG_2PI, SharedMixture
from vicinal._records import Record, RecordParametersMixin
from vicinal._rows import check_rows, check_spread, check_weights, has_gaps, log_weights, own_rows
from vicinal._rows.dask import fits_collections

_RULES = ("auto", "loo", "scott", "silverman")
# A bandwidth whose square falls below this share of the data's variance is shrinking to zero: distances have no digits left.
_COLLAPSED = 1e-12
# The maximum number of passes over rows of numbers and levels, and the tolerance in nats per row.
_LIMITS: dict[str, Any] = {"max_iter": 200, "tol": 1e-8}

# From twice as many rows on, the scores of this many rows under all others locate the best width approximately: few rows on the
# way, and more of them near its end.
_SCOUTS = ((64, 1e-2), (256, 1e-6))  # and the tolerance, in nats per row
_ROUGH = 1e-3  # the tolerance of fits of fewer rows that are only compared


class ParzenWindows(RecordParametersMixin, MixedColumnsMixin, DensityMixin, BaseEstimator):
    r"""Gaussian Parzen windows (kernel density estimation), exact in any dimension.

    .. math:: p(x) = \sum_j w_j \, N(x; x_j, \Sigma), \qquad w_j = 1/n \text{ or sample\_weight}

    Parameters
    ----------
    bandwidth : float, array or {"auto", "loo", "scott", "silverman"}, default="auto"
        The kernel's width. A number is a standard deviation, the same for all features; a vector holds one standard
        deviation per feature; a matrix is the covariance :math:`\Sigma`. The rules are:

        - ``"auto"``: :math:`\Sigma = h^2 S`, where the shape S (round, the variances of the columns, or their covariance) and h have
          the largest leave-one-out likelihood, and a background (see Notes);
        - ``"loo"``: :math:`\Sigma = h^2 I` with h a (local) maximum of the leave-one-out likelihood, by the update of
          Local Component Analysis with a spherical covariance, from the spread of the data downwards; equal rows are
          left out together;
        - ``"scott"``, ``"silverman"``: SciPy's factor squared times the full covariance of the data.

        All are scale-equivariant: the density does not depend on the units.
    categorical_features : "from_dtype", mask, positions, names or None, default="from_dtype"
        The columns of levels, whose categories are part of the density; see :class:`vicinal.LCA`. Their smoothing is learned whatever
        the bandwidth is.
    max_categories : int or None, default=32
        The largest number of coordinates of a column of levels; rarer levels share one.
    engine : None, str or Engine, default=None
        The backend of the pairwise computations; see :class:`vicinal.Engine`.

    Attributes
    ----------
    category_smoothing_ : ndarray of shape (n_columns_of_levels,)
        The learned share l of each column of levels, in their order; only if there are such columns.
    covariance_ : ndarray of shape (n_active, n_active)
        The kernel's covariance, of the columns that vary (usually all).
    active_features_ : ndarray of int
        The columns that vary; all columns if the bandwidth is given.
    constant_values_ : ndarray
        The values of the other columns.
    mixture_ : SharedMixture
        The density itself.
    objectives_ : ndarray
        With ``bandwidth="auto"`` or ``"loo"``: the leave-one-out log-likelihood per row of the kernels after each pass, the last one
        belonging to ``covariance_``. Otherwise empty.
    n_iter_ : int
        The number of passes over the pairs.
    converged_ : bool
        Whether the fit converged.
    engine_ : str
        The backend of the pairwise computations of the fit; if there are none, the one that would score the training rows.
    certified_row_error_ : float
        A bound on what skipped pairs would have added to any row's sum in any pass of the fit, relative to the sum; 0.0 if
        every pair was visited. See ``error`` of :class:`vicinal.Engine`.
    n_features_in_, feature_names_in_ : int, ndarray of str
        The number of columns of the training rows, and their names if they have names.

    Notes
    -----
    Fitting costs O(n^2 d) per pass with "loo" and O(n d^2) otherwise; scoring m rows costs O(m n d). The memory beyond
    the data is the engine's budget (128 MB by default), never O(n^2). All sums are computed in the log domain, so a row far
    from the data gets its true, finite log-density.

    ``sample_weight`` is importance: a row of weight 2 counts twice as a term of the likelihood and as a neighbour, but
    leave-one-out omits it as a whole.

    With ``bandwidth="auto"``, two broad Gaussians have a share of the density beside the kernels, so that a row far from all others
    has a fair density; see the Notes of :class:`vicinal.LCA`. ``mixture_.background`` holds them. The shape is round if rows have missing
    values or levels.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import ParzenWindows
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> density = ParzenWindows().fit(X)
    >>> round(float(np.sqrt(density.covariance_[0, 0])), 3)
    0.546
    >>> round(density.score(), 3)  # leave-one-out
    -2.876
    """

    _record_types: ClassVar[dict[str, type[Record]]] = {"engine": Engine}

    def __init__(
        self,
        bandwidth: str | float | ArrayLike = "auto",
        *,
        categorical_features: Any = "from_dtype",
        max_categories: int | None = 32,
        engine: Engine | str | None = None,
    ) -> None:
        self.bandwidth = bandwidth
        self.categorical_features = categorical_features
        self.max_categories = max_categories
        self.engine = engine

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    @fits_collections
    def fit(self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the density to rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows. NaN marks a missing value: passes over the rows then find the missing entries of the centres together
            with the bandwidth. The notes of :class:`vicinal.LCA` on missing values apply.
        y : ignored
            Not used; accepted because pipelines of scikit-learn pass it.
        sample_weight : array-like of shape (n_samples,), optional
            The importance of the rows. The weights must not be negative, and at least one must be positive.

        Returns
        -------
        self
        """
        table = self._open_table(X, sample_weight)
        if table is not None:
            return self._fit_table(table)
        rows = check_rows(self, X, reset=True, gaps=True)
        weight = check_weights(sample_weight, rows)
        gaps = has_gaps(rows)
        given = not isinstance(self.bandwidth, str)  # this gives the kernel a width along constant columns as well
        if gaps:
            self._constants = None
        else:
            counted = len(rows) if weight is None else np.count_nonzero(weight)
            kept = np.full(rows.shape[1], given or counted < 2)
            rows = self._keep_active(rows, weight, width="bandwidth", kept=kept)
        self.engine_ = choose(as_engine(fit_engine(self)), self._pair_work(*rows.shape)).backend
        self.objectives_, self.n_iter_, self.converged_ = np.array([]), 0, True
        self.certified_row_error_ = 0.0
        if gaps:
            rows = self._fit_to_gaps(rows, weight)
        elif isinstance(self.bandwidth, str):  # "loo" is LCA's EM (Eqs. 3 and 4) for Sigma = h^2 I (sec. 6.2)
            self.covariance_ = self._covariance_by_rule(rows, weight)
        else:
            self.covariance_ = bandwidth_covariance(self.bandwidth, rows.shape[1])
        self._keep_density(own_rows(rows, X), weight)
        return self

    def _fit_table(self, table: MixedTable) -> Self:
        """Fit to rows of numbers and levels: the width, if it is to be found, and l by the same passes."""
        d, weight = table.numbers.shape[1], table.weight
        gaps = bool(np.isnan(table.numbers).any())
        given = not isinstance(self.bandwidth, str)
        if not given:
            check_choice(self.bandwidth, "bandwidth", _RULES)
        numbers, self._constants = table.numbers, None
        if d and not gaps:
            numbers = self._keep_active(numbers, weight, width="bandwidth", kept=np.full(d, given))
            d = numbers.shape[1]
        levels = table.categories, table.codes
        limits = GAP_LIMITS if table.incomplete else _LIMITS
        problem = MixedRows.of(numbers, weight, fit_engine(self), levels, limits["tol"])
        searches = d > 0 and self._searches
        if given or not d:
            covariance = bandwidth_covariance(self.bandwidth, d) if given and d else np.zeros((d, d))
        elif self._searches:
            start = narrowed(problem.covariance, len(numbers)) if gaps else problem.covariance
            covariance = np.trace(start) / d * np.eye(d)
        else:  # SciPy's factor, of the numbers; where some are missing, of their Gaussian
            moments = Moments.of(problem.rows, problem.weight)
            assert moments is not None
            covariance = _rule_of_thumb(moments, len(problem.rows), str(self.bandwidth))
        # In these coordinates, the displacements of EM are proportional to the gradient: log(v) / sqrt(d), and logit(l) / sqrt(2).
        least = _COLLAPSED * np.trace(problem.covariance)

        def pass_over(at: _Leveled) -> tuple[float, MixedRows, float]:
            metric = _inverse_root(at.covariance)
            statistics = at.problem.em_statistics(metric)
            ratio = float(np.trace(statistics.scatter)) / d if searches else 1.0
            if searches and ratio * np.trace(at.covariance) <= least:
                raise ValueError(
                    f"bandwidth={self.bandwidth!r} found no width for these rows, because their numbers hardly differ, or repeat those of other "
                    "rows. Pass bandwidth as a number."
                )
            return statistics.log_likelihood, statistics.problem, ratio

        def displacement(at: _Leveled) -> tuple[float, np.ndarray]:
            objective, following, ratio = pass_over(at)
            return objective, np.append(np.sqrt(max(d, 1)) * np.log(ratio), np.sqrt(8.0) * following.slopes)

        def move(at: _Leveled, by: np.ndarray) -> tuple[_Leveled, np.ndarray]:
            wider = np.exp(by[0] / np.sqrt(max(d, 1))) * at.covariance
            return _Leveled(wider, at.problem.moved(np.sqrt(2.0) * by[1:])), by

        def step(at: _Leveled) -> tuple[float, _Leveled]:
            objective, following, ratio = pass_over(at)
            return objective, _Leveled(at.covariance if following.alone else ratio * at.covariance, following)

        at = _Leveled(covariance, problem)
        if table.incomplete:
            path = fixed_point(step, at, Recorder(), may_lose=True, **limits)
        else:
            path = accelerated_fixed_point(displacement, move, at, Recorder(), **limits)
        warn_if_not_converged("ParzenWindows", path, remedy="Look at objectives_")
        self.covariance_, problem = path.parameters
        filled = numbers
        if table.incomplete:
            self._left_out_scores = problem.scores(_inverse_root(self.covariance_))
            self._incomplete_rows, filled = table.codes.copy(), problem.rows
        self.objectives_, self.n_iter_, self.converged_ = path.objectives, path.n_iter, path.converged
        placed = problem.placed(_inverse_root(self.covariance_))
        self.engine_, self.certified_row_error_ = placed.problem.backend, placed.problem.certified_row_error
        self._keep_levels(table, problem.smoothing, filled, log_weights(weight))
        if self._is_auto:
            self._keep_background()
        return self

    def _keep_density(self, rows: Any, weight: np.ndarray | None) -> None:
        """Store the density: p(x) = sum_j w_j N(x; x_j, Sigma)."""
        with np.errstate(divide="ignore"):
            log_weights = None if weight is None else np.log(weight)
        self.mixture_ = SharedMixture(rows, self.covariance_, log_weights, self.engine, self._active_names)
        if self._is_auto:
            self._keep_background()

    def _fit_to_gaps(self, X: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
        """Find the covariance, and return the rows with their missing entries filled in."""
        names, d = getattr(self, "feature_names_in_", None), X.shape[1]
        if isinstance(self.bandwidth, str):
            check_choice(self.bandwidth, "bandwidth", _RULES)
        if np.count_nonzero(np.ones(len(X)) if weight is None else weight) < 2:
            raise ValueError("rows with missing values need at least one other row of positive weight, got none.")
        problem = IncompleteRows.of(X, weight, self.engine, names)
        if isinstance(self.bandwidth, str):
            start = narrowed(problem.covariance, len(X))
            start = np.trace(start) / d * np.eye(d) if self._searches else start
        else:
            start = bandwidth_covariance(self.bandwidth, d)

        def step(at: _FilledRows) -> tuple[float, _FilledRows]:
            expectation = at.problem.expect(at.covariance)
            update = self._updated(expectation, problem) if isinstance(self.bandwidth, str) else start
            filled = at.problem._replace(rows=expectation.rows)
            return at.problem.mean(expectation.scores), _FilledRows(update, filled)

        try:
            path = fixed_point(step, _FilledRows(start, problem), Recorder(), may_lose=True, **GAP_LIMITS)
        except np.linalg.LinAlgError:
            raise ValueError(
                f"bandwidth={self.bandwidth!r} found no width for these rows with missing values, because their known values "
                "hardly differ, or repeat those of other rows. Pass bandwidth as a number."
            ) from None
        warn_if_not_converged("ParzenWindows", path, remedy="Pass a bandwidth, or look at objectives_")
        self.covariance_, problem = path.parameters
        self._left_out_scores, self._incomplete_rows = problem.expect(self.covariance_).scores, X.copy()
        self.objectives_, self.n_iter_, self.converged_ = path.objectives, path.n_iter, path.converged
        return problem.rows.astype(X.dtype)

    def _updated(self, expectation: Expectation, problem: IncompleteRows) -> np.ndarray:
        """Return the covariance of the rule for expected rows: EM's with a single width, or SciPy's factor."""
        mass, weight, (n, d) = problem.mass, problem.weight, problem.known.shape
        if self._searches:
            variance = np.trace(expectation.scatter) / (mass * d)
            if variance <= _COLLAPSED * np.trace(problem.covariance) / d:
                raise np.linalg.LinAlgError("the likelihood grows without bound as the bandwidth shrinks")
            return variance * np.eye(d)
        covariance = scatter_of_rows(expectation.rows, weight) + expectation.uncertainty / mass
        effective = n if weight is None else weight.sum() ** 2 / (weight**2).sum()
        unbiased = effective / (effective - 1.0)  # as without missing values
        return _thumb_factor(effective, d, self.bandwidth) * unbiased * covariance

    def _pair_work(self, n_samples: int, n_features: int) -> Work:
        """Return the pair work of a fit, or of scoring its rows if the fit has none."""
        return Work(n_samples, n_samples, n_features, LOO_PASSES if self._searches else 1)

    @property
    def _searches(self) -> bool:
        """Whether the bandwidth is found by passes over the pairs."""
        return isinstance(self.bandwidth, str) and self.bandwidth in ("auto", "loo")

    @property
    def _isotropic(self) -> bool:
        return not self._is_auto  # its shape may follow the variances of the columns

    @property
    def _is_auto(self) -> bool:
        return isinstance(self.bandwidth, str) and self.bandwidth == "auto"

    def _check_rule(self, n_rows: int, X: np.ndarray) -> None:
        """Raise an error if there is no such rule, or if it does not apply to a number of rows of positive weight.

        X holds all rows, or the two with the smallest and the largest value of each column.
        """
        if self.bandwidth not in _RULES:
            raise ValueError(
                f"bandwidth must be a number, a vector, a matrix or one of {', '.join(map(repr, _RULES))}, got "
                f"{self.bandwidth!r}."
            )
        if n_rows < 2:
            raise ValueError(
                f"bandwidth={self.bandwidth!r} needs at least 2 rows, got 1 sample. Pass a number instead."
            )
        check_spread(X)

    def _covariance_by_rule(self, X: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
        self._check_rule(len(X) if weight is None else int(np.count_nonzero(weight)), X)
        if not self._searches:
            moments = Moments.of(X, weight)
            assert moments is not None
            return _rule_of_thumb(moments, len(X), str(self.bandwidth))
        rows, counts = merged_twins(X, weight)
        problem = leave_one_out(rows, counts, fit_engine(self), passes=LOO_PASSES)
        self.engine_ = problem.pairs.backend
        shapes = _shapes(problem) if self._is_auto else [np.ones(X.shape[1])]
        if len(shapes) > 1:  # the best shape of those that few rows, or few digits, compare
            scouts = [loo_variance(problem, shape, rough=True) for shape in shapes]
            best = int(np.argmax([path.objectives.max() for path in scouts]))
            path, root = loo_variance(problem, shapes[best], start=scouts[best].parameters), shapes[best]
        else:
            path, root = loo_variance(problem, shapes[0]), shapes[0]
        self.certified_row_error_ = problem.pairs.certified_row_error
        warn_if_not_converged("ParzenWindows", path, remedy="Pass a bandwidth, or look at objectives_")
        self.objectives_, self.n_iter_, self.converged_ = path.objectives, path.n_iter, path.converged
        inverse = np.diag(1.0 / root) if root.ndim == 1 else np.linalg.inv(root)
        return path.parameters * (inverse @ inverse.T)


def _shapes(problem: LeaveOneOut) -> list[np.ndarray]:
    """Return the maps under which kernels are round: the identity, units of the columns, and, if it is regular, their covariance's."""
    covariance = scatter_of_rows(problem.rows, problem.weight)
    variances = np.diag(covariance)
    if len(variances) == 1:
        return [np.ones(1)]
    shapes = [np.ones(len(variances)), 1.0 / np.sqrt(variances)]
    return [*shapes, _inverse_root(covariance)] if is_positive_definite(covariance) else shapes


def _rule_of_thumb(moments: Moments, n: int, rule: str) -> np.ndarray:
    """Return SciPy's factor squared times the full (weighted) covariance of n rows."""
    d, effective = len(moments.mean), moments.mass**2 / moments.squares
    if effective < 1.001:
        raise ValueError(
            f"bandwidth={rule!r} needs an effective number of rows greater than 1, got {effective:.3g}, because one row "
            "has nearly all of sample_weight. Pass a number instead."
        )
    covariance = moments.scatter / (moments.mass - moments.squares / moments.mass)
    if not np.all(np.isfinite(covariance)) or not is_positive_definite(covariance):
        raise ValueError(
            f"bandwidth={rule!r} needs data of full rank, got {n} rows in {d} columns that vary, whose covariance is "
            "singular. Drop dependent columns, or use bandwidth='loo' or a number."
        )
    return _thumb_factor(effective, d, rule) * covariance


def _thumb_factor(effective: float, d: int, rule: Any) -> float:
    """Return SciPy's factor, squared, for an effective number of rows."""
    return (effective if rule == "scott" else effective * (d + 2) / 4.0) ** (-2.0 / (d + 4))


def _inverse_root(covariance: np.ndarray) -> np.ndarray:
    """Return A with ``A'A`` the inverse of a covariance."""
    return np.linalg.inv(np.linalg.cholesky(covariance))


class _Leveled(NamedTuple):
    """A point of a fit to rows of numbers and levels."""

    covariance: np.ndarray
    problem: MixedRows


class _FilledRows(NamedTuple):
    """A point of a fit to rows with gaps: the kernel's covariance, and the problem of the rows with their gaps filled in."""

    covariance: np.ndarray
    problem: IncompleteRows


def loo_variance(
    problem: LeaveOneOut,
    root: np.ndarray | None = None,
    *,
    start: float | None = None,
    rough: bool = False,
    max_iter: int = 200,
) -> FitPath:
    """Maximise the leave-one-out log-likelihood per row over covariances ``v I``, in the coordinates of a root.

    The plain step is that of Local Component Analysis with a spherical covariance (Eqs. 3 and 4 with the trace, sec. 6.2),
    ``v <- tr S(v) / (n d)``. If there are many rows, the search begins with a few: the likelihood of those rows under all others
    has its maximum close by, so that about three passes of all rows are enough.

    Parameters
    ----------
    problem : LeaveOneOut
        The problem of rows that all differ; see `merged_twins`.
    root : array of shape (d,) or (d, d), optional
        The map to coordinates in which kernels are round; the default is the identity.
    start : float, optional
        A variance that is close to the best one; the default is that of the rows, narrowed by a few of them.
    rough : bool
        Whether the few rows, or few digits if there are no more, suffice.
    """
    n, d = problem.rows.shape
    units = np.ones(d) if root is None else root
    log_det = float(np.log(units).sum() if units.ndim == 1 else np.linalg.slogdet(units)[1])
    unit = 1.0 / np.sqrt(d)  # of log v, in which the gradient is half of the step, as `accelerated_fixed_point` expects

    def climbed(start: np.ndarray, terms: np.ndarray | None, tol: float) -> FitPath:
        chosen = slice(None) if terms is None else terms
        weight, log_others = problem.weight[chosen], problem.log_others[chosen]

        def step(at: np.ndarray) -> tuple[float, np.ndarray]:
            log_v, mass = unit * at[0], weight.sum()
            sums, squares = problem.pairs.at(np.exp(-0.5 * log_v) * units).squares(weight, terms)
            objective = weight @ (sums - log_others) / mass - 0.5 * d * (LOG_2PI + log_v) + log_det
            return float(objective), np.array([np.log(squares / (mass * d))]) / unit

        limits = {"max_iter": max_iter, "tol": tol, "longest": 3.0 / unit}
        return accelerated_fixed_point(step, lambda at, move: (at + move, move), start, Recorder(), secants, **limits)

    secants: list[tuple[np.ndarray, np.ndarray]] = []  # what the scouts learn of the curvature
    scouts = _SCOUTS if start is None and n >= 2 * _SCOUTS[-1][0] else ()
    covariance = scatter_of_rows(problem.rows, problem.weight)
    spread = covariance * np.outer(units, units) if units.ndim == 1 else units @ covariance @ units.T
    variance = np.trace(spread) / d if start is None else start
    at = np.array([np.log(variance)]) / unit
    # If rows are far apart, the objective has few digits for the width.
    tol = _ROUGH if rough else 1e-12 if problem.rows.dtype == np.float64 else 1e-9
    with one_blas_thread_beside_pairs(n, d):  # this includes the algebra between the passes
        for count, scouts_tol in scouts:
            path = climbed(at, np.sort(np.random.default_rng(0).choice(n, count, replace=False)), scouts_tol)
            at = path.finished()
        if not (rough and scouts):
            path = climbed(at, None, tol)
    return path._replace(parameters=float(np.exp(unit * path.parameters[0])))
