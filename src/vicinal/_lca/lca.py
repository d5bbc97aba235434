"""Local Component Analysis (Le Roux and Bach, 2011): the metric in which data are locally isotropic."""

import sys
from typing import ClassVar, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils import check_random_state

from vicinal._checks import (
    bandwidth_covariance,
    check_callback,
    check_choice,
    check_integer,
    check_positive,
    check_rows,
    check_weights,
)
from vicinal._density.mixture_density import MixtureDensityMixin
from vicinal._engine import Engine, Work, quiet_blas
from vicinal._fit_loops import Callback, Recorder, fixed_point, warn_if_not_converged
from vicinal._lca.accelerated import accelerated_fixed_point
from vicinal._lca.checks import (
    LCA_ADVICE,
    check_answerable,
    check_representable,
    check_twins,
    check_two_rows,
    collapse_message,
)
from vicinal._lca.missing import fit_lca_to_gaps
from vicinal._lca.options import StochasticEM
from vicinal._lca.steps import (
    CollapseError,
    Steps,
    Structure,
    inverse_root,
    nearest_structured,
    one_pass,
    ordered_metric,
)
from vicinal._lca.stochastic import SAMPLE, metric_of, rows_per_sweep, sampled_start, stochastic_path
from vicinal._lca.stream import Stream
from vicinal._leave_one_out import leave_one_out, perplexities, scatter_of_rows
from vicinal._metric import LinearMetricMixin
from vicinal._mixtures import SharedMixture
from vicinal._records import Record, RecordParametersMixin, as_record

_COVARIANCES = ("full", "diag", "spherical", "low_rank")
_SOLVERS = ("auto", "em", "accelerated", "stochastic")

# Up to here a pass over all pairs takes seconds on two cores, and the accelerated solver needs 10 to 30.
_EXACT_ROWS = 20_000
_MAX_PASSES, _EXACT_TOL = 500, 1e-8
_MAX_SWEEPS, _SWEEP_TOL = 50, 1e-3
# Passes (or sweeps) that a fit makes, about; the engine chooses by it.
_PASSES = 20


