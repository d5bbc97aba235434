"""Compare the pair engine with its peers and with the best rates of the machine; see README.md for the protocol."""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HERE = Path(__file__).parent
THREADS = len(os.sched_getaffinity(0))


def cases(names, quick):
    """Yield the cases by name; quick ones are small and only check that everything runs."""
    n, rounds = (1500, 2) if quick else (10_000, 3)
    if "scatter" in names:
        for dtype in ("float64", "float32"):
            for d in (2, 8) if quick else (2, 8, 32, 128) if dtype == "float64" else (8, 32):
                tolerance = 1e-9 if dtype == "float64" else 1e-2
                yield {
                    "kind": "scatter",
                    "n": n,
                    "d": d,
                    "dtype": dtype,
                    "tolerance": tolerance,
                    "rounds": rounds,
                }
    if "density" in names:
        for d in (2,) if quick else (2, 8, 64):
            points, queries = (5000, 200) if quick else (100_000, 10_000)
            case = {
                "kind": "density",
                "n": points,
                "n_queries": queries,
                "d": d,
                "dtype": "float64",
                "rounds": min(rounds, 3),
            }
            # Slow contenders get fewer queries; times are compared per pair.
            case |= {"bandwidth": 0.5, "tolerance": 1e-9, "few_queries": 200 if quick else 300}
            # scikit-learn loses digits from d=8 on; it is timed nevertheless, because it is widely used, and its error is listed.
            yield case | {"timed_even_if_wrong": ["scikit-learn"]}
    if "scaling" in names:
        for n in (2000, 4000) if quick else (25_000, 50_000, 100_000, 200_000):
            case = {
                "kind": "scatter",
                "n": n,
                "d": 16,
                "dtype": "float64",
                "tolerance": 1e-9,
                "name": "scaling",
            }
            yield case | {"rounds": 2 if n < 100_000 else 1, "only": ["vicinal"]}


SLOW = {"scikit-learn", "scipy", "mlpack", "KDEpy", "torch", "pykeops"}


_PATIENCE = 90  # seconds for a contender's first result, including loading


