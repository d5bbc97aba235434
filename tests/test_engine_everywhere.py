"""Test the promise of docs/idea.md that no method computes pairs itself: all pairwise computations use the engine.

Each estimator is fitted, and scores rows, on a backend that distorts every sum and shuffles every neighbour.  An answer
that does not change was not made by the engine.
"""

import ast
import inspect
import pickle
from pathlib import Path

import numpy as np
import pytest

import vicinal
from vicinal import (
    LCA,
    NCA,
    Adam,
    AnchorNCA,
    DensityClassifier,
    DensityImputer,
    DensityOutlierDetector,
    LCAGauss,
    LocalLCA,
    ManifoldParzen,
    Objective,
    PairNCA,
    ParzenMeanShift,
    ParzenWindows,
    Selection,
    SoftNeighborsClassifier,
    SoftNeighborsRegressor,
    StochasticGradient,
    quality,
)
from vicinal._compare.folds import nearest
from vicinal._detect.mean_shift import linked_groups
from vicinal._engine.backends import BACKENDS
from vicinal._engine.reference import arrays as _arrays
from vicinal._engine.reference.arrays import ArrayBackend
from vicinal._nca import rows as rows_of_nca
from vicinal._report.views import neighbors_among
from vicinal._supervision.targets import check_targets

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.usefixtures("short_search_in_this_file"),
]

# Estimators that sum over pairs on their own, and why.
OWN_PAIRS = {
    "MMC": "its weights are 1 / distance, which no kernel of the engine is",
    "NeuralNCA": "its sums are those of `vicinal.torch`, which chooses the engine by the device of the tensors",
}
# Files outside of the engine that may ask another library for pairs of rows, and why.
OTHER_PAIRS = {
    "_metric.py": "the table of distances is what the user asks for",
    "_nca/pair_matrix.py": "passes of NCA over a few hundred rows, which take ten times as long by blocks",
    "_nca/starts.py": "the first guess of a scale, from 128 rows",
    "_nca/soft_neighbors.py": "it only recognises scikit-learn's NCA, a metric that the user may pass",
    "_rca/mmc.py": OWN_PAIRS["MMC"],
}
# Files outside of the engine that portion work by its memory, and why.
_FRAMES = "batches of decompositions of k neighbours each, which are no sums over pairs"
OWN_BLOCKS = {
    "_mixtures/conditionals.py": "the log-sums of all columns but one share a square: one sum per column, which no verb gives",
    "_mixtures/frame_mixture.py": _FRAMES,
    "_local/kernels.py": _FRAMES,
    "_retrieval/search.py": "blocks of a corpus that may be larger than memory; the engine searches each of them",
    "_local/held_out_frames.py": _FRAMES,
}
PAIR_LIBRARIES = ("scipy.spatial", "sklearn.neighbors", "sklearn.metrics.pairwise")
# Estimators without sums over pairs: they centre chunklets, alternate assignments and means, or look at columns.
NO_PAIRS = {
    "BinnedTargetMetric",
    "ConstrainedGaussianMixture",
    "ConstrainedKMeans",
    "Dequantizer",
    "OnlineRCA",
    "RCA",
    "TableEncoder",
}


class Distortion:
    """A mixin that distorts every method of a placement: sums slightly, and neighbours completely."""

    def log_sums(self, queries, by_class=False):
        found = super().log_sums(queries, by_class)
        shares = None if found.log_shares is None else 0.9 * found.log_shares[:, ::-1]
        return found._replace(log_sums=0.97 * found.log_sums - 0.05, log_shares=shares)

    def softmax_sums(self, *arguments, **options):
        found = super().softmax_sums(*arguments, **options)
        factors = np.linspace(0.8, 1.0, len(found.gathered))[:, None]
        log_sums = 0.97 * found.log_sums - 0.05
        return found._replace(log_sums=log_sums, gathered=factors * found.gathered, received=0.97 * found.received)

    def squares(self, queries):
        log_sums, squares = super().squares(queries)
        return 0.97 * log_sums - 0.05, np.linspace(0.8, 1.0, len(squares)) * squares

    def candidates(self, queries, floors):
        for query, point in super().candidates(queries, floors):
            yield query, self._exchanged(point, -1 if queries.left_out is None else queries.left_out[query])

    def nearest(self, queries, k, origin=None):
        found = super().nearest(queries, k, origin)
        own = -1 if queries.left_out is None else queries.left_out[:, None]
        return found._replace(indices=self._exchanged(found.indices, own), scores=100.0 * found.scores[::-1])

    def _exchanged(self, point, own):
        """Other points, but never a query itself."""
        n = len(self.points.rows)
        other = np.random.default_rng(n).permutation(n)
        return np.where(other[point] == own, point, other[point])

    def log_sums_table(self, *arguments):
        return 0.97 * super().log_sums_table(*arguments) - 0.05


