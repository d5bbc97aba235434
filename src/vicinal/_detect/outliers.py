"""Detect outliers as rows of low density; training rows are scored leave-one-out."""

from __future__ import annotations

import warnings
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import false_discovery_control
from sklearn.base import BaseEstimator, OutlierMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import Tags, get_tags
from sklearn.utils.validation import check_is_fitted

from vicinal._callers import callers_line
from vicinal._checks import check_choice, check_positive
from vicinal._density.mixture_density import MixtureDensityMixin
from vicinal._detect.explanation import Explanation, explain, forget_reference
from vicinal._detect.scored_table import reasons_of_rows, scored_table
from vicinal._detect.scores import GroupScores, Part, Ranks, training_scores, weighted_quantile
from vicinal._detect.steps import (
    Steps,
    as_density,
    breaks_constants,
    check_takes_weights,
    fit_prepared,
    rows_as_passed,
    takes_levels,
)
from vicinal._detect.training_rows import (
    FEWEST,
    as_weights,
    constant_values,
    constants_in,
    differs_alone,
    fingerprint,
    gaps_in,
    held_out_parts,
    rank_by_known,
    refitted_parts,
    rows_and_units,
    table_in,
    used_columns,
    weights_in,
)
from vicinal._notebook import NotebookMixin
from vicinal._rows import ValidRows, check_weights, has_gaps, is_frame, truth_values, validate_data, without_numbers
from vicinal._rows.dask import answers_collections, fits_collections, float_numbers
from vicinal._tables import TableError, describe_types, prepare_table
from vicinal._tensors import as_given, as_host

