"""Test the engine's use of threads, processes, memory and compilers, and the choice of a backend."""

import ast
import copy
import importlib.util
import inspect
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
from needs import needs

from vicinal import Engine, which_engine
from vicinal._engine import (
    Match,
    Work,
    available_threads,
    backends,
    in_order,
    one_blas_thread,
    one_blas_thread_beside_pairs,
    prepare,
    products_are_accurate,
    tuning,
)
from vicinal._engine.backends import BACKENDS, backend_class
from vicinal._engine.choice import choose
from vicinal._engine.contract import Placed
from vicinal._engine.work import pool as _pool
from vicinal._engine.work.blocks import Blocks


def placed(kind, X, match=None, **options):
    return prepare(Engine(kind, **options), X, leave_one_out=True, match=match).at(None)


# -- threads ----------------------------------------------------------------------------------------------------------


def test_two_python_threads_at_once():
    rng = np.random.default_rng(8)
    problems = [rng.normal(size=(700, d)) for d in (3, 120)]
    expected = [placed("cpu", X).scatter().scatter for X in problems]
    got = [None, None]

    def work(k):
        for _ in range(3):
            got[k] = placed("cpu", problems[k], threads=2).scatter().scatter

    in_threads(lambda: work(0), lambda: work(1))
    for k in range(2):
        np.testing.assert_array_equal(got[k], expected[k])


def test_two_python_threads_on_one_placement():
    """A placement is completed at its first use; two threads that use it at the same time get the same result."""
    X = np.random.default_rng(9).normal(size=(600, 4))
    match = Match("class", np.arange(600) % 3)
    for kind in ("reference", "cpu"):
        expected = placed(kind, X, match).pull().pull
        shared, got = placed(kind, X, match, threads=2), []
        in_threads(*[lambda shared=shared, got=got: got.append(shared.pull().pull)] * 3)
        assert len(got) == 3
        for pull in got:
            np.testing.assert_allclose(pull, expected, rtol=1e-12, atol=1e-12)


def in_threads(*works):
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive()


def test_in_order_yields_in_order_and_holds_few():
    alive, most = [], []

    def work(item):
        alive.append(item)
        return item

    for k, item in enumerate(in_order(work, range(50), 4)):
        assert item == k
        most.append(len(alive) - k)
    assert max(most) <= 4 + 2


def test_an_interruption_is_heard_between_blocks():
    done = []

    def work(item):
        if item == 3:
            raise KeyboardInterrupt
        done.append(item)
        return item

    with pytest.raises(KeyboardInterrupt):
        for _ in in_order(work, range(1000), 2):
            pass
    assert len(done) < 20


_LONG_WORK = """
import signal
import numpy as np
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background inherits "ignore"
from vicinal import Engine
from vicinal._engine import prepare
X = np.random.default_rng(0).normal(size=(400_000, 3))  # an hour
prepare(Engine("cpu", threads=2), X[:50]).at(None).log_sums()
placed = prepare(Engine("cpu", threads=2), X).at(None)
print("started", flush=True)
placed.log_sums()
"""


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_ctrl_c_ends_long_work():
    process = subprocess.Popen(
        [sys.executable, "-c", _LONG_WORK], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGINT)
    try:
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert errors.rstrip().endswith("KeyboardInterrupt")


