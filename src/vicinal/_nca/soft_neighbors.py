"""The stochastic neighbour rule at test time (NCA paper, sec. 6): predictions from softmax neighbours."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import r2_score
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from vicinal._checks import check_positive
from vicinal._engine import (
    Engine,
    Match,
    Placement,
    Problem,
    Work,
    as_engine,
    choose,
    fit_engine,
    forget,
    prepare,
    resident,
)
from vicinal._nca.objectives import neighbor_value, placed_at
from vicinal._nca.rows import sample_rows
from vicinal._nca.starts import SCALES_TRIED, best_scale
from vicinal._notebook import NotebookMixin
from vicinal._records import Record, RecordParametersMixin
from vicinal._rows import check_array, check_magnitude, check_rows, check_spread, check_weights, log_weights
from vicinal._rows.dask import (
    CollectionClassifierMixin,
    answers_collections,
    fits_collections,
    float_numbers,
    predictions,
)
from vicinal._supervision import code_classes, power_of_two, read_numbers

_ROOT_HALF = float(np.sqrt(0.5))
_QUERIES, _POINTS = 1024, 4096  # the numbers of rows in the search for a bandwidth


class _SoftNeighbors(NotebookMixin, RecordParametersMixin, BaseEstimator):
    """Images of the training rows, and the softmax of new rows over them."""

    _record_types: ClassVar[dict[str, type[Record]]] = {"engine": Engine}

    def __init__(
        self, metric: Any = None, *, bandwidth: float | ArrayLike | None = None, engine: Engine | str | None = None
    ) -> None:
        self.metric = metric
        self.bandwidth = bandwidth
        self.engine = engine

    def _fit_points(
        self, X: np.ndarray, given: ArrayLike, y: ArrayLike, targets: np.ndarray, sample_weight: ArrayLike | None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Store the images of the rows of positive weight; return their positions, sorted by target."""
        weight = check_weights(sample_weight, X)
        order = np.argsort(targets, kind="stable")
        if weight is not None:
            order = order[weight[order] > 0]
        forget(self)
        self.metric_ = fitted_metric(self.metric, given, y, sample_weight)
        self.points_ = images_under(self.metric_, given, X)[order]
        self._log_weights = None if weight is None else np.log(weight[order])
        self._positions = np.full(len(X), -1)
        self._positions[order] = np.arange(len(order))
        return order, None if weight is None else weight[order]

    def _own_bandwidth(self, metric: Any) -> float | None:
        """Return the kernel's standard deviation if none is searched for: the user's, or that of the metric."""
        if self.bandwidth is not None:
            return check_positive(self.bandwidth, "bandwidth")
        if isinstance(metric, NeighborhoodComponentsAnalysis):
            return _ROOT_HALF
        learned = getattr(metric, "_learned_bandwidth", None)
        return None if learned is None else float(learned)

    def _pair_work(self, n_samples: int, n_features: int) -> Work:
        n_dims = width_under(self.metric, n_features)
        if self._own_bandwidth(self.metric) is not None:
            # There are no pairwise computations in fit; assume that all rows are predicted once.
            return Work(n_samples, n_samples, n_dims)
        return Work(min(n_samples, _QUERIES), min(n_samples, _POINTS), n_dims, SCALES_TRIED)

    def _fit_bandwidth(self, X: np.ndarray, weight: np.ndarray | None) -> None:
        """Choose the bandwidth with the best `_score_of_scales`, and the engine for it."""
        work = self._pair_work(*X.shape)
        learned = self._own_bandwidth(self.metric_)
        self.bandwidth_ = 1.0 if learned is None else learned
        self.engine_, self.certified_row_error_ = choose(as_engine(fit_engine(self)), work).backend, 0.0
        if learned is not None:
            return
        points, queries = sample_rows(len(self.points_), _QUERIES, _POINTS)
        if len(points) < 2:
            return
        check_spread(self.points_[points])
        weight = None if weight is None else weight[points]
        problem = prepare(
            fit_engine(self), self.points_[points], log_weights=log_weights(weight), leave_one_out=True,
            match=self._match(points), n_queries=len(queries), n_dims=work.n_dims, passes=work.passes,
        )  # fmt: skip
        self.engine_ = problem.backend
        score = self._score_of_scales(problem, points, queries, weight)
        scaled = best_scale(score, np.ones(problem.n_features), problem.points.rows, steps=(1.0, 0.25))[1]
        self.certified_row_error_ = problem.certified_row_error
        self.bandwidth_ = _ROOT_HALF / float(scaled[0])

    def _placement_and_rows(self, X: ArrayLike | None) -> tuple[Placement, np.ndarray | None]:
        """Return the placement of the training rows for the rows to predict, and the latter in the engine's form."""
        check_is_fitted(self, "points_")
        if X is None:
            if len(self.points_) == 1:
                raise ValueError("leave-one-out needs at least 2 training rows, got 1. Pass X.")
            # Rows of weight zero were not kept; leave-one-out predicts the others.
            queries = self._positions[self._positions >= 0]
        else:
            rows = check_rows(self, X, reset=False, precision=self.points_.dtype)
            queries = images_under(self.metric_, X, rows)
            if self.metric_ is not None:
                check_magnitude(queries, "the image of X under metric", precision=self.points_.dtype)
            ends = np.stack([queries.min(axis=0), queries.max(axis=0)])
            with np.errstate(over="ignore"):
                away = (ends - self.points_[0]) / self.bandwidth_
            check_magnitude(away, "X, in units of the bandwidth,", precision=self.points_.dtype)
        work = Work(len(queries), *self.points_.shape)

        def place() -> Placement:
            problem = prepare(
                self.engine,
                self.points_,
                log_weights=self._log_weights,
                leave_one_out=True,
                match=self._match(slice(None)),
                n_queries=work.n_queries,
            )
            return problem.at(np.full(problem.n_features, 1.0 / self.bandwidth_))

        return resident(self, self.engine, work, place), queries

    def effective_neighbors(self, X: ArrayLike | None = None) -> NDArray[Any]:
        """Return the effective number of training rows behind each prediction: the perplexity of the softmax.

        Parameters
        ----------
        X : array-like of shape (n, n_features), default=None
            The rows to predict. None uses the training rows, leaving each row out of its own prediction.

        Returns
        -------
        perplexity : array of shape (n,)
        """
        placed, queries = self._placement_and_rows(X)
        return placed.perplexities(queries)


