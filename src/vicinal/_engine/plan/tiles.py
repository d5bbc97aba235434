"""Points and queries in tiles with boxes, in a spatial order."""

from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from vicinal._engine import tuning
from vicinal._engine.accuracy import largest_accurate_square
from vicinal._engine.contract import to_images
from vicinal._engine.plan import boxes as kernels
from vicinal._engine.plan.boxes import Boxes, PackedTiles
from vicinal._engine.plan.order import spatial_order
from vicinal._engine.tuning import PRUNED_TILE, TILE_SPAN
from vicinal._engine.work.blocks import Blocks
from vicinal._engine.work.pool import in_order

_TILES_AT_ONCE, _ROWS_AT_ONCE = 256, 2048


class TiledQueries(NamedTuple):
    """Queries in tiles of their own: for each place of a query, what is left out (a place of the points, or -1) and a tile of points near
    it; and for each tile, the tiles of points from..to among which its neighbours are."""

    tiles: "Tiles"
    left_out: np.ndarray
    home: np.ndarray
    first_tiles: np.ndarray
    last_tiles: np.ndarray

    def given(self, answers: np.ndarray) -> np.ndarray:
        """Return results in the order in which the queries were given."""
        out = np.empty_like(answers)
        out[self.tiles.order] = answers
        return out


class Masses(NamedTuple):
    """The weights of the tiles, multiplied by factors for their values: of each tile, in units of exp(log_unit), and in total."""

    of_tiles: np.ndarray
    log_unit: float
    log_all: float
    heavy: np.ndarray  # (n_tiles,): the log of the factor for the values of a tile, at least 0


