"""Every iterative estimator takes scikit-learn's ``callback(parameters, n_iter)``."""

import pickle
import warnings
from functools import cache
from inspect import signature

import numpy as np
import pytest
from needs import needs
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

import vicinal
from vicinal import LCA, NCA, Adam, AnchorNCA, LCAGauss, NeuralNCA, PairNCA, StochasticEM, StochasticGradient, io
from vicinal.companions import MMC, ConstrainedGaussianMixture

N, D = 60, 3
X = np.random.default_rng(0).normal(size=(N, D)) @ [[1.0, 0.5, 0.0], [0.0, 0.3, 0.0], [0.0, 0.0, 2.0]]
X[:30, 0] += 2.0
Y = np.repeat([0, 1], 30)
PAIRS = np.column_stack([np.arange(0, 20, 2), np.arange(1, 20, 2)])
pytestmark = pytest.mark.usefixtures("short_search_in_this_file")


def mixture_vector(model):
    return np.concatenate([model.weights_, model.means_.ravel(), model.covariances_.ravel()])


def network_vector(model):
    parts = [part.detach().numpy().ravel() for part in model.module_.parameters()]
    return np.concatenate([*parts, [model.scale_]])


def gram(matrix):
    """What a metric is, up to a rotation."""
    A = matrix.reshape(-1, D)
    return A.T @ A


def metric_vector(model):
    return gram(model.components_.ravel())


# By name: an estimator, what its fit takes after X, the length of the vector, and two functions that compare the vector
# with the fitted estimator (what it is of the vector, and of the estimator); None where the last vector need not be the
# one that is kept.
CASES = {
    "LCA em": (LCA(solver="em", reg=0.0), (), D * D, (gram, metric_vector)),
    "LCA accelerated": (LCA(solver="accelerated", reg=0.0), (), D * D, (gram, metric_vector)),
    "LCA diagonal": (LCA("diag", reg=0.0), (), D * D, (gram, metric_vector)),
    "LCA stochastic": (LCA(solver=StochasticEM(batch_size=20), tol=1e-6, random_state=0, reg=0.0), (), D * D, None),
    "LCAGauss": (LCAGauss(reg=0.0, reg_gauss=0.0), (), D * D, (gram, lambda model: model.precision_)),
    "LCAGauss search": (LCAGauss(reduce=True, tol=1e-5, reg=0.0, reg_gauss=0.0), (), D * D, None),
    "NCA lbfgs": (NCA(2, max_iter=8, random_state=0), (Y,), 2 * D, None),
    "NCA cg": (NCA(2, solver="cg", max_iter=8, random_state=0), (Y,), 2 * D, None),
    "NCA diagonal": (NCA(structure="diag", max_iter=8, random_state=0), (Y,), D * D, None),
    "NCA stochastic": (
        NCA(2, solver=StochasticGradient(batch_size=10), max_iter=8, random_state=0),
        (Y,),
        2 * D,
        None,
    ),
    "PairNCA": (PairNCA(2, max_iter=8, random_state=0), (Y,), 2 * D, None),
    "AnchorNCA": (AnchorNCA(2, solver=Adam(early_stopping=False), max_iter=3, random_state=0), (Y,), 2 * D, None),
    "NeuralNCA": (
        NeuralNCA(2, max_iter=5, random_state=0, network=4),
        (Y,),
        4 * (D + 1) + 2 * 5 + 1,
        None,
    ),
    "MMC": (MMC(), (Y,), D * D, (gram, metric_vector)),
    "MMC diagonal": (MMC(structure="diag"), (Y,), D * D, (gram, metric_vector)),
    "ConstrainedGaussianMixture": (
        ConstrainedGaussianMixture(2, random_state=0),
        (PAIRS,),
        2 + 2 * D + 2 * D * D,
        (np.ravel, mixture_vector),
    ),
    "ConstrainedGaussianMixture diag": (
        ConstrainedGaussianMixture(2, covariance_type="diag", random_state=0),
        (PAIRS,),
        2 + 2 * D + 2 * D,
        (np.ravel, mixture_vector),
    ),
}
# These count passes, some of which are trials of a line search and no iterations.
SEARCHING = ("LCA accelerated", "LCA diagonal")


