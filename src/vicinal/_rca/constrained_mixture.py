"""A Gaussian mixture in which each chunklet comes from one component (Shental et al. 2004)."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError, cholesky, eigh, solve_triangular
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import logsumexp, softmax
from sklearn.base import BaseEstimator, ClusterMixin, DensityMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from vicinal._checks import check_callback, check_choice, check_integer, check_positive, check_random_state
from vicinal._fit_loops import Callback, FitPath, Recorder, best_path, fixed_point, warn_if_not_converged
from vicinal._notebook import NotebookMixin
from vicinal._rca.cannot_link import CannotLinks
from vicinal._rca.constrained_kmeans import ConstrainedKMeans, chunklet_means
from vicinal._rows import check_rows
from vicinal._supervision import check_pairs
from vicinal._tensors import as_given


class ConstrainedGaussianMixture(NotebookMixin, ClusterMixin, DensityMixin, BaseEstimator):
    """Gaussian mixture fitted by EM, with groups of rows (chunklets) known to share a component.

    The E-step treats a chunklet as a whole: for component l and chunklet :math:`C`

    .. math:: p(l \\mid C) \\propto \\pi_l \\prod_{i \\in C} N(x_i; \\mu_l, \\Sigma_l),

    and this is the responsibility of all points of C; the M-step is the usual one.  The objective
    :math:`\\sum_C \\log \\sum_l \\pi_l \\prod_{i \\in C} N(x_i; \\mu_l, \\Sigma_l)` never falls (up to
    ``reg_covar``).

    With pairs of rows from different components (``cannot_link``), the objective sums over all assignments h of the groups
    that respect these pairs,

    .. math:: \\log \\sum_{h \\in H} \\prod_C \\pi_{h(C)} \\prod_{i \\in C} N(x_i; \\mu_{h(C)}, \\Sigma_{h(C)})
              \\;-\\; \\log \\sum_{h \\in H} \\prod_C \\pi_{h(C)},

    The sum is computed exactly by elimination. The M-step of the weights then has no closed form, and is a concave problem.

    Parameters
    ----------
    n_components : int, default=1
        The number of components.
    covariance_type : {"full", "tied", "diag", "spherical"}, default="full"
        The form of the covariances, as in :class:`~sklearn.mixture.GaussianMixture`.
    count_by : {"chunklets", "points"}, default="chunklets"
        What the mixing weights :math:`\\pi` count.  With "chunklets", chunklets are drawn from the components, and each has
        one factor :math:`\\pi_l` as above.  With "points", points are drawn from the components, a chunklet has the factor
        :math:`\\pi_l^{|C|}`, and the weights are shares of points.  Without constraints they are the same.
    init : "k-means" or metric, default="k-means"
        The initial covariances; the initial means are those of a constrained k-means of the rows. With "k-means", the
        covariances are those of its clusters. A metric such as ``RCA()`` is cloned and learned from the same chunklets, and
        all components start with the covariance that corresponds to it ("the RCA distance metric as the initial metric",
        sec. 8.3 of the RCA paper). To work in the space of a metric throughout, fit the mixture to transformed rows.
    tol : float, default=1e-4
        A run stops when the objective rises by no more than this many nats per row.
    reg_covar : float, default=1e-6
        The variance that is added to the diagonals of the covariances.
    max_iter : int, default=300
        The maximum number of iterations of a run.
    n_init : int, default=1
        The number of runs, each from its own constrained k-means. The best is kept.
    callback : callable, optional
        Called as ``callback(parameters, n_iter)`` after each iteration, with the mixing weights, the means and the
        covariances, flattened one after the other, and the number of iterations of this run. It may raise StopIteration:
        the fit then ends, warns that it has not converged, and keeps the best parameters so far. Model files do not
        contain it.
    random_state : int, RandomState or None, default=None
        The seed of the starts.

    Attributes
    ----------
    weights_ : array of shape (n_components,)
        The mixing weights.
    means_ : array of shape (n_components, n_features)
        The means of the components.
    covariances_ : array
        The covariances, of shape (k, d, d) if full, (d, d) if tied, (k, d) if diagonal, and (k,) if spherical.
    labels_ : int array of shape (n,)
        The component of each training row. It is the same for all rows of a chunklet, and different for the rows of a pair in
        ``cannot_link``.
    objectives_ : array of shape (n_iter,)
        The objective per row, one entry per iteration of the best run; the last belongs to the parameters above.
    n_iter_ : int
        The number of iterations of the best start.
    converged_ : bool
        Whether the best start converged.
    chunklet_report_ : ChunkletReport or None
        How ``y`` was interpreted, in counts.
    n_features_in_, feature_names_in_ : int, ndarray of str
        The number of columns of the training rows, and their names if they have names.
    feature_names_in_ : array of shape (n_features,)
        Only when X has string column names.

    Notes
    -----
    An iteration costs O(n k d^2). Pairs in ``cannot_link`` add O(k^(w+1)) per connected set of them, where w is the largest
    number of groups that an elimination connects: 1 if they form pairs, chains or trees.

    Departures from the paper:

    1. ``count_by``: the paper counts chunklets; both choices are available.
    2. With pairs that differ, the mixing weights use the exact M-step instead of one step along a gradient.
    3. ``init=RCA()`` gives every component RCA's covariance initially; the other interpretation is a fit to transformed rows.

    References
    ----------
    N. Shental, A. Bar-Hillel, T. Hertz, D. Weinshall.  Computing Gaussian mixture models with EM using
    equivalence constraints.  NIPS 2003 (2004).

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.companions import ConstrainedGaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> truth = np.repeat([0, 1], 200)
    >>> X = rng.normal(size=(400, 2)) * [0.5, 3.0] + truth[:, None] * [2.0, 0.0] + 1
    >>> pairs = np.concatenate([rng.permutation(200)[:100], 200 + rng.permutation(200)[:100]]).reshape(-1, 2)
    >>> mixture = ConstrainedGaussianMixture(2, random_state=0).fit(X, pairs)
    >>> print(np.sort(mixture.means_[:, 0]).round(1))
    [1. 3.]
    """

    def __init__(
        self,
        n_components: int = 1,
        *,
        covariance_type: str = "full",
        count_by: str = "chunklets",
        init: Any = "k-means",
        tol: float = 1e-4,
        reg_covar: float = 1e-6,
        max_iter: int = 300,
        n_init: int = 1,
        callback: Callback | None = None,
        random_state: RandomState | int | None = None,
    ) -> None:
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.count_by = count_by
        self.init = init
        self.tol = tol
        self.reg_covar = reg_covar
        self.max_iter = max_iter
        self.n_init = n_init
        self.callback = callback
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, cannot_link: ArrayLike | None = None) -> Self:
        """Fit the mixture.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            The training rows.
        y : chunklets, as in :meth:`RCA.fit`, default=None
            None is a mixture without positive constraints.  Chunklets that share a row are joined.
        cannot_link : array-like of shape (q, 2), default=None
            Row positions of pairs whose components differ. The chunklets of the two rows then also have different components.

        Returns
        -------
        self
        """
        k, tol, reg, max_iter, n_init = self._checked_parameters()
        X = check_rows(self, X, reset=True, min_rows=2)
        given, X = X.dtype, X.astype(np.float64, copy=False)
        group, means, sizes, report = chunklet_means(X, y)
        if len(means) < k:
            raise ValueError(
                f"n_components={k} needs at least as many separate rows or chunklets, got {len(means)} "
                f"(n_samples={len(X)}). Lower n_components or give fewer constraints."
            )
        sizes = np.ones(len(X)) if sizes is None else sizes
        # Departure 1 (ConstrainedGaussianMixture): Priors count chunklets or points.
        counts = sizes[:, None] if self.count_by == "points" else np.ones((len(sizes), 1))
        groups = _Groups(X, group, counts, _read_links(cannot_link, group, k), self.covariance_type, reg)
        rng = check_random_state(self.random_state)
        covariances = self._first_covariances(X, y)

        def step(
            parameters: tuple[np.ndarray, np.ndarray, np.ndarray],
        ) -> tuple[float, tuple[np.ndarray, np.ndarray, np.ndarray]]:
            objective, shares = groups.expect(parameters)
            return objective, groups.maximise(shares, parameters[0])

        def run() -> FitPath:
            start = ConstrainedKMeans(k, n_init=1, random_state=rng)
            with warnings.catch_warnings():  # a start need not have converged
                warnings.simplefilter("ignore", ConvergenceWarning)
                labels = start.fit_predict(X, group if y is not None else None)
            weights, means, learned = groups.maximise(np.eye(k)[labels[groups.first_rows]], np.full(k, 1.0 / k))
            first = weights, means, learned if covariances is None else covariances
            record = Recorder.of(self, lambda parameters: np.concatenate([part.ravel() for part in parameters]))
            return fixed_point(step, first, record, max_iter=max_iter, tol=tol)

        best = best_path(run() for _ in range(n_init))
        self.weights_, self.means_, self.covariances_ = best.parameters
        self.means_ = self.means_.astype(given, copy=False)
        self.labels_ = groups.assign(best.parameters)[group]
        self.objectives_, self.n_iter_, self.converged_ = best.objectives, best.n_iter, best.converged
        self.chunklet_report_ = report
        warn_if_not_converged(type(self).__name__, best)
        return self

    def _checked_parameters(self) -> tuple[int, float, float, int, int]:
        check_choice(self.covariance_type, "covariance_type", ("full", "tied", "diag", "spherical"))
        check_choice(self.count_by, "count_by", ("chunklets", "points"))
        if not (self.init == "k-means" if isinstance(self.init, str) else hasattr(self.init, "get_mahalanobis_matrix")):
            raise ValueError(f'init must be "k-means" or a metric of vicinal such as RCA(), got {self.init!r}.')
        check_callback(self.callback)
        return (
            check_integer(self.n_components, "n_components"),
            check_positive(self.tol, "tol", strict=False),
            check_positive(self.reg_covar, "reg_covar", strict=False),
            check_integer(self.max_iter, "max_iter"),
            check_integer(self.n_init, "n_init"),
        )

    def _first_covariances(self, X: NDArray[Any], y: ArrayLike | None) -> NDArray[Any] | None:
        """Return the initial covariances if a metric defines them, in the form of ``covariances_``."""
        if isinstance(self.init, str):
            return None
        if y is None:
            raise ValueError(
                f"init={type(self.init).__name__}() learns a metric from chunklets, got y=None. Pass chunklets as y, or "
                'init="k-means".'
            )
        # Departure 3 (ConstrainedGaussianMixture): RCA gives every component its first covariance.
        covariance = _covariance_of_metric(clone(self.init).fit(X, y).get_mahalanobis_matrix(), X)
        covariance += self.reg_covar * np.eye(len(covariance))
        if self.covariance_type == "tied":
            return covariance
        each = {"full": covariance, "diag": np.diag(covariance), "spherical": np.diag(covariance).mean()}
        return np.array([each[self.covariance_type]] * self.n_components)

    def fit_predict(
        self, X: ArrayLike, y: ArrayLike | None = None, cannot_link: ArrayLike | None = None
    ) -> NDArray[Any]:
        """Fit the mixture and return the component of each row; see :meth:`fit`."""
        return self.fit(X, y, cannot_link).labels_

    def _log_joint(self, X: np.ndarray, unit: float = 1.0) -> np.ndarray:
        """Return the logarithm of weight times density; rows and means may be in larger units than the covariances."""
        with np.errstate(divide="ignore", over="ignore"):
            means = self.means_.astype(np.float64, copy=False) / unit
            log_density = _log_gaussians(X / unit, means, self.covariances_, self.covariance_type)
            return log_density + np.log(self.weights_)

    def _log_shares(self, X: ArrayLike) -> np.ndarray:
        """Return the logarithm of each component's share in each row, up to a constant per row."""
        X = self._check(X)
        log_joint = self._log_joint(X)
        underflowed = np.isneginf(log_joint).all(axis=1)
        if underflowed.any():  # so far away that squares overflow; in larger units, distances still dominate
            log_joint[underflowed] = self._log_joint(X[underflowed], 1e150)
        return log_joint

    def _check(self, X: ArrayLike) -> np.ndarray:
        check_is_fitted(self)
        return check_rows(self, X, reset=False).astype(np.float64, copy=False)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most likely component of each row, without constraints."""
        return self._log_shares(X).argmax(axis=1)

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Return the probability of each component for each row, without constraints."""
        return softmax(self._log_shares(X), axis=1)

    def score_samples(self, X: ArrayLike) -> NDArray[Any]:
        """Return the log-density of each row under the mixture; -inf if its squared distances overflow."""
        return as_given(logsumexp(self._log_joint(self._check(X)), axis=1), X)

    def score(self, X: ArrayLike, y: ArrayLike | None = None) -> float:
        """Return the mean log-density of the rows."""
        return float(self.score_samples(X).mean())


