"""The sweeps of `cpu/once.py`: sums of points against themselves that see each pair once, by fused kernels or by matrix products."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from vicinal._engine import tuning
from vicinal._engine.cpu import once_kernels as kernels
from vicinal._engine.cpu import product_kernels
from vicinal._engine.cpu.pairs import CompiledPairs, unpack
from vicinal._engine.cpu.parts import TILE
from vicinal._engine.work.pool import in_order, summed
from vicinal._engine.work.sharing import NOTHING

Mates = tuple[np.ndarray, np.ndarray]  # where the class mates of each row begin and end
# Rows and what a piece of work gives to them (m, row_width), and from a tile on what it gives to the points of tiles
# (n_tiles, column_width, TILE), which goes to the last columns of their sums.
_Piece = tuple[slice, np.ndarray, int, np.ndarray]


class _Run(NamedTuple):
    """Pieces of work, in the strips of rows that they belong to, and the threads that may do them at a time."""

    work: Callable[[Any], _Piece]
    strips: list[list[Any]]
    threads: int

    def pieces(self) -> Iterator[_Piece]:
        """Yield what the pieces give, in their order."""
        return in_order(self.work, [piece for strip in self.strips for piece in strip], self.threads, NOTHING)


class WeightedValues:
    """Values of the points as half sweeps want them: multiplied by the weights b, which are their last column.

    Parameters
    ----------
    packed : array of shape (n_tiles, v, TILE)
    weights : float64 array of shape (n,), optional
    n : int
    """

    def __init__(self, packed: np.ndarray, weights: np.ndarray | None, n: int) -> None:
        self.weights = np.zeros(len(packed) * TILE, dtype=packed.dtype)
        self.weights[:n] = 1.0 if weights is None else weights
        self.in_tiles = self.weights.reshape(-1, TILE)
        self.packed = packed if weights is None else packed * self.in_tiles[:, None]
        self.width = packed.shape[1] + 1
        # Kernels that need no weights take an empty array, and sum exponentials as they make them.
        self.in_tiles_or_none = self.in_tiles[:0] if weights is None else self.in_tiles

    def rows(self, part: slice) -> np.ndarray:
        """Return the values of consecutive points and their weight, shape (m, v + 1), contiguous."""
        return np.hstack([unpack(self.packed, part), self.weights[part, None]])

    def products(self, rows: slice, sums: np.ndarray) -> np.ndarray:
        """``V' sums`` for the sums (m, v) of some rows, in float64."""
        return unpack(self.packed, rows).T.astype(np.float64, copy=False) @ sums


def _add_up(piece: _Piece, sums: np.ndarray) -> None:
    """Add what a piece gives to rows, and to the rows of tiles, to the last columns of the sums (n, width)."""
    (n, width), (rows, of_rows, first, of_columns) = sums.shape, piece
    sums[rows] += of_rows[:, of_rows.shape[1] - width :]
    places = slice(first * TILE, min((first + len(of_columns)) * TILE, n))
    given = of_columns.transpose(0, 2, 1).reshape(len(of_columns) * TILE, of_columns.shape[1])
    sums[places, width - given.shape[1] :] += given[: places.stop - places.start]


