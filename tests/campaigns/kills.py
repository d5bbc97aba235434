"""SIGKILL at random moments of saving, ``learn``, ``compare`` and ``papers`` loses nothing and leaves no files behind.

An existing file is unchanged or completely replaced. The next run removes the files that the killed one left and gives the
same result, with and without ``--resume``; ``papers`` continues from its saved measurements.

A command spends most of its time on imports. Most kills of ``learn`` and ``compare`` therefore wait until the command has
begun to keep its work. These runs are continued with ``--resume``; some of them are killed a second time, or lose the last
bytes of what they kept, as in a crash of the machine.
"""

import json
import os
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

import vicinal
from campaigns.harness import Bad, Case, Skip, environment
from vicinal import cli, io

CASES = 100
LONGEST = 900.0
_SAVE = """
import sys, numpy as np
from vicinal import io, ParzenWindows
rows = np.random.default_rng(0).normal(size=(30_000, 10))
model = ParzenWindows(1.0).fit(rows)
print("ready", flush=True)
for i in range(1000):
    io.save(model.set_params(bandwidth=float(i + 1)), sys.argv[1])
    print(i, flush=True)
"""
# A fit and a comparison that take a few seconds in many steps, without compiled kernels.
_COMMANDS = {
    "learn": ["learn", "t.csv", "--columns", "a,b,c,d", "--method", "lca", "--set", "solver=em", "--set", "tol=1e-13",
              "--set", "max_iter=150", "--set", "reg=0.01", "-o", "out.vicinal"],
    "compare": ["compare", "t.csv", "--target", "y", "--folds", "3", "--repeats", "1", "--methods", "euclidean,z-scored,rca,nca,parzen-loo", "--report", "out.html", "--json"],
    "papers": ["papers", "rca", "--figure", "11", "-o", "papers", "-q"],
}  # fmt: skip
_OUTPUTS = {"learn": "out.vicinal", "compare": "out.html", "papers": "papers"}


def check(case: Case) -> str:
    """Kill one process, and check the files that it leaves and the next run."""
    if not hasattr(os, "fork"):
        raise Skip("there is no fork")
    case.what = str(case.choice(["save", "save", "learn", "learn", "compare", "compare", "papers"]))
    with TemporaryDirectory(prefix="vicinal-campaign-") as folder:
        return _save(case, Path(folder)) if case.what == "save" else _command(case, Path(folder))


def _save(case: Case, folder: Path) -> str:
    path = folder / "model.vicinal"
    process = subprocess.Popen(
        [sys.executable, "-c", _SAVE, path], env=environment(), stdout=subprocess.PIPE, text=True
    )
    try:
        process.stdout.readline()
        time.sleep(float(case.rng.exponential(0.05)))
    finally:
        process.kill()
    said = process.stdout.read().split()
    process.wait()
    done = int(said[-1]) if said and said[-1].isdigit() else -1
    case.text = f"killed after {done + 1} saves"
    if path.exists():
        got = io.load(path).bandwidth
        if got not in (done + 1, done + 2):
            raise Bad(f"after {done + 1} saves the file is that of {got:g}")
    elif done >= 0:
        raise Bad("the file was lost")
    io.save(vicinal.ParzenWindows(), path)
    if os.listdir(folder) != ["model.vicinal"]:
        raise Bad(f"the next save left {sorted(os.listdir(folder))}")
    return "the old file or the new one"


