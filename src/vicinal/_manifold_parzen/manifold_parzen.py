"""Manifold Parzen Windows: a Gaussian pancake at every training row, flat across the local manifold."""

import numbers
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cholesky, solve_triangular
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from vicinal._checks import bandwidth_covariance, check_integer, check_positive, check_rows, check_spread, check_weights
from vicinal._density.loo_bandwidth import LOO_PASSES, loo_variance
from vicinal._density.mixture_density import MixtureDensityMixin
from vicinal._engine import Engine, Work, available_threads, fit_engine, robust_centre, settled
from vicinal._fit_loops import warn_if_not_converged
from vicinal._leave_one_out import leave_one_out
from vicinal._manifold_parzen.held_out_frames import fold_log_density, held_out_log_density
from vicinal._manifold_parzen.neighbors import nearest_neighbors
from vicinal._manifold_parzen.noise_choice import choose_noise
from vicinal._mixtures import FrameMixture, SharedMixture, check_log_density, frame_work
from vicinal._records import Record, RecordParametersMixin
from vicinal._scatter import local_frames, soft_frames
from vicinal._tensors import on_device

_NEIGHBORHOODS = ("nearest", "kernel")
_ROWS_FOR_NOISE = 1024  # held-out rows that choose the noise: plenty for one number
_NOISES = 40  # about as many noises are compared
_FOLDS = 5  # of rows that are held out of soft neighbourhoods
# Comparing noises needs fewer digits than reporting a density; see `Frames`.
_SLACK = {np.dtype(np.float64): 1e6, np.dtype(np.float32): 10.0}

# Departures from the paper (Vincent and Bengio, 2003):
# 1. Exactly k neighbours, ties in the order of the index; the row itself is none of them (`nearest_neighbors`).
# 2. The noise can be chosen without a validation set, by rows held out of their neighbours' frames too.
# 3. Weights of the soft neighbourhood are relative to the largest: they never all underflow (`soft_frames`).
# 4. `sample_weight` weighs a row as a component and as a neighbour.
# 5. `metric` may decide who is near whom; directions are those of the rows themselves.


