"""Plant each fault of `faults.py` in a copy of the tree, run the tests there, and print which of them noticed.

    python tests/planted_faults --jobs 16 --output faults.md

A fault is first tried with the test files that concern it, in the default selection of tests. One that goes unnoticed is tried with
all files of the default run, and then with the tests that are marked `slow`: the default run must notice whatever the
full one notices. Tests that fail without any fault on this machine (because a tool is missing, say) are found first
and left out. The exit status is 1 where only a slow test noticed a fault, and 2 where a fault cannot be planted.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from faults import FAULTS, Fault

ROOT = Path(__file__).resolve().parents[2]
# What tests read; compiled kernels are copied with the sources, and serve wherever no kernel was changed.
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
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+::.+?|\S+\.py)(?: - .*)?$", re.MULTILINE)
# They check texts, or browse: no fault of these concerns them, and each takes long.
APART = ("test_docs.py", "test_papers.py", "test_report_browser.py", "test_site.py", "test_types.py")


class Run(NamedTuple):
    """How a run of tests ended: tests that failed, or "time" where it was stopped."""

    failed: list[str]
    seconds: float


class Found(NamedTuple):
    """Who noticed a fault: "default", "slow" or "nobody"."""

    by: str
    test: str
    seconds: float


def copied(folder: Path) -> Path:
    """A copy of the tree in a folder, times of change included: the compiler's cache goes by them."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, symlinks=True, ignore=shutil.ignore_patterns("results", "*.pyc"))
        elif source.exists():
            shutil.copy2(source, folder / name)
    return folder


def run_tests(tree: Path, files: list[str], selection: str, left_out: list[str], limit: float, stop: bool) -> Run:
    """Run test files of a tree; `stop` ends it at the first failure."""
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
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = os.environ | threads | {"PYTHONPATH": str(tree / "src"), "MPLBACKEND": "Agg", "PYTHONHASHSEED": "0"}
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


def without_faults(files: list[str], jobs: int, limit: float, folder: Path) -> list[str]:
    """The tests of some files that fail on this machine as it is."""
    tree = copied(folder)
    with ThreadPoolExecutor(jobs) as pool:
        runs = list(pool.map(lambda name: run_tests(tree, [name], "slow or not slow", [], limit, stop=False), files))
    return sorted({test for run in runs for test in run.failed})


def try_fault(fault: Fault, everything: list[str], left_out: list[str], limit: float, whole: bool) -> Found:
    """Plant one fault, and find out who notices."""
    with tempfile.TemporaryDirectory(prefix="planted-") as name:
        tree = copied(Path(name))
        file = tree / "src" / "vicinal" / fault.file
        file.write_text(file.read_text(encoding="utf-8").replace(fault.text, fault.planted), encoding="utf-8")
        near = [f"{test}.py" for test in fault.tests]
        rest = [test for test in everything if test not in near]
        attempts = [("default", near, "not slow")]
        if whole:
            attempts += [("default", rest, "not slow")]
        attempts += [("slow", everything if whole else near, "slow")]
        seconds = 0.0
        for by, files, selection in attempts:
            run = run_tests(tree, files, selection, left_out, limit, stop=True)
            seconds += run.seconds
            if run.failed:
                return Found(by, run.failed[0], seconds)
        return Found("nobody", "", seconds)


def table(found: list[tuple[Fault, Found]]) -> str:
    """The answer as a table in Markdown."""
    lines = ["| # | file | what goes wrong | noticed by | the first test that fails |", "|---|---|---|---|---|"]
    for number, (fault, who) in enumerate(found, 1):
        test = who.test.removeprefix("tests/").replace("|", "\\|")
        lines.append(f"| {number} | `{fault.file}` | {fault.wrong} | {who.by} | {f'`{test}`' if test else ''} |")
    counts = {by: sum(who.by == by for _, who in found) for by in ("default", "slow", "nobody")}
    lines += [
        "",
        f"{len(found)} faults: the default run noticed {counts['default']}, only slow tests noticed {counts['slow']}, and "
        f"nobody noticed {counts['nobody']}.",
    ]
    return "\n".join(lines)


def misplaced() -> list[str]:
    """Faults that cannot be planted: their text does not occur exactly once."""
    said = []
    for number, fault in enumerate(FAULTS, 1):
        times = (ROOT / "src" / "vicinal" / fault.file).read_text(encoding="utf-8").count(fault.text)
        if times != 1:
            said.append(f"fault {number}: {fault.text!r} occurs {times} times in {fault.file}")
    return said


def main() -> int:
    """Try the faults that were asked for."""
    parser = argparse.ArgumentParser(prog="python tests/planted_faults", description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2, help="faults that are tried at once")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of the faults to try, from 1 on")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds that a run of tests may take")
    parser.add_argument("--near", action="store_true", help="run only the test files that concern a fault")
    parser.add_argument("--output", type=Path, help="a file for the table")
    options = parser.parse_args()
    if said := misplaced():
        print(*said, sep="\n")
        return 2
    chosen = [FAULTS[number - 1] for number in options.only or range(1, len(FAULTS) + 1)]
    everything = sorted(path.name for path in (ROOT / "tests").glob("test_*.py") if path.name not in APART)
    if options.near:
        everything = sorted({f"{test}.py" for fault in chosen for test in fault.tests})
    with tempfile.TemporaryDirectory(prefix="unchanged-") as name:
        left_out = without_faults(everything, options.jobs, options.limit, Path(name))
    print(f"left out, because they fail without a fault: {', '.join(left_out) or 'none'}", flush=True)

    def one(fault: Fault) -> tuple[Fault, Found]:
        who = try_fault(fault, everything, left_out, options.limit, not options.near)
        print(f"{who.by:8} {who.seconds:6.0f} s  {fault.file}: {fault.wrong}  {who.test}", flush=True)
        return fault, who

    with ThreadPoolExecutor(options.jobs) as pool:
        found = list(pool.map(one, chosen))
    text = table(found)
    print(text)
    if options.output is not None:
        options.output.write_text(text + "\n", encoding="utf-8")
    return int(any(who.by == "slow" for _, who in found))


if __name__ == "__main__":
    sys.exit(main())