def test_threads_honour_the_environment(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert available_threads() == 1
    assert available_threads(3) == 3


# -- BLAS's own threads -----------------------------------------------------------------------------------------------


def blas_libraries():
    """Those that were there when the engine looked: NumPy's is."""
    return [library for library in _pool._thread_pools().lib_controllers if library.user_api == "blas"]


def blas_threads():
    return [library.get_num_threads() for library in blas_libraries()]


@pytest.fixture
def two_blas_threads():
    """Two threads for BLAS, whatever the machine has.

    Set directly: inside of threadpoolctl's own limits no thread but this one could change them.
    """
    before = blas_threads()
    for library in blas_libraries():
        _pool._set_threads(library, 2)
    assert set(blas_threads()) == {2}
    yield
    for library, threads in zip(blas_libraries(), before, strict=True):
        _pool._set_threads(library, threads)


@pytest.mark.usefixtures("two_blas_threads")
def test_blas_is_limited_inside_and_restored_after():
    with one_blas_thread():
        with one_blas_thread():
            assert set(blas_threads()) == {1}
        assert set(blas_threads()) == {1}
    assert set(blas_threads()) == {2}


def test_a_blas_that_is_loaded_later_is_limited_too():
    """The libraries used to be searched for only once, so that a BLAS loaded after the first fit kept its threads."""
    code = """
import numpy as np
from threadpoolctl import ThreadpoolController
from vicinal._engine.work.pool import one_blas_thread
def blas():
    return [library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"]
with one_blas_thread():
    pass
before = len(blas())
import scipy.linalg
later = blas()
for library in later:
    library.set_num_threads(2)
with one_blas_thread():
    inside = [library.get_num_threads() for library in later]
after = [library.get_num_threads() for library in later]
print(len(later) - before, set(inside), set(after))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split(
        None, 1
    )
    if done[0] == "0":
        pytest.skip("SciPy shares NumPy's BLAS here")
    assert done[1].strip() == "{1} {2}"


@pytest.mark.usefixtures("two_blas_threads")
def test_blas_is_restored_after_threads_that_overlap():
    """The first thread to enter left first and stayed alive, and its limit remained for the rest of the process.

    threadpoolctl 3.8 restores a limit only from the thread that set it, as long as that one lives.
    """
    entered, inside, left, done = (threading.Event() for _ in range(4))
    seen = []

    def first():
        with one_blas_thread():
            entered.set()
            inside.wait(60)
        left.set()
        done.wait(60)

    def second():
        entered.wait(60)
        with one_blas_thread():
            inside.set()
            left.wait(60)
            seen.extend(blas_threads())
        done.set()

    in_threads(first, second)
    assert set(seen) == {1}  # still limited while the second is inside
    assert set(blas_threads()) == {2}


@pytest.mark.usefixtures("two_blas_threads")
def test_blas_is_restored_after_overlapping_pair_work():
    rng = np.random.default_rng(3)
    problems = [placed("cpu", rng.normal(size=(n, 150)), threads=2) for n in (900, 300)]
    in_threads(*[lambda p=p, k=k: [p.scatter() for _ in range(k)] for p, k in zip(problems, (2, 7), strict=True)])
    assert set(blas_threads()) == {2}


@pytest.mark.usefixtures("two_blas_threads")
def test_blas_is_restored_after_an_error():
    def fail(item):
        raise RuntimeError(str(item))

    with pytest.raises(RuntimeError, match="0"):
        list(in_order(fail, range(5), 2))
    assert set(blas_threads()) == {2}


@pytest.mark.usefixtures("two_blas_threads")
@pytest.mark.parametrize(
    ("shape", "threads"), [((4000, 1000), 1), ((3999, 1000), 2), ((12, 30), 1), ((60, 256), 1), ((60, 257), 2)]
)
def test_blas_is_limited_where_its_products_are_small(shape, threads):
    """Compared with the pairs, or by themselves: 12 x 30 rows took seconds where two threads waited for each other."""
    with one_blas_thread_beside_pairs(*shape):
        assert set(blas_threads()) == {threads}
    assert set(blas_threads()) == {2}


# -- processes --------------------------------------------------------------------------------------------------------


def _log_sums_in_worker(X):
    return placed("cpu", X).log_sums()


def test_loky_workers_and_this_process_at_once():
    from joblib import Parallel, delayed

    X = np.random.default_rng(9).normal(size=(400, 3))
    expected = _log_sums_in_worker(X)
    results = Parallel(n_jobs=2)(delayed(_log_sums_in_worker)(X) for _ in range(3))
    for result in results:
        np.testing.assert_allclose(result, expected, rtol=1e-13)  # NumPy's own sums depend on memory alignment


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_works():
    X = np.random.default_rng(10).normal(size=(400, 3))
    expected = _log_sums_in_worker(X)  # the parent has used its threads and compiled kernels
    with multiprocessing.get_context("fork").Pool(1) as pool:
        result = pool.apply_async(_log_sums_in_worker, (X,)).get(timeout=120)
    np.testing.assert_allclose(result, expected, rtol=1e-13)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.usefixtures("two_blas_threads")
def test_a_child_forked_inside_of_pair_work_has_all_blas_threads():
    with one_blas_thread(), multiprocessing.get_context("fork").Pool(1) as pool:
        assert set(pool.apply_async(blas_threads).get(timeout=120)) == {2}
    assert set(blas_threads()) == {2}


def test_the_parts_of_kernels_are_inlined():
    """NCA had other last digits in the process that compiled its kernels than in those that took them from the disk cache.

    There the parts that LLVM had not inlined were those of the kernel, here those of their own modules.
    """
    from numba.core.dispatcher import Dispatcher as dispatcher

    from vicinal._engine.work import compiling

    folder = Path(compiling.__file__).parents[1]
    names = [file.relative_to(folder) for file in compiling._compiled_files(folder)]
    modules = [
        importlib.import_module(".".join(["vicinal._engine", *name.with_suffix("").parts])) for name in sorted(names)
    ]
    parts = [part for module in modules for part in vars(module).values() if isinstance(part, dispatcher)]
    assert len(parts) > 40
    assert all(part.targetoptions["forceinline"] for part in parts)


def limited(program, mb, *arguments):
    """The output of a program that may map so many more bytes after its line ``limit()``."""
    start = """
import resource, sys
def limit():
    mapped = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MB * 2**20,) * 2)
