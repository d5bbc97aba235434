"""Plant each fault of `faults.py` in a copy of the tree, run the tests there, and print which of them detect it.

    python tests/planted_faults --jobs 16 --output tests/planted_faults/results.md

A fault is first tried with the test that detected it last time (`results.md`), then with the test files that concern it, in the
default selection of tests. If none of them fails, it is tried with all files of the default run, and then with the tests that
are marked `slow`: the default run must detect every fault that the full run detects. A test that fails is repeated without the fault, and does not count if it fails there, too
(for example, because a tool is missing on this machine). The exit status is 1 if only a slow test detects a fault, and 2 if a
fault cannot be planted (`--check` checks only this, within a second).
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from faults import FAULTS, Fault

ROOT = Path(__file__).resolve().parents[2]
# The files that tests read. Compiled kernels are copied with the sources and are used unless a kernel was changed.
COPIED = (
    "src",
    "tests",
    "docs",
    "examples",
    "benchmarks",
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
    "CITATION.cff",
    "LICENSE",
)
RESULTS = Path(__file__).with_name("results.md")
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+::.+?|\S+\.py)(?: - .*)?$", re.MULTILINE)
# These check texts or use a browser. They take long, and no fault in the list concerns them.
APART = ("test_docs.py", "test_papers.py", "test_report_browser.py", "test_site.py", "test_types.py")


class Run(NamedTuple):
    """The result of a run of tests: the tests that failed, or "time" if it was stopped."""

    failed: list[str]
    seconds: float


class Found(NamedTuple):
    """Which tests detect a fault: "default", "slow" or "nobody"; "time" if the tests were stopped before any of them failed."""

    by: str
    test: str
    seconds: float


def copied(folder: Path) -> Path:
    """Copy the tree to a folder, with the modification times, which the compiler's cache compares."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, symlinks=True, ignore=shutil.ignore_patterns("results", "*.pyc"))
        elif source.exists():
            shutil.copy2(source, folder / name)
    return folder


