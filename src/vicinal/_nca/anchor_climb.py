"""The ascent of AnchorNCA: batches of pairs, held-out pairs that stop it and choose the result, and hard negatives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.random import RandomState

from vicinal._engine import prepare
from vicinal._fit_loops import FitPath, Reason, Recorder
from vicinal._nca.anchor_objective import anchor_objective, held_out_gains
from vicinal._nca.anchor_pairs import AnchorPairs, Batch
from vicinal._nca.options import Adam
from vicinal._nca.solvers import as_matrix
from vicinal._rows import check_magnitude
from vicinal._search import paired_gain

if TYPE_CHECKING:
    from vicinal._nca.anchor_nca import AnchorNCA

_LEAST_HELD_OUT = 3  # connected components of pairs, for stopping and for the choice
_MOST_HELD_OUT = 1000  # pairs
_OTHERS = 2000  # rows among which held-out positives are ranked
_LEAST_STEPS = 10  # the minimum number of steps between two evaluations
_STEPS_IN_ROUND = 100  # the maximum number of steps between two evaluations of the held-out pairs
_MINED_FROM = 20_000  # rows among which hard negatives are searched
_GATHERED = 8192  # rows that are mapped at a time
_SPARE_OF_GROUP = (
    50  # additional nearest rows that are searched, because the first ones may all belong to the anchor's group
)
_SURE = 2.0  # the gain over the raw rows that a map needs, in standard errors
_MOMENTUM, _MEMORY = 0.9, 0.999


class AnchorRows:
    """The rows of X and those of the anchors, in one precision, gathered when they are needed.

    `unread` states that the rows are in memory maps and have not been validated yet.
    """

    def __init__(self, X: np.ndarray, anchors: np.ndarray, unread: bool = True) -> None:
        self.X, self.anchors, self.unread = X, anchors, unread
        self.dtype = np.result_type(X.dtype, anchors.dtype)

    def of(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """Return the anchors and the candidates of a batch."""
        return self.gather(self.anchors, batch.anchors), self.gather(self.X, batch.candidates)

    def gather(self, table: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return some rows, or raise an error if they are not finite, or too large to be squared."""
        rows = np.asarray(table[positions], dtype=self.dtype)
        if self.unread:
            if not np.isfinite(rows).all():
                raise ValueError(
                    "X or queries contain NaN or infinity in rows of pairs. Drop such rows or fill in their values."
                )
            check_magnitude(rows, "X or queries")
        return rows


class HeldOutPairs:
    """Pairs that no step has seen, among other rows.

    Their ranks stop a climb, and nDCG at `top` chooses: pairs of large classes can gain in rank while the nearest rows get worse.
    """

    def __init__(
        self, rows: AnchorRows, anchored: AnchorPairs, numbers: np.ndarray, estimator: AnchorNCA, random: RandomState,
        *, fixed: bool = False, top: int | None = None,
    ) -> None:  # fmt: skip
        drawn = random.permutation(numbers)[:_MOST_HELD_OUT]
        others = random.permutation(anchored.shape[1])[:_OTHERS]
        pairs, weights, units = anchored.pairs[drawn], anchored.weights, anchored.components[drawn]
        weights = np.ones(len(drawn)) if weights is None else weights[drawn]
        if not anchored.own_table:  # a pair counts in both directions
            pairs = np.concatenate([pairs, pairs[:, ::-1]])
            weights, units = np.tile(weights, 2), np.tile(units, 2)
        self._weights, self._units = weights, units
        self._batch = anchored.batch(pairs[:, 0], pairs[:, 1], others)
        self._anchors, self._candidates = rows.of(self._batch)
        self._similarity, self._fixed, self._top = estimator.similarity, fixed, top
        self._raw = self._gains(np.eye(self._candidates.shape[1], self._anchors.shape[1]) if fixed else None)

    def _gains(self, A: np.ndarray | None) -> np.ndarray:
        batch = self._batch
        return held_out_gains(
            None if A is None else A.astype(self._anchors.dtype, copy=False), self._anchors, self._candidates,
            batch.positives, batch.masked, similarity=self._similarity, fixed=self._fixed, top=self._top,
        )  # fmt: skip

    def score(self, A: np.ndarray) -> float:
        """Return how well the held-out anchors find their positives."""
        return float(np.average(self._gains(A), weights=self._weights))

    def gain(self, A: np.ndarray) -> tuple[float, float]:
        """Return the gain over the raw rows and its standard error over connected components."""
        return paired_gain(self._gains(A), self._raw, self._weights, self._units)

    def best_of(self, maps: dict[str, np.ndarray]) -> str:
        """Return the name of the best map; the last one, "raw", unless another gains two standard errors over the raw rows."""
        gains = {name: self.gain(A) for name, A in maps.items() if name != "raw"}
        sure = [name for name, (mean, error) in gains.items() if mean > _SURE * error]
        return max(sure, key=lambda name: gains[name][0]) if sure else "raw"


class Division(NamedTuple):
    """The numbers of the pairs for learning, for stopping, and for the choice between the learned map and the raw rows.

    The latter two are None if nothing is held out: pairs that stop a climb cannot judge its result.
    """

    learning: np.ndarray
    stopping: np.ndarray | None = None
    choosing: np.ndarray | None = None


