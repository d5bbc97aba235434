"""Measure LCA: passes of the accelerated solver, large sets, a comparison with statsmodels, and LCA-Gauss.

    VICINAL_DATA=folder python benchmarks/lca.py                      # all figures, each in a separate process
    VICINAL_DATA=folder python benchmarks/lca.py passes covertype     # some of them
    python benchmarks/lca.py --quick                                  # generated data only, small

The script writes results/lca.json after each figure. Numbers of passes and log-likelihoods do not depend on the machine. Of the times,
ratios within one figure are the most reliable (see README.md).
"""

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from run import machine
from sklearn.exceptions import ConvergenceWarning

from vicinal import LCA, LCAGauss, ParzenWindows, StochasticEM, datasets

sys.path.append(str(Path(__file__).resolve().parents[1]))  # the loader of real sets stands in `papers`
from papers.real_sets import load, usps_blurred

RESULTS = Path(__file__).parent / "results" / "lca.json"
UCI = [
    "iris", "wine", "glass", "boston_housing", "pima_diabetes", "breast_cancer_wdbc", "breast_cancer_original",
    "vehicle", "ionosphere", "sonar", "balance_scale", "xing_protein", "image_segmentation", "letter", "pendigits",
    "optdigits", "satimage",
]  # fmt: skip


def full_rank(X):
    """Return standardised principal coordinates with positive variance, with twins merged into weights.

    LCA with a full covariance is invariant to the linear map; constant and dependent columns are removed.
    """
    X, counts = np.unique(np.asarray(X, dtype=np.float64), axis=0, return_counts=True)
    X = X[:, np.ptp(X, axis=0) > 0]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    values, vectors = np.linalg.eigh(X.T @ X / len(X))
    return X @ vectors[:, values > 1e-9 * values[-1]], counts


def passes_to(objectives, level):
    """Return the number of passes after which the best objective so far reaches a level, or None."""
    reached = np.flatnonzero(np.maximum.accumulate(objectives) >= level)
    return int(reached[0]) + 1 if len(reached) else None