def run_tests(tree: Path, files: list[str], selection: str, left_out: list[str], limit: float, stop: bool) -> Run:
    """Run test files of a tree; with `stop`, the run ends at the first failure."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--tb=no",
        "--no-header",
        "-m",
        selection,
    ]
    command += ["-x"] * stop + [f"--deselect={test}" for test in left_out if "::" in test]
    command += [f"--ignore={test}" for test in left_out if "::" not in test]
    path = os.pathsep.join([str(tree / "src"), os.environ.get("PYTHONPATH", "")])
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = os.environ | threads | {"PYTHONPATH": path, "MPLBACKEND": "Agg", "PYTHONHASHSEED": "0"}
    started = time.monotonic()
    try:
        done = subprocess.run(
            [*command, *(f"tests/{name}" for name in files)],
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Run(["time"], limit)
    failed = FAILED.findall(done.stdout)
    if not failed and done.returncode not in (0, 5):  # 5: no test is selected
        failed = [f"exit status {done.returncode}: {(done.stdout + done.stderr)[-200:]}"]
    return Run(failed, time.monotonic() - started)


class Unchanged:
    """The tree without a fault, which shows whether a test fails on this machine in any case."""

    def __init__(self, folder: Path, limit: float) -> None:
        self._tree, self._limit, self._known = copied(folder), limit, {}
        self._lock = threading.Lock()

    def fails(self, test: str) -> bool:
        """Return whether a test also fails without a fault."""
        if test == "time" or test.startswith("exit status"):
            return False
        with self._lock:
            if test not in self._known:
                run = run_tests(
                    self._tree, [test.removeprefix("tests/")], "slow or not slow", [], self._limit, stop=False
                )
                self._known[test] = bool(run.failed)
            return self._known[test]

    def failing(self) -> list[str]:
        """Return the tests that are known to fail without a fault."""
        return sorted(test for test, fails in self._known.items() if fails)


def detected_last_time() -> dict[tuple[int, str], str]:
    """Return the test that detected each fault, by number and file, as `results.md` has it."""
    text = RESULTS.read_text(encoding="utf-8") if RESULTS.is_file() else ""
    rows = re.findall(r"^\| (\d+) \| `(.+?)` \| .+ \| default \| `(.+)` \|$", text, re.MULTILINE)
    return {(int(number), file): test.replace("\\|", "|") for number, file, test in rows}


def first_failure(tree: Path, files: list[str], selection: str, unchanged: Unchanged, limit: float) -> Run:
    """Return the first test of some files that fails in a tree but not without the fault, if there is one."""
    seconds = 0.0
    while True:
        run = run_tests(tree, files, selection, unchanged.failing(), limit, stop=True)
        seconds += run.seconds
        if not run.failed or not unchanged.fails(run.failed[0]):
            return Run(run.failed[:1], seconds)


def try_fault(fault: Fault, known: str | None, everything: list[str], unchanged: Unchanged, limit: float) -> Found:
    """Plant one fault, and find out which tests detect it; `known` is the test that did last time."""
    with tempfile.TemporaryDirectory(prefix="planted-") as name:
        tree = copied(Path(name))
        file = tree / "src" / "vicinal" / fault.file
        file.write_text(file.read_text(encoding="utf-8").replace(fault.text, fault.planted), encoding="utf-8")
        near = [f"{test}.py" for test in fault.tests]
        rest = [test for test in everything if test not in near]
        attempts = [("default", [known] if known else [], "not slow"), ("default", near, "not slow")]
        attempts += [("default", rest, "not slow"), ("slow", [*near, *rest], "slow")]
        seconds = 0.0
        for by, files, selection in attempts:
            if files:
                run = first_failure(tree, files, selection, unchanged, limit)
                seconds += run.seconds
                if run.failed and not run.failed[0].startswith("exit status 4"):  # 4: there is no such test any more
                    return Found("time" if run.failed == ["time"] else by, run.failed[0], seconds)
        return Found("nobody", "", seconds)


def compile_here(jobs: int) -> None:
    """Compile all kernels of this tree in several processes, so that copies of the tree find them in their cache."""
    with tempfile.TemporaryDirectory(prefix="kernels-") as folder:
        code = f"import conftest, pathlib; conftest._compile_what_nobody_else_does(pathlib.Path({folder!r}))"
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
        command, environment = [sys.executable, "-c", code], os.environ | {"PYTHONPATH": path}
        for process in [subprocess.Popen(command, env=environment) for _ in range(jobs)]:
            process.wait()


def table(found: dict[int, tuple[Fault, Found]]) -> str:
    """Return the results as a table in Markdown."""
    lines = ["| # | file | what goes wrong | detected by | the first test that fails |", "|---|---|---|---|---|"]
    for number, (fault, who) in sorted(found.items()):
        test = who.test.removeprefix("tests/").replace("|", "\\|")
        lines.append(f"| {number} | `{fault.file}` | {fault.wrong} | {who.by} | {f'`{test}`' if test else ''} |")
    counts = {by: sum(who.by == by for _, who in found.values()) for by in ("default", "slow", "nobody", "time")}
    lines += [
        "",
        f"{len(found)} faults: the default run detects {counts['default']}, only slow tests detect {counts['slow']}, and "
        f"no test detects {counts['nobody']}. The tests of {counts['time']} were stopped by the time limit.",
    ]
    return "\n".join(lines)


def misplaced() -> list[str]:
    """Describe the faults that cannot be planted: their text does not occur exactly once, or the result is not valid Python."""
    said = []
    for number, fault in enumerate(FAULTS, 1):
        path = ROOT / "src" / "vicinal" / fault.file
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if text.count(fault.text) != 1:
            said.append(f"fault {number}: {fault.text!r} occurs {text.count(fault.text)} times in {fault.file}")
            continue
        try:
            compile(text.replace(fault.text, fault.planted), fault.file, "exec")
        except SyntaxError as error:
            said.append(f"fault {number}: {fault.planted!r} in {fault.file} is not valid Python: {error}")
        missing = [test for test in fault.tests if not (ROOT / "tests" / f"{test}.py").is_file()]
        if missing:
            said.append(f"fault {number}: there is no test file {', '.join(missing)}")
    return said


def main() -> int:
    """Try the faults that are selected on the command line."""
    parser = argparse.ArgumentParser(prog="python tests/planted_faults", description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2, help="the number of faults that are tried at once")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of the faults to try, from 1 on")
    parser.add_argument("--limit", type=float, default=900.0, help="the time limit of a run of tests, in seconds")
    parser.add_argument("--near", action="store_true", help="run only the test files that concern a fault")
    parser.add_argument("--output", type=Path, help="a file for the table")
    parser.add_argument("--compile", action="store_true", help="compile all kernels first, for an empty cache")
    parser.add_argument("--check", action="store_true", help="only check that every fault can be planted; run no test")
    options = parser.parse_args()
    if said := misplaced():
        print(*said, sep="\n")
        return 2
    if options.check:
        print(f"all {len(FAULTS)} faults can be planted")
        return 0
    if options.compile:
        compile_here(options.jobs)
    numbers = options.only or range(1, len(FAULTS) + 1)
    everything = sorted(path.name for path in (ROOT / "tests").glob("test_*.py") if path.name not in APART)
    found: dict[int, tuple[Fault, Found]] = {}
    known = detected_last_time()

    def one(number: int) -> None:
        fault = FAULTS[number - 1]
        near = [f"{test}.py" for test in fault.tests]
        last = known.get((number, fault.file))
        who = try_fault(fault, last, near if options.near else everything, unchanged, options.limit)
        print(f"{number:3} {who.by:8} {who.seconds:6.0f} s  {fault.file}: {fault.wrong}  {who.test}", flush=True)
        found[number] = fault, who
        if options.output is not None:
            options.output.write_text(table(found) + "\n", encoding="utf-8")

    with tempfile.TemporaryDirectory(prefix="unchanged-") as name, ThreadPoolExecutor(options.jobs) as pool:
        unchanged = Unchanged(Path(name), options.limit)
        list(pool.map(one, numbers))
        print(f"tests that fail without a fault and do not count: {', '.join(unchanged.failing()) or 'none'}")
    print(table(found))
    return int(any(who.by == "slow" for _, who in found.values()))


if __name__ == "__main__":
    sys.exit(main())