class Watcher:
    """A callback that records its arguments, and may stop the fit."""

    def __init__(self, stop_at=None, error=StopIteration):
        self.stop_at, self.error, self.vectors, self.counts = stop_at, error, [], []

    def __call__(self, parameters, n_iter):
        self.vectors.append(parameters)
        self.counts.append(n_iter)
        if n_iter == self.stop_at:
            raise self.error


def fitted(name, callback):
    if name == "NeuralNCA":
        needs("torch")
    estimator, more, _, _ = CASES[name]
    return clone(estimator).set_params(callback=callback).fit(X, *more)


@cache
def watched_to_the_end(name):
    """Return a fit that was not interrupted, and the arguments that its callback received."""
    watcher = Watcher()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return watcher, fitted(name, watcher)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", CASES)
def test_it_is_called_once_per_iteration_with_a_vector_and_a_count(name):
    _, _, size, compared = CASES[name]
    watcher, model = watched_to_the_end(name)
    assert watcher.counts == list(range(1, len(watcher.counts) + 1))
    assert 1 < len(watcher.counts) <= max(model.n_iter_, len(model.objectives_))
    if name not in SEARCHING:
        assert len(watcher.counts) == (len(model.objectives_) if name == "LCAGauss search" else model.n_iter_)
    for vector in watcher.vectors:
        assert vector.shape == (size,)
        assert vector.dtype == np.float64
        assert np.isfinite(vector).all()
    if compared is not None:
        of_vector, of_model = compared
        np.testing.assert_allclose(of_vector(watcher.vectors[-1]), of_model(model), rtol=1e-9, atol=1e-12)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", CASES)
def test_watching_changes_nothing(name):
    """This also holds if a callback writes into its vector."""

    def careless(parameters, n_iter):
        parameters[:] = 0.0

    plain, watched = fitted(name, None), fitted(name, careless)
    assert watched.n_iter_ == plain.n_iter_
    assert watched.converged_ == plain.converged_
    for attribute in ("components_", "local_covariances_", "means_", "cluster_centers_", "objectives_", "labels_"):
        if hasattr(plain, attribute):
            np.testing.assert_array_equal(getattr(watched, attribute), getattr(plain, attribute))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    ("error", "said"), [(StopIteration, "the callback stopped it"), (KeyboardInterrupt, "it was interrupted")]
)
def test_it_may_stop_the_fit(name, error, said):
    whole, _ = watched_to_the_end(name)
    watcher = Watcher(2, error)
    with pytest.warns(ConvergenceWarning, match=f"{type(CASES[name][0]).__name__} did not converge: {said}") as warned:
        model = fitted(name, watcher)
    assert warned[0].filename == __file__
    assert watcher.counts == [1, 2]
    assert not model.converged_
    for vector, same in zip(watcher.vectors, whole.vectors, strict=False):
        np.testing.assert_array_equal(vector, same)
    if hasattr(model, "objectives_"):
        assert model.objectives_[-1] == model.objectives_.max()
    if hasattr(model, "transform"):
        assert np.isfinite(model.transform(X)).all()
    if hasattr(model, "score_samples"):
        assert np.isfinite(model.score_samples(X)).all()


@pytest.mark.parametrize("error", [StopIteration, KeyboardInterrupt])
@pytest.mark.parametrize(
    ("estimator", "y"),
    [
        (NCA(2, random_state=0, n_init=4), Y),
        (PairNCA(2, random_state=0, n_init=4), Y),
        (ConstrainedGaussianMixture(2, n_init=4, random_state=0), PAIRS),
        (LCAGauss(reduce=True, reg=0.0, reg_gauss=0.0), None),
    ],
)
def test_it_stops_all_starts(estimator, y, error):
    watcher = Watcher(1, error)
    with pytest.warns(ConvergenceWarning):
        clone(estimator).set_params(callback=watcher).fit(X, y)
    assert watcher.counts == [1]


