"""Measure the engine's tuned constants again, and print them beside the values in `_engine/tuning.py`.

    python benchmarks/tune.py                     # all constants marked "measured"; about 10 minutes on an idle core
    python benchmarks/tune.py HALF PRODUCTS_FROM  # constants whose names begin with these words
    python benchmarks/tune.py --quick             # a minute: small sizes, only to check that everything runs

The script measures the CPU time of one thread, which a busy machine disturbs little. Two ways of a computation take turns, and the
median of their ratios is used.  A constant that separates two ways is the size at which that ratio passes 1; the ratios are printed,
because crossings are flat and a neighbouring value is as good.  No constant changes a result beyond rounding.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from vicinal._engine import Engine, Frames, prepare, tuning
from vicinal._engine.accuracy import FLOAT32, FLOAT64

ONE = {"threads": 1}
NEVER = 10**12  # never, for a constant that means "from this many on"; always, for one that means "up to this many"
DTYPES = (FLOAT64, FLOAT32)


SHORTEST = 0.05  # the shortest duration of a timed run, in seconds


def timed(work):
    """Return the CPU time of one call, measured over as many calls as are needed for a reliable time."""
    calls, start = 0, time.process_time()
    while (seconds := time.process_time() - start) < SHORTEST or not calls:
        work()
        calls += 1
    return seconds / calls


def cpu_seconds(work, rounds=5):
    """Return the shortest CPU time of a call, after one that compiles."""
    work()
    return min(timed(work) for _ in range(rounds))


def ratio(work, first, second, rounds=5):
    """Return the time of the first way over that of the second: the median over rounds in which they take turns."""
    times = np.empty((rounds, 2))
    for settings in (first, second):  # compiles
        with tuning.forced(**settings):
            work()
    for k in range(rounds):
        for j, settings in enumerate((first, second)):
            with tuning.forced(**settings):
                times[k, j] = timed(work)
    return float(np.median(times[:, 0] / times[:, 1]))


class Measured(NamedTuple):
    """A measured value, and the ratios that it was derived from."""

    value: object
    because: str


def crossing(grid, make, first, second):
    """Return the size from which the second way is faster, between the two values of the grid where the ratio passes 1."""
    ratios = [ratio(make(x), first, second) for x in grid]
    because = "  ".join(f"{x}: {r:.2f}" for x, r in zip(grid, ratios, strict=True))
    wins = [k for k in range(len(grid)) if min(ratios[k:]) > 1.0]
    if not wins:
        return Measured(f"> {grid[-1]}", because)
    k = wins[0]
    if k == 0:
        return Measured(f"<= {grid[0]}", because)
    below, above = np.log(ratios[k - 1]), np.log(ratios[k])
    share = np.clip(-below / (above - below), 0.0, 1.0) if above > below else 0.5
    return Measured(round(grid[k - 1] + share * (grid[k] - grid[k - 1])), because)


def best_of(grid, make, settings):
    """Return the value on the grid with the shortest time."""
    work, times = make(), []
    for value in grid:
        with tuning.forced(**settings(value)):
            times.append(cpu_seconds(work))
    because = "  ".join(f"{x}: {t / min(times):.2f}" for x, t in zip(grid, times, strict=True))
    return Measured(grid[int(np.argmin(times))], because)


# -- work ---------------------------------------------------------------------------------------------------------------


def rows(n, d, dtype=FLOAT64):
    """Return clustered rows, so that weights are neither uniform nor one-hot."""
    rng = np.random.default_rng(n + d)
    X = rng.normal(size=(n, d)) + 2.0 * rng.normal(size=(20, d))[rng.integers(0, 20, n)]
    return (X / np.sqrt(d)).astype(dtype)


def placed(kind, X, leave_one_out=True):
    return prepare(Engine(kind, **ONE), X, leave_one_out=leave_one_out).at(None)


def scatter(n, d, dtype=FLOAT64, some=None, kind="cpu"):
    here = placed(kind, rows(n, d, dtype))
    queries = None if some is None else np.arange(some)
    return lambda: here.scatter(queries=queries)


def log_sums(n, d, dtype=FLOAT64, some=None, kind="cpu"):
    here = placed(kind, rows(n, d, dtype))
    queries = None if some is None else np.arange(some)
    return lambda: here.log_sums(queries)


def nearest(n, d, some=None):
    here = placed("cpu", rows(n, d))
    queries = None if some is None else np.arange(some)
    return lambda: here.nearest(5, queries)


def frames(n, d, depth, several):
    """Return a function that computes log-sums of 256 rows under frames, of one depth and noise or of several."""
    rng = np.random.default_rng(0)
    X = rows(n, d)
    directions = np.linalg.qr(rng.normal(size=(n, d, depth)))[0].transpose(2, 0, 1)
    noises, depths = ([0.5, 1.0, 2.0], [1, depth]) if several else (1.0, None)
    kernel = Frames(np.ascontiguousarray(directions), rng.random((depth, n)), noises, depths)
    here = prepare(Engine("cpu", **ONE), X).at(kernel)
    return (lambda: here.log_sums_table(X[:256])) if several else (lambda: here.log_sums(X[:256]))


# -- the constants ------------------------------------------------------------------------------------------------------


def measurements(quick) -> dict[str, Callable[[], Measured]]:
    """Return how each constant is measured, by name."""
    n, m = (1200, 200) if quick else (4096, 1024)

    def grid(*values):
        return [values[0], values[-1]] if quick else list(values)

    whole = {"ONCE_FROM_ROWS": NEVER}
    once = {"HALF_SCATTER_WORK": 0}
    found: dict[str, Callable[[], Measured]] = {}
    for dtype in DTYPES:
        wide = grid(64, 96, 128, 192, 256, 384, 768) if dtype == FLOAT64 else grid(96, 192, 384, 768, 1536)
        # Half of the coordinates belong to the distance, and half are values.
        found[f"PRODUCTS_FROM[{dtype}]"] = lambda dtype=dtype, wide=wide: crossing(
            wide,
            lambda k: scatter(n, k // 2, dtype, some=m),
            {"PRODUCTS_FROM": NEVER},
            {"PRODUCTS_FROM": 0},
        )
        found[f"PRODUCTS_FROM_WITHOUT_VALUES[{dtype}]"] = lambda dtype=dtype, wide=wide: crossing(
            [k // 2 for k in wide],
            lambda k: log_sums(n, k, dtype, some=m),
            {"PRODUCTS_FROM_WITHOUT_VALUES": NEVER},
            {"PRODUCTS_FROM_WITHOUT_VALUES": 0},
        )
        found[f"HALF_PRODUCTS_FROM[{dtype}]"] = lambda dtype=dtype: crossing(
            grid(32, 64, 96, 128, 192, 256),
            lambda k: scatter(n // 2, k // 2, dtype),
            once | {"HALF_PRODUCTS_FROM": NEVER},
            once | {"HALF_PRODUCTS_FROM": 0},
        )
    found["HALF_SUMS_FROM_ROWS"] = lambda: crossing(
        grid(512, 1024, 2048, 4096, 8192), lambda k: log_sums(k, 8), whole, {"HALF_SUMS_FROM_ROWS": 0}
    )
    found["HALF_SCATTER_WORK"] = lambda: crossing(
        grid(*(k * 12_000 for k in (2, 3, 4, 5, 6, 8))), lambda work: scatter(work // 24, 12), whole, once
    )
    found["STRIP_TILES"] = lambda: best_of(
        grid(1, 2, 4, 8),
        lambda: scatter(n, 128),
        lambda size: once | {"STRIP_TILES": size},
    )
    by_products = once | {"HALF_PRODUCTS_FROM": 0} | {"CACHED_BYTES": 0}
    found["COSTLY_COORDINATES"] = lambda: crossing(
        grid(16, 32, 64, 96, 128, 192),
        lambda d: scatter(min(n, 4000), d),
        by_products | {"COSTLY_COORDINATES": NEVER},
        by_products | {"COSTLY_COORDINATES": 0},
    )
    found["ARRAY_BLOCK_PAIRS"] = lambda: best_of(
        grid(2**14, 2**16, 2**18, 2**20, 2**22),
        lambda: scatter(n, 8, kind="reference"),
        lambda pairs: {"ARRAY_BLOCK_PAIRS": pairs},
    )
    found["PAIR_COST"] = lambda: pair_cost(n // 2)
    found["SMALL_WORK"] = lambda: small_work(n // 2)
    found["TREE_FROM_POINTS"] = lambda: crossing(
        grid(1, 2, 3, 4, 5, 6, 7, 8),
        lambda d: nearest(n, d),
        {"TREE_FROM_POINTS": NEVER},
        {"TREE_FROM_POINTS": 0},
    )
    found["FRAME_FEATURES_IN_CACHE"] = lambda: crossing(
        grid(16, 32, 64, 96, 128, 192),
        lambda d: frames(n, d, 4, several=False),
        {"FRAME_FEATURES_IN_CACHE": NEVER, "FRAME_FEATURES_FEW": 0},
        {"FRAME_FEATURES_IN_CACHE": 0, "FRAME_FEATURES_FEW": 0},
    )
    found["FRAME_FEATURES_FEW"] = lambda: crossing(
        grid(8, 12, 16, 24, 32, 48),
        lambda d: frames(n, d, 4, several=True),
        {"FRAME_FEATURES_FEW": NEVER},
        {"FRAME_FEATURES_FEW": 0},
    )
    return found


def numpy_times(n):
    """Return the nanoseconds per pair of the NumPy backend's scatter, by the number of coordinates."""
    return {d: cpu_seconds(scatter(n, d, kind="reference")) / n**2 * 1e9 for d in (2, 8, 32, 96)}