class ManifoldParzen(RecordParametersMixin, MixtureDensityMixin, DensityMixin, BaseEstimator):
    r"""Manifold Parzen Windows: kernel density estimation with kernels that follow local directions.

    .. math:: p(x) = \sum_i w_i \, N(x; x_i, C_i), \qquad
              C_i = \sigma^2 I + \sum_{l \le d} v_{il} V_{il} V_{il}^T

    where :math:`v_{il}, V_{il}` are the d leading eigenvalues and eigenvectors of the scatter of the
    neighbours of :math:`x_i`, centred on :math:`x_i` itself: :math:`\sum_j K(x_j; x_i) (x_j - x_i)(x_j -
    x_i)^T / \sum_j K(x_j; x_i)`.

    Parameters
    ----------
    n_components : int, default=1
        d, the number of local directions kept. 0 is plain Parzen windows of variance ``noise``.
    n_neighbors : int, default=5
        k, the number of neighbours of a row, itself not counted; at least ``n_components``. Not used with
        ``vicinity="kernel"``.
    noise : float or "auto", default="auto"
        :math:`\sigma^2`, the variance added in every direction. "auto" takes the value of largest likelihood
        of rows that did not shape the density: each is scored under the estimate built without it, frames
        included (for ``vicinity="kernel"``, by five folds). Up to 1,024 rows, spread over the training
        set, are scored.
    vicinity : {"nearest", "kernel"}, default="nearest"
        "nearest" counts exactly the k nearest rows, equally; "kernel" all other rows, with a Gaussian weight.
    bandwidth : float, vector or matrix, optional
        The width of the Gaussian weight of ``vicinity="kernel"``: a standard deviation, one for each
        feature, or a covariance.
    metric : fitted metric, optional
        Who is near whom: anything fitted with a ``transform``, after which distances are Euclidean (LCA, RCA,
        NCA, a scaler, a pipeline). Only neighbourhoods see it. It is kept as it is by
        :func:`sklearn.base.clone`.
    neighbor_search : {"exact", "approximate"}, default="exact"
        How neighbours are found: by the pair engine, or by pynndescent (``pip install 'vicinal[ann]'``) for
        large n.
    engine : None, str or Engine, default=None
        The backend of the pairwise computations; see :class:`vicinal.Engine`.

    Attributes
    ----------
    noise_ : float
        The variance :math:`\sigma^2` in use.
    local_frames_ : ndarray of shape (n_samples, n_components, n_features)
        The directions :math:`V_{il}`, orthonormal, the leading one first.
    local_variances_ : ndarray of shape (n_samples, n_components)
        The variances :math:`v_{il}` along them, without the noise.
    neighbors_ : ndarray of shape (n_samples, n_neighbors)
        The neighbours of each row, nearest first. Only with ``vicinity="nearest"``.
    noise_candidates_, noise_scores_ : ndarrays
        With ``noise="auto"``: the variances tried and their mean held-out log-densities.
    engine_ : str
        The backend of the pair work of the fit.
    certified_row_error_ : float
        The most that skipped pairs may have added to any row's sum in the last pass, relative to the sum; 0.0 where
        every pair was visited. See ``error`` of :class:`vicinal.Engine`.
    mixture_ : FrameMixture, or SharedMixture with ``n_components=0``
        The density itself.
    n_features_in_ : int
    feature_names_in_ : ndarray of str, only when fitted on named columns

    Notes
    -----
    Fitting costs the neighbour search plus O(n k D min(k, D)) for the frames, and O(n d D) memory. Scoring m
    rows costs O(m n d D), about d + 1 times plain Parzen windows. ``noise="auto"`` costs about as much as
    scoring 1,024 rows.

    ``sample_weight`` is importance: a row weighs as a component and as a neighbour, and a row of weight 0 is
    neither.

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

    _record_types: ClassVar[dict[str, type[Record]]] = {"engine": Engine}

    def __init__(
        self,
        n_components: int = 1,
        n_neighbors: int = 5,
        noise: str | float = "auto",
        *,
        vicinity: str = "nearest",
        bandwidth: float | ArrayLike | None = None,
        metric: Any = None,
        neighbor_search: str = "exact",
        engine: Engine | str | None = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.noise = noise
        self.vicinity = vicinity
        self.bandwidth = bandwidth
        self.metric = metric
        self.neighbor_search = neighbor_search
        self.engine = engine

    def __sklearn_clone__(self):
        return clone_but_keep_metric(self)

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the density to rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional
            Importance of the rows; not negative, not all zero.

        Returns
        -------
        self
        """
        named_rows = X
        X, weight, counted, d, k = self._check_input(X, sample_weight)
        engine = settled(fit_engine(self), self._pair_work(*X.shape))
        self.engine_, self.certified_row_error_ = engine.kind, 0.0
        self._k, self._weight, self._neighbors, self._soft_rows = k, weight, None, None
        if d == 0:
            frames, variances = np.empty((0, *X.shape), dtype=X.dtype), np.empty((0, len(X)))
        elif self.vicinity == "nearest":
            # MParzen::Train, step 2: the k nearest rows; and one more, who would take a vacant place when a row is held out.
            rows, more = rows_under_metric(self.metric, named_rows, X), min(k + 1, len(counted) - 1)
            self._neighbors = nearest_neighbors(
                rows, more, counted, neighbor_search=self.neighbor_search, engine=engine
            )
            # Step 3: singular vectors V_il and singular values s of the differences x_j - x_i; v_il = s^2 / k.
            options = {"memory": engine.memory_bytes, "threads": available_threads(engine.threads)}
            frames, variances = local_frames(X, self._neighbors[:, :k], d, weight, **options)
        else:
            # The weighted covariance of a soft neighbourhood K (sec. 2), instead of steps 2 and 3.
            self._soft_rows = _in_bandwidths(rows_under_metric(self.metric, named_rows, X), self.bandwidth)
            frames, variances = soft_frames(X, self._soft_rows, d, weight, engine=engine)
        # sigma^2, which makes the covariances C_i regular.
        auto = self.noise == "auto"
        self.noise_ = self._choose_noise(X, frames, variances, counted, engine) if auto else float(self.noise)
        self.mixture_: SharedMixture | FrameMixture = self._make_mixture(X, frames, variances)  # Eq. 1
        return self

    def _check_input(self, X: Any, sample_weight: Any) -> tuple[NDArray[Any], Any, Any, int, int]:
        """The rows, their weights, the positions of those that count, d and k."""
        # Plain Parzen windows of a given width need no second row.
        alone = self.n_components == 0 and isinstance(self.noise, numbers.Real)
        X = check_rows(self, X, reset=True, min_rows=1 if alone else 2)
        weight = check_weights(sample_weight, X)
        counted = np.arange(len(X)) if weight is None else np.flatnonzero(weight)
        return X, weight, counted, *self._check_parameters(X, len(counted))

    def _make_mixture(self, X, frames, variances):
        """The density; without directions plain Parzen windows (sec. 2), to the last bit."""
        with np.errstate(divide="ignore"):
            log_weights = None if self._weight is None else np.log(self._weight)
        names = getattr(self, "feature_names_in_", None)
        if len(frames) == 0:
            return SharedMixture(X.copy(), self.noise_ * np.eye(X.shape[1]), log_weights, self.engine, names)
        return FrameMixture(X.copy(), frames, variances, self.noise_, log_weights, self.engine, names)

    def _pair_work(self, n_samples, n_features):
        """The pair work of a fit, or of scoring its rows where it has none."""
        d, auto = self.n_components, isinstance(self.noise, str)
        if d == 0:
            return Work(n_samples, n_samples, n_features, LOO_PASSES if auto else 1)
        passes = 1 if self.vicinity == "nearest" else 2  # shares of soft neighbours take two sweeps
        if not auto:
            return Work(n_samples, n_samples, n_features, passes)
        scored = min(n_samples, _ROWS_FOR_NOISE)
        if self.vicinity == "nearest":
            return frame_work(scored, (d, n_samples, n_features), _NOISES)
        return Work(n_samples, n_samples, n_features, passes * _FOLDS)

    def _scoring_work(self, n_queries, n_points, n_features, passes):
        if self.n_components == 0:
            return super()._scoring_work(n_queries, n_points, n_features, passes)
        return frame_work(n_queries, (self.n_components, n_points, n_features), passes=passes)

    def _check_parameters(self, X, n_rows):
        """Check the parameters against each other and the data; return d and k."""
        n_features = X.shape[1]
        d = check_integer(self.n_components, "n_components", least=0)
        k = check_integer(self.n_neighbors, "n_neighbors")
        if isinstance(self.noise, str):
            if self.noise != "auto":
                raise ValueError(f"noise must be a variance greater than 0 or 'auto', got {self.noise!r}.")
            check_spread(X)
        else:
            check_noise(self.noise, X.dtype)
        if self.vicinity not in _NEIGHBORHOODS:
            raise ValueError(f"vicinity must be 'nearest' or 'kernel', got {self.vicinity!r}.")
        if d > n_features:
            raise ValueError(f"n_components={d} needs at least {d} features, got {n_features}. Lower n_components.")
        if d == 0:
            return d, k
        if self.vicinity == "kernel":
            if self.bandwidth is None:
                raise ValueError(
                    "vicinity='kernel' needs a bandwidth, got None. Pass a standard deviation, for "
                    "example the typical distance of a row to its tenth neighbour."
                )
            leaves_out = isinstance(self.noise, str)
            _check_soft_rows(n_rows, 3 if leaves_out else 2, " with noise='auto'" if leaves_out else "")
            return d, k
        if d > k:
            raise ValueError(
                f"n_components={d} needs at least {d} neighbours, got n_neighbors={k}. Raise n_neighbors or "
                "lower n_components."
            )
        if n_rows <= k:
            raise ValueError(
                f"n_neighbors={k} needs at least {k + 1} training points, got {n_rows}. Lower n_neighbors or add data."
            )
        if self.noise == "auto" and n_rows == k + 1:
            raise ValueError(
                f"n_neighbors={k} with noise='auto', which leaves rows out, needs at least {k + 2} training "
                f"points, got {n_rows}. Lower n_neighbors, add data or pass noise as a number."
            )
        return d, k

    def _choose_noise(self, X, frames, variances, counted, engine):
        if len(frames) == 0:
            path = loo_variance(leave_one_out(X, self._weight, engine, passes=LOO_PASSES))
            warn_if_not_converged("ManifoldParzen(n_components=0, noise='auto')", path)
            return path.parameters
        rows = counted
        if len(rows) > _ROWS_FOR_NOISE:
            rows = np.sort(np.random.default_rng(0).choice(rows, _ROWS_FOR_NOISE, replace=False))
        weights = None if self._weight is None else self._weight[rows]

        def evaluate(noises):
            scores = self._held_out(X, frames, variances, noises, rows, engine, _SLACK[X.dtype])
            return np.average(scores, axis=1, weights=weights)

        near = nearest_neighbors(X, 1, counted, engine=engine) if self._neighbors is None else self._neighbors
        first = near[:, 0]
        distances = np.linalg.norm(X[counted].astype(np.float64) - X[first[counted]], axis=1)
        choice = choose_noise(evaluate, X[counted], distances)
        self.noise_candidates_, self.noise_scores_ = choice.candidates, choice.scores
        return choice.noise

    def _held_out(self, X, frames, variances, noises, rows, engine, slack=1.0):
        """Log-densities (noises, rows) of training rows under the estimate built without them."""
        options = {"rows": rows, "weight": self._weight, "engine": engine, "slack": slack}
        if self._neighbors is not None:
            return held_out_log_density(X, self._neighbors, frames, variances, noises, **options)
        return fold_log_density(X, self._soft_rows, len(frames), noises, n_folds=_FOLDS, **options)

    def score_samples(self, X: ArrayLike | None = None) -> NDArray[Any]:
        """Return the log-density of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or None
            None scores each training row without its *own component only*: the row still shapes the frames of
            its neighbours, so these scores flatter. To choose parameters or to judge training rows use
            :meth:`held_out_score_samples`.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return super().score_samples(X)

    def held_out_score_samples(self) -> NDArray[Any]:
        """Return the log-density of each training row under the estimate built without it.

        Without row i, a point that has i among its k neighbours gets its frame from the others and its
        (k+1)th: exact, for one pass over the pairs and n k small decompositions. With
        ``vicinity="kernel"`` the rows are scored by five folds instead. The noise is kept.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        mixture = self.mixture_
        n = len(mixture.centres)
        if isinstance(mixture, SharedMixture):
            return mixture.left_out_score_samples()
        if self._neighbors is not None and self._neighbors.shape[1] == self._k:
            raise ValueError(
                f"n_neighbors={self._k} needs at least {self._k + 2} training points when a row is left out, "
                f"got {n}. Lower n_neighbors or add data."
            )
        if self._neighbors is None:
            _check_soft_rows(int(np.isfinite(mixture.log_weights).sum()), 3, " when rows are left out")
        engine = settled(self.engine, frame_work(n, mixture.frames.shape))
        scores = self._held_out(
            mixture.centres, mixture.frames, mixture.variances, [mixture.noise], np.arange(n), engine
        )
        return check_log_density(scores[0])

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

    @property
    def neighbors_(self) -> NDArray[Any]:
        """The neighbours of each row, nearest first, shape (n_samples, n_neighbors)."""
        check_is_fitted(self)
        if self._neighbors is None:
            raise AttributeError("neighbors_ exists only with vicinity='nearest' and n_components > 0.")
        return self._neighbors[:, : self._k]


