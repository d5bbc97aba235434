"""The supervision of `NeuralNCA`, in batches.

Both sources have the same interface: which parts to train on and which to set aside (`split`), the batches of an
epoch, the rows in a batch, the objective of its embedded rows, and the evaluation of the scale of a first embedding
(`evaluator` returns some rows, and a function that turns their outputs into a score of scales).  The targets of all rows are
copied to the device once (`place`), and the batches of an epoch are copied together (`placed`).
"""

from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from vicinal._engine import prepare
from vicinal._nca.init import SCALES_TRIED, sample_rows
from vicinal._nca.neural_objectives import agreement, neighbor_terms, pair_term
from vicinal._nca.objectives import neighbor_value, pair_objective
from vicinal._supervision import Grouped, Listed, Targets, listed_pairs, sample_pairs

if TYPE_CHECKING:
    import torch


class NeighborSource:
    """Labels or soft targets: a batch is some rows, and its objective is the mean of their terms."""

    same_shapes = True  # whether batches of the same number of rows take the same work

    def __init__(self, targets: Targets, weight: np.ndarray | None, objective: str) -> None:
        self.targets, self.objective = targets, objective
        self.weight = np.ones(len(targets.values)) if weight is None else weight

    def split(self, share: float, random: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
        """Return rows to train on and rows set aside."""
        order = random.permutation(len(self.weight))
        count = max(round(share * len(order)), 2) if share else 0
        aside = np.sort(order[:count])
        if count and self.targets.take(aside).alone().all():
            raise ValueError(
                f"early_stopping cannot be used: none of the {count} rows that are set aside agrees with another of them. "
                "Raise validation_fraction, or set early_stopping=False."
            )
        return np.sort(order[count:]), aside

    def batches(self, some: np.ndarray, size: int, random: np.random.RandomState) -> Iterator[np.ndarray]:
        order = random.permutation(some)
        for start in range(0, len(order), size):
            if len(order) - start >= 2:
                yield order[start : start + size]

    def rows(self, batch: "torch.Tensor") -> "torch.Tensor":
        return batch

    def place(self, torch: ModuleType, device: str) -> None:
        self._there = tuple(
            torch.as_tensor(np.asarray(values, dtype=np.float32), device=device)
            for values in (self.weight, self.targets.values)
        )

    def placed(self, torch: ModuleType, batches: list[np.ndarray], device: str) -> "list[torch.Tensor]":
        return _on_device(torch, batches, device)

    def objective_of(
        self, torch: ModuleType, z: "torch.Tensor", batch: "torch.Tensor"
    ) -> "tuple[torch.Tensor, torch.Tensor]":
        """Return the objective of a batch and its weight, as tensors."""
        weight, values = (known[batch] for known in self._there)
        terms, has_mate = neighbor_terms(z, agreement(self.targets.kind, values), self.objective, weight.log())
        counted = weight * has_mate if self.objective == "likelihood" else weight
        total = counted.sum()
        return (counted * terms).sum() / total.clamp_min(1e-30), total

    def evaluator(self) -> tuple[np.ndarray, Callable[[np.ndarray], Callable[[np.ndarray], float]]]:
        points, queries = sample_rows(len(self.weight))
        targets = self.targets.take(points)
        queries = queries[~targets.alone()[queries]]
        weight = self.weight[points]

        def score_of(Z: np.ndarray) -> Callable[[np.ndarray], float]:
            if len(queries) == 0:
                return lambda A: 0.0
            problem = prepare(
                None,
                Z,
                log_weights=np.log(weight),
                leave_one_out=True,
                match=targets.match(),
                n_queries=len(queries),
                passes=SCALES_TRIED,
            )
            return lambda A: neighbor_value(A, problem, objective="likelihood", weight=weight, rows=queries)

        return points, score_of


class PairSource:
    """Close pairs: a batch is some pairs, the rows in them, and other rows to fill it up."""

    same_shapes = False

    def __init__(self, close: Grouped | Listed, weight: np.ndarray | None, n: int) -> None:
        self.close, self.n = close, n
        self.weight = np.ones(n) if weight is None else np.maximum(weight, 1e-30)

    def split(self, share: float, random: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
        pairs, weight = self.close.some(random)
        keep = weight > 0
        self._pairs, self._pair_weight = pairs[keep], weight[keep]
        order = random.permutation(len(self._pairs))
        count = max(round(share * len(order)), 1) if share else 0
        return order[count:], order[:count]

    def batches(
        self, some: np.ndarray, size: int, random: np.random.RandomState
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        order = random.permutation(some)
        half = max(size // 2, 1)
        for start in range(0, len(order), half):
            chosen = order[start : start + half]
            rows = np.unique(self._pairs[chosen])
            fill = size - len(rows)
            if fill > 0 and self.n > len(rows):
                rows = np.union1d(rows, random.choice(self.n, min(fill, self.n), replace=False))
            yield rows, chosen

    def rows(self, batch: "tuple[torch.Tensor, torch.Tensor, torch.Tensor]") -> "torch.Tensor":
        return batch[0]

    def place(self, torch: ModuleType, device: str) -> None:
        self._there = tuple(
            torch.as_tensor(values, dtype=torch.float32, device=device)
            for values in (self._pair_weight, np.log(self.weight))
        )

    def placed(
        self, torch: ModuleType, batches: list[tuple[np.ndarray, np.ndarray]], device: str
    ) -> "list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]":
        """Return rows, pairs, and where the pairs' rows are among the rows."""
        places = [np.searchsorted(rows, self._pairs[chosen]) for rows, chosen in batches]
        rows, chosen = zip(*batches, strict=True)
        return list(zip(*(_on_device(torch, part, device) for part in (rows, chosen, places)), strict=True))

    def objective_of(
        self, torch: ModuleType, z: "torch.Tensor", batch: "tuple[torch.Tensor, torch.Tensor, torch.Tensor]"
    ) -> "tuple[torch.Tensor, torch.Tensor]":
        rows, chosen, places = batch
        share = self._there[0][chosen]
        return pair_term(z, places, share, self._there[1][rows]), share.sum()

    def evaluator(self) -> tuple[np.ndarray, Callable[[np.ndarray], Callable[[np.ndarray], float]]]:
        rows, pairs = sample_pairs(self.close, self.n)
        pull = listed_pairs(pairs, np.ones(len(pairs)), len(rows))

        def score_of(Z: np.ndarray) -> Callable[[np.ndarray], float]:
            problem = prepare(None, Z, leave_one_out=True, passes=SCALES_TRIED)
            return lambda A: pair_objective(A, problem, pull).value

        return rows, score_of


def _on_device(torch: ModuleType, arrays: Sequence[np.ndarray], device: str) -> "list[torch.Tensor]":
    """Return integer arrays on a device, by a single copy."""
    if not arrays:
        return []
    together = torch.as_tensor(np.concatenate(arrays), device=device)
    return list(torch.split(together, [len(array) for array in arrays]))
