"""Gaussian mixtures ``p(x) = sum_j w_j N(x; c_j, C_j)``: log-density, sampling, marginals, conditionals, mean shift.

::

      protocol.py         Mixture: the interface of all mixtures
          |
      base.py             MixtureBase: everything that does not depend on the covariances
          |
      +-----------------------+------------------------+------------------------+
      | shared_mixture.py     | frame_mixture.py       | local_frame_mixture.py |
      | SharedMixture         | FrameMixture           | LocalFrameMixture      |
      | C_j = C               | C_j = noise I + frame  | C_j = C + frame        |
      | Parzen, LCA, LCAGauss | Manifold Parzen        | Local LCA              |
      +-----------------------+------------------------+------------------------+
          |
      components.py       weights of components      features.py    columns by position or name
      neighbor_steps.py   mean shift where components have covariances of their own
      conditionals.py     each column of a row given the others

A mixture uses arrays and the pair engine, but no estimator.
"""

from vicinal._mixtures.components import LOG_2PI, check_log_density, log_weight_of_others, normalised_log_weights
from vicinal._mixtures.conditionals import (
    Conditionals,
    Replacements,
    column_conditionals,
    scores_with_replacements,
)
from vicinal._mixtures.features import feature_positions, known_patterns
from vicinal._mixtures.frame_mixture import FrameMixture, frame_work
from vicinal._mixtures.local_frame_mixture import LocalFrameMixture
from vicinal._mixtures.protocol import Mixture
from vicinal._mixtures.shared_mixture import SharedMixture

__all__ = [
    "LOG_2PI",
    "Conditionals",
    "FrameMixture",
    "LocalFrameMixture",
    "Mixture",
    "Replacements",
    "SharedMixture",
    "check_log_density",
    "column_conditionals",
    "feature_positions",
    "frame_work",
    "known_patterns",
    "log_weight_of_others",
    "normalised_log_weights",
    "scores_with_replacements",
]
