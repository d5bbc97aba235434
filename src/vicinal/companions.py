"""Methods that the papers compare with or build on, and the simulators of their experiments.

- `MMC` (Xing et al.) learns a metric from pairs that are similar and pairs that are not.
- `ConstrainedKMeans` and `ConstrainedGaussianMixture` cluster rows of which some are known to belong together, or apart.
- `BinnedTargetMetric` lets a metric from groups learn from numbers.
- `simulate_chunklets`, `simulate_pairs` and `simulate_teachers` draw the supervision of the RCA paper from labels, and
  `expected_chunklet_size` is the size that its formula predicts.
"""

from vicinal._rca.binned_target_metric import BinnedTargetMetric
from vicinal._rca.constrained_kmeans import ConstrainedKMeans
from vicinal._rca.constrained_mixture import ConstrainedGaussianMixture
from vicinal._rca.mmc import MMC
from vicinal._supervision import expected_chunklet_size, simulate_chunklets, simulate_pairs, simulate_teachers

__all__ = [
    "MMC",
    "BinnedTargetMetric",
    "ConstrainedGaussianMixture",
    "ConstrainedKMeans",
    "expected_chunklet_size",
    "simulate_chunklets",
    "simulate_pairs",
    "simulate_teachers",
]


def __dir__() -> list[str]:
    return sorted(__all__)
