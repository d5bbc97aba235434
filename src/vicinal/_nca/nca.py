"""Neighbourhood Components Analysis: the linear metric in which soft nearest neighbours predict best."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import chain
from typing import Any, ClassVar, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Tags

from vicinal._checks import check_choice, check_random_state
from vicinal._engine import Engine, Work, fit_engine, large_source, one_blas_thread_beside_pairs
from vicinal._fit_loops import Callback, FitPath, best_path, warn_if_not_converged
from vicinal._nca.base import LinearNCA
from vicinal._nca.objectives import Evaluation, placed_at, with_penalty
from vicinal._nca.options import Objective, StochasticGradient
from vicinal._nca.rows import DrawnRows, Rows, check_agreement, prepare_rows
from vicinal._nca.solvers import climb_by_batches, climb_off_plateau, rows_in_round
from vicinal._nca.starts import (
    INITS,
    Start,
    auto_start,
    image_width,
)
from vicinal._records import Record, as_record, check_record
from vicinal._rows import check_rows, check_spread, check_weights
from vicinal._rows.dask import fits_collections
from vicinal._supervision import check_targets, read_targets

_OBJECTIVES = ("accuracy", "likelihood")
_SOLVERS = ("auto", "lbfgs", "cg", "stochastic")

# Up to this number of rows, a pass over all pairs takes seconds, and exact gradients converge in tens of passes.
_EXACT_ROWS = 20_000
# With more rows, the first pass must be expected to visit no more pairs than these.  Pruned pairs take twice the time.
_EXACT_PAIRS = 2e8
_EXACT_PASSES, _ROUNDS = 50, 20  # the usual number of passes of a fit, for the choice of the engine


class NCA(LinearNCA):
    r"""Neighbourhood Components Analysis (Goldberger, Roweis, Hinton, Salakhutdinov 2004).

    NCA learns a matrix A, square or of low rank, such that the soft nearest neighbours of a transformed row
    have its class. Row i picks row j as its neighbour with probability

    .. math:: p_{ij} = \frac{\exp(-\|A x_i - A x_j\|^2)}{\sum_{k \ne i} \exp(-\|A x_i - A x_k\|^2)},
              \qquad a_i = \sum_j p_{ij} m_{ij}

    where :math:`m_{ij}` is 1 for rows of the same class (or the agreement of soft targets). The objective, per
    row, is the expected accuracy :math:`f = \sum_i a_i` (Eq. 3) or the likelihood :math:`g = \sum_i \log a_i`
    (Eq. 6), minus a penalty if the objective has one.

    NCA is a superset of :class:`sklearn.neighbors.NeighborhoodComponentsAnalysis`: to migrate, change the import.

    Parameters
    ----------
    n_components : int, optional
        The number of rows of A. The default is the number of features.
    init : {"auto", "pca", "lda", "identity", "random"}, or array, default="auto"
        The initial matrix. The named matrices equal scikit-learn's to the last
        bit, and depend on the units of X. "auto" does not depend on the units. It chooses between raw and standardised
        columns, and between principal components (the identity, if A is square) and, with at least five rows per column,
        directions that whiten the classes (RCA). Each of them is scaled to the highest leave-one-out likelihood of a sample
        of rows, and the highest likelihood decides.
    n_init : int, default=1
        The number of starts, of which the fit with the highest objective is kept. The others are random matrices at a safe
        scale (with ``init="random"``, further draws of it).
    objective : {"accuracy", "likelihood"} or Objective, default="accuracy"
        Eq. 3 or Eq. 6. :class:`vicinal.Objective` offers soft targets (``match``) and a penalty on the size of A.
    structure : {"full", "diag"}, default="full"
        The form of A. With "diag", one weight per feature is learned: ``components_`` is diagonal, and
        ``feature_relevance_`` is the share of each feature in the distances.
    solver : {"auto", "lbfgs", "cg", "stochastic"} or StochasticGradient, default="auto"
        "lbfgs" and "cg" (the paper's) use all pairs in every pass. "stochastic" samples the rows i and keeps all j; its
        options are those of :class:`vicinal.StochasticGradient`. "auto" is "lbfgs" up to 20,000 rows, and with more rows
        if the first pass is expected to visit at most 200 million pairs (most pairs are skipped if neighbourhoods are
        small, see :class:`vicinal.Engine`); otherwise it is "stochastic". ``solver_`` is the solver that was used.
    max_iter : int, default=50
        The maximum number of iterations of the optimiser, as in scikit-learn. There are a few more passes over the pairs
        than iterations, because of line searches; see ``n_passes_``. A fit that ends on a plateau at a wrong scale is
        resumed once, with the same number of iterations. For "stochastic", the maximum number of rounds of 64 batches, or
        of one visit of every row if that is fewer.
    tol : float, default=1e-5
        The fit has converged when two successive iterations gain no more than this, per row; "stochastic" then halves
        its step, up to four times.
    warm_start : bool, default=False
        Whether to start from the ``components_`` of the last fit; `n_components` and `init` are then ignored.
    callback : callable, optional
        Called as ``callback(parameters, n_iter)`` after each iteration, with the flattened matrix and the number of
        iterations of this start, as in scikit-learn. It may raise StopIteration: the fit then ends, warns that it has
        not converged, and keeps the best matrix so far. Model files do not contain it.
    engine : None, str or Engine, default=None
        The backend of the pairwise computations; see :class:`vicinal.Engine`.
    verbose : int, default=0
        Print a line per pass to stderr.
    random_state : int, RandomState or None, default=None
        Used for random initial matrices, randomised PCA and "stochastic".

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The matrix A.
    objectives_ : ndarray
        The objective per row after each pass (each round of "stochastic", on ``evaluation_rows_``), the last one
        belonging to ``components_``.
    n_iter_ : int
        The number of iterations of the optimiser from the start that led to ``components_``, at most ``max_iter``; rounds of
        "stochastic".
    n_passes_ : int
        The number of passes over the pairs, including line searches and a climb that was resumed; rounds of "stochastic".
    converged_ : bool
        A ConvergenceWarning is issued when it is False.
    effective_neighbors_ : ndarray of shape (n_samples,)
        The perplexity of each row's p, which is the paper's real-valued estimate of K. With "stochastic" and many
        rows, only for ``evaluation_rows_``.
    feature_relevance_ : ndarray of shape (n_features,), only with structure="diag"
        Each feature's share of the mean squared distance between rows; sums to one.
    evaluation_rows_ : ndarray, only with "stochastic"
        The rows on which the objective was evaluated.
    match_scale_ : ndarray of shape (n_outputs,), only with the match "gaussian"
        The standard deviations s of the agreement.
    solver_ : str
        The solver that was used.
    engine_ : str
        The backend of the pairwise computations that was used; see :func:`vicinal.which_engine`.
    certified_row_error_ : float
        A bound on what skipped pairs would have added to any row's sum in any pass of the fit, relative to the sum; 0.0 if
        every pair was visited. See ``error`` of :class:`vicinal.Engine`.
    random_state_ : RandomState
        The random number generator of the fit.
    n_features_in_, feature_names_in_ : int, ndarray of str
        The number of columns of the training rows, and their names if they have names.

    Notes
    -----
    One pass costs O(n^2 d) for the pairs and O(n D d) for the products with X, where A is d x D: pairs are
    never D-dimensional. Memory beyond one copy of X and its image is the engine's budget (128 MB by
    default), never O(n^2).

    ``sample_weight`` is importance: a row of weight 2 counts twice as a term and as a neighbour, but is
    left out as a whole when its own neighbours are chosen.

    An interrupted fit (Ctrl-C) keeps the best matrix so far and warns.

    See Also
    --------
    PairNCA : Learns from close pairs only (Eq. 8).
    SoftNeighborsClassifier : Predicts with the probabilities p.
    NeuralNCA : The same objectives for a network.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from vicinal import NCA
    >>> X, y = load_wine(return_X_y=True)
    >>> nca = NCA(n_components=2, random_state=0).fit(X, y)  # raw units are fine
    >>> round(float(nca.objectives_[-1]), 2)
    1.0
    >>> nca.transform(X).shape
    (178, 2)
    """

    _inits = INITS
    _record_types: ClassVar[dict[str, type[Record]]] = {
        "objective": Objective,
        "solver": StochasticGradient,
        "engine": Engine,
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        init: ArrayLike | str = "auto",
        n_init: int = 1,
        objective: Objective | str = "accuracy",
        structure: str = "full",
        solver: StochasticGradient | str = "auto",
        max_iter: int = 50,
        tol: float = 1e-5,
        warm_start: bool = False,
        callback: Callback | None = None,
        engine: Engine | str | None = None,
        verbose: int | bool = 0,
        random_state: RandomState | int | None = None,
    ) -> None:
        self.n_components = n_components
        self.init = init
        self.n_init = n_init
        self.objective = objective
        self.structure = structure
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.callback = callback
        self.engine = engine
        self.verbose = verbose
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.one_d_labels = getattr(self.objective, "match", "class") == "class"
        return tags

    @fits_collections
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn the metric.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or rows in a file; see :func:`vicinal.io.open_rows`
            The training rows.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Labels, or targets in the form that the `match` of the objective requires.
        sample_weight : array-like of shape (n_samples,), optional
            The importance of the rows. The weights must not be negative, and at least one must be positive.

        Returns
        -------
        self
        """
        objective = self._check_parameters()
        # The rows x_i of positive weight with their classes, about their centre; of a large file, a first draw of many.
        X, rows, draws = self._read(X, y, sample_weight, objective)
        penalty = objective.penalty * rows.spread**2  # on the squares of A, in units of the columns

        def evaluate(A: np.ndarray) -> Evaluation:
            # p_ij (Eq. 1) and a_i (Eq. 2) of all pairs; f (Eq. 3) and its gradient (Eq. 5), or g (Eq. 6) and its gradient (Eq. 7)
            return with_penalty(rows.objective(A, objective.kind), A, penalty)

        def climb_from(start: Start) -> FitPath:
            if self.solver_ == "stochastic":  # sums over a sample of the rows i (sec. 2)
                options = self._stochastic_options()
                return climb_by_batches(rows, start, self, options, draws, objective=objective.kind, penalty=penalty)
            return climb_off_plateau(evaluate, start, self, rows, objective.kind, solver=self.solver_)

        # A starts from the data (or at `init`), and later attempts from random matrices: f has local maxima.
        with one_blas_thread_beside_pairs(*rows.X.shape):
            first = self._start(X, rows, 0)
            self.solver_ = self._choose_solver(rows, first) if draws is None else "stochastic"
        # The products of minibatches take more time than their pairs, so that these may have all threads.
        with nullcontext() if self.solver_ == "stochastic" else one_blas_thread_beside_pairs(*rows.X.shape):
            later = (self._start(X, rows, attempt) for attempt in range(1, self.n_init))
            path = best_path(climb_from(start) for start in chain([first], later))
            self._store(X, rows, path)
        if draws is not None:  # positions in the file
            self.evaluation_rows_ = draws.first[path.more["evaluation_rows_"]]
        warn_if_not_converged("NCA", path)
        return self

    def _read(
        self, X: Any, y: Any, sample_weight: Any, objective: Objective
    ) -> tuple[NDArray[Any], Rows, DrawnRows | None]:
        """Return the validated rows, and those of positive weight with their targets, passed to the engine.

        For a large source, these are the rows of a first draw, and the third result draws more.
        """
        source, draws = large_source(X, self.engine), None
        if source is not None and self._pick_solver(source.shape[0]) == "stochastic":
            draws = DrawnRows(self, source, y, sample_weight, objective)
            X, rows = draws.draw()
            # Rows that are the only ones of their class in a draw have been left out of it.
            targets = check_targets(draws.targets, "class", None) if objective.match == "class" else rows.targets
        else:
            X = check_rows(self, X, reset=True, min_rows=2)
            self.random_state_ = check_random_state(self.random_state)
            check_spread(X)
            y = read_targets(y, len(X), objective.match)
            rows = prepare_rows(X, y, check_weights(sample_weight, X), objective.match, objective.match_scale)
            targets = rows.targets
        check_agreement(targets, objective)
        work = self._pair_work(*rows.X.shape)
        if draws is not None:
            draws.work = work
        return X, rows.resident(fit_engine(self), work), draws

    def _pick_solver(self, n_rows: int) -> str:
        if isinstance(self.solver, StochasticGradient):
            return "stochastic"
        if self.solver != "auto":
            return self.solver
        return "stochastic" if n_rows > _EXACT_ROWS else "lbfgs"

    def _choose_solver(self, rows: Rows, start: Start) -> str:
        """Return the solver; "auto" is exact if few pairs have to be visited, as counted on a sample of rows."""
        n, solver = len(rows.X), self._pick_solver(len(rows.X))
        if self.solver == "auto" and solver == "stochastic":
            share = placed_at(rows.problem, start.components).expected_share
            return "lbfgs" if share * float(n) ** 2 <= _EXACT_PAIRS else solver
        return solver

    def _stochastic_options(self) -> StochasticGradient:
        """Return the options of minibatches: those of the solver if it is stochastic, else the defaults."""
        return self.solver if isinstance(self.solver, StochasticGradient) else StochasticGradient()

    def _pair_work(self, n_samples: int, n_features: int) -> Work:
        n_dims = image_width(self, n_features)
        if self._pick_solver(n_samples) != "stochastic":
            return Work(n_samples, n_samples, n_dims, _EXACT_PASSES)
        return Work(rows_in_round(self._stochastic_options(), n_samples, n_features), n_samples, n_dims, _ROUNDS)

    def _start(self, X: np.ndarray, rows: Rows, attempt: int) -> Start:
        n_classes = rows.targets.n_classes

        def start_from_data(n_components: int, at_random: RandomState | None) -> Start:
            return auto_start(
                rows.X,
                rows.spread,
                rows.sample.likelihood,
                n_components=n_components,
                classes=rows.targets.values if n_classes else None,
                diagonal=self.structure == "diag",
                at_random=at_random,
            )

        def rows_and_classes() -> tuple[np.ndarray, np.ndarray | None]:
            # In the user's order, so that rounding agrees with scikit-learn's as well.
            return X[np.sort(rows.positions)], rows.targets.values[np.argsort(rows.positions)] if n_classes else None

        return self._start_of_attempt(attempt, X.shape[1], start_from_data, rows_and_classes)

    def _check_parameters(self) -> Objective:
        """Return the objective; raise an error for invalid parameters."""
        self._check_shared_parameters()
        check_record(self.solver, StochasticGradient, "solver", _SOLVERS)
        objective = as_record(self.objective, Objective, "objective", _OBJECTIVES)
        check_choice(objective.kind, "the kind of objective", _OBJECTIVES)
        return objective

    def _store(self, X: np.ndarray, rows: Rows, path: FitPath) -> None:
        A = self._store_matrix(path, rows.spread, rows.problem)
        if rows.targets.scale is not None:
            self.match_scale_ = rows.targets.scale
        for name, value in path.more.items():
            setattr(self, name, value)
        evaluated = path.more.get("evaluation_rows_", np.arange(len(X)))
        places = np.full(len(X), -1)
        places[rows.positions] = np.arange(len(rows.positions))
        places = places[evaluated]
        # Departure 10 (NCA): Local numbers of neighbours are reported only.
        if (places >= 0).all():
            self.effective_neighbors_ = rows.perplexities(A, places)
        else:  # rows of weight 0 are not neighbours of any row but have neighbours, so they need not be left out
            self.effective_neighbors_ = placed_at(rows.problem, A).perplexities(X[evaluated], left_out=places)
