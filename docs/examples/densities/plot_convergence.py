"""
Did the fit converge?
=====================

Every iterative estimator stores its objective after each pass over the pairs. A dot at the end of a curve means that
the fit converged, a cross that it was stopped before. The accelerated solver reaches the same maximum as the EM steps
of the paper in fewer passes.
"""

import warnings

import matplotlib.pyplot as plt
from sklearn.exceptions import ConvergenceWarning

from vicinal import LCA
from vicinal.datasets import make_anisotropic_mixture
from vicinal.plot import plot_path

X = make_anisotropic_mixture(500, n_features=6, random_state=0).data
with warnings.catch_warnings():
    warnings.simplefilter("ignore", ConvergenceWarning)  # the third fit is stopped early on purpose
    fits = {
        "EM": LCA(reg=0, solver="em").fit(X),
        "accelerated": LCA(reg=0, solver="accelerated").fit(X),
        "EM, max_iter=5": LCA(reg=0, solver="em", max_iter=5).fit(X),
    }

fig, ax = plt.subplots(figsize=(7.5, 4.5), layout="constrained")
plot_path(fits, ax=ax)
ax.set_ylim(-3.25, -2.83)  # the first two passes start below -5

for name, fit in fits.items():
    print(f"{name:<15} {fit.n_iter_:3d} passes, converged: {fit.converged_}, {fit.objectives_[-1]:.5f} nats per row")
