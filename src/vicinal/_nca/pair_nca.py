"""NCA from close pairs only (Eq. 8 of the paper, sec. 5)."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Tags

from vicinal._checks import check_choice, check_random_state
from vicinal._engine import Engine, Problem, Work, fit_engine, prepare
from vicinal._fit_loops import Callback, best_path, warn_if_not_converged
from vicinal._nca.base import LinearNCA
from vicinal._nca.objectives import Evaluation, pair_objective, placed_at, with_penalty
from vicinal._nca.options import Objective
from vicinal._nca.rows import column_spread
from vicinal._nca.solvers import METHODS, climb
from vicinal._nca.starts import (
    Start,
    auto_start,
    image_width,
)
from vicinal._records import Record, as_record
from vicinal._rows import check_rows, check_spread, check_weights, log_weights
from vicinal._supervision import Grouped, Listed, listed_pairs, read_close_pairs, sample_pairs

_PASSES = 50  # the usual number of passes of a fit, for the choice of the engine


class PairNCA(LinearNCA):
    r"""Neighbourhood Components Analysis from close pairs, without labels (Goldberger et al. 2004, Eq. 8).

    PairNCA learns from pairs (a, b) of rows that should be close, with weights. The objective is

    .. math:: \frac{1}{\sum w_{ab}} \sum_{(a,b)} w_{ab}
              \log \frac{\exp(-\|A x_a - A x_b\|^2)}{\sum_{c \ne d} \exp(-\|A x_c - A x_d\|^2)}

    where c and d run over all rows: the rows of close pairs attract each other, and all rows repel each other, the nearest
    ones most.

    Parameters
    ----------
    n_components : int, optional
        The number of rows of A. The default is the number of features.
    init : {"auto", "pca", "identity", "random"}, or array, default="auto"
        The initial matrix. "auto" does not depend on the units of X: it chooses
        between raw and standardised columns, uses principal components or the identity, and scales them by the objective.
    n_init : int, default=1
        The number of starts, of which the fit with the highest objective is kept. The others are random matrices at a safe
        scale (with ``init="random"``, further draws of it).
    objective : "pairs" or Objective, default="pairs"
        Eq. 8. :class:`Objective("pairs", penalty=...) <vicinal.Objective>` adds a penalty on the size of A.
    structure : {"full", "diag"}, default="full"
        The form of A. With "diag" one weight per feature is learned; see ``feature_relevance_``.
    solver : {"lbfgs", "cg"}, default="lbfgs"
        L-BFGS or conjugate gradients.
    max_iter : int, default=50
        The maximum number of iterations of the optimiser.
    tol : float, default=1e-5
        The fit has converged when two successive iterations gain no more than this, in nats per unit of pair weight.
    warm_start : bool, default=False
        Whether to start from the ``components_`` of the last fit.
    callback : callable, optional
        Called as ``callback(parameters, n_iter)`` after each iteration, with the flattened matrix and the number of
        iterations of this start, as in scikit-learn. It may raise StopIteration: the fit then ends, warns that it has
        not converged, and keeps the best matrix so far. Model files do not contain it.
    engine : None, str or Engine, default=None
        The backend of the pairwise computations; see :class:`vicinal.Engine`.
    verbose : int, default=0
        Print a line per pass to stderr.
    random_state : int, RandomState or None, default=None
        The seed of random starts.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The matrix A.
    objectives_ : ndarray
        The objective after each pass, the last one belonging to ``components_``. At A = 0 it is
        :math:`-\log n(n-1)`, and no metric exceeds :math:`-\log 2p` for p distinct pairs of equal weight.
    n_iter_ : int
        The number of iterations of the optimiser from the start that led to ``components_``, at most ``max_iter``.
    n_passes_ : int
        The number of passes over the pairs of rows from this start, including line searches.
    converged_ : bool
        A ConvergenceWarning is issued when it is False.
    effective_neighbors_ : ndarray of shape (n_samples,)
        The perplexity of each row's softmax neighbours.
    feature_relevance_ : ndarray of shape (n_features,), only with structure="diag"
        Each feature's share of the mean squared distance between rows; sums to one.
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

    See Also
    --------
    RCA : A closed form for chunklets, for close pairs that differ by Gaussian noise.
    NeuralNCA : The same objective for a network.

    Notes
    -----
    One pass costs O(n^2 d) for the pairs of rows and O(n D d) for the products with X; the given pairs cost O(p d), and
    groups are never turned into lists of pairs. Memory beyond one copy of X and its image is the engine's budget. The
    kernel is symmetric, so one sweep gives the value and the gradient.

    ``sample_weight`` weights a row as c and as d; the given pairs have their own weights.

    Examples
    --------
    The rows of each pair agree in the first column and in no others:

    >>> import numpy as np
    >>> from vicinal import PairNCA
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 3)) * [1, 5, 5]
    >>> X[100:, 0] = X[:100, 0] + 0.05 * rng.normal(size=100)
    >>> pairs = np.column_stack([np.arange(100), np.arange(100, 200)])
    >>> nca = PairNCA(1, max_iter=100).fit(X, pairs=pairs)
    >>> bool(np.argmax(abs(nca.components_)) == 0)
    True
    """

    _inits = ("auto", "pca", "identity", "random")
    _record_types: ClassVar[dict[str, type[Record]]] = {"objective": Objective, "engine": Engine}

    def __init__(
        self,
        n_components: int | None = None,
        *,
        init: ArrayLike | str = "auto",
        n_init: int = 1,
        objective: Objective | str = "pairs",
        structure: str = "full",
        solver: str = "lbfgs",
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
        tags.target_tags.required = True  # y, or pairs instead of it
        return tags

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        pairs: ArrayLike | None = None,
        pair_weight: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn the metric.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            All rows, including those in no pair.
        y : array-like of shape (n_samples,), optional
            Groups: every two rows of one group are a close pair of weight one. Integers, strings or a pandas column;
            -1, None and NaN mean no group.
        pairs : array-like of shape (n_pairs, 2), optional
            Row positions of the close pairs, instead of `y`. The order inside a pair does not matter, and a pair given
            twice counts twice.
        pair_weight : array-like of shape (n_pairs,), optional
            The weights :math:`w_{ab}` of the pairs. They must not be negative, and at least one must be positive.
        sample_weight : array-like of shape (n_samples,), optional
            The weights of the rows in the sum over c and d, with the same conditions.

        Returns
        -------
        self
        """
        objective = self._check_parameters()
        X, close, weight = self._read(X, y, pairs, pair_weight, sample_weight)
        spread = column_spread(X)
        work = self._pair_work(*X.shape)
        problem = prepare(
            fit_engine(self),
            X,
            log_weights=log_weights(weight),
            leave_one_out=True,
            n_dims=work.n_dims,
            passes=work.passes,
        )
        pull, penalty = close.pull(problem.n_points), objective.penalty * spread**2

        def evaluate(A: np.ndarray) -> Evaluation:
            """Return Eq. 8 and its gradient: close pairs attract each other, all rows c != d repel each other."""
            return with_penalty(pair_objective(A, problem, pull), A, penalty)

        attempts = (self._initial_metric(X, problem, spread, close, k) for k in range(self.n_init))
        path = best_path(climb(evaluate, start, self, solver=self.solver) for start in attempts)
        A = self._store_matrix(path, spread, problem)
        self.effective_neighbors_, self.solver_ = placed_at(problem, A).perplexities(), self.solver
        warn_if_not_converged("PairNCA", path)
        return self

    def _read(
        self, X: Any, y: Any, pairs: Any, pair_weight: Any, sample_weight: Any
    ) -> tuple[NDArray[Any], Any, NDArray[Any] | None]:
        """Return the validated rows, the close pairs, and the weights of the rows."""
        X = check_rows(self, X, reset=True, min_rows=2)
        check_spread(X)
        weight = check_weights(sample_weight, X)
        self.random_state_ = check_random_state(self.random_state)
        close = read_close_pairs(y, pairs, pair_weight, len(X), "PairNCA")
        if weight is not None:
            # The sums over c and d use only rows of positive weight; pairs may contain any rows.
            weight = np.maximum(weight, 1e-300)
        return X, close, weight

    def _pair_work(self, n_samples: int, n_features: int) -> Work:
        return Work(n_samples, n_samples, image_width(self, n_features), _PASSES)

    def _initial_metric(
        self,
        X: np.ndarray,
        problem: Problem,
        spread: np.ndarray,
        close: Grouped | Listed,
        attempt: int,
    ) -> Start:
        n, n_features = X.shape

        def start_from_data(n_components: int, at_random: RandomState | None) -> Start:
            positions, pairs = sample_pairs(close, n)
            sample = problem.some(positions).reweighted(None)
            pull = listed_pairs(pairs, np.ones(len(pairs)), len(positions))
            return auto_start(
                problem.points.rows,
                spread,
                lambda A: pair_objective(A, sample, pull).value,
                n_components=n_components,
                diagonal=self.structure == "diag",
                at_random=at_random,
            )

        return self._start_of_attempt(attempt, n_features, start_from_data, lambda: (X, None))

    def _check_parameters(self) -> Objective:
        """Return the objective; raise an error for invalid parameters."""
        self._check_shared_parameters()
        check_choice(self.solver, "solver", tuple(METHODS))
        objective = as_record(self.objective, Objective, "objective", ("pairs",))
        check_choice(objective.kind, "the kind of objective", ("pairs",))
        if objective.match != "class" or objective.match_scale is not None:
            raise ValueError(
                f"PairNCA learns from pairs or groups and has no soft targets, got match={objective.match!r} and "
                f"match_scale={objective.match_scale!r}. Leave them at their defaults, or use NCA."
            )
        return objective
