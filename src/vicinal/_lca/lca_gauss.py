"""LCA-Gauss (Le Roux and Bach, sec. 4): a Gaussian in some directions, and a Parzen model in the others."""

from __future__ import annotations

import warnings
from itertools import count
from typing import Any, ClassVar, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from vicinal._callers import callers_line
from vicinal._checks import check_flag, check_integer
from vicinal._engine import Engine, fit_engine
from vicinal._fit_loops import Callback, FitPath, Recorder
from vicinal._lca.base import LocalComponents, collapse_error
from vicinal._lca.checks import (
    Remedies,
    check_answerable,
    check_representable,
    check_scale,
    check_twins,
    is_answerable,
)
from vicinal._lca.gauss_steps import (
    GaussGaps,
    GaussPoint,
    GaussRows,
    all_local,
    mixture_of_directions,
    run_em,
    search_directions,
    start_of,
)
from vicinal._lca.penalty import (
    AUTO_SHARE,
    LEAST_PENALTY,
    NO_PENALTY,
    Shrinkage,
    check_matrix,
    check_penalty,
    check_reg,
    has_plenty,
)
from vicinal._lca.penalty_search import (
    Penalties,
    choose_both,
    gaussian_penalties,
    local_penalties,
    search_penalty,
    split_folds,
)
from vicinal._lca.steps import Penalty, Structure, inverse_root
from vicinal._lca.stochastic import SAMPLE, Splits, StochasticEM
from vicinal._leave_one_out import IncompleteRows, counted_rows, mean_and_covariance, mean_of_rows
from vicinal._rows import TrainingRows
from vicinal._rows.dask import answers_collections, fits_collections, float_numbers

LCA_GAUSS_REMEDIES = Remedies("LCAGauss", simpler="")


