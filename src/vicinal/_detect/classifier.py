"""Bayes' rule with one density for each class."""

from __future__ import annotations

from copy import copy
from functools import reduce
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from vicinal._callers import merged_warnings
from vicinal._categories import as_categories
from vicinal._checks import as_numbers
from vicinal._density.mixed import MixedColumnsMixin
from vicinal._density.mixture_density import MixtureDensityMixin
from vicinal._density.parzen import ParzenWindows
from vicinal._detect.steps import as_density, check_takes_weights, named_for, rows_as_passed
from vicinal._detect.training_rows import as_weights
from vicinal._lca.lca import LCA
from vicinal._leave_one_out import Moments
from vicinal._mixtures import LOG_2PI
from vicinal._notebook import NotebookMixin
from vicinal._rows import ValidRows, check_weights, constant_columns, is_frame, validate_data
from vicinal._rows.dask import (
    CollectionClassifierMixin,
    answers_collections,
    fits_collections,
    float_numbers,
)
from vicinal._supervision import code_classes
from vicinal._tensors import as_host
from vicinal._words import count

# The widths of one kernel for all classes that are compared, in units of the mean of the classes' kernels, and the most rows that
# are classified for it.
_WIDTHS = (1.0, 1.5, 2.0, 3.0, 4.5)
_MOST_CLASSIFIED = 2000


