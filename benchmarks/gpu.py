"""Measure the torch engine on a GPU: agreement with the reference, whole passes and their errors, and whole fits.

    python benchmarks/gpu.py                  # needs a CUDA device, vicinal[torch] and Triton, which torch installs
    python benchmarks/gpu.py --out FOLDER     # writes FOLDER/gpu.json instead of results/gpu.json
    python benchmarks/gpu.py --tune           # measures the choices of `tuning.GPU_TILES` instead: gpu-tuning.json
    python benchmarks/gpu.py --laws           # runs the laws of the engine on the device instead: gpu-laws.json

The time of a pass is that of an estimator: it includes the transfer of a metric to the device and of the results to memory. The
rows are copied to the device once, before the measurement.  Errors are differences from torch's operations on tiles in float64 on the
same device.
"""

import argparse
import importlib.util
import itertools
import json
import math
import multiprocessing
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch

from vicinal._engine import Engine, Match, prepare, tuning

GPU = Engine("torch", device="cuda")
SECONDS_PER_FIGURE = 3.0


def say(row):
    print(row, file=sys.stderr, flush=True)
    return row


def milliseconds(work, rounds=7):
    """Return the median time of some work, after a first round that compiles kernels and loads libraries."""
    work()
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
        if sum(times) > 1e3 * SECONDS_PER_FIGURE:
            break
    return statistics.median(times)


# -- rows -------------------------------------------------------------------------------------------------------------


def gaussian_rows(n, d, seed=0):
    """Return rows under whose metric products about one centre are accurate."""
    return np.random.default_rng(seed).normal(size=(n, d)) * (4.0 / math.sqrt(d))


def clusters(n, d, seed=0):
    """Return rows of twenty clusters of different shapes, which are far apart compared with their extent."""
    rng = np.random.default_rng(seed)
    X = np.empty((n, d))
    for rows in np.array_split(rng.permutation(n), 20):
        X[rows] = 30.0 * rng.normal(size=d) + rng.normal(size=(len(rows), d)) @ (rng.normal(size=(d, d)) / math.sqrt(d))
    return X


def classes(n, d, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 10, n)
    return (1.5 * rng.normal(size=(10, d))[y] + rng.normal(size=(n, d))) * (4.0 / math.sqrt(d)), y


def metric_of_lca(problem, n_steps=8):
    """Return the metric after some EM steps of LCA from the scales of the columns: the frame that its passes work in."""
    root = np.diag(problem.points.rows.std(axis=0, dtype=np.float64)) * 0.3
    for _ in range(n_steps):
        scatter = problem.at(np.linalg.inv(root)).scatter().scatter / problem.n_points
        root = np.linalg.cholesky(root @ scatter @ root.T)
    return np.linalg.inv(root)


# -- references and peers: tiles of torch's operations ----------------------------------------------------------------


def by_tiles(X, rows=4096, with_log_sums=False):
    """Return the log-sums, which take another sweep, and the scatter of LCA's pass by torch's operations, in X's precision."""
    n, d = X.shape
    squares, received, cross = 0.5 * (X * X).sum(1), X.new_zeros(n), X.new_zeros(d, d)
    log_sums = X.new_empty(n)
    for start in range(0, n, rows):
        some = slice(start, min(start + rows, n))
        scores = torch.addmm(-squares, X[some], X.T)
        scores.diagonal(offset=start).fill_(-math.inf)
        if with_log_sums:
            log_sums[some] = torch.logsumexp(scores, 1) - squares[some]
        weights = torch.softmax(scores, 1)
        received += weights.sum(0)
        cross += X[some].T @ (weights @ X)
    return log_sums, X.T @ X + X.T @ (received[:, None] * X) - cross - cross.T


def by_flex_attention(X):
    """Return the softmax means of LCA's pass by torch's flex_attention: half of what a pass needs, without its scatter."""
    from torch.nn.attention.flex_attention import flex_attention

    n, d = X.shape
    width = max(16, 1 << (d - 1).bit_length())
    rows = torch.zeros(1, 1, n, width, dtype=X.dtype, device=X.device)
    rows[0, 0, :, :d] = X
    half = 0.5 * (X * X).sum(1)

    def score(value, _batch, _head, query, point):
        return torch.where(query == point, -math.inf, value - half[point])

    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda: compiled(rows, rows, rows, score_mod=score, scale=1.0, return_lse=True)


