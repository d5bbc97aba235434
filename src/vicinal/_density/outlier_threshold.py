"""The threshold of outliers, and validation of the parameters that determine it."""

from typing import Any, NamedTuple

import numpy as np
from scipy.stats import false_discovery_control

from vicinal._checks import check_positive
from vicinal._density.groups import weighted_quantile


def check_outlier_parameters(detector: Any) -> None:
    """Raise an error if parameters of a detector are not valid shares."""
    contamination, largest_group, fdr = detector.contamination, detector.largest_group, detector.fdr
    if isinstance(contamination, str):
        if contamination != "auto":
            raise ValueError(f"contamination must be 'auto' or a number in (0, 0.5], got {contamination!r}.")
    elif check_positive(contamination, "contamination") > 0.5:
        raise ValueError(f"contamination must be at most 0.5, got {contamination}: outliers must be a minority.")
    if largest_group is not None and check_positive(largest_group, "largest_group") >= 0.5:
        raise ValueError(
            f"largest_group must be less than 0.5, got {largest_group}: a group of outliers must be a minority. Pass None "
            "to score by the density alone."
        )
    if fdr is not None and check_positive(fdr, "fdr") >= 1.0:
        raise ValueError(f"fdr must be less than 1, got {fdr}: it is a share of the rows that are flagged.")


class Ranks(NamedTuple):
    """Scores in increasing order, and their cumulative weights (without weights, their numbers)."""

    in_order: np.ndarray
    cumulated: np.ndarray

    @classmethod
    def of(cls, scores: np.ndarray, weight: np.ndarray | None) -> "Ranks":
        """Return the ranks of scores."""
        order = np.argsort(scores)
        return cls(scores[order], np.cumsum(np.ones(len(scores)) if weight is None else weight[order]))

    def weight_below(self, scores: np.ndarray) -> np.ndarray:
        """Return the weight of the ranked scores that are not higher than each of some scores."""
        return np.append(0.0, self.cumulated)[np.searchsorted(self.in_order, scores, side="right")]

    def above_weight(self, weight: float) -> float:
        """Return the first score at which the cumulative weight exceeds this weight, or the highest score if there is none."""
        place = int(np.searchsorted(self.cumulated, weight, side="right"))
        return float(self.in_order[min(place, len(self.in_order) - 1)])


def outlier_threshold(ranks: Ranks, contamination: str | float) -> float:
    """Return the threshold of outliers."""
    scores, cumulated = ranks
    finite = np.isfinite(scores)
    if not finite.any():
        raise ValueError(
            "every training row has density 0 under the others, so they cannot be ranked. Increase the "
            "density's bandwidth."
        )
    # Density 0 (a kernel of bounded support) is below everything, and stays below the threshold.
    scores = np.where(finite, scores, scores[finite][0] - 1.0)
    weight = np.diff(cumulated, prepend=0.0)
    if contamination == "auto":
        low, high = (weighted_quantile(scores, weight, share) for share in (0.25, 0.75))
        return float(low - 1.5 * (high - low))
    return weighted_quantile(scores, weight, float(contamination))


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
