"""Compare two installed versions of vicinal: python benchmarks/versus.py OLD_PYTHON NEW_PYTHON [case ...] [-o FILE].

Each case runs in one process per version.  The two take turns. The script reports the median over the pairs of runs
of new / old, with a 95% interval from the order statistics.  "Slower" means that the whole interval lies above
1.05.  `ceilings.py` measures the best rates of the machine, and `run.py` measures other libraries.
"""

import argparse
import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from run import machine

SETUP = """
import warnings; warnings.simplefilter("ignore")
import json, sys, time
import numpy as np
import vicinal
from vicinal import _engine

def mixture(n, d, dtype="float64"):
    rng = np.random.default_rng(n + d)
    k = min(d, 8)
    y = rng.integers(10, size=n)
    B = rng.normal(size=(10, k, d)) * np.geomspace(1, 0.3, k)[:, None] / np.sqrt(d)
    X = rng.normal(size=(10, d))[y] * 2 * np.sqrt(k / d)
    X += np.einsum("nl,nld->nd", rng.normal(size=(n, k)), B[y]) + 0.2 * rng.normal(size=(n, d)) * np.sqrt(k / d)
    return X.astype(dtype), y

def metric_of(X):
    return np.linalg.inv(np.linalg.cholesky(0.1 * np.cov(X.T.astype(float)).reshape(X.shape[1], -1)))

def scatter(n, d, dtype):
    X, _ = mixture(n, d, dtype)
    A, ones = metric_of(X), np.ones(n)
    if hasattr(_engine, "prepare"):
        problem = _engine.prepare("cpu", X, leave_one_out=True)
        return lambda: problem.at(A).scatter(ones)
    pairs = _engine.pair_reductions("cpu", n, n, d)
    own = np.arange(n)
    def step():
        Z = X @ A.T.astype(X.dtype)
        return pairs.softmax_scatter(Z, Z, row_weights=ones, left_out=own)
    return step

def nca(n, d, rank):
    X, y = mixture(n, d)
    A = np.sqrt(2) * metric_of(X)[:rank]
    if hasattr(_engine, "prepare"):
        problem = _engine.prepare("cpu", X, leave_one_out=True, match=_engine.Match("class", y))
        return lambda: problem.at(A).gradient()
    pairs, match = _engine.pair_reductions("cpu", n, n, rank), _engine.Match("class", y, y)
    def step():
        Z = X @ A.T
        return pairs.mutual_pull(Z, match).pull.T @ X
    return step

def density(d):
    X, _ = mixture(110_000, d)
    model = vicinal.ParzenWindows(0.3, engine="cpu").fit(X[:100_000])
    return lambda: model.score_samples(X[100_000:])

def frames(n, m, d, depth):
    X, _ = mixture(n + m, d)
    model = vicinal.ManifoldParzen(n_neighbors=10, n_components=depth, noise=0.05, engine="cpu").fit(X[:n])
    return lambda: model.score_samples(X[n:])

def fit(name, n, d, **options):
    X, y = mixture(n, d)
    model = getattr(vicinal, name)(**options)
    return lambda: model.fit(X, y)

step = eval(sys.argv[1])
step()
print("ready", flush=True)
for line in sys.stdin:
    start = time.perf_counter()
    for _ in range(int(line)):
        step()
    print((time.perf_counter() - start) / int(line), flush=True)
"""

CASES = {
    **{
        f"scatter {n} x {d} {dtype}": f"scatter({n}, {d}, {dtype!r})"
        for n in (2000, 10_000)
        for d in (2, 8, 32, 128)
        for dtype in ("float64", "float32")
    },
    **{f"NCA 5000 x 64 to {rank}": f"nca(5000, 64, {rank})" for rank in (64, 16, 2)},
    **{f"density 10^4 on 10^5 x {d}": f"density({d})" for d in (2, 8, 64)},
    "frames 2000 on 5000 x 64": "frames(5000, 2000, 64, 5)",
    "frames 10^4 on 10^4 x 8": "frames(10_000, 10_000, 8, 2)",
}


class Version:
    """One version of the library, in a separate process."""

    def __init__(self, python, case):
        command = [python, "-c", SETUP, case]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self._read() != "ready":
            raise RuntimeError(f"{python} could not run {case}")

    def _read(self):
        return self.process.stdout.readline().strip()

    def time(self, repeats):
        time.sleep(0.03)  # BLAS threads of the other version spin for a while after their last product
        self.process.stdin.write(f"{repeats}\n")
        self.process.stdin.flush()
        return float(self._read())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def compare(old, new, case, rounds):
    """Return the times of both versions and the ratios new / old, in `rounds` pairs of runs."""
    versions = [Version(python, case) for python in (old, new)]
    once = max(version.time(1) for version in versions)
    repeats = max(1, round(0.2 / once))
    times = np.empty((rounds, 2))
    for k in range(rounds):
        for which in (0, 1) if k % 2 == 0 else (1, 0):
            times[k, which] = versions[which].time(repeats)
    for version in versions:
        version.close()
    ratios = np.sort(times[:, 1] / times[:, 0])
    # The median lies between these order statistics with a probability of 95%.
    reach = int(np.ceil(0.98 * np.sqrt(rounds)))
    low, high = max(rounds // 2 - reach, 0), min(rounds // 2 + reach, rounds - 1)
    return {
        "old_seconds": float(np.median(times[:, 0])),
        "new_seconds": float(np.median(times[:, 1])),
        "ratio": float(np.median(ratios)),
        "interval": [float(ratios[low]), float(ratios[high])],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", help="a Python with the old version installed")
    parser.add_argument("new", help="a Python with the new version installed")
    parser.add_argument("cases", nargs="*", help="words that a case must contain; all cases by default")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    results = {}
    for name, case in CASES.items():
        if options.cases and not any(word in name for word in options.cases):
            continue
        found = results[name] = compare(options.old, options.new, case, options.rounds)
        verdict = "SLOWER" if found["interval"][0] > 1.05 else ""
        print(
            f"{name:32s} old {found['old_seconds']:.4f} s  new {found['new_seconds']:.4f} s  new/old {found['ratio']:.2f} "
            f"({found['interval'][0]:.2f} to {found['interval'][1]:.2f}) {verdict}",
            flush=True,
        )
    if options.output is not None:
        report = {
            "machine": machine(),
            "date": datetime.now(UTC).isoformat(),
            "rounds": options.rounds,
            "results": results,
        }
        options.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
