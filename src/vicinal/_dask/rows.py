"""Dask collections as tables in memory, and as sources of rows."""

import warnings
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import dask
import numpy as np
from dask.delayed import Delayed

from vicinal._callers import callers_line
from vicinal._dask import is_collection
from vicinal._dask.cluster import active_client, computed, has_client

MOST_DENSITY_BYTES = 2**31  # the rows of a collection that a density keeps in the memory of this process, in bytes


def tables_in_memory(
    X: Any, args: tuple[Any, ...], options: dict[str, Any], of_density: bool = False
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a fit with Dask collections in memory; raise if one is not aligned with X.

    If a density could not keep all rows of X, a random sample of them is returned, with a warning.
    """
    names = ("y", "sample_weight", *(f"argument {i}" for i in range(3, len(args) + 1)))[: len(args)]
    arguments = {"X": X, **dict(zip(names, args, strict=True)), **options}
    blocks = _aligned_blocks(arguments)
    sample = _sample_of_parts(X, blocks["X"]) if of_density and "X" in blocks else None
    if sample is not None:
        blocks["X"] = sample.blocks
    computed_blocks = iter(computed([block for parts in blocks.values() for block in parts]))
    tables_of = {name: [next(computed_blocks) for _ in parts] for name, parts in blocks.items()}
    lengths = {name: [len(block) for block in parts] for name, parts in tables_of.items()}
    if sample is not None:
        lengths["X"] = sample.lengths
    n = sum(lengths["X"]) if "X" in lengths else len(X)
    if n == 0:
        raise ValueError(f"X has no rows: all of its {len(lengths['X'])} partitions are empty. Check how it was read.")
    for name, counts in lengths.items():
        _check_lengths(name, counts, lengths.get("X", getattr(X, "lengths", None)), n)
    tables = {name: _together(parts) for name, parts in tables_of.items()}

    def in_memory(name: str, value: Any) -> Any:
        table = tables.get(name, value)
        if sample is None or name == "X" or not hasattr(table, "__len__") or len(table) != n:
            return table
        return table.iloc[sample.positions] if hasattr(table, "iloc") else np.asarray(table)[sample.positions]

    aligned = tuple(in_memory(name, value) for name, value in zip(names, args, strict=True))
    return tables.get("X", X), aligned, {name: in_memory(name, value) for name, value in options.items()}


class _Sample(NamedTuple):
    """A random sample of the rows of a collection."""

    positions: np.ndarray  # increasing, among all rows
    blocks: list[Delayed]  # the chosen rows of each partition
    lengths: list[int]  # the numbers of all rows of the partitions


def _sample_of_parts(X: Any, parts: list[Delayed]) -> _Sample | None:
    """Return a sample of the rows of a collection if a density cannot keep all of them, and warn; else None."""
    known = _length(X)
    if known is not None and known * _row_bytes(X) <= MOST_DENSITY_BYTES:
        return None
    lengths = [int(length) for length in computed([dask.delayed(len, pure=True)(part) for part in parts])]
    positions = sampled_positions(sum(lengths), _row_bytes(X))
    if positions is None:
        return None
    starts = np.concatenate([[0], np.cumsum(lengths)])
    chosen = [positions[(positions >= first) & (positions < last)] - first for first, last in pairwise(starts)]
    take = dask.delayed(_rows_of_part, pure=True)
    return _Sample(positions, [take(part, rows) for part, rows in zip(parts, chosen, strict=True)], lengths)


def sampled_positions(n: int, row_bytes: int) -> np.ndarray | None:
    """Return the positions of the sample of n rows that a density keeps, and warn; None if it keeps all of them."""
    most = max(MOST_DENSITY_BYTES // row_bytes, 1)
    if n <= most:
        return None
    warnings.warn(
        f"the density keeps a random sample of {most:,} of the {n:,} rows of this Dask collection, because it holds its rows in the "
        f"memory of this process, at most {MOST_DENSITY_BYTES / 2**30:.3g} GiB of them. Pass a sample of your own to choose which.",
        UserWarning,
        stacklevel=callers_line(),
    )
    return np.sort(np.random.default_rng(0).choice(n, most, replace=False))


def _row_bytes(X: Any) -> int:
    n_columns, dtype, _ = columns_of(X)
    return max(n_columns * dtype.itemsize, 1)


def _rows_of_part(part: Any, positions: np.ndarray) -> Any:
    return part.iloc[positions] if hasattr(part, "iloc") else np.asarray(part)[positions]


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


class DaskRows:
    """A Dask array or dataframe as a source of rows; see `vicinal._row_sources`.

    With an active client, the partitions are computed once and stay with the workers, which move them to their disks if their
    memory is full. Without one, they are computed whenever some of their rows are needed.

    Parameters
    ----------
    collection : dask.array.Array or dask.dataframe.DataFrame
    """

    def __init__(self, collection: Any) -> None:
        self._parts = delayed_blocks(collection, "X")
        if has_client():
            self._parts = [dask.delayed(future) for future in active_client().compute(self._parts)]
        self.lengths = [int(n) for n in computed([dask.delayed(len, pure=True)(part) for part in self._parts])]
        self._starts = np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)
        n_columns, self.dtype, self.columns = columns_of(collection)
        self.shape = int(self._starts[-1]), n_columns

    def __len__(self) -> int:
        return self.shape[0]

    def blocks(self, start: int = 0) -> Iterator[np.ndarray]:
        """Yield the rows from position `start` on, a partition at a time."""
        for part, first, length in zip(self._parts, self._starts, self.lengths, strict=False):
            skipped = max(start - int(first), 0)
            if skipped < length:
                yield np.asarray(computed([part])[0][skipped:], dtype=self.dtype)

    def take(self, positions: np.ndarray) -> np.ndarray:
        """Return the rows at some positions; only these are transferred."""
        positions = np.asarray(positions, dtype=np.int64)
        part_of_row = np.searchsorted(self._starts, positions, side="right") - 1
        places = {int(i): np.flatnonzero(part_of_row == i) for i in np.unique(part_of_row)}
        tasks = [
            dask.delayed(_rows_of_part)(self._parts[i], positions[where] - self._starts[i])
            for i, where in places.items()
        ]
        rows = np.empty((len(positions), self.shape[1]), dtype=self.dtype)
        for where, values in zip(places.values(), computed(tasks), strict=True):
            rows[where] = values
        return rows

    def kept(self) -> np.ndarray:
        """Return all rows in memory."""
        return np.concatenate([np.empty((0, self.shape[1]), dtype=self.dtype), *self.blocks()])

    def density_positions(self) -> np.ndarray:
        """Return the positions of the rows that a density keeps in memory: all, or a sample with a warning if they are too many."""
        sample = sampled_positions(len(self), self.shape[1] * self.dtype.itemsize)
        return np.arange(len(self)) if sample is None else sample


def columns_of(collection: Any) -> tuple[int, np.dtype, list[str] | None]:
    """Return the number of columns of a collection, the precision of its rows, and the names of its columns, if any."""
    if not hasattr(collection, "columns"):
        return int(collection.shape[1]), _precision([collection.dtype]), None
    names = [str(name) for name in collection.columns]
    return len(names), _precision(collection.dtypes), names
