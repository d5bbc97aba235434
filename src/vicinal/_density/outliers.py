"""Detect outliers as rows of low density; training rows are scored leave-one-out."""

import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OutlierMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import KFold
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from vicinal._callers import callers_line
from vicinal._checks import check_weights, validate_data
from vicinal._dask import answers_collections, fits_collections, float_numbers
from vicinal._density.density_input import as_density, breaks_constants, check_takes_weights, rows_as_passed
from vicinal._density.explanation import Explanation, explain, forget_reference
from vicinal._density.groups import ScoreScale, group_scores, strangest_of, training_views
from vicinal._density.outlier_threshold import (
    Ranks,
    check_outlier_parameters,
    labels_in_blocks,
    labels_of,
    outlier_threshold,
)
from vicinal._density.robust_scores import robust_scores
from vicinal._density.training_rows import (
    as_weights,
    constant_values,
    constants_in,
    fingerprint,
    last_step,
    left_out_scores,
    mixture_of_rows,
    scores_by_folds,
    table_in,
    weights_in,
)
from vicinal._notebook import NotebookMixin
from vicinal._tensors import as_given, as_host

_REFITS = 5


class TrainingRowsWarning(UserWarning):
    """Warning that `predict` received the training table and treats its rows as new; `fit_predict` labels training rows."""


