"""K-means in which chunklets stay together (Wagstaff et al. 2001, positive constraints)."""

import warnings

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from vicinal._checks import check_integer, check_positive, check_rows
from vicinal._supervision import read_partition


class ConstrainedKMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """K-means with groups of rows (chunklets) that are always assigned to one cluster.

    Minimises :math:`\\sum_i |x_i - \\mu_{c(i)}|^2` over centres and assignments c that are constant on
    chunklets.  For a chunklet of m points with mean :math:`\\bar x` the sum is :math:`m |\\bar x - \\mu|^2`
    plus a constant, so this *is* k-means of the chunklet means, weighted by their sizes, and scikit-learn's
    :class:`~sklearn.cluster.KMeans` does the work.

    Parameters
    ----------
    n_clusters : int, default=8
    init : {"k-means++", "random"} or array of shape (n_clusters, n_features), default="k-means++"
    n_init : int, default=10
        Restarts; the best is kept.  From given centres there is one run.
    max_iter : int, default=300
    tol : float, default=1e-4
        Movement of the centres, relative to the variance of the rows, at which a run stops.
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    cluster_centers_ : array of shape (n_clusters, n_features)
    labels_ : int array of shape (n,)
        Cluster of each training row, the same all over a chunklet.
    inertia_ : float
        Sum of squared distances to the assigned centres.
    n_iter_ : int
        Iterations of the best run.
    converged_ : bool
    chunklet_report_ : ChunkletReport or None
        What became of ``y``, in counts.
    n_features_in_ : int
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
    >>> from vicinal import ConstrainedKMeans
    >>> X = np.array([[0.0], [1.0], [4.0], [9.0], [10.0]])
    >>> kmeans = ConstrainedKMeans(2, random_state=0).fit(X)
    >>> print(np.sort(kmeans.cluster_centers_.ravel()).round(2))
    [1.67 9.5 ]
    >>> kmeans.fit(X, [[2, 3]])                                      # rows 2 and 3 belong together
    ConstrainedKMeans(n_clusters=2, random_state=0)
    >>> print(np.sort(kmeans.cluster_centers_.ravel()).round(2))
    [0.5  7.67]
    """

    def __init__(self, n_clusters=8, *, init="k-means++", n_init=10, max_iter=300, tol=1e-4, random_state=None):
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def fit(self, X, y=None):
        """Find the clusters.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
        y : chunklets, as in :meth:`RCA.fit`, default=None
            None is plain k-means.  Chunklets that share a row are joined.

        Returns
        -------
        self
        """
        n_clusters = check_integer(self.n_clusters, "n_clusters")
        n_init = check_integer(self.n_init, "n_init")
        max_iter = check_integer(self.max_iter, "max_iter")
        tol = check_positive(self.tol, "tol", strict=False)
        X = check_rows(self, X, reset=True)
        group, means, sizes, report = chunklet_means(X, y)
        if len(means) < n_clusters:
            raise ValueError(
                f"n_clusters={n_clusters} needs as many rows or chunklets to tell apart, got {len(means)} "
                f"(n_samples={len(X)}). Lower n_clusters or give fewer constraints."
            )
        kmeans = KMeans(
            n_clusters,
            init=self.init,
            n_init=n_init if isinstance(self.init, str) or callable(self.init) else 1,
            max_iter=max_iter,
            tol=tol,
            random_state=self.random_state,
        )
        kmeans.fit(means, sample_weight=sizes)
        self._kmeans = kmeans
        self.cluster_centers_ = kmeans.cluster_centers_
        self.labels_ = kmeans.labels_[group]
        self.inertia_ = float(((X - self.cluster_centers_[self.labels_]) ** 2).sum())
        self.n_iter_ = kmeans.n_iter_
        self.converged_ = kmeans.n_iter_ < max_iter or _is_at_rest(kmeans, means, sizes)
        if not self.converged_:
            warnings.warn(
                f"{type(self).__name__} did not converge in max_iter={max_iter} iterations. Raise max_iter.",
                ConvergenceWarning,
                stacklevel=2,
            )
        self.chunklet_report_ = report
        return self

    def fit_predict(self, X, y=None):
        """Find the clusters and return those of the rows; see :meth:`fit`."""
        return self.fit(X, y).labels_

    def fit_transform(self, X, y=None):
        """Find the clusters and return distances to their centres; see :meth:`fit`."""
        return self.fit(X, y).transform(X)

    def predict(self, X):
        """Nearest centre of each row, without constraints."""
        check_is_fitted(self)
        return self._kmeans.predict(check_rows(self, X, reset=False))

    def transform(self, X):
        """Distance of each row to each centre."""
        check_is_fitted(self)
        return self._kmeans.transform(check_rows(self, X, reset=False))

    def score(self, X, y=None):
        """Minus the sum of squared distances of the rows to their nearest centres."""
        check_is_fitted(self)
        return self._kmeans.score(check_rows(self, X, reset=False))

    @property
    def _n_features_out(self):
        return len(self.cluster_centers_)


def chunklet_means(X, y):
    """Group of each row, mean and size of each group (a row in no chunklet is its own), and the report."""
    if y is None:
        return np.arange(len(X)), X, None, None
    chunklets, report = read_partition(y, len(X))
    group = chunklets.copy()
    alone = np.flatnonzero(chunklets < 0)
    group[alone] = chunklets.max(initial=-1) + 1 + np.arange(len(alone))
    sizes = np.bincount(group).astype(X.dtype)
    members = csr_array((np.ones(len(X), dtype=X.dtype), (group, np.arange(len(X)))))
    shift = X.mean(axis=0)  # sums of centred rows: data far from the origin keep their digits
    return group, (members @ (X - shift)) / sizes[:, None] + shift, sizes, report


def _is_at_rest(kmeans, means, sizes):
    """Whether one more round would leave the centres where they are, within the tolerance."""
    weights = np.ones(len(means)) if sizes is None else sizes
    members = csr_array((weights, (kmeans.labels_, np.arange(len(means)))), shape=(kmeans.n_clusters, len(means)))
    moved = (members @ means) / members.sum(axis=1)[:, None] - kmeans.cluster_centers_
    return float((moved**2).sum()) <= kmeans.tol * float(means.var(axis=0).mean())
