"""Pruned sweeps on a CUDA device: pairs of tiles that cannot matter are skipped, and their contribution is bounded.

With boxes around the tiles of a spatial order, no pair of tiles I and J adds more than ``B_J exp(-dist(I, J)^2 / 2)`` to the
sum of a row of I, where B is the weight of a tile.  With a lower bound on the sums of the rows of I, the tiles that can add
least are skipped, as many as together, times their squared distances, stay below ``error`` times that bound.  If the queries
are the points, a pair is skipped in both directions or in none.  The bounds of the skipped tiles are added up and divided by the
sums that were found, which gives the certificate: ``Z_i - Z^_i <= c_i Z^_i``.
"""

import math
from typing import Any, NamedTuple

import torch

from vicinal._engine import tuning
from vicinal._engine.cuda import triton_pruned as kernels
from vicinal._engine.cuda.once import Factors, Half
from vicinal._engine.cuda.tiles import LOG2E, Boxes, Tensor, Tiles, boxes_around, halved, ordered_tiles

_SHRINK = 1.0 - 1e-6  # the factor of squared distances of boxes, for the rounding of the bounds
_ROUNDING = 1e-4  # bits that are added to the bounds, for the rounding of sums in float32


class TileLists(NamedTuple):
    """The tiles that each tile visits, where those of a tile start, the bound on what it skips, and the share of all tiles."""

    listed: Tensor
    start: Tensor
    skipped: Tensor
    share: float


