"""Measure how many times faster a pass is on many threads: python benchmarks/threads.py [--threads 16] [--profile] [case ...].

The limit of the machine is what as many independent processes reach that run the same pass at the same time, each on one thread:
they share the caches, the memory and the clock of a full machine, but wait for nothing. The script prints both, and their ratio.
With ``--profile`` it prints the functions in which the calling thread spends the time of a pass on all threads.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

SETUP = """
import sys, time, warnings; warnings.simplefilter("ignore")
import numpy as np
from vicinal._engine import Engine, Match, prepare

def rows(n, d):
    rng = np.random.default_rng(0)
    y = rng.integers(10, size=n)
    return rng.normal(size=(10, d))[y] * 1.5 + rng.normal(size=(n, d)), y

def clusters(n, d):
    rng = np.random.default_rng(0)
    return 10.0 * rng.normal(size=(200, d))[rng.integers(200, size=n)] + rng.normal(size=(n, d))

def scatter(n, d, threads):
    problem = prepare(Engine("cpu", threads=threads, error=0), rows(n, d)[0], leave_one_out=True)
    return lambda: problem.at(np.full(d, 1.5)).scatter()

def gradient(n, d, threads):
    X, y = rows(n, d)
    problem = prepare(Engine("cpu", threads=threads, error=0), X, leave_one_out=True, match=Match("class", y))
    return lambda: problem.at(np.eye(d)).gradient()

def pruned(n, d, threads):
    problem = prepare(Engine("cpu", threads=threads), clusters(n, d), leave_one_out=True)
    return lambda: problem.at(np.full(d, 3.0)).scatter()

def densities(n, d, threads):
    problem = prepare(Engine("cpu", threads=threads, error=0), rows(n, d)[0])
    placed, queries = problem.at(np.full(d, 1.5)), rows(n // 10, d)[0]
    return lambda: placed.log_sums(queries)

def nearest(n, d, threads):
    problem = prepare(Engine("cpu", threads=threads), rows(n, d)[0])
    placed, queries = problem.at(), rows(n // 20, d)[0]
    return lambda: placed.nearest(10, queries)

work = eval(sys.argv[1])
work()
print("ready", flush=True)
for line in sys.stdin:
    if line.strip() == "profile":
        import cProfile, pstats
        profile = cProfile.Profile()
        profile.runcall(work)
        pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(18)
        print("done", flush=True)
        continue
    start = time.perf_counter()
    for _ in range(int(line)):
        work()
    print((time.perf_counter() - start) / int(line), flush=True)
"""

CASES = {
    "scatter": "scatter(20_000, 16, {})",
    "gradient": "gradient(20_000, 16, {})",
    "pruned": "pruned(100_000, 5, {})",
    "densities": "densities(100_000, 16, {})",
    "nearest": "nearest(100_000, 16, {})",
}


class Process:
    """A pass in a process of its own, on a number of threads."""

    def __init__(self, case, threads):
        one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1") if threads == 1 else {}
        command = [sys.executable, "-c", SETUP, case.format(threads)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | one
        )

    def ask(self, line):
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def answer(self):
        return self._process.stdout.readline().strip()

    def end(self):
        self._process.stdin.close()
        self._process.wait()


def seconds(processes, rounds=3):
    """Return the median seconds of a pass of these processes, all at the same time, in several rounds."""
    times = []
    for _ in range(rounds):
        for process in processes:
            process.ask(2)
        times.append(statistics.median(float(process.answer()) for process in processes))
        time.sleep(0.03)
    return statistics.median(times)


def started(case, threads, count=1):
    processes = [Process(case, threads) for _ in range(count)]
    if any(process.answer() != "ready" for process in processes):
        raise RuntimeError(f"{case} could not be run")
    return processes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], default=[])
    args = parser.parse_args()
    print(f"{args.threads} threads: times faster than one thread, and the same for as many independent processes")
    for name in args.cases or CASES:
        alone = started(CASES[name], 1)
        threaded = started(CASES[name], args.threads)
        one, many = seconds(alone), seconds(threaded)
        if args.profile:
            threaded[0].ask("profile")
            threaded[0].answer()
        independent = alone + started(CASES[name], 1, args.threads - 1)
        limit = args.threads * one / seconds(independent)
        for process in threaded + independent:
            process.end()
        print(
            f"{name:10s} one thread {one:7.3f} s   threads {one / many:5.1f}   processes {limit:5.1f}   "
            f"ratio {one / many / limit:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
