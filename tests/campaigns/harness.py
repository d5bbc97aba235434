"""Code that all campaigns share: it draws cases by number, counts their results, and saves and replays failures.

A campaign is a module with

- ``CASES``: the number of cases at full size;
- ``check(case)``: draws everything from ``case.rng``, names what it tries in ``case.what``, describes it in
  ``case.text``, and returns the verdict in a word or two ("an answer", "a clear error"). `Bad`, or any other exception,
  is a failure;
- optionally ``ROWS``, a size that ``--rows`` changes (as ``case.rows``), ``LONGEST``, the seconds after which a case is stopped
  and counted as a failure, ``UNTIMED``, the number of cases (1 by default) that are tried before ``--seconds`` begin, because they
  compile what the others need, ``case.note``, a line that is printed at the end, and ``summary()``, which returns more such lines.

A case depends only on the seed and its own number, so a failure can be replayed from these two.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile
from types import ModuleType

import numpy as np
import scipy
import sklearn

import vicinal
from campaigns import workers


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
        self.note = ""  # a line that is printed at the end, whatever the verdict
        self.files: dict[str, bytes] = {}  # files to save with a failure

    def choice(self, options: list) -> object:
        """Return one of some options unchanged; NumPy would convert them to an array."""
        return options[int(self.rng.integers(len(options)))]

    def chance(self, share: float) -> bool:
        """Return True in a given share of the cases."""
        return bool(self.rng.random() < share)


def environment(**changes: str) -> dict[str, str]:
    """Return the environment of a process that imports this vicinal from any folder."""
    known = os.environ.get("PYTHONPATH")
    path = [str(Path(vicinal.__file__).resolve().parents[1]), *([known] if known else [])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), **changes}


def watched(
    command: list[str], idle: float = 120.0, busy: float = 600.0, **options: object
) -> subprocess.CompletedProcess:
    """Run a command in a session of its own; return what it printed, or raise `Bad` with evidence if it hangs.

    It hangs if its processes sleep for `idle` seconds without using any processor time, or use more than `busy` seconds of it. Slow
    progress on a busy machine is no hang. The evidence is the state of each thread, and the Python stacks that faulthandler
    prints when the processes are aborted, if the command has enabled it.
    """
    with TemporaryFile("w+") as out, TemporaryFile("w+") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, start_new_session=True, text=True, **options)
        used, since = -1.0, time.monotonic()
        while process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.5)
            threads = _threads_of_session(process.pid)
            now = sum(thread["seconds"] for thread in threads)
            if now != used or any(thread["state"] in "RD" for thread in threads):
                used, since = now, time.monotonic()
            if time.monotonic() - since > idle or used > busy:
                for pid in sorted({thread["process"] for thread in threads}):  # one by one, so that stacks do not mix
                    _abort(pid, process)
                err.seek(0)
                raise Bad(f"it hangs after {used:.0f} seconds of processor time: {threads}\n{err.read()[-6000:]}")
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(command, process.returncode, out.read(), err.read())


def _abort(pid: int, first: subprocess.Popen) -> None:
    """Abort a process of the session of `first`, and wait until it has printed its stacks and ended."""
    for sent in (signal.SIGABRT, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.kill(pid, sent)
        end = time.monotonic() + 10.0
        while time.monotonic() < end:
            first.poll()
            if not any(thread["process"] == pid for thread in _threads_of_session(first.pid)):
                return
            time.sleep(0.02)


def _threads_of_session(session: int) -> list[dict]:
    """Return the state, the processor time and the place in the kernel of each thread of a session (on Linux)."""
    found = []
    for path in Path("/proc").glob("[0-9]*/task/*"):
        with suppress(OSError, IndexError):
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                place = (path / "wchan").read_text()
                seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                found.append(
                    {
                        "process": int(path.parts[2]),
                        "thread": path.name,
                        "state": fields[0],
                        "seconds": seconds,
                        "wchan": place,
                    }
                )
    return found


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
        self.notes: list[str] = []

    def take(self, number: int, found: dict) -> None:
        """Count the result of a case, and print it at once if it is bad."""
        if found.get("note"):
            self.notes.append(f"  {found['what']}: {found['note']}")
        if "left out" in found:
            self.verdicts[f"left out: {found['left out']}"] += 1
        elif "error" in found:
            self.bad[found["what"]] += 1
            print(f"bad: case {number}, {found['what']}: {found['error']}", flush=True)
            if "replay" in found:
                print(f"     replay it with --replay {found['replay']}", flush=True)
        else:
            self.clean[found["what"]] += 1
            self.verdicts[found["verdict"]] += 1

    def table(self) -> str:
        """Return the table of tried, clean and bad cases, and the verdicts."""
        names = sorted({*self.clean, *self.bad})
        rows = [(name, self.clean[name], self.bad[name]) for name in names]
        rows.append(("all", self.clean.total(), self.bad.total()))
        width = max(len(name) for name, *_ in rows)
        lines = [f"{'':{width}}  {'tried':>8} {'clean':>8} {'bad':>8}"]
        lines += [f"{name:{width}}  {clean + bad:>8,} {clean:>8,} {bad:>8,}" for name, clean, bad in rows]
        lines += [f"  {verdict}: {times:,}" for verdict, times in self.verdicts.most_common()]
        lines += sorted(self.notes)
        return "\n".join(lines)


def run(campaign: ModuleType, arguments: list[str]) -> int:
    """Run a campaign with the options of the command line; return the exit code, which is 1 if a case is bad."""
    name = campaign.__name__.rpartition(".")[2]
    options = _options(campaign, name, arguments)
    if options.replay:
        return _replay(campaign, options.replay)
    summary = getattr(campaign, "summary", str)

    def try_case(number: int) -> dict:
        return _tried(campaign.check, name, Case(options.seed, number, options.rows), Path(options.failures))

    if options.worker:
        return workers.serve(try_case, summary)
    tally, began = Tally(), time.monotonic()
    numbers = range(options.start, options.start + options.cases)
    command = workers.command(name, arguments)
    longest, untimed = getattr(campaign, "LONGEST", None), getattr(campaign, "UNTIMED", 1)
    summaries = workers.try_all(command, numbers, options.jobs, options.seconds, tally.take, longest, untimed)
    print(f"campaign {name}, seed {options.seed}, {datetime.now(UTC):%Y-%m-%d}, {time.monotonic() - began:.0f} s")
    print("\n".join([tally.table(), *filter(None, summaries)]), flush=True)
    return 1 if tally.bad else 0


def _options(campaign: ModuleType, name: str, arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python tests/campaigns {name}", description=campaign.__doc__)
    parser.add_argument("--cases", type=int, default=campaign.CASES, help="the number of cases; default: %(default)s")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="stop this many seconds after the first case"
    )
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--start", type=int, default=0, help="the number of the first case; default: %(default)s")
    parser.add_argument(
        "--jobs", type=int, default=1, help="the number of processes that try cases in parallel; default: %(default)s"
    )
    parser.add_argument("--failures", default="campaign-failures", help="the folder for failing cases")
    parser.add_argument("--replay", metavar="FILE", help="run the case in a file that a failure has written")
    default = getattr(campaign, "ROWS", None)
    parser.add_argument(
        "--rows",
        type=int,
        default=default,
        help="the number of rows of the largest problems, for campaigns with this option",
    )
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _tried(check: Callable[[Case], str], name: str, case: Case, failures: Path) -> dict:
    """Return the result of a case in words: its verdict, why it was skipped, or the error and the file that replays it."""
    try:
        return {"verdict": check(case), "what": case.what, "note": case.note}
    except KeyboardInterrupt:
        raise
    except Skip as reason:
        return {"left out": str(reason), "what": case.what}
    except BaseException as error:  # every exception of a case is a finding of the campaign
        path = _write_failure(failures, name, case, error)
        return {"error": _brief(error), "what": case.what, "note": case.note, "replay": str(path)}


def _brief(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}"


def _write_failure(folder: Path, name: str, case: Case, error: BaseException) -> Path:
    """Write a file that replays and explains a failing case."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{name}-{case.seed}-{case.number}"
    for ending, content in case.files.items():
        (folder / f"{stem}.{ending}").write_bytes(content)
    versions = {module.__name__: module.__version__ for module in (vicinal, np, scipy, sklearn)}
    record = {
        "campaign": name, "seed": case.seed, "number": case.number, "rows": case.rows, "what": case.what, "text": case.text,
        "error": _brief(error), "traceback": "".join(traceback.format_exception(error)),
        "versions": {**versions, "python": platform.python_version()},
    }  # fmt: skip
    path = folder / f"{stem}.json"
    path.write_text(json.dumps(record, indent=1))
    return path


def _replay(campaign: ModuleType, path: str) -> int:
    record = json.loads(Path(path).read_text())
    case = Case(record["seed"], record["number"], record["rows"])
    try:
        print(campaign.check(case))
    except Exception:
        traceback.print_exc()
        print(f"{case.what}: {case.text}", file=sys.stderr)
        return 1
    return 0
