"""Simulate the cost of a pass of exact LCA, of RCA and of scoring on a large cluster; this is not a measurement.

    python benchmarks/dask_simulation.py --measure     # measure the costs of this machine first: a minute
    python benchmarks/dask_simulation.py               # simulate with the costs in results/dask_simulation.json

Costs per row and per pair are measured on one core of this machine, at up to 10^5 rows, and extrapolated to 10^8 rows by the power law
that they follow there.  The costs of Dask and of the network are assumed (`ASSUMED`), from Dask's documentation and the speed
of a 10 Gbit/s link.  A pass is then simulated event by event: workers take tasks from a scheduler that handles one message at a
time, and results return through the single link of the calling process.
"""

import argparse
import heapq
import json
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from run import machine

RESULTS = Path(__file__).parent / "results" / "dask_simulation.json"
D = 8

ASSUMED = {
    "scheduler_seconds_per_message": 3e-4,  # two messages per task; Dask's documentation says 0.2 to 1 ms per task
    "latency_seconds": 1e-3,
    "link_bytes_per_second": 1.25e9,  # 10 Gbit/s
    "task_seconds_spread": 0.25,  # standard deviation of the logarithm of a task's time
    "bytes_of_code_per_task": 1e4,
    "most_pieces": 256,  # MANY_PIECES of the engine
    "tasks_per_worker": 8,
    "copies_per_worker": 4,  # copies of the rows in the memory of a worker
    "reached_points_per_row": 3.0,  # points outside a task that receive a contribution from one of its rows
    "sweeps": 3,  # sweeps of a pass: the sums over near tiles, the sums over all others, and the scatter
    "rows_per_tile": 64,
    "bytes_per_pair_of_tiles": 6,  # the share of the pairs of a sweep that the scatter computes again
}


class Costs(NamedTuple):
    """The costs that were measured on one core."""

    seconds_per_row_placed: float  # mapping, ordering and packing a row, per pass
    seconds_per_pair: float  # per visited pair of a scatter
    pairs_per_row: float  # visited pairs per row, at `measured_rows`
    power: float  # pairs per row grow with this power of the rows
    measured_rows: int
    seconds_per_row_summed: float  # per row of RCA

    def pairs(self, n):
        """Return the number of pairs that are visited per row, at n rows; a dense pass visits all."""
        return min(self.pairs_per_row * (n / self.measured_rows) ** self.power, float(n))


# -- what one core does ---------------------------------------------------------------------------------------------------


def measure():
    from vicinal import RCA, Engine
    from vicinal._engine import prepare

    rng = np.random.default_rng(0)
    centres = rng.normal(size=(20, D)) * 6
    sizes, pairs, seconds, placed_seconds = (25_000, 50_000, 100_000), [], [], []
    for n in sizes:
        X = centres[rng.integers(20, size=n)] + rng.normal(size=(n, D))
        metric = np.eye(D) * 2.0 * (n / 25_000) ** (1 / (D + 4))  # LCA's kernel narrows with this power
        problem = prepare(Engine("cpu", threads=1), X, leave_one_out=True, passes=20)
        problem.at(metric).scatter(np.ones(n))
        start = time.process_time()
        placed = problem.at(metric * 1.001)
        share = placed.expected_share
        middle = time.process_time()
        placed.scatter(np.ones(n))
        seconds.append(time.process_time() - middle)
        placed_seconds.append((middle - start) / n)
        pairs.append(share * n)
    power = float(np.polyfit(np.log(sizes), np.log(pairs), 1)[0])
    X = rng.normal(size=(200_000, 64))
    y = rng.integers(1000, size=len(X))
    RCA().fit(X[:5000], y[:5000])
    start = time.process_time()
    RCA().fit(X, y)
    return Costs(
        placed_seconds[-1], seconds[-1] / (pairs[-1] * sizes[-1]), pairs[-1], power, sizes[-1],
        (time.process_time() - start) / len(X),
    )  # fmt: skip


# -- a pass, event by event -----------------------------------------------------------------------------------------------


def play(n_tasks, workers, seconds_per_task, bytes_per_answer, rng):
    """Return the seconds from the first task to the last result, and how long the scheduler and the link were busy."""
    spread, message = ASSUMED["task_seconds_spread"], ASSUMED["scheduler_seconds_per_message"]
    durations = rng.lognormal(0.0, spread, size=n_tasks)
    durations *= n_tasks * seconds_per_task / durations.sum()
    scheduler = link = busy_scheduler = busy_link = end = 0.0
    events, left = [], list(durations)
    # Events are (time, what): a worker asks for a task, or its result is ready.
    for worker in range(workers):
        heapq.heappush(events, (0.0, worker, 0.0))
    while events:
        now, worker, size = heapq.heappop(events)
        if size:
            link = max(link, now) + size / ASSUMED["link_bytes_per_second"]
            busy_link += size / ASSUMED["link_bytes_per_second"]
            end = max(end, link + ASSUMED["latency_seconds"])
        if not left:
            continue
        scheduler = max(scheduler, now) + 2 * message
        busy_scheduler += 2 * message
        done = scheduler + ASSUMED["latency_seconds"] + left.pop()
        heapq.heappush(events, (done, worker, bytes_per_answer))
    return end, busy_scheduler, busy_link