def pair_cost(n):
    """Return the cost of a pair in addition to its coordinates, in units of a coordinate: time = slope (coordinates + cost)."""
    times = numpy_times(n)
    slope, start = np.polyfit(list(times), list(times.values()), 1)
    return Measured(round(start / slope), "  ".join(f"d={d}: {t:.1f} ns" for d, t in times.items()))


def small_work(n):
    """Return the work that NumPy does in the time that a process takes to load Numba and one kernel from the disk cache."""
    code = (
        "import time; import numpy as np; from vicinal._engine import prepare; X = np.zeros((50, 2));"
        "start = time.process_time(); prepare('cpu', X).at(None).log_sums(); print(time.process_time() - start)"
    )
    loads = [
        float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
        for _ in range(3)
    ]
    times = numpy_times(n)
    rates = [(d + tuning.PAIR_COST) / (t * 1e-9) for d, t in times.items()]
    because = f"loading takes {min(loads):.2f} s, NumPy does {np.median(rates):.1e} a second"
    return Measured(f"{min(loads) * np.median(rates):.1e}", because)


def in_the_file(name):
    """Return the present value of ``NAME`` or ``NAME[dtype]``."""
    name, _, dtype = name.rstrip("]").partition("[")
    value = getattr(tuning, name)
    return value[np.dtype(dtype)] if dtype else value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only constants whose names begin with these words")
    parser.add_argument("--quick", action="store_true", help="small sizes, only to check that everything runs")
    options = parser.parse_args()
    chosen = {
        name: measure
        for name, measure in measurements(options.quick).items()
        if not options.names or name.startswith(tuple(options.names))
    }
    if not chosen:
        parser.error(f"no constant begins with {' or '.join(options.names)}; there are {', '.join(measurements(True))}")
    for name, measure in chosen.items():
        found = measure()
        value = in_the_file(name)
        value = f"{value:.1e}" if isinstance(value, float) else value
        print(f"{name:40} {value!s:>9} in the file {found.value!s:>9} measured    {found.because}", flush=True)


if __name__ == "__main__":
    main()
