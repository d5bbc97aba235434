"""
Groups of outliers
==================

Outliers in the training rows often form groups, for example because of a broken sensor or a wrong unit. With a narrow
kernel, the members of a tight group have the highest densities of all rows. The detector therefore also uses the distance
to the k-th nearest row, where k is the fraction ``largest_group`` of the rows, and the more unusual of the two scores.
"""

import matplotlib.pyplot as plt
import numpy as np

from vicinal import DensityOutlierDetector

rng = np.random.default_rng(0)
group = 0.15 * rng.normal(size=(20, 2)) + [4.5, 3.0]
X = np.vstack([rng.normal(size=(300, 2)), group])

fig, axes = plt.subplots(1, 2, figsize=(10, 4.6), sharey=True, layout="constrained")
for ax, largest_group in zip(axes, (None, 0.1), strict=True):
    found = DensityOutlierDetector(largest_group=largest_group, contamination=0.08).fit(X).labels_ == -1
    ax.scatter(*X[~found].T, s=14, color="#7f9c9b", label="normal")
    ax.scatter(*X[found].T, s=30, marker="X", color="#c8102e", label="outlier")
    ax.set_title(f"largest_group={largest_group}: {found[300:].sum()} of the 20 found")
    ax.set_aspect("equal")
axes[0].legend(loc="upper left")
