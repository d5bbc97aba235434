"""Relevant Component Analysis (Bar-Hillel, Hertz, Shental and Weinshall, JMLR 2005)."""

from __future__ import annotations

import math
import numbers
import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from vicinal._callers import callers_line
from vicinal._checks import check_integer, shown_columns
from vicinal._metric import LinearMetricMixin, contrast_shrinkage, range_basis, rank_tolerance, shrunk, whitening
from vicinal._rca.raw_shrinkage import choose_raw_shrinkage, held_out_score
from vicinal._row_sources import mapped
from vicinal._rows import check_array, check_columns_spread, check_magnitude, validate_data
from vicinal._rows.dask import answers_collections, in_memory, is_collection
from vicinal._scatter import ChunkletScatter, chunklet_scatter
from vicinal._supervision import ChunkletReport, read_chunklets


class RCA(LinearMetricMixin, BaseEstimator):
    """Learn a metric from small groups of rows that are known to belong together.

    RCA scales down the directions along which rows of one group (a *chunklet*) differ.  With N points in n
    chunklets and chunklet means m_j, the within-chunklet covariance is

    .. math:: \\hat C = \\frac1N \\sum_{j=1}^{n} \\sum_{i=1}^{n_j} (x_{ji} - m_j)(x_{ji} - m_j)^T \\quad (Eq. 1)

    and the learned distance is :math:`d(x, y)^2 = (x - y)^T \\hat C^{-1} (x - y)`.  With fewer components
    than features, the directions with the largest ratio of total variance (over all of X) to within-chunklet variance
    are kept: constraint-based Fisher discriminants (cFLD, Eq. 14).

    Parameters
    ----------
    n_components : int, default=None
        The number of directions to keep; None keeps all that the data support.  The first k components do not
        depend on how many are kept.
    alpha : float, default=0.5
        Algorithm 2, step 2: with ``shrinkage=0`` and more dimensions than R, the data are first reduced to
        the ``floor(alpha * R)`` leading principal components, where ``R = sum(n_j - 1)``.  In (0, 1]; not
        used with shrinkage, which makes that step unnecessary.
    unbiased : bool, default=False
        Whether to divide by R instead of N, which makes the covariance unbiased for Gaussian classes (sec. 5).
        Distances change by one common factor.
    shrinkage : "auto", "cv" or float in [0, 1], default="auto"
        Replace the covariance by ``(1 - s) C + s mu D^2``, with D the standard deviations of the columns over all rows
        and ``mu = tr(D^-1 C D^-1) / d``: shrinkage to a multiple of the identity in units of the columns, so that raw and
        standardised columns give the same result.  0 is the method of the paper.  "auto" is the estimate of Ledoit and Wolf
        (2004) in these units from the R within-chunklet contrasts, whose mean is known to be zero (the two residuals of a
        pair are one observation, not two).  With many more contrasts than features it is close to 0.  "cv" shrinks towards
        the raw metric, ``(1 - s) C + s mu I``, where s = 1 changes no neighbour, and chooses s by cross-validation over
        chunklets: the s closest to the raw metric for which held-out rows find the other rows of their chunklets as well as
        for the best s, to one standard error. The raw metric is kept if the gain may be due to chance.  Use "cv" for
        embeddings with few pairs and many columns; rows of unit length are compared by their cosine.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        ``transform`` multiplies by its transpose.  Its rows whiten ``covariance_`` (completed as in departure 1
        along directions without variance). The most discriminative direction is first, and the largest entry of each row, in
        units of the columns, is positive.
    covariance_ : array of shape (n_features, n_features)
        The within-chunklet covariance, after shrinkage.
    total_covariance_ : array of shape (n_features, n_features)
        The covariance of all rows, in chunklets or not (divided by n).
    mean_ : array of shape (n_features,)
        The mean of all rows.
    ratios_ : array of shape (n_components,)
        The ratio of total to within-chunklet variance of each component, largest first: the eigenvalues of cFLD.
    shrinkage_ : float
        The shrinkage that was applied.  With ``shrinkage="cv"`` it is the share of the raw metric that was kept.
    shrinkage_path_ : array of shape (n_shares, 3), only with ``shrinkage="cv"``
        One row per share of the raw metric that was tried: the share, its cross-validated score (the mean of
        :math:`1 / \\log_2(1 + r)` over the ranks r of the other rows of a chunklet), and the standard error of the difference
        from the raw metric, which is the last row.
    rank_ : int
        The number of directions along which the data vary; ``components_`` has no more rows.
    n_chunklets_, n_points_, n_contrasts_ : int
        The number of chunklets, of points in them (N), and R.  A row in two chunklets counts twice.
    chunklet_report_ : ChunkletReport
        How ``y`` was interpreted in the last call: counts of leftovers, singletons and self-pairs.
    n_features_in_, feature_names_in_ : int, ndarray of str
        The number of columns of the training rows, and their names if they have names.
    feature_names_in_ : array of shape (n_features,)
        Only when X has string column names.

    See Also
    --------
    OnlineRCA : For streams that drift.
    chunklets_from_pairs : Transitive closure of pairs.

    Notes
    -----
    A fit takes O(n d^2 + d^3) time and O(d^2) memory beyond the data; X is copied once if it does not hold floats in
    row-major order (most DataFrames are column-major).  Data far from the origin lose no digits, because moments about zero
    are never computed.

    Departures from the paper:

    1. Directions with total but no within-chunklet variance (where Eq. 1 has no inverse) get the smallest
       positive eigenvalue of the within-chunklet covariance; directions without total variance are dropped.
    2. ``shrinkage`` is on by default.
    3. In Algorithm 2 "D" is the rank of the total covariance, and ``alpha R`` is rounded down.
    4. Rows of ``components_`` are cFLD directions even if none is dropped, so the map is the paper's
       :math:`\\hat C^{-1/2}` up to a rotation, which changes no distance.

    References
    ----------
    A. Bar-Hillel, T. Hertz, N. Shental, D. Weinshall.  Learning a Mahalanobis Metric from Equivalence
    Constraints. Journal of Machine Learning Research 6, 2005.

    O. Ledoit, M. Wolf.  A well-conditioned estimator for large-dimensional covariance matrices.  Journal of
    Multivariate Analysis 88, 2004.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import RCA
    >>> rng = np.random.default_rng(0)
    >>> centres = rng.normal(size=(40, 2))
    >>> noise = rng.normal(size=(40, 2, 2)) * [5.0, 0.1]       # the first column is mostly noise
    >>> X = (centres[:, None] + noise).reshape(80, 2)
    >>> pairs = np.arange(80).reshape(40, 2)                   # rows 0 and 1 belong together, 2 and 3, ...
    >>> rca = RCA(shrinkage=0).fit(X, pairs)
    >>> print(np.round(np.sqrt(np.diag(rca.get_mahalanobis_matrix())), 1))
    [ 0.3 14.8]
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        alpha: float = 0.5,
        unbiased: bool = False,
        shrinkage: str | float = "auto",
    ) -> None:
        self.n_components = n_components
        self.alpha = alpha
        self.unbiased = unbiased
        self.shrinkage = shrinkage

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn the metric.

        Parameters
        ----------
        X : array-like of shape (n, n_features), or a Dask array or dataframe, or a source of rows
            All rows, including those in no chunklet, which are used for the total covariance. A Dask collection (except with
            ``shrinkage="cv"``) and a memory map are not copied; other sources (:func:`vicinal.io.open_rows`) are copied to a
            temporary file.
        y : chunklets
            One of: one id per row (integers, strings, a pandas column; -1, None or NaN for none; with full labels, this is
            supervised RCA); pairs of row positions, of shape (p, 2); a list of lists of row positions; a tuple
            ``(rows, ids)``, whose chunklets may share rows.  Pairs and lists that share a row are merged.

        Returns
        -------
        self
        """
        self._check_parameters()
        if self.shrinkage == "cv":
            X, (y,), _ = in_memory(X, (y,), {})
        X = X if is_collection(X) else mapped(X)
        sums, report = self._sum(X, y, reset=True, min_rows=2)
        if sums.n_contrasts == 0:
            raise ValueError(
                f"{type(self).__name__} needs at least one chunklet of two or more points, got none: "
                f"{report} Give rows of one group the same id, or pass pairs of row positions."
            )
        if self.shrinkage == "cv":
            return self._fit_raw_shrinkage(X, y, sums, report)
        return self._solve(sums, report)

    def _fit_raw_shrinkage(self, X: ArrayLike, y: ArrayLike, sums: Any, report: Any) -> Self:
        """Choose the share of the raw metric by cross-validation, and warn if fewer components are worse than raw rows."""
        rows = validate_data(self, X, reset=False, dtype=[np.float64, np.float32], order="C")
        entries = read_chunklets(y, len(rows))[0]
        choice = choose_raw_shrinkage(rows, entries)
        self._solve(sums, report, raw_share=choice.shrinkage)
        self.shrinkage_path_ = choice.path
        if len(choice.path) == 1:
            warnings.warn(
                "shrinkage='cv' needs at least two chunklets, because it holds one out, got one. The raw metric is kept. Pass more "
                "chunklets, or shrinkage='auto'.",
                UserWarning,
                stacklevel=callers_line(),
            )
        elif len(self.components_) < self.rank_:
            self._warn_of_reduction(rows, entries, raw=float(choice.path[-1, 1]))
        return self

    def _warn_of_reduction(self, X: Any, entries: Any, raw: float) -> None:
        """Warn if fewer components find held-out mates less well than the raw rows do."""

        def fitted(train: Any) -> Any:
            model = RCA(self.n_components, unbiased=self.unbiased, shrinkage=0.5)
            model.n_features_in_ = X.shape[1]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return model._solve(chunklet_scatter(X, train), None, raw_share=self.shrinkage_).components_

        reduced = held_out_score(X, entries, fitted)
        if reduced < raw:
            warnings.warn(
                f"{len(self.components_)} components find held-out mates less well than the raw rows do (cross-validated "
                f"score {reduced:.3f}, raw {raw:.3f}). Pass a larger n_components, None to keep all, or more chunklets.",
                UserWarning,
                stacklevel=callers_line(),
            )

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Update the fit with more rows; the result equals one fit of all rows, as long as no chunklet is split.

        Ids are local to one call: an id that was used before is a new chunklet.  The estimator is not fitted until it has
        seen a chunklet with different points.

        Parameters
        ----------
        X, y
            The next rows and their chunklets, as in `fit`; they may be Dask collections.

        Returns
        -------
        self
        """
        self._check_parameters()
        self._refuse_in_parts("partial_fit")
        first = not hasattr(self, "_sums")
        sums, report = self._sum(X, y, reset=first, min_rows=1)
        return self._solve(sums if first else self._sums + sums, report, may_wait=True)

    def merge(self, other: RCA) -> Self:
        """Add the rows that another fitted RCA has seen; the result equals one fit of the rows of both.

        Parameters
        ----------
        other : RCA
            Another RCA that was fitted to the same columns. It is not changed, and its parameters are not used.

        Returns
        -------
        self
        """
        for model in (self, other):
            if not isinstance(model, RCA):
                raise TypeError(f"merge needs another RCA, got {type(model).__name__}.")
            check_is_fitted(model, "_sums")
        if self.n_features_in_ != other.n_features_in_:
            raise ValueError(
                f"merge needs models of the same columns, got {self.n_features_in_} and "
                f"{other.n_features_in_} features. Fit both on the same columns."
            )
        names, others = (getattr(model, "feature_names_in_", None) for model in (self, other))
        if names is not None and others is not None and list(names) != list(others):
            raise ValueError("merge needs models of the same columns in the same order; feature names differ.")
        self._check_parameters()
        self._refuse_in_parts("merge")
        return self._solve(self._sums + other._sums, other.chunklet_report_, may_wait=True)

    @answers_collections(lambda self: self.n_features_in_, needs_rows=False)
    def inverse_transform(self, X: ArrayLike) -> Any:
        """Map images back into the feature space ("RCAfaces").

        ``x = mean_ + B (z - A mean_)`` with ``B = C A'`` is the most likely of all rows with image z, both within
        chunklets and overall.  The dropped directions are set to the mean; if all components are kept, the original
        rows are returned.

        Parameters
        ----------
        X : array-like of shape (n, n_components)
            Rows that `transform` returned.

        Returns
        -------
        X_original : array of shape (n, n_features), or a lazy Dask array when X is a Dask collection
        """
        check_is_fitted(self, "components_")
        Z = check_array(X, dtype=[np.float64, np.float32], input_name="X", estimator=self)
        if Z.shape[1] != len(self.components_):
            raise ValueError(
                f"X has {Z.shape[1]} columns, but {type(self).__name__} has {len(self.components_)} "
                "components. Pass rows that transform returned."
            )
        back = (Z - self.components_ @ self.mean_) @ self._inverse.T + self.mean_
        return back.astype(Z.dtype, copy=False)

    def _check_parameters(self) -> None:
        if self.n_components is not None:
            check_integer(self.n_components, "n_components")
        if not _is_share(self.alpha) or self.alpha == 0:
            raise ValueError(f"alpha must be a number greater than 0 and at most 1, got {self.alpha!r}.")
        if not isinstance(self.unbiased, (bool, np.bool_)):
            raise ValueError(f"unbiased must be True or False, got {self.unbiased!r}.")
        automatic = isinstance(self.shrinkage, str) and self.shrinkage in ("auto", "cv")
        if not automatic and not _is_share(self.shrinkage):
            raise ValueError(f'shrinkage must be "auto", "cv" or a number from 0 to 1, got {self.shrinkage!r}.')

    def _refuse_in_parts(self, method: str) -> None:
        if self.shrinkage == "cv":
            raise ValueError(
                f"{method} keeps sums instead of rows, so no rows can be held out for shrinkage='cv'. Fit all rows at once, "
                "or pass shrinkage='auto' or a number."
            )

    def _check_columns(self, X: np.ndarray, sums: ChunkletScatter) -> None:
        """Raise an error for fewer columns than components, and for rows whose fourth powers overflow or underflow."""
        if self.n_components is not None and self.n_components > X.shape[1]:
            raise ValueError(f"n_components={self.n_components} is more than the {X.shape[1]} features of X. Lower it.")
        if not (np.isfinite(sums.total).all() and np.isfinite(sums.fourth).all()):
            raise ValueError(_fourth_powers(X, "overflow"))
        check_columns_spread(X, getattr(self, "feature_names_in_", None))
        if np.sum(sums.fourth) < 1e-280 and np.trace(sums.within) > 0:
            raise ValueError(_fourth_powers(X, "underflow"))

    def _sum(self, X: ArrayLike, y: ArrayLike, *, reset: bool, min_rows: int) -> tuple[ChunkletScatter, ChunkletReport]:
        if is_collection(X):
            from vicinal._rca.on_cluster import sums_of_collection

            return sums_of_collection(self, X, y, reset=reset)
        X, (y,), _ = in_memory(X, (y,), {})
        X = validate_data(self, X, reset=reset, dtype=[np.float64, np.float32], order="C", ensure_min_samples=min_rows)
        check_magnitude(X)
        entries, report = read_chunklets(y, len(X))
        with np.errstate(over="ignore", invalid="ignore"):
            sums = chunklet_scatter(X, entries)
        self._check_columns(X, sums)
        return sums, report

    def _solve(
        self,
        sums: ChunkletScatter,
        report: ChunkletReport | None,
        *,
        may_wait: bool = False,
        raw_share: float | None = None,
    ) -> Self:
        """Compute the metric from sums: Eq. 1, Algorithm 2, whitening.

        `raw_share` is the share of the raw metric that cross-validation has chosen.
        """
        if may_wait and not np.trace(sums.within) > 64.0 * sums.resolution**2 * np.trace(sums.total):
            self._sums, self.chunklet_report_ = sums, report  # a stream before its first chunklet with different points
            return self
        d = self.n_features_in_
        tolerance = rank_tolerance(d, sums.resolution)
        total = sums.total / sums.n_rows
        # Entries are rounded to some epsilons of their size; a column that spreads no more than that is
        # constant.
        rounding = (8.0 * np.finfo(np.float64).eps * sums.mean) ** 2
        basis = range_basis(total, tolerance=tolerance, floor=rounding)
        rank = d if basis is None else basis.shape[1]
        if rank == 0:
            raise ValueError(f"All {sums.n_rows} rows of X are equal, so there is no variance to learn from.")
        # Departure 3 (RCA): Algorithm 2 counts with the rank, and rounds down.
        if self.shrinkage == 0 and rank > sums.n_contrasts:  # Algorithm 2, step 2
            reduced = max(1, math.floor(self.alpha * sums.n_contrasts))
            basis = eigh(total, subset_by_index=[d - reduced, d - 1])[1]
        # Departure 2 (RCA): Shrinkage is on by default. It is made in units of the columns.
        spread = np.sqrt(np.where(np.diag(total) > rounding, np.diag(total), 0.0))
        units = spread
        if raw_share is not None:
            shrinkage, units = raw_share, (spread > 0).astype(np.float64)
        else:
            shrinkage = contrast_shrinkage(sums, spread) if self.shrinkage == "auto" else float(self.shrinkage)
        covariance = shrunk(sums.within / (sums.n_contrasts if self.unbiased else sums.n_points), shrinkage, units)
        # Departure 1 (RCA): Directions without within-chunklet variance get the smallest positive eigenvalue.
        # Departure 4 (RCA): Components are always cFLD directions.
        metric = whitening(
            covariance,
            total,
            basis=basis,
            n_components=self.n_components,
            tolerance=tolerance,
            resolution=sums.resolution,
        )
        if metric is None:
            raise ValueError(
                f"The {sums.n_chunklets} chunklets contain only equal points, so there is no within-chunklet "
                "variance to whiten. Drop duplicated rows, or pass chunklets of rows that belong together but are not "
                "equal."
            )
        available = rank if basis is None else basis.shape[1]
        as_before = may_wait and (rank, len(metric[0])) == (
            getattr(self, "rank_", 0),
            len(getattr(self, "components_", ())),
        )
        if not as_before:  # a stream would warn of the same directions at every part
            self._warn_of_directions(available, rank, sums.n_contrasts, spread)
        self._sums, self.chunklet_report_ = sums, report
        self.components_, self._inverse, self.ratios_ = metric
        self.covariance_, self.total_covariance_, self.mean_ = covariance, total, sums.mean
        self.shrinkage_, self.rank_ = shrinkage, rank
        self.n_chunklets_, self.n_points_ = sums.n_chunklets, sums.n_points
        self.n_contrasts_ = sums.n_contrasts
        return self

    def _warn_of_directions(self, available: int, rank: int, n_contrasts: int, spread: np.ndarray) -> None:
        """Warn about requested directions that are not available or depend on shrinkage only, and about dropped directions."""
        d, asked = len(spread), self.n_components
        message = None
        if asked is not None and asked > available:
            message = (
                f"n_components={asked}, but only {available} directions can be estimated from the "
                f"data (rank {rank}, R = {n_contrasts}): components_ has {available} rows."
            )
        elif asked is not None and asked > n_contrasts:
            message = (
                f"n_components={asked}, but the chunklets have only R = {n_contrasts} contrasts: the other directions "
                f"depend on shrinkage alone. Pass n_components={n_contrasts} or less, or more chunklets."
            )
        elif asked is None and available < rank:
            message = (
                f"{available} of {rank} directions are kept: with shrinkage=0, R = {n_contrasts} contrasts and "
                f"alpha={self.alpha:g} support no more. Pass shrinkage='auto', or more chunklets, to keep all."
            )
        elif asked is None and rank < d and not spread.all():
            names = getattr(self, "feature_names_in_", None)
            are, them = ("column is", "it") if (spread == 0).sum() == 1 else ("columns are", "them")
            message = f"{rank} of {d} directions are kept: {(spread == 0).sum()} {are} constant "
            message += f"({shown_columns(spread == 0, names)}). Drop {them} to silence this warning."
        elif asked is None and rank < d:
            message = (
                f"{rank} of {d} directions are kept, because the rows do not vary along the others. Either there are too few rows, "
                "or columns depend on each other."
            )
        if message is not None:
            warnings.warn(message, UserWarning, stacklevel=callers_line())


def _fourth_powers(X: np.ndarray, what: str) -> str:
    return (
        f"Fourth powers of X {what}: rows differ by up to {np.ptp(X, axis=0).max():.3g}, expected 1e-70 to 1e70, "
        "also within chunklets. Rescale X, for example with sklearn.preprocessing.StandardScaler."
    )


def _is_share(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and value <= 1 and not value < 0
