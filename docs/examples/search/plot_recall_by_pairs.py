"""
How many pairs does a search need?
==================================

An embedding that cannot be retrained encodes some differences that do not matter for your task. Pairs that belong
together show which ones. :class:`vicinal.RCA` learns a map from the pairs. With few pairs, the covariance within pairs is
mostly noise; ``shrinkage="cv"`` detects this and then keeps the raw metric.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from vicinal import RCA, retrieval

rng = np.random.default_rng(0)
topic = np.repeat(np.arange(400), 2)
loud = rng.normal(size=(800, 12)) @ rng.normal(size=(12, 64)) * 0.9  # has nothing to do with the topic
vectors = rng.normal(size=(400, 64))[topic] + loud + 0.3 * rng.normal(size=(800, 64))
pairs = np.arange(800).reshape(400, 2)
held_out = pairs[300:]

budgets = [5, 10, 20, 40, 80, 160, 300]
curves = {0: [], "cv": []}
for budget in budgets:
    for shrinkage, curve in curves.items():
        adapter = make_pipeline(Normalizer(), RCA(shrinkage=shrinkage), Normalizer())
        with warnings.catch_warnings():
            # Without shrinkage, few pairs support few directions, and a warning says so.
            warnings.filterwarnings("ignore", message=".*directions are kept")
            adapter.fit(vectors, pairs[:budget])
        found = retrieval.evaluate(held_out[:, 0], vectors, held_out, model=adapter)
        curve.append(found.mean["recall@10"])
raw = retrieval.evaluate(held_out[:, 0], vectors, held_out).mean["recall@10"]

fig, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
ax.axhline(raw, color="black", linestyle="--", label="raw cosine")
ax.plot(budgets, curves[0], marker="o", label="RCA without shrinkage (the paper)")
ax.plot(budgets, curves["cv"], marker="s", label='RCA(shrinkage="cv")')
ax.set_xscale("log")
ax.set_xticks(budgets, [str(budget) for budget in budgets])
ax.minorticks_off()
ax.set_ylim(0, 1.03)
ax.set_xlabel("pairs to learn from")
ax.set_ylabel("recall@10 of held-out pairs")
ax.legend(loc="lower right")
