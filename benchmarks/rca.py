"""Time RCA against metric-learn, against one Gram product of the data, and the closure of pairs.

    python benchmarks/rca.py --metric-learn path/to/old/bin/python    # a Python with metric-learn and scikit-learn < 1.8
    python benchmarks/rca.py --quick                                  # small sizes, not for reporting

The script writes results/rca.json.  Every figure is a ratio or a time of this run; see README.md for the protocol.
Times are wall times, or processor times of all threads if the name of the figure says so. On a shared machine, only the latter are
reliable, preferably with OMP_NUM_THREADS=1, because idle threads of BLAS spin.
"""

import argparse
import json
import os
import subprocess
import time
import tracemalloc
from pathlib import Path

import numpy as np
from run import machine

from vicinal import RCA, chunklets_from_pairs

HERE = Path(__file__).parent

# The script for metric-learn's environment, with the same rows and chunklets, generated from the same seed.
THEIRS = """
import json, sys, time
import numpy as np
from metric_learn import RCA
{made}
X, y = make({n}, {d})
start = time.perf_counter(), time.process_time()
model = RCA().fit(X, y)
seconds = time.perf_counter() - start[0], time.process_time() - start[1]
print(json.dumps([*seconds, np.linalg.slogdet(model.get_mahalanobis_matrix())[1]]))
"""

MADE = '''
def make(n, d, seed=0):
    """Rows with class structure, chunklets of 2 to 10 in random order."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 11, size=n // 2)
    sizes = sizes[: np.searchsorted(np.cumsum(sizes), n)]
    y = np.full(n, -1)
    y[: sizes.sum()] = np.repeat(np.arange(len(sizes)), sizes)
    X = rng.normal(size=(n, d))
    X += rng.normal(size=(len(sizes) + 1, d))[y]
    order = rng.permutation(n)
    return X[order], y[order]
'''
exec(MADE)


def in_turn(works, rounds):
    """Return the best times (wall clock, processor) of each function; they take turns, round by round."""
    times = {name: [] for name in works}
    for work in works.values():
        work()
    for _ in range(rounds):
        for name, work in works.items():
            start = time.perf_counter(), time.process_time()
            work()
            times[name].append((time.perf_counter() - start[0], time.process_time() - start[1]))
    return {name: tuple(min(column) for column in zip(*pairs, strict=True)) for name, pairs in times.items()}


def against_gram(n, d, rounds):
    """Compare RCA's fit with one Gram product of the same array, and its additional memory with the size of the array."""
    X, y = make(n, d)  # noqa: F821
    times = in_turn({"fit": lambda: RCA().fit(X, y), "gram": lambda: X.T @ X}, rounds)
    tracemalloc.start()
    RCA().fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {
        "n": n,
        "d": d,
        "fit_seconds": times["fit"][0],
        "gram_seconds": times["gram"][0],
        "ratio": times["fit"][0] / times["gram"][0],
        "ratio_processor": times["fit"][1] / times["gram"][1],
        "extra_memory_over_X": peak / X.nbytes,
    }


