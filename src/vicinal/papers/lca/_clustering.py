"""What clusters in Fig. 3: spectral clustering on a self-tuning graph, as in the code that the paper used."""

import warnings

import numpy as np
from sklearn.cluster import SpectralClustering
from sklearn.decomposition import FastICA
from sklearn.neighbors import kneighbors_graph

from vicinal.quality import clustering_accuracy

_GAUSSIAN_SAMPLE = np.random.RandomState(0).standard_normal(100_000)
_CONTRASTS = {
    "logcosh": lambda s: np.log(np.cosh(s)),
    "exp": lambda s: -np.exp(-0.5 * s**2),
    "cube": lambda s: s**4 / 4,
}


def spectral(Z, n_clusters, n_neighbors=20):
    """Spectral clustering (Chen, Song, Bai, Lin and Chang): each row tied to its nearest, widths by their distances."""
    graph = kneighbors_graph(Z, n_neighbors, mode="distance")
    width = np.asarray(graph.sum(axis=1)).ravel() / n_neighbors
    ties = graph.maximum(graph.T).tocoo()
    ties.data = np.exp(-(ties.data**2) / (width[ties.row] * width[ties.col]))
    with warnings.catch_warnings():  # clusters that fall apart are what is hoped for
        warnings.filterwarnings("ignore", message="Graph is not fully connected")
        return SpectralClustering(n_clusters, affinity="precomputed", random_state=0).fit_predict(ties.tocsr())


def accuracy(Z, y):
    """The accuracy of spectral clustering of the rows of Z, in per cent."""
    return 100 * clustering_accuracy(y, spectral(Z, len(np.unique(y))))


def fastica_planes(X):
    """The two least Gaussian components of FastICA, for each of its three contrast functions."""
    for name, contrast in _CONTRASTS.items():
        with warnings.catch_warnings():  # Gaussian noise has no independent components to converge to
            warnings.filterwarnings("ignore", message="FastICA did not converge")
            found = FastICA(fun=name, whiten="unit-variance", random_state=0).fit_transform(X)
        excess = np.abs(contrast(found).mean(axis=0) - contrast(_GAUSSIAN_SAMPLE).mean())
        yield found[:, np.argsort(-excess)[:2]]