def divided(anchored: AnchorPairs, share: float | None, random: RandomState) -> Division:
    """Hold out a share of the pairs, by connected components; none if `share` is None or would leave too few of them."""
    if share is not None:
        n_components = anchored.components.max() + 1
        place = random.permutation(n_components)
        n_held_out = int(share * n_components)
        bounds = [n_held_out // 2, n_held_out]
        if n_held_out // 2 >= _LEAST_HELD_OUT and n_components - n_held_out >= _LEAST_HELD_OUT:
            part = np.digitize(place, bounds)[anchored.components]
            return Division(*(np.flatnonzero(part == number) for number in (2, 0, 1)))
    return Division(np.arange(len(anchored.pairs)))


def climb(
    rows: AnchorRows,
    anchored: AnchorPairs,
    train: np.ndarray,
    watched: HeldOutPairs | None,
    A: np.ndarray,
    estimator: AnchorNCA,
    options: Adam,
    random: RandomState,
    *,
    fixed: bool = False,
) -> FitPath:
    """Run Adam over batches of pairs from an initial matrix, and keep the best matrix by the held-out pairs.

    A round without a gain returns to the best matrix and halves the step; `n_iter_no_change` successive rounds without a
    gain end the fit. With `fixed`, A maps the anchors alone.
    """
    A = A.astype(rows.dtype)
    largest = float(np.abs(A).max())
    size = largest * float(np.sqrt(np.mean(np.square(A / largest))))
    step, idle, batch_size = options.learning_rate * size, 0, min(options.batch_size, len(train))
    settings: dict[str, Any] = {
        "similarity": estimator.similarity, "temperature": estimator.temperature, "fixed": fixed
    }  # fmt: skip
    record = Recorder.of(estimator, lambda matrix: as_matrix(matrix.astype(np.float64)))
    if watched is not None:
        record.begin(A, watched.score(A))
    adam = _Moments(A, size)
    with record:
        for _ in range(estimator.max_iter):
            mined = hard_negatives(rows, anchored, A, estimator, random) if estimator.hard_negatives else None
            values: list[float] = []
            # One pass over the pairs, or several if there are few pairs; long passes are evaluated in between.
            passes = max(-(-_LEAST_STEPS * batch_size // len(train)), 1)
            for left in range(passes - 1, -1, -1):
                for number, batch in enumerate(anchored.batches(train, batch_size, random, mined), 1):
                    evaluation = anchor_objective(
                        A, *rows.of(batch), batch.positives, batch.masked, weights=batch.weights, **settings
                    )
                    A = A + step * adam.direction(evaluation.gradient - options.weight_decay * A)
                    values.append(evaluation.value)
                    last = left == 0 and number * batch_size >= len(train)
                    if not last and (watched is None or number % _STEPS_IN_ROUND):
                        continue
                    value = float(np.mean(values)) if watched is None else watched.score(A)
                    before, values = record.objective, []
                    record.add(A, value)
                    record.iterated(A)
                    idle = 0 if value > before + estimator.tol else idle + 1
                    if idle and watched is not None:
                        A, step = record.kept.copy(), 0.5 * step
                        adam = _Moments(A, size)
                    if idle >= options.n_iter_no_change:
                        raise record.end(Reason.CONVERGED, f"{idle} rounds gained no more than tol={estimator.tol:g}")
        raise record.end(Reason.LIMIT, f"max_iter={estimator.max_iter} passes were used")
    return record.path()


class _Moments:
    """Adam's running moments of the gradient."""

    def __init__(self, A: np.ndarray, size: float) -> None:
        self._first, self._root, self._age = np.zeros_like(A), np.zeros_like(A), 0
        self._least = 1e-12 / size  # a gradient is inversely proportional to the size of the entries of A

    def direction(self, gradient: np.ndarray) -> np.ndarray:
        """Return the step of unit size per entry, up the gradient."""
        self._age += 1
        self._first += (1.0 - _MOMENTUM) * (gradient - self._first)
        # The root of the second moment, because squares would overflow for rows of 1e100.
        self._root = np.hypot(np.sqrt(_MEMORY) * self._root, np.sqrt(1.0 - _MEMORY) * gradient)
        unbiased = self._root / np.sqrt(1.0 - _MEMORY**self._age)
        return self._first / (1.0 - _MOMENTUM**self._age) / (unbiased + self._least)


def hard_negatives(
    rows: AnchorRows, anchored: AnchorPairs, A: np.ndarray, estimator: AnchorNCA, random: RandomState
) -> np.ndarray:
    """Return for each pair rows near its anchor that are not known to be positives, filled up with -1."""
    candidates = np.sort(random.permutation(anchored.shape[1])[:_MINED_FROM])
    asking, number = np.unique(anchored.pairs[:, 0], return_inverse=True)
    images, queries = (
        _images(rows, table, positions, A, estimator.similarity)
        for table, positions in ((rows.X, candidates), (rows.anchors, asking))
    )
    # Some of the nearest rows are positives; a group may have many.
    spare = _SPARE_OF_GROUP if anchored.codes is not None else 2
    count = min(2 * estimator.hard_negatives + spare, len(candidates))
    near = candidates[prepare(estimator.engine, images, n_queries=len(queries)).at().nearest(count, queries).indices]
    near[anchored.are_positives(asking, near)] = -1
    first = np.argsort(near < 0, axis=1, kind="stable")[:, : estimator.hard_negatives]
    taken = np.full((len(asking), estimator.hard_negatives), -1)
    taken[:, : first.shape[1]] = np.take_along_axis(near, first, axis=1)
    return taken[number]


def _images(rows: AnchorRows, table: np.ndarray, positions: np.ndarray, A: np.ndarray, similarity: str) -> np.ndarray:
    """Return the images of some rows, gathered in parts: the rows of a memory map may not fit into memory."""
    Z = np.concatenate(
        [
            rows.gather(table, positions[start : start + _GATHERED]) @ A.T
            for start in range(0, len(positions), _GATHERED)
        ]
    )
    return Z / np.maximum(np.linalg.norm(Z, axis=1, keepdims=True), 1e-30) if similarity == "cosine" else Z
