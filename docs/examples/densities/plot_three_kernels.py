"""
The same rows under three kernels
=================================

A kernel density puts a small hill on every row. Scott's rule and a width chosen by leave-one-out make round hills or
hills of the shape of the whole table. :class:`vicinal.LCA` learns the shape from neighbours: thin and slanted, as the
bars are.
"""

import matplotlib.pyplot as plt

from vicinal import LCA, ParzenWindows
from vicinal.datasets import make_slanted_bars
from vicinal.plot import plot_density

X, _ = make_slanted_bars(300, random_state=0)
new, _ = make_slanted_bars(2000, random_state=1)

fig, axes = plt.subplots(1, 3, figsize=(12, 4), sharex=True, sharey=True, layout="constrained")
for ax, (name, density) in zip(
    axes, {"Scott's rule": ParzenWindows("scott"), "one width": ParzenWindows(), "LCA": LCA()}.items(), strict=True
):
    density.fit(X)
    plot_density(density, X, ax=ax, resolution=160)
    ax.set_title(f"{name}: {density.score(new):.2f} nats per new row")
