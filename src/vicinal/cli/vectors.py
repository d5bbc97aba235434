"""Reading embeddings: .npy as a memory map, .npz, Parquet with a column of vectors, CSV of numbers."""

from functools import partial
from typing import Any

import numpy as np

from vicinal._files import FileError, is_number, map_array
from vicinal._words import count, shown
from vicinal.cli.console import Console
from vicinal.cli.errors import DATA, Failure
from vicinal.cli.tables import TableOptions, read_table, table_file


def read_vectors(path: str, console: Console, vector: str | None = None) -> np.ndarray:
    """Return a table of numbers with one row per vector."""
    kind = table_file(path).kind
    if kind == "npy":
        rows = map_array(path)
    elif kind == "npz":
        rows = _of_frame(_read_array(path, vector), path, None)
    else:
        data_first = partial(_is_data, path=path, console=console)
        rows = _of_frame(read_table(path, TableOptions(no_header=data_first), lists=True), path, vector)
    if rows.ndim != 2 or rows.dtype.kind not in "iuf" or not rows.size:
        raise Failure(DATA, f"{path} must hold vectors, one per row, got {rows.dtype} of shape {rows.shape}.")
    if rows.dtype not in (np.float32, np.float64):
        rows = np.asarray(rows, dtype=np.float32)
    for start in range(0, len(rows), 65_536):
        part = rows[start : start + 65_536]
        if not np.isfinite(part).all():
            bad = int((~np.isfinite(part)).any(axis=1).argmax()) + start
            raise Failure(DATA, f"{path}: row {bad} contains NaN or infinity. Drop such rows or fill in their values.")
        if not part.any(axis=1).all():
            bad = int((~part.any(axis=1)).argmax()) + start
            raise Failure(
                DATA,
                f"{path}: row {bad} is zero and has no direction. Drop such rows, which may come from empty texts.",
            )
    return rows


def _read_array(path: str, name: str | None) -> Any:
    """Return the only array of an .npz file, or the one with a name."""
    try:
        return read_table(path, TableOptions(array=name))
    except FileError as error:
        raise FileError(str(error).replace("array=", "vector=")) from error


def _is_data(fields: list[str], path: str, console: Console) -> bool:
    """Return whether the first line of a file is data, because a lost line would shift all row numbers.

    Numbers are data, except 0, 1, 2, ..., which pandas writes for columns without names.
    """
    if not all(map(is_number, fields)) or np.array_equal(list(map(float, fields)), np.arange(len(fields))):
        return False
    console.say(f"the first line of {path} contains numbers and is read as data.")
    return True


def _of_frame(frame: Any, path: str, vector: str | None) -> np.ndarray:
    listed = [name for name in frame if frame[name].map(lambda value: isinstance(value, (list, np.ndarray))).all()]
    if vector is not None:
        if vector not in listed:
            raise Failure(
                DATA, f"--vector {vector}: {path} has no such column of vectors; it has {shown(listed) or 'none'}."
            )
        listed = [vector]
    if len(listed) > 1:
        raise Failure(
            DATA, f"{path} has {count(len(listed), 'column')} of vectors: {shown(listed)}. Choose one with --vector."
        )
    if listed:
        try:
            return np.stack([np.asarray(value, dtype=np.float32) for value in frame[listed[0]]])
        except ValueError as error:
            raise Failure(DATA, f"{path}: the vectors in {listed[0]!r} do not all have the same length.") from error
    text = [name for name in frame if frame[name].dtype.kind not in "iuf"]
    if text:
        raise Failure(
            DATA, f"{path}: the columns {shown(text)} are not numbers. Expected a column of vectors, or numbers only."
        )
    return frame.to_numpy(dtype=np.float32)


def read_column(path: str, console: Console, n_rows: int, option: str, whose: str = "the corpus") -> list[Any]:
    """Return the first column of a table with one line per row of the corpus, or of the queries."""
    frame = read_table(path, console=console)
    if len(frame) == n_rows - 1 and table_file(path).kind in ("csv", "tsv"):  # its first line is not a header
        frame = read_table(path, TableOptions(no_header=True), console)
    values = frame.iloc[:, 0]
    if len(values) != n_rows:
        raise Failure(DATA, f"{option} {path}: expected {count(n_rows, 'row')}, as in {whose}, got {len(values)}.")
    return values.astype(object).where(values.notna(), None).tolist()
