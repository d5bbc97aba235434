"""
Classify by densities
=====================

:class:`vicinal.DensityClassifier` fits one density to each class and applies Bayes' rule. The colour shows the
probability of the class, which is 1/2 where both densities are equally high. Any density can be used; here one that
follows the two curved classes.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.mixture import GaussianMixture

from vicinal import DensityClassifier, ManifoldParzen

X, y = make_moons(300, noise=0.15, random_state=0)
test, y_test = make_moons(2000, noise=0.15, random_state=1)
grid = np.stack(np.meshgrid(np.linspace(-1.8, 2.8, 100), np.linspace(-1.4, 1.9, 100)), axis=-1)

fig, axes = plt.subplots(1, 2, figsize=(11, 4.3), sharex=True, sharey=True, layout="constrained")
densities = {"one Gaussian per class": GaussianMixture(1), "Manifold Parzen": ManifoldParzen(1, 12)}
for ax, (name, density) in zip(axes, densities.items(), strict=True):
    classifier = DensityClassifier(density).fit(X, y)
    probability = classifier.predict_proba(grid.reshape(-1, 2))[:, 1].reshape(100, 100)
    shade = ax.contourf(*np.moveaxis(grid, -1, 0), probability, np.linspace(0, 1, 11), cmap="BrBG", alpha=0.6)
    for label, marker in ((0, "o"), (1, "s")):
        ax.scatter(
            *X[y == label].T, s=20, marker=marker, color=("#5c3a06", "#00413a")[label], edgecolor="white", linewidth=0.5
        )
    ax.set_title(f"{name}: accuracy {classifier.score(test, y_test):.3f}")
fig.colorbar(shade, ax=axes, label="probability of the second class")
