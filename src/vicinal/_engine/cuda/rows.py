"""The shared metric on a CUDA device, queries one by one: fused kernels in which each has its own maximum.

Distances are computed from products about one common centre if that is accurate (`accuracy.py`), otherwise from differences
about the float64 centres of tiles of rows that are near each other.
"""

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

from vicinal._engine import accuracy, tuning
from vicinal._engine.accuracy import (
    FLOAT32,
    largest_accurate_square,
    products_are_accurate,
)
from vicinal._engine.choice import numba_is_missing
from vicinal._engine.contract import LogSums, SoftmaxSums, Space, Values, finite
from vicinal._engine.cuda import triton_rows as kernels
from vicinal._engine.cuda.few_rows import FewRows, are_few
from vicinal._engine.cuda.neighbors import PointBlocks
from vicinal._engine.cuda.pruned import QueryTiles, TileLists
from vicinal._engine.cuda.tiles import (
    LOG2E,
    Tensor,
    Tiles,
    combined,
    compact_tiles,
    halved,
    in_given_order,
    indices_fit,
    near_share,
    ordered_tiles,
    padded_width,
    within_memory,
)
from vicinal._engine.neighbors import Pairs
from vicinal._engine.queries import Queries
from vicinal._engine.reference.arrays import ArrayPlaced, answered, as_numpy, as_positions, like
from vicinal._engine.row_search import Neighbors
from vicinal._engine.work.blocks import Blocks


class Softmax(NamedTuple):
    """The log-sum-exp state of some queries, in base 2, and the means of values: float64 tensors."""

    top: Tensor
    total: Tensor
    means: Tensor

    @property
    def log_sums(self) -> Tensor:
        """``log sum_j exp(s_ij)``, -inf for a query without neighbours."""
        return (self.top + self.total.log2()) / LOG2E


