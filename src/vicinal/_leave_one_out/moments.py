"""Means and covariances of rows, with weights."""

from functools import reduce
from typing import NamedTuple

import numpy as np

from vicinal._rows import TrainingRows

_ALGEBRA_ROWS = 8192  # the number of rows that are centred at a time; a copy of all rows would be as large as the data


def counted_rows(X: np.ndarray, weight: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the rows of positive weight and their weights; None stays None."""
    return (X, weight) if weight is None or weight.all() else (X[weight > 0], weight[weight > 0])


def weight_of_others(weight: np.ndarray) -> np.ndarray:
    """Return ``W - w_i`` for each row, without cancellation if one row has nearly all the weight."""
    others = weight.sum() - weight
    heaviest = int(weight.argmax())
    others[heaviest] = np.delete(weight, heaviest).sum()
    return others


def mean_of_rows(X: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """Return the (weighted) mean, in float64."""
    return X.mean(axis=0, dtype=np.float64) if weight is None else weight @ X / weight.sum()


def scatter_of_rows(X: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """Return the (weighted) covariance of the rows, divided by n (by the weights' sum)."""
    scatter, mean = np.zeros((X.shape[1], X.shape[1])), mean_of_rows(X, weight)
    for start in range(0, len(X), _ALGEBRA_ROWS):
        part = slice(start, start + _ALGEBRA_ROWS)
        centred = X[part] - mean
        scatter += (centred if weight is None else centred * weight[part, None]).T @ centred
    return scatter / (len(X) if weight is None else weight.sum())


class Moments(NamedTuple):
    """The weight, the mean and the scatter of rows."""

    mass: float  # the sum of the weights
    squares: float  # the sum of their squares
    mean: np.ndarray  # (d,)
    scatter: np.ndarray  # (d, d), about the mean, not divided

    @property
    def covariance(self) -> np.ndarray:
        """The covariance, divided by n (by the weights' sum)."""
        return self.scatter / self.mass

    @classmethod
    def of(cls, rows: np.ndarray, weight: np.ndarray | None = None) -> "Moments | None":
        """Return the moments of rows in memory; None if none of them has weight. Rows of weight zero may hold any numbers."""
        rows, weight = counted_rows(rows, weight)
        if len(rows) == 0:
            return None
        mass = float(len(rows) if weight is None else weight.sum())
        squares = mass if weight is None else float(weight @ weight)
        return cls(mass, squares, mean_of_rows(rows, weight), mass * scatter_of_rows(rows, weight))

    def merged(self, other: "Moments") -> "Moments":
        """Return the moments of these rows and others together."""
        mass, apart = self.mass + other.mass, other.mean - self.mean
        return Moments(
            mass,
            self.squares + other.squares,
            self.mean + other.mass / mass * apart,
            self.scatter + other.scatter + self.mass * other.mass / mass * np.outer(apart, apart),
        )


def mean_and_covariance(rows: TrainingRows) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the covariance of the rows of a fit; of rows in a file, in one pass over all of them."""
    if rows.file is None:
        return mean_of_rows(rows.values, rows.weight), scatter_of_rows(rows.values, rows.weight)
    parts, start = [], 0
    for block in rows.file.source.blocks():
        weight = None if rows.file.weight is None else rows.file.weight[start : start + len(block)]
        parts.append(Moments.of(block, weight))
        start += len(block)
    moments = reduce(Moments.merged, [part for part in parts if part is not None])
    return moments.mean, moments.covariance