class _Sweep:
    """What the two ways have in common: pieces of work, and one array that their sums are added to."""

    def __init__(self, pairs: CompiledPairs, threads: int, memory: int) -> None:
        self._pairs, self._threads, self._memory = pairs, threads, memory

    def _column_tiles(self, column_width: int) -> int:
        """Tiles of points in a piece: what they receive must fit the memory several times."""
        size = TILE * column_width * 8
        return int(max(min(tuning.COLUMN_TILES, self._memory // (8 * size)), 1))

    def _sums(self, run: _Run, width: int) -> np.ndarray:
        """Return the sums of all pieces, (n, width)."""
        sums = np.zeros((self._pairs.n, width))
        for piece in run.pieces():
            _add_up(piece, sums)
        return sums

    def _products(self, run: _Run, values: WeightedValues) -> tuple[np.ndarray, np.ndarray]:
        """``V' G`` for the sums G of the rows, and the last column of the sums: no array of the values' size is held.

        Those of strips of rows are added in a tree, so that a worker returns them once.
        """
        n = self._pairs.n

        def strip_sums(strip: list[Any]) -> tuple[np.ndarray, ...]:
            last, found = np.zeros((n, 1)), run.work(strip[0])
            _add_up(found, last)
            rows, gathered = found[:2]
            for piece in strip[1:]:
                found = run.work(piece)
                _add_up(found, last)
                gathered += found[1]
            return last, values.products(rows, gathered[:, :-1])

        costs = np.linspace(n, 0.0, len(run.strips), endpoint=False) * (n / len(run.strips))  # each strip begins later
        found = summed(strip_sums, run.strips, run.threads, NOTHING, costs)
        assert found is not None
        return found[1], found[0][:, 0]

    def _threads_for(self, row_width: int, column_width: int) -> int:
        """Threads such that the sums of their pieces fit the memory."""
        size = 8 * TILE * (row_width + self._column_tiles(column_width) * column_width)
        return int(min(self._threads, max(self._memory // size - 1, 1)))


class FusedSweep(_Sweep):
    """Half sweeps by the fused kernels, for few coordinates."""

    def sums(self, values: WeightedValues, keep: bool = False) -> np.ndarray:
        """``K V``, (n, v + 1); nothing is kept."""
        width, weights = values.width, values.in_tiles_or_none
        if width == 1:
            return self._products(self._run(kernels.once_sums, 1, 1, weights), values)[1][:, None]
        return self._sums(self._run(kernels.once_means, width, width, weights, values), width)

    def scatter(self, values: WeightedValues, factors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``V' G`` (v, v), where G is ``(W + W') V`` for the rows of each pair alone, and ``(W + W') b`` (n,)."""
        run = self._run(kernels.once_scatter, values.width, 1, values.in_tiles_or_none, values, inside=factors)
        return self._products(run, values)

    def logs(self, values: WeightedValues) -> np.ndarray:
        """``(K log K) b`` and ``K b``, (n, 2)."""
        return self._sums(self._run(kernels.once_logs, 2, 2, values.in_tiles), 2)

    def matches(self, mates: Mates) -> np.ndarray:
        """``K 1``, and the same over class mates: (n, 2)."""
        nothing = np.empty((0, TILE), dtype=self._pairs.dtype)
        return self._sums(self._run(kernels.once_matches, 2, 2, nothing, mates=mates), 2)[:, ::-1]

    def pull(self, values: WeightedValues, mates: Mates, inside: np.ndarray, outside: np.ndarray) -> np.ndarray:
        """``M V``, (n, v + 1)."""
        width = values.width
        run = self._run(kernels.once_pull, width, width, values.in_tiles, values, mates, inside, outside)
        return self._sums(run, width)

    def _padded(self, vector: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.pad(vector, (0, -len(vector) % TILE)))

    def _run(
        self, kernel: Callable[..., None], row_width: int, column_width: int, weights: np.ndarray,
        values: WeightedValues | None = None, mates: Mates | None = None, inside: np.ndarray | None = None,
        outside: np.ndarray | None = None,
    ) -> _Run:  # fmt: skip
        """Return what a kernel gives to the rows and to the columns of its pairs."""
        pairs, to_columns = self._pairs, column_width > 1
        nobody, nothing = np.empty(0, dtype=np.int64), np.empty((0, 0), dtype=pairs.dtype)
        packed = np.empty((len(pairs.points.packed), 0, TILE), dtype=pairs.dtype) if values is None else values.packed
        others = (
            weights, *((nobody, nobody) if mates is None else mates),
            *(nothing.ravel() if factors is None else self._padded(factors) for factors in (inside, outside)),
        )  # fmt: skip
        n, n_tiles = pairs.n, len(pairs.points.packed)
        row_tiles = min(max(n_tiles // 8, 1), 4)  # large pieces, but enough of them for the threads
        column_tiles = self._column_tiles(column_width)
        strips = [
            [(first, tile, min(tile + column_tiles, n_tiles)) for tile in range(first, n_tiles, column_tiles)]
            for first in range(0, n_tiles, row_tiles)
        ]

        def work(piece: tuple[int, int, int]) -> _Piece:
            first, from_tile, to_tile = piece
            rows = slice(first * TILE, min((first + row_tiles) * TILE, n))
            n_rows = rows.stop - rows.start
            of_rows = np.zeros((-(-n_rows // TILE) * TILE, row_width))
            of_columns = np.zeros((to_tile - from_tile, column_width, TILE), dtype=pairs.dtype)
            mine = values.rows(rows) if values is not None and to_columns else nothing
            kernel(*pairs.scored(rows), mine, packed, *others, rows.start, from_tile, to_tile, of_rows, of_columns)
            return rows, of_rows[:n_rows], from_tile, of_columns

        return _Run(work, strips, self._threads_for(row_width, column_width))


class ProductSweep(_Sweep):
    """Half sweeps by matrix products, for many coordinates."""

    def __init__(self, pairs: CompiledPairs, threads: int, memory: int) -> None:
        super().__init__(pairs, threads, memory)
        # The tiles of the first of two sweeps, for the second to take, where they fit into half of the memory.
        size = pairs.n * pairs.n * pairs.dtype.itemsize // 2
        self._keeps = size <= memory // 2 and (size <= tuning.CACHED_BYTES or pairs.k >= tuning.COSTLY_COORDINATES)
        self._kept: dict[tuple[int, int], np.ndarray] = {}

    def sums(self, values: WeightedValues, keep: bool = False) -> np.ndarray:
        """``K V``, (n, v + 1)."""

        def visit(
            tile_of_k: np.ndarray, rows: slice, t: int, both: bool, of_rows: np.ndarray, of_columns: np.ndarray
        ) -> None:
            if values.width > 1:
                of_rows[:, :-1] += tile_of_k @ values.packed[t, :, : tile_of_k.shape[1]].T
                if both:
                    of_columns[:-1] += unpack(values.packed, rows).T @ tile_of_k

        run = self._run(visit, values.width, values.width, values.weights, keep and self._keeps)
        return self._sums(run, values.width) if values.width > 1 else self._products(run, values)[1][:, None]

    def scatter(self, values: WeightedValues, factors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``V' G`` (v, v), where G is ``(W + W') V`` for the rows of each pair alone, and ``(W + W') b`` (n,)."""
        weights = values.weights

        def visit(
            tile_of_k: np.ndarray, rows: slice, t: int, both: bool, of_rows: np.ndarray, of_columns: np.ndarray
        ) -> None:
            tile = _tile(t, tile_of_k)
            product_kernels.scale_for_scatter(
                tile_of_k, factors[rows], factors[tile], weights[rows], weights[tile], 1.0 if both else 0.5,
                of_rows[:, -1], of_columns[-1],
            )  # fmt: skip
            of_rows[:, :-1] += tile_of_k @ values.packed[t, :, : tile_of_k.shape[1]].T

        return self._products(self._run(visit, values.width, 1), values)

    def matches(self, mates: Mates) -> np.ndarray:
        """``K 1``, and the same over class mates: (n, 2)."""

        def visit(
            tile_of_k: np.ndarray, rows: slice, t: int, both: bool, of_rows: np.ndarray, of_columns: np.ndarray
        ) -> None:
            product_kernels.add_matches_both_ways(
                tile_of_k, mates[0][rows], mates[1][rows], t * TILE, both, of_rows[:, 0], of_columns[0]
            )  # fmt: skip

        ones = np.ones(self._pairs.n, dtype=self._pairs.dtype)
        matched_and_all = self._sums(self._run(visit, 2, 2, ones, self._keeps), 2)
        return matched_and_all[:, ::-1]

    def pull(self, values: WeightedValues, mates: Mates, inside: np.ndarray, outside: np.ndarray) -> np.ndarray:
        """``M V``, (n, v + 1)."""

        def visit(
            tile_of_k: np.ndarray, rows: slice, t: int, both: bool, of_rows: np.ndarray, of_columns: np.ndarray
        ) -> None:
            tile = _tile(t, tile_of_k)
            sides = (inside[rows], outside[rows], inside[tile], outside[tile])
            product_kernels.scale_both_ways(tile_of_k, mates[0][rows], mates[1][rows], t * TILE, *sides)
            of_rows[:, :-1] += tile_of_k @ values.packed[t, :, : tile_of_k.shape[1]].T
            of_rows[:, -1] += tile_of_k @ values.weights[tile]
            if both:
                of_columns += values.rows(rows).T @ tile_of_k

        return self._sums(self._run(visit, values.width, values.width), values.width)

    def _run(
        self,
        visit: Callable[[np.ndarray, slice, int, bool, np.ndarray, np.ndarray], None],
        row_width: int,
        column_width: int,
        weights: np.ndarray | None = None,
        keep: bool = False,
    ) -> _Run:
        """Return what `visit` makes of tiles of K for their rows (m, row_width) and columns (tiles, column_width, TILE).

        A tile on the diagonal holds both triangles, so that its columns need nothing (``both=False``).  Given
        `weights` b, ``K b`` is added to the last column of either.
        """
        pairs = self._pairs
        n, bounds, packed = pairs.n, pairs.bounds(), pairs.points.packed
        n_tiles, column_tiles = len(packed), self._column_tiles(column_width)
        row_tiles = max(tuning.HALF_PRODUCT_ROWS // TILE, 1)
        strips = [
            [(own, slice(first, min(first + column_tiles, n_tiles))) for first in range(own, n_tiles, column_tiles)]
            for own in range(0, n_tiles, row_tiles)
        ]
        nothing = np.empty(0, dtype=pairs.dtype)

        def work(piece: tuple[int, slice]) -> _Piece:
            own, tiles = piece
            rows = slice(own * TILE, min((own + row_tiles) * TILE, n))
            of_rows = np.zeros((rows.stop - rows.start, row_width))
            of_columns = np.zeros((tiles.stop - tiles.start, column_width, TILE))
            buffer = np.empty((len(of_rows), TILE), dtype=pairs.dtype)
            images = pairs.points.rows(rows)
            for t in range(tiles.start, tiles.stop):
                both, tile = t >= own + row_tiles, slice(t * TILE, min((t + 1) * TILE, n))
                width = tile.stop - tile.start
                to_columns = of_columns[t - tiles.start, :, :width]
                tile_of_k = self._kept.pop((own, t), None)
                if tile_of_k is None:
                    new = keep or width < TILE
                    tile_of_k = np.empty((len(of_rows), width), pairs.dtype) if new else buffer
                    np.matmul(images, packed[t, :, :width], out=tile_of_k)
                    product_kernels.exponentials_under_bounds(
                        tile_of_k, pairs.offsets[t, :width], bounds[rows], pairs.left_out[rows], tile.start,
                        nothing if weights is None else weights[rows], nothing if weights is None else weights[tile],
                        both, of_rows[:, -1], to_columns[-1],
                    )  # fmt: skip
                if keep:
                    self._kept[own, t] = tile_of_k
                visit(tile_of_k, rows, t, both, of_rows, to_columns)
            return rows, of_rows, tiles.start, of_columns

        return _Run(work, strips, self._threads_for(row_width, column_width))


def _tile(t: int, tile_of_k: np.ndarray) -> slice:
    """Return the points of a tile."""
    return slice(t * TILE, t * TILE + tile_of_k.shape[1])
