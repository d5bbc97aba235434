"""
A plane of digits that a network learns
=======================================

:class:`vicinal.NCA` learns a matrix, and no plane of a matrix holds ten classes of digits apart. :class:`vicinal.NeuralNCA` maximises the
same likelihood with a network. Digits that neither has seen are drawn in both planes.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from vicinal import NCA, Adam, NeuralNCA, SoftNeighborsClassifier

X, y = load_digits(return_X_y=True)
X, X_new, y, y_new = train_test_split(X, y, train_size=700, test_size=500, stratify=y, random_state=0)

# %%
# Both get the same 700 digits. The network holds out some of them to stop early.

matrix = NCA(2, objective="likelihood", max_iter=100, tol=1e-3, random_state=0).fit(X, y)
network = NeuralNCA(
    2, solver=Adam(batch_size=128, learning_rate=0.005, early_stopping=True), tol=1e-2, random_state=0
).fit(X, y)

# %%
# The shares of new digits whose class is predicted from all neighbours in the plane stand above the pictures.

figure, axes = plt.subplots(1, 2, figsize=(10, 4.8), layout="constrained")
for ax, name, metric in zip(axes, ("a matrix", "a network"), (matrix, network), strict=True):
    right = SoftNeighborsClassifier(metric).fit(X, y).score(X_new, y_new)
    Z = metric.transform(X_new)
    for digit in range(10):
        ax.scatter(*Z[y_new == digit].T, s=18, marker=f"${digit}$", color=plt.get_cmap("tab10")(digit))
    ax.set(title=f"{name}: {right:.0%} of new digits", xticks=[], yticks=[])
plt.show()
