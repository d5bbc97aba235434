"""Small fits of every class that a model file can hold, in every way that changes what the class keeps.

They make the files that the tests write.
"""

import warnings
from functools import cache

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, RobustScaler, StandardScaler

import vicinal
from vicinal import (
    LCA,
    NCA,
    RCA,
    Engine,
    LCAGauss,
    ManifoldParzen,
    Objective,
    ParzenWindows,
    Selection,
    StochasticEM,
    StochasticGradient,
    retrieval,
)

N = 14
_rng = np.random.default_rng(0)
X = _rng.normal(size=(N, 2)) * [1.0, 0.3]
NEW = _rng.normal(size=(3, 2))  # rows to ask about
Y = np.resize([0, 1, 2], N)
TWO = Y > 0
NAMES = np.array(["a", "bb", "é"])[Y]
CHUNKLETS = np.where(np.arange(N) < 10, np.arange(N) // 2, -1)
WEIGHT = np.where(np.arange(N) % 5 == 4, 0.0, np.linspace(0.5, 2.0, N))
TABLE = pd.DataFrame(X, columns=["length", "wïdth"])
LEVELS = TABLE.assign(shop=pd.Categorical(np.array(["web", "store"])[np.arange(N) % 2]), gift=np.arange(N) % 3 == 0)
GAPS = TABLE.mask(np.arange(N)[:, None] == [[3, 5]])
PAIRS = np.arange(N).reshape(-1, 2)


def _network(*layers):
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(2, 3), *(getattr(torch.nn, layer)() for layer in layers))


def _neural(**options):
    return vicinal.NeuralNCA(max_iter=2, random_state=0, **{"network": 3, **options})


def _stream():
    return (
        LCA(random_state=0, solver=StochasticEM(batch_size=4, n_candidates=8), reg=0.0)
        .partial_fit(X)
        .partial_fit(X[:5])
    )