def by_keops(X):
    """Return the same means by KeOps."""
    from pykeops.torch import LazyTensor

    mine, theirs = LazyTensor(X[:, None, :]), LazyTensor(X[None, :, :])
    scores = -0.5 * ((mine - theirs) ** 2).sum(-1)
    values = LazyTensor(X[None, :, :].contiguous())
    return lambda: scores.sumsoftmaxweight(values, dim=1)


PEERS = {"flex_attention": by_flex_attention, "KeOps": by_keops}


def time_peer(name, n, d):
    """Return the milliseconds of a peer, in a separate process, because it may end in ways that Python cannot catch."""
    work = PEERS[name](torch.as_tensor(gaussian_rows(n, d).astype(np.float32), device="cuda"))
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return {"first_use_seconds": time.perf_counter() - start, "ms": milliseconds(work, 3)}


def peers(n=100_000, d=16):
    """Yield the times for the softmax means of LCA's pass, about half of its work, by other fused kernels and by ours."""
    for name in PEERS:
        row = {"peer": name, "work": "softmax means", "n": n, "d": d, "dtype": "float32"}
        code = f"import json, gpu; print(json.dumps(gpu.time_peer({name!r}, {n}, {d})))"
        folder = Path(__file__).parent
        try:
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, timeout=60)
            row |= json.loads(done.stdout.strip().splitlines()[-1])
        except subprocess.TimeoutExpired:
            row["error"] = "no answer within a minute"
        except (IndexError, ValueError):  # a peer that is not installed or does not work on this machine
            row["error"] = (
                f"its process ended with {done.returncode}: {(done.stderr.strip().splitlines() or [''])[-1][:200]}"
            )
        yield say(row)
    values = gaussian_rows(n, d).astype(np.float32)
    placed = prepare(GPU, values, leave_one_out=True).at(np.eye(d))
    row = {"peer": "vicinal", "work": "softmax means", "n": n, "d": d, "dtype": "float32"}
    yield say(row | {"ms": milliseconds(lambda: placed.softmax_means(values), 3)})


# -- what the same bits cost ------------------------------------------------------------------------------------------


def bits(n=100_000, d=16):
    """Yield the first half sweep of LCA's pass with sums of columns stored and added in order, and with atomic additions."""
    from gpu_atomics import atomic_sums

    problem = prepare(GPU, gaussian_rows(n, d).astype(np.float32), leave_one_out=True)
    half = problem.at(np.eye(d)).placed._half(problem.queries(None, None))
    n_blocks, chunk, parts = half._cut()
    tiles = half.tiles
    [panel] = list(half._panels(tiles.width))

    def added_atomically():
        total = torch.zeros(tiles.n_places, device="cuda")
        atomic_sums[(parts, tiles.n_tiles)](
            *half._u, panel.of_columns, panel.of_rows, total, half._unit, n_blocks, chunk,
            D=tiles.width, B=tiles.size, BJ=half._block, num_warps=half._options["num_warps"],
            num_stages=half._options["num_stages"],
        )  # fmt: skip
        return tiles.of_rows_given(total)

    stored = half.totals()[0]
    row = {"work": "sums of all rows", "n": n, "d": d, "dtype": "float32"}
    row["difference"] = float((added_atomically() / stored - 1.0).abs().max())
    row["stored_ms"], row["atomic_ms"] = milliseconds(half.totals), milliseconds(added_atomically)
    row["atomic_again_is_equal"] = bool((added_atomically() == added_atomically()).all())
    yield say(row)


# -- figures ----------------------------------------------------------------------------------------------------------


def ceilings():
    """Return the best rates of this device for copies, matrix products and exponentials."""
    found = {}
    a = torch.empty(2**29, device="cuda")
    b = torch.empty_like(a)
    found["copy_bytes"] = 2 * a.numel() * 4 / milliseconds(lambda: b.copy_(a)) * 1e3
    for name, dtype, tf32 in (("float32", "float32", False), ("tf32", "float32", True), ("float64", "float64", False)):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        x = torch.randn(8192, 8192, device="cuda", dtype=getattr(torch, dtype))
        found[f"product_flops_{name}"] = 2 * 8192**3 / milliseconds(lambda x=x: x @ x) * 1e3
    torch.backends.cuda.matmul.allow_tf32 = False
    return found


