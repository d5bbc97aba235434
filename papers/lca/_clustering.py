"""What clusters in Fig. 3: spectral clustering on a self-tuning graph, as in the code that the paper used."""

import warnings
from collections.abc import Iterator

import numpy as np
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.decomposition import FastICA
from sklearn.metrics import pairwise_distances
from sklearn.neighbors import kneighbors_graph

from vicinal.quality import clustering_accuracy

_GAUSSIAN_SAMPLE = np.random.RandomState(0).standard_normal(100_000)
_CONTRASTS = {
    "logcosh": lambda s: np.log(np.cosh(s)),
    "exp": lambda s: -np.exp(-0.5 * s**2),
    "cube": lambda s: s**4 / 4,
}


def spectral(Z: np.ndarray, n_clusters: int, n_neighbors: int = 20) -> np.ndarray:
    """Run spectral clustering (Chen, Song, Bai, Lin and Chang), with each row tied to its nearest and widths by their distances."""
    graph = kneighbors_graph(Z, n_neighbors, mode="distance")
    width = np.asarray(graph.sum(axis=1)).ravel() / n_neighbors
    ties = graph.maximum(graph.T).tocoo()
    ties.data = np.exp(-(ties.data**2) / (width[ties.row] * width[ties.col]))
    with warnings.catch_warnings():  # clusters that fall apart are what is hoped for
        warnings.filterwarnings("ignore", message="Graph is not fully connected")
        return SpectralClustering(n_clusters, affinity="precomputed", random_state=0).fit_predict(ties.tocsr())


def accuracy(Z: np.ndarray, y: np.ndarray) -> float:
    """Return the accuracy of spectral clustering of the rows of Z, in per cent."""
    return 100 * clustering_accuracy(y, spectral(Z, len(np.unique(y))))


def one_width(Z: np.ndarray, y: np.ndarray, factors: np.ndarray) -> list[float]:
    """Return accuracies of spectral clustering (Ng, Jordan and Weiss) with one width for all pairs, in per cent.

    The width is each of the factors times the median distance between two rows.
    """
    distances = pairwise_distances(Z)
    median = np.median(distances[np.triu_indices(len(Z), 1)])
    found = []
    for factor in factors:
        ties = np.exp(-0.5 * (distances / (factor * median)) ** 2)
        with warnings.catch_warnings():  # a narrow kernel ties nothing
            warnings.filterwarnings("ignore", message="Graph is not fully connected")
            cluster = SpectralClustering(len(np.unique(y)), affinity="precomputed", random_state=0)
            found.append(100 * clustering_accuracy(y, cluster.fit_predict(ties)))
    return found


def k_means(Z: np.ndarray, y: np.ndarray) -> float:
    """Return the accuracy of k-means, in per cent."""
    labels = KMeans(len(np.unique(y)), n_init=10, random_state=0).fit_predict(Z)
    return 100 * clustering_accuracy(y, labels)


def fastica_planes(X: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the two least Gaussian components of FastICA, for each of its three contrast functions."""
    for directions in fastica_directions(X):
        yield (X - X.mean(axis=0)) @ directions.T


def fastica_directions(X: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the directions of the two least Gaussian components of FastICA, for each of its three contrast functions."""
    for name, contrast in _CONTRASTS.items():
        with warnings.catch_warnings():  # Gaussian noise has no independent components to converge to
            warnings.filterwarnings("ignore", message="FastICA did not converge")
            ica = FastICA(fun=name, whiten="unit-variance", random_state=0).fit(X)
        excess = np.abs(contrast(ica.transform(X)).mean(axis=0) - contrast(_GAUSSIAN_SAMPLE).mean())
        yield ica.components_[np.argsort(-excess)[:2]]
