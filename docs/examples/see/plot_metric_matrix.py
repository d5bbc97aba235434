"""
A metric as a matrix
====================

A learned metric is more than a weight per column: it also says which differences count *together*. The entries beside
the diagonal are negative where two columns usually move in the same direction, so that a difference which both share
counts for little, and a difference in only one of them counts for much.
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
