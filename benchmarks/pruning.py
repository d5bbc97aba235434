"""Compare pruned passes with dense ones in one run: ``python benchmarks/pruning.py clusters gauss real trees mlpack least covertype``.

A pass is the leave-one-out log-sums and scatter of LCA at the metric that LCA fits, with the spatial order and the boxes
computed again each time.  Pruned and dense passes (``error=0``) take turns, and the median over the rounds of their ratio is
reported.  If a dense pass would take too long, the time of a sample of rows is extrapolated by n^2 ("~").
Times are wall times on two threads, or with ``--threads 1`` the CPU time of one thread, which a busy machine disturbs little.

Results are added to ``benchmarks/results/pruning.json``: one entry per part, case, number of rows and columns, error and threads.  Parts may run
in parallel on separate cores (``taskset -c 0,1 python benchmarks/pruning.py clusters --rows 1000000``).
"""

import argparse
import fcntl
import json
import os
import signal
import subprocess
import tempfile
import time
import warnings
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from run import machine

from vicinal import LCA, Engine
from vicinal._engine import prepare

# -- data -------------------------------------------------------------------------------------------------------------


def clusters(n, d, seed=0):
    """Return rows of 100 clusters of random shapes."""
    rng = np.random.default_rng(seed)
    centres, shapes = 6.0 * rng.normal(size=(100, d)), rng.normal(size=(100, d, d)) / np.sqrt(d)
    which, rows = rng.integers(100, size=n), rng.normal(size=(n, d))
    for c in range(100):
        rows[which == c] = rows[which == c] @ shapes[c]
    return centres[which] + rows


def manifold(n, d, seed=0):
    """Return rows of a surface of two dimensions that is bent into d, with noise of 1%."""
    rng = np.random.default_rng(seed)
    frequency, phase = 2.0 * rng.normal(size=(2, d)), rng.uniform(0, 6, size=d)
    return np.sin(rng.uniform(-1, 1, size=(n, 2)) @ frequency + phase) + 0.01 * rng.normal(size=(n, d))


def gauss(n, d, seed=0):
    """Return one Gaussian cluster, in which no pairs can be skipped."""
    return np.random.default_rng(seed).normal(size=(n, d))


def real(name):
    """Return a real data set, with noise added to rounded integers."""
    rng = np.random.default_rng(0)
    folder = Path(os.environ["VICINAL_DATA"])

    def load(file):
        return np.load(folder / f"{file}.npz", allow_pickle=False)

    def leading(X, k):
        X = X - X.mean(axis=0)
        return X @ np.linalg.eigh(X.T @ X)[1][:, ::-1][:, :k]

    if name == "covertype":
        X = load("covertype")["X"].astype(float)
        return (X + rng.uniform(-0.5, 0.5, X.shape)) / X.std(axis=0)
    if name.startswith("mnist"):
        return leading(load("mnist")["X_train"] / 255.0, int(name[5:]))
    if name.startswith("usps"):
        return leading(load("usps")["X_train"] / 1000.0, int(name[4:]))
    found = load(f"uci_{name}")
    X = found["X"] if "X" in found else np.vstack([found["X_train"], found["X_test"]])
    return X + rng.uniform(-0.5, 0.5, X.shape)


def fitted_metric(X, most=100_000):
    """Return LCA's metric; for many rows, that of a sample, narrowed to suit all rows."""
    rows = X if len(X) <= most else X[np.random.default_rng(1).permutation(len(X))[:most]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        metric = LCA(solver="accelerated", reg=0.0, tol=1e-5, engine=Engine("cpu", error=1e-9)).fit(rows).components_
    return metric * (len(X) / len(rows)) ** (1.0 / (X.shape[1] + 4))


# -- results ----------------------------------------------------------------------------------------------------------

RESULTS = Path(__file__).parent / "results" / "pruning.json"


def record(part, case, **found):
    """Write a result to the file, rounded to four digits, in place of an earlier one of the same case."""
    # Several parts may run at once, on separate cores.
    with RESULTS.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        entries = _with_entry(json.loads(file.read() or "[]"), part, case, found)
        file.truncate(0)
        file.write(json.dumps(entries, indent=1) + "\n")


def _with_entry(entries, part, case, found):
    key = {"part": part, "case": case} | {name: found[name] for name in ("n", "d", "error", "threads") if name in found}
    entries = [entry for entry in entries if any(entry.get(name) != value for name, value in key.items())]
    found = {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in found.items()}
    when = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "load": os.getloadavg()[0], "machine": machine()}
    entries.append(key | found | when)
    return sorted(entries, key=lambda entry: (entry["part"], entry["case"], entry.get("n", 0), entry.get("d", 0)))


