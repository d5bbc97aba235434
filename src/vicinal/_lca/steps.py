r"""LCA's pass over the pairs and the steps that follow from it, as pure functions of arrays.

A metric is a square matrix A with :math:`\Sigma^{-1} = A'A`; its *frame* is the coordinates z = A x, in
which the kernel's covariance is the identity. One pass at A gives the penalised leave-one-out objective per
row (Eq. 1; w = 1)

.. math::

    F(A) = \frac{1}{W} \sum_i w_i \log \Big[ \frac{1}{W - w_i} \sum_{j \ne i} w_j N(x_i; x_j, \Sigma) \Big]
           - \frac12 \operatorname{tr}(\Sigma^{-1} R)

and the EM matrix in the frame, :math:`M = S_z / W + A R A'` (Eqs. 3 and 4 with the penalty; the paper has
:math:`R = \nu I`). The M-step is
:math:`\Sigma \leftarrow A^{-1} M A^{-T}`; the gradient of F in A is
:math:`(I - M) A^{-T} = A^{-T} - A (S/W + R)`. With a penalty of weight w that draws towards a target T,
:math:`M = (S_z / W + w A T A') / (1 + w)`, and the gradient is :math:`(1 + w) (I - M) A^{-T}`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import block_diag

from vicinal._metric import signs_of

# A direction whose variance falls below this share of the data's variance is collapsing, because distances along it have no
# digits left. Data of twins reach this in five EM steps; clean manifolds (noise 1e-5 of the spread) do not.
COLLAPSE = 1e-12


class CollapseError(np.linalg.LinAlgError):
    """The kernel's covariance became singular: the likelihood has no maximum."""


class Penalty(NamedTuple):
    r"""A penalty on the kernel's covariance: one that is added (R), or one that draws it towards a target (T, w).

    Per row it is :math:`\tfrac12 \operatorname{tr}(\Sigma^{-1} R)`, and the kernel becomes wider, or
    :math:`\tfrac w2 [\operatorname{tr}(\Sigma^{-1} T) + \log \det \Sigma]` (an inverse Wishart prior), and the kernel is T as
    :math:`w \to \infty`.
    """

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


class Structure(NamedTuple):
    """The structure of the kernel's covariance: "full", "diag", "spherical", or "low_rank" with a rank."""

    covariance: str
    rank: int | None = None


def inverse_root(covariance: np.ndarray) -> np.ndarray:
    """Return A with ``A' A`` the inverse of a covariance, computed on the scale of its correlations."""
    scale = np.sqrt(np.diag(covariance))
    lower = np.linalg.cholesky(covariance / np.outer(scale, scale))
    return np.linalg.inv(lower) / scale


# -- the structures that a covariance may have -----------------------------------------------------------


def nearest_structured(matrix: np.ndarray, covariance: str, rank: int | None = None) -> np.ndarray:
    """Return the M-step: the covariance of a structure that maximises ``-log|Sigma| - tr(Sigma^-1 T)`` given T.

    "full": T. "diag": its diagonal. "spherical": its mean diagonal entry (the same trace, sec. 6.2).
    "low_rank": its `rank` largest eigenvalues with their eigenvectors, the others replaced by their mean
    (as in probabilistic PCA).
    """
    if covariance == "full":
        return matrix
    if covariance == "diag":
        return np.diag(np.diag(matrix))
    if covariance == "spherical":
        return np.eye(len(matrix)) * (np.trace(matrix) / len(matrix))
    values, vectors = np.linalg.eigh(matrix)
    assert rank is not None
    # Departure 6 (LCA): A low rank averages the other eigenvalues.
    rest = values[: len(values) - rank].mean()
    top = vectors[:, len(values) - rank :]
    return rest * np.eye(len(values)) + (top * (values[len(values) - rank :] - rest)) @ top.T


class Point(NamedTuple):
    """A point of an exact fit: the metric A, and the leave-one-out problem, whose centres move if rows have gaps."""

    metric: np.ndarray
    problem: Any  # LeaveOneOut, Minibatch, IncompleteRows or MixedRows