def _covariance_of_metric(M: NDArray[Any], X: NDArray[Any]) -> NDArray[Any]:
    """Return the inverse of a Mahalanobis matrix; along directions in which that is zero, the covariance of the rows."""
    weights, directions = eigh(M)
    is_known = weights > len(M) * np.finfo(np.float64).eps * weights[-1]
    blind = directions[:, ~is_known]
    spread = (X - X.mean(axis=0)) @ blind
    return (directions[:, is_known] / weights[is_known]) @ directions[:, is_known].T + blind @ (
        spread.T @ spread / len(X)
    ) @ blind.T


def _read_links(cannot_link: ArrayLike | None, group: NDArray[Any], k: int) -> CannotLinks | None:
    """Return the pairs that differ as pairs of groups; None if there are none."""
    if cannot_link is None:
        return None
    pairs = group[check_pairs(cannot_link, len(group), "cannot_link")]
    if len(pairs) == 0:
        return None
    same = int((pairs[:, 0] == pairs[:, 1]).sum())
    if same:
        raise ValueError(
            f"cannot_link holds {same} of {len(pairs)} pairs whose rows are the same or in one chunklet, so that y requires "
            "them to share a component. Remove these pairs, or split the chunklets."
        )
    links = CannotLinks(pairs, int(group.max()) + 1, k)
    if not links.can_be_kept():
        raise ValueError(
            f"cannot_link connects more than n_components={k} groups with each other, so that they cannot all be in "
            "different components. Raise n_components or remove pairs."
        )
    return links


