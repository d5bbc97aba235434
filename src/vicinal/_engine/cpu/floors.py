"""Listed pairs: those with scores above a floor, from the tiles whose boxes are near enough."""

from collections.abc import Iterator

import numpy as np
from scipy.spatial.distance import cdist

from vicinal._engine import tuning
from vicinal._engine.accuracy import score_error
from vicinal._engine.plan.tiles import TiledQueries, Tiles
from vicinal._engine.tuning import PRUNED_TILE
from vicinal._engine.work.blocks import Blocks
from vicinal._engine.work.pool import in_order
from vicinal._engine.work.sharing import NOTHING

Pairs = tuple[np.ndarray, np.ndarray]  # (query, point)


def pairs_above(
    tiles: Tiles, queries: TiledQueries, log_weights: np.ndarray | None, floors: np.ndarray, threads: int
) -> Iterator[Pairs]:
    """Yield, for tiles of queries, the pairs with scores of at least ``floors_i``, and some within a margin for rounding.

    No such pair is missed: the distance of two boxes, rounded down, is no larger than that of any two of their rows.
    """
    low, high = (box.transpose(0, 2, 1).reshape(-1, tiles.k)[: tiles.n_tiles] for box in tiles.boxes[:2])
    weights = None if log_weights is None else log_weights[tiles.order]
    heaviest = 0.0 if weights is None else float(np.abs(weights[np.isfinite(weights)]).max(initial=0.0))
    most = max(
        tuning.LISTED_BYTES // (8 * PRUNED_TILE * (PRUNED_TILE + tiles.k)), 1
    )  # tiles whose images are held at a time

    def work(t: int) -> Pairs:
        start, stop = queries.tiles.starts[t : t + 2]
        asked = queries.tiles.order[start:stop]
        mine = queries.tiles.images(slice(start, stop)).astype(np.float64)
        squares, given = np.einsum("ij,ij->i", mine, mine), np.where(floors[asked] > -np.inf, floors[asked], 0.0)
        # Images have been rounded in their tiles, about centres that may be farther away than the origin.
        margin = score_error(False, squares + tiles.widest, 0.0, heaviest, tiles.k, tiles.dtype, given)
        least = np.where(floors[asked] > -np.inf, given - margin, -np.inf)
        gaps = np.maximum(np.maximum(low - mine.max(axis=0), mine.min(axis=0) - high), 0.0)
        reached = tiles.heaviest - 0.5 * tiles.rounding * np.einsum("ij,ij->i", gaps, gaps)
        near = np.flatnonzero((reached >= least.min()) & (tiles.heaviest > -np.inf))
        near = near[(near >= queries.first_tiles[t]) & (near < queries.last_tiles[t])]
        parts = [np.empty((2, 0), dtype=np.int64)]
        for some in Blocks(len(near), most):
            places = np.concatenate([np.arange(*tiles.starts[u : u + 2]) for u in near[some]])
            scores = -0.5 * cdist(mine, tiles.images(places).astype(np.float64, copy=False), "sqeuclidean")
            scores += 0.0 if weights is None else weights[places]
            left_out = queries.left_out[start:stop]
            at = np.searchsorted(places, left_out)
            hit = np.flatnonzero((left_out >= 0) & (np.append(places, -1)[at] == left_out))
            scores[hit, at[hit]] = -np.inf
            query, place = np.nonzero((scores >= least[:, None]) & (scores > -np.inf))
            parts.append(np.stack([query, tiles.order[places[place]]]))
        query, point = np.concatenate(parts, axis=1)
        together = np.argsort(query, kind="stable")
        return asked[query[together]], point[together]

    yield from in_order(work, range(queries.tiles.n_tiles), threads, NOTHING)
