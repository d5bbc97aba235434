"""Spectral clustering in LCA's metric, as irrelevant dimensions are added (the protocol of the LCA paper, Fig. 3).

    python examples/spectral_clustering_on_lca.py

The data are whitened, which shrinks the direction that holds the clusters, and columns of white noise are added. The
same spectral clustering is then applied to the whitened rows, LCA's coordinates, and LCA-Gauss's local subspace.
"""

import warnings

from sklearn.cluster import SpectralClustering

from vicinal import LCA, LCAGauss, datasets
from vicinal.quality import clustering_accuracy


def cluster(Z, n_clusters):
    spectral = SpectralClustering(n_clusters, affinity="nearest_neighbors", n_neighbors=10, random_state=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Graph is not fully connected")
        return spectral.fit_predict(Z)


def compare(X, y, n_noise):
    """Return the accuracy on whitened rows, LCA's coordinates and LCA-Gauss's subspace, and that subspace's dimension."""
    noisy = datasets.add_noise_dimensions(X, n_noise, random_state=0)
    gauss = LCAGauss(reduce=True).fit(noisy)
    images = [noisy, LCA().fit_transform(noisy), gauss.transform(noisy) if gauss.n_components_ else noisy]
    return [*(clustering_accuracy(y, cluster(Z, len(set(y)))) for Z in images), gauss.n_components_]


def main():
    problems = {
        "two Gaussians": datasets.make_two_gaussians(400, random_state=0),
        "two circles": datasets.make_two_circles(400, random_state=0),
        "five Gaussians": datasets.make_five_gaussians(400, random_state=0),
    }
    print(f"{'':16s}{'noise':>6s}{'whitened':>10s}{'LCA':>8s}{'LCAGauss':>10s}{'directions':>12s}")
    for name, (X, y) in problems.items():
        for n_noise in (0, 4, 8):
            plain, lca, local, found = compare(X, y, n_noise)
            print(f"{name:16s}{n_noise:6d}{plain:10.2f}{lca:8.2f}{local:10.2f}{found:12d}")


if __name__ == "__main__":
    main()
