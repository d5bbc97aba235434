r"""The penalty on a kernel's covariance that leave-one-out likelihoods are maximised with.

It has one of two forms, per row:

.. math::

    \tfrac12 \operatorname{tr}(\Sigma^{-1} R)
    \qquad\text{or}\qquad
    \tfrac w2 \big[ \operatorname{tr}(\Sigma^{-1} T) + \log \det \Sigma \big] .

With the first, EM's M-step is :math:`S/n + R`: the kernel becomes wider. With the second (an inverse Wishart prior), it is
:math:`(S/n + w T) / (1 + w)`: the kernel is drawn towards the target T, which it reaches as :math:`w \to \infty`.
"""

from typing import NamedTuple

import numpy as np


class Penalty(NamedTuple):
    """A penalty that is added (R), or that draws the covariance towards a target (T, w)."""

    matrix: np.ndarray  # (d, d), R or T
    weight: float | None = None  # w; None for a penalty that is added

    @property
    def added(self) -> np.ndarray:
        """What is added to the local covariance: R, or w T."""
        return self.matrix if self.weight is None else self.weight * self.matrix

    @property
    def is_zero(self) -> bool:
        """Whether there is no penalty."""
        return not self.matrix.any()

    def updated(self, local: np.ndarray) -> np.ndarray:
        """Return the M-step's covariance for a local covariance S/n."""
        return local + self.matrix if self.weight is None else (local + self.added) / (1.0 + self.weight)

    def start(self, covariance: np.ndarray) -> np.ndarray:
        """Return the covariance that a fit starts from, given that of the data: the M-step's, or the target.

        Where rows have few effective neighbours, the objective has local optima, and the target is closer to a good one.
        """
        return covariance + self.matrix if self.weight is None else self.matrix

    def local_part(self, covariance: np.ndarray) -> np.ndarray:
        """Return the local covariance from which the M-step makes a covariance: the inverse of `updated`."""
        return covariance - self.matrix if self.weight is None else (1.0 + self.weight) * covariance - self.added

    def cost(self, metric: np.ndarray) -> float:
        """Return the penalty at a metric A with ``Sigma^-1 = A' A``."""
        pull = 0.5 * float(np.vdot(metric @ self.added, metric))
        return pull if self.weight is None else pull - self.weight * float(np.linalg.slogdet(metric)[1])

    def in_frame(self, metric: np.ndarray) -> "Penalty":
        """Return the penalty in the coordinates ``z = A x``."""
        return self._replace(matrix=metric @ self.matrix @ metric.T)

    def of_columns(self, columns: np.ndarray) -> "Penalty":
        """Return the penalty on some of the columns."""
        return self._replace(matrix=self.matrix[np.ix_(columns, columns)])
