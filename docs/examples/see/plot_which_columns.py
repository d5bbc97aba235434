"""
Which columns contribute to the distance?
=========================================

With ``structure="diag"``, :class:`vicinal.NCA` learns one weight per column, and ``feature_relevance_`` is the share of
each column in the mean squared distance. A penalty sets the weights of columns that do not help to nearly zero.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from vicinal import NCA, Objective

data = load_breast_cancer()
X = StandardScaler().fit_transform(data.data)
objective = Objective("likelihood", penalty=0.01)
nca = NCA(objective=objective, structure="diag", max_iter=200).fit(X, data.target)

order = np.argsort(nca.feature_relevance_)[-9:]
fig, ax = plt.subplots(figsize=(8, 4.5), layout="constrained")
ax.barh(data.feature_names[order], 100 * nca.feature_relevance_[order], color="#0b6e6e")
ax.set_xlabel("share of the squared distance, in %")
ax.set_title("which columns distinguish malignant tumours")
ax.spines[["top", "right"]].set_visible(False)

# %%
# The nine columns shown account for nearly all of the distance; the other twenty-one could be dropped.

print(f"the nine columns: {nca.feature_relevance_[order].sum():.0%} of the distance")
