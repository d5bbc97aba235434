"""Points in tiles on a CUDA device: offsets from the centre of a tile, and the tiles' order."""

import math
import warnings
from collections.abc import Callable
from functools import cached_property, wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import torch

from vicinal._callers import callers_line
from vicinal._engine import tuning

LOG2E = 1.4426950408889634

Tensor = torch.Tensor


class Boxes(NamedTuple):
    """Boxes around tiles of rows, in float64: (tiles, width) each, and the base-2 logarithm of the sum of their weights."""

    low: Tensor
    high: Tensor
    masses: Tensor


def boxes_around(laid: Tensor, present: Tensor, masses: Tensor) -> Boxes:
    """Return the boxes of the rows that are present, from images (tiles, size, width)."""
    low = torch.where(present[:, :, None], laid, torch.inf).amin(1).contiguous()
    high = torch.where(present[:, :, None], laid, -torch.inf).amax(1).contiguous()
    return Boxes(low, high, masses)


class Tiles:
    """Images of the points in the form that the kernels of `cuda/triton_once.py` and `cuda/triton_rows.py` read.

    Parameters
    ----------
    images : float64 tensor of shape (n, k)
    log2_weights : float64 tensor of shape (n,), optional
    index : integer tensor of shape (tiles, size)
        The row at each place, or -1.
    dtype : torch.dtype
        The working precision.
    local : bool
        Whether each tile has its own centre.
    """

    def __init__(self, images: Tensor, log2_weights: Tensor | None, index: Tensor, dtype: Any, local: bool) -> None:
        self.local, self.dtype, self.device = local, dtype, images.device
        self.n_tiles, self.size = index.shape
        self.n, self.n_places, self.images_width = len(images), index.numel(), images.shape[1]
        self.index = index.reshape(-1)
        self.present = self.index >= 0
        self.place = torch.empty(self.n, dtype=torch.int64, device=images.device)
        self.place[self.index[self.present]] = torch.nonzero(self.present)[:, 0]
        self.offsets, self.centres = self.about_centres(images)
        self.width = self.offsets.shape[1]
        half = (0.5 * LOG2E) * (self.offsets**2).sum(1)
        weights = torch.zeros_like(half) if log2_weights is None else self.lay(log2_weights)
        self.log2_weights = torch.where(self.present, weights, -torch.inf)
        # The numbers that are subtracted from the base-2 logarithms of a product and of a difference; infinite in places without a row.
        absent = torch.full_like(half, torch.inf)
        self.h = torch.where(self.present, half - weights, absent)
        self.of_points = self.h.to(dtype)
        self.of_differences = torch.where(self.present, -weights, absent).to(dtype)
        self.u = self.offsets.to(dtype)

    def lay(self, values: Tensor) -> Tensor:
        """Return values of the points (n, ...) in their places, 0 in places without a row."""
        laid = values[self.index.clamp(min=0)]
        present = self.present if values.ndim == 1 else self.present[:, None]
        return torch.where(present, laid, torch.zeros_like(laid))

    def about_centres(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Float64 values (n, v) in their places, about the centres of the tiles, and these centres; padded columns."""
        v = values.shape[1]
        offsets = torch.zeros(self.n_places, padded_width(v), dtype=torch.float64, device=values.device)
        centres = torch.zeros(self.n_tiles, offsets.shape[1], dtype=torch.float64, device=values.device)
        laid = self.lay(values)
        if self.local:
            centres[:, :v] = tile_centres(values, self.index.reshape(self.n_tiles, self.size))
            laid = laid - torch.where(self.present[:, None], centres[:, :v].repeat_interleave(self.size, 0), 0.0)
        offsets[:, :v] = laid
        return offsets, centres

    def padded(self, values: Tensor, width: int | None = None) -> Tensor:
        """Return values of the points (n, v) in their places and the working precision, with zeros up to a width."""
        width = padded_width(values.shape[1]) if width is None else width
        out = torch.zeros(self.n_places, width, dtype=self.dtype, device=values.device)
        out[:, : values.shape[1]] = self.lay(values)
        return out

    def of_rows_given(self, laid: Tensor) -> Tensor:
        """Return values by place, (n_places, ...), in the order of the rows."""
        return laid[self.place]

    @cached_property
    def by_column(self) -> Tensor:
        """The offsets, (width, n_places), in the working precision."""
        return self.u.T.contiguous()

    @cached_property
    def boxes(self) -> "Boxes":
        """The boxes around the tiles, and the weights of the tiles."""
        images = self.offsets.reshape(self.n_tiles, self.size, -1) + self.centres[:, None]
        masses = torch.logsumexp(self.log2_weights.reshape(self.n_tiles, self.size) / LOG2E, 1) * LOG2E
        return boxes_around(images, self.present.reshape(self.n_tiles, self.size), masses)

    @cached_property
    def largest(self) -> float:
        """The largest square of an offset."""
        return float((self.offsets**2).sum(1).max())


def padded_width(n_columns: int) -> int:
    """Return the power of two that kernels use for a number of columns."""
    return max(tuning.LEAST_WIDTH, 1 << max(n_columns - 1, 0).bit_length())


def in_given_order(n: int, size: int, device: Any) -> Tensor:
    """Return the index of tiles that hold the rows in their order."""
    n_tiles = -(-n // size)
    index = torch.arange(n_tiles * size, device=device)
    return torch.where(index < n, index, -1).reshape(n_tiles, size)


def ordered_tiles(order: Tensor, size: int) -> Tensor:
    """Return the index of tiles that hold the rows in some order."""
    index = in_given_order(len(order), size, order.device)
    return torch.where(index >= 0, order[index.clamp(min=0)], -1)


def indices_fit(n: int, width: int, size: int) -> bool:
    """Return whether kernels can index n rows with 32 bits: values twice as wide as the images, in as many places as `compact_tiles` makes."""
    tiles = -(-n // size)
    return 2 * width * size * (tiles + max(tiles // 4, tuning.MOST_MORE_TILES)) < 2**31


def compact_tiles(images: Tensor, order: Tensor, size: int, largest: float) -> Tensor | None:
    """Return the index of tiles of rows that are near each other: no offset from a row of the tile has a square above `largest`.

    Rows are divided into tiles in a given order (that of `halved`).  If a tile holds rows of several clusters, those that
    are too far from its centre form another tile, and so on.  None if that makes too many tiles: then the order is
    not that of these images, or the rows are far from each other everywhere.
    """
    latest = ordered_tiles(order, size)
    tiles, more = [], max(len(latest) // 4, tuning.MOST_MORE_TILES)
    while True:
        laid, present = images[latest.clamp(min=0)], latest >= 0
        # The centre is the row nearest to the median, because the median of three clusters may be near none of them.
        squares = ((laid - tile_centres(images, latest)[:, None, :]) ** 2).sum(2)
        middle = torch.where(present, squares, torch.inf).argmin(1)
        centres = laid[torch.arange(len(laid), device=laid.device), middle]
        far = present & (((laid - centres[:, None, :]) ** 2).sum(2) > largest)
        tiles.append(torch.where(far, -1, latest))
        mixed = far.any(1)
        latest = torch.where(far, latest, -1)[mixed]
        if len(latest) == 0:
            return torch.cat(tiles)
        more -= len(latest)
        if more < 0:
            return None


def near_share(images: Tensor, order: Tensor, size: int, error: float) -> float:
    """Return the share of pairs of tiles that are too near ever to be skipped, estimated from the boxes of some tiles.

    However large a row's sum is, a tile at the squared distance ``-2 log(error)`` may add its share of the error to it.
    """
    index = ordered_tiles(order, size)
    low, high, _ = boxes_around(images[index.clamp(min=0)], index >= 0, images[:0])
    some = torch.arange(0, len(low), max(len(low) // tuning.GPU_SAMPLED_TILES, 1), device=low.device)
    gaps = torch.maximum(low[some, None] - high, low - high[some, None]).clamp(min=0.0)
    near = (gaps**2).sum(2) < -2.0 * math.log(error)
    return float(near.double().mean())


def tile_centres(values: Tensor, index: Tensor) -> Tensor:
    """Return the median of each column over the rows of each tile, (tiles, v)."""
    present = index >= 0
    anyone = index.gather(1, present.int().argmax(1, keepdim=True)).clamp(min=0)
    return values[torch.where(present, index, anyone)].median(dim=1).values


def halved(images: Tensor, size: int) -> Tensor:
    """Return an order of the rows: halves (in whole tiles) along the column of the largest variance, again and again."""
    n, device = len(images), images.device
    order = torch.arange(n, device=device)
    starts, stops = torch.zeros(1, dtype=torch.int64, device=device), torch.tensor([-(-n // size)], device=device)
    longest = -(-n // size)
    while longest > 1:
        first, last = starts * size, (stops * size).clamp(max=n)
        share = torch.linspace(0.0, 1.0, min(tuning.ORDER_SAMPLE, longest * size), dtype=torch.float64, device=device)
        sampled = first[:, None] + (share * (last - first - 1)[:, None]).long()
        axis = images[order[sampled]].var(dim=1).argmax(1)
        node = torch.repeat_interleave(torch.arange(len(starts), device=device), last - first, output_size=n)
        by_value = images[order, axis[node]].argsort(stable=True)
        order = order[by_value[node[by_value].argsort(stable=True)]]
        middle = (starts + stops + 1) // 2
        starts, stops = torch.stack([starts, middle], 1).ravel(), torch.stack([middle, stops], 1).ravel()
        kept = stops > starts
        starts, stops = starts[kept], stops[kept]
        longest = -(-longest // 2)
    return order


def power_of_two_below(number: float) -> float:
    """Return the largest power of two up to a number, and at most 2^60."""
    return 2.0 ** min(math.floor(math.log2(number)), 60)


def split_in_two(values: Tensor) -> tuple[Tensor, Tensor]:
    """Float64 values of at most 65504 as the sum of two float16 tensors: which keeps 22 of their bits, down to 2^-24."""
    high = values.half()
    return high, (values - high.double()).half()


def combined(tops: Tensor, totals: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the log-sum-exp state of queries from that of its parts (parts, m), and the parts' shares of it, in float64."""
    tops = tops.double()
    highest = tops.max(0).values
    shares = torch.exp2(tops - torch.where(torch.isfinite(highest), highest, 0.0))
    return highest, (totals * shares).sum(0), shares


_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")


def within_memory(
    verb: Callable[Concatenate[Any, _Arguments], _Answer],
) -> Callable[Concatenate[Any, _Arguments], _Answer]:
    """Return a method of a placement that continues if the device has too little memory.

    It halves its backend's memory and starts again.  If Triton cannot compile the kernels (they need more shared memory
    than the device has, or there is no C compiler), torch's operations are used from then on, and one warning is issued.
    """

    @wraps(verb)
    def run(self: Any, /, *arguments: _Arguments.args, **options: _Arguments.kwargs) -> _Answer:
        while True:
            try:
                return verb(self, *arguments, **options)
            except torch.OutOfMemoryError:
                if self._backend.memory < 2**24:
                    raise
                self._backend.memory //= 2
            except Exception as error:
                if not (self._backend.fuses and _is_no_kernel(error)):
                    raise
                self._backend.fuses = False
                warnings.warn(
                    f"Triton cannot compile kernels for this device ({type(error).__name__}: {error}); torch's operations, "
                    "which take about ten times as long, are used instead.",
                    RuntimeWarning,
                    stacklevel=callers_line(),
                )
            torch.cuda.empty_cache()

    return run


def _is_no_kernel(error: Exception) -> bool:
    return type(error).__name__ in ("OutOfResources", "CompilationError") or "C compiler" in str(error)
