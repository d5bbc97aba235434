"""What all campaigns share: cases by number, several processes, and counts of the results.

A campaign is a module with

- ``CASES``: the number of cases at full size;
- ``check(case)``: draws everything from ``case.rng``, names what it tries in ``case.what``, describes it in
  ``case.text``, and returns the verdict in a word or two ("an answer", "a clear error"). `Bad`, or any other exception,
  is a failure;
- optionally ``ROWS``, a size that ``--rows`` changes (as ``case.rows``), and ``UNTIMED``, the number of cases (1 by default)
  that each process tries before its ``--seconds`` begin, because they compile what the others need;
- optionally ``MOST_BAD``, the share of bad cases that is accepted, for promises that are about a share (0 by default).

A case depends only on the seed and its own number, so ``--seed SEED --start NUMBER --cases 1`` runs it again.
"""

import argparse
import faulthandler
import multiprocessing
import time
import traceback
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

import numpy as np

LONGEST = 300.0  # seconds after which a case is stopped, and bad


class Bad(AssertionError):
    """The result of a case violates what is promised."""


class Skip(Exception):
    """The case cannot be tried on this machine; the text says why."""


class Case:
    """One case of a campaign: its random numbers and its description."""

    def __init__(self, seed: int, number: int, rows: int | None = None) -> None:
        self.seed, self.number, self.rows = seed, number, rows
        self.rng = np.random.default_rng([seed, number])
        self.what = "?"
        self.text = ""
        self.largest: dict[str, float] = {}  # numbers of which the largest of all cases is printed at the end

    def choice(self, options: list) -> object:
        """Return one of several options unchanged; NumPy would convert them to an array."""
        return options[int(self.rng.integers(len(options)))]

    def chance(self, share: float) -> bool:
        """Return True in a given share of the cases."""
        return bool(self.rng.random() < share)


def damaged(case: Case, whole: bytes) -> bytes:
    """Return the bytes, changed in one or a few places."""
    data, rng = bytearray(whole), case.rng
    for _ in range(int(rng.geometric(0.7))):
        kind = str(case.choice(["flip", "byte", "cut", "insert", "zero", "repeat", "digit", "start"]))
        at, length = int(rng.integers(max(len(data), 1))), int(rng.integers(1, 40))
        if kind == "start":  # the part that usually contains the header
            at = int(rng.integers(min(len(data), 128) + 1))
            kind = str(case.choice(["byte", "insert", "digit"]))
        case.text += f" {kind} at {at}"
        if kind == "cut":
            del data[at:]
        elif kind == "insert":
            data[at:at] = rng.bytes(length)
        elif kind == "repeat":
            data[at:at] = data[at : at + length]
        elif kind == "zero":
            data[at : at + length] = bytes(len(data[at : at + length]))
        elif at < len(data):
            data[at] = {"flip": data[at] ^ 1 << int(rng.integers(8)), "digit": ord(str(int(rng.integers(10))))}.get(
                kind, int(rng.integers(256))
            )
    return bytes(data)


class Tally:
    """Counts of verdicts, by what was tried."""

    def __init__(self) -> None:
        self.clean: Counter = Counter()
        self.bad: Counter = Counter()
        self.verdicts: Counter = Counter()
        self.largest: dict[str, float] = {}

    def take(self, number: int, result: dict) -> None:
        """Count the result of a case, and print it at once if it is bad."""
        for name, value in result.get("largest", {}).items():
            self.largest[name] = max(value, self.largest.get(name, value))
        if "error" in result:
            self.bad[result["what"]] += 1
            print(f"bad: case {number}, {result['what']}: {result['error']}", flush=True)
        else:
            self.clean[result["what"]] += 1
            self.verdicts[result["verdict"]] += 1

    def table(self) -> str:
        """Return the table of tried, clean and bad cases, and the verdicts."""
        rows = [(name, self.clean[name], self.bad[name]) for name in sorted({*self.clean, *self.bad})]
        rows.append(("all", self.clean.total(), self.bad.total()))
        width = max(len(name) for name, *_ in rows)
        lines = [f"{'':{width}}  {'tried':>8} {'clean':>8} {'bad':>8}"]
        lines += [f"{name:{width}}  {clean + bad:>8,} {clean:>8,} {bad:>8,}" for name, clean, bad in rows]
        lines += [f"  {verdict}: {times:,}" for verdict, times in self.verdicts.most_common()]
        lines += [f"  {name}: {value:.3f}" for name, value in sorted(self.largest.items())]
        return "\n".join(lines)


