r"""Plans: which tiles of points each tile of queries visits, with a bound on what the others would add.

A plan is data: a compressed list of pairs of tiles, with the fours of rows of each that are concerned.  It depends only on the rows, the
metric, the weights and the results that are wanted, not on the number of threads.  These results determine how pairs are weighted:

- ``power`` p: pairs at the distance u count ``max(1, u)^p`` times as much, for sums of differences (p = 1) and of their products (p = 2);
- values that lie far from the typical ones count as many times as much (`tiles.far_values`).

The contribution of all that is skipped to the sum ``Z_i = sum_j exp(s_ij)`` of a row is bounded relative to a lower bound on Z_i, with half of
the error for each of two rules:

1. Tiles whose boxes are so far from a query group that all of them together are within its error are not listed.
2. Of a tile that is listed, a pair is skipped if its score is below a level that only ``error / (2 n)`` of the sum can reach.

There are two lower bounds: from the home tile of each row, and, once the tiles next to it (`near`) have been summed, from these.
docs/engine.md has the proof.
"""

from typing import NamedTuple

import numpy as np

from vicinal._engine import tuning
from vicinal._engine.plan import lists as kernels
from vicinal._engine.plan.boxes import SLACK
from vicinal._engine.plan.lists import FOUR, GROUPS
from vicinal._engine.plan.tiles import TiledQueries, Tiles
from vicinal._engine.tuning import PRUNED_TILE, QUERY_GROUP, TILE_SPAN
from vicinal._engine.work.blocks import cut_by_cost
from vicinal._engine.work.pool import in_order

# log(u^2) <= u^2 / 64 + _TANGENT, the tangent at 64.
_TANGENT = np.log(64.0) - 1.0
_LISTED_AT_ONCE = 2**18  # pairs of tiles that a thread compares at a time


