"""Time NCA against scikit-learn and mlpack: one evaluation, whole fits, and MNIST by stochastic gradients.

    python benchmarks/nca.py                      # all cases; needs VICINAL_DATA for USPS, letter and MNIST
    python benchmarks/nca.py evaluation fit       # some of them
    python benchmarks/nca.py --quick              # small sizes, not for reporting

The script writes results/nca-<name>.json. Every contender runs in a separate process. They are warmed up and then timed in turn,
round by round; ratios are taken within a round. The result of a contender is first checked with a common reference: the
objective of the paper, Eq. 3, computed in float64 from differences. See README.md for the protocol.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
DATA = os.environ.get("VICINAL_DATA")
THREADS = len(os.sched_getaffinity(0))


# -- data and the common reference -------------------------------------------------------------------------------------


def made(n, d, seed=0):
    """Return ten classes in d dimensions, at a scale where neighbours are neither uniform nor one-hot."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 10, n)
    X = 1.5 * rng.normal(size=(10, d))[y] + rng.normal(size=(n, d))
    return X / np.sqrt(d), y


def load(name, n=None):
    if name == "digits":
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
    elif name == "usps":
        stored = np.load(Path(DATA) / "usps.npz")
        X, y = stored["X_train"] / 1000.0, stored["y_train"]
    else:
        stored = np.load(Path(DATA) / "uci_letter.npz")
        X, y = stored["X"].astype(float), stored["y"]
    return np.ascontiguousarray(X[:n], dtype=np.float64), np.unique(y[:n], return_inverse=True)[1]


def reference(A, X, y, gradient=False):
    """Return Eq. 3 per row and Eq. 5 in float64, computed block by block without any library."""
    Z = X @ np.asarray(A).T
    value, S = 0.0, np.zeros((X.shape[1], X.shape[1]))
    for start in range(0, len(X), 200):
        rows = np.arange(start, min(start + 200, len(X)))
        squares = np.zeros((len(rows), len(X)))
        for column in Z.T:
            squares += (column[rows, None] - column) ** 2
        squares[np.arange(len(rows)), rows] = np.inf
        p = np.exp(squares.min(1, keepdims=True) - squares)
        p /= p.sum(1, keepdims=True)
        same = y[rows, None] == y
        a = (p * same).sum(1)
        value += a.sum()
        if gradient:
            w = p * (a[:, None] - same)
            x = X[rows]
            cross = x.T @ (w @ X)
            S += (x * w.sum(1)[:, None]).T @ x + (X * w.sum(0)[:, None]).T @ X - cross - cross.T
    return (value / len(X), 2 * A @ S / len(X)) if gradient else value / len(X)


# -- contenders --------------------------------------------------------------------------------------------------------


def evaluation_vicinal(case, X, y, A):
    from vicinal._engine import Match, prepare
    from vicinal._nca.objectives import neighbor_objective

    order = np.argsort(y, kind="stable")  # as NCA does, once per fit
    problem = prepare("cpu", X[order], leave_one_out=True, match=Match("class", y[order]))
    return lambda: neighbor_objective(A, problem)


def evaluation_sklearn(case, X, y, A):
    from sklearn.neighbors import NeighborhoodComponentsAnalysis

    model = NeighborhoodComponentsAnalysis()
    model.n_iter_ = 1
    mask = y[:, None] == y

    def run():
        value, gradient = model._loss_grad_lbfgs(A.ravel(), X, mask)
        return value / len(X), gradient.reshape(A.shape) / len(X)

    return run


TRACE = []  # the seconds since the start and the matrix after each iteration, for the last fit of vicinal


def fit_vicinal(case, X, y, init=None, max_iter=50):
    from vicinal import NCA

    def run():
        TRACE.clear()
        start = time.perf_counter()
        model = NCA(
            case["rank"],
            init=init or case["init"],
            engine="cpu",
            max_iter=max_iter,
            random_state=0,
            callback=lambda A, _: TRACE.append((time.perf_counter() - start, A.reshape(-1, X.shape[1]))),
        )
        return model.fit(X, y).components_

    return run


def fit_vicinal_auto(case, X, y, max_iter=50):
    return fit_vicinal(case, X, y, "auto", max_iter)


def seconds_to_reach(objective, X, y):
    """Return the seconds until the last fit of vicinal had this objective by the common reference; None if it never had.

    This is a bisection, because the objective hardly ever decreases from one iteration to the next.
    """
    low, high = 0, len(TRACE)
    while low < high:
        middle = (low + high) // 2
        if reference(TRACE[middle][1], X, y) >= objective - 1e-6:
            high = middle
        else:
            low = middle + 1
    return TRACE[low][0] if low < len(TRACE) else None


def fit_sklearn(case, X, y):
    from sklearn.neighbors import NeighborhoodComponentsAnalysis

    return lambda: NeighborhoodComponentsAnalysis(case["rank"], init=case["init"], random_state=0).fit(X, y).components_