def reductions(placed, X, y):
    """Yield every reduction of the engine once, as arrays."""
    yield "log_sums", placed.log_sums()
    yield "softmax_means", placed.softmax_means(X).means
    yield "mean_shifts", placed.mean_shifts(X[:50]).means
    yield "scatter", placed.scatter(np.linspace(0.5, 1.5, len(X))).scatter
    yield "scatter_of_some", placed.scatter(queries=np.arange(0, len(X), 7)).scatter
    yield "class_shares", placed.class_shares(X[:50])
    yield "pull", placed.pull(objective="likelihood").pull
    yield "gradient", placed.gradient().pull
    yield "perplexities", placed.perplexities()
    yield "nearest", placed.nearest(5).scores


def agreement():
    """Return the largest relative difference of each reduction from the reference, in both precisions."""
    X, y = classes(3000, 12)
    found = {}
    for dtype in ("float64", "float32"):
        rows = X.astype(dtype)
        ours, truth = (
            dict(
                reductions(
                    prepare(engine, rows.astype(real), leave_one_out=True, match=Match("class", y)).at(None), rows, y
                )
            )
            for engine, real in ((GPU, dtype), ("reference", "float64"))
        )
        found[dtype] = {k: float(np.abs(ours[k] - truth[k]).max() / np.abs(truth[k]).max()) for k in truth}
    return found


def error_of(found, log_sums, scatter):
    scatter = scatter.cpu().numpy()
    return {
        "log_sums_error": float(np.abs(found.log_sums - log_sums.cpu().numpy()).max()),
        "scatter_error": float(np.linalg.norm(found.scatter - scatter) / np.linalg.norm(scatter)),
    }


FIGURES = {
    "gaussian": [(16, "float32"), (64, "float32"), (128, "float32"), (16, "float64")],
    "clusters": [(16, "float32"), (64, "float32"), (128, "float32")],
}


def lca_passes(kind, n=100_000):
    """Yield LCA's passes: of Gaussian rows about one centre, and of clusters in the frame that LCA learns."""
    for d, dtype in FIGURES[kind]:
        X = (gaussian_rows if kind == "gaussian" else clusters)(n, d).astype(dtype)
        problem = prepare(GPU, X, leave_one_out=True, passes=20)
        metric = np.eye(d) if kind == "gaussian" else metric_of_lca(problem)
        time_of_pass = milliseconds(lambda problem=problem, metric=metric: problem.at(metric).scatter())
        placed = problem.at(metric)
        found = placed.scatter()
        images = torch.as_tensor(problem.points.rows, device="cuda").double() @ torch.as_tensor(metric.T, device="cuda")
        half = placed.placed._half(problem.queries(None, None))
        row = {
            "work": "lca",
            "lost": None if half is None else len(half.totals()[2]),
            "n": n,
            "d": d,
            "dtype": dtype,
            "rows": kind,
            "ms": time_of_pass,
        }
        row["again_is_equal"] = bool(np.array_equal(found.scatter, problem.at(metric).scatter().scatter))
        row |= error_of(found, *by_tiles(images, with_log_sums=True))
        peer = images.to(getattr(torch, dtype))
        row["torch_tiles_ms"] = milliseconds(lambda peer=peer: by_tiles(peer), 3)
        row["torch_tiles_bytes"] = 4096 * n * peer.element_size() * 2
        row["tile_centres"] = half is not None and half.tiles.local
        yield say(row)


