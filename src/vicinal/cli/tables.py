"""Reading tables: CSV, TSV, Parquet, XLSX, JSON lines, NPY, NPZ, from a file or from stdin ("-")."""

import contextlib
import gzip
import io
import sys
import zlib
from argparse import Namespace
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Self, cast

from vicinal.cli.console import Messages, count, one_line, shown
from vicinal.cli.errors import DATA, MISSING_EXTRA, USAGE, Failure, need
from vicinal.cli.text_tables import decoding, text_table

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd


_ENDINGS = {
    ".csv": "csv",
    ".txt": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".xlsx": "xlsx",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".npy": "npy",
    ".npz": "npz",
}
# The texts that pandas reads as a missing value.
_MISSING_MARKS = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
_NAME_ARRAYS = ("names", "feature_names", "columns")


class TableOptions(NamedTuple):
    """The options for reading a table; every field has the name of its option.

    `no_header` may be a function that decides from the fields of the first line of a text file whether they are data.
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
    def missing_marks(self) -> dict[str, Any]:
        """The arguments of pandas that say which texts mean a missing value."""
        if not self.not_na:
            return {"na_values": self.na}
        marks = [mark for mark in _MISSING_MARKS if mark not in self.not_na]
        return {"na_values": [*marks, *(self.na or ())], "keep_default_na": False}

    @classmethod
    def from_arguments(cls, arguments: Namespace) -> Self:
        """Return the table options of a parsed command line."""
        return cls(**{name: getattr(arguments, name) for name in cls._fields})


class ColumnChoice(NamedTuple):
    """The columns of a table that are read.

    options : the values of ``--columns``, or None for all
    also : further columns that are needed, if the table has them
    most : the largest number of columns that can be used, or None
    refusal : the message for more columns
    """

    options: list[str] | None = None
    also: tuple[str | None, ...] = ()
    most: int | None = None
    refusal: str = ""

    def of(self, columns: list[str], name: str) -> list[str] | None:
        """Return the columns to read, in the order of the table; None for all."""
        if self.options is None:
            if self.most is not None and len(columns) > self.most:
                raise Failure(DATA, f"{name} has {count(len(columns), 'column')}: {self.refusal}")
            return None
        wanted = split_names(self.options, columns)
        check_columns(wanted, columns, "--columns")
        return [column for column in columns if column in {*wanted, *self.also}]


_AS_NAMED, ALL_COLUMNS = TableOptions(), ColumnChoice()


def format_of(path: str | Path, *, what: str = "file") -> str:
    """Return the format of a file by its extension."""
    path = Path(path)
    ending = Path(path.stem).suffix if path.suffix.lower() == ".gz" else path.suffix
    try:
        return _ENDINGS[ending.lower()]
    except KeyError:
        raise Failure(
            USAGE,
            f"the extension of the {what} {str(path)!r} is not a table format. Expected one of "
            f"{', '.join(_ENDINGS)} (.csv.gz and .tsv.gz can be read).",
        ) from None


def is_table(path: str) -> bool:
    """Return whether the extension of a file is that of a table."""
    try:
        return bool(format_of(path))
    except Failure:
        return False


def table_format(source: str, options: TableOptions) -> str:
    """Return the format of a source: as requested, by its extension, or CSV for stdin."""
    if source == "-" or options.format:
        return options.format or "csv"
    if Path(source).is_dir():
        return "zarr" if Path(source).suffix == ".zarr" else "parquet"
    try:
        return format_of(source)
    except Failure as failure:
        raise Failure(USAGE, f"{failure} Or pass its format with --format.") from None


def split_names(options: Any, columns: Any) -> list[str]:
    """Return column names from repeated or comma-separated options; names that contain a comma are recognised, too."""
    names: list[str] = []
    for option in options or ():
        names += [option] if option in columns else [name.strip() for name in option.split(",") if name.strip()]
    return names


def check_columns(names: Iterable[str], columns: Collection[str], option: str) -> None:
    """Raise an error for names that the table does not have, with similar names as a hint."""
    from vicinal._tables import nearest_names

    for name in names:
        if name not in columns:
            near = nearest_names(name, [column for column in columns if column not in names], 3)
            hint = f" Did you mean {shown(near)}?" if near else ""
            raise Failure(DATA, f"{option}: there is no column {name!r}.{hint} The table has {shown(columns)}.")


def read_table(
    source: str,
    options: TableOptions = _AS_NAMED,
    console: Messages | None = None,
    choice: ColumnChoice = ALL_COLUMNS,
    *,
    vectors: bool = False,
) -> "pd.DataFrame":
    """Read a table into a DataFrame with unique text column names.

    Parameters
    ----------
    source : str
        A path, or "-" for stdin (CSV unless `options.format` says otherwise).
    options : TableOptions
    console : Console, optional
        Receives warnings about the header.
    choice : ColumnChoice
        The columns to read; of text files and Parquet, only these columns are read.
    vectors : bool
        Whether lists stay lists; otherwise they are read as text, like all objects that are neither numbers nor text.
    """
    from vicinal._tables import objects_as_text

    kind = table_format(source, options)
    name = "stdin" if source == "-" else source
    with reading_errors(name), _opened(source) as file:
        if kind in ("csv", "tsv"):
            frame = _read_text(file, name, kind, options, console, choice)
        elif kind == "parquet":
            frame = _read_parquet(file, name, choice)
        elif kind == "xlsx":
            frame = _read_excel(file, name, options)
        elif kind == "jsonl":
            frame = _read_json_lines(file, name, options)
        else:
            frame = _read_numpy(file, name, kind, options)
    frame.columns = [str(column) for column in frame.columns]
    chosen = choice.of(list(frame.columns), name)
    frame = frame if chosen is None else frame[chosen]
    if not len(frame.columns):
        raise Failure(DATA, f"{name} has no columns.")
    if not len(frame):
        raise Failure(DATA, f"{name} has {count(len(frame.columns), 'column')} but no rows.")
    return frame if vectors else objects_as_text(frame)


@contextlib.contextmanager
def reading_errors(name: str) -> Iterator[None]:
    """Turn errors of the system about a file that cannot be read into failures of the command."""
    try:
        yield
    except OSError as error:
        raise Failure(DATA, f"cannot read {name}: {error.strerror or one_line(error)}.") from error
    except EOFError as error:
        raise Failure(DATA, f"cannot read {name}: the file ends too early. It may be incomplete.") from error
    except zlib.error as error:
        raise Failure(DATA, f"cannot read {name}: its compressed data are damaged ({one_line(error)}).") from error
    except MemoryError as error:
        raise Failure(DATA, f"cannot read {name}: it does not fit into memory.") from error


def _opened(source: str) -> BinaryIO:
    if source == "-":
        if sys.stdin is None:
            raise Failure(DATA, "cannot read stdin: it is closed.")
        return io.BytesIO(sys.stdin.buffer.read())
    if Path(source).is_dir():
        raise Failure(
            DATA,
            f"cannot read {source}: it is a folder. (score, transform and learn read folders of Parquet files, and Zarr arrays.)",
        )
    return cast(BinaryIO, gzip.open(source)) if source.lower().endswith(".gz") else open(source, "rb")


def _read_text(
    file: BinaryIO, name: str, kind: str, options: TableOptions, console: Messages | None, choice: ColumnChoice
) -> "pd.DataFrame":
    import pandas as pd

    text = text_table(file, name, kind, options, console, choice)
    with text.errors():
        frame = pd.read_csv(file, **text.arguments)
    return text.named(frame)


def _read_excel(file: BinaryIO, name: str, options: TableOptions) -> "pd.DataFrame":
    """Return the first sheet of a workbook, or the one that ``--array`` names."""
    import pandas as pd

    header = None if options.no_header is True else 0
    sheet = 0 if options.array is None else options.array
    with decoding(name, "a workbook"):
        try:
            frame = pd.read_excel(file, sheet_name=sheet, header=header, **options.missing_marks)
        except ImportError as error:
            raise Failure(MISSING_EXTRA, one_line(error)) from error
    if header is None:
        frame.columns = [f"x{i}" for i in range(frame.shape[1])]
    frame.attrs["array"] = sheet
    return frame


def _read_json_lines(file: BinaryIO, name: str, options: TableOptions) -> "pd.DataFrame":
    """Return a table with a JSON object per line."""
    import pandas as pd

    with decoding(name, "a table of JSON lines (one object per line)"):
        return pd.read_json(
            file, lines=True, dtype=False, convert_dates=False, precise_float=True, encoding=options.encoding
        )


def _read_parquet(file: BinaryIO, name: str, choice: ColumnChoice) -> "pd.DataFrame":
    need("pyarrow", "reading Parquet")
    from pyarrow.parquet import ParquetFile

    with decoding(name, "a Parquet table"):
        content = ParquetFile(file)
        columns = choice.of([str(column) for column in content.schema_arrow.names], name)
        return content.read(columns=columns).to_pandas().reset_index(drop=True)


def _read_numpy(file: BinaryIO, name: str, kind: str, options: TableOptions) -> "pd.DataFrame":
    import numpy as np

    with _numpy_errors(file, name, kind):
        content = np.load(file, allow_pickle=False)
        if kind != "npz" and not hasattr(content, "files"):
            return frame_of_array(content, name)
        if not hasattr(content, "files"):
            raise ValueError("it holds one array; name it .npy")
        return _frame_of_arrays({key: content[key] for key in content.files}, name, options.array)


@contextlib.contextmanager
def _numpy_errors(file: BinaryIO, name: str, kind: str) -> Iterator[None]:
    """Turn errors of NumPy about a file into failures of the command."""
    import numpy as np

    start = file.read(6)
    file.seek(0)
    if not start.startswith((np.lib.format.MAGIC_PREFIX, b"PK")):
        # Without this check np.load would treat the file as a pickle, and its message would suggest loading it unsafely.
        raise Failure(DATA, f"cannot read {name} as {kind.upper()}: it is not a file that NumPy has written.")
    more = " It must hold arrays of numbers or text; arrays of Python objects are never loaded."
    with decoding(name, kind.upper(), more):
        yield


def map_array(path: str) -> "np.ndarray":
    """Return the array of an NPY file as a memory map."""
    import numpy as np

    with reading_errors(path), open(path, "rb") as file, _numpy_errors(file, path, "npy"):
        return np.lib.format.open_memmap(path, mode="r")


def _frame_of_arrays(arrays: "dict[str, np.ndarray]", name: str, wanted: str | None) -> "pd.DataFrame":
    """Return the table of an NPZ file: the 2-D array `wanted` (or X, or the only one), and its row-wise companions."""
    tables = [key for key, value in arrays.items() if value.ndim == 2]
    if wanted is None:
        if "X" in tables:
            wanted = "X"
        elif len(tables) == 1:
            wanted = tables[0]
        elif len(arrays) == 1:
            wanted = next(iter(arrays))
        else:
            raise Failure(
                DATA,
                f"{name} holds the arrays {shown(arrays)}, and it is not clear which is the table. Choose one with --array.",
            )
    if wanted not in arrays:
        raise Failure(DATA, f"--array {wanted!r} is not in {name}, which holds {shown(arrays)}.")
    table = arrays[wanted]
    names = next(
        (
            arrays[key]
            for key in _NAME_ARRAYS
            if key in arrays and table.ndim == 2 and arrays[key].shape == table.shape[1:]
        ),
        None,
    )
    frame = frame_of_array(table, name, names)
    for key, value in arrays.items():
        if key != wanted and value.ndim == 1 and len(value) == len(frame) and key not in frame:
            frame[key] = value
    frame.attrs["array"] = wanted
    return frame


def frame_of_array(array: "np.ndarray", name: str, names: Iterable[Any] | None = None) -> "pd.DataFrame":
    """Return the table of an array of numbers, or of an array with named fields."""
    import pandas as pd

    if array.dtype.names:
        return pd.DataFrame({field: array[field] for field in array.dtype.names})
    if array.dtype.kind not in "iufb":
        raise Failure(DATA, f"{name} holds an array of {array.dtype}; expected numbers.")
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise Failure(
            DATA, f"{name} holds an array of shape {array.shape}; expected rows and columns (two dimensions)."
        )
    columns = [f"x{i}" for i in range(array.shape[1])] if names is None else [str(value) for value in names]
    return pd.DataFrame(array, columns=columns)
