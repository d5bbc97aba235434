"""The torch engine on a GPU: agreement with the reference, time a pair, and whole fits.

    python benchmarks/gpu.py                  # needs a CUDA device and vicinal[torch]
    python benchmarks/gpu.py --out FOLDER     # writes FOLDER/gpu.json instead of results/gpu.json

Every reduction is first compared with the reference engine in float64 on the CPU; a pass is then timed with its
transfers, arrays in and arrays out, as an estimator sees it.
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
from vicinal._engine import Match, pair_reductions

GPU = Engine("torch", device="cuda")


def made(n, d, seed=0):
    rng = np.random.default_rng(seed)
    y = np.sort(rng.integers(0, 10, n))
    return (1.5 * rng.normal(size=(10, d))[y] + rng.normal(size=(n, d))) / np.sqrt(d), y


def reductions(pairs, X, y):
    """Every reduction of the engine once, as arrays."""
    n, alone = len(X), np.arange(len(X))
    match = Match("class", y, y)
    weights = np.linspace(0.5, 1.5, n)
    yield "log_sums", pairs.log_sums(X, X, left_out=alone)
    yield "softmax_means", pairs.softmax_means(X[:50], X, X, log_weights=np.log(weights)).means
    yield "softmax_spread", pairs.softmax_spread(X[:50], X, X[:, :3])[-1]
    yield "class_shares", pairs.class_shares(X[:50], X, y, 10).shares
    yield "softmax_scatter", pairs.softmax_scatter(X, X, row_weights=weights, left_out=alone).scatter
    yield "signed_pull", pairs.signed_pull(X[:50], X, Match("class", y[:50], y), left_out=alone[:50]).on_points
    yield "mutual_pull", pairs.mutual_pull(X, match, objective="likelihood").pull


def agreement():
    """The largest relative difference of each reduction from the reference, in both precisions."""
    X, y = made(3000, 12)
    truth = dict(reductions(pair_reductions("reference", 1, 1, 1), X, y))
    found = {}
    for dtype in ("float64", "float32"):
        ours = dict(reductions(pair_reductions(GPU, 1, 1, 1), X.astype(dtype), y))
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
    pairs, alone, match = pair_reductions(GPU, n, n, d), np.arange(n), Match("class", y, y)
    scatter = best_of(2, lambda: pairs.softmax_scatter(X, X, left_out=alone))
    pull = best_of(2, lambda: pairs.mutual_pull(X, match))
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
    lca = LCA(solver="accelerated", engine=GPU).fit(train)
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