def against_metric_learn(python, n, d, rounds):
    """Return the ratio of the times, after checking that both libraries find the same metric."""
    X, y = make(n, d)  # noqa: F821
    ours = in_turn({"fit": lambda: RCA(shrinkage=0).fit(X, y), "auto": lambda: RCA().fit(X, y)}, rounds)
    answer = subprocess.run(
        [python, "-W", "ignore", "-c", THEIRS.format(made=MADE, n=n, d=d)],
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, processor, log_det = json.loads(answer.stdout.splitlines()[-1])
    same = np.linalg.slogdet(RCA(shrinkage=0).fit(X, y).get_mahalanobis_matrix())[1]
    assert abs(same - log_det) < 1e-8 * abs(log_det), (same, log_det)
    return {
        "n": n,
        "d": d,
        "metric_learn_seconds": seconds,
        "fit_seconds": ours["fit"][0],
        "fit_with_shrinkage_seconds": ours["auto"][0],
        "times_faster": seconds / ours["fit"][0],
        "times_faster_with_shrinkage": seconds / ours["auto"][0],
        "times_faster_processor": processor / ours["fit"][1],
    }


def closure(n_rows, n_pairs, rounds):
    pairs = np.random.default_rng(0).integers(0, n_rows, size=(n_pairs, 2))
    seconds, processor = in_turn({"closure": lambda: chunklets_from_pairs(pairs, n_rows)}, rounds)["closure"]
    return {"rows": n_rows, "pairs": n_pairs, "seconds": seconds, "processor_seconds": processor}


def offset(n, d):
    """Return the largest relative change of the components if the data are shifted by 2^20, where entries are still exact."""
    rng = np.random.default_rng(0)
    X, y = rng.integers(-(2**12), 2**12, size=(n, d)) / 2.0**10, np.arange(n) // 4
    here, there = RCA(shrinkage=0).fit(X, y), RCA(shrinkage=0).fit(X + 2.0**20, y)
    return {"n": n, "d": d, "relative_change": float(_change(here.components_, there.components_))}


def blocks(n, d, n_blocks):
    """Return the largest relative difference between partial_fit over blocks and one fit, at offset 1e6."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n, d)) + 1e6, np.arange(n) // 4
    stream = RCA()
    for rows in np.split(np.arange(n), n_blocks):
        stream.partial_fit(X[rows], y[rows])
    return {
        "n": n,
        "d": d,
        "blocks": n_blocks,
        "relative_change": float(_change(RCA().fit(X, y).covariance_, stream.covariance_)),
    }


def _change(a, b):
    return np.abs(a - b).max() / np.abs(a).max()


def embeddings(n, d, n_pairs):
    """Return one fit of embedding-like data: few pairs, many dimensions, shrinkage on."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)).astype(np.float32)
    pairs = np.arange(2 * n_pairs).reshape(n_pairs, 2)
    seconds, processor = in_turn({"fit": lambda: RCA().fit(X, pairs)}, 1)["fit"]
    return {"n": n, "d": d, "pairs": n_pairs, "fit_seconds": seconds, "processor_seconds": processor}


def cases(quick, python):
    """Return the cases by name."""
    rounds = 2 if quick else 7
    return {
        "gram": lambda: [
            against_gram(n, d, rounds) for n, d in ([(20_000, 16)] if quick else [(1_000_000, 64), (1_000_000, 256)])
        ],
        "closure": lambda: closure(*((10_000, 5_000) if quick else (1_000_000, 500_000)), rounds),
        "offset": lambda: offset(4_000 if quick else 400_000, 16),
        "blocks": lambda: blocks(4_000 if quick else 40_000, 16, 100),
        "embeddings": lambda: [
            embeddings(*case) for case in ([(500, 64, 50)] if quick else [(5000, 768, 200), (5000, 3072, 200)])
        ],
        "metric_learn": lambda: against_metric_learn(python, *((2_000, 8) if quick else (100_000, 64)), rounds),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="some of: gram closure offset blocks embeddings metric_learn")
    parser.add_argument("--quick", action="store_true", help="small sizes, only to check that everything runs")
    parser.add_argument("--metric-learn", help="the Python of an environment with metric-learn and scikit-learn < 1.8")
    arguments = parser.parse_args()
    path = HERE / "results" / ("rca-quick.json" if arguments.quick else "rca.json")
    path.parent.mkdir(exist_ok=True)
    results = json.loads(path.read_text()) if path.exists() else {}
    results["machine"] = machine()
    for name, measure in cases(arguments.quick, arguments.metric_learn).items():
        if (arguments.names and name not in arguments.names) or (name == "metric_learn" and not arguments.metric_learn):
            continue
        results[name] = {"load_before": round(os.getloadavg()[0], 2), "measured": measure()}
        print(name, json.dumps(results[name], indent=2))
    path.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
