"""What NCA and PairNCA share: both learn a matrix A from a start, by an optimiser."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.random import RandomState
from sklearn.base import BaseEstimator

from vicinal._checks import check_callback, check_choice, check_flag, check_integer, check_positive
from vicinal._metric import LinearMetricMixin
from vicinal._nca.starts import STRUCTURES, Start, check_init, check_size, given_start, user_start
from vicinal._records import RecordParametersMixin

if TYPE_CHECKING:
    from vicinal._engine import Problem
    from vicinal._fit_loops import FitPath


class LinearNCA(RecordParametersMixin, LinearMetricMixin, BaseEstimator):
    """NCA with a matrix: the checks, the start and the fitted attributes."""

    # exp(-|Ax - Ay|^2) is a Gaussian kernel of this standard deviation in the image: the scale of A is learned.
    _learned_bandwidth = float(np.sqrt(0.5))
    _inits: ClassVar[tuple[str, ...]]  # the names of initial matrices

    # The parameters that both have.
    n_components: int | None
    init: Any
    n_init: int
    structure: str
    max_iter: int
    tol: float
    warm_start: bool
    callback: Any
    random_state_: RandomState

    def _check_shared_parameters(self) -> None:
        """Raise an error for invalid values of the parameters that both have."""
        if self.n_components is not None:
            check_integer(self.n_components, "n_components")
        check_init(self.init, self._inits)
        check_choice(self.structure, "structure", STRUCTURES)
        check_integer(self.n_init, "n_init")
        check_flag(self.warm_start, "warm_start")
        check_integer(self.max_iter, "max_iter")
        check_positive(self.tol, "tol", strict=False)
        check_callback(self.callback)

    def _start_of_attempt(
        self,
        attempt: int,
        n_features: int,
        start_from_data: Callable[[int, RandomState | None], Start],
        rows_and_classes: Callable[[], tuple[np.ndarray, np.ndarray | None]],
    ) -> Start:
        """Return the start of an attempt: the last fit's, that of "auto" or a random one, or the user's.

        Parameters
        ----------
        attempt : int
            From 0; later ones are random matrices.
        n_features : int
        start_from_data : callable
            ``start_from_data(n_components, at_random)`` returns a start whose scale suits the data; `at_random` is None, or the
            generator of random directions.
        rows_and_classes : callable
            Returns the rows and their classes (or None), from which named matrices are computed.
        """
        diagonal, init = self.structure == "diag", self.init
        if attempt == 0 and self.warm_start and hasattr(self, "components_"):
            return given_start(self.components_, n_features, diagonal, "the components_ of the last fit")
        n_components = check_size(self.n_components, n_features, diagonal)
        at_random = attempt > 0 and not (isinstance(init, str) and init == "random")
        if at_random or (isinstance(init, str) and init == "auto"):
            return start_from_data(n_components, self.random_state_ if at_random else None)
        return user_start(init, *rows_and_classes(), self.n_components, diagonal, self.random_state_)

    def _store_matrix(self, path: FitPath, spread: np.ndarray, problem: Problem) -> np.ndarray:
        """Store the matrix of a path, and return it; that of a diagonal one is a vector."""
        A, diagonal = path.parameters, self.structure == "diag"
        if diagonal:
            A = np.abs(A)  # a sign changes no distance
            self.feature_relevance_ = _relevance(A, spread)
        self.components_ = np.diag(A) if diagonal else A
        self.objectives_, self.converged_ = path.objectives, path.converged
        self.n_iter_, self.n_passes_ = path.n_iter, path.n_passes
        self.engine_, self.certified_row_error_ = problem.backend, problem.certified_row_error
        return A


def _relevance(A: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Return each feature's share of the mean squared distance under a diagonal A."""
    share = (A * spread) ** 2
    total = share.sum()
    return share / total if total > 0 else np.full(len(A), 1.0 / len(A))
