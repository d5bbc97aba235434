"""Clustering by the modes of a density."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from sklearn.base import BaseEstimator, ClusterMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from vicinal._callers import callers_line
from vicinal._checks import check_integer, check_positive
from vicinal._density.mixed import MixedColumnsMixin
from vicinal._density.mixture_density import MixtureDensityMixin
from vicinal._detect.steps import as_density, check_takes_weights, rows_as_passed
from vicinal._engine import Engine, Work, engine_at, prepare, works_there
from vicinal._mixtures import Mixture
from vicinal._notebook import NotebookMixin
from vicinal._rows import ValidRows, check_rows, check_weights, is_frame, validate_data
from vicinal._tensors import on_device


class ParzenMeanShift(NotebookMixin, ClusterMixin, BaseEstimator):
    r"""Mean shift under a learned density: every row moves uphill, and rows that reach the same mode form a cluster.

    A step maximises the lower bound of the log-density that EM uses,

    .. math:: x \leftarrow \Big(\sum_j p_j C_j^{-1}\Big)^{-1} \sum_j p_j C_j^{-1} c_j, \qquad
              p_j \propto w_j N(x; c_j, C_j)

    so the density never decreases. With one covariance for all components, the step leads to the mean of the
    centres, weighted by their shares. With LCA, the kernels have the learned shape (the closing remark of the LCA
    paper); with Manifold Parzen, they are flat across the manifold.

    Parameters
    ----------
    density : estimator, optional
        An unfitted Gaussian-mixture density of vicinal: ParzenWindows, LCA, LCAGauss, LocalLCA or
        ManifoldParzen. The default is ``ParzenWindows("loo")``. Its bandwidth determines the number of modes, and
        the bandwidth with the largest likelihood is often smaller than the one that separates clusters best.
    merge_distance : float, default=0.1
        Rows that end within this distance of each other, directly or through other rows, belong to one mode. The distance
        is in standard deviations of the kernel; for ManifoldParzen, in standard deviations of the noise; for LocalLCA, in
        those of the covariance that all kernels share.
    max_iter : int, default=1000
        The maximum number of steps per row.
    step_tol : float, default=1e-4
        A row has converged when its step is shorter than this, in the same units.

    Attributes
    ----------
    density_ : estimator
        The density, fitted to the training rows.
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        The modes, highest density first.
    mode_log_densities_ : ndarray of shape (n_clusters,)
        The log-density at each mode.
    labels_ : ndarray of shape (n_samples,)
        The cluster of each training row.
    n_iter_ : int
        The largest number of steps of any row.
    converged_ : bool
        Whether all training rows converged.
    engine_ : str
        The backend of the pairwise computations of the steps.
    certified_row_error_ : float
        A bound on what skipped pairs would have added to any row's sum in any pass of the fit, relative to the sum; 0.0 if
        every pair was visited. See ``error`` of :class:`vicinal.Engine`.
    n_features_in_, feature_names_in_ : int, ndarray of str
        The number of columns of the training rows, and their names if they have names.

    Notes
    -----
    A step costs as much as scoring the rows that are still moving: O(n^2 D) with one covariance, and with frames
    (ManifoldParzen, LocalLCA) O(n^2 d D) plus a linear system per row.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import ParzenMeanShift, ParzenWindows
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(size=(60, 2)), rng.normal(size=(40, 2)) + 6.0])
    >>> shift = ParzenMeanShift(ParzenWindows(1.0)).fit(X)
    >>> np.bincount(shift.labels_).tolist()
    [60, 40]
    """

    def __init__(
        self, density: Any = None, *, merge_distance: float = 0.1, max_iter: int = 1000, step_tol: float = 1e-4
    ) -> None:
        self.density = density
        self.merge_distance = merge_distance
        self.max_iter = max_iter
        self.step_tol = step_tol

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the density and find the modes that the rows reach.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The training rows.
        y : ignored
            Not used; accepted because pipelines of scikit-learn pass it.
        sample_weight : array-like of shape (n_samples,), optional
            The importance of the rows for the density.

        Returns
        -------
        self
        """
        passed = X
        X = validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=2)
        radius = check_positive(self.merge_distance, "merge_distance")
        max_iter = check_integer(self.max_iter, "max_iter")
        step_tol = check_positive(self.step_tol, "step_tol")
        density = as_density(self.density)
        weight = check_weights(sample_weight, X)
        check_takes_weights(density, weight)
        options = {} if weight is None else {"sample_weight": weight}
        rows: Any = rows_as_passed(passed, X, density=density)
        if isinstance(density, MixedColumnsMixin) and is_frame(rows):  # truth values are numbers here
            rows = ValidRows(X, getattr(self, "feature_names_in_", None))
        self.density_ = clone(density).fit(rows, **options)
        mixture = self._mixture()
        engine = self._engine_for(mixture, passed)
        ends, self.n_iter_, arrived = seek_modes(
            mixture, self.density_._active(X), max_iter=max_iter, tol=step_tol, engine=engine
        )
        problem = mixture.placement(len(X), SEEKING_PASSES, engine=engine).problem
        self.engine_, self.certified_row_error_ = problem.backend, problem.certified_row_error
        self._warn(arrived)
        self.converged_ = bool(arrived.all())

        alive = ends if weight is None else ends[weight > 0]  # a row of weight 0 creates no mode
        groups = linked_groups(mixture.in_kernel_units(alive), radius, engine)
        heights = mixture.score_samples(alive)
        # A mode is the highest end of its group; groups are numbered by height.
        order = np.argsort(-heights, kind="stable")
        found, first = np.unique(groups[order], return_index=True)
        best = order[first]
        rank = np.argsort(-heights[best], kind="stable")
        self.cluster_centers_ = self.density_._with_constants(alive[best[rank]].astype(X.dtype))
        self.mode_log_densities_ = heights[best[rank]]
        number = np.empty(len(found), dtype=np.int64)
        number[found[rank]] = np.arange(len(found))
        self.labels_ = self._nearest_mode(mixture, ends, engine)
        self.labels_[slice(None) if weight is None else weight > 0] = number[groups]
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Follow new rows uphill and return the cluster of the nearest mode, shape (n_samples,)."""
        check_is_fitted(self)
        mixture = self._mixture()
        engine = self._engine_for(mixture, X)
        X = check_rows(self, X, reset=False, precision=mixture.centres.dtype)
        ends, _, arrived = seek_modes(
            mixture, self.density_._active(X), max_iter=self.max_iter, tol=self.step_tol, engine=engine
        )
        self._warn(arrived)
        return self._nearest_mode(mixture, ends, engine)

    @staticmethod
    def _engine_for(mixture: Mixture, X: Any) -> Engine | str | None:
        """Return the engine of the mixture, or torch for rows that are a tensor on a GPU."""
        return engine_at(mixture.engine, X) if on_device(X) and works_there(mixture.engine) else mixture.engine

    def _nearest_mode(self, mixture: Mixture, ends: np.ndarray, engine: Engine | str | None) -> np.ndarray:
        centres = mixture.in_kernel_units(self.density_._active(self.cluster_centers_))
        modes = prepare(engine, centres, n_queries=len(ends))
        return modes.at().nearest(1, mixture.in_kernel_units(ends)).indices[:, 0]

    @property
    def engine(self) -> Engine | str | None:
        """The engine of the density, which does the pair work of the steps."""
        return getattr(as_density(self.density), "engine", None)

    def _pair_work(self, n_samples: int, n_features: int) -> Work:
        """Return the pair work of the steps."""
        density = as_density(self.density)
        work = density._scoring_work if isinstance(density, MixtureDensityMixin) else Work
        return work(n_samples, n_samples, n_features, SEEKING_PASSES)

    def _mixture(self) -> Any:
        density = self.density_
        mixture = getattr(density, "mixture_", None)
        if not isinstance(mixture, Mixture):
            raise TypeError(
                "density must be a Gaussian-mixture density of vicinal (ParzenWindows, LCA, LCAGauss, LocalLCA, "
                f"ManifoldParzen), because mean shift needs its components, got {type(density).__name__}."
            )
        return mixture

    def _warn(self, arrived: np.ndarray) -> None:
        if not arrived.all():
            warnings.warn(
                f"ParzenMeanShift: {int((~arrived).sum())} of {len(arrived)} rows were still moving after "
                f"max_iter={self.max_iter} steps. Raise max_iter or step_tol.",
                ConvergenceWarning,
                stacklevel=callers_line(),
            )


def linked_groups(Z: np.ndarray, radius: float, engine: Engine | str | None = None) -> np.ndarray:
    """Number the groups of rows that are linked by steps of at most `radius`, shape (n,).

    Links are processed block by block, so that they are never all in memory: if all rows end in few modes, there
    are about as many links as pairs.
    """
    groups = np.arange(len(Z))
    for one, other, _ in prepare(engine, Z, leave_one_out=True).at().within(radius):
        links = coo_array((np.ones(len(one), dtype=bool), (groups[one], groups[other])), shape=(len(Z), len(Z)))
        groups = connected_components(links, directed=False)[1][groups]
    return np.unique(groups, return_inverse=True)[1]


SEEKING_PASSES = 20  # the approximate number of steps, from which the engine chooses a backend


def seek_modes(
    mixture: Mixture, X: np.ndarray, *, max_iter: int, tol: float, engine: Engine | str | None = None
) -> tuple[np.ndarray, int, np.ndarray]:
    """Follow each row of X uphill until its step is shorter than `tol`, in units of the kernels.

    Parameters
    ----------
    mixture : Mixture
    X : array of shape (m, D)
    engine : Engine, optional
        The engine for the steps, if it is not that of the mixture.

    Returns
    -------
    modes : array of shape (m, D)
    n_iter : int
        The largest number of steps of any row.
    converged : boolean array of shape (m,)
    """
    units = mixture.kernel_units
    placed = mixture.placement(len(X), SEEKING_PASSES, engine=engine)
    modes = np.array(X, dtype=np.float64)
    moving = np.arange(len(modes))
    n_iter = 0
    while len(moving) and n_iter < max_iter:
        n_iter += 1
        steps = mixture.mean_shift(modes[moving], placed)
        modes[moving] += steps
        lengths = np.linalg.norm(steps * units if units.ndim == 1 else steps @ units.T, axis=1)
        moving = moving[lengths > tol]
    converged = np.ones(len(modes), dtype=bool)
    converged[moving] = False
    return modes, n_iter, converged
