"""Local Component Analysis (Le Roux and Bach, 2011): the metric in which data are locally isotropic."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, ClassVar, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike
from sklearn.base import clone

from vicinal._checks import bandwidth_covariance, check_choice, check_integer
from vicinal._density.mixed import MixedTable
from vicinal._density.mixture_density import HeldOutRows, rows_out_of_folds
from vicinal._engine import Engine, fit_engine, one_blas_thread_beside_pairs
from vicinal._fit_loops import Callback, FitPath, Recorder, accelerated_fixed_point, fixed_point
from vicinal._lca.base import LocalComponents, collapse_error
from vicinal._lca.checks import (
    LCA_REMEDIES,
    check_answerable,
    check_representable,
    check_scale,
    check_twins,
    check_variances,
    is_answerable,
)
from vicinal._lca.mixed_metric import MixedMetricMixin
from vicinal._lca.penalty import (
    AUTO_SHARE,
    LEAST_PENALTY,
    NO_PENALTY,
    PLENTY,
    Form,
    Shrinkage,
    as_parameter,
    check_penalty,
    check_reg,
    free_parameters,
    has_plenty,
)
from vicinal._lca.penalty_search import search_penalty
from vicinal._lca.steps import (
    CollapseError,
    MixedSteps,
    Penalty,
    Point,
    Steps,
    Structure,
    inverse_root,
    nearest_structured,
    ordered_metric,
)
from vicinal._lca.stochastic import (
    SAMPLE,
    Metrics,
    StochasticEM,
    Stream,
    coarse_start,
    exact_is_affordable,
    metric_of,
)
from vicinal._leave_one_out import (
    IncompleteRows,
    MixedRows,
    counted_rows,
    leave_one_out,
    narrowed,
    scatter_of_rows,
)
from vicinal._mixtures import SharedMixture
from vicinal._rows import TrainingRows, ValidRows, check_rows, forget_gaps, has_gaps, log_weights
from vicinal._rows.dask import fits_collections
from vicinal._search import held_out_splits

_COVARIANCES = ("full", "diag", "spherical", "low_rank")
_FEWEST_REFITTED = 20  # rows that a detector fits again in folds


class LCA(MixedMetricMixin, LocalComponents):
    r"""Local Component Analysis: learn the metric that makes data locally isotropic, without labels.

    PCA whitens by the spread of the whole data set, whereas LCA whitens by the spread of each row about its
    neighbours. LCA is the Parzen windows density whose kernel covariance maximises the leave-one-out
    likelihood,

    .. math::

        \max_\Sigma \; \frac1n \sum_i \log \Big[ \frac{1}{n-1} \sum_{j \ne i} N(x_i; x_j, \Sigma) \Big]
        - \frac12 \operatorname{tr}(\Sigma^{-1} R) \qquad (Eq. 1)

    The maximum is found by EM: the neighbours of each row are weighted by
    :math:`\lambda_{ij} \propto N(x_i; x_j, \Sigma)`, :math:`j \ne i` (Eq. 3), and
    :math:`\Sigma \leftarrow \frac1n \sum_{ij} \lambda_{ij} (x_i - x_j)(x_i - x_j)' + R` (Eq. 4 with the penalty; the paper
    has :math:`R = \nu I`).

    Parameters
    ----------
    covariance_type : {"full", "diag", "spherical", "low_rank"}, default="full"
        The form of :math:`\Sigma`: free, one variance per feature, one variance for all (of the same trace), or a
        matrix of rank ``rank`` plus a multiple of the identity.
    rank : int, optional
        For ``covariance_type="low_rank"``, less than the number of features.
    reg : "auto", float, array or Shrinkage, default="auto"
        The penalty R, in squared units of the data; :math:`\Sigma \ge R`. A number :math:`\nu` is :math:`\nu I`, a
        vector holds one variance per feature, and a matrix is R itself. A :class:`vicinal.Shrinkage` draws :math:`\Sigma`
        towards a target instead. "auto" chooses the penalty by the likelihood of held-out rows, in units of the columns; with
        many rows it is 0, and gives the density a background (see Notes). 0 is the paper's estimator, which has no solution on some
        data (see Notes).
    solver : {"auto", "em", "accelerated", "stochastic"} or StochasticEM, default="auto"
        "em" repeats Eqs. 3 and 4; the objective never decreases. "accelerated" reaches the same optimum in far
        fewer passes over the pairs, by quasi-Newton steps with EM steps as a safeguard. "stochastic" (sec. 5) uses minibatches
        of rows and samples of neighbours, so that time and memory are linear in n; its options are those of
        :class:`vicinal.StochasticEM`, which ``partial_fit`` uses as well. "auto" is "accelerated" up to 44,721 rows, and with
        more rows if a pass is expected to visit at most two billion pairs because the others can be skipped if kernels are narrow (see
        :class:`vicinal.Engine`); otherwise it is "stochastic". ``solver_`` is the solver that was used.
    init : "covariance", float or array, default="covariance"
        The initial covariance: that of the data (the target of a :class:`vicinal.Shrinkage`), or a number or vector (standard deviations), or a matrix (a
        covariance).
    categorical_features : "from_dtype", mask, positions, names or None, default="from_dtype"
        The columns of levels, whose categories are part of the density (see Notes). "from_dtype" takes the columns of a DataFrame that
        have the dtype category, as in scikit-learn, and here also those of text and of bool. None takes all columns as numbers.
    max_categories : int or None, default=32
        The largest number of coordinates of a column of levels, as in scikit-learn's OneHotEncoder: rarer levels share one. None gives
        each level its own.
    max_iter : int, optional
        The maximum number of passes over the pairs (default 500); for "stochastic", of sweeps over the rows (default 50).
    tol : float, optional
        The fit stops when a pass (an EM step) gains no more than this many nats per row; for "stochastic", when two
        successive sweeps do. The default is 1e-8, and 1e-3 for "stochastic".
    callback : callable, optional
        Called as ``callback(parameters, n_iter)`` after each pass of ``fit`` that is not rejected (each sweep of
        "stochastic"), with the flattened matrix A of shape (n_features, n_features), its rows not yet ordered, and
        the number of calls. It may raise StopIteration: the fit then ends, warns that it has not converged, and keeps
        the best matrix so far. Model files do not contain it.
    engine : None, str or Engine, default=None
        The backend of the pairwise computations; see :class:`vicinal.Engine`.
    random_state : int, RandomState instance or None, default=None
        Used by "stochastic" and by ``partial_fit``.
    verbose : int, default=0
        Print progress to stderr.

    Attributes
    ----------
    covariance_ : ndarray of shape (n_active, n_active)
        The kernel's covariance :math:`\Sigma` of the columns that vary (usually all).
    precision_ : ndarray of shape (n_active, n_active)
        Its inverse.
    category_smoothing_ : ndarray of shape (n_columns_of_levels,)
        The learned share l of each column of levels, in their order; only if there are such columns.
    components_ : ndarray of shape (n_active, n_features)
        The matrix A with :math:`\Sigma^{-1} = A'A`, which makes neighbourhoods round. For "full" and "low_rank" its rows are
        ordered: along the first one, the data spread most beyond their neighbourhoods. For "diag" and "spherical" A is diagonal.
    reg_ : ndarray of shape (n_features, n_features), or Shrinkage
        The penalty that was used: R, or a target and its weight. ``LCA(reg=reg_)`` gives the same kernels.
    reg_search_ : dict of ndarrays, or None
        The table of the search of ``reg="auto"``: ``family`` ("diagonal", "shrunk" or "sample"), ``factor``, ``weight`` (of a
        target; 0 for a penalty R), ``mean_test_score`` (nats per row of held-out rows) and ``std_test_score`` over the folds. The
        factor or weight that was used may lie between those of the table, at the maximum of a parabola through three of
        them. None without a search.
    active_features_ : ndarray of int
        The columns that vary. ``components_`` has zeros in the others, and ``covariance_`` and ``precision_`` leave
        them out.
    constant_values_ : ndarray
        The values of the other columns.
    objectives_ : ndarray
        The penalised objective per row, one entry per pass, the last one belonging to ``covariance_``.
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
    effective_neighbors_ : ndarray of shape (n_samples,), or (3000,) for rows in a file
        The effective number of neighbours of each row: the perplexity :math:`\exp(-\sum_j \lambda_{ij} \log
        \lambda_{ij})`. After "stochastic", among ``n_candidates`` (3000) sampled rows.
    mixture_ : SharedMixture
        The density.
    n_features_in_, feature_names_in_ : int, ndarray of str
        The number of columns of the training rows, and their names if they have names.

    Notes
    -----
    *Cost.* A pass takes O(n^2 d + n d^2 + d^3) time; memory beyond the data is the engine's budget, never O(n^2). A
    sweep of "stochastic" takes O(n N d) with ``n_candidates=N`` and O(n (d + 20) d^2) without; so does its start, a fit
    to a sample of rows.

    *The penalty.* ``reg="auto"`` tries :math:`\nu \operatorname{diag}(C)`, :math:`\nu \hat C` and :math:`\nu C`, with C the
    covariance of the columns and :math:`\hat C` its shrunk estimate (Ledoit and Wolf, in units of the columns), along
    paths of :math:`\nu`, on folds that hold out 300 rows (all of fewer). It also draws :math:`\Sigma` towards
    :math:`\nu \operatorname{diag}(C)`, where :math:`\nu` is that of the best single width, along a path of weights; this is chosen
    where it gains more than 0.1 nats per row over every R, as in tables of many columns. The folds do not depend on ``random_state``, never separate equal rows, and hold at
    most 2,000 rows. The search costs several plain fits. It is skipped, and R is 0, if there are at least
    2,000 rows without an exact twin, and 25 per free parameter of :math:`\Sigma` (a full covariance has d(d + 1)/2). If
    R = 0 has no solution there, the smallest penalty of the search is used.

    *The background.* A Gaussian kernel falls without limit: a row far from all others would cost tens or thousands of nats. With
    ``reg="auto"``, two Gaussians with the mean of the training rows and 1 and 9 times the covariance of the rows and the kernel have a share of
    the density, that of largest likelihood for the training rows, each left out (of 2,000 of them if there are more), and for one
    further row of their own. The rows are also left out of the mean and the covariance. Marginals, conditionals and samples stay exact.
    :math:`\Sigma`, the metric and ``objectives_`` are those of the kernels alone, but the search compares densities with their
    background. ``mixture_.background`` holds it; with a given penalty (such as ``reg=reg_``) and after `partial_fit` it is None.

    *Equivariance.* With the default initial covariance, the result is equivariant under shifts and under scalings of the
    columns (for "spherical" and "low_rank", one scale for all columns). With ``reg=0`` it is also equivariant under any
    invertible linear map for "full" (``transform`` then gives the same result up to signs), and under rotations for
    "spherical" and "low_rank".

    *When there is no solution.* There is no solution if all rows are equal. With ``reg=0`` the likelihood is also unbounded if
    every row has an exact twin, if columns are linearly dependent, if there are too few rows (always for n <= n_features), or
    if rows differ from their neighbours only in a subspace (integer grids). ``fit`` then raises a ValueError with the cause.

    ``sample_weight`` is importance: a row of weight 2 counts twice as a term of the likelihood and as a
    neighbour, but leave-one-out omits it as a whole.

    *Categories.* With shares :math:`\pi` of the levels of a column, the kernel of a pair has the further factor
    :math:`(1 - l) [c_i = c_j] + l \pi(c_i)`: the level is copied from the neighbour, or drawn from the shares. Each column has its own l,
    which is learned beside :math:`\Sigma`; with l = 1 the column is independent of the others. The shares of a training row leave it out.
    `components_` has the columns of numbers alone, and `transform` adds the coordinates of the levels. The penalty is chosen on the
    numbers.

    *Missing values.* ``fit`` accepts rows with missing values (NaN). Each pass ("em", at most 100 passes, with a tolerance
    of 1e-3 by default) replaces missing values by their expectation given the known ones under the density of the other
    rows, and adds their conditional covariance to the scatter. This is an approximation without a proof of ascent:
    ``objectives_`` holds the leave-one-out likelihood of the known values after each pass, and the best pass is kept.

    References
    ----------
    N. Le Roux and F. Bach, "Local Component Analysis", ICLR 2013 (arXiv:1109.0093).

    Examples
    --------
    LCA finds the shape of two flat clusters (about ten times as wide as high) although they are far apart.

    >>> import numpy as np
    >>> from vicinal import LCA
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 2)) * [1.0, 0.1] + 5 * rng.integers(2, size=(400, 1))
    >>> lca = LCA().fit(X)
    >>> np.sqrt(np.diag(lca.covariance_)).round(3)
    array([0.484, 0.056])
    >>> round(lca.score(), 3)  # leave-one-out log-likelihood per row
    -1.288
    """

    _solvers = ("auto", "accelerated", "em", "stochastic")
    _passes = 20
    _limits: ClassVar[dict[str, tuple[int, float]]] = {
        "exact": (500, 1e-8),
        "stochastic": (50, 1e-3),
        "gaps": (100, 1e-3),
    }
    _remedies = LCA_REMEDIES  # in messages; a method that fits an LCA for itself has its own
    _auto_share = AUTO_SHARE  # of the covariance of rows with missing values, as the penalty of reg="auto"
    _background_stays: bool | None = None  # whether the density has a background; None if the penalty decides
    _stream: dict[str, Any] | None
    _reg_form: Form | None  # the penalty of reg="auto" as a function of the rows; None for a given one

    def __init__(
        self,
        covariance_type: str = "full",
        *,
        rank: int | None = None,
        reg: Shrinkage | str | float | ArrayLike = "auto",
        solver: StochasticEM | str = "auto",
        init: str | float | ArrayLike = "covariance",
        categorical_features: Any = "from_dtype",
        max_categories: int | None = 32,
        max_iter: int | None = None,
        tol: float | None = None,
        callback: Callback | None = None,
        engine: Engine | str | None = None,
        random_state: RandomState | int | None = None,
        verbose: int | bool = 0,
    ) -> None:
        self.covariance_type = covariance_type
        self.rank = rank
        self.reg = reg
        self.solver = solver
        self.init = init
        self.categorical_features = categorical_features
        self.max_categories = max_categories
        self.max_iter = max_iter
        self.tol = tol
        self.callback = callback
        self.engine = engine
        self.random_state = random_state
        self.verbose = verbose

    @fits_collections
    def fit(self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learn the metric and the density of the rows of X.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or rows in a file; see :func:`vicinal.io.open_rows`
            The rows. NaN marks a missing value; see Notes.
        y : ignored
            Not used; accepted because pipelines of scikit-learn pass it.
        sample_weight : array-like of shape (n_samples,), optional
            The importance of the rows. The weights must not be negative, and at least two must be positive.

        Returns
        -------
        self
        """
        # The rows x_i: numbers, or numbers and levels; in memory, or in a file; NaN where a value is missing.
        rows = self._open(X, sample_weight)
        structure = self._check_parameters(rows.values.shape[1])
        # R of Eq. 1 is the user's, or chosen by held-out rows. Columns along which the kernel has no width are left out.
        rows, penalty = self._penalty(rows, structure)
        problem, covariance = self._problem_and_covariance(rows)  # each row is scored by all others (j != i)
        # For reg="auto", there is a larger R as well, should the kernel collapse under the first.
        for reg in self._penalties(penalty, covariance, rows):
            try:
                # Sigma is known by its metric A, with Sigma^-1 = A'A. It starts at the covariance of the data (or at `init`), and
                # collapses if it becomes tiny relative to that of the data, the reference.
                start, reference = self._start(problem, covariance, reg, structure)
                # One pass over the pairs at A: the objective (Eq. 1), the neighbours' weights lambda_ij (Eq. 3), and
                # Sigma <- 1/n sum_ij lambda_ij (x_i - x_j)(x_i - x_j)' + R (Eq. 4 with the penalty).
                em = (Steps if rows.levels is None else MixedSteps)(reg, structure, start, reference)
                path, neighbors = self._maximised(problem, em, start, rows)
                break
            except np.linalg.LinAlgError:  # the kernel collapsed: the likelihood has no maximum under this R
                self._reg_form = LEAST_PENALTY
        else:
            raise collapse_error(rows, self.covariance_type, self._remedies)
        self._keep_path(path, reg)
        self._keep(path, rows, covariance, neighbors)  # the density is that of Parzen windows with the covariance Sigma
        return self

    def _maximised(
        self, problem: Any, em: Steps, start: np.ndarray, rows: TrainingRows
    ) -> tuple[FitPath, np.ndarray | None]:
        """Return the path to the maximum of the penalised likelihood (Eq. 1), and a sample of neighbours for sweeps."""
        self.solver_, start = self._solver_and_start(problem, em, start)
        record = Recorder.of(self, lambda at: getattr(at, "metric", at))
        if self.solver_ == "stochastic":  # sec. 5: covariances of minibatches, blended with the current one (Eq. 7)
            path, neighbors = self._sweep(Metrics(problem, em.reg, em.structure), start, rows, record)
            return path._replace(parameters=Point(path.parameters, problem)), neighbors
        at, limits = Point(start, problem), self._limits_of("gaps" if rows.incomplete else "exact")
        with one_blas_thread_beside_pairs(*problem.rows.shape):  # this includes the algebra between the passes
            if self.solver_ == "em":  # Eqs. 3 and 4 in turn
                return fixed_point(em.step, at, record, may_lose=rows.incomplete, **limits), None
            return accelerated_fixed_point(em.displacement, em.move, at, record, **limits), None

    def _open(self, X: Any, sample_weight: Any) -> TrainingRows:
        """Return the rows of a fit, validated; rows that another estimator has validated are taken as they are."""
        self._stream = None
        if isinstance(X, TrainingRows):
            return X._replace(values=ValidRows(X.values).taken_by(self))
        table = self._open_table(X, sample_weight)
        if table is None:
            return super()._open(X, sample_weight)
        if self._pick_solver(0) == "stochastic":
            raise ValueError(
                "solver='stochastic' needs columns of numbers. Use solver='accelerated' for columns of levels."
            )
        return TrainingRows(table.numbers, table.weight, None, incomplete=table.incomplete, levels=table)

    def _problem_and_covariance(self, rows: TrainingRows) -> tuple[Any, np.ndarray]:
        """Return the leave-one-out problem of a kind of rows, and the covariance of the data."""
        problem: Any
        if rows.levels is not None:
            tol = self._limits_of("gaps" if rows.incomplete else "exact")["tol"]
            levels = rows.levels.categories, rows.levels.codes
            problem = MixedRows.of(rows.values, rows.weight, fit_engine(self), levels, tol)
        elif rows.incomplete:
            problem = IncompleteRows.of(rows.values, rows.weight, self.engine, self._active_names)
        else:
            problem = self._problem(rows)
            known = (rows.values, rows.weight) if rows.file else (problem.rows, problem.weight)
            return problem, scatter_of_rows(*known)
        return problem, problem.covariance

    def partial_fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Learn from more rows of a stream (sec. 5.1), in bounded memory.

        The rows are processed in minibatches of ``batch_size``. The possible neighbours of a minibatch are its own rows and
        a uniform sample of ``n_candidates`` (3000 by default) of the rows seen before. It updates the covariance by Eq. 7,
        where n is the number of rows seen. The density is that of the sample. After ``fit``, the stream continues from the
        fit.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows. The first call starts from a fit to its rows (from their covariance if there are at most four rows per
            feature, or from ``init``). With ``reg="auto"`` these rows also determine the penalty of the whole stream, and
            columns that are constant in them are ignored in the whole stream.
        y : ignored
            Not used; accepted because pipelines of scikit-learn pass it.

        Returns
        -------
        self
            ``n_samples_seen_`` counts the rows; ``objectives_`` holds the objective per row of each minibatch before
            the update, and ``n_iter_`` is their number; ``converged_`` is False, because a stream has no end;
            ``effective_neighbors_`` and ``score_samples(None)`` are those of the sample. The callback is not called.
        """
        if self._has_levels:
            raise ValueError(
                "partial_fit needs columns of numbers, and this LCA was fitted to columns of levels. Use fit."
            )
        fresh = not hasattr(self, "components_")
        reg: Any
        given: Any
        rows = check_rows(self, X, reset=fresh, min_rows=2 if fresh else 1).astype(np.float64, copy=False)
        structure, options = self._check_parameters(rows.shape[1]), self._stochastic_options()
        if fresh:
            opened, reg = self._penalty(TrainingRows(rows, None, X), structure)
            rows, self._stream, self.reg_ = opened.values, None, as_parameter(reg, self._in_all_columns)
        else:
            given = check_reg(self.reg, self.n_features_in_) or check_reg(self.reg_, self.n_features_in_)
            reg = given.of_columns(self.active_features_)
        rows = rows if fresh else self._active(rows)
        stream, objectives = self._open_stream(rows, reg, structure, options.n_candidates or SAMPLE, fresh)
        try:
            # The very first minibatch has two rows at least: a single row has no neighbour.
            cuts = range(max(options.batch_size, 2 - len(stream.reservoir)), len(rows), options.batch_size)
            for batch in np.split(rows, cuts):
                objectives.append(
                    stream.learn(batch, reg=reg, structure=structure, discount=options.discount, engine=self.engine)
                )
            metric = metric_of(stream.local, reg, structure)
        except CollapseError:
            raise collapse_error(
                TrainingRows(stream.reservoir, None, X), self.covariance_type, self._remedies
            ) from None
        forget_gaps(self)
        self._stream = {"local": stream.local, "seed": stream.seed}
        self.solver_, self.converged_ = "stream", False
        self.objectives_, self.n_iter_, self.n_samples_seen_ = np.array(objectives), len(objectives), stream.seen
        problem = leave_one_out(stream.reservoir, None, self.engine)
        self._keep_metric(metric, scatter_of_rows(stream.reservoir))
        self.mixture_ = self._shared_mixture(stream.reservoir, None)
        sample = TrainingRows(stream.reservoir, None, X)
        self._keep_neighbors(problem, self.components_[:, self.active_features_], sample, stream.reservoir, None)
        return self

    def _open_stream(
        self, X: np.ndarray, reg: Penalty, structure: Structure, size: int, fresh: bool
    ) -> tuple[Stream, list[float]]:
        """Return the stream before the rows of X, which may come from `fit` or from the last call, and its objectives."""
        if fresh:
            seed = self._seed()
            problem = leave_one_out(X, None, self.engine, passes=self._passes)
            start, _ = self._start(problem, scatter_of_rows(X), reg, structure)
            if isinstance(self.init, str):
                start = Metrics(problem, reg, structure).fit_sample(start, size, np.random.default_rng(seed))
            local = reg.local_part(np.linalg.inv(start.T @ start))
            return Stream(X[:0], local, 0, size, seed), []
        centres, shares = self.mixture_.centres, np.exp(self.mixture_.log_weights)
        left = getattr(self, "_stream", None)
        if left is not None:
            n_seen = self.n_samples_seen_
            return Stream(centres.astype(np.float64), left["local"], n_seen, size, left["seed"]), list(self.objectives_)
        seed, n = self._seed(), int(np.count_nonzero(shares))
        reservoir = np.random.default_rng(seed).choice(
            len(centres), min(size, n), replace=False, p=shares / shares.sum()
        )
        return Stream(centres[reservoir].astype(np.float64), reg.local_part(self.covariance_), n, size, seed), []

    def _penalty(self, rows: TrainingRows, structure: Structure) -> tuple[TrainingRows, Penalty | None]:
        """Return the columns that vary and their penalty; raise for data without a solution, and search for "auto".

        "auto" is None for rows with missing numbers: it is then a share of the covariance, because scores of held-out rows with
        different gaps cannot be compared.
        """
        X, self.reg_search_, self._reg_form, self._constants = rows.values, None, None, None
        if X.shape[1] == 0:  # all columns are levels
            return rows, Penalty(np.zeros((0, 0)))
        given = check_reg(self.reg, X.shape[1])
        if rows.incomplete and (rows.levels is None or has_gaps(X)):  # constant columns have a width as well
            return rows, given and check_penalty(given, self.active_features_, self._active_names)
        # A penalty gives the kernel a width along constant columns, so they are kept.
        kept_columns = None if given is None else np.diag(given.matrix) > 0
        if rows.file is not None:  # X is a sample, in which a column may be constant that varies elsewhere
            kept_columns = rows.file.varies if kept_columns is None else rows.file.varies | kept_columns
        if structure.covariance in ("spherical", "low_rank") and given is not None and given.weight is None:
            kept_columns = np.full(X.shape[1], not given.is_zero or bool(np.ptp(X, axis=0).any()))
        rows = rows.of_columns(self._keep_active(X, rows.weight, width="reg", kept=kept_columns), self.active_features_)
        if given is None and rows.incomplete and "_auto_share" in vars(self):  # the share of another estimator
            return rows, None
        X, weight = counted_rows(rows.values, rows.weight)
        if given is None or given.is_zero:
            check_scale(X, structure.covariance, self._active_names)
        if given is not None:
            given = check_penalty(given, self.active_features_, self._active_names)
            if given.is_zero:
                check_answerable(X, *structure, names=self._active_names, remedies=self._remedies)
                check_twins(X, self._remedies)
            return rows, given
        if has_plenty(X, structure):
            self._reg_form = NO_PENALTY if is_answerable(X, *structure) else LEAST_PENALTY
        elif (choice := search_penalty(X, weight, structure, fit_engine(self), self._has_background)) is None:
            self._reg_form = Form("diagonal", 1.0)
        else:
            self._reg_form, self.reg_search_ = choice.form, choice.table
        return rows, self._reg_form.of_rows(X, weight)

    def _solver_and_start(self, problem: Any, steps: Steps, start: np.ndarray) -> tuple[str, np.ndarray]:
        """Return the solver, and a start for it: that of an exact fit of many rows comes from some of them."""
        if isinstance(problem, IncompleteRows):
            return "em", start
        if isinstance(problem, MixedRows):
            return "em" if self.solver == "em" or problem.pairs is None else "accelerated", start
        n, solver = len(problem.rows), self._pick_solver(len(problem.rows))
        is_coarse = isinstance(self.init, str) and isinstance(problem.rows, np.ndarray)
        with one_blas_thread_beside_pairs(*problem.rows.shape):
            if self.solver == "auto":
                if solver == "stochastic" and is_coarse and exact_is_affordable(problem, steps, start):
                    solver = "accelerated"
                self._print(f"solver={solver!r} for {n} rows")
            if is_coarse and solver == "accelerated":
                start = coarse_start(problem, steps, start, self._print)
        return solver, start

    def _held_out_rows(self, rows: np.ndarray) -> Iterable[HeldOutRows]:
        """Return training rows with the density without them: without their fold, if rows are few for the kernel's parameters."""
        log_shares, d = self._mixture().log_weights, len(self.covariance_)
        n_rows, has_gaps = int(np.count_nonzero(log_shares > -np.inf)), hasattr(self, "_left_out_scores")
        enough = PLENTY * free_parameters(self._check_parameters(d), d)
        if has_gaps or not _FEWEST_REFITTED <= n_rows < enough:
            return super()._held_out_rows(rows)
        if self._has_levels:
            return self._held_out_levels(rows)
        X = self._with_constants(self._training_rows())
        weight = None if np.ptp(log_shares) == 0 else len(X) * np.exp(log_shares)

        def mixture_of(train: np.ndarray) -> SharedMixture:
            again = clone(self).set_params(reg=self.reg_, callback=None, verbose=0)
            again._background_stays = self._has_background
            with warnings.catch_warnings(action="ignore"):  # warnings were already issued for all rows
                shares = None if weight is None else weight[train]
                return again.fit(ValidRows(X[train]), sample_weight=shares).mixture_

        return rows_out_of_folds(self, rows, weight, mixture_of)

    def _held_out_levels(self, rows: np.ndarray) -> list[HeldOutRows]:
        """Return training rows of numbers and levels under the kernel that was learned without their fold, each row left out."""
        mixture = self._mixture()
        categories = mixture.categories
        codes = self._training_rows()
        weight = None if np.ptp(mixture.log_weights) == 0 else len(codes) * np.exp(mixture.log_weights)
        numbers = codes[:, categories.numbers]
        table, parts = MixedTable(numbers, weight, categories, codes), []
        reg: Any = check_reg(self.reg_, self.n_features_in_ - len(categories.columns))
        reg = as_parameter(reg.of_columns(np.flatnonzero(np.isin(self._categories.numbers, self.active_features_))))
        for train, test in held_out_splits(codes, weight):
            places = np.flatnonzero(np.isin(rows, test))
            again: Any = clone(self).set_params(reg=reg, init="covariance", callback=None, verbose=0)
            with warnings.catch_warnings(action="ignore"):  # warnings were already issued for all rows
                again.fit(table.take(train))
            if len(again.covariance_) < numbers.shape[1] or not len(places):  # a column is constant without the fold
                continue
            kernel = mixture.with_kernel(again.covariance_, again.category_smoothing_)
            parts.append(HeldOutRows(places, kernel, rows[places]))
        held_out_places = np.concatenate([part.positions for part in parts]) if parts else np.array([], dtype=int)
        rest = np.setdiff1d(np.arange(len(rows)), held_out_places)
        return [*parts, HeldOutRows(rest, mixture, rows[rest])] if len(rest) else parts

    def _check_parameters(self, n_features: int) -> Structure:
        """Return the structure; raise an error for invalid parameters."""
        self._check_solver()
        check_choice(self.covariance_type, "covariance_type", _COVARIANCES)
        rank = None if self.rank is None else check_integer(self.rank, "rank")
        if self.covariance_type == "low_rank":
            if rank is None:
                raise ValueError("covariance_type='low_rank' needs rank, the number of free directions, got rank=None.")
            if rank >= n_features:
                raise ValueError(
                    f"rank must be less than the number of features, {n_features}, got {rank}. Use covariance_type='full' "
                    "for a covariance of full rank."
                )
        return Structure(self.covariance_type, rank if self.covariance_type == "low_rank" else None)

    def _start(
        self, problem: Any, covariance: np.ndarray, reg: Penalty, structure: Structure
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the metric to start from, and that of the data: inverse roots of covariances of the structure.

        Rows with gaps start from a kernel of the width of Scott's rule.
        """
        if not len(covariance):
            return covariance, covariance
        incomplete = isinstance(problem, IncompleteRows) or (isinstance(problem, MixedRows) and problem.pairs is None)
        of_data = reg.updated(narrowed(covariance, len(problem.rows))) if incomplete else reg.start(covariance)
        structured = nearest_structured(of_data, *structure)
        check_variances(structured, self._active_names)
        if not reg.is_zero:
            check_representable(structured, "reg", self.reg)
        reference = inverse_root(structured)
        if isinstance(self.init, str):
            check_choice(self.init, "init", ("covariance",))
            return reference, reference
        given = bandwidth_covariance(self.init, self.n_features_in_, name="init")
        given = given[np.ix_(self.active_features_, self.active_features_)]
        return inverse_root(nearest_structured(given, *structure)), reference

    def _keep(self, path: FitPath, rows: TrainingRows, covariance: np.ndarray, neighbors: np.ndarray | None) -> None:
        """Store the metric and the density."""
        metric, problem = path.parameters
        if isinstance(problem, MixedRows):
            self._keep_table(metric, problem, rows)
            return
        if isinstance(problem, IncompleteRows):  # the rows of the density are those of the best pass, without gaps
            self._incomplete_rows = rows.values.copy()
            self._keep_metric(metric, scatter_of_rows(problem.rows, rows.weight))
            self._left_out_scores = problem.expect(self.covariance_).scores
            rows, problem = rows._replace(values=problem.rows.astype(rows.values.dtype)), problem.complete()
            X = problem.rows
        else:
            self._keep_metric(metric, covariance)
            X = rows.values
        self.mixture_ = self._shared_mixture(*rows.kept())
        if self._has_background:
            self._keep_background(None if rows.file is None else rows.values)
        self._keep_neighbors(problem, self.components_[:, self.active_features_], rows, X, neighbors)

    def _keep_table(self, metric: np.ndarray, problem: MixedRows, rows: TrainingRows) -> None:
        """Store the metric of the numbers, l, and the density of all columns."""
        self._keep_metric(metric, scatter_of_rows(problem.rows, problem.weight))
        self.category_smoothing_, values = problem.smoothing, rows.values
        if rows.incomplete:
            self._left_out_scores = problem.scores(metric)
            self._incomplete_rows, values = rows.levels.codes.copy(), problem.rows
        placed = problem.placed(metric)
        all_rows = np.full(len(values), True)
        counted = all_rows if rows.weight is None or rows.incomplete else rows.weight > 0
        self.effective_neighbors_ = np.empty(len(values))
        self.effective_neighbors_[counted] = placed.perplexities()
        if not counted.all():
            others = np.hstack([values, rows.levels.categories.indicators(rows.levels.codes)])[~counted]
            self.effective_neighbors_[~counted] = placed.perplexities(others)
        self.engine_ = placed.problem.backend
        self.certified_row_error_ = placed.problem.certified_row_error
        self._keep_levels(rows.levels, self.category_smoothing_, values, log_weights(rows.weight))
        if self._has_background:
            self._keep_background()

    @property
    def _has_background(self) -> bool:
        return isinstance(self.reg, str) if self._background_stays is None else self._background_stays

    def _keep_metric(self, metric: np.ndarray, covariance: np.ndarray) -> None:
        """Store the metric, its rows ordered by the covariance of the data."""
        diagonal = self.covariance_type in ("diag", "spherical")
        metric = np.abs(metric) if diagonal or not len(metric) else ordered_metric(metric, covariance)
        inverse = np.linalg.inv(metric)
        self.components_ = self._in_all_columns(metric)
        self.covariance_, self.precision_ = inverse @ inverse.T, metric.T @ metric