if TYPE_CHECKING:
    import pandas as pd


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
    the distance to a neighbour outside of such groups; see Notes.

    Parameters
    ----------
    density : estimator, optional
        An unfitted density: any of vicinal's or scikit-learn's, or a pipeline that ends in one. The default
        is ``ParzenWindows("loo")``. `from_density` starts from a density that is already fitted.
    contamination : float in (0, 0.5], default=0.01
        The level: a row is an outlier if its p-value is at most this number, which is therefore also the share of the training
        rows that are labelled as outliers. With fewer than 99 training rows, no p-value is as small as 0.01; a new row is then an
        outlier if its score is below those of all training rows, and no training row is one.
    largest_group : "auto", float in (0, 0.5) or None, default="auto"
        The largest share of the training rows that a group of outliers may have. A larger group counts as a cluster of the
        data; rows of a smaller group that is far from the rest do not raise each other's score (see Notes). "auto" is 0.1 for the
        training rows, and for new rows if a group hides in the training rows; other new rows are scored by the density alone. None uses
        the density alone.
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
    How a training row is left out depends on the density: every density of vicinal answers ``held_out_score_samples()``.
    ParzenWindows and LCAGauss drop the row's own component. ManifoldParzen also computes the frames of its neighbours again. LocalLCA
    computes everything again without each fifth of the rows, and so does LCA if there are few rows for the parameters of its kernel (by the
    rule that makes it search for a penalty): otherwise training rows would score higher than new rows, and p-values would be too
    small. Any other density, and pipelines with steps that mix columns (PCA), are fitted again for each of ``cv`` folds. Steps that treat each column by itself (scalers, :class:`TableEncoder`, :class:`Dequantizer`, imputers) stay as
    they were learned from all rows. With a :class:`Dequantizer`, the score of a new row is the mean over draws of the noise.

    The score of a new row is its log-density. The training rows may contain groups of outliers, which raise
    each other's density. Unless ``largest_group`` is None, they therefore have a second score: the logarithm
    of the kernel at the k-th nearest training row, where k is the share ``largest_group`` of the rows. That neighbour is
    outside of any smaller group, however tight, and inside of any larger cluster. (For more than 400 rows, an even sample
    of 400 rows is used.) Distances are in units of the kernel of the density (of the covariance that all kernels share, if each
    row has its own), or in standard deviations of the columns if the density is not one of vicinal. The second score is shifted and scaled to the median and the interquartile range of the
    log-densities of the training rows, and the lower of the two scores counts, in nats of ``density_``. If k exceeds 20, the kernel at the
    twentieth nearest row is a third score of the training rows.

    The order of the training rows is that of these scores. If more than a fifth of the 5 % of the rows with the lowest scores do not
    belong to the least dense quarter of the training rows, a group of outliers hides in these rows, and new rows are scored by the
    lower of the two scores as well (always, if ``largest_group`` is a number). The values of ``training_scores_`` are the scores by which new rows are ranked, in the order of the training
    rows, so that p-values follow scores.

    A row with missing values is scored by its known values, and ranked among the training rows that have these columns; its score
    is that of a complete row of the same rank. Values that a step of a pipeline fills in do not count.

    The p-value of a new row x is

    .. math:: \frac{1 + \#\{i : s_i \le s(x)\}}{n + 1}

    with :math:`s_i` the leave-one-out scores of the training rows, by the same function: the probability of so low a score
    if x has the distribution of the training rows, up to the one row by which the two densities differ. Rows count with
    their ``sample_weight``, scaled to mean 1, in the density, in ranks and in quantiles. If the training rows contain
    outliers, a p-value is the rank among inliers and outliers together, and is larger than among inliers alone.

    If a column is constant in the training rows, a new row with another value in it is an outlier with the smallest
    p-value, 1 / (n + 1), regardless of its other columns. If m training rows are the only ones that differ from all others in some
    column, new rows that differ are ranked among these, and the p-value is at most (1 + m) / (n + 1).

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
    ['x1: expected -1.9... to 1.9..., got 5.00']
    """

    # The arrays of `GroupScores`, and the share of the rows that a group may have; None without the second score.
    _group_rows: Any
    _group_units: Any
    _group_scales: Any
    _group: float
    _lowest: float  # the highest score of a row that differs from a value that all others share
    _log_densities: np.ndarray  # of the training rows, each without itself
    _gaps: Any  # which values of the training rows are missing, in the columns of the density; None if there are none

    def __init__(
        self,
        density: Any = None,
        *,
        contamination: float = 0.01,
        largest_group: float | str | None = "auto",
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
        largest_group: float | str | None = "auto",
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
        detector._check_parameters()
        steps = Steps(density)
        if not isinstance(steps.density, MixtureDensityMixin):
            raise TypeError(
                "from_density needs a density that can score its training rows leave-one-out (ParzenWindows, LCA, "
                f"LCAGauss, LocalLCA or ManifoldParzen), got {type(steps.density).__name__}. Fit the "
                "detector to the rows instead: DensityOutlierDetector(density).fit(X)."
            )
        detector.density_ = density
        detector._keep_names()
        detector._store_training_table(constants_in(steps), None if steps.before else table_in(steps.density))
        return detector._set_training_scores(
            held_out_parts(steps.density), steps, weights_in(steps.density), gaps_in(steps)
        )

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
        ['x1: expected -1722 to 1683, got 8000']
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

    def at_level(self, contamination: float) -> Self:
        """Return a fitted detector with the same scores that flags rows at another level.

        Parameters
        ----------
        contamination : float
            As in the constructor.

        Returns
        -------
        DensityOutlierDetector
        """
        check_is_fitted(self)
        other = copy(self).set_params(contamination=contamination)
        other._check_parameters()
        other.offset_ = other._ranks.threshold(contamination)
        return other

    @fits_collections
    def fit(self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the density and compute the leave-one-out scores of the training rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The training rows. A DataFrame with columns that are not numbers (text, categories, truth values, dates) is prepared as by
            ``vicinal learn``: the density learns from quantities, in standard deviations, with noise of one step in rounded
            columns (:class:`Dequantizer`), and from categories (:class:`TableEncoder`). A warning names the columns that are left out.
        y : ignored
            Not used; accepted because pipelines of scikit-learn pass it.
        sample_weight : array-like of shape (n_samples,), optional
            Importance of the rows for the density, which must accept it.

        Returns
        -------
        self
        """
        density = self._inner_estimator()
        self._check_parameters()
        if isinstance(density, FrozenEstimator):
            raise TypeError(
                "density is frozen and learns nothing from X, so it cannot leave out rows of X. Pass "
                "the fitted density to DensityOutlierDetector.from_density(density), or pass an unfitted density here."
            )
        others = without_numbers(X) + (truth_values(X) if takes_levels(density) else []) if is_frame(X) else []
        table = len(others) > 0 and Steps(density).encoder is None
        rows: Any = (
            X if table or Steps(density).encoder is not None else self._checked(X, density, ensure_min_samples=2)
        )
        weight = check_weights(sample_weight, rows)
        check_takes_weights(density, weight)
        passed = rows_as_passed(X, rows, density=density)
        if table:
            self.density_ = _fitted_to_table(clone(density), X, weight)
        else:
            given: Any = ValidRows(rows) if passed is rows and isinstance(density, MixtureDensityMixin) else passed
            self.density_ = clone(density).fit(given, **as_weights(weight))
        steps = Steps(self.density_)
        if steps.encoder is not None:
            self._keep_names()
        by_steps = steps.before or steps.levels
        known = steps.known(passed) if by_steps else rows
        by_itself = constants_in(steps) if steps.scores_gaps and by_steps else constant_values(rows, weight)
        self._store_training_table(by_itself, known)
        if steps.scores_gaps:
            gaps = np.isnan(known) if has_gaps(known) else None
            return self._set_training_scores(held_out_parts(steps.density), steps, weight, gaps)
        parts = refitted_parts(density, self.cv, passed, rows, weight)
        return self._set_training_scores(parts, steps, weight, None, rows_and_units(steps, passed, rows))

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

    @answers_collections(dtype=lambda self: self._labels_in_blocks())
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
        scores = self._score(rows)
        if self.fdr is None:
            return np.where(scores < self.offset_, -1, 1)
        return np.where(false_discovery_control(self.p_values_from_scores(scores)) <= self.fdr, -1, 1)

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
        The conditional densities are exact for the mixture of the training rows. Unless ``largest_group`` is None, these are the rows that are not outliers (``labels_``), so that a group of outliers does
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
        if steps.levels:
            codes = steps.known(X)
            broken = np.asarray(np.any(breaks_constants(codes, self._constant_values()), axis=1))
            return NewRows(X, codes, [codes], broken)
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
        if not steps.before and not has_gaps(rows.known) and not steps.levels:
            log_densities = as_host(self.density_.score_samples(rows.passed))
            scores = self._with_groups(log_densities, rows.known)
        else:
            versions = [self._scored_known(steps, version) for version in rows.versions]
            scores, log_densities = np.mean(versions, axis=0)
        if not rows.broken.any():
            return scores, log_densities
        return np.where(rows.broken, np.minimum(scores, self._lowest), scores), log_densities

    def _scored_known(self, steps: Steps, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the scores and log-densities of rows as the density takes them, of their known values if some are missing."""
        gaps = np.isnan(rows).any(axis=1)
        scores, log_densities = np.empty(len(rows)), np.empty(len(rows))
        if not gaps.all():
            log_densities[~gaps] = steps.log_densities(rows[~gaps])
            scores[~gaps] = self._with_groups(log_densities[~gaps], rows[~gaps])
        if gaps.any():
            ranked = rank_by_known(steps, self._known_training_rows(steps), used_columns(steps.density, rows[gaps]))
            log_densities[gaps] = ranked.log_densities
            scores[gaps] = self._ranks.scores_at(ranked.p_values, ranked.depths)
        return scores, log_densities

    def _with_groups(self, log_densities: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the scores of complete rows: the lower of the log-density and the score of groups."""
        if self._group_rows is None:
            return log_densities
        density = Steps(self.density_).density
        groups = GroupScores(self._group_rows, self._group_units, self._group, self._group_scales)
        queries = used_columns(density, rows)
        if getattr(density, "_has_levels", False):
            queries = density.mixture_.query_images(queries)
        return groups.lowest(log_densities, queries, getattr(density, "engine", None))

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
        self,
        parts: list[Part],
        steps: Steps,
        weight: np.ndarray | None,
        gaps: np.ndarray | None,
        rows_of_density: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> Self:
        """Set the attributes of the training rows.

        Parameters
        ----------
        parts : list of Part
            The training rows, each with a density that was computed without it.
        steps : Steps
        weight : array of shape (n,), optional
        gaps : bool array of shape (n, d), optional
            The missing values, in the columns of the density; None if there are none.
        rows_of_density : rows and units, optional
            What `rows_and_units` returns; by default those of a density of vicinal, alone.
        """
        rows, units = rows_of_density or (parts[0].rows, steps.density._mixture().kernel_units)
        self._gaps = None if gaps is None else gaps.astype(np.int64)
        result = training_scores(parts, rows, units, weight, self.largest_group)
        groups, scores, ranking = result.groups, result.scores, result.ranking
        self._log_densities, self._group = result.log_densities, 0.0 if groups is None else groups.largest_group
        self._group_rows, self._group_units, self._group_scales = (
            (None, None, None) if groups is None else (groups.rows, groups.units, groups.scales)
        )
        # A training row may be the only one that differs in a column, which is constant without it: it scores as new rows do that differ.
        alone = differs_alone(steps.density._training_rows() if steps.scores_gaps else rows, weight)
        as_ranked = ranking is scores and gaps is None and not alone.any()
        self._lowest = float(scores[np.isfinite(scores) & ~alone].min(initial=0.0)) - 1.0
        scores = np.where(alone, np.minimum(scores, self._lowest), scores)
        # New rows are ranked among the scores of the complete training rows by the same function.
        complete = np.full(len(scores), True) if gaps is None else ~np.any(gaps, axis=1)
        if complete.sum() < FEWEST:
            complete = np.full(len(scores), True)
        weight_of_complete = None if weight is None else weight[complete]
        self._sorted_scores, self._cumulated = ranks = Ranks.of(scores[complete], weight_of_complete)
        self.offset_ = ranks.threshold(self.contamination)
        if not alone.any():
            self._lowest = min(self._lowest, self.offset_ - 1.0)
        order = Ranks.of(ranking[complete], weight_of_complete)
        p_values = np.empty(len(scores))
        p_values[complete] = order.weight_below(ranking[complete]) / len(order.in_order)
        if not complete.all():
            incomplete, known = np.flatnonzero(~complete), self._known_training_rows(steps)
            p_values[incomplete] = rank_by_known(steps, known, known[incomplete], incomplete).p_values
        self.training_p_values_ = p_values
        self.training_scores_ = scores if as_ranked else ranks.at_weight(p_values * len(ranks.in_order))
        return self

    def _check_parameters(self) -> None:
        """Raise an error for values of contamination, largest_group and fdr that are out of range."""
        contamination, largest_group, fdr = self.contamination, self.largest_group, self.fdr
        if check_positive(contamination, "contamination") > 0.5:
            raise ValueError(f"contamination must be at most 0.5, got {contamination}: outliers must be a minority.")
        if isinstance(largest_group, str):
            check_choice(largest_group, "largest_group", ("auto",))
        elif largest_group is not None and check_positive(largest_group, "largest_group") >= 0.5:
            raise ValueError(
                f"largest_group must be less than 0.5, got {largest_group}: a group of outliers must be a minority. Pass None "
                "to score by the density alone."
            )
        if fdr is not None and check_positive(fdr, "fdr") >= 1.0:
            raise ValueError(f"fdr must be less than 1, got {fdr}: it is a share of the rows that are flagged.")

    def _labels_in_blocks(self) -> np.dtype:
        """Return the dtype of predictions for the blocks of a collection; raise if predictions need all rows together."""
        if self.fdr is not None:
            raise ValueError(
                "fdr tests all rows together, but the blocks of a Dask collection are processed one by one. Pass "
                "p_values(X).compute() to scipy.stats.false_discovery_control, or set fdr=None."
            )
        return np.dtype(np.int64)


def _fitted_to_table(density: Any, table: Any, weight: np.ndarray | None) -> Pipeline:
    """Return a density of a table, behind the steps that make numbers of its quantities and codes of its categories."""
    levels = takes_levels(density)
    whole = prepare_table(
        table, None, missing="marginalise", categories="codes" if levels else "omit", for_density=True
    )
    prepared = whole.learnable(levels=levels)
    if not prepared.X.shape[1]:
        raise TableError(
            f"X has no column from which {type(density).__name__} learns: {describe_types(whole.feature_types.items())}."
        )
    odd = [note.text for note in prepared.notes if note.odd]
    if odd:
        warnings.warn(" ".join(odd), UserWarning, stacklevel=callers_line())
    return fit_prepared(density, prepared, supervision=as_weights(weight))
