"""Rows that stay on the workers of a cluster, in blocks of a fitting size."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import dask
import numpy as np
from dask.delayed import Delayed
from distributed import Future

from vicinal._dask.cluster import active_client, computed, hold, only_responding, sent_to_some, wait_for_a_worker
from vicinal._dask.rows import RowsInParts, columns_of, delayed_blocks

# The sizes of a block, in bytes: partitions are joined up to the first one, and divided above the second one.  Sums over the pairs of two
# blocks are one task, which takes seconds, and a worker can hold several copies of a block.
LEAST_BLOCK, MOST_BLOCK = 2**26, 2**28


class DistantRows(RowsInParts):
    """Rows in the memory of the workers, as a source of rows; they are released with the last reference to this object.

    Parameters
    ----------
    futures : list of distributed.Future
        The blocks, as arrays of shape (m, d).
    lengths : sequence of int
        The numbers of rows of the blocks.
    n_columns : int
    dtype : numpy.dtype
    columns : list of str or None
    partition_lengths : list of int, optional
        The numbers of rows of the partitions of the collection that the rows are from.
    """

    is_distant = True

    def __init__(
        self,
        futures: list[Future],
        lengths: Sequence[int],
        n_columns: int,
        dtype: np.dtype,
        columns: list[str] | None = None,
        partition_lengths: list[int] | None = None,
    ) -> None:
        super().__init__(lengths, n_columns, dtype, columns)
        self.futures, self.partition_lengths = futures, partition_lengths

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        hold(self.futures)

    @property
    def parts(self) -> list[Delayed]:
        """The blocks as delayed arrays."""
        return [dask.delayed(future) for future in self.futures]

    @classmethod
    def sent(cls, rows: np.ndarray) -> "DistantRows":
        """Send rows that are in this process to the workers, each block to one of them."""
        edges = block_edges([len(rows)], _row_bytes(rows.shape[1], rows.dtype))
        blocks = [rows[first:last] for first, last in edges]
        return cls(
            sent_to_some(active_client(), "vicinal-rows", blocks), list(map(len, blocks)), rows.shape[1], rows.dtype
        )

    def kept(self) -> "DistantRows":
        """Return these rows: a fitted density refers to them."""
        return self

    def each(self, function: Callable[..., Any], *aligned: np.ndarray | None) -> list[Any]:
        """Return the results of a function for the blocks, each computed by a worker.

        Parameters
        ----------
        function : callable
            Called with the rows of a block and its part of each of the aligned arrays; its result is sent to this process.
        aligned : arrays of shape (n, ...) or None
        """
        return computed(self.applied(function, *aligned))

    def applied(self, function: Callable[..., Any], *aligned: np.ndarray | None) -> list[Delayed]:
        """Return the results of a function for the blocks, as `each` does, as delayed objects."""
        others = [sliced(array, self.starts) for array in aligned]
        return [dask.delayed(function)(part, *more) for part, *more in zip(self.parts, *others, strict=True)]

    def mapped(self, function: Callable[..., np.ndarray], n_columns: int | None = None) -> "DistantRows":
        """Return the rows that a function makes of those of each block, on the workers, in the same precision.

        `n_columns` is the number of their columns, by default as many.
        """
        width = self.shape[1] if n_columns is None else n_columns
        columns = self.columns if n_columns is None else None
        futures = active_client().compute(self.applied(partial(_mapped, function, self.dtype)))
        return DistantRows(futures, self.lengths, width, self.dtype, columns, self.partition_lengths)

    def of_columns(self, positions: np.ndarray) -> "DistantRows":
        """Return some columns of the rows."""
        found = self.mapped(partial(_some_columns, positions), len(positions))
        found.columns = None if self.columns is None else [self.columns[k] for k in positions]
        return found

    def classes(self, places: list[np.ndarray]) -> list["DistantRows"]:
        """Return the rows of each class, given the increasing positions of its rows."""
        codes = np.full(len(self), -1, dtype=np.int32)
        for code, rows in enumerate(places):
            codes[rows] = code
        sent, parts, found = sliced(codes, self.starts), self.parts, []
        for code, rows in enumerate(places):
            chosen = [dask.delayed(_with_code)(part, some, code) for part, some in zip(parts, sent, strict=True)]
            counts = np.diff(np.searchsorted(rows, self.starts)).tolist()
            futures, lengths = _blocks_of(chosen, counts, self.shape[1], self.dtype)
            found.append(DistantRows(futures, lengths, self.shape[1], self.dtype, self.columns))
        return found

    def __array__(self, *args: Any, **options: Any) -> np.ndarray:
        raise RuntimeError(
            f"these {self.shape[0]} rows are on the workers of a Dask cluster, and were needed in this process. Call gather() on "
            "the estimator first."
        )


class Persisted:
    """The partitions of a collection, which stay in the memory of the workers as long as this object exists.

    Nothing is computed if the sizes of the partitions are known.

    Parameters
    ----------
    collection : dask.array.Array or dask.dataframe.DataFrame
    """

    def __init__(self, collection: Any) -> None:
        self._parts = delayed_blocks(collection, "X")
        self.n_columns, self.dtype, self._columns = columns_of(collection)
        lengths = collection.chunks[0] if hasattr(collection, "chunks") else (np.nan,)
        self._held: list[Future] = []
        if np.isnan(lengths).any():
            client = active_client()
            wait_for_a_worker(client)
            self._held = client.compute(self._parts, workers=only_responding(client))
            self._parts = [dask.delayed(future) for future in self._held]
            lengths = computed([dask.delayed(len)(part) for part in self._parts])
        self.lengths = [int(length) for length in lengths]

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and of columns."""
        return sum(self.lengths), self.n_columns

    def rows(self) -> DistantRows:
        """Return the rows in blocks; small partitions are joined, and large ones are divided."""
        wait_for_a_worker(active_client())
        futures, lengths = _blocks_of(self._parts, self.lengths, self.n_columns, self.dtype)
        return DistantRows(futures, lengths, self.n_columns, self.dtype, self._columns, self.lengths)