class SoftNeighborsClassifier(CollectionClassifierMixin, _SoftNeighbors):
    r"""Classifier whose class probabilities come from softmax neighbours (NCA's stochastic rule).

    .. math:: P(c \mid x) = \sum_{j \in c} p_j(x), \qquad
              p_j(x) \propto w_j \exp\Bigl(-\frac{\|A x - A x_j\|^2}{2 h^2}\Bigr)

    Parameters
    ----------
    metric : fitted metric, estimator, array of shape (n_components, n_features) or None, default=None
        The map to a space in which distances are Euclidean: a fitted :class:`NCA`, ``LCA``, :class:`RCA` or any
        other transformer. An unfitted one is cloned and fitted to the training rows. An array is a matrix A. None
        is the plain Euclidean distance. Note that :func:`sklearn.base.clone`, and therefore cross-validation,
        discards a fit: the metric is learned again in each fold, as it should be
        (:class:`sklearn.frozen.FrozenEstimator` prevents this).
    bandwidth : float, optional
        The kernel's standard deviation h. The default is :math:`1/\sqrt 2` for metrics that learn their own scale (NCA
        and its variants); for others, it is the one with the highest leave-one-out likelihood of the training labels.
    engine : None, str or Engine, default=None
        The backend of the pairwise computations; see :class:`vicinal.Engine`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels, sorted.
    metric_ : estimator, ndarray or None
        The fitted metric; None if distances are those of X.
    points_ : ndarray of shape (n_kept, n_components)
        Images of the training rows of positive weight, sorted by class.
    bandwidth_ : float
        The bandwidth h in use.
    engine_ : str
        The backend of the pairwise computations of the fit; a prediction uses the one that suits its number of rows.
    certified_row_error_ : float
        A bound on what skipped pairs would have added to any row's sum in any pass of the fit, relative to the sum; 0.0 if
        every pair was visited. See ``error`` of :class:`vicinal.Engine`.
    n_features_in_, feature_names_in_ : int, ndarray of str
        The number of columns of the training rows, and their names if they have names.

    Notes
    -----
    A prediction for m rows costs O(m n d) and no memory beyond the engine's budget. All sums are computed in the log
    domain, so a row far from all training rows still gets probabilities, namely those of its nearest neighbour.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.model_selection import train_test_split
    >>> from vicinal import NCA, Objective, SoftNeighborsClassifier
    >>> X, X_test, y, y_test = train_test_split(*load_wine(return_X_y=True), random_state=0)
    >>> metric = NCA(objective=Objective("likelihood", penalty=0.01), max_iter=200).fit(X, y)
    >>> soft = SoftNeighborsClassifier(metric).fit(X, y)
    >>> round(soft.score(X_test, y_test), 2)
    0.98
    >>> soft.predict_proba(X_test[:1]).round(2)
    array([[1., 0., 0.]])
    """

    @fits_collections
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Store the images of the training rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The training rows.
        y : array-like of shape (n_samples,)
            Class labels.
        sample_weight : array-like of shape (n_samples,), optional
            The weight of each row as a neighbour. The weights must not be negative, and at least one must be positive.

        Returns
        -------
        self
        """
        given = X
        X = check_rows(self, X, reset=True)
        self.classes_, codes = code_classes(y, len(X))
        order, weight = self._fit_points(X, given, y, codes, sample_weight)
        self._codes = codes[order]

        self._fit_bandwidth(X, weight)
        return self

    def _match(self, rows: np.ndarray | slice) -> Match:
        return Match("class", self._codes[rows])

    def _score_of_scales(
        self, problem: Problem, points: np.ndarray, queries: np.ndarray, weight: np.ndarray | None
    ) -> Callable[[np.ndarray], float]:
        """Return the leave-one-out likelihood of the labels."""
        codes = self._codes[points]
        queries = queries[np.bincount(codes)[codes[queries]] > 1]
        if len(queries) == 0:
            return lambda A: 0.0
        return lambda A: neighbor_value(A, problem, objective="likelihood", weight=weight, rows=queries)

    @answers_collections(lambda self: len(self.classes_), float_numbers)
    def predict_proba(self, X: ArrayLike | None = None) -> NDArray[Any]:
        """Return class probabilities.

        Parameters
        ----------
        X : array-like of shape (n, n_features), default=None
            The rows to predict. None predicts the training rows (of positive weight), leaving each row out of its own prediction.

        Returns
        -------
        probabilities : array of shape (n, n_classes)
        """
        placed, queries = self._placement_and_rows(X)
        shares = placed.class_shares(queries)
        return shares / shares.sum(axis=1, keepdims=True)

    @answers_collections(lambda self: len(self.classes_), float_numbers)
    def predict_log_proba(self, X: ArrayLike | None = None) -> NDArray[Any]:
        """Return the logarithm of `predict_proba`; -inf for a class without a neighbour."""
        placed, queries = self._placement_and_rows(X)
        log_shares = placed.class_log_shares(queries)
        return log_shares - logsumexp(log_shares, axis=1, keepdims=True)

    @answers_collections(dtype=lambda self: self.classes_.dtype)
    def predict(self, X: ArrayLike | None = None) -> NDArray[Any]:
        """Return the most probable class.

        Parameters
        ----------
        X : array-like of shape (n, n_features), default=None
            The rows to predict. None predicts the training rows (of positive weight), leaving each row out of its own prediction.

        Returns
        -------
        labels : array of shape (n,)
        """
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]


class SoftNeighborsRegressor(RegressorMixin, _SoftNeighbors):
    r"""Regressor that predicts softmax-weighted means of the training targets (kernel regression in a learned metric).

    .. math:: \hat y(x) = \sum_j p_j(x)\, y_j, \qquad
              p_j(x) \propto w_j \exp\Bigl(-\frac{\|A x - A x_j\|^2}{2 h^2}\Bigr)

    Parameters
    ----------
    metric : fitted metric, estimator, array of shape (n_components, n_features) or None, default=None
        As in :class:`SoftNeighborsClassifier`; for example ``NCA(objective=Objective(match="gaussian"))``.
    bandwidth : float, optional
        The kernel's standard deviation h. The default is :math:`1/\sqrt 2` for metrics that learn their own
        scale; for others, it is the one with the smallest leave-one-out squared error.
    engine : None, str or Engine, default=None
        The backend of the pairwise computations; see :class:`vicinal.Engine`.

    Attributes
    ----------
    metric_ : estimator, ndarray or None
        The fitted metric; None if distances are those of X.
    points_ : ndarray of shape (n_kept, n_components)
        Images of the training rows of positive weight, sorted by target.
    bandwidth_ : float
        The bandwidth h in use.
    engine_ : str
        The backend of the pairwise computations of the fit; a prediction uses the one that suits its number of rows.
    certified_row_error_ : float
        A bound on what skipped pairs would have added to any row's sum in any pass of the fit, relative to the sum; 0.0 if
        every pair was visited. See ``error`` of :class:`vicinal.Engine`.
    n_features_in_, feature_names_in_ : int, ndarray of str
        The number of columns of the training rows, and their names if they have names.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from vicinal import NCA, Objective, SoftNeighborsRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> metric = NCA(2, objective=Objective(match="gaussian", penalty=0.01), max_iter=100).fit(X[:300], y[:300])
    >>> model = SoftNeighborsRegressor(metric).fit(X[:300], y[:300])
    >>> round(model.score(X[300:], y[300:]), 1)
    0.5
    """

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = False
        tags.target_tags.multi_output = True
        return tags

    @fits_collections
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Store the images of the training rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The training rows.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            The targets: one number per row, or several.
        sample_weight : array-like of shape (n_samples,), optional
            The weight of each row as a neighbour. The weights must not be negative, and at least one must be positive.

        Returns
        -------
        self
        """
        given = X
        X = check_rows(self, X, reset=True)
        targets = read_numbers(y, len(X), "Use SoftNeighborsClassifier for class labels.")
        columns = targets.reshape(len(targets), -1)
        order, weight = self._fit_points(X, given, y, columns[:, 0], sample_weight)
        self._one_output = targets.ndim == 1
        self._mean = columns[order].mean(axis=0)
        centred = columns[order] - self._mean
        self._unit = power_of_two(centred)
        self._targets = centred / self._unit

        self._fit_bandwidth(X, weight)
        return self

    @property
    def _n_outputs(self) -> int | None:
        """The number of columns of targets; None if each row has one number."""
        return None if self._one_output else self._targets.shape[1]

    def _match(self, rows: np.ndarray | slice) -> Match | None:
        return None

    def _score_of_scales(
        self, problem: Problem, points: np.ndarray, queries: np.ndarray, weight: np.ndarray | None
    ) -> Callable[[np.ndarray], float]:
        """Return minus the leave-one-out squared error, in units of the largest output."""
        targets, share = self._targets[points], self._unit / self._unit.max()

        def score(A: np.ndarray) -> float:
            means = placed_at(problem, A).softmax_means(targets, queries).means
            error = (((means - targets[queries]) * share) ** 2).mean(axis=1)
            return -float(np.average(error, weights=None if weight is None else weight[queries]))

        return score

    @answers_collections(lambda self: self._n_outputs, float_numbers)
    def predict(self, X: ArrayLike | None = None) -> NDArray[Any]:
        """Return the softmax mean of the training targets.

        Parameters
        ----------
        X : array-like of shape (n, n_features), default=None
            The rows to predict. None predicts the training rows (of positive weight), leaving each row out of its own prediction.

        Returns
        -------
        mean : array of shape (n,) or (n, n_outputs)
        """
        placed, queries = self._placement_and_rows(X)
        mean = placed.softmax_means(self._targets, queries).means * self._unit + self._mean
        return mean[:, 0] if self._one_output else mean

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the coefficient of determination R² of `predict`.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            The rows to predict.
        y : array-like of shape (n,) or (n, n_outputs)
            Their targets.
        sample_weight : array-like of shape (n,), optional
            Their weights in the score.

        Returns
        -------
        float
        """
        predicted, y, sample_weight = predictions(self, X, y, sample_weight)
        truth = read_numbers(y, len(predicted), "Use SoftNeighborsClassifier for class labels.")
        # R² does not depend on the unit of the targets, but squares of targets of 1e300 would overflow.
        unit = self._unit[0] if self._one_output else self._unit
        return float(r2_score(truth / unit, predicted / unit, sample_weight=sample_weight))

    @answers_collections(lambda self: self._n_outputs, float_numbers)
    def predict_std(self, X: ArrayLike | None = None) -> NDArray[Any]:
        """Return the standard deviation of the neighbours' targets under the softmax of `predict`.

        Parameters
        ----------
        X : array-like of shape (n, n_features), default=None
            The rows to predict. None uses the training rows (of positive weight), leaving each row out of its own result.

        Returns
        -------
        std : array of shape (n,) or (n, n_outputs)
        """
        placed, queries = self._placement_and_rows(X)
        k = self._targets.shape[1]
        moments = placed.softmax_means(np.column_stack([self._targets, self._targets**2]), queries).means
        std = np.sqrt(np.maximum(moments[:, k:] - moments[:, :k] ** 2, 0.0)) * self._unit
        return std[:, 0] if self._one_output else std


# -- the metrics that users may pass: a fitted one, an estimator of one, a matrix, or none -------------


def width_under(metric: Any, n_features: int) -> int:
    """Return the number of dimensions of the images under a metric, as far as its parameters and fitted attributes determine it."""
    matrix = getattr(metric, "components_", None if hasattr(metric, "transform") else metric)
    if matrix is not None:
        return len(np.atleast_2d(matrix))
    width = getattr(metric, "n_components", None)
    return int(width) if isinstance(width, numbers.Integral) else n_features


def fitted_metric(metric: Any, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> Any:
    """Return the metric as None, a matrix, or a fitted transformer; an estimator is cloned and fitted."""
    if metric is None:
        return None
    if not hasattr(metric, "transform") or isinstance(metric, type):
        if hasattr(metric, "fit") or isinstance(metric, str) or callable(metric):
            raise TypeError(
                "metric must be a fitted metric (an object with transform), an estimator of one, a matrix or "
                f"None, got {metric!r}."
            )
        matrix = check_array(metric, dtype=np.float64, input_name="metric")
        if matrix.shape[1] != np.shape(X)[1]:
            raise ValueError(
                f"metric as a matrix must have as many columns as X has features, {np.shape(X)[1]}, got "
                f"shape {matrix.shape}."
            )
        return matrix
    try:
        check_is_fitted(metric)
    except NotFittedError:
        weighs = sample_weight is not None and has_fit_parameter(metric, "sample_weight")
        return clone(metric).fit(X, y, **({"sample_weight": sample_weight} if weighs else {}))
    return metric


def images_under(metric: Any, given: ArrayLike, X: np.ndarray) -> np.ndarray:
    """Return the images of rows under a metric, between which distances are Euclidean; X are the given rows, validated."""
    if metric is None:
        return X
    if isinstance(metric, np.ndarray):
        return X @ metric.T.astype(X.dtype)
    named = hasattr(metric, "feature_names_in_") and hasattr(given, "columns")
    Z = np.asarray(metric.transform(given if named else X))
    return np.ascontiguousarray(Z, dtype=np.float32 if Z.dtype == np.float32 else np.float64)
