"""Neighbours on a CUDA device: which blocks of points may hold those of a query, and the pairs among them that do."""

import math
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

    def tops(self, some: slice) -> Tensor:
        """Return the best score of each block for some queries, (queries, blocks), in float64."""
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
        found = tops.T.double() / LOG2E
        return found if tiles.local else found - 0.5 * self._squares[some, None]

    def exact(self, some: slice, blocks: Tensor) -> Tensor:
        """Return the scores in float64 of the points of some blocks (queries, t) for each query: (queries, t * size)."""
        rows = torch.arange(some.start, some.stop, device=blocks.device)
        found = self._exact_of(rows.repeat_interleave(blocks.shape[1]), blocks.reshape(-1))
        return found.reshape(len(rows), -1)

    def _exact_of(self, query: Tensor, block: Tensor) -> Tensor:
        """Return the scores in float64 of listed queries and all points of a block each: (pairs, size)."""
        point = self._index[block]
        places = block[:, None] * self.size + torch.arange(self.size, device=block.device)
        difference = self._images[query, None] - self._placed._exact[point.clamp(min=0)]
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
