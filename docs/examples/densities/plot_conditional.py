"""
Predict one column from another
===============================

A density of several columns also contains all conditional densities. ``conditional`` fixes some columns and returns the
exact density of the others, again with ``sample``, ``score_samples`` and ``marginal``. The fit has not used the
species, but nevertheless finds two likely widths for a petal length of 4.8 cm.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_iris

from vicinal import LCA
from vicinal.plot import plot_density

iris = load_iris(as_frame=True)
petals = iris.data[["petal length (cm)", "petal width (cm)"]]
lca = LCA().fit(petals + np.random.default_rng(0).uniform(-0.05, 0.05, size=petals.shape))  # measured to 0.1 cm

fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
plot_density(lca, petals, ax=left)
width = np.linspace(0, 2.8, 200)
for length, colour in ((1.5, "#0b6e6e"), (4.8, "#b8860b"), (6.0, "#c8102e")):
    left.axvline(length, color=colour, linestyle="--")
    given = lca.conditional({"petal length (cm)": length})
    right.plot(width, np.exp(given.score_samples(width[:, None])), color=colour, label=f"length {length} cm")
right.set_xlabel("petal width (cm)")
right.set_ylabel("density, given the length")
right.legend()
