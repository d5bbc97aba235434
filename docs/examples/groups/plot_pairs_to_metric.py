"""
A metric from forty pairs
=========================

The wines have no labels, but forty pairs of wines are known to belong together. :class:`vicinal.RCA` scales down the
directions along which the wines of a pair differ. The curves show the share of the first k neighbours of a wine that come
from its own cultivar, for wines that were in no pair.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

from vicinal import RCA
from vicinal.plot import plot_purity

X, cultivar = load_wine(return_X_y=True)
scaler = StandardScaler().fit(X)

rng = np.random.default_rng(0)
pairs = []
while len(pairs) < 40:
    i, j = rng.integers(len(X), size=2)
    if i != j and cultivar[i] == cultivar[j]:
        pairs.append((i, j))
rca = RCA().fit(X, np.array(pairs))
others = np.setdiff1d(np.arange(len(X)), pairs)

fig, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
plot_purity(X[others], cultivar[others], {"standardised": scaler, "RCA, 40 pairs": rca}, ax=ax)
print(rca.chunklet_report_)
