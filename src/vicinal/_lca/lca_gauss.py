"""LCA-Gauss (Le Roux and Bach, sec. 4): a Gaussian in some directions, and a Parzen model in the others."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from vicinal._checks import (
    check_callback,
    check_random_state,
    check_rows,
    check_verbose,
    check_weights,
    has_gaps,
    log_weights,
    own_rows,
)
from vicinal._dask import answers_collections, fits_collections, float_numbers
from vicinal._density.gaps import (
    TOL,
    check_columns_known,
    expect,
    forget_gaps,
    gaussian_start,
)
from vicinal._density.mixture_density import MixtureDensityMixin
from vicinal._engine import Engine, fit_engine, large_source
from vicinal._fit_loops import Callback, FitPath, Recorder, fixed_point, warn_if_not_converged
from vicinal._kernel_penalty import Penalty
from vicinal._lca.checks import (
    Remedies,
    check_answerable,
    check_representable,
    check_scale,
    check_twins,
    check_two_rows,
    collapse_message_with_gaps,
    is_answerable,
)
from vicinal._lca.from_source import SourceRows, draw_rows, moments_of_source, problem_of_source
from vicinal._lca.gauss_steps import (
    GaussProblem,
    Split,
    all_local,
    directions,
    em_step,
    local_metric,
    mixture_of_directions,
    penalty_of_directions,
    relaxed_em,
    search_directions,
    split_at_one,
    whitened,
)
from vicinal._lca.penalty import (
    AUTO_SHARE,
    LEAST_PENALTY,
    NO_PENALTY,
    Shrinkage,
    as_parameter,
    check_matrix,
    check_penalty,
    check_reg,
    fit_under_penalty,
    has_plenty,
)
from vicinal._lca.penalty_search import (
    LCAGaussFold,
    Penalties,
    choose_both,
    gaussian_rules,
    given_gaussian,
    given_local,
    local_rules,
    search_penalty,
    split_folds,
)
from vicinal._lca.steps import CollapseError, Structure, inverse_root
from vicinal._lca.stochastic import Splits, StochasticEM, StochasticMixin
from vicinal._leave_one_out import counted_rows, leave_one_out, mean_of_rows, perplexities, scatter_of_rows
from vicinal._metric import LinearMetricMixin
from vicinal._mixtures import SharedMixture
from vicinal._records import Record, RecordParametersMixin, as_record
from vicinal._row_sources import RowSource

LCA_GAUSS_REMEDIES = Remedies("LCAGauss", simpler="")


_SOLVERS = ("auto", "em", "stochastic")

# The default max_iter and tol, exact and stochastic.
_LIMITS = (500, 1e-7), (50, 1e-3)


class LCAGauss(
    StochasticMixin,
    RecordParametersMixin,
    LinearMetricMixin,
    MixtureDensityMixin,
    DensityMixin,
    BaseEstimator,
):
    r"""LCA-Gauss: find the directions in which data are not Gaussian, a local metric for them, and the density.

    The rows are modelled as a Gaussian along some directions and as Parzen windows along the others,
    independently,

    .. math::

        p(x) = |\det B| \; N(B_G'x; B_G'\mu, I) \; \frac1n \sum_j N(B_L'x; B_L'x_j, I),
        \qquad B = (B_G, B_L) \text{ square},

    where B maximises the (penalised) leave-one-out likelihood. The EM step is an eigenvalue problem (Proposition
    1): directions whose local covariance is at least the global one are Gaussian, and the others are local. Their
    numbers are determined by the fit, so ``transform`` is a dimension reduction whose dimension need not be
    chosen.

    Parameters
    ----------
    reg : "auto", float, array or Shrinkage, default="auto"
        The penalty R of the local directions, :math:`\frac12 \operatorname{tr} B_L' R B_L` per row: a number (the
        paper's :math:`\nu`, R is :math:`\nu I`), a vector of variances or a matrix, in squared units of the data. A
        :class:`vicinal.Shrinkage` draws the local covariance towards a target instead.
        "auto" chooses it by the likelihood of held-out rows, jointly with ``reg_gauss`` if that is "auto", too.
    reg_gauss : "auto", float or array, default="auto"
        The penalty :math:`R_G` of the Gaussian directions, in the same forms. A matrix may be indefinite as long as the
        covariance of the data plus :math:`R_G` is positive definite. "auto" tries 0 and the matrix that turns the
        covariance of the data into its shrunk estimate (Ledoit and Wolf, in units of the columns).
    reduce : bool, default=False
        Whether to search for a better number of Gaussian directions (LCA-Gauss-Red). EM by itself stops early, with too
        many local directions; the search makes the most Gaussian-like of them Gaussian, runs EM again, and
        finds their number by golden-section search. The objective is never lower than without the search. The solver
        "stochastic" searches on the sample of rows from which it starts.
    solver : {"auto", "em", "stochastic"} or StochasticEM, default="auto"
        "em" is Algorithm 1: each pass visits all pairs, and the objective never decreases. "stochastic" (sec. 5) uses minibatches of rows and
        samples of neighbours, so that time and memory are linear in n, and rows may stay in a file; its options are those of
        :class:`vicinal.StochasticEM`. It starts from an exact fit to 3000 of the rows. "auto" is "em" up to 44,721 rows, and
        "stochastic" with more. ``solver_`` is the solver that was used.
    max_iter : int, optional
        The maximum number of passes over the pairs (default 500); with ``reduce``, for each run of EM. For "stochastic", the
        maximum number of sweeps over the rows (default 50).
    tol : float, optional
        The fit stops when a pass gains no more than this many nats per row; for "stochastic", when two successive sweeps do.
        The default is 1e-7, and 1e-3 for "stochastic".
    callback : callable, optional
        Called as ``callback(parameters, n_iter)`` after each pass (each sweep of "stochastic"), with the flattened square matrix :math:`B' =
        (B_G, B_L)'`, Gaussian rows first, and the number of passes, including those of all runs of ``reduce``. It may
        raise StopIteration: the fit then ends, warns that it has not converged, and keeps the best directions so far.
        Model files do not contain it.
    engine : None, str or Engine, default=None
        The backend of the pairwise computations; see :class:`vicinal.Engine`.
    random_state : int, RandomState instance or None, default=None
        Used by "stochastic".
    verbose : int, default=0
        Print progress to stderr.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        :math:`B_L'`, the local, non-Gaussian directions. The directions along which the data spread most
        beyond their neighbourhoods come first.
    gaussian_components_ : ndarray of shape (n_active - n_components, n_features)
        :math:`B_G'`, which whitens the Gaussian directions.
    n_components_ : int
        The number of local directions. It is 0 if the data are best described by one Gaussian.
    mean_ : ndarray of shape (n_features,)
        :math:`\mu`.
    covariance_, precision_ : ndarrays of shape (n_active, n_active)
        :math:`(BB')^{-1}`, the covariance shared by the components of the mixture, and its inverse.
    reg_, reg_gauss_ : ndarrays of shape (n_features, n_features)
        The penalties that were used (``reg_`` may be a :class:`vicinal.Shrinkage`). ``LCAGauss(reg=reg_, reg_gauss=reg_gauss_)`` gives the same fit.
    reg_search_ : dict of ndarrays, or None
        The table of the search: ``family``, ``factor`` and ``weight`` of the penalty as in :class:`vicinal.LCA`, ``gaussian`` ("none",
        "shrunk" or "given"), ``mean_test_score`` and ``std_test_score``. None without a search.
    active_features_ : ndarray of int
        The columns that vary; the components have zeros in the others.
    constant_values_ : ndarray
        The values of the other columns.
    objectives_ : ndarray
        The penalised objective per row, one entry per pass, the last one belonging to the fitted parameters;
        with ``reduce``, the best so far. After "stochastic", one entry per sweep, measured on the same 500 rows.
    n_iter_ : int
        The number of passes over the pairs (of sweeps over the rows for "stochastic").
    converged_ : bool
        Whether the fit converged.
    solver_ : str
        The solver that was used.
    engine_ : str
        The backend of the pairwise computations.
    certified_row_error_ : float
        A bound on what skipped pairs would have added to any row's sum in any pass of the fit, relative to the sum; 0.0
        if every pair was visited. See ``error`` of :class:`vicinal.Engine`.
    rows_ : ndarray of shape (n_samples, n_active)
        The training rows (missing values are filled in); the centres of the kernels have moved along the Gaussian directions.
    effective_neighbors_ : ndarray of shape (n_samples,), or (3000,) for rows in a file
        The perplexities of the rows' neighbours in the local subspace. After "stochastic", among ``n_candidates`` (3000)
        sampled rows.
    mixture_ : SharedMixture
        The density: a mixture with one shared covariance. Its centres are the rows, moved to the mean along the
        Gaussian directions.
    n_features_in_, feature_names_in_ : int, ndarray of str
        The number of columns of the training rows, and their names if they have names.

    Notes
    -----
    A pass takes O(n^2 d2 + n^2 d + n d^2 + d^3) time with d2 local directions of d; memory beyond the data
    is the engine's budget, never O(n^2). A sweep of "stochastic" takes O(n N d) with ``n_candidates=N`` and O(n (d + 20) d^2)
    without. The Gaussian's mean and covariance are always those of all rows.

    The search of ``reg="auto"`` is that of :class:`vicinal.LCA`, on the same folds and skipped by the same rule. The best
    penalty of each of its families, and one so large that every direction is Gaussian, are then tried with both
    penalties of the Gaussian. The candidates therefore contain one Gaussian with a shrunk covariance.

    ``score_samples(None)`` leaves each row out of the Parzen part; the Gaussian part keeps it (as the
    objective does). If all directions are Gaussian, the model is the Gaussian of maximum likelihood; if none is,
    the model is :class:`vicinal.LCA`. The state in which all directions are Gaussian is absorbing: EM never leaves it.

    Departures from the paper's text, which contains some errors, are listed in docs/departures.md.

    References
    ----------
    N. Le Roux and F. Bach, "Local Component Analysis", ICLR 2013 (arXiv:1109.0093).

    Examples
    --------
    Two clusters differ along one of six directions, which a random linear map hides. LCA-Gauss finds one local
    direction.

    >>> import numpy as np
    >>> from vicinal import LCAGauss
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(2, size=300)
    >>> X = rng.normal(size=(300, 6))
    >>> X[:, 0] = 0.2 * X[:, 0] + labels
    >>> model = LCAGauss(reduce=True).fit(X @ rng.normal(size=(6, 6)))
    >>> model.n_components_
    1
    """

    _record_types: ClassVar[dict[str, type[Record]]] = {"reg": Shrinkage, "solver": StochasticEM, "engine": Engine}
    _exact_solver, _passes = "em", 50
    reg_search_: dict[str, Any] | None

    def __init__(
        self,
        *,
        reg: Shrinkage | str | float | ArrayLike = "auto",
        reg_gauss: str | float | ArrayLike = "auto",
        reduce: bool = False,
        solver: StochasticEM | str = "auto",
        max_iter: int | None = None,
        tol: float | None = None,
        callback: Callback | None = None,
        engine: Engine | str | None = None,
        random_state: RandomState | int | None = None,
        verbose: int | bool = 0,
    ) -> None:
        self.reg = reg
        self.reg_gauss = reg_gauss
        self.reduce = reduce
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.callback = callback
        self.engine = engine
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    @fits_collections
    def fit(self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Find the local and the Gaussian directions and the density of the rows of X.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or rows in a file; see :func:`vicinal.io.open_rows`
            The rows. NaN marks a missing value; the notes of :class:`vicinal.LCA` on missing values apply.
        y : ignored
            Not used; accepted because pipelines of scikit-learn pass it.
        sample_weight : array-like of shape (n_samples,), optional
            The importance of the rows. The weights must not be negative, and at least two must be positive.

        Returns
        -------
        self
        """
        source = large_source(X, self.engine)
        if source is not None and self._pick_solver(source.shape[0]) == "stochastic":
            self._fit_to_source(source, sample_weight)
            return self
        self._check_parameters()
        rows = check_rows(self, X, reset=True, min_rows=2, gaps=True)
        weight = check_two_rows(check_weights(sample_weight, rows))
        if has_gaps(rows):
            self._fit_to_gaps(rows, weight, *self._given_penalties(rows.shape[1]), self._limits(*_LIMITS[0]))
            return self
        forget_gaps(self)
        rows, reg, reg_gauss = self._penalties(rows, weight)
        self._fit_under_penalties(
            lambda reg: self._fit_directions(rows, weight, reg, reg_gauss, X), rows, weight, reg, reg_gauss
        )
        return self

    def _fit_under_penalties(
        self,
        fit_directions: Callable[[Penalty], FitPath],
        X: np.ndarray,
        weight: np.ndarray | None,
        reg: Penalty,
        reg_gauss: np.ndarray,
    ) -> None:
        """Find the directions by ``fit_directions(reg)``, with a larger penalty if "auto" found no solution."""
        auto = isinstance(self.reg, str)
        path, reg = fit_under_penalty(fit_directions, reg, X, weight, "full", LCA_GAUSS_REMEDIES, may_widen=auto)
        self.reg_ = as_parameter(reg, self._in_all_columns)
        self.reg_gauss_ = self._in_all_columns(self._in_all_columns(reg_gauss).T)
        warn_if_not_converged("LCAGauss", path)
        self.objectives_, self.n_iter_, self.converged_ = path.objectives, path.n_iter, path.converged

    def _fit_directions(
        self, X: np.ndarray, weight: np.ndarray | None, reg: Penalty, reg_gauss: np.ndarray, given: ArrayLike
    ) -> FitPath:
        """Find the directions under two penalties, and store them with their density; X was made from the `given` rows."""
        # Departure 4 (LCAGauss): The Gaussian's covariance divides by n. Its limit is the Gaussian of maximum likelihood.
        root, mean = self._root(scatter_of_rows(X, weight), reg_gauss), mean_of_rows(X, weight)
        # In the coordinates w = R (x - mu) the Gaussian's covariance, C_G + R_G, is the identity.
        work = self._pair_work(*X.shape)
        rows, problem = whitened(X, weight, fit_engine(self), reg, root, work)
        path, neighbors = self._find_directions(problem)
        self._keep_directions(path.parameters, root, mean)
        self._keep_density(own_rows(X, given), mean, log_weights(weight))
        self.effective_neighbors_ = perplexities(problem, local_metric(path.parameters), rows, weight, neighbors)
        return path

    def _root(self, covariance: np.ndarray, reg_gauss: np.ndarray) -> np.ndarray:
        """Return R with ``R (C_G + R_G) R' = I``."""
        gaussian = covariance + reg_gauss
        if reg_gauss.any():
            check_representable(gaussian, "reg_gauss", self.reg_gauss)
        return inverse_root(gaussian)

    def _find_directions(self, problem: GaussProblem, most: int | None = None) -> tuple[FitPath, np.ndarray | None]:
        """Find the directions of a problem, with at most `most` candidates at a time.

        Return the path, and a sample of rows as possible neighbours if the solver is stochastic.
        """
        n, d = problem.rows.shape
        self.engine_, self.solver_ = problem.pairs.backend, self._pick_solver(n)
        iterations, neighbors = count(1), None
        limits = self._limits(*_LIMITS[self.solver_ == "stochastic"])

        def recorder() -> Recorder:
            return Recorder.of(
                self, lambda at: self._in_all_columns(np.concatenate(directions(at, problem.root))), iterations
            )

        def step(at: Split) -> tuple[float, Split]:
            return em_step(problem, at)

        def run(split: Split, tol: float) -> FitPath:
            return relaxed_em(step, split, recorder(), max_iter=limits["max_iter"], tol=tol)

        if self.solver_ == "stochastic":
            # C_L of minibatches, each blended with the current one (Eq. 7), then the B that solves Eq. 6.
            path, neighbors = self._sweep(Splits(problem, self.reduce), all_local(d), recorder(), limits, most)
        else:
            # EM: C_L of Eq. 5 from the neighbours in the local directions, then the B that solves Eq. 6 (Proposition 1).
            path = fixed_point(step, all_local(d), recorder(), **limits)  # Algorithm 1
            if self.reduce and not path.reason.by_user:  # LCA-Gauss-Red (sec. 4)
                path = search_directions(run, path, limits["tol"], problem.weight.sum())
        self.certified_row_error_ = problem.pairs.certified_row_error
        return path, neighbors

    def _fit_to_gaps(
        self,
        X: np.ndarray,
        weight: np.ndarray | None,
        reg: Penalty | None,
        reg_gauss: np.ndarray | None,
        limits: dict[str, Any],
    ) -> None:
        """Fit to rows with missing values, with at most `max_iter` passes of a tolerance `tol` of the limits."""
        check_columns_known(X, getattr(self, "feature_names_in_", None))
        known, d = X.astype(np.float64), X.shape[1]
        w = np.ones(len(X)) if weight is None else weight
        mass = float(w.sum())
        filled, data_covariance = gaussian_start(known, weight)
        reg = Penalty(AUTO_SHARE * data_covariance) if reg is None else reg
        check_penalty(reg, np.arange(d), getattr(self, "feature_names_in_", None))
        reg_gauss = np.zeros((d, d)) if reg_gauss is None else reg_gauss
        root = inverse_root(data_covariance + reg_gauss)
        start = _filled_split(np.empty((0, d)), root, np.ones(d), mean_of_rows(filled, weight), filled)

        def step(at: _FilledSplit) -> tuple[float, _FilledSplit]:
            expectation = expect(known, at.centres, at.covariance, weight, self.engine)
            penalty = 0.5 * float(np.sum(reg_gauss * (at.gaussian.T @ at.gaussian)))
            penalty += penalty_of_directions(reg, at.gaussian, at.local)
            objective = float(w @ expectation.scores) / mass - penalty
            added = expectation.uncertainty / mass
            whole = scatter_of_rows(expectation.rows, weight) + added + reg_gauss
            root, mean = inverse_root(whole), mean_of_rows(expectation.rows, weight)
            if not len(at.local):  # all Gaussian: the state absorbs, as with complete rows
                return objective, _filled_split(root, at.local, at.variances, mean, expectation.rows)
            pairs = leave_one_out(expectation.rows, weight, self.engine).pairs
            scatter = pairs.at(at.local).scatter(w[w > 0], space="rows").scatter
            matrix = root @ reg.updated(scatter / mass + added) @ root.T
            split = split_at_one(0.5 * (matrix + matrix.T))
            gaussian, local = directions(split, root)
            return objective, _filled_split(gaussian, local, split.variances, mean, expectation.rows)

        iterations = count(1)

        def run(split: _FilledSplit, tol: float) -> Any:
            record = Recorder.of(self, lambda at: np.concatenate([at.gaussian, at.local]), iterations)
            return fixed_point(step, split, record, max_iter=limits["max_iter"], tol=tol, may_lose=True)

        tol = max(limits["tol"], TOL)
        try:
            path = run(start, tol)
            if self.reduce and not path.reason.by_user:
                path = search_directions(run, path, tol, mass, move=_transfer)
        except (CollapseError, np.linalg.LinAlgError):
            raise ValueError(collapse_message_with_gaps("LCAGauss")) from None
        warn_if_not_converged("LCAGauss", path)
        self._constants, self.reg_search_ = None, None
        self.reg_, self.reg_gauss_ = as_parameter(reg), reg_gauss
        self._keep_gaps(X, weight, path)

    def _keep_gaps(self, X: np.ndarray, weight: np.ndarray | None, path: Any) -> None:
        """Store the result of a fit to rows with missing values."""
        best = path.parameters
        both = np.concatenate([best.gaussian, best.local])
        self.gaussian_components_, self.components_ = best.gaussian, best.local
        self.n_components_, self.mean_ = len(best.local), best.mean
        self.precision_, self.covariance_ = both.T @ both, best.covariance
        names = getattr(self, "feature_names_in_", None)
        self.mixture_ = SharedMixture(
            best.centres.astype(X.dtype), best.covariance, log_weights(weight), self.engine, names
        )
        self.rows_ = best.rows.astype(X.dtype)
        expectation = expect(X.astype(np.float64), best.centres, best.covariance, weight, self.engine)
        self._left_out_scores, self._incomplete_rows = expectation.scores, X.copy()
        problem = leave_one_out(best.rows, weight, self.engine)
        self.solver_ = "em"
        self.engine_, self.certified_row_error_ = problem.pairs.backend, problem.pairs.certified_row_error
        metric = best.local if len(best.local) else np.zeros((1, X.shape[1]))
        self.effective_neighbors_ = perplexities(problem, metric, best.rows, weight)
        self.objectives_, self.n_iter_, self.converged_ = path.objectives, path.n_iter, path.converged

    def _fit_to_source(self, source: RowSource, sample_weight: ArrayLike | None) -> None:
        """Fit by the stochastic solver to rows that do not fit into memory; the Gaussian is that of all rows."""
        self._check_parameters()
        draw = draw_rows(self, source, sample_weight)
        sample, reg, reg_gauss = self._penalties(draw.sample, draw.shares, draw.varies)
        draw = draw.active(self)
        mean, covariance = moments_of_source(draw, mean_of_rows(sample, draw.shares))

        def fit_directions(reg: Penalty) -> Any:
            root = self._root(covariance, reg_gauss)
            problem = GaussProblem(
                *problem_of_source(SourceRows(draw.source, draw.counted, (mean, root)), draw, self, reg)[:4], reg, root
            )
            path, among = self._find_directions(problem, draw.most)
            assert among is not None
            self._keep_directions(path.parameters, root, mean)
            metric = local_metric(path.parameters)
            self.effective_neighbors_ = problem.pairs.some(among).at(metric).perplexities()
            return path

        self._fit_under_penalties(fit_directions, sample, draw.shares, reg, reg_gauss)
        components, log_shares = draw.components()
        self._keep_density(components, mean, log_shares)

    def _given_penalties(self, n_features: int) -> tuple[Penalty | None, np.ndarray | None]:
        """Return the penalties that the user passed; None for "auto"."""
        if isinstance(self.reg_gauss, str) and self.reg_gauss == "auto":
            return check_reg(self.reg, n_features), None
        forms = "'auto', a number, a vector of variances or a matrix"
        return check_reg(self.reg, n_features), check_matrix(self.reg_gauss, n_features, "reg_gauss", forms)

    def _penalties(
        self, X: np.ndarray, weight: np.ndarray | None, varies: np.ndarray | None = None
    ) -> tuple[np.ndarray, Penalty, np.ndarray]:
        """Return the columns that vary, and the two penalties on them.

        Raise an error for data without a solution, and search for "auto". `varies` states which columns vary in the rows of
        which X is a sample.
        """
        reg, reg_gauss = self._given_penalties(X.shape[1])
        # Penalties give both parts a width along constant columns, so these are kept.
        kept_columns = varies
        if reg is not None and reg_gauss is not None:
            wide = (np.diag(reg.matrix) > 0) & (np.diag(reg_gauss) > 0)
            kept_columns = wide if varies is None else varies | wide
        X = self._keep_active(X, weight, width="reg and reg_gauss", kept=kept_columns)
        rows, weight = counted_rows(X, weight)
        active = self.active_features_
        reg = None if reg is None else check_penalty(reg, active, self._active_names)
        reg_gauss = None if reg_gauss is None else reg_gauss[np.ix_(active, active)]
        zero = {"reg": reg is not None and reg.is_zero, "reg_gauss": reg_gauss is not None and not reg_gauss.any()}
        zeros = [name for name, is_zero in zero.items() if is_zero]
        if zeros or reg is None or reg_gauss is None:
            check_scale(rows, "full", self._active_names)
        if zeros:
            remedies = LCA_GAUSS_REMEDIES._replace(reg_name=" and ".join(zeros))
            check_answerable(rows, "full", names=self._active_names, remedies=remedies)
        if zero["reg"]:  # twins are not a problem for the Gaussian
            check_twins(rows, LCA_GAUSS_REMEDIES)
        self.reg_search_ = None
        if reg is not None and reg_gauss is not None:
            return X, reg, reg_gauss
        return X, *self._search(rows, weight, reg, reg_gauss)

    def _search(
        self, X: np.ndarray, weight: np.ndarray | None, reg: Penalty | None, reg_gauss: np.ndarray | None
    ) -> tuple[Penalty, np.ndarray]:
        """Return the penalties that are not given (None), from rows of positive weight."""
        structure, answerable = Structure("full"), is_answerable(X, "full")
        gaussians = gaussian_rules(X, weight, answerable) if reg_gauss is None else [given_gaussian(reg_gauss)]
        if has_plenty(X, structure):
            plain = (NO_PENALTY if answerable else LEAST_PENALTY).of_rows(X, weight)
            return plain if reg is None else reg, gaussians[0].matrix(X, weight)
        parts = split_folds(X, weight)
        if reg is None:
            regs = local_rules(search_penalty(X, weight, structure, fit_engine(self)), answerable)
        else:
            regs = [given_local(reg)]
        chosen = Penalties(regs[0], gaussians[-1])
        if parts:
            folds = [LCAGaussFold(*part, reduce=self.reduce, engine=fit_engine(self)) for part in parts]
            chosen, self.reg_search_ = choose_both(folds, regs, gaussians)
        return chosen.local(X, weight), chosen.gaussian(X, weight)

    def _check_parameters(self) -> None:
        """Raise an error for invalid parameters."""
        if not isinstance(self.reduce, (bool, np.bool_)):
            raise TypeError(f"reduce must be True or False, got {type(self.reduce).__name__}.")
        as_record(self.solver, StochasticEM, "solver", _SOLVERS)
        check_verbose(self.verbose)
        check_random_state(self.random_state)
        self._limits(*_LIMITS[0])
        check_callback(self.callback)

    def _keep_directions(self, split: Split, root: np.ndarray, mean: np.ndarray) -> None:
        """Store the fitted directions."""
        gaussian, local = directions(split, root)
        both = np.concatenate([gaussian, local])
        inverse = np.linalg.inv(both)
        self.precision_, self.covariance_ = both.T @ both, inverse @ inverse.T
        self.gaussian_components_, self.components_ = self._in_all_columns(gaussian), self._in_all_columns(local)
        self.n_components_ = len(split.variances)
        self.mean_ = mean if self._constants is None else self._constants.copy()
        self.mean_[self.active_features_] = mean

    def _keep_density(self, rows: Any, mean: np.ndarray, log_shares: np.ndarray | None) -> None:
        """Store the density; its centres are the rows, moved to the mean along the Gaussian directions."""
        gaussian, local = (both[:, self.active_features_] for both in (self.gaussian_components_, self.components_))
        centres = mixture_of_directions(gaussian, local, mean, rows)[0].astype(rows.dtype, copy=False)
        self.mixture_ = SharedMixture(centres, self.covariance_, log_shares, self.engine, self._active_names)
        self.rows_ = rows

    @answers_collections(dtype=float_numbers)
    def score_samples(self, X: ArrayLike | None = None) -> NDArray[Any]:
        """Return the log-density of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or None
            None scores each training row with its own kernel left out of the Parzen part.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        known = getattr(self, "_left_out_scores", None)
        if X is not None or known is not None:
            return super().score_samples(X)
        # The centres of the mixture are not the training rows.
        return self._mixture().left_out_scores_of(self.rows_)


class _FilledSplit(NamedTuple):
    """A point of the fit to rows with missing values: its directions, mean, rows, and the mixture that they make."""

    gaussian: np.ndarray
    local: np.ndarray
    variances: np.ndarray  # of the kernel along the local directions, ascending, in units of the Gaussian
    mean: np.ndarray
    rows: np.ndarray
    covariance: np.ndarray
    centres: np.ndarray


def _filled_split(
    gaussian: np.ndarray, local: np.ndarray, variances: np.ndarray, mean: np.ndarray, rows: np.ndarray
) -> _FilledSplit:
    centres, covariance = mixture_of_directions(gaussian, local, mean, rows)
    return _FilledSplit(gaussian, local, variances, mean, rows, covariance, centres)


def _transfer(at: _FilledSplit, moved: int) -> _FilledSplit:
    """Make the `moved` local directions with the largest kernel variances Gaussian."""
    n_local = len(at.variances) - moved
    gaussian = np.concatenate([at.local[n_local:] * np.sqrt(at.variances[n_local:, None]), at.gaussian])
    return _filled_split(gaussian, at.local[:n_local], at.variances[:n_local], at.mean, at.rows)