class DistortingBackend(ArrayBackend):
    name = "reference"

    def at(self, kernel):
        placed = super().at(kernel)
        distorted = object.__new__(type("Distorted", (Distortion, type(placed)), {}))
        distorted.__dict__.update(placed.__dict__)
        return distorted


@pytest.fixture
def distort(monkeypatch):
    """A function that replaces all backends by the distorting one."""

    def start():
        monkeypatch.setattr(_arrays, "DistortingBackend", DistortingBackend, raising=False)
        for name in list(BACKENDS):
            monkeypatch.setitem(BACKENDS, name, "vicinal._engine.reference.arrays:DistortingBackend")

    return start


RNG = np.random.default_rng(0)
Y = np.repeat(np.arange(3), 30)
X = RNG.normal(size=(90, 3)) * [1.0, 0.6, 0.3] + 1.6 * RNG.normal(size=(3, 3))[Y]
NEW = X[::7] + 0.2 * RNG.normal(size=(13, 3))
T = X[:, 0] + 0.1 * RNG.normal(size=90)
GAPS = np.where(np.arange(90)[:, None] % [[7, 11, 13]] == 3, np.nan, X)


def new_rows(model):
    """How a density scores new rows."""
    return {"score_samples": model.score_samples(NEW)}


def density(model):
    """How a density scores new rows, and its own rows leaving each out."""
    return new_rows(model) | {"leave_one_out": model.score_samples(None)}


def soft(predicted, model):
    """A prediction, and how many neighbours it is made from."""
    return {"prediction": predicted, "effective_neighbors": model.effective_neighbors(NEW)}


