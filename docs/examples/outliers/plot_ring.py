"""
Outliers with p-values
======================

:class:`vicinal.DensityOutlierDetector` labels a row an outlier when its density is low. The middle of a ring is close to
the mean, and each of its coordinates is common, but no row lies near it. The p-value of a point is the share of training
rows, each scored without itself, that are at least as unusual.
"""

import matplotlib.pyplot as plt
import numpy as np

from vicinal import DensityOutlierDetector

rng = np.random.default_rng(0)
angle = rng.uniform(0, 2 * np.pi, size=400)
ring = np.column_stack([np.cos(angle), np.sin(angle)]) + 0.08 * rng.normal(size=(400, 2))
detector = DensityOutlierDetector().fit(ring)

grid = np.stack(np.meshgrid(np.linspace(-1.8, 1.8, 90), np.linspace(-1.8, 1.8, 90)), axis=-1)
p_values = detector.p_values(grid.reshape(-1, 2)).reshape(90, 90)

fig, ax = plt.subplots(figsize=(6.5, 5.5), layout="constrained")
levels = [0, 0.01, 0.05, 0.2, 0.5, 1]
colours = ["#ffffff", "#d9efee", "#a5d6d3", "#5faea9", "#0b6e6e"]
filled = ax.contourf(*np.moveaxis(grid, -1, 0), p_values, levels, colors=colours)
ax.scatter(*ring.T, s=6, color="black", alpha=0.5)
new = np.array([[1.0, 0.0], [0.0, 0.0], [1.4, 1.2]])
ax.scatter(*new.T, s=90, marker="X", color="#c8102e", edgecolor="white")
for place, p in zip(new, detector.p_values(new), strict=True):
    offset, side = ((-8, 8), "right") if place[0] > 1.2 else ((8, 8), "left")  # labels stay inside the picture
    ax.annotate(f"p = {p:.3f}", place, offset, textcoords="offset points", ha=side, color="#c8102e", weight="bold")
ax.set_aspect("equal")
fig.colorbar(filled, ax=ax, label="p-value")
