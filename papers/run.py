"""Reproduce the tables and figures of the four papers.

    python papers/run.py                          list them, with the minutes that each takes on one core without a GPU
    python papers/run.py rca figure_8             run one in quick mode: no data files, no network
    python papers/run.py rca figure_8 --full      run it with the data of the paper, and store results and pictures; its page says how many runs it has
    python papers/run.py nca --full --jobs 16     all of a paper
    python papers/run.py --pages                  write docs/papers/*.md from the stored results
    python papers/run.py --check                  list the verdicts of the stored results that change with the grids

A unit of work of a full run is stored in papers/results as soon as it is measured, and units that are stored are not measured again:
an interrupted run continues where it ended. Delete the file of an experiment to measure all of it again.  The exit code of a quick run is 1
if a claim does not hold, and that of `--check` is 1 if a verdict changes.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path[:1] = [str(Path(__file__).resolve().parents[1])]  # the experiments are imported as a package

from importlib import import_module

from joblib import Parallel, delayed

from papers.drawing import style
from papers.experiment import PAPERS, Experiment, Missing, Setting, experiments
from papers.page import page, verdict, verdicts_by_grid
from papers.results import Results, machine, read, write

HERE = Path(__file__).resolve().parent
PAGES = HERE.parent / "docs" / "papers"
EMPTY = Results([], [], [])


def timed(module: str, setting: Setting, unit: dict) -> tuple[dict, dict, float]:
    """Measure a unit; return the unit, the result and the seconds: of the processor, or of the clock with a device."""
    clock = time.perf_counter if setting.device else time.process_time
    begin = clock()
    result = import_module(module).measure(setting, **unit)
    return unit, result, round(clock() - begin, 3)


def measure(experiment: Experiment, setting: Setting, jobs: int, stored: Results = EMPTY) -> Iterator[Results]:
    """Yield the results of an experiment after each unit that is measured, in several processes if `jobs` is not 1."""
    units, here = experiment.module.units(setting), machine(setting.device)
    done = {json.dumps(entry["unit"]): entry for entry in stored.units}
    machines = stored.machines if here in stored.machines else [*stored.machines, here]
    calls = (
        delayed(timed)(experiment.module.__name__, setting, unit) for unit in units if json.dumps(unit) not in done
    )
    yield _arranged(units, done, machines, stored.pictures)
    for unit, result, seconds in Parallel(n_jobs=jobs, return_as="generator_unordered")(calls):
        entry = {"unit": unit, "result": result, "seconds": seconds, "machine": machines.index(here)}
        done[json.dumps(unit)] = entry
        yield _arranged(units, done, machines, stored.pictures)


def _arranged(units: list[dict], done: dict[str, dict], machines: list[dict], pictures: list[str]) -> Results:
    """Return the results in the order of the units, with the machines that measured them."""
    entries = [done[key] for unit in units if (key := json.dumps(unit)) in done]
    used = sorted({entry["machine"] for entry in entries})
    renumbered = [{**entry, "machine": used.index(entry["machine"])} for entry in entries]
    return Results([machines[number] for number in used], pictures, renumbered)


def draw(experiment: Experiment, setting: Setting, results: Results, folder: Path) -> list[str]:
    """Draw the pictures into a folder and return their names."""
    from matplotlib import pyplot as plt

    with style():
        figures = experiment.module.draw(setting, results.records)
    for name, figure in figures.items():
        figure.savefig(folder / f"{experiment.paper}-{name}.png", dpi=100)
        plt.close(figure)
    return list(figures)


def run(experiment: Experiment, setting: Setting, jobs: int) -> bool:
    """Run an experiment and print its claims; store results and pictures of a full run.  Return whether all claims hold."""
    print(f"{experiment.paper} {experiment.name}: {experiment.title}", flush=True)
    results = EMPTY
    try:
        if reason := experiment.missing(setting):
            raise Missing(reason)
        for results in measure(experiment, setting, jobs, read(experiment) if setting.full else EMPTY):
            if setting.full:
                write(experiment, results)
        if setting.full:
            pictures = draw(experiment, setting, results, PAGES)
            print(f"  wrote {write(experiment, results._replace(pictures=pictures))}.")
    except Missing as error:
        print(f"  skipped: {error}")
        return True
    claims = experiment.module.summarise(setting, results.records).claims
    for claim in claims:
        print(f"  [{verdict(claim)}] {claim.says}: {claim.evidence}")
    return all(claim.holds for claim in claims)


def check(experiment: Experiment) -> bool:
    """Print the verdicts of an experiment that change with its grids.  Return whether there are none."""
    verdicts = verdicts_by_grid(experiment)
    on_grids = [row for row in verdicts if row.depends]
    print(f"{experiment.paper} {experiment.name}: {len(verdicts)} verdicts, {len(on_grids)} of them by a stored grid")
    changed = [row for row in on_grids if row.changes]
    for row in changed:
        print(f"  {row.claims['whole'].says}")
        for grid, claim in row.claims.items():
            print(f"    [{verdict(claim)}] {grid} grid: {claim.evidence}")
    return not changed


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paper", nargs="?", choices=PAPERS, help="one of the papers")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="tables or figures, as the list names them; default: all"
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="the data sets and sizes of the paper, as many runs as the page says; takes hours",
    )
    parser.add_argument("--data", metavar="DIR", help="folder of the real data sets; default: $VICINAL_DATA")
    parser.add_argument("--device", metavar="NAME", help="a torch device for the most expensive computations")
    parser.add_argument("--jobs", type=int, default=1, help="the number of units of work at a time; -1: one per core")
    parser.add_argument("--pages", action="store_true", help="write the pages from the stored results, and stop")
    parser.add_argument("--check", action="store_true", help="list the verdicts that change with the grids, and stop")
    parser.add_argument("--draw", action="store_true", help="draw the pictures of stored results again, and stop")
    options = parser.parse_args(argv)
    papers = [options.paper] if options.paper else list(PAPERS)
    if options.pages:
        for paper in papers:
            (PAGES / f"{PAPERS[paper][0]}.md").write_text(page(paper), encoding="utf-8")
        return 0
    chosen = [experiment for paper in papers for experiment in experiments(paper)]
    unknown = set(options.names) - {experiment.name for experiment in chosen}
    if unknown:
        parser.error(
            f"{options.paper} has no {', '.join(sorted(unknown))}. Run the command without arguments for a list."
        )
    chosen = [experiment for experiment in chosen if not options.names or experiment.name in options.names]
    setting = Setting(options.full, options.data, options.device)
    if options.draw:
        for experiment in chosen:
            draw(experiment, Setting(True, options.data), read(experiment), PAGES)
        return 0
    if options.check:
        steady = [check(experiment) for experiment in chosen]
        return 0 if all(steady) else 1
    if not options.paper:
        for experiment in chosen:
            quick, full = experiment.module.MINUTES
            print(
                f"{experiment.paper:8} {experiment.name:14} {experiment.title} (quick {quick:g}, full {full:g} minutes)"
            )
        return 0
    holding = [run(experiment, setting, options.jobs) for experiment in chosen]
    return 0 if all(holding) or setting.full else 1


if __name__ == "__main__":
    sys.exit(main())