def fit_mlpack(case, X, y):
    if case["rank"] is not None:
        raise ImportError("mlpack learns square matrices only")
    import mlpack

    return lambda: mlpack.nca(
        X.copy(), labels=y.astype(np.uint64), optimizer="lbfgs", max_iterations=50, tolerance=1e-5
    )["output"]


CONTENDERS = {
    "evaluation": {"vicinal": evaluation_vicinal, "scikit-learn": evaluation_sklearn},
    "fit": {
        "vicinal": fit_vicinal,
        "vicinal, auto": fit_vicinal_auto,
        "scikit-learn": fit_sklearn,
        "mlpack": fit_mlpack,
    },
}


# -- one contender in its own process ----------------------------------------------------------------------------------


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def say(**answer):
    print(json.dumps(answer), file=sys.__stdout__, flush=True)


def worker(case, name):
    sys.stdout = sys.stderr
    warnings.simplefilter("ignore")  # neither library has converged after 50 iterations
    try:
        if case["kind"] == "evaluation":
            X, y = made(case["n"], case["d"])
            A = np.random.default_rng(1).normal(size=(case["rank"], case["d"])) * case["scale"]
            small = CONTENDERS["evaluation"][name](case, X[:600], y[:600], A)
            run = CONTENDERS["evaluation"][name](case, X, y, A)
        else:
            X, y = load(case["data"], case.get("n"))
            small = CONTENDERS["fit"][name](case, X[:300], y[:300])
            run = CONTENDERS["fit"][name](case, X, y)
        small()  # compiles and loads everything that is needed
        before = peak()
        state = {"ready": True}
        if case["kind"] == "evaluation" and case["check"]:
            value, gradient = run()
            expected, slope = reference(A, X, y, gradient=True)
            error = max(abs(value - expected), np.abs(gradient - slope).max() / np.abs(slope).max())
            state["error"] = float(error)
        say(**state)
    except ImportError as missing:
        return say(ready=False, why=f"not installed or not able ({missing})")
    for line in sys.stdin:
        if line.startswith("reach"):
            objective = float(line.split()[1])
            reached = seconds_to_reach(objective, X, y)
            # Both stop at 50 iterations, on paths that differ by rounding. Continue until ours reaches the other objective.
            if reached is None:
                CONTENDERS["fit"][name](case, X, y, max_iter=200)()
                reached = seconds_to_reach(objective, X, y)
            say(reached=reached)
            continue
        start = time.perf_counter(), time.process_time()
        answer = run()
        seconds, processor = time.perf_counter() - start[0], time.process_time() - start[1]
        extra = {} if case["kind"] == "evaluation" else {"objective": reference(answer, X, y)}
        say(seconds=seconds, processor=processor, memory=peak() - before, **extra)


class Contender:
    """A process that is timed on demand."""

    def __init__(self, case, name):
        self.name = name
        command = [sys.executable, __file__, "--worker", json.dumps(case), name]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.state, self.times = self._read(), []

    def _read(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"ready": False, "why": "the process ended"}

    def time(self):
        time.sleep(0.2)  # BLAS threads of the previous contender spin for a while after their last product
        try:
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
            answer = self._read()
        except BrokenPipeError:
            answer = {"why": "the process ended"}
        if "seconds" in answer:
            self.times.append(answer)
        else:
            self.state = {"ready": False, "why": answer.get("why", "the process ended")}

    def reach(self, objective):
        """Return the seconds until the last fit had this objective."""
        self.process.stdin.write(f"reach {objective!r}\n")
        self.process.stdin.flush()
        return self._read().get("reached")

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def run_case(case, rounds, names=None):
    contenders = [Contender(case, name) for name in names or CONTENDERS[case["kind"]]]
    for _ in range(rounds):
        for contender in contenders:
            if contender.state.get("ready"):
                contender.time()
    rows = []
    ours = contenders[0]
    for contender in contenders:
        if case["kind"] == "fit" and contender.name.startswith("vicinal") and contender.times:
            contender.state["seconds_to_reach"] = {
                other.name: contender.reach(other.times[-1]["objective"])
                for other in contenders
                if other.times and not other.name.startswith("vicinal")
            }
        contender.close()
        row = {"contender": contender.name} | {k: v for k, v in contender.state.items() if k != "ready"}
        if contender.times:
            best = min(contender.times, key=lambda t: t["seconds"])
            row |= best
            if case["kind"] == "evaluation":
                row["ns_a_pair"] = best["seconds"] / case["n"] ** 2 * 1e9
            for unit in ("seconds", "processor"):
                ratios = [a[unit] / b[unit] for a, b in zip(contender.times, ours.times, strict=True)]
                row[f"{unit}_ratio"] = statistics.median(ratios)
        rows.append(row)
    result = {"case": case, "rounds": rounds, "rows": rows}
    print(json.dumps(result), file=sys.stderr, flush=True)
    return result


# -- the cases ---------------------------------------------------------------------------------------------------------


