"""
Four methods, two choices
=========================

All methods of vicinal are built from weights that measure how much one row is a neighbour of another. They differ in two
choices: whether the weights are fixed or depend on the metric, and whether their scatter is pooled over all rows or kept
for each row. Each ellipse shows the metric at its centre, at three times the size of the kernel.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Ellipse

from vicinal import LCA, RCA, LocalLCA, ManifoldParzen

rng = np.random.default_rng(0)
angle = np.sort(rng.uniform(0.15 * np.pi, 0.85 * np.pi, size=240))
X = np.column_stack([3 * np.cos(angle), 3 * np.sin(angle)]) + 0.08 * rng.normal(size=(240, 2))
together = np.arange(240) // 6  # for RCA: six rows that follow each other belong together

frames = ManifoldParzen(1, 12).fit(X)
along = np.einsum("nl,nli,nlj->nij", frames.local_variances_, frames.local_frames_, frames.local_frames_)
local = LocalLCA(1, 12).fit(X)
covariances = {
    ("fixed", "pooled", "RCA"): np.broadcast_to(RCA().fit(X, together).covariance_, (240, 2, 2)),
    ("fixed", "local", "Manifold Parzen"): along + frames.noise_ * np.eye(2),
    ("adaptive", "pooled", "LCA"): np.broadcast_to(LCA().fit(X).covariance_, (240, 2, 2)),
    ("adaptive", "local", "Local LCA"): local.local_covariances_,
}

fig, axes = plt.subplots(2, 2, figsize=(10, 5.5), sharex=True, sharey=True, layout="constrained")
for ax, ((vicinity, scatter, name), shapes) in zip(axes.flat, covariances.items(), strict=True):
    ax.scatter(*X.T, s=5, color="#9aa5a5")
    for row in range(8, 240, 16):
        variances, directions = np.linalg.eigh(shapes[row])
        width, height = 6 * np.sqrt(variances[::-1])
        turn = np.degrees(np.arctan2(*directions[::-1, 1]))
        ax.add_patch(Ellipse(X[row], width, height, angle=turn, facecolor="#0b6e6e44", edgecolor="#0b6e6e"))
    ax.set_title(f"{name}: vicinity {vicinity}, scatter {scatter}")
    ax.set_aspect("equal")
