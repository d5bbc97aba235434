"""A few queries on a CUDA device, computed in float64 by torch's operations, because fused kernels would lose their digits."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from vicinal._engine import tuning
from vicinal._engine.contract import Scatter, Space
from vicinal._engine.cuda.tiles import LOG2E, Tensor
from vicinal._engine.queries import Queries
from vicinal._engine.reference.arrays import as_numpy, like
from vicinal._engine.work.blocks import Blocks, listed_parts


def are_few(rows: Any, n: int) -> bool:
    """Return whether there are so few rows, compared with n, that computing their scores in float64 takes little time."""
    return len(rows) <= tuning.GPU_FEW_ROWS + n // tuning.GPU_FEW_ROWS and len(rows) * n <= tuning.GPU_FEW_PAIRS


class FewRows:
    """Some queries of a placement.

    Parameters
    ----------
    placed : RowByRow
    queries : Queries
    own_class : bool
        Whether queries, which must be resident rows, have only the points of their own class as neighbours.
    """

    def __init__(self, placed: Any, queries: Queries, own_class: bool = False) -> None:
        self._placed, self._exact, self._memory = placed, placed._exact, placed._backend.memory
        self._images = placed._query_images(queries)
        self._left_out = None if queries.left_out is None else placed._at(queries.left_out)
        self._codes = placed._codes(queries) if own_class else None
        self._positions = None if queries.positions is None else placed._at(queries.positions)

    def _scores(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield, for blocks of the queries, the block and their scores, from differences."""
        exact, weights = self._exact, self._placed._log2_weights
        for rows in Blocks.for_pairs(len(self._images), len(exact), self._memory // (8 * 8)):
            scores = -0.5 * torch.cdist(self._images[rows], exact, compute_mode="donot_use_mm_for_euclid_dist") ** 2
            if weights is not None:
                scores += weights / LOG2E
            if self._left_out is not None:
                skip = self._left_out[rows]
                hit = torch.nonzero(skip >= 0)[:, 0]
                scores[hit, skip[hit]] = -torch.inf
            if self._codes is not None:
                scores = torch.where(self._codes[0][rows, None] == self._codes[1], scores, -torch.inf)
            yield rows, scores

    def log_sums(self) -> np.ndarray:
        """Return their log-sums."""
        return as_numpy(torch.cat([torch.logsumexp(scores, 1) for _, scores in self._scores()]))

    def softmax_sums(
        self, factors: Tensor, values: Tensor | None, query_values: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return their log-sums, the sums of values (n, v) that they gather, and what the points receive of their values (m, u)."""
        n, nothing = len(self._exact), self._exact[:, :0]
        values = nothing if values is None else values.double()
        query_values = self._images[:, :0] if query_values is None else query_values.double()
        log_sums, gathered = torch.empty_like(factors), values.new_empty(len(factors), values.shape[1])
        received = values.new_zeros(n, query_values.shape[1])
        for rows, scores in self._scores():
            log_sums[rows] = torch.logsumexp(scores, 1)
            weights = _softmax(scores) * factors[rows, None]
            gathered[rows] = weights @ values
            received += weights.T @ query_values[rows]
        return log_sums, gathered, received

    def scatter(self, row_weights: Tensor, space: Space) -> Scatter:
        """Return their scatter."""
        values = self._exact if space == "images" else self._placed._rows.double()
        log_sums, scatter = torch.empty_like(row_weights), values.new_zeros(values.shape[1], values.shape[1])
        positions = self._positions
        assert positions is not None
        for rows, scores in self._scores():
            some = positions[rows]
            log_sums[rows] = torch.logsumexp(scores, 1)
            weights = _softmax(scores) * row_weights[rows, None]
            query, point = torch.nonzero(weights, as_tuple=True)
            for part in listed_parts(len(query), 4 * values.shape[1]):
                i, j = query[part], point[part]
                differences = values[some[i]] - values[j]
                scatter += (weights[i, j, None] * differences).T @ differences
        return Scatter(as_numpy(log_sums), as_numpy(scatter))

    def add_pull(self, pull: Tensor, factors: Tensor) -> None:
        """Add their `softmax_pull`."""
        for rows, scores in self._scores():
            self._add(pull, rows, _softmax(scores) * factors[rows, None])

    def add_class_pull(self, pull: Tensor, row_weights: Tensor, likelihood: bool) -> tuple[np.ndarray, np.ndarray]:
        """Add their pull by class; return their log-sums and log-agreement."""
        codes = like(self._placed.points.classes, self._exact, torch.int64)
        log_sums, log_agreement = torch.empty_like(row_weights), torch.empty_like(row_weights)
        assert self._positions is not None
        for rows, scores in self._scores():
            matched = torch.where(codes[self._positions[rows], None] == codes, scores, -torch.inf)
            log_sums[rows] = torch.logsumexp(scores, 1)
            # Relative to the best score, because the difference of two log-sums of -1e20 has no digits left.
            best = scores.max(1, keepdim=True).values.nan_to_num(neginf=0.0)
            share = torch.logsumexp(matched - best, 1) - torch.logsumexp(scores - best, 1)
            log_agreement[rows] = share.nan_to_num(nan=-torch.inf, neginf=-torch.inf).clamp(max=0.0)
            factors = row_weights[rows] if likelihood else row_weights[rows] * log_agreement[rows].exp()
            self._add(pull, rows, factors[:, None] * (_softmax(scores) - _softmax(matched)))
        return as_numpy(log_sums), as_numpy(log_agreement)

    def _add(self, pull: Tensor, rows: slice, weights: Tensor) -> None:
        """Add the pull of the weights (m, n) of some of the rows."""
        assert self._positions is not None
        images = self._images[rows]
        pull += weights.sum(0)[:, None] * self._exact - weights.T @ images
        pull[self._positions[rows]] += weights.sum(1)[:, None] * images - weights @ self._exact


def _softmax(scores: Tensor) -> Tensor:
    """Return the softmax of each row; 0 for a row without neighbours."""
    return torch.softmax(scores, 1).nan_to_num()
