"""The options of `vicinal papers`.  Imports nothing heavy."""

import argparse
from collections.abc import Callable
from typing import Any

from vicinal._app.paths import add_input, add_output

_DESCRIPTION = """\
Reproduce the tables and figures of the four papers: results (JSON), pictures (PNG) and a page for each paper
with the paper's number or claim beside ours. A part whose data or package is missing is skipped and says so.
Seeds are part of the experiments: --seed changes nothing here. Exit code 8 when a claim fails that is not known to.

Every unit of work is kept on disk as soon as it is measured: a run that was interrupted or killed goes on where it was, and
--figure, --jobs and --minutes cut a long run into parts.
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
        "--quick", dest="full", action="store_false", help="minutes, without data files or network (default)"
    )
    size.add_argument(
        "--full", dest="full", action="store_true", help="the papers' own sizes and data sets; hours (see --list)"
    )
    size.add_argument(
        "--reduced", action="store_true", help="the data sets of the papers, with fewer runs or rows; see the pages"
    )
    add_input(papers, "--data", folder=True, metavar="DIR", help="folder of the real data sets; default: $VICINAL_DATA")
    add_output(
        papers, "-o", "--output", folder=True, metavar="DIR", default="vicinal-papers",
        help="folder for results, pictures and pages; a run that was interrupted goes on from it; default vicinal-papers",
    )  # fmt: skip
    papers.add_argument(
        "--jobs", type=whole, metavar="N",
        help="units of work at a time, each in a process with its share of the cores; default: one per core, or 1 with --figure",
    )  # fmt: skip
    papers.add_argument(
        "--minutes",
        type=_minutes,
        metavar="M",
        help="begin nothing new after M minutes; the same command goes on later",
    )
    papers.add_argument(
        "--measure", action="store_true", help="record results only: no pictures, no pages, and no matplotlib needed"
    )
    papers.add_argument(
        "--device",
        metavar="NAME",
        help="a torch device, as in cuda, for the heaviest pair work; default: the processor",
    )
    papers.add_argument("--fresh", action="store_true", help="measure anew what has been measured")
    papers.add_argument("--list", action="store_true", help="list the tables and figures with their minutes, and stop")


def _minutes(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise argparse.ArgumentTypeError(f"expected a number of minutes above 0, got {text!r}")
    return value
