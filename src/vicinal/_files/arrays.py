"""The files of NumPy and Zarr, and batches of Parquet and Feather files."""

import contextlib
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from vicinal._callers import callers_line
from vicinal._files.errors import FileError, reading
from vicinal._words import shown

if TYPE_CHECKING:
    import pandas as pd

MOST_CHUNKS = 100_000  # of a Zarr array that are looked for one by one when it is opened
_NAME_ARRAYS = ("names", "feature_names", "columns")
_ONLY_PLAIN = " It must hold arrays of numbers or text; arrays of Python objects are never loaded."


def map_array(path: str | Path) -> np.ndarray:
    """Return the array of an NPY file as a memory map."""
    with reading(path), open(path, "rb") as file:
        _check_beginning(file, path, "NPY")
    with reading(path, "NPY", _ONLY_PLAIN):
        rows = np.lib.format.open_memmap(path, mode="r")
    if not rows.ndim:
        raise FileError(f"{path} holds a single number; expected rows and columns (two dimensions).")
    return rows


def _check_beginning(file: BinaryIO, name: object, kind: str) -> None:
    start = file.read(6)
    file.seek(0)
    if not start.startswith((np.lib.format.MAGIC_PREFIX, b"PK")):
        # Without this check np.load would treat the file as a pickle, and its message would suggest loading it unsafely.
        raise FileError(f"cannot read {name} as {kind}: it is not a file that NumPy has written.")


def read_arrays(file: BinaryIO, name: str, kind: str, array: str | None) -> "pd.DataFrame":
    """Return the table of an NPY or NPZ file."""
    _check_beginning(file, name, kind.upper())
    with reading(name, kind.upper(), _ONLY_PLAIN):
        content = np.load(file, allow_pickle=False)
        if kind == "npy" and not hasattr(content, "files"):
            return frame_of_array(content, name)
        if not hasattr(content, "files"):
            raise ValueError("it holds one array; name it .npy")
        arrays = {key: content[key] for key in content.files}
    table = _main_array(arrays, name) if array is None else array
    if table not in arrays:
        raise FileError(f"array={table!r} is not in {name}, which holds {shown(arrays)}.")
    return _with_companions(arrays, table, name)


def _main_array(arrays: dict[str, np.ndarray], name: str) -> str:
    """Return the name of the 2-D array X, or of the only one."""
    tables = [key for key, value in arrays.items() if value.ndim == 2]
    if "X" in tables:
        return "X"
    if len(tables) == 1 or len(arrays) == 1:
        return (tables or list(arrays))[0]
    raise FileError(
        f"{name} holds the arrays {shown(arrays)}, and it is not clear which is the table. Choose one with array=NAME."
    )


def _with_companions(arrays: dict[str, np.ndarray], table: str, name: str) -> "pd.DataFrame":
    """Return an array as a table with its names, and other arrays with one entry per row as further columns."""
    rows = arrays[table]
    named = (
        arrays[key] for key in _NAME_ARRAYS if key in arrays and rows.ndim == 2 and arrays[key].shape == rows.shape[1:]
    )
    frame = frame_of_array(rows, name, next(named, None))
    for key, value in arrays.items():
        if key != table and value.ndim == 1 and len(value) == len(frame) and key not in frame:
            frame[key] = value
    frame.attrs["array"] = table
    return frame


def frame_of_array(array: np.ndarray, name: object, names: Iterable[Any] | None = None) -> "pd.DataFrame":
    """Return the table of an array of numbers, or of an array with named fields."""
    import pandas as pd

    if array.dtype.names:
        return pd.DataFrame({field: array[field] for field in array.dtype.names})
    if array.dtype.kind not in "iufb":
        raise FileError(f"{name} holds an array of {array.dtype}; expected numbers.")
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise FileError(f"{name} holds an array of shape {array.shape}; expected rows and columns (two dimensions).")
    columns = [f"x{i}" for i in range(array.shape[1])] if names is None else [str(value) for value in names]
    return pd.DataFrame(array, columns=columns)


def is_zarr(folder: str | Path) -> bool:
    """Return whether a folder is a Zarr array, or an array in a Zarr group."""
    folder = Path(folder)
    return folder.suffix == ".zarr" or any((folder / name).exists() for name in ("zarr.json", ".zarray", ".zgroup"))


def open_zarr(path: str | Path) -> Any:
    """Return the Zarr array at a path; warn if parts of it are not stored."""
    import zarr

    with reading(path):
        array: Any = zarr.open(str(path), mode="r")
        inner = None if hasattr(array, "nchunks") else sorted(name for name, _ in array.arrays())
    if inner is not None:
        raise FileError(
            f"{path} is a Zarr group, and a table is one array. "
            + (
                f"Open one of its arrays ({', '.join(inner)}), as in open_rows({str(Path(path) / inner[0])!r})."
                if inner
                else "It has no array."
            )
        )
    with reading(path):
        missing = array.nchunks - array.nchunks_initialized if array.nchunks <= MOST_CHUNKS else 0
    if missing > 0:
        warnings.warn(
            f"{path} stores only {array.nchunks - missing} of its {array.nchunks} chunks; Zarr reads the others as "
            f"{array.fill_value}. If the array was not written completely, write it again.",
            stacklevel=callers_line(),
        )
    return array


def open_dataset(path: str | Path, kind: str = "parquet") -> Any:
    """Return the pyarrow dataset of a Parquet or Feather file, or of a folder of them."""
    from pyarrow import dataset

    described = "a Parquet table" if kind == "parquet" else "a Feather table"
    with reading(path, described):
        content = dataset.dataset(path, format=kind)
    if not content.files:
        raise FileError(f"cannot read {path}: the folder holds no {kind.capitalize()} file.")
    return content


def batches_of(fragment: Any, columns: Sequence[str] | None, step: int) -> Iterator[Any]:
    """Yield record batches of a file of a dataset, of at most `step` rows."""
    from pyarrow import parquet

    columns = None if columns is None else list(columns)
    with contextlib.ExitStack() as stack:
        with reading(fragment.path):
            if fragment.format.default_extname == "parquet":
                # Not `to_batches`, which reads several row groups ahead.
                content = stack.enter_context(parquet.ParquetFile(stack.enter_context(fragment.open())))
                batches = content.iter_batches(step, columns=columns)
            else:
                options = {"batch_size": step, "batch_readahead": 0, "fragment_readahead": 0}
                batches = iter(fragment.to_batches(columns=columns, **options))
        while True:
            with reading(fragment.path):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch
