"""Test that the placement of a fitted density is cached outside of it, and dropped with it."""

import copy
import gc
import pickle
import subprocess
import sys
import threading
import weakref
from importlib import import_module

import numpy as np
import pytest
from sklearn.base import clone

from vicinal import LCA, Engine, LocalLCA, ParzenWindows
from vicinal._mixtures import base as mixture_module

_resident = import_module("vicinal._engine.resident")
X = np.random.default_rng(0).normal(size=(60, 3))


@pytest.fixture
def prepared(monkeypatch):
    """Count how often a mixture passed its centres to the engine."""
    calls, prepare = [], mixture_module.prepare

    def counted(*arguments, **options):
        calls.append(options["n_queries"])
        return prepare(*arguments, **options)

    monkeypatch.setattr(mixture_module, "prepare", counted)
    return calls


def test_centres_are_placed_once(prepared):
    model = ParzenWindows("scott").fit(X)
    first = model.score_samples(X[:1])
    for _ in range(3):
        np.testing.assert_array_equal(model.score_samples(X[:1]), first)
    model.score_samples(X)
    model.score_samples(None)
    assert len(prepared) == 1  # the backend is the same for all of these


def test_one_placement_per_backend(prepared):
    model = ParzenWindows(0.5, engine=Engine("reference")).fit(X)
    model.score_samples(X)
    model.set_params(engine=Engine("reference", threads=1)).score_samples(X)
    assert len(prepared) == 2
    assert len(_resident._cache._kept[model.mixture_]) == 1
    single = model.set_params(engine=Engine("reference", precision="float32")).score_samples(X)
    exact = model.set_params(engine=Engine("reference")).score_samples(X)
    assert len(prepared) == 4
    assert 0 < np.abs(single - exact).max() < 1e-4


@pytest.mark.parametrize(
    "estimator", [ParzenWindows(0.5), LCA(reg=0.0), LocalLCA(1, 5, 0, shared=1, center="mean", reg=0.0)]
)
def test_nothing_is_stored_with_the_estimator(estimator):
    model = estimator.fit(X)
    before, fields = pickle.dumps(model), set(vars(model.mixture_))
    expected = model.score_samples(X)
    assert pickle.dumps(model) == before
    assert set(vars(model.mixture_)) == fields
    for twin in (pickle.loads(before), copy.copy(model.mixture_), copy.deepcopy(model)):
        mixture = getattr(twin, "mixture_", twin)
        assert mixture not in _resident._cache._kept
        np.testing.assert_array_equal(twin.score_samples(X), expected)
        assert mixture.placement(60) is not model.mixture_.placement(60)


@pytest.mark.parametrize("estimator", [ParzenWindows(0.5), LocalLCA(1, 5, 0, shared=1, center="mean", reg=0.0)])
def test_a_refit_drops_it(estimator):
    model = estimator.fit(X)
    model.score_samples(X)
    kept = weakref.ref(model.mixture_.placement(len(X)))
    assert kept() is not None
    expected = clone(model).fit(X[:40]).score_samples(X)
    np.testing.assert_array_equal(model.fit(X[:40]).score_samples(X), expected)
    gc.collect()
    assert kept() is None


def test_threads_share_it():
    model = ParzenWindows("scott").fit(X)
    expected = ParzenWindows("scott").fit(X).score_samples(X)
    start, answers = threading.Barrier(8), [None] * 8

    def score(i):
        start.wait()
        answers[i] = model.score_samples(X)

    threads = [threading.Thread(target=score, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for answer in answers:
        np.testing.assert_array_equal(answer, expected)
    assert len(_resident._cache._kept[model.mixture_]) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_forked_child_does_not_wait_for_a_thread_that_it_does_not_have():
    program = """
import os, warnings
import numpy as np
from vicinal import ParzenWindows
from importlib import import_module
_resident = import_module("vicinal._engine.resident")
X = np.random.default_rng(0).normal(size=(60, 3))
model = ParzenWindows(0.5, engine="reference").fit(X)
expected = model.score_samples(X)
warnings.simplefilter("ignore")
_resident._cache._lock.acquire()  # as another thread might, just then
child = os.fork()
if child == 0:
    os._exit(0 if np.array_equal(model.score_samples(X), expected) else 1)
print(os.waitpid(child, 0)[1])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "0\n", done.stderr
