"""
A density that follows a curve
==============================

When rows lie near a curve, round kernels waste most of their mass beside it. :class:`vicinal.ManifoldParzen` places a
flat kernel on every row: wide along the directions in which its neighbours lie, and thin across them.
"""

import matplotlib.pyplot as plt

from vicinal import ManifoldParzen, ParzenWindows
from vicinal.datasets import make_spiral
from vicinal.plot import plot_density

X, _ = make_spiral(300, random_state=0)
new, _ = make_spiral(2000, random_state=1)
# A plain kernel density, and one whose kernels follow one direction of the 12 nearest rows.
densities = {"Parzen windows": ParzenWindows("loo").fit(X), "Manifold Parzen": ManifoldParzen(1, 12).fit(X)}

fig, axes = plt.subplots(1, 2, figsize=(11, 4.6), sharex=True, sharey=True, layout="constrained")
for ax, (name, density) in zip(axes, densities.items(), strict=True):
    plot_density(density, ax=ax, resolution=150)
    ax.set_title(f"{name}: {density.score(new):.2f} nats per new row")
