"""Reproduce the tables and figures of the four papers.

    python papers/run.py                          list them, with the minutes that each takes on one core
    python papers/run.py rca figure_8             run one in quick mode: no data files, no network
    python papers/run.py rca figure_8 --full      run it at the sizes and with the data of the paper, and store results and pictures
    python papers/run.py nca --full --jobs 16     all of a paper
    python papers/run.py --pages                  write docs/papers/*.md from the stored results

A unit of work is cached in papers/.cache as soon as it is measured, so that an interrupted run continues where it ended; delete
that folder to measure everything again.  The exit code is 1 if a claim fails that is not known to fail.
"""

import argparse
import inspect
import sys
import time
from pathlib import Path

sys.path[:1] = [str(Path(__file__).resolve().parents[1])]  # the experiments are imported as a package

from importlib import import_module

from joblib import Memory, Parallel, delayed

from papers.drawing import style
from papers.experiment import PAPERS, Experiment, Missing, Setting, experiments
from papers.page import page, verdict
from papers.results import Results, machine, read, write

HERE = Path(__file__).resolve().parent
PAGES = HERE.parent / "docs" / "papers"


def timed(module: str, code: str, setting: Setting, unit: dict) -> tuple[dict, float]:
    """Measure a unit; return the result and the seconds. `code` is in the key of the cache, so that changed code is run."""
    begin = time.perf_counter()
    result = import_module(module).measure(setting, **unit)
    return result, round(time.perf_counter() - begin, 3)


def measure(experiment: Experiment, setting: Setting, jobs: int, cache: Path = HERE / ".cache") -> Results:
    """Measure the units of an experiment, in several processes if `jobs` is not 1."""
    units, code = experiment.module.units(setting), inspect.getsource(experiment.module)
    cached = Memory(cache, verbose=0).cache(timed)
    calls = (delayed(cached)(experiment.module.__name__, code, setting, unit) for unit in units)
    measured = Parallel(n_jobs=jobs, verbose=10 if setting.full else 0)(calls)
    entries = [
        {"unit": unit, "result": result, "seconds": seconds}
        for unit, (result, seconds) in zip(units, measured, strict=True)
    ]
    return Results(machine(), [], entries)


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
    """Run an experiment and print its claims; store results and pictures of a full run.  Return whether a claim fails."""
    print(f"{experiment.paper} {experiment.name}: {experiment.title}", flush=True)
    try:
        if reason := experiment.missing(setting):
            raise Missing(reason)
        results = measure(experiment, setting, jobs)
        if setting.full:
            pictures = draw(experiment, setting, results, PAGES)
            print(f"  wrote {write(experiment, results._replace(pictures=pictures))}.")
    except Missing as error:
        print(f"  skipped: {error}")
        return False
    claims = experiment.module.summarise(setting, results.records).claims
    for claim in claims:
        print(f"  [{verdict(claim)}] {claim.says}: {claim.evidence}")
        if not claim.holds and claim.departs:
            print(f"      {claim.departs}")
    return any(claim.fails for claim in claims)


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paper", nargs="?", choices=PAPERS, help="one of the papers")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="tables or figures, as the list names them; default: all"
    )
    parser.add_argument("--full", action="store_true", help="the sizes and data sets of the paper; takes hours")
    parser.add_argument("--data", metavar="DIR", help="folder of the real data sets; default: $VICINAL_DATA")
    parser.add_argument("--device", metavar="NAME", help="a torch device for the most expensive computations")
    parser.add_argument("--jobs", type=int, default=1, help="the number of units of work at a time; -1: one per core")
    parser.add_argument("--pages", action="store_true", help="write the pages from the stored results, and stop")
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
    if not options.paper:
        for experiment in chosen:
            quick, full = experiment.module.MINUTES
            print(
                f"{experiment.paper:8} {experiment.name:14} {experiment.title} (quick {quick:g}, full {full:g} minutes)"
            )
        return 0
    failing = [experiment.name for experiment in chosen if run(experiment, setting, options.jobs)]
    return 1 if failing else 0


if __name__ == "__main__":
    sys.exit(main())
