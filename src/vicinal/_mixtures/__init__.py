"""Gaussian mixtures ``p(x) = sum_j w_j N(x; c_j, C_j)``: log-density, sampling, marginals, conditionals, mean shift.

::

      base.py              Mixture: everything that does not depend on the covariances
      shared_mixture.py    SharedMixture, C_j = C: Parzen windows, LCA, LCA-Gauss
      mixed_mixture.py     MixedMixture, C_j = C and columns of levels: Parzen windows and LCA of tables
      frame_mixture.py     FrameMixture, C_j = C + a frame: Manifold Parzen (C = noise I), Local LCA
      conditionals.py      each column of a row given the others
      background.py        broad Gaussians that have a share of a SharedMixture or a MixedMixture
      features.py          columns by position or name

A mixture uses arrays and the pair engine, but no estimator.
"""

from vicinal._mixtures.background import Background
from vicinal._mixtures.base import LOG_2PI, Mixture, check_log_density, log_weight_of_others, normalised_log_weights
from vicinal._mixtures.conditionals import (
    Conditionals,
    Replacements,
    column_conditionals,
    scores_with_replacements,
)
from vicinal._mixtures.features import feature_positions, known_patterns
from vicinal._mixtures.frame_mixture import FrameMixture, frame_work
from vicinal._mixtures.mixed_mixture import MixedMixture
from vicinal._mixtures.shared_mixture import SharedMixture

__all__ = [
    "LOG_2PI",
    "Background",
    "Conditionals",
    "FrameMixture",
    "MixedMixture",
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
