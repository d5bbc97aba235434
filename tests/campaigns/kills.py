"""SIGKILL at random moments of saving, ``learn``, ``compare`` and ``papers`` loses nothing and leaves no files behind.

An existing file is unchanged or completely replaced. The next run removes the files that the killed one left and gives the
same result, with and without ``--resume``; ``papers`` continues from its saved measurements.
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

import numpy as np

import vicinal
from campaigns.harness import Bad, Case, Skip, environment
from vicinal import io

CASES = 100
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
_COMMANDS = {
    "learn": ["learn", "t.csv", "--method", "lca", "-o", "out.vicinal", "-q"],
    "compare": ["compare", "t.csv", "--target", "y", "--folds", "2", "--methods", "euclidean,z-scored", "--report", "out.html", "--json", "-q"],
    "papers": ["papers", "rca", "--figure", "11", "-o", "papers", "-q"],
}  # fmt: skip
_OUTPUTS = {"learn": "out.vicinal", "compare": "out.html", "papers": "papers"}


def check(case: Case) -> str:
    """Kill one process, and check the files that it leaves and the next run."""
    if not hasattr(signal, "SIGKILL"):
        raise Skip("there is no SIGKILL")
    case.what = str(case.choice(["save", "save", "save", *_COMMANDS]))
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


def _run(arguments: list[str], folder: Path) -> subprocess.Popen:
    command = [sys.executable, "-m", "vicinal", *arguments]
    with open(folder / "said.json", "wb") as said:
        return subprocess.Popen(
            command, cwd=folder, env=environment(), stdout=said, stderr=subprocess.PIPE, start_new_session=True
        )


def _table(folder: Path) -> None:
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(size=(400, 4)), np.arange(400) % 2])
    np.savetxt(folder / "t.csv", rows, delimiter=",", header="a,b,c,d,y", comments="")


@cache
def _undisturbed(name: str) -> tuple[float, str]:
    """Return how long the command takes, and its result."""
    with TemporaryDirectory(prefix="vicinal-campaign-") as folder:
        _table(Path(folder))
        began = time.monotonic()
        process = _run(_COMMANDS[name], Path(folder))
        _, words = process.communicate()
        if process.returncode:
            raise Skip(f"{name} ends with {process.returncode}: {words.decode()[-200:]}")
        return time.monotonic() - began, _result(name, Path(folder))


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
    seconds, expected = _undisturbed(case.what)
    _table(folder)
    output = folder / _OUTPUTS[case.what]
    old = b"an older file\n"
    if case.what != "papers":
        output.write_bytes(old)
    process = _run(_COMMANDS[case.what], folder)
    wait = float(case.rng.uniform(0.3, 1.05)) * seconds
    case.text = f"killed after {wait:.2f} of {seconds:.2f} s"
    try:
        process.communicate(timeout=wait)
        killed = False
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        killed = True
    if case.what != "papers" and output.read_bytes() != old and not _is_whole(case.what, folder):
        raise Bad("the output is neither the old file nor the new one")
    resume = case.chance(0.5) and Path(f"{output}.partial").exists()
    case.text += ", resumed" if resume else ""
    again = _run([*_COMMANDS[case.what], *["--resume"] * resume], folder)
    _, words = again.communicate()
    if again.returncode:
        raise Bad(f"the next run ends with {again.returncode}: {words.decode()[-300:]}")
    if _result(case.what, folder) != expected:
        raise Bad("the next run gives another answer")
    litter = [str(path.relative_to(folder)) for ending in ("tmp", "partial") for path in folder.rglob(f"*.{ending}")]
    if litter:
        raise Bad(f"the next run left {litter}")
    return (
        f"the same answer {'with --resume' if resume else 'after a kill'}" if killed else "it had ended before the kill"
    )
