"""Measure the memory of the compiled engine, in copies of the rows: python benchmarks/memory.py [--pruned] [ROWS COLUMNS] [-o FILE].

"At rest" is the memory that a problem and its placement hold after a reduction; "beyond" is the memory that the reduction needs
temporarily, in addition to that and to its result.  `tracemalloc` counts what NumPy allocates.  The working budget is set to 8 MB, which is
one copy at the default size, so that it does not hide the rest.

``--pruned`` measures passes that skip pairs (on 10^6 x 10 by default, with two threads and the default budget of 128 MB): the
resident memory of the process, one process per reduction, because it includes what compiled kernels allocate.
"""

import argparse
import gc
import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
from run import machine

from vicinal import Engine
from vicinal._engine import Match, prepare

BUDGET = 8 * 2**20
REDUCTIONS = {
    "log_sums": lambda placed: placed.log_sums(),
    "scatter": lambda placed: placed.scatter(),
    "mean_shifts": lambda placed: placed.mean_shifts(),
    "perplexities": lambda placed: placed.perplexities(),
    "gradient, accuracy": lambda placed: placed.gradient(),
    "pull, likelihood": lambda placed: placed.pull(objective="likelihood"),
    "nearest of 5": lambda placed: placed.nearest(3, np.arange(5)),
    "nearest of 100": lambda placed: placed.nearest(3, np.arange(100)),
}


def measure(reduction, n, d, dtype, classes=True):
    """Return the copies of the rows at rest and beyond, for one reduction."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n, d)).astype(dtype), rng.integers(5, size=n)
    metric = np.eye(d) / np.sqrt(d)
    match = Match("class", y) if classes else None
    small = prepare(Engine("cpu"), X[:3000], leave_one_out=True, match=Match("class", y[:3000])).at(metric)
    reduction(small)  # compile outside the measurement
    del small
    gc.collect()
    tracemalloc.start()
    problem = prepare(Engine("cpu", threads=2, memory=BUDGET), X, leave_one_out=True, match=match)
    placed = problem.at(metric)
    built = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    result = reduction(placed)
    peak = tracemalloc.get_traced_memory()[1]
    arrays = result if isinstance(result, tuple) else (result,)
    size = sum(array.nbytes for array in arrays)
    del result, arrays
    gc.collect()
    rest = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    copy = X.nbytes
    return {"built": built / copy, "at_rest": rest / copy, "result": size / copy, "beyond": (peak - rest - size) / copy}


PRUNED = ("log_sums", "scatter", "perplexities", "mean_shifts", "gradient, accuracy")


def _resident(line):
    """Return a line of /proc/self/status, in bytes."""
    status = Path("/proc/self/status").read_text()
    return next(1024 * int(entry.split()[1]) for entry in status.splitlines() if entry.startswith(f"{line}:"))


def measure_pruned(name, n, d):
    """Return the copies of the rows at rest and beyond, in resident memory, for one reduction that skips pairs."""
    from pruning import clusters

    X, reduction = clusters(n, d), REDUCTIONS[name]
    y = np.random.default_rng(1).integers(2, size=n)
    metric = np.eye(d) * 2.0 * (n / 1e6) ** (1.0 / (d + 4))  # about LCA's
    match = Match("class", y) if name.startswith("gradient") else None
    some = None if match is None else Match("class", y[:8000])
    reduction(prepare(Engine("cpu", threads=2), X[:8000], leave_one_out=True, match=some).at(metric))  # compile
    gc.collect()
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    placed = prepare(Engine("cpu", threads=2), X, leave_one_out=True, match=match).at(metric)
    result = reduction(placed)
    peak = _resident("VmHWM") - before
    size = sum(array.nbytes for array in (result if isinstance(result, tuple) else (result,)))
    del result
    gc.collect()
    rest = _resident("VmRSS") - before
    found = {"at_rest": rest, "result": size, "beyond": peak - rest - size, "peak": peak}
    return {key: value / X.nbytes for key, value in found.items()} | {"visited": placed.placed.expected_share}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", nargs="*", type=int)
    parser.add_argument("--pruned", action="store_true", help="measure passes that skip pairs")
    parser.add_argument("--only", help="measure one reduction in this process, and print its figures as JSON")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    options.shape = options.shape or ([10**6, 10] if options.pruned else [20_000, 50])
    if options.only is not None:
        print(json.dumps(measure_pruned(options.only, *options.shape)))
        return
    results = {}
    if options.pruned:
        for name in PRUNED:
            command = [sys.executable, __file__, *map(str, options.shape), "--only", name]
            answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            found = results[f"{name} pruned"] = json.loads(answer.splitlines()[-1])
            print(f"{name:20s} " + ", ".join(f"{key} {value:.3g}" for key, value in found.items()), flush=True)
        return write(options, results, 128 * 2**20)
    for dtype in ("float64", "float32"):
        for name, reduction in REDUCTIONS.items():
            found = results[f"{name} {dtype}"] = measure(reduction, *options.shape, dtype)
            words = ", ".join(f"{key} {value:.2f}" for key, value in found.items())
            print(f"{name:20s} {dtype}  {words}", flush=True)
    return write(options, results, BUDGET)


def write(options, results, budget):
    """Write the results to a file if one was asked for."""
    if options.output is not None:
        report = {"machine": machine(), "shape": options.shape, "budget": budget, "copies": results}
        options.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
