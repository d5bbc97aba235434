"""Compare Dask workers with each other and with the plain engine: python benchmarks/dask.py [lca] [eight] [rca] [transform] [traffic] [stream].

    python benchmarks/dask.py                        # needs vicinal[dask]; about 8 minutes on 6 cores
    python benchmarks/dask.py traffic --rows 20000   # some of the figures, on fewer rows
    python benchmarks/dask.py picture                # draws docs/task_stream.png from the results of `stream`

The scheduler and the workers are processes of their own, as on a cluster; workers have one thread each, and the rows are
persisted on them before the clock starts.  Contenders are timed in turn, round by round.  The processor time of this process
and of the workers is measured as well, because a busy machine disturbs it less.
"""

import argparse
import contextlib
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path = [folder for folder in sys.path if Path(folder or ".").resolve() != HERE]  # this file is not Dask

import dask
import dask.array as da
import numpy as np
import psutil
from distributed import Client, get_task_stream
from sklearn.exceptions import ConvergenceWarning

from vicinal import LCA, RCA, Engine
from vicinal._engine import available_threads, prepare

PASSES = 4


@contextlib.contextmanager
def cluster_of(n_workers):
    """Start a scheduler and workers with one thread each; give a client."""
    with contextlib.ExitStack() as stack:
        file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "scheduler.json"
        start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", file=file, stack=stack)
        options = ("--nworkers", str(n_workers), "--nthreads", "1", "--memory-limit", "0", "--no-dashboard")
        start("worker", *options, file=file, stack=stack)
        client = stack.enter_context(Client(scheduler_file=str(file), set_as_default=False))
        client.wait_for_workers(n_workers)
        with client.as_current():
            yield client


