"""The shared metric on a CUDA device: fused Triton kernels over tiles, which visit each pair once if the queries are the points.

The rows stay on the device; in each pass the metric and the row weights are sent there, and log-sums, means, a scatter or a
gradient are returned.

::

    CudaPlaced         cuda/placed.py         all rows against themselves, each pair once:   cuda/once.py, cuda/triton_once.py
        |                               pairs that cannot matter skipped:              cuda/pruned.py, cuda/triton_pruned.py
        |                               rows that underflow, if few:            cuda/few_rows.py
    RowByRow           cuda/rows.py    queries one by one, neighbours:                cuda/triton_rows.py
        |                               blocks that may hold neighbours:               cuda/neighbors.py
        |                               tiles and their order:                         cuda/tiles.py
    ArrayPlaced        reference/arrays.py       more coordinates than the kernels take
"""

from functools import cached_property
from typing import Any

import numpy as np
import torch

from vicinal._engine import accuracy, tuning
from vicinal._engine.accuracy import (
    scatter_is_accurate,
)
from vicinal._engine.contract import LogSums, Pull, Scatter, Space
from vicinal._engine.cuda.few_rows import FewRows, are_few
from vicinal._engine.cuda.once import Factors, Half
from vicinal._engine.cuda.pruned import PrunedHalf
from vicinal._engine.cuda.rows import RowByRow
from vicinal._engine.cuda.tiles import LOG2E, Tensor, Tiles, padded_width, within_memory
from vicinal._engine.queries import Queries
from vicinal._engine.reference.arrays import as_numpy, like