class _Command:
    """A command in a forked process, so that only the work is repeated in each case, and not the imports."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        self._folder = folder
        self.returncode: int | None = None
        self._pid = os.fork()
        if self._pid == 0:
            code = 1
            try:
                os.chdir(folder)
                for descriptor, name in ((1, "said.json"), (2, "words.txt")):
                    os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
                code = cli.main(arguments)
            except SystemExit:
                code = 2
            finally:
                os._exit(code)

    def poll(self) -> int | None:
        """Return the exit code, or None while the command is running."""
        if self.returncode is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, seconds: float = float("inf")) -> bool:
        """Return whether the command ended within some seconds."""
        end = time.monotonic() + seconds
        while self.poll() is None and time.monotonic() < end:
            time.sleep(0.002)
        return self.returncode is not None

    def kill(self) -> None:
        """Kill the command."""
        os.kill(self._pid, signal.SIGKILL)
        self.wait()

    def words(self) -> str:
        """Return the messages."""
        return (self._folder / "words.txt").read_text()


def _table(folder: Path) -> None:
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(size=(800, 4)), np.arange(800) % 2])
    np.savetxt(folder / "t.csv", rows, delimiter=",", header="a,b,c,d,y", comments="")


class _Plain(NamedTuple):
    """An undisturbed run: its seconds, those until it began to keep its work, and its result."""

    seconds: float
    begins: float
    result: str


@cache
def _undisturbed(name: str) -> _Plain:
    with TemporaryDirectory(prefix="vicinal-campaign-") as text:
        folder = Path(text)
        _table(folder)
        began = time.monotonic()
        command = _Command(_COMMANDS[name], folder)
        begins = _wait_for_work(command, folder / f"{_OUTPUTS[name]}.partial") if name != "papers" else 0.0
        command.wait()
        if command.returncode:
            raise Skip(f"{name} ends with {command.returncode}: {command.words()[-200:]}")
        return _Plain(time.monotonic() - began, begins, _result(name, folder))


def _wait_for_work(command: _Command, partial: Path) -> float:
    """Wait until a command has kept its first piece of work, after the line that identifies it; return the seconds."""
    began = time.monotonic()
    while command.poll() is None and not _pieces(partial):
        time.sleep(0.002)
    return time.monotonic() - began


def _pieces(partial: Path) -> int:
    """Return how many lines were kept after the first one: a piece of work has at least one line."""
    try:
        return max(partial.read_bytes().count(b"\n") - 1, 0)
    except FileNotFoundError:
        return 0


def _is_whole(name: str, folder: Path) -> bool:
    """Return whether the output is complete; loading a damaged model raises a ValueError."""
    output = folder / _OUTPUTS[name]
    return output.read_text().rstrip().endswith("</html>") if name == "compare" else io.load(output) is not None


def _result(name: str, folder: Path) -> str:
    """Return the part of the output that is the same in every run."""
    if name == "learn":
        return str(io.load(folder / "out.vicinal")[-1].components_.tobytes().hex())
    if name == "compare":
        if not _is_whole(name, folder):
            raise Bad("the report is cut")
        return json.dumps(_without_seconds(json.loads((folder / "said.json").read_text())), sort_keys=True)
    files = sorted((folder / "papers" / "results").rglob("*.json"))
    return json.dumps({file.name: _without_seconds(json.loads(file.read_text())) for file in files}, sort_keys=True)


def _without_seconds(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_seconds(item) for key, item in value.items() if "second" not in key and key != "machine"}
    return [_without_seconds(item) for item in value] if isinstance(value, list) else value


def _command(case: Case, folder: Path) -> str:
    plain = _undisturbed(case.what)
    _table(folder)
    output, old = folder / _OUTPUTS[case.what], b"an older file\n"
    partial = Path(f"{output}.partial")
    if case.what != "papers":
        output.write_bytes(old)
    killed = _killed(case, _COMMANDS[case.what], folder, plain)
    if case.what != "papers" and output.read_bytes() != old and not _is_whole(case.what, folder):
        raise Bad("the output is neither the old file nor the new one")
    resume = partial.exists() and case.chance(0.8)
    if resume and case.chance(0.3):
        _lose_the_end(case, partial)
    command = [*_COMMANDS[case.what], *["--resume"] * resume]
    if resume and case.chance(0.3):
        case.text += ", again"
        _killed(case, command, folder, plain)
        resume = partial.exists()  # it may have finished
        command = [*_COMMANDS[case.what], *["--resume"] * resume]
    pieces = _pieces(partial)
    again = _Command(command, folder)
    again.wait()
    if again.returncode:
        raise Bad(f"the next run ends with {again.returncode}: {again.words()[-300:]}")
    if _result(case.what, folder) != plain.result:
        raise Bad("the next run gives another answer")
    litter = [str(path.relative_to(folder)) for ending in ("tmp", "partial") for path in folder.rglob(f"*.{ending}")]
    if litter:
        raise Bad(f"the next run left {litter}")
    if not killed:
        return "it had ended before the kill"
    if not resume:
        return "the same answer after a kill"
    reused = int(again.words().split("reused ")[1].split()[0]) if case.what == "learn" else pieces
    return "the same answer, continued with --resume" if reused else "the same answer with --resume, nothing was kept"


def _killed(case: Case, arguments: list[str], folder: Path, plain: _Plain) -> bool:
    """Start a command and kill it at a random moment; return False if it had ended before."""
    command = _Command(arguments, folder)
    if case.what != "papers" and case.chance(0.8):
        _wait_for_work(command, folder / f"{_OUTPUTS[case.what]}.partial")
        wait = float(case.rng.uniform(0.0, 1.0)) * (plain.seconds - plain.begins)
        case.text += f" killed {wait:.2f} s after it began to keep its work"
    else:
        wait = float(case.rng.uniform(0.3, 1.05)) * plain.seconds
        case.text += f" killed after {wait:.2f} of {plain.seconds:.2f} s"
    if command.wait(wait):
        return False
    command.kill()
    return True


def _lose_the_end(case: Case, partial: Path) -> None:
    """Cut off the last bytes of what was kept."""
    lost = int(case.rng.integers(1, 200))
    case.text += f", without the last {lost} bytes"
    os.truncate(partial, max(partial.stat().st_size - lost, 0))
