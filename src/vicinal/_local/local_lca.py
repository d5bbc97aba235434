"""Local LCA: a kernel of its own shape at every row, from the scatter of its vicinity and LCA's covariance."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from vicinal._callers import callers_line
from vicinal._checks import check_choice, check_positive
from vicinal._density.mixture_density import HeldOutRows, rows_out_of_folds
from vicinal._engine import Engine, Work, certificates_of_fit, fit_engine, resolved_engine
from vicinal._lca.checks import Remedies
from vicinal._lca.lca import LCA
from vicinal._lca.penalty import Shrinkage, as_parameter, check_reg, has_plenty
from vicinal._lca.penalty_search import Fold, LCAFold
from vicinal._lca.steps import Penalty, Structure, inverse_root
from vicinal._local.density import LocalDensity
from vicinal._local.kernels import CENTERS, LocalKernels, Member, Shared
from vicinal._local.search import SMALLEST_MULTIPLE, LocalSearch, check_sizes, local_grid, make_splits
from vicinal._mixtures import FrameMixture, SharedMixture, frame_work
from vicinal._rows import TrainingRows, check_rows, check_two_rows, check_weights
from vicinal._rows.dask import answers_collections, fits_collections, float_numbers
from vicinal._search import Selection, fixed_folds, warn_at_smallest

# Kernels with a smaller share in the density at a point do not contribute to its metric.
_NEGLIGIBLE = 1e-6


_REMEDIES = Remedies("LocalLCA", simpler="", merge="keep one of each: np.unique(X, axis=0)")
# So many rows are held out, which is enough for the choice: at once if there are more rows than the first number, else in folds, of
# which there are five at most.
MANY_ROWS, HELD_OUT_ROWS = 1500, 400


FOLDS = 5
_FULL = Structure("full")
# The approximate number of passes of the fit of LCA to a fold, from which the engine chooses a backend, and its tolerance in nats per row.
_PASSES, _TOL = 10, 5e-3
_TABLES = 8 * 20  # the approximate number of combinations of depth and size, times tables, of a search in a fold


class LocalLCA(LocalDensity):
    r"""Local LCA: a density whose kernel has its own shape at every row, chosen by held-out rows.

    .. math:: p(x) = \sum_j w_j \, N(x; c_j, C_j), \qquad C_j = S_j^{(d)} + a \, \Sigma_0 + \sigma^2 I

    :math:`S_j` is the scatter of the vicinity of row j: of its k nearest rows in the metric of the shared covariance
    :math:`B = a \Sigma_0 + \sigma^2 I`. Only its d leading directions in that metric are kept. :math:`\Sigma_0` is
    the covariance of :class:`vicinal.LCA`. The centre :math:`c_j` is the row itself or the mean of its vicinity, and the
    scatter is computed about this centre.

    The family contains its neighbours in the table of the :doc:`idea </idea>`. With d = 0, a = 1 and :math:`\sigma^2 = 0`
    it is LCA; with a = 0 and the row as the centre it is :class:`vicinal.ManifoldParzen`; with the mean as the centre, all
    other rows as the vicinity and all directions it is one Gaussian.

    Parameters
    ----------
    n_components : int or "auto", default="auto"
        d, the number of directions of the local scatter. With 0, every kernel has the shared covariance.
    n_neighbors : int or "auto", default="auto"
        k, the number of rows in a vicinity, not counting the row itself; at least ``n_components``.
    noise : float or "auto", default="auto"
        :math:`\sigma^2`, a variance in squared units of the data, which may be 0.
    shared : float or "auto", default="auto"
        a, the weight of LCA's covariance, which may be 0. `noise` and `shared` must not both be 0.
    center : {"auto", "row", "mean"}, default="auto"
        :math:`c_j`. Without directions it is the row.
    reg : "auto", float, array or Shrinkage, default="auto"
        The penalty of the LCA that gives :math:`\Sigma_0`; see :class:`vicinal.LCA`.
    selection : Selection, optional
        How the parameters that are "auto" are chosen: the folds, and grids for the first three parameters; see
        :class:`vicinal.Selection`. By default, 400 rows are held out
        (all of fewer): one set of more than 1,500 rows, else folds. The criterion must be "log_likelihood". Its noises are tried alone and, with fractions of
        them, in sums with LCA's covariance; multiples of LCA's covariance are also tried without noise, unless `shared` is 0.
    engine : None, str or Engine, default=None
        The backend of the pairwise computations; see :class:`vicinal.Engine`.
    verbose : int, default=0
        Print progress to stderr.

    Attributes
    ----------
    n_components_, n_neighbors_, noise_, shared_, center_
        The values in use.
    rows_ : ndarray of shape (n_samples, n_active)
        The training rows; the centres of the kernels may have moved away from them.
    base_ : LCA or None
        The fitted LCA; its ``covariance_`` is :math:`\Sigma_0`. None if ``shared=0``.
    neighbors_ : ndarray of shape (n_samples, n_neighbors)
        The vicinity of each row, nearest first.
    local_covariances_ : ndarray of shape (n_samples, n_active, n_active)
        :math:`C_j`, for the columns that vary (usually all); computed at each access.
    active_features_ : ndarray of int
        The columns that vary.
    constant_values_ : ndarray
        The values of the other columns.
    cv_results_ : dict of arrays, or None
        The members of the family that were tried on all splits, as in GridSearchCV. None if nothing was selected.
    best_score_ : float or None
        The mean log-density of held-out rows for the values in use.
    converged_ : bool
        Whether LCA converged.
    engine_ : str
        The backend of the pairwise computations after the fit of LCA.
    certified_row_error_ : float
        The largest contribution that skipped pairs could have made to any row's sum in any pass of the fit (including LCA's
        passes), relative to the sum; 0.0 if every pair was visited. See ``error`` of :class:`vicinal.Engine`.
    mixture_ : FrameMixture, or SharedMixture without directions
        The density.
    n_features_in_, feature_names_in_ : int, ndarray of str
        The number of columns of the training rows, and their names if they have names.

    Notes
    -----
    *What is optimised.* LCA's passes increase the penalised leave-one-out likelihood of :math:`\Sigma_0`. Everything after
    that is chosen by held-out rows: LCA, the neighbours, the scatters and the centres are computed again without them.

    *Cost.* After the fit of LCA, the scatters take O(n k D min(k, D)) for each k that is tried, and scores take O(m n d D) for
    m held-out rows with the largest d, plus one exponential for each d and each size of B. Scoring m rows takes O(m n d D). The density
    stores n d D numbers, and the search stores, for each fold, the neighbours of each row for the largest k.

    ``score_samples(None)`` drops a row's own kernel, but the row also contributes to its neighbours' kernels, so these
    scores are too high. Use :meth:`held_out_score_samples` to evaluate training rows.

    ``sample_weight`` is importance: it weights a row as a kernel, as a member of vicinities and as a held-out row.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import LCA, LocalLCA
    >>> from vicinal.datasets import make_spiral
    >>> X, test = make_spiral(300, random_state=0)[0], make_spiral(1000, random_state=1)[0]
    >>> model = LocalLCA().fit(X)
    >>> model.score(test) > LCA().fit(X).score(test) + 0.1
    True
    """

    base_: LCA | None

    def __init__(
        self,
        n_components: int | str = "auto",
        n_neighbors: int | str = "auto",
        noise: float | str = "auto",
        *,
        shared: float | str = "auto",
        center: str = "auto",
        reg: Shrinkage | str | float | ArrayLike = "auto",
        selection: Selection | None = None,
        engine: Engine | str | None = None,
        verbose: int | bool = 0,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.noise = noise
        self.shared = shared
        self.center = center
        self.reg = reg
        self.selection = selection
        self.engine = engine
        self.verbose = verbose

    @fits_collections
    def fit(self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learn a kernel for every row of X.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The training rows.
        y : ignored
            Not used; accepted because pipelines of scikit-learn pass it.
        sample_weight : array-like of shape (n_samples,), optional
            Importance of the rows. Weights must not be negative, and at least two must be positive.

        Returns
        -------
        self
        """
        X = check_rows(self, X, reset=True, min_rows=2).astype(np.float64, copy=False)
        weight = check_two_rows(check_weights(sample_weight, X))
        self._check_parameters()
        X = self._keep_active(X, weight, width="reg")
        engine = resolved_engine(fit_engine(self), self._pair_work(*X.shape))
        self.engine_, self.rows_, self._weight = engine.kind, X.copy(), weight
        with certificates_of_fit() as certificates:  # bounds on the pairs that are skipped
            # Sigma_0, the covariance of LCA's kernel.
            self.base_ = None if self.shared == 0 else self._fit_base(X, weight)
            self.converged_ = self.base_ is None or self.base_.converged_
            # a, sigma^2, k, d and the centre of C_j = S_j^(d) + a Sigma_0 + sigma^2 I: numbers, or by held-out rows.
            member = self._choose(X, weight, engine)
            self.shared_, self.noise_, self.n_neighbors_, self.n_components_, self.center_ = member
            check_sizes(
                member.n_components,
                member.n_neighbors,
                X.shape[1],
                len(X) if weight is None else int(np.count_nonzero(weight)),
            )
            # In z = L^-1 x with L L' = B = a Sigma_0 + sigma^2 I: the k nearest rows of each row (MParzen::Train, step 2), and the d leading
            # directions of their scatter S_j about c_j (step 3). Then C_j = S_j^(d) + B.
            kernels = LocalKernels(self.rows_, weight, self._sigma, engine)
            try:
                self.mixture_: Any = kernels.density(member, self.engine, self._active_names)
            except np.linalg.LinAlgError:
                raise ValueError(
                    "LocalLCA: the covariance that all kernels share is singular in float64. Pass a larger noise or reg (both "
                    "are variances, in squared units of the data), or drop far rows."
                ) from None
            self._neighbors = kernels.neighbors(member.shape, member.n_neighbors) if member.n_components else None
        self.certified_row_error_ = certificates.largest
        if not self.converged_:
            warnings.warn(
                "LocalLCA: the LCA that gives the shared covariance did not converge. Look at base_.objectives_, or pass a larger reg.",
                ConvergenceWarning,
                stacklevel=callers_line(),
            )
        return self

    def _sigma(self) -> NDArray[Any]:
        """Return Sigma_0."""
        assert self.base_ is not None
        return self.base_.covariance_

    def _check_parameters(self) -> None:
        """Raise an error for parameters that are invalid for any data."""
        self._check_sizes_and_selection()
        for name in ("noise", "shared"):
            value = getattr(self, name)
            if not isinstance(value, str):
                check_positive(value, name, strict=False)
            elif value != "auto":
                raise ValueError(f"{name} must be a number of at least 0 or 'auto', got {value!r}.")
        if all(not isinstance(value, str) and value == 0 for value in (self.noise, self.shared)):
            raise ValueError("noise and shared must not both be 0: kernels of width 0 have no density.")
        check_choice(self.center, "center", ("auto", *CENTERS))
        if self.center == "mean" and not isinstance(self.n_components, str) and self.n_components == 0:
            raise ValueError(
                "center='mean' needs n_components of at least 1: without directions, kernels are centred at the rows."
            )
        if self.selection is not None and self.selection.classifies:
            raise ValueError(
                f"selection.criterion must be 'log_likelihood' for LocalLCA, got {self.selection.criterion!r}. "
                "DensityClassifier(LocalLCA()) chooses the kernels of each class by the likelihood of that class."
            )

    def _fit_base(self, X: NDArray[Any], weight: NDArray[Any] | None) -> LCA:
        """Fit the LCA whose covariance is Sigma_0, with exact passes for any number of rows, so that nothing is random."""
        base = LCA(reg=self._reg_of_base(), solver="accelerated", engine=fit_engine(self), verbose=self.verbose)
        base._background_stays = False
        rows: Any = TrainingRows(X, weight, X)
        base._remedies = _REMEDIES
        base.fit(rows)
        del base._remedies, base._background_stays
        return base

    def _reg_of_base(self) -> Any:
        """Return the penalty for the columns that vary."""
        given = (
            check_reg(self.reg, self.n_features_in_) if isinstance(self.reg, Shrinkage) or np.ndim(self.reg) else None
        )
        return self.reg if given is None else as_parameter(given.of_columns(self.active_features_))

    def _choose(self, X: NDArray[Any], weight: NDArray[Any] | None, engine: Engine) -> Member:
        """Return the member of the family, chosen by held-out rows unless all parameters are numbers."""
        self.cv_results_, self.best_score_ = None, None
        parameters = (self.shared, self.noise, self.n_neighbors, self.n_components, self.center)
        if "auto" not in [value for value in parameters if isinstance(value, str)]:
            sizes = int(self.n_neighbors), int(self.n_components)
            return Member(float(self.shared), float(self.noise), *sizes, self.center)
        positions = self._held_out_positions(X, weight)
        if not positions:  # hardly any rows differ: LCA, or plain windows
            return self._without_held_out_rows()

        def kernels_of(train: NDArray[Any]) -> LocalKernels:
            return self._kernels_of(X, weight, train, engine)

        splits = make_splits(positions, X, weight, kernels_of)
        selection = Selection() if self.selection is None else self.selection
        grid = local_grid(self, selection, X, weight, min(split.n_rows for split in splits), engine)
        result = LocalSearch(splits, grid).around_the_best()
        self.best_score_, self.cv_results_ = result.score, result.table()
        member = result.member
        if isinstance(self.shared, str) and member.shape == Shared(SMALLEST_MULTIPLE, 0.0):
            smallest = "multiple of LCA's covariance that it tries"
            warn_at_smallest("LocalLCA", SMALLEST_MULTIPLE, smallest, "shared as a number")
        return member

    def _kernels_of(
        self, X: NDArray[Any], weight: NDArray[Any] | None, train: NDArray[Any], engine: Engine
    ) -> LocalKernels:
        """Return the kernels that some of the rows make, LCA's covariance included."""
        rows, its_weight, base = X[train], None if weight is None else weight[train], self.base_
        if base is None:
            return LocalKernels(rows, its_weight, None, engine)
        return LocalKernels(rows, its_weight, lambda: fold_covariance(rows, its_weight, base, engine), engine)

    def _held_out_positions(
        self, X: NDArray[Any], weight: NDArray[Any] | None
    ) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        """Return the positions of training rows and of held-out rows."""
        if self.selection is not None:
            return self.selection.splits(X, np.zeros(len(X), dtype=int), weight)
        counted = np.arange(len(X)) if weight is None else np.flatnonzero(weight)
        held_out_once = len(counted) > MANY_ROWS
        parts = fixed_folds(X[counted], 1 if held_out_once else FOLDS, HELD_OUT_ROWS if held_out_once else None)
        n_parts = 1 + int(np.searchsorted(np.cumsum([len(part) for part in parts]), HELD_OUT_ROWS))
        return [(np.delete(counted, part), counted[part]) for part in parts[:n_parts]]

    def _without_held_out_rows(self) -> Member:
        if self.shared == 0 and isinstance(self.noise, str):
            raise ValueError(
                "noise='auto' with shared=0 needs at least 5 distinct rows, so that some can be held out. Add data, or pass noise "
                "as a number."
            )
        shared = 1.0 if isinstance(self.shared, str) else float(self.shared)
        noise = 0.0 if isinstance(self.noise, str) else float(self.noise)
        return Member(shared, noise, 1, 0, "row")

    def _pair_work(self, n_samples: int, n_features: int) -> Work:
        """Return the pair work of a fit, after LCA's own."""
        scored = n_samples if n_samples <= MANY_ROWS else HELD_OUT_ROWS
        return frame_work(scored, (min(n_features, 8), n_samples, n_features), _TABLES)

    @answers_collections(dtype=float_numbers)
    def score_samples(self, X: ArrayLike | None = None) -> NDArray[Any]:
        """Return the log-density of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or None
            None scores each training row without its *own kernel only*: the row still contributes to the kernels of its
            neighbours, so these scores are too high. To evaluate training rows, use :meth:`held_out_score_samples`.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        if X is None and isinstance(self.mixture_, FrameMixture):
            return self._mixture().left_out_scores_of(self.rows_)
        return super().score_samples(X)

    def _held_out_rows(self, rows: NDArray[Any]) -> Iterable[HeldOutRows]:
        """Return training rows with the density without their fold: LCA, the vicinities and the scatters are computed again."""
        engine = resolved_engine(fit_engine(self), self._pair_work(*self.rows_.shape))
        member = Member(self.shared_, self.noise_, self.n_neighbors_, self.n_components_, self.center_)

        def mixture_of(train: NDArray[Any]) -> FrameMixture | SharedMixture:
            return self._kernels_of(self.rows_, self._weight, train, engine).density(member.among(len(train)), engine)

        return rows_out_of_folds(self, rows, self._weight, mixture_of)

    @property
    def local_covariances_(self) -> NDArray[Any]:
        """The covariance of each kernel, of the columns that vary, shape (n_samples, n_active, n_active)."""
        check_is_fitted(self)
        if isinstance(self.mixture_, SharedMixture):
            return np.repeat(self.mixture_.covariance[None], len(self.mixture_.centres), axis=0)
        return self.mixture_.covariances

    def local_metric(self: Any, X: ArrayLike) -> NDArray[Any]:
        r"""Return the covariance of the kernels at each row of X, shape (n, n_active, n_active).

        It is :math:`\sum_j p_j(x) C_j`, with the share :math:`p_j(x)` of each kernel in the density at x. Its inverse
        is the matrix of the metric there.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            The rows at which the metric is computed.
        """
        check_is_fitted(self)
        return self._metric_at(self._active(check_rows(self, X, reset=False)).astype(np.float64))

    def _metric_at(self: Any, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the covariance of the kernels at rows of the columns that vary."""
        mixture = self._mixture()
        if isinstance(mixture, SharedMixture):
            return np.repeat(mixture.covariance[None], len(rows), axis=0)
        shares = mixture.responsibilities(rows, _NEGLIGIBLE)
        d = rows.shape[1]
        components = np.unique(shares.indices)
        covariances = mixture.covariances_of(components)
        return (shares[:, components] @ covariances.reshape(len(components), d * d)).reshape(-1, d, d)

    def _one_row(self: Any, x: ArrayLike) -> NDArray[Any]:
        """Return one row of the columns that vary, shape (1, n_active)."""
        check_is_fitted(self)
        row = np.asarray(x, dtype=np.float64)
        if row.shape not in ((self.n_features_in_,), (1, self.n_features_in_)) or not np.isfinite(row).all():
            raise ValueError(f"x must be one row of {self.n_features_in_} finite numbers, got shape {row.shape}.")
        return self._active(row.reshape(1, -1))

    def local_map(self: Any, x: ArrayLike) -> NDArray[Any]:
        """Return the linear map of the vicinity of one row, shape (n_active, n_active), under which local distances are Euclidean.

        ``(X - x)[:, active_features_] @ local_map(x).T`` has the row at its origin and the direction in which its vicinity is widest first.
        Columns that are constant in the training rows are not in ``active_features_``.

        Parameters
        ----------
        x : array-like of shape (n_features,)
            The row.
        """
        # Rotations of an inverse root keep the digits of columns in units that differ by many orders of magnitude; the eigenvalues
        # of the covariance itself would lose the smaller ones.
        try:
            root = inverse_root(self._metric_at(self._one_row(x))[0])
        except np.linalg.LinAlgError:
            raise ValueError(
                "the covariance of the kernels at x is singular in float64, so that x has no local metric. Pass a larger reg, or "
                "drop columns that depend on each other."
            ) from None
        return np.linalg.svd(root)[0][:, ::-1].T @ root

    def local_distances(self: Any, x: ArrayLike, X: ArrayLike) -> NDArray[Any]:
        """Return the distance of each row of X from one row, in the metric of that row, shape (n,).

        The unit is a standard deviation of the kernels at that row. The distance from a to b differs from that from b to a.

        Parameters
        ----------
        x : array-like of shape (n_features,)
            The row from which distances are measured.
        X : array-like of shape (n, n_features)
            The other rows.
        """
        local_map = self.local_map(x)
        rows = self._active(check_rows(self, X, reset=False)).astype(np.float64)
        return np.linalg.norm((rows - self._one_row(x)) @ local_map.T, axis=1)


