"""Isomap in LCA's metric: a rolled-up sheet, mixed with columns of noise.

    python examples/isomap_on_lca.py

The data are a roll in three dimensions with two columns of noise of the same width, and all columns are mixed. In the raw,
standardised or whitened coordinates, Isomap's neighbour graph takes short cuts through the noise. In LCA's coordinates, where
neighbourhoods are round, it follows the sheet. The script prints the rank correlation of an Isomap coordinate with the true
position along the roll (1 is perfect).
"""

import warnings

import numpy as np
from scipy.stats import spearmanr
from sklearn.decomposition import PCA
from sklearn.manifold import Isomap
from sklearn.preprocessing import StandardScaler

from vicinal import LCA


def mixed_roll(n, random_state=0):
    rng = np.random.default_rng(random_state)
    along = rng.uniform(1.5 * np.pi, 4.5 * np.pi, size=n)
    roll = np.c_[along * np.cos(along), along * np.sin(along), rng.uniform(0, 10, size=n)]
    roll = roll + 0.05 * rng.normal(size=(n, 3))
    rows = np.c_[roll / roll.std(axis=0), rng.normal(size=(n, 2))]
    return rows @ rng.normal(size=(5, 5)), along


def quality(Z, along):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Isomap warns that it connects the pieces of the graph
        image = Isomap(n_neighbors=10, n_components=2).fit_transform(Z)
    return max(abs(spearmanr(column, along).statistic) for column in image.T)


def compare(n=800):
    X, along = mixed_roll(n)
    images = {
        "raw": X,
        "standardised": StandardScaler().fit_transform(X),
        "whitened": PCA(whiten=True).fit_transform(X),
        "LCA": LCA().fit_transform(X),
    }
    return {name: quality(Z, along) for name, Z in images.items()}


if __name__ == "__main__":
    for name, correlation in compare().items():
        print(f"{name:14s} {correlation:.3f}")
