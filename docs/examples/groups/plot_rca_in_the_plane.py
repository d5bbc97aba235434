"""
What RCA does
=============

Lines connect pairs of rows that belong together. The rows of a pair differ mostly in one direction, which is therefore
irrelevant. :class:`vicinal.RCA` shrinks that direction until the pairs differ by the same amount in all directions. This
separates two groups that overlapped, although the pairs do not say which group they belong to.
"""

import matplotlib.pyplot as plt
import numpy as np

from vicinal import RCA

rng = np.random.default_rng(0)
centres = np.repeat([[-1.0, 0.4], [1.0, -0.4]], 60, axis=0)
group = np.repeat([0, 1], 60)
shear = np.array([[2.2, 1.9], [0.0, 0.35]])
X = centres + rng.normal(size=(120, 2)) @ shear
pairs = np.array([(start + i, start + i + 30) for start in (0, 60) for i in range(10)])
rca = RCA(shrinkage=0).fit(X, pairs)  # as in the paper: with 20 pairs in 2 columns nothing has to be shrunk

fig, axes = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
for ax, (name, Z) in zip(axes, {"the rows, and 20 pairs": X, "after RCA": rca.transform(X)}.items(), strict=True):
    for i, j in pairs:
        ax.plot(*Z[[i, j]].T, color="#888888", linewidth=0.8)
    for label, marker in ((0, "o"), (1, "s")):
        ax.scatter(*Z[group == label].T, s=22, marker=marker)
    ax.set_title(name)
    ax.set_aspect("equal")