"""
    settings = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", start.replace("MB", str(mb)) + program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=settings)
    assert done.returncode == 0, done.stderr
    return done.stdout


needs_limits = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")


@needs_limits
def test_no_room_for_the_memory_of_blas_is_a_memory_error():
    """NumPy's OpenBLAS ended the process, and SciPy's tried forever to allocate its working memory."""
    program = """
import numpy as np, scipy.linalg
from vicinal import RCA
if sys.argv[1] == "numpy":
    np.linalg.cholesky(np.eye(2))  # NumPy's OpenBLAS has its memory already
limit()
try:
    RCA().fit(np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 3)
except MemoryError as error:
    print(error)
"""
    for used in ("numpy", "nothing"):
        assert "needs 64 MB of address space" in limited(program, 20, used)


# -- memory -----------------------------------------------------------------------------------------------------------


def traced_peak(work):
    """The peak of the allocations that NumPy makes; it reports them to tracemalloc."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_memory_budget_is_kept():
    # 20,000^2 pairs would be 1.6 GB.  Beyond the budget: ordered, packed and mapped copies, and vectors of length n.
    X = np.random.default_rng(7).normal(size=(20_000, 2)).astype(np.float32)
    for some in (X[:1100], X):  # compile outside the measurement, for all pairs and for those that matter
        placed("cpu", some).scatter()
    peak = traced_peak(lambda: placed("cpu", X, memory="16 MB", threads=2).scatter())
    assert peak < 16 * 2**20 + 4 * X.nbytes + 10 * 8 * len(X)


def test_rows_are_held_once_and_their_images_once():
    """There were up to four copies at rest, and twelve while rows were pulled: rows, sorted rows, images, packed images."""
    rng = np.random.default_rng(8)
    n, d, budget = 9000, 40, 2 * 2**20
    X, codes, metric = rng.normal(size=(n, d)), rng.integers(3, size=n), np.eye(d) / 8
    vectors = 20 * 8 * n

    def here(rows):
        match = Match("class", codes[rows])
        engine = Engine("cpu", threads=2, memory=budget)
        return prepare(engine, X[rows], leave_one_out=True, match=match).at(metric)

    small = here(slice(0, 3000))
    for reduction, results in (
        (lambda placed: placed.scatter(), 0),
        (lambda placed: placed.mean_shifts(), 2),
        (lambda placed: placed.pull(objective="likelihood"), 2),
    ):
        reduction(small)  # compile outside the measurement
        tracemalloc.start()
        everyone = here(slice(None))
        answer = reduction(everyone)
        peak = tracemalloc.get_traced_memory()[1]
        del answer
        rest = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert rest < 2 * X.nbytes + vectors
        working = 4 * 8 * d * tuning.ALGEBRA_ROWS  # while rows are mapped
        assert peak < (2 + results) * 1.03 * X.nbytes + vectors + max(budget, working)


