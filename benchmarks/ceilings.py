"""What this machine can do at best, measured with the shapes the pair work has."""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numba import njit
from threadpoolctl import threadpool_limits

from vicinal._engine import _kernels


@njit(nogil=True, fastmath={"contract"})
def _exponentials(rows, repeats):
    total = 0.0
    for _ in range(repeats):
        for r in range(rows.shape[0]):
            total += _kernels._exp_in_place(rows[r], rows.dtype.type(1.0))
    return total


@njit(nogil=True, fastmath={"contract"})  # reassoc would fold the chain into one operation
def _fused_multiply_adds(x, repeats):
    """A chain of 16 vectorised multiply-adds a number: the arithmetic peak of compiled code."""
    for _ in range(repeats):
        for j in range(x.shape[0]):
            v = x[j]
            for _ in range(16):
                v = v * x.dtype.type(0.999) + x.dtype.type(1e-3)
            x[j] = v
    return x[0]


def _best(work, threads, rounds=5):
    """Shortest wall time of `work(thread)` run on all threads at once."""
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))
        best = np.inf
        for _ in range(rounds):
            start = time.perf_counter()
            list(pool.map(work, range(threads)))
            best = min(best, time.perf_counter() - start)
    return best


def measure(threads, dtype=np.float64, dimensions=(2, 8, 16, 32, 64, 128)):
    """Rates over all threads: products (flops/s) by dimension, compiled multiply-adds (flops/s), exps/s, bytes/s."""
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
    small = [np.ones(2048, dtype) for _ in range(threads)]
    seconds = _best(lambda k: _fused_multiply_adds(small[k], 2000), threads)
    ceilings["fma_flops"] = threads * 2000 * 2048 * 16 * 2 / seconds
    big = [np.ones(2**24, np.uint8) for _ in range(2 * threads)]
    seconds = _best(lambda k: np.copyto(big[2 * k], big[2 * k + 1]), threads)
    ceilings["bytes"] = threads * 2 * 2**24 / seconds
    return ceilings


def scatter_floor(ceilings, n, d):
    """Seconds for `4 n^2 d` flops at the better of the two measured rates, and `n^2` exponentials."""
    return 4.0 * n * n * d / arithmetic_rate(ceilings, d) + n * n / ceilings["exps"]


def arithmetic_rate(ceilings, d):
    """Flops/s of the better road at this dimension: matrix products of the tall shape, or compiled multiply-adds."""
    nearest = min(ceilings["gemm_flops"], key=lambda key: abs(int(key) - d))
    return max(ceilings["gemm_flops"][nearest], ceilings["fma_flops"])
