"""Limits on the unpacked size of compressed tables: a file that was made to fill the memory raises an error before it does."""

import gzip
import io
import re
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

from vicinal._app.errors import DataFailure
from vicinal._words import count

# A compressed file may unpack to this size, or to this many times its own size. Tables usually shrink to a tenth when they are
# compressed, rarely to a fiftieth; a file that was made to fill the memory shrinks to a thousandth.
_UNPACKED, _RATIO = 256 << 20, 100
# Bytes of a cell of a workbook in memory, even of an empty one: a reference in the list of its row and one in the table.
_CELL = 32
# Bytes of a value in memory, by the physical type of Parquet. For text, it is the size of a reference.
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 8}


class UnpackLimit:
    """The largest size to which a file may unpack.

    Parameters
    ----------
    name : str
        The name of the file for messages.
    packed : int
        Its size in bytes.
    asked : str or None
        The value of ``--max-unpacked``.
    """

    def __init__(self, name: str, packed: int, asked: str | None) -> None:
        self._name, self._asked = name, asked
        self.most = max(_UNPACKED, _RATIO * packed) if asked is None else _bytes_of(asked)

    def check(self, unpacked: int) -> None:
        """Raise an error for a file that unpacks to more bytes than allowed."""
        if unpacked <= self.most:
            return
        why = f", over {_RATIO} times its size," if self._asked is None else ", as --max-unpacked allows,"
        raise DataFailure(
            f"{self._name} unpacks to more than {self.most >> 20:,} MB{why} and might fill the memory. Pass a larger "
            "--max-unpacked SIZE, as in '4 GB', if you trust the file."
        )


def _bytes_of(size: str) -> int:
    """Return the number of bytes of a string such as "4 GB", which the parser has validated."""
    number, unit = re.findall(r"[0-9.]+|[KMGT](?=I?B?\s*$)|$", size.strip().upper())[:2]
    return int(float(number) * 1024 ** " KMGT".index(unit or " "))


def refuse_gzip_bomb(source: str, asked: str | None) -> None:
    """Unpack a file without keeping its contents, and raise an error if it exceeds the limit."""
    limit, unpacked = UnpackLimit(source, Path(source).stat().st_size, asked), 0
    with gzip.open(source) as file:
        while block := file.read(1 << 20):
            unpacked += len(block)
            limit.check(unpacked)


def refuse_zip_bomb(file: BinaryIO, name: str, asked: str | None) -> None:
    """Raise an error for an archive whose parts exceed the limit together; no part unpacks to more than its stated size."""
    limit = UnpackLimit(name, file.seek(0, io.SEEK_END), asked)
    with zipfile.ZipFile(file) as parts:
        unpacked = sum(part.file_size for part in parts.infolist())
    file.seek(0)
    limit.check(unpacked)


def refuse_far_cells(file: BinaryIO, name: str, sheet: Any, asked: str | None) -> None:
    """Raise an error for a sheet whose cells lie so far apart that the empty ones between them would fill the memory.

    Parameters
    ----------
    file : binary file
        The workbook.
    name : str
    sheet : worksheet of openpyxl, opened for reading only
        It yields every row up to the last one, and pandas fills each of them up to the last column.
    asked : str or None
        The value of ``--max-unpacked``.
    """
    from xml.parsers import expat

    from openpyxl.utils.cell import coordinate_to_tuple

    limit = UnpackLimit(name, file.seek(0, io.SEEK_END), asked)
    row = column = widest = 0

    def begin(tag: str, attributes: dict[str, str]) -> None:
        nonlocal row, column, widest
        place = attributes.get("r")
        if tag == "row":  # rows and cells without a number follow the one before
            row, column = row + 1 if place is None else int(float(place)), 0
        elif tag == "c":
            column = coordinate_to_tuple(place)[1] if place else column + 1
            widest = max(widest, column)
        if row * max(widest, 1) * _CELL > limit.most:
            raise DataFailure(
                f"{name} has a sheet with at least {count(row, 'row')} and {count(widest, 'column')}, which would take more "
                f"than {limit.most >> 20:,} MB, empty cells included, and might fill the memory. Delete the cells far from "
                "the table, or pass a larger --max-unpacked SIZE, as in '4 GB', if you trust the file."
            )

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler = lambda tag, attributes: begin(tag.rpartition(" ")[2], attributes)
    with zipfile.ZipFile(file) as parts, parts.open(sheet._worksheet_path) as part:
        parser.ParseFile(part)
    file.seek(0)


def read_parquet(content: bytes, name: str, asked: str | None, choose: Any) -> Any:
    """Return some columns of a Parquet file as an Arrow table, or raise an error if they would fill the memory.

    Parameters
    ----------
    content : bytes
        The contents of the file.
    name : str
    asked : str or None
        The value of ``--max-unpacked``.
    choose : callable
        Returns the names of the columns to read, given those of the file; None for all.

    Notes
    -----
    A thousand equal values take no more space in the file than one, so the stated unpacked size is not reliable. Numbers
    are counted; texts are read as references to the distinct ones, and are expanded when their lengths are known.
    """
    from pyarrow.parquet import ParquetFile

    limit, found = UnpackLimit(name, len(content), asked), ParquetFile(io.BytesIO(content))
    schema = found.schema_arrow
    chosen = choose([str(column) for column in schema.names])
    limit.check(size_of_values(found.metadata, chosen))
    table = ParquetFile(io.BytesIO(content), read_dictionary=text_columns(schema)).read(columns=chosen)
    return with_plain_texts(table, text_columns(schema), limit)


def text_columns(schema: Any) -> list[str]:
    """Return the columns of text, which are read as references first."""
    return [field.name for field in schema if _is_text(field.type)]


def with_plain_texts(table: Any, texts: list[str], limit: UnpackLimit) -> Any:
    """Return an Arrow table with its texts expanded, or raise an error if that would fill the memory."""
    from pyarrow import types

    read = [i for i, field in enumerate(table.schema) if field.name in texts and types.is_dictionary(field.type)]
    limit.check(table.nbytes + sum(_size_of_texts(table.column(i)) for i in read))
    for i in read:
        column = table.column(i)
        table = table.set_column(i, table.schema.field(i).name, column.cast(column.type.value_type))
    return table


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind)


def size_of_values(metadata: Any, chosen: list[str] | None) -> int:
    """Return how many bytes the values of some columns take in memory; of texts, only the references."""
    size = 0
    wanted = None if chosen is None else set(chosen)
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        for j in range(group.num_columns):
            column = group.column(j)
            path = column.path_in_schema
            # The parts of a list or a record have a path that begins with the name of the column.
            if wanted is not None and path not in wanted and path.split(".")[0] not in wanted:
                continue
            width = _WIDTHS.get(column.physical_type) or max(metadata.schema.column(j).length, 1)
            size += max(column.num_values * width, column.total_uncompressed_size)
    return size


def _size_of_texts(column: Any) -> int:
    """Return how many bytes the texts of a dictionary column take when each row has its own."""
    from pyarrow import compute

    size = 0
    for chunk in column.chunks:
        lengths = compute.take(compute.binary_length(chunk.dictionary), chunk.indices)
        size += compute.sum(compute.cast(lengths, "int64")).as_py() or 0
    return size
