"""
k-means after learning a metric
===============================

k-means looks for round clusters. The clusters of the iris flowers are elongated in the same direction, because the
measurements are correlated. :class:`vicinal.LCA` learns this without labels and makes the clusters round.
"""

import matplotlib.pyplot as plt
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris
from sklearn.preprocessing import StandardScaler

from vicinal import LCA
from vicinal.plot import plot_embedding
from vicinal.quality import clustering_accuracy

X, species = load_iris(return_X_y=True)
Z = StandardScaler().fit_transform(X)
lca = LCA().fit(Z)

fig, axes = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
for ax, (name, rows) in zip(axes, {"standardised columns": Z, "after LCA": lca.transform(Z)}.items(), strict=True):
    clusters = KMeans(3, n_init=10, random_state=0).fit_predict(rows)
    plot_embedding(rows, species, ax=ax)
    ax.set_title(f"{name}: k-means {clustering_accuracy(species, clusters):.0%} right")
