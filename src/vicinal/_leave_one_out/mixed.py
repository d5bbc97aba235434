r"""Rows of numbers and levels as a leave-one-out problem: the smoothing of each column of levels is learned beside the metric.

With the factor ``(1 - l) [c_i = c_j] + l pi(c_i)`` of a column, EM's update is

.. math:: l \leftarrow 1 - \frac1n \sum_i \sum_j p_{ij} [c_i = c_j] \frac{1 - l}{(1 - l) + l \pi(c_i)}

with one pseudo-row that was drawn from the shares, so that ``l >= 1 / (n + 1)``; the objective therefore contains ``log(l) / n``.  EM
creeps where the neighbours hardly tell whether levels are copied.  The likelihood as a function of one l alone is known exactly from
the same pass, because the factor is linear in l and ``log`` is concave: a pass may maximise it over the l that gains most, and change
nothing else.  Both kinds of steps never lower the objective.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import block_diag

from vicinal._categories import MOST_SMOOTHING, TRAINING, Categories
from vicinal._engine import Placement, one_blas_thread_beside_pairs, prepare
from vicinal._leave_one_out.gaps import LevelsOfRows, check_columns_known, expect, gaussian_start
from vicinal._leave_one_out.moments import scatter_of_rows, weight_of_others
from vicinal._leave_one_out.problem import EMStatistics, LeaveOneOut, leave_one_out, log_norm

_START = 0.5
_HALVINGS = 50


class Masses(NamedTuple):
    """How the neighbours of the rows that know their level in a column divide, and what a level's factor says.

    weight, same, other, lacking : (m,), the weight of the row, and the weights of its neighbours at the same level, at another one, and
        without any
    group : (m,), the share of the level's coordinate
    """

    weight: np.ndarray
    same: np.ndarray
    other: np.ndarray
    lacking: np.ndarray
    group: np.ndarray

    def updated(self, l: float) -> tuple[float, float]:
        """Return EM's update of l, and the slope of the log-likelihood of all rows on the scale of logits."""
        copied = self.same * (1.0 - l) / ((1.0 - l) + l * self.group)
        drawn, pairs = (
            self.weight @ (self.same + self.other - copied) + 1.0,
            self.weight @ (self.same + self.other) + 1.0,
        )
        return float(drawn / pairs), float(drawn - l * pairs)

    def best(self, l: float) -> tuple[float, float]:
        """Return the l of maximum likelihood, everything else fixed, and the gain of all rows together."""
        once = self.same / ((1.0 - l) + l * self.group)
        copied, drawn = once, once * self.group + self.other / l

        def likelihood(at: float) -> float:
            return float(self.weight @ np.log((1.0 - at) * copied + at * drawn + self.lacking) + np.log(at))

        low, high = _floor(self.weight.sum()), MOST_SMOOTHING
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            rises = self.weight @ ((drawn - copied) / ((1.0 - middle) * copied + middle * drawn + self.lacking))
            low, high = (middle, high) if rises + 1.0 / middle > 0 else (low, middle)
        return middle, likelihood(middle) - likelihood(l)


def _floor(mass: float) -> float:
    return 1.0 / (mass + 1.0)