class Tiles:
    """Points under a metric, ordered in space and divided into tiles, which are the only copy of their images.

    Parameters
    ----------
    rows : array of shape (n, D)
    metric : array of shape (k, D) or (D,), or None
    log_weights : array of shape (n,), optional
    order : integer array of shape (n,)
        The position of the point at each place.
    groups : integer array of shape (g + 1,)
        Where groups of places begin; no tile holds points of two groups.
    threads : int
    """

    def __init__(
        self, rows: np.ndarray, metric: np.ndarray | None, log_weights: np.ndarray | None, order: np.ndarray,
        groups: np.ndarray, threads: int,
    ) -> None:  # fmt: skip
        self.order, self.groups, self.dtype = order, groups, rows.dtype
        self.n, self.k = len(rows), rows.shape[1] if metric is None or metric.ndim == 1 else len(metric)
        starts = [np.arange(start, stop, PRUNED_TILE) for start, stop in pairwise(groups)]
        self.tiles_of_groups = np.cumsum([0, *map(len, starts)])
        self.starts = np.concatenate([*starts, [self.n]]).astype(np.int64)
        self.n_tiles = len(self.starts) - 1
        self.widest = largest_accurate_square(self.dtype) / 4.0
        self._fill(rows, metric, log_weights, threads)

    def _fill(self, rows: np.ndarray, metric: np.ndarray | None, log_weights: np.ndarray | None, threads: int) -> None:
        t, k, spans = self.n_tiles, self.k, -(-self.n_tiles // TILE_SPAN)
        self.packed = np.empty((t, k, PRUNED_TILE), self.dtype)
        self.centres, self.offsets = np.empty((t, k), self.dtype), np.empty((t, PRUNED_TILE), self.dtype)
        self.wide = np.empty(t, dtype=np.bool_)
        low, high = np.full((spans, k, TILE_SPAN), np.inf), np.full((spans, k, TILE_SPAN), -np.inf)
        self.log_mass, self.heaviest = np.empty(t), np.empty(t)

        def work(first: int) -> None:
            last = min(first + _TILES_AT_ONCE, t)
            tiles, boxes = slice(first, last), slice(first // TILE_SPAN, -(-last // TILE_SPAN))
            starts = self.starts[first : last + 1]
            some = self.order[starts[0] : starts[-1]]
            images = np.ascontiguousarray(to_images(rows[some], metric))
            weights = np.empty(0) if log_weights is None else log_weights[some]
            kernels.fill_tiles(
                images, weights.astype(self.dtype, copy=False), starts - starts[0], self.widest, 0, last - first,
                self.packed[tiles], self.centres[tiles], self.offsets[tiles], self.wide[tiles], low[boxes], high[boxes],
                self.log_mass[tiles], self.heaviest[tiles],
            )  # fmt: skip

        for _ in in_order(work, range(0, t, _TILES_AT_ONCE), threads):
            pass
        self.boxes = Boxes(low, high, np.ascontiguousarray(low.min(axis=2)), np.ascontiguousarray(high.max(axis=2)))

    @property
    def points(self) -> PackedTiles:
        """The points in the form that the kernels take."""
        return PackedTiles(self.packed, self.centres, self.offsets, self.wide, self.starts)

    @property
    def rounding(self) -> float:
        """The factor by which squared distances of boxes are rounded down, by more than those of pairs are rounded up."""
        return 1.0 - (2 * self.k + 16) * float(np.finfo(self.dtype).eps)

    @cached_property
    def place(self) -> np.ndarray:
        """The place of each point in the order."""
        place = np.empty(self.n, dtype=np.int64)
        place[self.order] = np.arange(self.n)
        return place

    @cached_property
    def tile_at(self) -> np.ndarray:
        """The tile of each place."""
        return np.repeat(np.arange(self.n_tiles), np.diff(self.starts))

    def at(self, places: slice | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the tiles of some places, and where the places are in them."""
        t = self.tile_at[places]
        places = np.arange(places.start, places.stop) if isinstance(places, slice) else places
        return t, places - self.starts[t]

    def images(self, places: slice | np.ndarray) -> np.ndarray:
        """Return the images of the points at some places, (m, k), to the rounding of their tiles."""
        if isinstance(places, slice) and places.start < places.stop:
            first, last = self.tile_at[places.start], self.tile_at[places.stop - 1] + 1
            start = self.starts[first]
            if self.starts[last - 1] - start == (last - first - 1) * PRUNED_TILE:  # full tiles, but for the last
                tiles = self.packed[first:last].transpose(0, 2, 1)
                images = np.add(tiles, self.centres[first:last, None], order="C").reshape(-1, self.k)
                return images[places.start - start : places.stop - start]
        t, j = self.at(places)
        return self.packed[t, :, j] + self.centres[t]

    def pack(self, values: np.ndarray) -> np.ndarray:
        """Return values of the points, in their given order, as (n_tiles, v, PRUNED_TILE), padded with zeros."""
        packed = np.zeros((self.n_tiles, values.shape[1], PRUNED_TILE), dtype=self.dtype)
        for part in Blocks(self.n, tuning.ALGEBRA_ROWS):
            t, j = self.at(part)
            packed[t, :, j] = values[self.order[part]]
        return packed

    def centred(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return values of the points, packed about the middle of each tile, and those middles (n_tiles, v)."""
        packed = self.pack(values)
        counts = np.diff(self.starts)
        middles = (packed.sum(axis=2, dtype=np.float64) / counts[:, None]).astype(self.dtype)
        middles[self.wide] = 0
        packed -= middles[:, :, None]
        packed *= (np.arange(PRUNED_TILE) < counts[:, None])[:, None, :]  # the padding of a tile stays zero
        return packed, middles

    def unpack(self, tiles: np.ndarray) -> np.ndarray:
        """(n_tiles, v, PRUNED_TILE) as an array of the points in their given order, (n, v)."""
        given = np.empty((self.n, tiles.shape[1]), tiles.dtype)
        for part in Blocks(self.n, tuning.ALGEBRA_ROWS):
            t, j = self.at(part)
            given[self.order[part]] = tiles[t, :, j]
        return given

    def masses(self, values: np.ndarray | None = None) -> Masses:
        """Return the weights of tiles; with values of the points (n, v), values far from the others increase them."""
        heavy = np.zeros(self.n_tiles)
        if values is not None and values.shape[1]:
            heavy = np.log(np.maximum.reduceat(far_values(values)[self.order], self.starts[:-1]))
        log_mass = self.log_mass + heavy
        log_unit = float(log_mass.max())
        if log_unit == -np.inf:
            return Masses(np.zeros(self.n_tiles), 0.0, 0.0, heavy)
        with np.errstate(under="ignore"):
            mass = np.exp(log_mass - log_unit)
        # A weight that underflows is still positive.
        mass = np.where(log_mass > -np.inf, np.maximum(mass, 1e-300), 0.0)
        return Masses(mass, log_unit, log_unit + float(np.log(mass.sum())), heavy)

    def by_place(self, tiles: np.ndarray) -> np.ndarray:
        """(n_tiles, v, PRUNED_TILE) as an array of the points at their places, (n, v)."""
        return tiles[self.tile_at, :, np.arange(self.n) - self.starts[self.tile_at]]

    # -- queries ---------------------------------------------------------------------------------------------------

    def all_rows(self, left_out: np.ndarray | None) -> TiledQueries:
        """Return all points as queries."""
        counts = np.diff(self.tiles_of_groups)
        return TiledQueries(
            self, self._places(left_out, self.order), self.tile_at,
            np.repeat(self.tiles_of_groups[:-1], counts), np.repeat(self.tiles_of_groups[1:], counts),
        )  # fmt: skip

    def some_rows(self, positions: np.ndarray, left_out: np.ndarray | None, threads: int) -> TiledQueries:
        """Return some points as queries."""
        places = self.place[positions]
        order = np.argsort(places, kind="stable")
        home = self.tile_at[places[order]]
        group = np.searchsorted(self.tiles_of_groups, home, side="right") - 1
        groups = np.concatenate([[0], np.flatnonzero(np.diff(group)) + 1, [len(places)]])
        tiles = Tiles(self.images(places), None, None, order, groups, threads)
        of_tiles = group[tiles.starts[:-1]]
        first, last = self.tiles_of_groups[of_tiles], self.tiles_of_groups[of_tiles + 1]
        return TiledQueries(tiles, self._places(left_out, order), home, first, last)

    def new_rows(
        self, images: np.ndarray, left_out: np.ndarray | None, threads: int, group: int | None = None
    ) -> TiledQueries:
        """Return new rows as queries, by their images; their neighbours are all points, or those of one group of places."""
        everyone = np.array([0, len(images)])
        order = spatial_order(images, everyone, threads)
        tiles = Tiles(images, None, None, order, everyone, threads)
        first, last = (0, self.n_tiles) if group is None else self.tiles_of_groups[[group, group + 1]]
        homes = self._nearest_tiles(np.ascontiguousarray(images[order]), threads, slice(first, last))
        none, every = (np.full(tiles.n_tiles, end, dtype=np.int64) for end in (first, last))
        return TiledQueries(tiles, self._places(left_out, order), homes, none, every)

    def _nearest_tiles(self, images: np.ndarray, threads: int, seen: slice) -> np.ndarray:
        """For each of some queries in a spatial order, a tile whose box is nearest to it."""
        masses = np.full(self.n_tiles, -np.inf)
        masses[seen] = self.log_mass[seen]
        homes = np.empty(len(images), dtype=np.int64)

        def work(some: slice) -> None:
            kernels.home_tiles(images[some], self.boxes, masses, homes[some])

        for _ in in_order(work, Blocks(len(homes), _ROWS_AT_ONCE), threads):
            pass
        return homes

    def _places(self, left_out: np.ndarray | None, order: np.ndarray) -> np.ndarray:
        if left_out is None:
            return np.full(len(order), -1, dtype=np.int64)
        left_out = left_out[order]
        return np.where(left_out >= 0, self.place[left_out], -1)


def far_values(values: np.ndarray) -> np.ndarray:
    """Return how far values of the points (n, v) are from the typical ones, in units of `value_scales`: (n,), at least 1."""
    centre, scale = value_scales(values)
    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.abs(values - centre) / scale
    return np.maximum(np.where(scale > 0, far, 1.0).max(axis=1), 1.0)


def value_scales(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the median of each column of values, and the distance from it within which 19 of 20 lie."""
    values = values.astype(np.float64, copy=False)
    centre = np.median(values, axis=0)
    distances = np.abs(values - centre)
    scale = np.quantile(distances, 0.95, axis=0, method="higher")
    return centre, np.where(scale > 0, scale, distances.max(axis=0))