def evaluations(quick):
    """Measure the time and memory of one objective and gradient."""
    n = 1000 if quick else 5000
    for rank, d in ((64, 64), (16, 16), (2, 64)):
        case = {"kind": "evaluation", "n": n, "d": d, "rank": rank, "scale": 1.0 / np.sqrt(rank), "check": True}
        yield run_case(case, 3 if quick else 9)
    if not quick:
        case = {"kind": "evaluation", "n": 10_000, "d": 64, "rank": 64, "scale": 0.125, "check": False}
        yield run_case(case, 3)
        larger = case | {"n": 50_000, "d": 16, "rank": 16, "scale": 0.25}
        yield run_case(larger, 1, ["vicinal"])


def fits(quick, only=None):
    """Measure whole fits from the same start, with at most 50 iterations and tol=1e-5."""
    sets = [("digits", 500)] if quick else [("digits", None), ("usps", 2000), ("letter", 10_000)]
    for name, n in sets:
        if name != "digits" and DATA is None:
            print(f"{name} is left out: set VICINAL_DATA", file=sys.stderr)
            continue
        for rank, init in ((None, "identity"), (2, "pca"), (10, "pca")):
            case = {"kind": "fit", "data": name, "n": n, "rank": rank, "init": init}
            if only and only != f"{name}-{rank or 'square'}":
                continue
            yield run_case(case, 1 if name == "letter" else 3, ["vicinal", "vicinal, auto", "scikit-learn"])
    if only:
        return
    # mlpack learns square matrices and does D^2 work per pair, so only a part of the smallest set finishes within minutes.
    case = {"kind": "fit", "data": "digits", "n": 100 if quick else 400, "rank": None, "init": "identity"}
    yield run_case(case, 1, ["vicinal", "mlpack"])


def mnist(quick):
    """Map 60,000 rows of 784 pixels to 32 dimensions, and compare 3-NN test errors with PCA by McNemar's test."""
    from scipy.stats import binomtest
    from sklearn.decomposition import PCA
    from sklearn.neighbors import KNeighborsClassifier

    from vicinal import NCA

    stored = np.load(Path(DATA) / "mnist.npz")
    n = 3000 if quick else 60_000
    X, y = (stored["X_train"][:n] / 255).astype(np.float32), stored["y_train"][:n]
    X_test, y_test = (stored["X_test"] / 255).astype(np.float32), stored["y_test"]
    X_test, y_test = X_test[: n // 2], y_test[: n // 2]
    NCA(2, solver="stochastic", max_iter=1, engine="cpu").fit(X[:500], y[:500])  # loads the kernels

    def wrong(metric):
        neighbors = KNeighborsClassifier(3).fit(metric.transform(X), y)
        return neighbors.predict(metric.transform(X_test)) != y_test

    before, start = peak(), time.perf_counter()
    nca = NCA(32, solver="stochastic", random_state=0, verbose=1).fit(X, y)
    seconds = time.perf_counter() - start
    memory = peak() - before
    ours, theirs = wrong(nca), wrong(PCA(32, random_state=0).fit(X))
    only_ours, only_theirs = int((ours & ~theirs).sum()), int((theirs & ~ours).sum())
    p = binomtest(only_ours, only_ours + only_theirs).pvalue if only_ours + only_theirs else 1.0
    yield {
        "case": {"kind": "mnist", "n": n, "rank": 32},
        "seconds": seconds,
        "memory": memory,
        "rounds": nca.n_iter_,
        "converged": bool(nca.converged_),
        "objective": float(nca.objectives_[-1]),
        "error_nca": float(ours.mean()),
        "error_pca": float(theirs.mean()),
        "only_nca_wrong": only_ours,
        "only_pca_wrong": only_theirs,
        "mcnemar_p": float(p),
    }


NAMES = {"evaluation": evaluations, "fit": fits, "mnist": mnist}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", help="measure one case of `fit` again, such as letter-2")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return worker(json.loads(options.worker[0]), options.worker[1])
    from run import machine

    if options.only:
        target = HERE / "results" / "nca-fit.json"
        report = json.loads(target.read_text())
        for result in fits(options.quick, options.only):
            places = [k for k, other in enumerate(report["results"]) if other["case"] == result["case"]]
            report["results"][places[0]] = result | {"load": os.getloadavg()}
        target.write_text(json.dumps(report, indent=1) + "\n")
        return None
    for name in options.names or NAMES:
        if name == "mnist" and DATA is None:
            print("mnist is left out: set VICINAL_DATA", file=sys.stderr)
            continue
        results = []
        target = HERE / "results" / f"nca-{name}.json"
        for result in NAMES[name](options.quick):
            results.append(result | {"load": os.getloadavg()})
            if not options.quick:  # written after each case, so that an interrupted run keeps its results
                target.write_text(json.dumps({"machine": machine(), "results": results}, indent=1) + "\n")
        if options.quick:
            print(json.dumps(results, indent=1), file=sys.stderr)
            continue
        print(f"wrote {target}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
