"""Ranks of scores, and the labels that follow from them."""

from typing import Any, NamedTuple

import numpy as np
from scipy.stats import false_discovery_control

from vicinal._checks import check_positive


def check_outlier_parameters(detector: Any) -> None:
    """Raise an error for values of contamination, largest_group and fdr that are out of range."""
    contamination, largest_group, fdr = detector.contamination, detector.largest_group, detector.fdr
    if check_positive(contamination, "contamination") > 0.5:
        raise ValueError(f"contamination must be at most 0.5, got {contamination}: outliers must be a minority.")
    if largest_group is not None and check_positive(largest_group, "largest_group") >= 0.5:
        raise ValueError(
            f"largest_group must be less than 0.5, got {largest_group}: a group of outliers must be a minority. Pass None "
            "to score by the density alone."
        )
    if fdr is not None and check_positive(fdr, "fdr") >= 1.0:
        raise ValueError(f"fdr must be less than 1, got {fdr}: it is a share of the rows that are flagged.")


class Ranks(NamedTuple):
    """Scores in increasing order, and their cumulative weights, which are scaled to mean 1."""

    in_order: np.ndarray
    cumulated: np.ndarray

    @classmethod
    def of(cls, scores: np.ndarray, weight: np.ndarray | None) -> "Ranks":
        """Return the ranks of scores."""
        order = np.argsort(scores)
        if weight is None:
            return cls(scores[order], np.arange(1.0, len(scores) + 1.0))
        return cls(scores[order], np.cumsum(weight[order] * (len(weight) / max(weight.sum(), np.finfo(float).tiny))))

    def weight_below(self, scores: np.ndarray) -> np.ndarray:
        """Return the weight of the ranked scores that are not higher than each of some scores."""
        return np.append(0.0, self.cumulated)[np.searchsorted(self.in_order, scores, side="right")]

    def at_weight(self, weight: np.ndarray) -> np.ndarray:
        """Return the scores at which the cumulative weight reaches some weights; between two ranks, one between their scores."""
        places = np.minimum(np.searchsorted(self.cumulated, weight - 1e-9, side="left"), len(self.in_order) - 1)
        before, upper = np.append(0.0, self.cumulated)[places], self.in_order[places]
        lower = np.append(self.in_order[0] - 1.0, self.in_order)[places]
        if not np.isfinite(self.in_order[0]):
            return upper
        share = (weight - before) / np.maximum(self.cumulated[places] - before, np.finfo(float).tiny)
        return np.where(share > 1.0 - 1e-9, upper, lower + np.clip(share, 0.0, 1.0) * (upper - lower))

    def p_values(self, scores: np.ndarray) -> np.ndarray:
        """Return the p-values of scores of new rows."""
        return (1.0 + self.weight_below(scores)) / (len(self.in_order) + 1.0)

    def scores_at(self, p_values: np.ndarray, depths: np.ndarray) -> np.ndarray:
        """Return scores of new rows whose p-values are known, lower by their depth if they are below all ranked scores."""
        weight = p_values * (len(self.in_order) + 1.0) - 1.0
        lowest = self.in_order[np.isfinite(self.in_order)][0]
        return np.where(weight <= 1e-9, np.nextafter(lowest, -np.inf) - depths, self.at_weight(weight))

    def threshold(self, level: float) -> float:
        """Return the score below which the p-value of a new row is at most a level; the lowest score if no p-value is so small."""
        finite = np.isfinite(self.in_order)
        if not finite.any():
            raise ValueError(
                "every training row has density 0 under the others, so they cannot be ranked. Increase the "
                "density's bandwidth."
            )
        # Density 0 (a kernel of bounded support) is below everything, and stays below the threshold.
        scores = np.where(finite, self.in_order, self.in_order[finite][0] - 1.0)
        place = int(np.searchsorted(self.cumulated, level * (len(scores) + 1.0) - 1.0 + 1e-9, side="right"))
        return float(scores[min(place, len(scores) - 1)])


def labels_of(detector: Any, scores: np.ndarray) -> np.ndarray:
    """Return -1 for outliers and 1 for other rows, given the scores of all rows; with ``fdr``, these are tested together."""
    if detector.fdr is None:
        return np.where(scores < detector.offset_, -1, 1)
    return np.where(false_discovery_control(detector.p_values_from_scores(scores)) <= detector.fdr, -1, 1)


def labels_in_blocks(detector: Any) -> Any:
    """Return the dtype of predictions for the blocks of a collection; raise if predictions need all rows together."""
    if detector.fdr is not None:
        raise ValueError(
            "fdr tests all rows together, but the blocks of a Dask collection are processed one by one. Pass "
            "p_values(X).compute() to scipy.stats.false_discovery_control, or set fdr=None."
        )
    return np.dtype(np.int64)
