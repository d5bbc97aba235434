"""The interface of all mixtures, whatever the covariances of their components."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from vicinal._engine import Engine, Placement
from vicinal._mixtures.components import RandomState
from vicinal._mixtures.features import Feature, Features


@runtime_checkable
class Mixture(Protocol):
    r"""A Gaussian mixture :math:`p(x) = \sum_j w_j N(x; c_j, C_j)` of n components in D dimensions.

    Attributes
    ----------
    centres : array of shape (n, D)
    log_weights : array of shape (n,)
        The log-weights, of sum one; a component of weight 0 has log-weight -inf.
    engine : None, str or Engine
        The backend of the pairwise computations. It may be changed at any time.
    feature_names : array of shape (D,), or None
    """

    centres: np.ndarray
    log_weights: np.ndarray
    engine: Engine | str | None
    feature_names: np.ndarray | None

    @property
    def n_features(self) -> int:
        """The number of dimensions."""

    # -- densities -----------------------------------------------------------------------------------------------

    def score_samples(self, X: ArrayLike) -> np.ndarray:
        """Return ``log p(x)`` of each row of X, shape (m,); of its known values if it has missing ones (NaN)."""

    def left_out_score_samples(self, passes: int = 1) -> np.ndarray:
        """Return the log-density of each centre under the mixture of the *other* components, shape (n,)."""

    def score(self, X: ArrayLike) -> float:
        """Return the mean log-density of the rows of X."""

    def responsibilities(self, X: ArrayLike, least: float = 1e-12) -> csr_array:
        """Return the shares ``p_ij = w_j N(x_i; c_j, C_j) / p(x_i)`` of at least `least`, sparse of shape (m, n)."""

    # -- other densities and rows --------------------------------------------------------------------------------

    def sample(self, n_samples: int = 1, random_state: RandomState = None) -> np.ndarray:
        """Draw rows, shape (n_samples, D)."""

    def marginal(self, features: Features) -> Mixture:
        """Return the density of some features alone, exactly."""

    def conditional(self, given: Mapping[Feature, float]) -> Mixture:
        """Return the density of the other features given the values of some, exactly."""

    # -- modes ---------------------------------------------------------------------------------------------------

    @property
    def kernel_units(self) -> np.ndarray:
        """The map to coordinates in standard deviations of the kernels: (D, D), or (D,) for a diagonal."""

    def in_kernel_units(self, rows: ArrayLike) -> np.ndarray:
        """Return rows mapped by `kernel_units`, relative to a centre of the components, in float64."""

    def mean_shift(self, X: np.ndarray, placed: Placement | None = None) -> np.ndarray:
        """Return the step uphill ``(sum_j p_ij C_j^-1)^-1 sum_j p_ij C_j^-1 (c_j - x_i)`` of each row, shape (m, D)."""

    def placement(self, n_queries: int, passes: int = 1, engine: Engine | str | None = None) -> Placement:
        """Return the components as placed by the engine for scoring a number of rows a number of times."""
