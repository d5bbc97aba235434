"""Rows with a low-rank frame plus noise each on a CUDA device: one fused kernel for the log-sums of one depth and noise.

Queries whose products are not accurate, several depths or noises at once, and all other reductions are computed by torch's
operations, as in `frames/placed.py`.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from vicinal._engine import tuning
from vicinal._engine.accuracy import FLOAT32, products_are_accurate
from vicinal._engine.contract import LogSums
from vicinal._engine.cuda import triton_frames as kernels
from vicinal._engine.cuda.tiles import LOG2E, Tensor, combined, within_memory
from vicinal._engine.frames.placed import PlacedFrames
from vicinal._engine.frames.scores import Skips
from vicinal._engine.queries import Queries
from vicinal._engine.reference.arrays import as_numpy, like


class _Laid(NamedTuple):
    """The data of the points that `cuda/triton_frames.py` reads."""

    points: Tensor
    frames: Tensor
    offsets: Tensor
    gains: Tensor
    constants: Tensor
    slope: Tensor


class CudaFrames(PlacedFrames):
    """Rows under `Frames` on a CUDA device."""

    takes_tensors: ClassVar[bool] = True

    @within_memory
    def log_sums(self, queries: Queries, by_class: bool = False) -> LogSums:
        if by_class or not hasattr(queries.rows, "cpu"):
            return super().log_sums(queries, by_class)
        self._check_is_one_kernel()
        rows = like(queries.rows, self._rows)
        sizes = (rows.double() ** 2).sum(1).clamp(min=self._largest) / (float(self.noises.min()) * self._slack)
        accurate = products_are_accurate(sizes, self.points.rows.dtype) & self._backend.fuses
        left_out = torch.full((len(rows),), -1, device=rows.device)
        if queries.left_out is not None:
            left_out = like(queries.left_out, left_out)
        answer = torch.empty(len(rows), dtype=torch.float64, device=rows.device)
        some = torch.nonzero(accurate)[:, 0]
        answer[some] = self._fused_log_sums(rows[some], left_out[some])
        others = torch.nonzero(~accurate)[:, 0]
        if len(others):  # by torch's operations, which need tables of the host
            host = Queries(rows=rows[others].cpu().numpy(), left_out=left_out[others].cpu().numpy())
            answer[others] = like(super().log_sums(host).log_sums, answer)
        return LogSums(answer)  # type: ignore[arg-type]

    @within_memory
    def log_sums_table(self, queries: Queries, skips: tuple[Any, Any] | None = None) -> np.ndarray:
        return super().log_sums_table(queries, skips)

    def _ways(self, rows: np.ndarray) -> list[tuple[np.ndarray, Callable[..., np.ndarray]]]:
        ways = super()._ways(rows)
        if self.shape != (1, 1) or not self._backend.fuses:
            return ways
        accurate = self.are_accurate(rows)
        others = [way for way in ways if not accurate[way[0][0]]]
        some = np.flatnonzero(accurate)
        return [(some, self._fused_sums), *others] if len(some) else others

    def _fused_sums(self, rows: np.ndarray, skips: Skips | None) -> np.ndarray:
        """Log-sums of queries whose products are accurate, shape (1, 1, m)."""
        left_out = np.full(len(rows), -1)
        if skips is not None:
            if len(np.unique(skips.queries)) < len(skips.queries):  # the kernel leaves out one point per query
                return self._sums(rows, skips, "products")
            left_out[skips.queries] = skips.points
        found = self._fused_log_sums(like(rows, self._rows), torch.as_tensor(left_out, device=self._rows.device))
        return as_numpy(found)[None, None]

    @cached_property
    def _laid(self) -> _Laid:
        (n, n_features), depth = self.points.rows.shape, len(self._variances)
        n_places = -(-n // tuning.GPU_FRAME_POINTS) * tuning.GPU_FRAME_POINTS
        width = -(-n_features // tuning.GPU_FRAME_COLUMNS) * tuning.GPU_FRAME_COLUMNS
        half_precision = 0.5 / float(self.noises[0])
        gains = half_precision - 0.5 / (self.noises[0] + self._variances)
        squares = np.square(self.points.rows, dtype=np.float64).sum(axis=1)
        constants = torch.full((n_places,), -torch.inf, dtype=torch.float64, device=self._rows.device)
        constants[:n] = like(LOG2E * (self._constants_of_all[0, 0] - half_precision * squares), constants)

        def padded(values: Any, *shape: int) -> Tensor:
            out = torch.zeros(shape, dtype=self._rows.dtype, device=self._rows.device)
            out[tuple(slice(size) for size in values.shape)] = like(values, out)
            return out

        return _Laid(
            padded(self._rows, n_places, width),
            padded(self._frames, max(depth, 1), n_places, width),
            padded(self._offsets, max(depth, 1), n_places),
            padded(LOG2E * gains, max(depth, 1), n_places),
            constants.to(self._rows.dtype),
            torch.full((1,), 2.0 * half_precision * LOG2E, dtype=self._rows.dtype, device=self._rows.device),
        )

    def _fused_log_sums(self, rows: Tensor, left_out: Tensor) -> Tensor:
        """Log-sums (m,) in float64 of query rows, which leave out a point each or, at -1, none."""
        laid, m, device = self._laid, len(rows), rows.device
        if m == 0:
            return torch.empty(0, dtype=torch.float64, device=device)
        n_places, width = laid.points.shape
        q = torch.zeros(m, width, dtype=laid.points.dtype, device=device)
        q[:, : rows.shape[1]] = rows
        n_blocks = n_places // tuning.GPU_FRAME_POINTS
        parts = max(min(-(-tuning.GPU_PROGRAMS * tuning.GPU_FRAME_ROWS // m), n_blocks), 1)
        chunk = -(-n_blocks // parts)
        parts = -(-n_blocks // chunk)
        tops = torch.empty(parts, m, dtype=laid.points.dtype, device=device)
        totals = torch.empty_like(tops)
        kernels.frame_sums[(-(-m // tuning.GPU_FRAME_ROWS), parts)](
            q, left_out, *laid, tops, totals, m, width, len(self._variances), n_places, n_blocks, chunk,
            BQ=tuning.GPU_FRAME_ROWS, BJ=tuning.GPU_FRAME_POINTS, BK=tuning.GPU_FRAME_COLUMNS,
            PRECISION="tf32x3" if self.points.rows.dtype == FLOAT32 else "ieee", num_warps=4, num_stages=2,
        )  # fmt: skip
        top, total, _ = combined(tops, totals)
        own = (rows.double() ** 2).sum(1) / float(2.0 * self.noises[0])
        return (top + total.log2()) / LOG2E - own + float(self._shift[0, 0])
