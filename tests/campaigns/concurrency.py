"""Threads, forks, process pools and unusual installations give the same bits, do not hang, and leave BLAS threads unchanged.

Each case runs a script in a separate process and compares its output with that of a plain run.
"""

import os
import shutil
import stat
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import vicinal
from campaigns.harness import Bad, Case, Skip, environment, watched

CASES = 60
LONGEST = 2000.0  # the cases with an empty cache compile all kernels
_COMMON = """
import faulthandler, hashlib, os, sys, warnings, numpy as np
faulthandler.enable()
warnings.simplefilter("ignore")
import vicinal as v
rng = np.random.default_rng(0)
X, y = rng.normal(size=(2500, 5)), np.arange(2500) % 3
def work(_=None):
    found = {
        "ParzenWindows": v.ParzenWindows(0.5).fit(X).score_samples(X[:200]),
        "LCA": v.LCA(reg=0.1, max_iter=2, tol=1.0).fit(X).components_,
        "NCA": v.NCA(2, max_iter=2, random_state=0).fit(X, y).components_,
        "ManifoldParzen": v.ManifoldParzen(n_neighbors=5, n_components=2).fit(X).score_samples(X[:100]),
    }
    digests = {name: hashlib.sha256(np.ascontiguousarray(part).tobytes()).hexdigest() for name, part in found.items()}
    return ",".join(f"{name}={digest[:16]}" for name, digest in digests.items())
def blas():
    import threadpoolctl
    return [(pool["user_api"], pool["num_threads"]) for pool in threadpoolctl.threadpool_info()]
"""
_SCRIPTS = {
    "plain": "print(work())",
    "threads": """
from concurrent.futures import ThreadPoolExecutor
work()  # whatever libraries are loaded at the first use
before = blas()
with ThreadPoolExecutor(8) as pool:
    found = set(pool.map(work, range(8)))
assert blas() == before, (before, blas())
print(*found)
""",
    "fork before": """
pid = os.fork()
if pid == 0:
    print(work(), flush=True)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
""",
    "fork after": """
first = work()
pid = os.fork()
if pid == 0:
    print(work(), flush=True)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert work() == first
""",
    "fork during": """
import threading, time
found = []
thread = threading.Thread(target=lambda: found.append(work()))
thread.start()
time.sleep(float(sys.argv[1]))
pid = os.fork()
if pid == 0:
    print(work(), flush=True)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
thread.join()
print(*found)
""",
    "loky": """
from joblib import Parallel, delayed
print(*set(Parallel(n_jobs=2)(delayed(work)(i) for i in range(4))))
""",
    "cold cache": """
import subprocess
code = open(sys.argv[2]).read().replace("#plain#", "print(work())")
both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
print(*{process.communicate()[0].strip() for process in both})
""",
    "unwritable cache": "print(work())",
    "no HOME": "print(work())",
    "read-only install": "print(work())",
}
_INSTALLED = Path(vicinal.__file__).resolve().parent
_SLOW = ("cold cache", "unwritable cache", "no HOME", "read-only install")  # they compile again


def check(case: Case) -> str:
    """Run the same work in one way, and check its output."""
    if not hasattr(os, "fork"):
        raise Skip("there is no fork")
    quick = [name for name in _SCRIPTS if name != "plain" and name not in _SLOW]
    case.what = str(case.choice([*quick * 3, *_SLOW]))
    with TemporaryDirectory(prefix="vicinal-campaign-") as folder:
        found = _run(case.what, Path(folder), float(case.rng.uniform(0.0, 1.0)))
    if found != {_expected()}:
        raise Bad(f"other bits: {found}, expected {_expected()}")
    return "the same bits"


@cache
def _expected() -> str:
    with TemporaryDirectory(prefix="vicinal-campaign-") as folder:
        (found,) = _run("plain", Path(folder), 0.0)
        return found


def _run(name: str, folder: Path, wait: float) -> set[str]:
    code = folder / "common.py"
    code.write_text(_COMMON + "#plain#\n")
    settings = _settings(name, folder)
    command = [sys.executable, "-W", "ignore", "-c", _COMMON + _SCRIPTS[name], str(wait), str(code)]
    try:
        done = watched(command, busy=1500.0, env=settings, cwd=folder)
    finally:
        _writable(folder)
    if done.returncode:
        raise Bad(f"it ends with {done.returncode}: {done.stderr[-500:]}")
    return set(done.stdout.split())


def _settings(name: str, folder: Path) -> dict[str, str]:
    if name == "cold cache":
        return environment(NUMBA_CACHE_DIR=str(folder / "cache"))
    if name == "unwritable cache":
        # The superuser ignores the modes of files, but nobody can create a folder inside a file.
        (folder / "file").write_text("")
        return environment(NUMBA_CACHE_DIR=str(folder / "file" / "cache"))
    if name == "no HOME":
        settings = environment()
        for variable in ("HOME", "XDG_CACHE_HOME"):
            settings.pop(variable, None)
        return settings
    if name == "read-only install":
        site = folder / "site"
        shutil.copytree(_INSTALLED, site / "vicinal", ignore=shutil.ignore_patterns("__pycache__"))
        for path in [site, *site.rglob("*")]:
            if path.is_dir():
                (path / "__pycache__").write_text("")  # the superuser cannot write there either
            path.chmod(path.stat().st_mode & ~0o222)
        known = environment()["PYTHONPATH"].split(os.pathsep)[1:]
        settings = environment(PYTHONPATH=os.pathsep.join([str(site), *known]), HOME=str(folder))
        settings.pop("NUMBA_CACHE_DIR", None)
        return settings
    return environment()


def _writable(folder: Path) -> None:
    """Make a folder writable, so that it can be removed."""
    for path in folder.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(path.stat().st_mode | stat.S_IWUSR)
