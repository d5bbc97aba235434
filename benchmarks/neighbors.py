"""Measure exact neighbours beside scikit-learn's brute search and FAISS's flat index: python benchmarks/neighbors.py [--rounds 5].

5,000 queries, 10 neighbours. Every contender is run in turn, and the median of the ratios of times to those of vicinal is printed, with the
processor time of the fastest round.  Float64 rows are searched on all threads, float32 rows on one, beside FAISS, if that is installed.
Results are compared with a sort of all distances of some queries in float64; FAISS may exchange rows at nearly equal distances.
"""

import argparse
import importlib.util
import os
import statistics
import time

import numpy as np
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits

from vicinal import retrieval
from vicinal._engine import Engine, prepare

TABLES = {
    "100,000 x 16": (100_000, 16),
    "20,000 x 128": (20_000, 128),
    "20,000 x 128 in clusters": (20_000, 128),
    "100,000 x 3": (100_000, 3),
    "100,000 x 8": (100_000, 8),
}
QUERIES, NEIGHBORS = 5_000, 10


def rows_of(name):
    n, d = TABLES[name]
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n + QUERIES, d))
    if name.endswith("clusters"):
        rows += 20.0 * rng.normal(size=(50, d))[rng.integers(50, size=len(rows))]
    return rows[:n], rows[n:]


def engine_search(rows, queries, threads):
    placed = prepare(Engine("cpu", threads=threads), rows, n_queries=len(queries)).at()
    return lambda: placed.nearest(NEIGHBORS, queries).indices


def retrieval_search(rows, queries, threads):
    engine = Engine("cpu", threads=threads)
    return lambda: retrieval.search(queries, rows, NEIGHBORS, similarity="euclidean", engine=engine).indices


def scikit_learn(rows, queries, threads):
    search = NearestNeighbors(n_neighbors=NEIGHBORS, algorithm="brute").fit(rows)

    def work():
        with threadpool_limits(threads):
            return search.kneighbors(queries, return_distance=False)

    return work


def faiss_flat(rows, queries, threads):
    import faiss

    index = faiss.IndexFlatL2(rows.shape[1])
    index.add(rows)

    def work():
        faiss.omp_set_num_threads(threads)
        with threadpool_limits(threads):
            return index.search(queries, NEIGHBORS)[1]

    return work


def share_right(indices, rows, queries, n_checked=100):
    """Return the share of places whose distance is that of a sort in float64."""
    some = queries[:n_checked].astype(np.float64)
    right = []
    for i, query in enumerate(some):
        squares = np.square(query - rows.astype(np.float64)).sum(axis=1)
        expected = np.argsort(squares, kind="stable")[:NEIGHBORS]
        right.append(np.mean(squares[indices[i]] <= squares[expected] * (1.0 + 1e-12)))
    return float(np.mean(right))


def measured(contenders, rounds):
    """Return the seconds of each round and the least processor time of each contender, in turn."""
    seconds, processor = {name: [] for name in contenders}, {}
    for number in range(rounds + 1):
        for name, work in contenders.items():
            time.sleep(0.03)
            start, cpu = time.perf_counter(), time.process_time()
            work()
            elapsed, cpu = time.perf_counter() - start, time.process_time() - cpu
            if number:
                seconds[name].append(elapsed)
                processor[name] = min(cpu, processor.get(name, np.inf))
    return seconds, processor


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()
    for dtype, threads in (("float64", args.threads), ("float32", 1)):
        for name in TABLES:
            rows, queries = (part.astype(dtype) for part in rows_of(name))
            makers = {"vicinal": engine_search, "vicinal.retrieval": retrieval_search, "scikit-learn": scikit_learn}
            if dtype == "float32" and importlib.util.find_spec("faiss"):
                makers["FAISS"] = faiss_flat
            contenders = {who: make(rows, queries, threads) for who, make in makers.items()}
            seconds, processor = measured(contenders, args.rounds)
            print(f"{name}, {dtype}, {threads} threads", flush=True)
            for who, work in contenders.items():
                ratio = statistics.median(a / b for a, b in zip(seconds[who], seconds["vicinal"], strict=True))
                right = share_right(work(), rows, queries)
                print(
                    f"  {who:18s} {min(seconds[who]):7.3f} s  processor {processor[who]:7.3f} s  "
                    f"{ratio:5.2f} times vicinal  right {right:.4f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
