"""LCA-Gauss (Le Roux and Bach, sec. 4): a Gaussian in some directions, and a Parzen model in the others."""

from itertools import count
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from vicinal._checks import check_callback, check_integer, check_positive, check_rows, check_weights
from vicinal._dask import answers_collections, fits_collections, float_numbers
from vicinal._density.gaps import forget_gaps
from vicinal._density.mixture_density import MixtureDensityMixin
from vicinal._engine import Engine, Work, fit_engine
from vicinal._fit_loops import Callback, FitPath, Recorder, fixed_point, warn_if_not_converged
from vicinal._kernel_penalty import Penalty
from vicinal._lca.checks import (
    Remedies,
    check_answerable,
    check_representable,
    check_scale,
    check_twins,
    check_two_rows,
    collapse_message,
    is_answerable,
)
from vicinal._lca.folds import LCAGaussFold, search_penalty
from vicinal._lca.gauss_penalty import (
    Penalties,
    choose_both,
    gaussian_rules,
    given_gaussian,
    given_local,
    local_rules,
)
from vicinal._lca.gauss_steps import (
    GaussProblem,
    Split,
    all_local,
    directions,
    em_step,
    left_out_scores,
    local_metric,
    mixture_of_directions,
    relaxed_em,
    search_directions,
    whitened,
)
from vicinal._lca.missing import fit_lca_gauss_to_gaps
from vicinal._lca.options import Shrinkage
from vicinal._lca.penalty import (
    as_parameter,
    check_matrix,
    check_penalty,
    check_reg,
    has_plenty,
    least_penalty,
    no_penalty,
)
from vicinal._lca.penalty_search import split_folds
from vicinal._lca.steps import CollapseError, Structure
from vicinal._leave_one_out import counted_rows, mean_of_rows, perplexities, scatter_of_rows
from vicinal._metric import LinearMetricMixin
from vicinal._mixtures import SharedMixture
from vicinal._records import Record, RecordParametersMixin

_REMEDIES = Remedies("LCAGauss", simpler="")

# The approximate number of passes of a fit, from which the engine chooses a backend.
_PASSES = 50


