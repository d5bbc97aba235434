"""Listed pairs: those with scores above a floor, from the tiles whose boxes are near enough."""

from collections.abc import Iterator

import numpy as np
from scipy.spatial.distance import cdist

from vicinal._engine import tuning
from vicinal._engine.accuracy import score_error
from vicinal._engine.plan.tiles import QueryGroups, Tiles
from vicinal._engine.work.pool import in_order
from vicinal._engine.work.sharing import NOTHING

Pairs = tuple[np.ndarray, np.ndarray]  # (query, point)


def listed_by_boxes(
    tiles: Tiles, query_groups: QueryGroups, log_weights: np.ndarray | None, floors: np.ndarray, threads: int
) -> Iterator[Pairs]:
    """Yield, for blocks of queries, the pairs with scores of at least ``floors_i``, and some within a margin for rounding.

    No such pair is missed: the distance of two boxes, rounded down, is no larger than that of any two of their rows.
    """
    low, high = (box.transpose(0, 2, 1).reshape(-1, tiles.k)[: tiles.n_tiles] for box in tiles.boxes[:2])
    counts, starts = np.diff(tiles.starts), tiles.starts[:-1]
    weights = None if log_weights is None else log_weights[tiles.order]
    heaviest = 0.0 if weights is None else float(np.abs(weights[np.isfinite(weights)]).max(initial=0.0))
    rounding = 1.0 - (2 * tiles.k + 16) * float(np.finfo(tiles.dtype).eps)

    def work(block: int) -> Pairs:
        start, stop = query_groups.blocks[block : block + 2]
        asked, mine = (
            query_groups.order[start:stop],
            tiles.images_of(query_groups, slice(start, stop)).astype(np.float64),
        )
        squares, given = np.einsum("ij,ij->i", mine, mine), np.where(floors[asked] > -np.inf, floors[asked], 0.0)
        # Images have been rounded in their tiles, about centres that may be farther away than the origin.
        margin = score_error(False, squares + tiles.widest, 0.0, heaviest, tiles.k, tiles.dtype, given)
        least = np.where(floors[asked] > -np.inf, given - margin, -np.inf)
        gaps = np.maximum(np.maximum(low - mine.max(axis=0), mine.min(axis=0) - high), 0.0)
        reached = tiles.heaviest - 0.5 * rounding * np.einsum("ij,ij->i", gaps, gaps)
        near = np.flatnonzero((reached >= least.min()) & (tiles.heaviest > -np.inf))
        near = near[(near >= query_groups.first_tiles[block]) & (near < query_groups.last_tiles[block])]
        # The places of all points of these tiles, in their order.
        ends = np.cumsum(counts[near])
        places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts[near] - ends + counts[near], counts[near])
        theirs = tiles.images(places).astype(np.float64, copy=False)
        parts = []
        for first in range(0, len(mine), step := max(tuning.LISTED_BYTES // (8 * max(len(places), 1)), 1)):
            some = slice(first, min(first + step, len(mine)))
            scores = -0.5 * cdist(mine[some], theirs, "sqeuclidean")
            scores += 0.0 if weights is None else weights[places]
            left_out = query_groups.left_out[start:stop][some]
            at = np.searchsorted(places, left_out)
            hit = np.flatnonzero((left_out >= 0) & (np.append(places, -1)[at] == left_out))
            scores[hit, at[hit]] = -np.inf
            query, place = np.nonzero((scores >= least[some, None]) & (scores > -np.inf))
            parts.append((asked[first + query], tiles.order[places[place]]))
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])

    yield from in_order(work, range(len(query_groups.blocks) - 1), threads, NOTHING)