def test_pruned_passes_hold_the_rows_once_and_their_images_once():
    """Tiles and their images in order were two copies, each thread held what all points receive, and a tree of sums several more."""
    rng = np.random.default_rng(8)
    n, d, budget = 9000, 40, 2 * 2**20
    X, metric = (
        np.repeat(rng.normal(size=(40, d)), n // 40 + 1, axis=0)[:n] + 0.01 * rng.normal(size=(n, d)),
        20.0 * np.eye(d),
    )
    vectors = 20 * 8 * n
    for reduction, results in ((lambda placed: placed.scatter(), 0), (lambda placed: placed.mean_shifts(), 2)):
        for some in (X[:7000], X):  # compile outside the measurement
            tracemalloc.start()
            problem = prepare(Engine("cpu", threads=2, memory=budget), some, leave_one_out=True)
            placed = problem.at(metric)
            answer = reduction(placed)
            peak = tracemalloc.get_traced_memory()[1]
            del answer
            rest = tracemalloc.get_traced_memory()[0]
            tracemalloc.stop()
            assert problem.certified_row_error > 0.0  # pairs were skipped
        assert rest < 2.06 * X.nbytes + vectors  # boxes take 1 / 32 of a copy
        working = 4 * 8 * d * tuning.ALGEBRA_ROWS  # while rows are mapped
        assert peak < (2.06 + results) * X.nbytes + vectors + max(budget, working)


@pytest.mark.parametrize("kind", ["reference", "cpu"])
def test_partial_results_do_not_pile_up(kind):
    # The reference once kept an n-vector for every block of rows: 35 MB here.
    rng = np.random.default_rng(13)
    n = 4500
    Z, targets = rng.normal(size=(n, 2)), rng.dirichlet(np.ones(3), n)
    some = np.arange(1500)
    placed(kind, Z[:600], Match("dot", targets[:600])).pull(queries=some[:8])

    def work():
        here = placed(kind, Z, Match("dot", targets), threads=1, memory="8 MB")
        here.scatter()
        here.pull(queries=some)

    assert traced_peak(work) < 8 * 2**20 + 20 * Z.nbytes + 200 * n


# -- constants --------------------------------------------------------------------------------------------------------


def test_tuned_constants_are_read_when_they_are_needed():
    """Forty modules had copies of the constants, so that a test or benchmark had to change each of them."""
    faults = []
    for file in sorted(Path(tuning.__file__).parent.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.Lambda)]
        bodies = [
            part
            for function in functions
            for part in (function.body if isinstance(function.body, list) else [function.body])
        ]
        late = {id(node) for part in bodies for node in ast.walk(part)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").endswith(
                ("_engine.tuning", "_engine.accuracy")
            ):
                copied = {alias.name for alias in node.names if alias.name.isupper()} - {
                    *tuning.COMPILED,
                    "FLOAT64",
                    "FLOAT32",
                }
                faults += [f"{file.name}:{node.lineno}: imports {name}" for name in copied]
            if (
                isinstance(node, ast.Attribute)
                and getattr(node.value, "id", "") in ("tuning", "accuracy")
                and id(node) not in late
            ):
                faults.append(f"{file.name}:{node.lineno}: reads {node.attr} when it is imported")
    assert not faults, "\n".join(faults)


def test_forced_constants_hold_inside_the_block_and_unknown_ones_are_errors():
    with tuning.forced(PRODUCTS_FROM=3, PRODUCT_ROWS=7, PRODUCT_TOLERANCE=-1.0):
        assert set(tuning.PRODUCTS_FROM.values()) == {3}
        assert tuning.PRODUCT_ROWS == 7
        assert not products_are_accurate(1.0, np.float64)
    assert {3} != tuning.PRODUCTS_FROM
    assert products_are_accurate(1.0, np.float64)
    with pytest.raises(KeyError, match="PRODUCT_CROWS"), tuning.forced(PRODUCT_CROWS=7):
        pass
    with pytest.raises(ValueError, match="compiled with PRUNED_TILE"), tuning.forced(PRUNED_TILE=32):
        pass


