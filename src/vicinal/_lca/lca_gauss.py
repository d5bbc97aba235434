"""LCA-Gauss (Le Roux and Bach, sec. 4): a Gaussian times a Parzen model; the directions that need the latter."""

from itertools import count
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils.validation import check_is_fitted

from vicinal._checks import check_callback, check_integer, check_positive, check_rows, check_weights
from vicinal._density.mixture_density import MixtureDensityMixin
from vicinal._engine import Engine, Work
from vicinal._fit_loops import Callback, Recorder, fixed_point, warn_if_not_converged
from vicinal._lca.checks import (
    Advice,
    check_answerable,
    check_representable,
    check_twins,
    check_two_rows,
    collapse_message,
)
from vicinal._lca.gauss_steps import (
    GaussProblem,
    all_local,
    directions,
    em_step,
    left_out_scores,
    local_metric,
    search_directions,
)
from vicinal._lca.missing import fit_lca_gauss_to_gaps
from vicinal._lca.steps import CollapseError, inverse_root
from vicinal._leave_one_out import leave_one_out, mean_of_rows, perplexities, scatter_of_rows
from vicinal._metric import LinearMetricMixin
from vicinal._mixtures import SharedMixture
from vicinal._records import Record, RecordParametersMixin

_ADVICE = Advice("LCAGauss", simpler="")

# Passes that a fit makes, about; the engine chooses by it.
_PASSES = 50


