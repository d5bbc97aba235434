"""Measure the best rates of this machine, for the shapes of arrays that the pair engine uses.

``python benchmarks/ceilings.py`` compares a dense scatter of 10,000 rows on two threads with the time of its arithmetic.
"""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numba import njit
from threadpoolctl import threadpool_limits

from vicinal._engine.cpu import parts as _kernels


@njit(nogil=True, fastmath={"contract"})
def _exponentials(rows, repeats):
    total = 0.0
    for _ in range(repeats):
        for r in range(rows.shape[0]):
            total += _kernels._exp_in_place(rows[r], rows.dtype.type(1.0))
    return total


@njit(nogil=True, fastmath={"contract"})  # reassoc would fold the chain into one operation
def _fused_multiply_adds(x, repeats):
    """Compute products of four rows of 4 coordinates with a tile, as the pair kernels do: the peak rate of compiled code.

    There are 16 multiply-adds per entry for 5 loads and 4 stores, in four independent chains.
    """
    a, b = x.dtype.type(0.999), x.dtype.type(1e-3)
    for _ in range(repeats):
        for j in range(x.shape[1]):
            t0, t1, t2, t3 = x[0, j], x[1, j], x[2, j], x[3, j]
            w = x[4, j]
            x[5, j] = w + a * t0 + b * t1 + a * t2 + b * t3
            x[6, j] = w + b * t0 + a * t1 + b * t2 + a * t3
            x[7, j] = w + a * t0 + a * t1 + b * t2 + b * t3
            x[8, j] = w + b * t0 + b * t1 + a * t2 + a * t3
    return x[5, 0]


def _best(work, threads, rounds=5):
    """Return the shortest wall time of `work(thread)` on all threads at once."""
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))
        best = np.inf
        for _ in range(rounds):
            start = time.perf_counter()
            list(pool.map(work, range(threads)))
            best = min(best, time.perf_counter() - start)
    return best


def measure(threads, dtype=np.float64, dimensions=(2, 8, 16, 32, 64, 128)):
    """Return rates over all threads: products (flops/s) by dimension, compiled multiply-adds (flops/s), exps/s, bytes/s."""
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(0)
    ceilings = {"dtype": dtype.name, "threads": threads, "gemm_flops": {}}
    with threadpool_limits(1, "blas"):
        for d in dimensions:
            a = [rng.normal(size=(512, d)).astype(dtype) for _ in range(threads)]
            b = [rng.normal(size=(1024, d)).astype(dtype) for _ in range(threads)]
            out = [np.empty((512, 1024), dtype) for _ in range(threads)]
            repeats = max(1, 4096 // (8 * d))

            def products(k, a=a, b=b, out=out, repeats=repeats):
                for _ in range(repeats):
                    np.matmul(a[k], b[k].T, out=out[k])

            seconds = _best(products, threads)
            ceilings["gemm_flops"][str(d)] = threads * repeats * 2 * 512 * 1024 * d / seconds
    rows = [np.zeros((4, _kernels.TILE), dtype) for _ in range(threads)]
    seconds = _best(lambda k: _exponentials(rows[k], 3000), threads)
    ceilings["exps"] = threads * 3000 * rows[0].size / seconds
    small = [np.ones((9, _kernels.TILE // 2), dtype) for _ in range(threads)]  # in the first cache
    seconds = _best(lambda k: _fused_multiply_adds(small[k], 20_000), threads)
    ceilings["fma_flops"] = threads * 20_000 * small[0].shape[1] * 16 * 2 / seconds
    big = [np.ones(2**24, np.uint8) for _ in range(2 * threads)]
    seconds = _best(lambda k: np.copyto(big[2 * k], big[2 * k + 1]), threads)
    ceilings["bytes"] = threads * 2 * 2**24 / seconds
    return ceilings


def scatter_floor(ceilings, n, d):
    """Return the seconds for `1.5 n^2 d` multiply-adds at the better of the two measured rates, and `n^2` exponentials.

    Each pair is visited in two half sweeps: one computes distances and exponentials for the sums of the rows, and the
    other computes both again, and products with the values, for the scatter.
    """
    return 3.0 * n * n * d / arithmetic_rate(ceilings, d) + n * n / ceilings["exps"]


def arithmetic_rate(ceilings, d):
    """Return the flops/s of the faster way at this dimension: tall matrix products, or compiled multiply-adds."""
    nearest = min(ceilings["gemm_flops"], key=lambda key: abs(int(key) - d))
    return max(ceilings["gemm_flops"][nearest], ceilings["fma_flops"])


def main():
    """Print the time of a scatter over its floor: the median of seven runs, and the best."""
    from vicinal import Engine
    from vicinal._engine import prepare

    n, dimensions = 10_000, (8, 32, 128)
    found = measure(2, dimensions=dimensions)
    for d in dimensions:
        rows = np.random.default_rng(d).normal(size=(n, d))
        problem = prepare(Engine("cpu", threads=2, error=0.0), rows, leave_one_out=True)
        seconds = []
        for _ in range(8):  # the first compiles
            start = time.perf_counter()
            problem.at(np.eye(d) / np.sqrt(d)).scatter()
            seconds.append(time.perf_counter() - start)
        floor, median, best = scatter_floor(found, n, d), np.median(seconds[1:]), min(seconds[1:])
        print(
            f"d={d}: {median:.3f} s, floor {floor:.3f} s, {median / floor:.2f}x (best {best / floor:.2f}x)", flush=True
        )


if __name__ == "__main__":
    main()
