"""Reading text files (CSV and TSV): their separator, their header, and messages about problems."""

import contextlib
import csv
import io
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from vicinal.cli.console import Messages, one_line, shown
from vicinal.cli.errors import DATA, USAGE, Failure

_SEPARATORS = (",", ";", "\t", "|")
_SAMPLE = 1 << 16  # the number of bytes from which the separator is detected


class TextTable(NamedTuple):
    """How pandas reads a text file.

    arguments : of ``read_csv``
    n_columns : how many columns are read
    columns : their names, if the file does not contain them
    sep, name, kind, encoding : for messages
    """

    arguments: dict[str, Any]
    n_columns: int
    columns: list[str] | None
    sep: str
    name: str
    kind: str
    encoding: str

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Turn errors of pandas about the file into failures of the command."""
        import pandas as pd

        named = (UnicodeError, pd.errors.EmptyDataError, pd.errors.ParserError, pd.errors.ParserWarning, csv.Error)
        try:
            with warnings.catch_warnings(), decoding(self.name, self.kind.upper(), but=named):
                # A row with more fields than the header would otherwise lose them with a ParserWarning.
                warnings.simplefilter("error", pd.errors.ParserWarning)
                warnings.filterwarnings("ignore", message="The 'float_precision' argument is deprecated")
                yield
        except UnicodeError as error:
            raise Failure(DATA, f"{self.name} is not {self.encoding} text: {_undecodable(error)}.") from error
        except pd.errors.EmptyDataError as error:
            raise Failure(DATA, f"{self.name} is empty.") from error
        except (pd.errors.ParserError, pd.errors.ParserWarning, csv.Error) as error:
            reason = one_line(error).removeprefix("Error tokenizing data. C error: ")
            raise Failure(
                DATA,
                f"{self.name} is not a table: {reason}. Every line needs as many fields as the first one, separated by "
                f"{self.sep!r} (--sep changes it).",
            ) from error

    def named(self, frame: Any) -> Any:
        """Return a table that was read, with the names of its columns."""
        if self.columns is not None:
            frame.columns = self.columns
        frame.attrs["sep"] = self.sep
        return frame


def text_table(file: Any, name: str, kind: str, options: Any, console: Messages | None, choice: Any) -> TextTable:
    """Return how to read a text file that is open at its beginning; its position is restored."""
    import pandas as pd

    try:
        b"a".decode(options.encoding, "replace")
    except (LookupError, UnicodeError) as error:
        raise Failure(USAGE, f"--encoding {options.encoding!r} is not an encoding that Python supports.") from error
    sep = {"\\t": "\t", "tab": "\t", None: None}.get(options.sep, options.sep)
    if sep is None:
        sep = "\t" if kind == "tsv" else _separator(file, options.encoding)
        if kind == "csv" and sep != "," and console is not None:
            console.say(f"the columns of {name} are separated by {sep!r}.")
    if len(sep) != 1:
        raise Failure(USAGE, f"--sep must be one character, got {sep!r}. Write 'tab' for a tab.")
    decimal = options.decimal or "."
    if len(decimal) != 1 or decimal == sep:
        raise Failure(USAGE, f"--decimal must be one character other than the separator {sep!r}, got {decimal!r}.")
    arguments: dict[str, Any] = {
        "sep": sep,
        "encoding": options.encoding,
        "index_col": False,
        "low_memory": False,
        "decimal": decimal,
        "skipinitialspace": True,
        **options.missing_marks,
    }
    if int(pd.__version__.partition(".")[0]) < 4:
        # Read the same floats as Python. By default, pandas 2 errs in the last digit, so `score` would not recognise training rows.
        # Pandas 4 has no other mode.
        arguments["float_precision"] = "round_trip"
    table = TextTable(arguments, 0, None, sep, name, kind, options.encoding)
    with table.errors():
        header = _header(file, sep, options.encoding)
        if header is None:
            raise Failure(DATA, f"{name} is empty.")
        no_header = options.no_header(header) if callable(options.no_header) else options.no_header
        _check_header(header, name, sep, no_header, console)
        names = [f"x{i}" for i in range(len(header))] if no_header else header
        chosen = choice.of(names, name)
        file.seek(0)
    arguments["header"] = None if no_header else 0
    arguments["usecols"] = None if chosen is None else sorted(names.index(column) for column in chosen)
    read = names if chosen is None else chosen
    return table._replace(n_columns=len(read), columns=read if no_header else None)


def _separator(file: BinaryIO, encoding: str) -> str:
    """Return the character that separates the fields of the first lines: a comma if possible, else the one with most fields."""
    sample = file.read(_SAMPLE).decode(_decoder(encoding), errors="replace")
    file.seek(0)
    lines = sample.splitlines()[:50]
    if len(sample) >= _SAMPLE // 4 and len(lines) > 1:
        lines = lines[:-1]  # which may be cut
    found = {}
    for sep in _SEPARATORS:
        widths = {len(fields) for fields in csv.reader(lines, delimiter=sep) if any(fields)}
        if len(widths) == 1:
            found[sep] = widths.pop()
    best = max(found, key=lambda sep: found[sep], default=",")
    return "," if found.get(",", 0) > 1 or found.get(best, 0) < 2 else best


def _decoder(encoding: str) -> str:
    return "utf-8-sig" if encoding.lower() in ("utf-8", "utf8") else encoding


def _header(file: BinaryIO, sep: str, encoding: str) -> list[str] | None:
    """Return the fields of the first line that is not blank, or None."""
    text = io.TextIOWrapper(file, encoding=_decoder(encoding), newline="")
    try:
        for line in csv.reader(text, delimiter=sep):
            if any(field.strip() for field in line):
                return [field.strip() for field in line]
    finally:
        text.detach()
    return None


def _check_header(header: list[str], name: str, sep: str, no_header: bool, console: Messages | None) -> None:
    """Warn about an unusual first line."""
    if len(header) == 1:
        for other in (";", "\t", "|", ","):
            if other != sep and other in header[0]:
                spelled = "tab" if other == "\t" else other
                raise Failure(
                    DATA,
                    f"{name} has only one column, {header[0][:60]!r}, with the separator {sep!r}. Pass --sep '{spelled}' if "
                    f"{other!r} separates the columns.",
                )
    if no_header or console is None:
        return
    if all(is_number(field) for field in header):
        console.warn(
            f"the first line of {name} holds only numbers, and is read as column names. Pass --no-header if it is data."
        )
    repeated = [field for field, times in Counter(header).items() if times > 1 and field]
    if repeated:
        console.warn(f"{name} repeats the column names {shown(repeated)}: later ones are numbered (name.1, name.2).")


def is_number(field: str) -> bool:
    """Return whether a field of a text file is a number."""
    try:
        float(field)
    except ValueError:
        return False
    return True


def _undecodable(error: UnicodeError) -> str:
    start = getattr(error, "start", None)
    data = getattr(error, "object", b"")
    where = (
        f"byte 0x{data[start]:02x} at position {start}"
        if isinstance(start, int) and start < len(data)
        else one_line(error)
    )
    return f"{where}. Convert the file to UTF-8, or pass its encoding, as in --encoding latin-1 or --encoding utf-16"


@contextlib.contextmanager
def decoding(name: str, kind: str, more: str = "", but: tuple[type[BaseException], ...] = ()) -> Iterator[None]:
    """Turn any error of the reader of a format into one sentence that names the file.

    For damaged files, NumPy, zipfile, pyarrow and pandas raise nearly every built-in exception, so all are caught here.
    """
    clear: tuple[type[BaseException], ...] = (Failure, MemoryError, zlib.error, EOFError, *but)
    try:
        yield
    except clear:
        raise
    except Exception as error:
        reason = one_line(error)[:300].rstrip(".") or type(error).__name__
        if not isinstance(error, (ValueError, OSError)):  # such as KeyError, whose text is only a name
            reason = f"{type(error).__name__}: {reason}"
        raise Failure(DATA, f"cannot read {name} as {kind}: {reason}.{more}") from error