# By estimator: how it is made, what it is fitted to, what its fit must have used the engine for, and its scoring.
CASES = {
    "ParzenWindows": [
        (ParzenWindows(0.5), (X,), [], density),
        (ParzenWindows("loo"), (X,), ["covariance_"], density),
        (ParzenWindows("scott"), (X,), [], density),
        (ParzenWindows("loo"), (GAPS,), ["covariance_", "left_out_scores"], new_rows),
    ],
    "LCA": [
        (LCA(solver="em", max_iter=5, reg=0.0), (X,), ["covariance_"], density),
        (LCA(solver="accelerated", max_iter=5, reg=0.0), (X,), ["covariance_"], density),
        (LCA(solver="stochastic", max_iter=2, random_state=0, reg=0.0), (X,), ["covariance_"], density),
        (LCA(covariance_type="diag", max_iter=5, reg=0.0), (X,), ["covariance_", "effective_neighbors_"], density),
        (LCA(rank=2, max_iter=5, reg=0.0), (X,), ["covariance_"], density),
        (LCA(max_iter=5, reg=0.0), (GAPS,), ["covariance_", "left_out_scores"], new_rows),
    ],
    "LCAGauss": [
        # What its rows score, each left out, is kept from the fit.
        (LCAGauss(max_iter=5, reg=0.0, reg_gauss=0.0), (GAPS,), ["covariance_", "left_out_scores"], new_rows),
        (
            LCAGauss(max_iter=5, reg=0.0, reg_gauss=0.0),
            (X,),
            ["components_", "effective_neighbors_", "left_out_scores"],
            new_rows,
        ),
        (LCAGauss(reduce=True, max_iter=5, reg=0.0, reg_gauss=0.0), (X,), ["covariance_", "left_out_scores"], new_rows),
    ],
    "LocalLCA": [(LocalLCA(2, 8, 0.01, shared=0.5, center="mean", reg=0.0), (X,), ["local_covariances_"], density)],
    "ManifoldParzen": [
        (
            ManifoldParzen(n_neighbors=8, noise=0.05, n_components=1),
            (X,),
            ["local_frames_", "local_variances_", "neighbors_"],
            density,
        ),
        (ManifoldParzen(n_neighbors=8, n_components=1), (X,), ["local_frames_", "noise_scores_"], density),
        (ManifoldParzen(n_components=0, n_neighbors=5), (X,), ["noise_"], density),
        (
            ManifoldParzen(vicinity="kernel", bandwidth=0.5, noise=0.05, n_components=1),
            (X,),
            ["local_frames_", "local_variances_"],
            density,
        ),
        (
            ManifoldParzen(selection=Selection(n_components=[1, 2], n_neighbors=[4, 8], cv=3)),
            (X,),
            ["cv_results_"],
            density,
        ),
        (
            ManifoldParzen(
                selection=Selection(n_components=[1], n_neighbors=[4, 8], cv=3, criterion="conditional_log_likelihood")
            ),
            (X, Y),
            ["best_score_"],
            None,
        ),
    ],
    "NCA": [
        (NCA(2, max_iter=5), (X, Y), ["components_", "objectives_"], None),
        (NCA(2, max_iter=5, objective="likelihood"), (X, Y), ["components_"], None),
        (NCA(2, max_iter=5, objective=Objective(match="gaussian")), (X, T), ["components_"], None),
        (NCA(2, max_iter=5, objective=Objective(match="dot")), (X, np.eye(3)[Y] * 0.8 + 0.1), ["components_"], None),
        (NCA(max_iter=5, structure="diag"), (X, Y), ["components_"], None),
        (NCA(2, max_iter=2, solver="stochastic", random_state=0), (X, Y), ["components_"], None),
        (NCA(2, max_iter=2, solver=StochasticGradient(batch_size=20), random_state=0), (X, Y), ["components_"], None),
    ],
    "AnchorNCA": [
        (AnchorNCA(2, max_iter=2, solver=Adam(4), hard_negatives=2, random_state=0), (X, Y), ["components_"], None),
    ],
    "PairNCA": [(PairNCA(2, max_iter=5), (X, Y), ["components_", "objectives_"], None)],
    "SoftNeighborsClassifier": [
        (SoftNeighborsClassifier(), (X, Y), ["bandwidth_"], lambda m: soft(m.predict_proba(NEW), m)),
    ],
    "SoftNeighborsRegressor": [
        (SoftNeighborsRegressor(), (X, T), ["bandwidth_"], lambda m: soft(m.predict(NEW), m)),
    ],
    "ParzenMeanShift": [
        (ParzenMeanShift(ParzenWindows(0.5)), (X,), ["cluster_centers_"], None),
        (ParzenMeanShift(LCA(max_iter=3, reg=0.0)), (X,), ["cluster_centers_"], None),
        (ParzenMeanShift(ManifoldParzen(n_neighbors=8, n_components=1, noise=0.3)), (X,), ["cluster_centers_"], None),
        (ParzenMeanShift(LCAGauss(max_iter=2, reg=0.0, reg_gauss=0.0)), (X,), ["cluster_centers_"], None),
    ],
    "DensityClassifier": [
        (DensityClassifier(ParzenWindows(0.5)), (X, Y), [], lambda m: {"predict_proba": m.predict_proba(NEW)}),
    ],
    "DensityImputer": [
        (DensityImputer(LCA(max_iter=5)), (GAPS,), [], lambda m: {"filled": m.transform(GAPS[10:11])}),
    ],
    "DensityOutlierDetector": [
        (DensityOutlierDetector(ParzenWindows(0.5)), (X,), ["offset_"], lambda m: {"scores": m.score_samples(NEW)}),
    ],
}


def estimators():
    """The estimators that the package exports."""
    exported = {name: getattr(module, name) for module in (vicinal, vicinal.companions) for name in module.__all__}
    return {name for name, thing in exported.items() if inspect.isclass(thing) and hasattr(thing, "fit")}


def test_no_estimator_is_forgotten():
    named = [set(CASES), set(OWN_PAIRS), NO_PAIRS]
    assert set().union(*named) == estimators()
    assert sum(map(len, named)) == len(estimators())


def arrays(answer):
    """An answer as a list of arrays."""
    if isinstance(answer, dict):
        return [array for part in answer.values() for array in arrays(part)]
    if isinstance(answer, (list, tuple)):
        return [array for part in answer for array in arrays(part)]
    answer = np.asarray(answer)
    return [answer.astype(float)] if answer.dtype.kind in "fiub" else []


