"""Dask collections as tables in memory, and as sources of rows."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import dask
import numpy as np
from dask.delayed import Delayed

from vicinal._dask import is_collection
from vicinal._dask.cluster import computed


def tables_in_memory(
    X: Any, args: tuple[Any, ...], options: dict[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a fit with Dask collections in memory; raise if one is not aligned with X."""
    names = ("y", "sample_weight", *(f"argument {i}" for i in range(3, len(args) + 1)))[: len(args)]
    asked = {"X": X, **dict(zip(names, args, strict=True)), **options}
    blocks = _aligned_blocks(asked)
    computed_blocks = iter(computed([block for parts in blocks.values() for block in parts]))
    found = {name: [next(computed_blocks) for _ in parts] for name, parts in blocks.items()}
    lengths = {name: [len(block) for block in parts] for name, parts in found.items()}
    n = sum(lengths["X"]) if "X" in lengths else len(X)
    if n == 0:
        raise ValueError(f"X has no rows: all of its {len(lengths['X'])} partitions are empty. Check how it was read.")
    for name, counts in lengths.items():
        _check_lengths(name, counts, lengths.get("X", getattr(X, "partition_lengths", None)), n)
    tables = {name: _together(parts) for name, parts in found.items()}
    whole = [tables.get(name, value) for name, value in zip(names, args, strict=True)]
    return tables.get("X", X), tuple(whole), {name: tables.get(name, value) for name, value in options.items()}


def partitions(X: Any, y: Any) -> tuple[list[Delayed], list[int], Any]:
    """Return the partitions of X as delayed tables, their numbers of rows, and y in memory; raise if y is not aligned."""
    blocks = _aligned_blocks({"X": X, "y": y})
    length = dask.delayed(len, pure=True)
    labels = blocks.get("y", [])
    found = computed([*(length(part) for part in blocks["X"]), *labels])
    lengths = [int(n) for n in found[: len(blocks["X"])]]
    if sum(lengths) == 0:
        raise ValueError(f"X has no rows: all of its {len(lengths)} partitions are empty. Check how it was read.")
    if labels:
        parts = found[len(lengths) :]
        _check_lengths("y", [len(part) for part in parts], lengths, sum(lengths))
        y = _together(parts)
    return blocks["X"], lengths, y


def table_of(X: Any) -> Any:
    """Return a table of one row of zeros, with the columns and the precision of a collection."""
    if not hasattr(X, "columns"):
        return np.zeros((1, X.shape[1]), dtype=_precision([X.dtype]))
    import pandas as pd

    return pd.DataFrame(np.zeros((1, len(X.columns)), dtype=_precision(X.dtypes)), columns=list(X.columns))


def _precision(kinds: Iterable[Any]) -> np.dtype:
    """Return float32 if all columns have that dtype, else float64."""
    return np.dtype(np.float32 if all(kind == np.dtype(np.float32) for kind in kinds) else np.float64)


def _aligned_blocks(asked: dict[str, Any]) -> dict[str, list[Delayed]]:
    """Return the partitions of the arguments that are collections; raise if one cannot be aligned with X."""
    blocks = {name: delayed_blocks(value, name) for name, value in asked.items() if is_collection(value)}
    for name in blocks:
        if name != "X" and "X" in blocks:
            _check_partitions(asked["X"], asked[name], name)
    return blocks


def _check_partitions(X: Any, other: Any, name: str) -> None:
    mine, theirs = _n_partitions(X), _n_partitions(other)
    known = _length(X), _length(other)
    if mine != theirs and None in known:
        raise ValueError(
            f"X has {mine} partitions of unknown sizes and {name} has {theirs}, so their rows cannot be matched. Take both "
            "from the same dataframe, or call compute_chunk_sizes() on the arrays."
        )
    if None not in known and known[0] != known[1]:
        raise ValueError(f"X has {known[0]} rows and {name} has {known[1]}: they must belong to the same rows.")


def _check_lengths(name: str, found: list[int], of_rows: list[int] | None, n: int) -> None:
    if sum(found) != n:
        raise ValueError(f"X has {n} rows and {name} has {sum(found)}: they must belong to the same rows.")
    if of_rows is not None and len(found) == len(of_rows) and found != of_rows:
        at = next(i for i, (a, b) in enumerate(zip(found, of_rows, strict=True)) if a != b)
        raise ValueError(
            f"partition {at} of X has {of_rows[at]} rows and that of {name} {found[at]}: their rows cannot be matched. Take both "
            "from the same dataframe, or rechunk one like the other."
        )


def _n_partitions(collection: Any) -> int:
    return int(collection.numblocks[0] if hasattr(collection, "numblocks") else collection.npartitions)


def _length(collection: Any) -> int | None:
    """Return the number of rows, if it is known without a computation."""
    if not hasattr(collection, "chunks") or np.isnan(collection.shape[0]):
        return None
    return int(collection.shape[0])