class Plan(NamedTuple):
    """For each tile of queries, where its tiles of points begin in the list, these tiles in ascending order, and the fours of its rows
    that visit each of them, as bits."""

    starts: np.ndarray
    tiles: np.ndarray
    groups: np.ndarray

    def costs(self) -> np.ndarray:
        """Return the number of pairs that each tile of queries visits, some of which may be padding."""
        fours = np.unpackbits(self.groups.view(np.uint8)).reshape(-1, 16).sum(axis=1)
        ends = np.append(0, np.cumsum(fours, dtype=np.int64))
        costs: np.ndarray = (ends[self.starts[1:]] - ends[self.starts[:-1]]) * (FOUR * PRUNED_TILE)
        return costs

    def pieces(self, costs: np.ndarray) -> list[tuple[int, int]]:
        """Return pieces of work, from..to in tiles of queries, of about equal cost."""
        n_tiles = len(self.starts) - 1
        most = tuning.PIECES if n_tiles < tuning.MANY_BLOCKS else tuning.MANY_PIECES
        return cut_by_cost(costs + 1, int(min(most, costs.sum() // tuning.LEAST_BLOCK_PAIRS + 1)))

    def only(self, rows: np.ndarray, tiles: Tiles) -> tuple["Plan", np.ndarray]:
        """Return the same tiles, visited only by the fours of rows that contain some rows of the queries, and all rows of these fours."""
        fours = np.zeros((tiles.n_tiles, PRUNED_TILE // FOUR), dtype=bool)
        four = (np.arange(tiles.n) - tiles.starts[tiles.tile_at]) // FOUR
        fours[tiles.tile_at[rows], four[rows]] = True
        bits = np.packbits(fours, axis=1, bitorder="little").view(np.uint16)[:, 0]
        return self._replace(groups=self.groups & np.repeat(bits, np.diff(self.starts))), fours[tiles.tile_at, four]

    def taken(self, groups: np.ndarray) -> "Plan":
        """Return the plan with fewer rows, and without the tiles that no row visits."""
        used = groups != 0
        starts = np.append(0, np.cumsum(used))[self.starts]
        return Plan(starts, self.tiles[used], groups[used])

    def joined(self, other: "Plan") -> "Plan":
        """Return a plan that visits what either of two plans visits."""
        n = len(self.starts) - 1
        queries = np.concatenate([np.repeat(np.arange(n), np.diff(plan.starts)) for plan in (self, other)])
        tiles, groups = (np.concatenate(pair) for pair in ((self.tiles, other.tiles), (self.groups, other.groups)))
        order = np.lexsort((tiles, queries))
        queries, tiles = queries[order], tiles[order]
        first = np.flatnonzero(np.append(True, (np.diff(queries) != 0) | (np.diff(tiles) != 0))[: len(order)])
        groups = np.bitwise_or.reduceat(groups[order], first) if len(first) else groups
        return Plan(np.searchsorted(queries[first], np.arange(n + 1)), tiles[first], groups)


class Planner:
    """Plans for queries among points.

    Parameters
    ----------
    points : Tiles
    queries : TiledQueries
    error : float
        The largest certificate, above 0.
    threads : int
    power : float
    values : array of shape (n, v), optional
        Values of the points that are wanted.
    once : bool
        Whether the queries are the points, and each pair is visited once for both of its rows.
    """

    def __init__(
        self, points: Tiles, queries: TiledQueries, error: float, threads: int, power: float = 0.0, values: np.ndarray | None = None,
        once: bool = False,
    ) -> None:  # fmt: skip
        self._points, self._queries, self._error, self._threads = points, queries, error, threads
        self._power, self._once, self.masses = power, once, points.masses(values)

    def levels(self, low: np.ndarray) -> np.ndarray:
        """Return the scores below which all pairs of a row together are within half of its error."""
        known = np.log(0.5 * self._error / self._points.n) - SLACK + low
        heaviest = max(float(self._points.heaviest.max()), -1e300)  # minus infinity if no point has any weight
        # The zero of s + p ((heaviest - s) / 64 + _TANGENT / 2) minus the known bound, with p the power.
        levels = (known - self._power * (heaviest / 64.0 + 0.5 * _TANGENT)) / (1.0 - self._power / 64.0)
        return np.where(low > -np.inf, levels, np.inf)

    def near(self) -> Plan:
        """Return the tiles next to the home of each row: those that follow it if each pair is visited once, else those on both sides."""
        queries, n = self._queries, self._points.n_tiles
        if self._once:
            first = np.arange(n)
            counts = np.minimum(queries.last_tiles - first, tuning.NEXT_TILES)
            starts = np.append(0, np.cumsum(counts))
            tiles = np.arange(starts[-1]) - np.repeat(starts[:-1] - first, counts)
            return Plan(starts, tiles.astype(np.int32), np.full(len(tiles), 0xFFFF, dtype=np.uint16))
        of_rows = queries.tiles.tile_at
        group = (np.arange(queries.tiles.n) - queries.tiles.starts[of_rows]) // QUERY_GROUP
        reach = tuning.NEXT_TILES // 8
        beside = queries.home[:, None] + np.arange(-reach, reach + 1)
        inside = (beside >= queries.first_tiles[of_rows, None]) & (beside < queries.last_tiles[of_rows, None])
        pairs = (of_rows[:, None] * n + beside)[inside]
        bits = np.broadcast_to((3 << (2 * group))[:, None].astype(np.uint16), beside.shape)[inside]
        order = np.argsort(pairs)
        pairs, bits = pairs[order], bits[order]
        first = np.flatnonzero(np.append(True, np.diff(pairs) != 0)[: len(pairs)])
        tile, beside = np.divmod(pairs[first], n)
        bits = np.bitwise_or.reduceat(bits, first) if len(first) else bits
        return Plan(np.searchsorted(tile, np.arange(queries.tiles.n_tiles + 1)), beside.astype(np.int32), bits)

    def beyond(self, low: np.ndarray, near: Plan) -> Plan:
        """Return the other tiles within the reach of rows with these lower bounds; infinite ones reach nothing."""
        points, queries, masses = self._points, self._queries, self.masses
        radius = self._radii(low)
        of_points = radius.max(axis=1) if self._once else np.zeros(points.n_tiles)
        widest = np.maximum.reduceat(of_points, np.arange(0, points.n_tiles, TILE_SPAN))
        n_tiles = queries.tiles.n_tiles
        counts, step = np.zeros(n_tiles, dtype=np.int64), max(_LISTED_AT_ONCE // points.n_tiles, 1)

        def work(first: int) -> tuple[np.ndarray, np.ndarray]:
            last = min(first + step, n_tiles)
            most = (last - first) * points.n_tiles
            tiles, groups = np.empty(most, dtype=np.int32), np.empty(most, dtype=np.uint16)
            kernels.list_tiles(
                queries.tiles.points, queries.tiles.boxes, points.boxes, masses.of_tiles, radius, of_points, widest, points.rounding,
                self._once, *near, queries.first_tiles, queries.last_tiles, first, last, counts, tiles, groups,
            )  # fmt: skip
            count = int(counts[first:last].sum())
            return tiles[:count].copy(), groups[:count].copy()

        parts = list(in_order(work, range(0, n_tiles, step), self._threads))
        tiles, groups = (np.concatenate(part) for part in zip(*parts, strict=True))
        return Plan(np.append(0, np.cumsum(counts)), tiles, groups)

    def certificate(self, low: np.ndarray, log_sums: np.ndarray) -> float:
        """Return the largest certificate of any row, relative to its lower bound: half of the error for boxes, half for scores."""
        tiles = self._queries.tiles
        places = np.arange(tiles.n)
        least = self._least(low)[tiles.tile_at, (places - tiles.starts[tiles.tile_at]) // QUERY_GROUP]
        known = np.isfinite(low) & np.isfinite(log_sums)
        shares = np.exp(least[known] - log_sums[known]) + np.exp(low[known] - log_sums[known])
        return 1.03 * 0.5 * self._error * float(shares.max(initial=0.0))

    def _least(self, low: np.ndarray) -> np.ndarray:
        """Return the smallest lower bound of each query group, (n_tiles, GROUPS); infinite for groups without a row that has neighbours."""
        tiles = self._queries.tiles
        padded = np.full((tiles.n_tiles, PRUNED_TILE), np.inf)
        padded[tiles.tile_at, np.arange(tiles.n) - tiles.starts[tiles.tile_at]] = np.where(low > -np.inf, low, np.inf)
        least: np.ndarray = padded.reshape(-1, GROUPS, QUERY_GROUP).min(axis=2)
        return least

    def _radii(self, low: np.ndarray) -> np.ndarray:
        """Return the squared distances beyond which tiles are within the error of all rows of a query group, (n_tiles, GROUPS)."""
        points, queries, masses, least = self._points, self._queries, self.masses, self._least(low)
        radius = np.empty(least.shape)
        rule = float(self._error), self._power, masses.log_unit, masses.log_all, points.rounding

        def work(piece: tuple[int, int]) -> None:
            kernels.radii(
                queries.tiles.points, queries.tiles.boxes, points.boxes, masses.of_tiles, rule, self._once, least, queries.first_tiles,
                queries.last_tiles, *piece, radius,
            )  # fmt: skip

        for _ in in_order(work, even_pieces(queries.tiles.n_tiles), self._threads):
            pass
        return radius


def even_pieces(n_tiles: int) -> list[tuple[int, int]]:
    """Return tiles in pieces of work for the threads."""
    step = max(-(-n_tiles // tuning.PIECES), tuning.LEAST_TILES)
    return [(first, min(first + step, n_tiles)) for first in range(0, n_tiles, step)]