# -- a pass -----------------------------------------------------------------------------------------------------------


def clock(threads):
    """Return the CPU time of one thread, or the wall time."""
    return time.thread_time if threads == 1 else time.perf_counter


def timed_pass(Z, error, threads):
    """Return the seconds of one pass over the images, and the pairs that it visited."""
    problem = prepare(Engine("cpu", threads=threads, error=error), Z, leave_one_out=True)
    now = clock(threads)
    start = now()
    placed = problem.at(None)
    found = placed.scatter()
    seconds = now() - start
    sweeps = getattr(placed.placed, "sweeps", None)
    shares = (1.0, 1.0) if sweeps is None else sweeps.shares
    return seconds, shares, problem.certified_row_error, found


def compare(part, name, Z, options, dense_rows=10**5):
    """Print and record one line: pruned against dense passes, in turn."""
    n, error, threads, rounds = len(Z), options.error, options.threads, options.rounds
    some = Z if n <= dense_rows else Z[np.random.default_rng(2).permutation(n)[:dense_rows]]
    timed_pass(Z[:7000], error, threads), timed_pass(Z[:7000], 0.0, threads)  # compile
    ratios, mark = [], "" if n <= dense_rows else "~"
    for _ in range(rounds):
        pruned, shares, certified, found = timed_pass(Z, error, threads)
        dense, _, _, exact = timed_pass(some, 0.0, threads)
        dense *= (n / len(some)) ** 2
        ratios.append(dense / pruned)
    difference = np.abs(found.log_sums - exact.log_sums).max() if n == len(some) else np.nan
    record(
        part, name, n=n, d=Z.shape[1], error=error, threads=threads, dense_seconds=dense, dense_rows=len(some),
        pruned_seconds=pruned, ratio=float(np.median(ratios)), ratios=[round(ratio, 3) for ratio in ratios],
        visited=float(shares[0]), taken=float(shares[1]), certified=float(certified),
        difference_of_log_sums=None if np.isnan(difference) else float(difference),
    )  # fmt: skip
    print(
        f"| {name} | {n} | {Z.shape[1]} | {mark}{dense:.2f} s | {pruned:.2f} s | {mark}{np.median(ratios):.1f}x | "
        f"{shares[0]:.4f} | {shares[1]:.4f} | {certified:.1e} | {difference:.1e} |",
        flush=True,
    )