class DensityOutlierDetector(NotebookMixin, OutlierMixin, BaseEstimator):
    r"""Detect outliers as rows of low density.

    A density that includes each training row's own kernel hides outliers: the smaller the bandwidth, the higher the
    density of an isolated row. All results about the training rows (``training_scores_``, ``training_p_values_``,
    ``labels_``, ``fit_predict``, the threshold) are therefore leave-one-out, while ``predict``, ``decision_function``,
    ``score_samples`` and ``p_values`` treat their rows as new, even if they are training rows.

    The training rows may contain outliers, including groups that raise each other's density. The score therefore also uses
    the distance to a neighbour outside of such groups, and training rows have no outliers as neighbours; see Notes.

    Parameters
    ----------
    density : estimator, optional
        An unfitted density: any of vicinal's or scikit-learn's, or a pipeline that ends in one. The default
        is ``ParzenWindows()``. `from_density` starts from a density that is already fitted.
    contamination : "auto" or float in (0, 0.5], default="auto"
        The share of training rows to label as outliers. "auto" uses the rule of a box plot,
        :math:`Q_1 - 1.5 (Q_3 - Q_1)` of the leave-one-out scores.
    largest_group : float in (0, 0.5) or None, default=0.1
        The largest share of the training rows that a group of outliers may have. A larger group counts as a cluster of the
        data; rows of a smaller group that is far from the rest do not raise each other's score (see Notes). None uses the
        density alone, as do densities other than ParzenWindows and LCA.
    fdr : float in (0, 1), optional
        The false discovery rate at which `predict` applies the step-up procedure of Benjamini and Hochberg to the p-values
        of all of its rows together. By default, each row is compared with ``offset_``. Training rows are always
        compared with ``offset_``, because their p-values are ranks.
    cv : int, splitter or iterable of (train, test), default=5
        Folds for a density that cannot leave single rows out; see Notes. An int shuffles with a fixed seed.

    Attributes
    ----------
    density_ : estimator
        The density, fitted to all training rows.
    training_scores_ : ndarray of shape (n_samples,)
        The score of each training row, computed without that row. It differs from the score of an equal new row; see Notes.
    training_p_values_ : ndarray of shape (n_samples,)
        Share of the training rows that score no better than the row (itself included).
    labels_ : ndarray of shape (n_samples,)
        -1 for training rows whose score is below ``offset_``, else 1: what `fit_predict` returns.
    offset_ : float
        The threshold: rows whose score is below it are outliers.
    n_features_in_, feature_names_in_ : int, ndarray of str
        The number of columns of the training rows, and their names if they have names.

    Notes
    -----
    How a training row is left out depends on the density. The mixtures of vicinal drop the row's own component exactly
    (``score_samples(None)``); ManifoldParzen also computes the frames of its neighbours again
    (``held_out_score_samples``); any other density, including pipelines, is fitted again for each of ``cv`` folds. The
    kernel of LCA has many parameters. If there are few rows for them (by the rule that makes LCA search for a penalty),
    LCA is fitted again, with the selected penalty, without each fifth of the rows, and scores that fifth as new rows.
    Otherwise training rows would score higher than new rows, and p-values would be too small.

    If ``largest_group`` is None, the score of a row is its log-density. Otherwise there is a second score: the logarithm
    of the kernel at the k-th nearest training row, where k is the share ``largest_group`` of the rows. That neighbour is
    outside of any smaller group, however tight, and inside of any larger cluster. (For more than 400 rows, an even sample
    of 400 rows is used.) The second score is shifted and scaled to the median and the interquartile range of the
    log-densities of the training rows, and the score of a new row is the lower of the two, in nats of ``density_``.

    The training rows may contain outliers, which should not be neighbours of each other. They therefore have a third
    score, the kernel at the fifth nearest row, and the lowest of the three is used. Twice, the 5 % of the rows with the
    lowest scores are left out as neighbours of all rows. ``contamination`` applies to the leave-one-out scores by which new
    rows are ranked; as many training rows are outliers, namely those with the lowest of the three scores.
    ``training_scores_`` are shifted so that ``offset_`` is their threshold as well.

    The p-value of a new row x is

    .. math:: \frac{1 + \#\{i : s_i \le s(x)\}}{n + 1}

    with :math:`s_i` the leave-one-out scores of the training rows, by the same function: the probability of so low a score
    if x has the distribution of the training rows, up to the one row by which the two densities differ. Rows count with
    their ``sample_weight``, scaled to mean 1, in the density, in ranks and in quantiles. If the training rows contain
    outliers, a p-value is the rank among inliers and outliers together, and is larger than among inliers alone.

    If a column is constant in the training rows, a new row with another value in it is an outlier with the smallest
    p-value, 1 / (n + 1), regardless of its other columns.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import DensityOutlierDetector
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(size=(200, 2)), [[6.0, 6.0]]])
    >>> detector = DensityOutlierDetector().fit(X)
    >>> int(np.argmin(detector.training_scores_)), round(float(detector.training_p_values_[200]), 3)
    (200, 0.005)
    >>> detector.predict([[0.0, 0.0], [-7.0, 7.0]]).tolist()
    [1, -1]
    >>> detector.explain([[0.0, 5.0]]).reasons(0)
    ['x1: expected -1.9... to 1.8..., got 5']
    """

    _reference: Any  # positions of the training rows that are neighbours for the second score; None without it
    _group: float
    _score_scales: Any
    _refits = True  # whether densities of many parameters are fitted again without the rows that they score

    def __init__(
        self,
        density: Any = None,
        *,
        contamination: str | float = "auto",
        largest_group: float | None = 0.1,
        fdr: float | None = None,
        cv: Any = 5,
    ) -> None:
        self.density = density
        self.contamination = contamination
        self.largest_group = largest_group
        self.fdr = fdr
        self.cv = cv

    @classmethod
    def from_density(
        cls,
        density: Any,
        *,
        contamination: str | float = "auto",
        largest_group: float | None = 0.1,
        fdr: float | None = None,
    ) -> Self:
        """Make a fitted detector from a fitted density, without the training rows and without fitting again.

        The results equal those of ``DensityOutlierDetector(density).fit(X, sample_weight=sample_weight)`` on the rows and
        weights that the density was fitted to. The one exception is a pipeline, for which `fit` uses folds: here the
        steps before the density stay as they were learned from all rows, as the bandwidth does.

        Parameters
        ----------
        density : fitted estimator
            One of vicinal's densities, or a pipeline that ends in one. The detector keeps it as ``density_`` and
            does not copy it; the parameter ``density`` becomes an unfitted clone.
        contamination, largest_group, fdr
            As in the constructor.

        Returns
        -------
        DensityOutlierDetector

        Raises
        ------
        TypeError
            If the density keeps no training rows that could be left out, like scikit-learn's densities.

        Examples
        --------
        >>> import numpy as np
        >>> from vicinal import LCA, DensityOutlierDetector
        >>> X = np.random.default_rng(0).normal(size=(200, 2))
        >>> lca = LCA().fit(X)
        >>> DensityOutlierDetector.from_density(lca).predict([[0.0, 0.0], [7.0, -7.0]]).tolist()
        [1, -1]
        """
        check_is_fitted(as_density(density))
        detector = cls(clone(density), contamination=contamination, largest_group=largest_group, fdr=fdr)
        check_outlier_parameters(detector)
        last = last_step(density)
        scores = left_out_scores(last)
        if scores is None:
            raise TypeError(
                "from_density needs a density that can score its training rows leave-one-out (ParzenWindows, LCA, "
                f"LCAGauss, LocalLCA or ManifoldParzen), got {type(last).__name__}. Fit the "
                "detector to the rows instead: DensityOutlierDetector(density).fit(X)."
            )
        detector.density_ = density
        detector.n_features_in_ = density.n_features_in_
        if getattr(density, "feature_names_in_", None) is not None:
            detector.feature_names_in_ = density.feature_names_in_
        steps = density[:-1] if isinstance(density, Pipeline) and len(density) > 1 else None
        detector._store_training_table(constants_in(last, steps), None if steps is not None else table_in(last))
        return detector._set_training_scores(scores, weights_in(last), last)

    @fits_collections
    def fit(self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the density and compute the leave-one-out scores of the training rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The training rows.
        y : ignored
            Not used; accepted because pipelines of scikit-learn pass it.
        sample_weight : array-like of shape (n_samples,), optional
            Importance of the rows for the density, which must accept it.

        Returns
        -------
        self
        """
        density = self._inner_estimator()
        rows = self._checked(X, density, ensure_min_samples=2)
        check_outlier_parameters(self)
        if isinstance(density, FrozenEstimator):
            raise TypeError(
                "density is frozen and learns nothing from X, so it cannot leave out rows of X. Pass "
                "the fitted density to DensityOutlierDetector.from_density(density), or pass an unfitted density here."
            )
        weight = check_weights(sample_weight, rows)
        check_takes_weights(density, weight)
        passed = rows_as_passed(X, rows, density=density)
        self.density_ = clone(density).fit(passed, **as_weights(weight))
        scores, last = left_out_scores(self.density_), self.density_
        if scores is None:
            scores, last = scores_by_folds(density, self.cv, passed, rows, weight), None
        self._store_training_table(constant_values(rows, weight), rows)
        return self._set_training_scores(scores, weight, last)

    def fit_predict(
        self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> NDArray[Any]:
        """Fit, and return -1 for training rows whose leave-one-out score is below ``offset_``, else 1."""
        return self.fit(X, sample_weight=sample_weight).labels_

    @property
    def labels_(self) -> NDArray[Any]:
        """Label of each training row: -1 if its leave-one-out score is below ``offset_``, else 1."""
        check_is_fitted(self, "training_scores_")
        return np.where(self.training_scores_ < self.offset_, -1, 1)

    @answers_collections(dtype=float_numbers)
    def score_samples(self, X: ArrayLike) -> NDArray[Any]:
        """Return the score of each row of X, as a new row; lower scores are more unusual."""
        return as_given(self._score(*self._rows(X)), X)

    @answers_collections(dtype=float_numbers)
    def decision_function(self, X: ArrayLike) -> NDArray[Any]:
        """Return ``score_samples(X) - offset_``: negative for outliers."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return -1 for outliers and 1 for other rows of X, which are treated as new rows.

        With ``fdr``, the rows of X are tested together. If X is bitwise equal to the training table, a
        `TrainingRowsWarning` states that its rows are treated as new ones.
        """
        return self._predict(X)

    @answers_collections(dtype=labels_in_blocks)
    def _predict(self, X: ArrayLike) -> NDArray[Any]:
        rows, checked = self._rows(X)
        if len(checked) == len(self.training_scores_) and getattr(self, "_fingerprint", None) == fingerprint(checked):
            warnings.warn(
                "predict received the training table and treats its rows as new ones. Each of them coincides with a training row, "
                "which raises its density. For leave-one-out labels of the training rows, use fit_predict(X) or labels_ of "
                "the fitted detector.",
                TrainingRowsWarning,
                stacklevel=callers_line(),
            )
        return labels_of(self, self._score(rows, checked))

    def explain(self, X: ArrayLike | None = None, *, rows: ArrayLike | None = None) -> Explanation:
        r"""Explain which columns make rows unusual, given their other columns.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or None
            The rows, treated as new. None explains each training row under the density of the others.
        rows : array-like of int, optional
            With ``X=None``: the positions of the training rows to explain; the default is all.

        Returns
        -------
        Explanation
            It has arrays of shape (n_samples, n_features): ``shares`` (the share of the training rows, each left out, that are
            at least as surprising in that column given their others), ``surprises`` (:math:`-\log p(x_k \mid \text{others})`
            minus the column's median), ``medians``, ``lows`` and ``highs`` (the median of the column given the others, and its
            90 % interval). ``reasons(row)`` describes the most surprising columns in sentences.

        Raises
        ------
        TypeError
            If the density is not one of vicinal's, alone or after scikit-learn's scalers.

        Notes
        -----
        The conditional densities are exact for the mixture of the training rows. Under ParzenWindows and LCA, unless
        ``largest_group`` is None, these are the rows that are not outliers (``labels_``), so that a group of outliers does
        not explain its members. Shares and surprises do not depend on units if the density does not. Training rows are
        left out as the density itself leaves them out. The time is O(m n d) for m rows, or O(m n d^2) if each row has its
        own kernel, and once as much for the training rows, or an even sample of 4,000 of them.
        """
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        names = [f"x{k}" for k in range(self.n_features_in_)] if names is None else [str(name) for name in names]
        n = len(self.training_scores_)
        if X is None:
            asked = np.arange(n) if rows is None else np.atleast_1d(np.asarray(rows))
            if asked.dtype.kind not in "iu" or (len(asked) and not 0 <= asked.min() <= asked.max() < n):
                raise ValueError(f"rows must be positions from 0 to {n - 1} of the {n} training rows.")
            return explain(self, None, names, self._constant_values(), asked.astype(np.int64))
        if rows is not None:
            raise ValueError("rows selects training rows, so it needs X=None. Pass other rows as X.")
        return explain(self, as_host(self._rows(X)[0]), names, self._constant_values())

    @answers_collections(dtype=float_numbers)
    def p_values(self, X: ArrayLike) -> NDArray[Any]:
        """Return the p-value of each row of X, as a new row: between 1 / (n + 1) and 1."""
        return self.p_values_from_scores(self._score(*self._rows(X)))

    def p_values_from_scores(self, scores: ArrayLike) -> NDArray[Any]:
        """Return the p-values of new rows whose `score_samples` are known already.

        Parameters
        ----------
        scores : array-like of shape (n_samples,)
            The scores of new rows, as returned by `score_samples`.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        below = Ranks(self._sorted_scores, self._cumulated).weight_below(np.asarray(as_host(scores)))
        return (1.0 + below) / (len(self.training_scores_) + 1.0)

    def _rows(self, X: ArrayLike) -> tuple[Any, np.ndarray]:
        """Return the rows as passed, which may have column names, and as validated."""
        check_is_fitted(self)
        checked = self._checked(X, self.density_, reset=False)
        return rows_as_passed(X, checked, density=self.density_), checked

    def _checked(self, X: Any, density: Any, **options: Any) -> Any:
        """Return the rows as numbers; missing values are left to the steps of a pipeline, which may impute them."""
        gaps = {"ensure_all_finite": "allow-nan"} if isinstance(density, Pipeline) else {}
        return validate_data(self, X, dtype=[np.float64, np.float32], **gaps, **options)

    def _score(self, rows: Any, checked: np.ndarray) -> np.ndarray:
        scores = as_host(self.density_.score_samples(rows))
        if getattr(self, "_reference", None) is not None:
            piped = isinstance(self.density_, Pipeline) and len(self.density_) > 1
            seen = self.density_[:-1].transform(rows) if piped else checked
            last = last_step(self.density_)
            seen = np.asarray(seen)[:, getattr(last, "active_features_", slice(None))]
            views = [scores, group_scores(last._mixture(), self._reference, self._group, seen)]
            scores = strangest_of(views, [ScoreScale(*scale) for scale in self._score_scales])
        broken = breaks_constants(checked, self._constant_values()).any(axis=1)
        if not broken.any():
            return scores
        lowest = min(float(self._sorted_scores[np.isfinite(self._sorted_scores)][0]), self.offset_) - 1.0
        return np.where(broken, np.minimum(scores, lowest), scores)

    def _inner_estimator(self) -> Any:
        """Return the density that is fitted, for `which_engine`."""
        return as_density(self.density)

    def _constant_values(self) -> np.ndarray:
        """Return a row with the values of columns that are constant in the training rows, and NaN in the others."""
        return self._constants

    def _store_training_table(self, constants: np.ndarray, rows: np.ndarray | None) -> None:
        """Store what is needed to recognise rows with other constants and the training table itself."""
        self._constants = constants
        self._fingerprint = None if rows is None else fingerprint(rows)
        forget_reference(self)

    def _set_training_scores(self, scores: np.ndarray, weight: np.ndarray | None, last: Any) -> Self:
        """Set the attributes of the training rows from their leave-one-out log-densities.

        `last` is the density that left out single rows, or None if folds were used.
        """
        self._reference, self._score_scales, self._group = None, None, 0.0
        robust, mixture = None, mixture_of_rows(last)
        if self.largest_group is not None and mixture is not None:
            views = training_views(mixture, scores, self.largest_group, weight)
            if views is not None:
                self._reference, self._group = views.reference, float(self.largest_group)
                self._score_scales = np.array(views.scales)
                scores = strangest_of(views.scores, views.scales)
                robust = robust_scores(mixture, views, weight) if self._refits else None
        again = None if last is None or not self._refits else last._without_search()
        if again is not None:
            scores = self._scores_by_refits(again, last, weight)
        # New rows are ranked among the scores of the training rows by the same function.
        self._sorted_scores, self._cumulated = ranks = Ranks.of(scores, weight)
        self.offset_ = outlier_threshold(ranks, self.contamination)
        self.training_scores_ = scores
        if robust is not None:
            # As many training rows are outliers as by the scores for new rows; the robust scores decide which ones. They are
            # shifted, so that one threshold serves training rows and new rows.
            flagged = float(ranks.weight_below(np.nextafter(self.offset_, -np.inf)))
            ranks, scores = Ranks.of(robust, weight), robust
            self.training_scores_ = (robust - ranks.above_weight(flagged)) + self.offset_
        self.training_p_values_ = ranks.weight_below(scores) / len(scores)
        return self

    def _scores_by_refits(self, density: Any, fitted: Any, weight: np.ndarray | None) -> np.ndarray:
        """Return the scores of the training rows by detectors of the other folds, whose kernels do not depend on the row."""
        rows = np.full((len(fitted.mixture_.centres), fitted.n_features_in_), 0.0)
        rows[:, fitted.active_features_] = fitted.mixture_.centres
        scores = np.empty(len(rows))
        for train, test in KFold(_REFITS, shuffle=True, random_state=0).split(rows):
            detector = DensityOutlierDetector(clone(density), largest_group=self.largest_group)
            detector._refits = False
            with warnings.catch_warnings(action="ignore"):  # warnings were already issued for the whole table
                detector.fit(rows[train], sample_weight=None if weight is None else weight[train])
                scores[test] = detector.score_samples(rows[test])
        return scores