class RowByRow(ArrayPlaced):
    """Rows under one shared metric on a CUDA device."""

    compiled = not numba_is_missing()  # for the few searches that are made on the CPU

    def __init__(self, backend: Any, metric: np.ndarray | None) -> None:
        super().__init__(backend, metric)
        self._real = self.points.rows.dtype
        self._exact = self._map_exactly(backend.rows)
        self._n, self._k = self._exact.shape

    @property
    def _fused(self) -> bool:
        """Whether the kernels accept images with this number of coordinates, and so many rows."""
        width = padded_width(self._k)
        return (
            self._backend.fuses and width <= tuning.FUSED_COORDINATES and indices_fit(self._n, width, self._tile_size)
        )

    def coordinates(self, queries: Queries, space: Space) -> np.ndarray:
        if space == "rows" or queries.rows is not None:
            return super().coordinates(queries, space)
        images = self._images if queries.positions is None else self._images[self._at(queries.positions)]
        return images.cpu().numpy()

    def _at(self, positions: Any) -> Tensor:
        return like(positions, self._exact, torch.int64)

    @property
    def _precision(self) -> str:
        return "tf32x3" if self._real == FLOAT32 else "ieee"

    # -- tiles -----------------------------------------------------------------------------------------------------

    @cached_property
    def _log2_weights(self) -> Tensor | None:
        weights = self.points.log_weights
        return None if weights is None else like(weights, self._exact) * LOG2E

    @property
    def _tile_size(self) -> int:
        return tuning.GPU_TILES[self._real][padded_width(self._k)][0]

    @cached_property
    def _common(self) -> Tiles:
        """Tiles in the order of the rows, about the common centre."""
        index = in_given_order(self._n, self._tile_size, self._exact.device)
        return Tiles(self._exact, self._log2_weights, index, self._images.dtype, False)

    @property
    def _order(self) -> Tensor:
        """An order of the rows in which neighbours are close together, computed under the first metric that needs it."""
        if "order" not in self._backend.kept:
            self._backend.kept["order"] = halved(self._exact, self._tile_size)
        return self._backend.kept["order"]

    @cached_property
    def _compact(self) -> Tiles | None:
        """Tiles of rows so near each other that products about their centres are accurate; None if there are none.

        The order is computed once per problem, and again when the metric has changed so much that it is no longer useful.
        """
        size, largest, known = self._tile_size, largest_accurate_square(self._real), "order" in self._backend.kept
        index = compact_tiles(self._exact, self._order, size, largest)
        if index is None and known:
            del self._backend.kept["order"]
            index = compact_tiles(self._exact, self._order, size, largest)
        return None if index is None else Tiles(self._exact, self._log2_weights, index, self._images.dtype, True)

    @cached_property
    def _by_differences(self) -> Tiles:
        """Tiles for differences: compact ones, or rows in an order in which neighbours are close together."""
        if self._compact is not None:
            return self._compact
        index = ordered_tiles(self._order, self._tile_size)
        return Tiles(self._exact, self._log2_weights, index, self._images.dtype, True)

    @cached_property
    def _may_prune(self) -> bool:
        """Whether boxes of tiles of rows may exclude most pairs."""
        error = self._backend.error
        if not self._fused or self._n < tuning.GPU_PRUNED_FROM or error == 0:
            return False
        return near_share(self._exact, self._order, self._tile_size, error) <= tuning.GPU_PRUNED_SHARE

    def _tiles(self, largest: float = 0.0) -> Tiles:
        """Tiles that keep the digits of distances to queries with squares up to `largest`."""
        accurate = products_are_accurate(max(largest, self._largest), self._real)
        return self._common if accurate else self._by_differences

    def _images_and_tiles(self, queries: Queries) -> tuple[Tensor, Tiles | None]:
        """Return the images of the queries, and tiles for them; None if torch's operations are used."""
        images = self._query_images(queries)
        if len(images) == 0 or not self._fused:
            return images, None
        largest = 0.0 if queries.rows is None else float((images**2).sum(1).max())
        return images, self._tiles(largest)

    def _query_images(self, queries: Queries) -> Tensor:
        if queries.rows is not None:
            return self._map_exactly(like(queries.rows, self._images))
        return self._exact if queries.positions is None else self._exact[self._at(queries.positions)]

    # -- launches --------------------------------------------------------------------------------------------------

    def _launch_queries(
        self, tiles: Tiles, images: Tensor, left_out: Any, by_differences: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return images of queries in the form that the kernels read, by rows and by columns, and the places that are left out."""
        m, device = len(images), images.device
        if by_differences:
            by_rows, by_columns = images, images.T.contiguous()
        else:
            by_rows = torch.zeros(m, tiles.width, dtype=torch.float64 if tiles.local else tiles.dtype, device=device)
            by_rows[:, : images.shape[1]] = images
            by_columns = by_rows
        skipped = torch.full((m,), -1, dtype=torch.int64, device=device)
        if left_out is not None:
            left_out = like(left_out, images, torch.int64)
            skipped = torch.where(left_out >= 0, tiles.place[left_out.clamp(min=0)], -1)
        return by_rows, by_columns, skipped

    def _launch_points(self, tiles: Tiles, by_differences: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        by_column, h = (tiles.by_column, tiles.of_differences) if by_differences else (tiles.u, tiles.of_points)
        return tiles.u, by_column, h, tiles.centres

    @staticmethod
    def _cut(n_queries: int, tiles: Tiles) -> tuple[int, int, int, int]:
        """Return the points in a block, the number of blocks, how many of them a program visits, and the number of parts of a sweep."""
        block = min(tuning.GPU_SOFTMAX_POINTS, tiles.size)
        n_blocks = tiles.n_places // block
        parts = max(min(-(-tuning.GPU_PROGRAMS * tuning.GPU_SOFTMAX_ROWS // n_queries), n_blocks), -(-n_blocks // 2048))
        chunk = -(-n_blocks // parts)
        return block, n_blocks, chunk, -(-n_blocks // chunk)

    def _softmax(
        self,
        tiles: Tiles,
        images: Tensor,
        left_out: Any = None,
        values: Tensor | None = None,
        codes: tuple[Tensor, Tensor] | None = None,
        entropy: bool = False,
        lists: TileLists | None = None,
    ) -> Softmax:
        """Return the softmax of queries with these images.

        Parameters
        ----------
        left_out : integers of shape (m,), optional
        values : tensor of shape (n, v), optional
        codes : tensors of shape (m,) and (n,), optional
            Classes of the queries and the points, for a softmax within the class of the query.
        entropy : bool
            Whether the single column of means is the mean of ``log2 p_ij`` instead.
        lists : TileLists, optional
            The tiles of points that each tile of `GPU_SOFTMAX_ROWS` queries visits; all of them by default.
        """
        m, device, n_values = len(images), images.device, 0 if values is None else values.shape[1]
        # Products about the centres of compact tiles are as accurate as differences; an entropy needs its digits most.
        by_differences = tiles.local and (entropy or tiles is not self._compact)
        local = 0 if not tiles.local else 1 if by_differences else 2
        *q, skipped = self._launch_queries(tiles, images, left_out, by_differences)
        mine, theirs = (skipped, tiles.place) if codes is None else (codes[0], tiles.lay(codes[1]))
        width = min(padded_width(n_values), tuning.GPU_VALUES)
        n_columns = -(-n_values // width) * width
        laid = tiles.u if values is None else tiles.padded(values, n_columns)
        block, n_blocks, chunk, parts = self._cut(m, tiles)
        listed, start_of_lists = (tiles.index, tiles.index) if lists is None else (lists.listed, lists.start)
        if lists is not None:
            parts = max(min(-(-tuning.GPU_PRUNED_PROGRAMS * tuning.GPU_SOFTMAX_ROWS // m), n_blocks), 1)
        top = torch.empty(m, dtype=torch.float64, device=device)
        total, means = torch.empty_like(top), torch.empty(m, n_values + entropy, dtype=torch.float64, device=device)
        step = (
            max(self._backend.memory // (8 * 3 * parts * (n_columns + 2) * tuning.GPU_SOFTMAX_ROWS), 1)
            * tuning.GPU_SOFTMAX_ROWS
        )
        for start in range(0, m, step):
            some = slice(start, min(start + step, m))
            count = some.stop - start
            tops = torch.empty(parts, count, dtype=tiles.dtype, device=device)
            totals, below = torch.empty_like(tops), torch.empty_like(tops)
            gathered = torch.empty(parts, count, n_columns, dtype=tiles.dtype, device=device)
            kernels.softmax_rows[(-(-count // tuning.GPU_SOFTMAX_ROWS), parts, max(n_columns // width, 1))](
                *q, skipped, mine, *self._launch_points(tiles, by_differences), theirs, laid, listed, start_of_lists, tops, totals,
                gathered, below, start, m, count, n_blocks, chunk, tiles.n_places, self._k, n_columns,
                D=tiles.width, DV=width, B=tiles.size, BJ=block, BQ=tuning.GPU_SOFTMAX_ROWS, PRECISION=self._precision,
                LOCAL=local, CLASSES=codes is not None, VALUES=n_values > 0, ENTROPY=entropy,
                LISTED=lists is not None, num_warps=4, num_stages=tuning.GPU_SOFTMAX_STAGES,
            )  # fmt: skip
            top[some], total[some], shares = combined(tops, totals)
            if entropy:
                lowered = below + torch.where(totals > 0, totals * (tops.double() - top[some]), 0.0)
                shared = torch.where(shares > 0, lowered * shares, 0.0).sum(0) / total[some].clamp(min=1e-300)
                means[some, 0] = shared - torch.where(total[some] > 0, total[some].log2(), 0.0)
            if n_values:
                sums = (gathered[:, :, :n_values] * shares[:, :, None]).sum(0)
                means[some] = sums / total[some].clamp(min=1e-300)[:, None]
        if not tiles.local:
            top = top - (0.5 * LOG2E) * (images**2).sum(1)
        return Softmax(top, total, means)

    # -- the verbs -------------------------------------------------------------------------------------------------

    @within_memory
    def log_sums(self, queries: Queries, by_class: bool = False) -> LogSums:
        images, tiles = self._images_and_tiles(queries)
        if tiles is None:
            return super().log_sums(queries, by_class)
        there = answered(queries)
        if by_class:
            codes = like(self.points.classes, self._images, torch.int64)
            each = torch.arange(self.points.n_classes, device=codes.device)
            found = self._softmax(tiles, images, queries.left_out, (codes[:, None] == each).to(self._images.dtype))
            return LogSums(there(found.log_sums), there(found.means.clamp(0.0, 1.0).log()))
        pruned = self._pruned_softmax(images, queries.left_out)
        return LogSums(there((pruned or self._softmax(tiles, images, queries.left_out)).log_sums))

    def _pruned_softmax(self, images: Tensor, left_out: Any, entropy: bool = False) -> Softmax | None:
        """Return the softmax of queries over the tiles of points that matter to them; None if that would save little."""
        if len(images) < tuning.GPU_PRUNED_QUERIES or not self._may_prune:
            return None
        tiles = self._by_differences
        ordered = QueryTiles(images, tiles.width)
        images = images[ordered.order]
        if left_out is not None:
            left_out = like(left_out, images, torch.int64)[ordered.order]
        near = self._softmax(tiles, images, left_out, lists=ordered.nearest(tiles))
        lists = ordered.lists(tiles, near.top + near.total.log2(), self._backend.error, self._backend.memory)
        if lists.share > tuning.GPU_PRUNED_SHARE:
            return None
        found = self._softmax(tiles, images, left_out, entropy=entropy, lists=lists)
        log2_sums = found.top + found.total.log2()
        skipped = torch.log2(lists.skipped).repeat_interleave(tuning.GPU_SOFTMAX_ROWS)[: len(images)] - log2_sums
        self.points.certificates.add(float(torch.exp2(skipped.nan_to_num(nan=-math.inf)).max()))
        place = torch.argsort(ordered.order)
        return Softmax(*(part[place] for part in found))

    @within_memory
    def squares(self, queries: Queries) -> tuple[np.ndarray, np.ndarray]:
        images, tiles = self._images_and_tiles(queries)
        if tiles is None:
            return super().squares(queries)
        # From differences, because with squares of 1e4 an expected score has lost the digits of an entropy.
        found = self._pruned_softmax(images, queries.left_out, entropy=True)
        found = found or self._softmax(self._by_differences, images, queries.left_out, entropy=True)
        entropies, log_sums = as_numpy(found.means[:, 0] / -LOG2E).clip(min=0.0), as_numpy(found.log_sums)
        halves = entropies - log_sums
        if self.points.log_weights is not None:
            halves += self.softmax_sums(queries, None, finite(self.points.log_weights)[:, None]).gathered[:, 0]
        return log_sums, np.where(log_sums > -np.inf, 2.0 * halves.clip(min=0.0), 0.0)

    @within_memory
    def softmax_sums(
        self,
        queries: Queries,
        factors: np.ndarray | None,
        values: Values | None,
        query_values: Values | None = None,
        own_class: bool = False,
    ) -> SoftmaxSums:
        images, tiles = self._images_and_tiles(queries)
        if tiles is None:
            return super().softmax_sums(queries, factors, values, query_values, own_class)
        theirs = None if values is None else self._values(values, self._images, self._rows)
        codes = self._codes(queries) if own_class else None
        found = self._softmax(tiles, images, queries.left_out, theirs, codes)
        f = torch.ones(len(images), dtype=torch.float64, device=images.device)
        if factors is not None:
            f = like(factors, f)
        mine = (
            None
            if query_values is None
            else self._values(query_values, images.to(self._images.dtype), self._rows_of(queries))
        )
        log_sums, gathered = found.log_sums, found.means * f[:, None]
        far = self._far(log_sums)
        received = torch.zeros(self._n, 0 if mine is None else mine.shape[1], dtype=torch.float64, device=images.device)
        if len(far):
            few = FewRows(self, queries.take(far.cpu().numpy(), self._n), own_class)
            log_sums[far], gathered[far], more = few.softmax_sums(f[far], theirs, None if mine is None else mine[far])
            received += more
        if mine is not None:
            received += self._received(queries, images, tiles, f.index_fill(0, far, 0.0), log_sums, mine, codes)
        return SoftmaxSums(as_numpy(log_sums), as_numpy(gathered), as_numpy(received))

    def _far(self, log_sums: Tensor) -> Tensor:
        """Return the queries that must be computed again in float64."""
        size = log_sums.abs()
        far = torch.nonzero(size > accuracy.LARGEST_LOG_SUM_OF_SWEEPS[self._real])[:, 0]
        # Many such rows are all far from their neighbours, and some digits fewer are as good as those of their scores.
        return (
            far
            if are_few(far, self._n)
            else torch.nonzero(size > 10.0 * accuracy.LARGEST_LOG_SUM_OF_SWEEPS[self._real])[:, 0]
        )

    def _rows_of(self, queries: Queries) -> Tensor:
        rows = self._rows if queries.rows is None else like(queries.rows, self._images)
        return rows if queries.positions is None else rows[self._at(queries.positions)]

    def _received(
        self,
        queries: Queries,
        images: Tensor,
        tiles: Tiles,
        factors: Tensor,
        log_sums: Tensor,
        mine: Tensor,
        codes: Any,
    ) -> Tensor:
        """``sum_i f_i p_ij query_values_i`` for values `mine` of the queries, as sums of the transposed problem.

        With the queries as points of log-weight ``log f_i - log_sums_i``, what point j receives is the sum of its
        neighbours among them, ``exp(log_weights_j + log_sums'_j) mean'_j``.
        """
        received = torch.zeros(self._n, mine.shape[1], dtype=torch.float64, device=images.device)
        plain = (factors > 0) & torch.isfinite(log_sums)
        left_out = None
        if queries.left_out is not None:
            left_out = like(queries.left_out, images, torch.int64)
            seen = left_out[left_out >= 0]
            if len(seen.unique()) < len(seen):  # a point can leave out one query at most
                plain = torch.zeros_like(plain)
        some = torch.nonzero(plain)[:, 0]
        if len(some):
            weights = factors[some].log2() - log_sums[some] * LOG2E
            skipped: Tensor | None = None
            if left_out is not None:
                skipped = torch.full((self._n,), -1, dtype=torch.int64, device=images.device)
                given = torch.nonzero(left_out[some] >= 0)[:, 0]
                skipped[left_out[some][given]] = given
            within = None if codes is None else (codes[1], codes[0][some])
            swapped = self._swapped(images[some], weights, tiles)
            back = self._softmax(swapped, self._exact, skipped, mine[some], within)
            log2_sums = back.top + back.total.log2()
            if self._log2_weights is not None:
                log2_sums = log2_sums + self._log2_weights
            received += torch.exp2(log2_sums)[:, None] * back.means
        others = torch.nonzero(~plain & (factors != 0))[:, 0]
        if len(others):
            few = FewRows(self, queries.take(others.cpu().numpy(), self._n), codes is not None)
            received += few.softmax_sums(factors[others], None, mine[others])[2]
        return received

    def _swapped(self, images: Tensor, log2_weights: Tensor, tiles: Tiles) -> Tiles:
        """Queries as points."""
        index = in_given_order(len(images), tiles.size, images.device)
        if tiles.local:
            index = ordered_tiles(halved(images, tiles.size), tiles.size)
        return Tiles(images, log2_weights, index, tiles.dtype, tiles.local)

    # -- neighbours ------------------------------------------------------------------------------------------------

    def nearest(self, queries: Queries, k: int, origin: np.ndarray | None = None) -> Neighbors:
        """See `neighbors.nearest`; the few queries that are left open on the device are searched there."""
        images, tiles = self._images_and_tiles(queries)
        if (
            tiles is None
            or origin is not None
            or self._log2_weights is not None
            or not 0 < k < self._n
            or not len(images)
        ):
            return super().nearest(queries, k, origin)
        listed = PointBlocks(self, tiles, images, queries.left_out)
        numbers = 4 * listed.n_blocks + 4 * (k + tuning.GPU_SPARE_BLOCKS) * listed.size * (self._k + 4)
        step = max(self._backend.memory // (8 * numbers * tuning.GPU_SOFTMAX_ROWS), 1) * tuning.GPU_SOFTMAX_ROWS
        parts = [listed.nearest(part, k) for part in Blocks(len(images), step)]
        points, scores, decided = (torch.cat(column) for column in zip(*parts, strict=True))
        found = Neighbors(as_positions(points), -2.0 * as_numpy(scores))
        again = np.flatnonzero(~decided.cpu().numpy())
        if len(again):
            more = super().nearest(queries.take(again, self._n), k)
            found.indices[again], found.scores[again] = more
        return found

    def candidates(self, queries: Queries, floors: np.ndarray) -> Iterator[Pairs]:
        """See the contract; a fused kernel keeps the best score of each block of points, and only blocks that reach a floor are listed."""
        images, tiles = self._images_and_tiles(queries)
        if tiles is None:
            yield from super().candidates(queries, floors)
            return
        listed = PointBlocks(self, tiles, images, queries.left_out)
        numbers = 4 * listed.n_blocks + 4 * listed.size * (self._k + 4)
        step = max(self._backend.memory // (8 * numbers * tuning.GPU_SOFTMAX_ROWS), 1) * tuning.GPU_SOFTMAX_ROWS
        for start in range(0, len(images), step):
            some = slice(start, min(start + step, len(images)))
            query, point = listed.pairs_above(some, listed.tops(some), like(floors[some], images))
            yield as_positions(query), as_positions(point)
