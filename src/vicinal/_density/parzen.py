"""Gaussian Parzen windows: the plain kernel density estimate, done right."""

from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, DensityMixin

from vicinal._checks import bandwidth_covariance, check_rows, check_spread, check_weights, is_positive_definite
from vicinal._density.loo_bandwidth import LOO_PASSES, loo_variance
from vicinal._density.mixture_density import MixtureDensityMixin
from vicinal._engine import Engine, Work, as_engine, choose, fit_engine
from vicinal._fit_loops import warn_if_not_converged
from vicinal._leave_one_out import leave_one_out, merged_twins
from vicinal._mixtures import SharedMixture
from vicinal._records import Record, RecordParametersMixin

_RULES = ("loo", "scott", "silverman")


class ParzenWindows(RecordParametersMixin, MixtureDensityMixin, DensityMixin, BaseEstimator):
    r"""Gaussian Parzen windows (kernel density estimation), exact in any dimension.

    .. math:: p(x) = \sum_j w_j \, N(x; x_j, \Sigma), \qquad w_j = 1/n \text{ or sample\_weight}

    Parameters
    ----------
    bandwidth : float, array or {"loo", "scott", "silverman"}, default="loo"
        The kernel's width. A number is a standard deviation, the same for all features; a vector holds one for each
        feature; a matrix is the covariance :math:`\Sigma`. The rules:

        - ``"loo"``: :math:`\Sigma = h^2 I` with h a (local) maximum of the leave-one-out likelihood, by the update of
          Local Component Analysis with a spherical covariance, from the spread of the data downwards; equal rows are
          left out together;
        - ``"scott"``, ``"silverman"``: SciPy's factor squared times the full covariance of the data.

        All three are scale-equivariant: in other units the density is the same.
    engine : None, str or Engine, default=None
        The backend of the pairwise computations; see :class:`vicinal.Engine`.

    Attributes
    ----------
    covariance_ : ndarray of shape (n_active, n_active)
        The kernel's covariance, of the columns that vary (usually all).
    active_features_ : ndarray of int
        The columns that vary; all of them where the bandwidth is given.
    constant_values_ : ndarray
        The values of the other columns.
    mixture_ : SharedMixture
        The density itself.
    objectives_ : ndarray
        With ``bandwidth="loo"``: the leave-one-out log-likelihood per row after each pass, the last one belonging to
        ``covariance_``. Otherwise empty.
    n_iter_ : int
        Passes over the pairs of the fit.
    converged_ : bool
    engine_ : str
        The backend of the pair work of the fit; without any, the one that would score the training rows.
    certified_row_error_ : float
        The most that skipped pairs may have added to any row's sum in the last pass, relative to the sum; 0.0 where
        every pair was visited. See ``error`` of :class:`vicinal.Engine`.
    n_features_in_ : int
    feature_names_in_ : ndarray of str, only when fitted on named columns

    Notes
    -----
    Fitting costs O(n^2 d) a pass with "loo" and O(n d^2) otherwise; scoring m rows costs O(m n d). Memory beyond the
    data is the engine's budget (128 MB by default), never O(n^2). All sums are in the log domain: a row far from the
    data gets its true, finite log-density.

    ``sample_weight`` is importance: a row of weight 2 counts twice as a term of the likelihood and as a neighbour, but
    is left out as a whole when it is left out.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import ParzenWindows
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> density = ParzenWindows().fit(X)
    >>> round(float(np.sqrt(density.covariance_[0, 0])), 3)
    0.554
    >>> round(density.score(), 3)  # leave-one-out
    -2.899
    """

    _isotropic = True
    _record_types: ClassVar[dict[str, type[Record]]] = {"engine": Engine}

    def __init__(self, bandwidth: str | float | ArrayLike = "loo", *, engine: Engine | str | None = None) -> None:
        self.bandwidth = bandwidth
        self.engine = engine

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
        X = check_rows(self, X, reset=True)
        weight = check_weights(sample_weight, X)
        given = not isinstance(self.bandwidth, str)  # then the kernel has a width along constant columns too
        kept = np.full(X.shape[1], given or len(X) < 2)
        X = self._keep_active(X, weight, width="bandwidth", kept=kept, stacklevel=3)
        self.engine_ = choose(as_engine(fit_engine(self)), self._pair_work(*X.shape)).backend
        self.objectives_, self.n_iter_, self.converged_ = np.array([]), 0, True
        self.certified_row_error_ = 0.0
        if isinstance(self.bandwidth, str):  # "loo" is LCA's EM (Eqs. 3 and 4) for Sigma = h^2 I (sec. 6.2)
            self.covariance_ = self._covariance_by_rule(X, weight)
        else:
            self.covariance_ = bandwidth_covariance(self.bandwidth, X.shape[1])
        with np.errstate(divide="ignore"):
            log_weights = None if weight is None else np.log(weight)
        # p(x) = sum_j w_j N(x; x_j, Sigma)
        self.mixture_ = SharedMixture(X.copy(), self.covariance_, log_weights, self.engine, self._active_names)
        return self

    def _pair_work(self, n_samples, n_features):
        """The pair work of a fit, or of scoring its rows where it has none."""
        searched = isinstance(self.bandwidth, str) and self.bandwidth == "loo"
        return Work(n_samples, n_samples, n_features, LOO_PASSES if searched else 1)

    def _covariance_by_rule(self, X, weight):
        if self.bandwidth not in _RULES:
            raise ValueError(
                f"bandwidth must be a number, a vector, a matrix or one of {', '.join(map(repr, _RULES))}, got "
                f"{self.bandwidth!r}."
            )
        if np.count_nonzero(np.ones(len(X)) if weight is None else weight) < 2:
            raise ValueError(
                f"bandwidth={self.bandwidth!r} needs at least 2 rows, got 1 sample. Pass a number instead."
            )
        check_spread(X)
        if self.bandwidth != "loo":
            return _rule_of_thumb(X, weight, self.bandwidth)
        problem = leave_one_out(*merged_twins(X, weight), fit_engine(self), passes=LOO_PASSES)
        self.engine_ = problem.pairs.backend
        path = loo_variance(problem)
        self.certified_row_error_ = problem.pairs.certified_row_error
        warn_if_not_converged("ParzenWindows", path, remedy="Pass a bandwidth, or look at objectives_", stacklevel=4)
        self.objectives_, self.n_iter_, self.converged_ = path.objectives, path.n_iter, path.converged
        return path.parameters * np.eye(X.shape[1])


def _rule_of_thumb(X, weight, rule):
    """SciPy's factor squared times the full (weighted) covariance of the data."""
    n, d = X.shape
    effective = n if weight is None else weight.sum() ** 2 / (weight**2).sum()
    base = effective if rule == "scott" else effective * (d + 2) / 4.0
    if effective < 1.001:
        raise ValueError(
            f"bandwidth={rule!r} needs more than one row that counts, got an effective number of {effective:.3g}: one row "
            "has nearly all of sample_weight. Pass a number instead."
        )
    covariance = np.atleast_2d(np.cov(X.T.astype(np.float64), aweights=weight))
    if not np.all(np.isfinite(covariance)) or not is_positive_definite(covariance):
        raise ValueError(
            f"bandwidth={rule!r} needs data of full rank, got {n} rows in {d} columns that vary, whose covariance is "
            "singular. Drop dependent columns, or use bandwidth='loo' or a number."
        )
    return base ** (-2.0 / (d + 4)) * covariance
