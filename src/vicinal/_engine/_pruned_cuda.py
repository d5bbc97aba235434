"""Pruned sweeps on a CUDA device: pairs of tiles that cannot matter are skipped, and what they hold is bounded.

With boxes around the tiles of a spatial order, no pair of tiles I and J adds more than ``B_J exp(-dist(I, J)^2 / 2)`` to the
sum of a row of I, where B is the weight of a tile.  A pair is skipped where that, times the squared distance, is below its
share of ``error`` of a lower bound of every row's sum, in both directions.  What was skipped is added up, and over the sums
that were found it is the certificate: ``Z_i - Z^_i <= c_i Z^_i``.
"""

import math
from typing import Any

import torch

from vicinal._engine import _triton_pruned as kernels
from vicinal._engine._half_cuda import Factors, Half
from vicinal._engine._tiles import LOG2E, Tensor
from vicinal._engine._tuning import GPU_BOX_TILES, GPU_PRUNED_PROGRAMS, GPU_PRUNED_SHARE

_SHRINK = 1.0 - 1e-6  # of squared distances of boxes, for the rounding of the bounds


class PrunedHalf(Half):
    """Sweeps over the pairs of tiles that matter, with the answers of `Half`.

    Attributes
    ----------
    share : float
        Of all pairs, those that are visited.
    certificate : float
        The largest relative error that skipped pairs may have left in the sum of a row, once `totals` has been asked for.
    """

    def __init__(self, error: float, *arguments: Any):
        super().__init__(*arguments)
        tiles = self.tiles
        self._options.pop("LOCAL")
        shift = (self._raised - 2.0 * self._heaviest) * LOG2E
        self._shift = torch.full((1,), shift, dtype=tiles.dtype, device=tiles.device)
        self._centres = tiles.centres * self._scale
        self._h = tiles.h.to(tiles.dtype)
        self.certificate = 0.0
        self._list, self._list_starts, self._rest = self._lists(error, shift)
        self.share = len(self._list) / tiles.n_tiles**2

    @property
    def pays(self) -> bool:
        """Whether the sweeps, which see each pair twice, are clearly less work than half sweeps over all pairs."""
        return self.share <= GPU_PRUNED_SHARE

    # -- lists -----------------------------------------------------------------------------------------------------

    def _lists(self, error: float, shift: float) -> tuple[Tensor, Tensor, Tensor]:
        """The tiles that each tile visits, where those of a tile start, and the bound of what it skips."""
        tiles, n_tiles, infinite = self.tiles, self.tiles.n_tiles, math.inf
        present = tiles.present.reshape(n_tiles, -1)
        images = (tiles.offsets.reshape(n_tiles, tiles.size, -1) + tiles.centres[:, None]).contiguous()
        low = torch.where(present[:, :, None], images, infinite).amin(1).contiguous()
        high = torch.where(present[:, :, None], images, -infinite).amax(1).contiguous()
        heavy = torch.zeros_like(tiles.h) if self._weights is None else tiles.lay(self._weights)
        heavy = torch.where(tiles.present, heavy, -infinite).reshape(n_tiles, -1)
        masses = torch.logsumexp(heavy / LOG2E, 1) * LOG2E
        # Lower bounds of the rows' sums: what the tile itself and the next ones in the order add.
        near = torch.arange(n_tiles, device=tiles.device)[:, None] + torch.arange(-1, 2, device=tiles.device)
        inside = (near >= 0) & (near < n_tiles)
        start = torch.cat([inside.new_zeros(1, dtype=torch.int64), inside.sum(1).cumsum(0)])
        [sums] = self._listed_sums(near[inside].int(), start, None)
        least = torch.where(present, sums.reshape(n_tiles, -1).log2() - heavy, infinite).amin(1)
        kept = torch.empty(n_tiles, n_tiles, dtype=torch.int8, device=tiles.device)
        blocks = -(-n_tiles // GPU_BOX_TILES)
        rest = torch.empty(blocks, n_tiles, dtype=torch.float64, device=tiles.device)
        kernels.nearby_tiles[(blocks, blocks)](
            low, high, masses, least, kept, rest, n_tiles, tiles.images_width, shift + 1e-4, _SHRINK, 0.5 * LOG2E,
            math.log2(error) - math.log2(n_tiles) - 1e-3,
            D=low.shape[1], BI=GPU_BOX_TILES, BJ=GPU_BOX_TILES, num_warps=4,
        )  # fmt: skip
        row, column = torch.nonzero(kept, as_tuple=True)
        start = torch.cat([start[:1], torch.bincount(row, minlength=n_tiles).cumsum(0)])
        return column.int(), start, rest.sum(0)

    def _n_parts(self) -> int:
        n_tiles = self.tiles.n_tiles
        return max(min(-(-GPU_PRUNED_PROGRAMS // n_tiles), n_tiles), 1)

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
        own = torch.zeros_like(tiles.h) if self._weights is None else tiles.lay(self._weights)
        skipped = self._rest.repeat_interleave(tiles.size) * torch.exp2(own)
        certificates = torch.where(tiles.present & (found[0] > 0), skipped / found[0].clamp(min=1e-300), 0.0)
        self.certificate = float(certificates.max())
        return found

    def _pulls(self, factors: Factors, values: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """``sum_j M_ij (v_i - v_j)`` in places, with the offsets and centres of v."""
        tiles, parts = self.tiles, self._n_parts()
        offsets, centres, scales, v = self._values(values)
        laid, of_classes, scale = self._laid(factors)
        width = offsets.shape[1]
        pulls = self._zeros(parts, tiles.n_places, width)
        kernels.listed_pulls[(tiles.n_tiles, parts)](
            *self._u, self._centres, self._h, *laid, *v, (centres * scales).contiguous(), self._list, self._list_starts,
            self._shift, pulls, self._unit, tiles.n_places,
            D=tiles.width, DV=width, CLASSES=of_classes, SAME=values is None, **self._options,
        )  # fmt: skip
        return pulls.sum(0, dtype=torch.float64) / (scales * scale), offsets, centres

    def scatter(self, factors: Factors, values: Tensor | None) -> tuple[Tensor, Tensor]:
        """As `Half.scatter`: with the pulls P of all rows it is ``sum_i v_i P_i'``."""
        pulls, offsets, centres = self._pulls(factors, values)
        of_tiles = pulls.reshape(self.tiles.n_tiles, self.tiles.size, -1).sum(1)
        total = offsets.T @ pulls + centres.T @ of_tiles
        size = (offsets * pulls).sum(1).abs().sum() + (centres * of_tiles).sum(1).abs().sum()
        return 0.5 * (total + total.T), size

    def pull(self, factors: Factors) -> Tensor:
        """As `Half.pull`."""
        return self.tiles.of_rows_given(self._pulls(factors, None)[0])
