"""
Unusual combinations of common values
=====================================

Each planted row takes every column from a different wine. No single column of these rows is unusual, so a method that
looks at one column at a time cannot find them. :class:`vicinal.LCA` learns which columns are correlated among neighbours and
scores each row under the density of all others.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.ensemble import IsolationForest
from sklearn.metrics import RocCurveDisplay
from sklearn.preprocessing import StandardScaler

from vicinal import LCA, DensityOutlierDetector, ParzenWindows

wines = StandardScaler().fit_transform(load_wine().data)
rng = np.random.default_rng(0)
planted = rng.permuted(wines, axis=0)[:20]
X, is_planted = np.concatenate([wines, planted]), np.arange(len(wines) + 20) >= len(wines)

scores = {
    "LCA": -DensityOutlierDetector(LCA()).fit(X).training_scores_,
    "one kernel width": -DensityOutlierDetector(ParzenWindows("loo")).fit(X).training_scores_,
    "isolation forest": -IsolationForest(random_state=0).fit(X).score_samples(X),
}
fig, ax = plt.subplots(figsize=(6, 5.5), layout="constrained")
for name, score in scores.items():
    RocCurveDisplay.from_predictions(is_planted, score, name=name, ax=ax)
ax.plot([0, 1], [0, 1], color="black", linestyle=":")
ax.set_xlabel("share of the real wines that are flagged")
ax.set_ylabel("share of the planted rows that are flagged")
