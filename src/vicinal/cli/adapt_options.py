"""The options of `vicinal adapt`.  Imports nothing heavy."""

import argparse
from typing import Any

from vicinal.cli.paths import add_input, add_output

_DESCRIPTION = """\
Learn an adapter for embeddings from pairs (or labels) that belong together, and measure whether it helps.

The pairs are divided into three parts that are not connected, even by a chain of pairs: one for learning, one for choosing
the method, and one for measuring it. The command compares the raw rows, rca (a closed form that keeps a part of the raw metric,
chosen by cross-validation) and anchors (each row learns to distinguish its partner from others). Rows are compared by their
direction. The best method is saved as a pipeline that normalises rows before and after its map. If the raw rows are best, no
model is written, and the verdict says so.

Vectors are .npy (not read into memory at once), .npz, Parquet with a column of vectors, or CSV of numbers.
"""


def add_adapt(commands: Any, general: argparse.ArgumentParser) -> None:
    """Add the command to the parser's commands."""
    adapt = commands.add_parser(
        "adapt", parents=[general], help="learn an adapter for embeddings from pairs that belong together",
        description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add_input(adapt, "corpus", metavar="CORPUS", help="the vectors to search in")
    known = adapt.add_mutually_exclusive_group(required=True)
    add_input(
        known,
        "--pairs",
        metavar="FILE",
        help="a table of two columns: numbers (from 0) of rows that belong together; with --queries, the first column refers to queries",
    )
    add_input(known, "--labels", metavar="FILE", help="a table of one column: rows with the same label belong together")
    add_input(adapt, "--queries", metavar="FILE", help="the vectors of queries, if these are not rows of CORPUS")
    add_input(
        adapt, "--texts", metavar="FILE", help="a table whose first column contains the text of each row of CORPUS"
    )
    add_input(adapt, "--query-texts", metavar="FILE", help="the same for the rows of --queries")
    adapt.add_argument(
        "--vector", metavar="COL", help="the column of vectors in Parquet, or the array in .npz; default: the only one"
    )
    adapt.add_argument(
        "--methods",
        metavar="NAMES",
        default="rca,anchors",
        help="the methods to compare with the raw rows; default rca,anchors",
    )
    add_output(adapt, "-o", "--output", metavar="MODEL", required=True, help="the model file to write")
    add_output(adapt, "--report", metavar="FILE", help="write a report: one HTML file that needs no network")
