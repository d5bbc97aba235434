"""Tables in files: their columns, and their rows as DataFrames, whole or in batches."""

import gzip
import io
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np

from vicinal._files.arrays import batches_of, frame_of_array, is_zarr, map_array, open_dataset, open_zarr, read_arrays
from vicinal._files.errors import FileError, reading
from vicinal._files.text_file import ReadOptions, TextFile
from vicinal._words import count, shown, similar_columns

if TYPE_CHECKING:
    import pandas as pd

ENDINGS = {
    ".csv": "csv",
    ".txt": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "feather",
    ".arrow": "feather",
    ".xlsx": "xlsx",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".npy": "npy",
    ".npz": "npz",
}
# Tables up to this size are read at once. It is the size of a text file, or of the numbers of another one, in bytes.
LARGE = 64 << 20
BATCH_VALUES = 2**20  # values of a batch, in all columns together
_UNPACKED = 4  # a compressed text unpacks to about this many times its size
_NUMBERS = "iufb"

Choose = Callable[[list[str]], list[str] | None]  # the columns to read, given all of them; None stands for all


_AS_NAMED = ReadOptions()


def format_of(path: str | Path, *, what: str = "file") -> str:
    """Return the format of a file by its extension."""
    path = Path(path)
    ending = Path(path.stem).suffix if path.suffix.lower() == ".gz" else path.suffix
    try:
        return ENDINGS[ending.lower()]
    except KeyError:
        raise FileError(
            f"the extension of the {what} {str(path)!r} is not a table format. Expected one of "
            f"{', '.join(ENDINGS)} (.csv.gz and .tsv.gz can be read).",
            is_option=True,
        ) from None


def is_table(path: str) -> bool:
    """Return whether the extension of a file is that of a table."""
    try:
        return bool(format_of(path))
    except FileError:
        return False


