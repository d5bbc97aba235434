"""vicinal: learn what "near" means from data, and use it.

Every method is built from one object, the *vicinity* ``w_ij``, which says how
much row ``j`` is a neighbour of row ``i``.  Its *scatter* is ::

    S(w) = sum_ij w_ij (x_i - x_j)(x_i - x_j)'
         = X' (D_row + D_col - W - W') X          (differences are never formed)

and the methods differ in only two choices:

+--------------------+----------------------------------+------------------------------+
|                    | scatter POOLED over i:           | scatter LOCAL to i:          |
|                    | one metric                       | a field of metrics           |
+====================+==================================+==============================+
| vicinity FIXED     | RCA                              | Manifold Parzen              |
| (one pass)         | (same chunklet)                  | (k nearest, or a kernel)     |
+--------------------+----------------------------------+------------------------------+
| vicinity ADAPTIVE  | LCA (leave-one-out softmax),     | Local LCA (one covariance    |
| (depends on the    | NCA (class-signed softmax)       | per point, between LCA and   |
| metric)            |                                  | Manifold Parzen)             |
+--------------------+----------------------------------+------------------------------+

A learned metric or density can be used with the estimators and tools of
scikit-learn to search, cluster, classify, score and sample.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vicinal._version import __version__ as __version__

if TYPE_CHECKING:  # for editors and type checkers; a test checks that it equals __all__
    from vicinal import companions as companions
    from vicinal import datasets as datasets
    from vicinal import io as io
    from vicinal import plot as plot
    from vicinal import quality as quality
    from vicinal import results as results
    from vicinal import retrieval as retrieval
    from vicinal import tables as tables
    from vicinal._compare.compare import compare as compare
    from vicinal._density.parzen import ParzenWindows as ParzenWindows
    from vicinal._detect.classifier import DensityClassifier as DensityClassifier
    from vicinal._detect.imputer import DensityImputer as DensityImputer
    from vicinal._detect.mean_shift import ParzenMeanShift as ParzenMeanShift
    from vicinal._detect.outliers import DensityOutlierDetector as DensityOutlierDetector
    from vicinal._engine import Engine as Engine
    from vicinal._engine import which_engine as which_engine
    from vicinal._lca.lca import LCA as LCA
    from vicinal._lca.lca_gauss import LCAGauss as LCAGauss
    from vicinal._lca.penalty import Shrinkage as Shrinkage
    from vicinal._lca.stochastic import StochasticEM as StochasticEM
    from vicinal._local.local_lca import LocalLCA as LocalLCA
    from vicinal._local.manifold_parzen import ManifoldParzen as ManifoldParzen
    from vicinal._nca.anchor_nca import AnchorNCA as AnchorNCA
    from vicinal._nca.nca import NCA as NCA
    from vicinal._nca.neural_nca import NeuralNCA as NeuralNCA
    from vicinal._nca.options import Adam as Adam
    from vicinal._nca.options import Objective as Objective
    from vicinal._nca.options import StochasticGradient as StochasticGradient
    from vicinal._nca.pair_nca import PairNCA as PairNCA
    from vicinal._nca.soft_neighbors import SoftNeighborsClassifier as SoftNeighborsClassifier
    from vicinal._nca.soft_neighbors import SoftNeighborsRegressor as SoftNeighborsRegressor
    from vicinal._rca.online_rca import OnlineRCA as OnlineRCA
    from vicinal._rca.rca import RCA as RCA
    from vicinal._report import report as report
    from vicinal._search import Selection as Selection
    from vicinal._supervision import chunklets_from_groups as chunklets_from_groups
    from vicinal._supervision import chunklets_from_labels as chunklets_from_labels
    from vicinal._supervision import chunklets_from_pairs as chunklets_from_pairs
    from vicinal._tables import Dequantizer as Dequantizer
    from vicinal._tables import TableEncoder as TableEncoder

# One re-export list.  Modules load on first use: `import vicinal` imports
# neither numba, torch nor matplotlib, nor scikit-learn's estimators.
_HOME = {
    "Adam": "_nca.options",
    "AnchorNCA": "_nca.anchor_nca",
    "DensityClassifier": "_detect.classifier",
    "DensityImputer": "_detect.imputer",
    "DensityOutlierDetector": "_detect.outliers",
    "Dequantizer": "_tables",
    "Engine": "_engine",
    "LCA": "_lca.lca",
    "LCAGauss": "_lca.lca_gauss",
    "LocalLCA": "_local.local_lca",
    "ManifoldParzen": "_local.manifold_parzen",
    "NCA": "_nca.nca",
    "Objective": "_nca.options",
    "OnlineRCA": "_rca.online_rca",
    "NeuralNCA": "_nca.neural_nca",
    "PairNCA": "_nca.pair_nca",
    "ParzenMeanShift": "_detect.mean_shift",
    "ParzenWindows": "_density.parzen",
    "RCA": "_rca.rca",
    "Selection": "_search",
    "Shrinkage": "_lca.penalty",
    "SoftNeighborsClassifier": "_nca.soft_neighbors",
    "SoftNeighborsRegressor": "_nca.soft_neighbors",
    "StochasticEM": "_lca.stochastic",
    "StochasticGradient": "_nca.options",
    "TableEncoder": "_tables",
    "chunklets_from_groups": "_supervision",
    "chunklets_from_labels": "_supervision",
    "chunklets_from_pairs": "_supervision",
    "compare": "_compare.compare",
    "report": "_report",
    "which_engine": "_engine",
}
_MODULES = {"companions", "datasets", "io", "plot", "quality", "results", "retrieval", "tables"}

__all__ = sorted([*_HOME, *_MODULES, "__version__"])


if not TYPE_CHECKING:  # a __getattr__ would make every name known to type checkers

    def __getattr__(name: str) -> Any:
        if name in _HOME:
            value = getattr(import_module(f"vicinal.{_HOME[name]}"), name)
        elif name in _MODULES:
            value = import_module(f"vicinal.{name}")
        else:
            raise AttributeError(f"module 'vicinal' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
