"""Local LCA (experimental): LCA with a covariance of its own at every row, under a prior."""

from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, DensityMixin

from vicinal._checks import check_callback, check_integer, check_positive, check_rows
from vicinal._density.mixture_density import MixtureDensityMixin
from vicinal._engine import Covariances, Engine, fit_engine, prepare
from vicinal._fit_loops import Callback, Reason, Recorder, fixed_point, warn_if_not_converged
from vicinal._lca.checks import Remedies
from vicinal._lca.lca import LCA
from vicinal._lca.penalty import check_reg
from vicinal._leave_one_out import mean_of_rows
from vicinal._mixtures import LOG_2PI, LocalMixture, covariance_work, inverse_roots, log_dets
from vicinal._records import Record, RecordParametersMixin

_REMEDIES = Remedies("LocalLCA", simpler="", merge="keep one of each: np.unique(X, axis=0)")

# Passes that a fit makes, about; the engine chooses by it.
_PASSES = 20


class LocalLCA(RecordParametersMixin, MixtureDensityMixin, DensityMixin, BaseEstimator):
    r"""Local LCA: a kernel of its own shape at every row, learned by leave-one-out likelihood. Experimental.

    The density is :math:`p(x) = \frac1n \sum_j N(x; x_j, \Sigma_j)`. A row is explained by about one other row, so
    free covariances have no best value; each has a prior around LCA's shared covariance :math:`\Sigma_0`, worth
    :math:`\kappa` rows. Maximised is

    .. math::

        \frac1n \sum_i \log \Big[ \frac{1}{n-1} \sum_{j \ne i} N(x_i; x_j, \Sigma_j) \Big] - \frac{\kappa}{2n} \sum_j
        \big( \log |\Sigma_0^{-1} \Sigma_j| + \operatorname{tr} \Sigma_j^{-1} \Sigma_0 - d \big)

    by EM: with the neighbours' weights :math:`\lambda_{ij} \propto N(x_i; x_j, \Sigma_j)`, :math:`j \ne i`,

    .. math:: \Sigma_j \leftarrow \frac{S_j + \kappa \Sigma_0}{m_j + \kappa}, \qquad m_j = \sum_i \lambda_{ij}, \quad
              S_j = \sum_i \lambda_{ij} (x_i - x_j)(x_i - x_j)' .

    Parameters
    ----------
    smoothing : float, default=0.7
        :math:`\kappa / (1 + \kappa)`, in (0, 1]: the weight of the prior beside one row. 1 is LCA.
    pool : int, default=1
        Rows whose scatters (and counts) are averaged for each covariance: the row and its ``pool - 1`` nearest rows in
        LCA's metric. 1 is the step above, which never lowers the objective. With more, a covariance stands on more
        rows, so ``smoothing`` can be lower; the fit then ends at the first step that does not gain.
    reg : "auto", float or array, default="auto"
        The penalty of the LCA that gives :math:`\Sigma_0`; see :class:`vicinal.LCA`.
    max_iter : int, default=100
        Most passes over the pairs, after LCA's own.
    tol : float, default=1e-5
        Stop when a pass gains no more than this many nats per row.
    callback : callable, optional
        Called as ``callback(parameters, n_iter)`` after each pass (not after those of the LCA), with the flattened
        covariances of shape (n_samples, n_features, n_features) and the number of passes. It may raise StopIteration:
        the fit then ends, warns that it has not converged, and keeps the best covariances so far. A model file does not
        hold it.
    engine : None, str or Engine, default=None
        The backend of the pairwise computations; see :class:`vicinal.Engine`.
    verbose : int, default=0
        Print progress to stderr.

    Attributes
    ----------
    local_covariances_ : ndarray of shape (n_samples, n_active, n_active)
        :math:`\Sigma_j`, of the columns that vary (usually all).
    active_features_ : ndarray of int
        The columns that vary.
    constant_values_ : ndarray
        The values of the other columns.
    base_ : LCA
        The fitted LCA; its ``covariance_`` is :math:`\Sigma_0`.
    objectives_ : ndarray
        The objective above, one entry per pass, the last one belonging to ``local_covariances_``. Where the last pass
        lost, which ``pool`` allows, the objective of the pass before stands there once more.
    n_iter_ : int
    converged_ : bool
        Whether this fit and LCA's converged.
    engine_ : str
        The backend of the pair work, after LCA's own.
    certified_row_error_ : float
        The most that skipped pairs may have added to any row's sum in any pass of the fit, relative to the sum; 0.0 where
        every pair was visited. See ``error`` of :class:`vicinal.Engine`.
    mixture_ : LocalMixture
        The density.
    n_features_in_ : int
    feature_names_in_ : ndarray of str, only when fitted on named columns

    Notes
    -----
    A pass takes O(n^2 d^2) time; n d^2 numbers are held. ``score_samples(None)`` drops a row's own kernel, but the row
    has shaped its neighbours' kernels: it is too high to choose ``smoothing`` or ``pool`` by. Use held-out rows
    (:class:`sklearn.model_selection.GridSearchCV` does).

    On held-out rows of spirals (300 rows to learn from) it gains 0.17 nats a row over LCA and is as good as Manifold
    Parzen; on 30 principal components of USPS digits (1,500 rows) it gains 4.6 over LCA and stays 2.0 behind Manifold
    Parzen (``benchmarks/lca.py``).

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import LocalLCA
    >>> from vicinal.datasets import make_spiral
    >>> X, test = make_spiral(300, random_state=0)[0], make_spiral(1000, random_state=1)[0]
    >>> model = LocalLCA(smoothing=0.1, pool=12).fit(X)
    >>> model.score(test) > model.base_.score(test)
    True
    """

    _record_types: ClassVar[dict[str, type[Record]]] = {"engine": Engine}

    def __init__(
        self,
        smoothing: float = 0.7,
        *,
        pool: int = 1,
        reg: str | float | ArrayLike = "auto",
        max_iter: int = 100,
        tol: float = 1e-5,
        callback: Callback | None = None,
        engine: Engine | str | None = None,
        verbose: int | bool = 0,
    ) -> None:
        self.smoothing = smoothing
        self.pool = pool
        self.reg = reg
        self.max_iter = max_iter
        self.tol = tol
        self.callback = callback
        self.engine = engine
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn a covariance for every row of X.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        self
        """
        X = check_rows(self, X, reset=True, min_rows=2).astype(np.float64, copy=False)
        self._check_parameters(len(X))
        X = self._keep_active(X, width="reg", stacklevel=3)
        # Sigma_0, the centre of the prior; exact for any n, so that nothing is random.
        reg = self.reg
        given = check_reg(reg, self.n_features_in_) if np.ndim(reg) else None
        if given is not None:
            reg = given[np.ix_(self.active_features_, self.active_features_)]
        self.base_ = LCA(reg=reg, solver="accelerated", engine=fit_engine(self), verbose=self.verbose)
        base_path = self.base_._fit(X, None, _REMEDIES)
        problem = self._problem(X)  # in the frame of LCA, where Sigma_0 is the identity
        self.engine_ = problem.backend
        inverse = np.linalg.inv(self.base_.components_)
        start = np.broadcast_to(np.eye(X.shape[1]), (len(X), X.shape[1], X.shape[1])).copy()
        record = Recorder.of(self, lambda covariances: inverse @ covariances @ inverse.T)
        try:
            if base_path.reason.by_user:
                path = self._as_lca(start, Recorder()).ended_by(base_path.reason)
            elif self.smoothing == 1:  # the prior alone
                path = self._as_lca(start, record)
            else:  # EM: lambda_ij, then Sigma_j <- (S_j + kappa Sigma_0) / (m_j + kappa)
                step = self._em_step(problem)
                path = fixed_point(step, start, record, max_iter=self.max_iter, tol=self.tol, may_lose=self.pool > 1)
            self.local_covariances_ = inverse @ path.parameters @ inverse.T
            check_regular(self.local_covariances_)
        except np.linalg.LinAlgError:
            raise ValueError(
                f"LocalLCA: the covariance of some row is singular in float64: with smoothing={self.smoothing:g} its "
                "prior weighs too little, or far rows stretch it. Pass a larger smoothing, pass a larger reg (a variance, "
                "in squared units of the data), or drop far rows."
            ) from None
        self.certified_row_error_ = problem.certified_row_error
        warn_if_not_converged("LocalLCA", path)
        self.objectives_, self.n_iter_ = path.objectives, path.n_iter
        self.converged_ = path.converged and self.base_.converged_
        self.mixture_ = LocalMixture(X.copy(), self.local_covariances_, None, self.engine, self._active_names)
        return self

    def _check_parameters(self, n_rows):
        smoothing = check_positive(self.smoothing, "smoothing")
        if smoothing > 1:
            raise ValueError(f"smoothing must be in (0, 1], got {smoothing:g}. 1 gives every row LCA's covariance.")
        check_integer(self.max_iter, "max_iter")
        check_positive(self.tol, "tol", strict=False)
        check_callback(self.callback)
        pool = check_integer(self.pool, "pool")
        if pool > n_rows:
            raise ValueError(f"pool={pool} needs at least {pool} rows, got {n_rows}. Lower pool or add data.")

    def _pair_work(self, n_samples, n_features):
        """The pair work of a fit, after LCA's own."""
        return self._scoring_work(n_samples, n_samples, n_features, _PASSES)

    def _scoring_work(self, n_queries, n_points, n_features, passes):
        return covariance_work(n_queries, n_points, n_features, passes)

    def _problem(self, X):
        """The rows in the frame of LCA, where the prior's covariance is the identity."""
        work = self._pair_work(*X.shape)
        rows = (X - mean_of_rows(X)) @ self.base_.components_.T
        return prepare(fit_engine(self), rows, leave_one_out=True, n_dims=work.n_dims, passes=work.passes)

    def _as_lca(self, covariances, record):
        """Every row with LCA's covariance; one pass tells the objective, in which LCA's penalty has no part."""
        with record:
            record.add(covariances, self.base_.score())
            record.iterated(covariances)
            raise record.end(Reason.CONVERGED, "every row has LCA's covariance")
        return record.path()

    def _em_step(self, problem):
        """The step of EM in the frame of LCA: the objective at some covariances, and the next ones."""
        n, d = problem.n_points, len(self.base_.components_)
        log_norm = np.linalg.slogdet(self.base_.components_)[1] - 0.5 * d * LOG_2PI
        kappa = self.smoothing / (1.0 - self.smoothing)
        near = np.arange(n)[:, None]
        if self.pool > 1:
            near = np.hstack([near, problem.at().nearest(self.pool - 1).indices])

        def step(covariances):
            roots = inverse_roots(covariances)
            sums, counts, scatters = problem.at(Covariances(roots)).local_scatters()
            objective = (sums - np.log(n - 1.0)).mean() + log_norm - log_prior(roots, kappa)
            if self.pool > 1:
                counts, scatters = counts[near].mean(axis=1), scatters[near].mean(axis=1)
            return objective, (scatters + kappa * np.eye(d)) / (counts + kappa)[:, None, None]

        return step


def check_regular(covariances):
    """Raise LinAlgError where a covariance is singular in float64, whatever the units of the columns.

    A Cholesky factor of such a matrix exists or not, as rounding will have it.
    """
    scales = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
    values = np.linalg.eigvalsh(covariances / (scales[:, :, None] * scales[:, None, :]))
    if not np.all(values[:, 0] > np.finfo(np.float64).eps * values[:, -1]):
        raise np.linalg.LinAlgError


def log_prior(roots, kappa):
    """The penalty per row, ``kappa/2n sum_j (log|Sigma_j| + tr Sigma_j^-1 - d)``, in the prior's frame."""
    d = roots.shape[1]
    return 0.5 * kappa * float((-2.0 * log_dets(roots) + np.square(roots).sum(axis=(1, 2)) - d).mean())
