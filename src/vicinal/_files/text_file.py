"""Text files (CSV and TSV): their separator, their header, and the types of their columns, which are those of the whole file.

pyarrow divides the text into fields. The type of a column is found from all of its fields, so that it depends neither on the size of the
file nor on the batches in which it is read.
"""

import codecs
import contextlib
import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from vicinal._files.errors import FileError, reading
from vicinal._words import one_line, shown

if TYPE_CHECKING:
    import pandas as pd

# The texts that mean a missing value, as in pandas.
MISSING_MARKS = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
_SEPARATORS = (",", ";", "\t", "|")
_SAMPLE = 1 << 16  # the number of bytes from which the separator is detected
_PARSED_BYTES = 1 << 22  # of text that pyarrow divides into fields at a time
_MOST_KEPT = 64 << 20  # bytes of fields that are kept between the search for types and the conversion
_TRIED = 64  # fields of a batch that are converted first
_TRUE, _FALSE = ("True", "TRUE", "true"), ("False", "FALSE", "false")


class ReadOptions(NamedTuple):
    """The options for reading a table.

    format : the format, if the extension of the file does not say it
    sep, encoding, decimal : of a text file; by default the separator is detected
    na, not_na : texts that mean a missing value, and texts that do not although they usually do
    no_header : whether the first line is data, or a function of its fields that decides
    array : the array of an NPZ file, or the sheet of a workbook
    """

    format: str | None = None
    sep: str | None = None
    encoding: str = "utf-8"
    decimal: str | None = None
    na: list[str] | None = None
    not_na: list[str] | None = None
    no_header: bool | Callable[[list[str]], bool] = False
    array: str | None = None

    @property
    def one_character(self) -> str | None:
        """The separator, of which a tab may be written in words."""
        return "\t" if self.sep in ("\\t", "tab") else self.sep

    @property
    def marks(self) -> tuple[str, ...]:
        """The texts that mean a missing value; a number may be written with decimals."""
        usual = [mark for mark in MISSING_MARKS if mark not in (self.not_na or ())]
        decimals = [f"{number:.{digits}f}" for number in self.marked_numbers for digits in (0, 1, 2) if number % 1 == 0]
        return tuple(dict.fromkeys([*usual, *(self.na or ()), *decimals]))

    @property
    def marked_numbers(self) -> list[float]:
        """The numbers that mean a missing value on request."""
        return [float(mark) for mark in self.na or () if is_number(mark) and float(mark) == float(mark)]