def compare_passes(X, weight=None, reg=0.0):
    """Return the passes of EM and of the accelerated solver to within 1e-6 nats per row of EM's limit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", (ConvergenceWarning, UserWarning))
        em = LCA(solver="em", reg=reg, tol=1e-12, max_iter=3000).fit(X, sample_weight=weight)
        fast = LCA(solver="accelerated", reg=reg).fit(X, sample_weight=weight)
    limit = em.objectives_[-1]
    gains = np.diff(em.objectives_)
    row = {
        "n": len(X),
        "d": X.shape[1],
        "reg": reg,
        "em_to_1e-6": passes_to(em.objectives_, limit - 1e-6),
        "em_to_default_tol": int(np.flatnonzero(gains <= 1e-8)[0]) + 2,
        "accelerated_to_1e-6": passes_to(fast.objectives_, limit - 1e-6),
        "accelerated_n_iter": fast.n_iter_,
        "difference": float(fast.objectives_[-1] - limit),
    }
    if row["accelerated_to_1e-6"]:
        row["ratio"] = row["accelerated_to_1e-6"] / row["em_to_1e-6"]
        row["ratio_as_run"] = row["accelerated_n_iter"] / row["em_to_default_tol"]
    return row


def passes(quick):
    """Compare passes on the UCI sets (at most 2,000 rows), USPS and anisotropic mixtures."""
    sets = {}
    rng = np.random.default_rng(0)
    for d in (2, 5) if quick else (2, 5, 10, 20):
        mixture = datasets.make_anisotropic_mixture(300 if quick else 1500, d, random_state=d)
        sets[f"anisotropic mixture, {d} dimensions"] = (mixture.data, None)
    for name in [] if quick else UCI:
        X = load(name).data
        sets[name] = full_rank(X[rng.permutation(len(X))[:2000]])
    rows = {}
    for name, (X, weight) in sets.items():
        try:
            rows[name] = compare_passes(X, weight)
        except ValueError as error:
            if "collapses" not in str(error):
                raise
            # Without a penalty there is no maximum; use a hundredth of the variance of the standardised columns.
            rows[name] = compare_passes(X, weight, reg=0.01)
        print(name, rows[name], file=sys.stderr, flush=True)
    if not quick:
        usps = usps_blurred(subset="train").data[:2000]
        rows["usps, 2000 rows"] = compare_passes(usps, reg=0.01)
    ratios = [row.get("ratio", np.inf) for row in rows.values()]
    as_run = [row.get("ratio_as_run", np.inf) for row in rows.values()]
    return {"sets": rows, "median_ratio": float(np.median(ratios)), "median_ratio_as_run": float(np.median(as_run))}


def statsmodels(quick):
    """Compare a full fit at n=2000, d=5 with KDEMultivariate(bw="cv_ml"), which has the same optimum as LCA with
    covariance_type="diag"."""
    n = 300 if quick else 2000
    mixture = datasets.make_anisotropic_mixture(2 * n, 5, random_state=0)
    train, test = mixture.data[:n], mixture.data[n:]
    LCA(reg=0.0).fit(train)  # loads the compiled kernels
    start = time.perf_counter()
    lca = LCA(reg=0.0).fit(train)
    seconds = time.perf_counter() - start
    result = {
        "n": n,
        "seconds": seconds,
        "passes": lca.n_iter_,
        "held_out": lca.score(test),
        "held_out_cv_ml": LCA("diag", reg=0.0).fit(train).score(test),
        "held_out_truth": float(mixture.log_density[n:].mean()),
    }
    try:
        from statsmodels.nonparametric.kernel_density import KDEMultivariate
    except ImportError:
        return result
    kde = KDEMultivariate(train, var_type="c" * 5, bw=np.full(5, 0.3))
    start = time.perf_counter()
    kde.loo_likelihood(np.full(5, 0.3), func=np.log)
    evaluation = time.perf_counter() - start
    # The optimiser of statsmodels had not finished after 307 evaluations.
    result |= {"statsmodels_evaluation_seconds": evaluation, "times_faster": 307 * evaluation / seconds}
    return result


def usps(quick):
    """Compare stochastic LCA (B=100, N=3000, gamma=0.6) with exact LCA on 6000 x 256 rows of USPS."""
    pool = usps_blurred().data
    pool = pool[np.random.default_rng(0).permutation(len(pool))]
    train, test = pool[:6000], pool[6000:]
    result = {}
    solvers = {
        "exact": {"solver": "accelerated", "tol": 1e-5},
        "stochastic": {"solver": StochasticEM(batch_size=100, n_candidates=3000, discount=0.6)},
        "stochastic, default": {"solver": "stochastic"},
    }
    for name, parameters in solvers.items():
        start = time.perf_counter()
        lca = LCA(reg=0.005, random_state=0, **parameters).fit(train)
        result[name] = {"seconds": time.perf_counter() - start, "n_iter": lca.n_iter_, "test": lca.score(test)}
        print(name, result[name], file=sys.stderr, flush=True)
    result["loss"] = result["exact"]["test"] - result["stochastic"]["test"]
    return result


def mnist(quick):
    """Compare stochastic LCA with exact EM, which stops when a pass gains at most 1e-5 nats per row, on 60,000 x 50 rows."""
    data = load("mnist").data.astype(np.float64).reshape(70_000, -1) / 255.0
    train, test = data[:60_000], data[60_000:62_000]
    centre = train.mean(axis=0)
    axes = np.linalg.eigh((train - centre).T @ (train - centre) / len(train))[1][:, ::-1][:, :50]
    train, test = (train - centre) @ axes, (test - centre) @ axes
    LCA(solver="em", reg=0.0).fit(train[:500, :5])  # loads the compiled kernels
    result = {}
    for name, parameters in {"stochastic": {}, "em": {"tol": 1e-5}}.items():
        start = time.perf_counter(), time.process_time()
        lca = LCA(solver=name, random_state=0, verbose=True, **parameters).fit(train)
        result[name] = {
            "seconds": time.perf_counter() - start[0],
            "processor_seconds": time.process_time() - start[1],
            "n_iter": lca.n_iter_,
            "converged": bool(lca.converged_),
            "test": lca.score(test),
        }
        print(name, result[name], file=sys.stderr, flush=True)
    result["loss"] = result["em"]["test"] - result["stochastic"]["test"]
    result["share_of_time"] = result["stochastic"]["seconds"] / result["em"]["seconds"]
    return result


def covertype(quick):
    """Fit 581,012 x 10 rows with the default solver, and compare held-out rows with ParzenWindows on 20,000 rows."""
    data = load("covertype").data.astype(np.float64)
    data = data[np.random.default_rng(0).permutation(len(data))]
    train, test = data[:-2000], data[-2000:]
    start = time.perf_counter(), time.process_time()
    lca = LCA(random_state=0, reg=0.0).fit(train)
    seconds, processor_seconds = time.perf_counter() - start[0], time.process_time() - start[1]
    held_out = lca.score(test)
    scale = train.std(axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        parzen = ParzenWindows().fit(train[:20_000] / scale)
    return {
        "n": len(train),
        "seconds": seconds,
        "processor_seconds": processor_seconds,
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "solver": lca.solver_,
        "sweeps": lca.n_iter_,
        "converged": lca.converged_,
        "held_out": held_out,
        "held_out_parzen_20000": parzen.score(test / scale) - float(np.log(scale).sum()),
    }


def gauss(quick):
    """Time 40 passes of LCAGauss on 2000 x 256 rows of USPS."""
    pool = usps_blurred().data
    pool = pool[np.random.default_rng(0).permutation(len(pool))]
    train, test = pool[:2000], pool[2000:5000]
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LCAGauss(reg=0.01, reg_gauss=0.001, max_iter=40, tol=0.0).fit(train)
    seconds = time.perf_counter() - start
    lca = LCA(reg=0.005).fit(train)
    return {
        "seconds": seconds,
        "passes": model.n_iter_,
        "local_directions": model.n_components_,
        "test_nll": -model.score(test),
        "test_nll_lca": -lca.score(test),
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


FIGURES = {f.__name__: f for f in (passes, statsmodels, usps, mnist, covertype, gauss)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="*", default=[], help=", ".join(FIGURES))
    parser.add_argument("--quick", action="store_true", help="small sizes, and only cases that need no data files")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        print(json.dumps(FIGURES[arguments.alone](arguments.quick)))
        return
    names = arguments.figures or (["passes", "statsmodels"] if arguments.quick else list(FIGURES))
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in names:
        command = [sys.executable, __file__, "--alone", name, *(["--quick"] if arguments.quick else [])]
        figure = json.loads(subprocess.run(command, check=True, capture_output=False, stdout=subprocess.PIPE).stdout)
        print(name, json.dumps(figure, indent=1), flush=True)
        kept[name] = figure
        if not arguments.quick:
            RESULTS.write_text(json.dumps({**kept, "machine": machine()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
