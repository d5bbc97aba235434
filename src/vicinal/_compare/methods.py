"""The metrics and densities that `compare` sets side by side, as unfitted scikit-learn estimators.

Plain methods are what people do without learning a metric; the learned ones are judged against the best of them.
"""

from typing import Any, NamedTuple

from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

# Pair work in many dimensions costs much and learns little from few rows: wide tables are cut to this many
# leading principal components of the standardised columns before the costly methods see them.
WIDE = 64
# Share of the standardised variance that may be dropped as rounding or exact dependence of columns.
ALL_VARIANCE = 1.0 - 1e-6
# A penalty in units of a standardised column's variance, for data on which LCA has no answer without one.
FALLBACK_REG = 0.01


class Method(NamedTuple):
    """One line of the table.

    name : what it is called
    label : what it is called in words
    learned : whether it is one of vicinal's, judged against the plain ones
    costly : whether its cost grows with the square of the rows
    candidates : estimators to try in turn; the first that can be fitted counts
    """

    name: str
    label: str
    learned: bool
    costly: bool
    candidates: tuple[Any, ...]


def metric_methods(n_features, seed, engine):
    """All metrics by name, the plain ones first."""
    from vicinal import NCA, RCA

    lca, lca_gauss = _lca_pair(seed, engine)
    wide = n_features > WIDE
    narrow = (StandardScaler(), *((PCA(WIDE, svd_solver="randomized", random_state=seed),) if wide else ()))
    whitening = PCA(WIDE if wide else ALL_VARIANCE, whiten=True, svd_solver="full")
    methods = [
        Method("euclidean", "Euclidean", False, False, (FunctionTransformer(),)),
        Method("z-scored", "z-scored", False, False, (StandardScaler(),)),
        Method("pca-whitened", "PCA-whitened", False, False, (make_pipeline(StandardScaler(), whitening),)),
        Method("lda", "LDA", False, False, (LinearDiscriminantAnalysis(),)),
        Method("rca", "RCA", True, False, (make_pipeline(StandardScaler(), RCA()),)),
        Method("lca", "LCA", True, True, _with_fallback(narrow, lca, reg=FALLBACK_REG)),
        Method(
            "lca-gauss",
            "LCA-Gauss",
            True,
            True,
            _with_fallback(narrow, lca_gauss, reg=FALLBACK_REG, reg_gauss=FALLBACK_REG),
        ),
        Method("nca", "NCA", True, True, (make_pipeline(*narrow, NCA(engine=engine, random_state=seed)),)),
    ]
    return {method.name: method for method in methods}


def density_methods(n_features, seed, engine):
    """All densities by name, the plain ones first; they see columns that are standardised already."""
    from vicinal import ManifoldParzen, ParzenWindows

    lca, lca_gauss = _lca_pair(seed, engine)
    manifold = ManifoldParzen(n_components=min(n_features, 3), n_neighbors=10, engine=engine)
    methods = [
        Method("gaussian", "Gaussian", False, False, (GaussianMixture(1, reg_covar=1e-6, random_state=seed),)),
        Method("parzen-scott", "Parzen (Scott)", False, True, (ParzenWindows("scott", engine=engine),)),
        Method("parzen-loo", "Parzen (leave-one-out)", False, True, (ParzenWindows("loo", engine=engine),)),
        Method("lca", "LCA", True, True, _with_fallback((), lca, reg=FALLBACK_REG)),
        Method(
            "lca-gauss",
            "LCA-Gauss",
            True,
            True,
            _with_fallback((), lca_gauss, reg=FALLBACK_REG, reg_gauss=FALLBACK_REG),
        ),
        Method("manifold-parzen", "Manifold Parzen", True, True, (manifold,)),
    ]
    return {method.name: method for method in methods}


def own_method(name, estimator):
    """A line for an estimator of the caller."""
    return Method(name, name, True, False, (estimator,))


def _lca_pair(seed, engine):
    from vicinal import LCA, LCAGauss

    # Scores are told apart to hundredths of a nat: the last digits of the optimum are not waited for.
    settings = {"tol": 1e-5, "engine": engine, "random_state": seed}
    return LCA(**settings), LCAGauss(**settings)


def _with_fallback(steps, estimator, **penalty):
    """The estimator after some steps, without a penalty and, should that have no answer, with one."""
    penalised = clone(estimator).set_params(**penalty)
    if not steps:
        return estimator, penalised
    return make_pipeline(*steps, estimator), make_pipeline(*map(clone, steps), penalised)