class LCA(RecordParametersMixin, LinearMetricMixin, MixtureDensityMixin, DensityMixin, BaseEstimator):
    r"""Local Component Analysis: learn the metric that makes data locally isotropic, without labels.

    PCA whitens by the spread of the whole data set; LCA whitens by the spread of each row about its
    neighbours. It is the Parzen windows density with the kernel covariance of maximum leave-one-out
    likelihood,

    .. math::

        \max_\Sigma \; \frac1n \sum_i \log \Big[ \frac{1}{n-1} \sum_{j \ne i} N(x_i; x_j, \Sigma) \Big]
        - \frac{\nu}{2} \operatorname{tr} \Sigma^{-1} \qquad (Eq. 1)

    found by EM: the neighbours of each row are weighed by
    :math:`\lambda_{ij} \propto N(x_i; x_j, \Sigma)`, :math:`j \ne i` (Eq. 3), and
    :math:`\Sigma \leftarrow \frac1n \sum_{ij} \lambda_{ij} (x_i - x_j)(x_i - x_j)' + \nu I` (Eq. 4 with the
    penalty).

    Parameters
    ----------
    covariance_type : {"full", "diag", "spherical", "low_rank"}, default="full"
        The form of :math:`\Sigma`: free, one variance per feature, one variance for all (of the same trace), or a
        matrix of rank ``rank`` plus a multiple of the identity.
    rank : int, optional
        For ``covariance_type="low_rank"``, less than the number of features.
    reg : float, default=0.0
        The penalty :math:`\nu`, a variance in squared units of the data: :math:`\Sigma \ge \nu I`. Needed
        when the likelihood has no maximum (see Notes).
    solver : {"auto", "em", "accelerated", "stochastic"} or StochasticEM, default="auto"
        "em" repeats Eqs. 3 and 4; the objective never falls. "accelerated" reaches the same optimum in far
        fewer passes over the pairs, by quasi-Newton steps that EM safeguards. "stochastic" (sec. 5) sees
        minibatches of rows and samples of neighbours: time and memory are linear in n; its options are those of
        :class:`vicinal.StochasticEM`, which ``partial_fit`` uses as well. "auto" is
        "accelerated" up to 20,000 rows, then "stochastic"; see ``solver_``.
    init : "covariance", float or array, default="covariance"
        The start: the covariance of the data, or a number or vector (standard deviations) or a matrix (a
        covariance).
    max_iter : int, optional
        Most passes over the pairs; for "stochastic", most sweeps over the rows. The default is 500 and 50.
    tol : float, optional
        Stop when a pass (an EM step) gains no more than this many nats per row; for "stochastic", when two
        sweeps in a row do. The default is 1e-8 and 1e-3.
    callback : callable, optional
        Called as ``callback(parameters, n_iter)`` after each pass of ``fit`` that is not rejected (each sweep of
        "stochastic"), with the flattened matrix A of shape (n_features, n_features), its rows not yet ordered, and
        the number of calls. It may raise StopIteration: the fit then ends, warns that it has not converged, and keeps
        the best matrix so far. A model file does not hold it.
    engine : None, str or Engine, default=None
        The backend of the pairwise computations; see :class:`vicinal.Engine`.
    random_state : int, RandomState instance or None, default=None
        Used by "stochastic" and by ``partial_fit``.
    verbose : int, default=0
        Print progress to stderr.

    Attributes
    ----------
    covariance_ : ndarray of shape (n_features, n_features)
        The kernel's covariance :math:`\Sigma`.
    precision_ : ndarray of shape (n_features, n_features)
        Its inverse.
    components_ : ndarray of shape (n_features, n_features)
        A with :math:`\Sigma^{-1} = A'A`: ``transform`` maps to where neighbourhoods are round. For "full" and
        "low_rank" the rows are ordered: the data spread most beyond their neighbourhoods along the first. For
        "diag" and "spherical" A is diagonal.
    objectives_ : ndarray
        The penalised objective per row, one entry a pass, the last one belonging to ``covariance_``.
    n_iter_ : int
        Passes over the pairs (sweeps over the rows for "stochastic").
    converged_ : bool
    solver_ : str
        The solver that was used.
    engine_ : str
        The backend of the pair work.
    effective_neighbors_ : ndarray of shape (n_samples,)
        How many neighbours explain each row: the perplexity :math:`\exp(-\sum_j \lambda_{ij} \log
        \lambda_{ij})`. After "stochastic", among ``n_candidates`` (3000) sampled rows.
    mixture_ : SharedMixture
        The density.
    n_features_in_ : int
    feature_names_in_ : ndarray of str, only when fitted on named columns

    Notes
    -----
    *Cost.* A pass takes O(n^2 d + n d^2 + d^3) time; memory beyond the data is the engine's budget, never O(n^2). A
    sweep of "stochastic" takes O(n N d) with ``n_candidates=N`` and O(n (d + 20) d^2) without; so does its start, a fit
    to a sample of rows.

    *Equivariance.* With ``reg=0`` and the default start, the answer follows the data through a change of
    coordinates: any invertible linear map for "full" (then ``transform`` gives the same image up to signs),
    scalings of the axes for "diag", rotations and one scale for "spherical" and "low_rank"; shifts for all.

    *When there is no answer.* With ``reg=0`` the likelihood is unbounded when every row has an exact twin,
    when columns are constant or linearly dependent, when there are too few rows (surely at n <=
    n_features), or when rows differ from their neighbours in a subspace only (integer grids). Then ``fit``
    raises a ValueError that names the cause.

    ``sample_weight`` is importance: a row of weight 2 counts twice as a term of the likelihood and as a
    neighbour, but is left out as a whole when it is left out.

    *Missing values.* ``fit`` takes rows with gaps (NaN). Each pass ("em", at most 100, to a tolerance of 1e-3 by default)
    replaces missing entries by their expectation given the known ones under the density of the other rows, and adds their
    conditional covariance to the scatter. This is an approximation without a proof of ascent: ``objectives_`` holds the
    leave-one-out likelihood of what is known after each pass, and the best pass is kept.

    References
    ----------
    N. Le Roux and F. Bach, "Local Component Analysis", ICLR 2013 (arXiv:1109.0093).

    Examples
    --------
    Two flat clusters: LCA finds their shape (ten times as wide as high), whatever their distance.

    >>> import numpy as np
    >>> from vicinal import LCA
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 2)) * [1.0, 0.1] + 5 * rng.integers(2, size=(400, 1))
    >>> lca = LCA().fit(X)
    >>> np.sqrt(np.diag(lca.covariance_)).round(3)
    array([0.484, 0.055])
    >>> round(lca.score(), 3)  # leave-one-out log-likelihood per row
    -1.286
    """

    _record_types: ClassVar[dict[str, type[Record]]] = {"solver": StochasticEM, "engine": Engine}

    def __init__(
        self,
        covariance_type: str = "full",
        *,
        rank: int | None = None,
        reg: float = 0.0,
        solver: StochasticEM | str = "auto",
        init: str | float | ArrayLike = "covariance",
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
        self.max_iter = max_iter
        self.tol = tol
        self.callback = callback
        self.engine = engine
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learn the metric and the density of the rows of X.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN where a value is missing; see Notes.
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional
            Importance of the rows; not negative, at least two of them positive.

        Returns
        -------
        self
        """
        rows = check_rows(self, X, reset=True, min_rows=2, gaps=True)
        if np.isnan(rows).any():
            weight = check_two_rows(check_weights(sample_weight, rows))
            check_callback(self.callback)
            fit_lca_to_gaps(self, rows, weight, *self._check_parameters(rows.shape[1]))
        else:
            self._fit(X, sample_weight, LCA_ADVICE)
        return self

    def _fit(self, X, sample_weight, advice):
        """Fit, with the remedies that the caller's users have; return the path."""
        X, weight, reg, structure, limits = self._check_input(X, sample_weight, advice)
        self.__dict__.pop("_left_out_scores", None)  # of an earlier fit to rows with missing values
        queries = self._pair_work(*X.shape).n_queries
        problem = leave_one_out(X, weight, self.engine, reg=reg, n_queries=queries, passes=_PASSES)
        self.engine_ = problem.pairs.backend
        spread = scatter_of_rows(problem.rows, problem.weight)
        # Sigma is known by its metric A, with Sigma^-1 = A'A; it starts at the covariance of the data, as in Algorithm 1.
        start, record, neighbors = self._start(spread, reg, structure), Recorder.of(self), None
        try:
            if self.solver_ == "stochastic":
                # Local covariances of minibatches, each blended with what is known (Eq. 7).
                path, neighbors = self._sweep(problem, start, structure, record, limits)
            else:
                # One pass over the pairs at A: the objective (Eq. 1), the neighbours' weights lambda_ij (Eq. 3), and
                # Sigma <- 1/n sum_ij lambda_ij (x_i - x_j)(x_i - x_j)' + nu I (Eq. 4 with the penalty).
                reference = self._spread_metric(spread, reg, structure)
                steps = Steps(lambda metric: one_pass(problem, metric), structure, start, reference)
                with quiet_blas(*problem.rows.shape):  # the algebra between the passes, too
                    if self.solver_ == "em":
                        path = fixed_point(steps.em, start, record, **limits)
                    else:
                        path = accelerated_fixed_point(steps.displacement, steps.move, start, record, **limits)
            self._keep(path.parameters, spread)
            self._keep_density(X.copy(), weight, problem, neighbors)
        except (CollapseError, np.linalg.LinAlgError):
            raise ValueError(collapse_message(X, weight, self.covariance_type, advice)) from None
        warn_if_not_converged("LCA", path, stacklevel=4)
        self.objectives_, self.n_iter_, self.converged_ = path.objectives, path.n_iter, path.converged
        return path

    def _check_input(self, X, sample_weight, advice):
        """The rows, their weights, the penalty, the structure and the limits of the loop; chooses the solver."""
        X = check_rows(self, X, reset=True, min_rows=2)
        weight = check_two_rows(check_weights(sample_weight, X))
        reg, structure = self._check_parameters(X.shape[1])
        check_callback(self.callback)
        if reg == 0:
            check_answerable(X, weight, *structure, names=getattr(self, "feature_names_in_", None), advice=advice)
            check_twins(X, weight, advice, stacklevel=5)
        self._stream: dict | None = None
        self.solver_ = self._pick_solver(len(X))
        if self.verbose and self.solver == "auto":
            print(f"[LCA] solver={self.solver_!r} for {len(X)} rows", file=sys.stderr, flush=True)
        stochastic = self.solver_ == "stochastic"
        limits = self._limits(_MAX_SWEEPS, _SWEEP_TOL) if stochastic else self._limits(_MAX_PASSES, _EXACT_TOL)
        return X, weight, reg, structure, limits

    def partial_fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn from more rows of a stream (sec. 5.1), in bounded memory.

        The rows are taken in minibatches of ``batch_size``; each sees, as possible neighbours, itself and a uniform
        sample of ``n_candidates`` (3000 by default) of the rows seen before, and moves the covariance by Eq. 7 with
        n the number of rows seen. The density is that of the sample. After ``fit`` the stream goes on from there.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The first call starts from a fit to its rows (from their covariance, where they are at most four a feature;
            or from ``init``); more rows than features are needed then, or ``reg`` > 0.
        y : ignored

        Returns
        -------
        self
            ``n_samples_seen_`` counts the rows; ``objectives_`` holds the objective per row of each minibatch before
            it was learned from, ``n_iter_`` their number; ``converged_`` is False, a stream has no end;
            ``effective_neighbors_`` and ``score_samples(None)`` are those of the sample. The callback is not called.
        """
        fresh = not hasattr(self, "components_")
        X = check_rows(self, X, reset=fresh, min_rows=2 if fresh else 1).astype(np.float64, copy=False)
        reg, structure = self._check_parameters(X.shape[1])
        options = self._stochastic_options()
        stream, objectives = self._open_stream(X, reg, structure, options.n_candidates or SAMPLE, fresh)
        try:
            # The very first minibatch has two rows at least: a row alone has no neighbour.
            cuts = range(max(options.batch_size, 2 - len(stream.reservoir)), len(X), options.batch_size)
            for batch in np.split(X, cuts):
                objectives.append(
                    stream.learn(batch, reg=reg, structure=structure, discount=options.discount, engine=self.engine)
                )
            metric = metric_of(stream.local, reg, structure)
        except CollapseError:
            raise ValueError(collapse_message(stream.reservoir, None, self.covariance_type)) from None
        self._stream = {"local": stream.local, "seed": stream.seed}
        self.solver_, self.converged_ = "stream", False
        self.objectives_, self.n_iter_, self.n_samples_seen_ = np.array(objectives), len(objectives), stream.seen
        problem = leave_one_out(stream.reservoir, None, self.engine, reg=reg)
        self.engine_ = problem.pairs.backend
        self._keep(metric, scatter_of_rows(stream.reservoir))
        self._keep_density(stream.reservoir, None, problem)
        return self

    def _open_stream(self, X, reg, structure, size, fresh):
        """The stream before the rows of X (a start, what `fit` left, or what the last call left), and its objectives."""
        if fresh:
            if reg == 0:
                check_answerable(X, None, *structure, names=getattr(self, "feature_names_in_", None))
                check_twins(X, None)
            seed = self._seed()
            problem = leave_one_out(X, None, self.engine, reg=reg, passes=_PASSES)
            start = self._start(scatter_of_rows(X), reg, structure)
            if isinstance(self.init, str):
                fit = sampled_start(problem, start, structure, size, np.random.default_rng(seed))
                start = start if fit is None else fit.parameters
            local = np.linalg.inv(start.T @ start) - reg * np.eye(len(start))
            return Stream(X[:0], local, 0, size, seed), []
        centres, shares = self.mixture_.centres.astype(np.float64), np.exp(self.mixture_.log_weights)
        left = getattr(self, "_stream", None)
        if left is not None:
            return Stream(centres, left["local"], self.n_samples_seen_, size, left["seed"]), list(self.objectives_)
        seed, n = self._seed(), int(np.count_nonzero(shares))
        kept = np.random.default_rng(seed).choice(len(centres), min(size, n), replace=False, p=shares / shares.sum())
        return Stream(centres[kept], self.covariance_ - reg * np.eye(X.shape[1]), n, size, seed), []

    def _check_parameters(self, n_features):
        """The penalty and the structure; refuses bad parameters."""
        check_choice(self.covariance_type, "covariance_type", _COVARIANCES)
        as_record(self.solver, StochasticEM, "solver", _SOLVERS)
        rank = None
        if self.covariance_type == "low_rank":
            if self.rank is None:
                raise ValueError("covariance_type='low_rank' needs rank, the number of free directions, got rank=None.")
            rank = check_integer(self.rank, "rank", least=1)
            if rank >= n_features:
                raise ValueError(
                    f"rank must be less than the {n_features} features, got {rank}. Use covariance_type='full' "
                    "for a free one."
                )
        return check_positive(self.reg, "reg", strict=False), Structure(self.covariance_type, rank)

    def _stochastic_options(self):
        """The options of minibatches: those of the solver if it is stochastic, else the defaults."""
        return self.solver if isinstance(self.solver, StochasticEM) else StochasticEM()

    def _seed(self):
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _pick_solver(self, n):
        if isinstance(self.solver, StochasticEM):
            return "stochastic"
        if self.solver != "auto":
            return self.solver
        return "accelerated" if n <= _EXACT_ROWS else "stochastic"

    def _pair_work(self, n_samples, n_features):
        """The pair work of a fit: all pairs in each pass, or those of a sweep."""
        queries = n_samples
        if self._pick_solver(n_samples) == "stochastic":
            queries = min(n_samples, self._stochastic_options().n_candidates or rows_per_sweep(n_samples, n_features))
        return Work(queries, n_samples, n_features, _PASSES)

    def _start(self, spread, reg, structure):
        """The metric to start from: the inverse root of a covariance of the structure."""
        if not isinstance(self.init, str):
            covariance = bandwidth_covariance(self.init, len(spread), name="init")
            return inverse_root(nearest_structured(covariance, *structure))
        check_choice(self.init, "init", ("covariance",))
        return self._spread_metric(spread, reg, structure)

    @staticmethod
    def _spread_metric(spread, reg, structure):
        """The metric of the data's own covariance."""
        covariance = nearest_structured(spread + reg * np.eye(len(spread)), *structure)
        if reg > 0:
            check_representable(covariance, reg)
        return inverse_root(covariance)

    def _limits(self, max_iter, tol):
        """The user's max_iter and tol, or these."""
        return {
            "max_iter": max_iter if self.max_iter is None else check_integer(self.max_iter, "max_iter"),
            "tol": tol if self.tol is None else check_positive(self.tol, "tol", strict=False),
        }

    def _sweep(self, problem, start, structure, record, limits):
        """Sweeps of minibatches; and a sample of rows as possible neighbours."""
        options = self._stochastic_options()
        rng = np.random.default_rng(self._seed())
        path = stochastic_path(
            problem,
            start,
            structure,
            record,
            n_candidates=options.n_candidates,
            warm=isinstance(self.init, str),
            rng=rng,
            batch_size=options.batch_size,
            discount=options.discount,
            **limits,
        )
        n = len(problem.rows)
        sample = np.sort(rng.choice(n, min(options.n_candidates or SAMPLE, n), replace=False))
        return path, sample

    def _keep(self, metric, spread):
        """Store the fitted metric."""
        diagonal = self.covariance_type in ("diag", "spherical")
        self.components_ = np.abs(metric) if diagonal else ordered_metric(metric, spread)
        inverse = np.linalg.inv(self.components_)
        self.covariance_ = inverse @ inverse.T
        self.precision_ = self.components_.T @ self.components_

    def _keep_density(self, X, weight, problem, neighbors=None):
        """Store the density, and how many neighbours (among these positions) explain each row."""
        names = getattr(self, "feature_names_in_", None)
        with np.errstate(divide="ignore"):
            log_weights = None if weight is None else np.log(weight)
        self.mixture_ = SharedMixture(X, self.covariance_, log_weights, self.engine, names)
        self.effective_neighbors_ = perplexities(problem, self.components_, X, weight, neighbors)
