"""The memory that fits and scores take beyond the data stays within the limits that docs/engine.md documents.

Each case fits one estimator to ``--rows`` rows in a separate process and reads the peak of its resident memory. The limit
allows one ordered and one mapped copy of the rows, twenty vectors with one number per row, the arrays of the fitted estimator, the
working budget of 128 MB, and 64 MB for compiled code and libraries that are loaded at the first use.
"""

import json
import subprocess
import sys

from campaigns.harness import Bad, Case, Skip, environment

CASES = 24
ROWS = 100_000
LONGEST = 1500.0  # a fit may take 20 minutes
MB = 2**20
COLUMNS = 4
# Numbers per row that the estimator keeps beyond the rows themselves; counted twice, because some are made from others.
KEPT = {
    "ParzenWindows": 0, "ParzenWindows, searched": 0, "LCA": 0, "LCAGauss": 0, "LocalLCA": 2 * COLUMNS**2, "NCA": 0, "RCA": 0,
    "ManifoldParzen": 2 * (COLUMNS + 6), "DensityOutlierDetector": 8, "SoftNeighborsClassifier": 1, "PairNCA": 2,
    "OnlineRCA": 0, "AnchorNCA": 2, "BinnedTargetMetric": 1, "ConstrainedGaussianMixture": 6, "ConstrainedKMeans": 6,
    "DensityClassifier": COLUMNS, "DensityImputer": COLUMNS, "Dequantizer": 0, "MMC": 2, "NeuralNCA": 2, "ParzenMeanShift": COLUMNS,
    "SoftNeighborsRegressor": 1, "TableEncoder": COLUMNS,
}  # fmt: skip
_TASK = """
import json, resource, sys, warnings, numpy as np
warnings.simplefilter("ignore")
import vicinal as v
name, n, d = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
makers = {
    "ParzenWindows": lambda: v.ParzenWindows(0.1),
    "ParzenWindows, searched": lambda: v.ParzenWindows(),
    "LCA": lambda: v.LCA(reg=0.1, max_iter=1),
    "LCAGauss": lambda: v.LCAGauss(reg=0.1, reg_gauss=0.1, max_iter=1),
    "LocalLCA": lambda: v.LocalLCA(2, 10, 0.1, shared=0.5, center="row", reg=0.1, max_iter=1),
    "NCA": lambda: v.NCA(2, max_iter=1, random_state=0),
    "RCA": lambda: v.RCA(),
    "ManifoldParzen": lambda: v.ManifoldParzen(1, n_neighbors=5, noise=0.1),
    "DensityOutlierDetector": lambda: v.DensityOutlierDetector(v.ParzenWindows(0.1)),
    "SoftNeighborsClassifier": lambda: v.SoftNeighborsClassifier(bandwidth=0.1),
    "PairNCA": lambda: v.PairNCA(max_iter=1, random_state=0),
    "OnlineRCA": lambda: v.OnlineRCA(),
    "AnchorNCA": lambda: v.AnchorNCA(max_iter=1, random_state=0),
    "BinnedTargetMetric": lambda: v.BinnedTargetMetric(v.RCA(), n_bins=3),
    "ConstrainedGaussianMixture": lambda: v.ConstrainedGaussianMixture(2, max_iter=3),
    "ConstrainedKMeans": lambda: v.ConstrainedKMeans(2, n_init=1),
    "DensityClassifier": lambda: v.DensityClassifier(v.ParzenWindows(0.1)),
    "DensityImputer": lambda: v.DensityImputer(v.ParzenWindows(0.1)),
    "Dequantizer": lambda: v.Dequantizer(),
    "MMC": lambda: v.MMC(max_iter=2),
    "NeuralNCA": lambda: v.NeuralNCA(2, max_iter=1, random_state=0),
    "ParzenMeanShift": lambda: v.ParzenMeanShift(v.ParzenWindows(0.1), max_iter=1),
    "SoftNeighborsRegressor": lambda: v.SoftNeighborsRegressor(bandwidth=0.1),
    "TableEncoder": lambda: v.TableEncoder(),
}
in_pairs = ("PairNCA", "OnlineRCA", "AnchorNCA", "ConstrainedGaussianMixture", "ConstrainedKMeans", "MMC")
rng = np.random.default_rng(0)
def ask(rows):
    y = np.arange(len(rows)) // 2 if name in in_pairs else np.arange(len(rows)) % 3
    model = makers[name]().fit(rows, y)
    for method in ("score_samples", "predict_proba", "transform", "predict"):
        if hasattr(model, method):
            getattr(model, method)(rows[:500])
            break
ask(rng.normal(size=(3000, d)))  # imports and compiled code
X = rng.normal(size=(n, d))
def resident():
    return int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmRSS"))) * 1024
open("/proc/self/clear_refs", "w").write("5")  # reset the peak
before = resident()
ask(X)
peak = int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))) * 1024
print(json.dumps({"before": before, "peak": peak, "data": X.nbytes}))
"""


def check(case: Case) -> str:
    """Check the memory of one estimator."""
    case.what = list(KEPT)[case.number % len(KEPT)]
    command = [sys.executable, "-c", _TASK, case.what, str(case.rows), str(COLUMNS)]
    try:
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=1200)
    except subprocess.TimeoutExpired:
        raise Skip(f"{case.what} takes more than 20 minutes") from None
    if "clear_refs" in done.stderr:
        raise Skip("the peak of the resident memory is not known here")
    if done.returncode:
        raise Bad(f"it ends with {done.returncode}: {done.stderr[-500:]}")
    found = json.loads(done.stdout)
    beyond = found["peak"] - found["before"]
    allowed = 2 * found["data"] + 8 * case.rows * (20 + KEPT[case.what]) + (128 + 64) * MB
    case.text = case.note = f"{beyond / MB:.0f} MB beyond the data, {allowed / MB:.0f} MB are documented"
    if beyond > allowed:
        raise Bad(case.text)
    return "within what is documented"