class _Groups:
    """The two steps of EM for rows in groups (a row in no chunklet is its own group).

    Parameters are the mixing weights, the means and the covariances.
    """

    def __init__(
        self,
        X: NDArray[Any],
        group: NDArray[Any],
        counts: NDArray[Any],
        links: CannotLinks | None,
        kind: str,
        reg: float,
    ) -> None:
        self.X, self.group, self.counts, self.links, self.kind, self.reg = X, group, counts, links, kind, reg
        self.members = csr_array((np.ones(len(X)), (group, np.arange(len(X)))))
        self.first_rows = np.unique(group, return_index=True)[1]
        self.floor = 1e-20 * X.var(axis=0)  # a spread of 1e-10 of that of the rows is rounding

    def _log_joint(self, parameters: tuple[Any, ...]) -> NDArray[Any]:
        weights, means, covariances = parameters
        log_joint = self.members @ _log_gaussians(self.X, means, covariances, self.kind, self.floor)
        with np.errstate(divide="ignore"):
            return log_joint + self.counts * np.log(weights)

    def expect(self, parameters: tuple[Any, ...]) -> tuple[float, NDArray[Any]]:
        """Compute the E-step: the objective per row, and each group's shares in the components."""
        log_joint = self._log_joint(parameters)
        if self.links is None:
            return float(logsumexp(log_joint, axis=1).sum()) / len(self.X), softmax(log_joint, axis=1)
        total, shares = self.links.log_sum(log_joint)
        return (total - self.links.log_sum(self.counts * np.log(parameters[0]))[0]) / len(self.X), shares

    def assign(self, parameters: tuple[Any, ...]) -> NDArray[Any]:
        """Return the most likely components of all groups jointly."""
        log_joint = self._log_joint(parameters)
        return log_joint.argmax(axis=1) if self.links is None else self.links.best(log_joint)

    def maximise(self, shares: NDArray[Any], weights: NDArray[Any]) -> tuple[Any, ...]:
        """Compute the M-step: mixing weights over groups or points, means and covariances over points."""
        expected = (self.counts * shares).sum(axis=0)
        # Departure 2 (ConstrainedGaussianMixture): Mixing weights use the exact M-step.
        weights = expected / self.counts.sum() if self.links is None else self._weights(expected, weights)
        shares = shares[self.group]
        totals = shares.sum(axis=0) + 10 * np.finfo(np.float64).eps
        means = shares.T @ self.X / totals[:, None]
        return weights, means, _covariances(self.X, shares, totals, means, self.reg, self.kind)

    def _weights(self, expected: NDArray[Any], weights: NDArray[Any]) -> NDArray[Any]:
        """Return the mixing weights under which the admissible assignments have the expected counts.

        An assignment has prior probability (product of weights) / Z, and Z, the share of assignments that keep the
        pairs apart, depends on the weights. In their logarithms the objective is concave.
        """
        assert self.links is not None
        links, scale = self.links, self.counts.sum()

        def falls(logs: NDArray[Any]) -> tuple[float, NDArray[Any]]:
            log_z, shares = links.log_sum(self.counts * logs)
            return (log_z - expected @ logs) / scale, ((self.counts * shares).sum(axis=0) - expected) / scale

        # A weight below exp(-40) of the largest does not change any share.
        found = minimize(falls, np.log(weights), jac=True, method="L-BFGS-B", bounds=[(-40.0, 0.0)] * len(weights))
        return softmax(found.x)


