"""Neighbours on a CUDA device: which blocks of points may hold those of a query, and the pairs among them that do."""

import math
from functools import cached_property
from typing import Any

import numpy as np
import torch

from vicinal._engine import tuning
from vicinal._engine.accuracy import FLOAT32, FLOAT64, TIED, product_error
from vicinal._engine.cuda import triton_rows as kernels
from vicinal._engine.cuda.tiles import LOG2E, Tensor, Tiles


class PointBlocks:
    """Scores of queries and blocks of points, in nats.

    Parameters
    ----------
    placed : RowByRow
    tiles : Tiles
    images : float64 tensor of shape (m, k)
    left_out : integers of shape (m,), optional
    """

    def __init__(self, placed: Any, tiles: Tiles, images: Tensor, left_out: Any) -> None:
        self._placed, self._tiles, self._images = placed, tiles, images
        *self._q, self._skipped = placed._launch_queries(tiles, images, left_out, tiles.local)
        self._squares = (images**2).sum(1)
        self.size, self.n_blocks, _, _ = placed._cut(max(len(images), 1), tiles)
        self._index = tiles.index.reshape(self.n_blocks, self.size)

    @cached_property
    def _laid(self) -> Tensor:
        """The images of the points of each block, which are copied faster together than one by one."""
        return self._placed._exact[self._index.clamp(min=0)]

    def tops(self, some: slice) -> Tensor:
        """Return the best score of each block for some queries, (queries, blocks), in float64."""
        return self._in_nats(some, self._tops(some))

    def _in_nats(self, some: slice, tops: Tensor) -> Tensor:
        scores = tops.double() / LOG2E
        return scores if self._tiles.local else scores - 0.5 * self._squares[some, None]

    def _tops(self, some: slice) -> Tensor:
        tiles, placed = self._tiles, self._placed
        count = some.stop - some.start
        block, n_blocks, chunk, parts = placed._cut(count, tiles)
        tops = torch.empty(n_blocks, count, dtype=tiles.dtype, device=tiles.device)
        kernels.best_of_blocks[(-(-count // tuning.GPU_SOFTMAX_ROWS), parts)](
            *self._q, self._skipped, *placed._launch_points(tiles, tiles.local), tops, some.start, len(self._images), count,
            n_blocks, chunk, tiles.n_places, placed._k,
            D=tiles.width, B=tiles.size, BJ=block, BQ=tuning.GPU_SOFTMAX_ROWS, PRECISION=placed._precision, LOCAL=int(tiles.local),
            num_warps=4, num_stages=tuning.GPU_SOFTMAX_STAGES,
        )  # fmt: skip
        return tops.T

    def nearest(self, some: slice, k: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the k best points of some queries, their scores in float64, and whether these are certainly the best.

        The best scores of a query's best k blocks are above those of the blocks beyond a few more, and nearly always by more than the
        rounding of products.  If scores tie beyond the points that are sorted, the query is left open as well.
        """
        kept = min(k + tuning.GPU_SPARE_BLOCKS, self.n_blocks)
        tops, blocks = self._tops(some).topk(kept, 1)
        rows = torch.arange(some.start, some.stop, device=blocks.device)
        exact = self._exact_of(rows.repeat_interleave(kept), blocks.reshape(-1)).reshape(len(rows), -1)
        reach = min(k + tuning.SPARE_NEIGHBORS, exact.shape[1])
        scores, place = exact.topk(reach, 1)
        points = self._index[blocks].reshape(len(rows), -1).gather(1, place)
        kth = scores[:, k - 1]
        tie = 4.0 * TIED * kth.abs()
        decided = (scores[:, -1] < kth - tie) | (reach == exact.shape[1])
        if kept < self.n_blocks:
            others = self._in_nats(some, tops[:, -1:])[:, 0]
            decided &= others < kth - tie - self._error(some, kth, self._tiles.dtype)
        # Scores are sorted; tied ones come in the order of the points.
        apart = scores[:, 1:] < scores[:, :-1] - TIED * scores[:, :-1].abs()
        group = torch.nn.functional.pad(apart.long().cumsum(1), (1, 0))
        order = (group * (self._placed._n + 1) + points).argsort(1)[:, :k]  # a place without a point has the number -1
        return points.gather(1, order), scores.gather(1, order), decided & torch.isfinite(kth)

    def _exact_of(self, query: Tensor, block: Tensor) -> Tensor:
        """Return the scores in float64 of listed queries and all points of a block each: (pairs, size)."""
        point = self._index[block]
        places = block[:, None] * self.size + torch.arange(self.size, device=block.device)
        difference = self._images[query, None] - self._laid[block]
        scores = -0.5 * (difference**2).sum(2)
        if self._placed._log2_weights is not None:
            scores += self._placed._log2_weights[point.clamp(min=0)] / LOG2E
        return torch.where((point < 0) | (places == self._skipped[query, None]), -torch.inf, scores)

    def pairs_above(self, some: slice, tops: Tensor, least: Tensor) -> tuple[Tensor, Tensor]:
        """Return pairs whose score is at least a given number for each query, less a small margin."""
        floor = torch.where(torch.isfinite(least), least, -torch.inf)
        reached = tops >= (floor - self._error(some, floor, self._tiles.dtype))[:, None]
        query, block = torch.nonzero(reached & (tops > -torch.inf), as_tuple=True)
        floor = floor - self._error(some, floor, torch.float64) - 2.0 * TIED * floor.abs().nan_to_num(posinf=0.0)
        queries, points = [query[:0]], [query[:0]]
        step = max(self._placed._backend.memory // (8 * 4 * self.size * (self._placed._k + 4)), 1)
        for start in range(0, len(query), step):
            mine, theirs = query[start : start + step], block[start : start + step]
            scores = self._exact_of(mine + some.start, theirs)
            pair, at = torch.nonzero((scores >= floor[mine, None]) & (scores > -torch.inf), as_tuple=True)
            queries.append(mine[pair] + some.start)
            points.append(self._index[theirs[pair], at])
        return torch.cat(queries), torch.cat(points)

    def _error(self, some: slice, least: Tensor, dtype: Any) -> Tensor:
        """Return a bound on the error of the scores of some queries that reach `least`, in a precision."""
        placed, squares = self._placed, self._squares[some]
        real = FLOAT64 if dtype == torch.float64 else FLOAT32
        if not self._tiles.local:
            largest = squares + placed._largest + placed._heaviest
            return 2.0 * product_error(1.0, placed._k, real) * largest
        # A difference errs by its own rounding, and by that of the offsets from the centre of the tile.
        half = torch.where(torch.isfinite(least), least.abs(), 0.0) + placed._heaviest
        reach, size = torch.sqrt(2.0 * half), math.sqrt(self._tiles.largest)
        return 8.0 * float(np.finfo(real).eps) * (placed._k * half + (reach + 2.0 * size) * reach)