def same(one, other):
    one, other = arrays(one), arrays(other)
    assert one
    return all(
        a.shape == b.shape and np.allclose(a, b, rtol=1e-6, atol=1e-9, equal_nan=True)
        for a, b in zip(one, other, strict=True)
    )


def learned(model, name):
    return model.score_samples(None) if name == "left_out_scores" else getattr(model, name)


@pytest.mark.parametrize(
    ("estimator", "data", "fitted", "scoring"),
    [case for cases in CASES.values() for case in cases],
    ids=[f"{name}-{k}" for name, cases in CASES.items() for k in range(len(cases))],
)
def test_every_answer_is_made_by_the_engine(monkeypatch, distort, estimator, data, fitted, scoring):
    monkeypatch.setattr(rows_of_nca, "_MATRIX_ROWS", 0)  # NCA of few rows computes their pairs itself
    honest = pickle.dumps(estimator.fit(*data))  # what a model keeps for scoring does not travel
    once = {name: learned(estimator, name) for name in fitted}
    scores = {} if scoring is None else scoring(pickle.loads(honest))
    estimator.fit(*data)
    for name in fitted:
        assert same(once[name], learned(estimator, name))  # the fit is repeatable, so that a change is the engine's
    distort()
    estimator.fit(*data)
    for name in fitted:
        assert not same(once[name], learned(estimator, name)), f"{name} does not depend on the engine"
    distorted = {} if scoring is None else scoring(pickle.loads(honest))
    for name, answer in scores.items():
        assert not same(answer, distorted[name]), f"{name} does not depend on the engine"


def test_purity_is_made_by_the_engine(distort):
    """The only measure of `vicinal.quality` that looks at pairs of rows."""
    before = quality.neighbor_purity(X, Y, 5)
    distort()
    assert not same(before, quality.neighbor_purity(X, Y, 5))


SEARCHES = {
    "vicinal compare": lambda: nearest(X, NEW, 5),
    "vicinal report": lambda: neighbors_among(X),
    "rows that agree with no other": lambda: check_targets(100.0 * X[:, :1] ** 3, "gaussian", 0.05).alone(),
    "modes that are merged": lambda: linked_groups(X, 0.5),
}


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_searches_for_neighbours_are_made_by_the_engine(distort, search):
    before = search()
    distort()
    assert not same(before, search())


def test_no_other_library_is_asked_for_pairs_of_rows():
    """Searches and distances of other libraries are used inside of the engine, and in the files that are named here."""
    folder = Path(vicinal.__file__).parent
    found = set()
    for file in folder.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if not any(name.rpartition(".")[2] in text for name in PAIR_LIBRARIES):
            continue
        for node in ast.walk(ast.parse(text)):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if any(module.startswith(PAIR_LIBRARIES) for module in modules):
                found.add(file.relative_to(folder).as_posix())
    assert {name for name in found if not name.startswith("_engine/")} == set(OTHER_PAIRS)


def test_no_other_file_walks_over_blocks_of_pairs():
    """All code that holds pairs of rows must take the memory budget into account."""
    folder = Path(vicinal.__file__).parent
    files = (file for file in folder.rglob("*.py") if "memory_bytes" in file.read_text(encoding="utf-8"))
    names = {file.relative_to(folder).as_posix() for file in files}
    assert {name for name in names if not name.startswith("_engine/")} == set(OWN_BLOCKS)


@pytest.mark.parametrize("name", sorted(NO_PAIRS))
def test_estimators_without_pair_work_say_so(name):
    estimator = getattr(vicinal, name, None) or getattr(vicinal.companions, name)
    assert not hasattr(estimator, "_pair_work")
    assert "engine" not in inspect.signature(estimator).parameters


@pytest.mark.parametrize("name", sorted(CASES))
def test_which_engine_names_the_backend_of_the_fit(name):
    """For sizes of both backends and each solver, the predicted engine is the one that the fit records."""
    for estimator, data, *_ in CASES[name]:
        if not hasattr(estimator, "_pair_work"):
            continue
        said = vicinal.which_engine(data[0], estimator).partition(":")[0]
        assert estimator.fit(*data).engine_ == said == "reference"