# By name of the class and, after a colon, of the variant.
FITS = {
    "AnchorNCA": lambda: vicinal.AnchorNCA(2, random_state=0, max_iter=2).fit(TABLE, CHUNKLETS),
    "AnchorNCA:rows and options": lambda: vicinal.AnchorNCA(
        1, init="identity", solver=vicinal.Adam(batch_size=4), hard_negatives=1, random_state=0, max_iter=2
    ).fit(X.astype(np.float32), pairs=PAIRS),
    "AnchorNCA:held out": lambda: vicinal.AnchorNCA(max_iter=1, random_state=0).fit(
        np.random.default_rng(0).normal(size=(100, 2)), pairs=np.arange(100).reshape(50, 2)
    ),
    "BinnedTargetMetric": lambda: vicinal.companions.BinnedTargetMetric(RCA(1), n_bins=3).fit(TABLE, X[:, 0]),
    "ConstrainedGaussianMixture": lambda: vicinal.companions.ConstrainedGaussianMixture(2, random_state=0).fit(
        X, CHUNKLETS
    ),
    "ConstrainedGaussianMixture:tied": lambda: vicinal.companions.ConstrainedGaussianMixture(
        2, covariance_type="tied", random_state=0
    ).fit(X),
    "ConstrainedGaussianMixture:diag": lambda: vicinal.companions.ConstrainedGaussianMixture(
        2, covariance_type="diag", count_by="points", random_state=0
    ).fit(X.astype(np.float32), CHUNKLETS),
    "ConstrainedGaussianMixture:apart": lambda: vicinal.companions.ConstrainedGaussianMixture(
        2, init=RCA(shrinkage=0.5), random_state=0
    ).fit(X, CHUNKLETS, [[0, 2], [10, 11]]),
    "ConstrainedGaussianMixture:spherical": lambda: vicinal.companions.ConstrainedGaussianMixture(
        2, covariance_type="spherical", random_state=0
    ).fit(TABLE, CHUNKLETS),
    "ConstrainedKMeans": lambda: vicinal.companions.ConstrainedKMeans(2, n_init=1, random_state=0).fit(X, CHUNKLETS),
    "ConstrainedKMeans:plain": lambda: vicinal.companions.ConstrainedKMeans(2, n_init=1, random_state=0).fit(TABLE),
    "DensityClassifier": lambda: vicinal.DensityClassifier().fit(X, Y),
    "DensityClassifier:pipelines": lambda: vicinal.DensityClassifier(
        make_pipeline(StandardScaler(), ParzenWindows(0.5)), priors="uniform"
    ).fit(TABLE, NAMES),
    "DensityClassifier:mixtures": lambda: vicinal.DensityClassifier(GaussianMixture(1, random_state=0)).fit(
        X, NAMES.astype(object)
    ),
    "DensityImputer": lambda: vicinal.DensityImputer(random_state=0).fit(GAPS),
    "DensityOutlierDetector": lambda: vicinal.DensityOutlierDetector().fit(X),
    "DensityOutlierDetector:folds": lambda: vicinal.DensityOutlierDetector(
        GaussianMixture(1, random_state=0), contamination=0.1, cv=3
    ).fit(TABLE),
    "DensityOutlierDetector:stratified": lambda: vicinal.DensityOutlierDetector(ParzenWindows(0.5), cv=3).fit(
        X, sample_weight=WEIGHT
    ),
    "DensityOutlierDetector:from a density": lambda: vicinal.DensityOutlierDetector.from_density(
        make_pipeline(StandardScaler(), LCA(reg=0.0)).fit(TABLE)
    ),
    "LCA:shrinkage": lambda: LCA(reg=vicinal.Shrinkage(0.1, 0.5), max_iter=3, tol=1.0).fit(X),
    "LCA": lambda: LCA(reg=0.0).fit(X),
    "LCA:levels": lambda: LCA(reg=0.1).fit(LEVELS, sample_weight=WEIGHT),
    "LCA:levels alone": lambda: LCA().fit(LEVELS[["shop", "gift"]]),
    "LCA:diag": lambda: LCA("diag", solver="em", max_iter=5, engine=Engine(threads=1), reg=0.0).fit(
        TABLE, None, WEIGHT
    ),
    "Dequantizer": lambda: vicinal.Dequantizer([0.0, 0.5], random_state=3).fit(TABLE),
    "LCA:low rank": lambda: LCA("low_rank", rank=1, reg=0.01, init=[0.5, 0.5]).fit(X),
    "LCA:spherical": lambda: LCA("spherical", reg=0.0).fit(X.astype(np.float32)),
    "LCA:stochastic": lambda: LCA(solver="stochastic", max_iter=3, random_state=0, reg=0.0).fit(X),
    "LCA:auto": lambda: LCA(reg="auto").fit(X),
    "LCA:constant": lambda: LCA(reg="auto").fit(np.insert(X, 1, 2.0, axis=1)),
    "LCAGauss:auto": lambda: vicinal.LCAGauss(reg="auto", reg_gauss="auto").fit(X),
    "LCA:stream": _stream,
    "LCA:stream, then fit": lambda: _stream().fit(X),
    "LCA:gaps": lambda: LCA(reg=0.01).fit(GAPS),
    "LCAGauss:gaps": lambda: LCAGauss(reg=0.01, reg_gauss=0.01).fit(GAPS),
    "LCAGauss": lambda: vicinal.LCAGauss(reg=0.0, reg_gauss=0.0).fit(X),
    "LCAGauss:search": lambda: vicinal.LCAGauss(reduce=True, max_iter=50, reg=0.0, reg_gauss=0.0).fit(
        TABLE, None, WEIGHT
    ),
    "LocalLCA": lambda: vicinal.LocalLCA(reg=0.0).fit(X),
    "LocalLCA:mean": lambda: vicinal.LocalLCA(1, 4, 0.01, shared=0.5, center="mean", reg=0.0).fit(TABLE, None, WEIGHT),
    "LocalLCA:noise": lambda: vicinal.LocalLCA(2, 5, 0.1, shared=0, center="row").fit(X),
    "LocalLCA:shared": lambda: vicinal.LocalLCA(0, 5, 0, shared=1, center="row", reg=0.0).fit(X),
    "MMC": lambda: vicinal.companions.MMC().fit(X, CHUNKLETS),
    "MMC:diagonal": lambda: vicinal.companions.MMC(structure="diag").fit(TABLE, Y),
    "ManifoldParzen": lambda: ManifoldParzen(n_neighbors=3, n_components=1).fit(X),
    "ManifoldParzen:metric": lambda: ManifoldParzen(n_neighbors=3, metric=LCA(reg=0.0).fit(X), n_components=1).fit(
        X, sample_weight=WEIGHT
    ),
    "ManifoldParzen:kernel": lambda: ManifoldParzen(
        vicinity="kernel", bandwidth=[0.5, 0.5], noise=0.1, n_components=2, n_neighbors=5
    ).fit(TABLE),
    "ManifoldParzen:plain": lambda: ManifoldParzen(0, n_neighbors=5).fit(X.astype(np.float32)),
    "ManifoldParzen:all rows": lambda: ManifoldParzen(n_neighbors=N - 1, noise=0.1, n_components=1).fit(X),
    "ManifoldParzen:selection": lambda: ManifoldParzen(
        selection=Selection(n_components=[0, 1], n_neighbors=[2, 3], noise=[0.1, 0.2], cv=2)
    ).fit(TABLE),
    "ManifoldParzen:classes": lambda: ManifoldParzen(
        selection=Selection(n_components=[1], n_neighbors=[1], noise=[0.1, 0.2], cv=2, criterion="error")
    ).fit(X, NAMES),
    "NCA": lambda: NCA(random_state=0, max_iter=3).fit(X, Y),
    "NCA:diagonal": lambda: NCA(
        random_state=0, max_iter=3, structure="diag", objective=Objective(match="gaussian")
    ).fit(TABLE, X[:, 0]),
    "NCA:stochastic": lambda: NCA(1, solver=StochasticGradient(batch_size=5), random_state=0, max_iter=2).fit(X, NAMES),
    "NCA:likelihood": lambda: NCA(objective="likelihood", solver="cg", random_state=0, max_iter=3, n_init=2).fit(
        X, Y, WEIGHT
    ),
    "NeuralNCA": lambda: _neural().fit(X, Y),
    "NeuralNCA:options": lambda: _neural(solver=vicinal.Adam(batch_size=8)).fit(X, Y),
    "NeuralNCA:module": lambda: _neural(network=_network("Tanh", "ReLU")).fit(X, Y),
    "NeuralNCA:activation": lambda: _neural(network=_network()[:0].append(_network("Tanh")[1])).fit(X, Y),
    "OnlineRCA": lambda: vicinal.OnlineRCA().fit(X, CHUNKLETS),
    "OnlineRCA:waiting": lambda: vicinal.OnlineRCA().partial_fit(X, np.full(N, -1)),
    "RCA:raw shrinkage": lambda: RCA(shrinkage="cv").fit(X, CHUNKLETS),
    "PairNCA": lambda: vicinal.PairNCA(random_state=0, max_iter=3).fit(X, CHUNKLETS),
    "PairNCA:diagonal": lambda: vicinal.PairNCA(random_state=0, max_iter=3, structure="diag").fit(TABLE, pairs=PAIRS),
    "ParzenMeanShift": lambda: vicinal.ParzenMeanShift().fit(X),
    "ParzenMeanShift:frames": lambda: vicinal.ParzenMeanShift(ManifoldParzen(n_neighbors=3, n_components=1)).fit(X),
    "ParzenMeanShift:search": lambda: vicinal.ParzenMeanShift(
        ManifoldParzen(selection=Selection(n_components=[1], n_neighbors=[3], noise=[0.1, 0.2], cv=2, max_rows=None))
    ).fit(TABLE),
    "ParzenMeanShift:local": lambda: vicinal.ParzenMeanShift(
        vicinal.LocalLCA(1, 5, 0, shared=1, center="mean", reg=0.0)
    ).fit(X),
    "ParzenWindows": lambda: ParzenWindows().fit(X),
    "ParzenWindows:levels": lambda: ParzenWindows().fit(LEVELS.assign(shop=LEVELS["shop"].mask(np.arange(N) == 4))),
    "ParzenWindows:weights": lambda: ParzenWindows((0.5, 1.0), engine=Engine(memory="64 MB")).fit(
        TABLE.astype(np.float32), sample_weight=WEIGHT
    ),
    "ParzenWindows:rule": lambda: ParzenWindows("scott", engine="reference").fit(TABLE),
    "ParzenWindows:gaps": lambda: ParzenWindows().fit(GAPS),
    "QueryMap": lambda: retrieval.QueryMap(RCA().fit(X, CHUNKLETS)).fit(X),
    "RCA": lambda: RCA().fit(X, CHUNKLETS),
    "RCA:one component": lambda: RCA(1, shrinkage=0).fit(TABLE, Y).set_output(transform="pandas"),
    "RCA:waiting": lambda: RCA().partial_fit(X, np.full(N, -1)),
    "SoftNeighborsClassifier": lambda: vicinal.SoftNeighborsClassifier().fit(X, Y),
    "SoftNeighborsClassifier:metric": lambda: vicinal.SoftNeighborsClassifier(
        NCA(1, random_state=0, max_iter=3), bandwidth=0.7
    ).fit(TABLE, NAMES, WEIGHT),
    "SoftNeighborsClassifier:matrix": lambda: vicinal.SoftNeighborsClassifier(np.array([[1.0, 2.0]])).fit(X, TWO),
    "SoftNeighborsClassifier:pipeline": lambda: vicinal.SoftNeighborsClassifier(
        make_pipeline(StandardScaler(), PCA(1))
    ).fit(X, Y),
    "SoftNeighborsRegressor": lambda: vicinal.SoftNeighborsRegressor(RCA().fit(X, Y)).fit(X, X[:, 0]),
    "SoftNeighborsRegressor:outputs": lambda: vicinal.SoftNeighborsRegressor().fit(X, X, WEIGHT),
    "TableEncoder": lambda: (
        vicinal.TableEncoder(types={"length": "lattice:0.25"}, categories="one_hot")
        .fit(TABLE.assign(name=NAMES, day=pd.date_range("2024-01-30", periods=N, freq="30h"), counted=range(N)))
        .select([0, 1])
    ),
    "TableEncoder:array": lambda: vicinal.TableEncoder().fit(X),
    "sklearn.GaussianMixture": lambda: GaussianMixture(2, random_state=0).fit(X),
    "sklearn.GaussianMixture:tied": lambda: GaussianMixture(2, covariance_type="tied", random_state=0).fit(X),
    "sklearn.GaussianMixture:diag": lambda: GaussianMixture(2, covariance_type="diag", random_state=0).fit(TABLE),
    "sklearn.GaussianMixture:spherical": lambda: GaussianMixture(2, covariance_type="spherical", random_state=0).fit(X),
    "sklearn.KMeans": lambda: KMeans(2, n_init=1, random_state=0).fit(X),
    "sklearn.MaxAbsScaler": lambda: MaxAbsScaler().fit(TABLE),
    "sklearn.MinMaxScaler": lambda: MinMaxScaler((-1, 1), clip=True).fit(X),
    "sklearn.Normalizer": lambda: Normalizer().fit(X),
    "sklearn.PCA": lambda: PCA(1, whiten=True).fit(X),
    "sklearn.PCA:randomized": lambda: PCA(1, svd_solver="randomized", random_state=0).fit(TABLE),
    "sklearn.Pipeline": lambda: make_pipeline(StandardScaler(), PCA(1), LCA(reg=0.0)).fit(TABLE),
    "sklearn.Pipeline:none": lambda: Pipeline([("none", None), ("same", "passthrough"), ("rca", RCA(1))]).fit(X, Y),
    "sklearn.RobustScaler": lambda: RobustScaler().fit(X),
    "sklearn.RobustScaler:plain": lambda: RobustScaler(with_centering=False, with_scaling=False).fit(X),
    "sklearn.StandardScaler": lambda: StandardScaler().fit(X),
    "sklearn.StandardScaler:gaps": lambda: StandardScaler(with_mean=False).fit(
        np.where(np.arange(N)[:, None] == [[0, 99]], np.nan, X)
    ),
    "sklearn.StandardScaler:plain": lambda: StandardScaler(with_mean=False, with_std=False).fit(X),
}
# Metrics that are saved without their training rows.
METRICS = ["LCA", "LCAGauss"]
QUESTIONS = [
    "transform",
    "score_samples",
    "predict",
    "predict_proba",
    "decision_function",
    "p_values",
    "inverse_transform",
]
OF_TRAINING_ROWS = ["held_out_score_samples", "sample", "get_mahalanobis_matrix"]


def fitted(name):
    """A fit, without the warnings of few iterations and few rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return FITS[name]()


@cache
def fitted_once(name):
    """Return a shared fit, for tests that do not change it."""
    return fitted(name)


def answers(estimator):
    """Return the results of an estimator for new and training rows, by method: lists, or the name of an exception."""
    return {
        **{f"{name}(NEW)": _answer(estimator, name, _rows_for(estimator, name)) for name in QUESTIONS},
        **{f"{name}()": _answer(estimator, name) for name in OF_TRAINING_ROWS},
        "score_samples(None)": _answer(estimator, "score_samples", None),
    }


def _rows_for(estimator, name):
    if name == "inverse_transform":
        return NEW[:, : getattr(estimator, "_n_features_out", 2)]
    return pd.DataFrame(NEW, columns=TABLE.columns) if hasattr(estimator, "feature_names_in_") else NEW


def _answer(estimator, name, *rows):
    if not hasattr(estimator, name):
        return None
    options = {"random_state": 0} if name == "sample" and hasattr(estimator, "mixture_") else {}
    if name == "sample" and not options:
        return None  # scikit-learn's draw from their own random states
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return np.asarray(getattr(estimator, name)(*rows, **options)).tolist()
    except Exception as error:
        return type(error).__name__