def tile_lists(
    mine: Boxes, theirs: Boxes, least: Tensor, error: float, raised: float, n_coordinates: int, both: bool, memory: int
) -> TileLists:
    """Return the tiles that add more than `error` to the sums of which `least` are lower bounds, in base-2 logarithms.

    With `both` the boxes are the same, and a pair is visited in both directions or in none.
    """
    n_i, n_j, device = len(mine.low), len(theirs.low), mine.low.device
    width, block = mine.low.shape[1], tuning.GPU_BOX_TILES
    constants = (n_coordinates, raised + _ROUNDING, _SHRINK, 0.5 * LOG2E)
    # Each tile's share if all were equal, and larger ones, up to all of the error.
    lowest, step = math.log2(error) - math.log2(n_j) - 1e-3, math.log2(n_j) / (tuning.GPU_THRESHOLDS - 1)
    found = torch.empty(tuning.GPU_BOX_PARTS, n_i, tuning.GPU_THRESHOLDS, dtype=torch.float64, device=device)
    kernels.skipped_sums[(-(-n_i // block), tuning.GPU_BOX_PARTS)](
        mine.low, mine.high, theirs.low, theirs.high, theirs.masses, least, found, n_i, n_j, *constants, lowest, step,
        D=width, BI=block, BJ=block, T=tuning.GPU_THRESHOLDS, num_warps=4,
    )  # fmt: skip
    # The admissible thresholds are the first ones; the first one is always admissible, by counting.
    chosen = (found.sum(0) <= 0.999 * error).sum(1).clamp(min=1) - 1
    threshold = (least + lowest + chosen * step).contiguous()
    skipped = torch.empty(-(-n_j // block), n_i, dtype=torch.float64, device=device)
    columns, counts = [], []
    panel = max(memory // (16 * n_j * block), 1) * block
    for first in range(0, n_i, panel):
        some = slice(first, min(first + panel, n_i))
        count = some.stop - first
        kept = torch.empty(count, n_j, dtype=torch.int8, device=device)
        rest = torch.empty(-(-n_j // block), count, dtype=torch.float64, device=device)
        kernels.nearby_tiles[(-(-count // block), -(-n_j // block))](
            mine.low[some], mine.high[some], theirs.low, theirs.high, mine.masses[some], theirs.masses, threshold[some],
            threshold, kept, rest, count, n_j, *constants, D=width, BI=block, BJ=block, BOTH=both, num_warps=4,
        )  # fmt: skip
        row, column = torch.nonzero(kept, as_tuple=True)
        columns.append(column.int())
        counts.append(torch.bincount(row, minlength=count))
        skipped[:, some] = rest
    start = torch.cat([counts[0].new_zeros(1), torch.cat(counts).cumsum(0)])
    listed = torch.cat(columns)
    return TileLists(listed, start, skipped.sum(0), len(listed) / (n_i * n_j))


class QueryTiles:
    """New queries in a spatial order, in tiles of `GPU_SOFTMAX_ROWS`, with boxes.

    Attributes
    ----------
    order : integer tensor of shape (m,)
        The query at each place.
    """

    def __init__(self, images: Tensor, width: int) -> None:
        self.order = halved(images, tuning.GPU_SOFTMAX_ROWS)
        index = ordered_tiles(self.order, tuning.GPU_SOFTMAX_ROWS)
        self.n_tiles = len(index)
        laid = torch.zeros(*index.shape, width, dtype=torch.float64, device=images.device)
        laid[:, :, : images.shape[1]] = images[index.clamp(min=0)]
        self.boxes = boxes_around(
            laid, index >= 0, torch.zeros(self.n_tiles, dtype=torch.float64, device=images.device)
        )

    def nearest(self, tiles: Tiles) -> TileLists:
        """For each tile of queries, the tile of points that may add most to their sums."""
        theirs, device = tiles.boxes, self.order.device
        nearest = torch.empty(self.n_tiles, dtype=torch.int32, device=device)
        kernels.nearest_box[(-(-self.n_tiles // tuning.GPU_BOX_TILES),)](
            self.boxes.low, self.boxes.high, theirs.low, theirs.high, theirs.masses, nearest, self.n_tiles,
            tiles.n_tiles, tiles.images_width, _SHRINK, 0.5 * LOG2E,
            D=tiles.width, BI=tuning.GPU_BOX_TILES, BJ=tuning.GPU_BOX_TILES, num_warps=4,
        )  # fmt: skip
        return TileLists(nearest, torch.arange(self.n_tiles + 1, device=device), theirs.masses, 1.0 / tiles.n_tiles)

    def lists(self, tiles: Tiles, log2_sums: Tensor, error: float, memory: int) -> TileLists:
        """Return the tiles of points that matter, from lower bounds of the sums of the queries in this order."""
        least = torch.full(
            (self.n_tiles * tuning.GPU_SOFTMAX_ROWS,), math.inf, dtype=torch.float64, device=self.order.device
        )
        least[: len(log2_sums)] = log2_sums
        least = least.reshape(self.n_tiles, -1).amin(1)
        return tile_lists(self.boxes, tiles.boxes, least, error, 0.0, tiles.images_width, False, memory)


class PrunedHalf(Half):
    """Sweeps over the pairs of tiles that matter, with the results of `Half`.

    Parameters
    ----------
    error : float
    codes : integer tensor of shape (n,), optional
        Classes of the rows, if sums over class mates must be as accurate as those over all rows.
    arguments
        The arguments of `Half`.

    Attributes
    ----------
    share : float
        The share of all pairs that is visited.
    certificate : float
        The largest relative error that skipped pairs may have left in the sum of a row; it is known after a call of `totals`.
    """

    def __init__(self, error: float, codes: Tensor | None, *arguments: Any) -> None:
        super().__init__(*arguments)
        tiles = self.tiles
        self._options.pop("LOCAL")
        shift = (self._raised - 2.0 * self._heaviest) * LOG2E
        self._shift = torch.full((1,), shift, dtype=tiles.dtype, device=tiles.device)
        self._centres = tiles.centres * self._scale
        self._h = tiles.h.to(tiles.dtype)
        self.certificate = 0.0
        lists = tile_lists(
            tiles.boxes, tiles.boxes, self._least(codes), error, shift, tiles.images_width, True, self._memory
        )
        self._list, self._list_starts, self._rest, self.share = lists

    @property
    def saves_time(self) -> bool:
        """Whether the sweeps, which visit each pair twice, are clearly less work than half sweeps over all pairs."""
        return self.share <= tuning.GPU_PRUNED_SHARE

    # -- lists -----------------------------------------------------------------------------------------------------

    def _least(self, codes: Tensor | None) -> Tensor:
        """Return lower bounds on the rows' sums: what the tile itself and the next ones in the order add, minus the row's own weight."""
        tiles, n_tiles = self.tiles, self.tiles.n_tiles
        near = torch.arange(n_tiles, device=tiles.device)[:, None] + torch.arange(-1, 2, device=tiles.device)
        inside = (near >= 0) & (near < n_tiles)
        start = torch.cat([inside.new_zeros(1, dtype=torch.int64), inside.sum(1).cumsum(0)])
        sums = self._judged(self._listed_sums(near[inside].int(), start, codes), codes)
        least = torch.where(tiles.present, sums.log2() - tiles.log2_weights, math.inf)
        return least.reshape(n_tiles, -1).amin(1).contiguous()

    def _judged(self, sums: list[Tensor], codes: Tensor | None) -> Tensor:
        """Return the sums that skipped pairs are compared with: those over class mates, for rows that have class mates."""
        if codes is None:
            return sums[0]
        with_mates = torch.bincount(codes)[codes] > int(self._leave_out)
        return torch.where(self.tiles.lay(with_mates), sums[1], sums[0])

    def _n_parts(self) -> int:
        n_tiles = self.tiles.n_tiles
        return max(min(-(-tuning.GPU_PRUNED_PROGRAMS // n_tiles), n_tiles), 1)

    # -- sweeps ----------------------------------------------------------------------------------------------------

    def _listed_sums(self, listed: Tensor, start: Tensor, codes: Tensor | None) -> list[Tensor]:
        tiles, parts = self.tiles, self._n_parts()
        laid = tiles.index if codes is None else self._laid_codes(codes)
        found = [self._zeros(parts, tiles.n_places) for _ in range(1 if codes is None else 2)]
        kernels.listed_sums[(tiles.n_tiles, parts)](
            *self._u, self._centres, self._h, laid, listed, start, self._shift, found[0], found[-1], self._unit,
            tiles.n_places, D=tiles.width, CLASSES=codes is not None, **self._options,
        )  # fmt: skip
        return [part.sum(0, dtype=torch.float64) for part in found]

    def _sums(self, codes: Tensor | None) -> list[Tensor]:
        found, tiles = self._listed_sums(self._list, self._list_starts, codes), self.tiles
        skipped = self._rest.repeat_interleave(tiles.size) * torch.exp2(tiles.log2_weights)
        judged = self._judged(found, codes)
        certificates = torch.where(tiles.present & (judged > 0), skipped / judged.clamp(min=1e-300), 0.0)
        self.certificate = float(certificates.max())
        return found

    def _pulls(self, factors: Factors, values: Tensor | None, with_edges: bool) -> tuple[Tensor, ...]:
        """``sum_j M_ij (v_i - v_j)`` in places, its sums over pairs of tiles, and the offsets and centres of v."""
        tiles, parts = self.tiles, self._n_parts()
        offsets, centres, scales, v = self._values(values)
        laid, of_classes, scale = self._laid(factors)
        width, blocks = offsets.shape[1], tiles.size // self._block
        pulls = self._zeros(parts, tiles.n_places, width)
        edges = self._zeros(len(self._list) if with_edges else 0, blocks, width)
        kernels.listed_pulls[(tiles.n_tiles, parts)](
            *self._u, self._centres, self._h, *laid, *v, (centres * scales).contiguous(), self._list, self._list_starts,
            self._shift, pulls, edges, self._unit, tiles.n_places,
            D=tiles.width, DV=width, CLASSES=of_classes, SAME=values is None, WITH_EDGES=with_edges, **self._options,
        )  # fmt: skip
        found = (part.sum(axis, dtype=torch.float64) / (scales * scale) for part, axis in ((pulls, 0), (edges, 1)))
        return *found, offsets, centres

    def scatter(self, factors: Factors, values: Tensor | None) -> tuple[Tensor, Tensor]:
        """See `Half.scatter`: with the pulls P of all rows it is ``sum_i v_i P_i'``.

        With offsets u from the centres c of tiles, and F the sums of the pulls between two tiles, ``F_IJ = -F_JI``, that is
        ``sum_i u_i P_i' + sum_IJ (c_I - c_J) F_IJ' / 2``: centres that are far away do not multiply the rounding of P.
        """
        pulls, edges, offsets, centres = self._pulls(factors, values, True)
        row = torch.repeat_interleave(torch.arange(self.tiles.n_tiles, device=centres.device), self._list_starts.diff())
        steps = 0.5 * (centres[row] - centres[self._list.long()])
        total = offsets.T @ pulls + steps.T @ edges
        size = (offsets * pulls).sum(1).abs().sum() + (steps * edges).sum(1).abs().sum()
        return 0.5 * (total + total.T), size

    def pull(self, factors: Factors) -> Tensor:
        """As `Half.pull`."""
        return self.tiles.of_rows_given(self._pulls(factors, None, False)[0])