def check_noise(noise, dtype):
    """Return a variance whose inverse the precision of the data can hold."""
    noise, least = check_positive(noise, "noise"), float(np.finfo(dtype).tiny)
    if noise < least:
        raise ValueError(
            f"noise must be at least {least:.3g}, got {noise:.3g}, whose inverse overflows {dtype}. Rescale the data, or "
            "enlarge the noise."
        )
    return noise


def _check_soft_rows(n_rows, least, purpose):
    if n_rows < least:
        raise ValueError(
            f"vicinity='kernel'{purpose} needs at least {least} training points of positive weight, got {n_rows}. "
            "Add data, or pass n_components=0 and noise as a number."
        )


def clone_but_keep_metric(estimator):
    """Clone all parameters but the metric, an input that would no longer be fitted."""
    copy = BaseEstimator.__sklearn_clone__(estimator)
    copy.metric = estimator.metric
    return copy


def rows_under_metric(metric, rows, X):
    """The rows where the metric's distances are Euclidean.

    `rows` are as the user passed them (perhaps with column names, which the metric may know), X the checked
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


def _in_bandwidths(Z, bandwidth):
    """Rows in units of the bandwidth: where the weight is exp(-|z_i - z_j|^2 / 2)."""
    lower = cholesky(bandwidth_covariance(bandwidth, Z.shape[1]), lower=True)
    centred = (Z - robust_centre(Z)).T
    return np.ascontiguousarray(solve_triangular(lower, centred.astype(np.float64), lower=True).T)