class DensityClassifier(NotebookMixin, CollectionClassifierMixin, BaseEstimator):
    r"""Classify by Bayes' rule, with a density fitted to each class.

    .. math:: P(c \mid x) = \frac{\pi_c \, p_c(x)}{\sum_{c'} \pi_{c'} \, p_{c'}(x)}

    The probabilities are computed in the log domain, so they are exact even for a row far from all classes.

    Parameters
    ----------
    density : estimator, optional
        An unfitted density, which is cloned for each class. It can be any estimator with ``fit`` and
        ``score_samples``: a density of vicinal or of scikit-learn (:class:`~sklearn.neighbors.KernelDensity`,
        :class:`~sklearn.mixture.GaussianMixture`). The default is ``ParzenWindows("loo")``. Neighbours are found
        within each class.
    priors : None, "uniform", array-like of shape (n_classes,) or dict, default=None
        The class probabilities :math:`\pi_c`. None uses the (weighted) frequencies of the training classes. An
        array is in the order of ``classes_``, which are sorted. A dict has the class labels as keys.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels, sorted.
    priors_ : ndarray of shape (n_classes,)
        The class probabilities in use.
    densities_ : list of estimators
        The fitted densities, in the order of ``classes_``; ParzenWindows if the kernels of LCA were replaced by one, see Notes.
    constant_variances_ : ndarray of shape (n_classes, n_features)
        The variance that is used for a column that is constant in a class, which the density ignores; 0 elsewhere. See Notes.
    n_features_in_, feature_names_in_ : int, ndarray of str
        The number of columns of the training rows, and their names if they have names.

    Notes
    -----
    The cost of fitting and scoring is that of the densities; scoring under all classes of Parzen windows costs as
    much as under one density of all rows. A row whose density is 0 under every class (possible only with
    kernels of bounded support) gets the priors. Rows of weight 0 are left out.

    LCA learns the kernel of a class from the rows of this class alone. If they are few or rounded, such kernels are too narrow, and the
    densities of different classes cannot be compared. If ``reg`` of LCA is chosen ("auto"), the kernels are therefore compared with
    one kernel for all classes, the mean of their covariances at one of five widths. The kernels that give the training
    labels the highest mean log-probability are used, each row being left out of its own class.

    A column that is constant in one class but not in all helps to distinguish the classes, but LCA, LCAGauss, LocalLCA and
    ``ParzenWindows()`` give it no width. The class then has an independent Gaussian along this column, centred at the constant. Its variance is
    that of the column within classes (of all rows, if no class varies) divided by n + 1 for the n rows of the class, which
    is the variance of n equal rows and one row of the usual spread. A column that is constant in all rows is ignored.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from vicinal import DensityClassifier, ManifoldParzen
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = DensityClassifier(ManifoldParzen(1, 12, noise=0.02)).fit(X[::2], y[::2])
    >>> round(classifier.score(X[1::2], y[1::2]), 3)
    0.96
    """

    def __init__(self, density: Any = None, *, priors: Any = None) -> None:
        self.density = density
        self.priors = priors

    @fits_collections
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit a density to the rows of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The training rows. :class:`vicinal.LCA` and :class:`vicinal.ParzenWindows` take the categories of a DataFrame.
        y : array-like of shape (n_samples,)
            Class labels.
        sample_weight : array-like of shape (n_samples,), optional
            The importance of the rows for the priors and for the densities, which must accept it.

        Returns
        -------
        self
        """
        density = self._inner_estimator()
        levels = density._levels_in(X) if isinstance(density, MixedColumnsMixin) else None
        if levels is None:
            passed, rows = X, validate_data(self, X, dtype=[np.float64, np.float32])
        else:  # the levels of all classes; each class has its own shares of them
            passed, rows = as_categories(X, levels), levels.encode(X)
            ValidRows(rows, levels.names).taken_by(self)
        labels = code_classes(y, len(rows))
        weight = check_weights(sample_weight, rows)
        check_takes_weights(density, weight)
        counted = np.arange(len(rows)) if weight is None else np.flatnonzero(weight)
        kept, codes = np.unique(labels.codes[counted], return_inverse=True)
        self.classes_ = labels.classes[kept]
        shares = np.bincount(codes, weights=None if weight is None else weight[counted])
        self.priors_ = self._class_priors(shares / shares.sum())
        if getattr(getattr(density, "selection", None), "classifies", False):
            # A classification criterion chooses the parameters of all classes together.
            density = density.selected(rows_as_passed(passed, rows, density=density), y, **as_weights(weight))
        places = [counted[codes == code] for code in range(len(kept))]
        weights = [None if weight is None else weight[some] for some in places]
        self.densities_ = []
        with merged_warnings("classes"):
            for label, some, of_rows in zip(self.classes_.tolist(), places, weights, strict=True):
                table = rows_as_passed(passed, rows, some, density=density)
                if levels is None and isinstance(density, MixedColumnsMixin) and is_frame(table):
                    table = ValidRows(rows[some], getattr(self, "feature_names_in_", None))
                try:
                    fitted = _fit_in_all_columns(clone(density), table, as_weights(of_rows))
                except ValueError as error:
                    raise ValueError(f"class {label!r} with {count(len(some), 'training row')}: {error}") from error
                self.densities_.append(fitted)
        self.constant_variances_ = np.zeros((len(kept), self.n_features_in_))
        if any(len(_ignored_columns(density)) for density in self.densities_):
            self._set_constant_variances(rows, places, weights)
        if isinstance(density, LCA) and isinstance(density.reg, str) and density.rank is None and levels is None:
            self._choose_kernels(rows, places, weights)
        return self

    def _choose_kernels(self, rows: np.ndarray, places: list[np.ndarray], weights: list[Any]) -> None:
        """Replace the kernels of LCA by one for all classes if left-out rows are then classified with higher probability."""
        pooled, names = np.zeros((rows.shape[1],) * 2), getattr(self, "feature_names_in_", None)
        for prior, density in zip(self.priors_, self.densities_, strict=True):
            pooled[np.ix_(density.active_features_, density.active_features_)] += prior * density.covariance_
        constant = np.flatnonzero(pooled.diagonal() == 0)  # in every class; if in all rows, the width does not matter
        variances = self.constant_variances_[:, constant].max(axis=0)
        pooled[constant, constant] = np.where(variances > 0, variances, 1.0)
        best, chosen = self._left_out_probability(rows, places, weights), self
        for factor in _WIDTHS:
            shared = copy(self)
            shared.constant_variances_ = np.zeros_like(self.constant_variances_)
            shared.densities_ = [
                ParzenWindows(factor**2 * pooled, engine=self.densities_[0].engine).fit(
                    ValidRows(rows[place], names), **as_weights(some)
                )
                for place, some in zip(places, weights, strict=True)
            ]
            probability = shared._left_out_probability(rows, places, weights)
            if probability > best:
                best, chosen = probability, shared
        self.densities_, self.constant_variances_ = chosen.densities_, chosen.constant_variances_

    def _left_out_probability(self, rows: np.ndarray, places: list[np.ndarray], weights: list[Any]) -> float:
        """Return the mean log-probability of the classes of training rows, or of a sample, each row left out of its own class."""
        codes = np.repeat(np.arange(len(places)), [len(place) for place in places])
        counts = np.ones(len(codes)) if weights[0] is None else np.concatenate(weights)
        sample = np.random.default_rng(0).permutation(len(codes))[:_MOST_CLASSIFIED]
        queries, own = rows[np.concatenate(places)[sample]], (np.arange(len(sample)), codes[sample])
        joint = self._joint(queries, named_for(self, queries))
        left_out = np.concatenate([as_host(density.held_out_score_samples()) for density in self.densities_])
        with np.errstate(divide="ignore"):
            joint[own] = (np.log(self.priors_) + self._off_constants(queries))[own] + left_out[sample]
        return float(np.average((joint - logsumexp(joint, axis=1, keepdims=True))[own], weights=counts[sample]))

    def _set_constant_variances(self, rows: np.ndarray, places: list[np.ndarray], weights: list[Any]) -> None:
        """Set the variances of columns that the densities of classes ignore, from the moments of the classes."""
        moments: list[Any] = [Moments.of(rows[place], some) for place, some in zip(places, weights, strict=True)]
        total, within = reduce(Moments.merged, moments), np.zeros(rows.shape[1])
        for one, density in zip(moments, self.densities_, strict=True):
            spread = one.scatter.diagonal().copy()
            spread[_ignored_columns(density)] = 0.0  # not the rounding errors of equal values
            within += spread
        usual = np.where(within > 0, within, total.scatter.diagonal()) / total.mass
        usual[constant_columns(rows[np.concatenate(places)])] = 0.0
        for c, density in enumerate(self.densities_):
            ignored = _ignored_columns(density)
            self.constant_variances_[c, ignored] = usual[ignored] / (moments[c].mass + 1.0)

    def _off_constants(self, X: np.ndarray) -> np.ndarray:
        """Return the terms of the log-densities of columns that are constant in a class, (n_samples, n_classes)."""
        added = np.zeros((len(X), len(self.densities_)))
        variances = self.constant_variances_
        for c, density in enumerate(self.densities_):
            columns = np.flatnonzero(variances[c])
            if len(columns):
                values, variance = density._constants[columns], variances[c, columns]
                added[:, c] = -0.5 * (np.square(X[:, columns] - values) / variance).sum(axis=1)
                added[:, c] -= 0.5 * (LOG_2PI + np.log(variance)).sum()
        return added

    def _inner_estimator(self) -> Any:
        """Return the density that is fitted, for `which_engine`."""
        return as_density(self.density)

    def _class_priors(self, frequencies: np.ndarray) -> np.ndarray:
        """Return the priors as an array that follows ``classes_``."""
        n_classes = len(frequencies)
        if self.priors is None:
            return frequencies
        if isinstance(self.priors, str):
            if self.priors != "uniform":
                raise ValueError(f"priors must be None, 'uniform', an array or a dict, got {self.priors!r}.")
            return np.full(n_classes, 1.0 / n_classes)
        priors = self.priors
        if isinstance(priors, dict):
            labels = self.classes_.tolist()
            if set(priors) != set(labels):
                raise ValueError(f"priors must name exactly the classes {labels}, got {list(priors)}.")
            priors = [priors[label] for label in labels]
        priors = as_numbers(priors, "priors")
        if priors.shape != (n_classes,):
            raise ValueError(
                f"priors must hold one number for each of the {n_classes} classes, got shape {priors.shape}."
            )
        if not np.all(np.isfinite(priors)) or priors.min() < 0 or not np.isclose(priors.sum(), 1.0):
            raise ValueError(
                f"priors must be probabilities that sum to 1, got a smallest of {priors.min():.3g} and a sum "
                f"of {priors.sum():.3g}. Divide them by their sum."
            )
        return priors / priors.sum()

    @answers_collections(lambda self: len(self.classes_), float_numbers)
    def predict_joint_log_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Return ``log(prior_c) + log p_c(x)`` for each row and class, shape (n_samples, n_classes)."""
        check_is_fitted(self)
        passed: Any = X
        density = self.densities_[0]
        if getattr(density, "_has_levels", False):
            values, rows = density._codes(X), X
        else:
            values = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
            rows = rows_as_passed(passed, values, density=density)
        joint = self._joint(values, rows)
        if np.isnan(joint).any():
            raise ValueError(
                f"{type(self.densities_[0]).__name__} returned NaN as the log-density of "
                f"{int(np.isnan(joint).any(axis=1).sum())} rows; expected numbers."
            )
        return joint

    def _joint(self, values: np.ndarray, rows: Any) -> np.ndarray:
        """Return what `predict_joint_log_proba` does, of rows as numbers and as the densities take them."""
        with np.errstate(divide="ignore"):
            joint = np.log(self.priors_) + np.column_stack([as_host(d.score_samples(rows)) for d in self.densities_])
        return joint + self._off_constants(values.astype(np.float64, copy=False))

    @answers_collections(lambda self: len(self.classes_), float_numbers)
    def predict_log_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Return the logarithm of the probability of each class, shape (n_samples, n_classes)."""
        joint = self.predict_joint_log_proba(X)
        with np.errstate(divide="ignore"):
            joint[np.all(joint == -np.inf, axis=1)] = np.log(self.priors_)
        return joint - logsumexp(joint, axis=1, keepdims=True)

    @answers_collections(lambda self: len(self.classes_), float_numbers)
    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Return the probability of each class, shape (n_samples, n_classes); rows sum to 1."""
        probabilities = np.exp(self.predict_log_proba(X))
        return probabilities / probabilities.sum(axis=1, keepdims=True)

    @answers_collections(dtype=lambda self: self.classes_.dtype)
    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most probable class of each row, shape (n_samples,)."""
        best = np.argmax(self.predict_log_proba(X), axis=1)
        return self.classes_[best]


def _fit_in_all_columns(density: Any, rows: ArrayLike, options: dict[str, Any]) -> Any:
    """Fit the density of a class; columns that are constant in it, if the kernel has no width there, are handled here."""
    if isinstance(density, MixtureDensityMixin):
        density._constants_stay = True
    try:
        return density.fit(rows, **options)
    finally:
        vars(density).pop("_constants_stay", None)


def _ignored_columns(density: Any) -> np.ndarray:
    """Return the positions of the columns that a fitted density ignores because they were constant."""
    constants = getattr(density, "_constants", None) if isinstance(density, MixtureDensityMixin) else None
    return np.array([], dtype=int) if constants is None else np.flatnonzero(~np.isnan(constants))
