"""The metrics and densities that `compare` sets side by side, as unfitted scikit-learn estimators.

Plain methods are what people do without learning a metric; the learned ones are judged against the best of them.
"""

from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.cross_decomposition import PLSRegression
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
# Numbers are cut into so many groups of equal size for RCA, which learns from groups.
N_GROUPS = 10
# Directions of partial least squares, the plain method that sees a numeric target, as LDA sees classes.
PLS_DIRECTIONS = 5


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


def groups_of_numbers(y, n_groups=N_GROUPS):
    """The group of each number: `n_groups` quantile ranges, fewer where there are few different numbers or rows."""
    n_groups = max(2, min(n_groups, len(y) // 4))
    edges = np.unique(np.quantile(y, np.arange(1, n_groups) / n_groups))
    return np.digitize(y, edges)


class GroupedRCA(TransformerMixin, BaseEstimator):
    """RCA on the quantile groups of a numeric target."""

    def fit(self, X, y):
        """Learn from the groups of y."""
        from vicinal import RCA

        self.rca_ = RCA().fit(X, groups_of_numbers(y))
        return self

    def transform(self, X):
        """Images of the rows."""
        return self.rca_.transform(X)


def metric_methods(n_features, seed, engine, task="classes"):
    """All metrics by name, the plain ones first."""
    from vicinal import NCA, RCA

    lca, lca_gauss = _lca_pair(seed, engine)
    wide = n_features > WIDE
    narrow = (StandardScaler(), *((PCA(WIDE, svd_solver="randomized", random_state=seed),) if wide else ()))
    whitening = PCA(WIDE if wide else ALL_VARIANCE, whiten=True, svd_solver="full")
    numbers = task == "numbers"
    supervised = (
        Method("pls", "PLS", False, False, (PLSRegression(min(n_features, PLS_DIRECTIONS)),))
        if numbers
        else Method("lda", "LDA", False, False, (LinearDiscriminantAnalysis(),))
    )
    nca = NCA(match="gaussian" if numbers else "class", engine=engine, random_state=seed)
    methods = [
        Method("euclidean", "Euclidean", False, False, (FunctionTransformer(),)),
        Method("z-scored", "z-scored", False, False, (StandardScaler(),)),
        Method("pca-whitened", "PCA-whitened", False, False, (make_pipeline(StandardScaler(), whitening),)),
        supervised,
        Method("rca", "RCA", True, False, (make_pipeline(StandardScaler(), GroupedRCA() if numbers else RCA()),)),
        Method("lca", "LCA", True, True, _with_fallback(narrow, lca, reg=FALLBACK_REG)),
        Method(
            "lca-gauss",
            "LCA-Gauss",
            True,
            True,
            _with_fallback(narrow, lca_gauss, reg=FALLBACK_REG, reg_gauss=FALLBACK_REG),
        ),
        Method("nca", "NCA", True, True, (make_pipeline(*narrow, nca),)),
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