def pruned_passes(n=1_000_000, error=1e-6):
    """Yield LCA's passes over many rows in clusters, in the frame that LCA learns, that skip pairs that cannot matter."""
    for d in (5, 8):
        X = clusters(n, d).astype(np.float32)
        problem = prepare(Engine("torch", device="cuda", error=error), X, leave_one_out=True, passes=20)
        metric = metric_of_lca(problem, 12)
        placed = problem.at(metric)
        row = {"work": "pruned lca", "n": n, "d": d, "dtype": "float32", "rows": "clusters", "error": error}
        row["share"] = placed.placed.expected_share
        row["ms"] = milliseconds(lambda problem=problem, metric=metric: problem.at(metric).scatter(), 3)
        found = placed.scatter()
        row["certified_row_error"] = problem.certified_row_error
        some = np.arange(0, n, n // 300)
        images = torch.as_tensor(problem.points.rows, device="cuda").double() @ torch.as_tensor(metric.T, device="cuda")
        scores = -0.5 * torch.cdist(images[some], images, compute_mode="donot_use_mm_for_euclid_dist") ** 2
        scores[torch.arange(len(some)), torch.as_tensor(some)] = -math.inf
        truth = torch.logsumexp(scores, 1).cpu().numpy()
        row["log_sums_error"] = float(np.abs(found.log_sums[some] - truth).max())
        row["again_is_equal"] = bool(np.array_equal(found.scatter, problem.at(metric).scatter().scatter))
        yield say(row)


def nca_evaluations(n=100_000):
    for d, dtype in ((16, "float32"), (16, "float64")):
        X, y = classes(n, d)
        problem = prepare(GPU, X.astype(dtype), leave_one_out=True, match=Match("class", y), passes=50)
        found, again = (problem.at(np.eye(d)).gradient() for _ in range(2))
        row = {"work": "nca", "n": n, "d": d, "dtype": dtype}
        row["ms"] = milliseconds(lambda problem=problem, d=d: problem.at(np.eye(d)).gradient())
        row["again_is_equal"] = bool(np.array_equal(found.pull, again.pull))
        if dtype == "float32":
            single = found.pull
        else:
            row["float32_error"] = float(np.linalg.norm(single - found.pull) / np.linalg.norm(found.pull))
        yield say(row)


def densities(n=1_000_000, m=100_000, d=8):
    X = (gaussian_rows(n + m, d) * (math.sqrt(d) / 4.0)).astype(np.float32)
    problem = prepare(GPU, X[:n])
    placed = problem.at(np.full(d, 1 / 0.3))
    row = {"work": "densities", "n": n, "m": m, "d": d, "dtype": "float32"}
    row["ms"] = milliseconds(lambda: placed.log_sums(X[n:]), 3)
    some = torch.as_tensor(X[n : n + 500], device="cuda").double() / 0.3
    scores = -0.5 * torch.cdist(some, torch.as_tensor(X[:n], device="cuda").double() / 0.3) ** 2
    truth = torch.logsumexp(scores, 1).cpu().numpy()
    row["log_sums_error"] = float(np.abs(placed.log_sums(X[n : n + 500]) - truth).max())
    yield say(row)
    X = clusters(n + m, d).astype(np.float32)
    fitted = prepare(Engine("torch", device="cuda", error=1e-6), X[:n], leave_one_out=True, passes=20)
    metric = metric_of_lca(fitted, 12)
    for error in (None, 0):
        problem = prepare(Engine("torch", device="cuda", error=error), X[:n])
        placed = problem.at(metric)
        row = {"work": "densities", "n": n, "m": m, "d": d, "dtype": "float32", "rows": "clusters", "error": error}
        row["ms"] = milliseconds(lambda placed=placed: placed.log_sums(X[n:]), 3)
        row["certified_row_error"] = problem.certified_row_error
        if error is None:
            pruned = placed.log_sums(X[n:])
        else:
            row["difference_of_pruned"] = float(np.abs(pruned - placed.log_sums(X[n:])).max())
        yield say(row)


def neighbors(n=100_000, d=16, k=10):
    problem = prepare(GPU, gaussian_rows(n, d).astype(np.float32), leave_one_out=True)
    placed = problem.at(None)
    yield say(
        {
            "work": "nearest",
            "n": n,
            "d": d,
            "k": k,
            "dtype": "float32",
            "ms": milliseconds(lambda: placed.nearest(k), 3),
        }
    )


def frames(n=20_000, d=32, depth=4):
    """Yield log-densities of rows under a frame each, by the fused kernel and by torch's operations."""
    from vicinal._engine import Frames
    from vicinal._engine.frames.placed import PlacedFrames

    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)).astype(np.float32)
    V = np.linalg.qr(rng.normal(size=(n, d, depth)))[0].transpose(2, 0, 1).astype(np.float32)
    kernel = Frames(np.ascontiguousarray(V), rng.uniform(0.5, 2.0, size=(depth, n)), 0.3)
    problem = prepare(GPU, X, leave_one_out=True)
    fused, plain = problem.at(kernel), PlacedFrames(problem._rows, kernel)
    asked = problem.queries(None, None)
    found, expected = fused.log_sums(), plain.log_sums(asked).log_sums
    row = {"work": "frames", "n": n, "d": d, "depth": depth, "dtype": "float32"}
    row["ms"], row["torch_tiles_ms"] = milliseconds(fused.log_sums, 3), milliseconds(lambda: plain.log_sums(asked), 2)
    yield say(row | {"log_sums_error": float(np.abs(found - expected).max())})