class LCAGauss(RecordParametersMixin, LinearMetricMixin, MixtureDensityMixin, DensityMixin, BaseEstimator):
    r"""LCA-Gauss: the directions in which data are not Gaussian, their local metric, and the density.

    The rows are modelled as a Gaussian along some directions and as Parzen windows along the others,
    independently,

    .. math::

        p(x) = |\det B| \; N(B_G'x; B_G'\mu, I) \; \frac1n \sum_j N(B_L'x; B_L'x_j, I),
        \qquad B = (B_G, B_L) \text{ square},

    with B of maximum (penalised) leave-one-out likelihood. EM's step is an eigenvalue problem (Proposition
    1): directions whose local covariance is at least the global one are Gaussian, the others are local. How
    many there are of each is found along the way: ``transform`` is a dimension reduction without a
    dimension to choose.

    Parameters
    ----------
    reg : float, default=0.0
        The penalty :math:`\nu` on :math:`\operatorname{tr} B_L B_L'`, a variance in squared units of the
        data.
    reg_gauss : float, default=0.0
        The penalty on :math:`\operatorname{tr} B_G B_G'`, likewise.
    reduce : bool, default=False
        LCA-Gauss-Red: look for a better number of Gaussian directions. EM by itself stops early, with too
        many local directions; the search makes the most Gaussian-like of them Gaussian, runs EM again, and
        finds how many to take by golden sections. It never ends with a lower objective than without.
    max_iter : int, default=500
        Most passes over the pairs; with ``reduce``, for each run of EM.
    tol : float, default=1e-7
        Stop when a pass gains no more than this many nats per row.
    callback : callable, optional
        Called as ``callback(parameters, n_iter)`` after each pass, with the flattened square matrix :math:`B' =
        (B_G, B_L)'`, Gaussian rows first, and the number of passes, those of all runs of ``reduce``. It may raise
        StopIteration: the fit then ends, warns that it has not converged, and keeps the best directions so far. A
        model file does not hold it.
    engine : None, str or Engine, default=None
        The backend of the pairwise computations; see :class:`vicinal.Engine`.
    verbose : int, default=0
        Print progress to stderr.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        :math:`B_L'`: the local, non-Gaussian directions, those first along which the data spread most
        beyond their neighbourhoods.
    gaussian_components_ : ndarray of shape (n_features - n_components, n_features)
        :math:`B_G'`, which whitens the Gaussian directions.
    n_components_ : int
        The number of local directions that was found. It may be 0: the data are best described by one
        Gaussian.
    mean_ : ndarray of shape (n_features,)
        :math:`\mu`.
    covariance_, precision_ : ndarrays of shape (n_features, n_features)
        :math:`(BB')^{-1}`, the covariance shared by the components of the mixture, and its inverse.
    objectives_ : ndarray
        The penalised objective per row, one entry a pass, the last one belonging to the fitted parameters;
        with ``reduce``, the best so far.
    n_iter_ : int
        Passes over the pairs.
    converged_ : bool
    engine_ : str
        The backend of the pair work.
    effective_neighbors_ : ndarray of shape (n_samples,)
        Perplexities of the rows' neighbours in the local subspace.
    mixture_ : SharedMixture
        The density: a mixture with one shared covariance, its centres the rows moved to the mean along the
        Gaussian directions.
    n_features_in_ : int
    feature_names_in_ : ndarray of str, only when fitted on named columns

    Notes
    -----
    A pass takes O(n^2 d2 + n^2 d + n d^2 + d^3) time with d2 local directions of d; memory beyond the data
    is the engine's budget, never O(n^2).

    ``score_samples(None)`` leaves each row out of the Parzen part; the Gaussian part keeps it (as the
    objective does). With all directions Gaussian the model is the Gaussian of maximum likelihood, with none
    it is
    :class:`vicinal.LCA`. All Gaussian is an absorbing state: EM never leaves it.

    Departures from the paper's text, which has slips, are listed in docs/departures.md.

    References
    ----------
    N. Le Roux and F. Bach, "Local Component Analysis", ICLR 2013 (arXiv:1109.0093).

    Examples
    --------
    Two clusters along one direction in six, hidden by a random mixing: one local direction is found.

    >>> import numpy as np
    >>> from vicinal import LCAGauss
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(2, size=300)
    >>> X = rng.normal(size=(300, 6))
    >>> X[:, 0] = 0.2 * X[:, 0] + labels
    >>> model = LCAGauss(reduce=True).fit(X @ rng.normal(size=(6, 6)))
    >>> model.n_components_
    1
    """

    _record_types: ClassVar[dict[str, type[Record]]] = {"engine": Engine}

    def __init__(
        self,
        *,
        reg: float = 0.0,
        reg_gauss: float = 0.0,
        reduce: bool = False,
        max_iter: int = 500,
        tol: float = 1e-7,
        callback: Callback | None = None,
        engine: Engine | str | None = None,
        verbose: int | bool = 0,
    ) -> None:
        self.reg = reg
        self.reg_gauss = reg_gauss
        self.reduce = reduce
        self.max_iter = max_iter
        self.tol = tol
        self.callback = callback
        self.engine = engine
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Find the local and the Gaussian directions and the density of the rows of X.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN where a value is missing: see the notes of :class:`vicinal.LCA`, of which the same holds here.
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional
            Importance of the rows; not negative, at least two of them positive.

        Returns
        -------
        self
        """
        X, weight, reg, reg_gauss = self._check_input(X, sample_weight)
        if np.isnan(X).any():
            fit_lca_gauss_to_gaps(self, X, weight, reg, reg_gauss)
            return self
        # In the coordinates w = R (x - mu) the Gaussian's covariance, C_G + nu_G I, is the identity.
        rows, problem = self._whiten(X, weight, reg, reg_gauss)
        self.engine_ = problem.pairs.backend
        iterations = count(1)

        def run(split, tol):
            """EM: C_L of Eq. 5 from the neighbours in the local directions, then the B that solves Eq. 6 (Proposition 1)."""
            record = Recorder.of(self, lambda at: np.concatenate(directions(at, problem.root)), iterations)
            return fixed_point(lambda at: em_step(problem, at), split, record, max_iter=self.max_iter, tol=tol)

        try:
            path = run(all_local(X.shape[1]), self.tol)  # Algorithm 1
            if self.reduce and not path.reason.by_user:
                path = search_directions(run, path, self.tol)  # LCA-Gauss-Red (sec. 4)
            self._keep(X, weight, rows, problem, path.parameters)
        except (CollapseError, np.linalg.LinAlgError):
            raise ValueError(collapse_message(X, weight, "full", _ADVICE)) from None
        warn_if_not_converged("LCAGauss", path)
        self.objectives_, self.n_iter_, self.converged_ = path.objectives, path.n_iter, path.converged
        return self

    def _check_input(self, X: Any, sample_weight: Any) -> tuple[NDArray[Any], NDArray[Any] | None, float, float]:
        """The rows, their weights and the two penalties; refuses what has no answer."""
        X = check_rows(self, X, reset=True, min_rows=2, gaps=True)
        weight = check_two_rows(check_weights(sample_weight, X))
        if not isinstance(self.reduce, (bool, np.bool_)):
            raise TypeError(f"reduce must be True or False, got {type(self.reduce).__name__}.")
        reg = check_positive(self.reg, "reg", strict=False)
        reg_gauss = check_positive(self.reg_gauss, "reg_gauss", strict=False)
        check_integer(self.max_iter, "max_iter")
        check_positive(self.tol, "tol", strict=False)
        check_callback(self.callback)
        if np.isnan(X).any():
            return X, weight, reg, reg_gauss
        if reg == 0 or reg_gauss == 0:
            names = getattr(self, "feature_names_in_", None)
            zero = " and ".join(name for name, value in (("reg", reg), ("reg_gauss", reg_gauss)) if value == 0)
            check_answerable(X, weight, "full", names=names, advice=_ADVICE._replace(reg_name=zero))
        if reg == 0:  # twins are no trouble for the Gaussian
            check_twins(X, weight, _ADVICE)
        return X, weight, reg, reg_gauss

    def _pair_work(self, n_samples, n_features):
        """The pair work of a fit."""
        return Work(n_samples, n_samples, n_features, _PASSES)

    def _whiten(self, X, weight, reg, reg_gauss):
        """The rows in coordinates where the Gaussian's covariance is the identity, and the problem there."""
        # Departure 4 (LCAGauss): C_G divides by n, so that the limit is the Gaussian of maximum likelihood.
        covariance = scatter_of_rows(X, weight) + reg_gauss * np.eye(X.shape[1])
        if reg_gauss > 0:
            check_representable(covariance, reg_gauss, "reg_gauss")
        root = inverse_root(covariance)
        self.mean_ = mean_of_rows(X, weight)
        rows = ((X - self.mean_) @ root.T).astype(X.dtype, copy=False)
        plain = leave_one_out(rows, weight, self.engine, reg=reg, passes=_PASSES)
        return rows, GaussProblem(plain.rows, plain.weight, plain.log_others, plain.pairs, reg, root)

    def _keep(self, X, weight, rows, problem, split):
        """Store the fitted directions, the density, and the leave-one-out scores of the training rows."""
        self.gaussian_components_, self.components_ = directions(split, problem.root)
        self.n_components_ = len(split.variances)
        both = np.concatenate([self.gaussian_components_, self.components_])
        self.precision_ = both.T @ both
        inverse = np.linalg.inv(both)
        self.covariance_ = inverse @ inverse.T
        local = inverse[:, split.gaussian.shape[1] :] @ self.components_
        centres = (self.mean_ + (X - self.mean_) @ local.T).astype(X.dtype)
        names = getattr(self, "feature_names_in_", None)
        with np.errstate(divide="ignore"):
            log_weights = None if weight is None else np.log(weight)
        self.mixture_ = SharedMixture(centres, self.covariance_, log_weights, self.engine, names)
        # The rows of weight zero, which the fit does not see, are scored as well.
        counted = np.ones(len(X), dtype=bool) if weight is None else weight > 0
        self._left_out_scores = left_out_scores(problem, split, rows, counted)
        self.effective_neighbors_ = perplexities(problem, local_metric(split), rows, weight)

    def score_samples(self, X: ArrayLike | None = None) -> NDArray[Any]:
        """Return the log-density of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or None
            None scores each training row with its own kernel left out of the Parzen part.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        # The centres of the mixture are not the training rows, so the mixture cannot leave a row out.
        return self._left_out_scores.copy() if X is None else super().score_samples(X)
