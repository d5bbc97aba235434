"""Measure a first fit in a fresh process with an empty compiler cache: python benchmarks/cold.py [TABLE ...] [--only ESTIMATOR].

The tables are "wine" (178 x 13), and "clusters N" and "gauss N" (N x 10, in five clusters or in one).  The script reports the seconds of
processor time of the ``fit`` call (without imports), how many of them were spent on compiling, which a second fit in the same process shows,
and how many kernels were compiled.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

FITS = {
    "ParzenWindows": "ParzenWindows()",
    "LCA": "LCA(reg=0.0)",
    "LCA stochastic": "LCA(solver='stochastic', reg=0.0)",
    "LCAGauss": "LCAGauss(reg=0.0, reg_gauss=0.0)",
    "LocalLCA": "LocalLCA(reg=0.0)",
    "ManifoldParzen": "ManifoldParzen(n_components=1, n_neighbors=5)",
    "NCA": "NCA(max_iter=10)",
    "NCA stochastic": "NCA(solver='stochastic', max_iter=3)",
    "NCA gaussian": "NCA(objective=Objective(match='gaussian'), max_iter=5)",
    "PairNCA": "PairNCA(max_iter=10)",
    "RCA": "RCA()",
    "SoftNeighborsClassifier": "SoftNeighborsClassifier()",
    "ParzenMeanShift": "ParzenMeanShift(ParzenWindows('scott'))",
    "DensityClassifier": "DensityClassifier()",
    "DensityOutlierDetector": "DensityOutlierDetector()",
}

CODE = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np, scipy.linalg, scipy.optimize, sklearn.neighbors, sklearn.datasets
import vicinal
from vicinal import *
kind, _, n = sys.argv[1].partition(" ")
if kind == "wine":
    X, y = sklearn.datasets.load_wine(return_X_y=True)
    X = (X - X.mean(0)) / X.std(0)
else:
    rng, n = np.random.default_rng(0), int(n)
    y = rng.integers(5, size=n)
    X = rng.normal(size=(n, 10))
    if kind == "clusters":
        X = rng.normal(size=(5, 10))[y] + 0.3 * X
model = eval(sys.argv[2])
seconds = []
for _ in range(2):
    start = time.process_time()
    model.fit(X, y)
    seconds.append(time.process_time() - start)
from pathlib import Path
compiled = len(list(Path(sys.argv[3]).rglob("*.nbc")))
print(json.dumps({"first": seconds[0], "second": seconds[1], "kernels": compiled}))
"""


TABLES = [
    "wine",
    "gauss 500",
    "clusters 500",
    "gauss 5000",
    "clusters 5000",
    "gauss 8000",
    "clusters 8000",
    "clusters 50000",
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", default=TABLES)
    parser.add_argument("--only", help="one of the fits")
    options = parser.parse_args()
    for table in options.tables or TABLES:
        for name, model in FITS.items():
            if options.only not in (None, name):
                continue
            with tempfile.TemporaryDirectory() as cache:
                found = subprocess.run(
                    [sys.executable, "-c", CODE, table, model, cache],
                    env={**os.environ, "NUMBA_CACHE_DIR": cache},
                    capture_output=True,
                    text=True,
                )
            if found.returncode:
                print(f"{table:14s} {name:26s} failed: {found.stderr.strip().splitlines()[-1]}", flush=True)
                continue
            times = json.loads(found.stdout)
            compiled = times["first"] - times["second"] if times["kernels"] else 0.0
            print(
                f"{table:14s} {name:26s} {times['first']:6.2f} s, of which compiling {compiled:5.2f} s ({times['kernels']} kernels)",
                flush=True,
            )


if __name__ == "__main__":
    main()