def delayed_blocks(collection: Any, name: str) -> list[Delayed]:
    """Return the partitions of a collection, each with whole rows."""
    kind = type(collection).__name__
    if isinstance(collection, Delayed) or not any(hasattr(collection, tell) for tell in ("chunks", "dtypes", "dtype")):
        raise TypeError(
            f"{name} must be a Dask array or dataframe, got a Dask {kind}. Make one of it with from_delayed."
        )
    if hasattr(collection, "chunks"):  # an array
        if hasattr(collection._meta, "nnz"):
            raise TypeError(
                f"{name} must have dense chunks, got sparse ones ({type(collection._meta).__name__}). Make them dense with "
                "map_blocks(lambda chunk: chunk.toarray())."
            )
        if collection.ndim not in (1, 2) or (name == "X" and collection.ndim != 2):
            raise ValueError(
                f"{name} must be a table of rows, got a Dask array of {collection.ndim} dimensions. Reshape it first."
            )
        if collection.ndim == 2 and collection.numblocks[1] > 1:
            collection = collection.rechunk({1: -1})
        return list(collection.to_delayed(optimize_graph=True).reshape(-1))
    # Only the columns that are needed are read.  Dask's full optimisation would also merge small files into fewer partitions,
    # which then no longer match those of other columns.
    return list(collection.simplify().to_delayed(optimize_graph=False))


def _together(parts: list[Any]) -> Any:
    """Concatenate blocks into one table; empty blocks are used only if all are empty."""
    filled = [part for part in parts if len(part)] or parts[:1]
    if hasattr(filled[0], "iloc"):
        import pandas as pd

        return pd.concat(filled) if len(filled) > 1 else filled[0]
    return np.concatenate(filled) if len(filled) > 1 else np.asarray(filled[0])


class RowsInParts(ABC):
    """Rows in the partitions of a Dask collection as a source of rows; see `vicinal._row_sources`.

    Parameters
    ----------
    lengths : sequence of int
        The numbers of rows of the parts.
    n_columns : int
    dtype : numpy.dtype
    columns : list of str or None
    """

    def __init__(self, lengths: Iterable[int], n_columns: int, dtype: np.dtype, columns: list[str] | None) -> None:
        self.lengths = [int(length) for length in lengths]
        self.starts = np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)
        self.shape, self.dtype, self.columns = (int(self.starts[-1]), int(n_columns)), np.dtype(dtype), columns

    @property
    @abstractmethod
    def parts(self) -> list[Delayed]:
        """The parts as delayed tables."""

    def __len__(self) -> int:
        return self.shape[0]

    def blocks(self, start: int = 0) -> Iterator[np.ndarray]:
        """Yield the rows from position `start` on, a part at a time."""
        for i, part in enumerate(self.parts):
            first = max(start - int(self.starts[i]), 0)
            if first < self.lengths[i]:
                yield np.asarray(computed([part])[0][first:], dtype=self.dtype)

    def take(self, positions: np.ndarray) -> np.ndarray:
        """Return the rows at some positions; only these are transferred."""
        return taken(self.parts, self.starts, positions, self.shape[1], self.dtype)


def taken(
    parts: list[Delayed], starts: np.ndarray, positions: np.ndarray, n_columns: int, dtype: np.dtype
) -> np.ndarray:
    """Return the rows at some positions among those of all parts, of which the first ones are at `starts`."""
    positions = np.asarray(positions, dtype=np.int64)
    of_part = np.searchsorted(starts, positions, side="right") - 1
    some = np.unique(of_part)
    where = [np.flatnonzero(of_part == i) for i in some]
    asked = [
        dask.delayed(_rows_at)(parts[i], positions[places] - starts[i], dtype)
        for i, places in zip(some, where, strict=True)
    ]
    rows = np.empty((len(positions), n_columns), dtype=dtype)
    for places, found in zip(where, computed(asked), strict=True):
        rows[places] = found
    return rows


def _rows_at(part: Any, positions: np.ndarray, dtype: np.dtype) -> np.ndarray:
    rows = getattr(part, "centres", part)  # of a mixture, or of a table
    return np.asarray(rows.iloc[positions] if hasattr(rows, "iloc") else rows[positions], dtype=dtype)


class DaskRows(RowsInParts):
    """A Dask array or dataframe as a source of rows, which computes its partitions whenever some of their rows are needed.

    Parameters
    ----------
    collection : dask.array.Array or dask.dataframe.DataFrame
    """

    def __init__(self, collection: Any) -> None:
        self._parts = delayed_blocks(collection, "X")
        lengths = computed([dask.delayed(len, pure=True)(part) for part in self._parts])
        super().__init__(lengths, *columns_of(collection))

    @property
    def parts(self) -> list[Delayed]:
        """The partitions."""
        return self._parts

    def kept(self) -> np.ndarray:
        """Return all rows in memory, as the components of a density."""
        return np.concatenate([np.empty((0, self.shape[1]), dtype=self.dtype), *self.blocks()])


def columns_of(collection: Any) -> tuple[int, np.dtype, list[str] | None]:
    """Return the number of columns of a collection, the precision of its rows, and the names of its columns, if any."""
    if not hasattr(collection, "columns"):
        return int(collection.shape[1]), _precision([collection.dtype]), None
    names = [str(name) for name in collection.columns]
    return len(names), _precision(collection.dtypes), names
