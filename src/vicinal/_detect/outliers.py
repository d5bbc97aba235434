"""Detect outliers as rows of low density; training rows are scored leave-one-out."""

from __future__ import annotations

import warnings
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OutlierMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import KFold
from sklearn.pipeline import Pipeline
from sklearn.utils import Tags, get_tags
from sklearn.utils.validation import check_is_fitted

from vicinal._callers import callers_line
from vicinal._checks import check_weights, has_gaps, is_frame, validate_data, without_numbers
from vicinal._dask import answers_collections, fits_collections, float_numbers
from vicinal._density.mixture_density import MixtureDensityMixin
from vicinal._detect.explanation import Explanation, explain, forget_reference
from vicinal._detect.scored_table import reasons_of_rows, scored_table
from vicinal._detect.scores import (
    Ranks,
    ScoreScale,
    check_outlier_parameters,
    group_scores,
    labels_in_blocks,
    labels_of,
    robust_scores,
    strangest_of,
    training_views,
    weighted_quantile,
)
from vicinal._detect.steps import Steps, as_density, breaks_constants, check_takes_weights, fit_prepared, rows_as_passed
from vicinal._detect.training_rows import (
    FEWEST,
    as_weights,
    constant_values,
    constants_in,
    fingerprint,
    gaps_in,
    left_out_scores,
    mixture_of_rows,
    rank_by_known,
    scores_by_folds,
    table_in,
    weights_in,
)
from vicinal._notebook import NotebookMixin
from vicinal._tables import TableError, describe_types, prepare_table
from vicinal._tensors import as_given, as_host

if TYPE_CHECKING:
    import pandas as pd

_REFITS = 5


class TrainingRowsWarning(UserWarning):
    """Warning that `predict` received the training table and treats its rows as new; `fit_predict` labels training rows."""


