"""Measure how long `vicinal compare` takes on 3,000 rows of covertype, and when it shows its first results.

    VICINAL_DATA=folder python benchmarks/compare_covertype.py [--fast]

Prints the seconds to the first results and to the end, and the verdict.
"""

import os
import sys
import time
from pathlib import Path

import numpy as np

import vicinal


def main(fast):
    arrays = np.load(Path(os.environ["VICINAL_DATA"]) / "covertype.npz")
    rows = np.sort(np.random.default_rng(0).choice(len(arrays["X"]), 3_000, replace=False))
    X, y = arrays["X"][rows].astype(np.float64), arrays["y"][rows]
    start = time.perf_counter()

    def first(comparison):
        print(f"first results after {time.perf_counter() - start:.1f} s: {len(comparison.metrics)} metrics and "
              f"{len(comparison.densities)} densities", flush=True)  # fmt: skip

    result = vicinal.compare(X, y, fast=fast, first_results=first)
    print(f"the end after {time.perf_counter() - start:.1f} s, {os.cpu_count()} cores")
    print(result)
    slowest = sorted(((r.seconds, r.kind, r.label) for r in [*result.metrics, *result.densities]), reverse=True)[:5]
    print("slowest:", ", ".join(f"{kind} {label} {seconds:.1f} s" for seconds, kind, label in slowest))


if __name__ == "__main__":
    main("--fast" in sys.argv[1:])
