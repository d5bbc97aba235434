"""Writing results: a file is replaced completely or not at all, and stdout receives only data."""

import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any, TextIO

from vicinal._model_files.replacing import replacing
from vicinal._plain import plain
from vicinal._words import one_line, printable
from vicinal.cli.errors import OUTPUT, USAGE, Failure, need
from vicinal.cli.paths import is_special

if TYPE_CHECKING:
    import pandas as pd


# The first characters of a cell that a spreadsheet would evaluate as a formula.
_FORMULA_BEGINS = ("=", "+", "-", "@", "\t", "\r")


@contextlib.contextmanager
def output_file(path: str) -> Iterator[IO[bytes]]:
    """Open a binary file that replaces `path` if the block ends without an error.

    A device or a pipe cannot be replaced and is written directly.
    """
    try:
        with open(path, "wb") if is_special(path) else replacing(path) as file:
            yield file
    except OSError as error:
        raise output_failure(path, error) from error


def output_failure(path: str | None, error: OSError) -> Failure:
    """Return the failure for an OSError; errors of `replacing` already name the file and the reason."""
    return Failure(OUTPUT, f"cannot write {path}: {error.strerror}." if error.strerror else one_line(error))


def write_text(path: str, text: str) -> None:
    """Write a text file completely or not at all."""
    with output_file(path) as file:
        file.write(text.encode("utf-8"))


def output_format(path: str) -> str:
    """Return the format in which a table is written, by the ending of the file."""
    from vicinal._files import format_of  # which imports NumPy

    kind = format_of(path, what="output")
    if kind in ("jsonl", "feather"):
        what = {"jsonl": "JSON lines", "feather": "Feather files"}[kind]
        raise Failure(USAGE, f"{path}: {what} can be read but not written. Write .csv, .xlsx or .parquet.")
    if kind == "xlsx":
        need("openpyxl", "writing .xlsx")
    return kind


def without_formulas(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return a table in which texts that a spreadsheet would evaluate are prefixed with an apostrophe, which marks text."""

    def harmless(value: Any) -> Any:
        return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA_BEGINS) else value

    texts = [name for name in frame if frame[name].dtype.kind not in "iufbMm"]
    if texts:
        frame = frame.assign(**{name: frame[name].astype(object).map(harmless) for name in texts})
    return frame.rename(columns=harmless)


def write_json(value: Any) -> None:
    """Write a JSON document to stdout; numbers that are not finite and missing values are null, times are text."""
    with to_stdout() as stdout:
        # JSON reads these escapes as the characters themselves.
        stdout.write(printable(json.dumps(plain(value), indent=1, ensure_ascii=False, allow_nan=False)) + "\n")


def write_lines(text: str) -> None:
    """Write text that is the result to stdout."""
    with to_stdout() as stdout:
        stdout.write(printable(text if text.endswith("\n") else text + "\n"))


@contextlib.contextmanager
def to_stdout() -> Iterator[TextIO]:
    """Provide stdout as UTF-8 and flush it, so that a full disk or a closed pipe raises an error here and not at exit."""
    if sys.stdout is None:
        raise Failure(OUTPUT, "cannot write to stdout: it is closed.")
    try:
        buffer = getattr(sys.stdout, "buffer", None)
        if buffer is None:  # a test's or a notebook's replacement
            yield sys.stdout
            sys.stdout.flush()
            return
        sys.stdout.flush()
        text = io.TextIOWrapper(buffer, encoding="utf-8", errors="backslashreplace", newline="")
        try:
            yield text
            text.flush()
        finally:
            with contextlib.suppress(OSError, ValueError):
                text.detach()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Failure(OUTPUT, f"cannot write to stdout: {error.strerror or error}.") from error


def silence_stdout() -> None:
    """Redirect stdout to the null device, because it is closed and Python would report this again at exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