class LCAGauss(LocalComponents):
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
    n_components : int, optional
        The number of local directions. By default, the fit finds it (Proposition 1). With a number, the directions of smallest local
        variance are local, so that ``transform`` has so many columns.
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
        Whether to search for a better number of Gaussian directions (LCA-Gauss-Red), unless ``n_components`` gives it. EM by itself stops early, with too
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
        beyond their neighbourhoods come first. If there is none (``n_components_`` is 0), this is the direction that a fit with one
        local direction finds, so that ``transform`` has a column; it warns.
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
        The number of passes over the pairs (of sweeps over the rows for "stochastic"); with ``reduce``, those of the run of
        EM that found the directions, where ``len(objectives_)`` counts the passes of all runs.
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

    _solvers = ("auto", "em", "stochastic")
    _auto_share = AUTO_SHARE
    _passes = 50
    _limits: ClassVar[dict[str, tuple[int, float]]] = {
        "exact": (500, 1e-7),
        "stochastic": (50, 1e-3),
        "gaps": (500, 1e-3),
    }

    def __init__(
        self,
        n_components: int | None = None,
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
        self.n_components = n_components
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
        self._check_parameters()
        # The penalties are the user's, or chosen by held-out rows.
        rows, penalty, reg_gauss = self._both_penalties(self._open(X, sample_weight))
        # In the problem's coordinates w = R (x - mu), the Gaussian's covariance, C_G + R_G, is the identity; the kernel of each row is
        # centred at it and left out for it (j != i).
        problem, covariance = self._problem_and_covariance(rows, reg_gauss)
        # For reg="auto", there is a larger penalty as well, should the kernel collapse under the first.
        for reg in self._penalties(penalty, covariance, rows):
            try:
                # C_L of Eq. 5 from the neighbours in the local directions, then the B that solves Eq. 6 (Proposition 1).
                path, neighbors = self._maximised(problem, reg, rows)
                break
            except np.linalg.LinAlgError:
                continue
        else:
            raise collapse_error(rows, "full", LCA_GAUSS_REMEDIES)
        self.reg_gauss_ = self._in_all_columns(self._in_all_columns(reg_gauss).T)
        self._keep(path, reg, rows, neighbors)  # B, and the density: the Gaussian times Parzen windows
        self._keep_path(path, reg)
        return self

    def _maximised(self, problem: Any, reg: Penalty, rows: TrainingRows) -> tuple[FitPath, np.ndarray | None]:
        """Return the path to the maximum of the penalised likelihood, and a sample of neighbours for sweeps."""
        passes = count(1)

        def recorder() -> Recorder:
            def both(at: Any) -> np.ndarray:  # a point, or the split of a sweep
                split, root = (at.split, at.problem.root) if isinstance(at, GaussPoint) else (at, problem.root)
                return self._in_all_columns(np.concatenate(split.directions(root)))

            return Recorder.of(self, both, passes)

        def em(at: GaussPoint, tol: float, relaxed: bool = not rows.incomplete) -> FitPath:  # Algorithm 1
            options = {"max_iter": limits["max_iter"], "tol": tol, "relaxed": relaxed}
            return run_em(at, reg, recorder(), may_lose=rows.incomplete, **options)

        self.solver_ = "em" if rows.incomplete else self._pick_solver(len(problem.whitened.rows))
        if self.solver_ == "stochastic":  # C_L of minibatches, each blended with the current one (Eq. 7)
            start = all_local(len(problem.root), self.n_components)
            splits = Splits(problem, reg, self.reduce and self.n_components is None, self.n_components)
            path, neighbors = self._sweep(splits, start, rows, recorder())
            return path._replace(parameters=GaussPoint(path.parameters, problem)), neighbors
        limits = self._limits_of("gaps" if rows.incomplete else "exact")
        path = em(start_of(problem, reg, self.n_components), limits["tol"], relaxed=False)
        if self.reduce and self.n_components is None and not path.reason.by_user:  # LCA-Gauss-Red (sec. 4)
            path = search_directions(em, path, limits["tol"], rows.mass)
        return path, None

    def _problem_and_covariance(self, rows: TrainingRows, reg_gauss: np.ndarray) -> tuple[Any, np.ndarray]:
        """Return the problem of a kind of rows, and the covariance of the data."""
        if rows.incomplete:
            filled = IncompleteRows.of(rows.values, rows.weight, self.engine, self._active_names)
            root = inverse_root(filled.covariance + reg_gauss)
            return GaussGaps(filled, reg_gauss, root, mean_of_rows(filled.rows, rows.weight)), filled.covariance
        # Departure 4 (LCAGauss): The Gaussian's covariance divides by n. Its limit is the Gaussian of maximum likelihood.
        mean, covariance = mean_and_covariance(rows)
        if reg_gauss.any():
            check_representable(covariance + reg_gauss, "reg_gauss", self.reg_gauss)
        root = inverse_root(covariance + reg_gauss)
        return GaussRows(self._problem(rows, (mean, root)), root, mean), covariance

    def _both_penalties(self, rows: TrainingRows) -> tuple[TrainingRows, Penalty | None, np.ndarray]:
        """Return the columns that vary, and the two penalties on them.

        Raise an error for data without a solution, and search for "auto". For rows with missing values, "auto" is None (a share of
        the covariance) and no penalty of the Gaussian.
        """
        n_features, reg_gauss = rows.values.shape[1], None
        reg = check_reg(self.reg, n_features)
        if not isinstance(self.reg_gauss, str) or self.reg_gauss != "auto":
            forms = "'auto', a number, a vector of variances or a matrix"
            reg_gauss = check_matrix(self.reg_gauss, n_features, "reg_gauss", forms)
        self.reg_search_ = None
        if rows.incomplete:
            self._constants = None
            self._check_number(n_features)
            reg = reg and check_penalty(reg, self.active_features_, self._active_names)
            return rows, reg, np.zeros((n_features, n_features)) if reg_gauss is None else reg_gauss
        # Penalties give both parts a width along constant columns, so these are kept.
        kept_columns = None if rows.file is None else rows.file.varies
        if reg is not None and reg_gauss is not None:
            wide = (np.diag(reg.matrix) > 0) & (np.diag(reg_gauss) > 0)
            kept_columns = wide if kept_columns is None else kept_columns | wide
        values = self._keep_active(rows.values, rows.weight, width="reg and reg_gauss", kept=kept_columns)
        self._check_number(values.shape[1])
        active = self.active_features_
        rows = rows.of_columns(values, active)
        X, weight = counted_rows(rows.values, rows.weight)
        reg = None if reg is None else check_penalty(reg, active, self._active_names)
        reg_gauss = None if reg_gauss is None else reg_gauss[np.ix_(active, active)]
        zero = {"reg": reg is not None and reg.is_zero, "reg_gauss": reg_gauss is not None and not reg_gauss.any()}
        zeros = [name for name, is_zero in zero.items() if is_zero]
        if zeros or reg is None or reg_gauss is None:
            check_scale(X, "full", self._active_names)
        if zeros:
            remedies = LCA_GAUSS_REMEDIES._replace(reg_name=" and ".join(zeros))
            check_answerable(X, "full", names=self._active_names, remedies=remedies)
        if zero["reg"]:  # twins are not a problem for the Gaussian
            check_twins(X, LCA_GAUSS_REMEDIES)
        if reg is not None and reg_gauss is not None:
            return rows, reg, reg_gauss
        return rows, *self._search(X, weight, reg, reg_gauss)

    def _search(
        self, X: np.ndarray, weight: np.ndarray | None, reg: Penalty | None, reg_gauss: np.ndarray | None
    ) -> tuple[Penalty, np.ndarray]:
        """Return the penalties that are not given (None), from rows of positive weight."""
        structure, answerable, engine = Structure("full"), is_answerable(X, "full"), fit_engine(self)
        gaussians = gaussian_penalties(X, weight, answerable) if reg_gauss is None else [reg_gauss]
        if has_plenty(X, structure):
            chosen = Penalties(reg or (NO_PENALTY if answerable else LEAST_PENALTY), gaussians[0])
        else:
            regs = [reg] if reg else local_penalties(search_penalty(X, weight, structure, engine, True), answerable)
            chosen = Penalties(regs[0], gaussians[-1])
            if folds := split_folds(X, weight):
                chosen, self.reg_search_ = choose_both(
                    folds, regs, gaussians, self.reduce and self.n_components is None, self.n_components, engine
                )
        return chosen.local(X, weight), chosen.gaussian(X, weight)

    def _check_parameters(self) -> None:
        """Raise an error for invalid parameters."""
        check_flag(self.reduce, "reduce")
        if self.n_components is not None:
            check_integer(self.n_components, "n_components")
        self._check_solver()

    def _check_number(self, n_features: int) -> None:
        """Raise an error if fewer columns vary than directions are asked for."""
        if self.n_components is not None and self.n_components > n_features:
            raise ValueError(
                f"n_components={self.n_components} local directions need as many columns that vary, got {n_features}. Pass at most "
                f"{n_features}."
            )

    def _most_local_direction(self, problem: Any, reg: Penalty) -> np.ndarray:
        """Return the direction of a fit with one local direction, shape (1, d), if one Gaussian describes the rows best."""
        try:
            if isinstance(problem, GaussGaps):
                limits = self._limits_of("gaps")
                path = run_em(start_of(problem, reg, 1), reg, Recorder(), may_lose=True, **limits)
                split, problem = path.finished()
            else:
                start = all_local(len(problem.root), 1)
                split = Splits(problem, reg, n_local=1).fit_sample(start, SAMPLE, np.random.default_rng(0))
        except np.linalg.LinAlgError:  # of width zero: the rows repeat along it
            return problem.root[:1]
        return split.directions(problem.root)[1]

    def _keep(self, path: FitPath, reg: Penalty, rows: TrainingRows, neighbors: np.ndarray | None) -> None:
        """Store the directions and the density; its centres are the rows, moved to the mean along the Gaussian directions."""
        split, problem = path.parameters
        gaussian, local = split.directions(problem.root)
        both = np.concatenate([gaussian, local])
        self.precision_ = both.T @ both
        self.n_components_ = len(split.variances)
        kept = local if len(local) else self._most_local_direction(problem, reg)
        self.gaussian_components_, self.components_ = self._in_all_columns(gaussian), self._in_all_columns(kept)
        self.mean_ = problem.mean if self._constants is None else self._constants.copy()
        self.mean_[self.active_features_] = problem.mean
        if isinstance(problem, GaussGaps):  # the rows of the density are those of the best pass, without gaps
            self._left_out_scores, self._incomplete_rows = problem.left_out_scores(split), rows.values.copy()
            X, metric, pairs = problem.filled.rows, split.metric @ problem.root, problem.filled.complete()
            kept, log_shares = X, rows.kept()[1]
        else:
            metric, pairs = split.metric, problem.whitened
            X = ((rows.values - problem.mean) @ problem.root.T).astype(rows.values.dtype, copy=False)
            kept, log_shares = rows.kept()
        centres, self.covariance_ = mixture_of_directions(gaussian, local, problem.mean, kept)
        self.mixture_ = self._shared_mixture(centres.astype(rows.values.dtype, copy=False), log_shares)
        self.rows_ = kept.astype(rows.values.dtype, copy=False)
        self._keep_neighbors(pairs, metric, rows, X, neighbors)

    def _map_rows(self, X: Any) -> NDArray[Any]:
        if self.n_components_ == 0:
            warnings.warn(
                "LCAGauss: one Gaussian describes the training rows best, so no direction is local, and transform keeps the least "
                "Gaussian direction alone. Pass n_components for more of them, or use vicinal.LCA, whose transform keeps all.",
                UserWarning,
                stacklevel=callers_line(),
            )
        return super()._map_rows(X)

    def _centres_of(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the centres that rows become: they move to the mean along the Gaussian directions."""
        active = self.active_features_
        local = self.components_[: self.n_components_, active]
        gaussian = self.gaussian_components_[:, active]
        return mixture_of_directions(gaussian, local, self.mean_[active], rows)[0]

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