class TextFile:
    """A text file.

    Parameters
    ----------
    opened : callable
        It returns the file, open at its beginning.
    name, kind : str
        For messages; the kind is "csv" or "tsv".
    options : ReadOptions

    Attributes
    ----------
    names : list of str
        The columns.
    sep : str
    notes : list of (str, bool)
        Messages about the header, and whether they are warnings.
    n_rows : int or None
        The number of rows, once the types are known.
    """

    def __init__(self, opened: Callable[[], BinaryIO], name: str, kind: str, options: ReadOptions) -> None:
        self._opened, self._name, self._kind, self._options = opened, name, kind, options
        self.notes: list[tuple[str, bool]] = []
        self.n_rows: int | None = None
        self._types: dict[str, str] = {}
        self._decimal = options.decimal or "."
        self._check_options()
        with opened() as file, self._errors():
            self.sep = self._separator(file)
            file.seek(0)
            header, lines = self._first_fields(file)
        if header is None:
            raise FileError(f"{name} is empty.")
        no_header = options.no_header(header) if callable(options.no_header) else options.no_header
        self._check_header(header, bool(no_header))
        self._skipped = lines - 1 if no_header else lines
        self.names = [f"x{i}" for i in range(len(header))] if no_header else _different(header)

    def _check_options(self) -> None:
        encoding, sep = self._options.encoding, self._options.one_character
        try:
            b"a".decode(encoding, "replace")
        except (LookupError, UnicodeError) as error:
            raise FileError(
                f"encoding={encoding!r} is not an encoding that Python supports.", is_option=True
            ) from error
        if sep is not None and len(sep) != 1:
            raise FileError(f"sep={sep!r} must be one character. Write 'tab' for a tab.", is_option=True)

    def _separator(self, file: BinaryIO) -> str:
        """Return the requested separator, or the one of the first lines: a comma if possible, else the one with most fields."""
        sep = self._options.one_character or ("\t" if self._kind == "tsv" else None)
        if sep is None:
            sep = _detected_separator(file.read(_SAMPLE).decode(self._decoder, errors="replace"))
            if sep != ",":
                self.notes.append((f"the columns of {self._name} are separated by {sep!r}.", False))
        if len(self._decimal) != 1 or self._decimal == sep:
            raise FileError(
                f"decimal={self._decimal!r} must be one character other than the separator {sep!r}.",
                is_option=True,
            )
        return sep

    @property
    def _decoder(self) -> str:
        return "utf-8-sig" if codecs.lookup(self._options.encoding).name == "utf-8" else self._options.encoding

    def _first_fields(self, file: BinaryIO) -> tuple[list[str] | None, int]:
        """Return the fields of the first line that is not blank (None without one), and the number of lines up to its end."""
        text = io.TextIOWrapper(file, encoding=self._decoder, newline="")
        lines = csv.reader(text, delimiter=self.sep)
        try:
            for fields in lines:
                if any(field.strip() for field in fields):
                    return [field.strip() for field in fields], lines.line_num
            return None, 0
        finally:
            text.detach()

    def _check_header(self, header: list[str], no_header: bool) -> None:
        """Note what is unusual about the first line."""
        if len(header) == 1:
            other = next((sep for sep in (";", "\t", "|", ",") if sep != self.sep and sep in header[0]), None)
            if other is not None:
                raise FileError(
                    f"{self._name} has only one column, {header[0][:60]!r}, with the separator {self.sep!r}. Pass "
                    f"sep={'tab' if other == chr(9) else other!r} if {other!r} separates the columns."
                )
        if no_header:
            return
        if all(is_number(field) for field in header):
            text = "holds only numbers, and is read as column names. Pass no_header=True if it is data."
            self.notes.append((f"the first line of {self._name} {text}", True))
        repeated = [field for field, times in Counter(header).items() if times > 1 and field]
        if repeated:
            text = f"repeats the column names {shown(repeated)}: later ones are numbered (name.1, name.2)."
            self.notes.append((f"{self._name} {text}", True))

    # -- rows ----------------------------------------------------------------------------------------------------------

    def frames(
        self, columns: Sequence[str], step: int, on_types: Callable[[BinaryIO], None] = lambda file: None
    ) -> Iterator["pd.DataFrame"]:
        """Yield some columns, `step` rows at a time.

        Parameters
        ----------
        columns : list of str
        step : int
        on_types : callable
            It is called with the file after each part of the search for types.
        """
        import pyarrow as pa

        fields = self._kept_fields(columns, on_types)
        kept = fields is not None
        file = None if kept else self._opened()
        try:
            batches: Iterable[Any] = fields if fields is not None else self._fields(file, columns)
            for part in in_steps(batches, step):
                arrays = [
                    _converted(column.combine_chunks(), self._types[name], self._decimal)
                    for name, column in zip(columns, part.columns, strict=True)
                ]
                yield pa.Table.from_arrays(arrays, list(columns)).to_pandas()
        finally:
            if file is not None:
                file.close()

    def _kept_fields(self, columns: Sequence[str], on_types: Callable[[BinaryIO], None]) -> "list[Any] | None":
        """Find the types of columns, if they are not known; return the fields that were read for it if they are few, else None."""
        if all(name in self._types for name in columns) and self.n_rows is not None:
            return None
        kinds: dict[str, set[str]] = {name: set() for name in columns}
        kept: list[Any] | None = []
        size = n_rows = 0
        with self._opened() as file:
            for batch in self._fields(file, columns):
                n_rows, size = n_rows + len(batch), size + batch.nbytes
                for name, column in zip(columns, batch.columns, strict=True):
                    if "text" not in kinds[name]:
                        kinds[name] |= _kinds(column, self._decimal)
                kept = None if kept is None or size > _MOST_KEPT else [*kept, batch]
                on_types(file)
        self.n_rows = n_rows
        self._types.update({name: _common(kinds[name]) for name in columns})
        return kept

    def _fields(self, file: Any, columns: Sequence[str]) -> Iterator[Any]:
        """Yield batches of fields as strings, without leading blanks, missing values as nulls."""
        import pyarrow as pa
        import pyarrow.compute as pc
        from pyarrow import csv as pa_csv

        # pyarrow's own names, because those of a file may be anything.
        positions = [f"c{self.names.index(name)}" for name in columns]
        read = pa_csv.ReadOptions(
            column_names=[f"c{i}" for i in range(len(self.names))],
            skip_rows=self._skipped,
            encoding=self._options.encoding,
            block_size=_PARSED_BYTES,
        )
        parse = pa_csv.ParseOptions(
            delimiter=self.sep,
            newlines_in_values=True,
            invalid_row_handler=lambda row: "error" if row.text.strip() else "skip",
        )
        convert = pa_csv.ConvertOptions(column_types=dict.fromkeys(positions, pa.string()), include_columns=positions)
        marks = pa.array(self._options.marks, pa.string())
        with self._errors():
            try:
                reader = pa_csv.open_csv(file, read, parse, convert)
            except pa.ArrowInvalid:
                if self._no_rows():
                    return
                raise
        with reader:
            while True:
                with self._errors():
                    batch = next(reader, None)
                if batch is None:
                    return
                arrays = []
                for column in batch.columns:
                    if pc.any(pc.starts_with(column, " ")).as_py():
                        column = pc.utf8_ltrim(column, " ")
                    is_missing = pc.is_in(column, marks)
                    arrays.append(pc.if_else(is_missing, None, column) if pc.any(is_missing).as_py() else column)
                yield pa.RecordBatch.from_arrays(arrays, list(columns))

    def _no_rows(self) -> bool:
        """Return whether nothing follows the header."""
        with io.TextIOWrapper(self._opened(), encoding=self._decoder, newline="") as text:
            lines = text.read(_SAMPLE).splitlines()
        return not any(line.strip() for line in lines[self._skipped :])

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors about the text into a FileError."""
        with reading(self._name, self._kind.upper()):
            try:
                yield
            except FileError:
                raise
            except Exception as error:
                problem = self._problem(error)
                if problem is None:
                    raise
                raise FileError(problem) from error

    def _problem(self, error: Exception) -> str | None:
        """Return what is wrong with the text if pyarrow or Python cannot read it; None for other errors."""
        import pyarrow as pa

        text = one_line(error)
        if isinstance(error, UnicodeError) or "UTF8" in text or "codec can't decode" in text:
            return (
                f"{self._name} is not {self._options.encoding} text. Convert the file to UTF-8, or pass its encoding, as in "
                "encoding='latin-1' or encoding='utf-16'."
            )
        if isinstance(error, (pa.ArrowInvalid, csv.Error)):
            reason = (self._bad_line() if "Expected" in text else None) or text.removeprefix("CSV parse error: ")
            return (
                f"{self._name} is not a table: {reason[:200].rstrip('.')}. Every line needs as many fields as the first one, separated by "
                f"{self.sep!r} (sep= changes it)."
            )
        return None

    def _bad_line(self) -> str | None:
        """Return which line has another number of fields than the header."""
        with io.TextIOWrapper(self._opened(), encoding=self._decoder, newline="") as text:
            lines = csv.reader(text, delimiter=self.sep)
            for fields in lines:
                if any(field.strip() for field in fields) and len(fields) != len(self.names):
                    return f"line {lines.line_num:,} has {len(fields)} fields, expected {len(self.names)}"
        return None


def _detected_separator(sample: str) -> str:
    lines = sample.splitlines()[:50]
    if len(sample) >= _SAMPLE // 4 and len(lines) > 1:
        lines = lines[:-1]  # which may be cut
    widths = {}
    for sep in _SEPARATORS:
        found = {len(fields) for fields in csv.reader(lines, delimiter=sep) if any(field.strip() for field in fields)}
        if len(found) == 1:
            widths[sep] = found.pop()
    best = max(widths, key=lambda sep: widths[sep], default=",")
    return "," if widths.get(",", 0) > 1 or widths.get(best, 0) < 2 else best


def _different(header: list[str]) -> list[str]:
    """Return names that differ: later ones are numbered, and columns without a name get one, as pandas does."""
    names: list[str] = []
    for position, field in enumerate(header):
        name = first = field or f"Unnamed: {position}"
        number = 0
        while name in names or (number and name in header):
            number += 1
            name = f"{first}.{number}"
        names.append(name)
    return names


def is_number(field: str) -> bool:
    """Return whether a field of a text file is a number."""
    try:
        float(field)
    except ValueError:
        return False
    return True


def in_steps(batches: Iterable[Any], step: int) -> Iterator[Any]:
    """Yield the rows of record batches as tables of `step` rows; the last one may have fewer."""
    import pyarrow as pa

    waiting: list[Any] = []
    n_waiting = 0
    for batch in batches:
        waiting.append(batch)
        n_waiting += len(batch)
        if n_waiting >= step:
            table = pa.Table.from_batches(waiting)
            whole = n_waiting - n_waiting % step
            for start in range(0, whole, step):
                yield table.slice(start, step)
            waiting, n_waiting = table.slice(whole).to_batches(), n_waiting - whole
    if n_waiting:
        yield pa.Table.from_batches(waiting)


# -- the types of the columns ------------------------------------------------------------------------------------------


def _kinds(column: Any, decimal: str) -> set[str]:
    """Return the kind of some fields: "int", "uint" (beyond int64), "giant" (beyond uint64), "float", "bool" or "text".

    "gap" is added if some are missing, and "negative" if there are negative whole numbers.
    """
    import pyarrow.compute as pc

    kinds = {"gap"} if column.null_count else set()
    known = column.drop_null() if column.null_count else column
    if not len(known):
        return kinds
    if pc.all(pc.is_in(known, _strings((*_TRUE, *_FALSE)))).as_py():
        return kinds | {"bool"}
    for kind in ("int", "uint", "float"):
        numbers = _numbers(known, kind, decimal)
        if numbers is None:
            continue
        if kind == "int" and pc.min(numbers).as_py() < 0:
            kinds.add("negative")
        if kind == "float" and pc.all(pc.match_substring_regex(known, r"^\s*[-+]?\d+\s*$")).as_py():
            kind = "giant"
        return kinds | {kind}
    return kinds | {"text"}


def _common(kinds: set[str]) -> str:
    """Return the type of a column with fields of these kinds."""
    found = kinds - {"gap", "negative"}
    if found - {"int", "uint", "giant", "float"}:
        return found.pop() if len(found) == 1 else "text"
    if not found or "float" in found:
        return "float"
    if "giant" in found or {"negative", "uint"} <= kinds:  # whole numbers that no type of the machine holds
        return "text"
    if "gap" in kinds:
        return "float"
    return "uint" if "uint" in found else "int"


def _converted(column: Any, kind: str, decimal: str) -> Any:
    """Return fields as numbers, truth values or texts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind == "text":
        return column
    if kind == "bool":
        return pc.if_else(pc.is_null(column), pa.scalar(None, pa.bool_()), pc.is_in(column, _strings(_TRUE)))
    if column.null_count == len(column):
        return pa.nulls(len(column), pa.float64())
    return _numbers(column, kind, decimal)


def _strings(texts: tuple[str, ...]) -> Any:
    import pyarrow as pa

    return pa.array(texts, pa.string())


def _numbers(column: Any, kind: str, decimal: str) -> Any:
    """Return fields as numbers of a kind, or None if one of them is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if decimal != ".":
        column = pc.replace_substring(pc.replace_substring(column, ".", "?"), decimal, ".")
    target = {"int": pa.int64(), "uint": pa.uint64(), "float": pa.float64()}[kind]
    for attempt in (0, 1):
        if attempt == 1:
            if not pc.any(pc.match_substring_regex(column, r"^\s|\s$|^\+")).as_py():
                return None
            column = pc.replace_substring_regex(pc.utf8_trim_whitespace(column), r"^\+", "")
        try:
            pc.cast(column.slice(0, _TRIED), target)  # a failure on many fields takes long
            numbers = pc.cast(column, target)
        except pa.ArrowInvalid:
            continue
        # pyarrow reads 0x10 as a number.
        return None if kind != "float" and pc.any(pc.match_substring_regex(column, "[xX]")).as_py() else numbers
    return None