class MixedRows(NamedTuple):
    """The leave-one-out problem of rows of numbers and levels, of which some may be missing."""

    known: np.ndarray  # (n, d), the numbers, NaN where one is missing
    weight: np.ndarray | None
    rows: np.ndarray  # (n, d), the centres of the kernels: the numbers with their gaps filled in
    covariance: np.ndarray  # (d, d), of the data
    engine: Any
    categories: Categories
    codes: np.ndarray  # (n, columns of the table)
    smoothing: np.ndarray  # (q,), l
    pairs: Any = None  # the resident problem of complete rows
    least: float = 0.0  # a pass changes one l alone if that gains more per row
    alone: bool = False  # whether the last pass did
    slopes: Any = None  # (q,), of the objective on the scale of logits, at the last pass

    @classmethod
    def of(
        cls,
        numbers: np.ndarray,
        weight: np.ndarray | None,
        engine: Any,
        levels: tuple[Categories, np.ndarray],
        least: float,
    ) -> "MixedRows":
        """Return the problem of rows, with every l at its start; rows of weight zero are left out."""
        categories, codes = levels
        numbers = np.asarray(numbers, dtype=np.float64)
        smoothing = np.full(len(categories.columns), _START)
        gaps = np.isnan(numbers).any() or np.isnan(codes[:, categories.positions]).any()
        if gaps:
            names = None if categories.names is None else categories.names[categories.numbers]
            check_columns_known(numbers, names)
            if np.isnan(numbers).any():
                filled, covariance = gaussian_start(numbers, weight)
            else:
                filled, covariance = numbers, scatter_of_rows(numbers, weight)
            return cls(numbers, weight, filled, covariance, engine, categories, codes, smoothing, None, least)
        if weight is not None:
            numbers, codes, weight = numbers[weight > 0], codes[weight > 0], weight[weight > 0]
        points = np.hstack([numbers, categories.indicators(codes)])
        pairs = prepare(engine, points, log_weights=np.zeros(len(points)), leave_one_out=True, passes=20)
        covariance = scatter_of_rows(numbers, weight)
        return cls(numbers, weight, numbers, covariance, engine, categories, codes, smoothing, pairs, least)

    @property
    def mass(self) -> float:
        """The sum of the weights."""
        return float(len(self.known) if self.weight is None else self.weight.sum())

    @property
    def _weights(self) -> np.ndarray:
        return np.ones(len(self.known)) if self.weight is None else self.weight

    def em_statistics(self, metric: np.ndarray) -> EMStatistics:
        """Return the log-likelihood per row, the scatter of the numbers in the frame of the metric, and the problem with EM's l."""
        if self.pairs is None:
            inverse = np.linalg.inv(metric)
            expectation = expect(self.known, self.rows, inverse @ inverse.T, self.weight, self.engine, self.levels)
            scores, masses = expectation.scores, expectation.masses
            assert masses is not None
            scatter, rows = metric @ (expectation.scatter / self.mass) @ metric.T, expectation.rows
        else:
            scores, scatter, masses = self._complete(metric)
            rows = self.rows
        objective = float(self._weights @ scores + np.log(self.smoothing).sum()) / self.mass
        return EMStatistics(objective, scatter, self._next(masses)._replace(rows=rows))

    @property
    def levels(self) -> LevelsOfRows:
        """The levels of the rows and of the points."""
        return LevelsOfRows(self.categories, self.codes, self.codes, self.smoothing, TRAINING)

    def _complete(self, metric: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the log-densities, the scatter, and the weights of the neighbours at each level, of complete rows."""
        d, weight = len(metric), self._weights
        lacking = self.categories.queries(self.codes, self.smoothing, TRAINING)[1]
        with one_blas_thread_beside_pairs(*self.rows.shape):
            placed = self.placed(metric)
            sums, scatter, masses = placed.scatter_and_means(self.categories.indicators(self.codes), weight, n_first=d)
        scores = sums + lacking - np.log(weight_of_others(weight)) + log_norm(metric)
        return scores, scatter / self.mass, masses

    def placed(self, metric: np.ndarray) -> Placement:
        """Return the rows under the kernel of numbers and levels; levels that a row lacks agree with all others."""
        pairs = self.pairs
        if pairs is None:
            points = np.hstack([self.rows, self.categories.indicators(self.codes)])
            pairs = prepare(self.engine, points, log_weights=np.zeros(len(points)), leave_one_out=True)
        none_known = np.zeros(len(self.smoothing), dtype=bool) if self.pairs is None else None
        with np.errstate(divide="ignore"):
            weights = np.log(self._weights) + self.categories.point_weights(self.codes, self.smoothing, none_known)
        return pairs.reweighted(weights).at(block_diag(metric, np.diag(self.categories.scales(self.smoothing))))

    def _next(self, masses: np.ndarray) -> "MixedRows":
        """Return the problem with the l of the next pass."""
        masses_of_columns = [self._masses_of(column, masses[:, part]) for column, part in self.categories.coordinates()]
        l_of = list(zip(masses_of_columns, self.smoothing.tolist(), strict=True))
        updated, slopes = np.array([part.updated(l) for part, l in l_of]).T
        following, alone = np.minimum(updated, MOST_SMOOTHING), False
        if not self.alone and self.least < np.inf:
            best, gains = np.array([part.best(l) for part, l in l_of]).T
            k = int(np.argmax(gains))
            alone = bool(gains[k] / self.mass > self.least)
            following = np.where(np.arange(len(gains)) == k, best, self.smoothing) if alone else following
        return self._replace(smoothing=following, alone=alone, slopes=slopes / self.mass)

    def _masses_of(self, column: Any, masses: np.ndarray) -> Masses:
        codes_of_rows = self.codes[:, column.position]
        known = np.flatnonzero(codes_of_rows < len(column.levels))
        code = codes_of_rows[known].astype(int)
        group = column.group[code]
        same, having = masses[known, group], masses[known].sum(axis=1)
        other = np.maximum(having - same, 0.0)
        share = column.shares(TRAINING).group[code]
        return Masses(self._weights[known], np.maximum(same, 0.0), other, np.maximum(1.0 - having, 0.0), share)

    def moved(self, steps: np.ndarray) -> "MixedRows":
        """Return the problem after steps of each l on the scale of logits."""
        logits = np.log(self.smoothing) - np.log1p(-self.smoothing) + steps
        smoothing = np.clip(1.0 / (1.0 + np.exp(-np.clip(logits, -700.0, 700.0))), _floor(self.mass), MOST_SMOOTHING)
        return self._replace(smoothing=smoothing)

    def scores(self, metric: np.ndarray) -> np.ndarray:
        """Return the log-density of the known values of each row under the other rows."""
        inverse = np.linalg.inv(metric)
        return expect(self.known, self.rows, inverse @ inverse.T, self.weight, self.engine, self.levels).scores

    def complete(self) -> LeaveOneOut:
        """Return the problem of the numbers alone, with their gaps filled in."""
        return leave_one_out(self.rows, self.weight, self.engine)