def neural():
    """Yield the fits of NeuralNCA on the GPU and on two cores of this machine."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning

    from vicinal import Adam, NeuralNCA

    warnings.simplefilter("ignore", ConvergenceWarning)
    X, y = classes(8_000, 32)
    torch.set_num_threads(2)
    for device, engine in (("cuda", "torch"), ("cpu", None)):
        nca = NeuralNCA(2, network=100, solver=Adam(n_iter_no_change=50), max_iter=20, engine=engine, random_state=0)
        _, seconds = second_fit(lambda nca=nca: nca.fit(X, y))
        row = {"fit": f"NeuralNCA, 8,000 x 32 to 2, 20 epochs, {device}", "seconds": seconds}
        yield say(row | {"objective": float(nca.objectives_[-1])})


def second_fit(fit):
    """Return a fit and its seconds from the second of two runs; the first one compiles kernels and loads libraries."""
    for _ in range(2):
        start = time.perf_counter()
        fitted = fit()
        seconds = time.perf_counter() - start
    return fitted, seconds


def fits():
    """Yield whole fits on the GPU."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning

    from vicinal import LCA, NCA, datasets

    warnings.simplefilter("ignore", ConvergenceWarning)
    mixture = datasets.make_anisotropic_mixture(52_000, 10, random_state=0).data
    train, test = mixture[:50_000], mixture[50_000:]
    lca, seconds = second_fit(lambda: LCA(solver="accelerated", engine=GPU, reg=0.0).fit(train))
    row = {"fit": "LCA, exact, 50,000 x 10", "seconds": seconds}
    yield say(row | {"passes": lca.n_iter_, "held_out": lca.score(test)})
    X, y = classes(20_000, 32)
    nca, seconds = second_fit(lambda: NCA(8, engine=GPU, max_iter=30, random_state=0).fit(X, y))
    row = {"fit": "NCA, exact, 20,000 x 32 to 8, 30 iterations", "seconds": seconds}
    yield say(row | {"objective": float(nca.objectives_[-1])})
    yield from neural()


def large_fits():
    """Measure a whole fit to a million rows."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning

    from vicinal import LCA

    warnings.simplefilter("ignore", ConvergenceWarning)
    X = clusters(1_000_000, 8).astype(np.float32)
    start = time.perf_counter()
    lca = LCA(solver="accelerated", engine=GPU, reg=0.0).fit(X)
    row = {"fit": "LCA, exact, 1,000,000 x 8, clusters", "seconds": time.perf_counter() - start}
    yield say(row | {"passes": lca.n_iter_, "certified_row_error": lca.certified_row_error_})


# -- tuning -----------------------------------------------------------------------------------------------------------

# Each choice is (rows in a tile, columns in a block, warps, stages).
CHOICES = {
    "float32": [
        (64, 64, 4, 2),
        (64, 64, 4, 3),
        (128, 32, 4, 3),
        (128, 64, 4, 2),
        (128, 64, 4, 3),
        (128, 64, 8, 3),
        (128, 128, 8, 2),
        (128, 128, 4, 2),
    ],
    "float64": [(32, 32, 4, 2), (64, 32, 4, 2), (64, 64, 4, 2), (64, 64, 8, 2)],
}
TUNED = {"float32": (16, 32, 64, 128), "float64": (16, 32, 64, 128)}


def time_choice(dtype, d, choice, n):
    """Return the milliseconds of LCA's pass about one centre and about the centres of tiles, and of NCA's, with one choice."""
    if choice is not None:
        tuning.GPU_TILES[np.dtype(dtype)][d] = choice
    X, y = gaussian_rows(n, d).astype(dtype), np.arange(n) % 10
    problem = prepare(GPU, X, leave_one_out=True, match=Match("class", y))
    common, local = problem.at(np.eye(d)), problem.at(np.eye(d))
    local.placed._tiles = lambda largest=0.0: local.placed._compact
    return [milliseconds(work, 3) for work in (common.scatter, local.scatter, common.gradient)]


def compile_choice(job):
    """Compile the kernels of one choice into Triton's cache on disk; return the seconds, or the error."""
    start = time.perf_counter()
    try:
        time_choice(*job, 2000)
        return job, time.perf_counter() - start, None
    except Exception as error:  # the kernel needs too much shared memory, or the compiler refuses its shape
        return job, time.perf_counter() - start, f"{type(error).__name__}: {str(error)[:80]}"