def _covariances(
    X: np.ndarray, shares: np.ndarray, totals: np.ndarray, means: np.ndarray, reg: float, kind: str
) -> np.ndarray:
    k, d = means.shape
    if kind in ("full", "tied"):
        scatters = np.empty((k, d, d))
        for l in range(k):
            apart = X - means[l]
            scatters[l] = (shares[:, l, None] * apart).T @ apart
        covariances = scatters.sum(axis=0) / len(X) if kind == "tied" else scatters / totals[:, None, None]
        return covariances + reg * np.eye(d)
    variances = np.stack([shares[:, l] @ (X - means[l]) ** 2 for l in range(k)]) / totals[:, None] + reg
    return variances.mean(axis=1) if kind == "spherical" else variances


def _log_gaussians(
    X: np.ndarray, means: np.ndarray, covariances: np.ndarray, kind: str, floor: float | np.ndarray = 0.0
) -> np.ndarray:
    """Return the log-density of each row under each component, of shape (n, k); variances must be above the floor."""
    n, d = X.shape
    k = len(means)
    result = np.empty((n, k))
    if kind in ("full", "tied"):
        matrices = covariances if kind == "full" else covariances[None]
        factors = [_factor(matrix, floor) for matrix in matrices] * (1 if kind == "full" else k)
        for l in range(k):
            white = solve_triangular(factors[l], (X - means[l]).T, lower=True)
            log_det = 2.0 * np.log(np.diag(factors[l])).sum()
            result[:, l] = np.einsum("ij,ij->j", white, white) + log_det
    else:
        variances = covariances if kind == "diag" else np.repeat(covariances[:, None], d, axis=1)
        if (variances <= floor).any():
            raise ValueError(_SINGULAR)
        for l in range(k):
            result[:, l] = ((X - means[l]) ** 2 / variances[l]).sum(axis=1) + np.log(variances[l]).sum()
    return -0.5 * (result + d * np.log(2 * np.pi))


_SINGULAR = (
    "The covariance of a component is singular, because it has too few or equal rows, or dependent columns. Raise "
    "reg_covar, lower n_components, or choose a simpler covariance_type."
)


def _factor(covariance: np.ndarray, floor: float | np.ndarray) -> np.ndarray:
    try:
        factor = cholesky(covariance, lower=True)
    except LinAlgError as error:
        raise ValueError(_SINGULAR) from error
    if (np.diag(factor) ** 2 <= floor).any():
        raise ValueError(_SINGULAR)
    return factor
