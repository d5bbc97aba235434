"""vicinal: learn what "near" means from data, and use it.

Everything here is built from one object, the *vicinity* ``w_ij``: how much
``j`` is a neighbour of ``i``.  Its *scatter* is ::

    S(w) = sum_ij w_ij (x_i - x_j)(x_i - x_j)'
         = X' (D_row + D_col - W - W') X          (differences are never formed)

and the methods differ in two choices only:

+--------------------+----------------------------------+------------------------------+
|                    | scatter POOLED over i:           | scatter LOCAL to i:          |
|                    | one metric                       | a field of metrics           |
+====================+==================================+==============================+
| vicinity FIXED     | RCA                              | Manifold Parzen              |
| (one pass)         | (same chunklet)                  | (k nearest, or a kernel)     |
+--------------------+----------------------------------+------------------------------+
| vicinity ADAPTIVE  | LCA (leave-one-out softmax),     | Local LCA (each point its    |
| (depends on the    | NCA (class-signed softmax)       | own covariance, with a       |
| metric)            |                                  | prior)                       |
+--------------------+----------------------------------+------------------------------+

A metric or a density, once learned, searches, clusters, classifies, scores
and samples with the estimators and tools of scikit-learn.
"""

from importlib import import_module

from vicinal._version import __version__ as __version__

# One re-export list.  Modules load on first use: `import vicinal` imports
# neither numba, torch nor matplotlib, nor scikit-learn's estimators.
_HOME = {
    "Adam": "_nca.options",
    "BinnedTargetMetric": "_rca.binned_target_metric",
    "ChunkletReport": "_supervision",
    "ChunkletRows": "_supervision",
    "Comparison": "_compare.results",
    "ConstrainedGaussianMixture": "_rca.constrained_mixture",
    "ConstrainedKMeans": "_rca.constrained_kmeans",
    "DensityClassifier": "_density.classifier",
    "DensityOutlierDetector": "_density.outliers",
    "Engine": "_engine",
    "LCA": "_lca.lca",
    "LCAGauss": "_lca.lca_gauss",
    "LocalLCA": "_lca.local_lca",
    "ManifoldParzen": "_manifold_parzen.manifold_parzen",
    "MMC": "_rca.mmc",
    "MultiStart": "_nca.options",
    "NCA": "_nca.nca",
    "Objective": "_nca.options",
    "OnlineRCA": "_rca.online_rca",
    "NeuralNCA": "_nca.neural_nca",
    "PairNCA": "_nca.pair_nca",
    "ParzenMeanShift": "_density.parzen_mean_shift",
    "ParzenWindows": "_density.parzen",
    "RCA": "_rca.rca",
    "Selection": "_density.selection",
    "Report": "_report",
    "SoftNeighborsClassifier": "_nca.soft_neighbors",
    "SoftNeighborsRegressor": "_nca.soft_neighbors",
    "StochasticEM": "_lca.options",
    "StochasticGradient": "_nca.options",
    "chunklets_from_groups": "_supervision",
    "chunklets_from_labels": "_supervision",
    "chunklets_from_pairs": "_supervision",
    "compare": "_compare.compare",
    "expected_chunklet_size": "_supervision",
    "report": "_report",
    "simulate_chunklets": "_supervision",
    "simulate_pairs": "_supervision",
    "simulate_teachers": "_supervision",
    "which_engine": "_engine",
}
_MODULES = {"datasets", "io", "plot", "quality"}

__all__ = sorted([*_HOME, *_MODULES, "__version__"])


def __getattr__(name):
    if name in _HOME:
        value = getattr(import_module(f"vicinal.{_HOME[name]}"), name)
    elif name in _MODULES:
        value = import_module(f"vicinal.{name}")
    else:
        raise AttributeError(f"module 'vicinal' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__})
