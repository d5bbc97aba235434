"""The torch engine on a GPU: agreement with the reference, time a pair, and whole fits.

    python benchmarks/gpu.py                  # needs a CUDA device and vicinal[torch]
    python benchmarks/gpu.py --out FOLDER     # writes FOLDER/gpu.json instead of results/gpu.json

Every reduction is first compared with the reference engine in float64 on the CPU; a pass is then timed as an estimator sees
it: the rows are on the device, a metric goes in and sums come out.
"""

import argparse
import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from vicinal import LCA, NCA, Engine, NeuralNCA, datasets
from vicinal._engine import Match, prepare

GPU = Engine("torch", device="cuda")


def made(n, d, seed=0):
    rng = np.random.default_rng(seed)
    y = np.sort(rng.integers(0, 10, n))
    return (1.5 * rng.normal(size=(10, d))[y] + rng.normal(size=(n, d))) / np.sqrt(d), y


def reductions(engine, X, y):
    """Every reduction of the engine once, as arrays."""
    weights, targets = np.linspace(0.5, 1.5, len(X)), np.eye(10)[y] + 0.01
    problem = prepare(engine, X, log_weights=np.log(weights), leave_one_out=True, match=Match("class", y))
    placed, some = problem.at(), np.arange(50)
    yield "log_sums", placed.log_sums()
    yield "softmax_means", placed.softmax_means(X, X[:50] + 0.1).means
    yield "mean_shifts", placed.mean_shifts(some).means
    yield "class_shares", placed.class_shares(some)
    yield "perplexities", placed.perplexities()
    yield "scatter", placed.scatter(weights).scatter
    yield "scatter, new rows", placed.scatter(queries=X[:50] + 0.1).scatter
    yield "pull, class", placed.pull(weights, objective="likelihood").pull
    yield "pull, class, some rows", placed.pull(queries=some).pull
    for kind, values in (("gaussian", X[:, :2]), ("dot", targets)):
        soft = prepare(engine, X, leave_one_out=True, match=Match(kind, values.astype(np.float64)))
        yield f"gradient, {kind}", soft.at().gradient().pull
    yield "nearest", placed.nearest(3).scores


def agreement():
    """The largest relative difference of each reduction from the reference, in both precisions."""
    X, y = made(3000, 12)
    truth = dict(reductions("reference", X, y))
    found = {}
    for dtype in ("float64", "float32"):
        ours = dict(reductions(GPU, X.astype(dtype), y))
        found[dtype] = {k: float(np.abs(ours[k] - truth[k]).max() / np.abs(truth[k]).max()) for k in truth}
    return found


def best_of(rounds, work):
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times)


def pass_times(X, y):
    """Nanoseconds a pair of LCA's pass and of NCA's."""
    n, d = X.shape
    problem, metric = prepare(GPU, X, leave_one_out=True, match=Match("class", y)), np.eye(d)
    scatter = best_of(2, lambda: problem.at(metric).scatter())
    pull = best_of(2, lambda: problem.at(metric).pull())
    return {"scatter_ns": scatter / n**2 * 1e9, "pull_ns": pull / n**2 * 1e9}


def passes():
    """The passes at several sizes, in both precisions."""
    for n, d in ((20_000, 16), (50_000, 16), (50_000, 64), (100_000, 16)):
        X, y = made(n, d)
        row = {"n": n, "d": d} | {dtype: pass_times(X.astype(dtype), y) for dtype in ("float64", "float32")}
        print(row, file=sys.stderr, flush=True)
        yield row


def fits():
    """Whole fits on the GPU."""
    mixture = datasets.make_anisotropic_mixture(52_000, 10, random_state=0).data
    train, test = mixture[:50_000], mixture[50_000:]
    start = time.perf_counter()
    lca = LCA(solver="accelerated", engine=GPU, reg=0.0).fit(train)
    yield {
        "fit": "LCA, exact, 50,000 x 10",
        "seconds": time.perf_counter() - start,
        "passes": lca.n_iter_,
        "held_out": lca.score(test),
    }
    X, y = made(20_000, 32)
    start = time.perf_counter()
    nca = NCA(8, engine=GPU, max_iter=30, random_state=0).fit(X, y)
    yield {
        "fit": "NCA, exact, 20,000 x 32 to 8, 30 iterations",
        "seconds": time.perf_counter() - start,
        "objective": nca.objectives_[-1],
    }
    NeuralNCA(2, device="cuda", max_iter=1).fit(X[::40], y[::40])  # loads what there is to load
    for device in ("cuda", "cpu"):
        start = time.perf_counter()
        neural = NeuralNCA(2, device=device, max_iter=20, random_state=0).fit(X[:8000], y[:8000])
        yield {
            "fit": f"NeuralNCA, 8,000 x 32 to 2, 20 epochs, {device}",
            "seconds": time.perf_counter() - start,
            "objective": float(neural.objectives_[-1]),
            "finite": bool(np.isfinite(neural.transform(X[:100])).all()),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("gpu.py needs a CUDA device, and torch sees none.")
    warnings.simplefilter("ignore", ConvergenceWarning)
    report = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "agreement": agreement()}
    print(report, file=sys.stderr, flush=True)
    report["passes"] = list(passes())
    report["fits"] = []
    for row in fits():
        print(row, file=sys.stderr, flush=True)
        report["fits"].append(row)
    (options.out / "gpu.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