def test_every_constant_that_the_benchmark_tunes_exists(monkeypatch):
    """The benchmark failed at its first constant after the modules had been cut in pieces."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    tune = importlib.import_module("tune")

    def in_turn(grid, make, *settings):
        for values in settings:
            with tuning.forced(**(values(1) if callable(values) else values)):
                pass

    for name in ("crossing", "best_of"):
        monkeypatch.setattr(tune, name, in_turn)
    for name in ("pair_cost", "small_work"):
        monkeypatch.setattr(tune, name, lambda n: None)
    measurements = tune.measurements(quick=True)
    for name, measure in measurements.items():
        assert tune.in_the_file(name) is not None
        measure()
    assert len(measurements) > 15


# -- compilers --------------------------------------------------------------------------------------------------------


_COMPILE = """
import numpy as np
from vicinal._engine import prepare, tuning
from vicinal._engine.cpu import sweep_kernels
from vicinal._engine.work import compiling
X = np.random.default_rng(0).normal(size=(50, 2))
prepare("cpu", X, leave_one_out=True).at(None).scatter()
with tuning.forced(HALF_SCATTER_WORK=0):
    prepare("cpu", X, leave_one_out=True).at(None).scatter()
stats = [kernel._dispatcher.stats for kernel in (sweep_kernels.means, sweep_kernels.scatter, sweep_kernels.peaks)]
print(*(sum(counts.values()) for stat in stats for counts in (stat.cache_hits, stat.cache_misses)))
kernels = [thing for thing in vars(sweep_kernels).values() if isinstance(thing, compiling._Kernel)]
print(sum(bool(kernel._ready) for kernel in kernels), len(kernels) > 5)
"""


def test_a_second_process_does_not_compile_again_and_only_what_is_used_is_compiled(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    runs = [
        subprocess.run(
            [sys.executable, "-c", _COMPILE], env=environment, check=True, capture_output=True, text=True
        ).stdout
        for _ in range(2)
    ]
    assert runs[0].split() == ["0", "1", "0", "1", "0", "0", "2", "True"]
    assert runs[1].split() == ["1", "0", "1", "0", "0", "0", "2", "True"]


def test_import_changes_nothing_in_the_process():
    """Importing vicinal made every later fork of the process wait for imports and for Numba's compiler."""
    code = """
import atexit, os, signal, sys, threading, warnings
calls = []
for module, name in ((os, "register_at_fork"), (atexit, "register"), (signal, "signal"), (os, "putenv")):
    if hasattr(module, name):
        setattr(module, name, lambda *args, name=name, **options: calls.append(name))
def state():
    hooks = sys.excepthook, threading.excepthook, sys.unraisablehook, sys.displayhook, sys.getrecursionlimit(), *sys.meta_path, *sys.path_hooks
    return threading.enumerate(), hooks, dict(os.environ), list(warnings.filters), warnings.showwarning
before = state()
import vicinal
assert state() == before
assert calls == [], calls
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_import_is_light_and_small_problems_never_load_numba():
    """178 rows took 40 s to compile kernels for what NumPy does in 0.7 s, because work was multiplied by max_iter."""
    code = """
import sys, warnings
import vicinal
assert not {"numba", "torch", "dask", "matplotlib", "sklearn", "scipy"} & set(sys.modules), sys.modules.keys()
import vicinal.datasets, vicinal.plot
assert "matplotlib" not in sys.modules
for name in vicinal.__all__:
    getattr(vicinal, name)
assert set(vicinal.__all__) <= set(dir(vicinal))
assert not {"numba", "torch", "dask", "matplotlib"} & set(sys.modules)