class NewRows(NamedTuple):
    """New rows.

    passed : as passed, if they have names, and otherwise as numbers
    known : as the density takes them, NaN where a value is missing; without noise
    versions : the same under each draw of the noise on rounded columns
    broken : (m,), which rows differ from a value that all training rows share
    """

    passed: Any
    known: np.ndarray
    versions: list[np.ndarray]
    broken: np.ndarray


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
    contamination : float in (0, 0.5], default=0.01
        The level: a row is an outlier if its p-value is at most this number, which is therefore also the share of the training
        rows that are labelled as outliers. With fewer than 99 training rows, no p-value is as small as 0.01; a new row is then an
        outlier if its score is below those of all training rows, and no training row is one.
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
        -1 for training rows whose p-value is at most ``contamination``, else 1: what `fit_predict` returns.
    offset_ : float
        The threshold: new rows whose score is below it are outliers.
    n_features_in_, feature_names_in_ : int, ndarray of str
        The number of columns of the training rows, and their names if they have names.

    Notes
    -----
    How a training row is left out depends on the density. The mixtures of vicinal drop the row's own component exactly
    (``score_samples(None)``); ManifoldParzen also computes the frames of its neighbours again
    (``held_out_score_samples``); any other density, and pipelines with steps that mix columns (PCA), are fitted again for each
    of ``cv`` folds. Steps that treat each column by itself (scalers, :class:`TableEncoder`, :class:`Dequantizer`, imputers) stay as
    they were learned from all rows. With a :class:`Dequantizer`, the score of a new row is the mean over draws of the noise. The
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
    lowest scores are left out as neighbours of all rows. The order of the training rows is that of these scores; their values
    (``training_scores_``) are the scores by which new rows are ranked, in that order, so that p-values follow scores.

    A row with missing values is scored by its known values, and ranked among the training rows that have these columns; its score
    is that of a complete row of the same rank. Values that a step of a pipeline fills in do not count.

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
    ['x1: expected -1.9... to 1.8..., got 5.00']
    """

    _reference: Any  # positions of the training rows that are neighbours for the second score; None without it
    _group: float
    _score_scales: Any
    _gaps: Any  # which values of the training rows are missing, in the columns of the density; None if there are none
    _refits = True  # whether densities of many parameters are fitted again without the rows that they score

    def __init__(
        self,
        density: Any = None,
        *,
        contamination: float = 0.01,
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
        contamination: float = 0.01,
        largest_group: float | None = 0.1,
        fdr: float | None = None,
    ) -> Self:
        """Make a fitted detector from a fitted density, without the training rows and without fitting again.

        The results equal those of ``DensityOutlierDetector(density).fit(X, sample_weight=sample_weight)`` on the rows and
        weights that the density was fitted to.

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
        steps = Steps(density)
        scores = left_out_scores(steps.density)
        if scores is None:
            raise TypeError(
                "from_density needs a density that can score its training rows leave-one-out (ParzenWindows, LCA, "
                f"LCAGauss, LocalLCA or ManifoldParzen), got {type(steps.density).__name__}. Fit the "
                "detector to the rows instead: DensityOutlierDetector(density).fit(X)."
            )
        detector.density_ = density
        detector._keep_names()
        detector._store_training_table(constants_in(steps), None if steps.before else table_in(steps.density))
        return detector._set_training_scores(scores, weights_in(steps.density), steps, gaps_in(steps))

    @classmethod
    def from_pipeline(cls, pipeline: Any) -> Self:
        """Make a detector from a fitted pipeline that ends in one, so that its p-values and explanations can be reached.

        scikit-learn's Pipeline passes ``predict``, ``score_samples`` and ``decision_function`` on to its last step, but not
        ``p_values``, ``explain`` and ``scored_table``. The detector that is returned takes the rows that the pipeline takes, and
        explains them in the units of these rows.

        Parameters
        ----------
        pipeline : fitted Pipeline that ends in a DensityOutlierDetector

        Returns
        -------
        DensityOutlierDetector
            Its density is a pipeline of the steps and of the detector's density. Nothing is fitted again.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> from vicinal import DensityOutlierDetector
        >>> X = np.random.default_rng(0).normal(size=(200, 2)) * [1.0, 1000.0]
        >>> pipeline = make_pipeline(StandardScaler(), DensityOutlierDetector()).fit(X)
        >>> DensityOutlierDetector.from_pipeline(pipeline).explain([[0.0, 8000.0]]).reasons(0)
        ['x1: expected -1726 to 1616, got 8000']
        """
        detector = pipeline.steps[-1][1] if isinstance(pipeline, Pipeline) else pipeline
        if not isinstance(detector, cls):
            raise TypeError(
                f"from_pipeline needs a pipeline that ends in a DensityOutlierDetector, got one that ends in {type(detector).__name__}."
            )
        check_is_fitted(detector)
        before = [] if detector is pipeline else pipeline.steps[:-1]
        if not before:
            return detector
        found = copy(detector)
        found.density_ = Pipeline([*before, ("density", detector.density_)])
        found.density = clone(found.density_)
        found._keep_names()
        found._store_training_table(constants_in(Steps(found.density_)), None)
        return found

    @fits_collections
    def fit(self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the density and compute the leave-one-out scores of the training rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The training rows. A DataFrame with columns that are not numbers (text, dates) is prepared as by ``vicinal learn``:
            the density learns from the columns of quantities (:class:`TableEncoder`), in standard deviations, with noise of one
            step in rounded columns (:class:`Dequantizer`). A warning names the columns that are left out.
        y : ignored
            Not used; accepted because pipelines of scikit-learn pass it.
        sample_weight : array-like of shape (n_samples,), optional
            Importance of the rows for the density, which must accept it.

        Returns
        -------
        self
        """
        density = self._inner_estimator()
        check_outlier_parameters(self)
        if isinstance(density, FrozenEstimator):
            raise TypeError(
                "density is frozen and learns nothing from X, so it cannot leave out rows of X. Pass "
                "the fitted density to DensityOutlierDetector.from_density(density), or pass an unfitted density here."
            )
        table = is_frame(X) and len(without_numbers(X)) > 0 and Steps(density).encoder is None
        rows: Any = (
            X if table or Steps(density).encoder is not None else self._checked(X, density, ensure_min_samples=2)
        )
        weight = check_weights(sample_weight, rows)
        check_takes_weights(density, weight)
        passed = rows_as_passed(X, rows, density=density)
        if table:
            self.density_ = _fitted_to_table(clone(density), X, weight)
        else:
            self.density_ = clone(density).fit(passed, **as_weights(weight))
        steps = Steps(self.density_)
        if steps.encoder is not None:
            self._keep_names()
        known = steps.known(passed) if steps.before else rows
        scores = left_out_scores(steps.density) if steps.by_column else None
        self._store_training_table(
            constants_in(steps) if scores is not None and steps.before else constant_values(rows, weight),
            known,
        )
        if scores is None:
            scores = scores_by_folds(density, self.cv, passed, rows, weight)
            return self._set_training_scores(scores, weight, None, None)
        gaps = np.isnan(known) if has_gaps(known) else None
        return self._set_training_scores(scores, weight, steps, gaps)

    def fit_predict(
        self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> NDArray[Any]:
        """Fit, and return -1 for training rows whose p-value is at most ``contamination``, else 1."""
        return self.fit(X, sample_weight=sample_weight).labels_

    @property
    def labels_(self) -> NDArray[Any]:
        """Label of each training row: -1 if its p-value is at most ``contamination`` (or its density is 0), else 1."""
        check_is_fitted(self, "training_scores_")
        unusual = (self.training_p_values_ <= self.contamination + 1e-12) | (self.training_scores_ == -np.inf)
        return np.where(unusual, -1, 1)

    @answers_collections(dtype=float_numbers)
    def score_samples(self, X: ArrayLike) -> NDArray[Any]:
        """Return the score of each row of X, as a new row; lower scores are more unusual."""
        return as_given(self._score(self._rows(X)), X)

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
        rows = self._rows(X)
        known = rows.known
        if len(known) == len(self.training_scores_) and getattr(self, "_fingerprint", None) == fingerprint(known):
            warnings.warn(
                "predict received the training table and treats its rows as new ones. Each of them coincides with a training row, "
                "which raises its density. For leave-one-out labels of the training rows, use fit_predict(X) or labels_ of "
                "the fitted detector.",
                TrainingRowsWarning,
                stacklevel=callers_line(),
            )
        return labels_of(self, self._score(rows))

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
        n = len(self.training_scores_)
        if X is None:
            asked = np.arange(n) if rows is None else np.atleast_1d(np.asarray(rows))
            if asked.dtype.kind not in "iu" or (len(asked) and not 0 <= asked.min() <= asked.max() < n):
                raise ValueError(f"rows must be positions from 0 to {n - 1} of the {n} training rows.")
            asked = asked.astype(np.int64)
            return explain(self, None, self.labels_[asked] == -1, asked)
        if rows is not None:
            raise ValueError("rows selects training rows, so it needs X=None. Pass other rows as X.")
        new = self._rows(X)
        return explain(self, new, self._score(new) < self.offset_)

    def _explain_as_unusual(self, X: Any, own: NDArray[Any] | None) -> Explanation:
        """Explain rows that somebody asks about, as `explain` does outliers, whether or not they are flagged."""
        new = None if X is None else self._rows(X)
        return explain(self, new, np.ones(1, dtype=bool), own)

    def scored_table(self, X: ArrayLike | None = None, *, as_new: bool = False, explain: bool = True) -> pd.DataFrame:
        """Return a table of rows with their scores, p-values and flags, and the reasons of outliers.

        Parameters
        ----------
        X : table of shape (n_samples, n_features) or None
            The rows; None for the training rows.
        as_new : bool, default=False
            Whether rows that equal a training row are scored as if they were new. By default, such a row is scored without
            that training row, because its own kernel would always make it look normal.
        explain : bool, default=True
            Whether to add the column ``why``, which needs a density of vicinal.

        Returns
        -------
        DataFrame
            With the index of X, and the columns ``score`` (lower is more unusual), ``p_value``, ``outlier`` (0 or 1),
            ``log_density`` (in the units of the data), ``log_probability`` if all columns are rounded, and ``why``.

        Examples
        --------
        >>> import numpy as np
        >>> from vicinal import DensityOutlierDetector
        >>> X = np.vstack([np.random.default_rng(0).normal(size=(200, 2)), [[6.0, 6.0]]])
        >>> table = DensityOutlierDetector().fit(X).scored_table()
        >>> int(table["score"].argmin()), list(table.columns)
        (200, ['score', 'p_value', 'outlier', 'log_density', 'why'])
        """
        table, own = scored_table(self, X, as_new=as_new)
        if explain:
            table["why"] = reasons_of_rows(self, X, own, np.flatnonzero(table["outlier"]))
        return table

    @answers_collections(dtype=float_numbers)
    def p_values(self, X: ArrayLike) -> NDArray[Any]:
        """Return the p-value of each row of X, as a new row: between 1 / (n + 1) and 1."""
        return self.p_values_from_scores(self._score(self._rows(X)))

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
        return self._ranks.p_values(np.asarray(as_host(scores)))

    @property
    def _ranks(self) -> Ranks:
        return Ranks(self._sorted_scores, self._cumulated)

    def _rows(self, X: ArrayLike) -> NewRows:
        """Return new rows as passed, as validated, and as the density takes them."""
        check_is_fitted(self)
        steps = Steps(self.density_)
        if steps.encoder is not None:
            known = steps.known(X)
            differs = [*steps.encoder.broken_constants(X).values(), np.zeros(len(known), dtype=bool)]
            return NewRows(X, known, steps.versions(X), np.any(differs, axis=0))
        checked = self._checked(X, self.density_, reset=False)
        passed = rows_as_passed(X, checked, density=self.density_)
        broken = np.asarray(np.any(breaks_constants(checked, self._constant_values()), axis=1))
        if not steps.before:
            return NewRows(passed, checked, [checked], broken)
        return NewRows(passed, steps.known(passed), steps.versions(passed), broken)

    def _checked(self, X: Any, density: Any, **options: Any) -> Any:
        """Return the rows as numbers; missing values are left to densities that score known values, and to steps that fill them in."""
        steps = Steps(density)
        takes_gaps = steps.before or isinstance(steps.density, MixtureDensityMixin)
        return validate_data(
            self,
            X,
            dtype=[np.float64, np.float32],
            **({"ensure_all_finite": "allow-nan"} if takes_gaps else {}),
            **options,
        )

    def _score(self, rows: NewRows) -> np.ndarray:
        return self._scored(rows)[0]

    def _scored(self, rows: NewRows) -> tuple[np.ndarray, np.ndarray]:
        """Return the scores of new rows and their log-densities; means over draws of the noise on rounded columns, if there is noise."""
        steps = Steps(self.density_)
        if not steps.before and not has_gaps(rows.known):
            log_densities = as_host(self.density_.score_samples(rows.passed))
            scores = self._with_groups(log_densities, rows.known)
        else:
            versions = [self._scored_known(steps, version) for version in rows.versions]
            scores, log_densities = np.mean(versions, axis=0)
        if not rows.broken.any():
            return scores, log_densities
        lowest = min(float(self._sorted_scores[np.isfinite(self._sorted_scores)][0]), self.offset_) - 1.0
        return np.where(rows.broken, np.minimum(scores, lowest), scores), log_densities

    def _scored_known(self, steps: Steps, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the scores and log-densities of rows as the density takes them, of their known values if some are missing."""
        gaps = np.isnan(rows).any(axis=1)
        scores, log_densities = np.empty(len(rows)), np.empty(len(rows))
        if not gaps.all():
            log_densities[~gaps] = steps.log_densities(rows[~gaps])
            scores[~gaps] = self._with_groups(log_densities[~gaps], rows[~gaps])
        if gaps.any():
            active = getattr(steps.density, "active_features_", slice(None))
            ranked = rank_by_known(steps, self._known_training_rows(steps), rows[gaps][:, active])
            log_densities[gaps] = ranked.log_densities
            scores[gaps] = self._ranks.scores_at(ranked.p_values, ranked.depths)
        return scores, log_densities

    def _with_groups(self, log_densities: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the scores of complete rows: the lower of the log-density and the score of groups."""
        if getattr(self, "_reference", None) is None:
            return log_densities
        density = Steps(self.density_).density
        rows = rows[:, getattr(density, "active_features_", slice(None))]
        views = [log_densities, group_scores(density._mixture(), self._reference, self._group, rows)]
        return strangest_of(views, [ScoreScale(*scale) for scale in self._score_scales])

    def _known_training_rows(self, steps: Steps) -> np.ndarray:
        """Return the training rows in the active columns of the density, NaN where a value is missing."""
        rows = steps.density._training_rows()
        if self._gaps is None:
            return rows
        return np.where(self._gaps[:, steps.density.active_features_] == 1, np.nan, rows)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = get_tags(as_density(self.density)).input_tags.allow_nan
        return tags

    def _explaining(self) -> NDArray[Any]:
        """Return which training rows explain others: those above the lower fence of a box plot of the scores, Q1 - 1.5 (Q3 - Q1).

        More rows than those that are flagged lie below it, so that the members of a group of outliers do not explain each other.
        """
        low, high = (weighted_quantile(self.training_scores_, None, share) for share in (0.25, 0.75))
        return self.training_scores_ >= low - 1.5 * (high - low)

    def _inner_estimator(self) -> Any:
        """Return the density that is fitted, for `which_engine`."""
        return as_density(self.density)

    def _keep_names(self) -> None:
        """Keep the number and the names of the columns that the density was fitted to."""
        self.n_features_in_ = self.density_.n_features_in_
        names = getattr(self.density_, "feature_names_in_", None)
        if names is not None:
            self.feature_names_in_ = names

    def _constant_values(self) -> np.ndarray:
        """Return a row with the values of columns that are constant in the training rows, and NaN in the others."""
        return self._constants

    def _store_training_table(self, constants: np.ndarray, rows: np.ndarray | None) -> None:
        """Store what is needed to recognise rows with other constants and the training table itself."""
        self._constants = constants
        self._fingerprint = None if rows is None else fingerprint(rows)
        forget_reference(self)

    def _set_training_scores(
        self, scores: np.ndarray, weight: np.ndarray | None, steps: Steps | None, gaps: np.ndarray | None
    ) -> Self:
        """Set the attributes of the training rows from their leave-one-out log-densities.

        `steps` end in the density that left out single rows; None if folds were used. `gaps` are the missing values, in the columns
        of that density; None if there are none.
        """
        self._reference, self._score_scales, self._group = None, None, 0.0
        self._gaps = None if gaps is None else gaps.astype(np.int64)
        last = None if steps is None else steps.density
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
        # New rows are ranked among the scores of the complete training rows by the same function.
        complete = np.full(len(scores), True) if gaps is None else ~np.any(gaps, axis=1)
        if complete.sum() < FEWEST:
            complete = np.full(len(scores), True)
        its_weight = None if weight is None else weight[complete]
        self._sorted_scores, self._cumulated = ranks = Ranks.of(scores[complete], its_weight)
        self.offset_ = ranks.threshold(self.contamination)
        order = Ranks.of((scores if robust is None else robust)[complete], its_weight)
        p_values = np.empty(len(scores))
        p_values[complete] = order.weight_below((scores if robust is None else robust)[complete]) / len(order.in_order)
        if steps is not None and not complete.all():
            own, known = np.flatnonzero(~complete), self._known_training_rows(steps)
            p_values[own] = rank_by_known(steps, known, known[own], own).p_values
        self.training_p_values_ = p_values
        self.training_scores_ = (
            scores if robust is None and gaps is None else ranks.at_weight(p_values * len(ranks.in_order))
        )
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


def _fitted_to_table(density: Any, table: Any, weight: np.ndarray | None) -> Pipeline:
    """Return a density of the quantities in a table, behind the steps that make numbers of the table."""
    whole = prepare_table(table, None, missing="marginalise", measured_only=True)
    prepared = whole.measured()
    if not prepared.X.shape[1]:
        raise TableError(f"X has no column of quantities: {describe_types(whole.feature_types.items())}.")
    odd = [note.text for note in prepared.notes if note.odd]
    if odd:
        warnings.warn(" ".join(odd), UserWarning, stacklevel=callers_line())
    return fit_prepared(density, prepared, supervision=as_weights(weight))
