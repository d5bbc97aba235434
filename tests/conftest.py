"""Settings, fixtures and hooks of all tests: threads, shared compilation of kernels, and the folder of real data."""

import contextlib
import gc
import os
import time
from importlib import import_module
from pathlib import Path

import pytest
from needs import needs

collect_ignore = ["conftest.py"]  # it has no examples, and the one of src has the same name

# Helpers of tests, some of which import packages that may be missing. --doctest-modules would collect them.
collect_ignore_glob = ["[!t]*.py"]
# Workers of pytest-xdist inherit this, so that all of them collect what is parametrised over sets in one order.
os.environ.setdefault("PYTHONHASHSEED", "0")
# From so many tests on, a run is one of all tests, which need every kernel.
MANY_TESTS = 3000
# Modules with compiled kernels, those that take the compiler longest first.
COMPILED = (
    "cpu.listed_kernels", "cpu.sweep_kernels", "frames.kernels",
    "cpu.search_kernels", "plan.boxes", "plan.lists", "plan.order",
)  # fmt: skip


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config, specs):
    """Use one BLAS thread per worker, because idle threads of OpenBLAS spin and would take the cores from the other workers."""
    if len(specs) > 1:
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ.setdefault(name, "1")


@pytest.fixture(scope="session", autouse=True)
def kernels_are_compiled_once(request, tmp_path_factory):
    """Divide the compilation between the workers of a full run: otherwise each would compile most kernels itself."""
    if not hasattr(request.config, "workerinput") or len(request.session.items) < MANY_TESTS:
        return
    with contextlib.suppress(ModuleNotFoundError):  # without Numba nothing is compiled
        import_module("numba")
        _compile_what_nobody_else_does(tmp_path_factory.getbasetemp().parent / "kernels")


def _compile_what_nobody_else_does(folder):
    from numba import float32, float64

    from vicinal._engine.work.compiling import _Kernel

    folder.mkdir(exist_ok=True)
    modules = [import_module(f"vicinal._engine.{name}") for name in COMPILED]
    kernels = [thing for module in modules for thing in vars(module).values() if isinstance(thing, _Kernel)]
    jobs = {
        f"{kernel._dispatcher.py_func.__module__}.{kernel._dispatcher.__name__}-{real}": (kernel, real)
        for kernel in kernels
        for real in (float64, float32)
    }
    for name, (kernel, real) in jobs.items():
        with contextlib.suppress(FileExistsError):
            (folder / f"{name}-begun").touch(exist_ok=False)
            kernel._dispatcher.compile(kernel._signature(real))
            (folder / f"{name}-done").touch()
    patience = time.monotonic() + 120.0  # a worker may have crashed: then each compiles what it needs
    while time.monotonic() < patience and not all((folder / f"{name}-done").exists() for name in jobs):
        time.sleep(0.1)


@pytest.fixture
def forced():
    """A function that sets constants of the engine until the end of a test, so that a certain method is used: ``forced(KEPT_BYTES=0)``."""
    from vicinal._engine import tuning

    with contextlib.ExitStack() as until_the_end:
        yield lambda **values: until_the_end.enter_context(tuning.forced(**values))


@pytest.fixture
def pruned(forced):
    """Force pruning, even for few rows and little gain."""
    from fuzz.pruning import PRUNED

    forced(**PRUNED)


@pytest.fixture(scope="session", autouse=True)
def nobody_waits_for_the_disk():
    """Do not flush files to the disk, which makes no difference unless the machine loses its power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="module")
def client():
    """Two Dask workers, each a separate process with one thread."""
    dask, distributed = needs("dask", "distributed")
    from dask_workers import ENOUGH

    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": ENOUGH}
    with (
        dask.config.set({"distributed.worker.profile.enabled": False}),
        distributed.LocalCluster(**options) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def pytest_collection(session):
    """Do without garbage collection while tests are collected: nearly all that is made there stays until the end."""
    gc.disable()


def pytest_collection_finish(session):
    """Exclude the thousands of collected tests from garbage collection."""
    gc.enable()
    gc.collect()
    gc.freeze()


SHORT = {
    "vicinal._lca.penalty_search._FOLDS": 2,
    "vicinal._lca.penalty_search.FAMILIES": ("shrunk",),
    "vicinal._lca.penalty_search.TARGET": None,
}


def _short_search():
    """Let LCA search its penalty in two folds and one family, for tests of what is done with a model.

    This search takes most of the time of a small fit, and has separate tests.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SHORT.items():
            patch.setattr(name, value)
        yield patch


short_search = pytest.fixture(_short_search)
short_search_in_this_file = pytest.fixture(_short_search, scope="module")


@pytest.fixture
def whole_search(short_search_in_this_file):
    """Restore the full searches, for a test in a file that shortens them."""
    short_search_in_this_file.undo()
    yield
    for name, value in SHORT.items():
        short_search_in_this_file.setattr(name, value)


@pytest.fixture(scope="session")
def data_dir():
    """The folder with the real data sets; tests that need it skip cleanly without it."""
    folder = os.environ.get("VICINAL_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("set VICINAL_DATA to the folder with the real data sets to run this test")
    return Path(folder)