def start(what, *options, file, stack):
    command = [sys.executable, "-m", f"distributed.cli.dask_{what}", *options, "--scheduler-file", str(file)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    stack.callback(process.wait)
    stack.callback(process.terminate)


def clusters(n, d, n_clusters=40, seed=0):
    """Return rows in clusters; pairs of rows of different clusters hardly matter."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n_clusters, d))
    return centres[rng.integers(n_clusters, size=n)] * 6.0 + 0.5 * rng.normal(size=(n, d))


def processor_time(client):
    """Return the processor time that this process and the workers have used, in seconds."""
    mine = sum(psutil.Process().cpu_times()[:2])
    if client is None:
        return mine
    return mine + sum(client.run(lambda: sum(psutil.Process().cpu_times()[:2])).values())


def timed(work, client=None):
    before, start = processor_time(client), time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "processor_seconds": processor_time(client) - before}


def summary(rounds):
    """Return the best times, and the median over the rounds of each ratio to the first contender."""
    names = list(rounds[0])
    first = names[0]
    found = {}
    for name in names:
        found[name] = {key: min(one[name][key] for one in rounds) for key in rounds[0][name]}
        found[name]["times_as_fast_as_" + first] = statistics.median(
            one[first]["seconds"] / one[name]["seconds"] for one in rounds
        )
    return found


def fit_lca(rows, kind, threads):
    """Fit exactly, starting from fits to samples of the rows; the calling process uses a given number of threads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return LCA(reg=0.0, solver="accelerated", random_state=0, engine=Engine(kind, threads=threads)).fit(rows)


def lca(n, n_rounds, n_clusters, caller_threads, numbers_of_workers):
    """Measure an exact fit with one worker, with several, and with the plain engine on one thread.

    The calling process computes what is too small to be sent, with its own threads.
    """
    rows = clusters(n, 8, n_clusters)
    with contextlib.ExitStack() as stack:
        contenders = {workers(k): stack.enter_context(cluster_of(k)) for k in numbers_of_workers}
        persisted = {}
        for name, client in contenders.items():
            with client.as_current():
                persisted[name] = da.from_array(rows, chunks=(n // 8, 8)).persist()
                fit_lca(persisted[name], "dask", caller_threads)  # kernels are loaded; workers get no small sums
        fit_lca(rows, "cpu", 1)
        answers, rounds = {}, []
        for _ in range(n_rounds):
            times = {}
            for name, client in contenders.items():
                with client.as_current():
                    times[name] = timed(
                        lambda name=name: answers.update({name: fit_lca(persisted[name], "dask", caller_threads)}),
                        client,
                    )
            times["plain engine"] = timed(lambda: answers.update({"plain engine": fit_lca(rows, "cpu", 1)}))
            rounds.append(times)
            print(times, flush=True)
        plain = answers["plain engine"]
        same = {name: bool(np.array_equal(answers[name].components_, plain.components_)) for name in contenders}
    return {
        "rows": n,
        "columns": 8,
        "clusters": n_clusters,
        "caller_threads": available_threads(caller_threads),
        "passes": plain.n_iter_,
        "same_bits_as_plain": same,
        **summary(rounds),
    }


def rca(n, n_rounds, numbers_of_workers):
    """Measure RCA of rows in an .npy file that is read in parts, in ten classes, which span all parts."""
    d, rows_of_part = 64, n // 40
    with contextlib.ExitStack() as stack:
        rows = rows_in_parts(stack, n, d, rows_of_part)
        contenders = {workers(k): stack.enter_context(cluster_of(k)) for k in numbers_of_workers}
        for client in contenders.values():
            with client.as_current():  # workers import everything
                RCA().fit(rows[: 2 * rows_of_part], np.arange(2 * rows_of_part) % 10)
        rounds = []
        for k in range(n_rounds):
            # Other labels in each round, because Dask may still hold the results of tasks that it has done before.
            y, times = np.random.default_rng(k).integers(0, 10, size=n), {}
            for name, client in contenders.items():
                with client.as_current():
                    times[name] = timed(lambda y=y: RCA().fit(rows, y), client)
            rounds.append(times)
            print(times, flush=True)
    return {"rows": n, "columns": d, "rows_of_a_part": rows_of_part, **summary(rounds)}


def transform(n, n_rounds):
    """Measure `transform` of rows in an .npy file that is read in parts, with one worker and in memory on one thread.

    The result is summed where it is made, so that neither contender has to send all of it.
    """
    d, rows_of_part = 10, 250_000
    with contextlib.ExitStack() as stack:
        rows = rows_in_parts(stack, n, d, rows_of_part)
        metric = RCA().fit(rows[:20_000].compute(), np.arange(20_000) // 10)
        client = stack.enter_context(cluster_of(1))
        resident, sums, rounds = rows.compute(scheduler="threads"), {}, []
        contenders = {
            "one worker": lambda: sums.update(worker=metric.transform(rows).sum(axis=0).compute()),
            "in memory": lambda: sums.update(here=metric.transform(resident).sum(axis=0)),
        }
        contenders["one worker"]()  # the worker has imported everything
        for _ in range(n_rounds):
            rounds.append({name: timed(work) for name, work in contenders.items()})
            print(rounds[-1], flush=True)
        peaks = client.run(lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        np.testing.assert_allclose(sums["worker"], sums["here"], rtol=1e-6, atol=1e-3)
    return {
        "rows": n,
        "columns": d,
        "rows_of_a_part": rows_of_part,
        "worker_megabytes_at_most": max(peaks.values()) / 2**10,
        **summary(rounds),
    }


def rows_in_parts(stack, n, d, rows_of_part):
    """Write random rows into an .npy file, and return them as a Dask array that reads its parts from there."""
    file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "rows.npy"
    table = np.lib.format.open_memmap(file, mode="w+", dtype=np.float64, shape=(n, d))
    starts = range(0, n, rows_of_part)
    for start in starts:
        table[start : start + rows_of_part] = np.random.default_rng(start).random((min(rows_of_part, n - start), d))
    read = dask.delayed(lambda start: np.array(np.load(file, mmap_mode="r")[start : start + rows_of_part]))
    return da.concatenate([da.from_delayed(read(k), (min(rows_of_part, n - k), d), float) for k in starts])


def workers(k):
    """Return a number of workers in words."""
    return "one worker" if k == 1 else f"{k} workers"


def bytes_so_far():
    """Return the bytes that this worker has sent and received over all connections since the first call of this function."""
    from distributed.comm import tcp
    from distributed.utils import nbytes

    if not hasattr(tcp, "counted"):
        tcp.counted, to_frames, from_frames = [0, 0], tcp.to_frames, tcp.from_frames

        async def sent(*args, **options):
            frames = await to_frames(*args, **options)
            tcp.counted[0] += sum(map(nbytes, frames))
            return frames

        async def received(frames, *args, **options):
            tcp.counted[1] += sum(map(nbytes, frames))
            return await from_frames(frames, *args, **options)

        tcp.to_frames, tcp.from_frames = sent, received
    return list(tcp.counted)


def traffic(n):
    """Measure the bytes that a worker sends and receives per pass of LCA after the first, Dask's own messages included."""
    rows, d = clusters(n, 8), 8
    with cluster_of(2) as client:
        problem = prepare("dask", rows, leave_one_out=True)
        for k in range(2):
            problem.at(np.eye(d) * (4.0 + 0.1 * k)).scatter()
        before = client.run(bytes_so_far)
        with get_task_stream(client) as tasks:
            for k in range(PASSES):
                problem.at(np.eye(d) * (4.2 + 0.1 * k)).scatter()
        after = client.run(bytes_so_far)
        done = [task["worker"] for task in tasks.data if "vicinal.pairs." in str(task["key"])]
    workers = []
    for name in after:
        sent, received = ((after[name][side] - before[name][side]) / PASSES for side in (0, 1))
        n_tasks = done.count(name) / PASSES
        allowed = (8 * n + 16 * d * d) * (n_tasks + 1)
        workers.append(
            {"tasks_per_pass": n_tasks, "bytes_sent": sent, "bytes_received": received, "allowed": allowed,
             "share_of_allowed": (sent + received) / allowed}
        )  # fmt: skip
    return {"rows": n, "columns": d, "workers": workers}


def stream(n):
    """Record which worker ran which task when, over two passes, in seconds from the first task on."""
    rows, d = clusters(n, 8), 8
    with cluster_of(2) as client:
        problem = prepare(Engine("dask", threads=1), rows, leave_one_out=True)
        problem.at(np.eye(d) * 4.0).scatter()
        with get_task_stream(client) as tasks:
            for k in range(2):
                problem.at(np.eye(d) * (4.1 + 0.1 * k)).scatter()
        found = [task for task in tasks.data if "vicinal." in str(task["key"])]
    workers = sorted({task["worker"] for task in found})
    spans = sorted(
        (span["start"], span["stop"], workers.index(task["worker"]), str(task["key"]).partition("-")[0])
        for task in found
        for span in task["startstops"]
        if span["action"] == "compute"
    )
    begin = spans[0][0]
    return {"rows": n, "tasks": [(start - begin, stop - begin, worker, name) for start, stop, worker, name in spans]}


def picture(found, file):
    """Draw the results of `stream`."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    tasks, n = found["tasks"], found["rows"]
    names = sorted({name for *_, name in tasks})
    kinds = {
        name: (name.removeprefix("vicinal.").removeprefix("pairs."), f"C{place}") for place, name in enumerate(names)
    }
    figure, axes = plt.subplots(figsize=(8, 2.2), layout="constrained")
    for start, stop, worker, name in tasks:
        label, colour = kinds[name]
        axes.barh(
            worker, stop - start, left=start, height=0.7, color=colour, edgecolor="white", linewidth=0.6, label=label
        )
    workers = sorted({worker for _, _, worker, _ in tasks})
    axes.set_yticks(workers, [f"worker {i + 1}" for i in workers])
    axes.invert_yaxis()
    axes.set_xlabel(f"seconds; two passes of LCA over {n:,} rows in 8 columns, a bar per task")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(left=False)
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    axes.legend(unique.values(), unique.keys(), loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    figure.savefig(file, dpi=150)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("figures", nargs="*", default=["lca", "eight", "rca", "transform", "traffic", "stream"])
    parser.add_argument("--rows", type=int, help="the number of rows for all figures; default: as in the documentation")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4], help="numbers of workers; default: 1 2 4")
    parser.add_argument("--caller-threads", type=int, help="threads of the calling process; default: all of its cores")
    parser.add_argument("-o", "--out", type=Path, default=HERE / "results" / "dask.json")
    options = parser.parse_args()
    work = {
        "lca": lambda: lca(options.rows or 100_000, options.rounds, 40, options.caller_threads, options.workers),
        "eight": lambda: lca(options.rows or 100_000, options.rounds, 8, options.caller_threads, options.workers),
        "rca": lambda: rca(options.rows or 10_000_000, options.rounds, [k for k in options.workers if k < 4]),
        "transform": lambda: transform(options.rows or 10_000_000, options.rounds),
        "traffic": lambda: traffic(options.rows or 100_000),
        "stream": lambda: stream(options.rows or 100_000),
    }
    found = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else {}
    if "picture" in options.figures:
        picture(found["stream"], HERE.parent / "docs" / "task_stream.png")
        return
    for name in options.figures:
        found[name] = {**work[name](), "machine": machine()}
        print(name, json.dumps(found[name]), flush=True)
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def machine():
    """Return the processor, the versions and the commit, as the other benchmarks write them."""
    sys.path.append(str(HERE))
    from run import machine

    return machine()


if __name__ == "__main__":
    main()
