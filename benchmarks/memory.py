"""The memory of the compiled engine, in copies of the rows: python benchmarks/memory.py [ROWS COLUMNS] [-o FILE].

`tracemalloc` counts what NumPy allocates.  "At rest" is what a problem and its placement hold after a reduction; "beyond"
is what the reduction needs for a moment, beyond that and beyond its result.  The working budget is set to 8 MB, which is
one copy at the default size, so that it does not hide the rest.
"""

import argparse
import gc
import json
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
    """Copies of the rows at rest and beyond, for one reduction."""
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", nargs="*", type=int, default=[20_000, 50])
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    results = {}
    for dtype in ("float64", "float32"):
        for name, reduction in REDUCTIONS.items():
            found = results[f"{name} {dtype}"] = measure(reduction, *options.shape, dtype)
            words = ", ".join(f"{key} {value:.2f}" for key, value in found.items())
            print(f"{name:20s} {dtype}  {words}", flush=True)
    if options.output is not None:
        report = {"machine": machine(), "shape": options.shape, "budget": BUDGET, "copies": results}
        options.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
