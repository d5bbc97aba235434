"""
Clusters as the modes of a density
==================================

:class:`vicinal.ParzenMeanShift` moves every row uphill along the density; rows that reach the same mode form a cluster.
The number of clusters follows from the density and need not be chosen. The bandwidth with the largest likelihood has too
many modes for this purpose, so a wider one is used.
"""

import matplotlib.pyplot as plt
import numpy as np

from vicinal import ParzenMeanShift, ParzenWindows
from vicinal.plot import plot_density

rng = np.random.default_rng(0)
tilted = rng.normal(size=(120, 2)) @ [[1.2, 0.8], [0.0, 0.4]]
X = np.vstack([tilted, rng.normal(size=(80, 2)) * 0.6 + [4, 0], rng.normal(size=(60, 2)) * 0.5 + [2, 4]])

shift = ParzenMeanShift(ParzenWindows(0.6)).fit(X)
fig, ax = plt.subplots(figsize=(7, 5), layout="constrained")
plot_density(ParzenWindows(0.6).fit(X), ax=ax)
for label in range(len(shift.cluster_centers_)):
    ax.scatter(*X[shift.labels_ == label].T, s=16, color=f"C{label + 1}", edgecolor="white", linewidth=0.4)
ax.scatter(*shift.cluster_centers_.T, s=200, marker="*", color="black", edgecolor="white")
ax.set_title(f"{len(shift.cluster_centers_)} clusters, found by mean shift")
