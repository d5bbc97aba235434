"""
Does a learned metric help here?
================================

:func:`vicinal.compare` cross-validates plain and learned metrics on the same folds. Look at the *difference* from the
best plain metric and its interval: if the interval contains zero, the plain metric is as good, and simpler.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_wine

import vicinal

X, cultivar = load_wine(return_X_y=True, as_frame=True)
names = ["euclidean", "z-scored", "pca-whitened", "lda", "lca", "rca"]
comparison = vicinal.compare(X, cultivar, metrics=names, densities=[], n_repeats=2)

fig, ax = plt.subplots(figsize=(7.5, 4), layout="constrained")
for place, name in enumerate(reversed(names)):
    result = comparison.result("metric", name)
    colour = "#c8102e" if result.learned else "#5f6b6b"
    ax.plot([result.main.low, result.main.high], [place, place], color=colour, linewidth=3)
    ax.plot(result.main.mean, place, "o", color=colour, markersize=8)
ax.set_yticks(range(len(names)), list(reversed(names)))
ax.set_xlabel("accuracy of five neighbours, cross-validated, with 95 % intervals (red: learned)")
ax.spines[["top", "right"]].set_visible(False)

# %%
# The verdict summarises the comparison in words.

print(comparison.verdict)
