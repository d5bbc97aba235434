"""The command line: options, help and examples.  Imports nothing heavy."""

import argparse
import re
from collections.abc import Callable, Sequence
from functools import partial
from inspect import cleandoc
from typing import Any, NoReturn

from vicinal._version import __version__
from vicinal._words import did_you_mean
from vicinal.cli.errors import MEANINGS
from vicinal.cli.paths import InputPath, OutputPath, TablePath

Parser = argparse.ArgumentParser
Add = Callable[..., Any]  # `add_argument` of a parser or of a group of its options
DENSITIES = ("parzen", "lca", "lca-gauss", "local-lca", "manifold-parzen")
METHODS = ("lca", "lca-gauss", "local-lca", "rca", "nca", "parzen", "manifold-parzen")
DEMO_FILES = ("vicinal-demo.png", "vicinal-demo.html")
_FORMATS = ("csv", "tsv", "parquet", "xlsx", "jsonl", "npy", "npz")

_DESCRIPTION = """\
Learn metrics and densities from tables, and use them for search, outlier detection and visualisation.

  vicinal demo                                                    a demonstration that takes less than a minute
  vicinal inspect data.csv                                        the kinds of the columns, before anything is learned
  vicinal compare data.csv --target label --report out.html       measure whether a learned metric helps
  vicinal learn data.csv --method lca --drop id -o model.vicinal  fit a metric or a density and save it
  vicinal transform model.vicinal new.csv -o new-rows.parquet     map rows by the learned metric
  vicinal outliers data.csv                                       the unusual rows of a table, with reasons
  vicinal score model.vicinal new.csv                             log-density, p-value and outlier flag per row
  vicinal neighbors model.vicinal data.csv --query new.csv -k 10  nearest rows under the learned metric
  vicinal report model.vicinal data.csv -o page.html              a page about a model and some rows
  vicinal inspect model.vicinal                                   describe a model file
  vicinal adapt corpus.npy --pairs pairs.csv -o adapter.vicinal   improve search with embeddings
"""
_EPILOG = """\
Use `vicinal COMMAND --help` to see the options of a command.

Tables are CSV, TSV, Parquet, XLSX, JSON lines (read only), NPY or NPZ files, by their extension, or - for stdin. Data are printed to
stdout, messages and progress to stderr. An output must not be one of the inputs.

Exit codes:
"""


class _OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line, with similar names as a hint."""

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse the command line; name options that are similar to unknown ones."""
        arguments, unknown = self.parse_known_args(args, namespace)
        (commands,) = (action for action in self._actions if isinstance(action, argparse._SubParsersAction))
        parser = commands.choices[arguments.command]
        arguments.labels_of_paths = {
            a.dest: a.option_strings[0] if a.option_strings else a.metavar for a in parser._actions
        }
        if unknown:
            hint = did_you_mean(unknown[0].partition("=")[0], parser._option_string_actions)
            parser.error(f"{arguments.command} has no option or argument {unknown[0]!r}.{hint}")
        return arguments

    def error(self, message: str) -> NoReturn:
        """End the command with one line."""
        choice = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if choice is not None:
            message += "." + did_you_mean(choice[1], re.findall(r"[^,' ]+", choice[2]))
        self.exit(
            2, f"vicinal: error: {message.rstrip('.')}{'' if message.endswith('?') else '.'} See {self.prog} --help.\n"
        )


