"""Tuning of Manifold Parzen Windows over neighbours, directions and noise, with the work shared."""

import numbers
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp
from scipy.stats import rankdata
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import ParameterGrid, check_cv
from sklearn.utils import ClassifierTags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from vicinal._checks import check_integer, check_rows, check_spread, check_weights
from vicinal._density.classifier import DensityClassifier
from vicinal._engine import Engine, Frames, available_threads, fit_engine, prepare, settled
from vicinal._manifold_parzen.manifold_parzen import (
    _SLACK,
    ManifoldParzen,
    check_noise,
    clone_but_keep_metric,
    rows_under_metric,
)
from vicinal._manifold_parzen.neighbors import nearest_neighbors
from vicinal._manifold_parzen.noise_choice import noise_range
from vicinal._mixtures import LOG_2PI, frame_work
from vicinal._records import Record, RecordParametersMixin
from vicinal._scatter import local_frames
from vicinal._supervision import code_classes

_AUTO_NOISES = 16  # values of "auto"
_CRITERIA = ("log_likelihood", "error", "conditional_log_likelihood")


def _classifies(estimator):
    return estimator.criterion in ("error", "conditional_log_likelihood")


def _estimates_density(estimator):
    return not _classifies(estimator)


class ManifoldParzenCV(RecordParametersMixin, DensityMixin, BaseEstimator):
    """Manifold Parzen Windows with k, d and the noise chosen by cross-validation or on a validation set.

    Gives the scores of a :class:`~sklearn.model_selection.GridSearchCV` over the same grid, for a fraction of
    the work: in each split neighbours are found once (for the largest k), frames once for each k (with the
    largest d), and one pass over the pairs serves all d and all noises of a k.

    Parameters
    ----------
    n_components : int, sequence of int or "auto", default="auto"
        Values of d. "auto" takes 0, 1, 2, 4, 8, ... up to the number of features or 32.
    n_neighbors : int, sequence of int or "auto", default="auto"
        Values of k. "auto" takes 5, 10, 20, 40, as far as the smallest training part (or class) has more
        rows. Pairs with d > k are left out.
    noise : float, sequence of float or "auto", default="auto"
        Values of the variance. "auto" takes 16 values in geometric progression, from far below the distance
        of nearest neighbours to the variance of the data.
    criterion : {"log_likelihood", "error", "conditional_log_likelihood"}, default="log_likelihood"
        What held-out rows measure: the mean log-density; or, for a classifier with a density for each class
        (``fit`` then needs y), the error, or the mean of :math:`\\log P(c | x)` (minus the paper's ANCLL).
        Scores are such that greater is better: the error is stored with a minus sign.
    cv : int, splitter or iterable of (train, test), default=5
        As in GridSearchCV: an int is KFold (StratifiedKFold for a classifier), unshuffled. For one validation
        set pass :class:`~sklearn.model_selection.PredefinedSplit` or ``[(train, test)]``.
    metric, neighbor_search, engine
        As in :class:`ManifoldParzen`.

    Attributes
    ----------
    best_params_ : dict
    best_score_ : float
        The mean over the splits of the best parameters' score.
    best_estimator_ : ManifoldParzen, or DensityClassifier of one, fitted to all rows with the best parameters
    best_index_ : int
        Its row in ``cv_results_``.
    cv_results_ : dict of arrays
        ``params``, ``param_n_components``, ``param_n_neighbors``, ``param_noise``, ``split0_test_score``,
        ..., ``mean_test_score``, ``std_test_score``, ``rank_test_score``, as in GridSearchCV.
    n_splits_ : int
    engine_ : str
        The backend of the pair work of the search; ``best_estimator_`` has its own.
    certified_row_error_ : float
        The most that skipped pairs may have added to any row's sum in the last pass, relative to the sum; 0.0 where
        every pair was visited. See ``error`` of :class:`vicinal.Engine`.
    classes_ : ndarray, only for a classifier
    n_features_in_ : int
    feature_names_in_ : ndarray of str, only when fitted on named columns

    Notes
    -----
    For each split and k: O(n k D min(k, D)) for the frames and O(m n d D) for the projections, with the largest
    d, then O(d) a pair and noise, and one exponential a pair, d and noise. Memory O(n d D).

    The folds do not leak: frames are built from training rows only. (Leave-one-out that drops only a row's
    own component would; see :meth:`ManifoldParzen.held_out_score_samples`.)

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import ManifoldParzenCV
    >>> rng = np.random.default_rng(0)
    >>> t = rng.uniform(3, 15, size=300)
    >>> spiral = 0.04 * t[:, None] * np.column_stack([np.sin(t), np.cos(t)]) + rng.normal(0, 0.01, (300, 2))
    >>> search = ManifoldParzenCV([1, 2], n_neighbors=[6, 12], noise=[1e-5, 1e-4, 1e-3]).fit(spiral)
    >>> search.best_params_
    {'n_components': 1, 'n_neighbors': 6, 'noise': 0.0001}
    """

    _record_types: ClassVar[dict[str, type[Record]]] = {"engine": Engine}

    def __init__(
        self,
        n_components: Any = "auto",
        n_neighbors: Any = "auto",
        noise: Any = "auto",
        *,
        criterion: str = "log_likelihood",
        cv: Any = 5,
        metric: Any = None,
        neighbor_search: str = "exact",
        engine: Engine | str | None = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.noise = noise
        self.criterion = criterion
        self.cv = cv
        self.metric = metric
        self.neighbor_search = neighbor_search
        self.engine = engine

    def __sklearn_clone__(self):
        return clone_but_keep_metric(self)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        if _classifies(self):
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags()
            tags.target_tags.required = True
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Score every point of the grid on held-out rows, and fit the best to all rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), optional
            Class labels; needed for, and only used by, the classification criteria.
        sample_weight : array-like of shape (n_samples,), optional
            Importance of the rows, in the fits and in the mean scores.

        Returns
        -------
        self
        """
        if self.criterion not in _CRITERIA:
            raise ValueError(f"criterion must be one of {', '.join(map(repr, _CRITERIA))}, got {self.criterion!r}.")
        passed, classify = X, _classifies(self)
        X = check_rows(self, X, reset=True, min_rows=1 if classify else 2)
        if classify:
            self.classes_, codes = code_classes(y, len(X))
        else:
            codes = np.zeros(len(X), dtype=int)
        weight = check_weights(sample_weight, X)
        # Whatever indexes rows becomes positions: lists, ranges, masks.
        splits = [
            (np.arange(len(X))[np.asarray(train)], np.arange(len(X))[np.asarray(test)])
            for train, test in check_cv(self.cv, codes if classify else None, classifier=classify).split(X, codes)
        ]
        data = _Data(X, rows_under_metric(self.metric, passed, X), codes, weight, codes.max() + 1)
        smallest = self._check_splits(data, splits)
        engine = settled(fit_engine(self), self._pair_work(*X.shape))
        self.engine_, self.certified_row_error_ = engine.kind, 0.0
        grid = self._grid(data, smallest, engine)

        scores = np.stack([self._split_scores(data, train, test, grid, engine) for train, test in splits])
        self.n_splits_ = len(splits)
        self.cv_results_ = _results(grid, scores)
        self.best_index_ = int(np.argmax(self.cv_results_["mean_test_score"]))
        self.best_params_ = self.cv_results_["params"][self.best_index_]
        self.best_score_ = float(self.cv_results_["mean_test_score"][self.best_index_])
        self._warn_if_noises_end_too_early(grid["noise"])
        best = ManifoldParzen(
            **self.best_params_, metric=self.metric, neighbor_search=self.neighbor_search, engine=self.engine
        )
        chosen: Any = DensityClassifier(best) if classify else best
        self.best_estimator_ = chosen.fit(passed, self.classes_[codes] if classify else None, sample_weight=weight)
        return self

    def _pair_work(self, n_samples, n_features):
        """The pair work of the search: every k of every split is one pass, for all depths and noises together."""
        neighbors = [5, 10, 20, 40] if isinstance(self.n_neighbors, str) else np.ravel(self.n_neighbors)
        components = _powers(n_features) if isinstance(self.n_components, str) else np.ravel(self.n_components)
        n_noises = _AUTO_NOISES if isinstance(self.noise, str) else np.size(self.noise)
        folds = int(self.cv) if isinstance(self.cv, numbers.Integral) else 5
        held_out = n_samples // folds
        shape = max(components), n_samples - held_out, n_features
        return frame_work(held_out, shape, len(components) * n_noises, len(neighbors) * folds)

    def _warn_if_noises_end_too_early(self, noises):
        """Noise "auto" should bracket the best: warn if the smallest is the best by more than a thousandth of a nat."""
        scores = self.cv_results_["mean_test_score"][self.best_index_ :]
        if (
            isinstance(self.noise, str)
            and self.criterion == "log_likelihood"
            and self.best_params_["noise"] == noises[0]
            and scores[0] - scores[2] >= 1e-3  # noises run fastest, so these are of the same d and k
        ):
            warnings.warn(
                f"ManifoldParzenCV did not converge: it chose {noises[0]:.3g}, the smallest of noise='auto', and a smaller "
                "one may score better. Look for constant or dependent columns and for rows that almost repeat others, or "
                "pass noise as a sequence that goes lower.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _check_splits(self, data, splits):
        """Refuse a training part without a class; return the fewest rows of a training part (or class)."""
        smallest = len(data.X)
        for s, (train, test) in enumerate(splits):
            if len(train) == 0 or len(test) == 0:
                raise ValueError(f"cv must give training and test rows, got {len(train)} and {len(test)} in split {s}.")
            if len(data.alive(test)) == 0:
                raise ValueError(
                    f"the test rows of split {s} all have weight 0, so it has no score. Drop rows of weight 0, or use "
                    "other folds."
                )
            counts = np.bincount(data.codes[data.alive(train)], minlength=data.n_classes)
            if counts.min() == 0:
                missing = self.classes_.tolist()[np.argmin(counts)] if data.n_classes > 1 else "the data"
                raise ValueError(f"class {missing!r} has no training rows in split {s}. Use stratified folds.")
            smallest = min(smallest, int(counts.min()))
        return smallest

    def _grid(self, data, smallest, engine):
        """The values of d, k and the noise, in increasing order."""
        D = data.X.shape[1]
        if _is_auto(self.n_neighbors, "n_neighbors"):
            neighbors = [k for k in (5, 10, 20, 40) if k < smallest] or [max(smallest - 1, 1)]
        else:
            neighbors = [check_integer(k, "n_neighbors") for k in np.ravel(self.n_neighbors)]
        if _is_auto(self.n_components, "n_components"):
            components = _powers(min(D, max(neighbors)))
        else:
            components = [check_integer(d, "n_components", least=0) for d in np.ravel(self.n_components)]
        if _is_auto(self.noise, "noise"):
            check_spread(data.X)
            alive = data.alive(np.arange(len(data.X)))
            nearest = nearest_neighbors(data.X[alive], 1, engine=engine)[:, 0]
            distances = np.linalg.norm(data.X[alive] - data.X[alive][nearest], axis=1)
            low, high = noise_range(data.X[alive], distances)
            noises = np.geomspace(low, high, _AUTO_NOISES).tolist()
        else:
            noises = [check_noise(noise, data.X.dtype) for noise in np.ravel(self.noise)]
        for name, values in (("n_components", components), ("n_neighbors", neighbors), ("noise", noises)):
            if len(values) == 0:
                raise ValueError(f"{name} must hold at least one value, got none.")
        if max(components) > D:
            raise ValueError(
                f"n_components={max(components)} needs at least {max(components)} features, got {D}. Lower "
                "n_components."
            )
        if max(neighbors) >= smallest and max(components) > 0:
            raise ValueError(
                f"n_neighbors={max(neighbors)} needs at least {max(neighbors) + 1} training points in every "
                f"split and class, got {smallest} in the smallest. Lower n_neighbors or use fewer folds."
            )
        if min(components) > max(neighbors):
            raise ValueError(
                f"n_components={min(components)} needs at least as many neighbours, got n_neighbors="
                f"{max(neighbors)}. Raise n_neighbors or lower n_components."
            )
        return {
            "n_components": sorted(set(components)),
            "n_neighbors": sorted(set(neighbors)),
            "noise": sorted(set(noises)),
        }

    def _split_scores(self, data, train, test, grid, engine):
        """The score of every (d, k, noise) of the grid on one split; NaN where d > k."""
        depths, neighbors, noises = grid["n_components"], grid["n_neighbors"], grid["noise"]
        scores = np.full((len(depths), len(neighbors), len(noises)), np.nan)
        train = data.alive(train)
        parts = [train[data.codes[train] == c] for c in range(data.n_classes)]
        weights = [np.ones(len(p)) if data.weight is None else data.weight[p] for p in parts]
        priors = np.array([w.sum() for w in weights]) / sum(w.sum() for w in weights)
        options = {"neighbor_search": self.neighbor_search, "engine": engine}
        found = [nearest_neighbors(data.Z[p], max(neighbors), **options) if max(depths) else None for p in parts]
        test_weights = None if data.weight is None else data.weight[test]
        for column, k in enumerate(neighbors):
            kept = [d for d in depths if d <= k]
            # Joint log-densities of the test rows with each class, shape (classes, depths, noises, test
            # rows).
            joint = np.stack(
                [
                    _log_density(data, p, w, near, k, kept, noises, test, engine) + np.log(prior)
                    for p, w, near, prior in zip(parts, weights, found, priors, strict=True)
                ]
            )
            terms = self._criterion(joint, data.codes[test])
            scores[: len(kept), column] = np.average(terms, axis=-1, weights=test_weights)
        return scores

    def _criterion(self, joint, codes):
        """The term of each test row, greater is better, shape (depths, noises, test rows)."""
        if self.criterion == "log_likelihood":
            return joint[0]
        if self.criterion == "error":
            return -(np.argmax(joint, axis=0) != codes).astype(float)
        own = np.take_along_axis(joint, codes[None, None, None, :], axis=0)[0]
        # Where every density is 0 (a distance in units of the noise overflows) nothing is known of the class.
        return own - np.maximum(logsumexp(joint, axis=0), np.finfo(float).min)

    # -- the best estimator's methods ----------------------------------------------------------------------

    @available_if(_estimates_density)
    def score_samples(self, X: ArrayLike | None = None) -> NDArray[Any]:
        """Return the log-density of each row under the best estimator; see `ManifoldParzen.score_samples`."""
        check_is_fitted(self)
        return self.best_estimator_.score_samples(X)

    @available_if(_estimates_density)
    def held_out_score_samples(self) -> NDArray[Any]:
        """Return `ManifoldParzen.held_out_score_samples` of the best estimator."""
        check_is_fitted(self)
        return self.best_estimator_.held_out_score_samples()

    @available_if(_estimates_density)
    def score_incomplete(self, X: ArrayLike) -> NDArray[Any]:
        """Return the log-density of rows with missing values (NaN) under the best estimator."""
        check_is_fitted(self)
        return self.best_estimator_.score_incomplete(X)

    @available_if(_estimates_density)
    def sample(self, n_samples: int = 1, random_state: RandomState | int | None = None) -> NDArray[Any]:
        """Draw rows from the best estimator."""
        check_is_fitted(self)
        return self.best_estimator_.sample(n_samples, random_state)

    @available_if(_estimates_density)
    def marginal(self, features: Sequence[int | str] | ArrayLike) -> Any:
        """Return the exact density of some features alone, of the best estimator."""
        check_is_fitted(self)
        return self.best_estimator_.marginal(features)

    @available_if(_estimates_density)
    def conditional(self, given: Mapping[Any, float]) -> Any:
        """Return the exact density of the other features given some, of the best estimator."""
        check_is_fitted(self)
        return self.best_estimator_.conditional(given)

    @available_if(_classifies)
    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class of each row by the best classifier."""
        check_is_fitted(self)
        return self.best_estimator_.predict(X)

    @available_if(_classifies)
    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class probabilities of each row by the best classifier."""
        check_is_fitted(self)
        return self.best_estimator_.predict_proba(X)

    @available_if(_classifies)
    def predict_log_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Return the logarithms of the class probabilities by the best classifier."""
        check_is_fitted(self)
        return self.best_estimator_.predict_log_proba(X)

    def score(self, X: ArrayLike | None = None, y: ArrayLike | None = None) -> float:
        """Return the best estimator's score: the mean log-density (without X, leave-one-out) or, of a classifier, the accuracy."""
        check_is_fitted(self)
        return self.best_estimator_.score(X, y)