class LCAGauss(RecordParametersMixin, LinearMetricMixin, MixtureDensityMixin, DensityMixin, BaseEstimator):
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
        finds their number by golden-section search. The objective is never lower than without the search.
    max_iter : int, default=500
        The maximum number of passes over the pairs; with ``reduce``, for each run of EM.
    tol : float, default=1e-7
        The fit stops when a pass gains no more than this many nats per row.
    callback : callable, optional
        Called as ``callback(parameters, n_iter)`` after each pass, with the flattened square matrix :math:`B' =
        (B_G, B_L)'`, Gaussian rows first, and the number of passes, including those of all runs of ``reduce``. It may
        raise StopIteration: the fit then ends, warns that it has not converged, and keeps the best directions so far.
        Model files do not contain it.
    engine : None, str or Engine, default=None
        The backend of the pairwise computations; see :class:`vicinal.Engine`.
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
        with ``reduce``, the best so far.
    n_iter_ : int
        The number of passes over the pairs.
    converged_ : bool
        Whether the fit converged.
    engine_ : str
        The backend of the pairwise computations.
    certified_row_error_ : float
        A bound on what skipped pairs would have added to any row's sum in any pass of the fit, relative to the sum; 0.0
        if every pair was visited. See ``error`` of :class:`vicinal.Engine`.
    rows_ : ndarray of shape (n_samples, n_active)
        The training rows (missing values are filled in); the centres of the kernels have moved along the Gaussian directions.
    effective_neighbors_ : ndarray of shape (n_samples,)
        The perplexities of the rows' neighbours in the local subspace.
    mixture_ : SharedMixture
        The density: a mixture with one shared covariance. Its centres are the rows, moved to the mean along the
        Gaussian directions.
    n_features_in_, feature_names_in_ : int, ndarray of str
        The number of columns of the training rows, and their names if they have names.

    Notes
    -----
    A pass takes O(n^2 d2 + n^2 d + n d^2 + d^3) time with d2 local directions of d; memory beyond the data
    is the engine's budget, never O(n^2).

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

    _record_types: ClassVar[dict[str, type[Record]]] = {"reg": Shrinkage, "engine": Engine}

    def __init__(
        self,
        *,
        reg: Shrinkage | str | float | ArrayLike = "auto",
        reg_gauss: str | float | ArrayLike = "auto",
        reduce: bool = False,
        max_iter: int = 500,
        tol: float = 1e-7,
        callback: Callback | None = None,
        engine: Engine | str | None = None,
        verbose: int | bool = 0,
    ) -> None:
        self.reg = reg
        self.reg_gauss = reg_gauss
        self.reduce = reduce
        self.max_iter = max_iter
        self.tol = tol
        self.callback = callback
        self.engine = engine
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
        X : array-like of shape (n_samples, n_features)
            The rows. NaN marks a missing value; the notes of :class:`vicinal.LCA` on missing values apply.
        y : ignored
            Not used; accepted because pipelines of scikit-learn pass it.
        sample_weight : array-like of shape (n_samples,), optional
            The importance of the rows. The weights must not be negative, and at least two must be positive.

        Returns
        -------
        self
        """
        rows, weight = self._check_input(X, sample_weight)
        if np.isnan(rows).any():
            fit_lca_gauss_to_gaps(self, rows, weight, *self._given_penalties(rows.shape[1]))
            return self
        forget_gaps(self)
        rows, reg, reg_gauss = self._penalties(rows, weight)
        try:
            path = self._fit_directions(rows, weight, reg, reg_gauss)
        except (CollapseError, np.linalg.LinAlgError):
            if not isinstance(self.reg, str):
                raise ValueError(collapse_message(rows, weight, "full", _REMEDIES)) from None
            # Values that repeat (a grid of integers) leave directions without width even if there are many rows.
            reg = least_penalty(*counted_rows(rows, weight))
            path = self._fit_directions(rows, weight, reg, reg_gauss)
        self.reg_ = as_parameter(reg, self._in_all_columns)
        self.reg_gauss_ = self._in_all_columns(self._in_all_columns(reg_gauss).T)
        warn_if_not_converged("LCAGauss", path)
        self.objectives_, self.n_iter_, self.converged_ = path.objectives, path.n_iter, path.converged
        return self

    def _fit_directions(self, X: np.ndarray, weight: np.ndarray | None, reg: Penalty, reg_gauss: np.ndarray) -> FitPath:
        """Find the directions under two penalties, and store them with their density."""
        # Departure 4 (LCAGauss): The Gaussian's covariance divides by n. Its limit is the Gaussian of maximum likelihood.
        gaussian = scatter_of_rows(X, weight) + reg_gauss
        if reg_gauss.any():
            check_representable(gaussian, "reg_gauss", self.reg_gauss)
        # In the coordinates w = R (x - mu) the Gaussian's covariance, C_G + R_G, is the identity.
        rows, problem = whitened(X, weight, fit_engine(self), reg, gaussian, _PASSES)
        self.engine_ = problem.pairs.backend
        iterations = count(1)

        def in_columns(at: Split) -> np.ndarray:
            return self._in_all_columns(np.concatenate(directions(at, problem.root)))

        def recorder() -> Recorder:
            return Recorder.of(self, in_columns, iterations)

        # EM: C_L of Eq. 5 from the neighbours in the local directions, then the B that solves Eq. 6 (Proposition 1).
        limits: dict[str, Any] = {"max_iter": self.max_iter, "tol": self.tol}
        path = fixed_point(lambda at: em_step(problem, at), all_local(X.shape[1]), recorder(), **limits)  # Algorithm 1
        if self.reduce and not path.reason.by_user:  # LCA-Gauss-Red (sec. 4)

            def run(split: Split, tol: float) -> FitPath:
                return relaxed_em(problem, split, recorder(), max_iter=self.max_iter, tol=tol)

            path = search_directions(run, path, self.tol, problem.weight.sum())
        self._keep(X, weight, rows, problem, path.parameters)
        self.certified_row_error_ = problem.pairs.certified_row_error
        return path

    def _check_input(self, X: Any, sample_weight: Any) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Return the rows and their weights; raise an error for invalid parameters."""
        X = check_rows(self, X, reset=True, min_rows=2, gaps=True)
        weight = check_two_rows(check_weights(sample_weight, X))
        if not isinstance(self.reduce, (bool, np.bool_)):
            raise TypeError(f"reduce must be True or False, got {type(self.reduce).__name__}.")
        check_integer(self.max_iter, "max_iter")
        check_positive(self.tol, "tol", strict=False)
        check_callback(self.callback)
        return X, weight

    def _given_penalties(self, n_features: int) -> tuple[Penalty | None, np.ndarray | None]:
        """Return the penalties that the user passed; None for "auto"."""
        if isinstance(self.reg_gauss, str) and self.reg_gauss == "auto":
            return check_reg(self.reg, n_features), None
        forms = "'auto', a number, a vector of variances or a matrix"
        return check_reg(self.reg, n_features), check_matrix(self.reg_gauss, n_features, "reg_gauss", forms)

    def _penalties(self, X: np.ndarray, weight: np.ndarray | None) -> tuple[np.ndarray, Penalty, np.ndarray]:
        """Return the columns that vary, and the two penalties on them.

        Raise an error for data without a solution, and search for "auto".
        """
        reg, reg_gauss = self._given_penalties(X.shape[1])
        # Penalties give both parts a width along constant columns, so these are kept.
        kept = None
        if reg is not None and reg_gauss is not None:
            kept = (np.diag(reg.matrix) > 0) & (np.diag(reg_gauss) > 0)
        X = self._keep_active(X, weight, width="reg and reg_gauss", kept=kept)
        rows, weight = counted_rows(X, weight)
        active = self.active_features_
        reg = None if reg is None else check_penalty(reg, active, self._active_names)
        reg_gauss = None if reg_gauss is None else reg_gauss[np.ix_(active, active)]
        zero = {"reg": reg is not None and reg.is_zero, "reg_gauss": reg_gauss is not None and not reg_gauss.any()}
        zeros = [name for name, is_zero in zero.items() if is_zero]
        if zeros or reg is None or reg_gauss is None:
            check_scale(rows, "full", self._active_names)
        if zeros:
            remedies = _REMEDIES._replace(reg_name=" and ".join(zeros))
            check_answerable(rows, "full", names=self._active_names, remedies=remedies)
        if zero["reg"]:  # twins are not a problem for the Gaussian
            check_twins(rows, _REMEDIES)
        self.reg_search_: dict[str, Any] | None = None
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
            none = no_penalty(X.shape[1]) if answerable else least_penalty(X, weight)
            return none if reg is None else reg, gaussians[0].matrix(X, weight)
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

    def _pair_work(self, n_samples: int, n_features: int) -> Work:
        """Return the pair work of a fit."""
        return Work(n_samples, n_samples, n_features, _PASSES)

    def _keep(
        self, X: np.ndarray, weight: np.ndarray | None, rows: np.ndarray, problem: GaussProblem, split: Split
    ) -> None:
        """Store the fitted directions, the density, and the leave-one-out scores of the training rows."""
        gaussian, local = directions(split, problem.root)
        both = np.concatenate([gaussian, local])
        mean = mean_of_rows(X, weight)
        centres, self.covariance_ = mixture_of_directions(gaussian, local, mean, X)
        self.precision_ = both.T @ both
        self.gaussian_components_, self.components_ = self._in_all_columns(gaussian), self._in_all_columns(local)
        self.n_components_ = len(split.variances)
        self.mean_ = mean if self._constants is None else self._constants.copy()
        self.mean_[self.active_features_] = mean
        with np.errstate(divide="ignore"):
            log_weights = None if weight is None else np.log(weight)
        moved = centres.astype(X.dtype)
        self.mixture_ = SharedMixture(moved, self.covariance_, log_weights, self.engine, self._active_names)
        self.rows_ = X.copy()
        # Rows of weight zero, which the fit does not use, are scored as well.
        counted = np.ones(len(X), dtype=bool) if weight is None else weight > 0
        self._left_out_scores = left_out_scores(problem, split, rows, counted)
        self.effective_neighbors_ = perplexities(problem, local_metric(split), rows, weight)

    def _training_rows(self) -> NDArray[Any] | None:
        return getattr(
            self, "rows_", None
        )  # files of earlier versions have none; the centres have moved away from them

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
        # The centres of the mixture are not the training rows, so the mixture cannot leave a row out.
        return self._left_out_scores.copy() if X is None else super().score_samples(X)