class Worker:
    """A contender in its own process."""

    def __init__(self, case, name):
        self.name = name
        self.case = dict(case)
        if name in SLOW and "few_queries" in case:
            self.case["n_queries"] = case["few_queries"]
        command = [sys.executable, str(HERE / "worker.py"), json.dumps(self.case), name]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=HERE,
        )
        patience = threading.Timer(_PATIENCE, self.process.kill)
        patience.start()
        self.state = self._read()
        patience.cancel()
        self.seconds, self.memory = [], 0

    def _read(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"ready": False, "why": f"no answer within {_PATIENCE} s"}

    @property
    def right(self):
        error = self.state.get("error")
        return bool(self.state.get("ready")) and error is not None and error <= self.case["tolerance"]

    @property
    def racing(self):
        return self.right or (self.state.get("ready") and self.name in self.case.get("timed_even_if_wrong", []))

    def time(self):
        time.sleep(0.2)  # BLAS threads of the previous contender spin for a while after their last product
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        answer = self._read()
        self.seconds.append(answer["seconds"])
        self.memory = answer["memory"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()

    def pairs(self):
        return self.case["n"] * self.case.get("n_queries", self.case["n"])


def run_case(case):
    sys.path.insert(0, str(HERE))
    import contenders

    names = case.get("only") or list(contenders.CONTENDERS[case["kind"]])
    workers = [Worker(case, name) for name in names]
    racing = [worker for worker in workers if worker.racing]
    for _ in range(case["rounds"]):
        for worker in racing:
            worker.time()
    rows = []
    ours = next((w for w in racing if w.name == "vicinal"), None)
    for worker in workers:
        row = {"contender": worker.name, "error": worker.state.get("error")}
        if not worker.right:
            row["why"] = worker.state.get("why") or "wrong: its error exceeds the tolerance"
        if worker.racing:
            a_pair = [seconds / worker.pairs() * 1e9 for seconds in worker.seconds]
            row |= {"seconds": min(worker.seconds), "ns_a_pair": min(a_pair), "memory": worker.memory}
            row["queries"] = worker.case.get("n_queries")
            if ours is not None and worker is not ours:
                here = [seconds / ours.pairs() * 1e9 for seconds in ours.seconds]
                row["times_slower"] = statistics.median(a / b for a, b in zip(a_pair, here, strict=True))
        rows.append(row)
        worker.close()
    return {"case": case, "rows": rows}


def machine():
    info = {
        "cpu": platform.processor() or platform.machine(),
        "cores": THREADS,
        "python": platform.python_version(),
    }
    try:
        model = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
        info["cpu"] = model.split(":")[1].strip()
    except (OSError, StopIteration):
        pass
    info["versions"] = {}
    for name in ("vicinal", "numpy", "scipy", "scikit-learn", "numba", "torch", "mlpack", "KDEpy", "pykeops"):
        try:
            info["versions"][name] = version(name)
        except PackageNotFoundError:
            info["versions"][name] = None
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=HERE)
    info["commit"] = commit.stdout.strip() or None
    info["date"] = datetime.now(UTC).strftime("%Y-%m-%d")
    return info


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=["scatter", "density", "scaling"])
    parser.add_argument("--d", type=int, nargs="*", help="only these dimensions; other results of the file are kept")
    parser.add_argument("--quick", action="store_true", help="small sizes, only to check that everything runs")
    options = parser.parse_args()
    sys.path.insert(0, str(HERE))
    import ceilings

    status = 0
    for name in options.names:
        report = {"machine": machine(), "quick": options.quick, "ceilings": [], "results": []}
        for dtype in ("float64", "float32"):
            report["ceilings"].append(ceilings.measure(THREADS, dtype))
        target = HERE / "results" / f"engine-{name}.json"
        if options.d and target.exists():
            kept = json.loads(target.read_text())["results"]
            report["results"] = [result for result in kept if result["case"]["d"] not in options.d]
        for case in cases([name], options.quick):
            if options.d and case["d"] not in options.d:
                continue
            result = run_case(case)
            if case["kind"] == "scatter":
                # The ceiling is measured next to the case, because the machine may have been faster an hour earlier.
                measured = ceilings.measure(THREADS, case["dtype"], dimensions=(case["d"],))
                result["floor_seconds"] = ceilings.scatter_floor(measured, case["n"], case["d"])
            result["measured"] = report["machine"]["date"]
            report["results"].append(result)
            report["results"].sort(key=lambda result: (result["case"]["dtype"] != "float64", result["case"]["d"]))
            print(describe(result), file=sys.stderr, flush=True)
            status |= any("seconds" not in row for row in result["rows"] if row["contender"] == "vicinal")
        if not options.quick:
            target.parent.mkdir(exist_ok=True)
            target.write_text(json.dumps(report, indent=1) + "\n")
            print(f"wrote {target}", file=sys.stderr)
    return int(status)


def describe(result):
    case = result["case"]
    size = f"{case.get('n_queries', case['n'])} x {case['n']}"
    lines = [f"{case.get('name', case['kind'])} {size}, d={case['d']}, {case['dtype']}"]
    if "floor_seconds" in result:
        lines[0] += f"; floor {result['floor_seconds']:.3f} s"
    for row in result["rows"]:
        wrong = f", {row['why']}" if "why" in row else ""
        if "seconds" not in row:
            lines.append(
                f"  {row['contender']:>12}: {row['why']}" + (f" ({row['error']:.1e})" if row.get("error") else "")
            )
            continue
        ratio = f", {row['times_slower']:.1f}x slower" if "times_slower" in row else ""
        lines.append(
            f"  {row['contender']:>12}: {row['seconds']:.3f} s, {row['ns_a_pair']:.2f} ns per pair{ratio}, "
            f"{row['memory'] / 2**20:.0f} MB, error {row['error'] if row['error'] is None else format(row['error'], '.1e')}{wrong}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
