"""Manifold Parzen Windows: a kernel at every training row that is flat across the local manifold."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cholesky, solve_triangular
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from vicinal._checks import bandwidth_covariance
from vicinal._density.mixture_density import LOO_PASSES, HeldOutRows
from vicinal._density.parzen import loo_variance
from vicinal._engine import (
    Engine,
    Work,
    certificates_of_fit,
    fit_engine,
    resolved_engine,
    robust_centre,
)
from vicinal._fit_loops import warn_if_not_converged
from vicinal._leave_one_out import leave_one_out, merged_twins
from vicinal._local.density import LocalDensity
from vicinal._local.held_out_frames import (
    fold_log_density,
    held_out_log_density,
    rows_held_out_of_frames,
    rows_held_out_of_soft_frames,
)
from vicinal._local.kernels import NOISE, SLACK, LocalKernels, nearest_neighbors
from vicinal._local.search import (
    N_NOISES,
    NEIGHBORS,
    Grid,
    LocalSearch,
    SearchResult,
    auto_noises,
    check_noise,
    check_sizes,
    choose_noise,
    make_splits,
    powers_of_two,
    sizes_to_try,
    values_of,
)
from vicinal._mixtures import FrameMixture, SharedMixture, check_log_density, frame_work
from vicinal._rows import check_rows, check_spread, check_weights, log_weights
from vicinal._rows.dask import answers_collections, fits_collections, float_numbers
from vicinal._scatter import soft_frames
from vicinal._search import Selection, warn_at_smallest
from vicinal._supervision import code_classes
from vicinal._tensors import on_device

_ROWS_FOR_NOISE = 1024  # held-out rows that choose the noise, which is enough for one number
_NOISES = 40  # the approximate number of noises that are compared
_FOLDS = 5  # folds of rows that are held out of soft neighbourhoods


class ManifoldParzen(LocalDensity):
    r"""Manifold Parzen Windows: kernel density estimation with kernels that follow local directions.

    .. math:: p(x) = \sum_i w_i \, N(x; x_i, C_i), \qquad
              C_i = \sigma^2 I + \sum_{l \le d} v_{il} V_{il} V_{il}^T

    where :math:`v_{il}, V_{il}` are the d leading eigenvalues and eigenvectors of the scatter of the neighbours about
    :math:`x_i` itself, :math:`\sum_j K(x_j; x_i) (x_j - x_i)(x_j - x_i)^T / \sum_j K(x_j; x_i)`.

    Parameters
    ----------
    n_components : int or "auto", default="auto"
        The number d of local directions to keep. 0 is plain Parzen windows of variance ``noise``.
    n_neighbors : int or "auto", default="auto"
        The number k of neighbours of a row, not counting the row itself; at least ``n_components``. Not used with
        ``vicinity="kernel"``.
    noise : float or "auto", default="auto"
        :math:`\sigma^2`, the variance added in every direction. If d and k are numbers, "auto" chooses the value with the
        largest likelihood of rows that did not shape the density: each row is scored under the estimate built without it,
        including its frames (for ``vicinity="kernel"``, by five folds). Up to 1,024 rows are scored.
    vicinity : {"nearest", "kernel"}, default="nearest"
        "nearest" uses exactly the k nearest rows, with equal weights; "kernel" uses all other rows, with Gaussian weights.
    bandwidth : float, vector or matrix, optional
        The width of the Gaussian weight of ``vicinity="kernel"``: a standard deviation, one standard deviation per
        feature, or a covariance.
    metric : fitted metric, optional
        The metric that defines neighbours: any fitted object with a ``transform``, after which distances are Euclidean
        (LCA, RCA, NCA, a scaler, a pipeline). It is used only to find neighbours, and :func:`sklearn.base.clone` does not
        copy it.
    selection : Selection, optional
        How d, k and the noise are chosen if d or k is "auto": the criterion, the folds and the grids; see
        :class:`vicinal.Selection`. If it is given, a noise that is "auto" is chosen in the same way. It
        must not be given with ``vicinity="kernel"``.
    engine : None, str or Engine, default=None
        The backend of the pairwise computations; see :class:`vicinal.Engine`.

    Attributes
    ----------
    n_components_, n_neighbors_ : int
        d and k in use.
    noise_ : float
        The variance :math:`\sigma^2` in use.
    cv_results_ : dict of arrays, or None
        The table of the search, as that of GridSearchCV: ``params``, ``param_n_components``, ``param_n_neighbors``,
        ``param_noise``, ``split0_test_score``, ..., ``mean_test_score``, ``std_test_score``, ``rank_test_score``. None
        without a search.
    best_score_ : float or None
        The mean over the splits of the score of the values in use.
    active_features_ : ndarray of int
        The positions of the columns that vary. The density is that of these columns.
    constant_values_ : ndarray
        The values of the other columns.
    local_frames_ : ndarray of shape (n_samples, n_components, n_features)
        The directions :math:`V_{il}`, orthonormal, the leading one first.
    local_variances_ : ndarray of shape (n_samples, n_components)
        The variances :math:`v_{il}` along them, without the noise.
    neighbors_ : ndarray of shape (n_samples, n_neighbors)
        The neighbours of each row, nearest first. Only with ``vicinity="nearest"``.
    noise_candidates_, noise_scores_ : ndarrays
        With ``noise="auto"``: the variances tried and their mean held-out log-densities.
    engine_ : str
        The backend of the pairwise computations of the fit.
    certified_row_error_ : float
        A bound on what skipped pairs would have added to any row's sum in any pass of the fit, relative to the sum; 0.0 if
        every pair was visited. See ``error`` of :class:`vicinal.Engine`.
    mixture_ : FrameMixture, or SharedMixture with ``n_components=0``
        The density itself.
    n_features_in_, feature_names_in_ : int, ndarray of str
        The number of columns of the training rows, and their names if they have names.

    Notes
    -----
    Fitting costs the neighbour search plus O(n k D min(k, D)) for the frames, and O(n d D) memory. Scoring m rows costs
    O(m n d D), about d + 1 times plain Parzen windows. ``noise="auto"`` costs about as much as scoring 1,024 rows. The
    default search costs about as much as scoring up to 2,048 rows under four densities of up to 32 directions, with an
    exponential for each of the 16 noises and each number of directions. Numbers for both parameters avoid the search.

    ``sample_weight`` is importance: it weights a row as a component and as a neighbour. A row of weight 0 is neither.

    References
    ----------
    P. Vincent and Y. Bengio. Manifold Parzen Windows. NIPS 15, 2003.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import ManifoldParzen, ParzenWindows
    >>> rng = np.random.default_rng(0)
    >>> t = rng.uniform(3, 15, size=900)
    >>> spiral = 0.04 * t[:, None] * np.column_stack([np.sin(t), np.cos(t)]) + rng.normal(0, 0.01, (900, 2))
    >>> train, test = spiral[:300], spiral[300:]
    >>> density = ManifoldParzen(n_components=1, n_neighbors=12).fit(train)
    >>> round(density.score(test), 2), round(ParzenWindows().fit(train).score(test), 2)
    (1.51, 1.3)
    """

    _isotropic = True

    def __init__(
        self,
        n_components: int | str = "auto",
        n_neighbors: int | str = "auto",
        noise: str | float = "auto",
        *,
        vicinity: str = "nearest",
        bandwidth: float | ArrayLike | None = None,
        metric: Any = None,
        selection: Selection | None = None,
        engine: Engine | str | None = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.noise = noise
        self.vicinity = vicinity
        self.bandwidth = bandwidth
        self.metric = metric
        self.selection = selection
        self.engine = engine

    def __sklearn_clone__(self) -> Self:
        copy = BaseEstimator.__sklearn_clone__(self)
        copy.metric = self.metric
        return copy

    @fits_collections
    def fit(self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the density to rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The training rows.
        y : ignored
            Not used; accepted because pipelines of scikit-learn pass it.
        sample_weight : array-like of shape (n_samples,), optional
            The importance of the rows. The weights must not be negative, and at least one must be positive.

        Returns
        -------
        self
        """
        with certificates_of_fit() as certificates:
            self._fit(X, y, sample_weight)
        self.certified_row_error_ = certificates.largest
        return self

    def _fit(self, X: ArrayLike, y: ArrayLike | None, sample_weight: ArrayLike | None) -> None:
        rows, weight = self._check_input(X, sample_weight)
        # Departure 5 (ManifoldParzen): A metric may determine which rows are near.
        # Departure 6 (ManifoldParzen): Tangent distances are not built in.
        places = rows_under_metric(self.metric, X, self._active(rows))
        rows = np.asarray(self._active(rows))
        # d, k and sigma^2: numbers, or by held-out rows. The noise may also be chosen after the frames are known.
        d, k, noise, searched = self._choose(rows, places, weight, y)
        counted = np.arange(len(rows)) if weight is None else np.flatnonzero(weight)
        self._check_sizes(rows, len(counted), d, k, noise)
        engine = resolved_engine(fit_engine(self), self._fit_work(len(rows), rows.shape[1], d, noise))
        self.engine_, self.n_components_, self.n_neighbors_ = searched or engine.kind, d, k
        self._weight, self._neighbors, self._soft_rows = weight, None, None
        kernels = LocalKernels(rows, weight, None, engine, places)
        if d > 0 and self.vicinity == "nearest":
            # MParzen::Train, step 2: the k nearest rows; and one more, which replaces a neighbour that is held out.
            self._neighbors = kernels.neighbors(NOISE, min(k + 1, len(counted) - 1))
        if d == 0 or self.vicinity == "nearest":
            # Step 3: singular vectors V_il and singular values s of the differences x_j - x_i; v_il = s^2 / k.
            _, frames, variances = kernels.kernels(NOISE, k, d, "row")
        else:
            # The weighted covariance of a soft neighbourhood K (sec. 2), instead of steps 2 and 3.
            self._soft_rows = in_bandwidths(places, self.bandwidth)
            frames, variances = soft_frames(rows, self._soft_rows, d, weight, engine=engine)
        # sigma^2, which makes the covariances C_i regular.
        # Departure 2 (ManifoldParzen): The noise can be chosen without a validation set.
        auto = isinstance(noise, str)
        self.noise_ = self._choose_noise(rows, frames, variances, counted, engine) if auto else float(noise)
        # Eq. 1; without directions plain Parzen windows (sec. 2), to the last bit.
        # Departure 4 (ManifoldParzen): Rows can have weights.
        options = (log_weights(weight), self.engine, self._active_names)
        self.mixture_: SharedMixture | FrameMixture = (
            FrameMixture(rows.copy(), frames, variances, self.noise_, *options)
            if d
            else SharedMixture(rows.copy(), self.noise_ * np.eye(rows.shape[1]), *options)
        )

    def selected(self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Return an unfitted copy whose n_components, n_neighbors and noise are numbers, chosen on some rows.

        :class:`vicinal.DensityClassifier` calls this before it fits the density of each class, so that a classification
        criterion chooses one set of values for all classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows on which parameters are chosen.
        y : array-like of shape (n_samples,), optional
            Class labels; needed for, and only used by, the classification criteria.
        sample_weight : array-like of shape (n_samples,), optional
            Their importance.

        Returns
        -------
        ManifoldParzen
        """
        copy = clone(self)
        rows, weight = copy._check_input(X, sample_weight)
        rows = copy._active(rows)
        d, k, noise, _ = copy._choose(rows, rows_under_metric(self.metric, X, rows), weight, y)
        return clone(self).set_params(n_components=d, n_neighbors=k, noise=noise, selection=None)

    def _check_input(self, X: Any, sample_weight: Any) -> tuple[NDArray[Any], Any]:
        """Return the rows and their weights; validate the parameters, and find the columns that vary."""
        # Plain Parzen windows of a given width need no second row.
        given = isinstance(self.noise, numbers.Real)
        alone = given and not isinstance(self.n_components, str) and self.n_components == 0
        X = check_rows(self, X, reset=True, min_rows=1 if alone else 2)
        weight = check_weights(sample_weight, X)
        self._check_parameters(X)
        # A noise that is given, or grids of it, are a width along constant columns.
        grids = not isinstance(getattr(self.selection, "noise", "auto"), str)
        kept_columns = np.full(X.shape[1], given or grids)
        self._keep_active(X, weight, width="noise", kept=kept_columns)
        return X, weight

    def _check_parameters(self, X: np.ndarray) -> None:
        """Raise an error for parameters that are invalid for any data."""
        self._check_sizes_and_selection()
        if isinstance(self.noise, str):
            if self.noise != "auto":
                raise ValueError(f"noise must be a variance greater than 0 or 'auto', got {self.noise!r}.")
            check_spread(X)
        else:
            check_noise(self.noise, X.dtype)
        if self.vicinity not in _NEIGHBORHOODS:
            raise ValueError(f"vicinity must be 'nearest' or 'kernel', got {self.vicinity!r}.")
        if self.selection is not None and self.vicinity == "kernel":
            raise ValueError("selection needs vicinity='nearest': a soft neighbourhood has no number of neighbours.")

    def _check_sizes(self, X: np.ndarray, n_rows: int, d: int, k: int, noise: float | str) -> None:
        """Check d and k against each other and the data."""
        check_sizes(d, k if self.vicinity == "nearest" else None, X.shape[1], n_rows)
        auto = isinstance(noise, str)
        if d > 0 and self.vicinity == "kernel":
            if self.bandwidth is None:
                raise ValueError(
                    "vicinity='kernel' needs a bandwidth, got None. Pass a standard deviation, for "
                    "example the typical distance of a row to its tenth neighbour."
                )
            check_soft_rows(n_rows, 3 if auto else 2, " with noise='auto'" if auto else "")
        elif d > 0 and auto and n_rows == k + 1:
            raise ValueError(
                f"n_neighbors={k} with noise='auto', which leaves rows out, needs at least {k + 2} training "
                f"rows, got {n_rows}. Lower n_neighbors, add data or pass noise as a number."
            )

    def _check_can_hold_out(self) -> None:
        """Raise if a fitted density has too few rows to build frames without one of them."""
        neighbors, k = self._neighbors, self.n_neighbors_
        if neighbors is None:
            check_soft_rows(int(np.isfinite(self.mixture_.log_weights).sum()), 3, " when rows are left out")
        elif neighbors.shape[1] == k:
            raise ValueError(
                f"n_neighbors={k} needs at least {k + 2} training rows when a row is left out, got {len(neighbors)}. Lower "
                "n_neighbors or add data."
            )

    @property
    def _searches(self) -> bool:
        """Whether some parameters are to be chosen on folds."""
        if self.vicinity == "kernel" or (self.n_components == 0 and self.selection is None):
            return False
        return isinstance(self.n_components, str) or isinstance(self.n_neighbors, str) or self.selection is not None

    def _choose(
        self, X: np.ndarray, places: np.ndarray, weight: np.ndarray | None, y: ArrayLike | None
    ) -> tuple[int, int, float | str, str | None]:
        """Return d, k, the noise ("auto" if it is chosen after the frames are known), and the backend of a search or None."""
        self.cv_results_, self.best_score_ = None, None
        if not self._searches:
            # Soft neighbourhoods have no k, and one direction by default; plain windows have no neighbours.
            sizes: Any = [1 if isinstance(size, str) else size for size in (self.n_components, self.n_neighbors)]
            return *sizes, self.noise, None
        selection = Selection() if self.selection is None else self.selection
        codes, classes = np.zeros(len(X), dtype=int), np.array(["the data"])
        if selection.classifies:
            classes, codes = code_classes(y, len(X))
        positions = selection.splits(X, codes, weight)
        if not positions:  # hardly any rows differ: plain windows
            return 0, 1, self.noise, None
        counted = slice(None) if weight is None or not isinstance(selection.cv, int) else weight > 0
        n_rows = len(X[counted])
        engine = resolved_engine(fit_engine(self), self._search_work(n_rows, X.shape[1]))

        def kernels_of(train: np.ndarray) -> LocalKernels:
            return LocalKernels(X[train], None if weight is None else weight[train], None, engine, places[train])

        splits = make_splits(positions, X, weight, kernels_of, selection.criterion, classes, codes)
        smallest = min(split.n_rows for split in splits)
        neighbors, depths = sizes_to_try(self, selection, X.shape[1], smallest, wide=False)
        noises = values_of(self.noise, selection.noise)
        noises = auto_noises(X, weight, engine) if noises is None else [check_noise(s, X.dtype) for s in noises]
        noises = sorted(set(noises))
        result = LocalSearch(splits, Grid(neighbors, depths, ("row",), [(NOISE, noises)], False)).every_member()
        self.cv_results_ = result.table(("n_components", "n_neighbors", "noise"))
        self.best_score_, member = result.score, result.member
        self._warn_if_noises_end_too_early(result, noises)
        return member.n_components, member.n_neighbors, member.noise, engine.kind

    def _warn_if_noises_end_too_early(self, result: SearchResult, noises: list[float]) -> None:
        """Warn if the smallest noise of "auto" is the best by more than a thousandth of a nat."""
        selection = Selection() if self.selection is None else self.selection
        is_smallest = values_of(self.noise, selection.noise) is None and result.member.noise == noises[0]
        if selection.classifies or not is_smallest:
            return
        further = result.scores[result.member._replace(noise=noises[2])].mean()
        if result.score - further >= 1e-3:
            remedy = "selection=Selection(noise=...) with smaller values"
            warn_at_smallest("ManifoldParzen", noises[0], "of noise='auto'", remedy)

    def _search_work(self, n_samples: int, n_features: int) -> Work:
        """Return the pair work of the search: every k of every split is one pass, for all depths and noises together."""
        selection = Selection() if self.selection is None else self.selection
        neighbors = values_of(self.n_neighbors, selection.n_neighbors) or NEIGHBORS
        components = values_of(self.n_components, selection.n_components) or powers_of_two(n_features)
        noises = values_of(self.noise, selection.noise)
        n_noises = N_NOISES if noises is None else len(noises)
        folds = int(selection.cv) if isinstance(selection.cv, numbers.Integral) else 5
        held_out = -(-n_samples // folds)
        shape = int(max(components)), n_samples - held_out, n_features
        scored = held_out if selection.max_rows is None else min(held_out, -(-selection.max_rows // folds))
        return frame_work(scored, shape, len(components) * n_noises, len(neighbors) * folds)

    def _pair_work(self, n_samples: int, n_features: int) -> Work:
        """Return the pair work of the search if there is one, else of the fit, or of scoring its rows if the fit has none."""
        if self._searches:
            return self._search_work(n_samples, n_features)
        return self._fit_work(n_samples, n_features, 1 if isinstance(self.n_components, str) else self.n_components)

    def _fit_work(self, n_samples: int, n_features: int, d: int, noise: float | str | None = None) -> Work:
        """Return the pair work of a fit with d directions."""
        auto = isinstance(self.noise if noise is None else noise, str)
        if d == 0:
            return Work(n_samples, n_samples, n_features, LOO_PASSES if auto else 1)
        passes = 1 if self.vicinity == "nearest" else 2  # the weights of soft neighbours take two sweeps
        if not auto:
            return Work(n_samples, n_samples, n_features, passes)
        scored = min(n_samples, _ROWS_FOR_NOISE)
        if self.vicinity == "nearest":
            return frame_work(scored, (d, n_samples, n_features), _NOISES)
        return Work(n_samples, n_samples, n_features, passes * _FOLDS)

    def _choose_noise(
        self, X: np.ndarray, frames: np.ndarray, variances: np.ndarray, counted: np.ndarray, engine: Engine
    ) -> float:
        if len(frames) == 0:
            path = loo_variance(leave_one_out(*merged_twins(X, self._weight), engine, passes=LOO_PASSES))
            warn_if_not_converged("ManifoldParzen(n_components=0, noise='auto')", path)
            return path.parameters
        rows = counted
        if len(rows) > _ROWS_FOR_NOISE:
            rows = np.sort(np.random.default_rng(0).choice(rows, _ROWS_FOR_NOISE, replace=False))
        weights = None if self._weight is None else self._weight[rows]

        def evaluate(noises: np.ndarray) -> np.ndarray:
            scores = self._held_out(X, frames, variances, noises, rows, engine, SLACK[X.dtype])
            return np.average(scores, axis=1, weights=weights)

        near = nearest_neighbors(X, 1, counted, engine=engine) if self._neighbors is None else self._neighbors
        first = near[:, 0]
        distances = np.linalg.norm(X[counted].astype(np.float64) - X[first[counted]], axis=1)
        choice = choose_noise(evaluate, X[counted], distances)
        self.noise_candidates_, self.noise_scores_ = choice.candidates, choice.scores
        return choice.noise

    def _held_out(
        self,
        X: np.ndarray,
        frames: np.ndarray,
        variances: np.ndarray,
        noises: Sequence[float] | np.ndarray,
        rows: np.ndarray,
        engine: Engine,
        slack: float = 1.0,
    ) -> np.ndarray:
        """Return log-densities (noises, rows) of training rows under the estimate built without them."""
        options: dict[str, Any] = {"rows": rows, "weight": self._weight, "engine": engine, "slack": slack}
        if self._neighbors is not None:
            return held_out_log_density(X, self._neighbors, frames, variances, noises, **options)
        assert self._soft_rows is not None
        return fold_log_density(X, self._soft_rows, len(frames), noises, n_folds=_FOLDS, **options)

    @answers_collections(dtype=float_numbers)
    def score_samples(self, X: ArrayLike | None = None) -> NDArray[Any]:
        """Return the log-density of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or None
            The rows to score. None scores each training row without its *own component only*: the row still shapes the
            frames of its neighbours, so these scores are optimistically biased. To choose parameters or to evaluate
            training rows, use :meth:`held_out_score_samples`.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return super().score_samples(X)

    def held_out_score_samples(self) -> NDArray[Any]:
        """Return the log-density of each training row under the estimate built without it.

        Without row i, a point that has i among its k neighbours gets its frame from the others and its (k+1)th neighbour.
        This is exact and takes one pass over the pairs and n k small decompositions. With ``vicinity="kernel"``, the rows
        are scored by five folds instead. The noise is kept.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        mixture, n = self.mixture_, len(self.mixture_.centres)
        if isinstance(mixture, SharedMixture):
            return mixture.left_out_score_samples()
        self._check_can_hold_out()
        engine = resolved_engine(self.engine, frame_work(n, mixture.frames.shape))
        scores = self._held_out(
            mixture.centres, mixture.frames, mixture.variances, [mixture.noise], np.arange(n), engine
        )
        return check_log_density(scores[0])

    def _held_out_rows(self, rows: NDArray[Any]) -> Iterable[HeldOutRows]:
        """Return training rows with the density without them, as `held_out_score_samples` scores them."""
        mixture = self._mixture()
        if isinstance(mixture, SharedMixture):
            return super()._held_out_rows(rows)
        self._check_can_hold_out()
        if self._soft_rows is not None:
            return rows_held_out_of_soft_frames(mixture, self._soft_rows, rows, _FOLDS)
        return rows_held_out_of_frames(mixture, np.asarray(self._neighbors), rows)

    @property
    def local_frames_(self) -> NDArray[Any]:
        """The directions of each row's neighbourhood, shape (n_samples, n_components, n_features)."""
        check_is_fitted(self)
        if isinstance(self.mixture_, SharedMixture):
            return np.empty((len(self.mixture_.centres), 0, self.n_features_in_))
        return self.mixture_.frames.transpose(1, 0, 2)

    @property
    def local_variances_(self) -> NDArray[Any]:
        """The variances along them, without the noise, shape (n_samples, n_components)."""
        check_is_fitted(self)
        if isinstance(self.mixture_, SharedMixture):
            return np.empty((len(self.mixture_.centres), 0))
        return self.mixture_.variances.T


_NEIGHBORHOODS = ("nearest", "kernel")


def check_soft_rows(n_rows: int, least: int, purpose: str) -> None:
    """Raise an error for too few rows."""
    if n_rows < least:
        raise ValueError(
            f"vicinity='kernel'{purpose} needs at least {least} training rows of positive weight, got {n_rows}. "
            "Add data, or pass n_components=0 and noise as a number."
        )


def rows_under_metric(metric: Any, rows: ArrayLike, X: np.ndarray) -> np.ndarray:
    """Return the rows transformed by the metric, for which its distances are Euclidean.

    `rows` are as the user passed them (perhaps with column names, which the metric may use), and X is the validated
    array.
    """
    if metric is None:
        return X
    if not hasattr(metric, "transform"):
        raise TypeError(
            f"metric must be a fitted metric with a transform method, or None, got {type(metric).__name__}. "
            "Fit LCA, RCA, NCA or a scikit-learn transformer first and pass it."
        )
    try:
        Z = np.asarray(metric.transform(X if on_device(rows) else rows))
    except NotFittedError as error:
        raise NotFittedError(
            f"metric must be fitted before it is passed, and this {type(metric).__name__} is not."
        ) from error
    if Z.ndim != 2 or len(Z) != len(X) or not np.all(np.isfinite(Z)):
        raise ValueError(
            f"metric must map the {len(X)} rows to {len(X)} finite rows, got an array of shape {Z.shape}"
            f"{'' if np.all(np.isfinite(Z)) else ' that is not finite'}."
        )
    return Z


def in_bandwidths(Z: np.ndarray, bandwidth: Any) -> np.ndarray:
    """Return rows in units of the bandwidth: where the weight is exp(-|z_i - z_j|^2 / 2)."""
    lower = cholesky(bandwidth_covariance(bandwidth, Z.shape[1]), lower=True)
    centred = (Z - robust_centre(Z)).T
    return np.ascontiguousarray(solve_triangular(lower, centred.astype(np.float64), lower=True).T)
