"""Measure a first fit in a fresh process with an empty compiler cache: python benchmarks/cold.py [wine|rows ...].

"wine" is 178 x 13, "rows" is 5,000 x 10.  The script reports the seconds of processor time of the ``fit`` call (without
imports), and how many of them were spent on compiling, which a second fit in the same process shows.
"""

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
if sys.argv[1] == "wine":
    X, y = sklearn.datasets.load_wine(return_X_y=True)
    X = (X - X.mean(0)) / X.std(0)
else:
    rng = np.random.default_rng(0)
    y = rng.integers(5, size=5000)
    X = rng.normal(size=(5, 10))[y] + 0.3 * rng.normal(size=(5000, 10))
model = eval(sys.argv[2])
seconds = []
for _ in range(2):
    start = time.process_time()
    model.fit(X, y)
    seconds.append(time.process_time() - start)
print(json.dumps({"first": seconds[0], "second": seconds[1], "numba": "numba" in sys.modules}))
"""


def main(tables):
    for table in tables:
        for name, model in FITS.items():
            with tempfile.TemporaryDirectory() as cache:
                found = subprocess.run(
                    [sys.executable, "-c", CODE, table, model],
                    env={**os.environ, "NUMBA_CACHE_DIR": cache},
                    capture_output=True,
                    text=True,
                )
            if found.returncode:
                print(f"{table:5s} {name:26s} failed: {found.stderr.strip().splitlines()[-1]}", flush=True)
                continue
            times = json.loads(found.stdout)
            compiled = times["first"] - times["second"] if times["numba"] else 0.0
            print(f"{table:5s} {name:26s} {times['first']:6.2f} s, of which compiling {compiled:5.2f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or ["wine", "rows"])
