"""K-means that keeps chunklets together (Wagstaff et al. 2001, positive constraints)."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from vicinal._callers import callers_line
from vicinal._checks import check_integer, check_positive
from vicinal._notebook import NotebookMixin
from vicinal._rows import check_array, check_rows
from vicinal._supervision import ChunkletReport, read_partition
from vicinal._tensors import as_given


class ConstrainedKMeans(NotebookMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """K-means with groups of rows (chunklets) that are always assigned to one cluster.

    Minimises :math:`\\sum_i |x_i - \\mu_{c(i)}|^2` over centres and assignments c that are constant on
    chunklets.  For a chunklet of m points with mean :math:`\\bar x` the sum is :math:`m |\\bar x - \\mu|^2`
    plus a constant, so this *is* k-means of the chunklet means, weighted by their sizes. It is computed by scikit-learn's
    :class:`~sklearn.cluster.KMeans`.

    Parameters
    ----------
    n_clusters : int, default=8
        The number of clusters.
    init : {"k-means++", "random"} or array of shape (n_clusters, n_features), default="k-means++"
        The initial centres, or how they are chosen.
    n_init : int, default=10
        The number of runs, of which the best is kept.  There is only one run if the initial centres are given.
    max_iter : int, default=300
        The maximum number of iterations of a run.
    center_tol : float, default=1e-4
        A run stops when the centres move less than this, relative to the variance of the rows.
    random_state : int, RandomState or None, default=None
        The seed of the starts.

    Attributes
    ----------
    cluster_centers_ : array of shape (n_clusters, n_features)
        The centres.
    labels_ : int array of shape (n,)
        The cluster of each training row, which is the same for all rows of a chunklet.
    inertia_ : float
        The sum of squared distances to the assigned centres.
    n_iter_ : int
        The number of iterations of the best run.
    converged_ : bool
        Whether the best run converged.
    chunklet_report_ : ChunkletReport or None
        How ``y`` was interpreted, in counts.
    n_features_in_, feature_names_in_ : int, ndarray of str
        The number of columns of the training rows, and their names if they have names.
    feature_names_in_ : array of shape (n_features,)
        Only when X has string column names.

    See Also
    --------
    ConstrainedGaussianMixture : The same constraints in a mixture.
    RCA : Use the constraints to learn the metric, which helps much more (sec. 8.3 of the RCA paper).

    References
    ----------
    K. Wagstaff, C. Cardie, S. Rogers, S. Schroedl.  Constrained K-means clustering with background
    knowledge.  ICML 2001.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.companions import ConstrainedKMeans
    >>> X = np.array([[0.0], [1.0], [4.0], [9.0], [10.0]])
    >>> kmeans = ConstrainedKMeans(2, random_state=0).fit(X)
    >>> print(np.sort(kmeans.cluster_centers_.ravel()).round(2))
    [1.67 9.5 ]
    >>> kmeans.fit(X, [[2, 3]])                                      # rows 2 and 3 belong together
    ConstrainedKMeans(n_clusters=2, random_state=0)
    >>> print(np.sort(kmeans.cluster_centers_.ravel()).round(2))
    [0.5  7.67]
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "k-means++",
        n_init: int = 10,
        max_iter: int = 300,
        center_tol: float = 1e-4,
        random_state: RandomState | int | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.center_tol = center_tol
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Find the clusters.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            The training rows.
        y : chunklets, as in :meth:`RCA.fit`, default=None
            None is plain k-means.  Chunklets that share a row are joined.

        Returns
        -------
        self
        """
        n_clusters = check_integer(self.n_clusters, "n_clusters")
        n_init = check_integer(self.n_init, "n_init")
        if not isinstance(self.init, str) and not callable(self.init):
            check_array(self.init, input_name="init")
        max_iter = check_integer(self.max_iter, "max_iter")
        center_tol = check_positive(self.center_tol, "center_tol", strict=False)
        X = check_rows(self, X, reset=True)
        group, means, sizes, report = chunklet_means(X, y)
        if len(means) < n_clusters:
            raise ValueError(
                f"n_clusters={n_clusters} needs at least as many separate rows or chunklets, got {len(means)} "
                f"(n_samples={len(X)}). Lower n_clusters or give fewer constraints."
            )
        kmeans = KMeans(
            n_clusters,
            init=self.init,
            n_init=n_init if isinstance(self.init, str) or callable(self.init) else 1,
            max_iter=max_iter,
            tol=center_tol,
            random_state=self.random_state,
        )
        self._kmeans = kmeans.fit(means, sample_weight=sizes)
        self.cluster_centers_ = self._kmeans.cluster_centers_
        self.labels_ = self._kmeans.labels_[group]
        self.inertia_ = float(((X - self.cluster_centers_[self.labels_]) ** 2).sum())
        self.n_iter_ = kmeans.n_iter_
        self.converged_ = bool(kmeans.n_iter_ < max_iter or _is_at_rest(kmeans, means, sizes, center_tol))
        self.chunklet_report_ = report
        if not self.converged_:
            warnings.warn(
                f"ConstrainedKMeans did not converge: max_iter={max_iter} iterations were used; the best centres so far are kept. "
                "Raise max_iter.",
                ConvergenceWarning,
                stacklevel=callers_line(),
            )
        return self

    def fit_predict(self, X: ArrayLike, y: ArrayLike | None = None) -> NDArray[Any]:
        """Find the clusters and return those of the rows; see :meth:`fit`."""
        return self.fit(X, y).labels_

    def fit_transform(self, X: ArrayLike, y: ArrayLike | None = None) -> Any:
        """Find the clusters and return distances to their centres; see :meth:`fit`."""
        return self.fit(X, y).transform(X)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the nearest centre of each row, without constraints."""
        check_is_fitted(self)
        return self._kmeans.predict(self._rows(X))

    def transform(self, X: ArrayLike) -> Any:
        """Return the distance of each row to each centre."""
        check_is_fitted(self)
        return as_given(self._kmeans.transform(self._rows(X)), X)

    def score(self, X: ArrayLike, y: ArrayLike | None = None) -> float:
        """Return minus the sum of squared distances of the rows to their nearest centres."""
        check_is_fitted(self)
        return self._kmeans.score(self._rows(X))

    def _rows(self, X: ArrayLike) -> np.ndarray:
        """Return new rows in the precision of the centres, as scikit-learn's compiled code requires."""
        precision = self.cluster_centers_.dtype
        return check_rows(self, X, reset=False, precision=precision).astype(precision, copy=False)

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)