def _seconds_to_all(size, workers):
    """Return the seconds until all workers have a copy of these bytes, which every worker that has them passes on."""
    return np.ceil(np.log2(workers + 1)) * size / ASSUMED["link_bytes_per_second"]


def lca_pass(costs, n, workers, rng):
    """Simulate a pass of exact LCA: its time, the resource that limits it, traffic and memory."""
    n_tasks = int(min(ASSUMED["most_pieces"], ASSUMED["tasks_per_worker"] * workers))
    pair_seconds = n * costs.pairs(n) * costs.seconds_per_pair
    reached = n / n_tasks * (1 + ASSUMED["reached_points_per_row"])
    pairs_of_tiles = n * costs.pairs(n) / (2 * ASSUMED["rows_per_tile"] ** 2)
    listed = ASSUMED["bytes_per_pair_of_tiles"] * pairs_of_tiles / n_tasks
    # A task returns the sum of its subtree: contributions to points, its part of the scatter, and the sums of its own rows.
    answer = min(8 * n, 12 * reached) + 8 * D**2 + 8 * n / n_tasks + listed
    # Every process maps and packs all rows itself, so more workers do not shorten this part.
    placing = n * costs.seconds_per_row_placed
    sending = _seconds_to_all(ASSUMED["sweeps"] * 8 * n, workers)
    seconds = [pair_seconds / (ASSUMED["sweeps"] * n_tasks)] * ASSUMED["sweeps"]
    played, scheduler, link = np.sum([play(n_tasks, workers, each, answer, rng) for each in seconds], axis=0)
    n_tasks *= ASSUMED["sweeps"]
    total = placing + sending + played
    return {
        "seconds_per_pass": total,
        "one_worker_seconds": placing + pair_seconds,
        "efficiency": (placing + pair_seconds) / (workers * total),
        "placing_seconds": placing,
        "link_busy_seconds": link,
        "scheduler_busy_seconds": scheduler,
        "tasks": n_tasks,
        "answers_gb": n_tasks * answer / 1e9,
        "worker_memory_gb": ASSUMED["copies_per_worker"] * 8 * n * D / 1e9,
        "sending_seconds": sending,
        "pairs_of_tiles_gb": ASSUMED["bytes_per_pair_of_tiles"] * pairs_of_tiles / 1e9,
        "first_sending_seconds": _seconds_to_all(8 * n * D, workers),
    }


def rca_fit(costs, n, workers, rng, d=64, partition=10**5):
    """Simulate RCA of partitions that are on the workers."""
    n_tasks = max(n // partition, workers)
    seconds = n * costs.seconds_per_row_summed / n_tasks
    total, scheduler, _ = play(n_tasks, workers, seconds, 3 * 8 * d**2, rng)
    return {
        "seconds": total,
        "efficiency": n * costs.seconds_per_row_summed / (workers * total),
        "scheduler_busy_seconds": scheduler,
        "tasks": n_tasks,
        "answers_gb": n_tasks * 3 * 8 * d**2 / 1e9,
    }


def scoring(costs, n, workers, rng, components=10**4, rows_per_task=10**5):
    """Simulate the log-densities of a collection under 10^4 components, with all pairs visited and results kept on the workers."""
    n_tasks = max(n // rows_per_task, 1)
    work = n * components * costs.seconds_per_pair
    total, scheduler, _ = play(n_tasks, workers, work / n_tasks, 1e3, rng)
    return {
        "seconds": total,
        "efficiency": work / (workers * total),
        "scheduler_busy_seconds": scheduler,
        "tasks": n_tasks,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", action="store_true", help="measure the costs of one core of this machine")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.measure or not options.output.exists():
        costs = measure()
    else:
        costs = Costs(**json.loads(options.output.read_text())["costs"])
    # With more rows, boxes exclude a larger share: the power lies between the measured one and that of the neighbours.
    fewest = costs._replace(power=4 / (D + 4))
    cases = {
        "lca": lca_pass,
        "lca, fewest pairs": lambda _, *args: lca_pass(fewest, *args),
        "rca": rca_fit,
        "scoring": scoring,
    }
    table = {}
    for name, case in cases.items():
        for n in (10**6, 10**7, 10**8):
            for workers in (1, 10, 100, 1000):
                found = case(costs, n, workers, np.random.default_rng(0))
                table[f"{name} {n} {workers}"] = {key: float(value) for key, value in found.items()}
    report = {
        "machine": machine(),
        "costs": costs._asdict(),
        "assumed": ASSUMED,
        "pairs_per_row_at_1e8": [fewest.pairs(10**8), costs.pairs(10**8)],
    }
    options.output.write_text(json.dumps({**report, "cases": table}, indent=1) + "\n")
    print(json.dumps(costs._asdict(), indent=1), "pairs per row at 10^8:", report["pairs_per_row_at_1e8"])
    for name, found in table.items():
        print(f"{name:24s}", "  ".join(f"{key} {value:.3g}" for key, value in found.items()))


if __name__ == "__main__":
    main()
