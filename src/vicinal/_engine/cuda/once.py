"""Half sweeps on a CUDA device: every pair is visited once if the queries are the points.

The sums over rows and over columns of a pair of tiles are stored by tile and added in float64.  With
``K_ij = b_i b_j exp(raised - |z_i - z_j|^2 / 2)`` and ``T = K 1``, the weights of a softmax with row weights r are
``K_ij r_i / T_i``: weights b of the points need no factors of their own.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from vicinal._engine import accuracy, tuning
from vicinal._engine.accuracy import FLOAT32
from vicinal._engine.cuda import triton_once as kernels
from vicinal._engine.cuda.tiles import LOG2E, Tensor, Tiles, power_of_two_below, split_in_two

_LARGEST_HALF = 2.0**14  # float16 numbers are scaled to a fourth of the largest one


class Factors(NamedTuple):
    """The weights of pairs of rows: g_i + g_j, with other g for pairs of the same class, in the rows' order.

    ``most`` is a bound on ``|K_ij g_i|``.
    """

    outside: Tensor
    most: float
    inside: Tensor | None = None
    codes: Tensor | None = None


class _Panel(NamedTuple):
    """The tiles whose rows one launch computes: the first one, their number, and a of `cuda/triton_once.py` for columns and rows."""

    first: int
    n_tiles: int
    of_columns: Tensor
    of_rows: Tensor


class Half:
    """Half sweeps over tiles of points.

    Parameters
    ----------
    tiles : Tiles
    log2_weights : float64 tensor of shape (n,), optional
    real : dtype
        The working precision.
    leave_out : bool
        Whether rows are left out of their own sums.
    raised, heaviest : float
        How far scores are raised, in nats, and the largest log-weight, which is taken off all of them.
    memory : int
        Bytes.
    """

    def __init__(
        self,
        tiles: Tiles,
        log2_weights: Tensor | None,
        real: np.dtype,
        leave_out: bool,
        raised: float,
        heaviest: float,
        memory: int,
    ) -> None:
        self.tiles, self._weights, self._leave_out, self._real = tiles, log2_weights, leave_out, real
        self._raised, self._heaviest, self._memory = raised, heaviest, memory
        self._split = real == FLOAT32
        size, self._block, warps, stages = tuning.GPU_TILES[real][tiles.width]
        assert size == tiles.size
        scale = power_of_two_below(_LARGEST_HALF / math.sqrt(max(LOG2E * tiles.largest, 1e-24))) if self._split else 1.0
        self._unit = scale**-2  # a power of two: exact in any precision
        self._scale = math.sqrt(LOG2E) * scale
        self._u = self._parts(tiles.offsets * self._scale)
        self._options = {
            "B": size, "BJ": self._block, "SPLIT": self._split, "LOCAL": tiles.local,
            "num_warps": warps, "num_stages": stages,
        }  # fmt: skip
        self._kept: tuple[_Panel, ...] = ()
        self.certificate = 0.0  # every pair is visited

    def _parts(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Float64 values in the form that the kernels read."""
        return split_in_two(values) if self._split else (values, values)

    # -- log-sums --------------------------------------------------------------------------------------------------

    def log_sums(self, totals: Tensor) -> Tensor:
        """``log sum_j b_j exp(-|z_i - z_j|^2 / 2)`` from T."""
        own = 0.0 if self._weights is None else self._weights / LOG2E - self._heaviest
        return totals.log() - own - self._raised + self._heaviest

    def totals(self, codes: Tensor | None = None) -> tuple[Tensor, Tensor, np.ndarray]:
        """T (n,), its part over class mates, both 1 where either underflowed, and the rows in which that happened.

        `codes` are classes in the rows' order.
        """
        found = [self.tiles.of_rows_given(total) for total in self._sums(codes)]
        if not self._leave_out:
            own = torch.ones_like(found[0])
            if self._weights is not None:
                own = torch.exp2(2.0 * (self._weights - self._heaviest * LOG2E))
            found = [total + own for total in found]
        return self._without_underflowed(found[0], found[-1], codes)

    def _sums(self, codes: Tensor | None) -> list[Tensor]:
        """Return the sums of K over other rows, and over class mates, in places."""
        tiles, classes = self.tiles, codes is not None
        laid = tiles.index if codes is None else self._laid_codes(codes)
        totals = [torch.zeros(tiles.n_places, dtype=torch.float64, device=tiles.device) for _ in range(1 + classes)]
        n_blocks, chunk, parts = self._cut()
        for panel in self._panels(tiles.width):
            places, n_panel = self._places(panel)
            rows = [self._zeros(parts, n_panel) for _ in totals]
            columns = [self._zeros(panel.n_tiles, tiles.n_places) for _ in totals]
            kernels.half_sums[(parts, panel.n_tiles)](
                *self._u, panel.of_columns, panel.of_rows, laid, rows[0], columns[0], rows[-1], columns[-1],
                self._unit, panel.first, n_blocks, chunk, tiles.n_places, n_panel,
                D=tiles.width, CLASSES=classes, **self._options,
            )  # fmt: skip
            for total, of_rows, of_columns in zip(totals, rows, columns, strict=True):
                total[places] += of_rows.sum(0, dtype=torch.float64)
                total += of_columns.sum(0, dtype=torch.float64)
        return totals

    def _without_underflowed(
        self, total: Tensor, matched: Tensor, codes: Tensor | None
    ) -> tuple[Tensor, Tensor, np.ndarray]:
        underflowed = total < accuracy.SMALLEST_SUM[self._real]
        if codes is not None:
            counts = torch.bincount(codes, minlength=1)[codes] - int(self._leave_out)
            least = torch.clamp(total * accuracy.LEAST_SHARE[self._real], min=accuracy.SMALLEST_SUM[self._real])
            underflowed |= (counts > 0) & (matched < least)
        underflowed_rows = torch.nonzero(underflowed)[:, 0].cpu().numpy()
        return torch.where(underflowed, 1.0, total), torch.where(underflowed, 1.0, matched), underflowed_rows

    # -- weighted sums ---------------------------------------------------------------------------------------------

    def scatter(self, factors: Factors, values: Tensor | None) -> tuple[Tensor, Tensor]:
        """``sum_{i<j} M_ij (v_i - v_j)(v_i - v_j)'`` of the images, or of values (n, v), and its trace before terms cancel.

        M is ``K_ij (g_i + g_j)``.  A pair of tiles I, J with ``s = c_I - c_J`` adds ``sum M_ij (v_i - v_j + s)(v_i - v_j +
        s)'``: offsets from the centres of tiles, and the contribution of the distance between the tiles.
        """
        tiles = self.tiles
        offsets, centres, scales, v = self._values(values)
        width = offsets.shape[1]
        laid, of_classes, scale = self._laid(factors)
        mass = torch.zeros(tiles.n_places, dtype=torch.float64, device=tiles.device)
        total = torch.zeros(width, width, dtype=torch.float64, device=tiles.device)
        size = torch.zeros((), dtype=torch.float64, device=tiles.device)
        n_blocks, chunk, parts = self._cut()
        for panel in self._panels(width):
            places, n_panel = self._places(panel)
            rows, along = self._zeros(parts, n_panel, width), self._zeros(n_blocks, n_panel)
            columns = self._zeros(panel.n_tiles, tiles.n_places)
            kernels.half_scatter[(parts, panel.n_tiles)](
                *self._u, panel.of_columns, panel.of_rows, *laid, *v, rows, along, columns, self._unit, panel.first,
                n_blocks, chunk, tiles.n_places, n_panel,
                D=tiles.width, DV=width, CLASSES=of_classes, SAME=values is None, **self._options,
            )  # fmt: skip
            mass[places] += along.sum(0, dtype=torch.float64)
            mass += columns.sum(0, dtype=torch.float64)
            total -= offsets[places].T @ (rows.sum(0, dtype=torch.float64) / scales)
            if tiles.local:
                added, trace = self._between_tiles(panel, offsets, centres, along, columns)
                total += added
                size += trace
        total = total + total.T + (offsets * mass[:, None]).T @ offsets
        size = size + (mass.abs() * (offsets**2).sum(1)).sum()
        return (0.5 / scale) * (total + total.T), size / scale

    def _values(self, values: Tensor | None) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, Tensor]]:
        """Offsets of the images or of values from centres of tiles, these, and the offsets scaled, as kernels read them."""
        tiles = self.tiles
        if values is None:
            scales = torch.full((tiles.width,), self._scale, dtype=torch.float64, device=tiles.device)
            return tiles.offsets, tiles.centres, scales, self._u
        offsets, centres = tiles.about_centres(values)
        scales = torch.ones(offsets.shape[1], dtype=torch.float64, device=tiles.device)
        if self._split:
            scales = torch.exp2(torch.floor(torch.log2(_LARGEST_HALF / offsets.abs().amax(0).clamp(min=1e-30))))
        return offsets, centres, scales, self._parts(offsets * scales)

    def _between_tiles(self, panel: _Panel, offsets: Tensor, centres: Tensor, along: Tensor, columns: Tensor) -> Any:
        """Return the contribution of the distances between the centres to half a scatter, and to its trace before terms cancel."""
        tiles, width = self.tiles, offsets.shape[1]
        u = offsets.reshape(tiles.n_tiles, tiles.size, width).to(tiles.dtype)
        mine = slice(panel.first, panel.first + panel.n_tiles)
        along = along.reshape(tiles.n_tiles, -1, panel.n_tiles, tiles.size).sum(1)
        columns = columns.reshape(panel.n_tiles, tiles.n_tiles, tiles.size)
        of_rows = torch.bmm(along.permute(1, 0, 2), u[mine])  # (panel, tiles, width)
        of_columns = torch.bmm(columns.permute(1, 0, 2), u).transpose(0, 1)
        masses = columns.sum(2, dtype=torch.float64).reshape(-1, 1)
        steps = (centres[mine, None] - centres).reshape(-1, width)
        edges = (of_rows - of_columns).reshape(-1, width).double()
        weighted = masses * steps
        return edges.T @ steps + 0.5 * (weighted.T @ steps), (weighted * steps).abs().sum()

    def pull(self, factors: Factors) -> Tensor:
        """``sum_j K_ij (g_i + g_j)(z_i - z_j)``, (n, width), in float64."""
        tiles = self.tiles
        laid, of_classes, scale = self._laid(factors)
        n_blocks, _, _ = self._cut()
        parts = max(min(-(-tuning.GPU_PROGRAMS // tiles.n_tiles), n_blocks), -(-n_blocks // 1024))
        chunk = -(-n_blocks // parts)
        parts = -(-n_blocks // chunk)
        exact = (tiles.offsets * self._scale).to(tiles.dtype)
        pull = torch.empty(tiles.n_places, tiles.width, dtype=torch.float64, device=tiles.device)
        for panel in self._panels(tiles.width):
            places, n_panel = self._places(panel)
            pulls = self._zeros(parts, n_panel, tiles.width)
            kernels.pull_rows[(parts, panel.n_tiles)](
                *self._u, exact, tiles.centres * self._scale, panel.of_columns, panel.of_rows, *laid, pulls, self._unit,
                panel.first, n_blocks, chunk, tiles.n_places, n_panel,
                D=tiles.width, CLASSES=of_classes, **self._options,
            )  # fmt: skip
            pull[places] = pulls.sum(0, dtype=torch.float64)
        return tiles.of_rows_given(pull) / (self._scale * scale)

    # -- arguments of the kernels ----------------------------------------------------------------------------------

    def _laid(self, factors: Factors) -> tuple[tuple[Tensor, Tensor, Tensor], bool, float]:
        """Codes and factors in places, whether there are classes, and the power of two that factors are scaled by."""
        tiles = self.tiles
        scale = power_of_two_below(0.5 * _LARGEST_HALF / max(factors.most, 1e-30)) if self._split else 1.0
        outside = tiles.lay(factors.outside * scale).to(tiles.dtype)
        if factors.inside is None or factors.codes is None:
            return (tiles.index, outside, outside), False, scale
        inside = tiles.lay(factors.inside * scale).to(tiles.dtype)
        return (self._laid_codes(factors.codes), outside, inside), True, scale

    def _laid_codes(self, codes: Tensor) -> Tensor:
        return torch.where(self.tiles.present, self.tiles.lay(codes), -1)

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=self.tiles.dtype, device=self.tiles.device)

    def _cut(self) -> tuple[int, int, int]:
        """Return the number of blocks of columns, how many of them a program visits, and the resulting number of parts of a sweep."""
        n_blocks = self.tiles.n_places // self._block
        chunk = tuning.GPU_CHUNK * (self.tiles.size // self._block)
        return n_blocks, chunk, -(-n_blocks // chunk)

    def _places(self, panel: _Panel) -> tuple[slice, int]:
        size = self.tiles.size
        return slice(panel.first * size, (panel.first + panel.n_tiles) * size), panel.n_tiles * size

    def _panels(self, width: int) -> Iterator[_Panel]:
        """Yield the tiles of launches whose results, with a given number of columns of values, fit into the memory."""
        tiles = self.tiles
        if self._kept:
            yield from self._kept
            return
        numbers = (4 + tiles.size // self._block) * tiles.n_places + self._cut()[2] * tiles.size * (width + 1)
        if tiles.local:
            # From centres to places, in float64 before they are rounded.
            numbers += 6 * tiles.n_places + 2 * tiles.n_tiles * tiles.width
        step = int(min(max(self._memory // (8 * numbers), 1), tiles.n_tiles, 65535))
        for first in range(0, tiles.n_tiles, step):
            panel = self._panel(first, min(step, tiles.n_tiles - first))
            if step == tiles.n_tiles:
                self._kept = (panel,)
            yield panel

    def _panel(self, first: int, count: int) -> _Panel:
        tiles, shift = self.tiles, (self._raised - 2.0 * self._heaviest) * LOG2E
        if not tiles.local:
            # The weights of both rows of a pair count, hence twice the heaviest.
            return _Panel(first, count, -tiles.of_points, (shift - tiles.h).to(tiles.dtype))
        mine = slice(first, first + count)
        places = slice(first * tiles.size, (first + count) * tiles.size)
        of_columns = self._from_tiles(mine, slice(None), 0.0)
        return _Panel(first, count, of_columns, self._from_tiles(slice(None), places, shift))

    def _from_tiles(self, some: slice, places: slice, shift: float) -> Tensor:
        """a of `cuda/triton_once.py` for some tiles and places, in base 2: (tiles, places)."""
        tiles, width = self.tiles, self.tiles.width
        start, stop, _ = places.indices(tiles.n_places)
        theirs = slice(start // tiles.size, stop // tiles.size)
        u = tiles.offsets[places].reshape(-1, tiles.size, width)
        steps = tiles.centres[some] - tiles.centres[theirs, None]  # (their tiles, some tiles, width)
        found = torch.baddbmm((shift - tiles.h[places]).reshape(len(u), 1, -1), LOG2E * steps, u.transpose(1, 2))
        found -= (0.25 * LOG2E) * (steps**2).sum(2, keepdim=True)
        return found.permute(1, 0, 2).to(tiles.dtype).reshape(steps.shape[1], -1)
