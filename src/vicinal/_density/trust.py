"""Which training rows vouch for others: rows of small groups apart from the rest do not.

Under a narrow leave-one-out kernel the members of a small group of outliers vouch for each other.  So the rows are looked
at three times: with the kernel of the density, which finds rows that are alone, and through neighbours that are trusted at
two scales, which finds groups.

1. The kernel is widened until it reaches as many rows as the largest group of outliers may have.  On the *far* scale the
   kernel values of the median row's neighbours (at most 1 each) sum to that number: a smaller group cannot reach it, not
   even if all of its rows are equal.  On the *near* scale it is the effective number of neighbours (the perplexity) that
   is as large: this kernel is narrower, tells the clusters of usual rows apart, and sees groups that are as loose as those.
2. The rows of lowest density are left out as neighbours, and the densities are computed again, until nothing changes:
   what is left is the core.  This is the concentration step of the trimmed estimators (Rousseeuw and Van Driessen, 1999).
3. A row is trusted as far as the core vouches for it: in proportion to the square of its density under the wide kernel,
   and fully from the median upwards.  Weights fall smoothly, because a sharp cut would take the rim of clean data away.
4. Rows are scored by their trusted neighbours, under twice the width of the density's own kernel: that width is best
   where rows are dense, and outliers are judged where they are rare.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vicinal._engine import Placement, Problem, prepare, robust_centre
from vicinal._mixtures import SharedMixture, log_weight_of_others, normalised_log_weights

FEWEST_ROWS = 10  # fewer have no groups
# Chosen on eight sets of `benchmarks/outliers.py` and then tried on nine others; the neighbouring values do nearly as well.
_TRIMMED = 0.35
_ROUNDS = 5
_POWER = 2.0
_WIDENED = 2.0
# Wide kernels are smooth: of more rows, this many speak for all, which saves time and costs about a tenth of a nat.
_MOST_NEIGHBORS = 1000
# The width of the wide kernel is a median over this many rows; it needs few digits.
_SAMPLE = 200
_HALVINGS = 9


class ScoreScale(NamedTuple):
    """The median and the distance between the quartiles of scores."""

    median: float
    width: float


def weighted_quantile(values: np.ndarray, weight: np.ndarray | None, share: float) -> float:
    """The smallest value such that more than this share of the weight has at most that value."""
    order = np.argsort(values, kind="stable")
    cumulated = np.cumsum(np.ones(len(values)) if weight is None else weight[order])
    place = np.searchsorted(cumulated, share * cumulated[-1], side="right")
    return float(values[order[min(place, len(values) - 1)]])


def scale_of_scores(scores: np.ndarray, weight: np.ndarray | None) -> ScoreScale:
    """The median and the distance between the quartiles, by weight."""
    low, median, high = (weighted_quantile(scores, weight, share) for share in (0.25, 0.5, 0.75))
    return ScoreScale(median, high - low)


def trust_in_rows(mixture: SharedMixture, largest_group: float, weight: np.ndarray | None) -> np.ndarray:
    """How far each training row is trusted as a neighbour on the near and the far scale: (2, n) weights from 0 to 1.

    Parameters
    ----------
    mixture : SharedMixture
        Its centres are the training rows.
    largest_group : float
        The largest share of the rows that a group of outliers may have.
    weight : array of shape (n,) or None
        Importance of the rows.
    """
    n = len(mixture.centres)
    some = _evenly(np.flatnonzero(mixture.log_weights > -np.inf), _MOST_NEIGHBORS)
    place_of = np.full(n, -1)
    place_of[some] = np.arange(len(some))
    log_weights = normalised_log_weights(mixture.log_weights[some], len(some))
    problem = prepare(mixture.engine, mixture.centres[some], leave_one_out=True, passes=4 * _ROUNDS)
    reaches = _reaches(problem.reweighted(log_weights), mixture, largest_group)
    trust = np.empty((len(reaches), n))
    for scale, reach in enumerate(reaches):
        placed, log_core = _core(problem, log_weights, mixture.kernel_units / reach)
        scores = placed.log_sums(mixture.centres, place_of)
        scores[some] -= log_weight_of_others(log_core)
        top = weighted_quantile(scores, weight, 0.5)
        with np.errstate(under="ignore"):
            trust[scale] = np.exp(np.minimum(_POWER * (scores - top), 0.0))
    return trust


def _core(problem: Problem, log_weights: np.ndarray, kernel: np.ndarray) -> tuple[Placement, np.ndarray]:
    """The rows that are left as neighbours after the trimmed rounds, placed, and their log-weights of sum one."""
    kept = np.ones(len(log_weights), dtype=bool)
    log_core, placed = log_weights, problem.reweighted(log_weights).at(kernel)
    for _ in range(_ROUNDS):
        scores = placed.log_sums() - log_weight_of_others(log_core)
        dense = scores >= weighted_quantile(scores, np.exp(log_weights), _TRIMMED)
        if np.array_equal(dense, kept):
            break
        kept = dense
        log_core = normalised_log_weights(np.where(kept, log_weights, -np.inf), len(kept))
        placed = problem.reweighted(log_core).at(kernel)
    return placed, log_core


def _evenly(positions: np.ndarray, most: int) -> np.ndarray:
    """At most so many of the positions, at even distances."""
    return positions[np.linspace(0, len(positions) - 1, min(most, len(positions))).astype(int)]


def _reaches(problem: Problem, mixture: SharedMixture, largest_group: float) -> list[float]:
    """How many times wider the kernel has to be on the near and on the far scale, by the median of some rows."""
    some = _evenly(np.arange(problem.n_points), _SAMPLE)
    images = mixture.in_kernel_units(problem.points.rows)
    squares = np.square(images - robust_centre(images)).sum(axis=1)
    # At the upper end the kernel is wider than the data; the lower end is 2^14 times narrower. Rows that are all equal
    # have no width, and any kernel will do.
    widest = np.log(4.0) + 0.5 * np.log(np.median(squares) or squares.mean() or 1.0)
    # Groups have at least three rows, however few rows there are.
    target = max(largest_group, min(3.0 / problem.n_points, 0.5))

    def effective(placed: Placement) -> np.ndarray:
        return placed.perplexities(some) / problem.n_points

    def reached(placed: Placement) -> np.ndarray:
        with np.errstate(under="ignore"):
            return np.exp(placed.log_sums(some))

    found = []
    for share_of in (effective, reached):
        low, high = widest - 14.0 * np.log(2.0), widest
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            enough = np.median(share_of(problem.at(mixture.kernel_units / np.exp(middle)))) > target
            low, high = (low, middle) if enough else (middle, high)
        found.append(float(np.exp(0.5 * (low + high))))
    return found


def trusted_mixture(mixture: SharedMixture, trust: np.ndarray, widened: float = _WIDENED) -> SharedMixture:
    """The mixture in which each component counts as far as it is trusted, under a wider kernel."""
    with np.errstate(divide="ignore"):
        log_weights = mixture.log_weights + np.log(trust)
    covariance = widened**2 * mixture.covariance
    return SharedMixture(mixture.centres, covariance, log_weights, mixture.engine, mixture.feature_names)


def strangest_of(views: Sequence[np.ndarray], scales: Sequence[ScoreScale]) -> np.ndarray:
    """The lowest score of each row, after all scores have been given the median and quartile distance of the first."""
    first = scales[0]
    return np.min(
        [
            first.median + (scores - scale.median) * (first.width / scale.width)
            for scores, scale in zip(views, scales, strict=True)
        ],
        axis=0,
    )
