"""
Find duplicates
===============

Records of the same item are never exactly equal. A few groups that were merged by hand show how copies differ, and
:class:`vicinal.RCA` learns to ignore these differences. Afterwards the cosine separates copies from unrelated pairs, and a
threshold can be read off the picture.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, normalize

from vicinal import RCA

rng = np.random.default_rng(1)
thing = np.repeat(np.arange(400), 3)  # three records of each thing
noise = rng.normal(size=(1200, 12)) @ rng.normal(size=(12, 64)) * 2.0  # how records of one thing differ
vectors = rng.normal(size=(400, 64))[thing] + noise
merged = np.where(thing < 150, thing, -1)  # -1 means that the group is unknown

adapter = make_pipeline(Normalizer(), RCA(shrinkage="cv"), Normalizer()).fit(vectors, merged)

new = np.flatnonzero(merged < 0)
first, second = (places.ravel() for places in np.triu_indices(len(new), 1))
alike = thing[new[first]] == thing[new[second]]
fig, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
for ax, name, Z in zip(
    axes, ("raw vectors", "after RCA"), (normalize(vectors), adapter.transform(vectors)), strict=True
):
    cosine = (Z[new] @ Z[new].T)[first, second]
    bins = np.linspace(-1, 1, 60)
    ax.hist(cosine[~alike], bins, density=True, alpha=0.7, label="two different things")
    ax.hist(cosine[alike], bins, density=True, alpha=0.7, label="two records of one thing")
    ax.set_title(name)
    ax.set_xlabel("cosine of a pair of records that was in no group")
axes[0].set_ylabel("density")
axes[0].legend()