def test_the_search_of_lca_gauss_can_be_stopped_anywhere():
    """The passes of all runs count, and the result is never worse than that of EM itself."""
    plain, whole = LCAGauss(tol=1e-5, reg=0.0, reg_gauss=0.0).fit(X), Watcher()
    searched = LCAGauss(reduce=True, tol=1e-5, callback=whole, reg=0.0, reg_gauss=0.0).fit(X)
    assert whole.counts == list(range(1, len(searched.objectives_) + 1))
    for at in (plain.n_iter_ + 1, plain.n_iter_ + 3, len(searched.objectives_)):
        watcher = Watcher(at)
        with pytest.warns(ConvergenceWarning, match="the callback stopped it"):
            model = LCAGauss(reduce=True, tol=1e-5, callback=watcher, reg=0.0, reg_gauss=0.0).fit(X)
        assert watcher.counts[-1] == at == len(model.objectives_)
        assert model.objectives_[-1] >= plain.objectives_[-1]
        assert model.objectives_[-1] == pytest.approx(model.score(), abs=1e-9)


def test_stopped_is_as_far_as_it_came():
    """EM stopped after five passes is EM with max_iter=5."""
    with pytest.warns(ConvergenceWarning):
        stopped = LCA(solver="em", callback=Watcher(5), reg=0.0).fit(X)
    with pytest.warns(ConvergenceWarning):
        limited = LCA(solver="em", max_iter=5, reg=0.0).fit(X)
    np.testing.assert_array_equal(stopped.components_, limited.components_)
    np.testing.assert_array_equal(stopped.objectives_, limited.objectives_)


# -- at home in scikit-learn ------------------------------------------------------------------------------------


def note(parameters, n_iter):
    """A callback that can be pickled."""


def estimators():
    return {type(estimator): estimator for estimator, *_ in CASES.values()}.values()


def test_the_table_names_every_estimator_with_a_callback():
    with_callback = {
        name
        for module in (vicinal, vicinal.companions)
        for name in module.__all__
        if hasattr(getattr(module, name), "get_params") and "callback" in signature(getattr(module, name)).parameters
    }
    assert with_callback == {type(estimator).__name__ for estimator in estimators()}


@pytest.mark.parametrize("estimator", estimators(), ids=lambda estimator: type(estimator).__name__)
def test_clone_and_pickle_keep_it_and_model_files_do_not(estimator, tmp_path):
    estimator = clone(estimator).set_params(callback=note)
    assert clone(estimator).callback is note
    assert pickle.loads(pickle.dumps(estimator)).callback is note
    path = tmp_path / "model.vicinal"
    with pytest.warns(UserWarning, match=r"does not contain callback \(note\)"):
        io.save(estimator, path)
    same = io.load(path)
    assert same.callback is None
    assert repr(same) == repr(clone(estimator).set_params(callback=None))
    assert estimator.callback is note


@pytest.mark.parametrize("estimator", estimators(), ids=lambda estimator: type(estimator).__name__)
def test_what_cannot_be_called_is_refused(estimator):
    if isinstance(estimator, NeuralNCA):
        needs("torch")
    with pytest.raises(TypeError, match="callback must be callable or None, got int"):
        clone(estimator).set_params(callback=3).fit(X, Y)


@pytest.mark.parametrize(
    ("estimator", "grid"),
    [
        (LCA(reg=0.0), {"reg": [0.01, 0.1]}),
        (ConstrainedGaussianMixture(random_state=0), {"n_components": [1, 2]}),
    ],
)
def test_a_grid_search_takes_it_along(estimator, grid):
    counts = []

    def callback(parameters, n_iter):
        counts.append(n_iter)

    search = GridSearchCV(clone(estimator).set_params(callback=callback), grid, cv=2).fit(X)
    assert counts.count(1) == 2 * 2 + 1
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.callback is callback