HEADER = (
    "| work | n | d | dense | pruned | ratio | visited | taken | certified | difference of log-sums |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)


def run_clusters(options):
    """Compare LCA's passes on clusters and on a manifold."""
    for n in options.rows:
        for d in options.columns:
            X = clusters(n, d)
            compare("clusters", "clusters", X @ fitted_metric(X, options.fitted).T, options)
        X = manifold(n, 8)
        compare("clusters", "manifold", X @ fitted_metric(X, options.fitted).T, options)


def run_gauss(options):
    """Compare passes on one Gaussian, where nothing can be pruned."""
    X = gauss(options.rows[0], 8)
    compare("gauss", "one Gaussian", X @ fitted_metric(X, 20_000).T, options)


def run_real(options):
    """Compare passes on real data in 16 to 50 columns."""
    for name in options.sets:
        X = real(name)
        compare("real", name, X @ fitted_metric(X, min(options.fitted, 20_000)).T, options, dense_rows=20_000)


def queries_on_clusters(d, options):
    """Return points and 10,000 queries of the clusters in kernel units, and vicinal's log-sums and seconds on one thread."""
    n, m = options.rows[0], 10_000
    X = clusters(n + m, d)
    Z = X @ fitted_metric(X, options.fitted).T
    points, queries = np.ascontiguousarray(Z[:n]), np.ascontiguousarray(Z[n:])

    def ours():
        start = time.thread_time()
        found = prepare(Engine("cpu", threads=1, error=options.error), points).at(None).log_sums(queries)
        return found, time.thread_time() - start

    ours()
    return points, queries, *ours()


def run_trees(options):
    """Compare log-densities of 10,000 queries on clusters with scikit-learn's trees, on one thread each."""
    from sklearn.neighbors import KernelDensity

    for d in options.columns:
        points, queries, got, ours = queries_on_clusters(d, options)
        n, m = len(points), len(queries)
        step = max(m // 500, 1)
        for algorithm in ("kd_tree", "ball_tree"):
            for rtol in (1e-9, 1e-2):
                density = KernelDensity(algorithm=algorithm, rtol=rtol).fit(points)
                start = time.thread_time()
                theirs = density.score_samples(queries[::step])
                seconds = (time.thread_time() - start) * step
                off = float(np.abs(theirs + 0.5 * d * np.log(2 * np.pi) + np.log(n) - got[::step]).max())
                record(
                    "trees", f"{algorithm}, rtol {rtol:g}", n=n, d=d, error=options.error, threads=1, queries=m, seconds=seconds,
                    vicinal_seconds=ours, ratio=seconds / ours, off_by=off,
                )  # fmt: skip
                print(
                    f"d={d}: vicinal {ours:.2f} s; {algorithm} at rtol {rtol:g} ~{seconds:.1f} s ({seconds / ours:.0f}x, off by {off:.1e})",
                    flush=True,
                )


MLPACK = """
import sys, time
import numpy as np
from mlpack import kde
found = np.load(sys.argv[1])
start = time.process_time()
output = kde(
    reference=found["points"], query=found["queries"], bandwidth=1.0, kernel="gaussian", rel_error=float(sys.argv[2]), abs_error=0.0,
    copy_all_inputs=True,
)
seconds = time.process_time() - start
np.savez(sys.argv[3], seconds=seconds, predictions=output["predictions"])
"""


def run_mlpack(options):
    """Time the same queries with mlpack's dual trees on one thread, with smaller and smaller errors until it takes too long."""
    if options.mlpack is None:
        print("mlpack is skipped; pass a Python with mlpack installed as --mlpack")
        return
    for d in options.columns:
        points, queries, got, ours = queries_on_clusters(d, options)
        for error in (1e-2, 1e-3, 1e-4, 1e-6, 1e-9):
            with tempfile.TemporaryDirectory() as folder:
                given, answer = Path(folder) / "given.npz", Path(folder) / "answer.npz"
                np.savez(given, points=points, queries=queries)
                command = [options.mlpack, "-c", MLPACK, str(given), str(error), str(answer)]
                try:
                    subprocess.run(
                        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=options.limit, check=True,
                        capture_output=True,
                    )  # fmt: skip
                except subprocess.TimeoutExpired:
                    print(
                        f"d={d}: mlpack at a relative error of {error:g} takes more than {options.limit} s", flush=True
                    )
                    record(
                        "mlpack", f"relative error {error:g}", n=len(points), d=d, error=options.error, threads=1,
                        queries=len(queries), longer_than_seconds=options.limit, vicinal_seconds=ours,
                    )  # fmt: skip
                    break
                found = np.load(answer)
            seconds = float(found["seconds"])
            sums = np.log(found["predictions"].ravel()) + 0.5 * d * np.log(2 * np.pi) + np.log(len(points))
            off = float(np.nanmax(np.abs(sums - got)))
            record(
                "mlpack", f"relative error {error:g}", n=len(points), d=d, error=options.error, threads=1,
                queries=len(queries), seconds=seconds, vicinal_seconds=ours, ratio=seconds / ours, off_by=off,
            )  # fmt: skip
            print(
                f"d={d}: vicinal {ours:.2f} s; mlpack at {error:g} {seconds:.1f} s ({seconds / ours:.0f}x, off by {off:.1e})",
                flush=True,
            )


def run_least(options):
    """Compare the computed pairs with the fewest that any truncation must keep; a pair used for both rows counts twice."""
    for d in options.columns:
        X = clusters(options.rows[-1], d)
        Z = X @ fitted_metric(X, options.fitted).T
        placed = prepare(Engine("cpu", threads=options.threads, error=options.error), Z, leave_one_out=True).at(None)
        listed = placed.placed._listed(placed.problem.queries(None, None), "scatter", power=2.0)
        visited, taken = (2.0 * float(share) for share in listed.sums().shares)
        rows, needed = np.random.default_rng(3).choice(len(Z), 64, replace=False), []
        for i in rows:
            e = np.exp(-0.5 * ((Z - Z[i]) ** 2).sum(axis=1))
            e[i] = 0.0
            e = np.sort(e)
            needed.append(len(e) - np.searchsorted(np.cumsum(e) / e.sum(), options.error))
        least = float(np.mean(needed) / len(Z))
        record(
            "least", "clusters", n=len(Z), d=d, error=options.error, needed=least, visited=visited, taken=taken,
            visited_over_needed=visited / least, taken_over_needed=taken / least,
        )  # fmt: skip
        print(
            f"clusters, n={len(Z)}, d={d}: needed {least:.5f}; boxes visit {visited / least:.1f}x, "
            f"distances first take {taken / least:.1f}x",
            flush=True,
        )


def run_covertype(options):
    """Fit LCA exactly to all of covertype; LCA prints the passes and seconds of each level."""
    X = real("covertype")[: options.most]
    ends = []
    fit = LCA(
        solver="accelerated", reg=0.0, verbose=True, engine=Engine("cpu", threads=options.threads),
        callback=lambda *_: ends.append(time.perf_counter()),
    )  # fmt: skip
    # A fit that takes too long ends with the best point so far, as after Ctrl-C.
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(int(options.limit))
    start = time.perf_counter()
    fit.fit(X)
    signal.alarm(0)
    record(
        "covertype", "exact fit of LCA", n=len(X), d=X.shape[1], threads=options.threads,
        seconds=time.perf_counter() - start, passes_at_full_size=int(fit.n_iter_), converged=bool(fit.converged_),
        passes_ended_at_seconds=[round(end - start, 1) for end in ends],
        nats_per_row=float(fit.objectives_[-1]), certified=float(fit.certified_row_error_),
        median_perplexity=float(np.median(fit.effective_neighbors_)),
    )  # fmt: skip
    print(
        f"covertype, {X.shape}: {time.perf_counter() - start:.0f} s, {fit.n_iter_} passes at full size, converged "
        f"{fit.converged_}, {fit.objectives_[-1]:.6f} nats per row, certified {fit.certified_row_error_:.1e}, "
        f"median perplexity {np.median(fit.effective_neighbors_):.2f}",
        flush=True,
    )


def main():
    """Run the selected parts."""
    global RESULTS  # where `record` writes
    parts = {name[4:]: part for name, part in globals().items() if name.startswith("run_")}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*parts, []], default=[])
    parser.add_argument("--rows", type=int, nargs="+", default=[10**5, 10**6])
    parser.add_argument("--error", type=float, default=1e-9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=int, default=None, help="the number of rows of covertype")
    parser.add_argument("--fitted", type=int, default=10**5, help="the largest number of rows in fits of metrics")
    real_sets = ["letter", "pendigits", "satimage", "usps30", "mnist20", "mnist50"]
    parser.add_argument("--sets", nargs="+", choices=real_sets, default=real_sets)
    parser.add_argument("--mlpack", help="a Python with mlpack installed")
    parser.add_argument(
        "--limit", type=float, default=600.0, help="the time limit of mlpack and of the fit to covertype, in seconds"
    )
    parser.add_argument(
        "--columns", type=int, nargs="+", default=[2, 5, 8], help="columns of clusters, trees, mlpack and least"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file to which results are added")
    options = parser.parse_args()
    RESULTS = options.results
    print(HEADER, flush=True)
    for name in options.parts or parts:
        parts[name](options)


if __name__ == "__main__":
    main()