class CudaPlaced(RowByRow):
    """Rows under one shared metric on a CUDA device."""

    def _half(self, queries: Queries, about_tiles: bool = False, codes: Tensor | None = None) -> Half | None:
        """Return half sweeps if the queries are the points, in their order; None if they are not, or if digits would be lost.

        With `about_tiles`, they use the centres of tiles even if one common centre would be enough.  With `codes`, the classes of
        the rows, skipped pairs are compared with the sums over class mates.
        """
        own, n, weights = queries.left_out, self._n, self.points.log_weights
        if not self._fused or n < 2 or not queries.are_all:
            return None
        if not (own is None or np.array_equal(own, np.arange(n))):
            return None
        if weights is not None and not (
            np.isfinite(weights).all() and np.ptp(weights) <= accuracy.WIDEST_LOG_WEIGHTS[self._real]
        ):
            return None
        tiles: Tiles | None = self._compact if about_tiles else self._tiles()
        if tiles is not None and tiles.local:
            tiles = self._compact
        if tiles is None:
            return None
        raised = 0.0
        if own is not None:
            nearest = self._nearest_of_some
            raised = float(np.clip(nearest.max(), 0.0, accuracy.MOST_RAISE[self._real]))
            if np.median(nearest) - raised > -np.log(accuracy.SMALLEST_SUM[self._real]):
                return None
        heaviest = 0.0 if weights is None else float(weights.max())
        pruned = self._pruned(own is not None, raised, heaviest, codes)
        if pruned is not None:
            return pruned
        return Half(tiles, self._log2_weights, self._real, own is not None, raised, heaviest, self._backend.memory)

    @property
    def expected_share(self) -> float:  # type: ignore[override]
        half = self._half(Queries(left_out=np.arange(self._n)))
        return half.share if isinstance(half, PrunedHalf) else 1.0

    def _pruned(self, leave_out: bool, raised: float, heaviest: float, codes: Tensor | None) -> PrunedHalf | None:
        """Return sweeps over the pairs that matter, if these are clearly fewer."""
        if not self._may_prune or self._compact is None:
            return None
        made = PrunedHalf(
            self._backend.error, codes, self._compact, self._log2_weights, self._real, leave_out, raised, heaviest,
            self._backend.memory,
        )  # fmt: skip
        return made if made.saves_time else None

    @cached_property
    def _nearest_of_some(self) -> np.ndarray:
        """Half the squared distance to the nearest other row, of some rows: how far scores may be raised."""
        rows = torch.arange(0, self._n, max(self._n // tuning.SAMPLED_ROWS, 1), device=self._exact.device)
        squares = 0.5 * (self._exact**2).sum(1)
        half = squares[rows, None] + squares - self._exact[rows] @ self._exact.T
        half[torch.arange(len(rows), device=rows.device), rows] = torch.inf
        return np.maximum(as_numpy(half.min(1).values), 0.0)

    def _totals(self, half: Half, codes: Tensor | None = None) -> tuple[Tensor, Tensor, np.ndarray]:
        """Return the sums of the rows, and record the certificate of the pairs that pruning skipped."""
        found = half.totals(codes)
        self.points.certificates.add(half.certificate)
        return found

    def _few(self, queries: Queries, underflowed: np.ndarray) -> FewRows | None:
        return FewRows(self, queries.take(underflowed, self._n)) if are_few(underflowed, self._n) else None

    @staticmethod
    def _factors(factors: Tensor, underflowed: Tensor) -> Tensor:
        return factors.index_fill(0, underflowed, 0.0)

    # -- the verbs -------------------------------------------------------------------------------------------------

    @within_memory
    def log_sums(self, queries: Queries, by_class: bool = False) -> LogSums:
        half = None if by_class else self._half(queries)
        if half is None:
            return super().log_sums(queries, by_class)
        totals, _, underflowed = self._totals(half)
        answer = as_numpy(half.log_sums(totals))
        if len(underflowed):
            few = self._few(queries, underflowed)
            answer[underflowed] = (
                super().log_sums(queries.take(underflowed, self._n)).log_sums if few is None else few.log_sums()
            )
        return LogSums(answer)

    @within_memory
    def scatter(self, queries: Queries, row_weights: np.ndarray, space: Space) -> Scatter:
        width = self._k if space == "images" else self._rows.shape[1]
        if padded_width(width) <= tuning.FUSED_COORDINATES:
            for about_tiles in (False, True):
                found = self._half_scatter(queries, row_weights, space, about_tiles)
                if found is not None:
                    return found
        return super().scatter(queries, row_weights, space)

    def _half_scatter(
        self, queries: Queries, row_weights: np.ndarray, space: Space, about_tiles: bool
    ) -> Scatter | None:
        """Return the scatter by half sweeps; None if they cannot be used, or would lose digits."""
        half = self._half(queries, about_tiles)
        if half is None:
            return None
        totals, _, underflowed = self._totals(half)
        r = like(row_weights, totals)
        factors = Factors(self._factors(r / totals, self._at(underflowed)), float(np.abs(row_weights).max()))
        scatter, size = half.scatter(factors, None if space == "images" else self._rows.double())
        width = self._k if space == "images" else self._rows.shape[1]
        answer = as_numpy(scatter[:width, :width])
        if not scatter_is_accurate(answer, float(size), self._real):
            return None
        log_sums = as_numpy(half.log_sums(totals))
        if len(underflowed):
            few = self._few(queries, underflowed)
            if few is None:
                again = super().scatter(queries.take(underflowed, self._n), row_weights[underflowed], space)
            else:
                again = few.scatter(r[self._at(underflowed)], space)
            log_sums[underflowed] = again.log_sums
            answer = answer + again.scatter
        return Scatter(log_sums, answer)

    @within_memory
    def softmax_pull(self, queries: Queries, factors: np.ndarray, own_class: bool = False) -> np.ndarray:
        half = None if own_class else self._half(queries)
        if half is None:
            return super().softmax_pull(queries, factors, own_class)
        totals, _, underflowed = self._totals(half)
        f = like(factors, totals)
        g = Factors(self._factors(f / totals, self._at(underflowed)), float(np.abs(factors).max()))
        pull = half.pull(g)[:, : self._k].contiguous()
        few = self._few(queries, underflowed)
        if len(underflowed) and few is None:
            return as_numpy(pull) + super().softmax_pull(queries.take(underflowed, self._n), factors[underflowed])
        if len(underflowed) and few is not None:
            few.add_pull(pull, f[self._at(underflowed)])
        return as_numpy(pull)

    @within_memory
    def class_agreement(self, queries: Queries) -> tuple[np.ndarray, np.ndarray]:
        images, tiles = self._images_and_tiles(queries)
        if tiles is None:
            return super().class_agreement(queries)
        every = self._softmax(tiles, images, queries.left_out)
        mates = self._softmax(tiles, images, queries.left_out, codes=self._codes(queries))
        share = (mates.top - every.top + (mates.total / every.total).log2()) / LOG2E
        share = torch.where(mates.total > 0, share.clamp(max=0.0), -torch.inf)
        return as_numpy(every.log_sums), as_numpy(share)

    def class_pull(self, queries: Queries, row_weights: np.ndarray, likelihood: bool) -> Pull:
        found = self._class_half(queries, row_weights, likelihood, False)
        return super().class_pull(queries, row_weights, likelihood) if found is None else found

    def class_gradient(self, queries: Queries, row_weights: np.ndarray, likelihood: bool) -> Pull:
        found = self._class_half(queries, row_weights, likelihood, True)
        return super().class_gradient(queries, row_weights, likelihood) if found is None else found

    @within_memory
    def _class_half(self, queries: Queries, row_weights: np.ndarray, likelihood: bool, gradient: bool) -> Pull | None:
        """`class_pull` or `class_gradient` of all rows by half sweeps; None if these cannot be used."""
        codes = like(self.points.classes, self._exact, torch.int64)
        half = self._half(queries, codes=codes)
        if half is None:
            return None
        totals, matched, underflowed = self._totals(half, codes)
        r, underflowed_rows = like(row_weights, totals), self._at(underflowed)
        agreement = matched / totals
        outside = r / totals if likelihood else r * agreement / totals
        safe = torch.where(matched > 0, matched, 1.0)
        inside = torch.where(matched > 0, r / totals - r / safe, r / totals) if likelihood else outside - r / totals
        g = Factors(
            self._factors(outside, underflowed_rows),
            float(np.abs(row_weights).max()),
            self._factors(inside, underflowed_rows),
            codes,
        )
        log_sums, log_agreement = as_numpy(half.log_sums(totals)), as_numpy(agreement.log())
        narrow = padded_width(self._rows.shape[1]) <= min(tuning.FUSED_COORDINATES, 2 * padded_width(self._k))
        answer: Any = None
        if gradient and narrow:
            # pull' X = A S, with the scatter S of the rows: each pair once.
            answer, pull = self._by_metric(half.scatter(g, self._rows.double())[0]), torch.zeros_like(self._exact)
        else:
            pull = half.pull(g)[:, : self._k].contiguous()
        if len(underflowed):
            few = self._few(queries, underflowed)
            if few is None:
                again = super().class_pull(queries.take(underflowed, self._n), row_weights[underflowed], likelihood)
                log_sums[underflowed], log_agreement[underflowed] = again.log_sums, again.log_agreement
                pull = pull + like(again.pull, pull)
            else:
                log_sums[underflowed], log_agreement[underflowed] = few.add_class_pull(
                    pull, r[underflowed_rows], likelihood
                )
        if gradient:
            if answer is None or len(underflowed):
                more = self._pull_by_rows(pull)
                answer = more if answer is None else answer + more
            pull = answer
        return Pull(log_sums, np.minimum(log_agreement, 0.0), as_numpy(pull))

    def _by_metric(self, scatter: Tensor) -> Tensor:
        """``A S``; its diagonal if the metric is diagonal."""
        width = self._rows.shape[1]
        scatter = scatter[:width, :width]
        if self.metric is None:
            return scatter
        metric = like(self.metric, scatter)
        return metric * scatter.diagonal() if metric.ndim == 1 else metric @ scatter

    def _pull_by_rows(self, pull: Tensor) -> Tensor:
        """``pull' X`` in float64, some rows at a time; its diagonal if the metric is diagonal."""
        total: Any = 0.0
        step = max(self._backend.memory // (32 * self._rows.shape[1]), 1)
        diagonal = self.metric is not None and self.metric.ndim == 1
        for start in range(0, self._n, step):
            some = slice(start, start + step)
            rows = self._rows[some].double()
            total = total + ((pull[some] * rows).sum(0) if diagonal else pull[some].T @ rows)
        return total