def make_parser() -> Parser:
    """Return the parser of the whole command line."""
    codes = "".join(f"  {code:>3}  {meaning}\n" for code, meaning in MEANINGS.items())
    wrapped: Any = {"formatter_class": argparse.RawDescriptionHelpFormatter}
    parser: Any = _OneLineParser(prog="vicinal", description=_DESCRIPTION, epilog=_EPILOG + codes, **wrapped)
    parser.add_argument("--version", action="version", version=f"vicinal {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (summary, options, groups) in _COMMANDS.items():
        parents, description = [make() for make in groups], cleandoc(options.__doc__ or "")
        command = commands.add_parser(name, parents=parents, help=summary, description=description, **wrapped)
        options(command)
    return parser


# -- the options: one function for each command, whose docstring is its description, and for each group that commands share ------
# fmt: off


def _learn(command: Parser) -> None:
    """Fit a metric or a density to the columns of a table and save it, with the kinds of the columns.

      lca              Local Component Analysis: a metric and a density, without labels
      lca-gauss        the same, multiplied by a Gaussian: finds the interesting subspace automatically
      local-lca        a density with a kernel of its own shape at every row, between lca and manifold-parzen
      rca              Relevant Component Analysis: a metric from --target, --groups or --pairs
      nca              Neighbourhood Components Analysis: a metric from --target, --groups or --pairs
      parzen           Parzen windows: a density with one kernel width
      manifold-parzen  a density whose kernels follow the data

    Columns that identify or number the rows, and free text, are left out. lca and parzen learn from quantities and from levels
    (categories and columns of two values); lca-gauss, local-lca and manifold-parzen learn from quantities alone, unless --type
    includes other columns. Rounded columns get noise of one step while a density is learned; transform and neighbors add no noise.
    """
    add = command.add_argument
    add("data", type=InputPath, metavar="DATA", help="the table to learn from (also a folder of Parquet files, or a Zarr array), or - for stdin")
    add("--method", required=True, choices=METHODS, help="the method to fit (see above)")
    alike = command.add_mutually_exclusive_group().add_argument
    alike("--target", metavar="COL", help="the column of classes (for nca, classes or numbers); it is not used as a feature")
    alike("--groups", metavar="COL", help="rows with the same value in this column belong together; an empty cell means unknown")
    alike("--pairs", type=InputPath, metavar="FILE",
        help="a table of two columns: pairs of rows that belong together, as row numbers from 0 or as values of --id")
    add("--id", metavar="COL", help="the column that identifies rows in --pairs; it is not used as a feature")
    add("--set", action="append", metavar="NAME=VALUE", default=[],
        help="a parameter of the method, as in --set n_components=2; may be repeated")
    add("--max-rows", type=_positive, metavar="N", help="learn from a random sample of N rows; default: all")
    add("--no-scale", action="store_true", help="do not standardise the columns (by default, they are standardised)")
    add("-o", "--output", type=OutputPath, metavar="MODEL", required=True, help="the model file to write")


def _transform(command: Parser) -> None:
    """Map rows to a space in which the learned distance is Euclidean. Columns are selected by name; others are ignored."""
    _model_and_data(command.add_argument)
    _table_output(command.add_argument)


def _score(command: Parser) -> None:
    """Score rows under a learned density (lca, lca-gauss, local-lca, parzen, manifold-parzen).

    Columns of the output: row (number in DATA, from 0), score (lower is more unusual), p_value (the share of training rows,
    each scored without itself, that are at least as unusual as this row; it follows the score), outlier (1 if the p-value is at
    most --level, or by --fdr) and log_density (nats, in the units of the data). The score is the log-density; for parzen and lca it
    also uses the distance to a neighbour outside small groups, so that a small group of outliers is found, too. A row with
    missing values is scored by its known values among the training rows that have these. With --explain, the column why names for
    each outlier the columns that are unusual given the others, the values that were expected (90 % interval) and the actual
    values. A row that equals a training row exactly is scored without that training row, because its own kernel would always make it
    look normal; --as-new turns this off.
    """
    add = command.add_argument
    _model_and_data(add, "?")
    add("--training", action="store_true", help="score the training rows, each without itself; needs no DATA")
    add("--as-new", action="store_true", help="score rows that equal a training row as if they were new")
    add("--fdr", type=_rate, metavar="RATE",
        help="flag rows at this false discovery rate (Benjamini and Hochberg), taking all rows of DATA together")
    add("--explain", action="store_true", help="add a column 'why' that explains each outlier")
    add("--only-outliers", action="store_true", help="write only the rows that are flagged")
    add("--sort", action="store_true", help="sort the rows by their score, the most unusual one first")
    _choice_of_outliers(add)
    _table_output(add)


def _outliers(command: Parser) -> None:
    """Learn a density from the columns of a table and write its unusual rows, the most unusual one first, with the reasons.

    Every row is scored without itself; a row with missing values is scored by its known values. Columns of the output: --keep, row
    (number in DATA, from 0), score (lower is more unusual), p_value (the share of the rows that are at least as unusual), outlier (1 if
    the p-value is at most --level), log_density and why. To score other rows later, use learn and score.
    """
    add = command.add_argument
    add("data", type=InputPath, metavar="DATA", help="a table, or - for stdin")
    add("--method", choices=DENSITIES, default="parzen", help="the density to learn from the table; default parzen")
    add("--values", action="store_true",
        help="rank by the density alone, which finds isolated wrong values a little better, and groups of unusual rows less well")
    add("--all", action="store_true", help="write all rows, the most unusual one first")
    _choice_of_outliers(add)
    _table_output(add)


def _neighbors(command: Parser) -> None:
    """Find the nearest rows of DATA under a learned metric (lca, lca-gauss, rca, nca).

    Columns of the output: query, rank (from 1), neighbor (row numbers from 0, or values of --id) and distance. With --duplicates,
    all pairs up to a distance are listed, the nearest first, each once and without a rank.
    """
    add = command.add_argument
    _model_and_data(add)
    add("--query", type=InputPath, metavar="FILE",
        help="the rows to find neighbours for; default: the rows of DATA, none of which is its own neighbour")
    add("-k", type=_positive, default=10, metavar="K", help="the number of neighbours; default 10")
    add("--duplicates", type=_distance, metavar="DISTANCE",
        help="list all pairs at this distance or nearer; vicinal.retrieval.duplicate_threshold finds it from labelled pairs")
    add("--id", metavar="COL", help="identify rows by this column instead of by number")
    _table_output(add, keep=False)


def _inspect(command: Parser) -> None:
    """Describe a table (the kind of each column, what it is used for, and what is unusual about it) or a model file (its class,
    parameters, columns and weights).
    """
    add = command.add_argument
    add("model", type=InputPath, metavar="FILE", help="a table, by its extension or --format, or a model file")


def _compare(command: Parser) -> None:
    """Measure by cross-validation whether a learned metric or density helps on a table.

    Every step (scaling, whitening, learning) uses only the training fold. Metrics are evaluated by the accuracy of
    k nearest neighbours on held-out rows (by R² if the target is a number), and densities by their held-out log-likelihood.
    Differences from the best plain method have simultaneous 95 % intervals. The verdict states when no method helped.
    """
    add = command.add_argument
    add("data", type=InputPath, metavar="DATA", help="the table, or - for stdin")
    add("--target", metavar="COL", help="the column of classes, or of numbers to predict; without it, only densities are compared")
    add("--task", choices=("auto", "classes", "numbers"), default="auto",
        help="the kind of --target; default: numbers if it has fractions or values that rarely repeat, otherwise classes")
    add("--report", type=OutputPath, metavar="FILE", help="write a report: one HTML file that needs no network")
    add("-k", type=_positive, default=5, metavar="K", help="the number of neighbours per prediction; default 5")
    add("--methods", metavar="NAMES", help="compare only these methods (comma-separated), as in euclidean,z-scored,nca,parzen-loo,lca")
    add("--folds", type=_two_or_more, default=5, metavar="N", help="the number of folds; default 5")
    add("--repeats", type=_positive, metavar="N",
        help="the number of repetitions of the cross-validation; default 1 to 3, depending on the number of rows")
    add("--max-rows", type=_positive, default=20_000, metavar="N", help="compare on a random sample of this many rows; default 20000")
    add("--fast", action="store_true",
        help="a quick first result: 5 folds without repetitions, at most 3000 rows compared and 500 rows fitted")
    add("--resume", action="store_true",
        help="continue an interrupted run from the folds kept beside --report FILE, with the same result to the last bit")


def _report(command: Parser) -> None:
    """Write a page about a model file and the rows of DATA: the rows in the plane before and after, with each row's neighbours, the
    weight of each column, the objective of the fit, and for densities the unusual rows with explanations. The page is one HTML file
    that needs no network. It contains no cross-validated results; use compare to measure whether a learned metric or density helps.
    """
    add = command.add_argument
    _model_and_data(add)
    add("--target", metavar="COL", help="the column of classes or numbers that colours the rows")
    add("--id", metavar="COL", help="identify rows by this column instead of by number")
    add("-o", "--output", type=OutputPath, metavar="FILE", required=True, help="the page to write: one HTML file")


def _adapt(command: Parser) -> None:
    """Learn an adapter for embeddings from pairs (or labels) that belong together, and measure whether it helps.

    The pairs are divided into three parts that are not connected, even by a chain of pairs: one for learning, one for choosing
    the method, and one for measuring it. The command compares the raw rows, rca (a closed form that keeps a part of the raw metric,
    chosen by cross-validation) and anchors (each row learns to distinguish its partner from others). Rows are compared by their
    direction. The best method is saved; it normalises rows before and after its map. Unless a method gains two standard errors over
    the raw rows, no model is written, and the verdict says so. With --side query the corpus stays as it is stored.

    Vectors are .npy (not read into memory at once), .npz, Parquet with a column of vectors, or CSV of numbers.
    """
    add = command.add_argument
    add("corpus", type=InputPath, metavar="CORPUS", help="the vectors to search in")
    alike = command.add_mutually_exclusive_group(required=True).add_argument
    alike("--pairs", type=InputPath, metavar="FILE",
        help="a table of two columns: numbers (from 0) of rows that belong together; with --queries, the first column refers to queries")
    alike("--labels", type=InputPath, metavar="FILE", help="a table of one column: rows with the same label belong together")
    add("--queries", type=InputPath, metavar="FILE", help="the vectors of queries, if these are not rows of CORPUS")
    add("--texts", type=InputPath, metavar="FILE", help="a table whose first column contains the text of each row of CORPUS")
    add("--query-texts", type=InputPath, metavar="FILE", help="the same for the rows of --queries")
    add("--vector", metavar="COL", help="the column of vectors in Parquet, or the array in .npz; default: the only one")
    add("--methods", metavar="NAMES", default="rca,anchors", help="the methods to compare with the raw rows; default rca,anchors")
    add("--side", choices=("both", "query"), default="both", help="map queries and corpus (both, the default), or only the queries")
    add("-o", "--output", type=OutputPath, metavar="MODEL", required=True, help="the model file to write")
    add("--report", type=OutputPath, metavar="FILE", help="write a report: one HTML file that needs no network")


def _demo(command: Parser) -> None:
    """Run three comparisons on built-in data: densities of slanted bars, with a picture; metrics and densities for the sensors
    of a machine, with a report; and metrics for 178 real wines. This takes less than a minute and writes vicinal-demo.html and .png.
    """
    add = command.add_argument
    add("--folder", default=".", metavar="DIR", help="the output folder; default: the current folder")


def _general() -> Parser:
    group, add = _group("general options")
    add("-q", "--quiet", action="store_true", help="print only errors to stderr")
    add("--json", action="store_true", help="print the result as JSON to stdout")
    add("--seed", type=_seed, default=0, metavar="N", help="the seed of all random choices; default 0")
    add("--threads", type=_positive, metavar="N", help="the number of threads; default: all available")
    add("--memory", type=_size_text, metavar="SIZE", help="memory for pairwise computations beyond the data, as in '2 GB'; default 128 MB")
    return group


def _table(missing: str | None = "refuse") -> Parser:
    group, add = _group("reading tables")
    add("--format", choices=_FORMATS, help="the format of DATA, if its extension does not determine it")
    add("--sep", metavar="CHAR", help="the column separator of CSV; default: detected (a tab in TSV)")
    add("--encoding", default="utf-8", metavar="NAME", help="the encoding of CSV and TSV; default utf-8")
    add("--decimal", metavar="CHAR", help="the decimal separator of CSV and TSV, as in --decimal ,; default .")
    add("--na", action="append", metavar="TEXT",
        help="a string or number that marks missing values, besides empty cells, NA and nan, as in --na '?' or --na 999; may be repeated")
    add("--not-na", action="append", metavar="TEXT",
        help="a string that is a value, although it usually marks a missing one, as in --not-na None; may be repeated")
    add("--no-header", action="store_true", help="the first line is data; columns are named x0, x1, ...")
    add("--array", metavar="NAME",
        help="the array of an NPZ file, or the sheet of an XLSX file, that holds the table; default X, or the only one, or the first")
    add("--missing", choices=("refuse", "drop", "impute", "marginalise"), default=missing,
        help=f"how to treat missing values: stop with an error{' (default)' if missing else ''}, leave such rows out, fill them in from "
        f"a density, or learn and score densities from the known values{'' if missing else ' (default, if the method can)'}")
    return group


def _features() -> Parser:
    group, add = _group("choosing features")
    add("--columns", action="append", metavar="COLS",
        help="the columns to use (comma-separated), in addition to the target; default: all; may be repeated")
    add("--drop", action="append", metavar="COLS", help="columns that are not features (comma-separated); may be repeated")
    add("--log", action="append", metavar="COLS",
        help="columns of positive, skewed quantities of which to use the logarithm (comma-separated); may be repeated")
    add("--type", action="append", metavar="COL=KIND",
        help="treat a column as continuous, lattice (or lattice:STEP), tied, boolean, category, date (or date:FORMAT), text or "
        "identifier instead of its detected kind; may be repeated")
    add("--one-hot", action="store_true", help="convert categories to 0/1 columns for metrics; densities learn from them as they are")
    return group


def _workers() -> Parser:
    group = Parser(add_help=False)
    add = group.add_argument_group("more than one process").add_mutually_exclusive_group().add_argument
    add("--workers", type=_positive, metavar="N", help="use N Dask workers: processes on this machine")
    add("--cluster", metavar="ADDRESS", help="use the workers of a Dask scheduler, as in tcp://host:8786")
    return group


def _model_and_data(add: Add, data_nargs: str | None = None) -> None:
    add("model", type=InputPath, metavar="MODEL", help="a model file written by learn or vicinal.io.save")
    add("data", type=InputPath, metavar="DATA", nargs=data_nargs, help="a table (also a folder of Parquet files, or a Zarr array), or - for stdin")


def _choice_of_outliers(add: Add) -> None:
    add("--level", type=_level, metavar="P", help="flag rows whose p-value is at most this number; default 0.01")
    add("--top", type=_positive, metavar="N", help="write only the N most unusual rows, the most unusual one first")


def _table_output(add: Add, *, keep: bool = True) -> None:
    if keep:
        add("--keep", metavar="COLS", action="append", help="columns to copy to the output (comma-separated)")
    add("-o", "--output", type=TablePath, metavar="OUT", help="the table to write, in the format of its extension; default: CSV on stdout")
    add("--spreadsheet", action="store_true",
        help="in CSV and TSV, put an apostrophe before text that a spreadsheet would evaluate as a formula")


# fmt: on


def _group(title: str) -> tuple[Parser, Add]:
    """Return a parent for the parsers of commands, and the function that adds options to its group."""
    parser = Parser(add_help=False)
    return parser, parser.add_argument_group(title).add_argument


# -- the values of options: each function reads one from text -----------------------------------------------------------------


def _number(text: str, convert: type, valid: Callable[[Any], bool], what: str) -> Any:
    try:
        value = convert(text)
    except ValueError:
        value = None
    if value is None or not valid(value):
        raise argparse.ArgumentTypeError(f"expected {what}, got {text!r}")
    return value


def _positive(text: str) -> int:
    return _number(text, int, lambda value: value >= 1, "a whole number of at least 1")


def _two_or_more(text: str) -> int:
    return _number(text, int, lambda value: value >= 2, "a whole number of at least 2")


def _seed(text: str) -> int:
    return _number(text, int, lambda value: 0 <= value < 2**32, "a whole number from 0 to 4294967295")


def _level(text: str) -> float:
    return _number(text, float, lambda value: 0 < value <= 0.5, "a number in (0, 0.5]")


def _distance(text: str) -> float:
    return _number(text, float, lambda value: 0 <= value < float("inf"), "a distance of at least 0")


def _rate(text: str) -> float:
    return _number(text, float, lambda value: 0 < value < 1, "a number between 0 and 1")


def _size_text(text: str) -> str:
    if not re.fullmatch(r"\s*[0-9]+\.?[0-9]*\s*[KMGT]?i?B?\s*", text, re.IGNORECASE):
        raise argparse.ArgumentTypeError(f"expected a size such as '512 MB' or '2 GB', got {text!r}")
    return text


# -- the commands --------------------------------------------------------------------------------------------------------------

# The summary of each command, the function that adds its options and has its description, and the groups of its options.
_COMMANDS: dict[str, tuple[str, Callable[[Parser], None], Sequence[Callable[[], Parser]]]] = {
    "learn": ("fit a metric or a density and save it", _learn, (_table, _features, _general, _workers)),
    "transform": ("map rows to a space in which the learned distance is Euclidean", _transform, (_table, _general, _workers)),
    "score": ("log-density, outlier flag and p-value of each row", _score, (_table, _general, _workers)),
    "outliers": ("the unusual rows of a table, and why they are unusual", _outliers, (partial(_table, None), _features, _general)),
    "neighbors": ("nearest rows under the learned metric", _neighbors, (_table, _general)),
    "inspect": ("describe the columns of a table, or a model file", _inspect, (_table, _features, _general)),
    "compare": ("cross-validated comparison of metrics and densities", _compare, (_table, _features, _general, _workers)),
    "report": ("write a page about a model file and the rows of a table", _report, (_table, _general)),
    "adapt": ("learn an adapter for embeddings from pairs that belong together", _adapt, (_general,)),
    "demo": ("run comparisons on built-in data, with a picture and a report", _demo, (_general,)),
}  # fmt: skip
