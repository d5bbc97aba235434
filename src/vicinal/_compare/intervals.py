"""Intervals for scores of repeated cross-validation."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import t as student


class Interval(NamedTuple):
    """A mean and the interval around it."""

    mean: float
    low: float
    high: float


def corrected_interval(
    values: ArrayLike, test_share: float, *, level: float = 0.95, n_comparisons: int = 1, n_folds: int | None = None
) -> Interval:
    r"""Return a Student interval for the mean of cross-validation scores, corrected for overlapping training sets.

    Scores of J folds are not independent: their training sets overlap, and the usual variance of a mean,
    :math:`s^2 / J`, is too small. Nadeau and Bengio (2003) replace it by

    .. math:: s^2 \left(\frac1J + \frac{n_{test}}{n_{train}}\right)

    with J - 1 degrees of freedom. Applied to the *differences* of two methods on the same folds it is a paired
    interval. With `n_comparisons` m the level is :math:`1 - \alpha/m` (Bonferroni), so that all m intervals hold at
    once.

    Parameters
    ----------
    values : array of shape (J,)
    test_share : float
        :math:`n_{test} / n_{train}`.
    level : float
    n_comparisons : int
    n_folds : int, optional
        The number of folds that the interval is for, if it is not J: the interval that so many folds with the same mean and
        spread would have.

    Returns
    -------
    Interval
        With one fold the interval is unbounded, because its spread cannot be estimated.
    """
    values = np.asarray(values, dtype=np.float64)
    mean, folds = float(values.mean()), n_folds or len(values)
    if len(values) < 2:
        return Interval(mean, -np.inf, np.inf)
    error = float(values.std(ddof=1)) * (1.0 / folds + test_share) ** 0.5
    reach = error * float(student.ppf(1.0 - (1.0 - level) / (2.0 * n_comparisons), folds - 1))
    return Interval(mean, mean - reach, mean + reach)
