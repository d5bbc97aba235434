"""The metrics and densities that `compare` sets side by side, each defined here once as an unfitted estimator.

What is cross-validated, drawn in the report and printed as code is the same estimator: a pipeline from the raw columns
to the metric or density, with scaling and, where there are many columns, a projection as its first steps. Plain methods
are what people do without learning a metric; the learned ones are judged against the best of them.
"""

from typing import Any, NamedTuple

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


def metric_dimensions(n_features, n_rows):
    """How many principal components of wide tables the costly metrics see, at most one for two training rows."""
    return n_features if n_features <= WIDE else max(1, min(WIDE, n_rows // 2))


def metric_methods(n_features, n_dimensions, seed, engine, task="classes"):
    """All metrics by name, the plain ones first.

    n_dimensions : how many principal components of the standardised columns the costly ones and whitening see; all of
        `n_features` is no projection
    """
    from vicinal import NCA, RCA, BinnedTargetMetric, Objective

    lca, lca_gauss = _lca_pair(seed, engine)
    narrow = prepared_columns(n_features, n_dimensions, seed)
    whitening = PCA(n_dimensions if n_dimensions < n_features else ALL_VARIANCE, whiten=True, svd_solver="full")
    numbers = task == "numbers"
    supervised = (
        Method("pls", "PLS", False, False, (PLSRegression(min(n_features, PLS_DIRECTIONS)),))
        if numbers
        else Method("lda", "LDA", False, False, (LinearDiscriminantAnalysis(),))
    )
    nca = NCA(objective=Objective(match="gaussian") if numbers else "accuracy", engine=engine, random_state=seed)
    methods = [
        Method("euclidean", "Euclidean", False, False, (FunctionTransformer(),)),
        Method("z-scored", "z-scored", False, False, (StandardScaler(),)),
        Method("pca-whitened", "PCA-whitened", False, False, (make_pipeline(StandardScaler(), whitening),)),
        supervised,
        Method(
            "rca",
            "RCA",
            True,
            False,
            (make_pipeline(StandardScaler(), BinnedTargetMetric(RCA()) if numbers else RCA()),),
        ),
        Method("lca", "LCA", True, True, (make_pipeline(*narrow, lca),)),
        Method(
            "lca-gauss",
            "LCA-Gauss",
            True,
            True,
            (make_pipeline(*narrow, lca_gauss),),
        ),
        Method("nca", "NCA", True, True, (make_pipeline(*narrow, nca),)),
    ]
    return {method.name: method for method in methods}


def density_methods(n_features, n_dimensions, seed, engine):
    """All densities by name, the plain ones first.

    n_dimensions : how many principal components of the standardised columns they see; all of `n_features` is no projection
    """
    from vicinal import ManifoldParzen, ParzenWindows

    lca, lca_gauss = _lca_pair(seed, engine)
    columns = prepared_columns(n_features, n_dimensions, seed)
    gaussian = GaussianMixture(1, reg_covar=1e-6, random_state=seed)
    scott, loo = ParzenWindows("scott", engine=engine), ParzenWindows("loo", engine=engine)
    manifold = ManifoldParzen(engine=engine)
    methods = [
        Method("gaussian", "Gaussian", False, False, (make_pipeline(*columns, gaussian),)),
        Method("parzen-scott", "Parzen (Scott)", False, True, (make_pipeline(*columns, scott),)),
        Method("parzen-loo", "Parzen (leave-one-out)", False, True, (make_pipeline(*columns, loo),)),
        Method("lca", "LCA", True, True, (make_pipeline(*columns, lca),)),
        Method(
            "lca-gauss",
            "LCA-Gauss",
            True,
            True,
            (make_pipeline(*columns, lca_gauss),),
        ),
        Method("manifold-parzen", "Manifold Parzen", True, True, (make_pipeline(*columns, manifold),)),
    ]
    return {method.name: method for method in methods}


def own_metric(name, estimator):
    """A line for a metric of the caller, which sees the columns as they are."""
    return Method(name, name, True, False, (estimator,))


def own_density(name, estimator, n_features, n_dimensions, seed):
    """A line for a density of the caller, which sees what the other densities see."""
    return Method(
        name, name, True, False, (make_pipeline(*prepared_columns(n_features, n_dimensions, seed), estimator),)
    )


def prepared_columns(n_features, n_dimensions, seed):
    """The first steps of a pipeline: standardised columns, or their leading principal components."""
    if n_dimensions == n_features:
        return (StandardScaler(),)
    return StandardScaler(), PCA(n_dimensions, random_state=seed)


def metric_names():
    """The names of all metrics, for classes and for numbers."""
    return tuple({name: None for task in ("classes", "numbers") for name in metric_methods(1, 1, 0, None, task)})


def density_names():
    """The names of all densities."""
    return tuple(density_methods(1, 1, 0, None))


def _lca_pair(seed, engine):
    from vicinal import LCA, LCAGauss

    # Scores are told apart to hundredths of a nat: the last digits of the optimum are not waited for.
    settings = {"tol": 1e-5, "engine": engine}
    return LCA(**settings, random_state=seed), LCAGauss(**settings)
