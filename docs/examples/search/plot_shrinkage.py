"""
Shrinkage for few pairs
=======================

``RCA(shrinkage="cv")`` mixes the metric learned from pairs with the raw one and chooses the share by how well held-out rows
find their partners. It uses the share closest to the raw metric that is within one standard error of the best.
``shrinkage_path_`` lists all shares that were tried, with their scores.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.preprocessing import normalize

from vicinal import RCA

rng = np.random.default_rng(0)
topic = np.repeat(np.arange(300), 2)
loud = rng.normal(size=(600, 12)) @ rng.normal(size=(12, 64)) * 0.9
vectors = normalize(rng.normal(size=(300, 64))[topic] + loud + 0.3 * rng.normal(size=(600, 64)))
pairs = np.arange(600).reshape(300, 2)

fig, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
for n_pairs, colour in ((20, "C0"), (60, "C1"), (200, "C2")):
    rca = RCA(shrinkage="cv").fit(vectors, pairs[:n_pairs])
    shares, scores, _ = rca.shrinkage_path_.T
    ax.plot(shares, scores, marker=".", color=colour, label=f"{n_pairs} pairs")
    ax.axvline(rca.shrinkage_, color=colour, linestyle=":")
ax.set_xlabel("share of the raw metric (dotted: the one that is chosen)")
ax.set_ylabel("held-out score")
ax.legend()
