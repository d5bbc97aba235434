"""Fits and scores under a limit of the address space end in a MemoryError, a correct result, or an abort with a reason.

Each case runs a task in a separate process, with one, two or eight threads, that may map only a limited amount of memory beyond what
it has after the imports. In some cases BLAS was not used before. An abort by OpenBLAS, LLVM or a thread that cannot be started, with
their own message, is counted separately. A wrong result, a hang of any library or a damaged file is bad.
"""

import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from campaigns.harness import Bad, Case, Skip, environment, watched
from vicinal import io

CASES = 100
LONGEST = 2000.0  # a hang ends earlier
_TASK = """
import faulthandler; faulthandler.enable()
import sys, warnings, numpy as np, scipy.linalg
warnings.simplefilter("ignore")
import vicinal as v
from vicinal import io
task, limit, path, threads, used = sys.argv[1], float(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5] == "used"
engine = v.Engine(threads=threads)
rng = np.random.default_rng(0)
X, y = rng.normal(size=(3000, 8)), np.arange(3000) % 3
def fitted():
    if task == "parzen": return v.ParzenWindows(0.5, engine=engine).fit(X)
    if task == "lca": return v.LCA(reg=0.1, max_iter=2, tol=1.0, engine=engine).fit(X)
    if task == "nca": return v.NCA(2, max_iter=2, random_state=0, engine=engine).fit(X, y)
    if task == "manifold": return v.ManifoldParzen(n_neighbors=5, n_components=2, engine=engine).fit(X)
    return v.RCA().fit(X, y)
for name in ("ParzenWindows", "LCA", "NCA", "ManifoldParzen", "RCA"):  # imports are not the task
    getattr(v, name)
if used:  # NumPy and SciPy bring an OpenBLAS each, which allocates its working memory at the first use
    v.ParzenWindows(0.5).fit(X[:50]).score_samples(X[:5])
    scipy.linalg.eigh(X.T @ X)
# A stack that cannot grow ends a process with signal 11, whatever the program does, so it grows before the limit is set.
import json
sys.setrecursionlimit(50_000)
try:
    json.loads("[" * 20_000)
except (ValueError, RecursionError):
    sys.setrecursionlimit(1000)
if limit > 0:
    import resource
    mapped = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + int(limit), mapped + int(limit)))
try:
    model = fitted()
    rows = model.score_samples(X[:300]) if hasattr(model, "score_samples") else model.transform(X[:300])
    io.save(model, path)
    answer = float(np.abs(rows).sum())
except (MemoryError, np.linalg.LinAlgError) as error:
    print("MemoryError" if isinstance(error, MemoryError) else repr(error))
    sys.exit(7)
print(repr(answer))
"""
# Messages of other libraries when they cannot allocate memory and end the process or raise their own error.
_ABORTS = (
    "OpenBLAS",
    "LLVM",
    "bad_alloc",
    "can't start new thread",
    "Cannot allocate memory",
    "cannot allocate memory",
    "out of memory",
    "Resource temporarily unavailable",
)
TASKS = ["parzen", "lca", "nca", "manifold", "rca"]


def _run(task: str, limit: float, path: Path, threads: int = 1, *, used: bool = True) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", _TASK, task, str(limit), str(path), str(threads), "used" if used else "new"]
    return watched(command, env=environment(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1"))


@cache
def _unlimited(task: str) -> float:
    with TemporaryDirectory(prefix="vicinal-campaign-") as folder:
        done = _run(task, 0, Path(folder) / "model.vicinal")
        return float(done.stdout)


def check(case: Case) -> str:
    """Run one task under one limit."""
    if not Path("/proc/self/statm").exists():
        raise Skip("the mapped memory is not known here")
    case.what = str(case.choice(TASKS))
    limit = 2.0 ** case.rng.uniform(16, 29)
    threads, used = int(case.choice([1, 1, 2, 8])), case.chance(0.7)
    case.text = (
        f"{limit / 2**20:.2f} MB beyond the imports, {threads} threads, BLAS {'used' if used else 'not used'} before"
    )
    expected = _unlimited(case.what)
    with TemporaryDirectory(prefix="vicinal-campaign-") as folder:
        path = Path(folder) / "model.vicinal"
        done = _run(case.what, limit, path, threads, used=used)
        if path.exists():
            io.load(path)  # raises a ValueError if it is damaged
        if done.returncode == 0:
            if abs(float(done.stdout) - expected) > 1e-9 * abs(expected):
                raise Bad(f"it answers {done.stdout.strip()}, expected {expected!r}")
            return "the right answer"
    if done.returncode == 7 and done.stdout.strip() == "MemoryError":
        return "MemoryError"
    words = (done.stdout + done.stderr).strip()
    named = next((word for word in _ABORTS if word in words), None)
    if named is None:  # ending without a message is a failure, too
        raise Bad(f"it ends with {done.returncode}: {words[-1500:]}")
    return f"an end by other code ({named})"
