"""Points with frames in tiles: functions that add them to the sums of queries, and the pairs above a floor."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from vicinal._engine import tuning
from vicinal._engine.frames.scores import FrameScorer, Skips
from vicinal._engine.frames.sums import Add
from vicinal._engine.neighbors import candidates_of_scores
from vicinal._engine.reference.arrays import as_numpy
from vicinal._engine.work.blocks import Blocks
from vicinal._engine.work.pool import in_order
from vicinal._engine.work.sharing import NOTHING

if TYPE_CHECKING:
    from vicinal._engine.frames.boxes import KernelTiles
    from vicinal._engine.frames.placed import PlacedFrames

# Points in tiles, in the form that `add_tiles` of `frames/kernels.py` takes, and the position of each.
Packed = tuple[tuple[np.ndarray, ...], np.ndarray]


def adder_in_cache(
    placed: "PlacedFrames",
    q: np.ndarray,
    pairs: tuple[np.ndarray, np.ndarray] | None,
    tops: np.ndarray,
    totals: np.ndarray,
) -> Add:
    """Return an `Adder` of one depth and noise: a compiled kernel on points that are packed for the cache."""
    from vicinal._engine.frames.kernels import add_tiles

    query, point = (np.empty(0, dtype=np.int64),) * 2 if pairs is None else pairs
    starts = np.searchsorted(query, np.arange(len(q) + 1))

    def add(tiles: np.ndarray | None) -> None:
        packed, place = placed.packed if tiles is None else placed.packed_in_order
        some = np.arange(len(packed[0])) if tiles is None else tiles
        add_tiles(q, *packed, 1.0 / placed.noises[0], some, starts, place[point], tops[0, 0], totals[0, 0])

    return add


def packed_in_tiles(placed: "PlacedFrames", order: np.ndarray, size: int) -> Packed:
    """Return the points in some order, in tiles; the last tile is filled up with points of weight 0."""
    (n, n_features), d = placed.points.rows.shape, len(placed._variances)
    n_tiles, real = -(-n // size), placed._rows.dtype
    points, constants = np.empty((n_tiles, n_features, size), real), np.empty((n_tiles, size), real)
    frames, offsets = np.empty((n_tiles, d, n_features, size), real), np.empty((n_tiles, d, size), real)
    gains = np.empty((n_tiles, d, size), real)
    padded = np.append(order, np.repeat(order[-1:], n_tiles * size - n))
    for t in range(n_tiles):
        part = padded[t * size : (t + 1) * size]
        inverse_variances, of_part, _ = placed._tables(part, placed._rows)
        points[t], frames[t] = placed._rows[part].T, placed._frames[:, part].swapaxes(1, 2)
        offsets[t], constants[t] = placed._offsets[:, part], of_part[0, 0]
        gains[t] = 0.5 / placed.noises[0] - 0.5 * inverse_variances[0]
    constants.reshape(-1)[n:] = -np.inf
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n)
    return (points, frames, offsets, gains, constants), place


def listed_in_tiles(
    placed: "PlacedFrames", tiles: "KernelTiles", rows: np.ndarray, skips: Skips | None, floors: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield, for blocks of query rows, the pairs with scores of at least ``floors_i``, and some within a margin for rounding.

    No such pair is missed: a tile is skipped only if none of its scores can reach the smallest floor of the block.
    """
    order = tiles.order_of(rows)
    rows, levels = rows[order], floors[order] - placed._shift[0, 0]
    scorer = FrameScorer(placed, rows, None if skips is None else skips.take(order), listing=True)

    def work(block: slice) -> tuple[np.ndarray, np.ndarray]:
        least = levels[block] - scorer.error(block, levels[block])
        seen = tiles.positions(tiles.reached(rows[block], least.min()))
        if not len(seen):
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        step = max(tuning.LISTED_BYTES // (8 * len(seen)), 1)
        parts = [slice(first, min(first + step, block.stop)) for first in range(block.start, block.stop, step)]
        found = [
            candidates_of_scores(as_numpy(scorer.scores(part, seen)), part, scorer.error, levels) for part in parts
        ]
        query, point = (np.concatenate([pairs[side] for pairs in found]) for side in (0, 1))
        return order[query], seen[point]

    yield from in_order(work, Blocks(len(rows), tuning.KERNEL_BLOCK), placed._backend.threads, NOTHING)