class _Data:
    """The rows, where they are neighbours, their classes and weights."""

    def __init__(self, X, Z, codes, weight, n_classes):
        self.X, self.Z, self.codes, self.weight, self.n_classes = X, Z, codes, weight, n_classes

    def alive(self, rows):
        """Those of the rows that weigh something."""
        return rows if self.weight is None else rows[self.weight[rows] > 0]


def _log_density(data, part, weights, near, k, depths, noises, test, engine):
    """Log-density of the test rows under one class, shape (depths, noises, test rows)."""
    X, deepest = data.X[part], depths[-1]
    frames, variances = np.empty((0, *X.shape), dtype=X.dtype), np.empty((0, len(X)))
    if deepest:
        options = {"memory": engine.memory_bytes, "threads": available_threads(engine.threads)}
        shares = None if data.weight is None else weights
        frames, variances = local_frames(X, near[:, :k], deepest, shares, **options)
    problem = prepare(engine, X, log_weights=np.log(weights / weights.sum()))
    placed = problem.at(Frames(frames, variances, noises, depths, _SLACK[X.dtype]))
    return placed.log_sums_table(data.X[test]) - 0.5 * X.shape[1] * LOG_2PI


def _powers(most):
    """0 and the powers of two up to 32 or `most`: the depths of "auto"."""
    return [0, *(2**e for e in range(6) if 2**e <= most)]


def _is_auto(values, name):
    if isinstance(values, str):
        if values != "auto":
            raise ValueError(f"{name} must be 'auto' or a sequence of values, got {values!r}.")
        return True
    return False


def _results(grid, scores):
    """Scores (splits, d, k, noise) as GridSearchCV's ``cv_results_``, in the order of ParameterGrid."""
    params = [p for p in ParameterGrid(grid) if p["n_components"] <= p["n_neighbors"]]
    tried = np.less_equal.outer(grid["n_components"], grid["n_neighbors"])
    flat = scores[:, tried].reshape(len(scores), -1)
    results: dict[str, Any] = {"params": params}
    for name in grid:
        results[f"param_{name}"] = np.array([p[name] for p in params])
    for s, split in enumerate(flat):
        results[f"split{s}_test_score"] = split
    results["mean_test_score"] = flat.mean(axis=0)
    known = np.isfinite(results["mean_test_score"])
    results["std_test_score"] = np.full(len(params), np.inf)
    with np.errstate(over="ignore"):
        results["std_test_score"][known] = flat[:, known].std(axis=0)
    results["rank_test_score"] = rankdata(-results["mean_test_score"], method="min").astype(int)
    return results
