"""The options of `vicinal papers`.  Imports nothing heavy."""

import argparse
from collections.abc import Callable
from typing import Any

from vicinal._app.paths import add_input, add_output

_DESCRIPTION = """\
Reproduce the tables and figures of the four papers. The command writes results (JSON), pictures (PNG) and a page for each
paper that shows the paper's numbers and claims beside ours. An experiment whose data or package is missing is skipped with a
message. Seeds are part of the experiments, so --seed has no effect. The exit code is 8 if a claim fails that is not known to fail.

Every unit of work is saved as soon as it is measured: a run that was interrupted or killed continues where it ended, and
--figure, --jobs and --minutes divide a long run into parts.
"""


def add_papers(commands: Any, general: argparse.ArgumentParser, whole: Callable[[str], int]) -> None:
    """Add the command to the parser's commands; `whole` reads a whole number of at least 1."""
    papers = commands.add_parser(
        "papers", parents=[general], help="reproduce the tables and figures of the papers", description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    papers.add_argument("paper", nargs="?", choices=("lca", "mparzen", "rca", "nca"), help="one paper; default: all")
    papers.add_argument("--figure", metavar="N", help="figures or tables, as in 3, table1, eq12 or 3,4")
    papers.set_defaults(full=False)  # the first option of a pair would set it by its own action
    size = papers.add_mutually_exclusive_group()
    size.add_argument(
        "--quick",
        dest="full",
        action="store_false",
        help="small versions that take minutes, without data files or network (default)",
    )
    size.add_argument(
        "--full",
        dest="full",
        action="store_true",
        help="the sizes and data sets of the papers; takes hours (see --list)",
    )
    size.add_argument(
        "--reduced", action="store_true", help="the data sets of the papers, with fewer runs or rows; see the pages"
    )
    add_input(papers, "--data", folder=True, metavar="DIR", help="folder of the real data sets; default: $VICINAL_DATA")
    add_output(
        papers, "-o", "--output", folder=True, metavar="DIR", default="vicinal-papers",
        help="the folder for results, pictures and pages; an interrupted run continues from it; default vicinal-papers",
    )  # fmt: skip
    papers.add_argument(
        "--jobs", type=whole, metavar="N",
        help="the number of units of work at a time, each in a process with its share of the cores; default: one per core, or 1 with --figure",
    )  # fmt: skip
    papers.add_argument(
        "--minutes",
        type=_minutes,
        metavar="M",
        help="start no new work after M minutes; run the same command again to continue",
    )
    papers.add_argument(
        "--measure", action="store_true", help="record results only: no pictures, no pages, and no matplotlib needed"
    )
    papers.add_argument(
        "--device",
        metavar="NAME",
        help="a torch device, such as cuda, for the most expensive pairwise computations; default: the CPU",
    )
    papers.add_argument("--fresh", action="store_true", help="repeat measurements that have already been made")
    papers.add_argument("--list", action="store_true", help="list the tables and figures with their minutes, and stop")


def _minutes(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise argparse.ArgumentTypeError(f"expected a number of minutes above 0, got {text!r}")
    return value
