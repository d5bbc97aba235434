"""
A different metric at every point
=================================

If the data are curved, one metric for all rows is a compromise. :class:`vicinal.LocalLCA` gives every row its own metric,
from the scatter of its vicinity. Each ellipse below consists of points at equal distance from its centre: long along
the curve, short across it.
"""

import matplotlib.pyplot as plt

from vicinal import LCA, LocalLCA
from vicinal.datasets import make_spiral
from vicinal.plot import metric_field

X, _ = make_spiral(250, noise_std=0.02, random_state=0)
new, _ = make_spiral(2000, noise_std=0.02, random_state=1)
local = LocalLCA(n_components=1, n_neighbors=10).fit(X)

fig, ax = plt.subplots(figsize=(6.5, 6), layout="constrained")
metric_field(local, X, ax=ax)
ax.set_title("the metric of LocalLCA along a spiral")

# %%
# Rows that were not used for the fit have a higher density under LocalLCA:

print(f"held-out log-density per row: LCA {LCA().fit(X).score(new):.2f}, LocalLCA {local.score(new):.2f}")
