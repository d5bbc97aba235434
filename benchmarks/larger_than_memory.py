"""Measure memory and speed on data larger than memory, and on the same data in memory.

    python benchmarks/larger_than_memory.py                    # all cases at full size; about 10 minutes, 5 GB of disk
    python benchmarks/larger_than_memory.py score transform    # some of them
    python benchmarks/larger_than_memory.py --scale 0.01       # a hundredth of the rows

Every case runs in a separate process, which reports the peak of RssAnon in /proc/self/status (the memory of the process without
pages of mapped files); a thread reads it every 5 ms.  With workers, the largest peak of any of the processes is reported.  A case and
its contender are timed in turn, in one run.
The script writes results/larger_than_memory.json.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
# This folder has a dask.py, which must not be imported instead of Dask.
sys.path[:] = [*(path for path in sys.path if Path(path or ".").resolve() != HERE.resolve()), str(HERE)]

from run import machine

BLOCK = 500_000
D = 10


# -- the data -------------------------------------------------------------------------------------------------------------


def some_rows(n, seed):
    """Return rows of 20 clusters in 10 columns, the same for the same seed."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(0).normal(size=(20, D)) * 4
    labels = rng.integers(20, size=n)
    return centres[labels] + rng.normal(size=(n, D)) * np.linspace(0.2, 1.0, D), labels


def make_parquet(folder, n):
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir()
    for place, start in enumerate(range(0, n, BLOCK)):
        rows, labels = some_rows(min(BLOCK, n - start), place + 1)
        columns = {f"c{k}": rows[:, k] for k in range(D)} | {"kind": labels}
        parquet.write_table(pa.table(columns), folder / f"{place:03d}.parquet", row_group_size=100_000)


def make_map(path, n):
    rows = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=(n, D))
    for place, start in enumerate(range(0, n, BLOCK)):
        rows[start : start + BLOCK] = some_rows(min(BLOCK, n - start), place + 1)[0]
    rows.flush()


# -- what is measured -----------------------------------------------------------------------------------------------------


def anonymous(process="self"):
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no RssAnon")


def largest_of_children():
    """Return the largest RssAnon of the workers, 0 if there are none; workers are children of this process."""
    found = [0]
    for tasks in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread or a worker has ended meanwhile
            found += [anonymous(child) for child in tasks.read_text().split()]
    return max(found)


class Watch:
    """The peak of RssAnon inside a `with` block, the memory before it, and the seconds that it took."""

    def __enter__(self):
        self.before = self.peak = anonymous()
        self.workers = 0
        self._done, self._start = threading.Event(), time.perf_counter()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def _look(self):
        while not self._done.wait(0.005):
            self.peak = max(self.peak, anonymous())
            self.workers = max(self.workers, largest_of_children())

    def __exit__(self, *error):
        self.seconds = time.perf_counter() - self._start
        self._done.set()
        self._thread.join()

    def found(self, **more):
        if self.workers:
            more["worker_rss_anon_mb"] = self.workers / 1e6
        return {"seconds": self.seconds, "rss_anon_mb": self.peak / 1e6, "before_mb": self.before / 1e6, **more}


def density():
    from vicinal import ParzenWindows

    fitted = ParzenWindows("scott").fit(some_rows(10_000, 0)[0])
    fitted.score_samples(some_rows(2_000, 99)[0])  # compiles kernels and places rows before the measurement
    return fitted


NAMES = [f"c{k}" for k in range(D)]


def whole(folder):
    """Return the table in memory, by pyarrow."""
    from pyarrow import parquet

    table = parquet.read_table(folder, columns=NAMES)
    rows = np.empty((len(table), D))
    for k, name in enumerate(NAMES):
        rows[:, k] = table.column(name).to_numpy()
    return rows


def score(folder, n):
    """Score the rows of a Parquet folder under a ParzenWindows of 10^4 rows."""
    from vicinal.io import open_rows

    fitted = density()
    with Watch() as watch:
        scores = fitted.score_samples(open_rows(folder, columns=NAMES))
    return watch.found(mean=float(scores.mean()), rows=len(scores))


def score_in_memory(folder, n):
    """Score the same rows from a table in memory."""
    fitted = density()
    with Watch() as watch:
        scores = fitted.score_samples(whole(folder))
    return watch.found(mean=float(scores.mean()), rows=len(scores))


def transform(folder, n):
    """Run `vicinal transform` from Parquet to Parquet with an RCA."""
    return _command(folder, {})


def transform_in_memory(folder, n):
    """Run the same command with a table that is read at once."""
    return _command(folder, {"LARGE": 2**60})


def transform_by_workers(folder, n):
    """Run the same command with two workers."""
    return _command(folder, {}, "--workers", "2")


def score_command(folder, n):
    """Run `vicinal score` of a Parquet folder under a ParzenWindows of 10^4 rows, with two threads."""
    return _score_command(folder, "--threads", "2")


def score_by_workers(folder, n):
    """Run the same command with two workers of one thread each."""
    return _score_command(folder, "--workers", "2")