def block_edges(lengths: Sequence[int], row_bytes: int) -> list[tuple[int, int]]:
    """Return the first position of each block, and the one after its last, for partitions of these numbers of rows.

    Partitions are joined until there are `LEAST_BLOCK` bytes; one of more than `MOST_BLOCK` bytes is divided.
    """
    edges, place = [0], 0
    for length in lengths:
        if (place + length - edges[-1]) * row_bytes > MOST_BLOCK and place > edges[-1]:
            edges.append(place)
        pieces = -(-length * row_bytes // MOST_BLOCK)
        edges += [place + length * piece // pieces for piece in range(1, pieces)]
        place += length
        if (place - edges[-1]) * row_bytes >= LEAST_BLOCK:
            edges.append(place)
    if place > edges[-1]:
        edges.append(place)
    return list(pairwise(edges))


def sliced(array: np.ndarray | None, starts: np.ndarray) -> list[Any]:
    """Return the parts of an array between some positions, sent to the workers; None for each if there is no array."""
    if array is None:
        return [None] * (len(starts) - 1)
    some = [array[first:last] for first, last in pairwise(starts)]
    return sent_to_some(active_client(), "vicinal-values", some)


def _row_bytes(n_columns: int, dtype: Any) -> int:
    return max(n_columns * np.dtype(dtype).itemsize, 1)


def _blocks_of(
    parts: list[Delayed], lengths: Sequence[int], n_columns: int, dtype: np.dtype
) -> tuple[list[Future], list[int]]:
    """Return the blocks of partitions, computed by the workers, and their numbers of rows."""
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    join = dask.delayed(_joined, pure=True, name="vicinal-rows")
    blocks, counts = [], []
    for first, last in block_edges(lengths, _row_bytes(n_columns, dtype)):
        some = [i for i in range(len(parts)) if starts[i] < last and starts[i + 1] > first]
        cuts = [(max(first - int(starts[i]), 0), min(last, int(starts[i + 1])) - int(starts[i])) for i in some]
        blocks.append(join([parts[i] for i in some], cuts, n_columns, dtype))
        counts.append(last - first)
    return active_client().compute(blocks), counts


def _joined(parts: list[Any], cuts: list[tuple[int, int]], n_columns: int, dtype: np.dtype) -> np.ndarray:
    """Return the rows of some partitions as one array; a single array of the right form is not copied."""
    found = [
        np.asarray(part.iloc[first:last] if hasattr(part, "iloc") else part[first:last], dtype=dtype)
        for part, (first, last) in zip(parts, cuts, strict=True)
    ]
    return np.ascontiguousarray(found[0]) if len(found) == 1 else np.concatenate(found).reshape(-1, n_columns)


def _mapped(function: Callable[[np.ndarray], np.ndarray], dtype: np.dtype, rows: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(function(rows), dtype=dtype)


def _some_columns(positions: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return rows[:, positions]


def _with_code(rows: np.ndarray, codes: np.ndarray, code: int) -> np.ndarray:
    return rows[codes == code]