def run(module: str, arguments: list[str]) -> int:
    """Run a campaign with the options of the command line; return the exit code, which is 1 if a case is bad."""
    options = _options(module, arguments)
    tally, began = Tally(), time.monotonic()
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    begin = [options.start + job for job in range(options.jobs)]  # the next case of each process
    processes = [_begin(context, module, options, first, results) for first in begin]
    while any(process is not None for process in processes):
        while not results.empty():
            number, result = results.get()
            begin[(number - options.start) % options.jobs] = number + options.jobs
            tally.take(number, result)
        for job, process in enumerate(processes):
            if process is None or process.is_alive() or not results.empty():
                continue
            if process.exitcode:  # the case ended its process; another process goes on after it
                error = f"the process ended with {process.exitcode}; run it again with --seed {options.seed} --start {begin[job]} --cases 1"
                tally.take(begin[job], {"what": "?", "error": error})
                begin[job] += options.jobs
                processes[job] = _begin(context, module, options, begin[job], results)
            else:
                processes[job] = None
        time.sleep(0.05)
    name = module.rpartition(".")[2]
    print(f"campaign {name}, seed {options.seed}, {datetime.now(UTC):%Y-%m-%d}, {time.monotonic() - began:.0f} s")
    print(tally.table(), flush=True)
    n_bad, accepted = tally.bad.total(), getattr(import_module(module), "MOST_BAD", 0.0)
    # A single bad case among a few does not show that the share is too large.
    return 1 if n_bad > (max(2.0, accepted * (n_bad + tally.clean.total())) if accepted else 0.0) else 0


def _begin(context: Any, module: str, options: argparse.Namespace, first: int, results: Any) -> Any:
    process = context.Process(target=_try_cases, args=(module, options, first, results), daemon=True)
    process.start()
    return process


def _try_cases(module: str, options: argparse.Namespace, first: int, results: Any) -> None:
    """Try every case of one process, and put the results into the queue."""
    campaign = import_module(module)
    end, untimed = float("inf"), getattr(campaign, "UNTIMED", 1)
    for tried, number in enumerate(range(first, options.start + options.cases, options.jobs)):
        if tried == untimed:
            end = time.monotonic() + options.seconds
        if time.monotonic() > end:
            return
        faulthandler.dump_traceback_later(LONGEST, exit=True)
        case = Case(options.seed, number, options.rows)
        results.put((number, _tried(campaign.check, case)))
    faulthandler.cancel_dump_traceback_later()


def _options(module: str, arguments: list[str]) -> argparse.Namespace:
    campaign = import_module(module)
    parser = argparse.ArgumentParser(prog=f"python fuzz {module.rpartition('.')[2]}", description=campaign.__doc__)
    parser.add_argument("--cases", type=int, default=campaign.CASES, help="the number of cases; default: %(default)s")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop this long after the first cases")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--start", type=int, default=0, help="the number of the first case; default: %(default)s")
    parser.add_argument("--jobs", type=int, default=1, help="the number of processes; default: %(default)s")
    parser.add_argument("--rows", type=int, default=getattr(campaign, "ROWS", None), help="of the largest problems")
    return parser.parse_args(arguments)


def _tried(check: Callable[[Case], str], case: Case) -> dict:
    """Return the result of a case in words: its verdict, or its error with everything that was drawn and the traceback."""
    try:
        return {"verdict": check(case), "what": case.what, "largest": case.largest}
    except KeyboardInterrupt:
        raise
    except Skip as reason:
        return {"verdict": f"left out: {reason}", "what": case.what}
    except BaseException as error:  # every exception of a case is a finding of the campaign
        again = f"run it again with --seed {case.seed} --start {case.number} --cases 1"
        brief = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}; {again}"
        return {"error": f"{brief}\n{case.text}\n{''.join(traceback.format_exception(error))}", "what": case.what}
