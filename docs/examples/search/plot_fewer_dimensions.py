"""
Better neighbours in fewer dimensions
=====================================

Every dimension of an index costs memory and time. Principal components preserve variance, whereas :class:`vicinal.NCA`
preserves the directions that distinguish the classes. The curves show how many of the ten nearest stored pictures show the
same digit as the query, for queries that were not used for learning.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from sklearn.neighbors import NearestNeighbors

from vicinal import NCA

X, digit = load_digits(return_X_y=True)
stored, queries, y_stored, y_queries = train_test_split(X / 16, digit, test_size=0.5, random_state=0, stratify=digit)


def precision(rows, new):
    near = NearestNeighbors(n_neighbors=10).fit(rows).kneighbors(new, return_distance=False)
    return (y_stored[near] == y_queries[:, None]).mean()


sizes = [2, 4, 8, 16, 32]
curves = {"PCA": [], "NCA": []}
for size in sizes:
    pca = PCA(size, random_state=0).fit(stored)
    nca = NCA(size, init="pca", max_iter=60, tol=3e-3, random_state=0).fit(stored, y_stored)
    for name, model in (("PCA", pca), ("NCA", nca)):
        curves[name].append(precision(model.transform(stored), model.transform(queries)))

fig, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
for name, marker in (("PCA", "o"), ("NCA", "s")):
    ax.plot(sizes, curves[name], marker=marker, label=name)
ax.axhline(precision(stored, queries), color="black", linestyle="--", label="all 64 columns")
ax.set_xscale("log", base=2)
ax.set_xticks(sizes, [str(size) for size in sizes])
ax.set_xlabel("dimensions")
ax.set_ylabel("precision@10")
ax.legend()
