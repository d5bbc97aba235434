"""
A metric as a matrix
====================

A learned metric is more than one weight per column: it also describes how differences in two columns *combine*. The
off-diagonal entries are negative if two columns usually vary in the same direction, so that equal differences in both
count for little, and a difference in only one of them counts for much.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_iris
from sklearn.preprocessing import StandardScaler

from vicinal import LCA
from vicinal.plot import plot_metric

iris = load_iris(as_frame=True)
X = StandardScaler().set_output(transform="pandas").fit_transform(iris.data)
lca = LCA().fit(X)

fig, ax = plt.subplots(figsize=(6.5, 5), layout="constrained")
plot_metric(lca, X, ax=ax)