def compiled(jobs, processes=15):
    """Yield jobs whose kernels have been compiled, with the seconds that this took and the error, if any."""
    with multiprocessing.get_context("spawn").Pool(min(processes, len(jobs))) as pool:
        yield from pool.imap_unordered(compile_choice, jobs)


def tune(folder, n=100_000):
    """Measure every choice, by precision and padded width, into gpu-tuning.json."""
    jobs = [(dtype, d, choice) for dtype in CHOICES for d in TUNED[dtype] for choice in CHOICES[dtype]]
    report = {"command": "python benchmarks/gpu.py --tune", **machine(), "what": WHAT_IS_TUNED, "times": {}}
    for job, _, error in list(compiled(jobs)):
        dtype, d, choice = job
        times = error or [round(t, 2) for t in time_choice(*job, n)]
        report["times"].setdefault(f"{dtype}, d = {d}", {})[", ".join(map(str, choice))] = times
        say({"job": job, "ms": times})
        write(report, folder, "gpu-tuning.json")


WHAT_IS_TUNED = (
    "milliseconds at n = 100,000 of LCA's pass about one centre, about the centres of tiles, and of NCA's evaluation, by "
    "rows in a tile, columns in a block, warps and stages"
)


def laws(folder):
    """Run the tests of the engine's laws on the device, and record the results in gpu-laws.json."""
    command = ["-m", "pytest", "-m", "gpu", "-q", "--tb=no", "-p", "no:cacheprovider"]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=Path(__file__).parents[1])
    lines = done.stdout.strip().splitlines()
    report = {"command": "python -m pytest -m gpu", **machine(), "result": lines[-1] if lines else done.stderr[-500:]}
    report["failures"] = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    write(say(report), folder, "gpu-laws.json")


def machine():
    versions = {"torch": torch.__version__, "triton": importlib.import_module("triton").__version__}
    return {"device": torch.cuda.get_device_name(), **versions}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--laws", action="store_true")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("gpu.py needs a CUDA device, but torch did not find any.")
    if options.tune or options.laws:
        return tune(options.out) if options.tune else laws(options.out)
    report = {**machine(), "ceilings": say(ceilings())}
    jobs = [(dtype, d, None) for dtype, d in (("float32", 16), ("float32", 64), ("float32", 128), ("float64", 16))]
    report["first_use"] = [say({"dtype": job[0], "d": job[1], "seconds": t}) for job, t, _ in compiled(jobs)]
    report |= {"passes": [], "bits": [], "fits": [], "peers": []}
    report["agreement"] = say(agreement())
    works = (
        lca_passes("gaussian"),
        lca_passes("clusters"),
        nca_evaluations(),
        pruned_passes(),
        densities(),
        neighbors(),
        frames(),
    )
    for row in itertools.chain(*works):
        report["passes"].append(row)
        write(report, options.out)
    for name, rows in (("bits", bits()), ("fits", fits()), ("peers", peers()), ("fits", large_fits())):
        for row in rows:
            report[name].append(row)
            write(report, options.out)
    return None


def write(report, folder, name="gpu.json"):
    """Write the results after every figure, so that an interrupted run keeps what it has measured."""
    (folder / name).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
