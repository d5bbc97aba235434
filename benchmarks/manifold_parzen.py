"""Time Manifold Parzen Windows: fitting, scoring, the tuning grid, and the cost relative to plain Parzen windows.

    python benchmarks/manifold_parzen.py [mnist] [grid] [usps] [ratio]     # default: all
    python benchmarks/manifold_parzen.py --quick ratio grid                # small sizes, no real data

Every case runs in a separate process, so that its peak memory can be measured.  MNIST and USPS are loaded by
`papers/real_sets.py` (set VICINAL_DATA).  Results are written to results/manifold_parzen.json.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.append(str(Path(__file__).resolve().parents[1]))  # the loader of real sets stands in `papers`
CASES = ("mnist", "grid", "usps", "ratio")


def mnist(quick):
    """Time the data of Table 2: 5,400 training and 1,032 test images of a "2", d=10, k=20."""
    from papers.real_sets import load

    from vicinal import ManifoldParzen, ParzenWindows

    X, y = load("mnist", subset="train", return_X_y=True)
    test, labels = load("mnist", subset="test", return_X_y=True)
    X, test = (part.astype(np.float64) / 255.0 for part in (X[y == 2][:5400], test[labels == 2]))
    rows = []
    ManifoldParzen(2, 4, engine="cpu").fit(X[:300]).score(test[:9])  # loads kernels before the measurement
    for noise in ("auto", 0.02):
        fit = None  # one model in memory at a time
        fit = timed(lambda noise=noise: ManifoldParzen(10, 20, noise).fit(X))
        score = timed(lambda density=fit.result: density.score_samples(test))
        rows.append(
            {
                "noise": noise,
                "noise_used": fit.result.noise_,
                "fit_seconds": fit.seconds,
                "fit_cpu_seconds": fit.cpu_seconds,
                "score_seconds": score.seconds,
                "score_cpu_seconds": score.cpu_seconds,
                "test_anll": -float(score.result.mean()),
                "peak_bytes": peak(),
            }
        )
    plain = timed(lambda: ParzenWindows(np.sqrt(0.02)).fit(X).score_samples(test))
    return {"rows": rows, "plain_score_seconds": plain.seconds}


def usps(quick):
    """Time Tables 3 and 4: ten classes, 6,291 training, 1,000 validation, 2,007 test rows; 8 k x 6 d x 10 noises."""
    from papers.real_sets import usps_blurred
    from sklearn.model_selection import PredefinedSplit

    from vicinal import DensityClassifier, ManifoldParzen, Selection

    parts = [usps_blurred(subset=name, return_X_y=True) for name in ("train", "validation", "test")]
    (train, y), (validation, v), (test, labels) = parts
    X, target = np.vstack([train, validation]), np.concatenate([y, v])
    split = PredefinedSplit(np.repeat([-1, 0], [len(train), len(validation)]))
    grid = {
        "n_neighbors": [5, 8, 11, 14, 17, 20, 25, 30],
        "n_components": [1, 3, 5, 8, 11, 14],
        "noise": np.geomspace(0.01, 3.0, 10).tolist(),
    }
    rows = []
    for criterion in ("error", "conditional_log_likelihood"):
        search = timed(
            lambda c=criterion: ManifoldParzen(selection=Selection(c, split, max_rows=None, **grid)).fit(X, target)
        )
        best = _chosen(search.result)
        classifier = DensityClassifier(ManifoldParzen(**best)).fit(train, y)
        log_proba = classifier.predict_log_proba(test)
        codes = np.searchsorted(classifier.classes_, labels)
        rows.append(
            {
                "criterion": criterion,
                "seconds": search.seconds,
                "cpu_seconds": search.cpu_seconds,
                "points": len(search.result.cv_results_["params"]),
                "best": best,
                "validation": search.result.best_score_,
                "test_error": float(np.mean(np.argmax(log_proba, axis=1) != codes)),
                "test_ancll": -float(log_proba[np.arange(len(codes)), codes].mean()),
                "peak_bytes": peak(),
            }
        )
    return {"rows": rows}


def _chosen(model):
    """Return the parameters that a search chose."""
    return {"n_components": model.n_components_, "n_neighbors": model.n_neighbors_, "noise": model.noise_}


def grid(quick):
    """Time the same grid with ManifoldParzen and GridSearchCV, and check whether they select the same parameters."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import GridSearchCV, KFold

    from vicinal import ManifoldParzen, Selection

    X = load_digits().data[: 300 if quick else 1797] / 16.0
    values = {
        "n_components": [1, 2, 4, 8],
        "n_neighbors": [8, 16],
        "noise": np.geomspace(0.003, 0.3, 8).tolist(),
    }
    # Load compiled kernels before the measurement.
    ManifoldParzen(n_components=1, n_neighbors=2, noise=0.1, selection=Selection(cv=2)).fit(X[:200])
    ours = timed(lambda: ManifoldParzen(selection=Selection(cv=KFold(3), max_rows=None, **values)).fit(X))
    theirs = timed(lambda: GridSearchCV(ManifoldParzen(n_components=1, n_neighbors=5), values, cv=3).fit(X))
    return {
        "rows": len(X),
        "points": len(ours.result.cv_results_["params"]),
        "ours_seconds": ours.seconds,
        "ours_cpu_seconds": ours.cpu_seconds,
        "grid_search_seconds": theirs.seconds,
        "grid_search_cpu_seconds": theirs.cpu_seconds,
        "times_faster": theirs.seconds / ours.seconds,
        "same_winner": _chosen(ours.result) == theirs.result.best_params_,
    }