class TableFile:
    """A table in a file, in a folder of Parquet files, or in a Zarr array.

    Parameters
    ----------
    source : str
        A path.
    options : ReadOptions
    data : bytes, optional
        The content of the file, if it is not read from the path; the source is then only a name.
    opened : Dataset of pyarrow or Zarr array, optional
        The table, if it is open; the source is then only a name.
    lists : bool
        Whether lists stay lists; otherwise they are read as text, like all objects that are neither numbers nor text.

    Attributes
    ----------
    name, kind : str
    notes : list of (str, bool)
        Messages about the file, and whether they are warnings.
    n_rows : int or None
        The number of rows, once the first batch was read.
    share : float
        The share of the table that has been read, from 0 to 1.
    """

    def __init__(
        self,
        source: str,
        options: ReadOptions = _AS_NAMED,
        *,
        data: bytes | None = None,
        opened: Any = None,
        lists: bool = False,
    ) -> None:
        self.name, self._options, self._data, self._opened_table, self._lists = source, options, data, opened, lists
        self.kind = self._kind()
        self.n_rows: int | None = None
        self.share = 0.0

    def _kind(self) -> str:
        if self._options.format or self._data is not None:
            return self._options.format or "csv"
        if self._opened_table is not None:
            return "parquet" if hasattr(self._opened_table, "get_fragments") else "zarr"
        if Path(self.name).is_dir():
            return "zarr" if is_zarr(self.name) else "parquet"
        try:
            return format_of(self.name)
        except FileError as error:
            raise FileError(f"{error} Or pass its format with format=FORMAT.", is_option=True) from None

    @cached_property
    def _text(self) -> TextFile:
        with reading(self.name):
            return TextFile(self._opened, self.name, self.kind, self._options)

    @cached_property
    def dataset(self) -> Any:
        """The pyarrow dataset of Parquet and Feather files."""
        return open_dataset(self.name, self.kind) if self._opened_table is None else self._opened_table

    @cached_property
    def array(self) -> Any:
        """The Zarr array."""
        array = open_zarr(self.name) if self._opened_table is None else self._opened_table
        if array.ndim != 2 or np.dtype(array.dtype).kind not in "fiub":
            raise FileError(f"expected a table of numbers, got a Zarr array of {array.dtype}, shape {array.shape}.")
        if array.chunks[0] < 1:
            raise FileError(f"expected chunks of at least one row, got chunks of shape {array.chunks}.")
        return array

    @property
    def notes(self) -> list[tuple[str, bool]]:
        """Messages about the header of a text file, and whether they are warnings."""
        return self._text.notes if self.kind in ("csv", "tsv") else []

    @property
    def sep(self) -> str:
        """The separator of a text file."""
        return self._text.sep

    @property
    def names(self) -> list[str]:
        """The columns of a text, Parquet or Feather file."""
        return self._text.names if self.kind in ("csv", "tsv") else [str(name) for name in self.dataset.schema.names]

    @property
    def is_large(self) -> bool:
        """Whether the table should be read in batches; errors are left to the methods that read it."""
        if self._data is not None or not os.path.exists(self.name):
            return False
        if Path(self.name).is_dir():
            return True
        size = os.path.getsize(self.name)
        if self.kind == "parquet":
            try:
                fragment = next(self.dataset.get_fragments())
                size = 8 * fragment.metadata.num_rows * fragment.metadata.num_columns
            except Exception:  # it is damaged, or pyarrow is missing
                return False
        elif self.kind not in ("csv", "tsv", "npy", "feather"):
            return False
        return size * (_UNPACKED if self.name.lower().endswith(".gz") else 1) > LARGE

    def frames(
        self,
        choose: Choose = lambda names: None,
        step: int | None = None,
        progress: Callable[[float], None] = lambda share: None,
    ) -> Iterator["pd.DataFrame"]:
        """Yield the rows in batches, with unique text column names and an index from 0; none is empty.

        Parameters
        ----------
        choose : callable
            Given the columns, the ones to read; None stands for all.
        step : int, optional
            The number of rows in a batch; by default, a batch has `BATCH_VALUES` values.
        progress : callable
            It is called with the share of a text file that was read in search of the types of its columns.
        """
        seen = n_columns = 0
        for frame in self._read(choose, step, progress):
            frame.columns = [str(name) for name in frame.columns]
            frame = frame.reset_index(drop=True)
            chosen = choose(list(frame.columns))
            frame = frame if chosen is None else frame[chosen]
            n_columns = len(frame.columns)
            if not n_columns:
                raise FileError(f"{self.name} has no columns.")
            if len(frame):
                seen += len(frame)
                yield frame if self._lists else _without_objects(self._without_marks(frame))
        if not seen:
            # A file of another format than text without rows has no batch, and then the columns are not known.
            raise FileError(f"{self.name} has {count(n_columns, 'column') + ' but ' if n_columns else ''}no rows.")

    def read(
        self, choose: Choose = lambda names: None, progress: Callable[[float], None] = lambda share: None
    ) -> "pd.DataFrame":
        """Return the whole table; columns of numbers of a large one are memory maps of a temporary file."""
        import pandas as pd

        large = self.is_large
        frames = self.frames(choose, None if large else 2**62, progress)
        first = next(frames)
        if large and self.n_rows is not None and len(first) < self.n_rows:
            columns = _MappedColumns(first, self.n_rows)
            for frame in frames:
                columns.write(frame)
            return columns.frame()
        rest = list(frames)
        whole = pd.concat([first, *rest], ignore_index=True) if rest else first
        whole.attrs = first.attrs
        return whole

    def _without_marks(self, frame: "pd.DataFrame") -> "pd.DataFrame":
        """Return a table without the marks of missing values that were requested; text files are read without them."""
        if not self._options.na or self.kind in ("csv", "tsv"):
            return frame
        return frame.mask(frame.isin([*self._options.na, *self._options.marked_numbers]))

    # -- the formats ---------------------------------------------------------------------------------------------------

    def _opened(self) -> BinaryIO:
        if self._data is not None:
            return io.BytesIO(self._data)
        if self.name.lower().endswith(".gz"):
            return cast(BinaryIO, gzip.open(self.name))
        return open(self.name, "rb")

    def _read(self, choose: Choose, step: int | None, progress: Callable[[float], None]) -> Iterator["pd.DataFrame"]:
        if self.kind in ("csv", "tsv"):
            yield from self._read_text(choose, step, progress)
        elif self._data is None and self.kind in ("parquet", "feather"):
            yield from self._read_dataset(choose, step)
        elif self._data is None and self.kind == "npy":
            yield from self._read_map(step)
        elif self.kind == "zarr":
            yield from self._read_zarr(step)
        else:
            if self._data is None and Path(self.name).is_dir():
                raise FileError(f"cannot read {self.name}: it is a folder.")
            with reading(self.name), self._opened() as file:
                frame = self._read_whole(file)
            self.n_rows, self.share = len(frame), 1.0
            yield frame

    def _step(self, step: int | None, n_columns: int) -> int:
        return max(BATCH_VALUES // max(n_columns, 1), 1) if step is None else step

    def _read_text(
        self, choose: Choose, step: int | None, progress: Callable[[float], None]
    ) -> Iterator["pd.DataFrame"]:
        text = self._text
        chosen = choose(text.names)
        columns = text.names if chosen is None else chosen
        step = self._step(step, len(columns))
        seen = 0
        for frame in text.frames(columns, step, lambda file: progress(self._share_of(file))):
            self.n_rows, seen = text.n_rows, seen + len(frame)
            self.share = seen / max(text.n_rows or 1, 1)
            frame.attrs["sep"] = text.sep
            yield frame
        if not seen:
            raise FileError(f"{self.name} has {count(len(columns), 'column')} but no rows.")

    def _share_of(self, file: BinaryIO) -> float:
        """Return the share of a text file that has been read, by its position in the file on the disk."""
        if self._data is not None:
            return 1.0
        raw: Any = file.fileobj if isinstance(file, gzip.GzipFile) else file
        return min(raw.tell() / max(os.path.getsize(self.name), 1), 1.0)

    def _read_dataset(self, choose: Choose, step: int | None) -> Iterator["pd.DataFrame"]:
        fragments = list(self.dataset.get_fragments())
        with reading(self.name, f"a {self.kind.capitalize()} table"):
            self.n_rows = sum(fragment.count_rows() for fragment in fragments)
        for place, fragment in enumerate(fragments):
            with reading(fragment.path, f"a {self.kind.capitalize()} table"):
                names, n_rows = [str(name) for name in fragment.physical_schema.names], max(fragment.count_rows(), 1)
            chosen, n_read = choose(names), 0
            n_batch = min(self._step(step, len(chosen or names)), 2**30)
            for batch in batches_of(fragment, chosen, n_batch):
                n_read += len(batch)
                self.share = (place + n_read / n_rows) / len(fragments)
                with reading(fragment.path, f"a {self.kind.capitalize()} table"):
                    frame = batch.to_pandas()
                # The index that pandas has written is a column if it is named among those to read.
                yield frame if chosen is None or set(chosen) <= set(frame.columns) else frame.reset_index()

    def _read_map(self, step: int | None) -> Iterator["pd.DataFrame"]:
        rows = map_array(self.name)
        self.n_rows = len(rows)
        yield from self._slices(rows, 0, self._step(step, rows.shape[1] if rows.ndim == 2 else 1))

    def _slices(self, rows: np.ndarray, first: int, step: int) -> Iterator["pd.DataFrame"]:
        """Yield an array, whose first row has this number in the table, `step` rows at a time."""
        for start in range(0, len(rows), step):
            self.share = min(first + start + step, self.n_rows or 1) / (self.n_rows or 1)
            yield frame_of_array(np.array(rows[start : start + step]), self.name)

    def _read_zarr(self, step: int | None) -> Iterator["pd.DataFrame"]:
        array, self.n_rows = self.array, int(self.array.shape[0])
        step, chunk = self._step(step, array.shape[1]), int(array.chunks[0])
        in_chunks = max(step // chunk, 1) * chunk  # no chunk is read twice
        for start in range(0, self.n_rows, in_chunks):
            stop = min(start + in_chunks, self.n_rows)
            with reading(f"rows {start} to {stop - 1} of {self.name}"):
                rows = np.asarray(array[start:stop])
            yield from self._slices(rows, start, step)

    def _read_whole(self, file: BinaryIO) -> "pd.DataFrame":
        """Return a table of a format that is not read in batches."""
        import pandas as pd

        if self.kind in ("npy", "npz"):
            return read_arrays(file, self.name, self.kind, self._options.array)
        if self.kind in ("parquet", "feather"):
            with reading(self.name, f"a {self.kind.capitalize()} table"):
                return pd.read_parquet(file) if self.kind == "parquet" else pd.read_feather(file)
        if self.kind == "jsonl":
            with reading(self.name, "a table of JSON lines (one object per line)"):
                encoding = self._options.encoding
                plain: dict[str, Any] = {"dtype": False, "convert_dates": False, "precise_float": True}
                return pd.read_json(file, lines=True, encoding=encoding, **plain)
        header = None if self._options.no_header is True else 0
        sheet = 0 if self._options.array is None else self._options.array
        import_module("openpyxl")  # pandas' own error does not say in a form that can be read which package is missing
        with reading(self.name, "a workbook"):
            marks = list(self._options.marks)
            frame = pd.read_excel(file, sheet_name=sheet, header=header, na_values=marks, keep_default_na=False)
        if header is None:
            frame.columns = [f"x{i}" for i in range(frame.shape[1])]
        frame.attrs["array"] = sheet
        return frame


def read_table(
    path: str | os.PathLike[str],
    *,
    columns: list[str] | None = None,
    format: str | None = None,
    sep: str | None = None,
    encoding: str = "utf-8",
    decimal: str | None = None,
    na: list[str] | None = None,
    not_na: list[str] | None = None,
    no_header: bool = False,
    array: str | None = None,
) -> "pd.DataFrame":
    r"""Read a table from a file, as the command does.

    Parameters
    ----------
    path : path
        A CSV or TSV file (also with ``.gz``), a Parquet file or a folder of them, a Feather file, a workbook (``.xlsx``), JSON lines, NPY, NPZ, or
        a Zarr array.
    columns : list of str, optional
        The columns to read, in the order of the table.
    format : str, optional
        The format, such as "csv", if the extension of the file does not say it.
    sep : str, optional
        The separator of a text file. By default it is detected.
    encoding : str, default="utf-8"
        The encoding of a text file.
    decimal : str, optional
        The decimal mark of a text file; a point by default.
    na, not_na : list of str, optional
        Further texts (or numbers, such as "999") that mean a missing value, and texts of a text file that do not although they usually do,
        such as "NA".
    no_header : bool, default=False
        Whether the first line is data; the columns are then called "x0", "x1", ...
    array : str, optional
        The array of an NPZ file, or the sheet of a workbook.

    Returns
    -------
    DataFrame
        The types of the columns are those of the whole file. If the table has more than 64 MB, its columns of numbers are memory maps
        of a temporary file.

    Examples
    --------
    >>> import os, tempfile
    >>> from vicinal.tables import read_table
    >>> path = os.path.join(tempfile.mkdtemp(), "prices.csv")
    >>> with open(path, "w") as file:
    ...     _ = file.write("size;price\n1,5;9\n2,25;n/a\n")
    >>> read_table(path, decimal=",")
       size  price
    0  1.50    9.0
    1  2.25    NaN
    """
    options = ReadOptions(format, sep, encoding, decimal, na, not_na, no_header, array)

    def choose(names: list[str]) -> list[str] | None:
        missing = [name for name in columns or () if name not in names]
        if missing:
            hint = similar_columns(missing[:1], names)
            raise FileError(f"columns: there is no column {missing[0]!r}.{hint} The table has {shown(names)}.")
        return None if columns is None else [name for name in names if name in columns]

    path = os.fspath(path)
    if not os.path.exists(path):
        raise FileNotFoundError(f"there is no file or folder {path!r}.")
    return TableFile(path, options).read(choose)


def _without_objects(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return a table with bytes, lists and records, which Parquet may hold, as text."""
    for name in frame.columns[[isinstance(dtype, np.dtype) and dtype.kind == "O" for dtype in frame.dtypes]]:
        known = frame[name].dropna()
        if len(known) and known.map(lambda value: isinstance(value, (bytes, list, tuple, dict, np.ndarray))).any():
            frame = frame.assign(**{name: frame[name].map(str, na_action="ignore")})
    return frame


def _reserve(file: Any, n_bytes: int) -> None:
    """Take room on the disk, because writing to a memory map without room would end the process."""
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, n_bytes)
    except OSError as error:
        raise FileError(
            f"cannot write a temporary copy of the columns ({n_bytes:,} bytes): {error.strerror}. Set TMPDIR to a folder with more room."
        ) from error


class _MappedColumns:
    """The columns of a table that is collected batch by batch: numbers in a temporary file, all others in memory."""

    def __init__(self, first: "pd.DataFrame", n_rows: int) -> None:
        self._n_rows, self._seen = n_rows, 0
        with tempfile.TemporaryFile(prefix="vicinal-columns-") as file:
            shape = first.shape[1], 8 * n_rows
            _reserve(file, shape[0] * shape[1])
            self._bytes = np.memmap(file, dtype=np.uint8, mode="w+", shape=shape)  # which keeps the file
        self._numbers: dict[str, np.ndarray] = {}
        self._others: dict[str, list[Any]] = {}
        self._places = {name: place for place, name in enumerate(first.columns)}
        self._attrs = first.attrs
        self.write(first)

    def write(self, frame: "pd.DataFrame") -> None:
        """Append rows."""
        start, stop = self._seen, self._seen + len(frame)
        for name in frame.columns:
            column = frame[name]
            is_number = isinstance(column.dtype, np.dtype) and column.dtype.kind in _NUMBERS
            if name in self._others or not is_number:
                self._keep(name, column)
                continue
            known = self._numbers.get(name)
            dtype = column.dtype if known is None else np.result_type(known.dtype, column.dtype)
            if known is None or dtype != known.dtype:
                values = np.asarray(self._bytes[self._places[name]]).view(dtype)[: self._n_rows]
                if known is not None:
                    values[:start] = known[:start].copy()
                self._numbers[name] = values
            self._numbers[name][start:stop] = column.to_numpy()
        self._seen = stop

    def _keep(self, name: str, column: Any) -> None:
        """Keep a part of a column in memory; parts before it may be numbers."""
        import pandas as pd

        known = self._numbers.pop(name, None)
        parts = self._others.setdefault(name, [] if known is None else [pd.Series(known[: self._seen].copy())])
        parts.append(column)

    def frame(self) -> "pd.DataFrame":
        """Return the table."""
        import pandas as pd

        columns = {
            name: self._numbers[name][: self._seen]
            if name in self._numbers
            else pd.concat(self._others[name], ignore_index=True)
            for name in self._places
        }
        whole = pd.DataFrame(columns, copy=False)
        whole.attrs = self._attrs
        return whole