# -- LCA for some of the rows ------------------------------------------------------------------------------------------


def fold_covariance(train: np.ndarray, weight: np.ndarray | None, base: LCA, engine: Engine) -> np.ndarray:
    """Return LCA's covariance for some of the rows that `base` was fitted to, or that of all rows if it cannot be fitted.

    The penalty is that of `base`, made from these rows if it depends on rows.
    """
    # The fit to all rows knows the held-out rows: with few rows, passes that start from it end near it, at another maximum
    # than those that start from the covariance of the training rows, and held-out rows score up to a nat too high.
    start = base.components_[:, base.active_features_] if has_plenty(train, _FULL) else None
    try:
        with np.errstate(divide="raise", invalid="raise"):
            reg = penalty_of_fold(train, weight, base)
            fold = LCAFold(Fold(train, weight, train, weight), _FULL, engine, _PASSES)
        inverse = np.linalg.inv(fold.fit(reg, start, _TOL))
        covariance = inverse @ inverse.T
        np.linalg.cholesky(covariance)
    except (np.linalg.LinAlgError, FloatingPointError):
        return base.covariance_
    return covariance


def penalty_of_fold(train: np.ndarray, weight: np.ndarray | None, base: LCA) -> Penalty:
    """Return the penalty of `base` for other rows: the user's, or the same family, factor and weight made from these rows."""
    if base._reg_form is not None:
        return base._reg_form.of_rows(train, weight)
    penalty = check_reg(base.reg_, base.n_features_in_)
    assert penalty is not None
    return penalty.of_columns(base.active_features_)