class Steps:
    """EM's step at a metric, and moves along displacements, for one structure and one penalty.

    A displacement is a symmetric matrix D in the frame of the metric A: it leads to the covariance
    ``A^-1 exp(D) A^-T``, and the new frame is ``exp(-D/2) A``. (Under a penalty of weight w that draws towards a target, D has
    the unit ``1 / sqrt(1 + w)``.) In these moving frames EM's displacement is log M, the geometry is that of the
    affine-invariant metric on covariances, and displacements at different points may be compared entry by entry (the frames are
    parallel along the move). Nothing depends on the units of the data.

    Parameters
    ----------
    reg : Penalty
    structure : Structure
    start : array of shape (d, d)
        The metric at the start.
    reference : array of shape (d, d), optional
        The metric of the data's covariance, relative to which a collapse is detected; None is the start. (A start may be far
        wider, which is not a collapse, or far narrower, which makes a collapse harder to detect.)
    """

    def __init__(
        self, reg: Penalty, structure: Structure, start: np.ndarray, reference: np.ndarray | None = None
    ) -> None:
        self.reg, self.structure = reg, structure
        # The gradient of F by log Sigma is half of (1 + w) log M. In the unit 1 / sqrt(1 + w), it is half of the displacement.
        self._unit = 1.0 / np.sqrt(1.0 + (reg.weight or 0.0))
        self._root = np.linalg.inv(start if reference is None else reference)
        self._largest = max(1.0, self._narrowness(start) / max(len(start), 1)) / COLLAPSE
        self._problem: Any = None  # the problem after the last pass

    def _narrowness(self, metric: np.ndarray) -> float:
        return np.square(metric @ self._root).sum()

    # Departure 1 (LCA): The penalty is added in the M-step. It is 1/2 tr(Sigma^-1 R) per row; Algorithm 1 has R = nu I.
    def displacement(self, at: Point) -> tuple[float, np.ndarray]:
        """Return the objective at a point and EM's displacement from it."""
        metric = at.metric
        if self._narrowness(metric) > self._largest:
            raise CollapseError
        log_likelihood, scatter, self._problem = at.problem.em_statistics(metric)  # Eq. 1, and lambda_ij of Eq. 3
        matrix = self.reg.in_frame(metric).updated(scatter)  # Eq. 4 with the penalty, in the frame: M = A Sigma A'
        matrix = 0.5 * (matrix + matrix.T)
        if self.structure.covariance != "full":
            inverse = np.linalg.inv(metric)
            update = nearest_structured(inverse @ matrix @ inverse.T, *self.structure)
            matrix = metric @ update @ metric.T
        return log_likelihood - self.reg.cost(metric), symmetric_function(matrix, _log) / self._unit

    def step(self, at: Point) -> tuple[float, Point]:
        """Return the objective at a point, and the point after EM's step."""
        objective, displacement = self.displacement(at)
        return objective, Point(self.move(at, displacement)[0].metric, self._problem)

    def move(self, at: Point, displacement: np.ndarray) -> tuple[Point, np.ndarray]:
        """Return the point at the end of a displacement (or the nearest of the structure), and the move made."""
        metric, displacement = at.metric, self._unit * displacement
        if self.structure.covariance == "low_rank":
            inverse = np.linalg.inv(metric)
            covariance = inverse @ symmetric_function(displacement, np.exp) @ inverse.T
            covariance = nearest_structured(0.5 * (covariance + covariance.T), *self.structure)
            displacement = symmetric_function(metric @ covariance @ metric.T, _log)
        moved = symmetric_function(displacement, lambda values: np.exp(-0.5 * values)) @ metric
        return Point(moved, at.problem), displacement / self._unit


class MixedSteps(Steps):
    """The same for rows of numbers and levels: the smoothing l of each column of levels has a coordinate as well.

    Displacements are block diagonal. Those of the logits of l are in units of the root of 2, in which they are twice the gradient and a
    plain step is at most as long as EM's.
    """

    def displacement(self, at: Point) -> tuple[float, np.ndarray]:
        """Return the objective at a point and a displacement from it along which the objective rises."""
        objective, of_numbers = super().displacement(at)
        return objective, block_diag(of_numbers, np.diag(np.sqrt(8.0) * self._problem.slopes))

    def step(self, at: Point) -> tuple[float, Point]:
        """Return the objective at a point, and the point after EM's step, or after that of one l alone."""
        objective, of_numbers = super().displacement(at)
        following = self._problem
        return objective, Point(at.metric if following.alone else super().move(at, of_numbers)[0].metric, following)

    def move(self, at: Point, displacement: np.ndarray) -> tuple[Point, np.ndarray]:
        """Return the point at the end of a displacement, and the move made."""
        d = len(at.metric)
        moved, made = super().move(at, displacement[:d, :d])
        of_levels = np.diag(displacement)[d:]
        return Point(moved.metric, at.problem.moved(np.sqrt(2.0) * of_levels)), block_diag(made, np.diag(of_levels))


def symmetric_function(matrix: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return a function of the eigenvalues of a symmetric matrix (elementwise for a diagonal one)."""
    diagonal = np.diag(matrix)
    if np.count_nonzero(matrix) == np.count_nonzero(diagonal):
        return np.diag(function(diagonal))
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    return (vectors * function(values)) @ vectors.T


def _log(values: np.ndarray) -> np.ndarray:
    # Rounding leaves eigenvalues of zero where one step loses all digits of a direction.
    if not values.min(initial=1.0) > 0:
        raise CollapseError
    return np.log(values)


# -- reading a fitted metric ------------------------------------------------------------------------------


def ordered_metric(metric: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Return the same metric with its rows rotated to the local components, in order.

    Row k of the result is the direction a_k, of local variance ``a_k' Sigma a_k = 1``, with the k-th
    largest global variance ``a_k' C a_k``: first come the directions along which the data spread most
    beyond their neighbourhoods.

    Parameters
    ----------
    metric : array of shape (d, d)
    covariance : array of shape (d, d)
        The covariance C of the data.
    """
    _, vectors = np.linalg.eigh(metric @ covariance @ metric.T)
    # Departure 7 (LCA): Components are ordered by global variance.
    rows = vectors[:, ::-1].T @ metric
    # Signs: the entry of each row that is largest (in units of the feature's spread) is positive.
    return rows * signs_of((rows * np.sqrt(np.diag(covariance))).T).T
