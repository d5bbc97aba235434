"""
The same rows under three kernels
=================================

A kernel density places a small kernel on every row. With Scott's rule the kernel has the shape of the whole table, and
with a single width chosen by leave-one-out it is round. :class:`vicinal.LCA` learns its shape from neighbours: thin and
slanted, like the bars.
"""

import matplotlib.pyplot as plt

from vicinal import LCA, ParzenWindows
from vicinal.datasets import make_slanted_bars
from vicinal.plot import plot_density

X, _ = make_slanted_bars(300, random_state=0)
new, _ = make_slanted_bars(2000, random_state=1)

fig, axes = plt.subplots(1, 3, figsize=(12, 4), sharex=True, sharey=True, layout="constrained")
for ax, (name, density) in zip(
    axes, {"Scott's rule": ParzenWindows("scott"), "one width": ParzenWindows("loo"), "LCA": LCA()}.items(), strict=True
):
    density.fit(X)
    plot_density(density, X, ax=ax, resolution=160)
    ax.set_title(f"{name}: {density.score(new):.2f} nats per new row")