def _score_command(folder, *options):
    import pandas as pd

    from vicinal import ParzenWindows
    from vicinal import io as model_io
    from vicinal.cli import main

    with tempfile.TemporaryDirectory(dir=folder.parent) as out:
        rows = pd.DataFrame(some_rows(10_000, 0)[0], columns=NAMES)
        model_io.save(ParzenWindows("scott").fit(rows), f"{out}/parzen.vicinal")
        with Watch() as watch:
            code = main(["score", f"{out}/parzen.vicinal", str(folder), "-o", f"{out}/scores.npy", "-q", *options])
        assert code == 0
        return watch.found(mean=float(np.load(f"{out}/scores.npy")[:, 1].mean()))


def _command(folder, patched, *options):
    import pandas as pd

    from vicinal import RCA
    from vicinal import io as model_io
    from vicinal._files import table_file
    from vicinal.cli import main

    with tempfile.TemporaryDirectory(dir=folder.parent) as out:
        rows, labels = some_rows(10_000, 0)
        model_io.save(RCA().fit(pd.DataFrame(rows, columns=NAMES), labels), f"{out}/rca.vicinal")
        source = folder
        if patched:  # a folder is always read in blocks
            from pyarrow import parquet

            source = Path(out) / "whole.parquet"
            parquet.write_table(parquet.read_table(folder), source, row_group_size=100_000)
            table_file.LARGE = patched["LARGE"]
        with Watch() as watch:
            code = main(["transform", f"{out}/rca.vicinal", str(source), "-o", f"{out}/images.parquet", "-q", *options])
        assert code == 0
        size = Path(f"{out}/images.parquet").stat().st_size
    return watch.found(bytes=size)


def lca(path, n):
    """Fit a stochastic LCA to a memory map, with 64 MB of working memory (168,000 candidates per step)."""
    from vicinal import LCA, Engine

    rows = np.load(path, mmap_mode="r")
    LCA(solver="stochastic", random_state=0, max_iter=1, tol=10.0).fit(np.array(rows[:8_000]))  # compiles
    with Watch() as watch:
        fitted = LCA(solver="stochastic", engine=Engine(memory="64 MB"), random_state=0).fit(rows)
    return watch.found(
        rows=len(rows), sweeps=fitted.n_iter_, converged=bool(fitted.converged_), objectives=fitted.objectives_.tolist(),
        deviations=np.sqrt(np.diag(fitted.covariance_)).tolist(), file_mb=rows.nbytes / 1e6,
    )  # fmt: skip


def rca(path, n):
    """Fit an RCA to a memory map, with the cluster of each row as its chunklet."""
    from vicinal import RCA

    rows = np.load(path, mmap_mode="r")
    labels = np.concatenate([some_rows(min(BLOCK, n - s), p + 1)[1] for p, s in enumerate(range(0, n, BLOCK))])
    with Watch() as watch:
        RCA().fit(rows, labels)
    return watch.found(rows=len(rows), file_mb=rows.nbytes / 1e6)


CASES = {
    "score": (["score", "score_in_memory"], 10**7, make_parquet),
    "transform": (["transform", "transform_in_memory"], 10**7, make_parquet),
    "transform_workers": (["transform_by_workers", "transform"], 10**7, make_parquet),
    "score_workers": (["score_by_workers", "score_command"], 10**6, make_parquet),
    "lca": (["lca"], 2 * 10**7, make_map),
    "rca": (["rca"], 2 * 10**7, make_map),
}


def in_process(name, path, n):
    command = [sys.executable, __file__, "--one", name, str(path), str(n)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", default=[], help=f"some of {', '.join(CASES)}")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="the folder for the generated data; default: a temporary folder")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path, default=HERE / "results" / "larger_than_memory.json")
    options = parser.parse_args()
    if options.one:
        name, path, n = options.one
        print(json.dumps(globals()[name](Path(path), int(n))))
        return
    results = json.loads(options.output.read_text()) if options.output.exists() else {}
    kept = contextlib.nullcontext(options.folder) if options.folder else tempfile.TemporaryDirectory()
    with kept as folder:
        for case in options.cases or CASES:
            works, n, make = CASES[case]
            n = int(n * options.scale)
            path = Path(folder) / f"{make.__name__}-{n}"
            path = path if make is make_parquet else path.with_suffix(".npy")
            if not path.exists():
                make(path, n)
            rounds = [{work: in_process(work, path, n) for work in works} for _ in range(options.rounds)]
            best = {work: min((found[work] for found in rounds), key=lambda one: one["seconds"]) for work in works}
            if len(works) == 2:
                mine, theirs = ([found[work]["seconds"] for found in rounds] for work in works)
                best["speeds"] = [
                    b / a for a, b in zip(mine, theirs, strict=True)
                ]  # of each round, to show their spread
                best["speed"] = float(np.median(best["speeds"]))
            results[case] = {"machine": machine(), "rows": n, **best}
            print(case, {key: value for key, value in results[case].items() if key != "machine"}, flush=True)
            options.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
