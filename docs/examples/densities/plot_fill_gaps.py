"""
Impute missing values from a density
====================================

:class:`vicinal.DensityImputer` replaces a missing value by its mean given the other columns of the row. With
``sample=True`` it draws a value instead, so that the filled table varies as much as the true one. If missing values are
replaced by the mean of the column, all filled rows lie on one line.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_iris
from sklearn.impute import SimpleImputer

from vicinal import DensityImputer

X = load_iris().data[:, [2, 3]]
rng = np.random.default_rng(0)
X = X + rng.uniform(-0.05, 0.05, size=X.shape)  # petals were measured to 0.1 cm
missing = rng.random(len(X)) < 0.3
gaps = X.copy()
gaps[missing, 1] = np.nan

imputers = {
    "mean of the column": SimpleImputer(),
    "mean given the row": DensityImputer(),
    "drawn given the row": DensityImputer(sample=True, random_state=0),
}
fig, axes = plt.subplots(1, 3, figsize=(12, 4), sharex=True, sharey=True, layout="constrained")
for ax, (name, imputer) in zip(axes, imputers.items(), strict=True):
    filled = imputer.fit_transform(gaps)
    error = np.sqrt(np.mean((filled[missing, 1] - X[missing, 1]) ** 2))
    ax.scatter(*X[~missing].T, s=14, color="#9aa5a5", label="known")
    ax.scatter(*filled[missing].T, s=26, marker="X", color="#c8102e", label="filled in")
    ax.set_title(f"{name}: error {error:.2f} cm")
    ax.set_xlabel("petal length (cm)")
axes[0].set_ylabel("petal width (cm)")
axes[0].legend(loc="upper left")