from sklearn.datasets import load_wine
from vicinal import (
    LCA, NCA, ManifoldParzen, Objective, PairNCA, ParzenWindows, SoftNeighborsClassifier, SoftNeighborsRegressor, StochasticGradient,
)
warnings.simplefilter("ignore")
X, y = load_wine(return_X_y=True)
for estimator in (
    ParzenWindows(), LCA(reg=0.0), ManifoldParzen(noise=0.1, n_components=1, n_neighbors=5),
    NCA(max_iter=1000, tol=1.0), NCA(solver="stochastic", max_iter=3),
    NCA(objective=Objective(match="gaussian"), max_iter=3), PairNCA(max_iter=3), SoftNeighborsClassifier(), SoftNeighborsRegressor(),
):
    estimator.fit(X, y)
    for method in ("score_samples", "predict"):
        if hasattr(estimator, method):
            getattr(estimator, method)(X[:5])
    assert estimator.engine_ == "reference", estimator
    assert "numba" not in sys.modules, estimator
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_numba_the_reference_serves_with_one_warning():
    code = """
import sys, warnings
sys.modules["numba"] = None  # import numba fails
import numpy as np
from vicinal._engine import prepare
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        problem = prepare("cpu", np.zeros((10, 2)))
        assert problem.backend == "reference"
assert len(caught) == 1 and "Numba" in str(caught[0].message)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# -- the choice of a backend ------------------------------------------------------------------------------------------


def test_auto_takes_the_reference_for_small_problems():
    assert which_engine(np.zeros((200, 5))).startswith("reference")
    assert which_engine(np.zeros((50_000, 5))).startswith("cpu")
    assert which_engine(np.zeros((200, 5)), "cpu") == "cpu: it was requested"


def test_the_choice_is_a_pure_function_of_the_work(monkeypatch):
    """The choice depends only on the work: not on threads, memory, imported modules or earlier choices."""
    works = [Work(n, n, d, passes) for n in (100, 2000, 30_000) for d in (2, 50) for passes in (1, 20)]
    expected = [choose(Engine(), work) for work in works]
    assert {choice.backend for choice in expected} == {"reference", "cpu"}
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setitem(sys.modules, "torch", None)
    for engine in (Engine(threads=1), Engine(memory="1 MB"), Engine(precision="float32")):
        assert [choose(engine, work) for work in reversed(works)] == expected[::-1]


def test_prepare_takes_what_was_chosen():
    X = np.zeros((1000, 3))
    for passes, n_queries, n_dims in ((1, None, None), (100, None, None), (1, 5, None), (100, None, 1)):
        work = Work(n_queries or 1000, 1000, n_dims or 3, passes)
        problem = prepare(None, X, passes=passes, n_queries=n_queries, n_dims=n_dims)
        assert problem.backend == choose(Engine(), work).backend


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Engine("gpu"), ValueError, "'cpu'"),
        (lambda: Engine(threads=0), ValueError, "threads"),
        (lambda: Engine(memory="lots"), ValueError, "memory"),
        (lambda: Engine(memory=100), ValueError, "at least 1 MB"),
        (lambda: Engine(precision="half"), ValueError, "precision"),
        (lambda: Engine(device="cuda"), ValueError, "torch"),
        (lambda: prepare(3, np.zeros((2, 2))), TypeError, "Engine"),
        (lambda: which_engine(np.zeros(3)), ValueError, "two dimensions"),
    ],
)
def test_bad_engines(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_engines_copy_and_pickle():
    engine = Engine("cpu", threads=2, memory="1 GB")
    assert pickle.loads(pickle.dumps(engine)) == engine == copy.deepcopy(engine)
    assert Engine(memory="1.5 GiB").memory_bytes == 3 * 2**29
    assert Engine().memory_bytes == 128 * 2**20


def test_damaged_cache_of_compiled_code_is_written_again_with_one_warning(tmp_path, monkeypatch):
    """Every fit ended in an UnpicklingError of Numba."""
    from vicinal._engine.work.compiling import _Kernel

    source = tmp_path / "doubling.py"
    source.write_text(
        "from numba import types\nfrom vicinal._engine.work.compiling import _kernel\n"
        "@_kernel(lambda real: types.void(real[::1]))\ndef double(values):\n    for i in range(len(values)):\n        values[i] *= 2\n"
        "@_kernel(lambda real: types.void(real[::1]))\ndef halve(values):\n    for i in range(len(values)):\n        values[i] /= 2\n"
    )

    def run():
        """Load the kernels as another process would, and return the number of warnings."""
        spec = importlib.util.spec_from_file_location("doubling", source)
        module, values = importlib.util.module_from_spec(spec), np.array([3.0, 4.0])
        spec.loader.exec_module(module)
        monkeypatch.setattr(_Kernel, "_reported", False, raising=False)
        with warnings.catch_warnings(record=True) as record:
            warnings.simplefilter("always")
            module.double(values)
            module.double(values)
            module.halve(values)
        np.testing.assert_array_equal(values, [6.0, 8.0])
        assert all("cache of compiled code" in str(one.message) for one in record)
        return len(record)

    assert run() == 0
    for suffix, content in (("nbi", b""), ("nbi", bytes(500)), ("nbc", b""), ("nbc", bytes(500))):
        for file in tmp_path.rglob(f"*.{suffix}"):
            file.write_bytes(content)
        assert run() == 1
        assert run() == 0


def test_missing_triton_on_a_gpu_is_reported_once_per_problem(monkeypatch):
    torch = needs("torch")
    from vicinal._engine.cuda import backend as _torch

    monkeypatch.setattr(_torch.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(_torch, "_check_device", lambda torch, name: None)
    monkeypatch.setattr(_torch.TorchBackend, "to_device", lambda self, array: torch.as_tensor(array))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    with pytest.warns(RuntimeWarning, match="Triton is not installed.*pip install triton") as record:
        problem = prepare(Engine("torch", device="cuda", memory="64 MB"), np.zeros((3, 2)))
    assert len(record) == 1
    problem.at(None)


def test_blocks_cover_the_rows_once():
    blocks = Blocks.for_pairs(103, 50, 1000)
    rows = [i for block in blocks for i in range(block.start, block.stop)]
    assert rows == list(range(103))
    assert blocks.rows == 20
    assert len(list(blocks)) == len(blocks)
    assert list(Blocks.for_pairs(0, 50, 1000)) == []


# -- the table of backends --------------------------------------------------------------------------------------------


def test_every_backend_is_in_the_list_that_mypy_checks():
    """mypy holds a class to the contract where it is assigned; a backend that is only in the table would escape it."""
    tree = ast.parse(inspect.getsource(backends))
    checked = next(node for node in ast.walk(tree) if isinstance(node, ast.AnnAssign) and node.target.id == "_CHECKED")
    names = {element.id for element in checked.value.elts}
    assert names == {path.partition(":")[2] for path in BACKENDS.values()}


@pytest.mark.parametrize("name", BACKENDS)
def test_every_backend_says_its_name_and_is_an_engine(name):
    if name in ("torch", "dask"):
        needs("torch" if name == "torch" else "distributed")
    assert backend_class(name).name == name
    if name == "dask":
        return  # it passes everything on to a placement of "cpu", and needs a cluster: tests/test_dask.py
    here = prepare(Engine(name), np.zeros((3, 2)))
    assert here.backend == name
    assert Placed in type(here.at(None).placed).__mro__  # whose abstract members it cannot do without


def test_a_new_backend_is_one_line(monkeypatch):
    """A class in the table is an engine of that name, and does the work."""
    from vicinal import ParzenWindows
    from vicinal._engine.reference import arrays as _arrays

    asked = []

    class Counting(_arrays.ArrayBackend):
        name = "counting"

        def at(self, kernel):
            asked.append(len(self.points.rows))
            return super().at(kernel)

    monkeypatch.setattr(_arrays, "Counting", Counting, raising=False)
    monkeypatch.setitem(BACKENDS, "counting", "vicinal._engine.reference.arrays:Counting")
    X = np.random.default_rng(0).normal(size=(40, 2))
    expected = ParzenWindows(0.5, engine="reference").fit(X).score_samples(X)
    model = ParzenWindows(0.5, engine="counting").fit(X)
    np.testing.assert_array_equal(model.score_samples(X), expected)
    assert model.engine_ == "counting"
    assert asked


def test_kernels_are_known_by_all_of_their_sources(tmp_path):
    """Numba's cache checks one file only; a kernel that was compiled for tiles of another size used to write beyond its arrays."""
    from vicinal._engine.cpu import sweep_kernels
    from vicinal._engine.work import compiling

    folder = Path(compiling.__file__).parents[1]
    shutil.copytree(folder, tmp_path / "engine", ignore=shutil.ignore_patterns("__pycache__"))
    name = compiling._sources(tmp_path / "engine")
    assert sweep_kernels.means._dispatcher.py_func.__qualname__.endswith(name)
    # `accuracy.py` was missing, although kernels are compiled with TIED.
    compiled = [path for path in folder.rglob("*.py") if "from numba" in path.read_text()]
    for file in (*(path.relative_to(folder) for path in compiled), "tuning.py", "accuracy.py"):
        with (tmp_path / "engine" / file).open("a") as source:
            source.write("EDITED = True\n")
        assert compiling._sources(tmp_path / "engine") != name, file
        name = compiling._sources(tmp_path / "engine")