def chunklet_means(
    X: np.ndarray, y: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, ChunkletReport | None]:
    """Return the group of each row, the mean and size of each group (a row in no chunklet is its own group), and the report."""
    if y is None:
        return np.arange(len(X)), X, None, None
    chunklets, report = read_partition(y, len(X))
    group = chunklets.copy()
    alone = np.flatnonzero(chunklets < 0)
    group[alone] = chunklets.max(initial=-1) + 1 + np.arange(len(alone))
    sizes = np.bincount(group).astype(X.dtype)
    members = csr_array((np.ones(len(X), dtype=X.dtype), (group, np.arange(len(X)))))
    shift = X.mean(axis=0)  # sums of centred rows, so that data far from the origin lose no digits
    return group, (members @ (X - shift)) / sizes[:, None] + shift, sizes, report


def _is_at_rest(kmeans: KMeans, means: np.ndarray, sizes: np.ndarray | None, tol: float) -> bool:
    """Return whether one more iteration would not move the centres by more than the tolerance."""
    weights = np.ones(len(means)) if sizes is None else sizes
    members = csr_array((weights, (kmeans.labels_, np.arange(len(means)))), shape=(kmeans.n_clusters, len(means)))
    moved = (members @ means) / members.sum(axis=1)[:, None] - kmeans.cluster_centers_
    return float((moved**2).sum()) <= tol * float(means.var(axis=0).mean())
