"""Compare the losses of vicinal.torch with the same sums in plain torch: one value and gradient, on the CPU.

    python benchmarks/torch_losses.py [--rows 5000] [--columns 64] [--repeats 3]

nca: the likelihood of ten classes.  info: InfoNCE of as many pairs.  plain: all pairs in one matrix.  chunks: 1,024 rows at a time,
recomputed for the gradient (torch.utils.checkpoint).  NCA: one evaluation of `vicinal.NCA`.  If pytorch-metric-learning is installed, its
NCALoss, which keeps all pairs in one matrix. Values agree to 1e-6. Times are those of the processor, the
least of the repeats, interleaved. Memory is the growth of the largest resident size, in a process per method.
"""

import argparse
import json
import multiprocessing
import resource
import time
from pathlib import Path

import numpy as np

TEMPERATURE = 0.05


def data_of(n, k):
    import torch

    rng = np.random.default_rng(0)
    z = rng.normal(size=(n, k)).astype(np.float32)
    partners = (z + 0.3 * rng.normal(size=(n, k))).astype(np.float32)
    return torch.from_numpy(z), torch.from_numpy(partners), torch.from_numpy(rng.integers(10, size=n))


def log_agreement(scores, same):
    import torch

    return torch.logsumexp(scores.masked_fill(~same, -torch.inf), 1) - torch.logsumexp(scores, 1)


def nca_rows(z, y, first, last, scale):
    """The sum of the logarithms of the shares of some rows."""
    import torch

    scores = -scale * torch.cdist(z[first:last], z, compute_mode="use_mm_for_euclid_dist").square()
    here = torch.arange(first, last)
    scores = scores.index_put((here - first, here), torch.tensor(-torch.inf))
    return log_agreement(scores, y[first:last, None] == y[None]).sum()


def info_rows(a, b, first, last):
    import torch

    scores = a[first:last] @ b.T / TEMPERATURE
    return torch.nn.functional.cross_entropy(scores, torch.arange(first, last), reduction="sum")


def losses(n, k):
    """Return the methods by name: functions of (z, partners, y) that return a loss."""
    from torch.nn.functional import normalize
    from torch.utils.checkpoint import checkpoint

    from vicinal.torch import info_nce_loss, nca_loss

    scale = 0.5 / k

    def chunks(rows, *tensors):
        parts = [(first, min(first + 1024, n)) for first in range(0, n, 1024)]
        return sum(checkpoint(rows, *tensors, *part, use_reentrant=False) for part in parts) / n

    methods = {
        "nca, vicinal": lambda z, b, y: nca_loss(z, y, scale=scale),
        "nca, plain": lambda z, b, y: -nca_rows(z, y, 0, n, scale) / n,
        "nca, chunks": lambda z, b, y: -chunks(lambda z, y, i, j: nca_rows(z, y, i, j, scale), z, y),
        "info, vicinal": lambda z, b, y: info_nce_loss(z, b, TEMPERATURE),
        "info, plain": lambda z, b, y: info_rows(normalize(z), normalize(b), 0, n) / n,
        "info, chunks": lambda z, b, y: chunks(info_rows, normalize(z), normalize(b)),
    }
    try:
        from pytorch_metric_learning.distances import LpDistance
        from pytorch_metric_learning.losses import NCALoss
    except ImportError:
        return methods
    theirs = NCALoss(softmax_scale=scale, distance=LpDistance(normalize_embeddings=False, p=2, power=2))
    methods["nca, pytorch-metric-learning"] = lambda z, b, y: theirs(z, y)
    return methods


def one_run(method, n, k):
    """Return the loss, the seconds of the processor and by the clock, and the growth of memory in MB, of value and gradient."""
    z, partners, y = data_of(n, k)
    loss_of = losses(n, k)[method]
    z.requires_grad_()
    small = losses(400, k)[method]
    small(z[:400], partners[:400], y[:400]).backward()  # loads and compiles
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, used = time.perf_counter(), time.process_time()
    loss = loss_of(z, partners, y)
    loss.backward()
    used, took = time.process_time() - used, time.perf_counter() - began
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return float(loss.detach()), used, took, memory


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--columns", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    n, k = options.rows, options.columns
    path = Path(__file__).parent / "results" / "torch_losses.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    runs = {method: [] for method in losses(n, k)}
    for _ in range(options.repeats):
        for method in runs:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                runs[method].append(pool.apply(one_run, (method, n, k)))
    table = results[f"{n} x {k}"] = {
        method: {
            "loss": round(rows[0][0], 6),
            "processor, s": round(min(row[1] for row in rows), 3),
            "clock, s": round(min(row[2] for row in rows), 3),
            "memory, MB": round(min(row[3] for row in rows)),
        }
        for method, rows in runs.items()
    }
    path.write_text(json.dumps(results, indent=1))
    print(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