def ratio(quick):
    """Compare the scoring time with that of ParzenWindows on the same points, in turn; the aim is at most d + 1.5."""
    from vicinal import Engine, ManifoldParzen, ParzenWindows

    rng = np.random.default_rng(0)
    n, m, rounds = (1500, 500, 3) if quick else (10_000, 4000, 15)
    engine = Engine("cpu")
    rows = []
    for D, d in ((2, 1), (3, 2), (8, 2), (8, 4), (16, 4), (32, 8), (64, 10), (256, 10), (784, 10)):
        size, queries = (n, m) if D < 100 else (n // 2, m // 4)
        X = rng.normal(size=(size, D))
        new = rng.normal(size=(queries, D))
        plain = ParzenWindows(1.0, engine=engine).fit(X)
        frames = ManifoldParzen(d, 2 * d, 1.0, engine=engine).fit(X)
        times = []
        for _ in range(rounds + 1):
            times.append([timed(lambda e=e, q=new: e.score_samples(q)).seconds for e in (plain, frames)])
        times = np.array(times[1:])  # the first round warms up
        rows.append(
            {
                "n": size,
                "m": queries,
                "D": D,
                "d": d,
                "plain_seconds": float(times[:, 0].min()),
                "frames_seconds": float(times[:, 1].min()),
                "ratio": statistics.median(times[:, 1] / times[:, 0]),
                "aim": d + 1.5,
            }
        )
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return {"rows": rows}


class timed:
    """Return the result of a call, its wall time, and the processor time of all its threads.

    On a shared machine the latter is more reliable; two idle cores would take about half of it.
    """

    def __init__(self, call):
        start, cpu = time.perf_counter(), time.process_time()
        self.result = call()
        self.seconds, self.cpu_seconds = time.perf_counter() - start, time.process_time() - cpu


def peak():
    """Return the peak resident memory of this process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*CASES, []], default=[])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(globals()[options.inside](options.quick)))
        return
    from run import machine

    suffix = "-quick" if options.quick else ""
    target = HERE / "results" / f"manifold_parzen{suffix}.json"
    results = json.loads(target.read_text()) if target.exists() else {}
    for name in options.names or CASES:
        command = [sys.executable, __file__, "--inside", name, *(["--quick"] if options.quick else [])]
        answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        results[name] = {"machine": machine(), **json.loads(answer.splitlines()[-1])}
        print(name, json.dumps({k: v for k, v in results[name].items() if k != "machine"}, indent=1))
        target.parent.mkdir(exist_ok=True)
        target.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
